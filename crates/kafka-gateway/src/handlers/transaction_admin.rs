//! Transactions as administrators see them: DescribeTransactions, ListTransactions, DescribeProducers, and WriteTxnMarkers, which
//! ends what hangs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use broker::append::{Append, AppendItem};
use broker::{AclOperation, Broker, Expression, Reply, ReplyTo};
use delivery::{Transaction, TransactionState};
use hashbrown::HashSet;
use kafka_wire::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};
use kafka_wire::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TopicData, TransactionState as Described,
};
use kafka_wire::list_transactions::{ListTransactionsRequest, ListTransactionsResponse, TransactionState as Listed};
use kafka_wire::write_txn_markers::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult, WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use record::{BatchHeader, Marker};
use types::LogId;

use super::{NO_ROOM, Outcome, Wait, once};
use crate::answer_room::AnswerRoom;
use crate::body::Body;
use crate::error_code::of_append;
use crate::session::Context;

/// The states that a filter may name: those in use here, and those of Kafka that nothing is ever in.
const STATES: &[&str] = &[
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
];

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeTransactionsRequest::decode(reader, context.version)?;
    let broker = &context.gateway.broker;
    // All are gone through for the names of those of a transaction.
    if context.is_long(broker.partition_count()) {
        return Ok(Outcome::Long);
    }
    // One has as many partitions as there are: what is named again and again is described once.
    let ids = once(&request.transactional_ids, |id| id).map(|(id, _)| id.clone());
    let found: Vec<(Str, Option<Transaction>)> = ids.map(|id| (id.clone(), broker.transactions().describe(&id))).collect();
    let logs = found.iter().flat_map(|(_, known)| known.iter().flat_map(|known| known.logs.iter().copied()));
    let names = names_of(broker, logs);
    let asking = context.asking();
    let states = found.into_iter().map(|(id, known)| match known {
        _ if asking.check_transaction(AclOperation::Describe, &id).is_err() && !id.is_empty() => {
            let error_code = ErrorCode::TransactionalIdAuthorizationFailed.code();
            Described { error_code, transactional_id: id, ..Described::default() }
        }
        Some(known) => {
            let mut state = described(id, &known, &names);
            state.topics.retain(|topic| asking.quietly().check_topic(AclOperation::Describe, &topic.topic).is_ok());
            state
        }
        None => {
            let code = if id.is_empty() { ErrorCode::InvalidRequest } else { ErrorCode::TransactionalIdNotFound };
            Described { error_code: code.code(), transactional_id: id, ..Described::default() }
        }
    });
    Ok(Outcome::answer(DescribeTransactionsResponse { transaction_states: states.collect(), ..Default::default() }))
}

/// Topic and partition of logs.
fn names_of(broker: &Broker, logs: impl Iterator<Item = LogId>) -> BTreeMap<LogId, (String, i32)> {
    let wanted: std::collections::BTreeSet<LogId> = logs.collect();
    let mut names = BTreeMap::new();
    if wanted.is_empty() {
        return names;
    }
    for topic in broker.topics() {
        for (index, log) in topic.logs().iter().enumerate().filter(|(_, log)| wanted.contains(&log.id())) {
            names.insert(log.id(), (topic.name.clone(), index as i32));
        }
    }
    names
}

fn described(id: Str, known: &Transaction, names: &BTreeMap<LogId, (String, i32)>) -> Described {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in known.logs.iter().filter_map(|log| names.get(log)) {
        topics.entry(topic).or_default().push(*partition);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| TopicData { topic: topic.into(), partitions, ..TopicData::default() });
    let under_way = !matches!(known.state, TransactionState::Empty | TransactionState::CompleteAbort | TransactionState::CompleteCommit);
    Described {
        transactional_id: id,
        transaction_state: known.state.name().into(),
        transaction_timeout_ms: known.timeout as i32,
        transaction_start_time_ms: if under_way { known.started as i64 } else { -1 },
        producer_id: known.producer.0,
        producer_epoch: known.producer.1,
        topics: topics.collect(),
        ..Described::default()
    }
}

