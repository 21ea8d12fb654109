//! The command line as people use it: every example that a `--help` shows does what it says, a reader who has seen enough ends nothing badly,
//! lists are JSON that programs can read, and what is wrong is refused with the reason.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::administration::{change, commit, get};
use crate::process::{PATIENCE, Process, exchange, output};

fn mainstem(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    command
        .args(words)
        .env_remove("MAINSTEM_OPERATOR")
        .env_remove("MAINSTEM_OPERATOR_PASS")
        .env_remove("MAINSTEM_ADMIN");
    command
}

/// What a command says to a broker, with the status it ends with.
fn ask(process: &Process, words: &[&str]) -> Output {
    let mut command = mainstem(words);
    command.env("MAINSTEM_ADMIN", process.admin.to_string()).stdin(Stdio::null());
    output(command)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command, the text of its `--help`, and the commands below it.
fn helps(path: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let mut command = mainstem(&[]);
    command.args(path).arg("--help");
    let done = output(command);
    assert!(done.status.success(), "{path:?}");
    let help = text(&done.stdout);
    let below = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap_or_default());
    let names: Vec<String> = below
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    found.push((path.to_vec(), help));
    for name in names.into_iter().filter(|name| name != "help") {
        helps(&[path, &[name]].concat(), found);
    }
}

fn all_helps() -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    helps(&[], &mut found);
    found
}

/// Lines of examples, without what is said of them in brackets.
fn examples(help: &str) -> Vec<String> {
    let lines =
        help.split_once("Examples:\n").map_or("", |(_, rest)| rest).lines().take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim().split("  (").next().unwrap_or_default().trim().to_owned()).collect()
}

