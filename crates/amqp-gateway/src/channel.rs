//! A channel: what it publishes, what it consumes, what it has not acknowledged.

use std::sync::Arc;
use std::time::Instant;

use broker::{ChannelFlow, Outcome, Vhost};
use delivery::ConsumerId;
use hashbrown::HashMap;
use routing::{Name, QueueId};
use smallvec::SmallVec;

use crate::confirms::Confirms;
use crate::content::Content;
use crate::handlers::UnderWay;
use crate::reply::Replies;
use crate::transaction::Transaction;
use crate::unacked::Unacked;

/// What publishes and acknowledgements of a channel come to.
#[derive(Debug)]
pub(crate) enum Mode {
    /// They take effect, and nothing is said of it.
    Plain,
    /// Publishes are confirmed.
    Confirm(Confirms),
    /// They wait for a commit.
    Transaction(Transaction),
}

/// An open channel.
pub(crate) struct Channel {
    pub number: u16,
    /// A number that no other channel of the node has.
    pub id: u64,
    pub vhost: Arc<Vhost>,
    pub flow: Arc<ChannelFlow>,
    pub content: Option<Content>,
    pub mode: Mode,
    /// When it last published, in rests of the connection's publisher.
    pub published: Option<u64>,
    /// Of the last delivery.
    pub tag: u64,
    pub unacked: Unacked,
    /// What it says of many messages in one method, and how far that goes, until all of it is done.
    pub settling: Option<(u64, Outcome)>,
    /// By tag; several where a queue has several partitions.
    pub consumers: HashMap<Name, SmallVec<[ConsumerId; 1]>>,
    /// As whom it asks queues for one message.
    pub getters: HashMap<QueueId, ConsumerId>,
    /// Of consumers to come.
    pub prefetch: u16,
    /// What an empty name of a queue stands for.
    pub last_queue: Option<Name>,
    /// Who gets answers that go without a queue.
    pub replies: Option<Replies>,
    /// Its next method has waited for dead letters.
    pub has_awaited_letters: bool,
    /// What its get that found nothing waits for.
    pub under_way: Option<UnderWay>,
    /// Sockets were polled for its get that found nothing.
    pub sockets_polled: bool,
}

impl Channel {
    pub fn new(number: u16, id: u64, vhost: Arc<Vhost>, flow: Arc<ChannelFlow>) -> Self {
        Self {
            number,
            id,
            vhost,
            flow,
            content: None,
            mode: Mode::Plain,
            published: None,
            tag: 0,
            unacked: Unacked::default(),
            settling: None,
            consumers: HashMap::new(),
            getters: HashMap::new(),
            prefetch: 0,
            last_queue: None,
            replies: None,
            has_awaited_letters: false,
            under_way: None,
            sockets_polled: false,
        }
    }

    /// Is something begun that does not get on? `since`: when more could have come, after a time.
    pub fn is_stalled(&self, now: Instant, since: impl Fn(Instant) -> Instant) -> bool {
        let transacts = matches!(&self.mode, Mode::Transaction(transaction) if transaction.is_stalled(now, &since));
        transacts || self.content.as_ref().is_some_and(|content| content.is_stalled(now, &since))
    }

    /// Drops what was begun and not finished; how many bytes of memory that took. What a transaction was to say of deliveries is not said: the
    /// channel has them again.
    pub fn drop_unfinished(&mut self) -> usize {
        let content = self.content.take().map_or(0, |content| content.kept());
        let Mode::Transaction(transaction) = &mut self.mode else { return content };
        let transaction = std::mem::take(transaction);
        let mut unsaid = transaction.unsaid().peekable();
        if unsaid.peek().is_some() {
            self.unacked.restore(unsaid.map(|one| (one.tag, one.consumer, one.offset)));
        }
        content + transaction.memory()
    }

    /// Frees memory that is only kept for what comes next.
    pub fn rest(&mut self) {
        self.unacked.rest();
        if let Mode::Confirm(confirms) = &mut self.mode {
            confirms.rest();
        }
    }

    /// The tag of the next delivery.
    pub fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }
}
