//! One streams group (KIP-1071): the coordinator knows the application's topology, sees that its internal topics are there, and
//! decides which member runs which task. Members are led to their target by heartbeats, as in a consumer group.
//!
//! * The **group epoch** rises when a member, a topic of the topology or a setting that tasks depend on changes.
//! * A **target** is computed for an epoch; it is empty for everybody while topics are missing or do not fit.
//! * The **member epoch** is the target's once the member has given up what is not its own any more.

mod commits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::GroupError;
use crate::consumer_group::GroupTimes;
use crate::coordinator::CoordinatorSettings;
use crate::group::Effect;
use crate::reconcile::MemberState;
use crate::streams_assignor::{TaskSets, Tasks, Work, Worker, sticky};
use crate::streams_reconcile::{StreamsStep, check_owned};
use crate::streams_topology::{
    Configured, ConfiguredSubtopology, ConfiguredTopic, StreamsStatus, StreamsStatusKind, StreamsTopology,
};
use crate::timers::{MemberTimers, Timers};
use crate::topology::{StableHash, Topics, topics_hash};
use crate::weight;

/// Tasks that a member has; those that it runs with the epoch in which it got them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldTasks {
    /// Runs.
    pub active: BTreeMap<String, BTreeMap<u32, i32>>,
    /// Keeps the state of.
    pub standby: Tasks,
}

impl HeldTasks {
    /// None of either kind?
    pub fn is_empty(&self) -> bool {
        self.active.is_empty() && self.standby.is_empty()
    }

    /// Takes more in.
    pub(crate) fn merge(&mut self, more: Self) {
        for (id, partitions) in more.active {
            self.active.entry(id).or_default().extend(partitions);
        }
        for (id, partitions) in more.standby {
            self.standby.entry(id).or_default().extend(partitions);
        }
    }

    /// The tasks alone.
    pub fn without_epochs(&self) -> TaskSets {
        let active =
            self.active.iter().map(|(id, partitions)| (id.clone(), partitions.keys().copied().collect())).collect();
        TaskSets { active, standby: self.standby.clone() }
    }
}

/// A member of a streams group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsMember {
    /// Its own choice.
    pub id: String,
    /// Of the target it has got to.
    pub epoch: i32,
    /// The one before: the answer with the newer one may have got lost.
    pub previous_epoch: i32,
    /// On its way to the target.
    pub state: MemberState,
    /// Where it is.
    pub rack: Option<String>,
    /// As the client says.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// Who is at the other end of its connection; empty: somebody without a login. `None`: a record of an earlier release does not say.
    pub user: Option<String>,
    /// Milliseconds that it has for giving tasks up.
    pub rebalance_timeout: u64,
    /// Of the topology that it has.
    pub topology_epoch: i32,
    /// Members of one process share what a machine has.
    pub process: String,
    /// Where others can ask for its state.
    pub endpoint: Option<(String, u16)>,
    /// What the application says of it.
    pub tags: BTreeMap<String, String>,
    /// What it may run and keep.
    pub assigned: HeldTasks,
    /// What it is to give up and still has.
    pub revoking: HeldTasks,
}

impl StreamsMember {
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            epoch: 0,
            previous_epoch: 0,
            state: MemberState::Stable,
            rack: None,
            client_id: String::new(),
            host: String::new(),
            user: None,
            rebalance_timeout: 0,
            topology_epoch: -1,
            process: String::new(),
            endpoint: None,
            tags: BTreeMap::new(),
            assigned: HeldTasks::default(),
            revoking: HeldTasks::default(),
        }
    }

    fn reconciled(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// Checks an epoch that the member says.
    fn check_epoch(&self, epoch: i32, owned: Option<&TaskSets>) -> Result<(), GroupError> {
        if epoch == 0 || epoch == self.epoch {
            return Ok(());
        }
        // The answer with the newer epoch got lost, and the member has nothing that it does not have by now.
        let inside = |owned: &TaskSets| {
            let runs = |(id, set): (&String, &BTreeSet<u32>)| {
                self.assigned.active.get(id).is_some_and(|has| set.iter().all(|partition| has.contains_key(partition)))
            };
            let keeps = |(id, set): (&String, &BTreeSet<u32>)| {
                self.assigned.standby.get(id).is_some_and(|has| set.is_subset(has))
            };
            owned.active.iter().all(runs) && owned.standby.iter().all(keeps)
        };
        if epoch < self.epoch && epoch == self.previous_epoch && owned.is_some_and(inside) {
            return Ok(());
        }
        Err(GroupError::FencedEpoch)
    }

    /// Since when the member runs this task.
    fn runs_since(&self, id: &str, partition: u32) -> Option<i32> {
        let find = |held: &HeldTasks| held.active.get(id).and_then(|partitions| partitions.get(&partition)).copied();
        find(&self.assigned).or_else(|| find(&self.revoking))
    }
}

