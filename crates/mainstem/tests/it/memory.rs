//! What clients begin and do not finish takes no more memory than there is for it, whatever they send.

use std::io::{Read, Write};
use std::net::TcpStream;

use amqp_wire::{
    Encode, EncodedProperties, Method, Parsed, ProtocolHeader, ShortBytes, Table, basic, channel, connection,
    parse_frame, queue, short, tx, write_content, write_method,
};

use crate::administration::ask;
use crate::process::{PATIENCE, Process};

const MIB: usize = 1 << 20;
const FRAME_MAX: u32 = 131_072;
const BODY_BYTES: usize = 8 * MIB;
/// Of such a body.
const LAST_FRAME_BYTES: usize = 8 + BODY_BYTES % (FRAME_MAX as usize - 8);

/// A connection of guest.
pub struct Client {
    socket: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub fn open(process: &Process) -> Self {
        let socket = TcpStream::connect(process.amqp()).expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut client = Self { socket, input: Vec::new() };
        client.send(&ProtocolHeader::AMQP_0_9_1.to_bytes());
        client.expect("Connection(Start(");
        let properties = Table::build(|_| {});
        client.method(
            0,
            &connection::StartOk {
                client_properties: properties.view(),
                mechanism: short("PLAIN"),
                response: b"\0guest\0guest",
                locale: short("en_US"),
            },
        );
        client.expect("Connection(Tune(");
        client.method(0, &connection::TuneOk { channel_max: 2047, frame_max: FRAME_MAX, heartbeat: 0 });
        client.method(0, &connection::Open { virtual_host: short("/") });
        client.expect("Connection(OpenOk");
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("it is taken");
    }

    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    fn method(&mut self, channel: u16, method: &impl Encode) {
        let mut out = bytes::BytesMut::new();
        write_method(&mut out, channel, method);
        self.send(&out);
    }

    pub fn ask(&mut self, channel: u16, method: &impl Encode, answer: &str) {
        self.method(channel, method);
        self.expect(answer);
    }

    /// The next method.
    pub fn next(&mut self) -> String {
        loop {
            if let Ok(Parsed::Frame(frame)) = parse_frame(&self.input, FRAME_MAX) {
                let (length, text) = (frame.bytes(), format!("{:?}", Method::decode(frame.payload)));
                self.input.drain(..length);
                return text;
            }
            let mut piece = [0; 4096];
            let got = self.socket.read(&mut piece).expect("an answer");
            assert!(got > 0, "it is closed");
            self.input.extend_from_slice(&piece[..got]);
        }
    }

    /// Waits for a method; passes over channels that are closed, and over transactions.
    fn expect(&mut self, wanted: &str) {
        loop {
            let text = self.next();
            if text.contains(wanted) {
                return;
            }
            assert!(
                text.contains("Tx(SelectOk") || text.contains("Channel(Close(") && text.contains("reply_code: 311"),
                "{text}"
            );
        }
    }
}

/// A whole publish to queue `q`.
pub fn publish(channel: u16, body_bytes: usize) -> bytes::BytesMut {
    let routing_key = ShortBytes::new(b"q").expect("short");
    let method = basic::Publish { exchange: ShortBytes::default(), routing_key, mandatory: false, immediate: false };
    let mut whole = bytes::BytesMut::new();
    write_content(&mut whole, channel, &method, EncodedProperties::trusted(&[0, 0]), &vec![7; body_bytes], FRAME_MAX);
    whole
}

/// A metric without labels.
pub fn metric(process: &Process, name: &str) -> usize {
    let page = process.ask_admin("/metrics").expect("a page");
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no {name}")) as usize
}

