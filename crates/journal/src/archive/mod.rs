//! The archive: immutable objects that hold what the journal does not keep in segments. What a log has there is a prefix of
//! it; which objects these are is keyed state of the log's journal, so that an object is part of the log once the journal says
//! so, and not before.
//!
//! ```text
//! key    "a", u64 log id, u64 base offset                                                        (big-endian)
//! value  u8 version (1), u8 flags: 1 cleaned, u64 object id, u64 offset after the last, u64 bytes of batches, u64 length of
//!        the object, i64 largest timestamp, i64 last append, i64 earliest delete horizon, u32 count of aborted transactions,
//!        each i64 producer id, u64 first offset, u64 last offset
//! ```
//!
//! * A1 The objects of a log lie side by side: one begins at the offset where the one before ends. Offsets inside may be gone.
//! * A2 A record replaces those with smaller ids whose offsets it covers all of: an exchange of several objects for one is one
//!   record, and whether it happened is whether that record is there.
//! * A3 An object is on stable storage before a record names it, and is deleted after its record is gone, when no reader has it.
//! * A4 Ids are never given twice: term of the journal, then a number.
//! * A5 Of what lies in a cleaned object the record says which transactions were aborted: markers may have gone from it.

mod memory;
mod object;
mod open;

use std::io;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use types::{LogId, Offset, Timestamp};
use uuid::Uuid;

use crate::journal::Journal;
use crate::transactions::AbortedTransaction;

pub use memory::MemoryArchive;
use object::intact_runs;
pub(crate) use object::{ObjectWriter, is_whole, open_index, print};
pub(crate) use open::{OpenObject, OpenObjects};

/// First byte of the keys of archive records. Nobody else's keys begin with it.
const KEY: u8 = b'a';
const KEY_BYTES: usize = 17;
const VERSION: u8 = 1;
const CLEANED: u8 = 1;
/// In place of a delete horizon: there is none.
pub(crate) const NO_HORIZON: Timestamp = Timestamp::MAX;

/// What became of an object that was to be stored.
#[derive(Debug)]
pub enum Put {
    /// It survives a power loss.
    Stored,
    /// It may be there or not.
    Failed(io::Error),
    /// It was no use.
    NotTried,
}

/// Objects that fail before one was stored: then none will be.
const FAILURES_MAX: usize = 8;

/// Is it no use to store more, after so many were stored and so many failed, the last one with this error?
pub fn is_hopeless(stored: usize, failed: usize, error: &io::Error) -> bool {
    is_full(error) || stored == 0 && failed >= FAILURES_MAX
}

/// Is there no space?
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Where archive objects are kept. Everything blocks. Names are paths of parts between `/`.
pub trait ArchiveStore: Send + Sync {
    /// Keeps `bytes` under a name, whole or not at all; when it returns, they survive a power loss.
    ///
    /// # Errors
    /// Of the store. There may be an object then or not.
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()>;
    /// Keeps several objects as `put` does, in less time than one after another if the store can. What became of each, in their order: one that cannot be
    /// kept stands in no other's way. It ends where that is no use ([`is_hopeless`]).
    fn put_all(&self, objects: &[(String, Bytes)]) -> Vec<Put> {
        let (mut stored, mut failed, mut ended) = (0, 0, false);
        let put = |(name, bytes): &(String, Bytes)| {
            if ended {
                return Put::NotTried;
            }
            match self.put(name, bytes.clone()) {
                Ok(()) => {
                    stored += 1;
                    Put::Stored
                }
                Err(error) => {
                    failed += 1;
                    ended = is_hopeless(stored, failed, &error);
                    Put::Failed(error)
                }
            }
        };
        objects.iter().map(put).collect()
    }
    /// Fills `into` from `position` on, as far as the object goes; returns the bytes read.
    ///
    /// # Errors
    /// `NotFound`, and others of the store.
    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Names of all objects whose first part is `prefix`, in no order.
    ///
    /// # Errors
    /// Of the store.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>>;
    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// Of the store.
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// One object as its log's journal knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Archived {
    pub log: LogId,
    /// First offset that it stands for …
    pub base: Offset,
    /// … and the one after the last.
    pub next: Offset,
    pub id: u64,
    /// Of its batches.
    pub bytes: u64,
    /// Of the object; 0: nothing is left of these offsets, and there is no object.
    pub length: u64,
    pub max_timestamp: Timestamp,
    pub last_append: Timestamp,
    /// When the first of its tombstones and markers may go.
    pub horizon: Timestamp,
    /// No key is twice in it and in what lies before it.
    pub cleaned: bool,
    /// Those whose markers are in it.
    pub aborted: Vec<AbortedTransaction>,
}

