//! One file per API, or per family of small ones. The table below is what is served: the ApiVersions answer, the
//! dispatch and the documentation are made from it.
//!
//! Bytes behind a request are ignored, as Kafka does: librdkafka's Metadata request has some.

mod acls;
mod api_versions;
mod broker_configs;
mod cluster;
mod configs;
mod consumer_groups;
mod features;
pub(crate) mod fetch;
mod group_admin;
mod group_list;
mod group_offsets;
mod groups;
mod list_offsets;
mod metadata;
mod mutations;
mod partitions;
mod produce;
mod producers;
mod quotas;
mod replication;
mod sasl;
mod scram;
mod share_acknowledge;
mod share_batches;
mod share_fetch;
mod share_groups;
mod share_offsets;
mod streams_groups;
mod telemetry;
mod topics;
mod transaction_admin;
mod transaction_list;
mod transactions;

use std::time::Instant;

use broker::{Cause, Reply};
use kafka_wire::{ApiKey, DecodeError, ErrorCode, Reader};
use types::ConnectionId;

use crate::access::Asking;
use crate::body::Body;
use crate::session::{Context, ShardContext};

pub(crate) use api_versions::unsupported as unsupported_api_versions;

/// What becomes of a request at once.
pub(crate) enum Outcome {
    /// Answered.
    Answer(Box<dyn Body>),
    /// Answered in version 0, whatever was asked.
    Downgraded(Box<dyn Body>),
    /// No answer is wanted.
    Silent,
    /// No answer is wanted, and the request was refused: the connection ends.
    Close(ErrorCode),
    /// To be answered later.
    Wait(Box<dyn Wait>),
    /// To be gone on with on the thread of the connection, whichever this one is.
    Resume(Resume),
    /// Its answer takes longer than a network thread has, however short it is ([`Context::is_long`]): it is handled by other threads, as long ones are.
    Long,
}

