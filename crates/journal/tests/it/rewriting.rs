//! What rewriting reads, that nobody waits for it, and what it does where it cannot read: many logs whose tiny batches lie mixed.

mod stuck;
mod unanswered;

use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use journal::disk::{File, IoMode, RealStorage, Storage, Submitter, submitter};
use journal::{Append, AppendItem, JournalConfig, Keeper, Log, ReplyTo, Writer};
use parking_lot::Mutex;
use record::BatchHeader;
use types::{Clock, ConnectionId, Durability, LogId, Offset, ShardId};

use crate::node::{Node, TestClock, batch, read_all, small};

const LOGS: u64 = 2_000;
/// What is left of them.
const KEPT: u64 = 500;
const ROUNDS: u64 = 50;
const VALUE_BYTES: usize = 8;
const LARGE: usize = 1 << 20;
const SEGMENT_BYTES: u64 = 4 << 20;
const LOOKS_IN_VAIN: u32 = 10;
/// Between two looks.
const REST_MS: i64 = 500;

type Hook = Box<dyn FnMut() + Send>;

/// What is read and made while a segment is rewritten.
#[derive(Default)]
struct Watch {
    /// The new segment is there and has not its name.
    rewriting: Mutex<bool>,
    read_bytes: AtomicU64,
    segments_made: AtomicU64,
    /// So many reads meanwhile fail.
    failing: AtomicU64,
    /// Done at each read meanwhile.
    hook: Mutex<Option<Hook>>,
    /// Files that can be neither removed nor renamed, nor replaced by others, nor, if they keep space, opened; a space between their names.
    stuck: Mutex<String>,
    /// They cannot be opened for writing either, whatever they are.
    immutable: Mutex<bool>,
    /// The next replacement is done and said to have failed, the further ones of that name, which is kept here, are not done, and the file cannot be read.
    unanswered: Mutex<Option<String>>,
}

struct Watched {
    storage: RealStorage,
    watch: Arc<Watch>,
}

struct WatchedFile(Arc<dyn File>, Arc<Watch>);

impl Watched {
    fn change(&self, name: &str) -> io::Result<()> {
        if self.watch.stuck.lock().split(' ').any(|stuck| stuck == name) {
            Err(io::Error::from_raw_os_error(libc::EIO))
        } else {
            Ok(())
        }
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(WatchedFile(file, Arc::clone(&self.watch)))
    }
}

impl Storage for Watched {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        let rewriting = &mut *self.watch.rewriting.lock();
        *rewriting |= name == "rewriting";
        self.watch.segments_made.fetch_add(u64::from(*rewriting && name.starts_with("segment-")), Ordering::SeqCst);
        Ok(self.file(self.storage.create(name, size)?))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        // For writing, as all are.
        if name.starts_with("reserve") || *self.watch.immutable.lock() {
            self.change(name)?;
        }
        Ok(self.file(self.storage.open(name)?))
    }
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        if self.watch.unanswered.lock().as_deref() == Some(name) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(self.file(self.storage.open_to_read(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(from)?;
        self.change(to)?;
        self.storage.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(name)?;
        *self.watch.rewriting.lock() &= name != "rewriting";
        self.storage.remove(name)
    }
    fn discard(&self, name: &str, _held: Option<Arc<dyn File>>) -> io::Result<()> {
        self.change(name)?;
        self.storage.remove(name)
    }
    fn replace(&self, from: &str, to: &str, _held: Arc<dyn File>) -> io::Result<()> {
        self.change(to)?;
        if let Some(name) = &mut *self.watch.unanswered.lock()
            && (name.is_empty() || name == to)
        {
            if name.is_empty() {
                to.clone_into(name);
                self.rename(from, to)?;
            }
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        *self.watch.rewriting.lock() = false;
        self.rename(from, to)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.storage.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }
}

impl File for WatchedFile {
    fn name(&self) -> String {
        self.0.name()
    }
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let rewriting = *self.1.rewriting.lock();
        if rewriting
            && self.1.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let got = self.0.read_at(position, into)?;
        if rewriting {
            self.1.read_bytes.fetch_add(got as u64, Ordering::SeqCst);
            let hook = self.1.hook.lock().take();
            if let Some(mut hook) = hook {
                hook();
                *self.1.hook.lock() = Some(hook);
            }
        }
        Ok(got)
    }
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(position, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        self.0.allocate(size)
    }
    fn raw_fd(&self) -> Option<RawFd> {
        self.0.raw_fd()
    }
}

fn config() -> JournalConfig {
    JournalConfig { segment_bytes: SEGMENT_BYTES, retention_check_ms: 1_000_000, ..small() }
}

/// A journal whose threads are this one.
struct ByHand {
    journal: Arc<journal::Journal>,
    writer: Arc<Mutex<Writer<Box<dyn Submitter>>>>,
    keeper: Keeper,
    clock: Arc<TestClock>,
    watch: Arc<Watch>,
}

fn submit(journal: &journal::Journal, items: Vec<AppendItem>) -> bool {
    let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token: 0 };
    journal.append(Append { to, items, acknowledge: false }).is_ok()
}

