//! An account of bytes: what is in it, and who waits until something is given back, one after the other.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout_at};

/// This part of an account is little.
const PASSING_SHARE: usize = 16;

/// Bytes that are taken and given back.
#[derive(Debug)]
pub(crate) struct Account {
    used: AtomicUsize,
    total: AtomicUsize,
    /// Of those who wait the first has it.
    line: Mutex<()>,
    waiting: AtomicUsize,
    freed: Notify,
}

/// One who waits.
struct Waiting<'a>(&'a Account);

impl<'a> Waiting<'a> {
    fn new(of: &'a Account) -> Self {
        of.waiting.fetch_add(1, Ordering::SeqCst);
        Self(of)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Account {
    pub const fn new(total: usize) -> Self {
        let (used, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { used, total: AtomicUsize::new(total), line: Mutex::const_new(()), waiting, freed: Notify::const_new() }
    }

    pub fn resize(&self, total: usize) {
        self.total.store(total, Ordering::SeqCst);
        self.freed.notify_one();
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    pub fn total(&self) -> usize {
        self.total.load(Ordering::SeqCst)
    }

    /// Is nothing left?
    pub fn is_empty(&self) -> bool {
        self.used() >= self.total()
    }

    fn take_if(&self, bytes: usize) -> bool {
        let total = self.total();
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= total);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Takes so much if it is there and nobody waits, or if it is little together with what he has who takes it: that passes those who wait.
    pub fn try_take(&self, bytes: usize, has: usize) -> bool {
        let passes = has + bytes <= self.total() / PASSING_SHARE;
        (passes || self.waiting.load(Ordering::SeqCst) == 0) && self.take_if(bytes)
    }

    /// Takes so much, also if it is not there.
    pub fn take_anyway(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Waits until so much is there, or all of it, and takes that. `None`: it is not by then.
    pub async fn take(&self, bytes: usize, until: Instant) -> Option<usize> {
        let taken = async {
            let _waiting = Waiting::new(self);
            let _turn = self.line.lock().await;
            loop {
                let freed = self.freed.notified();
                let bytes = bytes.min(self.total());
                if self.take_if(bytes) {
                    return bytes;
                }
                freed.await;
            }
        };
        timeout_at(until, taken).await.ok()
    }

    pub fn give(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::SeqCst);
            self.freed.notify_one();
        }
    }
}
