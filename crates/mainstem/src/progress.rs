//! A bar on stderr for work that takes a while, when somebody is there to see it.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use types::ByteSize;

const WIDTH: u64 = 30;
const EVERY: Duration = Duration::from_millis(100);

/// How far some work is, in bytes.
pub struct Bar {
    what: &'static str,
    state: Mutex<(u64, u64, Instant)>,
    shown: bool,
}

impl Bar {
    /// At its beginning.
    pub fn new(what: &'static str, total: u64) -> Self {
        Self { what, state: Mutex::new((0, total, Instant::now())), shown: std::io::stderr().is_terminal() }
    }

    /// So many bytes further.
    pub fn advance(&self, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.0 += bytes;
        if self.shown && state.2.elapsed() >= EVERY {
            state.2 = Instant::now();
            self.draw(state.0, state.1);
        }
    }

    /// At so many bytes of so many.
    pub fn set(&self, done: u64, total: u64) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (state.0, state.1) = (done, total);
        if self.shown {
            self.draw(done, total);
        }
    }

    /// Done: the line goes.
    pub fn end(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn draw(&self, done: u64, total: u64) {
        let filled = (done * WIDTH).checked_div(total).unwrap_or(0).min(WIDTH) as usize;
        let (bar, rest) = ("#".repeat(filled), ".".repeat(WIDTH as usize - filled));
        let _ =
            write!(std::io::stderr(), "\r\x1b[K{} [{bar}{rest}] {} of {}", self.what, ByteSize(done), ByteSize(total));
    }
}
