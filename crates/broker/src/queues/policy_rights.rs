//! What setting a policy, and taking one away, takes by access control entries where they count: as much as declaring each of the queues and exchanges with
//! what it says. Permissions are not asked for, as in RabbitMQ, where tag `policymaker` will do.
//!
//! | what | by entries |
//! |---|---|
//! | a policy | `Create` on all names that its pattern matches, there or not |
//! | … that matches a queue on a topic of its own, or whose pattern takes longer than 50 ms to say so of all of them | `Alter` on the topic |
//! | … with a dead-letter exchange, its routing key, or an alternate exchange | `Read` on all those names, `Write` on the exchange |
//!
//! Which names a pattern matches is told by its beginning: `^orders\.` is for entries of the prefix `orders.`, `^orders$` for those of one name, and a pattern
//! that does not begin so takes entries for all names of the virtual host.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::policies::Policy;
use super::queue::Queue;
use super::{DEFAULT_VHOST, Vhost};
use crate::Broker;
use crate::security::{AclOperation, AclQuestion, AclResource, Denial, Principal, Resource};

/// Keys by which messages are passed on.
const PASSING_ON: [&str; 2] = ["dead-letter-exchange", "alternate-exchange"];
const DEAD_LETTER_KEY: &str = "dead-letter-routing-key";

/// How long a pattern may be asked for queues that somebody may not alter.
const ASKED_MAX: Duration = Duration::from_millis(50);

/// Names that a pattern can match.
#[derive(Debug, PartialEq, Eq)]
enum Reach {
    /// This one.
    Name(String),
    /// Those that begin so.
    Prefix(String),
}

impl Reach {
    /// Of a regular expression, rather more than less.
    fn of(pattern: &str) -> Self {
        let all = || Self::Prefix(String::new());
        let Some(mut rest) = pattern.strip_prefix('^').filter(|_| !pattern.contains('|')) else { return all() };
        let mut prefix = String::new();
        loop {
            let mut chars = rest.chars();
            match (chars.next(), chars.next()) {
                (None, _) => return Self::Prefix(prefix),
                (Some('$'), None) => return Self::Name(prefix),
                (Some('*' | '?' | '{'), _) => {
                    // What is before it may be missing.
                    prefix.pop();
                    return Self::Prefix(prefix);
                }
                // `\<` and `\>` are ends of words.
                (Some('\\'), Some(escaped)) if escaped.is_ascii_punctuation() && !['<', '>'].contains(&escaped) => {
                    prefix.push(escaped);
                    rest = &rest[2..];
                }
                (Some(plain), _)
                    if plain.is_ascii_alphanumeric() || ['-', '_', ' ', '/', ':', '~', '@', '%'].contains(&plain) =>
                {
                    prefix.push(plain);
                    rest = &rest[1..];
                }
                _ => return Self::Prefix(prefix),
            }
        }
    }

    /// As entries name queues and exchanges of a virtual host.
    fn in_vhost(self, vhost: &Vhost) -> Self {
        let all = || if vhost.name() == DEFAULT_VHOST { String::new() } else { vhost.resource_name(b"") };
        match self {
            Self::Name(name) => Self::Name(vhost.resource_name(name.as_bytes())),
            // How the first byte is written depends on the second.
            Self::Prefix(prefix) if prefix.len() < 2 && vhost.name() != DEFAULT_VHOST => Self::Prefix(all()),
            Self::Prefix(prefix) if prefix.is_empty() => Self::Prefix(all()),
            Self::Prefix(prefix) => Self::Prefix(vhost.resource_name(prefix.as_bytes())),
        }
    }
}

/// What each name begins with that a pattern matches.
pub(super) fn prefix_of(pattern: &str) -> Box<str> {
    let (Reach::Name(beginning) | Reach::Prefix(beginning)) = Reach::of(pattern);
    beginning.into()
}

impl Broker {
    /// May he set this policy, or take it away? `sets`: the exchanges that it names then get messages.
    ///
    /// # Errors
    /// He may not.
    pub(super) fn check_policy(
        &self,
        who: &Principal,
        vhost: &Vhost,
        policy: &Policy,
        sets: bool,
    ) -> Result<(), Box<Denial>> {
        if !self.security().acls_enforced() {
            return Ok(());
        }
        let reach = Reach::of(policy.pattern()).in_vhost(vhost);
        let ask = |operation| {
            let (Reach::Name(entry) | Reach::Prefix(entry)) = &reach;
            let question = AclQuestion {
                operation,
                resource: AclResource::Topic,
                entry,
                kind: "all that is named by policy",
                name: policy.name().as_bytes(),
            };
            match &reach {
                Reach::Name(_) => self.security().check_acl(who, vhost.name(), question),
                Reach::Prefix(_) => self.security().check_acl_of_prefix(who, vhost.name(), question),
            }
        };
        ask(AclOperation::Create)?;
        let named: Vec<&str> =
            PASSING_ON.iter().filter_map(|key| policy.definition().get(*key).and_then(Value::as_str)).collect();
        if sets && (!named.is_empty() || policy.definition().contains_key(DEAD_LETTER_KEY)) {
            ask(AclOperation::Read)?;
            named.iter().try_for_each(|exchange| {
                self.check_entries(who, vhost, AclOperation::Write, Resource::Exchange(exchange.as_bytes()))
            })?;
        }
        let may_alter = |queue: &Queue| {
            self.security().allows_quietly(who, AclOperation::Alter, AclResource::Topic, &queue.topic().name)
        };
        let mut attached: Vec<_> = vhost.queues.read().values().filter(|queue| queue.is_attached()).cloned().collect();
        attached.sort_by(|one, other| one.name().cmp(other.name()));
        let began = Instant::now();
        for queue in attached.iter().filter(|queue| !may_alter(queue)) {
            // Others wait meanwhile. A pattern that takes long counts as one for the queue.
            if began.elapsed() < ASKED_MAX && !policy.is_for_queue(queue) {
                continue;
            }
            let topic = queue.topic();
            let question = AclQuestion {
                operation: AclOperation::Alter,
                resource: AclResource::Topic,
                entry: &topic.name,
                kind: "topic",
                name: topic.name.as_bytes(),
            };
            self.security().check_acl(who, vhost.name(), question)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
