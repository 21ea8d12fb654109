//! Committed offsets of a group.

/// Where a group stands in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record to read; the client's number, not checked against the log.
    pub offset: i64,
    /// Of the last record read; −1 unknown.
    pub leader_epoch: i32,
    /// The client's text.
    pub metadata: String,
    /// Milliseconds since 1970.
    pub committed_at: u64,
}
