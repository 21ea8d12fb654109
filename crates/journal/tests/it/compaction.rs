//! Compaction of random logs against a model: what a reader gets is the newest record of each key, at the offset where it was
//! written; nothing else is lost, nothing that was aborted is left; tombstones, transactions, little memory, restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::{AppendItem, ArchiveStore, ColdWant, Compaction, JournalConfig, Log, MemoryArchive, TailRead};
use parking_lot::Mutex;
use record::{BatchBuilder, BatchHeader, Batches, Compression, Marker, Record};
use types::Offset;

use crate::node::{Node, small};

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn eager() -> Compaction {
    Compaction {
        min_lag_ms: 0,
        max_lag_ms: u64::MAX,
        dirty_ratio: 0.1,
        delete_retention_ms: 3_600_000,
        segment_ms: 0,
        segment_bytes: 1,
    }
}

fn config() -> JournalConfig {
    JournalConfig { object_bytes: 32 << 10, tail_bytes: 1 << 20, ..small() }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

type Value = Option<Vec<u8>>;

/// Offset, key, value.
type Written = Vec<(u64, Vec<u8>, Value)>;

/// A log, and what was written to it.
struct Model {
    log: Arc<Log>,
    /// By offset: key, value; of transactions that were not aborted. Open ones are apart.
    committed: BTreeMap<u64, (Vec<u8>, Value)>,
    aborted: BTreeSet<u64>,
    /// By producer: its next sequence, and what its open transaction has written.
    producers: BTreeMap<i64, (i32, Written)>,
}

impl Model {
    fn new(log: Arc<Log>) -> Self {
        Self { log, committed: BTreeMap::new(), aborted: BTreeSet::new(), producers: BTreeMap::new() }
    }

    fn put(&self, node: &Node, bytes: Bytes) -> u64 {
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        let item = AppendItem::Batch { log: Arc::clone(&self.log), bytes, header, gate: None };
        node.append(self.log.id().0, vec![item]).expect("appended").base.0
    }

    /// A batch of up to thirty records; of a transaction, if a producer is named.
    fn write(&mut self, node: &Node, random: &mut Random, keys: u64, producer: Option<i64>) {
        let count = 1 + random.below(30);
        let mut builder = BatchBuilder::default().compression(CODECS[random.below(5) as usize]);
        if let Some(id) = producer {
            let sequence = self.producers.entry(id).or_default().0;
            builder = builder.producer(id, 0, sequence).transactional();
        }
        let mut written = Vec::new();
        for _ in 0..count {
            let key = format!("key-{}", random.below(keys)).into_bytes();
            let value = (random.below(8) != 0).then(|| vec![random.below(256) as u8; 20 + random.below(200) as usize]);
            builder = builder.record_with_headers(
                1_000 + random.below(5_000) as i64,
                Some(&key),
                value.as_deref(),
                &[(b"a", Some(b"b"))],
            );
            written.push((key, value));
        }
        let base = self.put(node, builder.build());
        let written = (base..).zip(written).map(|(offset, (key, value))| (offset, key, value));
        match producer {
            None => self.committed.extend(written.map(|(offset, key, value)| (offset, (key, value)))),
            Some(id) => {
                let state = self.producers.entry(id).or_default();
                state.0 += count as i32;
                state.1.extend(written);
            }
        }
    }

    fn end(&mut self, node: &Node, id: i64, marker: Marker) {
        self.put(node, marker.batch(id, 0, 0, 9));
        let written = std::mem::take(&mut self.producers.entry(id).or_default().1);
        match marker {
            Marker::Commit => {
                self.committed.extend(written.into_iter().map(|(offset, key, value)| (offset, (key, value))))
            }
            Marker::Abort => self.aborted.extend(written.into_iter().map(|(offset, _, _)| offset)),
        }
    }

    /// The newest value of each key below an offset.
    fn newest(&self, until: u64) -> BTreeMap<&[u8], (u64, &Value)> {
        self.committed.range(..until).map(|(offset, (key, value))| (&key[..], (*offset, value))).collect()
    }
}

/// All batches of a log up to its stable end, from memory and disk, a few at a time.
fn batches(node: &Node, log: &Arc<Log>, piece: usize) -> Vec<Bytes> {
    let (mut from, until) = (log.start(), log.last_stable());
    let mut all = Vec::new();
    while from < until {
        let (slices, next) = match node.journal.read_tail(log, from..until, piece, true) {
            TailRead::Data { slices, next, .. } => (slices, next),
            TailRead::Cold => {
                let want = ColdWant { log: Arc::clone(log), from, until, max_bytes: piece };
                let data = node.journal.read_cold(&[want], piece).remove(0).expect("readable");
                (data.slices, data.next)
            }
            other => panic!("{other:?} at {from} of {}..{until}", log.start()),
        };
        let bytes = slices.concat();
        // A client goes on behind the last batch that it got.
        let mut reached = from;
        for batch in Batches::new(&bytes) {
            let (position, header) = batch.expect("whole batches");
            assert!(header.base() >= reached || all.is_empty() || header.next() > from, "batches come in order");
            reached = header.next();
            all.push(Bytes::copy_from_slice(&bytes[position..position + header.total_bytes()]));
        }
        assert!(
            reached > from && reached <= next,
            "a reader gets on from {from}, got {} bytes up to {reached}",
            bytes.len()
        );
        from = reached;
    }
    all
}

/// What a reader of committed records makes of it, as Kafka's clients do: a producer's records are skipped from the first offset
/// of an aborted transaction to its marker.
fn consume(log: &Log, batches: &[Bytes]) -> Vec<Record> {
    let mut aborted = log.aborted_between(log.start(), log.last_stable());
    aborted.sort_by_key(|aborted| std::cmp::Reverse(aborted.first));
    let mut skipping = BTreeSet::new();
    let mut got = Vec::new();
    for batch in batches {
        let header = BatchHeader::parse(batch).expect("a batch");
        while let Some(one) = aborted.pop_if(|one| one.first < header.next()) {
            skipping.insert(one.producer_id);
        }
        if header.control() {
            if Marker::of(&header, batch) == Some(Marker::Abort) {
                skipping.remove(&header.producer_id);
            }
        } else if !(header.transactional() && skipping.contains(&header.producer_id)) {
            got.extend(record::records(batch).expect("readable records"));
        }
    }
    got
}

/// Compares all of a log with its model. Returns how many records are left.
fn check(node: &Node, model: &Model, piece: usize) -> usize {
    let log = &model.log;
    let cleaned_until = log.archived_until().0;
    // What lies beyond a window is in the archive before it is compacted.
    let moves = node.journal.config().window_bytes.is_some();
    let batches = batches(node, log, piece);
    let got = consume(log, &batches);
    let mut newest: BTreeMap<&[u8], (u64, &Value)> = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for record in &got {
        let offset = record.offset.0;
        let (key, value) =
            model.committed.get(&offset).unwrap_or_else(|| panic!("offset {offset} was never committed"));
        assert_eq!(
            (record.key.as_deref(), record.value.as_deref()),
            (Some(&key[..]), value.as_deref()),
            "offset {offset}"
        );
        assert_eq!(record.headers[..], [(Bytes::from_static(b"a"), Some(Bytes::from_static(b"b")))]);
        newest.insert(key, (offset, value));
        if offset < cleaned_until && !moves {
            assert!(twice.insert(key), "{} is twice in what was compacted", key.escape_ascii());
        }
    }
    let expected = model.newest(log.last_stable().0);
    for (key, (offset, value)) in &expected {
        match newest.get(key) {
            Some(found) => assert_eq!(found, &(*offset, *value), "{}", key.escape_ascii()),
            None => assert!(value.is_none() && *offset < cleaned_until, "{} at {offset} is lost", key.escape_ascii()),
        }
    }
    assert!(newest.keys().all(|key| expected.contains_key(key)));
    let raw = batches.iter().flat_map(|batch| {
        let control = BatchHeader::parse(batch).expect("a batch").control();
        record::records(batch).expect("readable").into_iter().filter(move |_| !control)
    });
    for record in raw.filter(|record| record.offset.0 < cleaned_until && !moves) {
        assert!(!model.aborted.contains(&record.offset.0), "offset {} was aborted", record.offset);
    }
    got.len()
}

/// Waits until all but a little of these logs has been compacted.
fn compacted(models: &[Model]) {
    let began = Instant::now();
    let is_done = |model: &Model| model.log.archived_until().0 + 40 > model.log.end().0;
    while let Some(model) = models.iter().find(|model| !is_done(model)) {
        let (until, end) = (model.log.archived_until(), model.log.end());
        assert!(began.elapsed() < Duration::from_secs(120), "{until} of {end} is compacted");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until nothing is left to be compacted.
fn settle(node: &Node, logs: &[&Arc<Log>]) {
    let began = Instant::now();
    let idle = || node.journal.metrics().archive_idle.get();
    let state = || {
        (
            node.journal.metrics().compaction_passes.get(),
            logs.iter().map(|log| log.archived_until()).collect::<Vec<_>>(),
        )
    };
    loop {
        let (before, idle_before) = (state(), idle());
        // A log that had its pass rests for a turn or two before it is looked at again.
        while state() == before && idle() < idle_before + 6 {
            assert!(began.elapsed() < Duration::from_secs(120), "compaction comes to an end: {before:?} {:?}", state());
            std::thread::sleep(Duration::from_millis(5));
        }
        if state() == before && before.0 > 0 {
            return;
        }
    }
}

fn open(folder: &Path, archive: &Arc<MemoryArchive>, config: JournalConfig) -> Node {
    Node::open_with(folder, archive, config).expect("it opens")
}

fn run(seed: u64, config: JournalConfig) {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(MemoryArchive::default());
    let mut random = Random(seed * 0x9E37_79B9 + 1);
    let mut node = open(folder.path(), &archive, config.clone());
    let mut models: Vec<Model> = (1..=3).map(|id| Model::new(node.log(id))).collect();
    let keys = [5, 60, 700];
    for round in 0..4 {
        models.iter().for_each(|model| model.log.set_compaction(Some(eager())));
        for _ in 0..250 {
            let at = random.below(3) as usize;
            let model = &mut models[at];
            let producer = (random.below(3) == 0).then(|| 1 + random.below(3) as i64);
            model.write(&node, &mut random, keys[at], producer);
            if let Some(id) = producer.filter(|_| random.below(3) == 0) {
                model.end(&node, id, if random.below(2) == 0 { Marker::Commit } else { Marker::Abort });
            }
            if random.below(60) == 0 {
                check(&node, model, 1 + random.below(40_000) as usize);
            }
        }
        for model in &mut models {
            for id in 1..=3 {
                if !model.producers.entry(id).or_default().1.is_empty() {
                    model.end(&node, id, if random.below(2) == 0 { Marker::Commit } else { Marker::Abort });
                }
            }
            model.write(&node, &mut random, 5, None);
        }
        compacted(&models);
        settle(&node, &models.iter().map(|model| &model.log).collect::<Vec<_>>());
        for model in &models {
            check(&node, model, 10_000);
            check(&node, model, 1);
        }
        if round % 2 == 1 {
            let ends: Vec<Offset> = models.iter().map(|model| model.log.end()).collect();
            models.iter().for_each(|model| assert_eq!(model.log.start(), Offset(0)));
            node.close();
            node = open(folder.path(), &archive, config.clone());
            node.journal.check_segments(&|_| true).expect("nothing is missing");
            for (model, end) in models.iter_mut().zip(ends) {
                model.log = node.log(model.log.id().0);
                assert_eq!((model.log.start(), model.log.end()), (Offset(0), end));
                check(&node, model, 10_000);
            }
        }
    }
    let left = check(&node, &models[0], 50_000);
    assert!(left < 60, "{left} records of 5 keys are left");
    node.close();
}

#[test]
fn random_logs_keep_the_newest_of_each_key() {
    for seed in 1..4 {
        run(seed, config());
    }
}

/// Keys for a thousand records at a time, a window that the journal is beyond, and objects of a few batches.
#[test]
fn little_memory_makes_more_passes_and_the_same_result() {
    run(77, JournalConfig { key_bytes: 1, ..config() });
    run(78, JournalConfig { window_bytes: Some(4 << 20), object_bytes: 8 << 10, ..config() });
}

#[test]
fn tombstones_and_markers_go_after_their_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(MemoryArchive::default());
    let node = open(folder.path(), &archive, config());
    let mut model = Model::new(node.log(1));
    let record = |key: &[u8], value: Option<&[u8]>| {
        BatchBuilder::default().record(1_000, Some(key), value).record(1_000, Some(b"other"), Some(b"x"))
    };
    let put = |model: &Model, builder: BatchBuilder| model.put(&node, builder.build());
    put(&model, record(b"gone", Some(b"value")));
    put(&model, record(b"gone", None));
    put(&model, record(b"kept", Some(b"value")).producer(5, 0, 0).transactional());
    model.end(&node, 5, Marker::Abort);
    put(&model, record(b"kept", Some(b"value")).producer(6, 0, 0).transactional());
    model.end(&node, 6, Marker::Commit);
    // As long as a batch is the last of its producer its place is kept, and so is the marker behind it.
    put(&model, record(b"kept", Some(b"newer")).producer(5, 0, 2));
    put(&model, record(b"last", Some(b"x")).producer(6, 0, 2));
    let aborted = model.log.aborted_between(Offset(0), Offset(100));
    assert_eq!(aborted.len(), 1);
    assert_eq!((model.log.dense_from(), model.log.compactions()), (Offset(10), 0), "behind the last marker");
    let shown = |node: &Node| -> Vec<(u64, Option<Vec<u8>>, bool)> {
        let all = batches(node, &model.log, 1 << 20);
        let records = all.iter().flat_map(|batch| {
            let control = BatchHeader::parse(batch).expect("a batch").control();
            record::records(batch).expect("readable").into_iter().map(move |record| {
                (
                    record.offset.0,
                    if control { None } else { record.key.map(|key| key.to_vec()) },
                    control || record.value.is_none(),
                )
            })
        });
        records.collect()
    };
    model.log.set_compaction(Some(Compaction { delete_retention_ms: 3_600_000, ..eager() }));
    settle(&node, &[&model.log]);
    assert!(model.log.compactions() > 0 && model.log.dense_from() == model.log.archived_until().max(Offset(10)));
    let key = |key: &[u8]| Some(key.to_vec());
    let rest = [(10, key(b"kept"), false), (12, key(b"last"), false), (13, key(b"other"), false)];
    let mut expected = vec![(2, key(b"gone"), true), (6, None, true), (9, None, true)];
    // "other" of the compacted part, and that of the last batch, which is not compacted.
    expected.extend([rest[0].clone(), (11, key(b"other"), false), rest[1].clone(), rest[2].clone()]);
    assert_eq!(shown(&node), expected, "the aborted records are gone, tombstone and markers are not");
    node.clock.advance(3_600_001);
    let began = Instant::now();
    while shown(&node).len() > 4 {
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", shown(&node));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(shown(&node), [rest[0].clone(), (11, key(b"other"), false), rest[1].clone(), rest[2].clone()]);
    // Nobody is told to skip what producer 5 writes next.
    assert_eq!(model.log.aborted_between(Offset(0), Offset(100)), []);
    let end = model.log.end();
    node.close();
    let node = open(folder.path(), &archive, config());
    let log = node.log(1);
    assert_eq!((log.end(), log.aborted_between(Offset(0), Offset(100))), (end, vec![]), "after a restart too");
    node.close();
}

#[test]
fn what_is_young_or_little_or_open_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(MemoryArchive::default());
    let node = open(folder.path(), &archive, config());
    let mut random = Random(5);
    let never = [
        Compaction { min_lag_ms: 1 << 40, ..eager() },
        Compaction { segment_ms: 1 << 40, segment_bytes: 1 << 40, ..eager() },
        Compaction { dirty_ratio: 1.0, ..eager() },
    ];
    let mut models: Vec<Model> = (1..=5).map(|id| Model::new(node.log(id))).collect();
    for (model, policy) in models.iter().zip(never) {
        model.log.set_compaction(Some(policy));
    }
    models[3].log.set_compaction(Some(eager()));
    models[4].log.set_compaction(Some(Compaction { max_lag_ms: 300, ..never[1] }));
    for _ in 0..50 {
        for model in &mut models {
            model.write(&node, &mut random, 5, None);
        }
    }
    let open_from = models[3].log.end();
    models[3].write(&node, &mut random, 5, Some(1));
    for _ in 0..20 {
        models[3].write(&node, &mut random, 5, None);
    }
    std::thread::sleep(Duration::from_millis(700));
    settle(&node, &models.iter().map(|model| &model.log).collect::<Vec<_>>());
    for model in &models[..3] {
        assert_eq!(model.log.archived_until(), Offset(0), "{:?}", model.log.id());
    }
    let compacted = models[3].log.archived_until();
    assert!(
        compacted <= open_from && compacted.0 + 40 > open_from.0,
        "{compacted}, and a transaction is open from {open_from} on"
    );
    assert!(models[4].log.archived_until() > Offset(0), "it has been there for too long");
    models[3].end(&node, 1, Marker::Commit);
    models[3].write(&node, &mut random, 5, None);
    settle(&node, &[&models[3].log]);
    assert!(models[3].log.archived_until() > open_from);
    check(&node, &models[3], 5_000);
    node.close();
}

/// It takes so many bytes.
#[derive(Default)]
struct Bounded {
    objects: MemoryArchive,
    bytes: AtomicUsize,
    /// How often it had no space.
    full: AtomicUsize,
    reads: AtomicUsize,
    /// Further ones wait until there may be more.
    reads_max: AtomicUsize,
    /// How many there were when something of log 2 was put.
    reads_before_log_2: AtomicUsize,
    /// What happens at each.
    at_read: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Bounded {
    fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(bytes), reads_max: AtomicUsize::new(usize::MAX), ..Self::default() })
    }

    fn taken(&self) -> usize {
        self.objects.lengths().iter().map(|(_, length)| length).sum()
    }
}

