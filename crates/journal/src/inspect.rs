//! Prints any file that we write as text, for people who look for a byte.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use record::Batches;

use crate::chunk::{ChunkHeader, EntryKind, FLAG_LEFT, body, check_bodies, decode_directory, split_state};
use crate::disk::{RealStorage, SECTOR, Storage};
use crate::index::{IndexCache, SealedIndex};
use crate::segments::{SEGMENT_HEADER_BYTES, SegmentError, SegmentHeader, SegmentKind};

/// Prints the file at `path` to `out`; damaged parts are named with their position.
///
/// # Errors
/// Those of reading and writing; `InvalidData` when the file is none of ours.
pub fn inspect(path: &Path, out: &mut dyn Write) -> io::Result<()> {
    let bytes = std::fs::read(path)?;
    match bytes.get(..4) {
        Some(b"MSSG") => segment(path, &bytes, out),
        Some(b"MSCP") => checkpoint(&bytes, out),
        Some(b"MSAO") => crate::archive::print(&path.display().to_string(), &bytes, out),
        _ => {
            let what = format!("{}: neither a segment, a checkpoint nor an archive object of Mainstem", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

fn invalid(error: SegmentError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

fn segment(path: &Path, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = RealStorage::read_only(folder).open(&name)?;
    let header = SegmentHeader::read(&*file).map_err(invalid)?;
    let kind = if header.kind == SegmentKind::Journal { "of chunks" } else { "rewritten" };
    writeln!(
        out,
        "segment {} {kind}, {} bytes, journal {}, created {}",
        header.sequence,
        bytes.len(),
        header.journal,
        header.created
    )?;
    if !header.replaces.is_empty() {
        writeln!(out, "            replaces {:?}", header.replaces)?;
    }
    if header.kind == SegmentKind::Journal {
        chunks(bytes, out)?;
    }
    let cache = Arc::new(IndexCache::new(1 << 20));
    match SealedIndex::open(file, header.journal, header.sequence, cache) {
        Ok(index) => sealed(&index, out)?,
        Err(error) => writeln!(out, "            not sealed: {error}")?,
    }
    Ok(())
}

/// The index behind the chunks or bodies: a line for each log.
fn sealed(index: &SealedIndex, out: &mut dyn Write) -> io::Result<()> {
    let info = index.info();
    writeln!(
        out,
        "            sealed, last chunk {} term {} crc {:#010x}",
        info.last_index, info.last_term, info.last_crc
    )?;
    for row in index.rows().map_err(invalid)? {
        writeln!(
            out,
            "            {} offsets {}..{}, {} runs, {} bytes",
            row.log, row.base, row.next, row.entries, row.bytes
        )?;
    }
    Ok(())
}

fn chunks(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut at = SEGMENT_HEADER_BYTES;
    let mut segment = None;
    while at + SECTOR <= bytes.len() {
        let (header, crc) = match ChunkHeader::decode(&bytes[at..]) {
            Ok(decoded) => decoded,
            Err(error) => {
                writeln!(out, "{at:>10}  end of chunks: {error}")?;
                break;
            }
        };
        if *segment.get_or_insert(header.segment) != header.segment {
            writeln!(
                out,
                "{at:>10}  end of chunks: a chunk of segment {} from an earlier life of the file",
                header.segment
            )?;
            break;
        }
        writeln!(
            out,
            "{at:>10}  chunk {} term {} durable {} time {} bytes {} entries {} previous {:#010x} crc {crc:#010x}",
            header.index,
            header.term,
            header.durable_index,
            header.time,
            header.chunk_bytes,
            header.entries,
            header.previous_crc,
        )?;
        let Some(chunk) = bytes.get(at..at + header.chunk_bytes as usize) else {
            return writeln!(out, "{at:>10}  the file ends inside this chunk");
        };
        entries(&header, chunk, at, out)?;
        at += header.chunk_bytes as usize;
    }
    Ok(())
}

fn entries(header: &ChunkHeader, chunk: &[u8], at: usize, out: &mut dyn Write) -> io::Result<()> {
    let entries = match decode_directory(header, chunk) {
        Ok(entries) => entries,
        Err(error) => return writeln!(out, "{at:>10}    directory unreadable: {error}"),
    };
    for (number, entry) in entries.iter().enumerate() {
        let position = at + entry.position as usize;
        match entry.kind {
            EntryKind::NewTerm if entry.flags & FLAG_LEFT != 0 => {
                writeln!(out, "{:>10}    end of the segment, the next one is there", "")?
            }
            EntryKind::NewTerm => writeln!(out, "{:>10}    new term", "")?,
            EntryKind::Trim => writeln!(out, "{:>10}    trim {} to {}", "", entry.log, entry.base)?,
            EntryKind::Drop => writeln!(out, "{:>10}    drop {} at {}", "", entry.log, entry.base)?,
            EntryKind::State => {
                let text = body(entry, chunk).and_then(split_state);
                let text = text.map_or_else(
                    |error| error.to_string(),
                    |(key, value)| format!("{} = {} bytes", key.escape_ascii(), value.len()),
                );
                writeln!(out, "{position:>10}    state {text}")?;
            }
            EntryKind::Shared | EntryKind::Data => {
                let kind = if entry.shared { "shared data" } else { "data" };
                writeln!(
                    out,
                    "{position:>10}    {kind} {} offsets {}..{} records {} bytes {} max timestamp {}",
                    entry.log,
                    entry.base,
                    entry.next(),
                    entry.records,
                    entry.bytes,
                    entry.max_timestamp,
                )?;
                // The last of those that share a body shows it; offsets count from the first.
                if entries.get(number + 1).is_none_or(|next| !next.shared || next.position != entry.position) {
                    batches(body(entry, chunk).unwrap_or_default(), position, out)?;
                }
            }
        }
        if let Err(error) = check_bodies(std::slice::from_ref(entry), chunk) {
            writeln!(out, "{position:>10}    CORRUPT: {error}")?;
        }
    }
    Ok(())
}

/// A line for each batch of a run at `position` of its file.
pub(crate) fn batches(run: &[u8], position: usize, out: &mut dyn Write) -> io::Result<()> {
    for batch in Batches::new(run) {
        match batch {
            Ok((inside, batch)) => writeln!(
                out,
                "{:>10}      batch offset {} records {} epoch {} attributes {:#06x} producer {}/{} sequence {}",
                position + inside,
                batch.base_offset,
                batch.records_count,
                batch.leader_epoch,
                batch.attributes,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
            )?,
            Err(error) => writeln!(out, "{:>10}      {error}", "")?,
        }
    }
    Ok(())
}

fn checkpoint(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let checkpoint = match crate::checkpoint::decode(bytes) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return writeln!(out, "checkpoint, {} bytes, unreadable: {error}", bytes.len()),
    };
    let replay = checkpoint.replay;
    writeln!(
        out,
        "checkpoint of journal {}, replay from segment {} after chunk {} term {}, {} logs, {} state records",
        checkpoint.journal,
        replay.segment,
        replay.index,
        replay.term,
        checkpoint.logs.len(),
        checkpoint.state.len(),
    )?;
    for log in &checkpoint.logs {
        writeln!(
            out,
            "  {} offsets {}..{} bytes {} producers {} segments {:?}",
            log.id,
            log.start,
            log.end,
            log.bytes,
            log.producers.iter().len(),
            log.segments.iter().collect::<Vec<_>>(),
        )?;
    }
    for id in &checkpoint.ended {
        writeln!(out, "  {id} has ended, the archive has some of it")?;
    }
    for (key, value) in checkpoint.state.iter() {
        writeln!(out, "  state {} = {} bytes", key.escape_ascii(), value.len())?;
    }
    Ok(())
}
