//! Segments: the files of a journal. Their names, their first sector, and the table of those that live.
//!
//! ```text
//! first sector, little-endian
//!   0  u32  magic "MSSG"                     28  i64  created, ms since 1970
//!   4  u16  version (1)                      36  u16  number of segments this one replaces (kind 2)
//!   6  u16  kind: 1 journal, 2 rewritten     38       their sequences, u64 each, at most 64
//!   8  [16] journal UUID                   4084  u64  sequence
//!  24  u32  reserved, 0                    4092  u32  CRC-32C of bytes 0..4092
//! then chunks (kind 1) or bodies sorted by log (kind 2), then, when sealed, the index (see `index`)
//! ```

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use uuid::Uuid;

use crate::chunk::crc32c;
use crate::disk::{File, SECTOR};
use crate::index::{INDEX_ENTRY_BYTES, ROW_BYTES, SealedIndex};
use crate::writer::ActiveSegment;

/// Length of the first sector, where chunks begin.
pub const SEGMENT_HEADER_BYTES: usize = SECTOR;
/// What data may not use when no further segment can be had: deletes and trims still can.
pub(crate) const STATE_RESERVE_BYTES: u64 = 64 << 20;
/// Runs a segment holds at most, so that its index fits into memory while it is written.
pub(crate) const SEGMENT_RUNS_MAX: usize = 400_000;
/// Segments that one rewriting may replace.
pub(crate) const REPLACES_MAX: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"MSSG");
const VERSION: u16 = 1;

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Chunks in the order of the journal.
    Journal,
    /// Live runs of older segments, sorted by log.
    Rewritten,
}

/// The first sector of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// What it holds.
    pub kind: SegmentKind,
    /// Whose.
    pub journal: Uuid,
    /// Its place in the order of segments.
    pub sequence: u64,
    /// Wall clock at creation, ms.
    pub created: i64,
    /// Segments whose live runs it took over.
    pub replaces: Vec<u64>,
}

/// Why a file is not a usable segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// Reading failed.
    #[error("{file} cannot be read: {source}")]
    Io {
        /// Which file.
        file: String,
        /// The system's words.
        source: io::Error,
    },
    /// A checksum or length is wrong.
    #[error("{file}: corrupt at byte {position}: {what}")]
    Corrupt {
        /// Which file.
        file: String,
        /// Byte position.
        position: u64,
        /// What does not fit.
        what: String,
    },
    /// Written by a newer release.
    #[error("{file}: format version {found}, this release reads up to {known}")]
    NewerVersion {
        /// Which file.
        file: String,
        /// Version in the file.
        found: u16,
        /// The newest this code reads.
        known: u16,
    },
}

impl SegmentError {
    /// Which file it is about.
    pub fn file(&self) -> &str {
        match self {
            Self::Io { file, .. } | Self::Corrupt { file, .. } | Self::NewerVersion { file, .. } => file,
        }
    }
}

impl SegmentHeader {
    /// The sector.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.replaces.len() <= REPLACES_MAX, "a rewriting replaces a bounded number of segments");
        let mut sector = vec![0; SECTOR];
        sector[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        sector[4..6].copy_from_slice(&VERSION.to_le_bytes());
        sector[6..8].copy_from_slice(&(if self.kind == SegmentKind::Journal { 1u16 } else { 2 }).to_le_bytes());
        sector[8..24].copy_from_slice(self.journal.as_bytes());
        sector[28..36].copy_from_slice(&self.created.to_le_bytes());
        sector[36..38].copy_from_slice(&(self.replaces.len() as u16).to_le_bytes());
        for (number, replaced) in self.replaces.iter().enumerate() {
            sector[38 + number * 8..46 + number * 8].copy_from_slice(&replaced.to_le_bytes());
        }
        sector[4084..4092].copy_from_slice(&self.sequence.to_le_bytes());
        let crc = crc32c(&sector[..4092]);
        sector[4092..].copy_from_slice(&crc.to_le_bytes());
        sector
    }

    /// Reads and checks the first sector of `file`.
    ///
    /// # Errors
    /// `Io`, `Corrupt`, `NewerVersion`.
    pub fn read(file: &dyn File) -> Result<Self, SegmentError> {
        let mut sector = vec![0; SECTOR];
        let name = || file.name();
        let got = file.read_at(0, &mut sector).map_err(|source| SegmentError::Io { file: name(), source })?;
        let corrupt = |what: &str| SegmentError::Corrupt { file: name(), position: 0, what: what.to_owned() };
        if got < SECTOR || sector[0..4] != MAGIC.to_le_bytes() {
            return Err(corrupt("no segment header"));
        }
        let u16_at = |at: usize| u16::from_le_bytes([sector[at], sector[at + 1]]);
        let u64_at = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&sector[at..at + 8]);
            u64::from_le_bytes(field)
        };
        if crc32c(&sector[..4092]).to_le_bytes() != sector[4092..] {
            return Err(corrupt("segment header checksum"));
        }
        if u16_at(4) > VERSION {
            return Err(SegmentError::NewerVersion { file: name(), found: u16_at(4), known: VERSION });
        }
        let kind = match u16_at(6) {
            1 => SegmentKind::Journal,
            2 => SegmentKind::Rewritten,
            _ => return Err(corrupt("unknown segment kind")),
        };
        let count = usize::from(u16_at(36));
        if count > REPLACES_MAX {
            return Err(corrupt("too many replaced segments"));
        }
        let mut journal = [0; 16];
        journal.copy_from_slice(&sector[8..24]);
        Ok(Self {
            kind,
            journal: Uuid::from_bytes(journal),
            sequence: u64_at(4084),
            created: u64_at(28) as i64,
            replaces: (0..count).map(|number| u64_at(38 + number * 8)).collect(),
        })
    }
}

