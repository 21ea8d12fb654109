//! Accounts of this very process and a child.

use std::process::{Command, Stdio};

use super::*;

#[test]
fn descendants_belong_to_the_account() {
    let mut child = Command::new("sh").args(["-c", "sleep 5 & wait"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let found = with_descendants(&[child.id()]);
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

#[test]
fn a_busy_thread_is_seen() {
    let mut threads = ThreadTimes::now();
    let (machine, began) = (MachineTimes::now(), std::time::Instant::now());
    let before = own_cpu_s();
    while began.elapsed().as_millis() < 300 {
        std::hint::black_box(number_after("a 1", "a"));
    }
    assert!(own_cpu_s() - before > 0.05);
    assert!(threads.busiest() > 0.15);
    let (idle, steal) = machine.idle_and_steal_percent();
    assert!((0.0..=100.0).contains(&idle) && (0.0..=100.0).contains(&steal));
}
