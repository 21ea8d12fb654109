//! One archive object: the batches of one log for a range of offsets, and how to find them.
//!
//! ```text
//! header   64 bytes, little-endian
//!            0 u32 magic "MSAO"   4 u16 version (1)   6 u16 flags: 1 cleaned   8 [16] journal UUID
//!           24 u64 log id   32 u64 object id   40 u64 base offset   48 [12] 0   60 u32 CRC-32C of bytes 0..60
//! batches  in offset order, back to back; in runs of about 256 KiB
//! index    48 bytes a run
//!            0 u64 base offset     8 u64 offset after the last   16 u32 position   20 u32 bytes   24 u32 CRC-32C
//!           28 u32 records        32 i64 max timestamp          40 i64 last append
//! aborted  24 bytes a transaction whose marker is here: i64 producer id, u64 first offset, u64 last offset
//! footer   128 bytes
//!            0 u32 magic "MSAF"   4 u16 version (1)   6 u16 flags   8 [16] journal UUID   24 u64 log id   32 u64 object id
//!           40 u64 base offset   48 u64 offset after the last   56 u64 position of the index   64 u32 runs   68 u32 aborted
//!           72 i64 max timestamp   80 i64 last append   88 i64 earliest delete horizon   96 u32 CRC-32C of index and aborted
//!          100 [24] 0   124 u32 CRC-32C of bytes 0..124
//! ```
//!
//! Runs lie side by side in offsets too: one stands for everything from its base to the base of the next, also where no record
//! is left. Nothing is ever written into an object; it is made whole.

use std::io::{self, Write};

use bytes::Bytes;
use types::{LogId, Offset, Timestamp};
use uuid::Uuid;

use super::{Archived, NO_HORIZON};
use crate::chunk::crc32c;
use crate::run::Run;
use crate::segments::SegmentError;
use crate::transactions::AbortedTransaction;

const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 48;
const ABORTED_BYTES: usize = 24;
const FOOTER_BYTES: usize = 128;
/// Read at the end of an object at once: footer and, mostly, the whole index.
const TAIL_BYTES: u64 = 16 << 10;
const MAGIC: u32 = u32::from_le_bytes(*b"MSAO");
const MAGIC_FOOTER: u32 = u32::from_le_bytes(*b"MSAF");
const VERSION: u16 = 1;
/// Batches are gathered into runs of this length: what a look-up reads and checks at least.
const RUN_BYTES: u32 = 256 << 10;

/// An object in the making.
pub(crate) struct ObjectWriter {
    journal: Uuid,
    log: LogId,
    id: u64,
    base: Offset,
    next: Offset,
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The last of `runs` may grow.
    open: bool,
    horizon: Timestamp,
}

impl ObjectWriter {
    /// Of what `log` has from `base` on.
    pub fn new(journal: Uuid, log: LogId, id: u64, base: Offset) -> Self {
        let bytes = vec![0; HEADER_BYTES];
        Self { journal, log, id, base, next: base, bytes, runs: Vec::new(), open: false, horizon: NO_HORIZON }
    }

    /// Of its batches.
    pub fn batch_bytes(&self) -> u64 {
        (self.bytes.len() - HEADER_BYTES) as u64
    }

    /// The first offset that it stands for.
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Where the next batches begin.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Adds batches that stand for all offsets up to `next`.
    pub fn add(
        &mut self,
        batches: &[u8],
        next: Offset,
        records: u32,
        max_timestamp: Timestamp,
        append_time: Timestamp,
    ) {
        if next <= self.next {
            return;
        }
        let position = self.bytes.len() as u32;
        self.bytes.extend_from_slice(batches);
        let bytes = batches.len() as u32;
        match self.runs.last_mut() {
            Some(run) if self.open && run.bytes + bytes <= RUN_BYTES => {
                run.next = next;
                run.bytes += bytes;
                run.records = run.records.saturating_add(records);
                run.max_timestamp = run.max_timestamp.max(max_timestamp);
                run.append_time = run.append_time.max(append_time);
            }
            Some(run) if batches.is_empty() => run.next = next,
            // Nothing is left of the first offsets; the first run will stand for them.
            None if batches.is_empty() => {}
            _ => {
                self.close();
                let base = self.runs.last().map_or(self.base, |run| run.next);
                let log = self.log;
                self.runs.push(Run {
                    log,
                    base,
                    next,
                    position,
                    bytes,
                    crc: 0,
                    records,
                    shared: false,
                    max_timestamp,
                    append_time,
                });
                self.open = true;
            }
        }
        self.next = next;
    }

