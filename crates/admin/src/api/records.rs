//! The records of a topic, by hand: look for some, publish one.
//!
//! A search is bounded in time and in what it looks through. What it answers says how far it came; its cursor goes on from there. The cursor
//! says what of each partition is still to be looked at, so that nothing is kept between requests.

mod condition;
mod search;
mod shown;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker::append::AppendError;
use broker::{AclOperation, Log, NewRecord, Permission, PublishError, ReadError, Topic};
use record::BatchError;
use serde_json::{Value, json};

use self::condition::{Conditions, JsonCondition, finder};
use self::search::{Scan, Search};
use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, Fields};
use super::places::SEARCHES;
use super::route::{Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};

const FIELD: Schema = Schema::new(
    "RecordField",
    &[
        ("text", Kind::OrNull(&Kind::Text), "If it is text."),
        ("base64", Kind::OrNull(&Kind::Text), "Otherwise."),
        ("bytes", Kind::Int, "Its whole length."),
        ("truncated", Kind::Bool, "Only its beginning is shown."),
    ],
);

const HEADER: Schema = Schema::new(
    "RecordHeader",
    &[("name", Kind::Text, "Its name."), ("value", Kind::OrNull(&Kind::One(&FIELD)), "Its value.")],
);

const AMQP: Schema = Schema::new(
    "RecordOfAmqp",
    &[
        ("exchange", Kind::Text, "Where an AMQP client published it to; empty: the default exchange."),
        ("routing_key", Kind::Text, "With which routing key."),
    ],
);

const RECORD: Schema = Schema::new(
    "Record",
    &[
        ("partition", Kind::Int, "Where it is."),
        ("offset", Kind::Int, "Its offset there."),
        ("timestamp", Kind::Int, "ms since 1970."),
        ("bytes", Kind::Int, "Of key, value and headers."),
        ("key", Kind::OrNull(&Kind::One(&FIELD)), "Its key."),
        ("value", Kind::OrNull(&Kind::One(&FIELD)), "Its value; null: a tombstone."),
        ("headers", Kind::List(&Kind::One(&HEADER)), "Its headers, in order."),
        ("headers_left_out", Kind::Int, "Further headers, for which there was no room."),
        ("amqp", Kind::OrNull(&Kind::One(&AMQP)), "If it came over AMQP."),
    ],
);

const UNREAD: Schema = Schema::new(
    "UnreadBatch",
    &[
        ("partition", Kind::Int, "Where."),
        ("offset", Kind::Int, "Its first offset."),
        ("reason", Kind::Text, "Why it cannot be taken apart."),
    ],
);

const RECORDS: Schema = Schema::new(
    "Records",
    &[
        ("records", Kind::List(&Kind::One(&RECORD)), "Those that were found."),
        ("cursor", Kind::OrNull(&Kind::Text), "Asks on from here, with the same conditions; null: that was all."),
        ("looked_records", Kind::Int, "Records that were looked at."),
        ("looked_bytes", Kind::Int, "Bytes that were looked through."),
        ("cut", Kind::Bool, "The time was over, or the bytes, before the search was."),
        ("unread", Kind::List(&Kind::One(&UNREAD)), "Batches that were passed over, the first hundred."),
    ],
);

const NEW_RECORD: Schema = Schema::body(
    "NewRecord",
    &[],
    &[
        ("partition", Kind::OrNull(&Kind::Int), "Where to; otherwise by the key, as Kafka's clients do, or by turns."),
        ("timestamp", Kind::OrNull(&Kind::Int), "ms since 1970; otherwise now."),
        ("key", Kind::OrNull(&Kind::Text), "The key."),
        ("key_encoding", Kind::OrNull(&Kind::Text), "text or base64."),
        ("value", Kind::OrNull(&Kind::Text), "The value; without it is a tombstone."),
        ("value_encoding", Kind::OrNull(&Kind::Text), "text or base64."),
        ("headers", Kind::List(&Kind::Object), "{\"name\", \"value\"}, in order."),
    ],
);

const PUBLISHED: Schema = Schema::new(
    "Published",
    &[
        ("partition", Kind::Int, "Where it is."),
        ("offset", Kind::Int, "Its offset there."),
        ("timestamp", Kind::Int, "ms since 1970, as stored."),
    ],
);

