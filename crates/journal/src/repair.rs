//! Putting something whole in the place of what is damaged: what was lost becomes batches without records, so that offsets stay what they
//! are and everything else is readable again. The damaged file stays beside the new one, as `damaged-` and its name, unless it is a copy.
//!
//! | damaged | what takes its place |
//! |---|---|
//! | segment that the checkpoint covers | a rewritten segment of what is whole in it, and empty batches |
//! | header of a segment behind the checkpoint | the header that it had |
//! | bodies of a chunk behind the checkpoint | the same chunk, with empty batches in place of those; state records go |
//! | chunks of which nothing is known | as many chunks, with empty batches for logs that go on behind them |
//!
//! The header of a repaired chunk keeps the checksum that the next chunk carries of it: four reserved bytes are chosen so that it comes out.
//! What a log had at its very end in chunks of which nothing is known is not known either; its offsets are given again, in a later term.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use record::filler;
use types::{LogId, Offset, Term, Timestamp};

use crate::checkpoint;
use crate::chunk::{
    ChunkHeader, ENTRY_BYTES, Entry, EntryKind, HEADER_BYTES, body, crc32c, decode_directory, decode_raw,
    encode_header_with_crc, padded,
};
use crate::disk::{File, IoMode, RealStorage, SECTOR, Storage};
use crate::index::{SealInfo, write_index};
use crate::keeper::Copy;
use crate::reached;
use crate::readable::copy_readable;
use crate::run::Run;
use crate::segments::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentKind, segment_name, sequence_of};
use crate::survey::{Damage, Hole, Place, SegmentSurvey, Survey};

/// A file while it is made.
const NAME_REPAIRING: &str = "repairing";
/// Before the name of what a repaired file takes the place of.
const PREFIX_DAMAGED: &str = "damaged-";
/// Before the number of a segment whose file is on the way to its name.
pub(crate) const PREFIX_MOVING: &str = "repairing-";
/// Offsets that one batch can stand for.
const BATCH_OFFSETS_MAX: u64 = i32::MAX as u64;
/// What an empty batch of a log takes in a chunk.
const FILLER_BYTES: usize = record::HEADER_BYTES;

/// Why nothing can be put in the place of damage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// Nobody knows what was there.
    #[error("damage {id} cannot be repaired: {file}, byte {position}: {what}; restore a backup")]
    Beyond {
        /// Of the damage.
        id: String,
        /// Which file.
        file: String,
        /// Where.
        position: u64,
        /// What does not fit.
        what: String,
    },
    /// Another damage of the same file would go with it.
    #[error("damage {id} is in the same segment and has to be accepted with it")]
    Together {
        /// Of the other damage.
        id: String,
    },
    /// Of the file system.
    #[error("{what}: {source}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> RepairError {
    move |source| RepairError::Io { what, source }
}

/// What becomes of a damaged file when another takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Original {
    /// It stays beside the new one.
    Kept,
    /// It goes: it is a copy.
    Dropped,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Files that were made anew.
    pub files: Vec<String>,
}

