//! From the broker's reasons to Kafka's codes: one table per family of errors.

use broker::append::AppendError;
use broker::{AclError, AlterError, CreateError, PartitionsError, ReadError};
use delivery::{GroupError, TransactionError};
use kafka_wire::ErrorCode;
use record::BatchError;

pub(crate) fn of_append(error: AppendError) -> ErrorCode {
    match error {
        AppendError::OutOfOrderSequence => ErrorCode::OutOfOrderSequenceNumber,
        AppendError::InvalidProducerEpoch => ErrorCode::InvalidProducerEpoch,
        AppendError::NotInTransaction | AppendError::TransactionEnded => ErrorCode::InvalidTxnState,
        // Clients try again for as long as a batch may take; the next turn of them may find room.
        AppendError::TooManyProducers => ErrorCode::NotEnoughReplicas,
        AppendError::TooLarge => ErrorCode::MessageTooLarge,
        AppendError::LogDeleted => ErrorCode::UnknownTopicOrPartition,
        AppendError::DiskFull | AppendError::NoSegment | AppendError::Stopped => ErrorCode::KafkaStorageError,
    }
}

pub(crate) fn of_batch(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::Corrupt { .. } | BatchError::Checksum { .. } => ErrorCode::CorruptMessage,
        // The formats before batches are known, but a Produce request may not hold them.
        BatchError::UnsupportedMagic { magic: 0 | 1 } => ErrorCode::InvalidRecord,
        BatchError::UnsupportedMagic { .. } => ErrorCode::CorruptMessage,
        BatchError::Truncated { .. } | BatchError::NotOne { .. } | BatchError::Invalid { .. } => {
            ErrorCode::InvalidRecord
        }
        BatchError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        BatchError::UnknownCompression => ErrorCode::UnsupportedCompressionType,
    }
}

pub(crate) fn of_group(error: GroupError) -> ErrorCode {
    match error {
        GroupError::InvalidGroupId => ErrorCode::InvalidGroupId,
        GroupError::InvalidSessionTimeout => ErrorCode::InvalidSessionTimeout,
        GroupError::UnknownMember => ErrorCode::UnknownMemberId,
        GroupError::MemberIdRequired => ErrorCode::MemberIdRequired,
        GroupError::FencedInstance => ErrorCode::FencedInstanceId,
        GroupError::InconsistentProtocol => ErrorCode::InconsistentGroupProtocol,
        GroupError::IllegalGeneration => ErrorCode::IllegalGeneration,
        GroupError::Rebalancing => ErrorCode::RebalanceInProgress,
        GroupError::GroupFull => ErrorCode::GroupMaxSizeReached,
        GroupError::NoMemory => ErrorCode::CoordinatorNotAvailable,
        GroupError::GroupNotFound => ErrorCode::GroupIdNotFound,
        GroupError::NonEmptyGroup => ErrorCode::NonEmptyGroup,
        GroupError::MetadataTooLarge => ErrorCode::OffsetMetadataTooLarge,
        GroupError::TopicNotFound => ErrorCode::UnknownTopicOrPartition,
        GroupError::Subscribed => ErrorCode::GroupSubscribedToTopic,
        GroupError::FencedEpoch => ErrorCode::FencedMemberEpoch,
        GroupError::StaleEpoch => ErrorCode::StaleMemberEpoch,
        GroupError::UnreleasedInstance => ErrorCode::UnreleasedInstanceId,
        GroupError::UnsupportedAssignor => ErrorCode::UnsupportedAssignor,
        GroupError::InvalidRegex => ErrorCode::InvalidRegularExpression,
        GroupError::UnsupportedVersion => ErrorCode::UnsupportedVersion,
    }
}

pub(crate) fn of_transaction(error: TransactionError) -> ErrorCode {
    match error {
        TransactionError::InvalidId => ErrorCode::InvalidRequest,
        TransactionError::InvalidTimeout => ErrorCode::InvalidTransactionTimeout,
        TransactionError::Fenced => ErrorCode::ProducerFenced,
        TransactionError::UnknownProducer => ErrorCode::InvalidProducerIdMapping,
        TransactionError::Concurrent => ErrorCode::ConcurrentTransactions,
        TransactionError::InvalidState => ErrorCode::InvalidTxnState,
        // Clients take it for the end; what stands for trying again would have them try for as long as ids are kept, which is days.
        TransactionError::TooMany | TransactionError::NoMemory | TransactionError::TooMuch => {
            ErrorCode::PolicyViolation
        }
    }
}

pub(crate) fn of_create(error: &CreateError) -> ErrorCode {
    match error {
        CreateError::Name(_) | CreateError::Collides(..) => ErrorCode::InvalidTopicException,
        CreateError::Exists(_) => ErrorCode::TopicAlreadyExists,
        CreateError::Partitions(_) => ErrorCode::InvalidPartitions,
        CreateError::Replication | CreateError::TooFewNodes(_) => ErrorCode::InvalidReplicationFactor,
        CreateError::Setting(_) => ErrorCode::InvalidConfig,
        CreateError::Limit(_) => ErrorCode::PolicyViolation,
        CreateError::Append(error) => of_append(*error),
    }
}

pub(crate) fn of_partitions(error: &PartitionsError) -> ErrorCode {
    match error {
        PartitionsError::UnknownTopic => ErrorCode::UnknownTopicOrPartition,
        PartitionsError::NotMore { .. } | PartitionsError::TooMany(_) | PartitionsError::Queue(_) => {
            ErrorCode::InvalidPartitions
        }
        PartitionsError::Limit(_) => ErrorCode::PolicyViolation,
        PartitionsError::Append(error) => of_append(*error),
    }
}

pub(crate) fn of_alter(error: &AlterError) -> ErrorCode {
    match error {
        AlterError::UnknownTopic => ErrorCode::UnknownTopicOrPartition,
        AlterError::Setting(_) => ErrorCode::InvalidConfig,
        AlterError::NoMemory => ErrorCode::PolicyViolation,
        AlterError::Append(error) => of_append(*error),
    }
}

pub(crate) fn of_acl(error: &AclError) -> ErrorCode {
    match error {
        AclError::ClusterName
        | AclError::EmptyName
        | AclError::Principal(_)
        | AclError::TooLong(_)
        | AclError::TooManyRemoved
        | AclError::TooManyPicked(_) => ErrorCode::InvalidRequest,
        AclError::TooMany(_) | AclError::TooManyCreated => ErrorCode::PolicyViolation,
        AclError::Append(error) => of_append(*error),
    }
}

pub(crate) fn of_read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::Segment(_) | ReadError::Missing { .. } => ErrorCode::KafkaStorageError,
        ReadError::Gone => ErrorCode::OffsetOutOfRange,
    }
}
