//! A disk that refuses: a failed write or flush ends the journal's writing for good, a full disk only until there is space again.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::disk::{Completion, File, IoMode, RealStorage, Storage, Submitter, Wait, Waker, WriteOp, submitter};
use journal::{Append, AppendError, AppendItem, Appended, EventSink, JournalEvent, JournalStatus, Log, ReplyTo};
use record::{BatchBuilder, BatchHeader, Marker};
use types::{ConnectionId, Durability, LogId, Offset, ShardId};

use crate::node::{Node, batch, read_all, small};

const VALUE_BYTES: usize = 1000;
/// More than is written with `RWF_DSYNC`: such commits wait for a flush.
const LONG_BATCH: u64 = 100;

/// What the disk refuses now.
#[derive(Default)]
struct Faults {
    writes: AtomicBool,
    flushes: AtomicBool,
    space: AtomicBool,
    /// Renames of segments that a start puts aside.
    asides: AtomicBool,
    /// Creations and syncs of the folder, as when there are no descriptors, …
    folder: AtomicBool,
    /// … and so many more calls of that kind succeed before.
    before: AtomicUsize,
}

impl Faults {
    fn error(fault: &AtomicBool) -> io::Result<()> {
        if fault.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn descriptor(&self) -> io::Result<()> {
        if !self.folder.load(Ordering::SeqCst)
            || self.before.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(libc::EMFILE))
    }
}

struct FaultyStorage {
    storage: RealStorage,
    faults: Arc<Faults>,
}

impl Storage for FaultyStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        // Space that was given back just now is there; nothing else is.
        let given_back = name == "checkpoint.new" && !self.list()?.iter().any(|name| name == "reserve");
        if self.faults.space.load(Ordering::SeqCst) && !given_back {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if name.starts_with("segment-") {
            self.faults.descriptor()?;
        }
        self.storage.create(name, size)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.faults.descriptor()?;
        self.storage.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if to.starts_with("spare-segment-") {
            Faults::error(&self.faults.asides)?;
        }
        self.storage.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.faults.descriptor()?;
        self.storage.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.storage.free_bytes()
    }
}

struct FaultySubmitter {
    submitter: Box<dyn Submitter>,
    faults: Arc<Faults>,
    failed: Vec<Completion>,
}

impl Submitter for FaultySubmitter {
    fn write(&mut self, op: WriteOp) {
        match Faults::error(&self.faults.writes) {
            Ok(()) => self.submitter.write(op),
            Err(error) => self.failed.push(Completion { token: op.token, result: Err(error) }),
        }
    }
    fn write_now(&mut self, op: WriteOp) -> Completion {
        match Faults::error(&self.faults.writes) {
            Ok(()) => self.submitter.write_now(op),
            Err(error) => Completion { token: op.token, result: Err(error) },
        }
    }
    fn sync(&mut self, token: u64, file: Arc<dyn File>) {
        match Faults::error(&self.faults.flushes) {
            Ok(()) => self.submitter.sync(token, file),
            Err(error) => self.failed.push(Completion { token, result: Err(error) }),
        }
    }
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) {
        let wait = if self.failed.is_empty() { wait } else { Wait::No };
        done.append(&mut self.failed);
        self.submitter.poll(wait, done);
    }
    fn waker(&self) -> Waker {
        self.submitter.waker()
    }
    fn capacity(&self) -> usize {
        self.submitter.capacity()
    }
}

fn open(folder: &Path) -> (Node, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    (open_with(folder, &faults), faults)
}

fn open_with(folder: &Path, faults: &Arc<Faults>) -> Node {
    let storage = FaultyStorage {
        storage: RealStorage::open(folder, IoMode::Buffered).expect("a folder"),
        faults: Arc::clone(faults),
    };
    let submitter = submitter(IoMode::Buffered).expect("always there");
    let submitter = FaultySubmitter { submitter, faults: Arc::clone(faults), failed: Vec::new() };
    Node::open_on(Arc::new(storage), Box::new(submitter), small()).expect("it opens")
}

