//! Kafka by librdkafka: speaks to Kafka and to Mainstem.
//!
//! Options: `client.NAME` is any setting of librdkafka, SASL and TLS among them; `topic.NAME` any configuration of a topic; `replication` how
//! many copies topics have, 0 = as the broker sets; `filters` is `client`, or `server` where the
//! broker can select for a group. Producers of the same
//! client share one librdkafka producer and its threads; a consuming client is one group member that reads all topics.

mod filters;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, NoCustomPartitioner, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Statistics, util};

use super::options::{check_no_exchanges, check_options, choice, number};
use super::portion::ByClient;
use super::{Driver, Job, Offer, Place, Publisher, Seat, Subscriber};
use crate::outcome::{Outcomes, Ticket};
use crate::receipt::Receipts;
use crate::stamp::Lane;
use crate::wants::{Wants, class_name};
use crate::workload::KeyDistributor;

/// Topics that one CreateTopics or DeleteTopics names.
const TOPICS_AT_ONCE: usize = 200;
const ADMIN_TIME: Duration = Duration::from_secs(60);
/// Memory of one producer's queue.
const QUEUE_KBYTES: u32 = 64 << 10;
/// A consumer whose own queue was full asks again after this long. By default it rests for a second, and a quick broker
/// meets that at once: brokers and clients were idle for two thirds of the time.
const QUEUE_BACKOFF_MS: &str = "5";
/// The longest that a consumer may take to leave its group.
const LEAVE_TIME: Duration = Duration::from_secs(5);
/// How often consumers count what came over the network, where that is a figure.
const STATISTICS_MS: &str = "500";
/// Messages that a consumer takes while it holds its intake.
const INTAKE_MESSAGES: usize = 1024;

/// The broker chooses the number of copies.
const BROKERS_OWN: i32 = -1;

/// librdkafka for one run.
pub struct Kafka {
    job: Job,
    /// Of each topic.
    copies: i32,
    producers: ByClient<ThreadedProducer<Completions>>,
}

impl Kafka {
    /// Checks what the workload wants of this protocol.
    pub fn new(job: &Job) -> Result<Self> {
        check_options(job, &["client.", "topic.", "filters", "replication"])?;
        choice(job, "filters", &["client", "server"])?;
        check_no_exchanges(job)?;
        let copies: i32 = number(job, "replication", 1)?;
        let copies = if copies == 0 { BROKERS_OWN } else { copies };
        Ok(Self { job: job.clone(), copies, producers: ByClient::new(job.publishing_clients()) })
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.job.address).set("client.id", "mainstem-bench").set("log_level", "3");
        for (name, value) in self.prefixed("client.") {
            config.set(name, value);
        }
        config
    }

    fn prefixed(&self, prefix: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.job.options.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }

    fn producer_config(&self) -> ClientConfig {
        let workload = &self.job.workload;
        let message_bytes_max = workload.batch_bytes.max(workload.message_size).saturating_add(1024);
        let mut config = self.config();
        config
            .set("acks", "all")
            .set("linger.ms", workload.linger_ms.to_string())
            .set("batch.size", workload.batch_bytes.to_string())
            .set("batch.num.messages", (workload.batch_bytes / workload.message_size).clamp(1, 1_000_000).to_string())
            .set("message.max.bytes", message_bytes_max.to_string())
            .set("queue.buffering.max.messages", "1000000")
            .set("queue.buffering.max.kbytes", QUEUE_KBYTES.max(message_bytes_max / 512).to_string())
            .set("partitioner", self.partitioner());
        config
    }

    fn partitioner(&self) -> &'static str {
        match self.job.workload.key_distributor {
            // A class is no reason to be in one partition: batches have all of them.
            _ if !self.wants().are_whole() => "random",
            KeyDistributor::NoKey => "consistent_random",
            KeyDistributor::KeyRoundRobin | KeyDistributor::RandomNano => "murmur2_random",
        }
    }

    fn wants(&self) -> Wants {
        Wants::new(&self.job.workload)
    }

    fn selects_on_server(&self) -> bool {
        self.job.workload.filter_on_server && self.job.options.get("filters").is_some_and(|where_| where_ == "server")
    }

    /// Has the broker select for the groups that want a part only.
    fn set_filters(&self) -> Result<()> {
        let groups = 0..self.job.workload.subscriptions_per_topic as usize;
        let wanted = groups.filter_map(|group| Some((group, self.wants().wanted(group)?)));
        let filters: Vec<_> = wanted
            .map(|(group, class)| (self.job.subscription(group), format!("key = '{}'", class_name(class))))
            .collect();
        if filters.is_empty() { Ok(()) } else { filters::set(&self.job.address, &filters) }
    }

    fn administer<T>(
        &self,
        ask: impl FnOnce(AdminClient<DefaultClientContext>, AdminOptions) -> Result<T, KafkaError>,
    ) -> Result<T> {
        let client: AdminClient<DefaultClientContext> = self.config().create()?;
        let options = AdminOptions::new().operation_timeout(Some(ADMIN_TIME)).request_timeout(Some(ADMIN_TIME));
        Ok(ask(client, options)?)
    }

    fn topics(&self) -> Vec<String> {
        (0..self.job.workload.topics as usize).map(|topic| self.job.topic(topic)).collect()
    }
}

