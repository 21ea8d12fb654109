//! Has a group without members go on elsewhere: at the beginning, the end, an offset, a time, or some records before or after where it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use broker::{AclOperation, Broker, GoOn, Log, Permission, Principal, ReadError, ResetError, Topic};
use hashbrown::{HashMap, HashSet};
use serde_json::{Value, json};
use types::PartitionIndex;

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, Fields};
use super::groups::{group_refused, may};
use super::route::{Access, Route, Shape, Verb, change};
use super::schema::{Kind, Schema};

const RESET: Schema = Schema::body(
    "Reset",
    &["to"],
    &[
        (
            "to",
            Kind::Any,
            "\"earliest\", \"latest\", {\"offset\": 5}, {\"timestamp\": ms since 1970}, {\"duration_ms\": so long ago} or {\"shift\": records after, negative: before}.",
        ),
        ("topics", Kind::List(&Kind::Text), "Of these topics; of all that it has offsets of if absent."),
        ("partitions", Kind::List(&Kind::Int), "Of these partitions; of all if absent."),
    ],
);

const MOVED: Schema = Schema::new(
    "MovedOffset",
    &[
        ("topic", Kind::Text, "Its name."),
        ("partition", Kind::Int, "Index."),
        ("from", Kind::OrNull(&Kind::Int), "Where the group was."),
        ("to", Kind::Int, "Where it goes on."),
        ("change", Kind::OrNull(&Kind::Int), "By how much that is more."),
    ],
);

const MOVES: Schema = Schema::new(
    "MovedOffsets",
    &[
        ("dry_run", Kind::Bool, "Nothing was done."),
        ("offsets", Kind::List(&Kind::One(&MOVED)), "By topic and partition."),
    ],
);

pub(crate) const ROUTES: &[Route] = &[change(
    Verb::Post,
    "/groups/{group}/reset",
    Access::LoggedIn,
    "Have a group without members go on elsewhere",
    Shape::One(&MOVES),
    reset,
)
.takes(&RESET)
.tries()];

/// Where a group is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Earliest,
    Latest,
    Offset(u64),
    Timestamp(i64),
    Shift(i64),
}

impl To {
    fn of(value: Option<&Value>, now_ms: i64) -> Result<Self, Refusal> {
        let refuse = || {
            Answer::invalid(
                "to",
                "it is earliest, latest, or an object with one of offset, timestamp, duration_ms and shift",
            )
        };
        match value.ok_or_else(refuse)? {
            Value::String(word) if word == "earliest" => Ok(Self::Earliest),
            Value::String(word) if word == "latest" => Ok(Self::Latest),
            Value::Object(fields) if fields.len() == 1 => {
                let (name, value) = fields.iter().next().ok_or_else(refuse)?;
                let wrong = |what: &str| Answer::invalid(&format!("to.{name}"), what);
                let number = value.as_i64().ok_or_else(|| wrong("it is a whole number"))?;
                match name.as_str() {
                    "offset" => u64::try_from(number).map(Self::Offset).map_err(|_| wrong("it is not negative")),
                    "timestamp" if number >= 0 => Ok(Self::Timestamp(number)),
                    "duration_ms" if number >= 0 => Ok(Self::Timestamp(now_ms.saturating_sub(number))),
                    "timestamp" | "duration_ms" => Err(wrong("it is not negative")),
                    "shift" => Ok(Self::Shift(number)),
                    _ => Err(refuse()),
                }
            }
            _ => Err(refuse()),
        }
    }

    /// The offset that it comes to, within what there is. `None`: that depends on where the group is, which is not known.
    fn resolve(self, call: &Call<'_>, log: &Arc<Log>, from: Option<u64>) -> Result<Option<u64>, ReadError> {
        let (start, end) = (log.start().0, log.high_watermark().0);
        let wanted = match self {
            Self::Earliest => start,
            Self::Latest => end,
            Self::Offset(offset) => offset,
            Self::Timestamp(at) => call.broker().offset_at(log, at)?.0,
            Self::Shift(by) => match from {
                Some(from) => from.saturating_add_signed(by),
                None => return Ok(None),
            },
        };
        Ok(Some(wanted.clamp(start, end.max(start))))
    }
}

