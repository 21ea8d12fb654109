//! Pulsar by the pulsar crate.
//!
//! Options: `admin` is the address of the broker's HTTP interface, `host:port`, which makes and deletes topics and
//! subscriptions; it must be given. `subscription.type` is `failover` (default; the consumers of a subscription divide its
//! partitions among themselves and acknowledge cumulatively) or `shared` (each of them reads every partition and
//! acknowledges each batch of a producer).
//!
//! A topic is `persistent://public/default/TOPIC`, partitioned when `partitionsPerTopic` is above 1. `prefetch` is what a
//! consumer lets the broker send ahead from one partition. `lingerMs` and `batchBytes` make batches, see `lanes`; a message
//! with a key goes to the partition of its key, others go batch by batch around the partitions.
//!
//! Publishers of the same client share a connection; a consuming client is a connection. When a connection is lost the
//! library tries for 30 s, the protocol's usual patience, to send again what was in flight; what it fails to send fails,
//! and with it every later offer.

mod admin;
mod lanes;

use std::mem::ManuallyDrop;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::FromRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use futures_util::{FutureExt, StreamExt};
use pulsar::consumer::{InitialPosition, Message};
use pulsar::message::proto::MessageIdData;
use pulsar::routing_policy::RoutingPolicy;
use pulsar::{
    ConnectionRetryOptions, ConsumerOptions, OperationRetryOptions, Producer, ProducerOptions, SubType, TokioExecutor,
};

use self::admin::Admin;
use self::lanes::{Batching, Fate, Queue, Waiting};
use super::options::{check_no_exchanges, check_options, choice, name_and_version, number};
use super::portion::{ByClient, Window};
use super::portion::{share, window_of};
use super::threads::{Crew, Stop, Threads};
use super::{Driver, Job, Offer, Place, Publisher, Seat, Subscriber};
use crate::outcome::{Outcomes, Ticket};
use crate::receipt::Receipts;
use crate::stamp::Lane;
use crate::workload::KeyDistributor;

/// Messages in flight of a publisher, where the workload leaves them open; fewer when they are large.
const WINDOW: usize = 64 << 10;
/// Batches that a publisher has on their way at least, if there are as many.
const LANES: usize = 8;
/// The largest batch: the broker takes messages of 5 MB.
const BATCH_BYTES_MAX: u32 = 5_000_000;
/// What the broker may take for one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Messages that a consumer takes while it holds its intake.
const INTAKE_MESSAGES: usize = 1024;

type Client = pulsar::Pulsar<TokioExecutor>;

/// The pulsar crate for one run.
pub struct Pulsar {
    job: Job,
    threads: Arc<Threads>,
    admin: Admin,
    is_shared: bool,
    clients: ByClient<Client>,
}

impl Pulsar {
    /// Checks what the workload wants of this protocol.
    pub fn new(job: &Job) -> Result<Self> {
        check_options(job, &["admin", "subscription.type", "replication"])?;
        let copies: u16 = number(job, "replication", 1)?;
        ensure!(
            copies <= 1,
            "replication: in Pulsar it is a policy of the namespace; set it there and let the target say 0"
        );
        check_no_exchanges(job)?;
        let workload = &job.workload;
        ensure!(workload.filter_subscriptions == 0, "filterSubscriptions: this driver has no filter on the server");
        ensure!(workload.batch_bytes <= BATCH_BYTES_MAX, "batchBytes: at most {BATCH_BYTES_MAX} in this protocol");
        let is_shared = choice(job, "subscription.type", &["failover", "shared"])? == "shared";
        ensure!(
            workload.consumer_acks || !is_shared,
            "consumerAcks: shared subscriptions need acknowledgements, or the broker stops sending"
        );
        let admin =
            job.options.get("admin").context("option `admin`, the address of Pulsar's HTTP interface, is missing")?;
        Ok(Self {
            threads: Threads::start("pulsar")?,
            admin: Admin::new(admin, job),
            is_shared,
            clients: ByClient::new(job.publishing_clients()),
            job: job.clone(),
        })
    }

    async fn connect(&self) -> Result<Client> {
        let retry_delay = Duration::from_millis(500);
        let connecting =
            ConnectionRetryOptions { max_retries: 3, max_backoff: retry_delay, ..ConnectionRetryOptions::default() };
        let asking = OperationRetryOptions { operation_timeout: PATIENCE, retry_delay, max_retries: Some(60) };
        let client = pulsar::Pulsar::builder(format!("pulsar://{}", self.job.address), TokioExecutor)
            .with_connection_retry_options(connecting)
            .with_operation_retry_options(asking)
            .build()
            .await;
        client.with_context(|| format!("no Pulsar at {}", self.job.address))
    }

