//! CreateTopics and DeleteTopics.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::{AclOperation, AclResource, Broker, CLUSTER, CreateError, CreateTopic, Source, Topic};
use hashbrown::{HashMap, HashSet};
use kafka_wire::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use kafka_wire::delete_topics::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::TopicId;
use uuid::Uuid;

use super::configs::source_code;
use super::mutations::{EXCEEDED, Mutations};
use super::{Outcome, control, denied_topics, once};
use crate::access::{Asking, HIDDEN};
use crate::error_code::{of_append, of_create};
use crate::session::Context;

fn refusal(name: &Str, code: ErrorCode, message: String) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.clone(),
        error_code: code.code(),
        error_message: Some(message.into()),
        configs: Some(Vec::new()),
        ..CreatableTopicResult::default()
    }
}

/// What the caller may not do with topics that are to be created.
struct Leave {
    /// He may not create them.
    denied: HashSet<Str>,
    /// He may not see their settings.
    unseen: HashMap<Str, ErrorCode>,
}

/// May the caller create a topic of this name? Who may create topics of the cluster need not be named at each.
fn may_create(asking: &Asking<'_>, all: bool, name: &str) -> bool {
    all || asking.may_by_entries(AclOperation::Create, AclResource::Topic, name)
}

/// May the caller create topics, whatever they are called?
fn may_create_all(asking: &Asking<'_>) -> bool {
    asking.quietly().may(AclOperation::Create, AclResource::Cluster, CLUSTER)
}

impl Leave {
    fn of(asking: &Asking<'_>, topics: &[CreatableTopic]) -> Self {
        let (all, names) = (may_create_all(asking), topics.iter().map(|topic| &topic.name));
        let denied = names.clone().filter(|name| !may_create(asking, all, name)).cloned().collect();
        Self { denied, unseen: denied_topics(&asking.quietly(), AclOperation::DescribeConfigs, names) }
    }

    fn check(&self, name: &Str) -> Result<(), (ErrorCode, String)> {
        if self.denied.contains(name) {
            Err((ErrorCode::TopicAuthorizationFailed, "Authorization failed.".to_owned()))
        } else {
            Ok(())
        }
    }

    /// Without what he may not see.
    fn shown(&self, made: CreatableTopicResult) -> CreatableTopicResult {
        if !self.unseen.contains_key(&made.name) {
            return made;
        }
        let topic_config_error_code = ErrorCode::TopicAuthorizationFailed.code();
        CreatableTopicResult {
            topic_config_error_code,
            num_partitions: -1,
            replication_factor: -1,
            configs: Some(Vec::new()),
            ..made
        }
    }
}

/// The wish behind a request, or why it makes no sense.
fn wish(topic: &CreatableTopic, node: i32) -> Result<CreateTopic, (ErrorCode, String)> {
    if let Some(config) = topic.configs.iter().find(|config| config.value.is_none()) {
        return Err((ErrorCode::InvalidConfig, format!("Null value not supported for topic configs: {}", config.name)));
    }
    let overrides: BTreeMap<String, String> = topic
        .configs
        .iter()
        .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())))
        .collect();
    let (mut partitions, mut replication) = (topic.num_partitions, topic.replication_factor);
    if !topic.assignments.is_empty() {
        if partitions != -1 || replication != -1 {
            let text = "Both partitions or replication factor and assignments were given";
            return Err((ErrorCode::InvalidRequest, text.to_owned()));
        }
        let mut indexes: Vec<i32> = topic.assignments.iter().map(|assignment| assignment.partition_index).collect();
        indexes.sort_unstable();
        if !indexes.iter().copied().eq(0..indexes.len() as i32) {
            return Err((ErrorCode::InvalidReplicaAssignment, "Partitions are not consecutive from 0".to_owned()));
        }
        if topic.assignments.iter().any(|assignment| assignment.broker_ids != [node]) {
            let text = "There is one node, so each partition has one replica, on it";
            return Err((ErrorCode::InvalidReplicaAssignment, text.to_owned()));
        }
        partitions = indexes.len() as i32;
        replication = 1;
    }
    Ok(CreateTopic { name: topic.name.to_string(), partitions, replication, overrides })
}

