//! What goes into the journal and what comes back: the vocabulary between the broker and the writer.

use std::sync::Arc;

use bytes::Bytes;
use record::BatchHeader;
use smallvec::SmallVec;
use types::{ConnectionId, Gate, LogId, Offset, ShardId};

use crate::chunk::{REFERENCE_BYTES, bodies_at, padded};
use crate::journal::Journal;
use crate::log::Log;
use crate::segments::largest_chunk;

/// Logs that share one batch, at most. A log costs 16 bytes of the chunk, 32 of the index and 64 of memory.
pub const SHARED_LOGS_MAX: usize = 256;

/// Weight of an item beyond its body: directory entry and bookkeeping.
const ITEM_OVERHEAD_BYTES: usize = 64;

/// Whom an answer is for; opaque to the journal but for the shard, whose sink gets it, and the
/// connection, which is the unit of fairness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyTo {
    /// Whose sink.
    pub shard: ShardId,
    /// Order is kept within it.
    pub connection: ConnectionId,
    /// Chosen by the caller.
    pub token: u64,
}

/// Where a shard receives events. `deliver` is called at most once per sink and commit; it takes all
/// events out of the vector and wakes the owner itself.
pub trait EventSink: Send + Sync {
    /// Takes the events.
    fn deliver(&self, events: &mut Vec<JournalEvent>);
}

/// Something a shard must hear of.
#[derive(Debug)]
pub enum JournalEvent {
    /// The outcome of an append, one result an item, in their order.
    Appended {
        /// As given with the append.
        to: ReplyTo,
        /// In the order of the items.
        results: AppendResults,
    },
    /// The readable end of a watched log has moved.
    Advanced(LogId),
    /// The queue has room again after it refused this shard.
    Space,
}

/// Results of the items of one append.
pub type AppendResults = SmallVec<[Result<Appended, AppendError>; 2]>;

/// Where an item was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record; 0 for state, the new start for a trim, the log's end for a drop.
    pub base: Offset,
    /// The log's first offset.
    pub log_start: Offset,
    /// The batch had been appended before; `base` is where.
    pub duplicate: bool,
}

/// Why an item was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Records of this producer are missing before the batch.
    #[error("sequence number out of order")]
    OutOfOrderSequence,
    /// A newer epoch of this producer exists.
    #[error("producer epoch is fenced")]
    InvalidProducerEpoch,
    /// The producer has a transaction open, and the batch is not part of it.
    #[error("producer has a transaction open, and the batch is not part of it")]
    NotInTransaction,
    /// Producers take as much memory as they may, and this one is new to the log.
    #[error("producers of the last five minutes take as much memory as they may, and this one is new to the partition")]
    TooManyProducers,
    /// The transaction had ended when the batch was to be placed.
    #[error("transaction has ended")]
    TransactionEnded,
    /// Larger than a segment takes.
    #[error("batch is larger than a segment takes")]
    TooLarge,
    /// The log has ended.
    #[error("log is deleted")]
    LogDeleted,
    /// No space for another segment.
    #[error("disk is full")]
    DiskFull,
    /// No other segment can be made, whatever the reason; it is tried again.
    #[error("no segment can be made, as the log says, and the last one is full")]
    NoSegment,
    /// A write or sync has failed; nothing more is written until a restart.
    #[error("journal has stopped after an I/O error")]
    Stopped,
}

/// Items to be appended, in order, for one caller.
#[derive(Debug)]
pub struct Append {
    /// Who gets the outcome.
    pub to: ReplyTo,
    /// What to append.
    pub items: Vec<AppendItem>,
    /// Is an answer wanted?
    pub acknowledge: bool,
}

/// One thing to append.
#[derive(Clone)]
pub enum AppendItem {
    /// One validated record batch.
    Batch {
        /// Where to.
        log: Arc<Log>,
        /// The batch as the producer made it; offset and epoch are filled in while copying.
        bytes: Bytes,
        /// Its decoded head.
        header: BatchHeader,
        /// Of records of a transaction: refused once this is closed.
        gate: Option<Arc<Gate>>,
    },
    /// One validated record batch for several logs, each of them once: they share its bytes, which stay until the last of them lets go.
    /// Not of an idempotent producer. Its result is that of the first log; those that are being deleted are left out, and
    /// `LogDeleted` says that all are.
    Shared {
        /// Where to, at most [`SHARED_LOGS_MAX`].
        logs: Box<[Arc<Log>]>,
        /// The batch as its maker made it.
        bytes: Bytes,
        /// Its decoded head.
        header: BatchHeader,
    },
    /// A keyed state record, always of class `fsync`.
    State {
        /// What it replaces.
        key: Bytes,
        /// The new value; `None` deletes.
        value: Option<Bytes>,
    },
    /// A keyed state record that tells of a log's records: it counts when they would, so it is of the log's class.
    StateOf {
        /// Whose.
        log: Arc<Log>,
        /// What it replaces.
        key: Bytes,
        /// The new value; `None` deletes.
        value: Option<Bytes>,
    },
    /// A new first offset for a log; what lies before it may be removed.
    Trim {
        /// Whose.
        log: Arc<Log>,
        /// At most the log's end.
        to: Offset,
    },
    /// The end of a log: nothing placed behind it is the log's. When it is durable the log is gone, and its space is freed by and by.
    /// It is of the log's class.
    Drop {
        /// Whose.
        log: Arc<Log>,
    },
    /// Several items that lie in one chunk, so that a crash leaves all of them or none. They have one result: that of the first which
    /// is not `Ok`, where a batch for a log that is being deleted counts as taken. None of them is of an idempotent producer.
    Together(Vec<AppendItem>),
}