/// File name of a segment; names sort like sequences.
pub(crate) fn segment_name(sequence: u64) -> String {
    format!("segment-{sequence:012}")
}

/// The sequence in a segment's file name.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    name.strip_prefix("segment-")?.parse().ok()
}

/// A segment that the keeper has made ready to be written.
pub(crate) struct PreparedSegment {
    pub sequence: u64,
    pub file: Arc<dyn File>,
    pub size: u64,
    /// Bytes from the start that have been written in an earlier life of the file.
    pub written_before: u64,
    /// No data goes into it: it was made on a full disk, for what is said of data that is let go.
    pub for_state: bool,
}

/// Where chunks of the active segment must end so that the chunk that ends it and its index fit behind them.
pub(crate) fn usable_end(active: &ActiveSegment, size: u64) -> u64 {
    if active.runs.len() >= SEGMENT_RUNS_MAX {
        return active.position;
    }
    let index = active.runs.len() * INDEX_ENTRY_BYTES + active.touched.len() * ROW_BYTES;
    let margin = (size / 64).max(4 * SECTOR as u64) + SECTOR as u64;
    size.saturating_sub(index as u64 * 9 / 8 + margin)
}

/// The largest chunk that a fresh segment of this size takes.
pub(crate) fn largest_chunk(size: u64) -> usize {
    (size / 2).min(1 << 30) as usize
}

/// A live segment, or an archive object, as readers of history see it.
pub(crate) struct Segment {
    /// Unique in the process: a rewritten segment keeps its sequence, while readers may still hold the old one.
    pub id: u64,
    pub sequence: u64,
    pub file: Arc<dyn File>,
    /// Length of the file; of an archive object 0.
    bytes: AtomicU64,
    pub index: OnceLock<Arc<SealedIndex>>,
    /// It is an archive object, which has no sequence and an index of its own.
    pub archived: bool,
}

impl Segment {
    /// An archive object.
    pub fn archived(id: u64, file: Arc<dyn File>) -> Self {
        Self { id, sequence: 0, file, bytes: AtomicU64::new(0), index: OnceLock::new(), archived: true }
    }
}

impl Segment {
    /// Length of the file; of an archive object 0.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The file has another length.
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// The live segments of a journal, by sequence.
#[derive(Default)]
pub(crate) struct SegmentTable {
    by_sequence: RwLock<BTreeMap<u64, Arc<Segment>>>,
    next_id: AtomicU64,
}

impl SegmentTable {
    pub fn insert(&self, sequence: u64, file: Arc<dyn File>) -> Arc<Segment> {
        self.put(sequence, file, OnceLock::new())
    }

    /// Enters a segment together with its index, in place of what had this sequence.
    pub fn insert_sealed(&self, sequence: u64, file: Arc<dyn File>, index: SealedIndex) -> Arc<Segment> {
        self.put(sequence, file, OnceLock::from(Arc::new(index)))
    }

    fn put(&self, sequence: u64, file: Arc<dyn File>, index: OnceLock<Arc<SealedIndex>>) -> Arc<Segment> {
        let bytes = AtomicU64::new(file.size().unwrap_or(0));
        let segment = Arc::new(Segment { id: self.next_id(), sequence, file, bytes, index, archived: false });
        self.by_sequence.write().insert(sequence, Arc::clone(&segment));
        segment
    }

    /// A number that no segment has had.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub fn get(&self, sequence: u64) -> Option<Arc<Segment>> {
        self.by_sequence.read().get(&sequence).cloned()
    }

    /// Is it in the table without an index yet? Of one that is in no table any more, as it was freed or rewritten into another, nothing is to be counted.
    pub fn is_unsealed(&self, sequence: u64) -> bool {
        self.by_sequence.read().get(&sequence).is_some_and(|segment| segment.index.get().is_none())
    }

    pub fn remove(&self, sequence: u64) {
        self.by_sequence.write().remove(&sequence);
    }

    /// Sealed segments, oldest first.
    pub fn sealed(&self) -> Vec<(Arc<Segment>, Arc<SealedIndex>)> {
        let table = self.by_sequence.read();
        table.values().filter_map(|segment| Some((Arc::clone(segment), Arc::clone(segment.index.get()?)))).collect()
    }

    /// Length of all files.
    pub fn bytes(&self) -> u64 {
        self.by_sequence.read().values().map(|segment| segment.bytes()).sum()
    }

    /// Length of the longest file; 0 when there is none.
    pub fn longest(&self) -> u64 {
        self.by_sequence.read().values().map(|segment| segment.bytes()).max().unwrap_or(0)
    }

    pub fn len(&self) -> usize {
        self.by_sequence.read().len()
    }

    /// What there is, oldest first.
    pub fn looks(&self) -> Vec<SegmentLook> {
        let look = |segment: &Arc<Segment>| SegmentLook {
            sequence: segment.sequence,
            file: segment_name(segment.sequence),
            sealed: segment.index.get().is_some(),
            bytes: segment.bytes(),
        };
        self.by_sequence.read().values().map(look).collect()
    }
}

/// A segment, as those see it who look on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentLook {
    /// Rises with every segment.
    pub sequence: u64,
    /// The name of its file.
    pub file: String,
    /// Nothing is written to it any more.
    pub sealed: bool,
    /// Length of its file.
    pub bytes: u64,
}
