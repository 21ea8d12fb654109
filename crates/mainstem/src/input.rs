//! What has come of a connection and is no whole request yet: bytes into frames, frames into its session, and until when the rest has to come.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use tokio::sync::Notify;

use crate::connection::End;
use crate::frames::{AddressUse, Frame, Held, POOLED_FROM_BYTES, RoomRequest};
use crate::pace::{Pace, Span};
use crate::protocol::Session;
use crate::read_room::{READ_BYTES, ReadMemory, ReadRoom};
use crate::shard::{Connection, Shard};
use crate::stream::Stream;

/// Bytes of the largest segment of TCP, that of the loopback device.
const SEGMENT_BYTES_MAX: usize = 64 << 10;
/// A small request that is not whole counts with its bytes from so many on.
const HELD_FROM_BYTES: usize = 4 << 10;
/// Bytes read in one turn, before others get theirs.
const TURN_BYTES: usize = 256 << 10;

/// The frame being read.
#[derive(Default)]
enum Reading {
    /// Its length, or a small frame, gathers in the buffer.
    #[default]
    Small,
    /// A large frame gathers in its own memory.
    Large(Frame),
}

/// A request that did not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// Bytes of it that came.
    pub arrived: usize,
    /// Others waited for its memory: otherwise its time was over.
    pub needed: bool,
}

/// Is more of a request read?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// What comes.
    Yes,
    /// Not before the peer takes answers that wait for it.
    BehindAnswers,
    /// Not for now, for reasons of ours.
    No,
}

/// What has come.
pub struct Input {
    buffer: BytesMut,
    room_for_reads: ReadRoom,
    reading: Reading,
    /// The last read left nothing in the socket.
    pub drained: bool,
    /// The turn was over before all requests in the buffer were looked at.
    pub interrupted: bool,
    /// Of a request of which a part is there.
    pace: Option<Pace>,
    /// It is not read because the peer does not take answers: that is no time that it is given.
    behind_answers: bool,
    /// Bytes of answers that the peer has taken since it began, while that was so: taking them is getting on.
    answers_taken: usize,
    /// Of a small one.
    held: Option<Held>,
    /// The last request that came whole was read beyond the bound of memory.
    beyond: bool,
    /// Memory that a whole request of many items waits for.
    room: Option<RoomRequest>,
}

impl Input {
    /// Nothing has come yet. `memory`: for buffers.
    pub fn new(memory: &Arc<ReadMemory>) -> Self {
        Self {
            buffer: BytesMut::new(),
            room_for_reads: ReadRoom::new(memory),
            reading: Reading::Small,
            drained: false,
            interrupted: false,
            pace: None,
            behind_answers: false,
            answers_taken: 0,
            held: None,
            beyond: false,
            room: None,
        }
    }

    /// Before its connection waits: frees the buffer if nothing is in it and others need the memory, or it is larger than what comes.
    pub fn give_way(&mut self) {
        if self.buffer.is_empty() && self.room_for_reads.is_to_be_freed() {
            self.buffer = BytesMut::new();
            self.room_for_reads.note_freed();
        }
    }

