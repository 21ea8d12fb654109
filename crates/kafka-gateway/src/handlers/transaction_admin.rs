//! Transactions as administrators see them: DescribeTransactions, DescribeProducers, and WriteTxnMarkers, which ends what hangs. For ListTransactions
//! see `transaction_list.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::append::{Append, AppendItem};
use broker::{AclOperation, Broker, Reply, ReplyTo, Topic};
use delivery::{ProducerEpoch, Transaction, TransactionState};
use hashbrown::{HashMap, HashSet};
use kafka_wire::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};
use kafka_wire::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TopicData, TransactionState as Described,
};
use kafka_wire::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use record::{BatchHeader, Marker};
use types::LogId;

use super::{NO_ROOM, Outcome, Wait, once};
use crate::access::Asking;
use crate::answer_room::AnswerRoom;
use crate::body::Body;
use crate::error_code::of_append;
use crate::session::Context;
use crate::written::{Listing, Parts};

/// What a partition of a transaction takes while it is looked for, in bytes.
const LOG_BYTES: usize = 32;

/// What is told of a transactional id.
struct Seen {
    state: TransactionState,
    timeout: u64,
    started: u64,
    producer: ProducerEpoch,
    logs: Vec<LogId>,
}

impl Seen {
    fn of(known: &Transaction) -> Self {
        let Transaction { state, timeout, started, producer, .. } = *known;
        Self { state, timeout, started, producer, logs: known.logs.iter().copied().collect() }
    }
}

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeTransactionsRequest::decode(reader, context.version)?;
    let broker = &context.gateway.broker;
    // All are gone through for the names of those of a transaction.
    if context.is_long(broker.partition_count()) {
        return Ok(Outcome::Long);
    }
    let (asking, version) = (context.asking(), context.version);
    let mut room = AnswerRoom::new(context.gateway);
    // One has as many partitions as there are: what is named again and again is described once.
    let ids: Vec<&Str> = once(&request.transactional_ids, |id| id).map(|(id, _)| id).collect();
    let seen = look_at(broker, &asking, &ids, room.left());
    let names = Names::of(broker, seen.iter().flatten().flat_map(|seen| &seen.logs));
    let mut parts = Parts::counted(&context.gateway.pinned);
    for (id, seen) in ids.into_iter().zip(seen) {
        let refused = |code: ErrorCode| Described {
            error_code: code.code(),
            transactional_id: id.clone(),
            ..Described::default()
        };
        let described = match seen {
            Err(code) => refused(code),
            Ok(seen) => {
                let mut state = described(id.clone(), &seen, &names);
                state.topics.retain(|topic| asking.quietly().check_topic(AclOperation::Describe, &topic.topic).is_ok());
                if parts.push(&mut room, |writer| state.encode(writer, version)) {
                    continue;
                }
                refused(NO_ROOM)
            }
        };
        parts.add(|writer| described.encode(writer, version));
    }
    Ok(Outcome::answer(parts.of(DescribeTransactionsResponse::default())))
}

