//! A survey finds all damage and what is lost with it; a repair leaves offsets as they are and everything else readable.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use journal::disk::IoMode;
use journal::{Damage, MemoryArchive, Original, Survey, repair, survey};
use types::{LogId, Offset};

use crate::archive::wait_for;
use crate::node::{Node, read_all, small};

pub const VALUE_BYTES: usize = 900;
pub const SECTOR: u64 = 4096;

pub fn open(folder: &Path) -> Node {
    Node::open(folder, IoMode::Buffered, small()).expect("it opens")
}

/// Several sealed segments and an open one, of two logs; the ends of these.
pub fn filled() -> (tempfile::TempDir, [Offset; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let logs = [node.log(1), node.log(2)];
    for round in 0..80 {
        node.append_batch(&logs[0], 50, VALUE_BYTES).expect("appended");
        if round % 4 == 0 {
            node.append_batch(&logs[1], 3, VALUE_BYTES).expect("appended");
        }
    }
    let ends = [logs[0].end(), logs[1].end()];
    node.close();
    (folder, ends)
}

pub fn look(folder: &Path) -> Survey {
    survey(folder, 3, &MemoryArchive::default(), &|_| {}).expect("it can be looked at")
}

pub fn segments(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = names
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment-")))
        .collect();
    paths.sort();
    paths
}

/// Positions of chunks.
pub fn chunks(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).expect("readable");
    (SECTOR..bytes.len() as u64)
        .step_by(SECTOR as usize)
        .filter(|at| bytes[*at as usize..].starts_with(b"MSCK"))
        .collect()
}

pub fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("openable");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("readable");
    file.write_all_at(&[byte[0] ^ 0x40], at).expect("writable");
}

/// The open segment: the last one that has chunks.
pub fn active(folder: &Path) -> PathBuf {
    segments(folder).into_iter().rfind(|path| !chunks(path).is_empty()).expect("a segment with chunks")
}

/// Repairs all damage; then logs 1, 2 and so on end where they did, can be read and written.
pub fn repaired(folder: &Path, ends: &[Offset]) {
    let found = look(folder);
    repair(folder, &found, Original::Kept, &Damage::is_repairable).expect("it can be repaired");
    let after = look(folder);
    assert_eq!(after.damages, []);
    assert!(after.logs.values().all(|log| log.lost.is_empty()), "{:?}", after.logs);
    let node = open(folder);
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    for (number, end) in (1..).zip(ends) {
        let log = node.log(number);
        assert_eq!(log.end(), *end, "log {number}: offsets are what they were");
        assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), *end);
        node.append_batch(&log, 5, VALUE_BYTES).expect("appended behind it");
        assert_eq!(read_all(&node.journal, &log, VALUE_BYTES).0, end.0 + 5);
    }
    node.close();
    assert_eq!(look(folder).damages, []);
}

#[test]
fn what_is_whole_is_found_whole() {
    let (folder, ends) = filled();
    let found = look(folder.path());
    assert_eq!(found.damages, []);
    assert!(found.chunks > 80 && found.last.0 > 80, "{} chunks, to {}", found.chunks, found.last);
    for (log, end) in [LogId(1), LogId(2)].into_iter().zip(ends) {
        assert_eq!((found.logs[&log].start, found.logs[&log].end, found.logs[&log].lost.len()), (Offset(0), end, 0));
    }
}

#[test]
fn a_flipped_bit_in_a_sealed_segment_costs_its_batch() {
    let (folder, ends) = filled();
    let damaged = segments(folder.path())[0].clone();
    let at = chunks(&damaged)[3];
    flip(&damaged, at + SECTOR);
    let found = look(folder.path());
    assert_eq!(found.damages.len(), 1, "{:?}", found.damages);
    assert_eq!((found.damages[0].id.as_str(), found.damages[0].position), (format!("3-1-{at}").as_str(), at));
    let lost: Vec<_> = found.logs.values().flat_map(|log| &log.lost).collect();
    assert!(lost.len() == 1 && lost[0].end.since(lost[0].start) <= 50, "{lost:?}");
    repaired(folder.path(), &ends);
    assert!(folder.path().join("damaged-segment-000000000001").exists(), "the damaged file is kept");
}

