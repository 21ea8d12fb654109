//! Fetch: long polls over many partitions. What is in memory is served at once as shared slices; history is read
//! by the cold-read pool; a fetch without news waits for one of its logs to advance. A member of a group with a filter gets what
//! passes it (`fetch/filtered.rs`). Fetches of thousands of partitions are looked at, and answered, by other threads (`fetch/elsewhere.rs`).

mod answer;
mod elsewhere;
mod filtered;
pub(super) mod limited;

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::{Account, AclOperation, Broker, Cause, ColdWant, HISTORY_BYTES_MAX, Log, Reply, TailRead, Waits};
use bytes::Bytes;
use hashbrown::HashMap;
use kafka_wire::fetch::{FetchRequest, FetchResponse, ForgottenTopic};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use parking_lot::Mutex;
use types::{ConnectionId, Offset, PartitionIndex, ShardId, TopicId};
use uuid::Uuid;

use super::{Outcome, Wait};
use crate::access::{Asking, HIDDEN};
use crate::body::Body;
use crate::error_code::of_read;
use crate::fetch_sessions::FetchSession;
use crate::group_of::Verdict;
use crate::long_polls::PollRoom;
use crate::pinned::{BLOCK_BYTES, COPIED_BYTES_MAX, Reserved};
use crate::session::{Context, ShardContext};
use elsewhere::Elsewhere;
use filtered::{Filtered, ReadOn, read_on};

/// Longest wait of a poll, whatever is asked for.
const WAIT_MAX: Duration = Duration::from_secs(300);

pub(crate) const READ_COMMITTED: i8 = 1;

/// How long a fetch waits before it looks again whether other answers have been read; twice as long each time …
const HOLD_BACK: Duration = Duration::from_millis(5);
/// … up to this.
const HOLD_BACK_MAX: Duration = Duration::from_millis(80);
/// Meanwhile those who read along get so many bytes, which are copied, so that who does not read holds up none of them.
const SCARCE_BYTES_MAX: usize = COPIED_BYTES_MAX / 2;
/// … of so many partitions.
const SCARCE_PARTITIONS_MAX: usize = 100;

/// What comes of a look at so many partitions stays allocated for the next one while a fetch waits.
const KEPT_FOUND_MAX: usize = 8;

/// A partition that a consumer wants to read.
#[derive(Clone)]
pub(crate) struct Wanted {
    name: Str,
    id: Uuid,
    partition: i32,
    offset: i64,
    epoch: i32,
    max_bytes: i32,
    log: Option<Arc<Log>>,
    /// Why the consumer may not read it.
    denied: Option<ErrorCode>,
    /// What the consumer was told last, in a session.
    told: (i64, i64),
}

impl Wanted {
    fn same_topic(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name
    }

    fn same_as(&self, other: &Self) -> bool {
        self.partition == other.partition && self.id == other.id && self.name == other.name
    }
}

/// Partitions of a request among which some may be named twice.
const REPEATED_MAX: usize = 100;

/// How long a fetch waits that gets nothing because nobody knows yet whose it is.
const IN_DOUBT: Duration = Duration::from_millis(100);

/// Turns that other threads have for batches which take long to judge; then the client is answered, and may ask again.
const LONG_TURNS_MAX: usize = 16;

/// What came of one partition.
#[derive(Default)]
struct Found {
    code: Option<ErrorCode>,
    /// As the answer has them: there are as many of these as partitions, most of them empty.
    slices: Vec<Bytes>,
    bytes: usize,
    /// Offset after the last batch.
    next: Offset,
    cold: bool,
}

