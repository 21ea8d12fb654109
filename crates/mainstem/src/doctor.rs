//! `mainstem doctor`: looks at the machine before or beside a broker, and says what to do about what it finds. It changes nothing but for
//! a file that it writes and removes again, to see how fast the disk is. Of a broker that runs on the data folder it looks at the process.

mod running;
mod system;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use journal::disk::{IoMode, probe};
use serde_json::json;
use types::ByteSize;

use crate::data_folder::DataFolder;
use crate::output;
use crate::unfinished;
use running::Holder;
use system::{huge_pages, locked_memory, memory, open_files, swap};

/// Written to see how fast the disk is: in all, at a time, and that many small ones, each flushed.
const WRITTEN_BYTES: u64 = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;
const FLUSHES: usize = 50;
const FLUSHED_BYTES: usize = 4096;
/// A disk that is slower makes clients wait.
const BYTES_PER_SECOND_MIN: u64 = 50 << 20;
const FLUSH_MAX: Duration = Duration::from_millis(20);
/// Free space below which a broker soon refuses data.
const FREE_BYTES_MIN: u64 = 2 << 30;
const FREE_BYTES_NEEDED: u64 = 600 << 20;
/// Files and folders that a file system must still have room for.
const NAMES_NEEDED: u64 = 1_000;
/// Files of the data folder that are younger than the clock says it is now, by more than this: the clock was set back.
const FUTURE_MAX: Duration = Duration::from_secs(600);
/// Before that no release was made: a clock that says so has lost its battery.
const FIRST_SECOND: u64 = 1_767_225_600;

/// What came of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// It works, and could be better.
    Warning,
    /// A broker does not work, or loses what it should not.
    Bad,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// One line.
#[derive(Debug)]
struct Finding {
    about: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do; empty when all is fine.
    advice: String,
}

impl Finding {
    /// A line, and one with what to do.
    fn shown(&self) -> String {
        let Self { about, verdict, found, advice } = self;
        let advice = if advice.is_empty() { String::new() } else { format!("         -> {advice}\n") };
        format!("{:8} {about}: {found}\n{advice}", verdict.word())
    }
}

fn fine(about: &'static str, found: String) -> Finding {
    Finding { about, verdict: Verdict::Fine, found, advice: String::new() }
}

fn warning(about: &'static str, found: String, advice: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Warning, found, advice: advice.into() }
}

fn bad(about: &'static str, found: String, advice: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Bad, found, advice: advice.into() }
}

/// Looks at everything, for a broker with this data folder.
///
/// # Errors
/// When something is bad, so that the status says so.
pub fn run(data: &Path, as_json: bool) -> anyhow::Result<()> {
    let holder = Holder::of(data);
    let place = existing(data);
    let written = write_something(&place);
    let mut findings = vec![folder(data, &holder, written.as_ref().err())];
    if findings[0].verdict != Verdict::Bad {
        let space = space(&place);
        let has_room = space.verdict != Verdict::Bad;
        findings.extend([owner(data, &holder)].into_iter().chain(readers(data)).chain([space]));
        if written.is_ok() {
            findings.extend([in_out(&place), links(&place)]);
        }
        // What is written to see how fast it is could be what a running broker has no room for then.
        if written.is_ok() && has_room {
            findings.push(speed(&place));
        }
    }
    findings.extend(archive(data, &holder));
    findings.extend([
        open_files(&holder),
        locked_memory(&holder),
        clock(data),
        memory(&holder),
        swap(&holder),
        huge_pages(),
    ]);
    if as_json {
        let all: Vec<_> = findings
            .iter()
            .map(|one| json!({"about": one.about, "verdict": one.verdict.word(), "found": one.found, "advice": one.advice}))
            .collect();
        output::print(&format!("{}\n", json!(all)))?;
    } else {
        output::print(&findings.iter().map(Finding::shown).collect::<String>())?;
    }
    match findings.iter().filter(|one| one.verdict == Verdict::Bad).count() {
        0 => Ok(()),
        count => bail!("{count} of {} are bad", findings.len()),
    }
}

