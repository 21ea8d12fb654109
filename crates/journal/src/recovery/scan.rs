//! Reading the chunks of one segment in order, and deciding what the first unacceptable one is: the end, torn,
//! or corrupt.

use std::sync::Arc;

use bytes::Bytes;
use types::{LogIndex, Term};
use uuid::Uuid;

use super::OpenError;
use crate::checkpoint::ReplayFrom;
use crate::chunk::{ChunkError, ChunkHeader, Entry, EntryKind, FLAG_LEFT, check_bodies, decode_directory};
use crate::disk::{File, SECTOR};
use crate::segments::{SEGMENT_HEADER_BYTES, SegmentError};

const READ_BYTES: usize = 4 << 20;
/// A segment that was begun has a header of a chunk so near to its start, unless it is damaged there and the segment before it at its end.
const NEAR_BYTES: u64 = 4 << 20;

/// The last accepted chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub index: LogIndex,
    pub crc: u32,
    pub term: Term,
    /// It ends its segment: the next one is there.
    pub left: bool,
}

/// An accepted chunk.
pub(crate) struct Scanned {
    pub header: ChunkHeader,
    pub crc: u32,
    pub entries: Vec<Entry>,
    pub chunk: Bytes,
}

impl From<ReplayFrom> for Chain {
    fn from(replay: ReplayFrom) -> Self {
        Self { index: replay.index, crc: replay.crc, term: replay.term, left: false }
    }
}

impl Scanned {
    /// The chain that ends with this chunk.
    pub fn chain(&self) -> Chain {
        Chain { index: self.header.index, crc: self.crc, term: self.header.term, left: ends_segment(&self.entries) }
    }
}

/// Do entries of a chunk say that it is the last of its segment?
pub(crate) fn ends_segment(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.kind == EntryKind::NewTerm && entry.flags & FLAG_LEFT != 0)
}

/// Reads a segment front to back through one large buffer.
pub(crate) struct Scanner {
    file: Arc<dyn File>,
    journal: Uuid,
    segment: u64,
    buffer: Bytes,
    buffer_at: u64,
    /// A planted defect: bodies that logs share are not looked at.
    #[cfg(feature = "planted")]
    pub trusts_shared: bool,
    /// A planted defect: what lies further behind a bad chunk is not looked at.
    #[cfg(feature = "planted")]
    pub short_sight: bool,
}

impl Scanner {
    pub fn new(file: Arc<dyn File>, journal: Uuid, segment: u64) -> Self {
        Self {
            file,
            journal,
            segment,
            buffer: Bytes::new(),
            buffer_at: 0,
            #[cfg(feature = "planted")]
            trusts_shared: false,
            #[cfg(feature = "planted")]
            short_sight: false,
        }
    }

    /// The chunk at `position` if it continues `chain`; `None` at the end of the journal or segment.
    pub fn next(&mut self, chain: &Chain, position: u64) -> Result<Option<Scanned>, OpenError> {
        self.next_within(chain, position, u64::MAX)
    }

    /// The first chunk if it continues `chain`, which ends in the segment before. This one may only have been prepared: not all of it is read then.
    pub fn first(&mut self, chain: &Chain) -> Result<Option<Scanned>, OpenError> {
        self.next_within(chain, SEGMENT_HEADER_BYTES as u64, NEAR_BYTES)
    }

    fn next_within(&mut self, chain: &Chain, position: u64, reach: u64) -> Result<Option<Scanned>, OpenError> {
        match self.chunk_at(position)? {
            Ok(scanned) if self.continues(&scanned.header, chain) => Ok(Some(scanned)),
            Err(ChunkError::NewerVersion { found }) => {
                let known = crate::chunk::FORMAT_VERSION;
                Err(SegmentError::NewerVersion { file: self.file.name(), found, known }.into())
            }
            bad => {
                let what = bad
                    .err()
                    .map_or_else(|| "chunk does not continue the journal".to_owned(), |error| error.to_string());
                let behind = self.behind(chain, position)?;
                #[cfg(feature = "planted")]
                if self.short_sight && behind > position + (4 << 20) {
                    return Ok(None);
                }
                if self.is_durable(chain.index.next(), behind, reach)? {
                    return Err(SegmentError::Corrupt { file: self.file.name(), position, what }.into());
                }
                Ok(None)
            }
        }
    }

    /// Where what lies behind a bad chunk begins: at its end, if its header is whole and continues the journal.
    fn behind(&mut self, chain: &Chain, position: u64) -> Result<u64, OpenError> {
        let header = self.bytes(position, SECTOR)?.and_then(|first| ChunkHeader::decode(&first).ok());
        let own = header.filter(|(header, _)| self.continues(header, chain));
        Ok(own.map_or(position, |(header, _)| position + u64::from(header.chunk_bytes)))
    }