/// A heartbeat as it came; what did not change since the last one is `None`.
#[derive(Clone, Debug, Default)]
pub struct StreamsHeartbeat {
    /// The member's choice.
    pub member_id: String,
    /// 0 joins, −1 leaves.
    pub epoch: i32,
    /// Of what the member knows of the others' endpoints.
    pub endpoint_epoch: i32,
    /// Where the member is.
    pub rack: Option<String>,
    /// Milliseconds.
    pub rebalance_timeout: Option<u64>,
    /// With a request to join.
    pub topology: Option<StreamsTopology>,
    /// What the member has.
    pub owned: Option<TaskSets>,
    /// Members of one process share what a machine has.
    pub process: Option<String>,
    /// Where others can ask for its state.
    pub endpoint: Option<(String, u16)>,
    /// What the application says of it.
    pub tags: Option<BTreeMap<String, String>>,
    /// All members are to stop.
    pub shutdown: bool,
    /// As the client says.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// Who is at the other end of its connection; empty: somebody without a login.
    pub user: String,
    /// Topics that the topology, of the request or else of the group, has from others and that are not there for who asks.
    pub hidden: BTreeSet<String>,
}

/// Partitions that can be asked for at an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPartitions {
    /// Host and port.
    pub endpoint: (String, u16),
    /// By topic, of tasks that run there.
    pub active: Vec<(String, Vec<u32>)>,
    /// By topic, of tasks whose state is kept there.
    pub standby: Vec<(String, Vec<u32>)>,
}

/// What a member is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamsAnswer {
    /// Its id.
    pub member_id: String,
    /// Its epoch.
    pub epoch: i32,
    /// Milliseconds to the next heartbeat; 0 for one that leaves.
    pub interval: u64,
    /// What keeps the group from work.
    pub status: Vec<StreamsStatus>,
    /// What it may run and keep; `None`: as before.
    pub tasks: Option<TaskSets>,
    /// Of what follows.
    pub endpoint_epoch: i32,
    /// Who can be asked for what; `None`: as before.
    pub endpoints: Option<Vec<EndpointPartitions>>,
    /// Internal topics that are to be created.
    pub missing: BTreeMap<String, ConfiguredTopic>,
}

/// Why a heartbeat is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamsError {
    /// As in other groups.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The topology makes no sense.
    #[error("{0}")]
    InvalidTopology(String),
    /// The request does not fit what the group is.
    #[error("{0}")]
    InvalidRequest(String),
}

/// What is set for one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamsConfig {
    /// Times of members.
    pub times: GroupTimes,
    /// How many members keep the state of a task that they do not run.
    pub standbys: u32,
    /// Milliseconds from the first member on in which no task is given out.
    pub initial_delay: u64,
}

/// What a request meets.
pub(crate) struct StreamsSurroundings<'a> {
    pub now: u64,
    pub topics: &'a dyn Topics,
    pub config: StreamsConfig,
    pub settings: &'a CoordinatorSettings,
}

