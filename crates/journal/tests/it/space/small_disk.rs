//! A disk of a given size, on which some files may be immutable.

use super::*;

/// A disk of so many bytes.
pub(super) struct SmallDisk {
    storage: RealStorage,
    folder: PathBuf,
    capacity: u64,
    kept: Arc<Kept>,
}

pub(super) struct OnSmallDisk {
    file: Arc<dyn File>,
    folder: PathBuf,
    capacity: u64,
    kept: Arc<Kept>,
}

/// Files that only keep space, and what may be taken.
pub(super) struct Kept {
    /// Length to which what is kept for checkpoints was cut or grown last, at least.
    pub(super) least: AtomicU64,
    /// Name of one that is immutable.
    pub(super) stuck: Mutex<&'static str>,
    /// What the files may take, if that is less than the disk has.
    pub(super) quota: AtomicU64,
    /// So many exchanges of names are done and said to have failed.
    pub(super) unanswered: AtomicU64,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            least: AtomicU64::new(u64::MAX),
            stuck: Mutex::new(""),
            quota: AtomicU64::new(u64::MAX),
            unanswered: AtomicU64::new(0),
        }
    }
}

impl Kept {
    fn has_room(&self, folder: &Path, more: u64, capacity: u64) -> io::Result<()> {
        let is_there = used_bytes(folder) + more <= capacity.min(self.quota.load(Ordering::SeqCst));
        if is_there { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
}

/// What all files of a folder take, also those on their way out.
pub(super) fn used_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok);
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

impl SmallDisk {
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(OnSmallDisk {
            file,
            folder: self.folder.clone(),
            capacity: self.capacity,
            kept: Arc::clone(&self.kept),
        })
    }

    fn change(&self, name: &str) -> io::Result<()> {
        if *self.kept.stuck.lock() == name { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
    }
}

impl Storage for SmallDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        self.kept.has_room(&self.folder, size, self.capacity)?;
        Ok(self.wrap(self.storage.create(name, size)?))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.change(name)?;
        Ok(self.wrap(self.storage.open(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(from)?;
        self.change(to)?;
        self.storage.rename(from, to)
    }
    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.change(one)?;
        self.change(other)?;
        self.storage.exchange(one, other)?;
        let answer = self.kept.unanswered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        answer.map_or(Ok(()), |_| Err(io::Error::from_raw_os_error(libc::EIO)))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(name)?;
        self.storage.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.storage.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.capacity.saturating_sub(used_bytes(&self.folder)))
    }
}

impl File for OnSmallDisk {
    fn name(&self) -> String {
        self.file.name()
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(position, into)
    }
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(position, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn allocate(&self, size: u64) -> io::Result<()> {
        let more = size.saturating_sub(self.file.size()?);
        if more > 0 {
            self.kept.has_room(&self.folder, more, self.capacity)?;
        }
        if self.name() == "reserve" {
            self.kept.least.fetch_min(size, Ordering::SeqCst);
        }
        self.file.allocate(size)
    }
    fn is_linked(&self) -> io::Result<bool> {
        self.file.is_linked()
    }
    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        self.file.raw_fd()
    }
}

pub(super) fn open_small(folder: &Path, capacity: u64) -> Node {
    open_small_with(folder, capacity, Arc::new(MemoryArchive::default()), small())
}

pub(super) fn open_small_with(
    folder: &Path,
    capacity: u64,
    archive: Arc<dyn ArchiveStore>,
    config: JournalConfig,
) -> Node {
    start_small(folder, capacity, archive, config, Arc::default())
}

pub(super) fn start_small(
    folder: &Path,
    capacity: u64,
    archive: Arc<dyn ArchiveStore>,
    config: JournalConfig,
    kept: Arc<Kept>,
) -> Node {
    let storage = RealStorage::open(folder, IoMode::Buffered).expect("a folder");
    let storage = SmallDisk { storage, folder: folder.to_owned(), capacity, kept };
    let submitter = submitter(IoMode::Buffered).expect("always there");
    Node::start(Arc::new(storage), archive, submitter, config).expect("it opens")
}
