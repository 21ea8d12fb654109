//! One AMQP connection as a state machine: bytes and replies in, frames out.
//!
//! | phase | waits for | then |
//! |---|---|---|
//! | `Protocol` | the protocol header | connection.start, `Handshake` |
//! | `Handshake` | start-ok, tune-ok, open, within `handshake_timeout` | `Running` |
//! | `Running` | frames of channels | `Closing` after an error, `Ended` after connection.close |
//! | `Closing` | close-ok, at most 5 s; all else is read and forgotten | `Ended` |
//! | `Ended` | nothing | |
//!
//! Frames are taken in order. While a method waits ([`Waiting`]), no further frame is looked at, and nothing more is read. While publishes
//! find no room that is different: see [`pressure`].

mod content;
mod ending;
mod input;
pub(crate) mod pressure;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp_wire::{
    Encode, Frame, FrameKind, Method, MethodId, Parsed, ReplyCode, basic, channel, connection, parse_frame,
};
use broker::{Deliveries, Dismissed, Gone, LimitKind, Reply};
use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use types::{ConnectionId, ShardId};

use crate::channel::{Channel, Mode};
use crate::connection::{CONSUMER_TOKEN, CONTROL_TOKENS, Connection, Waiting, deletion};
use crate::error::{CloseReason, Closes, Failure};
use crate::gateway::Gateway;
use crate::handlers::{self, Handshake, Table};
use crate::heartbeat::{Due, Heartbeat};
use crate::reply::{self, Answer};
use ending::Leaving;
use pressure::{Pressure, Wait};

/// Who is told to go has his publishes confirmed before, unless they take longer.
const ANSWERS_MAX: Duration = Duration::from_secs(1);
/// Frames that came together are looked at for so long in one turn: one of a few bytes may go to ten thousand queues …
const TURN_TIME: Duration = Duration::from_millis(1);
/// … and the clock is asked once for so many.
const LOOKED_AT_TOGETHER: usize = 4;
/// Time for a client to answer connection.close.
const CLOSE_OK_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Protocol { until: Instant },
    Handshake { until: Instant, due: Handshake },
    Running,
    Closing { until: Instant },
    Ended,
}

/// A channel number in use.
enum Slot {
    Open(Box<Channel>),
    /// We have closed it: until the client agrees all it sends there is forgotten.
    Closing,
}

/// One connection.
pub struct Session {
    connection: Connection,
    local: SocketAddr,
    channels: HashMap<u16, Slot>,
    phase: Phase,
    pressure: Pressure,
    heartbeat: Option<Heartbeat>,
    /// Whole frames that were read and not looked at.
    input: Bytes,
    /// Others are to have their turn before the rest of it is looked at.
    pauses: bool,
    /// … and that is a commit, which has begun.
    commits: bool,
    /// Bytes that the caller had left over after the last call.
    left_over: usize,
    /// Consumers that a command which waits for its outcome has ended: RabbitMQ answers the command first.
    gone: Vec<Gone>,
    end: Option<CloseReason>,
    /// Why it is being closed.
    reason: String,
    /// It is to be closed, once what was asked is answered.
    leaving: Option<Leaving>,
    broken: bool,
}

impl Session {
    /// A fresh connection from `peer` to `local`.
    pub fn new(gateway: Arc<Gateway>, shard: ShardId, id: ConnectionId, local: SocketAddr, peer: SocketAddr) -> Self {
        gateway.metrics.connections.inc();
        let until = Instant::now() + gateway.handshake_max;
        Self {
            connection: Connection::new(gateway, shard, id, peer),
            local,
            channels: HashMap::new(),
            phase: Phase::Protocol { until },
            pressure: Pressure::default(),
            heartbeat: None,
            input: Bytes::new(),
            pauses: false,
            commits: false,
            left_over: 0,
            gone: Vec::new(),
            end: None,
            reason: String::new(),
            leaving: None,
            broken: false,
        }
    }

