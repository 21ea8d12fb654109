//! Restores that are killed: after each of their system calls a copy is taken of the data folder, which is what a kill at that moment leaves, and
//! each copy is given to a start, to `journal verify` and to a restore.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::administration::change;
use crate::damages::{copy, files, is_same, mainstem};
use crate::process::Process;

const FLAGS: &[&str] = &["--set", "mainstem.segment.bytes=262144"];
const VALUE_BYTES: usize = 24_000;
const RECORDS: usize = 30;

/// A backup of a folder with two segments or more.
fn back_up(data: &Path, backup: &Path) {
    let process = Process::start(data, FLAGS);
    assert_eq!(change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": 1})).status, 201);
    for number in 0..RECORDS {
        let record = json!({"key": format!("k{number}"), "value": "v".repeat(VALUE_BYTES)});
        assert_eq!(change(&process, "POST", "/v1/topics/t/records", record).status, 201);
    }
    let (ok, said) = mainstem(&["backup", "--admin", &process.admin.to_string()], &[("--to", backup)]);
    assert!(ok, "{said}");
}

/// Names and lengths of all that is in a folder; nothing of one that is not there.
fn listing(folder: &Path) -> Option<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()) {
        found.push((path.clone(), fs::metadata(&path).map_or(0, |data| data.len())));
        found.extend(listing(&path).into_iter().flatten());
    }
    found.sort();
    Some(found)
}

/// One system call further, or to its end. False when the process has ended.
fn step(process: i32) -> bool {
    let mut status = 0;
    // SAFETY: of a child that this thread traces; the status is on the stack.
    unsafe {
        let asked = libc::ptrace(libc::PTRACE_SYSCALL, process, 0, 0);
        assert_eq!(asked, 0, "traced: {}", io::Error::last_os_error());
        assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
    }
    libc::WIFSTOPPED(status)
}

/// Restores, and returns copies of the data folder as it was after each change.
fn states(backup: &Path, data: &Path, copies: &Path) -> Vec<PathBuf> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    command
        .arg("restore")
        .arg("--from")
        .arg(backup)
        .arg("--data")
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let trace = || {
        // SAFETY: a plain system call of the new process.
        match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: nothing but a system call is done in it.
    unsafe { command.pre_exec(trace) };
    // Waited for by `step`.
    let process = command.spawn().expect("tests may trace their processes").id() as i32;
    // SAFETY: of a child that this thread traces; it has stopped when it began.
    assert_eq!(unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) }, process);
    let (mut states, mut last) = (Vec::new(), None);
    let mut goes_on = true;
    while goes_on {
        goes_on = step(process);
        let now = listing(data);
        if states.is_empty() || now != last {
            let state = copies.join(states.len().to_string());
            if now.is_some() {
                copy(data, &state);
            }
            states.push(state);
            last = now;
        }
    }
    states
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Nothing has been done: not there, or empty.
    Untouched,
    /// A start and `verify` say that a restore was interrupted.
    Refused,
    /// Everything is there.
    Whole,
}

fn judge(state: &Path, whole: &Path) -> State {
    if listing(state).is_none_or(|found| found.is_empty()) {
        return State::Untouched;
    }
    if is_same(whole, state) {
        return State::Whole;
    }
    let before = listing(state);
    let start = Process::try_start(state, FLAGS).err().unwrap_or_else(|| panic!("a broker starts with {before:?}"));
    for (ok, said) in [(false, start), mainstem(&["journal", "verify"], &[("--data", state)])] {
        let is_named = said.contains("a restore was interrupted")
            && said.contains("run `mainstem restore` to it again, or remove it");
        assert!(!ok && is_named, "{said}\nwith {before:?}");
    }
    assert_eq!(listing(state), before, "nothing is written to it");
    State::Refused
}

#[test]
fn a_kill_at_any_step_of_a_restore_leaves_what_no_broker_opens() {
    let scratch = tempfile::tempdir().expect("a folder");
    let [data, backup, whole] = ["data", "backup", "whole"].map(|name| scratch.path().join(name));
    back_up(&data, &backup);
    let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", &whole)]);
    assert!(ok, "{said}");
    let half = scratch.path().join("half");
    for (name, was_there) in [("new", false), ("empty", true)] {
        let (restored, copies) = (scratch.path().join(name), scratch.path().join(format!("{name}-states")));
        if was_there {
            fs::create_dir(&restored).expect("creatable");
        }
        let states = states(&backup, &restored, &copies);
        let judged: Vec<State> = states.iter().map(|state| judge(state, &whole)).collect();
        assert!(judged.len() > 12, "{judged:?}");
        assert!(
            judged.is_sorted_by_key(|state| match state {
                State::Untouched => 0,
                State::Refused => 1,
                State::Whole => 2,
            }),
            "{judged:?}"
        );
        assert_eq!(judged.iter().filter(|state| **state == State::Whole).count(), 1, "{judged:?}");
        if !half.exists() {
            copy(states.iter().find(|state| files(state).len() > 4).expect("a state with some files"), &half);
        }
        for state in states.iter().zip(&judged).filter_map(|(state, judged)| (*judged != State::Whole).then_some(state))
        {
            let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", state)]);
            assert!(ok && is_same(&whole, state), "{said}");
        }
    }
    // Begun again and killed again: at no time is the folder taken for an empty one.
    let states = states(&backup, &half, &scratch.path().join("half-states"));
    let judged: Vec<State> = states.iter().map(|state| judge(state, &whole)).collect();
    assert!(
        judged.last() == Some(&State::Whole) && judged[..judged.len() - 1].iter().all(|state| *state == State::Refused),
        "{judged:?}"
    );
    let process = Process::start(states.last().expect("some"), FLAGS);
    assert!(process.terminate().1);
}

#[test]
fn a_restore_that_is_refused_leaves_half_of_nothing() {
    let scratch = tempfile::tempdir().expect("a folder");
    let [data, backup, whole] = ["data", "backup", "whole"].map(|name| scratch.path().join(name));
    back_up(&data, &backup);
    // Everything is copied before it is noticed.
    let path = files(&backup).into_iter().find(|path| path.to_string_lossy().contains("segment-")).expect("a segment");
    let mut bytes = fs::read(&path).expect("readable");
    let at = bytes.windows(8).position(|part| part == b"vvvvvvvv").expect("a record");
    bytes[at] ^= 1;
    fs::remove_file(&path).expect("removable");
    fs::write(&path, bytes).expect("writable");
    let restored = scratch.path().join("restored");
    let states = states(&backup, &restored, &scratch.path().join("states"));
    let judged: Vec<State> = states.iter().map(|state| judge(state, &whole)).collect();
    let first = judged.iter().position(|state| *state == State::Refused).expect("some");
    assert!(judged[..first].iter().all(|state| *state == State::Untouched), "{judged:?}");
    assert!(judged[first..judged.len() - 1].iter().all(|state| *state == State::Refused), "{judged:?}");
    assert_eq!(judged.last(), Some(&State::Untouched), "nothing is left of it");
}

#[test]
fn a_folder_in_which_nothing_is_starts_as_a_new_one() {
    let scratch = tempfile::tempdir().expect("a folder");
    assert!(Process::start(scratch.path(), FLAGS).terminate().1);
    assert!(Process::start(scratch.path(), FLAGS).terminate().1);
}
