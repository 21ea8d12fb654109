//! Large files that nobody has open go bit by bit. A file system that tells the device of unused blocks (ext4 with `discard`) does so when
//! it commits its own journal, and flushes wait for that: up to 45 ms for 1 GiB at once, 35 ms for 256 MiB, nothing that could be
//! measured for 8 MiB.
//!
//! How fast follows from need: what is there to be given back is so within half a minute or at 20 MB/s, whichever is faster, but at
//! 1 GB/s while it takes more than it may: more than the journal's window leaves, or more than is free beyond 2 GiB. When it may take
//! nothing, because a segment waits for the room, files go whole.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::File;
use super::real::available_bytes;

/// Begins the names of files that are on their way out; the next start removes what a crash leaves of them.
const PREFIX: &str = "dead-";
/// What is given back at a time, …
const STEP_BYTES: u64 = 8 << 20;
/// … how long to wait then at least, …
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// … at most, …
const PAUSE_MAX: Duration = Duration::from_millis(400);
/// … and in between so that all that is there would take this long.
const ALL_WITHIN: Duration = Duration::from_secs(30);
/// The disk is not to become fuller than this for files that nobody needs.
const FREE_BYTES_MIN: u64 = 2 << 30;
/// Between looks whether a file still has readers.
const READERS_WAIT: Duration = Duration::from_millis(100);

