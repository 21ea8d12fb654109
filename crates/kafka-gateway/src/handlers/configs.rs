//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, of topics and groups; the broker's own settings are in `broker_configs.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::{
    AclOperation, AclResource, AlterError, BROKER, Broker, DEAD_LETTER_TOPIC, GROUP as GROUP_TABLE, GroupChange,
    GroupValue, Kind, QUEUE_GROUP, Setting, Source, TOPIC, broker_name, find,
};
use hashbrown::HashSet;
use kafka_wire::alter_configs::{self, AlterConfigsRequest, AlterConfigsResponse};
use kafka_wire::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_wire::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use kafka_wire::list_config_resources::{ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::{Outcome, broker_configs, control_in_turns};
use crate::access::{Asking, HIDDEN};
use crate::answer_room::AnswerRoom;
use crate::body::Body;
use crate::error_code::of_alter;
use crate::session::Context;
use crate::written::{Listing, Parts};

const RESOURCE_TOPIC: i8 = 2;
const RESOURCE_BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;
/// An operation of IncrementalAlterConfigs: back to the default.
const OPERATION_DELETE: i8 = 1;

/// Kafka's number for a value that was set for a group.
const SOURCE_GROUP: i8 = 8;

/// May the caller see or change the settings of a resource?
fn check_leave(asking: &Asking<'_>, operation: AclOperation, kind: i8, name: &str) -> Result<(), Refusal> {
    let outcome = match kind {
        RESOURCE_TOPIC => match asking.check_topic(operation, name) {
            Err(HIDDEN) => return Err(absent(name)),
            leave => leave,
        },
        GROUP => asking.check_group(operation, name),
        RESOURCE_BROKER | BROKER_LOGGER | CLIENT_METRICS => asking.check_cluster(operation),
        // What has no settings is refused as that.
        _ => Ok(()),
    };
    outcome.map_err(|code| (code, code.name().to_owned()))
}

/// There is no such topic.
fn absent(name: &str) -> Refusal {
    match broker::check_topic_name(name) {
        Ok(()) => refusal(&AlterError::UnknownTopic),
        Err(rule) => (ErrorCode::InvalidTopicException, rule.to_owned()),
    }
}

/// Those resources whose settings the client may not change: entries decide where they count, otherwise settings of brokers, and of the group of all
/// queues, are for administrators. `letters`: groups and the topics that are named for their dead letters, which he then writes, or creates.
fn denied<'a>(
    asking: &Asking<'_>,
    resources: impl Iterator<Item = (i8, &'a Str)>,
    letters: impl Iterator<Item = (&'a Str, &'a Str)>,
) -> Denied {
    let unwritable = |(group, topic): (&Str, &Str)| Some(((GROUP, group.clone()), check_letters(asking, topic).err()?));
    let refused = |(kind, name): (i8, &Str)| {
        Some(((kind, name.clone()), check_leave(asking, AclOperation::AlterConfigs, kind, name).err()?))
    };
    let of_brokers = |(kind, name): (i8, &Str)| {
        let refusal = |code, of: &str| {
            Some(((kind, name.clone()), (code, format!("Only an administrator may change settings of {of}"))))
        };
        match kind {
            RESOURCE_BROKER | BROKER_LOGGER | CLIENT_METRICS => {
                refusal(ErrorCode::ClusterAuthorizationFailed, "brokers")
            }
            GROUP if **name == *QUEUE_GROUP => refusal(ErrorCode::GroupAuthorizationFailed, "the group of all queues"),
            _ => None,
        }
    };
    if !asking.is_limited() && asking.administers() {
        return Default::default();
    }
    let by_tag = !asking.is_checked() && !asking.administers();
    let refused = |resource| refused(resource).or_else(|| if by_tag { of_brokers(resource) } else { None });
    letters.filter_map(unwritable).chain(resources.filter_map(refused)).collect()
}

/// May the client have dead letters written to a topic, which is made if it is not there?
fn check_letters(asking: &Asking<'_>, topic: &str) -> Result<(), Refusal> {
    let creates = || {
        asking.quietly().check_cluster(AclOperation::Create).is_ok()
            || asking.may_by_entries(AclOperation::Create, AclResource::Topic, topic)
    };
    // A queue that is not there for him he may name as what is not there: whether he may write to what has the name is asked when something is written.
    let known = match asking.check_topic(AclOperation::Write, topic) {
        Ok(()) => Ok(asking.broker.topic(topic).is_some()),
        Err(HIDDEN) => Ok(false),
        Err(code) => Err(code),
    };
    let outcome =
        known.and_then(|known| if known || creates() { Ok(()) } else { Err(ErrorCode::TopicAuthorizationFailed) });
    outcome.map_err(|code| (code, code.name().to_owned()))
}

/// Kafka's number for where a value comes from.
pub(super) fn source_code(source: Source) -> i8 {
    match source {
        Source::Topic => 1,
        Source::Node => 2,
        Source::Cluster => 3,
        Source::Broker => 4,
        Source::Default => 5,
    }
}

fn type_code(kind: Kind) -> i8 {
    match kind {
        Kind::Bool => 1,
        Kind::Text | Kind::OneOf(_) => 2,
        Kind::Int(_, high) if high <= i64::from(i32::MAX) => 3,
        Kind::Int(..) => 5,
        Kind::Ratio => 6,
        Kind::ListOf(_) | Kind::Replicas => 7,
    }
}

/// Settings of a topic or group, about.
const SETTINGS_OF_ONE: usize = 40;

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeConfigsRequest::decode(reader, context.version)?;
    if context.is_long(request.resources.len() * SETTINGS_OF_ONE) {
        return Ok(Outcome::Long);
    }
    let (broker, asking) = (&context.gateway.broker, context.asking());
    let (host, port) = context.advertise.resolve(context.local);
    let (mut seen, mut room, mut parts) =
        (hashbrown::HashSet::new(), AnswerRoom::new(context.gateway), Parts::counted(&context.gateway.pinned));
    let each = request.resources.iter().filter(|resource| {
        seen.insert((resource.resource_type, &resource.resource_name, &resource.configuration_keys))
    });
    for resource in each {
        let mut result = DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            error_message: None,
            ..DescribeConfigsResult::default()
        };
        let leave =
            check_leave(&asking, AclOperation::DescribeConfigs, resource.resource_type, &resource.resource_name);
        let refused = match leave.and_then(|()| settings_of(broker, resource, (&host, port))) {
            Ok(rows) => {
                if room.is_there() {
                    result.configs = rows.into_iter().map(|row| one_config(row, &request)).collect();
                    if parts.push(&mut room, |writer| result.encode(writer, context.version)) {
                        continue;
                    }
                    result.configs = Vec::new();
                }
                (
                    ErrorCode::PolicyViolation,
                    "The answer has no room for more settings: ask for fewer at once".to_owned(),
                )
            }
            Err(refused) => refused,
        };
        (result.error_code, result.error_message) = (refused.0.code(), Some(refused.1.into()));
        parts.add(|writer| result.encode(writer, context.version));
    }
    Ok(Outcome::answer(parts.of(DescribeConfigsResponse::default())))
}