/// A streams group.
#[derive(Clone, Debug)]
pub struct StreamsGroup {
    pub(crate) name: String,
    pub(crate) epoch: i32,
    pub(crate) assignment_epoch: i32,
    /// When the target was computed; 0 never.
    pub(crate) assigned_at: u64,
    /// Stands for the topics of the topology, as they were when the epoch last rose.
    pub(crate) topics_hash: u64,
    /// Of the topology when its topics were all right; −1: they are not.
    pub(crate) validated_epoch: i32,
    /// Those that the target counts on; `None` before the first one.
    pub(crate) standbys: Option<u32>,
    /// The member that wants all others to stop.
    pub(crate) shutdown: Option<String>,
    pub(crate) topology: Option<Arc<StreamsTopology>>,
    configured: Option<Arc<Configured>>,
    pub(crate) members: BTreeMap<String, StreamsMember>,
    pub(crate) targets: BTreeMap<String, TaskSets>,
    /// Who runs what: from when a member may until it has given it up.
    runners: BTreeMap<String, HashMap<u32, String>>,
    /// Who keeps the state of what.
    keepers: BTreeMap<String, HashMap<u32, BTreeSet<String>>>,
    timers: MemberTimers,
    /// Members for whom topics of the topology are not there: they have no tasks, and are told what they would be told if there were none. Each says so
    /// with its heartbeats.
    blind: BTreeSet<String>,
    /// No target is computed before this.
    delayed_until: Option<u64>,
    /// State of the topics that was looked at last.
    seen: Option<u64>,
    endpoint_epoch: i32,
    pub(crate) emptied_at: u64,
}

/// Where a streams group stands; what it was before the heartbeat that is looked at.
struct Looked {
    topology: Arc<StreamsTopology>,
    /// Another one than the group's.
    fresh: bool,
    configured: Arc<Configured>,
    hash: u64,
    validated_epoch: i32,
}

impl StreamsGroup {
    /// Bytes of memory that it takes, about, without what all groups have.
    pub(crate) fn weight(&self) -> usize {
        let topology = self.topology.as_deref().map_or(0, weight::topology);
        let members: usize = self.members.values().map(weight::streams_member).sum();
        topology
            + members
            + weight::streams_targets(&self.targets)
            + weight::held_tasks(&self.runners)
            + weight::held_tasks(&self.keepers)
    }

    pub(crate) fn new(name: &str, now: u64) -> Self {
        Self {
            name: name.to_owned(),
            // Never 0: that is what joining members say.
            epoch: 1,
            // Nor this one: members that wait for the first target are in it.
            assignment_epoch: 1,
            assigned_at: 0,
            topics_hash: 0,
            validated_epoch: -1,
            standbys: None,
            shutdown: None,
            topology: None,
            configured: None,
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
            runners: BTreeMap::new(),
            keepers: BTreeMap::new(),
            timers: MemberTimers::default(),
            blind: BTreeSet::new(),
            delayed_until: None,
            seen: None,
            endpoint_epoch: 0,
            emptied_at: now,
        }
    }

    /// Kafka's name for where the group stands.
    pub(crate) fn state(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.is_blind()
            || self.topology.as_ref().is_none_or(|topology| topology.epoch != self.validated_epoch)
        {
            "NotReady"
        } else if self.epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(|member| member.reconciled(self.assignment_epoch)) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Has it members, and for none of them all the topics that it reads?
    pub(crate) fn is_blind(&self) -> bool {
        !self.members.is_empty() && self.members.keys().all(|id| self.blind.contains(id))
    }

    /// The topology with what was decided, if tasks can be given out.
    pub(crate) fn ready(&self) -> Option<&BTreeMap<String, ConfiguredSubtopology>> {
        self.configured.as_ref()?.ready()
    }

    /// Puts a member in, or in the place of what it was.
    pub(crate) fn put(&mut self, member: StreamsMember) {
        self.release(&member.id);
        for held in [&member.assigned, &member.revoking] {
            for (id, partitions) in &held.active {
                let runners = self.runners.entry(id.clone()).or_default();
                for partition in partitions.keys() {
                    let before = runners.insert(*partition, member.id.clone());
                    debug_assert!(before.is_none(), "a task runs in one place");
                }
            }
            for (id, partitions) in &held.standby {
                let keepers = self.keepers.entry(id.clone()).or_default();
                for partition in partitions {
                    keepers.entry(*partition).or_default().insert(member.id.clone());
                }
            }
        }
        self.members.insert(member.id.clone(), member);
    }

    fn release(&mut self, id: &str) {
        let Some(member) = self.members.get(id) else { return };
        for held in [&member.assigned, &member.revoking] {
            for (subtopology, partitions) in &held.active {
                let Some(runners) = self.runners.get_mut(subtopology) else { continue };
                for partition in partitions.keys() {
                    if runners.get(partition).is_some_and(|runner| runner == id) {
                        runners.remove(partition);
                    }
                }
            }
            for (subtopology, partitions) in &held.standby {
                let Some(keepers) = self.keepers.get_mut(subtopology) else { continue };
                for partition in partitions {
                    if let Some(members) = keepers.get_mut(partition) {
                        members.remove(id);
                    }
                }
            }
        }
    }

    // Timers.

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.timers.next_deadline().into_iter().chain(self.delayed_until).min()
    }

