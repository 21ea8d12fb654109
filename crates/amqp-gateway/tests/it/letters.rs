//! Dead letters are where they belong when somebody looks for them there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use amqp_wire::{Table, basic, channel, connection, exchange, queue, short};
use broker::{Broker, NOBODY};
use delivery::{Acquired, ConsumerId, NO_LOCK, Rules};
use journal::disk::{Completion, File, IoMode, Submitter, Wait, Waker, WriteOp, submitter};

use crate::node::{Node, argument};

/// A disk that does not write while it is told to wait, and no more once it is told to fail.
struct Slow {
    submitter: Box<dyn Submitter>,
    waits: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
    failed: Vec<u64>,
}

impl Slow {
    fn wait(&self) {
        while self.waits.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Submitter for Slow {
    fn write(&mut self, op: WriteOp) {
        self.wait();
        if self.fails.load(Ordering::SeqCst) {
            self.failed.push(op.token);
        } else {
            self.submitter.write(op);
        }
    }
    fn write_now(&mut self, op: WriteOp) -> Completion {
        self.wait();
        if self.fails.load(Ordering::SeqCst) { failure(op.token) } else { self.submitter.write_now(op) }
    }
    fn sync(&mut self, token: u64, file: Arc<dyn File>) {
        self.submitter.sync(token, file);
    }
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) {
        let wait = if self.failed.is_empty() { wait } else { Wait::No };
        done.extend(self.failed.drain(..).map(failure));
        self.submitter.poll(wait, done);
    }
    fn waker(&self) -> Waker {
        self.submitter.waker()
    }
    fn capacity(&self) -> usize {
        self.submitter.capacity()
    }
}

fn failure(token: u64) -> Completion {
    Completion { token, result: Err(std::io::Error::other("a broken disk")) }
}

fn slow() -> (Node, Arc<AtomicBool>) {
    let (node, waits, _) = slow_or_broken();
    (node, waits)
}

fn slow_or_broken() -> (Node, Arc<AtomicBool>, Arc<AtomicBool>) {
    let (waits, fails): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
    let (waiting, failing) = (Arc::clone(&waits), Arc::clone(&fails));
    let slow = Slow {
        submitter: submitter(IoMode::Buffered).expect("always there"),
        waits: waiting,
        fails: failing,
        failed: Vec::new(),
    };
    (Node::start_on(|storage| Arc::new(storage), Box::new(slow)), waits, fails)
}

fn to(exchange: &str) -> Table {
    argument("x-dead-letter-exchange", exchange)
}

fn declare(node: &mut Node, client: usize, name: &'static str, arguments: &Table) {
    let method =
        queue::Declare { queue: short(name), durable: true, arguments: arguments.view(), ..queue::Declare::default() };
    assert!(node.ask(client, 1, &method).starts_with("Queue(DeclareOk("));
}

/// Queues `jobs`, whose dead letters go through exchanges `first` and `second`, and `dead`, where they come.
fn work_and_grave(node: &mut Node) -> usize {
    let client = node.open();
    node.declare_exchange(client, "first", "fanout");
    node.declare_exchange(client, "second", "fanout");
    let method = exchange::Bind { destination: short("second"), source: short("first"), ..exchange::Bind::default() };
    assert_eq!(node.ask(client, 1, &method), "Exchange(BindOk(BindOk))");
    node.declare(client, "dead");
    node.bind(client, "dead", "second", "");
    declare(node, client, "jobs", &to("first"));
    client
}

fn publish(node: &mut Node, client: usize, queue: &'static str, count: usize) {
    for number in 0..count {
        node.publish(client, "", queue, &[b'0' + u8::try_from(number % 10).expect("a digit")]);
    }
}

fn reject(node: &mut Node, client: usize, delivery_tag: u64) {
    node.send(client, 1, &basic::Reject { delivery_tag, requeue: false });
}

fn tag_of(got: &str) -> u64 {
    let rest = got.strip_prefix("Basic(GetOk(GetOk { delivery_tag: ").expect(got);
    rest.split(',').next().and_then(|tag| tag.parse().ok()).expect(got)
}

fn ask_count(node: &mut Node, client: usize, name: &'static str) -> String {
    node.ask(client, 1, &queue::Declare { queue: short(name), passive: true, ..queue::Declare::default() })
}

#[test]
fn a_rejected_message_is_found_by_the_next_get() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    for round in 0..100 {
        publish(&mut node, client, "jobs", 1);
        let got = node.get(client, "jobs", false);
        assert!(got.method.starts_with("Basic(GetOk("), "round {round}: {got:?}");
        reject(&mut node, client, 2 * round + 1);
        let dead = node.get(client, "dead", true);
        assert_eq!(dead.body, b"0", "round {round}: {dead:?}");
    }
    node.stop();
}

