//! The tail cache: the newest chunks, held as shared memory. The writer pushes, all tailing readers of all
//! protocols are served from it, and the oldest block leaves when the cache is over its size.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard};
use types::LogIndex;

/// A chunk in memory.
#[derive(Clone)]
pub(crate) struct TailChunk {
    pub bytes: Bytes,
    /// Where it begins in its segment file.
    pub position: u32,
    /// Rows that it has in the table of recent runs.
    pub rows: u32,
    /// Number of the block that holds it, rising; a block of many times [`BLOCK_BYTES`](crate::pool::BLOCK_BYTES) has the last of as many.
    pub block: u64,
}

#[derive(Default)]
struct Ring {
    first: LogIndex,
    chunks: VecDeque<TailChunk>,
    /// Rows of all of them.
    rows: u64,
}

impl Ring {
    fn last(&self) -> Option<LogIndex> {
        (self.first.0 + self.chunks.len() as u64).checked_sub(1).map(LogIndex)
    }

    fn pop(&mut self) {
        let rows = self.chunks.pop_front().map_or(0, |chunk| chunk.rows);
        self.rows -= u64::from(rows);
        self.first = self.first.next();
    }
}

/// As long as it lives no chunk is made: whatever would go into one waits.
pub(crate) struct HeldTail<'a>(RwLockReadGuard<'a, Ring>);

impl HeldTail<'_> {
    /// The newest index that was ever pushed; `None` before the first.
    pub fn last(&self) -> Option<LogIndex> {
        self.0.last()
    }
}

/// The newest chunks of a journal, by index.
pub(crate) struct TailCache {
    ring: RwLock<Ring>,
    blocks_max: u64,
    rows_max: u64,
}

impl TailCache {
    /// Holds the chunks of at most `blocks_max` blocks, with about `rows_max` rows in the table of recent runs: these stay as long as
    /// the chunks.
    pub fn new(blocks_max: u64, rows_max: u64) -> Self {
        Self { ring: RwLock::default(), blocks_max: blocks_max.max(4), rows_max }
    }

    /// Appends the chunk with the next index and lets the oldest go.
    pub fn push(&self, index: LogIndex, chunk: TailChunk) {
        let mut ring = self.ring.write();
        if ring.chunks.is_empty() {
            ring.first = index;
        }
        assert_eq!(ring.first.0 + ring.chunks.len() as u64, index.0, "chunks enter the tail cache in order");
        ring.rows += u64::from(chunk.rows);
        ring.chunks.push_back(chunk);
        while ring.chunks.len() > 1 {
            let newest = ring.chunks.back().map_or(0, |chunk| chunk.block);
            let oldest = ring.chunks.front().map_or(0, |chunk| chunk.block);
            if newest - oldest < self.blocks_max && ring.rows <= self.rows_max {
                break;
            }
            ring.pop();
        }
    }

    /// Lets the older half go, in the end all, when memory is needed and readers hold the rest.
    pub fn shrink(&self) {
        let mut ring = self.ring.write();
        for _ in 0..ring.chunks.len().div_ceil(2) {
            ring.pop();
        }
    }

    /// Holds the writer back; not for longer than it takes to look at a few tails.
    pub fn hold(&self) -> HeldTail<'_> {
        HeldTail(self.ring.read())
    }

    /// The oldest index held; above every index when empty.
    pub fn first(&self) -> LogIndex {
        let ring = self.ring.read();
        if ring.chunks.is_empty() { LogIndex(u64::MAX) } else { ring.first }
    }

    /// Calls `visit` with each wanted chunk while they are held; stops at the first that is not.
    pub fn visit<T>(&self, wanted: impl Iterator<Item = (LogIndex, T)>, mut visit: impl FnMut(&TailChunk, T)) {
        let ring = self.ring.read();
        for (index, item) in wanted {
            let Some(chunk) = index.0.checked_sub(ring.first.0).and_then(|at| ring.chunks.get(at as usize)) else {
                return;
            };
            visit(chunk, item);
        }
    }
}
