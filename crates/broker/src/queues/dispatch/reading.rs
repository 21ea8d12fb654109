//! What a turn of a queue sees: records of the window or of history, which of them is next, what is out of time, and what weighs how much.

use std::sync::Arc;

use delivery::{Head, QueueKind};
use types::Offset;

use super::super::opening::{NotOpened, Opening};
use super::super::traits::MessageTraits;
use super::super::window::{Filled, Seen, Window};
use super::{Dispatch, RETRY_MS, TURN_DEATHS, Turn, TurnEnd, body_bytes};
use crate::read_ahead::{AheadWant, HoldAhead};

/// What there is at an offset that was looked for.
pub(super) enum Look {
    Record,
    /// Nothing up to before it.
    Nothing(u64),
    /// It is not in memory, and is being read, or cannot be.
    Wait,
}

impl Turn<'_> {
    /// Looks for a record in the window, or reads it.
    fn look(&mut self, offset: u64) -> Look {
        for _ in 0..2 {
            match self.own.in_use().window.see(offset) {
                Seen::Record(_) => return Look::Record,
                Seen::Nothing(next) => return Look::Nothing(next),
                Seen::Unread => {}
            }
            if self.own.in_use().opening {
                // It is told when that is done.
                return Look::Wait;
            }
            let (log, window) = (self.queue.log(), &mut self.own.in_use().window);
            let filled = match window.refill(log, offset, Opening::here(self.broker, &mut self.unpack_left)) {
                Ok(false) => window.fill(self.broker, log, offset, Opening::here(self.broker, &mut self.unpack_left)),
                refilled => refilled.map(|_| Filled::Yes),
            };
            match filled {
                Ok(Filled::Yes) => {}
                Ok(Filled::Gone(start)) => return Look::Nothing(start),
                Ok(Filled::Empty) => return Look::Wait,
                Ok(Filled::Cold) => return self.look_in_history(offset),
                Err(error) => return self.not_opened(offset, &error),
            }
        }
        Look::Wait
    }

    fn not_opened(&mut self, offset: u64, error: &NotOpened) -> Look {
        match error {
            NotOpened::Later | NotOpened::TooLarge(_) => self.open_later(offset),
            NotOpened::Broken(error) => {
                tracing::error!(%error, queue = ?self.queue, offset, "records of a queue make no sense")
            }
        }
        Look::Wait
    }

    /// Takes what was read of history, or has it read: whoever waits for the subscription hears of it.
    fn look_in_history(&mut self, offset: u64) -> Look {
        let (shared, log) = (&self.queue.shared, self.queue.log());
        match shared.take_ahead(Offset(offset)) {
            Some(Ok(ahead)) => {
                let range = offset..ahead.range.end.0;
                let opening = Opening::here(self.broker, &mut self.unpack_left);
                if let Err(error) = self.own.in_use().window.take(log, ahead.slices, range, opening) {
                    return self.not_opened(offset, &error);
                }
                match self.own.in_use().window.see(offset) {
                    Seen::Record(_) => Look::Record,
                    Seen::Nothing(next) => Look::Nothing(next),
                    Seen::Unread => Look::Wait,
                }
            }
            Some(Err(error)) => {
                // The journal has said it once.
                tracing::debug!(%error, queue = ?self.queue, offset, "records of a queue cannot be read; they are tried again");
                let again = self.now_ms + RETRY_MS;
                self.set_due(Some(again));
                Look::Wait
            }
            None => {
                let memory = Arc::clone(&self.broker.vhosts.windows);
                let max_bytes = 4 * Window::piece(&memory);
                let hold: HoldAhead = Box::new(move |slices| Box::new(memory.hold(slices)));
                let want = AheadWant { range: Offset(offset)..log.last_stable(), max_bytes, hold, asked_for: true };
                if let Some(home) = self.broker.home(self.queue.id) {
                    shared.watch(home);
                }
                self.broker.read_ahead(shared, want);
                Look::Wait
            }
        }
    }

    /// The offset of the next message that is not out of time, which then is in the window. `Err`: it is being read.
    pub(super) fn next(&mut self) -> Result<Option<u64>, ()> {
        self.trim();
        loop {
            let end = self.end();
            match self.own.machine.head(&self.state, end) {
                Head::Nothing => return Ok(None),
                Head::Unread(first, last) => self.read_levels(first, last)?,
                Head::Record(_) if self.expire_levels()? => {}
                Head::Record(offset) => match self.look(offset) {
                    Look::Wait => return Err(()),
                    Look::Nothing(next) => {
                        let Self { own, state, .. } = self;
                        own.machine.skip(state, offset, next - 1);
                    }
                    Look::Record if self.is_out_of_time(offset) && !self.is_awaited(offset) => self.expire(offset)?,
                    Look::Record => return Ok(Some(offset)),
                },
            }
        }
    }

    /// Tells the subscription the levels of records of which it does not know them.
    fn read_levels(&mut self, first: u64, last: u64) -> Result<(), ()> {
        match self.look(first) {
            Look::Wait => return Err(()),
            Look::Nothing(next) => {
                let Self { own, state, .. } = self;
                own.machine.skip(state, first, (next - 1).min(last));
                return Ok(());
            }
            Look::Record => {}
        }
        let Self { own, state, .. } = self;
        let Dispatch { machine, in_use, .. } = &mut **own;
        let window = &in_use.get_or_insert_default().window;
        let until = window.end_from(first).ok_or(())?.saturating_sub(1).min(last);
        state.set_levels(first, until, &mut |offset| {
            let record = window.next(offset).filter(|record| record.offset.0 == offset);
            machine.rules().level(record.and_then(|record| MessageTraits::of(record).priority))
        });
        Ok(())
    }

    /// When the time of a record that was looked at is over, in ms since 1970. One without a time stamp, as old clients of Kafka send them, has no age.
    pub(super) fn time_of(&mut self, offset: u64) -> Option<u64> {
        let Dispatch { machine, in_use, .. } = &mut *self.own;
        let window = &mut in_use.get_or_insert_default().window;
        let Seen::Record(record) = window.see(offset) else { return None };
        let ttl = MessageTraits::of(record).ttl;
        machine.rules().due(u64::try_from(record.timestamp).ok()?, ttl)
    }

    fn is_out_of_time(&mut self, offset: u64) -> bool {
        let wall_ms = self.wall_ms;
        self.time_of(offset).is_some_and(|at| at <= wall_ms)
    }

    /// May this turn throw out one more message? Then it counts.
    pub(super) fn may_throw_out(&mut self) -> bool {
        let left = self.deaths_left.unwrap_or_else(|| {
            self.held_back = self.own.machine.rules().dead_letters && !self.broker.takes_deaths(self.queue);
            if self.held_back { 0 } else { TURN_DEATHS }
        });
        self.deaths_left = Some(left.saturating_sub(1));
        left > 0
    }

    /// How a turn ends that could not go on.
    pub(super) fn interrupted(&self) -> TurnEnd {
        if self.deaths_left == Some(0) && !self.held_back { TurnEnd::Deaths } else { TurnEnd::Reads }
    }

    /// The time of a record that was looked at is over.
    fn expire(&mut self, offset: u64) -> Result<(), ()> {
        if !self.may_throw_out() {
            return Err(());
        }
        let Self { own, state, dead, .. } = self;
        let Seen::Record(record) = own.in_use().window.see(offset) else { return Err(()) };
        let size = body_bytes(record);
        own.machine.expire_head(state, offset, size, dead);
        Ok(())
    }

    /// Throws out what is first in its level and out of time: a quorum queue looks at each of them, not only at what is next. True:
    /// something has gone.
    fn expire_levels(&mut self) -> Result<bool, ()> {
        if self.own.machine.rules().kind != QueueKind::Quorum || self.state.heads().nth(1).is_none() {
            self.own.in_use().level_heads.clear();
            return Ok(false);
        }
        let heads: Vec<u64> = self.state.heads().map(|(_, offset)| offset).collect();
        self.own.in_use().level_heads.retain(|(offset, _)| heads.contains(offset));
        for offset in heads {
            let known = self.own.in_use().level_heads.iter().find(|(other, _)| *other == offset).map(|(_, due)| *due);
            let is_over = |due: Option<u64>, wall_ms| due.is_some_and(|at| at <= wall_ms);
            if known.is_some_and(|due| !is_over(due, self.wall_ms)) {
                continue;
            }
            match self.look(offset) {
                Look::Wait => return Err(()),
                Look::Nothing(next) => {
                    let Self { own, state, .. } = self;
                    own.machine.skip(state, offset, next - 1);
                    return Ok(true);
                }
                Look::Record => {}
            }
            let due = self.time_of(offset);
            if is_over(due, self.wall_ms) && !self.is_awaited(offset) {
                self.expire(offset)?;
                return Ok(true);
            }
            if known.is_none() {
                self.own.in_use().level_heads.push((offset, due));
            }
        }
        Ok(false)
    }

    /// Has it just come, and does somebody wait for it? Then it is given to him, however short its time is.
    fn is_awaited(&mut self, offset: u64) -> bool {
        offset >= self.own.arrived && self.own.machine.has_taker()
    }

    /// How far to look at a log that ends at `log_end`. Where messages have priorities, those that come are taken one by one as long as
    /// somebody waits for them, or what is too much is dropped: those that come later do not go before them.
    pub(super) fn next_stop(&mut self, log_end: u64) -> u64 {
        let Dispatch { machine, arrived, .. } = &mut *self.own;
        let alone =
            self.state.is_levelled() && *arrived < log_end && (machine.rules().drops_head() || machine.has_taker());
        if alone { (*arrived).max(self.state.start()) + 1 } else { log_end }
    }

    /// Tells how much records weigh that are new, where bytes are limited.
    pub(super) fn weigh(&mut self) -> Result<(), ()> {
        while let Some(from) = self.own.machine.unweighed(&self.state, self.end()) {
            let looked = self.look(from);
            let Self { own, state, end, .. } = self;
            let Dispatch { machine, in_use, .. } = &mut **own;
            match looked {
                Look::Wait => return Err(()),
                Look::Nothing(next) => {
                    machine.weigh_nothing(state, next.clamp(from + 1, *end));
                    continue;
                }
                Look::Record => {}
            }
            let window = &in_use.get_or_insert_default().window;
            let Some(until) = window.end_from(from) else { return Err(()) };
            let mut at = from;
            while let Some(record) = window.next(at).filter(|record| record.offset.0 < *end) {
                machine.weigh(state, record.offset.0, body_bytes(record));
                at = record.offset.0 + 1;
            }
            // There may be nothing at the end of the window: records of transactions that were aborted.
            machine.weigh_nothing(state, until.clamp(from + 1, *end));
        }
        Ok(())
    }
}
