//! Writing checkpoints. Each is written twice: what it says of old segments is nowhere else. It counts, so that segments may be freed which only older ones
//! name, when two files of it are on the disk.
//!
//! One file that cannot be replaced (immutable, or on bad sectors of the folder) holds up nothing: the third name stands for it, until it can be replaced.
//! Then the two usual names have the newest one again, and the third is removed. What stays is an older checkpoint, whose segments may be gone. A start
//! takes the newest, so that any other one of the files may be lost. Where two names are stuck only one newest file would be left, which may be lost,
//! and with it the journal: nothing counts then, no space comes back, and the node says so ([`Journal::held_up`](crate::Journal::held_up)).

use std::io;

use hashbrown::HashSet;
use types::{LogId, LogIndex};

use super::{Keeper, room};
use crate::archive;
use crate::checkpoint::{self, ReplayFrom};
use crate::disk::{File, naming};
use crate::segment_set::SegmentSet;

/// In place of the name of a file.
const FOLDER: &str = "the journal's folder";
/// More checkpoints than these are not written between two starts without one that counts.
const NUMBERS_UNREAD: u16 = 0x1000;

/// What a start has found of checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FoundCheckpoint {
    /// Of the one that is used.
    pub number: u16,
    /// Another one could not be read. It may have been written behind this one, and be read later.
    pub others_unread: bool,
    /// The third name is taken.
    pub third: bool,
}

/// Which of two checkpoints with the same end is newer. Written or not, counted or not: no number comes twice with the same end.
pub(super) struct Numbers {
    /// Of the next one with that end …
    next: u16,
    /// … which is this.
    end: LogIndex,
    /// Those with other ends begin here.
    first: u16,
    /// One that could not be read covers nothing from this segment on.
    unread: u64,
}

impl Numbers {
    /// `next_sequence`: of the first segment that is not there.
    pub fn new(found: FoundCheckpoint, replay: ReplayFrom, next_sequence: u64) -> Self {
        let (first, unread) =
            if found.others_unread { (NUMBERS_UNREAD, next_sequence.saturating_sub(1)) } else { (0, 0) };
        Self { next: found.number.saturating_add(first.max(1)), end: replay.index, first, unread }
    }

    fn next(&mut self, replay: ReplayFrom) -> u16 {
        if self.end != replay.index {
            (self.end, self.next) = (replay.index, self.first);
        }
        let number = self.next;
        self.next = number.saturating_add(1);
        number
    }

    /// Is the one that was numbered last known as the newest, whatever else is in the folder?
    fn tell_apart(&self, replay: ReplayFrom) -> bool {
        self.next < u16::MAX && replay.segment >= self.unread
    }
}

impl Keeper {
    /// A checkpoint after each segment, but rarer when it has grown large: with its copy it may not cost more than a tenth of what is
    /// written.
    pub(super) fn write_checkpoint_if_due(&mut self) {
        // Segments are freed only behind a checkpoint: within a window it may not be long in coming.
        let latest = self.journal.marks().map_or(2 << 30, |marks| (marks.full - marks.calm) / 2);
        // Likewise on a full disk, where two small segments take turns.
        let latest = if self.journal.is_disk_full() { 0 } else { latest };
        if self.bytes_since_checkpoint < (self.checkpoint_bytes * 20).min(latest) || self.journal.is_unchecked() {
            return;
        }
        let outcome = self.write_checkpoint();
        self.report("write a checkpoint", outcome.map_err(Into::into));
    }

    /// Writes one that counts.
    ///
    /// # Errors
    /// Those of the files, by their names; what is on the disk is whole.
    pub(super) fn write_checkpoint(&mut self) -> io::Result<()> {
        let outcome = self.write_twice();
        let failed = outcome.as_ref().err().filter(|error| error.kind() != io::ErrorKind::StorageFull);
        self.checkpoint_failed = failed.map(|error| format!("a checkpoint cannot be written: {error}"));
        outcome
    }

