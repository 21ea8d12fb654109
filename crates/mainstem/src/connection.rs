//! One connection's I/O: what comes goes to its session ([`input`](crate::input)), answers go out. The session decides; this only
//! moves bytes.

use std::io::{ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use broker::Cause;
use bytes::{Buf, Bytes};
use kafka_gateway::MemoryPressure;
use tokio::io::Interest;

use crate::closings::Reason;
use crate::idle::Idle;
use crate::input::{Input, Late, Reads, frames, make_room, receive};
use crate::protocol::{Refusal, Rest};
use crate::shard::{Connection, Outgoing, Shard};
use crate::stream::{Peer, Stream};
use crate::turns::TURN_TIME;

/// After a request that ends the connection what was asked before may be answered for this long. What an AMQP client has published before it closed its
/// side may wait for the journals for as long.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// What was sent within this time may still be on its way to the client.
const JUST_SENT: Duration = Duration::from_secs(1);
/// A socket that takes nothing for this long, while answers wait, is closed …
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// … or for this long, when such answers hold much of the memory …
const STALLED_AFTER_SCARCE: Duration = Duration::from_secs(1);
/// … or for this long, when they hold all of it and others wait for theirs.
const STALLED_AFTER_FULL: Duration = Duration::from_millis(200);
/// Who takes so much meanwhile is slow, and has not stalled.
const TAKEN_LEAST: u64 = 64 << 10;
/// Whether a client is still there is looked at so often while nothing of it is read.
const LOOK_AFTER: Duration = Duration::from_secs(10);
/// Slices of one vectored write.
const SLICES_MAX: usize = 64;
/// Bytes sent in one turn: with 256 KiB clients wake up more often, which costs broker and client a third more.
const SEND_TURN_BYTES: usize = 2 << 20;
/// … and written at once, before the clock is asked: a socket takes this within less than a turn's time, also where nobody reads at the other end.
const SEND_PIECE_BYTES: usize = 512 << 10;
/// Bytes of answers that may wait for the socket before no more requests are read: one large answer of a connection is enough.
const OUTGOING_BYTES_MAX: usize = 64 << 10;

/// How a connection ended.
pub enum End {
    /// The client went, or the network did: it reads no more.
    Closed,
    /// The client says that no more comes. It may have gone, or still read the answers to what it has asked.
    Ended,
    /// A request made no sense.
    Refused(Refusal),
    /// The client does not read.
    Stalled,
    /// A request of it did not come in time.
    Late(Late),
    /// It has asked for nothing for too long.
    Idle,
    /// A request of it met a defect of ours.
    Broken,
    /// The node stops, and what was asked has been answered.
    Drained {
        /// Something was sent just now that the client is to read.
        told: bool,
    },
}

impl End {
    /// For those who count.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Idle => Some(Reason::Idle),
            Self::Late(Late { needed, .. }) => Some(if *needed { Reason::Memory } else { Reason::Unfinished }),
            Self::Stalled => Some(Reason::Unread),
            Self::Refused(refusal) if refusal.is_late() => Some(Reason::Login),
            Self::Closed | Self::Ended | Self::Refused(_) | Self::Broken | Self::Drained { .. } => None,
        }
    }

    /// Who hangs up, and when.
    pub fn hang_up(&self) -> HangUp {
        match self {
            Self::Refused(refusal) if refusal.is_for_client_to_end() => HangUp::Client,
            Self::Refused(refusal) if refusal.awaits_answer() => HangUp::Answered,
            // The answers to what was asked before are to be read, and what is there of a request that is not taken would reset the connection.
            Self::Refused(_) | Self::Late(_) | Self::Drained { told: true } => HangUp::Told,
            Self::Stalled => HangUp::Reset,
            Self::Closed | Self::Ended | Self::Idle | Self::Broken | Self::Drained { told: false } => HangUp::Now,
        }
    }
}

/// How the socket of a connection that has ended is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// At once, and what was sent and not taken is forgotten.
    Reset,
    /// At once: nothing more is read on the other side, or nothing was sent.
    Now,
    /// By us; the client is to read what it was sent, while it may still be sending.
    Told,
    /// As `Told`, once the client has answered, in time.
    Answered,
    /// By the client, in time.
    Client,
}

