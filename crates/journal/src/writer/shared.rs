//! Who runs the writer: its own thread, or, while that rests, the thread that asks for a small commit. Where threads wake up
//! late and the disk is quick, two wake-ups cost as much as the write.
//!
//! The thread holds the lock whenever anything is under way or waits; the queue's state says when it rests
//! ([`Intake::may_rest`](crate::queue::Intake::may_rest)). Whoever changes that state from resting to awake either commits or
//! rings the bell, so a request is never left lying.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Writer;
use crate::disk::Submitter;
use crate::journal::Journal;

/// A writer that others than its thread can run.
pub(crate) trait CommitHere: Send + Sync {
    /// Carries out what waits, on the calling thread, or wakes the writer's thread. Only for whoever ended the writer's rest.
    fn commit_here(&self);
}

pub(super) struct SharedWriter<S> {
    journal: Arc<Journal>,
    writer: Mutex<Writer<S>>,
}

impl<S: Submitter + 'static> SharedWriter<S> {
    /// The life of the writer's thread.
    pub fn run(writer: Writer<S>) {
        let journal = Arc::clone(&writer.journal);
        let shared = Arc::new(Self { journal, writer: Mutex::new(writer) });
        let weak = Arc::downgrade(&shared);
        let weak: Weak<dyn CommitHere> = weak;
        shared.journal.share_writer(weak);
        let mut writer = shared.writer.lock();
        loop {
            let rested = writer.rests() && shared.journal.intake().may_rest();
            if rested {
                let limit = writer.until_flush();
                drop(writer);
                shared.journal.intake().rest(limit);
                writer = shared.writer.lock();
            }
            if !writer.step(!rested) {
                shared.journal.writer_ended.note();
                return;
            }
        }
    }
}

impl<S: Submitter + 'static> CommitHere for SharedWriter<S> {
    fn commit_here(&self) {
        let rests = self.writer.try_lock().is_some_and(|mut writer| {
            let ended = EndedByDefect;
            let rests = writer.commit_here();
            std::mem::forget(ended);
            rests && self.journal.intake().may_rest()
        });
        if !rests {
            self.journal.intake().ring();
        }
    }
}

/// A panic in the writer ends the process on whatever thread it happens: a restart recovers, half a journal would not.
struct EndedByDefect;

impl Drop for EndedByDefect {
    fn drop(&mut self) {
        std::process::abort();
    }
}
