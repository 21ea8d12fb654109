//! Bodies of a chunk that several logs share. Batches for the same logs lie side by side in one body, one entry of the directory with a
//! reference a log, as long as that keeps the order of each log; a log's own batches lie behind the body that it had before them.
//!
//! ```text
//! own batches by log │ body 1 │ own batches of its logs, placed after it │ body 2 │ …        stage 0, 1, 2 …
//! ```

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use record::BatchHeader;
use types::{Durability, LogId, LogIndex, Offset, Timestamp};

use super::Writer;
use super::build::{ChunkInMaking, PlacedBatch, Plan};
use super::commit::Flight;
use crate::append::{AppendError, Appended};
use crate::chunk::{Entry, EntryKind, REFERENCE_BYTES, crc32c, encode_reference};
use crate::disk::Submitter;
use crate::log::Log;
use crate::queue::Placing;

/// Bodies of a chunk, at most.
pub(super) const BODIES_MAX: usize = u16::MAX as usize - 1;

/// One body and those who share it.
pub(super) struct Body {
    /// Each with the offset of its first record.
    logs: Vec<(Arc<Log>, Offset)>,
    /// Each with its number of records.
    batches: Vec<(Bytes, u32)>,
    records: u32,
    max_timestamp: Timestamp,
}

/// What a log had last in the chunk.
#[derive(Clone, Copy)]
struct Last {
    /// The body, counted from 1.
    stage: u16,
    /// Batches of its own came after it.
    own: bool,
}

/// The shared bodies of the next chunk.
#[derive(Default)]
pub(super) struct Shared {
    bodies: Vec<Body>,
    last: HashMap<LogId, Last>,
    references: usize,
}

impl Shared {
    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    pub fn len(&self) -> usize {
        self.bodies.len()
    }

    pub fn references(&self) -> usize {
        self.references
    }

    /// Behind which body the next batch of a log lies.
    pub fn stage_of(&mut self, log: LogId) -> u16 {
        if self.bodies.is_empty() {
            return 0;
        }
        self.last.get_mut(&log).map_or(0, |last| {
            last.own = true;
            last.stage
        })
    }

    /// The bodies that lie before batches of `stage`, from the one after `done` on, which moves there.
    pub fn until(&self, done: &mut u16, stage: u16) -> &[Body] {
        let end = usize::from(stage).min(self.bodies.len());
        let bodies = &self.bodies[usize::from(*done).min(end)..end];
        *done = (*done).max(end as u16);
        bodies
    }

    /// The body that a batch for these logs may join: the last thing that each of them has.
    fn joins(&mut self, logs: &[(Arc<Log>, Offset)]) -> Option<&mut Body> {
        let stage = self.last.get(&logs[0].0.id())?.stage;
        let is_last = |log: &Log| self.last.get(&log.id()).is_some_and(|last| last.stage == stage && !last.own);
        if !logs.iter().all(|(log, _)| is_last(log)) {
            return None;
        }
        let body = self.bodies.get_mut(usize::from(stage) - 1)?;
        let same = body.logs.len() == logs.len()
            && body.logs.iter().zip(logs).all(|((one, _), (other, _))| one.id() == other.id());
        same.then_some(body)
    }
}

/// Gives a batch its place in all of `logs` that are not being deleted. Its body is counted by the caller.
pub(super) fn place_shared(
    plan: &mut Plan,
    request: &mut Placing,
    logs: &[Arc<Log>],
    bytes: Bytes,
    header: &BatchHeader,
) -> Result<Appended, AppendError> {
    assert!(!header.idempotent(), "a batch that logs share is of no producer that is known");
    let mut placed = Vec::with_capacity(logs.len());
    for log in logs {
        let inner = log.inner();
        if inner.ended {
            continue;
        }
        placed.push((Arc::clone(log), log.claim(header.records_count as u64)));
        drop(inner);
        let fsync = log.durability() == Durability::Fsync;
        request.fsync |= fsync;
        plan.fsync |= fsync;
    }
    let (first, base) = placed.first().ok_or(AppendError::LogDeleted)?;
    let appended = Appended { base: *base, log_start: first.start(), duplicate: false };
    let records = header.records_count as u32;
    if placed.len() == 1 {
        let stage = plan.shared.stage_of(first.id());
        plan.batches.push(PlacedBatch::new(Arc::clone(first), bytes, header, *base, stage));
        plan.entries_max += 1;
        return Ok(appended);
    }
    if let Some(body) = plan.shared.joins(&placed) {
        body.batches.push((bytes, records));
        body.records += records;
        body.max_timestamp = body.max_timestamp.max(header.max_timestamp);
        return Ok(appended);
    }
    let stage = plan.shared.len() as u16 + 1;
    for (log, _) in &placed {
        plan.shared.last.insert(log.id(), Last { stage, own: false });
    }
    plan.entries_max += 1;
    plan.shared.references += placed.len();
    plan.shared.bodies.push(Body {
        logs: placed,
        batches: vec![(bytes, records)],
        records,
        max_timestamp: header.max_timestamp,
    });
    Ok(appended)
}

impl<S: Submitter> Writer<S> {
    /// Copies bodies into the chunk and enters their runs into the logs.
    pub(super) fn write_shared(
        &mut self,
        chunk: &mut ChunkInMaking<'_>,
        bodies: &[Body],
        index: LogIndex,
        now: Timestamp,
    ) {
        for body in bodies {
            let entry = chunk.add_shared(body);
            for (log, base) in &body.logs {
                let entry = Entry { kind: EntryKind::Data, log: log.id(), base: *base, shared: true, ..entry };
                self.enter_run(log, &entry, index, now);
            }
        }
    }
}

impl ChunkInMaking<'_> {
    /// Batches side by side, the place of the first record of each in place of its offset, and a reference for each log.
    fn add_shared(&mut self, body: &Body) -> Entry {
        let (start, mut distance) = (self.body, 0);
        for (batch, records) in &body.batches {
            let end = self.body + batch.len();
            let copy = &mut self.memory[self.body..end];
            copy.copy_from_slice(batch);
            record::set_base_offset(copy, Offset(distance));
            record::set_leader_epoch(copy, self.term);
            distance += u64::from(*records);
            self.body = end;
        }
        for (log, base) in &body.logs {
            encode_reference(log.id(), *base, &mut self.memory[self.reference..self.reference + REFERENCE_BYTES]);
            self.reference += REFERENCE_BYTES;
        }
        let entry = Entry {
            kind: EntryKind::Shared,
            records: body.records,
            log: LogId(body.logs.len() as u64),
            last_delta: body.records - 1,
            position: start as u32,
            bytes: (self.body - start) as u32,
            crc: crc32c(&self.memory[start..self.body]),
            max_timestamp: body.max_timestamp,
            ..Entry::EMPTY
        };
        self.add_entry(entry);
        entry
    }
}

impl Flight {
    /// The new ends of the logs that share bodies.
    pub(super) fn take_shared_ends(&mut self, shared: Shared) {
        for body in shared.bodies {
            for (log, base) in body.logs {
                let memory = log.durability() == Durability::Memory;
                let ends = if memory { &mut self.ends_memory } else { &mut self.ends_fsync };
                ends.push((log, base.plus(u64::from(body.records))));
            }
        }
    }
}
