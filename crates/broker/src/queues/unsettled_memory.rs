//! The memory of messages that AMQP channels have and have not settled. A channel reserves it for many messages at a time, under its own lock,
//! and is given nothing more while there is none, as if its prefetch were reached; what it settles, it can have again.
//!
//! A channel gets at most as much as it leaves free, so half of all while no other has any. [`ALWAYS`] messages need no reservation: whoever
//! keeps few goes on whatever others do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use delivery::ChannelId;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::consumers::{ChannelFlow, Waiter};

/// What one takes: an entry of a list in its channel, which grows by doubling, and its part of the subscription.
const MESSAGE_BYTES: usize = 56;
/// Messages of a channel that need no reservation.
const ALWAYS: u64 = 64;
/// What is reserved at a time is as much as there was, and at most so much.
const STEP_MAX: u64 = 1024;
/// Unless [`UnsettledMemory::set_max`] says otherwise.
const DEFAULT_MAX: usize = 1 << 30;
/// Channels that are looked at when memory was given back, unless there is memory for more: each costs its queue a turn. Others go on with what they
/// settle.
const WAKE_MAX: usize = 4;

/// Of all channels.
#[derive(Debug)]
pub(super) struct UnsettledMemory {
    used: AtomicUsize,
    max: AtomicUsize,
    /// How often a channel was told to wait.
    short: AtomicU64,
    waiting: Mutex<HashMap<ChannelId, std::sync::Weak<ChannelFlow>>>,
    has_waiting: AtomicBool,
}

impl Default for UnsettledMemory {
    fn default() -> Self {
        let (used, max) = (AtomicUsize::new(0), AtomicUsize::new(DEFAULT_MAX));
        Self { used, max, short: AtomicU64::new(0), waiting: Mutex::default(), has_waiting: AtomicBool::new(false) }
    }
}

impl UnsettledMemory {
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How often a channel was told to wait.
    pub fn short(&self) -> u64 {
        self.short.load(Ordering::Relaxed)
    }

    /// A channel waits until others have given back.
    pub fn wait(&self, id: ChannelId, flow: std::sync::Weak<ChannelFlow>) {
        self.short.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        waiting.insert(id, flow);
        self.has_waiting.store(true, Ordering::SeqCst);
    }

    /// A channel is gone.
    pub fn forget(&self, id: ChannelId) {
        if self.has_waiting.load(Ordering::SeqCst) {
            self.waiting.lock().remove(&id);
        }
    }

    /// Memory was given back: who is to go on. Not under the lock of a channel.
    pub fn wake(&self) -> Vec<Waiter> {
        if !self.has_waiting.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let flows: Vec<Arc<ChannelFlow>> = {
            let mut waiting = self.waiting.lock();
            // As many as there is memory for go on: those they leave waiting might wait for ever, beside memory that nobody uses.
            let free = self.max.load(Ordering::Relaxed).saturating_sub(self.used());
            let most = WAKE_MAX.max(free / bytes(ALWAYS));
            let ids: Vec<ChannelId> = waiting.keys().take(most).copied().collect();
            let flows = ids.iter().filter_map(|id| waiting.remove(id)?.upgrade()).collect();
            self.has_waiting.store(!waiting.is_empty(), Ordering::SeqCst);
            flows
        };
        flows.iter().flat_map(|flow| flow.wake()).collect()
    }
}

/// What a channel has reserved.
#[derive(Debug)]
pub(super) struct Reserved {
    of: Arc<UnsettledMemory>,
    messages: u64,
}

impl Reserved {
    pub fn none(of: &Arc<UnsettledMemory>) -> Self {
        Self { of: Arc::clone(of), messages: 0 }
    }

    /// Messages that there is memory for.
    fn allowance(&self) -> u64 {
        ALWAYS + self.messages
    }

    /// Is there memory for one more beside `held`? Reserves it if need be.
    pub fn admits(&mut self, held: u64) -> bool {
        held < self.allowance() || self.grow()
    }

    fn grow(&mut self) -> bool {
        let step = self.allowance().min(STEP_MAX);
        let (more, own, max) = (bytes(step), bytes(self.messages + step), self.of.max.load(Ordering::Relaxed));
        let fits = |used: usize| Some(used + more).filter(|after| own <= max.saturating_sub(*after));
        let reserved = self.of.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        self.messages += if reserved { step } else { 0 };
        reserved
    }

    /// Gives back when little is held of it; true: something was.
    pub fn shrink(&mut self, held: u64) -> bool {
        if held > self.allowance() / 4 {
            return false;
        }
        self.keep((2 * held).saturating_sub(ALWAYS))
    }

    /// Gives back all; true: there was something.
    pub fn end(&mut self) -> bool {
        self.keep(0)
    }

    fn keep(&mut self, messages: u64) -> bool {
        let freed = self.messages.saturating_sub(messages);
        self.messages -= freed;
        self.of.used.fetch_sub(bytes(freed), Ordering::Relaxed);
        freed > 0
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.end();
    }
}

fn bytes(messages: u64) -> usize {
    usize::try_from(messages).unwrap_or(usize::MAX).saturating_mul(MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many as there is memory for.
    fn fill(reserved: &mut Reserved) -> u64 {
        (0u64..).take_while(|held| reserved.admits(*held)).count() as u64
    }

    #[test]
    fn a_channel_leaves_as_much_as_it_takes_and_each_has_some_always() {
        let memory = Arc::new(UnsettledMemory::default());
        memory.set_max(bytes(100_000));
        let mut greedy: Vec<Reserved> = (0..20).map(|_| Reserved::none(&memory)).collect();
        let taken: Vec<u64> = greedy.iter_mut().map(fill).collect();
        assert!((45_000..=50_064).contains(&taken[0]) && (20_000..=27_000).contains(&taken[1]), "{taken:?}");
        assert!(taken.iter().all(|one| *one >= ALWAYS));
        assert!(memory.used() <= bytes(100_000));
        // What is settled can be had again, and is others'.
        assert!(greedy[0].shrink(10) && !greedy[0].shrink(10));
        assert!(fill(&mut Reserved::none(&memory)) > 10_000);
        drop(greedy);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn what_goes_up_and_down_a_little_reserves_nothing_anew() {
        let memory = Arc::new(UnsettledMemory::default());
        let mut one = Reserved::none(&memory);
        (0..1000).for_each(|held| assert!(one.admits(held)));
        let used = memory.used();
        for held in (400..1000).chain(300..900) {
            assert!(one.admits(held) && !one.shrink(held));
        }
        assert_eq!(memory.used(), used);
    }
}