impl Listing for DescribeConfigsResponse {
    fn behind(version: i16) -> (bool, usize) {
        // No tags.
        let flexible = version >= 4;
        (flexible, usize::from(flexible))
    }
}

/// A setting as it is shown.
pub(super) struct Row {
    pub setting: &'static Setting,
    pub value: String,
    pub source: i8,
    /// Where the value may come from, what counts most first: name, value, source.
    pub synonyms: Vec<(&'static str, String, i8)>,
    /// It cannot be changed while the broker runs.
    pub read_only: bool,
}

/// A setting of a topic, with those of the broker that stand behind it.
fn row(broker: &Broker, (setting, value, source): (&'static Setting, String, Source)) -> Row {
    let source_code = source_code(source);
    let mut synonyms = Vec::new();
    let behind = broker_name(setting.name);
    if source == Source::Topic || behind.is_none() && source != Source::Default {
        synonyms.push((setting.name, value.clone(), source_code));
    }
    match behind {
        Some(name) => {
            let values = broker.values_of_setting(name);
            synonyms.extend(values.into_iter().map(|(value, source)| (name, value, self::source_code(source))));
        }
        None => synonyms.push((setting.name, setting.default.to_owned(), self::source_code(Source::Default))),
    }
    Row { setting, value, source: source_code, synonyms, read_only: false }
}

/// A setting of a group.
fn group_row((setting, shown): (&'static Setting, GroupValue<'_>)) -> Row {
    let mut synonyms = Vec::new();
    if shown.own {
        synonyms.push((setting.name, shown.value.clone(), SOURCE_GROUP));
    }
    let default = source_code(Source::Default);
    match shown.broker {
        Some((name, value, set)) => {
            if set {
                synonyms.push((name, value.to_owned(), source_code(Source::Broker)));
            }
            let default_of_broker = find(BROKER, name).map_or(setting.default, |row| row.default);
            synonyms.push((name, default_of_broker.to_owned(), default));
        }
        None => synonyms.push((setting.name, setting.default.to_owned(), default)),
    }
    let source = synonyms.first().map_or(default, |(_, _, source)| *source);
    Row { setting, value: shown.value, source, synonyms, read_only: false }
}

/// The settings of a resource that are asked for. A request may name it a million times, each time with other keys: nothing is made of what is not
/// asked for.
fn settings_of(
    broker: &Broker,
    resource: &DescribeConfigsResource,
    (host, port): (&str, i32),
) -> Result<Vec<Row>, (ErrorCode, String)> {
    let keys = resource.configuration_keys.as_deref().filter(|keys| !keys.is_empty());
    let keys: Option<HashSet<&str>> = keys.map(|keys| keys.iter().map(|key| key.as_str()).collect());
    let wanted = |name: &str| keys.as_ref().is_none_or(|keys| keys.contains(name));
    match resource.resource_type {
        RESOURCE_TOPIC => {
            let topic = broker.topic(&resource.resource_name).ok_or_else(|| absent(&resource.resource_name))?;
            Ok(broker
                .describe_topic_settings(&topic.config().overrides, wanted)
                .into_iter()
                .map(|found| row(broker, found))
                .collect())
        }
        RESOURCE_BROKER => broker_configs::describe(broker, &resource.resource_name, (host, port), wanted),
        GROUP if resource.resource_name.is_empty() => {
            Err((ErrorCode::InvalidRequest, "Group name must not be empty".to_owned()))
        }
        GROUP => {
            Ok(broker.describe_group_settings(&resource.resource_name, wanted).into_iter().map(group_row).collect())
        }
        other => Err((ErrorCode::InvalidRequest, format!("Resources of type {other} have no configuration here"))),
    }
}

fn one_config(row: Row, request: &DescribeConfigsRequest) -> DescribeConfigsResourceResult {
    let synonyms = if request.include_synonyms { row.synonyms } else { Vec::new() };
    let synonym = |(name, value, source): (&'static str, String, i8)| DescribeConfigsSynonym {
        name: name.into(),
        value: Some(value.into()),
        source,
        ..Default::default()
    };
    DescribeConfigsResourceResult {
        name: row.setting.name.into(),
        value: Some(row.value.into()),
        read_only: row.read_only,
        config_source: row.source,
        synonyms: synonyms.into_iter().map(synonym).collect(),
        config_type: type_code(row.setting.kind),
        documentation: request.include_documentation.then(|| row.setting.doc.into()),
        ..DescribeConfigsResourceResult::default()
    }
}

/// What is to become of one setting.
pub(super) enum Change {
    Set(String),
    Delete,
    Append(String),
    Subtract(String),
}

pub(super) type Refusal = (ErrorCode, String);

/// Resources that may not be changed, by type and name.
type Denied = hashbrown::HashMap<(i8, Str), Refusal>;

/// Makes a change to what is set of a table. `current`: the value to which words are added.
pub(super) fn changed(
    overrides: &mut BTreeMap<String, String>,
    table: &'static [Setting],
    current: impl FnOnce(&BTreeMap<String, String>) -> String,
    name: &str,
    change: Change,
) -> Result<(), Refusal> {
    if matches!(change, Change::Delete) {
        // What is not there can be deleted, as in Kafka.
        overrides.remove(name);
        return Ok(());
    }
    let row = find(table, name).map_err(|error| (ErrorCode::InvalidConfig, error.to_string()))?;
    let in_force = |overrides: &BTreeMap<String, String>| -> Result<Vec<String>, Refusal> {
        if !matches!(row.kind, Kind::ListOf(_) | Kind::Replicas) {
            let message = format!("Config value append is not allowed for config key: {name}");
            return Err((ErrorCode::InvalidConfig, message));
        }
        Ok(current(overrides).split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect())
    };
    match change {
        Change::Set(value) => drop(overrides.insert(name.to_owned(), value)),
        Change::Delete => {}
        Change::Append(value) => {
            let mut words = in_force(overrides)?;
            let more: Vec<String> = {
                let known: HashSet<&str> = words.iter().map(String::as_str).collect();
                value.split(',').filter(|word| !known.contains(word)).map(str::to_owned).collect()
            };
            words.extend(more);
            overrides.insert(name.to_owned(), words.join(","));
        }
        Change::Subtract(value) => {
            let mut words = in_force(overrides)?;
            let gone: HashSet<&str> = value.split(',').collect();
            words.retain(|word| !gone.contains(word.as_str()));
            overrides.insert(name.to_owned(), words.join(","));
        }
    }
    Ok(())
}

type Overrides = BTreeMap<String, String>;

/// A change of a resource that has been checked as far as it is before it is written.
enum Planned {
    /// It is made, or only checking it was asked for.
    Done,
    Topic(String, Overrides),
    Group(GroupChange),
}

/// `set`: what of the overrides the request itself sets.
fn plan(
    broker: &Broker,
    kind: i8,
    name: &str,
    overrides: Overrides,
    set: Vec<String>,
    validate_only: bool,
) -> Result<Planned, Refusal> {
    let checked = match kind {
        RESOURCE_TOPIC if validate_only => broker.check_config(name, &overrides).map(drop),
        RESOURCE_TOPIC => return Ok(Planned::Topic(name.to_owned(), overrides)),
        GROUP if validate_only => broker.check_group_config(&overrides),
        GROUP => return Ok(Planned::Group(GroupChange { group: name.to_owned(), overrides, set })),
        RESOURCE_BROKER => {
            return broker_configs::replace(broker, broker_configs::scope(broker, name)?, &overrides, validate_only)
                .map(|()| Planned::Done);
        }
        _ => {
            return Err((
                ErrorCode::InvalidRequest,
                "Only topics, groups and brokers can be configured at run time".to_owned(),
            ));
        }
    };
    checked.map(|()| Planned::Done).map_err(|error| refusal(&error))
}

fn is_absent((code, _): &Refusal) -> bool {
    [ErrorCode::UnknownTopicOrPartition, ErrorCode::InvalidTopicException].contains(code)
}

fn refusal(error: &AlterError) -> Refusal {
    (of_alter(error), error.to_string())
}

/// A resource of a request, and what of it is to change.
trait Wish: Send + Sync + 'static {
    type Answer: Send;
    type Response: Body + 'static;

    /// Its type and name.
    fn resource(&self) -> (i8, &Str);

    /// A topic for dead letters that it names.
    fn letters(&self) -> Option<&Str>;

    /// What is to be written. `absent`: it is not there for who asks, who is told of what is wrong with the request before.
    fn plan(&self, broker: &Broker, absent: Option<&Refusal>, validate_only: bool) -> Result<Planned, Refusal>;

    fn answer(&self, refusal: Option<Refusal>) -> Self::Answer;

    fn response(answers: Vec<Self::Answer>) -> Self::Response;
}

/// Resources that are changed in one turn of the controller.
const AT_ONCE: usize = 5_000;

/// Changes what a request names, some thousands at a time, between which others have turns.
fn change<W: Wish>(context: &Context<'_>, act: &'static str, wishes: Vec<W>, validate_only: bool) -> Outcome {
    let (acting, wishes) = (context.acting(act), Arc::<[W]>::from(wishes));
    let (repeated, of_busy) = (repeated(&wishes), Arc::clone(&wishes));
    let busy = move || {
        W::response(
            of_busy
                .iter()
                .map(|wish| wish.answer(Some((ErrorCode::RequestTimedOut, "The controller is busy.".to_owned()))))
                .collect(),
        )
    };
    let mut answers = Vec::with_capacity(wishes.len());
    control_in_turns(context, busy, move |asking| {
        let piece = &wishes[answers.len()..][..AT_ONCE.min(wishes.len() - answers.len())];
        for (wish, refusal) in piece.iter().zip(change_all(asking, piece, &repeated, validate_only)) {
            if !validate_only {
                let (kind, name) = wish.resource();
                acting.note(&shown(kind, name), refusal.as_ref().map_or(0, |(code, _)| code.code()));
            }
            answers.push(wish.answer(refusal));
        }
        (answers.len() == wishes.len()).then(|| W::response(std::mem::take(&mut answers)))
    })
}

/// Resources that are named more than once.
fn repeated<W: Wish>(wishes: &[W]) -> HashSet<(i8, Str)> {
    let (mut once, mut more) = (HashSet::with_capacity(wishes.len()), HashSet::new());
    for resource in wishes.iter().map(W::resource) {
        if !once.insert(resource) {
            more.insert((resource.0, resource.1.clone()));
        }
    }
    more
}

/// Changes resources, each for itself; for each, why it was not changed. What is written of topics is one commit, and so is what is written of
/// groups, however many there are.
fn change_all<W: Wish>(
    asking: &Asking<'_>,
    wishes: &[W],
    repeated: &HashSet<(i8, Str)>,
    validate_only: bool,
) -> Vec<Option<Refusal>> {
    let (broker, setter) = (asking.broker, asking.setter());
    let letters = wishes
        .iter()
        .filter(|wish| wish.resource().0 == GROUP)
        .filter_map(|wish| Some((wish.resource().1, wish.letters()?)));
    let denied = denied(asking, wishes.iter().map(W::resource), letters);
    let (mut outcomes, mut topics, mut groups) = (Vec::with_capacity(wishes.len()), Vec::new(), Vec::new());
    for (at, wish) in wishes.iter().enumerate() {
        let (kind, name) = wish.resource();
        let place = (kind, name.clone());
        let planned = match denied.get(&place) {
            _ if repeated.contains(&place) => {
                Err((ErrorCode::InvalidRequest, "Each resource must appear at most once.".to_owned()))
            }
            // What is wrong with the request itself comes first, as with a topic that is not there.
            Some(refusal) if is_absent(refusal) => wish.plan(broker, Some(refusal), validate_only),
            Some(refusal) => Err(refusal.clone()),
            None => wish.plan(broker, None, validate_only),
        };
        outcomes.push(planned.as_ref().err().cloned());
        match planned {
            Ok(Planned::Topic(name, overrides)) => topics.push((at, (name, overrides))),
            Ok(Planned::Group(change)) => groups.push((at, change)),
            Ok(Planned::Done) | Err(_) => {}
        }
    }
    let (of_topics, topics): (Vec<usize>, Vec<_>) = topics.into_iter().unzip();
    let (of_groups, groups): (Vec<usize>, Vec<_>) = groups.into_iter().unzip();
    let written = of_topics
        .into_iter()
        .zip(broker.set_topic_configs(topics))
        .chain(of_groups.into_iter().zip(broker.set_group_configs(groups, Some(&setter))));
    for (at, outcome) in written {
        outcomes[at] = outcome.err().map(|error| refusal(&error));
    }
    outcomes
}

/// The name of a resource that is to change, and that none of its settings is named twice.
fn check_resource<'a>(kind: i8, name: &str, settings: impl Iterator<Item = &'a Str>) -> Result<(), Refusal> {
    if kind == RESOURCE_TOPIC && name.is_empty() {
        return Err((ErrorCode::InvalidRequest, "Default topic resources are not allowed.".to_owned()));
    }
    if kind == GROUP && name.is_empty() {
        return Err((ErrorCode::InvalidRequest, "Default group resources are not allowed.".to_owned()));
    }
    if kind == RESOURCE_TOPIC {
        broker::check_topic_name(name).map_err(|rule| (ErrorCode::InvalidTopicException, rule.to_owned()))?;
    }
    let mut seen = hashbrown::HashSet::new();
    for setting in settings {
        if !seen.insert(setting) {
            return Err((ErrorCode::InvalidRequest, format!("Error due to duplicate config keys: {setting}")));
        }
    }
    Ok(())
}

