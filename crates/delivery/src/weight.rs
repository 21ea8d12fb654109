//! How much memory groups take, about: their members with what these say of themselves, their assignments, and committed offsets. Measured
//! with the allocator of GNU; a list of strings counts by its length, so that weighing takes no longer than looking at each member.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::assignors::Targets;
use crate::consumer_group::ConsumerMember;
use crate::group::{Group, Member};
use crate::share_group::ShareMember;
use crate::streams_assignor::{TaskSets, Tasks};
use crate::streams_group::StreamsMember;
use crate::streams_topology::{InternalTopic, StreamsTopology};
use crate::topology::{Owned, Target};
use crate::transactions::{PendingOffsets, Transaction, TransactionState};

/// A group without members, of which a name is kept in five places.
pub(crate) const GROUP: usize = 1024;
const GROUP_NAMES: usize = 5;
/// A member without what it says of itself.
pub(crate) const MEMBER: usize = 1024;
/// An id that was given out and not used yet.
const PENDING: usize = 160;
/// The name of a topic in a set, or a topic of an assignment.
const TOPIC: usize = 160;
/// A partition of an assignment.
const PARTITION: usize = 12;
/// A partition or task with the name of the member that has it.
const HELD: usize = 112;
/// An expression without its text, of which there are some copies.
const EXPRESSION: usize = 1024;
const EXPRESSION_TEXTS: usize = 4;
/// A committed offset without its texts.
const OFFSET: usize = 256;
/// Of offsets of a topic that a group has, whatever their number: that it has some.
pub(crate) const READER: usize = 96;

/// A group as a whole: `inside` is what its kind adds.
pub(crate) fn group(name: &str, inside: usize) -> usize {
    GROUP + GROUP_NAMES * name.len() + inside
}

/// A committed offset.
pub(crate) fn offset(topic: &str, metadata: &str) -> usize {
    OFFSET + topic.len() + metadata.len()
}

/// A transactional id without its text. All texts of it count twice: a second time in the record that the next checkpoint says.
const TRANSACTIONAL_ID: usize = 512;
/// The deadline of a transaction, without the id.
const DEADLINE: usize = 64;
/// A group of a transaction, with the ids of transactions that hold offsets of it.
const GROUP_OF_TRANSACTION: usize = 256;
/// A log of a transaction.
pub(crate) const LOG_OF_TRANSACTION: usize = 32;

/// A transactional id with what its transaction holds.
pub(crate) fn transaction(id: &str, known: &Transaction) -> usize {
    let deadline = if known.state == TransactionState::Ongoing { DEADLINE + id.len() } else { 0 };
    TRANSACTIONAL_ID + 2 * id.len() + deadline + held_by_transaction(known)
}

/// What the transaction of an id holds.
pub(crate) fn held_by_transaction(known: &Transaction) -> usize {
    known.logs.len() * LOG_OF_TRANSACTION + known.offset_bytes
}

/// A group for which a transaction holds offsets.
pub(crate) fn group_of_transaction(id: &str, group: &str) -> usize {
    GROUP_OF_TRANSACTION + 3 * group.len() + id.len()
}

/// An offset that a transaction holds.
pub(crate) fn offset_of_transaction(topic: &str, metadata: &str) -> usize {
    offset(topic, metadata) + topic.len() + metadata.len()
}

/// What a transaction holds for groups.
pub(crate) fn offsets_of_transaction(id: &str, groups: &BTreeMap<String, PendingOffsets>) -> usize {
    let of = |(group, offsets): (&String, &PendingOffsets)| {
        group_of_transaction(id, group)
            + offsets.iter().map(|((topic, _), one)| offset_of_transaction(topic, &one.metadata)).sum::<usize>()
    };
    groups.iter().map(of).sum()
}

/// Protocols of a member of the classic kind.
pub(crate) fn protocols(all: &[(String, Bytes)]) -> usize {
    const AROUND: usize = 96;
    all.iter().map(|(name, metadata)| AROUND + name.len() + metadata.len()).sum()
}

