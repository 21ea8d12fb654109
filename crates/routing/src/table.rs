//! The table: exchanges, bindings and names of queues of one virtual host, and every change to them.
//!
//! I1 A binding is in the list of its source, in that of its destination, in the index of its source, and is found by its
//! identity: source, destination, key and arguments. I2 An exchange that deletes itself has a binding that leads from it, or never
//! had one, or lost it to [`Table::remove_binding`]. I3 Exchange 0 is the default exchange: it has no bindings; its routes are the names of queues.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::account::{Counted, DefinitionMemory};
use crate::binding::{Binding, BindingId, Bindings, Bound, Destination, Entry, QueueId, Target, push};
use crate::error::{BindError, DeclareError, DeleteError, InvalidBinding, NameTooLong, QueueTaken};
use crate::exchange::{Declaration, Declared, Exchange, ExchangeId, Kind, Plan, Slot};
use crate::name::{NAME_BYTES_MAX, Name};
use crate::removal::{Removal, RemovedBinding, RemovedDestination, RemovedExchange};
use crate::value::Arguments;

pub(crate) const DEFAULT: ExchangeId = 0;

/// Name, type and whether it is internal; the first is the default exchange.
const PREDECLARED: [(&str, &str, bool); 7] = [
    ("", "direct", false),
    ("amq.direct", "direct", false),
    ("amq.fanout", "fanout", false),
    ("amq.topic", "topic", false),
    ("amq.headers", "headers", false),
    ("amq.match", "headers", false),
    ("amq.rabbitmq.trace", "topic", true),
];

#[derive(Debug)]
struct Queue {
    name: Name,
    durable: bool,
    incoming: Vec<BindingId>,
}

/// Exchanges and bindings of one virtual host.
#[derive(Debug)]
pub struct Table {
    exchanges: Vec<Option<Slot>>,
    free: Vec<ExchangeId>,
    exchange_ids: HashMap<Name, ExchangeId>,
    queues: HashMap<QueueId, Queue>,
    queue_ids: HashMap<Name, QueueId>,
    bindings: Bindings,
    /// Exchanges that delay.
    delayed: usize,
    counted: Counted,
}

impl Default for Table {
    fn default() -> Self {
        let mut table = Self {
            exchanges: Vec::new(),
            free: Vec::new(),
            exchange_ids: HashMap::new(),
            queues: HashMap::new(),
            queue_ids: HashMap::new(),
            bindings: Bindings::default(),
            delayed: 0,
            counted: Counted::default(),
        };
        for (name, kind, internal) in PREDECLARED {
            let name = Name::new(name.as_bytes()).expect("short");
            let (durable, auto_delete, arguments) = (true, false, Arguments::default());
            let declaration = Declaration { name, kind: kind.as_bytes(), durable, auto_delete, internal, arguments };
            let plan = Plan::of(&declaration).expect("a known type");
            table.add_exchange(Slot::new(declaration, &plan).expect("no arguments"));
        }
        table
    }
}

/// Exchanges.
impl Table {
    /// A table with the predeclared exchanges.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, whose exchanges and bindings are counted there.
    pub fn counted(account: Arc<DefinitionMemory>) -> Self {
        Self { counted: Counted::new(account, 0), ..Self::default() }
    }

    /// All but the predeclared exchanges goes.
    pub fn clear(&mut self) {
        *self = Self::counted(Arc::clone(self.counted.account()));
    }

    pub(crate) fn slot(&self, id: ExchangeId) -> &Slot {
        self.exchanges[id as usize].as_ref().expect("the exchange exists")
    }

    fn slot_mut(&mut self, id: ExchangeId) -> &mut Slot {
        self.exchanges[id as usize].as_mut().expect("the exchange exists")
    }

    pub(crate) fn id(&self, name: &[u8]) -> Option<ExchangeId> {
        self.exchange_ids.get(name).copied()
    }

