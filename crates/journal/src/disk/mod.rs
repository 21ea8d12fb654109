//! The seam to the disk: everything the journal does to files goes through [`Storage`], [`File`] and
//! [`Submitter`], so that the same engine runs on three kinds of real I/O and on a simulated disk
//! that tears, reorders, loses and refuses.
//!
//! * [`Storage`] and [`File`] block; the keeper, recovery and cold reads use them.
//! * [`Submitter`] queues the writes and syncs of the journal thread and reports completions, in any
//!   order; the journal itself releases them in order.
//!
//! A write is complete when its bytes survive the death of the process; durable when a sync of the
//! same file, submitted after the write completed, has succeeded, or when it was written with
//! [`WriteOp::dsync`].

mod blocking;
mod real;
mod remover;
mod uring;

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use blocking::BlockingSubmitter;
pub use real::RealStorage;
pub use uring::UringSubmitter;

/// Positions and lengths of every write are multiples of this, and its memory is aligned to it.
pub const SECTOR: usize = 4096;

/// An error that says of which file it is; what kind it is stays.
pub(crate) fn naming(file: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{file}: {error}"))
}

/// An open file of a journal. Reads and writes block.
pub trait File: Send + Sync {
    /// The name it was opened under, for messages.
    fn name(&self) -> String;
    /// Length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Fills `into` from `position` on, as far as the file goes; returns the bytes read. Any position and
    /// length is allowed (the implementation aligns where it must).
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes`. Position and length are multiples of [`SECTOR`]; the memory may be unaligned.
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all completed writes durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// Has the file another name as well, in a backup say? Then it is never written or cut again.
    fn is_linked(&self) -> io::Result<bool> {
        Ok(false)
    }
    /// Cuts or extends the file to exactly `size` bytes, with space allocated; `StorageFull` when it cannot.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// The descriptor, for submitters of the real file system; `None` in a simulation.
    fn raw_fd(&self) -> Option<RawFd>;
}

/// The folder that holds one journal.
pub trait Storage: Send + Sync {
    /// Names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates a file that must not exist, with `size` bytes allocated; `StorageFull` when they cannot be had
    /// (and then leaves no file behind).
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading alone, which an immutable one allows.
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.open(name)
    }
    /// Gives a file that nobody will write another name as well, `path` on the same file system; `Unsupported` where there are no such links.
    fn link(&self, _name: &str, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Copies a file that nobody writes to `path`, durably. It need not be writable.
    fn copy(&self, _name: &str, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Replaces `to` by `from`, atomically; durable after [`Storage::sync_folder`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Lets two files change names, atomically; durable after [`Storage::sync_folder`]. Not every file system can. After an error they may have changed
    /// them nevertheless.
    fn exchange(&self, _one: &str, _other: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a file; durable after [`Storage::sync_folder`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Removes a file that nobody writes. Its space may follow a little later, so that others notice nothing of it; if it is open, as
    /// `held`, when nobody else has that any more.
    fn discard(&self, name: &str, _held: Option<Arc<dyn File>>) -> io::Result<()> {
        self.remove(name)
    }
    /// Like [`Storage::rename`]; the space of what was `to`, open as `held`, may follow as with [`Storage::discard`].
    fn replace(&self, from: &str, to: &str, _held: Arc<dyn File>) -> io::Result<()> {
        self.rename(from, to)
    }
    /// What discarded files that nobody reads still take on the disk.
    fn dead_bytes(&self) -> u64 {
        0
    }
    /// What discarded files may take on the disk, at first anything; their space follows faster when they take more. 0: it is waited for.
    fn allow_dead_bytes(&self, _bytes: u64) {}
    /// Are reads served from a cache? After a failed flush it may hold what is not on the disk, and a later flush passes that over.
    fn reads_from_cache(&self) -> bool {
        false
    }
    /// Makes creations, renames and removals durable.
    fn sync_folder(&self) -> io::Result<()>;
    /// Bytes still free on the device.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One write of the journal thread. `data` is aligned memory whose length is a multiple of [`SECTOR`].
pub struct WriteOp {
    /// Comes back in the [`Completion`].
    pub token: u64,
    /// Where to.
    pub file: Arc<dyn File>,
    /// Byte position, a multiple of [`SECTOR`].
    pub position: u64,
    /// What; the submitter keeps it alive until completion.
    pub data: Bytes,
    /// Durable on completion (`RWF_DSYNC`); covers this write only, nothing before it.
    pub dsync: bool,
}

/// The end of a submitted write or sync.
pub struct Completion {
    /// Of the [`WriteOp`] or the sync.
    pub token: u64,
    /// A write completes whole or fails.
    pub result: io::Result<()>,
}

/// How long [`Submitter::poll`] may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Only collect what is there.
    No,
    /// Until a completion arrives, the waker is called, or the time is over (`None`: no limit).
    For(Option<Duration>),
}

/// Wakes a [`Submitter`] out of its wait; callable from any thread, any number of times.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Asynchronous writes and syncs of one journal thread. At most [`Submitter::capacity`] operations are
/// outstanding; the journal never submits more.
pub trait Submitter: Send {
    /// Starts a write.
    fn write(&mut self, op: WriteOp);
    /// Carries out a write before it returns, on the calling thread. Nothing else is under way.
    fn write_now(&mut self, op: WriteOp) -> Completion;
    /// Starts an fdatasync of `file`.
    fn sync(&mut self, token: u64, file: Arc<dyn File>);
    /// Appends completions to `done`, after blocking as `wait` allows when there is none.
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>);
    /// A handle that ends a blocking [`Submitter::poll`]; a wake before the poll is not lost.
    fn waker(&self) -> Waker;
    /// Operations that may be outstanding at once, at least 1.
    fn capacity(&self) -> usize;
}

impl Submitter for Box<dyn Submitter> {
    fn write(&mut self, op: WriteOp) {
        (**self).write(op);
    }
    fn write_now(&mut self, op: WriteOp) -> Completion {
        (**self).write_now(op)
    }
    fn sync(&mut self, token: u64, file: Arc<dyn File>) {
        (**self).sync(token, file);
    }
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) {
        (**self).poll(wait, done);
    }
    fn waker(&self) -> Waker {
        (**self).waker()
    }
    fn capacity(&self) -> usize {
        (**self).capacity()
    }
}

/// How the journal does its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// io_uring and `O_DIRECT`.
    Uring,
    /// `pwritev2` and `O_DIRECT`.
    Direct,
    /// `pwrite` through the page cache.
    Buffered,
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        })
    }
}

/// The text names no I/O mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an I/O mode; it is \"uring\", \"direct\" or \"buffered\"")]
pub struct ParseIoModeError(String);

impl FromStr for IoMode {
    type Err = ParseIoModeError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "uring" => Ok(Self::Uring),
            "direct" => Ok(Self::Direct),
            "buffered" => Ok(Self::Buffered),
            _ => Err(ParseIoModeError(text.to_owned())),
        }
    }
}

/// Finds the best mode that all of `folders`, which may be on several disks, and the kernel allow, or checks the one asked for. The second part says
/// what was refused on the way, for the log.
///
/// # Errors
/// When the mode asked for is not to be had, or a folder cannot be written at all.
pub fn probe(folders: &[impl AsRef<Path>], wanted: Option<IoMode>) -> io::Result<(IoMode, Vec<String>)> {
    let order = [IoMode::Uring, IoMode::Direct, IoMode::Buffered];
    let mut refused = Vec::new();
    for mode in order.into_iter().filter(|mode| wanted.is_none_or(|wanted| wanted == *mode)) {
        let works_in =
            |folder: &Path| RealStorage::beside(folder, mode).and_then(|storage| try_mode(&storage, submitter(mode)?));
        let named = |folder: &Path, error: io::Error| {
            if folders.len() > 1 {
                io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
            } else {
                error
            }
        };
        let works = folders
            .iter()
            .map(AsRef::as_ref)
            .try_for_each(|folder| works_in(folder).map_err(|error| named(folder, error)));
        match works {
            Ok(()) => return Ok((mode, refused)),
            Err(error) if wanted.is_some() => return Err(error),
            Err(error) => refused.push(format!("{mode}: {error}")),
        }
    }
    Err(io::Error::other(refused.join("; ")))
}

fn try_mode(storage: &dyn Storage, submitter: Box<dyn Submitter>) -> io::Result<()> {
    match try_write(storage, submitter) {
        // A node starts on a full disk too: whether the mode can be had, a file that is there says as well.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => match storage.list()?.first() {
            // Also if it is immutable.
            Some(name) => storage.open_to_read(name).map(drop),
            None => Err(error),
        },
        outcome => outcome,
    }
}

fn try_write(storage: &dyn Storage, mut submitter: Box<dyn Submitter>) -> io::Result<()> {
    const NAME: &str = "probe";
    if storage.list()?.iter().any(|name| name == NAME) {
        storage.remove(NAME)?;
    }
    let file = storage.create(NAME, SECTOR as u64)?;
    let data = crate::pool::zeroes(SECTOR);
    submitter.write(WriteOp { token: 1, file, position: 0, data, dsync: true });
    let mut done = Vec::new();
    while done.is_empty() {
        submitter.poll(Wait::For(None), &mut done);
    }
    storage.remove(NAME)?;
    done.pop().map_or(Ok(()), |completion| completion.result)
}

/// The submitter of a mode.
///
/// # Errors
/// When the kernel refuses a ring.
pub fn submitter(mode: IoMode) -> io::Result<Box<dyn Submitter>> {
    Ok(match mode {
        IoMode::Uring => Box::new(UringSubmitter::new()?),
        IoMode::Direct | IoMode::Buffered => Box::new(BlockingSubmitter::default()),
    })
}

#[cfg(test)]
mod tests;
