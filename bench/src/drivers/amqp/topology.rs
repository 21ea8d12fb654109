//! Which queues and exchanges a run has, and where its messages go.

use anyhow::{Context, Result};
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Connection, ExchangeKind};

use crate::drivers::Job;
use crate::workload::ExchangeType;

/// Messages that a queue nobody reads keeps, where it gets copies.
const UNREAD_MESSAGES: i32 = 1000;
const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;
/// The header that the bindings of a headers exchange look at.
const HEADER: &str = "topic";

/// The queues and exchanges of a run.
pub struct Topology {
    job: Job,
    queue_type: String,
    /// Members that a quorum queue begins with; 0 = as the broker sets.
    members: i32,
    /// Absent with the default exchange.
    kind: Option<ExchangeKind>,
}

/// Where a topic's messages are published to, and with which properties.
pub struct Route {
    pub exchange: ShortString,
    pub key: ShortString,
    pub properties: BasicProperties,
}

/// A queue that is bound to a topic's exchange.
struct Bound {
    queue: String,
    /// The last word of its routing key, or its header.
    word: String,
    is_read: bool,
}

impl Topology {
    /// What the workload asks for.
    pub fn new(job: &Job, queue_type: &str, members: i32) -> Self {
        let kind = match job.workload.exchange_type {
            ExchangeType::Default if job.workload.subscriptions_per_topic <= 1 => None,
            ExchangeType::Default | ExchangeType::Fanout => Some(ExchangeKind::Fanout),
            ExchangeType::Direct => Some(ExchangeKind::Direct),
            ExchangeType::Topic => Some(ExchangeKind::Topic),
            ExchangeType::Headers => Some(ExchangeKind::Headers),
        };
        Self { job: job.clone(), queue_type: queue_type.to_owned(), members, kind }
    }

    /// The queue of a subscription.
    pub fn queue(&self, topic: usize, subscription: usize) -> String {
        format!("{}.{}", self.job.topic(topic), self.job.subscription(subscription))
    }

    /// Where messages of a topic go.
    pub fn route(&self, topic: usize) -> Route {
        let delivery_mode = if self.job.workload.persistent { PERSISTENT } else { TRANSIENT };
        let mut properties = BasicProperties::default().with_delivery_mode(delivery_mode);
        let name = self.job.topic(topic);
        let (exchange, key) = match &self.kind {
            None => (String::new(), self.queue(topic, 0)),
            Some(ExchangeKind::Topic) => (name.clone(), format!("{name}.read")),
            Some(ExchangeKind::Headers) => {
                properties = properties.with_headers(headers("read"));
                (name.clone(), String::new())
            }
            Some(_) => (name.clone(), "read".to_owned()),
        };
        Route { exchange: exchange.as_str().into(), key: key.as_str().into(), properties }
    }

    /// Creates everything anew.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn create(&self, connection: &Connection) -> Result<()> {
        self.delete(connection).await?;
        let channel = connection.create_channel().await?;
        for topic in 0..self.job.workload.topics as usize {
            let exchange = self.job.topic(topic);
            if let Some(kind) = &self.kind {
                let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
                let arguments = FieldTable::default();
                let declared =
                    channel.exchange_declare(exchange.as_str().into(), kind.clone(), options, arguments).await;
                declared.with_context(|| format!("exchange {exchange}"))?;
            }
            for bound in self.bound(topic) {
                self.create_queue(&channel, &exchange, &bound)
                    .await
                    .with_context(|| format!("queue {}", bound.queue))?;
            }
        }
        Ok(())
    }

    /// Deletes what is there.
    ///
    /// # Errors
    /// There is no connection any more.
    pub async fn delete(&self, connection: &Connection) -> Result<()> {
        let mut channel = connection.create_channel().await?;
        for topic in 0..self.job.workload.topics as usize {
            for bound in self.bound(topic) {
                let deleted = channel.queue_delete(bound.queue.as_str().into(), Default::default()).await;
                if deleted.is_err() {
                    // AMQP answers "not found" by closing the channel.
                    channel = connection.create_channel().await?;
                }
            }
            if self.kind.is_some() {
                let exchange = self.job.topic(topic);
                let deleted = channel.exchange_delete(exchange.as_str().into(), Default::default()).await;
                if deleted.is_err() {
                    channel = connection.create_channel().await?;
                }
            }
        }
        Ok(())
    }

    fn bound(&self, topic: usize) -> impl Iterator<Item = Bound> {
        let workload = &self.job.workload;
        let read = (0..workload.subscriptions_per_topic as usize).map(move |subscription| Bound {
            queue: self.queue(topic, subscription),
            word: "read".into(),
            is_read: true,
        });
        let unread = (0..workload.bound_queues).map(move |number| Bound {
            queue: format!("{}.unread{number}", self.job.topic(topic)),
            word: format!("unread{number}"),
            is_read: false,
        });
        read.chain(unread)
    }

    async fn create_queue(&self, channel: &Channel, exchange: &str, bound: &Bound) -> Result<()> {
        let queue: ShortString = bound.queue.as_str().into();
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(self.queue_type.as_str().into()));
        if self.queue_type == "quorum" && self.members > 0 {
            arguments.insert("x-quorum-initial-group-size".into(), AMQPValue::LongInt(self.members));
        }
        if !bound.is_read && self.kind == Some(ExchangeKind::Fanout) {
            arguments.insert("x-max-length".into(), AMQPValue::LongInt(UNREAD_MESSAGES));
        }
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(queue.clone(), options, arguments).await?;
        // The default exchange has every queue bound by its name.
        let Some(kind) = &self.kind else { return Ok(()) };
        let (key, arguments) = match kind {
            ExchangeKind::Topic => (format!("*.{}", bound.word), FieldTable::default()),
            ExchangeKind::Headers => {
                let mut arguments = headers(&bound.word);
                arguments.insert("x-match".into(), AMQPValue::LongString("all".into()));
                (String::new(), arguments)
            }
            _ => (bound.word.clone(), FieldTable::default()),
        };
        let options = QueueBindOptions::default();
        channel.queue_bind(queue, exchange.into(), key.as_str().into(), options, arguments).await?;
        Ok(())
    }
}

fn headers(word: &str) -> FieldTable {
    let mut headers = FieldTable::default();
    headers.insert(HEADER.into(), AMQPValue::LongString(word.into()));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn topology(exchange_type: ExchangeType, subscriptions_per_topic: u32) -> Topology {
        let workload = Workload { exchange_type, subscriptions_per_topic, bound_queues: 2, ..Workload::default() };
        Topology::new(&Job::plain("amqp", "", "run", workload), "classic", 0)
    }

    #[test]
    fn one_subscription_needs_no_exchange() {
        let topology = topology(ExchangeType::Default, 1);
        let route = topology.route(3);
        assert_eq!((route.exchange.as_str(), route.key.as_str()), ("", "run-00003.run-s0"));
        assert_eq!(topology.queue(3, 0), "run-00003.run-s0");
    }

    #[test]
    fn several_subscriptions_share_an_exchange() {
        assert_eq!(topology(ExchangeType::Default, 2).kind, Some(ExchangeKind::Fanout));
        let direct = topology(ExchangeType::Direct, 2);
        assert_eq!(direct.route(0).exchange.as_str(), "run-00000");
        let bound: Vec<Bound> = direct.bound(0).collect();
        let matching = bound.iter().filter(|bound| bound.word == direct.route(0).key.as_str());
        assert!(matching.map(|bound| bound.is_read).eq([true, true]));
        assert_eq!(bound.len(), 4);
    }
}
