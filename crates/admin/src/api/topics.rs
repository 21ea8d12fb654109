//! Topics: list, look at, create, change, delete.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use broker::{
    AclOperation, AclResource, AlterError, Broker, CreateError, CreateTopic, Denial, Log, PartitionsError, Permission,
    Principal, Source, Topic, kind_name,
};
use serde_json::{Value, json};
use types::{LogId, Offset, PartitionIndex};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, Fields, setting_refused};
use super::config::{CHANGES, Changes, refused};
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};
use super::settings::{SETTING, described as setting};

const RATES: Schema =
    Schema::new("TopicRates", &[("in_records", Kind::Number, "Records that come in a second, over the last five.")]);

const OF_QUEUE: Schema = Schema::new(
    "QueueName",
    &[
        ("vhost", Kind::Text, "Its virtual host."),
        ("name", Kind::Text, "Its name."),
        ("type", Kind::Text, "classic, quorum or stream."),
    ],
);

const TOPIC: Schema = Schema::new(
    "Topic",
    &[
        ("name", Kind::Text, "Its name."),
        ("id", Kind::Text, "A UUID, which no other topic ever has."),
        ("partitions", Kind::Int, "How many it has."),
        ("records", Kind::Int, "Offsets from the start to the end of all partitions."),
        ("bytes", Kind::Int, "Bytes of their batches."),
        ("queue", Kind::OrNull(&Kind::One(&OF_QUEUE)), "The queue that it is."),
        ("internal", Kind::Bool, "Its name begins with __, or it is a queue's own."),
        ("durability", Kind::Text, "When a record counts as acknowledged: fsync or memory."),
        ("cleanup_policy", Kind::Text, "delete, compact or both."),
        ("retention_ms", Kind::OrNull(&Kind::Int), "Records are kept so long."),
        ("rates", Kind::One(&RATES), "How fast it grows."),
    ],
);

const PARTITION: Schema = Schema::new(
    "Partition",
    &[
        ("partition", Kind::Int, "Its index."),
        ("start", Kind::Int, "The first offset that there is."),
        ("high_watermark", Kind::Int, "The offset after the last record that can be read."),
        ("last_stable", Kind::Int, "Before the first record of an open transaction."),
        ("records", Kind::Int, "Offsets from the start to the end."),
        ("bytes", Kind::Int, "Bytes of its batches."),
        ("leader_epoch", Kind::Int, "Raised with each start of the broker."),
        ("archived_until", Kind::Int, "What is before this offset is in the archive."),
        ("journal", Kind::Int, "The journal that has it."),
        ("rates", Kind::One(&RATES), "How fast it grows."),
    ],
);

const TOPIC_FULL: Schema = Schema::more(
    "TopicFull",
    &TOPIC,
    &[
        ("partition_list", Kind::List(&Kind::One(&PARTITION)), "Its partitions, at most 1000 of them."),
        ("config", Kind::List(&Kind::One(&SETTING)), "Its settings; none for those who may not see them."),
        (
            "groups",
            Kind::List(&Kind::Text),
            "Groups that have committed offsets of it or share it, of those that who asks may see.",
        ),
    ],
);

const NEW_TOPIC: Schema = Schema::body(
    "NewTopic",
    &["name"],
    &[
        ("name", Kind::Text, "1 to 249 letters, digits, dots, underscores and dashes."),
        ("partitions", Kind::OrNull(&Kind::Int), "1 to 100,000; num.partitions if absent."),
        ("config", Kind::Object, "Settings of its own."),
    ],
);

const SETTINGS: Schema = Schema::new("TopicSettings", &[("config", Kind::List(&Kind::One(&SETTING)), "Its settings.")]);

const COUNT: Schema =
    Schema::body("PartitionCount", &["count"], &[("count", Kind::Int, "Partitions that it is to have in all.")]);

