//! Folders that are half of something: a restore, what is salvaged, or a backup that is being made, or broke off.
//!
//! A mark is a small file in the folder, which its maker holds locked as long as it lives.
//!
//! I1 A mark comes into an empty folder before anything else does, by one step, under its own name: a kill leaves either an empty folder or a
//!    marked one.
//! I2 It goes last, after all else is durable, or after all else is removed.
//! I3 Who begins again keeps the mark that is there. It is his only while it is locked by him under its name: its maker may have been done and
//!    have removed it meanwhile.
//! I4 No broker and no command opens a folder that is marked, except its maker. A backup is whole as soon as its manifest is there.
//!
//! `NAME.new` alone in a folder is what a kill left of a release that wrote the mark beside itself and renamed it. With other files beside it, it is
//! no mark: a broker was started since, and the folder is its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::backup::manifest;
use crate::output;

/// How often, and how long apart, a mark is tried that somebody may hold who only looks.
const LOCK_TRIES: usize = 20;
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// What is made in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Restore,
    Salvage,
    Backup,
}

/// What is found of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    No,
    /// By a process that has ended before it was done.
    Left,
    /// By one that still is at it.
    Held,
}

/// A marked folder. Dropped, it stays marked.
pub struct Mark {
    folder: PathBuf,
    work: Work,
    /// It was there before: so may be half of something.
    was_left: bool,
    /// Open files hold locks.
    file: File,
}

impl Work {
    const ALL: [Self; 3] = [Self::Restore, Self::Salvage, Self::Backup];

    /// The name of its mark.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restore => "restoring",
            Self::Salvage => "salvaging",
            Self::Backup => "backup.unfinished",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Salvage => "salvage",
            Self::Backup => "backup",
        }
    }

    fn older_name(self) -> String {
        format!("{}.new", self.name())
    }

    /// Is a folder marked?
    pub fn look(self, folder: &Path) -> Marked {
        let path = folder.join(self.name());
        match File::open(&path) {
            Ok(file) if is_held(&file) => Marked::Held,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let older = self.older_name();
                let found: Vec<String> = names(folder).take(2).collect();
                if found == [older] { Marked::Left } else { Marked::No }
            }
            Ok(_) => Marked::Left,
            // One that cannot be opened is there all the same. Of a folder that nobody may enter that is not known: who goes on is told so by the system.
            Err(_) => {
                if path.symlink_metadata().is_ok() {
                    Marked::Left
                } else {
                    Marked::No
                }
            }
        }
    }

    /// What a start says.
    fn refusal(self, marked: Marked) -> &'static str {
        match (self, marked) {
            (Self::Restore, Marked::Held) => "a backup is being restored to it; wait for the end of `mainstem restore`",
            (Self::Restore, _) => {
                "it holds half of a backup: a restore was interrupted; run `mainstem restore` to it again, or remove it"
            }
            (Self::Salvage, Marked::Held) => "a salvage writes to it; wait for the end of `mainstem journal salvage`",
            (Self::Salvage, _) => {
                "it holds half of what a salvage was to write; run `mainstem journal salvage` to it again, or remove it"
            }
            (Self::Backup, Marked::Held) => "a broker makes a backup to it; wait for the end of `mainstem backup`",
            (Self::Backup, _) => {
                "it holds a backup that was not finished; the next `mainstem backup` to it begins anew, or remove it"
            }
        }
    }
}

/// Is a folder more than half of something? One that is not there is.
///
/// # Errors
/// It is not; the error says what makes it whole.
pub fn check(folder: &Path) -> anyhow::Result<()> {
    let is_whole = |work| work == Work::Backup && folder.join(manifest::NAME).exists();
    let all = Work::ALL.into_iter().filter(|work| !is_whole(*work));
    match all.map(|work| (work, work.look(folder))).find(|(_, marked)| *marked != Marked::No) {
        Some((work, marked)) => bail!("--data {}: {}", folder.display(), work.refusal(marked)),
        None => Ok(()),
    }
}

/// Marks a folder that is empty, or holds half of the same work that broke off: that is removed.
///
/// # Errors
/// There is something else in the folder; another process is at it. Those of the file system.
pub fn mark(folder: &Path, work: Work, text: &str) -> anyhow::Result<Mark> {
    let mark = Mark::put(folder, work, text)?;
    if !mark.was_left {
        return Ok(mark);
    }
    output::say(&format!("half of an earlier {} is removed from {}", work.noun(), folder.display()));
    mark.begin_anew(|_| true)
}

