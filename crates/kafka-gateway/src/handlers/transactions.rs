//! Transactions as their producers see them: InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn,
//! TxnOffsetCommit, EndTxn. An answer is given when what it says is durable.

use std::collections::BTreeSet;

use broker::append::AppendError;
use broker::{AclOperation, Broker, OffsetsRefused, Reply, Told};
use delivery::{Claim, Commit, CommittedOffset, Committer, GroupError, ProducerEpoch, TransactionError, Version};
use hashbrown::HashMap;
use kafka_wire::add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use kafka_wire::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic, AddPartitionsToTxnTopicResult, AddPartitionsToTxnTransaction,
};
use kafka_wire::end_txn::{EndTxnRequest, EndTxnResponse};
use kafka_wire::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use kafka_wire::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::{LogId, PartitionIndex};

use super::group_offsets::{Answering, Commits};
use super::{Outcome, Wait};
use crate::access::Asking;
use crate::body::Body;
use crate::error_code::{of_append, of_group, of_transaction};
use crate::session::Context;

/// What a client does that meets an error of the coordinator's disk: it asks for the coordinator and tries again.
const NOT_DURABLE: ErrorCode = ErrorCode::CoordinatorNotAvailable;

/// The request speaks of generations, also where the group has epochs.
fn of_commit(error: GroupError) -> ErrorCode {
    if error == GroupError::StaleEpoch { ErrorCode::IllegalGeneration } else { of_group(error) }
}

/// Answers when the coordinator's records are durable.
struct Durable<B> {
    /// Records that are not yet.
    open: usize,
    any_failed: bool,
    durable: Option<B>,
    failed: Option<B>,
}

impl<B: Body + 'static> Durable<B> {
    fn wait(open: usize, durable: B, failed: B) -> Outcome {
        Outcome::Wait(Box::new(Self { open, any_failed: false, durable: Some(durable), failed: Some(failed) }))
    }
}

impl<B: Body + 'static> Wait for Durable<B> {
    fn handle_reply(&mut self, _part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        let outcome = done.downcast::<Result<(), AppendError>>().ok()?;
        self.any_failed |= outcome.is_err();
        self.open -= 1;
        if self.open > 0 {
            return None;
        }
        let body = if self.any_failed { self.failed.take() } else { self.durable.take() };
        Some(Box::new(body?))
    }
}

fn told<T, B: Body + 'static>(
    outcome: Result<Told<T>, ErrorCode>,
    answer: impl Fn(Result<T, ErrorCode>) -> B,
) -> Outcome {
    match outcome {
        Err(code) => Outcome::answer(answer(Err(code))),
        Ok(Told::Now(value)) => Outcome::answer(answer(Ok(value))),
        Ok(Told::Later(value)) => Durable::wait(1, answer(Ok(value)), answer(Err(NOT_DURABLE))),
    }
}

/// Clients before KIP-588 know one code for a producer that was replaced.
fn before(fenced_since: i16, version: i16) -> impl Fn(TransactionError) -> ErrorCode {
    move |error| match error {
        TransactionError::Fenced if version < fenced_since => ErrorCode::InvalidProducerEpoch,
        _ => of_transaction(error),
    }
}

/// A transaction that needs a new producer id waits for the controller to reserve some, and goes on.
struct FreshId {
    go_on: Option<Box<GoOn>>,
    /// The second wait.
    then: Option<Box<dyn Wait>>,
    refuse: fn(ErrorCode) -> Box<dyn Body>,
}

