//! Members of share groups (KIP-932): ShareGroupHeartbeat, ShareGroupDescribe.

use std::collections::BTreeMap;

use broker::{AclOperation, AclResource, Broker, QUEUE_GROUP};
use delivery::{GroupError, HeartbeatAnswer, ShareHeartbeat};
use kafka_wire::share_group_describe::{
    self, DescribedGroup, Member, ShareGroupDescribeRequest, ShareGroupDescribeResponse, TopicPartitions,
};
use kafka_wire::share_group_heartbeat::{self, Assignment, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::TopicId;

use super::consumer_groups::{
    TOPICS_HIDDEN, check_names, distinct, may_know, may_see, named, partitions_by_id, seeing, told,
};
use super::{NO_ROOM, Outcome};
use crate::access::{Asking, HIDDEN};
use crate::answer_room::AnswerRoom;
use crate::error_code::of_group;
use crate::session::Context;

/// The one assignor of share groups.
const ASSIGNOR: &str = "simple";
/// Below what a leaving member says.
const IMPOSSIBLE: i32 = -2;

fn check(request: &ShareGroupHeartbeatRequest) -> Result<(), &'static str> {
    if request.member_id.trim().is_empty() {
        return Err("MemberId can't be empty.");
    }
    if request.group_id.trim().is_empty() {
        return Err("GroupId can't be empty.");
    }
    if request.rack_id.as_ref().is_some_and(|rack| rack.trim().is_empty()) {
        return Err("RackId can't be empty.");
    }
    check_names(request.subscribed_topic_names.as_deref())?;
    match request.member_epoch {
        0 if request.subscribed_topic_names.as_ref().is_none_or(Vec::is_empty) => {
            Err("SubscribedTopicNames must be set in first request.")
        }
        ..=IMPOSSIBLE => Err("MemberEpoch is invalid."),
        _ => Ok(()),
    }
}

fn respond(outcome: Result<HeartbeatAnswer, (ErrorCode, String)>) -> ShareGroupHeartbeatResponse {
    match outcome {
        Ok(answer) => ShareGroupHeartbeatResponse {
            member_id: Some(answer.member_id.into()),
            member_epoch: answer.epoch,
            heartbeat_interval_ms: answer.interval as i32,
            assignment: answer.assignment.map(|target| Assignment {
                topic_partitions: partitions_by_id(&target)
                    .map(|(topic_id, partitions)| share_group_heartbeat::TopicPartitions {
                        topic_id,
                        partitions,
                        ..Default::default()
                    })
                    .collect(),
                ..Assignment::default()
            }),
            ..ShareGroupHeartbeatResponse::default()
        },
        Err((code, message)) => ShareGroupHeartbeatResponse {
            error_code: code.code(),
            error_message: Some(message.into()),
            ..ShareGroupHeartbeatResponse::default()
        },
    }
}

/// May the caller be a member, and know of the topics that he subscribes to? Of the group of all queues he is one for queues.
///
/// # Errors
/// `GroupAuthorizationFailed`, `TopicAuthorizationFailed`.
fn check_member<'a>(
    asking: &Asking<'_>,
    group: &str,
    mut topics: impl Iterator<Item = &'a Str>,
) -> Result<(), ErrorCode> {
    asking.check_group(AclOperation::Read, group)?;
    let is_queue =
        |topic: &str| asking.broker.topic(topic).is_some_and(|topic| asking.broker.queue_on(&topic).is_some());
    topics.try_for_each(|topic| match asking.check_topic(AclOperation::Describe, topic) {
        Ok(()) if group != QUEUE_GROUP || is_queue(topic) => Ok(()),
        Err(HIDDEN) if group != QUEUE_GROUP => Ok(()),
        Ok(()) | Err(HIDDEN) => Err(ErrorCode::GroupAuthorizationFailed),
        Err(code) => Err(code),
    })
}

