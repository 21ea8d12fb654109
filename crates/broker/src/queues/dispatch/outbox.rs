//! What one turn gives out, by consumer and in the order of each channel.

use delivery::{ChannelId, ConsumerId};
use hashbrown::HashMap;

use crate::queues::consumers::{Deliveries, Delivery};

/// Messages that go to a consumer together, at most.
const TOGETHER_MAX: usize = 256;

/// Messages on their way to consumers.
#[derive(Default)]
pub(super) struct Outbox {
    pub by_consumer: Vec<Deliveries>,
    /// Where the last ones of a channel are: its messages stay in order, whichever consumer gets them.
    places: HashMap<ChannelId, usize>,
    pub count: usize,
}

impl Outbox {
    pub fn push(&mut self, channel: ChannelId, consumer: ConsumerId, message: Delivery) {
        let bytes = message.bytes();
        self.count += 1;
        let last = self.places.get(&channel).and_then(|place| self.by_consumer.get_mut(*place));
        match last.filter(|one| one.consumer == consumer && one.messages.len() < TOGETHER_MAX) {
            Some(one) => {
                one.messages.push(message);
                one.bytes += bytes;
            }
            None => {
                self.places.insert(channel, self.by_consumer.len());
                self.by_consumer.push(Deliveries { consumer, messages: vec![message], bytes });
            }
        }
    }
}