impl ArchiveStore for Bounded {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        if self.taken() + bytes.len() > self.bytes.load(Ordering::Relaxed) {
            self.full.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        if name.split('/').nth(1) == Some("2") {
            let reads = self.reads.load(Ordering::Relaxed);
            let _ = self.reads_before_log_2.compare_exchange(0, reads, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.objects.put(name, bytes)
    }
    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        while number >= self.reads_max.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.at_read.lock().iter().for_each(|act| act());
        self.objects.read_at(name, position, into)
    }
    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.objects.list(prefix)
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.objects.delete(name)
    }
}

/// Logs are written in turns until the archive has no space; all that is beyond a window of 6 MiB waits for some.
fn fill_archive<const LOGS: usize>(folder: &Path, archive: &Arc<Bounded>) -> (Node, [Model; LOGS]) {
    let config = JournalConfig { window_bytes: Some(6 << 20), ..config() };
    let archive = Arc::clone(archive) as Arc<dyn ArchiveStore>;
    let node = Node::open_storing(folder, archive, config).expect("it opens");
    let (mut random, mut models) = (Random(11), std::array::from_fn(|at| Model::new(node.log(at as u64 + 1))));
    let began = Instant::now();
    while node.journal.archive_trouble().is_none() {
        assert!(began.elapsed() < Duration::from_secs(120), "the archive fills");
        (0..100).for_each(|_| models.iter_mut().for_each(|model| model.write(&node, &mut random, 50, None)));
    }
    (node, models)
}

