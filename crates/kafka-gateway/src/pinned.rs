//! Memory that answers hold until their clients have read them. An answer with records is slices of blocks of 1 MiB that
//! others want to use again; it is charged for the blocks it holds, and the sum is bounded for all connections together.
//!
//! At the bound only short answers are given until clients have read. The nearer it is, the sooner a client that takes no byte is
//! disconnected (`crates/mainstem/src/connection.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Blocks begin at multiples of this, see `BLOCK_BYTES` of the journal's pools.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;
/// Shorter answers are put together into memory of their own.
pub(crate) const COPIED_BYTES_MAX: usize = 64 << 10;
/// Shorter ones are not charged where others of the same connection wait, too.
const FREE_BYTES_MAX: usize = 4 << 10;

/// One answer takes this part of the bound at most, by its bytes.
const ANSWER_SHARE: usize = 4;

/// How much of the memory for answers is held by clients that have not read them yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPressure {
    /// Less than half.
    None,
    /// Half or more.
    Scarce,
    /// So much that fetches wait.
    Full,
}

/// How an answer is held.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    /// The connection waits for no other answer: a short one is free.
    pub alone: bool,
    /// It may have slices of blocks.
    pub of_blocks: bool,
}

/// The sum of what is held.
pub(crate) struct Pinned {
    used: AtomicUsize,
    max: AtomicUsize,
}

impl Pinned {
    /// A bound in bytes.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max: AtomicUsize::new(max) })
    }

    fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Another bound from now on. What is held stays.
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Nothing more may be fetched.
    pub fn is_full(&self) -> bool {
        self.used() >= self.max()
    }

    /// Bytes that more may be held.
    pub fn room(&self) -> usize {
        self.max().saturating_sub(self.used())
    }

    /// There is room for what nobody has asked for yet.
    pub fn has_plenty(&self) -> bool {
        self.used() < self.max() / 4
    }

    /// What one answer may have of records, so that others have theirs beside it.
    pub fn answer_max(&self) -> usize {
        (self.max() / ANSWER_SHARE).max(BLOCK_BYTES)
    }

    /// How near the bound is.
    pub fn pressure(&self) -> MemoryPressure {
        // A fetch needs more than a last block, so that others wait before the bound is met.
        match self.used() {
            used if used >= self.max() / 8 * 7 => MemoryPressure::Full,
            used if used >= self.max() / 2 => MemoryPressure::Scarce,
            _ => MemoryPressure::None,
        }
    }

    /// Sets bytes aside for an answer that is about to be read from disk; `None` when that would be too much. The first may
    /// always.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Arc<Reserved>> {
        let fits = |used: usize| (used == 0 || used + bytes <= self.max()).then_some(used + bytes);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Arc::new(Reserved { pinned: Arc::clone(self), bytes }))
    }

    /// What an answer may have that is as long as its request: half of all, so that another one finds room beside it.
    pub fn longest(&self) -> usize {
        self.max() / 2
    }

    /// Counts so many bytes of an answer that is made in any case.
    pub fn counted(self: &Arc<Self>, bytes: usize) -> Reserved {
        let mut counted = self.count();
        counted.grow_to(bytes);
        counted
    }

    /// Counts an answer while it is made in turns, whatever others hold: who makes it asks for room
    /// ([`crate::answer_room::AnswerRoom::for_all_behind`]). None of its bytes is counted yet.
    pub fn count(self: &Arc<Self>) -> Reserved {
        Reserved { pinned: Arc::clone(self), bytes: 0 }
    }

    /// Charges for an answer, until the last of its pieces is dropped.
    pub fn hold(self: &Arc<Self>, mut pieces: Vec<Bytes>, held: Held) -> Vec<Bytes> {
        let total: usize = pieces.iter().map(Bytes::len).sum();
        if pieces.len() > 1 && total <= COPIED_BYTES_MAX {
            pieces = vec![Bytes::from(pieces.concat())];
        }
        let charge = if pieces.len() > 1 && held.of_blocks { blocks(&pieces) * BLOCK_BYTES } else { total };
        let free = if held.alone { COPIED_BYTES_MAX } else { FREE_BYTES_MAX };
        if charge > free
            && let Some(bytes) = pieces.pop()
        {
            self.used.fetch_add(charge, Ordering::Relaxed);
            pieces.push(Bytes::from_owner(Charged { bytes, pinned: Arc::clone(self), charge }));
        }
        pieces
    }
}

/// How many blocks the pieces lie in. Those of one log lie side by side or in neighbours; others of the same blocks, and what is written between them, may come
/// again and again.
fn blocks(pieces: &[Bytes]) -> usize {
    let number = |bytes: &Bytes| bytes.as_ptr() as usize / BLOCK_BYTES;
    let mut numbers: Vec<usize> =
        pieces.chunk_by(|one, next| number(one) == number(next)).map(|same| number(&same[0])).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len()
}

