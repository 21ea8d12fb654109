//! Looking at all files of a journal that nobody has open: every checksum, what is damaged, and which offsets of which log are lost with it.
//!
//! Recovery reads as little as it can and stops at the first damage; this reads everything and goes on behind it. Then recovery itself is
//! asked (`rehearsal`): what it refuses is damage too.
//!
//! ```text
//! checkpoint ── segments that it covers: chunks or bodies, index ── segments behind it: chunks, in the chain ── archive objects
//! ```
//!
//! What is lost of a log is what lies between its start and its end and in nothing that is whole. Damage in what no log needs any more loses
//! nothing.

mod bodies;
mod chunks;
mod gone;
mod objects;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use types::{LogId, LogIndex, Offset, Term, Timestamp};
use uuid::Uuid;

use crate::archive::{ArchiveStore, Archived};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::disk::{File, RealStorage, Storage};
use crate::index::{IndexCache, SealedIndex};
use crate::journal::JournalConfig;
use crate::reached;
use crate::recovery::scan::{Chain, Scanner};
use crate::recovery::spare_name;
use crate::rehearsal::rehearse_on;
use crate::run::Run;
use crate::segments::{
    REPLACES_MAX, SEGMENT_HEADER_BYTES, SegmentError, SegmentHeader, SegmentKind, segment_name, sequence_of,
};
use crate::state::StateMap;

/// Pages of an index that are kept while it is looked through.
const INDEX_BYTES: usize = 4 << 20;

/// A place where a file is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// By which it is called: number of the journal, sequence of the segment, byte position.
    pub id: String,
    /// Which file.
    pub file: String,
    /// Where, in bytes.
    pub position: u64,
    /// What does not fit.
    pub what: String,
    pub(crate) place: Place,
}

impl Damage {
    /// Can something whole be put in its place, so that everything else is readable?
    pub fn is_repairable(&self) -> bool {
        !matches!(self.place, Place::Elsewhere | Place::Object)
    }

    /// May more be lost with it than what is listed of logs? Of chunks of which nothing is known, or that are gone, what a log had at its very end is
    /// not known, and of state records that are damaged not even what they were about.
    pub fn hides_more(&self) -> bool {
        match self.place {
            Place::Elsewhere | Place::Hole(_) | Place::Newest { .. } | Place::End(_) => true,
            Place::Bodies { state, .. } => state > 0,
            Place::Object
            | Place::Sealed(_)
            | Place::Header { .. }
            | Place::Misnamed { .. }
            | Place::Checkpoint { .. } => false,
        }
    }

    /// Is it in an object of the archive?
    pub fn is_of_object(&self) -> bool {
        self.place == Place::Object
    }

    /// Can nothing be put in its place, and no journal be opened with it?
    pub fn is_fatal(&self) -> bool {
        self.place == Place::Elsewhere
    }
}

/// What a repair has to do with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// There is nothing that could be put in its place.
    #[default]
    Elsewhere,
    /// In an object of the archive: nothing either, and only those notice who read it.
    Object,
    /// In a segment that the checkpoint covers.
    Sealed(u64),
    /// The header of a segment behind the checkpoint; all that it said is known, but for when it was made, which is no later than this.
    Header { sequence: u64, created: Timestamp },
    /// A chunk behind the checkpoint whose directory is whole, and some bodies are not; so many of them are state records.
    Bodies { sequence: u64, position: u64, state: usize },
    /// Chunks behind the checkpoint of which nothing is known.
    Hole(Hole),
    /// The newest segment, of which there is nothing.
    Newest { sequence: u64, created: Timestamp },
    /// A segment whose file has this name.
    Misnamed { sequence: u64, name: String },
    /// The end of the journal, which had come further than this segment.
    End(u64),
    /// One of the two checkpoints; the other is whole.
    Checkpoint { damaged: &'static str, whole: &'static str },
}

/// Chunks of which nothing is known, between two that are whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hole {
    pub sequence: u64,
    /// The bytes that they take.
    pub bytes: Range<u64>,
    /// The first of them, and the last.
    pub first: LogIndex,
    pub last: LogIndex,
    pub term: Term,
    /// Time of the chunk before.
    pub time: Timestamp,
    /// CRC of the header of the chunk before, and the one that the chunk behind expects.
    pub previous_crc: u32,
    pub crc: u32,
    /// It is the end of the segment: chunks in its place may take more bytes.
    pub at_end: bool,
    /// Nothing of the segment is left: it is made anew.
    pub begins: bool,
    /// What is missing of logs that go on behind it.
    pub gaps: Vec<(LogId, Range<Offset>)>,
}