    pub(crate) fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Is there an exchange that delays? Otherwise nobody needs to know whether a message wants to be delayed.
    pub fn has_delayed(&self) -> bool {
        self.delayed > 0
    }

    fn add_exchange(&mut self, slot: Slot) {
        self.delayed += usize::from(slot.delayed);
        let id = self.free.pop().unwrap_or_else(|| {
            self.exchanges.push(None);
            u32::try_from(self.exchanges.len() - 1).expect("fewer than 2^32 exchanges fit in memory")
        });
        self.exchange_ids.insert(slot.name.clone(), id);
        self.exchanges[id as usize] = Some(slot);
    }

    /// Makes an exchange unless an equivalent one is there.
    ///
    /// # Errors
    /// As [`DeclareError`] says; the table is as it was.
    pub fn declare(&mut self, declaration: Declaration<'_>) -> Result<Declared, DeclareError> {
        let plan = Plan::of(&declaration)?;
        match self.id(&declaration.name) {
            Some(DEFAULT) => Err(DeclareError::DefaultExchange),
            Some(id) => match self.slot(id).check_equivalent(&declaration, &plan) {
                Ok(()) => Ok(Declared::Existing),
                Err(difference) => Err(DeclareError::Inequivalent { name: declaration.name, difference }),
            },
            None if declaration.name.reserved() => Err(DeclareError::Reserved(declaration.name)),
            None => {
                let counted = declaration.weight();
                self.add_exchange(Slot { counted, ..Slot::new(declaration, &plan)? });
                self.counted.add(counted);
                Ok(Declared::New)
            }
        }
    }

    /// The exchange with that name; the empty name is the default exchange's.
    pub fn exchange(&self, name: &[u8]) -> Option<Exchange<'_>> {
        self.id(name).map(|id| Exchange { table: self, id })
    }

    /// How many exchanges there are.
    pub fn exchange_count(&self) -> usize {
        self.exchange_ids.len()
    }

    /// All exchanges, the default one first.
    pub fn exchanges(&self) -> impl Iterator<Item = Exchange<'_>> {
        (0u32..).zip(&self.exchanges).filter(|(_, slot)| slot.is_some()).map(|(id, _)| Exchange { table: self, id })
    }

    /// Says where a policy sends what no binding takes. The exchange's own argument goes before it. False if there is no such exchange.
    pub fn set_policy_alternate(&mut self, exchange: &[u8], alternate: Option<Name>) -> bool {
        let Some(id) = self.id(exchange) else { return false };
        self.slot_mut(id).policy_alternate = alternate;
        true
    }

    /// Deletes an exchange with all bindings from it and to it; of one that is not there, nothing. With `if_unused` only if no binding
    /// leads from it.
    ///
    /// # Errors
    /// As [`DeleteError`] says; the table is as it was.
    pub fn delete(&mut self, name: &[u8], if_unused: bool) -> Result<Removal, DeleteError> {
        let mut removal = Removal::default();
        let doomed = self.check_deletion(name, if_unused)?;
        self.remove_exchanges(Vec::from_iter(doomed), &mut removal);
        Ok(removal)
    }

    /// What [`Table::delete`] would take away, in any order.
    ///
    /// # Errors
    /// The same.
    pub fn deletion(&self, name: &[u8], if_unused: bool) -> Result<Removal, DeleteError> {
        Ok(self.removal_of(&[], self.check_deletion(name, if_unused)?))
    }

    /// `None`: it is not there.
    fn check_deletion(&self, name: &[u8], if_unused: bool) -> Result<Option<ExchangeId>, DeleteError> {
        let Some(id) = self.id(name) else {
            return match Name::new(name) {
                Ok(name) if name.reserved() => Err(DeleteError::Reserved(name)),
                _ => Ok(None),
            };
        };
        let slot = self.slot(id);
        if id == DEFAULT {
            return Err(DeleteError::DefaultExchange);
        }
        if slot.name.reserved() {
            return Err(DeleteError::Reserved(slot.name.clone()));
        }
        if if_unused && !slot.outgoing.is_empty() {
            return Err(DeleteError::InUse(slot.name.clone()));
        }
        Ok(Some(id))
    }

    /// Removes exchanges, and those that delete themselves because of it.
    fn remove_exchanges(&mut self, mut doomed: Vec<ExchangeId>, removal: &mut Removal) {
        while let Some(id) = doomed.pop() {
            let name = self.slot(id).name.clone();
            self.exchange_ids.remove(&*name);
            let outgoing = std::mem::take(&mut self.slot_mut(id).outgoing);
            for binding in outgoing {
                self.leave_destination(binding);
                self.forget(binding, removal);
            }
            let incoming = std::mem::take(&mut self.slot_mut(id).incoming);
            self.remove_incoming(incoming, &mut doomed, removal);
            let slot = self.exchanges[id as usize].take().expect("the exchange exists");
            self.free.push(id);
            self.delayed -= usize::from(slot.delayed);
            self.counted.sub(slot.counted);
            removal.exchanges.push(RemovedExchange { name, kind: slot.kind, durable: slot.durable });
        }
    }

    /// Removes bindings whose destination goes, and tells the sources that delete themselves with the last one.
    fn remove_incoming(&mut self, incoming: Vec<BindingId>, doomed: &mut Vec<ExchangeId>, removal: &mut Removal) {
        for binding in incoming {
            let source = self.leave_source(binding);
            self.forget(binding, removal);
            if self.deletes_itself(source) {
                doomed.push(source);
            }
        }
    }

    /// To be asked when a binding from it has gone.
    fn deletes_itself(&self, id: ExchangeId) -> bool {
        let slot = self.slot(id);
        slot.auto_delete && slot.outgoing.is_empty()
    }
}

