//! A gate that closes once.

use std::sync::atomic::{AtomicBool, Ordering};

/// Open until it is closed, for good. What was let through before [`Gate::close`] returned is ordered before what its caller does next.
#[derive(Debug, Default)]
pub struct Gate(AtomicBool);

impl Gate {
    /// Lets nothing more through.
    pub fn close(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Does it let nothing through?
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
