//! Metadata: nodes, topics, partitions; creates topics that clients ask for by name, when that is allowed.

use std::any::Any;
use std::sync::Arc;

use broker::{AclOperation, AclResource, Broker, CLUSTER, CreateTopic, Topic, check_topic_name};
use hashbrown::{HashMap, HashSet};
use kafka_wire::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::TopicId;
use uuid::Uuid;

use super::mutations::{Mutations, NEVER_STRICT};
use super::{JobBody, JobWait, Outcome, once};
use crate::access::{Asking, Client, HIDDEN, NO_OPERATIONS};
use crate::answer_room::AnswerRoom;
use crate::error_code::of_create;
use crate::gateway::Gateway;
use crate::session::Context;
use crate::written::{Listing, Parts, Written};

/// Of requests that name more the controller looks nothing up.
const LOOKED_UP_BY_CONTROLLER: usize = 1000;

/// Topics that are created in one turn of the controller.
const CREATED_AT_ONCE: usize = 2_000;

/// A topic by name or by id, as it was asked for.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Asked {
    Name(Str),
    Id(Uuid),
}

/// The parts of the answer that do not depend on topics.
struct Frame {
    version: i16,
    host: String,
    port: i32,
    /// What the caller may do with the cluster.
    cluster_operations: i32,
}

/// What may be said of a topic.
#[derive(Clone, Copy)]
enum Leave {
    /// Everything, and what the caller may do with it.
    Seen(i32),
    /// Nothing but that.
    Hidden,
    /// Not even that: for the caller it is not there.
    Absent,
}

fn leave(asking: &Asking<'_>, operations: bool, name: &str) -> Leave {
    match asking.check_topic(AclOperation::Describe, name) {
        Ok(()) => Leave::Seen(asking.operations(operations, AclResource::Topic, name)),
        Err(HIDDEN) => Leave::Absent,
        Err(_) => Leave::Hidden,
    }
}

/// What may be done with the cluster, if that is asked for, and may be known.
pub(super) fn cluster_operations(asking: &Asking<'_>, asked: bool) -> i32 {
    if asked && asking.quietly().check_cluster(AclOperation::Describe).is_err() {
        0
    } else {
        asking.operations(asked, AclResource::Cluster, CLUSTER)
    }
}

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = MetadataRequest::decode(reader, context.version)?;
    let gateway = context.gateway;
    let broker = &gateway.broker;
    let (host, port) = context.advertise.resolve(context.local);
    let asking = context.asking();
    let cluster_operations = cluster_operations(&asking, request.include_cluster_authorized_operations);
    let operations = request.include_topic_authorized_operations;
    let frame = Frame { version: context.version, host, port, cluster_operations };
    let all = match &request.topics {
        None => true,
        Some(topics) => context.version == 0 && topics.is_empty(),
    };
    let partitions_of = |topic: &MetadataRequestTopic| {
        let found = match &topic.name {
            Some(name) if topic.topic_id.is_nil() => broker.topic(name),
            _ => broker.topic_by_id(TopicId(topic.topic_id)),
        };
        found.map_or(0, |topic| topic.logs().len())
    };
    let asked_for = request.topics.as_deref().unwrap_or_default();
    // What is not there is looked for, too.
    if context.is_long(if all {
        broker.partition_count()
    } else {
        asked_for.iter().map(|topic| partitions_of(topic).max(1)).sum()
    }) {
        return Ok(Outcome::Long);
    }
    if all {
        let asking = asking.quietly();
        let seen = |topic: &Arc<Topic>| match leave(&asking, operations, &topic.name) {
            Leave::Seen(operations) => Some(describe(broker, topic, operations)),
            Leave::Hidden | Leave::Absent => None,
        };
        let topics = broker.topics();
        return Ok(Outcome::answer(frame.response(gateway, topics.iter().filter_map(seen))));
    }
    let may_create = (context.version < 4 || request.allow_auto_topic_creation)
        && broker.live_settings().bool("auto.create.topics.enable");
    let asked = asked(broker, &asking, request.topics.unwrap_or_default(), operations);
    let (missing, uncreated) = if may_create { missing(broker, &asking, &asked) } else { Default::default() };
    if missing.is_empty() {
        let refused = |asked: &Asked| match asked {
            Asked::Name(name) if uncreated.contains(name) => Some(ErrorCode::TopicAuthorizationFailed),
            _ => None,
        };
        let topics = asked.iter().map(|one| look_up(broker, one, refused(&one.0)));
        return Ok(Outcome::answer(frame.response(gateway, topics)));
    }
    let missing = missing.into_iter().map(|topic| topic.name.as_str().into()).collect();
    let refused = Refused {
        names: uncreated.into_iter().map(|name| (name, ErrorCode::TopicAuthorizationFailed)).collect(),
        others: None,
    };
    let wanted = Wanted { frame, asked: asked.into_iter().map(|(one, _)| one).collect(), operations };
    Ok(Outcome::Resume(Box::new(move |context| create(wanted, missing, refused, context))))
}

