//! What the process tells the API of itself: what has passed its clients, what its memory is used for, how far it is.

use super::latency::Latencies;
use crate::management::rates::{COUNTS, Counts};

/// What the API asks the process.
pub trait Vitals: Send + Sync {
    /// What has passed clients since the start.
    fn totals(&self) -> NodeTotals;

    /// What memory is used for, now.
    fn memory(&self) -> Memory;

    /// How long requests and commits have taken since the start.
    fn latencies(&self) -> Latencies;

    /// How far the process is.
    fn phase(&self) -> &'static str;

    /// Until when the certificates are good that listeners with TLS show, in seconds since 1970; the first that ends. `None`: there are none.
    fn certificates_until(&self) -> Option<i64>;
}

/// What has passed clients of all protocols since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTotals {
    /// Bytes of Kafka requests.
    pub kafka_received: u64,
    /// Bytes of answers to them.
    pub kafka_sent: u64,
    /// Records accepted.
    pub kafka_records: u64,
    /// Bytes of record batches accepted.
    pub kafka_produced: u64,
    /// Bytes of record batches served.
    pub kafka_fetched: u64,
    /// Bytes of AMQP frames that came.
    pub amqp_received: u64,
    /// Bytes of AMQP frames that went.
    pub amqp_sent: u64,
    /// Messages published.
    pub amqp_published: u64,
    /// Messages confirmed.
    pub amqp_confirmed: u64,
    /// Messages given to consumers, or to those who asked for one.
    pub amqp_delivered: u64,
    /// Messages settled.
    pub amqp_settled: u64,
}

impl NodeTotals {
    /// As rates are computed of them.
    pub(crate) fn counts(&self) -> Counts {
        let Self { kafka_received, kafka_sent, kafka_records, kafka_produced, kafka_fetched, .. } = *self;
        let Self { amqp_received, amqp_sent, amqp_published, amqp_confirmed, amqp_delivered, amqp_settled, .. } = *self;
        let all = [
            kafka_received,
            kafka_sent,
            kafka_records,
            kafka_produced,
            kafka_fetched,
            amqp_received,
            amqp_sent,
            amqp_published,
            amqp_confirmed,
            amqp_delivered,
            amqp_settled,
        ];
        let mut counts = [0; COUNTS];
        counts[..all.len()].copy_from_slice(&all);
        counts
    }
}

/// What memory is used for.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The process may use so much for buffers and caches.
    pub budget_bytes: u64,
    /// What it has of the machine.
    pub resident_bytes: u64,
    /// The parts of it that are known.
    pub uses: Vec<MemoryUse>,
}

/// A part of the memory.
#[derive(Clone, Debug)]
pub struct MemoryUse {
    /// A word that does not change.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// For people.
    pub text: &'static str,
}
