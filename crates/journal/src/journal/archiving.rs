//! The part of the archiver: its inbox, and how full the window is.

use std::sync::atomic::Ordering;

use super::{ArchiverInbox, Journal};
use crate::append::JournalEvent;
use crate::window::{Marks, Relief, WindowState};

impl Journal {
    /// What is said of the window.
    pub(crate) fn window(&self) -> &WindowState {
        &self.window
    }

    /// Where in its window what begins, if it has one.
    pub(crate) fn marks(&self) -> Option<Marks> {
        self.config.window_bytes.map(|window| Marks::beside(self.window.others(), window, self.config.segment_bytes))
    }

    /// Do checkpoints, and what is kept for them, leave too little of the window?
    pub(crate) fn is_window_narrow(&self) -> bool {
        let marks = self.config.window_bytes.map(|window| Marks::new(window, self.config.segment_bytes));
        self.marks() != marks
    }

    /// What the journal's files take, without those that are kept to be written again.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.segments.bytes() + self.window.others()
    }

    /// What all of the journal's files take on the disk.
    pub fn file_bytes(&self) -> u64 {
        self.used_bytes() + self.spare_segments.load(Ordering::Relaxed) as u64 * self.config.segment_bytes
    }

    /// How pressing it is that something goes into the archive, from 0 to 1; not at all, if nothing can.
    pub(crate) fn pressure(&self) -> f64 {
        let marks = self.marks().filter(|_| self.window.relief() != Relief::Nothing);
        let held = self.window.is_held();
        marks.map_or(0.0, |marks| if held { 1.0 } else { marks.pressure(self.used_bytes()) })
    }

    /// Does data wait for the archive to take what lies beyond the window?
    pub fn waits_for_archive(&self) -> bool {
        self.window.is_waiting()
    }

    pub(crate) fn wake_archiver(&self) {
        self.archiver.lock().woken = true;
        self.archiver_wakes.notify_one();
    }

    /// The archiver's append has come to something.
    pub(super) fn answer_archiver(&self, event: JournalEvent) {
        let JournalEvent::Appended { results, .. } = event else { return };
        let mut inbox = self.archiver.lock();
        (inbox.woken, inbox.results) = (true, Some(results));
        self.archiver_wakes.notify_one();
    }

    pub(crate) fn take_archiver_inbox(&self, wait: std::time::Duration) -> ArchiverInbox {
        let mut inbox = self.archiver.lock();
        if !inbox.woken && !wait.is_zero() {
            self.archiver_wakes.wait_for(&mut inbox, wait);
        }
        std::mem::take(&mut inbox)
    }
}