/// Nothing is accepted any more, not even when the disk works again; what was committed stays readable, and after a restart
/// everything acknowledged is there.
fn stops_for_good(durability: Durability, records: u64, break_it: impl Fn(&Faults) -> &AtomicBool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, faults) = open(folder.path());
    let log = node.journal.create_log(LogId(1), durability);
    for _ in 0..9 {
        node.append_batch(&log, records, VALUE_BYTES).expect("a disk that works");
    }
    break_it(&faults).store(true, Ordering::SeqCst);
    assert_eq!(node.append_batch(&log, records, VALUE_BYTES), Err(AppendError::Stopped));
    break_it(&faults).store(false, Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(node.append_batch(&log, records, VALUE_BYTES), Err(AppendError::Stopped));
    }
    assert!(matches!(node.journal.status(), JournalStatus::Stopped { .. }), "it says so");
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), Offset(9 * records));
    drop(log);
    node.close();
    let (node, _) = open(folder.path());
    let log = node.journal.create_log(LogId(1), durability);
    let end = read_all(&node.journal, &log, VALUE_BYTES);
    // The refused batch may have reached the disk or not; half of it has not.
    assert!(end == Offset(9 * records) || end == Offset(10 * records), "{end}");
    node.append_batch(&log, records, VALUE_BYTES).expect("a restart on a disk that works");
    node.close();
}

#[test]
fn a_failed_write_stops_the_journal_for_good() {
    stops_for_good(Durability::Fsync, 1, |faults| &faults.writes);
    stops_for_good(Durability::Fsync, LONG_BATCH, |faults| &faults.writes);
    stops_for_good(Durability::Memory, 1, |faults| &faults.writes);
}

#[test]
fn a_failed_flush_stops_the_journal_for_good() {
    stops_for_good(Durability::Fsync, LONG_BATCH, |faults| &faults.flushes);
}

/// Fills the disk; the batches of the log that were accepted.
fn fill(node: &Node, log: &Arc<Log>) -> u64 {
    for batches in 0..100 {
        match node.append_batch(log, LONG_BATCH, VALUE_BYTES) {
            Ok(_) => {}
            Err(AppendError::DiskFull) => return batches,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the disk is full");
}

#[test]
fn a_full_disk_refuses_writes_until_something_is_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, faults) = open(folder.path());
    let (log, other) = (node.log(1), node.log(2));
    for _ in 0..40 {
        node.append_batch(&log, LONG_BATCH, VALUE_BYTES).expect("there is space");
    }
    faults.space.store(true, Ordering::SeqCst);
    let batches = 40 + fill(&node, &log);
    assert_eq!(node.append_batch(&other, LONG_BATCH, VALUE_BYTES), Err(AppendError::DiskFull));
    assert!(matches!(node.journal.status(), JournalStatus::DiskFull), "it says so");
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), Offset(batches * LONG_BATCH));

    // A restart finds everything and refuses on.
    drop((log, other));
    node.close();
    let (node, faults) = open(folder.path());
    faults.space.store(true, Ordering::SeqCst);
    let (log, other) = (node.log(1), node.log(2));
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), Offset(batches * LONG_BATCH));
    let more = fill(&node, &log);

    // Deleting records is a write that is still taken, and makes space.
    let end = (batches + more) * LONG_BATCH;
    node.trim(&log, end - LONG_BATCH).expect("deleting goes on");
    node.journal.check_retention();
    let began = Instant::now();
    while let Err(error) = node.append_batch(&other, LONG_BATCH, VALUE_BYTES) {
        assert_eq!(error, AppendError::DiskFull);
        assert!(began.elapsed() < Duration::from_secs(120), "space comes back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((log.start(), log.end()), (Offset(end - LONG_BATCH), Offset(end)));
    node.close();
}

fn append(node: &Node, log: &Arc<Log>, bytes: Bytes) -> Result<Appended, AppendError> {
    let header = BatchHeader::parse(&bytes).expect("a valid batch");
    node.append(1, vec![AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }])
}

