//! How a shard hears: one mailbox each, filled by journals, the controller and the cold-read pool, emptied by
//! the shard. It wakes its owner when it stops being empty.

use std::sync::Arc;

use hashbrown::HashMap;
use journal::{AppendResults, EventSink, JournalEvent, ReplyTo};
use parking_lot::{Mutex, RwLock};
use types::{LogId, ShardId};

/// Something for a shard.
#[derive(Debug)]
pub enum Event {
    /// For one request of one connection.
    Reply {
        /// Which.
        to: ReplyTo,
        /// What.
        reply: Reply,
    },
    /// A watched log has more to read.
    Advanced(LogId),
    /// A journal's queue has room again.
    Space,
    /// The shard is to read what has come on its sockets, and to drop this then.
    PollSockets(Arc<SocketPoll>),
}

/// A request to shards to read what has come on their sockets. Its connection gets [`SocketsPolled`] when the last shard has dropped it.
pub struct SocketPoll {
    mailboxes: Mailboxes,
    to: ReplyTo,
}

/// The reply to a [`SocketPoll`]: what had come when it was sent has been read.
pub struct SocketsPolled;

impl SocketPoll {
    pub(crate) fn new(mailboxes: Mailboxes, to: ReplyTo) -> Arc<Self> {
        Arc::new(Self { mailboxes, to })
    }
}

impl Drop for SocketPoll {
    fn drop(&mut self) {
        self.mailboxes.push(self.to.shard, Event::Reply { to: self.to, reply: Reply::Done(Box::new(SocketsPolled)) });
    }
}

impl std::fmt::Debug for SocketPoll {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("SocketPoll").field(&self.to).finish()
    }
}

/// The answer to a command.
#[derive(Debug)]
pub enum Reply {
    /// Of an append, one result an item.
    Appended(AppendResults),
    /// Of a job of the controller or the cold-read pool, or of a group: whatever the asker expects.
    Done(Box<dyn std::any::Any + Send>),
    /// The work ended in a defect of ours: there will be no answer.
    Failed,
}

/// A shard's letter box.
pub struct Mailbox {
    events: Mutex<Vec<Event>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Mailbox {
    /// `wake` is called when the first event arrives in an empty box.
    pub fn new(wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { events: Mutex::new(Vec::new()), wake }
    }

    /// Takes everything.
    pub fn drain(&self, into: &mut Vec<Event>) {
        std::mem::swap(&mut *self.events.lock(), into);
    }

    /// Is there nothing?
    pub fn is_empty(&self) -> bool {
        self.events.lock().is_empty()
    }

    /// Adds one.
    pub fn push(&self, event: Event) {
        let first = {
            let mut events = self.events.lock();
            events.push(event);
            events.len() == 1
        };
        if first {
            (self.wake)();
        }
    }
}

/// The mailboxes of all shards.
#[derive(Clone, Default)]
pub(crate) struct Mailboxes {
    by_shard: Arc<RwLock<HashMap<ShardId, Arc<Mailbox>>>>,
}

impl Mailboxes {
    pub fn add(&self, shard: ShardId, mailbox: Arc<Mailbox>) {
        self.by_shard.write().insert(shard, mailbox);
    }

    /// How many shards there are.
    pub fn count(&self) -> usize {
        self.by_shard.read().len()
    }

    /// Pushes an event to each shard that is meant; were there any?
    pub fn push_to(&self, is_meant: impl Fn(ShardId) -> bool, event: impl Fn() -> Event) -> bool {
        let mut any = false;
        for (_, mailbox) in self.by_shard.read().iter().filter(|(shard, _)| is_meant(**shard)) {
            mailbox.push(event());
            any = true;
        }
        any
    }

    /// What is for a shard that is not there is dropped.
    pub fn push(&self, shard: ShardId, event: Event) {
        let mailbox = self.by_shard.read().get(&shard).cloned();
        if let Some(mailbox) = mailbox {
            mailbox.push(event);
        }
    }
}

impl EventSink for Mailbox {
    fn deliver(&self, incoming: &mut Vec<JournalEvent>) {
        let first = {
            let mut events = self.events.lock();
            let first = events.is_empty();
            events.extend(incoming.drain(..).map(|event| match event {
                JournalEvent::Appended { to, results } => Event::Reply { to, reply: Reply::Appended(results) },
                JournalEvent::Advanced(log) => Event::Advanced(log),
                JournalEvent::Space => Event::Space,
            }));
            first
        };
        if first {
            (self.wake)();
        }
    }
}
