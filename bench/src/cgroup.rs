//! A bound on the memory of a broker and its page cache: a cgroup, version 1 or 2, where this user may make one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Groups that this process has made: no two share a folder, which goes with the first of them.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A cgroup that exists as long as this does.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    limit_mb: u64,
}

impl MemoryGroup {
    /// Makes one with this bound; nothing where that cannot be had (not root, or no memory controller).
    pub fn create(name: &str, limit_mb: u64) -> Option<Self> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let (parent, file) = if first.is_dir() {
            (first, "memory.limit_in_bytes")
        } else {
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
            (Path::new("/sys/fs/cgroup"), "memory.max")
        };
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("mainstem-bench-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).ok()?;
        let group = Self { path, limit_mb };
        fs::write(group.path.join(file), (limit_mb << 20).to_string()).ok()?;
        Some(group)
    }

    /// Bound, in 2^20 bytes.
    pub fn limit_mb(&self) -> u64 {
        self.limit_mb
    }

    /// The command that runs another inside this group.
    pub fn wrap(&self, command: &[String]) -> Vec<String> {
        let enter = format!("echo $$ > '{}/cgroup.procs' && exec \"$@\"", self.path.display());
        ["sh".to_owned(), "-c".to_owned(), enter, "sh".to_owned()].into_iter().chain(command.iter().cloned()).collect()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just ended still counts for a moment.
        for _ in 0..20 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
