//! Consumption as pure state machines: no I/O, no threads, no clock. Time comes in as milliseconds; answers that
//! had to wait and state to be made durable go out as [`Effect`]s.
//!
//! Here so far: Kafka's groups ([`GroupCoordinator`]) with committed offsets, of the classic protocol and of those in which the
//! coordinator assigns (consumer groups, members of share groups, streams groups), transactions ([`TransactionCoordinator`]), subscriptions that
//! consumers share ([`Subscription`]), and queues over them ([`Queue`]).

mod assignors;
mod classic_members;
mod consumer_group;
mod consumer_record;
mod consumer_topics;
mod coordinator;
mod done_list;
mod embedded;
mod error;
mod group;
mod kinds;
mod offsets;
mod queue;
mod reads;
mod reconcile;
mod record;
mod runs;
mod share_group;
mod sight;
mod streams_assignor;
mod streams_group;
mod streams_kinds;
mod streams_reconcile;
mod streams_record;
mod streams_topology;
mod subscription;
mod subscription_record;
mod timers;
mod topology;
mod transaction_account;
mod transaction_pieces;
mod transaction_record;
mod transactions;
mod weight;

pub use assignors::{Assignor, Subscriber, Targets, assign, simple};
pub use consumer_group::{
    ClassicSide, ConsumerGroupState, ConsumerHeartbeat, ConsumerMember, GroupTimes, HeartbeatAnswer,
};
pub use coordinator::{
    Commit, Committer, CoordinatorSettings, Expired, GroupCoordinator, GroupSummary, LeaveMember, Migration,
};
pub use embedded::{assigned_partitions, subscribed_topics};
pub use error::GroupError;
pub use group::{Answer, Effect, GroupState, JoinRequest, Joined, Member, SyncRequest, Synced};
pub use kinds::{Client, ConsumerGroupSummary, GroupLine, ShareGroupSummary};
pub use offsets::CommittedOffset;
pub use queue::{
    ChannelId, Consume, ConsumerStatus, DeleteRefused, Delivery, Head, InExclusiveUse, Line, Overflow, Queue,
    QueueKind, QueueRules, TakenBack, look_ahead_max,
};
pub use reads::ReadPartitions;
pub use reconcile::MemberState;
pub use record::{offset_key, offset_record};
pub use share_group::{ShareHeartbeat, ShareMember};
pub use sight::{Mention, Sight};
pub use streams_assignor::{TaskSets, Tasks, Work, Worker, sticky};
pub use streams_group::{
    EndpointPartitions, HeldTasks, StreamsAnswer, StreamsConfig, StreamsError, StreamsHeartbeat, StreamsMember,
};
pub use streams_kinds::{StreamsGroupSummary, StreamsGroupTopology};
pub use streams_topology::{
    ConfiguredSubtopology, ConfiguredTopic, CopartitionGroup, InternalTopic, StreamsStatus, StreamsStatusKind,
    StreamsTopology, Subtopology,
};
pub use subscription::{
    Acquired, Changes, ConsumerId, DEAD_LETTERS, Dead, DeadLettering, DeadReason, Done, DoneList, DoneOffsets, Gaps,
    KeyHash, Leaving, LevelPage, NO_LOCK, NotHeld, RecordState, Rest, Retry, RetryOf, Rules, Searched, Subscription,
    Tries, Verdict,
};
pub use subscription_record::{
    PAGE_OFFSETS, PageRun, StoredState, SubscriptionName, SubscriptionRecord, subscription_record,
};
pub use topology::{MatchState, Matched, Matches, Owned, Target, Topics};
pub use transaction_pieces::{Change, Whole};
pub use transactions::{
    Claim, Ended, Ending, FoundOpen, Initialised, ProducerEpoch, Transaction, TransactionCoordinator, TransactionError,
    TransactionRecord, TransactionSettings, TransactionState, Version,
};
