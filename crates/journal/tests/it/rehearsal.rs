//! A start that changes nothing takes what a start takes, and leaves the folder as it is.

use std::collections::BTreeMap;
use std::path::Path;

use journal::disk::IoMode;
use journal::rehearse;
use types::LogId;

use crate::node::{Node, small};

const VALUE_BYTES: usize = 1000;

/// All files of a folder with what is in them.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable"));
    entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("readable")))
        .collect()
}

#[test]
fn a_rehearsal_takes_what_a_start_takes_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens");
    for _ in 0..60 {
        node.append_batch(&node.log(3), 50, VALUE_BYTES).expect("appended");
    }
    let (end, uuid) = (node.log(3).end(), node.journal.uuid());
    node.close();
    // What interrupted work leaves, and a start does away with.
    for name in ["rewriting", "segment-000000000999"] {
        std::fs::write(folder.path().join(name), [1; 8192]).expect("written");
    }
    let before = contents(folder.path());
    assert!(before.contains_key("checkpoint") && before.contains_key("reached"), "{:?}", before.keys());
    let journal = rehearse(folder.path(), 0).expect("a start takes it");
    assert_eq!((journal.uuid(), journal.log(LogId(3)).expect("it is there").end()), (uuid, end));
    journal.check_segments(&|_| true).expect("nothing is missing");
    assert!(contents(folder.path()) == before, "it is as it was");
    // A segment that the checkpoint covers.
    let sealed = before.keys().find(|name| name.starts_with("segment-")).expect("a segment");
    std::fs::remove_file(folder.path().join(sealed)).expect("removed");
    let journal = rehearse(folder.path(), 0).expect("whose records are missed, others say");
    assert!(journal.check_segments(&|_| true).is_err() && journal.check_segments(&|_| false).is_ok());
}

/// A crash before the header of the first segment is on the disk: a start makes it anew.
#[test]
fn a_rehearsal_takes_a_segment_that_was_made_and_not_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("segment-000000000001"), vec![0; 1 << 20]).expect("written");
    let before = contents(folder.path());
    rehearse(folder.path(), 0).expect("a start takes it");
    assert!(contents(folder.path()) == before, "it is as it was");
    Node::open(folder.path(), IoMode::Buffered, small()).expect("it opens").close();
    rehearse(folder.path(), 0).expect("and once it is begun");
}
