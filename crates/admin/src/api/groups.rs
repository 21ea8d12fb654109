//! Groups of all kinds: who is in them, how far they are, and what they have of their own.

use std::collections::BTreeMap;

use broker::{
    AclOperation, AclResource, Broker, Denial, GroupChange, GroupLag, GroupProgress, GroupValue, Permission, Principal,
    Setting,
};
use delivery::{GroupError, GroupLine, Owned, Target, assigned_partitions};
use hashbrown::HashMap;
use serde_json::{Value, json};
use types::TopicId;

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::config::{CHANGES, Changes, refused};
use super::listing::list;
use super::rights::Sight;
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};
use super::settings::{SETTING, described as setting};
use crate::answers::Part;

const WITHOUT_OFFSET: Schema = Schema::new(
    "WithoutOffset",
    &[
        ("partitions", Kind::Int, "That a member reads and of which the group has no offset."),
        (
            "records",
            Kind::Int,
            "All that they have: as many as it has yet to read if it reads from the beginning, none if it reads what comes.",
        ),
    ],
);

const GROUP: Schema = Schema::new(
    "Group",
    &[
        ("name", Kind::Text, "Its name."),
        ("kind", Kind::Text, "classic, consumer, share or streams."),
        ("state", Kind::Text, "As Kafka calls it: Empty, Stable, Reconciling …"),
        ("protocol_type", Kind::Text, "consumer for groups that read topics."),
        ("members", Kind::Int, "How many are in it."),
        ("topics", Kind::Int, "Topics that it has offsets of or shares, of those that who asks may see."),
        (
            "lag",
            Kind::Int,
            "Records of these topics that it has not done with, of all partitions that it has an offset of.",
        ),
        (
            "without_offset",
            Kind::One(&WITHOUT_OFFSET),
            "Beside these. Where it begins there is for its clients to say (auto.offset.reset), and not known here.",
        ),
        (
            "filter",
            Kind::OrNull(&Kind::Text),
            "Members get only records for which this is true; null also for those who may not see its settings.",
        ),
    ],
);

const ASSIGNED: Schema =
    Schema::new("Assigned", &[("topic", Kind::Text, "Its name."), ("partitions", Kind::List(&Kind::Int), "Indexes.")]);

const MEMBER: Schema = Schema::new(
    "Member",
    &[
        ("id", Kind::Text, "Of the member."),
        ("instance", Kind::OrNull(&Kind::Text), "Of a static member."),
        ("client_id", Kind::Text, "As the client says."),
        ("host", Kind::Text, "Where it connects from."),
        ("session_timeout_ms", Kind::OrNull(&Kind::Int), "Of a classic group: silent for so long it is out."),
        ("epoch", Kind::OrNull(&Kind::Int), "Of the target that it has got to."),
        ("assignment", Kind::List(&Kind::One(&ASSIGNED)), "What it reads, of topics that who asks may see."),
    ],
);

const OFFSET: Schema = Schema::new(
    "GroupOffset",
    &[
        ("topic", Kind::Text, "Its name."),
        ("partition", Kind::Int, "Index."),
        (
            "committed",
            Kind::OrNull(&Kind::Int),
            "Where the group goes on; of a share group, before which everything is done.",
        ),
        ("start", Kind::Int, "The first offset that there is."),
        ("high_watermark", Kind::Int, "The offset after the last record that can be read."),
        ("lag", Kind::OrNull(&Kind::Int), "Records that are not done."),
        ("committed_at", Kind::OrNull(&Kind::Int), "ms since 1970."),
        ("metadata", Kind::OrNull(&Kind::Text), "The client's text."),
        ("member", Kind::OrNull(&Kind::Text), "Who reads it."),
        ("in_flight", Kind::OrNull(&Kind::Int), "Of a share group: records that members have."),
    ],
);

const GROUP_FULL: Schema = Schema::more(
    "GroupFull",
    &GROUP,
    &[
        ("epoch", Kind::OrNull(&Kind::Int), "Raised with each change of members or topics."),
        ("assignment_epoch", Kind::OrNull(&Kind::Int), "For which partitions are given out."),
        ("assignor", Kind::OrNull(&Kind::Text), "Who gives partitions out."),
        ("member_list", Kind::List(&Kind::One(&MEMBER)), "Who is in it."),
        ("offsets", Kind::List(&Kind::One(&OFFSET)), "How far it is in topics that who asks may see."),
    ],
);

const SETTINGS: Schema = Schema::new("GroupSettings", &[("config", Kind::List(&Kind::One(&SETTING)), "Its settings.")]);

