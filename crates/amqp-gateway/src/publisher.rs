//! From messages to appends. Messages of one turn that go to the same queues share a batch as long as that keeps the order of each
//! queue; when the turn ends there is one append per journal. What was appended is told to the channels that wait for it. A turn does not
//! end while a journal has no room for the one before it: messages are held, up to a bound, and leave in as few turns as they fit into.
//!
//! I1 A message joins a batch only if for each of its queues that batch is the last of the turn.
//! I2 Appends leave in the order of turns: behind one that a full journal refused, all others wait.
//! I3 A publish has its outcome when all appends of its turn have theirs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::append::{Append, AppendError, AppendItem, AppendResults};
use broker::{Admission, Broker, Log, OnTheWay, Queue, ReplyTo, Vhosts, Waits};
use hashbrown::HashSet;
use record::{BatchHeader, BatchWriter};
use routing::QueueId;
use smallvec::SmallVec;
use types::{ConnectionId, ShardId};

use crate::message::Message;

/// Batches that a message looks through for one to join.
const LOOK_BACK: usize = 16;
/// Up to so many pairs of queues are compared one by one.
const PAIRS_FEW: usize = 1024;
/// A batch that is larger takes no more, in bytes.
const BATCH_BYTES_MAX: usize = 128 << 10;
/// Room of a batch beside its first message, in bytes: what one read of a socket brings, at most.
const ROOM_BYTES: usize = 64 << 10;
/// What a turn appends to all queues together, about, in bytes; one batch may be more.
const TURN_BYTES_MAX: usize = 1 << 20;
/// Turns whose outcome is open; no more are begun.
const TURNS_MAX: usize = 64;
/// Bytes of messages whose outcome is open; no turn is begun.
const OPEN_BYTES_MAX: usize = 16 << 20;
/// Bytes that are counted for a batch beside its messages.
const AROUND_BATCH: usize = 512;
/// Journals of one turn, at most: what the tokens of appends have room for.
const PARTS_MAX: u64 = 256;

/// Logs of one journal.
type Logs = SmallVec<[Arc<Log>; 2]>;

/// The queues that a message goes to.
pub(crate) type Targets = SmallVec<[Arc<Queue>; 2]>;

/// Publishes of a channel that wait for their outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub channel: u16,
    /// The channel's number in the broker: another one may be opened under `channel`.
    pub id: u64,
    pub first: u64,
    pub last: u64,
}

/// What became of publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub wanted: Wanted,
    pub kept: bool,
}

/// Takes bytes from the quota of a queue's topic; how long to wait.
fn take_of_topic(queue: &Queue, bytes: usize, now: Instant) -> Duration {
    let quotas = queue.topic().quotas();
    let account = quotas.as_ref().and_then(|quotas| quotas.produce.as_ref());
    account.map_or(Duration::ZERO, |account| account.take(bytes as u64, now))
}

/// Is one of the queues among these? Two exchanges may lead to ten thousand queues each: so many are not compared each with each.
fn has_one_of(ids: &[QueueId], queues: &Targets) -> bool {
    if ids.len() * queues.len() <= PAIRS_FEW {
        return queues.iter().any(|queue| ids.contains(&queue.id()));
    }
    let ids: HashSet<QueueId> = ids.iter().copied().collect();
    queues.iter().any(|queue| ids.contains(&queue.id()))
}

struct OpenBatch {
    ids: SmallVec<[QueueId; 2]>,
    targets: Targets,
    writer: BatchWriter,
    wanted: SmallVec<[Wanted; 1]>,
}

/// A batch that was appended.
struct Sent {
    wanted: SmallVec<[Wanted; 1]>,
    /// Its queue, where it is for one only and that one may refuse some.
    bounded: Option<QueueId>,
    count: u64,
    failed: bool,
    /// Its queues count it meanwhile.
    _on_the_way: SmallVec<[OnTheWay; 1]>,
}

/// A turn whose outcome is open.
struct Turn {
    batches: Vec<Sent>,
    /// For each append, the batches of its items.
    parts: SmallVec<[Vec<u32>; 1]>,
    open_parts: usize,
    bytes: usize,
    since: Instant,
}

/// What one queue that may refuse some has admitted of this connection.
struct Admitted {
    admission: Admission,
    turns: VecDeque<AdmittedTurn>,
}

/// What of it goes with one turn.
struct AdmittedTurn {
    number: u64,
    count: u64,
    /// Where the log ends behind it, if that is known, else 0.
    log_end: u64,
}

impl Admitted {
    /// The next `count` go with this turn.
    fn begin(&mut self, number: u64, count: u64) {
        self.admission.sent(count);
        match self.turns.back_mut() {
            Some(last) if last.number == number => last.count += count,
            _ => self.turns.push_back(AdmittedTurn { number, count, log_end: 0 }),
        }
    }

