//! The data folder: its lock and its identity.
//!
//! ```text
//! lock        held while a broker runs; its process id
//! meta.toml   format_version, cluster_id, journals, journal_ids, checksum
//! journal-N/  one folder a journal
//! archive/    objects, unless they are elsewhere
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::backup::manifest;
use crate::unfinished;

/// The newest format that this release reads, and writes into folders that are finalized.
pub const FORMAT_VERSION: u32 = 1;

/// A folder that this process owns until it ends.
pub struct DataFolder {
    path: PathBuf,
    /// Told to clients.
    pub cluster_id: String,
    /// Number of journals, fixed at creation.
    pub journals: usize,
    /// What is written is readable for releases that read this format.
    pub format_version: u32,
    /// UUID of each journal; none before the first start of a release that notes them.
    pub journal_ids: Vec<String>,
    _lock: File,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Meta {
    format_version: u32,
    cluster_id: String,
    journals: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    journal_ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

impl Meta {
    fn new(format_version: u32, cluster_id: String, journals: usize, journal_ids: Vec<String>) -> Self {
        Self { format_version, cluster_id, journals, journal_ids, checksum: None }
    }

    /// FNV-1a of what it says.
    fn sum(&self) -> String {
        let said =
            format!("{}\n{}\n{}\n{}", self.format_version, self.cluster_id, self.journals, self.journal_ids.join(" "));
        let sum = said
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("{sum:016x}")
    }

    fn write(mut self, folder: &Path) -> anyhow::Result<()> {
        self.checksum = Some(self.sum());
        write_durably(folder, "meta.toml", &toml::to_string(&self)?)
    }
}

/// What this process creates from now on is for its user alone, in whatever folder: in what is stored are messages, and hashes and keys of passwords.
pub fn keep_private() {
    const OTHERS: libc::mode_t = 0o077;
    // SAFETY: plain system call.
    unsafe { libc::umask(OTHERS) };
}

/// Creates a folder that is not there yet, for its owner only. One that is there stays as it is.
///
/// # Errors
/// Those of the file system; something else has the name.
pub fn create_private(path: &Path) -> io::Result<()> {
    const OWNER: u32 = 0o700;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(OWNER).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        outcome => outcome,
    }
}

impl DataFolder {
    /// Locks the folder, and creates it with `journals` journals if it is new.
    pub fn open(path: &Path, journals: usize, fresh_cluster_id: &str) -> anyhow::Result<Self> {
        if path.exists() && !path.is_dir() {
            bail!("--data {} is no folder", path.display());
        }
        create_private(path).with_context(|| format!("--data {}", path.display()))?;
        // Before anything is written to it, and once more when no restore takes it for an empty one any more.
        unfinished::check(path)?;
        // No broker has had it; in a folder of one such a file means nothing.
        if path.join(manifest::NAME).exists() && !path.join("lock").exists() {
            bail!("--data {} is a backup, which stays as it is: restore it to a new folder", path.display());
        }
        let lock = take_lock(path)?;
        unfinished::check(path)?;
        let meta_path = path.join("meta.toml");
        let meta = if let Some(text) =
            unless_missing(fs::read_to_string(&meta_path)).with_context(|| meta_path.display().to_string())?
        {
            read_meta(&text, &meta_path)?
        } else if let Some(journal) = journal_without_meta(path).with_context(|| path.display().to_string())? {
            bail!(
                "--data {} has {journal} and no meta.toml, which says of which cluster it is and how many journals it has: copy meta.toml from a backup",
                path.display()
            );
        } else {
            tracing::info!(folder = %path.display(), "a new data folder");
            let new = || Meta::new(FORMAT_VERSION, fresh_cluster_id.to_owned(), journals, Vec::new());
            new().write(path)?;
            new()
        };
        if meta.journals != journals {
            bail!(
                "mainstem.journals = {journals} is not possible: {} was created with {}",
                path.display(),
                meta.journals
            );
        }
        Ok(Self::of(path, meta, lock))
    }

    fn of(path: &Path, meta: Meta, lock: File) -> Self {
        let Meta { format_version, cluster_id, journals, journal_ids, .. } = meta;
        Self { path: path.to_owned(), cluster_id, journals, format_version, journal_ids, _lock: lock }
    }

