//! Committed offsets of groups. Three rules:
//!
//! * A commit is checked, and gets its place in the order of all commits and deletions, under one hold of the groups' lock: one that an
//!   older generation was allowed lies before everything that was decided after the rebalance.
//! * What is in memory follows the journal: commits take effect on the groups' thread in the order in which they were placed, whether
//!   their connections are still there or not.
//! * What a deletion finds under way lies before it in the journal, and does not take effect. For a topic that is gone nothing is
//!   committed: its name may be that of another one later.

use bytes::Bytes;
use delivery::{
    Commit, CommittedOffset, Committer, GroupError, ReadPartitions, TransactionError, offset_key, offset_record,
};
use hashbrown::HashSet;
use journal::{AppendError, AppendItem, AppendResults, ReplyTo};

use crate::Broker;
use crate::group_reset::ResetError;
use crate::groups::{Groups, State, durable, now};
use crate::lane::OF_TRANSACTIONS;
use crate::transactions::failure;

/// Commits that may wait because the journal's queue is full; more are refused.
const WAITING_MAX: usize = 10_000;
/// Keys that are removed by one append, about.
const KEYS_AT_ONCE: usize = 1000;

/// Offsets by topic and partition.
type Offsets = Vec<(String, u32, CommittedOffset)>;

/// Why no offset of a request is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitRefused {
    /// What the group says of the member.
    Group(GroupError),
    /// Too many wait for the journal.
    Busy,
}

/// Why offsets are not added to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffsetsRefused {
    /// What the group says of the member.
    Group(GroupError),
    /// What the transaction says of the producer, and what the group had refused of single offsets, by their numbers.
    Transaction(TransactionError, Vec<(usize, GroupError)>),
}

/// Offsets that take effect when an append is durable.
pub(crate) struct Coming {
    /// Each with its number in the append, and its group.
    offsets: Vec<(usize, String, Commit)>,
    /// Gets the results.
    tell: Option<ReplyTo>,
}

impl Coming {
    /// Groups of which offsets are to take effect.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.offsets.iter().map(|(_, group, _)| group.as_str())
    }
}

impl State {
    /// An append has an outcome: offsets that are durable take effect. Returns who waits for the results.
    pub fn take_effect(&mut self, token: u64, results: &AppendResults) -> Option<ReplyTo> {
        let Coming { offsets, tell } = self.coming.remove(&token)?;
        // Those of a transaction take effect together, and again when its end is tried again.
        let counts = token & OF_TRANSACTIONS == 0 || failure(results).is_none();
        for (item, group, commit) in offsets.into_iter().filter(|_| counts) {
            if results.get(item).is_some_and(Result::is_ok) {
                self.coordinator.apply_commit(&group, commit);
            }
        }
        tell
    }

    /// A deletion is about to be appended: of what is under way, offsets that `which` selects do not take effect. Returns their keys.
    pub fn withdraw(&mut self, which: impl Fn(&str, &Commit) -> bool) -> Vec<Bytes> {
        let mut keys = Vec::new();
        for coming in self.coming.values_mut() {
            let withdrawn = coming.offsets.extract_if(.., |(_, group, commit)| which(group, commit));
            keys.extend(withdrawn.map(|(_, group, commit)| offset_key(&group, &commit.topic, commit.partition)));
        }
        keys
    }
}

impl Groups {
    /// One committed offset.
    pub fn offset(&self, group: &str, topic: &str, partition: u32) -> Option<CommittedOffset> {
        self.state.lock().coordinator.offset(group, topic, partition)
    }

    /// All committed offsets.
    pub fn offsets(&self, group: &str) -> Vec<(String, u32, CommittedOffset)> {
        self.state.lock().coordinator.offsets(group)
    }

    /// The same, in the order of topics and partitions, and what the members read. `None`: it is a share group, or there is none.
    pub(crate) fn offsets_and_reads(&self, group: &str) -> Option<(Offsets, ReadPartitions)> {
        let state = self.state.lock();
        let read = state.coordinator.read_partitions(group)?;
        Some((state.coordinator.offsets(group), read))
    }

