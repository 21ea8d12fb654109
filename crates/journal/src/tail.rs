//! The tail cache: the newest chunks, held as shared memory. The writer pushes, all tailing readers of all
//! protocols are served from it, and the oldest block leaves when the cache is over its size.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::RwLock;
use types::LogIndex;

/// A chunk in memory.
#[derive(Clone)]
pub(crate) struct TailChunk {
    pub bytes: Bytes,
    /// Where it begins in its segment file.
    pub position: u32,
    /// Number of the block that holds it, rising.
    pub block: u64,
}

#[derive(Default)]
struct Ring {
    first: LogIndex,
    chunks: VecDeque<TailChunk>,
}

/// The newest chunks of a journal, by index.
pub(crate) struct TailCache {
    ring: RwLock<Ring>,
    blocks_max: u64,
}

impl TailCache {
    /// Holds the chunks of at most `blocks_max` blocks.
    pub fn new(blocks_max: u64) -> Self {
        Self { ring: RwLock::default(), blocks_max: blocks_max.max(4) }
    }

    /// Appends the chunk with the next index and lets the oldest go.
    pub fn push(&self, index: LogIndex, chunk: TailChunk) {
        let mut ring = self.ring.write();
        if ring.chunks.is_empty() {
            ring.first = index;
        }
        assert_eq!(ring.first.0 + ring.chunks.len() as u64, index.0, "chunks enter the tail cache in order");
        ring.chunks.push_back(chunk);
        while ring.chunks.len() > 1 {
            let newest = ring.chunks.back().map_or(0, |chunk| chunk.block);
            let oldest = ring.chunks.front().map_or(0, |chunk| chunk.block);
            if newest - oldest < self.blocks_max {
                break;
            }
            ring.chunks.pop_front();
            ring.first = ring.first.next();
        }
    }

    /// Lets the oldest half go, when blocks are needed and readers hold the rest.
    pub fn shrink(&self) {
        let mut ring = self.ring.write();
        for _ in 0..ring.chunks.len() / 2 {
            ring.chunks.pop_front();
            ring.first = ring.first.next();
        }
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