    fn write_twice(&mut self) -> io::Result<()> {
        let bytes = self.encode_checkpoint();
        // What is on the disk of it takes space, whether it counts or not.
        self.journal.window().set_others(room::other_bytes(&self.journal, bytes.len() as u64));
        write_all(&*self.create_checkpoint(bytes.len() as u64)?, &bytes)?;
        let mut stuck = None;
        self.put_checkpoint(checkpoint::NAME, &bytes, &mut stuck)?;
        // What is kept for the next checkpoint is not for the copy: on a full disk there is none.
        self.checkpoint_bytes = bytes.len() as u64;
        // What is not kept now is kept with the next checkpoint. The copy stands for this one: it says the same, or is not there.
        let room = self.keep_room();
        #[cfg(feature = "planted")]
        let room = if self.journal.planted() == Some(crate::Planted::NeedReserves) { Ok(room?) } else { room };
        let copied = match &room {
            Ok(false) => Err(io::ErrorKind::StorageFull.into()),
            Ok(true) | Err(_) => {
                self.create_copy(&bytes).and_then(|()| self.put_checkpoint(checkpoint::NAME_COPY, &bytes, &mut stuck))
            }
        };
        #[cfg(feature = "planted")]
        let copied =
            if self.journal.planted() == Some(crate::Planted::CountAlone) { copied.or(Ok(())) } else { copied };
        if let Err(error) = room {
            self.report_reserves(error);
        }
        match copied {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                drop(self.storage.remove(checkpoint::NAME_COPY));
                let _ = self.keep_room();
                self.copy_owed = true;
            }
            outcome => {
                outcome?;
                self.copy_owed = false;
            }
        }
        self.newest = if stuck == Some(checkpoint::NAME) { checkpoint::NAME_THIRD } else { checkpoint::NAME };
        if stuck.is_none() && self.third {
            self.remove_third();
        }
        self.checkpointed = self.replay.segment;
        self.bytes_since_checkpoint = 0;
        self.rewritten_since_checkpoint = false;
        self.journal.metrics().checkpoints.inc();
        Ok(())
    }

    fn encode_checkpoint(&mut self) -> Vec<u8> {
        let journal = &self.journal;
        #[cfg(feature = "planted")]
        if journal.planted() == Some(crate::Planted::OmitDropped) {
            self.logs.retain(|id, _| journal.log(*id).is_some());
        }
        for log in self.logs.keys().filter_map(|id| journal.log(*id)) {
            let mut inner = log.inner();
            let start = log.start();
            let stale = inner.terms.windows(2).take_while(|pair| pair[1].1 <= start).count();
            inner.terms.drain(..stale);
        }
        // A log whose end lies behind the checkpoint is part of it: replay begins where it was there. Nobody needs its segments any more.
        let segments =
            |id: &LogId| journal.log(*id).map_or_else(SegmentSet::default, |log| log.inner().segments.clone());
        let records: Vec<(&[u8], _)> = self.logs.iter().map(|(id, record)| (record.as_slice(), segments(id))).collect();
        if !self.ended.is_empty() {
            let archived: HashSet<LogId> = self.state.iter().filter_map(|(key, _)| archive::log_of(key)).collect();
            self.ended.retain(|id| archived.contains(id));
        }
        let number = self.numbers.next(self.replay);
        checkpoint::encode(journal.uuid(), (self.replay, number), records.into_iter(), &self.state, &self.ended)
    }

    fn create_copy(&self, bytes: &[u8]) -> io::Result<()> {
        let file =
            self.storage.create(checkpoint::NAME_NEW, bytes.len() as u64).map_err(naming(checkpoint::NAME_NEW))?;
        write_all(&*file, bytes)
    }

    /// Gives a checkpoint that is written its name, or the third one, if the file of that name cannot be replaced and no other one is `stuck`.
    fn put_checkpoint(&mut self, name: &'static str, bytes: &[u8], stuck: &mut Option<&'static str>) -> io::Result<()> {
        let is_put = self.keep_replaced(name, bytes)?;
        if !is_put && let Err(error) = self.storage.rename(checkpoint::NAME_NEW, name) {
            let error = naming(name)(error);
            #[cfg(feature = "planted")]
            if self.journal.planted() == Some(crate::Planted::ForgoThird) {
                return Err(error);
            }
            // Beyond the last number nothing tells which is newer.
            if stuck.is_some() || !self.numbers.tell_apart(self.replay) {
                return Err(error);
            }
            let is_put = self.keep_replaced(checkpoint::NAME_THIRD, bytes)?;
            if !is_put && self.storage.rename(checkpoint::NAME_NEW, checkpoint::NAME_THIRD).is_err() {
                return Err(error);
            }
            self.third = true;
            if self.failures.tell(name, self.journal.now_ms()) {
                let (journal, instead) = (self.journal.number(), checkpoint::NAME_THIRD);
                tracing::warn!(journal, file = name, instead, %error, "a checkpoint cannot be replaced, another file has the newest one until it can");
            }
            *stuck = Some(name);
        }
        self.storage.sync_folder().map_err(naming(FOLDER))
    }

    /// Where no space is kept for the next checkpoint, the one that is replaced becomes that: what is given back there may be taken by others, or by a quota
    /// that is exceeded. True: it is replaced. An error: whether it is cannot be known.
    fn keep_replaced(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        if self.storage.list()?.iter().any(|there| there == room::NAME_RESERVE) {
            return Ok(false);
        }
        match self.storage.exchange(checkpoint::NAME_NEW, name) {
            Ok(()) => {
                // Under that name the next attempt finds it as well.
                if !room::make_reserve(&*self.storage) {
                    let _ = self.storage.remove(checkpoint::NAME_NEW);
                }
                Ok(true)
            }
            // It cannot be done here, or there is nothing to be replaced; whatever is said: no two checkpoints are alike, and the new one is where it was.
            Err(_) if self.reads(checkpoint::NAME_NEW, bytes) => Ok(false),
            Err(error) => Err(naming(name)(error)),
        }
    }

    /// Are these the bytes of a file?
    fn reads(&self, name: &str, bytes: &[u8]) -> bool {
        let read = |file: std::sync::Arc<dyn File>| {
            let mut found = vec![0; bytes.len()];
            Ok(file.size()? == bytes.len() as u64 && file.read_at(0, &mut found)? == bytes.len() && found == bytes)
        };
        self.storage.open_to_read(name).and_then(read).unwrap_or(false)
    }

    /// Both usual names have the newest checkpoint: what stood for one of them goes. Where it stays it is older than these.
    fn remove_third(&mut self) {
        match self.storage.remove(checkpoint::NAME_THIRD) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.report("remove a checkpoint", Err(naming(checkpoint::NAME_THIRD)(error).into()))
            }
            _ => {
                self.third = false;
                tracing::info!(journal = self.journal.number(), "a checkpoint that could not be replaced has been");
            }
        }
    }
}

