//! Clients that begin something and do not go on, that ask for more than others leave them, or that have vanished: they end by a deadline, and others
//! do not notice them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use record::BatchBuilder;
use serde_json::json;

use crate::administration::change;
use crate::certificates::Somebody;
use crate::process::{PATIENCE, Process, has_come, receive, send};

/// Bytes of a record that are as many as a batch may have, about.
const RECORD: usize = 1_040_000;
/// A client that has no processor for so long may be taken for one that does not go on.
const STARVED: Duration = Duration::from_millis(200);

pub fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("the port is open");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Ends the broker the connection, whatever it says before?
fn is_ended(socket: &mut TcpStream) -> bool {
    let mut said = [0; 4096];
    loop {
        match socket.read(&mut said) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// The value of a counter for one reason.
fn closed(process: &Process, reason: &str) -> u64 {
    let page = process.ask_admin("/metrics").expect("a page");
    let name = format!("mainstem_connections_closed_total{{reason=\"{reason}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).expect("a counter")
}

fn make_topic(process: &Process) {
    let made = change(process, "POST", "/v1/topics", json!({"name": "t", "partitions": 1}));
    assert_eq!(made.status, 201, "{}", made.body);
}

/// Produce version 3 to partition 0 of topic `t`: one record of so many bytes.
fn produce(bytes: usize) -> Vec<u8> {
    let batch = BatchBuilder::default().record(1, None, Some(&vec![7; bytes])).build();
    let mut request = vec![0, 0, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 1];
    request.extend(30_000_i32.to_be_bytes());
    request.extend([0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
    request.extend((batch.len() as u32).to_be_bytes());
    request.extend(&batch[..]);
    request
}

/// Fetch version 4 of partition 0 of topic `t` from its beginning, which waits so long for a byte.
fn fetch(wait: Duration) -> Vec<u8> {
    let mut request = vec![0, 1, 0, 4, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    request.extend((wait.as_millis() as u32).to_be_bytes());
    request.extend([0, 0, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
    request.extend(0_u64.to_be_bytes());
    request.extend([0, 16, 0, 0]);
    request
}

/// How long this thread has waited for a processor.
fn starved() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').nth(1).and_then(|waited| waited.parse().ok()).unwrap_or(0))
}

/// A record of so many bytes is produced. Where the sender has no processor for a while he is as slow as one who does not go on, and is ended like one: then
/// he comes again.
fn produces(process: &Process, bytes: usize) {
    let request = produce(bytes);
    let frame = [&(request.len() as u32).to_be_bytes()[..], &request].concat();
    loop {
        let (mut socket, before) = (process.connect(), starved());
        let answer = socket.write_all(&frame).ok().and_then(|()| receive(&mut socket));
        let Some(answer) = answer else {
            let late = starved() - before;
            assert!(late > STARVED, "the connection ended, though its client had a processor but for {late:?}");
            continue;
        };
        // Behind correlation id, one topic with its name, and one partition with its number.
        assert_eq!(answer[4 + 4 + 3 + 4 + 4..][..2], [0, 0], "{answer:?}");
        return;
    }
}

/// A connection on which `frame` has begun: its length and so many bytes.
fn begun(process: &Process, length: u32, bytes: usize) -> TcpStream {
    let mut socket = process.connect();
    socket.write_all(&length.to_be_bytes()).expect("it is read");
    socket.write_all(&vec![0; bytes]).expect("it is read");
    socket
}

/// The same, of which the broker may read less.
fn begun_without_waiting(process: &Process, length: u32, bytes: usize) -> TcpStream {
    let mut socket = process.connect();
    socket.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    socket.write_all(&length.to_be_bytes()).expect("it is read");
    _ = socket.write_all(&vec![0; bytes]);
    socket
}

#[test]
fn lengths_that_are_announced_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    make_topic(&process);
    let announced: Vec<_> = (0..6).chain(0..200).map(|_| begun(&process, 60 << 20, 1)).collect();
    (0..20).for_each(|_| produces(&process, RECORD));
    assert_eq!(closed(&process, "memory"), 0, "nobody needs what they have");
    drop(announced);
}

#[test]
fn requests_that_do_not_go_on_give_their_memory_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    make_topic(&process);
    // Of 16 MiB.
    let stalled: Vec<_> = (0..30).map(|_| begun(&process, 1 << 20, (1 << 20) - 1)).collect();
    produces(&process, RECORD);
    let began = Instant::now();
    while closed(&process, "memory") == 0 {
        assert!(began.elapsed() < PATIENCE, "some of them are closed");
        std::thread::sleep(Duration::from_millis(50));
    }
    produces(&process, RECORD);
    drop(stalled);
}

#[test]
fn long_requests_that_come_slowly_hold_up_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    make_topic(&process);
    // More than half of 16 MiB, and faster than what counts as stalled.
    let mut slow: Vec<_> = (0..4).map(|_| begun(&process, 60 << 20, 2_300_000)).collect();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                slow.retain_mut(|socket| socket.write_all(&[0; 8800]).is_ok());
                std::thread::sleep(Duration::from_millis(400));
            }
        });
        let produced = std::panic::catch_unwind(|| (0..40).for_each(|_| produces(&process, RECORD)));
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        produced.expect("all are answered");
    });
    // Now there are too many for all to have room.
    let mut slow: Vec<_> = (0..20).map(|_| begun_without_waiting(&process, 60 << 20, 1 << 20)).collect();
    produces(&process, RECORD);
    slow.clear();
}

