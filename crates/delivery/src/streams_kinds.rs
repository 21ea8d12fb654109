//! What the coordinator does with its streams groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::GroupError;
use crate::coordinator::GroupCoordinator;
use crate::group::{Effect, GroupState};
use crate::kinds::Kind;
use crate::record::group_key;
use crate::streams_assignor::TaskSets;
use crate::streams_group::{
    StreamsAnswer, StreamsConfig, StreamsError, StreamsGroup, StreamsHeartbeat, StreamsMember, StreamsSurroundings,
};
use crate::streams_topology::{ConfiguredSubtopology, ConfiguredTopic, InternalTopic, StreamsTopology};

/// A topology as it is shown: with what was decided, or as the application describes it while topics are missing.
#[derive(Clone, Debug)]
pub struct StreamsGroupTopology {
    /// Of the topology.
    pub epoch: i32,
    /// By id. The number of tasks is 0, and so is a number of partitions, when it is not decided.
    pub subtopologies: BTreeMap<String, ConfiguredSubtopology>,
}

/// A streams group as it stands.
#[derive(Clone, Debug)]
pub struct StreamsGroupSummary {
    /// As Kafka calls it.
    pub state: &'static str,
    /// Of the group.
    pub epoch: i32,
    /// Of the target.
    pub assignment_epoch: i32,
    /// What the application is made of.
    pub topology: Option<StreamsGroupTopology>,
    /// For none of its members all the topics are there that it reads: nothing that was decided by them is told.
    pub blind: bool,
    /// In order of their ids, each with its target.
    pub members: Vec<(StreamsMember, TaskSets)>,
}

fn undecided(topology: &StreamsTopology) -> BTreeMap<String, ConfiguredSubtopology> {
    let one = |topic: &InternalTopic| {
        let configured = ConfiguredTopic {
            partitions: topic.partitions,
            replication: topic.replication,
            configs: topic.configs.clone(),
        };
        (topic.name.clone(), configured)
    };
    let all = topology.subtopologies.iter().map(|(id, subtopology)| {
        let shown = ConfiguredSubtopology {
            tasks: 0,
            sources: subtopology.sources.iter().cloned().collect::<BTreeSet<_>>(),
            sinks: subtopology.sinks.iter().cloned().collect(),
            repartition: subtopology.repartition.iter().map(one).collect(),
            changelogs: subtopology.changelogs.iter().map(one).collect(),
        };
        (id.clone(), shown)
    });
    all.collect()
}

impl<W: Copy> GroupCoordinator<W> {
    pub(crate) fn streams_config(&self, name: &str) -> StreamsConfig {
        self.streams_configs.get(name).copied().unwrap_or(self.settings.streams_config)
    }

    /// Gives a streams group settings of its own, or takes them away. Times count from each member's next heartbeat.
    pub fn set_streams_config(&mut self, name: &str, config: Option<StreamsConfig>) {
        match config {
            Some(config) => drop(self.streams_configs.insert(name.to_owned(), config)),
            None => drop(self.streams_configs.remove(name)),
        }
    }

    /// A heartbeat of a member of a streams group. Its answer may be given once the effects are durable.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn streams_heartbeat(
        &mut self,
        name: &str,
        request: &StreamsHeartbeat,
        now: u64,
        out: &mut Vec<Effect<W>>,
    ) -> Result<StreamsAnswer, StreamsError> {
        self.check_streams(name, request)?;
        self.note_client(name, &request.client_id, &request.host);
        let (config, before) = (self.streams_config(name), out.len());
        let around = StreamsSurroundings { now, topics: &*self.topics, config, settings: &self.settings };
        let outcome = match self.groups.get_mut(name) {
            Some(Kind::Streams(group)) if request.epoch < 0 => group.leave(request, now, out).map_err(Into::into),
            Some(Kind::Streams(group)) => group.heartbeat(request, &around, out),
            Some(Kind::Classic(classic)) if classic.state != GroupState::Empty || request.epoch != 0 => {
                Err(GroupError::GroupNotFound.into())
            }
            found @ (None | Some(Kind::Classic(_))) if request.epoch == 0 => {
                let mut group = StreamsGroup::new(name, now);
                let mut effects = Vec::new();
                let answer = group.heartbeat(request, &around, &mut effects)?;
                if found.is_some() {
                    out.push(Effect::Persist(group_key(name), None));
                }
                out.append(&mut effects);
                self.groups.insert(name.to_owned(), Kind::Streams(Box::new(group)));
                Ok(answer)
            }
            _ => Err(GroupError::GroupNotFound.into()),
        };
        self.reschedule(name);
        if out.len() > before {
            self.weigh(name);
        }
        outcome
    }

    /// Does what is due for a streams group.
    pub(crate) fn streams_timeouts(&mut self, name: &str, now: u64, out: &mut Vec<Effect<W>>) {
        let config = self.streams_config(name);
        let around = StreamsSurroundings { now, topics: &*self.topics, config, settings: &self.settings };
        let Some(Kind::Streams(group)) = self.groups.get_mut(name) else { return };
        let expired = group.expired(now);
        group.remove(&expired, now, out);
        group.end_delay(&around, out);
    }

    /// The topology of a streams group, once it has one.
    pub fn streams_topology(&self, name: &str) -> Option<Arc<StreamsTopology>> {
        let Kind::Streams(group) = self.groups.get(name)? else { return None };
        group.topology.clone()
    }

    /// A streams group as it stands.
    pub fn describe_streams(&self, name: &str) -> Option<StreamsGroupSummary> {
        let Kind::Streams(group) = self.groups.get(name)? else { return None };
        let target = |id: &String| group.targets.get(id).cloned().unwrap_or_default();
        Some(StreamsGroupSummary {
            state: group.state(),
            epoch: group.epoch,
            assignment_epoch: group.assignment_epoch,
            topology: group.topology.as_ref().map(|topology| StreamsGroupTopology {
                epoch: topology.epoch,
                subtopologies: group
                    .ready()
                    .filter(|_| !group.is_blind())
                    .cloned()
                    .unwrap_or_else(|| undecided(topology)),
            }),
            blind: group.is_blind(),
            members: group.members.values().map(|member| (member.clone(), target(&member.id))).collect(),
        })
    }
}
