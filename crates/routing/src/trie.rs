//! Topic exchanges: patterns of words in a trie, walked with a set of states.
//!
//! A key is split at its dots; the empty key has no words, and `a..b` has an empty one. In a pattern the word `*` stands for
//! one word, `#` for any number of them, none included.
//!
//! One step per word of the routing key takes the set of nodes that the words so far lead to into the next. A node other
//! than `#` is reached from its parent alone, one word later, so it cannot come twice if its parent did not. A `#` node takes any
//! word and stays, once it is reached, until the end; it is entered once. So a set never has more members than the trie
//! has nodes, and no pattern makes the walk take more than words × nodes reached; nothing is looked at that the words so far
//! do not lead to.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use crate::binding::{BindingId, Bindings};
use crate::key_index::{Group, join, leave};
use crate::route::Scratch;

type NodeId = u32;

const ROOT: NodeId = 0;
/// The root is nobody's child.
const NONE: NodeId = 0;

/// A word as it leads from a node to a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    Word(&'a [u8]),
    One,
    Any,
}

impl<'a> Step<'a> {
    fn of(word: &'a [u8]) -> Self {
        match word {
            b"*" => Self::One,
            b"#" => Self::Any,
            word => Self::Word(word),
        }
    }
}

/// The words of a key.
fn words(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.split(|byte| *byte == b'.').take(if key.is_empty() { 0 } else { usize::MAX })
}

#[derive(Debug, Default)]
struct Node {
    parent: NodeId,
    /// Children by `*` and `#`; those by a word are in the trie's table.
    one: NodeId,
    any: NodeId,
    /// Children by a word.
    word_children: u32,
    word: SmallVec<[u8; 16]>,
    group: Group,
}

impl Node {
    fn idle(&self) -> bool {
        self.group.is_empty() && self.word_children == 0 && self.one == NONE && self.any == NONE
    }
}

/// The patterns of a topic exchange.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    /// Children by a word, found by parent and word.
    children: HashTable<NodeId>,
    hasher: DefaultHashBuilder,
}