#[test]
fn requests_beyond_the_memory_for_them_are_finished_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    make_topic(&process);
    std::thread::scope(|scope| {
        for _ in 0..48 {
            scope.spawn(|| (0..4).for_each(|_| produces(&process, RECORD)));
        }
        // Larger than all the memory for requests, and refused only when it is read.
        scope.spawn(|| {
            let mut socket = begun(&process, 24 << 20, 24 << 20);
            assert!(is_ended(&mut socket) || receive(&mut socket).is_some());
        });
    });
    let began = Instant::now();
    let used = || {
        let page = process.ask_admin("/metrics").expect("a page");
        page.lines().find_map(|line| line.strip_prefix("mainstem_memory_frame_bytes ")?.parse::<u64>().ok())
    };
    while used() != Some(0) {
        assert!(began.elapsed() < PATIENCE, "all of it comes back: {:?}", used());
    }
}

/// An AMQP connection that has opened its virtual host, without heartbeats.
pub fn amqp(process: &Process) -> TcpStream {
    let frame = |payload: &[u8]| [&[1, 0, 0][..], &(payload.len() as u32).to_be_bytes()[..], payload, &[0xce]].concat();
    let mut socket = connect(process.address("amqp"));
    socket.write_all(b"AMQP\0\0\x09\x01").unwrap();
    let mut next = |sent: &[u8]| {
        socket.write_all(sent).unwrap();
        let mut head = [0; 7];
        socket.read_exact(&mut head).expect("an answer");
        let mut rest = vec![0; u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize + 1];
        socket.read_exact(&mut rest).expect("all of it");
        rest
    };
    let start = next(&[]);
    assert_eq!(start[..4], [0, 10, 0, 10]);
    let tune = next(&frame(b"\0\x0a\0\x0b\0\0\0\0\x05PLAIN\0\0\0\x0c\0guest\0guest\x05en_US"));
    assert_eq!(tune[..4], [0, 10, 0, 30]);
    socket.write_all(&frame(b"\0\x0a\0\x1f\x07\xff\0\x02\0\0\0\0")).unwrap();
    let mut next = |sent: &[u8]| {
        socket.write_all(sent).unwrap();
        let mut said = [0; 13];
        socket.read_exact(&mut said).expect("an answer");
        said
    };
    assert_eq!(next(&frame(b"\0\x0a\0\x28\x01/\0\0"))[7..11], [0, 10, 0, 41]);
    socket
}

