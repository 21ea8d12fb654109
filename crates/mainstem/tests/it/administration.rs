//! The administration API and its command line, over a running broker.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::openapi;
use crate::process::{Process, exchange};

/// An answer: status, head, body.
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Value,
}

impl Answer {
    /// Is it in the head, in whatever letters?
    fn says(&self, part: &str) -> bool {
        self.head.to_lowercase().contains(part)
    }
}

/// A request with headers of its own; what is answered is held against the description of the API.
pub fn ask(process: &Process, method: &str, path: &str, headers: &[(&str, &str)], sent: &str) -> Answer {
    let mut socket = TcpStream::connect(process.admin).expect("the port is open");
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", sent.len());
    if !headers.iter().any(|(name, _)| *name == "host") {
        head.push_str("host: localhost\r\n");
    }
    if !sent.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
        head.push_str("content-type: application/json\r\n");
    }
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    write!(socket, "{head}\r\n{sent}").expect("it is read");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let found: Option<Value> = serde_json::from_str(body).ok();
    if path.starts_with("/v1/") && status != 503 {
        openapi::hold(openapi::document(process), (method, path), sent, status, found.as_ref());
    }
    Answer { status, head: head.to_owned(), body: found.unwrap_or(Value::Null) }
}

pub fn get(process: &Process, path: &str) -> Value {
    let answer = ask(process, "GET", path, &[], "");
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

pub fn change(process: &Process, method: &str, path: &str, body: Value) -> Answer {
    ask(process, method, path, &[], &if body.is_null() { String::new() } else { body.to_string() })
}

fn run(process: &Process, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    command.args(arguments).args(["--admin", &process.admin.to_string()]);
    command.env_remove("MAINSTEM_OPERATOR").env_remove("MAINSTEM_OPERATOR_PASS");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// What a command prints when it succeeds.
fn says(process: &Process, arguments: &[&str]) -> String {
    let done = run(process, arguments, "");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// What a command says when it does not.
fn refuses(process: &Process, arguments: &[&str]) -> String {
    let done = run(process, arguments, "");
    assert!(!done.status.success(), "{arguments:?} is refused");
    String::from_utf8(done.stderr).expect("UTF-8")
}

#[test]
fn the_overview_counts_what_lists_show() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    says(&process, &["topic", "create", "orders", "--partitions", "3"]);
    says(&process, &["queue", "declare", "work"]);
    let counts = &get(&process, "/v1/overview")["counts"];
    assert_eq!(
        (&counts["topics"], &counts["partitions"], &counts["queues"]),
        (&json!(1), &json!(3), &json!(1)),
        "{counts}"
    );
    assert_eq!(
        (&get(&process, "/v1/topics")["total"], &get(&process, "/v1/topics?internal=true")["total"]),
        (&json!(1), &json!(2))
    );
}

/// Has a group commit offset 0 of partition 0 of a topic.
pub fn commit(process: &Process, group: &str, topic: &str) {
    commit_partitions(process, group, topic, 1);
}

/// Has a group commit offset 0 of the first partitions of a topic, by OffsetCommit version 2.
pub fn commit_partitions(process: &Process, group: &str, topic: &str, count: u32) {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u16).to_be_bytes());
        out.extend(text.as_bytes());
    };
    let mut request = vec![0, 8, 0, 2, 0, 0, 0, 1];
    text(&mut request, "tester");
    text(&mut request, group);
    request.extend((-1_i32).to_be_bytes());
    text(&mut request, "");
    request.extend((-1_i64).to_be_bytes());
    request.extend(1_u32.to_be_bytes());
    text(&mut request, topic);
    request.extend(count.to_be_bytes());
    for partition in 0..count {
        request.extend(partition.to_be_bytes());
        request.extend(0_u64.to_be_bytes());
        request.extend([0xff, 0xff]);
    }
    let answer = exchange(&mut process.connect(), &request).expect("an answer");
    assert_eq!(answer[answer.len() - 2..], [0, 0], "no error");
}

