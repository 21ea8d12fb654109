//! How logs end: by an entry in their journal, written together with what deletes their record from the catalog where both are in journal 0. Where
//! they are not, and for topics of very many partitions, the same chunk says in the catalog that they are to end; they end when that is durable,
//! and then what says so goes. A crash in between leaves it there for the next start.
//!
//! ```text
//! key    "e", u64 first log id     value  u8 version (1), u32 count: logs that are to end and have no other record
//! key    "m" "drops"               of each journal; value  u8 version (1): logs of this journal end by entries
//! ```
//!
//! Logs whose id has [`PASSING`] set need no record: they end with the next start, unless the catalog names them then. Of nothing else it is
//! concluded that it is to go. A journal without "drops" is of a release that dropped logs without a word: there, at its first
//! start, what the catalog does not name is a leftover.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hashbrown::HashSet;
use journal::{AppendItem, Log};
use parking_lot::Mutex;
use types::LogId;

use crate::jobs::{Job, NOBODY, Task};
use crate::{Broker, BrokerOpenError};

/// First byte of the keys of logs that are to end.
pub(crate) const ENDS_KEY: u8 = b'e';
/// Key that says that logs of the journal end by entries.
pub(crate) const DROPS_KEY: &[u8] = b"mdrops";
const VERSION: u8 = 1;
/// In the id of a log: it goes with a restart, unless the catalog names it.
const PASSING: u64 = 1 << 62;
/// Logs that end in the chunk that deletes their record.
const DROPS_TOGETHER_MAX: usize = 500;
/// Logs that end with one commit otherwise.
const DROPS_MAX: usize = 1000;
/// Items that lie in one chunk because a crash should not part them, and bytes of them, each with what its place takes.
const TOGETHER_MAX: usize = 1000;
const TOGETHER_BYTES: usize = 64 << 10;
const PLACE_BYTES: usize = 64;

/// The id of a log that goes with a restart, unless the catalog names it.
pub(crate) fn passing(number: u64) -> LogId {
    LogId(number | PASSING)
}

fn is_passing(id: LogId) -> bool {
    id.0 & PASSING != 0
}

/// What is to lie in one chunk: does it?
#[derive(Clone, Copy, Default)]
pub(crate) struct Fits {
    items: usize,
    bytes: usize,
}

impl Fits {
    /// With these too; false: it does not.
    pub fn take(&mut self, items: &[AppendItem]) -> bool {
        self.items += items.len();
        self.bytes += items.iter().map(|item| item.body_bytes() + PLACE_BYTES).sum::<usize>();
        self.items <= TOGETHER_MAX && self.bytes <= TOGETHER_BYTES
    }
}

/// Items for one chunk; where that is too much for one, the first of them are, and what comes behind can be done without them.
pub(crate) fn in_one(mut first: Vec<AppendItem>, rest: Vec<AppendItem>) -> Vec<AppendItem> {
    let mut fits = Fits::default();
    let fits = fits.take(&first) && fits.take(&rest);
    let mut items = Vec::new();
    if fits {
        first.extend(rest);
    } else {
        items = rest;
    }
    if first.len() > 1 {
        first = vec![AppendItem::Together(first)];
    }
    first.append(&mut items);
    first
}

/// Logs that are to end.
#[derive(Default)]
struct Ending {
    logs: Vec<Arc<Log>>,
    /// What says so in the catalog.
    keys: Vec<Bytes>,
    /// This journal has no other leftovers.
    settles: Option<usize>,
}

/// What is to be written, outside the commits of who deletes.
#[derive(Default)]
pub(crate) struct Ends(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    endings: Vec<Ending>,
    /// The controller knows.
    scheduled: bool,
}

/// What the catalog says of logs that are to end.
#[derive(Default)]
pub(crate) struct Found {
    logs: HashSet<LogId>,
    keys: Vec<Bytes>,
}

impl Found {
    /// Takes a state record; false: it is not readable.
    pub fn take(&mut self, key: &Bytes, mut value: &[u8]) -> bool {
        let mut name = &key[1..];
        let (Ok(first), Ok(VERSION), Ok(count)) = (name.try_get_u64(), value.try_get_u8(), value.try_get_u32()) else {
            return false;
        };
        self.logs.extend((first..first + u64::from(count)).map(LogId));
        self.keys.push(key.clone());
        true
    }
}

/// Keys and values that say of these logs that they are to end.
fn records_of(logs: &[Arc<Log>]) -> Vec<(Bytes, Bytes)> {
    let record = |range: &[Arc<Log>]| {
        let (mut key, mut value) = (BytesMut::with_capacity(9), BytesMut::with_capacity(5));
        key.put_u8(ENDS_KEY);
        key.put_u64(range[0].id().0);
        value.put_u8(VERSION);
        value.put_u32(range.len() as u32);
        (key.freeze(), value.freeze())
    };
    logs.chunk_by(|one, next| one.id().0 + 1 == next.id().0).map(record).collect()
}

impl Broker {
    fn end_together(&self, logs: &[Arc<Log>]) -> bool {
        logs.len() <= DROPS_TOGETHER_MAX && logs.iter().all(|log| self.journal_number(log.id()) == 0)
    }

