//! How often it is said that work has failed: at once, and as long as it fails at most once a minute.

use std::collections::BTreeMap;

/// The same is said again after so many ms.
const PAUSE_MS: i64 = 60_000;

/// When it was said of what.
#[derive(Default)]
pub(super) struct Failures(BTreeMap<&'static str, i64>);

impl Failures {
    /// Is it to be said at `now`, in ms, that this has failed? The clock may go back.
    pub fn tell(&mut self, what: &'static str, now: i64) -> bool {
        let told = self.0.get(what).is_some_and(|at| (0..PAUSE_MS).contains(&now.saturating_sub(*at)));
        if !told {
            self.0.insert(what, now);
        }
        !told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_all_the_time_is_said_once_a_minute() {
        let mut failures = Failures::default();
        let told = (0..180_000).step_by(40).filter(|now| failures.tell("write a checkpoint", *now)).count();
        assert_eq!(told, 3);
        assert!(failures.tell("seal a segment", 179_999), "other work is said at once");
        assert!(failures.tell("seal a segment", 10), "the clock went back");
    }
}