#[test]
fn another_connection_finds_it_too() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    let other = node.open();
    for round in 0..50 {
        publish(&mut node, client, "jobs", 1);
        assert_eq!(node.get(client, "jobs", false).body, b"0");
        reject(&mut node, client, round + 1);
        assert_eq!(node.get(other, "dead", true).body, b"0", "round {round}");
    }
    node.stop();
}

#[test]
fn letters_stand_behind_no_reader_of_history() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    let ends = Arc::new(AtomicBool::new(false));
    for _ in 0..8 {
        let ends = Arc::clone(&ends);
        let reads = move |_: &Arc<Broker>| {
            while !ends.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Box::new(()) as Box<dyn std::any::Any + Send>
        };
        assert!(node.broker.read_history(NOBODY, broker::JobOwner::BROKER, Box::new(reads)));
    }
    publish(&mut node, client, "jobs", 1);
    assert_eq!(node.get(client, "jobs", false).body, b"0");
    reject(&mut node, client, 1);
    let dead = node.get(client, "dead", true);
    ends.store(true, Ordering::SeqCst);
    assert_eq!(dead.body, b"0", "{dead:?}");
    node.stop();
}

#[test]
fn counts_have_all_letters() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    let bury = |node: &mut Node, count: usize| {
        publish(node, client, "jobs", count);
        let tags: Vec<u64> = (0..count).map(|_| tag_of(&node.get(client, "jobs", false).method)).collect();
        tags.into_iter().for_each(|tag| reject(node, client, tag));
    };
    for _ in 0..20 {
        bury(&mut node, 3);
        assert_eq!(
            ask_count(&mut node, client, "dead"),
            "Queue(DeclareOk(DeclareOk { queue: \"dead\", message_count: 3, consumer_count: 0 }))"
        );
        bury(&mut node, 2);
        let purge = queue::Purge { queue: short("dead"), no_wait: false };
        assert_eq!(node.ask(client, 1, &purge), "Queue(PurgeOk(PurgeOk { message_count: 5 }))");
    }
    bury(&mut node, 1);
    assert!(ask_count(&mut node, client, "dead").contains("message_count: 1"));
    // One is there, three more are of this connection.
    bury(&mut node, 3);
    let got = node.get(client, "dead", true);
    assert!(got.method.contains("message_count: 3"), "{got:?}");
    bury(&mut node, 2);
    let delete = queue::Delete { queue: short("dead"), if_empty: true, ..queue::Delete::default() };
    node.send(client, 1, &delete);
    let (code, text) = node.channel_error(client, 1);
    assert_eq!((code, text.contains("not empty")), (406, true), "{text}");
    node.send(client, 1, &channel::Open {});
    assert_eq!(node.next(client).method, "Channel(OpenOk(OpenOk))");
    let delete = queue::Delete { queue: short("dead"), ..queue::Delete::default() };
    assert_eq!(node.ask(client, 1, &delete), "Queue(DeleteOk(DeleteOk { message_count: 5 }))");
    node.stop();
}

#[test]
fn what_finds_no_room_when_it_comes_back_is_found_too() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    let short_one = Table::build(|fields| {
        fields.put(short("x-max-length"), 2);
        fields.put(short("x-dead-letter-exchange"), "first");
    });
    declare(&mut node, client, "short", &short_one);
    for round in 0..20 {
        publish(&mut node, client, "short", 2);
        node.get(client, "short", false);
        node.get(client, "short", false);
        publish(&mut node, client, "short", 2);
        node.send(client, 1, &basic::Nack { delivery_tag: 6 * round + 1, multiple: false, requeue: true });
        node.send(client, 1, &basic::Nack { delivery_tag: 6 * round + 2, multiple: true, requeue: true });
        assert!(node.get(client, "short", true).method.contains("message_count: 1"));
        assert!(node.get(client, "short", true).method.contains("message_count: 0"));
        assert!(node.get(client, "dead", true).method.contains("message_count: 1"), "round {round}");
        assert!(node.get(client, "dead", true).method.contains("message_count: 0"), "round {round}");
    }
    node.stop();
}

