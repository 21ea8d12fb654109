//! Keyed state in memory, a record as one piece of it: what the next checkpoint says ([`StateMap`]), and what was written into a segment that is
//! not sealed yet ([`StateChanges`]). Of the latter only the last word of each key is kept, which is all that a checkpoint needs: what a
//! segment costs in memory depends on its keys, not on how often they were written. Acknowledgements write the same few keys again and again.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

/// Tables of a segment's keys: one that grows moves its own part of them only, so that the writer never stops for long.
const TABLES: usize = 64;
/// What a record takes beside its bytes, about: its place in a table, and what the allocator adds.
const RECORD_BYTES: usize = 32;
/// In front of a record: the length of its key, with this bit if there is no value.
const DELETED: u32 = 1 << 31;
const LENGTH_BYTES: usize = size_of::<u32>();

/// A key, and its value or that it has none: `u32` length of the key and [`DELETED`], key, value.
pub(crate) struct KeyedRecord(Box<[u8]>);

impl KeyedRecord {
    fn new(key: &[u8], value: Option<&[u8]>) -> Self {
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + key.len() + value.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(&Self::head(key, value));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
        Self(bytes.into_boxed_slice())
    }

    fn head(key: &[u8], value: Option<&[u8]>) -> [u8; LENGTH_BYTES] {
        let length = u32::try_from(key.len()).expect("a key is part of a chunk");
        (length | if value.is_none() { DELETED } else { 0 }).to_le_bytes()
    }

    fn parts(&self) -> (u32, &[u8]) {
        let (head, rest) = self.0.split_first_chunk().expect("each begins with a length");
        (u32::from_le_bytes(*head), rest)
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        let (head, rest) = self.parts();
        &rest[..(head & !DELETED) as usize]
    }

    /// The value; `None`: the key is deleted.
    pub fn value(&self) -> Option<&[u8]> {
        let (head, rest) = self.parts();
        (head & DELETED == 0).then(|| &rest[head as usize..])
    }

    /// Another value for its key; in place where it is as long as the old one.
    fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        if self.0.len() == LENGTH_BYTES + key.len() + value.map_or(0, <[u8]>::len) {
            self.0[..LENGTH_BYTES].copy_from_slice(&Self::head(key, value));
            self.0[LENGTH_BYTES + key.len()..].copy_from_slice(value.unwrap_or_default());
        } else {
            *self = Self::new(key, value);
        }
    }
}

impl Borrow<[u8]> for KeyedRecord {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl Ord for KeyedRecord {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl PartialOrd for KeyedRecord {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyedRecord {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for KeyedRecord {}

/// Keys that have a value, in their order.
#[derive(Default)]
pub(crate) struct StateMap(BTreeSet<KeyedRecord>);

impl StateMap {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().filter_map(|record| Some((record.key(), record.value()?)))
    }

    /// What is said of a key from now on.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.apply(KeyedRecord::new(key, value));
    }

    /// The same.
    pub fn apply(&mut self, record: KeyedRecord) {
        match record.value() {
            Some(_) => drop(self.0.replace(record)),
            None => drop(self.0.remove(record.key())),
        }
    }
}

impl<'a> FromIterator<(&'a [u8], &'a [u8])> for StateMap {
    fn from_iter<T: IntoIterator<Item = (&'a [u8], &'a [u8])>>(records: T) -> Self {
        Self(records.into_iter().map(|(key, value)| KeyedRecord::new(key, Some(value))).collect())
    }
}

/// The last word of each key.
pub(crate) struct StateChanges {
    tables: Box<[HashTable<KeyedRecord>; TABLES]>,
    hasher: DefaultHashBuilder,
    bytes: usize,
}

impl Default for StateChanges {
    fn default() -> Self {
        Self { tables: Box::new([const { HashTable::new() }; TABLES]), hasher: DefaultHashBuilder::default(), bytes: 0 }
    }
}

impl StateChanges {
    /// What is said of a key from now on; `None`: it is deleted.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Self { tables, hasher, bytes } = self;
        let hash = hasher.hash_one(key);
        // The table takes its places from the lowest bits, and marks from the highest seven.
        let table = &mut tables[(hash >> 32) as usize % TABLES];
        let before = match table.entry(hash, |record| record.key() == key, |record| hasher.hash_one(record.key())) {
            Entry::Occupied(mut there) => {
                let before = there.get().0.len() + RECORD_BYTES;
                there.get_mut().set(key, value);
                before
            }
            Entry::Vacant(free) => {
                free.insert(KeyedRecord::new(key, value));
                0
            }
        };
        *bytes += LENGTH_BYTES + key.len() + value.map_or(0, <[u8]>::len) + RECORD_BYTES;
        *bytes -= before;
    }

    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of them, in no order; nothing is left.
    pub fn take(&mut self) -> impl Iterator<Item = KeyedRecord> {
        (*std::mem::take(self).tables).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A few keys with values of a few lengths, some deleted, against plain maps, over several segments.
    #[test]
    fn a_checkpoint_finds_what_was_said_last() {
        let (mut map, mut plain, mut seed) = (StateMap::default(), BTreeMap::new(), 1u64);
        for _segment in 0..20 {
            let mut changes = StateChanges::default();
            for _ in 0..2_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = format!("key {}", (seed >> 33) % 500).into_bytes();
                let value = vec![(seed >> 40) as u8; (seed >> 50) as usize % 40];
                match seed >> 20 & 3 {
                    0 => {
                        changes.put(&key, None);
                        plain.remove(&key);
                    }
                    _ => {
                        changes.put(&key, Some(&value));
                        plain.insert(key, value);
                    }
                }
            }
            changes.take().for_each(|record| map.apply(record));
            assert_eq!((changes.take().count(), changes.bytes()), (0, 0));
            assert!(map.iter().eq(plain.iter().map(|(key, value)| (&key[..], &value[..]))));
            assert_eq!(map.len(), plain.len());
        }
        assert!(map.iter().collect::<StateMap>().iter().eq(map.iter()));
    }

    #[test]
    fn a_key_that_is_written_again_costs_no_more() {
        let mut changes = StateChanges::default();
        for round in 0..10_000u64 {
            for key in 0..10u64 {
                changes.put(&key.to_be_bytes(), Some(&round.to_be_bytes()[..1 + round as usize % 8]));
            }
        }
        let most = 10 * (LENGTH_BYTES + 8 + 8 + RECORD_BYTES);
        assert!(changes.bytes() <= most, "{} bytes of memory for 10 keys", changes.bytes());
        assert_eq!(changes.take().count(), 10);
    }
}