    /// Members whose time is over at `now`.
    pub(crate) fn expired(&mut self, now: u64) -> Vec<String> {
        self.timers.expired(now, |id| self.members.get(id).map(|member| member.epoch))
    }

    /// Computes the first target of the group, when it has waited for members long enough.
    pub(crate) fn end_delay<W>(&mut self, around: &StreamsSurroundings<'_>, out: &mut Vec<Effect<W>>) {
        if self.delayed_until.is_none_or(|until| until > around.now) {
            return;
        }
        self.delayed_until = None;
        if self.members.is_empty() {
            return;
        }
        let epoch = self.assignment_epoch;
        let changed = self.update_target(around);
        changed.iter().for_each(|id| self.persist_member(id, out));
        if epoch != self.assignment_epoch {
            self.persist_group(out);
        }
    }

    /// After a restart: members have a whole session from now. Targets that are not those of the group's record were being written
    /// when the broker stopped, and are computed again.
    pub(crate) fn resume(&mut self, now: u64, session_timeout: u64, recorded: Option<u64>, topics: &dyn Topics) {
        if recorded != Some(self.targets_hash()) || self.targets.keys().any(|id| !self.members.contains_key(id)) {
            self.topics_hash = !self.topics_hash;
        }
        for member in self.members.values() {
            let rebalance =
                (member.state == MemberState::Unrevoked).then_some((now + member.rebalance_timeout, member.epoch));
            self.timers.set(&member.id, |timers| {
                *timers = Timers { session: Some(now + session_timeout), rebalance, ..Timers::default() }
            });
        }
        self.configured = self.topology.as_ref().and_then(|topology| topology.configure(topics).ok()).map(Arc::new);
    }

    pub(crate) fn targets_hash(&self) -> u64 {
        self.targets.iter().fold(0, |sum, (id, target)| sum ^ target_hash(id, target))
    }

    // Members.

    /// What the group comes to with this request, before anything changes.
    fn look(&self, request: &StreamsHeartbeat, topics: &dyn Topics) -> Result<Looked, StreamsError> {
        let (topology, fresh) = match (&self.topology, &request.topology) {
            (None, Some(asked)) => (Arc::new(asked.clone()), true),
            (Some(have), Some(asked)) if asked.epoch >= have.epoch && **have != *asked => {
                return Err(StreamsError::InvalidRequest("Topology updates are not supported yet.".to_owned()));
            }
            (Some(have), _) => (Arc::clone(have), false),
            // The record of the topology was lost with the answer to whoever brought it.
            (None, None) => return Err(GroupError::FencedEpoch.into()),
        };
        let known = self.configured.as_ref().filter(|_| !fresh);
        let (mut configured, mut hash) = (known.map(Arc::clone), self.topics_hash);
        if configured.is_none() || self.seen != Some(topics.version()) {
            hash = topics_hash(&topology.required(), topics);
            if hash != self.topics_hash {
                configured = None;
            }
        }
        let configured = match configured {
            Some(configured) => configured,
            None => Arc::new(topology.configure(topics).map_err(StreamsError::InvalidTopology)?),
        };
        let validated_epoch = configured.ready().map_or(-1, |_| topology.epoch);
        Ok(Looked { topology, fresh, configured, hash, validated_epoch })
    }

