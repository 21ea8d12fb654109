//! What a session does while its publishes find no room: the disk is full, a journal cannot keep up, it waits for its archive, or a quota is
//! used up.
//!
//! | state | begins when | what comes |
//! |---|---|---|
//! | at ease | nothing is held, and outcomes come | all is taken in order; a method that looks at queues waits for the outcome of publishes |
//! | blocked | the oldest publish has had no outcome for [`BLOCKED_AFTER`] | publishes are held, all else is taken |
//!
//! Order within a channel holds: while blocked, a method that has to see what its own channel has published is put aside, and with it what
//! follows on that channel, acknowledgements excepted.
//!
//! The client hears of both changes. Reading stops when `mainstem.amqp.held.bytes` are held or put aside, or when all connections
//! together hold their share of the memory. What was put aside is taken up, before anything new, when the connection is at ease again.
//! connection.close is answered at any time; what is held then is lost, and was not confirmed.
//!
//! A method that looks at a queue to which dead letters are on their way is put aside likewise, and with it all that follows on its channel,
//! until they have arrived, at most for [`LETTERS_MAX`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use amqp_wire::{Frame, FrameKind, Method, MethodId, basic, channel, connection, short, tx};
use broker::append::AppendError;
use bytes::BytesMut;
use smallvec::SmallVec;

use super::{Phase, Session, Slot};
use crate::channel::{Channel, Mode};
use crate::connection::{Connection, Waiting};
use crate::error::Failure;
use crate::handlers;

/// A publish without an outcome for so long makes the connection a blocked one: many times as long as a commit takes.
pub(super) const BLOCKED_AFTER: Duration = Duration::from_millis(500);
/// It is at ease again when nothing is held and the oldest publish is younger than this.
const AT_EASE_BELOW: Duration = Duration::from_millis(250);
/// Letters are waited for so long, at most: a hundred times as long as one takes.
const LETTERS_MAX: Duration = Duration::from_millis(500);
/// The memory of all connections together is looked at again after this long.
const MEMORY_RETRY: Duration = Duration::from_millis(100);

/// What all connections hold.
pub(crate) struct HeldMemory {
    used: AtomicUsize,
    max: AtomicUsize,
    /// Of one connection.
    connection_max: usize,
}

impl HeldMemory {
    /// `connection_max` bytes of one connection, at most, and `max` of all.
    pub fn new(connection_max: usize, max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max: AtomicUsize::new(max), connection_max }
    }

    /// Changes the bound for all connections together.
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are held.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.used() >= self.max.load(Ordering::Relaxed)
    }

    fn change(&self, from: usize, to: usize) {
        if to >= from {
            self.used.fetch_add(to - from, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(from - to, Ordering::Relaxed);
        }
    }
}

/// Whether a method has to wait for what was published before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    /// It waits, and all frames behind it.
    Here,
    /// It is put aside, and what follows on its channel.
    Aside,
}

/// Of one connection.
#[derive(Default)]
pub(super) struct Pressure {
    blocked: bool,
    /// Whole frames, as they came.
    aside: BytesMut,
    /// Channels that wait.
    channels: SmallVec<[u16; 2]>,
    /// A commit that waits: its channel, and messages of the connection that were not kept before it.
    commit: Option<(u16, u64)>,
    /// Channels that wait for dead letters, under which token these are reported, and until when at most.
    letters: SmallVec<[(u16, u64, Instant); 1]>,
    /// Bytes that are counted with those of all connections.
    charged: usize,
}

impl Pressure {
    /// Has a method of this channel to wait?
    pub fn judge(&self, connection: &Connection, channel: &Channel, method: &Method<'_>) -> Wait {
        if connection.publisher.is_idle() {
            return Wait::No;
        }
        if !self.blocked {
            return if handlers::looks_at_queues(method) { Wait::Here } else { Wait::No };
        }
        let waits = match (method, &channel.mode) {
            (Method::Channel(channel::Method::Close(_)), _) => false,
            (Method::Tx(tx::Method::Commit(_)), Mode::Transaction(transaction)) => !transaction.messages.is_empty(),
            _ => handlers::looks_at_queues(method) && channel.published == Some(connection.publisher.rests()),
        };
        if waits { Wait::Aside } else { Wait::No }
    }

    pub fn put_aside(&mut self, frame: &[u8], channel: u16) {
        self.aside.extend_from_slice(frame);
        if !self.channels.contains(&channel) {
            self.channels.push(channel);
        }
    }

