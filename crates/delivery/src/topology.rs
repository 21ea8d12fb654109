//! What groups know of topics: which there are, and sets of their partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::TopicId;

/// Partitions by topic; no topic without partitions.
pub type Target = BTreeMap<TopicId, BTreeSet<u32>>;

/// Partitions by topic, each with the epoch in which the member got it. A copy shares them: there may be hundreds of thousands, and each heartbeat compares
/// what a member has with what it had.
pub type Owned = BTreeMap<TopicId, Arc<BTreeMap<u32, i32>>>;

/// The topics there are, asked by the coordinator.
pub trait Topics: Send + Sync {
    /// Rises with every topic that is created, deleted or enlarged.
    fn version(&self) -> u64;
    /// Id and number of partitions.
    fn find(&self, name: &str) -> Option<(TopicId, u32)>;
    /// The name of a topic.
    fn name(&self, id: TopicId) -> Option<String>;
    /// What is known of the names that an expression matches: the same as long as somebody holds it.
    fn matches(&self, expression: &str) -> Arc<dyn Matches>;
}

/// The names of topics that an expression matches, as far as they are known. Groups never match names themselves: somebody else does, while no group
/// waits for it, and groups take over what is known.
pub trait Matches: Send + Sync {
    /// The expression.
    fn text(&self) -> &str;
    /// The [version](Matched::version) of what is known.
    fn version(&self) -> u64;
    /// What is known.
    fn known(&self) -> Matched;
    /// Has every name been matched that a topic has now?
    fn is_current(&self) -> bool;
}

/// See [`Matches`].
#[derive(Clone, Debug)]
pub struct Matched {
    /// Rises when anything else here changes.
    pub version: u64,
    /// How far it is known.
    pub state: MatchState,
    /// Names that match; of some there may be no topic any more.
    pub topics: Arc<BTreeSet<String>>,
}

/// How far it is known which names an expression matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchState {
    /// Names have not been matched yet.
    Unknown,
    /// There was no memory for the names.
    NoMemory,
    /// It is no expression, or one that is too large.
    Invalid,
    /// All names were matched that there were at some time.
    Known,
}

impl Matched {
    /// Nothing is known.
    pub fn unknown() -> Self {
        Self { version: 0, state: MatchState::Unknown, topics: Arc::default() }
    }
}

/// A place without topics.
pub(crate) struct NoTopics;

struct NoMatches(String);

impl Matches for NoMatches {
    fn text(&self) -> &str {
        &self.0
    }

    fn version(&self) -> u64 {
        0
    }

    fn known(&self) -> Matched {
        Matched { state: MatchState::Known, ..Matched::unknown() }
    }

    fn is_current(&self) -> bool {
        true
    }
}

impl Topics for NoTopics {
    fn version(&self) -> u64 {
        0
    }

    fn find(&self, _name: &str) -> Option<(TopicId, u32)> {
        None
    }

    fn name(&self, _id: TopicId) -> Option<String> {
        None
    }

    fn matches(&self, expression: &str) -> Arc<dyn Matches> {
        Arc::new(NoMatches(expression.to_owned()))
    }
}

/// The partitions alone.
pub(crate) fn without_epochs(owned: &Owned) -> Target {
    owned.iter().map(|(topic, partitions)| (*topic, partitions.keys().copied().collect())).collect()
}

/// All partitions, each got in `epoch`.
pub(crate) fn with_epoch(target: &Target, epoch: i32) -> Owned {
    target
        .iter()
        .map(|(topic, partitions)| (*topic, Arc::new(partitions.iter().map(|partition| (*partition, epoch)).collect())))
        .collect()
}

/// FNV-1a over 64 bits: the same in every release, for what is kept.
#[derive(Clone, Copy)]
pub(crate) struct StableHash(u64);

impl StableHash {
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub fn add(mut self, bytes: &[u8]) -> Self {
        for byte in (bytes.len() as u32).to_be_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    pub fn finish(self) -> u64 {
        self.0
    }
}

/// Stands for the topics that a group reads, as they are now; 0 for none.
pub(crate) fn topics_hash(names: &BTreeSet<String>, topics: &dyn Topics) -> u64 {
    let mut hash = StableHash::new();
    let mut any = false;
    for name in names {
        if let Some((id, partitions)) = topics.find(name) {
            hash = hash.add(name.as_bytes()).add(id.0.as_bytes()).add(&partitions.to_be_bytes());
            any = true;
        }
    }
    if any { hash.finish() } else { 0 }
}

/// Stands for the target of one member; those of a group are added up.
pub(crate) fn target_hash(member: &str, target: &Target) -> u64 {
    let mut hash = StableHash::new().add(member.as_bytes());
    for (topic, partitions) in target {
        hash = hash.add(topic.0.as_bytes());
        for partition in partitions {
            hash = hash.add(&partition.to_be_bytes());
        }
    }
    hash.finish()
}
