//! One consumer of a stream: how many messages it takes, and where it is in each log. It works a turn at a time, under its own lock, and
//! what it gives out goes to its connection in order.
//!
//! A turn ends when there is no credit, when 1 MiB is on its way to the channel, when there is nothing to read, or when others on the
//! shard are to have theirs. Between turns a reader holds at most one piece of each log, read and not given out.

use std::any::Any;
use std::sync::Arc;

use delivery::ConsumerId;
use journal::{Log, ReadError, ReplyTo};
use parking_lot::Mutex;
use types::ShardId;

use super::super::consumers::{ChannelFlow, Consuming, Deliveries, Delivery};
use super::super::queue::Queue;
use super::cursor::{Answer, Cursor, Next, Question, Waits};
use super::start::StreamReading;
use crate::Broker;
use crate::mailbox::{Event, Reply};
use crate::quotas::Lag;

/// Messages of one turn, before others on the thread get theirs.
const TURN_MESSAGES: usize = 1000;
/// Bytes that a turn looks at: few of them may be wanted.
const TURN_BYTES: usize = 4 << 20;
/// Turns that other threads have for records which take long to judge, before its own thread hears of it.
const LONG_TURNS_MAX: usize = 16;
/// Messages that go to the connection together, at most.
const TOGETHER_MAX: usize = 256;

/// A consumer of a stream.
pub(super) struct Reader {
    id: ConsumerId,
    wish: Consuming,
    reading: StreamReading,
    state: Mutex<State>,
}

struct State {
    /// Messages that it still takes.
    credit: u64,
    /// Messages that it has been given and said nothing of.
    unsettled: u64,
    cursors: Vec<Cursor>,
    /// Which log comes next.
    turn: usize,
    /// It has gone.
    over: bool,
}

/// History that was read for a consumer of a stream, or where it begins. Comes to its connection, which hands it to
/// [`Broker::stream_read`].
pub struct StreamRead {
    queue: Arc<Queue>,
    reader: Arc<Reader>,
    cursor: usize,
    outcome: Result<Answer, ReadError>,
}

impl StreamRead {
    pub(super) fn finish(self, broker: &Broker) -> (Arc<Queue>, Arc<Reader>) {
        let Self { queue, reader, cursor, outcome } = self;
        {
            let mut state = reader.state.lock();
            // It may have gone meanwhile, and holds nothing any more.
            match (outcome, state.cursors.get_mut(cursor)) {
                (_, None) => {}
                (Ok(answer), Some(cursor)) => cursor.set(answer),
                (Err(error), Some(cursor)) => {
                    // The journal has said it once.
                    tracing::debug!(%error, ?queue, offset = cursor.at, "records of a stream cannot be read; they are tried again");
                    cursor.waits = Waits::Retry;
                    broker.retry_stream(&queue);
                }
            }
        }
        (queue, reader)
    }
}

/// What a turn gives out.
#[derive(Default)]
struct Outbox {
    messages: Vec<Delivery>,
    bytes: usize,
}

impl Reader {
    pub fn new(id: ConsumerId, wish: Consuming, reading: StreamReading, logs: &[Arc<Log>]) -> Arc<Self> {
        let cursors = logs.iter().map(|log| Cursor::new(log, reading.start)).collect();
        let state = Mutex::new(State { credit: u64::from(wish.prefetch), unsettled: 0, cursors, turn: 0, over: false });
        Arc::new(Self { id, wish, reading, state })
    }

    pub fn id(&self) -> ConsumerId {
        self.id
    }

    pub fn to(&self) -> ReplyTo {
        self.wish.to
    }

    pub fn shard(&self) -> ShardId {
        self.wish.to.shard
    }

    pub fn channel(&self) -> &Arc<ChannelFlow> {
        &self.wish.channel
    }

    pub fn unsettled(&self) -> u64 {
        self.state.lock().unsettled
    }

    /// What its logs have that it has not come to, whether it wants that or not.
    pub fn lag(&self) -> Lag {
        let state = self.state.lock();
        let of = |cursor: &Cursor| {
            let (from, end) = (cursor.given().max(cursor.log.start().0), cursor.log.last_stable().0);
            Lag::in_log(&cursor.log, end.saturating_sub(from))
        };
        state.cursors.iter().map(of).fold(Lag::default(), Lag::plus)
    }

    /// It takes so many more messages.
    pub fn add_credit(&self, count: u64) {
        let mut state = self.state.lock();
        state.credit += count;
        state.unsettled = state.unsettled.saturating_sub(count);
    }

