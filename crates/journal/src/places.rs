//! Where the records of a log lie: in which objects and segments, run by run. Its seams, where one place ends and the next begins, are what
//! simulators and tests read across.

use std::ops::Range;
use std::sync::Arc;

use types::Offset;

use crate::cold::{ColdWant, ReadError};
use crate::journal::Journal;
use crate::log::Log;
use crate::segments::{Segment, SegmentError, SegmentHeader, SegmentKind};

/// What holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// An archive object, as its records were moved there.
    Archived,
    /// An archive object that was compacted.
    Compacted,
    /// A segment that was merged from others.
    Rewritten,
    /// A segment that is full.
    Sealed,
    /// The segment that is being written, or one whose index is not written yet.
    Open,
}

impl Journal {
    /// The runs of a log from its start on, in the order in which readers get them, whole: the first of a place may begin before the last
    /// of the place before ends. Reads headers of segments; for tests.
    ///
    /// # Errors
    /// As [`Journal::read_cold`].
    pub fn places(&self, log: &Arc<Log>) -> Result<Vec<(Place, Range<Offset>)>, ReadError> {
        let want = ColdWant { log: Arc::clone(log), from: log.start(), until: log.high_watermark(), max_bytes: 0 };
        let mut runs: Vec<(Arc<Segment>, Range<Offset>)> = Vec::new();
        self.visit_runs(
            &want,
            |_| true,
            |segment, run, _| {
                runs.push((Arc::clone(segment), run.base..run.next));
                true
            },
        )?;
        let mut places: Vec<(Place, Range<Offset>)> = Vec::with_capacity(runs.len());
        let mut last: Option<(u64, Place)> = None;
        for (segment, range) in runs {
            let place = match last.filter(|(id, _)| *id == segment.id) {
                Some((_, place)) => place,
                None => self.place_of(log, &segment, range.start)?,
            };
            last = Some((segment.id, place));
            places.push((place, range));
        }
        Ok(places)
    }

    fn place_of(&self, log: &Log, segment: &Segment, base: Offset) -> Result<Place, SegmentError> {
        if segment.archived {
            let cleaned = log.inner().archive.at(base).is_some_and(|object| object.cleaned);
            return Ok(if cleaned { Place::Compacted } else { Place::Archived });
        }
        if segment.index.get().is_none() {
            return Ok(Place::Open);
        }
        let kind = SegmentHeader::read(&*segment.file)?.kind;
        Ok(if kind == SegmentKind::Rewritten { Place::Rewritten } else { Place::Sealed })
    }
}
