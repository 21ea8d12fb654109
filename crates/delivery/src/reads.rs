//! Partitions that members of a group read, by topic, whatever the protocol of the group. Lag is counted over them, and over what the group has committed.

use std::collections::{BTreeMap, BTreeSet};

use crate::coordinator::GroupCoordinator;
use crate::embedded::assigned_partitions;
use crate::kinds::Kind;

/// Partitions by topic.
pub type ReadPartitions = BTreeMap<String, BTreeSet<u32>>;

impl<W: Copy> GroupCoordinator<W> {
    /// What members of a group read. `None`: there is no such group, or it is a share group, whose subscriptions say how far it is. What the leader of a classic
    /// group has written in another form than consumers' counts as nothing.
    pub fn read_partitions(&self, name: &str) -> Option<ReadPartitions> {
        let mut found = ReadPartitions::new();
        match self.groups.get(name)? {
            Kind::Classic(group) if group.protocol_type.as_deref() == Some("consumer") => {
                for (topic, partitions) in
                    group.members.values().flat_map(|member| assigned_partitions(&member.assignment))
                {
                    // A leader may assign what is not there, and millions of it.
                    let Some((_, count)) = self.topics.find(&topic) else { continue };
                    found
                        .entry(topic)
                        .or_default()
                        .extend(partitions.into_iter().filter(|partition| *partition < count));
                }
            }
            Kind::Consumer(group) => {
                for (id, partitions) in group.members.values().flat_map(|member| &*member.assigned) {
                    if let Some(topic) = self.topics.name(*id) {
                        found.entry(topic).or_default().extend(partitions.keys());
                    }
                }
            }
            Kind::Streams(group) => {
                let Some(topology) = &group.topology else { return Some(found) };
                for (subtopology, partitions) in group.members.values().flat_map(|member| &member.assigned.active) {
                    let read = topology.subtopologies.get(subtopology).into_iter().flat_map(|one| one.reads());
                    // Of topics with fewer partitions than others of the subtopology some tasks read none.
                    for (topic, count) in read.filter_map(|topic| Some((topic, self.topics.find(topic)?.1))) {
                        found
                            .entry(topic.clone())
                            .or_default()
                            .extend(partitions.keys().filter(|partition| **partition < count));
                    }
                }
            }
            Kind::Classic(_) => {}
            Kind::Share(_) => return None,
        }
        Some(found)
    }
}
