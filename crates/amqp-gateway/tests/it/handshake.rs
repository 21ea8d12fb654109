//! How a connection begins and ends.

use std::time::Duration;

use amqp_wire::{ProtocolHeader, Table, Value, connection, short};
use broker::{PasswordWish, UserWish};

use crate::node::{FRAME_MAX, Node, capabilities, start_ok};

#[test]
fn another_protocol_is_told_what_is_spoken() {
    let mut node = Node::start();
    for header in [&b"AMQP\0\x01\0\0"[..], b"GET / HTTP/1.1"] {
        let client = node.connect();
        node.raw(client, header);
        assert_eq!(node.take_output(client)[..], *b"AMQP\0\0\x09\x01");
        assert!(node.ended(client).is_some());
    }
    node.stop();
}

#[test]
fn the_broker_says_what_clients_look_for() {
    let mut node = Node::start();
    let client = node.connect();
    let header = ProtocolHeader::AMQP_0_9_1.to_bytes();
    node.raw(client, &header[..3]);
    assert!(node.poll(client).is_none());
    node.raw(client, &header[3..]);
    let start = node.next(client).method;
    for word in [
        "RabbitMQ",
        "4.3.",
        "publisher_confirms",
        "basic.nack",
        "consumer_cancel_notify",
        "authentication_failure_close",
        "PLAIN AMQPLAIN ANONYMOUS",
    ] {
        let bytes = format!("{:?}", word.as_bytes());
        assert!(start.contains(word) || start.contains(bytes.trim_matches(['[', ']'])), "{word}: {start}");
    }
    node.stop();
}

#[test]
fn wrong_credentials_are_refused_as_the_client_understands_it() {
    let mut node = Node::start();
    for (response, peer) in [
        (&b"\0guest\0wrong"[..], "127.0.0.1:4"),
        (b"\0bob\0guest", "127.0.0.1:4"),
        (b"guest", "127.0.0.1:4"),
        (b"\0guest\0guest", "192.0.2.1:4"),
    ] {
        let client = node.connect_from(peer);
        node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
        node.next(client);
        node.send(client, 0, &start_ok(response, &capabilities()));
        let close = node.next(client).method;
        let text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.";
        assert!(close.contains("403") && close.contains(text), "{close}");
        assert!(
            node.ended(client).is_some_and(|reason| reason.starts_with("login of ") && reason.contains(" refused: "))
        );
    }
    let client = node.connect();
    node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
    node.next(client);
    node.send(client, 0, &start_ok(b"\0guest\0wrong", &Table::default()));
    assert!(node.take_output(client).is_empty(), "a client that does not know of such a close gets none");
    assert_eq!(node.ended(client), Some("login of \"guest\" refused: invalid credentials"));
    node.stop();
}

#[test]
fn amqplain_is_a_table() {
    let mut node = Node::start();
    let client = node.connect();
    node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
    node.next(client);
    let response = Table::build(|fields| {
        fields.put(short("LOGIN"), "guest");
        fields.put(short("PASSWORD"), "guest");
    });
    node.send(
        client,
        0,
        &connection::StartOk { mechanism: short("AMQPLAIN"), ..start_ok(response.as_bytes(), &Table::default()) },
    );
    assert!(node.next(client).method.starts_with("Connection(Tune("));
    node.stop();
}

/// Who says nothing is `guest`, as long as that one may come in.
#[test]
fn nobody_in_particular_is_guest() {
    let mut node = Node::start();
    let anonymous = |node: &mut Node, peer: &str| {
        let client = node.connect_from(peer);
        node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
        node.next(client);
        node.send(
            client,
            0,
            &connection::StartOk { mechanism: short("ANONYMOUS"), ..start_ok(b"anybody", &capabilities()) },
        );
        node.next(client).method
    };
    assert!(anonymous(&mut node, "127.0.0.1:4").starts_with("Connection(Tune("));
    let refused = "Login was refused using authentication mechanism ANONYMOUS.";
    assert!(anonymous(&mut node, "192.0.2.1:4").contains(refused));
    let password = PasswordWish::Clear("another".to_owned());
    node.broker
        .put_user(UserWish { name: "guest".to_owned(), password, tags: Some(Vec::new()), limits: None })
        .expect("added");
    assert!(anonymous(&mut node, "127.0.0.1:4").contains(refused), "guest has another password");
    node.stop();
}

