//! `mainstem serve` as an operator sees it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::administration::change;
use crate::process::{Process, exchange, output, receive, send, serve};

/// ApiVersions version 0 with a correlation id.
fn api_versions(correlation_id: i32) -> Vec<u8> {
    let mut request = vec![0, 18, 0, 0];
    request.extend(correlation_id.to_be_bytes());
    request.extend([0xff, 0xff]);
    request
}

fn refusal(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let done = output(serve(folder.path(), flags));
    assert!(!done.status.success(), "{flags:?} is refused");
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn it_starts_answers_and_ends_with_success_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let mut socket = process.connect();
    let answer = exchange(&mut socket, &api_versions(7)).expect("an answer");
    assert_eq!(answer[..6], [0, 0, 0, 7, 0, 0], "correlation id, then no error");
    assert!(process.ask_admin("/health/live").unwrap().starts_with("HTTP/1.1 200"));
    assert!(process.ask_admin("/nothing").unwrap().starts_with("HTTP/1.1 404"));
    let metrics = process.ask_admin("/metrics").unwrap();
    for name in [
        "mainstem_kafka_requests_total",
        "mainstem_journal_commit_duration_seconds",
        "mainstem_shard_blocked",
        "mainstem_memory_budget_bytes 134217728",
        "mainstem_recovery_seconds",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    let (text, success) = process.terminate();
    assert!(success, "{text}");
    for word in ["kafka", "admin", "data", "durability", "fsync"] {
        assert!(text.contains(word), "{word} in the start block: {text}");
    }
}

#[test]
fn a_super_user_is_named_as_a_principal() {
    for wrong in ["bob", "User:ann;bob", "Group:admins", "User:", "User:ann,User:bob"] {
        let said = refusal(&["--set", &format!("super.users={wrong}")]);
        assert!(said.contains("super.users") && said.contains(wrong) && said.contains("User:NAME"), "{said}");
    }
}

/// Names and modes of all that is in a folder and may be read by others than its owner.
fn readable(folder: &Path) -> Vec<(PathBuf, u32)> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let each = entries.flat_map(|path| {
        let data = std::fs::metadata(&path).expect("it is there");
        let below = if data.is_dir() { readable(&path) } else { Vec::new() };
        let own = (data.permissions().mode() & 0o077 != 0).then(|| (path, data.permissions().mode()));
        below.into_iter().chain(own)
    });
    each.collect()
}

#[test]
fn files_are_for_their_owner_in_a_folder_that_was_there_for_everybody() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755)).unwrap();
    let log = folder.path().join("mainstem.log");
    let process = Process::start(&data, &["--log-file", log.to_str().unwrap()]);
    change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": 1}));
    let (text, success) = process.terminate();
    assert!(success, "{text}");
    assert_eq!(readable(&data), []);
    assert!(std::fs::read_dir(&data).unwrap().count() > 2);
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o640, "the group reads the log");
}

#[test]
fn requests_in_one_go_are_answered_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let mut socket = process.connect();
    for number in 0..200 {
        send(&mut socket, &api_versions(number));
    }
    for number in 0..200 {
        let answer = receive(&mut socket).expect("an answer");
        assert_eq!(answer[..4], i32::to_be_bytes(number));
    }
}

/// Metadata version 4 about topics that do not exist and are not to be created.
fn metadata(correlation_id: i32, names: usize) -> Vec<u8> {
    let mut request = vec![0, 3, 0, 4];
    request.extend(correlation_id.to_be_bytes());
    request.extend([0xff, 0xff]);
    request.extend((names as u32).to_be_bytes());
    for number in 0..names {
        let name = format!("no-such-topic-{number:06}");
        request.extend((name.len() as u16).to_be_bytes());
        request.extend(name.as_bytes());
    }
    request.push(0);
    request
}

