//! What happens now, as server-sent events: `node` once a second, and `topics` and `groups` of those that are asked for.
//!
//! Samples of the node are taken by the streams themselves, one a second however many there are, and kept for ten minutes: who comes
//! later gets them at once, as `history`. So are looks at a topic and at a group. None is taken on the thread that serves all connections
//! of administration: topics may have very many partitions. A stream ends after five minutes; browsers connect again, and are looked at
//! again. Before each event it is looked at who asked: the stream ends when he is gone or has lost his tag, and what he may not see any more is left out.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header;
use broker::{Broker, GroupLag, Topic};
use bytes::Bytes;
use futures_util::stream;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::latency::{Buckets, Latencies, percentiles};
use super::overview;
use super::route::{Access, Route, Shape, get};
use super::schema::{Kind, Schema};
use super::vitals::NodeTotals;
use crate::management::Management;
use crate::management::authority::Identity;

const UNUSED: Schema = Schema::new("Events", &[]);

pub(crate) const ROUTES: &[Route] = &[Route {
    answer: Shape::Other("text/event-stream"),
    ..get("/live", Access::LoggedIn, "What happens now, as server-sent events", &UNUSED, live).asks(&[
        ("node", Kind::Bool, "false: nothing of the node, which needs tag monitoring or administrator."),
        ("topic", Kind::List(&Kind::Text), "A topic; up to 32 of them."),
        ("group", Kind::List(&Kind::Text), "A group; up to 32 of them."),
    ])
}];

/// The caller has one of these tags.
const TAGS: [&str; 4] = ["administrator", "monitoring", "policymaker", "management"];
/// Between two events.
const EVERY: Duration = Duration::from_secs(1);
/// Events after which a stream ends.
const EVENTS_MAX: usize = 300;
/// Samples that are kept.
const SAMPLES_MAX: usize = 600;
/// Rates are not made of samples that lie further apart.
const APART_MAX: Duration = Duration::from_secs(10);
/// Percentiles are of what happened in so many seconds.
const LATENCY_SAMPLES: usize = 5;
/// Streams at once.
const STREAMS_MAX: usize = 64;
/// Topics and groups of a stream, each.
const NAMES_MAX: usize = 32;
/// Looks that are kept, at topics and at groups: twice as many as streams can ask for.
const LOOKS_MAX: usize = 2 * STREAMS_MAX * NAMES_MAX;

/// What has been counted at a moment.
struct Look {
    at: Instant,
    totals: NodeTotals,
    latencies: Latencies,
}

#[derive(Default)]
struct Samples {
    looks: VecDeque<Look>,
    events: VecDeque<Value>,
}

/// The last look at something of a name: whoever comes while one is taken waits for it.
type Last<T> = Arc<Mutex<Option<(Instant, T)>>>;

/// Looks at things with names, one a second of each however many ask for it.
struct Looks<T>(Mutex<HashMap<String, Last<T>>>);

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Looks<T> {
    /// When it was taken, and what was seen.
    fn of(&self, name: &str, take: impl FnOnce() -> T) -> (Instant, T) {
        let last = {
            let mut all = self.0.lock();
            if all.len() >= LOOKS_MAX {
                // Those whom nobody asks for any more go; who asks again has another one taken.
                all.clear();
            }
            Arc::clone(all.entry_ref(name).or_default())
        };
        let mut last = last.lock();
        match &*last {
            Some(look) if look.0.elapsed() < EVERY * 9 / 10 => look.clone(),
            _ => last.insert((Instant::now(), take())).clone(),
        }
    }
}

/// What streams share.
#[derive(Default)]
pub(crate) struct Live {
    samples: Mutex<Samples>,
    topics: Looks<Extent>,
    lags: Looks<Arc<Lags>>,
    streams: AtomicUsize,
}

