//! What a session does when nothing has come for it: it goes on with what takes longer than a turn, ends what waits, and frees what it does not need.

use std::collections::VecDeque;
use std::time::Instant;

use super::{CloseReason, News, Session, ShardContext, Slot, SlotState};

impl Session {
    /// Is [`Session::go_on`] due, once others had their turn?
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Goes on with requests that have more to do than fits into a turn.
    pub fn go_on(&mut self, shard: &mut ShardContext, now: Instant) {
        self.goes_on = false;
        for at in 0..self.slots.len() {
            if matches!(self.slots.get(at), Some(Slot { state: SlotState::Waiting(wait), .. }) if wait.goes_on()) {
                self.advance_slot(at, News::Turn, shard, now);
            }
        }
    }

    /// The node stops: requests that wait for records or for other members are answered now, the others when they are done.
    pub fn drain(&mut self, shard: &mut ShardContext, now: Instant) {
        for at in 0..self.slots.len() {
            self.advance_slot(at, News::End, shard, now);
        }
    }

    /// The queue has room: what it refused is tried again.
    pub fn handle_space(&mut self) {
        while let Some((journal, append)) = self.refused.pop_front() {
            if let Err(append) = self.gateway.broker.journals()[journal].append(append) {
                self.refused.push_front((journal, append));
                return;
            }
        }
    }

    /// Why the connection is to end, once what is due has been answered.
    pub fn take_refusal(&mut self, now: Instant) -> Option<CloseReason> {
        self.refusal.take_if(|(_, from)| now >= *from).map(|(reason, _)| reason)
    }

    /// Nothing was read or sent for a while: memory that is only kept for what comes next is freed.
    pub fn rest(&mut self) {
        if self.slots.is_empty() {
            self.slots = VecDeque::new();
        }
        if self.refused.is_empty() {
            self.refused = VecDeque::new();
        }
    }
}