pub(crate) const ROUTES: &[Route] = &[
    get("/topics/{topic}/records", Access::LoggedIn, "Look for records", &RECORDS, browse).asks(&[
        ("partition", Kind::Int, "One partition; otherwise all, at most 256."),
        ("order", Kind::Text, "newest (first, if absent) or oldest."),
        ("at_offset", Kind::Int, "Begin at this offset; newest first: go back from it."),
        ("at_time", Kind::Int, "Begin at the first record of this time, ms since 1970; newest first: go back from it."),
        ("key", Kind::Text, "The key is this."),
        ("key_contains", Kind::Text, "The key contains this."),
        ("header", Kind::Text, "There is a header of this name, or NAME=VALUE."),
        ("text", Kind::Text, "The value contains this."),
        (
            "json",
            Kind::Text,
            "A place in a value that is JSON: PATH, or PATH with =, !=, <, <=, >, >= or ~ (contains) and a value.",
        ),
        ("limit", Kind::Int, "Records: 50, at most 500."),
        ("truncate", Kind::Int, "Bytes that are shown of each key, value and header: 16384, at most 1 MiB."),
        ("time_ms", Kind::Int, "Search at most so long: 1500, at most 5000."),
        ("cursor", Kind::Text, "Of the answer before."),
    ]),
    change(
        Verb::Post,
        "/topics/{topic}/records",
        Access::LoggedIn,
        "Publish a record",
        Shape::One(&PUBLISHED),
        publish,
    )
    .takes(&NEW_RECORD)
    .always_makes(),
];

const LIMIT_DEFAULT: u64 = 50;
const LIMIT_MAX: u64 = 500;
const SHOWN_DEFAULT: u64 = 16 << 10;
const SHOWN_MAX: u64 = 1 << 20;
/// Of all that is shown of an answer's records: a third each for keys, values and headers, and of it as much for each record.
const ANSWER_BYTES: u64 = 8 << 20;
const TIME_DEFAULT: u64 = 1500;
const TIME_MAX: u64 = 5000;
/// Bytes of a condition.
const CONDITION_MAX: usize = 4096;
/// Partitions that are searched together.
const PARTITIONS_MAX: usize = 256;

/// The topic of the path, if who asks may do that with it.
fn topic_of(call: &Call<'_>, permission: Permission, operation: AclOperation) -> Result<Arc<Topic>, Refusal> {
    let name = call.path("topic");
    let missing = || Answer::not_found(format!("there is no topic {name:?}"));
    let topic = call.broker().topic(name).filter(|_| call.sees_topic(name)).ok_or_else(missing)?;
    call.check_topic(permission, operation, name)?;
    Ok(topic)
}

/// A number of the query in a range.
fn bounded(call: &Call<'_>, name: &str, absent: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, Refusal> {
    let number = call.number(name)?.unwrap_or(absent);
    let refuse = || Answer::invalid(name, format!("it is a number from {} to {}", range.start(), range.end()));
    if range.contains(&number) { Ok(number) } else { Err(refuse()) }
}

fn browse(call: &Call<'_>) -> Outcome {
    let topic = topic_of(call, Permission::Read, AclOperation::Read)?;
    let newest_first = match call.query("order").unwrap_or("newest") {
        "newest" => true,
        "oldest" => false,
        _ => return Err(Answer::invalid("order", "it is newest or oldest")),
    };
    let limit = bounded(call, "limit", LIMIT_DEFAULT, 1..=LIMIT_MAX)?;
    let share = ANSWER_BYTES / 3 / limit;
    let truncate = bounded(call, "truncate", SHOWN_DEFAULT, 16..=SHOWN_MAX)?.min(share);
    let longest = Duration::from_millis(bounded(call, "time_ms", TIME_DEFAULT, 10..=TIME_MAX)?);
    let conditions = conditions(call)?;
    let _place =
        SEARCHES.take().ok_or_else(|| Answer::unavailable("busy", "others are searching: try again in a second"))?;
    let mut scans = scans(call, &topic, newest_first)?;
    let shown = move |partition: u32, found: &record::Record| {
        shown::record(partition, found, truncate as usize, share as usize)
    };
    let search = Search {
        broker: call.broker(),
        newest_first,
        conditions: &conditions,
        limit: limit as usize,
        shown: &shown,
        longest,
    };
    let found = search.run(&mut scans).map_err(|error| unreadable(call, &topic, error))?;
    let unread = found
        .unread
        .iter()
        .map(|(partition, offset, reason)| json!({"partition": partition, "offset": offset, "reason": reason}));
    Ok(Answer::of(json!({
        "cursor": cursor_of(&scans, newest_first),
        "looked_records": found.looked_records,
        "looked_bytes": found.looked_bytes,
        "cut": found.cut,
        "unread": unread.collect::<Vec<_>>(),
        "records": found.records,
    })))
}