impl Driver for Kafka {
    fn name(&self) -> String {
        format!("rdkafka (librdkafka {})", util::get_rdkafka_version().1)
    }

    fn prepare(&self) -> Result<()> {
        let partitions = self.job.workload.partitions_per_topic as i32;
        for names in self.topics().chunks(TOPICS_AT_ONCE) {
            let results = self.administer(|client, options| {
                let topics: Vec<NewTopic> = names
                    .iter()
                    .map(|name| {
                        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(self.copies));
                        self.prefixed("topic.").fold(topic, |topic, (key, value)| topic.set(key, value))
                    })
                    .collect();
                client.create_topics(&topics, &options).wait_here()
            })?;
            for result in results {
                if let Err((topic, code)) = result {
                    ensure!(code == RDKafkaErrorCode::TopicAlreadyExists, "topic {topic} cannot be created: {code}");
                }
            }
        }
        if self.selects_on_server() { self.set_filters() } else { Ok(()) }
    }

    fn clear(&self) {
        for names in self.topics().chunks(TOPICS_AT_ONCE) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let _ = self.administer(|client, options| client.delete_topics(&names, &options).wait_here());
        }
    }

    fn publisher(&self, seat: Seat, outcomes: &Arc<Outcomes>) -> Result<Box<dyn Publisher>> {
        let producer = self.producers.get(seat.client, || {
            let context = Completions(outcomes.clone());
            self.producer_config().create_with_context(context).context("librdkafka refuses a setting")
        })?;
        Ok(Box::new(KafkaPublisher { producer, topic: self.job.topic(seat.topic) }))
    }

    fn subscriber(&self, place: Place, receipts: &Arc<Receipts>) -> Result<Box<dyn Subscriber>> {
        let mut config = self.config();
        config
            .set("group.id", self.job.subscription(place.subscription))
            .set("auto.offset.reset", "earliest")
            .set("fetch.message.max.bytes", self.job.workload.message_size.max(1 << 20).to_string())
            .set("queued.max.messages.kbytes", QUEUE_KBYTES.to_string())
            .set("fetch.queue.backoff.ms", QUEUE_BACKOFF_MS);
        let class = self.wants().wanted(place.subscription).map(class_name);
        if !self.wants().are_whole() {
            config.set("statistics.interval.ms", STATISTICS_MS);
        }
        let context = Counting { receipts: receipts.clone(), counted: AtomicU64::new(0) };
        let consumer: BaseConsumer<Counting> =
            config.create_with_context(context).context("librdkafka refuses a setting")?;
        let topics = &self.topics()[..self.wants().topics(place.subscription)];
        consumer.subscribe(&topics.iter().map(String::as_str).collect::<Vec<_>>())?;
        let ended = Arc::new(AtomicBool::new(false));
        let (stop, receipts) = (ended.clone(), receipts.clone());
        let thread = std::thread::Builder::new()
            .name(format!("consume-{}-{}", place.subscription, place.client))
            .spawn(move || consume(&consumer, place, class.as_deref(), &receipts, &stop))?;
        Ok(Box::new(KafkaSubscriber { ended, thread: Some(thread) }))
    }
}

