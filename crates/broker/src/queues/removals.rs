//! Takes exchanges and bindings away. What goes is found out first, then written, and changed in memory when that is durable: what the journal
//! does not take stays. Where it is too much for one chunk it is written in pieces, bindings first, each piece whole or not at all:
//! whatever ends it in between, the rest is there, in memory and for the next start, and the deletion can be asked for again.

use journal::{AppendError, AppendItem};
use routing::{Destination, Name, Removal, RemovedBinding, RemovedDestination, RemovedExchange};

use super::Vhost;
use super::admin::{BindingWish, ExchangeError};
use super::record::{BindingRecord, ExchangeRecord};
use super::rights::Caller;
use crate::Broker;
use crate::log_ends::{Fits, in_one};
use crate::security::{Principal, Resource};

enum Part {
    Binding(RemovedBinding),
    Exchange(RemovedExchange),
}

fn deletion(key: bytes::Bytes) -> AppendItem {
    AppendItem::State { key, value: None }
}

impl Broker {
    /// Deletes an exchange with its bindings, if who asks may. On the controller's thread.
    ///
    /// # Errors
    /// `Delete`, `Denied`, `Queue`, `Append`.
    pub fn delete_exchange(
        &self,
        vhost: &Vhost,
        name: &[u8],
        if_unused: bool,
        who: &Principal,
    ) -> Result<(), ExchangeError> {
        vhost.check_alive()?;
        // Nobody may delete those that are always there, whatever his permissions.
        if !name.is_empty() && !name.starts_with(b"amq.") {
            self.check_deletable(who, vhost, Resource::Exchange(name))?;
        }
        let removal = vhost.exchanges.read().deletion(name, if_unused)?;
        Ok(self.remove(vhost, removal, |table| drop(table.delete(name, false)))?)
    }

    /// Takes a binding away, if who asks may; one that is not there is no error. On the controller's thread.
    ///
    /// # Errors
    /// `Bind`, `Denied`, `Queue`, `Append`.
    pub fn unbind(&self, vhost: &Vhost, wish: &BindingWish, caller: &Caller) -> Result<(), ExchangeError> {
        vhost.check_alive()?;
        self.check_binding(caller, vhost, wish)?;
        let table = vhost.exchanges.read();
        let to = if wish.to_queue {
            match table.queue(&wish.destination) {
                Some(id) => Destination::Queue(id),
                None => return Ok(()),
            }
        } else {
            Destination::Exchange(&wish.destination)
        };
        let removal = table.unbinding(&wish.source, to, &wish.key, &wish.arguments)?;
        drop(table);
        Ok(self.remove(vhost, removal, |table| drop(table.unbind(&wish.source, to, &wish.key, &wish.arguments)))?)
    }

    /// Deletes all exchanges that can be deleted, and all bindings. No queue is left.
    pub(super) fn delete_exchanges(&self, vhost: &Vhost) -> Result<(), AppendError> {
        let mut removal = Removal::default();
        let table = vhost.exchanges.read();
        for one in table.exchanges().filter(|one| !one.name().is_empty() && !one.name().starts_with(b"amq.")) {
            removal.exchanges.push(RemovedExchange {
                name: one.name().clone(),
                kind: one.kind(),
                durable: one.durable(),
            });
        }
        removal.bindings = table.all_removed();
        drop(table);
        self.remove(vhost, removal, routing::Table::clear)
    }

    /// Removes what was found out to go; `all` takes it out of the table when it is durable.
    fn remove(
        &self,
        vhost: &Vhost,
        removal: Removal,
        all: impl FnOnce(&mut routing::Table),
    ) -> Result<(), AppendError> {
        let mut parts = Vec::new();
        for one in removal.bindings {
            let items: Vec<_> =
                self.binding_record(&one).map(|record| deletion(record.key(&vhost.name))).into_iter().collect();
            parts.push((Part::Binding(one), items));
        }
        for one in removal.exchanges {
            let mut items: Vec<_> =
                one.durable.then(|| deletion(ExchangeRecord::key(&vhost.name, &one.name))).into_iter().collect();
            items.extend(self.ends_of_delays(vhost, &one.name));
            parts.push((Part::Exchange(one), items));
        }
        let mut written = 0;
        while written < parts.len() {
            let (mut items, mut end, mut room) = (Vec::new(), written, Fits::default());
            while let Some((_, own)) = parts.get_mut(end)
                && (room.take(own) || items.is_empty())
            {
                items.append(own);
                end += 1;
            }
            let stops = written > 0 && self.controller.is_closed();
            let outcome = match items.is_empty() {
                true => Ok(()),
                false if stops => Err(AppendError::Stopped),
                false => self.commit(0, in_one(items, Vec::new())),
            };
            if let Err(error) = outcome {
                parts[..written].iter().for_each(|(part, _)| self.take_out(vhost, part));
                return Err(error);
            }
            written = end;
        }
        all(&mut vhost.exchanges.write());
        for (part, _) in &parts {
            if let Part::Exchange(one) = part {
                self.end_delays(vhost, &one.name);
            }
        }
        Ok(())
    }

    /// One of several that went, the others of which stay.
    fn take_out(&self, vhost: &Vhost, part: &Part) {
        match part {
            Part::Binding(one) => {
                let to = match &one.destination {
                    RemovedDestination::Queue(id) => Destination::Queue(*id),
                    RemovedDestination::Exchange(name) => Destination::Exchange(name),
                };
                vhost.exchanges.write().remove_binding(&one.source, to, &one.key, &one.arguments);
            }
            Part::Exchange(one) => {
                let _ = vhost.exchanges.write().delete(&one.name, false);
                self.end_delays(vhost, &one.name);
            }
        }
    }

    /// What is durable of a binding.
    pub(super) fn binding_record(&self, one: &RemovedBinding) -> Option<BindingRecord> {
        let (to_queue, destination) = match &one.destination {
            _ if !one.durable => return None,
            RemovedDestination::Exchange(name) => (false, name.clone()),
            RemovedDestination::Queue(id) => (true, self.vhosts.queue(*id)?.name.clone()),
        };
        let key = Name::new(&one.key).ok()?;
        Some(BindingRecord { source: one.source.clone(), to_queue, destination, key, arguments: one.arguments.clone() })
    }
}