/// Hash of a word below a node: the word's part is computed once for all nodes that it is looked up at.
fn child_hash(parent: NodeId, word_hash: u64) -> u64 {
    (word_hash ^ u64::from(parent)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Trie {
    pub fn new() -> Self {
        let hasher = DefaultHashBuilder::default();
        Self { nodes: vec![Node::default()], free: Vec::new(), children: HashTable::new(), hasher }
    }

    fn hash(&self, word: &[u8]) -> u64 {
        word_hash(&self.hasher, word)
    }

    fn child(&self, parent: NodeId, step: Step<'_>) -> NodeId {
        match step {
            Step::One => self.nodes[parent as usize].one,
            Step::Any => self.nodes[parent as usize].any,
            Step::Word(word) => self.word_child(parent, word, self.hash(word)),
        }
    }

    fn word_child(&self, parent: NodeId, word: &[u8], word_hash: u64) -> NodeId {
        if self.nodes[parent as usize].word_children == 0 {
            return NONE;
        }
        let is = |id: &NodeId| {
            let node = &self.nodes[*id as usize];
            node.parent == parent && *node.word == *word
        };
        self.children.find(child_hash(parent, word_hash), is).copied().unwrap_or(NONE)
    }

    fn make_child(&mut self, parent: NodeId, step: Step<'_>) -> NodeId {
        let word = if let Step::Word(word) = step { word } else { &[] };
        let node = Node { parent, word: SmallVec::from_slice(word), ..Node::default() };
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes fit in memory")
            }
        };
        let above = &mut self.nodes[parent as usize];
        match step {
            Step::One => above.one = id,
            Step::Any => above.any = id,
            Step::Word(word) => {
                above.word_children += 1;
                let (nodes, hasher) = (&self.nodes, &self.hasher);
                self.children.insert_unique(child_hash(parent, word_hash(hasher, word)), id, |id| {
                    let node = &nodes[*id as usize];
                    child_hash(node.parent, word_hash(hasher, &node.word))
                });
            }
        }
        id
    }

    pub fn insert(&mut self, id: BindingId, bindings: &mut Bindings) {
        let mut node = ROOT;
        for word in words(&bindings.get(id).key) {
            let step = Step::of(word);
            let child = self.child(node, step);
            node = if child == NONE { self.make_child(node, step) } else { child };
        }
        join(&mut self.nodes[node as usize].group, id, bindings);
    }

    pub fn remove(&mut self, id: BindingId, bindings: &mut Bindings) {
        let mut node = ROOT;
        for word in words(&bindings.get(id).key) {
            node = self.child(node, Step::of(word));
            assert_ne!(node, NONE, "each pattern has its nodes");
        }
        leave(&mut self.nodes[node as usize].group, id, bindings);
        while node != ROOT && self.nodes[node as usize].idle() {
            node = self.remove_node(node);
        }
    }

    /// Frees a node without bindings and children, and says its parent.
    fn remove_node(&mut self, id: NodeId) -> NodeId {
        let Node { parent, word, .. } = std::mem::take(&mut self.nodes[id as usize]);
        let hash = child_hash(parent, self.hash(&word));
        let above = &mut self.nodes[parent as usize];
        if above.one == id {
            above.one = NONE;
        } else if above.any == id {
            above.any = NONE;
        } else {
            above.word_children -= 1;
            self.children.find_entry(hash, |found| *found == id).expect("each child is in the table").remove();
        }
        self.free.push(id);
        parent
    }

    /// Tells the groups of all patterns that match the key, each once.
    pub fn select(&self, key: &[u8], scratch: &mut Scratch, mut found: impl FnMut(&[BindingId])) {
        let Scratch { nodes, next, any_nodes, any_seen, .. } = scratch;
        nodes.clear();
        any_nodes.clear();
        any_seen.begin();
        let mut walk = Walk { trie: self, any_nodes, any_seen };
        walk.enter(ROOT, nodes);
        for word in words(key) {
            next.clear();
            let hash = self.hash(word);
            // What this word enters of the `#` nodes takes the words after it.
            let any_count = walk.any_nodes.len();
            for node in &*nodes {
                walk.step(*node, word, hash, next);
            }
            for at in 0..any_count {
                walk.step(walk.any_nodes[at], word, hash, next);
            }
            std::mem::swap(nodes, next);
            if nodes.is_empty() && walk.any_nodes.is_empty() {
                return;
            }
        }
        for node in nodes.iter().chain(&*walk.any_nodes) {
            found(&self.nodes[*node as usize].group);
        }
    }

    #[cfg(test)]
    pub fn node_count(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}

fn word_hash(hasher: &DefaultHashBuilder, word: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    word.hash(&mut state);
    std::hash::Hasher::finish(&state)
}

struct Walk<'a> {
    trie: &'a Trie,
    /// The `#` nodes reached; they stay.
    any_nodes: &'a mut Vec<NodeId>,
    any_seen: &'a mut crate::route::Seen,
}

impl Walk<'_> {
    /// From a node by one word.
    fn step(&mut self, node: NodeId, word: &[u8], hash: u64, next: &mut Vec<NodeId>) {
        let child = self.trie.word_child(node, word, hash);
        if child != NONE {
            self.enter(child, next);
        }
        let child = self.trie.nodes[node as usize].one;
        if child != NONE {
            self.enter(child, next);
        }
    }

    /// A node other than `#`, and what `#` reaches from it without a word.
    fn enter(&mut self, node: NodeId, into: &mut Vec<NodeId>) {
        into.push(node);
        let mut any = self.trie.nodes[node as usize].any;
        while any != NONE && self.any_seen.first(any) {
            self.any_nodes.push(any);
            any = self.trie.nodes[any as usize].any;
        }
    }
}

#[cfg(test)]
mod tests;
