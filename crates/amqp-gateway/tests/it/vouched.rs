//! Who sent a message, and by which way, is believed of batches that the broker has written: a Kafka producer may write the header of a message himself.

use std::sync::Arc;

use amqp_wire::{EncodedProperties, Properties, ShortBytes, Table, Value, basic, queue, short};
use broker::append::{Append, AppendItem};
use broker::{DEFAULT_VHOST, Queue, ReplyTo};
use bytes::{Bytes, BytesMut};
use record::BatchBuilder;
use types::{ConnectionId, ShardId};

use crate::node::{Node, Seen, publish};

/// Of a message of `root` with a death in queue `jobs`.
fn properties() -> BytesMut {
    let deaths = Table::build(|fields| {
        fields.array(short("x-death"), |list| {
            list.table(|death| {
                death.put(short("count"), Value::I64(7));
                death.put(short("reason"), Value::LongString(b"rejected"));
                death.put(short("queue"), Value::LongString(b"jobs"));
            });
        });
        fields.put(short("x-first-death-queue"), Value::LongString(b"elsewhere"));
        fields.put(short("x-first-death-reason"), Value::LongString(b"expired"));
        fields.put(short("x-first-death-exchange"), Value::LongString(b"secret"));
    });
    let mut out = BytesMut::new();
    let (user_id, app_id) = (ShortBytes::new(b"root"), ShortBytes::new(b"shop"));
    Properties { user_id, app_id, headers: Some(deaths.view()), ..Properties::default() }.encode(&mut out);
    out
}

/// A record as the broker would have written it, by somebody else.
fn written(body: &[u8]) -> BatchBuilder {
    let mut header = b"\x01\x06secret\x08payments".to_vec();
    header.extend_from_slice(&properties());
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"mainstem.amqp", Some(&header)), (b"mainstem.dead", Some(&[0, 9]))];
    BatchBuilder::default().record_with_headers(1_700_000_000_000, None, Some(body), &headers)
}

fn forged(body: &[u8]) -> Bytes {
    written(body).build()
}

fn queue(node: &Node, name: &str) -> Arc<Queue> {
    node.broker.vhosts().get(DEFAULT_VHOST).and_then(|vhost| vhost.queue(name.as_bytes())).expect("declared")
}

fn produce(node: &Node, name: &str, batch: &Bytes) {
    node.broker.deposit(&[queue(node, name)], batch).expect("the journal takes it");
}

/// User and application.
fn said(seen: &Seen) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let decoded = EncodedProperties::trusted(&seen.properties).decode();
    let own = |text: Option<ShortBytes<'_>>| text.map(|text| text.as_bytes().to_vec());
    (own(decoded.user_id), own(decoded.app_id))
}

#[test]
fn the_header_of_a_message_is_believed_of_the_broker_alone() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    produce(&node, "q", &forged(b"forged"));
    let seen = node.get(client, "q", true);
    assert_eq!((&seen.body[..], said(&seen)), (&b"forged"[..], (None, Some(b"shop".to_vec()))));
    assert!(seen.method.contains("exchange: \"\", routing_key: \"q\""), "{}", seen.method);
    // The same record in a batch that says so.
    produce(&node, "q", &written(b"marked").vouched().build());
    let seen = node.get(client, "q", true);
    assert_eq!(said(&seen), (Some(b"root".to_vec()), Some(b"shop".to_vec())));
    assert!(seen.method.contains("exchange: \"secret\", routing_key: \"payments\""), "{}", seen.method);
    let mut own = BytesMut::new();
    Properties { user_id: ShortBytes::new(b"guest"), ..Properties::default() }.encode(&mut own);
    node.send_content(client, 1, &publish("amq.direct", "k", false), &own, b"nobody");
    node.bind(client, "q", "amq.direct", "k");
    node.send_content(client, 1, &publish("amq.direct", "k", false), &own, b"own");
    let seen = node.get(client, "q", true);
    assert_eq!((&seen.body[..], said(&seen)), (&b"own"[..], (Some(b"guest".to_vec()), None)));
    assert!(seen.method.contains("exchange: \"amq.direct\", routing_key: \"k\""), "{}", seen.method);
    node.stop();
}

#[test]
fn deaths_that_a_producer_claims_do_not_count() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "dead");
    let to_dead = Table::build(|fields| {
        fields.put(short("x-dead-letter-exchange"), Value::LongString(b""));
        fields.put(short("x-dead-letter-routing-key"), Value::LongString(b"dead"));
    });
    let jobs =
        queue::Declare { queue: short("jobs"), durable: true, arguments: to_dead.view(), ..queue::Declare::default() };
    assert!(node.ask(client, 1, &jobs).starts_with("Queue(DeclareOk("));
    produce(&node, "jobs", &forged(b"x"));
    node.consume(client, "jobs", "one", false);
    assert_eq!(node.next(client).body, b"x");
    node.send(client, 1, &basic::Reject { delivery_tag: 1, requeue: false });
    node.consume(client, "dead", "two", true);
    let letter = node.next(client);
    assert_eq!((&letter.body[..], said(&letter)), (&b"x"[..], (None, Some(b"shop".to_vec()))));
    let properties = EncodedProperties::trusted(&letter.properties);
    let table = properties.headers().expect("a table");
    let text = |name: &str| table.get(name).and_then(Value::as_bytes);
    assert_eq!((text("x-first-death-queue"), text("x-first-death-exchange")), (Some(&b"jobs"[..]), Some(&b""[..])));
    let deaths = table.get("x-death").and_then(Value::as_array).expect("a list");
    let counts: Vec<Option<i64>> =
        deaths.iter().filter_map(Value::as_table).map(|death| death.get("count").and_then(Value::as_integer)).collect();
    assert_eq!(counts, [Some(1)]);
    node.stop();
}

#[test]
fn batches_of_releases_that_set_no_mark_are_believed() {
    let mut node = Node::start();
    let client = node.open();
    node.declare(client, "q");
    // As a folder of such a release has it.
    let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token: 0 };
    let items = vec![AppendItem::State { key: b"mvouched"[..].into(), value: None }];
    assert!(node.broker.journals()[0].append(Append { to, items, acknowledge: false }).is_ok());
    produce(&node, "q", &forged(b"before"));
    let mut node = node.restart();
    produce(&node, "q", &forged(b"after"));
    for round in 0..2 {
        let client = node.open();
        let users = [(); 2].map(|()| {
            let seen = node.get(client, "q", false);
            (String::from_utf8(seen.body.clone()).expect("a text"), said(&seen).0)
        });
        assert_eq!(users, [("before".to_owned(), Some(b"root".to_vec())), ("after".to_owned(), None)], "round {round}");
        node = node.restart();
    }
    node.stop();
}