pub(crate) const ROUTES: &[Route] = &[
    route::list("/groups", Access::LoggedIn, "Groups of all kinds", &GROUP, all).asks(&[
        ("kind", Kind::Text, "Only classic, consumer, share or streams groups."),
        ("state", Kind::Text, "Only those in this state."),
    ]),
    get("/groups/{group}", Access::LoggedIn, "A group, its members and offsets", &GROUP_FULL, show),
    change(Verb::Delete, "/groups/{group}", Access::LoggedIn, "Delete a group without members", Shape::Nothing, delete)
        .tries(),
    change(
        Verb::Delete,
        "/groups/{group}/offsets",
        Access::LoggedIn,
        "Forget offsets of a topic that no member reads",
        Shape::Nothing,
        forget,
    )
    .asks(&[("topic", Kind::Text, "Its name."), ("partition", Kind::Int, "Index; all if absent.")])
    .tries(),
    get("/groups/{group}/config", Access::LoggedIn, "Settings of a group", &SETTINGS, settings),
    change(
        Verb::Patch,
        "/groups/{group}/config",
        Access::LoggedIn,
        "Change settings of a group",
        Shape::One(&SETTINGS),
        alter,
    )
    .takes(&CHANGES)
    .tries(),
];

/// The expression of a group's filter.
pub(crate) fn describe_filter(broker: &Broker, group: &str) -> Option<String> {
    broker
        .group_config(group)
        .overrides
        .get("mainstem.filter")
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

/// A member, as all kinds of groups have them.
struct Member {
    id: String,
    instance: Option<String>,
    client_id: String,
    host: String,
    session_timeout_ms: Option<u64>,
    epoch: Option<i32>,
    /// By topic.
    assignment: BTreeMap<String, Vec<u32>>,
}

/// What there is beside offsets.
#[derive(Default)]
struct Look {
    epoch: Option<i32>,
    assignment_epoch: Option<i32>,
    assignor: Option<String>,
    members: Vec<Member>,
}

/// Topics by their names.
fn named(broker: &Broker, of: impl Iterator<Item = (TopicId, Vec<u32>)>) -> BTreeMap<String, Vec<u32>> {
    of.filter_map(|(id, partitions)| Some((broker.topic_by_id(id)?.name.clone(), partitions))).collect()
}

fn owned(broker: &Broker, owned: &Owned) -> BTreeMap<String, Vec<u32>> {
    named(broker, owned.iter().map(|(id, partitions)| (*id, partitions.keys().copied().collect())))
}

fn target(broker: &Broker, target: &Target) -> BTreeMap<String, Vec<u32>> {
    named(broker, target.iter().map(|(id, partitions)| (*id, partitions.iter().copied().collect())))
}

/// The assignment of a member of the classic protocol, as its leader has written it.
fn classic_assignment(bytes: &[u8]) -> BTreeMap<String, Vec<u32>> {
    let mut found = BTreeMap::<String, Vec<u32>>::new();
    for (topic, partitions) in assigned_partitions(bytes) {
        found.entry(topic).or_default().extend(partitions);
    }
    found
}

fn look(broker: &Broker, name: &str, kind: &str) -> Option<Look> {
    match kind {
        "consumer" => {
            let found = broker.groups().describe_consumers(name)?;
            let member = |(one, _): &(delivery::ConsumerMember, Target)| Member {
                id: one.id.clone(),
                instance: one.instance.clone(),
                client_id: one.client_id.clone(),
                host: one.host.clone(),
                session_timeout_ms: None,
                epoch: Some(one.epoch),
                assignment: owned(broker, &one.assigned),
            };
            let members = found.members.iter().map(member).collect();
            Some(Look {
                epoch: Some(found.epoch),
                assignment_epoch: Some(found.assignment_epoch),
                assignor: Some(found.assignor.to_owned()),
                members,
            })
        }
        "share" => {
            let found = broker.groups().describe_share(name)?;
            let member = |one: &delivery::ShareMember| Member {
                id: one.id.clone(),
                instance: None,
                client_id: one.client_id.clone(),
                host: one.host.clone(),
                session_timeout_ms: None,
                epoch: Some(one.epoch),
                assignment: target(broker, &one.assigned),
            };
            let members = found.members.iter().map(member).collect();
            Some(Look {
                epoch: Some(found.epoch),
                assignment_epoch: Some(found.assignment_epoch),
                assignor: Some("simple".to_owned()),
                members,
            })
        }
        "streams" => {
            let found = broker.groups().describe_streams(name)?;
            let member = |(one, _): &(delivery::StreamsMember, delivery::TaskSets)| Member {
                id: one.id.clone(),
                instance: None,
                client_id: one.client_id.clone(),
                host: one.host.clone(),
                session_timeout_ms: None,
                epoch: Some(one.epoch),
                assignment: BTreeMap::new(),
            };
            let members = found.members.iter().map(member).collect();
            Some(Look {
                epoch: Some(found.epoch),
                assignment_epoch: Some(found.assignment_epoch),
                assignor: None,
                members,
            })
        }
        _ => {
            let found = broker.groups().describe(name)?;
            let of_consumers = found.protocol_type == "consumer";
            let member = |one: &delivery::Member<broker::ReplyTo>| Member {
                id: one.id.clone(),
                instance: one.instance.clone(),
                client_id: one.client_id.clone(),
                host: one.host.clone(),
                session_timeout_ms: Some(one.session_timeout),
                epoch: None,
                assignment: if of_consumers { classic_assignment(&one.assignment) } else { BTreeMap::new() },
            };
            let members = found.members.iter().map(member).collect();
            Some(Look {
                assignor: Some(found.protocol).filter(|protocol| !protocol.is_empty()),
                members,
                ..Look::default()
            })
        }
    }
}

/// Who reads which partition; of several the first.
type Readers<'m> = HashMap<(&'m str, u32), &'m str>;

