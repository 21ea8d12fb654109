//! Publishers for which there is no room: a full disk that gets space again, and a journal that has stopped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use amqp_wire::{EncodedProperties, basic, channel, connection, queue, short, tx, write_content, write_method};
use bytes::BytesMut;
use journal::disk::{Completion, File, IoMode, RealStorage, Storage, Submitter, Wait, Waker, WriteOp, submitter};

use crate::node::{FRAME_MAX, Node, publish};

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);
const BLOCKED: &str = "Connection(Blocked(Blocked { reason: \"low on disk\" }))";
const UNBLOCKED: &str = "Connection(Unblocked(Unblocked))";

/// What the disk refuses now.
#[derive(Default)]
pub struct Faults {
    pub space: AtomicBool,
    writes: AtomicBool,
}

struct Disk {
    storage: RealStorage,
    faults: Arc<Faults>,
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        if self.faults.space.load(Ordering::SeqCst) && name.starts_with("segment") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.storage.create(name, size)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.storage.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.storage.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.storage.sync_folder()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.storage.free_bytes()
    }
}

struct Writes {
    submitter: Box<dyn Submitter>,
    faults: Arc<Faults>,
    failed: Vec<Completion>,
}

impl Writes {
    fn fail(&self, token: u64) -> Option<Completion> {
        self.faults
            .writes
            .load(Ordering::SeqCst)
            .then(|| Completion { token, result: Err(io::Error::from_raw_os_error(5)) })
    }
}

impl Submitter for Writes {
    fn write(&mut self, op: WriteOp) {
        match self.fail(op.token) {
            Some(failed) => self.failed.push(failed),
            None => self.submitter.write(op),
        }
    }
    fn write_now(&mut self, op: WriteOp) -> Completion {
        match self.fail(op.token) {
            Some(failed) => failed,
            None => self.submitter.write_now(op),
        }
    }
    fn sync(&mut self, token: u64, file: Arc<dyn File>) {
        self.submitter.sync(token, file);
    }
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) {
        let wait = if self.failed.is_empty() { wait } else { Wait::No };
        done.append(&mut self.failed);
        self.submitter.poll(wait, done);
    }
    fn waker(&self) -> Waker {
        self.submitter.waker()
    }
    fn capacity(&self) -> usize {
        self.submitter.capacity()
    }
}

pub fn start() -> (Node, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let submitter = submitter(IoMode::Buffered).expect("always there");
    let writes = Writes { submitter, faults: Arc::clone(&faults), failed: Vec::new() };
    let of_disk = Arc::clone(&faults);
    let node = Node::start_on(move |storage| Arc::new(Disk { storage, faults: of_disk }), Box::new(writes));
    (node, faults)
}

