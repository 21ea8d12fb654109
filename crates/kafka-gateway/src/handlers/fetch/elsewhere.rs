//! Fetches of so many partitions, or so long names, that a network thread has no time for them: the threads that unpack batches look at them, and make
//! their answers. What needs the connection stays with its thread: watching logs, quotas, and asking for history.
//!
//! A fetch that names more than [`WATCHED_MAX`] partitions does not wait for records: it is answered at once, and its connection rests, as where there is no
//! memory for fetches that wait.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{Broker, QuotaKey};
use bytes::{Buf, Bytes};
use kafka_wire::{ErrorCode, Writer};
use types::LogId;

use super::{FetchWait, Scan, judge, limited};
use crate::access::Client;
use crate::body::{Body, Silence};
use crate::long_polls;
use crate::pinned::{Pinned, Reserved};
use crate::session::Context;

/// Fetches of more partitions are looked at elsewhere: a network thread needs 0.3 µs for each.
const FROM_PARTITIONS: usize = 5_000;
/// So are those whose names have more bytes, which come again in the answer.
const FROM_NAME_BYTES: usize = 512 << 10;
/// What a partition takes in an answer beside its records and the name of its topic, at most about.
const PARTITION_BYTES: usize = 64;
/// Partitions that a network thread watches for one fetch: as many as a session has.
pub(super) const WATCHED_MAX: usize = 20_000;

/// What the thread of the connection knows of a fetch that other threads look at.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// They have it now.
    away: bool,
    /// Meanwhile something may have changed.
    woken: bool,
    /// Its logs were watched before the last look.
    watched_before: bool,
    /// Logs that are watched while they have it.
    watched: Vec<LogId>,
}

impl Elsewhere {
    /// `None`: it is short.
    pub fn of(partitions: usize, name_bytes: usize) -> Option<Box<Self>> {
        (partitions > FROM_PARTITIONS || name_bytes > FROM_NAME_BYTES).then(Box::default)
    }

    pub fn has_it(&self) -> bool {
        self.away
    }

    pub fn watched(&mut self) -> impl Iterator<Item = LogId> + '_ {
        self.watched.drain(..)
    }
}

/// What is to be done elsewhere.
pub(super) enum Task {
    /// Look what there is; answer if there is something to say, or in any case.
    Look { anyway: bool, judge_for: Option<Client> },
    /// Answer with what was found.
    Respond,
    /// Answer with what cannot be read, and no records.
    Refuse,
}

/// What has come of it.
struct Looked {
    took: Duration,
    came: Came,
}

enum Came {
    Answer(Made, limited::Taken),
    /// There is no memory for the answer until others have read theirs.
    NoMemory(Scan),
    /// There may be something to say, with what is not in memory.
    Found(Scan, bool),
}

/// An answer in bytes. How long the client is not heard is known later, and comes first in all versions.
struct Made {
    throttle_time_ms: i32,
    rest: Vec<Bytes>,
    /// Memory for it, until it is counted as an answer that is not read.
    _reserved: Arc<Reserved>,
}

impl Body for Made {
    fn encode(&self, writer: &mut Writer, _version: i16) {
        writer.int32(self.throttle_time_ms);
        writer.pieces(&self.rest);
    }

    fn set_throttle(&mut self, milliseconds: i32) {
        self.throttle_time_ms = milliseconds;
    }
}

/// Memory for an answer of about so many bytes, which may be the longest that there is.
fn reserve(pinned: &Arc<Pinned>, bytes: usize) -> Option<Arc<Reserved>> {
    pinned.reserve(bytes.min(pinned.longest()))
}

impl Scan {
    /// Bytes of the answer without its records, at most about.
    fn answer_bytes(&self) -> usize {
        let of_topics = self
            .wanted
            .chunk_by(|one, next| one.same_topic(next))
            .map(|same| same[0].name.len() + PARTITION_BYTES * (same.len() + 1));
        if self.incremental { 0 } else { of_topics.sum() }
    }
}

impl FetchWait {
    /// Have other threads what it looks at? Then it is looked again when that has come back.
    pub(super) fn is_away(&mut self) -> bool {
        let Some(elsewhere) = self.elsewhere.as_mut().filter(|elsewhere| elsewhere.away) else { return false };
        elsewhere.woken = true;
        true
    }

    /// Has other threads look.
    pub(super) fn look_elsewhere(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if let Some(elsewhere) = &mut self.elsewhere {
            (elsewhere.woken, elsewhere.watched_before) = (false, false);
        }
        self.look_once_more(context)
    }

    fn look_once_more(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let asking = context.asking();
        let stamp = asking.stamp();
        // It may have waited for long, and the topic may be a queue by now.
        let judge_for = (self.judged != stamp).then(|| asking.client());
        self.judged = stamp;
        self.hand_over(Task::Look { anyway: context.now >= self.deadline, judge_for }, context)
    }

