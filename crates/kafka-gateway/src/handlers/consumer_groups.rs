//! The consumer group protocol in which the coordinator assigns (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use broker::{
    AclOperation, AclResource, Broker, GroupReply, GroupTold, Heard, Matching, QuotaKey, Reply, TOPIC_NAME_BYTES_MAX,
};
use delivery::{ConsumerHeartbeat, GroupError, HeartbeatAnswer, Mention, Sight, Target};
use kafka_wire::consumer_group_describe::{
    self, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedGroup, Member, TopicPartitions,
};
use kafka_wire::consumer_group_heartbeat::{
    AssignedTopicPartitions, Assignment, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::{ConnectionId, TopicId};
use uuid::Uuid;

use super::{NO_ROOM, Outcome, Wait};
use crate::access::{Asking, HIDDEN};
use crate::answer_room::AnswerRoom;
use crate::body::{Body, Silence};
use crate::error_code::of_group;
use crate::session::{Context, ShardContext};

/// The member goes, for a while if it is a static one.
const LEAVES: i32 = -1;
const LEAVES_FOR_A_WHILE: i32 = -2;

/// Bytes of a member's id, which stands beside each partition that is assigned: clients have 22.
const MEMBER_ID_BYTES_MAX: usize = 256;

/// An answer that waits until what it tells is durable.
pub(super) struct HeartbeatWait<R>(pub R);

impl<R, B> Wait for HeartbeatWait<R>
where
    R: Fn(Result<HeartbeatAnswer, (ErrorCode, String)>) -> B,
    B: Body + 'static,
{
    fn handle_reply(&mut self, _part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        let heard = match *done.downcast::<GroupReply>().ok()? {
            Ok(heard) => outcome(heard)?,
            Err(_) => Err((ErrorCode::CoordinatorNotAvailable, "The group's state cannot be written.".to_owned())),
        };
        Some(Box::new((self.0)(heard)))
    }
}

/// What the coordinator says to a heartbeat, with the protocol's code.
fn outcome(heard: Heard) -> Option<Result<HeartbeatAnswer, (ErrorCode, String)>> {
    let Heard::Heartbeat(outcome) = heard else { return None };
    Some(outcome.map_err(|error| (of_group(error), error.to_string())))
}

/// Answers at once, or when it may be told.
pub(super) fn told<R, B>(told: GroupTold, respond: R) -> Outcome
where
    R: Fn(Result<HeartbeatAnswer, (ErrorCode, String)>) -> B + Send + 'static,
    B: Body + 'static,
{
    match told {
        GroupTold::Now(heard) => match outcome(heard) {
            Some(heard) => Outcome::answer(respond(heard)),
            None => Outcome::Close(ErrorCode::UnknownServerError),
        },
        GroupTold::Later => Outcome::Wait(Box::new(HeartbeatWait(respond))),
    }
}

/// Topics that one member may name, and what is wrong with more: each heartbeat of the group looks at all of them.
const NAMES_MAX: usize = 10_000;
const TOO_MANY_NAMES: &str = "SubscribedTopicNames may have 10000 topics and no more.";

/// Are these the names of topics, and not too many?
///
/// # Errors
/// What is wrong with them.
pub(super) fn check_names(names: Option<&[Str]>) -> Result<(), &'static str> {
    let mut distinct = hashbrown::HashSet::new();
    for name in names.unwrap_or_default() {
        if name.len() > TOPIC_NAME_BYTES_MAX {
            return Err("SubscribedTopicNames has a name that is longer than that of a topic may be.");
        }
        if distinct.insert(name) && distinct.len() > NAMES_MAX {
            return Err(TOO_MANY_NAMES);
        }
    }
    Ok(())
}

/// Names that may be there several times, each once.
pub(super) fn distinct(names: &[Str]) -> Vec<String> {
    names.iter().collect::<BTreeSet<_>>().into_iter().map(ToString::to_string).collect()
}

