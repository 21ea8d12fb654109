//! The checkpoint: the state of every log at the end of a sealed segment, so that recovery replays only what
//! came after. Written beside the old one and swapped in by rename, and once more as its copy. Where one of the two cannot be replaced, the third
//! name stands for it until it can: two files have the newest checkpoint whenever segments are freed that only older ones name. The file that stays is
//! older, and says so by what it covers and, where that is the same, by its number: a start never takes it while one of the others can be read.
//!
//! ```text
//!   0 u32 magic "MSCP"   4 u16 version (4)   6 u16 number among those of the same end   8 [16] journal UUID
//!  24 u64 first segment to replay   32 u64 last index covered   40 u32 its term   44 u32 its header's CRC
//!  48 u32 log count   52 u32 state count
//!  56 logs:  u32 length, then  u64 id, u64 start, u64 end, u64 bytes,
//!              u32 term count,     (u32 term, u64 first offset) each
//!              u32 producer count, (i64 id, i16 epoch, u8 count, i64 time,
//!                                   (i32 first, i32 last, u64 base, u32 last delta) each) each
//!              u32 open transactions,    (i64 producer, u64 first offset, i64 since, u64 marker or all ones) each
//!              u32 aborted transactions, (i64 producer, u64 first offset, u64 last offset) each   (both: not in version 1)
//!              u64 offset after the last batch of a transaction, of markers, or in the place of lost records   (not before version 3)
//!              u64 first bitmap word, u32 word count, u64 words   (sealed segments that hold the log)
//!     state: u32 key length, key, u32 value length, value
//!     u32 count, u64 id each: logs that have ended, of which the archive has something   (not before version 4)
//!     u32 CRC-32C of everything before, then zeroes up to a sector
//! ```

use std::collections::BTreeSet;
use std::ops::Range;

use hashbrown::HashMap;
use types::{LogId, LogIndex, Offset, Term};
use uuid::Uuid;

use crate::chunk::{crc32c, padded};
use crate::disk::File;
use crate::log::Log;
use crate::producers::{Producer, Producers, REMEMBERED, Seen};
use crate::segment_set::SegmentSet;
use crate::state::StateMap;
use crate::transactions::{AbortedTransaction, OpenTransaction, Transactions};

/// File name.
pub(crate) const NAME: &str = "checkpoint";
/// Name of the second one, which says the same and is written behind the first: what it says is nowhere else.
pub(crate) const NAME_COPY: &str = "checkpoint-copy";
/// Name of the one that stands for either while that cannot be replaced.
pub(crate) const NAME_THIRD: &str = "checkpoint-third";
/// All of them. Of two that say the same the first is taken.
pub(crate) const NAMES: [&str; 3] = [NAME, NAME_COPY, NAME_THIRD];
/// Where neither is there, and was.
pub(crate) const BOTH_MISSING: &str = "it is missing, and so is its copy";
/// Name while it is being written.
pub(crate) const NAME_NEW: &str = "checkpoint.new";

const MAGIC: u32 = u32::from_le_bytes(*b"MSCP");
const VERSION: u16 = 4;
/// The newest version that leaves out logs of which the end is nowhere said.
const VERSION_OMITTING: u16 = 3;
/// In place of a marker's offset: there is none.
const NO_MARKER: u64 = u64::MAX;

/// Where replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayFrom {
    /// First segment not covered.
    pub segment: u64,
    /// Last index covered.
    pub index: LogIndex,
    /// Term of that chunk.
    pub term: Term,
    /// CRC of that chunk's header.
    pub crc: u32,
}

/// Why a checkpoint is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Damaged.
    #[error("checkpoint is corrupt: {0}")]
    Corrupt(&'static str),
    /// Written by a newer release.
    #[error("checkpoint has format version {found}, this release reads up to {VERSION}")]
    NewerVersion {
        /// In the file.
        found: u16,
    },
}

