//! Files that are not there, or of which nothing is left: what was in them, as far as others say.

use std::ops::Range;

use hashbrown::HashMap;
use types::{LogId, LogIndex, Offset};

use super::{Damage, Hole, Opened, Place, SegmentSurvey, Survey, Surveyor};
use crate::checkpoint::{self, Checkpoint, CheckpointError};
use crate::recovery::scan::Chain;
use crate::recovery::{is_rewritten, short};
use crate::repair::{PREFIX_MOVING, bound_by_others, lost_run};
use crate::run::Run;
use crate::segments::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_name, sequence_of};

/// In place of the checksums of headers of which nothing is known.
const CRC_OF_LOST: u32 = 0x4c4f_5354;

impl Surveyor<'_> {
    /// The newest checkpoint, whatever its name is; what is wrong with the others. `None`: none is there and whole.
    pub(super) fn checkpoint(
        &mut self,
        names: &[String],
        owner: Option<uuid::Uuid>,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let (mut whole, mut damaged) = (Vec::new(), Vec::new());
        for name in checkpoint::NAMES.into_iter().filter(|one| names.iter().any(|there| there == one)) {
            match self.read_checkpoint(name) {
                Ok(checkpoint) => whole.push((name, checkpoint)),
                Err(error @ CheckpointError::NewerVersion { .. }) if name == checkpoint::NAME => return Err(error),
                Err(error) => damaged.push((name, error)),
            }
        }
        let has_first = whole.first().is_some_and(|(name, _)| *name == checkpoint::NAME);
        let third = whole.iter().find(|(name, _)| *name == checkpoint::NAME_THIRD).map(|(_, third)| third.age());
        let Some((used, best)) = Checkpoint::best(whole, owner) else { return self.nothing_whole(names, damaged) };
        // Where the third is as new as any it stands for the first, which could not be replaced, or made.
        let is_stood_for = third == Some(best.age());
        if !has_first && !is_stood_for && damaged.first().is_none_or(|(name, _)| *name != checkpoint::NAME) {
            self.damaged_checkpoint(checkpoint::NAME, "it is missing".to_owned(), Some(used));
        } else if has_first && !is_stood_for && used != checkpoint::NAME {
            self.damaged_checkpoint(
                checkpoint::NAME,
                format!("it is older than {used}, or another journal's"),
                Some(used),
            );
        }
        for (name, error) in damaged {
            self.damaged_checkpoint(name, error.to_string(), Some(used));
        }
        Ok(Some(best))
    }

    /// No checkpoint is there and whole.
    fn nothing_whole(
        &mut self,
        names: &[String],
        damaged: Vec<(&'static str, CheckpointError)>,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let has_first = damaged.first().is_some_and(|(name, _)| *name == checkpoint::NAME);
        if !has_first
            && let Some((_, error)) =
                damaged.iter().find(|(_, error)| matches!(error, CheckpointError::NewerVersion { .. }))
        {
            return Err(error.clone());
        }
        if damaged.is_empty() {
            // A segment that cannot be read is reported by itself.
            if names.iter().any(|name| sequence_of(name).is_some() && is_rewritten(self.storage, name).unwrap_or(false))
            {
                self.no_checkpoint(checkpoint::BOTH_MISSING);
            }
            return Ok(None);
        }
        let mut parts = Vec::new();
        for name in [checkpoint::NAME, checkpoint::NAME_COPY, checkpoint::NAME_THIRD] {
            match damaged.iter().find(|(damaged, _)| *damaged == name) {
                Some((_, error)) => parts.push(format!("{name} is damaged ({error})")),
                None if name != checkpoint::NAME_THIRD => parts.push(format!("{name} is missing")),
                None => {}
            }
        }
        self.no_checkpoint(&parts.join(", and "));
        Ok(None)
    }

    fn read_checkpoint(&mut self, name: &str) -> Result<Checkpoint, CheckpointError> {
        let outcome = self.storage.open(name).and_then(|file| {
            let mut bytes = vec![0; file.size()? as usize];
            file.read_at(0, &mut bytes)?;
            Ok(bytes)
        });
        let bytes = outcome.map_err(|_| CheckpointError::Corrupt("it cannot be read"))?;
        self.read(bytes.len() as u64);
        checkpoint::decode(&bytes)
    }

    /// What an older segment means only a checkpoint says: whether a file is whole and what is lost with it, too.
    fn no_checkpoint(&mut self, what: &str) {
        self.damaged_checkpoint(
            checkpoint::NAME,
            format!("{what}; without a checkpoint nothing can be said of the segments"),
            None,
        );
        self.found.without_checkpoint = true;
    }

    fn damaged_checkpoint(&mut self, name: &'static str, what: String, whole: Option<&'static str>) {
        let place = whole.map_or(Place::Elsewhere, |whole| Place::Checkpoint { damaged: name, whole });
        self.found.damages.push(Damage {
            id: format!("{}-{name}", self.number),
            file: name.to_owned(),
            position: 0,
            what,
            place,
        });
    }

    /// Which segments are under other names than their own: exchanged, or in the middle of a repair.
    pub(super) fn find_misnamed(&mut self, names: &[String], sequences: &mut Vec<u64>) {
        for name in names.iter().filter(|name| sequence_of(name).is_some() || name.starts_with(PREFIX_MOVING)) {
            let Some(header) = self.storage.open(name).ok().and_then(|file| SegmentHeader::read(&*file).ok()) else {
                continue;
            };
            if header.journal == self.found.journal
                && *name != segment_name(header.sequence)
                && !self.is_named_right(header.sequence)
            {
                self.misnamed.insert(header.sequence, name.clone());
            }
        }
        sequences.extend(self.misnamed.keys());
        sequences.sort_unstable();
        sequences.dedup();
    }

    fn is_named_right(&self, sequence: u64) -> bool {
        let header = self.storage.open(&segment_name(sequence)).ok().and_then(|file| SegmentHeader::read(&*file).ok());
        header.is_some_and(|header| header.journal == self.found.journal && header.sequence == sequence)
    }

    /// Nothing is lost with a wrong name.
    pub(super) fn open_misnamed(&mut self, sequence: u64) -> Option<Opened> {
        let name = self.misnamed.get(&sequence)?.clone();
        let file = self.storage.open(&name).ok()?;
        let header = SegmentHeader::read(&*file).ok()?;
        let (id, what) = (format!("{}-{sequence}-0", self.number), format!("it is under the name {name}"));
        self.found.damages.push(Damage {
            id,
            file: segment_name(sequence),
            position: 0,
            what,
            place: Place::Misnamed { sequence, name },
        });
        Some(Opened { sequence, file, header, wrong: None })
    }

    /// A file that is used again gets its new name first and its new header then. It is none of those that have a wrong name, if nobody misses
    /// what was in it: it is dead, or in another segment by now.
    pub(super) fn forget_used_again(&mut self, names: &[String]) {
        let Survey { damages, segments, logs, archived_until, .. } = &mut self.found;
        damages.retain(|damage| {
            let Place::Misnamed { sequence, name } = &damage.place else { return true };
            let is_newer =
                sequence_of(name).is_some_and(|named| named > *sequence) && !names.contains(&segment_name(*sequence));
            let found = segments.iter().position(|one| one.sequence == *sequence);
            let used_again = is_newer
                && found.map_or(self.replaced.contains(sequence), |at| {
                    let is_needed = |run: &Run| {
                        let Some(log) = logs.get(&run.log) else { return false };
                        let needed_from = log.start.max(archived_until.get(&run.log).copied().unwrap_or(Offset::ZERO));
                        needed_from < run.next
                            && !has_elsewhere(segments, at, run.log, run.base.max(needed_from)..run.next)
                    };
                    let one = &segments[at];
                    one.broken.as_ref().is_some_and(Vec::is_empty) && !one.runs.iter().any(is_needed)
                });
            if used_again {
                found.map(|at| segments.remove(at));
            }
            !used_again
        });
    }

    /// Nothing of segment `sequence` continues the journal, and `chain` is its end so far. When a later one goes on, something is to stand for what
    /// is missing. Returns that one and the end of what stands before it.
    pub(super) fn bridge(&mut self, sequences: &[u64], sequence: u64, chain: Chain) -> Option<(u64, Chain)> {
        let continues = |later: &u64| {
            let next = self.first_of(*later)?;
            let says = next.durable_index > chain.index || next.index <= self.reached;
            (next.index > chain.index.next() && next.term >= chain.term && says).then_some((*later, next))
        };
        let (later, next) = sequences.iter().filter(|later| **later > sequence).find_map(continues)?;
        let (missing, last) = (later - sequence, LogIndex(next.index.0 - 1));
        if last.0 - chain.index.0 < missing {
            return None;
        }
        let (mut first, mut previous_crc) = (chain.index.next(), chain.crc);
        for one in sequence..later {
            let is_last = one + 1 == later;
            let (until, crc) = if is_last { (last, next.previous_crc) } else { (first, CRC_OF_LOST) };
            let start = SEGMENT_HEADER_BYTES as u64;
            let hole = Hole {
                sequence: one,
                bytes: start..start,
                first,
                last: until,
                term: chain.term,
                time: next.time,
                previous_crc,
                crc,
                ..Hole::default()
            };
            let hole = Hole { at_end: true, begins: true, ..hole };
            let what = if sequences.contains(&one) {
                "nothing of the journal is in it, and segment"
            } else {
                "it is missing, and segment"
            };
            let (id, file) = (format!("{}-{one}-0", self.number), segment_name(one));
            // It may have been met before, for another reason.
            self.found.damages.retain(|damage| damage.id != id);
            self.found.damages.push(Damage {
                id,
                file,
                position: 0,
                what: format!("{what} {later} goes on behind it"),
                place: Place::Hole(hole),
            });
            (first, previous_crc) = (until.next(), crc);
        }
        Some((later, Chain { index: last, crc: next.previous_crc, term: next.term, left: false }))
    }

    /// The journal had come further than it comes.
    pub(super) fn short(&mut self) {
        let ends = self.found.last;
        if ends >= self.reached {
            return;
        }
        let (sequence, position) = self.end;
        let id = format!("{}-{sequence}-{position}", self.number);
        // Where something stands for a file that is gone, that is said already.
        let id =
            if self.found.damages.iter().any(|damage| damage.id == id) { format!("{}-end", self.number) } else { id };
        let (file, what) = (segment_name(sequence), short(ends, self.reached));
        self.found.damages.push(Damage { id, file, position, what, place: Place::End(sequence) });
    }
}

