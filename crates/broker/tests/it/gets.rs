//! Messages that are no longer in memory, got one by one: what is read for one serves the next ones, and is let go when nobody asks any more.

use std::cell::Cell;
use std::sync::Arc;

use broker::{ChannelFlow, Got, Outcome, Queue, ReplyTo, Settlement};
use delivery::ConsumerId;
use types::{ConnectionId, ShardId};

use crate::node::{Node, VALUE_BYTES, wait_for};

/// What is read at once of history.
const PIECE_BYTES: usize = 256 << 10;
/// In a queue: most of it is in no cache after a restart.
const MESSAGES: u64 = 1000;

/// Reads that so many gets may take: pieces of which some are but half as long, and one more where somebody begins.
fn reads_for(gets: u64) -> u64 {
    gets.div_ceil((PIECE_BYTES / VALUE_BYTES) as u64 / 2) + 1
}

struct Getter<'a> {
    node: &'a Node,
    queue: Arc<Queue>,
    channel: Arc<ChannelFlow>,
    holder: ConsumerId,
    /// Gets that had to wait for the disk.
    waited: Cell<u64>,
}

impl<'a> Getter<'a> {
    fn new(node: &'a Node, queue: Arc<Queue>) -> Self {
        let to = ReplyTo { shard: ShardId(0), connection: ConnectionId(7), token: 0 };
        let (channel, holder) = (node.broker.new_channel(to), node.broker.subscriptions().new_consumer());
        Self { node, queue, channel, holder, waited: Cell::new(0) }
    }

    fn get(&self) -> u64 {
        let (found, waits) = (Cell::new(None), Cell::new(false));
        wait_for("a message is read", || match self.node.broker.get(&self.queue, &self.channel, self.holder, false) {
            Got::Later => {
                waits.set(true);
                false
            }
            Got::Empty => panic!("there are messages"),
            Got::Message(message, _) => {
                found.set(Some(message.offset));
                true
            }
        });
        self.waited.set(self.waited.get() + u64::from(waits.get()));
        found.get().expect("a message")
    }

    fn settle(&self, offset: u64, outcome: Outcome) {
        let said = Settlement { consumer: self.holder, first: offset, last: offset, outcome };
        self.node.broker.settle(&self.queue, &self.channel, &[said]);
    }

    /// How many gets have waited since it was asked last.
    fn waited(&self) -> u64 {
        self.waited.take()
    }
}

/// A node that was restarted, with queues of which no message is in memory.
fn with_cold_queues(queues: usize, check: impl FnOnce(&Node, Vec<Arc<Queue>>)) {
    let folder = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = (0..queues).map(|number| format!("q{number}")).collect();
    let node = Node::open(folder.path(), 1);
    for name in &names {
        let queue = node.queue(name, true);
        // Each is committed alone: where many are by chance, a piece that is read may be a single message.
        (0..MESSAGES / queues as u64).for_each(|_| node.fill(queue.log(), 1));
    }
    node.close();
    let node = Node::open(folder.path(), 1);
    check(&node, names.iter().map(|name| node.queue(name, true)).collect());
    node.close();
}

fn kept(node: &Node) -> usize {
    node.broker.vhosts().window_bytes()
}

#[test]
fn what_was_read_for_a_get_serves_the_next_ones() {
    with_cold_queues(1, |node, queues| {
        let getter = Getter::new(node, queues[0].clone());
        for offset in 0..200 {
            assert_eq!(getter.get(), offset);
            getter.settle(offset, Outcome::Ack);
        }
        let waited = getter.waited();
        assert!(waited <= reads_for(200), "{waited} of 200 gets waited for the disk");
        // Behind messages that are not acknowledged.
        assert!((200..400).all(|offset| getter.get() == offset));
        let waited = getter.waited();
        assert!(waited <= reads_for(200), "{waited} of 200 gets waited for the disk");
        // The last comes back each time.
        for _ in 0..200 {
            getter.settle(399, Outcome::Requeue);
            assert_eq!(getter.get(), 399);
        }
        let waited = getter.waited();
        assert!(waited <= 1, "{waited} of 200 gets of one message waited for the disk");
        (200..400).for_each(|offset| getter.settle(offset, Outcome::Ack));
        wait_for("nothing is kept for those who ask no more", || kept(node) == 0);
        assert_eq!(getter.get(), 400, "and goes on all the same");
    });
}

#[test]
fn who_gets_from_many_queues_in_turn_reads_each_by_pieces() {
    with_cold_queues(10, |node, queues| {
        let getters: Vec<_> = queues.into_iter().map(|queue| Getter::new(node, queue)).collect();
        for offset in 0..100 {
            for getter in &getters {
                assert_eq!(getter.get(), offset);
                getter.settle(offset, Outcome::Ack);
            }
        }
        for getter in &getters {
            let waited = getter.waited();
            assert!(waited <= reads_for(100), "{waited} of 100 gets waited for the disk");
        }
        wait_for("nothing is kept of what has been got", || kept(node) == 0);
    });
}

#[test]
fn what_is_kept_for_gets_goes_with_the_messages() {
    with_cold_queues(2, |node, queues| {
        let getters: Vec<_> = queues.into_iter().map(|queue| Getter::new(node, queue)).collect();
        // Who gets takes what the start has read of a queue's head.
        assert_eq!((getters[0].get(), getters[1].get()), (0, 0));
        let of_both = kept(node);
        assert_eq!(node.broker.purge(&getters[0].queue), MESSAGES / 2 - 1);
        let of_one = kept(node);
        assert!(0 < of_one && of_one < of_both, "{of_one} bytes for one queue, {of_both} for two");
        getters[0].settle(0, Outcome::Requeue);
        assert_eq!(getters[0].get(), 0, "what somebody had was not purged");
        assert_eq!(kept(node), of_one, "nothing more is ready there");
        node.broker.delete_queue(&getters[1].queue, false, false).expect("deleted");
        assert_eq!(kept(node), 0);
        assert!(matches!(
            node.broker.get(&getters[1].queue, &getters[1].channel, getters[1].holder, false),
            Got::Empty
        ));
        assert_eq!(kept(node), 0);
    });
}
