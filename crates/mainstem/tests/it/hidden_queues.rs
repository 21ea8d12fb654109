//! A queue that somebody may not use is for Kafka's requests a topic that is not there, also where they name it beforehand.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::administration::ask;
use crate::process::{PATIENCE, Process, exchange};
use crate::rights::make;

const CONSUMERS: u8 = 68;
const SHARERS: u8 = 76;

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8 + 1);
    out.extend(text.as_bytes());
}

/// ConsumerGroupHeartbeat version 0 or ShareGroupHeartbeat version 1 of a member that joins and names a topic, or goes on.
fn heartbeat(api: u8, group: &str, member: &str, epoch: i32, topic: Option<&str>) -> Vec<u8> {
    let mut request = vec![0, api, 0, u8::from(api == SHARERS), 0, 0, 0, 1, 0xff, 0xff, 0];
    text(&mut request, group);
    text(&mut request, member);
    request.extend(epoch.to_be_bytes());
    match api {
        CONSUMERS => {
            request.extend([0, 0]);
            request.extend((if topic.is_some() { 10_000_i32 } else { -1 }).to_be_bytes());
        }
        _ => request.push(0),
    }
    match topic {
        Some(topic) => {
            request.push(2);
            text(&mut request, topic);
        }
        None => request.push(0),
    }
    if api == CONSUMERS {
        // No assignor; nothing is held.
        request.extend([0, u8::from(topic.is_some())]);
    }
    request.push(0);
    request
}

/// What a heartbeat is told: the member's epoch, and whether it has been assigned something.
fn told(answer: &[u8]) -> (i32, bool) {
    // Correlation id, tags, throttle time, code.
    assert_eq!(answer[9..11], [0, 0], "{answer:?}");
    let mut at = 11;
    for _ in ["message", "member id"] {
        at += usize::from(answer[at]).max(1);
    }
    let epoch = i32::from_be_bytes(answer[at..at + 4].try_into().expect("four bytes"));
    // Behind the interval: is there an assignment, and with how many topics?
    (epoch, answer[at + 8] == 1 && answer[at + 9] > 1)
}

/// A broker with a queue `secret`, and an administrator: Kafka clients, which do not log in, may not use queues.
fn with_queue() -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = [
        "--set",
        "mainstem.password.iterations=1000",
        "--set",
        "group.consumer.assignment.interval.ms=0",
        "--set",
        "group.share.assignment.interval.ms=0",
    ];
    let process = Process::start(&folder.path().join("data"), &flags);
    let first = ask(
        &process,
        "PUT",
        "/v1/users/root",
        &[],
        &json!({"password": "root", "tags": ["administrator"]}).to_string(),
    );
    assert_eq!(first.status, 201, "{}", first.body);
    make(&process, "PUT", "/v1/queues/%2F/secret", &json!({}));
    (folder, process)
}

#[test]
fn members_of_groups_are_told_the_same_of_a_hidden_queue_as_of_none() {
    let (_folder, process) = with_queue();
    let mut socket = process.connect();
    for api in [CONSUMERS, SHARERS] {
        let outcomes = ["secret", "nothing"].map(|topic| {
            let group = format!("{api} {topic}");
            let mut beat = |epoch, topic| {
                told(&exchange(&mut socket, &heartbeat(api, &group, "m", epoch, topic)).expect("an answer"))
            };
            let joined = beat(0, Some(topic));
            (joined, beat(joined.0, None))
        });
        assert_eq!(outcomes[0], outcomes[1], "api {api}");
    }
}

#[test]
fn a_queue_that_becomes_hidden_or_goes_changes_nothing_for_who_names_it() {
    let (_folder, process) = with_queue();
    let mut socket = process.connect();
    for api in [CONSUMERS, SHARERS] {
        let group = format!("{api}");
        let mut beat =
            |epoch, topic| told(&exchange(&mut socket, &heartbeat(api, &group, "m", epoch, topic)).expect("an answer"));
        let (epoch, _) = beat(0, Some("later"));
        make(&process, "PUT", "/v1/queues/%2F/later", &json!({}));
        assert_eq!(beat(epoch, None), (epoch, false), "api {api}");
        make(&process, "DELETE", "/v1/queues/%2F/later", &Value::Null);
        assert_eq!(beat(epoch, None), (epoch, false), "api {api}");
    }
}

#[test]
fn a_name_is_kept_until_its_queue_may_be_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = [
        "--set",
        "mainstem.password.iterations=1000",
        "--set",
        "group.consumer.assignment.interval.ms=0",
        "--set",
        "group.share.assignment.interval.ms=0",
    ];
    let listeners = ["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "sasl.enabled.mechanisms=PLAIN"];
    let flags: Vec<&str> = flags.into_iter().chain(listeners).collect();
    let process = Process::start(&folder.path().join("data"), &flags);
    let first = ask(
        &process,
        "PUT",
        "/v1/users/root",
        &[],
        &json!({"password": "root", "tags": ["administrator"]}).to_string(),
    );
    assert_eq!(first.status, 201, "{}", first.body);
    make(&process, "PUT", "/v1/users/bob", &json!({"password": "bob"}));
    make(&process, "PUT", "/v1/queues/%2F/secret", &json!({}));
    let mut socket = process.connect();
    let plain = |socket: &mut std::net::TcpStream| {
        // SaslHandshake version 1, SaslAuthenticate version 0.
        let handshake = [&[0, 17, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 5][..], b"PLAIN"].concat();
        assert_eq!(exchange(socket, &handshake).expect("an answer")[4..6], [0, 0]);
        let login = [&[0, 36, 0, 0, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 8][..], b"\0bob\0bob"].concat();
        assert_eq!(exchange(socket, &login).expect("an answer")[4..6], [0, 0]);
    };
    plain(&mut socket);
    for api in [CONSUMERS, SHARERS] {
        let group = format!("{api}");
        make(&process, "PUT", "/v1/users/bob/permissions/%2F", &json!({"configure": "", "write": "", "read": ""}));
        let mut beat =
            |epoch, topic| told(&exchange(&mut socket, &heartbeat(api, &group, "m", epoch, topic)).expect("an answer"));
        let (mut epoch, assigned) = beat(0, Some("secret"));
        assert!(!assigned, "api {api}");
        make(
            &process,
            "PUT",
            "/v1/users/bob/permissions/%2F",
            &json!({"configure": "", "write": "", "read": "^secret$"}),
        );
        let until = Instant::now() + PATIENCE;
        loop {
            let (next, assigned) = beat(epoch, None);
            if assigned {
                break;
            }
            epoch = next;
            assert!(Instant::now() < until, "api {api}: it is assigned the queue once it may read it");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
