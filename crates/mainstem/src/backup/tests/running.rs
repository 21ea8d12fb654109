//! Journals that run on a folder of their own, with an archive beside them, as a broker has them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::disk::{IoMode, RealStorage, Storage, submitter};
use journal::{
    Append, AppendError, AppendItem, Appended, ArchiveStore, EventSink, Journal, JournalConfig, JournalEvent, Log,
    ReplyTo,
};
use parking_lot::{Condvar, Mutex};
use record::{BatchBuilder, BatchHeader};
use types::{ConnectionId, Durability, LogId, ShardId, SystemClock};

use super::super::{Backups, Source};
use crate::archive_folder::FolderArchive;
use crate::data_folder::write_durably;

const PATIENCE: Duration = Duration::from_secs(60);
const SHARD: ShardId = ShardId(0);
pub const CLUSTER: &str = "a-cluster";

#[derive(Default)]
struct Sink {
    answers: Mutex<HashMap<u64, Vec<Result<Appended, AppendError>>>>,
    arrives: Condvar,
}

impl EventSink for Sink {
    fn deliver(&self, events: &mut Vec<JournalEvent>) {
        for event in events.drain(..) {
            if let JournalEvent::Appended { to, results } = event {
                self.answers.lock().insert(to.token, results.into_iter().collect());
            }
        }
        self.arrives.notify_all();
    }
}

/// All journals of a data folder.
pub struct Running {
    pub journals: Vec<Arc<Journal>>,
    sink: Arc<Sink>,
    tokens: AtomicU64,
    threads: Vec<JoinHandle<()>>,
}

pub fn config(number: u16) -> JournalConfig {
    let cache = 4 << 20;
    JournalConfig {
        number,
        segment_bytes: 1 << 20,
        tail_bytes: cache,
        cold_bytes: cache,
        index_bytes: 1 << 20,
        retention_check_ms: 50,
        archive_check_ms: 20,
        window_bytes: Some(5 << 20),
        object_bytes: 128 << 10,
        ..JournalConfig::default()
    }
}

impl Running {
    /// Opens the journals in `folder`, which is made if it is new.
    pub fn open(folder: &Path, count: usize) -> Self {
        Self::open_with(folder, count, config)
    }

    /// The same; nothing moves into the archive, so that segments stay.
    pub fn open_unarchived(folder: &Path, count: usize) -> Self {
        Self::open_with(folder, count, |number| JournalConfig { window_bytes: None, ..config(number) })
    }

    fn open_with(folder: &Path, count: usize, config: impl Fn(u16) -> JournalConfig) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        if !folder.join("meta.toml").exists() {
            write_durably(
                folder,
                "meta.toml",
                &format!("format_version = 1\ncluster_id = \"{CLUSTER}\"\njournals = {count}\n"),
            )
            .unwrap();
        }
        let mode = IoMode::Buffered;
        let archive: Arc<dyn ArchiveStore> = Arc::new(FolderArchive::open(&folder.join("archive"), mode).unwrap());
        let sink = Arc::new(Sink::default());
        let (mut journals, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count {
            let storage: Arc<dyn Storage> =
                Arc::new(RealStorage::open(&folder.join(format!("journal-{number}")), mode).unwrap());
            let clock = Arc::new(SystemClock);
            let opened = journal::open(
                config(number as u16),
                storage,
                Arc::clone(&archive),
                submitter(mode).unwrap(),
                clock,
                uuid::Uuid::new_v4(),
            )
            .unwrap();
            opened.journal.add_sink(SHARD, Arc::clone(&sink) as Arc<dyn EventSink>);
            let (writer, keeper, archiver) = (opened.writer, opened.keeper, opened.archiver);
            threads.push(std::thread::spawn(move || writer.run()));
            threads.push(std::thread::spawn(move || keeper.run()));
            threads.push(std::thread::spawn(move || archiver.run()));
            journals.push(opened.journal);
        }
        Self { journals, sink, tokens: AtomicU64::new(0), threads }
    }

    pub fn log(&self, journal: usize, id: u64) -> Arc<Log> {
        self.journals[journal].create_log(LogId(id), Durability::Fsync)
    }

    /// Appends and waits for the answer.
    pub fn append(&self, journal: usize, items: Vec<AppendItem>) -> Appended {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        let to = ReplyTo { shard: SHARD, connection: ConnectionId(token % 7), token };
        let mut append = Append { to, items, acknowledge: true };
        let began = Instant::now();
        while let Err(refused) = self.journals[journal].append(append) {
            append = refused;
            assert!(began.elapsed() < PATIENCE, "the queue has room in time");
            std::thread::sleep(Duration::from_micros(200));
        }
        let mut answers = self.sink.answers.lock();
        loop {
            if let Some(results) = answers.remove(&token) {
                return results[0].expect("it is taken");
            }
            assert!(!self.sink.arrives.wait_for(&mut answers, PATIENCE).timed_out(), "an answer in time");
        }
    }

    /// One batch of records with `value`.
    pub fn batch(log: &Arc<Log>, value: &[u8], count: usize) -> AppendItem {
        let mut builder = BatchBuilder::default();
        for _ in 0..count {
            builder = builder.record(1, None, Some(value));
        }
        let bytes = builder.build();
        let header = BatchHeader::parse(&bytes).unwrap();
        AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }
    }

    pub fn backups(&self, folder: &Path) -> Arc<Backups> {
        Backups::new(Source {
            journals: self.journals.clone(),
            folder: folder.to_owned(),
            journal_folders: (0..self.journals.len()).map(|number| folder.join(format!("journal-{number}"))).collect(),
            cluster_id: CLUSTER.to_owned(),
            archive: folder.join("archive"),
            mode: IoMode::Buffered,
            settings: broker::Settings::default(),
        })
    }

    pub fn close(self) {
        self.journals.iter().for_each(|journal| journal.shutdown());
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Makes one and waits for its end.
pub fn back_up(backups: &Arc<Backups>, to: &Path) -> Result<(), String> {
    backups.begin(to).map_err(|error| format!("{error:#}"))?;
    let began = Instant::now();
    loop {
        let progress = backups.progress();
        match progress["state"].as_str() {
            Some("done") => return Ok(()),
            Some("failed") => return Err(progress["reason"].as_str().unwrap_or_default().to_owned()),
            _ => assert!(began.elapsed() < PATIENCE, "{progress}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Until it is so.
pub fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