#[test]
fn requests_in_any_pieces_are_the_same_requests() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let sizes = [1, 0, 5_000, 2, 20_000, 20_000, 3, 1_489, 1_490, 1];
    let mut stream = Vec::new();
    for (number, names) in sizes.iter().enumerate() {
        let request = metadata(number as i32, *names);
        stream.extend((request.len() as u32).to_be_bytes());
        stream.extend(request);
    }
    for piece in [1_000_003, 65_536, 32_771, 9_001] {
        let socket = process.connect();
        let mut writing = socket.try_clone().unwrap();
        let stream = stream.clone();
        let writer = std::thread::spawn(move || {
            for part in stream.chunks(piece) {
                std::io::Write::write_all(&mut writing, part).expect("the broker reads");
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        let mut reading = socket;
        for (number, names) in sizes.iter().enumerate() {
            let answer = receive(&mut reading).expect("an answer");
            assert_eq!(answer[..4], i32::to_be_bytes(number as i32), "in pieces of {piece}");
            assert!(answer.len() >= names * 24, "an answer about each topic");
        }
        writer.join().unwrap();
    }
}

/// A client that follows Nagle's algorithm, as librdkafka 2.0 does, holds the rest of a request back until its first part is acknowledged,
/// which systems put off by 40 ms when a connection asks and answers.
#[test]
fn a_request_in_parts_does_not_wait_for_an_acknowledgement_put_off() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    for (names, piece) in [(1, 10), (1_700, 16 << 10), (5_000, 16 << 10)] {
        let mut socket = process.connect();
        let mut waits: Vec<std::time::Duration> = (0..41)
            .map(|number| {
                let request = metadata(number, names);
                let mut frame = (request.len() as u32).to_be_bytes().to_vec();
                frame.extend(request);
                let began = std::time::Instant::now();
                for part in frame.chunks(piece) {
                    std::io::Write::write_all(&mut socket, part).expect("the broker reads");
                }
                receive(&mut socket).expect("an answer");
                began.elapsed()
            })
            .collect();
        // The first ones are acknowledged at once in any case. What is put off is so each time; other work of the machine is not.
        let least = waits.split_off(20).into_iter().min().expect("some are left");
        assert!(least < std::time::Duration::from_millis(30), "{names} names in parts of {piece} bytes: {least:?}");
    }
}

#[test]
fn sigterm_does_not_wait_for_a_client_that_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let mut socket = process.connect();
    std::io::Write::write_all(&mut socket, &[0, 0, 1]).unwrap();
    let (said, ended_well) = process.terminate();
    assert!(ended_well && said.contains("connections drained"), "{said}");
}

#[test]
fn a_frame_that_is_too_long_closes_only_its_own_connection() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--set", "socket.request.max.bytes=65536"]);
    let (mut good, mut bad) = (process.connect(), process.connect());
    std::io::Write::write_all(&mut bad, &65_537u32.to_be_bytes()).unwrap();
    assert!(receive(&mut bad).is_none(), "closed");
    let mut negative = process.connect();
    std::io::Write::write_all(&mut negative, &(-1i32).to_be_bytes()).unwrap();
    assert!(receive(&mut negative).is_none(), "closed");
    assert!(exchange(&mut good, &api_versions(1)).is_some(), "the other goes on");
}

#[test]
fn a_second_start_on_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let second = output(serve(folder.path(), &["--kafka", "127.0.0.1:0", "--admin", "127.0.0.1:0"]));
    let text = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && text.contains("in use by"), "{text}");
    process.kill();
    let after = Process::start(folder.path(), &[]);
    assert!(after.terminate().1, "a killed process leaves no lock");
}

#[test]
fn wrong_configuration_names_setting_value_and_what_would_be_right() {
    for (flags, words) in [
        (&["--set", "num.partition=3"][..], &["num.partition", "did you mean num.partitions?"][..]),
        (&["--set", "num.partitions=many"], &["num.partitions", "\"many\"", "whole number"]),
        (&["--durability", "maybe"], &["--durability", "\"maybe\"", "fsync"]),
        (&["--memory", "lots"], &["--memory", "\"lots\"", "512MiB"]),
        (&["--io", "psync"], &["--io", "\"psync\"", "buffered"]),
        (&["--kafka", "nowhere"], &["--kafka", "\"nowhere\"", "127.0.0.1:9092"]),
        (&["--advertise", "0.0.0.0"], &["--advertise", "0.0.0.0"]),
        (&["--kafka", "0.0.0.0:9092"], &["--kafka", "0.0.0.0:9092", "log in", "mainstem.anonymous.clients=anywhere"]),
        (&["--kafka", "[::]:9092"], &["--kafka", "[::]:9092", "log in"]),
        (&["--kafka", "127.0.0.1:0", "--kafka", "192.0.2.1:9092"], &["--kafka", "192.0.2.1:9092", "log in"]),
        (&["--set", "listeners=PLAINTEXT://0.0.0.0:9092"], &["listeners", "0.0.0.0:9092", "log in"]),
        (&["--set", "listeners=PLAINTEXT://:9092"], &["listeners", "0.0.0.0:9092", "log in"]),
        (
            &["--kafka-tls", "0.0.0.0:9093", "--tls-certificate", "c", "--tls-key", "k"],
            &["--kafka-tls", "0.0.0.0:9093", "--tls-clients required"],
        ),
        (
            &[
                "--kafka-tls",
                "0.0.0.0:9093",
                "--tls-certificate",
                "c",
                "--tls-key",
                "k",
                "--tls-ca",
                "a",
                "--tls-clients",
                "optional",
            ],
            &["--kafka-tls", "0.0.0.0:9093", "--tls-clients required"],
        ),
        (
            &["--set", "listeners=SSL://0.0.0.0:9093", "--tls-certificate", "c", "--tls-key", "k"],
            &["listeners", "0.0.0.0:9093", "log in"],
        ),
        (&["--log", "xml"], &["--log", "\"xml\"", "json"]),
        (&["--config", "/nonexistent.toml"], &["--config", "/nonexistent.toml"]),
    ] {
        let text = refusal(flags);
        for word in words {
            assert!(text.contains(word), "{flags:?}: {word} in {text}");
        }
    }
}

