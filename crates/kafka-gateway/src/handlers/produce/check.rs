//! What a batch must fulfil before it is appended, and what its topic makes of it. Most batches are judged by their head and checksum. Where
//! records are looked into, an [`Effort`] bounds what may be unpacked.

use std::ops::ControlFlow;
use std::sync::Arc;

use broker::append::AppendItem;
use broker::{Log, TopicConfig, TopicQuotas};
use bytes::{Bytes, BytesMut};
use kafka_wire::ErrorCode;
use record::{
    BatchError, BatchHeader, Compression, Packing, repacked, scan, stamp_append_time, unpacked_bytes,
    validate_produced, without_vouching,
};

use super::{Refusal, ZSTD_SINCE};
use crate::error_code::of_batch;

/// Records that a refusal names at most.
const RECORDS_NAMED: usize = 1000;
/// What the batches of one request may unpack to, all together, on a network thread …
const HERE_BYTES_MAX: usize = 1 << 20;
/// … and one of them: so many bytes, and so many times its own.
const HERE_BATCH_BYTES: usize = 64 << 10;
const HERE_RATIO: usize = 16;
/// Packing a byte takes about as long as unpacking so many.
const PACKING_COST: usize = 16;

/// A topic that is written to, as it is for the whole of a request.
#[derive(Clone)]
pub(super) struct Target {
    pub logs: Arc<[Arc<Log>]>,
    pub config: Arc<TopicConfig>,
    pub now: i64,
    /// A queue that may be full.
    pub bounded: bool,
    /// A queue gives its records to AMQP consumers one by one.
    pub queued: bool,
    pub quotas: Option<Arc<TopicQuotas>>,
}

impl Target {
    pub fn log(&self, partition: i32) -> Option<&Arc<Log>> {
        self.logs.get(usize::try_from(partition).ok()?)
    }
}

/// How much may be unpacked for looks at batches.
pub(super) struct Effort {
    /// On a network thread: so much more.
    left: usize,
    /// Elsewhere: so much of each batch, and what takes more is refused.
    bytes_max: usize,
    is_final: bool,
}

impl Effort {
    /// On a network thread: what takes more is to be done elsewhere.
    pub fn here(bytes_max: usize) -> Self {
        Self { left: HERE_BYTES_MAX, bytes_max, is_final: false }
    }

    /// Elsewhere: no batch may unpack to more.
    pub fn elsewhere(bytes_max: usize) -> Self {
        Self { left: 0, bytes_max, is_final: true }
    }

    /// Looks into a batch, at the cost of `cost` for each byte that comes out of it.
    fn look<T>(
        &mut self,
        batch: &[u8],
        cost: usize,
        look: impl FnOnce(usize) -> Result<T, BatchError>,
    ) -> Result<T, Stop> {
        let here = (self.left / cost).min(HERE_BATCH_BYTES / cost + batch.len().saturating_mul(HERE_RATIO) / cost);
        let limit = if self.is_final { self.bytes_max } else { here.min(self.bytes_max) };
        let before = unpacked_bytes();
        let looked = look(limit);
        let unpacked = usize::try_from(unpacked_bytes() - before).unwrap_or(usize::MAX);
        self.left = self.left.saturating_sub(unpacked.saturating_mul(cost));
        match looked {
            Err(BatchError::TooLarge { .. }) if !self.is_final => Err(Stop::Later),
            looked => looked.map_err(Stop::Unreadable),
        }
    }

    /// A batch is packed, whatever it is packed from.
    fn pack(&mut self, bytes: &Bytes, packing: Packing, batch_bytes_max: usize) -> Result<Option<Bytes>, Stop> {
        let packed = BatchHeader::parse(bytes).is_ok_and(|header| header.compression() != Some(Compression::None));
        if !self.is_final && !packed {
            // Nothing is unpacked then, which counts otherwise.
            if bytes.len() > self.left / PACKING_COST {
                return Err(Stop::Later);
            }
            self.left -= bytes.len() * PACKING_COST;
        }
        let cost = if packing.codec == Compression::None { 1 } else { PACKING_COST };
        self.look(bytes, cost, |limit| repacked(bytes, packing, batch_bytes_max, limit))
    }
}

