//! The archive in a folder: objects are listed and deleted through the interface of an object store, and written and read with
//! the journal's own way of I/O, past the page cache: what is archived is not read again soon, and pages that the system writes
//! when it likes would stand in the way of commits.
//!
//! The interface is asynchronous; a store of the local file system does its work when it is polled, on the thread that polls
//! it, which here is one of the archive's or of the readers of history.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;
use journal::disk::{File, IoMode, RealStorage, SECTOR, Storage};
use journal::{ArchiveStore, Put};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;

use crate::archive_lock::OwnObjects;
use crate::data_folder::create_private;

/// Objects in a folder of the machine.
pub struct FolderArchive {
    folder: PathBuf,
    store: LocalFileSystem,
    writing: RealStorage,
    reading: RealStorage,
    owned: Mutex<Vec<OwnObjects>>,
    /// Folders of journals that were there once.
    seen: Mutex<HashSet<PathBuf>>,
    /// Folders in which others were made that are not durable yet.
    unsynced: Mutex<BTreeSet<PathBuf>>,
}

/// Its name and its bytes.
type Object = (String, Bytes);

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
            seen: Mutex::default(),
            unsynced: Mutex::default(),
        })
    }

    /// From now on objects of this journal are put and deleted by nobody else, as long as this is there. What an unfinished write left of them is removed.
    ///
    /// # Errors
    /// Another process has them. Those of the file system.
    pub fn own(&self, journal: &str, data: &Path) -> anyhow::Result<()> {
        let owned = OwnObjects::take(&self.folder, journal, data)?;
        let objects = self.folder.join(journal);
        if objects.is_dir() {
            self.seen.lock().insert(objects.clone());
            // Who made folders in them may have died before they were durable.
            self.unsynced.lock().extend([self.folder.clone(), objects.clone()]);
        }
        remove_unfinished(&objects, &|file| std::fs::remove_file(file));
        self.owned.lock().push(owned);
        Ok(())
    }

    /// Creates folders of objects, durably; those that cannot be, and why.
    fn create_folders<'p>(&self, folders: &BTreeSet<&'p Path>) -> BTreeMap<&'p Path, io::Error> {
        let (mut unsynced, mut failed) = (self.unsynced.lock(), BTreeMap::new());
        for folder in folders {
            if let Err(error) = self.create_folder(folder, &mut unsynced) {
                failed.insert(*folder, error);
            }
        }
        unsynced.retain(|changed| match sync(changed) {
            Ok(()) => false,
            Err(error) => {
                let below = folders.iter().filter(|folder| folder.starts_with(changed));
                failed.extend(below.map(|folder| (*folder, named(changed, &error))));
                // One that is gone has nothing in it.
                !is_missing(&error)
            }
        });
        failed
    }

    fn create_folder(&self, folder: &Path, changed: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        let missing: Vec<&Path> =
            folder.ancestors().take_while(|folder| *folder != self.folder && !folder.is_dir()).collect();
        let mut seen = self.seen.lock();
        for folder in missing.into_iter().rev() {
            if seen.contains(folder) {
                // What is stored now would not be where the rest is.
                let gone = "the folder was there and is gone: is its file system mounted?";
                return Err(named(folder, &io::Error::new(io::ErrorKind::NotFound, gone)));
            }
            match std::fs::create_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(named(folder, &error)),
                _ => {}
            }
            changed.extend(folder.parent().map(Path::to_owned));
        }
        // That of a journal: it stays as long as there is an archive.
        seen.extend(folder.ancestors().find(|one| one.parent() == Some(&*self.folder)).map(Path::to_owned));
        Ok(())
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
        let told = |error: io::Error| named(&self.folder.join(name), &error);
        match self.writing.remove(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(told(error)),
            _ => {}
        }
        let outcome = self.write_unfinished(&unfinished, bytes).and_then(|file| then(&unfinished, &*file));
        if outcome.is_err() {
            self.give_up(name);
        }
        outcome.map_err(told)
    }

    /// What cannot be removed either goes at the next start.
    fn give_up(&self, name: &str) {
        let _ = self.writing.remove(&unfinished(name));
    }

    /// Each durable by itself.
    fn put_each(&self, objects: &[&Object]) -> Vec<Put> {
        at_once(AT_ONCE, objects, |(name, bytes)| {
            self.write(name, bytes, |unfinished, file| {
                file.sync()?;
                self.writing.rename(unfinished, name)?;
                self.folder.join(name).parent().map_or(Ok(()), sync)
            })
        })
    }

    /// All durable together: first what is in them, then their names.
    fn put_together(&self, objects: &[&Object]) -> Vec<Put> {
        // Opened before: it tells of errors since then.
        let whole = match std::fs::File::open(&self.folder) {
            Ok(whole) => whole,
            Err(error) => return objects.iter().map(|_| Put::Failed(again(&error))).collect(),
        };
        let mut outcomes = at_once(WRITERS, objects, |(name, bytes)| self.write(name, bytes, |_, _| Ok(())));
        self.sync_stored(&whole, objects, &mut outcomes, unfinished);
        for ((name, _), outcome) in objects.iter().zip(&mut outcomes) {
            if matches!(outcome, Put::Stored)
                && let Err(error) = self.writing.rename(&unfinished(name), name)
            {
                *outcome = Put::Failed(named(&self.folder.join(name), &error));
            }
        }
        self.sync_stored(&whole, objects, &mut outcomes, str::to_owned);
        for ((name, _), outcome) in objects.iter().zip(&outcomes) {
            if !matches!(outcome, Put::Stored) {
                self.give_up(name);
            }
        }
        outcomes
    }

    /// Makes those durable that are stored as yet, under their names of now; else none of them is.
    fn sync_stored(
        &self,
        whole: &std::fs::File,
        objects: &[&Object],
        outcomes: &mut [Put],
        name_now: impl Fn(&str) -> String,
    ) {
        let Some(last) = outcomes.iter().rposition(|outcome| matches!(outcome, Put::Stored)) else { return };
        if let Err(error) = self.sync_all(whole, &name_now(&objects[last].0)) {
            for outcome in outcomes.iter_mut().filter(|outcome| matches!(outcome, Put::Stored)) {
                *outcome = Put::Failed(again(&error));
            }
        }
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

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The same error, for another object.
fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// An error that says where.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn unfinished(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

/// Makes a file, or what happened in a folder, durable.
fn sync(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

/// Does the same with all of them, several at once, as long as it is of use.
fn at_once<T: Sync>(threads: usize, all: &[T], work: impl Fn(&T) -> io::Result<()> + Sync) -> Vec<Put> {
    let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done = Mutex::new((all.iter().map(|_| Put::NotTried).collect::<Vec<_>>(), 0, 0));
    let some = || {
        while !ended.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(at) else { return };
            let outcome = work(one);
            let (outcomes, stored, failed) = &mut *done.lock();
            outcomes[at] = match outcome {
                Ok(()) => {
                    *stored += 1;
                    Put::Stored
                }
                Err(error) => {
                    *failed += 1;
                    ended.fetch_or(journal::is_hopeless(*stored, *failed, &error), Ordering::Relaxed);
                    Put::Failed(error)
                }
            };
        }
    };
    std::thread::scope(|scope| {
        // Where there is no thread to be had the others do its part; what one that has died has not done was not tried.
        let spawn = |_| std::thread::Builder::new().name("archive".to_owned()).spawn_scoped(scope, some).ok();
        let others: Vec<_> = (1..all.len().min(threads)).filter_map(spawn).collect();
        some();
        others.into_iter().for_each(|other| drop(other.join()));
    });
    done.into_inner().0
}

/// An object is written beside its name, with a `#` and a number behind it, and renamed. What cannot be removed, or looked into, is in nobody's way: it is
/// told, and left.
fn remove_unfinished(folder: &Path, remove: &dyn Fn(&Path) -> io::Result<()>) {
    let told = |path: &Path, error: io::Error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(%error, path = %path.display(), "what unfinished writes have left in the archive cannot be removed");
        }
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return told(folder, error),
    };
    for entry in entries {
        let (path, kind) = match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
            Ok(found) => found,
            Err(error) => return told(folder, error),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if kind.is_dir() {
            remove_unfinished(&path, remove);
        } else if name.rsplit_once('#').is_some_and(|(_, number)| number.parse::<u32>().is_ok())
            && let Err(error) = remove(&path)
        {
            told(&path, error);
        }
    }
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
        match self.put_all(&[(name.to_owned(), bytes)]).pop() {
            Some(Put::Stored) => Ok(()),
            Some(Put::Failed(error)) => Err(error),
            Some(Put::NotTried) | None => Err(io::Error::other("a thread that stores objects has ended")),
        }
    }

    fn put_all(&self, objects: &[Object]) -> Vec<Put> {
        let paths: Vec<PathBuf> = objects.iter().map(|(name, _)| self.folder.join(name)).collect();
        let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        let failed = self.create_folders(&folders);
        let has_none = |path: &PathBuf| path.parent().and_then(|folder| failed.get(folder));
        let to_write: Vec<&Object> =
            objects.iter().zip(&paths).filter(|(_, path)| has_none(path).is_none()).map(|(object, _)| object).collect();
        let written = if to_write.len() < TOGETHER { self.put_each(&to_write) } else { self.put_together(&to_write) };
        let mut written = written.into_iter();
        let outcome = |path| match has_none(path) {
            Some(error) => Put::Failed(again(error)),
            None => written.next().unwrap_or(Put::NotTried),
        };
        paths.iter().map(outcome).collect()
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
            // Where its folder is none it is not there either.
            Err(_) if std::fs::symlink_metadata(self.folder.join(name)).is_err_and(|error| is_missing(&error)) => {}
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
        assert!(archive.put_all(&many).iter().all(|one| matches!(one, Put::Stored)));
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

    fn opened() -> (tempfile::TempDir, FolderArchive) {
        let folder = tempfile::tempdir().expect("a folder");
        let (mode, _) = journal::disk::probe(&[folder.path()], None).expect("some way of I/O");
        let archive = FolderArchive::open(&folder.path().join("archive"), mode).expect("a folder");
        (folder, archive)
    }

    fn is_read(archive: &FolderArchive, (name, bytes): &Object) -> bool {
        let mut into = vec![0; bytes.len()];
        archive.read_at(name, 0, &mut into).is_ok_and(|read| read == bytes.len() && into[..] == bytes[..])
    }

    #[test]
    fn one_that_cannot_be_stored_leaves_no_half_and_stands_in_no_other_s_way() {
        let (folder, archive) = opened();
        // The name of one is a folder's, that of another one's folder a file's.
        let in_the_way = folder.path().join("archive/one/15/a");
        std::fs::create_dir_all(&in_the_way).expect("a folder");
        std::fs::write(folder.path().join("archive/one/3"), b"").expect("writable");
        for count in [16, 18, 4] {
            let all: Vec<Object> =
                (20 - count..20).map(|number| (format!("one/{number}/a"), Bytes::from(vec![number; 5000]))).collect();
            let outcomes = archive.put_all(&all);
            for (object, outcome) in all.iter().zip(&outcomes) {
                let fails = object.0 == "one/15/a" || object.0 == "one/3/a";
                assert_eq!(matches!(outcome, Put::Failed(_)), fails, "{}: {outcome:?}", object.0);
                assert_eq!(is_read(&archive, object), !fails, "{}", object.0);
                assert!(!folder.path().join(format!("archive/{}{UNFINISHED}", object.0)).exists(), "{}", object.0);
            }
        }
        std::fs::remove_dir(in_the_way).expect("it is empty");
        let object = ("one/15/a".to_owned(), Bytes::from_static(b"abc"));
        archive.put(&object.0, object.1.clone()).expect("again");
        assert!(is_read(&archive, &object));
    }

    #[test]
    fn nothing_is_stored_where_the_folder_of_a_journal_was() {
        let (folder, archive) = opened();
        let object = ("one/7/a".to_owned(), Bytes::from_static(b"abc"));
        archive.put(&object.0, object.1.clone()).expect("stored");
        // As when a file system is not mounted any more.
        let (there, aside) = (folder.path().join("archive/one"), folder.path().join("aside"));
        std::fs::rename(&there, &aside).expect("renamed");
        let error = archive.put("one/8/a", object.1.clone()).expect_err("it is gone").to_string();
        assert!(error.contains("archive/one") && error.contains("mounted"), "{error}");
        assert!(!there.exists());
        std::fs::rename(&aside, &there).expect("renamed");
        archive.put("one/8/a", object.1.clone()).expect("it is back");
        assert!(is_read(&archive, &object));
    }

    #[test]
    fn an_error_says_which_object_cannot_be_stored() {
        let (folder, archive) = opened();
        std::fs::create_dir(folder.path().join("archive/one")).expect("a folder");
        std::fs::write(folder.path().join("archive/one/7"), b"in the way").expect("writable");
        for count in [1, 20] {
            let all: Vec<_> =
                (0..count).map(|number| (format!("one/7/{number}"), Bytes::from_static(b"abc"))).collect();
            let (mut failed, outcomes) = (0, archive.put_all(&all));
            for outcome in &outcomes {
                assert!(!matches!(outcome, Put::Stored), "its folder is a file");
                if let Put::Failed(error) = outcome {
                    failed += 1;
                    assert!(error.to_string().contains("archive/one/7"), "{error}");
                }
            }
            assert!(failed > 0, "{outcomes:?}");
        }
        archive.delete("one/7/1").expect("it is not there");
    }

    #[test]
    fn an_unfinished_object_that_cannot_be_removed_keeps_none_of_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("7")).expect("a folder");
        for name in ["1#1", "7/stays#2", "7/goes#3", "7/object", "9#4"] {
            std::fs::write(folder.path().join(name), b"").expect("writable");
        }
        let remove = |file: &Path| match file.ends_with("stays#2") {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => std::fs::remove_file(file),
        };
        remove_unfinished(folder.path(), &remove);
        let mut left: Vec<_> = [folder.path().to_owned(), folder.path().join("7")]
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        left.sort_unstable();
        assert_eq!(left, ["7", "object", "stays#2"]);
    }

    #[test]
    fn several_objects_are_stored_at_once_as_long_as_it_is_of_use() {
        let count = |outcomes: &[Put]| {
            let count = |of: fn(&Put) -> bool| outcomes.iter().filter(|one| of(one)).count();
            (count(|one| matches!(one, Put::Stored)), count(|one| matches!(one, Put::Failed(_))))
        };
        let meeting = std::sync::Barrier::new(AT_ONCE);
        let all: Vec<usize> = (0..10 * AT_ONCE).collect();
        let outcomes = at_once(AT_ONCE, &all, |_| {
            meeting.wait();
            Ok(())
        });
        assert_eq!(count(&outcomes), (all.len(), 0), "all of them meet");
        let failing = |error: io::ErrorKind, fails: fn(usize) -> bool| {
            count(&at_once(1, &all, |number| if fails(*number) { Err(error.into()) } else { Ok(()) }))
        };
        assert_eq!(failing(io::ErrorKind::Other, |number| number % 3 == 1), (160, 80), "one stands in no other's way");
        assert_eq!(failing(io::ErrorKind::StorageFull, |number| number == 30), (30, 1), "there is no more space");
        assert_eq!(failing(io::ErrorKind::Other, |_| true), (0, 8), "none will be stored");
        assert_eq!(at_once(AT_ONCE, &[] as &[usize], |_| Ok(())).len(), 0);
    }
}