/// The folder, or the nearest one above it that is there.
fn existing(data: &Path) -> PathBuf {
    let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    data.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Can a file be made there?
fn write_something(place: &Path) -> io::Result<()> {
    let path = place.join(format!(".mainstem-doctor-{}", std::process::id()));
    // What has the name already is somebody else's: perhaps a link to a file of theirs.
    File::create_new(&path).and_then(|file| file.sync_all()).and_then(|()| fs::remove_file(&path))
}

/// What helps where nothing can be written depends on why.
fn advice_for_unwritable(why: io::ErrorKind, user: &str, place: &str) -> String {
    match why {
        io::ErrorKind::ReadOnlyFilesystem => {
            "mount -o remount,rw; a disk that fails is mounted read-only by the system: dmesg says so".to_owned()
        }
        io::ErrorKind::PermissionDenied => format!(
            "run mainstem doctor as root, or as the user of the service; if that is {user}: chown {user} {place}"
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space: nothing at all can be written there".to_owned()
        }
        _ => format!("look at the file system of {place}"),
    }
}

fn folder(data: &Path, holder: &Holder, unwritable: Option<&io::Error>) -> Finding {
    const ABOUT: &str = "data folder";
    let shown = data.display();
    let in_the_way = data.ancestors().find(|path| path.exists()).filter(|path| !path.is_dir());
    if let Some(file) = in_the_way {
        return bad(ABOUT, format!("{} is no folder", file.display()), "give --data another path");
    }
    match (holder, unwritable) {
        (Holder::Hidden(written), _) => {
            let found =
                format!("{shown} is in use by a broker that is not seen from here (process {written} where it runs)");
            return warning(
                ABOUT,
                found,
                "what is said below of limits and memory is not about it: run mainstem doctor where it runs, in its container",
            );
        }
        (Holder::Running(running), None) => {
            return fine(ABOUT, format!("{shown} is in use by a broker, process {}", running.pid));
        }
        (Holder::Running(running), Some(error)) => {
            let found = format!(
                "{shown} is in use by a broker, process {}, and not to be written by {}: {error}",
                running.pid,
                user_name()
            );
            return warning(
                ABOUT,
                found,
                "run mainstem doctor as root, or as the user of the service, to see how fast the disk is",
            );
        }
        (Holder::Nobody, Some(error)) => {
            let (place, user) = (existing(data), user_name());
            let place = place.display();
            return bad(
                ABOUT,
                format!("{place} cannot be written by {user}: {error}"),
                advice_for_unwritable(error.kind(), &user, &place.to_string()),
            );
        }
        (Holder::Nobody, None) => {}
    }
    if let Err(error) = unfinished::check(data) {
        return bad(ABOUT, format!("{error:#}"), "docs/operations/backup.md says what it is");
    }
    if !data.join("meta.toml").exists() {
        return match fs::read_dir(data).is_ok_and(|mut entries| entries.next().is_some()) {
            true => warning(
                ABOUT,
                format!("{shown} is no data folder, and not empty"),
                "give --data the folder that the broker has, or an empty one",
            ),
            false => fine(ABOUT, format!("{shown} is new")),
        };
    }
    match DataFolder::look(data) {
        Ok(folder) => fine(
            ABOUT,
            format!("{shown}: cluster {}, {} journals, no broker runs on it", folder.cluster_id, folder.journals),
        ),
        Err(error) => bad(
            ABOUT,
            format!("{error:#}"),
            "docs/operations/damage.md says what to do; a newer format needs the release that wrote it",
        ),
    }
}

/// Whose the files are: a command that somebody ran as root (a restore, a first start by hand) leaves what the service cannot open.
fn owner(data: &Path, holder: &Holder) -> Finding {
    const ABOUT: &str = "owner";
    let own = fs::metadata(data).ok().filter(|_| data.join("meta.toml").exists());
    let Some(own) = own else { return fine(ABOUT, "nothing is there yet".to_owned()) };
    let running = if let Holder::Running(running) = holder { running.user_id() } else { None };
    let wanted = running.unwrap_or_else(|| own.uid());
    // Root opens what others have.
    let name = name_of(wanted);
    if wanted == 0 && running.is_some() {
        return fine(ABOUT, format!("the broker runs as {name}"));
    }
    let mut others = Vec::new();
    if let Err(error) = foreign(data, wanted, &mut others) {
        return bad(ABOUT, error.to_string(), "run mainstem doctor as root, or as the user of the service");
    }
    match others.first() {
        None => fine(ABOUT, format!("all of it is {name}'s")),
        Some((path, user)) => {
            let found =
                format!("{} is {}'s, not {name}'s, and {} more", path.display(), name_of(*user), others.len() - 1);
            bad(
                ABOUT,
                found,
                format!("stop the broker, then chown -R {name} {} (or whom the broker runs as)", data.display()),
            )
        }
    }
}

/// Files and folders below one that are another user's.
fn foreign(path: &Path, wanted: u32, found: &mut Vec<(PathBuf, u32)>) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let data = match fs::symlink_metadata(path) {
        // A running broker removes files.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        data => data.map_err(named)?,
    };
    if data.uid() != wanted {
        found.push((path.to_owned(), data.uid()));
    }
    if data.is_dir() {
        for entry in fs::read_dir(path).map_err(named)? {
            foreign(&entry?.path(), wanted, found)?;
        }
    }
    Ok(())
}

