//! Opening a journal: checkpoint, then replay of the chunks behind it, then a new term.
//!
//! A chunk is accepted only if it is whole and journal, segment, previous header's CRC and index + 1 fit and the
//! term does not fall: recycled segments hold old chunks that look valid. The first that is not accepted ends
//! the journal. It was *torn* by a crash, and is cut off, unless a chunk header behind it, in its segment or the next, says that it had
//! been durable: then it is *corrupt*, and opening fails with file and position.

mod behind;
#[cfg(test)]
mod faulty;
mod missing;
mod owner;
mod replaced;
pub(crate) mod scan;
mod unproven;
mod unused;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use record::Marker;
use types::{Clock, Durability, LogId, LogIndex, Offset, Term};
use uuid::Uuid;

use crate::archive::{self, ArchiveRecordError, ArchiveStore};
use crate::archiver::Archiver;
use crate::checkpoint::{self, Checkpoint, CheckpointError, CheckpointLog, ReplayFrom};
use crate::chunk::{Entry, EntryKind, FLAG_DELETED, body, split_state};
use crate::disk::{File, Storage, Submitter, naming};
use crate::index::SealedIndex;
use crate::journal::{Journal, JournalConfig};
use crate::keeper::{FoundCheckpoint, Keeper, KeeperStart, SealJob};
use crate::producers::Producers;
use crate::reached;
use crate::recent::SegmentRuns;
use crate::run::Run;
use crate::segments::{SEGMENT_HEADER_BYTES, SegmentError, SegmentHeader, SegmentKind, segment_name, sequence_of};
use crate::state::{StateChanges, StateMap};
use crate::touched::TouchedLogs;
use crate::writer::{ActiveSegment, Writer, WriterStart};
use behind::{check_behind, goes_on, is_there};
pub use owner::owners;
use scan::{Chain, Scanned};
use unproven::Unproven;
pub(crate) use unused::spare_name;
use unused::{PREFIX_SPARE, put_aside};

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or a file cannot be read or written.
    #[error("{what}: {source}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// A file is damaged or too new.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The checkpoint is damaged or too new.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// What the archive holds of a log is not known.
    #[error(transparent)]
    Archive(#[from] ArchiveRecordError),
    /// Records of a log are not there.
    #[error("{log} begins at offset {base} for no reason that the journal knows: what lay before is missing")]
    MissingRecords {
        /// Whose.
        log: LogId,
        /// Where what is left begins.
        base: Offset,
    },
    /// A segment that the checkpoint counts on is not there.
    #[error("segment {sequence} is missing, and records of a log with it")]
    MissingSegment {
        /// Its sequence.
        sequence: u64,
    },
}

impl OpenError {
    /// Is a file not what was written, rather than not to be had?
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Segment(SegmentError::Corrupt { .. })
            | Self::Checkpoint(CheckpointError::Corrupt(_))
            | Self::MissingSegment { .. }
            | Self::MissingRecords { .. } => true,
            Self::Segment(_) | Self::Checkpoint(_) | Self::Archive(_) | Self::Io { .. } => false,
        }
    }
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Io { what, source }
}

/// Opens a segment; an error names it.
fn open_named(storage: &dyn Storage, name: &str) -> Result<Arc<dyn File>, OpenError> {
    storage.open(name).map_err(naming(name)).map_err(io_error("open a segment"))
}

/// A journal, ready to run: the front for everybody, the writer and the keeper for their threads.
pub struct Opened<S> {
    /// For the broker.
    pub journal: Arc<Journal>,
    /// For the journal's thread.
    pub writer: Writer<S>,
    /// For the background thread.
    pub keeper: Keeper,
    /// For the thread of the archive.
    pub archiver: Archiver,
    /// Bytes of chunks that were replayed.
    pub replayed_bytes: u64,
}

