//! Who takes what: connections by client, a consuming client's consumers, a publisher's window.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::Result;

use super::{Job, Place};

/// Payload that a publisher has in flight at most, where the workload gives no window.
const WINDOW_BYTES: usize = 64 << 20;

/// One thing for each client, made when first asked for and kept as long as somebody uses it.
pub struct ByClient<T>(Mutex<Vec<Weak<T>>>);

impl<T> ByClient<T> {
    /// For so many clients.
    pub fn new(clients: usize) -> Self {
        Self(Mutex::new((0..clients).map(|_| Weak::new()).collect()))
    }

    /// The client's.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get(&self, client: usize, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all[client].upgrade() {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        all[client] = Arc::downgrade(&made);
        Ok(made)
    }
}

/// The consumers that a consuming client is to run, as topic and number within its subscription.
pub fn share(job: &Job, place: Place) -> impl Iterator<Item = (usize, usize)> {
    let (topics, each) = (job.workload.topics as usize, job.workload.consumer_per_subscription as usize);
    let mine = (0..topics * each).filter(move |consumer| consumer % place.clients == place.client);
    mine.map(move |consumer| (consumer / each, consumer % each))
}

/// Messages that a publisher may have in flight by the workload, or by default: `most`, fewer when they are large.
pub fn window_of(job: &Job, most: usize) -> usize {
    match job.workload.window as usize {
        0 => (WINDOW_BYTES / job.workload.message_size as usize).clamp(1, most),
        window => window,
    }
}

/// How much of a window is taken.
pub struct Window {
    limit: usize,
    taken: AtomicUsize,
}

impl Window {
    /// For so many messages.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicUsize::new(0) })
    }

    /// No message may enter.
    pub fn is_full(&self) -> bool {
        self.taken.load(Ordering::Acquire) >= self.limit
    }

    /// A message enters.
    pub fn enter(&self) {
        self.taken.fetch_add(1, Ordering::AcqRel);
    }

    /// So many messages leave.
    pub fn leave(&self, messages: usize) {
        self.taken.fetch_sub(messages, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
