//! A broker with its journals and threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use broker::append::{Append, AppendItem};
use broker::{
    Broker, BrokerConfig, Caller, CreateTopic, DEFAULT_VHOST, Journal, Log, Queue, QueueDeclaration, ReplyTo, Settings,
    Vhost,
};
use bytes::{BufMut, BytesMut};
use journal::disk::{IoMode, RealStorage, Storage, submitter};
use journal::{JournalConfig, MemoryArchive};
use record::{BatchBuilder, BatchHeader};
use routing::{Arguments, Name};
use types::{ConnectionId, Durability, LogId, NodeId, PartitionIndex, ShardId, SystemClock};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of a journal.
pub const SEGMENT_BYTES: u64 = 1 << 20;
/// Of every record.
pub const VALUE_BYTES: usize = 8 << 10;
const CONNECTION: ConnectionId = ConnectionId(1);

/// Waits until it is so.
pub fn wait_for(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "{what}, in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A running broker.
pub struct Node {
    pub broker: Arc<Broker>,
    of_broker: Vec<JoinHandle<()>>,
    of_journals: Vec<JoinHandle<()>>,
}

/// The folder of a journal.
pub fn journal_folder(data: &Path, number: usize) -> PathBuf {
    data.join(format!("journal-{number}"))
}

impl Node {
    /// With so many journals, of segments of 1 MiB.
    pub fn open(data: &Path, journals: usize) -> Self {
        Self::try_open(data, journals).expect("the folder opens")
    }

    /// The same, or why it does not.
    pub fn try_open(data: &Path, journals: usize) -> Result<Self, String> {
        Self::open_in(data, journals, Durability::Fsync)
    }

    /// The same, with logs of this class.
    pub fn open_in(data: &Path, journals: usize, durability: Durability) -> Result<Self, String> {
        let (mut opened, mut of_journals) = (Vec::new(), Vec::new());
        for number in 0..journals {
            let folder = journal_folder(data, number);
            std::fs::create_dir_all(&folder).expect("a folder");
            let storage: Arc<dyn Storage> = Arc::new(RealStorage::open(&folder, IoMode::Buffered).expect("a folder"));
            let config = JournalConfig {
                number: number as u16,
                segment_bytes: SEGMENT_BYTES,
                tail_bytes: 4 << 20,
                cold_bytes: 4 << 20,
                index_bytes: 1 << 20,
                retention_check_ms: 50,
                ..JournalConfig::default()
            };
            let submitter = submitter(IoMode::Buffered).expect("always there");
            let archive = Arc::new(MemoryArchive::default());
            let parts = journal::open(config, storage, archive, submitter, Arc::new(SystemClock), uuid::Uuid::new_v4());
            let parts = parts.map_err(|error| error.to_string())?;
            let (writer, keeper, archiver) = (parts.writer, parts.keeper, parts.archiver);
            of_journals.push(std::thread::spawn(move || writer.run()));
            of_journals.push(std::thread::spawn(move || keeper.run()));
            of_journals.push(std::thread::spawn(move || archiver.run()));
            opened.push(parts.journal);
        }
        let config = BrokerConfig {
            cluster_id: "test".to_owned(),
            node_id: NodeId(1),
            settings: Settings::default(),
            durability,
            clock: Arc::new(SystemClock),
        };
        let broker = Broker::open(config, opened.clone()).map_err(|error| {
            opened.iter().for_each(|journal| journal.shutdown());
            error.to_string()
        })?;
        let of_broker = broker.start();
        Ok(Self { broker, of_broker, of_journals })
    }

    /// Ends the threads.
    pub fn close(self) {
        self.broker.shutdown();
        self.of_broker.into_iter().for_each(|thread| thread.join().expect("no panic"));
        self.broker.journals().iter().for_each(|journal| journal.shutdown());
        self.of_journals.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }

    pub fn vhost(&self) -> Arc<Vhost> {
        self.broker.vhosts().get(DEFAULT_VHOST).expect("it is always there")
    }

    /// A queue; a durable one is a topic too.
    pub fn queue(&self, name: &str, durable: bool) -> Arc<Queue> {
        self.queue_with(name, durable, Arguments::default())
    }

    /// The same, with arguments.
    pub fn queue_with(&self, name: &str, durable: bool, arguments: Arguments) -> Arc<Queue> {
        let name = Name::new(name.as_bytes()).expect("a short name");
        let wish = QueueDeclaration { name, durable, owner: None, auto_delete: false, arguments };
        self.broker.declare_queue(&self.vhost(), wish, &Caller::broker(CONNECTION)).expect("declared")
    }

    pub fn topic(&self, name: &str, partitions: i32) -> Arc<broker::Topic> {
        let wish = CreateTopic { name: name.to_owned(), partitions, replication: 1, overrides: Default::default() };
        self.broker.create_topics(vec![wish]).remove(0).expect("created")
    }

    /// Appends so many records of 8 KiB to a log and waits until they can be read.
    pub fn fill(&self, log: &Arc<Log>, records: u64) {
        let end = log.end().0 + records;
        for _ in 0..records {
            let bytes = BatchBuilder::default().record(1_000, None, Some(&[7; VALUE_BYTES])).build();
            let header = BatchHeader::parse(&bytes).expect("a valid batch");
            self.append(log.id(), AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None });
        }
        wait_for("records are there", || log.high_watermark().0 == end);
    }

    /// Appends to the journal of a log.
    pub fn append(&self, log: LogId, item: AppendItem) {
        let to = ReplyTo { shard: ShardId(0), connection: CONNECTION, token: 0 };
        let mut append = Append { to, items: vec![item], acknowledge: false };
        while let Err(refused) = self.broker.journal_of(log).append(append) {
            append = refused;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What a group has committed of partition 0 of a topic, as a record; groups know it after a restart.
    pub fn write_offset(&self, group: &str, topic: &str, offset: i64) {
        let (mut key, mut value) = (BytesMut::new(), BytesMut::new());
        key.put_u8(b'o');
        for text in [group, topic] {
            key.put_u16(text.len() as u16);
            key.put_slice(text.as_bytes());
        }
        key.put_u32(0);
        value.put_u8(1);
        value.put_i64(offset);
        value.put_i32(-1);
        value.put_u64(u64::MAX / 4);
        value.put_u32(0);
        self.append(LogId(0), AppendItem::State { key: key.freeze(), value: Some(value.freeze()) });
    }

    /// Offset that a group has committed of partition 0 of a topic.
    pub fn offset(&self, group: &str, topic: &str) -> Option<i64> {
        self.broker.groups().offset(group, topic, 0).map(|committed| committed.offset)
    }

    pub fn journal(&self, number: usize) -> &Arc<Journal> {
        &self.broker.journals()[number]
    }
}

/// The first partition's log.
pub fn log_of(topic: &broker::Topic) -> Arc<Log> {
    Arc::clone(topic.log(PartitionIndex(0)).as_ref().expect("it has partitions"))
}
