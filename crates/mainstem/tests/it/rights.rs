//! Who may see and do what by the administration API: permissions, and access control entries where they count.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::administration::{Answer, ask, commit};
use crate::process::Process;

/// A request of a user, whose password is his name.
pub fn ask_as(process: &Process, user: &str, method: &str, path: &str, body: &Value) -> Answer {
    let login = format!("Basic {}", STANDARD.encode(format!("{user}:{user}")));
    ask(
        process,
        method,
        path,
        &[("authorization", &login)],
        &if body.is_null() { String::new() } else { body.to_string() },
    )
}

/// Has the administrator make a change.
pub fn make(process: &Process, method: &str, path: &str, body: &Value) -> Answer {
    let answer = ask_as(process, "root", method, path, body);
    assert!((200..300).contains(&answer.status), "{method} {path} {body}: {}", answer.body);
    answer
}

/// A broker with an administrator `root` and a user `bob` with tag `management` and these permissions in `/`. Kafka clients need no login
/// and may do everything.
pub fn with_bob(permissions: &str, flags: &[&str]) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = vec!["--set", "mainstem.password.iterations=1000", "--set", "super.users=User:ANONYMOUS"];
    all.extend(flags);
    let process = Process::start(&folder.path().join("data"), &all);
    let first = ask(
        &process,
        "PUT",
        "/v1/users/root",
        &[],
        &json!({"password": "root", "tags": ["administrator"]}).to_string(),
    );
    assert_eq!(first.status, 201, "{}", first.body);
    make(&process, "PUT", "/v1/users/bob", &json!({"password": "bob", "tags": ["management"]}));
    let permissions = json!({"configure": permissions, "write": permissions, "read": permissions});
    make(&process, "PUT", "/v1/users/bob/permissions/%2F", &permissions);
    (folder, process)
}

fn entry(operation: &str, resource: &str, name: &str) -> Value {
    json!({"principal": "User:bob", "operation": operation, "resource": resource, "name": name})
}

const AUTHORIZER: &str = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer";

#[test]
fn entries_ask_for_what_kafkas_apis_ask_for() {
    let (_folder, process) = with_bob(".*", &["--set", AUTHORIZER]);
    make(&process, "POST", "/v1/topics", &json!({"name": "orders", "partitions": 2}));
    make(&process, "PUT", "/v1/queues/%2F/work", &json!({}));
    make(&process, "PUT", "/v1/exchanges/%2F/events", &json!({}));
    commit(&process, "readers", "orders");
    // Nothing of this is enough for what follows: a topic that is called like a group is another thing.
    for name in ["orders", "work", "events"] {
        ["Create", "Write", "Read"]
            .iter()
            .for_each(|operation| drop(make(&process, "POST", "/v1/acls", &entry(operation, "Topic", name))));
    }
    make(&process, "POST", "/v1/acls", &entry("All", "Topic", "readers"));
    make(&process, "POST", "/v1/acls", &entry("Describe", "Group", "readers"));
    let none = Value::Null;
    let cases = [
        ("DELETE", "/v1/topics/orders?dry_run=true", none.clone(), ("Delete", "Topic", "orders")),
        ("DELETE", "/v1/topics/orders?dry_run=true", none.clone(), ("Delete", "Cluster", "kafka-cluster")),
        (
            "PATCH",
            "/v1/topics/orders/config?dry_run=true",
            json!({"set": {"retention.ms": "60000"}}),
            ("AlterConfigs", "Topic", "orders"),
        ),
        ("POST", "/v1/topics/orders/partitions?dry_run=true", json!({"count": 3}), ("Alter", "Topic", "orders")),
        (
            "POST",
            "/v1/topics/orders/truncate?dry_run=true",
            json!({"partitions": [{"partition": 0, "before": -1}]}),
            ("Delete", "Topic", "orders"),
        ),
        ("POST", "/v1/topics?dry_run=true", json!({"name": "more"}), ("Create", "Topic", "more")),
        ("DELETE", "/v1/groups/readers?dry_run=true", none.clone(), ("Delete", "Group", "readers")),
        (
            "DELETE",
            "/v1/groups/readers/offsets?topic=orders&dry_run=true",
            none.clone(),
            ("Delete", "Group", "readers"),
        ),
        ("POST", "/v1/groups/readers/reset?dry_run=true", json!({"to": "latest"}), ("Read", "Group", "readers")),
        ("GET", "/v1/groups/readers/config", none.clone(), ("DescribeConfigs", "Group", "readers")),
        (
            "PATCH",
            "/v1/groups/readers/config?dry_run=true",
            json!({"set": {"consumer.session.timeout.ms": "50000"}}),
            ("AlterConfigs", "Group", "readers"),
        ),
        (
            "PUT",
            "/v1/filters/readers?dry_run=true",
            json!({"expression": "key = 'a'"}),
            ("AlterConfigs", "Group", "readers"),
        ),
        ("DELETE", "/v1/queues/%2F/work?dry_run=true", none.clone(), ("Delete", "Topic", "work")),
        ("POST", "/v1/queues/%2F/work/purge?dry_run=true", none.clone(), ("Read", "Group", "amqp.queue")),
        ("DELETE", "/v1/exchanges/%2F/events", none, ("Delete", "Topic", "events")),
    ];
    for (method, path, body, (operation, resource, name)) in cases {
        let refused = ask_as(&process, "bob", method, path, &body);
        assert_eq!(
            (refused.status, &refused.body["error"]),
            (403, &json!("not_allowed")),
            "{method} {path}: {}",
            refused.body
        );
        let needed = entry(operation, resource, name);
        make(&process, "POST", "/v1/acls", &needed);
        let done = ask_as(&process, "bob", method, path, &body);
        assert!((200..300).contains(&done.status), "{method} {path} with {needed}: {}", done.body);
        make(&process, "POST", "/v1/acls/delete", &needed);
    }
    assert_eq!(
        ask_as(&process, "bob", "GET", "/v1/topics/orders", &Value::Null).body["config"],
        json!([]),
        "Read does not show settings"
    );
    make(&process, "POST", "/v1/acls", &entry("DescribeConfigs", "Topic", "orders"));
    let config = ask_as(&process, "bob", "GET", "/v1/topics/orders", &Value::Null).body["config"].clone();
    assert!(config.as_array().is_some_and(|all| !all.is_empty()), "{config}");
}