/// Repairs those damages of `survey` that are accepted, in the folder that it was made of. Nothing is done unless all of them can be.
///
/// # Errors
/// See [`RepairError`].
pub fn repair(
    folder: &Path,
    survey: &Survey,
    original: Original,
    accepted: &dyn Fn(&Damage) -> bool,
) -> Result<Repaired, RepairError> {
    let wanted: Vec<&Damage> = survey.damages.iter().filter(|damage| accepted(damage)).collect();
    let mut sealed: HashSet<u64> = wanted
        .iter()
        .filter_map(|damage| if let Place::Sealed(sequence) = damage.place { Some(sequence) } else { None })
        .collect();
    let is_renamed = wanted.iter().any(|damage| matches!(damage.place, Place::Misnamed { .. }));
    for damage in &survey.damages {
        match damage.place {
            Place::Elsewhere | Place::Object if accepted(damage) => return Err(beyond(damage)),
            // The file that has its name may be that of another.
            Place::Misnamed { .. } if is_renamed && !accepted(damage) => {
                return Err(RepairError::Together { id: damage.id.clone() });
            }
            Place::Sealed(sequence) if sealed.contains(&sequence) && !accepted(damage) => {
                return Err(RepairError::Together { id: damage.id.clone() });
            }
            _ => {}
        }
    }
    let mut missing = Vec::new();
    for damage in &wanted {
        let Place::Sealed(sequence) = damage.place else { continue };
        let segment =
            survey.segments.iter().find(|segment| segment.sequence == sequence).ok_or_else(|| beyond(damage))?;
        if sealed.remove(&sequence) {
            missing.push((segment, missing_of(survey, segment).ok_or_else(|| beyond(damage))?));
        }
    }
    let storage = RealStorage::open(folder, IoMode::Buffered).map_err(failed("open the journal's folder"))?;
    let mut repaired = Repaired::default();
    if !wanted.is_empty() {
        let mut segments: HashMap<LogId, Vec<u64>> = HashMap::new();
        for (segment, missing) in &missing {
            missing.iter().for_each(|run| segments.entry(run.log).or_default().push(segment.sequence));
        }
        note_gaps(&storage, folder, survey, &segments)?;
    }
    rename(&storage, folder, &wanted, original, &mut repaired)?;
    for (segment, missing) in missing {
        rewrite(&storage, survey, segment, missing)?;
        put_in_place(&storage, folder, &segment_name(segment.sequence), original)?;
        repaired.files.push(segment_name(segment.sequence));
    }
    let mut open: Vec<u64> = wanted.iter().filter_map(|damage| open_sequence(&damage.place)).collect();
    open.sort_unstable();
    open.dedup();
    for sequence in open {
        let damages = wanted.iter().filter(|damage| open_sequence(&damage.place) == Some(sequence));
        patch(&storage, folder, survey, sequence, damages.copied())?;
        put_in_place(&storage, folder, &segment_name(sequence), original)?;
        repaired.files.push(segment_name(sequence));
    }
    for damage in &wanted {
        match damage.place {
            Place::Newest { sequence, .. } => stand_between(&storage, folder, survey, sequence)?,
            Place::Checkpoint { damaged, whole } => {
                let io = failed("write a checkpoint");
                let _ = storage.remove(NAME_REPAIRING);
                copy_readable(&folder.join(whole), &folder.join(NAME_REPAIRING), &|_| {}).map_err(&io)?;
                put_in_place(&storage, folder, damaged, original)?;
                repaired.files.push(damaged.to_owned());
            }
            Place::End(sequence) => {
                let name = segment_name(sequence);
                if !repaired.files.contains(&name) {
                    if original == Original::Kept {
                        keep(&storage, folder, &name)?;
                    }
                    repaired.files.push(name);
                }
                // What follows is written over what there is.
                end_here(&storage)?;
            }
            _ => {}
        }
    }
    Ok(repaired)
}

fn beyond(damage: &Damage) -> RepairError {
    let Damage { id, file, position, what, .. } = damage.clone();
    RepairError::Beyond { id, file, position, what }
}

fn open_sequence(place: &Place) -> Option<u64> {
    match place {
        Place::Bodies { sequence, .. } | Place::Header { sequence, .. } => Some(*sequence),
        Place::Newest { sequence, .. } => Some(*sequence),
        Place::Hole(hole) => Some(hole.sequence),
        Place::Sealed(_)
        | Place::Misnamed { .. }
        | Place::End(_)
        | Place::Checkpoint { .. }
        | Place::Elsewhere
        | Place::Object => None,
    }
}

/// The new file takes the place of the old one, at once: a crash leaves one of them.
fn put_in_place(storage: &RealStorage, folder: &Path, name: &str, original: Original) -> Result<(), RepairError> {
    if original == Original::Kept && folder.join(name).exists() {
        let kept = kept_name(folder, name);
        // Not every file system has second names.
        let outcome = storage.link(name, &kept).or_else(|_| copy_readable(&folder.join(name), &kept, &|_| {}));
        outcome.map_err(failed("keep the damaged file"))?;
    }
    storage.rename(NAME_REPAIRING, name).map_err(failed("put the repaired segment in its place"))?;
    storage.sync_folder().map_err(failed("flush the folder"))
}

