//! Accounts of processes from `/proc`: the target's, and the generator's own.
//!
//! A target is a few processes: those its file names and all their descendants. Their number may change while it runs;
//! the account asks anew each time. Processor time of a process that ended in between is lost, which for brokers that
//! stay up is nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// Jiffies a second, as `/proc` counts them.
fn ticks_per_s() -> f64 {
    // SAFETY: sysconf reads a constant.
    (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }) as f64
}

/// What a set of processes used until now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    pub processes: u32,
    pub cpu_s: f64,
    /// Without the page cache.
    pub memory_mb: f64,
    /// Absent where no cgroup tells.
    pub page_cache_mb: Option<f64>,
    pub threads: u64,
    pub handles: u64,
    pub sockets: u64,
    pub written_bytes: u64,
}

/// Fields of `/proc/PID/stat` after the command name: state is the 1st, parent the 2nd, utime the 12th, stime the 13th.
fn stat_fields(path: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn cpu_of(fields: &[String]) -> f64 {
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / ticks_per_s()
}

/// These processes and all their descendants, as far as they are running.
pub fn with_descendants(roots: &[u32]) -> BTreeSet<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut running = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Some(fields) = stat_fields(&entry.path().join("stat")) else { continue };
        // A zombie has ended; only its parent has not looked yet.
        if fields.first().is_some_and(|state| state == "Z") {
            continue;
        }
        running.insert(pid);
        if let Some(parent) = fields.get(1).and_then(|field| field.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<u32> = roots.iter().copied().filter(|pid| running.contains(pid)).collect();
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

/// The account of these processes.
pub fn account(pids: &BTreeSet<u32>) -> Account {
    let mut all = Account::default();
    for pid in pids {
        let folder = Path::new("/proc").join(pid.to_string());
        let Some(fields) = stat_fields(&folder.join("stat")) else { continue };
        all.processes += 1;
        all.cpu_s += cpu_of(&fields);
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        all.memory_mb += number_after(&status, "VmRSS:") as f64 * 1024.0 / 1e6;
        all.threads += number_after(&status, "Threads:");
        all.written_bytes += number_after(&fs::read_to_string(folder.join("io")).unwrap_or_default(), "\nwrite_bytes:");
        for handle in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
            all.handles += 1;
            let to = fs::read_link(handle.path()).unwrap_or_default();
            all.sockets += u64::from(to.to_string_lossy().starts_with("socket:"));
        }
    }
    all
}

/// The number behind the first such word of a text; 0 when there is none.
pub fn number_after(text: &str, word: &str) -> u64 {
    let rest = text.split_once(word).map_or("", |(_, rest)| rest);
    rest.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Processor time of this process, seconds.
pub fn own_cpu_s() -> f64 {
    stat_fields(Path::new("/proc/self/stat")).map_or(0.0, |fields| cpu_of(&fields))
}

/// Asks the kernel to wake this thread when it asked to, not up to 50 µs later.
pub fn wake_on_time() {
    // SAFETY: changes a property of the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
}

/// Processor times of this process' threads, to tell the busiest.
#[derive(Debug)]
pub struct ThreadTimes {
    seconds: BTreeMap<u32, f64>,
    at: std::time::Instant,
}

impl ThreadTimes {
    /// As they are now.
    pub fn now() -> Self {
        let mut seconds = BTreeMap::new();
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if let Some(fields) = stat_fields(&entry.path().join("stat")) {
                seconds.insert(id, cpu_of(&fields));
            }
        }
        Self { seconds, at: std::time::Instant::now() }
    }

    /// Share of a core that the busiest thread used since the last call.
    pub fn busiest(&mut self) -> f64 {
        let before = std::mem::replace(self, Self::now());
        let elapsed = (self.at - before.at).as_secs_f64().max(1e-3);
        let used = |(id, seconds): (&u32, &f64)| seconds - before.seconds.get(id).unwrap_or(&0.0);
        self.seconds.iter().map(used).fold(0.0, f64::max) / elapsed
    }
}

/// Processor time of the whole machine until now, seconds: of its processors, of its kernel threads, and of this process.
#[derive(Clone, Debug, Default)]
pub struct MachineTimes {
    all: f64,
    idle: f64,
    stolen: f64,
    interrupts: f64,
    kernel: BTreeMap<u32, f64>,
    own: f64,
}

/// What the whole machine did between two moments, seconds of processor time.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineUse {
    /// Of all processors together.
    pub all_s: f64,
    /// Nobody used it; waiting for the disk included.
    pub idle_s: f64,
    /// The host took it away.
    pub stolen_s: f64,
    /// Interrupts, which the kernel may count of no process.
    pub interrupts_s: f64,
    /// Kernel threads: writing back, journals of file systems, network.
    pub kernel_s: f64,
    /// This process.
    pub own_s: f64,
}

/// Set in the flags of a kernel thread.
const KERNEL_THREAD: u64 = 0x0020_0000;

impl MachineTimes {
    /// As they are now.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let fields: Vec<f64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0.0) / ticks_per_s();
        let mut kernel = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Some(fields) = stat_fields(&entry.path().join("stat")) else { continue };
            let flags = fields.get(6).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            if flags & KERNEL_THREAD != 0 {
                kernel.insert(pid, cpu_of(&fields));
            }
        }
        Self {
            // Guest time (the last two) is contained in user time.
            all: (0..8).map(field).sum(),
            idle: field(3) + field(4),
            stolen: field(7),
            interrupts: field(5) + field(6),
            kernel,
            own: own_cpu_s(),
        }
    }

    /// What was used from then until now.
    pub fn used(&self) -> MachineUse {
        self.used_until(&Self::now())
    }

    fn used_until(&self, now: &Self) -> MachineUse {
        let kernel = |(pid, seconds): (&u32, &f64)| (seconds - self.kernel.get(pid).unwrap_or(&0.0)).max(0.0);
        MachineUse {
            all_s: (now.all - self.all).max(0.0),
            idle_s: (now.idle - self.idle).max(0.0),
            stolen_s: (now.stolen - self.stolen).max(0.0),
            interrupts_s: (now.interrupts - self.interrupts).max(0.0),
            kernel_s: now.kernel.iter().map(kernel).sum(),
            own_s: (now.own - self.own).max(0.0),
        }
    }
}

impl MachineUse {
    /// What was neither idle nor taken away.
    pub fn busy_s(&self) -> f64 {
        (self.all_s - self.idle_s - self.stolen_s).max(0.0)
    }

    /// What others used than the broker, the kernel and this process.
    pub fn others_s(&self, broker_s: f64) -> f64 {
        (self.busy_s() - broker_s - self.kernel_s - self.interrupts_s - self.own_s).max(0.0)
    }

    /// So many seconds as a share of all, in percent.
    pub fn percent(&self, seconds: f64) -> f64 {
        if self.all_s > 0.0 { (seconds / self.all_s * 100.0).clamp(0.0, 100.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
