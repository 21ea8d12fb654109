//! Null brokers against the client libraries that they are for, and against what is no client.

mod clients;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clients::{PUBLISH, Publish, in_client, publish_amqp, publish_kafka, publish_nats, publish_pulsar};
use rdkafka::config::ClientConfig;

use super::*;

const MESSAGES: u64 = 10_000;

/// All of it is acknowledged by a null broker that is started for this.
fn publishes(protocol: &str, publish: Publish) {
    let null = start(protocol, Options { partitions: 3 }).unwrap();
    assert_eq!(publish(null.address, MESSAGES), MESSAGES);
}

#[test]
fn kafka_messages_are_acknowledged() {
    publishes("kafka", publish_kafka);
}

#[test]
fn amqp_messages_are_confirmed() {
    publishes("amqp", publish_amqp);
}

#[test]
fn amqp_messages_are_handed_on() {
    let null = start("amqp", Options::default()).unwrap();
    let seen = in_client(clients::echo_amqp(null.address, 3000));
    assert_eq!(seen, (0..3000).map(|number| format!("message {number}").into_bytes()).collect::<Vec<_>>());
}

#[test]
fn pulsar_messages_get_receipts() {
    publishes("pulsar", publish_pulsar);
}

#[test]
fn nats_messages_are_acknowledged() {
    publishes("nats", publish_nats);
}

#[test]
fn kafka_topics_are_created_and_deleted() {
    use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
    use rdkafka::client::DefaultClientContext;
    let null = start("kafka", Options { partitions: 3 }).unwrap();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", null.address.to_string());
    let client: AdminClient<DefaultClientContext> = config.create().unwrap();
    in_client(async {
        let topic = NewTopic::new("topic", 3, TopicReplication::Fixed(1));
        let created = client.create_topics([&topic], &AdminOptions::new()).await.unwrap();
        assert_eq!(created, [Ok("topic".to_owned())]);
        let deleted = client.delete_topics(&["topic"], &AdminOptions::new()).await.unwrap();
        assert_eq!(deleted, [Ok("topic".to_owned())]);
    });
    let metadata = client.inner().fetch_metadata(Some("topic"), Duration::from_secs(30)).unwrap();
    assert_eq!(metadata.topics()[0].partitions().len(), 3);
}

/// Bytes without any sense, the same on every run.
fn garbage(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// The server ends the connection once it got these bytes; what it said before.
fn refused(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It may well close before all is sent.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    if let Err(error) = stream.read_to_end(&mut said) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "after {said:?}");
    }
    said
}

#[test]
fn garbage_ends_its_connection_alone() {
    for (protocol, publish) in PUBLISH {
        let null = start(protocol, Options::default()).unwrap();
        refused(null.address, &garbage(1 << 20));
        assert_eq!(publish(null.address, 10), 10, "{protocol}");
    }
}

#[test]
fn a_huge_length_ends_the_connection() {
    let amqp = [&b"AMQP\0\0\x09\x01"[..], b"\x03\0\x01\xff\xff\xff\xff"].concat();
    let huge: [(&str, &[u8]); 5] = [
        ("kafka", b"\x7f\xff\xff\xff"),
        ("kafka", b"\x07\0\0\0\0\x03\0\x01"),
        ("amqp", &amqp),
        ("pulsar", b"\xff\xff\xff\xff"),
        ("nats", b"PUB a b 999999999999\r\n"),
    ];
    for (protocol, bytes) in huge {
        let null = start(protocol, Options::default()).unwrap();
        refused(null.address, bytes);
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i16).to_be_bytes(), text.as_bytes()].concat()
}

/// Two topics with three partitions, in version 8.
fn produce_request() -> Vec<u8> {
    let partition =
        |index: i32, batches: &[u8]| [&index.to_be_bytes(), &(batches.len() as i32).to_be_bytes(), batches].concat();
    let body = [
        &[0, 0, 0, 8, 0, 0, 0, 7][..],
        &text("client"),
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2],
        &text("first"),
        &[0, 0, 0, 2],
        &partition(0, &[1; 10]),
        &partition(1, &[2; 20]),
        &text("second"),
        &[0, 0, 0, 1],
        &partition(0, &[]),
    ];
    let body = body.concat();
    [&(body.len() as u32).to_be_bytes(), &*body].concat()
}