impl Archived {
    /// Key of its record.
    pub fn key(&self) -> Bytes {
        let mut key = BytesMut::with_capacity(KEY_BYTES);
        key.put_u8(KEY);
        key.put_u64(self.log.0);
        key.put_u64(self.base.0);
        key.freeze()
    }

    /// Value of its record.
    pub fn value(&self) -> Bytes {
        let mut value = BytesMut::with_capacity(70 + self.aborted.len() * 24);
        value.put_u8(VERSION);
        value.put_u8(if self.cleaned { CLEANED } else { 0 });
        for field in [self.id, self.next.0, self.bytes, self.length] {
            value.put_u64(field);
        }
        for time in [self.max_timestamp, self.last_append, self.horizon] {
            value.put_i64(time);
        }
        value.put_u32(self.aborted.len() as u32);
        for aborted in &self.aborted {
            value.put_i64(aborted.producer_id);
            value.put_u64(aborted.first.0);
            value.put_u64(aborted.last.0);
        }
        value.freeze()
    }

    /// `None` when it is no record of this version.
    fn decode(mut key: &[u8], mut value: &[u8]) -> Option<Self> {
        key.advance(1);
        let (log, base) = (LogId(key.try_get_u64().ok()?), Offset(key.try_get_u64().ok()?));
        if value.try_get_u8().ok()? != VERSION {
            return None;
        }
        let flags = value.try_get_u8().ok()?;
        let mut numbers = [0; 4];
        for number in &mut numbers {
            *number = value.try_get_u64().ok()?;
        }
        let [id, next, bytes, length] = numbers;
        let (max_timestamp, last_append, horizon) =
            (value.try_get_i64().ok()?, value.try_get_i64().ok()?, value.try_get_i64().ok()?);
        let mut aborted = Vec::new();
        for _ in 0..value.try_get_u32().ok()? {
            let (producer_id, first, last) =
                (value.try_get_i64().ok()?, value.try_get_u64().ok()?, value.try_get_u64().ok()?);
            aborted.push(AbortedTransaction { producer_id, first: Offset(first), last: Offset(last) });
        }
        let cleaned = flags & CLEANED != 0;
        let next = Offset(next);
        (next > base).then_some(Self {
            log,
            base,
            next,
            id,
            bytes,
            length,
            max_timestamp,
            last_append,
            horizon,
            cleaned,
            aborted,
        })
    }

    /// Name of the object in the store.
    pub fn name(&self, journal: Uuid) -> String {
        format!("{journal}/{}/{:020}-{:016x}", self.log.0, self.base.0, self.id)
    }

    fn covers(&self, other: &Self) -> bool {
        self.id > other.id && self.base <= other.base && other.next <= self.next
    }
}

/// Is it what an object of a journal may be called (docs/formats/archive.md)?
pub(crate) fn is_name(name: &str, journal: Uuid) -> bool {
    let parts = || {
        let (of, rest) = name.split_once('/')?;
        let (log, rest) = rest.split_once('/')?;
        let (base, id) = rest.split_once('-')?;
        let has = |text: &str, length, radix| text.len() == length && u64::from_str_radix(text, radix).is_ok();
        Some(of == journal.to_string() && log.parse::<u64>().is_ok() && has(base, 20, 10) && has(id, 16, 16))
    };
    parts().unwrap_or(false)
}

/// Is it the key of an archive record?
pub(crate) fn is_record(key: &[u8]) -> bool {
    key.len() == KEY_BYTES && key[0] == KEY
}

/// Of which log the key of an archive record is.
pub(crate) fn log_of(key: &[u8]) -> Option<LogId> {
    is_record(key).then(|| LogId((&key[1..]).get_u64()))
}

/// What a log has in the archive, in the order of offsets.
#[derive(Debug, Default)]
pub(crate) struct ArchivedLog(Vec<Arc<Archived>>);