    /// A tombstone or a marker in it may go at `horizon`.
    pub fn note_horizon(&mut self, horizon: Timestamp) {
        self.horizon = self.horizon.min(horizon);
    }

    fn close(&mut self) {
        if let Some(run) = self.runs.last_mut().filter(|_| self.open) {
            run.crc = crc32c(&self.bytes[run.position as usize..][..run.bytes as usize]);
        }
        self.open = false;
    }

    /// The object, and what its journal is to remember of it. Without any batch there is no object.
    pub fn finish(mut self, cleaned: bool, aborted: Vec<AbortedTransaction>) -> (Bytes, Archived) {
        self.close();
        let bytes = self.batch_bytes();
        let latest = |time: fn(&Run) -> Timestamp| self.runs.iter().map(time).max().unwrap_or(Timestamp::MIN);
        let mut archived = Archived {
            log: self.log,
            base: self.base,
            next: self.next,
            id: self.id,
            bytes,
            length: 0,
            max_timestamp: latest(|run| run.max_timestamp),
            last_append: latest(|run| run.append_time),
            horizon: self.horizon,
            cleaned,
            aborted,
        };
        if self.runs.is_empty() {
            return (Bytes::new(), archived);
        }
        let flags = u16::from(cleaned);
        let header = head(MAGIC, flags, &self, HEADER_BYTES);
        self.bytes[..HEADER_BYTES].copy_from_slice(&header);
        let index_at = self.bytes.len();
        for run in &self.runs {
            put_entry(&mut self.bytes, run);
        }
        for one in &archived.aborted {
            self.bytes.extend_from_slice(&one.producer_id.to_le_bytes());
            self.bytes.extend_from_slice(&one.first.0.to_le_bytes());
            self.bytes.extend_from_slice(&one.last.0.to_le_bytes());
        }
        let crc = crc32c(&self.bytes[index_at..]);
        let mut footer = head(MAGIC_FOOTER, flags, &self, FOOTER_BYTES);
        footer[48..56].copy_from_slice(&self.next.0.to_le_bytes());
        footer[56..64].copy_from_slice(&(index_at as u64).to_le_bytes());
        footer[64..68].copy_from_slice(&(self.runs.len() as u32).to_le_bytes());
        footer[68..72].copy_from_slice(&(archived.aborted.len() as u32).to_le_bytes());
        for (at, time) in [(72, archived.max_timestamp), (80, archived.last_append), (88, archived.horizon)] {
            footer[at..at + 8].copy_from_slice(&time.to_le_bytes());
        }
        footer[96..100].copy_from_slice(&crc.to_le_bytes());
        seal(&mut footer);
        self.bytes.extend_from_slice(&footer);
        archived.length = self.bytes.len() as u64;
        (Bytes::from(self.bytes), archived)
    }
}

/// What header and footer begin with, and the header's checksum.
fn head(magic: u32, flags: u16, object: &ObjectWriter, bytes: usize) -> Vec<u8> {
    let mut head = vec![0; bytes];
    head[0..4].copy_from_slice(&magic.to_le_bytes());
    head[4..6].copy_from_slice(&VERSION.to_le_bytes());
    head[6..8].copy_from_slice(&flags.to_le_bytes());
    head[8..24].copy_from_slice(object.journal.as_bytes());
    head[24..32].copy_from_slice(&object.log.0.to_le_bytes());
    head[32..40].copy_from_slice(&object.id.to_le_bytes());
    head[40..48].copy_from_slice(&object.base.0.to_le_bytes());
    seal(&mut head);
    head
}

