//! A read that fails once while segments are rewritten: what is dead in them is given back all the same, a little later; likewise beside one file that cannot be changed. And the process that dies within
//! a rewriting, where a start meets segments with those that replace them.

use std::sync::atomic::Ordering;

use journal::{AppendItem, JournalStatus};
use types::{Durability, LogId};

use super::{Coverage, SEGMENT_BYTES, Waiting, World, done, durability, is_compacted, retention};
use crate::disk::{Faults, KINDS, Kind, REWRITING};

/// So many full segments are wanted, …
const SEALED: usize = 4;
/// … for which there are no more appends than these.
const APPENDS_MAX: u64 = 1500;
/// Turns of the keeper, a second apart, in which it begins to rewrite, and in which it has time to do so again.
const TURNS: u64 = 30;
pub(super) const SECOND_MS: i64 = 1000;
/// Turns in which everything is answered: for each segment that is added beyond the window some seconds pass.
const SETTLING_MAX: u64 = 300;
/// Fewer logs than these are kept beside the one.
const KEPT_BESIDE: u64 = 3;
/// Reads of a rewriting, of which one fails.
const READS: u64 = 6;
/// Blocking operations behind the renaming of the rewritten segment after which the process dies, and one that is less.
const DEATH: u64 = 4;
/// What full segments take beside twice what is live in them: what each has around it, and the last of them, which no checkpoint covers.
const BESIDE_BYTES: u64 = SEGMENT_BYTES * 3 / 2;

/// What segments are rewritten beside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    Death,
    FailedRead,
    StuckFile,
    KeptRecord,
}

impl World {
    /// One of these, at random.
    pub(super) fn harm_rewriting(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        let harm = match self.reclaims.below(4) {
            0 => Harm::Death,
            1 => Harm::FailedRead,
            _ => Harm::StuckFile,
        };
        self.rewrite_beside(harm, coverage)
    }

    /// The archive takes nothing meanwhile.
    pub(super) fn rewrite_beside(&mut self, harm: Harm, coverage: &mut Coverage) -> Result<(), String> {
        // Nothing dies meanwhile, and the archive takes nothing.
        self.disk.put_out_fuses();
        let stuck = self.disk.stuck();
        self.disk.unstick();
        self.disk.set_faults(Faults::default());
        if self.disk.is_dead() || self.segment_bytes != SEGMENT_BYTES {
            return Ok(());
        }
        self.archive_rests = u64::MAX;
        let outcome = match harm {
            Harm::Death => self.let_go(coverage).and_then(|()| self.die_within_rewriting(coverage)),
            Harm::FailedRead => self.let_go_of_most(coverage).and_then(|()| self.reclaim_after_failure(coverage)),
            Harm::StuckFile => self.reclaim_beside_stuck(coverage),
            Harm::KeptRecord => self.reclaim_behind_kept(coverage),
        };
        self.disk.stick_again(stuck);
        self.archive_rests = 0;
        self.disk.fail_within_rewriting(None);
        outcome
    }

    /// Fills some segments, and lets go of all but the records of one log.
    fn let_go(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.fill_some(coverage)?;
        self.drain(coverage)?;
        let (kept, _) = self.choose_kept();
        self.let_go_of_all_but(&[kept]);
        Ok(())
    }

    /// Likewise; now and then there is something of more of them in each segment.
    fn let_go_of_most(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.fill_some(coverage)?;
        self.settle_beside(coverage)?;
        let (kept, plain) = self.choose_kept();
        let beside = plain.into_iter().take(self.absences.below(KEPT_BESIDE) as usize);
        self.let_go_of_all_but(&beside.chain([kept]).collect::<Vec<_>>());
        Ok(())
    }

    fn fill_some(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        for _ in 0..APPENDS_MAX {
            if self.sealed().1 >= SEALED {
                break;
            }
            self.append(coverage);
            self.step(coverage)?;
            self.keep(coverage)?;
        }
        Ok(())
    }

    /// One of the logs that hold all they are given, and all of these.
    pub(super) fn choose_kept(&mut self) -> (LogId, Vec<LogId>) {
        let is_plain = |id: &LogId| {
            durability(*id) == Durability::Fsync
                && !is_compacted(*id)
                && retention(*id) == journal::Retention::default()
        };
        let plain: Vec<LogId> = self.ids().into_iter().filter(is_plain).collect();
        (plain[self.reclaims.below(plain.len() as u64) as usize], plain)
    }

