//! ShareFetch: a member of a share group says what it has done, and gets records that nobody else has. What is in memory is
//! served as shared slices; history is read by the cold-read pool, and what follows on it before anybody asks.
//!
//! A session may have thousands of partitions, and a request of a few bytes asks for all of them. They are gone through in passes, of which a turn on the
//! network thread carries out as much as fits into a millisecond ([`Stage`]).

mod request;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{
    Account, Acknowledged, Acknowledgement, AclOperation, Ahead, AheadWant, Broker, Cause, QuotaKey, Reply, ShareRules,
    SharedSubscription, Sharing, TailRead, UnpackRoom,
};
use bytes::Bytes;
use delivery::{Acquired, ConsumerId, Subscription};
use kafka_wire::share_fetch::{
    AcquiredRecords, LeaderIdAndEpoch, PartitionData, ShareFetchRequest, ShareFetchResponse,
    ShareFetchableTopicResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Records};
use parking_lot::Mutex;
use record::cut;
use smallvec::SmallVec;
use types::{ConnectionId, Offset, TopicId};
use uuid::Uuid;

use request::{acknowledge, check, list, update};

use super::fetch::{limited, visible_end};
use super::share_acknowledge::Sayer;
use super::share_batches::{Giving, give};
use super::{Outcome, Wait};
use crate::access::{Asking, HIDDEN};
use crate::body::Body;
use crate::error_code::of_read;
use crate::long_polls::PollRoom;
use crate::pinned::BLOCK_BYTES;
use crate::session::{Context, ShardContext};
use crate::share_sessions::{Asker, CLOSE, ShareSession};

/// Longest wait of a poll, whatever is asked for.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Read of one partition at once; what it holds is locked for one member.
const PARTITION_BYTES_MAX: usize = 1 << 20;
/// Batches without anything to give are passed over this often before others get their turn.
const PASSES_MAX: usize = 8;
/// How long a fetch waits before it looks again whether other answers have been read.
const HOLD_BACK: Duration = Duration::from_millis(20);
/// Partitions are gone through for so long in one turn …
const TURN_TIME: Duration = Duration::from_millis(1);
/// … and the clock is asked once for so many.
const LOOKED_AT_TOGETHER: usize = 50;

const BATCH_OPTIMIZED: i8 = 0;
const RECORD_LIMIT: i8 = 1;

/// Batches, and which of their records the member has.
type Given = (SmallVec<[Bytes; 4]>, Vec<Acquired>);

/// A partition that a member works on.
struct Worked {
    topic: Uuid,
    partition: i32,
    /// Something of it was acknowledged: it belongs to the answer.
    acknowledged: bool,
    /// New to the session: it belongs to an answer without records.
    new: bool,
    shared: Option<Arc<SharedSubscription>>,
    code: Option<ErrorCode>,
    acknowledge_code: Option<ErrorCode>,
    /// What the member gets of it.
    given: Option<Box<Given>>,
}

/// What is under way, of which a part is done in each turn: all partitions are gone through in each stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Each is looked for, once.
    Open,
    /// What is there is taken.
    Take,
    /// There is nothing to say: the member is to be woken for each of them …
    Watch,
    /// … and something may have come before that.
    TakeAgain,
    /// There is something to say: the member is not to be woken any more.
    Unwatch,
}

/// How much is done in one turn.
struct Turn {
    /// `None`: there are too few to ask the clock for.
    until: Option<Instant>,
    looked_at: usize,
}

impl Turn {
    fn of(partitions: usize) -> Self {
        Self { until: (partitions > LOOKED_AT_TOGETHER).then(|| Instant::now() + TURN_TIME), looked_at: 0 }
    }

