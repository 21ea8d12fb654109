//! The log in a file: when it has grown to a size it is renamed to `FILE.1`, the one before to `FILE.2`, and so on; the oldest goes. Lines are
//! whole in one file, which is for its owner and his group: who collects logs is no owner of messages. When a line cannot be written (a full disk) it goes to stderr, and when
//! that is full too, or nobody reads it any more, the line is lost, which is counted: no broker ends because of its log. A thread of its own writes ([`log_queue`](crate::log_queue)). When the file has been
//! moved or deleted, a new one is begun when configuration is read again (SIGHUP), or the next time that it would be ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use tracing_subscriber::fmt::MakeWriter;

/// The owner writes, his group reads.
const OWNER_AND_GROUP: u32 = 0o640;

/// Lines that could be written nowhere.
static LINES_LOST: AtomicU64 = AtomicU64::new(0);

/// Lines of this process that could be written neither to the file nor to stderr, or not as fast as they came.
pub fn lines_lost() -> u64 {
    LINES_LOST.load(Ordering::Relaxed)
}

/// One more is lost.
pub fn note_lost() {
    LINES_LOST.fetch_add(1, Ordering::Relaxed);
}

/// Takes lines for stderr; what cannot be written is lost.
pub struct StderrWriter;

impl Write for StderrWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if io::stderr().write_all(line).is_err() {
            note_lost();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where, how long, how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    pub path: PathBuf,
    /// A file that has grown to this many bytes is ended.
    pub bytes_max: u64,
    /// Ended files that are kept.
    pub count: usize,
}

/// An open log.
#[derive(Clone)]
pub struct RotatingLog(Arc<Shared>);

struct Shared {
    /// Held while a line is written, which may take for ever on a disk that hangs.
    open: Mutex<Open>,
    /// It is to be looked whether the file is still the one of its name, before the next line.
    looks: AtomicBool,
}

struct Open {
    rules: LogFile,
    file: File,
    bytes: u64,
}

impl RotatingLog {
    /// Goes on where an earlier process ended.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn open(rules: LogFile) -> io::Result<Self> {
        let (file, bytes) = append_to(&rules.path)?;
        Ok(Self(Arc::new(Shared { open: Mutex::new(Open { rules, file, bytes }), looks: AtomicBool::new(false) })))
    }

    /// Goes on in the file of that name, if the one that is written was moved or deleted: who rotates logs from outside asks for it. While a line
    /// is being written this is left to who writes the next one: nobody waits.
    ///
    /// # Errors
    /// Those of opening the file; lines go on into the moved one.
    pub fn reopen(&self) -> io::Result<()> {
        self.0.looks.store(true, Ordering::SeqCst);
        match self.0.open.try_lock() {
            Ok(mut open) => self.0.look(&mut open),
            Err(TryLockError::Poisoned(open)) => self.0.look(&mut open.into_inner()),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }
}

impl Shared {
    fn look(&self, open: &mut Open) -> io::Result<()> {
        if self.looks.swap(false, Ordering::SeqCst) && !open.is_in_place() {
            (open.file, open.bytes) = append_to(&open.rules.path)?;
        }
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let is_new = !path.exists();
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    if is_new {
        file.set_permissions(fs::Permissions::from_mode(OWNER_AND_GROUP))?;
    }
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

impl Open {
    /// Has the file that is written still its name?
    fn is_in_place(&self) -> bool {
        let of = |data: fs::Metadata| (data.dev(), data.ino());
        fs::metadata(&self.rules.path).is_ok_and(|named| self.file.metadata().is_ok_and(|open| of(named) == of(open)))
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.rules.bytes_max {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let LogFile { path, count, .. } = &self.rules;
        if *count == 0 {
            self.file.set_len(0)?;
            self.bytes = 0;
            return Ok(());
        }
        // It may be gone: somebody moved or deleted it, or it could not be made anew after the last time.
        if path.exists() {
            for number in (1..*count).rev() {
                if numbered(path, number).exists() {
                    fs::rename(numbered(path, number), numbered(path, number + 1))?;
                }
            }
            fs::rename(path, numbered(path, 1))?;
        }
        (self.file, self.bytes) = append_to(path)?;
        Ok(())
    }
}

/// Takes one line at a time, as the formatter gives them.
pub struct LineWriter(Arc<Shared>);

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut open = self.0.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // One that cannot be opened is tried again when that is asked for.
        _ = self.0.look(&mut open);
        if open.write_line(line).is_err() {
            return StderrWriter.write(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for RotatingLog {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(path: &Path, bytes_max: u64, count: usize) -> LineWriter {
        RotatingLog::open(LogFile { path: path.to_owned(), bytes_max, count }).expect("it opens").make_writer()
    }

    #[test]
    fn files_are_ended_whole_and_the_oldest_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut writer = log(&path, 30, 2);
        for number in 0..10 {
            writer.write_all(format!("line {number} of ten\n").as_bytes()).expect("written");
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        for (file, lines) in [(path.clone(), [8, 9]), (numbered(&path, 1), [6, 7]), (numbered(&path, 2), [4, 5])] {
            assert_eq!(read(&file), lines.map(|number| format!("line {number} of ten\n")).concat());
        }
        assert!(!numbered(&path, 3).exists());
        drop(writer);
        let mut writer = log(&path, 60, 2);
        writer.write_all(b"line 10\n").expect("written");
        assert!(read(&path).ends_with("line 9 of ten\nline 10\n"), "a restart goes on in the same file");
    }

    #[test]
    fn a_file_that_is_gone_costs_no_older_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut writer = log(&path, 10, 3);
        for number in 0..4 {
            writer.write_all(format!("line {number}\n").as_bytes()).expect("written");
        }
        fs::remove_file(&path).expect("removable");
        for number in 4..6 {
            writer.write_all(format!("line {number}\n").as_bytes()).expect("written");
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let all = [path.clone(), numbered(&path, 1), numbered(&path, 2), numbered(&path, 3)].map(|path| read(&path));
        assert_eq!(all, ["line 5\n", "line 4\n", "line 2\n", "line 1\n"]);
    }

    #[test]
    fn a_file_that_was_moved_is_begun_anew_when_that_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = RotatingLog::open(LogFile { path: path.clone(), bytes_max: 1000, count: 3 }).expect("it opens");
        let mut writer = log.make_writer();
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        writer.write_all(b"one\n").expect("written");
        log.reopen().expect("it is there");
        writer.write_all(b"two\n").expect("written");
        fs::rename(&path, folder.path().join("moved")).expect("movable");
        writer.write_all(b"three\n").expect("written");
        log.reopen().expect("it opens");
        writer.write_all(b"four\n").expect("written");
        assert_eq!(
            (read(&folder.path().join("moved")), read(&path)),
            ("one\ntwo\nthree\n".to_owned(), "four\n".to_owned())
        );
    }

    #[test]
    fn nobody_waits_for_a_line_that_is_being_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = RotatingLog::open(LogFile { path: path.clone(), bytes_max: 1000, count: 3 }).expect("it opens");
        log.make_writer().write_all(b"one\n").expect("written");
        let writing = log.0.open.lock().expect("nobody writes");
        fs::rename(&path, folder.path().join("moved")).expect("movable");
        log.reopen().expect("left to who writes");
        assert!(!path.exists());
        drop(writing);
        log.make_writer().write_all(b"two\n").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "two\n");
    }

    #[test]
    fn without_older_files_it_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut writer = log(&path, 10, 0);
        for number in 0..3 {
            writer.write_all(format!("line {number}\n").as_bytes()).expect("written");
        }
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "line 2\n");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
