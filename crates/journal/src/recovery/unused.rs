//! What a start finds and has no use for: segments that were prepared and not begun, which are put aside under the names of spares, and what
//! interrupted work has left, which is removed. Nothing that counts is in them, so that no start fails because one of them stays.
//!
//! A segment that stays under its name is what the keeper would make of its spare: the same file, which gets its header again, and is flushed with it,
//! before the writer has it. Until then recovery meets it as it has met it now, and no chunk of it continues the journal: each says at most that what
//! was recovered now had been durable. The newest goes first, and none before one that stays: where a later segment has its name, those between it
//! and the journal's end have theirs too, and none of them is missed ([`super::check_behind`]).

use std::io;

use crate::checkpoint;
use crate::disk::Storage;
use crate::keeper::{NAME_RESERVE, NAME_REWRITING, make_reserve};
use crate::segments::{segment_name, sequence_of};

/// Before the name of a segment's file that is kept to be written again.
pub(super) const PREFIX_SPARE: &str = "spare-";

/// The name of a segment that a start has put aside because it was not begun.
pub(crate) fn spare_name(sequence: u64) -> String {
    format!("{PREFIX_SPARE}{}", segment_name(sequence))
}

/// Puts aside what is unused: segments from `next_sequence` on.
///
/// # Errors
/// The folder cannot be listed.
pub(super) fn put_aside(storage: &dyn Storage, journal: u16, next_sequence: u64) -> io::Result<()> {
    let (mut unused, mut unfinished, mut has_reserve) = (Vec::new(), Vec::new(), false);
    for name in storage.list()? {
        has_reserve |= name == NAME_RESERVE;
        match sequence_of(&name) {
            Some(sequence) if sequence >= next_sequence => unused.push((sequence, name)),
            None if name == NAME_REWRITING || name == checkpoint::NAME_NEW => unfinished.push(name),
            _ => {}
        }
    }
    unused.sort_unstable();
    for (_, file) in unused.into_iter().rev() {
        if let Err(error) = storage.rename(&file, &format!("{PREFIX_SPARE}{file}")) {
            tracing::warn!(journal, file, %error, "a prepared segment could not be put aside, it is used under the name that it has");
            break;
        }
    }
    for file in unfinished {
        // It may have been what is kept for a checkpoint, whose space a quota that is exceeded would not give again.
        if file == checkpoint::NAME_NEW && !has_reserve && make_reserve(storage) {
            continue;
        }
        if let Err(error) = storage.discard(&file, None) {
            tracing::warn!(journal, file, %error, "an unfinished file could not be removed, that will be tried again");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::faulty::Faulty;
    use super::*;

    #[test]
    fn segments_stay_from_the_first_that_cannot_be_renamed_down_to_the_journals_end() {
        let names = |aside: &[u64]| {
            let mut all: Vec<String> = (4..=7)
                .map(|sequence| if aside.contains(&sequence) { spare_name(sequence) } else { segment_name(sequence) })
                .collect();
            all.sort();
            all
        };
        for (stays, aside) in [(4, &[5, 6, 7][..]), (5, &[6, 7]), (6, &[7]), (7, &[])] {
            let folder = tempfile::tempdir().expect("a folder");
            let storage = |stays: String| Faulty::refusing(folder.path(), stays);
            let all = || {
                let mut all = storage(String::new()).list().expect("a folder");
                all.sort();
                all
            };
            (4..=7).for_each(|sequence| {
                drop(storage(String::new()).create(&segment_name(sequence), 4096).expect("there is space"))
            });
            put_aside(&storage(segment_name(stays)), 0, 5).expect("it can be listed");
            assert_eq!(all(), names(aside), "{stays} stays");
            put_aside(&storage(String::new()), 0, 5).expect("it can be listed");
            assert_eq!(all(), names(&[5, 6, 7]), "the next start, after {stays} has stayed");
        }
    }

    #[test]
    fn an_unfinished_file_that_cannot_be_removed_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = Faulty::refusing(folder.path(), NAME_REWRITING.to_owned());
        [NAME_REWRITING, checkpoint::NAME_NEW, checkpoint::NAME]
            .iter()
            .for_each(|name| drop(storage.create(name, 4096).expect("there is space")));
        put_aside(&storage, 0, 5).expect("it can be listed");
        let mut left = storage.list().expect("a folder");
        left.sort();
        assert_eq!(left, [checkpoint::NAME, NAME_RESERVE, NAME_REWRITING], "what may have been kept is kept");
        drop(storage.create(checkpoint::NAME_NEW, 4096).expect("there is space"));
        put_aside(&storage, 0, 5).expect("it can be listed");
        assert_eq!(storage.list().expect("a folder").len(), 3, "once");
    }
}
