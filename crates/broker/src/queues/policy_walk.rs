//! Applies changes of policies to the queues and exchanges that are there. There may be many of them: it is done in pieces on the controller's thread, which
//! serves others in between.
//!
//! A change counts for what is declared from the moment on at which it is durable. A walk applies it to what was there: it passes each queue once, and does
//! for it what the changes need. A virtual host has one walk at a time; changes that come meanwhile wait for the next one, which applies all of them. Virtual
//! hosts take turns.
//!
//! Two things hold for each queue between two pieces, whatever else the controller does there:
//!
//! - I1. None of the policies that rank before the one that counts for the queue matches it, but for those whose walk has not passed it.
//! - I2. The policy that counts for it is there, or the walk that applies its end has not passed it.
//!
//! So a walk asks the patterns of the policies that were set and rank before the one that counts, and those that rank behind it only if it is gone. Of
//! exchanges nobody keeps which policy counts: all policies are asked for those that one of the changes matches, and only where any policy says where an
//! exchange sends what no binding takes.
//!
//! Where that would ask too many patterns that may take long, the walk looks through all policies for the queue or exchange instead, in pieces, before it goes
//! on. It does the same for what was declared and has not all that counts for it (`policy_search.rs`), which is answered then. A change begins such a search
//! anew: what it comes to is what I1 and I2 say.
//!
//! A walk leaves nothing on the disk. If the process ends before a walk does, the next start judges all queues, and leaves to a walk what takes too long: such
//! queues rest until they are judged ([`Queue::is_unjudged`]).

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec;

use journal::ReplyTo;
use parking_lot::{Condvar, Mutex};
use routing::Name;

use super::Vhost;
use super::arguments::{QueueArguments, kind_name};
use super::policies::{Matched, Policies, Policy, PolicyScope, Sets, Subject};
use super::policy_search::{AT_ONCE, HeldReply, Search};
use super::queue::Queue;
use crate::Broker;
use crate::jobs::{Job, NOBODY, Task};
use crate::mailbox::Reply;

/// A piece of a walk is over after this long.
const PIECE_MAX: Duration = Duration::from_millis(10);

/// Changes that were made and not applied.
#[derive(Debug, Default)]
struct Changes {
    set: Sets,
    gone: Vec<Arc<Policy>>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.gone.is_empty() && PolicyScope::BOTH.iter().all(|scope| self.set.of(*scope).is_empty())
    }

    /// Those that were set and are there.
    fn there(&self) -> impl Iterator<Item = (PolicyScope, &Arc<Policy>)> {
        let all = PolicyScope::BOTH
            .into_iter()
            .flat_map(move |scope| self.set.of(scope).iter().map(move |policy| (scope, policy)));
        all.filter(|(_, policy)| !policy.is_gone())
    }
}

/// A queue or an exchange.
#[derive(Debug)]
pub(super) enum Subjected {
    Queue(Arc<Queue>),
    Exchange(Name),
}

impl Subjected {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Queue(one), Self::Queue(other)) => Arc::ptr_eq(one, other),
            (Self::Exchange(one), Self::Exchange(other)) => one == other,
            _ => false,
        }
    }

    /// Nobody needs to know any more.
    fn is_over(&self) -> bool {
        matches!(self, Self::Queue(queue) if queue.is_dropped())
    }
}

/// Something that has not all policies that count for it.
#[derive(Debug)]
struct Searched {
    /// They rise.
    number: u64,
    subject: Subjected,
    search: Search,
    /// What those are told then who have declared it.
    held: Vec<HeldReply>,
}

/// What a walk does next.
enum Next {
    /// It passes this, because of these changes.
    Pass(Subjected, Arc<Changes>),
    /// It goes on with the search for the policies that count for this.
    Search(Searched),
}

#[derive(Debug)]
struct Walk {
    changes: Arc<Changes>,
    queues: vec::IntoIter<Arc<Queue>>,
    exchanges: vec::IntoIter<Name>,
    /// Changes of the virtual host that are applied when it is over.
    until: u64,
}

