//! How a member of a consumer group gets from what it has to its target: first it gives up what is not its own any more, and
//! only when it has said so does it go to the new epoch, where it gets what nobody else holds.
//!
//! ```text
//! Stable ── newer target ──▶ (nothing to give up) ── all free ──▶ Stable
//!                     │                          └── some held ─▶ Unreleased ── freed ──▶ Stable
//!                     └─ something to give up ──▶ Unrevoked ── given up ──▶ as above
//! ```

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::TopicId;

use crate::consumer_group::ConsumerMember;
use crate::topology::{Owned, Target};

/// Where a member stands on its way to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has what it is to have, as far as its epoch goes.
    Stable,
    /// It has to give partitions up.
    Unrevoked,
    /// It waits for partitions that others hold.
    Unreleased,
}

impl MemberState {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Stable => 0,
            Self::Unrevoked => 1,
            Self::Unreleased => 2,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        [Self::Stable, Self::Unrevoked, Self::Unreleased].into_iter().find(|state| state.code() == code)
    }
}

/// What a step of a member depends on.
pub(crate) struct Step<'a> {
    /// Epoch of the target.
    pub epoch: i32,
    pub target: &'a Target,
    /// Topics that the member reads.
    pub reads: &'a BTreeSet<TopicId>,
    /// What the member says that it has; `None` when it does not say.
    pub owned: Option<&'a [(TopicId, Vec<u32>)]>,
    /// The member's subscription is another than before.
    pub resubscribed: bool,
    /// Does nobody hold this partition?
    pub free: &'a dyn Fn(TopicId, u32) -> bool,
}

/// Puts partitions beside those that are there.
fn put_in(owned: &mut Owned, topic: TopicId, partitions: Arc<BTreeMap<u32, i32>>) {
    if partitions.is_empty() {
        return;
    }
    match owned.entry(topic) {
        Entry::Vacant(none) => {
            none.insert(partitions);
        }
        Entry::Occupied(mut some) => {
            Arc::make_mut(some.get_mut()).extend(partitions.iter().map(|(partition, epoch)| (*partition, *epoch)))
        }
    }
}

impl Step<'_> {
    /// The member after this step; the same when nothing changes.
    pub fn take(&self, member: &ConsumerMember) -> ConsumerMember {
        match member.state {
            MemberState::Stable if member.epoch != self.epoch => self.advance(member),
            MemberState::Stable if self.resubscribed => self.drop_unread(member),
            MemberState::Stable => member.clone(),
            MemberState::Unrevoked if self.still_owns(&member.revoking) => {
                if self.resubscribed {
                    self.drop_unread(member)
                } else {
                    member.clone()
                }
            }
            MemberState::Unrevoked | MemberState::Unreleased => self.advance(member),
        }
    }

    /// Does the member have any of these? One that does not say may.
    fn still_owns(&self, revoking: &Owned) -> bool {
        let Some(owned) = self.owned else { return true };
        owned.iter().any(|(topic, partitions)| {
            revoking
                .get(topic)
                .is_some_and(|revoking| partitions.iter().any(|partition| revoking.contains_key(partition)))
        })
    }

    /// What it does not read any more has to go, whatever the target says later.
    fn drop_unread(&self, member: &ConsumerMember) -> ConsumerMember {
        let mut next = member.clone();
        for (topic, partitions) in &*member.assigned {
            if !self.reads.contains(topic) {
                Arc::make_mut(&mut next.assigned).remove(topic);
                put_in(Arc::make_mut(&mut next.revoking), *topic, Arc::clone(partitions));
            }
        }
        if next.assigned == member.assigned {
            return next;
        }
        next.previous_epoch = member.epoch;
        if self.still_owns(&next.revoking) {
            next.state = MemberState::Unrevoked;
        } else {
            next.revoking.clone_from(&member.revoking);
        }
        next
    }

    fn advance(&self, member: &ConsumerMember) -> ConsumerMember {
        let nothing = BTreeMap::new();
        let (mut assigned, mut revoking, mut coming) = (Owned::new(), Owned::new(), Owned::new());
        let mut waits = false;
        let topics: BTreeSet<&TopicId> = self.target.keys().chain(member.assigned.keys()).collect();
        for topic in topics {
            let target = self.target.get(topic).filter(|_| self.reads.contains(topic));
            let wanted = |partition: &u32| target.is_some_and(|target| target.contains(partition));
            let all = member.assigned.get(topic);
            let has = all.map_or(&nothing, |has| &**has);
            let keeps = has.keys().filter(|partition| wanted(partition)).count();
            match all {
                None => {}
                Some(all) if keeps == all.len() => put_in(&mut assigned, *topic, Arc::clone(all)),
                Some(all) if keeps == 0 => put_in(&mut revoking, *topic, Arc::clone(all)),
                Some(all) => {
                    let places = all.iter().map(|(partition, epoch)| (*partition, *epoch));
                    let (kept, given_up) = places.partition(|(partition, _)| wanted(partition));
                    put_in(&mut assigned, *topic, Arc::new(kept));
                    put_in(&mut revoking, *topic, Arc::new(given_up));
                }
            }
            let own = |partition: &u32| member.revoking.get(topic).is_some_and(|own| own.contains_key(partition));
            let missing = target.into_iter().flatten().filter(|partition| !has.contains_key(partition));
            let (mut free, mut held) = (Vec::new(), false);
            for partition in missing {
                if (self.free)(*topic, *partition) || own(partition) {
                    free.push((*partition, self.epoch));
                } else {
                    held = true;
                }
            }
            put_in(&mut coming, *topic, Arc::new(free.into_iter().collect()));
            waits |= held;
        }
        let mut next = ConsumerMember { previous_epoch: member.epoch, ..member.clone() };
        if !revoking.is_empty() && self.still_owns(&revoking) {
            next.state = MemberState::Unrevoked;
            (next.assigned, next.revoking) = (Arc::new(assigned), Arc::new(revoking));
            return next;
        }
        for (topic, partitions) in coming {
            put_in(&mut assigned, topic, partitions);
        }
        next.epoch = self.epoch;
        (next.assigned, next.revoking) = (Arc::new(assigned), Arc::default());
        next.state = if waits { MemberState::Unreleased } else { MemberState::Stable };
        next
    }
}
