//! Members of streams groups (KIP-1071): StreamsGroupHeartbeat, StreamsGroupDescribe.

use std::collections::{BTreeMap, BTreeSet};

use broker::{AclOperation, AclResource, Broker, GroupReply, GroupTold, Heard, Reply, check_topic_name};
use delivery::{
    ConfiguredTopic, CopartitionGroup, GroupError, InternalTopic, StreamsAnswer, StreamsError, StreamsGroupTopology,
    StreamsHeartbeat, StreamsMember, StreamsStatusKind, StreamsTopology, Subtopology, TaskSets, Tasks,
};
use kafka_wire::streams_group_describe::{
    self, DescribedGroup, Member, StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, TaskIds,
};
use kafka_wire::streams_group_heartbeat::{
    self, AssignedTaskIds, EndpointToPartitions, MemberEndpoint, Status, StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse, TopicPartition,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::consumer_groups::{TOPICS_HIDDEN, as_member, may_see};
use super::{NO_ROOM, Outcome, Wait};
use crate::access::{Asking, HIDDEN};
use crate::answer_room::AnswerRoom;
use crate::body::Body;
use crate::error_code::of_group;
use crate::session::Context;

/// The member joins; the least epoch there is.
const JOINS: i32 = 0;
const LEAVES_FOR_A_WHILE: i32 = -2;
/// Topics that Kafka's brokers keep for themselves: no application may read or write them.
const RESERVED: &[&str] = &["__consumer_offsets", "__transaction_state", "__share_group_state"];
/// Topics in a message.
const NAMED_MAX: usize = 3;
/// Texts that a member is kept with.
const MEMBER_BYTES_MAX: usize = 64 << 10;

type Refusal = (ErrorCode, String);

fn refuse<T>(text: &str) -> Result<T, Refusal> {
    Err((ErrorCode::InvalidRequest, text.to_owned()))
}

/// What Kafka 4.3 does not serve either.
fn check_supported(request: &StreamsGroupHeartbeatRequest) -> Result<(), Refusal> {
    if request.instance_id.is_some() {
        return refuse("Static membership is not yet supported.");
    }
    if request.task_offsets.is_some() {
        return refuse("TaskOffsets are not supported yet.");
    }
    if request.task_end_offsets.is_some() {
        return refuse("TaskEndOffsets are not supported yet.");
    }
    if request.warmup_tasks.as_ref().is_some_and(|tasks| !tasks.is_empty()) {
        return refuse("WarmupTasks are not supported yet.");
    }
    let regex = |topology: &streams_group_heartbeat::Topology| {
        topology.subtopologies.iter().any(|one| !one.source_topic_regex.is_empty())
    };
    if request.topology.as_ref().is_some_and(regex) {
        return refuse("Regular expressions for source topics are not supported yet.");
    }
    Ok(())
}

fn check(request: &StreamsGroupHeartbeatRequest) -> Result<(), Refusal> {
    if request.member_id.trim().is_empty() {
        return refuse("MemberId can't be empty.");
    }
    if request.group_id.trim().is_empty() {
        return refuse("GroupId can't be empty.");
    }
    if request.rack_id.as_ref().is_some_and(|rack| rack.trim().is_empty()) {
        return refuse("RackId can't be empty.");
    }
    let tasks = [
        ("ActiveTasks", &request.active_tasks),
        ("StandbyTasks", &request.standby_tasks),
        ("WarmupTasks", &request.warmup_tasks),
    ];
    match request.member_epoch {
        JOINS => {
            if request.rebalance_timeout_ms == -1 {
                return refuse("RebalanceTimeoutMs must be provided in first request.");
            }
            if let Some((name, _)) =
                tasks.iter().find(|(_, tasks)| tasks.as_ref().is_none_or(|tasks| !tasks.is_empty()))
            {
                return refuse(&format!("{name} must be empty when (re-)joining."));
            }
            if request.topology.is_none() {
                return refuse("Topology must be non-null when (re-)joining.");
            }
        }
        LEAVES_FOR_A_WHILE => return refuse("InstanceId can't be null."),
        ..LEAVES_FOR_A_WHILE => {
            return refuse(&format!(
                "MemberEpoch is {}, but must be greater than or equal to -2.",
                request.member_epoch
            ));
        }
        _ => {}
    }
    if text_bytes(request) > MEMBER_BYTES_MAX {
        return refuse("The member says more of itself than is kept.");
    }
    let said = tasks.iter().filter(|(_, tasks)| tasks.is_some()).count();
    if said != 0 && said != tasks.len() {
        return refuse("If one task-type is non-null, all must be non-null.");
    }
    if request.member_epoch != JOINS && request.topology.is_some() {
        return refuse("Topology can only be provided when (re-)joining.");
    }
    Ok(())
}

/// What is kept of a member beside its tasks.
fn text_bytes(request: &StreamsGroupHeartbeatRequest) -> usize {
    let some = |text: &Option<Str>| text.as_ref().map_or(0, |text| text.len());
    let tags = request.client_tags.iter().flatten().map(|tag| tag.key.len() + tag.value.len() + 8).sum::<usize>();
    let host = request.user_endpoint.as_ref().map_or(0, |endpoint| endpoint.host.len());
    request.member_id.len() + some(&request.rack_id) + some(&request.process_id) + host + tags
}

/// The topology of a request, checked as far as that is possible without topics.
fn topology_of(asked: &streams_group_heartbeat::Topology) -> Result<StreamsTopology, Refusal> {
    let invalid = |text: String| (ErrorCode::StreamsInvalidTopology, text);
    let names = |list: &[Str]| -> Result<Vec<String>, Refusal> { list.iter().map(|name| named(name)).collect() };
    let topics = |list: &[streams_group_heartbeat::TopicInfo]| -> Result<Vec<InternalTopic>, Refusal> {
        let one = |topic: &streams_group_heartbeat::TopicInfo| {
            Ok(InternalTopic {
                name: named(&topic.name)?,
                partitions: u32::try_from(topic.partitions).map_err(|_| {
                    invalid(format!("Topic {} cannot have {} partitions.", topic.name, topic.partitions))
                })?,
                replication: topic.replication_factor,
                configs: topic
                    .topic_configs
                    .iter()
                    .map(|pair| (pair.key.to_string(), pair.value.to_string()))
                    .collect(),
            })
        };
        list.iter().map(one).collect()
    };
    // What is no place in a list is behind its end.
    let places = |list: &[i16]| list.iter().map(|place| u16::try_from(*place).unwrap_or(u16::MAX)).collect();
    let mut topology = StreamsTopology { epoch: asked.epoch, ..StreamsTopology::default() };
    for one in &asked.subtopologies {
        let subtopology = Subtopology {
            sources: names(&one.source_topics)?,
            sinks: names(&one.repartition_sink_topics)?,
            repartition: topics(&one.repartition_source_topics)?,
            changelogs: topics(&one.state_changelog_topics)?,
            copartitioned: one
                .copartition_groups
                .iter()
                .map(|group| CopartitionGroup {
                    sources: places(&group.source_topics),
                    repartition: places(&group.repartition_source_topics),
                })
                .collect(),
        };
        if topology.subtopologies.insert(one.subtopology_id.to_string(), subtopology).is_some() {
            return Err(invalid(format!("Subtopology {} is there twice.", one.subtopology_id)));
        }
    }
    topology.check().map_err(invalid)?;
    Ok(topology)
}

fn named(name: &str) -> Result<String, Refusal> {
    if RESERVED.contains(&name) {
        let text = format!("Use of Kafka internal topics {name} in a Kafka Streams topology is prohibited.");
        return Err((ErrorCode::StreamsInvalidTopology, text));
    }
    check_topic_name(name)
        .map_err(|_| (ErrorCode::StreamsInvalidTopology, format!("Topic names {name} are not valid topic names.")))?;
    Ok(name.to_owned())
}

fn tasks_of(tasks: &[streams_group_heartbeat::TaskIds]) -> Tasks {
    let mut all = Tasks::new();
    for one in tasks {
        // What is no task is run by nobody.
        let partitions = one.partitions.iter().map(|partition| u32::try_from(*partition).unwrap_or(u32::MAX));
        all.entry(one.subtopology_id.to_string()).or_default().extend(partitions);
    }
    all
}

fn beat_of(
    request: StreamsGroupHeartbeatRequest,
    hidden: BTreeSet<String>,
    context: &Context<'_>,
) -> Result<StreamsHeartbeat, Refusal> {
    check_supported(&request)?;
    check(&request)?;
    let owned = match (&request.active_tasks, &request.standby_tasks) {
        (Some(active), Some(standby)) => Some(TaskSets { active: tasks_of(active), standby: tasks_of(standby) }),
        _ => None,
    };
    Ok(StreamsHeartbeat {
        member_id: request.member_id.to_string(),
        epoch: request.member_epoch,
        endpoint_epoch: request.endpoint_information_epoch,
        rack: request.rack_id.map(|rack| rack.to_string()),
        rebalance_timeout: u64::try_from(request.rebalance_timeout_ms).ok(),
        topology: request.topology.as_ref().map(topology_of).transpose()?,
        owned,
        process: request.process_id.map(|process| process.to_string()),
        endpoint: request.user_endpoint.map(|endpoint| (endpoint.host.to_string(), endpoint.port)),
        tags: request
            .client_tags
            .map(|tags| tags.iter().map(|tag| (tag.key.to_string(), tag.value.to_string())).collect()),
        shutdown: request.shutdown_application,
        client_id: context.client_id.to_owned(),
        host: format!("/{}", context.peer.ip().to_canonical()),
        user: context.name().unwrap_or_default().to_owned(),
        hidden,
    })
}

/// Queues among the topics that a topology has from others and that are not there for who asks.
fn hidden_sources<'a>(asking: &Asking<'_>, sources: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let asking = asking.quietly();
    sources
        .filter(|topic| asking.check_topic(AclOperation::Describe, topic) == Err(HIDDEN))
        .map(str::to_owned)
        .collect()
}