/// Queues.
impl Table {
    /// Makes a queue known: from now on the default exchange leads to it, and it can be bound.
    ///
    /// # Errors
    /// [`QueueTaken`]: a queue with that name or id is known.
    pub fn add_queue(&mut self, name: Name, id: QueueId, durable: bool) -> Result<(), QueueTaken> {
        if self.queue_ids.contains_key(&*name) || self.queues.contains_key(&id) {
            return Err(QueueTaken);
        }
        self.queue_ids.insert(name.clone(), id);
        self.queues.insert(id, Queue { name, durable, incoming: Vec::new() });
        Ok(())
    }

    /// Forgets a queue with its bindings; of one that is not known, nothing.
    pub fn remove_queue(&mut self, id: QueueId) -> Removal {
        let mut removal = Removal::default();
        let Some(queue) = self.queues.get_mut(&id) else { return removal };
        let incoming = std::mem::take(&mut queue.incoming);
        let mut doomed = Vec::new();
        self.remove_incoming(incoming, &mut doomed, &mut removal);
        self.remove_exchanges(doomed, &mut removal);
        let queue = self.queues.remove(&id).expect("found above");
        self.queue_ids.remove(&*queue.name);
        removal
    }

    /// The id of the queue with that name.
    pub fn queue(&self, name: &[u8]) -> Option<QueueId> {
        self.queue_ids.get(name).copied()
    }

    /// The name of a queue.
    pub fn queue_name(&self, id: QueueId) -> Option<&Name> {
        self.queues.get(&id).map(|queue| &queue.name)
    }
}

/// Bindings.
impl Table {
    fn target(&self, destination: Destination<'_>) -> Result<Target, BindError> {
        match destination {
            Destination::Queue(id) if self.queues.contains_key(&id) => Ok(Target::Queue(id)),
            Destination::Queue(_) => Err(BindError::NoQueue),
            Destination::Exchange(name) => self.id(name).map(Target::Exchange).ok_or_else(|| no_exchange(name)),
        }
    }

