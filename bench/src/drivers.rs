//! The client libraries behind one small trait. A new one is one file and one row in [`open`].
//!
//! A driver is told everything at once by its [`Job`] and then asked for publishers and subscribers. It decides nothing
//! about rates, phases or measuring: a publisher hands messages to its library, a subscriber hands what arrives to
//! [`Receipts`], and completions go to [`Outcomes`], from whatever thread the library calls.

mod amqp;
mod kafka;
mod nats;
mod options;
mod portion;
mod pulsar;
mod threads;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::nearest;
use crate::outcome::{Outcomes, Ticket};
use crate::receipt::Receipts;
use crate::workload::Workload;

/// Names that a target file may give as its driver.
pub const NAMES: [&str; 4] = ["kafka", "amqp", "pulsar", "nats"];

/// All that a driver must know. Travels to workers as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// One of [`NAMES`].
    pub driver: String,
    /// Where the broker listens, `host:port`.
    pub address: String,
    /// Begins the names of topics, queues and groups of this run.
    pub run: String,
    pub workload: Workload,
    /// Words for this driver alone, from the target's file; each driver's header lists its own.
    pub options: BTreeMap<String, String>,
}

impl Job {
    /// A job for this driver at this address, without words of a target's file.
    pub fn plain(driver: &str, address: &str, run: &str, workload: Workload) -> Self {
        let (driver, address, run) = (driver.to_owned(), address.to_owned(), run.to_owned());
        Self { driver, address, run, workload, options: BTreeMap::new() }
    }

    /// Name of a topic (queue, stream) by its number.
    pub fn topic(&self, topic: usize) -> String {
        format!("{}-{topic:05}", self.run)
    }

    /// Name of a subscription (group) by its number.
    pub fn subscription(&self, subscription: usize) -> String {
        format!("{}-s{subscription}", self.run)
    }

    /// Client instances that publish.
    pub fn publishing_clients(&self) -> usize {
        self.workload.producers().min(self.workload.clients as usize)
    }

    /// Client instances of a subscription. Each takes its share of all topics.
    pub fn subscribing_clients(&self) -> usize {
        let workload = &self.workload;
        let consumers = workload.topics as usize * workload.consumer_per_subscription as usize;
        consumers.min(workload.clients.max(workload.consumer_per_subscription) as usize)
    }
}

/// A producer's place.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    pub topic: usize,
    /// Which of the shared client instances it uses.
    pub client: usize,
}

/// A consuming client instance: one of `clients` that share the topics of a subscription.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub subscription: usize,
    pub client: usize,
    pub clients: usize,
}

/// A client library, connected to one broker for one run.
pub trait Driver: Send + Sync {
    /// Library and version, for the report.
    fn name(&self) -> String;

    /// Creates topics, queues and subscriptions, so that whatever is published from now on reaches every subscription.
    ///
    /// # Errors
    /// The workload asks for what this protocol does not have, or the broker refuses.
    fn prepare(&self) -> Result<()>;

    /// Deletes them. What cannot be deleted is left.
    fn clear(&self);

    /// A producer. Those with the same `client` share a connection.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    fn publisher(&self, seat: Seat, outcomes: &Arc<Outcomes>) -> Result<Box<dyn Publisher>>;

    /// A consumer; it reads from the first message of the run, until it is dropped.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses.
    fn subscriber(&self, place: Place, receipts: &Arc<Receipts>) -> Result<Box<dyn Subscriber>>;
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The library has it; the outcome follows.
    Taken,
    /// The library is full; offer it again soon.
    Full,
}

/// One producer.
pub trait Publisher: Send {
    /// Hands a message to the library and returns without waiting for its outcome. Called from plain threads, never from
    /// those of an asynchronous runtime.
    ///
    /// # Errors
    /// The library cannot go on; the message was not taken, and its ticket is the caller's to recall.
    fn offer(&mut self, key: Option<&[u8]>, message: &[u8], ticket: Ticket) -> Result<Offer>;
}

/// One consumer. Dropping it ends it.
pub trait Subscriber: Send {}

/// Connects the job's driver.
///
/// # Errors
/// There is no such driver, or it cannot connect.
pub fn open(job: &Job) -> Result<Arc<dyn Driver>> {
    Ok(match job.driver.as_str() {
        "kafka" => Arc::new(kafka::Kafka::new(job)?),
        "amqp" => Arc::new(amqp::Amqp::new(job)?),
        "pulsar" => Arc::new(pulsar::Pulsar::new(job)?),
        "nats" => Arc::new(nats::Nats::new(job)?),
        other => bail!("no driver `{other}`; did you mean `{}`?", nearest(NAMES.into_iter(), other)),
    })
}
