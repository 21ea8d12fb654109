//! A disk of so many bytes that is full of messages that are dead: their letters arrive without anybody's doing, because each takes the place
//! of its original.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{PolicyScope, PolicyWish};
use journal::disk::{File, IoMode, RealStorage, Storage, submitter};
use serde_json::json;

use crate::node::Node;

/// Longest wait for one more letter.
const PATIENCE: Duration = Duration::from_secs(90);
const CAPACITY: u64 = 34 << 20;
const BODY_BYTES: usize = 20_000;

struct SmallDisk {
    storage: RealStorage,
    folder: PathBuf,
}

struct OnSmallDisk {
    file: Arc<dyn File>,
    folder: PathBuf,
}

/// What the files of a folder take.
fn used_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok);
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

fn check_space(folder: &Path, more: u64) -> io::Result<()> {
    if used_bytes(folder) + more > CAPACITY { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

impl SmallDisk {
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(OnSmallDisk { file, folder: self.folder.clone() })
    }
}

impl Storage for SmallDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        check_space(&self.folder, size)?;
        Ok(self.wrap(self.storage.create(name, size)?))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(self.storage.open(name)?))
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
        Ok(CAPACITY.saturating_sub(used_bytes(&self.folder)))
    }
}

impl File for OnSmallDisk {
    fn name(&self) -> String {
        self.file.name()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(position, into)
    }
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(position, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        check_space(&self.folder, size.saturating_sub(self.file.size()?))?;
        self.file.allocate(size)
    }
    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        self.file.raw_fd()
    }
}

fn start() -> Node {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let disk = move |storage| Arc::new(SmallDisk { storage, folder: path }) as Arc<dyn Storage>;
    Node::start_in(folder, disk, submitter(IoMode::Buffered).expect("always there"))
}

#[test]
fn dead_letters_arrive_on_a_disk_that_is_full_of_their_originals() {
    let mut node = start();
    let client = node.open();
    node.declare(client, "dead");
    node.declare(client, "jobs");
    while !node.broker.journals()[0].is_disk_full() {
        if node.held_bytes() < 50_000 {
            node.publish(client, "", "jobs", &[b'x'; BODY_BYTES]);
        }
        node.pump();
    }
    node.close(client);
    let vhost = node.broker.vhosts().get("/").expect("it is always there");
    let definition = json!({"max-length": 1, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"});
    let wish = PolicyWish { pattern: json!("^jobs$"), definition, priority: None, apply_to: None };
    node.broker.put_policy(&vhost, PolicyScope::User, "short", &wish).expect("a policy");
    let (jobs, dead) = (node.subscription("jobs").0, node.subscription("dead").0);
    // One of them stays; what a journal had taken of the publisher may come when there is space.
    let all = || jobs.log().end().0 - 1;
    assert!(all() * BODY_BYTES as u64 > CAPACITY / 2, "{} messages fill the disk", all());
    let (mut seen, mut since) = (0, Instant::now());
    while dead.log().high_watermark().0 < all() || node.broker.counts(&jobs).dying > 0 {
        node.advance(Duration::from_millis(10));
        let now = dead.log().high_watermark().0;
        if now > seen {
            (seen, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "{seen} of {} letters have arrived", all());
        std::thread::sleep(Duration::from_millis(10));
    }
    let letters = all();
    assert_eq!(dead.log().end().0, letters, "each once");
    assert_eq!(node.broker.counts(&dead).ready, letters);
    // When somebody takes them, publishers go on.
    assert_eq!(node.broker.purge(&dead), letters);
    let client = node.open();
    let end = jobs.log().end().0;
    node.publish(client, "", "jobs", b"next");
    let since = Instant::now();
    while jobs.log().high_watermark().0 <= end {
        node.advance(Duration::from_millis(10));
        assert!(since.elapsed() < PATIENCE, "there is space");
        std::thread::sleep(Duration::from_millis(10));
    }
    node.stop();
}