/// What there is of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSurvey {
    /// First offset.
    pub start: Offset,
    /// Offset after the last.
    pub end: Offset,
    /// What lies in between and is gone, in order.
    pub lost: Vec<Range<Offset>>,
    /// Terms and the first offset of each, as the checkpoint says.
    pub(crate) terms: Vec<(Term, Offset)>,
}

impl LogSurvey {
    /// In which term an offset was written that the checkpoint covers.
    pub(crate) fn term_at(&self, offset: Offset) -> Term {
        let after = self.terms.partition_point(|(_, first)| *first <= offset);
        after.checked_sub(1).map_or_else(Term::default, |at| self.terms[at].0)
    }
}

/// A segment and what is whole in it.
pub(crate) struct SegmentSurvey {
    pub sequence: u64,
    /// `None`: it is gone.
    pub file: Option<Arc<dyn File>>,
    pub runs: Vec<Run>,
    /// Runs that are not whole, as its index says or what is left of its chunks; `None`: the index is not readable either.
    pub broken: Option<Vec<Run>>,
    /// What is said of its last chunk.
    pub last: Option<(LogIndex, Term, u32)>,
    /// Segments whose runs it has, as its header says; its own first. Empty: not known.
    pub replaces: Vec<u64>,
}

/// What was found.
#[derive(Default)]
pub struct Survey {
    /// Whose files; nil when not even that is known.
    pub journal: Uuid,
    /// The newest chunk.
    pub last: LogIndex,
    /// Chunks and runs that are whole.
    pub chunks: u64,
    /// See `chunks`.
    pub runs: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Archive objects that hold records of its logs, there or not.
    pub objects: u64,
    /// In the order of files and positions.
    pub damages: Vec<Damage>,
    /// Both checkpoints are damaged or missing: nothing can be said of its segments, and none was read.
    pub without_checkpoint: bool,
    /// Every log that the checkpoint or a later chunk names and that has not ended.
    pub logs: BTreeMap<LogId, LogSurvey>,
    pub(crate) segments: Vec<SegmentSurvey>,
    /// Those of them that the checkpoint covers.
    sealed: HashSet<u64>,
    pub(crate) number: usize,
    /// Which segments that the checkpoint names of which logs are not there.
    pub(crate) gone: Vec<(LogId, u64)>,
    pub(crate) state: StateMap,
    archived: HashMap<LogId, Vec<Range<Offset>>>,
    /// Offsets before are in the archive.
    pub(crate) archived_until: HashMap<LogId, Offset>,
}

/// Why a journal cannot even be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// Written by a newer release.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The checkpoint is of a newer release.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file is damaged.
    #[error("{file}, byte {position}: {what}")]
    Damaged {
        /// Which file.
        file: String,
        /// Where, in bytes.
        position: u64,
        /// What does not fit.
        what: String,
    },
    /// The folder cannot be read.
    #[error("{what}: {source}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

/// Told how many bytes were read since the last time.
pub type Progress<'a> = &'a dyn Fn(u64);

/// Looks at the files in `folder`, which are those of journal `number` of a node.
///
/// # Errors
/// `Io`: the folder cannot be listed. `Segment`, `Checkpoint`: written by a newer release.
pub fn survey(
    folder: &Path,
    number: usize,
    archive: &dyn ArchiveStore,
    progress: Progress<'_>,
) -> Result<Survey, SurveyError> {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::read_only(folder));
    let config = JournalConfig { number: number as u16, ..JournalConfig::default() };
    look_at(&storage, folder.display().to_string(), &config, archive, progress)
}

/// [`survey`] of the journal in `storage`, which is only read.
///
/// # Errors
/// As [`survey`].
pub fn survey_on(
    storage: &Arc<dyn Storage>,
    config: &JournalConfig,
    archive: &dyn ArchiveStore,
    progress: Progress<'_>,
) -> Result<Survey, SurveyError> {
    look_at(storage, "the journal's folder".to_owned(), config, archive, progress)
}