#[test]
fn every_answer_is_as_it_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let made = change(
        &process,
        "POST",
        "/v1/topics",
        json!({"name": "orders", "partitions": 3, "config": {"retention.ms": 60000}}),
    );
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(change(&process, "POST", "/v1/topics?dry_run=true", json!({"name": "other"})).status, 200);
    assert_eq!(ask(&process, "GET", "/v1/topics/other", &[], "").status, 404, "it was only tried");
    assert_eq!(change(&process, "PUT", "/v1/queues/%2F/work", json!({"type": "quorum"})).status, 201);
    assert_eq!(change(&process, "PUT", "/v1/exchanges/%2F/events", json!({"type": "topic"})).status, 201);
    let binding = json!({"source": "events", "destination": "work", "routing_key": "a.#"});
    assert_eq!(change(&process, "POST", "/v1/bindings/%2F", binding.clone()).status, 201);
    let sent = change(
        &process,
        "POST",
        "/v1/exchanges/%2F/events/publish",
        json!({"routing_key": "a.b", "body": "one", "headers": {"n": 1}, "properties": {"priority": 1}}),
    );
    assert_eq!((sent.status, &sent.body), (200, &json!({"routed": true})));
    commit(&process, "readers", "orders");
    assert_eq!(change(&process, "PUT", "/v1/filters/readers", json!({"expression": "key = 'a'"})).status, 200);
    // A shard sees a little later that a connection has gone, and takes one a little after it is there for the client.
    let all = |count: u64| {
        let found = get(&process, "/v1/connections");
        (found["total"] == count).then(|| found["items"][0]["id"].as_str().unwrap_or_default().to_owned())
    };
    let pause = || std::thread::sleep(std::time::Duration::from_millis(10));
    let wait_for = |count| {
        (0..500)
            .find_map(|_| {
                all(count).or_else(|| {
                    pause();
                    None
                })
            })
            .expect("as many connections")
    };
    wait_for(0);
    let _connection = process.connect();
    let id = wait_for(1);
    let paths = [
        "/v1/session",
        "/v1/overview",
        "/v1/journals",
        "/v1/journals/0",
        "/v1/config?limit=1000",
        "/v1/connections",
        "/v1/topics?internal=true",
        "/v1/topics/orders",
        "/v1/groups",
        "/v1/groups/readers",
        "/v1/groups/readers/config",
        "/v1/filters",
        "/v1/filters/counts",
        "/v1/vhosts",
        "/v1/vhosts/%2F",
        "/v1/queues",
        "/v1/queues/%2F",
        "/v1/queues/%2F/work",
        "/v1/exchanges",
        "/v1/exchanges/%2F",
        "/v1/exchanges/%2F/events",
        "/v1/bindings?default=true",
        "/v1/bindings/%2F",
        "/v1/users",
        "/v1/permissions",
        "/v1/acls",
        "/v1/acls/state",
        "/v1/quotas",
        "/v1/quotas/use",
        "/v1/why?seconds=0.1",
        "/v1/backup",
    ];
    for path in paths {
        get(&process, path);
    }
    get(&process, &format!("/v1/connections/{id}"));
    let moved = change(&process, "POST", "/v1/groups/readers/reset?dry_run=true", json!({"to": "latest"}));
    assert_eq!(moved.body["offsets"][0], json!({"topic": "orders", "partition": 0, "from": 0, "to": 0, "change": 0}));
    assert_eq!(change(&process, "POST", "/v1/bindings/%2F/delete", binding).status, 204);
    assert_eq!(
        change(
            &process,
            "PUT",
            "/v1/users/anna?dry_run=true",
            json!({"password": "secret", "tags": ["administrator"]})
        )
        .status,
        200
    );
    assert_eq!(get(&process, "/v1/users")["total"], 0, "it was only tried");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let topic = "/v1/exchanges/%2F/amq.topic/publish";
    let cases = [
        ("POST", "/v1/topics", json!({"name": "a b"}), 400, "invalid", json!("name")),
        (
            "POST",
            "/v1/topics",
            json!({"name": "a", "config": {"retention.ms": "soon"}}),
            400,
            "invalid",
            json!("config.retention.ms"),
        ),
        ("POST", "/v1/topics", json!({"name": "a", "partitions": 0}), 400, "invalid", json!("partitions")),
        ("POST", "/v1/topics", json!({"name": "a", "replicas": 1}), 400, "invalid", json!("replicas")),
        ("POST", "/v1/topics?dryrun=true", json!({"name": "a"}), 400, "invalid", json!("dryrun")),
        ("POST", "/v1/topics?dry_run=yes", json!({"name": "a"}), 400, "invalid", json!("dry_run")),
        ("POST", "/v1/topics", json!([1]), 400, "bad_request", Value::Null),
        ("GET", "/v1/topics?limit=0", Value::Null, 400, "invalid", json!("limit")),
        ("GET", "/v1/topics/none", Value::Null, 404, "not_found", Value::Null),
        ("GET", "/v1/nowhere", Value::Null, 404, "not_found", Value::Null),
        ("PUT", "/v1/topics", Value::Null, 405, "method_not_allowed", Value::Null),
        ("PATCH", "/v1/config", json!({"set": {"mainstem.shards": 2}}), 400, "invalid", json!("set.mainstem.shards")),
        (
            "PATCH",
            "/v1/config",
            json!({"set": {"num.partitions": "many"}}),
            400,
            "invalid",
            json!("set.num.partitions"),
        ),
        ("PUT", "/v1/filters/g", json!({"expression": "key ="}), 400, "invalid", json!("expression")),
        ("PUT", "/v1/users/a", json!({"password": "x"}), 409, "conflict", Value::Null),
        ("PUT", "/v1/users/a", json!({"password": ""}), 400, "invalid", json!("password")),
        ("POST", "/v1/groups/none/reset", json!({"to": "latest"}), 404, "not_found", Value::Null),
        ("POST", "/v1/exchanges/%2F/none/publish", json!({}), 404, "not_found", Value::Null),
        ("POST", "/v1/exchanges/none/amq.topic/publish", json!({}), 404, "not_found", Value::Null),
        ("POST", topic, json!({"routing_key": "k".repeat(256)}), 400, "invalid", json!("routing_key")),
        ("POST", topic, json!({"body": "!", "body_encoding": "base64"}), 400, "invalid", json!("body")),
        ("POST", topic, json!({"body_encoding": "hex"}), 400, "invalid", json!("body_encoding")),
        ("POST", topic, json!({"headers": {"a": null}}), 400, "invalid", json!("headers.a")),
        ("POST", topic, json!({"properties": {"priority": 256}}), 400, "invalid", json!("properties.priority")),
        ("POST", topic, json!({"properties": {"expiration": "soon"}}), 400, "invalid", json!("properties.expiration")),
        ("POST", topic, json!({"properties": {"colour": "red"}}), 400, "invalid", json!("properties.colour")),
        ("POST", topic, json!({"payload": ""}), 400, "invalid", json!("payload")),
    ];
    for (method, path, body, status, error, field) in cases {
        let answer = change(&process, method, path, body.clone());
        assert_eq!(
            (answer.status, &answer.body["error"], &answer.body["field"]),
            (status, &json!(error), &field),
            "{method} {path} {body}: {}",
            answer.body
        );
        assert!(answer.body["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{}", answer.body);
        assert_eq!(answer.says("\r\nallow: get, head, post\r\n"), status == 405, "{method} {path}");
    }
    let mut socket = TcpStream::connect(process.admin).expect("the port is open");
    write!(
        socket,
        "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 1048577\r\n\r\n"
    )
    .expect("it is read");
    let mut large = String::new();
    socket.read_to_string(&mut large).expect("an answer before the body");
    assert!(large.starts_with("HTTP/1.1 413"), "{large}");
    assert_eq!(ask(&process, "POST", "/v1/topics", &[("content-type", "text/plain")], "{\"name\": \"a\"}").status, 415);
    assert_eq!(ask(&process, "GET", "/v1/overview", &[("host", "evil.example")], "").status, 403);
    assert_eq!(
        ask(&process, "POST", "/v1/topics", &[("origin", "http://localhost:1")], "{\"name\": \"a\"}").body["error"],
        "wrong_origin"
    );
    assert_eq!(
        ask(&process, "GET", "/v1/overview", &[("x-forwarded-for", "10.0.0.1")], "").status,
        401,
        "whom a proxy asks for is not on this machine"
    );
    let answer = ask(&process, "GET", "/v1/overview", &[], "");
    for part in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "x-frame-options: deny",
    ] {
        assert!(answer.says(part), "{part} in {}", answer.head);
    }
}