    fn partitions(&self) -> usize {
        self.job.workload.partitions_per_topic as usize
    }

    fn partition(&self, topic: usize, partition: usize) -> String {
        let name = self.job.topic(topic);
        match self.partitions() {
            1 => format!("persistent://public/default/{name}"),
            _ => format!("persistent://public/default/{name}-partition-{partition}"),
        }
    }

    async fn lane(&self, client: &Client, topic: usize, partition: usize) -> Result<Producer<TokioExecutor>> {
        // Batches end when they are told to, and not by themselves.
        let options =
            ProducerOptions { batch_byte_size: Some(usize::MAX), block_queue_if_full: true, ..Default::default() };
        let name = self.partition(topic, partition);
        let made = client.producer().with_topic(&name).with_options(options).build().await;
        made.with_context(|| format!("producer of {name}"))
    }

    /// Partitions that a consumer of a topic reads.
    fn partitions_of(&self, consumer: usize) -> impl Iterator<Item = usize> + use<> {
        let consumers = self.job.workload.consumer_per_subscription as usize;
        let is_shared = self.is_shared;
        (0..self.partitions()).filter(move |partition| is_shared || partition % consumers == consumer)
    }

    async fn messages(&self, client: &Client, partition: &str, subscription: usize) -> Result<Messages> {
        let prefetch = self.job.workload.prefetch;
        let options = ConsumerOptions::default()
            .with_receiver_queue_size(prefetch)
            .with_initial_position(InitialPosition::Earliest);
        let made = client
            .consumer()
            .with_topic(partition)
            .with_subscription(self.job.subscription(subscription))
            .with_subscription_type(if self.is_shared { SubType::Shared } else { SubType::Failover })
            .with_batch_size(prefetch)
            .with_options(options)
            .build()
            .await;
        made.with_context(|| format!("consumer of {partition}"))
    }
}

impl Driver for Pulsar {
    fn name(&self) -> String {
        name_and_version("pulsar")
    }

    fn prepare(&self) -> Result<()> {
        self.admin.create_all()
    }

    fn clear(&self) {
        let _ = self.admin.delete_all();
    }

    fn publisher(&self, seat: Seat, outcomes: &Arc<Outcomes>) -> Result<Box<dyn Publisher>> {
        let client = self.clients.get(seat.client, || self.threads.wait(self.connect()))?;
        let workload = &self.job.workload;
        let batching = Batching {
            bytes: workload.batch_bytes as usize,
            linger: Duration::from_secs_f64(workload.linger_ms / 1000.0),
        };
        let fate = Fate::new(outcomes, Window::new(window_of(&self.job, WINDOW)));
        let is_keyed = workload.key_distributor != KeyDistributor::NoKey;
        let partitions = self.partitions();
        let queues = if is_keyed { partitions } else { 1 };
        let queues: Vec<Arc<Queue>> = (0..queues).map(|_| Queue::new(batching, &fate)).collect();
        let lanes = partitions * LANES.div_ceil(partitions);
        let lanes = (0..lanes).map(|lane| self.lane(&client, seat.topic, lane % partitions));
        let lanes = self.threads.wait_long(try_join_all(lanes))?;
        send_small_frames_at_once(&self.job.address);
        for (number, lane) in lanes.into_iter().enumerate() {
            self.threads.spawn(queues[number % partitions % queues.len()].clone().serve(lane));
        }
        Ok(Box::new(PulsarPublisher { queues, fate, _client: client, _threads: self.threads.clone() }))
    }

    fn subscriber(&self, place: Place, receipts: &Arc<Receipts>) -> Result<Box<dyn Subscriber>> {
        let client = Arc::new(self.threads.wait(self.connect())?);
        let crew = Crew::new(&self.threads);
        for (topic, consumer) in share(&self.job, place) {
            for partition in self.partitions_of(consumer) {
                let partition = self.partition(topic, partition);
                let consumer = Consumer {
                    messages: self.threads.wait(self.messages(&client, &partition, place.subscription))?,
                    partition,
                    acknowledges: self.job.workload.consumer_acks,
                    is_shared: self.is_shared,
                    most: (self.job.workload.prefetch as usize / 4).clamp(1, INTAKE_MESSAGES),
                    unacknowledged: Vec::new(),
                    client: place.client,
                    lane: Lane::default(),
                    receipts: receipts.clone(),
                    _connection: client.clone(),
                };
                crew.add(|stop| consumer.run(stop));
            }
        }
        send_small_frames_at_once(&self.job.address);
        Ok(Box::new(crew))
    }
}