/// Gives misnamed segments their names. A crash leaves them under names that a survey knows.
fn rename(
    storage: &RealStorage,
    folder: &Path,
    wanted: &[&Damage],
    original: Original,
    repaired: &mut Repaired,
) -> Result<(), RepairError> {
    let io = failed("give a segment its name");
    let misnamed = wanted.iter().filter_map(|damage| match &damage.place {
        Place::Misnamed { sequence, name } => Some((*sequence, name.as_str(), format!("{PREFIX_MOVING}{sequence}"))),
        _ => None,
    });
    let misnamed: Vec<_> = misnamed.collect();
    for (_, name, moving) in misnamed.iter().filter(|(_, name, moving)| name != moving) {
        storage.rename(name, moving).map_err(&io)?;
    }
    storage.sync_folder().map_err(&io)?;
    for (sequence, _, moving) in &misnamed {
        let name = segment_name(*sequence);
        if original == Original::Kept {
            keep(storage, folder, &name)?;
        }
        storage.rename(moving, &name).map_err(&io)?;
        repaired.files.push(name);
    }
    storage.sync_folder().map_err(&io)
}

/// Where a damaged file is kept.
fn kept_name(folder: &Path, name: &str) -> std::path::PathBuf {
    let numbered = |number| {
        folder.join(if number == 0 {
            format!("{PREFIX_DAMAGED}{name}")
        } else {
            format!("{PREFIX_DAMAGED}{name}-{number}")
        })
    };
    (0..).map(numbered).find(|path| !path.exists()).expect("names do not end")
}

/// Keeps what a segment is that will be written on.
fn keep(storage: &RealStorage, folder: &Path, name: &str) -> Result<(), RepairError> {
    if folder.join(name).exists() {
        copy_readable(&folder.join(name), &kept_name(folder, name), &|_| {})
            .map_err(failed("keep the damaged file"))?;
        storage.sync_folder().map_err(failed("flush the folder"))?;
    }
    Ok(())
}

/// What takes the place of lost records has none. Checkpoints say up to where a log may have such offsets: who counts messages looks for them below. And they say in which
/// segments they are: what takes the place of something that was in the archive is not where the log had anything.
fn note_gaps(
    storage: &RealStorage,
    folder: &Path,
    survey: &Survey,
    segments: &HashMap<LogId, Vec<u64>>,
) -> Result<(), RepairError> {
    let io = failed("write a checkpoint");
    let archived = |id: &LogId| survey.archived_until.get(id).copied().unwrap_or_default();
    let last = survey.logs.iter().filter_map(|(id, log)| Some((*id, log.lost.last()?.end)));
    let gaps: HashMap<LogId, Offset> = last.filter(|(id, end)| *end > archived(id)).collect();
    for name in checkpoint::NAMES {
        // One that is damaged or missing says nothing; another one is used then.
        let Ok(bytes) = std::fs::read(folder.join(name)) else { continue };
        let Ok(Some(noted)) = checkpoint::with_repairs(&bytes, &gaps, segments) else { continue };
        let _ = storage.remove(NAME_REPAIRING);
        let file = storage.create(NAME_REPAIRING, noted.len() as u64).map_err(&io)?;
        file.write_at(0, &noted).and_then(|()| file.sync()).map_err(&io)?;
        put_in_place(storage, folder, name, Original::Dropped)?;
    }
    Ok(())
}

/// The journal ends where it ends.
fn end_here(storage: &RealStorage) -> Result<(), RepairError> {
    let io = failed("accept the end of the journal");
    match storage.remove(reached::NAME) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    storage.sync_folder().map_err(io)
}

