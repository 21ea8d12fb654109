//! A cgroup for a broker and everything it starts, version 1 or 2, where this user may make one: a bound on its memory, page cache
//! included, and what the kernel counts of it, also of processes that have ended.
//!
//! Version 1 has a folder for each controller. The one that counts processor time is used only where it is not also the one that shares it
//! out: a group of its own would change how much of the processors a broker gets.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::process::{Account, number_after};

/// Groups that this process has made: no two share a folder, which goes with the first of them.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A cgroup that exists as long as this does.
#[derive(Debug)]
pub struct Group {
    memory: Option<PathBuf>,
    /// Where processor time is counted.
    time: Option<PathBuf>,
    limit_mb: u64,
}

impl Group {
    /// Makes one with this bound, 0 = none; nothing where that cannot be had (not root, or no controllers).
    pub fn create(name: &str, limit_mb: u64) -> Option<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("mainstem-bench-{name}-{}-{number}", std::process::id());
        let make = |parent: &Path| {
            let path = parent.join(&name);
            (parent.is_dir() && fs::create_dir_all(&path).is_ok()).then_some(path)
        };
        let (memory, time, file) = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
            let path = make(Path::new("/sys/fs/cgroup"));
            (path.clone(), path, "memory.max")
        } else {
            let counts_only =
                Path::new("/sys/fs/cgroup/cpuacct").canonicalize().is_ok_and(|path| path.ends_with("cpuacct"));
            let time = counts_only.then(|| make(Path::new("/sys/fs/cgroup/cpuacct"))).flatten();
            (make(Path::new("/sys/fs/cgroup/memory")), time, "memory.limit_in_bytes")
        };
        let mut group = Self { memory, time, limit_mb };
        let bounded = limit_mb > 0
            && group
                .memory
                .as_ref()
                .is_some_and(|path| fs::write(path.join(file), (limit_mb << 20).to_string()).is_ok());
        group.limit_mb = if bounded { limit_mb } else { 0 };
        (!group.folders().is_empty()).then_some(group)
    }

    /// Bound, in 2^20 bytes; nothing where there is none.
    pub fn limit_mb(&self) -> Option<u64> {
        (self.limit_mb > 0).then_some(self.limit_mb)
    }

    /// The command that runs another inside this group.
    pub fn wrap(&self, command: &[String]) -> Vec<String> {
        let folders = self.folders();
        let entries = folders.iter().map(|folder| format!("echo $$ > '{}/cgroup.procs' && ", folder.display()));
        let enter = entries.collect::<String>() + "exec \"$@\"";
        ["sh".to_owned(), "-c".to_owned(), enter, "sh".to_owned()].into_iter().chain(command.iter().cloned()).collect()
    }

    /// Replaces what was added up over processes by what the kernel counts of the group.
    pub fn correct(&self, account: &mut Account) {
        if let Some(seconds) = self.time.as_deref().and_then(cpu_s) {
            account.cpu_s = seconds;
        }
        if let Some((resident_mb, cache_mb)) = self.memory.as_deref().and_then(memory_mb) {
            account.memory_mb = resident_mb;
            account.page_cache_mb = Some(cache_mb);
        }
    }

    fn folders(&self) -> Vec<&PathBuf> {
        let mut folders: Vec<&PathBuf> = self.memory.iter().chain(&self.time).collect();
        folders.dedup();
        folders
    }
}

/// Processor time of a group.
fn cpu_s(folder: &Path) -> Option<f64> {
    if let Ok(text) = fs::read_to_string(folder.join("cpuacct.usage")) {
        return text.trim().parse::<f64>().ok().map(|nanoseconds| nanoseconds / 1e9);
    }
    let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    text.contains("usage_usec").then(|| number_after(&text, "usage_usec ") as f64 / 1e6)
}

/// Memory of a group in 10^6 bytes: what is not of files, and the page cache.
fn memory_mb(folder: &Path) -> Option<(f64, f64)> {
    let text = format!("\n{}", fs::read_to_string(folder.join("memory.stat")).ok()?);
    let number = |name: &str| text.contains(name).then(|| number_after(&text, name) as f64 / 1e6);
    match (number("\ntotal_rss "), number("\ntotal_cache ")) {
        (Some(resident), Some(cache)) => Some((resident, cache)),
        _ => Some((number("\nanon ")?, number("\nfile ")?)),
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in self.folders() {
            // A process that has just ended still counts for a moment.
            for _ in 0..20 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

#[cfg(test)]
mod tests;
