//! Exchanges that send each message along one of their bindings.

use std::collections::HashSet;

use routing::{BindError, Destination, InvalidBinding, Table};

use crate::{add_queues, bind, queue, route, with};

fn table(kind: &str) -> Table {
    let mut table = Table::new();
    table.declare(with("one", kind, Vec::new())).unwrap();
    add_queues(&mut table, 4);
    table
}

#[test]
fn a_random_exchange_takes_one_binding_and_each_in_time() {
    for kind in ["x-random", "x-local-random"] {
        let mut table = table(kind);
        assert_eq!(route(&table, "one", &["nobody is bound"]), [] as [u64; 0]);
        (0..4).for_each(|id| bind(&mut table, "one", queue(id), ""));
        let (mut found, mut counts) = (Vec::new(), [0; 4]);
        let mut scratch = routing::Scratch::default();
        for _ in 0..4_000 {
            table
                .exchange(b"one")
                .unwrap()
                .route(&[b"key"], &routing::NoHeaders, &mut scratch, &mut found)
                .expect("few steps");
            assert_eq!(found.len(), 1);
            counts[found[0].0 as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{kind}: {counts:?}");
        let first: HashSet<_> = (0..100).flat_map(|_| route(&table, "one", &["key"])).collect();
        assert_eq!(first.len(), 4, "{kind}: not the same one in each fresh scratch");
    }
}

#[test]
fn a_local_random_exchange_leads_to_queues_without_keys() {
    let mut table = table("x-local-random");
    let refused = table.bind(b"one", Destination::Queue(routing::QueueId(0)), b"key", &Default::default());
    assert_eq!(refused, Err(BindError::Invalid(InvalidBinding::KeyGiven("key".into()))));
    let refused = table.bind(b"one", Destination::Exchange(b"amq.direct"), b"", &Default::default());
    assert_eq!(refused, Err(BindError::Invalid(InvalidBinding::NoQueue)));
}

#[test]
fn a_modulus_exchange_sends_the_same_keys_to_the_same_queue_in_whatever_order_they_were_bound() {
    let (mut one, mut other) = (table("x-modulus-hash"), table("x-modulus-hash"));
    (0..4).for_each(|id| bind(&mut one, "one", queue(id), "any"));
    (0..4).rev().for_each(|id| bind(&mut other, "one", queue(id), "any"));
    let mut used = HashSet::new();
    for number in 0..1_000 {
        let key = format!("key {number}");
        let found = route(&one, "one", &[&key]);
        assert_eq!((found.len(), &found), (1, &route(&other, "one", &[&key])));
        used.extend(found);
    }
    assert_eq!(used.len(), 4);
    assert_ne!(
        (0..64).map(|number| route(&one, "one", &["a", &number.to_string()])).collect::<HashSet<_>>().len(),
        1,
        "all keys of a message count"
    );
    one.unbind(b"one", Destination::Queue(routing::QueueId(2)), b"any", &Default::default()).unwrap();
    assert!((0..1_000).all(|number| route(&one, "one", &[&number.to_string()]) != [2]));
}
