//! Who is at the other end of a connection: SASL as Kafka carries it, before anything else is served and again when a session is over.
//!
//! ```text
//! Handshake ── ApiVersions once, or SaslHandshake ──▶ Exchange ── SaslAuthenticate ──▶ Known ── SaslHandshake, if sessions end ──▶ Handshake
//!     │ anything else: closed                            │  ▲                          │ a request after the session's end: closed
//!     └────────────────▶ Refused ◀───────────────────────┤  └─ Verifying ◀─ PLAIN      ┘
//! ```
//! A session lasts as long as `connections.max.reauth.ms` says, and no longer than the token it began with.
//!
//! Before somebody is known requests are small (`sasl.server.max.receive.size`), one is read at a time, and it is over after
//! `mainstem.login.timeout.ms`. A refusal is answered `connection.failed.authentication.delay.ms` late, then the connection ends. States, answers and
//! texts are those of Kafka's SaslServerAuthenticator; after a handshake of version 0 tokens come without a header, as it has them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{
    AuditLine, Broker, Credentials, Dismissed, LimitKind, LoginOutcome, Refused, Reply, ReplyTo, ScramExchange,
    ScramMechanism, ScramRefused, Seat, TokenLogin, TokenRefusal, User,
};
use bytes::Bytes;
use kafka_wire::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use kafka_wire::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use kafka_wire::{ApiKey, ErrorCode, Reader, RequestHeader, Str};

use super::oauth_bearer::{FirstMessage, INVALID_TOKEN};
use super::{CloseReason, Context, PARTS_MAX, Request, Session, ShardContext, Slot, SlotState};
use crate::body::{Body, frame};
use crate::handlers::{self, Wait};

/// Sessions are not renewed more often, as in Kafka.
const RENEWAL_MIN: Duration = Duration::from_secs(1);
/// Bytes of a claimed name that the log shows.
const NAME_SHOWN_MAX: usize = 255;
/// A dismissal is told under this token, which is no request's.
pub(super) const DISMISSAL: u64 = u64::MAX;

const HANDSHAKE: i16 = 17;
const VERSIONS: i16 = 18;
const AUTHENTICATE: i16 = 36;
const WRONG_PASSWORD: &str = "Authentication failed: Invalid username or password";

/// A way to say who one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslMechanism {
    /// RFC 4616: name and password.
    Plain,
    /// RFC 5802.
    Scram(ScramMechanism),
    /// RFC 7628: a token that an authority has signed.
    OauthBearer,
}

impl SaslMechanism {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Plain, Self::Scram(ScramMechanism::Sha256), Self::Scram(ScramMechanism::Sha512), Self::OauthBearer];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(mechanism) => mechanism.name(),
            Self::OauthBearer => "OAUTHBEARER",
        }
    }

    /// By its name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What a listener asks of those who connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslRules {
    /// Offered, in this order.
    pub mechanisms: Vec<SaslMechanism>,
    /// A session lasts so long unless it is renewed. `None`: as long as the connection.
    pub session_max: Option<Duration>,
    /// Bytes of a request before it is known who sends it.
    pub request_bytes_max: usize,
    /// From the connection's beginning, or the end of the handshake of TLS, to a login; and from a second handshake to the next.
    pub login_max: Duration,
    /// A refusal is told so much later.
    pub refusal_delay: Duration,
}

impl SaslRules {
    /// Does it let somebody in by a token?
    pub fn takes_tokens(&self) -> bool {
        self.mechanisms.contains(&SaslMechanism::OauthBearer)
    }
}

enum Phase {
    Handshake {
        versions_told: bool,
    },
    Exchange {
        mechanism: SaslMechanism,
        begun: Begun,
    },
    /// A password is with those who verify it; the answer comes under this token.
    Verifying {
        token: u64,
        name: String,
    },
    Known,
    Refused,
}

/// What was said in an exchange.
enum Begun {
    Nothing,
    Scram(Box<ScramExchange>),
    /// That the token is not good; the client is to say that it has heard.
    Refusal(Refusal),
}

/// Somebody who is known.
struct Known {
    user: Arc<User>,
    mechanism: SaslMechanism,
    /// Among the connections of the user.
    _seat: Seat,
}

/// Where a connection stands.
pub(super) struct Sasl {
    rules: Arc<SaslRules>,
    phase: Phase,
    /// Until when it has to be known who it is.
    until: Instant,
    known: Option<Known>,
    /// When the session is over.
    expires: Option<Instant>,
    renewed: Option<Instant>,
    /// Tokens have no header.
    raw: bool,
}

