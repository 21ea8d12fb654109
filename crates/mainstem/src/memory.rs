//! How much memory there is to plan with, how much is used, and how long what is freed stays for the next use.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::Duration;

use tikv_jemalloc_sys::mallctl;
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
/// | `dirty_decay_ms`, `muzzy_decay_ms` | what is freed can be used again for a second without a fault, and is not resident afterwards: buffers of answers come and go by the megabyte. While much is resident nothing stays ([`keep_within`]) |
/// | `narenas_ratio` | heaps for each processor, half of what they would be: each keeps the largest that it was, and their sum is resident |
const OPTIONS: &CStr = c"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas_ratio:2";

/// Under the name by which the allocator finds it.
// SAFETY: the name is the allocator's own, which declares it as a pointer to constant text.
#[unsafe(export_name = "malloc_conf")]
static MALLOC_CONF: Options = Options(OPTIONS.as_ptr());

/// From this part of the budget on, in sixteenths, what is freed is given back at once: caches fill most of it in ordinary work, and buffers come and go
/// beside them …
const SHORT_FROM: u64 = 18;
/// … until no more than this part is.
const SHORT_UNTIL: u64 = 16;
/// From this part on what comes and goes has less room: what is decided now takes a moment to be felt …
const BOUND_FROM: u64 = 16;
/// … until no more than this part is.
const BOUND_UNTIL: u64 = 15;
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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

/// Has what is freed given back at once while more than the budget is resident, which costs faults, and after a second otherwise: what came and went within
/// a second is then not resident beside what is in use. `bound` is told when as much as the budget is resident (true), and when it is less again: what comes
/// and goes has less room meanwhile. Runs as long as the process does.
///
/// # Errors
/// When there is no thread for it.
pub fn keep_within(budget: ByteSize, bound: impl Fn(bool) + Send + 'static) -> std::io::Result<()> {
    let (mut short, mut bounded) =
        (Threshold::new(budget, SHORT_FROM, SHORT_UNTIL), Threshold::new(budget, BOUND_FROM, BOUND_UNTIL));
    std::thread::Builder::new().name("memory".to_owned()).spawn(move || {
        let Some(usual) = read::<isize>(c"arenas.dirty_decay_ms") else { return };
        loop {
            std::thread::sleep(LOOK_EVERY);
            let resident = resident_bytes();
            if let Some(bounds) = bounded.look(resident) {
                bound(bounds);
            }
            if let Some(is_short) = short.look(resident) {
                keep_freed(if is_short { 0 } else { usual });
            }
        }
    })?;
    Ok(())
}

/// Something that holds from a number of bytes on, until there are fewer than another number.
struct Threshold {
    from: u64,
    until: u64,
    holds: bool,
}

impl Threshold {
    /// From and until so many sixteenths of the budget.
    fn new(budget: ByteSize, from: u64, until: u64) -> Self {
        let part = |sixteenths: u64| budget.bytes() / 16 * sixteenths;
        Self { from: part(from), until: part(until), holds: false }
    }

    /// Looks at how many there are: does it hold now? `None`: as before.
    fn look(&mut self, bytes: u64) -> Option<bool> {
        let holds = bytes >= if self.holds { self.until } else { self.from };
        (std::mem::replace(&mut self.holds, holds) != holds).then_some(holds)
    }
}

/// Has the allocator keep what is freed for so many milliseconds from now on; what it keeps now is given back.
fn keep_freed(milliseconds: isize) {
    // Those of heaps that come later.
    write(c"arenas.dirty_decay_ms", milliseconds);
    for heap in 0..read::<u32>(c"arenas.narenas").unwrap_or(0) {
        // One that is not used yet refuses it.
        if let Ok(name) = CString::new(format!("arena.{heap}.dirty_decay_ms")) {
            write(&name, milliseconds);
        }
    }
}

/// A number that the allocator tells, of the type that its manual says.
fn read<T: Default>(name: &CStr) -> Option<T> {
    let (mut value, mut bytes) = (T::default(), size_of::<T>());
    // SAFETY: as many bytes are written as the value has, or none.
    let refused = unsafe { mallctl(name.as_ptr(), (&raw mut value).cast(), &mut bytes, ptr::null_mut(), 0) };
    (refused == 0).then_some(value)
}

/// One that it takes, of the type that its manual says. It is not said whether it did.
fn write<T>(name: &CStr, mut value: T) {
    // SAFETY: as many bytes are read as the value has.
    unsafe { mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), (&raw mut value).cast(), size_of::<T>()) };
}

/// Resident memory of this process.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    // SAFETY: a plain question to the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * u64::try_from(page).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_holds_until_there_is_clearly_less() {
        let mut threshold = Threshold::new(ByteSize(1600), 16, 15);
        assert_eq!(
            [1599, 1600, 1700, 1500, 1499, 1500, 1599, 1600].map(|bytes| threshold.look(bytes)),
            [None, Some(true), None, None, Some(false), None, None, Some(true)]
        );
    }

    #[test]
    fn what_is_freed_is_given_back_at_once_when_memory_is_short() {
        const MIB: u64 = 1 << 20;
        // What other tests have beside is less.
        let fill = || (0..256).map(|_| vec![1u8; 1 << 20]).collect::<Vec<_>>();
        keep_freed(60_000);
        drop(std::hint::black_box(fill()));
        let kept = resident_bytes();
        keep_freed(0);
        let short = resident_bytes();
        assert!(short + 160 * MIB < kept, "{} of {} MiB are still resident", short / MIB, kept / MIB);
        drop(std::hint::black_box(fill()));
        assert!(resident_bytes() < short + 96 * MIB, "what is freed now stays");
    }
}