    /// What ends logs whose record is deleted, to be written to journal 0 in one chunk with that; then [`Broker::follow_ends`].
    pub(crate) fn ends_of(&self, logs: &[Arc<Log>]) -> Vec<AppendItem> {
        if self.end_together(logs) {
            return logs.iter().map(|log| AppendItem::Drop { log: Arc::clone(log) }).collect();
        }
        records_of(logs).into_iter().map(|(key, value)| AppendItem::State { key, value: Some(value) }).collect()
    }

    /// That logs are to end is durable: they do.
    pub(crate) fn follow_ends(&self, logs: &[Arc<Log>]) {
        if !self.end_together(logs) {
            let keys = records_of(logs).into_iter().map(|(key, _)| key).collect();
            self.ends.0.lock().endings.push(Ending { logs: logs.to_vec(), keys, settles: None });
            self.schedule_ends();
        }
    }

    /// Ends a log that is passing.
    pub(crate) fn end_passing(&self, log: &Arc<Log>) {
        let journal = self.journal_number(log.id());
        if !self.journals[journal].forget_unused(log) {
            self.subscriptions().append_alone(journal, vec![AppendItem::Drop { log: Arc::clone(log) }]);
        }
    }

    /// At the start: what is missing of logs that are wanted, and which are to end. `live` are those that the catalog names, `settled` the
    /// journals whose logs end by entries.
    ///
    /// # Errors
    /// When something is missing.
    pub(crate) fn restore_ends(
        &self,
        found: Found,
        live: &HashSet<LogId>,
        settled: &[bool],
    ) -> Result<(), BrokerOpenError> {
        let mut endings = vec![Ending { keys: found.keys, ..Ending::default() }];
        for (number, journal) in self.journals.iter().enumerate() {
            let ends =
                |id: LogId| !live.contains(&id) && (!settled[number] || is_passing(id) || found.logs.contains(&id));
            journal.check_segments(&|id| !ends(id)).map_err(|error| BrokerOpenError::Journal { number, error })?;
            let mut logs: Vec<Arc<Log>> =
                journal.log_ids().into_iter().filter(|id| ends(*id)).filter_map(|id| journal.log(id)).collect();
            logs.sort_unstable_by_key(|log| log.id());
            match settled[number] {
                true => endings[0].logs.append(&mut logs),
                false => endings.push(Ending { logs, keys: Vec::new(), settles: Some(number) }),
            }
        }
        // What an unsettled journal has of logs that are to end is among its leftovers: their record stays until those have ended.
        if endings.len() > 1 {
            let rest = endings.split_off(1);
            rest.into_iter().for_each(|ending| {
                endings[0].logs.extend(ending.logs.iter().filter(|log| found.logs.contains(&log.id())).cloned());
                endings.push(ending);
            });
        }
        endings.retain(|ending| !ending.logs.is_empty() || !ending.keys.is_empty() || ending.settles.is_some());
        self.ends.0.lock().endings = endings;
        Ok(())
    }

    /// Has the controller end what is to end.
    pub(crate) fn schedule_ends(&self) {
        let mut waiting = self.ends.0.lock();
        if waiting.endings.is_empty() || waiting.scheduled {
            return;
        }
        let work = |broker: &Arc<Self>| {
            broker.write_ends();
            Box::new(()) as Box<dyn std::any::Any + Send>
        };
        waiting.scheduled = self.controller.push(Job {
            to: NOBODY,
            of: crate::jobs::JobOwner::BROKER,
            task: Task::Work(Box::new(work)),
        });
    }

    /// Ends what is to end. What a journal does not take is tried with the next.
    fn write_ends(&self) {
        let endings = {
            let mut waiting = self.ends.0.lock();
            waiting.scheduled = false;
            std::mem::take(&mut waiting.endings)
        };
        let mut drops: Vec<Vec<AppendItem>> = vec![Vec::new(); self.journals.len()];
        for log in endings.iter().flat_map(|ending| &ending.logs) {
            drops[self.journal_number(log.id())].push(AppendItem::Drop { log: Arc::clone(log) });
        }
        let mut failed = vec![false; drops.len()];
        for (journal, items) in drops.into_iter().enumerate() {
            failed[journal] = items.chunks(DROPS_MAX).any(|items| self.commit(journal, items.to_vec()).is_err());
        }
        let mut left = Vec::new();
        for ending in endings {
            let journals = ending.logs.iter().map(|log| self.journal_number(log.id())).chain(ending.settles);
            let done = !journals.into_iter().any(|journal| failed[journal]) && self.note_ended(&ending).is_ok();
            left.extend((!done).then_some(ending));
        }
        self.ends.0.lock().endings.append(&mut left);
    }

    fn note_ended(&self, ending: &Ending) -> Result<(), journal::AppendError> {
        if let Some(journal) = ending.settles {
            let value = Some(Bytes::from_static(&[VERSION]));
            self.commit(journal, vec![AppendItem::State { key: Bytes::from_static(DROPS_KEY), value }])?;
        }
        for keys in ending.keys.chunks(DROPS_MAX) {
            self.commit(0, keys.iter().map(|key| AppendItem::State { key: key.clone(), value: None }).collect())?;
        }
        Ok(())
    }
}
