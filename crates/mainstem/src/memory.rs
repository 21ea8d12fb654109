//! How much memory there is to plan with, how much is used, and how much of what is freed stays for the next use.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use types::ByteSize;

use crate::shard::ShardHandle;

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

/// Gives back what work has left in the allocator's heaps, once there is none: how much each heap may keep is chosen for work that goes
/// on. Giving back holds up whoever asks for memory meanwhile, and what comes next faults its pages in again; so it waits until the shards
/// have rested for a while, and is done once after each stretch of work. Where more is resident than the budget, it does not wait: each thread's
/// heap keeps what its largest moment has left between what stays, and the sum of these is bounded by nothing else.
pub struct Rest {
    looked: Instant,
    /// Busy time of all shards when last looked, ns.
    busy: u64,
    /// Busy time of all shards when memory was last given back, ns.
    given_back: u64,
    /// More resident bytes are too many.
    budget: u64,
    /// When memory may be given back again because there are too many, and how long after that.
    pressed: (Instant, Duration),
}

impl Rest {
    /// How often [`Self::look`] is to be called.
    pub const LOOK: Duration = Duration::from_secs(1);
    /// What is judged together.
    const SPAN: Duration = Duration::from_secs(10);
    /// Shards that were busy for less than this share of a span were at rest.
    const SHARE: u32 = 100;
    /// Work that is worth it.
    const WORTH: Duration = Duration::from_millis(500);
    /// Between two times beyond the budget …
    const PRESSED: Duration = Duration::from_secs(5);
    /// … at the most, where giving back is of little use.
    const PRESSED_MAX: Duration = Duration::from_secs(80);
    /// Of the budget: less is of little use.
    const USE: u64 = 32;

    pub fn new(budget: ByteSize) -> Self {
        let now = Instant::now();
        Self { looked: now, busy: 0, given_back: 0, budget: budget.bytes(), pressed: (now, Self::PRESSED) }
    }

    /// Gives back if it is time to.
    pub fn look(&mut self, shards: &[ShardHandle], now: Instant) {
        let rests = self.is_due(shards.iter().map(|shard| shard.busy.load(Ordering::Relaxed)).sum(), now);
        let resident = resident_bytes();
        if rests || self.is_pressed(resident, now) {
            give_back_unused();
            self.note_given_back(resident.saturating_sub(resident_bytes()), Instant::now());
        }
    }

    fn is_due(&mut self, busy: u64, now: Instant) -> bool {
        let span = now.saturating_duration_since(self.looked);
        if span < Self::SPAN {
            return false;
        }
        let lately = Duration::from_nanos(busy - self.busy);
        (self.looked, self.busy) = (now, busy);
        let due = lately < span / Self::SHARE && Duration::from_nanos(busy - self.given_back) >= Self::WORTH;
        if due {
            self.given_back = busy;
        }
        due
    }

    fn is_pressed(&self, resident: u64, now: Instant) -> bool {
        resident > self.budget && now >= self.pressed.0
    }

    fn note_given_back(&mut self, bytes: u64, now: Instant) {
        let pause = if bytes >= self.budget / Self::USE { Self::PRESSED } else { (self.pressed.1 * 2).min(Self::PRESSED_MAX) };
        self.pressed = (now + pause, pause);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_work() {
        let mut rest = Rest::new(ByteSize(64));
        let begin = rest.looked;
        let mut at = |seconds: u64, busy_ms: u64| rest.is_due(busy_ms * 1_000_000, begin + Duration::from_secs(seconds));
        assert!(!at(10, 0), "nothing has been done yet");
        assert!(!at(20, 4000), "there is work");
        assert!(!at(25, 4000), "it may only pause");
        assert!(at(30, 4050));
        assert!(!at(40, 4060), "nothing since");
        assert!(!at(50, 4120), "a little that goes on is no reason");
        assert!(!at(60, 4650));
        assert!(at(70, 4650));
    }

    #[test]
    fn memory_is_given_back_under_way_while_it_is_beyond_the_budget_and_of_use() {
        let mut rest = Rest::new(ByteSize(3200));
        let begin = rest.pressed.0;
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(!rest.is_pressed(3200, at(1)) && rest.is_pressed(3201, at(1)));
        rest.note_given_back(100, at(1));
        assert!(!rest.is_pressed(4000, at(5)) && rest.is_pressed(4000, at(6)), "others use it meanwhile");
        for (pause, given_back) in [(5, 99), (10, 99), (20, 99), (40, 99), (80, 99), (80, 100), (5, 100)] {
            let began = rest.pressed.0;
            assert_eq!(rest.pressed.1, Duration::from_secs(pause));
            rest.note_given_back(given_back, began);
        }
    }
}
