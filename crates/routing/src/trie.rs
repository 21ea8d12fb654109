//! Topic exchanges: patterns of words in a trie, walked with sets of places in the key.
//!
//! A key is split at its dots; the empty key has no words, and `a..b` has an empty one. In a pattern the word `*` stands for
//! one word, `#` for any number of them, none included.
//!
//! A node is reached from its parent alone, so it is come to once for a key, with all the places at once up to which the key may have led
//! there: place *n* is behind the first *n* words. A step by a word or by `*` takes the places on by one, `#` to all that follow the first. So no pattern
//! makes the walk longer than there are nodes; nothing is looked at that the words so far do not lead to.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use crate::binding::{BindingId, Bindings};
use crate::key_index::{Group, join, leave};
use crate::route::{Scratch, Steps, Told, TooFar};

/// A longer key matches nothing: none is, as those of AMQP are short strings.
pub const KEY_BYTES_MAX: usize = 255;

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

/// Bytes of memory that a key takes, about, if none of its words leads where those of another one do.
pub(crate) fn weight(key: &[u8]) -> usize {
    const NODE: usize = size_of::<Node>() * 3 / 2 + 16;
    words(key).map(|word| NODE + word.len()).sum()
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
    (word_hash ^ u64::from(parent))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
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
    pub fn select(&self, key: &[u8], scratch: &mut Scratch, found: impl FnMut(&[BindingId])) -> Result<(), TooFar> {
        let Scratch { few, many, steps, told, .. } = scratch;
        if key.len() > KEY_BYTES_MAX {
            return Ok(());
        }
        let words = key.iter().filter(|byte| **byte == b'.').count() + 1;
        if words <= FEW_WORDS_MAX {
            self.walk(key, few, (steps, told), found)
        } else {
            self.walk(key, many, (steps, told), found)
        }
    }

    fn walk<const N: usize>(
        &self,
        key: &[u8],
        walk: &mut Walk<N>,
        (steps, told): (&mut Steps, &mut Told),
        mut found: impl FnMut(&[BindingId]),
    ) -> Result<(), TooFar> {
        let Walk { words, nodes } = walk;
        let end = read_words(key, words, |word| self.hash(word));
        nodes.clear();
        nodes.push((ROOT, Places::only(0)));
        while let Some((id, places)) = nodes.pop() {
            let node = &self.nodes[id as usize];
            steps.take(1 + if node.word_children > 0 { words.len() / WORDS_OF_STEP } else { 0 })?;
            if places.has(end) && !node.group.is_empty() && told.is_due(&node.group, steps)? {
                found(&node.group);
            }
            if node.any != NONE {
                nodes.push((node.any, places.and_later(end)));
            }
            let on = if node.one != NONE { places.on(end) } else { Places::NONE };
            if !on.is_empty() {
                nodes.push((node.one, on));
            }
            if node.word_children == 0 {
                continue;
            }
            for word in &*words {
                let met = places.of_both(&word.at);
                if met.is_empty() {
                    continue;
                }
                steps.take(1)?;
                let child = self.word_child(id, &key[word.start..word.end], word.hash);
                if child != NONE {
                    nodes.push((child, met.on(end)));
                }
            }
        }
        Ok(())
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

/// Places in keys of up to so many words are one machine word.
const FEW_WORDS_MAX: usize = 63;
/// Machine words for the places of any key: it has at most one word more than bytes, and a place behind the last.
pub(crate) const MANY: usize = (KEY_BYTES_MAX + 2).div_ceil(64);
/// Words of a key that are compared with a node's places in one step.
const WORDS_OF_STEP: usize = 8;

/// Memory of a walk.
#[derive(Debug)]
pub(crate) struct Walk<const N: usize> {
    words: Vec<Word<N>>,
    /// Nodes that were reached and not looked at, with the places up to which the key leads there.
    nodes: Vec<(NodeId, Places<N>)>,
}

impl<const N: usize> Default for Walk<N> {
    fn default() -> Self {
        Self { words: Vec::new(), nodes: Vec::new() }
    }
}

/// A word of a key, once however often it is there.
#[derive(Debug)]
struct Word<const N: usize> {
    hash: u64,
    /// Where it is in the key for the first time.
    start: usize,
    end: usize,
    /// Places that it begins at.
    at: Places<N>,
}

/// Takes a key apart; how many words it has.
fn read_words<const N: usize>(key: &[u8], into: &mut Vec<Word<N>>, hash: impl Fn(&[u8]) -> u64) -> usize {
    into.clear();
    let (mut place, mut start) = (0, 0);
    for text in words(key) {
        let (hash, end) = (hash(text), start + text.len());
        match into.iter_mut().find(|word| word.hash == hash && key[word.start..word.end] == *text) {
            Some(word) => word.at.add(place),
            None => into.push(Word { hash, start, end, at: Places::only(place) }),
        }
        (place, start) = (place + 1, end + 1);
    }
    place
}

/// A set of places, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places<const N: usize>([u64; N]);

impl<const N: usize> Places<N> {
    const NONE: Self = Self([0; N]);

    fn only(place: usize) -> Self {
        let mut places = Self::NONE;
        places.add(place);
        places
    }

    fn add(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn has(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; N]
    }

    fn of_both(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    /// Up to and with `end`.
    fn up_to(end: usize) -> Self {
        Self(std::array::from_fn(|at| match (end + 1).saturating_sub(at * 64) {
            0 => 0,
            bits @ 1..=63 => (1 << bits) - 1,
            _ => u64::MAX,
        }))
    }

    /// One word further; there is no place behind `end`.
    fn on(&self, end: usize) -> Self {
        let moved = Self(std::array::from_fn(|at| self.0[at] << 1 | if at == 0 { 0 } else { self.0[at - 1] >> 63 }));
        moved.of_both(&Self::up_to(end))
    }

    /// The first of them and all that follow, up to `end`.
    fn and_later(&self, end: usize) -> Self {
        let mut places = Self::up_to(end);
        for (place, own) in places.0.iter_mut().zip(self.0) {
            if own != 0 {
                // All bits from its lowest on.
                *place &= (own & own.wrapping_neg()).wrapping_neg();
                break;
            }
            *place = 0;
        }
        places
    }
}

#[cfg(test)]
mod tests;
