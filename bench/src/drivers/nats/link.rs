//! A connection and the windows of its publishers: slots for messages in flight, which fail together when it is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::{Result, bail};
use async_nats::{Client, Event, Message, Subject};
use serde::Deserialize;
use tokio::sync::watch;

use crate::outcome::{Outcomes, Ticket};

/// A connection.
pub struct Link {
    pub client: Client,
    pub shared: Arc<LinkState>,
}

/// What must know that a connection was lost.
pub struct LinkState {
    pub lost: watch::Sender<Option<String>>,
    slots: Mutex<Vec<Weak<Slots>>>,
}

impl LinkState {
    /// Nothing has happened yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { lost: watch::Sender::new(None), slots: Mutex::default() })
    }

    /// Acts on what the library tells of the connection.
    pub fn hear(&self, event: &Event) {
        let reason = match event {
            Event::Disconnected | Event::Closed => "the connection was lost".to_owned(),
            Event::ServerError(_) | Event::SlowConsumer(_) => event.to_string(),
            _ => return,
        };
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert(reason.clone());
            is_first
        });
        for slots in all.drain(..).filter_map(|slots| slots.upgrade()) {
            slots.lose(&reason);
        }
    }

    /// A publisher uses the connection.
    ///
    /// # Errors
    /// It was lost.
    pub fn add(&self, slots: &Arc<Slots>) -> Result<()> {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = self.lost.borrow().clone() {
            bail!(reason);
        }
        all.push(Arc::downgrade(slots));
        Ok(())
    }
}

/// The window of a publisher: a slot for each message in flight, named by the subject of its acknowledgement.
pub struct Slots {
    pub replies: Vec<Subject>,
    outcomes: Arc<Outcomes>,
    state: Mutex<SlotsState>,
}

struct SlotsState {
    free: Vec<usize>,
    taken: Vec<Option<Ticket>>,
    lost: Option<String>,
}

impl Slots {
    /// So many free slots.
    pub fn new(inbox: &str, size: usize, outcomes: Arc<Outcomes>) -> Self {
        let state = SlotsState { free: (0..size).rev().collect(), taken: vec![None; size], lost: None };
        let replies = (0..size).map(|slot| format!("{inbox}.{slot}").into()).collect();
        Self { replies, outcomes, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, SlotsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a message, if one is free.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn take(&self, ticket: Ticket) -> Result<Option<usize>> {
        let mut state = self.state();
        if let Some(reason) = &state.lost {
            bail!(reason.clone());
        }
        let Some(slot) = state.free.pop() else { return Ok(None) };
        state.taken[slot] = Some(ticket);
        Ok(Some(slot))
    }

    /// The slot's message has been answered, or was not sent after all.
    pub fn give_back(&self, slot: usize) -> Option<Ticket> {
        let mut state = self.state();
        let ticket = state.taken.get_mut(slot)?.take()?;
        state.free.push(slot);
        Some(ticket)
    }

    /// The server has answered.
    pub fn settle(&self, reply: &Message) {
        let slot = reply.subject.rsplit('.').next().and_then(|slot| slot.parse().ok());
        let Some(ticket) = slot.and_then(|slot| self.give_back(slot)) else { return };
        match refusal(reply) {
            None => self.outcomes.acknowledged(ticket),
            Some(reason) => self.outcomes.failed(ticket, || reason),
        }
    }

    /// Fails what is in flight and whatever will be offered.
    pub fn lose(&self, reason: &str) {
        let mut state = self.state();
        state.lost.get_or_insert_with(|| reason.to_owned());
        let failed: Vec<Ticket> = state.taken.iter_mut().filter_map(Option::take).collect();
        drop(state);
        for ticket in failed {
            self.outcomes.failed(ticket, || reason.to_owned());
        }
    }

    /// Nothing is in flight.
    pub fn are_free(&self) -> bool {
        self.state().taken.iter().all(Option::is_none)
    }
}

/// Why the server did not store a message.
fn refusal(reply: &Message) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<Reason>,
    }
    #[derive(Deserialize)]
    struct Reason {
        description: String,
    }
    // By far the most answers.
    if reply.payload.starts_with(b"{\"stream\":") {
        return None;
    }
    if let Some(status) = reply.status {
        return Some(format!("no stream takes the subject ({status})"));
    }
    match serde_json::from_slice::<Answer>(&reply.payload) {
        Ok(Answer { error: None }) => None,
        Ok(Answer { error: Some(reason) }) => Some(reason.description),
        Err(error) => Some(format!("not an acknowledgement: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::clock::Clock;

    fn reply(subject: &str, payload: &'static [u8]) -> Message {
        let payload = Bytes::from_static(payload);
        let (reply, headers, status, description) = (None, None, None, None);
        Message { subject: subject.into(), reply, payload, headers, status, description, length: 0 }
    }

    #[test]
    fn every_message_is_settled_once() {
        let outcomes = Arc::new(Outcomes::new(Clock::local(), 1, Arc::default()));
        let slots = Slots::new("inbox", 3, outcomes.clone());
        for slot in 0..3 {
            assert_eq!(slots.take(outcomes.depart(0, 0, 0)).unwrap(), Some(slot));
        }
        assert_eq!(slots.take(Ticket(0)).unwrap(), None);
        slots.settle(&reply("inbox.1", br#"{"stream":"s","seq":1}"#));
        slots.settle(&reply("inbox.1", br#"{"stream":"s","seq":1}"#));
        slots.settle(&reply("inbox.7", br#"{"stream":"s","seq":1}"#));
        slots.settle(&reply("inbox.2", br#"{"error":{"code":429,"description":"too many"},"stream":"s"}"#));
        slots.lose("lost");
        let found = outcomes.take();
        assert_eq!((found.acknowledged, found.failed, outcomes.in_flight_total()), (1, 2, 0));
        assert_eq!(outcomes.trouble().unwrap(), "too many");
        assert!(slots.take(Ticket(0)).is_err());
    }
}
