//! Elections, reassignments, the metadata quorum: answered truthfully for one node. There is nothing to elect and
//! nowhere to move a replica; what asks for the state as it is succeeds, anything else is refused as Kafka does.

use broker::{AclOperation, Topic};
use kafka_wire::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartition,
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_wire::alter_replica_log_dirs::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
};
use kafka_wire::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node, QuorumPartition, QuorumTopic, ReplicaState,
};
use kafka_wire::elect_leaders::{ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult};
use kafka_wire::list_partition_reassignments::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader};

use super::Outcome;
use super::fetch::index;
use crate::session::Context;

/// The ways to elect a leader.
const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

/// Kafka's name for what the catalog is here.
const METADATA_TOPIC: &str = "__cluster_metadata";

fn has(topic: Option<&Topic>, partition: i32) -> bool {
    topic.and_then(|topic| topic.log(index(partition)?)).is_some()
}

pub(crate) fn elect_leaders(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ElectLeadersRequest::decode(reader, context.version)?;
    let leave = context.asking().check_cluster(AclOperation::Alter);
    let mut response = ElectLeadersResponse::default();
    let possible = [PREFERRED, UNCLEAN].contains(&request.election_type);
    if !possible {
        response.error_code = ErrorCode::InvalidRequest.code();
    }
    response.error_code = leave.err().map_or(response.error_code, ErrorCode::code);
    // Asked for all partitions, those that need no election are left out, and that is all of them.
    for topic in request.topic_partitions.unwrap_or_default() {
        let known = context.asking().topic_for(AclOperation::Alter, &topic.topic);
        let one = |partition: &i32| {
            let code = match &known {
                _ if leave.is_err() => ErrorCode::ClusterAuthorizationFailed,
                _ if !possible => ErrorCode::InvalidRequest,
                Err(code) => *code,
                Ok(known) if has(known.as_deref(), *partition) => ErrorCode::ElectionNotNeeded,
                Ok(_) => ErrorCode::UnknownTopicOrPartition,
            };
            let error_message = Some(code.name().into());
            PartitionResult { partition_id: *partition, error_code: code.code(), error_message, ..Default::default() }
        };
        let partition_result = topic.partitions.iter().map(one).collect();
        response.replica_election_results.push(ReplicaElectionResult {
            topic: topic.topic,
            partition_result,
            ..Default::default()
        });
    }
    Ok(Outcome::answer(response))
}

pub(crate) fn alter_log_dirs(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = AlterReplicaLogDirsRequest::decode(reader, context.version)?;
    let broker = &context.gateway.broker;
    let mut response = AlterReplicaLogDirsResponse::default();
    let leave = context.asking().check_cluster(AclOperation::Alter);
    for dir in request.dirs {
        let journal = (0..broker.journals().len()).find(|number| *dir.path == format!("journal-{number}"));
        for topic in dir.topics {
            let known = context.asking().topic_for(AclOperation::Alter, &topic.name);
            let one = |partition: &i32| {
                let log = known.as_ref().map(|known| known.as_ref().and_then(|known| known.log(index(*partition)?)));
                let code = match log {
                    _ if leave.is_err() => leave.err().map_or(0, ErrorCode::code),
                    _ if journal.is_none() => ErrorCode::LogDirNotFound.code(),
                    Err(code) => code.code(),
                    Ok(None) => ErrorCode::UnknownTopicOrPartition.code(),
                    Ok(Some(log)) if journal == Some(broker.journal_number(log.id())) => 0,
                    Ok(Some(_)) => ErrorCode::LogDirNotFound.code(),
                };
                AlterReplicaLogDirPartitionResult {
                    partition_index: *partition,
                    error_code: code,
                    ..Default::default()
                }
            };
            let partitions = topic.partitions.iter().map(one).collect();
            response.results.push(AlterReplicaLogDirTopicResult {
                topic_name: topic.name,
                partitions,
                ..Default::default()
            });
        }
    }
    Ok(Outcome::answer(response))
}

