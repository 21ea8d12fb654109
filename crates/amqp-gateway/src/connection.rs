//! What the channels of a connection share: its place in the node, what was negotiated, what it publishes, who consumes, what is to be
//! sent, and what it waits for.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp_wire::{MethodId, basic};
use broker::{
    AclOperation, Broker, Caller, Cause, ChannelFlow, Connected, JobOwner, Outcome, OwnQueue, Permission, Queue,
    ReplyTo, Resource, Settlement, Staged, Vhost, Waits, Work,
};
use bytes::{Bytes, BytesMut};
use delivery::ConsumerId;
use hashbrown::HashMap;
use routing::{Name, QueueId, Scratch};
use types::{ConnectionId, ShardId};

use crate::access::Access;
use crate::channel::Channel;
use crate::consumer_memory::{Charge, Consumers};
use crate::error::Failure;
use crate::gateway::Gateway;
use crate::handlers;
use crate::outgoing::Outgoing;
use crate::publisher::Publisher;
use crate::quota::Quota;
use crate::unfinished::{Holder, Room, Unfinished};

/// Tokens of commands for the controller begin here; those of appends count up from 0.
pub(crate) const CONTROL_TOKENS: u64 = 1 << 62;
/// Under this token deliveries come.
pub(crate) const CONSUMER_TOKEN: u64 = 1 << 63;
/// What a command for the controller keeps in memory, times the bytes of the method: tables of many entries.
const METHOD_FACTOR: usize = 16;
/// A method for which there is no room at the controller is tried again after this time.
const CONTROL_AGAIN: Duration = Duration::from_millis(5);

/// What is done with a command's outcome.
pub(crate) type Then = Box<dyn FnOnce(&mut Connection, &mut Channel, Box<dyn Any + Send>) -> Result<(), Failure>>;

/// Who somebody says he is, and by which mechanism.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub mechanism: String,
    /// As the log shows it.
    pub name: String,
}

/// What must be there before the next frame is looked at.
pub(crate) enum Waiting {
    /// The outcome of a command that a channel gave.
    Channel { token: u64, channel: u16, method: MethodId, then: Then },
    /// The outcome of a command that the connection needs.
    Connection { token: u64, then: Box<dyn FnOnce(&mut Connection)> },
    /// Is somebody who he says?
    Login { token: u64, claim: Claim },
    /// The outcome of all publishes: what follows would look at the queues.
    Publishes,
    /// Dead letters for which channels wait: what follows ends them.
    Letters,
    /// The outcome of all publishes of a transaction; messages of the connection that were not kept before it.
    Commit { channel: u16, lost_before: u64 },
    /// What was asked for is tried again then: why it is not to be had now.
    Later(Instant, Cause),
}

/// Who consumes, or has asked for single messages.
pub(crate) struct Consumer {
    pub channel: u16,
    pub channel_id: u64,
    pub flow: Arc<ChannelFlow>,
    pub queue: Arc<Queue>,
    pub tag: Name,
    pub no_ack: bool,
    /// It gets nothing more; it stays as long as it has something.
    pub cancelled: bool,
    /// Messages that it has not settled.
    pub open: u64,
    /// Memory that it is counted with, unless it only asked for single messages.
    pub _charge: Option<Charge>,
}

/// What was negotiated.
pub(crate) struct Limits {
    /// Bytes of a frame.
    pub frame_max: u32,
    /// Channels.
    pub channel_max: u16,
}

/// What the client says it understands.
#[derive(Clone, Copy, Default)]
pub(crate) struct Understands {
    pub consumer_cancel_notify: bool,
    pub authentication_failure_close: bool,
    pub connection_blocked: bool,
}

/// What a client says of itself before the connection is open.
#[derive(Default)]
pub(crate) struct Introduction {
    /// A field table without its length.
    pub client_properties: Bytes,
    pub mechanism: String,
    pub heartbeat_s: u16,
}