/// Publishes without confirms until the disk is full and the connection is blocked; how many messages that were.
pub fn fill(node: &mut Node, client: usize, faults: &Faults, to: &'static str) -> u32 {
    faults.space.store(true, Ordering::SeqCst);
    let (began, mut count, mut is_blocked) = (Instant::now(), 0, false);
    loop {
        assert!(began.elapsed() < PATIENCE, "the disk is full");
        if let Some(seen) = node.poll(client) {
            // On a slow disk it is the time that it takes, now and then, before it is full.
            assert!(
                [BLOCKED, &BLOCKED.replace("low on disk", "waiting for the disk"), UNBLOCKED].contains(&&*seen.method),
                "{}",
                seen.method
            );
            is_blocked = seen.method != UNBLOCKED;
        }
        if is_blocked && node.broker.journals()[0].is_disk_full() {
            return count;
        }
        if node.held_bytes() < 50_000 {
            node.publish(client, "", to, &[b'x'; 20_000]);
            count += 1;
        }
        node.advance(Duration::from_millis(1));
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// The next method, which time has to pass for.
fn after(node: &mut Node, client: usize) -> String {
    let began = Instant::now();
    loop {
        if let Some(seen) = node.poll(client) {
            return seen.method;
        }
        assert!(began.elapsed() < PATIENCE, "it comes");
        std::thread::sleep(Duration::from_millis(10));
        node.advance(Duration::from_millis(10));
    }
}

#[test]
fn on_a_full_disk_publishes_are_held_and_all_else_goes_on_until_there_is_space() {
    let (mut node, faults) = start();
    let (client, other) = (node.open(), node.open());
    node.declare(client, "q");
    node.declare(client, "bulk");
    (0..4).for_each(|number| node.publish(client, "", "q", format!("old {number}").as_bytes()));
    let first = node.get(client, "q", false);
    assert_eq!(first.body, b"old 0");
    let mut count = fill(&mut node, client, &faults, "bulk");

    // Another channel publishes nothing: it is asked and answers.
    node.send(client, 2, &channel::Open {});
    assert_eq!(node.next(client).method, "Channel(OpenOk(OpenOk))");
    node.send(client, 2, &basic::Get { queue: short("q"), no_ack: false });
    assert_eq!(node.next(client).body, b"old 1");
    // What is said of deliveries and who consumes is heard on the channel that publishes, too.
    node.send(client, 1, &basic::Nack { delivery_tag: 1, multiple: false, requeue: true });
    node.consume(client, "q", "c", false);
    assert_eq!(node.next(client).body, b"old 0");
    for number in 2..4 {
        assert_eq!(node.next(client).body, format!("old {number}").as_bytes());
    }
    node.send(client, 1, &basic::Ack { delivery_tag: 0, multiple: true });
    assert_eq!(
        node.ask(client, 1, &basic::Cancel { consumer_tag: short("c"), no_wait: false }),
        "Basic(CancelOk(CancelOk { consumer_tag: \"c\" }))"
    );

    // A purge would have to see what is held: it waits, and so does what follows on its channel, but not another channel.
    node.send(client, 1, &queue::Purge { queue: short("bulk"), no_wait: false });
    node.publish(client, "", "bulk", b"behind the purge");
    node.send(client, 1, &basic::Qos { prefetch_count: 7, ..basic::Qos::default() });
    node.send(client, 2, &basic::Qos { prefetch_count: 7, ..basic::Qos::default() });
    let seen = node.next(client);
    assert_eq!((seen.channel, &seen.method[..]), (2, "Basic(QosOk(QosOk))"));
    node.advance(Duration::from_secs(1));
    assert_eq!(node.poll(client), None, "it waits");

    // Beyond the bound nothing is read.
    while node.session(client).wants_read() {
        node.send_content(client, 2, &publish("", "bulk", false), &[0, 0], &[b'y'; 20_000]);
        count += 1;
        assert!(count < 1000, "a bound");
    }
    assert_eq!(
        node.get(other, "q", true).method,
        "Basic(GetEmpty(GetEmpty))",
        "others are served: one is with channel 2, the others are done"
    );

    faults.space.store(false, Ordering::SeqCst);
    assert_eq!(after(&mut node, client), UNBLOCKED);
    let purged = after(&mut node, client);
    assert!(purged.starts_with("Queue(PurgeOk(PurgeOk { message_count: "), "{purged}");
    let of_channel_2 = count
        - purged
            .split(": ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .and_then(|text| text.parse::<u32>().ok())
            .expect("a count");
    assert_eq!(of_channel_2, 0, "all were published before the purge was carried out");
    assert_eq!(after(&mut node, client), "Basic(QosOk(QosOk))");
    assert_eq!(node.get(client, "bulk", true).body, b"behind the purge");
    node.stop();
}

#[test]
fn what_was_held_is_kept_in_order_and_confirmed_once_there_is_space() {
    let (mut node, faults) = start();
    let (filler, client) = (node.open(), node.open());
    node.declare(client, "q");
    node.declare(client, "bulk");
    node.select_confirms(client);
    fill(&mut node, filler, &faults, "bulk");
    // Small ones would fit where large ones do not: they may not overtake.
    for (number, size) in [40_000, 10, 300_000, 1, 1, 50_000].into_iter().enumerate() {
        node.publish(client, "", "q", format!("{number} {}", "z".repeat(size)).as_bytes());
    }
    assert_eq!(after(&mut node, client), BLOCKED);
    faults.space.store(false, Ordering::SeqCst);
    let mut confirmed = 0;
    while confirmed < 6 {
        let method = after(&mut node, client);
        if method != UNBLOCKED {
            assert!(method.starts_with("Basic(Ack(Ack { delivery_tag: "), "{method}");
            confirmed = method
                .split("delivery_tag: ")
                .nth(1)
                .and_then(|rest| rest.split(',').next())
                .and_then(|tag| tag.parse().ok())
                .expect("a tag");
        }
    }
    for number in 0..6 {
        let body = loop {
            let seen = node.get(filler, "q", true);
            if !seen.method.starts_with("Connection(") {
                break seen.body;
            }
        };
        assert!(body.starts_with(format!("{number} ").as_bytes()), "{number}: {:?}", &body[..2]);
    }
    node.stop();
}

#[test]
fn a_blocked_connection_can_be_closed_and_its_commit_waits() {
    let (mut node, faults) = start();
    let (filler, client, closes) = (node.open(), node.open(), node.open());
    node.declare(client, "q");
    node.declare(client, "bulk");
    node.publish(client, "", "q", b"old");
    assert_eq!(node.get(client, "q", false).body, b"old");
    assert_eq!(node.ask(client, 1, &tx::Select {}), "Tx(SelectOk(SelectOk))");
    fill(&mut node, filler, &faults, "bulk");
    node.publish(client, "", "q", &[b'n'; 50_000]);
    node.send(client, 1, &basic::Ack { delivery_tag: 1, multiple: false });
    node.send(client, 1, &tx::Commit {});
    assert_eq!(after(&mut node, client), BLOCKED);
    node.send(client, 2, &channel::Open {});
    assert_eq!(node.next(client).method, "Channel(OpenOk(OpenOk))", "the connection does not wait");

    node.publish(closes, "", "q", &[b'n'; 50_000]);
    let mut bytes = BytesMut::new();
    write_method(&mut bytes, 0, &connection::Close::default());
    node.raw(closes, &bytes);
    let seen = std::iter::from_fn(|| Some(after(&mut node, closes))).find(|method| method != BLOCKED);
    assert_eq!(seen.as_deref(), Some("Connection(CloseOk(CloseOk))"));

    faults.space.store(false, Ordering::SeqCst);
    let seen = [after(&mut node, client), after(&mut node, client)];
    assert_eq!(seen, [UNBLOCKED, "Tx(CommitOk(CommitOk))"]);
    node.send(client, 2, &basic::Get { queue: short("q"), no_ack: true });
    assert_eq!(
        node.next(client).body,
        [b'n'; 50_000],
        "of the transaction; the one of the connection that was closed may be lost"
    );
    node.stop();
}

#[test]
fn a_client_that_does_not_know_of_it_is_not_told() {
    let (mut node, faults) = start();
    let (filler, client) = (node.open(), node.connect());
    node.declare(filler, "bulk");
    node.raw(client, &amqp_wire::ProtocolHeader::AMQP_0_9_1.to_bytes());
    node.next(client);
    node.send(client, 0, &crate::node::start_ok(b"\0guest\0guest", &amqp_wire::Table::default()));
    node.next(client);
    node.send(client, 0, &connection::TuneOk { channel_max: 2047, frame_max: FRAME_MAX, heartbeat: 2 });
    node.send(client, 0, &connection::Open { virtual_host: short("/") });
    node.next(client);
    node.send(client, 1, &channel::Open {});
    node.next(client);
    fill(&mut node, filler, &faults, "bulk");
    let mut bytes = BytesMut::new();
    (0..60).for_each(|_| {
        write_content(
            &mut bytes,
            1,
            &publish("", "bulk", false),
            EncodedProperties::default(),
            &[b'x'; 20_000],
            FRAME_MAX,
        )
    });
    node.raw(client, &bytes);
    assert!(!node.session(client).wants_read(), "the bound is met");
    // It sends its heartbeats; nobody reads them.
    for _ in 0..20 {
        node.advance(Duration::from_millis(500));
    }
    assert_eq!(node.ended(client), None);
    let seen = std::iter::from_fn(|| node.poll(client)).map(|seen| seen.method).collect::<Vec<_>>();
    assert!(!seen.is_empty() && seen.iter().all(|method| method == "heartbeat"), "{seen:?}");
    faults.space.store(false, Ordering::SeqCst);
    let began = Instant::now();
    while !node.session(client).wants_read() {
        assert!(began.elapsed() < PATIENCE, "there is space");
        node.advance(Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(1));
    }
    node.stop();
}

#[test]
fn when_a_journal_has_stopped_what_is_unconfirmed_is_refused_and_publishers_are_closed_but_no_consumer() {
    let (mut node, faults) = start();
    let (client, plain, consumer) = (node.open(), node.open(), node.open());
    node.declare(client, "q");
    node.select_confirms(client);
    for body in [b"a", b"b", b"c"] {
        node.publish(client, "", "q", body);
        assert!(node.next(client).method.starts_with("Basic(Ack("));
    }
    faults.writes.store(true, Ordering::SeqCst);
    let mut bytes = BytesMut::new();
    for (to, body) in [("q", b"d"), ("", b"-"), ("q", b"e")] {
        write_content(&mut bytes, 1, &publish("", to, false), EncodedProperties::default(), body, FRAME_MAX);
    }
    node.raw(client, &bytes);
    let told = [(); 3].map(|()| node.next(client).method);
    let nack = |tag| format!("Basic(Nack(Nack {{ delivery_tag: {tag}, multiple: false, requeue: false }}))");
    assert_eq!(
        told,
        ["Basic(Ack(Ack { delivery_tag: 5, multiple: false }))".to_owned(), nack(4), nack(6)],
        "5 went to no queue"
    );
    let stopped = (541, "INTERNAL_ERROR - journal has stopped after an I/O error".to_owned());
    assert_eq!(node.connection_error(client), stopped);
    node.publish(plain, "", "q", b"f");
    assert_eq!(node.connection_error(plain), stopped, "without confirms there is no other way to say it");
    node.consume(consumer, "q", "c", false);
    for (tag, body) in [b"a", b"b", b"c"].into_iter().enumerate() {
        assert_eq!(node.next(consumer).body, body);
        node.send(consumer, 1, &basic::Ack { delivery_tag: tag as u64 + 1, multiple: false });
    }
    node.advance(Duration::from_millis(100));
    assert_eq!((node.poll(consumer), node.ended(consumer)), (None, None), "consumers go on");
    node.stop();
}

/// What goes by itself with its connection, and what somebody deletes, stays on the disk when that takes nothing: the next start has it, or ends it, and is none that is refused.
#[test]
fn a_node_starts_again_after_queues_were_to_be_deleted_while_a_write_had_failed() {
    let (mut node, faults) = start();
    let (client, owner, plain) = (node.open(), node.open(), node.open());
    let declare = |name, auto_delete, exclusive| queue::Declare {
        queue: short(name),
        durable: true,
        auto_delete,
        exclusive,
        ..queue::Declare::default()
    };
    for declare in [
        declare("kept", false, false),
        declare("asked", false, false),
        declare("goes", true, false),
        declare("own", false, true),
    ] {
        assert!(node.ask(owner, 1, &declare).starts_with("Queue(DeclareOk("));
    }
    node.consume(owner, "goes", "c", false);
    node.select_confirms(owner);
    // In sealed segments, and in the open one.
    for number in 1..=40 {
        for name in ["kept", "asked", "goes", "own"] {
            node.publish(owner, "", name, &[number; 40_000]);
        }
    }
    let mut confirmed = 0;
    while confirmed < 160 {
        let method = after(&mut node, owner);
        let tag = |method: &str| method.split("delivery_tag: ").nth(1)?.split(',').next()?.parse().ok();
        if method.starts_with("Basic(Ack(") {
            confirmed = tag(&method).expect("a tag");
        }
    }
    faults.writes.store(true, Ordering::SeqCst);
    node.publish(plain, "", "kept", b"fails");
    assert_eq!(node.connection_error(plain).0, 541);
    node.send(client, 1, &queue::Delete { queue: short("asked"), ..queue::Delete::default() });
    assert_ne!(node.connection_error(client).0, 0, "it is not deleted");
    node.close(owner);
    for _ in 0..2 {
        node = node.restart();
        assert_eq!((node.ready(b"kept", 40), node.ready(b"asked", 40)), (40, 40));
        let vhost = node.vhost();
        node.wait_until("the exclusive one has gone with its connection", |_| vhost.queue(b"own").is_none());
    }
    let client = node.open();
    for number in 1..=40 {
        assert_eq!(node.get(client, "kept", true).body, [number; 40_000]);
    }
    node.stop();
}
