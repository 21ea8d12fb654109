//! Which topics the members of a consumer group read: those that they name and those that match their expressions, as far as they may see them.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use regex::bytes::{Regex, RegexBuilder};
use types::TopicId;

use crate::GroupError;
use crate::consumer_group::{ConsumerGroup, ConsumerMember, Surroundings};
use crate::sight::{Mention, Sight, targeted};
use crate::topology::Topics;

/// Length of an expression.
const REGEX_TEXT_MAX: usize = 32_767;
/// Memory that a compiled expression may take. In the worst case all of it is gone through for each byte of a topic's name.
const REGEX_BYTES_MAX: usize = 1 << 17;

/// Topics that match an expression, of one state of the topics.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    version: u64,
    regex: Regex,
    pub topics: BTreeSet<String>,
}

impl Resolved {
    fn of(regex: Regex, names: &[String], topics: &dyn Topics) -> Self {
        let matched = names.iter().filter(|name| regex.is_match(name.as_bytes())).cloned().collect();
        Self { version: topics.version(), regex, topics: matched }
    }
}

pub(crate) fn compile(text: &str) -> Result<Regex, GroupError> {
    // What is parsed takes a multiple of its length, before any limit on what comes of it holds.
    if text.len() > REGEX_TEXT_MAX {
        return Err(GroupError::InvalidRegex);
    }
    let build = |text: &str, unicode| {
        RegexBuilder::new(text).unicode(unicode).size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX).build()
    };
    // Names of topics are ASCII, and of bytes an expression is much smaller; not all can be said without Unicode's classes.
    let compiled = |text: &str| build(text, false).or_else(|_| build(text, true));
    // An expression that is only whole with what is put around it is none.
    let alone = compiled(text);
    alone.and(compiled(&format!("^(?:{text})$"))).map_err(|_| GroupError::InvalidRegex)
}

impl ConsumerGroup {
    /// Forgets expressions that no member has any more.
    pub(crate) fn drop_unused(&mut self) {
        let used: BTreeSet<&str> = self.members.values().filter_map(ConsumerMember::expression).collect();
        self.resolved.retain(|expression, _| used.contains(expression.as_str()));
    }

    /// Looks at the topics as they are, if they have changed, and at what the members may see of what is new.
    pub(crate) fn look(&mut self, topics: &dyn Topics, sight: Option<&Sight<'_>>) {
        if self.views.is_current(topics) {
            return;
        }
        self.drop_unused();
        let described = self.resolve(topics);
        let named = self.views.look(self.members.values().flat_map(|member| &member.topics), topics);
        if named.is_empty() && described.is_empty() {
            return;
        }
        let all = targeted(&self.targets);
        for member in self.members.values_mut() {
            let by_name = named.iter().filter(|name| member.topics.contains(*name)).map(|name| (name, Mention::Named));
            let expression = member.regex.as_deref().and_then(|regex| described.get(regex));
            let by_expression = expression.into_iter().flatten().filter(|name| !member.topics.contains(*name)).map(|name| (name, Mention::Described));
            self.views.judge(&member.id, &mut member.hidden, by_name.chain(by_expression), (sight, topics, &all));
        }
    }

    /// Looks up what the expressions of all members match now; of those that were looked up before, what is new of it.
    fn resolve(&mut self, topics: &dyn Topics) -> HashMap<String, Vec<String>> {
        let used: BTreeSet<String> = self.members.values().filter_map(ConsumerMember::expression).map(str::to_owned).collect();
        let mut new = HashMap::new();
        if used.is_empty() {
            return new;
        }
        let names = topics.names();
        for expression in used {
            let before = self.resolved.remove(&expression);
            let known = before.as_ref().map(|before| before.regex.clone());
            let Some(regex) = known.or_else(|| compile(&expression).ok()) else { continue };
            let resolved = Resolved::of(regex, &names, topics);
            if let Some(before) = before {
                let more: Vec<String> = resolved.topics.difference(&before.topics).cloned().collect();
                if !more.is_empty() {
                    new.insert(expression.clone(), more);
                }
            }
            self.resolved.insert(expression, resolved);
        }
        new
    }

    /// Finds out which of the topics that a member names or describes it may not see. Does it read others than before because of that?
    pub(crate) fn hide(&mut self, before: &ConsumerMember, updated: &mut ConsumerMember, around: &Surroundings<'_>) -> bool {
        let (topics, sight) = (around.topics, &around.sight);
        let same = before.topics == updated.topics && before.regex == updated.regex;
        if same && self.views.is_as_before(&updated.id, sight, topics) {
            return false;
        }
        if let Some(expression) = updated.expression()
            && self.resolved.get(expression).is_none_or(|resolved| resolved.version != topics.version())
            && let Ok(regex) = compile(expression)
        {
            self.resolved.insert(expression.to_owned(), Resolved::of(regex, &topics.names(), topics));
        }
        let there = |name: &&String| topics.find(name).is_some();
        let named: Vec<&String> = updated.topics.iter().filter(there).collect();
        self.views.note_present(named.iter().copied().cloned());
        let described = updated.expression().and_then(|expression| self.resolved.get(expression));
        let described = described.into_iter().flat_map(|resolved| &resolved.topics).filter(|name| !updated.topics.contains(*name));
        let hidden: BTreeSet<String> = match sight.sees {
            Some(sees) => {
                let by_name = named.iter().copied().filter(|name| !sees(name, Mention::Named));
                by_name.chain(described.clone().filter(|name| !sees(name, Mention::Described))).cloned().collect()
            }
            None => BTreeSet::new(),
        };
        let mentioned = named.iter().copied().chain(described);
        let others = self.views.hear(&updated.id, (&before.hidden, &hidden), mentioned, sight, (topics, &self.targets));
        updated.hidden = hidden;
        others
    }

    /// Ids of the topics that a member reads and that exist.
    pub(crate) fn reads(&self, member: &ConsumerMember, topics: &dyn Topics) -> BTreeMap<TopicId, u32> {
        let described = member.expression().and_then(|expression| self.resolved.get(expression));
        let mentioned = member.topics.iter().chain(described.into_iter().flat_map(|resolved| &resolved.topics));
        let seen = mentioned.filter(|name| !member.hidden.contains(*name)).filter_map(|name| topics.find(name));
        if !self.views.is_unheard(&member.id) {
            return seen.collect();
        }
        let own = self.targets.get(&member.id);
        seen.filter(|(topic, _)| own.is_some_and(|own| own.contains_key(topic))).collect()
    }
}
