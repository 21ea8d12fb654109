//! Chunks of a segment, one after the other, and on behind those that are damaged: the next one is where the damaged one says that it ends,
//! or else at the next sector where a valid header of this segment begins.

use std::sync::Arc;

use bytes::Bytes;
use types::{LogIndex, Term, Timestamp};

use super::{Hole, Opened, Place, SegmentSurvey, Surveyor};
use crate::chunk::{
    ChunkError, ChunkHeader, Entry, EntryKind, FLAG_DELETED, body, check_bodies, decode_directory, split_state,
};
use crate::disk::{File, SECTOR};
use crate::recovery::scan::{Chain, Scanner, ahead, ends_segment};
use crate::run::Run;
use crate::segments::{SEGMENT_HEADER_BYTES, segment_name};

/// The newest chunk of a segment: its index, its term, its header's CRC.
type Newest = (LogIndex, Term, u32);

/// A file read front to back through one buffer.
struct Window {
    file: Arc<dyn File>,
    buffer: Bytes,
    at: u64,
    /// Before here is something that cannot be read: a disk may take seconds to say so, and is not asked for more than is wanted.
    careful_until: u64,
}

impl Window {
    fn new(file: &Arc<dyn File>) -> Self {
        Self { file: Arc::clone(file), buffer: Bytes::new(), at: 0, careful_until: 0 }
    }

    /// Fewer bytes than wanted: the file ends, or cannot be read there.
    fn get(&mut self, position: u64, length: usize) -> Result<Option<Bytes>, String> {
        let inside = position.checked_sub(self.at).map(|at| at as usize);
        if inside.is_none_or(|at| at + length > self.buffer.len()) {
            let read = |bytes: usize| {
                let mut fresh = vec![0; bytes];
                self.file.read_at(position, &mut fresh).map(|got| {
                    fresh.truncate(got);
                    fresh
                })
            };
            let ahead = if position < self.careful_until { length } else { length.max(ahead(&*self.file, position)) };
            let fresh = match read(ahead) {
                // A bad block behind what is wanted does not matter here.
                Err(_) if ahead > length => {
                    self.careful_until = position + ahead as u64;
                    read(length)
                }
                outcome => outcome,
            };
            (self.buffer, self.at) = (Bytes::from(fresh.map_err(|error| error.to_string())?), position);
        }
        let at = (position - self.at) as usize;
        Ok((at + length <= self.buffer.len()).then(|| self.buffer.slice(at..at + length)))
    }
}

/// What lies at a position.
enum Found {
    /// A chunk of this segment; of its entries those that are whole, those that are not if the directory is, and what is wrong.
    Chunk {
        header: ChunkHeader,
        crc: u32,
        bytes: Bytes,
        entries: Vec<Entry>,
        broken: Vec<Entry>,
        wrong: Option<String>,
    },
    /// None.
    Nothing(String),
}

