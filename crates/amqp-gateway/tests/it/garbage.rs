//! Whatever comes in, the session says something sensible or closes; it never panics.

use amqp_wire::{
    EncodedProperties, ProtocolHeader, basic, channel, connection, exchange, queue, short, tx, write_content,
    write_method,
};
use bytes::BytesMut;

use crate::node::{Node, capabilities, publish, start_ok};

/// A conversation of a client, from the first byte on.
fn conversation() -> Vec<u8> {
    let mut out = BytesMut::from(&ProtocolHeader::AMQP_0_9_1.to_bytes()[..]);
    let properties = capabilities();
    write_method(&mut out, 0, &start_ok(b"\0guest\0guest", &properties));
    write_method(&mut out, 0, &connection::TuneOk { channel_max: 10, frame_max: 8192, heartbeat: 0 });
    write_method(&mut out, 0, &connection::Open { virtual_host: short("/") });
    write_method(&mut out, 1, &channel::Open {});
    write_method(
        &mut out,
        1,
        &exchange::Declare { exchange: short("e"), kind: short("topic"), ..exchange::Declare::default() },
    );
    write_method(&mut out, 1, &queue::Declare { queue: short("q"), exclusive: true, ..queue::Declare::default() });
    write_method(
        &mut out,
        1,
        &queue::Bind { queue: short("q"), exchange: short("e"), routing_key: short("#"), ..queue::Bind::default() },
    );
    write_content(&mut out, 1, &publish("e", "a.b", true), EncodedProperties::default(), b"body", 8192);
    write_method(
        &mut out,
        1,
        &basic::Consume { queue: short("q"), consumer_tag: short("c"), ..basic::Consume::default() },
    );
    write_method(&mut out, 1, &basic::Get { queue: short("q"), no_ack: false });
    write_method(&mut out, 1, &basic::Ack { delivery_tag: 1, multiple: true });
    write_method(&mut out, 1, &tx::Select {});
    write_content(&mut out, 1, &publish("e", "a.b", true), EncodedProperties::default(), b"body", 8192);
    write_method(&mut out, 1, &tx::Commit {});
    write_method(&mut out, 1, &channel::Close::default());
    out.to_vec()
}

/// Nothing but a clean close, or more bytes wanted, may come of it.
fn survives(node: &mut Node, bytes: &[u8]) {
    let client = node.connect();
    node.raw(client, bytes);
    node.take_output(client);
    assert!(!node.session(client).is_broken());
    node.close(client);
}

#[test]
fn a_conversation_that_breaks_off_anywhere_does_no_harm() {
    let mut node = Node::start();
    let whole = conversation();
    for end in (0..whole.len()).step_by(3) {
        survives(&mut node, &whole[..end]);
    }
    let client = node.open();
    node.declare(client, "still-there");
    node.stop();
}

#[test]
fn a_byte_that_is_wrong_anywhere_does_no_harm() {
    let mut node = Node::start();
    let whole = conversation();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= [0xff, 0x01, 0x80][at % 3];
        survives(&mut node, &changed);
    }
    let client = node.open();
    node.declare(client, "still-there");
    node.stop();
}

#[test]
fn noise_on_an_open_connection_does_no_harm() {
    let mut node = Node::start();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..300 {
        let client = node.open();
        let mut noise = BytesMut::new();
        for _ in 0..6 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = state.to_be_bytes();
            let length = usize::from(bytes[0] % 40);
            let payload: Vec<u8> = (0..length).map(|at| bytes[at % 8].wrapping_mul(at as u8 | 1)).collect();
            let class = [10u8, 20, 30, 40, 50, 60, 85, 90][usize::from(bytes[1] % 8)];
            noise.extend_from_slice(&[
                [1, 2, 3, 8][usize::from(bytes[2] % 4)],
                0,
                bytes[3] % 3,
                0,
                0,
                0,
                length as u8 + 4,
            ]);
            noise.extend_from_slice(&[0, class, 0, bytes[4] % 12 * 10 + bytes[5] % 2]);
            noise.extend_from_slice(&payload);
            noise.extend_from_slice(&[0xce]);
        }
        node.raw(client, &noise);
        while node.poll(client).is_some() {}
        assert!(!node.session(client).is_broken());
        node.close(client);
    }
    node.stop();
}
