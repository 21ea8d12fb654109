//! What compaction does with transactions and their markers, batch by batch. Pure.
//!
//! * R1 Records of an aborted transaction go. Its marker stays as long as any of its records has been seen before it.
//! * R2 A marker before which none of its transaction's records is left may go; it is kept until its delete horizon, which it
//!   gets when that is found out, so that readers on their way see it.
//! * R3 What was the last batch of a producer that is still known keeps its place without records: it carries the
//!   producer's last sequence number.

use hashbrown::{HashMap, HashSet};
use record::{BatchHeader, Marker};
use types::{Offset, Timestamp};

use crate::transactions::AbortedTransaction;

/// What is to become of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its records are looked at one by one.
    Records,
    /// All of them go.
    Discard,
    /// The marker stays as it is.
    Keep,
    /// The marker stays until its delete horizon, which is to be set.
    SetHorizon,
}

/// The transactions of a log while it is read from its start on, or from any offset.
pub(super) struct Rules {
    /// By first offset, those that come next last.
    ahead: Vec<AbortedTransaction>,
    /// By producer; and whether records were seen.
    aborted: HashMap<i64, (AbortedTransaction, bool)>,
    /// Producers of which records without a marker were seen that are not aborted.
    others: HashSet<i64>,
}

impl Rules {
    /// For reading from `from` on; `aborted` are all that have a marker there.
    pub fn new(mut aborted: Vec<AbortedTransaction>, from: Offset) -> Self {
        aborted.retain(|aborted| aborted.last >= from);
        aborted.sort_by_key(|aborted| std::cmp::Reverse(aborted.first));
        Self { ahead: aborted, aborted: HashMap::new(), others: HashSet::new() }
    }

    fn go_to(&mut self, next: Offset) {
        while let Some(begun) = self.ahead.pop_if(|aborted| aborted.first < next) {
            self.aborted.insert(begun.producer_id, (begun, false));
        }
    }

    /// Judges the next batch.
    pub fn judge(&mut self, header: &BatchHeader, batch: &[u8], now: Timestamp) -> Verdict {
        self.go_to(header.next());
        if header.control() {
            return match Marker::of(header, batch) {
                Some(marker) if self.has_nothing_before(header.producer_id, marker) => match header.delete_horizon() {
                    None => Verdict::SetHorizon,
                    Some(horizon) if horizon <= now => Verdict::Discard,
                    Some(_) => Verdict::Keep,
                },
                _ => Verdict::Keep,
            };
        }
        if !header.transactional() {
            return Verdict::Records;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some((_, seen)) => {
                *seen = true;
                Verdict::Discard
            }
            None => {
                self.others.insert(header.producer_id);
                Verdict::Records
            }
        }
    }

    /// Was nothing seen of the transaction that a marker ends?
    fn has_nothing_before(&mut self, producer_id: i64, marker: Marker) -> bool {
        match marker {
            Marker::Abort => !self.aborted.remove(&producer_id).is_some_and(|(_, seen)| seen),
            Marker::Commit => !self.others.remove(&producer_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use record::{BatchBuilder, set_base_offset, with_delete_horizon};

    use super::*;

    fn at(bytes: &Bytes, offset: u64) -> Bytes {
        let mut bytes = bytes.to_vec();
        set_base_offset(&mut bytes, Offset(offset));
        Bytes::from(bytes)
    }

    fn data(producer: i64, offset: u64) -> Bytes {
        at(
            &BatchBuilder::default().producer(producer, 0, 0).transactional().record(1, Some(b"k"), Some(b"v")).build(),
            offset,
        )
    }

    fn marker(producer: i64, marker: Marker, offset: u64) -> Bytes {
        at(&marker.batch(producer, 0, 0, 5), offset)
    }

    fn aborted(producer_id: i64, first: u64, last: u64) -> AbortedTransaction {
        AbortedTransaction { producer_id, first: Offset(first), last: Offset(last) }
    }

    fn verdicts(rules: &mut Rules, batches: &[Bytes], now: i64) -> Vec<Verdict> {
        batches.iter().map(|batch| rules.judge(&BatchHeader::parse(batch).unwrap(), batch, now)).collect()
    }

    #[test]
    fn aborted_records_go_and_their_marker_stays_until_they_are_gone() {
        use Verdict::{Discard, Keep, Records, SetHorizon};
        let log = [
            data(1, 0),
            data(2, 1),
            marker(1, Marker::Abort, 2),
            data(1, 3),
            marker(2, Marker::Commit, 4),
            marker(1, Marker::Commit, 5),
        ];
        let mut rules = Rules::new(vec![aborted(1, 0, 2)], Offset(0));
        assert_eq!(verdicts(&mut rules, &log, 100), [Discard, Records, Keep, Records, Keep, Keep]);
        // The records of the first are gone, and those of the second were replaced by later ones.
        let mut rules = Rules::new(vec![aborted(1, 0, 2)], Offset(0));
        assert_eq!(verdicts(&mut rules, &log[2..], 100), [SetHorizon, Records, SetHorizon, Keep]);
        let old = with_delete_horizon(&log[2], 200).unwrap();
        for (now, verdict) in [(199, Keep), (200, Discard)] {
            let mut rules = Rules::new(vec![aborted(1, 0, 2)], Offset(0));
            assert_eq!(verdicts(&mut rules, std::slice::from_ref(&old), now), [verdict]);
        }
    }

    #[test]
    fn what_is_read_from_the_middle_is_judged_alike() {
        let mut rules = Rules::new(vec![aborted(1, 0, 2), aborted(1, 10, 40)], Offset(20));
        assert_eq!(
            verdicts(&mut rules, &[data(1, 20), marker(1, Marker::Abort, 40), data(1, 41)], 0),
            [Verdict::Discard, Verdict::Keep, Verdict::Records,]
        );
    }
}