/// A stream on which nothing is said.
fn unused() -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    TcpStream::connect(listener.local_addr().unwrap()).unwrap()
}

/// The server's side of a connection of that protocol.
fn session(protocol: &str) -> Box<dyn Session> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    match protocol {
        "kafka" => Box::new(kafka::Kafka::new(Options::default(), address)),
        "amqp" => Box::new(amqp::Amqp::new(&unused(), Arc::default()).unwrap()),
        "pulsar" => Box::new(pulsar::Pulsar::new(Options::default(), address)),
        _ => Box::new(nats::Nats::default()),
    }
}

/// A whole conversation of each protocol, as the client's side says it.
fn conversations() -> [(&'static str, Vec<u8>); 4] {
    let metadata = [&[0, 0, 0, 21, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 1][..], &text("topic")].concat();
    let amqp = [
        &b"AMQP\0\0\x09\x01"[..],
        b"\x01\0\0\0\0\0\x04\0\x0a\0\x0b\xce\x01\0\0\0\0\0\x04\0\x0a\0\x28\xce",
        b"\x01\0\x01\0\0\0\x05\0\x14\0\x0a\0\xce\x01\0\x01\0\0\0\x05\0\x55\0\x0a\0\xce",
        b"\x01\0\x01\0\0\0\x0d\0\x32\0\x0a\0\0\x01q\0\0\0\0\0\xce",
        b"\x01\0\x01\0\0\0\x0a\0\x3c\0\x28\0\0\0\x01q\0\xce",
        b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\x02\0\0\xce",
        b"\x03\0\x01\0\0\0\x02hi\xce\x08\0\0\0\0\0\0\xce\x01\0\x01\0\0\0\x04\0\x14\0\x28\xce",
    ];
    let pulsar = [
        &b"\0\0\0\x0b\0\0\0\x07\x08\x02\x12\x03\x0a\x01c"[..],
        b"\0\0\0\x10\0\0\0\x0c\x08\x17\xba\x01\x07\x0a\x01t\x10\x01\x18\0",
        b"\0\0\0\x13\0\0\0\x08\x08\x06\x32\x04\x08\x01\x10\x02message",
    ];
    let nats = [
        &b"CONNECT {}\r\nPING\r\nSUB in.* 1\r\n"[..],
        b"PUB a in.b 2\r\nhi\r\nHPUB $JS.API.INFO in.c 1 2\r\nhi\r\nUNSUB 1\r\n",
    ];
    [
        ("kafka", [produce_request(), metadata].concat()),
        ("amqp", amqp.concat()),
        ("pulsar", pulsar.concat()),
        ("nats", nats.concat()),
    ]
}

/// What a session answers to these bytes when they arrive in pieces of this length.
fn in_pieces(session: &mut dyn Session, bytes: &[u8], piece: usize) -> Result<Vec<u8>> {
    let (mut answers, mut begin) = (Vec::new(), 0);
    for end in (piece..bytes.len()).step_by(piece).chain([bytes.len()]) {
        while begin <= end
            && let Some(taken) = session.step(&bytes[begin..end], &mut answers)?
        {
            begin += taken;
        }
    }
    session.settle(&mut answers);
    ensure!(begin == bytes.len(), "{begin} of {} bytes were taken", bytes.len());
    Ok(answers)
}

#[test]
fn a_conversation_may_arrive_in_any_pieces() {
    for (protocol, said) in conversations() {
        let answers = in_pieces(&mut *session(protocol), &said, said.len()).unwrap();
        for length in 1..said.len() {
            assert_eq!(in_pieces(&mut *session(protocol), &said, length).unwrap(), answers);
        }
    }
}

#[test]
fn messages_that_are_handed_on_may_arrive_in_any_pieces() {
    let (_, said) = conversations().into_iter().find(|(protocol, _)| *protocol == "amqp").unwrap();
    let consume = b"\x01\0\x01\0\0\0\x0e\0\x3c\0\x14\0\0\x01q\0\0\0\0\0\0\xce";
    let publish = said.windows(4).position(|bytes| bytes == b"\0\x3c\0\x28").unwrap() - 7;
    // Without the end of the channel, which ends its consumers.
    let said = [&said[..publish], consume, &said[publish..said.len() - 12]].concat();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for length in 1..said.len() {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut client, _) = listener.accept().unwrap();
        let mut session = amqp::Amqp::new(&stream, Arc::default()).unwrap();
        in_pieces(&mut session, &said, length).unwrap();
        drop((session, stream));
        let mut delivered = Vec::new();
        client.read_to_end(&mut delivered).unwrap();
        assert!(delivered.windows(2).any(|bytes| bytes == b"hi"), "in pieces of {length}");
    }
}