#[test]
fn what_has_begun_comes_to_its_end_or_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0", "--set", "mainstem.frame.timeout.ms=1000"]);
    make_topic(&process);
    let mut half = process.connect();
    half.write_all(&[0, 0]).unwrap();
    let mut dribbling = begun(&process, 1 << 20, 100);
    let mut writing = dribbling.try_clone().unwrap();
    let dribble = std::thread::spawn(move || {
        while writing.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let (mut small, mut large) = (begun(&process, 1000, 10), begun(&process, 1 << 20, 500_000));
    let mut frame = amqp(&process);
    frame.write_all(&[3, 0, 1, 0, 0, 1, 0, 7, 7]).unwrap();
    let (mut idle, mut idle_amqp) = (process.connect(), amqp(&process));
    for (what, socket) in [
        ("length", &mut half),
        ("small", &mut small),
        ("large", &mut large),
        ("dribbling", &mut dribbling),
        ("AMQP", &mut frame),
    ] {
        assert!(is_ended(socket), "{what}");
    }
    dribble.join().unwrap();
    assert_eq!(closed(&process, "unfinished_request"), 5);
    send(&mut idle, &fetch(Duration::ZERO));
    assert!(receive(&mut idle).is_some(), "nothing had begun there");
    idle_amqp.write_all(&[8, 0, 0, 0, 0, 0, 0, 0xce, 1]).unwrap();
    assert!(is_ended(&mut idle_amqp), "only now something has");
    let (text, _) = process.terminate();
    assert!(text.contains("did not come to its end") && text.contains("arrived=500000"), "{text}");
}

/// CreateTopics of version 5 that only validates, and is answered with more than a megabyte of settings.
fn create_topics() -> Vec<u8> {
    // A thousand topics and one, as a length of that kind.
    let mut request = vec![0, 19, 0, 5, 0, 0, 0, 7, 0xff, 0xff, 0, 0xe9, 7];
    for number in 0..1000 {
        request.push(5);
        request.extend(format!("{number:04}").as_bytes());
        request.extend([0, 0, 0, 1, 0, 1, 1, 1, 0]);
    }
    request.extend([0, 0, 0x75, 0x30, 1, 0]);
    request
}

#[test]
fn a_request_behind_answers_that_nobody_takes_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--set", "mainstem.frame.timeout.ms=2000"]);
    make_topic(&process);
    let mut socket = process.connect();
    // The controller answers, and what follows is read meanwhile. More than the sockets of both sides hold.
    (0..8).for_each(|_| send(&mut socket, &create_topics()));
    socket.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    socket.write_all(&(1_u32 << 20).to_be_bytes()).expect("it is read");
    _ = socket.write_all(&vec![0; 500_000]);
    let began = Instant::now();
    while closed(&process, "unfinished_request") == 0 {
        assert!(began.elapsed() < PATIENCE, "what has come of it is not kept for as long as its sender likes");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(closed(&process, "unread_answers"), 0);
}

#[test]
fn idle_connections_end_and_those_that_wait_for_an_answer_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0", "--set", "connections.max.idle.ms=1000"]);
    make_topic(&process);
    let (mut idle, mut waiting, mut amqp) = (process.connect(), process.connect(), amqp(&process));
    send(&mut waiting, &fetch(Duration::from_secs(6)));
    assert!(is_ended(&mut idle));
    assert!(!has_come(&waiting), "before the fetch is answered");
    assert!(receive(&mut waiting).is_some(), "an answer");
    assert!(is_ended(&mut waiting), "then it is idle, too");
    assert_eq!(closed(&process, "idle"), 2);
    amqp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(!is_ended(&mut amqp), "AMQP has heartbeats, which it does without");
}