#[test]
fn a_damaged_header_of_a_sealed_chunk_is_passed_over() {
    let (folder, ends) = filled();
    let damaged = segments(folder.path())[1].clone();
    flip(&damaged, chunks(&damaged)[5] + 33);
    let found = look(folder.path());
    assert_eq!(found.damages.len(), 1, "{:?}", found.damages);
    repaired(folder.path(), &ends);
}

#[test]
fn a_file_that_was_about_to_be_used_again_is_no_damage() {
    let (folder, ends) = filled();
    let first = segments(folder.path())[0].clone();
    let used = fs::read(&first).expect("readable");
    let node = open(folder.path());
    node.trim(&node.log(1), ends[0].0 / 2).expect("trimmed");
    node.trim(&node.log(2), ends[1].0).expect("trimmed");
    wait_for("its space comes back", || !first.exists());
    node.close();
    let prepared = segments(folder.path()).pop().expect("one is prepared");
    assert!(prepared > active(folder.path()));
    fs::write(&prepared, used).expect("writable");
    assert_eq!(look(folder.path()).damages, []);
    let node = open(folder.path());
    assert_eq!(node.log(1).end(), ends[0]);
    node.close();
}

#[test]
fn a_damaged_index_costs_nothing() {
    let (folder, ends) = filled();
    let damaged = segments(folder.path())[1].clone();
    flip(&damaged, fs::metadata(&damaged).expect("it is there").len() - SECTOR + 50);
    let found = look(folder.path());
    assert!(found.damages.len() == 1 && found.damages[0].what.contains("index"), "{:?}", found.damages);
    assert!(found.logs.values().all(|log| log.lost.is_empty()));
    repaired(folder.path(), &ends);
}

#[test]
fn damage_behind_the_checkpoint_is_repaired_without_a_change_to_what_follows() {
    // The body, the directory, the header.
    for inside in [SECTOR, 100, 40] {
        let (folder, ends) = filled();
        let damaged = active(folder.path());
        let at = chunks(&damaged)[1];
        flip(&damaged, at + inside);
        assert!(Node::open(folder.path(), IoMode::Buffered, small()).is_err(), "byte {inside}: it is refused");
        let found = look(folder.path());
        assert_eq!(found.damages.len(), 1, "byte {inside}: {:?}", found.damages);
        let lost: u64 = found.logs.values().flat_map(|log| &log.lost).map(|range| range.end.since(range.start)).sum();
        assert!((1..=53).contains(&lost), "byte {inside}: {lost} records");
        repaired(folder.path(), &ends);
    }
}

#[test]
fn a_damaged_checkpoint_is_repaired_from_its_copy_and_not_without() {
    let (folder, ends) = filled();
    flip(&folder.path().join("checkpoint"), 60);
    assert!(look(folder.path()).damages.iter().all(Damage::is_repairable), "its copy says the same");
    repaired(folder.path(), &ends);
    for name in ["checkpoint", "checkpoint-copy"] {
        flip(&folder.path().join(name), 60);
    }
    let found = look(folder.path());
    assert!(
        found.damages.iter().any(|damage| damage.id == "3-checkpoint" && !damage.is_repairable()),
        "{:?}",
        found.damages
    );
    assert!(repair(folder.path(), &found, Original::Kept, &|damage| damage.id == "3-checkpoint").is_err());
}

#[test]
fn one_of_two_damages_of_a_segment_is_not_repaired_alone() {
    let (folder, _) = filled();
    let damaged = segments(folder.path())[0].clone();
    let places = chunks(&damaged);
    flip(&damaged, places[2] + SECTOR);
    flip(&damaged, places[4] + SECTOR);
    let found = look(folder.path());
    assert_eq!(found.damages.len(), 2);
    let error = repair(folder.path(), &found, Original::Kept, &|damage| damage.id == found.damages[0].id)
        .expect_err("the other goes with it");
    assert!(error.to_string().contains(&found.damages[1].id), "{error}");
    assert_eq!(look(folder.path()).damages.len(), 2, "nothing was changed");
}
