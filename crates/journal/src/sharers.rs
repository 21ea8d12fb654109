//! Which logs of a sealed segment share runs, and how many bytes: what of the segment is live follows from what of its logs is. Found out when
//! the index is written, kept in memory while the segment is there. Bounded: with very many different sets of logs the rest is one set, of
//! which nobody knows who is in it.

use hashbrown::HashMap;
use types::LogId;

use crate::index::LogRow;
use crate::run::Run;

/// Logs of all sets together, at most.
const MEMBERS_MAX: usize = 16 << 10;
/// What comes before the members of a set: `u64` bytes, `u32` count.
const SET_BYTES: usize = 12;
const MEMBER_BYTES: usize = 4;

/// Logs that share runs, and the length of these.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set {
    bytes: u64,
    /// Numbers of rows of the index's table, ascending; none: not known.
    rows: Box<[u32]>,
}

/// The sets of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sharers(Vec<Set>);

impl Sharers {
    /// Of runs, each with the place of its log in `rows`; `order` has the logs that get a row in the table, sorted, with their places.
    pub fn of(rows: &[LogRow], order: &[(LogId, u32)], runs: impl Iterator<Item = (u32, Run)>) -> Self {
        if rows.iter().all(|row| row.shared_bytes == 0) {
            return Self::default();
        }
        let mut numbers = vec![0u32; rows.len()];
        for (number, (_, place)) in (0..).zip(order) {
            numbers[*place as usize] = number;
        }
        let mut shared: Vec<(u32, u32, u32)> = runs
            .filter(|(_, run)| run.shared)
            .map(|(place, run)| (run.position, numbers[place as usize], run.bytes))
            .collect();
        shared.sort_unstable();
        let mut by_rows: HashMap<Box<[u32]>, u64> = HashMap::new();
        let (mut members, mut unknown, mut key) = (0, 0, Vec::new());
        for run in shared.chunk_by(|one, other| one.0 == other.0) {
            key.clear();
            key.extend(run.iter().map(|(_, row, _)| *row));
            let bytes = u64::from(run[0].2);
            if let Some(known) = by_rows.get_mut(key.as_slice()) {
                *known += bytes;
            } else if members + key.len() <= MEMBERS_MAX {
                members += key.len();
                by_rows.insert(key.as_slice().into(), bytes);
            } else {
                unknown += bytes;
            }
        }
        let mut sets: Vec<Set> = by_rows.into_iter().map(|(rows, bytes)| Set { bytes, rows }).collect();
        sets.sort_unstable_by(|one, other| one.rows.cmp(&other.rows));
        sets.extend((unknown > 0).then(|| Set { bytes: unknown, rows: Box::default() }));
        Self(sets)
    }

    /// As the index has it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for set in &self.0 {
            out.extend_from_slice(&set.bytes.to_le_bytes());
            out.extend_from_slice(&(set.rows.len() as u32).to_le_bytes());
            set.rows.iter().for_each(|row| out.extend_from_slice(&row.to_le_bytes()));
        }
        out
    }

    /// Reads what [`Sharers::encode`] wrote for a table of `rows` rows; `None` when it makes no sense.
    pub fn decode(mut bytes: &[u8], rows: u32) -> Option<Self> {
        let mut sets = Vec::new();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at_checked(SET_BYTES)?;
            let count = u32::from_le_bytes(*head.last_chunk()?) as usize;
            let (members, rest) = rest.split_at_checked(count.checked_mul(MEMBER_BYTES)?)?;
            let members: Box<[u32]> = members
                .chunks_exact(MEMBER_BYTES)
                .filter_map(|row| Some(u32::from_le_bytes(*row.first_chunk()?)))
                .collect();
            if members.iter().any(|row| *row >= rows) {
                return None;
            }
            sets.push(Set { bytes: u64::from_le_bytes(*head.first_chunk()?), rows: members });
            bytes = rest;
        }
        Some(Self(sets))
    }

    /// Bytes of all shared runs, each counted once, and of those that some log still has: `live` says it of a row, and `any` whether
    /// a row with shared runs has any.
    pub fn usage(&self, live: impl Fn(u32) -> bool, any: bool) -> (u64, u64) {
        let is_live = |set: &&Set| if set.rows.is_empty() { any } else { set.rows.iter().any(|row| live(*row)) };
        let total = self.0.iter().map(|set| set.bytes).sum();
        (total, self.0.iter().filter(is_live).map(|set| set.bytes).sum())
    }
}