fn check(request: &ConsumerGroupHeartbeatRequest, version: i16) -> Result<(), &'static str> {
    let empty = |text: &Option<Str>| text.as_ref().is_some_and(|text| text.trim().is_empty());
    if (version >= 1 || request.member_epoch > 0 || request.member_epoch == LEAVES)
        && request.member_id.trim().is_empty()
    {
        return Err("MemberId can't be empty.");
    }
    if request.member_id.len() > MEMBER_ID_BYTES_MAX {
        return Err("MemberId is longer than 256 bytes.");
    }
    if request.group_id.trim().is_empty() {
        return Err("GroupId can't be empty.");
    }
    if empty(&request.instance_id) {
        return Err("InstanceId can't be empty.");
    }
    if empty(&request.rack_id) {
        return Err("RackId can't be empty.");
    }
    check_names(request.subscribed_topic_names.as_deref())?;
    match request.member_epoch {
        0 if request.rebalance_timeout_ms == -1 => Err("RebalanceTimeoutMs must be provided in first request."),
        0 if request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) => {
            Err("TopicPartitions must be empty when (re-)joining.")
        }
        0 if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() => {
            Err("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
        }
        LEAVES_FOR_A_WHILE if request.instance_id.is_none() => Err("InstanceId can't be null."),
        ..LEAVES_FOR_A_WHILE => Err("MemberEpoch is invalid."),
        _ => Ok(()),
    }
}

fn respond(outcome: Result<HeartbeatAnswer, (ErrorCode, String)>) -> ConsumerGroupHeartbeatResponse {
    match outcome {
        Ok(answer) => ConsumerGroupHeartbeatResponse {
            member_id: Some(answer.member_id.into()),
            member_epoch: answer.epoch,
            heartbeat_interval_ms: answer.interval as i32,
            assignment: answer.assignment.map(|target| Assignment {
                topic_partitions: partitions_by_id(&target)
                    .map(|(topic_id, partitions)| AssignedTopicPartitions {
                        topic_id,
                        partitions,
                        ..Default::default()
                    })
                    .collect(),
                ..Assignment::default()
            }),
            ..ConsumerGroupHeartbeatResponse::default()
        },
        Err((code, message)) => ConsumerGroupHeartbeatResponse {
            error_code: code.code(),
            error_message: Some(message.into()),
            ..ConsumerGroupHeartbeatResponse::default()
        },
    }
}

/// Partitions as they are on the wire.
pub(super) fn partitions_by_id(target: &Target) -> impl Iterator<Item = (Uuid, Vec<i32>)> + '_ {
    target.iter().map(|(topic, partitions)| (topic.0, partitions.iter().map(|partition| *partition as i32).collect()))
}

/// May the caller be a member, and know of the topics that he subscribes to? Queues that are not there for him he may name as what is not there.
///
/// # Errors
/// `GroupAuthorizationFailed`, `TopicAuthorizationFailed`.
fn check_member<'a>(
    asking: &Asking<'_>,
    group: &str,
    mut topics: impl Iterator<Item = &'a Str>,
) -> Result<(), ErrorCode> {
    asking.check_consumers(AclOperation::Read, group)?;
    topics.try_for_each(|topic| match asking.check_topic(AclOperation::Describe, topic) {
        Err(HIDDEN) => Ok(()),
        leave => leave,
    })
}

/// Has somebody asked with what he may see of the topics. What he names is judged when he names it, and later by permissions for queues alone, which
/// decide what is there for him; what he describes is as much of it as he may see.
pub(super) fn seeing<T>(asking: &Asking<'_>, ask: impl FnOnce(Sight<'_>) -> T) -> T {
    let asking = asking.quietly();
    if !asking.is_limited() {
        return ask(Sight { user: asking.name.unwrap_or_default(), ..Sight::ALL });
    }
    let sees = |topic: &str, mention: Mention| match mention {
        Mention::Named => asking.check_queue(AclOperation::Describe, topic) != Err(HIDDEN),
        Mention::Described => asking.check_topic(AclOperation::Describe, topic).is_ok(),
    };
    ask(Sight { stamp: asking.stamp(), user: asking.name.unwrap_or_default(), sees: Some(&sees) })
}

/// Why a group is described with nothing but a code.
pub(super) const TOPICS_HIDDEN: &str =
    "The group has described topic(s) that the client is not authorized to describe.";

/// May all these names be told? A queue that is not there for who asks is a name as one of which there is no topic.
pub(super) fn may_know<'a>(asking: &Asking<'_>, mut topics: impl Iterator<Item = &'a Str>) -> bool {
    topics.all(|topic| matches!(asking.quietly().check_topic(AclOperation::Describe, topic), Ok(()) | Err(HIDDEN)))
}

/// May all these topics be seen?
pub(super) fn may_see<'a>(asking: &Asking<'_>, mut topics: impl Iterator<Item = &'a Str>) -> bool {
    topics.all(|topic| asking.quietly().check_topic(AclOperation::Describe, topic).is_ok())
}

