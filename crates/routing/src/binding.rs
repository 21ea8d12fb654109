//! Bindings in memory: one slab for the table, and the index by which a binding is found again.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::exchange::ExchangeId;
use crate::name::Name;
use crate::value::Arguments;

/// The caller's id of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// Where a binding leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination<'a> {
    /// A queue.
    Queue(QueueId),
    /// An exchange, by name.
    Exchange(&'a [u8]),
}

/// A binding as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    /// Name of the exchange it leads from.
    pub source: &'a [u8],
    /// Where it leads.
    pub destination: Destination<'a>,
    /// The destination's name.
    pub destination_name: &'a Name,
    /// The routing key.
    pub key: &'a [u8],
    /// The arguments.
    pub arguments: Arguments,
    /// Whether both ends are durable.
    pub durable: bool,
}

/// What became of a request to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It is new.
    New {
        /// Whether both ends are durable, so that the binding has to outlive a restart.
        durable: bool,
    },
    /// The same binding was there.
    Existing,
}

/// Number of a binding in the slab.
pub(crate) type BindingId = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Queue(QueueId),
    Exchange(ExchangeId),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub source: ExchangeId,
    pub target: Target,
    pub key: Box<[u8]>,
    pub arguments: Arguments,
    /// Place in the list of bindings from its source, of those to its target, and in its group of the source's index.
    pub outgoing_place: u32,
    pub incoming_place: u32,
    pub group_place: u32,
}

impl Entry {
    fn is(&self, source: ExchangeId, target: Target, key: &[u8], arguments: &Arguments) -> bool {
        self.source == source && self.target == target && *self.key == *key && self.arguments == *arguments
    }
}

/// All bindings of a table.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    slots: Vec<Option<Entry>>,
    free: Vec<BindingId>,
    by_identity: HashTable<BindingId>,
    hasher: DefaultHashBuilder,
}

impl Bindings {
    fn identity(
        hasher: &DefaultHashBuilder,
        source: ExchangeId,
        target: Target,
        key: &[u8],
        arguments: &Arguments,
    ) -> u64 {
        hasher.hash_one((source, target, key, arguments))
    }

    pub fn find(&self, source: ExchangeId, target: Target, key: &[u8], arguments: &Arguments) -> Option<BindingId> {
        let hash = Self::identity(&self.hasher, source, target, key, arguments);
        self.by_identity.find(hash, |id| self.get(*id).is(source, target, key, arguments)).copied()
    }

    /// Adds one that [`Bindings::find`] does not find.
    pub fn add(&mut self, entry: Entry) -> BindingId {
        let hash = Self::identity(&self.hasher, entry.source, entry.target, &entry.key, &entry.arguments);
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 bindings fit in memory")
        });
        self.slots[id as usize] = Some(entry);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_identity.insert_unique(hash, id, |id| {
            let entry = slots[*id as usize].as_ref().expect("indexed bindings exist");
            Self::identity(hasher, entry.source, entry.target, &entry.key, &entry.arguments)
        });
        id
    }

    pub fn take(&mut self, id: BindingId) -> Entry {
        let entry = self.slots[id as usize].take().expect("the binding exists");
        let hash = Self::identity(&self.hasher, entry.source, entry.target, &entry.key, &entry.arguments);
        self.by_identity.find_entry(hash, |found| *found == id).expect("each binding is indexed").remove();
        self.free.push(id);
        entry
    }

    pub fn get(&self, id: BindingId) -> &Entry {
        self.slots[id as usize].as_ref().expect("the binding exists")
    }

    pub fn get_mut(&mut self, id: BindingId) -> &mut Entry {
        self.slots[id as usize].as_mut().expect("the binding exists")
    }

    pub fn len(&self) -> usize {
        self.by_identity.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = BindingId> + '_ {
        self.ids_within(0..self.slots())
    }

    /// Those within these slots.
    pub fn ids_within(&self, slots: Range<u32>) -> impl Iterator<Item = BindingId> + '_ {
        let end = slots.end.min(self.slots());
        (slots.start.min(end)..end).filter(|id| self.slots[*id as usize].is_some())
    }

    /// Slots, taken or free.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }
}

/// Adds to a list whose members know their place in it.
pub(crate) fn push(list: &mut Vec<BindingId>, id: BindingId) -> u32 {
    list.push(id);
    u32::try_from(list.len() - 1).expect("no more than there are bindings")
}
