//! One Kafka connection as a state machine: frames and replies in, response pieces out. Requests are executed as
//! they come, answers leave in the order of the requests.

mod context;
mod long;
mod many_items;
mod oauth_bearer;
mod sasl;
mod turns;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::append::Append;
use broker::{
    ANONYMOUS_NAME, AuditLine, Cause, Causes, ClientConnection, Limit, QuotaKey, Reply, ReplyTo, Throttle, Waits,
    Watches,
};
use bytes::Bytes;
use kafka_wire::{ApiKey, DecodeError, Reader, RequestHeader};
use types::{ConnectionId, ShardId};

use crate::access::Access;
use crate::body::{Body, Silence, frame};
use crate::gateway::{Advertise, Gateway};
use crate::group_of::Spoken;
use crate::handlers::{self, Outcome, Wait};
use crate::pinned::Held;
pub(crate) use context::{Context, PARTS_MAX};
use many_items::{FREE_ITEMS, Given, Parked, has_many, is_many, owned};
use sasl::Sasl;

pub(crate) use long::Turns;
pub use many_items::RequestRoom;
pub use sasl::{SaslMechanism, SaslRules};

/// Requests of one connection that may wait for their answers; more are not read.
const PENDING_MAX: usize = 64;
/// The number of the API that produces, and of those that are answered with records.
const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const SHARE_FETCH: i16 = 78;
/// Bytes of requests that may wait for their answers.
const PENDING_BYTES_MAX: usize = 16 << 20;
/// Bytes of a client's id that a connection keeps, for those who look on.
const CLIENT_ID_KEPT: usize = 256;
/// Bytes of answers that may wait for the one of a request before theirs.
const READY_BYTES_MAX: usize = 64 << 10;

/// What the sessions of a shard share.
#[derive(Default)]
pub struct ShardContext {
    /// Who waits for which log.
    pub watches: Watches,
    /// The connection whose request came last, and when the last one of another came.
    last: Option<(ConnectionId, Instant)>,
    last_of_others: Option<Instant>,
}

/// A connection is alone on its shard when no other has sent a request for this long.
const ALONE_AFTER: Duration = Duration::from_millis(1);

impl ShardContext {
    /// Notes a request of `connection`; true when nobody else is being served.
    fn is_alone(&mut self, connection: ConnectionId, now: Instant) -> bool {
        if let Some((last, at)) = self.last.replace((connection, now))
            && last != connection
        {
            self.last_of_others = Some(at);
        }
        self.last_of_others.is_none_or(|at| now.saturating_duration_since(at) >= ALONE_AFTER)
    }
}