/// One log of a checkpoint.
#[derive(Debug)]
pub struct CheckpointLog {
    /// Whose.
    pub id: LogId,
    /// First offset.
    pub start: Offset,
    /// Next offset.
    pub end: Offset,
    /// Live bytes.
    pub bytes: u64,
    /// Terms and their first offsets.
    pub terms: Vec<(Term, Offset)>,
    /// Idempotent producers.
    pub producers: Producers,
    /// Offset after the last batch of a transaction, of markers, or in the place of lost records.
    pub marked: Offset,
    /// Where the file says that.
    marked_at: Option<usize>,
    /// Which bytes of the file its record takes, behind its length.
    bytes_of: Range<usize>,
    /// Where sealed records are.
    pub(crate) segments: SegmentSet,
}

/// A decoded checkpoint.
pub struct Checkpoint {
    /// Whose.
    pub journal: Uuid,
    /// Where replay begins.
    pub replay: ReplayFrom,
    /// Rises from one to the next of those with the same `replay`.
    pub(crate) number: u16,
    /// All logs.
    pub logs: Vec<CheckpointLog>,
    /// The keyed state.
    pub(crate) state: StateMap,
    /// Logs that have ended, of which the archive has something.
    pub(crate) ended: Vec<LogId>,
    /// Of a release that left logs out which were deleted behind it.
    pub(crate) omits: bool,
}

impl Checkpoint {
    /// Is it to be taken rather than another one that is whole too? `owner`: whose segments there are.
    fn is_better(&self, other: &Self, owner: Option<Uuid>) -> bool {
        let is_ours = |one: &Self| owner.is_none_or(|owner| owner == one.journal);
        match (is_ours(self), is_ours(other)) {
            (true, true) => self.age() > other.age(),
            (ours, _) => ours,
        }
    }

    /// Rises from each to the next.
    pub(crate) fn age(&self) -> (u64, LogIndex, u16) {
        (self.replay.segment, self.replay.index, self.number)
    }

    /// The best of those that could be read, and which that is.
    pub(crate) fn best(
        all: impl IntoIterator<Item = (&'static str, Self)>,
        owner: Option<Uuid>,
    ) -> Option<(&'static str, Self)> {
        all.into_iter().reduce(|best, next| if next.1.is_better(&best.1, owner) { next } else { best })
    }
}

/// Appends the part of a log's record that the writer knows; the keeper adds the bitmap.
pub(crate) fn encode_log(log: &Log, out: &mut Vec<u8>) {
    let inner = log.inner();
    let start = log.start().max(inner.start_placed);
    for field in [log.id().0, start.0, log.end().0, log.live_bytes()] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&(inner.terms.len() as u32).to_le_bytes());
    for (term, first) in &inner.terms {
        out.extend_from_slice(&term.0.to_le_bytes());
        out.extend_from_slice(&first.0.to_le_bytes());
    }
    let producers = inner.producers.as_deref();
    out.extend_from_slice(&(producers.map_or(0, |all| all.iter().len()) as u32).to_le_bytes());
    for (id, producer) in producers.into_iter().flat_map(Producers::iter) {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&producer.epoch.to_le_bytes());
        out.push(producer.count);
        out.extend_from_slice(&producer.time.to_le_bytes());
        for seen in producer.batches() {
            out.extend_from_slice(&seen.first.to_le_bytes());
            out.extend_from_slice(&seen.last.to_le_bytes());
            out.extend_from_slice(&seen.base.0.to_le_bytes());
            out.extend_from_slice(&seen.last_delta.to_le_bytes());
        }
    }
    let none = Transactions::default();
    encode_transactions(producers.map_or(&none, Producers::transactions), out);
    out.extend_from_slice(&log.marked().0.to_le_bytes());
}

