//! Direct exchanges: bindings grouped by key.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use crate::binding::{BindingId, Bindings};

/// Bindings that match alike; each knows its place in it.
pub(crate) type Group = SmallVec<[BindingId; 4]>;

/// Takes out a binding; the last one gets its place.
pub(crate) fn leave(group: &mut Group, id: BindingId, bindings: &mut Bindings) {
    let place = bindings.get(id).group_place;
    assert_eq!(group.swap_remove(place as usize), id, "a binding knows its place");
    if let Some(moved) = group.get(place as usize) {
        bindings.get_mut(*moved).group_place = place;
    }
}

/// Puts in a binding.
pub(crate) fn join(group: &mut Group, id: BindingId, bindings: &mut Bindings) {
    bindings.get_mut(id).group_place = u32::try_from(group.len()).expect("no more than there are bindings");
    group.push(id);
}

/// Groups by key; the key is that of the group's first binding.
#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    groups: HashTable<Group>,
    hasher: DefaultHashBuilder,
}

impl KeyIndex {
    pub fn insert(&mut self, id: BindingId, bindings: &mut Bindings) {
        let Self { groups, hasher } = self;
        let key = &bindings.get(id).key;
        let hash = hasher.hash_one(&**key);
        if let Some(group) = groups.find_mut(hash, |group| bindings.get(group[0]).key == *key) {
            return join(group, id, bindings);
        }
        let mut group = Group::new();
        join(&mut group, id, bindings);
        groups.insert_unique(hash, group, |group| hasher.hash_one(&*bindings.get(group[0]).key));
    }

    pub fn remove(&mut self, id: BindingId, bindings: &mut Bindings) {
        let key = &bindings.get(id).key;
        let found = self.groups.find_entry(self.hasher.hash_one(&**key), |group| bindings.get(group[0]).key == *key);
        let Ok(mut found) = found else { unreachable!("each binding is in a group") };
        leave(found.get_mut(), id, bindings);
        if found.get().is_empty() {
            found.remove();
        }
    }

    pub fn get(&self, key: &[u8], bindings: &Bindings) -> &[BindingId] {
        let hash = self.hasher.hash_one(key);
        self.groups.find(hash, |group| *bindings.get(group[0]).key == *key).map_or(&[], |group| group)
    }
}
