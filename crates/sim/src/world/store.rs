//! A store that takes nothing of some logs, or has no space: all that can go on does, and everything does when it is over.

use types::LogId;

use super::window::PRESSING_MAX;
use super::{COMPACTED, Coverage, OBJECT_BYTES, SEGMENT_BYTES, WINDOW_SEGMENTS, World};
use crate::disk::Faults;

const WINDOW: u64 = WINDOW_SEGMENTS * SEGMENT_BYTES;
/// Logs that are refused.
const REFUSED: usize = 3;
/// Seconds in which the archiver finds out whose objects are refused, and moves the others', …
const REFUSED_TURNS: u64 = 120;
/// … or that there is space again, and moves everything.
const HEALED_TURNS: u64 = 180;
/// An archive has room for so much more, …
const ROOM: u64 = 12 * OBJECT_BYTES;
/// … of which so much is enough for a log to be compacted: an object that ends with a long batch, and a second one.
const ROOM_LEAST: u64 = 5 * OBJECT_BYTES;
/// Turns of the archiver in which it finds out that there is no more.
const FILLING_TURNS: u64 = 60;
/// Batches of one log, until there is something to be compacted.
const BATCHES: u64 = 150;
/// Seconds of one turn of the archiver each, in which it compacts a log.
const COMPACTING_TURNS: u64 = 800;
/// Seconds in which others wait for an archive that has less space than they need, …
const WAITING_TURNS: u64 = 100;
/// … and objects that are made meanwhile, at most: a few may be all that is left of something.
const MADE_MAX: u64 = 30;

impl World {
    /// The archive takes nothing of some logs: all of the others it does, and of these when it takes them again.
    pub(super) fn archive_beside_refused(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        if !self.heal() {
            return Ok(());
        }
        let (kept, mut plain) = self.choose_kept();
        plain = if self.has_short_store { plain } else { vec![kept] };
        while plain.len() > REFUSED {
            plain.swap_remove(self.reclaims.below(plain.len() as u64) as usize);
        }
        self.archive.refuse(plain.iter().map(|id| id.0).collect());
        self.press(None, coverage)?;
        self.rest(REFUSED_TURNS, coverage)?;
        self.holds_beside(&plain)?;
        if !self.has_short_store {
            self.archive.refuse(Vec::new());
            coverage.add("windows that held beside a log that is refused", u64::from(!self.disk.is_dead()));
            return Ok(());
        }
        // One of them has nothing any more that could be moved, and still is one that was refused.
        self.trim_all(plain[0]);
        self.append_to(plain[0], coverage);
        self.rest(1, coverage)?;
        self.archive.refuse(Vec::new());
        self.rest(HEALED_TURNS, coverage)?;
        self.holds_beside(&[])?;
        coverage.add("windows that held beside logs that are refused", u64::from(!self.disk.is_dead()));
        Ok(())
    }

    /// The archive is full: logs are compacted in what it has left. When it has more everything goes on.
    pub(super) fn fill_archive(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        if !self.heal() || self.has_long_objects {
            return Ok(());
        }
        let compacted: Vec<LogId> = self.ids().into_iter().filter(|id| COMPACTED.contains(&id.0)).collect();
        let id = compacted[self.reclaims.below(compacted.len() as u64) as usize];
        // With those of one log nobody else has anything to move.
        let alone = self.reclaims.one_in(2).then_some(id);
        if alone.is_some() {
            self.let_go_of_all_but(&[id]);
            self.rest(1, coverage)?;
        }
        self.archive.leave_room(Some(ROOM));
        let refused = self.archive.counters().without_room;
        self.press(alone, coverage)?;
        for _ in 0..FILLING_TURNS {
            if self.archive.counters().without_room > refused {
                break;
            }
            self.take_turns(coverage)?;
        }
        let is_full = self.archive.counters().without_room > refused;
        if is_full && alone.is_none() {
            self.wait_for_space(coverage)?;
        }
        if is_full {
            self.compact_full(id, coverage)?;
        }
        self.archive.leave_room(None);
        self.rest(HEALED_TURNS, coverage)?;
        self.holds_beside(&[])?;
        coverage.add("archives that were full", u64::from(is_full && !self.disk.is_dead()));
        Ok(())
    }

