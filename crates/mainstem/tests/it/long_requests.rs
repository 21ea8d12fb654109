//! Requests that name much and only look are answered by threads of their own: others on the same network thread do not wait for them.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::administration::change;
use crate::process::{Process, exchange, receive, send};

const INVALID_REQUEST: i16 = 42;
/// As many as a request may have, with little memory.
const ENTRIES: u32 = 131_000;

fn header(api: i16, version: i16) -> Vec<u8> {
    [&api.to_be_bytes()[..], &version.to_be_bytes(), &[0, 0, 0, 7, 0xff, 0xff]].concat()
}

/// Asks for the end of partition 0 of topic `t`, again and again.
fn list_offsets() -> Vec<u8> {
    let mut request = header(2, 1);
    request.extend((-1_i32).to_be_bytes());
    request.extend([0, 0, 0, 1, 0, 1, b't']);
    request.extend(ENTRIES.to_be_bytes());
    (0..ENTRIES).for_each(|_| request.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]));
    request
}

/// Is something there to be read?
fn is_answered(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).expect("a socket");
    let peeked = socket.peek(&mut [0]);
    socket.set_nonblocking(false).expect("a socket");
    !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn with_topic() -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&folder.path().join("data"), &["--set", "mainstem.shards=1"]);
    let made = change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": 1}));
    assert_eq!(made.status, 201, "{}", made.body);
    (folder, process)
}

#[test]
fn a_long_request_holds_up_nobody_else_and_what_follows_comes_after_it() {
    let (_folder, process) = with_topic();
    let (mut long, mut other) = (process.connect(), process.connect());
    let versions = header(18, 0);
    assert!(exchange(&mut other, &versions).is_some());
    let request = list_offsets();
    // All but the last byte first, so that nothing but the answer is left to be waited for.
    let (last, most) = request.split_last().expect("bytes");
    long.write_all(&(request.len() as u32).to_be_bytes()).and_then(|()| long.write_all(most)).expect("it is read");
    assert!(exchange(&mut other, &versions).is_some());
    long.write_all(&[*last]).expect("it is read");
    send(&mut long, &versions);
    (0..3).for_each(|_| assert!(exchange(&mut other, &versions).is_some()));
    assert!(!is_answered(&long), "so many entries are not looked at as fast as that");
    let answer = receive(&mut long).expect("an answer");
    // Correlation id, one topic with its name, one partition: its number and the code.
    assert_eq!(
        (&answer[..11], &answer[15..21]),
        (&[0, 0, 0, 7, 0, 0, 0, 1, 0, 1, b't'][..], &[&[0; 4][..], &INVALID_REQUEST.to_be_bytes()].concat()[..])
    );
    assert_eq!(receive(&mut long).expect("the answer to what followed")[..6], [0, 0, 0, 7, 0, 0]);
}