    pub(crate) fn durable(&self, source: ExchangeId, target: Target) -> bool {
        self.slot(source).durable
            && match target {
                Target::Queue(id) => self.queues[&id].durable,
                Target::Exchange(id) => self.slot(id).durable,
            }
    }

    /// Binds a queue or an exchange to an exchange, unless the same binding is there.
    ///
    /// # Errors
    /// As [`BindError`] says; the table is as it was.
    pub fn bind(
        &mut self,
        source: &[u8],
        destination: Destination<'_>,
        key: &[u8],
        arguments: &Arguments,
    ) -> Result<Bound, BindError> {
        check_not_default(source, destination)?;
        if key.len() > NAME_BYTES_MAX {
            return Err(NameTooLong.into());
        }
        let source = self.id(source).ok_or_else(|| no_exchange(source))?;
        let target = self.target(destination)?;
        if self.bindings.find(source, target, key, arguments).is_some() {
            return Ok(Bound::Existing);
        }
        self.slot(source).matcher.check(key, arguments)?;
        if self.slot(source).kind == Kind::LocalRandom && matches!(target, Target::Exchange(_)) {
            return Err(InvalidBinding::NoQueue.into());
        }
        self.counted.add(self.weight(source, key, arguments));
        let (key, arguments) = (key.into(), arguments.clone());
        let entry = Entry { source, target, key, arguments, outgoing_place: 0, incoming_place: 0, group_place: 0 };
        let id = self.bindings.add(entry);
        let incoming_place = push(self.incoming(target), id);
        let Self { exchanges, bindings, .. } = self;
        let slot = exchanges[source as usize].as_mut().expect("the exchange exists");
        let entry = bindings.get_mut(id);
        entry.incoming_place = incoming_place;
        entry.outgoing_place = push(&mut slot.outgoing, id);
        slot.matcher.insert(id, bindings);
        Ok(Bound::New { durable: self.durable(source, target) })
    }

    /// Takes a binding away; of one that is not there, nothing.
    ///
    /// # Errors
    /// [`BindError::DefaultExchange`].
    pub fn unbind(
        &mut self,
        source: &[u8],
        destination: Destination<'_>,
        key: &[u8],
        arguments: &Arguments,
    ) -> Result<Removal, BindError> {
        check_not_default(source, destination)?;
        let mut removal = Removal::default();
        let Some(id) = self.find(source, destination, key, arguments) else { return Ok(removal) };
        let source = self.leave_source(id);
        self.leave_destination(id);
        self.forget(id, &mut removal);
        if self.deletes_itself(source) {
            self.remove_exchanges(vec![source], &mut removal);
        }
        Ok(removal)
    }

    /// What [`Table::unbind`] would take away, in any order.
    ///
    /// # Errors
    /// The same.
    pub fn unbinding(
        &self,
        source: &[u8],
        destination: Destination<'_>,
        key: &[u8],
        arguments: &Arguments,
    ) -> Result<Removal, BindError> {
        check_not_default(source, destination)?;
        let found = self.find(source, destination, key, arguments);
        Ok(self.removal_of(found.as_slice(), None))
    }

    /// Takes a binding away and nothing else: its source stays, even if that deletes itself with its last binding.
    pub fn remove_binding(&mut self, source: &[u8], destination: Destination<'_>, key: &[u8], arguments: &Arguments) {
        if let Some(id) = self.find(source, destination, key, arguments) {
            self.leave_source(id);
            self.leave_destination(id);
            self.take(id);
        }
    }

    fn take(&mut self, id: BindingId) {
        let Entry { source, key, arguments, .. } = self.bindings.take(id);
        self.counted.sub(self.weight(source, &key, &arguments));
    }

    fn weight(&self, source: ExchangeId, key: &[u8], arguments: &Arguments) -> usize {
        const BINDING: usize = 320;
        BINDING + 3 * key.len() + arguments.weight() + self.slot(source).matcher.weight(key, arguments)
    }

