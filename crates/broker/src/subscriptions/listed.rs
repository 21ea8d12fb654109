//! All shared subscriptions, in the order of their logs, those of one log by group. There are as many as queues: the list has a pointer for
//! each, and the names are those that the subscriptions have themselves.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use delivery::SubscriptionName;

use super::SharedSubscription;

/// Topic, partition and group.
type Place<'a> = (u128, u32, &'a str);

/// See the head of the file.
#[derive(Default)]
pub(super) struct Listed(BTreeSet<Entry>);

struct Entry(Arc<SharedSubscription>);

/// What has a place in the list.
trait Placed {
    fn place(&self) -> Place<'_>;
}

impl Listed {
    pub fn get(&self, place: Place<'_>) -> Option<&Arc<SharedSubscription>> {
        self.0.get(&place as &dyn Placed).map(|entry| &entry.0)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<SharedSubscription>> {
        self.0.iter().map(|entry| &entry.0)
    }

    /// Those of all its partitions.
    pub fn of_topic(&self, topic: u128) -> impl Iterator<Item = &Arc<SharedSubscription>> {
        let first: Place<'_> = (topic, 0, "");
        let from = self.0.range::<dyn Placed, _>((Bound::Included(&first as &dyn Placed), Bound::Unbounded));
        from.map(|entry| &entry.0).take_while(move |shared| shared.name.topic == topic)
    }

    /// One in a place where there is none.
    pub fn insert(&mut self, shared: Arc<SharedSubscription>) {
        self.0.insert(Entry(shared));
    }

    pub fn remove(&mut self, shared: &SharedSubscription) {
        let SubscriptionName { group, topic, partition } = &shared.name;
        let place: Place<'_> = (*topic, *partition, group);
        self.0.remove(&place as &dyn Placed);
    }
}

impl Placed for Entry {
    fn place(&self) -> Place<'_> {
        let SubscriptionName { group, topic, partition } = &self.0.name;
        (*topic, *partition, group)
    }
}

impl Placed for Place<'_> {
    fn place(&self) -> Place<'_> {
        *self
    }
}

impl<'a> Borrow<dyn Placed + 'a> for Entry {
    fn borrow(&self) -> &(dyn Placed + 'a) {
        self
    }
}

impl Ord for dyn Placed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for dyn Placed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Placed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for dyn Placed + '_ {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Entry {}
