//! Batches that take longer to open than a turn may take: a thread that reads history opens them, and the queue has a turn when that is done.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use record::BatchError;
use types::Offset;

use super::super::opening::{NotOpened, Opening};
use super::super::queue::Queue;
use super::super::window::Window;
use super::{RETRY_MS, Turn};
use crate::Broker;
use crate::groups::now;
use crate::jobs::NOBODY;

/// Ends the opening however it ends.
struct UnderWay {
    broker: Arc<Broker>,
    queue: Arc<Queue>,
    /// What there is cannot be opened: a turn at once would find the same.
    pauses: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut own = self.queue.dispatch.lock();
        if let Some(in_use) = &mut own.in_use {
            in_use.opening = false;
        }
        if !self.pauses {
            drop(own);
            self.broker.wake_subscription(&self.queue.shared);
        } else if own.due.is_none() && !self.queue.is_dropped() {
            // The turn that was to try it again came while this was under way, and has left it to this.
            own.due = Some(now() + RETRY_MS);
            self.broker.ticker.set_due(self.queue.id, None, own.due);
        }
    }
}

impl Turn<'_> {
    /// Has batches opened from `offset` on, unless consumers have to take first what was unpacked for them before. It is tried again in any case.
    pub(super) fn open_later(&mut self, offset: u64) {
        let again = self.now_ms + RETRY_MS;
        self.set_due(Some(again));
        if self.own.in_use().opening || self.broker.vhosts.windows.is_full() {
            return;
        }
        if let Some(home) = self.broker.home(self.queue.id) {
            self.queue.shared.watch(home);
        }
        let queue = Arc::clone(self.queue);
        let range = offset..self.queue.log().last_stable().0;
        let work = Box::new(move |broker: &Arc<Broker>| {
            let mut under_way = UnderWay { broker: Arc::clone(broker), queue, pauses: false };
            // Others may have unpacked much since this was asked for.
            under_way.pauses = broker.vhosts.windows.is_full() || !broker.open_window(&under_way.queue, range);
            Box::new(()) as Box<dyn Any + Send>
        });
        self.own.in_use().opening = self.broker.read_history(NOBODY, crate::jobs::JobOwner::BROKER, work);
    }
}

impl Broker {
    /// Opens what lies in a range of a queue's log, from its begin on, as much as there is room for. False: it cannot be, for now.
    fn open_window(&self, queue: &Arc<Queue>, range: Range<u64>) -> bool {
        let (log, offset) = (queue.log(), range.start);
        let read =
            match self.read_slices(log, Offset(range.start)..Offset(range.end), Window::piece(&self.vhosts.windows)) {
                Ok(Some(read)) => read,
                Ok(None) => return true,
                Err(error) => {
                    tracing::debug!(%error, ?queue, offset, "records of a queue cannot be read; they are tried again");
                    return false;
                }
            };
        let mut window = Window::default();
        let opening = if queue.attached { Opening::elsewhere(self) } else { Opening::whole(self) };
        match window.take(log, read.slices, offset..read.next.0, opening) {
            Ok(()) if !queue.is_dropped() => queue.dispatch.lock().in_use().window = window,
            Err(NotOpened::TooLarge(error)) => {
                self.note_too_large(queue, offset, &error);
                return false;
            }
            Err(NotOpened::Broken(error)) => {
                tracing::error!(%error, ?queue, offset, "records of a queue make no sense");
                return false;
            }
            Ok(()) | Err(NotOpened::Later) => {}
        }
        true
    }
    /// Says it once, with the ways out.
    fn note_too_large(&self, queue: &Arc<Queue>, offset: u64, error: &BatchError) {
        if queue.dispatch.lock().in_use().too_large.replace(offset) != Some(offset) {
            let record_max = self.unpacking().record_max();
            tracing::error!(%error, ?queue, offset, record_max, "a message is too large for the memory of this node: the queue waits. \
                More memory, or a larger mainstem.batch.unpacked.max.bytes, lets it go on; so does a purge, or Kafka's DeleteRecords up to behind it");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use journal::AppendItem;
    use record::{BatchBuilder, BatchHeader, Compression};
    use routing::{Argument, Arguments, OwnedValue};

    use crate::queues::testing::Node;

    /// A packed message that is out of time has to be opened by a thread that may wait. That one is busy until the queue has tried again, and then there
    /// is no memory: the queue tries it once more.
    #[test]
    fn what_could_not_be_opened_is_tried_again_however_long_that_took() {
        let node = Node::open(1);
        let ttl = Argument { name: b"x-message-ttl".as_slice().into(), tag: b'l', value: OwnedValue::Int(1) };
        let (broker, queue) = (&node.broker, node.queue("packed", Arguments::new(vec![ttl])));
        let bytes = BatchBuilder::default()
            .compression(Compression::Zstd)
            .record(1_000, None, Some(&vec![b'x'; 3 << 20]))
            .build();
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        broker
            .commit(0, vec![AppendItem::Batch { log: Arc::clone(queue.log()), bytes, header, gate: None }])
            .expect("taken");
        broker.run_queue(&queue);
        let state = || {
            let own = queue.dispatch.lock();
            (own.due.is_some(), own.in_use.as_ref().is_some_and(|in_use| in_use.opening))
        };
        assert_eq!(state(), (true, true), "it is to be opened, and there is a time for another try");
        broker.look_after(&queue);
        assert_eq!(state(), (false, true), "that is left to the thread");
        let others = broker.vhosts().windows.count(1 << 30);
        let busy = std::thread::scope(|scope| {
            broker.cold.close();
            scope.spawn(|| broker.cold.run(broker)).join().is_err()
        });
        assert!(!busy, "no panic");
        assert_eq!(
            (state(), broker.vhosts().windows.used()),
            ((true, false), 1 << 30),
            "nothing was unpacked, and there is another try"
        );
        drop(others);
        node.close();
    }
}
