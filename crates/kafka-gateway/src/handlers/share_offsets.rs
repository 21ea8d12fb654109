//! DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: where the subscriptions of a share group start. A queue's
//! subscription is described like any other, and moved by nobody but clients of the queue.

use std::sync::Arc;

use broker::{AclOperation, Broker, NotReset, QUEUE_GROUP, ShareRules, SharedSubscription, Topic};
use hashbrown::{HashMap, HashSet};
use kafka_wire::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use kafka_wire::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic,
};
use kafka_wire::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse, DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition, DescribeShareGroupOffsetsResponseTopic,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::{Offset, PartitionIndex, TopicId};

use super::fetch::{index, visible_end};
use super::{Outcome, control, once};
use crate::access::HIDDEN;
use crate::session::Context;

/// An offset or a lag that is not known.
const NONE: i64 = -1;

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeShareGroupOffsetsRequest::decode(reader, context.version)?;
    let whole_groups = request.groups.iter().filter(|group| group.topics.is_none());
    if context
        .is_long(whole_groups.map(|group| context.gateway.broker.subscriptions().count_of_group(&group.group_id)).sum())
    {
        return Ok(Outcome::Long);
    }
    let (broker, asking) = (&context.gateway.broker, context.asking());
    let may_see = |name: &str| asking.check_topic(AclOperation::Describe, name);
    // All that a group has is told once, however often it is asked for.
    let mut whole = HashSet::new();
    let fresh =
        |group: &DescribeShareGroupOffsetsRequestGroup| group.topics.is_some() || whole.insert(group.group_id.clone());
    let groups = request.groups.into_iter().filter(fresh).map(|group| {
        if let Err(code) = asking.check_group(AclOperation::Describe, &group.group_id) {
            let (error_code, error_message) = (code.code(), Some(code.name().into()));
            return DescribeShareGroupOffsetsResponseGroup {
                group_id: group.group_id,
                error_code,
                error_message,
                ..Default::default()
            };
        }
        let topics = match group.topics {
            Some(topics) => {
                let one = |topic: DescribeShareGroupOffsetsRequestTopic| match may_see(&topic.topic_name) {
                    Ok(()) => of_topic(broker, &group.group_id, broker.topic(&topic.topic_name), topic),
                    Err(HIDDEN) => of_topic(broker, &group.group_id, None, topic),
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

/// A topic that the caller may not know of.
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

fn of_topic(
    broker: &Broker,
    group: &str,
    known: Option<Arc<broker::Topic>>,
    topic: DescribeShareGroupOffsetsRequestTopic,
) -> DescribeShareGroupOffsetsResponseTopic {
    let rules = broker.share_rules(group);
    let of = |partition: i32| {
        let found = known.as_ref().zip(index(partition));
        let shared = found.and_then(|(known, index)| broker.subscriptions().get(group, known.id, index.0));
        described(broker, partition, shared.as_ref(), &rules)
    };
    let partitions = topic.partitions.into_iter().map(of).collect();
    let topic_id = known.as_ref().map(|known| known.id.0).unwrap_or_default();
    DescribeShareGroupOffsetsResponseTopic { topic_name: topic.topic_name, topic_id, partitions, ..Default::default() }
}

fn of_group(broker: &Broker, group: &str) -> Vec<DescribeShareGroupOffsetsResponseTopic> {
    let rules = broker.share_rules(group);
    let mut topics: Vec<DescribeShareGroupOffsetsResponseTopic> = Vec::new();
    for shared in broker.subscriptions().of_group(group) {
        let id = uuid::Uuid::from_u128(shared.name().topic);
        let Some(topic) = broker.topic_by_id(TopicId(id)) else { continue };
        let partition = described(broker, shared.name().partition as i32, Some(&shared), &rules);
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

fn described(
    broker: &Broker,
    partition_index: i32,
    shared: Option<&Arc<SharedSubscription>>,
    rules: &ShareRules,
) -> DescribeShareGroupOffsetsResponsePartition {
    let mut answer = DescribeShareGroupOffsetsResponsePartition {
        partition_index,
        start_offset: NONE,
        lag: NONE,
        ..Default::default()
    };
    if let Some(shared) = shared {
        let sharing = broker.sharing(shared, rules);
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
    let failed = |code: ErrorCode| AlterShareGroupOffsetsResponse {
        error_code: code.code(),
        ..AlterShareGroupOffsetsResponse::default()
    };
    Ok(control(
        context,
        move || failed(ErrorCode::CoordinatorNotAvailable),
        move |broker, asking| {
            if let Err(code) = asking.check_group(AclOperation::Read, &request.group_id) {
                return failed(code);
            }
            let denied =
                super::denied_topics(asking, AclOperation::Read, request.topics.iter().map(|topic| &topic.topic_name));
            // A group without members is made by giving it offsets, as Kafka does: who may give it none makes none.
            let all_denied =
                request.topics.iter().all(|topic| denied.get(&topic.topic_name).is_some_and(|code| *code != HIDDEN));
            if !all_denied && let Err(error) = broker.make_share_group(&request.group_id) {
                return failed(crate::error_code::of_group(error));
            }
            if let Some(code) = refusal(broker, &request.group_id).filter(|_| !all_denied) {
                return failed(code);
            }
            // Of what is named again and again the last word counts.
            let named = request
                .topics
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(|one| ((&topic.topic_name, one.partition_index), one)));
            let last: HashMap<(&Str, i32), &AlterShareGroupOffsetsRequestPartition> = named.collect();
            let known: HashMap<&Str, Option<Arc<Topic>>> =
                request.topics.iter().map(|topic| (&topic.topic_name, broker.topic(&topic.topic_name))).collect();
            let (mut outcomes, mut moved, mut starts) = (HashMap::new(), Vec::new(), Vec::new());
            for (place @ (topic, _), wish) in last {
                let denied = denied.get(topic).map_or(Ok(()), |code| Err(*code));
                match denied.and_then(|()| new_start(broker, &request.group_id, known[topic].as_ref(), wish)) {
                    Ok(start) => {
                        moved.push(place);
                        starts.push(start);
                    }
                    Err(code) => drop(outcomes.insert(place, code.code())),
                }
            }
            let code = |refused: NotReset| match refused {
                NotReset::NoRoom => ErrorCode::GroupMaxSizeReached,
                NotReset::NotWritten => ErrorCode::KafkaStorageError,
            };
            let refused = moved.into_iter().zip(broker.reset_subscriptions(&request.group_id, &starts));
            outcomes.extend(refused.filter_map(|(place, outcome)| Some((place, code(outcome.err()?).code()))));
            let responses = request.topics.iter().map(|topic| {
                let of = |one: &AlterShareGroupOffsetsRequestPartition| {
                    let error_code = outcomes.get(&(&topic.topic_name, one.partition_index)).copied().unwrap_or(0);
                    AlterShareGroupOffsetsResponsePartition {
                        partition_index: one.partition_index,
                        error_code,
                        ..Default::default()
                    }
                };
                let partitions = topic.partitions.iter().map(of).collect();
                let seen = known[&topic.topic_name].as_ref().filter(|_| denied.get(&topic.topic_name) != Some(&HIDDEN));
                let topic_id = seen.map(|known| known.id.0).unwrap_or_default();
                AlterShareGroupOffsetsResponseTopic {
                    topic_name: topic.topic_name.clone(),
                    topic_id,
                    partitions,
                    ..Default::default()
                }
            });
            let response = AlterShareGroupOffsetsResponse {
                responses: responses.collect(),
                ..AlterShareGroupOffsetsResponse::default()
            };
            for topic in &response.responses {
                for one in &topic.partitions {
                    acting.note(
                        &format!("{} {}-{}", request.group_id, topic.topic_name, one.partition_index),
                        one.error_code,
                    );
                }
            }
            response
        },
    ))
}

/// Where a subscription is to start, which one, and that it may be moved.
fn new_start(
    broker: &Broker,
    group: &str,
    topic: Option<&Arc<Topic>>,
    wish: &AlterShareGroupOffsetsRequestPartition,
) -> Result<(Arc<Topic>, PartitionIndex, Offset), ErrorCode> {
    let topic = topic.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = index(wish.partition_index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let log = topic.log(partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    // The group of all queues works on nothing else.
    if group == QUEUE_GROUP || broker.is_queue_of(group, topic) {
        return Err(ErrorCode::PolicyViolation);
    }
    let offset = u64::try_from(wish.start_offset).map_err(|_| ErrorCode::InvalidRequest)?.max(log.start().0);
    Ok((Arc::clone(topic), partition, Offset(offset)))
}

/// A topic that a group is to forget, or why it is not.
type Checked = Result<TopicId, (uuid::Uuid, ErrorCode)>;

pub(crate) fn delete(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DeleteShareGroupOffsetsRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_group(AclOperation::Delete, &request.group_id) {
        return Ok(Outcome::answer(DeleteShareGroupOffsetsResponse { error_code: code.code(), ..Default::default() }));
    }
    let acting = context.acting("DeleteShareGroupOffsets");
    let failed = |code: ErrorCode| DeleteShareGroupOffsetsResponse {
        error_code: code.code(),
        ..DeleteShareGroupOffsetsResponse::default()
    };
    Ok(control(
        context,
        move || failed(ErrorCode::CoordinatorNotAvailable),
        move |broker, asking| {
            if let Err(code) = asking.check_group(AclOperation::Delete, &request.group_id) {
                return failed(code);
            }
            let denied =
                super::denied_topics(asking, AclOperation::Read, request.topics.iter().map(|topic| &topic.topic_name));
            if let Some(code) = refusal(broker, &request.group_id) {
                return failed(code);
            }
            let check = |name: &Str| {
                if let Some(code) = denied.get(name) {
                    return Err((uuid::Uuid::nil(), *code));
                }
                let known = broker.topic(name).ok_or((uuid::Uuid::nil(), ErrorCode::UnknownTopicOrPartition))?;
                if broker.is_queue_of(&request.group_id, &known) {
                    Err((known.id.0, ErrorCode::PolicyViolation))
                } else {
                    Ok(known.id)
                }
            };
            let checked: Vec<(&Str, Checked)> = once(&request.topics, |topic| &topic.topic_name)
                .map(|(topic, _)| (&topic.topic_name, check(&topic.topic_name)))
                .collect();
            let known: Vec<TopicId> = checked.iter().filter_map(|(_, checked)| checked.ok()).collect();
            let mut dropped = broker.drop_subscriptions_to_each(&request.group_id, &known).into_iter();
            let responses: Vec<DeleteShareGroupOffsetsResponseTopic> = checked
                .into_iter()
                .map(|(name, checked)| {
                    let outcome = checked.and_then(|id| match dropped.next() {
                        Some(Ok(true)) => Ok(id),
                        Some(Err(_)) => Err((id.0, ErrorCode::KafkaStorageError)),
                        _ => Err((uuid::Uuid::nil(), ErrorCode::UnknownTopicOrPartition)),
                    });
                    let (topic_id, error_code) = outcome.map_or_else(|(id, code)| (id, code.code()), |id| (id.0, 0));
                    DeleteShareGroupOffsetsResponseTopic {
                        topic_name: name.clone(),
                        topic_id,
                        error_code,
                        ..Default::default()
                    }
                })
                .collect();
            responses
                .iter()
                .for_each(|one| acting.note(&format!("{} {}", request.group_id, one.topic_name), one.error_code));
            DeleteShareGroupOffsetsResponse { responses, ..DeleteShareGroupOffsetsResponse::default() }
        },
    ))
}
