//! What a person sees while it runs: a bar with the time left, the current rate, p99 and backlog. Where standard error is
//! no terminal, a line for each phase instead.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::result::Moment;

/// Progress of a plan of so many seconds.
pub struct Progress {
    bar: Option<ProgressBar>,
    silent: bool,
    state: Mutex<State>,
}

struct State {
    run: String,
    phase: &'static str,
    began: Instant,
    planned: Duration,
    /// Seconds of the plan that were before the current run.
    before: f64,
    of_run: f64,
    run_began: Instant,
}

impl Progress {
    /// A bar over so much time, or lines where there is no terminal.
    pub fn over(planned: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = "{bar:30.cyan/blue} {elapsed_precise} of about {msg}";
            let bar = ProgressBar::new(planned.as_secs().max(1));
            bar.set_style(ProgressStyle::with_template(style).expect("a fixed template"));
            bar
        });
        Self { bar, silent: false, state: Mutex::new(State::new(planned)) }
    }

    /// A run begins that was planned to take so long.
    pub fn begin(&self, run: &str, planned: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.before += state.of_run;
        state.of_run = planned.as_secs_f64();
        state.run_began = Instant::now();
        state.run = run.to_owned();
        state.phase = "";
        drop(state);
        self.say(run);
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None if self.silent => {}
            None => eprintln!("[{:>5.0} s] {line}", self.elapsed().as_secs_f64()),
        }
    }

    /// For runs that nobody watches.
    pub fn silent() -> Self {
        Self { silent: true, ..Self::over(Duration::ZERO) }
    }

    /// A second of a run has passed.
    pub fn second(&self, phase: &'static str, moment: &Moment) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let new_phase = state.phase != phase;
        state.phase = phase;
        let text = format!(
            "{}/s in, {}/s out, p99 {}, backlog {}",
            count(moment.publish_rate),
            count(moment.receive_rate),
            moment.publish_p99_ms.map_or("–".to_owned(), |ms| format!("{ms:.1} ms")),
            count(moment.backlog)
        );
        let done = state.before + state.run_began.elapsed().as_secs_f64().min(state.of_run);
        let (run, planned) = (state.run.clone(), state.planned);
        drop(state);
        match &self.bar {
            Some(bar) => {
                bar.set_position(done as u64);
                let left = planned.saturating_sub(Duration::from_secs_f64(done));
                bar.set_message(format!(
                    "{} min, {} min left · {run} · {phase}: {text}",
                    minutes(planned),
                    minutes(left)
                ));
            }
            None if new_phase => self.say(&format!("  {phase}: {text}")),
            None => {}
        }
    }

    /// A search tried a rate.
    pub fn tried(&self, rate: f64, stable: bool) {
        self.say(&format!("  {}/s is {}", count(rate), if stable { "stable" } else { "not stable" }));
    }

    fn elapsed(&self) -> Duration {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).began.elapsed()
    }
}

impl State {
    fn new(planned: Duration) -> Self {
        let now = Instant::now();
        Self { run: String::new(), phase: "", began: now, planned, before: 0.0, of_run: 0.0, run_began: now }
    }
}

fn minutes(time: Duration) -> u64 {
    time.as_secs().div_ceil(60)
}

/// A count as people say it: 512, 20.5k, 1.2M.
pub fn count(number: f64) -> String {
    match number {
        _ if number >= 999_500.0 => format!("{:.2}M", number / 1e6),
        _ if number >= 9_995.0 => format!("{:.0}k", number / 1e3),
        _ if number >= 999.5 => format!("{:.1}k", number / 1e3),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_are_short() {
        let shown: Vec<String> = [0.0, 512.4, 2_931.0, 20_480.0, 512_345.0, 1_200_000.0].map(count).into();
        assert_eq!(shown, ["0", "512", "2.9k", "20k", "512k", "1.20M"]);
    }
}