/// A place for examples: a folder that stands for `/` and home, and the binary by its name.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().expect("a folder") };
        for name in ["bin", "run/secrets", "backups", "var/lib"] {
            std::fs::create_dir_all(scene.root().join(name)).expect("a folder");
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mainstem"), scene.root().join("bin/mainstem")).expect("a link");
        for (name, text) in [
            ("run/secrets/shop", "secret\n"),
            (".mainstem-password", "secret\n"),
            ("mainstem.toml", "durability = \"memory\"\n"),
        ] {
            std::fs::write(scene.root().join(name), text).expect("a file");
        }
        scene
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    /// An example as it can be carried out here.
    fn here(&self, example: &str, process: Option<&Process>) -> String {
        let mut line = example.to_owned();
        for top in ["/var/", "/run/", "/backups/"] {
            line = line.replace(&format!(" {top}"), &format!(" {}{top}", self.root().display()));
        }
        for (theirs, ours) in [
            ("…", "secret"),
            ("--every 5", "--every 1"),
            ("--seconds 5", "--seconds 1"),
            ("0.0.0.0:9092", "127.0.0.1:0"),
        ] {
            line = line.replace(theirs, ours);
        }
        match process {
            Some(process) => line.replace("10.0.0.5:8160", &process.admin.to_string()),
            None => line,
        }
    }

    fn shell(&self, line: &str, environment: &[(&str, String)]) -> Command {
        let path = format!("{}:{}", self.root().join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("sh");
        command.args(["-ec", line]).current_dir(self.root()).env("PATH", path).env("HOME", self.root());
        for name in ["MAINSTEM_OPERATOR", "MAINSTEM_OPERATOR_PASS", "MAINSTEM_ADMIN"] {
            command.env_remove(name);
        }
        command
            .envs(environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Carries an example out; what it is asked for is typed.
    fn carry_out(&self, line: &str, environment: &[(&str, String)]) -> Output {
        use std::io::Write;
        let mut child = self.shell(line, environment).spawn().expect("a shell");
        let _ = child.stdin.take().expect("a pipe").write_all(b"secret\n");
        child.wait_with_output().expect("it ends")
    }

    /// Starts the broker of an example on free ports, and ends it when it is ready.
    fn serve(&self, example: &str) {
        let port = if example.contains("--kafka") { "" } else { " --kafka 127.0.0.1:0" };
        let line = format!("exec {}{port} --amqp none --admin 127.0.0.1:0 --memory 128MiB", self.here(example, None));
        let mut child = self.shell(&line, &[]).spawn().expect("a shell");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        while !said.contains("ready after") && lines.read_line(&mut said).expect("UTF-8") > 0 {}
        // SAFETY: a signal to a child that is not reaped yet.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        let mut rest = String::new();
        let _ = lines.read_to_string(&mut rest);
        let done = child.wait_with_output().expect("it ends");
        assert!(done.status.success() && said.contains("ready after"), "{line}: {said}{}", text(&done.stderr));
    }
}

/// A connection with a client id, which it has told.
fn client(process: &Process, id: &str) -> TcpStream {
    let mut socket = process.connect();
    let mut request = vec![0, 18, 0, 0, 0, 0, 0, 1];
    request.extend((id.len() as u16).to_be_bytes());
    request.extend(id.as_bytes());
    exchange(&mut socket, &request).expect("an answer");
    socket
}

/// What the examples of a command take for granted.
fn prepare(process: &Process, command: &str) -> Option<TcpStream> {
    let done =
        |method: &str, path: &str, body: Value| assert!(change(process, method, path, body).status < 300, "{path}");
    match command {
        "group" | "why" => {
            done("POST", "/v1/topics", json!({"name": "orders"}));
            commit(process, if command == "group" { "readers" } else { "billing" }, "orders");
            Some(client(process, "etl"))
        }
        "queue" => {
            done("PUT", "/v1/vhosts/shop", json!({}));
            None
        }
        "exchange" => {
            done("PUT", "/v1/queues/%2F/work", json!({}));
            None
        }
        "connection" => Some(client(process, "etl")),
        "overview" | "drain" => {
            let user = if command == "drain" { "ops" } else { "anna" };
            done("PUT", &format!("/v1/users/{user}"), json!({"password": "secret", "tags": ["administrator"]}));
            None
        }
        _ => None,
    }
}

/// The examples of a command of a running broker, one after the other, each with all that was done before it.
fn carry_out_all(command: &str, examples: &[String]) {
    let (scene, data) = (Scene::new(), tempfile::tempdir().expect("a folder"));
    let mut process = Process::start(data.path(), &["--set", "mainstem.password.iterations=1000"]);
    let mut client = prepare(&process, command);
    let id = client
        .is_some()
        .then(|| get(&process, "/v1/connections")["items"][0]["id"].as_str().expect("an id").to_owned());
    let mut is_known = ["overview", "drain"].contains(&command);
    for (place, example) in examples.iter().enumerate() {
        if command == "drain" && place > 0 {
            process = Process::start(data.path(), &[]);
        }
        let mut line = scene.here(example, Some(&process));
        if let Some(id) = &id {
            line = line.replace(" 17", &format!(" {id}"));
        }
        if command == "top" {
            line.push_str(" | head -1");
        }
        let mut environment = vec![("MAINSTEM_ADMIN", process.admin.to_string())];
        if is_known && !line.contains("--user") {
            let name = if command == "drain" { "ops" } else { "anna" };
            environment
                .extend([("MAINSTEM_OPERATOR", name.to_owned()), ("MAINSTEM_OPERATOR_PASS", "secret".to_owned())]);
        }
        let done = scene.carry_out(&line, &environment);
        // What is no expression is to be told so.
        let fails = example == "mainstem filter check \"key = 'a\"";
        assert_eq!(done.status.success(), !fails, "{example}: {}{}", text(&done.stdout), text(&done.stderr));
        assert!(!(done.stdout.is_empty() && done.stderr.is_empty()) || command == "acl", "{example} says nothing");
        is_known |= example.starts_with("mainstem user add");
    }
    client.take();
}

#[test]
fn every_example_of_a_running_broker_works() {
    let mut seen = BTreeSet::new();
    // These need no broker, or start one: below.
    let others = ["", "serve", "inspect", "restore", "doctor", "upgrade", "completions", "man", "journal"];
    for (path, help) in all_helps().into_iter().filter(|(path, _)| !others.contains(&path.join(" ").as_str())) {
        let found = examples(&help);
        assert!(path.len() > 1 || !found.is_empty(), "{path:?} has no examples");
        if !found.is_empty() {
            carry_out_all(&path.join(" "), &found);
            seen.extend(found);
        }
    }
    assert!(seen.len() > 60, "{}", seen.len());
}

#[test]
fn commands_answer_to_the_names_that_other_tools_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]);
    let cases: &[(&[&str], &[&str])] = &[
        (&["topic", "create", "orders"], &["topic", "describe", "orders"]),
        (&["queue", "create", "work"], &["queue", "describe", "work"]),
        (&["exchange", "create", "events", "--type", "topic"], &["exchange", "describe", "events"]),
    ];
    for words in cases.iter().flat_map(|(made, shown)| [made, shown]) {
        let done = ask(&process, words);
        assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
    }
}

