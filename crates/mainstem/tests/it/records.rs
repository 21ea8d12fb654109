//! Records by hand, and live values, over a running broker: every record is found once whatever the order and the size of pages, filters find
//! what they are to find, and what a topic does not allow is refused where it is wrong.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::administration::{ask, change, commit_partitions, get};
use crate::process::Process;

const RECORDS: usize = 120;

fn with_topic(partitions: u32, config: Value) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]);
    let made = change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": partitions, "config": config}));
    assert_eq!(made.status, 201, "{}", made.body);
    (folder, process)
}

fn publish(process: &Process, body: Value) -> Value {
    let answer = change(process, "POST", "/v1/topics/t/records", body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.body
}

/// All pages of a search, each record as partition and offset.
fn pages(process: &Process, query: &str) -> Vec<Vec<(u64, u64)>> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(process, &format!("/v1/topics/t/records?{query}{cursor}"));
        let place = |record: &Value| {
            (record["partition"].as_u64().expect("a number"), record["offset"].as_u64().expect("a number"))
        };
        all.push(page["records"].as_array().expect("a list").iter().map(place).collect());
        assert!(all.len() < 200, "it comes to an end");
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

#[test]
fn every_record_is_found_once_in_both_orders() {
    let (_folder, process) = with_topic(3, json!({}));
    for number in 0..RECORDS {
        publish(
            &process,
            json!({"key": format!("k{}", number % 10), "value": json!({"n": number}).to_string(), "timestamp": null}),
        );
    }
    for query in
        ["order=newest&limit=7", "order=oldest&limit=7", "order=newest&limit=500", "order=oldest&limit=1", "limit=50"]
    {
        let pages = pages(&process, query);
        let found: Vec<(u64, u64)> = pages.iter().flatten().copied().collect();
        let once: BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), once.len()), (RECORDS, RECORDS), "{query}");
        for partition in 0..3 {
            let mut offsets: Vec<u64> =
                found.iter().filter(|(of, _)| *of == partition).map(|(_, offset)| *offset).collect();
            if !query.contains("oldest") {
                offsets.reverse();
            }
            assert!(offsets.is_sorted(), "{query}: {offsets:?}");
        }
    }
    let json = pages(&process, "json=n%20%3E%3D%20100&limit=3").concat();
    assert_eq!(json.len(), RECORDS - 100);
    let key = pages(&process, "key=k3&limit=5&order=oldest").concat();
    assert_eq!(key.len(), RECORDS / 10);
    let last = key.last().expect("some").1;
    let (partition, from) = (key[0].0, key[4].1);
    let rest = pages(&process, &format!("key=k3&order=oldest&partition={partition}&at_offset={from}")).concat();
    assert_eq!((rest.first(), rest.last()), (Some(&(partition, from)), Some(&(partition, last))));
    assert!(pages(&process, "order=oldest&at_time=99999999999999").concat().is_empty());
    assert_eq!(pages(&process, "order=newest&at_time=99999999999999").concat().len(), RECORDS);
    assert_eq!(pages(&process, "order=oldest&at_time=1").concat().len(), RECORDS);
}

/// Somebody may delete a topic, or a queue, between the look at it and what is done with it: then it is not there, and nothing has failed.
#[test]
fn what_is_deleted_meanwhile_is_not_there() {
    const ROUNDS: usize = 150;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]);
    let things = [("t", "/v1/topics", "/v1/topics/t"), ("q", "/v1/queues/%2F/q", "/v1/queues/%2F/q")];
    for (name, make, thing) in things {
        let (method, body) = if name == "t" { ("POST", json!({"name": "t"})) } else { ("PUT", json!({})) };
        let (over, path) = (AtomicBool::new(false), format!("/v1/topics/{name}/records"));
        let act = |writes: bool| {
            let mut seen = BTreeSet::new();
            while !over.load(Ordering::SeqCst) {
                let answer = if writes {
                    change(&process, "POST", &path, json!({"value": "x"}))
                } else {
                    ask(&process, "GET", &path, &[], "")
                };
                assert_ne!(answer.status, 500, "{} {}", if writes { "POST" } else { "GET" }, answer.body);
                seen.insert(answer.status);
            }
            seen
        };
        let act = &act;
        let seen = std::thread::scope(|scope| {
            let actors = [true, true, false].map(|writes| scope.spawn(move || act(writes)));
            for _ in 0..ROUNDS {
                assert_eq!(change(&process, method, make, body.clone()).status, 201);
                let gone = ask(&process, "DELETE", thing, &[], "");
                assert!((200..300).contains(&gone.status), "{}", gone.body);
            }
            over.store(true, Ordering::SeqCst);
            actors.into_iter().flat_map(|actor| actor.join().expect("it ends")).collect::<BTreeSet<u16>>()
        });
        // 409: records went while they were looked for.
        assert!(seen.is_subset(&[200, 201, 404, 409].into()), "{name}: {seen:?}");
        assert!(seen.contains(&404), "{name}: {seen:?}");
    }
}

