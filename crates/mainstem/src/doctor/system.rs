//! What doctor says of limits, memory and swap: those of the broker that runs, or where none does, those of the shell that asks.

use std::fs;

use types::ByteSize;

use super::running::{Holder, Running};
use super::{Finding, bad, fine, warning};
use crate::memory;

/// Descriptors: a connection takes one.
const FILES_WANTED: u64 = 65_536;
const FILES_NEEDED: u64 = 1_024;
/// Of the descriptors, so many are in use when somebody is to be told: nine tenths.
const FILES_TENTHS: u64 = 9;
/// Before Linux 5.12 io_uring's rings count as locked memory.
const LOCKED_NEEDED: u64 = 8 << 20;

/// A limit, what is used of it, and whose it is.
struct Limit {
    soft: u64,
    hard: u64,
    whose: String,
}

impl Limit {
    /// The name in `/proc/PID/limits`, and the number for `getrlimit`.
    fn of(holder: &Holder, name: &str, which: libc::__rlimit_resource_t) -> Self {
        if let Holder::Running(running) = holder
            && let Some((soft, hard)) = running.limit(name)
        {
            return Self { soft, hard, whose: format!("of the running broker, process {}", running.pid) };
        }
        let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is valid for the call.
        unsafe { libc::getrlimit(which, &raw mut limits) };
        Self { soft: limits.rlim_cur, hard: limits.rlim_max, whose: "of this shell; a service has its own".to_owned() }
    }
}

pub fn open_files(holder: &Holder) -> Finding {
    const ABOUT: &str = "open files";
    let Limit { soft, hard, whose } = Limit::of(holder, "Max open files", libc::RLIMIT_NOFILE);
    let used = if let Holder::Running(running) = holder { running.files_open() } else { None };
    judge_files(ABOUT, (soft, hard), used, &whose)
}

fn judge_files(about: &'static str, (soft, hard): (u64, u64), used: Option<u64>, whose: &str) -> Finding {
    let in_use = used.map(|count| format!(", {count} in use")).unwrap_or_default();
    let found = format!("limit {soft}{in_use} ({whose})");
    let advice = format!(
        "LimitNOFILE={FILES_WANTED} in the systemd unit, or ulimit -n (up to {hard} here) before the start: each connection takes one"
    );
    if used.is_some_and(|used| used >= soft / 10 * FILES_TENTHS) {
        return bad(about, found, format!("new connections will fail: {advice}"));
    }
    match soft {
        0..FILES_NEEDED => bad(about, found, advice),
        FILES_NEEDED..FILES_WANTED => warning(about, found, advice),
        _ => fine(about, found),
    }
}

pub fn locked_memory(holder: &Holder) -> Finding {
    const ABOUT: &str = "locked memory";
    let Limit { soft, whose, .. } = Limit::of(holder, "Max locked memory", libc::RLIMIT_MEMLOCK);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let shown = if soft == u64::MAX { "no limit".to_owned() } else { format!("limit {}", ByteSize(soft)) };
    let found = format!("{shown} ({whose}), Linux {}", release.trim());
    if version < (5, 12) && soft < LOCKED_NEEDED {
        return warning(
            ABOUT,
            found,
            "LimitMEMLOCK=64M in the systemd unit, or ulimit -l: this kernel counts io_uring's rings",
        );
    }
    fine(ABOUT, found)
}

pub fn memory(holder: &Holder) -> Finding {
    const ABOUT: &str = "memory";
    let process = if let Holder::Running(running) = holder { running.pid.to_string() } else { "self".to_owned() };
    let available = memory::available_to(&process);
    let (budget, least) = (memory::budget_of(available), crate::config::MEMORY_MIN.bytes());
    let found =
        format!("{available}, of which a broker takes {budget} for buffers and caches unless --memory says otherwise");
    match available.bytes() {
        bytes if bytes < 2 * least => bad(ABOUT, found, "give the machine or the cgroup at least 256 MiB"),
        bytes if bytes < 4 * least => {
            warning(ABOUT, found, "the least budget is more than a quarter here: give the machine or the cgroup more")
        }
        _ => fine(ABOUT, found),
    }
}

