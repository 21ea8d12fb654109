//! Damaged, missing and newer files: refused with a clear error, never served, never skipped.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use journal::disk::IoMode;
use journal::{ColdWant, OpenError};
use types::Offset;

use crate::node::{Node, read_all, small};

const VALUE_BYTES: usize = 900;
const SECTOR: usize = 4096;

/// A folder with several sealed segments and an active one.
fn filled() -> (tempfile::TempDir, Offset) {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path()).expect("an empty folder opens");
    let log = node.log(1);
    for _ in 0..80 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
    }
    let end = log.end();
    node.close();
    (folder, end)
}

fn open(folder: &Path) -> Result<Node, OpenError> {
    Node::open(folder, IoMode::Buffered, small())
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment-")))
        .collect();
    paths.sort();
    paths
}

/// The segment that was being written: the last that holds a chunk behind its header.
fn active(folder: &Path) -> PathBuf {
    let begun = |path: &PathBuf| chunks(path).next().is_some();
    segments(folder).into_iter().rfind(begun).expect("a segment with chunks")
}

/// Positions of what looks like a chunk, in order.
fn chunks(path: &Path) -> impl Iterator<Item = usize> + use<> {
    let bytes = fs::read(path).expect("readable");
    let magic = *bytes[SECTOR..].first_chunk::<4>().expect("longer than its header");
    let found: Vec<usize> =
        (SECTOR..bytes.len()).step_by(SECTOR).filter(|at| magic != [0; 4] && bytes[*at..*at + 4] == magic).collect();
    found.into_iter()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("openable");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("readable");
    file.write_all_at(&[byte[0] ^ 0x40], at).expect("writable");
}

fn refusal(folder: &Path) -> String {
    match open(folder) {
        Ok(_) => panic!("a damaged folder opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_flipped_byte_in_a_sealed_segment_is_an_error_with_file_and_position_and_is_never_served() {
    let (folder, end) = filled();
    let damaged = segments(folder.path())[0].clone();
    let place = chunks(&damaged).nth(2).expect("several chunks") + SECTOR;
    flip(&damaged, place as u64);
    let node = open(folder.path()).expect("sealed segments are checked when they are read");
    let log = node.log(1);
    let (mut at, mut errors) = (Offset(0), Vec::new());
    while at < end {
        let want = ColdWant { log: log.clone(), from: at, until: Offset(u64::MAX), max_bytes: 1 };
        match node.journal.read_cold(&[want], 1).remove(0) {
            Ok(data) => at = crate::node::check(&log, at, &data.slices, VALUE_BYTES),
            Err(error) => {
                errors.push(error.to_string());
                at = Offset(at.0 + 1);
            }
        }
    }
    assert!(!errors.is_empty(), "the damage is met");
    let name = damaged.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(errors.iter().all(|error| error.contains(&name) && error.contains("checksum")), "{}", errors[0]);
    node.close();
}

#[test]
fn damage_before_a_durable_chunk_refuses_to_open() {
    let (folder, _) = filled();
    let path = active(folder.path());
    let first = chunks(&path).next().expect("a chunk");
    flip(&path, first as u64 + 200);
    let refusal = refusal(folder.path());
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(refusal.contains(&name), "{refusal}");
}

#[test]
fn a_torn_last_chunk_is_cut_off() {
    let (folder, end) = filled();
    let path = active(folder.path());
    let last = chunks(&path).last().expect("a chunk");
    flip(&path, last as u64 + 200);
    assert!(refusal(folder.path()).contains("had come to chunk"), "the journal was ended in order");
    // As after a crash.
    fs::remove_file(folder.path().join("reached")).expect("removable");
    let node = open(folder.path()).expect("a torn end opens");
    let log = node.log(1);
    assert!(log.end() <= end, "nothing is invented");
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    node.append_batch(&log, 5, VALUE_BYTES).expect("appended behind the cut");
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    node.close();
}

#[test]
fn a_missing_segment_refuses_to_open() {
    let (folder, end) = filled();
    let lost = segments(folder.path())[0].clone();
    fs::remove_file(&lost).expect("removable");
    match open(folder.path()) {
        Err(error) => panic!("only the caller knows which logs were deleted: {error}"),
        Ok(node) => {
            let error = node.journal.check_segments(&|_| true).expect_err("records are missing").to_string();
            assert!(error.contains("segment 1 is missing"), "{error}");
            assert!(node.log(1).end() == end, "the rest is there");
        }
    }
}

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    for (what, path, at, covered) in versions() {
        let (folder, _) = filled();
        let path = match path {
            Place::Checkpoint => folder.path().join("checkpoint"),
            Place::Active => active(folder.path()),
            Place::Sealed => segments(folder.path())[0].clone(),
        };
        let length = fs::metadata(&path).expect("it is there").len();
        let at = if at < 0 { length - at.unsigned_abs() } else { at as u64 };
        let file = OpenOptions::new().write(true).open(&path).expect("openable");
        // A newer release would have checksums that fit.
        let mut head = vec![0; covered];
        OpenOptions::new().read(true).open(&path).expect("openable").read_exact_at(&mut head, at).expect("readable");
        head[4..6].copy_from_slice(&77u16.to_le_bytes());
        let crc = record::crc32c(&head).to_le_bytes();
        file.write_all_at(&head, at).expect("writable");
        file.write_all_at(&crc, at + covered as u64).expect("writable");
        let refusal = refusal(folder.path());
        assert!(
            refusal.contains("77") && refusal.contains("up to ") && refusal.contains("version"),
            "{what}: {refusal}"
        );
    }
}

enum Place {
    Checkpoint,
    Active,
    Sealed,
}

/// Where each kind of file has its magic number (negative: from the end), with the version four bytes behind it, and how many
/// bytes from there are covered by the checksum that follows them. A checkpoint's version is looked at before its checksum.
fn versions() -> [(&'static str, Place, i64, usize); 4] {
    [
        ("checkpoint", Place::Checkpoint, 0, 100),
        ("segment header", Place::Active, 0, 4092),
        ("chunk", Place::Active, SECTOR as i64, 92),
        ("index footer", Place::Sealed, -(SECTOR as i64), 4092),
    ]
}

#[test]
fn inspect_prints_chunks_and_the_index_of_a_sealed_segment() {
    let (folder, _) = filled();
    let mut text = Vec::new();
    journal::inspect(&segments(folder.path())[0], &mut text).expect("printable");
    let text = String::from_utf8(text).expect("text");
    for expected in
        ["segment 1 of chunks", "new term", "data log-1 offsets 0..", "sealed, last chunk", "log-1 offsets 0.."]
    {
        assert!(text.contains(expected), "{expected} in {}", &text[..text.len().min(600)]);
    }
}
