//! Dead-lettering of queues: what of a queue is dead waits for its turn, one thread at a time sends it, and who looks at a queue where dead
//! letters are on their way can wait for them.
//!
//! A dead letter is a record that has to be written. In RabbitMQ one queue hands it to the other, so that a client that rejects a message finds
//! it in the other queue right afterwards. Here [`Broker::await_letters`] says whether something that has died may be on its way to a queue,
//! and tells the asker when all of that has arrived. While nothing is buried it costs one look at a counter.
//!
//! **Bounds.** What waits is runs of offsets, each offset of a queue at most once: the subscription says which are claimed. A queue of which
//! [`DEATHS_WAITING_MAX`] messages wait throws out no more for their time or its length before half of those are done
//! ([`Broker::takes_deaths`]); what consumers reject is bounded by what they have.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use delivery::Dead;
use hashbrown::HashMap;
use journal::ReplyTo;
use parking_lot::Mutex;
use routing::QueueId;

use super::queue::Queue;
use super::unfinished::Unfinished;
use crate::Broker;
use crate::mailbox::Reply;

/// Dead messages of a queue that wait, from which on it throws out no more.
const DEATHS_WAITING_MAX: u64 = 20_000;
/// Refused messages of a queue that wait, at most, and their bytes.
const REFUSED_MAX: usize = 10_000;
const REFUSED_BYTES_MAX: usize = 64 << 20;
/// Messages that a thread takes at once.
const TAKEN_MAX: u64 = 8_000;
/// Askers that wait for burials of a queue, at most; others are not kept waiting.
const ASKERS_MAX: usize = 10_000;

/// What is to be buried.
pub(super) enum Burial {
    /// Of the queue's log, claimed.
    Dead(Dead),
    /// A batch of one record.
    Refused(Bytes),
}

impl Burial {
    fn messages(&self) -> u64 {
        match self {
            Self::Dead(dead) => dead.last - dead.first + 1,
            Self::Refused(_) => 1,
        }
    }
}

/// Somebody who waits for letters of one or more queues.
struct Asker {
    /// Queues that still bury what he waits for, and one while he asks.
    open: AtomicUsize,
    to: ReplyTo,
}

