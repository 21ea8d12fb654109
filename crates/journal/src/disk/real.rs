//! The real file system: files opened with `O_DIRECT` where the I/O mode wants it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::remover::{Remover, exchange, is_dead, rename_by};
use super::{File, IoMode, SECTOR, Storage};

/// A folder of the machine's file system.
pub struct RealStorage {
    folder: PathBuf,
    direct: bool,
    read_only: bool,
    remover: Remover,
    /// The folder itself, open from its first sync on: a sync needs no descriptor then.
    opened: OnceLock<fs::File>,
}

impl RealStorage {
    /// Opens `folder`, creating it if it is new.
    ///
    /// # Errors
    /// Those of creating and listing the folder.
    pub fn open(folder: &Path, mode: IoMode) -> io::Result<Self> {
        let storage = Self::beside(folder, mode)?;
        for name in storage.names()?.into_iter().filter(|name| is_dead(name)) {
            storage.remover.remove_rest(folder.join(name))?;
        }
        Ok(storage)
    }

    /// Beside another that removes what is dead in the folder.
    pub(super) fn beside(folder: &Path, mode: IoMode) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let (folder, direct) = (folder.to_owned(), mode != IoMode::Buffered);
        Ok(Self { folder, direct, read_only: false, remover: Remover::default(), opened: OnceLock::new() })
    }

    /// A folder that is only read, through the page cache.
    pub fn read_only(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            direct: false,
            read_only: true,
            remover: Remover::default(),
            opened: OnceLock::new(),
        }
    }

    /// A folder that is only read, in an I/O mode.
    pub fn reading(folder: &Path, mode: IoMode) -> Self {
        Self { direct: mode != IoMode::Buffered, ..Self::read_only(folder) }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(!self.read_only);
        if self.direct {
            options.custom_flags(libc::O_DIRECT);
        }
        options
    }

    fn file(&self, file: fs::File, name: &str) -> Arc<dyn File> {
        Arc::new(RealFile { file, name: self.folder.join(name), direct: self.direct })
    }
}

impl Storage for RealStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.names()?;
        names.retain(|name| !is_dead(name));
        Ok(names)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        let path = self.folder.join(name);
        let file = self.options().create_new(true).open(&path).map_err(used_up)?;
        if let Err(error) = allocate(&file, size) {
            // What cannot be removed is found under its name by the next attempt.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(self.file(file, name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.options().open(self.folder.join(name))?;
        Ok(self.file(file, name))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.options().write(false).open(self.folder.join(name))?;
        Ok(self.file(file, name))
    }

    fn link(&self, name: &str, path: &Path) -> io::Result<()> {
        rename_by(|from, to| fs::hard_link(from, to), &self.folder.join(name), path)
    }

    fn copy(&self, name: &str, path: &Path) -> io::Result<()> {
        let copied = fs::File::open(self.folder.join(name)).and_then(|mut from| {
            // What has that name already may be the file itself.
            let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            io::copy(&mut from, &mut to)?;
            to.sync_all()
        });
        copied.map_err(used_up)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        rename_by(|from, to| fs::rename(from, to), &self.folder.join(from), &self.folder.join(to)).map_err(used_up)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        rename_by(exchange, &self.folder.join(one), &self.folder.join(other)).map_err(used_up)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn discard(&self, name: &str, held: Option<Arc<dyn File>>) -> io::Result<()> {
        self.remover.remove(&self.folder.join(name), held)
    }

    fn replace(&self, from: &str, to: &str, held: Arc<dyn File>) -> io::Result<()> {
        self.remover.replace(&self.folder.join(from), &self.folder.join(to), held).map_err(used_up)
    }

    fn dead_bytes(&self) -> u64 {
        self.remover.dead_bytes()
    }

    fn allow_dead_bytes(&self, bytes: u64) {
        self.remover.allow(bytes);
    }

    fn reads_from_cache(&self) -> bool {
        !self.direct
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = match self.opened.get() {
            Some(folder) => folder,
            None => {
                let folder = fs::File::open(&self.folder)?;
                self.opened.get_or_init(|| folder)
            }
        };
        folder.sync_all().map_err(used_up)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        available_bytes(&self.folder)
    }
}