type GoOn = dyn FnOnce(Option<i64>, &mut Context<'_>) -> Outcome;

impl Wait for FreshId {
    fn handle_reply(&mut self, part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if let Some(then) = &mut self.then {
            return then.handle_reply(part, reply, context);
        }
        let Reply::Done(done) = reply else { return None };
        match *done.downcast::<Result<i64, AppendError>>().ok()? {
            Err(error) => Some((self.refuse)(of_append(error))),
            Ok(id) => match (self.go_on.take()?)(Some(id), context) {
                Outcome::Answer(body) => Some(body),
                Outcome::Wait(then) => {
                    self.then = Some(then);
                    None
                }
                Outcome::Downgraded(_) | Outcome::Silent | Outcome::Close(_) | Outcome::Resume(_) | Outcome::Long => {
                    None
                }
            },
        }
    }
}

/// Calls `go_on` with a new producer id if the transactional id needs one.
fn with_producer_id(
    id: &str,
    context: &mut Context<'_>,
    refuse: fn(ErrorCode) -> Box<dyn Body>,
    go_on: impl FnOnce(Option<i64>, &mut Context<'_>) -> Outcome + 'static,
) -> Outcome {
    let broker = &context.gateway.broker;
    if !broker.transactions().wants_producer_id(id) {
        return go_on(None, context);
    }
    if let Some(fresh) = broker.take_producer_id() {
        return go_on(Some(fresh), context);
    }
    let work = Box::new(|broker: &std::sync::Arc<Broker>| {
        Box::new(broker.reserve_producer_ids()) as Box<dyn std::any::Any + Send>
    });
    if !broker.control(context.to, context.job_owner_for_all(), work) {
        return Outcome::Answer(refuse(ErrorCode::CoordinatorLoadInProgress));
    }
    Outcome::Wait(Box::new(FreshId { go_on: Some(Box::new(go_on)), then: None, refuse }))
}

/// InitProducerId with a transactional id.
pub(super) fn init(request: InitProducerIdRequest, id: Str, context: &mut Context<'_>) -> Outcome {
    let refuse = |code| Box::new(super::producers::refused(code)) as Box<dyn Body>;
    with_producer_id(&id.clone(), context, refuse, move |fresh, context| {
        let expected = (request.producer_id >= 0).then_some((request.producer_id, request.producer_epoch));
        let broker = &context.gateway.broker;
        let outcome = broker.init_transactions(&id, request.transaction_timeout_ms, expected, fresh, context.to);
        told(outcome.map_err(before(4, context.version)), |granted| match granted {
            Ok((producer_id, producer_epoch)) => {
                InitProducerIdResponse { producer_id, producer_epoch, ..Default::default() }
            }
            Err(code) => super::producers::refused(code),
        })
    })
}

pub(crate) fn add_partitions(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = AddPartitionsToTxnRequest::decode(reader, context.version)?;
    // Producers ask for themselves; from version 4 on brokers ask on behalf of producers, for many at once.
    let alone = context.version < 4;
    let asked = if alone {
        vec![AddPartitionsToTxnTransaction {
            transactional_id: request.v3_and_below_transactional_id,
            producer_id: request.v3_and_below_producer_id,
            producer_epoch: request.v3_and_below_producer_epoch,
            topics: request.v3_and_below_topics,
            ..AddPartitionsToTxnTransaction::default()
        }]
    } else {
        each_once(request.transactions)
    };
    if let (false, Err(code)) = (alone, context.asking().check_cluster(AclOperation::ClusterAction)) {
        return Ok(Outcome::answer(AddPartitionsToTxnResponse {
            error_code: code.code(),
            ..AddPartitionsToTxnResponse::default()
        }));
    }
    let checked: Vec<Checked> = asked.into_iter().map(|one| Checked::new(one, alone, context)).collect();
    let add = move |context: &mut Context<'_>| add_checked(checked, alone, context);
    // A long request is looked at elsewhere.
    Ok(if context.gone.is_some() { Outcome::Resume(Box::new(add)) } else { add(context) })
}

/// What is asked of a transaction again by the same producer is one request, and answered once.
fn each_once(asked: Vec<AddPartitionsToTxnTransaction>) -> Vec<AddPartitionsToTxnTransaction> {
    let mut places = hashbrown::HashMap::with_capacity(asked.len());
    let mut each: Vec<AddPartitionsToTxnTransaction> = Vec::with_capacity(asked.len());
    for one in asked {
        let place = *places
            .entry((one.transactional_id.clone(), one.producer_id, one.producer_epoch, one.verify_only))
            .or_insert(each.len());
        match each.get_mut(place) {
            Some(first) => first.topics.extend(one.topics),
            None => each.push(one),
        }
    }
    each
}

/// What a transaction is asked to take, and all that can be said of it without its coordinator.
struct Checked {
    /// Without its topics.
    request: AddPartitionsToTxnTransaction,
    logs: Result<Vec<LogId>, ErrorCode>,
    /// Its answer when the coordinator takes it, and when that cannot be made durable.
    durable: Vec<AddPartitionsToTxnTopicResult>,
    failed: Vec<AddPartitionsToTxnTopicResult>,
}

impl Checked {
    fn new(request: AddPartitionsToTxnTransaction, alone: bool, context: &Context<'_>) -> Self {
        let logs = check_one(&request, alone, context).and_then(|()| logs_of(&request, context));
        let refused = logs.as_ref().err().copied();
        let durable = results(context, &request.topics, refused);
        let failed = results(context, &request.topics, Some(refused.unwrap_or(NOT_DURABLE)));
        Self { request: AddPartitionsToTxnTransaction { topics: Vec::new(), ..request }, logs, durable, failed }
    }
}

fn add_checked(checked: Vec<Checked>, alone: bool, context: &Context<'_>) -> Outcome {
    let mut open = 0;
    let (mut durable, mut failed) = (AddPartitionsToTxnResponse::default(), AddPartitionsToTxnResponse::default());
    for Checked { request, logs, durable: mut told, failed: mut not_durable } in checked {
        let outcome = logs.map(|logs| add_one(&request, logs, context));
        open += usize::from(outcome == Ok(Ok(Told::Later(()))));
        if let Ok(Err(code)) = outcome {
            let all = told.iter_mut().chain(&mut not_durable).flat_map(|topic| &mut topic.results_by_partition);
            all.for_each(|partition| partition.partition_error_code = code.code());
        }
        for (response, topic_results) in [(&mut durable, told), (&mut failed, not_durable)] {
            if alone {
                response.results_by_topic_v3_and_below = topic_results;
            } else {
                let transactional_id = request.transactional_id.clone();
                response.results_by_transaction.push(AddPartitionsToTxnResult {
                    transactional_id,
                    topic_results,
                    ..Default::default()
                });
            }
        }
    }
    if open == 0 { Outcome::answer(durable) } else { Durable::wait(open, durable, failed) }
}

fn log_of(broker: &Broker, topic: &str, partition: i32) -> Option<LogId> {
    Some(broker.topic(topic)?.log(super::fetch::index(partition)?)?.id())
}

/// May a producer write to a topic, or a broker for one?
fn check_topic(asking: &Asking<'_>, alone: bool, topic: &str) -> Result<(), ErrorCode> {
    if alone { asking.check_topic(AclOperation::Write, topic) } else { asking.check_queue(AclOperation::Write, topic) }
}

/// May the producer use its id, and write to the topics? A broker that asks for producers may.
fn check_one(request: &AddPartitionsToTxnTransaction, alone: bool, context: &Context<'_>) -> Result<(), ErrorCode> {
    let asking = context.asking();
    if alone {
        asking.check_transaction(AclOperation::Write, &request.transactional_id)?;
    }
    let denied = request.topics.iter().any(|topic| check_topic(&asking, alone, &topic.name).is_err());
    if denied { Err(ErrorCode::OperationNotAttempted) } else { Ok(()) }
}

/// The logs of its partitions, each once.
fn logs_of(request: &AddPartitionsToTxnTransaction, context: &Context<'_>) -> Result<Vec<LogId>, ErrorCode> {
    let broker = &context.gateway.broker;
    let mut logs = BTreeSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            logs.insert(log_of(broker, &topic.name, *partition).ok_or(ErrorCode::OperationNotAttempted)?);
        }
    }
    Ok(logs.into_iter().collect())
}