impl Asker {
    /// One queue fewer; true: it was the last.
    fn one_less(&self) -> bool {
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// What of a queue is to be buried, from the first to the end of the last: one thread at a time does it, so that letters arrive in the order of the deaths.
#[derive(Default)]
pub(super) struct Burials {
    waiting: VecDeque<Burial>,
    /// How many messages there were ever, and how many of them are done with.
    begun: u64,
    ended: u64,
    /// Batches in `waiting`, and their bytes.
    refused: (usize, usize),
    /// It was said that there are too many of them.
    told: bool,
    /// The queue has to wait before it throws out more.
    holds_back: bool,
    /// Who waits until that many have ended; the numbers ascend.
    askers: VecDeque<(u64, Arc<Asker>)>,
}

impl Burials {
    /// False: there are too many refused ones.
    fn push(&mut self, burial: Burial) -> bool {
        let messages = burial.messages();
        match (burial, self.waiting.back_mut()) {
            (Burial::Dead(dead), Some(Burial::Dead(last))) if dead.follows(last) => last.last = dead.last,
            (Burial::Refused(batch), _) => {
                let (count, bytes) = self.refused;
                if count >= REFUSED_MAX || bytes + batch.len() > REFUSED_BYTES_MAX && count > 0 {
                    return false;
                }
                self.refused = (count + 1, bytes + batch.len());
                self.waiting.push_back(Burial::Refused(batch));
            }
            (burial, _) => self.waiting.push_back(burial),
        }
        self.begun += messages;
        true
    }

    /// Takes out what is next, about [`TAKEN_MAX`] messages.
    fn take(&mut self) -> Vec<Burial> {
        let (mut taken, mut room) = (Vec::new(), TAKEN_MAX);
        while room > 0 {
            let next = match self.waiting.front_mut() {
                None => break,
                Some(Burial::Dead(dead)) if dead.last - dead.first >= room => {
                    let part = Dead { last: dead.first + room - 1, ..*dead };
                    dead.first += room;
                    Burial::Dead(part)
                }
                Some(_) => self.waiting.pop_front().expect("it was looked at"),
            };
            if let Burial::Refused(batch) = &next {
                self.refused = (self.refused.0 - 1, self.refused.1 - batch.len());
            }
            room -= next.messages();
            taken.push(next);
        }
        taken
    }

    /// Takes out what is dead; what was refused stays. Who waited for it waits no longer once the caller is done with what it took before.
    fn take_dead(&mut self) -> Vec<Dead> {
        let mut dead = Vec::new();
        self.waiting.retain(|burial| {
            if let Burial::Dead(one) = burial {
                dead.push(*one);
            }
            matches!(burial, Burial::Refused(_))
        });
        self.ended += dead.iter().map(|one| one.last - one.first + 1).sum::<u64>();
        dead
    }

    /// Takes those out who need not wait any more.
    fn served(&mut self) -> Vec<Arc<Asker>> {
        let served = self.askers.partition_point(|(wanted, _)| *wanted <= self.ended);
        self.askers.drain(..served).map(|(_, asker)| asker).collect()
    }

    /// May the queue throw out more? True: it had to wait, and need not any more.
    fn goes_on(&mut self) -> bool {
        self.holds_back && self.begun - self.ended <= DEATHS_WAITING_MAX / 2 && std::mem::take(&mut self.holds_back)
    }
}

/// The queues of the node that bury something.
#[derive(Default)]
pub(crate) struct BurialsUnderWay {
    /// How many they are.
    count: AtomicUsize,
    queues: Mutex<HashMap<QueueId, Arc<Queue>>>,
    /// Until when what has died waits, in steady ms, of those whose journal has taken nothing.
    put_off: Mutex<HashMap<QueueId, u64>>,
    /// What is left of appends, of those of which another journal has not taken all.
    unfinished: Mutex<HashMap<QueueId, Vec<Unfinished>>>,
}

impl BurialsUnderWay {
    /// A queue has something to bury; what `may` says is said before any other queue is entered.
    fn begin(&self, queue: &Arc<Queue>, may: impl FnOnce() -> bool) -> bool {
        let mut queues = self.queues.lock();
        queues.insert(queue.id, Arc::clone(queue));
        self.count.fetch_add(1, Ordering::Release);
        may()
    }

    fn end(&self, queue: &Queue) {
        self.queues.lock().remove(&queue.id);
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// What of a queue has died waits until then.
    pub(super) fn put_off(&self, queue: &Queue, until: u64) {
        self.put_off.lock().insert(queue.id, until);
    }

    /// Until when it waits, if it does.
    pub(super) fn put_off_until(&self, queue: &Queue) -> Option<u64> {
        self.put_off.lock().get(&queue.id).copied()
    }

    /// What is left of a queue's appends, to be appended or put back.
    pub(super) fn take_unfinished(&self, queue: &Queue) -> Vec<Unfinished> {
        self.unfinished.lock().remove(&queue.id).unwrap_or_default()
    }

    pub(super) fn put_unfinished(&self, queue: &Queue, left: Vec<Unfinished>) {
        if !left.is_empty() && !queue.is_dropped() {
            self.unfinished.lock().insert(queue.id, left);
        }
    }

    /// A queue is gone, and what waited with it.
    pub(super) fn forget(&self, queue: &Queue) {
        self.go_on(queue);
        self.unfinished.lock().remove(&queue.id);
    }

    /// Nothing of a queue waits any more.
    pub(super) fn go_on(&self, queue: &Queue) {
        self.put_off.lock().remove(&queue.id);
    }
}

impl Broker {
    /// Has dead messages of a queue buried one after the other, in their order.
    pub(super) fn bury_next(&self, queue: &Arc<Queue>, what: impl IntoIterator<Item = Burial>) {
        {
            let mut slot = queue.burials.lock();
            let at_rest = slot.is_none();
            let burials = slot.get_or_insert_default();
            for burial in what {
                if !burials.push(burial) && !std::mem::replace(&mut burials.told, true) {
                    // What is refused is lost, as its publisher knows.
                    tracing::warn!(
                        ?queue,
                        "too many refused messages wait for the dead letters: some are not among them"
                    );
                }
            }
            if burials.waiting.is_empty() && at_rest {
                *slot = None;
            }
            if slot.is_none() || !at_rest {
                return;
            }
            if !self.vhosts.burials.begin(queue, || self.undertaker.get().is_some()) {
                // At the start: it begins when a gateway is there.
                return;
            }
        }
        self.go_on_burying(queue);
    }

    /// Has those begin that wait for a gateway, if this says so.
    pub(super) fn begin_burying(&self, may: impl FnOnce() -> bool) {
        let waiting: Vec<Arc<Queue>> = {
            let queues = self.vhosts.burials.queues.lock();
            if may() { queues.values().cloned().collect() } else { Vec::new() }
        };
        waiting.iter().for_each(|queue| self.go_on_burying(queue));
    }

    /// Leaves what a queue has to bury to one of the threads; at the end of the broker it stays, for the next start.
    fn go_on_burying(&self, queue: &Arc<Queue>) {
        let of = Arc::clone(queue);
        let work = move |broker: &Arc<Self>| {
            broker.bury_some(&of);
            Box::new(()) as Box<dyn std::any::Any + Send>
        };
        self.write_letters(Box::new(work));
    }

    /// Sends what is next, and then the rest, unless others wait for this thread: then those have their turn before.
    fn bury_some(self: &Arc<Self>, queue: &Arc<Queue>) {
        while let Some(taken) = self.next_burials(queue) {
            let ended = Ended { broker: self, queue, messages: taken.iter().map(Burial::messages).sum() };
            for alike in taken.chunk_by(|one, next| std::mem::discriminant(one) == std::mem::discriminant(next)) {
                let (mut dead, mut refused) = (Vec::new(), Vec::new());
                for one in alike {
                    match one {
                        Burial::Dead(one) => dead.push(*one),
                        Burial::Refused(batch) => refused.push(batch.clone()),
                    }
                }
                if refused.is_empty() { self.send_letters(queue, &dead) } else { self.send_refused(queue, &refused) }
            }
            drop(ended);
            if self.letters.has_jobs() && !self.rests_from_burying(queue) {
                return self.go_on_burying(queue);
            }
        }
    }

    /// Takes out what is next; `None`: all have ended.
    fn next_burials(&self, queue: &Queue) -> Option<Vec<Burial>> {
        if self.rests_from_burying(queue) {
            return None;
        }
        queue.burials.lock().as_mut().map(|burials| burials.take())
    }

    /// Takes out what of a queue is dead and waits behind what is being sent.
    pub(super) fn take_dead_that_wait(&self, queue: &Queue) -> Vec<Dead> {
        queue.burials.lock().as_mut().map_or_else(Vec::new, |burials| burials.take_dead())
    }

    /// Is there nothing more to bury? Then the queue is at rest, and nobody waits for it.
    fn rests_from_burying(&self, queue: &Queue) -> bool {
        let mut slot = queue.burials.lock();
        if slot.as_ref().is_some_and(|burials| !burials.waiting.is_empty()) {
            return false;
        }
        if slot.take().is_some() {
            self.vhosts.burials.end(queue);
        }
        true
    }

    /// May a queue throw out messages for their time, or its length? False: it is told with a turn when it may.
    pub(super) fn takes_deaths(&self, queue: &Queue) -> bool {
        let mut slot = queue.burials.lock();
        let Some(burials) = slot.as_mut().filter(|burials| burials.begun - burials.ended >= DEATHS_WAITING_MAX) else {
            return true;
        };
        burials.holds_back = true;
        false
    }

    /// Is anything being buried?
    pub fn buries(&self) -> bool {
        self.vhosts.burials.count.load(Ordering::Acquire) > 0
    }

    /// Are letters perhaps on their way to a queue? True: `to` hears when those of what has died by now have arrived. Which keys they have, and
    /// what the bindings on the way want, is not looked at.
    pub fn await_letters(&self, at: &Arc<Queue>, to: ReplyTo) -> bool {
        if !self.buries() {
            return false;
        }
        let wanted = |queue: &Arc<Queue>| queue.vhost == at.vhost;
        let sources: Vec<Arc<Queue>> =
            self.vhosts.burials.queues.lock().values().filter(|queue| wanted(queue)).cloned().collect();
        let asker = Arc::new(Asker { open: AtomicUsize::new(1), to });
        for source in self.that_lead_to(at, sources) {
            let mut slot = source.burials.lock();
            if let Some(burials) = slot.as_mut().filter(|burials| burials.askers.len() < ASKERS_MAX) {
                asker.open.fetch_add(1, Ordering::Relaxed);
                let wanted = burials.begun;
                burials.askers.push_back((wanted, Arc::clone(&asker)));
            }
        }
        !asker.one_less()
    }

    /// Those of `sources` whose dead letters may come to a queue.
    fn that_lead_to(&self, at: &Queue, mut sources: Vec<Arc<Queue>>) -> Vec<Arc<Queue>> {
        let Some(vhost) = self.vhosts.get(&at.vhost) else { return Vec::new() };
        let routes = vhost.exchanges().read();
        let exchanges = routes.exchanges_to(at.id);
        sources.retain(|source| {
            let understood = source.understood();
            match &understood.dead_letter_exchange {
                None => false,
                Some(exchange) if exchange.is_empty() => {
                    understood.dead_letter_key.as_ref().is_none_or(|key| **key == **at.name())
                }
                Some(exchange) => exchanges.contains(exchange),
            }
        });
        sources
    }
}

/// So many messages of a queue are done with when this goes, whatever became of them: who waited for them hears of it.
struct Ended<'a> {
    broker: &'a Arc<Broker>,
    queue: &'a Arc<Queue>,
    messages: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let (served, goes_on) = {
            let mut slot = self.queue.burials.lock();
            let Some(burials) = slot.as_mut() else { return };
            burials.ended += self.messages;
            (burials.served(), burials.goes_on())
        };
        for asker in served.into_iter().filter(|asker| asker.one_less()) {
            self.broker.reply(asker.to, Reply::Done(Box::new(())));
        }
        if goes_on {
            self.broker.run_queue(self.queue);
        }
        if std::thread::panicking() {
            self.broker.go_on_burying(self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::Burial;
    use crate::queues::testing::{Node, Plain, arguments, name, wait_for};
    use ::record::{BatchBuilder, BatchHeader};
    use delivery::DeadReason;
    use journal::AppendItem;
    use routing::{Argument, Arguments, OwnedValue};

    use crate::{BindingWish, Caller};

    #[test]
    fn what_is_dead_before_there_is_a_gateway_waits_for_it_and_no_longer() {
        let node = Node::open(1);
        let (grave, to_grave) =
            (node.queue("dead", Arguments::default()), arguments(&[("x-dead-letter-exchange", "")]));
        let jobs = node.queue("jobs", to_grave);
        node.append(jobs.log(), b"x", &[]).expect("taken");
        let (broker, mut dead) = (&node.broker, Vec::new());
        let rules = broker.rules_of(&jobs.shared);
        jobs.shared.lock().drop_available(0, 0, DeadReason::Expired, &rules, &mut dead);
        broker.bury(&jobs.shared, dead, &rules);
        let (told, hears) = channel();
        let writes = Arc::clone(broker);
        let thread = std::thread::spawn(move || writes.letters.run(&writes));
        broker.write_letters(Box::new(move |_| {
            told.send(()).expect("it is heard");
            Box::new(())
        }));
        hears.recv().expect("told");
        assert_eq!(jobs.shared.lock().claimed_dead(0, 0), [(0, 0)], "it is put off");
        broker.set_undertaker(Arc::new(Plain(b"dead")));
        wait_for("it is dead-lettered", || grave.log().end().0 == 1 && jobs.shared.lock().dying() == 0);
        broker.letters.close();
        thread.join().expect("no panic");
        node.close();
    }

    #[test]
    fn what_a_full_disk_does_not_take_waits_for_what_died_before() {
        let node = Node::open(1);
        let (broker, count, later) = (&node.broker, super::TAKEN_MAX + 200, super::TAKEN_MAX + 100);
        let (grave, to_grave) =
            (node.queue("dead", Arguments::default()), arguments(&[("x-dead-letter-exchange", "")]));
        let jobs = node.queue("jobs", to_grave);
        let numbered = (0..count)
            .fold(BatchBuilder::default(), |batch, number| batch.record(1_000, None, Some(&number.to_be_bytes())));
        let bytes = numbered.build();
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        broker
            .commit(0, vec![AppendItem::Batch { log: Arc::clone(jobs.log()), bytes, header, gate: None }])
            .expect("taken");
        broker.set_undertaker(Arc::new(Plain(b"dead")));
        let (rules, mut dead) = (broker.rules_of(&jobs.shared), Vec::new());
        jobs.shared.lock().drop_available(0, later - 1, DeadReason::Expired, &rules, &mut dead);
        node.fill(node.queue("junk", Arguments::default()).log());
        broker.bury(&jobs.shared, dead, &rules);
        let first = broker.next_burials(&jobs).expect("some wait");
        assert_eq!(first.iter().map(Burial::messages).sum::<u64>(), super::TAKEN_MAX);
        let first: Vec<_> =
            first.into_iter().filter_map(|one| if let Burial::Dead(dead) = one { Some(dead) } else { None }).collect();
        broker.send_letters(&jobs, &first);
        assert_eq!((jobs.shared.lock().claimed_dead(0, count), grave.log().end().0), (vec![], 0), "all of it waits");
        assert_eq!(jobs.shared.lock().dying(), later);
        node.disks[0].empty();
        wait_for("there is space", || !broker.journals()[0].is_disk_full());
        let mut dead = Vec::new();
        jobs.shared.lock().drop_available(later, count - 1, DeadReason::Expired, &rules, &mut dead);
        broker.bury(&jobs.shared, dead, &rules);
        broker.bury_some(&jobs);
        assert_eq!((jobs.shared.lock().dying(), grave.log().end().0), (count, 0), "what dies now does not overtake it");
        wait_for("all are dead-lettered", || {
            broker.expire_subscription(&jobs.shared, &mut jobs.shared.lock(), &broker.rules_of(&jobs.shared));
            broker.bury_some(&jobs);
            jobs.shared.lock().dying() == 0
        });
        let (letters, _) = broker.read_log(grave.log(), 0, count, usize::MAX).expect("readable");
        let numbers = letters.iter().map(|letter| letter.value.clone().expect("a number"));
        assert!(numbers.eq((0..count).map(|number| number.to_be_bytes().to_vec())), "in their order");
        node.close();
    }

    #[test]
    fn the_next_turn_finds_all_that_died_before_it_buried() {
        let node = Node::open(1);
        let (broker, count) = (&node.broker, 10_000_u64);
        for round in 0..20 {
            let limit = Argument { name: b"x-max-length".as_slice().into(), tag: b'l', value: OwnedValue::Int(3) };
            let to_grave = Argument {
                name: b"x-dead-letter-exchange".as_slice().into(),
                tag: b'S',
                value: OwnedValue::Bytes(b"".as_slice().into()),
            };
            let jobs = node.queue(&format!("jobs-{round}"), Arguments::new(vec![limit, to_grave]));
            let batch = (0..count)
                .fold(BatchBuilder::default(), |batch, number| batch.record(1_000, None, Some(&number.to_be_bytes())));
            let bytes = batch.build();
            let header = BatchHeader::parse(&bytes).expect("a valid batch");
            broker
                .commit(0, vec![AppendItem::Batch { log: Arc::clone(jobs.log()), bytes, header, gate: None }])
                .expect("taken");
            std::thread::scope(|threads| {
                let turns = [(); 2].map(|()| threads.spawn(|| (0..count / 1000).for_each(|_| broker.run_queue(&jobs))));
                while !turns.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                    let state = jobs.shared.lock();
                    let buried = jobs.burials.lock().as_ref().map_or(0, |burials| burials.begun);
                    assert_eq!(state.dying(), buried, "round {round}");
                }
            });
            let slot = jobs.burials.lock();
            let firsts = slot
                .iter()
                .flat_map(|burials| &burials.waiting)
                .map(|burial| if let Burial::Dead(dead) = burial { dead.first } else { 0 });
            assert!(firsts.is_sorted(), "in their order");
            assert_eq!(slot.as_ref().map(|burials| burials.begun), Some(count - 3));
        }
        node.close();
    }

    #[test]
    fn letters_are_not_copied_again_and_again_while_the_disk_of_another_journal_is_full() {
        let node = Node::open(2);
        let broker = &node.broker;
        broker.set_undertaker(Arc::new(Plain(b"")));
        let (near, far) = (node.queue_in(0), node.queue_in(1));
        for queue in [&near, &far] {
            let (source, destination, key) = (name("amq.fanout"), queue.name().clone(), name(""));
            let wish = BindingWish { source, to_queue: true, destination, key, arguments: Arguments::default() };
            broker.bind(&node.vhost(), wish, &Caller::broker(Caller::NO_CONNECTION)).expect("bound");
        }
        let to_both = || arguments(&[("x-dead-letter-exchange", "amq.fanout")]);
        let mut made = (0..).map(|number| node.queue(&format!("jobs-{number}"), to_both()));
        let jobs =
            made.find(|queue| broker.journal_number(queue.log().id()) == 0).expect("logs go to the journals in turn");
        [b"one", b"two"].iter().for_each(|body| node.append(jobs.log(), &body[..], &[]).expect("taken"));
        let junk = (0..)
            .map(|number| node.queue(&format!("junk-{number}"), Arguments::default()))
            .find(|queue| broker.journal_number(queue.log().id()) == 1);
        node.fill(junk.expect("likewise").log());
        let (rules, mut dead) = (broker.rules_of(&jobs.shared), Vec::new());
        jobs.shared.lock().drop_available(0, 1, DeadReason::Expired, &rules, &mut dead);
        broker.bury(&jobs.shared, dead, &rules);
        for _ in 0..3 {
            broker.bury_some(&jobs);
            assert_eq!((jobs.shared.lock().dying(), near.log().end().0), (2, 0), "they wait for both");
            wait_for("they are tried again", || {
                broker.expire_subscription(&jobs.shared, &mut jobs.shared.lock(), &broker.rules_of(&jobs.shared));
                !jobs.shared.lock().claimed_dead(0, 1).is_empty()
            });
        }
        node.disks[1].empty();
        wait_for("they arrive", || {
            broker.expire_subscription(&jobs.shared, &mut jobs.shared.lock(), &broker.rules_of(&jobs.shared));
            broker.bury_some(&jobs);
            jobs.shared.lock().dying() == 0
        });
        assert_eq!((near.log().end().0, far.log().end().0), (2, 2), "each once");
        node.close();
    }

    /// One that waits is tried again, and so is the other one.
    fn try_again(broker: &Arc<crate::Broker>, jobs: &Arc<super::Queue>) {
        broker.expire_subscription(&jobs.shared, &mut jobs.shared.lock(), &broker.rules_of(&jobs.shared));
        broker.bury_some(jobs);
    }

    #[test]
    fn letters_that_one_journal_has_taken_and_another_has_not_are_copied_once() {
        assert!((0..20).any(|_| letters_meet_a_full_journal()), "no two journals had the same room to the byte");
    }

    /// False: what is kept in the full journal turned out to be used up before, or to be enough for all of them.
    fn letters_meet_a_full_journal() -> bool {
        const COUNT: u64 = 100;
        let node = Node::open(4);
        let broker = &node.broker;
        broker.set_undertaker(Arc::new(Plain(b"")));
        let targets = [0, 1, 2].map(|journal| node.queue_in(journal));
        for queue in &targets {
            let (source, destination, key) = (name("amq.fanout"), queue.name().clone(), name(""));
            let wish = BindingWish { source, to_queue: true, destination, key, arguments: Arguments::default() };
            broker.bind(&node.vhost(), wish, &Caller::broker(Caller::NO_CONNECTION)).expect("bound");
        }
        let made = |what: &'static str, journal: usize| {
            let queue = |number| {
                node.queue(&format!("{what}-{number}"), arguments(&[("x-dead-letter-exchange", "amq.fanout")]))
            };
            (0..)
                .map(queue)
                .find(|queue| broker.journal_number(queue.log().id()) == journal)
                .expect("logs go to the journals in turn")
        };
        let (jobs, tried, filled) = (made("jobs", 0), made("tried", 3), made("filled", 2));
        let batch = (0..COUNT).fold(BatchBuilder::default(), |batch, _| batch.record(1_000, None, Some(&[7; 1000])));
        let bytes = batch.build();
        let header = BatchHeader::parse(&bytes).expect("a valid batch");
        broker
            .commit(0, vec![AppendItem::Batch { log: Arc::clone(jobs.log()), bytes, header, gate: None }])
            .expect("taken");
        // What is kept for letters has room for some, and not for all of them; that was not asked for yet.
        let steps = node.fill_for_clients(tried.log(), None);
        node.fill_for_clients(filled.log(), Some(steps));
        assert!(broker.journals()[2].is_disk_full());
        if !broker.journals()[2].takes_copies() {
            node.close();
            return false;
        }
        let (rules, mut dead) = (broker.rules_of(&jobs.shared), Vec::new());
        jobs.shared.lock().drop_available(0, COUNT - 1, DeadReason::Expired, &rules, &mut dead);
        broker.bury(&jobs.shared, dead, &rules);
        let ends = || [0, 1, 2].map(|at: usize| targets[at].log().end().0);
        broker.bury_some(&jobs);
        if ends()[2] == COUNT {
            node.close();
            return false;
        }
        let taken = ends()[1];
        assert!(taken > 0, "the second has those of the first append");
        for _ in 0..3 {
            assert_eq!((ends(), jobs.shared.lock().dying()), ([0, taken, 0], COUNT), "all wait for the third");
            wait_for("they are tried again", || {
                broker.expire_subscription(&jobs.shared, &mut jobs.shared.lock(), &broker.rules_of(&jobs.shared));
                !jobs.shared.lock().claimed_dead(0, COUNT).is_empty()
            });
            broker.bury_some(&jobs);
        }
        node.disks[2].empty();
        wait_for("they arrive", || {
            try_again(broker, &jobs);
            jobs.shared.lock().dying() == 0
        });
        assert_eq!(ends(), [COUNT; 3], "each once");
        node.close();
        true
    }
}