pub(crate) fn list(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ListTransactionsRequest::decode(reader, context.version)?;
    let pattern = request.transactional_id_pattern.as_deref().filter(|pattern| !pattern.is_empty());
    let broker = &context.gateway.broker;
    // A pattern takes long to compile and to match, however few ids there are.
    if context.is_long(if pattern.is_some() { usize::MAX } else { broker.transactions().count() }) {
        return Ok(Outcome::Long);
    }
    let refused = |code: ErrorCode| Outcome::answer(ListTransactionsResponse { error_code: code.code(), ..ListTransactionsResponse::default() });
    let compiled = pattern.map(Expression::compile);
    let Some(pattern) = compiled.map_or(Some(None), |compiled| compiled.map(Some)) else {
        return Ok(refused(ErrorCode::InvalidRegularExpression));
    };
    let now = broker.now_ms();
    let unknown: Vec<Str> = request.state_filters.iter().filter(|state| !STATES.contains(&&***state)).cloned().collect();
    let states: HashSet<&str> = request.state_filters.iter().map(|state| &**state).collect();
    let producers: HashSet<i64> = request.producer_id_filters.iter().copied().collect();
    // All producers wait for the lock: rights and the pattern are looked at once it is released.
    let found = broker.transactions().list(|(id, known)| {
        let state = known.state.name();
        let wanted = (states.is_empty() || states.contains(state))
            && (producers.is_empty() || producers.contains(&known.producer.0))
            && (request.duration_filter < 0 || now - known.started as i64 > request.duration_filter);
        wanted.then(|| Listed { transactional_id: id.into(), producer_id: known.producer.0, transaction_state: state.into(), ..Default::default() })
    });
    let asking = context.asking().quietly();
    let (mut listed, mut room) = (Vec::new(), AnswerRoom::for_all(context.gateway));
    for one in found {
        if context.gone.is_some_and(|gone| gone.load(Ordering::Relaxed)) {
            // Nobody reads the answer.
            break;
        }
        if asking.check_transaction(AclOperation::Describe, &one.transactional_id).is_err()
            || pattern.as_ref().is_some_and(|pattern| !pattern.is_match(&one.transactional_id))
        {
            continue;
        }
        if !room.take(|writer| one.encode(writer, context.version)) {
            // A list that is not whole would be taken for all that there is.
            return Ok(refused(NO_ROOM));
        }
        listed.push(one);
    }
    Ok(Outcome::answer(ListTransactionsResponse { unknown_state_filters: unknown, transaction_states: listed, ..Default::default() }))
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
                return PartitionResponse { partition_index: *index, error_code: code.code(), ..PartitionResponse::default() };
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
            let one = PartitionResponse { partition_index: *index, active_producers: active.collect(), ..PartitionResponse::default() };
            if room.take(|writer| one.encode(writer, version)) { one } else { no_room(*index) }
        });
        TopicResponse { partitions: partitions.collect(), name: topic.name, ..TopicResponse::default() }
    });
    Ok(Outcome::answer(DescribeProducersResponse { topics: topics.collect(), ..DescribeProducersResponse::default() }))
}

/// Markers on their way into one or more journals.
struct MarkersWait {
    response: WriteTxnMarkersResponse,
    /// By journal: marker, topic and partition in the response, in the order of the items.
    places: Vec<Vec<(usize, usize, usize)>>,
    open: usize,
}

impl Wait for MarkersWait {
    fn handle_reply(&mut self, part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Appended(results) = reply else { return None };
        for ((marker, topic, partition), result) in self.places.get(part as usize)?.iter().zip(results) {
            if let Err(error) = result {
                self.response.markers[*marker].topics[*topic].partitions[*partition].error_code = of_append(error).code();
            }
        }
        self.open -= 1;
        (self.open == 0).then(|| Box::new(std::mem::take(&mut self.response)) as Box<dyn Body>)
    }
}

pub(crate) fn write_markers(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = WriteTxnMarkersRequest::decode(reader, context.version)?;
    let broker = std::sync::Arc::clone(&context.gateway.broker);
    let (asking, acting) = (context.asking(), context.acting("WriteTxnMarkers"));
    let leave = asking.quietly().check_cluster(AclOperation::Alter).or_else(|_| asking.check_cluster(AclOperation::ClusterAction));
    let mut response = WriteTxnMarkersResponse::default();
    let mut places: Vec<Vec<(usize, usize, usize)>> = broker.journals().iter().map(|_| Vec::new()).collect();
    let mut items: Vec<Vec<AppendItem>> = broker.journals().iter().map(|_| Vec::new()).collect();
    for (at, asked) in request.markers.into_iter().enumerate() {
        let marker = if asked.transaction_result { Marker::Commit } else { Marker::Abort };
        let bytes = marker.batch(asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, broker.now_ms());
        let header = BatchHeader::parse(&bytes).ok().filter(|header| header.producer_id >= 0 && header.producer_epoch >= 0);
        let mut topics = Vec::with_capacity(asked.topics.len());
        for (topic_at, topic) in asked.topics.into_iter().enumerate() {
            let known = broker.topic(&topic.name);
            let denied = leave.err().or_else(|| asking.check_queue(AclOperation::Write, &topic.name).err());
            let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
            for (partition_at, index) in topic.partition_indexes.into_iter().enumerate() {
                let log = known.as_ref().and_then(|known| known.log(super::fetch::index(index)?));
                let error = match (log, header) {
                    _ if denied.is_some() => denied,
                    (None, _) => Some(ErrorCode::UnknownTopicOrPartition),
                    (_, None) => Some(ErrorCode::InvalidRequest),
                    (Some(log), Some(header)) => {
                        let journal = broker.journal_number(log.id());
                        places[journal].push((at, topic_at, partition_at));
                        items[journal].push(AppendItem::Batch { log, bytes: bytes.clone(), header, gate: None });
                        None
                    }
                };
                let error_code = error.map_or(0, ErrorCode::code);
                partitions.push(WritableTxnMarkerPartitionResult { partition_index: index, error_code, ..Default::default() });
            }
            topics.push(WritableTxnMarkerTopicResult { name: topic.name, partitions, ..WritableTxnMarkerTopicResult::default() });
        }
        acting.say(&format!("producer {}", asked.producer_id), leave.err().map_or("begun", ErrorCode::name));
        response.markers.push(WritableTxnMarkerResult { producer_id: asked.producer_id, topics, ..Default::default() });
    }
    let mut open = 0;
    for (journal, items) in items.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
        open += 1;
        let to = ReplyTo { token: context.to.token + journal as u64, ..context.to };
        context.append(journal, Append { to, items, acknowledge: true });
    }
    Ok(if open == 0 { Outcome::answer(response) } else { Outcome::Wait(Box::new(MarkersWait { response, places, open })) })
}