impl Survey {
    /// Segments that the checkpoint counts on and that are gone are damage where logs that are in use miss records with them. Called once.
    pub fn miss(&mut self, is_live: &dyn Fn(LogId) -> bool) {
        let mut gone = std::mem::take(&mut self.gone);
        // What is lost was in the one that does not say what it had.
        if self.segments.iter().any(|segment| segment.broken.is_none()) {
            return;
        }
        let mut left: HashMap<LogId, Vec<Range<Offset>>> = HashMap::new();
        for (log, _) in &gone {
            if let Some(found) = self.logs.get(log).filter(|_| is_live(*log)) {
                left.insert(*log, found.lost.clone());
            }
        }
        // What the archive has lost was in no segment.
        for (log, until) in &self.archived_until {
            left.get_mut(log).map(|ranges| take(ranges, &(Offset::ZERO..*until)));
        }
        for run in self.segments.iter().flat_map(|segment| segment.broken.iter().flatten()) {
            if let Some(ranges) = left.get_mut(&run.log) {
                take(ranges, &(run.base..run.next));
            }
        }
        gone.sort_unstable_by_key(|(log, sequence)| (*sequence, *log));
        for same in gone.chunk_by(|one, other| one.1 == other.1) {
            let sequence = same[0].1;
            let mut between: HashMap<LogId, Range<Offset>> =
                same.iter().map(|(log, _)| (*log, Offset::ZERO..Offset(u64::MAX))).collect();
            bound_by_others(self, sequence, &mut between);
            let mut broken = Vec::new();
            for (log, _) in same {
                let Some(ranges) = left.get_mut(log) else { continue };
                let lost = take(ranges, &between[log]);
                broken.extend(lost.iter().map(|range| lost_run(*log, range)));
            }
            if broken.is_empty() {
                continue;
            }
            let (id, file, what) = (
                format!("{}-{sequence}-0", self.number),
                segment_name(sequence),
                "it is missing, and records with it".to_owned(),
            );
            self.damages.push(Damage { id, file, position: 0, what, place: Place::Sealed(sequence) });
            self.segments.push(SegmentSurvey {
                sequence,
                file: None,
                runs: Vec::new(),
                broken: Some(broken),
                last: None,
                replaces: vec![sequence],
            });
        }
        self.miss_objects(is_live);
    }