fn encode_transactions(transactions: &Transactions, out: &mut Vec<u8>) {
    let (open, aborted) = (transactions.open(), transactions.aborted());
    out.extend_from_slice(&(open.len() as u32).to_le_bytes());
    for one in open {
        out.extend_from_slice(&one.producer_id.to_le_bytes());
        out.extend_from_slice(&one.first.0.to_le_bytes());
        out.extend_from_slice(&one.since.to_le_bytes());
        out.extend_from_slice(&one.marker.map_or(NO_MARKER, |marker| marker.0).to_le_bytes());
    }
    out.extend_from_slice(&(aborted.len() as u32).to_le_bytes());
    for one in aborted {
        out.extend_from_slice(&one.producer_id.to_le_bytes());
        out.extend_from_slice(&one.first.0.to_le_bytes());
        out.extend_from_slice(&one.last.0.to_le_bytes());
    }
}

/// The whole file.
pub(crate) fn encode<'a>(
    journal: Uuid,
    (replay, number): (ReplayFrom, u16),
    logs: impl ExactSizeIterator<Item = (&'a [u8], SegmentSet)>,
    state: &StateMap,
    ended: &BTreeSet<LogId>,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(journal.as_bytes());
    out.extend_from_slice(&replay.segment.to_le_bytes());
    out.extend_from_slice(&replay.index.0.to_le_bytes());
    out.extend_from_slice(&replay.term.0.to_le_bytes());
    out.extend_from_slice(&replay.crc.to_le_bytes());
    out.extend_from_slice(&(logs.len() as u32).to_le_bytes());
    out.extend_from_slice(&(state.len() as u32).to_le_bytes());
    for (record, segments) in logs {
        out.extend_from_slice(&((record.len() + 12 + segments.words().1.len() * 8) as u32).to_le_bytes());
        out.extend_from_slice(record);
        put_segments(&segments, &mut out);
    }
    for (key, value) in state.iter() {
        for part in [key, value] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(&(ended.len() as u32).to_le_bytes());
    ended.iter().for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.resize(padded(out.len()), 0);
    out
}

fn put_segments(segments: &SegmentSet, out: &mut Vec<u8>) {
    let (first, words) = segments.words();
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&(words.len() as u32).to_le_bytes());
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// A reader that never goes beyond its bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], CheckpointError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(CheckpointError::Corrupt("cut short"))?;
        self.0 = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], CheckpointError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }
    fn u32(&mut self) -> Result<u32, CheckpointError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, CheckpointError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    fn i64(&mut self) -> Result<i64, CheckpointError> {
        Ok(i64::from_le_bytes(self.array()?))
    }
}

/// Reads and checks a checkpoint file.
///
/// # Errors
/// `Corrupt`, `NewerVersion`.
pub fn decode(file: &[u8]) -> Result<Checkpoint, CheckpointError> {
    decode_covered(file).map(|(checkpoint, _)| checkpoint)
}

/// The same checkpoint, which says that up to these offsets logs may have some without records (one of a release that did not know of it does not), and that these
/// segments have something of them, too. `None`: it says so already.
///
/// # Errors
/// As [`decode`].
pub(crate) fn with_repairs(
    file: &[u8],
    gaps: &HashMap<LogId, Offset>,
    segments: &HashMap<LogId, Vec<u64>>,
) -> Result<Option<Vec<u8>>, CheckpointError> {
    let (checkpoint, covered) = decode_covered(file)?;
    let (mut out, mut copied) = (Vec::with_capacity(file.len()), 0);
    for log in &checkpoint.logs {
        let mut held = log.segments.clone();
        segments.get(&log.id).into_iter().flatten().for_each(|sequence| held.insert(*sequence));
        let gap = gaps.get(&log.id).filter(|until| log.marked < **until).zip(log.marked_at);
        if gap.is_none() && held.iter().eq(log.segments.iter()) {
            continue;
        }
        // Behind its length a record ends with what its segments are.
        let Range { start, end } = log.bytes_of.clone();
        let segments_at = end - 12 - log.segments.words().1.len() * 8;
        let mut record = file[start..segments_at].to_vec();
        if let Some((until, at)) = gap {
            record[at - start..at - start + 8].copy_from_slice(&until.0.to_le_bytes());
        }
        put_segments(&held, &mut record);
        out.extend_from_slice(&file[copied..start - 4]);
        out.extend_from_slice(&(record.len() as u32).to_le_bytes());
        out.extend_from_slice(&record);
        copied = end;
    }
    out.extend_from_slice(&file[copied..covered]);
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.resize(padded(out.len()), 0);
    Ok((copied > 0).then_some(out))
}