/// The cookie and the second token of a session.
pub fn log_in(process: &Process, user: &str, password: &str) -> (String, String) {
    let answer = ask(process, "POST", "/v1/session", &[], &json!({"user": user, "password": password}).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    for part in ["httponly", "samesite=strict", "path=/v1"] {
        assert!(answer.says(part), "{part} in {}", answer.head);
    }
    let cookie = answer
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next().map(str::to_owned))
        .expect("a cookie");
    (cookie, answer.body["csrf"].as_str().expect("a token").to_owned())
}

#[test]
fn users_log_in_and_sessions_protect_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(
        folder.path(),
        &["--set", "mainstem.password.iterations=1000", "--set", "mainstem.login.failures=6"],
    );
    assert_eq!(get(&process, "/v1/session")["anonymous"], true);
    for (arguments, said) in [
        (&["--tag", "adminstrator"][..], "did you mean administrator?"),
        (&[], "the first user takes the place of guest"),
    ] {
        let refused = run(&process, &[&["user", "add", "anna"], arguments].concat(), "secret\n");
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && text.contains(said), "{text}");
    }
    let added = run(&process, &["user", "add", "anna", "--tag", "administrator"], "secret\n");
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    assert_eq!(ask(&process, "GET", "/v1/overview", &[], "").status, 401, "now everybody has to log in");
    assert!(ask(&process, "GET", "/v1/overview", &[], "").says("www-authenticate: basic"));
    let of_browser = ask(&process, "GET", "/v1/overview", &[("sec-fetch-site", "same-origin")], "");
    assert!(!of_browser.says("basic"), "a browser does not ask in our place");
    assert!(refuses(&process, &["topic", "list"]).contains("--user"));
    let (cookie, csrf) = log_in(&process, "anna", "secret");
    let with = |method: &str, path: &str, more: &[(&str, &str)], body: &str| {
        let headers: Vec<(&str, &str)> =
            [("cookie", cookie.as_str())].into_iter().chain(more.iter().copied()).collect();
        ask(&process, method, path, &headers, body)
    };
    assert_eq!(with("GET", "/v1/session", &[], "").body["user"], "anna");
    assert_eq!(with("POST", "/v1/topics", &[], "{\"name\": \"a\"}").body["error"], "csrf");
    assert_eq!(with("POST", "/v1/topics", &[("x-mainstem-csrf", "x")], "{\"name\": \"a\"}").body["error"], "csrf");
    assert_eq!(with("POST", "/v1/topics", &[("x-mainstem-csrf", &csrf)], "{\"name\": \"a\"}").status, 201);
    let watcher = json!({"password": "look", "tags": ["monitoring"]}).to_string();
    assert_eq!(with("PUT", "/v1/users/otto", &[("x-mainstem-csrf", &csrf)], &watcher).status, 201);
    let (eyes, token) = log_in(&process, "otto", "look");
    assert_eq!(ask(&process, "GET", "/v1/topics", &[("cookie", &eyes)], "").body["total"], 1);
    assert_eq!(ask(&process, "GET", "/v1/users", &[("cookie", &eyes)], "").body["error"], "not_allowed");
    let refused =
        ask(&process, "POST", "/v1/topics", &[("cookie", &eyes), ("x-mainstem-csrf", &token)], "{\"name\": \"b\"}");
    assert_eq!(refused.body["error"], "not_allowed", "{}", refused.body);
    assert_eq!(
        with("DELETE", "/v1/users/anna", &[("x-mainstem-csrf", &csrf)], "").body["error"],
        "conflict",
        "the last administrator stays"
    );
    let other = json!({"tags": ["monitoring", "management"]}).to_string();
    assert_eq!(with("PUT", "/v1/users/otto", &[("x-mainstem-csrf", &csrf)], &other).status, 200);
    assert_eq!(ask(&process, "GET", "/v1/topics", &[("cookie", &eyes)], "").status, 401, "his session has ended");
    let (first, _) = log_in(&process, "otto", "look");
    (0..1001).for_each(|_| drop(log_in(&process, "otto", "look")));
    assert_eq!(
        ask(&process, "GET", "/v1/topics", &[("cookie", &first)], "").status,
        401,
        "of his own the oldest has ended"
    );
    assert_eq!(with("GET", "/v1/session", &[], "").body["user"], "anna", "and nobody else's");
    assert_eq!(with("DELETE", "/v1/session", &[("x-mainstem-csrf", &csrf)], "").status, 204);
    assert_eq!(with("GET", "/v1/session", &[], "").status, 401);
    let wrong = |number: usize| json!({"user": "anna", "password": format!("wrong {number}")}).to_string();
    let statuses: Vec<u16> =
        (0..7).map(|number| ask(&process, "POST", "/v1/session", &[], &wrong(number)).status).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 401, 429]);
    assert!(ask(&process, "POST", "/v1/session", &[], &wrong(7)).says("retry-after: "));
}

