//! Buffers that small requests are read into. A connection begins with [`READ_BYTES_LEAST`]; what its buffer grows to beyond that counts against one bound
//! for all connections ([`ReadMemory`]).
//!
//! While at least half of the bound is free, a connection keeps its buffer between reads. Otherwise an empty buffer is freed before the connection waits,
//! so that the bound is shared by those that are read at the moment. Where the bound is used up, small requests are read in smaller pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Small requests are read into a buffer that has this room at most …
pub const READ_BYTES: usize = 64 << 10;
/// … and this to begin with, and while it is not known who sends them.
const READ_BYTES_LEAST: usize = 4 << 10;
/// What is read at once grows by this factor when a read fills its room, and shrinks by it when reads leave most of it empty.
const READ_FACTOR: usize = 4;
/// The part of the bound up to which connections keep their buffers.
const KEPT_SHARE: usize = 2;

/// What the buffers of all connections have beyond what each begins with.
pub struct ReadMemory {
    used: AtomicUsize,
    max: usize,
}

impl ReadMemory {
    /// A bound in bytes.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max: max.max(READ_BYTES) })
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| (used + bytes <= self.max).then_some(used + bytes);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn is_scarce(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.max / KEPT_SHARE
    }
}

/// How much room the requests of a connection are read into: one that sends little is to hold little.
pub struct ReadRoom {
    memory: Arc<ReadMemory>,
    bytes: usize,
    /// The last read would have fitted into a smaller one.
    little: bool,
    /// What is taken of the bound.
    taken: usize,
}

impl ReadRoom {
    /// That of a new connection.
    pub fn new(memory: &Arc<ReadMemory>) -> Self {
        Self { memory: Arc::clone(memory), bytes: READ_BYTES_LEAST, little: false, taken: 0 }
    }

    /// Room to have before a read. `little`: it is not known who sends, or memory is scarce.
    pub fn bytes(&mut self, little: bool) -> usize {
        if little {
            return READ_BYTES_LEAST;
        }
        let more = (self.bytes - READ_BYTES_LEAST).saturating_sub(self.taken);
        if more > 0 && self.memory.take(more) {
            self.taken += more;
        }
        self.bytes.min(READ_BYTES_LEAST + self.taken)
    }

    /// A read gave `got` bytes and had room for `room`. Two in a row have to be small before there is less: requests come in twos.
    pub fn note(&mut self, got: usize, room: usize) {
        let little = got < self.bytes / READ_FACTOR;
        if got == room {
            self.bytes = (self.bytes * READ_FACTOR).min(READ_BYTES);
        } else if little && self.little {
            self.bytes = (self.bytes / READ_FACTOR).max(READ_BYTES_LEAST);
        }
        self.little = little && !self.little;
    }

    /// Is an empty buffer to be freed before the connection waits? It is larger than what is read into it by now, or others need the memory.
    pub fn is_to_be_freed(&self) -> bool {
        self.taken > 0 && (READ_BYTES_LEAST + self.taken > self.bytes || self.memory.is_scarce())
    }

    /// The buffer is freed. The next one is as large as what came lately.
    pub fn note_freed(&mut self) {
        self.memory.give_back(std::mem::take(&mut self.taken));
    }

    /// Nothing has come for a while: the next buffer is as small as that of a new connection.
    pub fn start_anew(&mut self) {
        self.note_freed();
        (self.bytes, self.little) = (READ_BYTES_LEAST, false);
    }
}

impl Drop for ReadRoom {
    fn drop(&mut self) {
        self.note_freed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_reads_follows_what_comes() {
        let mut room = ReadRoom::new(&ReadMemory::new(1 << 20));
        let mut sizes = |reads: &[(usize, usize)]| {
            for &(got, of) in reads {
                room.note(got, of);
            }
            (room.bytes(false), room.bytes(true))
        };
        assert_eq!(sizes(&[]), (4 << 10, 4 << 10), "nothing has come");
        assert_eq!(sizes(&[(100, 4 << 10), (4000, 4 << 10)]), (4 << 10, 4 << 10), "it fits");
        assert_eq!(
            sizes(&[(4 << 10, 4 << 10)]),
            (16 << 10, 4 << 10),
            "a read that fills its room: there may be more; never before a login"
        );
        assert_eq!(sizes(&[(16 << 10, 16 << 10), (64 << 10, 64 << 10)]), (64 << 10, 4 << 10), "to a bound");
        assert_eq!(
            sizes(&[(100, 64 << 10), (40 << 10, 64 << 10), (100, 64 << 10)]),
            (64 << 10, 4 << 10),
            "one small read says nothing"
        );
        assert_eq!(sizes(&[(100, 64 << 10)]), (16 << 10, 4 << 10), "two in a row do");
        assert_eq!(sizes(&[(100, 64 << 10), (100, 16 << 10)]), (4 << 10, 4 << 10));
    }

    #[test]
    fn rooms_of_all_connections_have_one_bound() {
        const MORE: usize = READ_BYTES - READ_BYTES_LEAST;
        let memory = ReadMemory::new(4 * MORE);
        let busy = || {
            let mut room = ReadRoom::new(&memory);
            (0..2).for_each(|_| room.note(READ_BYTES, READ_BYTES));
            room
        };
        let mut rooms: Vec<ReadRoom> = (0..5).map(|_| busy()).collect();
        let sizes: Vec<usize> = rooms.iter_mut().map(|room| room.bytes(false)).collect();
        assert_eq!(sizes, [READ_BYTES, READ_BYTES, READ_BYTES, READ_BYTES, READ_BYTES_LEAST]);
        assert!(rooms[0].is_to_be_freed() && !rooms[4].is_to_be_freed(), "the last one has nothing to give back");
        rooms[0].note_freed();
        assert_eq!(rooms[4].bytes(false), READ_BYTES, "what was given back is for others");
        rooms.truncate(2);
        assert_eq!(rooms[0].bytes(false), READ_BYTES, "it has not forgotten what came");
        assert!(!rooms[0].is_to_be_freed(), "half of it is free");
        (0..2).for_each(|_| rooms[0].note(1, READ_BYTES));
        assert!(rooms[0].is_to_be_freed(), "less comes");
        rooms[0].start_anew();
        assert_eq!(rooms[0].bytes(false), READ_BYTES_LEAST);
        drop(rooms);
        assert_eq!(memory.used.load(Ordering::Relaxed), 0);
    }
}