/// A connection, without its channels.
pub(crate) struct Connection {
    pub gateway: Arc<Gateway>,
    pub shard: ShardId,
    pub id: ConnectionId,
    pub peer: SocketAddr,
    /// What those see who look on: once the connection is open.
    pub seen: Option<Arc<Connected>>,
    pub introduction: Introduction,
    pub vhost: Arc<Vhost>,
    pub user: String,
    /// Whose certificate the peer has shown, if that was verified.
    pub certified: Option<String>,
    pub access: Access,
    /// When the token expires by which the user is here.
    pub token_until: Option<Instant>,
    pub limits: Limits,
    pub understands: Understands,
    pub out: Outgoing,
    pub publisher: Publisher,
    /// Contents and transactions of all channels.
    pub unfinished: Unfinished,
    pub quota: Quota,
    /// Where its time goes.
    pub waits: Arc<Waits>,
    pub consumers: HashMap<ConsumerId, Consumer>,
    consumer_memory: Consumers,
    /// What its client has said of itself is counted.
    pub introduced: Option<Vec<Charge>>,
    settled: Vec<Settlement>,
    /// When it last did something of which messages may die: it published, or did more than to acknowledge.
    pub stirred: Option<Instant>,
    pub waiting: Option<Waiting>,
    /// Token of the poll of sockets that it waits for.
    socket_poll: Option<u64>,
    next_token: u64,
    /// Queues that go with the connection.
    pub owned: HashMap<QueueId, Arc<Queue>>,
    /// One more, which is being declared.
    pub declaring: Option<OwnQueue>,
    /// Channels with confirms to be told.
    pub to_tell: Vec<u16>,
    /// Memory for properties that are not sent as they are stored.
    pub properties: BytesMut,
    /// Memory for routing.
    pub scratch: Scratch,
    /// Routing took long.
    pub routed_long: bool,
    /// Others are to have their turn before the method that is being handled is gone on with.
    pub pauses: bool,
    pub routed: Vec<QueueId>,
    /// Bytes of the method that is being handled.
    pub method_bytes: usize,
    /// Milliseconds since 1970, as of this turn.
    pub now_ms: i64,
    pub now: Instant,
}

impl Connection {
    pub fn new(gateway: Arc<Gateway>, shard: ShardId, id: ConnectionId, peer: SocketAddr) -> Self {
        let vhost = gateway.broker.vhosts().get(broker::DEFAULT_VHOST).expect("it is always there");
        let waits = gateway.broker.waits().enter(id, peer, "amqp", Instant::now());
        let joined_bytes_max =
            gateway.broker.journals().iter().map(|journal| journal.item_bytes_max()).min().unwrap_or(usize::MAX);
        let (unfinished, consumer_memory) = (Unfinished::new(&gateway.unfinished), Consumers::new(&gateway.consumers));
        Self {
            gateway,
            shard,
            id,
            peer,
            seen: None,
            introduction: Introduction::default(),
            vhost,
            user: String::new(),
            certified: None,
            access: Access::default(),
            token_until: None,
            limits: Limits { frame_max: crate::handlers::FRAME_MAX_BEFORE, channel_max: 0 },
            understands: Understands::default(),
            out: Outgoing::default(),
            quota: Quota::default(),
            publisher: Publisher::with(Arc::clone(&waits), joined_bytes_max),
            unfinished,
            waits,
            consumers: HashMap::new(),
            consumer_memory,
            introduced: None,
            settled: Vec::new(),
            stirred: None,
            waiting: None,
            socket_poll: None,
            next_token: CONTROL_TOKENS,
            owned: HashMap::new(),
            declaring: None,
            to_tell: Vec::new(),
            properties: BytesMut::new(),
            scratch: Scratch::default(),
            routed_long: false,
            pauses: false,
            routed: Vec::new(),
            method_bytes: 0,
            now_ms: 0,
            now: Instant::now(),
        }
    }

    /// Frees memory that is only kept for what comes next.
    pub fn rest(&mut self) {
        self.out.rest();
        self.publisher.rest();
        (self.properties, self.scratch, self.routed) = (BytesMut::new(), Scratch::default(), Vec::new());
    }

    pub fn broker(&self) -> &Arc<Broker> {
        &self.gateway.broker
    }

    /// Who asks, for what is decided where it is carried out.
    ///
    /// # Errors
    /// *503*: nobody has logged in.
    pub fn caller(&self) -> Result<Caller, Failure> {
        let principal = self
            .access
            .principal()
            .ok_or_else(|| Failure::connection(amqp_wire::ReplyCode::CommandInvalid, "no login"))?;
        Ok(Caller { principal, connection: self.id })
    }

    /// # Errors
    /// *403*: the user may not.
    pub fn check(&mut self, permission: Permission, resource: Resource<'_>) -> Result<(), Failure> {
        self.access.check(self.gateway.broker.security(), permission, resource)
    }

