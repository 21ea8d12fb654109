//! What is told of connections that the broker closes: numbers by reason, and lines in the log.
//!
//! Lines are about connections that were closed because of what the peer did. Anybody can cause them without a login, so there is a
//! bound: so many a second of each shard; the first line of a later second says how many there were more. What a line repeats of the peer's words
//! does not end it: what follows would look like a line of ours.

use std::cell::Cell;
use std::fmt::{self, Display, Write};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Lines a second.
const LINES_MAX: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);

/// Which time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing was asked.
    Idle,
    /// A request did not come to its end.
    Unfinished,
    /// The same, and others waited for memory.
    Memory,
    /// Answers were not read.
    Unread,
    /// Nobody said who he is.
    Login,
    /// The handshake of TLS did not come to its end.
    TlsHandshake,
}

impl Reason {
    const ALL: [Self; 6] = [Self::Idle, Self::Unfinished, Self::Memory, Self::Unread, Self::Login, Self::TlsHandshake];

    fn label(self) -> ReasonLabel {
        let reason = match self {
            Self::Idle => "idle",
            Self::Unfinished => "unfinished_request",
            Self::Memory => "memory",
            Self::Unread => "unread_answers",
            Self::Login => "login",
            Self::TlsHandshake => "tls_handshake",
        };
        ReasonLabel { reason }
    }
}

/// The label of the counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// How many connections were closed because a time was over; cheap to clone.
#[derive(Clone)]
pub struct Closed(Family<ReasonLabel, Counter>);

impl Default for Closed {
    fn default() -> Self {
        let family = Family::default();
        Reason::ALL.into_iter().for_each(|reason| drop(family.get_or_create_owned(&reason.label())));
        Self(family)
    }
}

impl Closed {
    /// One more.
    pub fn count(&self, reason: Reason) {
        self.0.get_or_create(&reason.label()).inc();
    }

    /// Makes them visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "mainstem_connections_closed",
            "Connections that were closed because a time was over",
            self.0.clone(),
        );
    }
}

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
        if may {
            lately.written += 1
        } else {
            lately.unwritten += 1
        }
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
        text.chars().try_for_each(|letter| {
            if letter.is_control() { write!(self.0, "{}", letter.escape_default()) } else { self.0.write_char(letter) }
        })
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
