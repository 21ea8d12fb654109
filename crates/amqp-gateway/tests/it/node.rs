//! A broker on a real journal, one shard or two, and clients that are sessions driven by hand.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use amqp_gateway::{Gateway, GatewayMetrics, Session};
use amqp_wire::{
    Content, ContentHeader, Encode, EncodedProperties, FrameKind, Method, Parsed, ProtocolHeader, ShortBytes, ShortStr,
    Table, TableRef, Value, basic, channel as chan, confirm, connection, exchange, parse_frame, queue, short,
    write_content, write_method,
};
use broker::{Broker, BrokerConfig, Event, Mailbox, Settings, Vhost};
use bytes::{Bytes, BytesMut};
use journal::disk::{IoMode, RealStorage, Storage, Submitter, submitter};
use journal::{Journal, JournalConfig};
use types::{ConnectionId, Durability, NodeId, ShardId, SystemClock};

/// Longest wait for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(120);
const SHARD: ShardId = ShardId(0);
/// For connections that another thread would serve.
const OTHER_SHARD: ShardId = ShardId(1);
pub const FRAME_MAX: u32 = 131_072;

/// A running node.
pub struct Node {
    gateway: Arc<Gateway>,
    pub broker: Arc<Broker>,
    journals: Vec<Arc<Journal>>,
    threads: Vec<JoinHandle<()>>,
    mailbox: Arc<Mailbox>,
    /// Of the other shard, if there is one.
    other_mailbox: Option<Arc<Mailbox>>,
    /// What it was asked to poll its sockets with.
    other_polls: Vec<Event>,
    bell: Receiver<()>,
    clients: Vec<Client>,
    /// Tokens of replies to connections that are none of the clients'.
    pub others: Vec<u64>,
    /// What the sessions take for now.
    pub now: Instant,
    folder: tempfile::TempDir,
}

struct Client {
    session: Session,
    input: BytesMut,
    output: BytesMut,
    ended: Option<String>,
    shard: ShardId,
    /// What has come on its socket and is read when its shard polls its sockets.
    unread: BytesMut,
}

/// Something that a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub channel: u16,
    /// As Rust's debug output has it, without the outer names.
    pub method: String,
    pub properties: Bytes,
    pub body: Vec<u8>,
}

impl Node {
    pub fn start() -> Self {
        Self::start_on(|storage| Arc::new(storage), submitter(IoMode::Buffered).expect("it blocks"))
    }