/// Why a batch is not to be appended now.
pub(super) enum Stop {
    /// It takes too long for this thread to find out.
    Later,
    /// It cannot be looked into.
    Unreadable(BatchError),
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ErrorCode> for Stop {
    fn from(code: ErrorCode) -> Self {
        Self::Refused(code.into())
    }
}

/// What is to be appended.
pub(super) struct Checked {
    pub item: AppendItem,
    pub header: BatchHeader,
    /// Bytes of the values of its records, if these have been looked at.
    pub value_bytes: Option<usize>,
}

/// Looks at a batch. `None`: that is for another thread, whose effort is less bounded.
///
/// # Errors
/// Why nothing is to be appended.
pub(super) fn check(
    topic: &Target,
    index: i32,
    bytes: &Bytes,
    version: i16,
    effort: &mut Effort,
) -> Result<Option<Checked>, Refusal> {
    match check_batch(topic, index, bytes, version, effort) {
        Ok(checked) => Ok(Some(checked)),
        Err(Stop::Later) => Ok(None),
        Err(Stop::Refused(refusal)) => Err(refusal),
        Err(Stop::Unreadable(error)) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &BatchError) -> Refusal {
    Refusal { message: Some(error.to_string()), ..of_batch(error).into() }
}

fn check_batch(topic: &Target, index: i32, bytes: &Bytes, version: i16, effort: &mut Effort) -> Result<Checked, Stop> {
    let log = topic.log(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let log_start = || log.start().0 as i64;
    let config = &topic.config;
    let cleared = without_vouching(bytes);
    let bytes = cleared.as_ref().unwrap_or(bytes);
    let header = validate_produced(bytes, config.max_message_bytes).map_err(|error| Refusal {
        code: of_batch(&error),
        message: Some(error.to_string()),
        log_start: if matches!(error, BatchError::Invalid { .. }) { log_start() } else { -1 },
        records: Vec::new(),
    })?;
    if header.base_offset != 0 {
        let message = Some("A producer's offsets begin at 0".to_owned());
        return Err(
            Refusal { code: ErrorCode::InvalidRecord, message, log_start: log_start(), records: Vec::new() }.into()
        );
    }
    if header.compression() == Some(Compression::Zstd) && version < ZSTD_SINCE {
        return Err(ErrorCode::UnsupportedCompressionType.into());
    }
    let at_log = |stop: Stop| match stop {
        Stop::Later => Stop::Later,
        Stop::Unreadable(error) => Stop::Refused(Refusal { log_start: log_start(), ..unreadable(&error) }),
        Stop::Refused(refusal) => Stop::Refused(Refusal { log_start: log_start(), ..refusal }),
    };
    let value_bytes = if config.compacted {
        Some(check_keys(bytes, effort).map_err(at_log)?)
    } else if topic.queued && header.compression() != Some(Compression::None) {
        check_queued(bytes, effort).map_err(at_log)?
    } else {
        None
    };
    if !config.append_time {
        check_timestamps(bytes, &header, config.timestamp_window_ms, topic.now, effort).map_err(at_log)?;
    }
    let (bytes, header) = match config.packing.filter(|packing| header.compression() != Some(packing.codec)) {
        Some(packing) => repack(bytes, packing, config.max_message_bytes, log_start(), effort)?,
        None => (bytes.clone(), header),
    };
    let (bytes, header) = if config.append_time { restamp(&bytes, topic.now) } else { (bytes, header) };
    Ok(Checked { item: AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }, header, value_bytes })
}

/// Compaction goes by keys, and finds records by what they say of their place. Bytes of their values.
fn check_keys(bytes: &[u8], effort: &mut Effort) -> Result<usize, Stop> {
    let (mut keyless, mut misplaced, mut value_bytes) = (Vec::new(), false, 0);
    effort.look(bytes, 1, |limit| {
        let mut place = 0;
        scan(bytes, limit, |record| {
            if !record.keyed {
                keyless.push(place);
            }
            misplaced |= record.offset.0 != place as u64;
            value_bytes += record.value_bytes;
            place += 1;
            if keyless.len() >= RECORDS_NAMED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    })?;
    if !keyless.is_empty() {
        let message = Some("A compacted topic takes no record without a key".to_owned());
        return Err(Refusal { message, records: keyless, ..ErrorCode::InvalidRecord.into() }.into());
    }
    if misplaced {
        let message = Some("The records of a batch are not numbered from 0 on".to_owned());
        return Err(Refusal { message, ..ErrorCode::InvalidRecord.into() }.into());
    }
    Ok(value_bytes)
}

/// What a queue holds is unpacked again for its consumers: it must be possible within the bound. Bytes of the values, if they can be read.
fn check_queued(bytes: &[u8], effort: &mut Effort) -> Result<Option<usize>, Stop> {
    match effort.look(bytes, 1, |limit| value_bytes(bytes, limit)) {
        Ok(value_bytes) => Ok(Some(value_bytes)),
        // What makes no sense is found by whoever reads it, as in any topic.
        Err(Stop::Unreadable(error)) if !matches!(error, BatchError::TooLarge { .. }) => Ok(None),
        Err(stop) => Err(stop),
    }
}

/// Bytes of the values of all records of a batch.
///
/// # Errors
/// As [`scan`].
pub(super) fn value_bytes(batch: &[u8], limit: usize) -> Result<usize, BatchError> {
    let mut sum = 0;
    scan(batch, limit, |record| {
        sum += record.value_bytes;
        ControlFlow::Continue(())
    })?;
    Ok(sum)
}

/// A topic may want another codec than the producer's.
fn repack(
    bytes: &Bytes,
    packing: Packing,
    bytes_max: usize,
    log_start: i64,
    effort: &mut Effort,
) -> Result<(Bytes, BatchHeader), Stop> {
    let refuse = |error: BatchError| match error {
        BatchError::TooLarge { .. } => unreadable(&error),
        // The checksum was right: sending it again does not help.
        _ => Refusal { message: Some(error.to_string()), log_start, ..ErrorCode::InvalidRecord.into() },
    };
    let packed = effort.pack(bytes, packing, bytes_max).map_err(|stop| match stop {
        Stop::Unreadable(error) => Stop::Refused(refuse(error)),
        stop => stop,
    })?;
    let packed = packed.unwrap_or_else(|| bytes.clone());
    let header = BatchHeader::parse(&packed).map_err(refuse)?;
    Ok((packed, header))
}

/// A topic may want the broker's time.
fn restamp(bytes: &Bytes, now: i64) -> (Bytes, BatchHeader) {
    let mut copy = BytesMut::from(&bytes[..]);
    stamp_append_time(&mut copy, now);
    let header = BatchHeader::parse(&copy).expect("a valid batch stays valid with another timestamp");
    (copy.freeze(), header)
}

fn check_timestamps(
    bytes: &[u8],
    header: &BatchHeader,
    (before, after): (i64, i64),
    now: i64,
    effort: &mut Effort,
) -> Result<(), Stop> {
    let too_old = |timestamp: i64| timestamp >= 0 && now.saturating_sub(timestamp) > before;
    let too_new = |timestamp: i64| timestamp.saturating_sub(now) > after;
    if !too_old(header.base_timestamp) && !too_new(header.max_timestamp) {
        return Ok(());
    }
    let message = format!("Timestamp {} of message is out of range", header.max_timestamp);
    let mut records = Vec::new();
    let looked = effort.look(bytes, 1, |limit| {
        let mut place = 0;
        scan(bytes, limit, |record| {
            if too_old(record.timestamp) || too_new(record.timestamp) {
                records.push(place);
            }
            place += 1;
            if records.len() >= RECORDS_NAMED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    match looked {
        Err(Stop::Later) => return Err(Stop::Later),
        Ok(()) => {}
        // What cannot be read is as bad as its batch.
        Err(_) => records.clear(),
    }
    if records.is_empty() {
        records.push(0);
    }
    Err(Refusal { message: Some(message), records, ..ErrorCode::InvalidTimestamp.into() }.into())
}