#[test]
fn only_those_wait_who_look_where_letters_may_come_and_not_for_ever() {
    let (mut node, waits) = slow();
    let client = work_and_grave(&mut node);
    node.declare(client, "bystander");
    node.send(client, 2, &channel::Open {});
    assert_eq!(node.next(client).method, "Channel(OpenOk(OpenOk))");
    publish(&mut node, client, "jobs", 1);
    assert_eq!(node.get(client, "jobs", false).body, b"0");
    waits.store(true, Ordering::SeqCst);
    reject(&mut node, client, 1);
    assert_eq!(node.get(client, "bystander", true).method, "Basic(GetEmpty(GetEmpty))");
    assert_eq!(node.get(client, "jobs", true).method, "Basic(GetEmpty(GetEmpty))");
    node.send(client, 1, &basic::Get { queue: short("dead"), no_ack: true });
    node.send(client, 1, &basic::Qos { prefetch_size: 0, prefetch_count: 7, global: false });
    // The other channel does not wait.
    node.send(client, 2, &basic::Get { queue: short("bystander"), no_ack: true });
    let seen = node.next(client);
    assert_eq!((seen.channel, seen.method.as_str()), (2, "Basic(GetEmpty(GetEmpty))"));
    assert_eq!(node.poll(client), None);
    let began = Instant::now();
    assert_eq!(node.next(client).method, "Basic(GetEmpty(GetEmpty))", "it has waited long enough");
    assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(node.next(client).method, "Basic(QosOk(QosOk))", "in order");
    // What is asked at last is answered before the connection closes.
    node.send(client, 1, &basic::Get { queue: short("dead"), no_ack: true });
    node.send(client, 0, &connection::Close { reply_code: 200, ..connection::Close::default() });
    assert_eq!(node.poll(client), None);
    waits.store(false, Ordering::SeqCst);
    assert_eq!(node.next(client).body, b"0");
    assert_eq!(node.next(client).method, "Connection(CloseOk(CloseOk))");
    node.stop();
}

#[test]
fn a_channel_that_goes_takes_along_what_it_waited_with() {
    let (mut node, waits) = slow();
    let client = work_and_grave(&mut node);
    publish(&mut node, client, "jobs", 1);
    assert_eq!(node.get(client, "jobs", false).body, b"0");
    waits.store(true, Ordering::SeqCst);
    reject(&mut node, client, 1);
    node.send(client, 1, &basic::Get { queue: short("dead"), no_ack: true });
    node.close(client);
    waits.store(false, Ordering::SeqCst);
    let other = node.open();
    assert_eq!(node.get(other, "dead", true).body, b"0", "nobody has taken it");
    node.stop();
}

/// More than a turn throws out, and than one append takes.
const MANY: usize = 4500;

#[test]
fn what_dies_together_is_found_once_in_its_order_and_is_written_together() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    let expiring = Table::build(|fields| {
        fields.put(short("x-message-ttl"), 600_000);
        fields.put(short("x-dead-letter-exchange"), "first");
    });
    let limited = Table::build(|fields| {
        fields.put(short("x-max-length"), 3);
        fields.put(short("x-dead-letter-exchange"), "first");
    });
    declare(&mut node, client, "expiring", &expiring);
    declare(&mut node, client, "limited", &limited);
    for (name, dead) in [("expiring", MANY), ("limited", MANY - 3)] {
        if name == "limited" {
            for number in 0..MANY {
                node.publish(client, "", name, &number.to_be_bytes());
            }
        } else {
            // Behind one that a consumer has, and all at once.
            node.publish(client, "", name, b"kept");
            assert_eq!(node.get(client, name, false).body, b"kept");
            for number in 0..MANY {
                node.publish(client, "", name, &number.to_be_bytes());
            }
            node.publish(client, "", name, b"last");
            node.wait_until("all are there", |node| node.subscription(name).0.log().last_stable().0 == MANY as u64 + 2);
        }
        let (queue, shared) = node.subscription(name);
        let before = node.chunks();
        if name == "expiring" {
            let end = queue.log().end().0;
            let (mut dead, rules) = (Vec::new(), Rules { dead_letters: true, ..rules() });
            let mut state = shared.lock();
            assert_eq!(state.drop_available(1, end - 2, delivery::DeadReason::Expired, &rules, &mut dead), MANY as u64);
            node.broker.bury(&shared, dead, &rules);
        }
        node.wait_until("all are dead-lettered", |node| {
            let (grave, _) = node.subscription("dead");
            node.broker.counts(&grave).ready == dead as u64
        });
        let chunks = node.chunks() - before;
        assert!(name == "limited" || chunks < 50, "{chunks} chunks for {dead} messages");
        for number in 0..dead {
            let got = node.get(client, "dead", true);
            assert_eq!(got.body, number.to_be_bytes(), "{name}, {number}");
        }
        assert_eq!(node.get(client, "dead", true).method, "Basic(GetEmpty(GetEmpty))");
        node.wait_until("nothing is on its way", |node| node.subscription(name).1.lock().dying() == 0);
    }
    node.stop();
}