#[test]
fn half_bodies_and_open_transactions_of_many_channels_stay_within_their_part_of_the_memory() {
    const CHANNELS: u16 = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let before = process.resident();
    let (mut bodies, mut transactions, mut modest) =
        (Client::open(&process), Client::open(&process), Client::open(&process));
    for number in 1..=CHANNELS {
        bodies.ask(number, &channel::Open {}, "Channel(OpenOk");
        let whole = publish(number, BODY_BYTES);
        bodies.send(&whole[..whole.len() - LAST_FRAME_BYTES]);
    }
    for number in 1..=CHANNELS {
        transactions.ask(number, &channel::Open {}, "Channel(OpenOk");
        transactions.method(number, &tx::Select {});
        (0..80).for_each(|_| transactions.send(&publish(number, 100_000)));
    }
    modest.ask(1, &channel::Open {}, "Channel(OpenOk");
    modest.ask(1, &queue::Declare { queue: short("q"), ..queue::Declare::default() }, "Queue(DeclareOk");
    for _ in 0..10 {
        modest.send(&publish(1, 50_000));
    }
    modest.ask(1, &queue::Purge { queue: short("q"), no_wait: false }, "Queue(PurgeOk");
    let grown = process.resident().saturating_sub(before);
    assert!(grown < 128 * MIB, "{} MiB more", grown / MIB);
    assert!((MIB..=34 * MIB).contains(&metric(&process, "mainstem_memory_unfinished_bytes ")));
    drop((bodies, transactions));
    modest.ask(1, &queue::Purge { queue: short("q"), no_wait: false }, "Queue(PurgeOk");
}

/// Large frames that are not whole are read on when there is memory for them; each sender goes on as fast as what counts as getting on.
#[test]
fn frames_that_come_in_pieces_stay_within_their_part_of_the_memory() {
    const CONNECTIONS: usize = 400;
    const PIECE: usize = 9 << 10;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    let whole = publish(1, FRAME_MAX as usize - 8);
    let mut senders: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = Client::open(&process);
            client.ask(1, &channel::Open {}, "Channel(OpenOk");
            client.socket.set_nonblocking(true).expect("a socket");
            (client.socket, 0)
        })
        .collect();
    let before = process.resident();
    // Together 40 MiB, of which there are 16, and a few KiB of each.
    let mut most = 0;
    for _ in 0..20 {
        for (socket, sent) in &mut senders {
            let until = if *sent == 0 { 100_000 } else { (*sent + PIECE).min(whole.len()) };
            if let Ok(bytes) = socket.write(&whole[*sent..until]) {
                *sent = (*sent + bytes) % whole.len();
            }
        }
        most = most.max(metric(&process, "mainstem_memory_frame_bytes "));
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
    assert!((8 * MIB..24 * MIB).contains(&most), "{} MiB", most / MIB);
    let grown = process.most_resident().saturating_sub(before);
    assert!(grown < 48 * MIB, "{} MiB more", grown / MIB);
    drop(senders);
    let mut other = Client::open(&process);
    other.ask(1, &channel::Open {}, "Channel(OpenOk");
    other.ask(1, &queue::Declare { queue: short("q"), ..queue::Declare::default() }, "Queue(DeclareOk");
}

/// Where memory is scarce a large frame is read into memory of its own, also of a connection that is closed meanwhile: its client hears why, and what it sends
/// until it has read that is passed over.
#[test]
fn a_connection_that_is_closed_within_a_large_frame_is_told_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0", "--memory", "64MiB"]);
    // Requests that have begun take half of what there is for them.
    let begun = [&2_000_000_u32.to_be_bytes()[..], &[0, 0, 0, 7, 0, 0, 0, 1], &vec![b'a'; 900_000]].concat();
    let _others: Vec<TcpStream> = (0..5)
        .map(|_| {
            let mut socket = process.connect();
            socket.set_nonblocking(true).expect("a socket");
            let _ = socket.write(&begun);
            socket
        })
        .collect();
    let began = std::time::Instant::now();
    while metric(&process, "mainstem_memory_frame_bytes ") < 4 * MIB {
        assert!(began.elapsed() < PATIENCE, "they are read");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut client = Client::open(&process);
    client.ask(1, &channel::Open {}, "Channel(OpenOk");
    client.ask(1, &queue::Declare { queue: short("q"), ..queue::Declare::default() }, "Queue(DeclareOk");
    let whole = publish(1, 120_000);
    client.send(&whole[..60_000]);
    let guest = [("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")];
    let names = ask(&process, "GET", "/api/connections", &guest, "").body;
    let own = client.socket.local_addr().expect("an address").port();
    let name =
        names.as_array().expect("a list").iter().find(|one| one["peer_port"] == own).expect("it is there")["name"]
            .as_str()
            .expect("a name")
            .to_owned();
    let path = format!("/api/connections/{}", name.replace(' ', "%20").replace('>', "%3E"));
    assert_eq!(ask(&process, "DELETE", &path, &guest, "").status, 204);
    client.send(&whole[60_000..]);
    for _ in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        client.send(&publish(1, 1000));
    }
    client.expect("Connection(Close(");
    client.method(0, &connection::CloseOk {});
    assert_eq!(client.socket.read(&mut [0; 16]).expect("an end"), 0);
}