#[test]
fn who_sees_a_group_sees_of_it_what_he_may_see() {
    let (_folder, process) = with_bob(".*", &["--set", AUTHORIZER]);
    for topic in ["orders", "secret"] {
        make(&process, "POST", "/v1/topics", &json!({"name": topic, "partitions": 1}));
        make(&process, "POST", &format!("/v1/topics/{topic}/records"), &json!({"value": "v"}));
        commit(&process, "readers", topic);
    }
    make(&process, "PUT", "/v1/filters/readers", &json!({"expression": "key = 'hidden'"}));
    let get = |path: &str| ask_as(&process, "bob", "GET", path, &Value::Null);
    assert_eq!((get("/v1/groups/readers").status, &get("/v1/groups").body["total"]), (404, &json!(0)));
    make(&process, "POST", "/v1/acls", &entry("Describe", "Topic", "readers"));
    assert_eq!(get("/v1/groups/readers").status, 404, "that is about a topic");
    assert_eq!(get("/v1/live?node=false&group=readers").status, 404);
    for needed in
        [entry("Read", "Group", "readers"), entry("Delete", "Group", "readers"), entry("Read", "Topic", "orders")]
    {
        make(&process, "POST", "/v1/acls", &needed);
    }
    let (one, list) = (get("/v1/groups/readers").body, get("/v1/groups").body);
    for found in [&one, &list["items"][0]] {
        assert_eq!(
            (&found["topics"], &found["lag"], &found["filter"]),
            (&json!(1), &json!(1), &Value::Null),
            "{found}"
        );
        assert!(!found.to_string().contains("secret"), "{found}");
    }
    assert_eq!(one["offsets"].as_array().map(Vec::len), Some(1), "{one}");
    assert_eq!(get("/v1/filters").body["total"], 0);
    assert_eq!(get("/v1/groups/readers/config").status, 403);
    let reset = ask_as(&process, "bob", "POST", "/v1/groups/readers/reset?dry_run=true", &json!({"to": "latest"}));
    assert!(reset.status == 403 && !reset.body.to_string().contains("secret"), "{}", reset.body);
    let only = ask_as(
        &process,
        "bob",
        "POST",
        "/v1/groups/readers/reset?dry_run=true",
        &json!({"to": "latest", "topics": ["orders"]}),
    );
    assert_eq!(only.body["offsets"][0]["to"], 1, "{}", only.body);
    let forget = |topic: &str| {
        ask_as(&process, "bob", "DELETE", &format!("/v1/groups/readers/offsets?topic={topic}"), &Value::Null).status
    };
    assert_eq!((forget("secret"), forget("orders")), (403, 204));
    let all = ask_as(&process, "root", "GET", "/v1/groups/readers", &Value::Null).body;
    assert_eq!((&all["offsets"][0]["topic"], &all["filter"]), (&json!("secret"), &json!("key = 'hidden'")), "{all}");
}

