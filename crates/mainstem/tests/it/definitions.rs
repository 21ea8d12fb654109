//! Definitions over a running broker: of what kind the things are, they are written together, all of each or none of it, and what cannot be is named.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::administration::{Answer, ask};
use crate::process::Process;
use crate::rights::{ask_as, make};

const MANY: usize = 1_500;

/// Of the [`administrator`].
const LOGIN: (&str, &str) = ("authorization", "Basic cm9vdDp0ZXN0MTI=");

/// Somebody with a password: RabbitMQ's documentation has this hash as that of `test12`.
fn administrator() -> Value {
    let hash = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR";
    json!({"name": "root", "password_hash": hash, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": "administrator"})
}

/// Chunks that the journals have written.
fn chunks(process: &Process) -> u64 {
    let page = process.ask_admin("/metrics").expect("a page");
    let lines = page.lines().filter(|line| line.starts_with("mainstem_journal_write_duration_seconds_count"));
    lines
        .map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).expect("a number") as u64)
        .sum()
}

/// Users, and what else there are many of.
fn document() -> Value {
    let all = |one: &dyn Fn(usize) -> Value| (0..MANY).map(one).collect::<Vec<_>>();
    json!({
        "users": all(&|number| json!({"name": format!("u{number}"), "password_hash": "", "tags": ["management"], "limits": {"max-connections": 3}})),
        "vhosts": [{"name": "/"}, {"name": "shop", "limits": {"max-queues": 7}, "metadata": {"description": "goods"}}],
        "permissions": all(&|number| json!({"user": format!("u{number}"), "vhost": "shop", "configure": "", "write": format!("^q{number}$"), "read": ""})),
        "topic_permissions": all(&|number| json!({"user": format!("u{number}"), "vhost": "shop", "exchange": "amq.topic", "write": "^a", "read": ""})),
        "global_parameters": all(&|number| json!({"name": format!("p{number}"), "value": number})),
        "policies": (0..200).map(|number| json!({"name": format!("p{number}"), "vhost": "shop", "pattern": format!("^q{number}$"), "definition": {"max-length": number + 1}})).collect::<Vec<_>>(),
        "queues": (0..200).map(|number| json!({"name": format!("q{number}"), "vhost": "shop", "durable": true, "auto_delete": false, "arguments": {}})).collect::<Vec<_>>(),
    })
}

fn post(process: &Process, document: &Value) -> Answer {
    ask_as(process, "root", "POST", "/api/definitions", document)
}

fn administered(flags: &[&str]) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&folder.path().join("data"), flags);
    let first = ask(
        &process,
        "PUT",
        "/v1/users/root",
        &[],
        &json!({"password": "root", "tags": ["administrator"]}).to_string(),
    );
    assert_eq!(first.status, 201, "{}", first.body);
    (folder, process)
}

fn check(process: &Process) {
    let get = |path: &str| make(process, "GET", path, &Value::Null).body;
    assert_eq!(get("/api/users").as_array().map(Vec::len), Some(MANY + 1));
    let permission = get("/api/permissions/shop/u77");
    assert_eq!((&permission["write"], &permission["configure"]), (&json!("^q77$"), &json!("")));
    assert_eq!(get("/api/topic-permissions/shop/u77")[0]["write"], "^a");
    assert_eq!(get("/api/user-limits/u77")[0]["value"]["max-connections"], 3);
    assert_eq!(get("/api/vhost-limits/shop")[0]["value"]["max-queues"], 7);
    assert_eq!(get("/api/global-parameters/p77")["value"], 77);
    assert_eq!(get("/api/policies/shop/p77")["definition"]["max-length"], 78);
}

#[test]
fn things_of_a_kind_are_written_together() {
    let (_folder, process) = administered(&["--set", "mainstem.password.iterations=1000"]);
    // The limit of queues comes with the virtual host: all but seven of them are refused.
    let before = chunks(&process);
    let done = post(&process, &document());
    assert_eq!(done.status, 200, "{}", done.body);
    let refused = done.body["not_supported"].as_array().expect("a list");
    assert!(refused.len() == 193 && refused.iter().all(|one| one["kind"] == "queue"), "{}", done.body);
    let written = chunks(&process) - before;
    assert!(written < 600, "{written} chunks for {} things", 4 * MANY);
    check(&process);
    assert_eq!(make(&process, "GET", "/api/queues/shop/q3", &Value::Null).body["policy"], "p3");
    let again = post(&process, &document());
    assert_eq!((again.status, &again.body["changed"]), (200, &json!(0)), "the second time nothing changes");
}

#[test]
fn a_file_at_the_start_is_taken_over_the_same_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("definitions.json");
    let mut all = document();
    all["users"].as_array_mut().expect("a list").push(administrator());
    std::fs::write(&file, all.to_string()).expect("written");
    let flags = ["--definitions", file.to_str().expect("a path"), "--set", "mainstem.password.iterations=1000"];
    let process = Process::start(&folder.path().join("data"), &flags);
    let written = chunks(&process);
    assert!(written < 600, "{written} chunks for {} things", 4 * MANY);
    let user = ask(&process, "GET", "/api/permissions/shop/u77", &[LOGIN], "");
    assert_eq!((user.status, &user.body["write"]), (200, &json!("^q77$")), "{}", user.body);
}