    /// A channel is gone, and what it waited with.
    pub fn forget(&mut self, channel: u16) {
        if self.channels.contains(&channel) {
            self.commit.take_if(|(of, _)| *of == channel);
            drop(self.take_aside(channel));
        }
    }

    /// A channel waits no longer: the frames that it was waiting with.
    fn take_aside(&mut self, channel: u16) -> BytesMut {
        self.channels.retain(|other| *other != channel);
        self.letters.retain(|(other, ..)| *other != channel);
        let (aside, mut taken, mut at) = (self.aside.split().freeze(), BytesMut::new(), 0);
        while let Ok(amqp_wire::Parsed::Frame(frame)) = amqp_wire::parse_frame(&aside[at..], u32::MAX) {
            let end = at + frame.bytes();
            let place = if frame.channel == channel { &mut taken } else { &mut self.aside };
            place.extend_from_slice(&aside[at..end]);
            at = end;
        }
        taken
    }

    /// A channel waits for letters, which are reported under this token.
    pub fn await_letters(&mut self, channel: u16, token: u64, now: Instant) {
        self.letters.push((channel, token, now + LETTERS_MAX));
    }

    /// Does a channel wait for letters?
    pub fn awaits_letters(&self) -> bool {
        !self.letters.is_empty()
    }

    /// Bytes that are held, or put aside.
    fn held(&self, connection: &Connection) -> usize {
        connection.publisher.held_bytes() + self.aside.len()
    }

    /// May more be read?
    pub fn has_room(&self, connection: &Connection) -> bool {
        let (held, memory) = (self.held(connection), &connection.gateway.held);
        held == 0 || held < memory.connection_max && !memory.is_full()
    }

    /// When to look again without an event.
    pub fn next(&self, connection: &Connection) -> Option<Instant> {
        let publishes = connection.open_since().and_then(|since| match self.blocked {
            false => Some(since + BLOCKED_AFTER),
            true => {
                (!self.has_room(connection) && connection.gateway.held.is_full()).then(|| connection.now + MEMORY_RETRY)
            }
        });
        publishes.into_iter().chain(self.letters.iter().map(|(.., until)| *until)).min()
    }
}

/// In RabbitMQ's words where it has some.
fn reason(connection: &Connection) -> &'static str {
    let journals = connection.broker().journals();
    if connection.quota.holds_publishes() {
        "publish quota"
    } else if journals.iter().any(|journal| journal.is_disk_full()) {
        "low on disk"
    } else if journals.iter().any(|journal| journal.waits_for_archive()) {
        "waiting for the archive"
    } else {
        "waiting for the disk"
    }
}

impl Session {
    /// A frame of a channel that waits is put aside, unless it may overtake what waits; true: it was.
    pub(super) fn is_put_aside(&mut self, frame: &Frame<'_>, bytes: &[u8]) -> bool {
        if !self.pressure.channels.contains(&frame.channel) || self.pressure.blocked && self.overtakes(frame) {
            return false;
        }
        self.pressure.put_aside(bytes, frame.channel);
        true
    }

    /// What is said of deliveries concerns nothing that waits, unless it belongs to a transaction.
    fn overtakes(&self, frame: &Frame<'_>) -> bool {
        let Some(Slot::Open(channel)) = self.channels.get(&frame.channel) else { return true };
        let [a, b, c, d, ..] = *frame.payload else { return false };
        let id = MethodId { class: u16::from_be_bytes([a, b]), method: u16::from_be_bytes([c, d]) };
        let of_deliveries = [basic::Ack::ID, basic::Nack::ID, basic::Reject::ID].contains(&id);
        frame.kind == FrameKind::Method && of_deliveries && !matches!(channel.mode, Mode::Transaction(_))
    }

    /// Is the connection blocked?
    pub(super) fn is_blocked(&self) -> bool {
        self.pressure.blocked
    }

    /// Counts what is held, and what is not finished, with what all connections have of it.
    pub(super) fn charge(&mut self) {
        self.connection.unfinished.settle();
        let held = self.pressure.held(&self.connection);
        if held != self.pressure.charged {
            self.connection.gateway.held.change(std::mem::replace(&mut self.pressure.charged, held), held);
        }
    }

    /// Letters have arrived; false: it is something else that has this token.
    pub(super) fn letters_are_there(&mut self, token: u64) -> bool {
        let found = self.pressure.letters.iter().find(|(_, of, _)| *of == token).map(|(channel, ..)| *channel);
        found.inspect(|channel| self.take_up(*channel)).is_some()
    }

