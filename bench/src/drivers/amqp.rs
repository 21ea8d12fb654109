//! AMQP 0-9-1 by lapin: speaks to RabbitMQ and to whatever else has that protocol.
//!
//! Options: `queue.type` is `classic` (default) or `quorum`; `replication` how many members a quorum queue begins with, 0 (default) = as
//! the broker sets;
//! `user`, `password` (guest) and `vhost` (`/`) open the connection; `tls` is `on` where it is protected, `tls.ca` a file of certificates that
//! are trusted besides the system's.
//!
//! A topic with a subscription is one durable queue, `TOPIC.SUBSCRIPTION`, whatever `partitionsPerTopic` says: spread
//! over eight queues RabbitMQ took 13,000 messages a second on two cores, with one 21,000. With one subscription and the default exchange
//! messages go straight to that queue; otherwise each topic has an exchange of its own, of the workload's type, or a fanout
//! one where several subscriptions leave the type open. `boundQueues` are further queues on that exchange which no message
//! of the run matches; on a fanout exchange they cannot help getting copies and keep the last 1,000.
//!
//! `persistent` is the delivery mode; `consumerAcks` chooses between acknowledgements of many deliveries at once and none;
//! `prefetch` bounds what is unacknowledged. Publishers are always in confirm mode, their messages are mandatory. AMQP has no
//! batches of messages, so `lingerMs` and `batchBytes`, which bound what a client may do, bound nothing here.
//!
//! Publishers of the same client share a connection, each on a channel of its own; a consuming client is a connection with
//! a channel for each of its consumers. After any error of a connection its publishers fail for good.

mod topology;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use anyhow::{Context, Result, bail, ensure};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::FieldTable;
use lapin::uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Confirmation, Connection, ConnectionProperties};
use tokio::sync::mpsc;

use self::topology::{Route, Topology};
use super::options::{check_options, choice, file, name_and_version, number};
use super::portion::{ByClient, Window, share, window_of};
use super::threads::{Crew, Stop, Threads};
use super::{Driver, Job, Offer, Place, Publisher, Seat, Subscriber};
use crate::outcome::{Outcomes, Ticket};
use crate::receipt::Receipts;
use crate::stamp::Lane;
use crate::workload::KeyDistributor;

/// Unconfirmed messages of a publisher, where the workload leaves them open. With 2,000 RabbitMQ takes as many messages a second and
/// holds each twelve times as long; and lapin looks through all of them at each confirm of several.
const WINDOW: usize = 200;
/// Messages that a consumer takes while it holds its intake.
const INTAKE_MESSAGES: u32 = 1024;

/// lapin for one run.
pub struct Amqp {
    job: Job,
    threads: Arc<Threads>,
    topology: Topology,
    uri: AMQPUri,
    /// Certificates that are trusted besides the system's, PEM.
    authorities: Option<String>,
    connections: ByClient<Connection>,
}

impl Amqp {
    /// Checks what the workload wants of this protocol.
    pub fn new(job: &Job) -> Result<Self> {
        check_options(job, &["queue.type", "replication", "user", "password", "vhost", "tls", "tls.ca"])?;
        let workload = &job.workload;
        ensure!(workload.filter_subscriptions == 0, "filterSubscriptions: this protocol has no filter on the server");
        ensure!(
            workload.key_distributor == KeyDistributor::NoKey,
            "keyDistributor: routing keys choose queues here, so messages have no keys of their own"
        );
        ensure!(workload.prefetch <= u32::from(u16::MAX), "prefetch: at most {} in this protocol", u16::MAX);
        Ok(Self {
            threads: Threads::start("amqp")?,
            topology: Topology::new(
                job,
                choice(job, "queue.type", &["classic", "quorum"])?,
                number(job, "replication", 0)?,
            ),
            uri: uri_of(job)?,
            authorities: file(job, "tls.ca")?,
            connections: ByClient::new(job.publishing_clients()),
            job: job.clone(),
        })
    }

    async fn connect(&self) -> Result<Connection> {
        let properties = ConnectionProperties::default().with_connection_name("mainstem-bench".into());
        let config = OwnedTLSConfig { cert_chain: self.authorities.clone(), ..OwnedTLSConfig::default() };
        let runtime = lapin::runtime::default_runtime()?;
        Connection::connect_uri_with_config(self.uri.clone(), properties, config, runtime)
            .await
            .with_context(|| format!("no AMQP at {}", self.job.address))
    }