    /// It is given nothing any more, and lets go of what it holds.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.over = true;
        state.cursors.clear();
    }

    /// What could not be read before is tried again.
    pub fn retry(&self) {
        for cursor in self.state.lock().cursors.iter_mut().filter(|cursor| cursor.waits == Waits::Retry) {
            cursor.waits = Waits::No;
        }
    }

    /// Gives out what it can.
    pub fn run(self: &Arc<Self>, broker: &Arc<Broker>, queue: &Arc<Queue>) {
        let mut state = self.state.lock();
        let mut out = Outbox::default();
        let (mut given, mut looked_at, mut room) = (0, 0, 0);
        let more = loop {
            if state.credit == 0 || state.over {
                break false;
            }
            if given >= TURN_MESSAGES {
                break true;
            }
            if out.messages.is_empty() {
                room = self.wish.channel.room(queue.id());
                if room == 0 {
                    break false;
                }
            }
            let Some(place) = self.ready(&mut state, broker, queue, &mut looked_at) else {
                break looked_at >= TURN_BYTES;
            };
            given += take(&mut state, place, &mut out, room);
            if out.messages.len() >= TOGETHER_MAX || out.bytes >= room {
                self.send(broker, &mut out);
            }
        };
        // Under the lock: messages leave in the order in which they were given out.
        self.send(broker, &mut out);
        if more && let Some(cursor) = state.cursors.first() {
            broker.mailboxes.push(self.shard(), Event::Advanced(cursor.log.id()));
        }
    }

    /// The next log in turn that has a message.
    fn ready(
        self: &Arc<Self>,
        state: &mut State,
        broker: &Arc<Broker>,
        queue: &Arc<Queue>,
        looked_at: &mut usize,
    ) -> Option<usize> {
        let count = state.cursors.len();
        for place in (state.turn..state.turn + count).map(|place| place % count) {
            let cursor = &mut state.cursors[place];
            match cursor.next(broker, self.shard(), self.reading.filter.as_ref(), looked_at, TURN_BYTES) {
                Next::Record => {
                    state.turn = (place + 1) % count;
                    return Some(place);
                }
                Next::Nothing => {}
                Next::Asks(question) => {
                    let log = Arc::clone(&cursor.log);
                    cursor.waits =
                        if self.ask(broker, queue, place, log, question) { Waits::Answer } else { Waits::Retry };
                }
                Next::Broken(error) => {
                    tracing::error!(%error, ?queue, offset = cursor.at, "records of a stream make no sense");
                    cursor.waits = Waits::Retry;
                }
            }
            if state.cursors[place].waits == Waits::Retry {
                broker.retry_stream(queue);
            }
        }
        None
    }

    /// Has something found out on a thread that may wait; false: too much waits there.
    fn ask(
        self: &Arc<Self>,
        broker: &Broker,
        queue: &Arc<Queue>,
        cursor: usize,
        log: Arc<Log>,
        question: Question,
    ) -> bool {
        let (reader, queue) = (Arc::clone(self), Arc::clone(queue));
        if let Question::Judge(mut range) = question {
            let mut turns = 0;
            let work = Box::new(move |broker: &Arc<Broker>| {
                turns += 1;
                let outcome =
                    Question::Judge(range.clone()).answer(broker, &log, reader.reading.filter.as_ref(), TURN_BYTES);
                match outcome {
                    Ok(answer)
                        if answer.long && !answer.has_some() && turns < LONG_TURNS_MAX && !reader.state.lock().over =>
                    {
                        range.start = answer.at;
                        None
                    }
                    outcome => {
                        let (queue, reader) = (Arc::clone(&queue), Arc::clone(&reader));
                        Some(Box::new(StreamRead { queue, reader, cursor, outcome }) as Box<dyn Any + Send>)
                    }
                }
            });
            return broker.unpack(self.reading.address, self.wish.to, work);
        }
        let work = Box::new(move |broker: &Arc<Broker>| {
            let outcome = question.answer(broker, &log, reader.reading.filter.as_ref(), TURN_BYTES);
            Box::new(StreamRead { queue, reader, cursor, outcome }) as Box<dyn Any + Send>
        });
        broker.read_history(self.wish.to, crate::jobs::JobOwner::of("", Some(self.reading.address)), work)
    }

    fn send(&self, broker: &Broker, out: &mut Outbox) {
        let Outbox { messages, bytes } = std::mem::take(out);
        if !messages.is_empty() {
            self.wish.channel.sends_of_stream(messages.len(), bytes);
            broker.reply(self.wish.to, Reply::Done(Box::new(Deliveries { consumer: self.id, messages, bytes })));
        }
    }
}

/// Takes messages of one log; how many.
fn take(state: &mut State, place: usize, out: &mut Outbox, room: usize) -> usize {
    let State { credit, unsettled, cursors, .. } = state;
    let before = out.messages.len();
    while *credit > 0
        && out.messages.len() < TOGETHER_MAX
        && out.bytes < room
        && let Some(record) = cursors[place].take()
    {
        (*credit, *unsettled) = (*credit - 1, *unsettled + 1);
        let message = Delivery { offset: record.offset.0, redelivered: false, at_once: false, returned: None, record };
        out.bytes += message.bytes();
        out.messages.push(message);
    }
    out.messages.len() - before
}