/// AlterUserScramCredentials of version 0: deletions for as many users as a request may have.
fn delete_credentials() -> Vec<u8> {
    let mut request = [&header(51, 0)[..], &[0]].concat();
    let mut length = ENTRIES + 1;
    while length >= 0x80 {
        request.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    request.push(length as u8);
    for number in 0..ENTRIES {
        let name = format!("{number:x}");
        request.push(name.len() as u8 + 1);
        request.extend(name.as_bytes());
        request.extend([1, 0]);
    }
    request.extend([1, 0]);
    request
}

#[test]
fn credentials_of_many_users_hold_up_nobody_else() {
    let (_folder, process) = with_topic();
    let (mut long, mut other) = (process.connect(), process.connect());
    let versions = header(18, 0);
    assert!(exchange(&mut other, &versions).is_some());
    let request = delete_credentials();
    let (last, most) = request.split_last().expect("bytes");
    long.write_all(&(request.len() as u32).to_be_bytes()).and_then(|()| long.write_all(most)).expect("it is read");
    assert!(exchange(&mut other, &versions).is_some());
    long.write_all(&[*last]).expect("it is read");
    send(&mut long, &versions);
    (0..3).for_each(|_| assert!(exchange(&mut other, &versions).is_some()));
    assert!(!is_answered(&long), "so many users are not gone through as fast as that");
    // Correlation id, tags, throttle time, then results, of which there is one for each: nobody has logged in.
    let answer = receive(&mut long).expect("an answer");
    assert!(answer.len() > ENTRIES as usize * 8, "{} bytes", answer.len());
    assert_eq!(receive(&mut long).expect("the answer to what followed")[..6], [0, 0, 0, 7, 0, 0]);
}

#[test]
fn a_long_request_that_makes_no_sense_ends_its_connection() {
    let (_folder, process) = with_topic();
    let mut long = process.connect();
    let mut request = list_offsets();
    request.truncate(request.len() - 1);
    send(&mut long, &request);
    assert!(receive(&mut long).is_none());
    assert!(exchange(&mut process.connect(), &header(18, 0)).is_some());
}

/// Asks to delete topics that are not there.
fn delete_topics(count: u32) -> Vec<u8> {
    let mut request = header(20, 3);
    request.extend(count.to_be_bytes());
    (0..count).for_each(|number| {
        let name = format!("{number:x}");
        request.extend((name.len() as u16).to_be_bytes());
        request.extend(name.as_bytes());
    });
    request.extend(1000_i32.to_be_bytes());
    request
}

/// Of ten of them at once one is decoded and answered at a time: each takes a hundred bytes and more for an entry of eight.
#[test]
fn requests_of_many_items_are_answered_within_the_memory_however_many_come_at_once() {
    let (_folder, process) = with_topic();
    let before = process.resident();
    let request = delete_topics(ENTRIES);
    let mut clients: Vec<TcpStream> = (0..10).map(|_| process.connect()).collect();
    for client in &mut clients {
        send(client, &request);
    }
    for client in &mut clients {
        let answer = receive(client).expect("an answer");
        assert_eq!(answer[8..12], ENTRIES.to_be_bytes(), "each name is answered");
    }
    let grown = process.most_resident().saturating_sub(before);
    assert!(grown < 160 << 20, "{} MiB more", grown >> 20);
    // Nothing is left that others would wait for, and what would take more than there is for one is refused.
    assert!(exchange(&mut process.connect(), &request).is_some());
    let mut other = process.connect();
    send(&mut other, &delete_topics(132_000));
    assert!(receive(&mut other).is_none());
}

/// Each takes a tenth of a millisecond, is answered at length, and is sent before the next one is looked at: nobody else is kept waiting for all of them.
#[test]
fn many_requests_of_a_few_bytes_have_others_served_between_them() {
    const REQUESTS: usize = 2000;
    let (_folder, process) = with_topic();
    let made = change(&process, "POST", "/v1/topics", json!({"name": "wide", "partitions": 400}));
    assert_eq!(made.status, 201, "{}", made.body);
    let (mut greedy, mut other) = (process.connect(), process.connect());
    let versions = header(18, 0);
    assert!(exchange(&mut other, &versions).is_some());
    // Metadata of all topics.
    let one = [header(3, 1), (-1_i32).to_be_bytes().to_vec()].concat();
    let one = [&(one.len() as u32).to_be_bytes()[..], &one].concat();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let mut reader = greedy.try_clone().expect("a socket");
        let answered = &answered;
        let reading = scope.spawn(move || {
            for _ in 0..REQUESTS {
                assert!(receive(&mut reader).is_some());
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        greedy.write_all(&one.repeat(REQUESTS)).expect("it is read");
        while answered.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert!(exchange(&mut other, &versions).is_some());
        let before = answered.load(Ordering::Relaxed);
        assert!(before < REQUESTS / 2, "{before} were answered before");
        reading.join().expect("all are answered");
    });
}