#[test]
fn who_does_not_go_on_to_log_in_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Somebody::new("broker");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("certificate"), broker.certificate(&broker, 0, 4_000_000_000)).unwrap();
    std::fs::write(path("key"), broker.key()).unwrap();
    let flags = [
        "--amqp",
        "127.0.0.1:0",
        "--amqps",
        "127.0.0.1:0",
        "--kafka-tls",
        "127.0.0.1:0",
        "--tls-certificate",
        &path("certificate"),
        "--tls-key",
        &path("key"),
        "--set",
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "--set",
        "mainstem.login.timeout.ms=500",
        "--set",
        "handshake_timeout=500",
        "--set",
        "ssl_handshake_timeout=500",
        "--set",
        "mainstem.http.head.timeout.ms=500",
        "--set",
        "mainstem.http.body.timeout.ms=500",
        "--management",
        "127.0.0.1:0",
    ];
    let process = Process::start(&folder.path().join("data"), &flags);
    let hello = [0x16, 3, 1, 2, 0, 1];
    let begun: [(&str, SocketAddr, &[u8]); 14] = [
        ("SASL, nothing", process.address("kafka"), &[]),
        ("SASL, a handshake", process.address("kafka"), b"\0\0\0\x19\0\x11\0\x01\0\0\0\x07\xff\xff\0\x0dSCRAM-SHA-512"),
        ("SASL, half of one", process.address("kafka"), b"\0\0\0\x19\0\x11"),
        ("AMQP, nothing", process.address("amqp"), &[]),
        ("AMQP, connection.start without start-ok", process.address("amqp"), b"AMQP\0\0\x09\x01"),
        ("Kafka with TLS, nothing", process.address_with("kafka", "(TLS)"), &[]),
        ("Kafka with TLS, half a hello", process.address_with("kafka", "(TLS)"), &hello),
        ("AMQP with TLS, nothing", process.address_with("amqp", "(TLS)"), &[]),
        ("AMQP with TLS, half a hello", process.address_with("amqp", "(TLS)"), &hello),
        ("HTTP, nothing", process.admin, &[]),
        ("HTTP, half a head", process.admin, b"GET /metrics HTTP/1.1\r\nhost: lo"),
        ("HTTP, half a body", process.admin, b"POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"),
        ("management, nothing", process.address("management"), &[]),
        (
            "management, half a body", process.address("management"),
            b"PUT /api/vhosts/x HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\ncontent-length: 100\r\n\r\n{",
        ),
    ];
    let sockets: Vec<_> = begun
        .iter()
        .map(|(what, address, bytes)| {
            let mut socket = connect(*address);
            socket.write_all(bytes).unwrap();
            (what, socket)
        })
        .collect();
    for (what, mut socket) in sockets {
        assert!(is_ended(&mut socket), "{what}");
    }
    let began = Instant::now();
    while (closed(&process, "login"), closed(&process, "tls_handshake")) != (5, 4) {
        assert!(began.elapsed() < PATIENCE, "all are counted, those of TLS just after their end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_log_that_nobody_reads_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    make_topic(&process);
    process.shrink_stderr();
    // Each is worth a line, of which each thread writes 20 a second.
    for _ in 0..100 {
        let mut socket = process.connect();
        socket.write_all(&[0xff; 14]).unwrap();
        assert!(is_ended(&mut socket));
        std::thread::sleep(Duration::from_millis(20));
    }
    produces(&process, 1000);
    let (_, fine) = process.terminate();
    assert!(fine);
}

#[test]
fn pages_answer_when_idle_connections_have_all_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start_limited(folder.path(), "ulimit -n 256", &["--amqp", "127.0.0.1:0"]);
    let clients: Vec<_> =
        (0..250).map(|number| connect(if number % 2 == 0 { process.kafka } else { process.address("amqp") })).collect();
    let pages: Vec<_> = (0..100)
        .map(|number| {
            let mut socket = connect(process.admin);
            let _ = socket.write_all(if number % 2 == 0 { b"GET /metrics HTTP/1.1\r\nho" } else { b"" });
            socket
        })
        .collect();
    for _ in 0..20 {
        for page in ["/health/ready", "/health/live", "/metrics"] {
            let answer = process.ask_admin(page);
            assert!(answer.as_ref().is_some_and(|answer| answer.starts_with("HTTP/1.1 200")), "{page}: {answer:?}");
        }
    }
    drop((clients, pages));
}