    /// May the user ask what it is like? Any permission will do. Who has none is told, as by RabbitMQ, that he lacks configure.
    ///
    /// # Errors
    /// *403*: he may not.
    pub fn check_seen(&mut self, resource: Resource<'_>) -> Result<(), Failure> {
        let security = self.gateway.broker.security();
        if ![Permission::Read, Permission::Write]
            .into_iter()
            .any(|one| self.access.check_permission(security, one, resource).is_ok())
        {
            self.access.check_permission(security, Permission::Configure, resource)?;
        }
        self.access.check_acl(security, AclOperation::Describe, resource)
    }

    /// May the user take messages of the queue, as far as access control entries say so?
    ///
    /// # Errors
    /// *403*: not for its group.
    pub fn check_group_of(&mut self, queue: &Queue) -> Result<(), Failure> {
        if queue.is_stream() {
            Ok(())
        } else {
            self.access.check_group(self.gateway.broker.security(), queue.understood().group())
        }
    }

    /// Since when the oldest of what was published has waited, for its outcome or for its quota.
    pub fn open_since(&self) -> Option<Instant> {
        self.publisher.open_since().into_iter().chain(self.quota.held_since().filter(|_| self.publisher.holds())).min()
    }

    /// May so many bytes more be kept of what is not finished? False: not yet; the frame is looked at again.
    ///
    /// # Errors
    /// *311*.
    pub fn has_room(&mut self, bytes: usize) -> Result<bool, Failure> {
        match self.room(bytes, true) {
            Room::Yes => Ok(true),
            Room::Later(at) => {
                self.waiting = Some(Waiting::Later(at, Cause::Memory));
                Ok(false)
            }
            Room::No => Err(Failure::no_room()),
        }
    }

    /// The same for what cannot be looked at again.
    pub fn has_room_now(&mut self, bytes: usize) -> bool {
        self.room(bytes, false) == Room::Yes
    }

    fn room(&mut self, bytes: usize, may_wait: bool) -> Room {
        let (user, address) = (self.access.user(), self.peer.ip());
        let now = may_wait.then_some(self.now);
        self.unfinished.room(bytes, now, || Holder::of(user.map(|user| user.name()), address))
    }

    /// Memory for consumers that begin, `weight` bytes each.
    ///
    /// # Errors
    /// *406*: there is none.
    pub fn begin_consumers(&mut self, count: usize, weight: usize) -> Result<Vec<Charge>, Failure> {
        let (user, address) = (self.access.user(), self.peer.ip());
        let charges = self.consumer_memory.begin(count, weight, || Holder::of(user.map(|user| user.name()), address));
        charges.ok_or_else(|| Failure::precondition("consumers take as much memory as they may"))
    }

    /// Where replies with this token come.
    pub fn reply_to(&self, token: u64) -> ReplyTo {
        ReplyTo { shard: self.shard, connection: self.id, token }
    }

    /// Has the sockets of connections that may publish to a queue read; false: there is nothing to wait for.
    pub fn poll_sockets(&mut self, queue: &Arc<Queue>) -> bool {
        let token = self.take_token();
        let asked = self.gateway.broker.poll_sockets(queue, self.reply_to(token));
        self.socket_poll = asked.then_some(token);
        asked
    }

    /// Is this the reply to its poll of sockets? The get that waits for it is judged again.
    pub fn sockets_polled(&mut self, token: u64) -> bool {
        let is_its = self.socket_poll == Some(token);
        if is_its {
            self.socket_poll = None;
            // A get that has waited too long may wait for another reason by now, which is judged again too.
            if matches!(self.waiting, Some(Waiting::Later(..))) {
                self.waiting = None;
            }
        }
        is_its
    }

    pub fn take_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Whose turn it is when the controller does something for this connection.
    pub fn job_owner(&self) -> JobOwner {
        JobOwner::of(&self.user, Some(self.peer.ip()))
    }

    fn job_owner_for_method(&self) -> JobOwner {
        self.job_owner().holding(self.method_bytes * METHOD_FACTOR)
    }

