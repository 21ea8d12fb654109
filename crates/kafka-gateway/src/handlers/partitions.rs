//! What acts on partitions: CreatePartitions, DeleteRecords, OffsetForLeaderEpoch.

use std::sync::Arc;

use broker::{AclOperation, Broker, Log, PartitionsError, Topic};
use hashbrown::HashMap;
use kafka_wire::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use kafka_wire::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};
use kafka_wire::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::{LogId, Offset, Term};

use super::mutations::{EXCEEDED, Mutations};
use super::{Outcome, control};
use crate::access::{Asking, HIDDEN};
use crate::error_code::{of_append, of_partitions};
use crate::session::Context;

/// First version of CreatePartitions that is refused what its quota does not have.
const CREATES_STRICTLY_SINCE: i16 = 3;

/// Why partitions are not even tried to be added.
type Checked = Result<(), (ErrorCode, String)>;

pub(crate) fn create(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let mut request = CreatePartitionsRequest::decode(reader, context.version)?;
    let names: Vec<_> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let result = |name, code: Option<ErrorCode>, message: Option<String>| CreatePartitionsTopicResult {
        name,
        error_code: code.map_or(0, ErrorCode::code),
        error_message: message.map(Into::into),
        ..CreatePartitionsTopicResult::default()
    };
    let mut refused = Vec::new();
    if !request.validate_only {
        let (broker, asking) = (Arc::clone(&context.gateway.broker), context.asking().quietly());
        let mut mutations = Mutations::new(context, CREATES_STRICTLY_SINCE);
        // What will be refused anyway takes nothing.
        let cost = |topic: &CreatePartitionsTopic| match broker.check_partitions(&topic.name, topic.count) {
            Ok(known) if asking.check_topic(AclOperation::Alter, &topic.name).is_ok() => {
                (topic.count as usize).saturating_sub(known.logs().len())
            }
            _ => 0,
        };
        request.topics.retain(|topic| {
            let admitted = mutations.admit(|| cost(topic));
            if !admitted {
                refused.push(result(
                    topic.name.clone(),
                    Some(ErrorCode::ThrottlingQuotaExceeded),
                    Some(EXCEEDED.to_string()),
                ));
            }
            admitted
        });
    }
    let acting = context.acting("CreatePartitions");
    Ok(control(
        context,
        move || CreatePartitionsResponse {
            results: names.into_iter().map(|name| result(name, Some(ErrorCode::RequestTimedOut), None)).collect(),
            ..CreatePartitionsResponse::default()
        },
        move |broker, asking| {
            let check = |(topic, twice): (&CreatePartitionsTopic, bool)| {
                if twice {
                    return Err((ErrorCode::InvalidRequest, "Duplicate topic name.".to_owned()));
                }
                let leave = asking.check_topic(AclOperation::Alter, &topic.name);
                if let Err(code) = leave
                    && code != HIDDEN
                {
                    return Err((code, "Topic authorization failed.".to_owned()));
                }
                let known = broker.topic(&topic.name).filter(|_| leave.is_ok());
                check_assignments(broker, known.as_deref(), topic)
                    .map_err(|message| (ErrorCode::InvalidReplicaAssignment, message.to_owned()))?;
                leave.map_err(|_| {
                    (of_partitions(&PartitionsError::UnknownTopic), PartitionsError::UnknownTopic.to_string())
                })
            };
            let checked: Vec<(&CreatePartitionsTopic, Checked)> =
                super::once(&request.topics, |topic| &topic.name).map(|one| (one.0, check(one))).collect();
            let wishes: Vec<(&str, i32)> = checked
                .iter()
                .filter(|(_, checked)| checked.is_ok())
                .map(|(topic, _)| (&*topic.name, topic.count))
                .collect();
            let mut outcomes = match request.validate_only {
                true => wishes.iter().map(|(name, count)| broker.check_partitions(name, *count).map(drop)).collect(),
                false => broker.add_partitions_to(&wishes),
            }
            .into_iter();
            let told = |(topic, checked): (&CreatePartitionsTopic, Checked)| {
                let outcome = checked.and_then(|()| {
                    outcomes.next().unwrap_or(Ok(())).map_err(|error| (of_partitions(&error), error.to_string()))
                });
                let (code, message) = outcome.err().unzip();
                result(topic.name.clone(), code, message)
            };
            let results: Vec<CreatePartitionsTopicResult> = checked.into_iter().map(told).chain(refused).collect();
            if !request.validate_only {
                results.iter().for_each(|one| acting.note(&one.name, one.error_code));
            }
            CreatePartitionsResponse { results, ..CreatePartitionsResponse::default() }
        },
    ))
}