/// Takes two messages, refuses more, and sends what it has refused to `dead`.
fn declare_full(node: &mut Node, client: usize) {
    let arguments = Table::build(|fields| {
        fields.put(short("x-max-length"), 2);
        fields.put(short("x-overflow"), "reject-publish-dlx");
        fields.put(short("x-dead-letter-exchange"), "second");
    });
    declare(node, client, "full", &arguments);
}

fn wait_for_count(node: &mut Node, name: &str, count: u64) {
    node.wait_until("they have come", |node| {
        let (queue, _) = node.subscription(name);
        node.broker.counts(&queue).ready == count
    });
}

/// Clients of Kafka see a queue's messages as records of its topic.
#[test]
fn a_dead_letter_keeps_the_key_of_a_kafka_record() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    let topic = node.broker.topic("jobs").expect("it is a topic");
    for key in [Some(&b"k"[..]), Some(b""), None] {
        let record = broker::NewRecord {
            partition: None,
            timestamp: None,
            key: key.map(<[u8]>::to_vec),
            value: Some(b"v".to_vec()),
            headers: Vec::new(),
        };
        node.broker.publish_record(&topic, &record).expect("published");
        let tag = tag_of(&node.get(client, "jobs", false).method);
        reject(&mut node, client, tag);
    }
    wait_for_count(&mut node, "dead", 3);
    let (queue, _) = node.subscription("dead");
    let page = node.broker.browse(queue.log(), types::Offset(0)..types::Offset(3), 1 << 20).expect("readable");
    let keys: Vec<Option<&[u8]>> = page.records.iter().map(|record| record.key.as_deref()).collect();
    assert_eq!(keys, [Some(&b"k"[..]), Some(b""), None]);
    node.stop();
}

/// Its time to live has no begin.
#[test]
fn a_record_without_a_time_stamp_does_not_die_of_its_age() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    declare(&mut node, client, "short", &Table::build(|fields| fields.put(short("x-message-ttl"), 1_000)));
    let topic = node.broker.topic("short").expect("it is a topic");
    for (timestamp, value) in [(-1, &b"without"[..]), (1_000, b"of 1970")] {
        let record = broker::NewRecord {
            partition: None,
            timestamp: Some(timestamp),
            key: None,
            value: Some(value.to_vec()),
            headers: Vec::new(),
        };
        node.broker.publish_record(&topic, &record).expect("published");
    }
    assert_eq!(node.get(client, "short", true).body, b"without");
    assert!(node.get(client, "short", true).method.contains("GetEmpty"), "the other one is over fifty years old");
    node.stop();
}

#[test]
fn letters_that_a_full_queue_refuses_go_to_its_own_dead_letters() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    declare_full(&mut node, client);
    let before = Table::build(|fields| {
        fields.put(short("x-dead-letter-exchange"), "");
        fields.put(short("x-dead-letter-routing-key"), "full");
    });
    declare(&mut node, client, "before", &before);
    publish(&mut node, client, "before", 5);
    for _ in 0..5 {
        let tag = tag_of(&node.get(client, "before", false).method);
        reject(&mut node, client, tag);
    }
    wait_for_count(&mut node, "full", 2);
    wait_for_count(&mut node, "dead", 3);
    let bodies = |node: &mut Node, name| {
        [(); 4].map(|()| String::from_utf8(node.get(client, name, true).body.to_vec()).expect("text"))
    };
    assert_eq!(bodies(&mut node, "dead"), ["2", "3", "4", ""]);
    assert_eq!(bodies(&mut node, "full"), ["0", "1", "", ""]);
    node.stop();
}

