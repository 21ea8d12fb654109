//! The way into queues that refuse messages when they are full: what is admitted takes room at once, for all who publish to the queue, and until
//! it is known to be in the log.

use std::sync::Arc;

use types::LogId;

use super::gaps::is_searched;
use super::queue::Queue;
use crate::Broker;
use crate::groups::now;

/// A queue refuses what is published to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// What one who publishes to a queue in an order of its own has had admitted. When it goes, what it was not told of counts until the log has it.
pub struct Admission {
    queue: Arc<Queue>,
    publisher: u64,
    /// Of what was admitted last, so many do not come if it goes.
    held: u64,
    /// So many are on their way.
    open: u64,
}

impl Admission {
    /// Nothing yet.
    pub fn to(queue: &Arc<Queue>) -> Self {
        Self { queue: Arc::clone(queue), publisher: queue.line().lock().join(), held: 0, open: 0 }
    }

    /// May `count` messages of AMQP, one or more, come in together that have bodies of `size` bytes, behind all that were admitted? Then they count.
    /// False: they are refused.
    pub fn admit(&mut self, broker: &Arc<Broker>, count: u64, size: usize) -> bool {
        self.queue.topic().takes_keyless() && self.admit_keyed(broker, count, size)
    }

    /// The same of records with a key, where the topic is compacted.
    pub(super) fn admit_keyed(&mut self, broker: &Arc<Broker>, count: u64, size: usize) -> bool {
        let mut line = self.queue.line().lock();
        let admitted = broker.has_room(&self.queue, &mut line, (count, size));
        if admitted {
            line.push(self.publisher, self.queue.log().high_watermark().0, (count, size as u64));
            self.held += count;
        }
        admitted
    }

    /// The next `count` are on their way into the log, or all there are.
    pub fn sent(&mut self, count: u64) {
        let count = count.min(self.held);
        (self.held, self.open) = (self.held - count, self.open + count);
    }

    /// Is something admitted and not on its way yet?
    pub fn holds(&self) -> bool {
        self.held > 0
    }

    /// The next `count` of what is on its way have their outcome. `log_end`: the log ended there behind the last of them, if that is known, else 0.
    pub fn arrived(&mut self, count: u64, log_end: u64) {
        self.open -= count.min(self.open);
        self.queue.line().lock().arrived(self.publisher, count, log_end);
    }

    /// All that is on its way has its outcome.
    pub fn end(mut self) {
        self.arrived(self.open, 0);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.queue.line().lock().leave(self.publisher, self.held, now());
    }
}

impl Broker {
    /// Has a queue admitted `count` messages, with bodies of `size` bytes together, that go into its log at once? They have keys where its topic is
    /// compacted. `Ok`: they count as long as what is returned; `None` where it refuses none.
    ///
    /// # Errors
    /// The queue is full.
    pub fn admit(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        count: u64,
        size: usize,
    ) -> Result<Option<Admission>, QueueFull> {
        if !queue.understood().is_bounded() {
            return Ok(None);
        }
        let mut admission = Admission::to(queue);
        if !admission.admit_keyed(self, count, size) {
            return Err(QueueFull);
        }
        admission.sent(count);
        Ok(Some(admission))
    }

    /// A log has got the end of a transaction: for a queue that counts what comes in that is no message.
    pub(crate) fn note_marker(&self, log: LogId) {
        if let Some(queue) = self.vhosts.queue_of(log).filter(|queue| queue.understood().is_bounded()) {
            queue.line().lock().pass(1);
        }
    }

    fn has_room(self: &Arc<Self>, queue: &Arc<Queue>, line: &mut delivery::Line, (count, size): (u64, usize)) -> bool {
        if !queue.understood().is_bounded() {
            return true;
        }
        let end = queue.log().last_stable().0;
        let readable = queue.log().high_watermark().0;
        line.look(readable, now());
        let (mut own, mut state) = (queue.dispatch.lock(), queue.shared.lock());
        // What is in the log and not in the line is weighed, where bytes are limited.
        let is_weighed = |machine: &delivery::Queue, state: &delivery::Subscription| {
            machine.unweighed(state, end).is_none_or(|from| end - from <= line.in_log(end))
        };
        if queue.log().start().0 > state.start()
            || !is_searched(&mut state, queue.log(), end)
            || !is_weighed(&own.machine, &state)
        {
            drop((own, state));
            self.run_queue(queue);
            (own, state) = (queue.dispatch.lock(), queue.shared.lock());
        }
        if !is_weighed(&own.machine, &state) && own.machine.refuses_bytes(queue.log().live_bytes()) {
            // It is being read, after a start: until then all that the log has counts.
            return false;
        }
        // What waits for the end of a transaction cannot be weighed yet: it counts as it was admitted.
        let log = queue.log();
        line.note_stable((end, readable), state.searched().until, || {
            log.live_bytes() / (log.end().0 - log.start().0.min(log.end().0)).max(1)
        });
        let size = u64::from(u32::try_from(size).unwrap_or(u32::MAX));
        !own.machine.refuses(&state, (end, readable), line, (count, size))
    }
}

#[cfg(test)]
mod tests {
    use routing::{Argument, Arguments, OwnedValue};

    use super::{Admission, QueueFull};
    use crate::queues::testing::{Node, wait_for};

    #[test]
    fn all_who_publish_find_the_same_room() {
        let node = Node::open(1);
        let (broker, count) = (&node.broker, OwnedValue::Int(5));
        let limit = Argument { name: b"x-max-length".as_slice().into(), tag: b'l', value: count };
        let overflow = Argument {
            name: b"x-overflow".as_slice().into(),
            tag: b'S',
            value: OwnedValue::Bytes(b"reject-publish".as_slice().into()),
        };
        let queue = node.queue("small", Arguments::new(vec![limit, overflow]));
        let (mut one, mut other) = (Admission::to(&queue), Admission::to(&queue));
        assert_eq!([one.admit(broker, 1, 1), other.admit(broker, 1, 1), one.admit(broker, 1, 1)], [true; 3]);
        assert_eq!(broker.admit(&queue, 3, 3).err(), Some(QueueFull), "two have room");
        let batch = broker.admit(&queue, 2, 2).expect("they fit");
        assert!(!other.admit(broker, 1, 1));
        (0..5).for_each(|number: u64| node.append(queue.log(), &number.to_be_bytes(), &[]).expect("taken"));
        wait_for("it is visible", || queue.log().last_stable().0 == 5);
        drop(batch);
        one.sent(2);
        one.arrived(2, 5);
        other.sent(1);
        other.arrived(1, 5);
        assert!(!one.admit(broker, 1, 1) && !other.admit(broker, 1, 1), "it is full");
        let rules = broker.rules_of(&queue.shared);
        queue.shared.lock().drop_available(0, 1, delivery::DeadReason::Expired, &rules, &mut Vec::new());
        assert_eq!(
            [one.admit(broker, 1, 1), other.admit(broker, 1, 1), one.admit(broker, 1, 1)],
            [true, true, false],
            "two are gone"
        );
        drop(one);
        assert!(other.admit(broker, 1, 1), "what was not sent does not come");
        node.close();
    }
}
