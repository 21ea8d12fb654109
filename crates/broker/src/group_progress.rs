//! How far groups are: the one place that counts lag, for the API, the console, `/metrics` and `why`.
//!
//! Where a group begins in a partition that it has committed nothing of is for its clients to say (`auto.offset.reset`), and not known here: these are counted
//! beside the lag. Records that were deleted are nobody's backlog.

use std::sync::Arc;

use delivery::CommittedOffset;
use journal::Log;
use types::{Offset, PartitionIndex, TopicId};

use crate::Broker;
use crate::subscriptions::SharedSubscription;

/// How far a group is in a partition.
#[derive(Clone, Debug)]
pub struct GroupProgress {
    /// Of the topic.
    pub topic: String,
    /// Index.
    pub partition: u32,
    /// The next record to be done; of a share group, before which everything is done. `None`: it is not known where the group begins.
    pub committed: Option<u64>,
    /// What was committed, also where that is no offset; `None` of a share group, and of what nobody has committed.
    pub commit: Option<CommittedOffset>,
    /// Of a share group: records that members have.
    pub in_flight: Option<u64>,
    /// The first record that there is.
    pub start: Offset,
    /// Behind the last one that can be read.
    pub end: Offset,
    /// Records that are not done.
    lag: u64,
}

impl GroupProgress {
    fn of(topic: String, partition: u32, log: &Log, commit: Option<CommittedOffset>) -> Self {
        let (start, end) = (log.start(), log.high_watermark());
        let committed = commit.as_ref().and_then(|commit| u64::try_from(commit.offset).ok());
        let from = committed.unwrap_or(0).max(start.0);
        Self { topic, partition, committed, commit, in_flight: None, start, end, lag: end.0.saturating_sub(from) }
    }

    /// Records that are not done; `None` where it is not known where the group begins.
    pub fn lag(&self) -> Option<u64> {
        self.committed.map(|_| self.lag)
    }

    /// Records of a partition without an offset: the most that the group has yet to read.
    pub fn unknown(&self) -> Option<u64> {
        if self.committed.is_none() { Some(self.lag) } else { None }
    }
}

/// Sums over partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLag {
    /// Records that are not done, of partitions with an offset.
    pub records: u64,
    /// Partitions that members read and of which the group has no offset.
    pub partitions_unknown: u64,
    /// Records of these.
    pub records_unknown: u64,
}

impl GroupLag {
    /// Of these partitions.
    pub fn of<'p>(progress: impl IntoIterator<Item = &'p GroupProgress>) -> Self {
        progress.into_iter().fold(Self::default(), |sum, one| Self {
            records: sum.records + one.lag().unwrap_or(0),
            partitions_unknown: sum.partitions_unknown + u64::from(one.committed.is_none()),
            records_unknown: sum.records_unknown + one.unknown().unwrap_or(0),
        })
    }
}

impl SharedSubscription {
    /// Records that are not done. Of queues only committed messages count.
    pub fn lag(&self) -> u64 {
        let end = if self.is_of_queue() { self.log().last_stable() } else { self.log().high_watermark() };
        self.lock().backlog(end.0)
    }
}

impl Broker {
    /// How far a group is in what it has committed and its members read, or in what it shares, by topic and partition.
    pub fn group_progress(&self, group: &str) -> Vec<GroupProgress> {
        let mut found: Vec<GroupProgress> = match self.groups().offsets_and_reads(group) {
            None => {
                self.subscriptions().of_group(group).iter().filter_map(|shared| self.shared_progress(shared)).collect()
            }
            Some((offsets, read)) => {
                let read = read.into_iter().flat_map(|(topic, partitions)| {
                    partitions.into_iter().map(move |partition| (topic.clone(), partition))
                });
                let has_offset = |topic: &String, partition: &u32| {
                    offsets.binary_search_by(|(other, index, _)| (other, index).cmp(&(topic, partition))).is_ok()
                };
                let unread: Vec<(String, u32)> =
                    read.filter(|(topic, partition)| !has_offset(topic, partition)).collect();
                let committed = offsets.into_iter().map(|(topic, partition, commit)| (topic, partition, Some(commit)));
                let all = committed.chain(unread.into_iter().map(|(topic, partition)| (topic, partition, None)));
                let of_log = |(topic, partition, commit): (String, u32, Option<CommittedOffset>)| {
                    let log = self.topic(&topic)?.log(PartitionIndex(partition))?;
                    Some(GroupProgress::of(topic, partition, &log, commit))
                };
                all.filter_map(of_log).collect()
            }
        };
        found.sort_by(|one, other| (&one.topic, one.partition).cmp(&(&other.topic, other.partition)));
        found
    }

    fn shared_progress(&self, shared: &Arc<SharedSubscription>) -> Option<GroupProgress> {
        let topic = self.topic_by_id(TopicId(uuid::Uuid::from_u128(shared.name().topic)))?.name.clone();
        let (log, lag, state) = (shared.log(), shared.lag(), shared.lock());
        Some(GroupProgress {
            topic,
            partition: shared.name().partition,
            committed: Some(state.start()),
            commit: None,
            in_flight: Some(state.in_flight()),
            start: log.start(),
            end: log.high_watermark(),
            lag,
        })
    }
}