/// A resource as the audit log names it.
fn shown(kind: i8, name: &str) -> String {
    let kind = match kind {
        RESOURCE_TOPIC => "Topic",
        GROUP => "Group",
        RESOURCE_BROKER => "Broker",
        BROKER_LOGGER => "BrokerLogger",
        CLIENT_METRICS => "ClientMetrics",
        _ => "Resource",
    };
    format!("{kind}:{name}")
}

fn alter_one(
    broker: &Broker,
    resource: &AlterConfigsResource,
    absent: Option<&Refusal>,
    validate_only: bool,
) -> Result<Planned, Refusal> {
    check_resource(
        resource.resource_type,
        &resource.resource_name,
        resource.configs.iter().map(|config| &config.name),
    )?;
    let kind = resource.resource_type;
    let mut changes = Vec::new();
    for config in &resource.configs {
        let value = || {
            config
                .value
                .as_ref()
                .map(ToString::to_string)
                .ok_or_else(|| (ErrorCode::InvalidRequest, format!("Null value not supported for {}", config.name)))
        };
        let change = match config.config_operation {
            0 => Change::Set(value()?),
            OPERATION_DELETE => Change::Delete,
            2 => Change::Append(value()?),
            3 => Change::Subtract(value()?),
            other => return Err((ErrorCode::InvalidRequest, format!("Unknown operation {other}"))),
        };
        changes.push((config.name.as_str(), change));
    }
    let (table, mut overrides) = match kind {
        RESOURCE_BROKER => {
            return broker_configs::alter(broker, &resource.resource_name, changes, validate_only)
                .map(|()| Planned::Done);
        }
        RESOURCE_TOPIC => {
            let topic = if absent.is_none() { broker.topic(&resource.resource_name) } else { None };
            (TOPIC, topic.map(|topic| topic.config().overrides.clone()).unwrap_or_default())
        }
        GROUP => (GROUP_TABLE, broker.group_config(&resource.resource_name).overrides.clone()),
        _ => return plan(broker, kind, &resource.resource_name, BTreeMap::new(), Vec::new(), validate_only),
    };
    let set = changes
        .iter()
        .filter(|(_, change)| !matches!(change, Change::Delete))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    for (name, change) in changes {
        let current =
            |overrides: &Overrides| broker::effective(overrides, &broker.live_settings(), broker.durability(), name).0;
        changed(&mut overrides, table, current, name, change)?;
    }
    if let Some(refusal) = absent {
        return Err(refusal.clone());
    }
    plan(broker, kind, &resource.resource_name, overrides, set, validate_only)
}

