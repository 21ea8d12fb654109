//! ListOffsets: the start, the end, the largest timestamp, or the first record from a time on.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use broker::{AclOperation, Broker, Cause, Log, Reply};
use kafka_wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader};
use types::ConnectionId;

use super::fetch::{READ_COMMITTED, visible_end};
use super::{Outcome, Wait};
use crate::body::Body;
use crate::error_code::of_read;
use crate::session::{Context, ShardContext};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// A partition whose answer is on the disk.
type Search = (usize, usize, Arc<Log>, i64);

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ListOffsetsRequest::decode(reader, context.version)?;
    let broker = &context.gateway.broker;
    let committed_only = request.isolation_level == READ_COMMITTED;
    let mut response = ListOffsetsResponse::default();
    let mut searches: Vec<Search> = Vec::new();
    for topic in request.topics {
        let known = broker.topic(&topic.name);
        let denied = context.asking().check_topic(AclOperation::Describe, &topic.name).err();
        let at = response.topics.len();
        let (twice, mut told) = (repeated(&topic.partitions), HashSet::new());
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            if let Some(code) = denied {
                let (partition_index, error_code) = (partition.partition_index, code.code());
                answers.push(ListOffsetsPartitionResponse { partition_index, error_code, ..Default::default() });
                continue;
            }
            if twice.contains(&partition.partition_index) {
                if told.insert(partition.partition_index) {
                    let (partition_index, error_code) = (partition.partition_index, ErrorCode::InvalidRequest.code());
                    answers.push(ListOffsetsPartitionResponse { partition_index, error_code, ..Default::default() });
                }
                continue;
            }
            let log = known.as_ref().and_then(|known| known.log(super::fetch::index(partition.partition_index)?));
            let (answer, search) = look_up(&partition, log, context.version, committed_only);
            searches.extend(search.map(|(log, timestamp)| (at, answers.len(), log, timestamp)));
            answers.push(answer);
        }
        response.topics.push(ListOffsetsTopicResponse { name: topic.name, partitions: answers, ..Default::default() });
    }
    if searches.is_empty() {
        return Ok(Outcome::answer(response));
    }
    let abandoned = context.gone.cloned().unwrap_or_default();
    let (wait, mut searches, mut room) =
        (SearchWait { abandoned: Arc::clone(&abandoned) }, searches.into_iter(), context.room.cloned());
    // One at a time: each may have to read and unpack a batch, and others have their turns in between.
    let work = Box::new(move |broker: &Arc<Broker>| {
        if let Some((topic, partition, log, timestamp)) = searches.next().filter(|_| !abandoned.load(Ordering::Relaxed))
        {
            search(broker, &log, timestamp, committed_only, &mut response.topics[topic].partitions[partition]);
            return None;
        }
        let body: super::JobBody = Box::new(std::mem::take(&mut response));
        // It was used until all were done.
        drop(room.take());
        Some(Box::new(body) as Box<dyn std::any::Any + Send>)
    });
    // The broker ends.
    let unanswered = Outcome::Close(ErrorCode::CoordinatorNotAvailable);
    Ok(if context.gateway.broker.unpack(context.peer.ip(), context.to, work) {
        Outcome::Wait(Box::new(wait))
    } else {
        unanswered
    })
}

/// Offsets by time are being searched for. A connection has one such search at a time.
struct SearchWait {
    /// The connection is gone.
    abandoned: Arc<AtomicBool>,
}

impl Wait for SearchWait {
    fn cause(&self) -> Cause {
        Cause::History
    }

    fn holds_reading(&self) -> bool {
        true
    }

    fn cancel(&mut self, _connection: ConnectionId, _shard: &mut ShardContext) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn handle_reply(&mut self, _part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        done.downcast::<super::JobBody>().ok().map(|body| *body)
    }
}

/// Partitions that are asked for more than once.
fn repeated(asked: &[ListOffsetsPartition]) -> BTreeSet<i32> {
    let mut seen = HashSet::with_capacity(asked.len());
    asked.iter().map(|one| one.partition_index).filter(|index| !seen.insert(*index)).collect()
}

fn look_up(
    asked: &ListOffsetsPartition,
    log: Option<Arc<Log>>,
    version: i16,
    committed_only: bool,
) -> (ListOffsetsPartitionResponse, Option<(Arc<Log>, i64)>) {
    let mut answer = ListOffsetsPartitionResponse { partition_index: asked.partition_index, ..Default::default() };
    let mut fail = |code: ErrorCode| {
        answer.error_code = code.code();
        (answer.clone(), None)
    };
    let Some(log) = log else { return fail(ErrorCode::UnknownTopicOrPartition) };
    let current = log.leader_epoch() as i32;
    if asked.current_leader_epoch >= 0 && asked.current_leader_epoch != current {
        let fenced = asked.current_leader_epoch < current;
        return fail(if fenced { ErrorCode::FencedLeaderEpoch } else { ErrorCode::UnknownLeaderEpoch });
    }
    let needed = match asked.timestamp {
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        LATEST | EARLIEST | 0.. => 0,
        _ => i16::MAX,
    };
    if version < needed {
        return fail(ErrorCode::UnsupportedVersion);
    }
    match asked.timestamp {
        LATEST => answer.offset = visible_end(&log, committed_only).0 as i64,
        EARLIEST | EARLIEST_LOCAL => answer.offset = log.start().0 as i64,
        // Nothing is tiered.
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return (answer, None),
        timestamp => return (answer, Some((log, timestamp))),
    }
    answer.leader_epoch = current;
    (answer, None)
}

fn search(
    broker: &Broker,
    log: &Arc<Log>,
    timestamp: i64,
    committed_only: bool,
    answer: &mut ListOffsetsPartitionResponse,
) {
    let journal = broker.journal_of(log.id());
    let found =
        if timestamp == MAX_TIMESTAMP { journal.max_timestamp(log) } else { journal.find_by_time(log, timestamp) };
    match found {
        Ok(Some((offset, found))) if timestamp == MAX_TIMESTAMP || offset < visible_end(log, committed_only) => {
            answer.offset = offset.0 as i64;
            answer.timestamp = found;
            answer.leader_epoch = log.leader_epoch() as i32;
        }
        Ok(_) => {}
        Err(error) => answer.error_code = of_read(&error).code(),
    }
}