const CUT: Schema = Schema::body(
    "Cut",
    &["partition", "before"],
    &[("partition", Kind::Int, "Index."), ("before", Kind::Int, "Records before this offset go; -1: all.")],
);
const TRUNCATION: Schema =
    Schema::body("Truncation", &["partitions"], &[("partitions", Kind::List(&Kind::One(&CUT)), "Where to cut.")]);
const START: Schema = Schema::new(
    "PartitionStart",
    &[("partition", Kind::Int, "Index."), ("start", Kind::Int, "The first offset that there is.")],
);
const STARTS: Schema =
    Schema::new("PartitionStarts", &[("partitions", Kind::List(&Kind::One(&START)), "Where they begin now.")]);

/// Partitions that are described at once.
const PARTITIONS_MAX: usize = 1000;

pub(crate) const ROUTES: &[Route] = &[
    route::list("/topics", Access::LoggedIn, "Topics", &TOPIC, all).asks(&[(
        "internal",
        Kind::Bool,
        "true: also topics whose names begin with __, and those of queues.",
    )]),
    change(Verb::Post, "/topics", Access::LoggedIn, "Create a topic", Shape::One(&TOPIC_FULL), create)
        .takes(&NEW_TOPIC)
        .makes()
        .tries(),
    get("/topics/{topic}", Access::LoggedIn, "A topic, its partitions and settings", &TOPIC_FULL, show).asks(&[(
        "partition_offset",
        Kind::Int,
        "Partitions to leave out at the beginning.",
    )]),
    change(
        Verb::Delete,
        "/topics/{topic}",
        Access::LoggedIn,
        "Delete a topic and all its records",
        Shape::Nothing,
        delete,
    )
    .tries(),
    change(
        Verb::Patch,
        "/topics/{topic}/config",
        Access::LoggedIn,
        "Change settings of a topic",
        Shape::One(&SETTINGS),
        alter,
    )
    .takes(&CHANGES)
    .tries(),
    change(
        Verb::Post,
        "/topics/{topic}/partitions",
        Access::LoggedIn,
        "Add partitions",
        Shape::One(&TOPIC_FULL),
        add_partitions,
    )
    .takes(&COUNT)
    .tries(),
    change(
        Verb::Post,
        "/topics/{topic}/truncate",
        Access::LoggedIn,
        "Delete records from the beginning",
        Shape::One(&STARTS),
        truncate,
    )
    .takes(&TRUNCATION)
    .tries(),
];

/// Judges who asks by what may be done with a topic of this name when its turn comes.
fn may(
    permission: Permission,
    operation: AclOperation,
    topic: &str,
) -> impl FnOnce(&Broker, &Principal) -> Result<(), Box<Denial>> + Send + use<> {
    let topic = topic.to_owned();
    move |broker, who| broker.check_topic(who, permission, operation, &topic)
}

/// The topic of the path.
///
/// # Errors
/// 404.
pub(crate) fn topic_of(call: &Call<'_>) -> Result<Arc<Topic>, Refusal> {
    let name = call.path("topic");
    let found = call.broker().topic(name).filter(|_| call.sees_topic(name));
    found.ok_or_else(|| Answer::not_found(format!("there is no topic {name:?}")))
}

fn span(log: &Log) -> u64 {
    log.high_watermark().0.saturating_sub(log.start().0)
}

/// Bytes of its batches: none where there are no records, though those that were deleted count until their segment is looked at.
fn bytes_of(log: &Log) -> u64 {
    if span(log) == 0 { 0 } else { log.live_bytes() }
}

/// Is it one that no list shows unless it is asked for: of the broker's or an application's own, or a queue?
pub(crate) fn is_internal(broker: &Broker, topic: &Arc<Topic>) -> bool {
    topic.name.starts_with("__") || broker.queue_on(topic).is_some_and(|queue| !queue.is_attached())
}

