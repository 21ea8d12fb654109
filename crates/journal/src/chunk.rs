//! The chunk: one group commit. Written by the writer, read by recovery and `inspect`.
//!
//! ```text
//! header, 96 bytes, little-endian          directory, 48 bytes an entry
//!   0  u32  magic "MSCK"                     0  u8   kind: 1 data, 2 state, 3 trim, 4 new term, 5 shared data, 6 drop
//!   4  u16  format version (1, 2, 3)         1  u8   flags: 1 transactional, 2 control, 4 deleted state, 8 left
//!   6  u16  reserved, 0                      2  u16  reserved, 0
//!   8  [16] journal UUID                     4  u32  record count
//!  24  u64  segment sequence                 8  u64  log id (0 for state and new term; shared: number of logs)
//!  32  u64  index                           16  u64  base offset (trim: the new log start; shared: 0; drop: the log's end)
//!  40  u64  durable index when built        24  u32  last-offset delta
//!  48  u32  term                            28  u32  body position, from the start of the chunk
//!  52  u32  CRC of the previous header      32  u32  body length
//!  56  i64  wall clock, ms since 1970       36  u32  CRC-32C of the body
//!  64  u32  entry count                     40  i64  max timestamp
//!  68  u32  directory length               then, of all shared entries in their order, 16 bytes a log:
//!                                            0  u64  log id        8  u64  base offset
//!  72  u32  body length, all bodies        then the bodies, then zeroes up to a multiple of 4096
//!  76  u32  chunk length, with padding
//!  80  u32  CRC-32C of the directory
//!  84  [8]  reserved, 0
//!  92  u32  CRC-32C of bytes 0..92
//! ```
//!
//! A data body is one or more record batches of one log, back to back, in offset order, with base offset and
//! leader epoch filled in. In a shared one the base offset of a batch is its distance from that of the entry (see `run`). A state body
//! is `u32` key length, key, value. A chunk with drops is of version 3, one with shared data otherwise of version 2, any other of version 1. An entry of kind 4 with the flag 8 begins no term: its chunk
//! is the last of its segment, written when the next segment was there on stable storage.
//!
//! * I1 Indexes rise by one; the term never falls.
//! * I2 A chunk is the successor of another only if journal UUID and segment sequence fit and it carries
//!   the CRC of that one's header.
//! * I3 A written chunk is never written again; after a torn one the next term overwrites from its start.

use types::{LogId, LogIndex, Offset, Term, Timestamp};
use uuid::Uuid;

use crate::disk::SECTOR;

/// Length of the header.
pub const HEADER_BYTES: usize = 96;
/// Length of a directory entry.
pub const ENTRY_BYTES: usize = 48;
/// Length of what the directory says of a log that shares a body.
pub const REFERENCE_BYTES: usize = 16;
/// The newest version that this code reads and writes.
pub const FORMAT_VERSION: u16 = 3;
/// The version of chunks in which logs share something and none ends.
const VERSION_SHARED: u16 = 2;
/// The version of chunks in which no log shares anything and none ends.
const VERSION_UNSHARED: u16 = 1;
/// "MSCK", little-endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"MSCK");

const CRC_AT: usize = 92;
/// The polynomial of CRC-32C, lowest power first.
const REFLECTED: u32 = 0x82f6_3b78;
/// Offsets from here on have no room for what follows them.
const OFFSET_MAX: u64 = i64::MAX as u64 - u32::MAX as u64;

/// What a chunk says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Of the journal; chunks of another life of the file have another.
    pub journal: Uuid,
    /// Of the segment it was written for.
    pub segment: u64,
    /// Position in the journal.
    pub index: LogIndex,
    /// Everything up to here was durable when the chunk was built.
    pub durable_index: LogIndex,
    /// The reign that wrote it.
    pub term: Term,
    /// CRC field of the previous chunk's header; 0 for the journal's first.
    pub previous_crc: u32,
    /// Wall clock when built.
    pub time: Timestamp,
    /// Directory entries.
    pub entries: u32,
    /// Logs of all shared entries together.
    pub references: u32,
    /// Logs end in it.
    pub drops: bool,
    /// All bodies, in bytes.
    pub body_bytes: u32,
    /// Whole chunk with padding, in bytes.
    pub chunk_bytes: u32,
    /// CRC-32C of the directory.
    pub directory_crc: u32,
}

