//! The mode of I/O on a disk that has no room.

use super::*;

/// What the disk refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refuses {
    /// Making a file.
    Creating,
    /// Writing one.
    Writing,
}

/// A folder of a disk that is full.
struct Full {
    folder: RealStorage,
    refuses: Refuses,
    /// What opening a file that is there ends with.
    opening: Result<(), io::ErrorKind>,
    /// Opening it for writing as well.
    opening_to_write: Result<(), io::ErrorKind>,
}

/// Writes fail.
#[derive(Default)]
struct TakesNothing(Vec<Completion>);

impl Submitter for TakesNothing {
    fn write(&mut self, op: WriteOp) {
        let done = self.write_now(op);
        self.0.push(done);
    }
    fn write_now(&mut self, op: WriteOp) -> Completion {
        Completion { token: op.token, result: Err(io::ErrorKind::StorageFull.into()) }
    }
    fn sync(&mut self, token: u64, _file: Arc<dyn File>) {
        self.0.push(Completion { token, result: Ok(()) });
    }
    fn poll(&mut self, _wait: Wait, done: &mut Vec<Completion>) {
        done.append(&mut self.0);
    }
    fn waker(&self) -> Waker {
        Arc::new(|| {})
    }
    fn capacity(&self) -> usize {
        1
    }
}

impl Storage for Full {
    fn list(&self) -> io::Result<Vec<String>> {
        self.folder.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        match self.refuses {
            Refuses::Creating => Err(io::ErrorKind::StorageFull.into()),
            Refuses::Writing => self.folder.create(name, size),
        }
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.opening.and(self.opening_to_write).map_err(io::Error::from)?;
        self.folder.open(name)
    }
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.opening.map_err(io::Error::from)?;
        self.folder.open_to_read(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.folder.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn a_full_disk_refuses_no_mode_that_opens_what_is_there() {
    for refuses in [Refuses::Creating, Refuses::Writing] {
        let folder = tempfile::tempdir().expect("a folder");
        let try_it = |opening, opening_to_write| {
            let folder = RealStorage::beside(folder.path(), IoMode::Buffered).expect("a folder");
            try_mode(&Full { folder, refuses, opening, opening_to_write }, Box::<TakesNothing>::default())
                .map_err(|error| error.kind())
        };
        let tried = |opening| try_it(opening, Ok(()));
        // Nothing is there: a new node does not start on a full disk.
        assert_eq!(tried(Ok(())), Err(io::ErrorKind::StorageFull), "{refuses:?}");
        std::fs::write(folder.path().join("segment-000000000001"), [0; SECTOR]).expect("written");
        assert_eq!(tried(Ok(())), Ok(()), "{refuses:?}");
        // A file system that has no direct I/O says so when a file is opened.
        assert_eq!(tried(Err(io::ErrorKind::InvalidInput)), Err(io::ErrorKind::InvalidInput), "{refuses:?}");
        // An immutable one can be read.
        assert_eq!(try_it(Ok(()), Err(io::ErrorKind::PermissionDenied)), Ok(()), "{refuses:?}");
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .expect("a folder")
            .filter_map(|entry| Some(entry.ok()?.file_name()))
            .collect();
        assert_eq!(left, ["segment-000000000001"], "{refuses:?}: nothing is left of a try");
    }
}

#[test]
fn a_mode_has_to_work_in_each_folder() {
    let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let both = [one.path().to_owned(), other.path().to_owned()];
    assert_eq!(probe(&both, Some(IoMode::Buffered)).expect("it works").0, IoMode::Buffered);
    // Where nothing can be written, whatever the mode: a file stands in the folder's place.
    let file = other.path().join("file");
    std::fs::write(&file, b"").expect("written");
    let refused =
        probe(&[one.path().to_owned(), file.clone()], Some(IoMode::Buffered)).expect_err("it does not work there");
    assert!(refused.to_string().contains(&file.display().to_string()), "{refused}");
    assert!(probe(&[one.path().to_owned(), file], None).is_err());
}
