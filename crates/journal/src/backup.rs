//! A journal as it is at one index, while it is written: what a backup is made of.
//!
//! ```text
//! keeper: checkpoint ── second names for all files ─────────────────────── second names for segments begun since
//! caller:                 the newest chunk of each journal, at one moment ──┘
//! caller: waits until these are durable ── links or copies what is sealed ── copies the open segment, cut behind that chunk
//! ```
//!
//! Everything that was acknowledged before lies in the copy. Chunks of the open part are checked one by one while they are copied; what is
//! sealed is not read. Deleted archive objects are kept while an [`ArchiveHold`] lives.

use std::fs::File as Copied;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use types::LogIndex;
use uuid::Uuid;

use crate::OpenError;
use crate::checkpoint::ReplayFrom;
use crate::disk::{IoMode, RealStorage, SECTOR, Storage, naming};
use crate::journal::{Journal, JournalStatus};
use crate::recovery::scan::{Chain, Scanned, Scanner};
use crate::segments::{SEGMENT_HEADER_BYTES, SegmentError, SegmentHeader, segment_name};
use crate::tail::HeldTail;

/// Between looks whether there is still a keeper, and whether a chunk is durable.
const LOOK: Duration = Duration::from_millis(5);
/// A chunk is durable within a second and the time of a flush.
const DURABLE_MAX: Duration = Duration::from_secs(60);

/// Why a journal cannot be backed up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The node ends.
    #[error("the journal is shut down")]
    Ending,
    /// A write or flush has failed before.
    #[error("the journal has stopped: {reason}")]
    Stopped {
        /// What failed.
        reason: String,
    },
    /// Nothing is flushed.
    #[error("chunk {index} is not durable after a minute")]
    Slow {
        /// Its index.
        index: LogIndex,
    },
    /// A chunk on the way to the cut is not what was written.
    #[error("{file}: no chunk {index} at byte {position}")]
    Missing {
        /// Which file.
        file: String,
        /// Of the chunk that should be there.
        index: LogIndex,
        /// Where.
        position: u64,
    },
    /// A file is damaged.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file is damaged.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

/// The keeper is to pin all files in a folder, or, in a second step, those that it has begun since.
pub(crate) struct PinJob {
    pub folder: PathBuf,
    pub rest: bool,
    pub answer: Sender<Result<Pinned, BackupError>>,
}

/// The files of a journal under their second names, and what of them counts.
#[derive(Debug)]
pub struct Pinned {
    /// Whose.
    pub journal: Uuid,
    /// Files that never change: the checkpoint and the segments that it covers.
    pub sealed: Vec<String>,
    pub(crate) replay: ReplayFrom,
    /// The newest chunk that counts.
    pub until: LogIndex,
}

/// What was copied of the open part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Files, how many bytes of each say something, and how long each is.
    pub files: Vec<(String, u64, u64)>,
}

/// Gives all files of the journals second names, of each in a folder on the file system of the journal's, and waits until what they hold is
/// durable. What counts of the journals is one moment: whatever was made of something that was seen of one of them, or answered by it, is in
/// none of them without that. Writers wait for each other for as long as it takes to look at the newest chunk of each.
///
/// # Errors
/// `Ending`, `Stopped`, `Slow`; `Io`: also where the file system has no hard links.
pub fn pin_together(journals: &[(&Journal, &Path)]) -> Result<Vec<Pinned>, BackupError> {
    pin_together_while(journals, &mut || std::thread::sleep(LOOK))
}

/// The same; `meanwhile` is called again and again while a keeper or a flush is waited for.
///
/// # Errors
/// As [`pin_together`].
pub fn pin_together_while(
    journals: &[(&Journal, &Path)],
    meanwhile: &mut dyn FnMut(),
) -> Result<Vec<Pinned>, BackupError> {
    #[cfg(feature = "planted")]
    let mut alone = Vec::new();
    let mut first: Result<Vec<Pinned>, BackupError> = Ok(Vec::with_capacity(journals.len()));
    for (journal, folder) in journals {
        let pinned = journal.ask_to_pin(folder, false, meanwhile);
        #[cfg(feature = "planted")]
        alone.push(journal.tail().hold().last().unwrap_or_else(|| journal.durable_index()));
        first = first.and_then(|mut all| {
            all.push(pinned?);
            Ok(all)
        });
    }
    let untils = {
        let held: Vec<_> = journals.iter().map(|(journal, _)| journal.tail().hold()).collect();
        // Whatever was acknowledged is in a chunk that was made before.
        let last = |(held, (journal, _)): (&HeldTail<'_>, &(&Journal, &Path))| {
            held.last().unwrap_or_else(|| journal.durable_index())
        };
        held.iter().zip(journals).map(last).collect::<Vec<_>>()
    };
    #[cfg(feature = "planted")]
    let untils = match journals.first().and_then(|(journal, _)| journal.planted()) {
        Some(crate::Planted::PinOneByOne) => alone,
        Some(crate::Planted::CutEarly) => untils.into_iter().map(|until| LogIndex(until.0.saturating_sub(1))).collect(),
        _ => untils,
    };
    // Also after a failure: keepers keep their segments until they are asked.
    let mut rest = Ok(());
    for (journal, folder) in journals {
        rest = rest.and(journal.ask_to_pin(folder, true, meanwhile).map(drop));
    }
    let mut pinned = first?;
    rest?;
    for ((journal, _), (pinned, until)) in journals.iter().zip(pinned.iter_mut().zip(untils)) {
        pinned.until = until;
        journal.wait_until_durable(until, meanwhile)?;
    }
    Ok(pinned)
}

