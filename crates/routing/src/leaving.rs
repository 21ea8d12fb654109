//! What goes with a queue, a binding or an exchange, found out before it goes.

use hashbrown::{HashMap, HashSet};

use crate::binding::{BindingId, QueueId, Target};
use crate::exchange::ExchangeId;
use crate::removal::{Removal, RemovedExchange};
use crate::table::Table;

impl Table {
    /// What [`Table::remove_queue`] would take away, in any order.
    pub fn queue_removal(&self, id: QueueId) -> Removal {
        self.removal_of(self.leading_to(Target::Queue(id)), None)
    }

    /// Is a queue bound to an exchange that deletes itself? What goes with it depends on who else is bound there.
    pub fn may_take_exchanges(&self, id: QueueId) -> bool {
        self.leading_to(Target::Queue(id)).iter().any(|id| self.slot(self.bindings().get(*id).source).auto_delete)
    }

    /// What goes with bindings and with an exchange: the exchange's bindings, and with the last binding from an exchange that deletes itself that
    /// exchange.
    pub(crate) fn removal_of(&self, bindings: &[BindingId], exchange: Option<ExchangeId>) -> Removal {
        let mut removal = Removal::default();
        let (mut gone, mut left) = (HashSet::new(), HashMap::new());
        let (mut going, mut doomed): (HashSet<ExchangeId>, _) =
            (HashSet::from_iter(exchange), Vec::from_iter(exchange));
        let mut leave = |id: BindingId, doomed: &mut Vec<ExchangeId>| {
            if !gone.insert(id) {
                return;
            }
            removal.bindings.push(self.removed(id));
            let source = self.bindings().get(id).source;
            let slot = self.slot(source);
            let left = left.entry(source).or_insert(slot.outgoing.len());
            *left -= 1;
            if *left == 0 && slot.auto_delete && going.insert(source) {
                doomed.push(source);
            }
        };
        bindings.iter().for_each(|id| leave(*id, &mut doomed));
        while let Some(id) = doomed.pop() {
            let slot = self.slot(id);
            slot.outgoing.iter().chain(&slot.incoming).for_each(|id| leave(*id, &mut doomed));
            removal.exchanges.push(RemovedExchange { name: slot.name.clone(), kind: slot.kind, durable: slot.durable });
        }
        removal
    }
}
