//! A publisher's way to the broker: batches made here, several of them on their way at once.
//!
//! The library makes batches too, but its producer waits for a batch's receipt before it sends the next, so that batch size
//! and round trip would bound every publisher. Here a publisher has several of the library's producers, its lanes. Messages
//! are collected in a queue; the lane whose turn it is waits until the queue holds a full batch or has lingered, takes the
//! batch and passes the turn on before it sends. Batches of one publisher may therefore overtake each other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use pulsar::producer::Message;
use pulsar::{Producer, TokioExecutor};
use tokio::sync::{Mutex as Turn, Notify};

use crate::drivers::portion::Window;
use crate::outcome::{Outcomes, Ticket};

/// Timers count in milliseconds, rounded up twice; aiming this much early makes them right on average.
const TIMER_LATENESS: Duration = Duration::from_micros(900);

/// When a batch is sent.
#[derive(Clone, Copy)]
pub struct Batching {
    pub bytes: usize,
    pub linger: Duration,
}

/// A message that waits for its batch.
pub struct Waiting {
    pub message: Vec<u8>,
    pub key: Option<String>,
    pub ticket: Ticket,
}

/// What all lanes of a publisher share.
pub struct Fate {
    pub outcomes: Arc<Outcomes>,
    pub window: Arc<Window>,
    /// The publisher was dropped: what waits is sent, then the lanes end.
    pub ended: AtomicBool,
    is_lost: AtomicBool,
    lost: Mutex<Option<String>>,
}

impl Fate {
    /// Nothing has happened yet.
    pub fn new(outcomes: &Arc<Outcomes>, window: Arc<Window>) -> Arc<Self> {
        let (ended, is_lost) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { outcomes: outcomes.clone(), window, ended, is_lost, lost: Mutex::new(None) })
    }

    /// Why the publisher cannot go on.
    pub fn lost(&self) -> Option<String> {
        if !self.is_lost.load(Ordering::Acquire) {
            return None;
        }
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lose(&self, reason: &str) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_owned());
        self.is_lost.store(true, Ordering::Release);
    }

    fn acknowledged(&self, tickets: Vec<Ticket>) {
        self.window.leave(tickets.len());
        tickets.into_iter().for_each(|ticket| self.outcomes.acknowledged(ticket));
    }

    fn failed(&self, tickets: impl ExactSizeIterator<Item = Ticket>, reason: &str) {
        self.window.leave(tickets.len());
        tickets.for_each(|ticket| self.outcomes.failed(ticket, || reason.to_owned()));
    }
}

/// Messages that wait for one of some lanes.
pub struct Queue {
    batching: Batching,
    fate: Arc<Fate>,
    waiting: Mutex<Collected>,
    /// There is a first message, a full batch, or an end.
    news: Notify,
    turn: Turn<()>,
}

struct Collected {
    messages: VecDeque<Waiting>,
    bytes: usize,
    /// When there was nothing last.
    since: Instant,
    /// Nothing is taken any more.
    is_closed: bool,
}

impl Queue {
    /// Nothing waits.
    pub fn new(batching: Batching, fate: &Arc<Fate>) -> Arc<Self> {
        let collected = Collected { messages: VecDeque::new(), bytes: 0, since: Instant::now(), is_closed: false };
        let (waiting, news, turn) = (Mutex::new(collected), Notify::new(), Turn::new(()));
        Arc::new(Self { batching, fate: fate.clone(), waiting, news, turn })
    }

