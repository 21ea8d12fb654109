//! Transactions on a disk that is full: what is written is refused, what is open ends, and nothing needs a restart once there is
//! space again.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::disk::{File, IoMode, RealStorage, Storage};
use kafka_wire::ErrorCode;
use record::BatchBuilder;

use crate::node::Node;
use crate::transactions::{DONE, END_V2, PRODUCE_V2, batch, end_of, init_of, produce_of, read_of};

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// A disk on which no segment can be made while it is full.
struct Disk {
    storage: RealStorage,
    full: AtomicBool,
}

impl Disk {
    fn new(folder: &Path) -> Arc<Self> {
        Arc::new(Self {
            storage: RealStorage::open(folder, IoMode::Buffered).expect("a folder"),
            full: AtomicBool::new(false),
        })
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        if self.full.load(Ordering::SeqCst) && name.starts_with("segment") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.storage.create(name, size)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.storage.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.storage.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.storage.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.storage.free_bytes()
    }
}

/// Fills the disk with records outside of transactions.
fn fill(node: &mut Node, client: usize, disk: &Disk) {
    disk.full.store(true, Ordering::SeqCst);
    // The small ones take what is left beside the large ones.
    for bytes in [100_000, 1] {
        let value = vec![b'x'; bytes];
        let batch = || -> Bytes { BatchBuilder::default().record(1, None, Some(&value)).build() };
        let refused = (0..1000).map(|_| node.produce(client, "bulk", 0, batch()).0).find(|code| *code != DONE);
        assert_eq!(refused, Some(ErrorCode::KafkaStorageError.code()), "the disk is full");
    }
}

fn last_stable(node: &mut Node, client: usize, partition: i32) -> (i64, i64) {
    let read = read_of(node, client, partition, 0, true);
    (read.last_stable_offset, read.high_watermark)
}

#[test]
fn a_transaction_that_a_full_disk_interrupts_can_end_and_the_next_ones_go_on_when_there_is_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::new(folder.path());
    let mut node = Node::start_on(vec![Arc::clone(&disk) as Arc<dyn Storage>], &[]);
    let client = node.connect();
    node.create_topic(client, "t", 2);
    node.create_topic(client, "bulk", 1);
    let (_, producer) = init_of(&mut node, client, "orders", 60_000);
    assert_eq!(produce_of(&mut node, client, "orders", PRODUCE_V2, 0, batch(producer, 0)).0, DONE);
    fill(&mut node, client, &disk);
    let refused = produce_of(&mut node, client, "orders", PRODUCE_V2, 0, batch(producer, 1)).0;
    assert_eq!(refused, ErrorCode::KafkaStorageError.code());
    assert_eq!(last_stable(&mut node, client, 0), (0, 1));
    let (code, producer) = end_of(&mut node, client, "orders", END_V2, producer, false);
    assert_eq!((code, last_stable(&mut node, client, 0)), (DONE, (2, 2)), "readers go on");

    // The next one finds no space, and runs out of time.
    let (code, short) = init_of(&mut node, client, "short", 1000);
    assert_eq!(code, DONE, "state is taken");
    let began = Instant::now();
    loop {
        let code = produce_of(&mut node, client, "short", PRODUCE_V2, 1, batch(short, 0)).0;
        if code == ErrorCode::InvalidProducerEpoch.code() {
            break;
        }
        assert!(
            [ErrorCode::KafkaStorageError, ErrorCode::ConcurrentTransactions].map(ErrorCode::code).contains(&code),
            "{code}"
        );
        assert!(began.elapsed() < PATIENCE, "time-outs go on");
        std::thread::sleep(Duration::from_millis(100));
    }
    disk.full.store(false, Ordering::SeqCst);
    let began = Instant::now();
    while produce_of(&mut node, client, "orders", PRODUCE_V2, 0, batch(producer, 0)).0 != DONE {
        assert!(began.elapsed() < PATIENCE, "there is space again");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(end_of(&mut node, client, "orders", END_V2, producer, true).0, DONE);
    assert_eq!(last_stable(&mut node, client, 0), (4, 4));
    node.stop();
}

