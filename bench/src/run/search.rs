//! The search for the highest stable rate: which rate is tried next. Decisions without I/O.
//!
//! From a first guess it goes up while rates are stable, else down, until one stable and one unstable rate are known, and halves what lies
//! between them until they are 3 % apart. What it finds is a candidate: a run of its own confirms it, or the next lower one.

/// The first rate, as a share of what comes through at full speed.
const FIRST: f64 = 0.9;
/// The first step up or down is one that three halvings bring within 3 %; those after it are larger.
const FIRST_UP: f64 = 1.26;
const FIRST_DOWN: f64 = 0.79;
const UP: f64 = 1.3;
const DOWN: f64 = 0.55;
/// Shares of full speed beyond which there is nothing to look for.
const HIGHEST: f64 = 4.0;
const LOWEST: f64 = 0.015;
/// How far apart, as a factor, the highest stable and the lowest unstable rate are in the end.
const WITHIN: f64 = 1.03;

/// What is known so far.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    full: f64,
    stable: Option<f64>,
    unstable: Option<f64>,
    trials: u32,
}

impl Search {
    /// Begins at what comes through at full speed.
    pub fn new(full: f64) -> Self {
        Self { full, stable: None, unstable: None, trials: 0 }
    }

    /// The rate to try next; nothing when the search is over.
    pub fn next(&self) -> Option<f64> {
        match (self.stable, self.unstable) {
            (None, None) => Some(self.full * FIRST),
            (Some(stable), None) => {
                let step = if self.trials == 1 { FIRST_UP } else { UP };
                (stable < self.full * HIGHEST).then(|| (stable * step).min(self.full * HIGHEST))
            }
            (None, Some(unstable)) => {
                let step = if self.trials == 1 { FIRST_DOWN } else { DOWN };
                Some(unstable * step).filter(|rate| *rate >= self.full * LOWEST)
            }
            (Some(stable), Some(unstable)) => (unstable > stable * WITHIN).then(|| (stable * unstable).sqrt()),
        }
    }

    /// What a trial has shown.
    pub fn tried(&mut self, rate: f64, stable: bool) {
        self.trials += 1;
        if stable {
            self.stable = Some(rate);
        } else {
            self.unstable = Some(rate);
        }
    }

    /// The highest rate that was stable.
    pub fn found(&self) -> Option<f64> {
        self.stable
    }

    /// The rate to try when a candidate was not confirmed.
    pub fn below(candidate: f64) -> f64 {
        candidate / WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches where everything up to `peak` is stable; what it finds, and after how many trials.
    fn search(full: f64, peak: f64) -> (Option<f64>, usize) {
        let mut search = Search::new(full);
        let mut trials = 0;
        while let Some(rate) = search.next() {
            search.tried(rate, rate <= peak);
            trials += 1;
            assert!(trials < 30, "it ends");
        }
        (search.found(), trials)
    }

    #[test]
    fn it_comes_within_three_percent_of_the_peak() {
        for percent in [3, 7, 12, 30, 54, 55, 89, 90, 91, 117, 118, 160, 250, 390] {
            let peak = f64::from(percent) * 1000.0;
            let (found, trials) = search(100_000.0, peak);
            let found = found.expect("there is one");
            assert!(found <= peak && found * WITHIN >= peak * 0.999, "{found} of {peak}");
            assert!(trials <= 13, "{trials} trials for {peak}");
        }
    }

    #[test]
    fn near_full_speed_five_trials_are_enough() {
        for percent in [72, 80, 89, 91, 100, 112] {
            let (_, trials) = search(100_000.0, f64::from(percent) * 1000.0);
            assert!(trials <= 5, "{trials} trials for {percent} %");
        }
    }

    #[test]
    fn it_ends_where_nothing_or_everything_is_stable() {
        assert_eq!(search(1000.0, 0.0).0, None);
        assert!(search(1000.0, f64::MAX).0.is_some_and(|rate| rate <= 4000.0));
    }
}
