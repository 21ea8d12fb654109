//! The newest offset of each key of a part of a log, in bounded memory: keys by a hash of 128 bits that nobody can foresee.

use std::hash::{BuildHasher, RandomState};

use types::Offset;

/// Hash, hash, offset + 1; an offset of 0 is an empty slot.
type Slot = [u64; 3];
/// Memory of a slot.
pub(super) const SLOT_BYTES: usize = size_of::<Slot>();
const SLOTS_MIN: usize = 1 << 10;

/// An open hash table. It doubles until it would take more than its memory; then it is full at nine tenths.
pub(super) struct Keys {
    hashers: [RandomState; 2],
    slots: Vec<Slot>,
    len: usize,
    slots_max: usize,
}

impl Keys {
    /// In at most `bytes`; while it grows it takes half of that more.
    pub fn new(bytes: usize) -> Self {
        let slots_max = (bytes / SLOT_BYTES).max(SLOTS_MIN);
        let slots_max = if slots_max.is_power_of_two() { slots_max } else { slots_max.next_power_of_two() / 2 };
        Self { hashers: [RandomState::new(), RandomState::new()], slots: Vec::new(), len: 0, slots_max }
    }

    /// Is there no room for more keys? What is put in all the same makes it larger than it should be.
    pub fn is_full(&self) -> bool {
        self.len * 10 >= self.slots_max * 9
    }

    /// Notes a record; offsets rise.
    pub fn put(&mut self, key: &[u8], offset: Offset) {
        if self.len * 10 >= self.slots.len() * 9 {
            self.grow();
        }
        let hash = self.hash(key);
        let at = Self::find(&self.slots, hash);
        self.len += usize::from(self.slots[at][2] == 0);
        self.slots[at] = [hash[0], hash[1], offset.0 + 1];
    }

    /// Is there a newer record of this key than the one at `offset`?
    pub fn has_newer(&self, key: &[u8], offset: Offset) -> bool {
        !self.slots.is_empty() && self.slots[Self::find(&self.slots, self.hash(key))][2] > offset.0 + 1
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)]
    }

    /// The slot of a hash, or the free one where it belongs. There is one: the table is never quite full.
    fn find(slots: &[Slot], hash: [u64; 2]) -> usize {
        let mask = slots.len() - 1;
        let mut at = hash[0] as usize & mask;
        while slots[at][2] != 0 && slots[at][..2] != hash {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let mut slots = vec![[0; 3]; (self.slots.len() * 2).max(SLOTS_MIN)];
        for slot in self.slots.iter().filter(|slot| slot[2] != 0) {
            let at = Self::find(&slots, [slot[0], slot[1]]);
            slots[at] = *slot;
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_offset_of_each_key_is_known_within_the_memory() {
        let mut keys = Keys::new(SLOT_BYTES * 5_000);
        assert!(!keys.has_newer(b"a", Offset(0)));
        for offset in 0..20_000u64 {
            keys.put(&(offset % 3_000).to_be_bytes(), Offset(offset));
        }
        assert!(!keys.is_full() && keys.len == 3_000 && keys.slots.len() == 4_096);
        for offset in 0..20_000u64 {
            assert_eq!(
                keys.has_newer(&(offset % 3_000).to_be_bytes(), Offset(offset)),
                offset + 3_000 < 20_000,
                "{offset}"
            );
        }
        assert!(!keys.has_newer(b"unknown", Offset(0)));
        while !keys.is_full() {
            let number = keys.len as u64;
            keys.put(format!("more {number}").as_bytes(), Offset(30_000 + number));
        }
        assert_eq!((keys.slots.len(), keys.len), (4_096, 3_687));
    }
}