/// Fills in the last four bytes.
fn seal(head: &mut [u8]) {
    let at = head.len() - 4;
    let crc = crc32c(&head[..at]);
    head[at..].copy_from_slice(&crc.to_le_bytes());
}

fn put_entry(into: &mut Vec<u8>, run: &Run) {
    into.extend_from_slice(&run.base.0.to_le_bytes());
    into.extend_from_slice(&run.next.0.to_le_bytes());
    for field in [run.position, run.bytes, run.crc, run.records] {
        into.extend_from_slice(&field.to_le_bytes());
    }
    into.extend_from_slice(&run.max_timestamp.to_le_bytes());
    into.extend_from_slice(&run.append_time.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// The end of an object, read.
struct Footer {
    pub journal: Uuid,
    pub log: LogId,
    pub id: u64,
    pub base: Offset,
    pub next: Offset,
    pub cleaned: bool,
    pub horizon: Timestamp,
    index_at: u64,
    runs: u32,
    aborted: u32,
    crc: u32,
}

impl Footer {
    /// Reads and checks the last bytes of an object of `length` bytes named `file`.
    pub fn decode(bytes: &[u8], length: u64, file: &str) -> Result<Self, SegmentError> {
        let position = length.saturating_sub(FOOTER_BYTES as u64);
        let corrupt = |what: &str| SegmentError::Corrupt { file: file.to_owned(), position, what: what.to_owned() };
        if bytes.len() != FOOTER_BYTES || u32_at(bytes, 0) != MAGIC_FOOTER {
            return Err(corrupt("no footer of an archive object"));
        }
        if crc32c(&bytes[..FOOTER_BYTES - 4]) != u32_at(bytes, FOOTER_BYTES - 4) {
            return Err(corrupt("footer checksum"));
        }
        let found = u16::from_le_bytes([bytes[4], bytes[5]]);
        if found > VERSION {
            return Err(SegmentError::NewerVersion { file: file.to_owned(), found, known: VERSION });
        }
        let mut journal = [0; 16];
        journal.copy_from_slice(&bytes[8..24]);
        let footer = Self {
            journal: Uuid::from_bytes(journal),
            log: LogId(u64_at(bytes, 24)),
            id: u64_at(bytes, 32),
            base: Offset(u64_at(bytes, 40)),
            next: Offset(u64_at(bytes, 48)),
            cleaned: bytes[6] & 1 != 0,
            horizon: u64_at(bytes, 88) as Timestamp,
            index_at: u64_at(bytes, 56),
            runs: u32_at(bytes, 64),
            aborted: u32_at(bytes, 68),
            crc: u32_at(bytes, 96),
        };
        if footer.index_at.checked_add(footer.index_bytes() as u64) != Some(position) {
            return Err(corrupt("index does not fit into the object"));
        }
        Ok(footer)
    }

    /// Length of index and aborted transactions.
    pub fn index_bytes(&self) -> usize {
        self.runs as usize * ENTRY_BYTES + self.aborted as usize * ABORTED_BYTES
    }

    /// Reads and checks index and aborted transactions.
    pub fn decode_index(&self, bytes: &[u8], file: &str) -> Result<(Vec<Run>, Vec<AbortedTransaction>), SegmentError> {
        let corrupt = |what: &str| SegmentError::Corrupt {
            file: file.to_owned(),
            position: self.index_at,
            what: what.to_owned(),
        };
        if bytes.len() != self.index_bytes() || crc32c(bytes) != self.crc {
            return Err(corrupt("index checksum"));
        }
        let (entries, aborted) = bytes.split_at(self.runs as usize * ENTRY_BYTES);
        let runs: Vec<Run> = entries.chunks_exact(ENTRY_BYTES).map(|entry| run_from(self.log, entry)).collect();
        let tiled =
            runs.windows(2).all(|pair| pair[0].next == pair[1].base) && runs.iter().all(|run| run.base < run.next);
        let inside = runs.iter().all(|run| u64::from(run.position) + u64::from(run.bytes) <= self.index_at);
        let ends =
            runs.first().map(|run| run.base) == Some(self.base) && runs.last().map(|run| run.next) == Some(self.next);
        if !(tiled && inside && ends) {
            return Err(corrupt("runs do not lie side by side"));
        }
        let aborted = aborted.chunks_exact(ABORTED_BYTES).map(|one| AbortedTransaction {
            producer_id: u64_at(one, 0) as i64,
            first: Offset(u64_at(one, 8)),
            last: Offset(u64_at(one, 16)),
        });
        Ok((runs, aborted.collect()))
    }
}

fn run_from(log: LogId, entry: &[u8]) -> Run {
    Run {
        log,
        base: Offset(u64_at(entry, 0)),
        next: Offset(u64_at(entry, 8)),
        position: u32_at(entry, 16),
        bytes: u32_at(entry, 20),
        crc: u32_at(entry, 24),
        records: u32_at(entry, 28),
        shared: false,
        max_timestamp: u64_at(entry, 32) as Timestamp,
        append_time: u64_at(entry, 40) as Timestamp,
    }
}

/// Opens an object: everything but its batches is read and checked, and whether it is the one that the journal's record names. Readers and
/// those who check files come this way, so that they find the same. `read` fills as much as there is from a position on.
///
/// # Errors
/// `Corrupt`: header, footer or index is not as it was written, the object is shorter or longer than its record says, or another one.
/// `NewerVersion`; those of `read`.
pub(crate) fn open_index(
    object: &Archived,
    journal: Uuid,
    file: &str,
    read: &dyn Fn(u64, usize) -> Result<Vec<u8>, SegmentError>,
) -> Result<Vec<Run>, SegmentError> {
    let length = object.length;
    let corrupt = |position, what: String| SegmentError::Corrupt { file: file.to_owned(), position, what };
    let tail_at = length.saturating_sub(TAIL_BYTES);
    let tail_bytes = (length - tail_at) as usize;
    // One byte more than there should be.
    let tail = read(tail_at, tail_bytes + 1)?;
    if tail.len() < tail_bytes {
        return Err(corrupt(
            tail_at + tail.len() as u64,
            format!("the object ends, and has {length} bytes in the journal's record"),
        ));
    }
    if tail.len() > tail_bytes {
        return Err(corrupt(length, "there are bytes behind the object's end".to_owned()));
    }
    let footer_at = tail_bytes.saturating_sub(FOOTER_BYTES);
    let footer = Footer::decode(&tail[footer_at..], length, file)?;
    let ours = footer.journal == journal && footer.log == object.log && footer.id == object.id;
    if !ours || (footer.base, footer.next) != (object.base, object.next) {
        let Footer { journal, log, id, base, next, .. } = footer;
        return Err(corrupt(
            length,
            format!("another object under this name: {id:#x} of journal {journal}, {log} offsets {base}..{next}"),
        ));
    }
    let header =
        if tail_at == 0 { tail.get(..HEADER_BYTES).unwrap_or_default().to_vec() } else { read(0, HEADER_BYTES)? };
    check_header(&header, &footer, file)?;
    let index = match footer.index_at.checked_sub(tail_at) {
        Some(inside) => tail[inside as usize..footer_at].to_vec(),
        None => read(footer.index_at, footer.index_bytes())?,
    };
    Ok(footer.decode_index(&index, file)?.0)
}

/// Is the header whole, and that of the object that the footer ends?
fn check_header(header: &[u8], footer: &Footer, file: &str) -> Result<(), SegmentError> {
    let corrupt = |what: &str| Err(SegmentError::Corrupt { file: file.to_owned(), position: 0, what: what.to_owned() });
    if header.len() < HEADER_BYTES || u32_at(header, 0) != MAGIC {
        return corrupt("no header of an archive object");
    }
    if crc32c(&header[..HEADER_BYTES - 4]) != u32_at(header, HEADER_BYTES - 4) {
        return corrupt("header checksum");
    }
    let ours = header[8..24] == *footer.journal.as_bytes()
        && u64_at(header, 24) == footer.log.0
        && u64_at(header, 32) == footer.id;
    if !ours || u64_at(header, 40) != footer.base.0 {
        return corrupt("header of another object");
    }
    Ok(())
}

/// The runs of an object, and whether each is as it was written. Whose it is nobody asks.
///
/// # Errors
/// When its header, footer or index is not readable.
pub(crate) fn intact_runs(bytes: &[u8], file: &str) -> Result<Vec<(Run, bool)>, SegmentError> {
    let footer_at = bytes.len().saturating_sub(FOOTER_BYTES);
    let footer = Footer::decode(&bytes[footer_at..], bytes.len() as u64, file)?;
    check_header(&bytes[..bytes.len().min(HEADER_BYTES)], &footer, file)?;
    let (runs, _) = footer.decode_index(&bytes[footer.index_at as usize..footer_at], file)?;
    Ok(runs.into_iter().map(|run| (run, is_whole(bytes, &run))).collect())
}

/// Are the batches of a run as they were written?
pub(crate) fn is_whole(object: &[u8], run: &Run) -> bool {
    let batches = object.get(run.position as usize..run.position as usize + run.bytes as usize);
    batches.is_some_and(|batches| crc32c(batches) == run.crc)
}

/// Prints an object as text, damage with its position.
///
/// # Errors
/// Those of writing.
pub(crate) fn print(file: &str, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let footer_at = bytes.len().saturating_sub(FOOTER_BYTES);
    let footer = match Footer::decode(&bytes[footer_at..], bytes.len() as u64, file) {
        Ok(footer) => footer,
        Err(error) => return writeln!(out, "archive object, {} bytes, unreadable: {error}", bytes.len()),
    };
    writeln!(
        out,
        "archive object {:#018x} of journal {}, log {} offsets {}..{}, {} bytes{}",
        footer.id,
        footer.journal,
        footer.log,
        footer.base,
        footer.next,
        bytes.len(),
        if footer.cleaned { ", cleaned" } else { "" },
    )?;
    if footer.horizon != NO_HORIZON {
        writeln!(out, "            a tombstone or marker may go at {}", footer.horizon)?;
    }
    let head_fits =
        bytes.len() >= HEADER_BYTES && u32_at(bytes, 0) == MAGIC && crc32c(&bytes[..60]) == u32_at(bytes, 60);
    if !head_fits {
        writeln!(out, "         0    CORRUPT: header checksum")?;
    }
    let (runs, aborted) = match footer.decode_index(&bytes[footer.index_at as usize..footer_at], file) {
        Ok(index) => index,
        Err(error) => return writeln!(out, "            index unreadable: {error}"),
    };
    for one in aborted {
        writeln!(
            out,
            "            aborted transaction of producer {} offsets {}..={}",
            one.producer_id, one.first, one.last
        )?;
    }
    for run in runs {
        let position = run.position as usize;
        let batches = &bytes[position..position + run.bytes as usize];
        writeln!(
            out,
            "{position:>10}  run offsets {}..{} records {} bytes {} max timestamp {} append {}",
            run.base, run.next, run.records, run.bytes, run.max_timestamp, run.append_time,
        )?;
        let got = crc32c(batches);
        if got != run.crc {
            writeln!(out, "{position:>10}    CORRUPT: run checksum is {got:#010x}, expected {:#010x}", run.crc)?;
        }
        crate::inspect::batches(batches, position, out)?;
    }
    Ok(())
}
