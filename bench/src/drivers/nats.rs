//! NATS JetStream by async-nats.
//!
//! Options: `stream.storage` is `file` (default) or `memory`, `replication` the number of copies (1); `user` and `password` log in.
//!
//! A topic is a stream of the same name with one subject of the same name, whatever `partitionsPerTopic` says: JetStream has
//! no partitions. A subscription is a durable pull consumer of each stream, which its clients compete for. `prefetch` is
//! what each of them pulls at a time, less when that would be many megabytes, and what may be unacknowledged for each. With
//! `consumerAcks` a consumer with one reader acknowledges all up to the last message of what it found ready (`all`); with
//! several readers, where that would acknowledge what others have not read yet, each message (`explicit`). Without them the
//! policy is `none`.
//!
//! Every message names a subject of its publisher's as the place for the server's acknowledgement, so acknowledgements need
//! neither a future each nor the library's table of requests. Nothing makes batches: `lingerMs` and `batchBytes` bound
//! nothing here. Publishers of the same client share a connection. A connection that was lost stays lost: whatever is in
//! flight then fails, as does every later offer.

mod link;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config as StreamConfig, StorageType};
use async_nats::message::OutboundMessage;
use async_nats::{Client, ConnectOptions, Subject, Subscriber as Replies, jetstream};
use bytes::Bytes;
use futures_util::{FutureExt, Sink, StreamExt, TryStreamExt};
use tokio::sync::oneshot;

use self::link::{Link, LinkState, Slots};
use super::options::{check_no_exchanges, check_options, choice, name_and_version, number};
use super::portion::ByClient;
use super::portion::{share, window_of};
use super::threads::{Crew, Stop, Threads};
use super::{Driver, Job, Offer, Place, Publisher, Seat, Subscriber};
use crate::outcome::{Outcomes, Ticket};
use crate::receipt::Receipts;
use crate::stamp::Lane;
use crate::workload::KeyDistributor;

/// Unacknowledged messages of a publisher, where the workload leaves them open: as the Go library's default.
const WINDOW: usize = 4000;
/// Unacknowledged messages and bytes of all publishers of a stream, where the workload leaves them open. The server keeps
/// up to 100,000 and 128 MB for a stream's writer and refuses what goes beyond.
const STREAM_WINDOW: usize = 64_000;
const STREAM_WINDOW_BYTES: usize = 96 << 20;
/// Payload that all consumers of a connection pull at a time. The library asks for half as much again ahead of need, and
/// the server cuts off a client that it owes 64 MB.
const PULL_BYTES: usize = 32 << 20;
/// Messages and acknowledgements that the library queues for its connection's task.
const CLIENT_QUEUE: usize = 16 << 10;
/// Streams that are created or deleted at a time.
const STREAMS_AT_ONCE: usize = 16;
/// Messages that a consumer takes while it holds its intake.
const INTAKE_MESSAGES: usize = 1024;
/// The longest that a publisher's acknowledgements are waited for after it has ended.
const END_TIME: Duration = Duration::from_secs(10);

/// async-nats for one run.
pub struct Nats {
    job: Job,
    threads: Arc<Threads>,
    stream: StreamConfig,
    links: ByClient<Link>,
}

impl Nats {
    /// Checks what the workload wants of this protocol.
    pub fn new(job: &Job) -> Result<Self> {
        check_options(job, &["stream.storage", "replication", "user", "password"])?;
        check_no_exchanges(job)?;
        let workload = &job.workload;
        ensure!(
            workload.filter_subscriptions == 0,
            "filterSubscriptions: this protocol selects by subject, not by content"
        );
        ensure!(workload.key_distributor == KeyDistributor::NoKey, "keyDistributor: this protocol has no keys");
        let storage = match choice(job, "stream.storage", &["file", "memory"])? {
            "memory" => StorageType::Memory,
            _ => StorageType::File,
        };
        let num_replicas = number(job, "replication", 1)?;
        Ok(Self {
            threads: Threads::start("nats")?,
            stream: StreamConfig { storage, num_replicas, ..StreamConfig::default() },
            links: ByClient::new(job.publishing_clients()),
            job: job.clone(),
        })
    }

    async fn connect(&self) -> Result<Link> {
        let shared = LinkState::new();
        let heard = shared.clone();
        let options = ConnectOptions::new()
            .name("mainstem-bench")
            .client_capacity(CLIENT_QUEUE)
            .max_reconnects(1)
            .event_callback(move |event| {
                heard.hear(&event);
                async {}
            });
        let option = |name: &str| self.job.options.get(name).cloned();
        let options = match (option("user"), option("password")) {
            (Some(user), password) => options.user_and_password(user, password.unwrap_or_default()),
            (None, _) => options,
        };
        let client = options.connect(&self.job.address).await;
        Ok(Link { client: client.with_context(|| format!("no NATS at {}", self.job.address))?, shared })
    }

