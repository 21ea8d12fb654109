//! DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: where the subscriptions of a share group start. A queue's
//! subscription is described like any other, and moved by nobody but clients of the queue.

use std::sync::Arc;

use broker::{AclOperation, Broker, SharedSubscription, Topic};
use hashbrown::{HashMap, HashSet};
use kafka_wire::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsResponse, AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
};
use kafka_wire::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic,
};
use kafka_wire::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic, DescribeShareGroupOffsetsResponse, DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition, DescribeShareGroupOffsetsResponseTopic,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::TopicId;

use super::fetch::{index, visible_end};
use super::{Outcome, control, once};
use crate::session::Context;

/// An offset or a lag that is not known.
const NONE: i64 = -1;

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeShareGroupOffsetsRequest::decode(reader, context.version)?;
    let (broker, asking) = (&context.gateway.broker, context.asking());
    let may_see = |name: &str| asking.check_topic(AclOperation::Describe, name);
    // All that a group has is told once, however often it is asked for.
    let mut whole = HashSet::new();
    let fresh = |group: &DescribeShareGroupOffsetsRequestGroup| group.topics.is_some() || whole.insert(group.group_id.clone());
    let groups = request.groups.into_iter().filter(fresh).map(|group| {
        if let Err(code) = asking.check_group(AclOperation::Describe, &group.group_id) {
            let (error_code, error_message) = (code.code(), Some(code.name().into()));
            return DescribeShareGroupOffsetsResponseGroup { group_id: group.group_id, error_code, error_message, ..Default::default() };
        }
        let topics = match group.topics {
            Some(topics) => {
                let one = |topic: DescribeShareGroupOffsetsRequestTopic| match may_see(&topic.topic_name) {
                    Ok(()) => of_topic(broker, &group.group_id, topic),
                    Err(code) => hidden(topic, code),
                };
                topics.into_iter().map(one).collect()
            }
            None => {
                let mut topics = of_group(broker, &group.group_id);
                topics.retain(|topic| asking.quietly().check_topic(AclOperation::Describe, &topic.topic_name).is_ok());
                topics
            }
        };
        DescribeShareGroupOffsetsResponseGroup { group_id: group.group_id, topics, ..Default::default() }
    });
    Ok(Outcome::answer(DescribeShareGroupOffsetsResponse { groups: groups.collect(), ..Default::default() }))
}

/// A topic that whoever asks may not know of.
fn hidden(topic: DescribeShareGroupOffsetsRequestTopic, code: ErrorCode) -> DescribeShareGroupOffsetsResponseTopic {
    let of = |partition_index: i32| DescribeShareGroupOffsetsResponsePartition {
        partition_index,
        start_offset: NONE,
        lag: NONE,
        error_code: code.code(),
        error_message: Some(code.name().into()),
        ..Default::default()
    };
    let partitions = topic.partitions.into_iter().map(of).collect();
    DescribeShareGroupOffsetsResponseTopic { topic_name: topic.topic_name, partitions, ..Default::default() }
}

