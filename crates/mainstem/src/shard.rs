//! A network shard: one thread, one current-thread runtime, the connections that were given to it for life.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use broker::{Cause, Event, Mailbox, Settings, SocketPoll, Waits};
use bytes::Bytes;
use hashbrown::HashSet;
use kafka_gateway::{Gateway, ShardContext};
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream as TokioStream;
use tokio::sync::{Notify, mpsc};
use types::{ConnectionId, LogId, ShardId};

use crate::admission::Place;
use crate::certificate::user_name;
use crate::closings::{Closed, Closings, OneLine, Reason};
use crate::connection::{self, HangUp};
use crate::frames::FramePool;
use crate::input::Late;
use crate::pace::PaceRules;
use crate::protocol::{Protocol, Session};
use crate::read_room::ReadMemory;
use crate::resting::{Activity, Resting};
use crate::stream::Stream;
use crate::tls::Tls;
use crate::turns::{Standing, Turns};

/// Blocking a shard for longer than this is counted.
const BLOCKED_FROM: Duration = Duration::from_millis(5);
/// Logs that have advanced are told of for so long at once.
const MAIL_TIME: Duration = Duration::from_millis(1);

/// Between looks whether connections have ended while the node stops.
const DRAIN_LOOK: Duration = Duration::from_millis(2);

/// A connection on its way to a shard.
pub struct Arrival {
    /// Accepted, not yet registered anywhere.
    pub stream: TcpStream,
    /// What its client speaks.
    pub protocol: Protocol,
    /// Number of the connection.
    pub id: ConnectionId,
    /// It begins with a handshake of TLS.
    pub tls: Option<Arc<Tls>>,
    /// Among those that may connect.
    pub place: Place,
}

/// What all shards share.
pub struct Shared {
    /// The Kafka side.
    pub gateway: Arc<Gateway>,
    /// The AMQP side.
    pub amqp: Arc<amqp_gateway::Gateway>,
    /// Memory for requests.
    pub frames: Arc<FramePool>,
    /// … and for the buffers that small ones are read into.
    pub read_memory: Arc<ReadMemory>,
    /// Counts turns that took too long.
    pub blocked: Counter,
    /// … and connections that were closed.
    pub closed: Closed,
    /// How long connections may take for what.
    pub times: Times,
}

/// Settings about time.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A connection of a Kafka client may be idle so long; `None` for ever.
    pub idle_max: Option<Duration>,
    /// For the handshake of TLS.
    pub tls_handshake: Duration,
    /// For a request.
    pub pace: PaceRules,
}

impl Times {
    /// Those of the settings.
    pub fn of(settings: &Settings) -> Self {
        let millis = |name| u64::try_from(settings.int(name)).ok().map(Duration::from_millis);
        Self {
            idle_max: millis("connections.max.idle.ms"),
            tls_handshake: millis("ssl_handshake_timeout").unwrap_or_default(),
            pace: PaceRules::of(settings),
        }
    }
}

/// The acceptor's end of a shard.
pub struct ShardHandle {
    /// Where connections go.
    pub arrivals: mpsc::UnboundedSender<Arrival>,
    /// Open connections.
    pub connections: Arc<AtomicUsize>,
    /// Time spent in turns since the start, in ns.
    pub busy: Arc<AtomicU64>,
    /// Ends the shard once its connections are idle.
    pub drain: Arc<Notify>,
    /// To be joined.
    pub thread: std::thread::JoinHandle<()>,
}

/// A connection as its shard sees it.
pub struct Connection {
    /// The protocol's state.
    pub session: RefCell<Session>,
    /// Something may be sent, or read again.
    pub wake: Arc<Notify>,
    /// Among those that may connect.
    pub place: Place,
    /// Where its time goes.
    pub waits: Arc<Waits>,
    /// Among those that share the thread.
    pub standing: Standing,
    id: ConnectionId,
    /// Whether it has rested.
    pub activity: Activity,
    /// Its own task is at work on it, and looks at the session when it is done.
    served: Cell<bool>,
}

impl Connection {
    /// Works on it in its own task, which is not to be woken for what happens meanwhile.
    pub fn serving<T>(&self, work: impl FnOnce() -> T) -> T {
        self.served.set(true);
        let outcome = work();
        self.served.set(false);
        outcome
    }

