//! Lines in the log about connections that were closed because of what the peer did. Anybody can cause them without a login, so there is a
//! bound: so many a second of each shard; the first line of a later second says how many there were more. What a line repeats of the peer's words
//! does not end it: what follows would look like a line of ours.

use std::cell::Cell;
use std::fmt::{self, Display, Write};
use std::time::{Duration, Instant};

/// Lines a second.
const LINES_MAX: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);

/// What was written lately.
#[derive(Default)]
pub struct Closings(Cell<Lately>);

#[derive(Clone, Copy, Default)]
struct Lately {
    began: Option<Instant>,
    written: u32,
    unwritten: u64,
}

impl Closings {
    /// May another line be written? Then how many there would have been that were not.
    pub fn may_write(&self, now: Instant) -> Option<u64> {
        let mut lately = self.0.get();
        let mut more = 0;
        if lately.began.is_none_or(|began| now.saturating_duration_since(began) >= SECOND) {
            more = lately.unwritten;
            lately = Lately { began: Some(now), written: 0, unwritten: 0 };
        }
        let may = lately.written < LINES_MAX;
        if may { lately.written += 1 } else { lately.unwritten += 1 }
        self.0.set(lately);
        may.then_some(more)
    }
}

/// A text without control characters: they are shown as Rust writes them.
pub struct OneLine<T>(pub T);

/// What writes into `0`.
struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|letter| if letter.is_control() { write!(self.0, "{}", letter.escape_default()) } else { self.0.write_char(letter) })
    }
}

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_stays_on_its_line() {
        assert_eq!(OneLine("größer, 'a' \"b\"").to_string(), "größer, 'a' \"b\"");
        assert_eq!(OneLine("x\r\n2026 INFO audit\u{1b}[2J").to_string(), "x\\r\\n2026 INFO audit\\u{1b}[2J");
    }

    #[test]
    fn so_many_lines_a_second_and_the_number_of_the_others() {
        let (closings, began) = (Closings::default(), Instant::now());
        let written = (0..1000).filter_map(|_| closings.may_write(began)).collect::<Vec<_>>();
        assert_eq!(written, [0; LINES_MAX as usize]);
        assert_eq!(closings.may_write(began + SECOND / 2), None);
        assert_eq!(closings.may_write(began + SECOND), Some(1001 - u64::from(LINES_MAX)));
        assert_eq!(closings.may_write(began + SECOND), Some(0));
        assert_eq!(closings.may_write(began + SECOND * 5), Some(0));
    }
}
