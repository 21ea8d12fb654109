//! Who closes the socket of a connection that has ended, and that what was said last is read, or kept.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::process::{PATIENCE, Process};
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
        assert!(is_waiting(socket), "it may read more than the answer at once, and take the end of the stream for a failure");
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
            socket.write_all(&[b' '; 64 << 10]).unwrap_or_else(|error| panic!("{path}: {error} while the body is sent"));
        }
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap_or_else(|error| panic!("{path}: {error} in place of an answer"));
        let answer = String::from_utf8_lossy(&answer);
        assert!(["HTTP/1.1 401", "HTTP/1.1 404", "HTTP/1.1 413"].iter().any(|status| answer.starts_with(status)), "{path}: {answer}");
    }
}

/// Somebody who says the wrong password, and these fields of himself.
fn wrong(process: &Process, table: &[u8]) -> TcpStream {
    let start_ok = [b"\0\x0a\0\x0b", &(table.len() as u32).to_be_bytes()[..], table, b"\x05PLAIN\0\0\0\x0c\0guest\0wrong\x05en_US"].concat();
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

#[test]
fn what_was_published_before_a_client_goes_without_a_word_is_kept() {
    // Together more than a journal has room for at once.
    const MESSAGES: u32 = 3000;
    const BYTES: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let (mut goes, mut stays) = (amqp(&process), amqp(&process));
    for socket in [&mut goes, &mut stays] {
        socket.write_all(&on_channel(1, &[0, 20, 0, 10, 0])).unwrap();
        assert_eq!(method(socket), [0, 20, 0, 11]);
    }
    assert_eq!(declared(&mut stays, 2), 0);
    let header = [&[0, 60, 0, 0][..], &(BYTES as u64).to_be_bytes()[..], &[0, 0]].concat();
    let message = [on_channel(1, &[0, 60, 0, 40, 0, 0, 0, 1, b'q', 0]), on_channel(2, &header), on_channel(3, &[b'x'; BYTES])].concat();
    goes.write_all(&message.repeat(MESSAGES as usize)).expect("it is taken");
    drop(goes);
    let (mut count, until) = (0, Instant::now() + PATIENCE);
    while count < MESSAGES && Instant::now() < until {
        count = declared(&mut stays, 1);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(count, MESSAGES);
}
