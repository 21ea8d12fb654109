//! What is gathered is written with one commit, and is as if each had been declared alone.

use routing::{Argument, Arguments, OwnedValue};
use types::ConnectionId;

use super::*;
use crate::queues::testing::{Node, name};

const MANY: usize = 300;

fn wish(queue: &str) -> QueueDeclaration {
    QueueDeclaration {
        name: name(queue),
        durable: true,
        owner: None,
        auto_delete: false,
        arguments: Arguments::default(),
    }
}

fn exchange(exchange: &str) -> Declaration<'static> {
    Declaration {
        name: name(exchange),
        kind: b"direct",
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: Arguments::default(),
    }
}

fn binding(queue: &str) -> BindingWish {
    BindingWish {
        source: name("events"),
        to_queue: true,
        destination: name(queue),
        key: name(queue),
        arguments: Arguments::default(),
    }
}

#[test]
fn many_are_written_with_one_commit() {
    let node = Node::open(1);
    let (broker, vhost, caller) = (&node.broker, node.vhost(), Caller::broker(ConnectionId(1)));
    let mut gathered = Gathered::default();
    let written = |node: &Node| node.broker.journals()[0].durable_index().0;
    let before = written(&node);
    assert!(matches!(gathered.declare_exchange(broker, &vhost, exchange("events"), &caller), Ok(Gathering::Later)));
    assert!(matches!(
        gathered.declare_exchange(broker, &vhost, exchange("events"), &caller),
        Ok(Gathering::Done(Declared::Existing))
    ));
    for number in 0..MANY {
        assert!(matches!(
            gathered.declare_queue(broker, &vhost, wish(&format!("q{number}")), &caller),
            Ok(Gathering::Later)
        ));
    }
    assert!(
        matches!(gathered.declare_queue(broker, &vhost, wish("q7"), &caller), Ok(Gathering::AfterOthers)),
        "it is on its way"
    );
    assert_eq!(written(&node), before, "nothing is written yet");
    let outcomes = gathered.write(broker);
    assert!(outcomes.len() == MANY + 1 && outcomes.iter().all(Result::is_ok));
    assert!(matches!(gathered.declare_queue(broker, &vhost, wish("q7"), &caller), Ok(Gathering::Done(_))));
    for number in 0..MANY {
        assert!(matches!(gathered.bind(broker, &vhost, binding(&format!("q{number}")), &caller), Ok(Gathering::Later)));
    }
    assert!(matches!(gathered.bind(broker, &vhost, binding("q7"), &caller), Ok(Gathering::Done(()))), "it is bound");
    assert!(gathered.bind(broker, &vhost, binding("missing"), &caller).is_err());
    assert_eq!(gathered.write(broker).len(), MANY);
    assert!(written(&node) - before < 10, "{} chunks", written(&node) - before);
    assert!(gathered.write(broker).is_empty(), "nothing is left");
    assert_eq!(vhost.exchanges().read().bindings_from(b"events").count(), MANY);
    node.close();
}

#[test]
fn what_is_not_written_is_not_there() {
    let node = Node::open(1);
    let (broker, vhost, caller) = (&node.broker, node.vhost(), Caller::broker(ConnectionId(1)));
    let mut gathered = Gathered::default();
    // More than any chunk takes.
    let value = OwnedValue::Bytes(vec![b'x'; 2 << 20].into());
    let large = || Arguments::new(vec![Argument { name: b"x-what"[..].into(), tag: b'S', value: value.clone() }]);
    let too_large = Declaration { arguments: large(), ..exchange("large") };
    assert!(matches!(gathered.declare_exchange(broker, &vhost, too_large, &caller), Ok(Gathering::Later)));
    assert!(matches!(gathered.declare_exchange(broker, &vhost, exchange("events"), &caller), Ok(Gathering::Later)));
    node.queue("there", Arguments::default());
    assert!(matches!(
        gathered.bind(broker, &vhost, BindingWish { arguments: large(), ..binding("there") }, &caller),
        Ok(Gathering::Later)
    ));
    assert!(matches!(gathered.bind(broker, &vhost, binding("there"), &caller), Ok(Gathering::Later)));
    let outcomes: Vec<bool> = gathered.write(broker).iter().map(Result::is_ok).collect();
    assert_eq!(outcomes, [false, true, false, true]);
    let table = vhost.exchanges().read();
    assert!(table.exchange(b"large").is_none() && table.exchange(b"events").is_some());
    assert_eq!(table.bindings_from(b"events").count(), 1);
    drop(table);
    node.close();
}