    /// A channel has waited for letters.
    fn take_up(&mut self, number: u16) {
        let frames = self.pressure.take_aside(number);
        if let Some(Slot::Open(channel)) = self.channels.get_mut(&number) {
            channel.has_awaited_letters = true;
            self.input = [&frames[..], &self.input[..]].concat().into();
        }
        if !self.pressure.awaits_letters() {
            self.connection.waiting.take_if(|waiting| matches!(waiting, Waiting::Letters));
        }
    }

    fn look_at_letters(&mut self) {
        let now = self.connection.now;
        while let Some(channel) =
            self.pressure.letters.iter().find(|(.., until)| now >= *until).map(|(channel, ..)| *channel)
        {
            self.take_up(channel);
        }
    }

    /// Something has changed, or time has passed.
    pub(super) fn look_at_pressure(&mut self) {
        self.look_at_letters();
        self.charge();
        if self.phase != Phase::Running {
            return;
        }
        let waited = self.connection.open_since().map(|since| self.connection.now.saturating_duration_since(since));
        match waited {
            Some(waited) if !self.pressure.blocked && waited >= BLOCKED_AFTER => self.block(),
            waited if self.pressure.blocked => {
                self.park();
                let publisher = &self.connection.publisher;
                let calm = !publisher.holds() && waited.is_none_or(|waited| waited < AT_EASE_BELOW);
                // What was put aside comes in front of a method that is gone on with in turns.
                if calm && self.connection.waiting.is_none() && !self.commits {
                    self.unblock();
                }
            }
            _ => {}
        }
    }

    fn block(&mut self) {
        self.pressure.blocked = true;
        self.connection.gateway.metrics.blocked.inc();
        if self.connection.understands.connection_blocked {
            let reason = short(reason(&self.connection));
            self.connection.out.method(0, &connection::Blocked { reason });
        }
        self.park();
    }

    /// What waits for publishes no longer keeps the whole connection waiting.
    fn park(&mut self) {
        match self.connection.waiting.take() {
            // The frame is looked at again.
            Some(Waiting::Publishes) => {}
            Some(Waiting::Commit { channel, lost_before }) => {
                self.pressure.commit = Some((channel, lost_before));
                self.pressure.channels.push(channel);
            }
            other => self.connection.waiting = other,
        }
    }

    fn unblock(&mut self) {
        self.end_pressure();
        if self.connection.understands.connection_blocked {
            self.connection.out.method(0, &connection::Unblocked {});
        }
        if let Some((channel, lost_before)) = self.pressure.commit.take() {
            self.connection.waiting = Some(Waiting::Commit { channel, lost_before });
        }
        let aside = self.pressure.aside.split();
        if !aside.is_empty() {
            self.input = [&aside[..], &self.input[..]].concat().into();
        }
        self.publishes_have_outcome();
    }

    fn end_pressure(&mut self) {
        if std::mem::take(&mut self.pressure.blocked) {
            self.connection.gateway.metrics.blocked.dec();
        }
        self.pressure.channels.clear();
        self.pressure.letters.clear();
        self.connection.waiting.take_if(|waiting| matches!(waiting, Waiting::Letters));
    }

    /// The connection ends: what has no outcome gets none.
    pub(super) fn abandon_publishes(&mut self) {
        let lost = self.connection.publisher.abandon();
        self.connection.gateway.metrics.not_kept.inc_by(lost);
        self.end_pressure();
        self.pressure.commit = None;
        self.pressure.aside.clear();
        self.connection.gateway.held.change(std::mem::take(&mut self.pressure.charged), 0);
        self.connection.unfinished.wait_no_more();
        self.connection.unfinished.settle();
    }

    /// A journal has stopped: publishers hear that what has no outcome may be lost, and the connection ends.
    pub(super) fn refuse_publishes(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        self.abandon_publishes();
        let Connection { out, gateway, .. } = &mut self.connection;
        for slot in self.channels.values_mut() {
            if let Slot::Open(channel) = slot
                && let Mode::Confirm(confirms) = &mut channel.mode
            {
                confirms.refuse_open();
                gateway.metrics.confirmed.inc_by(confirms.tell(channel.number, out));
            }
        }
        self.close_connection(&Failure::from(AppendError::Stopped));
    }
}
