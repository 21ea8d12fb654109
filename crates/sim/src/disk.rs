//! A disk that is never kind: unsynced sectors may be lost or kept at a power loss, writes complete in any order,
//! and reads, writes, syncs and allocations fail when the plan says so. One thread; every choice comes from
//! one seeded stream.

mod files;
mod links;
mod stuck;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

use journal::disk::{Completion, File, Storage, Submitter, Wait, Waker, WriteOp};
use parking_lot::Mutex;

use crate::random::Random;

use files::Ageing;
pub use files::{CHECKPOINT, Newer, Taken};
pub use stuck::{KINDS, Kind};

/// Power is lost in units of this.
const SECTOR: usize = 512;
/// A segment that is being rewritten.
pub const REWRITING: &str = "rewriting";
/// How the name begins that a start gives to a segment which was not begun.
const ASIDE: &str = "spare-segment-";
/// One in so many of them cannot get that name.
const STAYS: u64 = 4;
/// In one of so many starts a read or a change of names fails; in each within a rewriting.
const STARTS_FAIL: u64 = 16;
/// One of so many files opened and reads does, …
const START_READS: u64 = 24;
/// … or one of so many changes of names.
const START_NAMES: u64 = 4;

/// Faults of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// One in so many writes of the journal fails; 0: none.
    pub write_errors: u64,
    /// One in so many syncs fails.
    pub sync_errors: u64,
    /// One in so many other writes and syncs of files fails, those of the keeper.
    pub file_errors: u64,
    /// Behind the next rename of a rewritten segment, and so many changes of names, one fails.
    pub name_error: Option<u64>,
    /// Bytes that may be allocated.
    pub capacity: Option<u64>,
}

/// What happened, for the coverage report.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskCounters {
    pub sectors_lost: u64,
    pub sectors_kept: u64,
    pub reordered: u64,
    pub dsync_writes: u64,
    pub plain_writes: u64,
    pub syncs: u64,
    pub write_errors: u64,
    pub sync_errors: u64,
    pub file_errors: u64,
    pub read_errors: u64,
    pub full: u64,
    pub renames_lost: u64,
    pub renames_refused: u64,
    pub stuck: u64,
    /// Of these, by kind of the file.
    pub stuck_by_kind: [u64; KINDS.len()],
    /// Of these, it was to be replaced.
    pub unreplaced: u64,
}

/// An unsynced write, sector by sector.
struct Pending {
    /// Rises from write to write of a file.
    number: u64,
    position: u64,
    before: Vec<u8>,
    after: Vec<u8>,
}

#[derive(Default)]
struct FileState {
    bytes: Vec<u8>,
    pending: Vec<Pending>,
    writes: u64,
}

