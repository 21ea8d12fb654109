//! The archive in a folder: objects are listed and deleted through the interface of an object store, and written and read with
//! the journal's own way of I/O, past the page cache: what is archived is not read again soon, and pages that the system writes
//! when it likes would stand in the way of commits.
//!
//! The interface is asynchronous; a store of the local file system does its work when it is polled, on the thread that polls
//! it, which here is one of the archive's or of the readers of history.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use anyhow::Context as _;
use bytes::Bytes;
use journal::ArchiveStore;
use journal::disk::{File, IoMode, RealStorage, SECTOR, Storage};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;

use crate::archive_lock::OwnObjects;
use crate::data_folder::{create_private, unless_missing};

/// Objects in a folder of the machine.
pub struct FolderArchive {
    folder: PathBuf,
    store: LocalFileSystem,
    writing: RealStorage,
    reading: RealStorage,
    owned: Mutex<Vec<OwnObjects>>,
}

/// Written at once: a commit waits for one such piece at most.
const PIECE_BYTES: usize = 512 << 10;
/// Threads that store objects at once: each mostly waits for the disk.
const AT_ONCE: usize = 24;
/// From so many objects on the file system is made durable as a whole, twice, in place of each file and each folder: the disk then does not flush
/// for each of them while commits wait for it.
const TOGETHER: usize = 8;
/// Threads that write them.
const WRITERS: usize = 4;
/// Behind the name of what is being written.
pub const UNFINISHED: &str = "#1";

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
    /// Opens `folder`, creating it if it is new.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(folder: &Path, mode: IoMode) -> io::Result<Self> {
        create_private(folder)?;
        let store = LocalFileSystem::new_with_prefix(folder).map_err(io_error)?;
        Ok(Self {
            folder: folder.canonicalize()?,
            store,
            writing: RealStorage::open(folder, mode)?,
            reading: RealStorage::reading(folder, mode),
            owned: Mutex::default(),
        })
    }

    /// From now on objects of this journal are put and deleted by nobody else, as long as this is there. What an unfinished write left of them is removed.
    ///
    /// # Errors
    /// Another process has them. Those of the file system.
    pub fn own(&self, journal: &str, data: &Path) -> anyhow::Result<()> {
        let owned = OwnObjects::take(&self.folder, journal, data)?;
        let objects = self.folder.join(journal);
        unless_missing(remove_unfinished(&objects)).with_context(|| objects.display().to_string())?;
        self.owned.lock().push(owned);
        Ok(())
    }

    /// Creates folders of objects, durably.
    fn create_folders(&self, folders: &BTreeSet<&Path>) -> io::Result<()> {
        let mut changed = BTreeSet::new();
        for folder in folders {
            let missing: Vec<&Path> =
                folder.ancestors().take_while(|folder| *folder != self.folder && !folder.is_dir()).collect();
            for folder in missing.into_iter().rev() {
                match std::fs::create_dir(folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
                changed.extend(folder.parent());
            }
        }
        changed.into_iter().try_for_each(sync)
    }

    /// Writes an object under a name that is not its own.
    fn write_unfinished(&self, name: &str, bytes: &[u8]) -> io::Result<Arc<dyn File>> {
        let file = self.writing.create(name, bytes.len().next_multiple_of(SECTOR) as u64)?;
        let mut memory = vec![0; bytes.len().min(PIECE_BYTES).next_multiple_of(SECTOR) + SECTOR];
        let skip = memory.as_ptr().align_offset(SECTOR);
        for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let sectors = &mut memory[skip..skip + piece.len().next_multiple_of(SECTOR)];
            sectors[..piece.len()].copy_from_slice(piece);
            sectors[piece.len()..].fill(0);
            file.write_at((number * PIECE_BYTES) as u64, sectors)?;
        }
        file.allocate(bytes.len() as u64)?;
        Ok(file)
    }

    /// Writes an object under its unfinished name; `then` goes on with the file.
    fn write(&self, name: &str, bytes: &[u8], then: impl FnOnce(&str, &dyn File) -> io::Result<()>) -> io::Result<()> {
        let unfinished = unfinished(name);
        match self.writing.remove(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let outcome = self.write_unfinished(&unfinished, bytes).and_then(|file| then(&unfinished, &*file));
        if outcome.is_err() {
            self.give_up(name);
        }
        outcome
    }

    /// What cannot be removed either goes at the next start.
    fn give_up(&self, name: &str) {
        let _ = self.writing.remove(&unfinished(name));
    }

    /// Each durable by itself.
    fn put_each(&self, objects: &[(String, Bytes)], folders: BTreeSet<&Path>) -> io::Result<()> {
        at_once(AT_ONCE, objects, |(name, bytes)| {
            self.write(name, bytes, |unfinished, file| file.sync().and_then(|()| self.writing.rename(unfinished, name)))
        })?;
        at_once(AT_ONCE, &folders.into_iter().collect::<Vec<_>>(), |folder| sync(folder))
    }

    /// All durable together: first what is in them, then their names.
    fn put_together(&self, objects: &[(String, Bytes)]) -> io::Result<()> {
        // Opened before: it tells of errors since then.
        let whole = std::fs::File::open(&self.folder)?;
        let written = at_once(WRITERS, objects, |(name, bytes)| self.write(name, bytes, |_, _| Ok(())));
        let last = || objects.last().map_or(Ok(()), |(name, _)| self.sync_all(&whole, &unfinished(name)));
        let named = written
            .and_then(|()| last())
            .and_then(|()| objects.iter().try_for_each(|(name, _)| self.writing.rename(&unfinished(name), name)));
        if named.is_err() {
            objects.iter().for_each(|(name, _)| self.give_up(name));
        }
        named.and_then(|()| objects.last().map_or(Ok(()), |(name, _)| self.sync_all(&whole, name)))
    }

    /// Makes the file system durable, and one file and its folder by themselves: not every system tells an error of the whole.
    fn sync_all(&self, whole: &std::fs::File, name: &str) -> io::Result<()> {
        // SAFETY: plain system call on an open descriptor.
        if unsafe { libc::syncfs(whole.as_raw_fd()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let path = self.folder.join(name);
        sync(&path)?;
        path.parent().map_or(Ok(()), sync)
    }
}

fn unfinished(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

/// Makes a file, or what happened in a folder, durable.
fn sync(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

/// Does the same with all of them, several at once; after an error with no more.
fn at_once<T: Sync>(threads: usize, all: &[T], work: impl Fn(&T) -> io::Result<()> + Sync) -> io::Result<()> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let some = || {
        while !failed.load(Ordering::Relaxed)
            && let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed))
        {
            work(one).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        // Where there is no thread to be had the others do its part.
        let spawn = |_| std::thread::Builder::new().name("archive".to_owned()).spawn_scoped(scope, some).ok();
        let others: Vec<_> = (1..all.len().min(threads)).filter_map(spawn).collect();
        let own = some();
        let died = || io::Error::other("a thread that stores objects has ended");
        others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(died()))).fold(own, Result::and)
    })
}