    /// A heartbeat that is not a farewell. Nothing has changed when it is refused.
    pub(crate) fn heartbeat<W>(
        &mut self,
        request: &StreamsHeartbeat,
        around: &StreamsSurroundings<'_>,
        out: &mut Vec<Effect<W>>,
    ) -> Result<StreamsAnswer, StreamsError> {
        let (id, joins) = (&request.member_id, request.epoch == 0);
        let known = self.members.get(id);
        if known.is_none() && joins && self.members.len() >= around.settings.streams_size_max {
            return Err(GroupError::GroupFull.into());
        }
        let before = match known {
            Some(member) => member.check_epoch(request.epoch, request.owned.as_ref()).map(|()| member.clone())?,
            None if joins => StreamsMember::new(id),
            None => return Err(GroupError::UnknownMember.into()),
        };
        let looked = self.look(request, around.topics)?;
        let blind = !request.hidden.is_empty();
        if let (Some(subtopologies), Some(owned)) = (looked.configured.ready().filter(|_| !blind), &request.owned) {
            check_owned(owned, subtopologies)?;
        }
        let mut updated = before.clone();
        updated.rack = request.rack.clone().or(updated.rack);
        updated.rebalance_timeout = request.rebalance_timeout.unwrap_or(updated.rebalance_timeout);
        updated.topology_epoch = request.topology.as_ref().map_or(updated.topology_epoch, |topology| topology.epoch);
        updated.process = request.process.clone().unwrap_or(updated.process);
        updated.endpoint = request.endpoint.clone().or(updated.endpoint);
        updated.tags = request.tags.clone().unwrap_or(updated.tags);
        updated.client_id.clone_from(&request.client_id);
        updated.host.clone_from(&request.host);
        updated.user = Some(request.user.clone());
        // After a start of the broker nobody is known to be blind; who has nothing then is as he was.
        let has_work = before.assigned != HeldTasks::default()
            || self.targets.get(id).is_some_and(|target| *target != TaskSets::default());
        let changed = known != Some(&updated) || self.blind.contains(id) != blind && (has_work || !blind);
        let mut status = Vec::new();
        if updated.topology_epoch < looked.topology.epoch {
            let detail = format!(
                "The member's topology epoch {} is behind the group's topology epoch {}.",
                updated.topology_epoch, looked.topology.epoch
            );
            status.push(StreamsStatus { kind: StreamsStatusKind::StaleTopology, detail });
        }
        // From here on nothing is refused.
        if self.members.is_empty() && around.config.initial_delay > 0 && self.delayed_until.is_none() {
            self.delayed_until = Some(around.now + around.config.initial_delay);
        }
        self.put(updated);
        if blind {
            self.blind.insert(id.clone());
            self.targets.insert(id.clone(), TaskSets::default());
        } else {
            self.blind.remove(id);
        }
        let group_changed = self.take_over(looked, changed, around, out);
        let member =
            self.lead(before.clone(), changed, group_changed, request.owned.as_ref(), around, &mut status, out);
        if request.shutdown && self.shutdown.is_none() {
            self.shutdown = Some(id.clone());
            self.persist_group(out);
        }
        self.timers.set(id, |timers| timers.session = Some(around.now + around.config.times.session_timeout));
        Ok(self.answer(request, &before, member, status, around))
    }

    /// Takes over what was found, and lets the epoch rise if something is another.
    fn take_over<W>(
        &mut self,
        looked: Looked,
        member: bool,
        around: &StreamsSurroundings<'_>,
        out: &mut Vec<Effect<W>>,
    ) -> bool {
        let standbys = Some(around.config.standbys);
        let rises = member
            || looked.hash != self.topics_hash
            || looked.validated_epoch != self.validated_epoch
            || standbys != self.standbys;
        if looked.fresh {
            self.topology = Some(looked.topology);
            self.persist_topology(out);
        }
        self.configured = Some(looked.configured);
        self.seen = Some(around.topics.version());
        if rises {
            self.epoch += 1;
            self.topics_hash = looked.hash;
            self.validated_epoch = looked.validated_epoch;
            self.standbys = standbys;
        }
        rises
    }