/// What is to be answered once topics have been created.
struct Wanted {
    frame: Frame,
    asked: Vec<Asked>,
    operations: bool,
}

/// Why topics that are not there have not been created.
#[derive(Default)]
struct Refused {
    names: HashMap<Str, ErrorCode>,
    /// All of them.
    others: Option<ErrorCode>,
}

impl Wanted {
    /// The answer as of now: what was missing may be somebody's.
    fn response(&self, gateway: &Gateway, client: &Client, refused: &Refused) -> Written<MetadataResponse> {
        let broker = &gateway.broker;
        let code = |asked: &Asked| match asked {
            Asked::Name(name) => refused.names.get(name).copied().or(refused.others),
            Asked::Id(_) => None,
        };
        client.ask(broker, |asking| {
            let now = |one: &Asked| (one.clone(), leave_for(broker, asking, one, self.operations));
            self.frame.response(gateway, self.asked.iter().map(|one| look_up(broker, &now(one), code(one))))
        })
    }
}

/// Answers, once the controller has created what is missing. It looks at nothing else: of a request that names much that is done elsewhere.
fn create(wanted: Wanted, missing: Vec<Str>, mut refused: Refused, context: &mut Context<'_>) -> Outcome {
    let gateway = context.gateway;
    // Nobody is refused here, and who has taken too much waits.
    let each = gateway.broker.live_settings().int("num.partitions").unsigned_abs() as usize;
    let mut mutations = Mutations::new(context, NEVER_STRICT);
    for _ in &missing {
        mutations.admit(|| each);
    }
    let (wanted, client) = (Arc::new(wanted), Arc::new(context.asking().client()));
    let (address, to, owner, room) =
        (context.peer.ip(), context.to, context.job_owner_for_all(), context.room.cloned());
    let answer = {
        let (own, wanted, client) = (Arc::clone(gateway), Arc::clone(&wanted), Arc::clone(&client));
        move |refused: &Refused| -> JobBody { Box::new(wanted.response(&own, &client, refused)) }
    };
    let later = {
        let (answer, room) = (answer.clone(), room.clone());
        move |broker: &Broker, refused: Refused| {
            let (answer, mut room) = (answer.clone(), room.clone());
            let work = move |_: &Arc<Broker>| {
                let body = answer(&refused);
                drop(room.take());
                Some(Box::new(body) as Box<dyn Any + Send>)
            };
            broker.unpack(address, to, Box::new(work))
        }
    };
    let is_long = wanted.asked.len() > LOOKED_UP_BY_CONTROLLER;
    let (now, elsewhere, mut missing) = (answer.clone(), later.clone(), missing.into_iter());
    let turns = Box::new(move |broker: &Arc<Broker>| {
        let _room = &room;
        let piece = missing.by_ref().take(CREATED_AT_ONCE).collect();
        refused.names.extend(client.ask(broker, |asking| create_missing(broker, asking, piece, wanted.operations)));
        if !missing.as_slice().is_empty() {
            return None;
        }
        if is_long {
            // Another reply follows, unless the broker ends.
            elsewhere(broker, std::mem::take(&mut refused));
            return Some(Box::new(()) as Box<dyn Any + Send>);
        }
        Some(Box::new(now(&refused)) as Box<dyn Any + Send>)
    });
    if gateway.broker.control_in_turns(to, owner, turns) {
        return Outcome::Wait(Box::new(JobWait));
    }
    let busy = Refused { names: HashMap::new(), others: Some(ErrorCode::LeaderNotAvailable) };
    if !is_long {
        return Outcome::Answer(answer(&busy));
    }
    // Unless the broker ends.
    if later(&gateway.broker, busy) {
        Outcome::Wait(Box::new(JobWait))
    } else {
        Outcome::Close(ErrorCode::CoordinatorNotAvailable)
    }
}