#[test]
fn a_transaction_ends_on_a_full_disk_from_space_that_is_kept_back_until_that_is_used_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, faults) = open(folder.path());
    let (log, other) = (node.log(1), node.log(2));
    for producer in [7, 8] {
        let batch =
            BatchBuilder::default().producer(producer, 0, 0).transactional().record(1, None, Some(b"one")).build();
        append(&node, &log, batch).expect("there is space");
    }
    faults.space.store(true, Ordering::SeqCst);
    fill(&node, &other);
    while node.append_batch(&other, 1, 1).is_ok() {}
    let late = BatchBuilder::default().producer(7, 0, 1).transactional().record(1, None, Some(b"two")).build();
    assert_eq!(append(&node, &log, late), Err(AppendError::DiskFull));
    append(&node, &log, Marker::Abort.batch(7, 0, 0, 1)).expect("a marker is taken");
    assert_eq!((log.last_stable(), log.high_watermark()), (Offset(1), Offset(3)));
    let aborted = log.aborted_between(Offset(0), Offset(3));
    assert_eq!(aborted.iter().map(|aborted| aborted.producer_id).collect::<Vec<_>>(), [7]);

    // What is kept back has an end too; behind a marker that found no space nothing says that it is there.
    let state = || AppendItem::State { key: Bytes::from_static(b"key"), value: Some(Bytes::from_static(b"value")) };
    let mut records = 0;
    while node.append(1, vec![state()]).is_ok() {
        records += 1;
        assert!(records < 10_000, "the disk is full");
    }
    assert!(records > 1, "state goes on for a while");
    assert_eq!(append(&node, &log, Marker::Abort.batch(8, 0, 0, 1)), Err(AppendError::DiskFull));
    assert_eq!(log.last_stable(), Offset(1));

    faults.space.store(false, Ordering::SeqCst);
    let began = Instant::now();
    while let Err(error) = append(&node, &log, Marker::Abort.batch(8, 0, 0, 1)) {
        assert_eq!(error, AppendError::DiskFull);
        assert!(began.elapsed() < Duration::from_secs(120), "space comes back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((log.last_stable(), log.high_watermark()), (Offset(4), Offset(4)));
    node.close();
}

/// The preparation of a segment fails at each of its steps in turn; what it left is no hindrance later, and meanwhile the journal says why
/// it takes nothing.
#[test]
fn a_segment_is_prepared_after_every_step_of_it_has_failed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, faults) = open(folder.path());
    let log = node.log(1);
    for step in 0..6 {
        // Segments that are freed are prepared again in other steps than new ones.
        if step >= 3 {
            node.trim(&log, log.end().0).expect("trimmed");
            node.journal.check_retention();
        }
        let end = log.end();
        faults.before.store(step % 3, Ordering::SeqCst);
        faults.folder.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let written = scope.spawn(|| {
                for _ in 0..40 {
                    node.append_batch(&log, LONG_BATCH, VALUE_BYTES).expect("it waits");
                }
            });
            let began = Instant::now();
            loop {
                if let JournalStatus::Hindered { reason } = node.journal.status() {
                    assert!(reason.contains("prepare a segment") && reason.contains("open files"), "{reason}");
                    break;
                }
                assert!(
                    !written.is_finished() && began.elapsed() < Duration::from_secs(120),
                    "step {step}: it says so"
                );
                std::thread::sleep(Duration::from_millis(2));
            }
            faults.folder.store(false, Ordering::SeqCst);
        });
        assert_eq!((log.end(), node.journal.status()), (end.plus(40 * LONG_BATCH), JournalStatus::Running));
    }
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    drop(log);
    node.close();
    let (node, _) = open(folder.path());
    let log = node.log(1);
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    node.close();
}

