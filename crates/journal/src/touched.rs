//! The logs that have something in a segment which is not sealed yet, in the order in which they came. The segment's index names all of
//! them; of a log that was deleted meanwhile nothing but its number stays: queues that live for a moment would otherwise stay in memory
//! until the segment is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::LogId;

use crate::log::Log;

/// Logs that come between two looks at whether there is something to let go.
const LOOK_EVERY: usize = 256;
/// Deleted logs that are worth a look at all.
const WORTH: u64 = 256;

/// How many logs of a journal have been deleted since its start.
pub(crate) type Drops = Arc<AtomicU64>;

/// See the head of the file.
pub(crate) struct TouchedLogs {
    ids: Vec<LogId>,
    /// `None`: it was deleted.
    logs: Vec<Option<Arc<Log>>>,
    there: u64,
    drops: Drops,
    /// As of the last look.
    seen: u64,
}

impl TouchedLogs {
    pub fn new(drops: &Drops) -> Self {
        let seen = drops.load(Ordering::Relaxed);
        Self { ids: Vec::new(), logs: Vec::new(), there: 0, drops: Arc::clone(drops), seen }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Of all, by place.
    pub fn ids(&self) -> &[LogId] {
        &self.ids
    }

    /// By place; `None`: it was deleted, and that was noticed.
    pub fn logs(&self) -> &[Option<Arc<Log>>] {
        &self.logs
    }

    /// One that is not in the list yet.
    pub fn push(&mut self, log: &Arc<Log>) {
        self.ids.push(log.id());
        self.logs.push(Some(Arc::clone(log)));
        self.there += 1;
        if self.ids.len().is_multiple_of(LOOK_EVERY) {
            self.look();
        }
    }

    /// Lets go of what was deleted, when that may be enough for the work of finding it: each deletion pays for a few logs that are looked at.
    fn look(&mut self) {
        let drops = self.drops.load(Ordering::Relaxed);
        if drops - self.seen < WORTH.max(self.there / 8) {
            return;
        }
        self.seen = drops;
        for slot in &mut self.logs {
            if slot.take_if(|log| log.inner().dropped).is_some() {
                self.there -= 1;
            }
        }
    }

    /// Those that are still there.
    pub fn into_live(self) -> Vec<Arc<Log>> {
        self.logs.into_iter().flatten().filter(|log| !log.inner().dropped).collect()
    }
}

#[cfg(test)]
mod tests {

    use types::{Durability, Term};

    use super::*;
    use crate::log::OfJournal;

    #[test]
    fn of_deleted_logs_the_numbers_stay() {
        let drops = Drops::default();
        let mut touched = TouchedLogs::new(&drops);
        let mut latest = None;
        for id in 0..20 * LOOK_EVERY as u64 {
            let log = Arc::new(Log::new(LogId(id), Durability::Memory, OfJournal::new(Term(1), 0)));
            touched.push(&log);
            if id % 10 != 0 {
                log.inner().dropped = true;
                drops.fetch_add(1, Ordering::Relaxed);
            }
            latest = Some(log);
        }
        let there = touched.logs().iter().flatten().count();
        assert!(there < 5 * LOOK_EVERY, "{there} of {} logs are in memory", touched.len());
        assert!(touched.ids().iter().enumerate().all(|(place, id)| id.0 == place as u64));
        assert!(Arc::strong_count(&latest.expect("there were some")) <= 2);
        let live: Vec<u64> = touched.into_live().iter().map(|log| log.id().0).collect();
        assert_eq!(live, (0..20 * LOOK_EVERY as u64).step_by(10).collect::<Vec<_>>());
    }
}