/// Why a connection is to be closed.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// The frame makes no sense.
    #[error("malformed request: {0}")]
    Malformed(#[from] DecodeError),
    /// Refused, and the client wants no answers.
    #[error("a request without acknowledgement failed with {0}")]
    Unanswered(&'static str),
    /// An API that is not served.
    #[error("api key {0} is not served")]
    UnknownApi(i16),
    /// A version that is not served.
    #[error("{name} version {version} is not served, only {first} to {last}")]
    UnsupportedVersion {
        /// The API's name.
        name: &'static str,
        /// As asked.
        version: i16,
        /// First served.
        first: i16,
        /// Last served.
        last: i16,
    },
    /// Longer than allowed.
    #[error("request of {bytes} bytes, at most {max} are allowed")]
    Oversized {
        /// As announced.
        bytes: i64,
        /// The limit.
        max: usize,
    },
    /// Before it is known who it is.
    #[error("a request of API {0} while it was not known who sends it")]
    Unexpected(i16),
    /// Nobody said who he is.
    #[error("no login in time")]
    Late,
    /// Somebody is not let in.
    #[error("login of {name:?} by {mechanism} refused: {reason}")]
    Login {
        /// As claimed.
        name: String,
        /// As chosen.
        mechanism: &'static str,
        /// Why.
        reason: String,
    },
    /// `connections.max.reauth.ms` is over, or the token has expired.
    #[error("the session is over and was not renewed")]
    SessionOver,
    /// What was asked for takes more bytes than the length of an answer can say.
    #[error("the answer to {0} would be longer than the protocol can say")]
    AnswerTooLong(&'static str),
    /// By an administrator.
    #[error("{0}")]
    Dismissed(String),
}

/// A request whose answer is not sent yet.
struct Slot {
    api: &'static ApiKey,
    version: i16,
    correlation_id: i32,
    started: Instant,
    bytes: usize,
    state: SlotState,
    /// What is reserved for its items.
    room: Option<Arc<dyn RequestRoom>>,
}

enum SlotState {
    Ready(Vec<Bytes>),
    Waiting(Box<dyn Wait>),
}

/// A request that is to be handled.
struct Request<'a> {
    header: &'a RequestHeader,
    /// At its body.
    reader: &'a mut Reader,
    length: usize,
    /// What is reserved for its items, if there are many.
    given: Option<Given>,
}

impl SlotState {
    /// Bytes of the answer.
    fn bytes(&self) -> usize {
        match self {
            Self::Ready(pieces) => pieces.iter().map(Bytes::len).sum(),
            Self::Waiting(_) => 0,
        }
    }
}

/// Is it answered with records?
fn is_fetch(slot: &Slot) -> bool {
    matches!(slot.api.key, FETCH | SHARE_FETCH)
}

/// What a request that waits is told.
enum News {
    /// An answer, to a part of it.
    Reply(u64, Reply),
    /// What it waits for may be there.
    Change,
    /// It has another turn.
    Turn,
    /// The node stops.
    End,
}

/// One connection.
pub struct Session {
    gateway: Arc<Gateway>,
    advertise: Arc<Advertise>,
    shard: ShardId,
    connection: ConnectionId,
    local: SocketAddr,
    peer: SocketAddr,
    slots: VecDeque<Slot>,
    /// Number of the first slot.
    first: u64,
    pending_bytes: usize,
    /// A request of many items, for which there is no memory yet.
    parked: Option<Box<Parked>>,
    /// When it is looked whether others want what is reserved for requests that wait.
    room_looked_at: Option<Instant>,
    /// Of answers in slots.
    ready_bytes: usize,
    refused: VecDeque<(usize, Append)>,
    spoken: Box<Spoken>,
    access: Access,
    certified: Option<Box<str>>,
    throttle: Throttle,
    waits: Arc<Waits>,
    /// What the client was said to be called, and whether it had logged in.
    introduced: (Box<str>, bool),
    broken: bool,
    /// A request goes on in another turn.
    goes_on: bool,
    /// `None`: the listener asks nobody who he is.
    sasl: Option<Box<Sasl>>,
    /// The connection is to end, from then on.
    refusal: Option<(CloseReason, Instant)>,
    /// For those who look on.
    seen: Arc<ClientConnection>,
}

impl Session {
    /// A fresh connection from `peer` to `local`.
    pub fn new(
        gateway: Arc<Gateway>,
        advertise: Arc<Advertise>,
        shard: ShardId,
        connection: ConnectionId,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Self {
        gateway.metrics.connections.inc();
        let (slots, refused) = (VecDeque::new(), VecDeque::new());
        let access = Access::new(gateway.broker.security());
        let waits = gateway.broker.waits().enter(connection, peer, "kafka", Instant::now());
        let mut spoken = Box::new(Spoken::default());
        spoken.waits = Some(Arc::clone(&waits));
        let dismissal = ReplyTo { shard, connection, token: sasl::DISMISSAL };
        let seen = gateway.broker.kafka_connections().enter(local, peer, gateway.broker.now_ms(), dismissal);
        Self {
            gateway,
            advertise,
            shard,
            connection,
            local,
            peer,
            slots,
            first: 0,
            pending_bytes: 0,
            parked: None,
            room_looked_at: None,
            ready_bytes: 0,
            refused,
            spoken,
            access,
            certified: None,
            throttle: Throttle::default(),
            waits,
            introduced: Default::default(),
            broken: false,
            goes_on: false,
            sasl: None,
            refusal: None,
            seen,
        }
    }

    /// Whoever is there has to say who he is first.
    pub fn with_sasl(self, rules: Option<Arc<SaslRules>>, now: Instant) -> Self {
        Self { sasl: rules.map(|rules| Box::new(Sasl::new(rules, now))), ..self }
    }

    /// The handshake of TLS has ended, before the first frame. The peer has shown a certificate that was verified, of somebody with this distinguished
    /// name, or none. Where a login is asked for, that says who he is.
    pub fn set_certified(&mut self, distinguished: Option<String>, now: Instant) {
        if let Some(sasl) = &mut self.sasl {
            sasl.begin(now);
        }
        let Some(distinguished) = distinguished.filter(|_| self.sasl.is_none()) else { return };
        let security = self.gateway.broker.security();
        let unnamed = || "no rule of ssl.principal.mapping.rules is about this name".to_owned();
        let name = self.gateway.principal_rules.name(&distinguished).ok_or_else(unnamed);
        let welcome = name.and_then(|name| {
            security.check_name(&name, self.peer).map(|()| name).map_err(|refused| refused.to_string())
        });
        match welcome {
            Ok(name) => self.certified = Some(name.into()),
            Err(reason) => {
                let (who, from) = (distinguished.as_str(), self.peer.ip());
                security.audit_refusal(AuditLine {
                    who,
                    from,
                    through: "kafka",
                    act: "login",
                    what: "TLS",
                    outcome: &reason,
                });
                self.refusal = Some((CloseReason::Login { name: distinguished, mechanism: "TLS", reason }, now));
            }
        }
    }

    /// Is it known who is there, as far as the listener wants to know?
    pub fn is_known(&self) -> bool {
        self.sasl.as_ref().is_none_or(|sasl| sasl.is_known())
    }

    /// Checks the length that a frame announces.
    ///
    /// # Errors
    /// When it is negative or larger than `socket.request.max.bytes`; `sasl.server.max.receive.size` until it is known who is there.
    pub fn check_frame_length(&self, announced: i32) -> Result<usize, CloseReason> {
        let before = self.sasl.as_ref().filter(|sasl| !sasl.is_known()).map(|sasl| sasl.request_bytes_max());
        let max = self.gateway.frame_bytes_max.min(before.unwrap_or(usize::MAX));
        usize::try_from(announced)
            .ok()
            .filter(|bytes| *bytes <= max)
            .ok_or(CloseReason::Oversized { bytes: i64::from(announced), max })
    }

    /// Takes a request, without its length.
    ///
    /// # Errors
    /// When the connection cannot go on; a log line is the caller's.
    pub fn handle_frame(&mut self, bytes: Bytes, shard: &mut ShardContext, now: Instant) -> Result<(), CloseReason> {
        let length = bytes.len();
        self.gateway.metrics.received_bytes.inc_by(length as u64);
        self.seen.received_bytes.add(length as u64);
        self.seen.requests.add(1);
        let outcome = match &mut self.sasl {
            Some(sasl) => sasl.takes(&bytes, now),
            None => Ok(false),
        };
        let outcome = outcome.and_then(|about_login| {
            if about_login {
                return self.authenticate(bytes, shard, now);
            }
            let (header, mut reader) = RequestHeader::decode(owned(bytes))?;
            self.serve(Request { header: &header, reader: &mut reader, length, given: None }, shard, now)
        });
        if outcome.is_err() {
            self.gateway.metrics.refused_frames.inc();
        }
        outcome
    }

    /// Has a request handled.
    fn serve(&mut self, request: Request<'_>, shard: &mut ShardContext, now: Instant) -> Result<(), CloseReason> {
        let Request { header, reader, length, given } = request;
        let room = given.as_ref().map(|given| Arc::clone(&given.room));
        let Some(api) = handlers::find(header.api_key) else {
            return Err(CloseReason::UnknownApi(header.api_key));
        };
        let wire = api.key();
        let version = header.api_version;
        let long = api.serves(version) && api.is_handed_over() && length >= long::FROM_BYTES;
        // It waited in line for that.
        if given.is_none() {
            self.gateway.metrics.of(wire).requests.inc();
            reader.allow(FREE_ITEMS);
            if long && has_many(header, reader)? {
                return self.park(header, reader, length, now);
            }
        }
        let body = reader.mark();
        let alone = shard.is_alone(self.connection, now) && self.slots.is_empty();
        self.spoken.note_api(header.api_key);
        self.look_at_client(header.client_id.as_deref().unwrap_or_default(), now);
        let timed = self.throttle.is_timed().then(Instant::now);
        let outcome = if long {
            Ok(self.hand_over(
                api,
                header,
                (std::mem::replace(reader, Reader::new(Bytes::new())), length),
                room.clone(),
                now,
            ))
        } else if api.serves(version) {
            self.handle(api, (header, &mut *reader, length), room.as_ref(), (shard, alone), now)
        } else if wire.name == "ApiVersions" {
            Ok(Outcome::Downgraded(handlers::unsupported_api_versions()))
        } else {
            let (first, last) = api.range();
            return Err(CloseReason::UnsupportedVersion { name: wire.name, version, first, last });
        };
        if given.is_none() && is_many(&outcome) {
            reader.rewind(body);
            return self.park(header, reader, length, now);
        }
        let outcome = match outcome {
            Ok(Outcome::Long) => {
                reader.rewind(body);
                Ok(self.hand_over(
                    api,
                    header,
                    (std::mem::replace(reader, Reader::new(Bytes::new())), length),
                    room,
                    now,
                ))
            }
            other => other,
        };
        let produced = if header.api_key == PRODUCE { length as u64 } else { 0 };
        self.throttle.take(self.gateway.broker.quotas(), QuotaKey::ProducerByteRate, produced, now);
        self.note_time(timed, now);
        let throttled = self.throttle.told_ms(now);
        let slot = Slot {
            api: wire,
            version,
            correlation_id: header.correlation_id,
            started: given.as_ref().map_or(now, |given| given.since),
            bytes: length,
            state: SlotState::Ready(Vec::new()),
            room: given.map(|given| given.room),
        };
        if !self.keep(outcome?, throttled, slot)? {
            return Ok(());
        }
        self.pending_bytes += length;
        self.advance_slot(self.slots.len() - 1, News::Change, shard, now);
        self.note_room(now);
        Ok(())
    }

    /// Has a request handled here.
    fn handle(
        &mut self,
        api: &handlers::Api,
        (header, reader, length): (&RequestHeader, &mut Reader, usize),
        room: Option<&Arc<dyn RequestRoom>>,
        (shard, alone): (&mut ShardContext, bool),
        now: Instant,
    ) -> Result<Outcome, DecodeError> {
        let mut context = Context {
            gateway: &self.gateway,
            shard,
            to: self.next_reply_to(),
            version: header.api_version,
            client_id: header.client_id.as_deref().unwrap_or_default(),
            user: self.sasl.as_ref().and_then(|sasl| sasl.user()),
            certified: self.certified.as_deref(),
            access: &self.access,
            local: self.local,
            peer: self.peer,
            advertise: &self.advertise,
            now,
            alone,
            room,
            length,
            gone: None,
            refused: &mut self.refused,
            spoken: &mut self.spoken,
            throttle: &mut self.throttle,
            waits: &self.waits,
            seen: &self.seen,
        };
        api.handle(reader, &mut context).map(|outcome| outcome.resumed(&mut context))
    }

    /// Keeps what came of a request in its slot; false: nobody waits for an answer.
    fn keep(&mut self, outcome: Outcome, throttled: i32, mut slot: Slot) -> Result<bool, CloseReason> {
        match outcome {
            Outcome::Silent | Outcome::Resume(_) | Outcome::Long => return Ok(false),
            Outcome::Close(code) => return Err(CloseReason::Unanswered(code.name())),
            Outcome::Answer(mut body) => {
                if throttled > 0 {
                    body.set_throttle(throttled);
                }
                let pieces = self.pieces(&slot, &*body)?;
                slot.set_ready(pieces);
            }
            Outcome::Downgraded(body) => {
                slot.version = 0;
                let pieces = self.pieces(&slot, &*body)?;
                slot.set_ready(pieces);
            }
            Outcome::Wait(wait) => slot.state = SlotState::Waiting(wait),
        }
        self.ready_bytes += slot.state.bytes();
        self.slots.push_back(slot);
        Ok(true)
    }

    /// The answer to the request of a slot, as it is sent.
    fn pieces(&self, slot: &Slot, body: &dyn Body) -> Result<Vec<Bytes>, CloseReason> {
        let pieces = frame(slot.api, slot.version, slot.correlation_id, body)
            .ok_or(CloseReason::AnswerTooLong(slot.api.name))?;
        Ok(self.gateway.pinned.hold(pieces, Held { alone: self.slots.is_empty(), of_blocks: is_fetch(slot) }))
    }

    /// Tells slot `at` what has happened.
    fn advance_slot(&mut self, at: usize, news: News, shard: &mut ShardContext, now: Instant) {
        let (number, alone) = (self.first + at as u64, self.slots.len() == 1);
        let Some(slot) = self.slots.get_mut(at) else { return };
        let SlotState::Waiting(wait) = &mut slot.state else { return };
        let timed = self.throttle.is_timed().then(Instant::now);
        let mut context = Context {
            gateway: &self.gateway,
            shard,
            to: ReplyTo { shard: self.shard, connection: self.connection, token: number * PARTS_MAX },
            version: slot.version,
            client_id: "",
            user: self.sasl.as_ref().and_then(|sasl| sasl.user()),
            certified: self.certified.as_deref(),
            access: &self.access,
            local: self.local,
            peer: self.peer,
            advertise: &self.advertise,
            now,
            alone: false,
            room: slot.room.as_ref(),
            length: slot.bytes,
            gone: None,
            refused: &mut self.refused,
            spoken: &mut self.spoken,
            throttle: &mut self.throttle,
            waits: &self.waits,
            seen: &self.seen,
        };
        let body: Option<Box<dyn Body>> = match news {
            News::Reply(part, reply) => wait.handle_reply(part, reply, &mut context),
            News::Change => wait.look(&mut context),
            News::Turn => wait.go_on(&mut context),
            News::End => wait.hasten(&mut context),
        };
        self.goes_on |= wait.goes_on();
        self.note_time(timed, now);
        let Some(slot) = self.slots.get_mut(at) else { return };
        if let Some(error) = body.as_ref().and_then(|body| body.malformed()) {
            slot.set_ready(Vec::new());
            self.refusal = Some((error.into(), now));
            self.gateway.metrics.refused_frames.inc();
        } else if let Some(Silence { refused }) = body.as_ref().and_then(|body| body.silence()) {
            slot.set_ready(Vec::new());
            self.refusal = refused.map(|code| (CloseReason::Unanswered(code.name()), now)).or(self.refusal.take());
        } else if let Some(mut body) = body {
            let throttled = self.throttle.told_ms(now);
            if throttled > 0 {
                body.set_throttle(throttled);
            }
            let pieces = frame(slot.api, slot.version, slot.correlation_id, &*body);
            if pieces.is_none() {
                self.refusal = Some((CloseReason::AnswerTooLong(slot.api.name), now));
            }
            let held = Held { alone, of_blocks: is_fetch(slot) };
            slot.set_ready(self.gateway.pinned.hold(pieces.unwrap_or_default(), held));
            self.ready_bytes += slot.state.bytes();
        }
    }

    /// Who has logged in, or shown a certificate.
    pub fn user_name(&self) -> Option<&str> {
        name_of(self.sasl.as_deref(), self.certified.as_deref())
    }

    /// Who sends a request: what limits him, and what those see who look on.
    fn look_at_client(&mut self, client_id: &str, now: Instant) {
        let name = name_of(self.sasl.as_deref(), self.certified.as_deref());
        self.throttle.look(self.gateway.broker.quotas(), name.unwrap_or(ANONYMOUS_NAME), client_id, now);
        let client_id = &client_id[..client_id.floor_char_boundary(CLIENT_ID_KEPT)];
        if *self.introduced.0 != *client_id || self.introduced.1 != name.is_some() {
            self.waits.introduce(name.unwrap_or_default(), client_id);
            self.introduced = (client_id.into(), name.is_some());
            self.seen.set_client_id(client_id);
        }
    }

    /// What a request took of a thread since `began` counts where its client's share is limited.
    fn note_time(&mut self, began: Option<Instant>, now: Instant) {
        if let Some(began) = began {
            self.throttle.take(
                self.gateway.broker.quotas(),
                QuotaKey::RequestPercentage,
                began.elapsed().as_nanos() as u64,
                now,
            );
        }
    }

    /// Takes the answer to a command; answers to requests that are gone are ignored.
    pub fn handle_reply(&mut self, token: u64, reply: Reply, shard: &mut ShardContext, now: Instant) {
        if matches!(reply, Reply::Failed) {
            self.broken = true;
            return;
        }
        let mut reply = Some(reply);
        if self.take_word(token, &mut reply, now) {
            return;
        }
        let Some(reply) = reply else { return };
        let (number, part) = (token / PARTS_MAX, token % PARTS_MAX);
        if let Some(at) = number.checked_sub(self.first) {
            self.advance_slot(at as usize, News::Reply(part, reply), shard, now);
        }
    }

    /// A watched log moved, or time has passed: waiting fetches look again.
    pub fn handle_wake(&mut self, shard: &mut ShardContext, now: Instant) {
        for at in 0..self.slots.len() {
            self.advance_slot(at, News::Change, shard, now);
        }
        self.yield_room(shard, now);
        self.throttle.wake(self.gateway.broker.quotas(), now);
        self.look_at_login(now);
    }

    /// Where the connection's time goes.
    pub fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// What it waits for now.
    pub fn causes(&self) -> Causes {
        let paused = self.throttle.paused().map_or(0, |(limit, _)| match limit {
            Limit::Client(_) => Cause::Quota.bit(),
            Limit::Topic => Cause::TopicQuota.bit(),
            Limit::Laggard => Cause::Laggard.bit(),
            Limit::Memory => Cause::Memory.bit(),
        });
        let refused = if self.refused.is_empty() { 0 } else { Cause::Disk.bit() };
        let first = match self.slots.front().map(|slot| &slot.state) {
            Some(SlotState::Waiting(wait)) => wait.cause().bit(),
            Some(SlotState::Ready(_)) => 0,
            None if paused != 0 => 0,
            None if self.sasl.as_ref().is_some_and(|sasl| !sasl.wants_read()) => Cause::Login.bit(),
            None => Cause::Client.bit(),
        };
        paused | refused | first
    }

    /// When [`Session::handle_wake`] is due without any event.
    pub fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.slots.iter().filter_map(|slot| match &slot.state {
            SlotState::Waiting(wait) => wait.deadline(),
            SlotState::Ready(_) => None,
        });
        let login = self.sasl.as_ref().and_then(|sasl| sasl.deadline());
        let refusal = self.refusal.as_ref().map(|(_, from)| *from);
        waiting.chain(login).chain(refusal).chain(self.room_looked_at).chain(self.throttle.next()).min()
    }

    /// False: do not read from the socket now. What follows a fetch is read when that is answered, as Kafka does: its answer is
    /// large, and one of a kind is enough. What follows a produce that is being unpacked is read when that was appended.
    pub fn wants_read(&self) -> bool {
        let holds = |slot: &Slot| matches!(&slot.state, SlotState::Waiting(wait) if wait.holds_reading());
        let fetching = self.slots.back().is_some_and(|slot| holds(slot) || is_fetch(slot));
        let login = self.sasl.as_ref().is_none_or(|sasl| sasl.wants_read()) && self.refusal.is_none();
        let room = self.slots.len() < PENDING_MAX
            && self.pending_bytes < PENDING_BYTES_MAX
            && self.ready_bytes < READY_BYTES_MAX;
        login && self.parked.is_none() && !fetching && !self.throttle.is_paused() && self.refused.is_empty() && room
    }

    /// Do answers that may be in the way of others wait for the one of a request before theirs, which others decide how long that takes?
    pub fn holds_answers(&self) -> bool {
        let by_others = self
            .slots
            .front()
            .is_some_and(|slot| matches!(&slot.state, SlotState::Waiting(wait) if wait.cause() != Cause::Disk));
        by_others && self.ready_bytes >= READY_BYTES_MAX
    }

    /// Ends the connection: a request of it met a defect of ours and will not be answered.
    pub fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Is the connection to be closed?
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Is any request unanswered?
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty() && self.parked.is_none()
    }

    /// Appends what can be sent, in order; true when there was something.
    pub fn poll_transmit(&mut self, out: &mut VecDeque<Bytes>) -> bool {
        let mut any = false;
        while matches!(self.slots.front(), Some(Slot { state: SlotState::Ready(_), .. })) {
            let Some(slot) = self.slots.pop_front() else { break };
            self.first += 1;
            self.pending_bytes -= slot.bytes;
            let sent = slot.state.bytes();
            self.ready_bytes -= sent;
            if let SlotState::Ready(pieces) = slot.state {
                self.gateway.metrics.sent_bytes.inc_by(sent as u64);
                self.seen.sent_bytes.add(sent as u64);
                any |= sent > 0;
                out.extend(pieces);
            }
            self.gateway.metrics.of(slot.api).seconds.observe(slot.started.elapsed().as_secs_f64());
        }
        any
    }

    /// The connection is gone: what waits for logs must not be woken any more.
    pub fn close(&mut self, shard: &mut ShardContext) {
        for slot in &mut self.slots {
            if let SlotState::Waiting(wait) = &mut slot.state {
                wait.cancel(self.connection, shard);
            }
        }
        for (group, consumers) in self.gateway.share_sessions.close_of((self.shard, self.connection)) {
            self.gateway.broker.release_consumers(&group, consumers, self.peer.ip());
        }
        self.gateway.broker.waits().leave(self.connection);
        self.gateway.broker.kafka_connections().leave(self.connection);
        self.gateway.metrics.connections.dec();
    }
}

/// Who has logged in; or the name of a certificate.
fn name_of<'a>(sasl: Option<&'a Sasl>, certified: Option<&'a str>) -> Option<&'a str> {
    sasl.and_then(Sasl::user).map(|user| user.name()).or(certified)
}

#[cfg(test)]
mod tests;
