//! Space that is kept back, so that a full disk does not stay full: for the next checkpoint, without which nothing is freed, and for a
//! rewriting, which has to write what is live before the dead goes.

use std::io;
use std::sync::Arc;

use super::choose::Limits;
use super::{Keeper, KeeperError};
use crate::checkpoint;
use crate::disk::{File, SECTOR, Storage, naming};
use crate::journal::Journal;
use crate::segments::{PreparedSegment, SEGMENT_HEADER_BYTES, segment_name};

/// Space for the next checkpoint on a full disk; what is in it means nothing.
pub(crate) const NAME_RESERVE: &str = "reserve";
const RESERVE_BYTES_MIN: u64 = 64 << 10;
/// Space for a rewriting on a short disk; nothing is in it. The rewriting takes the file itself.
pub(super) const NAME_ROOM: &str = "reserve-rewriting";
/// On a full disk a segment has at least this part of the usual length: what is reserved for state is not more than half of it.
const SHORT_SHARE: u64 = 2;
/// A segment for state alone has this part of it: two of them come out of what is kept for a rewriting.
const STATE_SHARE: u64 = 8;
/// This part of the usual length is left beside such a segment.
const LEFT_SHARE: u64 = 32;
/// Less than this is left for others when a rewriting takes what is free.
const LEFT_BYTES: u64 = 16 << 10;

impl Keeper {
    /// The file of the next checkpoint; on a full disk in the space that is kept for it.
    pub(super) fn create_checkpoint(&self, bytes: u64) -> io::Result<Arc<dyn File>> {
        let names = self.storage.list()?;
        let is_there = |wanted: &str| names.iter().any(|name| name == wanted);
        if is_there(checkpoint::NAME_NEW) {
            // What an attempt has left may have been the reserve, whose space a quota that is exceeded would not give again.
            if is_there(NAME_RESERVE) || !make_reserve(&*self.storage) {
                self.storage.remove(checkpoint::NAME_NEW).map_err(naming(checkpoint::NAME_NEW))?;
            }
        }
        let created = match self.storage.create(checkpoint::NAME_NEW, bytes) {
            // Where that cannot be had, of what is kept for a rewriting, which comes behind it.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => self
                .take_for_checkpoint(NAME_RESERVE, bytes)
                .or_else(|_| self.take_for_checkpoint(NAME_ROOM, bytes))
                .map_err(|_| error),
            outcome => outcome,
        };
        created.map_err(naming(checkpoint::NAME_NEW))
    }

    /// Makes a file that is kept the one of the next checkpoint: nobody else can have its space meanwhile, and a quota that is exceeded gives none for a new one.
    fn take_for_checkpoint(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        if !is_own(&*self.storage, name) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.storage.rename(name, checkpoint::NAME_NEW)?;
        let file = self.storage.open(checkpoint::NAME_NEW)?;
        file.allocate(bytes)?;
        Ok(file)
    }

    /// Of this start, or of the one before.
    fn last_checkpoint_bytes(&self) -> u64 {
        let is_there = self.checkpoint_bytes > 0;
        let on_disk = || self.storage.open_to_read(checkpoint::NAME).and_then(|file| file.size()).unwrap_or(0);
        if is_there { self.checkpoint_bytes } else { on_disk() }
    }

    /// Keeps space for the next checkpoint, and for a rewriting. Are they there?
    ///
    /// # Errors
    /// One of the files cannot be had though there is space; the other is kept all the same.
    pub(super) fn keep_room(&self) -> io::Result<bool> {
        let for_checkpoint = self.keep(NAME_RESERVE, self.reserve_bytes());
        if let Ok(false) = for_checkpoint {
            return Ok(false);
        }
        let for_rewriting = self.keep(NAME_ROOM, room_bytes(&self.journal))?;
        Ok(for_checkpoint? && for_rewriting)
    }

    /// Is it kept, so that what is free beside it may be taken for a segment? A file that cannot be had (immutable, or unreadable) is done without where as
    /// much is free beside a segment as both files would have.
    pub(super) fn is_room_kept(&mut self) -> bool {
        let outcome = self.keep_room();
        #[cfg(feature = "planted")]
        if outcome.is_err() && self.journal.planted() == Some(crate::Planted::NeedReserves) {
            return false;
        }
        let Err(error) = outcome else { return outcome.is_ok_and(|kept| kept) };
        let wanted =
            self.reserve_bytes() + room_bytes(&self.journal) + self.journal.config().segment_bytes + LEFT_BYTES;
        self.report_reserves(error);
        self.storage.free_bytes().is_ok_and(|free| free >= wanted)
    }