fn look_at(
    storage: &Arc<dyn Storage>,
    folder: String,
    config: &JournalConfig,
    archive: &dyn ArchiveStore,
    progress: Progress<'_>,
) -> Result<Survey, SurveyError> {
    let names = storage.list().map_err(|source| SurveyError::Io { what: "list the journal's folder", source })?;
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| sequence_of(name)).collect();
    sequences.sort_unstable();
    let mut surveyor = Surveyor::new(&**storage, config.number.into(), progress);
    let checkpoint = surveyor.begin(&names, &mut sequences)?;
    if let Some(oldest) =
        sequences.first().filter(|oldest| checkpoint.is_none() && **oldest > 1 && surveyor.found.damages.is_empty())
    {
        // Which segments are needed only a checkpoint says: one that is missing may have been freed.
        surveyor.missing(1, format!("there is no checkpoint, and segment {oldest} is the oldest"));
        return Ok(surveyor.found);
    }
    if surveyor.found.without_checkpoint {
        return Ok(surveyor.found);
    }
    let gone = surveyor.sealed_and_open(&sequences, checkpoint)?;
    surveyor.objects(archive);
    #[cfg(feature = "planted")]
    let blames = config.planted == Some(crate::Planted::BlameUsedAgain);
    #[cfg(not(feature = "planted"))]
    let blames = false;
    if !blames {
        surveyor.forget_used_again(&names);
    }
    surveyor.short();
    surveyor.found.find_lost();
    surveyor.stand_for(gone);
    surveyor.start(storage, folder, config);
    Ok(surveyor.found)
}

/// An archive object as the journal names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// In the archive.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Whose records …
    pub log: LogId,
    /// … from which offset on.
    pub base: Offset,
}

/// The objects that a journal names at its newest chunk, which nobody writes: those that are part of its logs. Only the checkpoint and what
/// is behind it is read.
///
/// # Errors
/// As [`survey`]; `Damaged`: what would say it is not readable.
pub fn named_objects(folder: &Path, number: usize) -> Result<Vec<NamedObject>, SurveyError> {
    named_objects_on(&RealStorage::read_only(folder), number)
}

/// The same of a journal on any disk.
///
/// # Errors
/// As [`named_objects`].
pub fn named_objects_on(storage: &dyn Storage, number: usize) -> Result<Vec<NamedObject>, SurveyError> {
    let names = storage.list().map_err(|source| SurveyError::Io { what: "list the journal's folder", source })?;
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| sequence_of(name)).collect();
    sequences.sort_unstable();
    let mut surveyor = Surveyor::new(storage, number, &|_| {});
    let replay = surveyor.begin(&names, &mut sequences)?.map(|checkpoint| checkpoint.replay);
    let chain = replay.map(Chain::from);
    let first = replay.map_or_else(|| sequences.first().copied().unwrap_or(1), |replay| replay.segment);
    surveyor.all_open(&sequences, first, chain)?;
    let objects = surveyor.named();
    let Survey { damages, journal, .. } = surveyor.found;
    if let Some(Damage { file, position, what, .. }) = damages.into_iter().next() {
        return Err(SurveyError::Damaged { file, position, what });
    }
    let named = |object: Arc<Archived>| NamedObject {
        name: object.name(journal),
        bytes: object.length,
        log: object.log,
        base: object.base,
    };
    Ok(objects.into_iter().filter(|object| object.length > 0).map(named).collect())
}

struct Surveyor<'a> {
    storage: &'a dyn Storage,
    number: usize,
    progress: Progress<'a>,
    found: Survey,
    /// How far the journal had come at least.
    reached: LogIndex,
    /// Where it ends: segment and position.
    end: (u64, u64),
    /// Segments whose files have another name, and that name.
    misnamed: HashMap<u64, String>,
    /// Segments whose records others have, as the headers of these say.
    replaced: HashSet<u64>,
    /// Beside a rewritten segment whose header is damaged: segments that are there and of which nothing counts. It may have replaced them.
    unneeded: Vec<u64>,
}

/// A segment that can be opened.
struct Opened {
    sequence: u64,
    file: Arc<dyn File>,
    header: SegmentHeader,
    /// Why its header is not one; then `header` is what chunks say.
    wrong: Option<SegmentError>,
}

