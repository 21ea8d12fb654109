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
//! A walk leaves nothing on the disk. If the process ends before a walk does, the next start judges all queues.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec;

use parking_lot::{Condvar, Mutex};
use routing::Name;

use super::Vhost;
use super::arguments::{QueueArguments, kind_name};
use super::policies::{Matched, Policies, Policy, PolicyScope, Sets, Subject};
use super::queue::Queue;
use crate::Broker;
use crate::jobs::{Job, NOBODY, Task};

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
        let all = PolicyScope::BOTH.into_iter().flat_map(move |scope| self.set.of(scope).iter().map(move |policy| (scope, policy)));
        all.filter(|(_, policy)| !policy.is_gone())
    }
}

/// What a walk passes next.
enum Next {
    Queue(Arc<Queue>),
    Exchange(Name),
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
        let alternates = vhost.policies.sets().any(Policy::names_alternate) || changes.gone.iter().any(|policy| policy.names_alternate());
        let exchanges = match alternates {
            true => vhost.exchanges.read().exchanges().map(|exchange| exchange.name().clone()).collect(),
            false => Vec::new(),
        };
        let queues: Vec<Arc<Queue>> = vhost.queues.read().values().cloned().collect();
        Self { changes: Arc::new(changes), queues: queues.into_iter(), exchanges: exchanges.into_iter(), until }
    }

    fn next(&mut self) -> Option<Next> {
        self.queues.next().map(Next::Queue).or_else(|| self.exchanges.next().map(Next::Exchange))
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
        self.inner.lock().walk.is_some()
    }

    /// What is passed next, and because of which changes. `None`: all is applied.
    fn next(&self, vhost: &Vhost) -> Option<(Next, Arc<Changes>)> {
        let mut inner = self.inner.lock();
        if vhost.is_deleted() {
            (inner.walk, inner.waiting, inner.applied) = (None, Changes::default(), inner.made);
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
                return Some((next, Arc::clone(&walk.changes)));
            }
            inner.applied = walk.until;
            inner.walk = None;
            self.progress.notify_all();
        }
    }

    fn give_up(&self) {
        self.inner.lock().given_up = true;
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
        let wanted = inner.made;
        while inner.applied < wanted && !inner.given_up {
            if self.walk.progress.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        inner.applied >= wanted
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
}

impl Broker {
    /// Applies changes of policies that were made: the first piece at once, the others by and by. On the controller's thread.
    pub(crate) fn apply_policies(self: &Arc<Self>, vhost: &Arc<Vhost>) {
        let (began, walking) = (Instant::now(), vhost.policies.walk.is_walking());
        if !walking && self.walk_on(vhost, || began.elapsed() < PIECE_MAX) {
            return;
        }
        let mut queue = self.vhosts.walks.lock();
        if !queue.vhosts.iter().any(|one| Arc::ptr_eq(one, vhost)) {
            queue.vhosts.push_back(Arc::clone(vhost));
        }
        self.schedule_walk(&mut queue);
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
        queue.scheduled = self.controller.push_always(Job { to: NOBODY, task: Task::Work(Box::new(work)) });
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
                Some((Next::Queue(queue), changes)) => self.apply_to_queue(vhost, &queue, &changes),
                Some((Next::Exchange(exchange), changes)) => vhost.apply_to_exchange(&exchange, &changes),
            }
        }
        false
    }

    fn apply_to_queue(self: &Arc<Self>, vhost: &Vhost, queue: &Arc<Queue>, changes: &Changes) {
        if queue.is_dropped() {
            return;
        }
        let now = Arc::clone(&queue.in_force.read());
        let matched = vhost.policies.after(changes, &now.matched, Subject::Queue(&queue.name, kind_name(now.understood.kind)));
        if matched.is(&now.matched) {
            return;
        }
        let Ok(own) = QueueArguments::new(&queue.arguments) else { return };
        let wanted = vhost.policies.in_force_of(matched, &queue.arguments, own);
        queue.parts().for_each(|part| self.put_in_force(part, Arc::clone(&wanted)));
    }
}

impl Vhost {
    fn apply_to_exchange(&self, exchange: &[u8], changes: &Changes) {
        let mut changed = changes.there().map(|(_, policy)| policy).chain(&changes.gone);
        if changed.any(|policy| policy.matches(Subject::Exchange(exchange))) {
            self.set_alternate(exchange);
        }
    }
}

#[cfg(test)]
mod tests;