    /// What is lost of logs that are in use, and was in no segment that is damaged or gone: it was in objects of the archive, which only what is lost of the journal's end named. Damage of
    /// the segment that goes on behind it, where something can be put in its place.
    fn miss_objects(&mut self, is_live: &dyn Fn(LogId) -> bool) {
        let mut unnamed: Vec<(LogId, Range<Offset>)> = Vec::new();
        for (id, log) in self.logs.iter().filter(|(id, log)| !log.lost.is_empty() && is_live(**id)) {
            let mut left = log.lost.clone();
            take(&mut left, &(Offset::ZERO..self.archived_until.get(id).copied().unwrap_or_default()));
            let broken = self.segments.iter().flat_map(|segment| segment.broken.iter().flatten());
            broken.filter(|run| run.log == *id).for_each(|run| drop(take(&mut left, &(run.base..run.next))));
            for damage in &self.damages {
                let Place::Hole(hole) = &damage.place else { continue };
                hole.gaps.iter().filter(|(log, _)| log == id).for_each(|(_, gap)| drop(take(&mut left, gap)));
            }
            unnamed.extend(left.into_iter().map(|range| (*id, range)));
        }
        for (log, range) in unnamed {
            let behind = |segment: &SegmentSurvey| {
                let runs = segment.runs.iter().filter(|run| run.log == log && run.base >= range.end);
                runs.min_by_key(|run| run.base).copied()
            };
            let sealed = self.segments.iter_mut().filter(|segment| self.sealed.contains(&segment.sequence));
            // Where what follows is behind the checkpoint the last one before it is the place.
            let Some(segment) = sealed.min_by_key(|segment| {
                let follows = behind(segment).map(|run| run.base);
                (follows.is_none(), follows, std::cmp::Reverse(segment.sequence))
            }) else {
                continue;
            };
            let follows = behind(segment);
            let run = Run { position: follows.map_or(0, |run| run.position), ..lost_run(log, &range) };
            let Some(broken) = segment.broken.as_mut() else { continue };
            broken.push(run);
            let (sequence, number) = (segment.sequence, self.number);
            let id = format!("{number}-{sequence}-unnamed");
            let what = format!(
                "{log} offsets {}..{} were in the archive, and what named their objects is lost",
                range.start, range.end
            );
            match self.damages.iter_mut().find(|damage| damage.id == id) {
                Some(damage) => damage.what = format!("{}; {what}", damage.what),
                None => self.damages.push(Damage {
                    id,
                    file: segment_name(sequence),
                    position: 0,
                    what,
                    place: Place::Sealed(sequence),
                }),
            }
        }
    }
}