/// A partition, and where the group is in it.
struct Place {
    topic: Arc<Topic>,
    partition: u32,
    log: Arc<Log>,
    from: Option<u64>,
}

fn partitions_of(body: &Fields) -> Result<Option<BTreeSet<u32>>, Refusal> {
    let refuse = || Answer::invalid("partitions", "it is a list of indexes");
    let Some(value) = body.get("partitions") else { return Ok(None) };
    let index = |value: &Value| value.as_u64().and_then(|index| u32::try_from(index).ok()).ok_or_else(refuse);
    value.as_array().ok_or_else(refuse)?.iter().map(index).collect::<Result<BTreeSet<_>, _>>().map(Some)
}

/// Offsets of a group as they are, by topic and partition.
fn known(call: &Call<'_>, group: &str, is_share: bool) -> Vec<(String, u32, u64)> {
    let broker = call.broker();
    if !is_share {
        let all = broker.groups().offsets(group).into_iter();
        return all
            .filter_map(|(topic, partition, committed)| Some((topic, partition, u64::try_from(committed.offset).ok()?)))
            .collect();
    }
    let of = |shared: &Arc<broker::SharedSubscription>| {
        let topic = broker.topic_by_id(types::TopicId(uuid::Uuid::from_u128(shared.name().topic)))?;
        Some((topic.name.clone(), shared.name().partition, shared.lock().start()))
    };
    broker.subscriptions().of_group(group).iter().filter_map(of).collect()
}

/// The partitions that the body names.
fn places(call: &Call<'_>, body: &Fields, known: &[(String, u32, u64)]) -> Result<Vec<Place>, Refusal> {
    let partitions = partitions_of(body)?;
    let topics = body.words("topics")?;
    let offsets: HashMap<(&str, u32), u64> =
        known.iter().map(|(topic, partition, offset)| ((topic.as_str(), *partition), *offset)).collect();
    let mut wanted: Vec<(String, u32)> = Vec::new();
    match &topics {
        None => wanted.extend(known.iter().map(|(topic, partition, _)| (topic.clone(), *partition))),
        Some(names) => {
            let mut seen = HashSet::new();
            for (at, name) in names.iter().enumerate().filter(|(_, name)| seen.insert(name.as_str())) {
                let topic = call.broker().topic(name).filter(|_| call.sees_topic(name));
                let topic = topic
                    .ok_or_else(|| Answer::invalid(&format!("topics[{at}]"), format!("there is no topic {name:?}")))?;
                wanted.extend((0..topic.logs().len() as u32).map(|partition| (name.clone(), partition)));
            }
        }
    }
    wanted.sort();
    wanted.dedup();
    if let Some(partitions) = &partitions {
        wanted.retain(|(_, partition)| partitions.contains(partition));
        let there: HashSet<u32> = wanted.iter().map(|(_, partition)| *partition).collect();
        if let Some(missing) = partitions.iter().find(|index| !there.contains(*index)) {
            return Err(Answer::invalid("partitions", format!("there is no partition {missing}")));
        }
    }
    let place = |(name, partition): (String, u32)| {
        let topic = call.broker().topic(&name)?;
        let log = topic.log(PartitionIndex(partition))?;
        Some(Place { from: offsets.get(&(name.as_str(), partition)).copied(), topic, partition, log })
    };
    Ok(wanted.into_iter().filter_map(place).collect())
}

fn refused(error: ResetError) -> Refusal {
    match error {
        ResetError::Group(error) => group_refused(error),
        ResetError::Append(error) => Answer::failed(error),
        ResetError::Subscription => Answer::failed(error),
    }
}

/// Members of a group; `None`: there is none of this name.
fn members(call: &Call<'_>, group: &str, kind: Option<&str>) -> usize {
    let groups = call.broker().groups();
    match kind {
        Some("consumer") => groups.describe_consumers(group).map_or(0, |found| found.members.len()),
        Some("share") => groups.describe_share(group).map_or(0, |found| found.members.len()),
        Some("streams") => groups.describe_streams(group).map_or(0, |found| found.members.len()),
        Some(_) => groups.describe(group).map_or(0, |found| found.members.len()),
        None => 0,
    }
}