/// It needs that itself: where what is moved at once does not fit nothing of it is kept, and less is not tried.
#[test]
fn the_last_of_a_full_archive_is_left_to_compaction() {
    let folder = tempfile::tempdir().expect("a folder");
    // Of a segment some, and several objects.
    let archive = Bounded::of(100 << 10);
    // What one of them has lies in many places.
    let (node, models) = fill_archive::<2>(folder.path(), &archive);
    let began = Instant::now();
    let before = archive.full.load(Ordering::Relaxed);
    while archive.full.load(Ordering::Relaxed) < before + 3 || archive.taken() > 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "{} bytes are taken", archive.taken());
        // It is tried again.
        node.clock.advance_waits(100);
        std::thread::sleep(Duration::from_millis(10));
    }
    for model in &models {
        check(&node, model, 5_000);
    }
    node.close();
}

/// The compaction that began before is not waited for.
#[test]
fn an_archive_that_gets_more_space_takes_more_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Bounded::of(4 << 20);
    let (node, [model]) = fill_archive(folder.path(), &archive);
    let began = Instant::now();
    let wait = |what: &str, so: &dyn Fn() -> bool| {
        while !so() {
            assert!(began.elapsed() < Duration::from_secs(120), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // Of another log something waits, too.
    let (mut random, mut other) = (Random(5), Model::new(node.log(2)));
    (0..2_000).for_each(|_| other.write(&node, &mut random, 50, None));
    archive.reads.store(0, Ordering::Relaxed);
    archive.reads_max.store(2, Ordering::Relaxed);
    model.log.set_compaction(Some(eager()));
    wait("compaction begins, and is held up", &|| archive.reads.load(Ordering::Relaxed) > 2);
    node.clock.advance_waits(11_000);
    archive.bytes.store(usize::MAX, Ordering::Relaxed);
    archive.reads_max.store(usize::MAX, Ordering::Relaxed);
    wait("more is archived", &|| other.log.archived_until() > other.log.start());
    let reads = archive.reads_before_log_2.load(Ordering::Relaxed);
    assert!(reads < 40, "{reads} of more than a hundred reads of compaction came before");
    check(&node, &model, 5_000);
    node.close();
}

/// The first of some logs is compacted, which takes longer than it is left alone for.
fn compact_long<const LOGS: usize>() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Bounded::of(1 << 20);
    let (node, mut models) = fill_archive::<LOGS>(folder.path(), &archive);
    let (mut random, began) = (Random(5), Instant::now());
    while node.journal.file_bytes() <= 6 << 20 {
        assert!(began.elapsed() < Duration::from_secs(120), "it grows beyond its window");
        models.iter_mut().for_each(|model| model.write(&node, &mut random, 50, None));
    }
    let clock = Arc::clone(&node.clock);
    *archive.at_read.lock() = Some(Box::new(move || clock.advance_waits(4_000)));
    models[0].log.set_compaction(Some(eager()));
    while node.journal.metrics().compaction_passes.get() == 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", node.journal.archive_trouble());
        std::thread::sleep(Duration::from_millis(10));
    }
    for model in &models {
        check(&node, model, 5_000);
    }
    node.close();
}