    /// Nothing has come for a while: frees the buffer if nothing is in it.
    pub fn rest(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            self.room_for_reads.start_anew();
        }
    }

    /// Has a part of a frame come, whose rest the peer may hold back until that part is acknowledged? Nagle's algorithm holds back less than
    /// a segment only; acknowledging each part of a large frame would cost a wake-up of the peer a part.
    pub fn waits_for_a_rest(&self) -> bool {
        match &self.reading {
            Reading::Small => !self.buffer.is_empty(),
            Reading::Large(frame) => frame.missing() <= SEGMENT_BYTES_MAX,
        }
    }

    /// May whole small requests be there that nobody has looked at?
    pub fn holds_requests(&self) -> bool {
        matches!(self.reading, Reading::Small) && !self.buffer.is_empty()
    }

    /// Is a part of a request there?
    pub fn is_unfinished(&self) -> bool {
        self.pace.is_some()
    }

    /// Is a large frame whole?
    fn is_whole(&self) -> bool {
        matches!(&self.reading, Reading::Large(frame) if frame.missing() == 0)
    }

    fn take_whole(&mut self) -> Bytes {
        match std::mem::take(&mut self.reading) {
            Reading::Large(frame) => frame.into_bytes(),
            Reading::Small => Bytes::new(),
        }
    }

    fn arrived(&self) -> usize {
        match &self.reading {
            Reading::Small => self.buffer.len(),
            Reading::Large(frame) => frame.arrived(),
        }
    }

    /// Does it wait for memory? `wanted`: more would be read otherwise. `wake`: to be notified when there is some.
    pub fn waits_for_memory(&mut self, wanted: bool, wake: &Arc<Notify>) -> bool {
        let Reading::Large(frame) = &mut self.reading else { return self.room.is_some() };
        if !wanted {
            frame.rest();
        }
        self.room.is_some() || wanted && frame.waits() && !frame.may_read(wake)
    }

    /// The peer has taken so many bytes of answers.
    pub fn note_sent(&mut self, bytes: usize) {
        if self.behind_answers {
            self.answers_taken += bytes;
        }
    }

    /// Bytes by which the request has got on.
    fn progress(&self) -> usize {
        self.arrived() + self.answers_taken
    }

    /// Has a request come too slowly, which is read from now on or not? `of`: what its address has.
    pub fn judge(&mut self, shard: &Shard, of: &Arc<AddressUse>, reads: Reads, now: Instant) -> Option<Late> {
        let (arrived, holds, frames) = (self.arrived(), self.holds(), &shard.shared.frames);
        let held = if holds && matches!(self.reading, Reading::Small) { arrived } else { 0 };
        if held > 0 || self.held.is_some() {
            self.held.get_or_insert_with(|| Held::new(frames, of)).set(held);
        }
        // A small one that is there may be whole, and waits in the buffer.
        self.behind_answers =
            reads == Reads::BehindAnswers && matches!(&self.reading, Reading::Large(frame) if frame.missing() > 0);
        let progress = self.progress();
        if matches!(&self.reading, Reading::Large(frame) if frame.is_one_too_many()) {
            return Some(Late { arrived, needed: true });
        }
        let pace = self.pace.as_mut()?;
        pace.set_read(reads == Reads::Yes || self.behind_answers, now);
        if pace.is_over(progress, shard.shared.times.pace, now) {
            return Some(Late { arrived, needed: false });
        }
        let Reading::Large(frame) = &mut self.reading else {
            // A small one is whole in much less than a span. Each of them is read in any case: beyond the bound there may be too many.
            let needed = |span: Span| frames.is_over() || span.is_slow() && frames.is_scarce();
            return (holds && pace.end_span(progress, 0, now).is_some_and(needed))
                .then_some(Late { arrived, needed: true });
        };
        let span = pace.end_span(progress, frame.pace_floor(), now)?;
        if span.is_slow() {
            frame.lapse();
        }
        let needed = span.is_slow() && frames.is_scarce() || span.is_below_floor() && frame.is_in_the_way();
        needed.then_some(Late { arrived, needed })
    }

    /// Does a request that is not whole take memory that others may need?
    fn holds(&self) -> bool {
        self.pace.is_some() && (matches!(self.reading, Reading::Large(_)) || self.buffer.len() >= HELD_FROM_BYTES)
    }

    /// When to judge again.
    pub fn next_look(&self, shard: &Shard) -> Option<Instant> {
        self.pace.as_ref().and_then(|pace| pace.next(self.progress(), self.holds(), shard.shared.times.pace))
    }

    /// Notes whether a part of a request is there after what is whole was taken; `taken`: something was.
    fn note_rest(&mut self, taken: bool) {
        if self.buffer.is_empty() && matches!(self.reading, Reading::Small) {
            self.pace = None;
        } else if taken || self.pace.is_none() {
            (self.pace, self.answers_taken) = (Some(Pace::new(Instant::now())), 0);
        }
    }
}