/// Opens the journal in `storage`, or creates it. The caller steps or runs the writer: only when the first
/// chunk of the new term is durable is anything readable that was not durable before.
///
/// # Errors
/// See [`OpenError`]; nothing has been changed then that a later attempt could miss.
pub fn open<S: Submitter>(
    config: JournalConfig,
    storage: Arc<dyn Storage>,
    archive: Arc<dyn ArchiveStore>,
    submitter: S,
    clock: Arc<dyn Clock>,
    new_uuid: Uuid,
) -> Result<Opened<S>, OpenError> {
    let files = Files::list(&*storage)?;
    let checkpoint = read_checkpoint(&*storage, &files);
    #[cfg(feature = "planted")]
    let forgoes = config.planted == Some(crate::Planted::ForgoCheckpoint) && files.checkpoints.is_empty();
    #[cfg(feature = "planted")]
    let checkpoint = if forgoes { Ok(None) } else { checkpoint };
    let checkpoint = checkpoint?;
    let (checkpoint, found) = checkpoint.unzip();
    let (uuid, replay) = match &checkpoint {
        Some(checkpoint) => (checkpoint.journal, checkpoint.replay),
        None => (
            files.journal_uuid(&*storage)?.unwrap_or(new_uuid),
            ReplayFrom { segment: 1, index: LogIndex(0), term: Term(0), crc: 0 },
        ),
    };
    let journal = Arc::new(Journal::new(config, uuid, Term(0), clock, archive));
    let mut replaying = Replay::new(Arc::clone(&journal), replay);
    replaying.checkpointed = checkpoint.is_some();
    if let Some(checkpoint) = checkpoint {
        replaying.load(checkpoint);
    }
    let undeleted = remove_replaced(&*storage, &files, &journal)?;
    replaying.undeleted = undeleted.keys().copied().collect();
    #[cfg(feature = "planted")]
    if journal.planted() == Some(crate::Planted::LoadReplaced) {
        replaying.undeleted.clear();
    }
    let recovered = replaying.run(&*storage)?;
    let term = Term(recovered.chain.term.0 + 1);
    #[cfg(feature = "planted")]
    let term = if journal.planted() == Some(crate::Planted::KeepTerm) && recovered.chain.term.0 > 0 {
        recovered.chain.term
    } else {
        term
    };
    journal.set_term(term);
    let active = recovered.active;
    // What was replayed may be complete but not durable: flush before anybody sees it.
    recovered.unproven.write_again(&*storage).map_err(io_error("write the end of the journal again"))?;
    let replayed = recovered.sealing.iter().map(|job| &job.file);
    [&active.file]
        .into_iter()
        .chain(replayed)
        .try_for_each(|file| file.sync())
        .map_err(io_error("flush the journal"))?;
    let next_sequence = active.sequence + 1;
    put_aside(&*storage, journal.number(), next_sequence).map_err(io_error("list the journal's folder"))?;
    storage.sync_folder().map_err(io_error("flush the folder"))?;
    note_reached(&*storage, &journal, recovered.chain.index);
    let start = WriterStart {
        active,
        next_index: recovered.chain.index.next(),
        previous_crc: recovered.chain.crc,
        term,
        sealing: recovered.sealing,
    };
    let keeper_start = KeeperStart {
        logs: recovered.checkpoint_logs,
        state: recovered.checkpoint_state,
        ended: recovered.checkpoint_ended,
        replay,
        checkpoint: found.unwrap_or_default(),
        next_sequence,
        spares: Files::list(&*storage)?.spares,
        undeleted,
    };
    restore_archive(&journal, &recovered.state, &recovered.ended)?;
    let missing = |(id, sequence)| missing::misses(&journal, id, sequence).err().map(|error| (id, error));
    #[cfg(feature = "planted")]
    let missing = |(id, sequence)| match journal.planted() {
        Some(crate::Planted::JudgeLate) => Some((id, OpenError::MissingSegment { sequence })),
        _ => missing((id, sequence)),
    };
    journal.set_lacking(recovered.lacking.into_iter().filter_map(missing).collect());
    journal.set_recovered_state(recovered.state);
    let archiver = Archiver::new(Arc::clone(&journal));
    let keeper = Keeper::new(Arc::clone(&journal), storage, keeper_start);
    let writer = Writer::new(Arc::clone(&journal), submitter, start);
    Ok(Opened { journal, writer, keeper, archiver, replayed_bytes: recovered.replayed_bytes })
}

