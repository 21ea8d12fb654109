//! Methods with random values, cut and damaged ones, and what is not a method.

use amqp_wire::{Method, MethodId, MethodInfo, Problem, ReplyCode, Sender};

use crate::allocations;
use crate::golden::{self, payload};
use crate::random::Rng;
use crate::table;

/// Arguments of the methods that have any: `o` octet, `h` 2 bytes, `l` 4, `q` 8, `b` bit, `s` short string, `r` short string that
/// need not be UTF-8, `S` long string, `t` table; `!` before what is reserved.
const SHAPES: &[(&str, &str)] = &[
    ("connection.start", "ootSS"),
    ("connection.start-ok", "tsSs"),
    ("connection.secure", "S"),
    ("connection.secure-ok", "S"),
    ("connection.tune", "hlh"),
    ("connection.tune-ok", "hlh"),
    ("connection.open", "s!r!b"),
    ("connection.open-ok", "!r"),
    ("connection.close", "hshh"),
    ("connection.blocked", "s"),
    ("connection.update-secret", "Ss"),
    ("channel.open", "!r"),
    ("channel.open-ok", "!S"),
    ("channel.flow", "b"),
    ("channel.flow-ok", "b"),
    ("channel.close", "hshh"),
    ("access.request", "sbbbbb"),
    ("access.request-ok", "h"),
    ("exchange.declare", "!hssbbbbbt"),
    ("exchange.delete", "!hsbb"),
    ("exchange.bind", "!hsssbt"),
    ("exchange.unbind", "!hsssbt"),
    ("queue.declare", "!hsbbbbbt"),
    ("queue.declare-ok", "sll"),
    ("queue.bind", "!hsssbt"),
    ("queue.purge", "!hsb"),
    ("queue.purge-ok", "l"),
    ("queue.delete", "!hsbbb"),
    ("queue.delete-ok", "l"),
    ("queue.unbind", "!hssst"),
    ("basic.qos", "lhb"),
    ("basic.consume", "!hssbbbbt"),
    ("basic.consume-ok", "s"),
    ("basic.cancel", "sb"),
    ("basic.cancel-ok", "s"),
    ("basic.publish", "!hrrbb"),
    ("basic.return", "hrrr"),
    ("basic.deliver", "rqbrr"),
    ("basic.get", "!hsb"),
    ("basic.get-ok", "qbrrl"),
    ("basic.get-empty", "!r"),
    ("basic.ack", "qb"),
    ("basic.reject", "qb"),
    ("basic.recover-async", "b"),
    ("basic.recover", "b"),
    ("basic.nack", "qbb"),
    ("confirm.select", "b"),
];

fn shape(name: &str) -> &'static str {
    SHAPES.iter().find(|(found, _)| *found == name).map_or("", |(_, shape)| shape)
}

/// A payload with random values; where something is reserved, nothing or anything.
fn random_payload(info: &MethodInfo, rng: &mut Rng, reserved: bool) -> Vec<u8> {
    let mut out = [info.id.class.to_be_bytes(), info.id.method.to_be_bytes()].concat();
    let (mut bit, mut skip) = (0, false);
    for kind in shape(info.name).bytes() {
        if kind == b'!' {
            skip = !reserved;
            continue;
        }
        if kind == b'b' {
            if bit % 8 == 0 {
                out.push(0);
            }
            *out.last_mut().unwrap() |= u8::from(!skip && rng.flip()) << (bit % 8);
            bit += 1;
            skip = false;
            continue;
        }
        bit = 0;
        let value = match kind {
            b'o' => rng.bytes(1),
            b'h' => rng.bytes(2),
            b'l' => rng.bytes(4),
            b'q' => rng.bytes(8),
            b's' | b'r' => {
                let bytes = if skip { 0 } else { rng.short_length() };
                let text = if kind == b's' { rng.text(bytes).into_bytes() } else { rng.bytes(bytes) };
                [vec![bytes as u8], text].concat()
            }
            b'S' | b't' => {
                let bytes = match kind {
                    _ if skip => Vec::new(),
                    b'S' => (0..rng.below(400)).map(|_| b'x').collect(),
                    _ => table::encode(&table::random_table(rng, 3)),
                };
                [(bytes.len() as u32).to_be_bytes().to_vec(), bytes].concat()
            }
            _ => panic!("{kind} is no kind"),
        };
        out.extend(if skip && kind == b'h' { vec![0, 0] } else { value });
        skip = false;
    }
    out
}

#[test]
fn random_values_come_back() {
    let mut rng = Rng(1);
    for info in MethodInfo::ALL {
        for _ in 0..200 {
            let bytes = random_payload(info, &mut rng, false);
            let (method, allocated) = allocations::count(|| Method::decode(&bytes));
            let method = method.unwrap_or_else(|error| panic!("{}: {error}: {bytes:02x?}", info.name));
            assert_eq!(payload(&method), bytes, "{}", info.name);
            assert_eq!(allocated, 0, "{}", info.name);
        }
    }
}

#[test]
fn what_is_reserved_may_be_anything() {
    let mut rng = Rng(2);
    for info in MethodInfo::ALL.iter().filter(|info| shape(info.name).contains('!')) {
        for _ in 0..50 {
            let bytes = random_payload(info, &mut rng, true);
            let method = Method::decode(&bytes).unwrap_or_else(|error| panic!("{}: {error}", info.name));
            assert_eq!(Method::decode(&payload(&method)), Ok(method), "{}", info.name);
        }
    }
}