impl Live {
    /// The newest sample; a new one if it is a second old. `None`: there is nothing to compare with yet.
    fn sample(&self, management: &Management) -> Option<Value> {
        let mut samples = self.samples.lock();
        let now = Instant::now();
        if samples.looks.back().is_some_and(|last| now - last.at > APART_MAX) {
            samples.looks.clear();
        }
        if samples.looks.back().is_none_or(|last| now - last.at >= EVERY * 9 / 10) {
            let look = Look { at: now, totals: management.vitals.totals(), latencies: management.vitals.latencies() };
            let event = samples.looks.back().map(|last| event(management, &samples.looks, last, &look));
            samples.events.extend(event);
            samples.looks.push_back(look);
            while samples.looks.len() > LATENCY_SAMPLES {
                samples.looks.pop_front();
            }
            while samples.events.len() > SAMPLES_MAX {
                samples.events.pop_front();
            }
        }
        samples.events.back().cloned()
    }

    fn history(&self) -> Value {
        self.samples.lock().events.iter().cloned().collect()
    }
}

/// What happened between looks.
fn event(management: &Management, looks: &VecDeque<Look>, last: &Look, now: &Look) -> Value {
    let seconds = (now.at - last.at).as_secs_f64().max(0.001);
    let broker = &management.broker;
    let first = &looks.front().unwrap_or(last).latencies;
    let latency = |of: fn(&Latencies) -> &Buckets| percentiles(of(first), of(&now.latencies));
    json!({
        "at": broker.now_ms(),
        "rates": overview::rates_between(&last.totals, &now.totals, seconds),
        "memory": overview::memory(&management.vitals.memory()),
        "connections": broker.connections().count() + broker.kafka_connections().count(),
        "latency": {
            "produce": latency(|all| &all.produce),
            "fetch": latency(|all| &all.fetch),
            "commit": latency(|all| &all.commit),
        },
    })
}

/// How far a topic is.
#[derive(Clone, Copy)]
struct Extent {
    ends: u64,
    bytes: u64,
}

/// How far a group is, by topic.
type Lags = HashMap<String, GroupLag>;

/// A topic, and the last look at it.
type Watched = (Arc<Topic>, Option<(Instant, Extent)>);

/// One who watches.
struct Stream {
    live: Arc<Live>,
    management: Arc<Management>,
    /// As he was when the last events were sent.
    who: Identity,
    node: bool,
    topics: Vec<Watched>,
    groups: Vec<String>,
    sent: usize,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.live.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stream {
    /// The next events, as they are sent. `None`: who asked has gone, or may not ask any more.
    fn events(&mut self) -> Option<String> {
        if self.sent > 0 {
            self.who = self.who.renewed().filter(|who| who.has(&TAGS) && (!self.node || who.monitors()))?;
            self.topics.retain(|(topic, _)| self.who.sees_topic(&topic.name));
            self.groups.retain(|group| self.who.sees_group(group));
        }
        let mut text = if self.sent == 0 { "retry: 1000\n\n".to_owned() } else { String::new() };
        let mut put = |name: &str, value: &Value| text.push_str(&format!("event: {name}\ndata: {value}\n\n"));
        if self.node {
            let sample = self.live.sample(&self.management);
            if self.sent == 0 {
                put("history", &self.live.history());
            } else if let Some(sample) = sample {
                put("node", &sample);
            }
        }
        let now = self.management.broker.now_ms();
        if !self.topics.is_empty() {
            let live = &self.live;
            let one = |(topic, last): &mut Watched| {
                // The id: a topic of the name may have come in place of another.
                let now = live.topics.of(&topic.id.0.to_string(), || extent(topic));
                Some((topic.name.clone(), growth(last.replace(now)?, now)))
            };
            let all: Map<String, Value> = self.topics.iter_mut().filter_map(one).collect();
            put("topics", &json!({"at": now, "topics": all}));
        }
        if !self.groups.is_empty() {
            // Of topics that he may not see he is told nothing, in sums neither.
            let one = |group: &String| {
                let lags = self.live.lags.of(group, || Arc::new(lags(&self.management.broker, group))).1;
                let seen = lags.iter().filter(|(topic, _)| self.who.sees_topic(topic)).map(|(_, lag)| lag);
                let (lag, without_offset) =
                    seen.fold((0, 0), |sum, one| (sum.0 + one.records, sum.1 + one.records_unknown));
                (group.clone(), json!({"lag": lag, "without_offset": without_offset}))
            };
            let all: Map<String, Value> = self.groups.iter().map(one).collect();
            put("groups", &json!({"at": now, "groups": all}));
        }
        self.sent += 1;
        // Something has to come now and then, so that a connection that is gone is noticed.
        Some(if text.is_empty() { ": nothing\n\n".to_owned() } else { text })
    }
}

fn extent(topic: &Topic) -> Extent {
    let one = |sum: Extent, log: &Arc<broker::Log>| Extent {
        ends: sum.ends + log.high_watermark().0,
        bytes: sum.bytes + log.counted_bytes(),
    };
    topic.logs().iter().fold(Extent { ends: 0, bytes: 0 }, one)
}

/// What has come to a topic in a second, between two looks.
fn growth((before_at, before): (Instant, Extent), (at, now): (Instant, Extent)) -> Value {
    let seconds = at.duration_since(before_at).as_secs_f64().max(0.001);
    let rate = |from: u64, to: u64| (to.saturating_sub(from) as f64 / seconds * 10.0).round() / 10.0;
    // What retention takes away in that second is not seen.
    json!({"in_records": rate(before.ends, now.ends), "in_bytes": rate(before.bytes, now.bytes)})
}

fn lags(broker: &Broker, group: &str) -> Lags {
    let progress = broker.group_progress(group);
    progress
        .chunk_by(|one, next| one.topic == next.topic)
        .filter_map(|of_topic| Some((of_topic.first()?.topic.clone(), GroupLag::of(of_topic))))
        .collect()
}

/// All values of a parameter, each once.
fn names<'c>(
    call: &'c Call<'_>,
    parameter: &str,
    is_seen: impl Fn(&str) -> bool,
) -> Result<BTreeSet<&'c str>, Refusal> {
    let all: BTreeSet<&str> =
        call.query.iter().filter(|(name, _)| name == parameter).map(|(_, value)| value.as_str()).collect();
    if let Some(hidden) = all.iter().find(|name| !is_seen(name)) {
        return Err(Answer::not_found(format!("there is no {parameter} {hidden:?}")));
    }
    if all.len() > NAMES_MAX {
        Err(Answer::invalid(parameter, format!("at most {NAMES_MAX} are watched")))
    } else {
        Ok(all)
    }
}

