//! Which policies count for a name, found out in pieces. A pattern with conditions on what stands around, or with references to what it has matched, may take
//! tens of milliseconds for one name; a virtual host may have thousands of them, and the controller serves all others.
//!
//! A declaration asks some of them ([`AT_ONCE`]). Where that is not enough, a walk (`policy_walk.rs`) goes on with it, and the declaration is answered when that
//! is over ([`HeldReply`]): who declares a queue or an exchange has all policies in force for it when he publishes or consumes.

use std::fmt;
use std::sync::Arc;

use journal::ReplyTo;

use super::policies::{Matched, Policies, Policy, PolicyScope, Subject};
use crate::mailbox::{Event, Mailboxes, Reply};

/// What patterns may cost that are asked for one name at once ([`Policy::cost`]).
pub(super) const AT_ONCE: usize = 400;

/// How far the search for a name is.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// Changes of the policies when it began: with others it begins anew.
    pub made: u64,
    /// Place among the policies of each scope, and what was found.
    places: [usize; 2],
    found: [Option<Arc<Policy>>; 2],
}

impl Search {
    /// Not begun, after so many changes.
    pub fn new(made: u64) -> Self {
        Self { made, places: [0; 2], found: Default::default() }
    }

    /// What was found until now.
    pub fn matched(&self) -> Matched {
        let [policy, operator] = self.found.clone();
        Matched { policy, operator }
    }
}

/// The reply to a declaration. It is sent when this is dropped.
pub(super) struct HeldReply {
    mailboxes: Mailboxes,
    to: ReplyTo,
    reply: Option<Reply>,
}

impl HeldReply {
    pub fn new(mailboxes: Mailboxes, to: ReplyTo, reply: Reply) -> Self {
        Self { mailboxes, to, reply: Some(reply) }
    }
}

impl Drop for HeldReply {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            self.mailboxes.push(self.to.shard, Event::Reply { to: self.to, reply });
        }
    }
}

impl fmt::Debug for HeldReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("HeldReply").field(&self.to).finish()
    }
}

impl Policies {
    /// Goes on with a search. True: it is over.
    pub(super) fn search(&self, subject: Subject<'_>, search: &mut Search) -> bool {
        let mut left = AT_ONCE;
        let sets = self.sets();
        for (number, scope) in PolicyScope::BOTH.into_iter().enumerate() {
            let (place, found) = (&mut search.places[number], &mut search.found[number]);
            while let Some(policy) = sets.of(scope).get(*place).filter(|_| found.is_none()) {
                if policy.may_match(subject) {
                    let Some(rest) = left.checked_sub(policy.cost()) else { return false };
                    left = rest;
                    if policy.matches(subject) {
                        *found = Some(Arc::clone(policy));
                    }
                }
                *place += 1;
            }
        }
        true
    }
}