    fn topics(&self) -> impl Iterator<Item = String> {
        (0..self.job.workload.topics as usize).map(|topic| self.job.topic(topic))
    }

    fn readers(&self) -> i64 {
        i64::from(self.job.workload.consumer_per_subscription)
    }

    fn ack_policy(&self) -> AckPolicy {
        match (self.job.workload.consumer_acks, self.readers()) {
            (false, _) => AckPolicy::None,
            (true, 1) => AckPolicy::All,
            (true, _) => AckPolicy::Explicit,
        }
    }

    async fn create_topic(&self, context: &jetstream::Context, topic: String) -> Result<()> {
        // An old one may be there, with messages.
        let _ = context.delete_stream(&topic).await;
        let stream = StreamConfig { name: topic.clone(), subjects: vec![topic.clone()], ..self.stream.clone() };
        context.create_stream(stream).await.with_context(|| format!("stream {topic}"))?;
        for subscription in 0..self.job.workload.subscriptions_per_topic as usize {
            let ack_policy = self.ack_policy();
            let mut consumer = pull::Config {
                durable_name: Some(self.job.subscription(subscription)),
                deliver_policy: DeliverPolicy::All,
                ack_policy,
                num_replicas: self.stream.num_replicas,
                ..pull::Config::default()
            };
            if ack_policy != AckPolicy::None {
                consumer.max_ack_pending = i64::from(self.job.workload.prefetch) * self.readers();
            }
            let created = context.create_consumer_on_stream(consumer, &topic).await;
            created.with_context(|| format!("consumer {} of {topic}", self.job.subscription(subscription)))?;
        }
        Ok(())
    }

    /// Messages that each of a client's consumers pulls at a time.
    fn pull_size(&self, consumers: usize) -> usize {
        let workload = &self.job.workload;
        let fitting = PULL_BYTES / workload.message_size as usize / consumers.max(1);
        fitting.clamp(1, workload.prefetch as usize)
    }

    async fn messages(&self, link: &Link, topic: usize, subscription: usize, most: usize) -> Result<pull::Stream> {
        let (topic, name) = (self.job.topic(topic), self.job.subscription(subscription));
        let context = jetstream::new(link.client.clone());
        let consumer: jetstream::consumer::PullConsumer = context
            .get_consumer_from_stream(&name, &topic)
            .await
            .with_context(|| format!("consumer {name} of {topic}"))?;
        Ok(consumer.stream().max_messages_per_batch(most).messages().await?)
    }
}

impl Driver for Nats {
    fn name(&self) -> String {
        name_and_version("async-nats")
    }

    fn prepare(&self) -> Result<()> {
        let link = self.threads.wait(self.connect())?;
        self.threads.wait_long(async {
            let context = jetstream::new(link.client.clone());
            let creating = self.topics().map(|topic| Ok(self.create_topic(&context, topic)));
            futures_util::stream::iter(creating).try_buffer_unordered(STREAMS_AT_ONCE).try_collect().await
        })
    }

    fn clear(&self) {
        let Ok(link) = self.threads.wait(self.connect()) else { return };
        let _ = self.threads.wait_long(async {
            let context = jetstream::new(link.client.clone());
            let deleting = self.topics().map(|topic| context.delete_stream(topic));
            let deleted = futures_util::stream::iter(deleting).buffer_unordered(STREAMS_AT_ONCE);
            deleted.for_each(|_| std::future::ready(())).await;
            Ok(())
        });
    }

    fn publisher(&self, seat: Seat, outcomes: &Arc<Outcomes>) -> Result<Box<dyn Publisher>> {
        let link = self.links.get(seat.client, || self.threads.wait(self.connect()))?;
        let workload = &self.job.workload;
        let stream_window = STREAM_WINDOW.min(STREAM_WINDOW_BYTES / workload.message_size as usize);
        let size = (stream_window / workload.producers_per_topic as usize).clamp(1, WINDOW);
        let inbox = link.client.new_inbox();
        let slots = Arc::new(Slots::new(&inbox, window_of(&self.job, size), outcomes.clone()));
        link.shared.add(&slots)?;
        let replies = self.threads.wait(async { Ok(link.client.subscribe(format!("{inbox}.*")).await?) })?;
        let (alive, ended) = oneshot::channel();
        self.threads.spawn(settle(replies, ended, slots.clone(), link.clone()));
        Ok(Box::new(NatsPublisher {
            client: link.client.clone(),
            subject: self.job.topic(seat.topic).into(),
            slots,
            _alive: alive,
            _threads: self.threads.clone(),
        }))
    }

