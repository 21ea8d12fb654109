//! Properties against RabbitMQ's bytes and random ones; malformed ones.

use amqp_wire::{EncodedProperties, Problem, Properties, ReplyCode, ShortBytes, Table, TableRef};
use bytes::BytesMut;

use crate::allocations;
use crate::golden;
use crate::random::Rng;
use crate::table;

fn encode(properties: &Properties<'_>) -> Vec<u8> {
    let mut out = BytesMut::new();
    properties.encode(&mut out);
    out.to_vec()
}

#[test]
fn all_and_some_are_rabbitmqs() {
    let bytes = golden::bytes("properties all");
    let properties = EncodedProperties::check(&bytes).expect("well-formed").decode();
    let text = |text: &'static str| ShortBytes::new(text.as_bytes());
    let headers = Table::build(|writer| writer.put(amqp_wire::short("n"), -5i64));
    let expected = Properties {
        content_type: text("text/plain"),
        content_encoding: text("gzip"),
        headers: Some(headers.view()),
        delivery_mode: Some(2),
        priority: Some(9),
        correlation_id: text("c-1"),
        reply_to: text("reply"),
        expiration: text("60000"),
        message_id: text("m-1"),
        timestamp: Some(1_700_000_000),
        kind: text("kind"),
        user_id: text("guest"),
        app_id: text("app"),
        cluster_id: text("cluster"),
    };
    assert_eq!(properties, expected);
    assert_eq!(encode(&expected), bytes);

    let bytes = golden::bytes("properties some");
    let some = EncodedProperties::check(&bytes).expect("well-formed");
    assert_eq!((some.delivery_mode(), some.expiration(), some.priority()), (Some(1), text("5"), None));
    assert_eq!(encode(&Properties { delivery_mode: Some(1), expiration: text("5"), ..Properties::default() }), bytes);
    assert_eq!(EncodedProperties::default().decode(), Properties::default());
    assert_eq!(encode(&Properties::default()), EncodedProperties::default().as_bytes());
}

/// Where values of random properties lie.
struct Values {
    flags: u64,
    texts: Vec<Vec<u8>>,
    headers: Vec<u8>,
    number: u64,
}

impl Values {
    fn random(rng: &mut Rng) -> Self {
        let mut text = || {
            let count = rng.short_length();
            rng.bytes(count)
        };
        let texts = (0..10).map(|_| text()).collect();
        let headers = table::encode(&table::random_table(rng, 2));
        Self { flags: rng.next(), texts, headers, number: rng.next() }
    }

    fn properties(&self) -> Properties<'_> {
        let set = |bit: u32| self.flags >> bit & 1 == 1;
        let text = |bit: u32| ShortBytes::new(&self.texts[bit as usize]).filter(|_| set(bit));
        Properties {
            content_type: text(0),
            content_encoding: text(1),
            headers: Some(TableRef::trusted(&self.headers)).filter(|_| set(10)),
            delivery_mode: Some(self.number as u8).filter(|_| set(11)),
            priority: Some((self.number >> 8) as u8).filter(|_| set(12)),
            correlation_id: text(2),
            reply_to: text(3),
            expiration: text(4),
            message_id: text(5),
            timestamp: Some(self.number).filter(|_| set(13)),
            kind: text(6),
            user_id: text(7),
            app_id: text(8),
            cluster_id: text(9),
        }
    }
}

fn one_by_one(encoded: EncodedProperties<'_>) -> Properties<'_> {
    Properties {
        content_type: encoded.content_type(),
        content_encoding: encoded.content_encoding(),
        headers: encoded.headers(),
        delivery_mode: encoded.delivery_mode(),
        priority: encoded.priority(),
        correlation_id: encoded.correlation_id(),
        reply_to: encoded.reply_to(),
        expiration: encoded.expiration(),
        message_id: encoded.message_id(),
        timestamp: encoded.timestamp(),
        kind: encoded.kind(),
        user_id: encoded.user_id(),
        app_id: encoded.app_id(),
        cluster_id: encoded.cluster_id(),
    }
}

#[test]
fn random_properties_come_back() {
    let mut rng = Rng(21);
    for _ in 0..2000 {
        let values = Values::random(&mut rng);
        let properties = values.properties();
        let bytes = encode(&properties);
        let read = || EncodedProperties::check(&bytes).map(|encoded| (one_by_one(encoded), encoded.decode()));
        let (read, allocated) = allocations::count(read);
        assert_eq!((read, allocated), (Ok((properties, properties)), 0));
    }
}

#[test]
fn headers_are_exchanged_and_nothing_else() {
    let mut rng = Rng(22);
    let headers = Table::build(|fields| fields.put(amqp_wire::short("x-stream-offset"), 7i64));
    let mut out = BytesMut::new();
    for _ in 0..2000 {
        let values = Values::random(&mut rng);
        let expected = Properties { headers: Some(headers.view()), ..values.properties() };
        let bytes = encode(&values.properties());
        out.clear();
        EncodedProperties::trusted(&bytes).write_with_headers(&mut out, |fields| fields.copy(headers.view()));
        assert_eq!(out, encode(&expected));
    }
}

#[test]
fn every_prefix_and_anything_behind_is_an_error() {
    let mut rng = Rng(22);
    for _ in 0..100 {
        let mut bytes = encode(&Values::random(&mut rng).properties());
        for length in 0..bytes.len() {
            let error = EncodedProperties::check(&bytes[..length]).expect_err("cut");
            assert_eq!(error.reply_code(), ReplyCode::SyntaxError);
            let _ = one_by_one(EncodedProperties::trusted(&bytes[..length]));
        }
        bytes.push(0);
        let error = EncodedProperties::check(&bytes).expect_err("longer");
        assert_eq!((error.problem, error.offset), (Problem::PropertiesTrailing(1), bytes.len() - 1));
    }
}

#[test]
fn flags_of_no_property_are_an_error() {
    for (flags, good) in [(0x0000u16, true), (0x0001, false), (0x0002, false), (0x0003, false)] {
        let result = EncodedProperties::check(&flags.to_be_bytes()).map(|_| ()).map_err(|error| error.problem);
        assert_eq!(result, if good { Ok(()) } else { Err(Problem::PropertyFlags(flags)) });
    }
    assert!(EncodedProperties::check(&[0, 1, 0, 0]).is_err(), "more flags");
}

#[test]
fn malformed_headers_are_found() {
    let bytes = [&[0x20, 0, 0, 0, 0, 3][..], b"\x01aZ"].concat();
    let error = EncodedProperties::check(&bytes).expect_err("no such type");
    assert_eq!((error.field, error.offset, error.problem), ("headers", 8, Problem::ValueType(b'Z')));
}

#[test]
fn damaged_properties_do_not_panic() {
    let mut rng = Rng(23);
    for _ in 0..3000 {
        let bytes = encode(&Values::random(&mut rng).properties());
        let damaged = rng.damaged(&bytes);
        let (result, allocated) = allocations::count(|| EncodedProperties::check(&damaged));
        assert_eq!(allocated, 0);
        let read = one_by_one(EncodedProperties::trusted(&damaged));
        assert!(!format!("{read:?}").is_empty());
        if let Ok(encoded) = result {
            assert_eq!((encode(&read), encode(&encoded.decode())), (damaged.clone(), damaged));
        }
    }
}
