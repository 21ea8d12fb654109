//! A broker of which a test takes each step itself: its threads do not run, those of its journals do. Disks can be full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::record::{BatchBuilder, BatchHeader, Record};
use bytes::Bytes;
use delivery::Dead;
use journal::disk::{File, IoMode, RealStorage, Storage, submitter};
use journal::{AppendError, AppendItem, JournalConfig, Log, MemoryArchive};
use routing::{Argument, Arguments, Headers, Name, NoHeaders, OwnedValue};
use types::{ConnectionId, Durability, NodeId, SystemClock};

use super::{Address, Caller, DEFAULT_VHOST, Letter, Queue, QueueDeclaration, Undertaker, Vhost};
use crate::{Broker, BrokerConfig, Settings};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A disk on which one segment more can be made once it is full, as on a real one, where the last is kept for what gives space back.
pub(crate) struct Disk {
    storage: RealStorage,
    full: AtomicBool,
    has_last: AtomicBool,
}

impl Disk {
    pub fn fill(&self) {
        self.has_last.store(true, Ordering::SeqCst);
        self.full.store(true, Ordering::SeqCst);
    }

    pub fn empty(&self) {
        self.full.store(false, Ordering::SeqCst);
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        let is_refused = self.full.load(Ordering::SeqCst) && name.starts_with("segment");
        if is_refused && !self.has_last.swap(false, Ordering::SeqCst) {
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
        if self.full.load(Ordering::SeqCst) { Ok(0) } else { self.storage.free_bytes() }
    }
}

/// Dead letters that are as the message was, with a routing key that is given.
pub(crate) struct Plain(pub &'static [u8]);

impl Undertaker for Plain {
    fn letter(&self, _: &Queue, record: &Record, _: &Dead, now_ms: i64, address: &mut dyn Address) {
        let bytes = record.value.as_ref().map_or(0, Bytes::len);
        let letter = Letter { keys: &[self.0], headers: &NoHeaders, passed: &[], record_bytes: bytes };
        if let Some(batch) = address.batch_for(&letter) {
            batch.record(now_ms, record.value.as_slice(), &[]);
        }
    }
    fn headers(&self, _: &Record) -> Box<dyn Headers> {
        Box::new(NoHeaders)
    }
}

pub(crate) struct Node {
    pub broker: Arc<Broker>,
    pub disks: Vec<Arc<Disk>>,
    threads: Vec<JoinHandle<()>>,
    folder: tempfile::TempDir,
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a short name")
}

/// Arguments of text.
pub(crate) fn arguments(fields: &[(&str, &str)]) -> Arguments {
    let field = |(name, value): &(&str, &str)| Argument {
        name: name.as_bytes().into(),
        tag: b'S',
        value: OwnedValue::Bytes(value.as_bytes().into()),
    };
    Arguments::new(fields.iter().map(field).collect())
}

/// Waits until it is so.
pub(crate) fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "{what}, in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Node {
    /// With so many journals, of segments of 1 MiB.
    pub fn open(count: usize) -> Self {
        Self::open_with(count, Settings::default())
    }

    /// The same, with other settings.
    pub fn open_with(count: usize, settings: Settings) -> Self {
        Self::open_in(tempfile::tempdir().expect("a folder"), count, settings)
    }

    /// Ends the journals, and begins anew with what is on their disks.
    pub fn restart(self) -> Self {
        let count = self.disks.len();
        Self::open_in(self.end(), count, Settings::default())
    }

    fn open_in(folder: tempfile::TempDir, count: usize, settings: Settings) -> Self {
        let (mut journals, mut threads, mut disks) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let own = folder.path().join(number.to_string());
            std::fs::create_dir_all(&own).expect("a folder");
            let disk = Arc::new(Disk {
                storage: RealStorage::open(&own, IoMode::Buffered).expect("a folder"),
                full: AtomicBool::new(false),
                has_last: AtomicBool::new(false),
            });
            let config = JournalConfig {
                number: number as u16,
                segment_bytes: 1 << 20,
                tail_bytes: 4 << 20,
                retention_check_ms: 50,
                ..JournalConfig::default()
            };
            let (storage, submit) =
                (Arc::clone(&disk) as Arc<dyn Storage>, submitter(IoMode::Buffered).expect("always there"));
            let opened = journal::open(
                config,
                storage,
                Arc::new(MemoryArchive::default()),
                submit,
                Arc::new(SystemClock),
                uuid::Uuid::new_v4(),
            );
            let opened = opened.expect("it opens");
            let (writer, keeper) = (opened.writer, opened.keeper);
            threads.extend([std::thread::spawn(move || writer.run()), std::thread::spawn(move || keeper.run())]);
            journals.push(opened.journal);
            disks.push(disk);
        }
        let (cluster_id, clock) = ("test".to_owned(), Arc::new(SystemClock));
        let config = BrokerConfig { cluster_id, node_id: NodeId(1), settings, durability: Durability::Fsync, clock };
        let broker = Broker::open(config, journals).expect("the catalog is readable");
        Self { broker, disks, threads, folder }
    }

