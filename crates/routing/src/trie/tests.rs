//! What a trie keeps when patterns come and go.

use super::Trie;
use crate::binding::{Bindings, Entry, QueueId, Target};
use crate::route::{STEPS_MAX, Scratch, Steps};
use crate::value::Arguments;

fn scratch() -> Scratch {
    let mut scratch = Scratch::default();
    scratch.steps = Steps::new(STEPS_MAX);
    scratch
}

fn add(trie: &mut Trie, bindings: &mut Bindings, key: &str, queue: u64) -> u32 {
    let (target, arguments) = (Target::Queue(QueueId(queue)), Arguments::default());
    let entry = Entry {
        source: 1,
        target,
        key: key.as_bytes().into(),
        arguments,
        outgoing_place: 0,
        incoming_place: 0,
        group_place: 0,
    };
    let id = bindings.add(entry);
    trie.insert(id, bindings);
    id
}

#[test]
fn nodes_of_patterns_that_are_gone_go_with_them() {
    let (mut trie, mut bindings) = (Trie::new(), Bindings::default());
    let patterns = ["a.b.c", "a.b", "a.*.c", "a.#", "#.#", "", "a..b", "*", ".", "a.b.c"];
    let ids: Vec<_> = (0u64..).zip(patterns).map(|(queue, key)| add(&mut trie, &mut bindings, key, queue)).collect();
    assert_eq!(trie.node_count(), 14);
    for id in &ids[..9] {
        trie.remove(*id, &mut bindings);
    }
    assert_eq!(trie.node_count(), 4, "the root and a.b.c");
    trie.remove(ids[9], &mut bindings);
    assert_eq!((trie.node_count(), trie.children.len()), (1, 0));
}

#[test]
fn each_match_is_told_once() {
    let (mut trie, mut bindings) = (Trie::new(), Bindings::default());
    for (queue, key) in (0u64..).zip(["#", "#.#", "#.*.#", "#.a.#", "#.#.a", "a.#.#.a", "*.#", "#.*"]) {
        add(&mut trie, &mut bindings, key, queue);
    }
    let told = |key: &[u8]| {
        let mut told = Vec::new();
        trie.select(key, &mut scratch(), |group| told.extend_from_slice(group)).expect("few steps");
        told.sort_unstable();
        told
    };
    assert_eq!(told(b""), [0, 1]);
    assert_eq!(told(b"b"), [0, 1, 2, 6, 7]);
    assert_eq!(told(b"a"), [0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(told(b"a.b.a.a"), [0, 1, 2, 3, 4, 5, 6, 7]);
}