impl Walk {
    fn new(vhost: &Vhost, changes: Changes, until: u64) -> Self {
        vhost.policies.forget_shared();
        let mut set = Sets::default();
        changes.there().for_each(|(scope, policy)| set.add(scope, Arc::clone(policy)));
        let changes = Changes { set, gone: changes.gone };
        let alternates = vhost.policies.sets().any(Policy::names_alternate)
            || changes.gone.iter().any(|policy| policy.names_alternate());
        let exchanges = match alternates {
            true => vhost.exchanges.read().exchanges().map(|exchange| exchange.name().clone()).collect(),
            false => Vec::new(),
        };
        let queues: Vec<Arc<Queue>> = vhost.queues.read().values().cloned().collect();
        Self { changes: Arc::new(changes), queues: queues.into_iter(), exchanges: exchanges.into_iter(), until }
    }

    fn next(&mut self) -> Option<Next> {
        let next = self.queues.next().map(Subjected::Queue).or_else(|| self.exchanges.next().map(Subjected::Exchange));
        next.map(|next| Next::Pass(next, Arc::clone(&self.changes)))
    }
}

/// How far changes of the policies of a virtual host have been applied.
#[derive(Debug, Default)]
pub(super) struct WalkState {
    inner: Mutex<Inner>,
    progress: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Changes that are for the next walk.
    waiting: Changes,
    walk: Option<Walk>,
    /// What a walk has passed, or what is new, and has not all that counts for it, because that takes long to find out. It comes before the walk goes on.
    searched: VecDeque<Searched>,
    /// The number of the one for which patterns are being asked.
    asked: Option<u64>,
    /// Searches so far.
    searches: u64,
    /// Changes so far.
    made: u64,
    /// So many of them are applied.
    applied: u64,
    /// The broker ends: no more is applied.
    given_up: bool,
}

impl WalkState {
    fn note(&self, set: Option<(PolicyScope, Arc<Policy>)>, gone: Option<Arc<Policy>>) {
        let mut inner = self.inner.lock();
        inner.made += 1;
        inner.waiting.gone.extend(gone);
        if let Some((scope, policy)) = set {
            inner.waiting.set.add(scope, policy);
        }
    }

    fn is_walking(&self) -> bool {
        let inner = self.inner.lock();
        inner.walk.is_some() || !inner.searched.is_empty()
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.inner.lock().made
    }

    /// The policies that count for something are to be found out, before others are passed.
    fn search_first(&self, subject: Subjected, search: Search) {
        let mut inner = self.inner.lock();
        inner.searches += 1;
        let number = inner.searches;
        inner.searched.push_front(Searched { number, subject, search, held: Vec::new() });
    }

    /// The same of what has just been made.
    fn search_later(&self, subject: Subjected, search: Search) {
        let mut inner = self.inner.lock();
        // It was there before: what is found out for its name counts.
        if inner.searched.iter().any(|one| one.subject.is(&subject)) {
            return;
        }
        if inner.searched.len() == inner.searched.capacity() {
            inner.searched.retain(|one| !one.subject.is_over());
        }
        inner.searches += 1;
        let number = inner.searches;
        inner.searched.push_back(Searched { number, subject, search, held: Vec::new() });
    }

    /// The same at a start, where each is named once.
    fn search_at_start(&self, subject: Subjected, search: Search) {
        let mut inner = self.inner.lock();
        inner.searches += 1;
        let number = inner.searches;
        inner.searched.push_back(Searched { number, subject, search, held: Vec::new() });
    }

    /// There is more to be found out.
    fn search_on(&self, searched: Searched) {
        let mut inner = self.inner.lock();
        inner.asked = None;
        inner.searched.push_front(searched);
    }

    /// All is found out; those who have declared it are told.
    fn search_over(&self, searched: Searched) {
        self.inner.lock().asked = None;
        drop(searched);
        self.progress.notify_all();
    }

    /// Is something searched for?
    fn is_searching(&self) -> bool {
        !self.inner.lock().searched.is_empty()
    }

    /// Sends a reply when the policies are found that count for something.
    fn hold(&self, subject: &Subjected, reply: HeldReply) {
        let mut inner = self.inner.lock();
        let Some(at) = inner.searched.iter().position(|one| one.subject.is(subject)) else { return };
        let Some(mut searched) = inner.searched.remove(at) else { return };
        searched.held.push(reply);
        // Those for which somebody waits go before those that a start has left.
        let place = inner.searched.iter().position(|one| one.held.is_empty()).map_or(at, |first| first.min(at));
        inner.searched.insert(place, searched);
    }