    /// What was submitted is answered, though the archive takes nothing.
    fn settle_beside(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        for _ in 0..SETTLING_MAX {
            if self.waiting.is_empty() || self.disk.is_dead() {
                break;
            }
            self.rest(1, coverage)?;
        }
        Ok(())
    }

    /// Lets go of all that is in a log.
    pub(super) fn trim_all(&mut self, id: LogId) {
        let log = self.log(id);
        let to = log.high_watermark();
        let model = self.logs.entry(id).or_default();
        model.start_possible = model.start_possible.max(to.0);
        self.submit(id.0, AppendItem::Trim { log, to }, Waiting::Trim { log: id, to });
    }

    pub(super) fn let_go_of_all_but(&mut self, kept: &[LogId]) {
        let others: Vec<LogId> = self.ids().into_iter().filter(|id| !kept.contains(id)).collect();
        others.into_iter().for_each(|id| self.trim_all(id));
    }

    /// Of one log all is done but the first batch and the last ones: what is live is what the model says, whatever lies between.
    fn reclaim_behind_kept(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        let (id, begun) = (LogId(done::LOGS[0]), self.next_id);
        let log = self.log(id);
        self.fill_some(coverage)?;
        self.settle_beside(coverage)?;
        self.read_all(id, coverage)?;
        if self.disk.is_dead() || self.next_id == begun {
            return Ok(());
        }
        self.done.finish_all_but_first(&log, self.logs.get(&id).map(|model| &model.visible));
        self.running.iter().for_each(|running| running.journal.note_released());
        self.let_go_of_all_but(&[id]);
        // A journal that was not told what is done learns it.
        self.done.tell_again(&log);
        self.rest(2 * TURNS, coverage)?;
        if self.disk.is_dead() {
            return Ok(());
        }
        // What belongs to transactions that are open, and state, is live too.
        let live: u64 = self.logs.get(&id).map_or(0, |model| {
            model
                .visible
                .iter()
                .filter(|(base, (_, records))| !self.done.has_all(id, **base..**base + records))
                .map(|(base, _)| model.sizes.get(base).copied().unwrap_or(0))
                .sum()
        });
        let (bytes, count) = self.sealed();
        if bytes > 2 * live + BESIDE_BYTES + self.archived() {
            let usage = self
                .running
                .as_ref()
                .map(|running| (running.journal.segment_usage(), running.journal.held_up(), running.journal.status()));
            return Err(format!(
                "{count} full segments take {bytes} bytes, and but for {live} all in them is done or gone; the journal says {usage:?}: {}",
                self.disk.described()
            ));
        }
        coverage.add("space given back behind a record that is kept", 1);
        Ok(())
    }

    /// The process dies soon after a rewritten segment has its name; a read or a change of names fails in the start that follows, as a rule. Then the keeper has time.
    fn die_within_rewriting(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        // It may be one of those that are replaced, and which the start cannot remove.
        let beside = self.reclaims.one_in(2) && self.disk.stick_unremovable();
        self.disk.light_fuse_at_rename(REWRITING, self.reclaims.below(DEATH));
        for _ in 0..TURNS {
            self.drain(coverage)?;
            if self.disk.is_dead() {
                coverage.add("deaths within a rewriting", 1);
                let power = self.reclaims.one_in(4);
                self.crash(power, coverage)?;
                let replaced = self.disk.replaced_that_stays();
                self.rest(TURNS, coverage)?;
                return if beside { self.die_again(replaced, coverage) } else { Ok(()) };
            }
            self.clock.0.fetch_add(SECOND_MS, Ordering::Relaxed);
        }
        self.disk.put_out_fuses();
        Ok(())
    }

    /// What has replaced others is let go of in its turn while the file of one of those stays. The next start must not take that one for a segment.
    fn die_again(&mut self, replaced: Option<u64>, coverage: &mut Coverage) -> Result<(), String> {
        self.let_go(coverage)?;
        self.rest(TURNS, coverage)?;
        coverage.add("deaths beside a segment that stays", 1);
        if replaced.is_some() {
            coverage.add("… which another one has replaced", 1);
            if self.disk.replaced_that_stays() != replaced {
                return Err(format!("nothing says any more that {replaced:?} was replaced: {}", self.disk.described()));
            }
        }
        let power = self.reclaims.one_in(4);
        self.crash(power, coverage)?;
        self.rest(TURNS, coverage)
    }

