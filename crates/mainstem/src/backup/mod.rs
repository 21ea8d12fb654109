//! Backups of a running node: every journal as it is at one index, the archive's objects, and a manifest (`docs/operations/backup.md`).
//!
//! ```text
//! DIR/backup.toml        the manifest, written last: when it is proven that a broker starts with what is beside it
//! DIR/meta.toml          as in the data folder
//! DIR/journal-N/         checkpoint, sealed segments (hard links where DIR is on the same file system), the open one up to the index
//! DIR/archive/           objects
//! DIR/backup.unfinished  while it is made: what is beside it is no backup, and goes when one fails or is made there again (`unfinished.rs`)
//! ```
//!
//! While it is made, a folder in `journal-N/pinned` has second names of the journal's files. The next backup and the next start remove what a crash
//! leaves of it, as far as it can be removed: a segment that became immutable meanwhile keeps its second name until it is not.

pub mod manifest;
pub mod restore;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use anyhow::{Context, bail};
use broker::Settings;
use journal::disk::IoMode;
use journal::{ArchiveHold, Journal, NamedObject, Pinned};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::data_folder::{DataFolder, create_private, write_durably};
use crate::output;
use crate::proof::prove;
use crate::unfinished::{Mark, Marked, Work};
use crate::utc::rfc3339;
use manifest::{FORMAT_VERSION, FilePart, JournalPart, Manifest, ObjectPart};

/// Where second names are, in a journal's folder.
const PINNED: &str = "pinned";
/// Copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What backups are made of.
pub struct Source {
    pub journals: Vec<Arc<Journal>>,
    /// The data folder …
    pub folder: PathBuf,
    /// … and where in it each journal is.
    pub journal_folders: Vec<PathBuf>,
    pub cluster_id: String,
    pub archive: PathBuf,
    pub mode: IoMode,
    /// Those of the node, with which a restored one is to start.
    pub settings: Settings,
}

/// How the last backup went.
enum State {
    Idle,
    Running,
    Done { bytes: u64, seconds: f64 },
    Failed(String),
}

/// Makes backups, one at a time.
pub struct Backups {
    source: Source,
    state: Mutex<(State, PathBuf)>,
    done: AtomicU64,
    total: AtomicU64,
    made: Counter,
    failed: Counter,
}

impl Backups {
    /// Removes what a crash left of an earlier one.
    pub fn new(source: Source) -> Arc<Self> {
        for folder in &source.journal_folders {
            remove_names(&folder.join(PINNED));
        }
        let (made, failed) = (Counter::default(), Counter::default());
        Arc::new(Self {
            source,
            state: Mutex::new((State::Idle, PathBuf::new())),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            made,
            failed,
        })
    }