    /// How many they are.
    pub fn offset_count(&self, group: &str) -> usize {
        self.state.lock().coordinator.offset_count(group)
    }

    /// Has a group committed an offset of this topic?
    pub fn has_offsets_of(&self, group: &str, topic: &str) -> bool {
        self.state.lock().coordinator.has_offsets_of(group, topic)
    }

    /// Keys of what is in effect of a topic.
    pub(crate) fn offset_keys(&self, topic: &str) -> Vec<Bytes> {
        self.state.lock().coordinator.offset_keys(topic)
    }
}

impl Broker {
    /// Commits offsets; one outcome each. If any is taken, `to` gets [`crate::Reply::Appended`] with one result for each that is, in
    /// their order, once they are durable and in effect.
    ///
    /// # Errors
    /// When none may be committed.
    pub fn commit_offsets(
        &self,
        group: &str,
        member: Committer<'_>,
        commits: Vec<Commit>,
        to: ReplyTo,
    ) -> Result<Vec<Result<(), GroupError>>, CommitRefused> {
        let mut state = self.groups().state.lock();
        if self.lane().waiting() >= WAITING_MAX {
            return Err(CommitRefused::Busy);
        }
        let prepared =
            state.coordinator.prepare_commit(group, member, &commits, now()).map_err(CommitRefused::Group)?;
        let (mut items, mut offsets, mut outcomes) = (Vec::new(), Vec::new(), Vec::with_capacity(commits.len()));
        for (commit, record) in commits.into_iter().zip(prepared) {
            let record = if self.topic(&commit.topic).is_some() { record } else { Err(GroupError::TopicNotFound) };
            outcomes.push(record.map(|(key, value)| {
                offsets.push((items.len(), group.to_owned(), commit));
                items.push(AppendItem::State { key, value: Some(value) });
            }));
        }
        if !items.is_empty() {
            let token = state.take_token();
            state.coming.insert(token, Coming { offsets, tell: Some(to) });
            self.lane().append(self.journals(), token, items, true);
        }
        Ok(outcomes)
    }

    /// Commits all offsets or none, and waits. Not on a shard's thread.
    ///
    /// # Errors
    /// What the group says of the member, in the words of `refused`; the journal does not take it.
    pub(crate) fn commit_offsets_durably(
        &self,
        group: &str,
        member: Committer<'_>,
        commits: Vec<Commit>,
        refused: impl Fn(GroupError) -> ResetError,
    ) -> Result<(), ResetError> {
        let outcome = {
            let mut state = self.groups().state.lock();
            let records = state.coordinator.prepare_commit(group, member, &commits, now()).map_err(refused)?;
            if commits.iter().any(|commit| self.topic(&commit.topic).is_none()) {
                return Err(ResetError::Group(GroupError::TopicNotFound));
            }
            let records = records.into_iter().collect::<Result<Vec<_>, _>>().map_err(ResetError::Group)?;
            let items = records.into_iter().map(|(key, value)| AppendItem::State { key, value: Some(value) }).collect();
            let offsets =
                commits.into_iter().enumerate().map(|(item, commit)| (item, group.to_owned(), commit)).collect();
            let (token, outcome) = state.append_blocking(self, items);
            state.coming.insert(token, Coming { offsets, tell: None });
            outcome
        };
        Ok(durable(&outcome)?)
    }

    /// Appends the records of a transaction's end: `before`, those of its offsets, `after`. The offsets take effect with it.
    pub(crate) fn append_with_offsets(
        &self,
        token: u64,
        before: Vec<AppendItem>,
        offsets: &[(String, Commit)],
        after: AppendItem,
    ) {
        let mut state = self.groups().state.lock();
        let (mut items, mut coming) = (before, Vec::with_capacity(offsets.len()));
        for (group, commit) in offsets.iter().filter(|(_, commit)| self.topic(&commit.topic).is_some()) {
            let (key, value) = offset_record(group, commit);
            coming.push((items.len(), group.clone(), commit.clone()));
            items.push(AppendItem::State { key, value: Some(value) });
        }
        items.push(after);
        state.coming.insert(token, Coming { offsets: coming, tell: None });
        self.lane().append(self.journals(), token, items, true);
    }

