//! What consumers of quorum queues keep for too long goes back, and they hear of it.
//!
//! How long that is: what the consumer says (`x-consumer-timeout`), else the lesser of what the queue's argument of that name and its policy
//! (`consumer-timeout`) say, else `mainstem.queue.consumer.timeout.ms`. Of who asks for single messages the queue's counts. Time-outs come up to 1/64
//! of it late. As in RabbitMQ 4.3 classic queues and streams have none.

use std::sync::Arc;

use delivery::QueueKind;

use super::{Broker, Gone, GoneReason, Queue, Reply, Turn};

impl Broker {
    /// How long somebody may keep a message of a queue, in ms; `own`: as he says.
    pub(super) fn time_out_ms(&self, queue: &Arc<Queue>, own: Option<u64>) -> Option<u64> {
        let understood = queue.understood();
        let of_all = || self.live_settings().int("mainstem.queue.consumer.timeout.ms").unsigned_abs();
        let otherwise = || understood.consumer_time_out.unwrap_or_else(of_all);
        (understood.kind == QueueKind::Quorum).then(|| own.unwrap_or_else(otherwise))
    }
}

impl Turn<'_> {
    /// Takes back what was kept for too long.
    pub(super) fn take_back(&mut self) {
        let Self { own, state, dead, .. } = self;
        let taken = own.machine.take_back(state, dead);
        for one in taken {
            let Some(flow) = self.own.in_use().channels.get(&one.channel) else { continue };
            self.woken.extend(flow.settled(one.count, 0));
            let gone = Gone { consumer: one.holder, reason: GoneReason::TimedOut };
            self.broker.reply(flow.to(), Reply::Done(Box::new(gone)));
        }
    }
}