/// What a token led to.
enum Verdict {
    /// To be told; more is to come.
    Next(Vec<u8>),
    /// It is known who it is.
    Done(Arc<User>, Vec<u8>),
    /// By a token, which is good for so long.
    Until(Arc<User>, Duration),
    Wait(u64, String),
    Refused(Refusal),
}

/// Why a login is refused.
struct Refusal {
    name: String,
    /// For the log.
    reason: String,
    /// For the client; otherwise it is told the mechanism only.
    told: Option<String>,
    /// The audit log has it.
    is_noted: bool,
}

impl Refusal {
    fn new(name: &str, reason: impl ToString, told: Option<&str>) -> Self {
        Self { name: name.to_owned(), reason: reason.to_string(), told: told.map(str::to_owned), is_noted: false }
    }
}

impl Sasl {
    pub fn new(rules: Arc<SaslRules>, now: Instant) -> Self {
        let phase = Phase::Handshake { versions_told: false };
        let until = now + rules.login_max;
        Self { rules, phase, until, known: None, expires: None, renewed: None, raw: false }
    }

    pub fn is_known(&self) -> bool {
        matches!(self.phase, Phase::Known)
    }

    /// Who logged in.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.known.as_ref().map(|known| &known.user)
    }

    /// The handshake of TLS has ended.
    pub fn begin(&mut self, now: Instant) {
        self.until = now + self.rules.login_max;
    }

    pub fn request_bytes_max(&self) -> usize {
        self.rules.request_bytes_max
    }

    /// When it is over with one who has not said who he is.
    pub fn deadline(&self) -> Option<Instant> {
        (!matches!(self.phase, Phase::Known | Phase::Refused)).then_some(self.until)
    }

    pub fn wants_read(&self) -> bool {
        !matches!(self.phase, Phase::Verifying { .. } | Phase::Refused)
    }

    /// Is this request about who it is, and not for a handler?
    ///
    /// # Errors
    /// The session is over.
    pub fn takes(&mut self, request: &[u8], now: Instant) -> Result<bool, CloseReason> {
        if !self.is_known() {
            return Ok(true);
        }
        let Some(expires) = self.expires else { return Ok(false) };
        let renews = request.first_chunk::<2>().is_some_and(|key| i16::from_be_bytes(*key) == HANDSHAKE);
        if renews && self.renewed.is_none_or(|last| now.saturating_duration_since(last) >= RENEWAL_MIN) {
            self.renewed = Some(now);
            self.phase = Phase::Handshake { versions_told: true };
            self.until = now + self.rules.login_max;
            self.raw = false;
            return Ok(true);
        }
        if now > expires { Err(CloseReason::SessionOver) } else { Ok(false) }
    }

    /// How long a session lasts that begins now, with a token that is good for `token`.
    fn begin_session(&mut self, token: Option<Duration>, now: Instant) -> i64 {
        let most = self.rules.session_max.into_iter().chain(token).min();
        self.expires = most.and_then(|most| now.checked_add(most));
        most.map_or(0, |most| i64::try_from(most.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A name for the log, whatever was sent as one.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(NAME_SHOWN_MAX)]).into_owned()
}

/// RFC 4616: an authorisation id, user and password with zero bytes between them.
fn plain(token: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let parts: Vec<_> = token.split(|byte| *byte == 0).collect();
    let &[authorization, name, password] = &parts[..] else {
        let told = format!("Invalid SASL/PLAIN response: expected 3 tokens, got {}", parts.len());
        return Err(Refusal::new("", &told, Some(&told)));
    };
    let refuse = |told| Err(Refusal::new(&shown(name), told, Some(told)));
    match (name, password, authorization) {
        ([], ..) => refuse("Authentication failed: username not specified"),
        (_, [], _) => refuse("Authentication failed: password not specified"),
        (.., [_, ..]) if authorization != name => {
            refuse("Authentication failed: Client requested an authorization id that is different from username")
        }
        _ => Ok((name, password)),
    }
}

/// An answer that [`Session::take_word`] makes.
struct OnVerdict;

impl Wait for OnVerdict {
    fn handle_reply(&mut self, _part: u64, _reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        None
    }
}