#[test]
fn the_command_line_makes_changes_and_shows_them() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    assert_eq!(
        says(&process, &["topic", "create", "orders", "--partitions", "2", "--set", "retention.ms=60000"]),
        "topic orders created with 2 partitions\n"
    );
    let table = says(&process, &["topic", "list"]);
    assert!(table.starts_with("NAME    PARTITIONS") && table.contains("\norders           2"), "{table}");
    let found: Value = serde_json::from_str(&says(&process, &["topic", "show", "orders", "--json"])).expect("JSON");
    assert_eq!(found["retention_ms"], 60000);
    assert!(
        says(&process, &["topic", "alter", "orders", "--partitions", "4", "--unset", "retention.ms", "--dry-run"])
            .contains("nothing was done")
    );
    assert_eq!(get(&process, "/v1/topics/orders")["partitions"], 2);
    says(&process, &["topic", "alter", "orders", "--partitions", "4", "--unset", "retention.ms"]);
    assert_eq!(get(&process, "/v1/topics/orders")["retention_ms"], 604_800_000);
    commit(&process, "readers", "orders");
    assert!(says(&process, &["group", "reset-offsets", "readers", "--to-latest"]).contains("--execute"));
    says(&process, &["group", "reset-offsets", "readers", "--to-latest", "--topic", "orders", "--execute"]);
    assert_eq!(get(&process, "/v1/groups/readers")["offsets"].as_array().map(Vec::len), Some(4));
    says(&process, &["queue", "declare", "work", "--type", "quorum"]);
    says(&process, &["exchange", "declare", "events", "--type", "topic"]);
    says(&process, &["exchange", "bind", "events", "work", "--key", "a.#"]);
    assert!(says(&process, &["exchange", "bindings"]).contains("a.#"));
    assert_eq!(says(&process, &["queue", "purge", "work"]), "0 messages of queue work deleted\n");
    says(&process, &["filter", "set", "readers", "key = 'a'"]);
    assert!(says(&process, &["filter", "list"]).contains("key = 'a'"));
    assert!(refuses(&process, &["filter", "check", "key = 'a"]).contains('^'));
    assert!(says(&process, &["overview"]).contains("WARNING"), "no user is defined");
    assert!(refuses(&process, &["topic", "show", "none"]).contains("there is no topic \"none\""));
    says(&process, &["topic", "delete", "orders"]);
    let nobody = Command::new(env!("CARGO_BIN_EXE_mainstem"))
        .args(["topic", "list", "--admin", "127.0.0.1:1"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(
        !nobody.status.success()
            && text.contains("no broker answers at 127.0.0.1:1")
            && text.contains("mainstem serve"),
        "{text}"
    );
}

#[test]
fn settings_change_while_the_broker_runs_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--set", "num.partitions=2"]);
    says(&process, &["topic", "create", "before"]);
    says(&process, &["config", "set", "num.partitions=5", "log.retention.ms=1234000"]);
    assert_eq!(get(&process, "/v1/topics/before")["retention_ms"], 1_234_000, "topics that do not say have it at once");
    process.kill();
    let process = Process::start(folder.path(), &["--set", "num.partitions=2"]);
    says(&process, &["topic", "create", "after"]);
    assert_eq!(get(&process, "/v1/topics/after")["partitions"], 5);
    let row = &get(&process, "/v1/config?search=num.partitions")["items"][0];
    assert_eq!((&row["value"], &row["source"], &row["apply"]), (&json!("5"), &json!("dynamic"), &json!("dynamic")));
    assert!(
        says(&process, &["config", "set", "log.retention.hours=2"]).contains("7200000"),
        "in other units, as in the file"
    );
    assert!(
        refuses(&process, &["config", "set", "log.retention.hours=2", "log.retention.minutes=3"])
            .contains("more than once")
    );
    let refused = refuses(&process, &["config", "set", "num.partitions=many"]);
    assert!(refused.contains("num.partitions") && !refused.contains("set.num.partitions"), "{refused}");
    assert!(refuses(&process, &["config", "set", "mainstem.shards=3"]).contains("restart"));
    assert!(
        refuses(&process, &["config", "set", "num.partition=3"]).contains("num.partitions"),
        "the nearest name is told"
    );
    says(&process, &["config", "unset", "num.partitions", "log.retention.ms"]);
    says(&process, &["topic", "create", "last"]);
    let last = get(&process, "/v1/topics/last");
    assert_eq!((&last["partitions"], &last["retention_ms"]), (&json!(2), &json!(604_800_000)));
}