impl FileState {
    fn write(&mut self, position: u64, bytes: &[u8]) {
        let (start, end) = (position as usize, position as usize + bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let before = self.bytes[start..end].to_vec();
        self.bytes[start..end].copy_from_slice(bytes);
        self.writes += 1;
        self.pending.push(Pending { number: self.writes, position, before, after: bytes.to_vec() });
    }
}

type Shared = Arc<Mutex<FileState>>;

struct Disk {
    /// What a running process sees.
    names: BTreeMap<String, Shared>,
    /// What the folder says after a power loss.
    durable_names: BTreeMap<String, Shared>,
    /// Second names of files.
    linked: BTreeMap<String, Shared>,
    random: Random,
    /// Of damage, so that it changes nothing else of a run.
    damages: Random,
    vanishing: Random,
    forgetting: Random,
    /// A start has had to do with the checkpoint's copy.
    only_copy: bool,
    failing: Random,
    ageing: Option<Ageing>,
    starting: Random,
    staying: Random,
    faults: Faults,
    counters: DiskCounters,
    /// Everything fails: the process is dead.
    dead: bool,
    /// The process dies after so many more blocking operations.
    fuse: Option<u64>,
    /// … counted from the next rename of a file whose name begins so.
    fuse_at_rename: Option<(&'static str, u64)>,
    /// The one that burns was lit by a rename.
    lit_by_rename: bool,
    /// Behind so many changes of names one fails.
    names_left: Option<u64>,
    /// Behind so many reads while a segment is rewritten one fails.
    reads_left: Option<u64>,
    /// A file that can be neither removed, renamed nor replaced.
    stuck: Option<String>,
    /// It cannot be opened either.
    shut: bool,
    /// Another file can get its name.
    replaceable: bool,
    /// Checkpoints that were to be replaced or removed, and were not.
    stale: Vec<Shared>,
    /// Behind so many files opened and reads one fails, whatever they are for.
    opens_left: Option<u64>,
    opens_failed: bool,
    names_failed: bool,
    /// A segment is being rewritten.
    rewriting: bool,
    /// Writes and syncs of the journal that are under way.
    under_way: Vec<Operation>,
    /// A write of the journal is being carried out.
    submits: bool,
    /// What other threads do whenever a file is read.
    meanwhile: Option<Box<dyn FnMut() + Send>>,
    /// Checksum of every chunk ever submitted, by term and index.
    chunks: BTreeMap<(u32, u64), u64>,
    /// A term and an index that named two chunks.
    twice: Option<(u32, u64)>,
}

enum Operation {
    Write(WriteOp),
    /// Covers the writes of a file that had completed when it was asked for.
    Sync {
        token: u64,
        state: Shared,
        covers: u64,
    },
}

/// A disk that outlives the processes that use it.
#[derive(Clone)]
pub struct SimDisk {
    inner: Arc<Mutex<Disk>>,
}

struct SimFile {
    disk: SimDisk,
    name: String,
    state: Shared,
}

fn broken() -> io::Error {
    io::Error::other("the machine is off")
}

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        let disk = Disk {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            linked: BTreeMap::new(),
            random: Random::new(seed),
            damages: Random::new(seed ^ 0x00DA_3A6E),
            vanishing: Random::new(seed ^ 0x6013_0AFE),
            forgetting: Random::new(seed ^ 0xF026_0770),
            only_copy: false,
            failing: Random::new(seed ^ 0x0E10_0E10),
            ageing: None,
            starting: Random::new(seed ^ 0x57A2_7EED),
            staying: Random::new(seed ^ 0x57A1_57A1),
            faults: Faults::default(),
            counters: DiskCounters::default(),
            dead: false,
            fuse: None,
            fuse_at_rename: None,
            lit_by_rename: false,
            names_left: None,
            reads_left: None,
            stuck: None,
            shut: false,
            replaceable: false,
            stale: Vec::new(),
            opens_left: None,
            opens_failed: false,
            names_failed: false,
            rewriting: false,
            under_way: Vec::new(),
            submits: false,
            meanwhile: None,
            chunks: BTreeMap::new(),
            twice: None,
        };
        Self { inner: Arc::new(Mutex::new(disk)) }
    }

    /// From now on.
    pub fn set_faults(&self, faults: Faults) {
        self.inner.lock().faults = faults;
    }

    /// From now on one in so many writes and syncs of files by the keeper fails; 0: none.
    pub fn set_file_errors(&self, count: u64) {
        self.inner.lock().faults.file_errors = count;
    }

    /// When a rewritten segment gets its name next, one rename, removal or sync of the folder fails behind it and `behind` others.
    pub fn fail_behind_rewriting(&self, behind: u64) {
        self.inner.lock().faults.name_error = Some(behind);
    }

    /// When segments are rewritten next, one read fails behind `behind` others. `None`: none does.
    pub fn fail_within_rewriting(&self, behind: Option<u64>) {
        self.inner.lock().reads_left = behind;
    }