    /// What is done next. `None`: all is applied.
    fn next(&self, vhost: &Vhost) -> Option<Next> {
        let mut inner = self.inner.lock();
        // One is left if its patterns ended in a defect.
        inner.asked = None;
        if vhost.is_deleted() {
            inner.searched.clear();
            (inner.walk, inner.waiting, inner.applied) = (None, Changes::default(), inner.made);
        }
        if let Some(mut searched) = inner.searched.pop_front() {
            if searched.search.made != inner.made {
                searched.search = Search::new(inner.made);
            }
            inner.asked = Some(searched.number);
            return Some(Next::Search(searched));
        }
        loop {
            if inner.walk.is_none() && !inner.waiting.is_empty() {
                let (changes, until) = (std::mem::take(&mut inner.waiting), inner.made);
                inner.walk = Some(Walk::new(vhost, changes, until));
            }
            let Some(walk) = &mut inner.walk else {
                self.progress.notify_all();
                return None;
            };
            if let Some(next) = walk.next() {
                return Some(next);
            }
            inner.applied = walk.until;
            inner.walk = None;
            self.progress.notify_all();
        }
    }

    fn give_up(&self) {
        let mut inner = self.inner.lock();
        inner.given_up = true;
        inner.searched.clear();
        drop(inner);
        self.progress.notify_all();
    }
}

impl Policies {
    /// Sets one that is durable.
    pub(super) fn set(&self, scope: PolicyScope, policy: Arc<Policy>) {
        let before = self.insert(scope, Arc::clone(&policy));
        self.walk.note(Some((scope, policy)), before);
    }

    /// Takes one away of which nothing is on the disk any more.
    pub(super) fn unset(&self, scope: PolicyScope, name: &str) {
        let before = self.remove(scope, name);
        self.walk.note(None, before);
    }

    /// Waits until the queues and exchanges that are there follow all changes that were made until now. False: it takes longer, or the broker ends. Not on the
    /// controller's thread.
    pub fn wait_until_applied(&self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        let mut inner = self.walk.inner.lock();
        let (made, searches) = (inner.made, inner.searches);
        let is_applied = |inner: &Inner| {
            let mut searched = inner.searched.iter().map(|one| one.number).chain(inner.asked);
            inner.applied >= made && searched.all(|number| number > searches)
        };
        while !is_applied(&inner) && !inner.given_up {
            if self.walk.progress.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        is_applied(&inner)
    }

    /// What it costs at the most to ask [`Policies::after`].
    fn cost_after(&self, changes: &Changes, now: &Matched, subject: Subject<'_>) -> usize {
        let sets = self.sets();
        let of = |scope, now: &Option<Arc<Policy>>| -> usize {
            let (all, now) = (sets.of(scope), now.as_ref());
            let set = changes.set.of(scope).iter().take_while(|one| now.is_none_or(|now| one.rank(now).is_lt()));
            let behind = now
                .filter(|now| now.is_gone())
                .map_or(&[][..], |now| &all[all.partition_point(|one| one.rank(now).is_lt())..]);
            set.chain(behind).filter(|one| one.may_match(subject)).map(|one| one.cost()).sum()
        };
        of(PolicyScope::User, &now.policy) + of(PolicyScope::Operator, &now.operator)
    }

    /// What counts for a queue for which `now` did, after these changes.
    fn after(&self, changes: &Changes, now: &Matched, subject: Subject<'_>) -> Matched {
        let sets = self.sets();
        let of = |scope, now: &Option<Arc<Policy>>| {
            let (all, now) = (sets.of(scope), now.as_ref());
            let before = changes.set.of(scope).iter().take_while(|one| now.is_none_or(|now| one.rank(now).is_lt()));
            // One that was set may be gone again: another walk applies that.
            let set = before.filter(|one| !one.is_gone()).find(|one| one.matches(subject));
            let behind = |now: &Arc<Policy>| {
                let from = all.partition_point(|one| one.rank(now).is_lt());
                all[from..].iter().find(|one| one.matches(subject)).cloned()
            };
            match (set, now) {
                (Some(set), _) => Some(Arc::clone(set)),
                (None, Some(now)) if now.is_gone() => behind(now),
                (None, now) => now.cloned(),
            }
        };
        Matched { policy: of(PolicyScope::User, &now.policy), operator: of(PolicyScope::Operator, &now.operator) }
    }
}

/// Virtual hosts with policies that are to be applied.
#[derive(Default)]
pub(super) struct WalkQueue {
    vhosts: VecDeque<Arc<Vhost>>,
    /// The controller has a job for the next piece.
    scheduled: bool,
    /// What the job of the controller that is under way has declared and has not all policies that count for it.
    declared: Option<(Arc<Vhost>, Subjected)>,
}

impl Broker {
    /// Applies changes of policies that were made: the first piece at once, the others by and by. On the controller's thread.
    pub(crate) fn apply_policies(self: &Arc<Self>, vhost: &Arc<Vhost>) {
        let (began, walking) = (Instant::now(), vhost.policies.walk.is_walking());
        if !walking && self.walk_on(vhost, || began.elapsed() < PIECE_MAX) {
            return;
        }
        self.apply_policies_later(vhost);
    }

