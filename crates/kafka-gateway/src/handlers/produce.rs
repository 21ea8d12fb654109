//! Produce: validates each batch by its head and checksum and hands it to its journal as it is.

use std::sync::Arc;
use std::time::Duration;

use broker::append::{Append, AppendError, AppendItem};
use broker::{AclOperation, Admission, Broker, Cause, Limit, LimitKind, Log, QueueFull, Reply, ReplyTo, TopicConfig};
use bytes::{Bytes, BytesMut};
use delivery::{Claim, ProducerEpoch, TransactionError, Version};
use kafka_wire::produce::{
    BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceData, TopicProduceResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Records};
use record::{BatchError, BatchHeader, Compression, Packing, repacked, stamp_append_time, validate_produced};
use smallvec::SmallVec;
use types::{LogId, TopicId};

use super::{Outcome, Wait};
use crate::body::Body;
use crate::error_code::{of_append, of_batch, of_transaction};
use crate::session::Context;

/// First version whose clients are sure to know zstd.
const ZSTD_SINCE: i16 = 7;

/// First version of the second transaction protocol: what is written is added to the transaction.
const IMPLICIT_SINCE: i16 = 12;
/// First version whose clients abort a transaction, and go on, when they are told to.
const ABORTABLE_SINCE: i16 = 11;

/// Partitions are fetched from memory this many batches before they are needed.
const PARTITIONS_AHEAD: usize = 8;

/// Where in the response an item of an append belongs.
type Place = (usize, usize);

/// One for each journal; mostly there is one.
type ByJournal<T> = SmallVec<[T; 1]>;

/// A request on its way through one or more journals.
struct ProduceWait {
    response: ProduceResponse,
    /// By journal: the places of its items, in their order.
    parts: ByJournal<SmallVec<[Place; 2]>>,
    open: usize,
    /// A refusal that was known at once.
    refused: Option<ErrorCode>,
    /// There are records of a transaction.
    transactional: bool,
    records: u64,
    bytes: u64,
    /// What topics' quotas ask the connection to wait.
    debt: Duration,
    /// What queues have admitted that may be full, until it is known to be in their logs.
    admitted: Vec<Admission>,
}

/// Why a partition's data is refused.
struct Refusal {
    code: ErrorCode,
    message: Option<String>,
    /// Start of the log, when the data got as far as the log.
    log_start: i64,
    /// Places of the records in the batch that it is about; some of them.
    records: Vec<i32>,
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None, log_start: -1, records: Vec::new() }
    }
}

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ProduceRequest::decode(reader, context.version)?;
    let journals = context.gateway.broker.journals().len();
    let mut wait = ProduceWait {
        response: ProduceResponse::default(),
        parts: (0..journals).map(|_| SmallVec::new()).collect(),
        open: 0,
        refused: None,
        transactional: false,
        records: 0,
        bytes: 0,
        debt: Duration::ZERO,
        admitted: Vec::new(),
    };
    let mut items: ByJournal<Vec<AppendItem>> = (0..journals).map(|_| Vec::new()).collect();
    let whole = check_request(&request).or_else(|| check_transaction(&request, context));
    let transactional_id = request.transactional_id.clone();
    for topic in request.topic_data {
        wait.take_topic(topic, whole, context, &mut items);
    }
    if wait.transactional {
        wait.enter_transaction(transactional_id.as_deref(), context, &mut items);
    }
    let acknowledge = request.acks != 0;
    for (journal, items) in items.into_iter().enumerate() {
        if !items.is_empty() {
            wait.open += 1;
            let to = ReplyTo { token: context.to.token + journal as u64, ..context.to };
            context.append(journal, Append { to, items, acknowledge });
        }
    }
    context.throttle.pause(context.gateway.broker.quotas(), Limit::Topic, wait.debt, context.now);
    if wait.open == 0 {
        wait.end_admissions();
    }
    let metrics = &context.gateway.metrics;
    metrics.produced_bytes.inc_by(wait.bytes);
    metrics.produced_records.inc_by(wait.records);
    Ok(match (acknowledge, wait.open) {
        // A producer that wants no answers learns of a refusal by the end of the connection.
        (false, _) => wait.refused.map_or(Outcome::Silent, Outcome::Close),
        (true, 0) => Outcome::answer(wait.response),
        (true, _) => Outcome::Wait(Box::new(wait)),
    })
}

/// Who may not use the transactional id gets no record of a transaction into any topic.
fn check_transaction(request: &ProduceRequest, context: &Context<'_>) -> Option<ErrorCode> {
    let id = request.transactional_id.as_deref()?;
    let code = context.asking().check_transaction(AclOperation::Write, id).err()?;
    let mut records = request.topic_data.iter().flat_map(|topic| &topic.partition_data).filter_map(|partition| partition.records.as_ref());
    let transactional = |records: &Records| BatchHeader::parse(&records.to_bytes()).is_ok_and(|header| header.transactional());
    records.any(transactional).then_some(code)
}

