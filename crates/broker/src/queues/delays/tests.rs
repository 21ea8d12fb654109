//! What is delayed leaves once, whichever journal refuses.

use std::sync::Arc;

use delivery::RecordState;
use routing::{Arguments, Declaration};
use smallvec::SmallVec;

use types::SystemClock;

use super::Delays;
use super::clock::DelayClock;
use super::record::{ClockRecord, DELAY_HEADER, Delay};
use super::store::Store;
use crate::queues::Caller;
use crate::queues::admin::BindingWish;
use crate::queues::queue::Queue;
use crate::queues::testing::{Node, Plain, arguments, name, wait_for};
use crate::security::Principal;

/// Of a message that a segment of these nodes takes alone.
const LARGE_BYTES: usize = 480_000;

/// An exchange that delays and sends to all its queues.
fn exchange(node: &Node) -> Arc<Delays> {
    let arguments = arguments(&[("x-delayed-type", "fanout")]);
    let declaration = Declaration {
        name: name("late"),
        kind: b"x-delayed-message",
        durable: true,
        auto_delete: false,
        internal: false,
        arguments,
    };
    node.broker.declare_exchange(&node.vhost(), declaration, &Principal::broker()).expect("declared");
    node.vhost().delays(b"late").expect("it delays")
}

fn bind(node: &Node, queue: &Queue) {
    let wish = BindingWish {
        source: name("late"),
        to_queue: true,
        destination: queue.name().clone(),
        key: name(""),
        arguments: Arguments::default(),
    };
    node.broker.bind(&node.vhost(), wish, &Caller::broker(Caller::NO_CONNECTION)).expect("bound");
}

/// A node with such an exchange, and a queue that is bound to it.
fn with_queue() -> (Node, Arc<Delays>, Arc<Queue>) {
    let node = Node::open(1);
    node.broker.set_undertaker(Arc::new(Plain(b"")));
    let (delays, queue) = (exchange(&node), node.queue_in(0));
    bind(&node, &queue);
    (node, delays, queue)
}

/// What says when a message is due.
fn due_at(due: u64) -> bytes::Bytes {
    Delay { due, keys: SmallVec::from_slice(&[&b""[..]]) }.encode()
}

#[test]
fn copies_in_another_journal_are_not_written_again_when_that_of_the_exchange_refuses() {
    let node = Node::open(2);
    node.broker.set_undertaker(Arc::new(Plain(b"")));
    let delays = exchange(&node);
    let home = node.broker.journal_number(delays.queue().log().id());
    let (near, far) = (node.queue_in(home), node.queue_in(1 - home));
    [&near, &far].into_iter().for_each(|queue| bind(&node, queue));
    let due = due_at(1);
    for body in [b"one", b"two"] {
        node.append(delays.queue().log(), body, &[(DELAY_HEADER, Some(&due))]).expect("taken");
    }
    let junk = node.queue("junk-0", Arguments::default());
    let junk = if node.broker.journal_number(junk.log().id()) == home {
        junk
    } else {
        node.queue("junk-1", Arguments::default())
    };
    node.fill(junk.log());
    let mut store = Store::new(Arc::clone(&delays), Vec::new(), Arc::default());
    for _ in 0..3 {
        store.step(&node.broker, &node.broker.delays.clock);
        assert_eq!((near.log().end().0, far.log().end().0, delays.count()), (0, 2, 2));
    }
    let state = delays.queue().shared.lock().state(0);
    assert_eq!(state, RecordState::Available, "that it has left is not durable");
    node.disks[home].empty();
    wait_for("there is space again", || {
        store.step(&node.broker, &node.broker.delays.clock);
        delays.count() == 0
    });
    assert_eq!((near.log().end().0, far.log().end().0), (2, 2));
    let start = delays.queue().shared.lock().start();
    assert_eq!((start, delays.queue().log().start().0), (2, 2), "what has left takes no space");
    node.close();
}

#[test]
fn what_takes_a_whole_segment_leaves_too() {
    let (node, delays, queue) = with_queue();
    let due = due_at(1);
    // The largest that the journal takes.
    let (mut fits, mut too_large) = (400_000, 600_000);
    while fits + 1 < too_large {
        let bytes = usize::midpoint(fits, too_large);
        let taken = node
            .append(node.queue("scratch", Arguments::default()).log(), &vec![7; bytes], &[(DELAY_HEADER, Some(&due))])
            .is_ok();
        if taken { fits = bytes } else { too_large = bytes }
    }
    node.append(delays.queue().log(), &vec![7; fits], &[(DELAY_HEADER, Some(&due))]).expect("taken");
    node.append(delays.queue().log(), b"behind", &[(DELAY_HEADER, Some(&due))]).expect("taken");
    let mut store = Store::new(Arc::clone(&delays), Vec::new(), Arc::default());
    wait_for("both have left", || {
        store.step(&node.broker, &node.broker.delays.clock);
        delays.count() == 0
    });
    assert_eq!(queue.log().end().0, 2);
    node.close();
}