/// Removes segments that others replace, and returns those whose files stay.
fn remove_replaced(storage: &dyn Storage, files: &Files, journal: &Journal) -> Result<BTreeMap<u64, u64>, OpenError> {
    let replaced = replaced::find(storage, &files.segments, journal.uuid());
    #[cfg(feature = "planted")]
    let replaced = if journal.planted() == Some(crate::Planted::TakeUnreadable) {
        Ok(replaced.unwrap_or_default())
    } else {
        replaced
    };
    let mut replaced = replaced?;
    if !replaced.is_empty() {
        // The name of what replaces them may not be durable.
        storage.sync_folder().map_err(io_error("flush the folder"))?;
    }
    replaced::remove(storage, journal.number(), &mut replaced);
    Ok(replaced)
}

/// What was recovered is missed from now on when it is gone. Nothing depends on it otherwise.
pub(crate) fn note_reached(storage: &dyn Storage, journal: &Journal, index: LogIndex) {
    if let Err(error) = reached::write(storage, journal.uuid(), index) {
        tracing::warn!(journal = journal.number(), %error, "how far the journal has come could not be written");
    }
}

/// Gives each log what the archive holds of it.
fn restore_archive(journal: &Journal, state: &StateMap, ended: &HashSet<LogId>) -> Result<(), ArchiveRecordError> {
    for object in archive::decode_records(state.iter())? {
        if ended.contains(&object.log) {
            journal.archive().leave([object]);
            continue;
        }
        let log = journal.create_log(object.log, Durability::Fsync);
        journal.archive().leave(log.enter_archived(object).unwrap_or_else(|object| vec![object]));
    }
    Ok(())
}

/// The folder's files by what they are.
struct Files {
    segments: Vec<u64>,
    spares: Vec<String>,
    checkpoints: Vec<&'static str>,
}

