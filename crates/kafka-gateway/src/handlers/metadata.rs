//! Metadata: nodes, topics, partitions; creates topics that clients ask for by name, when that is allowed.

use std::sync::Arc;

use broker::{Broker, CreateTopic, Topic, check_topic_name};
use kafka_wire::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::TopicId;
use uuid::Uuid;

use super::{Outcome, control, once};
use crate::error_code::of_create;
use crate::session::Context;

/// No operations are listed.
const NO_OPERATIONS: i32 = i32::MIN;

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
}

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = MetadataRequest::decode(reader, context.version)?;
    let broker = &context.gateway.broker;
    let (host, port) = context.advertise.resolve(context.local);
    let frame = Frame { version: context.version, host, port };
    let all = match &request.topics {
        None => true,
        Some(topics) => context.version == 0 && topics.is_empty(),
    };
    if all {
        let topics = broker.topics().iter().map(|topic| describe(broker, topic)).collect();
        return Ok(Outcome::answer(frame.response(broker, topics)));
    }
    let asked: Vec<Asked> = request
        .topics
        .unwrap_or_default()
        .into_iter()
        .map(|topic| match topic.name {
            Some(name) if topic.topic_id.is_nil() => Asked::Name(name),
            _ => Asked::Id(topic.topic_id),
        })
        .collect();
    // A topic is described once, however often it is named.
    let asked: Vec<Asked> = once(&asked, |asked| asked).map(|(asked, _)| asked.clone()).collect();
    let may_create = (context.version < 4 || request.allow_auto_topic_creation) && broker.live_settings().bool("auto.create.topics.enable");
    let missing: Vec<CreateTopic> = asked
        .iter()
        .filter_map(|asked| match asked {
            Asked::Name(name) if may_create && broker.topic(name).is_none() && check_topic_name(name).is_ok() => {
                Some(CreateTopic { name: name.to_string(), partitions: -1, replication: -1, overrides: Default::default() })
            }
            _ => None,
        })
        .collect();
    if missing.is_empty() {
        let topics = asked.iter().map(|asked| look_up(broker, asked, None)).collect();
        return Ok(Outcome::answer(frame.response(broker, topics)));
    }
    let busy = (frame.version, frame.host.clone(), frame.port);
    let asked_when_busy = asked.clone();
    let own = Arc::clone(broker);
    Ok(control(
        context,
        move || {
            let topics = asked_when_busy.iter().map(|asked| look_up(&own, asked, Some(ErrorCode::LeaderNotAvailable))).collect();
            Frame { version: busy.0, host: busy.1, port: busy.2 }.response(&own, topics)
        },
        move |broker| {
            let names: Vec<String> = missing.iter().map(|topic| topic.name.clone()).collect();
            let outcomes = broker.create_topics(missing);
            let error_of = |name: &str| {
                let at = names.iter().position(|other| other == name)?;
                outcomes[at].as_ref().err().map(of_create)
            };
            let topics = asked
                .iter()
                .map(|asked| look_up(broker, asked, match asked {
                    Asked::Name(name) => error_of(name),
                    Asked::Id(_) => None,
                }))
                .collect();
            frame.response(broker, topics)
        },
    ))
}

fn look_up(broker: &Broker, asked: &Asked, instead: Option<ErrorCode>) -> MetadataResponseTopic {
    let found = match asked {
        Asked::Name(name) => broker.topic(name),
        Asked::Id(id) => broker.topic_by_id(TopicId(*id)),
    };
    if let Some(topic) = found {
        return describe(broker, &topic);
    }
    match asked {
        Asked::Name(name) => {
            let unknown = instead.unwrap_or(ErrorCode::UnknownTopicOrPartition);
            let code = if check_topic_name(name).is_err() { ErrorCode::InvalidTopicException } else { unknown };
            MetadataResponseTopic { error_code: code.code(), name: Some(name.clone()), ..MetadataResponseTopic::default() }
        }
        Asked::Id(id) => MetadataResponseTopic {
            error_code: ErrorCode::UnknownTopicId.code(),
            name: None,
            topic_id: *id,
            ..MetadataResponseTopic::default()
        },
    }
}

fn describe(broker: &Broker, topic: &Topic) -> MetadataResponseTopic {
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
        topic_authorized_operations: NO_OPERATIONS,
        ..MetadataResponseTopic::default()
    }
}

impl Frame {
    fn response(&self, broker: &Broker, topics: Vec<MetadataResponseTopic>) -> MetadataResponse {
        let node = MetadataResponseBroker {
            node_id: broker.node_id().0,
            host: self.host.as_str().into(),
            port: self.port,
            ..MetadataResponseBroker::default()
        };
        MetadataResponse {
            brokers: vec![node],
            cluster_id: (self.version >= 2).then(|| broker.cluster_id().into()),
            controller_id: broker.node_id().0,
            topics,
            cluster_authorized_operations: NO_OPERATIONS,
            ..MetadataResponse::default()
        }
    }
}