/// What a fetch looks at, and what it has found there.
#[derive(Default)]
struct Scan {
    session: Option<Arc<Mutex<FetchSession>>>,
    incremental: bool,
    wanted: Vec<Wanted>,
    /// Partition that comes first this time.
    start: usize,
    min_bytes: usize,
    max_bytes: usize,
    by_id: bool,
    /// The consumer reads only what transactions have committed.
    committed_only: bool,
    /// Nothing while it waits, unless the cold-read pool reads.
    found: Vec<Found>,
    /// Of a member of a group with a filter.
    filtered: Option<Box<Filtered>>,
    /// It may be one of a group with a filter, or more was fetched than is paid for.
    gets_nothing: bool,
}

/// A request that has been looked at: what is missing needs its connection.
struct Listed {
    scan: Scan,
    judged: u64,
    wait: Duration,
    /// Bytes of the names in it.
    names: usize,
}

/// A fetch that waits.
struct FetchWait {
    /// Empty while other threads have it.
    scan: Scan,
    /// `None`: its connection's thread does all of it.
    elsewhere: Option<Box<Elsewhere>>,
    /// As of which answers it is noted what may be read (`Asking::stamp`).
    judged: u64,
    deadline: Instant,
    /// Memory for what it keeps while it waits.
    room: PollRoom,
    watching: bool,
    /// Partitions that the cold-read pool is reading now.
    cold: Option<Vec<usize>>,
    /// Memory for what they read.
    reserved: Option<Arc<Reserved>>,
    /// Other clients have to read their answers first; when to look again.
    held_back: Option<Instant>,
    hold_back: Duration,
    /// Where its connection's time goes.
    waits: Arc<Waits>,
    /// The account of a group that is far behind.
    laggard: Option<Arc<Account>>,
}

/// A filter has gone through records for a connection, on its shard's thread.
fn note_filtering(broker: &Broker, waits: &Waits, shard: ShardId, took: Duration) {
    waits.add(Cause::Filter, took);
    broker.waits().add_filtering(shard, took);
}

/// What became of the partitions whose records are not in memory.
#[derive(PartialEq, Eq)]
enum Cold {
    /// There are none, or the answer is full without them.
    Nothing,
    /// They are being read.
    Reading,
    /// There is no memory to read them into.
    NoMemory,
}

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let mut request = FetchRequest::decode(reader, context.version)?;
    let by_id = context.version >= 13;
    let fail =
        |code: ErrorCode| Ok(Outcome::answer(FetchResponse { error_code: code.code(), ..FetchResponse::default() }));
    let (broker, sessions) = (&context.gateway.broker, &context.gateway.fetch_sessions);
    let (session_id, epoch) = (request.session_id, request.session_epoch);
    let asking = context.asking();
    let names = request.topics.iter().map(|topic| topic.topic.len()).sum();
    let found = broker.topics_version();
    let mut listed = list_wanted(&request, by_id, context);
    // What it names takes as much memory again.
    request.topics = Vec::new();
    let judged = asking.stamp();
    judge(&mut listed, by_id, broker, &asking);
    let mut start = 0;
    let (session, incremental, wanted) = if epoch <= 0 {
        if session_id != 0 {
            sessions.remove(session_id);
        }
        let session = if epoch == 0 { sessions.create(&listed, by_id, found, context.now) } else { None };
        session.iter().for_each(|session| session.lock().judged = judged);
        // It may wait for minutes, and names are slices of the request. One that is too long for a topic's is answered at once.
        let own = if by_id { None } else { kept(&listed) };
        (session, false, own.unwrap_or(listed))
    } else {
        let Some(session) = sessions.get(session_id) else { return fail(ErrorCode::FetchSessionIdNotFound) };
        let mut held = session.lock();
        if held.by_id != by_id {
            return fail(ErrorCode::FetchSessionTopicIdError);
        }
        if held.epoch != epoch {
            return fail(ErrorCode::InvalidFetchSessionEpoch);
        }
        held.epoch = epoch.checked_add(1).unwrap_or(1);
        held.used = context.now;
        let known = kept(&listed).is_some_and(|listed| {
            update(&mut held.wanted, listed, &request.forgotten_topics_data);
            held.make_room()
        });
        if !known {
            // It asks for all without a session then.
            drop(held);
            sessions.remove(session_id);
            return fail(ErrorCode::FetchSessionIdNotFound);
        }
        let changed = held.found != found;
        let others = changed && {
            held.found = found;
            find_logs(&mut held.wanted, by_id, broker)
        };
        // What has a name now may be a queue.
        if others || held.judged != judged {
            held.judged = judged;
            judge(&mut held.wanted, by_id, broker, &asking);
        } else if changed && held.wanted.iter().any(|one| one.denied.is_some()) {
            // A queue that was coming to life may be there; that others are denied was said before.
            judge(&mut held.wanted, by_id, broker, &context.asking().quietly());
        }
        held.start = if held.wanted.is_empty() { 0 } else { (held.start + 1) % held.wanted.len() };
        start = held.start;
        let wanted = held.wanted.clone();
        drop(held);
        (Some(session), true, wanted)
    };
    let wait = Duration::from_millis(request.max_wait_ms.max(0) as u64).min(WAIT_MAX);
    let scan = Scan {
        session,
        incremental,
        wanted,
        start,
        min_bytes: request.min_bytes.max(0) as usize,
        max_bytes: request.max_bytes.max(0) as usize,
        by_id,
        committed_only: request.isolation_level == READ_COMMITTED,
        ..Scan::default()
    };
    let listed = Listed { scan, judged, wait, names };
    if context.gone.is_none() {
        return Ok(begin(listed, context.client_id, context));
    }
    // A long request is looked at elsewhere.
    let client_id = context.client_id.to_owned();
    Ok(Outcome::Resume(Box::new(move |context| begin(listed, &client_id, context))))
}