#[test]
fn every_example_that_needs_no_broker_or_starts_one_works() {
    let scene = Scene::new();
    let (data, source) = (scene.root().join("var/lib/mainstem"), tempfile::tempdir().expect("a folder"));
    let process = Process::start(source.path(), &[]);
    let backup = scene.root().join("backups/monday");
    assert!(ask(&process, &["backup", "--to", &backup.display().to_string()]).status.success());
    let environment = [("MAINSTEM_ADMIN", process.admin.to_string())];
    let helps = all_helps();
    let of = |name: &str| {
        helps.iter().find(|(path, _)| path.join(" ") == name).map(|(_, help)| examples(help)).expect("a command")
    };
    for command in ["restore", "doctor", "upgrade", "journal", "completions", "man", "serve", "inspect"] {
        let found = of(command);
        assert!(!found.is_empty(), "{command} has no examples");
        for example in found {
            if example.starts_with("mainstem serve") {
                scene.serve(&example);
                continue;
            }
            let line = scene.here(&example, None);
            let done = scene.carry_out(&line, &environment);
            // The machine of a test may have low limits.
            let fine = done.status.success()
                || command == "doctor"
                    && text(&done.stderr).contains("are bad")
                    && !text(&done.stdout).contains("panic");
            assert!(fine, "{example}: {}{}", text(&done.stdout), text(&done.stderr));
        }
    }
    assert!(data.join("meta.toml").exists() && scene.root().join("mainstem-data/meta.toml").exists());
    for example in of("").into_iter().filter(|example| !example.starts_with("mainstem serve")) {
        let done = scene.carry_out(&scene.here(&example, None), &environment);
        assert!(done.status.success(), "{example}: {}", text(&done.stderr));
    }
}

/// Runs a command whose reader has gone before it begins.
fn to_nobody(mut command: Command) -> Output {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary runs");
    drop(command);
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_reader_who_has_seen_enough_is_no_trouble() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let process = Process::start(folder.path(), &[]);
    assert_eq!(change(&process, "POST", "/v1/topics", json!({"name": "orders"})).status, 201);
    let backup = elsewhere.path().join("backup").display().to_string();
    assert!(ask(&process, &["backup", "--to", &backup]).status.success());
    let (data, restored) =
        (folder.path().display().to_string(), elsewhere.path().join("restored").display().to_string());
    let meta = folder.path().join("meta.toml").display().to_string();
    let asking: [&[&str]; 8] = [
        &["topic", "list"],
        &["topic", "list", "--json"],
        &["topic", "show", "orders"],
        &["overview"],
        &["top"],
        &["top", "--json"],
        &["user", "list"],
        &["config", "list"],
    ];
    let others: [&[&str]; 8] = [
        &["completions", "bash"],
        &["--help"],
        &["topic", "create", "--help"],
        &["inspect", &meta],
        &["restore", "--from", &backup, "--data", &restored],
        &["journal", "verify", "--data", &restored],
        &["upgrade", "--data", &restored],
        &["journal", "verify", "--data", &backup, "--json"],
    ];
    for words in asking.into_iter().chain(others) {
        let mut command = mainstem(words);
        command.env("MAINSTEM_ADMIN", process.admin.to_string());
        let done = to_nobody(command);
        assert!(done.status.success() && done.stderr.is_empty(), "{words:?}: {} {}", done.status, text(&done.stderr));
    }
    let doctor = to_nobody(mainstem(&["doctor", "--data", &data]));
    assert!(!text(&doctor.stderr).contains("panicked"), "{}", text(&doctor.stderr));
    let mut full = mainstem(&["topic", "list"]);
    full.env("MAINSTEM_ADMIN", process.admin.to_string())
        .stdout(std::fs::File::create("/dev/full").expect("a device"))
        .stderr(Stdio::piped());
    let done = full.spawn().expect("the binary runs").wait_with_output().expect("it ends");
    assert!(!done.status.success() && text(&done.stderr).contains("No space left"), "{}", text(&done.stderr));
}

