//! Clients that behave well beside others at once that send large requests and bodies slowly, and batches that take long to unpack and to pack again.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use amqp_wire::{basic, channel, confirm, queue, short};
use record::{BatchBuilder, Compression};
use serde_json::json;

use crate::administration::change;
use crate::memory::{Client, publish};
use crate::process::{PATIENCE, Process, exchange};

const ROUNDS: usize = 20;
/// Faster than what counts as stalled.
const PIECE: usize = 10 << 10;
const PAUSE: Duration = Duration::from_millis(400);

/// A connection from an address of its own.
fn connect_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::from(address), 0)).into()).expect("an address of loopback");
    socket.connect(&to.into()).expect("the port is open");
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Produce version 7 to partition 0.
fn produce(topic: &str, batch: &[u8]) -> Vec<u8> {
    let mut request = vec![
        0,
        0,
        0,
        7,
        0,
        0,
        0,
        1,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0,
        0,
        0x75,
        0x30,
        0,
        0,
        0,
        1,
        0,
        topic.len() as u8,
    ];
    request.extend(topic.as_bytes());
    request.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    request.extend((batch.len() as u32).to_be_bytes());
    request.extend(batch);
    request
}

/// Sends it and looks whether it was taken.
fn produces(socket: &mut TcpStream, topic: &str, batch: &[u8]) {
    let answer = exchange(socket, &produce(topic, batch)).expect("an answer");
    // Behind correlation id, one topic with its name, and one partition with its number.
    assert_eq!(answer[4 + 4 + 2 + topic.len() + 4 + 4..][..2], [0, 0], "{answer:?}");
}

/// Text of words that packs to about a third.
fn text(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"abcdefghij"[(state >> 33) as usize % 10]
    };
    (0..bytes).map(|_| next()).collect()
}

fn slow_requests(process: &Process, ended: &AtomicBool) {
    let mut sockets: Vec<_> = (0..4)
        .map(|_| {
            let mut socket = process.connect();
            socket.write_all(&(60_u32 << 20).to_be_bytes()).expect("it is read");
            socket.write_all(&vec![0; 2_300_000]).expect("it is read");
            socket
        })
        .collect();
    while !ended.load(Ordering::Relaxed) {
        sockets.retain_mut(|socket| socket.write_all(&[0; PIECE]).is_ok());
        sleep(PAUSE);
    }
}

fn slow_bodies(process: &Process, ended: &AtomicBool) {
    let body = publish(1, 12 << 20);
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = Client::open(process);
            client.ask(1, &channel::Open {}, "Channel(OpenOk");
            client.send(&body[..400_000]);
            (client, 400_000)
        })
        .collect();
    while !ended.load(Ordering::Relaxed) {
        // Of the channels that were closed what comes is not kept.
        for (client, sent) in &mut clients {
            client.send(&body[*sent..*sent + 2 * PIECE]);
            *sent += 2 * PIECE;
        }
        sleep(PAUSE);
    }
}

fn packed(process: &Process, ended: &AtomicBool, batch: &[u8]) {
    let mut socket = process.connect();
    while !ended.load(Ordering::Relaxed) {
        produces(&mut socket, "hard", batch);
    }
}

#[test]
fn slow_and_heavy_clients_hold_up_nobody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let hard = json!({"compression.type": "zstd", "compression.zstd.level": "19"});
    for (name, config) in [("plain", json!({})), ("soft", json!({"compression.type": "zstd"})), ("hard", hard)] {
        let made = change(&process, "POST", "/v1/topics", json!({"name": name, "partitions": 1, "config": config}));
        assert_eq!(made.status, 201, "{}", made.body);
    }
    let batch = |compression, value: &[u8]| {
        BatchBuilder::default().compression(compression).record(1, None, Some(value)).build()
    };
    let (plain, soft, heavy) = (
        batch(Compression::None, &text(1_000_000)),
        batch(Compression::Lz4, &text(200_000)),
        batch(Compression::Lz4, &text(900_000)),
    );
    let ended = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| slow_requests(&process, &ended));
        scope.spawn(|| slow_bodies(&process, &ended));
        (0..4).for_each(|_| _ = scope.spawn(|| packed(&process, &ended, &heavy)));
        let kafka = [[127, 0, 0, 1], [127, 0, 0, 2]].map(|address| {
            let (mut socket, plain, soft) = (connect_from(address, process.kafka), &plain, &soft);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    produces(&mut socket, "plain", plain);
                    if address != [127, 0, 0, 1] {
                        produces(&mut socket, "soft", soft);
                    }
                }
            })
        });
        let amqp = scope.spawn(|| {
            let mut client = Client::open(&process);
            client.ask(1, &channel::Open {}, "Channel(OpenOk");
            client.ask(1, &queue::Declare { queue: short("q"), ..queue::Declare::default() }, "Queue(DeclareOk");
            client.ask(1, &confirm::Select { no_wait: false }, "Confirm(SelectOk");
            for size in [100, 300_000].repeat(ROUNDS) {
                client.send(&publish(1, size));
                let answer = client.next();
                assert!(answer.contains("Basic(Ack("), "{answer}");
            }
            client.ask(1, &basic::Qos { prefetch_size: 0, prefetch_count: 1, global: false }, "Basic(QosOk");
        });
        let outcomes: Vec<_> = kafka.into_iter().chain([amqp]).map(|good| good.join()).collect();
        ended.store(true, Ordering::Relaxed);
        outcomes
    });
    assert!(outcome.iter().all(Result::is_ok), "each is answered each time");
}