#[test]
fn settings_of_a_group_are_for_those_who_see_it() {
    let (_folder, process) = with_bob("^shop", &[]);
    for group in ["readers", "shop-readers"] {
        make(&process, "PUT", &format!("/v1/filters/{group}"), &json!({"expression": "key = 'a'"}));
    }
    let get = |path: &str| ask_as(&process, "bob", "GET", path, &Value::Null);
    assert_eq!(get("/v1/groups/readers/config").status, 403);
    assert!(get("/v1/groups/shop-readers/config").body.to_string().contains("key = 'a'"));
    assert_eq!(get("/v1/filters").body["total"], 1);
    assert_eq!(ask_as(&process, "bob", "DELETE", "/v1/filters/readers", &Value::Null).status, 403);
}

#[test]
fn a_topic_that_is_a_queue_belongs_to_the_virtual_host_of_the_queue() {
    let (_folder, process) = with_bob(".*", &[]);
    make(&process, "PUT", "/v1/vhosts/other", &json!({}));
    make(&process, "PUT", "/v1/queues/other/pay", &json!({}));
    make(&process, "PUT", "/v1/queues/%2F/a%20b", &json!({}));
    make(&process, "POST", "/v1/topics/other~pay/records", &json!({"value": "secret"}));
    let none = Value::Null;
    let requests = [
        ("GET", "/v1/topics/other~pay", none.clone()),
        ("GET", "/v1/topics/other~pay/records", none.clone()),
        ("POST", "/v1/topics/other~pay/records", json!({"value": "forged"})),
        ("PATCH", "/v1/topics/other~pay/config", json!({"set": {"mainstem.durability": "memory"}})),
        ("POST", "/v1/topics/other~pay/truncate", json!({"partitions": [{"partition": 0, "before": -1}]})),
        ("GET", "/v1/live?node=false&topic=other~pay", none.clone()),
        ("DELETE", "/v1/topics/other~pay", none.clone()),
    ];
    for (method, path, body) in &requests {
        let refused = ask_as(&process, "bob", method, path, body);
        assert_eq!(refused.status, 404, "{method} {path}: {}", refused.body);
    }
    let list = ask_as(&process, "bob", "GET", "/v1/topics?internal=true", &none).body.to_string();
    assert!(list.contains("a~20b") && !list.contains("other"), "{list}");
    let taken = ask_as(&process, "bob", "POST", "/v1/topics", &json!({"name": "other~new"}));
    assert_eq!(taken.status, 403, "it would be a queue of another virtual host: {}", taken.body);
    assert_eq!(ask_as(&process, "bob", "GET", "/v1/topics/a~20b", &none).status, 200);
    let messages = make(&process, "GET", "/v1/topics/other~pay/records", &none).body.to_string();
    assert!(messages.contains("secret") && !messages.contains("forged"), "{messages}");
    // What is refused to nobody who has permissions there.
    make(&process, "PUT", "/v1/users/bob/permissions/other", &json!({"configure": "", "write": "", "read": "^pay$"}));
    // What is live has no end.
    let once = requests.iter().filter(|(_, path, _)| !path.starts_with("/v1/live"));
    let statuses: Vec<u16> =
        once.map(|(method, path, body)| ask_as(&process, "bob", method, path, body).status).collect();
    assert_eq!(statuses, [200, 200, 403, 403, 403, 403]);
    // What holds for a group that is all queues' is an administrator's.
    let rules = json!({"set": {"share.delivery.count.limit": "5"}});
    for (method, body) in [("GET", &none), ("PATCH", &rules)] {
        assert_eq!(ask_as(&process, "bob", method, "/v1/groups/amqp.queue/config", body).status, 403, "{method}");
    }
}

