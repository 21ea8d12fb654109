//! Messages that are asked for one at a time, and all at once.

use std::sync::Arc;

use delivery::{ConsumerId, QueueKind};

use super::super::consumers::ChannelFlow;
use super::super::queue::{Got, Queue};
use super::super::window::Seen;
use super::{Dispatch, Turn, body_bytes};
use crate::Broker;

impl Broker {
    /// Somebody asks for one message; he has it under the number `holder`.
    pub fn get(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        channel: &Arc<ChannelFlow>,
        holder: ConsumerId,
        no_ack: bool,
    ) -> Got {
        // What has just come is for consumers that wait for it, and is dropped where there is no room for it.
        self.run_queue(queue);
        let time_out_ms = self.time_out_ms(queue, None);
        let mut turn = self.turn(queue);
        if queue.is_dropped() {
            // It is looked after no more: nothing is to be kept with it.
            return Got::Empty;
        }
        turn.own.machine.touch(turn.now_ms);
        if queue.is_unjudged() {
            return Got::Later;
        }
        let head = turn.next();
        if let Ok(None) = head {
            turn.own.tally().got_empty += 1;
            turn.run();
            return Got::Empty;
        }
        let Turn { own, state, now_ms, .. } = &mut turn;
        own.in_use().note_get(*now_ms);
        let Ok(Some(offset)) = head else {
            // What ran out on the way there goes where it has to go.
            turn.run();
            return Got::Later;
        };
        let Dispatch { machine, in_use, .. } = &mut **own;
        let window = &mut in_use.get_or_insert_default().window;
        let Seen::Record(record) = window.see(offset) else { return Got::Later };
        let size = body_bytes(record);
        let Some(given) = machine.get(state, offset, size, channel.id(), holder, no_ack, time_out_ms) else {
            return Got::Later;
        };
        let Some(record) = window.take_seen() else { return Got::Later };
        channel.got(no_ack, given.redelivered);
        own.tally().redelivered += u64::from(given.redelivered);
        if no_ack {
            own.tally().got_no_ack += 1;
        } else {
            own.tally().got += 1;
            own.in_use().channels.insert(channel.id(), Arc::clone(channel));
        }
        let message = turn.delivery(given, record);
        if turn.own.machine.rules().kind == QueueKind::Classic {
            // What is out of time behind it is not left.
            let _ = turn.next();
        }
        let left = turn.state.ready(turn.end());
        turn.run();
        Got::Message(Box::new(message), left)
    }

    /// All that nobody has is gone; how many messages that were.
    pub fn purge(self: &Arc<Self>, queue: &Arc<Queue>) -> u64 {
        queue.parts().map(|part| self.purge_part(part)).sum()
    }

    fn purge_part(self: &Arc<Self>, queue: &Arc<Queue>) -> u64 {
        let mut turn = self.turn(queue);
        let end = queue.log().last_stable().0;
        let Turn { own, state, .. } = &mut turn;
        let purged = own.machine.purge(state, end);
        turn.run();
        purged
    }
}