/// So many that they are sorted; and what is nearly as long as a segment takes among them, so that it joins nothing when that is written, and when it leaves.
#[test]
fn what_is_large_among_many_is_sorted_and_leaves() {
    let (node, delays, queue) = with_queue();
    let later = node.broker.delays.clock.now() + 3_600_000;
    let put = |bytes: usize, due: u64| {
        let due = due_at(due);
        node.append(delays.queue().log(), &vec![7; bytes], &[(DELAY_HEADER, Some(&due))]).expect("taken");
    };
    // Behind a few small ones, and behind many.
    [later + 3, later + 500].into_iter().for_each(|due| put(LARGE_BYTES, due));
    for number in 0..900 {
        put(10_000, later + number);
    }
    let mut store = Store::new(Arc::clone(&delays), Vec::new(), Arc::default());
    let clock = DelayClock::new(Arc::new(SystemClock));
    wait_for("most are sorted", || {
        store.step(&node.broker, &clock);
        delays.queue().log().start().0 > 2
    });
    clock.resume(Some(ClockRecord { boot: 0, ahead: 0, seen: later + 1_000 }));
    wait_for("all have left", || {
        store.step(&node.broker, &clock);
        delays.count() == 0
    });
    assert_eq!(queue.log().end().0, 902);
    node.close();
}

/// What is due takes the place of what it was; to sort all the others there is no space.
#[test]
fn on_a_full_disk_what_is_due_leaves() {
    let (node, delays, queue) = with_queue();
    let due = due_at(1);
    for _ in 0..1_000 {
        node.append(delays.queue().log(), &[7; 10_000], &[(DELAY_HEADER, Some(&due))]).expect("taken");
    }
    node.fill_for_clients(node.queue("junk", Arguments::default()).log(), Some(0));
    let mut store = Store::new(Arc::clone(&delays), Vec::new(), Arc::default());
    let clock = &node.broker.delays.clock;
    let left = || queue.log().end().0;
    // What is asked for at first may be more than is left of the segment: then it waits for the one that is kept.
    wait_for("some have found room", || {
        store.step(&node.broker, clock);
        left() > 0
    });
    node.disks[0].empty();
    wait_for("all have left", || {
        store.step(&node.broker, clock);
        delays.count() == 0
    });
    assert_eq!(left(), 1_000);
    node.close();
}

/// What has left before a restart may lie where the first piece ends that is read after it.
#[test]
fn what_is_behind_messages_that_left_before_a_restart_leaves_after_it() {
    let (node, delays, queue) = with_queue();
    let clock = &node.broker.delays.clock;
    let later = clock.now() + 3_600_000;
    // Few before, so that they leave at once, and more between than is read at once.
    for (count, due) in [(20, later), (300, 1), (100, later)] {
        let due = due_at(due);
        for _ in 0..count {
            node.append(delays.queue().log(), &[7; 4_000], &[(DELAY_HEADER, Some(&due))]).expect("taken");
        }
    }
    let mut store = Store::new(Arc::clone(&delays), Vec::new(), Arc::default());
    wait_for("those between have left", || {
        store.step(&node.broker, clock);
        queue.log().end().0 == 300
    });
    let hour_later = DelayClock::new(Arc::new(SystemClock));
    hour_later.resume(Some(ClockRecord { boot: 0, ahead: 0, seen: later }));
    let mut store = Store::new(Arc::clone(&delays), Vec::new(), Arc::default());
    wait_for("all have left", || {
        store.step(&node.broker, &hour_later);
        delays.count() == 0
    });
    assert_eq!(queue.log().end().0, 420);
    node.close();
}

/// A delayed message goes where bindings lead when it is due: into a queue that has the name of a deleted one only if that is bound.
#[test]
fn a_queue_declared_again_has_what_is_due_once_it_is_bound() {
    let node = Node::open(1);
    node.broker.set_undertaker(Arc::new(Plain(b"")));
    let delays = exchange(&node);
    let queue = node.queue("again", Arguments::default());
    bind(&node, &queue);
    let due = due_at(1);
    let publish = || node.append(delays.queue().log(), b"one", &[(DELAY_HEADER, Some(&due))]).expect("taken");
    let mut store = Store::new(Arc::clone(&delays), Vec::new(), Arc::default());
    let mut leave = || {
        wait_for("it has left", || {
            store.step(&node.broker, &node.broker.delays.clock);
            delays.count() == 0
        });
    };
    publish();
    node.broker.delete_queue(&queue, false, false).expect("deleted");
    let again = node.queue("again", Arguments::default());
    leave();
    assert_eq!(again.log().end().0, 0, "the binding has gone with the queue");
    publish();
    node.broker.delete_queue(&again, false, false).expect("deleted");
    let bound = node.queue("again", Arguments::default());
    bind(&node, &bound);
    leave();
    assert_eq!(bound.log().end().0, 1);
    node.close();
}
