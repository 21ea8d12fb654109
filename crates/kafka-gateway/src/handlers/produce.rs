//! Produce: validates each batch by its head and checksum and hands it to its journal as it is. A request with batches that have to be
//! unpacked, and unpack to more than a network thread has time for, waits for another thread (`produce/unpacking.rs`).

mod check;
mod unpacking;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use broker::append::{Append, AppendError, AppendItem};
use broker::{AclOperation, Admission, Broker, Cause, Limit, LimitKind, QueueFull, Reply, ReplyTo};
use delivery::{Claim, ProducerEpoch, TransactionError, Version};
use kafka_wire::produce::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
    TopicProduceResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Records, Str};
use record::{BatchHeader, Compression};
use smallvec::SmallVec;
use types::{ConnectionId, LogId, TopicId};

use super::{Outcome, Wait};
use crate::access::HIDDEN;
use crate::body::{Body, Silence};
use crate::error_code::{of_append, of_transaction};
use crate::session::{Context, ShardContext};
use check::{Checked, Effort, Target, check, value_bytes};
use unpacking::{Deferred, Unpacked};

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
    /// Batches that another thread looks into. Those behind them in the request are among them, so that they are appended in order.
    deferred: Vec<Deferred>,
    /// What waits for them.
    held: Option<Box<Held>>,
}