fn of_topic(broker: &Broker, group: &str, topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic {
    let known = broker.topic(&topic.topic_name);
    let of = |partition: i32| {
        let found = known.as_ref().zip(index(partition));
        let shared = found.and_then(|(known, index)| broker.subscriptions().get(group, known.id, index.0));
        described(broker, partition, shared.as_ref())
    };
    let partitions = topic.partitions.into_iter().map(of).collect();
    let topic_id = known.as_ref().map(|known| known.id.0).unwrap_or_default();
    DescribeShareGroupOffsetsResponseTopic { topic_name: topic.topic_name, topic_id, partitions, ..Default::default() }
}

fn of_group(broker: &Broker, group: &str) -> Vec<DescribeShareGroupOffsetsResponseTopic> {
    let mut topics: Vec<DescribeShareGroupOffsetsResponseTopic> = Vec::new();
    for shared in broker.subscriptions().of_group(group) {
        let id = uuid::Uuid::from_u128(shared.name().topic);
        let Some(topic) = broker.topic_by_id(TopicId(id)) else { continue };
        let partition = described(broker, shared.name().partition as i32, Some(&shared));
        match topics.last_mut() {
            Some(last) if last.topic_id == id => last.partitions.push(partition),
            _ => topics.push(DescribeShareGroupOffsetsResponseTopic {
                topic_name: topic.name.as_str().into(),
                topic_id: id,
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    topics
}

fn described(broker: &Broker, partition_index: i32, shared: Option<&Arc<SharedSubscription>>) -> DescribeShareGroupOffsetsResponsePartition {
    let mut answer = DescribeShareGroupOffsetsResponsePartition { partition_index, start_offset: NONE, lag: NONE, ..Default::default() };
    if let Some(shared) = shared {
        let sharing = broker.sharing(shared, &broker.share_rules(&shared.name().group));
        let mut state = shared.lock();
        broker.expire_subscription(shared, &mut state, &sharing.rules);
        state.trim(shared.log().start().0);
        answer.start_offset = state.start() as i64;
        answer.lag = state.backlog(visible_end(shared.log(), sharing.committed_only).0) as i64;
        answer.leader_epoch = shared.log().leader_epoch() as i32;
    }
    answer
}

/// Why the offsets of a group cannot be changed, if they cannot.
fn refusal(broker: &Broker, group: &str) -> Option<ErrorCode> {
    match broker.share_group_members(group) {
        None => Some(ErrorCode::GroupIdNotFound),
        Some(0) => None,
        Some(_) => Some(ErrorCode::NonEmptyGroup),
    }
}

pub(crate) fn alter(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = AlterShareGroupOffsetsRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_group(AclOperation::Read, &request.group_id) {
        return Ok(Outcome::answer(AlterShareGroupOffsetsResponse { error_code: code.code(), ..Default::default() }));
    }
    let acting = context.acting("AlterShareGroupOffsets");
    let failed = |code: ErrorCode| AlterShareGroupOffsetsResponse { error_code: code.code(), ..AlterShareGroupOffsetsResponse::default() };
    Ok(control(context, move || failed(ErrorCode::CoordinatorNotAvailable), move |broker, asking| {
        if let Err(code) = asking.check_group(AclOperation::Read, &request.group_id) {
            return failed(code);
        }
        let denied = super::denied_topics(asking, AclOperation::Read, request.topics.iter().map(|topic| &topic.topic_name));
        // A group without members is made by giving it offsets, as Kafka does.
        if let Err(error) = broker.make_share_group(&request.group_id) {
            return failed(crate::error_code::of_group(error));
        }
        if let Some(code) = refusal(broker, &request.group_id) {
            return failed(code);
        }
        // Each is a commit: of what is named again and again the last word counts.
        let named = request.topics.iter().flat_map(|topic| topic.partitions.iter().map(|one| ((&topic.topic_name, one.partition_index), one)));
        let last: HashMap<_, _> = named.collect();
        let mut done = HashMap::new();
        let responses = request.topics.iter().map(|topic| {
            let known = broker.topic(&topic.topic_name);
            let of = |one: &AlterShareGroupOffsetsRequestPartition| {
                let place = (&topic.topic_name, one.partition_index);
                let alter = || match denied.contains(&topic.topic_name) {
                    true => Err(ErrorCode::TopicAuthorizationFailed),
                    false => alter_one(broker, &request.group_id, known.as_ref(), last[&place]),
                };
                let error_code = *done.entry(place).or_insert_with(|| alter().err().map_or(0, ErrorCode::code));
                AlterShareGroupOffsetsResponsePartition { partition_index: one.partition_index, error_code, ..Default::default() }
            };
            let partitions = topic.partitions.iter().map(of).collect();
            let topic_id = known.as_ref().map(|known| known.id.0).unwrap_or_default();
            AlterShareGroupOffsetsResponseTopic { topic_name: topic.topic_name.clone(), topic_id, partitions, ..Default::default() }
        });
        let response = AlterShareGroupOffsetsResponse { responses: responses.collect(), ..AlterShareGroupOffsetsResponse::default() };
        for topic in &response.responses {
            for one in &topic.partitions {
                acting.note(&format!("{} {}-{}", request.group_id, topic.topic_name, one.partition_index), one.error_code);
            }
        }
        response
    }))
}

fn alter_one(broker: &Arc<Broker>, group: &str, topic: Option<&Arc<Topic>>, wish: &AlterShareGroupOffsetsRequestPartition) -> Result<(), ErrorCode> {
    let topic = topic.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = index(wish.partition_index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let log = topic.log(partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if broker.is_queue_of(group, topic) {
        return Err(ErrorCode::PolicyViolation);
    }
    let offset = u64::try_from(wish.start_offset).map_err(|_| ErrorCode::InvalidRequest)?.max(log.start().0);
    if broker.reset_subscription(group, topic, partition, types::Offset(offset)) { Ok(()) } else { Err(ErrorCode::KafkaStorageError) }
}

pub(crate) fn delete(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DeleteShareGroupOffsetsRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_group(AclOperation::Delete, &request.group_id) {
        return Ok(Outcome::answer(DeleteShareGroupOffsetsResponse { error_code: code.code(), ..Default::default() }));
    }
    let acting = context.acting("DeleteShareGroupOffsets");
    let failed = |code: ErrorCode| DeleteShareGroupOffsetsResponse { error_code: code.code(), ..DeleteShareGroupOffsetsResponse::default() };
    Ok(control(context, move || failed(ErrorCode::CoordinatorNotAvailable), move |broker, asking| {
        if let Err(code) = asking.check_group(AclOperation::Delete, &request.group_id) {
            return failed(code);
        }
        let denied = super::denied_topics(asking, AclOperation::Read, request.topics.iter().map(|topic| &topic.topic_name));
        if let Some(code) = refusal(broker, &request.group_id) {
            return failed(code);
        }
        let of = |name: Str| {
            if denied.contains(&name) {
                let error_code = ErrorCode::TopicAuthorizationFailed.code();
                return DeleteShareGroupOffsetsResponseTopic { topic_name: name, error_code, ..Default::default() };
            }
            let known = broker.topic(&name);
            if let Some(known) = known.as_ref().filter(|known| broker.is_queue_of(&request.group_id, known)) {
                let (topic_id, error_code) = (known.id.0, ErrorCode::PolicyViolation.code());
                return DeleteShareGroupOffsetsResponseTopic { topic_name: name, topic_id, error_code, ..Default::default() };
            }
            let outcome = known.as_ref().map(|known| (known.id.0, broker.drop_subscription(&request.group_id, known.id)));
            let (topic_id, error_code) = match outcome {
                Some((id, Ok(true))) => (id, 0),
                Some((id, Err(_))) => (id, ErrorCode::KafkaStorageError.code()),
                _ => (uuid::Uuid::nil(), ErrorCode::UnknownTopicOrPartition.code()),
            };
            DeleteShareGroupOffsetsResponseTopic { topic_name: name, topic_id, error_code, ..Default::default() }
        };
        let responses: Vec<DeleteShareGroupOffsetsResponseTopic> =
            once(&request.topics, |topic| &topic.topic_name).map(|(topic, _)| of(topic.topic_name.clone())).collect();
        responses.iter().for_each(|one| acting.note(&format!("{} {}", request.group_id, one.topic_name), one.error_code));
        DeleteShareGroupOffsetsResponse { responses, ..DeleteShareGroupOffsetsResponse::default() }
    }))
}
