//! Archived objects that the journal names.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use types::{LogId, Offset};

use super::{Damage, Place, Surveyor, words};
use crate::archive::{ArchiveStore, Archived, ArchivedLog, decode_records, is_whole, open_index};
use crate::segments::SegmentError;

impl Surveyor<'_> {
    /// Archive objects that the state names, of each log those that are part of it, in order.
    pub(super) fn named(&mut self) -> Vec<Arc<Archived>> {
        let records = decode_records(self.found.state.iter()).unwrap_or_else(|error| {
            let id = format!("{}-archive", self.number);
            self.found.damages.push(Damage {
                id,
                file: "keyed state".to_owned(),
                position: 0,
                what: error.to_string(),
                place: Place::Elsewhere,
            });
            Vec::new()
        });
        let mut logs: BTreeMap<LogId, ArchivedLog> = BTreeMap::new();
        for record in records {
            logs.entry(record.log).or_default().enter(record);
        }
        // What the start has passed is on its way out.
        let is_part =
            |object: &Arc<Archived>| self.found.logs.get(&object.log).is_none_or(|log| log.start < object.next);
        logs.values().flat_map(ArchivedLog::iter).filter(|object| is_part(object)).cloned().collect()
    }

    /// Reads these objects.
    pub(super) fn objects(&mut self, archive: &dyn ArchiveStore) {
        for object in self.named() {
            self.found.archived_until.insert(object.log, object.next);
            self.found.objects += u64::from(object.length > 0);
            let whole = match object.length {
                // Nothing is left of these offsets, and that is as it should be.
                0 => vec![object.base..object.next],
                _ => self.object(archive, &object),
            };
            self.found.archived.entry(object.log).or_default().extend(whole);
        }
    }

    /// What is whole of an object.
    pub(super) fn object(&mut self, archive: &dyn ArchiveStore, object: &Archived) -> Vec<Range<Offset>> {
        let (number, name) = (self.number, object.name(self.found.journal));
        let damage = |position: u64, what: String| {
            let id = format!("{number}-object-{}-{}-{position}", object.log.0, object.base.0);
            Damage { id, file: name.clone(), position, what, place: Place::Object }
        };
        // One byte more than there should be.
        let mut bytes = vec![0; object.length as usize + 1];
        let got = match archive.read_at(&name, 0, &mut bytes) {
            Ok(got) => got,
            Err(error) => {
                self.found.damages.push(damage(0, error.to_string()));
                return Vec::new();
            }
        };
        self.read(got as u64);
        bytes.truncate(got);
        let read = |position: u64, length: usize| {
            let from = bytes.len().min(position as usize);
            Ok(bytes[from..bytes.len().min(from + length)].to_vec())
        };
        let runs = open_index(object, self.found.journal, &name, &read).unwrap_or_else(|error| {
            let position = if let SegmentError::Corrupt { position, .. } = &error { *position } else { 0 };
            self.found.damages.push(damage(position, words(&error)));
            Vec::new()
        });
        let mut whole = Vec::new();
        for run in runs {
            if is_whole(&bytes, &run) {
                self.found.runs += 1;
                whole.push(run.base..run.next);
            } else {
                self.found
                    .damages
                    .push(damage(u64::from(run.position), format!("run checksum, offsets {}..{}", run.base, run.next)));
            }
        }
        whole
    }
}