/// Whose checkpoint a file says that it is; whether it is whole is not looked at.
pub(crate) fn owner(file: &dyn File) -> Option<Uuid> {
    let mut head = [0; 24];
    let got = file.read_at(0, &mut head).ok()?;
    (got == head.len() && head[..4] == MAGIC.to_le_bytes()).then(|| Uuid::from_slice(&head[8..]).ok())?
}

/// The checkpoint, and how many bytes its checksum covers.
fn decode_covered(file: &[u8]) -> Result<(Checkpoint, usize), CheckpointError> {
    let mut reader = Reader(file);
    if reader.u32()? != MAGIC {
        return Err(CheckpointError::Corrupt("no magic"));
    }
    let found = u16::from_le_bytes(reader.array()?);
    if found > VERSION {
        return Err(CheckpointError::NewerVersion { found });
    }
    let number = u16::from_le_bytes(reader.array()?);
    let journal = Uuid::from_bytes(reader.array()?);
    let replay = ReplayFrom {
        segment: reader.u64()?,
        index: LogIndex(reader.u64()?),
        term: Term(reader.u32()?),
        crc: reader.u32()?,
    };
    let (log_count, state_count) = (reader.u32()?, reader.u32()?);
    let mut logs = Vec::new();
    for _ in 0..log_count {
        let bytes = reader.u32()? as usize;
        let record = reader.take(bytes)?;
        logs.push(decode_log(Reader(record), found, file.len() - reader.0.len())?);
    }
    let mut state = Vec::new();
    for _ in 0..state_count {
        let mut part = || {
            let bytes = reader.u32()? as usize;
            reader.take(bytes)
        };
        state.push((part()?, part()?));
    }
    let mut ended = Vec::new();
    if found > VERSION_OMITTING {
        for _ in 0..reader.u32()? {
            ended.push(LogId(reader.u64()?));
        }
    }
    let covered = file.len() - reader.0.len();
    if crc32c(&file[..covered]) != reader.u32()? {
        return Err(CheckpointError::Corrupt("checksum"));
    }
    Ok((
        Checkpoint {
            journal,
            replay,
            number,
            logs,
            state: state.into_iter().collect(),
            ended,
            omits: found <= VERSION_OMITTING,
        },
        covered,
    ))
}

/// A log whose record ends at byte `end_at` of the file.
fn decode_log(mut reader: Reader<'_>, version: u16, end_at: usize) -> Result<CheckpointLog, CheckpointError> {
    let length = reader.0.len();
    let (id, start, end, bytes) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let mut terms = Vec::new();
    for _ in 0..reader.u32()? {
        terms.push((Term(reader.u32()?), Offset(reader.u64()?)));
    }
    let mut producers = Producers::default();
    for _ in 0..reader.u32()? {
        let id = reader.i64()?;
        let epoch = i16::from_le_bytes(reader.array()?);
        let count = reader.array::<1>()?[0];
        let time = reader.i64()?;
        if usize::from(count) > REMEMBERED {
            return Err(CheckpointError::Corrupt("producer"));
        }
        let mut producer = Producer { epoch, count, time, ..Producer::default() };
        for seen in &mut producer.seen[..usize::from(count)] {
            *seen = Seen {
                first: i32::from_le_bytes(reader.array()?),
                last: i32::from_le_bytes(reader.array()?),
                base: Offset(reader.u64()?),
                last_delta: reader.u32()?,
            };
        }
        producers.restore(id, producer);
    }
    if version >= 2 {
        producers.restore_transactions(decode_transactions(&mut reader)?);
    }
    let marked_at = (version >= 3).then(|| end_at - reader.0.len());
    // Before version 3 nobody knows: where there are producers there may have been transactions.
    let marked = match version {
        3.. => Offset(reader.u64()?),
        _ if producers.is_empty() => Offset::ZERO,
        _ => Offset(end),
    };
    let first_word = reader.u64()?;
    let mut words = Vec::new();
    for _ in 0..reader.u32()? {
        words.push(reader.u64()?);
    }
    Ok(CheckpointLog {
        id: LogId(id),
        start: Offset(start),
        end: Offset(end),
        bytes,
        terms,
        producers,
        marked,
        marked_at,
        bytes_of: end_at - length..end_at,
        segments: SegmentSet::from_words(first_word, words),
    })
}