/// Reads what is there, up to a turn's worth, and handles the frames in it. `started`: now. The end of the connection, if it has one, and of the turn.
pub fn receive(
    shard: &Shard,
    connection: &Connection,
    stream: &Stream,
    input: &mut Input,
    started: Instant,
) -> (Option<End>, Instant) {
    connection.waits.enter(0, started);
    let end = receive_turn(shard, connection, stream, input, started);
    let took = shard.end_turn(&connection.standing, started);
    (end, started + took)
}

fn receive_turn(
    shard: &Shard,
    connection: &Connection,
    stream: &Stream,
    input: &mut Input,
    started: Instant,
) -> Option<End> {
    let (mut turn, mut first) = (0, Some(started));
    while turn < TURN_BYTES {
        input.drained = false;
        let got = match &mut input.reading {
            Reading::Large(frame) => {
                // One that is whole and not taken yet has no room: a read would look like the client's end.
                if frame.missing() == 0 || !frame.may_read(&connection.wake) {
                    break;
                }
                // More of it arrives while it is read: it is looked for again.
                frame.fill(|memory, room| stream.try_read(memory, room))
            }
            Reading::Small => {
                // Where memory for what has begun is scarce, little more of it is read before there is some.
                let little = connection.place.is_stranger() || shard.shared.frames.asks_for_grants();
                input.buffer.reserve(input.room_for_reads.bytes(little));
                let room = input.buffer.capacity() - input.buffer.len();
                let got = stream.try_read_buf(&mut input.buffer);
                if let Ok(got) = got {
                    input.room_for_reads.note(got, room);
                }
                input.drained = stream.is_plain() && got.as_ref().is_ok_and(|got| *got < room);
                got
            }
        };
        if input.drained {
            // What comes from now on is told anew: nobody has to find out by another read that nothing is there.
            stream.set_drained();
        }
        match got {
            Ok(0) => return Some(End::Ended),
            Ok(got) => {
                turn += got;
                if matches!(input.reading, Reading::Large(_)) {
                    connection.session.borrow_mut().note_life(started);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                input.drained = true;
                if let Reading::Large(frame) = &mut input.reading {
                    frame.note_drained();
                }
                break;
            }
            Err(_) => return Some(End::Closed),
        }
        if let Some(end) = frames(shard, connection, input, first.take()) {
            return Some(end);
        }
        let answered = turn < READ_BYTES && shard.has_mail();
        if input.drained || input.interrupted || answered || !connection.session.borrow().wants_read() {
            break;
        }
    }
    None
}

/// Hands complete frames to the session while it wants them; the first came at `now`.
pub fn frames(shard: &Shard, connection: &Connection, input: &mut Input, mut now: Option<Instant>) -> Option<End> {
    let mut session = connection.session.borrow_mut();
    let (mut taken, mut began) = (false, None);
    input.interrupted = false;
    let end = match &mut *session {
        Session::Amqp(session) => {
            let (before, now) = (input.buffer.len(), now.unwrap_or_else(Instant::now));
            let mut refused = session.handle_bytes(&mut input.buffer, now).err();
            taken = input.buffer.len() < before;
            if refused.is_none() && input.is_whole() && session.takes_frame() {
                taken = true;
                session.take_frame(input.take_whole());
                refused = session.handle_bytes(&mut input.buffer, now).err();
            }
            if refused.is_none() && input.buffer.len() >= HELD_FROM_BYTES && shard.shared.frames.asks_for_grants() {
                begin_amqp_frame(shard, connection, session, input);
            }
            input.interrupted = session.pauses();
            refused.map(|reason| End::Refused(reason.into()))
        }
        Session::Kafka(session) => loop {
            if !session.wants_read() {
                break None;
            }
            let frame = match next_frame(shard, connection, session, input) {
                Ok(Some(frame)) => frame,
                Ok(None) => break None,
                Err(reason) => break Some(End::Refused(reason.into())),
            };
            taken = true;
            let at = now.take().unwrap_or_else(Instant::now);
            let outcome = session.handle_frame(frame, &mut shard.context.borrow_mut(), at);
            if let Err(reason) = outcome {
                break Some(End::Refused(reason.into()));
            }
            // By the time at which the last one began: the clock is not asked again.
            if at.saturating_duration_since(*began.get_or_insert(at)) >= shard.turns.length()
                && !input.buffer.is_empty()
            {
                input.interrupted = true;
                break None;
            }
        },
    };
    input.note_rest(taken);
    end
}

/// Has a whole request of many items go on that waits for memory, if there is enough; true: it went on. `ends`: the connection does, and it is not served.
///
/// # Errors
/// When the request ends the connection.
pub fn make_room(shard: &Shard, connection: &Connection, input: &mut Input, ends: bool) -> Result<bool, End> {
    let mut session = connection.session.borrow_mut();
    let Session::Kafka(session) = &mut *session else { return Ok(false) };
    let Some((bytes, frame)) = session.wants_room().filter(|_| !ends) else {
        input.room = None;
        return Ok(false);
    };
    let (frames, of) = (&shard.shared.frames, connection.place.requests());
    let beyond = input.beyond;
    let request = input
        .room
        .get_or_insert_with(|| RoomRequest::new(frames, of, bytes, beyond.then(|| frame.clone()), &connection.wake));
    let Some(room) = request.take() else { return Ok(false) };
    input.room = None;
    let outcome = session.give_room(Arc::new(room), &mut shard.context.borrow_mut(), Instant::now());
    outcome.map(|()| true).map_err(|reason| End::Refused(reason.into()))
}

/// Has the rest of a large frame read when there is memory for it. While there is plenty, frames are read as they come, several at once.
fn begin_amqp_frame(shard: &Shard, connection: &Connection, session: &amqp_gateway::Session, input: &mut Input) {
    let Some(bytes) = session.begun_frame_bytes(&input.buffer).filter(|bytes| *bytes >= POOLED_FROM_BYTES) else {
        return;
    };
    let mut frame = shard.shared.frames.begin(bytes, connection.place.requests());
    frame.take(&mut input.buffer);
    (input.reading, input.held) = (Reading::Large(frame), None);
    input.buffer = BytesMut::new();
    input.room_for_reads.note_freed();
}

fn next_frame(
    shard: &Shard,
    connection: &Connection,
    session: &kafka_gateway::Session,
    input: &mut Input,
) -> Result<Option<Bytes>, kafka_gateway::CloseReason> {
    match std::mem::take(&mut input.reading) {
        Reading::Large(frame) if frame.missing() == 0 => {
            input.beyond = frame.is_beyond();
            Ok(Some(frame.freeze()))
        }
        large @ Reading::Large(_) => {
            input.reading = large;
            Ok(None)
        }
        Reading::Small => {
            let Some(length) = input.buffer.first_chunk::<4>() else { return Ok(None) };
            let bytes = session.check_frame_length(i32::from_be_bytes(*length))?;
            if input.buffer.len() >= 4 + bytes {
                input.buffer.advance(4);
                input.beyond = false;
                return Ok(Some(input.buffer.split_to(bytes).freeze()));
            }
            if bytes >= POOLED_FROM_BYTES {
                input.buffer.advance(4);
                // What has come moves into memory of its own.
                let mut frame = shard.shared.frames.begin(bytes, connection.place.requests());
                frame.take(&mut input.buffer);
                input.reading = Reading::Large(frame);
            }
            Ok(None)
        }
    }
}
