//! Things by a key that they have themselves: a table takes a pointer for each. There are as many as queues.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

/// See the head of the file.
pub(crate) struct ArcTable<T, K: ?Sized> {
    table: HashTable<Arc<T>>,
    hasher: DefaultHashBuilder,
    key: fn(&T) -> &K,
}

impl<T, K: Hash + Eq + ?Sized> ArcTable<T, K> {
    /// An empty one; `key` tells the key of a thing, which never changes.
    pub fn new(key: fn(&T) -> &K) -> Self {
        Self { table: HashTable::new(), hasher: DefaultHashBuilder::default(), key }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn get(&self, key: &K) -> Option<&Arc<T>> {
        self.table.find(self.hasher.hash_one(key), |one| (self.key)(one) == key)
    }

    /// Takes the place of what has the same key.
    pub fn insert(&mut self, thing: Arc<T>) {
        let Self { table, hasher, key: key_of } = self;
        let key = key_of(&thing);
        match table.entry(hasher.hash_one(key), |one| key_of(one) == key, |one| hasher.hash_one(key_of(one))) {
            Entry::Occupied(mut there) => *there.get_mut() = thing,
            Entry::Vacant(free) => drop(free.insert(thing)),
        }
    }

    pub fn remove(&mut self, key: &K) {
        if let Ok(there) = self.table.find_entry(self.hasher.hash_one(key), |one| (self.key)(one) == key) {
            there.remove();
        }
    }

    /// All, in no order.
    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.table.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_own_key() {
        let mut table: ArcTable<(String, u32), str> = ArcTable::new(|one| &one.0);
        for number in 0..1000 {
            table.insert(Arc::new((format!("key {}", number % 300), number)));
        }
        for number in (0..300).step_by(2) {
            table.remove(&format!("key {number}"));
            table.remove("no such key");
        }
        assert_eq!((table.len(), table.values().count()), (150, 150));
        let found = |number: u32| table.get(&format!("key {number}")).map(|one| one.1);
        assert!(
            (0..300)
                .all(|number| found(number)
                    == (number % 2 == 1).then_some(number + if number < 100 { 900 } else { 600 }))
        );
    }
}