fn readers(members: &[Member]) -> Readers<'_> {
    let mut found = Readers::new();
    for member in members {
        for (topic, partitions) in &member.assignment {
            for partition in partitions {
                found.entry((topic.as_str(), *partition)).or_insert(&*member.id);
            }
        }
    }
    found
}

fn summary(call: &Call<'_>, line: &GroupLine, members: usize, progress: &[GroupProgress]) -> Value {
    // They are in the order of their topics.
    let topics = progress
        .chunk_by(|one, next| one.topic == next.topic)
        .filter(|of_topic| of_topic.iter().any(|one| one.commit.is_some() || one.in_flight.is_some()));
    let lag = GroupLag::of(progress);
    json!({
        "name": line.group,
        "kind": line.kind,
        "state": line.state,
        "protocol_type": line.protocol_type,
        "members": members,
        "topics": topics.count(),
        "lag": lag.records,
        "without_offset": json!({"partitions": lag.partitions_unknown, "records": lag.records_unknown}),
        "filter": describe_filter(call.broker(), &line.group).filter(|_| call.sees_settings(AclResource::Group, &line.group)),
    })
}

/// How far a group is, of what who asks may see: a group may be seen by those who may not see all that it reads.
fn seen(call: &Call<'_>, line: &GroupLine, look: &mut Look) -> Vec<GroupProgress> {
    let mut progress = call.broker().group_progress(&line.group);
    let mut sight = Sight::new(call);
    progress.retain(|one| sight.of(&one.topic));
    look.members.iter_mut().for_each(|member| member.assignment.retain(|topic, _| sight.of(topic)));
    progress
}

fn described(call: &Call<'_>, line: &GroupLine) -> Option<Value> {
    let mut look = look(call.broker(), &line.group, line.kind)?;
    let progress = seen(call, line, &mut look);
    Some(summary(call, line, look.members.len(), &progress))
}

/// Groups that who asks may see.
fn lines(call: &Call<'_>) -> Vec<GroupLine> {
    call.broker().groups().list().into_iter().filter(|line| call.sees_group(&line.group)).collect()
}

/// What a group of some kind may be, in Kafka's words.
const STATES: [&str; 8] =
    ["Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead"];

fn all(call: &Call<'_>) -> Outcome {
    let mut found = lines(call);
    if let Some(kind) = call.query("kind") {
        if !["classic", "consumer", "share", "streams"].contains(&kind) {
            return Err(Answer::invalid("kind", "it is classic, consumer, share or streams"));
        }
        found.retain(|line| line.kind == kind);
    }
    if let Some(state) = call.query("state") {
        if !STATES.iter().any(|known| known.eq_ignore_ascii_case(state)) {
            return Err(Answer::invalid("state", format!("it is one of {}", STATES.join(", "))));
        }
        found.retain(|line| line.state.eq_ignore_ascii_case(state));
    }
    list(call, found.into_iter().map(|line| (line.group.clone(), line)), |line| described(call, line))
}

/// The group of the path.
///
/// # Errors
/// 404.
pub(crate) fn line_of(call: &Call<'_>) -> Result<GroupLine, Refusal> {
    let name = call.path("group");
    let found = call.broker().groups().line(name).filter(|_| call.sees_group(name));
    found.ok_or_else(|| Answer::not_found(format!("there is no group {name:?}")))
}