    /// The same, all of it by and by.
    fn apply_policies_later(&self, vhost: &Arc<Vhost>) {
        let mut queue = self.vhosts.walks.lock();
        if !queue.vhosts.iter().any(|one| Arc::ptr_eq(one, vhost)) {
            queue.vhosts.push_back(Arc::clone(vhost));
        }
        self.schedule_walk(&mut queue);
    }

    /// Something new has only a part of the policies that count for it: the others by and by. On the controller's thread.
    pub(super) fn search_policies(&self, vhost: &Vhost, subject: Subjected, search: Search) {
        let Some(vhost) = self.vhosts.get(&vhost.name) else { return };
        let again = match &subject {
            Subjected::Queue(queue) => Subjected::Queue(Arc::clone(queue)),
            Subjected::Exchange(name) => Subjected::Exchange(name.clone()),
        };
        vhost.policies.walk.search_later(subject, search);
        self.apply_policies_later(&vhost);
        self.vhosts.walks.lock().declared = Some((vhost, again));
    }

    /// At a start the policies that count for this could not be found out.
    pub(super) fn search_policies_at_start(&self, vhost: &Vhost, subject: Subjected, search: Search) {
        let Some(vhost) = self.vhosts.get(&vhost.name) else { return };
        vhost.policies.walk.search_at_start(subject, search);
        self.apply_policies_later(&vhost);
    }

    /// Something was declared that is there, and may not have all policies yet. On the controller's thread.
    pub(super) fn declared_again(&self, vhost: &Vhost, subject: impl FnOnce() -> Subjected) {
        if vhost.policies.walk.is_searching()
            && let Some(vhost) = self.vhosts.get(&vhost.name)
        {
            self.vhosts.walks.lock().declared = Some((vhost, subject()));
        }
    }

    /// Sends the outcome of a job of the controller; that of a declaration when all policies are in force that count for what was declared.
    pub(crate) fn reply_of_controller(&self, to: ReplyTo, reply: Reply) {
        let declared = self.vhosts.walks.lock().declared.take();
        match declared {
            Some((vhost, subject)) if to != NOBODY => {
                vhost.policies.walk.hold(&subject, HeldReply::new(self.mailboxes.clone(), to, reply))
            }
            _ => self.reply(to, reply),
        }
    }

    /// Its turn comes when those who wait for the controller have had theirs.
    fn schedule_walk(&self, queue: &mut WalkQueue) {
        if queue.scheduled || queue.vhosts.is_empty() {
            return;
        }
        let work = |broker: &Arc<Self>| {
            broker.walk_piece();
            Box::new(()) as Box<dyn Any + Send>
        };
        queue.scheduled = self.controller.push_always(Job {
            to: NOBODY,
            of: crate::jobs::JobOwner::BROKER,
            task: Task::Work(Box::new(work)),
        });
        if !queue.scheduled {
            queue.vhosts.drain(..).for_each(|vhost| vhost.policies.walk.give_up());
        }
    }