/// Set aside until dropped.
pub(crate) struct Reserved {
    pinned: Arc<Pinned>,
    bytes: usize,
}

impl Reserved {
    /// There is more of it: so many bytes in all.
    pub fn grow_to(&mut self, bytes: usize) {
        self.pinned.used.fetch_add(bytes.saturating_sub(self.bytes), Ordering::Relaxed);
        self.bytes = self.bytes.max(bytes);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pinned.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct Charged {
    bytes: Bytes,
    pinned: Arc<Pinned>,
    charge: usize,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.pinned.used.fetch_sub(self.charge, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Held = Held { alone: true, of_blocks: true };

    #[test]
    fn a_lower_bound_counts_for_what_comes() {
        let pinned = Pinned::new(8 << 20);
        let held = pinned.reserve(3 << 20).expect("there is room");
        assert_eq!((pinned.pressure(), pinned.room()), (MemoryPressure::None, 5 << 20));
        pinned.set_max(2 << 20);
        assert!(pinned.is_full() && pinned.room() == 0 && pinned.reserve(1).is_none());
        drop(held);
        assert!(pinned.reserve(2 << 20).is_some());
    }

    fn large() -> Vec<Bytes> {
        vec![Bytes::from(vec![1; 200_000]), Bytes::from(vec![2; 300_000])]
    }

    #[test]
    fn an_answer_is_charged_until_its_last_piece_is_gone() {
        let pinned = Pinned::new(4 << 20);
        let mut pieces = pinned.hold(large(), ALONE);
        assert_eq!(pieces.concat(), large().concat());
        assert!(pinned.used() >= 1 << 20);
        let last = pieces.pop();
        drop(pieces);
        assert!(pinned.used() >= 1 << 20);
        drop(last);
        assert_eq!(pinned.used(), 0);
    }

    #[test]
    fn a_block_counts_once_however_often_it_comes_again() {
        let pinned = Pinned::new(64 << 20);
        let (one, other) = (Bytes::from(vec![1; 4 << 20]), Bytes::from(vec![2; 4 << 20]));
        let pieces: Vec<Bytes> =
            (0..40).flat_map(|at| [&one, &other].map(|bytes| bytes.slice(at * 50_000..(at + 1) * 50_000))).collect();
        let held = pinned.hold(pieces, ALONE);
        // 2 MB of each, which may begin and end within a block.
        assert!((4..=6).contains(&(pinned.used() / BLOCK_BYTES)), "{}", pinned.used());
        drop(held);
        assert_eq!(pinned.used(), 0);
    }

    #[test]
    fn short_answers_are_copied_and_cost_nothing() {
        let pinned = Pinned::new(1);
        let pieces = |bytes| vec![Bytes::from_static(b"head"), Bytes::from(vec![7; bytes])];
        let held = pinned.hold(pieces(5000), ALONE);
        assert_eq!((held.len(), held[0].len(), pinned.used()), (1, 5004, 0));
        let behind = Held { alone: false, of_blocks: false };
        // Of many that wait together each counts but for the shortest.
        let (large, small) = (pinned.hold(pieces(5000), behind), pinned.hold(pieces(3000), behind));
        assert_eq!((large.concat().len(), small.concat().len(), pinned.used()), (5004, 3004, 5004));
    }

    #[test]
    fn what_is_set_aside_counts() {
        let pinned = Pinned::new(3 << 20);
        let first = pinned.reserve(100 << 20).expect("the first may always");
        assert!(pinned.reserve(1).is_none());
        drop(first);
        let two = (pinned.reserve(1 << 20), pinned.reserve(2 << 20));
        assert!(two.0.is_some() && two.1.is_some() && pinned.is_full() && pinned.reserve(1).is_none());
        drop(two);
        assert_eq!(pinned.used(), 0);
        let mut one = pinned.count();
        [5 << 20, 6 << 20, 6 << 20].into_iter().for_each(|bytes| one.grow_to(bytes));
        assert_eq!(pinned.used(), 6 << 20);
        drop(one);
        assert_eq!(pinned.used(), 0);
    }

    #[test]
    fn it_is_scarce_before_it_is_full() {
        let pinned = Pinned::new(8 << 20);
        let mut held = Vec::new();
        let mut levels = Vec::new();
        for _ in 0..8 {
            levels.push(pinned.pressure());
            held.push(pinned.reserve(1 << 20));
        }
        assert_eq!(levels[..4], [MemoryPressure::None; 4]);
        assert_eq!(levels[4..7], [MemoryPressure::Scarce; 3]);
        assert_eq!(levels[7], MemoryPressure::Full);
        assert!(pinned.is_full() && pinned.reserve(1).is_none());
        held.clear();
        assert_eq!(pinned.pressure(), MemoryPressure::None);
    }
}