impl Journal {
    /// [`pin_together`] of one journal.
    ///
    /// # Errors
    /// The same.
    pub fn pin(&self, folder: &Path) -> Result<Pinned, BackupError> {
        pin_together(&[(self, folder)]).and_then(|mut pinned| pinned.pop().ok_or(BackupError::Ending))
    }

    fn ask_to_pin(&self, folder: &Path, rest: bool, meanwhile: &mut dyn FnMut()) -> Result<Pinned, BackupError> {
        let (answer, answered) = channel();
        self.ask_for_pins(PinJob { folder: folder.to_owned(), rest, answer });
        loop {
            match answered.try_recv() {
                Ok(outcome) => return outcome,
                Err(TryRecvError::Empty) if !self.is_shutting_down() => meanwhile(),
                Err(_) => return Err(BackupError::Ending),
            }
        }
    }

    fn wait_until_durable(&self, index: LogIndex, meanwhile: &mut dyn FnMut()) -> Result<(), BackupError> {
        let began = Instant::now();
        while self.durable_index() < index {
            if let JournalStatus::Stopped { reason } = self.status() {
                return Err(BackupError::Stopped { reason });
            }
            if began.elapsed() > DURABLE_MAX {
                return Err(BackupError::Slow { index });
            }
            meanwhile();
        }
        Ok(())
    }
}

/// A file that is being copied.
pub trait CopiedFile: Write {
    /// It has all that it gets: makes it as long as this, and durable.
    ///
    /// # Errors
    /// Those of the disk.
    fn finish(self: Box<Self>, bytes: u64) -> io::Result<()>;
}

impl CopiedFile for Copied {
    fn finish(self: Box<Self>, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)?;
        self.sync_all()
    }
}

impl Pinned {
    /// Copies the open segments from `pins` to `to`, up to the newest chunk that counts, and flushes them.
    ///
    /// # Errors
    /// `Missing`, `Open`, `Segment`: a file does not hold what was written. `Io`.
    pub fn copy_open(&self, pins: &Path, to: &Path, mode: IoMode, progress: &dyn Fn(u64)) -> Result<Cut, BackupError> {
        let create = |name: &str| Ok(Box::new(Copied::create(to.join(name))?) as Box<dyn CopiedFile>);
        self.copy_open_to(&create, &RealStorage::reading(pins, mode), progress)
    }

    /// The same from any disk to any other.
    ///
    /// # Errors
    /// As [`Pinned::copy_open`].
    pub fn copy_open_to(
        &self,
        create: &dyn Fn(&str) -> io::Result<Box<dyn CopiedFile>>,
        storage: &dyn Storage,
        progress: &dyn Fn(u64),
    ) -> Result<Cut, BackupError> {
        let mut chain = Chain::from(self.replay);
        let (mut sequence, mut files) = (self.replay.segment, Vec::new());
        // Where a segment was left the next one is there, if only its header.
        while files.is_empty() || chain.index < self.until || chain.left {
            let (is_wanted, name) = (chain.index < self.until, segment_name(sequence));
            let file = storage
                .open(&name)
                .map_err(naming(&name))
                .map_err(|source| BackupError::Io { what: "open a segment", source })?;
            let header = SegmentHeader::read(&*file)?;
            let failed = |what: &'static str| move |source| BackupError::Io { what, source };
            let mut copied = create(&name).map_err(failed("create a file"))?;
            copied.write_all(&header.encode()).map_err(failed("write a file"))?;
            let mut scanner = Scanner::new(Arc::clone(&file), self.journal, sequence);
            let (mut position, first) = (SEGMENT_HEADER_BYTES as u64, chain.index);
            chain.left = false;
            while chain.index < self.until {
                let Some(scanned) = scanner.next(&chain, position)? else { break };
                chain = scanned.chain();
                let Scanned { chunk, .. } = scanned;
                copied.write_all(&chunk).map_err(failed("write a file"))?;
                position += chunk.len() as u64;
                progress(chunk.len() as u64);
            }
            if is_wanted && chain.index == first {
                return Err(BackupError::Missing { file: file.name(), index: first.next(), position });
            }
            let size = file.size().map_err(failed("read a segment"))?.next_multiple_of(SECTOR as u64);
            copied.finish(size).map_err(failed("flush a file"))?;
            files.push((name, position, size));
            sequence += 1;
        }
        Ok(Cut { files })
    }
}

/// While it lives no archive object of a journal is deleted.
pub struct ArchiveHold(Arc<Journal>);

impl ArchiveHold {
    /// From now on.
    pub fn new(journal: &Arc<Journal>) -> Self {
        *journal.archive().holders.lock() += 1;
        Self(Arc::clone(journal))
    }
}

impl Drop for ArchiveHold {
    fn drop(&mut self) {
        *self.0.archive().holders.lock() -= 1;
        self.0.wake_archiver();
    }
}