#[test]
fn who_names_a_topic_for_dead_letters_may_write_it_or_create_it() {
    let (_folder, process) = with_bob(".*", &["--set", AUTHORIZER]);
    make(&process, "POST", "/v1/topics", &json!({"name": "there", "partitions": 1}));
    make(&process, "POST", "/v1/acls", &entry("AlterConfigs", "Group", "g"));
    let name = |topic: &str| {
        ask_as(
            &process,
            "bob",
            "PATCH",
            "/v1/groups/g/config",
            &json!({"set": {"mainstem.share.dead.letter.topic": topic}}),
        )
        .status
    };
    let allow =
        |operation: &str, topic: &str| drop(make(&process, "POST", "/v1/acls", &entry(operation, "Topic", topic)));
    allow("Create", "there");
    assert_eq!(name("there"), 403);
    allow("Write", "there");
    assert_eq!(name("there"), 200);
    allow("Write", "missing");
    assert_eq!(name("missing"), 403);
    allow("Create", "missing");
    assert_eq!((name("missing"), name("")), (200, 200));
}

/// As by Kafka's DeleteRecords: who may write records may not delete them, and who may delete topics of the cluster may not empty one that stays.
#[test]
fn records_are_deleted_by_those_who_may_configure_their_topic() {
    let truncate = |process: &Process| {
        let body = json!({"partitions": [{"partition": 0, "before": -1}]});
        ask_as(process, "bob", "POST", "/v1/topics/orders/truncate?dry_run=true", &body).status
    };
    let allow = |process: &Process, configure: &str, write: &str| {
        make(
            process,
            "PUT",
            "/v1/users/bob/permissions/%2F",
            &json!({"configure": configure, "write": write, "read": ".*"}),
        );
    };
    let (_folder, process) = with_bob(".*", &[]);
    make(&process, "POST", "/v1/topics", &json!({"name": "orders", "partitions": 1}));
    allow(&process, "", ".*");
    assert_eq!(truncate(&process), 403);
    allow(&process, "^orders$", "");
    assert_eq!(truncate(&process), 200);
    let (_folder, process) = with_bob(".*", &["--set", AUTHORIZER]);
    make(&process, "POST", "/v1/topics", &json!({"name": "orders", "partitions": 1}));
    for needed in [entry("Describe", "Topic", "orders"), entry("Delete", "Cluster", "kafka-cluster")] {
        make(&process, "POST", "/v1/acls", &needed);
    }
    assert_eq!(truncate(&process), 403);
    make(&process, "POST", "/v1/acls", &entry("Delete", "Topic", "orders"));
    assert_eq!(truncate(&process), 200);
}

/// A stream goes whatever is in it.
#[test]
fn what_would_come_of_a_deletion_is_what_comes_of_it() {
    let (_folder, process) = with_bob(".*", &[]);
    for (name, kind, expected) in [("s", "stream", 204), ("c", "classic", 409)] {
        make(&process, "PUT", &format!("/v1/queues/%2F/{name}"), &json!({"type": kind}));
        make(&process, "POST", &format!("/v1/topics/{name}/records"), &json!({"value": "v"}));
        let path = format!("/v1/queues/%2F/{name}?if_empty=true");
        let statuses = [format!("{path}&dry_run=true"), path]
            .map(|path| ask_as(&process, "root", "DELETE", &path, &Value::Null).status);
        assert_eq!(statuses, [expected; 2], "{kind}");
    }
}

#[test]
fn who_sees_all_virtual_hosts_makes_policies_where_he_has_permissions() {
    let (_folder, process) = with_bob(".*", &[]);
    make(&process, "PUT", "/v1/users/bob", &json!({"password": "bob", "tags": ["policymaker", "monitoring"]}));
    make(&process, "PUT", "/v1/vhosts/other", &json!({}));
    let policy = json!({"pattern": "^q", "definition": {"max-length": 9}});
    let status = |method: &str, path: &str, body: &Value| ask_as(&process, "bob", method, path, body).status;
    assert_eq!(status("PUT", "/api/policies/other/short", &policy), 401);
    assert_eq!(status("GET", "/api/policies/other", &Value::Null), 200);
    assert_eq!(status("PUT", "/api/policies/%2F/short", &policy), 201);
    assert_eq!(status("DELETE", "/api/policies/%2F/short", &Value::Null), 204);
    make(&process, "PUT", "/api/policies/other/short", &policy);
    assert_eq!(status("DELETE", "/api/policies/other/short", &Value::Null), 401);
}

