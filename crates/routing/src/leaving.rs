//! What goes with a queue, found out before it goes.

use hashbrown::HashSet;

use crate::binding::{BindingId, Entry, QueueId, Target};
use crate::exchange::ExchangeId;
use crate::removal::{Removal, RemovedBinding, RemovedDestination, RemovedExchange};
use crate::table::Table;

/// What is found so far.
#[derive(Default)]
struct Leaving {
    gone: HashSet<BindingId>,
    going: HashSet<ExchangeId>,
    /// Of which the bindings to it are not looked at yet.
    doomed: Vec<ExchangeId>,
    removal: Removal,
}

impl Table {
    /// What [`Table::remove_queue`] would take away, in any order.
    pub fn queue_removal(&self, id: QueueId) -> Removal {
        let mut leaving = Leaving::default();
        leaving.leave(self, self.leading_to(Target::Queue(id)));
        while let Some(id) = leaving.doomed.pop() {
            let slot = self.slot(id);
            leaving.removal.exchanges.push(RemovedExchange { name: slot.name.clone(), kind: slot.kind, durable: slot.durable });
            leaving.leave(self, &slot.incoming);
        }
        leaving.removal
    }

    /// Is a queue bound to an exchange that deletes itself? What goes with it depends on who else is bound there.
    pub fn may_take_exchanges(&self, id: QueueId) -> bool {
        self.leading_to(Target::Queue(id)).iter().any(|id| self.slot(self.bindings().get(*id).source).auto_delete)
    }
}

impl Leaving {
    /// Bindings go, and with them those of their sources that delete themselves with their last one.
    fn leave(&mut self, table: &Table, incoming: &[BindingId]) {
        for id in incoming {
            if !self.gone.insert(*id) {
                continue;
            }
            let Entry { source: of, target, key, arguments, .. } = table.bindings().get(*id);
            let source = table.slot(*of);
            let destination = match target {
                Target::Queue(id) => RemovedDestination::Queue(*id),
                Target::Exchange(id) => RemovedDestination::Exchange(table.slot(*id).name.clone()),
            };
            let (key, arguments, durable) = (key.clone(), arguments.clone(), table.durable(*of, *target));
            self.removal.bindings.push(RemovedBinding { source: source.name.clone(), destination, key, arguments, durable });
            if source.auto_delete && source.outgoing.iter().all(|id| self.gone.contains(id)) && self.going.insert(*of) {
                self.doomed.push(*of);
            }
        }
    }
}
