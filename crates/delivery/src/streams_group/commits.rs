//! What members of a streams group may commit and read.

use super::{StreamsGroup, StreamsMember};
use crate::GroupError;

impl StreamsGroup {
    /// May this member commit, and under which condition on each partition?
    pub(crate) fn check_commit(&self, member: &crate::Committer<'_>) -> Result<Option<&StreamsMember>, GroupError> {
        if member.generation < 0 && self.members.is_empty() {
            return Ok(None);
        }
        if member.transactional && member.generation == -1 && member.member_id.is_empty() && member.instance.is_none() {
            return Ok(None);
        }
        let known = self.members.get(member.member_id).ok_or(GroupError::UnknownMember)?;
        if !member.transactional && !member.knows_epochs {
            return Err(GroupError::UnsupportedVersion);
        }
        if member.generation == known.epoch {
            return Ok(None);
        }
        if member.generation > known.epoch { Err(GroupError::StaleEpoch) } else { Ok(Some(known)) }
    }

    /// May offsets be read under this member epoch?
    pub(crate) fn check_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        if member_id.is_none() && epoch < 0 {
            return Ok(());
        }
        let known = member_id.and_then(|id| self.members.get(id)).ok_or(GroupError::UnknownMember)?;
        if known.epoch == epoch { Ok(()) } else { Err(GroupError::StaleEpoch) }
    }

    /// Does a member read this topic?
    pub(crate) fn reads_topic(&self, topic: &str) -> bool {
        !self.members.is_empty()
            && self.topology.as_ref().is_some_and(|topology| topology.readers().contains_key(topic))
    }
}

impl StreamsMember {
    /// A commit of an older epoch holds for tasks that the member has had since then.
    pub(crate) fn check_older_commit(
        &self,
        epoch: i32,
        reader: Option<&String>,
        partition: u32,
    ) -> Result<(), GroupError> {
        match reader.and_then(|id| self.runs_since(id, partition)) {
            Some(since) if epoch >= since => Ok(()),
            _ => Err(GroupError::StaleEpoch),
        }
    }
}