    /// Has other threads do something.
    pub(super) fn hand_over(&mut self, task: Task, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let elsewhere = self.elsewhere.as_mut()?;
        elsewhere.away = true;
        if self.watching && elsewhere.watched.is_empty() {
            elsewhere.watched =
                self.scan.wanted.iter().filter_map(|wanted| wanted.log.as_ref()).map(|log| log.id()).collect();
        }
        let (gateway, waits, version, shard) =
            (Arc::clone(context.gateway), Arc::clone(&self.waits), context.version, context.to.shard);
        let mut held = Some((std::mem::take(&mut self.scan), task, context.room.cloned()));
        // One turn, whatever it takes: it is bounded by what the request named.
        let work = Box::new(move |broker: &Arc<Broker>| {
            let (mut scan, task, room) = held.take().unwrap_or((Scan::default(), Task::Refuse, None));
            let began = Instant::now();
            let (bytes, may_wait) = (scan.answer_bytes(), matches!(task, Task::Look { .. }));
            let answers = match task {
                Task::Look { anyway, judge_for } => {
                    if let Some(client) = judge_for {
                        client.ask(broker, |asking| judge(&mut scan.wanted, scan.by_id, broker, asking));
                    }
                    let ready = scan.read_tails(broker, &waits, shard) || anyway;
                    if ready && !scan.found.iter().any(|found| found.cold) { Ok(()) } else { Err(ready) }
                }
                Task::Respond => Ok(()),
                Task::Refuse => {
                    scan.check_all(broker);
                    Ok(())
                }
            };
            // Counted before it is made. What others have found for it is answered in any case.
            let reserved = answers.is_ok().then(|| {
                if may_wait { reserve(&gateway.pinned, bytes) } else { Some(Arc::new(gateway.pinned.counted(bytes))) }
            });
            let came = match answers.map(|()| reserved.flatten()) {
                Ok(None) => Came::NoMemory(scan),
                Ok(Some(reserved)) => {
                    let (response, taken) = scan.respond(&gateway);
                    drop(scan);
                    let mut writer = Writer::new();
                    response.encode(&mut writer, version);
                    let mut rest = writer.finish();
                    // How long the client is not heard: four bytes of the first piece.
                    if let Some(first) = rest.first_mut().filter(|first| first.len() >= 4) {
                        first.advance(4);
                    }
                    Came::Answer(Made { throttle_time_ms: 0, rest, _reserved: reserved }, taken)
                }
                Err(ready) => Came::Found(scan, ready),
            };
            drop(room);
            Some(Box::new(Looked { took: began.elapsed(), came }) as Box<dyn Any + Send>)
        });
        let goes = context.gateway.broker.unpack(context.peer.ip(), context.to, work);
        // If not, the broker ends.
        (!goes).then(|| Box::new(Silence { refused: Some(ErrorCode::CoordinatorNotAvailable) }) as Box<dyn Body>)
    }

    /// Takes what other threads have found.
    pub(super) fn take_looked(
        &mut self,
        done: Box<dyn Any + Send>,
        context: &mut Context<'_>,
    ) -> Option<Box<dyn Body>> {
        let looked = *done.downcast::<Looked>().ok()?;
        let elsewhere = self.elsewhere.as_mut()?;
        elsewhere.away = false;
        let (woken, watched_before) = (std::mem::take(&mut elsewhere.woken), elsewhere.watched_before);
        if context.throttle.is_timed() {
            context.throttle.take(
                context.gateway.broker.quotas(),
                QuotaKey::RequestPercentage,
                looked.took.as_nanos() as u64,
                context.now,
            );
        }
        let ready = match looked.came {
            Came::Answer(made, taken) => {
                self.unwatch(context.to.connection, context.shard);
                limited::take(context, &taken, self.laggard.as_deref());
                return Some(Box::new(made));
            }
            Came::NoMemory(scan) => {
                self.scan = scan;
                self.hold_back(context.now);
                self.unwatch(context.to.connection, context.shard);
                return self.wait_held_back(context);
            }
            Came::Found(scan, ready) => {
                self.scan = scan;
                ready
            }
        };
        if self.waits_for_more(false, context) {
            return if self.held_back.is_some() { self.wait_held_back(context) } else { None };
        }
        if ready || context.now >= self.deadline {
            return self.respond(context);
        }
        if watched_before && !woken {
            self.scan.found = Vec::new();
            return None;
        }
        if self.scan.wanted.len() > WATCHED_MAX {
            long_polls::rest(self.deadline, context);
            return self.respond(context);
        }
        if !self.has_room(context) {
            return self.respond(context);
        }
        // Watch first, then look once more: a log may have advanced in between. Who was woken watches no more.
        self.watching = false;
        self.watch(context);
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.watched_before = true;
        }
        self.look_once_more(context)
    }
}