/// Runs of a sealed segment that are lost; `None`: not known.
fn missing_of(survey: &Survey, segment: &SegmentSurvey) -> Option<Vec<Run>> {
    if let Some(broken) = &segment.broken {
        return Some(broken.clone());
    }
    // Without its index what is lost of logs is lost here, if it is the only such segment and nothing is shared.
    let blind = survey.segments.iter().filter(|other| other.broken.is_none()).count();
    if blind > 1 || segment.runs.iter().any(|run| run.shared) {
        return None;
    }
    let bounds = |log: &LogId| survey.archived_until.get(log).copied().unwrap_or_default()..Offset(u64::MAX);
    // Nothing may be left of a log that had something here.
    let mut between: HashMap<LogId, Range<Offset>> = survey.logs.keys().map(|log| (*log, bounds(log))).collect();
    bound_by_others(survey, segment.sequence, &mut between);
    let lost = between.iter().filter_map(|(id, bounds)| Some((*id, bounds, survey.logs.get(id)?)));
    let here = lost.flat_map(|(id, bounds, log)| {
        let clipped = log.lost.iter().map(move |range| range.start.max(bounds.start)..range.end.min(bounds.end));
        clipped.filter(|range| range.start < range.end).map(move |range| lost_run(id, &range))
    });
    Some(here.collect())
}

/// Offsets of a log rise with the segments: what one can have had lies behind all that those before it had, whole or not, and before all
/// that those behind it had.
pub(crate) fn bound_by_others(survey: &Survey, sequence: u64, between: &mut HashMap<LogId, Range<Offset>>) {
    let mut bound = |is_before: bool, log: LogId, range: Range<Offset>| {
        let Some(bounds) = between.get_mut(&log) else { return };
        if is_before {
            bounds.start = bounds.start.max(range.end);
        } else {
            bounds.end = bounds.end.min(range.start);
        }
    };
    for other in survey.segments.iter().filter(|other| other.sequence != sequence) {
        for run in other.runs.iter().chain(other.broken.iter().flatten()) {
            bound(other.sequence < sequence, run.log, run.base..run.next);
        }
    }
    for damage in &survey.damages {
        if let Place::Hole(hole) = &damage.place {
            hole.gaps.iter().for_each(|(log, range)| bound(false, *log, range.clone()));
        }
    }
}

pub(crate) fn lost_run(log: LogId, range: &Range<Offset>) -> Run {
    let (base, next) = (range.start, range.end);
    Run { log, base, next, position: 0, bytes: 0, crc: 0, records: 0, shared: false, max_timestamp: 0, append_time: 0 }
}

/// A range in pieces that a batch can stand for.
fn pieces(range: Range<Offset>) -> impl Iterator<Item = Range<Offset>> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let from = next;
        next = from.plus(range.end.since(from).min(BATCH_OFFSETS_MAX));
        (from < next).then_some(from..next)
    })
}

