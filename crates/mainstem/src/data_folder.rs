//! The data folder: its lock and its identity.
//!
//! ```text
//! lock        held while a broker runs; its process id
//! meta.toml   format_version, cluster_id, journals
//! journal-N/  one folder a journal
//! archive/    objects, unless they are elsewhere
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

const FORMAT_VERSION: u32 = 1;

/// A folder that this process owns until it ends.
pub struct DataFolder {
    path: PathBuf,
    /// Told to clients.
    pub cluster_id: String,
    /// Number of journals, fixed at creation.
    pub journals: usize,
    _lock: File,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Meta {
    format_version: u32,
    cluster_id: String,
    journals: usize,
}

impl DataFolder {
    /// Locks the folder, and creates it with `journals` journals if it is new.
    pub fn open(path: &Path, journals: usize, fresh_cluster_id: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("--data {}", path.display()))?;
        let lock = take_lock(path)?;
        let meta_path = path.join("meta.toml");
        let meta = if meta_path.exists() {
            let text = fs::read_to_string(&meta_path).with_context(|| meta_path.display().to_string())?;
            toml::from_str::<Meta>(&text).with_context(|| meta_path.display().to_string())?
        } else {
            let meta = Meta { format_version: FORMAT_VERSION, cluster_id: fresh_cluster_id.to_owned(), journals };
            write_durably(path, "meta.toml", &toml::to_string(&meta)?)?;
            meta
        };
        if meta.format_version > FORMAT_VERSION {
            bail!("{}: format version {}, this release reads up to {FORMAT_VERSION}", meta_path.display(), meta.format_version);
        }
        if meta.journals != journals {
            bail!("mainstem.journals = {journals} is not possible: {} was created with {}", path.display(), meta.journals);
        }
        Ok(Self { path: path.to_owned(), cluster_id: meta.cluster_id, journals: meta.journals, _lock: lock })
    }

    /// The folder of one journal.
    pub fn journal(&self, number: usize) -> PathBuf {
        self.path.join(format!("journal-{number}"))
    }

    /// The folder of archive objects, when no other is given.
    pub fn archive(&self) -> PathBuf {
        self.path.join("archive")
    }
}

fn take_lock(path: &Path) -> anyhow::Result<File> {
    let lock_path = path.join("lock");
    let mut options = OpenOptions::new();
    let mut lock =
        options.read(true).write(true).create(true).truncate(false).open(&lock_path).with_context(|| lock_path.display().to_string())?;
    // SAFETY: plain system call on an open descriptor.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let mut holder = String::new();
        let _ = lock.read_to_string(&mut holder);
        bail!("--data {} is in use by the broker with process id {}; stop it, or give another folder", path.display(), holder.trim());
    }
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())?;
    Ok(lock)
}

fn write_durably(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let (fresh, target) = (folder.join(format!("{name}.new")), folder.join(name));
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, &target)?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests;