#[test]
fn entries_and_quotas_are_set_and_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let entry = ["--principal", "User:carol", "--operation", "read", "--resource", "topic", "--name", "orders"];
    let words = |verb: &[&'static str]| [&["acl"][..], verb, &entry].concat();
    assert!(says(&process, &words(&["add"])).contains("User:carol"));
    let again = json!({"principal": "User:carol", "operation": "Read", "resource": "Topic", "name": "orders"});
    let made = change(&process, "POST", "/v1/acls", again);
    assert_eq!(made.status, 200, "it is there: {}", made.body);
    assert!(says(&process, &["acl", "state"]).contains("do not count"));
    let wrong = change(
        &process,
        "POST",
        "/v1/acls",
        json!({"principal": "carol", "operation": "Read", "resource": "Topic", "name": "orders"}),
    );
    assert_eq!((wrong.status, &wrong.body["field"]), (400, &json!("principal")), "{}", wrong.body);
    let cluster = json!({"principal": "User:carol", "operation": "Alter", "resource": "Cluster", "name": "orders"});
    assert_eq!(change(&process, "POST", "/v1/acls?dry_run=true", cluster).body["field"], "name");
    let tried = json!({"principal": "User:dave", "operation": "Read", "resource": "Topic", "name": "orders", "pattern": "Prefixed"});
    let tried = change(&process, "POST", "/v1/acls?dry_run=true", tried);
    assert_eq!(
        (&tried.body["pattern"], &get(&process, "/v1/acls")["total"]),
        (&json!("Prefixed"), &json!(1)),
        "it was only tried"
    );
    let unknown = change(
        &process,
        "POST",
        "/v1/acls",
        json!({"principal": "User:carol", "operation": "Smell", "resource": "Topic", "name": "orders"}),
    );
    assert_eq!(unknown.body["field"], "operation");
    assert_eq!(change(&process, "POST", "/v1/acls/delete", json!({})).status, 400, "not all at once by mistake");
    assert!(says(&process, &words(&["delete", "--dry-run"])).ends_with("1 would go\n"));
    assert!(says(&process, &words(&["delete"])).ends_with("1 gone\n"));
    assert_eq!(get(&process, "/v1/acls")["total"], 0);
    assert!(says(&process, &["quota", "set", "--for-user", "bob", "producer_byte_rate=1000000"]).contains("user bob"));
    let set = change(
        &process,
        "PUT",
        "/v1/quotas",
        json!({"entity": {"user": "bob", "client-id": null}, "values": {"consumer_byte_rate": 5}}),
    );
    assert_eq!(set.body["name"], "user bob, client-id default", "{}", set.body);
    assert_eq!(
        change(&process, "PUT", "/v1/quotas", json!({"entity": {"planet": "x"}, "values": {}})).body["field"],
        "entity"
    );
    let nowhere = json!({"entity": {"ip": "there"}, "values": {"connection_creation_rate": 5}});
    assert_eq!(change(&process, "PUT", "/v1/quotas", nowhere).body["field"], "entity.ip");
    assert_eq!(
        change(&process, "PUT", "/v1/quotas", json!({"entity": {"user": "x"}, "values": {"nothing": 1}})).body["field"],
        "values.nothing"
    );
    let negative = json!({"entity": {"user": "x"}, "values": {"producer_byte_rate": -1}});
    assert_eq!(change(&process, "PUT", "/v1/quotas", negative).body["field"], "values.producer_byte_rate");
    // At the command line without the field of the request that it is in.
    let refused = refuses(&process, &["quota", "set", "--for-user", "x", "nothing=1"]);
    assert!(refused.contains("nothing") && !refused.contains("values."), "{refused}");
    let refused = refuses(&process, &["topic", "create", "t", "--set", "retention.ms=long"]);
    assert!(refused.contains("retention.ms") && !refused.contains("config.retention"), "{refused}");
    assert!(
        refuses(&process, &["quota", "set", "--for-user", "bob", "producer_byte_rate=much"]).contains("KEY=NUMBER")
    );
    says(&process, &["quota", "set", "--for-user", "bob", "producer_byte_rate="]);
    assert_eq!(get(&process, "/v1/quotas")["total"], 1, "that of bob's clients is left");
    let tried = json!({"entity": {"user": "bob", "client-id": null}, "values": {"consumer_byte_rate": null, "producer_byte_rate": 7}});
    let tried = change(&process, "PUT", "/v1/quotas?dry_run=true", tried);
    assert_eq!(tried.body["values"], json!({"producer_byte_rate": 7.0}), "as it would be");
    assert_eq!(
        get(&process, "/v1/quotas")["items"][0]["values"],
        json!({"consumer_byte_rate": 5.0}),
        "it was only tried"
    );
    assert_eq!(
        change(
            &process,
            "POST",
            "/v1/topics",
            json!({"name": "orders", "config": {"mainstem.producer.byte.rate": "1000"}})
        )
        .status,
        201
    );
    let rules = json!({"set": {"mainstem.laggard.rules": "lag>1GiB 60MiB/min"}});
    assert_eq!(change(&process, "PATCH", "/v1/groups/reports/config", rules).status, 200);
    let uses = get(&process, "/v1/quotas/use");
    let of = |at: usize, field: &str| uses["items"][at][field].clone();
    assert_eq!(
        (of(0, "entity"), of(0, "limit"), of(0, "rules")),
        (json!({"group": "reports"}), Value::Null, json!("lag>1GiB 60MiB/min"))
    );
    assert_eq!(
        (of(1, "entity"), of(1, "limit"), of(1, "key")),
        (json!({"topic": "orders"}), json!(1000.0), json!("mainstem.producer.byte.rate"))
    );
    assert!(says(&process, &["quota", "use"]).contains("topic orders"));
}