/// Refuses replicas that one node cannot hold, and lists that do not fit the increase.
fn check_assignments(
    broker: &Broker,
    known: Option<&Topic>,
    topic: &CreatePartitionsTopic,
) -> Result<(), &'static str> {
    let Some(assignments) = &topic.assignments else { return Ok(()) };
    let have = known.map_or(0, |known| known.logs().len());
    if topic.count > have as i32 && assignments.len() != topic.count as usize - have {
        return Err("There is not one assignment for each new partition");
    }
    if assignments.iter().any(|one| one.broker_ids != [broker.node_id().0]) {
        return Err("There is one node, so each partition has one replica, on it");
    }
    Ok(())
}

/// The log of a partition, and where it is to begin.
type NewStart = (Arc<Log>, Offset);

fn new_start(log: Option<Arc<Log>>, offset: i64) -> Result<NewStart, ErrorCode> {
    let log = log.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let end = log.high_watermark();
    let to = match offset {
        -1 => end,
        _ => Offset(u64::try_from(offset).map_err(|_| ErrorCode::OffsetOutOfRange)?),
    };
    if to > end { Err(ErrorCode::OffsetOutOfRange) } else { Ok((log, to)) }
}

/// Moves the starts of logs together, of one that is named more than once to the last of its offsets; by log, why it was not moved.
fn delete_before<'a>(broker: &Broker, starts: impl Iterator<Item = &'a NewStart>) -> HashMap<LogId, ErrorCode> {
    let mut trims: HashMap<LogId, NewStart> = HashMap::new();
    for (log, to) in starts.filter(|(log, to)| *to > log.start()) {
        let (_, last) = trims.entry(log.id()).or_insert_with(|| (Arc::clone(log), *to));
        *last = (*last).max(*to);
    }
    let trims: Vec<NewStart> = trims.into_values().collect();
    let outcomes = broker.trim_all(&trims).into_iter().zip(&trims);
    outcomes.filter_map(|(outcome, (log, _))| Some((log.id(), of_append(outcome.err()?)))).collect()
}

