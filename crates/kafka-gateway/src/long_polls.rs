//! Memory of fetches that wait for records: what a request of many partitions is decoded to stays as long as it waits, and it may wait for minutes.
//!
//! One for which there is no memory is answered at once with what there is, and its connection rests, as if it had waited for a short time: it
//! holds nothing meanwhile. Nobody stands in line.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::Limit;

use crate::pinned::{Pinned, Reserved};
use crate::session::Context;

/// Partitions of a fetch that need no memory of the account: those take about as much as its connection.
pub(crate) const FREE_PARTITIONS: usize = 100;
/// What the watch of a log takes, about, beside what is kept of the partition.
const WATCH_BYTES: usize = 32;
/// A connection rests so long, or as long as its fetch would have waited, if that is shorter: as long as clients let a fetch wait by default.
const REST: Duration = Duration::from_millis(500);

/// The account.
pub(crate) struct LongPolls(Arc<Pinned>);

/// What a fetch has of it.
#[derive(Default)]
pub(crate) struct PollRoom(Option<Arc<Reserved>>);

impl LongPolls {
    /// A bound in bytes.
    pub fn new(max: usize) -> Self {
        Self(Pinned::new(max))
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.0.used()
    }
}

impl PollRoom {
    /// May a fetch go on waiting until `deadline`, which keeps `count` partitions of `bytes` each? If not, its connection rests.
    pub fn is_there(&mut self, (count, bytes): (usize, usize), deadline: Instant, context: &mut Context<'_>) -> bool {
        if self.0.is_some() || count <= FREE_PARTITIONS {
            return true;
        }
        self.0 = context.gateway.long_polls.0.reserve(count * (bytes + WATCH_BYTES));
        if self.0.is_none() {
            rest(deadline, context);
        }
        self.0.is_some()
    }
}

/// The connection of a fetch rests that would have waited until `deadline` and may not.
pub(crate) fn rest(deadline: Instant, context: &mut Context<'_>) {
    let rest = deadline.saturating_duration_since(context.now).min(REST);
    context.throttle.pause(context.gateway.broker.quotas(), Limit::Memory, rest, context.now);
}