/// May the caller be a member of the group, and know of the topics that the topology names? A queue that is not there for him he may name as a topic of
/// others that is not there, and is told that it is missing; for one of the application's own the name is taken.
///
/// # Errors
/// `GroupAuthorizationFailed`, `TopicAuthorizationFailed`.
fn check_member(asking: &Asking<'_>, request: &StreamsGroupHeartbeatRequest) -> Result<(), ErrorCode> {
    asking.check_consumers(AclOperation::Read, &request.group_id)?;
    let denied = |_| ErrorCode::TopicAuthorizationFailed;
    for one in request.topology.iter().flat_map(|topology| &topology.subtopologies) {
        one.source_topics.iter().try_for_each(|topic| match asking.check_topic(AclOperation::Describe, topic) {
            Err(HIDDEN) => Ok(()),
            leave => leave,
        })?;
        let own = one.repartition_source_topics.iter().chain(&one.state_changelog_topics).map(|topic| &topic.name);
        one.repartition_sink_topics
            .iter()
            .chain(own)
            .try_for_each(|topic| asking.check_topic(AclOperation::Describe, topic).map_err(denied))?;
    }
    Ok(())
}

pub(crate) fn heartbeat(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = StreamsGroupHeartbeatRequest::decode(reader, context.version)?;
    let group = request.group_id.clone();
    let topologies = request.topology.iter().flat_map(|topology| &topology.subtopologies);
    let named = topologies.flat_map(|one| {
        let internal = one.repartition_source_topics.iter().chain(&one.state_changelog_topics).map(|topic| &topic.name);
        one.source_topics.iter().chain(&one.repartition_sink_topics).chain(internal)
    });
    // The names in a topology are looked at first, as Kafka does, and before it is looked up what they name.
    if let Some(Err(refusal)) = named.map(|name| self::named(name)).find(Result::is_err) {
        return Ok(Outcome::answer(respond(Err(refusal))));
    }
    let (broker, asking) = (&context.gateway.broker, context.asking());
    if let Err(code) = check_member(&asking, &request) {
        return Ok(Outcome::answer(respond(Err((code, code.name().to_owned())))));
    }
    let hidden = match &request.topology {
        _ if !asking.is_limited() => BTreeSet::new(),
        Some(topology) => hidden_sources(
            &asking,
            topology.subtopologies.iter().flat_map(|one| &one.source_topics).map(|topic| &**topic),
        ),
        // Rights may be others than when it joined, and the broker may have started since.
        None => broker.groups().streams_topology(&group).map_or_else(BTreeSet::new, |topology| {
            hidden_sources(&asking, topology.sources().into_iter().map(String::as_str))
        }),
    };
    context.spoken.speak(&group);
    let beat = match beat_of(request, hidden, context) {
        Ok(beat) => beat,
        Err(refusal) => return Ok(Outcome::answer(respond(Err(refusal)))),
    };
    let member_of = group.clone();
    let submit = move |context: &mut Context<'_>| {
        let broker = &context.gateway.broker;
        match broker.streams_heartbeat(&group, &beat, context.to) {
            GroupTold::Now(heard) => match outcome(broker, &context.asking(), heard) {
                Some(heard) => Outcome::answer(respond(heard)),
                None => Outcome::Close(ErrorCode::UnknownServerError),
            },
            GroupTold::Later => Outcome::Wait(Box::new(HeartbeatWait)),
        }
    };
    Ok(as_member(member_of, submit, context))
}