/// What is free on the file system of a file or folder.
pub(super) fn available_bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an all-zero statvfs is a valid value to be overwritten.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat.f_bavail * stat.f_frsize)
}

fn allocate(file: &fs::File, size: u64) -> io::Result<()> {
    if size > 0 {
        // SAFETY: plain system call on an open descriptor.
        let failed = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size as libc::off_t) } != 0;
        let error = io::Error::last_os_error();
        if failed && error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(used_up(error));
        }
    }
    file.set_len(size).map_err(used_up)
}

/// A quota that is used up is a full disk.
fn used_up(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => io::Error::new(io::ErrorKind::StorageFull, error),
        _ => error,
    }
}

struct RealFile {
    file: fs::File,
    name: PathBuf,
    direct: bool,
}

/// Memory aligned for `O_DIRECT`, for callers whose own is not.
struct Bounce {
    memory: Vec<u8>,
    skip: usize,
}

impl Bounce {
    fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + SECTOR];
        let skip = memory.as_ptr().align_offset(SECTOR);
        Self { memory, skip }
    }
    fn range(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + bytes]
    }
}

fn aligned(position: u64, bytes: &[u8]) -> bool {
    position.is_multiple_of(SECTOR as u64)
        && bytes.len().is_multiple_of(SECTOR)
        && (bytes.as_ptr() as usize).is_multiple_of(SECTOR)
}

impl RealFile {
    /// `pread` until `into` is full or the file ends.
    fn read_fully(&self, mut position: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.file.read_at(&mut into[filled..], position) {
                Ok(0) => break,
                Ok(got) => {
                    filled += got;
                    position += got as u64;
                    if self.direct && got % SECTOR != 0 {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl File for RealFile {
    fn name(&self) -> String {
        self.name.display().to_string()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        if !self.direct || aligned(position, into) {
            return self.read_fully(position, into);
        }
        let start = position / SECTOR as u64 * SECTOR as u64;
        let skip = (position - start) as usize;
        let span = (skip + into.len()).div_ceil(SECTOR) * SECTOR;
        let mut bounce = Bounce::new(span);
        let got = self.read_fully(start, bounce.range(span))?;
        let usable = got.saturating_sub(skip).min(into.len());
        into[..usable].copy_from_slice(&bounce.range(span)[skip..skip + usable]);
        Ok(usable)
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(
            position.is_multiple_of(SECTOR as u64) && bytes.len().is_multiple_of(SECTOR),
            "writes are whole sectors"
        );
        if !self.direct || aligned(position, bytes) {
            return self.file.write_all_at(bytes, position).map_err(used_up);
        }
        let mut bounce = Bounce::new(bytes.len());
        let range = bounce.range(bytes.len());
        range.copy_from_slice(bytes);
        self.file.write_all_at(range, position).map_err(used_up)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data().map_err(used_up)
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 1)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        allocate(&self.file, size)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_used_up_is_a_full_disk() {
        let full = used_up(io::Error::from_raw_os_error(libc::EDQUOT));
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(full.to_string().contains("os error 122"), "{full}");
        assert_eq!(used_up(io::Error::from_raw_os_error(libc::EIO)).raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn a_copy_to_a_name_that_the_file_has_already_takes_nothing_from_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it is there");
        fs::write(folder.path().join("segment"), b"acknowledged").expect("written");
        let second = folder.path().join("second");
        storage.link("segment", &second).expect("linked");
        storage.link("segment", &second).expect("a link that is there already is done");
        assert_eq!(storage.copy("segment", &second).map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(fs::read(folder.path().join("segment")).expect("read"), b"acknowledged");
        let copy = folder.path().join("copy");
        storage.copy("segment", &copy).expect("copied");
        assert_eq!(fs::read(&copy).expect("read"), b"acknowledged");
    }
}