    /// The handshake of TLS has ended, before the first bytes. The peer has shown a certificate that was verified: its name.
    pub fn set_certified(&mut self, name: Option<String>, now: Instant) {
        self.phase = Phase::Protocol { until: now + self.connection.gateway.handshake_max };
        self.connection.certified = name;
    }

    /// Takes what was read: all whole frames, as long as it wants to read; the rest stays in `buffer`. Where frames take long it pauses
    /// ([`Session::pauses`]), and is to be called again.
    ///
    /// # Errors
    /// When the connection is to be closed, once what is to be sent has been.
    pub fn handle_bytes(&mut self, buffer: &mut BytesMut, now: Instant) -> Result<(), CloseReason> {
        self.connection.now = now;
        if buffer.len() != self.left_over
            && let Some(heartbeat) = &mut self.heartbeat
        {
            heartbeat.received(now);
        }
        self.connection.look_at_quota();
        let timed = self.connection.begin_timing();
        self.pauses = false;
        while self.end.is_none() && !self.pauses && self.wants_read() {
            if let Phase::Protocol { .. } = self.phase {
                if !self.take_protocol_header(buffer) {
                    break;
                }
            } else {
                if self.input.is_empty() {
                    self.take_frames(buffer);
                }
                if self.input.is_empty() {
                    break;
                }
                self.look_at_frames();
            }
        }
        self.connection.take_time(timed);
        self.left_over = buffer.len();
        match self.end.take() {
            None => Ok(()),
            Some(reason) => {
                self.phase = Phase::Ended;
                Err(reason)
            }
        }
    }

    /// Looks at frames as long as nothing waits.
    fn look_at_frames(&mut self) {
        let input = std::mem::take(&mut self.input);
        let vhost = Arc::clone(&self.connection.vhost);
        self.connection.now_ms = self.connection.broker().now_ms();
        let mut table = Table::new(&vhost);
        let (mut at, phase, began, mut looked_at) = (0, self.phase, Instant::now(), 0_usize);
        while at < input.len() && self.connection.waiting.is_none() && self.end.is_none() && self.phase == phase {
            if looked_at >= LOOKED_AT_TOGETHER {
                looked_at = 0;
                if began.elapsed() >= TURN_TIME {
                    self.pauses = true;
                    break;
                }
            }
            looked_at += 1;
            let Ok(Parsed::Frame(frame)) = parse_frame(&input[at..], u32::MAX) else { break };
            let channel = frame.channel;
            match self.handle_frame(frame, &input, at, &mut table) {
                Ok(taken) => at += taken,
                Err(failure) => {
                    at += frame.bytes();
                    table.release();
                    self.fail(channel, failure);
                }
            }
            if std::mem::take(&mut self.connection.routed_long) {
                looked_at = LOOKED_AT_TOGETHER;
            }
            self.commits = std::mem::take(&mut self.connection.pauses);
            if self.commits {
                self.pauses = true;
                break;
            }
        }
        table.release();
        if !matches!(self.connection.waiting, Some(Waiting::Later(..))) {
            self.connection.unfinished.wait_no_more();
        }
        self.connection.flush();
        self.charge();
        self.input = input.slice(at.min(input.len())..);
    }

