//! Which segments are rewritten next: neighbours whose live bytes fit into one, those first that give back most for what is copied.
//!
//! * A segment of which less than half is live is rewritten, alone or with its neighbours: then all files together take no more than twice
//!   what is live in them.
//! * Four small ones in a row become one, so that there are not many.
//! * When the disk is short of space less is enough, and what is written fits into what there is.
//! * What is written is no longer than a segment is, or than the one in whose place it comes: segments may have been longer before.
//! * What is live of several together has no more than [`MERGED_RUNS_MAX`] runs: all of them are in memory while they are copied. One segment is
//!   rewritten however many it has.

use super::usage::Usage;
use crate::segments::REPLACES_MAX;

/// A segment with less than this part of the usual length is small.
const SMALL_SHARE: u64 = 4;
/// So many small neighbours become one.
const SMALL_MIN: usize = 4;
/// Less than this part of a segment is not worth a rewriting.
const GAIN_SHARE: u64 = 16;
/// Runs of several segments that are rewritten together, at most: about 32 MiB while they are copied and while their index is written.
const MERGED_RUNS_MAX: u64 = 250_000;
/// A segment with this part of that many is not small, and so many together are worth a rewriting that gives back as much as it copies: there will not be many
/// more of them at once.
const RUNS_SHARE: u64 = SMALL_MIN as u64;
/// What is so many times as good is better.
const ABOUT: f64 = 1.1;
/// When the disk is short it is worth to copy so many times what is given back.
const COPIES_WHEN_SHORT: u64 = 4;

/// What a rewriting has to keep to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Usual length of a segment.
    pub segment_bytes: u64,
    /// What may be written.
    pub room_bytes: u64,
    /// The disk is short of space.
    pub short: bool,
}

impl Limits {
    fn is_small(&self, used: &Usage) -> bool {
        used.kept_bytes < self.segment_bytes / SMALL_SHARE && used.runs < MERGED_RUNS_MAX / RUNS_SHARE
    }

    /// Is it to give back something, or its name at least?
    fn is_loose(&self, used: &Usage) -> bool {
        self.is_worth(used.file_bytes.saturating_sub(used.kept_bytes), used.kept_bytes, 0) || self.is_small(used)
    }

    fn is_worth(&self, gain: u64, kept: u64, least: u64) -> bool {
        let copies = if self.short { COPIES_WHEN_SHORT } else { 1 };
        gain >= least && gain * copies >= kept
    }
}

