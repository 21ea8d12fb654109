//! Who puts objects of a journal into an archive, and deletes them: one process, while it holds a lock. A restored backup and a copy of a data folder have
//! journals of the same ids, and a broker deletes the objects of its journals that these do not name.
//!
//! ```text
//! ARCHIVE/JOURNAL/…      objects
//! ARCHIVE/JOURNAL.lock   locked (flock) by who owns them; the data folder that is to have them
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, bail};

/// Held as long as this is there. Nothing is, where nobody can write.
pub struct OwnObjects(#[expect(dead_code, reason = "an open file holds its lock")] Option<File>);

impl OwnObjects {
    /// Those of `journal`, for the data folder `data`.
    ///
    /// # Errors
    /// Another process has them. Those of the file system, but that it is mounted for reading.
    pub fn take(archive: &Path, journal: &str, data: &Path) -> anyhow::Result<Self> {
        let path = archive.join(format!("{journal}.lock"));
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = match opened {
            Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => return Ok(Self(None)),
            opened => opened.with_context(|| path.display().to_string())?,
        };
        let taken = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            // Not every file system has locks; the broker starts all the same.
            Err(TryLockError::Error(error)) => {
                tracing::warn!(file = %path.display(), %error, "an archive cannot be locked: nothing keeps a second broker from it");
                true
            }
        };
        if !taken {
            let mut other = String::new();
            let _ = file.read_to_string(&mut other);
            bail!(
                "{} is locked: the objects of this journal are in use for {}; what was restored or copied from there needs an archive of its own (mainstem.archive.folder, or --archive of mainstem restore)",
                path.display(),
                other.trim()
            );
        }
        // Over what is there: it is for people to read, and a full disk may have no room for it.
        let text = format!("{}\n", std::path::absolute(data).unwrap_or_else(|_| data.to_owned()).display());
        let _ =
            file.rewind().and_then(|()| file.write_all(text.as_bytes())).and_then(|()| file.set_len(text.len() as u64));
        Ok(Self(Some(file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_one_owners_until_he_is_gone() {
        let archive = tempfile::tempdir().expect("a folder");
        let take = |data: &str| OwnObjects::take(archive.path(), "one", Path::new(data));
        let first = take("/a/much/longer/path").expect("they are nobody's");
        let refused = take("/b").err().expect("they are taken").to_string();
        assert!(refused.contains("one.lock is locked") && refused.contains("for /a/much/longer/path;"), "{refused}");
        OwnObjects::take(archive.path(), "other", Path::new("/b")).expect("another journal's");
        drop(first);
        let _second = take("/b").expect("they are free");
        assert!(take("/c").err().expect("taken").to_string().contains("for /b;"));
    }
}