/// A file whose arguments take more memory than definitions may is there wholly, and the log says what to set; what clients declare later is refused.
#[test]
fn a_file_that_takes_more_memory_than_definitions_may_is_taken_over_wholly() {
    const EXCHANGES: usize = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("definitions.json");
    let exchange = |number| json!({"name": format!("e{number}"), "vhost": "/", "type": "direct", "durable": true, "auto_delete": false, "arguments": {"x-note": "a".repeat(100_000)}});
    let document = json!({
        "users": [administrator()],
        "permissions": [{"user": "root", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "exchanges": (0..EXCHANGES).map(exchange).collect::<Vec<_>>(),
    });
    std::fs::write(&file, document.to_string()).expect("written");
    let more = |process: &Process| ask(process, "PUT", "/api/exchanges/%2F/more", &[LOGIN], r#"{"type": "direct"}"#);
    let (data, file) = (folder.path().join("data"), file.to_str().expect("a path"));
    // The second start finds all there, and the third has no file.
    for flags in [
        &["--memory", "64MiB", "--definitions", file][..],
        &["--memory", "64MiB", "--definitions", file],
        &["--memory", "64MiB"],
    ] {
        let process = Process::start(&data, flags);
        let all = ask(&process, "GET", "/api/exchanges/%2F", &[LOGIN], "").body;
        let own = all
            .as_array()
            .expect("a list")
            .iter()
            .filter(|one| one["name"].as_str().is_some_and(|name| name.starts_with('e')))
            .count();
        assert_eq!(own, EXCHANGES);
        let refused = more(&process);
        assert!(
            refused.status == 400 && refused.body.to_string().contains("memory"),
            "{} {}",
            refused.status,
            refused.body
        );
        let (log, _) = process.terminate();
        let told = log
            .lines()
            .find(|line| line.contains("WARN") && line.contains("raise --memory beyond"))
            .unwrap_or_else(|| panic!("{log}"));
        assert!(!log.contains("not taken over") && told.contains(file) == (flags.len() > 2), "{told}");
        let needed: usize = told
            .split("beyond ")
            .nth(1)
            .and_then(|rest| rest.split("MiB").next())
            .and_then(|text| text.parse().ok())
            .expect("a number");
        assert!((90..120).contains(&needed), "8 times 60 times 200 KB: {told}");
    }
    // What was told is enough.
    let process = Process::start(&data, &["--memory", "128MiB", "--definitions", file]);
    assert_eq!(more(&process).status, 201);
    let (log, _) = process.terminate();
    assert!(!log.contains("raise --memory"), "{log}");
}

/// RabbitMQ's SHA-256: 4 bytes of salt, then the digest of salt and password.
fn is_hash_of(hash: &str, password: &str) -> bool {
    let bytes = STANDARD.decode(hash).expect("base64");
    let (salt, digest) = bytes.split_at(4);
    ring::digest::digest(&ring::digest::SHA256, &[salt, password.as_bytes()].concat()).as_ref() == digest
}

/// A node that takes the document, ours or RabbitMQ, lets the same users in.
#[test]
fn exported_users_have_a_hash_that_rabbitmq_knows_beside_the_one_that_counts() {
    let (_folder, process) = administered(&["--set", "mainstem.password.iterations=1000"]);
    let exported = make(&process, "GET", "/api/definitions", &Value::Null).body;
    let root = &exported["users"][0];
    assert_eq!(
        (&root["name"], &root["hashing_algorithm"]),
        (&json!("root"), &json!("rabbit_password_hashing_sha256")),
        "{root}"
    );
    let hash = root["password_hash"].as_str().expect("a hash");
    assert!(is_hash_of(hash, "root"));
    let own = root["mainstem_password_hash"].as_str().expect("a hash");
    assert_eq!(STANDARD.decode(own).map(|bytes| bytes.len()), Ok(52));
    // Taken over here, the one that counts is the slow one.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("definitions.json");
    std::fs::write(&file, exported.to_string()).expect("written");
    let flags = ["--definitions", file.to_str().expect("a path")];
    let other = Process::start(&folder.path().join("data"), &flags);
    assert_eq!(
        make(&other, "GET", "/api/users/root", &Value::Null).body,
        make(&process, "GET", "/api/users/root", &Value::Null).body
    );
    // What RabbitMQ has made of it comes back as what it was.
    let mut returned = json!({"users": [root]});
    returned["users"][0].as_object_mut().expect("a user").remove("mainstem_password_hash");
    assert_eq!(post(&other, &returned).status, 204);
    assert_eq!(make(&other, "GET", "/api/users/root", &Value::Null).body["mainstem_password_hash"], *own);
    // It is kept over a start, and goes with its password.
    drop(other);
    let other = Process::start(&folder.path().join("data"), &flags[..0]);
    assert_eq!(make(&other, "GET", "/api/users/root", &Value::Null).body["password_hash"], hash);
    let another = json!({"password": "another", "tags": ["administrator"]});
    assert_eq!(ask_as(&other, "root", "PUT", "/v1/users/root", &another).status, 200);
    let login = ("authorization", "Basic cm9vdDphbm90aGVy");
    let shown = ask(&other, "GET", "/api/users/root", &[login], "").body;
    assert!(is_hash_of(shown["password_hash"].as_str().expect("a hash"), "another"), "{shown}");
}

#[test]
fn no_second_hash_is_kept_where_that_is_set() {
    let (_folder, process) =
        administered(&["--set", "mainstem.password.iterations=1000", "--set", "mainstem.password.rabbitmq.hash=false"]);
    let root = make(&process, "GET", "/api/users/root", &Value::Null).body;
    assert_eq!(
        (&root["hashing_algorithm"], &root["mainstem_password_hash"]),
        (&json!("mainstem_pbkdf2_sha256"), &Value::Null),
        "{root}"
    );
}

/// There is no tracing: a program that always says how it wants it goes on.
/// As RabbitMQ's tools write users: the algorithm is told by the length where nobody says it.
#[test]
fn a_hash_without_an_algorithm_is_known_by_its_length() {
    let (_folder, process) = administered(&["--set", "mainstem.password.iterations=1000"]);
    // Of password `test12`, by Python's hashlib.
    let sha512 = "kI3GChuNuIYf8lRbCCxZjgjKwsY19ns6+uFO0zcXRBGA/XGJPYD8OWMy7EB8TaOmAzjP2azv84GbINYwX2cDWb4DHnc=";
    let sha256 = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR";
    for (name, hash) in [("long", sha512), ("short", sha256)] {
        make(&process, "PUT", &format!("/api/users/{name}"), &json!({"password_hash": hash, "tags": "management"}));
        let login = |password: &str| format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        let let_in =
            |password: &str| ask(&process, "GET", "/api/whoami", &[("authorization", &login(password))], "").status;
        assert_eq!((let_in("test12"), let_in("test13")), (200, 401), "{name}");
    }
    let refused = ask_as(&process, "root", "PUT", "/api/users/wrong", &json!({"password_hash": "AAAA", "tags": ""}));
    assert!(refused.status == 400 && !refused.body.to_string().contains("not_base64"), "{}", refused.body);
}

/// Telegraf asks for them as long as it is not told to leave them out.
#[test]
fn federation_and_shovels_are_empty_lists() {
    let (_folder, process) = administered(&["--set", "mainstem.password.iterations=1000"]);
    for path in ["federation-links", "federation-links/%2F", "shovels", "shovels/%2F"] {
        assert_eq!(make(&process, "GET", &format!("/api/{path}"), &Value::Null).body, json!([]), "{path}");
    }
}

#[test]
fn a_virtual_host_with_tracing_is_made_without() {
    let (_folder, process) = administered(&[]);
    for (wanted, status) in [(json!(true), 201), (json!("true"), 204), (json!(false), 204)] {
        let answer =
            ask_as(&process, "root", "PUT", "/api/vhosts/shop", &json!({"description": "goods", "tracing": wanted}));
        assert_eq!(answer.status, status, "{}", answer.body);
        let shown = make(&process, "GET", "/api/vhosts/shop", &Value::Null).body;
        assert_eq!((&shown["tracing"], &shown["description"]), (&json!(false), &json!("goods")));
    }
}

#[test]
fn what_cannot_be_is_named_and_nothing_of_it_is_done() {
    let (_folder, process) = administered(&[]);
    let get = |path: &str| ask_as(&process, "root", "GET", path, &Value::Null);
    let limits =
        json!({"vhosts": [{"name": "first"}, {"name": "shop", "limits": {"max-queues": "many"}}, {"name": "last"}]});
    let refused = post(&process, &limits);
    assert_eq!(refused.status, 400);
    assert!(
        refused.body["reason"].as_str().is_some_and(|reason| reason.contains("vhost \"shop\"")),
        "{}",
        refused.body
    );
    let statuses = ["first", "shop", "last"].map(|name| get(&format!("/api/vhosts/{name}")).status);
    assert_eq!(statuses, [200, 404, 404], "what was before it is done, of it nothing");
    // A user who is there twice is what is said last.
    let twice = json!({"users": [
        {"name": "bob", "password_hash": "", "tags": ["management"]},
        {"name": "eve", "password_hash": "", "tags": []},
        {"name": "bob", "password_hash": "", "tags": ["monitoring"]},
    ]});
    assert_eq!(post(&process, &twice).status, 204);
    assert_eq!(get("/api/users/bob").body["tags"], json!(["monitoring"]));
    let nobody = json!({"permissions": [
        {"user": "bob", "vhost": "/", "configure": "", "write": "", "read": ".*"},
        {"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ".*"},
    ]});
    let refused = post(&process, &nobody);
    assert!(
        refused.status == 400
            && refused.body["reason"].as_str().is_some_and(|reason| reason.contains("permission \"nobody of /\"")),
        "{}",
        refused.body
    );
    assert_eq!((get("/api/permissions/%2F/bob").status, get("/api/permissions/%2F/nobody").status), (200, 404));
}