/// Who else may read what is stored; nothing to say of a folder that is not there.
fn readers(data: &Path) -> Option<Finding> {
    const ABOUT: &str = "readers";
    const OTHERS: u32 = 0o007;
    let mode = fs::metadata(data).ok().filter(|_| data.join("meta.toml").exists())?.permissions().mode();
    Some(if mode & OTHERS == 0 {
        fine(ABOUT, format!("{} is for its owner and his group", data.display()))
    } else {
        let found = format!(
            "everybody on this machine may enter {}, where messages and hashes of passwords are",
            data.display()
        );
        warning(ABOUT, found, format!("chmod o= {}", data.display()))
    })
}

/// Are the archive's objects there? Only asked where no broker runs, which says it itself; nothing to say where no object is named.
fn archive(data: &Path, holder: &Holder) -> Option<Finding> {
    const ABOUT: &str = "archive";
    let folder = DataFolder::look(data).ok().filter(|_| *holder == Holder::Nobody)?;
    let (mut count, mut missing) = (0, Vec::new());
    for number in 0..folder.journals {
        let named = match journal::named_objects(&folder.journal(number), number) {
            Ok(named) => named,
            Err(error) => {
                return Some(bad(
                    ABOUT,
                    format!("journal {number}: {error}"),
                    "run mainstem journal verify; docs/operations/damage.md says what to do",
                ));
            }
        };
        count += named.len();
        missing.extend(named.into_iter().filter(|object| {
            fs::metadata(folder.archive().join(&object.name)).map_or(true, |found| found.len() != object.bytes)
        }));
    }
    let shown = folder.archive();
    let shown = shown.display();
    match missing.first() {
        None if count == 0 => None,
        None => Some(fine(ABOUT, format!("{count} objects are in {shown}"))),
        Some(_) if missing.len() == count => {
            let found = format!("none of {count} objects is in {shown}");
            Some(warning(
                ABOUT,
                found,
                "if mainstem.archive.folder names another place, mainstem journal verify --archive looks there",
            ))
        }
        Some(first) => {
            let (lacking, log, base) = (missing.len(), first.log, first.base);
            let found = format!(
                "{lacking} of {count} objects are missing in {shown} or have another length, first {} ({log} from offset {base})",
                first.name
            );
            Some(bad(
                ABOUT,
                found,
                "put them back from a backup: records in them cannot be read; docs/operations/damage.md",
            ))
        }
    }
}

fn user_name() -> String {
    // SAFETY: it cannot fail.
    name_of(unsafe { libc::geteuid() })
}

fn name_of(id: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id.to_string()).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| id.to_string())
}