/// What its connection has to do with a fetch.
fn begin(listed: Listed, client_id: &str, context: &mut Context<'_>) -> Outcome {
    let Listed { mut scan, judged, mut wait, names } = listed;
    let (filtered, in_doubt) = filtered(context, client_id, &scan.wanted, &mut scan.start);
    if in_doubt {
        wait = wait.min(IN_DOUBT);
    }
    let limited = limited::begin(context, client_id, &scan.wanted);
    scan.max_bytes = scan.max_bytes.min(context.gateway.fetch_bytes_max).min(limited.max_bytes);
    scan.min_bytes = scan.min_bytes.min(scan.max_bytes);
    if limited.gets_nothing {
        wait = Duration::ZERO;
    }
    (scan.filtered, scan.gets_nothing) = (filtered, in_doubt || limited.gets_nothing);
    Outcome::Wait(Box::new(FetchWait {
        elsewhere: Elsewhere::of(scan.wanted.len(), names),
        scan,
        judged,
        deadline: context.now + wait,
        room: PollRoom::default(),
        waits: Arc::clone(context.waits),
        watching: false,
        cold: None,
        reserved: None,
        held_back: None,
        hold_back: HOLD_BACK,
        laggard: limited.laggard,
    }))
}

/// What a filter lets through, if the fetch is one of a member of a group with a filter, and whether it may be.
fn filtered(
    context: &mut Context<'_>,
    client_id: &str,
    wanted: &[Wanted],
    start: &mut usize,
) -> (Option<Box<Filtered>>, bool) {
    match context.verdict(client_id) {
        Verdict::Nobody => (None, false),
        Verdict::InDoubt => (None, !wanted.is_empty()),
        Verdict::Of(filter) => {
            if *start == 0 && !wanted.is_empty() {
                // A turn may end before all partitions had theirs: who has no session begins anywhere.
                *start = (context.to.token / crate::session::PARTS_MAX) as usize % wanted.len();
            }
            (Some(Box::new(Filtered::new(filter, wanted.len()))), false)
        }
    }
}