/// Writes what is whole of a sealed segment, and empty batches for the rest, as a rewritten one.
fn rewrite(
    storage: &RealStorage,
    survey: &Survey,
    segment: &SegmentSurvey,
    missing: Vec<Run>,
) -> Result<(), RepairError> {
    let io = failed("write a repaired segment");
    let _ = storage.remove(NAME_REPAIRING);
    let file = storage.create(NAME_REPAIRING, SEGMENT_HEADER_BYTES as u64).map_err(&io)?;
    let created =
        segment.file.as_ref().and_then(|file| SegmentHeader::read(&**file).ok()).map_or(0, |header| header.created);
    let header = SegmentHeader {
        kind: SegmentKind::Rewritten,
        journal: survey.journal,
        sequence: segment.sequence,
        created,
        replaces: segment.replaces.clone(),
    };
    file.write_at(0, &header.encode()).map_err(&io)?;
    let mut copy = Copy::new(Arc::clone(&file));
    let mut all: Vec<(Run, bool)> =
        segment.runs.iter().map(|run| (*run, true)).chain(missing.into_iter().map(|run| (run, false))).collect();
    let sharing: HashSet<LogId> = all.iter().filter(|(run, _)| run.shared).map(|(run, _)| run.log).collect();
    // As rewriting does: log by log; those that share something in the order in which it lies.
    all.sort_by_key(|(run, _)| match sharing.contains(&run.log) {
        false => (false, run.log.0, run.base.0, 0),
        true => (true, u64::from(run.position), 0, run.log.0),
    });
    for same in all.chunk_by(|(one, one_whole), (other, other_whole)| {
        one.shared && other.shared && one.position == other.position && one_whole == other_whole
    }) {
        let (first, is_whole) = same[0];
        if !is_whole {
            same.iter().try_for_each(|(run, _)| fill(&mut copy, run, survey)).map_err(&io)?;
            continue;
        }
        let mut bytes = vec![0; first.bytes as usize];
        segment.file.as_ref().map_or(Ok(0), |file| file.read_at(u64::from(first.position), &mut bytes)).map_err(&io)?;
        if crc32c(&bytes) != first.crc {
            return Err(io(io::Error::other(format!(
                "{}, byte {}: it was whole when it was looked at",
                segment_name(segment.sequence),
                first.position
            ))));
        }
        let runs: Vec<Run> = same.iter().map(|(run, _)| *run).collect();
        if first.shared { copy.add_shared(&runs, &bytes) } else { copy.add(&first, &bytes) }.map_err(&io)?;
    }
    let (file, runs, end) = copy.finish().map_err(&io)?;
    let mut ids: Vec<LogId> = runs.iter().map(|run| run.log).collect();
    ids.sort_unstable();
    ids.dedup();
    let places = runs.iter().map(|run| (ids.partition_point(|id| *id < run.log) as u32, *run));
    let (last_index, last_term, last_crc) = segment.last.unwrap_or_default();
    let info = SealInfo { journal: survey.journal, sequence: segment.sequence, last_index, last_term, last_crc };
    write_index(&*file, end, &ids, places, &info).and_then(|_| file.sync()).map_err(&io)
}

/// An empty batch of a term: clients ask whether what they read last is still there by the term that it says.
fn filler_of(term: Term, range: Range<Offset>, time: Timestamp) -> Vec<u8> {
    let mut batch = filler(range.start, range.end, time).to_vec();
    record::set_leader_epoch(&mut batch, term.0);
    batch
}

/// Empty batches in place of a run.
fn fill(copy: &mut Copy, run: &Run, survey: &Survey) -> io::Result<()> {
    let term = survey.logs.get(&run.log).map_or_else(Term::default, |log| log.term_at(run.base));
    for range in pieces(run.base..run.next) {
        let batch = filler_of(term, range.clone(), run.max_timestamp.max(0));
        let filled =
            Run { base: range.start, next: range.end, bytes: batch.len() as u32, records: 0, shared: false, ..*run };
        copy.add(&filled, &batch)?;
    }
    Ok(())
}

/// Writes a copy of an open segment in which the damaged chunks are whole.
fn patch<'d>(
    storage: &RealStorage,
    folder: &Path,
    survey: &Survey,
    sequence: u64,
    damages: impl Iterator<Item = &'d Damage>,
) -> Result<(), RepairError> {
    let io = failed("write a repaired segment");
    let (name, _) = (segment_name(sequence), storage.remove(NAME_REPAIRING));
    let damages: Vec<&Damage> = damages.collect();
    let begins = |damage: &&Damage| match &damage.place {
        Place::Newest { created, .. } => Some(*created),
        Place::Hole(hole) if hole.begins => Some(hole.time),
        _ => None,
    };
    if let Some(created) = damages.iter().find_map(begins) {
        let size = survey.segments.iter().filter_map(|segment| segment.file.as_ref()?.size().ok()).max().unwrap_or(0);
        begin(storage, survey, (sequence, created), size).map_err(&io)?;
    } else {
        copy_readable(&folder.join(&name), &folder.join(NAME_REPAIRING), &|_| {}).map_err(&io)?;
    }
    let file = storage.open(NAME_REPAIRING).map_err(&io)?;
    for damage in damages {
        let (position, chunks) = match &damage.place {
            Place::Bodies { position, .. } => (*position, with_empty_bodies(&*file, *position).map_err(&io)?),
            Place::Hole(hole) => (hole.bytes.start, fill_hole(survey, hole)),
            Place::Header { sequence, created } => {
                let (kind, journal, replaces) = (SegmentKind::Journal, survey.journal, Vec::new());
                (0, Some(SegmentHeader { kind, journal, sequence: *sequence, created: *created, replaces }.encode()))
            }
            Place::Newest { .. } => continue,
            Place::Sealed(_)
            | Place::Misnamed { .. }
            | Place::End(_)
            | Place::Checkpoint { .. }
            | Place::Elsewhere
            | Place::Object => continue,
        };
        let chunks = chunks.ok_or_else(|| beyond(damage))?;
        file.write_at(position, &chunks).map_err(&io)?;
    }
    file.sync().map_err(&io)
}