/// An answer that is given a little later.
struct Later {
    until: Instant,
    body: Option<Box<dyn Body>>,
}

impl Wait for Later {
    fn handle_reply(&mut self, _part: u64, _reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        None
    }

    fn look(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        (context.now >= self.until).then(|| self.body.take()).flatten()
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.until)
    }
}

/// The request that an answer belongs to.
#[derive(Clone, Copy)]
struct Asked {
    api: &'static ApiKey,
    version: i16,
    correlation_id: i32,
    bytes: usize,
    now: Instant,
}

impl Asked {
    fn slot(self, state: SlotState) -> Slot {
        let Self { api, version, correlation_id, bytes, now } = self;
        Slot { api, version, correlation_id, started: now, bytes, state, room: None }
    }
}

fn codec(key: i16) -> &'static ApiKey {
    ApiKey::find(key).expect("it has a codec")
}

impl Session {
    /// Takes a request of somebody who is not known yet, or says anew who he is.
    pub(super) fn authenticate(
        &mut self,
        bytes: Bytes,
        shard: &mut ShardContext,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let length = bytes.len();
        let Some(sasl) = &mut self.sasl else { return Ok(()) };
        if let (true, Phase::Exchange { .. }) = (sasl.raw, &sasl.phase) {
            let asked = Asked { api: codec(AUTHENTICATE), version: 0, correlation_id: 0, bytes: length, now };
            return self.take_token(asked, &bytes);
        }
        let (header, mut reader) = RequestHeader::decode(bytes)?;
        let unexpected = || CloseReason::Unexpected(header.api_key);
        let asked =
            |api| Asked { api, version: header.api_version, correlation_id: header.correlation_id, bytes: length, now };
        match (&mut sasl.phase, header.api_key) {
            (Phase::Handshake { versions_told: told @ false }, VERSIONS) => {
                *told = handlers::find(VERSIONS).is_some_and(|api| api.serves(header.api_version));
                self.serve(Request { header: &header, reader: &mut reader, length, given: None }, shard, now)
            }
            (Phase::Handshake { .. }, HANDSHAKE) => {
                self.choose_mechanism(asked(check_version(HANDSHAKE, header.api_version)?), &mut reader)
            }
            (Phase::Exchange { .. }, AUTHENTICATE) => {
                let api = check_version(AUTHENTICATE, header.api_version)?;
                let request = SaslAuthenticateRequest::decode(&mut reader, header.api_version)?;
                self.take_token(asked(api), &request.auth_bytes)
            }
            (Phase::Exchange { .. }, HANDSHAKE) => {
                let answer =
                    SaslHandshakeResponse { error_code: ErrorCode::IllegalSaslState.code(), ..Default::default() };
                let asked = asked(check_version(HANDSHAKE, header.api_version)?);
                self.refuse(asked, Some(Box::new(answer)), Refusal::new("", "a handshake within an exchange", None));
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }

    fn choose_mechanism(&mut self, asked: Asked, reader: &mut Reader) -> Result<(), CloseReason> {
        self.gateway.metrics.of(asked.api).requests.inc();
        let request = SaslHandshakeRequest::decode(reader, asked.version)?;
        let Some(sasl) = &mut self.sasl else { return Ok(()) };
        let offered = sasl.rules.mechanisms.iter();
        let mechanism = SaslMechanism::of_name(&request.mechanism).filter(|one| sasl.rules.mechanisms.contains(one));
        let mut answer = SaslHandshakeResponse {
            mechanisms: offered.map(|one| Str::from_static(one.name())).collect(),
            ..Default::default()
        };
        let problem = match (mechanism, &sasl.known) {
            (None, _) => Some((ErrorCode::UnsupportedSaslMechanism, "the mechanism is not offered")),
            (Some(one), Some(known)) if one != known.mechanism => {
                Some((ErrorCode::IllegalSaslState, "a session is renewed by its own mechanism"))
            }
            _ => None,
        };
        if let Some((code, reason)) = problem {
            answer.error_code = code.code();
            self.refuse(
                asked,
                Some(Box::new(answer)),
                Refusal::new("", format!("{reason}: {:?}", shown(request.mechanism.as_bytes())), None),
            );
            return Ok(());
        }
        if let Some(mechanism) = mechanism {
            sasl.raw = asked.version == 0;
            sasl.phase = Phase::Exchange { mechanism, begun: Begun::Nothing };
        }
        self.answer(asked, &answer);
        Ok(())
    }

    fn take_token(&mut self, asked: Asked, token: &[u8]) -> Result<(), CloseReason> {
        self.gateway.metrics.of(asked.api).requests.inc();
        let to = self.next_reply_to();
        let peer = self.peer;
        let Some(sasl) = &mut self.sasl else { return Ok(()) };
        let Phase::Exchange { mechanism, begun } = &mut sasl.phase else {
            return Err(CloseReason::Unexpected(AUTHENTICATE));
        };
        let broker = &self.gateway.broker;
        let verdict = match *mechanism {
            SaslMechanism::Plain => match plain(token) {
                Ok((name, password)) => {
                    let credentials = Credentials { name, password, peer };
                    match broker.security().known(credentials) {
                        Some(outcome) => verdict(shown(name), outcome),
                        None if broker.login(to, credentials, sasl.until) => Verdict::Wait(to.token, shown(name)),
                        None => verdict(shown(name), Err(Refused::Busy)),
                    }
                }
                Err(refusal) => Verdict::Refused(refusal),
            },
            SaslMechanism::Scram(one) => begun.take_scram(broker, one, token, peer),
            SaslMechanism::OauthBearer => begun.take_bearer(broker, token, peer),
        };
        self.act_on(asked, verdict);
        Ok(())
    }

    fn act_on(&mut self, asked: Asked, verdict: Verdict) {
        match verdict {
            Verdict::Next(token) => self.answer_token(asked, token, 0),
            Verdict::Done(user, token) => match self.admit(user, None, asked.now) {
                Ok(lifetime_ms) => self.answer_token(asked, token, lifetime_ms),
                Err(refusal) => self.refuse_token(asked, refusal),
            },
            Verdict::Until(user, left) => match self.admit(user, Some(left), asked.now) {
                Ok(lifetime_ms) => self.answer_token(asked, Vec::new(), lifetime_ms),
                Err(refusal) => self.refuse_token(asked, refusal),
            },
            Verdict::Wait(token, name) => {
                if let Some(sasl) = &mut self.sasl {
                    sasl.phase = Phase::Verifying { token, name };
                }
                self.push(asked.slot(SlotState::Waiting(Box::new(OnVerdict))));
            }
            Verdict::Refused(refusal) => self.refuse_token(asked, refusal),
        }
    }

    /// Takes what became of a password, or that the connection is to end. False: it is for a request.
    pub(super) fn take_word(&mut self, token: u64, reply: &mut Option<Reply>, now: Instant) -> bool {
        if token == DISMISSAL {
            if let Some(Reply::Done(said)) = reply.take()
                && let Ok(dismissed) = said.downcast::<Dismissed>()
            {
                self.refusal = Some((CloseReason::Dismissed(dismissed.reason), now));
            }
            return true;
        }
        let Some(sasl) = &mut self.sasl else { return false };
        let Phase::Verifying { token: awaited, name } = &mut sasl.phase else { return false };
        if *awaited != token {
            return false;
        }
        let name = std::mem::take(name);
        let Some(Reply::Done(said)) = reply.take() else { return true };
        let Ok(outcome) = said.downcast::<LoginOutcome>() else { return true };
        // Nothing was read behind the request, so its slot is the last.
        let Some(Slot { api, version, correlation_id, bytes, .. }) = self.slots.pop_back() else { return true };
        self.pending_bytes -= bytes;
        self.act_on(Asked { api, version, correlation_id, bytes, now }, verdict(name, *outcome));
        true
    }

    /// Lets a user in, with a token that is good for so long; milliseconds that his session lasts, 0: as long as the connection.
    fn admit(&mut self, user: Arc<User>, token: Option<Duration>, now: Instant) -> Result<i64, Refusal> {
        let to = ReplyTo { token: DISMISSAL, ..self.next_reply_to() };
        let gateway = Arc::clone(&self.gateway);
        let Some(sasl) = &mut self.sasl else { return Ok(0) };
        let mechanism = match &sasl.known {
            Some(known) if known.user.name() != user.name() => {
                let (before, now) = (known.user.name(), user.name());
                let told = format!("Cannot change principals during re-authentication from User.{before}: User.{now}");
                return Err(Refusal::new(now, &told, Some(&told)));
            }
            Some(known) => Some(known.mechanism),
            None => None,
        };
        if let Some(mechanism) = mechanism {
            sasl.known.iter_mut().for_each(|known| known.user = Arc::clone(&user));
            tracing::debug!(user = user.name(), mechanism = mechanism.name(), "session renewed");
        } else {
            let Some(mechanism) = sasl.chosen() else { return Err(Refusal::new(user.name(), "no mechanism", None)) };
            let seat = gateway.broker.security().seats().take(to, user.name(), user.limits(), broker::DEFAULT_VHOST);
            let seat = seat.map_err(|full| {
                gateway.broker.limits().note_refusal(LimitKind::UserConnections);
                Refusal::new(user.name(), full, None)
            })?;
            // from here on a deletion finds this connection: what was done before is seen here. A token says who he is by itself.
            if token.is_none() && gateway.broker.security().still_is(&user).is_none() {
                return Err(Refusal::new(user.name(), Refused::Credentials, None));
            }
            self.seen.set_user(user.name(), mechanism.name());
            sasl.known = Some(Known { user, mechanism, _seat: seat });
        }
        sasl.phase = Phase::Known;
        gateway.metrics.logins.inc();
        Ok(sasl.begin_session(token, now))
    }

    fn answer_token(&mut self, asked: Asked, token: Vec<u8>, session_lifetime_ms: i64) {
        if self.sasl.as_ref().is_some_and(|sasl| sasl.raw) {
            let length = u32::try_from(token.len()).expect("tokens of ours are short").to_be_bytes();
            self.push(asked.slot(SlotState::Ready(vec![Bytes::from([&length[..], &token].concat())])));
        } else {
            self.answer(
                asked,
                &SaslAuthenticateResponse { auth_bytes: token.into(), session_lifetime_ms, ..Default::default() },
            );
        }
    }

    fn refuse_token(&mut self, asked: Asked, refusal: Refusal) {
        let mechanism = self.sasl.as_ref().and_then(|sasl| sasl.chosen()).map_or("", SaslMechanism::name);
        let general = || {
            format!(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
            )
        };
        let told = refusal.told.clone().unwrap_or_else(general);
        let error_code = ErrorCode::SaslAuthenticationFailed.code();
        let body = SaslAuthenticateResponse { error_code, error_message: Some(told.into()), ..Default::default() };
        let raw = self.sasl.as_ref().is_some_and(|sasl| sasl.raw);
        self.refuse(asked, (!raw).then(|| Box::new(body) as Box<dyn Body>), refusal);
    }

    /// Answers late, and ends the connection.
    fn refuse(&mut self, asked: Asked, body: Option<Box<dyn Body>>, refusal: Refusal) {
        self.gateway.metrics.refused_logins.inc();
        let Some(sasl) = &mut self.sasl else { return };
        let mechanism = sasl.chosen().map_or("SASL", SaslMechanism::name);
        let until = asked.now + sasl.rules.refusal_delay;
        sasl.phase = Phase::Refused;
        let Refusal { name, reason, is_noted, .. } = refusal;
        if !is_noted {
            note_refusal(&self.gateway.broker, (&name, self.peer), mechanism, &reason);
        }
        self.refusal = Some((CloseReason::Login { name, mechanism, reason }, until));
        if body.is_some() {
            self.push(asked.slot(SlotState::Waiting(Box::new(Later { until, body }))));
        }
    }

    fn answer(&mut self, asked: Asked, body: &dyn Body) {
        let pieces = frame(asked.api, asked.version, asked.correlation_id, body);
        // Answers about logins are short.
        self.push(asked.slot(SlotState::Ready(pieces.unwrap_or_default())));
    }

    fn push(&mut self, slot: Slot) {
        self.pending_bytes += slot.bytes;
        self.ready_bytes += slot.state.bytes();
        self.slots.push_back(slot);
    }

    /// Time has passed: who has not said who he is has to go.
    pub(super) fn look_at_login(&mut self, now: Instant) {
        let Some(sasl) = &mut self.sasl else { return };
        if sasl.deadline().is_some_and(|until| now >= until) {
            sasl.phase = Phase::Refused;
            self.slots.clear();
            self.pending_bytes = 0;
            self.refusal = Some((CloseReason::Late, now));
        }
    }

    /// Where answers to the next request go.
    pub(super) fn next_reply_to(&self) -> ReplyTo {
        let number = self.first + self.slots.len() as u64;
        ReplyTo { shard: self.shard, connection: self.connection, token: number * PARTS_MAX }
    }
}

impl Sasl {
    /// The mechanism of the exchange, or of the session.
    fn chosen(&self) -> Option<SaslMechanism> {
        match &self.phase {
            Phase::Exchange { mechanism, .. } => Some(*mechanism),
            Phase::Verifying { .. } => Some(SaslMechanism::Plain),
            _ => self.known.as_ref().map(|known| known.mechanism),
        }
    }
}

fn verdict(name: String, outcome: LoginOutcome) -> Verdict {
    match outcome {
        Ok(user) => Verdict::Done(user, Vec::new()),
        Err(reason) => Verdict::Refused(Refusal::new(&name, reason, Some(WRONG_PASSWORD))),
    }
}

fn note_refusal(broker: &Broker, (name, peer): (&str, SocketAddr), mechanism: &str, reason: &str) {
    let line =
        AuditLine { who: name, from: peer.ip(), through: "kafka", act: "login", what: mechanism, outcome: reason };
    broker.security().audit_refusal(line);
}

impl Begun {
    fn take_scram(&mut self, broker: &Broker, mechanism: ScramMechanism, message: &[u8], peer: SocketAddr) -> Verdict {
        let Self::Scram(exchange) = std::mem::replace(self, Self::Nothing) else {
            return match ScramExchange::begin(broker.security(), mechanism, message) {
                Ok((exchange, next)) => {
                    *self = Self::Scram(Box::new(exchange));
                    Verdict::Next(next.into_bytes())
                }
                Err(error) => Verdict::Refused(scram_refusal("", error)),
            };
        };
        if broker.security().is_throttled(peer, exchange.name()) {
            return Verdict::Refused(Refusal::new(exchange.name(), Refused::Throttled, None));
        }
        let name = exchange.name().to_owned();
        match exchange.finish(broker.security(), message) {
            Ok((user, last)) => match broker.security().authenticate_by_name(user.name(), peer) {
                Ok(user) => Verdict::Done(user, last.into_bytes()),
                Err(error) => Verdict::Refused(Refusal::new(&name, error, None)),
            },
            Err(error) => {
                broker.security().note_wrong_guess(peer, &name);
                Verdict::Refused(scram_refusal(&name, error))
            }
        }
    }

    /// Whatever a client says that has heard that its token is not good, it is refused.
    fn take_bearer(&mut self, broker: &Broker, message: &[u8], peer: SocketAddr) -> Verdict {
        if let Self::Refusal(refusal) = std::mem::replace(self, Self::Nothing) {
            return Verdict::Refused(refusal);
        }
        let first = match FirstMessage::parse(message) {
            Ok(first) => first,
            Err(error) => return Verdict::Refused(Refusal::new("", error, None)),
        };
        let now_ms = broker.now_ms();
        let TokenLogin { user, expires_ms } = match broker.security().authenticate_by_token(first.token, peer, now_ms) {
            Ok(login) => login,
            Err(TokenRefusal { name, reason }) => {
                // Whoever goes instead of saying that he has heard is in the log, too.
                note_refusal(broker, (&name, peer), SaslMechanism::OauthBearer.name(), &reason.to_string());
                *self = Self::Refusal(Refusal { is_noted: true, ..Refusal::new(&name, reason, Some(INVALID_TOKEN)) });
                return Verdict::Next(INVALID_TOKEN.into());
            }
        };
        if let Some(other) = first.authorization.filter(|other| other != user.name()) {
            let name = user.name();
            let told = format!(
                "Authentication failed: Client requested an authorization id ({other}) that is different from the token's principal name ({name})"
            );
            return Verdict::Refused(Refusal::new(name, &told, Some(&told)));
        }
        Verdict::Until(user, Duration::from_millis(u64::try_from(expires_ms - now_ms).unwrap_or(0)))
    }
}

fn scram_refusal(name: &str, error: ScramRefused) -> Refusal {
    const OTHER_NAME: &str =
        "Authentication failed: Client requested an authorization id that is different from username";
    Refusal::new(name, error, (error == ScramRefused::OtherName).then_some(OTHER_NAME))
}

fn check_version(key: i16, version: i16) -> Result<&'static ApiKey, CloseReason> {
    let api = handlers::find(key).expect("it is served");
    if api.serves(version) {
        return Ok(api.key());
    }
    let (first, last) = api.range();
    Err(CloseReason::UnsupportedVersion { name: api.key().name, version, first, last })
}
