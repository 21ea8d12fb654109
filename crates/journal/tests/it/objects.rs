//! Objects of the archive that are missing, damaged or not the ones that the journal names: readers and those who check files find the same,
//! by name, and what lies before and behind is read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use journal::{ArchiveStore, ColdWant, JournalConfig, MemoryArchive, ReadError, survey};
use types::Offset;

use crate::node::{Node, check, small};

const VALUE_BYTES: usize = 900;
const WINDOW: u64 = 4 << 20;
const BATCH: u64 = 50;

fn windowed() -> JournalConfig {
    JournalConfig { window_bytes: Some(WINDOW), object_bytes: 256 << 10, tail_bytes: 1 << 20, ..small() }
}

fn open(folder: &Path, archive: &Arc<MemoryArchive>) -> Node {
    Node::open_with(folder, archive, windowed()).expect("it opens")
}

/// A folder whose first log has more than two objects, and its second too; names and lengths of theirs.
fn filled(folder: &Path) -> (Arc<MemoryArchive>, Vec<(String, usize)>) {
    let archive = Arc::new(MemoryArchive::default());
    let node = open(folder, &archive);
    let logs = [node.log(1), node.log(2)];
    for _ in 0..120 {
        for log in &logs {
            node.append_batch(log, BATCH, VALUE_BYTES).expect("appended");
        }
    }
    let began = Instant::now();
    while logs.iter().any(|log| log.archived_until() < Offset(1000)) {
        assert!(began.elapsed() < Duration::from_secs(120), "they are archived");
        std::thread::sleep(Duration::from_millis(5));
    }
    node.close();
    let objects = archive.lengths();
    (archive, objects)
}

/// The first offset of an object, from its name.
fn base_of(name: &str) -> u64 {
    let last = name.rsplit('/').next().expect("a name");
    last.split('-').next().and_then(|base| base.parse().ok()).expect("an offset")
}

/// Reads a log from its start, and on behind what cannot be read. Returns the offsets, batch by batch, that cannot be read, and the words.
fn read_around(node: &Node, id: u64) -> (Vec<u64>, Vec<String>) {
    let log = node.log(id);
    let (mut at, mut lost, mut words) = (Offset(0), Vec::new(), Vec::new());
    while at < log.high_watermark() {
        let want = ColdWant { log: Arc::clone(&log), from: at, until: Offset(u64::MAX), max_bytes: 1 << 20 };
        match node.journal.read_cold(&[want], 1 << 20).remove(0) {
            Ok(data) => {
                assert_eq!(check(&log, at, &data.slices, VALUE_BYTES), data.next);
                assert!(data.next > at);
                at = data.next;
            }
            Err(ReadError::Segment(error)) => {
                lost.push(at.0);
                words.push(error.to_string());
                at = Offset(at.0 + BATCH);
            }
            Err(error) => panic!("{error}"),
        }
    }
    (lost, words)
}

/// What is done to an object, by name.
type Change = (&'static str, fn(&mut Vec<u8>));

#[test]
fn readers_and_a_survey_find_the_same_in_an_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let (archive, objects) = filled(folder.path());
    let name = &objects.iter().find(|(name, _)| name.contains("/1/") && base_of(name) > 0).expect("a second one").0;
    let changes: [Change; 9] = [
        ("magic of the header", |bytes| bytes[0] ^= 1),
        ("log in the header", |bytes| bytes[24] ^= 1),
        ("what is nothing in the header", |bytes| bytes[50] ^= 1),
        ("a batch", |bytes| bytes[100] ^= 1),
        ("the index", |bytes| {
            let at = bytes.len() - 140;
            bytes[at] ^= 1;
        }),
        ("the footer", |bytes| {
            let at = bytes.len() - 60;
            bytes[at] ^= 1;
        }),
        ("cut short", |bytes| bytes.truncate(bytes.len() - 10)),
        ("a byte behind the end", |bytes| bytes.push(0)),
        ("a page behind the end", |bytes| bytes.extend([7; 5000])),
    ];
    for (what, change) in changes {
        let mut before = Vec::new();
        assert!(archive.change(name, |bytes| {
            before = bytes.clone();
            change(bytes);
        }));
        found_by_both(folder.path(), &archive, name, what);
        assert!(archive.change(name, |bytes| *bytes = before));
    }
    let mut bytes = Vec::new();
    assert!(archive.change(name, |found| bytes = found.clone()));
    archive.delete(name).expect("deleted");
    found_by_both(folder.path(), &archive, name, "missing");
    archive.put(name, bytes.into()).expect("put");
    let node = open(folder.path(), &archive);
    assert_eq!((read_around(&node, 1).0, read_around(&node, 2).0), (Vec::new(), Vec::new()));
    assert_eq!(node.journal.unreadable(), []);
    node.close();
    assert_eq!(survey(folder.path(), 0, &*archive, &|_| {}).expect("looked at").damages, []);
}