#[test]
fn a_broker_serves_though_nobody_reads_what_it_prints() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = mainstem(&[
        "serve",
        "--kafka",
        "127.0.0.1:0",
        "--amqp",
        "none",
        "--admin",
        "127.0.0.1:0",
        "--memory",
        "128MiB",
    ]);
    command.arg("--data").arg(folder.path().join("data")).arg("--log-file").arg(&log);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut child =
        command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn().expect("the binary starts");
    let began = std::time::Instant::now();
    let lock = folder.path().join("data/lock");
    // When journals are recovered signals are waited for.
    let status = loop {
        assert!(began.elapsed() < PATIENCE, "it ends in time");
        if std::fs::read_to_string(&log).unwrap_or_default().contains("recovered") && lock.exists() {
            // SAFETY: a signal to a child that is not reaped yet.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            break child.wait().expect("a child");
        }
        assert!(child.try_wait().expect("a child").is_none(), "it runs");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert!(status.success(), "{status}: {}", std::fs::read_to_string(&log).unwrap_or_default());
    assert!(std::fs::read_to_string(&log).unwrap_or_default().contains("stopped"));
}

/// A disk that holds nothing but the log may be full: that ends no broker, and none does not start for it.
#[test]
fn a_broker_serves_though_its_log_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("a device");
    let mut command = mainstem(&[
        "serve",
        "--kafka",
        "127.0.0.1:0",
        "--amqp",
        "none",
        "--admin",
        "127.0.0.1:0",
        "--memory",
        "128MiB",
    ]);
    command.arg("--data").arg(folder.path().join("data"));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full()).spawn().expect("the binary starts");
    let told: Vec<String> = BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.contains("ready"))
        .collect();
    // SAFETY: a signal to a child that is not reaped yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let status = child.wait().expect("a child");
    assert!(status.success(), "{status}: {told:?}");
    let mut command = mainstem(&["inspect", "/nope"]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(full()).status().expect("the binary starts");
    assert_eq!(status.code(), Some(1), "{status}");
}

#[test]
fn lists_are_json_of_one_shape() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let lists: [&[&str]; 13] = [
        &["topic", "list"],
        &["group", "list"],
        &["queue", "list"],
        &["exchange", "list"],
        &["exchange", "bindings"],
        &["user", "list"],
        &["acl", "list"],
        &["quota", "list"],
        &["quota", "use"],
        &["filter", "list"],
        &["config", "list"],
        &["connection", "list"],
        &["topic", "list", "--internal"],
    ];
    for words in lists {
        let done = ask(&process, &[words, &["--json"]].concat());
        let found: Value = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", text(&done.stdout)));
        assert!(done.status.success() && found.is_array(), "{words:?}: {found}");
    }
    for words in [&["overview"][..], &["why"], &["acl", "state"], &["topic", "create", "t", "--partitions", "2"]] {
        let done = ask(&process, &[words, &["--json"]].concat());
        let found: Value = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", text(&done.stdout)));
        assert!(done.status.success() && found.is_object(), "{words:?}: {found}");
    }
    let done = ask(&process, &["topic", "alter", "t", "--partitions", "3", "--set", "retention.ms=60000", "--json"]);
    let found: Value = serde_json::from_slice(&done.stdout).expect("one document");
    assert_eq!((&found["partitions"], &found["retention_ms"]), (&json!(3), &json!(60000)));
    let done = ask(&process, &["filter", "check", "key = 'a", "--json"]);
    let found: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert!(!done.status.success() && found["valid"] == false, "what is no expression fails for programs, too");
}