    /// Now and then, and wherever segments are there that a rewritten one replaces: one read, or one change of names, of the start that follows fails.
    pub fn fail_at_start(&self) -> bool {
        let is_within = !self.files().replaced.is_empty();
        let mut disk = self.inner.lock();
        if !(is_within || disk.starting.one_in(STARTS_FAIL)) {
            return false;
        }
        if disk.starting.one_in(2) {
            disk.opens_left = Some(disk.starting.below(START_READS));
        } else {
            disk.names_left = Some(disk.starting.below(START_NAMES));
        }
        true
    }

    /// Nothing fails any more. Did a read, or a change of names, since [`SimDisk::fail_at_start`]?
    pub fn end_start(&self) -> (bool, bool) {
        let mut disk = self.inner.lock();
        let failed = (disk.opens_failed, disk.names_failed);
        (disk.opens_left, disk.names_left, disk.opens_failed, disk.names_failed) = (None, None, false, false);
        failed
    }

    /// From now on this is done whenever a file is read, but not while it is being done.
    pub fn set_meanwhile(&self, meanwhile: Option<Box<dyn FnMut() + Send>>) {
        self.inner.lock().meanwhile = meanwhile;
    }

    fn let_others_run(&self) {
        let meanwhile = self.inner.lock().meanwhile.take();
        if let Some(mut meanwhile) = meanwhile {
            meanwhile();
            self.inner.lock().meanwhile = Some(meanwhile);
        }
    }

    /// Does a write or sync of a file fail?
    fn try_file(&self) -> io::Result<()> {
        let mut disk = self.inner.lock();
        let count = disk.faults.file_errors;
        if count > 0 && !disk.submits && disk.failing.one_in(count) { disk.fail() } else { Ok(()) }
    }

    /// Does a change of names fail, or its sync?
    fn try_names(&self) -> io::Result<()> {
        let mut disk = self.inner.lock();
        match disk.names_left.take() {
            Some(0) => {
                disk.names_failed = true;
                return disk.fail();
            }
            left => disk.names_left = left.map(|left| left - 1),
        }
        Ok(())
    }

    /// Does a read fail?
    fn try_read(&self) -> io::Result<()> {
        self.try_open()?;
        let mut disk = self.inner.lock();
        if !disk.rewriting {
            return Ok(());
        }
        match disk.reads_left.take() {
            Some(0) => {
                disk.counters.read_errors += 1;
                return Err(io::Error::from_raw_os_error(5));
            }
            left => disk.reads_left = left.map(|left| left - 1),
        }
        Ok(())
    }

    /// Does opening a file fail, or a read, whatever it is for?
    fn try_open(&self) -> io::Result<()> {
        let mut disk = self.inner.lock();
        match disk.opens_left.take() {
            Some(0) => {
                disk.opens_failed = true;
                return Err(io::Error::from_raw_os_error(5));
            }
            left => disk.opens_left = left.map(|left| left - 1),
        }
        Ok(())
    }

    /// What happened so far.
    pub fn counters(&self) -> DiskCounters {
        self.inner.lock().counters
    }

    /// The process dies after `operations` more blocking operations.
    pub fn light_fuse(&self, operations: u64) {
        self.inner.lock().fuse = Some(operations);
    }

    /// The process dies after so many blocking operations behind the next rename of a file whose name begins with `prefix`.
    pub fn light_fuse_at_rename(&self, prefix: &'static str, operations: u64) {
        self.inner.lock().fuse_at_rename = Some((prefix, operations));
    }

    /// Who has renamed a file has ended his turn before the fuse burnt down: he dies now, and nobody else later.
    pub fn end_turn(&self) {
        let mut disk = self.inner.lock();
        disk.rewriting = false;
        if std::mem::take(&mut disk.lit_by_rename) && disk.fuse.is_some() {
            disk.dead = true;
        }
    }

    /// Has the fuse burnt down?
    pub fn is_dead(&self) -> bool {
        self.inner.lock().dead
    }

    /// The process is killed: what was written stays, what was under way may have happened.
    pub fn kill(&self) {
        let mut disk = self.inner.lock();
        disk.dead = true;
        for operation in std::mem::take(&mut disk.under_way) {
            if let Operation::Write(op) = operation
                && disk.random.one_in(2)
                && let Some(state) = disk.state_of(&op.file.name())
            {
                state.lock().write(op.position, &op.data);
            }
        }
    }

