//! The answer to a fetch, of what was found.

use kafka_wire::fetch::{AbortedTransaction, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData};
use kafka_wire::{ErrorCode, Records};
use record::gap_marker;
use types::Offset;

use super::{Found, Scan, Wanted, limited};
use crate::gateway::Gateway;

impl Scan {
    /// The answer.
    pub(super) fn respond(&mut self, gateway: &Gateway) -> (FetchResponse, limited::Taken) {
        let node = gateway.broker.node_id().0;
        let mut response = FetchResponse::default();
        let session = self.session.clone();
        let mut held = session.as_ref().map(|session| session.lock());
        response.session_id = held.as_ref().map_or(0, |held| held.id);
        if held.as_ref().is_some_and(|held| held.wanted.is_empty()) {
            // A session over nothing ends.
            gateway.fetch_sessions.remove(response.session_id);
            response.session_id = 0;
        }
        if !self.incremental {
            response.responses.reserve_exact(self.wanted.chunk_by(|one, next| one.same_topic(next)).count() + 1);
        }
        let mut fetched = 0;
        for step in 0..self.wanted.len() {
            let at = (self.start + step) % self.wanted.len();
            let found = std::mem::take(&mut self.found[at]);
            let wanted = &self.wanted[at];
            let (offset, broker) = (Offset(wanted.offset.max(0) as u64), &gateway.broker);
            let gap = match (&self.filtered, &wanted.log, found.code) {
                (Some(filtered), Some(log), None) => filtered.gap(at, offset, broker, log),
                // Nothing is left from there to the end, of a queue's log: without a word the client would ask for the same again and again.
                (None, Some(log), None) if found.slices.is_empty() && found.next > offset => {
                    Some(gap_marker(Offset(found.next.0 - 1), log.leader_epoch(), broker.now_ms()))
                }
                _ => None,
            };
            let mut found = found;
            found.slices.extend(gap);
            let data = partition_data(wanted, found, node, self.committed_only);
            let told = (data.high_watermark, data.log_start_offset);
            let news =
                data.error_code != 0 || !data.records.as_ref().is_none_or(Records::is_empty) || told != wanted.told;
            if self.incremental && !news {
                continue;
            }
            if let Some(held) = &mut held
                && let Some(kept) = held.wanted.get_mut(at).filter(|kept| kept.same_as(wanted))
            {
                kept.told = told;
            }
            fetched += data.records.as_ref().map_or(0, Records::len);
            match response.responses.last_mut() {
                Some(last) if last.topic == wanted.name && last.topic_id == wanted.id => last.partitions.push(data),
                _ => response.responses.push(FetchableTopicResponse {
                    topic: wanted.name.clone(),
                    topic_id: wanted.id,
                    partitions: vec![data],
                    ..FetchableTopicResponse::default()
                }),
            }
        }
        gateway.metrics.fetched_bytes.inc_by(fetched as u64);
        let taken = limited::Taken::of(&gateway.broker, &response, fetched);
        (response, taken)
    }
}

fn aborted_transaction(aborted: broker::AbortedTransaction) -> AbortedTransaction {
    let (producer_id, first_offset) = (aborted.producer_id, aborted.first.0 as i64);
    AbortedTransaction { producer_id, first_offset, ..AbortedTransaction::default() }
}

fn partition_data(wanted: &Wanted, found: Found, node: i32, committed_only: bool) -> PartitionData {
    let code = found.code.map_or(0, ErrorCode::code);
    let read = Offset(wanted.offset.max(0) as u64)..found.next;
    let aborted = match &wanted.log {
        Some(log) if committed_only => {
            log.aborted_between(read.start, read.end).into_iter().map(aborted_transaction).collect()
        }
        _ => Vec::new(),
    };
    let mut data = PartitionData {
        partition_index: wanted.partition,
        error_code: code,
        high_watermark: -1,
        records: Some(Records(found.slices)),
        aborted_transactions: (committed_only || wanted.denied.is_some() || wanted.log.is_none()).then_some(aborted),
        ..PartitionData::default()
    };
    if let Some(log) = &wanted.log {
        if found.code.is_none() {
            data.high_watermark = log.high_watermark().0 as i64;
            data.last_stable_offset = log.last_stable().0 as i64;
            data.log_start_offset = log.start().0 as i64;
        }
        if found.code == Some(ErrorCode::FencedLeaderEpoch) {
            let leader_epoch = log.leader_epoch() as i32;
            data.current_leader = LeaderIdAndEpoch { leader_id: node, leader_epoch, ..LeaderIdAndEpoch::default() };
        }
    }
    data
}