fn add_one(
    request: &AddPartitionsToTxnTransaction,
    logs: Vec<LogId>,
    context: &Context<'_>,
) -> Result<Told<()>, ErrorCode> {
    let broker = &context.gateway.broker;
    let claim = Claim { id: &request.transactional_id, producer: (request.producer_id, request.producer_epoch) };
    let outcome = if request.verify_only {
        broker.write_in_transaction(claim, logs, Version::V1).map(|_| Told::Now(()))
    } else {
        broker.add_to_transaction(claim, logs, context.to)
    };
    outcome.map_err(|error| match error {
        TransactionError::InvalidState => ErrorCode::TransactionAbortable,
        _ => before(2, context.version)(error),
    })
}

/// One code for all partitions, but for those that do not exist or may not be written.
fn results(
    context: &Context<'_>,
    topics: &[AddPartitionsToTxnTopic],
    code: Option<ErrorCode>,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let (broker, asking, alone) = (&context.gateway.broker, context.asking(), context.version < 4);
    let denied = |topic: &str| check_topic(&asking, alone, topic).err();
    let of = |topic: &Str, partition: i32| match code {
        Some(ErrorCode::OperationNotAttempted) => {
            let missing = || log_of(broker, topic, partition).is_none().then_some(ErrorCode::UnknownTopicOrPartition);
            denied(topic).or_else(missing).unwrap_or(ErrorCode::OperationNotAttempted).code()
        }
        code => code.map_or(0, ErrorCode::code),
    };
    let one = |topic: &AddPartitionsToTxnTopic| AddPartitionsToTxnTopicResult {
        name: topic.name.clone(),
        results_by_partition: topic
            .partitions
            .iter()
            .map(|partition| AddPartitionsToTxnPartitionResult {
                partition_index: *partition,
                partition_error_code: of(&topic.name, *partition),
                ..AddPartitionsToTxnPartitionResult::default()
            })
            .collect(),
        ..AddPartitionsToTxnTopicResult::default()
    };
    topics.iter().map(one).collect()
}

