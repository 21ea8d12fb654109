//! Large files that nobody has open go bit by bit. A file system that tells the device of unused blocks (ext4 with `discard`) does so when
//! it commits its own journal, and flushes wait for that: up to 35 ms for 256 MiB at once, nothing that could be measured
//! for 8 MiB.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

/// Begins the names of files that are on their way out; the next start removes what a crash leaves of them.
pub(super) const PREFIX: &str = "dead-";
/// What is given back at a time, …
const STEP_BYTES: u64 = 8 << 20;
/// … and how long to wait then: about 1 GB/s.
const PAUSE: Duration = Duration::from_millis(5);

/// Removes files on a thread of its own, which begins with the first one.
#[derive(Default)]
pub(super) struct Remover {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    files: Option<Sender<PathBuf>>,
    number: u64,
}

impl Remover {
    /// Takes the file out of the way at once; its space follows.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        if fs::metadata(path)?.len() <= STEP_BYTES {
            return fs::remove_file(path);
        }
        let mut inner = self.inner.lock();
        let dead = loop {
            inner.number += 1;
            let dead = path.with_file_name(format!("{PREFIX}{}", inner.number));
            if !dead.try_exists()? {
                break dead;
            }
        };
        fs::rename(path, &dead)?;
        inner.give(dead)
    }

    /// What an earlier process left.
    pub fn remove_rest(&self, dead: PathBuf) -> io::Result<()> {
        self.inner.lock().give(dead)
    }
}

impl Inner {
    fn give(&mut self, dead: PathBuf) -> io::Result<()> {
        if self.files.is_none() {
            let (sender, files) = channel();
            if std::thread::Builder::new().name("remover".to_owned()).spawn(move || run(&files)).is_ok() {
                self.files = Some(sender);
            }
        }
        match &self.files {
            Some(files) if files.send(dead.clone()).is_ok() => Ok(()),
            _ => fs::remove_file(dead),
        }
    }
}

fn run(files: &Receiver<PathBuf>) {
    for dead in files {
        if let Err(error) = shrink(&dead).and_then(|()| fs::remove_file(&dead))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %dead.display(), %error, "the space of a dead segment is not given back before the next start");
        }
    }
}

fn shrink(dead: &Path) -> io::Result<()> {
    // Its old name may not come back with a part of it.
    if let Some(folder) = dead.parent() {
        fs::File::open(folder)?.sync_all()?;
    }
    let file = OpenOptions::new().write(true).open(dead)?;
    let mut size = file.metadata()?.len();
    while size > STEP_BYTES {
        size -= STEP_BYTES;
        file.set_len(size)?;
        file.sync_all()?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::disk::{IoMode, RealStorage, Storage};

    fn until_empty(folder: &Path) {
        let began = Instant::now();
        while fs::read_dir(folder).expect("a folder").next().is_some() {
            assert!(began.elapsed() < Duration::from_secs(30), "files stay");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_discarded_file_is_out_of_the_way_at_once_and_gone_soon() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it opens");
        for size in [4096, 3 * STEP_BYTES + 4096] {
            for _ in 0..2 {
                storage.create("segment-1", size).expect("space");
                storage.discard("segment-1").expect("it goes");
                assert!(storage.list().expect("a list").is_empty());
            }
        }
        until_empty(folder.path());
        assert!(storage.discard("segment-1").is_err(), "there is none");
    }

    #[test]
    fn what_an_earlier_process_left_goes_with_the_next_start() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["dead-1", "dead-7"] {
            fs::File::create(folder.path().join(name)).and_then(|file| file.set_len(20 << 20)).expect("a file");
        }
        let storage = RealStorage::open(folder.path(), IoMode::Buffered).expect("it opens");
        storage.create("segment-1", 20 << 20).expect("space");
        storage.discard("segment-1").expect("it goes");
        until_empty(folder.path());
    }
}