fn item(log: &Arc<Log>, value_bytes: usize) -> AppendItem {
    let bytes = batch(log.id(), log.end(), 1, value_bytes);
    let header = BatchHeader::parse(&bytes).expect("a valid batch");
    AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }
}

impl ByHand {
    fn open(folder: &Path) -> Self {
        Self::open_with(folder, Arc::default())
    }

    fn open_with(folder: &Path, watch: Arc<Watch>) -> Self {
        Self::try_open(folder, watch).expect("it opens")
    }

    fn try_open(folder: &Path, watch: Arc<Watch>) -> Result<Self, journal::OpenError> {
        let storage = Watched {
            storage: RealStorage::open(folder, IoMode::Buffered).expect("a folder"),
            watch: Arc::clone(&watch),
        };
        let archive = Arc::new(journal::MemoryArchive::default());
        let submitter = submitter(IoMode::Buffered).expect("always there");
        let clock: Arc<TestClock> = Arc::default();
        let opened = journal::open(
            config(),
            Arc::new(storage),
            archive,
            submitter,
            Arc::clone(&clock) as Arc<dyn Clock>,
            uuid::Uuid::new_v4(),
        )?;
        let opened = Self {
            journal: opened.journal,
            writer: Arc::new(Mutex::new(opened.writer)),
            keeper: opened.keeper,
            clock,
            watch,
        };
        opened.write();
        Ok(opened)
    }

    fn write(&self) {
        let mut writer = self.writer.lock();
        for _ in 0..20 {
            writer.step(false);
        }
    }

    fn append(&mut self, items: Vec<AppendItem>) {
        assert!(submit(&self.journal, items), "there is room");
        for _ in 0..3 {
            self.write();
            self.keeper.step(Duration::ZERO);
        }
    }

    fn log(&self, id: u64) -> Arc<Log> {
        self.journal.create_log(LogId(id), Durability::Fsync)
    }

    fn fill(&mut self) {
        let logs: Vec<_> = (1..=LOGS).map(|id| self.log(id)).collect();
        for _ in 0..ROUNDS {
            self.append(logs.iter().map(|log| item(log, VALUE_BYTES)).collect());
        }
    }

    /// Three of four logs lose what they have.
    fn trim(&mut self) {
        let trimmed = (1..=LOGS).filter(|id| id % (LOGS / KEPT) != 0).map(|id| self.log(id));
        self.append(trimmed.map(|log| AppendItem::Trim { to: log.end(), log }).collect());
        self.look();
    }

    /// Until nothing comes of it any more.
    fn look(&mut self) {
        let done = |node: &Self| (node.rewritten(), node.journal.metrics().segments_freed.get());
        let (mut in_vain, mut looks) = (0, 0);
        while in_vain < LOOKS_IN_VAIN {
            let before = done(self);
            self.look_once();
            in_vain = if done(self) == before { in_vain + 1 } else { 0 };
            looks += 1;
            assert!(looks < 1000, "it comes to an end");
        }
    }