/// First versions of CreateTopics and DeleteTopics that are refused what their quota does not have.
const CREATES_STRICTLY_SINCE: i16 = 6;
const DELETES_STRICTLY_SINCE: i16 = 5;

/// Takes out of a request what its quota does not have, with the answers for that. What will be refused anyway takes nothing.
fn take_unpaid(request: &mut CreateTopicsRequest, context: &mut Context<'_>) -> Vec<CreatableTopicResult> {
    let mut refused = Vec::new();
    if request.validate_only {
        return refused;
    }
    let twice: HashSet<Str> = once(&request.topics, |topic| &topic.name)
        .filter(|(_, twice)| *twice)
        .map(|(topic, _)| topic.name.clone())
        .collect();
    let (broker, asking) = (Arc::clone(&context.gateway.broker), context.asking().quietly());
    let all = may_create_all(&asking);
    let cost = |topic: &CreatableTopic| {
        let wish = wish(topic, broker.node_id().0)
            .ok()
            .filter(|_| !twice.contains(&topic.name) && may_create(&asking, all, &topic.name));
        wish.and_then(|wish| broker.check_create(&wish).ok()).map_or(0, |partitions| partitions as usize)
    };
    let mut mutations = Mutations::new(context, CREATES_STRICTLY_SINCE);
    request.topics.retain(|topic| {
        let admitted = mutations.admit(|| cost(topic));
        if !admitted {
            refused.push(refusal(&topic.name, ErrorCode::ThrottlingQuotaExceeded, EXCEEDED.to_string()));
        }
        admitted
    });
    refused
}

pub(crate) fn create(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let mut request = CreateTopicsRequest::decode(reader, context.version)?;
    let names: Vec<Str> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let acting = context.acting("CreateTopics");
    let refused = take_unpaid(&mut request, context);
    Ok(control(
        context,
        move || CreateTopicsResponse {
            topics: names
                .iter()
                .map(|name| refusal(name, ErrorCode::RequestTimedOut, "The controller is busy.".to_owned()))
                .collect(),
            ..CreateTopicsResponse::default()
        },
        move |broker, asking| {
            let leave = Leave::of(asking, &request.topics);
            let mut topics = if request.validate_only {
                validate(broker, &request, &leave)
            } else {
                create_all(broker, &request, &leave)
            };
            topics.extend(refused);
            if !request.validate_only {
                topics.iter().for_each(|topic| acting.note(&topic.name, topic.error_code));
            }
            CreateTopicsResponse { topics, ..CreateTopicsResponse::default() }
        },
    ))
}

fn failed(name: &Str, error: &CreateError) -> CreatableTopicResult {
    refusal(name, of_create(error), error.to_string())
}

fn validate(broker: &Broker, request: &CreateTopicsRequest, leave: &Leave) -> Vec<CreatableTopicResult> {
    let told = request.topics.len() <= TOLD_WITH_SETTINGS_MAX;
    let check = |topic: &CreatableTopic| match leave.check(&topic.name).and_then(|()| wish(topic, broker.node_id().0)) {
        Err((code, message)) => refusal(&topic.name, code, message),
        Ok(wish) => match broker.check_create(&wish) {
            Err(error) => failed(&topic.name, &error),
            Ok(partitions) => leave.shown(described(
                broker,
                &topic.name,
                Uuid::nil(),
                partitions as usize,
                told.then_some(&wish.overrides),
            )),
        },
    };
    once(&request.topics, |topic| &topic.name)
        .map(|(topic, twice)| if twice { duplicate(&topic.name) } else { check(topic) })
        .collect()
}

fn duplicate(name: &Str) -> CreatableTopicResult {
    refusal(name, ErrorCode::InvalidRequest, "Duplicate topic name.".to_owned())
}

