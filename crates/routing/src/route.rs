//! Which queues get a message.
//!
//! From the exchange that was published to, along bindings between exchanges, and from an exchange where nothing matched, not even
//! a binding to an exchange, to its alternate. Each exchange is visited once, so cycles end; each queue is told once.
//! The default exchange leads to the queue that has the routing key for its name; as an alternate it leads nowhere, as in
//! RabbitMQ.
//!
//! A message that wants to be delayed gets no further than an exchange that delays, wherever that lies on its way: the caller keeps it
//! for that exchange, and routes it from there when its time has come, no longer to be delayed.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashSet;
use smallvec::SmallVec;

use crate::binding::{BindingId, QueueId, Target};
use crate::exchange::{Exchange, ExchangeId};
use crate::name::Name;
use crate::table::{DEFAULT, Table};
use crate::trie::{MANY, Walk};
use crate::value::{Headers, mix};

/// What routing one message may take: steps of some ten nanoseconds, of which the walk through a topic exchange takes one for each node that it reaches and
/// each word that it looks up there, and other exchanges one for each key; eight bindings that are told for one of several keys are a step. Patterns that are not made to be reached in vain come nowhere near it.
pub const STEPS_MAX: usize = 1 << 18;

/// A message would take more than [`STEPS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("routing of the message takes more than {STEPS_MAX} steps")]
pub struct TooFar;

/// Steps that are left for a message.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    left: usize,
    noted: usize,
    /// How many headers the message has, once they were gone through.
    headers: Option<usize>,
}

impl Steps {
    pub fn new(steps: usize) -> Self {
        Self { left: steps, ..Self::default() }
    }

    pub fn take(&mut self, steps: usize) -> Result<(), TooFar> {
        self.left = self.left.checked_sub(steps).ok_or(TooFar)?;
        Ok(())
    }

    /// The headers are gone through; how many they are is known after the first time.
    pub fn take_headers(&mut self, count: impl FnOnce() -> usize) -> Result<(), TooFar> {
        let count = *self.headers.get_or_insert_with(count);
        self.take(count / HEADERS_OF_STEP)
    }

    /// Was done, and has no bound but what is declared: each binding is looked at once.
    pub fn note(&mut self, steps: usize) {
        self.noted = self.noted.saturating_add(steps);
    }
}

/// Headers of a message that are gone through in one step.
const HEADERS_OF_STEP: usize = 8;
/// Groups of more bindings are told once for a message of several keys.
const LARGE_GROUP: usize = 64;
/// Bindings that are told in one step.
const TOLD_OF_STEP: usize = 8;

/// Which groups of bindings were told of a message to an exchange. Where several of its keys lead to the same bindings these may come several times, but not all of them for each key.
#[derive(Debug, Default)]
pub(crate) struct Told {
    several: bool,
    large: HashSet<BindingId>,
}

impl Told {
    pub fn begin(&mut self, keys: usize) {
        self.several = keys > 1;
        self.large.clear();
    }

    /// Is a group to be told, which has a binding at least?
    pub fn is_due(&mut self, group: &[BindingId], steps: &mut Steps) -> Result<bool, TooFar> {
        if !self.several {
            return Ok(true);
        }
        if group.len() > LARGE_GROUP {
            return Ok(self.large.insert(group[0]));
        }
        steps.take(group.len() / TOLD_OF_STEP)?;
        Ok(true)
    }
}

/// Memory that routing uses and the caller keeps, so that a message costs no allocation. Each thread has its own; it fits all tables.
#[derive(Debug, Default)]
pub struct Scratch {
    exchanges: Vec<ExchangeId>,
    exchanges_seen: Seen,
    /// For keys of few words, and of many.
    pub(crate) few: Walk<1>,
    pub(crate) many: Walk<MANY>,
    pub(crate) steps: Steps,
    pub(crate) told: Told,
    /// State of the random numbers; 0 before the first.
    random: u64,
}

impl Scratch {
    /// Steps that the last message took, more than [`STEPS_MAX`] where many bindings were looked at.
    pub fn steps(&self) -> usize {
        STEPS_MAX - self.steps.left + self.steps.noted
    }

    /// A random number (splitmix64), from a seed that differs from scratch to scratch.
    pub(crate) fn random(&mut self) -> u64 {
        if self.random == 0 {
            self.random = RandomState::new().hash_one(0_u8);
        }
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }
}

