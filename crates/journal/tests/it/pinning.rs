//! A journal pinned while it is written: the copy has all that was acknowledged before, whatever becomes of the files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use journal::disk::{File, IoMode, RealStorage, Storage, submitter};
use journal::{Journal, JournalConfig, Log, MemoryArchive, pin_together, survey};
use types::{Durability, LogId};

use crate::node::{Node, modes, read_all, small};

const VALUE_BYTES: usize = 900;

fn backed_up(mode: IoMode) {
    let (folder, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let node = Arc::new(Node::open(folder.path(), mode, small()).expect("it opens"));
    let log = node.log(1);
    // Answered before it is flushed.
    let quick = node.journal.create_log(types::LogId(2), Durability::Memory);
    for _ in 0..60 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
        node.append_batch(&quick, 1, VALUE_BYTES).expect("appended");
    }
    let ends = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (node, log, ends) = (Arc::clone(&node), Arc::clone(&log), Arc::clone(&ends));
        move || {
            while !ends.load(Ordering::SeqCst) {
                node.append_batch(&log, 20, VALUE_BYTES).expect("appended");
            }
        }
    });
    let acknowledged = [log.end(), quick.end()];
    let pins = folder.path().join("pinned");
    fs::create_dir(&pins).expect("a folder");
    let pinned = node.journal.pin(&pins).expect("pinned");
    // What is copied later is what was pinned: meanwhile everything is trimmed, freed and recycled.
    std::thread::sleep(Duration::from_millis(100));
    ends.store(true, Ordering::SeqCst);
    writer.join().expect("no panic");
    node.trim(&log, log.end().0).expect("trimmed");
    for _ in 0..80 {
        node.append_batch(&quick, 50, VALUE_BYTES).expect("appended");
    }
    for name in &pinned.sealed {
        fs::hard_link(pins.join(name), copy.path().join(name))
            .or_else(|_| fs::copy(pins.join(name), copy.path().join(name)).map(drop))
            .expect("taken");
    }
    pinned.copy_open(&pins, copy.path(), mode, &|_| {}).expect("copied");
    fs::remove_dir_all(&pins).expect("removed");
    for _ in 0..80 {
        node.append_batch(&quick, 50, VALUE_BYTES).expect("appended");
    }
    Arc::into_inner(node).expect("the only one").close();
    let found = survey(copy.path(), 0, &MemoryArchive::default(), &|_| {}).expect("it can be looked at");
    assert_eq!((found.damages, found.last), (Vec::new(), pinned.until), "{mode}");
    let node = Node::open(copy.path(), mode, small()).expect("the copy opens");
    for (number, before) in [1, 2].into_iter().zip(acknowledged) {
        let log = node.log(number);
        assert!(log.end() >= before, "{mode}: log {number} ends at {}, {before} was acknowledged", log.end());
        assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), log.end());
    }
    node.close();
}

#[test]
fn a_copy_has_all_that_was_acknowledged_before() {
    modes().into_iter().for_each(backed_up);
}

