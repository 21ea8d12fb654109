//! What management needs of the process: messages from the AMQP gateway, and what the node knows of itself.

use std::path::Path;
use std::sync::Arc;

use admin::AdminState;
use admin::api::{Latencies, Memory, NodeTotals, Vitals};
use admin::management::{Gateway, Listening, Message, NodeFacts, Totals};
use amqp_gateway::{GatewayMetrics, Postcard};
use broker::{Broker, Delivery, Vhost};
use journal::Journal;

use crate::config::Config;
use crate::latencies::LatencyLook;
use crate::measurements::Measurements;
use crate::tls::Tls;

/// The AMQP gateway, as management knows it.
pub struct Messages(pub GatewayMetrics);

impl Gateway for Messages {
    fn publish(&self, broker: &Arc<Broker>, vhost: &Vhost, message: &Message) -> Result<bool, String> {
        let Message { exchange, routing_key, properties, body } = message.clone();
        amqp_gateway::post(broker, vhost, &Postcard { exchange, routing_key, properties, body })
    }

    fn open(&self, delivery: &Delivery, queue: &[u8]) -> Message {
        let Postcard { exchange, routing_key, properties, body } = amqp_gateway::open(delivery, queue);
        Message { exchange, routing_key, properties, body }
    }

    fn totals(&self) -> Totals {
        let GatewayMetrics { published, confirmed, unroutable, delivered, got, settled, .. } = &self.0;
        Totals {
            published: published.get(),
            confirmed: confirmed.get(),
            unroutable: unroutable.get(),
            delivered: delivered.get(),
            got: got.get(),
            settled: settled.get(),
        }
    }
}

/// What passes clients, and what memory is used for.
pub struct NodeVitals {
    state: Arc<AdminState>,
    measurements: Measurements,
    kafka: kafka_gateway::GatewayMetrics,
    pub amqp: GatewayMetrics,
    latencies: LatencyLook,
    tls: Option<Arc<Tls>>,
}

impl NodeVitals {
    /// Of the process, its gateways and its journals.
    pub fn new(
        process: (&Arc<AdminState>, &Measurements),
        gateways: (&kafka_gateway::GatewayMetrics, &GatewayMetrics),
        journals: &[Arc<Journal>],
    ) -> Self {
        let (kafka, amqp) = (gateways.0.clone(), gateways.1.clone());
        let (state, measurements, latencies) =
            (Arc::clone(process.0), process.1.clone(), LatencyLook::new(&kafka, journals));
        Self { state, measurements, latencies, kafka, amqp, tls: None }
    }

    /// With what listeners with TLS show.
    pub fn with_tls(self, tls: Option<&Arc<Tls>>) -> Self {
        Self { tls: tls.cloned(), ..self }
    }
}

impl Vitals for NodeVitals {
    fn totals(&self) -> NodeTotals {
        let (kafka, amqp) = (&self.kafka, &self.amqp);
        NodeTotals {
            kafka_received: kafka.received_bytes.get(),
            kafka_sent: kafka.sent_bytes.get(),
            kafka_records: kafka.produced_records.get(),
            kafka_produced: kafka.produced_bytes.get(),
            kafka_fetched: kafka.fetched_bytes.get(),
            amqp_received: amqp.received_bytes.get(),
            amqp_sent: amqp.sent_bytes.get(),
            amqp_published: amqp.published.get(),
            amqp_confirmed: amqp.confirmed.get(),
            amqp_delivered: amqp.delivered.get() + amqp.got.get(),
            amqp_settled: amqp.settled.get(),
        }
    }

    fn memory(&self) -> Memory {
        self.measurements.memory()
    }

    fn latencies(&self) -> Latencies {
        self.latencies.read()
    }

    fn phase(&self) -> &'static str {
        self.state.phase_name()
    }

    fn certificates_until(&self) -> Option<i64> {
        self.tls.as_ref().map(|tls| tls.until())
    }
}

/// What the node knows of itself.
pub fn facts(config: &Config, listeners: Vec<Listening>) -> NodeFacts {
    NodeFacts { memory: config.memory, data: config.data.clone(), free_bytes, listeners }
}

/// Bytes that are free on the disk of a folder; 0 if nobody can say.
fn free_bytes(folder: &Path) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return 0 };
    // SAFETY: an all-zero statvfs is a valid value to be overwritten, and the path ends with a zero byte.
    let (status, stat) = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut stat), stat)
    };
    if status == 0 { stat.f_bavail * stat.f_frsize } else { 0 }
}
