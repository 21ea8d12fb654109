//! Places for requests that keep a thread for seconds: so many of a kind at once, and others are told to come again, so that there is always
//! a thread for those who log in, look at something or change it (`MANAGEMENT_THREADS` of the crate).

use std::sync::atomic::{AtomicUsize, Ordering};

/// Searches for records: each may take five seconds of a core.
pub(crate) static SEARCHES: Places = Places::new(2);
/// Looks at what connections wait for: each takes up to half a minute, and nothing of a core.
pub(crate) static LOOKS: Places = Places::new(2);

/// Places of a kind.
pub(crate) struct Places {
    taken: AtomicUsize,
    max: usize,
}

impl Places {
    const fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    /// `None`: all are taken.
    pub fn take(&self) -> Option<Place<'_>> {
        let free = |taken: usize| (taken < self.max).then(|| taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok().then(|| Place(self))
    }
}

/// One of them, until it is dropped.
pub(crate) struct Place<'p>(&'p Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_have_a_place() {
        let places = Places::new(2);
        let taken: Vec<_> = std::iter::from_fn(|| places.take()).take(3).collect();
        assert_eq!(taken.len(), 2);
        drop(taken);
        assert!(places.take().is_some());
    }
}