/// Serves a connection to its end.
#[expect(
    clippy::too_many_lines,
    reason = "the steps of one loop in their order, over a dozen of variables that most of them read and set"
)]
pub async fn serve(shard: &Shard, connection: &Connection, stream: &Stream) -> End {
    let mut input = Input::new(&shard.shared.read_memory);
    let mut outgoing = Outgoing::new();
    let mut last_progress = Instant::now();
    let mut taken = Taken::default();
    let mut idle =
        Idle::new(shard.shared.times.idle_max.filter(|_| connection.session.borrow().ends_when_idle()), last_progress);
    // What ends the connection, and until when what was asked before may be answered.
    let mut last = Last::default();
    let (mut turn_ends, mut last_sent) = (false, None);
    // Since when others wait for it to pause.
    let mut turn: Option<Instant> = None;
    // When its socket was read last, or looked at.
    let mut last_look = last_progress;
    // The clock was asked just now.
    let mut asked: Option<Instant> = None;
    loop {
        connection.session.borrow_mut().poll_transmit(&mut outgoing);
        let mut now = asked.take().unwrap_or_else(Instant::now);
        // Sending much is work like any other.
        let sending = if waiting_bytes(&outgoing) >= OUTGOING_BYTES_MAX {
            shard.turns.next(&connection.standing, now).await
        } else {
            None
        };
        if sending.is_some() {
            now = Instant::now();
        }
        match last.send(stream, &mut outgoing, now) {
            Ok(0) => {}
            Ok(sent) => {
                last_progress = now;
                taken.sent += sent as u64;
                last_sent = Some(now);
                idle.note_activity(now);
                shard.note_use(connection, now);
                input.note_sent(sent);
                let took = shard.end_turn(&connection.standing, now);
                if (sent >= SEND_TURN_BYTES || took >= TURN_TIME) && !outgoing.is_empty() {
                    drop(sending);
                    shard.turns.pause().await;
                    turn = None;
                    continue;
                }
            }
            Err(_) => {
                let Some(end) = last.postpone(End::Closed, connection, false) else { continue };
                return end;
            }
        }
        drop(sending);
        // Requests of a few bytes, each answered and sent before the next one is looked at, are not read for a long time.
        let is_long = now.saturating_duration_since(*turn.get_or_insert(now)) >= TURN_TIME;
        if std::mem::take(&mut turn_ends) || is_long {
            shard.turns.pause().await;
            turn = None;
        }
        let sends = !last.unheard && (!outgoing.is_empty() || stream.wants_write());
        // Answers that wait for another one, for which nobody knows how long that takes, are as much in the way as those that nobody reads.
        let holds = sends || connection.session.borrow().holds_answers();
        if !holds || !sends && shard.shared.gateway.memory_pressure() == MemoryPressure::None {
            last_progress = now;
        } else if is_stalled(shard, last_progress, now) {
            if !taken.goes_on(stream) {
                let Some(end) = last.postpone(End::Stalled, connection, sends) else { continue };
                return end;
            }
            last_progress = now;
        }
        // Requests that there was no time for, or that stand behind one which had to wait, stand in line with those that have come since.
        let behind = input.holds_requests() && connection.session.borrow().wants_read();
        let more = connection.session.borrow().goes_on();
        let goes_on = input.interrupted || behind || more;
        let mut own = if goes_on { shard.turns.next(&connection.standing, now).await } else { None };
        let began = if goes_on { Instant::now() } else { now };
        if more {
            connection.serving(|| connection.session.borrow_mut().go_on(&mut shard.context.borrow_mut(), began));
        }
        judge_login(shard, connection, &mut last, now);
        let answered = !sends && connection.session.borrow().is_idle();
        if let Some(end) = is_over(shard, connection, &mut last, answered.then_some(last_sent)) {
            return end;
        }
        let open = last.is_open() && !shard.draining.get();
        let may_read = open && has_room(connection, &outgoing);
        // Complete frames may be waiting in the buffer since reading was held back.
        let met = if may_read { frames(shard, connection, &mut input, None) } else { None };
        if goes_on {
            shard.end_turn(&connection.standing, began);
            own.take();
        }
        if let Some(end) = met {
            let Some(end) = last.postpone(end, connection, sends) else { continue };
            return end;
        }
        // The node may be stopping: what has come is answered.
        match make_room(shard, connection, &mut input, !last.is_open()) {
            Ok(false) => {}
            Ok(true) => {
                turn_ends = true;
                continue;
            }
            Err(end) => {
                let Some(end) = last.postpone(end, connection, sends) else { continue };
                return end;
            }
        }
        if may_read && input.interrupted || connection.session.borrow().goes_on() {
            // What was answered is sent, and others have their turn.
            turn_ends = true;
            continue;
        }
        let wanted = may_read && connection.session.borrow().wants_read();
        let memory = input.waits_for_memory(wanted, &connection.wake);
        if memory {
            connection.session.borrow_mut().note_unread(now);
        }
        let state = match wanted {
            true if !memory => Reads::Yes,
            false if open && !may_read && connection.session.borrow().wants_read() => Reads::BehindAnswers,
            _ => Reads::No,
        };
        if !last.unheard
            && let Some(late) = input.judge(shard, connection.place.requests(), state, now)
        {
            let Some(end) = last.postpone(End::Late(late), connection, sends) else { continue };
            return end;
        }
        if connection.session.borrow_mut().poll_transmit(&mut outgoing) {
            continue;
        }
        let reads = wanted && !memory;
        if let Some(end) = judge_unread(shard, (connection, stream), reads, (&mut last_look, &idle), now) {
            let Some(end) = last.postpone(end, connection, sends) else { continue };
            return end;
        }
        note_waits(connection, sends, memory, now);
        input.give_way();
        if connection.activity.take_rest() {
            rest(connection, &mut input, &mut outgoing);
        }
        idle.look_by(input.next_look(shard));
        let own = own_timeouts(holds, last.until()).chain((!reads).then(|| last_look + LOOK_AFTER));
        let wake_at = connection.session.borrow().next_timeout().into_iter().chain(own).min();
        let happened = wait(connection, stream, interest(reads, sends), wake_at, &mut idle).await;
        turn = None;
        match happened {
            Happened::Readable => {
                let ready = Instant::now();
                let own = shard.turns.next(&connection.standing, ready).await;
                let now = if own.is_some() { Instant::now() } else { ready };
                idle.note_activity(now);
                shard.note_use(connection, now);
                let (end, delivered) = take_turn(shard, connection, stream, &mut input, now);
                drop(own);
                asked = delivered;
                let delivered = delivered.is_some();
                if !delivered && !input.drained {
                    shard.turns.pause().await;
                }
                if let Some(end) = end.and_then(|end| last.postpone(end, connection, sends)) {
                    return end;
                }
                turn_ends = delivered && !input.drained || input.interrupted;
                // Who always sends something is looked at, too.
                if wake_at.is_some_and(|at| at <= now) {
                    connection.session.borrow_mut().handle_wake(&mut shard.context.borrow_mut(), now);
                }
            }
            Happened::Something => {}
            Happened::Gone => {
                if let Some(end) = last.postpone(End::Closed, connection, false) {
                    return end;
                }
            }
            Happened::Time => {
                connection.session.borrow_mut().handle_wake(&mut shard.context.borrow_mut(), Instant::now())
            }
            Happened::Alarm => {
                if idle.is_over(is_busy(connection, sends, &input), Instant::now())
                    && let Some(end) = last.postpone(End::Idle, connection, sends)
                {
                    return end;
                }
            }
        }
    }
}

