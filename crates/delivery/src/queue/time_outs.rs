//! What consumers keep for too long is taken from them, and what came back waits as long as it has to.
//!
//! Source: RabbitMQ 4.3, `rabbit_fifo`, `evaluate_consumer_timeout`.

use super::{ChannelId, Queue};
use crate::subscription::time_outs;
use crate::{ConsumerId, Dead, NO_LOCK, Subscription, Verdict};

/// What was taken from one who had it for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// Whom: a consumer, or who has got messages by asking.
    pub holder: ConsumerId,
    /// His channel.
    pub channel: ChannelId,
    /// How many messages.
    pub count: u64,
}

impl Queue {
    /// It is so late, in ms. What is given out from now on is given out at this time.
    pub fn set_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    pub(super) fn deadline(&self, time_out_ms: Option<u64>) -> u64 {
        time_out_ms.map_or(NO_LOCK, |wait| time_outs::deadline(self.now_ms, wait))
    }

    /// Takes from consumers what they have had for too long, as if they had returned it with *nack*, and lets be given out again what
    /// has waited long enough. Nothing to do before [`Subscription::next_time`].
    pub fn take_back(&mut self, subscription: &mut Subscription, dead: &mut Vec<Dead>) -> Vec<TakenBack> {
        if subscription.next_time().is_none_or(|at| at > self.now_ms) {
            return Vec::new();
        }
        let mut runs = subscription.timed_out(self.now_ms);
        runs.sort_by_key(|(holder, ..)| *holder);
        let mut taken = Vec::new();
        for of_one in runs.chunk_by(|one, next| one.0 == next.0) {
            let holder = of_one[0].0;
            let Some(channel) = self.consumers.get().and_then(|all| all.channel(holder)) else { continue };
            let mut count = 0;
            for (_, first, last) in of_one {
                count += self.judge(subscription, holder, *first, *last, Verdict::Return, self.now_ms, dead);
            }
            let late: Vec<(u64, u64)> = of_one.iter().map(|(_, first, last)| (*first, *last)).collect();
            self.consumers.change(|all| all.taken_back(holder, count, &late));
            taken.push(TakenBack { holder, channel, count });
        }
        self.weights.check(subscription);
        subscription.end_waits(self.now_ms);
        self.weights.note(subscription);
        taken
    }
}