/// Writes and flushes a checkpoint.
fn write_all(file: &dyn File, bytes: &[u8]) -> io::Result<()> {
    for (number, piece) in bytes.chunks(1 << 20).enumerate() {
        file.write_at((number << 20) as u64, piece).map_err(naming(checkpoint::NAME_NEW))?;
    }
    file.sync().map_err(naming(checkpoint::NAME_NEW))
}

#[cfg(test)]
mod tests {
    use types::Term;

    use super::*;

    fn replay(segment: u64, index: u64) -> ReplayFrom {
        ReplayFrom { segment, index: LogIndex(index), term: Term(1), crc: 0 }
    }

    #[test]
    fn numbers_rise_as_long_as_the_end_is_the_same() {
        let mut numbers = Numbers::new(FoundCheckpoint { number: 7, ..FoundCheckpoint::default() }, replay(3, 50), 5);
        assert_eq!([50, 50, 60, 60, 60].map(|index| numbers.next(replay(3, index))), [8, 9, 0, 1, 2]);
        assert!(numbers.tell_apart(replay(3, 60)));
        numbers.next = u16::MAX - 1;
        assert_eq!([60, 60].map(|index| numbers.next(replay(3, index))), [u16::MAX - 1, u16::MAX]);
        assert!(!numbers.tell_apart(replay(3, 60)));
    }

    #[test]
    fn one_that_could_not_be_read_is_passed_before_it_is_taken_for_older() {
        let mut numbers =
            Numbers::new(FoundCheckpoint { number: 7, others_unread: true, third: false }, replay(3, 50), 6);
        assert_eq!(numbers.next(replay(3, 50)), 7 + NUMBERS_UNREAD);
        assert!(!numbers.tell_apart(replay(3, 50)), "it may cover segments 3 and 4");
        assert_eq!(numbers.next(replay(5, 80)), NUMBERS_UNREAD);
        assert!(numbers.tell_apart(replay(5, 80)));
    }
}
