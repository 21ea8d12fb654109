//! Batches that unpack to much, over a running broker: they hold up nobody else, and take no memory beyond the budget.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use record::{BatchBuilder, Compression};
use serde_json::{Value, json};

use crate::administration::{ask, change, get};
use crate::process::{PATIENCE, Process, exchange, receive, send};

const MESSAGE_TOO_LARGE: i16 = 10;
const INVALID_TIMESTAMP: i16 = 32;

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis() as i64
}

/// A Produce of version 7 to topic `t`.
fn produce(batches: &[(u32, &[u8])]) -> Vec<u8> {
    let mut request = vec![0, 0, 0, 7, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x75, 0x30];
    request.extend([0, 0, 0, 1, 0, 1, b't']);
    request.extend((batches.len() as u32).to_be_bytes());
    for (partition, batch) in batches {
        request.extend(partition.to_be_bytes());
        request.extend((batch.len() as u32).to_be_bytes());
        request.extend(*batch);
    }
    request
}

/// The code of the first partition in an answer to it.
fn code(answer: &[u8]) -> i16 {
    let at = 4 + 4 + 3 + 4 + 4;
    i16::from_be_bytes([answer[at], answer[at + 1]])
}

/// Is something there to be read?
fn is_answered(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).expect("a socket");
    let peeked = socket.peek(&mut [0]);
    socket.set_nonblocking(false).expect("a socket");
    !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn with_topic(partitions: u32) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&folder.path().join("data"), &[]);
    let made = change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": partitions}));
    assert_eq!(made.status, 201, "{}", made.body);
    (folder, process)
}

#[test]
fn a_produce_that_unpacks_to_much_holds_up_nobody_else() {
    let (_folder, process) = with_topic(100);
    let (begin, value) = (now(), vec![b'x'; 100]);
    let add = |batch: BatchBuilder, _| batch.record(begin, None, Some(&value));
    let builder = (0..20_000).fold(BatchBuilder::default().compression(Compression::Zstd), add);
    let batch = builder.record(begin + 7_200_000, None, None).build();
    let batches: Vec<(u32, &[u8])> = (0..100).map(|partition| (partition, &batch[..])).collect();
    // Some of them are served by the thread that serves the first.
    let (mut slow, mut others): (TcpStream, Vec<TcpStream>) =
        (process.connect(), (0..16).map(|_| process.connect()).collect());
    let ask_versions = [0, 18, 0, 0, 0, 0, 0, 2, 0xff, 0xff];
    others.iter_mut().for_each(|socket| assert!(exchange(socket, &ask_versions).is_some()));
    send(&mut slow, &produce(&batches));
    others.iter_mut().for_each(|socket| assert!(exchange(socket, &ask_versions).is_some()));
    assert!(!is_answered(&slow), "200 megabytes are not looked into as fast as that");
    assert_eq!(code(&receive(&mut slow).expect("an answer")), INVALID_TIMESTAMP);
}

