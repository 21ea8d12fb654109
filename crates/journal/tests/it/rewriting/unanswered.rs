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

/// Rewritten once more it names itself alone; what it has of others is known to the checkpoint that comes before that.
#[test]
fn a_segment_that_has_taken_its_place_late_is_not_rewritten_before_a_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    let logs: Vec<_> = (1..=LOGS).map(|id| node.log(id)).collect();
    for round in 1..=ROUNDS {
        node.append(logs.iter().map(|log| item(log, VALUE_BYTES)).collect());
        // In one segment alone.
        let own = node.log(LOGS + round);
        node.append(vec![item(&own, VALUE_BYTES)]);
    }
    *node.watch.unanswered.lock() = Some(String::new());
    node.trim();
    *node.watch.unanswered.lock() = None;
    node.look_once();
    assert!(node.rewritten() > 0, "it is found out");
    let logs = (1..=LOGS).filter(|id| id % 40 != 0).map(|id| node.log(id)).filter(|log| log.start() < log.end());
    assert!(submit(&node.journal, logs.map(|log| AppendItem::Trim { to: log.end(), log }).collect()), "there is room");
    let before = node.rewritten();
    for _ in 0..20 {
        node.write();
        node.look_once();
        let copy = without(folder.path(), "");
        let copied = ByHand::open(copy.path());
        for (id, end) in (1..=LOGS)
            .filter(|id| id % 40 == 0)
            .map(|id| (id, ROUNDS))
            .chain((1..=ROUNDS).map(|round| (LOGS + round, 1)))
        {
            let log = copied.log(id);
            assert_eq!((log.start(), read_all(&copied.journal, &log, VALUE_BYTES)), (Offset(0), Offset(end)));
        }
    }
    assert!(node.rewritten() > before, "it is rewritten once more");
}

#[test]
fn what_a_segment_may_replace_stays_as_it_is() {
    unanswered(false);
}

#[test]
fn a_segment_that_was_found_to_have_its_name_takes_its_place() {
    unanswered(true);
}