/// Connections that were busy once hold little afterwards. What they had for reads is freed when they rest, and shared while they are busy.
#[test]
fn connections_that_rest_hold_no_buffers() {
    const CONNECTIONS: usize = 800;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &["--amqp", "127.0.0.1:0"]);
    // ApiVersions with bytes behind it, which are ignored. Together they fill a read of each size.
    let mut request = vec![0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    request.resize(4000, 0);
    let mut idle: Vec<TcpStream> = (0..CONNECTIONS).map(|_| process.connect()).collect();
    idle.iter_mut().for_each(|socket| assert!(crate::process::exchange(socket, &request).is_some()));
    let before = process.resident();
    let together = [&(request.len() as u32).to_be_bytes()[..], &request].concat().repeat(24);
    for socket in &mut idle {
        socket.write_all(&together).expect("it is read");
        (0..24).for_each(|_| assert!(crate::process::receive(socket).is_some()));
    }
    let busy = process.resident().saturating_sub(before);
    assert!(busy < 24 * MIB, "{} KiB more each", (busy / CONNECTIONS) >> 10);
    let (began, mut grown) = (std::time::Instant::now(), usize::MAX);
    while grown > 4 * MIB && began.elapsed() < PATIENCE {
        grown = process.resident().saturating_sub(before);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(grown <= 4 * MIB, "{} KiB more each", (grown / CONNECTIONS) >> 10);
    drop(idle);
}

/// Of large requests that have begun on many connections at once, so much is read as there is memory for.
#[test]
fn requests_that_have_begun_on_many_connections_stay_within_their_part_of_the_memory() {
    const CONNECTIONS: usize = 800;
    const SENT: usize = 60_000;
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]);
    let before = process.resident();
    let begun = [&900_000_u32.to_be_bytes()[..], &vec![0; SENT]].concat();
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut socket = process.connect();
            // Some are ended meanwhile.
            let _ = socket.write_all(&begun);
            socket
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let grown = process.most_resident().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB more", grown / MIB);
    drop(connections);
}

/// Sends what the other side takes now of each; false when all of it was sent.
fn send_on(bodies: &mut [(TcpStream, usize)], body: &[u8]) -> bool {
    let mut left = false;
    for (socket, sent) in bodies {
        while *sent < body.len() {
            match socket.write(&body[*sent..]) {
                Ok(bytes) => *sent += bytes,
                // It waits, or was refused.
                Err(_) => break,
            }
        }
        left |= *sent < body.len();
    }
    left
}

#[test]
fn bodies_of_http_that_do_not_end_stay_within_their_part_of_the_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path(), &[]);
    let before = process.resident();
    let body = vec![b' '; MIB - 1];
    let mut bodies: Vec<_> = (0..200).map(|number| {
        let mut socket = TcpStream::connect(process.admin).expect("a port");
        let head = format!("PUT /v1/queues/%2F/q{number} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {MIB}\r\n\r\n");
        socket.write_all(head.as_bytes()).expect("it is taken");
        socket.set_nonblocking(true).expect("a socket");
        (socket, 0)
    }).collect();
    // What the broker does not read stays in the socket of each.
    for _ in 0..100 {
        if !send_on(&mut bodies, &body) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let grown = process.resident().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB more", grown / MIB);
    assert_eq!(
        crate::administration::change(&process, "POST", "/v1/topics", serde_json::json!({"name": "others"})).status,
        201
    );
}