    /// Ends the journals.
    pub fn close(self) {
        drop(self.end());
    }

    fn end(self) -> tempfile::TempDir {
        self.broker.journals().iter().for_each(|journal| journal.shutdown());
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        self.folder
    }

    pub fn vhost(&self) -> Arc<Vhost> {
        self.broker.vhosts().get(DEFAULT_VHOST).expect("it is always there")
    }

    pub fn queue(&self, queue: &str, arguments: Arguments) -> Arc<Queue> {
        let wish = QueueDeclaration { name: name(queue), durable: true, owner: None, auto_delete: false, arguments };
        self.broker.declare_queue(&self.vhost(), wish, &Caller::broker(ConnectionId(1))).expect("declared")
    }

    /// One of which the log is in a journal that is given.
    pub fn queue_in(&self, journal: usize) -> Arc<Queue> {
        let mut queues = (0..).map(|number| self.queue(&format!("of-{journal}-{number}"), Arguments::default()));
        let found =
            queues.find(|queue| self.broker.journal_number(queue.log().id()) == journal && queue.log().end().0 == 0);
        found.expect("logs go to the journals in turn")
    }

    /// A batch of one record.
    pub fn append(&self, log: &Arc<Log>, value: &[u8], headers: &[(&[u8], Option<&[u8]>)]) -> Result<(), AppendError> {
        self.broker.commit(self.broker.journal_number(log.id()), vec![Self::item(log, value, headers)])
    }

    fn item(log: &Arc<Log>, value: &[u8], headers: &[(&[u8], Option<&[u8]>)]) -> AppendItem {
        let bytes = BatchBuilder::default().record_with_headers(1_000, None, Some(value), headers).build();
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }
    }

    /// Fills the disk of a log's journal for clients, and takes as many steps into what is kept for data that takes the place of other data as it has
    /// room for, or so many; how many.
    pub fn fill_for_clients(&self, log: &Arc<Log>, steps: Option<usize>) -> usize {
        let journal = self.broker.journal_number(log.id());
        self.disks[journal].fill();
        let refused = (0..10_000).find_map(|_| self.append(log, &[b'x'; 50_000], &[]).err());
        assert_eq!(refused, Some(AppendError::DiskFull));
        let step =
            |_: &usize| self.broker.commit_from_reserve(journal, vec![Self::item(log, &[b'x'; 50_000], &[])]).is_ok();
        (0..steps.unwrap_or(usize::MAX)).take_while(step).count()
    }

    /// Fills the disk of a log's journal, and what is kept for data that takes the place of other data.
    pub fn fill(&self, log: &Arc<Log>) {
        let journal = self.broker.journal_number(log.id());
        self.disks[journal].fill();
        // The small ones take what is left beside the large ones.
        for bytes in [100_000, 1] {
            let refused = (0..10_000).find_map(|_| self.append(log, &vec![b'x'; bytes], &[]).err());
            assert_eq!(refused, Some(AppendError::DiskFull));
            let item = || vec![Self::item(log, &vec![b'x'; bytes], &[])];
            let refused = (0..10_000).find_map(|_| self.broker.commit_from_reserve(journal, item()).err());
            assert_eq!(refused, Some(AppendError::DiskFull));
        }
    }
}
