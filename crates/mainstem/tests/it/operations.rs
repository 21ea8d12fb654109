//! Commands that look after a node: what they print, and the status they end with.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::process::{Process, output, serve};

fn mainstem(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    command.args(words);
    output(command)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn doctor_says_what_is_bad_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let found = text(&mainstem(&["doctor", "--data", &data.display().to_string()]));
    for about in ["data folder", "disk space", "disk I/O", "disk speed", "backups", "open files", "clock", "memory"] {
        assert!(found.contains(about), "{about} in {found}");
    }
    assert!(found.contains("is new"), "{found}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let done = mainstem(&["doctor", "--data", &file.display().to_string()]);
    assert!(!done.status.success() && text(&done).contains("is no folder"), "{}", text(&done));
    let limited = format!("ulimit -n 512; exec {} doctor --data {}", env!("CARGO_BIN_EXE_mainstem"), data.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]);
    let done = output(shell);
    assert!(!done.status.success() && text(&done).contains("limit 512") && text(&done).contains("LimitNOFILE"), "{}", text(&done));
}

#[test]
fn doctor_knows_a_folder_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let found = text(&mainstem(&["doctor", "--data", &folder.path().display().to_string()]));
    assert!(found.contains("in use by a broker"), "{found}");
    assert!(process.terminate().1);
    let found = text(&mainstem(&["doctor", "--data", &folder.path().display().to_string()]));
    assert!(found.contains("no broker runs on it"), "{found}");
}

#[test]
fn what_is_stored_is_for_the_brokers_user_and_group() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("new/data"), folder.path().join("backup"));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let process = Process::start(&data, &[]);
    let done = mainstem(&["backup", "--admin", &process.admin.to_string(), "--to", &backup.display().to_string()]);
    assert!(done.status.success() && process.terminate().1, "{}", text(&done));
    for path in [&data, &backup] {
        assert_eq!(mode(path) & 0o027, 0, "{}: {:o}", path.display(), mode(path));
    }
    let doctor = || text(&mainstem(&["doctor", "--data", &data.display().to_string()]));
    assert!(doctor().contains("is for its owner and his group"), "{}", doctor());
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(doctor().contains("chmod o= "), "{}", doctor());
    assert!(Process::start(&data, &[]).terminate().1);
    assert_eq!(mode(&data), 0o755, "what somebody has set stays");
}

#[test]
fn the_log_goes_to_a_file_in_utc() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("broker.log");
    let process = Process::start(&folder.path().join("data"), &["--log-file", &log.display().to_string()]);
    let (printed, success) = process.terminate();
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(success && !printed.contains("shutting down"), "{printed}");
    let line = written.lines().find(|line| line.contains("shutting down")).expect("it is in the file");
    let time = line.split_whitespace().next().unwrap();
    assert!(time.len() > 20 && time.as_bytes()[10] == b'T' && time.ends_with('Z'), "{line}");
    for flags in [["--log-file-size", "1KiB"], ["--log-file-size", "much"], ["--log-file-count", "few"]] {
        let text = text(&output(serve(folder.path(), &flags)));
        assert!(text.contains(flags[0]), "{text}");
    }
}

#[test]
fn an_order_without_a_broker_or_a_password_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let admin = process.admin.to_string();
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    wrong.args(["drain", "--admin", &admin, "--user", "guest"]).env("MAINSTEM_OPERATOR_PASS", "wrong");
    let done = output(wrong);
    assert!(!done.status.success() && text(&done).contains("not those of a user"), "{}", text(&done));
    assert!(process.ask_admin("/health/ready").is_some_and(|answer| answer.contains("200")), "it goes on");
    let data = folder.path().join("backup");
    let done = mainstem(&["backup", "--admin", &admin, "--to", &data.display().to_string()]);
    assert!(!done.status.success() && text(&done).contains("in the data folder"), "{}", text(&done));
    let done = mainstem(&["drain", "--admin", &admin]);
    assert!(done.status.success() && text(&done).contains("has ended"), "{}", text(&done));
    let done = mainstem(&["drain", "--admin", &admin]);
    assert!(!done.status.success() && text(&done).contains("no broker answers"), "{}", text(&done));
}

#[test]
fn an_empty_folder_is_backed_up_restored_and_verified() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (backup, restored) = (elsewhere.path().join("backup"), elsewhere.path().join("restored"));
    let (backup, restored) = (backup.display().to_string(), restored.display().to_string());
    let process = Process::start(folder.path(), &[]);
    let done = mainstem(&["backup", "--admin", &process.admin.to_string(), "--to", &backup]);
    assert!(done.status.success(), "{}", text(&done));
    assert!(process.terminate().1);
    let done = mainstem(&["restore", "--from", &backup, "--data", &restored]);
    assert!(done.status.success(), "{}", text(&done));
    for data in [&backup, &restored] {
        let done = mainstem(&["journal", "verify", "--data", data]);
        assert!(done.status.success() && text(&done).contains("journal 0: to chunk"), "{}", text(&done));
    }
    assert!(Process::start(std::path::Path::new(&restored), &[]).terminate().1);
    let manifest = std::path::Path::new(&backup).join("backup.toml");
    let newer = std::fs::read_to_string(&manifest).unwrap().replace("format_version = 1", "format_version = 9");
    std::fs::write(&manifest, newer).unwrap();
    let done = mainstem(&["restore", "--from", &backup, "--data", &elsewhere.path().join("third").display().to_string()]);
    assert!(!done.status.success() && text(&done).contains("format version 9, this release reads up to 1"), "{}", text(&done));
}

#[test]
fn looking_at_a_folder_changes_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert!(Process::start(&data, &[]).terminate().1);
    let unfinished = data.join("archive/objects/7-1#1");
    std::fs::create_dir_all(unfinished.parent().unwrap()).unwrap();
    std::fs::write(&unfinished, "half").unwrap();
    let lock = std::fs::read_to_string(data.join("lock")).unwrap();
    let elsewhere = folder.path().join("none");
    for archive in [data.join("archive"), elsewhere.clone()] {
        let done = mainstem(&["journal", "verify", "--data", &data.display().to_string(), "--archive", &archive.display().to_string()]);
        assert!(done.status.success(), "{}", text(&done));
    }
    assert_eq!(std::fs::read_to_string(data.join("lock")).unwrap(), lock, "the process id of the last broker");
    assert!(unfinished.exists(), "what another may be writing stays");
    assert!(!elsewhere.exists(), "no folder is made");
}

#[test]
fn a_loss_that_no_journal_can_have_is_not_accepted() {
    let folder = tempfile::tempdir().unwrap();
    for id in ["9-3-0", "x", "0"] {
        let text = text(&output(serve(folder.path(), &["--accept-loss", id, "--kafka", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--amqp", "none"])));
        assert!(text.contains(&format!("--accept-loss {id} names no damage")), "{id}: {text}");
    }
}

#[test]
fn shells_and_man_know_all_commands() {
    let folder = tempfile::tempdir().unwrap();
    let bash = text(&mainstem(&["completions", "bash"]));
    assert!(mainstem(&["man", &folder.path().display().to_string()]).status.success());
    for command in ["serve", "inspect", "backup", "restore", "drain", "reload", "doctor", "upgrade", "journal"] {
        assert!(bash.contains(command), "{command}");
        let page = std::fs::read_to_string(folder.path().join(format!("mainstem-{command}.1"))).unwrap();
        assert!(page.contains(".TH"), "{command}");
    }
}