fn gone() -> Refusal {
    Answer::not_found("the topic was deleted meanwhile")
}

fn unreadable(call: &Call<'_>, topic: &Topic, error: ReadError) -> Refusal {
    match error {
        // It goes with its records, the journal's before its name, and nothing has failed.
        ReadError::Missing { log, .. } if call.broker().journal_of(log).log(log).is_none() => gone(),
        _ if call.broker().topic_by_id(topic.id).is_none() => gone(),
        ReadError::Gone => Answer::conflict("records were deleted while they were looked for: search again"),
        error => Answer::failed(error),
    }
}

fn conditions(call: &Call<'_>) -> Result<Conditions, Refusal> {
    let given = |name: &str| call.query(name).filter(|value| !value.is_empty());
    let conditions = ["key", "key_contains", "header", "text", "json"];
    if let Some(long) = conditions.into_iter().find(|name| given(name).is_some_and(|value| value.len() > CONDITION_MAX))
    {
        return Err(Answer::invalid(long, format!("it has at most {CONDITION_MAX} bytes")));
    }
    let header = given("header").map(|wanted| match wanted.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (wanted.to_owned(), None),
    });
    let wrong = |wrong: condition::Wrong| {
        Answer::invalid("json", format!("{} (at character {})", wrong.reason, wrong.position + 1))
    };
    let json = given("json").map(JsonCondition::parse).transpose().map_err(wrong)?;
    let key = given("key").map(|value| value.as_bytes().to_vec());
    Ok(Conditions { key, key_part: given("key_contains").map(finder), header, text: given("text").map(finder), json })
}

/// Where to look: where the cursor says, or where the search begins.
fn scans(call: &Call<'_>, topic: &Topic, newest_first: bool) -> Result<Vec<Scan>, Refusal> {
    let logs = topic.logs();
    if let Some(cursor) = call.query("cursor").filter(|cursor| !cursor.is_empty()) {
        let left = parse_cursor(cursor, newest_first).filter(|left| left.len() <= PARTITIONS_MAX);
        let left = left.ok_or_else(|| Answer::invalid("cursor", "it is not one of this search"))?;
        let scan = |(partition, range)| Some(Scan::new(partition, Arc::clone(logs.get(partition as usize)?), range));
        return Ok(left.into_iter().filter_map(scan).collect());
    }
    let chosen = match call.number("partition")? {
        Some(partition) if (partition as usize) < logs.len() => partition as usize..partition as usize + 1,
        Some(_) => {
            return Err(Answer::invalid("partition", format!("the topic has partitions 0 to {}", logs.len() - 1)));
        }
        None if logs.len() > PARTITIONS_MAX => {
            return Err(Answer::invalid(
                "partition",
                format!("more than {PARTITIONS_MAX} are not searched together: choose one"),
            ));
        }
        None => 0..logs.len(),
    };
    let offset = call.number("at_offset")?;
    let time = call.number("at_time")?.map(|time| i64::try_from(time).unwrap_or(i64::MAX));
    let mut scans = Vec::with_capacity(chosen.len());
    for partition in chosen {
        let log = Arc::clone(&logs[partition]);
        let at = match (offset, time) {
            (Some(offset), _) => Some(offset.saturating_add(u64::from(newest_first))),
            (None, Some(time)) => Some(of_time(call, topic, &log, time)?),
            (None, None) => None,
        };
        let (start, end) = (log.start().0, log.last_stable().0);
        let range = if newest_first { start..at.unwrap_or(end).min(end) } else { at.unwrap_or(start).max(start)..end };
        scans.push(Scan::new(partition as u32, log, range));
    }
    Ok(scans)
}

/// The first offset from a time on; the end if there is none.
fn of_time(call: &Call<'_>, topic: &Topic, log: &Arc<Log>, time: i64) -> Result<u64, Refusal> {
    let found =
        call.broker().journal_of(log.id()).find_by_time(log, time).map_err(|error| unreadable(call, topic, error))?;
    Ok(found.map_or(log.last_stable(), |(offset, _)| offset).0)
}

/// What is left, as text: the order, then `partition:start-end` of each partition that has something left.
fn cursor_of(scans: &[Scan], newest_first: bool) -> Option<String> {
    let one = |scan: &Scan| format!("{}:{}-{}", scan.partition, scan.left.start, scan.left.end);
    let left: Vec<String> = scans.iter().filter(|scan| !scan.left.is_empty()).map(one).collect();
    (!left.is_empty()).then(|| format!("{}.{}", if newest_first { "newest" } else { "oldest" }, left.join(".")))
}