#[test]
fn those_who_look_for_long_leave_threads_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let picture =
        ask(&process, "GET", "/v1/why?seconds=3", &[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "image")], "");
    assert_eq!((picture.status, &picture.body["error"]), (403, &json!("wrong_origin")), "{}", picture.body);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let looks: Vec<_> =
            (0..8).map(|_| scope.spawn(|| ask(&process, "GET", "/v1/why?seconds=5", &[], "").status)).collect();
        // By then they have all come.
        std::thread::sleep(Duration::from_millis(500));
        get(&process, "/v1/session");
        assert!(looks.iter().any(|look| !look.is_finished()), "it is answered before they are");
        looks.into_iter().map(|look| look.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 6, "{statuses:?}");
}

#[test]
fn partitions_of_a_topic_come_a_thousand_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let tried = change(&process, "POST", "/v1/topics?dry_run=true", json!({"name": "huge", "partitions": 100_000}));
    let count = |topic: &Value| topic["partition_list"].as_array().map(Vec::len);
    assert_eq!((&tried.body["partitions"], count(&tried.body)), (&json!(100_000), Some(1000)));
    let made = change(&process, "POST", "/v1/topics", json!({"name": "large", "partitions": 2300}));
    assert_eq!((&made.body["partitions"], count(&made.body)), (&json!(2300), Some(1000)));
    let last = get(&process, "/v1/topics/large?partition_offset=2000");
    assert_eq!((count(&last), &last["partition_list"][0]["partition"]), (Some(300), &json!(2000)));
    let shown: Value = serde_json::from_str(&says(&process, &["topic", "show", "large", "--json"])).expect("JSON");
    assert_eq!((count(&shown), &shown["partition_list"][2299]["partition"]), (Some(2300), &json!(2299)));
}