    /// The header at `position`, if it is one of this segment.
    pub fn header_at(&mut self, position: u64) -> Result<Option<ChunkHeader>, OpenError> {
        let header = self.bytes(position, SECTOR)?.and_then(|first| ChunkHeader::decode(&first).ok());
        Ok(header
            .map(|(header, _)| header)
            .filter(|header| header.journal == self.journal && header.segment == self.segment))
    }

    fn continues(&self, header: &ChunkHeader, chain: &Chain) -> bool {
        header.journal == self.journal
            && header.segment == self.segment
            && header.index == chain.index.next()
            && header.previous_crc == chain.crc
            && header.term >= chain.term
    }

    /// `None`: the file ends before.
    fn bytes(&mut self, position: u64, length: usize) -> Result<Option<Bytes>, OpenError> {
        let inside = position.checked_sub(self.buffer_at).map(|at| at as usize);
        if inside.is_none_or(|at| at + length > self.buffer.len()) {
            let mut fresh = vec![0; length.max(ahead(&*self.file, position))];
            let got = self
                .file
                .read_at(position, &mut fresh)
                .map_err(|source| SegmentError::Io { file: self.file.name(), source })?;
            fresh.truncate(got);
            (self.buffer, self.buffer_at) = (Bytes::from(fresh), position);
        }
        let at = (position - self.buffer_at) as usize;
        Ok((at + length <= self.buffer.len()).then(|| self.buffer.slice(at..at + length)))
    }

    fn chunk_at(&mut self, position: u64) -> Result<Result<Scanned, ChunkError>, OpenError> {
        let Some(first) = self.bytes(position, SECTOR)? else { return Ok(Err(ChunkError::NoMagic)) };
        let (header, crc) = match ChunkHeader::decode(&first) {
            Ok(decoded) => decoded,
            Err(error) => return Ok(Err(error)),
        };
        let Some(chunk) = self.bytes(position, header.chunk_bytes as usize)? else {
            return Ok(Err(ChunkError::Length { what: "chunk" }));
        };
        let entries = decode_directory(&header, &chunk);
        #[cfg(feature = "planted")]
        if self.trusts_shared
            && let Ok(entries) = &entries
            && entries.iter().any(|entry| entry.shared)
        {
            let own: Vec<Entry> = entries.iter().filter(|entry| !entry.shared).copied().collect();
            return Ok(check_bodies(&own, &chunk).map(|()| Scanned { header, crc, entries: entries.clone(), chunk }));
        }
        let checked = entries.and_then(|entries| check_bodies(&entries, &chunk).map(|()| entries));
        Ok(checked.map(|entries| Scanned { header, crc, entries, chunk }))
    }

    /// Does a chunk of the segment say that chunk `index` had been durable?
    pub fn says_durable(&mut self, index: LogIndex) -> Result<bool, OpenError> {
        self.is_durable(index, SEGMENT_HEADER_BYTES as u64, u64::MAX)
    }

    /// Does a chunk at `position` or behind it say that chunk `index` had been durable? Ends where no chunk of the segment begins within `reach`; a
    /// chunk may be nearly as long as the segment.
    fn is_durable(&mut self, index: LogIndex, position: u64, reach: u64) -> Result<bool, OpenError> {
        let (mut at, mut until) = (position, position.saturating_add(reach));
        while at <= until
            && let Some(first) = self.bytes(at, SECTOR)?
        {
            if let Ok((header, _)) = ChunkHeader::decode(&first)
                && header.journal == self.journal
                && header.segment == self.segment
            {
                if header.index > index && header.durable_index >= index {
                    return Ok(true);
                }
                until = at.saturating_add(reach).saturating_add(u64::from(header.chunk_bytes));
            }
            at += SECTOR as u64;
        }
        Ok(false)
    }
}

/// How much of a file is read at once from `position` on: no more than it has.
pub(crate) fn ahead(file: &dyn File, position: u64) -> usize {
    let left = file.size().map_or(u64::MAX, |size| size.saturating_sub(position));
    left.min(READ_BYTES as u64).next_multiple_of(SECTOR as u64) as usize
}

/// The first header of a chunk of segment `sequence`, of whatever journal.
pub(crate) fn first_header(file: &Arc<dyn File>, sequence: u64) -> Result<Option<ChunkHeader>, OpenError> {
    let mut scanner = Scanner::new(Arc::clone(file), Uuid::nil(), sequence);
    let mut at = SEGMENT_HEADER_BYTES as u64;
    while let Some(sector) = scanner.bytes(at, SECTOR)? {
        match ChunkHeader::decode(&sector) {
            Ok((header, _)) if header.segment == sequence => return Ok(Some(header)),
            _ => at += SECTOR as u64,
        }
    }
    Ok(None)
}