    /// Has it shown at `/metrics` how many there were.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "mainstem_backups",
            "Backups that were made, and of which it is proven that a broker starts with them",
            self.made.clone(),
        );
        registry.register(
            "mainstem_backup_failures",
            "Backups that were begun and failed: nothing is left of them",
            self.failed.clone(),
        );
    }

    /// Begins one.
    ///
    /// # Errors
    /// One is being made; the folder is not empty, or not one that can be used.
    pub fn begin(self: &Arc<Self>, to: &Path) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        if matches!(state.0, State::Running) {
            bail!("a backup to {} is being made", state.1.display());
        }
        let mark = self.claim(to)?;
        self.done.store(0, Ordering::Relaxed);
        self.total.store(0, Ordering::Relaxed);
        let (backups, target) = (Arc::clone(self), to.to_owned());
        let spawned = std::thread::Builder::new().name("backup".to_owned()).spawn(move || {
            let began = Instant::now();
            let outcome = backups.make(&target);
            match &outcome {
                // With a manifest it is a backup, whatever becomes of this.
                Ok(()) => drop(mark.lift()),
                Err(_) => {
                    let _ = fs::remove_file(target.join(manifest::NAME));
                    mark.clear(is_ours);
                }
            }
            let seconds = began.elapsed().as_secs_f64();
            let state = match outcome {
                Ok(()) => {
                    backups.made.inc();
                    tracing::info!(to = %target.display(), seconds, "backup made");
                    State::Done { bytes: backups.done.load(Ordering::Relaxed), seconds }
                }
                Err(error) => {
                    backups.failed.inc();
                    tracing::error!(to = %target.display(), "backup failed: {error:#}");
                    State::Failed(output::told(&error))
                }
            };
            backups.state.lock().0 = state;
        });
        spawned.context("no thread for a backup")?;
        // It ends only after this: the lock is held.
        *state = (State::Running, to.to_owned());
        Ok(())
    }

    /// A folder that is empty, or holds half of an earlier backup and nothing else, is marked.
    fn claim(&self, to: &Path) -> anyhow::Result<Mark> {
        if !to.is_absolute() {
            bail!("{} is not an absolute path of the broker's machine", to.display());
        }
        if to.exists() && !to.is_dir() {
            bail!("{} is no folder", to.display());
        }
        create_private(to).with_context(|| to.display().to_string())?;
        let (there, data) = (to.canonicalize()?, self.source.folder.canonicalize()?);
        if there.starts_with(&data) {
            bail!("{} is in the data folder", to.display());
        }
        let put = || Mark::put(to, Work::Backup, &format!("{}\n", rfc3339(SystemTime::now())));
        match Work::Backup.look(to) {
            Marked::Held => bail!("another broker makes a backup to {}", to.display()),
            Marked::Left if !to.join(manifest::NAME).exists() => {
                tracing::warn!(to = %to.display(), "half of an earlier backup is removed");
                // What others have put there stays, and is refused.
                put()?.begin_anew(is_ours)
            }
            Marked::Left => bail!("{} is not empty", to.display()),
            Marked::No => put(),
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Value {
        let state = self.state.lock();
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let to = Some(state.1.display().to_string());
        let (state, to, bytes, bytes_total, seconds, reason) = match &state.0 {
            State::Idle => ("none", None, None, None, None, None),
            State::Running => ("running", to, Some(done), Some(total), None, None),
            State::Done { bytes, seconds } => ("done", to, Some(*bytes), Some(*bytes), Some(*seconds), None),
            State::Failed(reason) => ("failed", to, None, None, None, Some(reason)),
        };
        json!({"state": state, "to": to, "bytes": bytes, "bytes_total": bytes_total, "seconds": seconds, "reason": reason})
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn make(&self, to: &Path) -> anyhow::Result<()> {
        let Source { journals, journal_folders, .. } = &self.source;
        let made = rfc3339(SystemTime::now());
        // Objects that the journals name at their indexes are not to go before they are copied.
        let _holds: Vec<ArchiveHold> = journals.iter().map(ArchiveHold::new).collect();
        let pinned = Pins::of_all(journals, journal_folders)?;
        self.total.store(pinned.iter().map(Pins::sealed_bytes).sum(), Ordering::Relaxed);
        let mut parts = Vec::new();
        for (number, pins) in pinned.iter().enumerate() {
            parts.push(self.journal(number, pins, to).with_context(|| format!("journal {number}"))?);
        }
        let mut objects = Vec::new();
        for number in 0..pinned.len() {
            self.objects(number, to, &mut objects).with_context(|| format!("journal {number}"))?;
        }
        let meta = fs::read_to_string(self.source.folder.join("meta.toml")).context("meta.toml")?;
        write_durably(to, "meta.toml", &meta)?;
        sync_all(to)?;
        prove(&DataFolder::look_unfinished(to)?, &self.source.settings)
            .context("no broker would start with this backup")?;
        let manifest = Manifest {
            format_version: FORMAT_VERSION,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            made,
            cluster_id: self.source.cluster_id.clone(),
            journals: parts,
            objects,
        };
        write_durably(to, manifest::NAME, &toml::to_string(&manifest)?)
    }

    fn journal(&self, number: usize, pins: &Pins, to: &Path) -> anyhow::Result<JournalPart> {
        let folder = to.join(format!("journal-{number}"));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let mut files = Vec::new();
        for name in &pins.pinned.sealed {
            let bytes = self.take(&pins.names.0.join(name), &folder.join(name))?;
            files.push(FilePart { name: name.clone(), bytes, used: bytes });
        }
        let progress = |bytes| {
            self.total.fetch_add(bytes, Ordering::Relaxed);
            self.advance(bytes);
        };
        let cut = pins.pinned.copy_open(&pins.names.0, &folder, self.source.mode, &progress)?;
        files.extend(cut.files.into_iter().map(|(name, used, bytes)| FilePart { name, bytes, used }));
        Ok(JournalPart { number, uuid: pins.pinned.journal.to_string(), index: pins.pinned.until.0, files })
    }

    /// The objects that a journal names at its index, as the backup has it. Without one of them it would be no backup.
    fn objects(&self, number: usize, to: &Path, parts: &mut Vec<ObjectPart>) -> anyhow::Result<()> {
        let named = journal::named_objects(&to.join(format!("journal-{number}")), number)?;
        self.total.fetch_add(named.iter().map(|object| object.bytes).sum(), Ordering::Relaxed);
        for NamedObject { name, bytes, log, base } in named {
            let (source, target) = (self.source.archive.join(&name), to.join("archive").join(&name));
            let shown = || format!("archive object {} ({log} from offset {base})", source.display());
            let found = fs::metadata(&source).with_context(shown)?.len();
            if found != bytes {
                bail!("{} is {found} bytes long, and has {bytes} in the journal's record", shown());
            }
            fs::create_dir_all(target.parent().unwrap_or(to))?;
            self.take(&source, &target).with_context(shown)?;
            parts.push(ObjectPart { name, bytes });
        }
        Ok(())
    }

    /// Links a file that nobody writes, or copies it where that cannot be. Returns its length.
    fn take(&self, from: &Path, to: &Path) -> anyhow::Result<u64> {
        let bytes = fs::metadata(from).with_context(|| from.display().to_string())?.len();
        if fs::hard_link(from, to).is_ok() {
            self.advance(bytes);
            return Ok(bytes);
        }
        copy(from, to, bytes, bytes, &|copied| self.advance(copied))?;
        Ok(bytes)
    }
}

/// Is it part of half of a backup? A disk that is full of half of one helps nobody, and the next may go to the same place. The folder was empty
/// when it began; what others have put there since stays.
fn is_ours(name: &str) -> bool {
    name.starts_with("journal-") || ["archive", "meta.toml", "meta.toml.new", "backup.toml.new"].contains(&name)
}

/// Second names of a journal's files, as long as this lives.
struct Pins {
    names: PinnedFolder,
    pinned: Pinned,
}

/// A folder of second names, which goes with this.
struct PinnedFolder(PathBuf);

impl PinnedFolder {
    fn make(journal: &Path) -> anyhow::Result<Self> {
        let all = journal.join(PINNED);
        remove_names(&all);
        Self::make_beside(&all)
    }

    /// Beside what could not be removed.
    fn make_beside(all: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(all).with_context(|| all.display().to_string())?;
        for number in 0u32.. {
            let folder = all.join(number.to_string());
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(folder.clone())).with_context(|| folder.display().to_string()),
            }
        }
        bail!("{} is full of folders", all.display())
    }
}