/// As RabbitMQ 4.3.6 does it.
#[test]
fn a_single_policy_is_for_policymakers_and_one_of_operators_for_administrators() {
    let (_folder, process) = with_bob(".*", &[]);
    let policy = json!({"pattern": "^q", "definition": {"max-length": 9}});
    make(&process, "PUT", "/api/policies/%2F/short", &policy);
    make(&process, "PUT", "/api/operator-policies/%2F/short", &policy);
    make(&process, "PUT", "/api/global-parameters/kept", &json!({"value": 1}));
    let paths = [
        "policies/%2F",
        "policies/%2F/short",
        "parameters/operator_policy/%2F/short",
        "global-parameters/kept",
        "operator-policies/%2F",
        "operator-policies/%2F/short",
        "vhosts/%2F",
        "feature-flags",
    ];
    for (tag, statuses) in [
        ("management", [200, 401, 401, 401, 200, 401, 401, 200]),
        ("monitoring", [200, 401, 401, 401, 200, 401, 401, 200]),
        ("policymaker", [200, 200, 200, 200, 200, 401, 401, 200]),
        ("administrator", [200; 8]),
    ] {
        make(&process, "PUT", "/v1/users/bob", &json!({"tags": [tag]}));
        let found = paths.map(|path| ask_as(&process, "bob", "GET", &format!("/api/{path}"), &Value::Null).status);
        assert_eq!(found, statuses, "{tag}");
    }
}

/// Two changes, sent at the same moment.
fn at_once(process: &Process, changes: [(&str, &str, &str, Value); 2]) -> [Answer; 2] {
    let start = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let sent = changes.map(|(user, method, path, body)| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                ask_as(process, user, method, path, &body)
            })
        });
        sent.map(|one| one.join().expect("an answer"))
    })
}