#[cfg(test)]
mod tests {
    use types::Offset;

    use super::*;

    fn run(log: u64, base: u64, position: u32, shared: bool) -> Run {
        Run {
            log: LogId(log),
            base: Offset(base),
            next: Offset(base + 1),
            position,
            bytes: 100,
            crc: 0,
            records: 1,
            shared,
            max_timestamp: 0,
            append_time: 0,
        }
    }

    fn row(log: u64, shared_bytes: u32) -> LogRow {
        LogRow {
            log: LogId(log),
            first_entry: 0,
            entries: 1,
            base: Offset(0),
            next: Offset(9),
            bytes: 900,
            shared_bytes,
            records: 1,
            max_timestamp: 0,
            last_append: 0,
        }
    }

    /// Logs 7, 5 and 6 in the order in which they were touched; 5 and 6 share two runs, all three share one, and each has one of its own.
    #[test]
    fn a_run_is_live_as_long_as_one_of_its_logs_has_it() {
        let (rows, order) = ([row(7, 100), row(5, 300), row(6, 300)], [(LogId(5), 1), (LogId(6), 2), (LogId(7), 0)]);
        let mut runs = vec![(0, run(7, 0, 0, false)), (1, run(5, 0, 100, false)), (2, run(6, 0, 200, false))];
        for position in [300, 500] {
            runs.extend([(1, run(5, 1, position, true)), (2, run(6, 1, position, true))]);
        }
        runs.extend([(2, run(6, 2, 400, true)), (0, run(7, 2, 400, true)), (1, run(5, 2, 400, true))]);
        let sharers = Sharers::of(&rows, &order, runs.into_iter());
        assert_eq!(sharers.usage(|_| true, true), (300, 300));
        // Row 0 is log 5, row 1 log 6, row 2 log 7.
        for (live, expected) in [(0, 300), (1, 300), (2, 100)] {
            assert_eq!(sharers.usage(|row| row == live, true), (300, expected));
        }
        assert_eq!(sharers.usage(|_| false, false), (300, 0));
        assert_eq!(Sharers::decode(&sharers.encode(), 3), Some(sharers));
    }

    #[test]
    fn sets_for_which_there_is_no_room_are_live_as_long_as_any_log_is() {
        let rows: Vec<LogRow> = (0..2_000).map(|log| row(log, 1_000)).collect();
        let order: Vec<(LogId, u32)> = (0..2_000).map(|log| (LogId(u64::from(log)), log)).collect();
        // Twenty thousand pairs, each another one.
        let runs = (0..20_000u32).flat_map(|body| {
            [body % 1_000, 1_000 + (body + body / 1_000) % 1_000]
                .map(|log| (log, run(u64::from(log), 0, body * 100, true)))
        });
        let sharers = Sharers::of(&rows, &order, runs);
        let known = MEMBERS_MAX as u64 / 2 * 100;
        assert_eq!(sharers.usage(|_| false, true), (2_000_000, 2_000_000 - known));
        assert_eq!(sharers.usage(|_| true, true), (2_000_000, 2_000_000));
        assert_eq!(sharers.usage(|_| false, false), (2_000_000, 0));
        assert_eq!(sharers.encode().len(), MEMBERS_MAX / 2 * (SET_BYTES + 2 * MEMBER_BYTES) + SET_BYTES);
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = Sharers(vec![Set { bytes: 5, rows: Box::new([0, 2]) }]).encode();
        assert!(Sharers::decode(&bytes, 3).is_some());
        assert_eq!(Sharers::decode(&bytes, 2), None, "a row that is not there");
        assert!((1..bytes.len()).all(|length| Sharers::decode(&bytes[..length], 3).is_none()));
    }
}