fn parse_cursor(text: &str, newest_first: bool) -> Option<Vec<(u32, Range<u64>)>> {
    let (order, rest) = text.split_once('.')?;
    let one = |part: &str| {
        let (partition, range) = part.split_once(':')?;
        let (start, end) = range.split_once('-')?;
        Some((partition.parse().ok()?, start.parse().ok()?..end.parse().ok()?))
    };
    (order == if newest_first { "newest" } else { "oldest" }).then(|| rest.split('.').map(one).collect())?
}

/// A text of the body as bytes.
fn bytes_of(body: &Fields, name: &str) -> Result<Option<Vec<u8>>, Refusal> {
    let encoding = format!("{name}_encoding");
    let Some(text) = body.text(name)? else { return Ok(None) };
    match body.text(&encoding)?.unwrap_or("text") {
        "text" => Ok(Some(text.as_bytes().to_vec())),
        "base64" => STANDARD.decode(text).map(Some).map_err(|_| Answer::invalid(name, "it is no base64")),
        _ => Err(Answer::invalid(&encoding, "it is text or base64")),
    }
}

/// Name and value of a header.
type Header = (Vec<u8>, Option<Vec<u8>>);

fn headers_of(body: &Fields) -> Result<Vec<Header>, Refusal> {
    let Some(given) = body.get("headers") else { return Ok(Vec::new()) };
    let all = given.as_array().ok_or_else(|| Answer::invalid("headers", "it is a list"))?;
    let one = |(place, header): (usize, &Value)| {
        let name = header["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Answer::invalid(&format!("headers.{place}.name"), "a header needs a name"))?;
        match &header["value"] {
            Value::Null => Ok((name.as_bytes().to_vec(), None)),
            Value::String(value) => Ok((name.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))),
            _ => Err(Answer::invalid(&format!("headers.{place}.value"), "it is a text, or null")),
        }
    };
    all.iter().enumerate().map(one).collect()
}

fn publish(call: &Call<'_>) -> Outcome {
    let topic = topic_of(call, Permission::Write, AclOperation::Write)?;
    let body = call.object()?;
    body.only(&["partition", "timestamp", "key", "key_encoding", "value", "value_encoding", "headers"])?;
    let wanted = NewRecord {
        partition: body.int("partition", 0..=i64::from(u32::MAX))?.map(|partition| partition as u32),
        timestamp: body.int("timestamp", 0..=i64::MAX)?,
        key: bytes_of(&body, "key")?,
        value: bytes_of(&body, "value")?,
        headers: headers_of(&body)?,
    };
    let published = call.broker().publish_record(&topic, &wanted).map_err(refused)?;
    let answer =
        json!({"partition": published.partition, "offset": published.offset.0, "timestamp": published.timestamp});
    Ok(Answer::made(true, answer))
}

fn refused(error: PublishError) -> Refusal {
    let reason = error.to_string();
    match error {
        PublishError::Partition { .. } => Answer::invalid("partition", reason),
        PublishError::KeyNeeded => Answer::invalid("key", reason),
        PublishError::Timestamp { .. } => Answer::invalid("timestamp", reason),
        PublishError::Batch(BatchError::TooLarge { .. }) => Answer::invalid("value", reason),
        PublishError::QueueFull => Answer::conflict(reason),
        PublishError::Append(AppendError::LogDeleted) => gone(),
        PublishError::Batch(_) | PublishError::Append(_) => Answer::failed(reason),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn a_topic_that_was_deleted_meanwhile_is_not_there() {
        let status = |error: AppendError| refused(PublishError::Append(error)).status();
        assert_eq!(status(AppendError::LogDeleted), StatusCode::NOT_FOUND);
        assert_eq!(status(AppendError::Stopped), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn a_cursor_says_what_is_left() {
        let parse = |text: &str, newest| parse_cursor(text, newest);
        assert_eq!(parse("newest.0:5-10.3:0-7", true), Some(vec![(0, 5..10), (3, 0..7)]));
        assert_eq!(parse("oldest.0:5-10", false), Some(vec![(0, 5..10)]));
        for wrong in
            ["", "newest", "newest.", "oldest.0:5-10", "newest.0:5", "newest.x:1-2", "newest.0:-1-2", "newest.0:1-2."]
        {
            assert_eq!(parse(wrong, true), None, "{wrong}");
        }
    }
}