    /// Looks whether the space comes back.
    fn reclaim_after_failure(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.disk.fail_within_rewriting(Some(self.reclaims.below(READS)));
        let failed = self.disk.counters().read_errors;
        for turn in 0..2 * TURNS {
            self.drain(coverage)?;
            self.clock.0.fetch_add(SECOND_MS, Ordering::Relaxed);
            if turn == TURNS && self.disk.counters().read_errors == failed {
                return Ok(());
            }
        }
        if self.is_loose(self.archived()) {
            let (bytes, count) = self.sealed();
            let live = self.running.as_ref().map_or(0, |running| running.journal.segment_usage().1);
            return Err(format!(
                "{count} full segments take {bytes} bytes, {live} are live in them, and a read had failed once when they were rewritten"
            ));
        }
        coverage.add("rewritings in spite of a failed read", 1);
        Ok(())
    }

    /// One file can be neither removed, renamed nor replaced: writes go on, and the space of all others comes back.
    fn reclaim_beside_stuck(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        let kind = KINDS[self.reclaims.below(KINDS.len() as u64) as usize];
        let before = self.disk.counters().stuck;
        let mut is_stuck = kind != Kind::Segment && self.disk.stick_one(kind);
        self.let_go(coverage)?;
        // One that has something to be let go of.
        is_stuck |= kind == Kind::Segment && self.disk.stick_one(kind);
        self.rest(2 * TURNS, coverage)?;
        if !is_stuck || self.disk.is_dead() || self.disk.counters().stuck == before {
            return Ok(());
        }
        let running = self.running.as_ref().ok_or("a journal is open between operations")?;
        if let JournalStatus::Hindered { reason } | JournalStatus::Stopped { reason } = running.journal.status() {
            return Err(format!("no writes beside a stuck file ({kind:?}): {reason}"));
        }
        if let Some(why) = running.journal.held_up() {
            return Err(format!("space does not come back beside a stuck file ({kind:?}): {why}"));
        }
        let own = if kind == Kind::Segment { SEGMENT_BYTES } else { 0 };
        if self.is_loose(own) {
            // Segments that the archive has begun to take are left to it.
            self.archive_rests = 0;
            self.rest(TURNS, coverage)?;
        }
        let running = self.running.as_ref().ok_or("a journal is open between operations")?;
        let ((bytes, count), live) = (self.sealed(), running.journal.segment_usage().1);
        if self.is_loose(own) {
            return Err(format!(
                "{count} full segments take {bytes} bytes beside a stuck file ({kind:?}), {live} are live in them: {}",
                self.disk.described()
            ));
        }
        coverage.add(
            match kind {
                Kind::Segment => "space given back beside a stuck segment",
                Kind::Spare => "space given back beside a stuck spare",
                Kind::Reserve => "space given back beside a stuck reserve",
                Kind::Checkpoint => "space given back beside a stuck checkpoint",
            },
            1,
        );
        Ok(())
    }

    /// Length of full segments that the archive has begun to take, which are left to it.
    fn archived(&self) -> u64 {
        let Some(running) = &self.running else { return 0 };
        let listed = running.journal.segments_listed();
        listed
            .iter()
            .filter(|segment| segment.sealed && running.journal.is_being_archived(segment.sequence))
            .map(|segment| segment.bytes)
            .sum()
    }

    /// Do full segments take more than they may? `beside`: what one that stays takes.
    fn is_loose(&self, beside: u64) -> bool {
        let live = self.running.as_ref().map_or(0, |running| running.journal.segment_usage().1 as u64);
        self.sealed().0 > 2 * live + BESIDE_BYTES + beside
    }

    /// The keeper has time.
    pub(super) fn rest(&mut self, turns: u64, coverage: &mut Coverage) -> Result<(), String> {
        for _ in 0..turns {
            self.drain(coverage)?;
            self.clock.0.fetch_add(SECOND_MS, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Length of full segments, and how many there are.
    fn sealed(&self) -> (u64, usize) {
        let listed = self.running.as_ref().map_or_else(Vec::new, |running| running.journal.segments_listed());
        let sealed: Vec<u64> = listed.iter().filter(|segment| segment.sealed).map(|segment| segment.bytes).collect();
        (sealed.iter().sum(), sealed.len())
    }
}
