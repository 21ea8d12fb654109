//! Where a journal ends: damage in a chunk of any length is told from a torn end, and a newest segment that is gone is missed.

use std::fs;
use std::path::{Path, PathBuf};

use journal::disk::IoMode;
use journal::{JournalConfig, OpenError};

use crate::node::{Node, read_all, small};
use crate::repair::{SECTOR, VALUE_BYTES, active, chunks, filled, flip, look, open, repaired, segments};

/// One record of 6 MiB.
const LARGE_BYTES: usize = 6 << 20;

fn large() -> JournalConfig {
    JournalConfig { segment_bytes: 64 << 20, tail_bytes: 96 << 20, ..small() }
}

fn refusal(folder: &Path) -> OpenError {
    match Node::open(folder, IoMode::Buffered, small()) {
        Ok(_) => panic!("a damaged folder opened"),
        Err(error) => error,
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn damage_in_a_large_chunk_is_no_end() {
    // In a body, in a directory, in a header: magic and what the length is read from.
    for inside in [SECTOR + 100, 100, 1, 77] {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Node::open(folder.path(), IoMode::Buffered, large()).expect("an empty folder opens");
        let log = node.log(1);
        for _ in 0..6 {
            node.append_batch(&log, 1, LARGE_BYTES).expect("appended");
        }
        node.close();
        let path = active(folder.path());
        let second = chunks(&path)[2];
        flip(&path, second + inside);
        let error = refusal(folder.path());
        let text = error.to_string();
        assert!(error.is_damage() && text.contains(&format!("byte {second}")), "byte {inside} of it: {text}");
        let found = look(folder.path());
        let lost: Vec<_> = found.logs.values().flat_map(|log| &log.lost).collect();
        assert_eq!(
            (found.damages.len(), found.damages[0].position, lost.len()),
            (1, second, 1),
            "byte {inside} of it: {lost:?}"
        );
        flip(&path, second + inside);
        let node = Node::open(folder.path(), IoMode::Buffered, large()).expect("it was not changed");
        assert_eq!(read_all(&node.journal, &node.log(1), LARGE_BYTES).0, 6);
        node.close();
    }
}

/// A folder whose checkpoint covers nothing, of several segments that have chunks.
fn uncovered() -> (tempfile::TempDir, [types::Offset; 2], Vec<PathBuf>) {
    let (folder, ends) = filled();
    ["checkpoint", "checkpoint-copy"]
        .iter()
        .for_each(|name| fs::remove_file(folder.path().join(name)).expect("removable"));
    let begun: Vec<PathBuf> = segments(folder.path()).into_iter().filter(|path| !chunks(path).is_empty()).collect();
    assert!(begun.len() > 2);
    (folder, ends, begun)
}

#[test]
fn a_damaged_end_of_a_segment_is_no_end_of_the_journal() {
    let (folder, ends, begun) = uncovered();
    let full = &begun[begun.len() - 2];
    let all = chunks(full);
    for at in [all[all.len() - 1] + 5, all[all.len() - 2] + 200] {
        flip(full, at);
        let error = refusal(folder.path());
        assert!(error.is_damage() && error.to_string().contains(&name_of(full)), "{error}");
        assert!(
            look(folder.path()).damages.iter().any(|damage| damage.file.ends_with(&name_of(full))),
            "{:?}",
            look(folder.path()).damages
        );
        flip(full, at);
    }
    flip(full, all[all.len() - 2] + 200);
    flip(full, all[all.len() - 1] + 5);
    refusal(folder.path());
    repaired(folder.path(), &ends);
}

#[test]
fn a_newest_segment_that_is_gone_is_missed() {
    for with_prepared in [false, true] {
        for covered in [false, true] {
            let (folder, ends) = filled();
            if !covered {
                ["checkpoint", "checkpoint-copy"]
                    .iter()
                    .for_each(|name| fs::remove_file(folder.path().join(name)).expect("removable"));
            }
            let newest = active(folder.path());
            let aside = folder.path().join("aside");
            fs::rename(&newest, &aside).expect("renamable");
            let behind: Vec<PathBuf> = segments(folder.path()).into_iter().filter(|path| *path > newest).collect();
            if with_prepared {
                behind.iter().for_each(|path| fs::remove_file(path).expect("removable"));
            }
            let error = refusal(folder.path());
            assert!(
                matches!(error, OpenError::MissingSegment { .. }) && name_of(&newest).ends_with(&number_in(&error)),
                "{error}"
            );
            let found = look(folder.path());
            // Records at the end are lost, which only a survey's words can say.
            assert!(
                found.damages.iter().all(journal::Damage::is_repairable) && found.damages[0].file == name_of(&newest),
                "{:?}",
                found.damages
            );
            let end = found
                .damages
                .iter()
                .find(|damage| damage.what.contains("had come to chunk"))
                .unwrap_or_else(|| panic!("{:?}", found.damages));
            let number: u64 = number_in(&error).parse().expect("a number");
            assert!(end.id == "3-end" || end.id.starts_with(&format!("3-{}-", number - 1)), "{:?}", found.damages);
            fs::rename(&aside, &newest).expect("renamable");
            let node = open(folder.path());
            assert_eq!(read_all(&node.journal, &node.log(1), VALUE_BYTES), ends[0]);
            node.close();
        }
    }
}

fn number_in(error: &OpenError) -> String {
    let OpenError::MissingSegment { sequence } = error else { return String::new() };
    sequence.to_string()
}

#[test]
fn a_start_that_was_interrupted_when_it_put_segments_aside_is_repeated() {
    let (folder, ends) = filled();
    let newest = active(folder.path());
    for path in segments(folder.path()).into_iter().filter(|path| *path > newest) {
        fs::rename(&path, folder.path().join(format!("spare-{}", name_of(&path)))).expect("renamable");
    }
    let node = open(folder.path());
    assert_eq!(read_all(&node.journal, &node.log(1), VALUE_BYTES), ends[0]);
    node.close();
}

/// How many segment files a journal has.
pub fn segments_of(node: &Node) -> usize {
    node.journal.segment_usage().0
}