#[test]
fn changes_at_once_are_both_made() {
    let (_folder, process) = with_bob(".*", &[]);
    make(&process, "POST", "/v1/topics", &json!({"name": "t", "partitions": 1}));
    let of_group = "/v1/groups/g/config";
    for round in 0..20 {
        let value = (50_000 + round).to_string();
        let set = |name: &str| json!({"set": {name: value}});
        let pairs = [
            [
                ("root", "PATCH", "/v1/topics/t/config", set("retention.ms")),
                ("bob", "PATCH", "/v1/topics/t/config", set("max.message.bytes")),
            ],
            [
                ("root", "PATCH", of_group, set("consumer.session.timeout.ms")),
                ("bob", "PUT", "/v1/filters/g", json!({"expression": format!("key = '{value}'")})),
            ],
        ];
        for pair in pairs {
            for answer in at_once(&process, pair) {
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
        }
        let own = |found: &Value, name: &str| {
            let all = found["config"].as_array().expect("a list");
            all.iter().find(|one| one["name"] == name).expect("there is one")["value"]
                .as_str()
                .expect("a text")
                .to_owned()
        };
        let topic = make(&process, "GET", "/v1/topics/t", &Value::Null).body;
        assert_eq!(
            [own(&topic, "retention.ms"), own(&topic, "max.message.bytes")],
            [value.clone(), value.clone()],
            "round {round}"
        );
        let group = make(&process, "GET", of_group, &Value::Null).body;
        let wanted = [("consumer.session.timeout.ms", value.clone()), ("mainstem.filter", format!("key = '{value}'"))];
        wanted.iter().for_each(|(name, value)| assert_eq!(own(&group, name), *value, "round {round}"));
    }
}

#[test]
fn of_two_administrators_who_go_at_once_one_stays() {
    let (_folder, process) = with_bob(".*", &[]);
    // As long as there is another user: the last one may go.
    make(&process, "PUT", "/v1/users/carol", &json!({"password": "carol"}));
    for round in 0..20 {
        make(&process, "PUT", "/v1/users/bob", &json!({"tags": ["administrator"]}));
        let pair = if round % 2 == 0 {
            [
                ("root", "PUT", "/v1/users/root", json!({"tags": []})),
                ("bob", "PUT", "/v1/users/bob", json!({"tags": []})),
            ]
        } else {
            [("root", "DELETE", "/v1/users/root", Value::Null), ("bob", "DELETE", "/v1/users/bob", Value::Null)]
        };
        let [of_root, of_bob] = at_once(&process, pair).map(|answer| answer.status);
        let (root_goes, bob_goes) = ((200..300).contains(&of_root), (200..300).contains(&of_bob));
        assert!(root_goes != bob_goes, "round {round}: root {of_root}, bob {of_bob}");
        if root_goes {
            let back = ask_as(
                &process,
                "bob",
                "PUT",
                "/v1/users/root",
                &json!({"password": "root", "tags": ["administrator"]}),
            );
            assert!(back.status < 300, "{}", back.body);
        } else {
            make(&process, "PUT", "/v1/users/bob", &json!({"password": "bob"}));
        }
    }
}

#[test]
fn the_node_is_for_those_who_look_after_it() {
    let (folder, process) = with_bob(".*", &[]);
    let of_node = ["totals", "rates", "memory", "disk", "journals", "listeners"];
    let [for_root, for_bob] =
        ["root", "bob"].map(|user| ask_as(&process, user, "GET", "/v1/overview", &Value::Null).body);
    for name in of_node {
        assert!(!for_root[name].is_null() && for_bob.get(name) == Some(&Value::Null), "{name}: {for_bob}");
    }
    assert!(for_bob["counts"].is_object() && for_bob["warnings"].is_array(), "{for_bob}");
    assert!(!for_bob.to_string().contains(&folder.path().display().to_string()), "{for_bob}");
    make(&process, "PUT", "/v1/users/bob", &json!({"tags": ["monitoring"]}));
    assert!(ask_as(&process, "bob", "GET", "/v1/overview", &Value::Null).body["disk"]["folder"].is_string());
}

#[test]
fn messages_are_passed_on_only_where_who_asks_may_send_them() {
    let (_folder, process) = with_bob(".*", &[]);
    make(
        &process,
        "PUT",
        "/v1/users/bob/permissions/%2F",
        &json!({"configure": "^bob", "write": "^bob", "read": ".*"}),
    );
    for exchange in ["amq.topic", "bob-t"] {
        make(
            &process,
            "PUT",
            "/api/topic-permissions/%2F/bob",
            &json!({"exchange": exchange, "write": "^a", "read": "^a"}),
        );
    }
    let publish = "/api/exchanges/%2F/bob-t/publish";
    let message = |key: &str, more: &str| json!({"routing_key": key, "payload": "", "payload_encoding": "string", "properties": {"headers": {"CC": [more]}}});
    let dead_letters = |to: &str| json!({"arguments": {"x-dead-letter-exchange": to}});
    let alternate = |to: &str| json!({"type": "fanout", "arguments": {"alternate-exchange": to}});
    let (of_v1, of_api) = ("/v1/bindings/%2F", "/api/bindings/%2F/e/amq.topic/q/bob-q");
    let bound = |key: &str| json!({"source": "amq.topic", "destination": "bob-q", "routing_key": key});
    let keyed = |key: &str| json!({"routing_key": key});
    let (by_v1, by_default) = ("/v1/exchanges/%2F/bob-t/publish", "/v1/exchanges/%2F/amq.default/publish");
    let posted = |key: &str, more: &str| json!({"routing_key": key, "headers": {"CC": [more]}});
    let claim = |name: &str| json!({"routing_key": "a", "payload": "", "payload_encoding": "string", "properties": {"user_id": name}});
    let claimed = |name: &str| json!({"routing_key": "a", "properties": {"user_id": name}});
    let cases = [
        ("PUT", "/v1/queues/%2F/bob-q", dead_letters("amq.fanout"), 403),
        ("PUT", "/v1/queues/%2F/bob-q", dead_letters("bob-x"), 201),
        ("PUT", "/api/queues/%2F/bob-r", dead_letters("amq.fanout"), 401),
        ("PUT", "/api/queues/%2F/bob-r", dead_letters("bob-x"), 201),
        ("PUT", "/v1/exchanges/%2F/bob-x", alternate("amq.fanout"), 403),
        ("PUT", "/v1/exchanges/%2F/bob-x", alternate("bob-y"), 201),
        ("PUT", "/api/exchanges/%2F/bob-y", alternate(""), 401),
        ("PUT", "/api/exchanges/%2F/bob-y", alternate("bob-x"), 201),
        ("POST", of_v1, bound("b.c"), 403),
        ("POST", of_v1, bound("a.c"), 201),
        ("POST", of_api, keyed("b.c"), 401),
        ("POST", of_api, keyed("a.d"), 201),
        ("PUT", "/v1/exchanges/%2F/bob-t", json!({"type": "topic"}), 201),
        ("POST", publish, message("b", "a"), 401),
        ("POST", publish, message("a", "b"), 401),
        ("POST", publish, message("a", "a"), 200),
        ("POST", by_v1, posted("b", "a"), 403),
        ("POST", by_v1, posted("a", "b"), 403),
        ("POST", by_v1, posted("a", "a"), 200),
        ("POST", publish, claim("anna"), 400),
        ("POST", publish, claim("bob"), 200),
        ("POST", by_v1, claimed("anna"), 400),
        ("POST", by_v1, claimed("bob"), 200),
        ("POST", by_default, posted("bob-q", "bob-q"), 403),
        ("POST", "/v1/exchanges/%2F/amq.topic/publish", posted("a", "a"), 403),
        ("POST", "/v1/bindings/%2F/delete", bound("b.c"), 403),
        ("POST", "/v1/bindings/%2F/delete", bound("a.c"), 204),
    ];
    for (method, path, body, status) in cases {
        let answer = ask_as(&process, "bob", method, path, &body);
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.body);
    }
}