/// May offsets of a topic be moved by whoever asks, and at all?
///
/// # Errors
/// 403, 409.
fn check(call: &Call<'_>, group: &str, is_share: bool, topic: &Topic) -> Result<(), Refusal> {
    if !call.sees_topic(&topic.name) {
        return Err(Answer::not_allowed(
            "the group has offsets of topics that you may not see: say which topics are meant",
        ));
    }
    call.check_topic(Permission::Read, AclOperation::Read, &topic.name)?;
    if is_share && call.broker().is_queue_of(group, topic) {
        return Err(Answer::conflict(format!(
            "topic {:?} is a queue's: its messages are moved by nobody but its clients",
            topic.name
        )));
    }
    Ok(())
}

fn reset(call: &Call<'_>) -> Outcome {
    let group = call.path("group").to_owned();
    call.check_group(Permission::Read, AclOperation::Read, &group)?;
    let body = call.object()?;
    body.only(&["to", "topics", "partitions"])?;
    let to = To::of(body.get("to"), call.broker().now_ms())?;
    let kind = call.broker().groups().line(&group).map(|line| line.kind);
    if kind.is_none() && body.get("topics").is_none() {
        return Err(Answer::not_found(format!("there is no group {group:?}; with topics it is made")));
    }
    if members(call, &group, kind) > 0 {
        return Err(group_refused(delivery::GroupError::NonEmptyGroup));
    }
    let is_share = kind == Some("share");
    if is_share && matches!(to, To::Shift(_)) {
        return Err(Answer::invalid(
            "to.shift",
            "a share group has done with some records after its start: name an offset or a time",
        ));
    }
    let known = known(call, &group, is_share);
    let (mut moves, mut shown) = (Vec::new(), Vec::new());
    let mut checked: Option<types::TopicId> = None;
    for place in places(call, &body, &known)? {
        // Partitions of a topic come one after the other.
        if checked.replace(place.topic.id) != Some(place.topic.id) {
            check(call, &group, is_share, &place.topic)?;
        }
        let Some(offset) = to.resolve(call, &place.log, place.from).map_err(Answer::failed)? else { continue };
        let change = place.from.map(|from| offset as i64 - from as i64);
        shown.push(json!({"topic": place.topic.name, "partition": place.partition, "from": place.from, "to": offset, "change": change}));
        let (topic, partition) = (place.topic.name.clone(), place.partition);
        moves.push((place.topic, GoOn { topic, partition, offset }));
    }
    if !call.dry_run() && !moves.is_empty() {
        let topics: BTreeSet<String> = moves.iter().map(|(topic, _)| topic.name.clone()).collect();
        let own = may(Permission::Read, AclOperation::Read, &group);
        let judge = move |broker: &Broker, who: &Principal| {
            own(broker, who)?;
            topics.iter().try_for_each(|topic| broker.check_topic(who, Permission::Read, AclOperation::Read, topic))
        };
        let done = call.control_judged(judge, move |broker, _| {
            if is_share {
                return broker.set_share_starts(&group, &moves);
            }
            let places: Vec<GoOn> = moves.into_iter().map(|(_, place)| place).collect();
            broker.set_group_offsets(&group, &places)
        })?;
        done.map_err(refused)?;
    }
    Ok(Answer::of(json!({"dry_run": call.dry_run(), "offsets": shown})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_go_on_are_read() {
        let of = |value: Value| To::of(Some(&value), 10_000).ok();
        assert_eq!(of(json!("earliest")), Some(To::Earliest));
        assert_eq!(of(json!("latest")), Some(To::Latest));
        assert_eq!(of(json!({"offset": 5})), Some(To::Offset(5)));
        assert_eq!(of(json!({"duration_ms": 1000})), Some(To::Timestamp(9000)));
        assert_eq!(of(json!({"shift": -3})), Some(To::Shift(-3)));
        for wrong in [
            json!("middle"),
            json!({}),
            json!({"offset": -1}),
            json!({"offset": 1, "shift": 1}),
            json!({"timestamp": "now"}),
            json!(5),
            Value::Null,
        ] {
            assert_eq!(of(wrong.clone()), None, "{wrong}");
        }
        assert!(To::of(None, 0).is_err());
    }
}