impl ArchivedLog {
    /// The offset after the last; 0 when there is nothing.
    pub fn until(&self) -> Offset {
        self.0.last().map_or(Offset::ZERO, |last| last.next)
    }

    /// The object that holds an offset.
    pub fn at(&self, offset: Offset) -> Option<&Arc<Archived>> {
        self.from(offset).first().filter(|object| object.base <= offset)
    }

    /// All that end behind an offset.
    pub fn from(&self, offset: Offset) -> &[Arc<Archived>] {
        &self.0[self.0.partition_point(|object| object.next <= offset)..]
    }

    /// All that end at an offset or before.
    pub fn through(&self, offset: Offset) -> &[Arc<Archived>] {
        &self.0[..self.0.partition_point(|object| object.next <= offset)]
    }

    /// Bytes of batches in objects that end behind an offset.
    pub fn bytes_from(&self, offset: Offset) -> u64 {
        self.from(offset).iter().map(|object| object.bytes).sum()
    }

    /// Enters an object; returns those whose place it takes (A2).
    pub fn enter(&mut self, object: Arc<Archived>) -> Vec<Arc<Archived>> {
        if self.0.iter().any(|other| other.covers(&object)) {
            return vec![object];
        }
        let first = self.0.partition_point(|other| other.base < object.base);
        let replaced = self.0[first..].iter().take_while(|other| object.covers(other)).count();
        self.0.splice(first..first + replaced, [object]).collect()
    }

    /// Takes out those that end at `start` or before.
    pub fn remove_through(&mut self, start: Offset) {
        let gone = self.through(start).len();
        self.0.drain(..gone);
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Archived>> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Are these the bytes of an object as it was written?
pub fn is_whole_object(bytes: &[u8]) -> bool {
    intact_runs(bytes, "object").is_ok_and(|runs| runs.iter().all(|(_, is_whole)| *is_whole))
}

/// The archive of one journal.
pub(crate) struct Archive {
    pub store: Arc<dyn ArchiveStore>,
    pub open: OpenObjects,
    /// Objects that nothing refers to but a record, which is to be deleted, and then the object.
    leftover: Mutex<Vec<Arc<Archived>>>,
    /// How many want no object to be deleted now. Who deletes one has this locked meanwhile.
    pub holders: Mutex<usize>,
}

impl Archive {
    pub fn new(store: Arc<dyn ArchiveStore>, index_bytes: usize) -> Self {
        Self { store, open: OpenObjects::new(index_bytes), leftover: Mutex::default(), holders: Mutex::default() }
    }

    /// These are no longer part of a log.
    pub fn leave(&self, objects: impl IntoIterator<Item = Arc<Archived>>) {
        self.leftover.lock().extend(objects);
    }

    pub fn take_leftover(&self) -> Vec<Arc<Archived>> {
        std::mem::take(&mut *self.leftover.lock())
    }
}

impl Journal {
    /// How many objects hold records of its logs. What the start of a log has passed is on its way out.
    pub fn object_count(&self) -> usize {
        let archived = self.all_logs().into_iter().filter(|log| log.archived_until() > Offset::ZERO);
        archived
            .map(|log| log.inner().archive.from(log.start()).iter().filter(|object| object.length > 0).count())
            .sum()
    }
}

/// An archive record is not readable by this release.
#[derive(Debug, thiserror::Error)]
#[error("archive record of log {log} from offset {base} is damaged, or of a newer release")]
pub struct ArchiveRecordError {
    /// Whose.
    log: LogId,
    /// Which.
    base: Offset,
}

/// Reads the archive records among recovered state.
///
/// # Errors
/// When one is not readable.
pub(crate) fn decode_records<'a>(
    state: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<Vec<Arc<Archived>>, ArchiveRecordError> {
    let mut all = Vec::new();
    for (key, value) in state.filter(|(key, _)| is_record(key)) {
        let decoded = Archived::decode(key, value).ok_or_else(|| {
            let mut key = &key[1..];
            ArchiveRecordError { log: LogId(key.get_u64()), base: Offset(key.get_u64()) }
        })?;
        all.push(Arc::new(decoded));
    }
    // In the order in which they were made: the later replaces the earlier.
    all.sort_by_key(|object| object.id);
    Ok(all)
}

#[cfg(test)]
mod tests;