    fn walk_piece(self: &Arc<Self>) {
        let began = Instant::now();
        let mut queue = self.vhosts.walks.lock();
        queue.scheduled = false;
        let Some(vhost) = queue.vhosts.pop_front() else { return };
        // Before the piece: a defect in it ends this job alone.
        queue.vhosts.push_back(Arc::clone(&vhost));
        self.schedule_walk(&mut queue);
        drop(queue);
        if self.walk_on(&vhost, || began.elapsed() < PIECE_MAX) {
            self.vhosts.walks.lock().vhosts.retain(|one| !Arc::ptr_eq(one, &vhost));
        }
    }

    /// Passes queues and exchanges as long as it goes on. True: all changes are applied.
    fn walk_on(self: &Arc<Self>, vhost: &Vhost, mut goes_on: impl FnMut() -> bool) -> bool {
        while goes_on() {
            match vhost.policies.walk.next(vhost) {
                None => return true,
                Some(Next::Pass(Subjected::Queue(queue), changes)) => self.apply_to_queue(vhost, &queue, &changes),
                Some(Next::Pass(Subjected::Exchange(exchange), changes)) => {
                    vhost.apply_to_exchange(&exchange, &changes)
                }
                Some(Next::Search(searched)) => self.go_on_searching(vhost, searched),
            }
        }
        false
    }

    fn apply_to_queue(self: &Arc<Self>, vhost: &Vhost, queue: &Arc<Queue>, changes: &Changes) {
        if queue.is_dropped() {
            return;
        }
        let now = Arc::clone(&queue.in_force.read());
        let (policies, subject) = (&vhost.policies, Subject::Queue(&queue.name, kind_name(now.understood.kind)));
        if policies.cost_after(changes, &now.matched, subject) > AT_ONCE {
            return policies
                .walk
                .search_first(Subjected::Queue(Arc::clone(queue)), Search::new(policies.walk.changes()));
        }
        let matched = policies.after(changes, &now.matched, subject);
        if matched.is(&now.matched) {
            return;
        }
        self.put_policies_in_force(vhost, queue, matched);
    }

    fn put_policies_in_force(self: &Arc<Self>, vhost: &Vhost, queue: &Arc<Queue>, matched: Matched) {
        let Ok(own) = QueueArguments::new(&queue.arguments) else { return };
        let wanted = vhost.policies.in_force_of(matched, &queue.arguments, own);
        queue.parts().for_each(|part| self.put_in_force(part, Arc::clone(&wanted)));
    }

    /// One piece of a search.
    fn go_on_searching(self: &Arc<Self>, vhost: &Vhost, mut searched: Searched) {
        let policies = &vhost.policies;
        match &searched.subject {
            Subjected::Queue(queue) if queue.is_dropped() => {}
            Subjected::Queue(queue) => {
                let now = Arc::clone(&queue.in_force.read());
                if !policies.search(Subject::Queue(&queue.name, kind_name(now.understood.kind)), &mut searched.search) {
                    return policies.walk.search_on(searched);
                }
                let matched = searched.search.matched();
                if now.unjudged || !matched.is(&now.matched) {
                    self.put_policies_in_force(vhost, queue, matched);
                }
            }
            Subjected::Exchange(exchange) => {
                if !policies.search(Subject::Exchange(exchange), &mut searched.search) {
                    return policies.walk.search_on(searched);
                }
                vhost.exchanges.write().set_policy_alternate(exchange, searched.search.matched().alternate());
            }
        }
        policies.walk.search_over(searched);
    }
}

impl Vhost {
    fn apply_to_exchange(&self, exchange: &Name, changes: &Changes) {
        let subject = Subject::Exchange(exchange);
        let changed = || {
            changes.there().map(|(_, policy)| policy).chain(&changes.gone).filter(|policy| policy.may_match(subject))
        };
        let cost: usize = changed().map(|policy| policy.cost()).sum();
        if cost <= AT_ONCE && !changed().any(|policy| policy.matches(subject)) {
            return;
        }
        if let Some(search) = self.begin_alternate(exchange) {
            self.policies.walk.search_first(Subjected::Exchange(exchange.clone()), search);
        }
    }
}

#[cfg(test)]
mod tests;
