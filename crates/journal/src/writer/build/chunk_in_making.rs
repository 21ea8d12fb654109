//! The memory of a chunk while it is filled: entries of the directory from its beginning, bodies behind them.

use bytes::Bytes;
use types::{LogId, Offset, Timestamp};

use super::PlacedBatch;
use crate::chunk::{ENTRY_BYTES, Entry, EntryKind, FLAG_DELETED, HEADER_BYTES, bodies_at, crc32c};
use crate::log::Log;

/// The memory of a chunk while it is filled.
pub(in crate::writer) struct ChunkInMaking<'a> {
    pub memory: &'a mut [u8],
    entry: usize,
    /// Where the next reference goes.
    pub reference: usize,
    /// Where the next body goes.
    pub body: usize,
    pub term: u32,
    /// Logs end in it.
    pub drops: bool,
}

impl<'a> ChunkInMaking<'a> {
    pub fn new(memory: &'a mut [u8], entries: usize, references: usize, term: u32) -> Self {
        Self {
            memory,
            entry: 0,
            reference: bodies_at(entries, 0),
            body: bodies_at(entries, references),
            term,
            drops: false,
        }
    }

    pub fn add_entry(&mut self, entry: Entry) {
        let at = HEADER_BYTES + self.entry * ENTRY_BYTES;
        entry.encode(&mut self.memory[at..]);
        self.entry += 1;
    }

    /// Batches of one log, side by side, offset and epoch filled in.
    pub fn add_batches(&mut self, group: &[PlacedBatch]) -> Entry {
        let (start, first) = (self.body, &group[0]);
        let (mut records, mut max_timestamp, mut flags, mut next) = (0u32, Timestamp::MIN, 0, first.base);
        for placed in group {
            assert_eq!(placed.base, next, "offsets of a log follow each other");
            let end = self.body + placed.bytes.len();
            let copy = &mut self.memory[self.body..end];
            copy.copy_from_slice(&placed.bytes);
            record::set_base_offset(copy, placed.base);
            record::set_leader_epoch(copy, self.term);
            self.body = end;
            next = placed.next();
            records += placed.records;
            max_timestamp = max_timestamp.max(placed.max_timestamp);
            flags |= placed.flags;
        }
        let entry = Entry {
            kind: EntryKind::Data,
            flags,
            records,
            log: first.id,
            base: first.base,
            last_delta: (next.since(first.base) - 1) as u32,
            position: start as u32,
            bytes: (self.body - start) as u32,
            crc: crc32c(&self.memory[start..self.body]),
            shared: false,
            max_timestamp,
        };
        self.add_entry(entry);
        entry
    }

    pub fn add_state(&mut self, key: &Bytes, value: Option<&Bytes>) {
        let start = self.body;
        let mut put = |bytes: &[u8]| {
            self.memory[self.body..self.body + bytes.len()].copy_from_slice(bytes);
            self.body += bytes.len();
        };
        put(&(key.len() as u32).to_le_bytes());
        put(key);
        put(value.map_or(&[], |value| value));
        let crc = crc32c(&self.memory[start..self.body]);
        let flags = if value.is_none() { FLAG_DELETED } else { 0 };
        let bytes = (self.body - start) as u32;
        self.add_entry(Entry { kind: EntryKind::State, flags, position: start as u32, bytes, crc, ..Entry::EMPTY });
    }

    pub fn add_drop(&mut self, log: &Log) {
        self.add_entry(Entry { kind: EntryKind::Drop, log: log.id(), base: log.end(), ..Entry::EMPTY });
    }

    pub fn add_trim(&mut self, log: LogId, to: Offset) {
        self.add_entry(Entry { kind: EntryKind::Trim, log, base: to, ..Entry::EMPTY });
    }
}
