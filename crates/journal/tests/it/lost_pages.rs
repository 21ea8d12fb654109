//! A page cache after a failed flush: as Linux does it, the pages stay as they are and count as clean. A restart reads them, and
//! flushes that succeed later leave them out.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use journal::AppendError;
use journal::disk::{Completion, File, Storage, Submitter, Wait, Waker, WriteOp};
use parking_lot::{Condvar, Mutex};
use types::Offset;

use crate::node::{Node, read_all, small};

const VALUE_BYTES: usize = 1000;
/// More than is written with a flush of its own.
const LONG_BATCH: u64 = 100;

/// What a file's readers see, what is on the disk, and what a flush has to write.
#[derive(Default)]
struct Pages {
    cache: Vec<u8>,
    disk: Vec<u8>,
    dirty: Vec<Range<usize>>,
}

struct CachedFile {
    name: String,
    pages: Mutex<Pages>,
    refuses: Arc<AtomicBool>,
}

impl File for CachedFile {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.pages.lock().cache.len() as u64)
    }
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let pages = self.pages.lock();
        let from = (position as usize).min(pages.cache.len());
        let count = into.len().min(pages.cache.len() - from);
        into[..count].copy_from_slice(&pages.cache[from..from + count]);
        Ok(count)
    }
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let mut pages = self.pages.lock();
        let range = position as usize..position as usize + bytes.len();
        let length = pages.cache.len().max(range.end);
        pages.cache.resize(length, 0);
        pages.cache[range.clone()].copy_from_slice(bytes);
        pages.dirty.push(range);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        let pages = &mut *self.pages.lock();
        let dirty = std::mem::take(&mut pages.dirty);
        if self.refuses.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        pages.disk.resize(pages.cache.len(), 0);
        for range in dirty {
            pages.disk[range.clone()].copy_from_slice(&pages.cache[range]);
        }
        Ok(())
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        let pages = &mut *self.pages.lock();
        pages.cache.resize(size as usize, 0);
        pages.disk.resize(size as usize, 0);
        Ok(())
    }
    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

/// A folder in memory.
#[derive(Default)]
struct CachedFolder {
    files: Mutex<HashMap<String, Arc<CachedFile>>>,
    refuses_flushes: Arc<AtomicBool>,
}

impl CachedFolder {
    /// What is left when the power fails.
    fn after_power_loss(&self) -> Arc<Self> {
        let folder = Self::default();
        for (name, file) in &*self.files.lock() {
            let disk = file.pages.lock().disk.clone();
            let pages = Mutex::new(Pages { cache: disk.clone(), disk, dirty: Vec::new() });
            let file = CachedFile { name: name.clone(), pages, refuses: Arc::clone(&folder.refuses_flushes) };
            folder.files.lock().insert(name.clone(), Arc::new(file));
        }
        Arc::new(folder)
    }
}

impl Storage for CachedFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        let file = Arc::new(CachedFile {
            name: name.to_owned(),
            pages: Mutex::default(),
            refuses: Arc::clone(&self.refuses_flushes),
        });
        file.allocate(size)?;
        self.files.lock().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.files.lock().get(name).cloned();
        file.map(|file| file as Arc<dyn File>).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn reads_from_cache(&self) -> bool {
        true
    }
    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }
}

/// Does everything at once, as without a ring.
#[derive(Default)]
struct AtOnce {
    done: Vec<Completion>,
    woken: Arc<(Mutex<bool>, Condvar)>,
}

impl Submitter for AtOnce {
    fn write(&mut self, op: WriteOp) {
        let done = self.write_now(op);
        self.done.push(done);
    }
    fn write_now(&mut self, op: WriteOp) -> Completion {
        let mut result = op.file.write_at(op.position, &op.data);
        if op.dsync && result.is_ok() {
            result = op.file.sync();
        }
        Completion { token: op.token, result }
    }
    fn sync(&mut self, token: u64, file: Arc<dyn File>) {
        self.done.push(Completion { token, result: file.sync() });
    }
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) {
        if self.done.is_empty()
            && let Wait::For(limit) = wait
        {
            let (woken, wakes) = &*self.woken;
            let mut woken = woken.lock();
            if !*woken {
                wakes.wait_for(&mut woken, limit.unwrap_or(Duration::from_millis(100)));
            }
            *woken = false;
        }
        done.append(&mut self.done);
    }
    fn waker(&self) -> Waker {
        let woken = Arc::clone(&self.woken);
        Arc::new(move || {
            *woken.0.lock() = true;
            woken.1.notify_one();
        })
    }
    fn capacity(&self) -> usize {
        2
    }
}

fn open(folder: &Arc<CachedFolder>) -> Node {
    Node::open_on(Arc::clone(folder) as Arc<dyn Storage>, Box::new(AtOnce::default()), small()).expect("it opens")
}

#[test]
fn what_a_restart_finds_in_the_cache_after_a_failed_flush_is_written_again() {
    let folder = Arc::new(CachedFolder::default());
    let node = open(&folder);
    let log = node.log(1);
    for _ in 0..3 {
        node.append_batch(&log, LONG_BATCH, VALUE_BYTES).expect("a disk that works");
    }
    folder.refuses_flushes.store(true, Ordering::SeqCst);
    assert_eq!(node.append_batch(&log, LONG_BATCH, VALUE_BYTES), Err(AppendError::Stopped));
    folder.refuses_flushes.store(false, Ordering::SeqCst);
    drop(log);
    node.close();

    // The process starts again, the machine does not.
    let node = open(&folder);
    let log = node.log(1);
    assert_eq!(
        read_all(&node.journal, &log, VALUE_BYTES),
        Offset(4 * LONG_BATCH),
        "the cache has what the flush left out"
    );
    node.append_batch(&log, LONG_BATCH, VALUE_BYTES).expect("a disk that works");
    node.append_batch(&log, LONG_BATCH, VALUE_BYTES).expect("a disk that works");
    let folder = folder.after_power_loss();
    drop(log);
    node.close();

    let node = open(&folder);
    let log = node.log(1);
    assert_eq!(read_all(&node.journal, &log, VALUE_BYTES), Offset(6 * LONG_BATCH), "all that readers had seen");
    drop(log);
    node.close();
}
