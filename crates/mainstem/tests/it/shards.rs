//! What a network thread does for one client keeps neither others waiting nor the thread busy. Counted is what comes before what, or processor time, which
//! do not depend on how busy the machine is.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use amqp_wire::{
    EncodedProperties, ShortBytes, ShortStr, Table, basic, channel, exchange, queue, short, write_content,
};
use record::BatchBuilder;
use serde_json::{Value, json};

use crate::administration::{change, get};
use crate::memory::Client;
use crate::process::{PATIENCE, Process, has_come, receive, send};

/// A request without a client id, and without its length.
fn header(api: u8, version: u8) -> Vec<u8> {
    vec![0, api, 0, version, 0, 0, 0, 7, 0xff, 0xff]
}

fn asks(socket: &mut TcpStream, request: &[u8]) -> Vec<u8> {
    crate::process::exchange(socket, request).expect("an answer")
}

fn make_topic(process: &Process, name: &str, partitions: usize) {
    let made = change(process, "POST", "/v1/topics", json!({"name": name, "partitions": partitions}));
    assert_eq!(made.status, 201, "{}", made.body);
}

/// One topic of one letter, and its partition 0.
fn only_partition(topic: u8) -> Vec<u8> {
    vec![0, 0, 0, 1, 0, 1, topic, 0, 0, 0, 1, 0, 0, 0, 0]
}

/// How many records it has.
fn end(socket: &mut TcpStream, topic: u8) -> u64 {
    let answer = asks(socket, &[header(2, 1), vec![0xff; 4], only_partition(topic), vec![0xff; 8]].concat());
    let (_, offset) = answer.split_last_chunk().expect("an offset");
    u64::from_be_bytes(*offset)
}

/// Each message goes to a hundred queues, which look after their lengths: much to be told of with each commit.
fn publish_to_many_queues(process: &Process, ended: &AtomicBool) {
    let mut message = bytes::BytesMut::new();
    let publish = basic::Publish {
        exchange: ShortBytes::new(b"f").expect("short"),
        routing_key: ShortBytes::default(),
        mandatory: false,
        immediate: false,
    };
    write_content(&mut message, 1, &publish, EncodedProperties::trusted(&[0, 0]), b"x", 131_072);
    let messages = message.repeat(500);
    let mut client = Client::open(process);
    client.ask(1, &channel::Open {}, "Channel(OpenOk");
    let socket = client.into_socket();
    socket.set_write_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let mut at = 0;
    while !ended.load(Ordering::Relaxed) {
        at += (&socket).write(&messages[at..]).unwrap_or(0);
        at %= messages.len();
    }
}

#[test]
fn replies_do_not_wait_for_what_is_told_of_logs() {
    const QUEUES: usize = 100;
    /// Of these each takes a turn of the thread.
    const ANSWERS_BEFORE: usize = 10;
    /// The journal's thread may have to wait for a processor in some of the rounds, of which there are as many at least.
    const ROUNDS: usize = 6;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0", "--set", "mainstem.shards=1"]);
    make_topic(&process, "v", 1);
    let mut client = Client::open(&process);
    client.ask(1, &channel::Open {}, "Channel(OpenOk");
    client.ask(
        1,
        &exchange::Declare { exchange: short("f"), kind: short("fanout"), ..exchange::Declare::default() },
        "Exchange(DeclareOk",
    );
    let arguments = Table::build(|fields| fields.put(short("x-max-length"), 10_i32));
    let names: Vec<String> = (0..QUEUES).map(|number| format!("q{number}")).collect();
    for name in &names {
        let name = ShortStr::new(name).expect("a short name");
        client.ask(
            1,
            &queue::Declare { queue: name, arguments: arguments.view(), ..queue::Declare::default() },
            "Queue(DeclareOk",
        );
        client.ask(1, &queue::Bind { queue: name, exchange: short("f"), ..queue::Bind::default() }, "Queue(BindOk");
    }
    let (mut produces, mut looks) = (process.connect(), process.connect());
    let batch = BatchBuilder::default().record(1, None, Some(b"x")).build();
    let length = (batch.len() as u32).to_be_bytes().to_vec();
    let produce =
        [header(0, 7), vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0x75, 0x30], only_partition(b'v'), length, batch.to_vec()]
            .concat();
    let ended = AtomicBool::new(false);
    let before = std::thread::scope(|scope| {
        (0..10).for_each(|_| _ = scope.spawn(|| publish_to_many_queues(&process, &ended)));
        let (began, mut before) = (Instant::now(), Vec::new());
        while before.len() < ROUNDS || began.elapsed() < Duration::from_secs(4) {
            send(&mut produces, &produce);
            let mut answers = 0;
            while !has_come(&produces) {
                if end(&mut looks, b'v') > before.len() as u64 {
                    answers += 1;
                }
            }
            before.push(answers);
            receive(&mut produces).expect("an answer");
        }
        ended.store(true, Ordering::Relaxed);
        before
    });
    let late = before.iter().filter(|answers| **answers > ANSWERS_BEFORE).count();
    assert!(
        late * 2 < before.len(),
        "so many answers to another connection came between it was durable and said: {before:?}"
    );
}