    /// Deletes a committed offset, durably. On the controller's thread.
    ///
    /// # Errors
    /// `GroupNotFound`, `Subscribed`; `None` inside when the journal does not take it.
    pub fn delete_offset(
        &self,
        group: &str,
        topic: &str,
        partition: u32,
        subscribed: bool,
    ) -> Result<(), Option<GroupError>> {
        self.delete_offsets(group, &[(topic, partition, subscribed)]).pop().unwrap_or(Ok(()))
    }

    /// Deletes committed offsets of a group, durably and many with one commit: each of a topic and partition, and whether a member is subscribed to
    /// it. An outcome for each, as [`Broker::delete_offset`] has it. On the controller's thread.
    pub fn delete_offsets(&self, group: &str, offsets: &[(&str, u32, bool)]) -> Vec<Result<(), Option<GroupError>>> {
        let (mut outcomes, written): (Vec<Result<(), Option<GroupError>>>, Vec<_>) = {
            let mut state = self.groups().state.lock();
            let (mut keys, mut gone) = (Vec::new(), HashSet::new());
            let mut delete = |(topic, partition, subscribed): &(&str, u32, bool)| -> Result<(), GroupError> {
                keys.extend(state.coordinator.delete_offset(group, topic, *partition, *subscribed)?);
                gone.insert(((*topic).to_owned(), *partition));
                Ok(())
            };
            let outcomes = offsets.iter().map(|offset| delete(offset).map_err(Some)).collect();
            keys.extend(
                state.withdraw(|of, commit| of == group && gone.contains(&(commit.topic.clone(), commit.partition))),
            );
            let items =
                |keys: &[Bytes]| keys.iter().map(|key| AppendItem::State { key: key.clone(), value: None }).collect();
            (outcomes, keys.chunks(KEYS_AT_ONCE).map(|keys| state.append_blocking(self, items(keys)).1).collect())
        };
        if written.iter().try_for_each(durable).is_err() {
            outcomes.iter_mut().filter(|outcome| outcome.is_ok()).for_each(|outcome| *outcome = Err(None));
        }
        outcomes
    }

    /// At a start: forgets what groups have committed of topics that are gone. A crash came between a deletion and that, and another topic may get the name.
    pub(crate) fn forget_offsets_left_over(&self) {
        let mut state = self.groups().state.lock();
        let gone = state.coordinator.topics_with_offsets().into_iter().filter(|topic| self.topic(topic).is_none());
        let keys: Vec<Bytes> =
            gone.collect::<Vec<_>>().iter().flat_map(|topic| state.coordinator.forget_topic(topic)).collect();
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let items = keys.iter().map(|key| AppendItem::State { key: key.clone(), value: None }).collect();
            // What is not written now is forgotten again at the next start.
            drop(state.append_blocking(self, items));
        }
    }

    /// Deletes what all groups have committed for topics, durably. On the controller's thread.
    pub(crate) fn forget_committed_offsets(&self, topics: &[&str]) -> Result<(), AppendError> {
        let outcomes: Vec<_> = {
            let mut state = self.groups().state.lock();
            let mut keys: Vec<Bytes> = topics.iter().flat_map(|topic| state.coordinator.forget_topic(topic)).collect();
            let gone: HashSet<&str> = topics.iter().copied().collect();
            keys.extend(state.withdraw(|_, commit| gone.contains(commit.topic.as_str())));
            let items =
                |keys: &[Bytes]| keys.iter().map(|key| AppendItem::State { key: key.clone(), value: None }).collect();
            keys.chunks(KEYS_AT_ONCE).map(|keys| state.append_blocking(self, items(keys)).1).collect()
        };
        outcomes.iter().try_for_each(durable)
    }
}
