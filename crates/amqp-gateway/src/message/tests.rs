//! What a message becomes, and what becomes of records that no AMQP client made.

use super::*;
use record::{BatchBuilder, records};
use types::Offset;

fn properties(fields: impl FnOnce(&mut TableWriter<'_>)) -> BytesMut {
    let content_type = ShortBytes::new(b"text/plain");
    with_headers(Properties { content_type, delivery_mode: Some(2), ..Properties::default() }, fields)
}

fn stored(message: &Message<'_>) -> Record {
    let mut writer = BatchWriter::with_capacity(0);
    message.write(1_700_000_000_123, &mut writer);
    records(&writer.finish()).expect("readable").remove(0)
}

#[test]
fn a_message_comes_back_as_it_was() {
    let encoded = properties(|fields| {
        fields.put(short("text"), "value");
        fields.put(short("number"), -5i8);
        fields.put(short("flag"), true);
        fields.put(short("half"), 0.5f64);
        fields.put(short("bytes"), Value::Bytes(&[0xff, 0]));
        fields.put(short("void"), Value::Void);
        fields.put(short("least"), i64::MIN);
        fields.put(short("when"), Value::Timestamp(5));
        fields.table(short("table"), |within| within.put(short("a"), 1i32));
    });
    let message = Message {
        exchange: b"logs",
        routing_key: b"a.b",
        properties: EncodedProperties::trusted(&encoded),
        traits: MessageTraits::default(),
        body: &[b"one ", b"two"],
    };
    let record = stored(&message);
    assert_eq!(
        (record.timestamp, record.key.clone(), record.value.as_deref()),
        (1_700_000_000_123, None, Some(&b"one two"[..]))
    );
    let seen: Vec<(&[u8], &[u8])> =
        record.headers[1..].iter().map(|(name, value)| (&name[..], value.as_deref().expect("no null"))).collect();
    let expected: [(&[u8], &[u8]); 5] = [
        (b"text", b"value"),
        (b"number", b"-5"),
        (b"flag", b"true"),
        (b"bytes", &[0xff, 0]),
        (b"least", b"-9223372036854775808"),
    ];
    assert_eq!(seen, expected);
    let back = Stored::of(&record, b"queue", Some(Tries::default()));
    assert_eq!((&*back.exchange, &*back.routing_key, &back.body[..]), (&b"logs"[..], &b"a.b"[..], &b"one two"[..]));
    assert_eq!(back.properties().as_bytes(), &encoded[..], "not a byte differs");
}

#[test]
fn what_queues_have_to_know_has_a_header_of_its_own() {
    let traits = MessageTraits { priority: Some(3), ttl: Some(1000) };
    let record = stored(&Message {
        exchange: b"",
        routing_key: b"q",
        properties: EncodedProperties::default(),
        traits,
        body: &[],
    });
    assert_eq!(MessageTraits::of(&record), traits);
    assert_eq!(&*Stored::of(&record, b"q", None).routing_key, b"q");
}

#[test]
fn a_message_that_came_back_says_how_often() {
    let encoded = properties(|fields| {
        fields.put(short("a"), 1i32);
        fields.put(short("x-delivery-count"), 77i64);
    });
    let record = stored(&Message {
        exchange: b"",
        routing_key: b"q",
        properties: EncodedProperties::trusted(&encoded),
        traits: MessageTraits::default(),
        body: &[],
    });
    let back = Stored::of(&record, b"q", Some(Tries { counted: 3, spared: 1 }));
    let table = back.properties().headers().expect("a table");
    let fields: Vec<_> = table.iter().map(|(name, value)| (name.as_bytes(), value)).collect();
    assert_eq!(
        fields,
        [(&b"a"[..], Value::I32(1)), (b"x-acquired-count", Value::I64(4)), (b"x-delivery-count", Value::I64(3))]
    );
    assert_eq!(back.properties().content_type(), ShortBytes::new(b"text/plain"));
    assert!(back.body.is_empty());
}

#[test]
fn blind_copies_are_not_seen() {
    let encoded = properties(|fields| {
        fields.array(short("BCC"), |values| values.put("secret"));
        fields.put(short("a"), 1i32);
    });
    let changed = without_bcc(EncodedProperties::trusted(&encoded)).expect("there is one");
    let table = EncodedProperties::trusted(&changed).headers().expect("a table");
    assert_eq!(table.iter().map(|(name, _)| name.as_bytes()).collect::<Vec<_>>(), [b"a"]);
    assert!(without_bcc(EncodedProperties::trusted(&changed)).is_none());
}

fn kafka(key: Option<&[u8]>, headers: &[(&[u8], Option<&[u8]>)]) -> Record {
    let batch = BatchBuilder::default().record_with_headers(1_700_000_000_999, key, Some(b"value"), headers).build();
    records(&batch).expect("readable").remove(0)
}

#[test]
fn a_record_of_kafka_is_a_message_to_the_default_exchange() {
    let long = [b'n'; 256];
    let record = kafka(Some(b"key"), &[(b"a", Some(b"old")), (b"b", None), (b"a", Some(b"new")), (&long, Some(b"x"))]);
    let back = Stored::of(&record, b"orders", None);
    assert_eq!((&*back.exchange, &*back.routing_key, &back.body[..]), (&b""[..], &b"orders"[..], &b"value"[..]));
    assert_eq!(back.properties().timestamp(), Some(1_700_000_000));
    let fields: Vec<_> =
        back.properties().headers().expect("a table").iter().map(|(name, value)| (name.as_bytes(), value)).collect();
    assert_eq!(
        fields,
        [(&b"b"[..], Value::Void), (b"a", Value::LongString(b"new")), (b"x-record-key", Value::LongString(b"key"))]
    );
    let binary = kafka(Some(&[0xff, 0xfe]), &[]);
    let back = Stored::of(&binary, b"orders", None);
    assert_eq!(
        back.properties().headers().and_then(|table| table.get("x-record-key")),
        Some(Value::Bytes(&[0xff, 0xfe]))
    );
    let plain = kafka(None, &[]);
    assert!(Stored::of(&plain, b"orders", None).properties().headers().is_none());
}

#[test]
fn a_header_that_others_wrote_in_our_name_is_not_trusted() {
    let good = stored(&Message {
        exchange: b"e",
        routing_key: b"k",
        properties: EncodedProperties::default(),
        traits: MessageTraits::default(),
        body: &[],
    });
    let header = good.headers[0].1.clone().expect("it is there");
    let vouched = |header: &[u8]| Record { vouched: true, ..kafka(None, &[(HEADER, Some(header))]) };
    assert_eq!(&*Stored::of(&vouched(&header), b"queue", None).routing_key, b"k");
    for end in 0..header.len() {
        assert_eq!(&*Stored::of(&vouched(&header[..end]), b"queue", None).routing_key, b"queue", "{end} bytes");
    }
    let mut newer = header.to_vec();
    newer[0] = 2;
    assert_eq!(&*Stored::of(&vouched(&newer), b"queue", None).routing_key, b"queue");
    let null = Record {
        offset: Offset(0),
        timestamp: -1,
        key: None,
        value: None,
        headers: [(Bytes::from_static(HEADER), None)].into(),
        vouched: true,
    };
    assert_eq!(Stored::of(&null, b"queue", None).properties().timestamp(), None);
}

#[test]
fn headers_that_fit_no_frame_are_left_out() {
    let encoded = properties(|fields| fields.put(short("a"), Value::LongString(&[b'x'; 9000])));
    let record = stored(&Message {
        exchange: b"",
        routing_key: b"q",
        properties: EncodedProperties::trusted(&encoded),
        traits: MessageTraits::default(),
        body: &[],
    });
    let mut back = Stored::of(&record, b"q", None);
    back.fit(16 << 10);
    assert!(back.properties().headers().is_some());
    back.fit(8192);
    assert_eq!((back.properties().headers(), back.properties().delivery_mode()), (None, Some(2)));
}

#[test]
fn what_the_broker_does_not_vouch_for_is_what_anybody_may_say() {
    let mut encoded = BytesMut::new();
    let table = Table::build(|fields| fields.put(short("a"), 1i32));
    let (user_id, app_id) = (ShortBytes::new(b"root"), ShortBytes::new(b"shop"));
    Properties { user_id, app_id, headers: Some(table.view()), ..Properties::default() }.encode(&mut encoded);
    let properties = EncodedProperties::trusted(&encoded);
    let ours = stored(&Message {
        exchange: b"e",
        routing_key: b"k",
        properties,
        traits: MessageTraits::default(),
        body: &[b"body"],
    });
    let claimed = Record { vouched: false, ..ours.clone() };
    for (record, user, address) in
        [(&ours, user_id, (&b"e"[..], &b"k"[..])), (&claimed, None, (&b""[..], &b"queue"[..]))]
    {
        let mut memory = BytesMut::new();
        let tries = Some(Tries { counted: 1, spared: 0 });
        let all = [
            Stored::of(record, b"queue", None),
            Stored::of(record, b"queue", tries),
            Stored::of_stream(record, b"queue", 1 << 17, &mut memory),
        ];
        for back in all {
            assert_eq!((&*back.exchange, &*back.routing_key, &back.body[..]), (address.0, address.1, &b"body"[..]));
            let decoded = back.properties().decode();
            assert_eq!((decoded.user_id, decoded.app_id), (user, app_id));
            assert_eq!(decoded.headers.and_then(|table| table.get("a")), Some(Value::I32(1)));
        }
    }
}
