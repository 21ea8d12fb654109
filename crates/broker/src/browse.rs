//! Records by hand: what somebody who looks into a topic reads of a log, page by page, and one record that he publishes. Both may wait for
//! the disk, so they are not for a shard's thread.
//!
//! A reader sees what readers of committed records see. A producer is checked as Kafka's are (`crates/kafka-gateway`, produce): size of a
//! batch, timestamps, keys of compacted topics, room of bounded queues, the topic's codec and whose time counts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use journal::{AppendError, AppendItem, ColdWant, Log, ReadError, TailRead};
use record::{BatchBuilder, BatchError, BatchHeader, Record, SlicedBatch, records_within, repacked};
use record::{sliced_batches, stamp_append_time, validate_produced, whole};
use types::{Offset, Timestamp};

use crate::queues::{Admission, partition_of};
use crate::{Broker, Topic, aborted};

/// A batch whose records take more memory is passed over: somebody who looks is not worth it. A page ends where its batches have taken as much.
const UNPACKED_MAX: usize = 32 << 20;

/// Some records of a log, in order.
#[derive(Debug, Default)]
pub struct Page {
    /// Those that are committed and can be read.
    pub records: Vec<Record>,
    /// Where to go on.
    pub next: Offset,
    /// Bytes of batches that were looked through.
    pub bytes: usize,
    /// Batches that could not be taken apart: first offset, and why.
    pub unread: Vec<(Offset, BatchError)>,
}

/// What is to be published.
#[derive(Debug, Default)]
pub struct NewRecord {
    /// Where to; otherwise by the key, or if there is none by turns.
    pub partition: Option<u32>,
    /// Milliseconds since 1970; otherwise now.
    pub timestamp: Option<Timestamp>,
    /// Of the record.
    pub key: Option<Vec<u8>>,
    /// Of the record; without it is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Names and values, in order.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Of the topic.
    pub partition: u32,
    /// In the partition.
    pub offset: Offset,
    /// As stored.
    pub timestamp: Timestamp,
}

/// Why a record is not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// There are fewer.
    #[error("the topic has partitions 0 to {}", .count - 1)]
    Partition {
        /// How many there are.
        count: usize,
    },
    /// It would not survive compaction.
    #[error("a compacted topic takes no record without a key")]
    KeyNeeded,
    /// The topic bounds how far timestamps may lie from now.
    #[error("timestamp {timestamp} is {distance_ms} ms away from now, and the topic allows {allowed_ms} ms")]
    Timestamp {
        /// Milliseconds since 1970.
        timestamp: Timestamp,
        /// From now.
        distance_ms: i64,
        /// In that direction.
        allowed_ms: i64,
    },
    /// It is larger than the topic takes.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A bounded queue refuses it.
    #[error("the queue is full")]
    QueueFull,
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Broker {
    /// Committed records of `range`, about `max_bytes` of their batches, at least one batch; fewer when they unpack to more than somebody who
    /// looks is worth (64 MiB, and no more than a batch may unpack to).
    ///
    /// # Errors
    /// When what is on the disk cannot be read.
    pub fn browse(&self, log: &Arc<Log>, range: Range<Offset>, max_bytes: usize) -> Result<Page, ReadError> {
        let (from, until) = (range.start.max(log.start()), range.end.min(log.last_stable()));
        if from >= until {
            return Ok(Page { next: range.end.max(from), ..Page::default() });
        }
        let journal = self.journal_of(log.id());
        let (slices, next) = match journal.read_tail(log, from..until, max_bytes, true) {
            TailRead::Data { slices, next, .. } => (slices, next),
            TailRead::Cold => {
                let want = ColdWant { log: Arc::clone(log), from, until, max_bytes };
                let data = journal.read_cold(&[want], max_bytes).pop().transpose()?.unwrap_or_default();
                // Compaction may have left nothing from here on.
                if data.next <= from { (data.slices, until) } else { (data.slices, data.next) }
            }
            TailRead::Empty | TailRead::OutOfRange => return Ok(Page { next: until, ..Page::default() }),
        };
        let mut page = Page {
            next: next.min(until).max(from),
            bytes: slices.iter().map(bytes::Bytes::len).sum(),
            ..Page::default()
        };
        let batches = match sliced_batches(&slices) {
            Ok(batches) => batches,
            Err(error) => {
                page.unread.push((from, error));
                return Ok(page);
            }
        };
        let left_out = aborted(log, &slices, &batches, from, next);
        let unpacked_max = UNPACKED_MAX.min(self.unpacking().bytes_max());
        let mut room = unpacked_max;
        for (batch, _) in batches.iter().zip(left_out).filter(|(batch, aborted)| !aborted && !batch.header.control()) {
            match opened(&slices, batch, unpacked_max) {
                Ok(records) => {
                    let vouched = self.is_before_marks(log, &batch.header);
                    let wanted = records.into_iter().filter(|record| (from..until).contains(&record.offset));
                    let wanted = wanted.map(|record| Record { vouched: record.vouched || vouched, ..record });
                    page.records.extend(wanted.inspect(|record| room = room.saturating_sub(record.memory_bytes())));
                }
                Err(error) => page.unread.push((batch.header.base(), error)),
            }
            if room == 0 {
                page.next = batch.header.next().clamp(from, page.next);
                break;
            }
        }
        Ok(page)
    }

    /// Publishes a record, and waits until it is as durable as its topic asks for.
    ///
    /// # Errors
    /// What the topic does not allow; the journal did not take it.
    pub fn publish_record(self: &Arc<Self>, topic: &Topic, wanted: &NewRecord) -> Result<Published, PublishError> {
        let logs = topic.logs();
        let partition = wanted.partition.map_or_else(|| chosen(wanted, logs.len()), |partition| partition as usize);
        let log = logs.get(partition).ok_or(PublishError::Partition { count: logs.len() })?;
        let now = self.now_ms();
        let (bytes, header) = checked(topic, wanted, now)?;
        let queue = self.vhosts().queue_of(log.id()).filter(|_| topic.is_bounded());
        let admitted =
            queue.map(|queue| self.admit(&queue, 1, bytes.len())).transpose().map_err(|_| PublishError::QueueFull)?;
        let timestamp = header.max_timestamp;
        let item = AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None };
        let appended = self.commit_all(self.journal_number(log.id()), vec![item]).pop();
        admitted.flatten().into_iter().for_each(Admission::end);
        let appended = appended.ok_or(AppendError::Stopped)??;
        Ok(Published { partition: partition as u32, offset: appended.base, timestamp })
    }
}

