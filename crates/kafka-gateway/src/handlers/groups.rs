//! The classic group protocol: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

use broker::{AclOperation, GroupReply, GroupTold, Heard, Reply};
use bytes::Bytes;
use delivery::{Answer, GroupError, JoinRequest, Joined, LeaveMember, SyncRequest, Synced};
use kafka_wire::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_wire::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use kafka_wire::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};
use kafka_wire::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};
use kafka_wire::sync_group::{SyncGroupRequest, SyncGroupResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use uuid::Uuid;

use super::consumer_groups::{as_member, on_its_thread};
use super::{Outcome, Wait};
use crate::body::Body;
use crate::error_code::of_group;
use crate::session::Context;

const KEY_GROUP: i8 = 0;
const KEY_TRANSACTION: i8 = 1;

fn code(error: Option<GroupError>) -> i16 {
    error.map_or(0, |error| of_group(error).code())
}

pub(crate) fn find_coordinator(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = FindCoordinatorRequest::decode(reader, context.version)?;
    let node = context.gateway.broker.node_id().0;
    let (host, port) = context.advertise.resolve(context.local);
    match (request.key_type, &request.coordinator_keys[..]) {
        (KEY_GROUP, []) => context.spoken.ask(&request.key),
        (KEY_GROUP, [group]) => context.spoken.ask(group),
        (KEY_GROUP, _) => context.spoken.ask_many(),
        _ => {}
    }
    // What keeps the state of share groups is nobody's to find.
    let refusal = match request.key_type {
        KEY_GROUP | KEY_TRANSACTION => None,
        _ => Some((ErrorCode::InvalidRequest, "Coordinator of this type is not supported.")),
    };
    let asking = context.asking();
    let denied = |key: &str| match request.key_type {
        KEY_GROUP => asking.check_group(AclOperation::Describe, key).err(),
        KEY_TRANSACTION => asking.check_transaction(AclOperation::Describe, key).err(),
        _ => asking.check_cluster(AclOperation::ClusterAction).err(),
    };
    let found = |key: Str| match denied(&key).map(|code| (code, code.name())).or(refusal) {
        None => Coordinator {
            key,
            node_id: node,
            host: host.as_str().into(),
            port,
            error_message: None,
            ..Default::default()
        },
        Some((code, message)) => Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code: code.code(),
            error_message: Some(Str::from_static(message)),
            ..Default::default()
        },
    };
    if context.version >= 4 {
        let coordinators = request.coordinator_keys.into_iter().map(found).collect();
        return Ok(Outcome::answer(FindCoordinatorResponse { coordinators, ..Default::default() }));
    }
    let one = found(request.key);
    Ok(Outcome::answer(FindCoordinatorResponse {
        error_code: one.error_code,
        error_message: one.error_message,
        node_id: one.node_id,
        host: one.host,
        port: one.port,
        ..FindCoordinatorResponse::default()
    }))
}

/// A join or sync that has been handed to the coordinator.
enum GroupWait {
    Join,
    Sync,
}

impl GroupWait {
    fn unavailable(&self) -> Box<dyn Body> {
        let error_code = ErrorCode::CoordinatorNotAvailable.code();
        match self {
            Self::Join => Box::new(JoinGroupResponse { error_code, ..JoinGroupResponse::default() }),
            Self::Sync => Box::new(SyncGroupResponse { error_code, ..SyncGroupResponse::default() }),
        }
    }
}

impl Wait for GroupWait {
    fn handle_reply(&mut self, _part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        Some(match (*done.downcast::<GroupReply>().ok()?, self) {
            (Ok(Heard::Classic(Answer::Joined(joined))), _) => Box::new(join_response(joined, context.version)),
            (Ok(Heard::Classic(Answer::Synced(synced))), _) => Box::new(sync_response(synced)),
            (Ok(_), _) => return None,
            (Err(_), wait) => wait.unavailable(),
        })
    }

    /// A client that hears this looks for the coordinator again.
    fn hasten(&mut self, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        Some(self.unavailable())
    }
}

/// A farewell that has been handed to the coordinator, and is answered when it is durable.
struct LeaveWait(Vec<LeaveMember>);

impl Wait for LeaveWait {
    fn handle_reply(&mut self, _part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        let members = std::mem::take(&mut self.0);
        Some(Box::new(match *done.downcast::<GroupReply>().ok()? {
            Ok(Heard::Left(outcome)) => leave_response(members, outcome, context.version),
            Ok(_) => return None,
            Err(_) => LeaveGroupResponse {
                error_code: ErrorCode::CoordinatorNotAvailable.code(),
                ..LeaveGroupResponse::default()
            },
        }))
    }
}

fn leave_response(
    members: Vec<LeaveMember>,
    outcome: Result<Vec<Result<(), GroupError>>, GroupError>,
    version: i16,
) -> LeaveGroupResponse {
    let mut response = LeaveGroupResponse::default();
    match outcome {
        // A group that nobody knows has no members: each is told so.
        Err(GroupError::UnknownMember) if version >= 3 => {
            response.members = members.into_iter().map(|member| left(member, Err(GroupError::UnknownMember))).collect();
        }
        Err(error) => response.error_code = of_group(error).code(),
        Ok(outcomes) if version >= 3 => {
            response.members =
                members.into_iter().zip(outcomes).map(|(member, outcome)| left(member, outcome)).collect();
        }
        Ok(outcomes) => response.error_code = code(outcomes.into_iter().find_map(Result::err)),
    }
    response
}

