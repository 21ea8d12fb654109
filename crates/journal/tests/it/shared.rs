//! Batches that several logs share: each log reads them as its own, and they stay until the last of the logs lets go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use journal::disk::IoMode;
use journal::{AppendError, AppendItem, ColdWant, Log, TailRead};
use record::{BatchBuilder, BatchHeader, Batches};
use types::Offset;

use crate::node::{Node, modes, small};

/// Longest wait for the keeper.
const PATIENCE: Duration = Duration::from_secs(120);

/// A message of about `bytes`, told by its number.
fn message(number: u64, bytes: usize) -> (bytes::Bytes, BatchHeader) {
    let mut value = number.to_string().into_bytes();
    value.resize(bytes, b' ');
    let batch = BatchBuilder::default().record(1_000, None, Some(&value)).build();
    let header = BatchHeader::parse(&batch).expect("a valid batch");
    (batch, header)
}

fn own(log: &Arc<Log>, number: u64, bytes: usize) -> AppendItem {
    let (bytes, header) = message(number, bytes);
    AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }
}

fn shared(logs: &[Arc<Log>], number: u64, bytes: usize) -> AppendItem {
    let (bytes, header) = message(number, bytes);
    AppendItem::for_all(logs, &bytes, header).next().expect("there are logs")
}

/// The messages of a log from its start; their offsets follow each other.
fn read(node: &Node, log: &Arc<Log>, from_disk: bool) -> Vec<u64> {
    let (mut next, mut found) = (log.start(), Vec::new());
    while next < log.high_watermark() {
        let tail =
            if from_disk { TailRead::Cold } else { node.journal.read_tail(log, next..Offset(u64::MAX), 100_000, true) };
        let slices = match tail {
            TailRead::Data { slices, .. } => slices,
            _ => {
                let want = ColdWant { log: Arc::clone(log), from: next, until: Offset(u64::MAX), max_bytes: 100_000 };
                node.journal.read_cold(&[want], 100_000).remove(0).expect("readable").slices
            }
        };
        let bytes = slices.concat();
        for batch in Batches::new(&bytes) {
            let (at, header) = batch.expect("whole batches are served");
            let records = record::records(&bytes[at..at + header.total_bytes()]).expect("a readable batch");
            assert_eq!((header.base(), records[0].offset), (next, next), "{}", log.id());
            let value = records[0].value.as_ref().expect("a value");
            found.push(String::from_utf8_lossy(value).trim().parse().expect("a number"));
            next = header.next();
        }
    }
    found
}

/// Shared batches and the logs' own in one request, and so in one chunk: every log has them in the order of the request, from
/// memory and from the disk, before and after a restart.
#[test]
fn each_log_reads_them_in_its_order() {
    for mode in modes() {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Node::open(folder.path(), mode, small()).expect("a new journal");
        let logs: Vec<Arc<Log>> = (1..=5).map(|id| node.log(id)).collect();
        let mut expected: Vec<Vec<u64>> = vec![Vec::new(); 5];
        let mut number = 0;
        for _ in 0..20 {
            let mut items = Vec::new();
            // Two that join, an own one between two that would, another set, and own ones before and after.
            for sharers in [0..5, 0..5, 2..3, 0..5, 1..4, 1..4, 0..1, 4..5, 1..4, 0..5] {
                number += 1;
                expected[sharers.clone()].iter_mut().for_each(|messages| messages.push(number));
                items.push(match &logs[sharers] {
                    [log] => own(log, number, 300),
                    logs => shared(logs, number, 300),
                });
            }
            let together = number % 4 == 0;
            node.append(1, if together { vec![AppendItem::Together(items)] } else { items }).expect("there is room");
        }
        // The first item's answer has come; the others' ends follow with the commit that has the last.
        node.append(1, vec![own(&logs[0], number + 1, 10)]).expect("there is room");
        expected[0].push(number + 1);
        let check = |node: &Node, logs: &[Arc<Log>]| {
            for (log, messages) in logs.iter().zip(&expected) {
                assert_eq!(read(node, log, false), *messages, "{mode} {}", log.id());
                assert_eq!(read(node, log, true), *messages, "{mode} {} from the disk", log.id());
            }
        };
        check(&node, &logs);
        node.close();
        let node = Node::open(folder.path(), mode, small()).expect("a journal");
        check(&node, &(1..=5).map(|id| node.log(id)).collect::<Vec<_>>());
        node.close();
    }
}

/// Twenty-four logs share all they have: it is on the disk once. Some let go of all of it, one of most, one is deleted, one keeps everything:
/// what is left is exact, and stays so when segments are merged and after a restart. The space comes back with the last one.
#[test]
fn they_stay_until_the_last_log_lets_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Node::open(folder.path(), IoMode::Buffered, small()).expect("a journal");
    let node = open();
    let logs: Vec<Arc<Log>> = (1..=24).map(|id| node.log(id)).collect();
    const MESSAGES: u64 = 12_000;
    for first in (0..MESSAGES).step_by(40) {
        let items = (first..first + 40).map(|number| shared(&logs, number, 1_000)).collect();
        node.append(1, items).expect("there is room");
    }
    let payload = MESSAGES * 1_000;
    let grown = node.journal.file_bytes();
    // Of the last segments not everything is used yet.
    assert!(grown <= payload * 13 / 10 + (3 << 20), "{grown} bytes of files for {payload}");
    for log in &logs[2..23] {
        node.trim(log, MESSAGES).expect("there is room");
    }
    node.trim(&logs[1], MESSAGES - 5_000).expect("there is room");
    node.drop_log(&logs[23]).expect("dropped");
    assert!(matches!(node.append(1, vec![shared(&logs[23..], 0, 10)]), Err(AppendError::LogDeleted)));
    node.append(1, vec![shared(&logs[22..], MESSAGES, 10)]).expect("one of two is there");
    let all: Vec<u64> = (0..MESSAGES).collect();
    let check = |node: &Node, logs: &[Arc<Log>]| {
        assert_eq!(read(node, &logs[0], true), all);
        assert_eq!(read(node, &logs[1], true), all[MESSAGES as usize - 5_000..]);
        assert_eq!(read(node, &logs[22], true), [MESSAGES]);
    };
    node.journal.check_retention();
    check(&node, &logs);
    drop(logs);
    node.close();

    let node = open();
    node.journal.check_segments(&|_| true).expect("nothing is missing");
    let logs: Vec<Arc<Log>> = (1..=23).map(|id| node.log(id)).collect();
    check(&node, &logs);
    // Most of what the one has that has everything goes: half of the rest is still the other's.
    node.trim(&logs[0], MESSAGES - 100).expect("there is room");
    wait_for_segments(&node, 9);
    assert_eq!(read(&node, &logs[1], true), all[MESSAGES as usize - 5_000..]);
    node.trim(&logs[1], MESSAGES).expect("there is room");
    wait_for_segments(&node, 4);
    assert_eq!(read(&node, &logs[0], true), all[MESSAGES as usize - 100..]);
    node.close();
}

/// Waits until no more than so many segments are left.
fn wait_for_segments(node: &Node, most: usize) {
    let began = Instant::now();
    while node.journal.segment_usage().0 > most {
        assert!(began.elapsed() < PATIENCE, "{} segments are left", node.journal.segment_usage().0);
        node.journal.check_retention();
        std::thread::sleep(Duration::from_millis(20));
    }
}