    /// Bytes of memory that a binding would take, about; one that is there, none.
    pub fn weight_of_new(
        &self,
        source: &[u8],
        destination: Destination<'_>,
        key: &[u8],
        arguments: &Arguments,
    ) -> usize {
        let there = self.find(source, destination, key, arguments).is_some();
        self.id(source).filter(|_| !there).map_or(0, |source| self.weight(source, key, arguments))
    }

    fn find(
        &self,
        source: &[u8],
        destination: Destination<'_>,
        key: &[u8],
        arguments: &Arguments,
    ) -> Option<BindingId> {
        self.bindings.find(self.id(source)?, self.target(destination).ok()?, key, arguments)
    }

    /// The bindings that lead to a target; to one that is not there none do.
    pub(crate) fn leading_to(&self, target: Target) -> &[BindingId] {
        match target {
            Target::Queue(id) => self.queues.get(&id).map_or(&[][..], |queue| &queue.incoming),
            Target::Exchange(id) => &self.slot(id).incoming,
        }
    }

    fn incoming(&mut self, target: Target) -> &mut Vec<BindingId> {
        match target {
            Target::Queue(id) => &mut self.queues.get_mut(&id).expect("bindings lead to what exists").incoming,
            Target::Exchange(id) => &mut self.slot_mut(id).incoming,
        }
    }

    /// Takes a binding out of its source's list and index; says the source.
    fn leave_source(&mut self, id: BindingId) -> ExchangeId {
        let Entry { source, outgoing_place, .. } = *self.bindings.get(id);
        let Self { exchanges, bindings, .. } = self;
        let slot = exchanges[source as usize].as_mut().expect("the exchange exists");
        slot.matcher.remove(id, bindings);
        let place = outgoing_place as usize;
        assert_eq!(slot.outgoing.swap_remove(place), id, "a binding knows its place");
        if let Some(moved) = slot.outgoing.get(place) {
            bindings.get_mut(*moved).outgoing_place = outgoing_place;
        }
        source
    }

    /// Takes a binding out of its destination's list.
    fn leave_destination(&mut self, id: BindingId) {
        let Entry { target, incoming_place, .. } = *self.bindings.get(id);
        let place = incoming_place as usize;
        let incoming = self.incoming(target);
        assert_eq!(incoming.swap_remove(place), id, "a binding knows its place");
        if let Some(moved) = incoming.get(place).copied() {
            self.bindings.get_mut(moved).incoming_place = incoming_place;
        }
    }

    /// The end of a binding that has left the lists of what remains.
    fn forget(&mut self, id: BindingId, removal: &mut Removal) {
        removal.bindings.push(self.removed(id));
        self.take(id);
    }

    pub(crate) fn removed(&self, id: BindingId) -> RemovedBinding {
        let Entry { source, target, key, arguments, .. } = self.bindings.get(id);
        let destination = match *target {
            Target::Queue(id) => RemovedDestination::Queue(id),
            Target::Exchange(id) => RemovedDestination::Exchange(self.slot(id).name.clone()),
        };
        let (source, durable) = (self.slot(*source).name.clone(), self.durable(*source, *target));
        RemovedBinding { source, destination, key: key.clone(), arguments: arguments.clone(), durable }
    }