/// What one connection has published the other one gets, also while the disk has not got it yet.
#[test]
fn a_get_waits_for_what_is_being_written() {
    for written in [true, false] {
        let (mut node, waits) = slow();
        let (publisher, getter) = (node.open(), node.open());
        node.declare(publisher, "q");
        waits.store(true, Ordering::SeqCst);
        node.publish(publisher, "", "q", b"x");
        node.wait_until("it is on its way", |node| node.subscription("q").0.log().end().0 == 1);
        node.send(getter, 1, &basic::Get { queue: short("q"), no_ack: true });
        assert!(!node.session(getter).wants_read(), "it waits");
        if written {
            waits.store(false, Ordering::SeqCst);
            assert_eq!(node.next(getter).body, b"x");
            assert!(node.get(getter, "q", true).method.contains("GetEmpty"), "nothing is under way");
        } else {
            assert!(node.next(getter).method.contains("GetEmpty"), "not for ever");
            waits.store(false, Ordering::SeqCst);
        }
        node.stop();
    }
}

/// The journal's thread is busy with something else, and has not even placed it in the queue's log.
#[test]
fn a_get_waits_for_what_has_no_place_yet() {
    let (mut node, waits) = slow();
    let (publisher, getter) = (node.open(), node.open());
    node.declare(publisher, "q");
    node.declare(publisher, "other");
    waits.store(true, Ordering::SeqCst);
    node.publish(publisher, "", "other", b"x");
    node.wait_until("it is on its way", |node| node.subscription("other").0.log().end().0 == 1);
    node.publish(publisher, "", "q", b"x");
    assert_eq!(node.subscription("q").0.log().end().0, 0, "nobody has looked at it");
    node.send(getter, 1, &basic::Get { queue: short("q"), no_ack: true });
    assert!(!node.session(getter).wants_read(), "it waits");
    waits.store(false, Ordering::SeqCst);
    assert_eq!(node.next(getter).body, b"x");
    // Nobody waits for who has gone.
    waits.store(true, Ordering::SeqCst);
    node.publish(publisher, "", "other", b"x");
    node.wait_until("it is on its way", |node| node.subscription("other").0.log().end().0 == 2);
    node.publish(publisher, "", "q", b"x");
    node.close(publisher);
    assert!(node.get(getter, "q", true).method.contains("GetEmpty"));
    waits.store(false, Ordering::SeqCst);
    node.stop();
}

#[test]
fn a_get_does_not_wait_for_what_a_stopped_journal_will_not_write() {
    let (mut node, _, fails) = slow_or_broken();
    let (publisher, getter) = (node.open(), node.open());
    node.declare(publisher, "q");
    fails.store(true, Ordering::SeqCst);
    node.publish(publisher, "", "q", b"x");
    node.wait_until("it has stopped", |node| node.broker.journals()[0].has_stopped());
    let log = node.subscription("q").0.log().clone();
    assert!(log.end() > log.high_watermark(), "it was to be written");
    node.send(getter, 1, &basic::Get { queue: short("q"), no_ack: true });
    node.wait_until("it is answered at once", |node| node.session(getter).wants_read());
    assert!(node.next(getter).method.contains("GetEmpty"));
    node.stop();
}

