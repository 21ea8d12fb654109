//! DescribeCluster, DescribeTopicPartitions, DescribeLogDirs.

use std::collections::{BTreeSet, HashMap, HashSet};

use broker::{AclOperation, AclResource, Broker, Topic};
use kafka_wire::describe_cluster::{DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse};
use kafka_wire::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};
use kafka_wire::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic, NextCursor,
};
use kafka_wire::{DecodeError, ErrorCode, Reader};

use super::Outcome;
use crate::access::HIDDEN;
use crate::answer_room::AnswerRoom;
use crate::session::Context;

/// Partitions in one answer to DescribeTopicPartitions, at most.
const PARTITIONS_MAX: usize = 2000;

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeClusterRequest::decode(reader, context.version)?;
    let broker = &context.gateway.broker;
    if request.endpoint_type != 1 {
        let known = request.endpoint_type == 2;
        let code = if known { ErrorCode::MismatchedEndpointType } else { ErrorCode::UnsupportedEndpointType };
        return Ok(Outcome::answer(DescribeClusterResponse { error_code: code.code(), ..Default::default() }));
    }
    let (host, port) = context.advertise.resolve(context.local);
    let node = DescribeClusterBroker { broker_id: broker.node_id().0, host: host.into(), port, ..Default::default() };
    Ok(Outcome::answer(DescribeClusterResponse {
        endpoint_type: request.endpoint_type,
        cluster_id: broker.cluster_id().into(),
        controller_id: broker.node_id().0,
        brokers: vec![node],
        cluster_authorized_operations: super::metadata::cluster_operations(
            &context.asking(),
            request.include_cluster_authorized_operations,
        ),
        ..DescribeClusterResponse::default()
    }))
}

pub(crate) fn describe_topic_partitions(
    reader: &mut Reader,
    context: &mut Context<'_>,
) -> Result<Outcome, DecodeError> {
    let request = DescribeTopicPartitionsRequest::decode(reader, context.version)?;
    let (broker, asking) = (&context.gateway.broker, context.asking());
    if request.topics.is_empty() && context.is_long(broker.topic_count()) {
        return Ok(Outcome::Long);
    }
    let quiet = if request.topics.is_empty() { asking.quietly() } else { asking };
    let seen = |name: &str| quiet.check_topic(AclOperation::Describe, name);
    let mut names: BTreeSet<String> = request.topics.iter().map(|topic| topic.name.to_string()).collect();
    if names.is_empty() {
        names = broker.topics().iter().map(|topic| topic.name.clone()).filter(|name| seen(name).is_ok()).collect();
    }
    let mut first = 0;
    if let Some(cursor) = &request.cursor {
        if cursor.partition_index < 0 {
            let error_code = ErrorCode::InvalidRequest.code();
            let invalid = |name: String| DescribeTopicPartitionsResponseTopic {
                error_code,
                name: Some(name.into()),
                ..Default::default()
            };
            let topics = names.into_iter().map(invalid).collect();
            return Ok(Outcome::answer(DescribeTopicPartitionsResponse { topics, ..Default::default() }));
        }
        names = names.split_off(cursor.topic_name.as_str());
        first = cursor.partition_index as usize;
    }
    let mut left = (request.response_partition_limit.max(1) as usize).min(PARTITIONS_MAX);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        let from =
            if request.cursor.as_ref().is_some_and(|cursor| cursor.topic_name.as_str() == name) { first } else { 0 };
        if left == 0 {
            response.next_cursor =
                Some(NextCursor { topic_name: name.into(), partition_index: 0, ..Default::default() });
            break;
        }
        let seen = seen(&name);
        if let Err(code) = seen
            && code != HIDDEN
        {
            let error_code = code.code();
            response.topics.push(DescribeTopicPartitionsResponseTopic {
                error_code,
                name: Some(name.into()),
                ..Default::default()
            });
            continue;
        }
        let Some(topic) = broker.topic(&name).filter(|_| seen.is_ok()) else {
            let invalid = broker::check_topic_name(&name).is_err();
            let code = if invalid { ErrorCode::InvalidTopicException } else { ErrorCode::UnknownTopicOrPartition };
            response.topics.push(DescribeTopicPartitionsResponseTopic {
                error_code: code.code(),
                name: Some(name.into()),
                ..Default::default()
            });
            continue;
        };
        let mut described = describe_topic(broker, &topic, from, left);
        described.topic_authorized_operations = asking.operations(true, AclResource::Topic, &name);
        let until = from + described.partitions.len();
        left -= described.partitions.len();
        response.topics.push(described);
        if until < topic.logs().len() {
            response.next_cursor =
                Some(NextCursor { topic_name: name.into(), partition_index: until as i32, ..Default::default() });
            break;
        }
    }
    Ok(Outcome::answer(response))
}