    /// A turn's are in the log, which ends there behind them.
    fn ends(&mut self, number: u64, log_end: u64) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.number == number) {
            turn.log_end = turn.log_end.max(log_end);
        }
    }

    /// Those of turns before `first` have arrived; false: that is all.
    fn arrived(&mut self, first: u64) -> bool {
        let over = self.turns.partition_point(|turn| turn.number < first);
        let (mut count, mut log_end) = (0, 0);
        for turn in self.turns.drain(..over) {
            (count, log_end) = (count + turn.count, log_end.max(turn.log_end));
        }
        if count > 0 {
            self.admission.arrived(count, log_end);
        }
        self.admission.holds() || !self.turns.is_empty()
    }
}

/// What a connection publishes.
pub(crate) struct Publisher {
    /// Told of the topics of queues.
    waits: Arc<Waits>,
    /// Messages join one batch only up to here, whatever else is allowed: the journals have small segments.
    joined_bytes_max: usize,
    batches: Vec<OpenBatch>,
    /// Bytes in `batches`.
    held_bytes: usize,
    turns: VecDeque<Turn>,
    /// Number of the first turn.
    first: u64,
    open_bytes: usize,
    refused: VecDeque<(usize, Append)>,
    /// How often nothing was on its way any more.
    rests: u64,
    /// Messages that were not kept, ever.
    lost: u64,
    /// A journal has stopped, and something was for it.
    stopped: bool,
    last_targets: (SmallVec<[QueueId; 2]>, Targets),
    /// Messages that are on their way to queues which may refuse some.
    bounded: hashbrown::HashMap<QueueId, Admitted>,
}

impl Publisher {
    /// Of a connection whose time goes there.
    pub fn with(waits: Arc<Waits>, joined_bytes_max: usize) -> Self {
        Self {
            waits,
            joined_bytes_max,
            batches: Vec::new(),
            held_bytes: 0,
            turns: VecDeque::new(),
            first: 0,
            open_bytes: 0,
            refused: VecDeque::new(),
            rests: 0,
            lost: 0,
            stopped: false,
            last_targets: Default::default(),
            bounded: hashbrown::HashMap::new(),
        }
    }

    /// Frees memory that is only kept for what comes next.
    pub fn rest(&mut self) {
        if self.batches.is_empty() {
            self.batches = Vec::new();
        }
        if self.turns.is_empty() && self.refused.is_empty() {
            (self.turns, self.refused) = (VecDeque::new(), VecDeque::new());
        }
    }

    /// The queues with these ids. Those that are gone are left out.
    pub fn targets(&mut self, ids: &[QueueId], vhosts: &Vhosts) -> Targets {
        let (last, targets) = &self.last_targets;
        if last[..] != *ids || targets.iter().any(|queue| queue.is_dropped()) {
            let found: Targets = ids.iter().filter_map(|id| vhosts.queue(*id)).collect();
            found.iter().for_each(|queue| self.waits.use_topic(queue.topic().id));
            self.last_targets = (ids.into(), found);
        }
        self.last_targets.1.clone()
    }

    /// Does a queue that may refuse some take one more message, behind all that are on their way to it? Then it counts until its turn has its outcome.
    pub fn admit(&mut self, broker: &Arc<Broker>, queue: &Arc<Queue>, body_bytes: usize) -> bool {
        if let Some(admitted) = self.bounded.get_mut(&queue.id()) {
            return admitted.admission.admit(broker, 1, body_bytes);
        }
        let mut fresh = Admitted { admission: Admission::to(queue), turns: VecDeque::new() };
        let admits = fresh.admission.admit(broker, 1, body_bytes);
        if admits {
            self.bounded.insert(queue.id(), fresh);
        }
        admits
    }

    /// The number of this turn, on this connection.
    pub fn turn(&self) -> u64 {
        self.first + self.turns.len() as u64
    }

    /// Adds a message for queues, at least one, in the order of their ids.
    pub fn add(&mut self, targets: Targets, message: &Message<'_>, now_ms: i64, wanted: Option<Wanted>) {
        self.add_with(targets, message, wanted, |batch| message.write(now_ms, batch));
    }

    /// Adds a message for exchanges that delay it, as `delay` says.
    pub fn add_delayed(
        &mut self,
        targets: Targets,
        message: &Message<'_>,
        now_ms: i64,
        delay: &[u8],
        wanted: Option<Wanted>,
    ) {
        self.add_with(targets, message, wanted, |batch| message.write_delayed(now_ms, delay, batch));
    }