impl Opened {
    /// Is it a rewritten one that does not say any more which segments it replaces?
    fn may_replace_any(&self) -> bool {
        self.wrong.is_some() && self.header.kind == SegmentKind::Rewritten
    }
}

/// Those of `covered`, segments before the checkpoint, of which nothing counts, as a start sees it: the checkpoint names them of no log, and they replace none that it
/// names. They are dead, or their files could not be removed when they were rewritten.
fn unneeded(covered: &[Opened], checkpoint: &Checkpoint) -> Vec<u64> {
    let named: HashSet<u64> = checkpoint.logs.iter().flat_map(|log| log.segments.iter()).collect();
    let counts = |one: &&Opened| {
        one.wrong.is_some()
            || named.contains(&one.sequence)
            || one.header.replaces.iter().any(|replaced| named.contains(replaced))
    };
    covered.iter().filter(|one| !counts(one)).map(|one| one.sequence).collect()
}

/// What does not fit, without the file.
fn words(error: &SegmentError) -> String {
    match error {
        SegmentError::Corrupt { what, .. } => what.clone(),
        other => other.to_string(),
    }
}

impl<'a> Surveyor<'a> {
    fn new(storage: &'a dyn Storage, number: usize, progress: Progress<'a>) -> Self {
        let found = Survey { number, ..Survey::default() };
        Self {
            storage,
            number,
            progress,
            found,
            reached: LogIndex(0),
            end: (1, 0),
            misnamed: HashMap::new(),
            replaced: HashSet::new(),
            unneeded: Vec::new(),
        }
    }

    /// What is not in segments: the checkpoint, how far the journal had come, and which files have which names.
    fn begin(&mut self, names: &[String], sequences: &mut Vec<u64>) -> Result<Option<Checkpoint>, SurveyError> {
        let header = |sequence: &u64| SegmentHeader::read(&*self.storage.open(&segment_name(*sequence)).ok()?).ok();
        let owner = sequences.iter().find_map(header).map(|header| header.journal);
        let checkpoint = self.checkpoint(names, owner)?.map(|checkpoint| self.begin_with(checkpoint));
        self.find_misnamed(names, sequences);
        self.reached = reached::read(self.storage, owner.unwrap_or(self.found.journal));
        Ok(checkpoint)
    }
}