pub(crate) fn add_offsets(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = AddOffsetsToTxnRequest::decode(reader, context.version)?;
    let asking = context.asking();
    let leave = asking.check_transaction(AclOperation::Write, &request.transactional_id);
    if let Err(code) = leave.and_then(|()| asking.check_consumers(AclOperation::Read, &request.group_id)) {
        return Ok(Outcome::answer(AddOffsetsToTxnResponse {
            error_code: code.code(),
            ..AddOffsetsToTxnResponse::default()
        }));
    }
    let claim = Claim { id: &request.transactional_id, producer: (request.producer_id, request.producer_epoch) };
    let broker = &context.gateway.broker;
    let outcome = broker.add_group_to_transaction(claim, &request.group_id, context.to);
    Ok(told(outcome.map_err(before(2, context.version)), |added| AddOffsetsToTxnResponse {
        error_code: added.err().map_or(0, ErrorCode::code),
        ..AddOffsetsToTxnResponse::default()
    }))
}

/// First version of EndTxn and TxnOffsetCommit of the second transaction protocol.
const V2_SINCE: i16 = 5;

pub(crate) fn end(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = EndTxnRequest::decode(reader, context.version)?;
    let version = if context.version >= V2_SINCE { Version::V2 } else { Version::V1 };
    let answer = |ended: Result<ProducerEpoch, ErrorCode>| {
        let (producer_id, producer_epoch) = ended.unwrap_or((-1, -1));
        EndTxnResponse {
            error_code: ended.err().map_or(0, ErrorCode::code),
            producer_id,
            producer_epoch,
            ..Default::default()
        }
    };
    let id = request.transactional_id.clone();
    if let Err(code) = context.asking().check_transaction(AclOperation::Write, &id) {
        return Ok(Outcome::answer(answer(Err(code))));
    }
    let go_on = move |fresh: Option<i64>, context: &mut Context<'_>| {
        let claim = Claim { id: &request.transactional_id, producer: (request.producer_id, request.producer_epoch) };
        let broker = &context.gateway.broker;
        let outcome = broker.end_transaction(claim, request.committed, version, fresh, context.to);
        told(outcome.map_err(before(2, context.version)), answer)
    };
    // Only the second protocol changes the producer at the end of a transaction; an id that is not known wants none.
    if version == Version::V1 || context.gateway.broker.transactions().look_at(&id, |_| ()).is_none() {
        return Ok(go_on(None, context));
    }
    Ok(with_producer_id(
        &id,
        context,
        |code| Box::new(EndTxnResponse { error_code: code.code(), ..Default::default() }),
        go_on,
    ))
}