    fn add_with(
        &mut self,
        targets: Targets,
        message: &Message<'_>,
        wanted: Option<Wanted>,
        write: impl FnOnce(&mut BatchWriter),
    ) {
        let at = self.find(&targets, message.record_bytes()).unwrap_or_else(|| {
            let ids = targets.iter().map(|queue| queue.id()).collect();
            let room = if self.batches.is_empty() { ROOM_BYTES } else { message.record_bytes() };
            let writer = BatchWriter::with_capacity(message.record_bytes() + room);
            self.held_bytes += AROUND_BATCH + writer.bytes();
            self.batches.push(OpenBatch { ids, targets, writer, wanted: SmallVec::new() });
            self.batches.len() - 1
        });
        let batch = &mut self.batches[at];
        let before = batch.writer.bytes();
        write(&mut batch.writer);
        self.held_bytes += batch.writer.bytes() - before;
        match (batch.wanted.last_mut(), wanted) {
            (_, None) => {}
            (Some(last), Some(next)) if last.id == next.id && last.last + 1 == next.first => last.last = next.last,
            (_, Some(next)) => batch.wanted.push(next),
        }
    }

    /// The batch that a message for these queues may join (I1).
    fn find(&self, targets: &Targets, bytes: usize) -> Option<usize> {
        for (at, batch) in self.batches.iter().enumerate().rev().take(LOOK_BACK) {
            if batch.ids.len() == targets.len() && batch.ids.iter().zip(targets).all(|(id, queue)| *id == queue.id()) {
                let held = batch.writer.bytes();
                return (held < BATCH_BYTES_MAX && held + bytes <= self.joined_bytes_max).then_some(at);
            }
            if has_one_of(&batch.ids, targets) {
                return None;
            }
        }
        None
    }

    /// Is there something to be flushed, and may a turn begin?
    pub fn is_ripe(&self) -> bool {
        !self.batches.is_empty()
            && self.refused.is_empty()
            && self.turns.len() < TURNS_MAX
            && self.open_bytes < OPEN_BYTES_MAX
    }

    /// Appends what came in this turn or was held, as much of it as one turn takes; how many bytes, and what the quotas of
    /// topics ask to wait. Only when it is ripe. `alone`: nothing else
    /// is to be done on this shard, so that it may write for itself.
    pub fn begin_turn(
        &mut self,
        broker: &Broker,
        (shard, connection): (ShardId, ConnectionId),
        alone: bool,
        now: Instant,
    ) -> (usize, Duration) {
        // Who does not wait for the outcome sends the next one meanwhile: those are better committed together.
        let here = alone && self.turns.is_empty() && self.batches.iter().any(|batch| !batch.wanted.is_empty());
        let number = self.turn();
        let fitting = self.batches_of_a_turn();
        let (limits_topics, mut debt) = (broker.quotas().limits_topics(), Duration::ZERO);
        let mut turn =
            Turn { batches: Vec::with_capacity(fitting), parts: SmallVec::new(), open_parts: 0, bytes: 0, since: now };
        let mut by_journal: SmallVec<[(usize, Vec<AppendItem>); 1]> = SmallVec::new();
        let mut logs: SmallVec<[(usize, Logs); 1]> = SmallVec::new();
        for (place, batch) in (0u32..).zip(self.batches.drain(..fitting)) {
            self.held_bytes -= batch.writer.bytes() + AROUND_BATCH;
            let count = u64::from(batch.writer.count());
            if !self.bounded.is_empty() {
                for id in &batch.ids {
                    self.bounded.entry(*id).and_modify(|admitted| admitted.begin(number, count));
                }
            }
            let bytes = batch.writer.finish();
            turn.bytes += bytes.len();
            let bounded = batch.ids.first().copied().filter(|id| batch.ids.len() == 1 && self.bounded.contains_key(id));
            let on_the_way = batch.targets.iter().map(|queue| queue.begin_batch(shard)).collect();
            turn.batches.push(Sent { wanted: batch.wanted, bounded, count, failed: false, _on_the_way: on_the_way });
            let header = BatchHeader::parse(&bytes).expect("a batch that was just written");
            for queue in batch.targets {
                if limits_topics {
                    debt = debt.max(take_of_topic(&queue, bytes.len(), now));
                }
                let log = Arc::clone(queue.log());
                let journal = broker.journal_number(log.id());
                match logs.iter_mut().find(|(other, _)| *other == journal) {
                    Some((_, logs)) => logs.push(log),
                    None => logs.push((journal, SmallVec::from_iter([log]))),
                }
            }
            // The queues of one journal share the bytes.
            for (journal, logs) in logs.drain(..) {
                let at = by_journal.iter().position(|(other, _)| *other == journal).unwrap_or_else(|| {
                    by_journal.push((journal, Vec::new()));
                    turn.parts.push(Vec::new());
                    by_journal.len() - 1
                });
                for item in AppendItem::for_all(&logs, &bytes, header) {
                    by_journal[at].1.push(item);
                    turn.parts[at].push(place);
                }
            }
        }
        turn.open_parts = by_journal.len();
        let appended = turn.bytes;
        self.open_bytes += turn.bytes;
        self.turns.push_back(turn);
        for (part, (journal, items)) in (0u64..).zip(by_journal) {
            let to = ReplyTo { shard, connection, token: number * PARTS_MAX + part };
            self.append(broker, journal, Append { to, items, acknowledge: true }, here);
        }
        (appended, debt)
    }