fn member_json(member: &Member) -> Value {
    let assignment =
        member.assignment.iter().map(|(topic, partitions)| json!({"topic": topic, "partitions": partitions}));
    json!({
        "id": member.id,
        "instance": member.instance,
        "client_id": member.client_id,
        "host": member.host,
        "session_timeout_ms": member.session_timeout_ms,
        "epoch": member.epoch,
        "assignment": assignment.collect::<Vec<_>>(),
    })
}

fn show(call: &Call<'_>) -> Outcome {
    let line = line_of(call)?;
    let gone = || Answer::not_found(format!("there is no group {:?}", line.group));
    let mut look = look(call.broker(), &line.group, line.kind).ok_or_else(gone)?;
    let progress = seen(call, &line, &mut look);
    let readers = readers(&look.members);
    let mut found = summary(call, &line, look.members.len(), &progress);
    let offset = |one: &GroupProgress| {
        json!({
            "topic": one.topic,
            "partition": one.partition,
            "committed": one.committed,
            "start": one.start.0,
            "high_watermark": one.end.0,
            "lag": one.lag(),
            "committed_at": one.commit.as_ref().map(|commit| commit.committed_at),
            "metadata": one.commit.as_ref().map(|commit| &commit.metadata),
            // Of a share group several read a partition.
            "member": readers.get(&(one.topic.as_str(), one.partition)).filter(|_| line.kind != "share"),
            "in_flight": one.in_flight,
        })
    };
    found["epoch"] = look.epoch.into();
    found["assignment_epoch"] = look.assignment_epoch.into();
    found["assignor"] = look.assignor.clone().into();
    let Value::Object(found) = found else { return Ok(Answer::of(found)) };
    let mut parts: BTreeMap<&str, Part<'_>> =
        found.iter().map(|(name, value)| (name.as_str(), Part::Value(value.clone()))).collect();
    parts.insert("member_list", Part::items(look.members.iter().map(member_json)));
    parts.insert("offsets", Part::items(progress.iter().map(offset)));
    let mut text = call.text.take();
    text.object(parts);
    Ok(Answer::of_text(text))
}

/// Why a group is as it was.
pub(crate) fn group_refused(error: GroupError) -> Refusal {
    match error {
        GroupError::GroupNotFound => Answer::not_found("there is no such group, or it is of another kind"),
        GroupError::NonEmptyGroup => Answer::conflict("the group has members: stop them first"),
        GroupError::Subscribed => Answer::conflict("a member reads this topic: stop it first"),
        GroupError::InvalidGroupId => Answer::invalid("group", "a group has a name"),
        other => Answer::conflict(other.to_string()),
    }
}

fn not_written() -> Refusal {
    Answer::failed("the journal does not take it")
}

/// Judges who asks by what may be done with a group of this name when its turn comes.
pub(crate) fn may(
    permission: Permission,
    operation: AclOperation,
    group: &str,
) -> impl FnOnce(&Broker, &Principal) -> Result<(), Box<Denial>> + Send + use<> {
    let group = group.to_owned();
    move |broker, who| broker.check_group(who, permission, operation, &group)
}

fn delete(call: &Call<'_>) -> Outcome {
    let line = line_of(call)?;
    call.check_group(Permission::Configure, AclOperation::Delete, &line.group)?;
    let members = look(call.broker(), &line.group, line.kind).map_or(0, |look| look.members.len());
    if members > 0 {
        return Err(group_refused(GroupError::NonEmptyGroup));
    }
    if !call.dry_run() {
        let judge = may(Permission::Configure, AclOperation::Delete, &line.group);
        let done = call.control_judged(judge, move |broker, _| broker.delete_group(&line.group))?;
        done.map_err(|error| error.map_or_else(not_written, group_refused))?;
    }
    Ok(Answer::done())
}

