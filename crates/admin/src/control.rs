//! Has the broker's controller do something, and waits for what comes of it.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use broker::{Broker, JobOwner, Queue, ReplyTo, Vhost};
use types::{ConnectionId, ShardId};

/// Nobody waits for a mail about the outcome: it comes by a channel.
const NOBODY: ReplyTo = ReplyTo { shard: ShardId(u16::MAX), connection: ConnectionId(u64::MAX), token: 0 };
/// A command that takes longer is answered as if the broker were too busy, though it may still be done.
const CONTROL_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the counts of a queue.
const COUNTS_MAX: Duration = Duration::from_secs(10);
/// Requests that wait until policies are in force, of those that have a thread.
const AWAITING_POLICIES_MAX: usize = 2;
/// How long the others do.
const MOMENT: Duration = Duration::from_millis(50);
static AWAITING_POLICIES: AtomicUsize = AtomicUsize::new(0);

/// Waits until the counts of a queue are known, by which it is judged whether it is empty: right after a start they may be searched for. When that
/// takes long, what is not known counts as messages. On a thread that may wait, as those of requests may.
pub fn await_counts(broker: &Arc<Broker>, queue: &Arc<Queue>) {
    broker.wait_for_counts(queue, COUNTS_MAX);
}

/// Waits until the queues and exchanges of a virtual host follow the policies that were set and taken away until now. False: that takes too long. Where others wait
/// likewise it does so for a moment only: policies are in force by and by then, as always in RabbitMQ. On a thread that may wait.
pub fn await_policies(vhost: &Vhost) -> bool {
    if vhost.policies().wait_until_applied(MOMENT) {
        return true;
    }
    match Place::take(&AWAITING_POLICIES) {
        Some(_place) => vhost.policies().wait_until_applied(CONTROL_MAX),
        None => true,
    }
}

/// One of those who wait for long on a thread of management.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(taken: &'a AtomicUsize) -> Option<Self> {
        let more = |taken: usize| (taken < AWAITING_POLICIES_MAX).then_some(taken + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `None`: it has too much to do.
pub fn control<T: Send + 'static>(
    broker: &Arc<Broker>,
    of: JobOwner,
    work: impl FnOnce(&Arc<Broker>) -> T + Send + 'static,
) -> Option<T> {
    let mut work = Some(work);
    wait_for(broker, of, move |broker| work.take().map(|work| work(broker)))
}

/// The same for work in parts, of which the last one has an outcome, and between which others of its owner have turns, too. `judge` says before the first of them
/// whether he may: what has begun comes to its end.
pub fn control_in_turns<T: Send + 'static, E: Send + 'static>(
    broker: &Arc<Broker>,
    of: JobOwner,
    judge: impl FnOnce() -> Result<(), E> + Send + 'static,
    mut part: impl FnMut(&Arc<Broker>) -> Option<T> + Send + 'static,
) -> Option<Result<T, E>> {
    let mut judge = Some(judge);
    wait_for(broker, of.apart(), move |broker| match judge.take().map_or(Ok(()), |judge| judge()) {
        Ok(()) => part(broker).map(Ok),
        Err(refusal) => Some(Err(refusal)),
    })
}

fn wait_for<T: Send + 'static>(
    broker: &Arc<Broker>,
    of: JobOwner,
    mut part: impl FnMut(&Arc<Broker>) -> Option<T> + Send + 'static,
) -> Option<T> {
    let (send, receive) = mpsc::sync_channel(1);
    let turns = move |broker: &Arc<Broker>| {
        // Who has given up waiting hears nothing.
        let _ = send.send(part(broker)?);
        Some(Box::new(()) as Box<dyn Any + Send>)
    };
    let queued = broker.control_in_turns(NOBODY, of, Box::new(turns));
    if queued { receive.recv_timeout(CONTROL_MAX).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wait_for_policies_and_others_have_their_threads() {
        let taken = AtomicUsize::new(0);
        let places: Vec<_> = (0..AWAITING_POLICIES_MAX).map(|_| Place::take(&taken)).collect();
        assert!(places.iter().all(Option::is_some) && AWAITING_POLICIES_MAX < crate::MANAGEMENT_THREADS - 3);
        assert!(Place::take(&taken).is_none());
        drop(places);
        assert!(Place::take(&taken).is_some());
    }
}