fn create_all(broker: &Broker, request: &CreateTopicsRequest, leave: &Leave) -> Vec<CreatableTopicResult> {
    let asked: Vec<(&CreatableTopic, bool)> = once(&request.topics, |topic| &topic.name).collect();
    let told = request.topics.len() <= TOLD_WITH_SETTINGS_MAX;
    let node = broker.node_id().0;
    let duplicate = || (ErrorCode::InvalidRequest, "Duplicate topic name.".to_owned());
    let wishes: Vec<Result<CreateTopic, (ErrorCode, String)>> = asked
        .iter()
        .map(
            |(topic, twice)| {
                if *twice { Err(duplicate()) } else { leave.check(&topic.name).and_then(|()| wish(topic, node)) }
            },
        )
        .collect();
    let mut created = broker.create_topics(wishes.iter().flatten().cloned().collect()).into_iter();
    let mut answer = |(topic, wish): (&CreatableTopic, &Result<CreateTopic, (ErrorCode, String)>)| match wish {
        Err((code, message)) => refusal(&topic.name, *code, message.clone()),
        Ok(_) => match created.next() {
            Some(Ok(made)) => leave.shown(described(
                broker,
                &topic.name,
                made.id.0,
                made.logs().len(),
                told.then_some(&made.config().overrides),
            )),
            Some(Err(error)) => failed(&topic.name, &error),
            None => refusal(&topic.name, ErrorCode::UnknownServerError, "no outcome".to_owned()),
        },
    };
    asked.iter().map(|(topic, _)| *topic).zip(&wishes).map(&mut answer).collect()
}

/// Settings are told of the topics of a request that has no more: they are a kilobyte of each.
const TOLD_WITH_SETTINGS_MAX: usize = 1000;

fn described(
    broker: &Broker,
    name: &Str,
    id: Uuid,
    partitions: usize,
    overrides: Option<&BTreeMap<String, String>>,
) -> CreatableTopicResult {
    let settings = overrides.map(|overrides| broker.describe_topic(overrides)).unwrap_or_default();
    let configs = settings.into_iter().map(|(row, value, source): (_, String, Source)| CreatableTopicConfigs {
        name: row.name.into(),
        value: Some(value.into()),
        config_source: source_code(source),
        ..CreatableTopicConfigs::default()
    });
    CreatableTopicResult {
        name: name.clone(),
        topic_id: id,
        error_message: None,
        num_partitions: partitions as i32,
        replication_factor: 1,
        configs: Some(configs.collect()),
        ..CreatableTopicResult::default()
    }
}

/// Takes out what its quota does not have, with the answers for that. What may not be deleted takes nothing.
fn keep_paid(asked: &mut Vec<AskedTopic>, context: &mut Context<'_>) -> Vec<DeletableTopicResult> {
    let (broker, asking) = (Arc::clone(&context.gateway.broker), context.asking().quietly());
    let all = may_delete_all(&asking);
    let mut mutations = Mutations::new(context, DELETES_STRICTLY_SINCE);
    let mut refused = Vec::new();
    let cost = |one: &AskedTopic| {
        let topic = one.0.as_ref().map_or_else(|| broker.topic_by_id(TopicId(one.1)), |name| broker.topic(name));
        topic.filter(|_| denial(&asking, all, one).is_none()).map_or(0, |topic| topic.logs().len())
    };
    asked.retain(|one| {
        let admitted = mutations.admit(|| cost(one));
        if !admitted {
            refused.push(deleted(one.0.clone(), one.1, Some(ErrorCode::ThrottlingQuotaExceeded)));
        }
        admitted
    });
    refused
}

/// A topic by its name or its id.
type AskedTopic = (Option<Str>, Uuid);

/// May the caller delete topics, whatever they are called?
fn may_delete_all(asking: &Asking<'_>) -> bool {
    asking.quietly().may(AclOperation::Delete, AclResource::Cluster, CLUSTER)
}

/// What is said of a topic that may not be deleted. `all`: entries let him delete all of them.
fn denial(asking: &Asking<'_>, all: bool, (name, id): &AskedTopic) -> Option<DeletableTopicResult> {
    let known = if name.is_none() { asking.broker.topic_by_id(TopicId(*id)) } else { None };
    let wanted: Str = name.clone().or_else(|| known.map(|topic| topic.name.as_str().into()))?;
    let allowed = if all {
        asking.check_queue(AclOperation::Delete, &wanted)
    } else {
        asking.check_topic(AclOperation::Delete, &wanted)
    };
    match allowed {
        Ok(()) => return None,
        Err(HIDDEN) => return Some(deleted(name.clone(), *id, Some(unknown(name)))),
        Err(_) => {}
    }
    let described = asking.quietly().check_topic(AclOperation::Describe, &wanted).is_ok();
    // Who may know that there is no such topic is told so.
    if described && asking.broker.topic(&wanted).is_none() {
        return None;
    }
    let seen = name.is_some() || described;
    Some(deleted(seen.then_some(wanted), *id, Some(ErrorCode::TopicAuthorizationFailed)))
}

