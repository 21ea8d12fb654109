//! Subscriptions that the thread `groups` looks after: twice a second while there are any; otherwise it is woken by the first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::SharedSubscription;
use crate::lane::Inbox;

/// Subscriptions of which something runs out: locks of consumers, what was read ahead, or the time until dead records are tried again.
#[derive(Default)]
pub(super) struct LookedAfter {
    list: Mutex<Vec<Arc<SharedSubscription>>>,
    /// The thread that looks after them has none, and sleeps for long.
    rests: AtomicBool,
    thread: OnceLock<Arc<Inbox>>,
}

impl LookedAfter {
    /// Takes all out.
    pub fn take(&self) -> Vec<Arc<SharedSubscription>> {
        std::mem::take(&mut *self.list.lock())
    }

    /// Who is woken.
    pub fn set_thread(&self, thread: Arc<Inbox>) {
        let _ = self.thread.set(thread);
    }

    pub fn enter(&self, shared: Arc<SharedSubscription>) {
        self.list.lock().push(shared);
        if self.rests.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.wake();
        }
    }

    /// The thread is about to sleep until it is woken; false: one was entered meanwhile.
    pub fn may_rest(&self) -> bool {
        self.rests.store(true, Ordering::SeqCst);
        // Who enters one afterwards sees that it rests.
        self.list.lock().is_empty() || !self.rests.swap(false, Ordering::SeqCst)
    }
}
