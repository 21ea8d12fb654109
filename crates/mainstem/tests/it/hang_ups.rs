//! Who closes the socket of a connection that has ended, and that what was said last is read, or kept.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use record::BatchBuilder;
use serde_json::json;

use crate::administration::change;
use crate::memory::metric;
use crate::process::{PATIENCE, Process, exchange, receive, send};
use crate::slow_clients::{amqp, connect};

/// Less than what somebody is waited for who is to hang up.
const PATIENCE_WITH_WORDS: Duration = Duration::from_secs(4);

fn frame(payload: &[u8]) -> Vec<u8> {
    [&[1, 0, 0][..], &(payload.len() as u32).to_be_bytes()[..], payload, &[0xce]].concat()
}

/// The method of the next frame.
fn method(socket: &mut TcpStream) -> [u8; 4] {
    let mut head = [0; 7];
    socket.read_exact(&mut head).expect("a frame");
    let mut rest = vec![0; u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize + 1];
    socket.read_exact(&mut rest).expect("all of it");
    [rest[0], rest[1], rest[2], rest[3]]
}

/// Does the other side neither say anything nor hang up for a while?
fn is_waiting(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let outcome = socket.read(&mut [0; 64]);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    matches!(outcome, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// More than a socket buffer takes in small pieces, which nobody looks at; then the end, without a reset.
fn goes_on_and_hangs_up(socket: &mut TcpStream) {
    for _ in 0..1000 {
        socket.write_all(&[8, 0, 0, 0, 0, 0, 0, 0xce]).expect("it is taken");
    }
    socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(socket.read(&mut [0; 64]).expect("the end"), 0);
}

#[test]
fn a_client_hangs_up_when_its_goodbye_is_agreed_to() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let goodbye = frame(b"\0\x0a\0\x32\0\xc8\0\0\0\0\0");
    let (mut one, mut other) = (amqp(&process), amqp(&process));
    for socket in [&mut one, &mut other] {
        socket.write_all(&goodbye).unwrap();
        assert_eq!(method(socket), [0, 10, 0, 51]);
        assert!(
            is_waiting(socket),
            "it may read more than the answer at once, and take the end of the stream for a failure"
        );
    }
    goes_on_and_hangs_up(&mut one);
    assert_eq!(other.read(&mut [0; 64]).expect("the end"), 0, "who does not hang up is hung up on");
}

/// Who sends a body that is not taken reads why, and is not reset: many clients read the answer only once all of it is sent.
#[test]
fn who_sends_a_body_that_is_not_taken_reads_why() {
    const LARGE: usize = 16 << 20;
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    for path in ["/v1/users/anna", "/api/users/anna", "/v1/nowhere"] {
        let mut socket = connect(process.admin);
        write!(socket, "PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {LARGE}\r\n\r\n").expect("it is taken");
        for _ in 0..LARGE / (64 << 10) {
            socket
                .write_all(&[b' '; 64 << 10])
                .unwrap_or_else(|error| panic!("{path}: {error} while the body is sent"));
        }
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap_or_else(|error| panic!("{path}: {error} in place of an answer"));
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            ["HTTP/1.1 401", "HTTP/1.1 404", "HTTP/1.1 413"].iter().any(|status| answer.starts_with(status)),
            "{path}: {answer}"
        );
    }
}

/// Somebody who says the wrong password, and these fields of himself.
fn wrong(process: &Process, table: &[u8]) -> TcpStream {
    let start_ok = [
        b"\0\x0a\0\x0b",
        &(table.len() as u32).to_be_bytes()[..],
        table,
        b"\x05PLAIN\0\0\0\x0c\0guest\0wrong\x05en_US",
    ]
    .concat();
    let mut socket = connect(process.address("amqp"));
    socket.write_all(b"AMQP\0\0\x09\x01").unwrap();
    assert_eq!(method(&mut socket), [0, 10, 0, 10]);
    socket.write_all(&frame(&start_ok)).unwrap();
    socket
}

