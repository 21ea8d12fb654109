//! Backups of the binary: what is in one after topics and queues were deleted, and restores that refuse.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::json;

use crate::administration::{change, get};
use crate::damages::{files, mainstem, read};
use crate::process::Process;

const FLAGS: &[&str] = &["--set", "mainstem.journals=2", "--set", "mainstem.segment.bytes=262144"];

/// Of each topic and queue, before a restart. Each is a line of the log, which nobody reads from its pipe.
const RECORDS: usize = 40;
const MESSAGES: usize = 30;
const VALUE_BYTES: usize = 24_000;

fn publish(process: &Process, queue: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let message = json!({"routing_key": queue, "body": format!("{number} {}", "m".repeat(VALUE_BYTES))});
        let sent = change(process, "POST", "/v1/exchanges/%2F/amq.default/publish", message);
        assert!(sent.status < 300, "{}", sent.body);
    }
}

fn fill(process: &Process, topic: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let sent = change(
            process,
            "POST",
            &format!("/v1/topics/{topic}/records"),
            json!({"key": format!("k{number}"), "value": "v".repeat(VALUE_BYTES)}),
        );
        assert_eq!(sent.status, 201, "{}", sent.body);
    }
}

/// Two topics and two queues with data in sealed segments and in the open one, in which one of each is deleted.
fn after_deletions(data: &Path, backup: &Path) {
    let process = Process::start(data, FLAGS);
    for name in ["t", "gone"] {
        assert_eq!(change(&process, "POST", "/v1/topics", json!({"name": name, "partitions": 4})).status, 201);
        assert_eq!(change(&process, "PUT", &format!("/v1/queues/%2F/q-{name}"), json!({})).status, 201);
        fill(&process, name, 0..RECORDS);
        publish(&process, &format!("q-{name}"), 0..MESSAGES);
    }
    assert!(process.terminate().1);
    // A checkpoint is before what follows, in a segment that is not sealed.
    let process = Process::start(data, FLAGS);
    for name in ["t", "gone"] {
        fill(&process, name, RECORDS..RECORDS + 5);
        publish(&process, &format!("q-{name}"), MESSAGES..MESSAGES + 3);
    }
    for (method, path) in [("DELETE", "/v1/topics/gone"), ("DELETE", "/v1/queues/%2F/q-gone")] {
        assert!(change(&process, method, path, serde_json::Value::Null).status < 300, "{path}");
    }
    let (ok, said) = mainstem(&["backup", "--admin", &process.admin.to_string()], &[("--to", backup)]);
    assert!(ok, "{said}");
    let metrics = process.ask_admin("/metrics").expect("an answer");
    assert!(
        metrics.contains("mainstem_backups_total 1\n") && metrics.contains("mainstem_backup_failures_total 0\n"),
        "{metrics}"
    );
}

#[test]
fn a_backup_after_deletions_starts_with_all_that_is_left() {
    let scratch = tempfile::tempdir().expect("a folder");
    let [data, backup, restored] = ["data", "backup", "restored"].map(|name| scratch.path().join(name));
    after_deletions(&data, &backup);
    let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", &restored)]);
    assert!(ok, "{said}");
    let (ok, said) = mainstem(&["journal", "verify"], &[("--data", &restored)]);
    assert!(ok, "{said}");
    for _ in 0..2 {
        let process = Process::start(&restored, FLAGS);
        assert_eq!(read(&process), Ok((0..RECORDS + 5).map(|number| format!("k{number}")).collect()));
        assert_eq!(get(&process, "/v1/queues/%2F/q-t")["ready"], MESSAGES + 3);
        for path in ["/v1/topics/gone", "/v1/queues/%2F/q-gone"] {
            assert_eq!(change(&process, "GET", path, serde_json::Value::Null).status, 404, "{path}");
        }
        assert!(process.terminate().1);
    }
}

