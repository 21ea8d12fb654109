//! `mainstem doctor`: looks at the machine before or beside a broker, and says what to do about what it finds. It changes nothing but for
//! a file that it writes and removes again, to see how fast the disk is.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use journal::disk::{IoMode, probe};
use serde_json::json;
use types::ByteSize;

use crate::data_folder::DataFolder;

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
/// Descriptors: a connection takes one.
const FILES_WANTED: u64 = 65_536;
const FILES_NEEDED: u64 = 1_024;
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
    let mut findings = vec![folder(data)];
    let place = existing(data);
    if findings[0].verdict != Verdict::Bad {
        findings.extend(readers(data).into_iter().chain([space(&place), in_out(&place), speed(&place), links(&place)]));
    }
    findings.extend([open_files(), locked_memory(), clock(), memory()]);
    if as_json {
        let all: Vec<_> = findings
            .iter()
            .map(|one| json!({"about": one.about, "verdict": one.verdict.word(), "found": one.found, "advice": one.advice}))
            .collect();
        println!("{}", json!(all));
    } else {
        for Finding { about, verdict, found, advice } in &findings {
            println!("{:8} {about}: {found}", verdict.word());
            if !advice.is_empty() {
                println!("         -> {advice}");
            }
        }
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

fn folder(data: &Path) -> Finding {
    const ABOUT: &str = "data folder";
    let shown = data.display();
    if data.exists() && !data.is_dir() {
        return bad(ABOUT, format!("{shown} is no folder"), "give --data another path");
    }
    let place = existing(data);
    let probe_path = place.join(format!(".mainstem-doctor-{}", std::process::id()));
    // What has the name already is somebody else's: perhaps a link to a file of theirs.
    if let Err(error) = File::create_new(&probe_path).and_then(|file| file.sync_all()).and_then(|()| fs::remove_file(&probe_path)) {
        let user = user_name();
        return bad(ABOUT, format!("{} cannot be written by {user}: {error}", place.display()), format!("chown {user} {}, or remount it writable", place.display()));
    }
    if !data.join("meta.toml").exists() {
        return fine(ABOUT, format!("{shown} is new"));
    }
    match DataFolder::look(data) {
        Ok(folder) => fine(ABOUT, format!("{shown}: cluster {}, {} journals, no broker runs on it", folder.cluster_id, folder.journals)),
        Err(error) if format!("{error:#}").contains("in use") => fine(ABOUT, format!("{shown} is in use by a broker")),
        Err(error) => bad(ABOUT, format!("{error:#}"), "docs/operations/damage.md says what to do; a newer format needs the release that wrote it"),
    }
}

/// Who else may read what is stored; nothing to say of a folder that is not there.
fn readers(data: &Path) -> Option<Finding> {
    const ABOUT: &str = "readers";
    const OTHERS: u32 = 0o007;
    let mode = fs::metadata(data).ok().filter(|_| data.join("meta.toml").exists())?.permissions().mode();
    Some(if mode & OTHERS == 0 {
        fine(ABOUT, format!("{} is for its owner and his group", data.display()))
    } else {
        let found = format!("everybody on this machine may enter {}, where messages and hashes of passwords are", data.display());
        warning(ABOUT, found, format!("chmod o= {}", data.display()))
    })
}

fn user_name() -> String {
    // SAFETY: it cannot fail.
    let id = unsafe { libc::geteuid() };
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
    let Some((free, all)) = file_system(place) else { return warning(ABOUT, "not known".to_owned(), "look with df") };
    let found = format!("{} of {} free", ByteSize(free), ByteSize(all));
    match free {
        0..FREE_BYTES_NEEDED => bad(ABOUT, found, "a broker needs two segments (512 MiB) and 64 MiB to begin with: free space, or move the folder"),
        FREE_BYTES_NEEDED..FREE_BYTES_MIN => warning(ABOUT, found, "set log.retention.bytes, or mainstem.journal.window.bytes and an archive elsewhere"),
        _ => fine(ABOUT, found),
    }
}

/// Bytes free and in all.
fn file_system(place: &Path) -> Option<(u64, u64)> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(place.as_os_str().as_bytes()).ok()?;
    // SAFETY: an all-zero statvfs is a valid value to be overwritten, and the path ends with a zero byte.
    let (status, stat) = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut stat), stat)
    };
    (status == 0).then_some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}

