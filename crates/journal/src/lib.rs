//! The journal: one append-only sequence of chunks on disk that carries the batches of many logs. It
//! owns chunks, segments, their index, group commit, recovery, the tail cache and cold reads; it
//! reaches the disk, the clock and the network shards only through seams.
//!
//! The way of an append: [`queue`](Journal::append) → `writer::build` → `writer::commit` → [`EventSink`].
//! The way of a read: [`Journal::read_tail`], or [`Journal::read_cold`] when it is not in memory.
//! Data lives in segments (`segments`, `chunk`, `index`) and one checkpoint (`checkpoint`) per journal, and what is old or was
//! compacted in objects of the archive (`archive`, `archiver`).

mod aborted;
mod append;
mod archive;
mod archiver;
mod backup;
mod bell;
mod checkpoint;
mod chunk;
mod cold;
mod cut;
pub mod disk;
mod index;
mod inspect;
mod journal;
mod keeper;
mod log;
mod metrics;
mod places;
mod pool;
mod producers;
mod queue;
mod reached;
mod readable;
mod recent;
mod recovery;
mod rehearsal;
mod repair;
mod run;
mod segment_set;
mod segments;
mod sharers;
mod state;
mod survey;
mod sweep;
mod tail;
mod touched;
mod transactions;
mod unreadable;
mod window;
mod writer;

pub use append::{
    Append, AppendError, AppendItem, AppendResults, Appended, EventSink, JournalEvent, ReplyTo, SHARED_LOGS_MAX,
};
pub use archive::{ArchiveRecordError, ArchiveStore, MemoryArchive, Put, is_hopeless, is_whole_object};
pub use archiver::Archiver;
pub use backup::{ArchiveHold, BackupError, CopiedFile, Cut, Pinned, pin_together, pin_together_while};
pub use cold::{ColdData, ColdWant, HISTORY_BYTES_MAX, ReadError};
pub use inspect::inspect;
pub use journal::{Journal, JournalConfig, JournalStatus, TailRead};
pub use keeper::Keeper;
pub use log::{Compaction, DoneRecords, Log, Retention};
pub use metrics::JournalMetrics;
pub use places::Place;
pub use pool::{Block, BlockPool};
pub use producers::{Producer, Seen};
pub use readable::copy_readable;
pub use recovery::{OpenError, Opened, open, owners};
pub use rehearsal::rehearse;
pub use repair::{Original, RepairError, Repaired, repair};
pub use run::Run;
pub use segments::SegmentLook;
pub use survey::{
    Damage, LogSurvey, NamedObject, Progress, Survey, SurveyError, named_objects, named_objects_on, survey, survey_on,
};
pub use transactions::{AbortedTransaction, OpenTransaction};
pub use unreadable::Unreadable;
pub use writer::Writer;

/// Defects that the simulator must find; see `crates/sim`.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Answers class `fsync` when the write has completed.
    AcknowledgeBeforeSync,
    /// Takes a sync for done without asking the disk.
    SkipSync,
    /// Writes over the sectors of an earlier chunk.
    RewriteAcknowledged,
    /// Goes on in the old term after a restart.
    KeepTerm,
    /// Uses `RWF_DSYNC` while earlier chunks are unflushed, and takes them for durable.
    DsyncOverUnflushed,
    /// Frees what logs share although one of them still has it.
    FreeSharedBody,
    /// Takes a chunk whose shared bodies are torn.
    TrustSharedBodies,
    /// Places what belongs together in one chunk after the other.
    PartTogether,
    /// Looks for chunks behind a bad one only within 4 MiB of its beginning.
    ShortSight,
    /// Says in no segment that the next one is there, and does not miss it.
    LeaveUnmarked,
    /// Gives a reader again what lies before the running end of its answer.
    OverlapSeams,
    /// Leaves logs that were dropped out of checkpoints from which their end is yet to be replayed.
    OmitDropped,
    /// Forgets a log when its end is placed, durable or not.
    DropUnwritten,
    /// Takes a log that the checkpoint does not name for dropped.
    DropAbsent,
    /// Reports damage for a file that has a new name and the header of its last life.
    BlameUsedAgain,
    /// Starts without a checkpoint although segments were rewritten.
    ForgoCheckpoint,
    /// Decides which records are missing while keeper and archiver run.
    JudgeLate,
    /// Makes no segments for state on a full disk.
    ForgoState,
    /// Leaves those segments in the table that a rewritten one replaces, when the file of one before them could not be removed.
    LeaveReplaced,
    /// Never rewrites segments again of which one could not be read once.
    ForsakeUnreadable,
    /// Takes a segment that cannot be read at a start for one that replaces no others.
    TakeUnreadable,
    /// Loads segments that a rewritten one replaces when their files cannot be removed at a start.
    LoadReplaced,
    /// Frees and rewrites segments that replace files which are still there.
    ForgetReplacing,
    /// Rewrites nothing more where the file of one segment cannot be replaced.
    StopAtUnreplaced,
    /// Tries a spare again and again that cannot be renamed.
    InsistOnSpare,
    /// Takes no checkpoint for written when space cannot be kept back.
    NeedReserves,
    /// Has no third name for a checkpoint that cannot be replaced.
    ForgoThird,
    /// Takes a checkpoint for written twice of which the copy could not be replaced.
    CountAlone,
    /// Lets state have what is kept of a full disk for what gives space back.
    SpendLast,
    /// Makes the file of a segment anew although an attempt that failed has left it.
    InsistOnNew,
    /// Leaves segments as they are of which a twentieth is live.
    LeaveTwentieth,
    /// Takes records that are done for live.
    CountDone,
    /// Forgets silent producers when a checkpoint is written, and at no other time.
    ExpireAtCheckpoints,
    /// Archives what is not worth it otherwise when the window is exceeded, and not before.
    AwaitHurry,
    /// Answers who asks for records before an object that is missing as if these were in it.
    HideBehindMissing,
    /// Archives logs again and again of which the store takes nothing.
    InsistOnRefused,
    /// Waits for the turn of a refused log that has nothing to be moved.
    AwaitIdleRefused,
    /// Gives up the compaction of a log of a full archive whenever it looks whether there is more.
    GiveUpWhenFull,
    /// Fills a full archive up with little objects.
    FillWithLittle,
    /// Backs up what journals hold when each is asked, instead of at one moment.
    PinOneByOne,
    /// Leaves the newest chunk out of a backup.
    CutEarly,
    /// Makes a short segment as long as others at a start, and counts it as it was.
    GrowUncounted,
}

#[cfg(feature = "planted")]
impl Journal {
    pub(crate) fn planted(&self) -> Option<Planted> {
        self.config().planted
    }
}