    /// Deliveries between two acknowledgements, and absent without any.
    fn acknowledge_every(&self) -> Option<u32> {
        self.job.workload.consumer_acks.then_some((self.job.workload.prefetch / 4).max(1))
    }

    async fn consumer(&self, connection: &Connection, queue: String) -> Result<(Channel, lapin::Consumer)> {
        let channel = connection.create_channel().await?;
        channel.basic_qos(self.job.workload.prefetch as u16, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions { no_ack: !self.job.workload.consumer_acks, ..Default::default() };
        let consumer = channel.basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default()).await;
        Ok((channel, consumer.with_context(|| format!("queue {queue}"))?))
    }
}

/// Where the broker is, and who logs in.
fn uri_of(job: &Job) -> Result<AMQPUri> {
    let option = |name: &str, otherwise: &str| job.options.get(name).map_or(otherwise, String::as_str).to_owned();
    let (host, port) = job.address.rsplit_once(':').with_context(|| format!("address {}: HOST:PORT", job.address))?;
    let port = port.parse().with_context(|| format!("address {}: HOST:PORT", job.address))?;
    let userinfo = AMQPUserInfo { username: option("user", "guest"), password: option("password", "guest") };
    Ok(AMQPUri {
        scheme: if choice(job, "tls", &["off", "on"])? == "on" { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority { userinfo, host: host.to_owned(), port },
        vhost: option("vhost", "/"),
        ..AMQPUri::default()
    })
}

impl Driver for Amqp {
    fn name(&self) -> String {
        name_and_version("lapin")
    }

    fn prepare(&self) -> Result<()> {
        let connection = self.threads.wait(self.connect())?;
        self.threads.wait_long(self.topology.create(&connection))
    }

    fn clear(&self) {
        if let Ok(connection) = self.threads.wait(self.connect()) {
            let _ = self.threads.wait_long(self.topology.delete(&connection));
        }
    }

    fn publisher(&self, seat: Seat, outcomes: &Arc<Outcomes>) -> Result<Box<dyn Publisher>> {
        let connection = self.connections.get(seat.client, || self.threads.wait(self.connect()))?;
        let channel = self.threads.wait(async {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        })?;
        let (taken, unsettled) = mpsc::unbounded_channel();
        let window = Window::new(window_of(&self.job, WINDOW));
        self.threads.spawn(settle(unsettled, outcomes.clone(), window.clone()));
        let way = Arc::new(Way { channel, route: self.topology.route(seat.topic) });
        Ok(Box::new(AmqpPublisher { way, taken, window, _connection: connection, _threads: self.threads.clone() }))
    }

    fn subscriber(&self, place: Place, receipts: &Arc<Receipts>) -> Result<Box<dyn Subscriber>> {
        let connection = Arc::new(self.threads.wait(self.connect())?);
        let crew = Crew::new(&self.threads);
        for (topic, _) in share(&self.job, place) {
            let queue = self.topology.queue(topic, place.subscription);
            let (channel, messages) = self.threads.wait(self.consumer(&connection, queue))?;
            let consumer = Consumer {
                channel,
                messages,
                acknowledge_every: self.acknowledge_every(),
                last_tag: 0,
                client: place.client,
                lane: Lane::default(),
                receipts: receipts.clone(),
            };
            let connection = connection.clone();
            crew.add(|stop| async move {
                consumer.run(stop).await;
                // The last one closes it.
                drop(connection);
            });
        }
        Ok(Box::new(crew))
    }
}

/// Where a publisher's messages go.
struct Way {
    channel: Channel,
    route: Route,
}

impl Way {
    async fn send(self: Arc<Self>, message: Vec<u8>, ticket: Ticket) -> (Ticket, lapin::Result<Confirmation>) {
        let Route { exchange, key, properties } = &self.route;
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let sent =
            self.channel.basic_publish(exchange.clone(), key.clone(), options, &message, properties.clone()).await;
        match sent {
            Ok(confirm) => (ticket, confirm.await),
            Err(error) => (ticket, Err(error)),
        }
    }
}

/// A message that lapin has, until it is confirmed.
type Unsettled = Pin<Box<dyn Future<Output = (Ticket, lapin::Result<Confirmation>)> + Send>>;

struct AmqpPublisher {
    way: Arc<Way>,
    taken: mpsc::UnboundedSender<Unsettled>,
    window: Arc<Window>,
    _connection: Arc<Connection>,
    _threads: Arc<Threads>,
}

impl Publisher for AmqpPublisher {
    fn offer(&mut self, _key: Option<&[u8]>, message: &[u8], ticket: Ticket) -> Result<Offer> {
        if self.window.is_full() {
            return Ok(Offer::Full);
        }
        let mut sending: Unsettled = Box::pin(self.way.clone().send(message.to_vec(), ticket));
        // The first poll hands the message to the thread that writes to the socket: no need to wait for another thread.
        let outcome = match sending.poll_unpin(&mut TaskContext::from_waker(Waker::noop())) {
            Poll::Ready((_, Err(error))) => return Err(error.into()),
            Poll::Ready(outcome) => Box::pin(async move { outcome }),
            Poll::Pending => sending,
        };
        self.window.enter();
        if self.taken.send(outcome).is_err() {
            self.window.leave(1);
            bail!("the driver has ended");
        }
        Ok(Offer::Taken)
    }
}

/// Reports what becomes of a publisher's messages, until there are none and there will be none.
async fn settle(mut taken: mpsc::UnboundedReceiver<Unsettled>, outcomes: Arc<Outcomes>, window: Arc<Window>) {
    let mut unsettled: FuturesUnordered<Unsettled> = FuturesUnordered::new();
    let mut ended = false;
    while !ended || !unsettled.is_empty() {
        tokio::select! {
            biased;
            Some((ticket, outcome)) = unsettled.next() => {
                window.leave(1);
                match outcome {
                    Ok(Confirmation::Ack(None)) => outcomes.acknowledged(ticket),
                    Ok(Confirmation::Ack(Some(message)) | Confirmation::Nack(Some(message))) => {
                        outcomes.failed(ticket, || format!("returned: {} {}", message.reply_code, message.reply_text));
                    }
                    Ok(Confirmation::Nack(None)) => outcomes.failed(ticket, || "the broker refused it".to_owned()),
                    Ok(Confirmation::NotRequested) => outcomes.failed(ticket, || "confirms are off".to_owned()),
                    Err(error) => outcomes.failed(ticket, || error.to_string()),
                }
            }
            next = taken.recv(), if !ended => match next {
                Some(message) => unsettled.push(message),
                None => ended = true,
            }
        }
    }
}

/// One consumer of one queue.
struct Consumer {
    channel: Channel,
    messages: lapin::Consumer,
    acknowledge_every: Option<u32>,
    last_tag: u64,
    client: usize,
    lane: Lane,
    receipts: Arc<Receipts>,
}

impl Consumer {
    async fn run(mut self, mut stop: Stop) {
        let reason = {
            let mut stop = pin!(stop.wait());
            loop {
                tokio::select! {
                    biased;
                    () = &mut stop => break None,
                    message = self.messages.next() => {
                        if let Some(reason) = self.take(message) {
                            break Some(reason);
                        }
                    }
                }
            }
        };
        match reason {
            Some(reason) => self.receipts.fail(reason),
            None => drop(self.channel.close(200, "OK".into()).await),
        }
    }

    /// Takes a message and all that are ready; what is wrong, if it cannot go on.
    fn take(&mut self, first: Option<lapin::Result<Delivery>>) -> Option<String> {
        let most = self.acknowledge_every.unwrap_or(INTAKE_MESSAGES).min(INTAKE_MESSAGES);
        let mut next = Some(first);
        let mut reason = None;
        let mut intake = self.receipts.intake(self.client);
        let mut taken = 0;
        while let Some(message) = next {
            match message {
                Some(Ok(delivery)) => {
                    intake.receive(&mut self.lane, &delivery.data);
                    self.last_tag = delivery.delivery_tag;
                }
                Some(Err(error)) => reason = Some(error.to_string()),
                None => reason = Some("the broker cancelled a consumer".to_owned()),
            }
            taken += 1;
            let is_last = reason.is_some() || taken >= most;
            next = if is_last { None } else { self.messages.next().now_or_never() };
        }
        drop(intake);
        reason.or_else(|| self.acknowledge())
    }

    /// Acknowledges when it is time to: after a share of the prefetch, or when nothing more is ready.
    fn acknowledge(&mut self) -> Option<String> {
        self.acknowledge_every?;
        // The first poll hands it to the thread that writes to the socket; there is no reply to wait for.
        let sent = self.channel.basic_ack(self.last_tag, BasicAckOptions { multiple: true }).now_or_never();
        sent.and_then(Result::err).map(|error| error.to_string())
    }
}
