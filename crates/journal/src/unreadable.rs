//! What of a journal's history could not be read when somebody wanted it: which file, whose records, and why. Each is logged once, when it is
//! found, and once more when it is readable again; readers get an error each time. `Journal::unreadable` tells those who look on, and
//! `Journal::held_up` what keeps space from coming back.
//!
//! Reads that succeed pay for one relaxed load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use types::{LogId, Offset};

use crate::journal::Journal;

/// Places that are remembered. What is found beyond them is logged and counted nowhere: the first say enough.
const PLACES_MAX: usize = 1000;

/// A place that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Name of the segment or of the archive object.
    pub file: String,
    /// Whose records …
    pub log: LogId,
    /// … from which offset on.
    pub from: Offset,
    /// Why, with the file and the position.
    pub what: String,
}

/// All such places of a journal, by file and, of a run, position.
#[derive(Default)]
pub(crate) struct UnreadablePlaces {
    places: Mutex<BTreeMap<(String, Option<u32>), Unreadable>>,
    /// How many there are.
    count: AtomicUsize,
    /// Why no space comes back.
    held_up: Mutex<Option<String>>,
    /// What is wrong with the archive.
    archive: Mutex<Option<String>>,
}

impl UnreadablePlaces {
    /// True when it was not known.
    fn enter(&self, position: Option<u32>, found: Unreadable) -> bool {
        let mut places = self.places.lock();
        let key = (found.file.clone(), position);
        if places.contains_key(&key) || places.len() >= PLACES_MAX {
            return false;
        }
        places.insert(key, found);
        self.count.store(places.len(), Ordering::Relaxed);
        true
    }

    fn leave(&self, file: &str, position: Option<u32>) -> Option<Unreadable> {
        let mut places = self.places.lock();
        let left = places.remove(&(file.to_owned(), position));
        self.count.store(places.len(), Ordering::Relaxed);
        left
    }

    /// Whatever is known of a file goes: it is no part of the journal any more.
    pub fn forget(&self, file: &str) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut places = self.places.lock();
            places.retain(|(known, _), _| known != file);
            self.count.store(places.len(), Ordering::Relaxed);
        }
    }
}

impl Journal {
    /// What could not be read so far, and was not readable since.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        if self.unreadable_count() == 0 {
            Vec::new()
        } else {
            self.unreadable_places().places.lock().values().cloned().collect()
        }
    }

    /// How many places these are.
    pub fn unreadable_count(&self) -> usize {
        self.unreadable_places().count.load(Ordering::Relaxed)
    }

    /// Why the space of what is dead does not come back at the moment, with the file's name; `None` where it does, or where the disk is only full.
    pub fn held_up(&self) -> Option<String> {
        self.unreadable_places().held_up.lock().clone()
    }

    /// What the archive does not do at the moment, and why: it takes nothing, or does not let go of an object.
    pub fn archive_trouble(&self) -> Option<String> {
        self.unreadable_places().archive.lock().clone()
    }

    pub(crate) fn set_archive_trouble(&self, why: Option<String>) {
        *self.unreadable_places().archive.lock() = why;
    }

    pub(crate) fn set_held_up(&self, why: Option<String>) {
        *self.unreadable_places().held_up.lock() = why;
    }

    /// A file, or the run at a position of it, cannot be read.
    pub(crate) fn note_unreadable(
        &self,
        file: &str,
        position: Option<u32>,
        (log, from): (LogId, Offset),
        error: &dyn std::fmt::Display,
    ) {
        let found = Unreadable { file: file.to_owned(), log, from, what: error.to_string() };
        if self.unreadable_places().enter(position, found) {
            tracing::error!(journal = self.number(), file, log = log.0, from = from.0, %error, "records cannot be read");
        }
    }

    /// It was read.
    pub(crate) fn note_read(&self, file: impl FnOnce() -> String, position: Option<u32>) {
        if self.unreadable_count() == 0 {
            return;
        }
        let file = file();
        if let Some(found) = self.unreadable_places().leave(&file, position) {
            tracing::info!(
                journal = self.number(),
                file,
                log = found.log.0,
                from = found.from.0,
                "records can be read again"
            );
        }
    }
}