pub(crate) fn describe_quorum(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeQuorumRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_cluster(AclOperation::Describe) {
        let error_message = Some(code.name().into());
        return Ok(Outcome::answer(DescribeQuorumResponse {
            error_code: code.code(),
            error_message,
            ..DescribeQuorumResponse::default()
        }));
    }
    let broker = &context.gateway.broker;
    let (node_id, journal) = (broker.node_id().0, &broker.journals()[0]);
    let durable = journal.durable_index().0 as i64;
    let mut response = DescribeQuorumResponse { error_message: None, ..DescribeQuorumResponse::default() };
    for topic in request.topics {
        let one = |partition: &kafka_wire::describe_quorum::PartitionData| {
            let mut answer = QuorumPartition {
                partition_index: partition.partition_index,
                error_message: None,
                ..Default::default()
            };
            if *topic.topic_name != *METADATA_TOPIC || partition.partition_index != 0 {
                answer.error_code = ErrorCode::UnknownTopicOrPartition.code();
                return answer;
            }
            let now = broker.now_ms();
            answer.leader_id = node_id;
            answer.leader_epoch = journal.term().0 as i32;
            answer.high_watermark = durable;
            answer.current_voters = vec![ReplicaState {
                replica_id: node_id,
                log_end_offset: durable,
                last_fetch_timestamp: now,
                last_caught_up_timestamp: now,
                ..ReplicaState::default()
            }];
            answer
        };
        let partitions = topic.partitions.iter().map(one).collect();
        response.topics.push(QuorumTopic { topic_name: topic.topic_name, partitions, ..Default::default() });
    }
    let (host, port) = context.advertise.resolve(context.local);
    let listener = Listener { name: "PLAINTEXT".into(), host: host.into(), port: port as u16, ..Default::default() };
    response.nodes = vec![Node { node_id, listeners: vec![listener], ..Default::default() }];
    Ok(Outcome::answer(response))
}

/// Only the one node can hold a replica, and it does already.
fn reassign(
    partition: &ReassignablePartition,
    known: Result<Option<&Topic>, ErrorCode>,
    node: i32,
) -> ReassignablePartitionResponse {
    let refusal = match &partition.replicas {
        _ if known.is_err() => known.err().map(|code| (code, code.name())),
        _ if !has(known.unwrap_or_default(), partition.partition_index) => {
            Some((ErrorCode::UnknownTopicOrPartition, "This server does not host this topic-partition."))
        }
        None => Some((ErrorCode::NoReassignmentInProgress, "No partition reassignment is in progress.")),
        Some(replicas) if *replicas == [node] => None,
        Some(_) => Some((ErrorCode::InvalidReplicaAssignment, "The replicas of a partition are this one node.")),
    };
    ReassignablePartitionResponse {
        partition_index: partition.partition_index,
        error_code: refusal.map_or(0, |(code, _)| code.code()),
        error_message: refusal.map(|(_, message)| message.into()),
        ..ReassignablePartitionResponse::default()
    }
}

pub(crate) fn alter_reassignments(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = AlterPartitionReassignmentsRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_cluster(AclOperation::Alter) {
        let error_code = code.code();
        let one = |one: &ReassignablePartition| ReassignablePartitionResponse {
            partition_index: one.partition_index,
            error_code,
            error_message: Some(code.name().into()),
            ..Default::default()
        };
        let responses = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(one).collect();
            ReassignableTopicResponse { name: topic.name, partitions, ..Default::default() }
        });
        return Ok(Outcome::answer(AlterPartitionReassignmentsResponse {
            error_code,
            error_message: Some(code.name().into()),
            responses: responses.collect(),
            ..Default::default()
        }));
    }
    let broker = &context.gateway.broker;
    let responses = request.topics.into_iter().map(|topic| {
        let known = context.asking().topic_for(AclOperation::Alter, &topic.name);
        let known = known.as_ref().map(Option::as_deref).map_err(|code| *code);
        let one = |partition| reassign(partition, known, broker.node_id().0);
        ReassignableTopicResponse {
            partitions: topic.partitions.iter().map(one).collect(),
            name: topic.name,
            ..Default::default()
        }
    });
    Ok(Outcome::answer(AlterPartitionReassignmentsResponse {
        responses: responses.collect(),
        error_message: None,
        allow_replication_factor_change: request.allow_replication_factor_change,
        ..AlterPartitionReassignmentsResponse::default()
    }))
}

pub(crate) fn list_reassignments(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    ListPartitionReassignmentsRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_cluster(AclOperation::Describe) {
        let (error_code, error_message) = (code.code(), Some(code.name().into()));
        return Ok(Outcome::answer(ListPartitionReassignmentsResponse {
            error_code,
            error_message,
            ..Default::default()
        }));
    }
    Ok(Outcome::answer(ListPartitionReassignmentsResponse { error_message: None, ..Default::default() }))
}