/// Nothing was read or sent for a while: what was kept for the next request and answer is freed.
fn rest(connection: &Connection, input: &mut Input, outgoing: &mut Outgoing) {
    input.rest();
    if outgoing.is_empty() {
        *outgoing = Outgoing::new();
    }
    connection.session.borrow_mut().rest();
}

/// Is something under way, so that it is not idle?
fn is_busy(connection: &Connection, sends: bool, input: &Input) -> bool {
    sends || input.is_unfinished() || !connection.session.borrow().is_idle()
}

/// What a connection has waited for.
enum Happened {
    /// Bytes, or an end, have come.
    Readable,
    /// More can be sent, or the session has something to do.
    Something,
    /// The socket has failed, or another has its place.
    Gone,
    /// The time that was given is there.
    Time,
    /// It is to be asked whether it has been idle for too long; what has begun is judged in any case.
    Alarm,
}

/// Waits until something happens.
async fn wait(
    connection: &Connection,
    stream: &Stream,
    interest: Option<Interest>,
    wake_at: Option<Instant>,
    idle: &mut Idle,
) -> Happened {
    tokio::select! {
        biased;
        ready = async { stream.ready(interest.unwrap_or(Interest::READABLE)).await }, if interest.is_some() => match ready {
            Ok(ready) if ready.is_readable() => Happened::Readable,
            Ok(_) => Happened::Something,
            Err(_) => Happened::Gone,
        },
        () = connection.wake.notified() => Happened::Something,
        () = connection.place.displaced(), if connection.place.is_stranger() => Happened::Gone,
        () = sleep_until(wake_at), if wake_at.is_some() => Happened::Time,
        () = idle.alarm(), if idle.is_set() => Happened::Alarm,
    }
}

