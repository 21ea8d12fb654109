//! Which transactions the batches of a log make, found out by reading them, to be compared with what the journal keeps.

use std::collections::{BTreeMap, BTreeSet};

use journal::Log;
use record::{BatchHeader, Marker};
use types::Offset;

/// What a batch means for transactions.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Records,
    End(Marker),
}

/// The batches of one log that belong to transactions, by first offset, each with its producer.
#[derive(Clone, Default)]
pub struct Batches {
    by_base: BTreeMap<u64, (i64, Meaning)>,
}

impl Batches {
    /// A reader saw this batch.
    pub fn saw(&mut self, header: &BatchHeader, batch: &[u8]) {
        let meaning = Marker::of(header, batch).map_or(Meaning::Records, Meaning::End);
        if header.transactional() {
            self.by_base.insert(header.base().0, (header.producer_id, meaning));
        }
    }

    /// What was from here on is lost.
    pub fn forget_from(&mut self, end: u64) {
        self.by_base.split_off(&end);
    }

    /// First offsets of the batches that were aborted, of those that have been seen.
    pub fn aborted(&self) -> BTreeSet<u64> {
        let (mut open, mut aborted): (BTreeMap<i64, Vec<u64>>, BTreeSet<u64>) = Default::default();
        for (base, (producer, meaning)) in &self.by_base {
            match meaning {
                Meaning::Records => open.entry(*producer).or_default().push(*base),
                Meaning::End(marker) => {
                    let of_it = open.remove(producer).unwrap_or_default();
                    aborted.extend(of_it.into_iter().filter(|_| *marker == Marker::Abort));
                }
            }
        }
        aborted
    }

    /// Does the journal say the same of a log whose batches have all been seen? Of what begins before the log's start nothing is known.
    pub fn compare(&self, log: &Log) -> Result<(), String> {
        let (start, end) = (log.start(), log.high_watermark());
        let mut open: BTreeMap<i64, u64> = BTreeMap::new();
        let mut aborted = Vec::new();
        for (base, (producer, meaning)) in self.by_base.range(start.0..end.0) {
            match meaning {
                Meaning::Records => {
                    open.entry(*producer).or_insert(*base);
                }
                Meaning::End(marker) => {
                    if let (Some(first), Marker::Abort) = (open.remove(producer), marker) {
                        aborted.push((*producer, first, *base));
                    }
                }
            }
        }
        let kept = log.aborted_between(start, Offset(u64::MAX)).into_iter().filter(|one| one.first >= start);
        let kept: Vec<(i64, u64, u64)> = kept.map(|one| (one.producer_id, one.first.0, one.last.0)).collect();
        // One that began before the start may look as if it began at its first record that is left.
        let known_to_begin_before = |one: &(i64, u64, u64)| {
            log.aborted_between(start, Offset(u64::MAX)).iter().any(|kept| kept.last.0 == one.2 && kept.first < start)
        };
        aborted.retain(|one| !known_to_begin_before(one));
        if kept != aborted {
            return Err(format!("{}: aborted transactions are {kept:?}, by its batches {aborted:?}", log.id()));
        }
        let begins_before = log.producers().iter().any(|(_, _, open)| open.is_some_and(|open| open.first < start));
        let stable = if begins_before { start } else { Offset(open.values().copied().min().unwrap_or(end.0)) };
        if log.last_stable() != stable {
            return Err(format!(
                "{}: what is stable ends at {}, by its batches at {stable}",
                log.id(),
                log.last_stable()
            ));
        }
        Ok(())
    }
}