    /// Looks at a frame at `at`; how many bytes to go on by: none to come back to it, more than one frame for a whole publish.
    fn handle_frame<'v>(
        &mut self,
        frame: Frame<'_>,
        input: &Bytes,
        at: usize,
        table: &mut Table<'v>,
    ) -> Result<usize, Failure> {
        let length = frame.bytes();
        match self.phase {
            Phase::Running => {}
            Phase::Handshake { due, .. } => {
                self.shake_hands(due, &frame);
                return Ok(length);
            }
            Phase::Closing { .. } => {
                self.await_close_ok(&frame);
                return Ok(length);
            }
            Phase::Protocol { .. } | Phase::Ended => return Ok(length),
        }
        if frame.kind == FrameKind::Heartbeat {
            return match (frame.channel, frame.payload) {
                (0, []) => Ok(length),
                (0, _) => Err(Failure::connection(ReplyCode::FrameError, "a heartbeat has no payload")),
                _ => Err(Failure::unexpected("a heartbeat is for the connection")),
            };
        }
        if frame.channel == 0 {
            table.release();
            return self.handle_connection_frame(&frame);
        }
        if self.is_put_aside(&frame, &input[at..at + length]) {
            return Ok(length);
        }
        match self.channels.get_mut(&frame.channel) {
            None => {
                table.release();
                self.open_channel(&frame).map(|()| length)
            }
            Some(Slot::Closing) => {
                self.forget_frame(&frame);
                Ok(length)
            }
            Some(Slot::Open(channel)) => match (&channel.content, frame.kind) {
                (None, FrameKind::Method) => self.handle_method(&frame, input, at, table),
                (None, _) => Err(Failure::unexpected("expected method frame, got non method frame instead")),
                (Some(_), _) => self.handle_content(&frame, table).map_err(|failure| failure.of(basic::Publish::ID)),
            },
        }
    }

    /// A method on a channel that is open.
    fn handle_method(
        &mut self,
        frame: &Frame<'_>,
        input: &Bytes,
        at: usize,
        table: &mut Table<'_>,
    ) -> Result<usize, Failure> {
        let length = frame.bytes();
        let method = decode(frame)?;
        if let Method::Basic(basic::Method::Publish(publish)) = &method {
            return self
                .handle_publish(frame, publish, &input[at + length..], table)
                .map_err(|failure| failure.of(basic::Publish::ID));
        }
        let Some(Slot::Open(channel)) = self.channels.get_mut(&frame.channel) else { return Ok(length) };
        let connection = &mut self.connection;
        if matches!(method, Method::Basic(basic::Method::Ack(_) | basic::Method::Nack(_) | basic::Method::Reject(_))) {
            handlers::handle(connection, channel, method)?;
            // What it says of many is gone on with in another turn.
            return Ok(if connection.pauses { 0 } else { length });
        }
        table.release();
        connection.flush();
        connection.method_bytes = length;
        match self.pressure.judge(connection, channel, &method) {
            Wait::No => {}
            Wait::Here => {
                connection.waiting = Some(Waiting::Publishes);
                return Ok(0);
            }
            Wait::Aside => {
                self.pressure.put_aside(&input[at..at + length], frame.channel);
                return Ok(length);
            }
        }
        if let Some(token) = handlers::await_letters(connection, channel, &method) {
            self.pressure.put_aside(&input[at..at + length], frame.channel);
            self.pressure.await_letters(frame.channel, token, connection.now);
            return Ok(length);
        }
        match method {
            Method::Channel(channel::Method::Open(_)) => {
                Err(Failure::connection(ReplyCode::ChannelError, "second 'channel.open' seen").of(method.id()))
            }
            Method::Channel(channel::Method::Close(_)) => {
                self.close_channel_as_asked(frame.channel);
                Ok(length)
            }
            _ => {
                handlers::check_sender(method.id()).map_err(|failure| failure.of(method.id()))?;
                handlers::handle(connection, channel, method)?;
                // A message that is not to be had yet, or a commit that is gone on with in another turn: the frame is looked at again.
                let again = matches!(connection.waiting, Some(Waiting::Later(..))) || connection.pauses;
                Ok(if again { 0 } else { length })
            }
        }
    }

    /// The client closes a channel.
    fn close_channel_as_asked(&mut self, number: u16) {
        if let Some(Slot::Open(mut channel)) = self.channels.remove(&number) {
            self.connection.gateway.metrics.channels.dec();
            self.tell(&mut channel);
            let abandoned = self.connection.leave(&mut channel);
            self.connection
                .delete_queues(abandoned, false, move |connection| connection.out.method(number, &channel::CloseOk {}));
        }
    }

    /// The first frame on a channel that is not open.
    fn open_channel(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        if frame.kind != FrameKind::Method {
            return Err(Failure::unexpected("expected method frame, got non method frame instead"));
        }
        let method = decode(frame)?;
        let refuse = |code, text: String| Err(Failure::connection(code, text).of(method.id()));
        let Method::Channel(channel::Method::Open(_)) = method else {
            return refuse(ReplyCode::ChannelError, "expected 'channel.open'".to_owned());
        };
        let max = self.connection.limits.channel_max;
        if self.channels.len() >= max.into() {
            // The only one that does not name the method.
            self.connection.broker().limits().note_refusal(LimitKind::ChannelsOfConnection);
            let text = format!("number of channels opened ({max}) has reached the negotiated channel_max ({max})");
            return Err(Failure::connection(ReplyCode::NotAllowed, text));
        }
        let connection = &mut self.connection;
        let gateway = Arc::clone(&connection.gateway);
        connection.access.open_channel(&gateway.broker).map_err(|failure| failure.of(method.id()))?;
        let (id, flow) = (gateway.next_channel(), connection.broker().new_channel(connection.reply_to(CONSUMER_TOKEN)));
        let opened = Channel::new(frame.channel, id, Arc::clone(&connection.vhost), flow);
        connection.gateway.metrics.channels.inc();
        connection.see_channel(&opened);
        connection.out.method(frame.channel, &channel::OpenOk {});
        self.channels.insert(frame.channel, Slot::Open(Box::new(opened)));
        Ok(())
    }

    /// A frame on a channel that we have closed.
    fn forget_frame(&mut self, frame: &Frame<'_>) {
        if frame.kind != FrameKind::Method {
            return;
        }
        match Method::decode(frame.payload) {
            Ok(Method::Channel(channel::Method::CloseOk(_))) => drop(self.channels.remove(&frame.channel)),
            Ok(Method::Channel(channel::Method::Close(_))) => {
                self.connection.out.method(frame.channel, &channel::CloseOk {})
            }
            _ => {}
        }
    }

    /// A frame of the connection itself, when it is open.
    fn handle_connection_frame(&mut self, frame: &Frame<'_>) -> Result<usize, Failure> {
        if frame.kind != FrameKind::Method {
            return Err(Failure::unexpected("content is for channels"));
        }
        let method = decode(frame)?;
        self.connection.flush();
        if handlers::looks_at_queues(&method) && !self.connection.publisher.is_idle() && !self.is_blocked() {
            self.connection.waiting = Some(Waiting::Publishes);
            return Ok(0);
        }
        if handlers::looks_at_queues(&method) && self.pressure.awaits_letters() {
            self.connection.waiting = Some(Waiting::Letters);
            return Ok(0);
        }
        match method {
            Method::Connection(connection::Method::Close(_)) => {
                self.connection.flush_unpaid();
                self.abandon_publishes();
                self.close_as_asked();
                Ok(frame.bytes())
            }
            Method::Connection(connection::Method::UpdateSecret(method)) => {
                handlers::update_secret(&mut self.connection, &method)?;
                Ok(frame.bytes())
            }
            _ => Err(Failure::connection(ReplyCode::ChannelError, "unexpected method in connection state running")
                .of(method.id())),
        }
    }

    /// The client closes the connection: what goes with it has gone when that is agreed.
    fn close_as_asked(&mut self) {
        let mut doomed = self.leave_all();
        doomed.extend(self.connection.owned.drain().map(|(_, queue)| queue));
        self.connection.delete_queues(doomed, true, |connection| connection.out.method(0, &connection::CloseOk {}));
        self.phase = Phase::Closing { until: self.connection.now + CLOSE_OK_MAX };
        self.reason.clear();
        self.end_when_agreed();
    }

    /// After connection.close of the client there is nothing to wait for but our own answer.
    fn end_when_agreed(&mut self) {
        let agreed =
            self.connection.waiting.is_none() && matches!(self.phase, Phase::Closing { .. }) && self.reason.is_empty();
        if agreed {
            self.end = Some(CloseReason::Client);
        }
    }

    /// All channels end.
    fn leave_all(&mut self) -> Vec<Arc<broker::Queue>> {
        let (mut abandoned, mut consumers) = (Vec::new(), self.connection.consumers_by_channel());
        for (_, slot) in self.channels.drain() {
            if let Slot::Open(mut channel) = slot {
                self.connection.gateway.metrics.channels.dec();
                let own = consumers.remove(&channel.id).unwrap_or_default();
                abandoned.extend(self.connection.leave_with(&mut channel, own));
            }
        }
        self.connection.access.leave();
        abandoned
    }

    fn shake_hands(&mut self, due: Handshake, frame: &Frame<'_>) {
        let Phase::Handshake { until, .. } = self.phase else { return };
        if frame.kind == FrameKind::Heartbeat {
            return;
        }
        let method = match Method::decode(frame.payload) {
            Ok(Method::Connection(method)) if frame.kind == FrameKind::Method && frame.channel == 0 => method,
            other if due == Handshake::Open => return self.close_connection(&handlers::not_open(frame, other)),
            other => {
                self.end = Some(CloseReason::Handshake(format!("{other:?} is not due")));
                return;
            }
        };
        if let connection::Method::Close(_) = method {
            self.connection.out.method(0, &connection::CloseOk {});
            self.end = Some(CloseReason::Client);
            return;
        }
        let step = handlers::handshake(&mut self.connection, due, &method, until);
        self.take_step(step, until);
    }

    fn take_step(&mut self, step: Result<Result<handlers::Step, Failure>, CloseReason>, until: Instant) {
        match step {
            Err(reason) => self.end = Some(reason),
            Ok(Err(failure)) => self.close_connection(&failure),
            Ok(Ok(handlers::Step::Wait)) => {}
            Ok(Ok(handlers::Step::Next(due))) => self.phase = Phase::Handshake { until, due },
            Ok(Ok(handlers::Step::Tuned { heartbeat_s })) => {
                self.heartbeat = Heartbeat::new(heartbeat_s, self.connection.now);
                self.phase = Phase::Handshake { until, due: Handshake::Open };
            }
            Ok(Ok(handlers::Step::Done)) => {
                self.connection.see(self.local);
                self.phase = Phase::Running;
            }
        }
    }

    fn await_close_ok(&mut self, frame: &Frame<'_>) {
        if frame.kind != FrameKind::Method || frame.channel != 0 {
            return;
        }
        match Method::decode(frame.payload) {
            Ok(Method::Connection(connection::Method::CloseOk(_))) => {
                self.end = Some(CloseReason::Error(std::mem::take(&mut self.reason)));
            }
            Ok(Method::Connection(connection::Method::Close(_))) => {
                self.connection.out.method(0, &connection::CloseOk {})
            }
            _ => {}
        }
    }

    /// A frame on `number` was wrong.
    fn fail(&mut self, number: u16, failure: Failure) {
        self.connection.flush();
        match (failure.closes, self.channels.get(&number)) {
            (Closes::Channel, Some(Slot::Open(_))) => {
                let Some(Slot::Open(mut channel)) = self.channels.insert(number, Slot::Closing) else { return };
                self.connection.gateway.metrics.channels.dec();
                self.connection.gateway.metrics.channel_errors.inc();
                self.pressure.forget(number);
                self.tell(&mut channel);
                let abandoned = self.connection.leave(&mut channel);
                self.connection.out.method(number, &failure.channel_close());
                self.connection.delete_queues(abandoned, false, |_| ());
            }
            _ => self.close_connection(&failure),
        }
    }

    /// Tells the client why the connection ends, and waits for it to agree.
    fn close_connection(&mut self, failure: &Failure) {
        self.connection.gateway.metrics.connection_errors.inc();
        let doomed = self.leave_all();
        self.abandon_publishes();
        self.connection.out.method(0, &failure.connection_close());
        self.reason.clone_from(&failure.text);
        self.phase = Phase::Closing { until: self.connection.now + CLOSE_OK_MAX };
        self.connection.waiting = None;
        if !doomed.is_empty() {
            self.connection.leave_to_controller(deletion(doomed, true));
        }
    }

    /// Writes what is to be told of a channel's publishes.
    fn tell(&mut self, channel: &mut Channel) {
        if let Mode::Confirm(confirms) = &mut channel.mode {
            let told = confirms.tell(channel.number, &mut self.connection.out);
            self.connection.gateway.metrics.confirmed.inc_by(told);
            channel.flow.notes().confirmed.add(told);
        }
    }

    /// Takes what the broker says: the outcome of a command or of an append, or messages for a consumer.
    pub fn handle_reply(&mut self, token: u64, reply: Reply, now: Instant) {
        self.connection.now = now;
        match reply {
            Reply::Failed => self.broken = true,
            Reply::Appended(results) => self.appended(token, &results),
            Reply::Done(said) if token >= CONSUMER_TOKEN => self.told(said),
            Reply::Done(_) if self.letters_are_there(token) || self.connection.sockets_polled(token) => {}
            Reply::Done(outcome) if token >= CONTROL_TOKENS => self.done(token, outcome),
            Reply::Done(_) => {}
        }
        if self.connection.waiting.is_none() {
            std::mem::take(&mut self.gone).into_iter().for_each(|gone| self.gone(gone));
        }
        self.look_at_pressure();
        self.end_when_agreed();
        self.try_leave();
    }

    fn done(&mut self, token: u64, outcome: Box<dyn std::any::Any + Send>) {
        match self.connection.waiting.take() {
            Some(Waiting::Channel { token: wanted, channel: number, method, then }) if wanted == token => {
                let Some(Slot::Open(channel)) = self.channels.get_mut(&number) else { return };
                if let Err(failure) = then(&mut self.connection, channel, outcome) {
                    self.fail(number, failure.of(method));
                }
                self.publishes_have_outcome();
            }
            Some(Waiting::Connection { token: wanted, then }) if wanted == token => then(&mut self.connection),
            Some(Waiting::Login { token: wanted, claim }) if wanted == token => {
                let Phase::Handshake { until, .. } = self.phase else { return };
                let outcome = outcome.downcast().map_or(Err(broker::Refused::Busy), |outcome| *outcome);
                let step = handlers::logged_in(&mut self.connection, claim, outcome);
                self.take_step(step.map(Ok), until);
            }
            other => self.connection.waiting = other,
        }
    }

    fn appended(&mut self, token: u64, results: &broker::append::AppendResults) {
        let (channels, to_tell) = (&mut self.channels, &mut self.connection.to_tell);
        let lost = self.connection.publisher.appended(token, results, |told| {
            if let Some(Slot::Open(channel)) = channels.get_mut(&told.wanted.channel)
                && channel.id == told.wanted.id
                && let Mode::Confirm(confirms) = &mut channel.mode
            {
                confirms.settle(told.wanted.first, told.wanted.last, told.kept);
                if to_tell.last() != Some(&told.wanted.channel) {
                    to_tell.push(told.wanted.channel);
                }
            }
        });
        self.connection.gateway.metrics.not_kept.inc_by(lost);
        self.connection.flush();
        self.publishes_have_outcome();
        if self.connection.publisher.has_stopped() {
            self.refuse_publishes();
        }
    }

    /// Ends what waits for publishes, if all have their outcome.
    fn publishes_have_outcome(&mut self) {
        if !self.connection.publisher.is_idle() {
            return;
        }
        match self.connection.waiting.take() {
            Some(Waiting::Publishes) => {}
            Some(Waiting::Commit { channel: number, lost_before }) => {
                let Some(Slot::Open(channel)) = self.channels.get_mut(&number) else { return };
                if let Err(failure) = handlers::finish_commit(&mut self.connection, channel, lost_before) {
                    self.fail(number, failure);
                }
            }
            other => self.connection.waiting = other,
        }
    }

    fn deliver(&mut self, deliveries: &Deliveries) {
        let Some(number) = self.connection.consumers.get(&deliveries.consumer).map(|consumer| consumer.channel) else {
            return;
        };
        if let Some(Slot::Open(channel)) = self.channels.get_mut(&number) {
            handlers::deliver(&mut self.connection, channel, deliveries);
        }
    }

    /// Another channel has answered one of this connection.
    fn answer(&mut self, answer: &Answer) {
        if let Some(Slot::Open(channel)) = self.channels.get_mut(&answer.channel) {
            reply::deliver(&mut self.connection, channel, answer);
        }
    }

    /// The user or the virtual host is deleted, or somebody wants the connection closed.
    fn dismissed(&mut self, dismissed: &Dismissed) {
        if self.phase == Phase::Running {
            self.leave(dismissed.reason.clone(), Some(self.connection.now + ANSWERS_MAX));
        }
    }

    /// The broker says something that was not asked for.
    fn told(&mut self, said: Box<dyn std::any::Any + Send>) {
        let said = match said.downcast::<Deliveries>() {
            Ok(deliveries) => return self.deliver(&deliveries),
            Err(other) => other,
        };
        if let Some(gone) = said.downcast_ref::<Gone>() {
            self.gone.push(*gone);
        } else if let Some(answer) = said.downcast_ref() {
            self.answer(answer);
        } else if let Some(dismissed) = said.downcast_ref() {
            self.dismissed(dismissed);
        } else if let Ok(read) = said.downcast() {
            self.connection.broker().stream_read(*read);
        }
    }

    fn gone(&mut self, gone: Gone) {
        let Some(number) = self.connection.consumers.get(&gone.consumer).map(|consumer| consumer.channel) else {
            return;
        };
        if let Some(Slot::Open(channel)) = self.channels.get_mut(&number)
            && let Err(failure) = handlers::gone(&mut self.connection, channel, gone)
        {
            self.fail(number, failure);
        }
    }

    /// Time has passed, or something may be there.
    pub fn handle_wake(&mut self, now: Instant) {
        self.connection.now = now;
        if matches!(self.connection.waiting, Some(Waiting::Later(at, _)) if now >= at) {
            self.connection.waiting = None;
        }
        let reads = self.wants_read();
        if let Some(heartbeat) = self.heartbeat.as_mut().filter(|_| !reads) {
            // Signs of life may have come, and nobody looked.
            heartbeat.received(now);
        }
        match self.heartbeat.as_mut().map_or(Due::Nothing, |heartbeat| heartbeat.look(now)) {
            Due::Nothing => {}
            Due::Beat if self.phase == Phase::Running => self.connection.out.heartbeat(),
            Due::Beat => {}
            Due::GiveUp => self.end = Some(CloseReason::Heartbeat),
        }
        self.connection.wake_quota();
        self.give_way();
        self.look_at_pressure();
        self.look_at_token(now);
        self.try_leave();
        match self.phase {
            Phase::Protocol { until } | Phase::Handshake { until, .. } if now >= until => {
                self.end = Some(CloseReason::HandshakeTimeout)
            }
            Phase::Closing { until } if now >= until => {
                self.end = Some(CloseReason::Error(std::mem::take(&mut self.reason)))
            }
            _ => {}
        }
    }

    /// The queue of a journal has room: what it refused is tried again.
    pub fn handle_space(&mut self) {
        let Connection { publisher, gateway, .. } = &mut self.connection;
        publisher.retry(&gateway.broker);
        self.connection.flush();
        self.look_at_pressure();
    }

    /// When [`Session::handle_wake`] is due without any event.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.end.is_some() || self.phase == Phase::Ended {
            return None;
        }
        let phase = match self.phase {
            Phase::Protocol { until } | Phase::Handshake { until, .. } | Phase::Closing { until } => Some(until),
            Phase::Running | Phase::Ended => None,
        };
        let later = match self.connection.waiting {
            Some(Waiting::Later(at, _)) => Some(at),
            _ => None,
        };
        let pressure = self.pressure.next(&self.connection);
        let quota = self.connection.quota.next(self.connection.now);
        let unfinished = self.connection.unfinished.next(self.connection.now);
        let token = self.connection.token_until.filter(|_| self.phase == Phase::Running);
        let leaving = self.leaving.as_ref().and_then(|leaving| leaving.until);
        [phase, later, pressure, quota, unfinished, token, leaving, self.heartbeat.as_ref().map(Heartbeat::next)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Who has logged in.
    pub fn user_name(&self) -> Option<&str> {
        self.connection.access.user().map(|user| user.name())
    }

    /// Has somebody logged in?
    pub fn is_known(&self) -> bool {
        !matches!(self.phase, Phase::Protocol { .. } | Phase::Handshake { .. })
    }

    /// Is the rest of what was read to be looked at once others had their turn?
    pub fn pauses(&self) -> bool {
        self.pauses
    }

    /// False: do not read from the socket now.
    pub fn wants_read(&self) -> bool {
        self.phase != Phase::Ended
            && (self.leaving.is_none() || self.commits || self.phase != Phase::Running)
            && self.connection.waiting.is_none()
            && self.pressure.has_room(&self.connection)
            && !self.connection.out.is_crowded()
            && !self.connection.quota.stops_reading()
    }

    /// Appends what can be sent; true when there was something.
    pub fn poll_transmit(&mut self, out: &mut VecDeque<Bytes>) -> bool {
        for number in std::mem::take(&mut self.connection.to_tell) {
            if let Some(Slot::Open(channel)) = self.channels.get_mut(&number)
                && let Mode::Confirm(confirms) = &mut channel.mode
            {
                let told = confirms.tell(number, &mut self.connection.out);
                self.connection.gateway.metrics.confirmed.inc_by(told);
                channel.flow.notes().confirmed.add(told);
            }
        }
        let Connection { out: outgoing, gateway, quota, now, .. } = &mut self.connection;
        let sent = outgoing.poll(out, |taken| quota.sent(&gateway.broker, taken, *now));
        if sent > 0 {
            gateway.metrics.sent_bytes.inc_by(sent as u64);
            self.connection.sent(sent);
            self.heartbeat.iter_mut().for_each(|heartbeat| heartbeat.sent(self.connection.now));
        }
        sent > 0
    }

    /// Does nothing that was asked wait for its answer?
    pub fn is_idle(&self) -> bool {
        let Connection { out, publisher, waiting, to_tell, .. } = &self.connection;
        let waits = waiting.is_some() || self.pressure.awaits_letters();
        out.is_empty() && publisher.is_idle() && !waits && to_tell.is_empty() && self.leaving.is_none()
    }

    /// Ends the connection: it met a defect of ours.
    pub fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Is the connection to be closed at once?
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

/// The method of a frame.
fn decode<'a>(frame: &Frame<'a>) -> Result<Method<'a>, Failure> {
    Method::decode(frame.payload).map_err(|error| {
        let failure = Failure::from(error);
        match *frame.payload {
            [a, b, c, d, ..] => {
                failure.of(MethodId { class: u16::from_be_bytes([a, b]), method: u16::from_be_bytes([c, d]) })
            }
            _ => failure,
        }
    })
}
