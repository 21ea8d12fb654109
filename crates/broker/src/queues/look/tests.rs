//! Counts of queues of which nobody has had a turn since something came.

use ::record::BatchBuilder;
use bytes::Bytes;
use routing::{Argument, Arguments, OwnedValue};

use super::super::testing::Node;

/// Argument, its value, and how many messages of 10 bytes may stay.
const LIMITS: [(&str, i64, u64); 3] = [("x-max-length", 3, 3), ("x-max-length", 0, 0), ("x-max-length-bytes", 35, 3)];

fn limited(kind: &'static str, limit: &'static str, value: i64) -> Arguments {
    let argument = |name: &str, tag, value| Argument { name: name.as_bytes().into(), tag, value };
    let kind = argument("x-queue-type", b'S', OwnedValue::Bytes(kind.as_bytes().into()));
    Arguments::new(vec![kind, argument(limit, b'l', OwnedValue::Int(value))])
}

/// So many records in one batch.
fn burst(records: usize) -> Bytes {
    (0..records).fold(BatchBuilder::default(), |batch, _| batch.record(1_000, None, Some(b"0123456789"))).build()
}

/// A publisher's confirm comes with the commit, and the queue's turn later.
#[test]
fn counts_after_a_commit_are_within_the_limit() {
    let node = Node::open(1);
    for kind in ["classic", "quorum"] {
        for (number, (limit, value, left)) in LIMITS.into_iter().enumerate() {
            let queue = node.queue(&format!("{kind}-{number}"), limited(kind, limit, value));
            // More than one turn throws out, too.
            for records in [1, 2, 5, 1, 2_600] {
                node.broker.deposit(std::slice::from_ref(&queue), &burst(records)).expect("the journal takes it");
                let counts = node.broker.counts(&queue);
                assert!(counts.ready <= left, "{kind} {limit} {value}: {} after {records}", counts.ready);
            }
            assert_eq!(node.broker.counts(&queue).ready, left, "{kind} {limit} {value}");
        }
    }
    node.close();
}

#[test]
fn a_queue_without_a_limit_counts_all() {
    let node = Node::open(1);
    let queue = node.queue("all", Arguments::default());
    node.broker.deposit(std::slice::from_ref(&queue), &burst(2_600)).expect("the journal takes it");
    assert_eq!(node.broker.counts(&queue).ready, 2_600);
    node.close();
}