impl Drop for PinnedFolder {
    fn drop(&mut self) {
        remove_names(&self.0);
        // Unless something of an earlier one is beside it.
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

fn remove_names(folder: &Path) {
    if let Err((path, error)) = clear(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), "the second name that a backup gave to a file cannot be removed, and keeps its space: {error}");
    }
}

/// Removes all of a folder that can be removed; the first that cannot is the error.
fn clear(folder: &Path) -> Result<(), (PathBuf, io::Error)> {
    let named = |error| (folder.to_owned(), error);
    if fs::symlink_metadata(folder).map_err(named)?.is_symlink() {
        // What it leads to is somebody else's.
        return fs::remove_file(folder).map_err(named);
    }
    let mut stays = Ok(());
    for entry in fs::read_dir(folder).map_err(named)? {
        let path = entry.map_err(named)?.path();
        let removed = if path.is_dir() { clear(&path) } else { fs::remove_file(&path).map_err(|error| (path, error)) };
        stays = stays.and(removed);
    }
    stays.and_then(|()| fs::remove_dir(folder).map_err(named))
}

impl Pins {
    /// Of all journals at one moment: a transaction over several is in all of them or in none, and so is what was done because of
    /// something.
    fn of_all(journals: &[Arc<Journal>], folders: &[PathBuf]) -> anyhow::Result<Vec<Self>> {
        let folders = folders.iter().map(|folder| PinnedFolder::make(folder)).collect::<anyhow::Result<Vec<_>>>()?;
        let wanted: Vec<(&Journal, &Path)> =
            journals.iter().map(|journal| &**journal).zip(folders.iter().map(|folder| &*folder.0)).collect();
        let pinned = journal::pin_together(&wanted)?;
        Ok(folders.into_iter().zip(pinned).map(|(names, pinned)| Self { names, pinned }).collect())
    }

    fn sealed_bytes(&self) -> u64 {
        self.pinned
            .sealed
            .iter()
            .filter_map(|name| fs::metadata(self.names.0.join(name)).ok())
            .map(|data| data.len())
            .sum()
    }
}

/// Copies the first `used` bytes of a file, makes the copy `bytes` long and flushes it.
fn copy(from: &Path, to: &Path, used: u64, bytes: u64, progress: &dyn Fn(u64)) -> anyhow::Result<()> {
    let shown = || format!("{} to {}", from.display(), to.display());
    let mut copied = File::create_new(to).with_context(|| to.display().to_string())?;
    let mut source = File::open(from).with_context(|| from.display().to_string())?.take(used);
    let mut piece = vec![0; PIECE_BYTES];
    let mut all = 0;
    loop {
        let got = source.read(&mut piece).with_context(shown)?;
        if got == 0 {
            break;
        }
        copied.write_all(&piece[..got]).with_context(shown)?;
        all += got as u64;
        progress(got as u64);
    }
    if all != used {
        bail!("{}: {all} bytes long, it was {used}", from.display());
    }
    copied.set_len(bytes).and_then(|()| copied.sync_all()).with_context(shown)
}

/// Flushes a folder and those in it.
pub fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