/// A text of the compact kind.
fn text(text: &str) -> Vec<u8> {
    [&[text.len() as u8 + 1][..], text.as_bytes()].concat()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// The id of a topic.
fn id(socket: &mut TcpStream, topic: &str) -> [u8; 16] {
    let answer = asks(socket, &[header(3, 12), vec![0, 2], vec![0; 16], text(topic), vec![0, 0, 0, 0]].concat());
    let at = answer.windows(topic.len() + 1).position(|part| part == text(topic)).expect("its name");
    answer[at + topic.len() + 1..][..16].try_into().expect("sixteen bytes")
}

const MEMBER: &str = "6f1d9f5e-3c1b-4c5e-9a57-0d5b7a1c2e33";

/// Names of topics, each of one letter and of a thousand partitions.
fn names(topics: usize) -> Vec<String> {
    (0..topics).map(|topic| char::from(b'a' + topic as u8).to_string()).collect()
}

/// `MEMBER` joins a share group of its own, and has all partitions of these topics.
fn join_share_group(socket: &mut TcpStream, group: &str, topics: &[String]) {
    let subscribed = [varint(topics.len() + 1), topics.iter().flat_map(|name| text(name)).collect()].concat();
    let (mut epoch, began) = (0_u32, Instant::now());
    loop {
        let answer = asks(
            socket,
            &[
                header(76, 1),
                vec![0],
                text(group),
                text(MEMBER),
                epoch.to_be_bytes().to_vec(),
                vec![0],
                subscribed.clone(),
                vec![0],
            ]
            .concat(),
        );
        // Correlation id, tags, throttle time, then the code; an assignment of all is long.
        assert_eq!(answer[9..11], [0, 0], "{answer:?}");
        if answer.len() > topics.len() * 4000 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "all of them are assigned");
        epoch = 1;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// ShareFetch of the session of `MEMBER`, which does not wait; of epoch 0 it opens one with all partitions of these topics.
fn share_fetch(group: &str, epoch: u32, topics: &[[u8; 16]]) -> Vec<u8> {
    let mut wanted = varint(topics.len() + 1);
    for topic in topics {
        wanted.extend(topic);
        wanted.extend(varint(1001));
        (0..1000_u32).for_each(|partition| {
            wanted.extend(partition.to_be_bytes());
            // No acknowledgements, no tags.
            wanted.extend([1, 0]);
        });
        wanted.push(0);
    }
    let limits = [epoch, 0, 0, 50 << 20, 500, 500].map(u32::to_be_bytes).concat();
    [header(78, 1), vec![0], text(group), text(MEMBER), limits, wanted, vec![1, 0]].concat()
}

/// What the broker takes of the processors until the only member of a share group has a session of all its partitions, of so many topics.
fn opening(process: &Process, socket: &mut TcpStream, topics: usize) -> Duration {
    let (names, group) = (names(topics), format!("group of {topics}"));
    join_share_group(socket, &group, &names);
    let ids: Vec<_> = names.iter().map(|name| id(socket, name)).collect();
    let before = process.processor_time();
    let answer = asks(socket, &share_fetch(&group, 0, &ids));
    assert_eq!(answer[9..11], [0, 0], "{:?}", &answer[..11]);
    process.processor_time() - before
}

#[test]
fn a_share_session_costs_what_its_partitions_do() {
    const FEW: usize = 2;
    const TIMES: usize = 4;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]);
    names(FEW * TIMES).iter().for_each(|name| make_topic(&process, name, 1000));
    let mut socket = process.connect();
    let (few, many) = (opening(&process, &mut socket, FEW), opening(&process, &mut socket, FEW * TIMES));
    assert!(
        many < few * 2 * TIMES as u32 + Duration::from_millis(20),
        "{few:?} for {FEW},000 partitions, {many:?} for {TIMES} times as many"
    );
}

