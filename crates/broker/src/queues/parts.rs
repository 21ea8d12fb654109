//! Queues that are attached to a topic of several partitions. Each partition is a queue of its own with its own subscription and its own
//! machine, which is found by its id and by no name; the first is the queue that has the name, and knows the others. A consumer is one in
//! each of them, with one credit over all. Order holds within a partition, and so do priorities.

use std::sync::Arc;

use delivery::{ChannelId, ConsumerId};
use routing::{Headers, Value};

use super::arguments::{InvalidArgument, QueueArguments};
use super::consumers::{ChannelFlow, ConsumeError, Consuming};
use super::queue::Queue;
use crate::Broker;

/// The header that says where a message goes.
const PARTITION_KEY: &[u8] = b"x-partition-key";

/// Partitions of a topic that can be a queue, at most.
pub(super) const PARTS_MAX: usize = 1000;

/// A consumer of one partition.
pub struct Part {
    /// The partition's queue.
    pub queue: Arc<Queue>,
    /// Under which number it consumes there.
    pub consumer: ConsumerId,
    /// How many messages it takes: of all partitions together.
    pub flow: Arc<ChannelFlow>,
}

/// The partition of a key among `count`, as clients of Kafka choose it by default: murmur2 with their seed, without the sign.
pub(crate) fn partition_of(key: &[u8], count: usize) -> usize {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mut hash = SEED ^ key.len() as u32;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mixed = u32::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ (mixed ^ (mixed >> 24)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MULTIPLIER);
    ((hash ^ (hash >> 15)) & 0x7fff_ffff) as usize % count
}

impl Queue {
    /// Has it several logs?
    pub fn is_partitioned(&self) -> bool {
        !self.others.is_empty()
    }

    /// Itself, and the queues of the other partitions, in order.
    pub fn parts(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::once(self).chain(&self.others)
    }

    /// Where a message goes: by its header `x-partition-key` (bytes or a text, or an integer in decimal), otherwise by `turn`, which is the
    /// same for those that are to lie together. The routing key has no part in it, and neither becomes the record's key.
    pub fn part(self: &Arc<Self>, headers: &dyn Headers, turn: u64) -> &Arc<Self> {
        let count = self.others.len() + 1;
        if count == 1 {
            return self;
        }
        let place = match headers.get(PARTITION_KEY) {
            Some(Value::Bytes(key)) => partition_of(key, count),
            Some(Value::Int(key)) => partition_of(key.to_string().as_bytes(), count),
            _ => (turn % count as u64) as usize,
        };
        place.checked_sub(1).map_or(self, |place| &self.others[place])
    }
}

impl Broker {
    /// Somebody consumes from all partitions from now on.
    ///
    /// # Errors
    /// `Exclusive`, `Gone`.
    pub fn consume_parts(self: &Arc<Self>, queue: &Arc<Queue>, wish: &Consuming) -> Result<Vec<Part>, ConsumeError> {
        let flow = wish.channel.within(ChannelId(self.subscriptions().new_consumer().0), wish.prefetch);
        let mut all: Vec<Part> = Vec::with_capacity(queue.others.len() + 1);
        for part in queue.parts() {
            match self.consume(part, Consuming { channel: Arc::clone(&flow), prefetch: 0, ..wish.clone() }) {
                Ok(consumer) => all.push(Part { queue: Arc::clone(part), consumer, flow: Arc::clone(&flow) }),
                Err(error) => {
                    for begun in all {
                        self.leave_channel(&begun.queue, &flow, &[]);
                    }
                    return Err(error);
                }
            }
        }
        Ok(all)
    }
}

/// Arguments that would have to look at several logs at once.
///
/// # Errors
/// The first of them.
pub(super) fn check(arguments: &QueueArguments, topic: &str, partitions: usize) -> Result<(), InvalidArgument> {
    let across = [
        (arguments.length_max.is_some(), "x-max-length"),
        (arguments.bytes_max.is_some(), "x-max-length-bytes"),
        (arguments.single_active, "x-single-active-consumer"),
        (arguments.expires.is_some(), "x-expires"),
    ];
    match across.into_iter().find(|(is, _)| *is && partitions > 1) {
        Some((_, name)) => super::arguments::refuse(name, format!("topic '{topic}' has {partitions} partitions")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_where_kafkas_clients_send_them() {
        // Of kafka-python's DefaultPartitioner with 1000 partitions.
        for (key, partition) in [
            (&b""[..], 681),
            (b"a", 524),
            (b"ab", 434),
            (b"abc", 107),
            (b"abcd", 100),
            (b"123456789", 566),
            (b"\x00 ", 742),
        ] {
            assert_eq!(partition_of(key, 1000), partition, "{key:?}");
        }
    }
}