/// Creates what is still missing; why some of it was not.
fn create_missing(broker: &Broker, asking: &Asking<'_>, names: Vec<Str>, operations: bool) -> HashMap<Str, ErrorCode> {
    // It may be there by now, and somebody's.
    let asked: Vec<(Asked, Leave)> = names
        .into_iter()
        .map(|name| (leave(asking, operations, &name), name))
        .map(|(leave, name)| (Asked::Name(name), leave))
        .collect();
    let (missing, denied) = missing(broker, asking, &asked);
    let names: Vec<Str> = missing.iter().map(|topic| topic.name.as_str().into()).collect();
    let failed = names
        .into_iter()
        .zip(broker.create_topics(missing))
        .filter_map(|(name, outcome)| Some((name, of_create(&outcome.err()?))));
    failed.chain(denied.into_iter().map(|name| (name, ErrorCode::TopicAuthorizationFailed))).collect()
}

/// What may be said of something that is asked for.
fn leave_for(broker: &Broker, asking: &Asking<'_>, asked: &Asked, operations: bool) -> Leave {
    match asked {
        Asked::Name(name) => leave(asking, operations, name),
        Asked::Id(id) => broker
            .topic_by_id(TopicId(*id))
            .map_or(Leave::Seen(NO_OPERATIONS), |topic| leave(asking, operations, &topic.name)),
    }
}

/// What is asked for, each once however often it is named, and what may be said of it.
fn asked(
    broker: &Broker,
    asking: &Asking<'_>,
    topics: Vec<MetadataRequestTopic>,
    operations: bool,
) -> Vec<(Asked, Leave)> {
    let one = |topic: MetadataRequestTopic| match topic.name {
        Some(name) if topic.topic_id.is_nil() => Asked::Name(name),
        _ => Asked::Id(topic.topic_id),
    };
    let all: Vec<Asked> = topics.into_iter().map(one).collect();
    once(&all, |asked| asked).map(|(asked, _)| (asked.clone(), leave_for(broker, asking, asked, operations))).collect()
}

/// Topics that are to be created because they are asked for, and those that the caller may not create.
fn missing(broker: &Broker, asking: &Asking<'_>, asked: &[(Asked, Leave)]) -> (Vec<CreateTopic>, HashSet<Str>) {
    let all = asking.quietly().check_cluster(AclOperation::Create).is_ok();
    let (mut wishes, mut denied) = (Vec::new(), HashSet::new());
    for (asked, leave) in asked {
        let Asked::Name(name) = asked else { continue };
        if matches!(leave, Leave::Hidden | Leave::Absent)
            || broker.topic(name).is_some()
            || check_topic_name(name).is_err()
        {
            continue;
        }
        if all || asking.check_topic(AclOperation::Create, name).is_ok() {
            wishes.push(CreateTopic {
                name: name.to_string(),
                partitions: -1,
                replication: -1,
                overrides: Default::default(),
            });
        } else {
            denied.insert(name.clone());
        }
    }
    (wishes, denied)
}

