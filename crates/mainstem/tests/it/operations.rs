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
    let done = mainstem(&["doctor", "--data", &file.join("below").display().to_string()]);
    assert!(!done.status.success() && text(&done).contains("is no folder"), "{}", text(&done));
    let limited = format!("ulimit -n 512; exec {} doctor --data {}", env!("CARGO_BIN_EXE_mainstem"), data.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]);
    let done = output(shell);
    assert!(
        !done.status.success() && text(&done).contains("limit 512") && text(&done).contains("LimitNOFILE"),
        "{}",
        text(&done)
    );
}

/// What doctor finds about something, as it tells programs.
fn finding(data: &std::path::Path, about: &str) -> serde_json::Value {
    let done = mainstem(&["doctor", "--json", "--data", &data.display().to_string()]);
    let all: Vec<serde_json::Value> =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&done)));
    let is_bad = all.iter().any(|one| one["verdict"] == "bad");
    assert_eq!(done.status.success(), !is_bad, "{}", text(&done));
    all.into_iter().find(|one| one["about"] == about).unwrap_or_else(|| panic!("{about} in {}", text(&done)))
}

#[test]
fn doctor_looks_at_the_limits_of_the_broker_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start_limited(folder.path(), "ulimit -n 700; ulimit -l 64", &[]);
    let files = finding(folder.path(), "open files");
    let found = files["found"].as_str().unwrap();
    assert!(
        found.starts_with("limit 700, ") && found.contains(&format!("of the running broker, process {}", process.id())),
        "{files}"
    );
    assert!(files["verdict"] == "bad" && files["advice"].as_str().unwrap().contains("LimitNOFILE"), "{files}");
    assert!(
        finding(folder.path(), "locked memory")["found"]
            .as_str()
            .unwrap()
            .starts_with("limit 64 KiB (of the running broker")
    );
    assert!(process.terminate().1);
    assert!(finding(folder.path(), "open files")["found"].as_str().unwrap().contains("of this shell"));
}

#[test]
fn doctor_finds_what_the_service_could_not_open_and_a_clock_that_was_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert_eq!(finding(&data, "owner")["found"], "nothing is there yet");
    assert!(Process::start(&data, &[]).terminate().1);
    assert_eq!(
        (&finding(&data, "owner")["verdict"], &finding(&data, "clock")["verdict"] != "bad"),
        (&serde_json::json!("ok"), true)
    );
    let file = data.join("journal-0/segment-000000000001");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
    let clock = finding(&data, "clock");
    assert!(clock["verdict"] == "bad" && clock["advice"].as_str().unwrap().contains("set back"), "{clock}");
    // Only root can give files away.
    if std::os::unix::fs::chown(&file, Some(12_345), None).is_ok() {
        let owner = finding(&data, "owner");
        assert!(owner["verdict"] == "bad" && owner["found"].as_str().unwrap().contains("is 12345's"), "{owner}");
        assert!(owner["advice"].as_str().unwrap().contains("chown -R"), "{owner}");
    }
    std::fs::write(folder.path().join("theirs"), "x").unwrap();
    let other = finding(folder.path(), "data folder");
    assert!(other["verdict"] == "warning" && other["found"].as_str().unwrap().contains("no data folder"), "{other}");
}

#[test]
fn doctor_knows_a_folder_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let found = text(&mainstem(&["doctor", "--data", &folder.path().display().to_string()]));
    assert!(found.contains(&format!("in use by a broker, process {}", process.id())), "{found}");
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
    let (data_shown, salvaged) = (data.display().to_string(), folder.path().join("salvaged"));
    let done = mainstem(&["journal", "salvage", "--data", &data_shown, "--out", &salvaged.display().to_string()]);
    assert!(done.status.success(), "{}", text(&done));
    for path in [&data, &backup, &salvaged] {
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
    let done =
        mainstem(&["restore", "--from", &backup, "--data", &elsewhere.path().join("third").display().to_string()]);
    assert!(
        !done.status.success() && text(&done).contains("format version 9, this release reads up to 1"),
        "{}",
        text(&done)
    );
}

/// Names in a folder.
fn names(folder: &std::path::Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default()
}

