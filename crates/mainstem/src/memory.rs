//! How much memory there is to plan with, how much is used, and how much of what is freed stays for the next use.

use types::ByteSize;

/// A quarter of what the cgroup or the machine has, whichever is less.
pub fn default_budget() -> ByteSize {
    ByteSize((available().bytes() / 4).max(crate::config::MEMORY_MIN.bytes()))
}

/// What the cgroup or the machine has, whichever is less; 4 GiB if nobody can say.
pub fn available() -> ByteSize {
    ByteSize([machine_bytes(), cgroup_bytes()].into_iter().flatten().min().unwrap_or(4 << 30))
}

fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The smallest limit on the way from our cgroup (version 2) to the root; version 1 as a fallback.
fn cgroup_bytes() -> Option<u64> {
    let read = |path: &std::path::Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let root = std::path::Path::new("/sys/fs/cgroup");
    let own = root.join(path.trim_start_matches('/'));
    let limits = own.ancestors().take_while(|folder| folder.starts_with(root));
    let smallest = limits.filter_map(|folder| read(&folder.join("memory.max"))).min();
    smallest.or_else(|| read(&root.join("memory/memory.limit_in_bytes")))
}

/// Has each thread's heap keep a sixteenth of the budget, 4 to 64 MiB, of what was freed last. By default 128 KiB are kept, and
/// buffers of answers come and go by the megabyte: a sixth of the processor time of AMQP queues went into pages that were given back
/// and faulted in again. Only the C library of GNU has such a bound.
pub fn keep_freed(budget: ByteSize) {
    #[cfg(target_env = "gnu")]
    {
        let kept = (budget.bytes() / 16).clamp(4 << 20, 64 << 20) as libc::c_int;
        // SAFETY: both set a number that the allocator reads under its own lock.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, kept);
            libc::mallopt(libc::M_MMAP_THRESHOLD, kept / 2);
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = budget;
}

/// Gives back what the start has used and nobody needs any more: what is in the catalog is read whole, and stands between what stays.
/// Only the C library of GNU keeps it otherwise.
pub fn give_back_unused() {
    // SAFETY: the allocator looks for free pages under its own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Resident memory of this process.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    // SAFETY: a plain question to the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * u64::try_from(page).unwrap_or(4096)
}