#[test]
fn batches_that_unpack_to_much_end_a_page_and_nothing_is_missed() {
    let (_folder, process) = with_topic(1, json!({"compression.type": "zstd"}));
    let value = "a".repeat(900_000);
    for number in 0..60 {
        publish(&process, json!({"key": number.to_string(), "value": value}));
    }
    for order in ["oldest", "newest"] {
        let pages = pages(&process, &format!("order={order}&limit=500&truncate=16&time_ms=5000"));
        let mut offsets: Vec<u64> = pages.iter().flatten().map(|(_, offset)| *offset).collect();
        if order == "newest" {
            offsets.reverse();
        }
        assert!(offsets.iter().copied().eq(0..60), "{order}: {offsets:?}");
    }
    // A place that cannot be is no defect.
    let none = get(&process, &format!("/v1/topics/t/records?order=oldest&at_offset={}", u64::MAX));
    assert_eq!(none["records"], json!([]));
    let all = get(&process, &format!("/v1/topics/t/records?order=newest&limit=500&truncate=16&at_offset={}", u64::MAX));
    assert_eq!(all["records"][0]["offset"], json!(59));
}

#[test]
fn what_is_published_is_what_is_found() {
    let (_folder, process) = with_topic(2, json!({"compression.type": "zstd"}));
    let headers = json!([{"name": "trace", "value": "7"}, {"name": "none", "value": null}]);
    let at = publish(
        &process,
        json!({"partition": 1, "key": "/wA=", "key_encoding": "base64", "value": "text", "headers": headers, "timestamp": 1_700_000_000_000_i64}),
    );
    assert_eq!(
        (&at["partition"], &at["offset"], &at["timestamp"]),
        (&json!(1), &json!(0), &json!(1_700_000_000_000_i64))
    );
    publish(&process, json!({"partition": 1, "key": "gone"}));
    let found = get(&process, "/v1/topics/t/records?order=oldest&partition=1&truncate=16");
    let field = |text: Option<&str>, base64: Option<&str>, bytes: u64| json!({"text": text, "base64": base64, "bytes": bytes, "truncated": false});
    assert_eq!(
        found["records"][0],
        json!({
            "partition": 1, "offset": 0, "timestamp": 1_700_000_000_000_i64, "bytes": 16,
            "key": field(None, Some("/wA="), 2), "value": field(Some("text"), None, 4),
            "headers": [{"name": "trace", "value": field(Some("7"), None, 1)}, {"name": "none", "value": null}], "headers_left_out": 0, "amqp": null,
        })
    );
    assert_eq!(found["records"][1]["value"], Value::Null);
    assert_eq!(pages(&process, "header=trace%3D7").concat(), [(1, 0)]);
    assert_eq!(pages(&process, "header=none").concat(), [(1, 0)]);
    assert_eq!(pages(&process, "text=ex").concat(), [(1, 0)]);
    assert_eq!(pages(&process, "key_contains=on").concat(), [(1, 1)]);
}