#[test]
fn a_backup_that_fails_or_breaks_off_is_in_nobodys_way() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let process = Process::start(folder.path(), &[]);
    let to = |name: &str| elsewhere.path().join(name);
    let backup = |name: &str| {
        mainstem(&["backup", "--admin", &process.admin.to_string(), "--to", &to(name).display().to_string()])
    };
    assert!(backup("first").status.success());
    let manifest = std::fs::read_to_string(to("first").join("backup.toml")).unwrap();
    assert!(!to("first").join("backup.unfinished").exists());
    // What lies in the archive and is of no log is not in the backup, and in nobody's way.
    let uuid =
        manifest.lines().find_map(|line| line.strip_prefix("uuid = \"")).unwrap().trim_end_matches('"').to_owned();
    let objects = folder.path().join("archive").join(&uuid);
    std::fs::create_dir_all(&objects).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", objects.join("object")).unwrap();
    let done = backup("second");
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(names(&to("second").join("archive").join(uuid)), Vec::<String>::new());
    // What a crash leaves goes; what others have put there stays, and is said.
    for name in ["third", "fourth"] {
        std::fs::create_dir_all(to(name).join("journal-0")).unwrap();
        std::fs::write(to(name).join("journal-0/segment-000000000001"), "half").unwrap();
        std::fs::write(to(name).join("backup.unfinished"), "2026-01-01T00:00:00Z\n").unwrap();
    }
    std::fs::write(to("fourth").join("theirs"), "x").unwrap();
    assert!(backup("third").status.success());
    let done = backup("fourth");
    assert!(!done.status.success() && text(&done).contains("is not empty"), "{}", text(&done));
    assert_eq!(names(&to("fourth")), ["theirs"]);
    std::fs::write(to("file"), "x").unwrap();
    assert!(text(&backup("file")).contains("is no folder"));
    for name in ["first", "second", "third"] {
        let done = mainstem(&["journal", "verify", "--data", &to(name).display().to_string()]);
        assert!(done.status.success(), "{name}: {}", text(&done));
    }
}

#[test]
fn a_restore_that_breaks_off_is_begun_again_and_spares_the_backup() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let backup = elsewhere.path().join("backup");
    let process = Process::start(folder.path(), &[]);
    assert!(
        mainstem(&["backup", "--admin", &process.admin.to_string(), "--to", &backup.display().to_string()])
            .status
            .success()
    );
    assert!(process.terminate().1);
    let restore = |to: &std::path::Path| {
        mainstem(&["restore", "--from", &backup.display().to_string(), "--data", &to.display().to_string()])
    };
    let data = elsewhere.path().join("data");
    std::fs::create_dir_all(data.join("journal-0")).unwrap();
    std::fs::write(data.join("journal-0/segment-000000000001"), "half").unwrap();
    std::fs::write(data.join("restoring"), "from elsewhere\n").unwrap();
    let refused = text(&output(serve(&data, &["--kafka", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--amqp", "none"])));
    assert!(refused.contains("half of a backup"), "{refused}");
    let done = restore(&data);
    assert!(done.status.success() && text(&done).contains("half of an earlier restore is removed"), "{}", text(&done));
    let manifest = std::fs::read_to_string(backup.join("backup.toml")).unwrap();
    let made = manifest.lines().find_map(|line| line.strip_prefix("made = ")).unwrap().trim_matches('"');
    assert!(made.ends_with('Z') && text(&done).contains(&format!(": as of {made}\n")), "{}", text(&done));
    assert!(!restore(&data).status.success(), "now it is a data folder");
    assert!(Process::start(&data, &[]).terminate().1);
    let before = names(&backup).len();
    let done = restore(&backup.join("data"));
    assert!(
        !done.status.success() && text(&done).contains("is in the backup") && names(&backup).len() == before,
        "{}",
        text(&done)
    );
    let out = data.join("salvaged");
    let done =
        mainstem(&["journal", "salvage", "--data", &data.display().to_string(), "--out", &out.display().to_string()]);
    assert!(
        !done.status.success() && text(&done).contains("is in the damaged folder") && !out.exists(),
        "{}",
        text(&done)
    );
}

#[test]
fn sighup_has_a_moved_log_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (log, moved) = (folder.path().join("log"), folder.path().join("moved"));
    let process = Process::start(&folder.path().join("data"), &["--log-file", &log.display().to_string()]);
    std::fs::rename(&log, &moved).unwrap();
    process.hang_up();
    let began = std::time::Instant::now();
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("configuration read again") {
        assert!(
            began.elapsed() < crate::process::PATIENCE,
            "the log goes on: {}",
            std::fs::read_to_string(&moved).unwrap_or_default()
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(process.terminate().1);
    assert!(
        std::fs::read_to_string(&log).unwrap().contains("stopped")
            && !std::fs::read_to_string(&moved).unwrap().contains("stopped")
    );
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
        let done = mainstem(&[
            "journal",
            "verify",
            "--data",
            &data.display().to_string(),
            "--archive",
            &archive.display().to_string(),
        ]);
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
        let text = text(&output(serve(
            folder.path(),
            &["--accept-loss", id, "--kafka", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--amqp", "none"],
        )));
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