#[test]
fn settings_and_partitions_of_a_topic_change_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    assert!(ask(&process, &["topic", "create", "t"]).status.success());
    for (partitions, setting) in [("3", "retention.ms=soon"), ("1", "retention.ms=60000")] {
        let done = ask(&process, &["topic", "alter", "t", "--partitions", partitions, "--set", setting]);
        assert!(!done.status.success(), "{}", text(&done.stdout));
        let topic = get(&process, "/v1/topics/t");
        assert_eq!(
            (&topic["partitions"], &topic["retention_ms"]),
            (&json!(1), &json!(604_800_000)),
            "{partitions} {setting}"
        );
    }
}

#[test]
fn a_quota_is_a_number_that_there_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let set = |value: &str| ask(&process, &["quota", "set", "--for-user", "bob", value]);
    assert!(set("producer_byte_rate=1000").status.success());
    for (value, said) in [
        ("producer_byte_rate=NaN", "finite"),
        ("producer_byte_rate=inf", "finite"),
        ("producer_byte_rate=-inf", "finite"),
        ("producer_byte_rate=1e400", "finite"),
        ("request_percentage=infinity", "finite"),
        ("producer_byte_rate=-5", "greater than 0"),
        ("producer_byte_rate=0", "greater than 0"),
        ("producer_byte_rate=0.5", "whole number"),
        ("producer_byte_rate=1e30", "whole number"),
        ("producer_byte_rate", "KEY=NUMBER"),
        ("producer_byte_rat=5", "producer_byte_rate, consumer_byte_rate"),
        ("connection_creation_rate=5", "Invalid configuration key"),
    ] {
        let done = set(value);
        assert!(!done.status.success() && text(&done.stderr).contains(said), "{value}: {}", text(&done.stderr));
    }
    assert_eq!(
        get(&process, "/v1/quotas")["items"][0]["values"],
        json!({"producer_byte_rate": 1000.0}),
        "none of them has changed anything"
    );
}

