//! The broker that runs on a data folder, as `/proc` shows its process: its limits are others than those of the shell that asks.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Who has a data folder.
#[derive(Debug, PartialEq, Eq)]
pub enum Holder {
    Nobody,
    Running(Running),
    /// A broker whose process cannot be seen from here, with the id that it has where it runs.
    Hidden(String),
}

/// A running broker.
#[derive(Debug, PartialEq, Eq)]
pub struct Running {
    pub pid: u32,
    proc: PathBuf,
}

impl Holder {
    /// Of a folder. Who holds its lock alone has written a process id to it; those who only look at the folder hold it together.
    pub fn of(data: &Path) -> Self {
        let Ok(lock) = File::open(data.join("lock")) else { return Self::Nobody };
        // SAFETY: plain system call on an open descriptor; closing it gives the lock back.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0 {
            return Self::Nobody;
        }
        let written = fs::read_to_string(data.join("lock")).unwrap_or_default().trim().to_owned();
        let running = written.parse().ok().map(|pid: u32| Running { pid, proc: Path::new("/proc").join(&written) });
        // In a container process ids are others.
        match running.filter(|running| running.holds(&lock)) {
            Some(running) => Self::Running(running),
            None => Self::Hidden(written),
        }
    }
}

impl Running {
    /// Does the process have this file open? Who may not see that goes by its name.
    fn holds(&self, lock: &File) -> bool {
        let Ok(lock) = lock.metadata() else { return false };
        match fs::read_dir(self.proc.join("fd")) {
            Ok(open) => open
                .flatten()
                .filter_map(|entry| fs::metadata(entry.path()).ok())
                .any(|open| (open.dev(), open.ino()) == (lock.dev(), lock.ino())),
            Err(_) => fs::read_to_string(self.proc.join("comm")).is_ok_and(|name| name.trim() == "mainstem"),
        }
    }

    /// A limit by its name in `/proc/PID/limits`, like `Max open files`: what counts, and how far it may be raised.
    pub fn limit(&self, name: &str) -> Option<(u64, u64)> {
        limit_of(&fs::read_to_string(self.proc.join("limits")).ok()?, name)
    }

    /// Descriptors in use.
    pub fn files_open(&self) -> Option<u64> {
        fs::read_dir(self.proc.join("fd")).ok().map(|open| open.count() as u64)
    }

    /// A number of `/proc/PID/status`: kibibytes, or the first of several.
    fn status(&self, name: &str) -> Option<u64> {
        status_of(&fs::read_to_string(self.proc.join("status")).ok()?, name)
    }

    /// Bytes of it that are in swap space.
    pub fn swapped_bytes(&self) -> u64 {
        self.status("VmSwap").unwrap_or(0) << 10
    }

    /// The user it runs as.
    pub fn user_id(&self) -> Option<u32> {
        self.status("Uid").and_then(|id| id.try_into().ok())
    }
}

fn limit_of(limits: &str, name: &str) -> Option<(u64, u64)> {
    let number = |word: &str| if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() };
    let mut words = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
    Some((number(words.next()?)?, number(words.next()?)?))
}

fn status_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_states_are_read_as_the_system_writes_them() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n\
                      Max locked memory         unlimited            unlimited            bytes     \n";
        assert_eq!(limit_of(limits, "Max open files"), Some((1024, 524_288)));
        assert_eq!(limit_of(limits, "Max locked memory"), Some((u64::MAX, u64::MAX)));
        assert_eq!(limit_of(limits, "Max core file size"), None);
        let status = "Name:\tmainstem\nUid:\t998\t998\t998\t998\nVmSwap:\t    2048 kB\n";
        assert_eq!(
            (status_of(status, "Uid"), status_of(status, "VmSwap"), status_of(status, "Vm")),
            (Some(998), Some(2048), None)
        );
    }

    #[test]
    fn a_folder_without_a_lock_and_one_that_nobody_holds_are_nobodys() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Holder::of(folder.path()), Holder::Nobody);
        fs::write(folder.path().join("lock"), "1\n").expect("writable");
        assert_eq!(Holder::of(folder.path()), Holder::Nobody, "it has ended");
        let lock = File::open(folder.path().join("lock")).expect("there");
        // SAFETY: plain system call on an open descriptor.
        assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
        assert_eq!(Holder::of(folder.path()), Holder::Hidden("1".to_owned()), "that process has not the file open");
        fs::write(folder.path().join("lock"), format!("{}\n", std::process::id())).expect("writable");
        assert!(matches!(Holder::of(folder.path()), Holder::Running(Running { pid, .. }) if pid == std::process::id()));
    }
}