    /// Its session has something to do.
    fn wake(&self) {
        if !self.served.get() {
            self.wake.notify_one();
        }
    }
}

/// State of one shard, used by its thread only.
pub struct Shard {
    /// What it shares with the others.
    pub shared: Arc<Shared>,
    /// For sessions.
    pub context: RefCell<ShardContext>,
    connections: RefCell<hashbrown::HashMap<ConnectionId, Rc<Connection>>>,
    mailbox: Arc<Mailbox>,
    events: RefCell<Vec<Event>>,
    advanced: RefCell<Advances>,
    /// Connections that wait for records which have come, for which there was no time.
    late_wakes: RefCell<VecDeque<ConnectionId>>,
    /// Dropped once what has come on sockets is read.
    socket_polls: RefCell<Vec<Arc<SocketPoll>>>,
    has_socket_polls: Notify,
    bell: Arc<Notify>,
    /// Who is served next.
    pub turns: Turns,
    resting: Resting,
    busy: Arc<AtomicU64>,
    count: Arc<AtomicUsize>,
    id: ShardId,
    /// Connections whose handshake of TLS is under way, or whose client has only to hang up.
    unserved: Cell<usize>,
    closings: Closings,
    /// The node stops: nothing more is read, what was asked is answered.
    pub draining: Cell<bool>,
}

/// Logs that have advanced and are to be told of. Each is there once, however often it has: replies, which stand behind none of them, would wait for ever longer otherwise.
#[derive(Default)]
struct Advances {
    line: VecDeque<LogId>,
    known: HashSet<LogId>,
}

impl Advances {
    fn note(&mut self, log: LogId) {
        if self.known.insert(log) {
            self.line.push_back(log);
        }
    }

    fn take(&mut self) -> Option<LogId> {
        let log = self.line.pop_front()?;
        self.known.remove(&log);
        Some(log)
    }
}