fn space(place: &Path) -> Finding {
    const ABOUT: &str = "disk space";
    let Some((free, all, names)) = file_system(place) else {
        return warning(ABOUT, "not known".to_owned(), "look with df");
    };
    if names.is_some_and(|names| names < NAMES_NEEDED) {
        return bad(
            ABOUT,
            format!("room for {} more files", names.unwrap_or(0)),
            "delete files that nobody needs: the file system has too many (df -i)",
        );
    }
    let found = format!("{} of {} free", ByteSize(free), ByteSize(all));
    match free {
        0..FREE_BYTES_NEEDED => bad(
            ABOUT,
            found,
            "a broker needs two segments (512 MiB) and 64 MiB to begin with: free space, or move the folder",
        ),
        FREE_BYTES_NEEDED..FREE_BYTES_MIN => {
            warning(ABOUT, found, "set log.retention.bytes, or mainstem.journal.window.bytes and an archive elsewhere")
        }
        _ => fine(ABOUT, found),
    }
}

/// Bytes free and in all, and how many files there can still be, where that has a bound.
fn file_system(place: &Path) -> Option<(u64, u64, Option<u64>)> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(place.as_os_str().as_bytes()).ok()?;
    // SAFETY: an all-zero statvfs is a valid value to be overwritten, and the path ends with a zero byte.
    let (status, stat) = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut stat), stat)
    };
    let names = (stat.f_files > 0).then_some(stat.f_favail);
    (status == 0).then_some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize, names))
}

fn in_out(place: &Path) -> Finding {
    const ABOUT: &str = "disk I/O";
    let folder = place.join(format!(".mainstem-doctor-{}", std::process::id()));
    let probed = fs::create_dir(&folder).and_then(|()| probe(&[&folder], None));
    let _ = fs::remove_dir_all(&folder);
    match probed {
        Ok((IoMode::Uring, _)) => fine(ABOUT, "io_uring and direct I/O".to_owned()),
        Ok((mode, refused)) => {
            let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
            let advice = match disabled.trim() {
                "" | "0" => "a container's seccomp profile may block io_uring; a file system may refuse direct I/O (tmpfs, some network ones)".to_owned(),
                value => format!("kernel.io_uring_disabled is {value}: sysctl kernel.io_uring_disabled=0, or 1 and the group of kernel.io_uring_group"),
            };
            warning(ABOUT, format!("{mode}; {}", refused.join("; ")), advice)
        }
        Err(error) => bad(ABOUT, error.to_string(), "the folder cannot be written in any way: look at the file system"),
    }
}

fn speed(place: &Path) -> Finding {
    const ABOUT: &str = "disk speed";
    let path = place.join(format!(".mainstem-doctor-{}", std::process::id()));
    let measured = measure(&path);
    let _ = fs::remove_file(&path);
    let (rate, median, slow) = match measured {
        Ok(measured) => measured,
        Err(error) => return warning(ABOUT, format!("not measured: {error}"), "free some space and look again"),
    };
    let found = format!(
        "{}/s, a flush of 4 KiB takes {:.2} ms, one of fifty {:.2} ms",
        ByteSize(rate),
        median.as_secs_f64() * 1e3,
        slow.as_secs_f64() * 1e3
    );
    if rate < BYTES_PER_SECOND_MIN {
        return warning(ABOUT, found, "use a local SSD; a volume with a quota needs a larger one");
    }
    if slow > FLUSH_MAX {
        return warning(
            ABOUT,
            found,
            "clients with durability fsync wait for flushes: use a disk with a write cache that keeps power, or mainstem.durability=memory for topics that can bear it",
        );
    }
    fine(ABOUT, found)
}

