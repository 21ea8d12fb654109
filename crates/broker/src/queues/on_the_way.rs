//! What is on its way into a queue: batches that were handed to a journal and of which no outcome is known. Until the journal's writer has placed them the log does not show
//! them, so that a client that asks the queue for a message waits for these first (`docs/adr/0013-queues.md`, 15).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::queue::Queue;

/// Counts of batches; they wrap.
#[derive(Debug, Default)]
pub(super) struct Batches {
    begun: AtomicU32,
    over: AtomicU32,
}

/// A batch on its way into a queue, until it is dropped.
pub struct OnTheWay(Arc<Queue>);

impl Drop for OnTheWay {
    fn drop(&mut self) {
        self.0.on_the_way.over.fetch_add(1, Ordering::Release);
    }
}

impl Queue {
    /// A batch is handed to its journal; it is on its way as long as what is returned is kept.
    pub fn begin_batch(self: &Arc<Self>) -> OnTheWay {
        self.on_the_way.begun.fetch_add(1, Ordering::Release);
        OnTheWay(Arc::clone(self))
    }

    /// How many batches were handed to its journal so far.
    pub fn batches_begun(&self) -> u32 {
        self.on_the_way.begun.load(Ordering::Acquire)
    }

    /// Is the outcome known of as many batches as had begun then?
    pub fn batches_are_over(&self, begun: u32) -> bool {
        self.on_the_way.over.load(Ordering::Acquire).wrapping_sub(begun) < u32::MAX / 2
    }
}
