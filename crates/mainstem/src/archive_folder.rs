//! The archive in a folder: objects are written, listed and deleted through the interface of an object store, and read with the
//! journal's own way of I/O, past the page cache and without memory of their own.
//!
//! The interface is asynchronous; a store of the local file system does its work when it is polled, on the thread that polls
//! it, which here is one of the archive's or of the readers of history.

use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;
use journal::ArchiveStore;
use journal::disk::{IoMode, RealStorage, Storage};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt};

/// Objects in a folder of the machine.
pub struct FolderArchive {
    folder: PathBuf,
    store: LocalFileSystem,
    reading: RealStorage,
}

/// Wakes the thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The system's error inside the store's, or else its words.
fn io_error(error: object_store::Error) -> io::Error {
    let kind = match &error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl FolderArchive {
    /// Opens `folder`, creating it if it is new. What an unfinished write left there is removed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(folder: &Path, mode: IoMode) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        remove_unfinished(folder)?;
        let store = LocalFileSystem::new_with_prefix(folder).map_err(io_error)?.with_fsync(true).with_automatic_cleanup(true);
        Ok(Self { folder: folder.canonicalize()?, store, reading: RealStorage::reading(folder, mode) })
    }

    /// What was written is on the disk and will not be read again soon: its pages are others' now.
    fn drop_pages(&self, name: &str) -> io::Result<()> {
        let file = std::fs::File::open(self.folder.join(name))?;
        // SAFETY: plain system call on an open descriptor.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        Ok(())
    }
}

/// The store writes beside an object's name, with a `#` behind it, and renames.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            remove_unfinished(&entry.path())?;
        } else if name.to_string_lossy().rsplit_once('#').is_some_and(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit())) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl ArchiveStore for FolderArchive {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        wait(self.store.put(&Name::from(name), bytes.into())).map_err(io_error)?;
        self.drop_pages(name)
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.reading.open(name)?.read_at(position, into)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let prefix = Name::from(prefix);
        let mut names = Vec::new();
        let mut waiting = vec![prefix];
        while let Some(folder) = waiting.pop() {
            let listed = wait(self.store.list_with_delimiter(Some(&folder))).map_err(io_error)?;
            names.extend(listed.objects.into_iter().map(|object| object.location.to_string()));
            waiting.extend(listed.common_prefixes);
        }
        Ok(names)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        match wait(self.store.delete(&Name::from(name))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(io_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_kept_whole_and_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mode, _) = journal::disk::probe(folder.path(), None).expect("some way of I/O");
        let archive = FolderArchive::open(&folder.path().join("archive"), mode).expect("a folder");
        assert_eq!(archive.list("one").expect("listed"), Vec::<String>::new());
        let bytes = Bytes::from((0..100_003u32).map(|number| (number % 251) as u8).collect::<Vec<_>>());
        for name in ["one/7/a", "one/7/b", "one/8/a", "two/7/a"] {
            archive.put(name, bytes.clone()).expect("put");
        }
        let mut names = archive.list("one").expect("listed");
        names.sort();
        assert_eq!(names, ["one/7/a", "one/7/b", "one/8/a"]);
        for (position, length) in [(0, 100_003), (1, 5), (4096, 8192), (100_000, 10), (100_003, 4)] {
            let mut into = vec![0; length];
            let got = archive.read_at("one/7/a", position, &mut into).expect("read");
            let expected = &bytes[position as usize..(position as usize + length).min(bytes.len())];
            assert_eq!(&into[..got], expected, "{length} bytes at {position}");
        }
        archive.delete("one/7/a").expect("deleted");
        archive.delete("one/7/a").expect("deleted already");
        archive.delete("one/7/b").expect("deleted");
        let missing = archive.read_at("one/7/a", 0, &mut [0; 10]).expect_err("deleted");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(archive.list("one").expect("listed"), ["one/8/a"]);
        assert!(!folder.path().join("archive/one/7").exists(), "no empty folder is left");
        // What a death in the middle of a write leaves.
        std::fs::write(folder.path().join("archive/one/8/b#1"), b"half").expect("writable");
        drop(archive);
        FolderArchive::open(&folder.path().join("archive"), mode).expect("a folder");
        assert!(!folder.path().join("archive/one/8/b#1").exists());
    }
}
