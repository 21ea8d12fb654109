//! What `docs/compatibility.md` says of methods: each that a client may send is served, each that it may not is refused.

use amqp_wire::{Method, MethodId, MethodInfo, ReplyCode, Sender, connection};

use crate::node::Node;

/// A method frame for channel 1 whose arguments are all zero, empty or false, as many bytes as the method takes; the last byte may be another.
fn frame(id: MethodId, last: u8) -> Vec<u8> {
    let payload = |zeros: usize| [&id.class.to_be_bytes()[..], &id.method.to_be_bytes(), &vec![0; zeros]].concat();
    let mut payload =
        (0..64).map(payload).find(|payload| Method::decode(payload).is_ok()).expect("arguments that can be read");
    if let [.., end] = &mut payload[4..] {
        *end = last;
    }
    [&[1, 0, 1][..], &(payload.len() as u32).to_be_bytes(), &payload, &[0xce]].concat()
}

/// Is a method answered as one that is not there?
fn is_unserved(info: &MethodInfo, last: u8) -> bool {
    let mut node = Node::start();
    let client = node.open();
    node.raw(client, &frame(info.id, last));
    // Whoever is still there is asked to close: what comes before says what became of the method.
    node.send(client, 0, &connection::Close::default());
    let codes =
        [ReplyCode::CommandInvalid, ReplyCode::NotImplemented].map(|code| format!("reply_code: {}", code.number()));
    let mut unserved = false;
    loop {
        let seen = node.next(client).method;
        unserved |= codes.iter().any(|code| seen.contains(code));
        if seen.starts_with("Connection(Close") {
            node.stop();
            return unserved;
        }
    }
}

#[test]
fn clients_are_served_every_method_that_they_may_send_and_no_other() {
    // Those of the handshake are over when a channel is open, and these answer what nobody has asked here.
    let others = ["channel.flow-ok", "channel.close-ok"];
    // One word of these is not served, nor by RabbitMQ: `active=false`, `requeue=false`.
    let halves = ["channel.flow", "basic.recover", "basic.recover-async"];
    for info in MethodInfo::ALL.iter().filter(|info| info.id.class != 10 && !others.contains(&info.name)) {
        let is_half = halves.contains(&info.name);
        assert_eq!(is_unserved(info, 0), info.sender == Sender::Broker || is_half, "{}", info.name);
        assert!(!is_half || !is_unserved(info, 1), "{}", info.name);
    }
}
