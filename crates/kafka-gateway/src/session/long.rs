//! Requests that name or ask for so much that a network thread has no time for them: threads at low priority, those that unpack batches, decode
//! them, look, give the controller what it is to do, and encode the answer. Of fetches and heartbeats of groups they do what can be done there, and the thread of the connection does the rest. Addresses take turns there. What follows on the connection is read once they are answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use broker::{Cause, ClientConnection, QuotaKey, Reply, ReplyTo, Throttle, User, Waits};
use bytes::Bytes;
use kafka_wire::{DecodeError, ErrorCode, Reader, RequestHeader, Str, Writer};
use types::ConnectionId;

use super::{Context, RequestRoom, Session, ShardContext};
use crate::access::{Access, Asking};
use crate::body::{Body, Silence};
use crate::gateway::{Advertise, Gateway};
use crate::group_of::Spoken;
use crate::handlers::{Api, JobBody, Outcome, Resume, Wait};

/// Requests of so many bytes are. At 50 ns for each it is what a network thread may take for one.
pub(super) const FROM_BYTES: usize = 64 << 10;

/// So are those whose answers go through so many topics, partitions, groups or other things.
const FROM_THINGS: usize = 500;

/// One thing of a group, a topic that a member names or a partition that it has, takes so many bytes of what the group weighs, about.
const THING_BYTES: usize = 100;

impl Context<'_> {
    /// Does a request whose answer goes through so many things belong to other threads ([`Outcome::Long`])? It was not read any further then.
    pub(crate) fn is_long(&self, things: usize) -> bool {
        self.gone.is_none() && things > FROM_THINGS
    }

    /// The same of what describes these groups: a short name may stand for hundreds of members with thousands of topics each.
    pub(crate) fn describes_long(&self, groups: &[Str]) -> bool {
        self.gone.is_none()
            && self.gateway.broker.groups().weight_of(groups.iter().map(|name| &**name)) / THING_BYTES > FROM_THINGS
    }
}

/// A turn of a request that goes through more than fits into one: its answer, or `None` where others are to have theirs before it goes on.
pub(crate) trait Turns: Send + 'static {
    /// What the client may do is asked in each turn: it may be another thing by then.
    fn turn(&mut self, asking: &Asking<'_>) -> Option<JobBody>;
}

impl Context<'_> {
    /// Goes through what a request asks for: here if that is little, else on the threads that look at long requests.
    pub(crate) fn go_through(&self, mut looking: impl Turns) -> Outcome {
        if self.gone.is_some() {
            return self.go_on_in_turns(looking);
        }
        loop {
            if let Some(body) = looking.turn(&self.asking()) {
                return Outcome::Answer(body);
            }
        }
    }

    fn go_on_in_turns(&self, looking: impl Turns) -> Outcome {
        let (client, gone) = (self.asking().client(), self.gone.cloned().unwrap_or_default());
        let mut looking = Some((looking, self.room.cloned()));
        let (mut took, wait) = (Duration::ZERO, Box::new(LongWait { gone: Arc::clone(&gone), then: None }));
        let work = Box::new(move |broker: &Arc<broker::Broker>| {
            let began = Instant::now();
            let came = match &mut looking {
                Some((looking, _)) if !gone.load(Ordering::Relaxed) => {
                    client.ask(broker, |asking| looking.turn(asking)).map(Came::Answered)
                }
                // Nobody reads the answer.
                _ => Some(Came::Goes),
            };
            took += began.elapsed();
            let came = came?;
            // What is reserved for it was used until now.
            drop(looking.take());
            Some(Box::new(Looked { spoken: Spoken::default(), took, came }) as Box<dyn std::any::Any + Send>)
        });
        // The broker ends.
        let unanswered = Outcome::Close(ErrorCode::CoordinatorNotAvailable);
        if self.gateway.broker.unpack(self.peer.ip(), self.to, work) { Outcome::Wait(wait) } else { unanswered }
    }
}

