//! Who has records of which key, where keys are ordered: hashes of what is ready or in flight, and an owner for each hash that is out.

use hashbrown::HashMap;

use super::{ConsumerId, KeyHash};

/// What is needed for ordered keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    /// Of what is ready or in flight and has been looked at.
    hashes: HashMap<u64, u64>,
    /// Who has records of a key, and how many.
    owners: HashMap<u64, (ConsumerId, u32)>,
}

impl Keys {
    /// Asks for the key of an offset once.
    pub fn learn(&mut self, offset: u64, hash: &mut dyn FnMut(u64) -> KeyHash) {
        if let hashbrown::hash_map::Entry::Vacant(vacant) = self.hashes.entry(offset)
            && let Some(hash) = hash(offset)
        {
            vacant.insert(hash);
        }
    }

    pub fn may_have(&self, offset: u64, consumer: ConsumerId) -> bool {
        let owner = self.hashes.get(&offset).and_then(|hash| self.owners.get(hash));
        owner.is_none_or(|(owner, _)| *owner == consumer)
    }

    pub fn own(&mut self, offset: u64, consumer: ConsumerId) {
        if let Some(hash) = self.hashes.get(&offset) {
            self.owners.entry(*hash).or_insert((consumer, 0)).1 += 1;
        }
    }

    pub fn disown(&mut self, offset: u64) {
        if let Some(hash) = self.hashes.get(&offset)
            && let Some((_, count)) = self.owners.get_mut(hash)
        {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(hash);
            }
        }
    }

    pub fn forget(&mut self, offset: u64, owned: bool) {
        if owned {
            self.disown(offset);
        }
        self.hashes.remove(&offset);
    }
}