/// An answer that waits until what it tells is durable.
struct HeartbeatWait;

impl Wait for HeartbeatWait {
    fn handle_reply(&mut self, _part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        let heard = match *done.downcast::<GroupReply>().ok()? {
            Ok(heard) => outcome(&context.gateway.broker, &context.asking(), heard)?,
            Err(_) => Err((ErrorCode::CoordinatorNotAvailable, "The group's state cannot be written.".to_owned())),
        };
        Some(Box::new(respond(heard)))
    }
}

/// Those of the topics that the caller may not create; the others are left.
fn take_denied(asking: &Asking<'_>, missing: &mut BTreeMap<String, ConfiguredTopic>) -> Vec<String> {
    if asking.quietly().check_cluster(AclOperation::Create).is_ok() {
        return Vec::new();
    }
    let denied: Vec<String> =
        missing.keys().filter(|topic| asking.check_topic(AclOperation::Create, topic).is_err()).cloned().collect();
    denied.iter().for_each(|topic| drop(missing.remove(topic)));
    denied
}

/// What the coordinator says to a heartbeat. Internal topics that it misses are created from here.
fn outcome(broker: &Broker, asking: &Asking<'_>, heard: Heard) -> Option<Result<StreamsAnswer, Refusal>> {
    let Heard::Streams(outcome) = heard else { return None };
    let mut answer = match outcome {
        Ok(answer) => answer,
        Err(error) => {
            let code = match error {
                StreamsError::Group(error) => of_group(error),
                StreamsError::InvalidTopology(_) => ErrorCode::StreamsInvalidTopology,
                StreamsError::InvalidRequest(_) => ErrorCode::InvalidRequest,
            };
            return Some(Err((code, error.to_string())));
        }
    };
    if !answer.missing.is_empty() {
        let denied = take_denied(asking, &mut answer.missing);
        let failed = broker.create_internal_topics(&answer.missing, answer.interval * 2);
        let status = answer.status.iter_mut().find(|status| status.kind == StreamsStatusKind::MissingInternalTopics);
        if let (false, Some(status)) = (failed.is_empty(), status) {
            let some: Vec<String> =
                failed.iter().take(NAMED_MAX).map(|(topic, why)| format!("{topic} ({why})")).collect();
            let more = failed.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            status.detail += &format!("; Creation failed: {}{more}.", some.join(", "));
        }
        let status = answer.status.iter_mut().find(|status| status.kind == StreamsStatusKind::MissingInternalTopics);
        if let (false, Some(status)) = (denied.is_empty(), status) {
            status.detail += &format!("; Unauthorized to CREATE on topics {}.", denied.join(", "));
        }
    }
    Some(Ok(answer))
}