impl Surveyor<'_> {
    fn damage(&mut self, sequence: u64, file: &dyn File, position: u64, what: String) {
        self.damage_at(sequence, file, (position, Place::Sealed(sequence)), what);
    }

    fn damage_at(&mut self, sequence: u64, file: &dyn File, (position, place): (u64, Place), what: String) {
        let id = format!("{}-{sequence}-{position}", self.number);
        self.found.damages.push(Damage { id, file: file.name(), position, what, place });
    }

    /// What a start refuses is damage, also where nothing else was found that is.
    fn start(&mut self, storage: &Arc<dyn Storage>, folder: String, config: &JournalConfig) {
        if !self.found.damages.is_empty() {
            return;
        }
        // Whether a log misses records is found by what is lost.
        if let Err(error) = rehearse_on(storage, config) {
            let id = format!("{}-start", self.number);
            self.found.damages.push(Damage {
                id,
                file: folder,
                position: 0,
                what: error.to_string(),
                place: Place::Elsewhere,
            });
        }
    }

    fn read(&mut self, bytes: u64) {
        self.found.bytes += bytes;
        (self.progress)(bytes);
    }

    fn begin_with(&mut self, mut checkpoint: Checkpoint) -> Checkpoint {
        self.found.journal = checkpoint.journal;
        self.found.last = checkpoint.replay.index;
        for log in &mut checkpoint.logs {
            let terms = std::mem::take(&mut log.terms);
            self.found.logs.insert(log.id, LogSurvey { start: log.start, end: log.end, lost: Vec::new(), terms });
        }
        self.found.state = std::mem::take(&mut checkpoint.state);
        checkpoint
    }

    /// Opens a segment; damage when it cannot be.
    fn open(&mut self, sequence: u64) -> Result<Option<Opened>, SurveyError> {
        let name = segment_name(sequence);
        if let Some(opened) = self.open_misnamed(sequence) {
            return Ok(Some(opened));
        }
        let file = match self.storage.open(&name) {
            Ok(file) => file,
            Err(error) => {
                self.missing(sequence, error.to_string());
                return Ok(None);
            }
        };
        let wrong = match SegmentHeader::read(&*file) {
            Ok(header)
                if header.sequence == sequence
                    && (self.found.journal.is_nil() || header.journal == self.found.journal) =>
            {
                self.found.journal = header.journal;
                return Ok(Some(Opened { sequence, file, header, wrong: None }));
            }
            Ok(header) if header.journal == self.found.journal => {
                let what = format!("it is a copy of {}", segment_name(header.sequence));
                SegmentError::Corrupt { file: name, position: 0, what }
            }
            Ok(_) => SegmentError::Corrupt { file: name, position: 0, what: "a segment of another journal".to_owned() },
            Err(error @ SegmentError::NewerVersion { .. }) => return Err(error.into()),
            Err(error) => error,
        };
        // Of what chunks it is they say themselves; bodies without chunks are those of a rewritten one.
        let first = self.first_chunk(&file, sequence);
        let kind = if first.is_some() { SegmentKind::Journal } else { SegmentKind::Rewritten };
        let created = first.map_or(0, |chunk| chunk.time);
        let header = SegmentHeader { kind, journal: self.found.journal, sequence, created, replaces: Vec::new() };
        Ok(Some(Opened { sequence, file, header, wrong: Some(wrong) }))
    }

    /// A segment that should be there.
    fn missing(&mut self, sequence: u64, what: String) {
        let (id, file) = (format!("{}-{sequence}-0", self.number), segment_name(sequence));
        if !self.found.damages.iter().any(|damage| damage.id == id) {
            self.found.damages.push(Damage { id, file, position: 0, what, place: Place::Elsewhere });
        }
    }

    /// Returns which segments that the checkpoint names of which logs are not there, and were not replaced as far as headers say.
    fn sealed_and_open(
        &mut self,
        sequences: &[u64],
        checkpoint: Option<Checkpoint>,
    ) -> Result<Vec<(LogId, u64)>, SurveyError> {
        let replay = checkpoint.as_ref().map(|checkpoint| checkpoint.replay);
        let covered_until = replay.map_or(0, |replay| replay.segment);
        let mut covered = Vec::new();
        for sequence in sequences.iter().filter(|sequence| **sequence < covered_until) {
            covered.extend(self.open(*sequence)?);
        }
        // A crash between a rewriting's rename and the end of what it replaces.
        self.replaced = covered
            .iter()
            .filter(|one| one.header.kind == SegmentKind::Rewritten)
            .flat_map(|one| one.header.replaces.iter().copied().filter(|replaced| *replaced != one.sequence))
            .collect();
        if let Some(checkpoint) = checkpoint.as_ref().filter(|_| covered.iter().any(Opened::may_replace_any)) {
            self.unneeded = unneeded(&covered, checkpoint);
            self.replaced.extend(&self.unneeded);
        }
        for one in covered {
            if !self.replaced.contains(&one.sequence) {
                self.sealed(one);
            }
        }
        let chain = replay.map(Chain::from);
        let first = if replay.is_some() { covered_until } else { sequences.first().copied().unwrap_or(1) };
        self.all_open(sequences, first, chain)?;
        let gone = |sequence: &u64| sequences.binary_search(sequence).is_err() && !self.replaced.contains(sequence);
        let logs = checkpoint.iter().flat_map(|checkpoint| &checkpoint.logs);
        Ok(logs.flat_map(|log| log.segments.iter().filter(&gone).map(move |sequence| (log.id, sequence))).collect())
    }

    /// Segments behind the checkpoint, from `first` on.
    fn all_open(&mut self, sequences: &[u64], first: u64, mut chain: Option<Chain>) -> Result<(), SurveyError> {
        self.end = (first, 0);
        let mut sequence = first;
        loop {
            let before = chain.map(|chain| Chain { left: false, ..chain });
            let is_begun = match self.begun(sequences, sequence, chain)? {
                Some(one) => {
                    let next = self.open_chunks(one, before);
                    let is_begun = next != before || before.is_none();
                    chain = if is_begun { next } else { chain };
                    is_begun
                }
                None => false,
            };
            if is_begun {
                sequence += 1;
                continue;
            }
            let Some((later, next)) = chain.and_then(|chain| self.bridge(sequences, sequence, chain)) else { break };
            (sequence, chain) = (later, Some(next));
        }
        // As recovery does: what lies behind the end may say that more had been durable.
        let next = chain.map_or(LogIndex(0), |chain| chain.index).next();
        let is_there = sequences.contains(&sequence);
        if !is_there && chain.is_some_and(|chain| chain.left) {
            self.newest_missing(sequence, "it is missing, and the segment before says that it is there".to_owned());
        }
        if !is_there && sequence == first && chain.is_some() {
            self.newest_missing(
                sequence,
                "it is missing, and the checkpoint says that the journal goes on there".to_owned(),
            );
        }
        let was_aside = self.storage.open(&spare_name(sequence)).is_ok();
        for later in sequences.iter().filter(|later| **later > sequence) {
            let Ok(file) = self.storage.open(&segment_name(*later)) else { continue };
            let is_made = |header: SegmentHeader| header.journal == self.found.journal && header.sequence == *later;
            let is_made = !is_there && !was_aside && SegmentHeader::read(&*file).is_ok_and(is_made);
            let what = format!("it is missing, and segment {later} goes on behind it");
            if Scanner::new(file, self.found.journal, *later).says_durable(next).is_ok_and(|says| says) {
                self.missing(sequence, what);
            } else if is_made {
                self.newest_missing(sequence, what);
            }
        }
        Ok(())
    }

    /// The segment `sequence`, if it is there and was begun; damage of its header.
    fn begun(&mut self, sequences: &[u64], sequence: u64, chain: Option<Chain>) -> Result<Option<Opened>, SurveyError> {
        if !sequences.contains(&sequence) {
            return Ok(None);
        }
        let Some(mut one) = self.open(sequence)? else { return Ok(None) };
        if let Some(wrong) = one.wrong.take() {
            if !self.is_begun(&one, &wrong, chain) {
                return Ok(None);
            }
            let place = Place::Header { sequence, created: one.header.created };
            self.damage_at(sequence, &*one.file, (0, place), words(&wrong));
        }
        Ok(Some(one))
    }

    /// The newest segment should be there.
    fn newest_missing(&mut self, sequence: u64, what: String) {
        let id = format!("{}-{sequence}-0", self.number);
        if !self.found.damages.iter().any(|damage| damage.id == id) {
            let place = Place::Newest { sequence, created: 0 };
            self.found.damages.push(Damage { id, file: segment_name(sequence), position: 0, what, place });
        }
    }

    /// Does a segment without a header hold chunks of the journal? If not it was being prepared when the power went: a header is flushed
    /// before the first chunk.
    fn is_begun(&self, one: &Opened, wrong: &SegmentError, chain: Option<Chain>) -> bool {
        match (wrong, chain) {
            (SegmentError::Io { .. }, _) => true,
            (_, Some(chain)) if !chain.left => {
                let mut scanner = Scanner::new(Arc::clone(&one.file), self.found.journal, one.sequence);
                !matches!(scanner.next(&chain, SEGMENT_HEADER_BYTES as u64), Ok(None))
            }
            (_, Some(_)) => true,
            (_, None) => one.header.kind == SegmentKind::Journal,
        }
    }

    fn sealed(&mut self, one: Opened) {
        if let Some(wrong) = &one.wrong {
            self.damage(one.sequence, &*one.file, 0, words(wrong));
        }
        let cache = Arc::new(IndexCache::new(INDEX_BYTES));
        let index = SealedIndex::open(Arc::clone(&one.file), self.found.journal, one.sequence, cache);
        let rows = index.as_ref().map_err(ToString::to_string).and_then(|index| self.check_index(index));
        let info = index.as_ref().ok().map(|index| *index.info());
        let runs = rows.map_err(|what| {
            let at = one.file.size().unwrap_or(0);
            self.damage(one.sequence, &*one.file, at, format!("index: {what}"));
        });
        let mut last = info.map(|info| (info.last_index, info.last_term, info.last_crc));
        let whole = match (one.header.kind, &runs) {
            (SegmentKind::Journal, _) => {
                let (whole, newest) = self.sealed_chunks(&one, info.map(|info| info.last_index));
                last = last.or(newest);
                whole
            }
            (SegmentKind::Rewritten, Ok(runs)) => self.bodies(&one, runs.clone()),
            (SegmentKind::Rewritten, Err(())) => Vec::new(),
        };
        let there: HashSet<(LogId, Offset)> = whole.iter().map(|run| (run.log, run.base)).collect();
        let broken =
            runs.ok().map(|runs| runs.into_iter().filter(|run| !there.contains(&(run.log, run.base))).collect());
        let replaces = if one.header.kind == SegmentKind::Journal { vec![one.sequence] } else { one.header.replaces };
        self.found.sealed.insert(one.sequence);
        self.found.segments.push(SegmentSurvey {
            sequence: one.sequence,
            file: Some(one.file),
            runs: whole,
            broken,
            last,
            replaces,
        });
    }

    /// All entries of an index, page by page.
    fn check_index(&mut self, index: &SealedIndex) -> Result<Vec<Run>, String> {
        let mut runs = Vec::new();
        for row in index.rows().map_err(|error| error.to_string())? {
            for number in 0..row.entries {
                runs.push(index.run(&row, number).map_err(|error| error.to_string())?);
            }
        }
        Ok(runs)
    }

    /// A rewritten segment whose header is damaged stands for what is gone of the segments that the checkpoint names, and for those of which nothing counts. In the middle
    /// of a rewriting nobody knows what it stands for, and nothing can take its place.
    fn stand_for(&mut self, gone: Vec<(LogId, u64)>) {
        let Survey { segments, damages, .. } = &mut self.found;
        if segments.iter().all(|segment| !segment.replaces.is_empty()) {
            self.found.gone = gone;
            return;
        }
        let is_known = !has_twice(segments);
        let mut others: Vec<u64> =
            gone.into_iter().map(|(_, sequence)| sequence).chain(std::mem::take(&mut self.unneeded)).collect();
        others.sort_unstable();
        others.dedup();
        for segment in segments.iter_mut().filter(|segment| segment.replaces.is_empty()) {
            if is_known && others.len() < REPLACES_MAX {
                segment.replaces = std::iter::once(segment.sequence).chain(others.iter().copied()).collect();
                continue;
            }
            let place = Place::Sealed(segment.sequence);
            damages
                .iter_mut()
                .filter(|damage| damage.place == place)
                .for_each(|damage| damage.place = Place::Elsewhere);
        }
    }
}