/// Each takes longer than what the thread does before it looks at sockets, and is read when the one before it has been answered.
#[test]
fn requests_behind_one_that_waits_have_others_served_between_them() {
    const TOPICS: usize = 8;
    const REQUESTS: usize = 40;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &["--set", "mainstem.shards=1"]);
    names(TOPICS).iter().for_each(|name| make_topic(&process, name, 1000));
    let (mut greedy, mut other) = (process.connect(), process.connect());
    asks(&mut other, &header(18, 0));
    opening(&process, &mut greedy, TOPICS);
    let together: Vec<u8> = (1..=REQUESTS)
        .map(|epoch| share_fetch(&format!("group of {TOPICS}"), epoch as u32, &[]))
        .flat_map(|one| [&(one.len() as u32).to_be_bytes()[..], &one].concat())
        .collect();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let answered = &answered;
        scope.spawn(move || {
            greedy.write_all(&together).expect("it is taken");
            for _ in 0..REQUESTS {
                assert!(receive(&mut greedy).is_some());
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        while answered.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        asks(&mut other, &header(18, 0));
        let before = answered.load(Ordering::Relaxed);
        assert!(before < REQUESTS / 2, "{before} were answered before");
    });
}

/// It has closed its side behind a request that waits for others, and an administrator closes it.
#[test]
fn a_connection_that_ends_is_not_looked_at_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(
        folder.path(),
        &["--set", "group.initial.rebalance.delay.ms=60000", "--set", "mainstem.shards=1"],
    );
    let mut socket = process.connect();
    let timeouts = [30_000_u32.to_be_bytes(), 60_000_u32.to_be_bytes()].concat();
    let member = b"\0\0\0\x08consumer\0\0\0\x01\0\x05range\0\0\0\0";
    send(&mut socket, &[b"\0\x0b\0\x02\0\0\0\x07\0\x04half\0\x01g".to_vec(), timeouts, member.to_vec()].concat());
    socket.shutdown(Shutdown::Write).expect("a socket");
    let began = Instant::now();
    let connection = loop {
        let found = get(&process, "/v1/connections");
        let found = found["items"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|one| one["client_id"] == "half")
            .map(|one| one["id"].to_string());
        assert!(began.elapsed() < PATIENCE, "it is there");
        if let Some(id) = found {
            break id.trim_matches('"').to_owned();
        }
    };
    // Its end has been read by now.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(change(&process, "DELETE", &format!("/v1/connections/{connection}"), Value::Null).status, 204);
    let before = process.processor_time();
    std::thread::sleep(Duration::from_secs(1));
    let taken = process.processor_time() - before;
    assert!(taken < Duration::from_millis(80), "{taken:?} of a second");
    assert_eq!(socket.read(&mut [0]).expect("the end, before the group has waited for others"), 0);
}
