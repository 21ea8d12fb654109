//! Where groups go on: committed offsets of a group without members are set by those who operate it. Runs on the controller's thread;
//! durable before it is visible.

use std::sync::Arc;

use delivery::{Commit, CommittedOffset, Committer, GroupError};
use journal::{AppendError, Log, ReadError};
use types::{Offset, PartitionIndex};

use crate::Broker;
use crate::topic::Topic;

/// Why a group goes on where it would have.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// As the group stands.
    #[error("{0}")]
    Group(GroupError),
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The subscription's new place was not taken by the journal.
    #[error("the journal does not take the new start of a subscription")]
    Subscription,
}

/// The place from which a group goes on in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoOn {
    /// By name.
    pub topic: String,
    /// Index.
    pub partition: u32,
    /// The next record to read.
    pub offset: u64,
}

impl Broker {
    /// The first record that is not older than `timestamp` (ms since 1970); the end, if all are. Reads from the disk.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn offset_at(&self, log: &Arc<Log>, timestamp: i64) -> Result<Offset, ReadError> {
        let found = self.journal_of(log.id()).find_by_time(log, timestamp)?;
        Ok(found.map_or_else(|| log.high_watermark(), |(offset, _)| offset))
    }

    /// Sets committed offsets of a group of any protocol but that of share groups; one that does not exist is made. All or none.
    ///
    /// # Errors
    /// `Group`: it has members, or is a share group.
    pub fn set_group_offsets(&self, group: &str, places: &[GoOn]) -> Result<(), ResetError> {
        let committed_at = self.now_ms().max(0) as u64;
        let commit = |place: &GoOn| Commit {
            topic: place.topic.clone(),
            partition: place.partition,
            offset: CommittedOffset {
                offset: place.offset as i64,
                leader_epoch: -1,
                metadata: String::new(),
                committed_at,
            },
        };
        let commits: Vec<Commit> = places.iter().map(commit).collect();
        let nobody =
            Committer { member_id: "", instance: None, generation: -1, transactional: false, knows_epochs: true };
        // Who is no member is refused by a group that has some, in other words than those of an operator.
        let refused = |error| match error {
            GroupError::UnknownMember
            | GroupError::IllegalGeneration
            | GroupError::StaleEpoch
            | GroupError::Rebalancing => ResetError::Group(GroupError::NonEmptyGroup),
            other => ResetError::Group(other),
        };
        self.commit_offsets_durably(group, nobody, commits, refused)
    }

    /// Starts the subscriptions of a share group elsewhere; one that does not exist is made.
    ///
    /// # Errors
    /// `Group`: it has members, or is no share group. `Subscription`: those before this one have been started elsewhere.
    pub fn set_share_starts(self: &Arc<Self>, group: &str, places: &[(Arc<Topic>, GoOn)]) -> Result<(), ResetError> {
        self.make_share_group(group).map_err(ResetError::Group)?;
        match self.share_group_members(group) {
            None => return Err(ResetError::Group(GroupError::GroupNotFound)),
            Some(0) => {}
            Some(_) => return Err(ResetError::Group(GroupError::NonEmptyGroup)),
        }
        let starts: Vec<_> = places
            .iter()
            .map(|(topic, place)| (Arc::clone(topic), PartitionIndex(place.partition), Offset(place.offset)))
            .collect();
        if self.reset_subscriptions(group, &starts).iter().any(Result::is_err) {
            Err(ResetError::Subscription)
        } else {
            Ok(())
        }
    }
}