/// A segment without chunks, under the name of what is being repaired.
fn begin(
    storage: &RealStorage,
    survey: &Survey,
    (sequence, created): (u64, Timestamp),
    size: u64,
) -> io::Result<Arc<dyn File>> {
    let file = storage.create(NAME_REPAIRING, size.max(2 * SEGMENT_HEADER_BYTES as u64))?;
    let (kind, journal, replaces) = (SegmentKind::Journal, survey.journal, Vec::new());
    file.write_at(0, &SegmentHeader { kind, journal, sequence, created, replaces }.encode())?;
    Ok(file)
}

/// Segments that were made behind the newest one say that those between were made as well: where these are gone, too, something stands for them.
fn stand_between(storage: &RealStorage, folder: &Path, survey: &Survey, newest: u64) -> Result<(), RepairError> {
    let io = failed("write a repaired segment");
    let names = storage.list().map_err(&io)?;
    let is_made = |sequence: &u64| {
        let header = storage
            .open(&segment_name(*sequence))
            .and_then(|file| SegmentHeader::read(&*file).map_err(|error| io::Error::other(error.to_string())));
        header.is_ok_and(|header| header.journal == survey.journal && header.sequence == *sequence)
    };
    let behind = names.iter().filter_map(|name| sequence_of(name)).filter(|sequence| *sequence > newest);
    let Some(last) = behind.filter(is_made).max() else { return Ok(()) };
    for sequence in (newest + 1..last).filter(|sequence| !names.contains(&segment_name(*sequence))) {
        let _ = storage.remove(NAME_REPAIRING);
        begin(storage, survey, (sequence, 0), 0).and_then(|file| file.sync()).map_err(&io)?;
        put_in_place(storage, folder, &segment_name(sequence), Original::Dropped)?;
    }
    Ok(())
}

/// The chunk at `position` with empty batches in place of bodies that are not whole. State records that are not are left out.
fn with_empty_bodies(file: &dyn File, position: u64) -> io::Result<Option<Vec<u8>>> {
    let mut head = vec![0; SECTOR];
    file.read_at(position, &mut head)?;
    let Ok((header, crc)) = ChunkHeader::decode(&head) else { return Ok(None) };
    let mut chunk = vec![0; header.chunk_bytes as usize];
    file.read_at(position, &mut chunk)?;
    for number in 0..header.entries as usize {
        let at = HEADER_BYTES + number * ENTRY_BYTES;
        let Some(mut entry) = decode_raw(&chunk[at..at + ENTRY_BYTES]) else { return Ok(None) };
        if body(&entry, &chunk).is_ok_and(|bytes| crc32c(bytes) == entry.crc) {
            continue;
        }
        match entry.kind {
            EntryKind::Data | EntryKind::Shared
                if entry.bytes as usize >= FILLER_BYTES && u64::from(entry.last_delta) < BATCH_OFFSETS_MAX =>
            {
                // In a body that logs share offsets are distances.
                let base = if entry.kind == EntryKind::Shared { Offset::ZERO } else { entry.base };
                let batch = filler_of(
                    header.term,
                    base..base.plus(u64::from(entry.last_delta) + 1),
                    entry.max_timestamp.max(0),
                );
                let from = entry.position as usize;
                chunk[from..from + batch.len()].copy_from_slice(&batch);
                (entry.bytes, entry.crc, entry.records) = (batch.len() as u32, crc32c(&batch), 0);
            }
            EntryKind::State => entry = Entry::EMPTY,
            _ => return Ok(None),
        }
        entry.encode(&mut chunk[at..at + ENTRY_BYTES]);
    }
    let directory = HEADER_BYTES + header.directory_bytes();
    let directory_crc = crc32c(&chunk[HEADER_BYTES..directory]);
    encode_header_with_crc(&ChunkHeader { directory_crc, ..header }, crc, &mut chunk);
    Ok(decode_directory(&ChunkHeader { directory_crc, ..header }, &chunk).is_ok().then_some(chunk))
}