/// The most memory that the process has had, in bytes.
fn peak(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

fn messages(process: &Process) -> Vec<Value> {
    let wish = json!({"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"});
    let guest = ("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=");
    let answer = ask(process, "POST", "/api/queues/%2F/t/get", &[guest], &wish.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.as_array().expect("a list").clone()
}

#[test]
fn queues_unpack_within_the_budget_and_pass_over_what_is_too_large() {
    let (_folder, process) = with_topic(1);
    let batch =
        |value: &[u8]| BatchBuilder::default().compression(Compression::Zstd).record(now(), None, Some(value)).build();
    let (bomb, small) = (batch(&vec![b'x'; 64 << 20]), batch(b"small"));
    assert!(bomb.len() < 16 << 10);
    let mut socket = process.connect();
    // In the topic they take no memory, and Kafka clients get them as they are.
    for batch in [&bomb, &bomb, &bomb, &bomb, &bomb, &bomb, &bomb, &bomb, &small] {
        assert_eq!(code(&exchange(&mut socket, &produce(&[(0, batch)])).expect("an answer")), 0);
    }
    let declared = change(&process, "PUT", "/v1/queues/%2F/t", json!({}));
    assert!((200..300).contains(&declared.status), "{}", declared.body);
    let until = Instant::now() + PATIENCE;
    let found = loop {
        let found = messages(&process);
        if !found.is_empty() {
            break found;
        }
        assert!(Instant::now() < until, "the small one comes");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(
        (found.len(), &found[0]["payload"]),
        (1, &json!("small")),
        "the others cannot be unpacked within the bound"
    );
    assert!(peak(&process) < 320 << 20, "{} MiB at a budget of 128 MiB", peak(&process) >> 20);
    let metrics = process.ask_admin("/metrics").expect("metrics");
    let passed_over = metrics
        .lines()
        .find_map(|line| line.strip_prefix("mainstem_unpacked_batches_passed_over_total "))
        .expect("it is counted");
    assert!(passed_over.parse::<u32>().expect("a number") >= 8, "{passed_over}");
    // From now on they are refused, and so is nothing else.
    assert_eq!(code(&exchange(&mut socket, &produce(&[(0, &bomb)])).expect("an answer")), MESSAGE_TOO_LARGE);
    assert_eq!(code(&exchange(&mut socket, &produce(&[(0, &small)])).expect("an answer")), 0);
    assert_eq!(messages(&process).len(), 2);
    assert_eq!(get(&process, "/v1/topics/t/records?order=newest&limit=1")["records"][0]["offset"], json!(9));
}

/// Each record takes nearly a quarter of the budget, which was larger when they were taken, and is copied more than once on its way.
#[test]
fn dead_letters_of_large_packed_records_are_copied_one_at_a_time() {
    const QUEUES: usize = 12;
    const BUDGET: u64 = 128 << 20;
    const RECORD: u64 = 30 << 20;
    // Queues open messages while they hold less than twice an eighth of the budget, on the two threads that read history.
    const OPENED: u64 = 2 * BUDGET / 8 + 2 * RECORD;
    // One dead letter at a time: the record and the batch of its copy.
    const COPIED: u64 = 2 * RECORD;
    // Blocks of the journal, of which one is beyond their bound, and its cache of history.
    const JOURNAL: u64 = BUDGET / 3 + RECORD + BUDGET / 8;
    // What is freed stays with the allocator, a 16th of the budget for each thread: those two, and two that write dead letters.
    const FREED: u64 = 4 * BUDGET / 16;
    const AT_REST: u64 = 40 << 20;
    const PEAK: u64 = AT_REST + OPENED + COPIED + JOURNAL + FREED;
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let process = Process::start(&data, &["--memory", "1GiB", "--set", "mainstem.batch.unpacked.max.bytes=67108864"]);
    let batch = BatchBuilder::default()
        .compression(Compression::Zstd)
        .record(now(), None, Some(&vec![b'x'; RECORD as usize]))
        .build();
    let mut socket = process.connect();
    let arguments = json!({"x-message-ttl": 5000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"});
    let names = || ('a'..).take(QUEUES);
    for (name, arguments) in
        names().map(|name| (name.to_string(), arguments.clone())).chain([("dead".to_owned(), json!({}))])
    {
        let made = change(&process, "PUT", &format!("/v1/queues/%2F/{name}"), json!({"arguments": arguments}));
        assert_eq!(made.status, 201, "{}", made.body);
    }
    for name in names().chain(names()) {
        let mut request = produce(&[(0, &batch)]);
        let at = request.iter().position(|byte| *byte == b't').expect("the name of the topic");
        request[at] = name as u8;
        assert_eq!(code(&exchange(&mut socket, &request).expect("an answer")), 0);
    }
    process.terminate();
    let process = Process::start(&data, &[]);
    let began = Instant::now();
    let dead = || get(&process, "/v1/queues/%2F/dead")["messages"].as_u64();
    while dead() != Some(2 * QUEUES as u64) {
        assert!(began.elapsed() < 3 * PATIENCE, "all of them come: {:?}", dead());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(peak(&process) < PEAK, "{} MiB of {} at a budget of {}", peak(&process) >> 20, PEAK >> 20, BUDGET >> 20);
}