/// An object is written beside its name, with a `#` and a number behind it, and renamed.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            remove_unfinished(&entry.path())?;
        } else if name.to_string_lossy().rsplit_once('#').is_some_and(|(_, number)| number.parse::<u32>().is_ok()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Objects of a folder that nothing is changed of: a broker may have it, or the disk may not let itself be written any more.
pub struct ArchiveReader(RealStorage);

impl ArchiveReader {
    /// The folder need not be there.
    pub fn of(folder: &Path) -> Self {
        Self(RealStorage::read_only(folder))
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "this archive is only read")
}

impl ArchiveStore for ArchiveReader {
    fn put(&self, _name: &str, _bytes: Bytes) -> io::Result<()> {
        Err(read_only())
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.open(name)?.read_at(position, into)
    }

    fn list(&self, _prefix: &str) -> io::Result<Vec<String>> {
        // Who looks at objects knows their names.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn delete(&self, _name: &str) -> io::Result<()> {
        Err(read_only())
    }
}

impl ArchiveStore for FolderArchive {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        self.put_all(&[(name.to_owned(), bytes)])
    }

    fn put_all(&self, objects: &[(String, Bytes)]) -> io::Result<()> {
        let paths: Vec<PathBuf> = objects.iter().map(|(name, _)| self.folder.join(name)).collect();
        let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        self.create_folders(&folders)?;
        if objects.len() < TOGETHER { self.put_each(objects, folders) } else { self.put_together(objects) }
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
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(io_error(error)),
        }
        // The folder of a log goes with its last object. That of a journal stays: by it a start knows its archive.
        if let Some(folder) = self.folder.join(name).parent().filter(|folder| folder.parent() != Some(&*self.folder)) {
            let _ = std::fs::remove_dir(folder);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_kept_whole_and_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mode, _) = journal::disk::probe(&[folder.path()], None).expect("some way of I/O");
        let archive = FolderArchive::open(&folder.path().join("archive"), mode).expect("a folder");
        assert_eq!(archive.list("one").expect("listed"), Vec::<String>::new());
        let bytes = Bytes::from((0..100_003u32).map(|number| (number % 251) as u8).collect::<Vec<_>>());
        for name in ["one/7/a", "one/7/b", "one/8/a", "two/7/a"] {
            archive.put(name, bytes.clone()).expect("put");
        }
        let many: Vec<_> = (0..100).map(|number| (format!("three/{number}/a"), bytes.slice(..number * 97))).collect();
        archive.put_all(&many).expect("put");
        for (name, bytes) in &many {
            let mut into = vec![0; bytes.len() + 1];
            let got = archive.read_at(name, 0, &mut into).expect("read");
            assert_eq!(into[..got], bytes[..], "{name}");
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
        assert!(!folder.path().join("archive/one/7").exists(), "no empty folder of a log is left");
        archive.delete("two/7/a").expect("deleted");
        assert_eq!(
            std::fs::read_dir(folder.path().join("archive/two")).expect("the folder of a journal stays").count(),
            0
        );
        // What a death in the middle of a write leaves.
        let of_journal = format!("archive/{}/8", uuid::Uuid::from_u128(7));
        std::fs::create_dir_all(folder.path().join(&of_journal)).expect("made");
        let left = [
            format!("{of_journal}/b#1"),
            format!("{of_journal}/b#"),
            "archive/one/8/b#1".to_owned(),
            "archive/dead-letters".to_owned(),
        ];
        left.iter().for_each(|name| std::fs::write(folder.path().join(name), b"half").expect("writable"));
        drop(archive);
        let archive = FolderArchive::open(&folder.path().join("archive"), mode).expect("a folder");
        archive.own(&uuid::Uuid::from_u128(7).to_string(), folder.path()).expect("its objects");
        let there = left.each_ref().map(|name| folder.path().join(name).exists());
        assert_eq!(there, [false, true, true, true], "what others have there stays");
    }

    #[test]
    fn of_objects_that_are_not_all_stored_no_half_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mode, _) = journal::disk::probe(&[folder.path()], None).expect("some way of I/O");
        let archive = FolderArchive::open(&folder.path().join("archive"), mode).expect("a folder");
        let in_the_way = folder.path().join("archive/one/15/a");
        std::fs::create_dir_all(&in_the_way).expect("a folder");
        let all: Vec<_> = (0..20).map(|number| (format!("one/{number}/a"), Bytes::from(vec![number; 5000]))).collect();
        archive.put_all(&all).expect_err("a folder has one's name");
        let unfinished =
            (0..20).filter(|number| folder.path().join(format!("archive/one/{number}/a{UNFINISHED}")).exists()).count();
        assert_eq!(unfinished, 0);
        std::fs::remove_dir(in_the_way).expect("it is empty");
        archive.put_all(&all).expect("again");
        for (name, bytes) in &all {
            let mut into = vec![0; bytes.len()];
            assert_eq!(
                (archive.read_at(name, 0, &mut into).expect("read"), &into[..]),
                (bytes.len(), &bytes[..]),
                "{name}"
            );
        }
    }

    #[test]
    fn several_objects_are_stored_at_once_and_an_error_is_told() {
        let meeting = std::sync::Barrier::new(AT_ONCE);
        let all: Vec<usize> = (0..10 * AT_ONCE).collect();
        at_once(AT_ONCE, &all, |_| {
            meeting.wait();
            Ok(())
        })
        .expect("all of them meet");
        let done = AtomicUsize::new(0);
        let outcome = at_once(AT_ONCE, &all, |number| {
            done.fetch_add(1, Ordering::Relaxed);
            if *number == 3 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        });
        assert_eq!(outcome.map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
        at_once(AT_ONCE, &[] as &[usize], |_| Err(io::ErrorKind::Other.into())).expect("there is nothing to do");
        assert!(done.into_inner() >= 4);
    }
}