pub(crate) fn delete(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DeleteTopicsRequest::decode(reader, context.version)?;
    let by_name = request.topic_names.into_iter().map(|name| (Some(name), Uuid::nil()));
    let mut asked: Vec<AskedTopic> =
        by_name.chain(request.topics.into_iter().map(|topic| (topic.name, topic.topic_id))).collect();
    let busy = asked.clone();
    let acting = context.acting("DeleteTopics");
    let refused = keep_paid(&mut asked, context);
    Ok(control(
        context,
        move || DeleteTopicsResponse {
            responses: busy
                .into_iter()
                .map(|(name, topic_id)| deleted(name, topic_id, Some(ErrorCode::RequestTimedOut)))
                .collect(),
            ..DeleteTopicsResponse::default()
        },
        move |broker, asking| {
            let responses: Vec<_> = delete_all(broker, &asked, asking).into_iter().chain(refused).collect();
            for one in &responses {
                acting.note(
                    &one.name.as_ref().map_or_else(|| one.topic_id.to_string(), ToString::to_string),
                    one.error_code,
                );
            }
            DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() }
        },
    ))
}

fn deleted(name: Option<Str>, topic_id: Uuid, code: Option<ErrorCode>) -> DeletableTopicResult {
    let error_message = code.map(|code| code.name().into());
    DeletableTopicResult {
        name,
        topic_id,
        error_code: code.map_or(0, ErrorCode::code),
        error_message,
        ..Default::default()
    }
}

/// A topic that is named twice, by name and id at once, or not at all, is not deleted.
fn delete_all(broker: &Arc<Broker>, asked: &[AskedTopic], asking: &Asking<'_>) -> Vec<DeletableTopicResult> {
    let all = may_delete_all(asking);
    let invalid = |name: &Option<Str>, id: Uuid| deleted(name.clone(), id, Some(ErrorCode::InvalidRequest));
    let mut named = HashSet::new();
    let found: Vec<Result<Arc<Topic>, DeletableTopicResult>> = once(asked, |asked| asked)
        .map(|(one @ (name, id), twice)| match denial(asking, all, one) {
            _ if twice || name.is_none() == id.is_nil() => Err(invalid(name, *id)),
            Some(refused) => Err(refused),
            // By its name and by its id in one request: gone when it is named again.
            None => find_topic(broker, name.clone(), *id).and_then(|topic| {
                let (code, new) = (unknown(name), named.insert(topic.id));
                if new { Ok(topic) } else { Err(deleted(name.clone(), *id, Some(code))) }
            }),
        })
        .collect();
    let topics: Vec<Arc<Topic>> = found.iter().flatten().cloned().collect();
    let mut outcomes = broker.delete_topics(&topics).into_iter();
    let answer = |one: Result<Arc<Topic>, DeletableTopicResult>| match one {
        Err(refused) => refused,
        Ok(topic) => {
            let code = outcomes.next().unwrap_or(Ok(())).err().map(of_append);
            deleted(Some(topic.name.as_str().into()), topic.id.0, code)
        }
    };
    found.into_iter().map(answer).collect()
}

/// What is said where there is no topic of a name, or of an id.
fn unknown(name: &Option<Str>) -> ErrorCode {
    if name.is_some() { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::UnknownTopicId }
}

fn find_topic(broker: &Broker, name: Option<Str>, id: Uuid) -> Result<Arc<Topic>, DeletableTopicResult> {
    let topic = name.as_ref().map_or_else(|| broker.topic_by_id(TopicId(id)), |name| broker.topic(name));
    topic.ok_or_else(|| {
        let code = unknown(&name);
        deleted(name, id, Some(code))
    })
}
