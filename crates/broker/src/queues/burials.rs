//! Burials: what of a queue is dead waits for its turn, one thread at a time sends it, and who looks at a queue where letters are on
//! their way can wait for them.
//!
//! A letter is a record that has to be written. In RabbitMQ one queue hands it to the other, so that a client that rejects a message finds
//! it in the other queue right afterwards. Here [`Broker::await_letters`] says whether something that has died may be on its way to a queue,
//! and tells the asker when all of that has arrived. While nothing is buried it costs one look at a counter.

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
use crate::Broker;
use crate::mailbox::Reply;

/// Burials of a queue that wait, at most.
const BURIALS_MAX: usize = 10_000;
/// Askers that wait for burials of a queue, at most; others are not kept waiting.
const ASKERS_MAX: usize = 10_000;

/// What is to be buried.
pub(super) enum Burial {
    Dead(Vec<Dead>),
    /// A batch of one record.
    Refused(Bytes),
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
    /// How many there were ever.
    begun: u64,
    /// Who waits until that many have ended; the numbers ascend.
    askers: VecDeque<(u64, Arc<Asker>)>,
}

impl Burials {
    /// Takes those out who need not wait any more, given that none is being carried out.
    fn served(&mut self) -> Vec<Arc<Asker>> {
        let ended = self.begun - self.waiting.len() as u64;
        let served = self.askers.partition_point(|(wanted, _)| *wanted <= ended);
        self.askers.drain(..served).map(|(_, asker)| asker).collect()
    }
}

/// The queues of the node that bury something.
#[derive(Default)]
pub(crate) struct BurialsUnderWay {
    /// How many they are.
    count: AtomicUsize,
    queues: Mutex<HashMap<QueueId, Arc<Queue>>>,
}

impl BurialsUnderWay {
    fn begin(&self, queue: &Arc<Queue>) {
        self.queues.lock().insert(queue.id, Arc::clone(queue));
        self.count.fetch_add(1, Ordering::Release);
    }

    fn end(&self, queue: &Queue) {
        self.queues.lock().remove(&queue.id);
        self.count.fetch_sub(1, Ordering::Release);
    }
}

impl Broker {
    /// Has dead messages of a queue buried one after the other, in their order.
    pub(super) fn bury_next(&self, queue: &Arc<Queue>, burial: Burial) {
        {
            let mut slot = queue.burials.lock();
            let at_rest = slot.is_none();
            let burials = slot.get_or_insert_default();
            if burials.waiting.len() >= BURIALS_MAX {
                // What is refused is lost, as its publisher knows; what is dead is sent again when its time is over.
                return;
            }
            burials.waiting.push_back(burial);
            burials.begun += 1;
            if !at_rest {
                return;
            }
            self.vhosts.burials.begin(queue);
        }
        let of = Arc::clone(queue);
        let work = Box::new(move |broker: &Arc<Self>| {
            broker.bury_all(&of);
            Box::new(()) as Box<dyn std::any::Any + Send>
        });
        if !self.write_letters(work) {
            if let Some(burials) = &mut *queue.burials.lock() {
                burials.waiting.clear();
            }
            // Nothing is left, so that this is the end.
            self.next_burial(queue);
        }
    }

    fn bury_all(self: &Arc<Self>, queue: &Arc<Queue>) {
        while let Some(next) = self.next_burial(queue) {
            match next {
                Burial::Dead(dead) => dead.into_iter().for_each(|one| self.send_letters(queue, one)),
                Burial::Refused(batch) => self.send_refused(queue, &batch),
            }
        }
    }

    /// Takes the next one out, after the last one has ended: who waited for that hears of it.
    fn next_burial(&self, queue: &Queue) -> Option<Burial> {
        let mut slot = queue.burials.lock();
        let burials = slot.as_mut()?;
        let served = burials.served();
        let next = burials.waiting.pop_front();
        if next.is_none() {
            // All have ended, so that nobody waits for one.
            *slot = None;
            self.vhosts.burials.end(queue);
        }
        drop(slot);
        for asker in served.into_iter().filter(|asker| asker.one_less()) {
            self.reply(asker.to, Reply::Done(Box::new(())));
        }
        next
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
        let sources: Vec<Arc<Queue>> = self.vhosts.burials.queues.lock().values().filter(|queue| wanted(queue)).cloned().collect();
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
                Some(exchange) if exchange.is_empty() => understood.dead_letter_key.as_ref().is_none_or(|key| **key == **at.name()),
                Some(exchange) => exchanges.contains(exchange),
            }
        });
        sources
    }
}