fn assigned(tasks: &Tasks) -> Vec<AssignedTaskIds> {
    let one = |(id, partitions): (&String, &std::collections::BTreeSet<u32>)| AssignedTaskIds {
        subtopology_id: id.as_str().into(),
        partitions: partitions.iter().map(|partition| *partition as i32).collect(),
        ..AssignedTaskIds::default()
    };
    tasks.iter().map(one).collect()
}

fn respond(outcome: Result<StreamsAnswer, Refusal>) -> StreamsGroupHeartbeatResponse {
    let answer = match outcome {
        Ok(answer) => answer,
        Err((code, message)) => {
            return StreamsGroupHeartbeatResponse {
                error_code: code.code(),
                error_message: Some(message.into()),
                status: Some(Vec::new()),
                ..StreamsGroupHeartbeatResponse::default()
            };
        }
    };
    let status = answer.status.into_iter().map(|status| Status {
        status_code: status.kind.code(),
        status_detail: status.detail.into(),
        ..Status::default()
    });
    let topics = |topics: Vec<(String, Vec<u32>)>| -> Vec<TopicPartition> {
        let one = |(topic, partitions): (String, Vec<u32>)| TopicPartition {
            topic: topic.into(),
            partitions: partitions.into_iter().map(|partition| partition as i32).collect(),
            ..TopicPartition::default()
        };
        topics.into_iter().map(one).collect()
    };
    StreamsGroupHeartbeatResponse {
        member_id: answer.member_id.into(),
        member_epoch: answer.epoch,
        heartbeat_interval_ms: answer.interval as i32,
        status: Some(status.collect()),
        active_tasks: answer.tasks.as_ref().map(|tasks| assigned(&tasks.active)),
        standby_tasks: answer.tasks.as_ref().map(|tasks| assigned(&tasks.standby)),
        warmup_tasks: answer.tasks.as_ref().map(|_| Vec::new()),
        endpoint_information_epoch: answer.endpoint_epoch,
        partitions_by_user_endpoint: answer.endpoints.map(|endpoints| {
            let one = |one: delivery::EndpointPartitions| EndpointToPartitions {
                user_endpoint: MemberEndpoint {
                    host: one.endpoint.0.into(),
                    port: one.endpoint.1,
                    ..MemberEndpoint::default()
                },
                active_partitions: topics(one.active),
                standby_partitions: topics(one.standby),
                ..EndpointToPartitions::default()
            };
            endpoints.into_iter().map(one).collect()
        }),
        ..StreamsGroupHeartbeatResponse::default()
    }
}

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = StreamsGroupDescribeRequest::decode(reader, context.version)?;
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
    Ok(Outcome::answer(StreamsGroupDescribeResponse {
        groups: groups.collect(),
        ..StreamsGroupDescribeResponse::default()
    }))
}

