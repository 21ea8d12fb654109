//! Has the broker's controller do something, and waits for what comes of it.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use broker::{Broker, ReplyTo};
use types::{ConnectionId, ShardId};

/// Nobody waits for a mail about the outcome: it comes by a channel.
const NOBODY: ReplyTo = ReplyTo { shard: ShardId(u16::MAX), connection: ConnectionId(u64::MAX), token: 0 };
/// A command that takes longer is answered as if the broker were too busy, though it may still be done.
const CONTROL_MAX: Duration = Duration::from_secs(60);

/// `None`: it has too much to do.
pub(crate) fn control<T: Send + 'static>(broker: &Arc<Broker>, work: impl FnOnce(&Arc<Broker>) -> T + Send + 'static) -> Option<T> {
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