#[test]
fn names_and_words_that_there_are_not_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    assert!(ask(&process, &["topic", "create", "there"]).status.success());
    let cases: [(&[&str], &str); 31] = [
        (&["topic", "shw"], "'show'"),
        (&["topic", "show", "none"], "there is no topic \"none\""),
        (&["topic", "alter", "none", "--partitions", "3"], "there is no topic \"none\""),
        (&["topic", "truncate", "none", "--partition", "0", "--before", "1"], "there is no topic \"none\""),
        (&["topic", "delete", "none"], "there is no topic \"none\""),
        (&["topic", "list", "--sort", "none"], "sort"),
        (&["topic", "alter", "there", "--partitions", "1", "--set", "retention.ms=1"], "currently has 1 partition(s)"),
        (&["topic", "create", "t", "--set", "retention.sm=1"], "did you mean retention.ms?"),
        (&["group", "show", "none"], "there is no group \"none\""),
        (&["group", "delete", "none"], "there is no group \"none\""),
        (&["group", "list", "--kind", "none"], "classic, consumer, share or streams"),
        (&["group", "list", "--state", "none"], "Empty, Stable, PreparingRebalance"),
        (&["queue", "show", "none"], "there is no queue \"none\""),
        (&["queue", "purge", "none"], "there is no queue \"none\""),
        (&["queue", "list", "--vhost", "none"], "there is no virtual host \"none\""),
        (&["exchange", "show", "none"], "there is no exchange \"none\""),
        (&["exchange", "declare", "e", "--type", "none"], "unknown exchange type 'none'"),
        (&["user", "show", "none"], "there is no user \"none\""),
        (&["user", "delete", "none"], "there is no user \"none\""),
        (&["user", "permissions", "none", "--read", ".*"], "there is no user \"none\""),
        (&["connection", "show", "999"], "there is no connection \"999\""),
        (&["filter", "delete", "none"], "group \"none\" has no filter"),
        (&["config", "set", "num.partitions="], "num.partitions = \"\" is not possible: it is a whole number"),
        (&["config", "set", "=2"], "is no setting: write NAME=VALUE"),
        (&["config", "unset", "num.partitons"], "did you mean num.partitions?"),
        (&["topic", "alter", "there", "--unset", "retention.sm"], "did you mean retention.ms?"),
        (&["group", "config", "g", "--unset", "consumer.session.timeout"], "did you mean consumer.session.timeout.ms?"),
        (&["inspect", "/nowhere/at/all"], "/nowhere/at/all: No such file"),
        (&["config", "set", "num.partitons=2"], "did you mean num.partitions?"),
        (
            &["acl", "add", "--principal", "User:x", "--operation", "Raed", "--resource", "Topic", "--name", "x"],
            "All, Read, Write",
        ),
        (&["why", "none"], "no such client, topic or group"),
    ];
    for (words, said) in cases {
        let done = ask(&process, words);
        assert!(
            !done.status.success() && text(&done.stderr).contains(said),
            "{words:?}: {}{}",
            text(&done.stdout),
            text(&done.stderr)
        );
    }
}

#[test]
fn a_broker_is_found_by_what_it_prints_and_one_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let by = |admin: &str| output(mainstem(&["topic", "list", "--admin", admin]));
    assert!(
        by(&format!("http://{}", process.admin)).status.success()
            && by(&format!("http://{}/", process.admin)).status.success()
    );
    for (admin, said) in [
        ("127.0.0.1:1", "no broker answers at 127.0.0.1:1"),
        (&process.kafka.to_string(), "--admin names the administration port"),
        ("https://127.0.0.1:1", "without TLS"),
        ("127.0.0.1:99999", "write HOST:PORT"),
        ("", "write HOST:PORT"),
    ] {
        let done = by(admin);
        assert!(!done.status.success() && text(&done.stderr).contains(said), "{admin}: {}", text(&done.stderr));
    }
}

#[test]
fn shells_and_man_know_every_command_and_flag() {
    let folder = tempfile::tempdir().unwrap();
    assert!(output(mainstem(&["man", &folder.path().display().to_string()])).status.success());
    let scripts = ["bash", "zsh", "fish", "elvish", "powershell"]
        .map(|shell| text(&output(mainstem(&["completions", shell])).stdout));
    let mut pages: BTreeSet<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    for (path, help) in all_helps() {
        let name = format!("mainstem{}.1", path.iter().map(|word| format!("-{word}")).collect::<String>());
        assert!(pages.remove(&name), "{name}");
        let page = std::fs::read_to_string(folder.path().join(&name)).unwrap().replace('\\', "");
        let flags = help.lines().filter(|line| line.starts_with("      --") || line.starts_with("  -"));
        for flag in flags.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--"))) {
            assert!(page.contains(flag), "{name} and {flag}");
            assert!(scripts[..2].iter().all(|script| script.contains(flag)), "completions and {flag} of {path:?}");
        }
        for word in &path {
            assert!(scripts.iter().all(|script| script.contains(word.as_str())), "completions and {word}");
        }
    }
    pages.retain(|name| !name.contains("-help"));
    assert_eq!(pages, BTreeSet::new(), "pages of commands that there are not");
    let about = text(&output(mainstem(&["--help"])).stdout);
    assert!(about.starts_with("A durable log engine"), "{about}");
}