/// What a directory entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A run of record batches of one log.
    Data,
    /// A keyed state record.
    State,
    /// A log's new start.
    Trim,
    /// The end of a log.
    Drop,
    /// The first chunk of a term, or with `FLAG_LEFT` the last of a segment.
    NewTerm,
    /// A run of record batches of several logs. Only in the directory: who reads that gets one of `Data` for each log.
    Shared,
}

/// Flag of a data entry: part of a transaction.
pub const FLAG_TRANSACTIONAL: u8 = 1;
/// Flag of a data entry: a control batch.
pub const FLAG_CONTROL: u8 = 2;
/// Flag of a state entry: the key is deleted.
pub const FLAG_DELETED: u8 = 4;
/// Flag of a new-term entry: it begins none, but ends its segment.
pub const FLAG_LEFT: u8 = 8;

/// One directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// `FLAG_…`.
    pub flags: u8,
    /// Records in the body.
    pub records: u32,
    /// Whose.
    pub log: LogId,
    /// First offset; for a trim the new log start, for a drop the log's end.
    pub base: Offset,
    /// Offsets after the first.
    pub last_delta: u32,
    /// Body, from the start of the chunk.
    pub position: u32,
    /// Body length.
    pub bytes: u32,
    /// CRC-32C of the body.
    pub crc: u32,
    /// The body is that of other logs too: the entries of all of them follow each other.
    pub shared: bool,
    /// Largest record timestamp of the body.
    pub max_timestamp: Timestamp,
}

impl Entry {
    /// Offset after the last record.
    pub fn next(&self) -> Offset {
        self.base.plus(u64::from(self.last_delta) + 1)
    }
}

/// Why bytes are not a chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// No chunk begins here.
    #[error("no chunk magic")]
    NoMagic,
    /// Written by a newer release.
    #[error("chunk format version {found}, this release reads up to {FORMAT_VERSION}")]
    NewerVersion {
        /// The version in the file.
        found: u16,
    },
    /// A checksum does not match.
    #[error("{what} checksum is {got:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Header, directory or body.
        what: &'static str,
        /// In the file.
        expected: u32,
        /// Of the bytes.
        got: u32,
    },
    /// Lengths contradict each other or the file.
    #[error("{what} does not fit")]
    Length {
        /// Which length.
        what: &'static str,
    },
    /// A shared entry is not of at least one log, or the logs of all are not those that the directory has.
    #[error("shared entries do not fit the directory")]
    References,
    /// An entry kind this release does not know.
    #[error("unknown directory entry kind {kind}")]
    UnknownKind {
        /// The number found.
        kind: u8,
    },
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
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

/// CRC-32C (Castagnoli), the checksum of every format of the journal.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// `bytes` rounded up to whole sectors.
pub const fn padded(bytes: usize) -> usize {
    bytes.div_ceil(SECTOR) * SECTOR
}

/// Length of header and directory together, where the first body begins.
pub const fn bodies_at(entries: usize, references: usize) -> usize {
    HEADER_BYTES + entries * ENTRY_BYTES + references * REFERENCE_BYTES
}

