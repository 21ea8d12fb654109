//! Looks for records in the logs of a topic: from an end, or from a place on, until enough are found, or so much was looked through that
//! whoever waits gets what there is and asks again.
//!
//! Each partition has a range that is still to be looked at. Oldest first it shrinks from its start, newest first from its end. Records of
//! several partitions come by their timestamps, as far as they were found in time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{Broker, Log, ReadError};
use record::Record;
use serde_json::Value;
use types::{Offset, Timestamp};

use super::condition::Conditions;

/// Read at once, about.
const PAGE_BYTES: usize = 1 << 20;
/// What a look backwards holds at most before it tries a smaller piece.
const WINDOW_BYTES: usize = 16 << 20;
/// Offsets that a look backwards begins with, and the most that it grows to while nothing is found.
const WINDOW: u64 = 256;
const WINDOW_MAX: u64 = 1 << 16;
/// Looked through by a request.
const BYTES_MAX: usize = 64 << 20;

/// A place that was asked for.
pub(super) struct Scan {
    pub partition: u32,
    pub log: Arc<Log>,
    /// Still to be looked at.
    pub left: Range<u64>,
    found: VecDeque<Seen>,
    window: u64,
}

/// A record that fits, as it is shown: the memory of its batch is not kept.
pub(super) struct Seen {
    offset: u64,
    timestamp: Timestamp,
    shown: Value,
}

impl Scan {
    pub fn new(partition: u32, log: Arc<Log>, left: Range<u64>) -> Self {
        Self { partition, log, left, found: VecDeque::new(), window: WINDOW }
    }
}

/// What is looked for.
pub(super) struct Search<'a> {
    pub broker: &'a Broker,
    pub newest_first: bool,
    pub conditions: &'a Conditions,
    /// Records that are wanted.
    pub limit: usize,
    /// A record of a partition as it is shown.
    pub shown: &'a dyn Fn(u32, &Record) -> Value,
    /// Time after which there is an end.
    pub longest: Duration,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Found {
    /// As they are shown.
    pub records: Vec<Value>,
    pub looked_records: u64,
    pub looked_bytes: u64,
    /// Places that could not be taken apart: partition, offset, why.
    pub unread: Vec<(u32, u64, String)>,
    /// The end of time or of bytes came first.
    pub cut: bool,
}

/// Places that are named.
const UNREAD_MAX: usize = 100;

impl Search<'_> {
    /// Looks; the ranges of `scans` say afterwards what is left.
    ///
    /// # Errors
    /// When what is on the disk cannot be read.
    pub fn run(&self, scans: &mut [Scan]) -> Result<Found, ReadError> {
        let until = Instant::now() + self.longest;
        let mut found = Found::default();
        // No partition holds more than its share, so that the memory does not depend on their number.
        let share = self.limit.div_ceil(scans.len().max(1)) + 3;
        while found.records.len() < self.limit {
            for scan in scans.iter_mut() {
                while scan.found.is_empty() && !scan.left.is_empty() && !found.cut {
                    self.look(scan, share, &mut found)?;
                    found.cut = Instant::now() >= until || found.looked_bytes >= BYTES_MAX as u64;
                }
            }
            let Some(next) = self.next_of(scans) else { break };
            found.records.extend(next.found.pop_front().map(|record| record.shown));
        }
        for scan in scans {
            // What was found and not wanted any more is looked at again.
            if let Some(first) = scan.found.front().map(|record| record.offset) {
                if self.newest_first { scan.left.end = first + 1 } else { scan.left.start = first }
            }
        }
        Ok(found)
    }

    /// The partition whose record comes next.
    fn next_of<'s>(&self, scans: &'s mut [Scan]) -> Option<&'s mut Scan> {
        let with_time = scans.iter_mut().filter_map(|scan| Some((scan.found.front()?.timestamp, scan)));
        if self.newest_first {
            with_time.max_by_key(|(timestamp, _)| *timestamp).map(|(_, scan)| scan)
        } else {
            with_time.min_by_key(|(timestamp, _)| *timestamp).map(|(_, scan)| scan)
        }
    }

    fn look(&self, scan: &mut Scan, share: usize, found: &mut Found) -> Result<(), ReadError> {
        let (start, end) = (scan.log.start().0, scan.log.last_stable().0);
        scan.left = scan.left.start.max(start)..scan.left.end.min(end);
        if scan.left.is_empty() {
            return Ok(());
        }
        if self.newest_first { self.look_back(scan, share, found) } else { self.look_on(scan, share, found) }
    }

    /// Reads on from the start of what is left.
    fn look_on(&self, scan: &mut Scan, share: usize, found: &mut Found) -> Result<(), ReadError> {
        let next = self.read(scan, scan.left.clone(), found, &mut |records, record| {
            records.push_back(record);
            records.len() < share
        })?;
        // Where a page has more than the share, the rest of it is read again.
        let reached = scan.found.back().filter(|_| scan.found.len() >= share).map_or(next, |last| last.offset + 1);
        scan.left.start = reached.max(scan.left.start + 1);
        Ok(())
    }

    /// Reads the last piece of what is left, and keeps the newest of it.
    fn look_back(&self, scan: &mut Scan, share: usize, found: &mut Found) -> Result<(), ReadError> {
        loop {
            let first = scan.left.end.saturating_sub(scan.window).max(scan.left.start);
            let (mut at, before) = (first, found.looked_bytes);
            let mut dropped = false;
            scan.found.clear();
            while at < scan.left.end && (scan.window == 1 || found.looked_bytes - before <= WINDOW_BYTES as u64) {
                let next = self.read(scan, at..scan.left.end, found, &mut |records, record| {
                    records.push_front(record);
                    if records.len() > share {
                        records.pop_back();
                        dropped = true;
                    }
                    true
                })?;
                at = next.max(at + 1);
            }
            if at < scan.left.end {
                scan.window = (scan.window / 8).max(1);
                continue;
            }
            let oldest = scan.found.back().map(|record| record.offset);
            scan.left.end = oldest.filter(|_| dropped).unwrap_or(first);
            scan.window = if scan.found.is_empty() { (scan.window * 4).min(WINDOW_MAX) } else { WINDOW };
            return Ok(());
        }
    }

    /// Reads a page, gives `take` what fits, until it says that it is enough, and says where to go on.
    fn read(
        &self,
        scan: &mut Scan,
        range: Range<u64>,
        found: &mut Found,
        take: &mut dyn FnMut(&mut VecDeque<Seen>, Seen) -> bool,
    ) -> Result<u64, ReadError> {
        let page = self.broker.browse(&scan.log, Offset(range.start)..Offset(range.end), PAGE_BYTES)?;
        let unpacked: usize = page.records.iter().map(size).sum();
        found.looked_bytes += page.bytes.max(unpacked) as u64;
        found.looked_records += page.records.len() as u64;
        let room = UNREAD_MAX.saturating_sub(found.unread.len());
        found
            .unread
            .extend(page.unread.iter().take(room).map(|(offset, error)| (scan.partition, offset.0, error.to_string())));
        for record in page.records.iter().filter(|record| self.conditions.hold(record)) {
            let seen = Seen {
                offset: record.offset.0,
                timestamp: record.timestamp,
                shown: (self.shown)(scan.partition, record),
            };
            if !take(&mut scan.found, seen) {
                break;
            }
        }
        Ok(page.next.0)
    }
}

/// Bytes of a record.
pub(super) fn size(record: &Record) -> usize {
    let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + length(value)).sum();
    length(&record.key) + length(&record.value) + headers
}
