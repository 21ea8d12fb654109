//! Why the coordinator refuses; each stands for one error code of the protocol.

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum GroupError {
    #[error("group id is invalid")]
    InvalidGroupId,
    #[error("session timeout is outside the allowed range")]
    InvalidSessionTimeout,
    #[error("member is not known in this group")]
    UnknownMember,
    #[error("join again with the member id given")]
    MemberIdRequired,
    #[error("another member has this instance id")]
    FencedInstance,
    #[error("no protocol that all members support")]
    InconsistentProtocol,
    #[error("generation is not the current one")]
    IllegalGeneration,
    #[error("group is rebalancing")]
    Rebalancing,
    #[error("group has as many members as allowed")]
    GroupFull,
    #[error("groups take as much memory as they may")]
    NoMemory,
    #[error("group does not exist")]
    GroupNotFound,
    #[error("group has members")]
    NonEmptyGroup,
    #[error("text beside the offset is too long")]
    MetadataTooLarge,
    #[error("topic does not exist")]
    TopicNotFound,
    #[error("a member reads this topic")]
    Subscribed,
    #[error("the member's epoch is another one: it must give up all its partitions and join again")]
    FencedEpoch,
    #[error("the member's epoch is another one by now")]
    StaleEpoch,
    #[error("the instance id belongs to a member that has not left")]
    UnreleasedInstance,
    #[error("there is no such assignor")]
    UnsupportedAssignor,
    #[error("the regular expression is none, or is too large")]
    InvalidRegex,
    #[error("members of the new protocol commit with version 9 or later")]
    UnsupportedVersion,
}
