//! What is done, as few bytes as it takes: runs of offsets in ascending order. Used in the records of a subscription, for pages and for lists.
//!
//! A number is written as 7 bits a byte, the lowest first, each byte but the last with its highest bit set.
//!
//! ```text
//! each run    number  twice the offsets from the end of the run before (of the first one from the base); 1 more if a second number follows
//!             number  only of more than one offset, or if archived: twice the offsets after the first; 1 more if archived
//! version 1   both numbers of each run, the first one not doubled; read, and not written any more
//! ```
//!
//! So an offset that was acknowledged alone takes a byte if the one before is less than 64 away, two if it is less than 8192 away.

use bytes::{Buf, BufMut, BytesMut};

use crate::subscription::{Done, DoneList};

fn put_number(out: &mut BytesMut, mut number: u64) {
    while number > 127 {
        out.put_u8(number as u8 | 128);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.try_get_u8().ok()?;
        number |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

/// Adds runs, first and last offsets, that are ascending and not below `base`.
pub(crate) fn put_runs(out: &mut BytesMut, base: u64, runs: impl IntoIterator<Item = (u64, u64, Done)>) {
    let mut end = base;
    for (first, last, done) in runs {
        let (apart, archived) = ((first - end) * 2, u64::from(done == Done::Archived));
        if first == last && archived == 0 {
            put_number(out, apart);
        } else {
            put_number(out, apart + 1);
            put_number(out, (last - first) * 2 + archived);
        }
        end = last + 1;
    }
}

fn run(end: u64, apart: u64, rest: u64) -> Option<(u64, u64, Done)> {
    let first = end.checked_add(apart)?;
    let last = first.checked_add(rest / 2).filter(|last| *last < u64::MAX)?;
    Some((first, last, if rest & 1 == 0 { Done::Acknowledged } else { Done::Archived }))
}

/// All runs; `None`: the bytes are damaged.
pub(crate) fn take_runs(mut bytes: &[u8], base: u64) -> Option<DoneList> {
    let (mut end, mut runs) = (base, Vec::new());
    while bytes.has_remaining() {
        let apart = take_number(&mut bytes)?;
        let rest = if apart & 1 == 1 { take_number(&mut bytes)? } else { 0 };
        let found = run(end, apart / 2, rest)?;
        end = found.1 + 1;
        runs.push(found);
    }
    Some(runs)
}

/// As [`take_runs`], of version 1.
pub(crate) fn take_runs_of_version_1(mut bytes: &[u8]) -> Option<DoneList> {
    let (mut end, mut runs) = (0, Vec::new());
    while bytes.has_remaining() {
        let apart = take_number(&mut bytes)?;
        let found = run(end, apart, take_number(&mut bytes)?)?;
        end = found.1 + 1;
        runs.push(found);
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: [(u64, u64, Done); 6] = [
        (100, 100, Done::Acknowledged),
        (101, 101, Done::Archived),
        (163, 163, Done::Acknowledged),
        (200, 70_000, Done::Acknowledged),
        (78_191, 78_191, Done::Acknowledged),
        (1 << 62, (1 << 62) + 9, Done::Archived),
    ];

    #[test]
    fn what_is_put_is_taken_and_single_ones_take_a_byte_or_two() {
        let mut out = BytesMut::new();
        let mut lengths = Vec::new();
        for count in 1..=RUNS.len() {
            out.clear();
            put_runs(&mut out, 100, RUNS[..count].iter().copied());
            lengths.push(out.len());
            assert_eq!(take_runs(&out, 100).as_deref(), Some(&RUNS[..count]));
        }
        assert_eq!(lengths, [1, 3, 4, 8, 10, 20]);
    }

    #[test]
    fn damaged_bytes_are_refused_and_version_1_is_read() {
        assert_eq!(take_runs(&[1], 0), None, "the second number is missing");
        assert_eq!(take_runs(&[128], 0), None, "a number ends in the middle");
        assert_eq!(take_runs(&[255; 11], 0), None, "a number without end");
        assert_eq!(take_runs(&[1, 2], u64::MAX - 1), None, "beyond all offsets");
        assert_eq!(
            take_runs_of_version_1(&[5, 0, 1, 3]),
            Some(vec![(5, 5, Done::Acknowledged), (7, 8, Done::Archived)])
        );
    }
}