    /// Computes a target if there is none for the epoch, and takes the member a step towards its own.
    #[expect(clippy::too_many_arguments, reason = "the parts of one heartbeat")]
    fn lead<W>(
        &mut self,
        before: StreamsMember,
        changed: bool,
        group_changed: bool,
        owned: Option<&TaskSets>,
        around: &StreamsSurroundings<'_>,
        status: &mut Vec<StreamsStatus>,
        out: &mut Vec<Effect<W>>,
    ) -> StreamsMember {
        let epoch = self.assignment_epoch;
        if self.delayed_until.is_some_and(|until| until <= around.now) {
            self.delayed_until = None;
        }
        let mut written = self.update_target(around);
        if self.assignment_epoch < self.epoch {
            let why = if self.delayed_until.is_some() { "initial rebalance delay" } else { "assignment interval" };
            let detail = format!("Assignment delayed due to the configured {why}.");
            status.push(StreamsStatus { kind: StreamsStatusKind::AssignmentDelayed, detail });
        }
        let member = self.step(&before.id, owned, around);
        if changed || member != before {
            written.insert(before.id);
        }
        written.iter().for_each(|id| self.persist_member(id, out));
        if group_changed || epoch != self.assignment_epoch {
            self.persist_group(out);
        }
        member
    }

    /// Computes a target for the group's epoch, if it has none and it is time; the members whose target changed.
    fn update_target(&mut self, around: &StreamsSurroundings<'_>) -> BTreeSet<String> {
        let early = self.assigned_at > 0 && around.now < self.assigned_at + around.config.times.assignment_interval;
        if self.assignment_epoch >= self.epoch || early || self.delayed_until.is_some() {
            return BTreeSet::new();
        }
        let targets: BTreeMap<String, TaskSets> = match self.ready() {
            None => self.members.keys().map(|id| (id.clone(), TaskSets::default())).collect(),
            Some(subtopologies) => {
                let work: Vec<Work> = subtopologies
                    .iter()
                    .map(|(id, one)| Work { id: id.clone(), tasks: one.tasks, stateful: !one.changelogs.is_empty() })
                    .collect();
                let worker = |member: &StreamsMember| Worker {
                    id: member.id.clone(),
                    process: member.process.clone(),
                    before: self.targets.get(&member.id).cloned().unwrap_or_default(),
                };
                let workers: Vec<Worker> =
                    self.members.values().filter(|member| !self.blind.contains(&member.id)).map(worker).collect();
                let targets = sticky(&workers, &work, self.standbys.unwrap_or_default());
                let without = self.blind.iter().map(|id| (id.clone(), TaskSets::default()));
                workers.into_iter().map(|worker| worker.id).zip(targets).chain(without).collect()
            }
        };
        let changed = targets
            .iter()
            .filter(|(id, target)| self.targets.get(*id) != Some(*target))
            .map(|(id, _)| id.clone())
            .collect();
        self.targets = targets;
        self.assignment_epoch = self.epoch;
        self.assigned_at = around.now;
        changed
    }

    /// Takes a member a step towards its target.
    fn step(&mut self, id: &str, owned: Option<&TaskSets>, around: &StreamsSurroundings<'_>) -> StreamsMember {
        let Some(member) = self.members.get(id) else { return StreamsMember::new(id) };
        if member.reconciled(self.assignment_epoch) {
            return member.clone();
        }
        let nothing = TaskSets::default();
        let runner = |id: &str, partition: u32| self.runners.get(id).and_then(|runners| runners.get(&partition));
        let here = |other: &String| self.members.get(other).is_some_and(|other| other.process == member.process);
        let step = StreamsStep {
            epoch: self.assignment_epoch,
            target: self.targets.get(id).unwrap_or(&nothing),
            owned,
            runs: &|id, partition| runner(id, partition).is_some(),
            in_process: &|id, partition| {
                let keepers = self.keepers.get(id).and_then(|keepers| keepers.get(&partition));
                runner(id, partition).is_some_and(here) || keepers.is_some_and(|keepers| keepers.iter().any(here))
            },
        };
        let next = step.take(member);
        if next == *member {
            return next;
        }
        let rebalance =
            (next.state == MemberState::Unrevoked).then_some((around.now + next.rebalance_timeout, next.epoch));
        self.timers.set(id, |timers| timers.rebalance = rebalance);
        self.put(next.clone());
        next
    }