pub(crate) fn classic<W>(group: &Group<W>) -> usize {
    let member = |member: &Member<W>| MEMBER + protocols(&member.protocols) + member.assignment.len();
    group.pending.len() * PENDING + group.members.values().map(member).sum::<usize>()
}

/// Topics that a member names, and an expression.
pub(crate) fn subscription(topics: usize, regex: Option<&String>) -> usize {
    topics * TOPIC + regex.map_or(0, |text| EXPRESSION + EXPRESSION_TEXTS * text.len())
}

fn target(target: &Target) -> usize {
    target.values().map(|partitions| TOPIC + partitions.len() * PARTITION).sum()
}

fn targets(all: &Targets) -> usize {
    all.values().map(target).sum()
}

fn owned(owned: &Owned) -> usize {
    owned.values().map(|partitions| TOPIC + partitions.len() * PARTITION).sum()
}

/// A consumer group: `held` partitions have a holder.
pub(crate) fn consumers<'a>(members: impl Iterator<Item = &'a ConsumerMember>, all: &Targets, held: usize) -> usize {
    let member = |member: &ConsumerMember| {
        let classic = member.classic.as_ref().map_or(0, |classic| protocols(&classic.protocols));
        let said = subscription(member.topics.len() + member.hidden.len(), member.regex.as_ref());
        MEMBER + said + classic + owned(&member.assigned) + owned(&member.revoking)
    };
    targets(all) + held * HELD + members.map(member).sum::<usize>()
}

pub(crate) fn sharers<'a>(members: impl Iterator<Item = &'a ShareMember>, all: &Targets) -> usize {
    let member = |member: &ShareMember| {
        MEMBER + subscription(member.topics.len() + member.hidden.len(), None) + target(&member.assigned)
    };
    targets(all) + members.map(member).sum::<usize>()
}

fn tasks(tasks: &Tasks) -> usize {
    tasks.values().map(|partitions| TOPIC + partitions.len() * PARTITION).sum()
}

/// A member of a streams group, without its target.
pub(crate) fn streams_member(member: &StreamsMember) -> usize {
    let tags: usize = member.tags.iter().map(|(name, value)| TOPIC + name.len() + value.len()).sum();
    let active = |active: &BTreeMap<String, BTreeMap<u32, i32>>| -> usize {
        active.values().map(|partitions| TOPIC + partitions.len() * PARTITION).sum()
    };
    let held = active(&member.assigned.active) + active(&member.revoking.active);
    MEMBER + tags + held + tasks(&member.assigned.standby) + tasks(&member.revoking.standby)
}

/// Targets of a streams group.
pub(crate) fn streams_targets(all: &BTreeMap<String, TaskSets>) -> usize {
    all.values().map(|sets| tasks(&sets.active) + tasks(&sets.standby)).sum()
}

/// Tasks with the names of those who have them.
pub(crate) fn held_tasks<V>(all: &BTreeMap<String, HashMap<u32, V>>) -> usize {
    all.values().map(|partitions| TOPIC + partitions.len() * HELD).sum()
}

/// A topology, and what was made of it with the topics that there are.
pub(crate) fn topology(topology: &StreamsTopology) -> usize {
    let names = |names: &[String]| names.iter().map(|name| TOPIC + name.len()).sum::<usize>();
    let internal = |topics: &[InternalTopic]| {
        let configs = |configs: &[(String, String)]| {
            configs.iter().map(|(name, value)| TOPIC + name.len() + value.len()).sum::<usize>()
        };
        topics.iter().map(|topic| TOPIC + topic.name.len() + configs(&topic.configs)).sum::<usize>()
    };
    let parts = topology.subtopologies.values().map(|part| {
        let together: usize =
            part.copartitioned.iter().map(|group| TOPIC + 2 * (group.sources.len() + group.repartition.len())).sum();
        TOPIC
            + names(&part.sources)
            + names(&part.sinks)
            + internal(&part.repartition)
            + internal(&part.changelogs)
            + together
    });
    2 * parts.sum::<usize>()
}
