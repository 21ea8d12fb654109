//! Which topics the members of a consumer group read: those that they name and those that match their expressions, as far as they may see them.
//! Which names match is found out elsewhere ([`Matches`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use types::TopicId;

use crate::consumer_group::{ConsumerGroup, ConsumerMember, Surroundings};
use crate::sight::{Mention, Sight, targeted};
use crate::topology::{MatchState, Matched, Matches, Topics};

/// Topics that an expression of a member matches, as the group has taken them over.
#[derive(Clone)]
pub(crate) struct Resolved {
    matches: Arc<dyn Matches>,
    taken: Matched,
}

impl fmt::Debug for Resolved {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.taken.fmt(formatter)
    }
}

impl Resolved {
    fn of(matches: Arc<dyn Matches>) -> Self {
        let taken = matches.known();
        Self { matches, taken }
    }

    pub fn topics(&self) -> &BTreeSet<String> {
        &self.taken.topics
    }

    /// Takes over what is known now; what is new of it.
    fn take_over(&mut self) -> Vec<String> {
        let before = std::mem::replace(&mut self.taken, self.matches.known());
        self.taken.topics.difference(&before.topics).cloned().collect()
    }
}

impl ConsumerGroup {
    /// Forgets expressions that no member has any more.
    pub(crate) fn drop_unused(&mut self) {
        let used: BTreeSet<&str> = self.members.values().filter_map(ConsumerMember::expression).collect();
        self.resolved.retain(|expression, _| used.contains(expression.as_str()));
    }

    /// From now on what members' expressions match is taken over.
    pub(crate) fn follow_expressions(&mut self, topics: &dyn Topics) {
        for expression in self.members.values().filter_map(ConsumerMember::expression) {
            if !self.resolved.contains_key(expression) {
                self.resolved.insert(expression.to_owned(), Resolved::of(topics.matches(expression)));
            }
        }
    }

    /// Those of the members' expressions, and of one that is about to be, that have not been matched against all names that there are.
    pub(crate) fn unmatched(&self, wanted: Option<&str>, topics: &dyn Topics) -> Vec<Arc<dyn Matches>> {
        let new = wanted.filter(|wanted| !self.resolved.contains_key(*wanted)).map(|wanted| topics.matches(wanted));
        let known = self.resolved.values().map(|resolved| Arc::clone(&resolved.matches));
        new.into_iter().chain(known).filter(|matches| !matches.is_current()).collect()
    }

    /// How far it is known what an expression matches.
    pub(crate) fn match_state(&self, expression: &str, topics: &dyn Topics) -> MatchState {
        self.resolved
            .get(expression)
            .map_or_else(|| topics.matches(expression).known(), |resolved| resolved.matches.known())
            .state
    }

    /// Looks at the topics as they are and at what expressions match, if that has changed, and at what the members may see of what is new.
    pub(crate) fn look(&mut self, topics: &dyn Topics, sight: Option<&Sight<'_>>) {
        let renewed = self.resolved.values().any(|resolved| resolved.matches.version() != resolved.taken.version);
        if self.views.is_current(topics) && !renewed {
            return;
        }
        self.drop_unused();
        let described = self.take_over();
        let named = self.views.look(self.members.values().flat_map(|member| &*member.topics), topics);
        if named.is_empty() && described.is_empty() {
            return;
        }
        // The epoch rises if somebody reads what is new, whether or not topics have changed meanwhile.
        self.seen = None;
        let all = targeted(&self.targets);
        for member in self.members.values_mut() {
            let by_name = named.iter().filter(|name| member.topics.contains(*name)).map(|name| (name, Mention::Named));
            let expression = member.regex.as_deref().and_then(|regex| described.get(regex));
            let by_expression = expression
                .into_iter()
                .flatten()
                .filter(|name| !member.topics.contains(*name))
                .map(|name| (name, Mention::Described));
            let hidden = &mut member.hidden;
            let hide = |name: &str| {
                Arc::make_mut(hidden).insert(name.to_owned());
            };
            self.views.judge(&member.id, hide, by_name.chain(by_expression), (sight, topics, &all));
        }
    }

    /// Takes over what the members' expressions match; what is new of it, by expression.
    fn take_over(&mut self) -> HashMap<String, Vec<String>> {
        let mut new = HashMap::new();
        for (expression, resolved) in &mut self.resolved {
            if resolved.matches.version() != resolved.taken.version {
                let more = resolved.take_over();
                if !more.is_empty() {
                    new.insert(expression.clone(), more);
                }
            }
        }
        new
    }

    /// Finds out which of the topics that a member names or describes it may not see. Does it read others than before because of that?
    pub(crate) fn hide(
        &mut self,
        before: &ConsumerMember,
        updated: &mut ConsumerMember,
        around: &Surroundings<'_>,
    ) -> bool {
        let (topics, sight) = (around.topics, &around.sight);
        let same = before.topics == updated.topics && before.regex == updated.regex;
        if same && self.views.is_as_before(&updated.id, sight, topics) {
            return false;
        }
        // What is known of one that other members have is taken over by a look, which tells them.
        if let Some(expression) = updated.expression()
            && !self.resolved.contains_key(expression)
        {
            self.resolved.insert(expression.to_owned(), Resolved::of(around.topics.matches(expression)));
        }
        let there = |name: &&String| topics.find(name).is_some();
        let named: Vec<&String> = updated.topics.iter().filter(there).collect();
        self.views.note_present(named.iter().copied().cloned());
        let described = updated.expression().and_then(|expression| self.resolved.get(expression));
        let described = described.into_iter().flat_map(Resolved::topics).filter(|name| !updated.topics.contains(*name));
        let hidden: Arc<BTreeSet<String>> = match sight.sees {
            Some(sees) => {
                let by_name = named.iter().copied().filter(|name| !sees(name, Mention::Named));
                Arc::new(
                    by_name.chain(described.clone().filter(|name| !sees(name, Mention::Described))).cloned().collect(),
                )
            }
            None => Arc::default(),
        };
        let mentioned = named.iter().copied().chain(described);
        let others = self.views.hear(&updated.id, (&before.hidden, &hidden), mentioned, sight, (topics, &self.targets));
        updated.hidden = hidden;
        others
    }

    /// Ids of the topics that a member reads and that exist.
    pub(crate) fn reads(&self, member: &ConsumerMember, topics: &dyn Topics) -> BTreeMap<TopicId, u32> {
        let described = member.expression().and_then(|expression| self.resolved.get(expression));
        let mentioned = member.topics.iter().chain(described.into_iter().flat_map(Resolved::topics));
        let seen = mentioned.filter(|name| !member.hidden.contains(*name)).filter_map(|name| topics.find(name));
        if !self.views.is_unheard(&member.id) {
            return seen.collect();
        }
        let own = self.targets.get(&member.id);
        let unknown = |resolved: &Resolved| resolved.taken.state == MatchState::Unknown;
        if member.expression().is_some_and(|expression| self.resolved.get(expression).is_none_or(unknown)) {
            // What its target has of what it describes cannot be told from the rest.
            let there = |topic: &TopicId| topics.name(*topic).and_then(|name| topics.find(&name));
            return own.into_iter().flatten().filter_map(|(topic, _)| there(topic)).collect();
        }
        seen.filter(|(topic, _)| own.is_some_and(|own| own.contains_key(topic))).collect()
    }
}