    fn view(&self, id: BindingId) -> Binding<'_> {
        let Entry { source, target, key, arguments, .. } = self.bindings.get(id);
        let (destination, destination_name) = match *target {
            Target::Queue(id) => (Destination::Queue(id), &self.queues[&id].name),
            Target::Exchange(id) => (Destination::Exchange(&self.slot(id).name), &self.slot(id).name),
        };
        let (arguments, durable) = (arguments.clone(), self.durable(*source, *target));
        Binding { source: &self.slot(*source).name, destination, destination_name, key, arguments, durable }
    }

    fn implicit(&self, id: QueueId) -> Binding<'_> {
        let queue = &self.queues[&id];
        let (destination, arguments) = (Destination::Queue(id), Arguments::default());
        Binding {
            source: b"",
            destination,
            destination_name: &queue.name,
            key: &queue.name,
            arguments,
            durable: queue.durable,
        }
    }

    /// How many bindings were made; the default exchange's are not counted.
    pub fn binding_count(&self) -> usize {
        self.bindings.len()
    }

    /// All bindings that were made; the default exchange's are not among them.
    pub fn all_bindings(&self) -> impl Iterator<Item = Binding<'_>> {
        self.bindings.ids().map(|id| self.view(id))
    }

    /// The same, as [`Table::unbind`] would tell them.
    pub fn all_removed(&self) -> Vec<RemovedBinding> {
        self.bindings.ids().map(|id| self.removed(id)).collect()
    }

    /// Places of bindings, taken or free. A binding keeps its place while it is there, so that whoever looks at all of them may let go of the
    /// table between two pieces.
    pub fn binding_places(&self) -> u32 {
        self.bindings.slots()
    }

    /// The bindings at some places.
    pub fn bindings_at(&self, places: Range<u32>) -> impl Iterator<Item = Binding<'_>> {
        self.bindings.ids_within(places).map(|id| self.view(id))
    }

    /// The bindings that lead from an exchange; from the default exchange one to each queue.
    pub fn bindings_from(&self, exchange: &[u8]) -> impl Iterator<Item = Binding<'_>> {
        let id = self.id(exchange);
        let made = id.map_or(&[][..], |id| &self.slot(id).outgoing).iter().map(|id| self.view(*id));
        let implicit = (id == Some(DEFAULT)).then(|| self.queues.keys().map(|id| self.implicit(*id)));
        implicit.into_iter().flatten().chain(made)
    }

    /// The bindings that lead from an exchange to a queue or an exchange, without those of the default exchange. Looks at all of that one of the two
    /// that has fewer.
    pub fn bindings_between<'t>(
        &'t self,
        source: &[u8],
        destination: Destination<'_>,
    ) -> impl Iterator<Item = Binding<'t>> {
        let ends = self.id(source).zip(self.target(destination).ok());
        let of = ends.map_or(&[][..], |(source, target)| {
            let incoming = match target {
                Target::Queue(id) => &self.queues[&id].incoming,
                Target::Exchange(id) => &self.slot(id).incoming,
            };
            let outgoing = &self.slot(source).outgoing;
            if incoming.len() < outgoing.len() { incoming } else { outgoing }
        });
        let is = move |id: &&BindingId| {
            ends.is_some_and(|(source, target)| {
                let entry = self.bindings.get(**id);
                entry.source == source && entry.target == target
            })
        };
        of.iter().filter(is).map(|id| self.view(*id))
    }

    /// The bindings that lead to a queue, first the default exchange's, or to an exchange.
    pub fn bindings_to(&self, destination: Destination<'_>) -> impl Iterator<Item = Binding<'_>> {
        let (incoming, queue) = match self.target(destination) {
            Ok(Target::Queue(id)) => (&self.queues[&id].incoming[..], Some(id)),
            Ok(Target::Exchange(id)) => (&self.slot(id).incoming[..], None),
            Err(_) => (&[][..], None),
        };
        queue.into_iter().map(|id| self.implicit(id)).chain(incoming.iter().map(|id| self.view(*id)))
    }
}

fn no_exchange(name: &[u8]) -> BindError {
    BindError::NoExchange(String::from_utf8_lossy(name).into_owned())
}

fn check_not_default(source: &[u8], destination: Destination<'_>) -> Result<(), BindError> {
    if source.is_empty() || destination == Destination::Exchange(b"") {
        Err(BindError::DefaultExchange)
    } else {
        Ok(())
    }
}
