//! ShareFetch: a member of a share group says what it has done, and gets records that nobody else has. What is in memory is
//! served as shared slices; history is read by the cold-read pool, and what follows on it before anybody asks.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{
    Account, AclOperation, Acknowledged, Acknowledgement, Ahead, AheadWant, Broker, Cause, QuotaKey, Reply, ShareRules, SharedSubscription,
    Sharing, TailRead, UnpackRoom,
};
use bytes::Bytes;
use delivery::{Acquired, ConsumerId, Subscription};
use hashbrown::HashMap;
use kafka_wire::share_fetch::{AcquiredRecords, LeaderIdAndEpoch, PartitionData, ShareFetchRequest, ShareFetchResponse, ShareFetchableTopicResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader, Records};
use parking_lot::Mutex;
use record::cut;
use smallvec::SmallVec;
use types::{ConnectionId, Offset, TopicId};
use uuid::Uuid;

use super::fetch::{limited, visible_end};
use super::share_acknowledge::{Said, Sayer};
use super::share_batches::{Giving, give};
use super::{Outcome, Wait};
use crate::access::{Asking, HIDDEN};
use crate::body::Body;
use crate::error_code::of_read;
use crate::long_polls::PollRoom;
use crate::pinned::BLOCK_BYTES;
use crate::session::{Context, ShardContext};
use crate::share_sessions::{Asker, CLOSE, OPEN, SharePartition, ShareSession};

/// Longest wait of a poll, whatever is asked for.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Read of one partition at once; what it holds is locked for one member.
const PARTITION_BYTES_MAX: usize = 1 << 20;
/// Batches without anything to give are passed over this often before others get their turn.
const PASSES_MAX: usize = 8;
/// How long a fetch waits before it looks again whether other answers have been read.
const HOLD_BACK: Duration = Duration::from_millis(20);

const BATCH_OPTIMIZED: i8 = 0;
const RECORD_LIMIT: i8 = 1;

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
    slices: SmallVec<[Bytes; 4]>,
    acquired: Vec<Acquired>,
}

/// A share fetch that waits: for what it acknowledges to be durable, and for records.
struct ShareFetchWait {
    session: Arc<Mutex<ShareSession>>,
    group: String,
    consumer: ConsumerId,
    rules: ShareRules,
    worked: Vec<Worked>,
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

/// What a request is refused for before anything of it is done; otherwise whether it wants single records.
fn check(request: &ShareFetchRequest) -> Result<bool, ErrorCode> {
    let acknowledges = request.topics.iter().flat_map(|topic| &topic.partitions).any(|one| !one.acknowledgement_batches.is_empty());
    let wants = request.max_bytes != 0 || request.max_records != 0 || request.min_bytes != 0 || request.max_wait_ms != 0;
    if request.is_renew_ack && wants || request.share_session_epoch == OPEN && acknowledges {
        return Err(ErrorCode::InvalidRequest);
    }
    match request.share_acquire_mode {
        BATCH_OPTIMIZED => Ok(false),
        RECORD_LIMIT => Ok(true),
        _ => Err(ErrorCode::InvalidRequest),
    }
}

/// Does what the request says of records; the outcomes by topic and partition.
fn acknowledge(request: &ShareFetchRequest, sayer: &Sayer<'_>, asker: &Arc<Acknowledgement>) -> HashMap<(Uuid, i32), Option<ErrorCode>> {
    let mut said = HashMap::new();
    for topic in &request.topics {
        for partition in topic.partitions.iter().filter(|one| !one.acknowledgement_batches.is_empty()) {
            let batches = partition.acknowledgement_batches.iter();
            let batches: Vec<Said<'_>> =
                batches.map(|one| Said { first: one.first_offset, last: one.last_offset, types: &one.acknowledge_types }).collect();
            let outcome = sayer.say(topic.topic_id, partition.partition_index, &batches, asker);
            said.insert((topic.topic_id, partition.partition_index), outcome.err());
        }
    }
    said
}

/// Brings the session up to date with what the request lists and forgets; the partitions that it has then.
fn update(request: &ShareFetchRequest, session: &Mutex<ShareSession>) -> Result<(Vec<SharePartition>, usize), ErrorCode> {
    let listed = request.topics.iter().flat_map(|topic| topic.partitions.iter().map(|one| (topic.topic_id, one.partition_index)));
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| topic.partitions.iter().map(|one| (topic.topic_id, *one)));
    let mut held = session.lock();
    held.update(listed, forgotten)?;
    Ok((held.partitions.clone(), held.start))
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
    let (rules, consumer) = (broker.share_rules(&group), session.lock().consumer);
    let (partitions, start) = update(request, &session)?;
    let acknowledgement = Acknowledgement::new(context.to);
    let sayer = Sayer { broker, asking, group: &group, consumer, rules: &rules, renews: request.is_renew_ack };
    let said = acknowledge(request, &sayer, &acknowledgement);
    let closes = request.share_session_epoch == CLOSE;
    if closes {
        context.gateway.share_sessions.close(&group, &member);
        broker.release_consumer(&group, consumer, &rules);
    }
    broker.close_acknowledgement(&acknowledgement);
    let fetches = request.max_records > 0 && !closes;
    let work = |one: &SharePartition| {
        let acknowledge_code = said.get(&(one.topic, one.partition)).copied();
        let found = match may_read(broker, &asking, one.topic) {
            Err(code) => Err(code),
            Ok(()) if closes => Ok(None),
            Ok(()) => open(broker, &group, one.topic, one.partition, &rules),
        };
        Worked {
            topic: one.topic,
            partition: one.partition,
            acknowledged: acknowledge_code.is_some(),
            new: !one.told && fetches,
            code: found.as_ref().err().copied(),
            shared: found.ok().flatten(),
            acknowledge_code: acknowledge_code.flatten(),
            slices: SmallVec::new(),
            acquired: Vec::new(),
        }
    };
    let worked = partitions.iter().map(work).collect();
    let wait = Duration::from_millis(request.max_wait_ms.max(0) as u64).min(WAIT_MAX);
    let limited = if fetches { limited::of_share_group(context, &group) } else { limited::of_client(context) };
    let max_bytes = (request.max_bytes.max(0) as usize).min(context.gateway.fetch_bytes_max).min(limited.max_bytes);
    Ok(ShareFetchWait {
        session,
        consumer,
        worked,
        judged,
        start,
        closes,
        acknowledging: true,
        min_bytes: (request.min_bytes.max(0) as usize).min(max_bytes),
        max_bytes,
        bytes: 0,
        laggard: limited.laggard,
        records_left: request.max_records.max(0) as u64,
        batch_size: request.batch_size.max(1) as u64,
        by_record,
        deadline: context.now + wait,
        poll_room: PollRoom::default(),
        watching: false,
        reading: None,
        held_back: None,
        unpack: UnpackRoom::TURN,
        group,
        rules,
    })
}

