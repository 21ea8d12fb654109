//! Segments that could not be read when they were to be rewritten. Where a read has failed it is tried again, each time after a longer pause;
//! what is damaged stays as it is until nothing of it is live. Neither is in the way of other segments. Segments whose indexes could not be read when
//! they were to be measured are kept likewise.

use std::collections::BTreeMap;

/// Pause after the first failure, in ms; after each further one it is twice as long …
const PAUSE_MS: i64 = 1_000;
/// … but no longer than this.
const PAUSE_MAX_MS: i64 = 300_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It is tried again when the pause that began then is over.
    After(i64),
    /// The pause is over.
    Now,
    /// A checksum or length is wrong: never.
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Setback {
    pause_ms: i64,
    next: Next,
}

/// By sequence.
#[derive(Default)]
pub(super) struct Setbacks(BTreeMap<u64, Setback>);

impl Setbacks {
    /// Is it to be left alone now?
    pub fn blocks(&self, sequence: u64) -> bool {
        self.0.get(&sequence).is_some_and(|setback| setback.next != Next::Now)
    }

    /// It could not be read at `now`, in ms. True the first time.
    pub fn enter(&mut self, sequence: u64, damaged: bool, now: i64) -> bool {
        let before = self.0.get(&sequence).map(|setback| setback.pause_ms);
        let pause_ms = before.map_or(PAUSE_MS, |pause| (pause * 2).min(PAUSE_MAX_MS));
        self.0.insert(sequence, Setback { pause_ms, next: if damaged { Next::Never } else { Next::After(now) } });
        before.is_none()
    }

    /// Ends the pauses that are over. True when there were any. The clock may go back.
    pub fn end_pauses(&mut self, now: i64) -> bool {
        let mut any = false;
        for setback in self.0.values_mut() {
            if let Next::After(began) = setback.next
                && !(began..began + setback.pause_ms).contains(&now)
            {
                (setback.next, any) = (Next::Now, true);
            }
        }
        any
    }

    /// It was rewritten, or nothing of it is live any more. True when it had been entered.
    pub fn leave(&mut self, sequence: u64) -> bool {
        self.0.remove(&sequence).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_damage_is_for_good() {
        let (mut setbacks, mut now) = (Setbacks::default(), 10_000);
        for failure in 0..20 {
            assert_eq!(setbacks.enter(7, false, now), failure == 0);
            assert!(setbacks.blocks(7) && !setbacks.blocks(8));
            let pause = (PAUSE_MS << failure.min(10)).min(PAUSE_MAX_MS);
            assert!(!setbacks.end_pauses(now + pause - 1) && setbacks.blocks(7));
            now += pause;
            assert!(setbacks.end_pauses(now) && !setbacks.blocks(7));
            assert!(!setbacks.end_pauses(now), "it is told once");
        }
        assert!(setbacks.leave(7) && !setbacks.leave(7));
        assert!(setbacks.enter(7, true, now));
        assert!(!setbacks.end_pauses(now + 100 * PAUSE_MAX_MS) && setbacks.blocks(7));
    }

    #[test]
    fn a_clock_that_goes_back_ends_a_pause() {
        let mut setbacks = Setbacks::default();
        setbacks.enter(7, false, 10_000);
        assert!(setbacks.end_pauses(5_000) && !setbacks.blocks(7));
    }
}