fn forget(call: &Call<'_>) -> Outcome {
    let line = line_of(call)?;
    call.check_group(Permission::Configure, AclOperation::Delete, &line.group)?;
    let topic = call.query("topic").ok_or_else(|| Answer::invalid("topic", "it is needed"))?.to_owned();
    call.check_topic(Permission::Read, AclOperation::Read, &topic)?;
    let only = call.number("partition")?;
    if line.kind == "share" {
        return Err(Answer::conflict("a share group has no committed offsets: reset it instead"));
    }
    let all = call.broker().groups().offsets(&line.group).into_iter();
    let wanted: Vec<u32> = all
        .filter(|(name, partition, _)| *name == topic && only.is_none_or(|only| only == u64::from(*partition)))
        .map(|(_, partition, _)| partition)
        .collect();
    if wanted.is_empty() {
        return Err(Answer::not_found("the group has no such offset"));
    }
    let readers = look(call.broker(), &line.group, line.kind).unwrap_or_default().members;
    let subscribed = readers.iter().any(|member| member.assignment.contains_key(&topic))
        || call.broker().groups().consumers_read(&line.group, &topic) == Some(true);
    if subscribed {
        return Err(group_refused(GroupError::Subscribed));
    }
    if !call.dry_run() {
        let (group, read) = (may(Permission::Configure, AclOperation::Delete, &line.group), topic.clone());
        let judge = move |broker: &Broker, who: &Principal| {
            group(broker, who).and_then(|()| broker.check_topic(who, Permission::Read, AclOperation::Read, &read))
        };
        let done = call.control_judged(judge, move |broker, _| {
            let offsets: Vec<(&str, u32, bool)> =
                wanted.iter().map(|partition| (topic.as_str(), *partition, false)).collect();
            broker.delete_offsets(&line.group, &offsets).into_iter().collect::<Result<(), _>>()
        })?;
        done.map_err(|error| error.map_or_else(not_written, group_refused))?;
    }
    Ok(Answer::done())
}

/// Settings of a group with these overrides.
fn shown(rows: Vec<(&'static Setting, GroupValue<'_>)>, overrides: &BTreeMap<String, String>) -> Value {
    let one = |(row, value): (&'static Setting, GroupValue<'_>)| {
        let default = value.broker.map_or(row.default, |(_, text, _)| text).to_owned();
        let own = overrides.get(row.name);
        let set_for_all = value.broker.is_some_and(|(_, _, set)| set);
        let source = if own.is_some() {
            "group"
        } else if set_for_all {
            "broker"
        } else {
            "default"
        };
        let mut found = setting(row, own.unwrap_or(if value.own { &default } else { &value.value }), source);
        found["default"] = default.into();
        found
    };
    rows.into_iter().map(one).collect()
}

/// A group has settings whether there is one of this name or not, so what is hidden is refused, not missing.
fn settings(call: &Call<'_>) -> Outcome {
    let group = call.path("group");
    if !call.sees_group(group) || !call.sees_settings(AclResource::Group, group) {
        return Err(Answer::not_allowed(format!(
            "user {:?} may not see settings of group {group:?}",
            call.caller.who.name()
        )));
    }
    Ok(Answer::of(
        json!({"config": shown(call.broker().describe_group_config(group), &call.broker().group_config(group).overrides)}),
    ))
}

fn alter(call: &Call<'_>) -> Outcome {
    let group = call.path("group").to_owned();
    call.check_group(Permission::Configure, AclOperation::AlterConfigs, &group)?;
    let changes = Changes::of_body_for(&call.object()?, broker::GROUP)?;
    let letters = changes.of(broker::DEAD_LETTER_TOPIC).flatten().filter(|topic| !topic.is_empty()).map(str::to_owned);
    let set = changes.set_names();
    let overrides = change_settings(call, group.clone(), (letters, set), move |overrides| changes.apply(overrides))?;
    Ok(Answer::of(json!({"config": shown(call.broker().describe_group_config(&group), &overrides)})))
}

/// Changes what a group has of its own, or sees whether that could be; what it has then, or would have. `letters`: the topic that is named for its dead
/// letters, which the caller then writes, or creates; `set`: what he sets, be it as it was.
pub(crate) fn change_settings(
    call: &Call<'_>,
    group: String,
    (letters, set): (Option<String>, Vec<String>),
    change: impl FnOnce(&mut BTreeMap<String, String>) + Send + 'static,
) -> Result<BTreeMap<String, String>, Refusal> {
    let own = may(Permission::Configure, AclOperation::AlterConfigs, &group);
    let judge = move |broker: &Broker, who: &Principal| {
        own(broker, who)?;
        let Some(topic) = letters else { return Ok(()) };
        broker.check_topic(who, Permission::Write, AclOperation::Write, &topic)?;
        if broker.topic(&topic).is_some() {
            Ok(())
        } else {
            broker.check_topic(who, Permission::Configure, AclOperation::Create, &topic)
        }
    };
    let who = call.principal();
    let changed = call.control_judged(judge, move |broker, really| {
        let mut overrides = broker.group_config(&group).overrides.clone();
        change(&mut overrides);
        if !really {
            return broker.check_group_config(&overrides).map(|()| overrides);
        }
        let (change, setter) =
            (GroupChange { group, overrides: overrides.clone(), set }, broker.security().setter_of(&who));
        broker.set_group_configs(vec![change], setter.as_ref()).pop().unwrap_or(Ok(())).map(|()| overrides)
    })?;
    changed.map_err(refused)
}