/// As the caller may see it.
fn describe_for(context: &Context<'_>, group: Str, operations: bool) -> DescribedGroup {
    let asking = context.asking();
    if let Err(code) = asking.check_group(AclOperation::Describe, &group) {
        return DescribedGroup { error_code: code.code(), group_id: group, ..DescribedGroup::default() };
    }
    let (mut found, blind_members) = describe_one(&context.gateway.broker, group);
    let topics = found.topology.iter().flat_map(|topology| topology.subtopologies.iter().flatten()).flat_map(|one| {
        let internal = one.repartition_source_topics.iter().chain(&one.state_changelog_topics).map(|topic| &topic.name);
        one.source_topics.iter().chain(&one.repartition_sink_topics).chain(internal)
    });
    // What its members have named themselves, and is not there for them, is nothing new to them.
    let is_own = |topic: &Str| {
        let own = blind_members
            .as_ref()
            .is_some_and(|users| users.iter().all(|user| user.as_deref() == Some(asking.name.unwrap_or_default())));
        own && asking.quietly().check_topic(AclOperation::Describe, topic) == Err(HIDDEN)
    };
    if asking.is_limited() && !may_see(&asking, topics.filter(|topic| !is_own(topic))) {
        found.error_code = ErrorCode::TopicAuthorizationFailed.code();
        found.error_message = Some(Str::from_static(TOPICS_HIDDEN));
        found.members.clear();
        found.topology = None;
    }
    if found.error_code == 0 {
        found.authorized_operations = asking.operations(operations, AclResource::Group, &found.group_id);
    }
    found
}