impl Mark {
    /// Marks a folder that is empty, or takes over the mark that is in it; `text` is for those who look into the folder. When this returns the mark
    /// is durable.
    ///
    /// # Errors
    /// The folder is not empty; another process has the mark. Those of the file system.
    pub fn put(folder: &Path, work: Work, text: &str) -> anyhow::Result<Self> {
        for _ in 0..LOCK_TRIES {
            if let Some(mark) = Self::try_to_put(folder, work, text)? {
                return Ok(mark);
            }
            std::thread::sleep(LOCK_WAIT);
        }
        bail!("another process is at work in {}", folder.display())
    }

    /// `None`: another process has the mark, or has just made or removed it: what is in the folder now is to be looked at again.
    fn try_to_put(folder: &Path, work: Work, text: &str) -> anyhow::Result<Option<Self>> {
        let path = folder.join(work.name());
        let shown = || path.display().to_string();
        let was_left = match work.look(folder) {
            Marked::Held => return Ok(None),
            Marked::Left => true,
            Marked::No => {
                check_empty(folder, &[])?;
                false
            }
        };
        // What an earlier release left has another name.
        let is_new = !was_left || !path.exists();
        let file = match OpenOptions::new().write(true).create_new(is_new).open(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => return Ok(None),
            opened => opened.with_context(shown)?,
        };
        if is_held(&file) || !is_at(&file, &path) {
            return Ok(None);
        }
        let mut mark = Self { folder: folder.to_owned(), work, was_left, file };
        let file = &mut mark.file;
        let written = file
            .set_len(0)
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_with_parent(folder));
        // A broker that was started meanwhile has either seen the mark, or is seen here.
        let older = work.older_name();
        let others: &[&str] = if was_left { &[work.name(), &older] } else { &[work.name()] };
        let outcome =
            written.with_context(shown).and_then(|()| if is_new { check_empty(folder, others) } else { Ok(()) });
        match outcome {
            Ok(()) => Ok(Some(mark)),
            Err(error) if !is_new => Err(error),
            Err(error) => {
                let _ = mark.lift();
                Err(error)
            }
        }
    }

    /// The folder is whole, or empty: what was done in it is durable.
    ///
    /// # Errors
    /// Those of the file system; the folder stays marked.
    pub fn lift(self) -> io::Result<()> {
        fs::remove_file(self.folder.join(self.work.name()))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Removes what a mark that was left said was half of something, what is in the folder and `is_ours`.
    ///
    /// # Errors
    /// There is more in the folder, which stays, and is marked no more. Those of the file system; the folder stays marked.
    pub fn begin_anew(self, is_ours: impl Fn(&str) -> bool) -> anyhow::Result<Self> {
        let shown = || format!("{}: half of what was made there cannot be removed", self.folder.display());
        self.empty(is_ours).with_context(shown)?;
        match check_empty(&self.folder, &[self.work.name()]) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.lift()?;
                Err(error)
            }
        }
    }

    /// Removes all but the mark, as far as that can be done; the first error.
    fn empty(&self, is_ours: impl Fn(&str) -> bool) -> io::Result<()> {
        let mut outcome = Ok(());
        let is_removed =
            |name: &String| *name != self.work.name() && (*name == self.work.older_name() || is_ours(name));
        for name in names(&self.folder).filter(is_removed) {
            let path = self.folder.join(&name);
            let is_folder = fs::symlink_metadata(&path).is_ok_and(|data| data.is_dir());
            let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            outcome = outcome.and(removed);
        }
        outcome
    }

    /// Removes what is in the folder and `is_ours`, then the mark. What cannot be removed stays marked.
    pub fn clear(self, is_ours: impl Fn(&str) -> bool) {
        let _ = self.empty(is_ours).and_then(|()| self.lift());
    }
}

/// Is there nothing in a folder but files of these names?
fn check_empty(folder: &Path, but: &[&str]) -> anyhow::Result<()> {
    fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    if names(folder).any(|name| !but.contains(&name.as_str())) {
        bail!("{} is not empty", folder.display());
    }
    Ok(())
}

fn names(folder: &Path) -> impl Iterator<Item = String> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// What is new in a folder stays there, and so does the folder. The one that it is in may be another user's.
fn sync_with_parent(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()?;
    let _ = folder
        .canonicalize()
        .and_then(|folder| File::open(folder.parent().unwrap_or(&folder)))
        .and_then(|parent| parent.sync_all());
    Ok(())
}

/// Is it still the file of this name? Who had it locked may have removed it since it was opened.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |data: fs::Metadata| (data.dev(), data.ino());
    file.metadata().map(place).is_ok_and(|opened| fs::metadata(path).map(place).is_ok_and(|named| named == opened))
}

/// Has another process locked a file? Otherwise it is locked by this one, until the file is closed. A file system without locks has none that
/// another could hold.
fn is_held(file: &File) -> bool {
    // SAFETY: plain system call on an open descriptor.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    !locked && io::Error::last_os_error().kind() == ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests;