/// A set of small numbers that is emptied in no time.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    rounds: Vec<u32>,
    round: u32,
}

impl Seen {
    pub fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.rounds.fill(0);
            self.round = 1;
        }
    }

    /// Whether the number is new in this round.
    pub fn first(&mut self, number: u32) -> bool {
        let at = number as usize;
        if at >= self.rounds.len() {
            self.rounds.resize((at + 1).next_power_of_two(), 0);
        }
        std::mem::replace(&mut self.rounds[at], self.round) != self.round
    }
}

/// Exchanges that keep a message for later.
pub type Keepers = SmallVec<[Name; 1]>;

impl Exchange<'_> {
    /// As [`Exchange::route`], for a message that wants to be delayed: tells the exchanges that delay it.
    ///
    /// # Errors
    /// The same.
    pub fn route_delayed(
        &self,
        keys: &[&[u8]],
        headers: &dyn Headers,
        scratch: &mut Scratch,
        queues: &mut Vec<QueueId>,
    ) -> Result<Keepers, TooFar> {
        let mut keepers = Keepers::new();
        self.route_until(keys, headers, scratch, queues, Some(&mut keepers))?;
        Ok(keepers)
    }

    /// Replaces what is in `queues` by the queues that get a message with these routing keys (that of the message, and those of
    /// its `CC` and `BCC`), each once, in no order that means anything. Allocates only when `scratch` or `queues` have to grow.
    ///
    /// # Errors
    /// It takes too long; then `queues` is empty.
    pub fn route(
        &self,
        keys: &[&[u8]],
        headers: &dyn Headers,
        scratch: &mut Scratch,
        queues: &mut Vec<QueueId>,
    ) -> Result<(), TooFar> {
        self.route_until(keys, headers, scratch, queues, None)
    }

    fn route_until(
        &self,
        keys: &[&[u8]],
        headers: &dyn Headers,
        scratch: &mut Scratch,
        queues: &mut Vec<QueueId>,
        keepers: Option<&mut Keepers>,
    ) -> Result<(), TooFar> {
        queues.clear();
        scratch.steps = Steps::new(STEPS_MAX);
        if self.id == DEFAULT {
            scratch.steps.take(keys.len())?;
            queues.extend(keys.iter().filter_map(|key| self.table.queue(key)));
        } else if let Err(refused) = walk(self.table, self.id, (keys, headers), scratch, queues, keepers) {
            queues.clear();
            return Err(refused);
        }
        scratch.steps.note(queues.len() / TOLD_OF_STEP);
        if !queues.is_sorted_by(|one, next| one < next) {
            queues.sort_unstable();
            queues.dedup();
        }
        Ok(())
    }
}

fn walk(
    table: &Table,
    first: ExchangeId,
    message: (&[&[u8]], &dyn Headers),
    scratch: &mut Scratch,
    queues: &mut Vec<QueueId>,
    mut keepers: Option<&mut Keepers>,
) -> Result<(), TooFar> {
    let mut exchanges = std::mem::take(&mut scratch.exchanges);
    let mut seen = std::mem::take(&mut scratch.exchanges_seen);
    exchanges.clear();
    seen.begin();
    seen.first(first);
    exchanges.push(first);
    let mut outcome = Ok(());
    while let Some(id) = exchanges.pop().filter(|_| outcome.is_ok()) {
        let exchange = table.slot(id);
        if let Some(keepers) = keepers.as_deref_mut().filter(|_| exchange.delayed) {
            keepers.push(exchange.name.clone());
            continue;
        }
        let mut matched = false;
        let mut visit = |id: ExchangeId| {
            if seen.first(id) {
                exchanges.push(id);
            }
        };
        outcome = exchange.matcher.select(&exchange.outgoing, message, table.bindings(), scratch, |binding| {
            matched = true;
            match table.bindings().get(binding).target {
                Target::Queue(queue) => queues.push(queue),
                Target::Exchange(id) => visit(id),
            }
        });
        if !matched && let Some(id) = exchange.fallback().and_then(|name| table.id(name)) {
            visit(id);
        }
    }
    (scratch.exchanges, scratch.exchanges_seen) = (exchanges, seen);
    outcome
}