pub(crate) fn heartbeat(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ShareGroupHeartbeatRequest::decode(reader, context.version)?;
    if let Err(rule) = check(&request) {
        return Ok(Outcome::answer(respond(Err((ErrorCode::InvalidRequest, rule.to_owned())))));
    }
    if let Err(code) =
        check_member(&context.asking(), &request.group_id, request.subscribed_topic_names.iter().flatten())
    {
        return Ok(Outcome::answer(respond(Err((code, code.name().to_owned())))));
    }
    let beat = ShareHeartbeat {
        member_id: request.member_id.to_string(),
        epoch: request.member_epoch,
        rack: request.rack_id.map(|rack| rack.to_string()),
        topics: request.subscribed_topic_names.as_deref().map(distinct),
        client_id: context.client_id.to_owned(),
        host: format!("/{}", context.peer.ip().to_canonical()),
    };
    let group = request.group_id;
    let submit = move |context: &mut Context<'_>| {
        let outcome =
            seeing(&context.asking(), |sight| context.gateway.broker.share_heartbeat(&group, &beat, sight, context.to));
        told(outcome, respond)
    };
    // What it names has been looked at, elsewhere if that is much.
    Ok(if context.gone.is_some() { Outcome::Resume(Box::new(submit)) } else { submit(context) })
}

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ShareGroupDescribeRequest::decode(reader, context.version)?;
    if context.describes_long(&request.group_ids) {
        return Ok(Outcome::Long);
    }
    let mut room = AnswerRoom::new(context.gateway);
    let groups = super::once(&request.group_ids, |group| group).map(|(group, _)| {
        let found =
            room.is_there().then(|| describe_for(context, group.clone(), request.include_authorized_operations));
        let found = found.filter(|found| room.take(|writer| found.encode(writer, context.version)));
        found.unwrap_or_else(|| DescribedGroup {
            error_code: NO_ROOM.code(),
            group_id: group.clone(),
            ..DescribedGroup::default()
        })
    });
    Ok(Outcome::answer(ShareGroupDescribeResponse {
        groups: groups.collect(),
        ..ShareGroupDescribeResponse::default()
    }))
}

/// As the caller may see it.
fn describe_for(context: &Context<'_>, group: Str, operations: bool) -> DescribedGroup {
    let asking = context.asking();
    if let Err(code) = asking.check_group(AclOperation::Describe, &group) {
        return DescribedGroup { error_code: code.code(), group_id: group, ..DescribedGroup::default() };
    }
    let mut found = describe_one(&context.gateway.broker, group);
    let named = found.members.iter().flat_map(|member| &member.subscribed_topic_names);
    let assigned =
        found.members.iter().flat_map(|member| &member.assignment.topic_partitions).map(|topic| &topic.topic_name);
    if asking.is_limited() && !(may_know(&asking, named) && may_see(&asking, assigned)) {
        found.error_code = ErrorCode::TopicAuthorizationFailed.code();
        found.error_message = Some(Str::from_static(TOPICS_HIDDEN));
        found.members.clear();
    }
    if found.error_code == 0 {
        found.authorized_operations = asking.operations(operations, AclResource::Group, &found.group_id);
    }
    found
}

fn describe_one(broker: &Broker, group: Str) -> DescribedGroup {
    if group.is_empty() {
        return DescribedGroup {
            error_code: ErrorCode::InvalidGroupId.code(),
            group_id: group,
            ..DescribedGroup::default()
        };
    }
    let Some(found) = broker.groups().describe_share(&group) else {
        let message = if broker.groups().exists(&group) { "is not a share group" } else { "not found" };
        return DescribedGroup {
            error_code: of_group(GroupError::GroupNotFound).code(),
            error_message: Some(format!("Group {group} {message}.").into()),
            group_id: group,
            ..DescribedGroup::default()
        };
    };
    let members = found.members.into_iter().map(|member| {
        let partitions: BTreeMap<TopicId, Vec<i32>> =
            partitions_by_id(&member.assigned).map(|(id, partitions)| (TopicId(id), partitions)).collect();
        let one = |topic_id, topic_name, partitions| TopicPartitions {
            topic_id,
            topic_name,
            partitions,
            ..TopicPartitions::default()
        };
        Member {
            member_id: member.id.into(),
            rack_id: member.rack.map(Into::into),
            member_epoch: member.epoch,
            client_id: member.client_id.into(),
            client_host: member.host.into(),
            subscribed_topic_names: member.topics.iter().map(|name| name.as_str().into()).collect(),
            assignment: share_group_describe::Assignment {
                topic_partitions: named(broker, partitions, one),
                ..Default::default()
            },
            ..Member::default()
        }
    });
    DescribedGroup {
        group_state: Str::from_static(found.state),
        group_epoch: found.epoch,
        assignment_epoch: found.assignment_epoch,
        assignor_name: Str::from_static(ASSIGNOR),
        members: members.collect(),
        group_id: group,
        ..DescribedGroup::default()
    }
}