    /// Another partition was looked at: is it over?
    fn is_over(&mut self) -> bool {
        self.looked_at += 1;
        self.looked_at.is_multiple_of(LOOKED_AT_TOGETHER) && self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// A share fetch that waits: for what it acknowledges to be durable, and for records.
struct ShareFetchWait {
    session: Arc<Mutex<ShareSession>>,
    group: String,
    consumer: ConsumerId,
    rules: ShareRules,
    worked: Vec<Worked>,
    /// Those of them that may belong to the answer, in any order.
    due: Vec<usize>,
    /// All of them have been looked for.
    opened: bool,
    /// What is under way, and how many partitions it has gone through.
    stage: Option<(Stage, usize)>,
    /// There is something to say at once.
    urgent: bool,
    /// Its answer waits for what is to be durable only.
    ready: bool,
    /// The member was woken while something was under way.
    woken: bool,
    /// As of which answers it is noted what may be read (`Asking::stamp`).
    judged: u64,
    start: usize,
    /// Ends the session: nothing is fetched.
    closes: bool,
    acknowledging: bool,
    min_bytes: usize,
    max_bytes: usize,
    bytes: usize,
    /// The account of a group that is far behind.
    laggard: Option<Arc<Account>>,
    records_left: u64,
    batch_size: u64,
    by_record: bool,
    deadline: Instant,
    /// Memory for what it keeps while it waits.
    poll_room: PollRoom,
    watching: bool,
    /// What the cold-read pool reads because this fetch asked for it.
    reading: Option<Arc<SharedSubscription>>,
    held_back: Option<Instant>,
    /// What it may unpack in this turn, for a filter or for keys.
    unpack: UnpackRoom,
}

/// What became of batches that were read.
struct Gave {
    /// The member got something.
    some: bool,
    /// What is left begins with this offset, in the batch at this place.
    rest: Option<(Offset, usize)>,
}

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ShareFetchRequest::decode(reader, context.version)?;
    let code = match begin(&request, context) {
        Ok(wait) => return Ok(Outcome::Wait(Box::new(wait))),
        Err(code) => code,
    };
    Ok(Outcome::answer(ShareFetchResponse { error_code: code.code(), ..ShareFetchResponse::default() }))
}

fn begin(request: &ShareFetchRequest, context: &mut Context<'_>) -> Result<ShareFetchWait, ErrorCode> {
    let named = |text: &Option<kafka_wire::Str>| text.as_ref().filter(|text| !text.is_empty()).map(ToString::to_string);
    let group = named(&request.group_id).ok_or(ErrorCode::InvalidRequest)?;
    let member = named(&request.member_id).ok_or(ErrorCode::InvalidRequest)?;
    let asking = context.asking();
    let judged = asking.stamp();
    asking.check_group(AclOperation::Read, &group)?;
    let by_record = check(request)?;
    let broker = &context.gateway.broker;
    let asker = Asker { group: &group, member: &member, connection: (context.to.shard, context.to.connection) };
    let session = context.gateway.share_sessions.enter(&asker, request.share_session_epoch, broker)?;
    let rules = broker.share_rules(&group);
    let mut held = session.lock();
    let consumer = held.consumer;
    update(request, &mut held)?;
    drop(held);
    let acknowledgement = Acknowledgement::new(context.to);
    let sayer = Sayer { broker, asking, group: &group, consumer, rules: &rules, renews: request.is_renew_ack };
    let said = acknowledge(request, &sayer, &acknowledgement);
    let closes = request.share_session_epoch == CLOSE;
    if closes {
        context.gateway.share_sessions.close(&group, &member);
        broker.release_consumers(&group, vec![consumer], context.peer.ip());
    }
    if !said.is_empty() {
        broker.close_acknowledgement(&acknowledgement);
    }
    let fetches = request.max_records > 0 && !closes;
    let held = session.lock();
    let (worked, start) = (list(&held.partitions, &said, fetches), held.start);
    drop(held);
    let due = worked.iter().enumerate().filter(|(_, one)| one.acknowledged || one.new).map(|(at, _)| at).collect();
    let wait = Duration::from_millis(request.max_wait_ms.max(0) as u64).min(WAIT_MAX);
    let max_bytes = (request.max_bytes.max(0) as usize).min(context.gateway.fetch_bytes_max);
    Ok(ShareFetchWait {
        session,
        consumer,
        worked,
        due,
        opened: false,
        stage: None,
        urgent: false,
        ready: false,
        woken: false,
        judged,
        start,
        closes,
        acknowledging: !said.is_empty(),
        min_bytes: (request.min_bytes.max(0) as usize).min(max_bytes),
        max_bytes,
        bytes: 0,
        laggard: None,
        records_left: request.max_records.max(0) as u64,
        batch_size: request.batch_size.max(1) as u64,
        by_record,
        deadline: context.now + wait,
        poll_room: PollRoom::default(),
        watching: false,
        reading: None,
        held_back: None,
        unpack: UnpackRoom::ALL_TURNS,
        group,
        rules,
    })
}

/// May the caller read the topic of this id? One that is not there is none to be kept from.
fn may_read(broker: &Broker, asking: &Asking<'_>, topic: Uuid) -> Result<(), ErrorCode> {
    if !asking.is_limited() {
        return Ok(());
    }
    let leave = broker
        .topic_by_id(TopicId(topic))
        .map_or(Ok(()), |topic| asking.check_found(AclOperation::Read, &topic.name, Some(&topic)));
    leave.map_err(|code| if code == HIDDEN { ErrorCode::UnknownTopicId } else { code })
}

/// The subscription of a group to a partition, made if it is not there; `None`: it is being made.
fn open(
    broker: &Broker,
    group: &str,
    topic: Uuid,
    partition: i32,
    rules: &ShareRules,
) -> Result<Option<Arc<SharedSubscription>>, ErrorCode> {
    let found = broker.topic_by_id(TopicId(topic)).ok_or(ErrorCode::UnknownTopicId)?;
    let index = super::fetch::index(partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    found.log(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if broker.subscriptions().get(group, found.id, index.0).is_none() {
        if broker.share_group_members(group).is_none() {
            return Err(ErrorCode::GroupIdNotFound);
        }
        // Of the codes for a partition the only one after which clients say so in their log and ask again.
        if broker.subscriptions().refuses() {
            return Err(ErrorCode::UnknownServerError);
        }
    }
    let shared = broker.open_subscription(group, &found, index, rules);
    if let Some(shared) = &shared {
        shared.lock().set_key_ordered(rules.config.share_key_ordered);
    }
    Ok(shared)
}

/// Has the cold-read pool read what follows on what was given, if there is plenty of memory.
fn read_on(shared: &Arc<SharedSubscription>, range: Range<Offset>, context: &Context<'_>) {
    let pinned = &context.gateway.pinned;
    if let Some(reserved) = pinned.has_plenty().then(|| pinned.reserve(PARTITION_BYTES_MAX + BLOCK_BYTES)).flatten() {
        let want = AheadWant {
            range,
            max_bytes: PARTITION_BYTES_MAX,
            hold: Box::new(|_| Box::new(reserved)),
            asked_for: false,
        };
        context.gateway.broker.read_ahead(shared, want);
    }
}

impl ShareFetchWait {
    /// Goes on with what is under way, for one turn.
    fn go_on_with_stage(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let mut turn = Turn::of(self.worked.len());
        while let Some((stage, first)) = self.stage {
            for step in first..self.worked.len() {
                let at = (self.start + step) % self.worked.len();
                match stage {
                    Stage::Open => self.open(at, context),
                    Stage::Take | Stage::TakeAgain => self.take(at, context),
                    Stage::Watch => self.watch(at, context),
                    Stage::Unwatch => self.unwatch(at, context.to.connection, context.shard),
                }
                if turn.is_over() {
                    self.stage = Some((stage, step + 1));
                    return None;
                }
            }
            self.stage = self.next_stage(stage, context).map(|next| (next, 0));
            if stage == Stage::Unwatch {
                self.watching = false;
                return self.respond(context);
            }
        }
        None
    }

    /// All partitions have been gone through: what is to be done now? `None`: to wait, or to answer behind `Unwatch`.
    fn next_stage(&mut self, done: Stage, context: &mut Context<'_>) -> Option<Stage> {
        match done {
            Stage::Unwatch => return None,
            Stage::Open => {
                self.limit(context);
                return Some(Stage::Take);
            }
            Stage::Watch => return Some(Stage::TakeAgain),
            Stage::Take | Stage::TakeAgain => {}
        }
        if self.unpack.is_used_up() {
            // Others have their turn before it goes on.
            self.held_back = Some(context.now + HOLD_BACK);
        }
        let ready = self.urgent || self.is_full();
        let waits = !ready && (context.now < self.deadline || self.reading.is_some());
        let may_wait = !waits || self.may_wait(context);
        if waits && may_wait && done == Stage::Take {
            // Watch first, then look once more: something may have come in between. Who was woken watches no more.
            (self.watching, self.woken) = (true, false);
            return Some(Stage::Watch);
        }
        let nothing = self.bytes == 0 && !ready;
        let held_back = self.held_back.is_some() && nothing && context.now < self.deadline;
        // What is being read for it stays for who asks next.
        self.ready = ready;
        if self.acknowledging || may_wait && (held_back || self.is_reading() && nothing) {
            return None;
        }
        if ready || !may_wait || context.now >= self.deadline {
            return Some(Stage::Unwatch);
        }
        self.woken.then(|| self.begin_take(context)).flatten()
    }

    /// Begins to go through all partitions; `None`: there is no memory for records now.
    fn begin_take(&mut self, context: &mut Context<'_>) -> Option<Stage> {
        self.judge_again(context);
        (self.unpack, self.urgent, self.woken) = (UnpackRoom::ALL_TURNS, self.closes, false);
        self.held_back = context.gateway.pinned.is_full().then(|| context.now + HOLD_BACK);
        if self.held_back.is_none() {
            return Some(if self.opened { Stage::Take } else { Stage::Open });
        }
        (!self.acknowledging && !self.may_wait(context)).then_some(Stage::Unwatch)
    }

    /// Takes what is in memory of a partition.
    fn take(&mut self, at: usize, context: &mut Context<'_>) {
        let broker = Arc::clone(&context.gateway.broker);
        if self.worked[at].code.is_some() {
            self.urgent = true;
        } else if !self.closes
            && self.records_left > 0
            && self.bytes < self.max_bytes
            && self.worked[at].given.is_none()
        {
            self.take_records(at, &broker, context);
            self.urgent |= self.worked[at].code.is_some();
        } else {
            return;
        }
        if self.worked[at].code.is_some() || self.worked[at].given.is_some() {
            self.due.push(at);
        }
    }

    /// Looks for a partition.
    fn open(&mut self, at: usize, context: &Context<'_>) {
        let (broker, worked) = (&context.gateway.broker, &mut self.worked[at]);
        let found = match may_read(broker, &context.asking(), worked.topic) {
            Err(code) => Err(code),
            Ok(()) if self.closes => Ok(None),
            Ok(()) => open(broker, &self.group, worked.topic, worked.partition, &self.rules),
        };
        (worked.code, worked.shared) = (found.as_ref().err().copied(), found.ok().flatten());
    }

    /// All partitions have been looked for: how far behind the group is limits what it gets.
    fn limit(&mut self, context: &mut Context<'_>) {
        self.opened = true;
        let fetches = self.records_left > 0 && !self.closes;
        let limited = if fetches { limited::of_share_group(context, &self.group) } else { limited::of_client(context) };
        self.max_bytes = self.max_bytes.min(limited.max_bytes);
        (self.min_bytes, self.laggard) = (self.min_bytes.min(self.max_bytes), limited.laggard);
    }

    fn take_records(&mut self, at: usize, broker: &Arc<Broker>, context: &mut Context<'_>) {
        let Some(shared) = self.find(at, broker) else {
            self.held_back = Some(context.now + HOLD_BACK);
            return;
        };
        let sharing = broker.sharing(&shared, &self.rules);
        for _ in 0..PASSES_MAX {
            if self.unpack.is_used_up() {
                break;
            }
            let (log, mut state) = (shared.log(), shared.lock());
            let Some(range) = self.next_range(broker, &shared, &mut state, &sharing) else { break };
            match broker.journal_of(log.id()).read_tail(log, range.clone(), self.room(), true) {
                TailRead::Data { slices, next, .. } => {
                    if self
                        .give(at, (&shared, &sharing), &mut state, (slices, range.start..next), broker)
                        .is_none_or(|gave| gave.some)
                    {
                        break;
                    }
                }
                TailRead::Cold => {
                    if !self.take_history(at, (&shared, &sharing), &mut state, range, context) {
                        break;
                    }
                }
                TailRead::Empty | TailRead::OutOfRange => break,
            }
        }
    }

    fn find(&mut self, at: usize, broker: &Broker) -> Option<Arc<SharedSubscription>> {
        let worked = &mut self.worked[at];
        if worked.shared.is_none() && worked.code.is_none() {
            worked.shared = u32::try_from(worked.partition)
                .ok()
                .and_then(|index| broker.subscriptions().get(&self.group, TopicId(worked.topic), index));
        }
        worked.shared.clone()
    }

    /// How much of a partition the answer has room for.
    fn room(&self) -> usize {
        self.max_bytes.saturating_sub(self.bytes).min(PARTITION_BYTES_MAX)
    }

    fn is_full(&self) -> bool {
        let some = self.bytes > 0;
        some && (self.bytes >= self.min_bytes || self.records_left == 0 || self.bytes >= self.max_bytes)
    }

    /// What to read next for this member, if there is anything.
    fn next_range(
        &self,
        broker: &Broker,
        shared: &Arc<SharedSubscription>,
        state: &mut Subscription,
        sharing: &Sharing,
    ) -> Option<Range<Offset>> {
        if shared.is_dropped() {
            return None;
        }
        broker.expire_subscription(shared, state, &sharing.rules);
        state.trim(shared.log().start().0);
        let from = Offset(state.wanted(self.consumer, &sharing.rules)?);
        let end = visible_end(shared.log(), sharing.committed_only);
        (from < end).then_some(from..end)
    }

    /// Gives the member what it may have of what was read; `None`: it cannot be given.
    fn give(
        &mut self,
        at: usize,
        of: (&SharedSubscription, &Sharing),
        state: &mut Subscription,
        read: (SmallVec<[Bytes; 4]>, Range<Offset>),
        broker: &Broker,
    ) -> Option<Gave> {
        let ((shared, sharing), (slices, range)) = (of, read);
        let filters = broker.filters();
        // What goes through a queue is the queue's to take or leave.
        let filter = if filters.any() && !shared.is_of_queue() { filters.of_group(&self.group) } else { None };
        let giving = Giving {
            consumer: self.consumer,
            sharing,
            now: broker::steady_ms(),
            records_max: self.records_left,
            bytes_max: self.room(),
            batch_size: self.batch_size,
            by_record: self.by_record,
            filter: filter.as_ref().map(|group| (filters, &*group.filter)),
            unpack: Cell::new(self.unpack),
        };
        let worked = &mut self.worked[at];
        let given = give(&giving, shared.log(), state, slices, range);
        self.unpack = giving.unpack.get();
        match given {
            Ok(given) => {
                self.records_left = self.records_left.saturating_sub(given.records);
                broker.subscriptions().note_given(shared, &given.acquired);
                self.bytes += given.bytes;
                let some = !given.acquired.is_empty();
                worked.given = some.then(|| Box::new((given.slices, given.acquired)));
                Some(Gave { some, rest: given.rest })
            }
            Err(_) => {
                worked.code = Some(ErrorCode::CorruptMessage);
                None
            }
        }
    }

    /// Gives the member of what was read of history, or has it read. True: what was there is none for this member, there may be more.
    fn take_history(
        &mut self,
        at: usize,
        of: (&Arc<SharedSubscription>, &Sharing),
        state: &mut Subscription,
        range: Range<Offset>,
        context: &mut Context<'_>,
    ) -> bool {
        let (shared, sharing) = of;
        let Ahead { range: read, slices, held } = match shared.take_ahead(range.start) {
            Some(Ok(ahead)) => ahead,
            Some(Err(error)) => {
                self.worked[at].code = Some(of_read(&error));
                return false;
            }
            None => {
                self.ask_for(shared, range, context);
                return false;
            }
        };
        let Some(gave) =
            self.give(at, (shared, sharing), state, (slices.clone(), range.start..read.end), &context.gateway.broker)
        else {
            return false;
        };
        match gave.rest {
            Some((first, place)) => {
                let total: usize = slices.iter().map(Bytes::len).sum();
                shared.put_back(Ahead { range: first..read.end, slices: cut(&slices, place, total - place), held });
            }
            None => {
                drop(held);
                if gave.some && read.end < range.end {
                    read_on(shared, read.end..range.end, context);
                }
            }
        }
        !gave.some
    }

    /// Sends the cold-read pool after what is not in memory, for one partition at a time.
    fn ask_for(&mut self, shared: &Arc<SharedSubscription>, range: Range<Offset>, context: &mut Context<'_>) {
        if self.is_reading() || shared.is_reading() {
            return;
        }
        let room = self.room();
        match context.gateway.pinned.reserve(room + BLOCK_BYTES) {
            Some(reserved) => {
                let want =
                    AheadWant { range, max_bytes: room, hold: Box::new(|_| Box::new(reserved)), asked_for: true };
                if context.gateway.broker.read_ahead(shared, want) {
                    self.reading = Some(Arc::clone(shared));
                }
            }
            None => self.held_back = Some(context.now + HOLD_BACK),
        }
    }

    fn is_reading(&self) -> bool {
        self.reading.as_ref().is_some_and(|shared| shared.is_reading())
    }

    /// Is there memory for what it keeps while it waits?
    fn may_wait(&mut self, context: &mut Context<'_>) -> bool {
        self.poll_room.is_there((self.worked.len(), size_of::<Worked>()), self.deadline, context)
    }

    /// It may have waited for long, and a topic may be a queue by now.
    fn judge_again(&mut self, context: &Context<'_>) {
        let asking = context.asking();
        let stamp = asking.stamp();
        if self.judged != stamp {
            self.judged = stamp;
            let mut last: Option<(Uuid, Option<ErrorCode>)> = None;
            for one in self.worked.iter_mut().filter(|one| one.code.is_none() && one.given.is_none()) {
                let (_, code) = *last
                    .filter(|(topic, _)| *topic == one.topic)
                    .get_or_insert_with(|| (one.topic, may_read(&context.gateway.broker, &asking, one.topic).err()));
                (one.code, last) = (code, Some((one.topic, code)));
            }
        }
    }

    fn watch(&self, at: usize, context: &mut Context<'_>) {
        if let Some(shared) = &self.worked[at].shared {
            shared.log().watch(context.to.shard);
            shared.watch(context.to.shard);
            context.shard.watches.watch(context.to.connection, shared.log().id());
        }
    }

    fn unwatch(&self, at: usize, connection: ConnectionId, shard: &mut ShardContext) {
        if let Some(shared) = self.worked[at].shared.as_ref().filter(|_| self.watching) {
            shard.watches.unwatch(connection, shared.log().id());
        }
    }

    fn respond(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let (start, count) = (self.start, self.worked.len());
        let step = |at: &usize| (at + count - start) % count;
        self.due.sort_unstable_by_key(step);
        self.due.dedup();
        let mut held = self.session.lock();
        let mut response = ShareFetchResponse {
            acquisition_lock_timeout_ms: self.rules.rules.lock as i32,
            ..ShareFetchResponse::default()
        };
        for at in std::mem::take(&mut self.due) {
            let worked = &mut self.worked[at];
            if let Some(kept) =
                held.partitions.get_mut(at).filter(|one| one.topic == worked.topic && one.partition == worked.partition)
            {
                kept.told |= worked.new;
            }
            let due = worked.acknowledged || worked.new && self.bytes == 0;
            if !due && worked.code.is_none() && worked.given.is_none() {
                continue;
            }
            let (slices, acquired) = worked.given.take().map(|given| *given).unwrap_or_default();
            let acquired = acquired.into_iter().map(|one| AcquiredRecords {
                first_offset: one.first as i64,
                last_offset: one.last as i64,
                delivery_count: i16::try_from(one.count).unwrap_or(i16::MAX),
                ..AcquiredRecords::default()
            });
            let data = PartitionData {
                partition_index: worked.partition,
                error_code: worked.code.map_or(0, ErrorCode::code),
                acknowledge_error_code: worked.acknowledge_code.map_or(0, ErrorCode::code),
                current_leader: leader(context),
                acquired_records: acquired.collect(),
                records: Some(Records(slices.into_vec())),
                ..PartitionData::default()
            };
            match response.responses.last_mut() {
                Some(last) if last.topic_id == worked.topic => last.partitions.push(data),
                _ => response.responses.push(ShareFetchableTopicResponse {
                    topic_id: worked.topic,
                    partitions: vec![data],
                    ..Default::default()
                }),
            }
        }
        context.gateway.metrics.fetched_bytes.inc_by(self.bytes as u64);
        context.throttle.take(
            context.gateway.broker.quotas(),
            QuotaKey::ConsumerByteRate,
            self.bytes as u64,
            context.now,
        );
        limited::take_of_laggard(context, self.laggard.as_deref(), self.bytes);
        Some(Box::new(response))
    }
}

impl Wait for ShareFetchWait {
    fn cause(&self) -> Cause {
        match (self.is_reading(), &self.held_back) {
            (true, _) => Cause::History,
            (false, Some(_)) => Cause::Memory,
            (false, None) => Cause::Records,
        }
    }

    fn handle_reply(&mut self, _part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        let acknowledged = *done.downcast::<Acknowledged>().ok()?;
        self.acknowledging = false;
        if acknowledged == Acknowledged(false) {
            for worked in
                self.worked.iter_mut().filter(|worked| worked.acknowledged && worked.acknowledge_code.is_none())
            {
                worked.acknowledge_code = Some(ErrorCode::KafkaStorageError);
            }
        }
        if self.stage.is_none() && self.ready {
            self.stage = Some((Stage::Unwatch, 0));
            return self.go_on_with_stage(context);
        }
        self.look(context)
    }

    fn look(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if self.stage.is_some() {
            self.woken = true;
        } else if self.held_back.is_none_or(|until| context.now >= until) {
            self.stage = self.begin_take(context).map(|stage| (stage, 0));
        }
        self.go_on_with_stage(context)
    }

    fn goes_on(&self) -> bool {
        self.stage.is_some()
    }

    fn go_on(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        self.go_on_with_stage(context)
    }

    fn hasten(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        (self.deadline, self.held_back) = (context.now, None);
        self.look(context)
    }

    fn deadline(&self) -> Option<Instant> {
        (self.stage.is_none() && !self.acknowledging && !self.is_reading())
            .then_some(self.held_back.unwrap_or(self.deadline))
    }

    fn cancel(&mut self, connection: ConnectionId, shard: &mut ShardContext) {
        (0..self.worked.len()).for_each(|at| self.unwatch(at, connection, shard));
        self.watching = false;
    }
}

/// Kafka leaves it 0, and clients take that for the id of a broker that is the leader now.
fn leader(context: &Context<'_>) -> LeaderIdAndEpoch {
    LeaderIdAndEpoch { leader_id: context.gateway.broker.node_id().0, ..LeaderIdAndEpoch::default() }
}
