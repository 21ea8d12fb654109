//! A journal pinned while it is written: the copy has all that was acknowledged before, whatever becomes of the files.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use journal::disk::IoMode;
use journal::{MemoryArchive, survey};
use types::Durability;

use crate::node::{Node, modes, read_all, small};

const VALUE_BYTES: usize = 900;

fn backed_up(mode: IoMode) {
    let (folder, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let node = Arc::new(Node::open(folder.path(), mode, small()).expect("it opens"));
    let log = node.log(1);
    // Answered before it is flushed.
    let quick = node.journal.create_log(types::LogId(2), Durability::Memory);
    for _ in 0..60 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
        node.append_batch(&quick, 1, VALUE_BYTES).expect("appended");
    }
    let ends = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (node, log, ends) = (Arc::clone(&node), Arc::clone(&log), Arc::clone(&ends));
        move || {
            while !ends.load(Ordering::SeqCst) {
                node.append_batch(&log, 20, VALUE_BYTES).expect("appended");
            }
        }
    });
    let acknowledged = [log.end(), quick.end()];
    let pins = folder.path().join("pinned");
    fs::create_dir(&pins).expect("a folder");
    let pinned = node.journal.pin(&pins).expect("pinned");
    // What is copied later is what was pinned: meanwhile everything is trimmed, freed and recycled.
    std::thread::sleep(std::time::Duration::from_millis(100));
    ends.store(true, Ordering::SeqCst);
    writer.join().expect("no panic");
    node.trim(&log, log.end().0).expect("trimmed");
    for _ in 0..80 {
        node.append_batch(&quick, 50, VALUE_BYTES).expect("appended");
    }
    for name in &pinned.sealed {
        fs::hard_link(pins.join(name), copy.path().join(name)).or_else(|_| fs::copy(pins.join(name), copy.path().join(name)).map(drop)).expect("taken");
    }
    pinned.copy_open(&pins, copy.path(), mode, &|_| {}).expect("copied");
    fs::remove_dir_all(&pins).expect("removed");
    for _ in 0..80 {
        node.append_batch(&quick, 50, VALUE_BYTES).expect("appended");
    }
    Arc::into_inner(node).expect("the only one").close();
    let found = survey(copy.path(), 0, &MemoryArchive::default(), &|_| {}).expect("it can be looked at");
    assert_eq!((found.damages, found.last), (Vec::new(), pinned.until), "{mode}");
    let node = Node::open(copy.path(), mode, small()).expect("the copy opens");
    for (number, before) in [1, 2].into_iter().zip(acknowledged) {
        let log = node.log(number);
        assert!(log.end() >= before, "{mode}: log {number} ends at {}, {before} was acknowledged", log.end());
        assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    }
    node.close();
}

#[test]
fn a_copy_has_all_that_was_acknowledged_before() {
    modes().into_iter().for_each(backed_up);
}