/// Are all these offsets of a log whole in other segments than the one at `at`?
fn has_elsewhere(segments: &[SegmentSurvey], at: usize, log: LogId, range: Range<Offset>) -> bool {
    let mut left = vec![range];
    let others = segments.iter().enumerate().filter(|(other, _)| *other != at);
    for run in others.flat_map(|(_, other)| &other.runs).filter(|run| run.log == log) {
        take(&mut left, &(run.base..run.next));
    }
    left.is_empty()
}

/// Takes what lies in `part` out of ranges.
fn take(ranges: &mut Vec<Range<Offset>>, part: &Range<Offset>) -> Vec<Range<Offset>> {
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    for range in ranges.drain(..) {
        let inside = range.start.max(part.start)..range.end.min(part.end);
        if inside.start >= inside.end {
            left.push(range);
            continue;
        }
        left.extend(
            [range.start..inside.start, inside.end..range.end].into_iter().filter(|rest| rest.start < rest.end),
        );
        taken.push(inside);
    }
    *ranges = left;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::LogSurvey;

    fn segment(sequence: u64, runs: &[(u64, Range<u64>)]) -> SegmentSurvey {
        let run = |(log, range): &(u64, Range<u64>)| lost_run(LogId(*log), &(Offset(range.start)..Offset(range.end)));
        SegmentSurvey {
            sequence,
            file: None,
            runs: runs.iter().map(run).collect(),
            broken: Some(Vec::new()),
            last: None,
            replaces: vec![sequence],
        }
    }

    fn log(lost: Range<u64>) -> LogSurvey {
        let lost = vec![Offset(lost.start)..Offset(lost.end)];
        LogSurvey { end: Offset(50), lost, ..LogSurvey::default() }
    }

    /// Of which segment what was in unnamed objects counts as a part, so that readers pass over it after a repair.
    #[test]
    fn what_was_in_objects_that_nothing_names_any_more_is_damage_of_what_follows() {
        let segments = vec![
            segment(3, &[(1, 0..10), (2, 0..5)]),
            segment(4, &[(2, 5..10), (1, 30..40)]),
            segment(5, &[(1, 40..50)]),
        ];
        let mut found = Survey { segments, sealed: [3, 4].into(), ..Survey::default() };
        found.logs.insert(LogId(1), log(10..30));
        // What follows is in the open segment; nothing does; nobody wants it.
        found.logs.insert(LogId(2), log(10..12));
        found.logs.insert(LogId(9), log(0..7));
        found.miss(&|log| log != LogId(9));
        let broken = |at: usize| {
            let runs = found.segments[at].broken.iter().flatten();
            runs.map(|run| (run.log.0, run.base.0..run.next.0)).collect::<Vec<_>>()
        };
        assert_eq!([broken(0), broken(1), broken(2)], [vec![], vec![(1, 10..30), (2, 10..12)], vec![]]);
        let [damage] = &found.damages[..] else { panic!("{:?}", found.damages) };
        assert_eq!((damage.id.as_str(), &damage.place, damage.hides_more()), ("0-4-unnamed", &Place::Sealed(4), false));
        assert!(damage.what.contains("log-1 offsets 10..30") && damage.what.contains("log-2 offsets 10..12"));
    }

    #[test]
    fn what_the_archive_or_a_damaged_segment_has_lost_is_no_damage_of_another() {
        let mut damaged = segment(3, &[]);
        damaged.broken = Some(vec![lost_run(LogId(1), &(Offset(10)..Offset(30)))]);
        let segments = vec![damaged, segment(4, &[(1, 30..50), (2, 12..50)])];
        let mut found = Survey { segments, sealed: [3, 4].into(), ..Survey::default() };
        found.logs.insert(LogId(1), log(10..30));
        found.logs.insert(LogId(2), log(4..12));
        found.archived_until.insert(LogId(2), Offset(12));
        found.miss(&|_| true);
        assert!(found.damages.is_empty(), "{:?}", found.damages);
    }
}