impl Files {
    fn list(storage: &dyn Storage) -> Result<Self, OpenError> {
        let names = storage.list().map_err(io_error("list the journal's folder"))?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| sequence_of(name)).collect();
        segments.sort_unstable();
        Ok(Self {
            segments,
            checkpoints: checkpoint::NAMES.into_iter().filter(|one| names.iter().any(|name| name == one)).collect(),
            spares: names.into_iter().filter(|name| name.starts_with(PREFIX_SPARE)).collect(),
        })
    }

    /// There was a checkpoint before anything is rewritten, and what was rewritten cannot be replayed without one.
    fn has_rewritten(&self, storage: &dyn Storage) -> Result<bool, OpenError> {
        for sequence in &self.segments {
            if is_rewritten(storage, &segment_name(*sequence))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Without a checkpoint the first segment says whose journal this is.
    fn journal_uuid(&self, storage: &dyn Storage) -> Result<Option<Uuid>, OpenError> {
        let Some(first) = self.segments.first() else { return Ok(None) };
        let file = open_named(storage, &segment_name(*first))?;
        match SegmentHeader::read(&*file) {
            Ok(header) => Ok(Some(header.journal)),
            Err(error @ SegmentError::Corrupt { .. }) if *first == 1 && self.segments.len() == 1 => {
                // It was made and not begun; unless there are chunks.
                if scan::first_header(&file, *first)?.is_some() { Err(error.into()) } else { Ok(None) }
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The newest checkpoint that can be read, whatever its name is.
fn read_checkpoint(storage: &dyn Storage, files: &Files) -> Result<Option<(Checkpoint, FoundCheckpoint)>, OpenError> {
    let (mut whole, mut unread) = (Vec::new(), Vec::new());
    for name in &files.checkpoints {
        match read_one(storage, name) {
            Ok(checkpoint) => whole.push((*name, checkpoint)),
            Err(error @ OpenError::Checkpoint(CheckpointError::NewerVersion { .. })) if *name == checkpoint::NAME => {
                return Err(error);
            }
            Err(error) => unread.push((*name, error)),
        }
    }
    let owner = files
        .segments
        .iter()
        .find_map(|sequence| SegmentHeader::read(&*storage.open(&segment_name(*sequence)).ok()?).ok());
    let Some((used, checkpoint)) = Checkpoint::best(whole, owner.map(|header| header.journal)) else {
        return match unread.into_iter().next() {
            Some((_, error)) => Err(error),
            None if files.has_rewritten(storage)? => Err(CheckpointError::Corrupt(checkpoint::BOTH_MISSING).into()),
            None => Ok(None),
        };
    };
    for (file, error) in &unread {
        tracing::error!(file, %error, used, "a checkpoint cannot be read; another one is used, which says the same");
    }
    if !files.checkpoints.contains(&checkpoint::NAME) {
        tracing::error!(
            file = checkpoint::NAME,
            used,
            "a checkpoint is not there; another one is used, which says the same"
        );
    }
    let third = files.checkpoints.contains(&checkpoint::NAME_THIRD);
    let found = FoundCheckpoint { number: checkpoint.number, others_unread: !unread.is_empty(), third };
    Ok(Some((checkpoint, found)))
}

/// Does the file's header say that it was made of others? A damaged one says nothing.
///
/// # Errors
/// `Io`, `Segment`: the file cannot be opened or read now.
pub(crate) fn is_rewritten(storage: &dyn Storage, name: &str) -> Result<bool, OpenError> {
    let file = open_named(storage, name)?;
    match SegmentHeader::read(&*file) {
        Ok(header) => Ok(header.kind == SegmentKind::Rewritten),
        Err(SegmentError::Corrupt { .. } | SegmentError::NewerVersion { .. }) => Ok(false),
        Err(error @ SegmentError::Io { .. }) => Err(error.into()),
    }
}

fn read_one(storage: &dyn Storage, name: &str) -> Result<Checkpoint, OpenError> {
    let file = storage.open_to_read(name).map_err(naming(name)).map_err(io_error("open the checkpoint"))?;
    let size = file.size().map_err(io_error("read the checkpoint"))? as usize;
    let mut bytes = vec![0; size];
    file.read_at(0, &mut bytes).map_err(naming(name)).map_err(io_error("read the checkpoint"))?;
    Ok(checkpoint::decode(&bytes)?)
}

/// Makes segment `sequence`, to be written from its start. A file that is there already stays: a checkpoint may say that it is.
fn begin_segment(journal: &Journal, storage: &dyn Storage, sequence: u64) -> Result<ActiveSegment, OpenError> {
    let (name, size) = (segment_name(sequence), journal.config().segment_bytes);
    let file = if is_there(storage, sequence)? {
        let file = open_named(storage, &name)?;
        file.allocate(size).map_err(io_error("create a segment"))?;
        file
    } else {
        storage.create(&name, size).map_err(io_error("create a segment"))?
    };
    let header = SegmentHeader {
        kind: SegmentKind::Journal,
        journal: journal.uuid(),
        sequence,
        created: journal.now_ms(),
        replaces: Vec::new(),
    };
    file.write_at(0, &header.encode()).map_err(io_error("write a segment"))?;
    journal.segments().insert(sequence, Arc::clone(&file));
    Ok(active_segment(journal, sequence, file, size))
}

/// What a repair has made, or something else has cut, is made as long as a segment is; if there is no space, it is left soon.
fn grown(journal: &Journal, active: ActiveSegment) -> ActiveSegment {
    let bytes = journal.config().segment_bytes;
    if active.size >= bytes || active.file.is_linked().unwrap_or(true) || active.file.allocate(bytes).is_err() {
        return active;
    }
    #[cfg(feature = "planted")]
    if journal.planted() == Some(crate::Planted::GrowUncounted) {
        return ActiveSegment { size: bytes, ..active };
    }
    if let Some(segment) = journal.segments().get(active.sequence) {
        segment.set_bytes(bytes);
    }
    ActiveSegment { size: bytes, ..active }
}

fn active_segment(journal: &Journal, sequence: u64, file: Arc<dyn File>, size: u64) -> ActiveSegment {
    ActiveSegment {
        sequence,
        file,
        size,
        position: SEGMENT_HEADER_BYTES as u64,
        written_before: SEGMENT_HEADER_BYTES as u64,
        for_state: false,
        runs: SegmentRuns::new(journal.recent(), sequence),
        state: StateChanges::default(),
        touched: TouchedLogs::new(journal.drops()),
    }
}

/// What replay leaves.
struct Recovered {
    chain: Chain,
    active: ActiveSegment,
    sealing: Vec<SealJob>,
    state: StateMap,
    checkpoint_logs: BTreeMap<LogId, Vec<u8>>,
    checkpoint_state: StateMap,
    checkpoint_ended: Vec<LogId>,
    ended: HashSet<LogId>,
    lacking: Vec<(LogId, u64)>,
    replayed_bytes: u64,
    unproven: Unproven,
}

/// Applies the checkpoint, then chunks, to the logs.
struct Replay {
    journal: Arc<Journal>,
    from: ReplayFrom,
    /// A checkpoint says where to begin.
    checkpointed: bool,
    /// The checkpoint is of a release that left out logs which were deleted behind it.
    omits: bool,
    /// Segments that others replace, whose files stay.
    undeleted: BTreeSet<u64>,
    /// Logs that have ended, as far as the checkpoint and replay say.
    ended: HashSet<LogId>,
    state: StateMap,
    checkpoint_logs: BTreeMap<LogId, Vec<u8>>,
    checkpoint_state: StateMap,
    checkpoint_ended: Vec<LogId>,
    replayed_bytes: u64,
    unproven: Unproven,
}

impl Replay {
    fn new(journal: Arc<Journal>, from: ReplayFrom) -> Self {
        Self {
            journal,
            from,
            checkpointed: false,
            omits: false,
            undeleted: BTreeSet::new(),
            ended: HashSet::new(),
            state: StateMap::default(),
            checkpoint_logs: BTreeMap::new(),
            checkpoint_state: StateMap::default(),
            checkpoint_ended: Vec::new(),
            replayed_bytes: 0,
            unproven: Unproven::default(),
        }
    }

    fn load(&mut self, checkpoint: Checkpoint) {
        for CheckpointLog { id, start, end, bytes, terms, producers, marked, segments, .. } in checkpoint.logs {
            let log = self.journal.create_log(id, Durability::Fsync);
            log.reset(start, end, bytes);
            // A checkpoint is of the end of a sealed segment.
            log.set_sealed_until(end);
            log.set_marked(marked);
            // Its record is on the disk.
            log.touch(u64::MAX, 0);
            let mut inner = log.inner();
            inner.set_terms(terms);
            inner.segments = segments;
            inner.sealed_bytes = bytes;
            if !producers.transactions().is_empty() {
                log.set_transactional();
            }
            if !producers.is_empty() {
                let mut producers = Box::new(producers);
                producers.count_in(log.producer_room());
                inner.producers = Some(producers);
            }
            drop(inner);
            let mut record = Vec::new();
            checkpoint::encode_log(&log, &mut record);
            self.checkpoint_logs.insert(id, record);
        }
        self.state = checkpoint.state.iter().collect();
        self.checkpoint_state = checkpoint.state;
        self.ended = checkpoint.ended.iter().copied().collect();
        self.checkpoint_ended = checkpoint.ended;
        self.omits = checkpoint.omits;
    }

    fn run(mut self, storage: &dyn Storage) -> Result<Recovered, OpenError> {
        let lacking = self.open_sealed(storage)?;
        let mut chain = Chain::from(self.from);
        let mut sequence = self.from.segment;
        let mut sealing: Vec<SealJob> = Vec::new();
        let mut active: Option<ActiveSegment> = None;
        while let Some(file) = open_segment(storage, sequence, self.journal.uuid(), &chain)? {
            if let Some(full) = active.take() {
                if !chain.left && !goes_on(&full, &file, self.journal.uuid(), &chain)? {
                    // Prepared, but nothing of it continues the journal.
                    active = Some(full);
                    break;
                }
                sealing.push(SealJob::new(full, chain.index, chain.term, chain.crc));
            }
            let size = file.size().map_err(io_error("read a segment"))?;
            self.journal.segments().insert(sequence, Arc::clone(&file));
            let mut next = active_segment(&self.journal, sequence, file, size);
            chain.left = false;
            self.scan_segment(&mut chain, &mut next)?;
            active = Some(next);
            sequence += 1;
        }
        // A checkpoint is written, and a segment left, when the next segment is there.
        if chain.left || (active.is_none() && self.checkpointed && !is_there(storage, sequence)?) {
            return Err(OpenError::MissingSegment { sequence });
        }
        check_behind(storage, sequence, self.journal.uuid(), &chain)?;
        let reached = reached::read(storage, self.journal.uuid());
        if chain.index < reached {
            let (file, position) = active
                .as_ref()
                .map_or((segment_name(self.from.segment), 0), |active| (active.file.name(), active.position));
            return Err(SegmentError::Corrupt { file, position, what: short(chain.index, reached) }.into());
        }
        let active = match active {
            Some(active) => grown(&self.journal, active),
            // Nothing behind the checkpoint, or nothing at all.
            None => begin_segment(&self.journal, storage, self.from.segment)?,
        };
        Ok(Recovered {
            chain,
            active,
            sealing,
            state: self.state,
            checkpoint_logs: self.checkpoint_logs,
            checkpoint_state: self.checkpoint_state,
            checkpoint_ended: self.checkpoint_ended,
            ended: self.ended,
            lacking,
            replayed_bytes: self.replayed_bytes,
            unproven: self.unproven,
        })
    }

    /// Segments that the checkpoint covers: their indexes are on disk. Returns logs of which a segment is gone, with the first such segment.
    fn open_sealed(&self, storage: &dyn Storage) -> Result<Vec<(LogId, u64)>, OpenError> {
        let mut rewritten = Vec::new();
        let is_covered = |sequence: &u64| *sequence < self.from.segment && !self.undeleted.contains(sequence);
        for sequence in Files::list(storage)?.segments.into_iter().filter(is_covered) {
            let file = open_named(storage, &segment_name(sequence))?;
            let header = SegmentHeader::read(&*file)?;
            if header.kind == SegmentKind::Rewritten {
                rewritten.push((sequence, header.replaces));
            }
            let cache = Arc::clone(self.journal.index_cache());
            let index = SealedIndex::open(Arc::clone(&file), self.journal.uuid(), sequence, cache)?;
            self.journal.segments().insert_sealed(sequence, file, index);
        }
        let mut lacking = Vec::new();
        for log in self.journal.all_logs() {
            self.follow_rewritten(&log, &rewritten)?;
            let mut inner = log.inner();
            let gone: Vec<u64> =
                inner.segments.iter().filter(|sequence| self.journal.segments().get(*sequence).is_none()).collect();
            if let Some(first) = gone.first() {
                lacking.push((log.id(), *first));
            }
            gone.into_iter().for_each(|sequence| inner.segments.remove(sequence));
        }
        Ok(lacking)
    }

    /// A rewriting after the checkpoint moved runs to another segment than the checkpoint says.
    fn follow_rewritten(&self, log: &crate::Log, rewritten: &[(u64, Vec<u64>)]) -> Result<(), OpenError> {
        for (sequence, replaces) in rewritten {
            let held: Vec<u64> =
                log.inner().segments.iter().filter(|held| held != sequence && replaces.contains(held)).collect();
            if held.is_empty() {
                continue;
            }
            let Some(segment) = self.journal.segments().get(*sequence) else { continue };
            let row = segment.index.get().map_or(Ok(None), |index| index.row(log.id()))?;
            let mut inner = log.inner();
            held.into_iter().for_each(|replaced| inner.segments.remove(replaced));
            // What lay between them was dead when they were put together; its file may be there still, and has nothing of what follows.
            let last = replaces.iter().max().copied().unwrap_or(0);
            let between: Vec<u64> = inner.segments.iter().filter(|held| *sequence < *held && *held < last).collect();
            between.into_iter().for_each(|dead| inner.segments.remove(dead));
            if row.is_some() {
                inner.segments.insert(*sequence);
            }
        }
        Ok(())
    }

    /// A log of which neither the checkpoint nor replay has anything yet. An older release left out of its checkpoints what it had dropped, also
    /// where records of it are replayed: such a log is what these say, and its place in the next checkpoint is before them.
    fn begin_log(&mut self, id: LogId, base: Offset) -> Arc<crate::Log> {
        let log = self.journal.create_log(id, Durability::Fsync);
        if self.omits && base > Offset::ZERO {
            log.reset(base, base, 0);
            log.set_sealed_until(base);
            let mut record = Vec::new();
            checkpoint::encode_log(&log, &mut record);
            self.checkpoint_logs.insert(id, record);
            self.journal.note_begun_late(id, base);
        }
        log
    }

    fn scan_segment(&mut self, chain: &mut Chain, active: &mut ActiveSegment) -> Result<(), OpenError> {
        let mut scanner = scan::Scanner::new(Arc::clone(&active.file), self.journal.uuid(), active.sequence);
        #[cfg(feature = "planted")]
        {
            scanner.trusts_shared = self.journal.planted() == Some(crate::Planted::TrustSharedBodies);
            scanner.short_sight = self.journal.planted() == Some(crate::Planted::ShortSight);
        }
        while let Some(scanned) = scanner.next(chain, active.position)? {
            let next = scanned.chain();
            let Scanned { header, entries, chunk, .. } = scanned;
            for entry in &entries {
                self.apply(entry, &chunk, &header, active)?;
            }
            *chain = next;
            self.unproven.add(&header, &active.file, active.position);
            active.position += u64::from(header.chunk_bytes);
            active.written_before = active.position;
            self.replayed_bytes += u64::from(header.chunk_bytes);
        }
        Ok(())
    }

    fn apply(
        &mut self,
        entry: &Entry,
        chunk: &Bytes,
        header: &crate::chunk::ChunkHeader,
        active: &mut ActiveSegment,
    ) -> Result<(), OpenError> {
        let wrong = |what: &str| SegmentError::Corrupt {
            file: active.file.name(),
            position: active.position + u64::from(entry.position),
            what: what.to_owned(),
        };
        match entry.kind {
            EntryKind::NewTerm => {}
            EntryKind::State => {
                let bytes = body(entry, chunk).map_err(|error| wrong(&error.to_string()))?;
                let (key, value) = split_state(bytes).map_err(|error| wrong(&error.to_string()))?;
                let value = (entry.flags & FLAG_DELETED == 0).then_some(value);
                // Objects are of logs that have records in sealed segments. One that is nowhere had ended when the archiver did not know it yet.
                let late =
                    archive::log_of(key).filter(|id| value.is_some() && !self.omits && self.journal.log(*id).is_none());
                self.ended.extend(late);
                self.state.put(key, value);
                active.state.put(key, value);
            }
            // What is known of the log begins behind this.
            EntryKind::Trim if self.omits && entry.base > Offset::ZERO && self.journal.log(entry.log).is_none() => {}
            EntryKind::Trim => {
                let log = self.journal.create_log(entry.log, Durability::Fsync);
                log.trim(entry.base);
                active.touch(&log);
            }
            // A shared entry comes as one of data for each of its logs.
            EntryKind::Shared => return Err(wrong("shared entry").into()),
            EntryKind::Drop => {
                self.ended.insert(entry.log);
                if let Some(log) = self.journal.log(entry.log) {
                    log.inner().ended = true;
                    active.touch(&log);
                    self.journal.forget_logs(&[log]);
                }
            }
            EntryKind::Data => {
                #[cfg(feature = "planted")]
                if self.journal.planted() == Some(crate::Planted::DropAbsent)
                    && self.checkpointed
                    && !self.checkpoint_logs.contains_key(&entry.log)
                {
                    return Ok(());
                }
                let log = self.journal.log(entry.log).unwrap_or_else(|| self.begin_log(entry.log, entry.base));
                if log.end() != entry.base {
                    return Err(wrong("offsets do not follow each other").into());
                }
                let bytes = body(entry, chunk).map_err(|error| wrong(&error.to_string()))?;
                replay_run(&log, entry, bytes, header, active);
            }
        }
        Ok(())
    }
}

fn replay_run(
    log: &Arc<crate::Log>,
    entry: &Entry,
    bytes: &[u8],
    header: &crate::chunk::ChunkHeader,
    active: &mut ActiveSegment,
) {
    let run = Run {
        log: entry.log,
        base: entry.base,
        next: entry.next(),
        position: active.position as u32 + entry.position,
        bytes: entry.bytes,
        crc: entry.crc,
        records: entry.records,
        shared: entry.shared,
        max_timestamp: entry.max_timestamp,
        append_time: header.time,
    };
    let place = active.touch(log);
    let number = active.runs.push(&run, place, header.index);
    let mut inner = log.inner();
    // What is shared is of no producer that is known.
    for (at, batch) in record::Batches::new(bytes).map_while(Result::ok).filter(|_| !entry.shared) {
        if !batch.idempotent() {
            continue;
        }
        let producers = inner.producers.get_or_insert_with(|| Box::new(Producers::counted(log.producer_room())));
        if batch.transactional() {
            log.set_transactional();
            log.set_marked(batch.next());
        }
        match Marker::of(&batch, &bytes[at..]) {
            Some(marker) => {
                producers.end_transaction(&batch, marker, batch.base(), header.time, (log.start(), entry.next()))
            }
            None => producers.remember(&batch, batch.base(), header.time),
        }
    }
    if u64::from(entry.records) < entry.next().since(entry.base) {
        // A repair has put it in the place of records.
        log.set_marked(entry.next());
    }
    inner.enter_term(header.term, entry.base);
    inner.runs.push(number);
    drop(inner);
    log.reset(log.start(), Offset(entry.next().0), log.counted_bytes() + u64::from(entry.bytes));
}

/// The segment that goes on where `chain` ends; `None`: there is none, or it was prepared and not begun.
///
/// Its header is flushed before its first chunk is written. A header that cannot be read is therefore what a crash left while the segment was being
/// prepared, and nothing can be in it; or it is damage, if what continues the journal is behind it.
fn open_segment(
    storage: &dyn Storage,
    sequence: u64,
    uuid: Uuid,
    chain: &Chain,
) -> Result<Option<Arc<dyn File>>, OpenError> {
    let name = segment_name(sequence);
    if !storage.list().map_err(io_error("list the journal's folder"))?.contains(&name) {
        return Ok(None);
    }
    let file = open_named(storage, &name)?;
    let what = match SegmentHeader::read(&*file) {
        Ok(header) if header.sequence == sequence && header.journal == uuid && header.kind == SegmentKind::Journal => {
            return Ok(Some(file));
        }
        Ok(_) => "the header of another segment".to_owned(),
        Err(SegmentError::Corrupt { what, .. }) => what,
        Err(error) => return Err(error.into()),
    };
    match scan::Scanner::new(Arc::clone(&file), uuid, sequence).next(chain, SEGMENT_HEADER_BYTES as u64) {
        Ok(None) if !chain.left => Ok(None),
        Ok(_) | Err(OpenError::Segment(SegmentError::Corrupt { .. })) => {
            Err(SegmentError::Corrupt { file: file.name(), position: 0, what }.into())
        }
        Err(error) => Err(error),
    }
}

/// What is wrong with a journal that had come further.
pub(crate) fn short(ends: LogIndex, reached: LogIndex) -> String {
    format!("the journal ends here with chunk {ends}, and had come to chunk {reached}")
}