pub(crate) fn delete_records(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DeleteRecordsRequest::decode(reader, context.version)?;
    let acting = context.acting("DeleteRecords");
    let run = move |on: Option<(&Arc<Broker>, &Asking<'_>)>| {
        let broker = on.map(|(broker, _)| broker);
        let denied = on.map(|(_, asking)| {
            super::denied_topics(asking, AclOperation::Delete, request.topics.iter().map(|topic| &topic.name))
        });
        let denied = |topic: &Str| denied.as_ref().and_then(|denied| denied.get(topic).copied());
        let starts = request.topics.iter().map(|topic| {
            let known = broker.and_then(|broker| broker.topic(&topic.name));
            let queue = broker
                .zip(known.as_ref())
                .and_then(|(broker, known)| broker.queue_on(known))
                .is_some_and(|queue| !queue.is_attached() && !queue.is_stream());
            let refused = queue || known.as_ref().is_some_and(|known| known.config().compacted_only);
            let start = |partition: &DeleteRecordsPartition| {
                let log = known.as_ref().and_then(|known| known.log(super::fetch::index(partition.partition_index)?));
                match (denied(&topic.name), broker) {
                    (Some(code), _) => Err(code),
                    (None, None) => Err(ErrorCode::RequestTimedOut),
                    (None, Some(_)) if refused => Err(ErrorCode::PolicyViolation),
                    (None, Some(_)) => new_start(log, partition.offset),
                }
            };
            topic.partitions.iter().map(start).collect::<Vec<_>>()
        });
        let starts: Vec<Vec<Result<NewStart, ErrorCode>>> = starts.collect();
        let failed = broker.map(|broker| delete_before(broker, starts.iter().flatten().flatten())).unwrap_or_default();
        let topics = request.topics.iter().zip(starts).map(|(topic, starts)| {
            let partitions = topic.partitions.iter().zip(starts).map(|(partition, start)| {
                let outcome = start
                    .and_then(|(log, _)| failed.get(&log.id()).map_or(Ok(log.start().0 as i64), |code| Err(*code)));
                DeleteRecordsPartitionResult {
                    partition_index: partition.partition_index,
                    low_watermark: *outcome.as_ref().unwrap_or(&-1),
                    error_code: outcome.err().map_or(0, ErrorCode::code),
                    ..DeleteRecordsPartitionResult::default()
                }
            });
            DeleteRecordsTopicResult {
                name: topic.name.clone(),
                partitions: partitions.collect(),
                ..Default::default()
            }
        });
        DeleteRecordsResponse { topics: topics.collect(), ..DeleteRecordsResponse::default() }
    };
    let busy = run.clone();
    Ok(control(
        context,
        move || busy(None),
        move |broker, asking| {
            let response = run(Some((broker, asking)));
            for topic in &response.topics {
                topic
                    .partitions
                    .iter()
                    .for_each(|one| acting.note(&format!("{}-{}", topic.name, one.partition_index), one.error_code));
            }
            response
        },
    ))
}

pub(crate) fn offset_for_leader_epoch(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = OffsetForLeaderEpochRequest::decode(reader, context.version)?;
    let (broker, asking) = (&context.gateway.broker, context.asking());
    let by_broker = asking.quietly().check_cluster(AclOperation::ClusterAction).is_ok();
    let topics = request.topics.into_iter().map(|topic| {
        let known = broker.topic(&topic.topic);
        let (operation, name) = (AclOperation::Describe, &topic.topic);
        let denied =
            if by_broker { asking.check_queue(operation, name) } else { asking.check_topic(operation, name) }.err();
        let partitions = topic.partitions.iter().map(|asked| {
            if let Some(code) = denied {
                return EpochEndOffset {
                    partition: asked.partition,
                    error_code: code.code(),
                    ..EpochEndOffset::default()
                };
            }
            let log = known.as_ref().and_then(|known| known.log(super::fetch::index(asked.partition)?));
            end_of_epoch(asked, log.as_deref())
        });
        OffsetForLeaderTopicResult { partitions: partitions.collect(), topic: topic.topic, ..Default::default() }
    });
    Ok(Outcome::answer(OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }))
}

fn end_of_epoch(asked: &OffsetForLeaderPartition, log: Option<&Log>) -> EpochEndOffset {
    let mut answer = EpochEndOffset { partition: asked.partition, ..EpochEndOffset::default() };
    let Some(log) = log else {
        answer.error_code = ErrorCode::UnknownTopicOrPartition.code();
        return answer;
    };
    let current = log.leader_epoch() as i32;
    if asked.current_leader_epoch >= 0 && asked.current_leader_epoch != current {
        let fenced = asked.current_leader_epoch < current;
        answer.error_code = if fenced { ErrorCode::FencedLeaderEpoch } else { ErrorCode::UnknownLeaderEpoch }.code();
        return answer;
    }
    if asked.leader_epoch == current {
        answer.leader_epoch = current;
        answer.end_offset = log.high_watermark().0 as i64;
    } else if let Ok(epoch) = u32::try_from(asked.leader_epoch)
        && epoch < current as u32
        && let Some((found, end)) = log.term_end(Term(epoch))
    {
        answer.leader_epoch = found.0 as i32;
        answer.end_offset = end.0 as i64;
    }
    answer
}
