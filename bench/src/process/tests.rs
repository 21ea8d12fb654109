//! Accounts of this very process and a child.

use std::process::{Command, Stdio};

use super::*;

#[test]
fn descendants_belong_to_the_account() {
    let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).stdout(Stdio::null()).spawn().unwrap();
    let mut found = with_descendants(&[child.id()]);
    while found.len() < 2 && child.try_wait().unwrap().is_none() {
        found = with_descendants(&[child.id()]);
    }
    let account = account(&found);
    for pid in found.iter().rev() {
        // SAFETY: ends the processes that this test has started.
        unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
    }
    child.wait().unwrap();
    assert_eq!((found.len(), account.processes), (2, 2), "the shell and its sleep");
    assert!(account.handles >= 2 && account.threads == 2, "{account:?}");
    assert!(with_descendants(&[child.id()]).is_empty(), "what has ended has no account");
}

/// Processor time of this thread, however many others there are.
fn of_this_thread_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn a_busy_thread_is_seen() {
    let mut threads = ThreadTimes::now();
    let (machine, began) = (MachineTimes::now(), std::time::Instant::now());
    let before = own_cpu_s();
    while of_this_thread_s() < 0.2 {
        std::hint::black_box(number_after("a 1", "a"));
    }
    assert!(own_cpu_s() - before > 0.05);
    let share = 0.2 / began.elapsed().as_secs_f64();
    assert!(threads.busiest() > 0.5 * share, "{share} of a core at least");
    let used = machine.used();
    assert!(used.own_s > 0.05 && used.busy_s() > 0.05 && used.all_s >= used.busy_s(), "{used:?}");
    assert!((0.0..=100.0).contains(&used.percent(used.idle_s)) && (0.0..=100.0).contains(&used.percent(used.stolen_s)));
}

#[test]
fn what_nobody_known_used_was_used_by_others() {
    let before = MachineTimes {
        all: 100.0,
        idle: 50.0,
        kernel: BTreeMap::from([(2, 1.0), (3, 5.0)]),
        ..MachineTimes::default()
    };
    let now = MachineTimes {
        all: 120.0,
        idle: 55.0,
        stolen: 1.0,
        interrupts: 0.5,
        // One has ended, one is new.
        kernel: BTreeMap::from([(2, 2.5), (4, 0.5)]),
        own: 4.0,
    };
    let used = before.used_until(&now);
    assert_eq!((used.busy_s(), used.kernel_s, used.own_s), (14.0, 2.0, 4.0));
    assert_eq!(used.others_s(6.0), 1.5, "14 less broker 6, kernel 2, interrupts 0.5, this process 4");
    assert_eq!((used.percent(1.5), used.others_s(60.0)), (7.5, 0.0));
}

#[test]
fn kernel_threads_are_told_from_processes() {
    let times = MachineTimes::now();
    assert!(!times.kernel.contains_key(&std::process::id()));
    let flags = stat_fields(Path::new("/proc/2/stat")).and_then(|fields| fields.get(6)?.parse::<u64>().ok());
    // In a container there are none to be seen.
    assert!(flags.is_none_or(|flags| flags & KERNEL_THREAD == 0 || times.kernel.contains_key(&2)), "{times:?}");
}