/// Bytes per second, the median flush and the longest one.
fn measure(path: &Path) -> io::Result<(u64, Duration, Duration)> {
    let open = |flags| OpenOptions::new().create_new(true).write(true).custom_flags(flags).open(path);
    // Past the page cache where that is possible.
    let file = match open(libc::O_DIRECT) {
        // Who refuses that may have made the file.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let _ = fs::remove_file(path);
            open(0)?
        }
        outcome => outcome?,
    };
    let memory = vec![0x5a; PIECE_BYTES + FLUSHED_BYTES];
    let skip = memory.as_ptr().align_offset(FLUSHED_BYTES);
    let began = Instant::now();
    for number in 0..WRITTEN_BYTES / PIECE_BYTES as u64 {
        file.write_all_at(&memory[skip..skip + PIECE_BYTES], number * PIECE_BYTES as u64)?;
    }
    file.sync_data()?;
    let rate = (WRITTEN_BYTES as f64 / began.elapsed().as_secs_f64()) as u64;
    let mut flushes = Vec::with_capacity(FLUSHES);
    for number in 0..FLUSHES as u64 {
        let began = Instant::now();
        file.write_all_at(&memory[skip..skip + FLUSHED_BYTES], number * FLUSHED_BYTES as u64)?;
        file.sync_data()?;
        flushes.push(began.elapsed());
    }
    flushes.sort();
    Ok((rate, flushes[FLUSHES / 2], flushes[FLUSHES - 1]))
}

fn links(place: &Path) -> Finding {
    const ABOUT: &str = "backups";
    let (one, two) = (
        place.join(format!(".mainstem-doctor-{}-a", std::process::id())),
        place.join(format!(".mainstem-doctor-{}-b", std::process::id())),
    );
    let outcome = File::create_new(&one).and_then(|_| fs::hard_link(&one, &two));
    let _ = (fs::remove_file(&one), fs::remove_file(&two));
    match outcome {
        Ok(()) => fine(ABOUT, "the file system has hard links".to_owned()),
        Err(error) => {
            warning(ABOUT, format!("no hard links: {error}"), "mainstem backup needs them: use ext4, XFS or Btrfs")
        }
    }
}

/// When a file of the data folder was written last.
fn written_last(data: &Path) -> Option<SystemTime> {
    let folders =
        fs::read_dir(data).ok()?.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("journal-"));
    let files = folders
        .filter_map(|folder| fs::read_dir(folder.path()).ok())
        .flatten()
        .flatten()
        .filter_map(|entry| entry.metadata().ok()?.modified().ok());
    files.chain(fs::metadata(data.join("meta.toml")).and_then(|meta| meta.modified())).max()
}

fn clock(data: &Path) -> Finding {
    const ABOUT: &str = "clock";
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let found = crate::utc::rfc3339(SystemTime::now());
    if seconds < FIRST_SECOND {
        return bad(ABOUT, found, "set the clock: retention and time-outs of records go by it");
    }
    let ahead = written_last(data)
        .and_then(|last| last.duration_since(SystemTime::now()).ok())
        .filter(|ahead| *ahead > FUTURE_MAX);
    if let Some(ahead) = ahead {
        let found = format!("{found}, and files of the data folder are from {} s later", ahead.as_secs());
        return bad(
            ABOUT,
            found,
            "the clock was set back, or the machine that wrote them is ahead: set it right before the broker starts, retention and time-outs go by it",
        );
    }
    // SAFETY: an all-zero timex asks and sets nothing.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    // TIME_ERROR
    if state == 5 {
        return warning(
            ABOUT,
            format!("{found}, not synchronised"),
            "run chrony or systemd-timesyncd (in a virtual machine the host may keep it)",
        );
    }
    fine(ABOUT, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_why_nothing_can_be_written() {
        let of = |why| advice_for_unwritable(why, "anna", "/data");
        assert!(
            of(io::ErrorKind::ReadOnlyFilesystem).contains("remount,rw")
                && !of(io::ErrorKind::ReadOnlyFilesystem).contains("chown")
        );
        assert!(
            of(io::ErrorKind::PermissionDenied).contains("chown anna /data")
                && of(io::ErrorKind::StorageFull).contains("free space")
        );
    }

    #[test]
    fn a_file_of_that_name_is_somebody_elses() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("theirs");
        fs::write(&path, "kept").expect("writable");
        assert_eq!(measure(&path).expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("readable"), "kept");
    }
}