    pub(super) fn report_reserves(&mut self, error: io::Error) {
        self.report("keep space for the next checkpoint and for a rewriting", Err(error.into()));
    }

    fn reserve_bytes(&self) -> u64 {
        (self.last_checkpoint_bytes() * 2).max(RESERVE_BYTES_MIN)
    }

    fn keep(&self, name: &str, wanted: u64) -> io::Result<bool> {
        let outcome = if self.storage.list()?.iter().any(|there| there == name) {
            let kept = self.storage.open(name).map_err(naming(name))?;
            if kept.is_linked()? {
                // Somebody has copied the folder by links.
                self.storage.remove(name).map_err(naming(name))?;
                return self.keep(name, wanted);
            }
            let size = kept.size()?;
            // What is wanted may have been more before.
            if size < wanted || size > 2 * wanted { kept.allocate(wanted) } else { Ok(()) }
        } else {
            self.storage.create(name, wanted).map(drop)
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(false),
            outcome => outcome.map(|()| true).map_err(naming(name)),
        }
    }

    /// On a full disk, once its reserve is being used: a segment of what is free beside what is kept for checkpoints and rewriting, for more of
    /// what frees as much as it takes.
    pub(super) fn prepare_short(&mut self) {
        if !self.journal.is_reserve_used() || !self.is_room_kept() {
            return self.prepare_for_state();
        }
        match self.make_short() {
            Ok(None) => self.prepare_for_state(),
            Ok(Some(prepared)) => {
                self.next_sequence += 1;
                self.journal.offer_prepared(prepared, true);
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => self.prepare_for_state(),
            Err(error) => self.report("prepare a short segment", Err(error.into())),
        }
    }

    /// On a full disk, where even what is said of records that are let go finds no room soon: a small segment for that alone, out of what is kept
    /// for rewriting if there is nothing else. Nothing in it is needed behind the next checkpoint: two of them take turns for as long as it takes.
    pub(super) fn prepare_for_state(&mut self) {
        if !self.journal.is_state_short() || !self.journal.is_disk_full() {
            return;
        }
        #[cfg(feature = "planted")]
        if self.journal.planted() == Some(crate::Planted::ForgoState) {
            return;
        }
        match self.make_for_state() {
            Ok(prepared) => {
                self.next_sequence += 1;
                self.journal.offer_prepared(PreparedSegment { for_state: true, ..prepared }, true);
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(error) => self.report("prepare a segment for state", Err(error.into())),
        }
    }

    fn make_for_state(&self) -> io::Result<PreparedSegment> {
        let (sequence, wanted) =
            (self.next_sequence, self.journal.config().segment_bytes / STATE_SHARE / SECTOR as u64 * SECTOR as u64);
        let name = segment_name(sequence);
        let (file, size) = if self.storage.list()?.contains(&name) {
            let file = self.storage.open(&name)?;
            let size = file.size()?.max(wanted);
            self.take_from_room(wanted, || file.allocate(size))?;
            (file, size)
        } else {
            (self.take_from_room(wanted, || self.storage.create(&name, wanted))?, wanted)
        };
        self.begin_segment(file, (sequence, size), SEGMENT_HEADER_BYTES as u64)
    }

    /// Takes so much of what is kept for a rewriting, if it does not go without that.
    fn take_from_room<T>(&self, bytes: u64, take: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match take() {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                let room = self.storage.open(NAME_ROOM).map_err(|_| error)?;
                let left = room.size()?.saturating_sub(bytes + LEFT_BYTES);
                room.allocate(left / SECTOR as u64 * SECTOR as u64)?;
                take()
            }
            outcome => outcome,
        }
    }

    /// The file that an attempt has left under the segment's name is used by the next one.
    fn make_short(&self) -> io::Result<Option<PreparedSegment>> {
        let (sequence, segment_bytes) = (self.next_sequence, self.journal.config().segment_bytes);
        let least = segment_bytes / SHORT_SHARE;
        let name = segment_name(sequence);
        if self.storage.list()?.contains(&name) {
            let file = self.storage.open(&name)?;
            let size = file.size()?;
            return if size < least { Ok(None) } else { self.begin_segment(file, (sequence, size), size).map(Some) };
        }
        // What is kept for checkpoints grows with them.
        let left = LEFT_BYTES + segment_bytes / LEFT_SHARE + 4 * self.last_checkpoint_bytes();
        let free = self.storage.free_bytes()?.saturating_sub(left).min(segment_bytes);
        let size = free / SECTOR as u64 * SECTOR as u64;
        if size < least {
            return Ok(None);
        }
        let file = self.storage.create(&name, size)?;
        self.begin_segment(file, (sequence, size), SEGMENT_HEADER_BYTES as u64).map(Some)
    }

    /// Is there space for another segment, beside the one that is prepared? If not that one is kept for what frees as much as it takes.
    pub(super) fn has_another(&self) -> bool {
        let wanted = self.journal.config().segment_bytes + LEFT_BYTES;
        !self.spares.is_empty() || self.storage.free_bytes().map_or(true, |free| free >= wanted)
    }

    /// On a full disk: is there space again? Then a short segment that nobody writes is made as long as others.
    pub(super) fn review_prepared(&mut self) {
        let segment_bytes = self.journal.config().segment_bytes;
        if !self.journal.is_disk_full() || self.spares.is_empty() && !self.is_room_kept() {
            return;
        }
        let free = self.storage.free_bytes().unwrap_or(0).saturating_sub(LEFT_BYTES);
        if let Some(mut prepared) = self.journal.take_back_short(free) {
            if prepared.file.allocate(segment_bytes).is_ok() {
                (prepared.size, prepared.for_state) = (segment_bytes, false);
                if let Some(segment) = self.journal.segments().get(prepared.sequence) {
                    segment.set_bytes(segment_bytes);
                }
                if self.journal.config().window_bytes.is_some_and(|window| self.journal.file_bytes() > window) {
                    self.note_beyond("a segment that was short on a full disk has its usual length again");
                }
            }
            return self.journal.offer_prepared(prepared, !self.has_another());
        }
        if !self.journal.has_whole_prepared() {
            // A file that is kept for the next one makes this one longer.
            self.drop_spare();
        } else if self.has_another() {
            self.journal.set_disk_full(false);
            self.look.wanted |= self.copy_owed;
        }
    }

    /// Is the disk short of space?
    pub(super) fn is_short(&self) -> bool {
        let wanted = 2 * self.journal.config().segment_bytes;
        self.journal.is_disk_full() || self.storage.free_bytes().is_ok_and(|free| free < wanted)
    }

    /// What a rewriting has to keep to now.
    pub(super) fn limits(&self) -> Result<Limits, KeeperError> {
        let segment_bytes = self.journal.config().segment_bytes;
        if !self.is_short() {
            // The window has room for one segment, the disk for one that was longer before.
            let free = self.storage.free_bytes().unwrap_or(0).saturating_sub(segment_bytes);
            let room_bytes =
                if self.journal.config().window_bytes.is_some() { segment_bytes } else { free.max(segment_bytes) };
            return Ok(Limits { segment_bytes, room_bytes, short: false });
        }
        // Another journal may take what is free meanwhile; what is kept is there in any case.
        let kept = if self.keep_room().unwrap_or(false) { room_bytes(&self.journal) } else { 0 };
        // A segment for state may have taken a part of it.
        let left = || self.storage.open(NAME_ROOM).and_then(|room| room.size()).unwrap_or(0);
        let free = self.storage.free_bytes()?.saturating_sub(LEFT_BYTES).max(left());
        Ok(Limits { segment_bytes, room_bytes: if kept > 0 { kept } else { free }, short: true })
    }
}

/// Makes a checkpoint that was not finished, or is replaced, what is kept for the next one. False: it cannot be, or it is in a backup as well, and stays as it is.
pub(crate) fn make_reserve(storage: &dyn Storage) -> bool {
    is_own(storage, checkpoint::NAME_NEW) && storage.rename(checkpoint::NAME_NEW, NAME_RESERVE).is_ok()
}

/// Has a file no other name, so that it may be written?
fn is_own(storage: &dyn Storage, name: &str) -> bool {
    storage.open_to_read(name).and_then(|file| file.is_linked()).is_ok_and(|linked| !linked)
}

/// Half of a segment and a little is what is live of one that is to be rewritten, at most; of the longest, as segments may have been longer before.
/// Within a window, which has room for no more, it is of what a segment is now.
fn room_bytes(journal: &Journal) -> u64 {
    let (segment, has_window) = (journal.config().segment_bytes, journal.config().window_bytes.is_some());
    let longest = if has_window { segment } else { journal.segments().longest().max(segment) };
    (longest / 2 + longest / 32).next_multiple_of(SECTOR as u64)
}

/// What the next checkpoint, the one before it, its copy, one that cannot be replaced, and the space that is kept take beside segments.
pub(super) fn other_bytes(journal: &Journal, checkpoint_bytes: u64) -> u64 {
    4 * checkpoint_bytes.next_multiple_of(SECTOR as u64)
        + (2 * checkpoint_bytes).max(RESERVE_BYTES_MIN)
        + room_bytes(journal)
}