    /// On a disk that is not as it should be.
    pub fn start_on(disk: impl FnOnce(RealStorage) -> Arc<dyn Storage>, submit: Box<dyn Submitter>) -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), disk, submit)
    }

    /// In a folder, which goes with the node.
    pub fn start_in(
        folder: tempfile::TempDir,
        disk: impl FnOnce(RealStorage) -> Arc<dyn Storage>,
        submit: Box<dyn Submitter>,
    ) -> Self {
        let config = JournalConfig { segment_bytes: 4 << 20, tail_bytes: 32 << 20, ..JournalConfig::default() };
        let archive = Arc::new(journal::MemoryArchive::default());
        let storage = disk(RealStorage::open(Path::new(folder.path()), IoMode::Buffered).expect("a folder"));
        let opened = journal::open(config, storage, archive, submit, Arc::new(SystemClock), uuid::Uuid::from_u128(7))
            .expect("it opens");
        let (writer, keeper) = (opened.writer, opened.keeper);
        let mut threads = vec![std::thread::spawn(move || writer.run()), std::thread::spawn(move || keeper.run())];
        let config = BrokerConfig {
            cluster_id: "cluster".to_owned(),
            node_id: NodeId(0),
            settings: Settings::default(),
            durability: Durability::Fsync,
            clock: Arc::new(SystemClock),
        };
        let journals = vec![opened.journal];
        let broker = Broker::open(config, journals.clone()).expect("the catalog is readable");
        let (ring, bell) = channel();
        let mailbox = Arc::new(Mailbox::new(Box::new(move || {
            let _ = ring.send(());
        })));
        broker.add_shard(SHARD, Arc::clone(&mailbox));
        threads.extend(broker.start());
        let gateway = Gateway::new(Arc::clone(&broker), GatewayMetrics::default());
        Self {
            gateway,
            broker,
            journals,
            threads,
            mailbox,
            other_mailbox: None,
            other_polls: Vec::new(),
            bell,
            clients: Vec::new(),
            others: Vec::new(),
            now: Instant::now(),
            folder,
        }
    }

    /// Ends everything.
    pub fn stop(self) {
        drop(self.end());
    }

    /// Ends everything, and begins anew with what is on the disk.
    pub fn restart(self) -> Self {
        let node =
            Self::start_in(self.end(), |storage| Arc::new(storage), submitter(IoMode::Buffered).expect("it blocks"));
        node.broker.wake_queues();
        node
    }

    fn end(mut self) -> tempfile::TempDir {
        (0..self.clients.len()).for_each(|client| self.close(client));
        self.broker.shutdown();
        // What they wait for is the journals': those end afterwards.
        let of_broker = self.threads.split_off(2);
        of_broker.into_iter().for_each(|thread| thread.join().expect("no panic"));
        self.journals.iter().for_each(|journal| journal.shutdown());
        std::mem::take(&mut self.threads).into_iter().for_each(|thread| thread.join().expect("no panic"));
        self.folder
    }

    /// A new connection from this machine, on which nothing was said.
    pub fn connect(&mut self) -> usize {
        self.connect_from("127.0.0.1:40000")
    }

    pub fn connect_from(&mut self, peer: &str) -> usize {
        self.connect_to(SHARD, peer)
    }

    /// A connection of another shard, with channel 1 open.
    pub fn open_on_other_shard(&mut self) -> usize {
        if self.other_mailbox.is_none() {
            let mailbox = Arc::new(Mailbox::new(Box::new(|| ())));
            self.broker.add_shard(OTHER_SHARD, Arc::clone(&mailbox));
            self.other_mailbox = Some(mailbox);
        }
        let client = self.connect_to(OTHER_SHARD, "127.0.0.1:40000");
        self.open_channel(client);
        client
    }

    /// Bytes come that the client's shard has not read yet.
    pub fn leave_unread(&mut self, client: usize, bytes: &[u8]) {
        self.clients[client].unread.extend_from_slice(bytes);
    }

    /// The other shard polls its sockets as often as it was asked to; how often.
    pub fn poll_other_sockets(&mut self) -> usize {
        self.pump();
        let polls = std::mem::take(&mut self.other_polls);
        let count = polls.len();
        polls.into_iter().for_each(|poll| self.deliver(poll, OTHER_SHARD));
        count
    }

    fn connect_to(&mut self, shard: ShardId, peer: &str) -> usize {
        let local = "127.0.0.1:5672".parse().expect("an address");
        let id = ConnectionId(self.clients.len() as u64 + 1);
        let session = Session::new(Arc::clone(&self.gateway), shard, id, local, peer.parse().expect("an address"));
        self.clients.push(Client {
            session,
            input: BytesMut::new(),
            output: BytesMut::new(),
            ended: None,
            shard,
            unread: BytesMut::new(),
        });
        self.clients.len() - 1
    }

    /// A connection with channel 1 open.
    pub fn open(&mut self) -> usize {
        let client = self.connect();
        self.open_channel(client);
        client
    }

    fn open_channel(&mut self, client: usize) {
        self.shake_hands(client);
        self.send(client, 1, &chan::Open {});
        assert_eq!(self.next(client).method, "Channel(OpenOk(OpenOk))");
    }

    pub fn shake_hands(&mut self, client: usize) {
        self.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
        assert!(self.next(client).method.starts_with("Connection(Start("));
        self.send(client, 0, &start_ok(b"\0guest\0guest", &capabilities()));
        assert_eq!(
            self.next(client).method,
            "Connection(Tune(Tune { channel_max: 2047, frame_max: 131072, heartbeat: 60 }))"
        );
        self.send(client, 0, &connection::TuneOk { channel_max: 2047, frame_max: FRAME_MAX, heartbeat: 0 });
        self.send(client, 0, &connection::Open { virtual_host: short("/") });
        assert_eq!(self.next(client).method, "Connection(OpenOk(OpenOk))");
    }

    /// Hands bytes to a session.
    pub fn raw(&mut self, client: usize, bytes: &[u8]) {
        self.now = self.now.max(Instant::now());
        self.clients[client].input.extend_from_slice(bytes);
        self.pump();
    }

    /// Bytes for a session that has no turn yet.
    pub fn hand(&mut self, client: usize, bytes: &[u8]) {
        self.clients[client].input.extend_from_slice(bytes);
    }

    /// Hands bytes to a session as its only task, until it has done what it can: in how many turns.
    pub fn turns_of(&mut self, client: usize, bytes: &[u8]) -> usize {
        self.hand(client, bytes);
        let mut turns = 1;
        while self.has_turn(client) {
            turns += 1;
        }
        turns
    }

    /// One turn of a session; true: it has more to do.
    pub fn has_turn(&mut self, client: usize) -> bool {
        let client = &mut self.clients[client];
        client.session.handle_bytes(&mut client.input, self.now).expect("it goes on");
        client.session.pauses()
    }

    /// As [`Node::raw`], and no session is told of anything.
    pub fn raw_alone(&mut self, client: usize, bytes: &[u8]) {
        let client = &mut self.clients[client];
        client.input.extend_from_slice(bytes);
        client.session.handle_bytes(&mut client.input, self.now).expect("it goes on");
        while client.session.pauses() {
            client.session.handle_bytes(&mut client.input, self.now).expect("it goes on");
        }
        let mut out = VecDeque::new();
        while client.session.poll_transmit(&mut out) {
            out.drain(..).for_each(|piece| client.output.extend_from_slice(&piece));
        }
    }

    pub fn send(&mut self, client: usize, channel: u16, method: &impl Encode) {
        let mut out = BytesMut::new();
        write_method(&mut out, channel, method);
        self.raw(client, &out);
    }

    pub fn send_content(&mut self, client: usize, channel: u16, method: &impl Content, properties: &[u8], body: &[u8]) {
        self.raw(client, &content(channel, method, properties, body));
    }

    /// The answer to a method on a channel, as debug output. That publishers are held up, and no longer, may be told at any time.
    pub fn ask(&mut self, client: usize, channel: u16, method: &impl Encode) -> String {
        self.send(client, channel, method);
        let mut seen = self.next(client);
        while ["Connection(Blocked(", "Connection(Unblocked"].iter().any(|told| seen.method.starts_with(told)) {
            seen = self.next(client);
        }
        assert_eq!(seen.channel, channel, "{seen:?}");
        seen.method
    }

    /// A channel's close that must come: code and text; agreed to.
    pub fn channel_error(&mut self, client: usize, channel: u16) -> (u16, String) {
        let seen = self.next(client);
        assert_eq!(seen.channel, channel, "{seen:?}");
        assert!(seen.method.starts_with("Channel(Close("), "{seen:?}");
        self.send(client, channel, &chan::CloseOk {});
        code_and_text(&seen.method)
    }

    /// A connection's close that must come: code and text; agreed to, and ended by the broker.
    pub fn connection_error(&mut self, client: usize) -> (u16, String) {
        let seen = self.next(client);
        assert!(seen.method.starts_with("Connection(Close("), "{seen:?}");
        self.send(client, 0, &connection::CloseOk {});
        assert!(self.ended(client).is_some(), "it is over");
        code_and_text(&seen.method)
    }

    pub fn publish(&mut self, client: usize, exchange: &str, key: &str, body: &[u8]) {
        self.send_content(client, 1, &publish(exchange, key, false), &[0, 0], body);
    }

    pub fn vhost(&self) -> Arc<Vhost> {
        self.broker.vhosts().get("/").expect("it is always there")
    }

    /// How many are ready, once that is `wanted` or after a while.
    pub fn ready(&mut self, name: &[u8], wanted: u64) -> u64 {
        let until = Instant::now() + PATIENCE;
        loop {
            self.pump();
            let queue = self.vhost().queue(name);
            let count = queue.map_or(0, |queue| self.broker.counts(&queue).ready);
            if count == wanted || Instant::now() > until {
                return count;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn declare(&mut self, client: usize, name: &'static str) {
        let answer =
            self.ask(client, 1, &queue::Declare { queue: short(name), durable: true, ..queue::Declare::default() });
        assert!(answer.starts_with(&format!("Queue(DeclareOk(DeclareOk {{ queue: {name:?}")), "{answer}");
    }

    pub fn select_confirms(&mut self, client: usize) {
        assert_eq!(self.ask(client, 1, &confirm::Select { no_wait: false }), "Confirm(SelectOk(SelectOk))");
    }

    pub fn declare_exchange(&mut self, client: usize, name: &'static str, kind: &'static str) {
        let method = exchange::Declare { exchange: short(name), kind: short(kind), ..exchange::Declare::default() };
        assert_eq!(self.ask(client, 1, &method), "Exchange(DeclareOk(DeclareOk))");
    }

    pub fn bind(&mut self, client: usize, name: &'static str, from: &'static str, key: &'static str) {
        let method = queue::Bind {
            queue: short(name),
            exchange: short(from),
            routing_key: short(key),
            ..queue::Bind::default()
        };
        assert_eq!(self.ask(client, 1, &method), "Queue(BindOk(BindOk))");
    }

    pub fn get(&mut self, client: usize, name: &'static str, no_ack: bool) -> Seen {
        self.send(client, 1, &basic::Get { queue: short(name), no_ack });
        self.next(client)
    }

    /// A consumer on channel 1.
    pub fn consume(&mut self, client: usize, name: &'static str, tag: &'static str, no_ack: bool) {
        let method =
            basic::Consume { queue: short(name), consumer_tag: short(tag), no_ack, ..basic::Consume::default() };
        assert_eq!(self.ask(client, 1, &method), format!("Basic(ConsumeOk(ConsumeOk {{ consumer_tag: {tag:?} }}))"));
    }

    /// Why a session has ended.
    pub fn ended(&mut self, client: usize) -> Option<&str> {
        self.pump();
        self.clients[client].ended.as_deref()
    }

    /// Gives the sessions what has arrived for them, and takes what they send.
    pub fn pump(&mut self) {
        loop {
            let mut events = Vec::new();
            self.mailbox.drain(&mut events);
            let mut of_other = Vec::new();
            self.other_mailbox.iter().for_each(|mailbox| mailbox.drain(&mut of_other));
            let mut busy = !events.is_empty() || !of_other.is_empty();
            events.into_iter().for_each(|event| self.deliver(event, SHARD));
            for event in of_other {
                match event {
                    Event::PollSockets(_) => self.other_polls.push(event),
                    event => self.deliver(event, OTHER_SHARD),
                }
            }
            for client in &mut self.clients {
                if client.ended.is_none()
                    && let Err(reason) = client.session.handle_bytes(&mut client.input, self.now)
                {
                    client.ended = Some(reason.to_string());
                }
                busy |= client.ended.is_none() && client.session.pauses();
                let mut out = VecDeque::new();
                while client.session.poll_transmit(&mut out) {
                    busy = true;
                    out.drain(..).for_each(|piece| client.output.extend_from_slice(&piece));
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn deliver(&mut self, event: Event, shard: ShardId) {
        match event {
            Event::Reply { to, reply } => match self.clients.get_mut(to.connection.0 as usize - 1) {
                Some(client) => client.session.handle_reply(to.token, reply, self.now),
                None => self.others.push(to.token),
            },
            Event::Advanced(log) => self.gateway.advanced(log, shard),
            Event::Space => self
                .clients
                .iter_mut()
                .filter(|client| client.shard == shard)
                .for_each(|client| client.session.handle_space()),
            Event::PollSockets(_poll) => {
                for client in self.clients.iter_mut().filter(|client| client.shard == shard && client.ended.is_none()) {
                    let unread = client.unread.split();
                    client.input.extend_from_slice(&unread);
                    if let Err(reason) = client.session.handle_bytes(&mut client.input, self.now) {
                        client.ended = Some(reason.to_string());
                    }
                }
            }
        }
    }

    /// The next method, with its message if it has one, or a heartbeat; waits for it.
    pub fn next(&mut self, client: usize) -> Seen {
        let until = Instant::now() + PATIENCE;
        loop {
            self.pump();
            if let Some(seen) = self.clients[client].take() {
                return seen;
            }
            if let Some(at) = self.clients[client]
                .session
                .next_timeout()
                .filter(|at| *at <= Instant::now() && *at <= self.now + Duration::from_secs(1))
            {
                self.now = self.now.max(at);
                self.clients[client].session.handle_wake(self.now);
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "an answer in time; ended: {:?}", self.clients[client].ended);
            let _ = self.bell.recv_timeout(left.min(Duration::from_millis(20)));
        }
    }

    /// Waits until something holds.
    pub fn wait_until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.pump();
            if holds(self) {
                return;
            }
            assert!(Instant::now() < until, "{what}");
            let _ = self.bell.recv_timeout(Duration::from_millis(20));
        }
    }

    /// Chunks that were written so far.
    pub fn chunks(&self) -> u64 {
        self.journals.iter().map(|journal| journal.metrics().commits_so_far().0).sum()
    }

    /// The subscription of a queue of virtual host `/`.
    pub fn subscription(&self, queue: &str) -> (Arc<broker::Queue>, Arc<broker::SharedSubscription>) {
        let host = self.broker.vhosts().get("/").expect("it is always there");
        let queue = host.queue(queue.as_bytes()).expect("it was declared");
        let shared =
            self.broker.subscriptions().get(queue.understood().group(), queue.topic().id, 0).expect("it has one");
        (queue, shared)
    }

    /// What has come so far, if anything; for what must not come.
    pub fn poll(&mut self, client: usize) -> Option<Seen> {
        self.pump();
        self.clients[client].take()
    }

    /// Has something come?
    pub fn has_answer(&mut self, client: usize) -> bool {
        !self.clients[client].output.is_empty()
    }

    /// The raw bytes that have come.
    pub fn take_output(&mut self, client: usize) -> BytesMut {
        self.pump();
        self.clients[client].output.split()
    }

    /// The connection of a client ends.
    pub fn close(&mut self, client: usize) {
        self.clients[client].session.close();
        self.clients[client].ended = Some("closed".to_owned());
    }

    pub fn session(&mut self, client: usize) -> &mut Session {
        &mut self.clients[client].session
    }

    /// What the sessions share.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Bytes of publishes for which there is no room.
    pub fn held_bytes(&self) -> usize {
        self.gateway.held_bytes()
    }

    /// Lets time pass for the sessions.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        for client in &mut self.clients {
            client.session.handle_wake(self.now);
        }
        self.pump();
    }

    /// When a session wants to be woken without an event, from its now on.
    pub fn timeout(&self, client: usize) -> Option<Duration> {
        self.clients[client].session.next_timeout().map(|at| at.saturating_duration_since(self.now))
    }
}

impl Client {
    fn take(&mut self) -> Option<Seen> {
        let mut at = 0;
        let next = |at: &mut usize| match parse_frame(&self.output[*at..], FRAME_MAX) {
            Ok(Parsed::Frame(frame)) => {
                *at += frame.bytes();
                Some(frame)
            }
            Ok(Parsed::More(_)) => None,
            Err(error) => panic!("{error}: {:?}", &self.output[*at..]),
        };
        let frame = next(&mut at)?;
        let mut seen =
            Seen { channel: frame.channel, method: "heartbeat".to_owned(), properties: Bytes::new(), body: Vec::new() };
        if frame.kind == FrameKind::Method {
            let method = Method::decode(frame.payload).expect("a method");
            seen.method = format!("{method:?}");
            if method.id().info().expect("known").content {
                let header = ContentHeader::decode(next(&mut at)?.payload).expect("a header");
                seen.properties = Bytes::copy_from_slice(header.properties.as_bytes());
                while (seen.body.len() as u64) < header.body_size {
                    let frame = next(&mut at)?;
                    assert_eq!((frame.kind, frame.channel), (FrameKind::Body, seen.channel));
                    seen.body.extend_from_slice(frame.payload);
                }
            }
        }
        drop(self.output.split_to(at));
        Some(seen)
    }
}

fn code_and_text(method: &str) -> (u16, String) {
    let code = method.split("reply_code: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a code");
    let text =
        method.split("reply_text: \"").nth(1).and_then(|rest| rest.split("\", class_id").next()).expect("a text");
    (code.parse().expect("a number"), text.replace("\\\"", "\""))
}

pub fn capabilities() -> Table {
    Table::build(|fields| {
        fields.table(short("capabilities"), |fields| {
            fields.put(short("consumer_cancel_notify"), true);
            fields.put(short("authentication_failure_close"), true);
            fields.put(short("connection.blocked"), true);
        });
    })
}

pub fn start_ok<'a>(response: &'a [u8], properties: &'a Table) -> connection::StartOk<'a> {
    connection::StartOk {
        client_properties: properties.view(),
        mechanism: short("PLAIN"),
        response,
        locale: short("en_US"),
    }
}

pub fn publish<'a>(exchange: &'a str, key: &'a str, mandatory: bool) -> basic::Publish<'a> {
    let name = |text: &'a str| ShortBytes::new(text.as_bytes()).expect("short");
    basic::Publish { exchange: name(exchange), routing_key: name(key), mandatory, immediate: false }
}

/// The frames of a message.
pub fn content(channel: u16, method: &impl Content, properties: &[u8], body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    write_content(&mut out, channel, method, EncodedProperties::trusted(properties), body, FRAME_MAX);
    out
}

/// Arguments with one field.
pub fn argument<'v>(name: &'static str, value: impl Into<Value<'v>>) -> Table {
    Table::build(|fields| fields.put(short(name), value))
}

pub fn string(text: &str) -> ShortStr<'_> {
    ShortStr::new(text).expect("short")
}

pub fn none() -> TableRef<'static> {
    TableRef::default()
}