#[test]
fn a_long_compaction_of_a_full_archive_comes_to_its_end() {
    compact_long::<1>();
}

#[test]
fn a_long_compaction_beside_what_waits_for_a_full_archive_comes_to_its_end() {
    compact_long::<2>();
}

#[test]
fn an_archive_without_space_is_compacted_and_has_some_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Bounded::of(4 << 20);
    let (node, [model]) = fill_archive(folder.path(), &archive);
    let began = Instant::now();
    model.log.set_compaction(Some(eager()));
    while node.journal.archive_trouble().is_some() || node.journal.file_bytes() > 6 << 20 {
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", node.journal.archive_trouble());
        std::thread::sleep(Duration::from_millis(10));
    }
    check(&node, &model, 5_000);
    node.close();
}

/// Of the log that needs it most an object is gone.
#[test]
fn a_log_that_cannot_be_compacted_holds_up_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(MemoryArchive::default());
    let mut random = Random(7);
    let mut node = open(folder.path(), &archive, config());
    let mut models: Vec<Model> = (1..=2).map(|id| Model::new(node.log(id))).collect();
    let fill = |node: &Node, models: &mut [Model], random: &mut Random| {
        for model in models {
            model.log.set_compaction(Some(eager()));
            let batches = if model.log.id().0 == 1 { 900 } else { 300 };
            (0..batches).for_each(|_| model.write(node, random, 5000, None));
        }
    };
    fill(&node, &mut models, &mut random);
    settle(&node, &models.iter().map(|model| &model.log).collect::<Vec<_>>());
    node.close();
    let of_first = |(name, _): &(String, usize)| name.split('/').nth(1) == Some("1");
    let (gone, _) = archive.lengths().into_iter().find(of_first).expect("it has objects");
    archive.delete(&gone).expect("it is there");
    node = open(folder.path(), &archive, config());
    models.iter_mut().for_each(|model| model.log = node.log(model.log.id().0));
    for _ in 0..3 {
        let before = models[1].log.end();
        fill(&node, &mut models, &mut random);
        let began = Instant::now();
        while models[1].log.archived_until() <= before {
            assert!(began.elapsed() < Duration::from_secs(120), "nothing behind {before} is compacted");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(node.journal.unreadable().iter().any(|place| place.file == gone), "it was tried");
    node.close();
}
