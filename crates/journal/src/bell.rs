//! A bell that one thread waits for and any thread rings; a ring before the wait is not lost.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// Ends the wait, or the next one before it begins.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.rings.notify_one();
    }

    /// Waits until it rings, or for `limit`.
    pub fn wait(&self, limit: Option<Duration>) {
        let mut rung = self.rung.lock();
        if !*rung {
            match limit {
                Some(limit) => drop(self.rings.wait_for(&mut rung, limit)),
                None => self.rings.wait(&mut rung),
            }
        }
        *rung = false;
    }
}