/// Where no segment can be made for long, what waits for one is refused before clients give up, data and state; it goes on by itself.
#[test]
fn a_journal_that_can_make_no_segment_answers_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, faults) = open(folder.path());
    let log = node.log(1);
    node.append_batch(&log, 1, VALUE_BYTES).expect("the first segment is there");
    faults.folder.store(true, Ordering::SeqCst);
    let waits = |append: &(dyn Fn() -> Result<Appended, AppendError> + Sync)| {
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| (0..10_000).find_map(|_| append().err()));
            let began = Instant::now();
            while !matches!(node.journal.status(), JournalStatus::Hindered { .. }) {
                assert!(began.elapsed() < Duration::from_secs(120), "it says that it waits");
                std::thread::sleep(Duration::from_millis(2));
            }
            node.clock.advance_waits(11_000);
            assert_eq!(refused.join().expect("no panic"), Some(AppendError::NoSegment));
        });
    };
    waits(&|| node.append_batch(&log, LONG_BATCH, VALUE_BYTES));
    let key = Bytes::from(vec![7; 4_000]);
    waits(&|| node.append(2, vec![AppendItem::State { key: key.clone(), value: Some(key.clone()) }]));
    faults.folder.store(false, Ordering::SeqCst);
    let began = Instant::now();
    while let Err(error) = node.append_batch(&log, LONG_BATCH, VALUE_BYTES) {
        assert!(error == AppendError::NoSegment && began.elapsed() < Duration::from_secs(120), "{error}");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(node.journal.status(), JournalStatus::Running);
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    node.close();
}

const OTHER: ShardId = ShardId(5);

/// How often it was told that there is space.
#[derive(Default)]
struct Spaces(AtomicUsize);

impl EventSink for Spaces {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        let spaces = events.drain(..).filter(|event| matches!(event, JournalEvent::Space)).count();
        self.0.fetch_add(spaces, Ordering::SeqCst);
    }
}