/// Looks at transactional ids, as far as what is taken of them is no more than `bytes`, or is of the first.
fn look_at(broker: &Broker, asking: &Asking<'_>, ids: &[&Str], bytes: usize) -> Vec<Result<Seen, ErrorCode>> {
    let mut logs = 0;
    let look = |id: &&Str| {
        if asking.check_transaction(AclOperation::Describe, id).is_err() && !id.is_empty() {
            return Err(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        let unknown = if id.is_empty() { ErrorCode::InvalidRequest } else { ErrorCode::TransactionalIdNotFound };
        let look = |known: &Transaction| {
            let fits = logs == 0 || (logs + known.logs.len()) * LOG_BYTES <= bytes;
            logs += known.logs.len();
            if fits { Ok(Seen::of(known)) } else { Err(NO_ROOM) }
        };
        broker.transactions().look_at(id, look).unwrap_or(Err(unknown))
    };
    ids.iter().map(look).collect()
}

/// Topics and partitions of logs.
struct Names {
    topics: Vec<Arc<Topic>>,
    /// Number of the topic, and of the partition.
    by_log: HashMap<LogId, (u32, i32)>,
}

impl Names {
    fn of<'a>(broker: &Broker, logs: impl Iterator<Item = &'a LogId>) -> Self {
        let wanted: HashSet<LogId> = logs.copied().collect();
        let (mut topics, mut by_log) = (Vec::new(), HashMap::with_capacity(wanted.len()));
        for topic in if wanted.is_empty() { Vec::new() } else { broker.topics() } {
            let before = by_log.len();
            for (index, log) in topic.logs().iter().enumerate().filter(|(_, log)| wanted.contains(&log.id())) {
                by_log.insert(log.id(), (topics.len() as u32, index as i32));
            }
            if by_log.len() > before {
                topics.push(topic);
            }
        }
        Self { topics, by_log }
    }

    fn find(&self, log: LogId) -> Option<(&str, i32)> {
        let (topic, partition) = self.by_log.get(&log)?;
        Some((&self.topics.get(*topic as usize)?.name, *partition))
    }
}

fn described(id: Str, seen: &Seen, names: &Names) -> Described {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in seen.logs.iter().filter_map(|log| names.find(*log)) {
        topics.entry(topic).or_default().push(partition);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| TopicData {
        topic: topic.into(),
        partitions,
        ..TopicData::default()
    });
    let under_way = !matches!(
        seen.state,
        TransactionState::Empty | TransactionState::CompleteAbort | TransactionState::CompleteCommit
    );
    Described {
        transactional_id: id,
        transaction_state: seen.state.name().into(),
        transaction_timeout_ms: seen.timeout as i32,
        transaction_start_time_ms: if under_way { seen.started as i64 } else { -1 },
        producer_id: seen.producer.0,
        producer_epoch: seen.producer.1,
        topics: topics.collect(),
        ..Described::default()
    }
}

impl Listing for DescribeTransactionsResponse {
    fn behind(_version: i16) -> (bool, usize) {
        // No tags.
        (true, 1)
    }
}

pub(crate) fn describe_producers(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeProducersRequest::decode(reader, context.version)?;
    let broker = &context.gateway.broker;
    let mut things = 0;
    let is_long = request.topics.iter().any(|topic| {
        let known = broker.topic(&topic.name);
        topic.partition_indexes.iter().any(|index| {
            let log = known.as_ref().and_then(|known| known.log(super::fetch::index(*index)?));
            things += 1 + log.map_or(0, |log| log.producer_count());
            context.is_long(things)
        })
    });
    if is_long {
        return Ok(Outcome::Long);
    }
    let (asking, version) = (context.asking(), context.version);
    let mut room = AnswerRoom::new(context.gateway);
    // Clients look for the leader again and ask again.
    let no_room = |index: i32| PartitionResponse {
        partition_index: index,
        error_code: ErrorCode::NotLeaderOrFollower.code(),
        error_message: Some(Str::from_static("There is no memory for this part of the answer.")),
        ..PartitionResponse::default()
    };
    // One has as many producers as there are: what is named again and again is described once.
    let mut seen = HashSet::new();
    let topics = request.topics.into_iter().map(|topic| {
        let known = broker.topic(&topic.name);
        let denied = asking.check_topic(AclOperation::Read, &topic.name).err();
        let fresh = topic.partition_indexes.iter().filter(|index| seen.insert((topic.name.clone(), **index)));
        let partitions = fresh.map(|index| {
            if let Some(code) = denied {
                return PartitionResponse {
                    partition_index: *index,
                    error_code: code.code(),
                    ..PartitionResponse::default()
                };
            }
            let log = known.as_ref().and_then(|known| known.log(super::fetch::index(*index)?));
            let Some(log) = log else {
                let error_code = ErrorCode::UnknownTopicOrPartition.code();
                return PartitionResponse { partition_index: *index, error_code, ..PartitionResponse::default() };
            };
            if !room.is_there() {
                return no_room(*index);
            }
            let active = log.producers().into_iter().map(|(producer_id, known, open)| ProducerState {
                producer_id,
                producer_epoch: i32::from(known.epoch),
                last_sequence: known.batches().last().map_or(-1, |batch| batch.last),
                last_timestamp: known.time,
                coordinator_epoch: 0,
                current_txn_start_offset: open.map_or(-1, |open| open.first.0 as i64),
                ..ProducerState::default()
            });
            let one = PartitionResponse {
                partition_index: *index,
                active_producers: active.collect(),
                ..PartitionResponse::default()
            };
            if room.take(|writer| one.encode(writer, version)) { one } else { no_room(*index) }
        });
        TopicResponse { partitions: partitions.collect(), name: topic.name, ..TopicResponse::default() }
    });
    Ok(Outcome::answer(DescribeProducersResponse { topics: topics.collect(), ..DescribeProducersResponse::default() }))
}

/// Where an error is told in the answer: marker, topic and partition.
type Place = (usize, usize, usize);

/// Markers on their way into one or more journals.
struct MarkersWait {
    response: WriteTxnMarkersResponse,
    /// By journal, in the order of the items.
    places: Vec<Vec<Place>>,
    open: usize,
}

impl Wait for MarkersWait {
    fn handle_reply(&mut self, part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Appended(results) = reply else { return None };
        for ((marker, topic, partition), result) in self.places.get(part as usize)?.iter().zip(results) {
            if let Err(error) = result {
                self.response.markers[*marker].topics[*topic].partitions[*partition].error_code =
                    of_append(error).code();
            }
        }
        self.open -= 1;
        (self.open == 0).then(|| Box::new(std::mem::take(&mut self.response)) as Box<dyn Body>)
    }
}

/// The markers of a request: what goes into each journal, and the answer. A partition that a marker names again has it once, and
/// each producer is answered once.
struct Markers<'a> {
    broker: &'a Broker,
    response: WriteTxnMarkersResponse,
    places: Vec<Vec<Place>>,
    items: Vec<Vec<AppendItem>>,
    /// Where a producer, a topic of it and a partition of that are in the answer; of a partition also which marker named it last.
    producers: HashMap<i64, usize>,
    topics: HashMap<(usize, Str), usize>,
    partitions: HashMap<(usize, usize, i32), (usize, usize)>,
}