fn found_by_both(folder: &Path, archive: &Arc<MemoryArchive>, name: &str, what: &str) {
    let node = open(folder, archive);
    let (lost, words) = read_around(&node, 1);
    assert!(!lost.is_empty() && lost[0] >= base_of(name), "{what}: {lost:?}");
    assert!(words.iter().all(|words| words.contains(name)), "{what}: {words:?}");
    assert!(lost.windows(2).all(|two| two[1] == two[0] + BATCH), "{what}: {lost:?}");
    let known = node.journal.unreadable();
    assert!(
        known.iter().all(|one| one.file == name && one.log.0 == 1) && (1..=2).contains(&known.len()),
        "{what}: {known:?}"
    );
    assert_eq!(read_around(&node, 2).0, Vec::<u64>::new(), "{what}: another log");
    node.close();
    let found = survey(folder, 0, &**archive, &|_| {}).expect("looked at");
    assert!(
        !found.damages.is_empty() && found.damages.iter().all(|damage| damage.file == name),
        "{what}: {:?}",
        found.damages
    );
    let ranges: Vec<_> = found
        .logs
        .iter()
        .flat_map(|(id, log)| log.lost.iter().map(|range| (id.0, range.start.0, range.end.0)))
        .collect();
    let until = lost.last().expect("some") + BATCH;
    assert_eq!(ranges, [(1, lost[0], until)], "{what}");
}

/// Two objects in each other's place are whole, and neither is what the journal names.
#[test]
fn objects_in_each_others_place_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let (archive, objects) = filled(folder.path());
    let of = |log: &str| objects.iter().map(|(name, _)| name).find(|name| name.contains(log)).expect("one");
    let (one, other) = (of("/1/"), of("/2/"));
    let mut bytes = Vec::new();
    assert!(archive.change(one, |found| bytes = found.clone()));
    assert!(archive.change(other, |found| std::mem::swap(found, &mut bytes)));
    assert!(archive.change(one, |found| *found = bytes));
    let node = open(folder.path(), &archive);
    for (id, name) in [(1, one), (2, other)] {
        let (lost, words) = read_around(&node, id);
        assert!(lost.first() == Some(&0) && words.iter().all(|words| words.contains(name)), "{words:?}");
    }
    node.close();
    let found = survey(folder.path(), 0, &*archive, &|_| {}).expect("looked at");
    let files: Vec<&String> = found.damages.iter().map(|damage| &damage.file).collect();
    assert_eq!(files, [one, other]);
}

/// What lies before an object that is not there is read, also by a fetch that reaches to it; when it is back it is read, too.
#[test]
fn records_before_a_missing_object_are_served_and_it_is_remembered_until_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (archive, objects) = filled(folder.path());
    let name = &objects.iter().find(|(name, _)| name.contains("/1/") && base_of(name) > 0).expect("a second one").0;
    let mut bytes = Vec::new();
    assert!(archive.change(name, |found| bytes = found.clone()));
    archive.delete(name).expect("deleted");
    let node = open(folder.path(), &archive);
    let log = node.log(1);
    let base = base_of(name);
    let read = |from: u64| {
        let want = ColdWant { log: Arc::clone(&log), from: Offset(from), until: Offset(u64::MAX), max_bytes: 8 << 20 };
        node.journal.read_cold(&[want], 8 << 20).remove(0)
    };
    for _ in 0..3 {
        assert_eq!(read(0).expect("readable").next, Offset(base), "up to the object");
        assert!(read(base).expect_err("it is missing").to_string().contains(name.as_str()));
    }
    let known = node.journal.unreadable();
    assert_eq!(
        known.iter().map(|one| (one.file.as_str(), one.log.0, one.from.0)).collect::<Vec<_>>(),
        [(name.as_str(), 1, base)]
    );
    archive.put(name, bytes.into()).expect("put");
    let began = Instant::now();
    loop {
        assert!(read(base).expect("it is back").next > Offset(base));
        // The archiver may have missed it just before, and say so after somebody else has read it.
        if node.journal.unreadable().is_empty() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "who reads it says that it is back");
    }
    node.close();
}