impl ChunkHeader {
    /// Writes the header over `into[..96]` and returns its CRC, which the next chunk carries.
    pub fn encode(&self, into: &mut [u8]) -> u32 {
        let header = &mut into[..HEADER_BYTES];
        header.fill(0);
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        let version = match self.references {
            _ if self.drops => FORMAT_VERSION,
            0 => VERSION_UNSHARED,
            _ => VERSION_SHARED,
        };
        header[4..6].copy_from_slice(&version.to_le_bytes());
        header[8..24].copy_from_slice(self.journal.as_bytes());
        header[24..32].copy_from_slice(&self.segment.to_le_bytes());
        header[32..40].copy_from_slice(&self.index.0.to_le_bytes());
        header[40..48].copy_from_slice(&self.durable_index.0.to_le_bytes());
        header[48..52].copy_from_slice(&self.term.0.to_le_bytes());
        header[52..56].copy_from_slice(&self.previous_crc.to_le_bytes());
        header[56..64].copy_from_slice(&self.time.to_le_bytes());
        header[64..68].copy_from_slice(&self.entries.to_le_bytes());
        let directory_bytes = self.entries * ENTRY_BYTES as u32 + self.references * REFERENCE_BYTES as u32;
        header[68..72].copy_from_slice(&directory_bytes.to_le_bytes());
        header[72..76].copy_from_slice(&self.body_bytes.to_le_bytes());
        header[76..80].copy_from_slice(&self.chunk_bytes.to_le_bytes());
        header[80..84].copy_from_slice(&self.directory_crc.to_le_bytes());
        let crc = crc32c(&header[..CRC_AT]);
        header[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Reads a header and its own CRC.
    ///
    /// # Errors
    /// `NoMagic`: nothing here. `Checksum`: torn or damaged. `NewerVersion`. `Length`: lengths contradict.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32), ChunkError> {
        let header = bytes.get(..HEADER_BYTES).ok_or(ChunkError::Length { what: "header" })?;
        if u32_at(header, 0) != MAGIC {
            return Err(ChunkError::NoMagic);
        }
        let (expected, got) = (u32_at(header, CRC_AT), crc32c(&header[..CRC_AT]));
        if expected != got {
            return Err(ChunkError::Checksum { what: "chunk header", expected, got });
        }
        let found = u16_at(header, 4);
        if found > FORMAT_VERSION {
            return Err(ChunkError::NewerVersion { found });
        }
        let mut journal = [0; 16];
        journal.copy_from_slice(&header[8..24]);
        let decoded = Self {
            journal: Uuid::from_bytes(journal),
            segment: u64_at(header, 24),
            index: LogIndex(u64_at(header, 32)),
            durable_index: LogIndex(u64_at(header, 40)),
            term: Term(u32_at(header, 48)),
            previous_crc: u32_at(header, 52),
            time: u64_at(header, 56) as Timestamp,
            entries: u32_at(header, 64),
            references: references(u32_at(header, 64), u32_at(header, 68), found)?,
            drops: found >= FORMAT_VERSION,
            body_bytes: u32_at(header, 72),
            chunk_bytes: u32_at(header, 76),
            directory_crc: u32_at(header, 80),
        };
        decoded.check_lengths()?;
        Ok((decoded, expected))
    }

    /// Length of the directory.
    pub fn directory_bytes(&self) -> usize {
        self.entries as usize * ENTRY_BYTES + self.references as usize * REFERENCE_BYTES
    }

    fn check_lengths(&self) -> Result<(), ChunkError> {
        let used = bodies_at(self.entries as usize, self.references as usize) as u64 + u64::from(self.body_bytes);
        let whole = u64::from(self.chunk_bytes);
        if used > whole || whole % SECTOR as u64 != 0 {
            return Err(ChunkError::Length { what: "chunk" });
        }
        Ok(())
    }
}

/// Where reserved bytes lie that a repair may choose.
const CHOSEN_AT: usize = CRC_AT - 4;

/// Writes the header so that its CRC is `crc`: four reserved bytes, which readers ignore, are chosen accordingly.
pub fn encode_header_with_crc(header: &ChunkHeader, crc: u32, into: &mut [u8]) {
    header.encode(into);
    let before = !crc32c(&into[..CHOSEN_AT]);
    // What the register of the checksum has to be behind these bytes, taken back by 32 bits.
    let mut register = !crc;
    for _ in 0..32 {
        register = if register >> 31 == 1 { (register ^ REFLECTED) << 1 | 1 } else { register << 1 };
    }
    into[CHOSEN_AT..CRC_AT].copy_from_slice(&(before ^ register).to_le_bytes());
    into[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// How many logs the directory has behind its entries.
fn references(entries: u32, directory_bytes: u32, version: u16) -> Result<u32, ChunkError> {
    let beyond = u64::from(directory_bytes).checked_sub(u64::from(entries) * ENTRY_BYTES as u64);
    let shared = version > VERSION_UNSHARED;
    match beyond.filter(|beyond| beyond.is_multiple_of(REFERENCE_BYTES as u64) && (shared || *beyond == 0)) {
        Some(beyond) => Ok((beyond / REFERENCE_BYTES as u64) as u32),
        None => Err(ChunkError::Length { what: "directory" }),
    }
}

/// Writes a log of a shared entry over `into[..16]`.
pub fn encode_reference(log: LogId, base: Offset, into: &mut [u8]) {
    into[0..8].copy_from_slice(&log.0.to_le_bytes());
    into[8..16].copy_from_slice(&base.0.to_le_bytes());
}

impl Entry {
    /// Writes the entry over `into[..48]`.
    pub fn encode(&self, into: &mut [u8]) {
        let entry = &mut into[..ENTRY_BYTES];
        entry[0] = match self.kind {
            EntryKind::Data => 1,
            EntryKind::State => 2,
            EntryKind::Trim => 3,
            EntryKind::NewTerm => 4,
            EntryKind::Shared => 5,
            EntryKind::Drop => 6,
        };
        entry[1] = self.flags;
        entry[2..4].fill(0);
        entry[4..8].copy_from_slice(&self.records.to_le_bytes());
        entry[8..16].copy_from_slice(&self.log.0.to_le_bytes());
        entry[16..24].copy_from_slice(&self.base.0.to_le_bytes());
        entry[24..28].copy_from_slice(&self.last_delta.to_le_bytes());
        entry[28..32].copy_from_slice(&self.position.to_le_bytes());
        entry[32..36].copy_from_slice(&self.bytes.to_le_bytes());
        entry[36..40].copy_from_slice(&self.crc.to_le_bytes());
        entry[40..48].copy_from_slice(&self.max_timestamp.to_le_bytes());
    }

    fn decode(entry: &[u8], body_start: u64, body_end: u64) -> Result<Self, ChunkError> {
        let kind = match entry[0] {
            1 => EntryKind::Data,
            2 => EntryKind::State,
            3 => EntryKind::Trim,
            4 => EntryKind::NewTerm,
            5 => EntryKind::Shared,
            6 => EntryKind::Drop,
            kind => return Err(ChunkError::UnknownKind { kind }),
        };
        let decoded = Self {
            kind,
            flags: entry[1],
            records: u32_at(entry, 4),
            log: LogId(u64_at(entry, 8)),
            base: Offset(u64_at(entry, 16)),
            last_delta: u32_at(entry, 24),
            position: u32_at(entry, 28),
            bytes: u32_at(entry, 32),
            crc: u32_at(entry, 36),
            shared: false,
            max_timestamp: u64_at(entry, 40) as Timestamp,
        };
        let end = u64::from(decoded.position) + u64::from(decoded.bytes);
        let misplaced = decoded.bytes > 0 && u64::from(decoded.position) < body_start;
        if misplaced || end > body_end || decoded.base.0 > OFFSET_MAX {
            return Err(ChunkError::Length { what: "directory entry" });
        }
        Ok(decoded)
    }

    /// An entry for each log of a shared one; takes what the directory says of them from the front of `references`.
    fn unfold(&self, references: &mut &[u8], into: &mut Vec<Self>) -> Result<(), ChunkError> {
        let bytes = usize::try_from(self.log.0)
            .ok()
            .and_then(|count| count.checked_mul(REFERENCE_BYTES))
            .filter(|bytes| *bytes > 0);
        let (own, rest) = bytes.and_then(|bytes| references.split_at_checked(bytes)).ok_or(ChunkError::References)?;
        *references = rest;
        for reference in own.chunks_exact(REFERENCE_BYTES) {
            let (log, base) = (LogId(u64_at(reference, 0)), Offset(u64_at(reference, 8)));
            if base.0 > OFFSET_MAX {
                return Err(ChunkError::Length { what: "directory entry" });
            }
            into.push(Self { kind: EntryKind::Data, log, base, shared: true, ..*self });
        }
        Ok(())
    }
}

/// Reads the directory of a chunk whose header has been read; `chunk` begins at the header. In place of a shared entry there is one for
/// each of its logs.
///
/// # Errors
/// `Length`: `chunk` is shorter than the header says. `Checksum`, `UnknownKind`, `References`.
pub fn decode_directory(header: &ChunkHeader, chunk: &[u8]) -> Result<Vec<Entry>, ChunkError> {
    let end = bodies_at(header.entries as usize, header.references as usize);
    let directory = chunk.get(HEADER_BYTES..end).ok_or(ChunkError::Length { what: "directory" })?;
    let got = crc32c(directory);
    if got != header.directory_crc {
        return Err(ChunkError::Checksum { what: "directory", expected: header.directory_crc, got });
    }
    let body_end = end as u64 + u64::from(header.body_bytes);
    let (entries, mut references) = directory.split_at(header.entries as usize * ENTRY_BYTES);
    let mut decoded = Vec::with_capacity(header.entries as usize + header.references as usize);
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let entry = Entry::decode(entry, end as u64, body_end)?;
        match entry.kind {
            EntryKind::Shared => entry.unfold(&mut references, &mut decoded)?,
            _ => decoded.push(entry),
        }
    }
    if references.is_empty() { Ok(decoded) } else { Err(ChunkError::References) }
}

/// An entry as it stands in the directory, shared ones too; of the chunk around it nothing is checked.
pub fn decode_raw(entry: &[u8]) -> Option<Entry> {
    Entry::decode(entry, 0, u64::MAX).ok()
}

/// Checks every body of a chunk against its CRC, a shared one once.
///
/// # Errors
/// `Length`, `Checksum`.
pub fn check_bodies(entries: &[Entry], chunk: &[u8]) -> Result<(), ChunkError> {
    let mut checked = None;
    for entry in entries {
        let place = (entry.position, entry.bytes, entry.crc);
        if entry.shared && checked == Some(place) {
            continue;
        }
        let got = crc32c(body(entry, chunk)?);
        if got != entry.crc {
            return Err(ChunkError::Checksum { what: "body", expected: entry.crc, got });
        }
        checked = Some(place);
    }
    Ok(())
}

/// The body of an entry.
///
/// # Errors
/// `Length`: the chunk is cut short.
pub fn body<'a>(entry: &Entry, chunk: &'a [u8]) -> Result<&'a [u8], ChunkError> {
    let start = entry.position as usize;
    chunk.get(start..start + entry.bytes as usize).ok_or(ChunkError::Length { what: "body" })
}

/// A state body's key and value.
///
/// # Errors
/// `Length`: the key is longer than the body.
pub fn split_state(body: &[u8]) -> Result<(&[u8], &[u8]), ChunkError> {
    let too_short = ChunkError::Length { what: "state key" };
    if body.len() < 4 {
        return Err(too_short);
    }
    let key_bytes = u32_at(body, 0) as usize;
    if key_bytes > body.len() - 4 {
        return Err(too_short);
    }
    Ok(body[4..].split_at(key_bytes))
}

impl Entry {
    /// An entry without a body; the rest is filled in by struct update.
    pub const EMPTY: Self = Self {
        kind: EntryKind::NewTerm,
        flags: 0,
        records: 0,
        log: LogId(0),
        base: Offset(0),
        last_delta: 0,
        position: 0,
        bytes: 0,
        crc: 0,
        shared: false,
        max_timestamp: 0,
    };
}