/// As many chunks as are missing, in as many bytes; the last one with what is missing of logs that go on. `None`: that does not fit.
fn fill_hole(survey: &Survey, hole: &Hole) -> Option<Vec<u8>> {
    let count = usize::try_from(hole.last.0.checked_sub(hole.first.0)? + 1).ok()?;
    let entries: Vec<(LogId, Range<Offset>)> =
        hole.gaps.iter().flat_map(|(log, range)| pieces(range.clone()).map(|range| (*log, range))).collect();
    let needed = (count - 1) * SECTOR + padded(HEADER_BYTES + entries.len() * (ENTRY_BYTES + FILLER_BYTES));
    let there = usize::try_from(hole.bytes.end - hole.bytes.start).ok()?;
    let bytes = if hole.at_end { needed } else { there };
    if needed > bytes {
        return None;
    }
    let mut chunks = vec![0; bytes];
    let mut previous_crc = hole.previous_crc;
    for number in 0..count {
        let (is_last, at) = (number + 1 == count, number * SECTOR);
        let chunk = &mut chunks[at..if is_last { bytes } else { at + SECTOR }];
        let held = if is_last { &entries[..] } else { &[] };
        let body_bytes = put_fillers(held, hole.time, hole.term, chunk);
        let header = ChunkHeader {
            journal: survey.journal,
            segment: hole.sequence,
            index: types::LogIndex(hole.first.0 + number as u64),
            durable_index: types::LogIndex(hole.first.0 + number as u64 - 1),
            term: hole.term,
            previous_crc,
            time: hole.time,
            entries: held.len() as u32,
            references: 0,
            drops: false,
            body_bytes: body_bytes as u32,
            chunk_bytes: chunk.len() as u32,
            directory_crc: crc32c(&chunk[HEADER_BYTES..HEADER_BYTES + held.len() * ENTRY_BYTES]),
        };
        if is_last {
            encode_header_with_crc(&header, hole.crc, chunk);
        } else {
            previous_crc = header.encode(chunk);
        }
    }
    Some(chunks)
}

/// Directory and bodies of empty batches; returns the length of the bodies.
fn put_fillers(held: &[(LogId, Range<Offset>)], time: Timestamp, term: Term, chunk: &mut [u8]) -> usize {
    let mut position = HEADER_BYTES + held.len() * ENTRY_BYTES;
    let bodies_at = position;
    for (number, (log, range)) in held.iter().enumerate() {
        let batch = filler_of(term, range.clone(), time);
        chunk[position..position + batch.len()].copy_from_slice(&batch);
        let entry = Entry {
            kind: EntryKind::Data,
            log: *log,
            base: range.start,
            last_delta: (range.end.since(range.start) - 1) as u32,
            position: position as u32,
            bytes: batch.len() as u32,
            crc: crc32c(&batch),
            max_timestamp: time,
            ..Entry::EMPTY
        };
        entry.encode(&mut chunk[HEADER_BYTES + number * ENTRY_BYTES..]);
        position += batch.len();
    }
    position - bodies_at
}