/// Says what the connection waits for. Who has yet to take what was sent, or waits for memory, is not one who asks for nothing.
fn note_waits(connection: &Connection, sends: bool, no_memory: bool, now: Instant) {
    let causes = connection.session.borrow().causes();
    let own = if sends { Cause::Reader.bit() } else { 0 } | if no_memory { Cause::Memory.bit() } else { 0 };
    connection.waits.enter(if own == 0 { causes } else { own | causes & !Cause::Client.bit() }, now);
}

/// Looks now and then at a client of which nothing is read (`reads`); `last_look`: when, or when something was read.
///
/// One that has closed its side is answered as before: it may read. It has gone when the system says that it takes no more, which is found by a write or by
/// keep-alive: what it waits for is dropped. What it had sent that needs no answer is there still, and is read when its time has come, unless nothing is
/// read or taken for `connections.max.idle.ms`.
fn judge_unread(
    shard: &Shard,
    (connection, stream): (&Connection, &Stream),
    reads: bool,
    (last_look, idle): (&mut Instant, &Idle),
    now: Instant,
) -> Option<End> {
    let looks = !reads && now.saturating_duration_since(*last_look) >= LOOK_AFTER;
    if reads || looks {
        *last_look = now;
    }
    match looks.then(|| stream.peer())? {
        Peer::Gone if connection.session.borrow().awaits_answer() => Some(End::Closed),
        Peer::Gone | Peer::SendsNoMore => {
            shard.shared.times.idle_max.is_some_and(|max| idle.quiet(now) >= max).then_some(End::Idle)
        }
        Peer::There => None,
    }
}

/// Is there nothing more to be done? `answered`: everything is, and when something was sent last.
fn is_over(shard: &Shard, connection: &Connection, last: &mut Last, answered: Option<Option<Instant>>) -> Option<End> {
    if connection.session.borrow().is_broken() {
        return Some(End::Broken);
    }
    if let Some((end, _)) =
        last.end.take_if(|(_, until)| answered.is_some() || until.is_some_and(|until| Instant::now() >= until))
    {
        return Some(end);
    }
    let last_sent = answered.filter(|_| shard.draining.get())?;
    Some(End::Drained { told: last_sent.is_some_and(|at| at.elapsed() < JUST_SENT) })
}

/// Who has said who he is counts as a stranger no more; whom the session does not want any longer is refused.
fn judge_login(shard: &Shard, connection: &Connection, last: &mut Last, now: Instant) {
    if connection.place.is_stranger() && connection.session.borrow().is_known() {
        connection.place.known();
        if let Some(name) = connection.session.borrow().user() {
            shard.turns.known(&connection.standing, name, connection.place.address());
        }
    }
    // Taken in any case: until it is, the session asks to be looked at again at once. A client that sends no more, and reads, is refused like others.
    let refusal = connection.session.borrow_mut().take_refusal(now);
    if let Some(reason) = refusal.filter(|_| !matches!(last.end, Some((End::Refused(_), _)))) {
        last.end = Some((End::Refused(reason), Some(now + LAST_ANSWERS)));
    }
}

/// Reads, and delivers what was committed on the spot: that is answered before others have their turn, which then is to end. The time when it was delivered.
fn take_turn(
    shard: &Shard,
    connection: &Connection,
    stream: &Stream,
    input: &mut Input,
    now: Instant,
) -> (Option<End>, Option<Instant>) {
    let (end, delivered) = connection.serving(|| {
        let (end, ended) = receive(shard, connection, stream, input, now);
        (end, shard.deliver_pending(ended))
    });
    if input.drained && input.waits_for_a_rest() {
        stream.acknowledge();
    }
    (end, delivered)
}

/// Has the client read nothing of what waits for it for too long?
fn is_stalled(shard: &Shard, last_progress: Instant, now: Instant) -> bool {
    let elapsed = now.saturating_duration_since(last_progress);
    elapsed >= STALLED_AFTER_FULL && elapsed >= patience(shard)
}

/// What a client has taken of what it was sent.
#[derive(Default)]
struct Taken {
    /// Bytes that the socket has.
    sent: u64,
    /// Those that the client had taken when it was last asked.
    taken: u64,
}

impl Taken {
    /// Has it taken a part since it was last asked? A socket says that it has room when a third of its buffer is free, which on a slow line takes longer than
    /// memory can be waited for.
    fn goes_on(&mut self, stream: &Stream) -> bool {
        let taken = self.sent.saturating_sub(stream.untaken());
        let goes_on = taken >= self.taken + TAKEN_LEAST;
        self.taken = taken;
        goes_on
    }
}

/// Waits, and asks the clock for nothing before it has to.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// When a connection is to be looked at again whatever its session wants: the client may have stalled, the time for the answers
/// before a refusal may be over.
fn own_timeouts(holds: bool, ends_at: Option<Instant>) -> impl Iterator<Item = Instant> {
    let stalls = holds.then(|| Instant::now() + STALLED_AFTER_FULL);
    [stalls, ends_at].into_iter().flatten()
}

