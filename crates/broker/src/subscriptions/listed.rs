//! All shared subscriptions, in the order of their logs, those of one log by group; and those of each group in the same order. There are as many
//! as queues: the list has two pointers for each, and the names are those that the subscriptions have themselves.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use delivery::SubscriptionName;
use hashbrown::HashMap;

use super::SharedSubscription;

/// Topic, partition and group.
type Place<'a> = (u128, u32, &'a str);

/// See the head of the file.
#[derive(Default)]
pub(super) struct Listed {
    by_log: BTreeSet<Entry>,
    /// None is empty.
    by_group: HashMap<Arc<str>, BTreeSet<Entry>>,
}

#[derive(Clone)]
struct Entry(Arc<SharedSubscription>);

/// What has a place in the list.
trait Placed {
    fn place(&self) -> Place<'_>;
}

impl Listed {
    pub fn get(&self, place: Place<'_>) -> Option<&Arc<SharedSubscription>> {
        self.by_log.get(&place as &dyn Placed).map(|entry| &entry.0)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<SharedSubscription>> {
        self.by_log.iter().map(|entry| &entry.0)
    }

    /// Those of one group, by topic and partition.
    pub fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<SharedSubscription>> {
        self.by_group.get(group).into_iter().flatten().map(|entry| &entry.0)
    }

    /// How many those are.
    pub fn count_of_group(&self, group: &str) -> usize {
        self.by_group.get(group).map_or(0, BTreeSet::len)
    }

    /// Those of all its partitions.
    pub fn of_topic(&self, topic: u128) -> impl Iterator<Item = &Arc<SharedSubscription>> {
        let first: Place<'_> = (topic, 0, "");
        let from = self.by_log.range::<dyn Placed, _>((Bound::Included(&first as &dyn Placed), Bound::Unbounded));
        from.map(|entry| &entry.0).take_while(move |shared| shared.name.topic == topic)
    }

    /// One in a place where there is none.
    pub fn insert(&mut self, shared: Arc<SharedSubscription>) {
        let (group, entry) = (Arc::clone(&shared.name.group), Entry(shared));
        self.by_log.insert(entry.clone());
        self.by_group.entry(group).or_default().insert(entry);
    }

    pub fn remove(&mut self, shared: &SharedSubscription) {
        let SubscriptionName { group, topic, partition } = &shared.name;
        let place: Place<'_> = (*topic, *partition, group);
        self.by_log.remove(&place as &dyn Placed);
        if let Some(of_group) = self.by_group.get_mut(group) {
            of_group.remove(&place as &dyn Placed);
            if of_group.is_empty() {
                self.by_group.remove(group);
            }
        }
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