/// A broker in swap space makes its clients wait for a disk that the journal does not know of.
pub fn swap(holder: &Holder) -> Finding {
    let swapped = if let Holder::Running(running) = holder { Running::swapped_bytes(running) } else { 0 };
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    judge_swap(swapped, swap_bytes(&machine))
}

fn swap_bytes(machine: &str) -> u64 {
    let line = machine.lines().find_map(|line| line.strip_prefix("SwapTotal:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn judge_swap(swapped: u64, machine: u64) -> Finding {
    const ABOUT: &str = "swap";
    match (swapped, machine) {
        (1.., _) => {
            let advice = "clients wait for it to come back: MemorySwapMax=0 in the systemd unit (or swapoff -a), and a smaller --memory or more memory";
            warning(ABOUT, format!("{} of the running broker are in swap space", ByteSize(swapped)), advice)
        }
        (0, 0) => fine(ABOUT, "the machine has none".to_owned()),
        (0, all) => fine(ABOUT, format!("{} on the machine, nothing of a broker in it", ByteSize(all))),
    }
}

/// Memory in pages of 2 MiB is fine as long as nobody waits until the system has made one.
pub fn huge_pages() -> Finding {
    let read =
        |name: &str| fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}")).unwrap_or_default();
    judge_huge_pages(&read("enabled"), &read("defrag"))
}

fn judge_huge_pages(enabled: &str, defrag: &str) -> Finding {
    const ABOUT: &str = "huge pages";
    let chosen = |text: &str| {
        text.split_whitespace()
            .find_map(|word| word.strip_prefix('[')?.strip_suffix(']').map(str::to_owned))
            .unwrap_or_else(|| "not known".to_owned())
    };
    let (enabled, defrag) = (chosen(enabled), chosen(defrag));
    let found = format!("transparent ones: {enabled}, defrag: {defrag}");
    if enabled == "always" && defrag == "always" {
        let advice = "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag: whoever asks for memory may wait until the system has moved other memory together";
        return warning(ABOUT, found, advice);
    }
    fine(ABOUT, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn descriptors_are_judged_by_their_limit_and_by_what_is_left() {
        let of = |soft, used| judge_files("open files", (soft, 1 << 20), used, "of the running broker, process 7");
        assert_eq!(of(1 << 20, None).verdict, Verdict::Fine);
        assert_eq!(of(4096, Some(100)).verdict, Verdict::Warning);
        assert_eq!(of(512, Some(100)).verdict, Verdict::Bad);
        let short = of(100_000, Some(95_000));
        assert!(
            short.verdict == Verdict::Bad
                && short.found.contains("95000 in use (of the running broker, process 7)")
                && short.advice.contains("LimitNOFILE"),
            "{short:?}"
        );
    }

    #[test]
    fn swap_and_huge_pages_are_named_where_they_make_clients_wait() {
        assert_eq!(swap_bytes("MemTotal: 1 kB\nSwapTotal:    2048 kB\n"), 2 << 20);
        let swapped = judge_swap(5 << 20, 2 << 30);
        assert!(
            swapped.verdict == Verdict::Warning
                && swapped.found.starts_with("5 MiB of the running broker")
                && swapped.advice.contains("MemorySwapMax"),
            "{swapped:?}"
        );
        assert_eq!((judge_swap(0, 0).verdict, judge_swap(0, 1 << 30).verdict), (Verdict::Fine, Verdict::Fine));
        assert_eq!(judge_huge_pages("always [madvise] never\n", "[always] defer never\n").verdict, Verdict::Fine);
        let pages = judge_huge_pages("[always] madvise never\n", "[always] defer defer+madvise madvise never\n");
        assert!(pages.verdict == Verdict::Warning && pages.advice.contains("defrag"), "{pages:?}");
        assert_eq!(judge_huge_pages("", "").verdict, Verdict::Fine);
    }
}