/// How long a client may read nothing while answers wait for it.
fn patience(shard: &Shard) -> Duration {
    match shard.shared.gateway.memory_pressure() {
        MemoryPressure::None => STALLED_AFTER,
        MemoryPressure::Scarce => STALLED_AFTER_SCARCE,
        MemoryPressure::Full => STALLED_AFTER_FULL,
    }
}

/// May more be read, beside what waits for the socket?
fn has_room(connection: &Connection, outgoing: &Outgoing) -> bool {
    waiting_bytes(outgoing) < OUTGOING_BYTES_MAX || connection.session.borrow().reads_while_sending()
}

/// Bytes that wait for the socket, or as many as matter.
fn waiting_bytes(outgoing: &Outgoing) -> usize {
    let mut bytes = 0;
    outgoing
        .iter()
        .map(Bytes::len)
        .take_while(|piece| {
            bytes += piece;
            bytes < OUTGOING_BYTES_MAX
        })
        .count();
    bytes
}

/// What a connection still does when nothing more of it is read.
#[derive(Default)]
struct Last {
    /// How it ends then, and when at the latest; `None`: when all is answered, as long as its client takes the answers.
    end: Option<(End, Option<Instant>)>,
    /// Nothing more is said to the client.
    unheard: bool,
}

impl Last {
    /// Has nothing ended the connection?
    fn is_open(&self) -> bool {
        self.end.is_none()
    }

    fn until(&self) -> Option<Instant> {
        self.end.as_ref().and_then(|(_, until)| *until)
    }

    /// Keeps an end until what was asked before is done, or what was published is kept; `None` then. `sends`: answers wait for the socket.
    fn postpone(&mut self, end: End, connection: &Connection, sends: bool) -> Option<End> {
        if self.unheard {
            return None;
        }
        let now = Instant::now();
        let (rest, until) = match &end {
            End::Refused(_) => (Rest::Answers, Some(now + LAST_ANSWERS)),
            End::Broken | End::Drained { .. } => (Rest::Nothing, None),
            End::Closed | End::Ended | End::Stalled | End::Late(_) | End::Idle => {
                match connection.session.borrow_mut().finish(matches!(end, End::Ended), sends, now) {
                    Rest::Publishes => (Rest::Publishes, Some(now + LAST_ANSWERS)),
                    rest => (rest, None),
                }
            }
        };
        if rest == Rest::Nothing {
            return Some(end);
        }
        self.unheard = rest == Rest::Publishes;
        self.end = Some((end, until));
        None
    }

    fn send(&self, stream: &Stream, outgoing: &mut Outgoing, now: Instant) -> std::io::Result<usize> {
        if self.unheard {
            outgoing.clear();
            return Ok(0);
        }
        send(stream, outgoing, now)
    }
}

fn interest(read: bool, write: bool) -> Option<Interest> {
    match (read, write) {
        (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
        (true, false) => Some(Interest::READABLE),
        (false, true) => Some(Interest::WRITABLE),
        (false, false) => None,
    }
}

/// Sends what the socket takes, up to a turn's worth or for a turn's time from `now` on; returns how much that was.
fn send(stream: &Stream, outgoing: &mut Outgoing, now: Instant) -> std::io::Result<usize> {
    stream.flush()?;
    let mut total = 0;
    while total < SEND_TURN_BYTES && !outgoing.is_empty() {
        if total > 0 && now.elapsed() >= TURN_TIME {
            break;
        }
        let mut sent = match stream.try_write_vectored(&turn(outgoing, SEND_PIECE_BYTES.min(SEND_TURN_BYTES - total))) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(total),
            Err(error) => return Err(error),
        };
        total += sent;
        while let Some(first) = outgoing.front_mut() {
            if sent < first.len() {
                first.advance(sent);
                break;
            }
            sent -= first.len();
            outgoing.pop_front();
        }
    }
    Ok(total)
}

/// The next `most` bytes that wait, as far as one vectored write takes them.
fn turn(outgoing: &Outgoing, mut most: usize) -> smallvec::SmallVec<[IoSlice<'_>; SLICES_MAX]> {
    let mut slices = smallvec::SmallVec::new();
    for piece in outgoing.iter().take(SLICES_MAX) {
        let taken = piece.len().min(most);
        if taken == 0 && !piece.is_empty() {
            break;
        }
        slices.push(IoSlice::new(&piece[..taken]));
        most -= taken;
    }
    slices
}