#[test]
fn who_is_not_let_in_reads_why() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let capabilities = b"\x1cauthentication_failure_closet\x01";
    let table = [&b"\x0ccapabilitiesF"[..], &(capabilities.len() as u32).to_be_bytes(), capabilities].concat();
    let mut socket = wrong(&process, &table);
    assert_eq!(method(&mut socket), [0, 10, 0, 50]);
    assert!(is_waiting(&mut socket), "for what the client says to it");
    socket.write_all(&frame(&[0, 10, 0, 51])).unwrap();
    goes_on_and_hangs_up(&mut socket);
    // Once he has answered, he is waited for no longer.
    let mut socket = wrong(&process, &table);
    assert_eq!(method(&mut socket), [0, 10, 0, 50]);
    socket.write_all(&frame(&[0, 10, 0, 51])).unwrap();
    socket.set_read_timeout(Some(PATIENCE_WITH_WORDS)).unwrap();
    assert_eq!(socket.read(&mut [0; 64]).expect("the end"), 0);
}

/// By AMQP 0-9-1 itself the end of the connection is all that says so: nobody waits for who does not know that there is anything to answer.
#[test]
fn who_understands_no_reason_is_hung_up_on() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let mut socket = wrong(&process, &[]);
    socket.set_read_timeout(Some(PATIENCE_WITH_WORDS)).unwrap();
    assert_eq!(socket.read(&mut [0; 64]).expect("the end, and no reset"), 0);
}

/// A frame of channel 1.
fn on_channel(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, 0, 1][..], &(payload.len() as u32).to_be_bytes()[..], payload, &[0xce]].concat()
}

/// Declares queue `q`, or asks whether it is there; how many messages it has.
fn declared(socket: &mut TcpStream, flags: u8) -> u32 {
    socket.write_all(&on_channel(1, &[0, 50, 0, 10, 0, 0, 1, b'q', flags, 0, 0, 0, 0])).unwrap();
    let mut answer = [0; 7 + 4 + 2 + 8 + 1];
    socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[7..11], [0, 50, 0, 11]);
    u32::from_be_bytes([answer[13], answer[14], answer[15], answer[16]])
}

/// Publishes so many messages to queue `q`, and closes its socket by `close`; all of them are found there.
fn publishes_and_goes(process: &Process, messages: u32, close: impl FnOnce(TcpStream)) {
    const BYTES: usize = 10_000;
    let (mut goes, mut stays) = (amqp(process), amqp(process));
    for socket in [&mut goes, &mut stays] {
        socket.write_all(&on_channel(1, &[0, 20, 0, 10, 0])).unwrap();
        assert_eq!(method(socket), [0, 20, 0, 11]);
    }
    assert_eq!(declared(&mut stays, 2), 0);
    let header = [&[0, 60, 0, 0][..], &(BYTES as u64).to_be_bytes()[..], &[0, 0]].concat();
    let message =
        [on_channel(1, &[0, 60, 0, 40, 0, 0, 0, 1, b'q', 0]), on_channel(2, &header), on_channel(3, &[b'x'; BYTES])]
            .concat();
    goes.write_all(&message.repeat(messages as usize)).expect("it is taken");
    close(goes);
    let (mut count, until) = (0, Instant::now() + PATIENCE);
    while count < messages && Instant::now() < until {
        count = declared(&mut stays, 1);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(count, messages);
}

#[test]
fn what_was_published_before_a_client_goes_without_a_word_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    // Together more than a journal has room for at once.
    publishes_and_goes(&process, 3000, drop);
}

/// The system resets the connection of a socket that is closed with bytes unread.
#[test]
fn what_had_come_before_a_connection_is_reset_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    // Much of it waits for room in the journal when the end is read.
    let process =
        Process::start(folder.path(), &["--amqp", "127.0.0.1:0", "--set", "mainstem.amqp.held.bytes=100000000"]);
    publishes_and_goes(&process, 3000, |goes| {
        wait_until("all of it has come", || unsent(&goes) == 0);
        reset(goes);
    });
}

