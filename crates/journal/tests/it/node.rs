//! A journal with its threads, for tests: blocking appends, reads of whole logs, restarts.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::disk::{IoMode, RealStorage, Storage, Submitter, submitter};
use journal::{
    Append, AppendError, AppendItem, Appended, ArchiveStore, ColdWant, EventSink, Journal, JournalConfig, JournalEvent,
    Log, MemoryArchive, OpenError, ReadError, ReplyTo, TailRead,
};
use parking_lot::{Condvar, Mutex};
use record::{BatchBuilder, BatchHeader, Batches};
use types::{Clock, ConnectionId, Durability, LogId, Offset, ShardId, SystemClock, Timestamp};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);
const SHARD: ShardId = ShardId(0);

#[derive(Default)]
struct Sink {
    answers: Mutex<HashMap<u64, Vec<Result<Appended, AppendError>>>>,
    arrives: Condvar,
}

impl EventSink for Sink {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        let mut answers = self.answers.lock();
        for event in events.drain(..) {
            if let JournalEvent::Appended { to, results } = event {
                answers.insert(to.token, results.into_iter().collect());
            }
        }
        self.arrives.notify_all();
    }
}

/// The system's clock, and how far it was put forward, in ms: the time of day, and that by which waits are counted; and when that stood still, if it does.
#[derive(Default)]
pub struct TestClock(AtomicI64, AtomicU64, OnceLock<u64>);

impl TestClock {
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    /// From now on that by which waits are counted goes on only when it is put forward.
    pub fn stop_waits(&self) {
        self.2.get_or_init(|| SystemClock.steady_ms());
    }

    pub fn advance_waits(&self, ms: u64) {
        self.1.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> Timestamp {
        SystemClock.now_ms() + self.0.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        self.2.get().copied().unwrap_or_else(|| SystemClock.steady_ms()) + self.1.load(Ordering::SeqCst)
    }

    fn boot(&self) -> u128 {
        SystemClock.boot()
    }
}

/// A running journal.
pub struct Node {
    pub journal: Arc<Journal>,
    pub clock: Arc<TestClock>,
    sink: Arc<Sink>,
    next_token: AtomicU64,
    threads: Vec<JoinHandle<()>>,
}

/// Small segments and caches, so that little data reaches every part.
pub fn small() -> JournalConfig {
    JournalConfig {
        segment_bytes: 1 << 20,
        tail_bytes: 4 << 20,
        cold_bytes: 8 << 20,
        index_bytes: 1 << 20,
        retention_check_ms: 50,
        archive_check_ms: 20,
        quick_write: PATIENCE,
        ..JournalConfig::default()
    }
}

impl Node {
    pub fn open(folder: &Path, mode: IoMode, config: JournalConfig) -> Result<Self, OpenError> {
        let storage: Arc<dyn Storage> = Arc::new(RealStorage::open(folder, mode).expect("a folder"));
        Self::open_on(storage, submitter(mode).expect("the mode was probed"), config)
    }

    /// On a disk of the caller's.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        submitter: Box<dyn Submitter>,
        config: JournalConfig,
    ) -> Result<Self, OpenError> {
        Self::start(storage, Arc::new(MemoryArchive::default()), submitter, config)
    }

    /// With an archive that outlives it.
    pub fn open_with(folder: &Path, archive: &Arc<MemoryArchive>, config: JournalConfig) -> Result<Self, OpenError> {
        Self::open_storing(folder, Arc::clone(archive) as Arc<dyn ArchiveStore>, config)
    }

    /// With any archive.
    pub fn open_storing(
        folder: &Path,
        archive: Arc<dyn ArchiveStore>,
        config: JournalConfig,
    ) -> Result<Self, OpenError> {
        let storage: Arc<dyn Storage> = Arc::new(RealStorage::open(folder, IoMode::Buffered).expect("a folder"));
        Self::start(storage, archive, submitter(IoMode::Buffered).expect("always there"), config)
    }

    /// On a disk and with an archive of the caller's.
    pub fn start(
        storage: Arc<dyn Storage>,
        archive: Arc<dyn ArchiveStore>,
        submitter: Box<dyn Submitter>,
        config: JournalConfig,
    ) -> Result<Self, OpenError> {
        let clock = Arc::new(TestClock::default());
        let opened = journal::open(
            config,
            storage,
            archive,
            submitter,
            Arc::clone(&clock) as Arc<dyn Clock>,
            uuid::Uuid::new_v4(),
        )?;
        let sink = Arc::new(Sink::default());
        opened.journal.add_sink(SHARD, Arc::clone(&sink) as Arc<dyn EventSink>);
        let (writer, keeper, archiver) = (opened.writer, opened.keeper, opened.archiver);
        let threads = vec![
            std::thread::spawn(move || writer.run()),
            std::thread::spawn(move || keeper.run()),
            std::thread::spawn(move || archiver.run()),
        ];
        Ok(Self { journal: opened.journal, clock, sink, next_token: AtomicU64::new(0), threads })
    }

    pub fn log(&self, id: u64) -> Arc<Log> {
        self.journal.create_log(LogId(id), Durability::Fsync)
    }

    /// Appends and waits for the outcome of the first item.
    pub fn append(&self, connection: u64, items: Vec<AppendItem>) -> Result<Appended, AppendError> {
        self.append_by(connection, items, |here| if here { Journal::append_here } else { Journal::append })
    }

    /// The same for what takes the place of other data.
    pub fn append_from_reserve(&self, connection: u64, items: Vec<AppendItem>) -> Result<Appended, AppendError> {
        self.append_by(connection, items, |_| Journal::append_from_reserve)
    }