    /// Has the controller do something for a channel, and goes on with `then` when it is done; no frame is looked at before.
    ///
    /// # Errors
    /// *506*: the broker ends, or too much waits for a basic.cancel.
    pub fn control<T: Send + 'static>(
        &mut self,
        channel: &Channel,
        method: MethodId,
        work: impl FnOnce(&Arc<Broker>) -> T + Send + 'static,
        then: impl FnOnce(&mut Self, &mut Channel, T) -> Result<(), Failure> + 'static,
    ) -> Result<(), Failure> {
        let token = self.take_token();
        let work = Box::new(move |broker: &Arc<Broker>| Box::new(work(broker)) as Box<dyn Any + Send>);
        if !self.gateway.broker.control(self.reply_to(token), self.job_owner_for_method(), work) {
            return self.control_later(method);
        }
        self.wait_for_channel(token, channel, method, then);
        Ok(())
    }

    /// There is no room for what its user wants of the controller: it has one such method at a time, which is looked at again. What was begun with
    /// basic.cancel cannot be begun again.
    fn control_later(&mut self, method: MethodId) -> Result<(), Failure> {
        if method == basic::Cancel::ID || !self.gateway.broker.takes_changes() {
            return Err(Failure::busy());
        }
        self.waiting = Some(Waiting::Later(self.now + CONTROL_AGAIN, Cause::Coordinator));
        Ok(())
    }

    /// As [`Connection::control`], for work that is written together with others'.
    ///
    /// # Errors
    /// *506*: the broker ends.
    pub fn control_staged<T: Send + 'static>(
        &mut self,
        channel: &Channel,
        method: MethodId,
        staged: Staged,
        then: impl FnOnce(&mut Self, &mut Channel, T) -> Result<(), Failure> + 'static,
    ) -> Result<(), Failure> {
        let token = self.take_token();
        if !self.gateway.broker.control_staged(self.reply_to(token), self.job_owner_for_method(), staged) {
            return self.control_later(method);
        }
        self.wait_for_channel(token, channel, method, then);
        Ok(())
    }

    /// No frame is looked at before the reply with this token is there.
    pub fn wait_for_channel<T: 'static>(
        &mut self,
        token: u64,
        channel: &Channel,
        method: MethodId,
        then: impl FnOnce(&mut Self, &mut Channel, T) -> Result<(), Failure> + 'static,
    ) {
        let then: Then = Box::new(move |connection, channel, outcome| match outcome.downcast() {
            Ok(outcome) => then(connection, channel, *outcome),
            Err(_) => Err(Failure::connection(
                amqp_wire::ReplyCode::InternalError,
                "a command had another outcome than it can have",
            )),
        });
        self.waiting = Some(Waiting::Channel { token, channel: channel.number, method, then });
    }

    /// Has the controller delete queues that went with their last consumer, or with the connection (`goes`), and goes on with `then`.
    pub fn delete_queues(&mut self, queues: Vec<Arc<Queue>>, goes: bool, then: impl FnOnce(&mut Self) + 'static) {
        if queues.is_empty() {
            return then(self);
        }
        let token = self.take_token();
        let to = self.reply_to(token);
        let again = queues.clone();
        if self.gateway.broker.control(to, self.job_owner(), deletion(queues, goes)) {
            self.waiting = Some(Waiting::Connection { token, then: Box::new(then) });
        } else {
            self.leave_to_controller(deletion(again, goes));
            then(self);
        }
    }

    /// What has to be done however busy the controller is: it is about queues that are there, each of which goes once.
    pub fn leave_to_controller(&self, work: Work) {
        self.gateway.broker.control_in_any_case(self.job_owner(), work);
    }

    /// What is to become of a message that a consumer has. Takes effect at [`Connection::flush`].
    pub fn settle(&mut self, consumer: ConsumerId, offset: u64, outcome: Outcome) {
        match self.settled.last_mut() {
            Some(run) if run.consumer == consumer && run.outcome == outcome && run.last + 1 == offset => {
                run.last = offset
            }
            _ => self.settled.push(Settlement { consumer, first: offset, last: offset, outcome }),
        }
    }

    /// Appends what was published, and says what is to become of messages. Not while the routing table is held.
    pub fn flush(&mut self) {
        if self.publisher.is_ripe() && !self.quota.holds_publishes() {
            let alone = self.gateway.is_alone(self.shard, self.id, self.now);
            while self.publisher.is_ripe() && !self.quota.holds_publishes() {
                let (bytes, debt) =
                    self.publisher.begin_turn(&self.gateway.broker, (self.shard, self.id), alone, self.now);
                self.take_published(bytes, debt);
            }
            self.stirred = Some(self.now);
        }
        self.flush_settled();
    }

    fn flush_settled(&mut self) {
        let mut settled = std::mem::take(&mut self.settled);
        if settled.is_empty() {
            return;
        }
        let place = |run: &Settlement| {
            self.consumers.get(&run.consumer).map(|consumer| (consumer.queue.id(), consumer.flow.id()))
        };
        if settled.len() > 1 {
            settled.sort_by_key(place);
        }
        for runs in settled.chunk_by(|one, next| place(one) == place(next)) {
            if let Some(consumer) = self.consumers.get(&runs[0].consumer) {
                self.gateway.broker.settle(&consumer.queue, &consumer.flow, runs);
            }
        }
        if settled.iter().any(|run| run.outcome != Outcome::Ack) {
            self.stirred = Some(self.now);
        }
        for run in &settled {
            let count = run.last - run.first + 1;
            self.gateway.metrics.settled.inc_by(count);
            if let Some(consumer) = self.consumers.get_mut(&run.consumer) {
                consumer.open = consumer.open.saturating_sub(count);
                if consumer.cancelled && consumer.open == 0 {
                    self.consumers.remove(&run.consumer);
                }
            }
        }
        settled.clear();
        self.settled = settled;
    }

    /// All consumers, also those that are cancelled and have messages, by channel.
    pub fn consumers_by_channel(&self) -> HashMap<u64, Vec<ConsumerId>> {
        let mut of: HashMap<u64, Vec<ConsumerId>> = HashMap::new();
        for (id, consumer) in &self.consumers {
            of.entry(consumer.channel_id).or_default().push(*id);
        }
        of
    }

    /// A channel ends: its consumers go, and what it has goes back. The queues that go with them.
    pub fn leave(&mut self, channel: &mut Channel) -> Vec<Arc<Queue>> {
        let consumers = self.consumers.iter().filter(|(_, consumer)| consumer.channel_id == channel.id);
        let consumers = consumers.map(|(id, _)| *id).collect();
        self.leave_with(channel, consumers)
    }

    /// The same of a channel that has these consumers.
    pub fn leave_with(&mut self, channel: &mut Channel, consumers: Vec<ConsumerId>) -> Vec<Arc<Queue>> {
        handlers::finish_commit_of(self, channel);
        handlers::finish_settling(self, channel);
        self.flush_of_ended();
        self.unfinished.sub(channel.drop_unfinished());
        // In the order in which it was delivered.
        let mut had: HashMap<QueueId, Vec<(ConsumerId, u64, u64)>> = HashMap::new();
        channel.unacked.take_all(|_, holder, offset| {
            let Some(consumer) = self.consumers.get(&holder) else { return };
            let runs = had.entry(consumer.queue.id()).or_default();
            match runs.last_mut() {
                Some((of, _, last)) if *of == holder && *last + 1 == offset => *last = offset,
                _ => runs.push((holder, offset, offset)),
            }
        });
        self.unsee_channel(channel);
        self.access.close_channel();
        let mut queues = HashMap::new();
        self.gateway.metrics.consumers.dec_by(channel.consumers.len() as i64);
        for Consumer { queue, flow, .. } in consumers.iter().filter_map(|id| self.consumers.remove(id)) {
            queues.insert((queue.id(), flow.id()), (queue, flow));
        }
        channel.consumers.clear();
        let mut abandoned = Vec::new();
        for ((id, _), (queue, flow)) in queues {
            let of_queue = had.get(&id).map_or(&[][..], Vec::as_slice);
            if self.gateway.broker.leave_channel(&queue, &flow, of_queue) {
                abandoned.push(queue);
            }
        }
        self.gateway.broker.channel_closed(&channel.flow);
        abandoned
    }
}

/// Deletes the queue that a connection which is gone was declaring. The controller gets to it when it is done with the declaration.
pub(crate) fn deletion_of_declared(declaring: OwnQueue) -> Work {
    Box::new(move |broker| {
        if let Some(queue) = declaring.get() {
            broker.delete_by_itself(queue, true);
        }
        Box::new(())
    })
}

/// Deletes queues that go by themselves. `goes`: the connection does, and takes what is its own.
pub(crate) fn deletion(queues: Vec<Arc<Queue>>, goes: bool) -> Work {
    Box::new(move |broker| {
        queues.iter().for_each(|queue| broker.delete_by_itself(queue, goes && queue.owner().is_some()));
        Box::new(())
    })
}