fn list_wanted(request: &FetchRequest, by_id: bool, context: &Context<'_>) -> Vec<Wanted> {
    let broker = &context.gateway.broker;
    let count = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    let mut wanted: Vec<Wanted> = Vec::with_capacity(count);
    // Of what is named twice the last counts, as for Kafka. Where there is little it costs nothing to read it twice.
    let mut places: Option<HashMap<(Uuid, &Str, i32), usize>> =
        (count > REPEATED_MAX).then(|| HashMap::with_capacity(count));
    for topic in &request.topics {
        let found = if by_id { broker.topic_by_id(TopicId(topic.topic_id)) } else { broker.topic(&topic.topic) };
        if let Some(found) = &found {
            context.waits.use_topic(found.id);
        }
        let logs = found.map(|found| found.logs());
        for partition in &topic.partitions {
            let at = usize::try_from(partition.partition).unwrap_or(usize::MAX);
            let one = Wanted {
                name: topic.topic.clone(),
                id: topic.topic_id,
                partition: partition.partition,
                offset: partition.fetch_offset,
                epoch: partition.current_leader_epoch,
                max_bytes: partition.partition_max_bytes,
                log: logs.as_ref().and_then(|logs| logs.get(at).cloned()),
                denied: None,
                told: (-1, -1),
            };
            let place = places.as_mut().map_or(wanted.len(), |places| {
                *places.entry((topic.topic_id, &topic.topic, partition.partition)).or_insert(wanted.len())
            });
            if place < wanted.len() {
                wanted[place] = one;
            } else {
                wanted.push(one);
            }
        }
    }
    wanted
}

/// Looks up again what is read: topics may have come, gone, or been made anew since. True: some of it is another one.
fn find_logs(wanted: &mut [Wanted], by_id: bool, broker: &Broker) -> bool {
    let mut others = false;
    for of_topic in wanted.chunk_by_mut(|one, next| one.same_topic(next)) {
        let topic = if by_id { broker.topic_by_id(TopicId(of_topic[0].id)) } else { broker.topic(&of_topic[0].name) };
        let logs = topic.map(|topic| topic.logs());
        for one in of_topic {
            let at = usize::try_from(one.partition).unwrap_or(usize::MAX);
            let log = logs.as_ref().and_then(|logs| logs.get(at).cloned());
            others |= log.as_ref().map(|log| log.id()) != one.log.as_ref().map(|log| log.id());
            one.log = log;
        }
    }
    others
}

/// Notes which partitions the caller may not read. Nothing is looked up for who may see everything.
fn judge(wanted: &mut [Wanted], by_id: bool, broker: &Broker, asking: &Asking<'_>) {
    if !asking.is_limited() {
        wanted.iter_mut().for_each(|one| one.denied = None);
        return;
    }
    for of_topic in wanted.chunk_by_mut(|one, next| one.id == next.id && one.name == next.name) {
        let (name, id) = (&of_topic[0].name, of_topic[0].id);
        let denied = if by_id {
            let leave = broker
                .topic_by_id(TopicId(id))
                .map(|topic| asking.check_found(AclOperation::Read, &topic.name, Some(&topic)));
            leave.and_then(Result::err).map(|code| if code == HIDDEN { ErrorCode::UnknownTopicId } else { code })
        } else {
            asking.check_topic(AclOperation::Read, name).err()
        };
        of_topic.iter_mut().for_each(|one| one.denied = denied);
    }
}

/// The same without anything of the request that they came with; `None`: a name is longer than those of topics are.
pub(crate) fn kept(listed: &[Wanted]) -> Option<Vec<Wanted>> {
    let mut kept = Vec::with_capacity(listed.len());
    for of_topic in listed.chunk_by(|one, next| one.name == next.name) {
        let name = &of_topic[0].name;
        if name.len() > broker::TOPIC_NAME_BYTES_MAX {
            return None;
        }
        let name = Str::from(name.as_str());
        kept.extend(of_topic.iter().map(|one| Wanted { name: name.clone(), ..one.clone() }));
    }
    Some(kept)
}