    fn look_once(&mut self) {
        // A look that takes long is followed by a rest.
        self.clock.advance(REST_MS);
        self.clock.advance_waits(REST_MS as u64);
        self.journal.check_retention();
        self.keeper.step(Duration::ZERO);
    }

    fn rewritten(&self) -> u64 {
        self.journal.metrics().segments_rewritten.get()
    }

    /// Length of the full segments.
    fn sealed_bytes(&self) -> u64 {
        self.journal.segments_listed().iter().filter(|segment| segment.sealed).map(|segment| segment.bytes).sum()
    }
}

fn check(journal: &journal::Journal) {
    for id in (1..=LOGS).filter(|id| id % (LOGS / KEPT) == 0) {
        let log = journal.create_log(LogId(id), Durability::Fsync);
        assert_eq!((log.start(), read_all(journal, &log, VALUE_BYTES)), (Offset(0), Offset(ROUNDS)));
    }
}

#[test]
fn tiny_batches_of_many_logs_are_read_about_once_and_rewritten_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    node.fill();
    assert_eq!(node.rewritten(), 0, "nothing was let go");
    node.trim();
    let rewritten = node.rewritten();
    let read = node.watch.read_bytes.load(Ordering::SeqCst);
    assert!(rewritten >= 3, "{rewritten} segments were rewritten");
    assert!(read <= 2 * rewritten * SEGMENT_BYTES, "{read} bytes read of {rewritten} segments");
    node.trim();
    assert_eq!(node.rewritten(), rewritten, "what was rewritten is not rewritten again");
    check(&node.journal);
    drop(node);
    let node = Node::open(folder.path(), IoMode::Buffered, config()).expect("it opens again");
    check(&node.journal);
    node.close();
}

#[test]
fn the_writer_has_its_next_segments_while_one_is_rewritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    node.fill();
    let large = node.log(LOGS + 1);
    let (journal, writer, log) = (Arc::clone(&node.journal), Arc::clone(&node.writer), Arc::clone(&large));
    let mut sent = 0;
    *node.watch.hook.lock() = Some(Box::new(move || {
        // The next one when the one before has its place.
        if sent < 40 && log.end() == Offset(sent) && submit(&journal, vec![item(&log, LARGE)]) {
            sent += 1;
        }
        let mut writer = writer.lock();
        for _ in 0..20 {
            writer.step(false);
        }
    }));
    node.trim();
    *node.watch.hook.lock() = None;
    assert!(node.rewritten() >= 3, "{} segments were rewritten", node.rewritten());
    let made = node.watch.segments_made.load(Ordering::SeqCst);
    assert!(made >= 2, "{made} segments were made for the writer meanwhile");
    check(&node.journal);
    assert!(read_all(&node.journal, &large, LARGE) > Offset(2 * SEGMENT_BYTES / LARGE as u64));
}

/// A copy of a journal's folder without one of its files.
fn without(folder: &Path, lost: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_file() && entry.file_name() != lost {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
        }
    }
    copy
}

/// What is rewritten of a journal, and what its full segments take then.
fn without_failure() -> (u64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    node.fill();
    node.trim();
    (node.rewritten(), node.sealed_bytes())
}

#[test]
fn a_read_that_fails_once_holds_up_its_segment_alone_and_not_for_long() {
    let (rewritten, bytes) = without_failure();
    assert!(rewritten >= 3, "{rewritten} segments are rewritten");
    for failing in [1, 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = ByHand::open(folder.path());
        node.fill();
        let before = node.sealed_bytes();
        node.watch.failing.store(failing, Ordering::SeqCst);
        node.trim();
        assert_eq!(node.watch.failing.load(Ordering::SeqCst), 0, "reads have failed");
        assert!(
            node.rewritten() >= rewritten - failing,
            "{failing}: {} of {rewritten} segments are rewritten in spite of it",
            node.rewritten()
        );
        let began = Instant::now();
        while node.sealed_bytes() > bytes + SEGMENT_BYTES / 16 {
            assert!(
                began.elapsed() < Duration::from_secs(120),
                "{failing}: {} bytes of {before}, without a failure {bytes}",
                node.sealed_bytes()
            );
            node.look();
        }
        assert_eq!(node.journal.unreadable(), [], "all of it was read");
        check(&node.journal);
    }
}

