//! Who closes the socket of a connection that has ended, and that what was said last is read.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::process::{PATIENCE, Process};
use crate::slow_clients::{amqp, connect};

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

#[test]
fn who_is_not_let_in_reads_why() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let capabilities = b"\x1cauthentication_failure_closet\x01";
    let table = [&b"\x0ccapabilitiesF"[..], &(capabilities.len() as u32).to_be_bytes(), capabilities].concat();
    let start_ok = [b"\0\x0a\0\x0b", &(table.len() as u32).to_be_bytes()[..], &table, b"\x05PLAIN\0\0\0\x0c\0guest\0wrong\x05en_US"].concat();
    let mut socket = connect(process.address("amqp"));
    socket.write_all(b"AMQP\0\0\x09\x01").unwrap();
    assert_eq!(method(&mut socket), [0, 10, 0, 10]);
    socket.write_all(&frame(&start_ok)).unwrap();
    assert_eq!(method(&mut socket), [0, 10, 0, 50]);
    assert!(is_waiting(&mut socket), "for what the client says to it");
    socket.write_all(&frame(&[0, 10, 0, 51])).unwrap();
    goes_on_and_hangs_up(&mut socket);
}
