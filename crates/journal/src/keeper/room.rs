//! Space that is kept back, so that a full disk does not stay full: for the next checkpoint, without which nothing is freed, and for a
//! rewriting, which has to write what is live before the dead goes.

use std::io;
use std::sync::Arc;

use super::choose::Limits;
use super::{Keeper, KeeperError};
use crate::checkpoint;
use crate::disk::{File, SECTOR};
use crate::journal::Journal;

/// Space for the next checkpoint on a full disk; nothing is in it.
const NAME_RESERVE: &str = "reserve";
const RESERVE_BYTES_MIN: u64 = 64 << 10;
/// Space for a rewriting on a short disk; nothing is in it. The rewriting takes the file itself.
pub(super) const NAME_ROOM: &str = "reserve-rewriting";
/// Less than this is left for others when a rewriting takes what is free.
const LEFT_BYTES: u64 = 16 << 10;

impl Keeper {
    /// The file of the next checkpoint; on a full disk in the space that is kept for it.
    pub(super) fn create_checkpoint(&self, bytes: u64) -> io::Result<Arc<dyn File>> {
        if self.storage.list()?.iter().any(|name| name == checkpoint::NAME_NEW) {
            self.storage.remove(checkpoint::NAME_NEW)?;
        }
        match self.storage.create(checkpoint::NAME_NEW, bytes) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.storage.remove(NAME_RESERVE).map_err(|_| error)?;
                self.storage.create(checkpoint::NAME_NEW, bytes)
            }
            outcome => outcome,
        }
    }

    /// Keeps space for the next checkpoint, and for a rewriting. Are they there?
    pub(super) fn keep_room(&self) -> io::Result<bool> {
        let for_checkpoint = self.keep(NAME_RESERVE, (self.checkpoint_bytes * 2).max(RESERVE_BYTES_MIN))?;
        Ok(for_checkpoint && self.keep(NAME_ROOM, room_bytes(&self.journal))?)
    }

    fn keep(&self, name: &str, wanted: u64) -> io::Result<bool> {
        let outcome = if self.storage.list()?.iter().any(|there| there == name) {
            let kept = self.storage.open(name)?;
            let size = kept.size()?;
            // What is wanted may have been more before.
            if size < wanted || size > 2 * wanted { kept.allocate(wanted) } else { Ok(()) }
        } else {
            self.storage.create(name, wanted).map(drop)
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(false),
            outcome => outcome.map(|()| true),
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
            let room_bytes = if self.journal.config().window_bytes.is_some() { segment_bytes } else { free.max(segment_bytes) };
            return Ok(Limits { segment_bytes, room_bytes, short: false });
        }
        // Another journal may take what is free meanwhile; what is kept is there in any case.
        let kept = if self.keep_room()? { room_bytes(&self.journal) } else { 0 };
        let free = self.storage.free_bytes()?.saturating_sub(LEFT_BYTES);
        Ok(Limits { segment_bytes, room_bytes: if kept > 0 { kept } else { free }, short: true })
    }
}

/// Half of a segment and a little is what is live of one that is to be rewritten, at most; of the longest, as segments may have been longer before.
/// Within a window, which has room for no more, it is of what a segment is now.
fn room_bytes(journal: &Journal) -> u64 {
    let (segment, has_window) = (journal.config().segment_bytes, journal.config().window_bytes.is_some());
    let longest = if has_window { segment } else { journal.segments().longest().max(segment) };
    (longest / 2 + longest / 32).next_multiple_of(SECTOR as u64)
}

/// What the next checkpoint, the one before it, its copy and the space that is kept take beside segments.
pub(super) fn other_bytes(journal: &Journal, checkpoint_bytes: u64) -> u64 {
    3 * checkpoint_bytes.next_multiple_of(SECTOR as u64) + (2 * checkpoint_bytes).max(RESERVE_BYTES_MIN) + room_bytes(journal)
}