fn described(call: &Call<'_>, topic: &Arc<Topic>) -> Value {
    let (logs, config) = (topic.logs(), topic.config());
    let queue = call.broker().queue_on(topic);
    let rate: f64 = logs.iter().map(|log| call.rates().of_log(log.id())).sum();
    let (policy, _) =
        broker::effective(&config.overrides, &call.broker().live_settings(), config.durability, "cleanup.policy");
    json!({
        "name": topic.name,
        "id": topic.id.0.to_string(),
        "partitions": logs.len(),
        "records": logs.iter().map(|log| span(log)).sum::<u64>(),
        "bytes": logs.iter().map(|log| bytes_of(log)).sum::<u64>(),
        "queue": queue.as_ref().map(|queue| json!({"vhost": queue.vhost(), "name": queue.name().to_string(), "type": kind_name(queue.understood().kind)})),
        "internal": is_internal(call.broker(), topic),
        "durability": config.durability.to_string(),
        "cleanup_policy": policy,
        "retention_ms": config.retention.ms,
        "rates": {"in_records": (rate * 10.0).round() / 10.0},
    })
}

fn partition(call: &Call<'_>, index: usize, log: &Log) -> Value {
    json!({
        "partition": index,
        "start": log.start().0,
        "high_watermark": log.high_watermark().0,
        "last_stable": log.last_stable().0,
        "records": span(log),
        "bytes": bytes_of(log),
        "leader_epoch": log.leader_epoch(),
        "archived_until": log.archived_until().0,
        "journal": call.broker().journal_number(log.id()),
        "rates": {"in_records": call.rates().of_log(log.id())},
    })
}

fn source_name(source: Source) -> &'static str {
    match source {
        Source::Topic => "topic",
        Source::Node | Source::Cluster | Source::Broker => "broker",
        Source::Default => "default",
    }
}

fn settings(call: &Call<'_>, overrides: &std::collections::BTreeMap<String, String>) -> Value {
    let rows = call.broker().describe_topic(overrides);
    rows.into_iter().map(|(row, value, source)| setting(row, &value, source_name(source))).collect()
}

/// Groups that have to do with a topic.
fn groups(call: &Call<'_>, topic: &Topic) -> Vec<String> {
    let (broker, subscriptions) = (call.broker(), call.broker().subscriptions().of_topic(topic.id));
    let sharing: HashSet<&str> = subscriptions.iter().map(|shared| &*shared.name().group).collect();
    let mut found = broker.groups().names();
    found.retain(|group| sharing.contains(&**group) || broker.groups().has_offsets_of(group, &topic.name));
    found.retain(|group| call.sees_group(group));
    found.sort();
    found
}

/// With the partitions from one on.
fn full(call: &Call<'_>, topic: &Arc<Topic>, from: usize) -> Value {
    let mut found = described(call, topic);
    let logs = topic.logs();
    found["partition_list"] = logs
        .iter()
        .enumerate()
        .skip(from)
        .take(PARTITIONS_MAX)
        .map(|(index, log)| partition(call, index, log))
        .collect();
    // Whoever has made a topic may not be one who sees its settings.
    found["config"] = if call.sees_settings(AclResource::Topic, &topic.name) {
        settings(call, &topic.config().overrides)
    } else {
        json!([])
    };
    found["groups"] = groups(call, topic).into();
    found
}

fn show(call: &Call<'_>) -> Outcome {
    let from = call.number("partition_offset")?.unwrap_or(0);
    Ok(Answer::of(full(call, &topic_of(call)?, usize::try_from(from).unwrap_or(usize::MAX))))
}

fn all(call: &Call<'_>) -> Outcome {
    let internal = call.flag("internal");
    let is_shown =
        |topic: &Arc<Topic>| call.sees_topic(&topic.name) && (internal || !is_internal(call.broker(), topic));
    let topics = call.broker().topics().into_iter().filter(is_shown).map(|topic| (topic.name.clone(), topic));
    list(call, topics, |topic| Some(described(call, topic)))
}