    /// Before journal `number` is opened: is it there, if it was?
    ///
    /// # Errors
    /// It is not; all files are another's.
    pub fn check_there(&self, number: usize) -> anyhow::Result<()> {
        let (path, Some(id)) = (self.journal(number), self.journal_ids.get(number)) else { return Ok(()) };
        let is_of_journal = |name: &str| ["segment-", "checkpoint"].iter().any(|start| name.starts_with(start));
        if names_in(&path).with_context(|| path.display().to_string())?.iter().any(|name| is_of_journal(name)) {
            let owners: Vec<String> = journal::owners(&path).iter().map(ToString::to_string).collect();
            return match owners.first() {
                Some(first) if !owners.contains(id) => self.check_owner(number, first),
                _ => Ok(()),
            };
        }
        bail!(
            "{} is empty, and meta.toml says that journal {id} is there: is its disk mounted? docs/operations/damage.md says what to do",
            path.display()
        )
    }

    /// Before anything is put into `archive`: a journal names so many objects in it; is the folder there that has them?
    ///
    /// # Errors
    /// It is not.
    pub fn check_archive(archive: &Path, journal: &str, objects: usize) -> anyhow::Result<()> {
        let folder = archive.join(journal);
        if objects == 0
            || unless_missing(fs::metadata(&folder))
                .with_context(|| folder.display().to_string())?
                .is_some_and(|found| found.is_dir())
        {
            return Ok(());
        }
        let path = archive.display();
        bail!(
            "{path} (mainstem.archive.folder) has no folder of journal {journal}, which names {objects} objects in it: is its disk mounted? docs/operations/damage.md says what to do"
        )
    }

    /// Is it the journal that was there?
    ///
    /// # Errors
    /// It is another.
    pub fn check_owner(&self, number: usize, found: &str) -> anyhow::Result<()> {
        match self.journal_ids.get(number) {
            Some(id) if id != found => {
                let path = self.journal(number);
                bail!(
                    "{} holds journal {found}, and meta.toml says that it is {id}; docs/operations/damage.md says what to do",
                    path.display()
                )
            }
            _ => Ok(()),
        }
    }

    /// Notes which journals there are, so that one that is not there is missed.
    ///
    /// # Errors
    /// Those of writing `meta.toml`.
    pub fn note_journals(&mut self, ids: Vec<String>) -> anyhow::Result<()> {
        if self.journal_ids != ids {
            Meta::new(self.format_version, self.cluster_id.clone(), self.journals, ids.clone()).write(&self.path)?;
            self.journal_ids = ids;
        }
        Ok(())
    }

    /// Makes the `meta.toml` in `to` of a folder in which journals are, when that has none that can be read: nobody knows then what the cluster was
    /// called.
    ///
    /// # Errors
    /// There is no journal. Those of writing.
    pub fn identify(path: &Path, to: &Path, cluster_id: String) -> anyhow::Result<()> {
        let journals = (0..).take_while(|number| path.join(format!("journal-{number}")).is_dir()).count();
        if journals == 0 {
            bail!("--data {} has no journal", path.display());
        }
        Meta::new(FORMAT_VERSION, cluster_id, journals, Vec::new()).write(to)
    }

    /// Is `meta.toml` as it was written?
    ///
    /// # Errors
    /// It is not, or not there.
    pub fn read(path: &Path) -> anyhow::Result<()> {
        let meta_path = path.join("meta.toml");
        let text = fs::read_to_string(&meta_path).with_context(|| meta_path.display().to_string())?;
        read_meta(&text, &meta_path).map(drop)
    }

    /// A folder that is there, for looking at it: a broker must not have it open, and none opens it meanwhile. Nothing is written, so that a
    /// disk will do that cannot be written any more. Of a backup nothing is locked.
    ///
    /// # Errors
    /// No data folder, half of one, of a newer release, or in use.
    pub fn look(path: &Path) -> anyhow::Result<Self> {
        unfinished::check(path)?;
        Self::look_unfinished(path)
    }

