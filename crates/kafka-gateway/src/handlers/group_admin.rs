//! DescribeGroups, DeleteGroups.

use broker::{AclOperation, AclResource, QUEUE_GROUP};
use delivery::{GroupState, assigned_partitions, subscribed_topics};
use kafka_wire::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};
use kafka_wire::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::{NO_ROOM, Outcome, control, once};
use crate::access::Asking;
use crate::answer_room::AnswerRoom;
use crate::error_code::of_group;
use crate::session::Context;

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeGroupsRequest::decode(reader, context.version)?;
    if context.describes_long(&request.groups) {
        return Ok(Outcome::Long);
    }
    let (version, asking) = (context.version, context.asking());
    let mut room = AnswerRoom::new(context.gateway);
    let mut one = |name: &Str| match asking.check_group(AclOperation::Describe, name) {
        Ok(()) if !room.is_there() => no_room(name),
        Ok(()) => {
            let authorized_operations =
                asking.operations(request.include_authorized_operations, AclResource::Group, name);
            let mut described =
                DescribedGroup { authorized_operations, ..describe_one(context, name.clone(), version) };
            hide(&asking, &mut described);
            if room.take(|writer| described.encode(writer, version)) { described } else { no_room(name) }
        }
        Err(code) => DescribedGroup { error_code: code.code(), group_id: name.clone(), ..DescribedGroup::default() },
    };
    let groups = once(&request.groups, |name| name).map(|(name, _)| one(name)).collect();
    Ok(Outcome::answer(DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() }))
}

/// A group that is to be asked for again, with fewer others.
fn no_room(name: &Str) -> DescribedGroup {
    DescribedGroup { error_code: NO_ROOM.code(), group_id: name.clone(), ..DescribedGroup::default() }
}

fn describe_one(context: &Context<'_>, name: Str, version: i16) -> DescribedGroup {
    let Some(group) = context.gateway.broker.groups().describe(&name) else {
        // From version 6 on a group that is not there is an error.
        let missing = version >= 6;
        return DescribedGroup {
            error_code: if missing { ErrorCode::GroupIdNotFound.code() } else { 0 },
            error_message: missing.then(|| format!("Group {name} not found.").into()),
            group_id: name,
            group_state: "Dead".into(),
            ..DescribedGroup::default()
        };
    };
    // What the members have agreed on counts once the leader has said who gets what.
    let stable = group.state == GroupState::Stable;
    let protocol = if stable { group.protocol.clone() } else { String::new() };
    let members = group.members.into_iter().map(|member| {
        let metadata =
            member.protocols.iter().find(|(name, _)| stable && *name == protocol).map(|(_, metadata)| metadata.clone());
        DescribedGroupMember {
            member_id: member.id.into(),
            group_instance_id: member.instance.map(Into::into),
            client_id: member.client_id.into(),
            client_host: member.host.into(),
            member_metadata: metadata.unwrap_or_default(),
            member_assignment: member.assignment,
            ..DescribedGroupMember::default()
        }
    });
    DescribedGroup {
        group_id: name,
        group_state: group.state.name().into(),
        protocol_type: group.protocol_type.into(),
        protocol_data: protocol.clone().into(),
        members: members.collect(),
        ..DescribedGroup::default()
    }
}

/// Consumers tell each other by name what they read. Of queues that are none for who asks they do not tell him, of others as much as in Kafka.
fn hide(asking: &Asking<'_>, group: &mut DescribedGroup) {
    if !asking.is_limited() || *group.protocol_type != *"consumer" {
        return;
    }
    let asking = asking.quietly();
    let is_hidden = |topic: &String| asking.check_queue(AclOperation::Describe, topic).is_err();
    let tells = |member: &DescribedGroupMember| {
        subscribed_topics(&member.member_metadata).iter().any(is_hidden)
            || assigned_partitions(&member.member_assignment).iter().any(|(topic, _)| is_hidden(topic))
    };
    if group.members.iter().any(tells) {
        for member in &mut group.members {
            (member.member_metadata, member.member_assignment) = Default::default();
        }
    }
}

pub(crate) fn delete(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DeleteGroupsRequest::decode(reader, context.version)?;
    let result = |group_id: Str, code: Option<ErrorCode>| DeletableGroupResult {
        group_id,
        error_code: code.map_or(0, ErrorCode::code),
        ..DeletableGroupResult::default()
    };
    let names = request.groups_names.clone();
    let acting = context.acting("DeleteGroups");
    Ok(control(
        context,
        move || DeleteGroupsResponse {
            results: names.into_iter().map(|name| result(name, Some(ErrorCode::CoordinatorNotAvailable))).collect(),
            ..DeleteGroupsResponse::default()
        },
        move |broker, asking| {
            // That of all queues is made again with its next member; what is not a share group was so called before that was refused.
            let deletable = |name: &Str| **name != *QUEUE_GROUP || asking.administers();
            let check = |name: &Str| {
                if deletable(name) {
                    asking.check_group(AclOperation::Delete, name)
                } else {
                    Err(ErrorCode::GroupAuthorizationFailed)
                }
            };
            let checked: Vec<(&Str, Result<(), ErrorCode>)> =
                once(&request.groups_names, |name| name).map(|(name, _)| (name, check(name))).collect();
            let allowed: Vec<&str> =
                checked.iter().filter(|(_, checked)| checked.is_ok()).map(|(name, _)| name.as_str()).collect();
            let mut deleted = broker.delete_groups(&allowed).into_iter();
            let code_of =
                |error: Option<delivery::GroupError>| error.map_or(ErrorCode::CoordinatorNotAvailable, of_group);
            let told = |(name, checked): (&Str, Result<(), ErrorCode>)| {
                let outcome = checked.and_then(|()| deleted.next().unwrap_or(Ok(())).map_err(code_of));
                result(name.clone(), outcome.err())
            };
            let results: Vec<DeletableGroupResult> = checked.into_iter().map(told).collect();
            results.iter().for_each(|one| acting.note(&one.group_id, one.error_code));
            DeleteGroupsResponse { results, ..Default::default() }
        },
    ))
}