/// A body may take its time, and who asks may have gone or have lost a right meanwhile.
#[test]
fn rights_are_asked_again_when_a_body_has_come() {
    let (_folder, process) = with_bob(".*", &[]);
    let body = json!({"password": "secret", "tags": "administrator"}).to_string();
    let listed = json!({"password": "secret", "tags": ["administrator"]}).to_string();
    for (path, body) in [("/api/users/dave", &body), ("/v1/users/dave", &listed)] {
        for (method, change) in [("PUT", json!({"tags": ["monitoring"]})), ("DELETE", Value::Null)] {
            make(&process, "PUT", "/v1/users/carol", &json!({"password": "carol", "tags": ["administrator"]}));
            let mut socket = TcpStream::connect(process.admin).expect("the port is open");
            let login = STANDARD.encode("carol:carol");
            let length = body.len();
            write!(socket, "PUT {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nauthorization: Basic {login}\r\nexpect: 100-continue\r\n\r\n")
                .expect("it is read");
            let mut before = [0; 25];
            socket.read_exact(&mut before).expect("it is allowed, and the body is waited for");
            assert!(before.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&before));
            make(&process, method, "/v1/users/carol", &change);
            socket.write_all(body.as_bytes()).expect("it is read");
            let mut answer = String::new();
            socket.read_to_string(&mut answer).expect("an answer");
            assert!(
                answer.starts_with("HTTP/1.1 401") || answer.starts_with("HTTP/1.1 403"),
                "{path} after {method}: {answer}"
            );
            assert_eq!(ask_as(&process, "root", "GET", "/v1/users/dave", &Value::Null).status, 404);
        }
    }
}

/// As over AMQP: who may read a stream does not empty it, and messages are not taken from it one by one.
#[test]
fn a_stream_is_not_emptied_by_those_who_read_it() {
    let (_folder, process) = with_bob(".*", &[]);
    make(&process, "PUT", "/v1/queues/%2F/st", &json!({"type": "stream"}));
    let purged = ask_as(&process, "bob", "DELETE", "/api/queues/%2F/st/contents", &Value::Null);
    assert!(purged.status == 400 && purged.body.to_string().contains("540 NOT_IMPLEMENTED"), "{}", purged.body);
    let got = ask_as(
        &process,
        "bob",
        "POST",
        "/api/queues/%2F/st/get",
        &json!({"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}),
    );
    assert!(got.status == 400 && got.body.to_string().contains("540 NOT_IMPLEMENTED"), "{}", got.body);
}

/// What is sent on a stream of events of bob's, line by line, until it ends.
fn events(process: &Process, path: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(process.admin).expect("the port is open");
    // Longer than anything here takes, shorter than a stream lasts.
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let login = STANDARD.encode("bob:bob");
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Basic {login}\r\n\r\n"
    )
    .expect("it is read");
    BufReader::new(socket)
}

/// The next line that has this in it.
fn line_with(events: &mut BufReader<TcpStream>, text: &str) -> String {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(events.read_line(&mut line).expect("it comes") > 0, "the stream has ended without {text}");
    }
    line
}