impl Wish for AlterConfigsResource {
    type Answer = AlterConfigsResourceResponse;
    type Response = IncrementalAlterConfigsResponse;

    fn resource(&self) -> (i8, &Str) {
        (self.resource_type, &self.resource_name)
    }

    fn letters(&self) -> Option<&Str> {
        letters_of(self.configs.iter().map(|config| (&config.name, config.value.as_ref())))
    }

    fn plan(&self, broker: &Broker, absent: Option<&Refusal>, validate_only: bool) -> Result<Planned, Refusal> {
        alter_one(broker, self, absent, validate_only)
    }

    fn answer(&self, refusal: Option<Refusal>) -> Self::Answer {
        let (error_code, error_message) = told(refusal);
        Self::Answer {
            error_code,
            error_message,
            resource_type: self.resource_type,
            resource_name: self.resource_name.clone(),
            ..Default::default()
        }
    }

    fn response(responses: Vec<Self::Answer>) -> Self::Response {
        Self::Response { responses, ..Default::default() }
    }
}

/// The topic for dead letters that settings of a group name; named twice they are refused anyway.
fn letters_of<'a>(mut settings: impl Iterator<Item = (&'a Str, Option<&'a Str>)>) -> Option<&'a Str> {
    settings.find_map(|(name, value)| value.filter(|topic| **name == *DEAD_LETTER_TOPIC && !topic.is_empty()))
}