    fn subscriber(&self, place: Place, receipts: &Arc<Receipts>) -> Result<Box<dyn Subscriber>> {
        let link = Arc::new(self.threads.wait(self.connect())?);
        let crew = Crew::new(&self.threads);
        let pull_size = self.pull_size(share(&self.job, place).count());
        for (topic, _) in share(&self.job, place) {
            let consumer = Consumer {
                messages: self.threads.wait(self.messages(&link, topic, place.subscription, pull_size))?,
                link: link.clone(),
                ack_policy: self.ack_policy(),
                most: (self.job.workload.prefetch as usize / 4).clamp(1, INTAKE_MESSAGES),
                replies: Vec::new(),
                client: place.client,
                lane: Lane::default(),
                receipts: receipts.clone(),
            };
            crew.add(|stop| consumer.run(stop));
        }
        Ok(Box::new(crew))
    }
}

struct NatsPublisher {
    client: Client,
    subject: Subject,
    slots: Arc<Slots>,
    _alive: oneshot::Sender<()>,
    _threads: Arc<Threads>,
}

impl Publisher for NatsPublisher {
    fn offer(&mut self, _key: Option<&[u8]>, message: &[u8], ticket: Ticket) -> Result<Offer> {
        let mut client = Pin::new(&mut self.client);
        // Nobody is to be woken: a full queue is asked again with the next offer.
        if client.as_mut().poll_ready(&mut TaskContext::from_waker(Waker::noop()))?.is_pending() {
            return Ok(Offer::Full);
        }
        let Some(slot) = self.slots.take(ticket)? else { return Ok(Offer::Full) };
        let message = OutboundMessage {
            subject: self.subject.clone(),
            reply: Some(self.slots.replies[slot].clone()),
            payload: Bytes::copy_from_slice(message),
            headers: None,
        };
        match client.start_send(message) {
            Ok(()) => Ok(Offer::Taken),
            // Gone from its slot means that losing the connection has failed the message already.
            Err(error) => self.slots.give_back(slot).map_or(Ok(Offer::Taken), |_| Err(error.into())),
        }
    }
}

/// Reports what becomes of a publisher's messages, until there are none and there will be none.
async fn settle(mut replies: Replies, ended: oneshot::Receiver<()>, slots: Arc<Slots>, _link: Arc<Link>) {
    {
        let mut ended = pin!(ended);
        loop {
            tokio::select! {
                biased;
                reply = replies.next() => match reply {
                    Some(reply) => slots.settle(&reply),
                    None => return slots.lose("the connection was lost"),
                },
                _ = &mut ended => break,
            }
        }
    }
    let rest = async {
        while !slots.are_free() {
            match replies.next().await {
                Some(reply) => slots.settle(&reply),
                None => break,
            }
        }
    };
    let _ = tokio::time::timeout(END_TIME, rest).await;
    slots.lose("the publisher ended");
}

/// One reader of one durable consumer.
struct Consumer {
    messages: pull::Stream,
    link: Arc<Link>,
    ack_policy: AckPolicy,
    /// Messages between two acknowledgements at most.
    most: usize,
    /// Where those are acknowledged that were received and are not yet.
    replies: Vec<Subject>,
    client: usize,
    lane: Lane,
    receipts: Arc<Receipts>,
}

type Received = Option<Result<jetstream::Message, pull::MessagesError>>;

impl Consumer {
    async fn run(mut self, mut stop: Stop) {
        let mut lost = self.link.shared.lost.subscribe();
        let mut stop = pin!(stop.wait());
        let reason = loop {
            let received = tokio::select! {
                biased;
                () = &mut stop => return,
                lost = lost.wait_for(Option::is_some) => break lost.ok().and_then(|reason| reason.clone()),
                received = self.messages.next() => self.take(received),
            };
            let acknowledged = match received {
                Ok(()) => self.acknowledge().await,
                Err(error) => Err(error),
            };
            if let Err(error) = acknowledged {
                break Some(format!("{error:#}"));
            }
        };
        self.receipts.fail(reason.unwrap_or_else(|| "the connection was lost".to_owned()));
    }

    /// Takes a message and all that are ready.
    fn take(&mut self, first: Received) -> Result<()> {
        let mut next = Some(first);
        let mut intake = self.receipts.intake(self.client);
        let mut taken = 0;
        while let Some(received) = next {
            let message = received.context("the consumer's messages ended")??.message;
            intake.receive(&mut self.lane, &message.payload);
            taken += 1;
            if let Some(reply) = message.reply.filter(|_| self.ack_policy != AckPolicy::None) {
                if self.ack_policy == AckPolicy::All {
                    self.replies.clear();
                }
                self.replies.push(reply);
            }
            next = if taken < self.most { self.messages.next().now_or_never() } else { None };
        }
        Ok(())
    }

    async fn acknowledge(&mut self) -> Result<()> {
        for reply in self.replies.drain(..) {
            self.link.client.publish(reply, Bytes::new()).await?;
        }
        Ok(())
    }
}
