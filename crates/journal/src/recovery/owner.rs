//! Whose files lie in a folder, before anything of them is opened.

use std::path::Path;

use uuid::Uuid;

use crate::checkpoint;
use crate::disk::{RealStorage, Storage};
use crate::segments::{SegmentHeader, sequence_of};

/// Journals of which there is a segment or a checkpoint in `folder`, as the headers of these say; that of the oldest segment first.
pub fn owners(folder: &Path) -> Vec<Uuid> {
    let storage = RealStorage::read_only(folder);
    let mut names = storage.list().unwrap_or_default();
    names.sort_unstable_by_key(|name| (sequence_of(name).is_none(), sequence_of(name)));
    let mut found = Vec::new();
    for name in names {
        let Ok(file) = storage.open(&name) else { continue };
        let owner = match name.as_str() {
            one if checkpoint::NAMES.contains(&one) => checkpoint::owner(&*file),
            _ if sequence_of(&name).is_some() => SegmentHeader::read(&*file).ok().map(|header| header.journal),
            _ => None,
        };
        found.extend(owner.filter(|owner| !found.contains(owner)));
    }
    found
}