/// Who is told to go learns what became of his publishes, unless that takes too long.
#[test]
fn a_connection_that_is_closed_has_its_publishes_confirmed_before() {
    for slow_for_long in [false, true] {
        let (mut node, waits) = slow();
        let (client, other) = (node.open(), node.open());
        node.declare(client, "q");
        node.select_confirms(client);
        waits.store(true, Ordering::SeqCst);
        // The journal does not rest: what is published next is its own thread's to write.
        node.publish(other, "", "q", b"x");
        node.wait_until("it is on its way", |node| node.subscription("q").0.log().end().0 == 1);
        (0..3).for_each(|_| node.publish(client, "", "q", b"x"));
        let connected = node.broker.connections().all().remove(0);
        node.broker.dismiss_connection(&connected, "Closed via management plugin");
        node.wait_until("it is told", |node| !node.session(client).wants_read());
        if !slow_for_long {
            waits.store(false, Ordering::SeqCst);
            let confirmed = node.next(client).method;
            assert!(confirmed.contains("Ack { delivery_tag: 3, multiple: true }"), "{confirmed}");
        }
        let mut told = node.next(client).method;
        if told.starts_with("Connection(Blocked") {
            told = node.next(client).method;
        }
        assert!(
            told.contains("reply_code: 320") && told.contains("CONNECTION_FORCED - Closed via management plugin"),
            "{told}"
        );
        waits.store(false, Ordering::SeqCst);
        // What has its outcome later is told on none of its channels, which are closed.
        node.wait_until("all is written", |node| node.subscription("q").0.log().high_watermark().0 == 4);
        assert_eq!(node.poll(client), None);
        node.stop();
    }
}

#[test]
fn what_a_full_queue_refuses_is_written_together() {
    let (mut node, waits) = slow();
    let client = work_and_grave(&mut node);
    declare_full(&mut node, client);
    publish(&mut node, client, "full", 2);
    wait_for_count(&mut node, "full", 2);
    let before = node.chunks();
    waits.store(true, Ordering::SeqCst);
    publish(&mut node, client, "full", MANY);
    waits.store(false, Ordering::SeqCst);
    wait_for_count(&mut node, "dead", MANY as u64);
    let chunks = node.chunks() - before;
    assert!(chunks < 50, "{chunks} chunks for {MANY} messages");
    node.stop();
}

fn rules() -> Rules {
    Rules { deliveries_max: Some(1), unfinished_max: u64::MAX, lock: NO_LOCK, dead_letters: false, retry: None }
}

/// The largest body that the journal takes from a publisher: half a segment, less what is around it.
fn largest_body(node: &mut Node, client: usize) -> usize {
    let (mut fits, mut too_large) = ((2 << 20) - 1024, 2 << 20);
    while fits + 1 < too_large {
        let bytes = usize::midpoint(fits, too_large);
        node.publish(client, "", "scratch", &vec![7; bytes]);
        let mut told = node.next(client).method;
        while told.starts_with("Connection(") {
            told = node.next(client).method;
        }
        if told.starts_with("Basic(Ack(") {
            fits = bytes
        } else {
            too_large = bytes
        }
        node.ask(client, 1, &queue::Purge { queue: short("scratch"), no_wait: false });
    }
    fits
}

#[test]
fn a_message_whose_copy_the_journal_refuses_stays_where_it_is() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    declare(&mut node, client, "scratch", &Table::default());
    node.select_confirms(client);
    // With what its death adds it is more than the journal takes.
    let bytes = largest_body(&mut node, client);
    node.publish(client, "", "jobs", &vec![8; bytes]);
    let told = node.next(client).method;
    assert!(told.starts_with("Basic(Ack("), "{bytes}: {told}");
    node.publish(client, "", "jobs", b"small");
    assert!(node.next(client).method.starts_with("Basic(Ack("));
    let got = node.get(client, "jobs", false);
    assert_eq!(got.body.len(), bytes, "{}", got.method);
    reject(&mut node, client, tag_of(&got.method));
    assert_eq!(node.get(client, "dead", true).method, "Basic(GetEmpty(GetEmpty))");
    let dying = |node: &Node| node.subscription("jobs").1.lock().dying();
    assert_eq!(dying(&node), 1, "it is in neither queue");
    // What is written of the queue afterwards does not say that it has gone.
    let got = node.get(client, "jobs", false);
    assert_eq!(got.body, b"small");
    node.send(client, 1, &basic::Ack { delivery_tag: tag_of(&got.method), multiple: false });
    node.wait_until("it is written", |node| !node.subscription("jobs").1.lock().has_changes());
    let node = node.restart();
    assert_eq!(dying(&node), 1, "it is in neither queue after a restart");
    node.stop();
}