#[test]
fn limits_and_virtual_host_are_checked() {
    let mut node = Node::start();
    let cases: [(u32, u16, &str, &str); 5] = [
        (0, 2047, "/", "NOT_ALLOWED - negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
        (
            200_000,
            2047,
            "/",
            "NOT_ALLOWED - negotiated frame_max = 200000 is higher than the maximum allowed value (131072)",
        ),
        (4096, 2047, "/", "NOT_ALLOWED - negotiated frame_max = 4096 is lower than the minimum allowed value (8192)"),
        (FRAME_MAX, 0, "/", "NOT_ALLOWED - negotiated channel_max = 0 is higher than the maximum allowed value (2047)"),
        (FRAME_MAX, 100, "nope", "NOT_ALLOWED - vhost nope not found"),
    ];
    for (frame_max, channel_max, vhost, text) in cases {
        let client = node.connect();
        node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
        node.next(client);
        node.send(client, 0, &start_ok(b"\0guest\0guest", &capabilities()));
        node.next(client);
        node.send(client, 0, &connection::TuneOk { channel_max, frame_max, heartbeat: 0 });
        node.send(client, 0, &connection::Open { virtual_host: crate::node::string(vhost) });
        assert_eq!(node.connection_error(client), (530, text.to_owned()));
    }
    node.stop();
}

#[test]
fn a_handshake_has_its_time_and_its_size() {
    let mut node = Node::start();
    let (slow, large, early) = (node.connect(), node.connect(), node.connect());
    for client in [slow, large, early] {
        node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
        node.next(client);
    }
    node.raw(large, &[1, 0, 0, 0, 0, 0x20, 1]);
    assert!(node.ended(large).is_some_and(|reason| reason.contains("8193")));
    node.send(early, 1, &amqp_wire::channel::Open {});
    assert!(node.ended(early).is_some());
    assert!(node.timeout(slow).is_some_and(|left| left <= Duration::from_secs(11)));
    node.advance(Duration::from_secs(12));
    assert_eq!(node.ended(slow), Some("handshake took too long"));
    assert!(node.timeout(slow).is_none());
    node.stop();
}

#[test]
fn both_sides_show_that_they_are_alive() {
    let mut node = Node::start();
    let client = node.connect();
    node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
    node.next(client);
    node.send(client, 0, &start_ok(b"\0guest\0guest", &capabilities()));
    node.next(client);
    node.send(client, 0, &connection::TuneOk { channel_max: 10, frame_max: 8192, heartbeat: 10 });
    node.send(client, 0, &connection::Open { virtual_host: short("/") });
    node.next(client);
    node.advance(Duration::from_secs(5));
    node.advance(Duration::from_secs(5));
    assert_eq!(node.next(client).method, "heartbeat");
    node.raw(client, &[8, 0, 0, 0, 0, 0, 0, 0xce]);
    node.advance(Duration::from_secs(15));
    assert_eq!(node.next(client).method, "heartbeat");
    assert!(node.ended(client).is_none());
    node.advance(Duration::from_secs(6));
    assert_eq!(node.ended(client), Some("missed heartbeats from the client"));
    node.stop();
}

#[test]
fn a_connection_ends_when_either_side_says_so() {
    let mut node = Node::start();
    let (client, other) = (node.open(), node.open());
    assert_eq!(
        node.ask(
            client,
            0,
            &connection::Close { reply_code: 200, reply_text: short("bye"), class_id: 0, method_id: 0 }
        ),
        "Connection(CloseOk(CloseOk))"
    );
    assert_eq!(node.ended(client), Some("closed by the client"));
    assert_eq!(
        node.ask(other, 0, &connection::UpdateSecret { new_secret: b"x", reason: short("y") }),
        "Connection(UpdateSecretOk(UpdateSecretOk))"
    );
    let now = node.now;
    node.session(other).drain(now);
    let (code, text) = node.connection_error(other);
    assert_eq!((code, &*text), (320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"));
    node.stop();
}

#[test]
fn a_client_that_does_not_agree_is_not_waited_for_long() {
    let mut node = Node::start();
    let client = node.open();
    node.send(client, 0, &connection::OpenOk {});
    assert!(node.next(client).method.contains("unexpected method in connection state running"));
    node.send(client, 1, &amqp_wire::basic::Qos { prefetch_size: 1, ..Default::default() });
    assert!(node.poll(client).is_none(), "what comes after the close is forgotten");
    node.advance(Duration::from_secs(6));
    assert!(node.ended(client).is_some());
    node.stop();
}

#[test]
fn a_value_of_the_client_is_not_mistaken_for_a_capability() {
    let properties = Table::build(|fields| fields.put(short("capabilities"), Value::Void));
    let mut node = Node::start();
    let client = node.connect();
    node.raw(client, &ProtocolHeader::AMQP_0_9_1.to_bytes());
    node.next(client);
    node.send(client, 0, &start_ok(b"\0guest\0guest", &properties));
    assert!(node.next(client).method.starts_with("Connection(Tune("));
    node.stop();
}
