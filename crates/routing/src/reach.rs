//! From which exchanges a queue can be reached at all, whatever a message has: over bindings, from exchange to exchange, and by alternates.

use hashbrown::HashSet;

use crate::binding::{BindingId, QueueId, Target};
use crate::exchange::ExchangeId;
use crate::table::Table;

/// Bindings that are looked at for one answer; where there are more, any exchange may lead to the queue.
const LOOKED_AT_MAX: usize = 10_000;

/// The exchanges from which a queue can be reached; the default exchange, which leads to each queue by its name, is not among them.
#[derive(Debug)]
pub struct Reach<'a> {
    table: &'a Table,
    /// `None`: any.
    found: Option<HashSet<ExchangeId>>,
}

impl Reach<'_> {
    /// May a message that is published to this exchange come to the queue? One that does not exist leads nowhere.
    pub fn contains(&self, exchange: &[u8]) -> bool {
        self.table.id(exchange).is_some_and(|id| self.found.as_ref().is_none_or(|found| found.contains(&id)))
    }
}

impl Table {
    /// The exchanges from which a queue can be reached. Keys and arguments of bindings are not looked at.
    pub fn exchanges_to(&self, queue: QueueId) -> Reach<'_> {
        Reach { table: self, found: self.lead_to(Target::Queue(queue)) }
    }

    fn lead_to(&self, target: Target) -> Option<HashSet<ExchangeId>> {
        // Whose messages go on to which exchange if nobody takes them.
        let fallbacks: Vec<(ExchangeId, ExchangeId)> =
            self.exchanges().filter_map(|exchange| Some((exchange.id, self.id(exchange.alternate()?)?))).collect();
        let (mut found, mut next, mut left) = (HashSet::new(), vec![target], LOOKED_AT_MAX);
        while let Some(target) = next.pop() {
            let incoming: &[BindingId] = self.leading_to(target);
            left = left.checked_sub(incoming.len())?;
            let bound = incoming.iter().map(|id| self.bindings().get(*id).source);
            let passed_on = fallbacks.iter().filter(|(_, to)| Target::Exchange(*to) == target).map(|(from, _)| *from);
            next.extend(bound.chain(passed_on).filter(|source| found.insert(*source)).map(Target::Exchange));
        }
        Some(found)
    }
}