fn decode_transactions(reader: &mut Reader<'_>) -> Result<Transactions, CheckpointError> {
    let (mut open, mut aborted) = (Vec::new(), Vec::new());
    for _ in 0..reader.u32()? {
        let (producer_id, first, since) = (reader.i64()?, Offset(reader.u64()?), reader.i64()?);
        let marker = Some(reader.u64()?).filter(|marker| *marker != NO_MARKER).map(Offset);
        open.push(OpenTransaction { producer_id, first, since, marker });
    }
    for _ in 0..reader.u32()? {
        aborted.push(AbortedTransaction {
            producer_id: reader.i64()?,
            first: Offset(reader.u64()?),
            last: Offset(reader.u64()?),
        });
    }
    Ok(Transactions::from_parts(open, aborted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a log's record that the writer knows, without terms, producers and transactions.
    fn record(id: u64, end: u64) -> Vec<u8> {
        let mut out: Vec<u8> = [id, 0, end, 700].iter().flat_map(|field| field.to_le_bytes()).collect();
        out.extend_from_slice(&[0; 8]);
        encode_transactions(&Transactions::default(), &mut out);
        out.extend_from_slice(&5_u64.to_le_bytes());
        out
    }

    fn set(members: &[u64]) -> SegmentSet {
        let mut set = SegmentSet::default();
        members.iter().for_each(|member| set.insert(*member));
        set
    }

    /// What a repair notes changes nothing else.
    #[test]
    fn a_repair_is_noted_of_the_logs_that_it_is_about() {
        let replay = ReplayFrom { segment: 40, index: LogIndex(9), term: Term(3), crc: 7 };
        let records = [record(1, 100), record(2, 200), record(3, 300)];
        let sets = [set(&[30]), set(&[]), set(&[31, 200])];
        let logs = records.iter().map(|record| &record[..]).zip(sets.iter().cloned());
        let logs: Vec<(&[u8], SegmentSet)> = logs.collect();
        let (state, ended) = (StateMap::default(), BTreeSet::from([LogId(8)]));
        let file = encode(Uuid::from_u128(1), (replay, 4), logs.into_iter(), &state, &ended);
        let gaps = HashMap::from([(LogId(1), Offset(90)), (LogId(3), Offset(4))]);
        let segments = HashMap::from([(LogId(2), vec![29, 120]), (LogId(3), vec![31])]);
        let noted = with_repairs(&file, &gaps, &segments).expect("it is whole").expect("it is changed");
        let (old, new) = (decode(&file).expect("it is whole"), decode(&noted).expect("it is whole"));
        let seen = |one: &Checkpoint| {
            let logs = one.logs.iter().map(|log| (log.id.0, log.end.0, log.marked.0, log.segments.clone()));
            (one.replay, one.number, one.ended.clone(), logs.collect::<Vec<_>>())
        };
        assert_eq!(seen(&old).3, [(1, 100, 5, set(&[30])), (2, 200, 5, set(&[])), (3, 300, 5, set(&[31, 200]))]);
        let wanted = vec![(1, 100, 90, set(&[30])), (2, 200, 5, set(&[29, 120])), (3, 300, 5, set(&[31, 200]))];
        assert_eq!(seen(&new), (old.replay, 4, vec![LogId(8)], wanted));
        assert!(with_repairs(&noted, &gaps, &segments).expect("it is whole").is_none(), "it says so already");
    }
}
