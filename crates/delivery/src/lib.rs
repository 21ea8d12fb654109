//! Consumption as pure state machines: no I/O, no threads, no clock. Time comes in as milliseconds; answers that
//! had to wait and state to be made durable go out as [`Effect`]s.
//!
//! Here so far: the classic consumer-group protocol of Kafka ([`GroupCoordinator`]) with committed offsets, and transactions
//! ([`TransactionCoordinator`]).

mod coordinator;
mod error;
mod group;
mod offsets;
mod record;
mod transaction_record;
mod transactions;

pub use coordinator::{Commit, Committer, CoordinatorSettings, GroupCoordinator, GroupSummary, LeaveMember};
pub use error::GroupError;
pub use group::{Answer, Effect, GroupState, JoinRequest, Joined, Member, SyncRequest, Synced};
pub use offsets::CommittedOffset;
pub use record::offset_record;
pub use transactions::{
    Claim, Ended, Ending, Initialised, ProducerEpoch, Transaction, TransactionCoordinator, TransactionError, TransactionRecord, TransactionSettings,
    TransactionState, Version,
};