impl Surveyor<'_> {
    fn chunk_at(&mut self, window: &mut Window, sequence: u64, position: u64) -> Found {
        let decoded = match window.get(position, SECTOR) {
            Ok(Some(sector)) => ChunkHeader::decode(&sector),
            Ok(None) => Err(ChunkError::NoMagic),
            Err(error) => return Found::Nothing(error),
        };
        let (header, crc) = match decoded {
            Ok(decoded) if decoded.0.journal == self.found.journal && decoded.0.segment == sequence => decoded,
            Ok(_) => return Found::Nothing("a chunk of an earlier life of the file".to_owned()),
            Err(error) => return Found::Nothing(error.to_string()),
        };
        let bytes = match window.get(position, header.chunk_bytes as usize) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Found::Nothing("the file ends inside this chunk".to_owned()),
            Err(error) => {
                return Found::Chunk {
                    header,
                    crc,
                    bytes: Bytes::new(),
                    entries: Vec::new(),
                    broken: Vec::new(),
                    wrong: Some(error),
                };
            }
        };
        let (entries, mut wrong) = match decode_directory(&header, &bytes) {
            Ok(entries) => (entries, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let (mut whole, mut broken) = (Vec::with_capacity(entries.len()), Vec::new());
        for entry in entries {
            match check_bodies(std::slice::from_ref(&entry), &bytes) {
                Ok(()) => whole.push(entry),
                Err(error) => {
                    wrong.get_or_insert_with(|| match entry.kind {
                        EntryKind::Data => format!("{error}, {} offsets {}..{}", entry.log, entry.base, entry.next()),
                        _ => format!("{error}, of a state record"),
                    });
                    broken.push(entry);
                }
            }
        }
        Found::Chunk { header, crc, bytes, entries: whole, broken, wrong }
    }

    /// What is whole of the chunks of a segment that the checkpoint covers, up to `last` if its index says that; and the newest.
    pub(super) fn sealed_chunks(&mut self, one: &Opened, last: Option<LogIndex>) -> (Vec<Run>, Option<Newest>) {
        let mut window = Window::new(&one.file);
        let size = one.file.size().unwrap_or(0);
        let (mut position, mut newest, mut runs) = (SEGMENT_HEADER_BYTES as u64, None::<Newest>, Vec::new());
        while last.is_none_or(|last| newest.is_none_or(|(newest, ..)| newest < last)) && position < size {
            match self.chunk_at(&mut window, one.sequence, position) {
                Found::Chunk { header, crc, entries, wrong, .. } => {
                    self.read(u64::from(header.chunk_bytes));
                    self.found.chunks += u64::from(wrong.is_none());
                    if let Some(what) = wrong {
                        self.damage(one.sequence, &*one.file, position, what);
                    }
                    runs.extend(entries.iter().filter_map(|entry| run_of(entry, &header, position)));
                    newest = Some((header.index, header.term, crc));
                    position += u64::from(header.chunk_bytes);
                }
                Found::Nothing(what) => {
                    let next =
                        self.next_header(&mut window, one.sequence, (position, size), |_| true).map(|(at, _)| at);
                    // Without an index the end of the chunks looks like this.
                    if next.is_some() || last.is_some() {
                        self.damage(one.sequence, &*one.file, position, what);
                    }
                    let Some(next) = next else { break };
                    position = next;
                }
            }
        }
        self.found.runs += runs.len() as u64;
        (runs, newest)
    }

    /// The chunks of a segment behind the checkpoint, as recovery takes them; but what was durable and is damaged is passed over. Returns the
    /// newest.
    pub(super) fn open_chunks(&mut self, one: Opened, mut chain: Option<Chain>) -> Option<Chain> {
        let mut window = Window::new(&one.file);
        let (mut position, mut time) = (SEGMENT_HEADER_BYTES as u64, one.header.created);
        let (mut runs, mut lost) = (Vec::new(), Vec::new());
        loop {
            let what = match self.chunk_at(&mut window, one.sequence, position) {
                Found::Chunk { header, crc, bytes, entries, broken, wrong } if continues(&header, chain.as_ref()) => {
                    // A chunk with a wrong body is the end, unless it had been durable.
                    let next = position + u64::from(header.chunk_bytes);
                    if wrong.is_some() && !self.was_durable(&mut window, one.sequence, next, header.index) {
                        break;
                    }
                    self.read(u64::from(header.chunk_bytes));
                    match wrong {
                        None => self.found.chunks += 1,
                        Some(what) if broken.is_empty() => {
                            let previous_crc = header.previous_crc;
                            let hole = Hole {
                                sequence: one.sequence,
                                bytes: position..next,
                                first: header.index,
                                last: header.index,
                                ..Hole::default()
                            };
                            let hole = Hole { term: header.term, time, previous_crc, crc, ..hole };
                            self.damage_at(one.sequence, &*one.file, (position, Place::Hole(hole)), what);
                        }
                        Some(what) => {
                            let state = broken.iter().filter(|entry| entry.kind == EntryKind::State).count();
                            let what = match state {
                                0 => what,
                                _ => format!("{what}; damaged state records, of whatever they were: {state}"),
                            };
                            let place = Place::Bodies { sequence: one.sequence, position, state };
                            self.damage_at(one.sequence, &*one.file, (position, place), what);
                        }
                    }
                    for entry in &entries {
                        self.replay(entry, &bytes);
                        runs.extend(run_of(entry, &header, position));
                    }
                    broken
                        .iter()
                        .filter(|entry| entry.kind == EntryKind::Data)
                        .for_each(|entry| self.replay(entry, &bytes));
                    lost.extend(broken.iter().filter_map(|entry| run_of(entry, &header, position)));
                    chain = Some(Chain { index: header.index, crc, term: header.term, left: ends_segment(&entries) });
                    (position, time) = (next, header.time);
                    continue;
                }
                Found::Chunk { .. } => "chunk does not continue the journal".to_owned(),
                Found::Nothing(what) => what,
            };
            let first = chain.map_or(LogIndex(0), |chain| chain.index).next();
            let reached = self.reached;
            // One of an earlier term is left of what a start has cut off.
            let term = chain.map_or(Term::default(), |chain| chain.term);
            let durable = |next: &ChunkHeader| {
                next.index > first && next.term >= term && (next.durable_index >= first || next.index <= reached)
            };
            let Some((next, header)) = self.next_header(&mut window, one.sequence, (position, u64::MAX), durable)
            else {
                if let Some(chain) = chain.as_mut() {
                    self.end_missing(&one, position, chain, (time, what));
                }
                break;
            };
            if matches!(self.chunk_at(&mut window, one.sequence, next), Found::Nothing(_)) {
                break;
            }
            let (last, previous_crc) = (LogIndex(header.index.0 - 1), chain.map_or(0, |chain| chain.crc));
            let hole = Hole {
                sequence: one.sequence,
                bytes: position..next,
                first,
                last,
                term: chain.map_or(header.term, |chain| chain.term),
                ..Hole::default()
            };
            let hole = Hole { time, previous_crc, crc: header.previous_crc, ..hole };
            self.damage_at(one.sequence, &*one.file, (position, Place::Hole(hole)), what);
            chain = Some(Chain { index: last, crc: header.previous_crc, term: header.term, left: false });
            position = next;
        }
        self.end = (one.sequence, position);
        self.found.last = chain.map_or(self.found.last, |chain| chain.index);
        self.found.runs += runs.len() as u64;
        self.found.segments.push(SegmentSurvey {
            sequence: one.sequence,
            file: Some(one.file),
            runs,
            broken: Some(lost),
            last: None,
            replaces: vec![one.sequence],
        });
        chain
    }

    /// Does a chunk behind `end`, in this segment or at the beginning of the next, say that chunk `index` had been durable?
    fn was_durable(&mut self, window: &mut Window, sequence: u64, end: u64, index: LogIndex) -> bool {
        if index <= self.reached {
            return true;
        }
        let durable = |next: &ChunkHeader| next.index > index && next.durable_index >= index;
        let behind = self.next_header(window, sequence, (end - SECTOR as u64, u64::MAX), durable);
        behind.is_some() || self.first_of(sequence + 1).is_some_and(|first| durable(&first))
    }

    /// The header at the beginning of a segment's chunks.
    pub(super) fn first_of(&self, sequence: u64) -> Option<ChunkHeader> {
        let file = self.storage.open(&segment_name(sequence)).ok()?;
        Scanner::new(file, self.found.journal, sequence).header_at(SEGMENT_HEADER_BYTES as u64).ok()?
    }

    /// The end of a segment is not readable: it is damage when the next segment says that there was more.
    fn end_missing(&mut self, one: &Opened, position: u64, chain: &mut Chain, (time, what): (Timestamp, String)) {
        let first = chain.index.next();
        let Some(next) =
            self.first_of(one.sequence + 1).filter(|next| next.index > first && next.durable_index >= first)
        else {
            return;
        };
        let last = LogIndex(next.index.0 - 1);
        // As much as these chunks take without records; nobody knows more of them.
        let bytes = position..position + (last.0 - chain.index.0) * SECTOR as u64;
        let hole = Hole {
            sequence: one.sequence,
            bytes,
            first,
            last,
            term: chain.term,
            time,
            previous_crc: chain.crc,
            ..Hole::default()
        };
        let hole = Hole { crc: next.previous_crc, at_end: true, ..hole };
        self.damage_at(one.sequence, &*one.file, (position, Place::Hole(hole)), what);
        *chain = Chain { index: last, crc: next.previous_crc, term: next.term, left: false };
    }

    /// The header of the first chunk of a segment, or of the first one that has one. While it is not known whose journal this is, it says that.
    pub(super) fn first_chunk(&mut self, file: &Arc<dyn File>, sequence: u64) -> Option<ChunkHeader> {
        let (_, header) = self.next_header(&mut Window::new(file), sequence, (0, u64::MAX), |_| true)?;
        self.found.journal = header.journal;
        Some(header)
    }

    /// The next chunk header behind `position` and before `end` that belongs to the segment and is wanted, and where it begins.
    fn next_header(
        &mut self,
        window: &mut Window,
        sequence: u64,
        (position, end): (u64, u64),
        wanted: impl Fn(&ChunkHeader) -> bool,
    ) -> Option<(u64, ChunkHeader)> {
        let mut at = position + SECTOR as u64;
        while at < end {
            match window.get(at, SECTOR) {
                Ok(None) => return None,
                Ok(Some(sector)) => {
                    if let Ok((header, _)) = ChunkHeader::decode(&sector)
                        && (self.found.journal.is_nil() || header.journal == self.found.journal)
                        && header.segment == sequence
                        && wanted(&header)
                    {
                        return Some((at, header));
                    }
                }
                // Further on it may be readable.
                Err(_) => {}
            }
            at += SECTOR as u64;
        }
        None
    }

    /// What a whole entry behind the checkpoint changes.
    fn replay(&mut self, entry: &Entry, chunk: &[u8]) {
        match entry.kind {
            EntryKind::State => {
                let split = body(entry, chunk).and_then(split_state);
                let Ok((key, value)) = split else { return };
                self.found.state.put(key, (entry.flags & FLAG_DELETED == 0).then_some(value));
            }
            EntryKind::Trim => {
                let log = self.found.logs.entry(entry.log).or_default();
                log.start = log.start.max(entry.base);
                log.end = log.end.max(log.start);
            }
            EntryKind::Data => {
                let log = self.found.logs.entry(entry.log).or_default();
                let before = std::mem::replace(&mut log.end, entry.next());
                if before < entry.base {
                    let holes = self.found.damages.iter_mut().rev().filter_map(|damage| match &mut damage.place {
                        Place::Hole(hole) => Some(hole),
                        _ => None,
                    });
                    holes.take(1).for_each(|hole| hole.gaps.push((entry.log, before..entry.base)));
                }
            }
            EntryKind::Drop => drop(self.found.logs.remove(&entry.log)),
            EntryKind::NewTerm | EntryKind::Shared => {}
        }
    }
}

fn continues(header: &ChunkHeader, chain: Option<&Chain>) -> bool {
    chain.is_none_or(|chain| {
        header.index == chain.index.next() && header.previous_crc == chain.crc && header.term >= chain.term
    })
}

fn run_of(entry: &Entry, header: &ChunkHeader, position: u64) -> Option<Run> {
    (entry.kind == EntryKind::Data).then(|| Run {
        log: entry.log,
        base: entry.base,
        next: entry.next(),
        position: position as u32 + entry.position,
        bytes: entry.bytes,
        crc: entry.crc,
        records: entry.records,
        shared: entry.shared,
        max_timestamp: entry.max_timestamp,
        append_time: header.time,
    })
}

#[cfg(test)]
mod tests;