/// The rest of a request, which needs its connection.
pub(crate) type Resume = Box<dyn FnOnce(&mut Context<'_>) -> Outcome + Send>;

impl Outcome {
    fn answer(body: impl Body + 'static) -> Self {
        Self::Answer(Box::new(body))
    }

    /// What comes of the rest of it, on the thread of the connection.
    pub fn resumed(self, context: &mut Context<'_>) -> Self {
        match self {
            Self::Resume(rest) => rest(context).resumed(context),
            other => other,
        }
    }
}

/// A request that waits.
pub(crate) trait Wait {
    /// An answer has come, to part `part`.
    fn handle_reply(&mut self, part: u64, reply: Reply, context: &mut Context<'_>) -> Option<Box<dyn Body>>;
    /// Something may have changed: look.
    fn look(&mut self, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        None
    }
    /// Was its last look, or what it went on with, over before it was through, because others are to have their turn?
    fn goes_on(&self) -> bool {
        false
    }
    /// Goes on with that.
    fn go_on(&mut self, context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        self.look(context)
    }
    /// What it waits for.
    fn cause(&self) -> Cause {
        Cause::Coordinator
    }
    /// Requests behind it are not read yet: what they do must not come before what it does.
    fn holds_reading(&self) -> bool {
        false
    }
    /// When to look at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }
    /// The node stops: what waits for others to do something is answered now. What waits for the disk is answered by itself.
    fn hasten(&mut self, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        None
    }
    /// The connection is gone.
    fn cancel(&mut self, _connection: ConnectionId, _shard: &mut ShardContext) {}
}

/// A wait for a job that returns the response itself.
struct JobWait;

pub(crate) type JobBody = Box<dyn Body>;

impl Wait for JobWait {
    fn handle_reply(&mut self, _part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        match reply {
            Reply::Done(done) => done.downcast::<JobBody>().ok().map(|body| *body),
            Reply::Appended(_) | Reply::Failed => None,
        }
    }
}

/// Runs `work` on the controller's thread; what it returns is the response. `busy` is, when there is no room. What the caller may do is asked
/// there: before, it may be another thing that has the name, and he may have had other rights.
fn control<B: Body + 'static>(
    context: &Context<'_>,
    busy: impl FnOnce() -> B,
    work: impl FnOnce(&std::sync::Arc<broker::Broker>, &Asking<'_>) -> B + Send + 'static,
) -> Outcome {
    let client = context.asking().client();
    let room = context.room.cloned();
    let job = Box::new(move |broker: &std::sync::Arc<broker::Broker>| {
        // Whether somebody waits for the answer or not, it is used until there is one.
        let _room = room;
        let body: JobBody = Box::new(client.ask(broker, |asking| work(broker, asking)));
        Box::new(body) as Box<dyn std::any::Any + Send>
    });
    if context.gateway.broker.control(context.to, context.job_owner_for_all(), job) {
        Outcome::Wait(Box::new(JobWait))
    } else {
        Outcome::answer(busy())
    }
}

/// As [`control`], for a request of many entries: `turn` does a part of it each time it is called, and has the response after the last one.
fn control_in_turns<B: Body + 'static>(
    context: &Context<'_>,
    busy: impl FnOnce() -> B,
    mut turn: impl FnMut(&Asking<'_>) -> Option<B> + Send + 'static,
) -> Outcome {
    let client = context.asking().client();
    let room = context.room.cloned();
    let turns = Box::new(move |broker: &std::sync::Arc<broker::Broker>| {
        let _room = &room;
        let body: JobBody = Box::new(client.ask(broker, &mut turn)?);
        Some(Box::new(body) as Box<dyn std::any::Any + Send>)
    });
    if context.gateway.broker.control_in_turns(context.to, context.job_owner_for_all(), turns) {
        Outcome::Wait(Box::new(JobWait))
    } else {
        Outcome::answer(busy())
    }
}

/// The code of a part of an answer for which there is no room ([`crate::answer_room::AnswerRoom`]): clients ask for it again.
const NO_ROOM: ErrorCode = ErrorCode::CoordinatorLoadInProgress;

/// The items of a request by name, each once, and whether it was there more than once.
fn once<'a, T, K: std::hash::Hash + Eq + ?Sized + 'a>(
    items: &'a [T],
    key: impl Fn(&'a T) -> &'a K,
) -> impl Iterator<Item = (&'a T, bool)> {
    let mut counts: hashbrown::HashMap<&K, usize> = hashbrown::HashMap::with_capacity(items.len());
    let mut firsts = Vec::with_capacity(items.len());
    for item in items {
        let count = counts.entry(key(item)).or_default();
        if *count == 0 {
            firsts.push((item, key(item)));
        }
        *count += 1;
    }
    firsts.into_iter().map(move |(item, name)| (item, counts[name] > 1))
}

/// Those of the topics that the caller may not do this with, and what he is told of them.
fn denied_topics<'a>(
    asking: &Asking<'_>,
    operation: broker::AclOperation,
    names: impl Iterator<Item = &'a kafka_wire::Str>,
) -> hashbrown::HashMap<kafka_wire::Str, ErrorCode> {
    names.filter_map(|name| Some((name.clone(), asking.check_topic(operation, name).err()?))).collect()
}

type Handle = fn(&mut Reader, &mut Context<'_>) -> Result<Outcome, DecodeError>;

/// One API that is served.
#[derive(Clone, Copy)]
pub struct Api {
    key: i16,
    first: i16,
    last: i16,
    /// First version announced; lower than `first` only for Produce, whose versions 0 to 2 are announced
    /// because old librdkafka takes their absence for an ancient broker.
    announced: i16,
    handle: Handle,
    hands_over: bool,
}

impl Api {
    const fn new(key: i16, first: i16, last: i16, handle: Handle) -> Self {
        Self { key, first, last, announced: first, handle, hands_over: false }
    }

    /// It needs of its connection only who asks, and answers at once, when batches have been looked at, or when the controller has done it: a long request is
    /// handled elsewhere, and so is one that says [`Outcome::Long`]. What needs the connection comes last, as [`Outcome::Resume`].
    const fn handed_over(self) -> Self {
        Self { hands_over: true, ..self }
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.hands_over
    }

    /// Its number, name and codec.
    pub fn key(&self) -> &'static ApiKey {
        ApiKey::find(self.key).expect("every served API has a codec")
    }

    /// Versions served.
    pub fn range(&self) -> (i16, i16) {
        (self.first, self.last)
    }

    /// First version announced.
    pub fn announced_from(&self) -> i16 {
        self.announced
    }

    pub(crate) fn serves(&self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    pub(crate) fn handle(&self, reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
        (self.handle)(reader, context)
    }
}

static APIS: &[Api] = &[
    Api { announced: 0, ..Api::new(0, 3, 13, produce::handle) },
    Api::new(1, 4, 18, fetch::handle).handed_over(),
    Api::new(2, 1, 11, list_offsets::handle).handed_over(),
    Api::new(3, 0, 13, metadata::handle).handed_over(),
    Api::new(8, 2, 10, group_offsets::commit).handed_over(),
    Api::new(9, 1, 10, group_offsets::fetch).handed_over(),
    Api::new(10, 0, 6, groups::find_coordinator).handed_over(),
    Api::new(11, 0, 9, groups::join).handed_over(),
    Api::new(12, 0, 4, groups::heartbeat),
    Api::new(13, 0, 5, groups::leave).handed_over(),
    Api::new(14, 0, 5, groups::sync).handed_over(),
    Api::new(15, 0, 6, group_admin::describe).handed_over(),
    Api::new(16, 0, 5, group_list::list).handed_over(),
    Api::new(17, 0, 1, sasl::handshake),
    Api::new(18, 0, 4, api_versions::handle),
    Api::new(19, 2, 7, topics::create),
    Api::new(20, 1, 6, topics::delete),
    Api::new(21, 0, 2, partitions::delete_records).handed_over(),
    Api::new(22, 0, 5, producers::handle),
    Api::new(23, 2, 4, partitions::offset_for_leader_epoch).handed_over(),
    Api::new(24, 0, 5, transactions::add_partitions).handed_over(),
    Api::new(25, 0, 4, transactions::add_offsets),
    Api::new(26, 0, 5, transactions::end),
    Api::new(27, 1, 2, transaction_admin::write_markers).handed_over(),
    Api::new(28, 0, 5, transactions::commit_offsets).handed_over(),
    Api::new(29, 1, 3, acls::describe).handed_over(),
    Api::new(30, 1, 3, acls::create).handed_over(),
    Api::new(31, 1, 3, acls::delete).handed_over(),
    Api::new(32, 1, 4, configs::describe).handed_over(),
    Api::new(33, 0, 2, configs::alter).handed_over(),
    Api::new(34, 1, 2, replication::alter_log_dirs).handed_over(),
    Api::new(35, 1, 5, cluster::describe_log_dirs).handed_over(),
    Api::new(36, 0, 2, sasl::authenticate),
    Api::new(37, 0, 3, partitions::create),
    Api::new(42, 0, 2, group_admin::delete).handed_over(),
    Api::new(43, 0, 2, replication::elect_leaders).handed_over(),
    Api::new(44, 0, 1, configs::incremental_alter).handed_over(),
    Api::new(45, 0, 1, replication::alter_reassignments).handed_over(),
    Api::new(46, 0, 0, replication::list_reassignments),
    Api::new(47, 0, 0, group_offsets::delete).handed_over(),
    Api::new(48, 0, 1, quotas::describe).handed_over(),
    Api::new(49, 0, 1, quotas::alter).handed_over(),
    Api::new(50, 0, 0, scram::describe).handed_over(),
    Api::new(51, 0, 0, scram::alter).handed_over(),
    Api::new(55, 0, 2, replication::describe_quorum).handed_over(),
    Api::new(57, 0, 2, features::update),
    Api::new(60, 0, 2, cluster::describe),
    Api::new(61, 0, 0, transaction_admin::describe_producers).handed_over(),
    Api::new(65, 0, 0, transaction_admin::describe).handed_over(),
    Api::new(66, 0, 2, transaction_list::list).handed_over(),
    Api::new(68, 0, 1, consumer_groups::heartbeat).handed_over(),
    Api::new(69, 0, 1, consumer_groups::describe).handed_over(),
    Api::new(71, 0, 0, telemetry::subscriptions),
    Api::new(72, 0, 0, telemetry::push),
    Api::new(74, 0, 1, configs::list_resources).handed_over(),
    Api::new(75, 0, 0, cluster::describe_topic_partitions).handed_over(),
    Api::new(76, 1, 1, share_groups::heartbeat).handed_over(),
    Api::new(77, 1, 1, share_groups::describe).handed_over(),
    Api::new(78, 1, 2, share_fetch::handle),
    Api::new(79, 1, 2, share_acknowledge::handle),
    Api::new(88, 0, 0, streams_groups::heartbeat).handed_over(),
    Api::new(89, 0, 0, streams_groups::describe).handed_over(),
    Api::new(90, 0, 1, share_offsets::describe).handed_over(),
    Api::new(91, 0, 0, share_offsets::alter).handed_over(),
    Api::new(92, 0, 0, share_offsets::delete).handed_over(),
];

/// Everything that is served, by number.
pub fn apis() -> &'static [Api] {
    APIS
}

pub(crate) fn find(key: i16) -> Option<&'static Api> {
    APIS.iter().find(|api| api.key == key)
}
