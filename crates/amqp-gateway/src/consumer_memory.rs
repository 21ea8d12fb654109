//! Memory of AMQP consumers, over all connections. A consumer counts from when it begins until its channel has forgotten it, which is when it was cancelled
//! and has settled what it had.
//!
//! A user, or an address of clients without one, has as much as it leaves free: half of all while no other has any. [`ALWAYS_BYTES`] of each are counted
//! and never refused. Beyond that `basic.consume` is refused with 406, which closes the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::unfinished::Holder;

/// What a consumer takes in its connection, its channel and its queue, beside its tag and its arguments.
const CONSUMER_BYTES: usize = 560;
/// So much of each holder is never refused: about a thousand consumers.
const ALWAYS_BYTES: usize = 640 << 10;
/// Unless [`ConsumerMemory::set_max`] says otherwise.
const DEFAULT_MAX: usize = 1 << 30;

/// Bytes of a consumer with such a tag and such arguments, about.
pub(crate) fn weight(tag_bytes: usize, argument_bytes: usize) -> usize {
    CONSUMER_BYTES + tag_bytes + 2 * argument_bytes
}

/// Of all connections.
pub(crate) struct ConsumerMemory {
    used: AtomicUsize,
    max: AtomicUsize,
    refused: AtomicU64,
    /// Of those who have consumers, or connections that had some.
    holders: Mutex<HashMap<Holder, Arc<AtomicUsize>>>,
}

impl Default for ConsumerMemory {
    fn default() -> Self {
        Self {
            used: AtomicUsize::new(0),
            max: AtomicUsize::new(DEFAULT_MAX),
            refused: AtomicU64::new(0),
            holders: Mutex::default(),
        }
    }
}

impl ConsumerMemory {
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How often a consumer was refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// The consumers of a connection.
pub(crate) struct Consumers {
    of: Arc<ConsumerMemory>,
    /// Once it has had one: with other connections of the same holder.
    shared: Option<(Holder, Arc<AtomicUsize>)>,
}

/// What a consumer takes, until it is dropped.
pub(crate) struct Charge {
    of: Arc<ConsumerMemory>,
    holder: Arc<AtomicUsize>,
    bytes: usize,
}

impl Consumers {
    pub fn new(of: &Arc<ConsumerMemory>) -> Self {
        Self { of: Arc::clone(of), shared: None }
    }

    /// Counts consumers, `weight` bytes each. `None`: there is no memory for so many.
    pub fn begin(&mut self, count: usize, weight: usize, holder: impl FnOnce() -> Holder) -> Option<Vec<Charge>> {
        let (_, shared) = self.shared.get_or_insert_with(|| {
            let holder = holder();
            let shared = Arc::clone(self.of.holders.lock().entry(holder.clone()).or_default());
            (holder, shared)
        });
        let bytes = count.saturating_mul(weight);
        let used = self.of.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let own = shared.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let charge = || Charge { of: Arc::clone(&self.of), holder: Arc::clone(shared), bytes: weight };
        let charges = (0..count).map(|_| charge()).collect();
        // Those that are refused are uncounted as they are dropped.
        let fits = own <= ALWAYS_BYTES || own <= self.of.max.load(Ordering::Relaxed).saturating_sub(used);
        self.of.refused.fetch_add(u64::from(!fits), Ordering::Relaxed);
        fits.then_some(charges)
    }
}

impl Drop for Consumers {
    fn drop(&mut self) {
        let Some((holder, shared)) = self.shared.take() else { return };
        let mut holders = self.of.holders.lock();
        // Consumers of the connection may be dropped after it: their holder is counted anew when it comes back.
        drop(shared);
        if holders.get(&holder).is_some_and(|shared| Arc::strong_count(shared) == 1) {
            holders.remove(&holder);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.holder.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Holder {
        Holder::User(name.into())
    }

    #[test]
    fn a_user_leaves_as_much_to_others_and_some_are_never_refused() {
        let memory = Arc::new(ConsumerMemory::default());
        memory.set_max(16 << 20);
        let fill = |consumers: &mut Consumers, name: &str| -> Vec<Charge> {
            std::iter::from_fn(|| consumers.begin(1, 1 << 10, || user(name))).flatten().collect()
        };
        let (mut first, mut second, mut other) =
            (Consumers::new(&memory), Consumers::new(&memory), Consumers::new(&memory));
        let of_first = fill(&mut first, "anna");
        assert_eq!((of_first.len(), memory.used(), memory.refused()), (8 << 10, 8 << 20, 1));
        assert!(second.begin(1, 1 << 10, || user("anna")).is_none(), "her connections have it together");
        assert_eq!(fill(&mut other, "bob").len(), 4 << 10);
        memory.set_max(0);
        assert_eq!(fill(&mut Consumers::new(&memory), "carl").len(), 640);
        drop(of_first);
        memory.set_max(16 << 20);
        assert!(second.begin(7, 1 << 10, || user("anna")).is_some_and(|charges| charges.len() == 7));
    }

    #[test]
    fn nothing_of_those_who_are_gone_stays() {
        let memory = Arc::new(ConsumerMemory::default());
        let mut consumers = Consumers::new(&memory);
        let charges = consumers.begin(3, weight(200, 100), || user("anna"));
        assert_eq!((memory.used(), memory.holders.lock().len()), (3 * weight(200, 100), 1));
        drop(charges);
        drop(consumers);
        assert_eq!((memory.used(), memory.holders.lock().len()), (0, 0));
    }
}