/// May the caller read the topic of this id? One that is not there is none to be kept from.
fn may_read(broker: &Broker, asking: &Asking<'_>, topic: Uuid) -> Result<(), ErrorCode> {
    if !asking.is_limited() {
        return Ok(());
    }
    let leave = broker.topic_by_id(TopicId(topic)).map_or(Ok(()), |topic| asking.check_found(AclOperation::Read, &topic.name, Some(&topic)));
    leave.map_err(|code| if code == HIDDEN { ErrorCode::UnknownTopicId } else { code })
}

/// The subscription of a group to a partition, made if it is not there; `None`: it is being made.
fn open(broker: &Broker, group: &str, topic: Uuid, partition: i32, rules: &ShareRules) -> Result<Option<Arc<SharedSubscription>>, ErrorCode> {
    let found = broker.topic_by_id(TopicId(topic)).ok_or(ErrorCode::UnknownTopicId)?;
    let index = super::fetch::index(partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    found.log(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if broker.subscriptions().get(group, found.id, index.0).is_none() && broker.share_group_members(group).is_none() {
        return Err(ErrorCode::GroupIdNotFound);
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
        let want = AheadWant { range, max_bytes: PARTITION_BYTES_MAX, hold: Box::new(|_| Box::new(reserved)), asked_for: false };
        context.gateway.broker.read_ahead(shared, want);
    }
}

impl ShareFetchWait {
    /// Takes what is in memory; true when there is something to say at once.
    fn take_tails(&mut self, context: &mut Context<'_>) -> bool {
        let broker = Arc::clone(&context.gateway.broker);
        let mut urgent = self.closes;
        for step in 0..self.worked.len() {
            let at = (self.start + step) % self.worked.len();
            urgent |= self.worked[at].code.is_some();
            if self.closes || self.records_left == 0 || self.bytes >= self.max_bytes || !self.worked[at].acquired.is_empty() || self.worked[at].code.is_some() {
                continue;
            }
            let Some(shared) = self.find(at, &broker) else {
                self.held_back = Some(context.now + HOLD_BACK);
                continue;
            };
            let sharing = broker.sharing(&shared, &self.rules);
            for _ in 0..PASSES_MAX {
                if self.unpack.is_used_up() {
                    break;
                }
                let (log, mut state) = (shared.log(), shared.lock());
                let Some(range) = self.next_range(&broker, &shared, &mut state, &sharing) else { break };
                match broker.journal_of(log.id()).read_tail(log, range.clone(), self.room(), true) {
                    TailRead::Data { slices, next, .. } => {
                        if self.give(at, (&shared, &sharing), &mut state, (slices, range.start..next), &broker).is_none_or(|gave| gave.some) {
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
            urgent |= self.worked[at].code.is_some();
        }
        if self.unpack.is_used_up() {
            // Others have their turn before it goes on.
            self.held_back = Some(context.now + HOLD_BACK);
        }
        urgent || self.is_full()
    }

    fn find(&mut self, at: usize, broker: &Broker) -> Option<Arc<SharedSubscription>> {
        let worked = &mut self.worked[at];
        if worked.shared.is_none() && worked.code.is_none() {
            worked.shared = u32::try_from(worked.partition).ok().and_then(|index| broker.subscriptions().get(&self.group, TopicId(worked.topic), index));
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
    fn next_range(&self, broker: &Broker, shared: &Arc<SharedSubscription>, state: &mut Subscription, sharing: &Sharing) -> Option<Range<Offset>> {
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
                worked.slices = given.slices;
                worked.acquired = given.acquired;
                Some(Gave { some: !worked.acquired.is_empty(), rest: given.rest })
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
        let Some(gave) = self.give(at, (shared, sharing), state, (slices.clone(), range.start..read.end), &context.gateway.broker) else { return false };
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
                let want = AheadWant { range, max_bytes: room, hold: Box::new(|_| Box::new(reserved)), asked_for: true };
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
            for one in self.worked.iter_mut().filter(|one| one.code.is_none() && one.acquired.is_empty()) {
                one.code = may_read(&context.gateway.broker, &asking, one.topic).err();
            }
        }
    }

    fn watch(&mut self, context: &mut Context<'_>) {
        self.watching = true;
        for shared in self.worked.iter().filter_map(|worked| worked.shared.as_ref()) {
            shared.log().watch(context.to.shard);
            shared.watch(context.to.shard);
            context.shard.watches.watch(context.to.connection, shared.log().id());
        }
    }

    fn unwatch(&mut self, connection: ConnectionId, shard: &mut ShardContext) {
        if std::mem::take(&mut self.watching) {
            for shared in self.worked.iter().filter_map(|worked| worked.shared.as_ref()) {
                shard.watches.unwatch(connection, shared.log().id());
            }
        }
    }

    fn respond(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        self.unwatch(context.to.connection, context.shard);
        let mut held = self.session.lock();
        let mut response =
            ShareFetchResponse { acquisition_lock_timeout_ms: self.rules.rules.lock as i32, ..ShareFetchResponse::default() };
        for step in 0..self.worked.len() {
            let at = (self.start + step) % self.worked.len();
            let worked = &mut self.worked[at];
            if let Some(kept) = held.partitions.get_mut(at).filter(|one| one.topic == worked.topic && one.partition == worked.partition) {
                kept.told |= worked.new;
            }
            let due = worked.acknowledged || worked.new && self.bytes == 0;
            if !due && worked.code.is_none() && worked.acquired.is_empty() {
                continue;
            }
            let acquired = worked.acquired.drain(..).map(|one| AcquiredRecords {
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
                records: Some(Records(std::mem::take(&mut worked.slices).into_vec())),
                ..PartitionData::default()
            };
            match response.responses.last_mut() {
                Some(last) if last.topic_id == worked.topic => last.partitions.push(data),
                _ => response.responses.push(ShareFetchableTopicResponse { topic_id: worked.topic, partitions: vec![data], ..Default::default() }),
            }
        }
        context.gateway.metrics.fetched_bytes.inc_by(self.bytes as u64);
        context.throttle.take(context.gateway.broker.quotas(), QuotaKey::ConsumerByteRate, self.bytes as u64, context.now);
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
            for worked in self.worked.iter_mut().filter(|worked| worked.acknowledged && worked.acknowledge_code.is_none()) {
                worked.acknowledge_code = Some(ErrorCode::KafkaStorageError);
            }
        }
        self.look(context)
    }

    fn look(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if self.held_back.is_some_and(|until| context.now < until) {
            return None;
        }
        self.judge_again(context);
        self.unpack = UnpackRoom::TURN;
        self.held_back = context.gateway.pinned.is_full().then(|| context.now + HOLD_BACK);
        if self.held_back.is_some() {
            return if self.acknowledging || self.may_wait(context) { None } else { self.respond(context) };
        }
        let mut ready = self.take_tails(context);
        let waits = !ready && (context.now < self.deadline || self.reading.is_some());
        let may_wait = !waits || self.may_wait(context);
        if waits && may_wait {
            // Watch first, then look once more: something may have come in between. Whoever was woken watches no more.
            self.watch(context);
            ready = self.take_tails(context);
        }
        let nothing = self.bytes == 0 && !ready;
        let held_back = self.held_back.is_some() && nothing && context.now < self.deadline;
        // What is being read for it stays for who asks next.
        if self.acknowledging || may_wait && (held_back || self.is_reading() && nothing) {
            return None;
        }
        if ready || !may_wait || context.now >= self.deadline { self.respond(context) } else { None }
    }

    fn hasten(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        (self.deadline, self.held_back) = (context.now, None);
        self.look(context)
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.acknowledging && !self.is_reading()).then_some(self.held_back.unwrap_or(self.deadline))
    }

    fn cancel(&mut self, connection: ConnectionId, shard: &mut ShardContext) {
        self.unwatch(connection, shard);
    }
}

/// Kafka leaves it 0, and clients take that for the id of a broker that is the leader now.
fn leader(context: &Context<'_>) -> LeaderIdAndEpoch {
    LeaderIdAndEpoch { leader_id: context.gateway.broker.node_id().0, ..LeaderIdAndEpoch::default() }
}