#[test]
fn a_backup_that_is_damaged_later_is_refused_by_name() {
    let scratch = tempfile::tempdir().expect("a folder");
    let [data, backup, restored] = ["data", "backup", "restored"].map(|name| scratch.path().join(name));
    after_deletions(&data, &backup);
    let all = files(&backup);
    let inside = |part: &'static str| all.iter().filter(move |path| path.to_string_lossy().contains(part));
    for path in [
        inside("journal-0/segment-").next(),
        inside("journal-1/segment-").next(),
        inside("journal-1/segment-").next_back(),
        inside("journal-0/checkpoint").next(),
    ] {
        let path = path.expect("it is there");
        // The backup has names of the broker's own files.
        let before = fs::read(path).expect("readable");
        fs::remove_file(path).expect("removable");
        fs::write(path, &before).expect("writable");
        // In a record, or what the checkpoint says.
        let at = before.windows(8).position(|part| part == b"vvvvvvvv" || part == b"mmmmmmmm").unwrap_or(40);
        fs::File::options()
            .write(true)
            .open(path)
            .expect("openable")
            .write_all_at(&[before[at] ^ 1], at as u64)
            .expect("writable");
        let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", &restored)]);
        let name = path.file_name().expect("a name").to_string_lossy();
        assert!(!ok && said.contains(&*name) && said.contains("damaged"), "{name}: {said}");
        assert!(files(&restored).is_empty(), "nothing is left");
        fs::write(path, &before).expect("writable");
    }
    let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", &restored)]);
    assert!(ok, "{said}");
}

/// What was restored, or copied, has journals of the same ids: a broker that had their objects in use too would delete those that it does not know.
#[test]
fn nobody_else_has_the_archive_that_a_broker_has_in_use() {
    let scratch = tempfile::tempdir().expect("a folder");
    let [data, backup, restored, archive, other] =
        ["data", "backup", "restored", "archive", "other"].map(|name| scratch.path().join(name));
    let archived = format!("mainstem.archive.folder={}", archive.display());
    let mut flags = FLAGS.to_vec();
    flags.extend(["--set", "mainstem.journal.window.bytes=2097152", "--set", &archived]);
    let process = Process::start(&data, &flags);
    assert_eq!(change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": 4})).status, 201);
    let objects = || files(&archive).iter().filter(|path| path.extension().is_none()).count();
    let mut written = 0;
    let mut archive_more = || {
        let before = objects();
        while objects() <= before {
            fill(&process, "t", written..written + 20);
            written += 20;
        }
        written
    };
    archive_more();
    let (ok, said) = mainstem(&["backup", "--admin", &process.admin.to_string()], &[("--to", &backup)]);
    assert!(ok, "{said}");
    let written = archive_more();
    let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", &restored), ("--archive", &archive)]);
    assert!(!ok && said.contains(".lock is locked") && said.contains(&*data.to_string_lossy()), "{said}");
    assert!(files(&restored).is_empty(), "nothing is left");
    let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", &restored), ("--archive", &other)]);
    assert!(ok, "{said}");
    let refused = |data: &Path| Process::try_start(data, &flags).err().expect("it is refused");
    let said = refused(&restored);
    assert!(said.contains(".lock is locked") && said.contains(&*data.to_string_lossy()), "{said}");
    let before = files(&backup);
    let said = refused(&backup);
    assert!(said.contains("is a backup, which stays as it is"), "{said}");
    assert_eq!(files(&backup), before);
    let keys: std::collections::BTreeSet<String> = (0..written).map(|number| format!("k{number}")).collect();
    for _ in 0..2 {
        assert_eq!(read(&process).map(|found| found == keys), Ok(true));
    }
    assert!(process.terminate().1);
    let (ok, said) = mainstem(&["journal", "verify"], &[("--data", &data), ("--archive", &archive)]);
    assert!(ok, "{said}");
    // Nobody has it any more.
    fs::remove_dir_all(&restored).expect("removable");
    let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", &restored), ("--archive", &archive)]);
    assert!(ok, "{said}");
}