fn told(refusal: Option<Refusal>) -> (i16, Option<Str>) {
    refusal.map_or((0, None), |(code, message)| (code.code(), Some(message.into())))
}

pub(crate) fn incremental_alter(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = IncrementalAlterConfigsRequest::decode(reader, context.version)?;
    Ok(change(context, "IncrementalAlterConfigs", request.resources, request.validate_only))
}

fn replace_one(
    broker: &Broker,
    resource: &alter_configs::AlterConfigsResource,
    absent: Option<&Refusal>,
    validate_only: bool,
) -> Result<Planned, Refusal> {
    check_resource(
        resource.resource_type,
        &resource.resource_name,
        resource.configs.iter().map(|config| &config.name),
    )?;
    let mut overrides = BTreeMap::new();
    for config in &resource.configs {
        let value = config
            .value
            .as_ref()
            .ok_or_else(|| (ErrorCode::InvalidRequest, format!("Null value not supported for {}", config.name)))?;
        overrides.insert(config.name.to_string(), value.to_string());
    }
    if let Some(refusal) = absent {
        return Err(refusal.clone());
    }
    let set = overrides.keys().cloned().collect();
    plan(broker, resource.resource_type, &resource.resource_name, overrides, set, validate_only)
}

impl Wish for alter_configs::AlterConfigsResource {
    type Answer = alter_configs::AlterConfigsResourceResponse;
    type Response = AlterConfigsResponse;

