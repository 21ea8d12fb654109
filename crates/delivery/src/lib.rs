//! Consumption as pure state machines: no I/O, no threads, no clock. Time comes in as milliseconds; answers that
//! had to wait and state to be made durable go out as [`Effect`]s.
//!
//! Here so far: the classic consumer-group protocol of Kafka ([`GroupCoordinator`]) with committed offsets, transactions
//! ([`TransactionCoordinator`]), and subscriptions that consumers share ([`Subscription`]).

mod coordinator;
mod error;
mod group;
mod offsets;
mod record;
mod runs;
mod subscription;
mod subscription_record;
mod transaction_record;
mod transactions;

pub use coordinator::{Commit, Committer, CoordinatorSettings, GroupCoordinator, GroupSummary, LeaveMember};
pub use error::GroupError;
pub use group::{Answer, Effect, GroupState, JoinRequest, Joined, Member, SyncRequest, Synced};
pub use offsets::CommittedOffset;
pub use record::offset_record;
pub use subscription::{Acquired, Changes, ConsumerId, DEAD_LETTERS, Dead, Done, KeyHash, NotHeld, RecordState, Rules, Subscription, Verdict};
pub use subscription_record::{PAGE_OFFSETS, PageRun, StoredState, SubscriptionName, SubscriptionRecord, subscription_record};
pub use transactions::{
    Claim, Ended, Ending, Initialised, ProducerEpoch, Transaction, TransactionCoordinator, TransactionError, TransactionRecord, TransactionSettings,
    TransactionState, Version,
};