#[test]
fn one_that_is_too_large_is_in_nobodys_way_and_what_fits_arrives() {
    let mut node = Node::start();
    let client = work_and_grave(&mut node);
    declare(&mut node, client, "scratch", &Table::default());
    node.select_confirms(client);
    // Of the smaller ones the copy fits, and not together with what says that the message is gone.
    let bytes = largest_body(&mut node, client);
    let mut sizes: Vec<usize> = (0..10).map(|number| bytes - 80 * number).collect();
    sizes.extend([5, 6, 7]);
    for size in &sizes {
        node.publish(client, "", "jobs", &vec![8; *size]);
        let told = node.next(client).method;
        assert!(told.starts_with("Basic(Ack("), "{size}: {told}");
    }
    let got: Vec<String> = sizes.iter().map(|_| node.get(client, "jobs", false).method).collect();
    let delivery_tag = tag_of(got.last().expect("there are some"));
    node.send(client, 1, &basic::Nack { delivery_tag, multiple: true, requeue: false });
    node.wait_until("each was tried", |node| node.subscription("jobs").1.lock().claimed_dead(0, u64::MAX).is_empty());
    let dying = node.subscription("jobs").1.lock().dying();
    assert!((1..10).contains(&dying), "{dying} stay where they are");
    assert_eq!(node.broker.too_large_letters(), dying, "each once");
    for size in &sizes[dying as usize..] {
        assert_eq!(node.get(client, "dead", true).body.len(), *size);
    }
    assert_eq!(node.get(client, "dead", true).method, "Basic(GetEmpty(GetEmpty))");
    node.stop();
}

#[test]
fn what_nobody_may_get_any_more_is_gone_where_there_are_no_dead_letters() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "plain");
    node.select_confirms(client);
    node.publish(client, "", "plain", b"x");
    assert!(node.next(client).method.starts_with("Basic(Ack("));
    let (_, shared) = node.subscription("plain");
    let (broker, (told, hears)) = (Arc::clone(&node.broker), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let mut state = shared.lock();
        let (mut out, rules) = (Vec::new(), Rules { lock: 1, ..rules() });
        state.acquire(ConsumerId(u64::MAX / 2), 0, 0, 1, 0, &rules, &mut |_| None, &mut out);
        assert_eq!(out, [Acquired { first: 0, last: 0, count: 1 }]);
        // Whoever sees that a lock has run out holds the subscription.
        broker.expire_subscription(&shared, &mut state, &rules);
        let _ = told.send(state.start());
    });
    assert_eq!(hears.recv_timeout(Duration::from_secs(30)), Ok(1), "it waits for itself");
    node.stop();
}

#[test]
fn a_node_without_groups_looks_after_its_queues() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "plain");
    node.select_confirms(client);
    node.publish(client, "", "plain", b"x");
    assert!(node.next(client).method.starts_with("Basic(Ack("));
    let (_, shared) = node.subscription("plain");
    let (mut out, rules) = (Vec::new(), Rules { deliveries_max: None, lock: 1, ..rules() });
    shared.lock().acquire(ConsumerId(u64::MAX / 2), 0, 0, 1, broker::steady_ms(), &rules, &mut |_| None, &mut out);
    assert_eq!(out.len(), 1);
    node.wait_until("nobody looks after it", |node| node.subscription("plain").1.lock().in_flight() == 0);
    node.stop();
}

#[test]
fn who_waits_for_an_acknowledgement_waits_for_whoever_writes_it() {
    let (mut node, waits) = slow();
    let client = node.open();
    node.declare(client, "plain");
    node.select_confirms(client);
    node.publish(client, "", "plain", b"x");
    assert!(node.next(client).method.starts_with("Basic(Ack("));
    let (queue, shared) = node.subscription("plain");
    waits.store(true, Ordering::SeqCst);
    {
        let mut state = shared.lock();
        state.accept_available(0, 0);
        // As the thread does that writes acknowledgements from time to time.
        node.broker.write_subscription(&shared, &mut state, None);
    }
    let to = broker::ReplyTo { shard: types::ShardId(0), connection: types::ConnectionId(1000), token: 77 };
    node.broker.flush_queues(&[queue], &broker::Acknowledgement::new(to));
    node.pump();
    assert!(node.others.is_empty(), "it is not durable");
    waits.store(false, Ordering::SeqCst);
    node.wait_until("it is durable", |node| node.others == [77]);
    node.stop();
}