/// Also what is kept back is used up: the decision of the time-out cannot be written, and is when there is space.
#[test]
fn a_transaction_whose_time_is_over_ends_when_there_is_space_even_if_nothing_was_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::new(folder.path());
    let mut node = Node::start_on(vec![Arc::clone(&disk) as Arc<dyn Storage>], &[]);
    let client = node.connect();
    node.create_topic(client, "t", 2);
    node.create_topic(client, "bulk", 1);
    let (_, asked) = init_of(&mut node, client, "asked", 60_000);
    assert_eq!(produce_of(&mut node, client, "asked", PRODUCE_V2, 0, batch(asked, 0)).0, DONE);
    let (_, silent) = init_of(&mut node, client, "silent", 15_000);
    let began = Instant::now();
    assert_eq!(produce_of(&mut node, client, "silent", PRODUCE_V2, 1, batch(silent, 0)).0, DONE);
    fill(&mut node, client, &disk);
    let taken =
        (0..).take_while(|number| init_of(&mut node, client, &format!("id-{number}"), 60_000).0 == DONE).count();
    assert!(taken > 0, "state goes on for a while");
    let (code, _) = end_of(&mut node, client, "asked", END_V2, asked, true);
    assert_ne!(code, DONE, "what is not written is not acknowledged");
    std::thread::sleep(Duration::from_millis(16_500).saturating_sub(began.elapsed()));
    for partition in [0, 1] {
        assert_eq!(last_stable(&mut node, client, partition), (0, 1), "neither has ended");
    }

    disk.full.store(false, Ordering::SeqCst);
    let began = Instant::now();
    while [0, 1].iter().any(|partition| last_stable(&mut node, client, *partition) != (2, 2)) {
        assert!(began.elapsed() < PATIENCE, "both end: the one as was decided, the other by its time-out");
        std::thread::sleep(Duration::from_millis(50));
    }
    let aborted = |read: kafka_wire::fetch::PartitionData| read.aborted_transactions.map_or(0, |aborted| aborted.len());
    let read = [0, 1].map(|partition| aborted(read_of(&mut node, client, partition, 0, true)));
    assert_eq!(read, [0, 1], "committed, aborted");
    node.stop();
}

/// One journal has no space at all, the other one has: what has been written of the end stays as it is until the rest can be.
#[test]
fn a_transaction_over_two_journals_ends_when_the_one_that_is_full_has_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let disks = [0, 1].map(|number| {
        let folder = folder.path().join(number.to_string());
        std::fs::create_dir(&folder).expect("a folder");
        Disk::new(&folder)
    });
    let mut node = Node::start_on(disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Storage>).collect(), &[]);
    let client = node.connect();
    // Partitions 0 are in journal 1, the others in journal 0.
    node.create_topic(client, "t", 2);
    node.create_topic(client, "bulk", 2);
    let (_, both) = init_of(&mut node, client, "both", 60_000);
    for partition in [0, 1] {
        assert_eq!(produce_of(&mut node, client, "both", PRODUCE_V2, partition, batch(both, 0)).0, DONE);
    }
    fill(&mut node, client, &disks[1]);
    let (_, mut other) = init_of(&mut node, client, "other", 60_000);
    for ends in 0.. {
        assert_eq!(
            produce_of(&mut node, client, "other", PRODUCE_V2, 0, batch(other, 0)).0,
            ErrorCode::KafkaStorageError.code()
        );
        let (code, next) = end_of(&mut node, client, "other", END_V2, other, false);
        if code != DONE {
            assert!(ends > 1, "markers are taken for a while");
            break;
        }
        assert!(ends < 1000, "the disk is full");
        other = next;
    }
    assert_ne!(end_of(&mut node, client, "both", END_V2, both, true).0, DONE);
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!([0, 1].map(|partition| last_stable(&mut node, client, partition).0), [0, 2]);

    disks[1].full.store(false, Ordering::SeqCst);
    let began = Instant::now();
    loop {
        let (stable, end) = last_stable(&mut node, client, 0);
        if stable > 1 && stable == end {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "both end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(last_stable(&mut node, client, 1), (2, 2), "one marker, however often the end was tried");
    node.stop();
}