#[test]
fn a_damaged_segment_stays_and_holds_up_no_other() {
    let (rewritten, _) = without_failure();
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    node.fill();
    let damaged = "segment-000000000001";
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join(damaged)).expect("it is there");
    file.write_all_at(&[0; 64 << 10], 1 << 20).expect("written");
    node.trim();
    let is_named = |node: &ByHand| {
        let places = node.journal.unreadable();
        assert!(
            places.len() == 1 && places[0].file.ends_with(damaged) && places[0].what.contains("checksum"),
            "{places:?}"
        );
    };
    is_named(&node);
    assert_eq!(node.rewritten(), rewritten - 1, "all but the damaged one");
    // A second is the first pause of those that are tried again.
    let read = node.watch.read_bytes.load(Ordering::SeqCst);
    (0..5).for_each(|_| node.look());
    is_named(&node);
    assert_eq!(
        (node.rewritten(), node.watch.read_bytes.load(Ordering::SeqCst)),
        (rewritten - 1, read),
        "it is left alone"
    );
    let all = (1..=LOGS).map(|id| node.log(id));
    let trims = all.map(|log| AppendItem::Trim { to: log.end(), log }).collect();
    node.append(trims);
    node.look();
    assert_eq!(node.journal.unreadable(), [], "nothing of it is live");
    assert!(!folder.path().join(damaged).exists());
}

fn segments(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    names.filter(|name| name.to_string_lossy().starts_with("segment-")).count()
}

#[test]
fn a_file_that_cannot_be_removed_holds_up_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    let stuck = "segment-000000000002";
    stuck.clone_into(&mut node.watch.stuck.lock());
    let log = node.log(1);
    for _ in 0..60 {
        node.append(vec![item(&log, LARGE)]);
        node.append(vec![AppendItem::Trim { to: log.end(), log: Arc::clone(&log) }]);
    }
    node.look();
    // The one that stays, the one that is written, those that are kept ready.
    assert!(segments(folder.path()) <= 6, "{} segments", segments(folder.path()));
    assert!(folder.path().join(stuck).exists());
    node.watch.stuck.lock().clear();
    node.look();
    assert!(!folder.path().join(stuck).exists(), "it goes when it can be removed");
}

#[test]
fn a_file_that_cannot_be_replaced_holds_up_no_other() {
    let (rewritten, _) = without_failure();
    for first in 1..=3 {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = ByHand::open(folder.path());
        node.fill();
        let stuck = format!("segment-{first:012}");
        stuck.clone_into(&mut node.watch.stuck.lock());
        *node.watch.immutable.lock() = true;
        node.trim();
        assert!(node.rewritten() >= rewritten / 2, "{stuck}: {} of {rewritten} are rewritten", node.rewritten());
        check(&node.journal);
        let watch = Arc::clone(&node.watch);
        drop(node);
        watch.stuck.lock().clear();
        let mut node = ByHand::open_with(folder.path(), watch);
        node.look();
        check(&node.journal);
    }
}

#[test]
fn a_leftover_that_cannot_be_removed_holds_up_nothing_that_is_dead() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    std::fs::write(folder.path().join("rewriting"), b"left").expect("written");
    "rewriting".clone_into(&mut node.watch.stuck.lock());
    let log = node.log(1);
    for _ in 0..60 {
        node.append(vec![item(&log, LARGE)]);
        node.append(vec![AppendItem::Trim { to: log.end(), log: Arc::clone(&log) }]);
    }
    node.look();
    assert!(segments(folder.path()) <= 6, "{} segments", segments(folder.path()));
}