    fn waiting(&self) -> MutexGuard<'_, Collected> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message waits from now on, unless no lane is left.
    pub fn push(&self, message: Waiting) -> bool {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            return false;
        }
        let was_empty = waiting.messages.is_empty();
        let was_full = waiting.bytes >= self.batching.bytes;
        if was_empty {
            waiting.since = Instant::now();
        }
        waiting.bytes += message.message.len();
        let is_full = waiting.bytes >= self.batching.bytes;
        waiting.messages.push_back(message);
        drop(waiting);
        if was_empty || is_full && !was_full {
            self.news.notify_one();
        }
        true
    }

    /// The publisher has ended.
    pub fn end(&self) {
        self.news.notify_one();
    }

    /// Sends batches until there will be none.
    pub async fn serve(self: Arc<Self>, mut lane: Producer<TokioExecutor>) {
        while let Some(batch) = self.next_batch().await {
            let tickets: Vec<Ticket> = batch.iter().map(|waiting| waiting.ticket).collect();
            match send(&mut lane, batch).await {
                Ok(()) => self.fate.acknowledged(tickets),
                Err(error) => {
                    let reason = error.to_string();
                    self.fate.lose(&reason);
                    self.fate.failed(tickets.into_iter(), &reason);
                    self.close(&reason);
                }
            }
        }
        let _ = lane.close().await;
    }

    async fn next_batch(&self) -> Option<Vec<Waiting>> {
        let _turn = self.turn.lock().await;
        loop {
            let due = {
                let mut waiting = self.waiting();
                let has_ended = waiting.is_closed || self.fate.ended.load(Ordering::Acquire);
                if waiting.messages.is_empty() {
                    if has_ended {
                        // For the lane that has the turn next.
                        self.news.notify_one();
                        return None;
                    }
                    None
                } else {
                    let due = waiting.since + self.batching.linger.saturating_sub(TIMER_LATENESS);
                    if has_ended || waiting.bytes >= self.batching.bytes || due <= Instant::now() {
                        return Some(waiting.take(self.batching.bytes));
                    }
                    Some(due)
                }
            };
            match due {
                None => self.news.notified().await,
                Some(due) => drop(tokio::time::timeout_at(due.into(), self.news.notified()).await),
            }
        }
    }

    fn close(&self, reason: &str) {
        let messages = {
            let mut waiting = self.waiting();
            waiting.is_closed = true;
            waiting.bytes = 0;
            std::mem::take(&mut waiting.messages)
        };
        self.fate.failed(messages.into_iter().map(|waiting| waiting.ticket), reason);
        self.news.notify_one();
    }
}

impl Collected {
    fn take(&mut self, bytes_max: usize) -> Vec<Waiting> {
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            bytes += waiting.message.len();
            bytes <= bytes_max
        };
        let count = self.messages.iter().take_while(fits).count().max(1);
        let batch: Vec<Waiting> = self.messages.drain(..count).collect();
        self.bytes -= batch.iter().map(|waiting| waiting.message.len()).sum::<usize>();
        batch
    }
}

/// Sends one batch and waits for its receipt.
async fn send(lane: &mut Producer<TokioExecutor>, batch: Vec<Waiting>) -> Result<(), pulsar::Error> {
    let mut receipt = None;
    for Waiting { message, key, .. } in batch {
        let message = Message { payload: message, partition_key: key, ..Message::default() };
        receipt = Some(lane.send_non_blocking(message).await?);
    }
    lane.send_batch().await?;
    // All messages of a batch share their fate, and flushing does not tell it.
    match receipt {
        Some(receipt) => receipt.await.map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn batches_are_full_but_not_too_large() {
        let outcomes = Arc::new(Outcomes::new(Clock::local(), 1, Arc::default()));
        let fate = Fate::new(&outcomes, Window::new(10));
        let queue = Queue::new(Batching { bytes: 1000, linger: Duration::from_secs(60) }, &fate);
        for length in [400, 600, 300, 5000, 100] {
            fate.window.enter();
            let ticket = outcomes.depart(0, 0, 0);
            assert!(queue.push(Waiting { message: vec![0; length], key: None, ticket }));
        }
        let lengths = |batch: Vec<Waiting>| batch.iter().map(|waiting| waiting.message.len()).collect::<Vec<_>>();
        let next = || lengths(queue.waiting().take(1000));
        assert_eq!((next(), next(), next()), (vec![400, 600], vec![300], vec![5000]));
        assert_eq!(queue.waiting().bytes, 100);
        queue.close("gone");
        assert_eq!(outcomes.take().failed, 1);
    }
}
