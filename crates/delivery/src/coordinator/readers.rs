//! Which groups have committed offsets of a topic, so that the deletion of a topic looks at no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::weight;

/// Topics with their groups: one set of pairs, since most topics have few groups.
#[derive(Default)]
pub(super) struct Readers(BTreeSet<(Arc<str>, Arc<str>)>);

fn first(topic: &str) -> (Arc<str>, Arc<str>) {
    (topic.into(), "".into())
}

impl Readers {
    pub fn insert(&mut self, group: &Arc<str>, topic: &str) {
        let first = first(topic);
        let known = self.0.range(first.clone()..).next().filter(|(known, _)| **known == *topic);
        let topic = known.map_or(first.0, |(known, _)| Arc::clone(known));
        self.0.insert((topic, Arc::clone(group)));
    }

    pub fn remove(&mut self, group: &str, topic: &str) {
        self.0.remove(&(topic.into(), group.into()));
    }

    /// What it weighs.
    pub fn weight(&self) -> usize {
        self.0.len() * weight::READER
    }

    /// All that have some.
    pub fn topics(&self) -> Vec<Arc<str>> {
        let mut topics: Vec<_> = self.0.iter().map(|(topic, _)| Arc::clone(topic)).collect();
        topics.dedup();
        topics
    }

    /// In the order of their names.
    pub fn of(&self, topic: &str) -> Vec<Arc<str>> {
        self.0
            .range(first(topic)..)
            .take_while(|(known, _)| **known == *topic)
            .map(|(_, group)| Arc::clone(group))
            .collect()
    }
}
