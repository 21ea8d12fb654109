//! Checkpoints that cannot be replaced: space comes back all the same, as long as two files have the newest one, and any of them may be lost.

use super::*;

const NAMES: [&str; 3] = ["checkpoint", "checkpoint-copy", "checkpoint-third"];

/// The names of checkpoints that are there.
fn checkpoints(folder: &Path) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| folder.join(name).exists()).collect()
}

/// Whichever of the checkpoints is lost, a start finds the log as it is.
fn any_may_be_lost(folder: &Path, (start, end): (Offset, Offset)) {
    for lost in checkpoints(folder) {
        let copy = without(folder, lost);
        let node = ByHand::open(copy.path());
        let log = node.log(1);
        assert_eq!((log.start(), log.end()), (start, end), "without {lost}");
    }
}

#[test]
fn a_checkpoint_that_cannot_be_replaced_holds_up_nothing() {
    for (stuck, immutable) in
        [("checkpoint", false), ("checkpoint", true), ("checkpoint-copy", false), ("checkpoint-copy", true)]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = ByHand::open(folder.path());
        write_and_trim(&mut node, 10);
        assert_eq!(checkpoints(folder.path()), NAMES[..2]);
        stuck.clone_into(&mut node.watch.stuck.lock());
        *node.watch.immutable.lock() = immutable;
        let watch = Arc::clone(&node.watch);
        for start in 0..3 {
            write_and_trim(&mut node, 60);
            assert!(
                segments(folder.path()) <= 6,
                "{stuck}, {immutable}, start {start}: {} segments",
                segments(folder.path())
            );
            assert_eq!((checkpoints(folder.path()), node.journal.held_up()), (NAMES.to_vec(), None));
            let log = node.log(1);
            let known = (log.start(), log.end());
            any_may_be_lost(folder.path(), known);
            drop(node);
            let found = journal::survey(folder.path(), 0, &journal::MemoryArchive::default(), &|_| {})
                .expect("it can be looked at");
            assert_eq!(found.damages, Vec::new(), "{stuck}, {immutable}, start {start}");
            node = ByHand::open_with(folder.path(), Arc::clone(&watch));
            let log = node.log(1);
            assert_eq!((log.start(), log.end()), known, "{stuck}, {immutable}, start {start}");
        }
        watch.stuck.lock().clear();
        write_and_trim(&mut node, 10);
        assert_eq!(checkpoints(folder.path()), NAMES[..2], "{stuck}: it is replaced, and nothing stands for it");
        let log = node.log(1);
        any_may_be_lost(folder.path(), (log.start(), log.end()));
    }
}

/// Nothing is sealed between them, so that all their checkpoints end at the same record.
#[test]
fn any_number_of_starts_beside_an_immutable_checkpoint_holds_up_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    write_and_trim(&mut node, 10);
    let log = node.log(1);
    (0..30).for_each(|_| node.append(vec![item(&log, LARGE)]));
    node.look();
    drop(log);
    "checkpoint".clone_into(&mut node.watch.stuck.lock());
    *node.watch.immutable.lock() = true;
    let watch = Arc::clone(&node.watch);
    for _ in 0..20 {
        drop(node);
        node = ByHand::open_with(folder.path(), Arc::clone(&watch));
        node.look();
    }
    assert!(segments(folder.path()) > 6);
    let log = node.log(1);
    node.append(vec![AppendItem::Trim { to: log.end(), log }]);
    node.look();
    assert_eq!(node.journal.held_up(), None);
    assert!(segments(folder.path()) <= 6, "{} segments", segments(folder.path()));
}