    /// The power goes: unsynced sectors are lost or kept, each for itself.
    pub fn lose_power(&self) {
        self.kill();
        let mut disk = self.inner.lock();
        let Disk { names, durable_names, random, counters, .. } = &mut *disk;
        if *names.keys().collect::<Vec<_>>() != *durable_names.keys().collect::<Vec<_>>() && random.one_in(2) {
            counters.renames_lost += 1;
            names.clone_from(durable_names);
        }
        for state in names.values() {
            let mut state = state.lock();
            for write in std::mem::take(&mut state.pending).into_iter().rev() {
                for (number, old) in write.before.chunks(SECTOR).enumerate() {
                    let at = number * SECTOR;
                    if write.after[at..at + old.len()] == *old {
                        continue;
                    }
                    if random.one_in(2) {
                        counters.sectors_lost += 1;
                        let start = write.position as usize + at;
                        state.bytes[start..start + old.len()].copy_from_slice(old);
                    } else {
                        counters.sectors_kept += 1;
                    }
                }
            }
        }
        durable_names.clone_from(names);
    }

    /// Nothing dies any more.
    pub fn put_out_fuses(&self) {
        let mut disk = self.inner.lock();
        (disk.fuse, disk.fuse_at_rename, disk.lit_by_rename) = (None, None, false);
    }

    /// Bytes in files.
    pub fn used(&self) -> u64 {
        self.inner.lock().used()
    }

    /// Bytes of a file; 0 if it is not there.
    pub fn size_of(&self, name: &str) -> u64 {
        self.inner.lock().names.get(name).map_or(0, |state| state.lock().bytes.len() as u64)
    }

    /// A new process may use the disk.
    pub fn revive(&self) {
        let mut disk = self.inner.lock();
        disk.dead = false;
        // A start removes them.
        disk.linked.clear();
        (disk.faults.name_error, disk.names_left) = (None, None);
        (disk.reads_left, disk.rewriting) = (None, false);
        (disk.fuse, disk.fuse_at_rename, disk.lit_by_rename) = (None, None, false);
        disk.under_way.clear();
    }

    /// A term and an index that named two different chunks, if there are any.
    pub fn chunk_named_twice(&self) -> Option<(u32, u64)> {
        self.inner.lock().twice
    }

    /// Looks at a chunk's header: index at byte 32, term at byte 48 (docs/formats/chunk.md).
    fn note_chunk(&self, op: &WriteOp) {
        if !op.data.starts_with(b"MSCK") {
            return;
        }
        let number = |at: usize, bytes: usize| {
            op.data[at..at + bytes].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let key = (number(48, 4) as u32, number(32, 8));
        let sum = op
            .data
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
        let mut disk = self.inner.lock();
        if disk.chunks.insert(key, sum).is_some_and(|before| before != sum) {
            disk.twice = Some(key);
        }
    }

    /// One blocking operation: does the process live to do it?
    pub fn touch(&self) -> io::Result<()> {
        let mut disk = self.inner.lock();
        if let Some(left) = disk.fuse {
            if left == 0 {
                disk.dead = true;
            } else {
                disk.fuse = Some(left - 1);
            }
        }
        if disk.dead { Err(broken()) } else { Ok(()) }
    }

    fn file(&self, name: &str, state: Shared) -> Arc<dyn File> {
        Arc::new(SimFile { disk: self.clone(), name: name.to_owned(), state })
    }

    /// The submitter of a fresh process.
    pub fn submitter(&self) -> SimSubmitter {
        SimSubmitter { disk: self.clone(), ready: Vec::new() }
    }
}

impl Disk {
    fn fail(&mut self) -> io::Result<()> {
        self.counters.file_errors += 1;
        Err(io::Error::from_raw_os_error(5))
    }