#[test]
fn what_cannot_be_is_refused_by_its_field() {
    let (_folder, process) = with_topic(
        2,
        json!({"cleanup.policy": "compact", "message.timestamp.before.max.ms": "1000", "max.message.bytes": "1000"}),
    );
    let long = "x".repeat(2000);
    for (body, field) in [
        (json!({"partition": 2, "key": "k"}), "partition"),
        (json!({"value": "v"}), "key"),
        (json!({"key": "k", "timestamp": 5}), "timestamp"),
        (json!({"key": "k", "value": long}), "value"),
        (json!({"key": "k", "value": "!", "value_encoding": "base64"}), "value"),
        (json!({"key": "k", "key_encoding": "hex"}), "key_encoding"),
        (json!({"key": "k", "headers": [{"value": "v"}]}), "headers.0.name"),
        (json!({"key": 7}), "key"),
        (json!({"other": 1}), "other"),
    ] {
        let answer = change(&process, "POST", "/v1/topics/t/records", body.clone());
        assert_eq!((answer.status, answer.body["field"].as_str()), (400, Some(field)), "{body}: {}", answer.body);
    }
    let (long, long_json) = (format!("text={}", "x".repeat(4097)), format!("json=a~{}", "x".repeat(4096)));
    for (query, field) in [
        (&*long, "text"),
        (&*long_json, "json"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("order=up", "order"),
        ("partition=2", "partition"),
        ("partition=x", "partition"),
        ("json=a..b", "json"),
        ("cursor=x", "cursor"),
        ("cursor=oldest.0:1-2", "cursor"),
        ("at_time=x", "at_time"),
        ("colour=red", "colour"),
        ("truncate=1", "truncate"),
    ] {
        let answer = ask(&process, "GET", &format!("/v1/topics/t/records?{query}"), &[], "");
        assert_eq!((answer.status, answer.body["field"].as_str()), (400, Some(field)), "{query}: {}", answer.body);
    }
    assert_eq!(ask(&process, "GET", "/v1/topics/none/records", &[], "").status, 404);
}

#[test]
fn live_values_come_each_second() {
    let (_folder, process) = with_topic(1, json!({}));
    let mut socket = TcpStream::connect(process.admin).expect("the port is open");
    write!(socket, "GET /v1/live?topic=t&group=g HTTP/1.0\r\nhost: localhost\r\n\r\n").expect("it is read");
    let mut events = Vec::new();
    let mut name = String::new();
    for line in BufReader::new(socket).lines().map(|line| line.expect("text")) {
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            events.push((name.clone(), serde_json::from_str::<Value>(data).expect("JSON")));
        }
        if events.iter().filter(|(name, _)| name == "node").count() == 2 {
            break;
        }
    }
    assert_eq!(events[0].0, "history");
    let node = &events.iter().rfind(|(name, _)| name == "node").expect("one").1;
    for path in ["/at", "/rates/in_bytes", "/memory/resident_bytes", "/connections"] {
        assert!(node.pointer(path).is_some_and(Value::is_number), "{path} of {node}");
    }
    for operation in ["produce", "fetch", "commit"] {
        assert!(node["latency"][operation].as_object().is_some_and(|all| all.len() == 3), "{operation} of {node}");
    }
    assert!(events.iter().any(|(name, data)| name == "topics" && data["topics"]["t"]["in_records"].is_number()));
    assert!(events.iter().any(|(name, data)| name == "groups" && data["groups"]["g"]["lag"] == 0));
    assert_eq!(ask(&process, "GET", "/v1/live?topic=none", &[], "").status, 404);
}

#[test]
fn those_who_watch_large_groups_are_told_and_the_node_answers_others() {
    let (_folder, process) = with_topic(5000, json!({}));
    commit_partitions(&process, "g", "t", 5000);
    let path = format!("/v1/live?{}", vec!["group=g"; 32].join("&"));
    let watch = || {
        let mut socket = TcpStream::connect(process.admin).expect("the port is open");
        write!(socket, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").expect("it is read");
        socket
    };
    let watching: Vec<TcpStream> = (0..40).map(|_| watch()).collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        assert!(process.ask_admin("/health/live").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")));
        std::thread::sleep(Duration::from_millis(20));
    }
    for socket in watching {
        let first =
            BufReader::new(socket).lines().map(|line| line.expect("text")).find(|line| line.contains("\"lag\""));
        assert!(first.is_some_and(|line| line.contains("{\"g\":{\"lag\":0,\"without_offset\":0}}")));
    }
}