fn describe_topic(broker: &Broker, topic: &Topic, from: usize, most: usize) -> DescribeTopicPartitionsResponseTopic {
    let node = broker.node_id().0;
    let logs = topic.logs();
    let partitions =
        logs.iter().enumerate().skip(from).take(most).map(|(index, log)| DescribeTopicPartitionsResponsePartition {
            partition_index: index as i32,
            leader_id: node,
            leader_epoch: log.leader_epoch() as i32,
            replica_nodes: vec![node],
            isr_nodes: vec![node],
            eligible_leader_replicas: Some(Vec::new()),
            last_known_elr: Some(Vec::new()),
            ..DescribeTopicPartitionsResponsePartition::default()
        });
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.as_str().into()),
        topic_id: topic.id.0,
        partitions: partitions.collect(),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

pub(crate) fn describe_log_dirs(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeLogDirsRequest::decode(reader, context.version)?;
    let asking = context.asking();
    if let Err(code) = asking.check_cluster(AclOperation::Describe) {
        return Ok(Outcome::answer(DescribeLogDirsResponse {
            error_code: code.code(),
            ..DescribeLogDirsResponse::default()
        }));
    }
    let broker = &context.gateway.broker;
    // All are gone through, whatever is asked for.
    if context.is_long(broker.partition_count()) {
        return Ok(Outcome::Long);
    }
    // By name, whatever is repeated.
    let asked: Option<HashMap<&str, HashSet<i32>>> = request.topics.as_ref().map(|topics| {
        let mut asked: HashMap<&str, HashSet<i32>> = HashMap::new();
        topics.iter().for_each(|topic| asked.entry(topic.topic.as_str()).or_default().extend(&topic.partitions));
        asked
    });
    let of_topic = |name: &str| asked.as_ref().map_or(Some(None), |asked| asked.get(name).map(Some));
    let asking = asking.quietly();
    let sees = |topic: &Topic| asking.check_permission(AclOperation::Describe, topic).is_ok();
    let mut room = AnswerRoom::new(context.gateway);
    let results = broker.journals().iter().map(|journal| {
        let topics = broker.topics().into_iter().filter(|topic| sees(topic)).filter_map(|topic| {
            let wanted = of_topic(&topic.name)?;
            let logs = topic.logs();
            let own = logs
                .iter()
                .enumerate()
                .filter(|(_, log)| broker.journal_number(log.id()) == usize::from(journal.number()));
            let partitions: Vec<_> = own
                .filter(|(index, _)| wanted.is_none_or(|wanted| wanted.contains(&(*index as i32))))
                .map(|(index, log)| DescribeLogDirsPartition {
                    partition_index: index as i32,
                    partition_size: log.live_bytes() as i64,
                    ..DescribeLogDirsPartition::default()
                })
                .collect();
            let name = topic.name.as_str().into();
            (!partitions.is_empty()).then_some(DescribeLogDirsTopic { name, partitions, ..Default::default() })
        });
        let log_dir = format!("journal-{}", journal.number()).into();
        let mut told = Vec::new();
        for topic in topics {
            if !room.take(|writer| topic.encode(writer, context.version)) {
                // Sizes of a part would be taken for those of the whole.
                return DescribeLogDirsResult {
                    log_dir,
                    error_code: ErrorCode::PolicyViolation.code(),
                    ..Default::default()
                };
            }
            told.push(topic);
        }
        DescribeLogDirsResult { log_dir, topics: told, ..Default::default() }
    });
    Ok(Outcome::answer(DescribeLogDirsResponse { results: results.collect(), ..DescribeLogDirsResponse::default() }))
}