/// Segments that are dead at once.
fn write_and_trim(node: &mut ByHand, rounds: usize) {
    let log = node.log(1);
    for _ in 0..rounds {
        node.append(vec![item(&log, LARGE)]);
        node.append(vec![AppendItem::Trim { to: log.end(), log: Arc::clone(&log) }]);
    }
    node.look();
}

#[test]
fn a_file_that_only_keeps_space_holds_up_nothing() {
    for stuck in ["reserve", "reserve-rewriting"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = ByHand::open(folder.path());
        write_and_trim(&mut node, 10);
        assert!(folder.path().join(stuck).exists(), "{stuck}");
        stuck.clone_into(&mut node.watch.stuck.lock());
        write_and_trim(&mut node, 60);
        assert!(segments(folder.path()) <= 6, "{stuck}: {} segments", segments(folder.path()));
    }
}

#[test]
fn a_spare_file_that_cannot_be_used_stops_no_write() {
    let spares = ["spare-900-1", "spare-901-1"];
    for at in 0..2 {
        let folder = tempfile::tempdir().expect("a folder");
        let node = ByHand::open(folder.path());
        let watch = Arc::clone(&node.watch);
        drop(node);
        for spare in spares {
            let file = std::fs::File::create(folder.path().join(spare)).expect("created");
            file.set_len(config().segment_bytes).expect("there is space");
        }
        let mut node = ByHand::open_with(folder.path(), watch);
        spares[at].clone_into(&mut node.watch.stuck.lock());
        let log = node.log(1);
        let before = log.end();
        for _ in 0..60 {
            node.append(vec![item(&log, LARGE)]);
        }
        assert_eq!(log.end(), before.plus(60), "{}", spares[at]);
        assert!(
            folder.path().join(spares[at]).exists() && !folder.path().join(spares[1 - at]).exists(),
            "the other one is used"
        );
    }
}

#[test]
fn a_segment_stays_as_it_is_as_long_as_a_file_that_it_replaces() {
    let (rewritten, bytes) = without_failure();
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    node.fill();
    let stuck = "segment-000000000002";
    stuck.clone_into(&mut node.watch.stuck.lock());
    node.trim();
    assert_eq!(node.rewritten(), rewritten, "the others go on");
    // Nothing is live any more but what the last of the logs has.
    let mut watch = Arc::clone(&node.watch);
    for start in 0..3 {
        check(&node.journal);
        assert!(folder.path().join(stuck).exists(), "start {start}");
        drop(node);
        node = ByHand::open_with(folder.path(), watch);
        watch = Arc::clone(&node.watch);
        node.look();
    }
    let ends = (1..=LOGS).map(|id| node.log(id));
    let trims = ends.map(|log| AppendItem::Trim { to: log.end(), log }).collect();
    node.append(trims);
    node.look();
    let all_dead = segments(folder.path());
    watch.stuck.lock().clear();
    node.look();
    assert!(!folder.path().join(stuck).exists() && segments(folder.path()) < all_dead, "what replaces it goes with it");
    assert!(node.sealed_bytes() <= bytes);
    drop(node);
    let node = Node::open(folder.path(), IoMode::Buffered, config()).expect("it opens again");
    node.close();
}

#[test]
fn a_rewriting_is_given_up_when_the_journal_is_shut_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = ByHand::open(folder.path());
    node.fill();
    let journal = Arc::clone(&node.journal);
    *node.watch.hook.lock() = Some(Box::new(move || journal.shutdown()));
    node.trim();
    *node.watch.hook.lock() = None;
    assert!(node.watch.read_bytes.load(Ordering::SeqCst) > 0, "it had begun");
    assert_eq!(node.rewritten(), 0, "it was given up");
    assert!(!folder.path().join("rewriting").exists(), "nothing of it is left");
    check(&node.journal);
    drop(node);
    let node = Node::open(folder.path(), IoMode::Buffered, config()).expect("it opens again");
    check(&node.journal);
    node.close();
}