/// Each rewriting is behind a checkpoint, and none of these covers more than the one before.
#[test]
fn of_checkpoints_with_the_same_end_the_newest_is_taken() {
    for stuck in ["checkpoint", "checkpoint-copy"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = ByHand::open(folder.path());
        node.fill();
        // Its records are in a later segment than those of the others, into which all are rewritten.
        let (late, full) = (node.log(LOGS + 1), node.log(LOGS + 2));
        (0..3).for_each(|_| node.append(vec![item(&late, VALUE_BYTES)]));
        // The last of these is in a segment that has room for all that follows.
        (0..5).for_each(|_| node.append(vec![item(&full, LARGE)]));
        node.look();
        stuck.clone_into(&mut node.watch.stuck.lock());
        let before = std::fs::read(folder.path().join(stuck)).expect("it is there");
        for kept in [4, 16, 64] {
            let rewritten = node.rewritten();
            let logs =
                (1..=LOGS).filter(|id| id % kept != 0).map(|id| node.log(id)).filter(|log| log.start() < log.end());
            let items = logs.map(|log| AppendItem::Trim { to: log.end(), log }).collect();
            node.append(items);
            node.look();
            assert!(node.rewritten() > rewritten, "{stuck}: what was rewritten is rewritten again");
        }
        let end = |bytes: &[u8]| bytes[24..48].to_vec();
        let newest = std::fs::read(folder.path().join("checkpoint-third")).expect("it stands for the other");
        assert_eq!(end(&before), end(&newest), "{stuck}: they cover the same");
        assert_ne!(before, newest);
        for lost in ["", "checkpoint", "checkpoint-copy", "checkpoint-third"] {
            let copy = without(folder.path(), lost);
            let node = ByHand::open(copy.path());
            for id in 1..=LOGS {
                let (log, start) = (node.log(id), Offset(if id % 64 == 0 { 0 } else { ROUNDS }));
                assert_eq!(
                    (log.start(), log.end()),
                    (start, Offset(ROUNDS)),
                    "{stuck}: {log:?} without {lost}",
                    log = log.id()
                );
                assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), Offset(ROUNDS));
            }
            let late = node.log(LOGS + 1);
            assert_eq!((late.start(), late.end()), (Offset(0), Offset(3)));
            assert_eq!(read_all(&node.journal, &late, VALUE_BYTES), Offset(3));
            assert!(node.journal.check_segments(&|_| true).is_ok(), "{stuck}: without {lost}");
        }
    }
}

#[test]
fn where_two_checkpoints_cannot_be_replaced_the_journal_says_that_no_space_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    write_and_trim(&mut node, 10);
    "checkpoint checkpoint-copy".clone_into(&mut node.watch.stuck.lock());
    write_and_trim(&mut node, 60);
    let why = node.journal.held_up().expect("it is said");
    assert!(why.contains("checkpoint-copy: ") && why.contains("os error 5"), "{why}");
    assert!(segments(folder.path()) > 12, "only one file would have the newest checkpoint: nothing is freed");
    let log = node.log(1);
    any_may_be_lost(folder.path(), (log.start(), log.end()));
    node.watch.stuck.lock().clear();
    write_and_trim(&mut node, 1);
    assert_eq!(node.journal.held_up(), None);
    assert!(segments(folder.path()) <= 6, "{} segments", segments(folder.path()));
}

#[test]
fn a_start_names_the_file_that_it_cannot_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    node.fill();
    node.look();
    let watch = Arc::clone(&node.watch);
    drop(node);
    let newest = format!("segment-{:012}", segments(folder.path()) - 2);
    *watch.immutable.lock() = true;
    for stuck in ["segment-000000000001", "segment-000000000002", &newest] {
        stuck.clone_into(&mut watch.stuck.lock());
        let error = ByHand::try_open(folder.path(), Arc::clone(&watch)).err().expect("it cannot be opened").to_string();
        assert!(error.contains(stuck), "{stuck}: {error}");
    }
    watch.stuck.lock().clear();
    check_all(&ByHand::open_with(folder.path(), watch).journal);
}

/// Nothing was let go.
fn check_all(journal: &journal::Journal) {
    for id in 1..=LOGS {
        let log = journal.create_log(LogId(id), Durability::Fsync);
        assert_eq!((log.start(), log.end()), (Offset(0), Offset(ROUNDS)));
    }
}
