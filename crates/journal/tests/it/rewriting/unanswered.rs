//! A rewritten segment gets its name, that is said to have failed, and nobody can look which file has the name.

use super::*;

fn unanswered(healed: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    node.fill();
    *node.watch.unanswered.lock() = Some(String::new());
    node.trim();
    let name = node.watch.unanswered.lock().clone().expect("it is kept");
    assert!(name.starts_with("segment-"), "one was replaced, or so it is said: {name:?}");
    // What follows is sealed and rewritten, too.
    node.fill();
    node.trim();
    if healed {
        *node.watch.unanswered.lock() = None;
        let before = node.sealed_bytes();
        node.look();
        assert!(node.sealed_bytes() < before, "what was in doubt gives its space back: {before}");
    }
    drop(node);
    let node = Node::open(folder.path(), IoMode::Buffered, config()).expect("it opens again");
    for id in (1..=LOGS).filter(|id| id % (LOGS / KEPT) == 0) {
        let log = node.journal.create_log(LogId(id), Durability::Fsync);
        assert_eq!((log.start(), read_all(&node.journal, &log, VALUE_BYTES)), (Offset(0), Offset(2 * ROUNDS)));
    }
    node.close();
}

#[test]
fn what_a_segment_may_replace_stays_as_it_is() {
    unanswered(false);
}

#[test]
fn a_segment_that_was_found_to_have_its_name_takes_its_place() {
    unanswered(true);
}
