//! How fast a request (of AMQP: a frame) has to come once its first byte is there. Time in which the broker does not read does not count,
//! unless it is because the client does not take answers: then taking them is as good as sending.
//!
//! | bound | why |
//! |---|---|
//! | `mainstem.frame.timeout.ms` from its first byte to its last | whatever comes, it ends: a time that began anew with each byte would let one byte a second hold memory for ever |
//! | `mainstem.frame.byte.rate`, on average, apart from the first 30 s | who has stopped sending is not waited for as long as who sends a long request by a slow line |
//! | 16 KiB a second, over half a second, for requests of which 4 KiB are there or 32 KiB are to come, while others wait for memory | what it holds is what others need |
//! | half a second for a small one of which 4 KiB are there, while more memory is taken than there is | it is read in any case, and there may be many |
//! | a twentieth of a large request (without a grant: of what has come) in half a second, one time of two, while it is in the way of others | they wait for all of it |

use std::time::{Duration, Instant};

use broker::Settings;

/// The rate counts only after this long: a line may break down for a while.
const GRACE: Duration = Duration::from_secs(30);
/// What comes is looked at over such spans …
const SPAN: Duration = Duration::from_millis(500);
/// … in which less than this is slow.
const SLOW_BYTES: usize = 8 << 10;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub struct PaceRules {
    /// From the first byte to the last.
    pub whole_within: Duration,
    /// On average; 0: any.
    pub bytes_per_second: u64,
}

impl PaceRules {
    /// Those of the settings.
    pub fn of(settings: &Settings) -> Self {
        let int = |name| settings.int(name).unsigned_abs();
        Self {
            whole_within: Duration::from_millis(int("mainstem.frame.timeout.ms")),
            bytes_per_second: int("mainstem.frame.byte.rate"),
        }
    }
}

/// When one request began, and how it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    began: Instant,
    /// Beginning of the span, and the bytes that were there.
    span: (Instant, usize),
    /// Less came in the span before than its floor.
    was_below: bool,
    /// It is not read, since then.
    held: Option<Instant>,
}

/// A span that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    bytes: usize,
    below_floor: bool,
}

impl Span {
    /// Too little came for a request that takes memory.
    pub fn is_slow(self) -> bool {
        self.bytes < SLOW_BYTES
    }

    /// Less than its floor came, and in the one before, too.
    pub fn is_below_floor(self) -> bool {
        self.below_floor
    }
}

impl Pace {
    /// Its first bytes came at `now`.
    pub fn new(now: Instant) -> Self {
        Self { began: now, span: (now, 0), was_below: false, held: None }
    }

    /// Is it read?
    pub fn set_read(&mut self, read: bool, now: Instant) {
        if !read {
            self.held.get_or_insert(now);
        } else if let Some(since) = self.held.take() {
            let lost = now.saturating_duration_since(since);
            self.began += lost;
            self.span.0 += lost;
        }
    }

    fn end(&self, arrived: usize, rules: PaceRules) -> Instant {
        let at_rate = (arrived as u64)
            .saturating_mul(1000)
            .checked_div(rules.bytes_per_second)
            .map_or(Duration::MAX, Duration::from_millis);
        self.began + rules.whole_within.min(GRACE.saturating_add(at_rate))
    }

    /// Is it over, with so many bytes there?
    pub fn is_over(&self, arrived: usize, rules: PaceRules, now: Instant) -> bool {
        self.held.is_none() && now >= self.end(arrived, rules)
    }

    /// The span that ends now, in which at least `floor` bytes were to come. The next one begins.
    pub fn end_span(&mut self, arrived: usize, floor: usize, now: Instant) -> Option<Span> {
        let (began, before) = self.span;
        if self.held.is_some() || now.saturating_duration_since(began) < SPAN {
            return None;
        }
        self.span = (now, arrived);
        let bytes = arrived.saturating_sub(before);
        let was_below = std::mem::replace(&mut self.was_below, bytes < floor);
        Some(Span { bytes, below_floor: was_below && self.was_below })
    }

    /// When to look again; `spans`: also at the end of each span.
    pub fn next(&self, arrived: usize, spans: bool, rules: PaceRules) -> Option<Instant> {
        let end = self.end(arrived, rules);
        self.held.is_none().then(|| if spans { end.min(self.span.0 + SPAN) } else { end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: PaceRules = PaceRules { whole_within: Duration::from_secs(120), bytes_per_second: 4096 };

    #[test]
    fn a_byte_a_second_does_not_hold_it_open_and_a_slow_line_has_its_time() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let pace = Pace::new(start);
        assert!(!pace.is_over(29, RULES, after(29)) && pace.is_over(31, RULES, after(31)), "a byte a second");
        assert!(
            !pace.is_over(5 * 4096, RULES, after(34)) && pace.is_over(5 * 4096, RULES, after(35)),
            "a part at once, and then nothing"
        );
        assert!(
            !pace.is_over(119 * 4096, RULES, after(119)) && pace.is_over(10 << 20, RULES, after(120)),
            "there is an end"
        );
        let any = PaceRules { bytes_per_second: 0, ..RULES };
        assert!(!pace.is_over(1, any, after(119)) && pace.is_over(1, any, after(120)));
        let short = PaceRules { whole_within: Duration::from_secs(1), ..RULES };
        assert!(pace.is_over(1, short, after(1)));
        assert_eq!(pace.next(1, false, short), Some(after(1)));
    }

    #[test]
    fn time_in_which_nobody_reads_does_not_count() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::new(start);
        pace.set_read(false, after(10));
        pace.set_read(false, after(500));
        assert!(
            !pace.is_over(0, RULES, after(1000))
                && pace.end_span(0, 0, after(1000)).is_none()
                && pace.next(0, true, RULES).is_none()
        );
        pace.set_read(true, after(1000));
        assert!(!pace.is_over(0, RULES, after(1019)) && pace.is_over(0, RULES, after(1020)));
    }

    #[test]
    fn spans_are_judged_one_by_one() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::new(start);
        let mut is_slow = |arrived, millis| pace.end_span(arrived, 0, after(millis)).map(Span::is_slow);
        assert_eq!((is_slow(0, 499), is_slow(SLOW_BYTES - 1, 500)), (None, Some(true)));
        assert_eq!(is_slow(SLOW_BYTES, 900), None, "the second has not ended");
        assert_eq!(is_slow(2 * SLOW_BYTES - 1, 1000), Some(false), "enough came in it");
        assert_eq!(pace.next(0, true, RULES), Some(after(1500)));
    }

    #[test]
    fn two_spans_below_the_floor_are_too_many() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut is_below = |arrived, millis| {
            pace.end_span(arrived, 100_000, start + Duration::from_millis(millis)).map(Span::is_below_floor)
        };
        assert_eq!(is_below(99_999, 500), Some(false), "a stall");
        assert_eq!(is_below(199_999, 1000), Some(false));
        assert_eq!(is_below(250_000, 1500), Some(false));
        assert_eq!(is_below(300_000, 2000), Some(true));
    }
}