    fn resource(&self) -> (i8, &Str) {
        (self.resource_type, &self.resource_name)
    }

    fn letters(&self) -> Option<&Str> {
        letters_of(self.configs.iter().map(|config| (&config.name, config.value.as_ref())))
    }

    fn plan(&self, broker: &Broker, absent: Option<&Refusal>, validate_only: bool) -> Result<Planned, Refusal> {
        replace_one(broker, self, absent, validate_only)
    }

    fn answer(&self, refusal: Option<Refusal>) -> Self::Answer {
        let (error_code, error_message) = told(refusal);
        Self::Answer {
            error_code,
            error_message,
            resource_type: self.resource_type,
            resource_name: self.resource_name.clone(),
            ..Default::default()
        }
    }

    fn response(responses: Vec<Self::Answer>) -> Self::Response {
        Self::Response { responses, ..Default::default() }
    }
}

pub(crate) fn alter(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = AlterConfigsRequest::decode(reader, context.version)?;
    Ok(change(context, "AlterConfigs", request.resources, request.validate_only))
}

/// ListConfigResources: topics, the broker, and groups that have settings of their own.
pub(crate) fn list_resources(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ListConfigResourcesRequest::decode(reader, context.version)?;
    let (broker, asking) = (&context.gateway.broker, context.asking().quietly());
    if let Err(code) = context.asking().check_cluster(AclOperation::DescribeConfigs) {
        return Ok(Outcome::answer(ListConfigResourcesResponse { error_code: code.code(), ..Default::default() }));
    }
    let supported = [RESOURCE_TOPIC, RESOURCE_BROKER, CLIENT_METRICS, GROUP];
    if request.resource_types.iter().any(|kind| !supported.contains(kind) && *kind != BROKER_LOGGER) {
        let error_code = ErrorCode::UnsupportedVersion.code();
        return Ok(Outcome::answer(ListConfigResourcesResponse { error_code, ..Default::default() }));
    }
    if context.is_long(broker.topic_count() + broker.groups().count()) {
        return Ok(Outcome::Long);
    }
    // Version 0 asked for client metrics only, and there are none.
    let wanted =
        |kind: i8| context.version > 0 && (request.resource_types.is_empty() || request.resource_types.contains(&kind));
    let one = |name: String, kind: i8| ConfigResource {
        resource_name: name.into(),
        resource_type: kind,
        ..Default::default()
    };
    let topics = if wanted(RESOURCE_TOPIC) { broker.topics() } else { Default::default() };
    let node = wanted(RESOURCE_BROKER).then(|| one(broker.node_id().0.to_string(), RESOURCE_BROKER));
    let groups = if wanted(GROUP) { broker.configured_groups() } else { Vec::new() };
    let groups = groups.into_iter().map(|group| one(group, GROUP));
    // Who may ask for the list sees all but queues that are not there for him.
    let seen =
        topics.iter().filter(|topic| asking.check_topic(AclOperation::DescribeConfigs, &topic.name) != Err(HIDDEN));
    let config_resources =
        seen.map(|topic| one(topic.name.clone(), RESOURCE_TOPIC)).chain(node).chain(groups).collect();
    Ok(Outcome::answer(ListConfigResourcesResponse { config_resources, ..Default::default() }))
}

#[cfg(test)]
mod tests;