    /// How many of the batches the next turn takes, at least one.
    fn batches_of_a_turn(&self) -> usize {
        let mut bytes = 0;
        let fits = self.batches.iter().skip(1).take_while(|batch| {
            bytes += batch.writer.bytes();
            bytes < TURN_BYTES_MAX
        });
        1 + fits.count()
    }

    /// I2
    fn append(&mut self, broker: &Broker, journal: usize, append: Append, here: bool) {
        if !self.refused.is_empty() {
            self.refused.push_back((journal, append));
            return;
        }
        if let Err(append) = broker.append_published(journal, append, here) {
            self.refused.push_back((journal, append));
        }
    }

    /// A journal has room: what it refused is tried again.
    pub fn retry(&mut self, broker: &Broker) {
        while let Some((journal, append)) = self.refused.pop_front() {
            if let Err(append) = broker.append_published(journal, append, false) {
                self.refused.push_front((journal, append));
                return;
            }
        }
    }

    /// Takes the outcome of an append; tells of the publishes whose outcome is known by it (I3), and how many messages were not kept.
    pub fn appended(&mut self, token: u64, results: &AppendResults, mut tell: impl FnMut(Told)) -> u64 {
        let (number, part) = (token / PARTS_MAX, (token % PARTS_MAX) as usize);
        let Some(turn) = number.checked_sub(self.first).and_then(|at| self.turns.get_mut(at as usize)) else {
            return 0;
        };
        for (place, result) in turn.parts[part].iter().zip(results) {
            let sent = &turn.batches[*place as usize];
            if let (Some(admitted), Ok(appended)) = (sent.bounded.and_then(|id| self.bounded.get_mut(&id)), result) {
                admitted.ends(number, appended.base.0 + sent.count);
            }
            // A queue that is gone has taken what was meant for it along.
            if !matches!(result, Ok(_) | Err(AppendError::LogDeleted)) {
                turn.batches[*place as usize].failed = true;
                self.stopped |= *result == Err(AppendError::Stopped);
            }
        }
        turn.open_parts -= 1;
        let mut lost = 0;
        if turn.open_parts == 0 {
            self.open_bytes -= turn.bytes;
            for batch in std::mem::take(&mut turn.batches) {
                lost += if batch.failed { batch.count } else { 0 };
                batch.wanted.into_iter().for_each(|wanted| tell(Told { wanted, kept: !batch.failed }));
            }
        }
        while self.turns.front().is_some_and(|turn| turn.open_parts == 0) {
            self.turns.pop_front();
            self.first += 1;
        }
        let first = self.first;
        self.bounded.retain(|_, admitted| admitted.arrived(first));
        self.rests += u64::from(self.is_idle());
        self.lost += lost;
        lost
    }

    /// How many messages were not kept since the connection was opened.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Is nothing on its way?
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty() && self.turns.is_empty()
    }

    /// Bytes that are held because a journal has no room.
    pub fn held_bytes(&self) -> usize {
        // A turn begins when nothing of an earlier one is refused.
        let refused = self.turns.back().filter(|_| !self.refused.is_empty());
        self.held_bytes + refused.map_or(0, |turn| turn.bytes)
    }

    /// Is something kept from the journals?
    pub fn holds(&self) -> bool {
        !self.batches.is_empty() || !self.refused.is_empty()
    }

    /// Since when the oldest has waited of what has no outcome.
    pub fn open_since(&self) -> Option<Instant> {
        self.turns.front().map(|turn| turn.since)
    }

    /// Numbers the times between which nothing was on its way.
    pub fn rests(&self) -> u64 {
        self.rests
    }

    /// Has a journal refused something for good?
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Forgets all that has no outcome; what a journal has taken may be kept nevertheless. How many messages it has not taken.
    pub fn abandon(&mut self) -> u64 {
        let held: u64 = self.batches.iter().map(|batch| u64::from(batch.writer.count())).sum();
        let refused = self.refused.iter().flat_map(|(_, append)| &append.items).map(|item| match item {
            AppendItem::Batch { header, .. } => header.records_count as u64,
            _ => 0,
        });
        let lost = held + refused.sum::<u64>();
        let fresh = Self::with(Arc::clone(&self.waits), self.joined_bytes_max);
        *self = Self {
            first: self.first + self.turns.len() as u64,
            rests: self.rests + 1,
            lost: self.lost + lost,
            ..fresh
        };
        lost
    }
}
