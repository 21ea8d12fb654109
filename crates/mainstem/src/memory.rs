//! How much memory there is to plan with, how much is used, and how long what is freed stays for the next use.

use std::ffi::{CStr, c_char};

use tikv_jemallocator::Jemalloc;
use types::ByteSize;

/// The allocator of everything, also of libraries in C.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// What the allocator reads as the process begins, before `main` (its manual: jemalloc(3), "TUNING"). `MALLOC_CONF` in the environment has its
/// way over each of these.
///
/// | | why |
/// |---|---|
/// | `background_thread` | pages are given back also while nobody allocates |
/// | `dirty_decay_ms`, `muzzy_decay_ms` | what is freed can be used again for a second without a fault, and is not resident afterwards: buffers of answers come and go by the megabyte |
/// | `narenas_ratio` | heaps for each processor, half of what they would be: each keeps the largest that it was, and their sum is resident |
const OPTIONS: &CStr = c"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas_ratio:2";

/// Under the name by which the allocator finds it.
// SAFETY: the name is the allocator's own, which declares it as a pointer to constant text.
#[unsafe(export_name = "malloc_conf")]
static MALLOC_CONF: Options = Options(OPTIONS.as_ptr());

/// A pointer to text that is never changed; the allocator reads it.
#[repr(transparent)]
struct Options(*const c_char);

// SAFETY: nobody writes to what it points to.
unsafe impl Sync for Options {}

/// A quarter of what the cgroup or the machine has, whichever is less.
pub fn default_budget() -> ByteSize {
    budget_of(available_to("self"))
}

/// A quarter of what there is, or the least.
pub fn budget_of(available: ByteSize) -> ByteSize {
    ByteSize((available.bytes() / 4).max(crate::config::MEMORY_MIN.bytes()))
}

/// What the cgroup of a process (`self`, or its id) or the machine has, whichever is less; 4 GiB if nobody can say.
pub fn available_to(process: &str) -> ByteSize {
    ByteSize([machine_bytes(), cgroup_bytes(process)].into_iter().flatten().min().unwrap_or(4 << 30))
}

fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The smallest limit on the way from the cgroup of a process (version 2) to the root; version 1 as a fallback.
fn cgroup_bytes(process: &str) -> Option<u64> {
    let read = |path: &std::path::Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let own = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let root = std::path::Path::new("/sys/fs/cgroup");
    let own = root.join(path.trim_start_matches('/'));
    let limits = own.ancestors().take_while(|folder| folder.starts_with(root));
    let smallest = limits.filter_map(|folder| read(&folder.join("memory.max"))).min();
    smallest.or_else(|| read(&root.join("memory/memory.limit_in_bytes")))
}

/// Resident memory of this process.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    // SAFETY: a plain question to the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * u64::try_from(page).unwrap_or(4096)
}