fn not_created(error: CreateError) -> Refusal {
    match error {
        CreateError::Name(_) => Answer::invalid("name", error.to_string()),
        CreateError::Exists(_) | CreateError::Collides(..) | CreateError::Limit(_) => {
            Answer::conflict(error.to_string())
        }
        CreateError::Partitions(_) => Answer::invalid("partitions", error.to_string()),
        CreateError::Replication | CreateError::TooFewNodes(_) => Answer::invalid("replication", error.to_string()),
        CreateError::Setting(error) => setting_refused("config", &error),
        CreateError::Append(error) => Answer::failed(error),
    }
}

fn create(call: &Call<'_>) -> Outcome {
    let body: Fields = call.object()?;
    body.only(&["name", "partitions", "config"])?;
    let name = body.needed("name")?.to_owned();
    call.check_topic(Permission::Configure, AclOperation::Create, &name)?;
    let partitions = body.int("partitions", 1..=i64::from(i32::MAX))?.map_or(-1, |count| count as i32);
    let wish =
        CreateTopic { name, partitions, replication: -1, overrides: body.settings("config")?.into_iter().collect() };
    let count = call.broker().check_create(&wish).map_err(not_created)?;
    if call.dry_run() {
        return Ok(Answer::made(false, unborn(call, &wish, count)));
    }
    let made = call
        .control_judged(may(Permission::Configure, AclOperation::Create, &wish.name), move |broker, _| {
            broker.create_topics(vec![wish]).pop()
        })?;
    let topic = made.ok_or_else(|| Answer::failed("no topic was made"))?.map_err(not_created)?;
    Ok(Answer::made(true, full(call, &topic, 0)))
}

/// A topic as it would be.
fn unborn(call: &Call<'_>, wish: &CreateTopic, count: u32) -> Value {
    let rows = call.broker().describe_topic(&wish.overrides);
    let value = |name: &str| {
        rows.iter().find(|(row, _, _)| row.name == name).map(|(_, value, _)| value.clone()).unwrap_or_default()
    };
    let empty = |index: u32| {
        json!({
            "partition": index, "start": 0, "high_watermark": 0, "last_stable": 0, "records": 0, "bytes": 0, "leader_epoch": 0, "archived_until": 0,
            "journal": 0, "rates": {"in_records": 0.0},
        })
    };
    json!({
        "name": wish.name,
        "id": "",
        "partitions": count,
        "records": 0,
        "bytes": 0,
        "queue": null,
        "internal": wish.name.starts_with("__"),
        "durability": value("mainstem.durability"),
        "cleanup_policy": value("cleanup.policy"),
        "retention_ms": value("retention.ms").parse::<u64>().ok(),
        "rates": {"in_records": 0.0},
        "partition_list": (0..count.min(PARTITIONS_MAX as u32)).map(empty).collect::<Vec<_>>(),
        "config": settings(call, &wish.overrides),
        "groups": [],
    })
}

fn delete(call: &Call<'_>) -> Outcome {
    let topic = topic_of(call)?;
    let deleted =
        call.control_judged(may(Permission::Configure, AclOperation::Delete, &topic.name), move |broker, really| {
            if really { broker.delete_topic(&topic) } else { Ok(()) }
        })?;
    deleted.map_err(Answer::failed)?;
    Ok(Answer::done())
}

fn alter(call: &Call<'_>) -> Outcome {
    let topic = topic_of(call)?;
    call.check_topic(Permission::Configure, AclOperation::AlterConfigs, &topic.name)?;
    let changes = Changes::of_body_for(&call.object()?, broker::TOPIC)?;
    let name = topic.name.clone();
    let altered = call.control_judged(
        may(Permission::Configure, AclOperation::AlterConfigs, &topic.name),
        move |broker, really| {
            let mut overrides = broker.topic(&name).ok_or(AlterError::UnknownTopic)?.config().overrides.clone();
            changes.apply(&mut overrides);
            if really {
                broker.set_topic_config(&name, overrides.clone())?
            } else {
                drop(broker.check_config(&name, &overrides)?)
            }
            Ok::<_, AlterError>(overrides)
        },
    )?;
    Ok(Answer::of(json!({"config": settings(call, &altered.map_err(refused)?)})))
}