#[test]
fn no_flaw_in_a_conversation_is_more_than_refused() {
    for (protocol, mut said) in conversations() {
        for at in 0..said.len() {
            let right = said[at];
            for wrong in [0, 1, 2, 0x0a, b' ', 0x7f, 0x80, 0xff, right ^ 0x10, right.wrapping_add(1)] {
                said[at] = wrong;
                for piece in [said.len(), 7] {
                    // Whether it is refused depends on the flaw: to panic is what it may not.
                    let _ = in_pieces(&mut *session(protocol), &said, piece);
                }
            }
            said[at] = right;
        }
    }
}

#[test]
fn produce_is_answered_by_partition() {
    let mut session = kafka::Kafka::new(Options::default(), (Ipv4Addr::LOCALHOST, 1).into());
    let request = produce_request();
    let answer = in_pieces(&mut session, &request, request.len()).unwrap();
    let response = bytes::Bytes::copy_from_slice(&answer[8..]);
    let response = kafka_wire::produce::ProduceResponse::decode(&mut kafka_wire::Reader::new(response), 8).unwrap();
    let named: Vec<_> =
        response.responses.iter().map(|topic| (&*topic.name, topic.partition_responses.len())).collect();
    assert_eq!(named, [("first", 2), ("second", 1)]);
}

#[test]
fn long_payloads_are_dropped_unseen() {
    let null = start("nats", Options::default()).unwrap();
    let mut stream = TcpStream::connect(null.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut sent = b"SUB in.* 7\r\n".to_vec();
    for number in 0..3 {
        sent.extend_from_slice(format!("PUB a in.{number} 3000000\r\n").as_bytes());
        sent.resize(sent.len() + 3_000_000, b'm');
        sent.extend_from_slice(b"\r\n");
    }
    sent.extend_from_slice(b"PING\r\n");
    stream.write_all(&sent).unwrap();
    let mut said = String::new();
    let mut bytes = [0; 4096];
    while !said.ends_with("PONG\r\n") {
        let read = stream.read(&mut bytes).unwrap();
        assert_ne!(read, 0, "after {said}");
        said.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    let answers: Vec<&str> = said.lines().skip(1).collect();
    assert_eq!(
        answers,
        [
            "MSG in.0 7 25",
            r#"{"stream":"null","seq":1}"#,
            "MSG in.1 7 25",
            r#"{"stream":"null","seq":2}"#,
            "MSG in.2 7 25",
            r#"{"stream":"null","seq":3}"#,
            "PONG"
        ]
    );
}

#[test]
fn dropping_it_ends_its_connections() {
    let null = start("pulsar", Options::default()).unwrap();
    let address = null.address;
    let mut stream = TcpStream::connect(address).unwrap();
    // Serving it has begun when it answers.
    stream.write_all(b"\0\0\0\x09\0\0\0\x05\x08\x12\x92\x01\0").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    drop(null);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn an_unknown_protocol_is_named_with_the_nearest() {
    let error = start("kafak", Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "no null broker for `kafak`; did you mean `kafka`?");
}