#[test]
fn a_stream_of_events_tells_what_its_user_may_see_and_ends_with_him() {
    let (_folder, process) = with_bob(".*", &["--set", AUTHORIZER]);
    for topic in ["orders", "secret"] {
        make(&process, "POST", "/v1/topics", &json!({"name": topic, "partitions": 1}));
        make(&process, "POST", &format!("/v1/topics/{topic}/records"), &json!({"value": "v"}));
        commit(&process, "readers", topic);
    }
    for needed in
        [entry("Describe", "Group", "readers"), entry("Read", "Topic", "orders"), entry("Describe", "Topic", "secret")]
    {
        make(&process, "POST", "/v1/acls", &needed);
    }
    let mut stream = events(&process, "/v1/live?node=false&group=readers&topic=secret&topic=orders");
    assert!(line_with(&mut stream, "\"lag\"").contains("\"lag\":2"), "of both topics");
    // What he may not see any more is left out of what he is told.
    make(&process, "POST", "/v1/acls/delete", &entry("Describe", "Topic", "secret"));
    while !line_with(&mut stream, "\"lag\"").contains("\"lag\":1") {}
    assert!(!line_with(&mut stream, "\"in_records\"").contains("secret"));
    make(&process, "DELETE", "/v1/users/bob", &Value::Null);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("it ends");
}

#[test]
fn the_overview_counts_what_who_asks_may_see() {
    let (_folder, process) = with_bob("^shop", &[]);
    make(&process, "PUT", "/v1/vhosts/other", &json!({}));
    make(&process, "PUT", "/v1/queues/other/pay", &json!({}));
    make(&process, "PUT", "/v1/queues/%2F/shop-q", &json!({}));
    for topic in ["orders", "shop-orders"] {
        make(&process, "POST", "/v1/topics", &json!({"name": topic, "partitions": 2}));
        commit(&process, &format!("{topic}-readers"), topic);
    }
    let counts = |user: &str| {
        let found = ask_as(&process, user, "GET", "/v1/overview", &Value::Null).body["counts"].clone();
        ["topics", "partitions", "groups", "vhosts", "queues", "users"]
            .map(|name| found[name].as_u64().expect("a number"))
    };
    assert_eq!((counts("root"), counts("bob")), ([2, 4, 2, 2, 2, 2], [1, 2, 1, 1, 1, 1]));
}

/// With entries only: RabbitMQ asks for no permissions.
#[test]
fn a_policy_takes_entries_for_all_that_its_pattern_matches() {
    let (_folder, process) = with_bob(".*", &["--set", AUTHORIZER]);
    make(&process, "PUT", "/v1/users/bob", &json!({"tags": ["policymaker"]}));
    make(&process, "PUT", "/v1/queues/%2F/secret", &json!({}));
    let put = |pattern: &str, definition: Value| {
        ask_as(&process, "bob", "PUT", "/api/policies/%2F/p", &json!({"pattern": pattern, "definition": definition}))
            .status
    };
    let (short, passing) = (|| json!({"max-length": 1}), || json!({"dead-letter-exchange": "amq.fanout"}));
    assert_eq!(put("^secret$", short()), 401);
    make(&process, "POST", "/v1/acls", &entry("Create", "Topic", "secret"));
    assert_eq!((put("^secret", short()), put("^secret$", short()), put("^secret$", passing())), (401, 201, 401));
    for needed in [entry("Read", "Topic", "secret"), entry("Write", "Topic", "amq.fanout")] {
        make(&process, "POST", "/v1/acls", &needed);
    }
    assert_eq!(put("^secret$", passing()), 204);
    make(&process, "POST", "/v1/acls/delete", &entry("Create", "Topic", "secret"));
    assert_eq!(ask_as(&process, "bob", "DELETE", "/api/policies/%2F/p", &Value::Null).status, 401);
    assert_eq!(ask_as(&process, "root", "DELETE", "/api/policies/%2F/p", &Value::Null).status, 204);
}