fn join_response(joined: Joined, version: i16) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|(id, instance, metadata)| JoinGroupResponseMember {
        member_id: id.into(),
        group_instance_id: instance.map(Into::into),
        metadata,
        ..JoinGroupResponseMember::default()
    });
    let protocol_name = joined.protocol.map(Str::from);
    JoinGroupResponse {
        error_code: code(joined.error),
        generation_id: joined.generation,
        protocol_type: joined.protocol_type.map(Into::into),
        protocol_name: if version >= 7 { protocol_name } else { Some(protocol_name.unwrap_or_default()) },
        leader: joined.leader.into(),
        skip_assignment: joined.skip_assignment,
        member_id: joined.member_id.into(),
        members: members.collect(),
        ..JoinGroupResponse::default()
    }
}

fn sync_response(synced: Synced) -> SyncGroupResponse {
    SyncGroupResponse {
        error_code: code(synced.error),
        protocol_type: synced.protocol_type.map(Into::into),
        protocol_name: synced.protocol.map(Into::into),
        assignment: synced.assignment,
        ..SyncGroupResponse::default()
    }
}

fn text(value: Option<Str>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn owned(bytes: &Bytes) -> Bytes {
    // What outlives the request must not hold its whole frame.
    Bytes::copy_from_slice(bytes)
}

pub(crate) fn join(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = JoinGroupRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_consumers(AclOperation::Read, &request.group_id) {
        return Ok(Outcome::answer(JoinGroupResponse { error_code: code.code(), ..JoinGroupResponse::default() }));
    }
    context.spoken.speak(&request.group_id);
    let session_timeout = request.session_timeout_ms.max(0) as u64;
    let rebalance_timeout =
        if context.version == 0 { session_timeout } else { request.rebalance_timeout_ms.max(0) as u64 };
    let instance = text(request.group_instance_id);
    let prefix = instance.as_deref().unwrap_or(context.client_id);
    let wish = JoinRequest {
        member_id: request.member_id.to_string(),
        client_id: context.client_id.to_owned(),
        host: format!("/{}", context.peer.ip().to_canonical()),
        user: context.name().unwrap_or_default().to_owned(),
        protocol_type: request.protocol_type.to_string(),
        protocols: request.protocols.iter().map(|one| (one.name.to_string(), owned(&one.metadata))).collect(),
        session_timeout,
        rebalance_timeout,
        two_step: context.version >= 4,
        may_skip: context.version >= 9,
        fresh_id: format!("{prefix}-{}", Uuid::new_v4()),
        instance,
    };
    let group = request.group_id.clone();
    let submit = move |context: &mut Context<'_>| {
        context.gateway.broker.join_group(&group, wish, context.to);
        Outcome::Wait(Box::new(GroupWait::Join))
    };
    Ok(as_member(request.group_id, submit, context))
}

pub(crate) fn sync(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = SyncGroupRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_consumers(AclOperation::Read, &request.group_id) {
        return Ok(Outcome::answer(SyncGroupResponse { error_code: code.code(), ..SyncGroupResponse::default() }));
    }
    if context.version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        let error_code = ErrorCode::InconsistentGroupProtocol.code();
        return Ok(Outcome::answer(SyncGroupResponse { error_code, ..SyncGroupResponse::default() }));
    }
    let wish = SyncRequest {
        member_id: request.member_id.to_string(),
        instance: text(request.group_instance_id),
        generation: request.generation_id,
        protocol_type: text(request.protocol_type),
        protocol: text(request.protocol_name),
        assignments: request
            .assignments
            .iter()
            .map(|one| (one.member_id.to_string(), owned(&one.assignment)))
            .collect(),
    };
    let submit = move |context: &mut Context<'_>| {
        context.gateway.broker.sync_group(&request.group_id, wish, context.to);
        Outcome::Wait(Box::new(GroupWait::Sync))
    };
    Ok(on_its_thread(submit, context))
}

pub(crate) fn heartbeat(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = HeartbeatRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_consumers(AclOperation::Read, &request.group_id) {
        return Ok(Outcome::answer(HeartbeatResponse { error_code: code.code(), ..HeartbeatResponse::default() }));
    }
    context.spoken.speak(&request.group_id);
    if context.looks_again(&request.group_id) {
        return Ok(Outcome::answer(HeartbeatResponse {
            error_code: ErrorCode::NotCoordinator.code(),
            ..HeartbeatResponse::default()
        }));
    }
    let outcome = context.gateway.broker.heartbeat(
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id,
    );
    Ok(Outcome::answer(HeartbeatResponse { error_code: code(outcome.err()), ..HeartbeatResponse::default() }))
}

fn left(member: LeaveMember, outcome: Result<(), GroupError>) -> MemberResponse {
    MemberResponse {
        member_id: member.member_id.into(),
        group_instance_id: member.instance.map(Into::into),
        error_code: code(outcome.err()),
        ..MemberResponse::default()
    }
}

pub(crate) fn leave(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = LeaveGroupRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_consumers(AclOperation::Read, &request.group_id) {
        return Ok(Outcome::answer(LeaveGroupResponse { error_code: code.code(), ..LeaveGroupResponse::default() }));
    }
    let members: Vec<LeaveMember> = if context.version >= 3 {
        let one = |member: &kafka_wire::leave_group::MemberIdentity| LeaveMember {
            member_id: member.member_id.to_string(),
            instance: text(member.group_instance_id.clone()),
        };
        request.members.iter().map(one).collect()
    } else {
        vec![LeaveMember { member_id: request.member_id.to_string(), instance: None }]
    };
    let submit = move |context: &mut Context<'_>| match context.gateway.broker.leave_group(
        &request.group_id,
        &members,
        context.to,
    ) {
        GroupTold::Now(Heard::Left(outcome)) => Outcome::answer(leave_response(members, outcome, context.version)),
        GroupTold::Now(_) => Outcome::Close(ErrorCode::UnknownServerError),
        GroupTold::Later => Outcome::Wait(Box::new(LeaveWait(members))),
    };
    Ok(on_its_thread(submit, context))
}
