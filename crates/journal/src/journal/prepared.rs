//! The segment that the keeper has prepared for the writer, and what is said of the disk while it can prepare none.

use std::sync::atomic::Ordering;

use super::{Journal, JournalStatus, SEGMENT_LATE_MS};
use crate::segments::PreparedSegment;

impl Journal {
    pub(crate) fn has_prepared(&self) -> bool {
        self.prepared.lock().is_some()
    }

    /// Is there one that is as long as others?
    pub(crate) fn has_whole_prepared(&self) -> bool {
        self.prepared.lock().as_ref().is_some_and(|prepared| prepared.size >= self.config.segment_bytes)
    }

    /// Whether data goes into it; `None`: there is none.
    pub(crate) fn prepared_takes_data(&self) -> Option<bool> {
        self.prepared.lock().as_ref().map(|prepared| !prepared.for_state)
    }

    pub(crate) fn take_prepared(&self) -> Option<PreparedSegment> {
        let taken = self.prepared.lock().take();
        self.wake_keeper(false);
        taken
    }

    /// A segment for everybody, or on a disk that is full with it, or where it is shorter than others, for what may use the reserve.
    pub(crate) fn offer_prepared(&self, segment: PreparedSegment, is_last: bool) {
        let mut prepared = self.prepared.lock();
        self.set_disk_full(is_last || segment.size < self.config.segment_bytes);
        self.state_short.store(false, Ordering::Relaxed);
        if !segment.for_state {
            self.reserve_spent.store(false, Ordering::Relaxed);
        }
        *prepared = Some(segment);
        // What waited may go into what was kept back in the segment before it, so that the writer does not take this one.
        self.segment_wanted.store(0, Ordering::Relaxed);
        drop(prepared);
        *self.segment_error.lock() = None;
        self.lacks_segments.store(false, Ordering::SeqCst);
        self.intake.set_turns_away(self.turns_away());
        self.intake.wake_always();
    }

    /// A segment could not be prepared, for another reason than space. What waits for one hears of it before its client gives up.
    pub(crate) fn note_segment_error(&self, reason: String) {
        *self.segment_error.lock() = Some(reason);
        let is_late = self.waited_for_segment().is_some_and(|waited| waited >= SEGMENT_LATE_MS);
        if is_late && !self.lacks_segments.swap(true, Ordering::SeqCst) {
            self.intake.set_turns_away(true);
            self.intake.wake_always();
        }
    }

    /// Is data that would wait refused, and given back to who keeps it?
    pub(crate) fn turns_away(&self) -> bool {
        self.is_disk_full() || self.lacks_segments()
    }

    /// Is what finds no room to be refused, although the disk is not full?
    pub(crate) fn lacks_segments(&self) -> bool {
        self.lacks_segments.load(Ordering::SeqCst)
    }

    /// Is data taken that takes the place of other data? On a full disk it is while there is room for it.
    pub fn takes_copies(&self) -> bool {
        match self.status() {
            JournalStatus::Running => true,
            JournalStatus::DiskFull => !self.reserve_spent.load(Ordering::Relaxed),
            JournalStatus::Hindered { .. } | JournalStatus::Stopped { .. } => false,
        }
    }

    /// What may use the reserve found no room, and will find none before another segment is there.
    pub(crate) fn note_reserve_spent(&self) {
        let prepared = self.prepared.lock();
        self.reserve_spent.store(prepared.as_ref().is_none_or(|prepared| prepared.for_state), Ordering::Relaxed);
    }

    /// Takes back a prepared segment that is shorter than others, to make it longer, if it lacks no more than so many bytes.
    pub(crate) fn take_back_short(&self, lacking: u64) -> Option<PreparedSegment> {
        let whole = self.config.segment_bytes;
        self.prepared.lock().take_if(|prepared| prepared.size < whole && whole - prepared.size <= lacking)
    }

    /// Of what is kept for state little is left, and no segment follows.
    pub(crate) fn note_state_short(&self) {
        if !self.state_short.swap(true, Ordering::Relaxed) {
            self.wake_keeper(false);
        }
    }

    pub(crate) fn is_state_short(&self) -> bool {
        self.state_short.load(Ordering::Relaxed)
    }

    pub(crate) fn note_reserve_used(&self) {
        if !self.reserve_used.swap(true, Ordering::Relaxed) {
            self.wake_keeper(false);
        }
    }

    pub(crate) fn is_reserve_used(&self) -> bool {
        self.reserve_used.load(Ordering::Relaxed)
    }

    pub(crate) fn set_disk_full(&self, full: bool) {
        if self.disk_full.swap(full, Ordering::SeqCst) != full {
            self.reserve_used.store(false, Ordering::Relaxed);
            self.reserve_spent.store(false, Ordering::Relaxed);
            self.intake.set_turns_away(self.turns_away());
            if full {
                tracing::error!(
                    journal = self.number(),
                    "disk full: writes are refused until space is freed, reads and deletes go on"
                );
            } else {
                tracing::info!(journal = self.number(), "disk has space again: writes are accepted");
            }
            self.intake.wake_always();
        }
    }
}