/// Delivery reports of one librdkafka producer, on its polling thread.
struct Completions(Arc<Outcomes>);

impl ClientContext for Completions {}

impl ProducerContext<NoCustomPartitioner> for Completions {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let ticket = Ticket(opaque as u64);
        match result {
            Ok(_) => self.0.acknowledged(ticket),
            Err((error, _)) => self.0.failed(ticket, || error.to_string()),
        }
    }
}

struct KafkaPublisher {
    producer: Arc<ThreadedProducer<Completions>>,
    topic: String,
}

impl Publisher for KafkaPublisher {
    fn offer(&mut self, key: Option<&[u8]>, message: &[u8], ticket: Ticket) -> Result<Offer> {
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&self.topic, ticket.0 as usize).payload(message);
        record.key = key;
        match self.producer.send(record) {
            Ok(()) => Ok(Offer::Taken),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Ok(Offer::Full),
            Err((error, _)) => Err(error.into()),
        }
    }
}

struct KafkaSubscriber {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Subscriber for KafkaSubscriber {}

impl Drop for KafkaSubscriber {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        let began = Instant::now();
        while !thread.is_finished() {
            // Leaving the group of a broker that has gone, librdkafka waits without end: it is left behind then.
            if began.elapsed() > LEAVE_TIME {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = thread.join();
    }
}

/// Counts what a consumer takes from the network.
struct Counting {
    receipts: Arc<Receipts>,
    counted: AtomicU64,
}

impl ClientContext for Counting {
    fn stats(&self, statistics: Statistics) {
        let bytes = statistics.rx_bytes.max(0) as u64;
        let before = self.counted.swap(bytes, Ordering::Relaxed);
        self.receipts.came(bytes.saturating_sub(before));
    }
}

impl ConsumerContext for Counting {}

/// Takes messages; of `class` only where there is one: the broker may have sent others.
fn consume(
    consumer: &BaseConsumer<Counting>,
    place: Place,
    class: Option<&str>,
    receipts: &Receipts,
    ended: &AtomicBool,
) {
    let mut lanes: HashMap<(u32, i32), Lane> = HashMap::new();
    while !ended.load(Ordering::Relaxed) {
        let Some(first) = consumer.poll(Duration::from_millis(100)) else { continue };
        let mut next = Some(first);
        let mut intake = receipts.intake(place.client);
        let mut taken = 0;
        while let Some(message) = next.take() {
            match message {
                Ok(message) if class.is_some_and(|class| message.key() != Some(class.as_bytes())) => {}
                Ok(message) => {
                    let lane = lanes.entry((topic_number(message.topic()), message.partition())).or_default();
                    intake.receive(lane, message.payload().unwrap_or_default());
                }
                Err(KafkaError::MessageConsumptionFatal(error)) => return receipts.fail(error.to_string()),
                // Everything else librdkafka tries again by itself.
                Err(_) => {}
            }
            taken += 1;
            if taken < INTAKE_MESSAGES {
                next = consumer.poll(Duration::ZERO);
            }
        }
    }
}

/// The number at the end of a topic's name.
fn topic_number(name: &str) -> u32 {
    name.bytes()
        .rev()
        .take_while(u8::is_ascii_digit)
        .zip(0..9)
        .map(|(digit, place)| u32::from(digit - b'0') * 10_u32.pow(place))
        .sum()
}

/// Waits for a future of librdkafka, which completes on threads of its own.
trait WaitHere: Future + Sized {
    fn wait_here(self) -> Self::Output {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers").block_on(self)
    }
}

impl<F: Future> WaitHere for F {}