impl<'a> Markers<'a> {
    fn new(broker: &'a Broker) -> Self {
        let (count, response) = (broker.journals().len(), WriteTxnMarkersResponse::default());
        let (places, items) = (vec![Vec::new(); count], (0..count).map(|_| Vec::new()).collect());
        let (producers, topics, partitions) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { broker, response, places, items, producers, topics, partitions }
    }

    /// Adds a marker, the `number`th; `denied` says why a topic may not have it.
    fn add(&mut self, number: usize, asked: WritableTxnMarker, denied: impl Fn(&Str) -> Option<ErrorCode>) {
        let marker = if asked.transaction_result { Marker::Commit } else { Marker::Abort };
        let now = self.broker.now_ms();
        let bytes = marker.batch(asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, now);
        let header =
            BatchHeader::parse(&bytes).ok().filter(|header| header.producer_id >= 0 && header.producer_epoch >= 0);
        let markers = &mut self.response.markers;
        let at = *self.producers.entry(asked.producer_id).or_insert(markers.len());
        if at == markers.len() {
            markers.push(WritableTxnMarkerResult { producer_id: asked.producer_id, ..Default::default() });
        }
        for WritableTxnMarkerTopic { name, partition_indexes, .. } in asked.topics {
            let (known, denied) = (self.broker.topic(&name), denied(&name));
            let topics = &mut self.response.markers[at].topics;
            let topic_at = *self.topics.entry((at, name.clone())).or_insert(topics.len());
            if topic_at == topics.len() {
                topics.push(WritableTxnMarkerTopicResult { name, ..Default::default() });
            }
            let partitions = &mut topics[topic_at].partitions;
            for index in partition_indexes {
                let next = (partitions.len(), usize::MAX);
                let (partition_at, last) = self.partitions.entry((at, topic_at, index)).or_insert(next);
                if std::mem::replace(last, number) == number {
                    continue;
                }
                let log = known.as_ref().and_then(|known| known.log(super::fetch::index(index)?));
                let error = match (log, header) {
                    _ if denied.is_some() => denied,
                    (None, _) => Some(ErrorCode::UnknownTopicOrPartition),
                    (_, None) => Some(ErrorCode::InvalidRequest),
                    (Some(log), Some(header)) => {
                        let journal = self.broker.journal_number(log.id());
                        self.places[journal].push((at, topic_at, *partition_at));
                        self.items[journal].push(AppendItem::Batch { log, bytes: bytes.clone(), header, gate: None });
                        None
                    }
                };
                if *partition_at == partitions.len() {
                    partitions.push(WritableTxnMarkerPartitionResult { partition_index: index, ..Default::default() });
                }
                if let Some(error) = error {
                    partitions[*partition_at].error_code = error.code();
                }
            }
        }
    }
}

pub(crate) fn write_markers(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = WriteTxnMarkersRequest::decode(reader, context.version)?;
    let broker = std::sync::Arc::clone(&context.gateway.broker);
    let (asking, acting) = (context.asking(), context.acting("WriteTxnMarkers"));
    let leave = asking
        .quietly()
        .check_cluster(AclOperation::Alter)
        .or_else(|_| asking.check_cluster(AclOperation::ClusterAction));
    let mut markers = Markers::new(&broker);
    for (number, asked) in request.markers.into_iter().enumerate() {
        let producer = format!("producer {}", asked.producer_id);
        markers
            .add(number, asked, |topic| leave.err().or_else(|| asking.check_queue(AclOperation::Write, topic).err()));
        match leave {
            Ok(()) => acting.say(&producer, "begun"),
            Err(code) => acting.note(&producer, code.code()),
        }
    }
    let Markers { response, places, items, .. } = markers;
    let submit = move |context: &mut Context<'_>| {
        let mut open = 0;
        for (journal, items) in items.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
            open += 1;
            let to = ReplyTo { token: context.to.token + journal as u64, ..context.to };
            context.append(journal, Append { to, items, acknowledge: true });
        }
        if open == 0 {
            Outcome::answer(response)
        } else {
            Outcome::Wait(Box::new(MarkersWait { response, places, open }))
        }
    };
    // A long request is looked at elsewhere.
    Ok(if context.gone.is_some() { Outcome::Resume(Box::new(submit)) } else { submit(context) })
}
