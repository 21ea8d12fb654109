//! What may lie behind the end that was found.

use std::sync::Arc;

use uuid::Uuid;

use super::scan::{Chain, Scanner};
use super::{Files, OpenError, io_error, open_named, spare_name};
use crate::disk::{File, Storage};
use crate::segments::{SEGMENT_HEADER_BYTES, SegmentError, SegmentHeader, segment_name};
use crate::writer::ActiveSegment;

pub(super) fn is_there(storage: &dyn Storage, sequence: u64) -> Result<bool, OpenError> {
    Ok(storage.list().map_err(io_error("list the journal's folder"))?.contains(&segment_name(sequence)))
}

/// Does the journal go on in the segment `file` behind `full`? Fails when the end of `full` is missing.
pub(super) fn goes_on(
    full: &ActiveSegment,
    file: &Arc<dyn File>,
    uuid: Uuid,
    chain: &Chain,
) -> Result<bool, OpenError> {
    let sequence = full.sequence + 1;
    let mut scanner = Scanner::new(Arc::clone(file), uuid, sequence);
    let first = scanner.header_at(SEGMENT_HEADER_BYTES as u64)?;
    if first.is_some_and(|first| first.index > chain.index.next() && first.durable_index > chain.index) {
        let what = format!("chunk {} is missing, and segment {sequence} goes on behind it", chain.index.next());
        return Err(SegmentError::Corrupt { file: full.file.name(), position: full.position, what }.into());
    }
    Ok(scanner.first(chain)?.is_some())
}

/// Fails when `end`, where the journal ends, is gone: a segment behind it was made, which happens when `end` is there and no start has put it
/// aside; or one says that more of the journal had been durable.
pub(super) fn check_behind(storage: &dyn Storage, end: u64, uuid: Uuid, chain: &Chain) -> Result<(), OpenError> {
    let Files { segments, spares, .. } = Files::list(storage)?;
    let is_gone = !segments.contains(&end) && !spares.contains(&spare_name(end));
    for sequence in segments.into_iter().filter(|sequence| *sequence > end) {
        let file = open_named(storage, &segment_name(sequence))?;
        let is_made = |header: SegmentHeader| header.journal == uuid && header.sequence == sequence;
        let is_made = is_gone && SegmentHeader::read(&*file).is_ok_and(is_made);
        if is_made || Scanner::new(file, uuid, sequence).says_durable(chain.index.next())? {
            return Err(OpenError::MissingSegment { sequence: end });
        }
    }
    Ok(())
}