pub(crate) fn heartbeat(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ConsumerGroupHeartbeatRequest::decode(reader, context.version)?;
    if let Err(rule) = check(&request, context.version) {
        return Ok(Outcome::answer(respond(Err((ErrorCode::InvalidRequest, rule.to_owned())))));
    }
    if let Err(code) =
        check_member(&context.asking(), &request.group_id, request.subscribed_topic_names.iter().flatten())
    {
        return Ok(Outcome::answer(respond(Err((code, code.name().to_owned())))));
    }
    let text = |text: Option<Str>| text.map(|text| text.to_string());
    let group = request.group_id;
    context.spoken.speak(&group);
    if request.member_epoch > 0 && context.looks_again(&group) {
        return Ok(Outcome::answer(respond(Err((
            ErrorCode::NotCoordinator,
            "Look for the coordinator again.".to_owned(),
        )))));
    }
    let beat = ConsumerHeartbeat {
        member_id: request.member_id.to_string(),
        epoch: request.member_epoch,
        instance: text(request.instance_id),
        rack: text(request.rack_id),
        rebalance_timeout: u64::try_from(request.rebalance_timeout_ms).ok(),
        topics: request.subscribed_topic_names.as_deref().map(distinct),
        regex: text(request.subscribed_topic_regex),
        assignor: text(request.server_assignor),
        owned: request.topic_partitions.map(|topics| {
            // What is no partition is held by nobody.
            let indexes = |partitions: Vec<i32>| {
                partitions.into_iter().map(|one| u32::try_from(one).unwrap_or(u32::MAX)).collect()
            };
            topics.into_iter().map(|topic| (TopicId(topic.topic_id), indexes(topic.partitions))).collect()
        }),
        client_id: context.client_id.to_owned(),
        host: format!("/{}", context.peer.ip().to_canonical()),
        user: context.name().unwrap_or_default().to_owned(),
        fresh_id: Uuid::new_v4().to_string(),
    };
    let member_of = group.clone();
    let submit = move |context: &mut Context<'_>| {
        let broker = &context.gateway.broker;
        let Some(matching) = broker.unmatched(&group, &beat) else { return submit(&group, &beat, context) };
        let gone = Arc::new(AtomicBool::new(false));
        if !broker.unpack(context.peer.ip(), context.to, matching.work(Arc::clone(&gone))) {
            // The broker ends.
            return Outcome::answer(respond(Err((ErrorCode::CoordinatorNotAvailable, "The broker ends.".to_owned()))));
        }
        Outcome::Wait(Box::new(MatchWait { group, beat, _matching: matching, gone, then: None }))
    };
    Ok(as_member(member_of, submit, context))
}

/// Has the coordinator decide on a heartbeat.
fn submit(group: &Str, beat: &ConsumerHeartbeat, context: &mut Context<'_>) -> Outcome {
    let outcome =
        seeing(&context.asking(), |sight| context.gateway.broker.consumer_heartbeat(group, beat, sight, context.to));
    told(outcome, respond)
}

/// A heartbeat that waits until other threads have matched expressions against the names of topics, and then for its answer.
struct MatchWait {
    group: Str,
    beat: ConsumerHeartbeat,
    /// Keeps what they have found.
    _matching: Matching,
    /// The connection is, or the node is about to be.
    gone: Arc<AtomicBool>,
    then: Option<Box<dyn Wait>>,
}

impl Wait for MatchWait {
    fn holds_reading(&self) -> bool {
        true
    }

    fn hasten(&mut self, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        // What is known by now is all there will be.
        self.gone.store(true, Ordering::Relaxed);
        None
    }

    fn cancel(&mut self, _connection: ConnectionId, _shard: &mut ShardContext) {
        self.gone.store(true, Ordering::Relaxed);
    }

    fn handle_reply(&mut self, part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if let Some(then) = &mut self.then {
            return then.handle_reply(part, reply, context);
        }
        let Reply::Done(took) = reply else { return None };
        let took = took.downcast::<Duration>().ok()?;
        if context.throttle.is_timed() {
            context.throttle.take(
                context.gateway.broker.quotas(),
                QuotaKey::RequestPercentage,
                took.as_nanos() as u64,
                context.now,
            );
        }
        match submit(&self.group, &self.beat, context) {
            Outcome::Answer(body) | Outcome::Downgraded(body) => Some(body),
            Outcome::Wait(then) => {
                self.then = Some(then);
                None
            }
            Outcome::Silent | Outcome::Resume(_) | Outcome::Long => Some(Box::new(Silence { refused: None })),
            Outcome::Close(code) => Some(Box::new(Silence { refused: Some(code) })),
        }
    }
}