impl std::fmt::Debug for AppendItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Batch { log, bytes, .. } => write!(f, "Batch({}, {} bytes)", log.id(), bytes.len()),
            Self::Shared { logs, bytes, .. } => write!(f, "Shared({} logs, {} bytes)", logs.len(), bytes.len()),
            Self::State { key, value } => write!(f, "State({key:?}, {:?} bytes)", value.as_ref().map(Bytes::len)),
            Self::StateOf { log, key, value } => {
                write!(f, "StateOf({}, {key:?}, {:?} bytes)", log.id(), value.as_ref().map(Bytes::len))
            }
            Self::Trim { log, to } => write!(f, "Trim({}, {to})", log.id()),
            Self::Drop { log } => write!(f, "Drop({})", log.id()),
            Self::Together(items) => f.debug_list().entries(items).finish(),
        }
    }
}

impl AppendItem {
    /// A batch, not of an idempotent producer, for one log or more, each of them once: an item, or as many as are needed.
    pub fn for_all(logs: &[Arc<Log>], bytes: &Bytes, header: BatchHeader) -> impl Iterator<Item = Self> {
        logs.chunks(SHARED_LOGS_MAX).map(move |logs| match logs {
            [log] => Self::Batch { log: Arc::clone(log), bytes: bytes.clone(), header, gate: None },
            _ => Self::Shared { logs: logs.into(), bytes: bytes.clone(), header },
        })
    }

    /// Bytes that the item's body takes in a chunk.
    pub fn body_bytes(&self) -> usize {
        match self {
            Self::Batch { bytes, .. } | Self::Shared { bytes, .. } => bytes.len(),
            Self::State { key, value } | Self::StateOf { key, value, .. } => {
                4 + key.len() + value.as_ref().map_or(0, Bytes::len)
            }
            Self::Trim { .. } | Self::Drop { .. } => 0,
            Self::Together(items) => items.iter().map(Self::body_bytes).sum(),
        }
    }

    /// Entries that it takes in the directory of a chunk.
    pub(crate) fn entries(&self) -> usize {
        if let Self::Together(items) = self { items.iter().map(Self::entries).sum() } else { 1 }
    }

    /// Logs of shared batches, which the directory of a chunk has behind its entries.
    pub(crate) fn references(&self) -> usize {
        match self {
            Self::Shared { logs, .. } => logs.len(),
            Self::Together(items) => items.iter().map(Self::references).sum(),
            _ => 0,
        }
    }

    /// Does it hold records, other than a marker of a transaction?
    pub(crate) fn is_data(&self) -> bool {
        match self {
            Self::Batch { header, .. } | Self::Shared { header, .. } => !header.control(),
            Self::State { .. } | Self::StateOf { .. } | Self::Trim { .. } | Self::Drop { .. } => false,
            Self::Together(items) => items.iter().any(Self::is_data),
        }
    }

    /// Does it let go of records, so that space comes of it? So does what deletes state together with other items: that is how logs begin to end.
    pub(crate) fn gives_back(&self) -> bool {
        let deletes = |item: &Self| matches!(item, Self::State { value: None, .. } | Self::StateOf { value: None, .. });
        match self {
            Self::Trim { .. } | Self::Drop { .. } => true,
            Self::Batch { .. } | Self::Shared { .. } | Self::State { .. } | Self::StateOf { .. } => false,
            Self::Together(items) => items.iter().any(|item| deletes(item) || item.gives_back()),
        }
    }

    /// Does it hold batches?
    pub(crate) fn has_batch(&self) -> bool {
        match self {
            Self::Batch { .. } | Self::Shared { .. } => true,
            Self::State { .. } | Self::StateOf { .. } | Self::Trim { .. } | Self::Drop { .. } => false,
            Self::Together(items) => items.iter().any(Self::has_batch),
        }
    }

    /// What counts against the bounds of the queue: its body and what goes with it.
    pub(crate) fn weight(&self) -> usize {
        self.body_bytes() + self.entries() * ITEM_OVERHEAD_BYTES + self.references() * REFERENCE_BYTES
    }
}

impl Journal {
    /// Bytes that a caller may put into one item, so that with its directory it finds room in a segment; one that is larger may be refused.
    pub fn item_bytes_max(&self) -> usize {
        largest_chunk(self.config().segment_bytes) / 2
    }

    /// Is there room in a segment for one item of these and `more` bytes? One that is larger is refused as [`AppendError::TooLarge`].
    pub fn takes(&self, items: &[AppendItem], more: usize) -> bool {
        let sum = |of: fn(&AppendItem) -> usize| items.iter().map(of).sum::<usize>();
        let directory = bodies_at(sum(AppendItem::entries), sum(AppendItem::references));
        padded(directory + sum(AppendItem::body_bytes) + more) <= largest_chunk(self.config().segment_bytes)
    }
}