impl Survey {
    /// Of a journal of which nothing was read.
    pub fn unread(journal: Uuid) -> Self {
        Self { journal, ..Self::default() }
    }

    /// What of each log is in nothing that is whole.
    fn find_lost(&mut self) {
        let mut whole: HashMap<LogId, Vec<Range<Offset>>> = std::mem::take(&mut self.archived);
        for run in self.segments.iter().flat_map(|segment| &segment.runs) {
            // Readers look for what lies before in the archive only.
            let base = run.base.max(self.archived_until.get(&run.log).copied().unwrap_or_default());
            if base >= run.next {
                continue;
            }
            let ranges = whole.entry(run.log).or_default();
            match ranges.last_mut() {
                Some(last) if last.end == base => last.end = run.next,
                _ => ranges.push(base..run.next),
            }
        }
        for (id, log) in &mut self.logs {
            let mut ranges = whole.remove(id).unwrap_or_default();
            ranges.sort_by_key(|range| range.start);
            let mut next = log.start;
            for range in ranges {
                if range.start > next {
                    log.lost.push(next..range.start.min(log.end));
                }
                next = next.max(range.end);
            }
            if next < log.end {
                log.lost.push(next..log.end);
            }
            log.lost.retain(|range| range.start < range.end);
        }
    }

    /// The keyed state at the newest chunk, without what is the journal's own.
    pub fn state(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.state.iter().filter(|(key, _)| !crate::archive::is_record(key))
    }
}

/// Are there offsets in two of these segments, as a crash in the middle of a rewriting leaves them?
fn has_twice(segments: &[SegmentSurvey]) -> bool {
    let mut runs: Vec<(LogId, Offset, Offset)> =
        segments.iter().flat_map(|segment| &segment.runs).map(|run| (run.log, run.base, run.next)).collect();
    runs.sort_unstable();
    runs.windows(2).any(|two| two[0].0 == two[1].0 && two[0].2 > two[1].1)
}