    fn state_of(&self, name: &str) -> Option<Shared> {
        self.names.get(name).cloned()
    }

    fn used(&self) -> u64 {
        self.names.values().map(|state| state.lock().bytes.len() as u64).sum()
    }
}

impl Storage for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.touch()?;
        Ok(self.inner.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        self.touch()?;
        let mut disk = self.inner.lock();
        if disk.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if disk.faults.capacity.is_some_and(|capacity| disk.used() + size > capacity) {
            disk.counters.full += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let state = Arc::new(Mutex::new(FileState { bytes: vec![0; size as usize], ..FileState::default() }));
        disk.names.insert(name.to_owned(), Arc::clone(&state));
        disk.rewriting |= name == REWRITING;
        drop(disk);
        Ok(self.file(name, state))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.touch()?;
        self.try_open()?;
        self.try_shut(name)?;
        let state = self.inner.lock().state_of(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(name, state))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.touch()?;
        self.try_change(from, Some(to))?;
        let mut disk = self.inner.lock();
        if to.starts_with(ASIDE) && disk.staying.one_in(STAYS) {
            disk.counters.renames_refused += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let state = disk.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        disk.names.insert(to.to_owned(), state);
        disk.rewriting = to == REWRITING || disk.rewriting && from != REWRITING;
        if from == REWRITING && disk.faults.name_error.is_some() {
            disk.names_left = disk.faults.name_error.take();
        }
        if let Some((_, operations)) = disk.fuse_at_rename.take_if(|(prefix, _)| from.starts_with(*prefix)) {
            (disk.fuse, disk.lit_by_rename) = (Some(operations), true);
        }
        Ok(())
    }

    fn link(&self, name: &str, path: &Path) -> io::Result<()> {
        self.touch()?;
        self.try_names()?;
        let second = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
        let mut disk = self.inner.lock();
        let state = disk.state_of(name).ok_or(io::ErrorKind::NotFound)?;
        disk.linked.insert(second, state);
        Ok(())
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.touch()?;
        self.try_change(one, Some(other))?;
        let mut disk = self.inner.lock();
        let (Some(first), Some(second)) = (disk.names.get(one).cloned(), disk.names.get(other).cloned()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        disk.names.insert(one.to_owned(), second);
        disk.names.insert(other.to_owned(), first);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.touch()?;
        self.try_change(name, None)?;
        self.inner.lock().names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// So that recovery writes again what may not be on the disk, and crashes as it does.
    fn reads_from_cache(&self) -> bool {
        true
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.touch()?;
        self.try_names()?;
        let mut disk = self.inner.lock();
        disk.durable_names = disk.names.clone();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

impl File for SimFile {
    fn name(&self) -> String {
        // A rename does not change what an open file is called here; the submitter looks it up by state.
        self.name.clone()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.state.lock().bytes.len() as u64)
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.disk.inner.lock().linked.values().any(|state| Arc::ptr_eq(state, &self.state)))
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.touch()?;
        self.disk.let_others_run();
        self.disk.try_read()?;
        let state = self.state.lock();
        let from = state.bytes.get(position as usize..).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.touch()?;
        self.disk.try_file()?;
        self.state.lock().write(position, bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.touch()?;
        self.disk.try_file()?;
        self.state.lock().pending.clear();
        Ok(())
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.disk.touch()?;
        let more = size.saturating_sub(self.state.lock().bytes.len() as u64);
        let mut disk = self.disk.inner.lock();
        if more > 0 && disk.faults.capacity.is_some_and(|capacity| disk.used() + more > capacity) {
            disk.counters.full += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        drop(disk);
        let mut state = self.state.lock();
        state.bytes.resize(size as usize, 0);
        // Of what is cut off nothing comes back.
        state.pending.retain_mut(|write| {
            let left = size.saturating_sub(write.position).min(write.after.len() as u64) as usize;
            write.before.truncate(left);
            write.after.truncate(left);
            left > 0
        });
        Ok(())
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

/// Completes operations in any order, when it is asked.
pub struct SimSubmitter {
    disk: SimDisk,
    ready: Vec<Completion>,
}

impl SimSubmitter {
    /// Carries out one operation that is under way, any of them.
    fn finish_one(&mut self) {
        let mut disk = self.disk.inner.lock();
        let count = disk.under_way.len() as u64;
        if count == 0 || disk.dead {
            return;
        }
        let chosen = disk.random.below(count) as usize;
        if chosen > 0 {
            disk.counters.reordered += 1;
        }
        let operation = disk.under_way.remove(chosen);
        let faults = disk.faults;
        match operation {
            Operation::Write(op) => {
                if faults.write_errors > 0 && disk.random.one_in(faults.write_errors) {
                    disk.counters.write_errors += 1;
                    drop(disk);
                    self.ready.push(Completion { token: op.token, result: Err(io::Error::from_raw_os_error(5)) });
                    return;
                }
                if op.dsync {
                    disk.counters.dsync_writes += 1
                } else {
                    disk.counters.plain_writes += 1
                }
                disk.submits = true;
                drop(disk);
                let outcome = op.file.write_at(op.position, &op.data);
                self.disk.inner.lock().submits = false;
                if op.dsync {
                    self.sync_range(&op);
                }
                self.ready.push(Completion { token: op.token, result: outcome });
            }
            Operation::Sync { token, state, covers } => {
                if faults.sync_errors > 0 && disk.random.one_in(faults.sync_errors) {
                    disk.counters.sync_errors += 1;
                    drop(disk);
                    self.ready.push(Completion { token, result: Err(io::Error::from_raw_os_error(5)) });
                    return;
                }
                disk.counters.syncs += 1;
                drop(disk);
                let result = self.disk.touch();
                state.lock().pending.retain(|write| write.number > covers);
                self.ready.push(Completion { token, result });
            }
        }
    }

    /// `RWF_DSYNC`: this write is durable, and nothing else.
    fn sync_range(&self, op: &WriteOp) {
        let state = self.disk.inner.lock().state_of(&op.file.name());
        if let Some(state) = state {
            let mut state = state.lock();
            state.pending.retain(|write| !(write.position == op.position && write.after.len() == op.data.len()));
            // What lies below it comes back no more.
            for write in &mut state.pending {
                let (start, end) = (
                    op.position.max(write.position),
                    (op.position + op.data.len() as u64).min(write.position + write.before.len() as u64),
                );
                if start < end {
                    let (own, new) = ((start - write.position) as usize, (start - op.position) as usize);
                    let count = (end - start) as usize;
                    write.before[own..own + count].copy_from_slice(&op.data[new..new + count]);
                }
            }
        }
    }
}

impl Submitter for SimSubmitter {
    fn write(&mut self, op: WriteOp) {
        self.disk.note_chunk(&op);
        self.disk.inner.lock().under_way.push(Operation::Write(op));
    }

    fn write_now(&mut self, op: WriteOp) -> Completion {
        let token = op.token;
        self.write(op);
        self.finish_one();
        // A disk that died meanwhile says nothing; whoever waits for it dies with it.
        self.ready.pop().unwrap_or(Completion { token, result: Err(io::Error::from_raw_os_error(5)) })
    }

    fn sync(&mut self, token: u64, file: Arc<dyn File>) {
        let mut disk = self.disk.inner.lock();
        let Some(state) = disk.state_of(&file.name()) else { return };
        let covers = state.lock().writes;
        disk.under_way.push(Operation::Sync { token, state, covers });
    }

    fn poll(&mut self, _wait: Wait, done: &mut Vec<Completion>) {
        let finish = self.disk.inner.lock().random.below(3);
        for _ in 0..finish {
            self.finish_one();
        }
        done.append(&mut self.ready);
    }

    fn waker(&self) -> Waker {
        Arc::new(|| {})
    }

    fn capacity(&self) -> usize {
        6
    }
}