/// A group; and of one whose members all miss a topic that is there, who they are.
fn describe_one(broker: &Broker, group: Str) -> (DescribedGroup, Option<Vec<Option<String>>>) {
    let refused = |group: Str, code: ErrorCode, message: Option<String>| {
        let error_message = message.map(Into::into);
        (DescribedGroup { error_code: code.code(), error_message, group_id: group, ..DescribedGroup::default() }, None)
    };
    if group.is_empty() {
        return refused(group, ErrorCode::InvalidGroupId, None);
    }
    let Some(found) = broker.groups().describe_streams(&group) else {
        let message = if broker.groups().exists(&group) { "is not a streams group" } else { "not found" };
        let message = format!("Group {group} {message}.");
        return refused(group, of_group(GroupError::GroupNotFound), Some(message));
    };
    let blind = found.blind.then(|| found.members.iter().map(|(member, _)| member.user.clone()).collect());
    let described = DescribedGroup {
        group_state: Str::from_static(found.state),
        group_epoch: found.epoch,
        assignment_epoch: found.assignment_epoch,
        topology: found.topology.map(shown_topology),
        members: found.members.into_iter().map(|(member, target)| shown_member(member, &target)).collect(),
        group_id: group,
        ..DescribedGroup::default()
    };
    (described, blind)
}

fn shown_topology(topology: StreamsGroupTopology) -> streams_group_describe::Topology {
    let topics = |topics: BTreeMap<String, ConfiguredTopic>| -> Vec<streams_group_describe::TopicInfo> {
        let one = |(name, topic): (String, ConfiguredTopic)| {
            let pair = |(key, value): (String, String)| streams_group_describe::KeyValue {
                key: key.into(),
                value: value.into(),
                ..Default::default()
            };
            streams_group_describe::TopicInfo {
                name: name.into(),
                partitions: topic.partitions as i32,
                replication_factor: topic.replication,
                topic_configs: topic.configs.into_iter().map(pair).collect(),
                ..Default::default()
            }
        };
        topics.into_iter().map(one).collect()
    };
    let names = |names: std::collections::BTreeSet<String>| names.into_iter().map(Into::into).collect();
    let subtopologies = topology.subtopologies.into_iter().map(|(id, one)| streams_group_describe::Subtopology {
        subtopology_id: id.into(),
        source_topics: names(one.sources),
        repartition_sink_topics: names(one.sinks),
        state_changelog_topics: topics(one.changelogs),
        repartition_source_topics: topics(one.repartition),
        ..Default::default()
    });
    streams_group_describe::Topology {
        epoch: topology.epoch,
        subtopologies: Some(subtopologies.collect()),
        ..Default::default()
    }
}

fn shown_member(member: StreamsMember, target: &TaskSets) -> Member {
    let tasks = |tasks: &Tasks| -> Vec<TaskIds> {
        let one = |one: AssignedTaskIds| TaskIds {
            subtopology_id: one.subtopology_id,
            partitions: one.partitions,
            ..TaskIds::default()
        };
        assigned(tasks).into_iter().map(one).collect()
    };
    let assignment = |sets: &TaskSets| streams_group_describe::Assignment {
        active_tasks: tasks(&sets.active),
        standby_tasks: tasks(&sets.standby),
        ..Default::default()
    };
    let pair = |(key, value): (String, String)| streams_group_describe::KeyValue {
        key: key.into(),
        value: value.into(),
        ..Default::default()
    };
    Member {
        assignment: assignment(&member.assigned.without_epochs()),
        target_assignment: assignment(target),
        member_id: member.id.into(),
        member_epoch: member.epoch,
        rack_id: member.rack.map(Into::into),
        client_id: member.client_id.into(),
        client_host: member.host.into(),
        topology_epoch: member.topology_epoch,
        process_id: member.process.into(),
        user_endpoint: member.endpoint.map(|(host, port)| streams_group_describe::Endpoint {
            host: host.into(),
            port,
            ..Default::default()
        }),
        client_tags: member.tags.into_iter().map(pair).collect(),
        ..Member::default()
    }
}
