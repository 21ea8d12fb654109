//! What members of a group may see of the topics that they name or describe.
//!
//! Who asks brings his rights along, and with each heartbeat it is known anew what is hidden from him. For a group a topic that is hidden from all
//! its members is one that is not there: that it is made or goes changes neither epochs nor targets. A name that somebody may not see is kept, so that he
//! reads the topic once he may.
//!
//! Of the other members is known what they could see when they were heard last. What has been made since then is judged for them by the rights of
//! who asks, if that is the same user; otherwise it is hidden from them until they are heard.

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};
use types::TopicId;

use crate::assignors::Targets;
use crate::topology::{Topics, topics_hash};

/// How a member speaks of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mention {
    /// By its name.
    Named,
    /// By an expression.
    Described,
}

/// May somebody see this topic?
pub type Sees<'a> = &'a dyn Fn(&str, Mention) -> bool;

/// Which topics a member may see.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// As long as this is the same, so is what is seen; never 0 where something may be hidden.
    pub stamp: u64,
    /// Who it is; empty: somebody without a login.
    pub user: &'a str,
    /// `None`: all.
    pub sees: Option<Sees<'a>>,
}

impl Sight<'_> {
    /// All of them.
    pub const ALL: Self = Self { stamp: 0, user: "", sees: None };
}

/// A member as it was heard last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    /// Of the topics; `None`: something was hidden from it since.
    version: Option<u64>,
    /// 0: nothing is hidden from it.
    stamp: u64,
    user: String,
}

/// Of all members of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views {
    looks: HashMap<String, Look>,
    /// Members that have not been heard since the start: of the topics that they name they read what their targets have.
    unheard: HashSet<String>,
    /// Names that members name and that were there at the last look.
    present: BTreeSet<String>,
    /// Of the topics, at the last look.
    version: Option<u64>,
    /// Some member reads a topic that no target has.
    news: bool,
    /// A target was computed since the start.
    assigned: bool,
}

/// Topics that targets have.
pub(crate) fn targeted(targets: &Targets) -> HashSet<TopicId> {
    targets.values().flat_map(|target| target.keys().copied()).collect()
}

/// Stands for the topics that targets have, as they are now.
pub(crate) fn targeted_hash(targets: &Targets, topics: &dyn Topics) -> u64 {
    let names = targeted(targets).into_iter().filter_map(|topic| topics.name(topic)).collect();
    topics_hash(&names, topics)
}

impl Views {
    /// After a restart.
    pub fn resume(&mut self, ids: impl Iterator<Item = String>) {
        self.unheard.extend(ids);
    }

    /// A member has gone, or its rights are of no account any more.
    pub fn forget(&mut self, id: &str) {
        self.looks.remove(id);
        self.unheard.remove(id);
    }

    pub fn is_unheard(&self, id: &str) -> bool {
        self.unheard.contains(id)
    }

    /// A target was computed.
    pub fn note_assigned(&mut self) {
        self.assigned = true;
    }

    /// Has some member come to read a topic that no target has, since this was asked last?
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Were the topics looked at as they are?
    pub fn is_current(&self, topics: &dyn Topics) -> bool {
        self.version == Some(topics.version())
    }

    /// Looks at the topics as they are; which of the names that members name were not there before.
    pub fn look<'a>(&mut self, names: impl Iterator<Item = &'a String>, topics: &dyn Topics) -> BTreeSet<String> {
        let distinct: HashSet<&String> = names.collect();
        let present: BTreeSet<String> =
            distinct.into_iter().filter(|name| topics.find(name).is_some()).cloned().collect();
        let fresh = present.difference(&self.present).cloned().collect();
        (self.present, self.version) = (present, Some(topics.version()));
        fresh
    }

    /// Somebody names these, which are there.
    pub fn note_present(&mut self, names: impl Iterator<Item = String>) {
        self.present.extend(names);
    }

    /// What is new of the topics that a member reads: gives what it may not see to `hide`. `all`: what targets have.
    pub fn judge<'a>(
        &mut self,
        id: &str,
        mut hide: impl FnMut(&str),
        fresh: impl Iterator<Item = (&'a String, Mention)>,
        (sight, topics, all): (Option<&Sight<'_>>, &dyn Topics, &HashSet<TopicId>),
    ) {
        if self.is_unheard(id) {
            return;
        }
        let look = self.looks.get(id).filter(|look| look.stamp != 0);
        let sees = sight.filter(|sight| look.is_some_and(|look| look.user == sight.user)).and_then(|sight| sight.sees);
        let mut hides = false;
        for (name, mention) in fresh {
            if look.is_none() || sees.is_some_and(|sees| sees(name, mention)) {
                self.news = self.news || topics.find(name).is_some_and(|(topic, _)| !all.contains(&topic));
            } else {
                hide(name);
                hides = true;
            }
        }
        if hides && let Some(look) = self.looks.get_mut(id) {
            // It is judged anew when it is heard, whether or not topics have changed meanwhile.
            look.version = None;
        }
    }

    /// Are a member's rights those of the last time?
    pub fn is_as_before(&self, id: &str, sight: &Sight<'_>, topics: &dyn Topics) -> bool {
        let same = |look: &Look| {
            look.version == Some(topics.version()) && look.stamp == sight.stamp && look.user == sight.user
        };
        self.looks.get(id).is_some_and(same)
    }

    /// A member is heard: `mentioned` are the topics that it names or describes and that are there, and what is hidden from it was and is `before` and
    /// `after`. Does it read other topics than before because of what it may see?
    pub fn hear<'a>(
        &mut self,
        id: &str,
        (before, after): (&BTreeSet<String>, &BTreeSet<String>),
        mentioned: impl Iterator<Item = &'a String>,
        sight: &Sight<'_>,
        (topics, targets): (&dyn Topics, &Targets),
    ) -> bool {
        let stamp = if sight.sees.is_some() { sight.stamp } else { 0 };
        self.looks.insert(id.to_owned(), Look { version: Some(topics.version()), stamp, user: sight.user.to_owned() });
        if !self.unheard.remove(id) {
            return before.symmetric_difference(after).any(|name| topics.find(name).is_some());
        }
        let own = targets.get(id);
        let all = targeted(targets);
        let has = |topic: &TopicId| own.is_some_and(|own| own.contains_key(topic));
        mentioned.filter_map(|name| Some((name, topics.find(name)?.0))).any(|(name, topic)| {
            if after.contains(name) { has(&topic) } else { !all.contains(&topic) || self.assigned && !has(&topic) }
        })
    }
}