/// The next ones, oldest first, of all segments, which are given oldest first; `blocked` says which may not be.
pub(super) fn choose(usage: &[Usage], limits: &Limits, blocked: impl Fn(u64) -> bool) -> Option<Vec<Usage>> {
    let least = limits.segment_bytes / GAIN_SHARE;
    let mut best: Option<(f64, &[Usage])> = None;
    for from in 0..usage.len() {
        let mut own = None;
        let (mut gain, mut kept, mut runs, mut small) = (0, 0, 0, true);
        let longest = limits.room_bytes.min(limits.segment_bytes.max(usage[from].file_bytes));
        for (number, used) in usage[from..].iter().take(REPLACES_MAX).enumerate() {
            kept += used.kept_bytes;
            runs += used.runs;
            if blocked(used.sequence)
                || !limits.is_loose(used)
                || kept > longest
                || number > 0 && runs > MERGED_RUNS_MAX
            {
                break;
            }
            let least = if runs < MERGED_RUNS_MAX / RUNS_SHARE { least } else { 0 };
            gain += used.file_bytes.saturating_sub(used.kept_bytes);
            small &= limits.is_small(used);
            let gathers = small && number + 1 >= SMALL_MIN && !limits.short;
            if !limits.is_worth(gain, kept, least) && !gathers {
                continue;
            }
            let score = gain as f64 / (kept + limits.segment_bytes / 64) as f64;
            // Many at once are better than few.
            if own.is_none_or(|(highest, _)| score * ABOUT > highest) {
                own = Some((score, &usage[from..=from + number]));
            }
        }
        // Where there is little between them the oldest, so that none is left alone between others.
        if let Some((score, _)) = own.filter(|(score, _)| best.is_none_or(|(highest, _)| *score > highest * ABOUT)) {
            best = own.map(|(_, victims)| (score, victims));
        }
    }
    best.map(|(_, victims)| victims.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1 << 20;
    const ROOMY: Limits = Limits { segment_bytes: SEGMENT, room_bytes: SEGMENT, short: false };

    /// Whole segments of which these parts of a hundred are live.
    fn segments(live: &[u64]) -> Vec<Usage> {
        let used = |(at, percent): (usize, &u64)| {
            let kept = SEGMENT * percent / 100;
            Usage { sequence: at as u64, file_bytes: SEGMENT, live_bytes: kept, kept_bytes: kept, runs: 1 }
        };
        live.iter().enumerate().map(used).collect()
    }

    fn chosen(usage: &[Usage], limits: &Limits) -> Vec<u64> {
        choose(usage, limits, |_| false).unwrap_or_default().iter().map(|used| used.sequence).collect()
    }

    /// Carries out what is chosen until nothing is; what was copied, and what is left.
    fn settle(mut usage: Vec<Usage>, limits: &Limits) -> (u64, Vec<Usage>) {
        let mut copied = 0;
        while let Some(victims) = choose(&usage, limits, |_| false) {
            let kept: u64 = victims.iter().map(|used| used.kept_bytes).sum();
            let runs: u64 = victims.iter().map(|used| used.runs).sum();
            assert!(runs <= MERGED_RUNS_MAX || victims.len() == 1, "{runs} runs of {} segments at once", victims.len());
            copied += kept;
            let at = usage.iter().position(|used| *used == victims[0]).unwrap();
            let one = Usage { file_bytes: kept, kept_bytes: kept, live_bytes: kept, runs, ..victims[0] };
            usage.splice(at..at + victims.len(), [one]);
            assert!(copied < 100 * SEGMENT, "it comes to an end");
        }
        (copied, usage)
    }

    #[test]
    fn whatever_part_is_live_files_take_twice_of_it_at_most() {
        for percent in 1..=99 {
            let usage = segments(&[percent; 40]);
            let live: u64 = usage.iter().map(|used| used.kept_bytes).sum();
            let (copied, left) = settle(usage, &ROOMY);
            let files: u64 = left.iter().map(|used| used.file_bytes).sum();
            assert!(files <= 2 * live + SEGMENT, "{percent} %: {files} for {live}");
            assert!(copied <= 3 * live, "{percent} %: {copied} for {live}");
        }
    }

    #[test]
    fn those_that_give_back_most_for_a_copy_come_first_and_neighbours_together() {
        assert_eq!(chosen(&segments(&[90, 45, 10, 10, 45, 90]), &ROOMY), [2, 3]);
        assert_eq!(chosen(&segments(&[90, 1, 1, 1, 90]), &ROOMY), [1, 2, 3]);
        assert_eq!(chosen(&segments(&[90, 60, 70]), &ROOMY), []);
        assert_eq!(choose(&segments(&[10, 90, 30]), &ROOMY, |sequence| sequence == 0).unwrap()[0].sequence, 2);
    }

    #[test]
    fn segments_that_were_longer_before_are_rewritten_too() {
        let long = |percent: u64| {
            let kept = 16 * SEGMENT * percent / 100;
            Usage { sequence: 0, file_bytes: 16 * SEGMENT, live_bytes: kept, kept_bytes: kept, runs: 1 }
        };
        let roomy = Limits { room_bytes: u64::MAX, ..ROOMY };
        for percent in [5, 20, 49] {
            let (copied, left) = settle(vec![long(percent)], &roomy);
            assert_eq!(
                (copied, left[0].file_bytes),
                (long(percent).kept_bytes, long(percent).kept_bytes),
                "{percent} %"
            );
        }
        assert_eq!(chosen(&[long(51)], &roomy), []);
        assert_eq!(chosen(&[long(20)], &ROOMY), [], "it would not fit");
    }

    #[test]
    fn small_ones_are_gathered_once() {
        let small =
            |at| Usage { sequence: at, file_bytes: SEGMENT / 10, live_bytes: 1, kept_bytes: SEGMENT / 10, runs: 1 };
        assert_eq!(chosen(&(0..3).map(small).collect::<Vec<_>>(), &ROOMY), []);
        let (copied, left) = settle((0..100).map(small).collect(), &ROOMY);
        assert!(left.len() <= 100 / 4 && copied <= 20 * SEGMENT, "{} files, {copied} copied", left.len());
    }

    /// Segments of a 40th of the usual length, which are full because of their runs, of which these parts of a hundred are live.
    fn of_many_runs(live: &[u64]) -> Vec<Usage> {
        let used = |(at, percent): (usize, &u64)| {
            let kept = SEGMENT / 40 * percent / 100;
            Usage {
                sequence: at as u64,
                file_bytes: SEGMENT / 40,
                live_bytes: kept,
                kept_bytes: kept,
                runs: 400_000 * percent / 100,
            }
        };
        live.iter().enumerate().map(used).collect()
    }

    #[test]
    fn no_more_runs_are_copied_at_once_than_fit_into_memory_and_space_comes_back_all_the_same() {
        for percent in 1..=100 {
            let usage = of_many_runs(&[percent; 200]);
            let live: u64 = usage.iter().map(|used| used.kept_bytes).sum();
            let (copied, left) = settle(usage, &ROOMY);
            let files: u64 = left.iter().map(|used| used.file_bytes).sum();
            assert!(files <= 2 * live + SEGMENT / GAIN_SHARE, "{percent} %: {files} for {live}");
            assert!(copied <= 4 * live, "{percent} %: {copied} for {live}");
            // Where little is live they are gathered too.
            let runs = 200 * 400_000 * percent / 100;
            assert!(
                left.len() as u64 <= 4 + runs / (MERGED_RUNS_MAX / RUNS_SHARE),
                "{percent} %: {} files",
                left.len()
            );
        }
        assert_eq!(chosen(&of_many_runs(&[100; 64]), &ROOMY), []);
        // What nobody would make today.
        let huge = Usage {
            sequence: 0,
            file_bytes: SEGMENT,
            live_bytes: 1,
            kept_bytes: SEGMENT / 3,
            runs: 10 * MERGED_RUNS_MAX,
        };
        assert_eq!(chosen(&[huge], &ROOMY), [0]);
        assert_eq!(chosen(&[huge, Usage { sequence: 1, ..huge }], &ROOMY), [0]);
    }

    #[test]
    fn on_a_short_disk_less_is_enough_and_it_fits() {
        let short = Limits { room_bytes: SEGMENT / 5, short: true, ..ROOMY };
        assert_eq!(chosen(&segments(&[70, 25, 15, 40]), &short), [2]);
        assert_eq!(chosen(&segments(&[70, 25, 40]), &short), []);
        assert_eq!(chosen(&segments(&[70]), &Limits { room_bytes: SEGMENT, ..short }), [0]);
    }
}