    /// The same for who makes it and has its mark.
    ///
    /// # Errors
    /// Like `look`.
    pub fn look_unfinished(path: &Path) -> anyhow::Result<Self> {
        let meta_path = path.join("meta.toml");
        let text = fs::read_to_string(&meta_path)
            .with_context(|| format!("--data {}: no data folder: {}", path.display(), meta_path.display()))?;
        let meta = read_meta(&text, &meta_path)?;
        let lock = match File::open(path.join("lock")) {
            Ok(mut lock) => {
                hold(&mut lock, libc::LOCK_SH, path)?;
                lock
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(&meta_path)?,
            Err(error) => return Err(error).with_context(|| path.join("lock").display().to_string()),
        };
        Ok(Self::of(path, meta, lock))
    }

    /// From now on it is of this format, which older releases may refuse.
    ///
    /// # Errors
    /// Those of writing `meta.toml`.
    pub fn finalize(&mut self, format_version: u32) -> anyhow::Result<()> {
        Meta::new(format_version, self.cluster_id.clone(), self.journals, self.journal_ids.clone())
            .write(&self.path)?;
        self.format_version = format_version;
        Ok(())
    }

    /// The folder of one journal.
    pub fn journal(&self, number: usize) -> PathBuf {
        self.path.join(format!("journal-{number}"))
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of archive objects, when no other is given.
    pub fn archive(&self) -> PathBuf {
        self.path.join("archive")
    }
}

/// What is not there is `None`; what cannot be read is an error, and not to be taken for missing.
pub(crate) fn unless_missing<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names in a folder; none when it is not there.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = unless_missing(fs::read_dir(folder))?.into_iter().flatten();
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The name of a journal with segments, if there is one: `meta.toml` is made before any.
fn journal_without_meta(path: &Path) -> io::Result<Option<String>> {
    let mut journals = names_in(path)?;
    journals.retain(|name| name.strip_prefix("journal-").is_some_and(|number| number.parse::<usize>().is_ok()));
    journals.sort_unstable();
    for journal in journals {
        if names_in(&path.join(&journal))?.iter().any(|name| name.starts_with("segment-")) {
            return Ok(Some(journal));
        }
    }
    Ok(None)
}

/// The cluster and the number of journals that a folder's `meta.toml` names.
///
/// # Errors
/// It is not there, not readable, or of a newer release.
pub fn meta_of(folder: &Path) -> anyhow::Result<(String, usize)> {
    let path = folder.join("meta.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let Meta { cluster_id, journals, .. } = read_meta(&text, &path)?;
    Ok((cluster_id, journals))
}

/// The version comes first: what else a newer release writes is not known.
fn read_meta(text: &str, path: &Path) -> anyhow::Result<Meta> {
    let shown = || path.display().to_string();
    let table = text.parse::<toml::Table>().with_context(shown)?;
    let found = table.get("format_version").and_then(toml::Value::as_integer).unwrap_or(0);
    if found > i64::from(FORMAT_VERSION) {
        bail!("{}: format version {found}, this release reads up to {FORMAT_VERSION}", path.display());
    }
    let meta: Meta = toml::from_str(text).with_context(shown)?;
    if meta.checksum.as_ref().is_some_and(|checksum| *checksum != meta.sum()) {
        bail!(
            "{}: its checksum does not fit; copy it from a backup, or put right what is wrong and take the line `checksum` out",
            path.display()
        );
    }
    Ok(meta)
}

/// Locks the file `lock` of a folder, for oneself or (`LOCK_SH`) with others.
fn hold(lock: &mut File, how: libc::c_int, path: &Path) -> anyhow::Result<()> {
    // SAFETY: plain system call on an open descriptor.
    if unsafe { libc::flock(lock.as_raw_fd(), how | libc::LOCK_NB) } != 0 {
        let mut holder = String::new();
        let _ = lock.read_to_string(&mut holder);
        let (shown, holder) = (path.display(), holder.trim());
        bail!(
            "--data {shown} is in use by the broker with process id {holder}, or by a command that looks at it; stop it, or give another folder"
        );
    }
    Ok(())
}

fn take_lock(path: &Path) -> anyhow::Result<File> {
    let lock_path = path.join("lock");
    let mut options = OpenOptions::new();
    let mut lock = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&lock_path)
        .with_context(|| lock_path.display().to_string())?;
    hold(&mut lock, libc::LOCK_EX, path)?;
    // Over what is there: where a quota is exceeded there is no block for it in place of one that is given back.
    let text = format!("{}\n", std::process::id());
    let written =
        lock.rewind().and_then(|()| lock.write_all(text.as_bytes())).and_then(|()| lock.set_len(text.len() as u64));
    written.with_context(|| lock_path.display().to_string())?;
    Ok(lock)
}

/// Writes a small file beside itself, flushes it and puts it in its place.
pub fn write_durably(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let (fresh, target) = (folder.join(format!("{name}.new")), folder.join(name));
    let write = || {
        let mut file = File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &target)?;
        File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("write {}", target.display()))
}

#[cfg(test)]
mod tests;
