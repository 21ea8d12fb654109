//! Which groups a client may be a member of, so that who asks for it looks at no others: by a hash of what members are known by elsewhere. What is
//! here was said once and may not hold any more; the groups themselves know.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashMap;

/// Groups of one client that are noted. Of those of a client with more nothing is told of the others.
pub(super) const GROUPS_MAX: usize = 256;
/// So many are asked for whether it is in them, before one goes.
const LOOKED_AT: usize = 4;
/// It is made anew when it has become twice as long as it was then, and so much longer.
const ADDED: usize = 1000;

/// See the head of the file.
pub(super) struct Clients {
    groups: HashMap<u64, Vec<Arc<str>>>,
    hasher: std::hash::RandomState,
    count: usize,
    /// How many there were when it was made anew.
    made: usize,
    /// Some were restored and are not in it.
    incomplete: bool,
}

impl Default for Clients {
    fn default() -> Self {
        Self { groups: HashMap::new(), hasher: std::hash::RandomState::new(), count: 0, made: 0, incomplete: false }
    }
}

impl Clients {
    fn key(&self, id: &str, host: &str) -> u64 {
        self.hasher.hash_one((id, host))
    }

    /// A client speaks as a member of a group. Of very many groups those of which it spoke last are noted.
    /// `is_in`: it is a member of this one still.
    pub fn note(&mut self, group: &str, id: &str, host: &str, is_in: impl Fn(&str) -> bool) {
        let key = self.key(id, host);
        let noted = self.groups.entry(key).or_default();
        if let Some(at) = noted.iter().position(|name| **name == *group) {
            noted[at..].rotate_left(1);
            return;
        }
        if noted.len() == GROUPS_MAX {
            for _ in 0..LOOKED_AT {
                if !is_in(&noted[0]) {
                    break;
                }
                noted.rotate_left(1);
            }
            noted.remove(0);
            self.count -= 1;
        }
        noted.push(group.into());
        self.count += 1;
    }

    /// There may be members that were not noted.
    pub fn note_restored(&mut self) {
        self.incomplete = true;
    }

    /// Is it to be made anew, because some are missing or many have gone?
    pub fn is_to_be_made(&self) -> bool {
        self.incomplete || self.count > 2 * self.made + ADDED
    }

    /// Forgets all, and has `fill` note those that there are.
    pub fn make(&mut self, fill: impl FnOnce(&mut Self)) {
        *self = Self::default();
        fill(self);
        self.made = self.count;
    }

    /// How many pairs of a client and a group there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Groups of which the client may be a member.
    pub fn of(&self, id: &str, host: &str) -> &[Arc<str>] {
        self.groups.get(&self.key(id, host)).map_or(&[], |names| names)
    }
}