pub(crate) fn commit_offsets(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = TxnOffsetCommitRequest::decode(reader, context.version)?;
    let broker = &context.gateway.broker;
    let asking = context.asking();
    let mut commits = Commits::new(broker);
    let mut refused: Vec<(usize, usize, ErrorCode)> = Vec::new();
    for (at, topic) in request.topics.iter().enumerate() {
        let known = broker.topic(&topic.name).ok_or(ErrorCode::UnknownTopicOrPartition);
        let known = asking.check_topic(AclOperation::Read, &topic.name).and(known);
        for (number, partition) in topic.partitions.iter().enumerate() {
            let index = super::fetch::index(partition.partition_index);
            match (&known, index) {
                (Err(code), _) => refused.push((at, number, *code)),
                (Ok(known), Some(index @ PartitionIndex(partition_number))) if known.log(index).is_some() => {
                    let offset = CommittedOffset {
                        offset: partition.committed_offset,
                        leader_epoch: partition.committed_leader_epoch,
                        metadata: partition.committed_metadata.as_ref().map(ToString::to_string).unwrap_or_default(),
                        committed_at: broker.now_ms().max(0) as u64,
                    };
                    commits.add((at, number), known, partition_number, offset);
                }
                _ => refused.push((at, number, ErrorCode::UnknownTopicOrPartition)),
            }
        }
    }
    let Commits { places, commits, .. } = commits;
    let commits = (places, commits);
    let submit = move |context: &mut Context<'_>| submit_offsets(&request, refused, commits, context);
    // A long request is looked at elsewhere.
    Ok(if context.gone.is_some() { Outcome::Resume(Box::new(submit)) } else { submit(context) })
}

fn submit_offsets(
    request: &TxnOffsetCommitRequest,
    mut refused: Vec<(usize, usize, ErrorCode)>,
    (places, commits): (Vec<Answering>, Vec<Commit>),
    context: &Context<'_>,
) -> Outcome {
    let (broker, asking) = (&context.gateway.broker, context.asking());
    let answer = |outcome: Result<(), ErrorCode>, refused: &[(usize, usize, ErrorCode)]| {
        let of_all = outcome.err().map_or(0, ErrorCode::code);
        let mut topics: Vec<TxnOffsetCommitResponseTopic> = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let one = |index| TxnOffsetCommitResponsePartition {
                partition_index: index,
                error_code: of_all,
                ..Default::default()
            };
            let partitions = topic.partitions.iter().map(|partition| one(partition.partition_index)).collect();
            topics.push(TxnOffsetCommitResponseTopic { name: topic.name.clone(), partitions, ..Default::default() });
        }
        for (at, number, code) in refused {
            topics[*at].partitions[*number].error_code = code.code();
        }
        TxnOffsetCommitResponse { topics, ..TxnOffsetCommitResponse::default() }
    };
    let leave = asking.check_transaction(AclOperation::Write, &request.transactional_id);
    if let Err(code) = leave.and_then(|()| asking.check_consumers(AclOperation::Read, &request.group_id)) {
        return Outcome::answer(answer(Err(code), &[]));
    }
    let member = Committer {
        member_id: &request.member_id,
        instance: request.group_instance_id.as_deref(),
        generation: request.generation_id,
        transactional: true,
        knows_epochs: false,
    };
    if commits.is_empty() {
        return Outcome::answer(answer(Ok(()), &refused));
    }
    let version = if context.version >= V2_SINCE { Version::V2 } else { Version::V1 };
    let claim = Claim { id: &request.transactional_id, producer: (request.producer_id, request.producer_epoch) };
    let (outcome, single) =
        match broker.add_offsets_to_transaction((claim, version), &request.group_id, member, commits, context.to) {
            Ok((told, single)) => (Ok(told), single),
            Err(OffsetsRefused::Group(error)) => return Outcome::answer(answer(Err(of_commit(error)), &refused)),
            Err(OffsetsRefused::Transaction(error, single)) => (Err(error), single),
        };
    let single: HashMap<usize, ErrorCode> =
        single.into_iter().map(|(number, error)| (number, of_commit(error))).collect();
    refused.extend(places.into_iter().filter_map(|(at, number, commit)| Some((at, number, *single.get(&commit)?))));
    let outcome = outcome.map_err(before(i16::MAX, context.version));
    told(outcome, |outcome| answer(outcome, &refused))
}