fn look_up(broker: &Broker, (asked, leave): &(Asked, Leave), instead: Option<ErrorCode>) -> MetadataResponseTopic {
    let operations = match leave {
        Leave::Seen(operations) => Some(*operations),
        Leave::Absent => None,
        Leave::Hidden => {
            let (name, topic_id) = match asked {
                Asked::Name(name) => (Some(name.clone()), Uuid::nil()),
                Asked::Id(id) => (None, *id),
            };
            let error_code = ErrorCode::TopicAuthorizationFailed.code();
            return MetadataResponseTopic { error_code, name, topic_id, ..MetadataResponseTopic::default() };
        }
    };
    let found = match asked {
        Asked::Name(name) => broker.topic(name),
        Asked::Id(id) => broker.topic_by_id(TopicId(*id)),
    };
    if let (Some(topic), Some(operations)) = (found, operations) {
        return describe(broker, &topic, operations);
    }
    match asked {
        Asked::Name(name) => {
            let unknown = instead.unwrap_or(ErrorCode::UnknownTopicOrPartition);
            let code = if check_topic_name(name).is_err() { ErrorCode::InvalidTopicException } else { unknown };
            MetadataResponseTopic {
                error_code: code.code(),
                name: Some(name.clone()),
                ..MetadataResponseTopic::default()
            }
        }
        Asked::Id(id) => MetadataResponseTopic {
            error_code: ErrorCode::UnknownTopicId.code(),
            name: None,
            topic_id: *id,
            ..MetadataResponseTopic::default()
        },
    }
}

fn describe(broker: &Broker, topic: &Topic, operations: i32) -> MetadataResponseTopic {
    let node = broker.node_id().0;
    let partition = |(index, log): (usize, &Arc<broker::Log>)| MetadataResponsePartition {
        partition_index: index as i32,
        leader_id: node,
        leader_epoch: log.leader_epoch() as i32,
        replica_nodes: vec![node],
        isr_nodes: vec![node],
        ..MetadataResponsePartition::default()
    };
    MetadataResponseTopic {
        name: Some(topic.name.as_str().into()),
        topic_id: topic.id.0,
        partitions: topic.logs().iter().enumerate().map(partition).collect(),
        topic_authorized_operations: operations,
        ..MetadataResponseTopic::default()
    }
}

impl Frame {
    /// Topics for which there is no room have no leader: clients ask again for those.
    fn response(
        &self,
        gateway: &Gateway,
        topics: impl Iterator<Item = MetadataResponseTopic>,
    ) -> Written<MetadataResponse> {
        let broker = &gateway.broker;
        let (mut room, mut parts) = (AnswerRoom::for_all(gateway), Parts::counted(&gateway.pinned));
        for mut topic in topics {
            if !parts.push(&mut room, |writer| topic.encode(writer, self.version)) {
                (topic.error_code, topic.partitions) = (ErrorCode::LeaderNotAvailable.code(), Vec::new());
                parts.add(|writer| topic.encode(writer, self.version));
            }
        }
        let node = MetadataResponseBroker {
            node_id: broker.node_id().0,
            host: self.host.as_str().into(),
            port: self.port,
            ..MetadataResponseBroker::default()
        };
        parts.of(MetadataResponse {
            brokers: vec![node],
            cluster_id: (self.version >= 2).then(|| broker.cluster_id().into()),
            controller_id: broker.node_id().0,
            cluster_authorized_operations: self.cluster_operations,
            ..MetadataResponse::default()
        })
    }
}

impl Listing for MetadataResponse {
    fn behind(version: i16) -> (bool, usize) {
        let flexible = version >= 9;
        // What may be done with the cluster; an error; no tags.
        let operations = if (8..=10).contains(&version) { 4 } else { 0 };
        let error = if version >= 13 { 2 } else { 0 };
        (flexible, operations + error + usize::from(flexible))
    }
}