fn not_added(error: PartitionsError) -> Refusal {
    match error {
        PartitionsError::UnknownTopic => Answer::not_found(error.to_string()),
        PartitionsError::NotMore { .. } | PartitionsError::TooMany(_) => Answer::invalid("count", error.to_string()),
        PartitionsError::Queue(_) | PartitionsError::Limit(_) => Answer::conflict(error.to_string()),
        PartitionsError::Append(error) => Answer::failed(error),
    }
}

fn add_partitions(call: &Call<'_>) -> Outcome {
    let topic = topic_of(call)?;
    call.check_topic(Permission::Configure, AclOperation::Alter, &topic.name)?;
    let body = call.object()?;
    body.only(&["count"])?;
    let count =
        body.int("count", 1..=i64::from(i32::MAX))?.ok_or_else(|| Answer::invalid("count", "it is needed"))? as i32;
    call.broker().check_partitions(&topic.name, count).map_err(not_added)?;
    if !call.dry_run() {
        let name = topic.name.clone();
        let judge = may(Permission::Configure, AclOperation::Alter, &name);
        call.control_judged(judge, move |broker, _| broker.add_partitions(&name, count))?.map_err(not_added)?;
    }
    Ok(Answer::of(full(call, &topic, 0)))
}

fn cuts(topic: &Topic, body: &Fields) -> Result<Vec<(usize, Arc<Log>, Offset)>, Refusal> {
    let wishes = body
        .get("partitions")
        .and_then(Value::as_array)
        .ok_or_else(|| Answer::invalid("partitions", "it is a list"))?;
    let one = |(at, wish): (usize, &Value)| {
        let field = |name: &str| format!("partitions[{at}].{name}");
        let index = wish["partition"].as_u64().and_then(|index| u32::try_from(index).ok());
        let index = index.ok_or_else(|| Answer::invalid(&field("partition"), "it is an index"))?;
        let log = topic
            .log(PartitionIndex(index))
            .ok_or_else(|| Answer::invalid(&field("partition"), "there is no such partition"))?;
        let end = log.high_watermark();
        let to = match wish["before"].as_i64() {
            Some(-1) => end,
            Some(offset) if u64::try_from(offset).is_ok_and(|offset| offset <= end.0) => Offset(offset as u64),
            _ => return Err(Answer::invalid(&field("before"), format!("it is -1, or an offset up to {}", end.0))),
        };
        Ok((index as usize, log, to))
    };
    wishes.iter().enumerate().map(one).collect()
}

fn truncate(call: &Call<'_>) -> Outcome {
    let topic = topic_of(call)?;
    call.check_truncation(&topic.name)?;
    let body = call.object()?;
    body.only(&["partitions"])?;
    let is_queue = call.broker().queue_on(&topic).is_some_and(|queue| !queue.is_attached() && !queue.is_stream());
    if is_queue || topic.config().compacted_only {
        return Err(Answer::conflict("records of a queue, and of a topic that is compacted only, are not deleted so"));
    }
    let cuts = cuts(&topic, &body)?;
    let starts: Value =
        cuts.iter().map(|(index, log, to)| json!({"partition": index, "start": log.start().0.max(to.0)})).collect();
    if !call.dry_run() {
        let done =
            call.control_judged(may(Permission::Write, AclOperation::Delete, &topic.name), move |broker, _| {
                // A partition that is named more than once begins at the last of these offsets.
                let mut ahead: HashMap<LogId, (Arc<Log>, Offset)> = HashMap::new();
                for (_, log, to) in cuts.iter().filter(|(_, log, to)| *to > log.start()) {
                    let (_, last) = ahead.entry(log.id()).or_insert_with(|| (Arc::clone(log), *to));
                    *last = (*last).max(*to);
                }
                broker.trim_all(&ahead.into_values().collect::<Vec<_>>()).into_iter().collect::<Result<(), _>>()
            })?;
        done.map_err(Answer::failed)?;
    }
    Ok(Answer::of(json!({"partitions": starts})))
}
