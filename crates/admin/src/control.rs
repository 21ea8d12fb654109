//! Has the broker's controller do something, and waits for what comes of it.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use broker::{Broker, Queue, ReplyTo, Vhost};
use types::{ConnectionId, ShardId};

/// Nobody waits for a mail about the outcome: it comes by a channel.
const NOBODY: ReplyTo = ReplyTo { shard: ShardId(u16::MAX), connection: ConnectionId(u64::MAX), token: 0 };
/// A command that takes longer is answered as if the broker were too busy, though it may still be done.
const CONTROL_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the counts of a queue.
const COUNTS_MAX: Duration = Duration::from_secs(10);

/// Waits until the counts of a queue are known, by which it is judged whether it is empty: right after a start they may be searched for. When that
/// takes long, what is not known counts as messages. On a thread that may wait, as those of requests may.
pub fn await_counts(broker: &Arc<Broker>, queue: &Arc<Queue>) {
    broker.wait_for_counts(queue, COUNTS_MAX);
}

/// Waits until the queues and exchanges of a virtual host follow the policies that were set and taken away until now. False: that takes too long. On a
/// thread that may wait.
pub fn await_policies(vhost: &Vhost) -> bool {
    vhost.policies().wait_until_applied(CONTROL_MAX)
}

/// `None`: it has too much to do.
pub fn control<T: Send + 'static>(broker: &Arc<Broker>, work: impl FnOnce(&Arc<Broker>) -> T + Send + 'static) -> Option<T> {
    let (send, receive) = mpsc::sync_channel(1);
    let queued = broker.control(
        NOBODY,
        Box::new(move |broker| {
            // Who has given up waiting hears nothing.
            let _ = send.send(work(broker));
            Box::new(())
        }),
    );
    if queued { receive.recv_timeout(CONTROL_MAX).ok() } else { None }
}