/// What a producer quota holds back of a transaction is kept with the rest of it when its client is gone.
#[test]
fn a_commit_behind_a_quota_is_kept_as_a_whole_when_its_connection_is_reset() {
    const MESSAGES: u32 = 1000;
    const BYTES: usize = 8000;
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let (mut goes, mut stays) = (amqp(&process), amqp(&process));
    for socket in [&mut goes, &mut stays] {
        socket.write_all(&on_channel(1, &[0, 20, 0, 10, 0])).unwrap();
        assert_eq!(method(socket), [0, 20, 0, 11]);
    }
    assert_eq!(declared(&mut stays, 2), 0);
    let quota = change(
        &process,
        "PUT",
        "/v1/quotas",
        json!({"entity": {"user": "guest"}, "values": {"producer_byte_rate": 2_000_000}}),
    );
    assert_eq!(quota.status, 200, "{}", quota.body);
    goes.write_all(&on_channel(1, &[0, 90, 0, 10])).unwrap();
    assert_eq!(method(&mut goes), [0, 90, 0, 11]);
    let header = [&[0, 60, 0, 0][..], &(BYTES as u64).to_be_bytes()[..], &[0, 0]].concat();
    let message =
        [on_channel(1, &[0, 60, 0, 40, 0, 0, 0, 1, b'q', 0]), on_channel(2, &header), on_channel(3, &[b'x'; BYTES])]
            .concat();
    goes.write_all(&message.repeat(MESSAGES as usize)).expect("it is taken");
    goes.write_all(&on_channel(1, &[0, 90, 0, 20])).expect("it is taken");
    // A part of it is there, which says that the commit was read.
    let began = Instant::now();
    while declared(&mut stays, 1) == 0 {
        assert!(began.elapsed() < PATIENCE, "the commit has begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    reset(goes);
    wait_until("its connection has ended", || metric(&process, "mainstem_amqp_connections ") == 1);
    assert_eq!(declared(&mut stays, 1), MESSAGES);
}

/// Bytes that the other side has not confirmed.
fn unsent(socket: &TcpStream) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: it writes a number to where it is told, on an open descriptor.
    let outcome = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(socket), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    bytes
}

/// A Kafka request of some client, without its length.
fn request(api: u8, version: u8, correlation: u8, client: &str, body: &[u8]) -> Vec<u8> {
    [&[0, api, 0, version, 0, 0, 0, correlation, 0, client.len() as u8][..], client.as_bytes(), body].concat()
}

fn api_versions(correlation: u8) -> Vec<u8> {
    request(18, 0, correlation, "", &[])
}

/// Fetch version 4 of partition 0 from its beginning.
fn fetch(topic: &str, wait: Duration, correlation: u8) -> Vec<u8> {
    let most = (64_u32 << 20).to_be_bytes();
    let wait = (wait.as_millis() as u32).to_be_bytes();
    let topic = [&[0, 0, 0, 1, 0, topic.len() as u8][..], topic.as_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    request(
        1,
        4,
        correlation,
        "",
        &[&[0xff; 4][..], &wait, &[0, 0, 0, 1], &most, &[0], &topic, &[0; 8], &most].concat(),
    )
}

/// Produce version 7 of a record of so many bytes to partition 0.
fn produce(topic: &str, acks: i16, client: &str, bytes: usize) -> Vec<u8> {
    let batch = BatchBuilder::default().record(1, None, Some(&vec![7; bytes])).build();
    let topic = [&[0, 0, 0, 1, 0, topic.len() as u8][..], topic.as_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    request(
        0,
        7,
        5,
        client,
        &[
            &[0xff, 0xff][..],
            &acks.to_be_bytes(),
            &[0, 0, 0x75, 0x30],
            &topic,
            &(batch.len() as u32).to_be_bytes(),
            &batch[..],
        ]
        .concat(),
    )
}

/// How many records partition 0 has.
fn records(process: &Process, topic: &str) -> u64 {
    let partition =
        [&[0, 0, 0, 1, 0, topic.len() as u8][..], topic.as_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0], &[0xff; 8]].concat();
    let answer = exchange(&mut process.connect(), &request(2, 1, 1, "", &[&[0xff; 4][..], &partition].concat()))
        .expect("an answer");
    let (_, offset) = answer.split_last_chunk().expect("an offset");
    u64::from_be_bytes(*offset)
}

fn make_topics(process: &Process, names: &[&str]) {
    for name in names {
        let made = change(process, "POST", "/v1/topics", json!({"name": name, "partitions": 1}));
        assert_eq!(made.status, 201, "{}", made.body);
    }
}

/// Until it is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A connection that takes little before it is read.
pub fn connect_with_little_room(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a size");
    socket.connect(&address.into()).expect("the port is open");
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Resets the connection, as the system does when a socket is closed that has bytes unread.
fn reset(socket: TcpStream) {
    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("an option");
    drop(socket);
}

/// Of a Kafka request that makes no sense nothing can be said but by the end: what was asked before is answered, and a client that goes on to send is not reset.
#[test]
fn what_was_asked_before_a_request_that_makes_no_sense_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    for _ in 0..20 {
        let mut socket = process.connect();
        send(&mut socket, &api_versions(1));
        send(&mut socket, &request(1, 4, 2, "", &[0xff; 3]));
        for _ in 0..200 {
            socket.write_all(&[0; 8192]).expect("it is taken");
        }
        socket.shutdown(Shutdown::Write).unwrap();
        let answer = receive(&mut socket).expect("what came before it is answered");
        assert_eq!(answer[..4], [0, 0, 0, 1]);
        assert_eq!(socket.read(&mut [0; 64]).expect("the end, and no reset"), 0);
    }
}

/// Longer than what it takes until it is looked whether a client of which nothing is read is still there.
const LONGER: Duration = Duration::from_millis(10_500);

#[test]
fn what_was_asked_before_a_client_closes_its_side_is_answered_however_long_that_takes() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--memory", "256MiB"]);
    make_topics(&process, &["empty", "long", "slow"]);
    let mut producer = process.connect();
    (0..8).for_each(|_| assert!(exchange(&mut producer, &produce("long", -1, "", 900_000)).is_some()));
    let quota = change(
        &process,
        "PUT",
        "/v1/quotas",
        json!({"entity": {"client-id": "slow"}, "values": {"producer_byte_rate": 50_000}}),
    );
    assert_eq!(quota.status, 200, "{}", quota.body);

    // Its first request waits for longer, and there is one behind it.
    let mut waits = process.connect();
    send(&mut waits, &fetch("empty", LONGER, 1));
    send(&mut waits, &api_versions(2));
    waits.shutdown(Shutdown::Write).unwrap();
    // Its answer does not fit into the buffers of the system, and is read late.
    let mut reads_late = connect_with_little_room(process.kafka);
    send(&mut reads_late, &fetch("long", Duration::ZERO, 1));
    send(&mut reads_late, &api_versions(2));
    reads_late.shutdown(Shutdown::Write).unwrap();
    // It has gone before what it has produced is read, which waits for its quota: 600,000 bytes are a debt of twelve seconds.
    let mut goes = process.connect();
    send(&mut goes, &produce("slow", 0, "slow", 600_000));
    (0..5).for_each(|_| send(&mut goes, &produce("slow", 0, "slow", 100)));
    drop(goes);
    // Nobody waits for what this one has asked for.
    let connections = || metric(&process, "mainstem_kafka_connections ");
    wait_until("the closed one has been read", || records(&process, "slow") == 1);
    let fetches = || metric(&process, "mainstem_kafka_requests_total{api=\"Fetch\"} ");
    let before = fetches();
    let mut resets = process.connect();
    send(&mut resets, &fetch("empty", Duration::from_secs(600), 1));
    wait_until("it is served", || fetches() == before + 1);
    std::thread::sleep(Duration::from_millis(200));
    reset(resets);

    std::thread::sleep(LONGER);
    for (what, socket) in [("waits", &mut waits), ("reads late", &mut reads_late)] {
        for correlation in [1, 2] {
            let answer = receive(socket).unwrap_or_else(|| panic!("{what}: no answer {correlation}"));
            assert_eq!(answer[..4], [0, 0, 0, correlation], "{what}");
        }
        assert!(receive(socket).is_none(), "{what}: then it is closed");
    }
    wait_until("what was produced without an answer is kept", || records(&process, "slow") == 6);
    wait_until("all have ended", || connections() == 1);
    drop(producer);
}