/// Turns Nagle's algorithm off on all connections of this process to the broker. The library leaves it on and has no option
/// for it; at `lingerMs: 0` that alone nearly doubles the latency, because each batch waits for the last one's receipt.
fn send_small_frames_at_once(address: &str) {
    let brokers: Vec<SocketAddr> = address.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return };
    for file in files.flatten() {
        let Some(number) = file.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: nothing is read, written or closed. If the file is no socket any more, both calls fail.
        let socket = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(number) });
        if socket.peer_addr().is_ok_and(|peer| brokers.contains(&peer)) {
            let _ = socket.set_nodelay(true);
        }
    }
}

struct PulsarPublisher {
    /// One, or one for each partition when keys choose them.
    queues: Vec<Arc<Queue>>,
    fate: Arc<Fate>,
    _client: Arc<Client>,
    _threads: Arc<Threads>,
}

impl Publisher for PulsarPublisher {
    fn offer(&mut self, key: Option<&[u8]>, message: &[u8], ticket: Ticket) -> Result<Offer> {
        if let Some(reason) = self.fate.lost() {
            bail!(reason);
        }
        if self.fate.window.is_full() {
            return Ok(Offer::Full);
        }
        let key = key.map(str::from_utf8).transpose().context("keys are text in this protocol")?.map(str::to_owned);
        let queue = match &key {
            Some(key) => RoutingPolicy::compute_partition_index_for_key(key, self.queues.len()),
            None => 0,
        };
        self.fate.window.enter();
        if self.queues[queue].push(Waiting { message: message.to_vec(), key, ticket }) {
            return Ok(Offer::Taken);
        }
        self.fate.window.leave(1);
        bail!(self.fate.lost().unwrap_or_else(|| "the publisher has ended".to_owned()))
    }
}

impl Drop for PulsarPublisher {
    fn drop(&mut self) {
        self.fate.ended.store(true, Ordering::Release);
        self.queues.iter().for_each(|queue| queue.end());
    }
}

type Messages = pulsar::Consumer<Vec<u8>, TokioExecutor>;
type Received = Option<Result<Message<Vec<u8>>, pulsar::Error>>;

/// One consumer of one partition.
struct Consumer {
    messages: Messages,
    partition: String,
    acknowledges: bool,
    is_shared: bool,
    /// Messages between two acknowledgements at most.
    most: usize,
    /// Batches that were received to their end.
    unacknowledged: Vec<MessageIdData>,
    client: usize,
    lane: Lane,
    receipts: Arc<Receipts>,
    _connection: Arc<Client>,
}

impl Consumer {
    async fn run(mut self, mut stop: Stop) {
        let mut stop = pin!(stop.wait());
        loop {
            let received = tokio::select! {
                biased;
                () = &mut stop => return,
                received = self.messages.next() => self.take(received),
            };
            let acknowledged = match received {
                Ok(()) => self.acknowledge().await,
                Err(error) => Err(error),
            };
            if let Err(error) = acknowledged {
                return self.receipts.fail(format!("{error:#}"));
            }
        }
    }

    /// Takes a message and all that are ready.
    fn take(&mut self, first: Received) -> Result<()> {
        let mut next = Some(first);
        let mut intake = self.receipts.intake(self.client);
        let mut taken = 0;
        while let Some(received) = next {
            let message = received.context("the consumer's messages ended")??;
            intake.receive(&mut self.lane, &message.payload.data);
            taken += 1;
            let id = message.message_id.id;
            // The broker acknowledges batches as a whole.
            let in_batch = id.batch_index.zip(message.message_id.batch_size);
            if self.acknowledges && in_batch.is_none_or(|(index, size)| index + 1 == size) {
                if !self.is_shared {
                    self.unacknowledged.clear();
                }
                self.unacknowledged.push(id);
            }
            next = if taken < self.most { self.messages.next().now_or_never() } else { None };
        }
        Ok(())
    }

    async fn acknowledge(&mut self) -> Result<()> {
        for id in self.unacknowledged.drain(..) {
            if self.is_shared {
                self.messages.ack_with_id(&self.partition, id).await?;
            } else {
                self.messages.cumulative_ack_with_id(&self.partition, id).await?;
            }
        }
        Ok(())
    }
}