/// A request, with all of its connection that it asks for.
struct Long {
    api: &'static Api,
    gateway: Arc<Gateway>,
    to: ReplyTo,
    version: i16,
    client_id: Option<Str>,
    user: Option<Arc<User>>,
    certified: Option<Box<str>>,
    local: SocketAddr,
    peer: SocketAddr,
    advertise: Arc<Advertise>,
    now: Instant,
    waits: Arc<Waits>,
    seen: Arc<ClientConnection>,
    /// What the client is told that it waits for.
    throttled: i32,
    /// What is reserved for its items.
    room: Option<Arc<dyn RequestRoom>>,
    reader: Reader,
    /// Bytes of the request.
    length: usize,
}

/// What came of one.
struct Looked {
    /// What it tells of the connection.
    spoken: Spoken,
    took: Duration,
    came: Came,
}

/// What a request has come to.
enum Came {
    Answered(JobBody),
    /// There is more to be looked at, and another reply comes.
    Goes,
    /// The rest needs the connection.
    Rests(Resume),
}

/// Hands a request over.
fn hand_over(long: Long) -> Outcome {
    let gone = Arc::new(AtomicBool::new(false));
    let wait = Box::new(LongWait { gone: Arc::clone(&gone), then: None });
    let (broker, address, to) = (Arc::clone(&long.gateway.broker), long.peer.ip(), long.to);
    let mut long = Some(long);
    // One turn, whatever it takes: what it asks for is bounded by its bytes.
    let work = Box::new(move |_: &Arc<broker::Broker>| {
        let looked = match long.take().filter(|_| !gone.load(Ordering::Relaxed)) {
            Some(long) => long.look(&gone),
            None => Looked { spoken: Spoken::default(), took: Duration::ZERO, came: Came::Goes },
        };
        Some(Box::new(looked) as Box<dyn std::any::Any + Send>)
    });
    // The broker ends.
    let unanswered = Outcome::Close(ErrorCode::CoordinatorNotAvailable);
    if broker.unpack(address, to, work) { Outcome::Wait(wait) } else { unanswered }
}

impl Session {
    /// Has a long request handled by other threads.
    pub(super) fn hand_over(
        &self,
        api: &'static Api,
        header: &RequestHeader,
        (reader, length): (Reader, usize),
        room: Option<Arc<dyn RequestRoom>>,
        now: Instant,
    ) -> Outcome {
        hand_over(Long {
            api,
            gateway: Arc::clone(&self.gateway),
            to: self.next_reply_to(),
            version: header.api_version,
            client_id: header.client_id.clone(),
            user: self.sasl.as_ref().and_then(|sasl| sasl.user()).cloned(),
            certified: self.certified.clone(),
            local: self.local,
            peer: self.peer,
            advertise: Arc::clone(&self.advertise),
            now,
            waits: Arc::clone(&self.waits),
            seen: Arc::clone(&self.seen),
            throttled: self.throttle.told_ms(now),
            room,
            reader,
            length,
        })
    }
}