fn in_out(place: &Path) -> Finding {
    const ABOUT: &str = "disk I/O";
    let folder = place.join(format!(".mainstem-doctor-{}", std::process::id()));
    let probed = fs::create_dir(&folder).and_then(|()| probe(&folder, None));
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
    let found = format!("{}/s, a flush of 4 KiB takes {:.2} ms, one of fifty {:.2} ms", ByteSize(rate), median.as_secs_f64() * 1e3, slow.as_secs_f64() * 1e3);
    if rate < BYTES_PER_SECOND_MIN {
        return warning(ABOUT, found, "use a local SSD; a volume with a quota needs a larger one");
    }
    if slow > FLUSH_MAX {
        return warning(ABOUT, found, "clients with durability fsync wait for flushes: use a disk with a write cache that keeps power, or mainstem.durability=memory for topics that can bear it");
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
    let (one, two) = (place.join(format!(".mainstem-doctor-{}-a", std::process::id())), place.join(format!(".mainstem-doctor-{}-b", std::process::id())));
    let outcome = File::create_new(&one).and_then(|_| fs::hard_link(&one, &two));
    let _ = (fs::remove_file(&one), fs::remove_file(&two));
    match outcome {
        Ok(()) => fine(ABOUT, "the file system has hard links".to_owned()),
        Err(error) => warning(ABOUT, format!("no hard links: {error}"), "mainstem backup needs them: use ext4, XFS or Btrfs"),
    }
}

/// Soft and hard limit.
fn limit(which: libc::__rlimit_resource_t) -> (u64, u64) {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::getrlimit(which, &raw mut limits) };
    (limits.rlim_cur, limits.rlim_max)
}

fn open_files() -> Finding {
    const ABOUT: &str = "open files";
    let (soft, hard) = limit(libc::RLIMIT_NOFILE);
    let found = format!("limit {soft}");
    let advice = format!("LimitNOFILE={FILES_WANTED} in the systemd unit, or ulimit -n (up to {hard} here): each connection takes one");
    match soft {
        0..FILES_NEEDED => bad(ABOUT, found, advice),
        FILES_NEEDED..FILES_WANTED => warning(ABOUT, found, advice),
        _ => fine(ABOUT, found),
    }
}

fn locked_memory() -> Finding {
    const ABOUT: &str = "locked memory";
    let (soft, _) = limit(libc::RLIMIT_MEMLOCK);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let shown = if soft == libc::RLIM_INFINITY { "no limit".to_owned() } else { format!("limit {}", ByteSize(soft)) };
    // Since Linux 5.12 rings do not count.
    if version < (5, 12) && soft < 8 << 20 {
        return warning(ABOUT, format!("{shown}, Linux {}", release.trim()), "LimitMEMLOCK=64M in the systemd unit, or ulimit -l: this kernel counts io_uring's rings");
    }
    fine(ABOUT, format!("{shown}, Linux {}", release.trim()))
}

fn clock() -> Finding {
    const ABOUT: &str = "clock";
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let found = crate::utc::rfc3339(SystemTime::now());
    if seconds < FIRST_SECOND {
        return bad(ABOUT, found, "set the clock: retention and time-outs of records go by it");
    }
    // SAFETY: an all-zero timex asks and sets nothing.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    // TIME_ERROR
    if state == 5 {
        return warning(ABOUT, format!("{found}, not synchronised"), "run chrony or systemd-timesyncd (in a virtual machine the host may keep it)");
    }
    fine(ABOUT, found)
}

fn memory() -> Finding {
    const ABOUT: &str = "memory";
    let (available, budget) = (crate::memory::available(), crate::memory::default_budget());
    let found = format!("{available}, of which a broker takes {budget} for buffers and caches");
    let least = crate::config::MEMORY_MIN.bytes();
    match available.bytes() {
        bytes if bytes < 2 * least => bad(ABOUT, found, "give the machine or the cgroup at least 256 MiB"),
        bytes if bytes < 4 * least => warning(ABOUT, found, "the least budget is more than a quarter here: give the machine or the cgroup more"),
        _ => fine(ABOUT, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_that_name_is_somebody_elses() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("theirs");
        fs::write(&path, "kept").expect("writable");
        assert_eq!(measure(&path).expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("readable"), "kept");
    }
}