/// A request on its way to the journals.
struct Held {
    items: ByJournal<Vec<AppendItem>>,
    transactional_id: Option<Str>,
    acknowledge: bool,
    /// The connection is gone.
    abandoned: Arc<AtomicBool>,
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
        deferred: Vec::new(),
        held: None,
    };
    let mut items: ByJournal<Vec<AppendItem>> = (0..journals).map(|_| Vec::new()).collect();
    let whole = check_request(&request).or_else(|| check_transaction(&request, context));
    let transactional_id = request.transactional_id.clone();
    let mut effort = Effort::here(context.gateway.broker.unpacking().bytes_max());
    for topic in request.topic_data {
        wait.take_topic(topic, whole, context, &mut items, &mut effort);
    }
    let acknowledge = request.acks != 0;
    if !wait.deferred.is_empty() {
        let held = Held { items, transactional_id, acknowledge, abandoned: Arc::default() };
        return Ok(wait.defer(held, context));
    }
    wait.append(items, transactional_id.as_deref(), acknowledge, context);
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
    let mut records = request
        .topic_data
        .iter()
        .flat_map(|topic| &topic.partition_data)
        .filter_map(|partition| partition.records.as_ref());
    let transactional =
        |records: &Records| BatchHeader::parse(&records.to_bytes()).is_ok_and(|header| header.transactional());
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
        effort: &mut Effort,
    ) {
        let broker = &context.gateway.broker;
        let by_id = context.version >= 13;
        let topic = if by_id { broker.topic_by_id(TopicId(data.topic_id)) } else { broker.topic(&data.name) };
        let unknown = if by_id { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
        let whole = whole.or_else(|| {
            let name = if by_id { topic.as_ref()?.name.as_str() } else { &*data.name };
            context
                .asking()
                .check_found(AclOperation::Write, name, topic.as_deref())
                .err()
                .map(|code| if code == HIDDEN { unknown } else { code })
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
        let topic = topic.map(|topic| Target {
            logs: topic.logs(),
            config: topic.config(),
            now: broker.now_ms(),
            bounded: topic.is_bounded(),
            queued: topic.is_queued(),
            quotas,
        });
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
            let place = (at, self.response.responses[at].partition_responses.len());
            self.response.responses[at]
                .partition_responses
                .push(PartitionProduceResponse { index, ..PartitionProduceResponse::default() });
            let topic = match (&whole, &topic) {
                (None, Some(topic)) => topic,
                (code, _) => {
                    self.refuse(broker, place, &code.unwrap_or(unknown).into());
                    continue;
                }
            };
            let bytes = partition.records.as_ref().map(Records::to_bytes).unwrap_or_default();
            let checked =
                if self.deferred.is_empty() { check(topic, index, &bytes, context.version, effort) } else { Ok(None) };
            match checked {
                Ok(Some(checked)) => self.take_batch(broker, place, topic, checked, items),
                Ok(None) => self.deferred.push(Deferred { place, topic: topic.clone(), index, bytes }),
                Err(refusal) => self.refuse(broker, place, &refusal),
            }
        }
        let quotas = topic.as_ref().and_then(|topic| topic.quotas.as_ref());
        if let Some(account) = quotas.and_then(|quotas| quotas.produce.as_ref()) {
            self.debt = self.debt.max(account.take(self.bytes - before, context.now));
        }
        if self.response.responses[at].partition_responses.is_empty() {
            self.response.responses.pop();
        }
    }
}

impl ProduceWait {
    /// A batch is as it should be: it is appended, unless its queue is full.
    fn take_batch(
        &mut self,
        broker: &Arc<Broker>,
        place: Place,
        topic: &Target,
        checked: Checked,
        items: &mut [Vec<AppendItem>],
    ) {
        if topic.bounded
            && let Err(refusal) = check_room(broker, &mut self.admitted, &checked)
        {
            return self.refuse(broker, place, &refusal);
        }
        let Checked { item, header, .. } = checked;
        let answer = &mut self.response.responses[place.0].partition_responses[place.1];
        if let AppendItem::Batch { log, bytes, .. } = &item {
            if header.append_time() {
                answer.log_append_time_ms = header.max_timestamp;
            }
            answer.log_start_offset = log.start().0 as i64;
            self.transactional |= header.transactional();
            self.records += header.records_count as u64;
            self.bytes += bytes.len() as u64;
            let journal = broker.journal_number(log.id());
            self.parts[journal].push(place);
            items[journal].push(item);
        }
    }

    fn refuse(&mut self, broker: &Broker, (topic, partition): Place, refusal: &Refusal) {
        if refusal.code == ErrorCode::MessageTooLarge {
            broker.limits().note_refusal(LimitKind::BatchBytes);
        }
        self.refused = Some(refusal.code);
        refuse(&mut self.response.responses[topic].partition_responses[partition], refusal);
    }

    /// Hands to the journals what is to be appended.
    fn append(
        &mut self,
        mut items: ByJournal<Vec<AppendItem>>,
        transactional_id: Option<&str>,
        acknowledge: bool,
        context: &mut Context<'_>,
    ) {
        if self.transactional {
            self.enter_transaction(transactional_id, context, &mut items);
        }
        for (journal, items) in items.into_iter().enumerate() {
            if !items.is_empty() {
                self.open += 1;
                let to = ReplyTo { token: context.to.token + journal as u64, ..context.to };
                context.append(journal, Append { to, items, acknowledge });
            }
        }
        context.throttle.pause(context.gateway.broker.quotas(), Limit::Topic, self.debt, context.now);
        if self.open == 0 {
            self.end_admissions();
        }
        let metrics = &context.gateway.metrics;
        metrics.produced_bytes.inc_by(self.bytes);
        metrics.produced_records.inc_by(self.records);
    }

    /// Has another thread look into batches; the request goes on when it has.
    fn defer(mut self, held: Held, context: &Context<'_>) -> Outcome {
        let work = unpacking::work(std::mem::take(&mut self.deferred), context.version, Arc::clone(&held.abandoned));
        if !context.gateway.broker.unpack(context.peer.ip(), context.to, work) {
            // The broker ends.
            return Outcome::Close(ErrorCode::CoordinatorNotAvailable);
        }
        self.held = Some(Box::new(held));
        Outcome::Wait(Box::new(self))
    }

    /// Goes on with what came of batches that another thread has looked into.
    fn take_unpacked(
        &mut self,
        held: Held,
        unpacked: Vec<Unpacked>,
        context: &mut Context<'_>,
    ) -> Option<Box<dyn Body>> {
        let Held { mut items, transactional_id, acknowledge, .. } = held;
        let broker = Arc::clone(&context.gateway.broker);
        for Unpacked { place, topic, outcome } in unpacked {
            let before = self.bytes;
            match outcome {
                Ok(checked) => self.take_batch(&broker, place, &topic, checked, &mut items),
                Err(refusal) => self.refuse(&broker, place, &refusal),
            }
            if let Some(account) = topic.quotas.as_ref().and_then(|quotas| quotas.produce.as_ref()) {
                self.debt = self.debt.max(account.take(self.bytes - before, context.now));
            }
        }
        self.append(items, transactional_id.as_deref(), acknowledge, context);
        match (acknowledge, self.open) {
            (false, _) => Some(Box::new(Silence { refused: self.refused })),
            (true, 0) => Some(Box::new(std::mem::take(&mut self.response))),
            (true, _) => None,
        }
    }

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
                context
                    .gateway
                    .broker
                    .write_in_transaction(Claim { id, producer }, logs, version)
                    .map_err(|error| of_write(error, context.version))
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
        AppendItem::Batch { log, header, .. } if header.transactional() => {
            Some((log.id(), (header.producer_id, header.producer_epoch)))
        }
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

/// A queue that refuses messages when it is full refuses them from anybody. It counts the bytes of values, as it does of what it has: of batches
/// that are compressed they are known, others are looked at where a queue is limited by bytes.
fn check_room(broker: &Arc<Broker>, admitted: &mut Vec<Admission>, checked: &Checked) -> Result<(), Refusal> {
    let AppendItem::Batch { log, bytes, .. } = &checked.item else { return Ok(()) };
    let Some(queue) = broker.vhosts().queue_of(log.id()) else { return Ok(()) };
    let weigh = || match checked.header.compression() {
        Some(Compression::None) if queue.understood().bytes_max.is_some() => value_bytes(bytes, bytes.len()).ok(),
        _ => None,
    };
    let size = checked.value_bytes.or_else(weigh).unwrap_or(bytes.len());
    match broker.admit(&queue, checked.header.records_count as u64, size) {
        Ok(admission) => {
            admitted.extend(admission);
            Ok(())
        }
        Err(QueueFull) => {
            let message = Some("The queue is full".to_owned());
            Err(Refusal {
                code: ErrorCode::PolicyViolation,
                message,
                log_start: log.start().0 as i64,
                records: Vec::new(),
            })
        }
    }
}

impl Wait for ProduceWait {
    fn cause(&self) -> Cause {
        Cause::Disk
    }

    fn holds_reading(&self) -> bool {
        self.held.is_some()
    }

    fn cancel(&mut self, _connection: ConnectionId, _shard: &mut ShardContext) {
        if let Some(held) = &self.held {
            held.abandoned.store(true, Ordering::Relaxed);
        }
    }

    fn handle_reply(&mut self, part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let results = match reply {
            Reply::Appended(results) => results,
            Reply::Done(done) => {
                let held = self.held.take()?;
                let unpacked = done.downcast::<Vec<Unpacked>>().ok()?;
                return self.take_unpacked(*held, *unpacked, context);
            }
            Reply::Failed => return None,
        };
        for ((topic, partition), result) in self.parts[part as usize].iter().zip(results) {
            let answer = &mut self.response.responses[*topic].partition_responses[*partition];
            match result {
                Ok(appended) => {
                    answer.base_offset = appended.base.0 as i64;
                    answer.log_start_offset = appended.log_start.0 as i64;
                }
                Err(error) => {
                    let of_sequence = matches!(
                        error,
                        AppendError::OutOfOrderSequence
                            | AppendError::InvalidProducerEpoch
                            | AppendError::NotInTransaction
                    );
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
