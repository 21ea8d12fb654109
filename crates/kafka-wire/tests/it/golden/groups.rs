//! Samples of what groups of consumers say.

use bytes::Bytes;
use kafka_protocol::messages as theirs;
use kafka_protocol::messages::GroupId;
use theirs::join_group_request::JoinGroupRequestProtocol;
use theirs::join_group_response::JoinGroupResponseMember;
use theirs::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use theirs::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};

use super::samples::{orders, text, topic_id};

pub fn join_group_request(version: i16) -> theirs::JoinGroupRequest {
    let protocol = |name, metadata| {
        JoinGroupRequestProtocol::default().with_name(text(name)).with_metadata(Bytes::from_static(metadata))
    };
    let mut request = theirs::JoinGroupRequest::default()
        .with_group_id(GroupId(text("billing")))
        .with_session_timeout_ms(45_000)
        .with_rebalance_timeout_ms(300_000)
        .with_member_id(text("member-1"))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol("range", b"\x00\x01"), protocol("sticky", b"")]);
    if version >= 5 {
        request.group_instance_id = Some(text("seat-1"));
    }
    if version >= 8 {
        request.reason = Some(text("restarted"));
    }
    request
}

pub fn join_group_response(version: i16) -> theirs::JoinGroupResponse {
    let mut member = JoinGroupResponseMember::default().with_member_id(text("member-1"));
    member = member.with_metadata(Bytes::from_static(b"\x00\x01"));
    if version >= 5 {
        member.group_instance_id = Some(text("seat-1"));
    }
    let mut response = theirs::JoinGroupResponse::default()
        .with_throttle_time_ms(5)
        .with_error_code(79)
        .with_generation_id(12)
        .with_protocol_name(Some(text("range")))
        .with_leader(text("member-1"))
        .with_member_id(text("member-1"))
        .with_members(vec![member]);
    if version >= 7 {
        response.protocol_type = Some(text("consumer"));
    }
    if version >= 9 {
        response.skip_assignment = true;
    }
    response
}

pub fn offset_commit_request(version: i16) -> theirs::OffsetCommitRequest {
    let mut partition = OffsetCommitRequestPartition::default().with_partition_index(3).with_committed_offset(1010);
    partition = partition.with_committed_metadata(Some(text("note")));
    if version >= 6 {
        partition.committed_leader_epoch = 6;
    }
    let bare = OffsetCommitRequestPartition::default().with_partition_index(4).with_committed_metadata(None);
    let topic = OffsetCommitRequestTopic::default().with_name(orders()).with_partitions(vec![partition, bare]);
    let mut request = theirs::OffsetCommitRequest::default()
        .with_group_id(GroupId(text("billing")))
        .with_generation_id_or_member_epoch(12)
        .with_member_id(text("member-1"))
        .with_topics(vec![topic]);
    if version >= 7 {
        request.group_instance_id = Some(text("seat-1"));
    }
    if version <= 4 {
        request.retention_time_ms = 86_400_000;
    }
    request
}

pub fn offset_commit_response(version: i16) -> theirs::OffsetCommitResponse {
    let partition = OffsetCommitResponsePartition::default().with_partition_index(3).with_error_code(22);
    let topic = OffsetCommitResponseTopic::default().with_partitions(vec![partition]);
    let topic = if version <= 9 { topic.with_name(orders()) } else { topic.with_topic_id(topic_id()) };
    theirs::OffsetCommitResponse::default().with_throttle_time_ms(5).with_topics(vec![topic])
}
