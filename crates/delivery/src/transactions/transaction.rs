//! What one transaction goes through: it begins, is asked to end, ends, or is fenced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::{
    EPOCH_LAST, Ending, ProducerEpoch, RECORDED_LOG, Transaction, TransactionError, TransactionRecord,
    TransactionState, Version,
};
use crate::coordinator::Commit;
use crate::transaction_pieces::Pieces;
use crate::transaction_record::key_of;

impl Transaction {
    pub(crate) fn new(producer: ProducerEpoch, timeout: u64, now: u64) -> Self {
        Self {
            producer,
            previous: None,
            timeout,
            state: TransactionState::Empty,
            started: now,
            updated: now,
            logs: BTreeSet::new(),
            offsets: BTreeMap::new(),
            marker_epoch: producer.1,
            gate: Arc::default(),
            offset_bytes: 0,
            counted: 0,
            pieces: Pieces::default(),
        }
    }

    /// Bytes that what it holds takes, about: twice those of its record, or more.
    pub(crate) fn record_weight(&self) -> usize {
        self.logs.len() * RECORDED_LOG + self.offset_bytes
    }

    /// Is its record too long?
    pub(super) fn is_too_much(&self, max: usize) -> bool {
        self.record_weight() > max && self.encode().len() > max
    }

    pub(crate) fn whole(&self, id: &str) -> (Bytes, Bytes) {
        (key_of(id), self.encode())
    }

    pub(super) fn record(&self, id: &str) -> TransactionRecord {
        let (key, value) = self.whole(id);
        (key, Some(value))
    }

    /// Begins a transaction; false when one is under way.
    pub(super) fn begin(&mut self, now: u64) -> bool {
        self.updated = now;
        if self.state == TransactionState::Ongoing {
            return false;
        }
        (self.state, self.started) = (TransactionState::Ongoing, now);
        (self.previous, self.gate, self.pieces) = (None, Arc::default(), Pieces::default());
        true
    }

    /// Aborts, and fences the producer.
    pub(super) fn fence(&mut self, id: &str, now: u64) -> Ending {
        self.prepare(false, now);
        self.marker_epoch = self.producer.1.saturating_add(1);
        self.producer.1 = self.marker_epoch;
        self.previous = None;
        self.ending(id)
    }

    pub(super) fn end(
        &mut self,
        id: &str,
        commit: bool,
        version: Version,
        fresh: Option<i64>,
        now: u64,
    ) -> Result<Ending, TransactionError> {
        let (producer_id, epoch) = self.producer;
        if version == Version::V2 {
            let next = if epoch >= EPOCH_LAST {
                (fresh.ok_or(TransactionError::Concurrent)?, 0)
            } else {
                (producer_id, epoch + 1)
            };
            self.previous = Some(self.producer);
            self.producer = next;
            self.marker_epoch = epoch.saturating_add(1);
        } else {
            self.marker_epoch = epoch;
        }
        self.prepare(commit, now);
        Ok(self.ending(id))
    }

    pub(super) fn prepare(&mut self, commit: bool, now: u64) {
        self.gate.close();
        self.state = if commit { TransactionState::PrepareCommit } else { TransactionState::PrepareAbort };
        self.updated = now;
    }

    /// The steps that are left of an end that is decided.
    pub(super) fn ending(&self, id: &str) -> Ending {
        let commit = self.state == TransactionState::PrepareCommit;
        let mut offsets = Vec::new();
        for (group, pending) in self.offsets.iter().filter(|_| commit) {
            for ((topic, partition), offset) in pending {
                let commit = Commit { topic: topic.clone(), partition: *partition, offset: offset.clone() };
                offsets.push((group.clone(), commit));
            }
        }
        let mut done = self.clone();
        done.finish();
        Ending {
            id: id.to_owned(),
            commit,
            producer: (self.writer(), self.marker_epoch),
            logs: self.logs.iter().copied().collect(),
            offsets,
            prepare: self.record(id),
            unneeded: self.pieces.keys(id),
            complete: done.record(id),
        }
    }

    /// The producer id that the transaction under way is written with: while it ends another one may be to follow.
    pub(super) fn writer(&self) -> i64 {
        self.previous.filter(|_| self.state.ending()).map_or(self.producer.0, |previous| previous.0)
    }

    pub(super) fn finish(&mut self) {
        let commit = self.state == TransactionState::PrepareCommit;
        self.state = if commit { TransactionState::CompleteCommit } else { TransactionState::CompleteAbort };
        self.logs.clear();
        self.offsets.clear();
        self.offset_bytes = 0;
    }
}
