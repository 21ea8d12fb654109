//! A connection under the quotas of its user and client id, which is the client property `connection_name`. What is published beyond them is
//! held, and beyond what may be held is not read ([`crate::session`], pressure); acknowledgements and heartbeats go on meanwhile. What is
//! delivered beyond them makes room for more only when it is paid for. A share of time, and single messages that are asked for, pause all reading.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{ANONYMOUS_NAME, Broker, Cause, Causes, Limit, QuotaKey, Throttle};

use crate::connection::Connection;
use crate::outgoing::Taken;

/// A shorter debt delays nothing: it counts with the next.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// Who waits looks so often whether quotas have changed.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// See the head.
#[derive(Default)]
pub(crate) struct Quota {
    throttle: Throttle,
    /// What the client calls itself.
    pub client_id: String,
    /// Sent, not paid for: until when each keeps its room.
    owed: VecDeque<(Instant, Taken)>,
    /// The same of queues that are far behind, in no order.
    behind: Vec<(Instant, Taken)>,
    /// As of which the rules are that these wait for.
    generation: u64,
    /// The connection ends: what was published goes out, paid for or not.
    ending: bool,
}

impl Quota {
    fn limit(&self) -> Option<Limit> {
        self.throttle.paused().map(|(limit, _)| limit)
    }

    /// Are publishes held?
    pub fn holds_publishes(&self) -> bool {
        !self.ending && self.throttle.is_paused()
    }

    /// Since when they are held.
    pub fn held_since(&self) -> Option<Instant> {
        self.throttle.paused().filter(|_| !self.ending).map(|(_, since)| since)
    }

    /// Is nothing to be read?
    pub fn stops_reading(&self) -> bool {
        matches!(self.limit(), Some(Limit::Client(QuotaKey::RequestPercentage | QuotaKey::ConsumerByteRate)))
    }

    /// Messages have been handed to the socket: their room is free again once they are paid for.
    pub fn sent(&mut self, broker: &Arc<Broker>, taken: Taken, now: Instant) {
        let debt = self
            .throttle
            .account(QuotaKey::ConsumerByteRate)
            .map_or(Duration::ZERO, |account| account.take(taken.bytes as u64, now));
        let laggard = taken.laggard.as_ref().map_or(Duration::ZERO, |account| account.take(taken.bytes as u64, now));
        if laggard >= DELAY_MIN && laggard > debt {
            if self.behind.is_empty() {
                self.generation = broker.quotas().generation();
            }
            self.behind.push((now + laggard, taken));
        } else if debt >= DELAY_MIN {
            broker.quotas().note_throttled(QuotaKey::ConsumerByteRate, debt);
            self.owed.push_back((now + debt, taken));
        } else {
            broker.taken(&taken.channel, taken.bytes);
        }
    }

    /// When to look again without an event; `now` or later.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        // The quota may have changed meanwhile.
        let first = self.behind.iter().map(|(due, _)| *due).chain(self.owed.front().map(|(due, _)| *due)).min();
        self.throttle.next().into_iter().chain(first.map(|due| due.min(now + LOOK_AGAIN))).min()
    }

    /// What the connection waits for because of quotas.
    pub fn causes(&self) -> Causes {
        let paused = match self.limit() {
            Some(Limit::Topic) => Cause::TopicQuota.bit(),
            Some(Limit::Client(_) | Limit::Laggard) => Cause::Quota.bit(),
            Some(Limit::Memory) => Cause::Memory.bit(),
            None => 0,
        };
        let owed = if self.owed.is_empty() { 0 } else { Cause::Quota.bit() };
        let behind = if self.behind.is_empty() { 0 } else { Cause::Laggard.bit() };
        paused | owed | behind
    }
}

impl Connection {
    /// Makes sure that the limits are those in force. What was owed to an account that is gone is paid.
    pub fn look_at_quota(&mut self) {
        let quotas = self.gateway.broker.quotas();
        let user = if self.user.is_empty() { ANONYMOUS_NAME } else { &self.user };
        if self.quota.owed.is_empty() {
            self.quota.throttle.look(quotas, user, &self.quota.client_id, self.now);
            return;
        }
        let of = |quota: &Quota| quota.throttle.account(QuotaKey::ConsumerByteRate).map(std::ptr::from_ref);
        let before = of(&self.quota);
        self.quota.throttle.look(quotas, user, &self.quota.client_id, self.now);
        if of(&self.quota) != before {
            self.give_back(|_| true);
        }
    }

    /// Gives back the room of what was sent, first those that were sent first, as long as they are `paid`.
    fn give_back(&mut self, paid: impl Fn(Instant) -> bool) {
        while let Some((_, taken)) = self.quota.owed.pop_front_if(|(due, _)| paid(*due)) {
            self.gateway.broker.taken(&taken.channel, taken.bytes);
        }
    }

    /// So many bytes of batches were appended; the quotas of their topics ask to wait for `debt`.
    pub fn take_published(&mut self, bytes: usize, debt: Duration) {
        let quotas = self.gateway.broker.quotas();
        self.quota.throttle.take(quotas, QuotaKey::ProducerByteRate, bytes as u64, self.now);
        self.quota.throttle.pause(quotas, Limit::Topic, debt, self.now);
    }

    /// A message of so many bytes was asked for, and is on its way.
    pub fn take_got(&mut self, bytes: usize) {
        self.quota.throttle.take(self.gateway.broker.quotas(), QuotaKey::ConsumerByteRate, bytes as u64, self.now);
    }

    /// Begins to measure what a turn takes of the thread, where that is limited.
    pub fn begin_timing(&self) -> Option<Instant> {
        self.quota.throttle.is_timed().then(Instant::now)
    }

    /// Ends it.
    pub fn take_time(&mut self, began: Option<Instant>) {
        if let Some(began) = began {
            let took = began.elapsed().as_nanos() as u64;
            self.quota.throttle.take(self.gateway.broker.quotas(), QuotaKey::RequestPercentage, took, self.now);
        }
    }

    /// Time has passed.
    pub fn wake_quota(&mut self) {
        let quotas = self.gateway.broker.quotas();
        let ended = self.quota.throttle.wake(quotas, self.now);
        self.look_at_quota();
        let now = self.now;
        self.give_back(|due| due <= now);
        // What waited for rules that have changed has waited long enough.
        let same = self.quota.generation == self.gateway.broker.quotas().generation();
        self.quota.behind.retain(|(due, taken)| {
            let waits = same && *due > now;
            if !waits {
                self.gateway.broker.taken(&taken.channel, taken.bytes);
            }
            waits
        });
        if ended {
            self.flush();
        }
    }

    /// The same of a channel: what it has published, by a commit in particular, is kept as a whole whatever becomes of the connection.
    pub fn flush_of_ended(&mut self) {
        let ending = std::mem::replace(&mut self.quota.ending, true);
        self.flush();
        self.quota.ending = ending;
    }

    /// The connection ends: what is held because of a quota goes out, and is paid for by those who come next.
    pub fn flush_unpaid(&mut self) {
        self.quota.ending = true;
        self.flush();
    }
}