fn live(call: &Call<'_>) -> Outcome {
    let node = call.query("node") != Some("false");
    if node && !call.caller.who.monitors() {
        return Err(Answer::not_allowed("what the node does is for tags monitoring and administrator"));
    }
    let find =
        |name: &str| call.broker().topic(name).ok_or_else(|| Answer::not_found(format!("there is no topic {name:?}")));
    let topics = names(call, "topic", |name| call.sees_topic(name))?
        .into_iter()
        .map(|name| Ok((find(name)?, None)))
        .collect::<Result<_, Refusal>>()?;
    let groups = names(call, "group", |name| call.sees_group(name))?.into_iter().map(str::to_owned).collect();
    let live = Arc::clone(&call.api.live);
    let free = |taken: usize| (taken < STREAMS_MAX).then_some(taken + 1);
    if live.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_err() {
        return Err(Answer::unavailable("busy", "too many watch already"));
    }
    let stream = Stream {
        live,
        management: Arc::clone(call.management),
        who: call.caller.who.clone(),
        node,
        topics,
        groups,
        sent: 0,
    };
    let events = stream::unfold(stream, |mut stream| async move {
        if stream.sent >= EVENTS_MAX {
            return None;
        }
        if stream.sent > 0 {
            tokio::time::sleep(EVERY).await;
        }
        let taken = tokio::task::spawn_blocking(move || (stream.events(), stream));
        let (text, stream) = taken.await.ok()?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text?)), stream))
    });
    let answer = Answer::other("text/event-stream", Body::from_stream(events));
    Ok(answer.header(header::HeaderName::from_static("x-accel-buffering"), "no".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_taken_once_however_many_ask() {
        let (looks, taken) = (Looks::default(), AtomicUsize::new(0));
        let take = || {
            std::thread::sleep(Duration::from_millis(50));
            taken.fetch_add(1, Ordering::Relaxed)
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(looks.of("g", take).1, 0));
            }
        });
        assert_eq!(looks.of("h", take).1, 1, "another name is looked at");
        std::thread::sleep(EVERY);
        assert_eq!(looks.of("g", take).1, 2, "and the first again, after a second");
    }
}