#[test]
fn a_reset_of_many_partitions_has_each_once() {
    const COUNT: u32 = 30_000;
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    assert_eq!(change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": COUNT})).status, 201);
    commit_partitions(&process, "g", "t", COUNT);
    let all: Vec<u32> = (0..COUNT).rev().collect();
    let tried = change(
        &process,
        "POST",
        "/v1/groups/g/reset?dry_run=true",
        json!({"to": "earliest", "topics": ["t", "t"], "partitions": all}),
    );
    let moved = tried.body["offsets"].as_array().expect("a list");
    assert_eq!(
        (moved.len(), &moved[29_999]),
        (30_000, &json!({"topic": "t", "partition": 29_999, "from": 0, "to": 0, "change": 0}))
    );
}

#[test]
fn names_of_dots_are_no_steps_in_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    for (path, name) in [("%5C..", ".."), ("%5C.", "."), ("%5C%5C..", "\\.."), ("%5Ca", "\\a"), ("..%5C", "..\\")] {
        let made = change(&process, "PUT", &format!("/v1/queues/%2F/{path}"), json!({}));
        assert_eq!((made.status, &made.body["name"]), (201, &json!(name)), "{path}: {}", made.body);
    }
    assert!(says(&process, &["queue", "show", ".."]).contains(".."));
    says(&process, &["queue", "delete", "\\.."]);
    assert_eq!(get(&process, "/v1/queues?search=..")["total"], 2);
}
