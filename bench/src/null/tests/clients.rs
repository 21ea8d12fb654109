//! The client libraries that null brokers are for, each publishing messages of 1 KiB.

use std::collections::VecDeque;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Confirmation, Connection, ConnectionProperties};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};

const MESSAGE: [u8; 1024] = [b'm'; 1024];
/// Under way at a time, for libraries that set no such bound themselves.
const WINDOW: usize = 1000;
/// Handed to lapin at a time.
const TOGETHER: usize = 100;

/// Publishes that many messages to the address and returns how many were acknowledged.
pub type Publish = fn(SocketAddr, u64) -> u64;

pub const PUBLISH: [(&str, Publish); 4] =
    [("kafka", publish_kafka), ("amqp", publish_amqp), ("pulsar", publish_pulsar), ("nats", publish_nats)];

#[derive(Clone, Default)]
struct Acknowledged(Arc<AtomicU64>);

impl rdkafka::ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.0.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
    }
}

pub fn publish_kafka(address: SocketAddr, messages: u64) -> u64 {
    let acknowledged = Acknowledged::default();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address.to_string()).set("linger.ms", "1").set("batch.size", "131072");
    let producer: ThreadedProducer<Acknowledged> = config.create_with_context(acknowledged.clone()).unwrap();
    for _ in 0..messages {
        let mut record: BaseRecord<'_, (), [u8]> = BaseRecord::to("topic").payload(&MESSAGE);
        while let Err((_, refused)) = producer.send(record) {
            thread::sleep(Duration::from_millis(1));
            record = refused;
        }
    }
    producer.flush(Duration::from_secs(30)).unwrap();
    acknowledged.0.load(Ordering::Relaxed)
}

/// On a thread of its own, because clients take their runtime from where they are made.
pub fn in_client<T: Send>(publish: impl Future<Output = T> + Send) -> T {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(publish);
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Outcomes that are waited for, a bounded number at a time.
struct Window<F> {
    waiting: VecDeque<F>,
    good: u64,
}

impl<F: Future<Output = bool>> Window<F> {
    fn new() -> Self {
        Self { waiting: VecDeque::new(), good: 0 }
    }

    async fn add(&mut self, outcome: F) {
        if self.waiting.len() == WINDOW
            && let Some(first) = self.waiting.pop_front()
        {
            self.good += u64::from(first.await);
        }
        self.waiting.push_back(outcome);
    }

    async fn close(mut self) -> u64 {
        while let Some(first) = self.waiting.pop_front() {
            self.good += u64::from(first.await);
        }
        self.good
    }
}

pub fn publish_amqp(address: SocketAddr, messages: u64) -> u64 {
    in_client(async move {
        let uri = format!("amqp://{address}/%2f");
        let connection = Connection::connect(&uri, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let (declare, delete) = (QueueDeclareOptions::default(), QueueDeleteOptions::default());
        let queue = channel.queue_declare("queue".into(), declare, FieldTable::default()).await.unwrap();
        assert_eq!(queue.name().as_str(), "queue");
        let mut window = Window::new();
        let mut left = messages as usize;
        while left > 0 {
            let publish = |_| {
                let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
                channel.basic_publish("".into(), "queue".into(), options, &MESSAGE, properties)
            };
            // Publishing one at a time, every message would be written to the socket before the next is made.
            let together = left.min(TOGETHER);
            for confirm in join_all((0..together).map(publish)).await {
                window.add(confirm.unwrap().map(|outcome| matches!(outcome, Ok(Confirmation::Ack(None))))).await;
            }
            left -= together;
        }
        let confirmed = window.close().await;
        assert_eq!(channel.queue_delete("queue".into(), delete).await.unwrap(), 0);
        channel.close(200, "".into()).await.unwrap();
        connection.close(200, "".into()).await.unwrap();
        confirmed
    })
}

/// What a consumer gets of messages that another connection publishes.
pub async fn echo_amqp(address: SocketAddr, messages: u64) -> Vec<Vec<u8>> {
    let connect = || async move {
        let uri = format!("amqp://{address}/%2f");
        let connection = Connection::connect(&uri, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        (connection, channel)
    };
    let (consuming, deliveries) = connect().await;
    deliveries.basic_qos(100, BasicQosOptions::default()).await.unwrap();
    let consume =
        deliveries.basic_consume("queue".into(), "".into(), BasicConsumeOptions::default(), FieldTable::default());
    let mut consumer = consume.await.unwrap();
    let (publishing, channel) = connect().await;
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let publish = async {
        let mut confirms = Vec::new();
        for number in 0..messages {
            let body = format!("message {number}");
            let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
            let sent = channel.basic_publish("".into(), "queue".into(), options, body.as_bytes(), properties).await;
            confirms.push(sent.unwrap());
        }
        for confirm in confirms {
            assert!(matches!(confirm.await, Ok(Confirmation::Ack(None))));
        }
    };
    let receive = async {
        let mut seen = Vec::new();
        while (seen.len() as u64) < messages {
            let delivery = consumer.next().await.unwrap().unwrap();
            seen.push(delivery.data.clone());
            if seen.len() % 25 == 0 {
                deliveries.basic_ack(delivery.delivery_tag, BasicAckOptions { multiple: true }).await.unwrap();
            }
        }
        seen
    };
    let ((), seen) = tokio::join!(publish, receive);
    consuming.close(200, "".into()).await.unwrap();
    publishing.close(200, "".into()).await.unwrap();
    seen
}

pub fn publish_pulsar(address: SocketAddr, messages: u64) -> u64 {
    in_client(async move {
        let builder = pulsar::Pulsar::builder(format!("pulsar://{address}"), pulsar::TokioExecutor);
        let client = builder.with_outbound_channel_size(2 * WINDOW).build().await.unwrap();
        let mut producer = client.producer().with_topic("persistent://public/default/topic").build().await.unwrap();
        let mut window = Window::new();
        for _ in 0..messages {
            let receipt = producer.send_non_blocking(MESSAGE.to_vec()).await.unwrap();
            window.add(receipt.map(|outcome| outcome.is_ok())).await;
        }
        let acknowledged = window.close().await;
        producer.close().await.unwrap();
        acknowledged
    })
}

pub fn publish_nats(address: SocketAddr, messages: u64) -> u64 {
    in_client(async move {
        let client = async_nats::connect(address.to_string()).await.unwrap();
        let jetstream = async_nats::jetstream::new(client);
        jetstream.query_account().await.unwrap();
        let stream: async_nats::jetstream::stream::Config = "stream".into();
        let stream = jetstream.create_stream(stream).await.unwrap();
        assert_eq!(stream.cached_info().config.name, "stream");
        let mut window = Window::new();
        for _ in 0..messages {
            let acknowledgement = jetstream.publish("subject", MESSAGE.as_slice().into()).await.unwrap();
            window.add(acknowledgement.into_future().map(|outcome| outcome.is_ok())).await;
        }
        let acknowledged = window.close().await;
        jetstream.delete_stream("stream").await.unwrap();
        acknowledged
    })
}
