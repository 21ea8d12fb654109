//! Channels: opened and closed, each with its own errors.

use amqp_wire::{ReplyCode, basic, channel, connection, queue, short};

use crate::node::{Node, publish};

/// What a client does.
type Send = Box<dyn Fn(&mut Node, usize)>;

#[test]
fn an_error_closes_one_channel_and_no_other() {
    let mut node = Node::start();
    let client = node.open();
    node.ask(client, 2, &channel::Open {});
    node.declare(client, "q");
    let nope = queue::Declare { queue: short("nope"), passive: true, ..queue::Declare::default() };
    node.send(client, 1, &nope);
    let close = node.next(client);
    assert_eq!(
        close.method,
        "Channel(Close(Close { reply_code: 404, reply_text: \"NOT_FOUND - no queue 'nope' in vhost '/'\", class_id: 50, method_id: 10 }))"
    );
    // What the client sends before it agrees is forgotten, messages included.
    node.send(client, 1, &queue::Declare { queue: short("ignored"), ..queue::Declare::default() });
    node.send_content(client, 1, &publish("", "q", false), &[0, 0], b"ignored");
    assert_eq!(node.ask(client, 1, &channel::Close::default()), "Channel(CloseOk(CloseOk))");
    node.send_content(client, 2, &publish("", "q", false), &[0, 0], b"kept");
    node.send(client, 1, &channel::CloseOk {});
    assert_eq!(node.ask(client, 1, &channel::Open {}), "Channel(OpenOk(OpenOk))");
    assert_eq!(node.get(client, "q", true).body, b"kept");
    assert_eq!(node.get(client, "q", true).method, "Basic(GetEmpty(GetEmpty))");
    node.send(client, 1, &queue::Declare { queue: short("ignored"), passive: true, ..queue::Declare::default() });
    assert_eq!(node.channel_error(client, 1).0, 404);
    node.stop();
}

#[test]
fn what_is_not_for_the_channel_ends_the_connection() {
    let mut node = Node::start();
    let error = |code: ReplyCode, text: &str| (code.number(), format!("{} - {text}", code.name()));
    let cases: Vec<(Send, _)> = vec![
        (
            Box::new(|node, client| node.send(client, 2, &queue::Declare::default())),
            error(ReplyCode::ChannelError, "expected 'channel.open'"),
        ),
        (
            Box::new(|node, client| node.send(client, 2, &channel::Close::default())),
            error(ReplyCode::ChannelError, "expected 'channel.open'"),
        ),
        (
            Box::new(|node, client| node.send(client, 1, &channel::Open {})),
            error(ReplyCode::ChannelError, "second 'channel.open' seen"),
        ),
        (
            Box::new(|node, client| node.send(client, 0, &queue::Declare::default())),
            error(ReplyCode::ChannelError, "unexpected method in connection state running"),
        ),
        (
            Box::new(|node, client| node.send(client, 1, &connection::Open::default())),
            error(ReplyCode::CommandInvalid, "unimplemented method"),
        ),
        (
            Box::new(|node, client| node.send(client, 1, &queue::PurgeOk::default())),
            error(ReplyCode::CommandInvalid, "unimplemented method"),
        ),
        (
            Box::new(|node, client| node.send(client, 1, &basic::GetEmpty {})),
            error(ReplyCode::CommandInvalid, "unimplemented method"),
        ),
        (
            Box::new(|node, client| node.send(client, 1, &channel::FlowOk { active: true })),
            error(ReplyCode::CommandInvalid, "unimplemented method"),
        ),
        (
            Box::new(|node, client| node.send(client, 1, &channel::Flow { active: false })),
            error(ReplyCode::NotImplemented, "active=false"),
        ),
    ];
    for (number, (send, expected)) in cases.into_iter().enumerate() {
        let client = node.open();
        send(&mut node, client);
        assert_eq!(node.connection_error(client), expected, "case {number}");
    }
    let client = node.open();
    assert_eq!(node.ask(client, 1, &channel::Flow { active: true }), "Channel(FlowOk(FlowOk { active: true }))");
    assert_eq!(
        node.ask(client, 1, &amqp_wire::access::Request::default()),
        "Access(RequestOk(RequestOk { ticket: 1 }))"
    );
    node.stop();
}

#[test]
fn there_are_as_many_channels_as_agreed() {
    let mut node = Node::start();
    let client = node.open();
    for number in 2..=2047 {
        assert_eq!(node.ask(client, number, &channel::Open {}), "Channel(OpenOk(OpenOk))");
    }
    node.send(client, 5000, &channel::Open {});
    let text = "NOT_ALLOWED - number of channels opened (2047) has reached the negotiated channel_max (2047)";
    assert_eq!(node.connection_error(client), (530, text.to_owned()));
    node.stop();
}

#[test]
fn channels_do_not_get_into_each_others_messages() {
    let mut node = Node::start();
    let client = node.open();
    node.ask(client, 2, &channel::Open {});
    node.declare(client, "q");
    // Frames of two messages, in turn.
    let parts = |number: u16, body: &[u8]| {
        let (mut method, mut header, mut rest) =
            (bytes::BytesMut::new(), bytes::BytesMut::new(), bytes::BytesMut::new());
        amqp_wire::write_method(&mut method, number, &publish("", "q", false));
        amqp_wire::ContentHeader { body_size: body.len() as u64, properties: amqp_wire::EncodedProperties::default() }
            .write(&mut header, number);
        amqp_wire::write_body(&mut rest, number, body, 9 + 2);
        [method, header, rest]
    };
    let (one, two) = (parts(1, b"first message"), parts(2, b"second message"));
    for (one, two) in one.iter().zip(&two) {
        node.raw(client, one);
        node.raw(client, two);
    }
    assert_eq!(
        [node.get(client, "q", true).body, node.get(client, "q", true).body],
        [b"first message".to_vec(), b"second message".to_vec()]
    );
    node.stop();
}