    fn answer(
        &mut self,
        request: &StreamsHeartbeat,
        before: &StreamsMember,
        member: StreamsMember,
        mut status: Vec<StreamsStatus>,
        around: &StreamsSurroundings<'_>,
    ) -> StreamsAnswer {
        let tasks =
            (request.epoch == 0 || before.assigned != member.assigned).then(|| member.assigned.without_epochs());
        if tasks.is_some() && member.endpoint.is_some() {
            self.endpoint_epoch = self.endpoint_epoch.wrapping_add(1);
        }
        let blind = !request.hidden.is_empty();
        let endpoints = (self.endpoint_epoch != request.endpoint_epoch).then(|| self.endpoints(around.topics, blind));
        let mut missing = BTreeMap::new();
        if blind {
            status.extend(self.topology.as_ref().map(|topology| topology.without(&request.hidden, around.topics)));
        } else if let Some(configured) = &self.configured {
            status.extend(configured.trouble.clone());
            missing.clone_from(&configured.missing);
        }
        if let Some(requester) = &self.shutdown {
            let detail = format!(
                "Streams group member {requester} encountered a fatal error and requested a shutdown for the entire application."
            );
            status.push(StreamsStatus { kind: StreamsStatusKind::ShutdownApplication, detail });
        }
        StreamsAnswer {
            member_id: member.id,
            epoch: member.epoch,
            interval: around.config.times.heartbeat_interval,
            status,
            tasks,
            endpoint_epoch: self.endpoint_epoch,
            endpoints,
            missing,
        }
    }

    /// Who can be asked for what; `blind`: who asks does not know what the topics have.
    fn endpoints(&self, topics: &dyn Topics, blind: bool) -> Vec<EndpointPartitions> {
        let nothing = BTreeMap::new();
        let configured = self.configured.as_ref().filter(|_| !blind);
        let subtopologies = configured.and_then(|configured| configured.subtopologies.as_ref()).unwrap_or(&nothing);
        let partitions = |tasks: &Tasks| -> Vec<(String, Vec<u32>)> {
            let mut found = Vec::new();
            for (id, set) in tasks {
                let Some(one) = subtopologies.get(id) else { continue };
                for topic in one.sources.iter().chain(one.repartition.keys()) {
                    let count = topics.find(topic).map_or(0, |(_, count)| count);
                    found.push((topic.clone(), set.range(..count).copied().collect()));
                }
            }
            found
        };
        let one = |member: &StreamsMember| {
            let tasks = member.assigned.without_epochs();
            let endpoint = member.endpoint.clone()?;
            Some(EndpointPartitions {
                endpoint,
                active: partitions(&tasks.active),
                standby: partitions(&tasks.standby),
            })
        };
        self.members.values().filter_map(one).collect()
    }

    /// A member says farewell.
    pub(crate) fn leave<W>(
        &mut self,
        request: &StreamsHeartbeat,
        now: u64,
        out: &mut Vec<Effect<W>>,
    ) -> Result<StreamsAnswer, GroupError> {
        let id = &request.member_id;
        self.members.get(id).ok_or(GroupError::UnknownMember)?;
        if request.shutdown && self.shutdown.is_none() {
            self.shutdown = Some(id.clone());
        }
        self.remove(std::slice::from_ref(id), now, out);
        Ok(StreamsAnswer { member_id: id.clone(), epoch: request.epoch, ..StreamsAnswer::default() })
    }

    /// Members go: the others get what they had, by a new target.
    pub(crate) fn remove<W>(&mut self, ids: &[String], now: u64, out: &mut Vec<Effect<W>>) {
        let mut any = false;
        for id in ids {
            self.release(id);
            if self.members.remove(id).is_some() {
                self.timers.remove(id);
                self.targets.remove(id);
                self.blind.remove(id);
                out.push(Effect::Persist(self.member_key(id), None));
                any = true;
            }
        }
        if any {
            self.epoch += 1;
            if self.members.is_empty() {
                self.emptied_at = now;
                self.shutdown = None;
            }
            self.persist_group(out);
        }
    }

    // Offsets.
}

/// Stands for the target of one member.
fn target_hash(member: &str, target: &TaskSets) -> u64 {
    let mut hash = StableHash::new().add(member.as_bytes());
    for (mark, tasks) in [(b"a", &target.active), (b"s", &target.standby)] {
        hash = hash.add(mark);
        for (id, partitions) in tasks {
            hash = hash.add(id.as_bytes());
            for partition in partitions {
                hash = hash.add(&partition.to_be_bytes());
            }
        }
    }
    hash.finish()
}