    /// More is to be moved than there is space for: what there is is not used up little by little.
    fn wait_for_space(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.press(None, coverage)?;
        let (made, room) = (self.objects_made(), self.archive.room());
        for _ in 0..WAITING_TURNS {
            self.take_turns(coverage)?;
        }
        let made = self.objects_made().saturating_sub(made);
        // What compaction gives back is used.
        if made > MADE_MAX && self.archive.room() < room {
            return Err(format!(
                "{made} objects were made in an archive that is full, which has {:?} bytes left",
                self.archive.room()
            ));
        }
        Ok(())
    }

    /// Twice as much is written as the window holds, to one log or to any, and nothing is archived meanwhile.
    fn press(&mut self, only: Option<LogId>, coverage: &mut Coverage) -> Result<(), String> {
        for _ in 0..PRESSING_MAX {
            if self.disk.used() >= 2 * WINDOW || self.disk.is_dead() {
                break;
            }
            match only {
                Some(id) => self.append_to(id, coverage),
                None => self.append(coverage),
            }
            self.step(coverage)?;
            self.keep(coverage)?;
        }
        Ok(())
    }

    fn objects_made(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.journal.metrics().archive_objects.get())
    }

    /// A log of a full archive has something to be compacted, and is.
    fn compact_full(&mut self, id: LogId, coverage: &mut Coverage) -> Result<(), String> {
        let (end, passes) = (self.log(id).high_watermark(), self.passes());
        for _ in 0..BATCHES {
            self.append_to(id, coverage);
            self.step(coverage)?;
            self.keep(coverage)?;
        }
        // Those of a producer of which one was refused are all refused.
        let has_more = self.log(id).high_watermark().since(end) >= BATCHES;
        for _ in 0..3 {
            self.take_turns(coverage)?;
        }
        let has_room = self.archive.room().is_some_and(|room| room >= ROOM_LEAST);
        if passes.is_none() || !has_more || !has_room {
            return Ok(());
        }
        for _ in 0..COMPACTING_TURNS {
            self.take_turns(coverage)?;
            if self.passes() != passes {
                coverage.add("compactions in a full archive", 1);
                return Ok(());
            }
        }
        let trouble = self.running.as_ref().map(|running| running.journal.archive_trouble());
        Err(format!("{id} is not compacted in an archive with room for {:?} bytes ({trouble:?})", self.archive.room()))
    }

    /// A second, in which the archiver has one turn, and what it does is written.
    fn take_turns(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.archive(coverage);
        for _ in 0..3 {
            self.step(coverage)?;
        }
        self.keep(coverage)?;
        self.clock.0.fetch_add(super::rewriting::SECOND_MS, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn passes(&self) -> Option<u64> {
        let running = self.running.as_ref().filter(|_| !self.disk.is_dead())?;
        Some(running.journal.metrics().compaction_passes.get())
    }

    /// Nothing fails but what is asked to. False: not now.
    fn heal(&mut self) -> bool {
        if self.disk.stuck().is_some() || self.segment_bytes != SEGMENT_BYTES {
            return false;
        }
        self.disk.set_faults(Faults::default());
        self.disk.put_out_fuses();
        self.archive_rests = 0;
        true
    }

    /// The files take no more than the window, but for what logs have that are refused.
    fn holds_beside(&self, refused: &[LogId]) -> Result<(), String> {
        let Some(running) = self.running.as_ref().filter(|_| !self.disk.is_dead()) else { return Ok(()) };
        let own = |id: &LogId| {
            let archived = running.journal.log(*id).map_or(0, |log| log.archived_until().0);
            let model = self.logs.get(id)?;
            Some(model.sizes.range(archived..).map(|(_, bytes)| bytes).sum::<u64>())
        };
        let own: u64 = refused.iter().filter_map(own).sum();
        let files = running.journal.file_bytes();
        if files > WINDOW + 2 * own {
            return Err(format!(
                "the files take {files}, more than the window of {WINDOW} beside {own} bytes of logs that are refused, {refused:?} ({:?}): {}",
                running.journal.archive_trouble(),
                self.disk.described()
            ));
        }
        Ok(())
    }
}