/// Brings a session up to date with what a request lists and forgets.
fn update(wanted: &mut Vec<Wanted>, listed: Vec<Wanted>, forgotten: &[ForgottenTopic]) {
    if listed.is_empty() && forgotten.is_empty() {
        return;
    }
    let key = |one: &Wanted| (one.id, one.name.clone(), one.partition);
    let mut places: HashMap<(Uuid, Str, i32), usize> =
        wanted.iter().enumerate().map(|(at, one)| (key(one), at)).collect();
    for one in listed {
        match places.get(&key(&one)) {
            Some(at) => wanted[*at] = Wanted { told: wanted[*at].told, ..one },
            None => {
                places.insert(key(&one), wanted.len());
                wanted.push(one);
            }
        }
    }
    if !forgotten.is_empty() {
        let gone: hashbrown::HashSet<(Uuid, &Str, i32)> = forgotten
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, &topic.topic, *partition)))
            .collect();
        wanted.retain(|one| !gone.contains(&(one.id, &one.name, one.partition)));
    }
}

/// The error of a partition that cannot be read, if any.
fn check(wanted: &Wanted, by_id: bool, broker: &Broker) -> Option<ErrorCode> {
    if wanted.denied.is_some() {
        return wanted.denied;
    }
    let unknown = if by_id { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
    let Some(log) = &wanted.log else {
        let topic_known = by_id && broker.topic_by_id(TopicId(wanted.id)).is_some();
        return Some(if topic_known { ErrorCode::UnknownTopicOrPartition } else { unknown });
    };
    if broker.journal_of(log.id()).log(log.id()).is_none() {
        return Some(unknown);
    }
    let current = log.leader_epoch() as i32;
    if wanted.epoch >= 0 && wanted.epoch != current {
        return Some(if wanted.epoch < current { ErrorCode::FencedLeaderEpoch } else { ErrorCode::UnknownLeaderEpoch });
    }
    None
}

impl Scan {
    /// Reads what is in memory; true when there is something to say at once.
    fn read_tails(&mut self, broker: &Broker, waits: &Waits, shard: ShardId) -> bool {
        self.found.clear();
        self.found.resize_with(self.wanted.len(), Found::default);
        // `full`: there is more than the answer has room for.
        let (mut bytes, mut urgent, mut full, mut took) = (0, false, false, Duration::ZERO);
        if self.gets_nothing {
            return self.check_all(broker);
        }
        if let Some(filtered) = &mut self.filtered {
            filtered.begin_turn(self.max_bytes);
        }
        for step in 0..self.wanted.len() {
            let at = (self.start + step) % self.wanted.len();
            let wanted = &self.wanted[at];
            let found = &mut self.found[at];
            found.code = check(wanted, self.by_id, broker);
            let (Some(log), None) = (&wanted.log, found.code) else {
                urgent |= found.code.is_some();
                continue;
            };
            let room = self.max_bytes.saturating_sub(bytes).min(wanted.max_bytes.max(0) as usize);
            let Ok(offset) = u64::try_from(wanted.offset) else {
                found.code = Some(ErrorCode::OffsetOutOfRange);
                urgent = true;
                continue;
            };
            let (end, readable) = (visible_end(log, self.committed_only), log.high_watermark());
            if (end..=readable).contains(&Offset(offset)) {
                continue;
            }
            // What has passed a filter before has its room, and has to be told of.
            if room == 0 && bytes > 0 && self.filtered.is_none() {
                full |= bytes >= self.max_bytes;
                continue;
            }
            let read = match &mut self.filtered {
                None => broker.journal_of(log.id()).read_tail(log, Offset(offset)..end, room, bytes == 0),
                Some(filtered) => {
                    let began = Instant::now();
                    let of_partition = wanted.max_bytes.max(0) as usize;
                    let read = filtered.read_tail(at, broker, log, Offset(offset)..end, of_partition);
                    took += began.elapsed();
                    read
                }
            };
            match read {
                TailRead::Data { slices, bytes: read, next } => {
                    found.slices = slices.into_vec();
                    found.next = next;
                    found.bytes = read;
                    full |= next < end && self.filtered.is_none() && room < wanted.max_bytes.max(0) as usize;
                    bytes += read;
                }
                TailRead::Cold => found.cold = true,
                TailRead::Empty => {}
                TailRead::OutOfRange => {
                    found.code = Some(ErrorCode::OffsetOutOfRange);
                    urgent = true;
                }
            }
        }
        if !took.is_zero() {
            note_filtering(broker, waits, shard, took);
        }
        // A consumer that closes ends its fetch session with a request of no partition, and waits for the answer.
        let spent = self.filtered.as_ref().is_some_and(|filtered| filtered.is_spent());
        urgent || full || bytes >= self.min_bytes || spent || self.wanted.is_empty()
    }

    /// Notes what cannot be read, and reads nothing; true when there is something to say of it.
    fn check_all(&mut self, broker: &Broker) -> bool {
        self.found.clear();
        self.found.extend(
            self.wanted.iter().map(|wanted| Found { code: check(wanted, self.by_id, broker), ..Found::default() }),
        );
        self.found.iter().any(|found| found.code.is_some())
    }

    /// Bytes of records that were found.
    fn bytes(&self) -> usize {
        self.found.iter().map(|found| found.bytes).sum()
    }
}

impl FetchWait {
    /// Sends the cold-read pool after what is not in memory, and others after what takes them long.
    fn read_colds(&mut self, context: &Context<'_>) -> Cold {
        let scan = &self.scan;
        let served = scan.bytes();
        let room = scan.max_bytes.saturating_sub(served);
        let cold: Vec<usize> = (0..scan.found.len()).filter(|at| scan.found[*at].cold).collect();
        if cold.is_empty() || room == 0 && served > 0 {
            return Cold::Nothing;
        }
        // Records lie in blocks, of which the first and the last may be held for a few bytes.
        let wanted: usize = cold.iter().map(|at| scan.wanted[*at].max_bytes.max(0) as usize + BLOCK_BYTES).sum();
        let Some(reserved) = context.gateway.pinned.reserve(wanted.min(room + BLOCK_BYTES).min(HISTORY_BYTES_MAX))
        else {
            return if served > 0 { Cold::Nothing } else { Cold::NoMemory };
        };
        let long = scan.filtered.as_ref().is_some_and(|filtered| filtered.is_long());
        self.reserved = Some(reserved);
        if self.send(cold, (room, long), context) { Cold::Reading } else { Cold::Nothing }
    }

    /// Has partitions read elsewhere; false: too much waits there.
    fn send(&mut self, cold: Vec<usize>, (room, long): (usize, bool), context: &Context<'_>) -> bool {
        let scan = &self.scan;
        let Some(held) = self.reserved.clone() else { return false };
        let wants: Vec<(usize, ColdWant)> = cold
            .iter()
            .filter_map(|at| {
                let wanted = &scan.wanted[*at];
                let log = Arc::clone(wanted.log.as_ref()?);
                let max_bytes = wanted.max_bytes.max(0) as usize;
                let until = visible_end(&log, scan.committed_only);
                let journal = context.gateway.broker.journal_number(log.id());
                let from = Offset(wanted.offset as u64);
                let from = scan.filtered.as_ref().map_or(from, |filtered| filtered.from(*at, from));
                Some((journal, ColdWant { log, from, until, max_bytes }))
            })
            .collect();
        let filter = scan.filtered.as_ref().map(|filtered| Arc::clone(filtered.filter()));
        let waits = Arc::clone(&self.waits);
        let read = move |broker: &Arc<Broker>| {
            let read = read_on(broker, &wants, room, filter.as_deref(), long);
            if filter.is_some() {
                waits.add(Cause::Filter, read.took);
            }
            read
        };
        let broker = &context.gateway.broker;
        let sent = if long {
            let mut turns = 0;
            let work = move |broker: &Arc<Broker>| {
                turns += 1;
                let read = read(broker);
                // Nobody waits for it when the fetch has let go of its memory.
                let over = !read.long || turns == LONG_TURNS_MAX || Arc::strong_count(&held) == 1;
                over.then(|| Box::new(ReadOn { long: false, ..read }) as Box<dyn std::any::Any + Send>)
            };
            broker.unpack(context.peer.ip(), context.to, Box::new(work))
        } else {
            let work = move |broker: &Arc<Broker>| {
                let read = read(broker);
                drop(held);
                Box::new(read) as Box<dyn std::any::Any + Send>
            };
            broker.read_history(context.to, context.job_owner(), Box::new(work))
        };
        if sent {
            self.cold = Some(cold);
        } else {
            self.reserved = None;
        }
        sent
    }

    /// Is there something to say at once? `None`: it has to wait for the disk, or, while memory is `scarce`, for what others have not read.
    fn read(&mut self, broker: &Broker, scarce: bool, context: &mut Context<'_>) -> Option<bool> {
        let mut ready = self.scan.read_tails(broker, &self.waits, context.to.shard);
        if self.waits_for_more(scarce, context) {
            return None;
        }
        if !ready && context.now < self.deadline {
            if !self.has_room(context) {
                return Some(true);
            }
            // Watch first, then look once more: a log may have advanced in between. Who was woken watches no more.
            self.watching = false;
            self.watch(context);
            ready = self.scan.read_tails(broker, &self.waits, context.to.shard);
            if self.waits_for_more(scarce, context) {
                return None;
            }
        }
        Some(ready)
    }

    /// Has this fetch to wait, for the disk or for memory?
    fn waits_for_more(&mut self, scarce: bool, context: &mut Context<'_>) -> bool {
        let too_much =
            scarce && (self.scan.found.iter().any(|found| found.cold) || self.scan.bytes() > SCARCE_BYTES_MAX);
        let waits = if too_much { Cold::NoMemory } else { self.read_colds(context) };
        match waits {
            Cold::Nothing => return false,
            Cold::Reading => {}
            Cold::NoMemory => self.hold_back(context.now),
        }
        self.unwatch(context.to.connection, context.shard);
        true
    }

    /// Is there memory for what it keeps while it waits?
    fn has_room(&mut self, context: &mut Context<'_>) -> bool {
        self.room.is_there((self.scan.wanted.len(), size_of::<Wanted>()), self.deadline, context)
    }

    /// Waits until others have read, or answers with nothing if there is no memory for that either.
    fn wait_held_back(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if self.has_room(context) {
            self.scan.found = Vec::new();
            return None;
        }
        self.held_back = None;
        if self.elsewhere.is_some() {
            return self.hand_over(elsewhere::Task::Refuse, context);
        }
        self.scan.check_all(&context.gateway.broker);
        self.respond(context)
    }

    fn hold_back(&mut self, now: Instant) {
        self.held_back = Some(now + self.hold_back);
        self.hold_back = (self.hold_back * 2).min(HOLD_BACK_MAX);
    }

    fn watch(&mut self, context: &mut Context<'_>) {
        if self.watching {
            return;
        }
        self.watching = true;
        for log in self.scan.wanted.iter().filter_map(|wanted| wanted.log.as_ref()) {
            log.watch(context.to.shard);
            context.shard.watches.watch(context.to.connection, log.id());
        }
    }

    fn unwatch(&mut self, connection: ConnectionId, shard: &mut ShardContext) {
        if std::mem::take(&mut self.watching) {
            if let Some(elsewhere) = &mut self.elsewhere {
                elsewhere.watched().for_each(|log| shard.watches.unwatch(connection, log));
            }
            for log in self.scan.wanted.iter().filter_map(|wanted| wanted.log.as_ref()) {
                shard.watches.unwatch(connection, log.id());
            }
        }
    }

    fn respond(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if self.elsewhere.is_some() {
            return self.hand_over(elsewhere::Task::Respond, context);
        }
        self.unwatch(context.to.connection, context.shard);
        let (response, taken) = self.scan.respond(context.gateway);
        limited::take(context, &taken, self.laggard.as_deref());
        Some(Box::new(response))
    }
}

/// Where records end for a reader of all records, or of committed ones only.
pub(crate) fn visible_end(log: &Log, committed_only: bool) -> Offset {
    if committed_only { log.last_stable() } else { log.high_watermark() }
}

impl Wait for FetchWait {
    fn cause(&self) -> Cause {
        match (&self.cold, &self.held_back) {
            (Some(_), _) => Cause::History,
            (None, Some(_)) => Cause::Memory,
            (None, None) => Cause::Records,
        }
    }

    fn handle_reply(&mut self, _part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        let Some(cold) = self.cold.take() else { return self.take_looked(done, context) };
        let read = *done.downcast::<ReadOn>().ok()?;
        let room = self.scan.max_bytes.saturating_sub(self.scan.bytes());
        if read.long && self.send(cold.clone(), (room, true), context) {
            return None;
        }
        for (at, result) in cold.into_iter().zip(read.results) {
            let found = &mut self.scan.found[at];
            found.cold = false;
            match result {
                Some(Ok((data, covered))) => {
                    let data = match &mut self.scan.filtered {
                        Some(filtered) => filtered.take_cold(at, data, covered),
                        None => data,
                    };
                    found.bytes = data.bytes;
                    found.slices = data.slices.into_vec();
                    found.next = data.next;
                }
                Some(Err(error)) => found.code = Some(of_read(&error)),
                None => {}
            }
        }
        self.respond(context)
    }

    fn look(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        if self.cold.is_some() || self.is_away() {
            return None;
        }
        if self.held_back.is_some_and(|until| context.now < until) {
            return None;
        }
        self.held_back = None;
        let scarce = context.gateway.pinned.is_full();
        if scarce && self.scan.wanted.len() > SCARCE_PARTITIONS_MAX {
            self.hold_back(context.now);
            return self.wait_held_back(context);
        }
        if self.elsewhere.is_some() {
            return self.look_elsewhere(context);
        }
        let broker = Arc::clone(&context.gateway.broker);
        // It may have waited for long, and the topic may be a queue by now.
        let asking = context.asking();
        let stamp = asking.stamp();
        if self.judged != stamp {
            self.judged = stamp;
            judge(&mut self.scan.wanted, self.scan.by_id, &broker, &asking);
        }
        let usual = self.scan.max_bytes;
        if scarce {
            self.scan.max_bytes = usual.min(SCARCE_BYTES_MAX);
        }
        let ready = self.read(&broker, scarce, context);
        self.scan.max_bytes = usual;
        match ready {
            Some(ready) if ready || context.now >= self.deadline => self.respond(context),
            Some(_) => {
                // A few are kept for the next time.
                if self.scan.found.len() > KEPT_FOUND_MAX {
                    self.scan.found = Vec::new();
                }
                None
            }
            None if self.held_back.is_some() => self.wait_held_back(context),
            None => None,
        }
    }

    fn hasten(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        (self.deadline, self.held_back) = (context.now, None);
        self.look(context)
    }

    fn deadline(&self) -> Option<Instant> {
        (self.cold.is_none() && !self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.has_it()))
            .then_some(self.held_back.unwrap_or(self.deadline))
    }

    fn cancel(&mut self, connection: ConnectionId, shard: &mut ShardContext) {
        self.unwatch(connection, shard);
    }
}

/// The partition of a log, for those who only have the index.
pub(crate) fn index(partition: i32) -> Option<PartitionIndex> {
    u32::try_from(partition).ok().map(PartitionIndex)
}