impl Long {
    fn look(mut self, gone: &Arc<AtomicBool>) -> Looked {
        let began = Instant::now();
        let (mut shard, mut refused, mut spoken, mut throttle) =
            (ShardContext::default(), Default::default(), Spoken::default(), Throttle::default());
        let access = Access::new(self.gateway.broker.security());
        let mut context = Context {
            gateway: &self.gateway,
            shard: &mut shard,
            to: self.to,
            version: self.version,
            client_id: self.client_id.as_deref().unwrap_or_default(),
            user: self.user.as_ref(),
            certified: self.certified.as_deref(),
            access: &access,
            local: self.local,
            peer: self.peer,
            advertise: &self.advertise,
            now: self.now,
            alone: false,
            room: self.room.as_ref(),
            length: self.length,
            gone: Some(gone),
            refused: &mut refused,
            spoken: &mut spoken,
            throttle: &mut throttle,
            waits: &self.waits,
            seen: &self.seen,
        };
        let answered = |body: JobBody| Came::Answered(body);
        let came = match self.api.handle(&mut self.reader, &mut context) {
            Ok(Outcome::Answer(mut body) | Outcome::Downgraded(mut body)) => {
                if self.throttled > 0 {
                    body.set_throttle(self.throttled);
                }
                answered(Box::new(Encoded::new(&*body, self.version)))
            }
            // Its reply will be for the same wait.
            Ok(Outcome::Wait(_)) => Came::Goes,
            Ok(Outcome::Resume(rest)) => Came::Rests(rest),
            Ok(Outcome::Silent | Outcome::Long) => answered(Box::new(Silence { refused: None })),
            Ok(Outcome::Close(code)) => answered(Box::new(Silence { refused: Some(code) })),
            Err(error) => answered(Box::new(Malformed(error))),
        };
        Looked { spoken, took: began.elapsed(), came }
    }
}

/// Waits for it.
struct LongWait {
    /// The connection is.
    gone: Arc<AtomicBool>,
    /// What its rest waits for.
    then: Option<Box<dyn Wait>>,
}

impl Wait for LongWait {
    fn holds_reading(&self) -> bool {
        true
    }

    fn cause(&self) -> Cause {
        self.then.as_ref().map_or(Cause::Coordinator, |then| then.cause())
    }

    fn look(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        self.then.as_mut().and_then(|then| then.look(context))
    }

    fn deadline(&self) -> Option<Instant> {
        self.then.as_ref().and_then(|then| then.deadline())
    }

    fn hasten(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        self.then.as_mut().and_then(|then| then.hasten(context))
    }

    fn cancel(&mut self, connection: ConnectionId, shard: &mut ShardContext) {
        self.gone.store(true, Ordering::Relaxed);
        if let Some(then) = &mut self.then {
            then.cancel(connection, shard);
        }
    }

    fn handle_reply(&mut self, part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if let Some(then) = &mut self.then {
            return then.handle_reply(part, reply, context);
        }
        let Reply::Done(done) = reply else { return None };
        let looked = match done.downcast::<Looked>() {
            Ok(looked) => looked,
            // Of what was left to be looked at.
            Err(done) => return done.downcast::<JobBody>().ok().map(|body| *body),
        };
        context.spoken.ask_as(&looked.spoken);
        if context.throttle.is_timed() {
            context.throttle.take(
                context.gateway.broker.quotas(),
                QuotaKey::RequestPercentage,
                looked.took.as_nanos() as u64,
                context.now,
            );
        }
        match looked.came {
            Came::Answered(body) => Some(body),
            Came::Goes => None,
            Came::Rests(rest) => match rest(context).resumed(context) {
                Outcome::Answer(body) | Outcome::Downgraded(body) => Some(body),
                Outcome::Wait(then) => self.then.insert(then).look(context),
                Outcome::Silent | Outcome::Resume(_) | Outcome::Long => Some(Box::new(Silence { refused: None })),
                Outcome::Close(code) => Some(Box::new(Silence { refused: Some(code) })),
            },
        }
    }
}

/// A body in bytes.
struct Encoded(Vec<Bytes>);

impl Encoded {
    fn new(body: &dyn Body, version: i16) -> Self {
        let mut writer = Writer::new();
        body.encode(&mut writer, version);
        Self(writer.finish())
    }
}

impl Body for Encoded {
    fn encode(&self, writer: &mut Writer, _version: i16) {
        writer.pieces(&self.0);
    }
}

/// There is no answer: the connection ends.
struct Malformed(DecodeError);

impl Body for Malformed {
    fn encode(&self, _writer: &mut Writer, _version: i16) {}

    fn malformed(&self) -> Option<DecodeError> {
        Some(self.0)
    }
}