/// What makes the whole request impossible.
fn check_request(request: &ProduceRequest) -> Option<ErrorCode> {
    (!(-1..=1).contains(&request.acks)).then_some(ErrorCode::InvalidRequiredAcks)
}

impl ProduceWait {
    /// All that was admitted has its outcome.
    fn end_admissions(&mut self) {
        self.admitted.drain(..).for_each(Admission::end);
    }

    fn take_topic(
        &mut self,
        data: TopicProduceData,
        whole: Option<ErrorCode>,
        context: &Context<'_>,
        items: &mut [Vec<AppendItem>],
    ) {
        let broker = &context.gateway.broker;
        let by_id = context.version >= 13;
        let topic = if by_id { broker.topic_by_id(TopicId(data.topic_id)) } else { broker.topic(&data.name) };
        let unknown = if by_id { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
        let whole = whole.or_else(|| {
            let name = if by_id { topic.as_ref()?.name.as_str() } else { &*data.name };
            context.asking().check_topic(AclOperation::Write, name).err()
        });
        let at = self.response.responses.len();
        self.response.responses.push(TopicProduceResponse {
            name: data.name,
            topic_id: data.topic_id,
            partition_responses: Vec::with_capacity(data.partition_data.len()),
            ..TopicProduceResponse::default()
        });
        if let Some(topic) = &topic {
            context.waits.use_topic(topic.id);
        }
        let quotas = topic.as_ref().filter(|_| broker.quotas().limits_topics()).and_then(|topic| topic.quotas());
        let before = self.bytes;
        let topic = topic.map(|topic| Target { logs: topic.logs(), config: topic.config(), now: broker.now_ms(), bounded: topic.is_bounded() });
        let share = data.partition_data.len() / broker.journals().len();
        items.iter_mut().for_each(|items| items.reserve(share));
        self.parts.iter_mut().for_each(|places| places.reserve(share));
        let mut rest = data.partition_data.into_iter();
        while let Some(partition) = rest.next() {
            let index = partition.index;
            if let (Some(ahead), Some(topic)) = (rest.as_slice().get(PARTITIONS_AHEAD), &topic)
                && let Some(log) = topic.log(ahead.index)
            {
                log.prefetch();
            }
            let checked = match (&whole, &topic) {
                (Some(code), _) => Err((*code).into()),
                (None, None) => Err(unknown.into()),
                (None, Some(topic)) => check_partition(topic, partition, context.version).and_then(|checked| {
                    if topic.bounded { check_room(broker, &mut self.admitted, checked) } else { Ok(checked) }
                }),
            };
            let answers = &mut self.response.responses[at].partition_responses;
            let mut answer = PartitionProduceResponse { index, ..PartitionProduceResponse::default() };
            match checked {
                Ok((item, header)) => {
                    if let AppendItem::Batch { log, bytes, .. } = &item {
                        if header.append_time() {
                            answer.log_append_time_ms = header.max_timestamp;
                        }
                        answer.log_start_offset = log.start().0 as i64;
                        self.transactional |= header.transactional();
                        self.records += header.records_count as u64;
                        self.bytes += bytes.len() as u64;
                        let journal = broker.journal_number(log.id());
                        self.parts[journal].push((at, answers.len()));
                        items[journal].push(item);
                    }
                }
                Err(refusal) => {
                    if refusal.code == ErrorCode::MessageTooLarge {
                        broker.limits().note_refusal(LimitKind::BatchBytes);
                    }
                    self.refused = Some(refusal.code);
                    refuse(&mut answer, &refusal);
                }
            }
            answers.push(answer);
        }
        if let Some(account) = quotas.as_ref().and_then(|quotas| quotas.produce.as_ref()) {
            self.debt = self.debt.max(account.take(self.bytes - before, context.now));
        }
        if self.response.responses[at].partition_responses.is_empty() {
            self.response.responses.pop();
        }
    }
}

impl ProduceWait {
    /// Asks the coordinator for what belongs to a transaction. What it refuses is answered and not appended.
    fn enter_transaction(&mut self, id: Option<&str>, context: &Context<'_>, items: &mut [Vec<AppendItem>]) {
        let all = || items.iter().flatten().filter_map(in_transaction);
        let producer = all().next().map_or((-1, -1), |(_, producer)| producer);
        let version = if context.version >= IMPLICIT_SINCE { Version::V2 } else { Version::V1 };
        let outcome = match id {
            None => Err(ErrorCode::TransactionalIdAuthorizationFailed),
            Some(_) if all().any(|(_, other)| other != producer) => Err(ErrorCode::InvalidProducerIdMapping),
            Some(id) => {
                let logs: Vec<LogId> = all().map(|(log, _)| log).collect();
                context.gateway.broker.write_in_transaction(Claim { id, producer }, logs, version).map_err(|error| of_write(error, context.version))
            }
        };
        for (items, places) in items.iter_mut().zip(&mut self.parts) {
            match &outcome {
                Ok(passed) => {
                    for item in items.iter_mut() {
                        if let AppendItem::Batch { header, gate, .. } = item
                            && header.transactional()
                        {
                            *gate = Some(Arc::clone(passed));
                        }
                    }
                }
                Err(code) => {
                    let mut kept = Vec::with_capacity(items.len());
                    for (item, (topic, partition)) in std::mem::take(items).into_iter().zip(std::mem::take(places)) {
                        if in_transaction(&item).is_some() {
                            self.refused = Some(*code);
                            refuse(&mut self.response.responses[topic].partition_responses[partition], &(*code).into());
                        } else {
                            kept.push(item);
                            places.push((topic, partition));
                        }
                    }
                    *items = kept;
                }
            }
        }
    }
}

/// Log and producer of a batch that is part of a transaction.
fn in_transaction(item: &AppendItem) -> Option<(LogId, ProducerEpoch)> {
    match item {
        AppendItem::Batch { log, header, .. } if header.transactional() => Some((log.id(), (header.producer_id, header.producer_epoch))),
        _ => None,
    }
}

/// Old clients know fewer of the coordinator's codes from this API.
fn of_write(error: TransactionError, version: i16) -> ErrorCode {
    match error {
        TransactionError::Fenced => ErrorCode::InvalidProducerEpoch,
        TransactionError::Concurrent if version < IMPLICIT_SINCE => ErrorCode::NotEnoughReplicas,
        TransactionError::InvalidState if version >= ABORTABLE_SINCE => ErrorCode::TransactionAbortable,
        _ => of_transaction(error),
    }
}

fn refuse(answer: &mut PartitionProduceResponse, refusal: &Refusal) {
    answer.error_code = refusal.code.code();
    answer.base_offset = -1;
    answer.log_start_offset = refusal.log_start;
    if let Some(message) = &refusal.message {
        answer.error_message = Some(message.as_str().into());
        for place in &refusal.records {
            let error = BatchIndexAndErrorMessage {
                batch_index: *place,
                batch_index_error_message: answer.error_message.clone(),
                ..BatchIndexAndErrorMessage::default()
            };
            answer.record_errors.push(error);
        }
    }
}

/// Records that a refusal names at most.
const RECORDS_NAMED: usize = 1000;

/// A topic that is written to, as it is for the whole of a request.
struct Target {
    logs: Arc<[Arc<Log>]>,
    config: Arc<TopicConfig>,
    now: i64,
    /// A queue that may be full.
    bounded: bool,
}

impl Target {
    fn log(&self, partition: i32) -> Option<&Arc<Log>> {
        self.logs.get(usize::try_from(partition).ok()?)
    }
}

fn check_partition(topic: &Target, data: PartitionProduceData, version: i16) -> Result<(AppendItem, BatchHeader), Refusal> {
    let log = topic.log(data.index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let config = &topic.config;
    let bytes = data.records.as_ref().map(Records::to_bytes).unwrap_or_default();
    let header = validate_produced(&bytes, config.max_message_bytes)
        .map_err(|error| Refusal {
            code: of_batch(&error),
            message: Some(error.to_string()),
            log_start: if matches!(error, BatchError::Invalid { .. }) { log.start().0 as i64 } else { -1 },
            records: Vec::new(),
        })?;
    if header.base_offset != 0 {
        let message = Some("A producer's offsets begin at 0".to_owned());
        return Err(Refusal { code: ErrorCode::InvalidRecord, message, log_start: log.start().0 as i64, records: Vec::new() });
    }
    if header.compression() == Some(Compression::Zstd) && version < ZSTD_SINCE {
        return Err(ErrorCode::UnsupportedCompressionType.into());
    }
    if config.compacted {
        check_keys(&bytes).map_err(|refusal| Refusal { log_start: log.start().0 as i64, ..refusal })?;
    }
    if !config.append_time {
        check_timestamps(&bytes, &header, config.timestamp_window_ms, topic.now)
            .map_err(|refusal| Refusal { log_start: log.start().0 as i64, ..refusal })?;
    }
    let (bytes, header) = match config.packing.filter(|packing| header.compression() != Some(packing.codec)) {
        Some(packing) => repack(&bytes, packing, config.max_message_bytes, log.start().0 as i64)?,
        None => (bytes, header),
    };
    let (bytes, header) = if config.append_time { restamp(&bytes, topic.now) } else { (bytes, header) };
    Ok((AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }, header))
}

/// A queue that refuses messages when it is full does so whoever they come from.
fn check_room(
    broker: &Arc<Broker>,
    admitted: &mut Vec<Admission>,
    checked: (AppendItem, BatchHeader),
) -> Result<(AppendItem, BatchHeader), Refusal> {
    let (AppendItem::Batch { log, bytes, .. }, header) = &checked else { return Ok(checked) };
    let Some(queue) = broker.vhosts().queue_of(log.id()) else { return Ok(checked) };
    match broker.admit(&queue, header.records_count as u64, bytes.len()) {
        Ok(admission) => {
            admitted.extend(admission);
            Ok(checked)
        }
        Err(QueueFull) => {
            let message = Some("The queue is full".to_owned());
            Err(Refusal { code: ErrorCode::PolicyViolation, message, log_start: log.start().0 as i64, records: Vec::new() })
        }
    }
}

/// Compaction goes by keys. The one case in which records are looked into on their way in.
fn check_keys(bytes: &[u8]) -> Result<(), Refusal> {
    let corrupt = |error: BatchError| Refusal { message: Some(error.to_string()), ..of_batch(&error).into() };
    let records = record::records(bytes).map_err(corrupt)?;
    let places = (0..).zip(&records);
    let keyless: Vec<i32> = places.clone().filter(|(_, record)| record.key.is_none()).map(|(place, _)| place).take(RECORDS_NAMED).collect();
    if !keyless.is_empty() {
        let message = Some("A compacted topic takes no record without a key".to_owned());
        return Err(Refusal { message, records: keyless, ..ErrorCode::InvalidRecord.into() });
    }
    // Compaction finds records by what they say of their place.
    if places.into_iter().any(|(place, record)| record.offset.0 != place as u64) {
        let message = Some("The records of a batch are not numbered from 0 on".to_owned());
        return Err(Refusal { message, ..ErrorCode::InvalidRecord.into() });
    }
    Ok(())
}

/// A topic may want another codec than the producer's.
fn repack(bytes: &Bytes, packing: Packing, bytes_max: usize, log_start: i64) -> Result<(Bytes, BatchHeader), Refusal> {
    let refuse = |error: BatchError| {
        let message = Some(error.to_string());
        match error {
            BatchError::TooLarge { .. } => Refusal { message, ..of_batch(&error).into() },
            // The checksum was right: sending it again does not help.
            _ => Refusal { message, log_start, ..ErrorCode::InvalidRecord.into() },
        }
    };
    let packed = repacked(bytes, packing, bytes_max).map_err(refuse)?.unwrap_or_else(|| bytes.clone());
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

fn check_timestamps(bytes: &[u8], header: &BatchHeader, (before, after): (i64, i64), now: i64) -> Result<(), Refusal> {
    let too_old = |timestamp: i64| timestamp >= 0 && now.saturating_sub(timestamp) > before;
    let too_new = |timestamp: i64| timestamp.saturating_sub(now) > after;
    if !too_old(header.base_timestamp) && !too_new(header.max_timestamp) {
        return Ok(());
    }
    let message = format!("Timestamp {} of message is out of range", header.max_timestamp);
    // What cannot be read is as bad as its batch.
    let unpacked = record::records(bytes).unwrap_or_default();
    let bad = (0..).zip(&unpacked).filter(|(_, record)| too_old(record.timestamp) || too_new(record.timestamp));
    let mut records: Vec<i32> = bad.map(|(place, _)| place).take(RECORDS_NAMED).collect();
    if records.is_empty() {
        records.push(0);
    }
    Err(Refusal { message: Some(message), records, ..ErrorCode::InvalidTimestamp.into() })
}

impl Wait for ProduceWait {
    fn cause(&self) -> Cause {
        Cause::Disk
    }

    fn handle_reply(&mut self, part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Appended(results) = reply else { return None };
        for ((topic, partition), result) in self.parts[part as usize].iter().zip(results) {
            let answer = &mut self.response.responses[*topic].partition_responses[*partition];
            match result {
                Ok(appended) => {
                    answer.base_offset = appended.base.0 as i64;
                    answer.log_start_offset = appended.log_start.0 as i64;
                }
                Err(error) => {
                    let of_sequence = matches!(error, AppendError::OutOfOrderSequence | AppendError::InvalidProducerEpoch | AppendError::NotInTransaction);
                    let log_start = if of_sequence { answer.log_start_offset } else { -1 };
                    refuse(answer, &Refusal { message: Some(error.to_string()), log_start, ..of_append(error).into() });
                }
            }
        }
        self.open -= 1;
        if self.open == 0 {
            self.end_admissions();
        }
        (self.open == 0).then(|| Box::new(std::mem::take(&mut self.response)) as Box<dyn Body>)
    }
}