/// One of its files can have no second name, nor another, and stays.
struct WithImmutable(RealStorage, &'static str);

impl WithImmutable {
    fn change(&self, name: &str) -> io::Result<()> {
        if name == self.1 { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
    }
}

impl Storage for WithImmutable {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        self.0.create(name, size)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.0.open(name)
    }
    fn link(&self, name: &str, path: &Path) -> io::Result<()> {
        self.change(name)?;
        self.0.link(name, path)
    }
    fn copy(&self, name: &str, path: &Path) -> io::Result<()> {
        self.0.copy(name, path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(from)?;
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(name)?;
        self.0.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.0.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

/// `dead`: all of it is let go before, so that it is on its way out.
fn backed_up_beside_immutable(dead: bool) {
    const IMMUTABLE: &str = "segment-000000000002";
    let (folder, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let storage = WithImmutable(RealStorage::open(folder.path(), IoMode::Buffered).expect("a folder"), IMMUTABLE);
    let node = Node::start(
        Arc::new(storage),
        Arc::new(MemoryArchive::default()),
        submitter(IoMode::Buffered).expect("always there"),
        small(),
    )
    .expect("it opens");
    let log = node.log(1);
    while node.journal.metrics().segments_sealed.get() < 4 {
        node.append_batch(&log, 50, VALUE_BYTES).expect("appended");
    }
    if dead {
        node.trim(&log, log.end().0).expect("trimmed");
        node.journal.check_retention();
        let began = Instant::now();
        while node.journal.metrics().segments_freed.get() < 3 {
            assert!(began.elapsed() < Duration::from_secs(120), "dead segments are freed");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(folder.path().join(IMMUTABLE).exists());
    }
    let pins = folder.path().join("pinned");
    fs::create_dir(&pins).expect("a folder");
    let pinned = node.journal.pin(&pins).expect("pinned");
    assert_eq!(pins.join(IMMUTABLE).exists(), !dead);
    for name in &pinned.sealed {
        fs::hard_link(pins.join(name), copy.path().join(name)).expect("taken");
    }
    pinned.copy_open(&pins, copy.path(), IoMode::Buffered, &|_| {}).expect("copied");
    let found = survey(copy.path(), 0, &MemoryArchive::default(), &|_| {}).expect("it can be looked at");
    assert_eq!((found.damages, found.last), (Vec::new(), pinned.until));
    let end = log.end();
    drop(log);
    node.close();
    let node = Node::open(copy.path(), IoMode::Buffered, small()).expect("the copy opens");
    let log = node.log(1);
    assert_eq!(log.end(), end);
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), end);
    drop(log);
    node.close();
}

#[test]
fn a_backup_is_made_beside_an_immutable_segment() {
    [false, true].into_iter().for_each(backed_up_beside_immutable);
}

const BACKUPS: usize = 15;

/// Few files, so that copies are quickly made.
fn large() -> JournalConfig {
    JournalConfig { segment_bytes: 16 << 20, ..small() }
}

/// Journals written like transactions over several: what is meant to be done is written to the first, then it is done in the others, then the
/// first says so. A copy of all has nothing that is done and was not meant, and nothing that is said to be done and is not.
#[test]
fn copies_of_several_journals_are_of_one_moment() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("a folder")).collect();
    let nodes: Arc<Vec<Node>> = Arc::new(
        folders.iter().map(|folder| Node::open(folder.path(), IoMode::Buffered, large()).expect("it opens")).collect(),
    );
    let ends = Arc::new(AtomicBool::new(false));
    // Each writer has a log of what is meant and one of what is done in the first journal, and one in each of the others.
    let writers: Vec<_> = (0..3u64)
        .map(|writer| {
            let (nodes, ends) = (Arc::clone(&nodes), Arc::clone(&ends));
            std::thread::spawn(move || {
                let log = |node: usize, id: u64| nodes[node].journal.create_log(LogId(id), Durability::Memory);
                let (meant, one, other, done) =
                    (log(0, 10 + writer), log(1, 20 + writer), log(2, 30 + writer), log(0, 40 + writer));
                let write = |node: usize, log: &Arc<Log>| nodes[node].append_batch(log, 1, 1).expect("appended");
                while !ends.load(Ordering::SeqCst) {
                    write(0, &meant);
                    write(2, &other);
                    write(1, &one);
                    write(0, &done);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            })
        })
        .collect();
    for number in 0..BACKUPS {
        let copy = tempfile::tempdir().expect("a folder");
        back_up_all(&nodes, &folders.iter().map(tempfile::TempDir::path).collect::<Vec<_>>(), copy.path());
        let surveys: Vec<_> = (0..3)
            .map(|number| {
                survey(&copy.path().join(number.to_string()), 0, &MemoryArchive::default(), &|_| {}).expect("looked at")
            })
            .collect();
        assert!(surveys.iter().all(|found| found.damages.is_empty()));
        for writer in 0..3 {
            let end = |node: usize, id: u64| surveys[node].logs.get(&LogId(id)).map_or(0, |log| log.end.0);
            let (meant, one, other, done) =
                (end(0, 10 + writer), end(1, 20 + writer), end(2, 30 + writer), end(0, 40 + writer));
            let in_order = done <= one && one <= other && other <= meant && meant <= done + 1;
            assert!(
                in_order,
                "copy {number}, writer {writer}: {meant} meant, {other} and {one} in the others, {done} done"
            );
        }
    }
    ends.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    Arc::into_inner(nodes).expect("the only one").into_iter().for_each(Node::close);
}

fn back_up_all(nodes: &[Node], folders: &[&Path], to: &Path) {
    let pins: Vec<_> = folders.iter().map(|folder| folder.join("pinned")).collect();
    pins.iter().for_each(|pins| fs::create_dir(pins).expect("a folder"));
    let wanted: Vec<(&Journal, &Path)> =
        nodes.iter().map(|node| &*node.journal).zip(pins.iter().map(|pins| pins.as_path())).collect();
    let pinned = pin_together(&wanted).expect("pinned");
    for (number, (pinned, pins)) in pinned.iter().zip(&pins).enumerate() {
        let copy = to.join(number.to_string());
        fs::create_dir(&copy).expect("a folder");
        for name in &pinned.sealed {
            fs::hard_link(pins.join(name), copy.join(name)).expect("taken");
        }
        pinned.copy_open(pins, &copy, IoMode::Buffered, &|_| {}).expect("copied");
        fs::remove_dir_all(pins).expect("removed");
    }
}
