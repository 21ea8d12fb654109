//! Large requests that wait for memory, in order. Memory that becomes free goes to them at once: addresses take turns, and those of one address come in the
//! order in which they began to wait, apart from those for which there is less than they need. The one request beyond the bound is the first of the
//! address whose turn it is, so that none waits for ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use tokio::sync::Notify;

use super::{AddressUse, FramePool};

/// So many requests of an address are looked at for one that fits: behind those, nobody passes who is too large.
const LOOKED_AT: usize = 16;

/// Why a request is read although much is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// What is missing of it is set aside.
    Reserved,
    /// It is the one beyond the bound.
    Beyond,
}

/// A request that waits.
pub(super) struct Waiter {
    missing: usize,
    granted: OnceLock<Grant>,
    wake: Arc<Notify>,
}

impl Waiter {
    /// What it has got.
    pub fn grant(&self) -> Option<Grant> {
        self.granted.get().copied()
    }
}

#[derive(Default)]
pub(super) struct Line {
    /// By where an address is counted; none is empty.
    of: HashMap<usize, (Arc<AddressUse>, VecDeque<Arc<Waiter>>)>,
    /// Each of them once; the first is next.
    turns: VecDeque<usize>,
    /// A request is beyond the bound.
    beyond: bool,
}

fn key(of: &Arc<AddressUse>) -> usize {
    Arc::as_ptr(of) as usize
}

impl Line {
    fn push(&mut self, of: &Arc<AddressUse>, waiter: Arc<Waiter>) {
        let (_, waiters) = self.of.entry(key(of)).or_insert_with(|| {
            self.turns.push_back(key(of));
            (Arc::clone(of), VecDeque::new())
        });
        waiters.push_back(waiter);
    }

    /// Nobody waits, and none is beyond the bound.
    #[cfg(test)]
    pub fn is_at_rest(&self) -> bool {
        self.of.is_empty() && self.turns.is_empty() && !self.beyond
    }

    fn forget(&mut self, of: usize) {
        self.of.remove(&of);
        self.turns.retain(|other| *other != of);
    }

    /// The next address has its turn: the first of its requests that `fits` is taken out.
    fn take(
        &mut self,
        mut fits: impl FnMut(&Arc<AddressUse>, &Waiter) -> bool,
    ) -> Option<(Arc<AddressUse>, Arc<Waiter>)> {
        let turn = self.turns.pop_front()?;
        self.turns.push_back(turn);
        let (of, waiters) = self.of.get_mut(&turn)?;
        let at = waiters.iter().take(LOOKED_AT).position(|waiter| fits(of, waiter))?;
        let (of, waiter) = (Arc::clone(of), waiters.remove(at)?);
        if waiters.is_empty() {
            self.forget(turn);
        }
        Some((of, waiter))
    }
}

impl FramePool {
    /// A grant for a request of which so much is missing, or its place in line.
    pub(super) fn ask(&self, of: &Arc<AddressUse>, missing: usize, wake: &Arc<Notify>) -> Result<Grant, Arc<Waiter>> {
        let mut line = self.line.lock();
        // Before it is looked at what is taken: who gives back sees that somebody waits, or has given back already.
        self.count_waiting(of, true);
        if self.reserve(of, missing) {
            self.count_waiting(of, false);
            return Ok(Grant::Reserved);
        }
        // While it is to be had, nobody waits.
        if !std::mem::replace(&mut line.beyond, true) {
            self.count_waiting(of, false);
            return Ok(Grant::Beyond);
        }
        let waiter = Arc::new(Waiter { missing, granted: OnceLock::new(), wake: Arc::clone(wake) });
        line.push(of, Arc::clone(&waiter));
        Err(waiter)
    }

    fn count_waiting(&self, of: &AddressUse, more: bool) {
        for counter in [&self.waiting, &of.waiting] {
            if more {
                counter.fetch_add(1, Ordering::SeqCst);
            } else {
                counter.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn reserve(&self, of: &AddressUse, missing: usize) -> bool {
        let used = of.used.load(Ordering::Relaxed) + missing;
        let fits = |taken: usize| {
            let with_it = taken + missing;
            (with_it <= self.max_bytes() && self.is_share(used, with_it)).then_some(with_it)
        };
        let fits = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok();
        if fits {
            of.used.fetch_add(missing, Ordering::Relaxed);
        }
        fits
    }

    /// Gives those who wait what there is.
    pub(super) fn serve(&self, line: &mut Line) {
        let mut without = 0;
        while without < line.turns.len() && self.taken() < self.max_bytes() {
            match line.take(|of, waiter| self.reserve(of, waiter.missing)) {
                Some((of, waiter)) => {
                    self.grant(&of, &waiter, Grant::Reserved);
                    without = 0;
                }
                None => without += 1,
            }
        }
        if !line.beyond
            && let Some((of, waiter)) = line.take(|_, _| true)
        {
            line.beyond = true;
            self.grant(&of, &waiter, Grant::Beyond);
        }
    }

    fn grant(&self, of: &AddressUse, waiter: &Waiter, grant: Grant) {
        self.count_waiting(of, false);
        _ = waiter.granted.set(grant);
        waiter.wake.notify_one();
    }

    /// Another request may be beyond the bound.
    pub(super) fn end_beyond(&self) {
        let mut line = self.line.lock();
        line.beyond = false;
        self.serve(&mut line);
    }

    /// A request waits no longer; what it was granted meanwhile.
    pub(super) fn leave(&self, of: &Arc<AddressUse>, waiter: &Arc<Waiter>) -> Option<Grant> {
        let mut line = self.line.lock();
        let of_it = line.of.get_mut(&key(of));
        if let Some((_, waiters)) = of_it
            && let Some(at) = waiters.iter().position(|other| Arc::ptr_eq(other, waiter))
        {
            waiters.remove(at);
            if waiters.is_empty() {
                line.forget(key(of));
            }
            self.count_waiting(of, false);
        }
        waiter.grant()
    }
}