    fn append_by(
        &self,
        connection: u64,
        items: Vec<AppendItem>,
        how: impl Fn(bool) -> fn(&Journal, Append) -> Result<(), Append>,
    ) -> Result<Appended, AppendError> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let to = ReplyTo { shard: SHARD, connection: ConnectionId(connection), token };
        let mut append = Append { to, items, acknowledge: true };
        let began = Instant::now();
        let take = how(token.is_multiple_of(2));
        while let Err(refused) = take(&self.journal, append) {
            append = refused;
            assert!(began.elapsed() < PATIENCE, "the queue has room in time");
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut answers = self.sink.answers.lock();
        loop {
            if let Some(results) = answers.remove(&token) {
                return results[0];
            }
            assert!(!self.sink.arrives.wait_for(&mut answers, PATIENCE).timed_out(), "an answer in time");
        }
    }

    /// Appends one batch of `count` records whose values are derived from the log and their offsets.
    pub fn append_batch(&self, log: &Arc<Log>, count: u64, value_bytes: usize) -> Result<Appended, AppendError> {
        let bytes = batch(log.id(), log.end(), count, value_bytes);
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        self.append(log.id().0, vec![AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }])
    }

    pub fn trim(&self, log: &Arc<Log>, to: u64) -> Result<Appended, AppendError> {
        self.append(log.id().0, vec![AppendItem::Trim { log: Arc::clone(log), to: Offset(to) }])
    }

    pub fn drop_log(&self, log: &Arc<Log>) -> Result<Appended, AppendError> {
        self.append(log.id().0, vec![AppendItem::Drop { log: Arc::clone(log) }])
    }

    /// Ends the threads; what was accepted is on the disk.
    pub fn close(self) {
        self.journal.shutdown();
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

/// Records whose values say where they belong.
pub fn batch(log: LogId, first: Offset, count: u64, value_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::default();
    for number in 0..count {
        builder = builder.record(1_000 + number as i64, None, Some(&value(log, first.0 + number, value_bytes)));
    }
    builder.build()
}

pub fn value(log: LogId, offset: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{} {offset} ", log.0).into_bytes();
    value.resize(bytes.max(value.len()), (offset % 251) as u8);
    value
}

/// Checks every record of some slices and returns the offset after the last.
pub fn check(log: &Log, from: Offset, slices: &[Bytes], value_bytes: usize) -> Offset {
    let bytes = slices.concat();
    let mut next = from;
    for batch in Batches::new(&bytes) {
        let (position, header) = batch.expect("whole batches are served");
        assert!(header.base() <= next && next < header.next(), "batch {}..{} at {next}", header.base(), header.next());
        let records = record::records(&bytes[position..position + header.total_bytes()]).expect("a readable batch");
        for (offset, record) in (header.base().0..).zip(&records) {
            assert_eq!(
                record.value.as_deref(),
                Some(&value(log.id(), offset, value_bytes)[..]),
                "{} offset {offset}",
                log.id()
            );
        }
        next = header.next();
    }
    next
}

/// What came of reading from an offset.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// Records, up to here.
    Until(Offset),
    /// Trimmed away.
    Gone,
    /// Nothing beyond.
    End,
}

/// One fetch: memory first, then disk, as a gateway does it.
pub fn read(journal: &Journal, log: &Arc<Log>, from: Offset, max_bytes: usize, value_bytes: usize) -> Seen {
    match journal.read_tail(log, from..Offset(u64::MAX), max_bytes, true) {
        TailRead::Data { slices, next, .. } => {
            assert_eq!(check(log, from, &slices, value_bytes), next, "the tail says where it ends");
            Seen::Until(next)
        }
        TailRead::Empty => Seen::End,
        TailRead::OutOfRange => {
            assert!(from < log.start(), "{from} is out of range of {}..{}", log.start(), log.high_watermark());
            Seen::Gone
        }
        TailRead::Cold => read_cold(journal, log, from, max_bytes, value_bytes),
    }
}

/// One read from disk, whatever is in memory.
pub fn read_cold(journal: &Journal, log: &Arc<Log>, from: Offset, max_bytes: usize, value_bytes: usize) -> Seen {
    let want = ColdWant { log: Arc::clone(log), from, until: Offset(u64::MAX), max_bytes };
    match journal.read_cold(&[want], max_bytes).remove(0) {
        Ok(data) => {
            assert_eq!(check(log, from, &data.slices, value_bytes), data.next, "history says where it ends");
            assert!(
                data.next > from,
                "{} from {from}: nothing was read of {}..{}",
                log.id(),
                log.start(),
                log.high_watermark()
            );
            Seen::Until(data.next)
        }
        Err(ReadError::Gone) => {
            assert!(from < log.start(), "{from} is said to be gone of {}..{}", log.start(), log.high_watermark());
            Seen::Gone
        }
        Err(error) => panic!("{} from {from}: {error}", log.id()),
    }
}

/// Reads all of a log, from memory and disk, and returns its end. Retention may move its start meanwhile.
pub fn read_all(journal: &Journal, log: &Arc<Log>, value_bytes: usize) -> Offset {
    let mut at = log.start();
    loop {
        at = match read(journal, log, at, 256 << 10, value_bytes) {
            Seen::Until(next) => next,
            Seen::Gone => log.start(),
            Seen::End => break,
        };
    }
    assert_eq!(at, log.high_watermark(), "{} ends", log.id());
    at
}

/// The modes of disk I/O that this machine has.
pub fn modes() -> Vec<IoMode> {
    let folder = tempfile::tempdir().expect("a folder");
    let all = [IoMode::Uring, IoMode::Direct, IoMode::Buffered];
    let (usable, refused): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|mode| journal::disk::probe(&[folder.path()], Some(*mode)).is_ok());
    for mode in refused {
        println!("this machine has no {mode}: not tested");
    }
    usable
}