/// The records of a batch; none of them keeps more memory than the batch itself.
fn opened(slices: &[bytes::Bytes], batch: &SlicedBatch, unpacked_max: usize) -> Result<Vec<Record>, BatchError> {
    records_within(&whole(slices, batch.at, batch.header.total_bytes()), unpacked_max)
}

/// The partition of a record that names none.
fn chosen(wanted: &NewRecord, count: usize) -> usize {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    match &wanted.key {
        Some(key) => partition_of(key, count.max(1)),
        None => TURN.fetch_add(1, Ordering::Relaxed) % count.max(1),
    }
}

/// The batch of a record, as its topic wants it.
fn checked(topic: &Topic, wanted: &NewRecord, now: Timestamp) -> Result<(bytes::Bytes, BatchHeader), PublishError> {
    let config = topic.config();
    if config.compacted && wanted.key.is_none() {
        return Err(PublishError::KeyNeeded);
    }
    let timestamp = wanted.timestamp.unwrap_or(now);
    let (before, after) = config.timestamp_window_ms;
    let (past, future) = (now.saturating_sub(timestamp), timestamp.saturating_sub(now));
    let out = if past > before {
        Some((past, before))
    } else if future > after {
        Some((future, after))
    } else {
        None
    };
    if let Some((distance_ms, allowed_ms)) = out.filter(|_| !config.append_time) {
        return Err(PublishError::Timestamp { timestamp, distance_ms, allowed_ms });
    }
    let headers: Vec<(&[u8], Option<&[u8]>)> =
        wanted.headers.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
    let batch = BatchBuilder::default()
        .record_with_headers(timestamp, wanted.key.as_deref(), wanted.value.as_deref(), &headers)
        .build();
    validate_produced(&batch, config.max_message_bytes)?;
    let packed = match config.packing {
        Some(packing) => repacked(&batch, packing, config.max_message_bytes, UNPACKED_MAX)?.unwrap_or(batch),
        None => batch,
    };
    let packed = if config.append_time {
        let mut copy = BytesMut::from(&packed[..]);
        stamp_append_time(&mut copy, now);
        copy.freeze()
    } else {
        packed
    };
    let header = BatchHeader::parse(&packed)?;
    Ok((packed, header))
}