#[test]
fn a_bind_beyond_loopback_is_warned_about() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(
        folder.path(),
        &["--kafka", "0.0.0.0:0", "--amqp", "0.0.0.0:0", "--set", "mainstem.anonymous.clients=anywhere"],
    );
    let (text, success) = process.terminate();
    assert!(
        success && text.contains("nobody has to log in") && text.contains("passwords pass it as clear text"),
        "{text}"
    );
    let process = Process::start(folder.path(), &["--management", "0.0.0.0:0"]);
    let (text, success) = process.terminate();
    let warnings: Vec<&str> = text.lines().filter(|line| line.contains("WARNING")).collect();
    assert!(
        success
            && warnings.len() == 1
            && warnings[0].contains("is reachable by others: passwords pass it as clear text"),
        "{text}"
    );
}

#[test]
fn inspect_prints_what_is_ours_and_refuses_other_files() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Process::start(folder.path(), &[]).terminate().1);
    let inspect = |file: &std::path::Path| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mainstem"));
        command.arg("inspect").arg(file);
        output(command)
    };
    let mut printed = 0;
    for entry in std::fs::read_dir(folder.path().join("journal-0")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment")) {
            let done = inspect(&path);
            assert!(done.status.success() && !done.stdout.is_empty(), "{}", path.display());
            printed += 1;
        }
    }
    assert!(printed > 0, "there is a segment");
    for (name, word) in [("meta.toml", "cluster_id"), ("lock", "")] {
        let done = inspect(&folder.path().join(name));
        assert!(done.status.success() && String::from_utf8_lossy(&done.stdout).contains(word), "{name}");
    }
    let other = folder.path().join("other");
    std::fs::write(&other, "neither").unwrap();
    assert!(!inspect(&other).status.success());
}

/// Clients that take every descriptor they are given leave those that the journals and the pages need.
#[test]
fn idle_connections_leave_descriptors_for_writes_and_pages() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start_limited(folder.path(), "ulimit -n 256", &["--set", "mainstem.segment.bytes=4194304"]);
    let made = change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": 1}));
    assert_eq!(made.status, 201, "{}", made.body);
    let idle: Vec<_> = (0..400).map(|_| process.connect()).collect();
    for number in 0..60 {
        let written = change(&process, "POST", "/v1/topics/t/records", json!({"value": "x".repeat(500_000)}));
        assert_eq!(written.status, 201, "{number}: {}", written.body);
        assert!(process.ask_admin("/health/ready").unwrap().starts_with("HTTP/1.1 200"));
    }
    assert!(std::fs::read_dir(folder.path().join("journal-0")).unwrap().count() > 5, "several segments");
    drop(idle);
    let began = std::time::Instant::now();
    while exchange_if_admitted(&process).is_none() {
        assert!(began.elapsed() < crate::process::PATIENCE, "there is room again");
    }
    let (text, success) = process.terminate();
    assert!(success && text.contains("connections=") && text.contains("open files (ulimit -n)"), "{text}");
}

fn exchange_if_admitted(process: &Process) -> Option<Vec<u8>> {
    let mut socket = process.connect();
    std::io::Write::write_all(&mut socket, &[&[0, 0, 0, 10], &api_versions(7)[..]].concat()).ok()?;
    receive(&mut socket)
}
