//! An archive in a folder, so that its objects are damaged like any other file.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use journal::ArchiveStore;

pub struct FolderStore(pub PathBuf);

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { walk(&entry.path(), found) } else { found.push(entry.path()) }
    }
}

/// All files below a folder, in order.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(folder, &mut found);
    found.sort();
    found
}

impl ArchiveStore for FolderStore {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a folder"))?;
        fs::write(path, bytes)
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = fs::File::open(self.0.join(name))?;
        let mut filled = 0;
        while filled < into.len() {
            match file.read_at(&mut into[filled..], position + filled as u64)? {
                0 => break,
                got => filled += got,
            }
        }
        Ok(filled)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let all = files(&self.0.join(prefix)).into_iter();
        Ok(all.map(|path| path.strip_prefix(&self.0).expect("inside").to_string_lossy().into_owned()).collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
