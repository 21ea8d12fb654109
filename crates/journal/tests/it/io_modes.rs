//! The same journal in each of the three modes of disk I/O.

use journal::disk::IoMode;
use types::Offset;

use crate::node::{Node, Seen, modes, read, read_all, read_cold, small};

const VALUE_BYTES: usize = 700;

#[test]
fn what_is_appended_is_read_from_memory_and_disk_and_after_a_restart() {
    for mode in modes() {
        in_mode(mode);
    }
}

fn in_mode(mode: IoMode) {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::open(folder.path(), mode, small()).expect("an empty folder opens");
    for round in 0..60 {
        for id in 1..=3 {
            let appended = node.append_batch(&node.log(id), 1 + (round * id) % 90, VALUE_BYTES).expect("appended");
            assert!(!appended.duplicate);
        }
    }
    let ends: Vec<Offset> = (1..=3).map(|id| read_all(&node.journal, &node.log(id), VALUE_BYTES)).collect();
    for id in 1..=3 {
        let (log, mut at) = (node.log(id), Offset(0));
        while at < log.high_watermark() {
            let Seen::Until(next) = read_cold(&node.journal, &log, at, 100 << 10, VALUE_BYTES) else {
                panic!("{mode}: nothing at {at}")
            };
            at = next;
        }
    }
    assert!(node.journal.segment_usage().0 > 3, "{mode}: several segments were written");
    node.trim(&node.log(2), 500).expect("trimmed");
    assert_eq!(read(&node.journal, &node.log(2), Offset(499), 1, VALUE_BYTES), Seen::Gone);
    let term = node.journal.term();
    node.close();
    let node = Node::open(folder.path(), mode, small()).expect("it opens again");
    assert!(node.journal.term() > term, "{mode}: a new reign");
    for (id, end) in (1..=3).zip(&ends) {
        assert_eq!(read_all(&node.journal, &node.log(id), VALUE_BYTES), *end, "{mode}: log {id}");
    }
    assert_eq!(node.log(2).start(), Offset(500));
    node.append_batch(&node.log(1), 3, VALUE_BYTES).expect("appended after a restart");
    assert_eq!(read_all(&node.journal, &node.log(1), VALUE_BYTES), Offset(ends[0].0 + 3));
    node.close();
}

#[test]
fn a_folder_written_in_one_mode_opens_in_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut end = Offset(0);
    for mode in modes().into_iter().chain(modes()) {
        let node = Node::open(folder.path(), mode, small()).expect("it opens");
        let log = node.log(9);
        assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), end, "{mode}");
        for _ in 0..40 {
            node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
        }
        end = log.end();
        node.close();
    }
}