/// However much waits of those who keep what is refused, the others are answered; and those hear of it when there is room.
#[test]
fn what_waits_keeps_no_answer_from_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, faults) = open(folder.path());
    let log = node.log(1);
    node.append_batch(&log, 1, VALUE_BYTES).expect("the first segment is there");
    node.clock.stop_waits();
    faults.folder.store(true, Ordering::SeqCst);
    let bytes = batch(LogId(1), log.end(), 20, VALUE_BYTES);
    let header = BatchHeader::parse(&bytes).expect("a valid batch");
    let waits = |number: u64| {
        let (log, bytes, header) = (Arc::clone(&log), bytes.clone(), header);
        let items = vec![AppendItem::Batch { log, bytes, header, gate: None }];
        let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(7), token: number | 1 << 40 };
        node.journal.append_when_possible(Append { to, items, acknowledge: true }, false).is_err()
    };
    let began = Instant::now();
    let (mut number, mut refused) = (0, 0);
    // Until nothing more of that kind is taken, however long it is waited.
    while refused < 100 {
        assert!(began.elapsed() < Duration::from_secs(120), "it fills");
        if waits(number) {
            refused += 1;
            std::thread::sleep(Duration::from_millis(2));
        } else {
            (number, refused) = (number + 1, 0);
        }
    }
    // Somebody who wants an answer finds the queue full before anybody is refused for that.
    let spaces = Arc::new(Spaces::default());
    node.journal.add_sink(OTHER, Arc::clone(&spaces) as Arc<dyn EventSink>);
    let asks = |token: u64, keeps: bool| {
        let (log, bytes, header) = (Arc::clone(&log), bytes.clone(), header);
        let items = vec![AppendItem::Batch { log, bytes, header, gate: None }];
        let to = ReplyTo { shard: OTHER, connection: ConnectionId(8), token };
        let append = Append { to, items, acknowledge: true };
        if keeps { node.journal.append_when_possible(append, false) } else { node.journal.append(append) }.is_ok()
    };
    let mut taken = 0;
    while asks(taken, false) {
        assert!(began.elapsed() < Duration::from_secs(120), "it fills");
        taken += 1;
    }
    let heard = || spaces.0.load(Ordering::SeqCst);
    let wait_for = |what: &str, count: usize| {
        while heard() < count {
            assert!(began.elapsed() < Duration::from_secs(120), "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    assert_eq!(heard(), 0);
    node.clock.advance_waits(11_000);
    wait_for("who was refused by a full queue hears that he may try again", 1);
    assert!(asks(taken, false), "and is heard");
    // Longer than what counts as little.
    assert_eq!(node.append_batch(&log, LONG_BATCH, VALUE_BYTES), Err(AppendError::NoSegment));
    // Nobody is told again and again to try what is not taken.
    for _ in 0..50 {
        assert!(!asks(taken, true));
        assert_eq!(node.append_batch(&log, 1, VALUE_BYTES), Err(AppendError::NoSegment));
    }
    assert_eq!(heard(), 1);
    faults.folder.store(false, Ordering::SeqCst);
    while node.append_batch(&log, LONG_BATCH, VALUE_BYTES).is_err() {
        assert!(began.elapsed() < Duration::from_secs(120), "it goes on");
        std::thread::sleep(Duration::from_millis(2));
    }
    while log.end().0 < number * 20 {
        assert!(began.elapsed() < Duration::from_secs(120), "what waited is there");
        std::thread::sleep(Duration::from_millis(2));
    }
    wait_for("who was turned away hears of it", 2);
    node.close();
}

/// What waited for a segment goes into what was kept back in the one before, as soon as there is another: then nothing waits any more.
#[test]
fn a_journal_at_rest_is_not_hindered() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, faults) = open(folder.path());
    let log = node.log(1);
    node.append_batch(&log, 1, 1).expect("the first segment is there");
    std::thread::scope(|scope| {
        faults.folder.store(true, Ordering::SeqCst);
        let written = scope.spawn(|| {
            // The one that waits is the last.
            while faults.folder.load(Ordering::SeqCst) {
                node.append_batch(&log, LONG_BATCH, VALUE_BYTES).expect("it waits");
            }
        });
        let began = Instant::now();
        while !matches!(node.journal.status(), JournalStatus::Hindered { .. }) {
            assert!(!written.is_finished() && began.elapsed() < Duration::from_secs(120), "it says that it waits");
            std::thread::sleep(Duration::from_millis(2));
        }
        faults.folder.store(false, Ordering::SeqCst);
    });
    node.clock.advance_waits(11_000);
    assert_eq!(node.journal.status(), JournalStatus::Running);
    node.close();
}

/// What a start cannot put aside is used where it is: the segment that was ready, and behind it a file with the chunks of another segment.
#[test]
fn a_start_that_cannot_rename_prepared_segments_uses_them_under_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = || {
        let all = std::fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
        let mut names: Vec<String> = all.filter(|name| name.contains("segment-")).collect();
        names.sort();
        names
    };
    let faults = Arc::new(Faults::default());
    let mut end = Offset(0);
    for start in 0..12 {
        let node = open_with(folder.path(), &faults);
        let log = node.log(1);
        assert_eq!((log.end(), read_all(&node.journal, &log, VALUE_BYTES)), (end, end), "start {start}");
        assert!(names().iter().all(|name| name.starts_with("segment-")), "start {start}: {:?}", names());
        // Less than a segment, so that some starts find the end of the journal in the segment that they found the last time.
        for _ in 0..7 {
            node.append_batch(&log, LONG_BATCH, VALUE_BYTES).expect("appended");
        }
        end = log.end();
        drop(log);
        node.close();
        faults.asides.store(true, Ordering::SeqCst);
        let names = names();
        if let (Some(first), Some(last)) = (names.first(), names.last())
            && start % 3 == 0
        {
            let sequence: u64 = last.trim_start_matches("segment-").parse().expect("a number");
            std::fs::copy(folder.path().join(first), folder.path().join(format!("segment-{:012}", sequence + 1)))
                .expect("copied");
        }
    }
    faults.asides.store(false, Ordering::SeqCst);
    let node = open_with(folder.path(), &faults);
    assert_eq!(read_all(&node.journal, &node.log(1), VALUE_BYTES), end);
    node.close();
}