/// Starts a shard.
pub fn start(id: ShardId, shared: Arc<Shared>, broker: &broker::Broker) -> std::io::Result<ShardHandle> {
    let (arrivals, incoming) = mpsc::unbounded_channel();
    let bell = Arc::new(Notify::new());
    let ring = Arc::clone(&bell);
    let mailbox = Arc::new(Mailbox::new(Box::new(move || ring.notify_one())));
    broker.add_shard(id, Arc::clone(&mailbox));
    let connections = Arc::new(AtomicUsize::new(0));
    let drain = Arc::new(Notify::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(31).build()?;
    let busy = Arc::new(AtomicU64::new(0));
    broker.waits().add_thread(Arc::clone(&busy));
    let (count, drained, busy_here) = (Arc::clone(&connections), Arc::clone(&drain), Arc::clone(&busy));
    let thread = std::thread::Builder::new().name(format!("shard-{}", id.0)).spawn(move || {
        let shard = Rc::new(Shard {
            shared,
            context: RefCell::default(),
            connections: RefCell::default(),
            mailbox,
            events: RefCell::default(),
            advanced: RefCell::default(),
            late_wakes: RefCell::default(),
            socket_polls: RefCell::default(),
            has_socket_polls: Notify::new(),
            bell: Arc::clone(&bell),
            turns: Turns::default(),
            resting: Resting::default(),
            busy: busy_here,
            count,
            id,
            unserved: Cell::new(0),
            closings: Closings::default(),
            draining: Cell::new(false),
        });
        let local = tokio::task::LocalSet::new();
        local.spawn_local(Rc::clone(&shard).deliver_mail(bell));
        local.spawn_local(Rc::clone(&shard).have_rest());
        local.spawn_local(Rc::clone(&shard).poll_sockets());
        local.block_on(&runtime, shard.run(incoming, drained));
    })?;
    Ok(ShardHandle { arrivals, connections, busy, drain, thread })
}

impl Shard {
    async fn run(self: Rc<Self>, mut incoming: mpsc::UnboundedReceiver<Arrival>, drain: Arc<Notify>) {
        loop {
            tokio::select! {
                arrival = incoming.recv() => match arrival {
                    Some(arrival) => {
                        let began = Instant::now();
                        self.accept(arrival);
                        self.turns.spend(began.elapsed());
                        // Hundreds may come at once.
                        self.turns.pause_if_due().await;
                    }
                    None => return,
                },
                () = drain.notified() => break,
            }
        }
        self.draining.set(true);
        while let Ok(arrival) = incoming.try_recv() {
            drop(arrival);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        let now = Instant::now();
        for connection in self.connections.borrow().values() {
            connection.session.borrow_mut().drain(&mut self.context.borrow_mut(), now);
            connection.wake.notify_one();
        }
        // Each connection ends when what is due has been sent and read; who is still shaking hands, or has only to hang up, is not waited for.
        while self.count.load(Ordering::Relaxed) > self.unserved.get() {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    fn accept(self: &Rc<Self>, arrival: Arrival) {
        let (Ok(local), Ok(peer)) = (arrival.stream.local_addr(), arrival.stream.peer_addr()) else {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let _ = arrival.stream.set_nodelay(true);
        let stream = match arrival.stream.set_nonblocking(true).and_then(|()| TokioStream::from_std(arrival.stream)) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, %peer, "connection cannot be served");
                self.count.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        };
        let asks = arrival.protocol.asks();
        let session = Session::new(arrival.protocol, &self.shared, self.id, arrival.id, local, peer);
        let waits = Arc::clone(session.waits());
        let (session, served) = (RefCell::new(session), Cell::new(false));
        let standing = self.turns.stand(arrival.place.address());
        let (wake, id, activity) = (Arc::default(), arrival.id, Activity::default());
        let connection =
            Rc::new(Connection { session, wake, place: arrival.place, waits, standing, id, activity, served });
        self.connections.borrow_mut().insert(arrival.id, Rc::clone(&connection));
        tokio::task::spawn_local(Rc::clone(self).serve(arrival.id, peer, connection, (stream, arrival.tls, asks)));
    }

    async fn serve(
        self: Rc<Self>,
        id: ConnectionId,
        peer: SocketAddr,
        connection: Rc<Connection>,
        socket: (TokioStream, Option<Arc<Tls>>, bool),
    ) {
        let _counted = Counted { shard: &self };
        let closing = Closing { shard: &self, id, connection: &connection };
        let stream = match socket {
            (stream, None, _) => Stream::Plain(stream),
            (stream, Some(tls), asks) => match self.shake_hands(stream, &tls, &connection).await {
                Ok(stream) => {
                    let certificate = stream.certificate();
                    let name = |part| certificate.as_ref().and_then(|certificate| user_name(certificate, part));
                    connection.session.borrow_mut().set_certified(name, tls.login_from(), Instant::now());
                    if !asks {
                        connection.place.known();
                    }
                    stream
                }
                Err(error) => {
                    if error.kind() == std::io::ErrorKind::TimedOut {
                        self.shared.closed.count(Reason::TlsHandshake);
                    }
                    self.note_closing(|| tracing::info!(%peer, error = %OneLine(&error), "connection closed: the handshake of TLS failed"));
                    return;
                }
            },
        };
        let end = connection::serve(&self, &connection, &stream).await;
        drop(closing);
        let hang_up = end.hang_up();
        if let Some(reason) = end.reason() {
            self.shared.closed.count(reason);
        }
        match end {
            connection::End::Broken => {
                tracing::error!(%peer, "connection closed: a request met a defect of the broker")
            }
            connection::End::Closed | connection::End::Ended | connection::End::Drained { .. } => {}
            connection::End::Idle => {
                tracing::debug!(%peer, "connection closed: nothing was asked on it for connections.max.idle.ms")
            }
            connection::End::Late(Late { arrived, needed }) => {
                let why = if needed {
                    "others wait for its memory"
                } else {
                    "its time is over (mainstem.frame.timeout.ms, mainstem.frame.byte.rate)"
                };
                self.note_closing(|| tracing::info!(%peer, arrived, "connection closed: a request that had begun did not come to its end, and {why}"));
            }
            connection::End::Refused(reason) if reason.is_ordinary() => {
                tracing::debug!(%peer, reason = %OneLine(&reason), "connection closed")
            }
            connection::End::Refused(reason) => self.note_closing(
                || tracing::info!(%peer, reason = %OneLine(&reason), "connection closed: request refused"),
            ),
            connection::End::Stalled => self.note_closing(
                || tracing::info!(%peer, "connection closed: the client does not read what it asked for"),
            ),
        }
        self.hang_up(&stream, &connection, hang_up).await;
    }

    /// Ends the stream of a connection that is served no more.
    async fn hang_up(&self, stream: &Stream, connection: &Connection, how: HangUp) {
        if matches!(how, HangUp::Client | HangUp::Answered) {
            self.unserved.set(self.unserved.get() + 1);
            tokio::select! {
                () = stream.await_hang_up(how == HangUp::Answered) => {}
                () = connection.place.displaced(), if connection.place.is_stranger() => {}
            }
            self.unserved.set(self.unserved.get() - 1);
        }
        match how {
            HangUp::Reset => stream.abort(),
            HangUp::Now => stream.close(),
            HangUp::Told | HangUp::Answered | HangUp::Client => stream.linger().await,
        }
    }

    /// Writes a line, unless there are too many.
    fn note_closing(&self, write: impl FnOnce()) {
        let Some(unwritten) = self.closings.may_write(Instant::now()) else { return };
        if unwritten > 0 {
            tracing::info!(connections = unwritten, "connections closed: more than are written");
        }
        write();
    }

    /// The handshake of TLS; what it takes of the thread is noted.
    async fn shake_hands(&self, socket: TokioStream, tls: &Tls, connection: &Connection) -> std::io::Result<Stream> {
        connection.waits.enter(Cause::Tls.bit(), Instant::now());
        let mut spent = Duration::ZERO;
        let mut shaking = std::pin::pin!(Stream::accept(socket, tls.config(), self.shared.times.tls_handshake));
        let outcome = std::future::poll_fn(|context| {
            let began = Instant::now();
            let polled = shaking.as_mut().poll(context);
            let took = began.elapsed();
            self.note_work(&connection.standing, took, began);
            spent += took;
            polled
        });
        self.unserved.set(self.unserved.get() + 1);
        let outcome = tokio::select! {
            outcome = outcome => outcome,
            () = connection.place.displaced() => Err(std::io::Error::other("another took its place")),
        };
        self.unserved.set(self.unserved.get() - 1);
        self.shared.gateway.broker().waits().add_handshake(self.id, spent);
        outcome
    }

    /// Has connections that have rested give back what they hold for the next request.
    async fn have_rest(self: Rc<Self>) {
        loop {
            self.resting.next().await;
            let now = Instant::now();
            let find = |id| self.connections.borrow().get(&id).map(Rc::clone);
            while self.resting.look(
                now,
                find,
                |connection| &connection.activity,
                |connection| connection.wake.notify_one(),
            ) {
                self.turns.pause().await;
            }
        }
    }

    /// Something was read or sent.
    pub fn note_use(&self, connection: &Connection, now: Instant) {
        self.resting.note_use(connection.id, &connection.activity, now);
    }

    async fn deliver_mail(self: Rc<Self>, bell: Arc<Notify>) {
        loop {
            bell.notified().await;
            self.deliver_pending(Instant::now());
            if self.has_late_mail() {
                self.turns.pause().await;
            }
        }
    }

    /// Answers [`SocketPoll`]s: all that have come by then with one look at the sockets.
    async fn poll_sockets(self: Rc<Self>) {
        loop {
            self.has_socket_polls.notified().await;
            let polls = self.socket_polls.take();
            // Connections that can be read by then are served before this goes on.
            self.turns.pause().await;
            drop(polls);
        }
    }

    /// Gives replies to the sessions they are for, and tells of logs that have advanced, of as many as there is time for. `now`: the clock was asked just before.
    /// When that was done; `None` when there was nothing.
    pub fn deliver_pending(&self, now: Instant) -> Option<Instant> {
        let mut events = self.events.take();
        self.mailbox.drain(&mut events);
        let any = !events.is_empty() || self.has_late_mail();
        let ended = any.then(|| {
            for event in events.drain(..) {
                self.deliver(event, now);
            }
            self.tell_of_advances(now);
            if self.has_late_mail() {
                self.bell.notify_one();
            }
            let took = now.elapsed();
            self.watch_time(took);
            now + took
        });
        self.events.replace(events);
        ended
    }

    /// Logs that have advanced, and connections that wait for them, while there is time. A queue gives out a thousand messages: the clock is asked for these alone.
    fn tell_of_advances(&self, now: Instant) {
        loop {
            let waiting = self.late_wakes.borrow_mut().pop_front();
            let next = if waiting.is_none() { self.advanced.borrow_mut().take() } else { None };
            // A defect met by one connection costs that connection, not the shard.
            let met = std::panic::catch_unwind(AssertUnwindSafe(|| match (waiting, next) {
                (Some(id), _) => self.tell_of_records(id, &mut self.context.borrow_mut(), now),
                (None, Some(log)) => self.tell_of_log(log, now),
                (None, None) => {}
            }));
            if met.is_err() {
                self.give_up(waiting);
            }
            if !self.has_late_mail() || now.elapsed() >= MAIL_TIME {
                return;
            }
        }
    }

    /// Are there events to be delivered?
    pub fn has_mail(&self) -> bool {
        !self.mailbox.is_empty() || self.has_late_mail()
    }

    fn has_late_mail(&self) -> bool {
        !self.advanced.borrow().line.is_empty() || !self.late_wakes.borrow().is_empty()
    }

    fn tell_of_log(&self, log: LogId, now: Instant) {
        self.shared.amqp.advanced(log, self.id);
        let mut context = self.context.borrow_mut();
        let mut watchers = context.watches.advanced(log).into_iter();
        while let Some(id) = watchers.next() {
            self.tell_of_records(id, &mut context, now);
            // A look may go through thousands of partitions.
            if watchers.len() > 0 && now.elapsed() >= MAIL_TIME {
                self.late_wakes.borrow_mut().extend(watchers);
                break;
            }
        }
    }

    fn tell_of_records(&self, id: ConnectionId, context: &mut ShardContext, now: Instant) {
        if let Some(connection) = self.connections.borrow().get(&id) {
            connection.session.borrow_mut().handle_wake(context, now);
            connection.wake();
        }
    }

    fn deliver(&self, event: Event, now: Instant) {
        match event {
            Event::Reply { to, reply } => {
                // A defect met by one connection costs that connection, not the shard.
                let met = std::panic::catch_unwind(AssertUnwindSafe(|| {
                    if let Some(connection) = self.connections.borrow().get(&to.connection) {
                        connection.session.borrow_mut().handle_reply(
                            to.token,
                            reply,
                            &mut self.context.borrow_mut(),
                            now,
                        );
                        connection.wake();
                    }
                }));
                if met.is_err() {
                    self.give_up(Some(to.connection));
                }
            }
            Event::Advanced(log) => self.advanced.borrow_mut().note(log),
            Event::PollSockets(poll) => {
                self.socket_polls.borrow_mut().push(poll);
                self.has_socket_polls.notify_one();
            }
            Event::Space => {
                for connection in self.connections.borrow().values() {
                    connection.session.borrow_mut().handle_space();
                    connection.wake();
                }
            }
        }
    }

    /// Ends the connection that met a defect; all of them when it is not known which.
    fn give_up(&self, id: Option<ConnectionId>) {
        let connections = self.connections.borrow();
        for (_, connection) in connections.iter().filter(|(other, _)| id.is_none_or(|id| id == **other)) {
            connection.session.borrow_mut().set_broken();
            connection.wake.notify_one();
        }
    }

    /// Notes a turn: how busy the shard is, and whether it kept everybody else waiting.
    fn watch_time(&self, took: Duration) {
        self.busy.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        self.turns.spend(took);
        if took > BLOCKED_FROM {
            self.shared.blocked.inc();
        }
    }

    /// Notes the turn of a connection, which began at `started`; returns how long it was.
    pub fn end_turn(&self, standing: &Standing, started: Instant) -> Duration {
        let took = started.elapsed();
        self.note_work(standing, took, started);
        took
    }

    fn note_work(&self, standing: &Standing, took: Duration, started: Instant) {
        self.watch_time(took);
        self.turns.charge(standing, took, started);
    }
}

/// A connection that counts until its socket is closed.
struct Counted<'a> {
    shard: &'a Shard,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.shard.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a connection out of its shard, however its serving ends.
struct Closing<'a> {
    shard: &'a Shard,
    id: ConnectionId,
    connection: &'a Connection,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.connection.session.borrow_mut().close(&mut self.shard.context.borrow_mut());
        self.shard.connections.borrow_mut().remove(&self.id);
    }
}

/// Answers that wait for the socket.
pub type Outgoing = VecDeque<Bytes>;