/// Is it the name of a file on its way out?
pub(super) fn is_dead(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Removes files on a thread of its own, which begins with the first one.
#[derive(Default)]
pub(super) struct Remover {
    inner: Mutex<Inner>,
    amounts: Arc<Amounts>,
}

#[derive(Default)]
struct Inner {
    files: Option<Sender<Dead>>,
    number: u64,
}

struct Amounts {
    /// What there is to be given back.
    dead_bytes: AtomicU64,
    /// The most that this was since there was nothing: all of it is to go within a time, so the pace stays while it gets less.
    most_bytes: AtomicU64,
    /// What that may take without hurry.
    allowed_bytes: AtomicU64,
}

impl Default for Amounts {
    fn default() -> Self {
        Self { dead_bytes: AtomicU64::new(0), most_bytes: AtomicU64::new(0), allowed_bytes: AtomicU64::new(u64::MAX) }
    }
}

/// A file on its way out.
struct Dead {
    path: PathBuf,
    /// It is read as long as others have this, too.
    held: Option<Arc<dyn File>>,
    bytes: u64,
    /// It is part of what there is to be given back.
    counted: bool,
}

impl Dead {
    fn is_read(&self) -> bool {
        self.held.as_ref().is_some_and(|file| Arc::strong_count(file) > 1)
    }
}

/// Gives a file another name, or a second one, by `step`. A network may lose the answer: it is done when the file has the name, whatever is said of it.
pub(super) fn rename_by(step: impl Step, from: &Path, to: &Path) -> io::Result<()> {
    let file = fs::metadata(from)?.ino();
    step(from, to)
        .or_else(|error| if fs::metadata(to).is_ok_and(|found| found.ino() == file) { Ok(()) } else { Err(error) })
}

impl Remover {
    /// Takes the file out of the way at once; its space follows when nobody else has `held`.
    pub fn remove(&self, path: &Path, held: Option<Arc<dyn File>>) -> io::Result<()> {
        let metadata = fs::metadata(path)?;
        let bytes = metadata.len();
        // A file that has another name as well, in a backup, keeps its space, and what is in it.
        if bytes <= STEP_BYTES || metadata.nlink() > 1 {
            return fs::remove_file(path);
        }
        let mut inner = self.inner.lock();
        let dead = loop {
            inner.number += 1;
            let dead = path.with_file_name(format!("{PREFIX}{}", inner.number));
            if !dead.try_exists()? {
                break dead;
            }
        };
        rename_by(|from, to| fs::rename(from, to), path, &dead)?;
        self.give(&mut inner, Dead { path: dead, held, bytes, counted: true })
    }

    /// Puts a file in the place of another, atomically; that one goes as with [`Remover::remove`].
    pub fn replace(&self, from: &Path, to: &Path, held: Arc<dyn File>) -> io::Result<()> {
        self.replace_by((exchange, |from, to| fs::rename(from, to)), from, to, held)
    }

    fn replace_by(
        &self,
        (exchange, rename): (impl Step, impl Step),
        from: &Path,
        to: &Path,
        held: Arc<dyn File>,
    ) -> io::Result<()> {
        // To do it again when it is done would put the old file in the place of the new one.
        match rename_by(exchange, from, to) {
            Ok(()) => {}
            // Not every file system can do it. The space comes back at once then.
            Err(error) if is_unsupported(&error) => return rename_by(rename, from, to),
            Err(error) => return Err(error),
        }
        if let Err(error) = self.remove(from, Some(held)) {
            tracing::warn!(file = %from.display(), %error, "a replaced segment is not removed before the next start");
        }
        Ok(())
    }

    /// What an earlier process left.
    pub fn remove_rest(&self, path: PathBuf) -> io::Result<()> {
        let bytes = fs::metadata(&path)?.len();
        self.give(&mut self.inner.lock(), Dead { path, held: None, bytes, counted: true })
    }

    /// What dead files may take before they go in a hurry; 0: their space is waited for.
    pub fn allow(&self, bytes: u64) {
        self.amounts.allowed_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What there is to be given back, without files that are still read.
    pub fn dead_bytes(&self) -> u64 {
        self.amounts.dead_bytes.load(Ordering::Relaxed)
    }

    fn give(&self, inner: &mut Inner, dead: Dead) -> io::Result<()> {
        if inner.files.is_none() {
            let (sender, files) = channel();
            let amounts = Arc::clone(&self.amounts);
            if std::thread::Builder::new().name("remover".to_owned()).spawn(move || run(&files, &amounts)).is_ok() {
                inner.files = Some(sender);
            }
        }
        let (path, bytes) = (dead.path.clone(), dead.bytes);
        self.amounts.add(bytes);
        match &inner.files {
            Some(files) if files.send(dead).is_ok() => Ok(()),
            _ => {
                self.amounts.take(bytes);
                fs::remove_file(path)
            }
        }
    }
}

/// Lets two files change names, atomically.
pub(super) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let (one, other) = (CString::new(one.as_os_str().as_bytes())?, CString::new(other.as_os_str().as_bytes())?);
    // SAFETY: both pointers are valid for the call.
    let outcome =
        unsafe { libc::renameat2(libc::AT_FDCWD, one.as_ptr(), libc::AT_FDCWD, other.as_ptr(), libc::RENAME_EXCHANGE) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A change of names.
pub(super) trait Step: FnOnce(&Path, &Path) -> io::Result<()> {}
impl<T: FnOnce(&Path, &Path) -> io::Result<()>> Step for T {}

/// The kernel or the file system knows no exchange of names.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

fn run(files: &Receiver<Dead>, amounts: &Amounts) {
    let mut waiting: VecDeque<Dead> = VecDeque::new();
    loop {
        waiting.extend(files.try_iter());
        for dead in waiting.iter_mut().filter(|dead| dead.counted && dead.is_read()) {
            dead.counted = false;
            amounts.take(dead.bytes);
        }
        if let Some(at) = waiting.iter().position(|dead| !dead.is_read()) {
            waiting.remove(at).into_iter().for_each(|dead| give_back(dead, amounts));
            continue;
        }
        // What is read stays for the next start when no other will come.
        let wait = if waiting.is_empty() { Duration::MAX } else { READERS_WAIT };
        match files.recv_timeout(wait) {
            Ok(dead) => waiting.push_back(dead),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn give_back(dead: Dead, amounts: &Amounts) {
    let Dead { path, held, bytes, counted } = dead;
    if !counted {
        amounts.add(bytes);
    }
    // Space of a file that is open does not come back.
    drop(held);
    let (mut left, mut began) = (bytes, Instant::now());
    let outcome = shrink(&path, amounts, |size| {
        amounts.take(left.saturating_sub(size));
        left = left.min(size);
        // What the step itself took belongs to its time.
        let pause = amounts.pause(available_bytes(&path).unwrap_or(0));
        std::thread::sleep(pause.saturating_sub(began.elapsed()).max(PAUSE_MIN));
        began = Instant::now();
    });
    if let Err(error) = outcome.and_then(|()| fs::remove_file(&path))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "the space of a dead segment is not given back before the next start");
    }
    amounts.take(left);
    if !amounts.is_waited_for() {
        let folder = path.parent().unwrap_or(&path);
        std::thread::sleep(amounts.pause(available_bytes(folder).unwrap_or(0)));
    }
}

impl Amounts {
    fn add(&self, bytes: u64) {
        let dead = self.dead_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most_bytes.fetch_max(dead, Ordering::Relaxed);
    }

    fn take(&self, bytes: u64) {
        if bytes > 0 && self.dead_bytes.fetch_sub(bytes, Ordering::Relaxed) == bytes {
            self.most_bytes.store(0, Ordering::Relaxed);
        }
    }

    fn is_waited_for(&self) -> bool {
        self.allowed_bytes.load(Ordering::Relaxed) == 0
    }

    /// After a step, with so much space left on the disk.
    fn pause(&self, free_bytes: u64) -> Duration {
        let dead = self.dead_bytes.load(Ordering::Relaxed);
        let allowed = self.allowed_bytes.load(Ordering::Relaxed).min(free_bytes.saturating_sub(FREE_BYTES_MIN));
        if dead > allowed {
            return PAUSE_MIN;
        }
        let most = self.most_bytes.load(Ordering::Relaxed).max(dead).max(STEP_BYTES);
        ALL_WITHIN.mul_f64(STEP_BYTES as f64 / most as f64).clamp(PAUSE_MIN, PAUSE_MAX)
    }
}

/// Cuts the file step by step; says after each how long it is.
fn shrink(dead: &Path, amounts: &Amounts, mut shrunk: impl FnMut(u64)) -> io::Result<()> {
    // Its old name may not come back with a part of it.
    if let Some(folder) = dead.parent() {
        fs::File::open(folder)?.sync_all()?;
    }
    let file = OpenOptions::new().write(true).open(dead)?;
    let mut size = file.metadata()?.len();
    while size > STEP_BYTES && !amounts.is_waited_for() {
        size -= STEP_BYTES;
        file.set_len(size)?;
        file.sync_all()?;
        shrunk(size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{IoMode, RealStorage, Storage};

    fn until_empty(folder: &Path) {
        let began = Instant::now();
        while fs::read_dir(folder).expect("a folder").next().is_some() {
            assert!(began.elapsed() < Duration::from_secs(300), "files stay");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_discarded_file_is_out_of_the_way_at_once_and_gone_soon() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it opens");
        for size in [4096, 3 * STEP_BYTES + 4096] {
            for _ in 0..2 {
                storage.create("segment-1", size).expect("space");
                storage.discard("segment-1", None).expect("it goes");
                assert!(storage.list().expect("a list").is_empty());
            }
        }
        until_empty(folder.path());
        assert!(storage.discard("segment-1", None).is_err(), "there is none");
    }

    #[test]
    fn a_name_whose_answer_is_lost_is_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("segment-1"), folder.path().join("spare-1"));
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        fs::write(&from, b"old").expect("written");
        fs::write(&to, b"other").expect("written");
        assert!(rename_by(|_: &Path, _: &Path| failed(), &from, &to).is_err());
        rename_by(|from: &Path, to: &Path| fs::rename(from, to).and(failed()), &from, &to).expect("it has the name");
        assert_eq!((from.exists(), fs::read(&to).expect("it is there")), (false, b"old".to_vec()));
    }

    #[test]
    fn an_exchange_whose_answer_is_lost_is_done_and_one_that_is_not_known_is_a_rename() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it opens");
        let (from, to) = (folder.path().join("rewriting"), folder.path().join("segment-1"));
        let set_up = || {
            fs::write(&from, b"new").expect("written");
            fs::write(&to, b"old").expect("written");
            (Remover::default(), storage.open("segment-1").expect("it is there"))
        };
        let failed = |code| Err(io::Error::from_raw_os_error(code));
        let found = || (fs::read(&from).ok(), fs::read(&to).expect("it is there"));
        for code in [libc::EIO, libc::EINVAL, libc::ETIMEDOUT] {
            let (remover, held) = set_up();
            let done = |one: &Path, other: &Path| exchange(one, other).and(failed(code));
            remover
                .replace_by((done, |_: &Path, _: &Path| panic!("it is done")), &from, &to, held)
                .expect("it is done");
            assert_eq!(found(), (None, b"new".to_vec()), "{code}");
            let (remover, held) = set_up();
            let renamed = |one: &Path, other: &Path| fs::rename(one, other).and(failed(code));
            remover
                .replace_by((|_: &Path, _: &Path| failed(libc::EINVAL), renamed), &from, &to, held)
                .expect("it is done");
            assert_eq!(found(), (None, b"new".to_vec()), "{code}");
        }
        let (remover, held) = set_up();
        assert!(
            remover
                .replace_by(
                    (|_: &Path, _: &Path| failed(libc::EIO), |_: &Path, _: &Path| panic!("it may have been done")),
                    &from,
                    &to,
                    held
                )
                .is_err()
        );
        assert_eq!(found(), (Some(b"new".to_vec()), b"old".to_vec()), "nothing has changed");
        for code in [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP] {
            let (remover, held) = set_up();
            remover
                .replace_by(
                    (|_: &Path, _: &Path| failed(code), |one: &Path, other: &Path| fs::rename(one, other)),
                    &from,
                    &to,
                    held,
                )
                .expect("renamed");
            assert_eq!(found(), (None, b"new".to_vec()), "{code}");
        }
    }

    #[test]
    fn what_has_another_name_is_not_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let backup = tempfile::tempdir_in(folder.path()).expect("a folder");
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it opens");
        for name in ["segment-1", "segment-2", "segment-3"] {
            storage.create(name, 3 * STEP_BYTES).expect("space");
        }
        for name in ["segment-1", "segment-2"] {
            storage.link(name, &backup.path().join(name)).expect("a link");
        }
        let held = storage.open("segment-2").expect("it is there");
        assert!(
            held.is_linked().expect("known")
                && !storage.open("segment-3").expect("it is there").is_linked().expect("known")
        );
        storage.discard("segment-1", None).expect("it goes");
        storage.replace("segment-3", "segment-2", held).expect("it goes");
        assert_eq!(storage.list().expect("a list"), ["segment-2"]);
        std::thread::sleep(Duration::from_millis(50));
        for name in ["segment-1", "segment-2"] {
            assert_eq!(fs::metadata(backup.path().join(name)).expect("it is kept").len(), 3 * STEP_BYTES, "{name}");
        }
    }

    #[test]
    fn what_an_earlier_process_left_goes_with_the_next_start() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["dead-1", "dead-7"] {
            fs::File::create(folder.path().join(name)).and_then(|file| file.set_len(20 << 20)).expect("a file");
        }
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it opens");
        storage.create("segment-1", 20 << 20).expect("space");
        storage.discard("segment-1", None).expect("it goes");
        until_empty(folder.path());
    }

    #[test]
    fn what_is_read_stays_until_it_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it opens");
        let read = storage.create("segment-1", 2 * STEP_BYTES).expect("space");
        read.write_at(STEP_BYTES, &[7; 4096]).expect("written");
        storage.discard("segment-1", Some(Arc::clone(&read))).expect("it goes");
        storage.create("segment-2", 2 * STEP_BYTES).expect("space");
        storage.discard("segment-2", None).expect("it goes");
        let began = Instant::now();
        while fs::read_dir(folder.path()).expect("a folder").count() > 1 {
            assert!(began.elapsed() < Duration::from_secs(300), "one that is read is in the way of another");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(2 * READERS_WAIT);
        assert_eq!(storage.dead_bytes(), 0, "nobody may wait for a reader");
        let mut there = [0; 4096];
        assert_eq!(read.read_at(STEP_BYTES, &mut there).expect("read"), 4096);
        assert_eq!((there, read.size().expect("its size")), ([7; 4096], 2 * STEP_BYTES));
        drop(read);
        until_empty(folder.path());
    }

    #[test]
    fn a_replaced_file_goes_like_a_discarded_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it opens");
        let old = storage.create("segment-1", 3 * STEP_BYTES).expect("space");
        storage.create("rewriting", 4096).expect("space");
        storage.replace("rewriting", "segment-1", Arc::clone(&old)).expect("replaced");
        assert_eq!(storage.list().expect("a list"), ["segment-1"]);
        assert_eq!(storage.open("segment-1").and_then(|file| file.size()).expect("the new one"), 4096);
        assert_eq!(old.size().expect("the old one"), 3 * STEP_BYTES);
        drop(old);
        storage.remove("segment-1").expect("it goes");
        until_empty(folder.path());
        assert!(
            storage.replace("rewriting", "segment-1", storage.create("x", 1).expect("space")).is_err(),
            "there is none"
        );
    }

    #[test]
    fn the_pace_follows_need() {
        let pause = |dead: u64, allowed: u64, free: u64| {
            let amounts = Amounts { allowed_bytes: AtomicU64::new(allowed), ..Amounts::default() };
            amounts.add(dead);
            amounts.pause(free)
        };
        let plenty = 1 << 40;
        assert_eq!(pause(256 << 20, plenty, plenty), PAUSE_MAX);
        assert_eq!(pause(0, 0, plenty), PAUSE_MAX);
        assert_eq!(pause(STEP_BYTES * 300, plenty, plenty), ALL_WITHIN / 300);
        assert_eq!(pause(1 << 50, u64::MAX, u64::MAX), PAUSE_MIN);
        assert_eq!(pause(256 << 20, 255 << 20, plenty), PAUSE_MIN, "the window is short of room");
        assert_eq!(pause(256 << 20, u64::MAX, FREE_BYTES_MIN + (255 << 20)), PAUSE_MIN, "the disk is short of space");
        assert_eq!(pause(256 << 20, u64::MAX, 0), PAUSE_MIN, "the disk is full");
    }

    #[test]
    fn all_that_is_there_goes_within_the_time_however_much_it_is() {
        for gib in [1, 3, 30] {
            let amounts = Amounts::default();
            let steps = (gib << 30) / STEP_BYTES;
            amounts.add(steps * STEP_BYTES);
            let pause = |_| {
                amounts.take(STEP_BYTES);
                amounts.pause(1 << 40)
            };
            let all: Duration = (0..steps).map(pause).sum();
            assert!(all < ALL_WITHIN + PAUSE_MAX, "{gib} GiB take {all:?}");
            amounts.add(STEP_BYTES);
            assert_eq!(amounts.pause(1 << 40), PAUSE_MAX, "what was before does not count");
        }
    }
}
