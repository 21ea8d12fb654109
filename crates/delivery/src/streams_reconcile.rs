//! How a member of a streams group gets from the tasks it has to its target. First it gives up what is not its own any more, and only
//! when it has said so does it get what nobody else has: a task runs in one place, and a process has one thing of a task, its run
//! or its state.

use std::collections::BTreeMap;

use crate::reconcile::MemberState;
use crate::streams_assignor::{TaskSets, Tasks};
use crate::streams_group::{HeldTasks, StreamsError, StreamsMember};
use crate::streams_topology::ConfiguredSubtopology;

/// What a step of a member depends on.
pub(crate) struct StreamsStep<'a> {
    /// Epoch of the target.
    pub epoch: i32,
    pub target: &'a TaskSets,
    /// What the member says that it has; `None` when it does not say.
    pub owned: Option<&'a TaskSets>,
    /// Does somebody run this task, or have it to give up?
    pub runs: &'a dyn Fn(&str, u32) -> bool,
    /// Does the member's process have something of this task?
    pub in_process: &'a dyn Fn(&str, u32) -> bool,
}

fn any(tasks: &Tasks, found: impl Fn(&str, u32) -> bool) -> bool {
    tasks.iter().any(|(id, partitions)| partitions.iter().any(|partition| found(id, *partition)))
}

impl StreamsStep<'_> {
    /// The member after this step; the same when nothing changes.
    pub fn take(&self, member: &StreamsMember) -> StreamsMember {
        match member.state {
            MemberState::Stable if member.epoch == self.epoch => member.clone(),
            MemberState::Unrevoked if self.still_owns(&member.revoking) => member.clone(),
            // What it was asked for is done: its epoch is another one from now on, whatever comes next.
            MemberState::Unrevoked => self.advance(member, (member.epoch + 1).min(self.epoch)),
            MemberState::Stable | MemberState::Unreleased => self.advance(member, member.epoch),
        }
    }

    /// Does the member have any of these? One that does not say may.
    fn still_owns(&self, tasks: &HeldTasks) -> bool {
        let Some(owned) = self.owned else { return true };
        any(&owned.active, |id, partition| tasks.active.get(id).is_some_and(|held| held.contains_key(&partition)))
            || any(&owned.standby, |id, partition| tasks.standby.get(id).is_some_and(|held| held.contains(&partition)))
    }

    fn advance(&self, member: &StreamsMember, epoch: i32) -> StreamsMember {
        let (mut assigned, mut revoking, mut coming) =
            (HeldTasks::default(), HeldTasks::default(), HeldTasks::default());
        let wanted =
            |tasks: &Tasks, id: &str, partition: u32| tasks.get(id).is_some_and(|set| set.contains(&partition));
        let mut waits = false;
        for (id, partitions) in &member.assigned.active {
            for (partition, since) in partitions {
                let list = if wanted(&self.target.active, id, *partition) { &mut assigned } else { &mut revoking };
                list.active.entry(id.clone()).or_default().insert(*partition, *since);
            }
        }
        for (id, partitions) in &member.assigned.standby {
            for partition in partitions {
                let list = if wanted(&self.target.standby, id, *partition) { &mut assigned } else { &mut revoking };
                list.standby.entry(id.clone()).or_default().insert(*partition);
            }
        }
        for (id, partitions) in &self.target.active {
            let has = |partition: &u32| assigned.active.get(id).is_some_and(|has| has.contains_key(partition));
            for partition in partitions.iter().filter(|partition| !has(partition)) {
                if (self.runs)(id, *partition) || (self.in_process)(id, *partition) {
                    waits = true;
                } else {
                    coming.active.entry(id.clone()).or_default().insert(*partition, self.epoch);
                }
            }
        }
        for (id, partitions) in &self.target.standby {
            for partition in partitions.iter().filter(|partition| !wanted(&assigned.standby, id, **partition)) {
                if (self.in_process)(id, *partition) {
                    waits = true;
                } else {
                    coming.standby.entry(id.clone()).or_default().insert(*partition);
                }
            }
        }
        let mut next = StreamsMember { previous_epoch: member.epoch, assigned, ..member.clone() };
        if !revoking.is_empty() && self.still_owns(&revoking) {
            next.epoch = epoch;
            next.state = MemberState::Unrevoked;
            next.revoking = revoking;
            return next;
        }
        next.assigned.merge(coming);
        next.epoch = self.epoch;
        next.revoking = HeldTasks::default();
        next.state = if waits { MemberState::Unreleased } else { MemberState::Stable };
        next
    }
}

/// Are there such tasks?
pub(crate) fn check_owned(
    owned: &TaskSets,
    subtopologies: &BTreeMap<String, ConfiguredSubtopology>,
) -> Result<(), StreamsError> {
    for (id, partitions) in owned.active.iter().chain(&owned.standby) {
        let Some(one) = subtopologies.get(id) else {
            return Err(StreamsError::InvalidRequest(format!("Subtopology {id} does not exist in the topology.")));
        };
        if let Some(partition) = partitions.iter().find(|partition| **partition >= one.tasks) {
            let detail = format!(
                "Task {partition} for subtopology {id} is invalid. Number of tasks for this subtopology: {}",
                one.tasks
            );
            return Err(StreamsError::InvalidRequest(detail));
        }
    }
    Ok(())
}