#[test]
fn every_prefix_and_anything_behind_is_an_error() {
    let mut rng = Rng(3);
    for info in MethodInfo::ALL {
        let mut bytes = random_payload(info, &mut rng, true);
        for length in 0..bytes.len() {
            let error = Method::decode(&bytes[..length]).expect_err(info.name);
            assert_eq!(error.reply_code(), ReplyCode::FrameError, "{}: {error}", info.name);
            assert!(error.offset <= length && matches!(error.problem, Problem::Short { .. }), "{}: {error}", info.name);
        }
        bytes.push(0);
        let error = Method::decode(&bytes).expect_err(info.name);
        assert_eq!((error.problem, error.offset), (Problem::Trailing(1), bytes.len() - 1), "{}", info.name);
    }
}

#[test]
fn damaged_methods_do_not_panic() {
    let mut rng = Rng(4);
    let (mut good, mut bad) = (0, 0);
    for info in MethodInfo::ALL {
        for _ in 0..400 {
            let bytes = random_payload(info, &mut rng, true);
            let bytes = rng.damaged(&bytes);
            let (method, allocated) = allocations::count(|| Method::decode(&bytes));
            assert_eq!(allocated, 0, "{bytes:02x?}");
            match method {
                Ok(method) => {
                    good += 1;
                    assert!(!format!("{method:?}").is_empty());
                    // Floats that are not numbers differ from themselves, so bytes are compared.
                    let again = payload(&method);
                    assert_eq!(payload(&Method::decode(&again).expect("written by us")), again);
                }
                Err(error) => {
                    bad += 1;
                    assert!(error.offset <= bytes.len() && error.reply_code().is_hard());
                }
            }
        }
    }
    assert!(good > 1000 && bad > 1000, "{good} good, {bad} bad");
}

#[test]
fn what_is_no_method_is_not_implemented() {
    let known = |class, method| MethodId { class, method }.info().is_some();
    for class in (0..300).chain([u16::MAX]) {
        for method in (0..300).chain([u16::MAX]) {
            let bytes = [class.to_be_bytes(), method.to_be_bytes()].concat();
            let unknown = match Method::decode(&bytes) {
                Err(error) if error.reply_code() == ReplyCode::NotImplemented => {
                    assert_eq!(error.problem, Problem::UnknownMethod { class, method });
                    true
                }
                _ => false,
            };
            assert_eq!(unknown, !known(class, method), "{class}.{method}");
        }
    }
}

/// As RabbitMQ does: names that a client makes up have to be text, routing keys of messages do not.
#[test]
fn names_are_utf8_in_methods_without_content() {
    let error = Method::decode(&[0, 50, 0, 30, 0, 0, 1, 0xff, 0]).expect_err("a queue's name");
    assert_eq!((error.problem, error.field, error.reply_code()), (Problem::Utf8, "queue", ReplyCode::FrameError));
    assert!(Method::decode(&[0, 60, 0, 40, 0, 0, 1, 0xff, 0, 0]).is_ok(), "an exchange of a message");
}

/// Bits beyond those that a method has are ignored, as RabbitMQ does.
#[test]
fn unused_bits_are_ignored() {
    let bytes = [&[0, 60, 0, 80][..], &[0, 0, 0, 0, 0, 0, 0, 5], &[0xfe]].concat();
    let method = Method::decode(&bytes).expect("an ack");
    assert_eq!(payload(&method)[4..], [0, 0, 0, 0, 0, 0, 0, 5, 0]);
}

#[test]
fn malformed_arguments_are_a_syntax_error() {
    let declare = |table: &[u8]| {
        let length = (table.len() as u32).to_be_bytes();
        [&[0, 50, 0, 10, 0, 0, 1, b'q', 0][..], &length, table].concat()
    };
    assert!(Method::decode(&declare(b"\x01aV")).is_ok());
    let error = Method::decode(&declare(b"\x01aVx\x01aZ")).map(|_| ()).expect_err("no such type");
    assert_eq!((error.reply_code(), error.field), (ReplyCode::SyntaxError, "arguments"));
    let error = Method::decode(&declare(b"\x01aV\x01aZ")).map(|_| ()).expect_err("no such type");
    assert_eq!((error.problem, error.offset), (Problem::ValueType(b'Z'), 13 + 5));
}

#[test]
fn senders_are_the_specifications() {
    let of = |sender| MethodInfo::ALL.iter().filter(move |info| info.sender == sender).map(|info| info.name);
    let both = [
        "connection.close",
        "connection.close-ok",
        "channel.flow",
        "channel.flow-ok",
        "channel.close",
        "channel.close-ok",
        "basic.cancel",
        "basic.cancel-ok",
        "basic.ack",
        "basic.nack",
    ];
    assert_eq!(of(Sender::Both).collect::<Vec<_>>(), both);
    // Every answer comes from the broker, but those to its own questions.
    let answers: Vec<_> = of(Sender::Client).filter(|name| name.ends_with("-ok")).collect();
    assert_eq!(answers, ["connection.start-ok", "connection.secure-ok", "connection.tune-ok"]);
    let events: Vec<_> = of(Sender::Broker).filter(|name| !name.ends_with("-ok")).collect();
    let expected = [
        "connection.start",
        "connection.secure",
        "connection.tune",
        "connection.blocked",
        "connection.unblocked",
        "basic.return",
        "basic.deliver",
        "basic.get-empty",
    ];
    assert_eq!(events, expected);
}

#[test]
fn goldens_when_damaged_do_not_panic() {
    let mut rng = Rng(5);
    for (name, bytes, _) in golden::methods() {
        for length in 0..bytes.len() {
            assert!(Method::decode(&bytes[..length]).is_err(), "{name} cut to {length}");
        }
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            let _ = Method::decode(&flipped).map(|method| payload(&method));
        }
        let _ = Method::decode(&rng.bytes(40));
    }
}
