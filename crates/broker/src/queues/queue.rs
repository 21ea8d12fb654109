//! A queue: a log, its subscription, its rules, and who consumes.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use routing::{Arguments, Counted, DefinitionMemory, Name, QueueId};
use types::ConnectionId;

use super::burials::Burials;
use super::consumers::Delivery;
use super::dispatch::Dispatch;
use super::on_the_way::{Batches, Publishers};
use super::policies::{InForce, Matched, Understood};
use super::stream::Stream;
use crate::subscriptions::SharedSubscription;
use crate::topic::Topic;

/// One queue, from its declaration to its deletion: a queue that is declared again under the same name is another one.
pub struct Queue {
    pub(super) id: QueueId,
    pub(super) vhost: Arc<str>,
    pub(super) name: Name,
    pub(super) durable: bool,
    /// The connection that alone may use it, and with which it goes.
    pub(super) owner: Option<ConnectionId>,
    pub(super) auto_delete: bool,
    pub(super) arguments: OwnArguments,
    /// What the arguments and policies come to.
    pub(super) in_force: RwLock<Arc<InForce>>,
    /// It may turn messages away, as things are.
    pub(super) may_refuse: AtomicBool,
    /// What was admitted and is not known to be in the log, where the queue may refuse some.
    pub(super) line: OnceLock<Box<Mutex<delivery::Line>>>,
    pub(super) topic: Arc<Topic>,
    /// The topic was there before, and stays when the queue goes.
    pub(super) attached: bool,
    pub(super) shared: Arc<SharedSubscription>,
    pub(super) dispatch: Mutex<Dispatch>,
    /// While a thread is at them.
    pub(super) burials: Mutex<Option<Box<Burials>>>,
    /// Who reads it, if it is a stream: then nothing goes through `shared` and `dispatch`.
    pub(super) stream: Option<Arc<Stream>>,
    /// Of the partitions behind the first, if it is attached to a topic of several.
    pub(super) others: Box<[Arc<Self>]>,
    pub(super) on_the_way: Batches,
    pub(super) publishers: Publishers,
    pub(super) dropped: AtomicBool,
    /// The thread `queues` is to write what changed.
    pub(super) dirty: AtomicBool,
}

/// The arguments of a queue, which are in the account as long as it is there.
#[derive(Default)]
pub(super) struct OwnArguments(Option<Box<(Arguments, Counted)>>);

impl OwnArguments {
    /// Of the first partition of a queue; those of others are the same ones.
    pub fn new(arguments: Arguments, first: bool, account: &Arc<DefinitionMemory>) -> Self {
        let weight = arguments.weight();
        let counted = Counted::new(Arc::clone(account), if first { weight } else { 0 });
        Self((weight > 0).then(|| Box::new((arguments, counted))))
    }
}

impl Deref for OwnArguments {
    type Target = Arguments;

    fn deref(&self) -> &Arguments {
        static NONE: Arguments = Arguments::NONE;
        self.0.as_ref().map_or(&NONE, |own| &own.0)
    }
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that a consumer could get.
    pub ready: u64,
    /// Messages that consumers have.
    pub unacknowledged: u64,
    /// Dead messages that are not yet among the dead letters.
    pub dying: u64,
    /// Consumers.
    pub consumers: usize,
}

/// What came of asking a queue for one message.
#[derive(Debug)]
pub enum Got {
    /// A message, and how many are left.
    Message(Box<Delivery>, u64),
    /// There is none.
    Empty,
    /// It is being read from the disk: ask again soon.
    Later,
}

impl Queue {
    pub(super) fn line(&self) -> &Mutex<delivery::Line> {
        self.line.get_or_init(Box::default)
    }

    /// Its id, which no other queue ever had.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Its virtual host.
    pub fn vhost(&self) -> &str {
        &self.vhost
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Does it outlive a restart?
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// The connection that alone may use it.
    pub fn owner(&self) -> Option<ConnectionId> {
        self.owner
    }

    /// Does it go with its last consumer?
    pub fn is_auto_delete(&self) -> bool {
        self.auto_delete
    }

    /// As it was declared.
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// What its arguments and policies come to.
    pub fn understood(&self) -> Understood {
        Understood(Arc::clone(&self.in_force.read()))
    }

    /// The policies that count for it.
    pub fn policies(&self) -> Matched {
        self.in_force.read().matched.clone()
    }

    /// The name of its policy, if it has one.
    pub fn policy(&self) -> Option<String> {
        self.in_force.read().matched.policy.as_ref().map(|policy| policy.name().to_owned())
    }

    /// See [`InForce::unjudged`]: it gives out and throws out nothing.
    pub(super) fn is_unjudged(&self) -> bool {
        self.in_force.read().unjudged
    }

    /// Does it turn messages away, when it is full or because its topic keeps none without a key?
    pub fn may_refuse(&self) -> bool {
        self.may_refuse.load(Ordering::Relaxed) || !self.topic.takes_keyless()
    }

    /// Is it read without being emptied?
    pub fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// The rules of its machine.
    pub(crate) fn rules(&self) -> Arc<delivery::QueueRules> {
        self.in_force.read().rules(self.auto_delete)
    }

    /// Its topic: of one log, as Kafka clients see it.
    pub fn topic(&self) -> &Arc<Topic> {
        &self.topic
    }

    /// Its log.
    pub fn log(&self) -> &Arc<journal::Log> {
        self.shared.log()
    }

    /// Was its topic there before? It stays when the queue goes.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// Was it deleted?
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of {}", self.name, self.vhost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be hundreds of thousands of queues that nobody uses. What only some have, or only while they are used, stands behind a pointer.
    #[test]
    fn a_queue_that_nobody_uses_is_small() {
        // How far the log was searched for offsets without messages takes 8 bytes of the first, 16 of the subscription, and what the log knows of
        // such offsets 32 of that. Another 16 of the log name who knows which of its records nobody needs any more, and 16 of the first what it has admitted;
        // 8 what is on its way into it, which a get has to know of each. 8 of the log say how much of what no sealed segment holds was deleted.
        let most = [
            ("Queue", size_of::<Queue>(), 312),
            ("Dispatch, which is part of it", size_of::<Dispatch>(), 136),
            ("the machine in that", size_of::<delivery::Queue>(), 56),
            ("SharedSubscription", size_of::<SharedSubscription>(), 208),
            ("Topic", size_of::<Topic>(), 88),
            ("journal::Log", size_of::<journal::Log>(), 424),
        ];
        for (what, bytes, most) in most {
            assert!(
                bytes <= most,
                "{what} takes {bytes} bytes of each queue, and had {most}: put what is new behind a pointer, or raise the bound with a reason"
            );
        }
    }
}