/// Has a heartbeat of a member of `group` carried out on the thread of its connection. What it names has been looked at, elsewhere if that is much.
pub(super) fn as_member(
    group: Str,
    submit: impl FnOnce(&mut Context<'_>) -> Outcome + Send + 'static,
    context: &mut Context<'_>,
) -> Outcome {
    let speak = move |context: &mut Context<'_>| {
        context.spoken.speak(&group);
        submit(context)
    };
    on_its_thread(speak, context)
}

/// Has something done on the thread of the connection, also where its request was decoded elsewhere.
pub(super) fn on_its_thread(
    submit: impl FnOnce(&mut Context<'_>) -> Outcome + Send + 'static,
    context: &mut Context<'_>,
) -> Outcome {
    if context.gone.is_none() { submit(context) } else { Outcome::Resume(Box::new(submit)) }
}

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ConsumerGroupDescribeRequest::decode(reader, context.version)?;
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
    Ok(Outcome::answer(ConsumerGroupDescribeResponse {
        groups: groups.collect(),
        ..ConsumerGroupDescribeResponse::default()
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
    let assigned = found
        .members
        .iter()
        .flat_map(|member| member.assignment.topic_partitions.iter().chain(&member.target_assignment.topic_partitions));
    if asking.is_limited() && !(may_know(&asking, named) && may_see(&asking, assigned.map(|topic| &topic.topic_name))) {
        found.error_code = ErrorCode::TopicAuthorizationFailed.code();
        found.error_message = Some(Str::from_static(TOPICS_HIDDEN));
        found.members.clear();
    }
    if found.error_code == 0 {
        found.authorized_operations = asking.operations(operations, AclResource::Group, &found.group_id);
    }
    found
}

/// Topics by name; those that are gone have none and are left out.
pub(super) fn named<T>(
    broker: &Broker,
    partitions: BTreeMap<TopicId, Vec<i32>>,
    one: impl Fn(Uuid, Str, Vec<i32>) -> T,
) -> Vec<T> {
    let find = |(id, partitions)| broker.topic_by_id(id).map(|topic| one(id.0, topic.name.as_str().into(), partitions));
    partitions.into_iter().filter_map(find).collect()
}

fn describe_one(broker: &Broker, group: Str) -> DescribedGroup {
    if group.is_empty() {
        return DescribedGroup {
            error_code: ErrorCode::InvalidGroupId.code(),
            group_id: group,
            ..DescribedGroup::default()
        };
    }
    let Some(found) = broker.groups().describe_consumers(&group) else {
        let message = if broker.groups().exists(&group) { "is not a consumer group" } else { "not found" };
        return DescribedGroup {
            error_code: of_group(GroupError::GroupNotFound).code(),
            error_message: Some(format!("Group {group} {message}.").into()),
            group_id: group,
            ..DescribedGroup::default()
        };
    };
    let assignment = |partitions| consumer_group_describe::Assignment {
        topic_partitions: named(broker, partitions, |topic_id, topic_name, partitions| TopicPartitions {
            topic_id,
            topic_name,
            partitions,
            ..TopicPartitions::default()
        }),
        ..Default::default()
    };
    let members = found.members.into_iter().map(|(member, target)| {
        let mut held: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
        for (topic, partitions) in member.assigned.iter().chain(&*member.revoking) {
            held.entry(*topic).or_default().extend(partitions.keys().map(|partition| *partition as i32));
        }
        Member {
            member_id: member.id.into(),
            instance_id: member.instance.map(Into::into),
            rack_id: member.rack.map(Into::into),
            member_epoch: member.epoch,
            client_id: member.client_id.into(),
            client_host: member.host.into(),
            subscribed_topic_names: member.topics.iter().map(|topic| topic.clone().into()).collect(),
            subscribed_topic_regex: Some(member.regex.unwrap_or_default().into()),
            assignment: assignment(held),
            target_assignment: assignment(
                partitions_by_id(&target).map(|(id, partitions)| (TopicId(id), partitions)).collect(),
            ),
            member_type: i8::from(member.classic.is_none()),
            ..Member::default()
        }
    });
    DescribedGroup {
        group_state: found.state.name().into(),
        group_epoch: found.epoch,
        assignment_epoch: found.assignment_epoch,
        assignor_name: Str::from_static(found.assignor),
        members: members.collect(),
        group_id: group,
        ..DescribedGroup::default()
    }
}
