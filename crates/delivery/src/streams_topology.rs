//! What a streams application reads and keeps (KIP-1071): its subtopologies as a member describes them, and what they come to
//! with the topics there are: how many tasks each has, which internal topics are missing and how many partitions those get.
//!
//! A repartition topic without a number of its own has as many partitions as the subtopology that writes it has tasks; topics that
//! are read side by side have the same number; a changelog has one partition a task.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use crate::topology::Topics;

/// Tasks of a group, and partitions of its internal topics, at most.
const TASKS_MAX: u64 = 100_000;
/// Names in a message.
const NAMED_MAX: usize = 3;
/// Deciding takes as many rounds as there are subtopologies, at worst.
const SUBTOPOLOGIES_MAX: usize = 1_000;
/// A topology is one record.
const BYTES_MAX: usize = 1 << 20;
/// What an entry of a list takes beside its text.
const ENTRY: usize = 8;

/// An internal topic as the application describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InternalTopic {
    /// Its name.
    pub name: String,
    /// 0: the coordinator decides.
    pub partitions: u32,
    /// 0: the broker's default.
    pub replication: i16,
    /// Settings.
    pub configs: Vec<(String, String)>,
}

/// Topics that are read side by side: places in the lists of the subtopology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopartitionGroup {
    /// Among the source topics.
    pub sources: Vec<u16>,
    /// Among the repartition topics that are read.
    pub repartition: Vec<u16>,
}

/// A part of the application that is not connected to the others but by topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subtopology {
    /// Topics of others that it reads.
    pub sources: Vec<String>,
    /// Repartition topics that it writes.
    pub sinks: Vec<String>,
    /// Repartition topics that it reads.
    pub repartition: Vec<InternalTopic>,
    /// Where its state is kept.
    pub changelogs: Vec<InternalTopic>,
    /// What is read side by side.
    pub copartitioned: Vec<CopartitionGroup>,
}

impl Subtopology {
    /// Names of all topics that it reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = &String> {
        self.sources.iter().chain(self.repartition.iter().map(|topic| &topic.name))
    }

    fn internal(&self) -> impl Iterator<Item = &InternalTopic> {
        self.repartition.iter().chain(&self.changelogs)
    }
}

/// An application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamsTopology {
    /// Rises with every change of it.
    pub epoch: i32,
    /// By id.
    pub subtopologies: BTreeMap<String, Subtopology>,
}

impl StreamsTopology {
    /// All topics that there have to be.
    pub(crate) fn required(&self) -> BTreeSet<String> {
        let all = self.subtopologies.values();
        all.flat_map(|one| one.reads().chain(one.changelogs.iter().map(|topic| &topic.name))).cloned().collect()
    }

    /// The subtopology that reads a topic.
    pub(crate) fn readers(&self) -> HashMap<&str, &String> {
        self.subtopologies.iter().flat_map(|(id, one)| one.reads().map(move |topic| (topic.as_str(), id))).collect()
    }

    /// About the bytes that it takes to keep.
    fn weight(&self) -> usize {
        let internal = |topic: &InternalTopic| {
            ENTRY
                + topic.name.len()
                + topic.configs.iter().map(|(name, value)| ENTRY + name.len() + value.len()).sum::<usize>()
        };
        let group = |group: &CopartitionGroup| ENTRY + 2 * (group.sources.len() + group.repartition.len());
        let one = |(id, one): (&String, &Subtopology)| {
            let names = one.sources.iter().chain(&one.sinks).map(|name| ENTRY + name.len()).sum::<usize>();
            ENTRY
                + id.len()
                + names
                + one.internal().map(internal).sum::<usize>()
                + one.copartitioned.iter().map(group).sum::<usize>()
        };
        self.subtopologies.iter().map(one).sum()
    }
}

/// Why the members of a group have no tasks, or not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamsStatusKind {
    /// The member's topology is older than the group's.
    StaleTopology,
    /// Topics to be read do not exist.
    MissingSourceTopics,
    /// Numbers of partitions do not fit.
    IncorrectlyPartitionedTopics,
    /// Internal topics do not exist yet.
    MissingInternalTopics,
    /// A member wants all others to stop.
    ShutdownApplication,
    /// Tasks are given out later.
    AssignmentDelayed,
}

impl StreamsStatusKind {
    /// Its number in the protocol.
    pub fn code(self) -> i8 {
        match self {
            Self::StaleTopology => 0,
            Self::MissingSourceTopics => 1,
            Self::IncorrectlyPartitionedTopics => 2,
            Self::MissingInternalTopics => 3,
            Self::ShutdownApplication => 4,
            Self::AssignmentDelayed => 5,
        }
    }
}

/// What a member is told beside its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsStatus {
    /// Which.
    pub kind: StreamsStatusKind,
    /// For people.
    pub detail: String,
}

/// An internal topic with what was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredTopic {
    /// At least one.
    pub partitions: u32,
    /// 0: the broker's default.
    pub replication: i16,
    /// Settings.
    pub configs: Vec<(String, String)>,
}

/// A subtopology with what was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredSubtopology {
    /// One for each number of a partition that it reads.
    pub tasks: u32,
    /// Topics of others that it reads.
    pub sources: BTreeSet<String>,
    /// Repartition topics that it writes.
    pub sinks: BTreeSet<String>,
    /// Repartition topics that it reads.
    pub repartition: BTreeMap<String, ConfiguredTopic>,
    /// Where its state is kept.
    pub changelogs: BTreeMap<String, ConfiguredTopic>,
}

/// What a topology comes to with the topics there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configured {
    /// `None`: not even the number of tasks is known.
    pub subtopologies: Option<BTreeMap<String, ConfiguredSubtopology>>,
    /// To be created.
    pub missing: BTreeMap<String, ConfiguredTopic>,
    /// What keeps tasks from being given out.
    pub trouble: Option<StreamsStatus>,
}

impl Configured {
    /// The subtopologies, if tasks can be given out.
    pub fn ready(&self) -> Option<&BTreeMap<String, ConfiguredSubtopology>> {
        self.subtopologies.as_ref().filter(|_| self.trouble.is_none())
    }
}

/// Why a topology comes to nothing.
enum Trouble {
    /// Until topics are others.
    Status(StreamsStatus),
    /// For ever.
    Invalid(String),
}

fn partitioned(detail: String) -> Trouble {
    Trouble::Status(StreamsStatus { kind: StreamsStatusKind::IncorrectlyPartitionedTopics, detail })
}

fn missing_sources(absent: &[&String]) -> StreamsStatus {
    let detail = format!("Source topics {} are missing.", summary(absent.iter().copied()));
    StreamsStatus { kind: StreamsStatusKind::MissingSourceTopics, detail }
}

/// Some of the names.
fn summary<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let mut text = names.take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} additional topics");
    }
    text
}

/// Numbers of partitions while they are being decided: what a topic has counts before what it is to have.
struct Counts<'a> {
    topics: &'a dyn Topics,
    decided: BTreeMap<String, u32>,
}

impl Counts<'_> {
    fn of(&self, topic: &str) -> Option<u32> {
        self.topics.find(topic).map(|(_, partitions)| partitions).or_else(|| self.decided.get(topic).copied())
    }

    fn need(&self, topic: &str) -> Result<u32, Trouble> {
        self.of(topic).ok_or_else(|| Trouble::Invalid(format!("The number of partitions of {topic} cannot be told.")))
    }

    /// The most partitions of the topics that a subtopology reads.
    fn tasks(&self, id: &str, subtopology: &Subtopology) -> Result<u32, Trouble> {
        let mut most = None;
        for topic in subtopology.reads() {
            most = most.max(Some(self.need(topic)?));
        }
        most.ok_or_else(|| Trouble::Invalid(format!("Subtopology {id} reads no topic.")))
    }
}

impl StreamsTopology {
    /// Topics of others that it reads, each once.
    pub fn sources(&self) -> BTreeSet<&String> {
        self.subtopologies.values().flat_map(|one| &one.sources).collect()
    }

    /// What is told somebody for whom these are not there.
    pub(crate) fn without(&self, hidden: &BTreeSet<String>, topics: &dyn Topics) -> StreamsStatus {
        let absent: Vec<&String> = self
            .sources()
            .into_iter()
            .filter(|topic| hidden.contains(*topic) || topics.find(topic).is_none())
            .collect();
        missing_sources(&absent)
    }

    /// Decides about internal topics.
    ///
    /// # Errors
    /// What is wrong with the topology, whatever topics there are.
    pub(crate) fn configure(&self, topics: &dyn Topics) -> Result<Configured, String> {
        match self.try_configure(topics) {
            Ok(configured) => Ok(configured),
            Err(Trouble::Status(status)) => Ok(Configured { trouble: Some(status), ..Configured::default() }),
            Err(Trouble::Invalid(why)) => Err(why),
        }
    }

    fn try_configure(&self, topics: &dyn Topics) -> Result<Configured, Trouble> {
        let absent: Vec<&String> = self.sources().into_iter().filter(|topic| topics.find(topic).is_none()).collect();
        if !absent.is_empty() {
            return Err(Trouble::Status(missing_sources(&absent)));
        }
        let mut counts = Counts { topics, decided: BTreeMap::new() };
        self.decide_repartition(&mut counts)?;
        let internal: HashMap<&str, bool> = self
            .subtopologies
            .values()
            .flat_map(|one| &one.repartition)
            .map(|topic| (topic.name.as_str(), topic.partitions > 0))
            .collect();
        for subtopology in self.subtopologies.values() {
            for group in &subtopology.copartitioned {
                subtopology.copartition(group, &internal, &mut counts)?;
            }
        }
        for (id, subtopology) in &self.subtopologies {
            let tasks = counts.tasks(id, subtopology)?;
            counts.decided.extend(subtopology.changelogs.iter().map(|topic| (topic.name.clone(), tasks)));
        }
        let mut subtopologies = BTreeMap::new();
        let (mut tasks, mut partitions) = (0_u64, 0_u64);
        for (id, subtopology) in &self.subtopologies {
            let one = subtopology.configured(id, &counts)?;
            tasks += u64::from(one.tasks);
            partitions += one
                .repartition
                .values()
                .chain(one.changelogs.values())
                .map(|topic| u64::from(topic.partitions))
                .sum::<u64>();
            subtopologies.insert(id.clone(), one);
            if tasks > TASKS_MAX || partitions > TASKS_MAX {
                return Err(Trouble::Invalid(format!(
                    "The topology has more than {TASKS_MAX} tasks or partitions of internal topics."
                )));
            }
        }
        let missing = missing(&subtopologies, topics)?;
        let trouble = (!missing.is_empty()).then(|| StreamsStatus {
            kind: StreamsStatusKind::MissingInternalTopics,
            detail: format!("Internal topics are missing: {}", summary(missing.keys())),
        });
        Ok(Configured { subtopologies: Some(subtopologies), missing, trouble })
    }

    /// Repartition topics get the number that the application names, or as many partitions as their writer reads.
    fn decide_repartition(&self, counts: &mut Counts<'_>) -> Result<(), Trouble> {
        let mut decided: BTreeMap<String, u32> = BTreeMap::new();
        let read = self.subtopologies.values().flat_map(|one| &one.repartition);
        decided.extend(
            read.clone().filter(|topic| topic.partitions > 0).map(|topic| (topic.name.clone(), topic.partitions)),
        );
        // A writer may read what another one writes: round by round, until nobody waits any more.
        let mut waiting: Vec<(&Subtopology, &String)> =
            self.subtopologies.values().flat_map(|one| one.sinks.iter().map(move |sink| (one, sink))).collect();
        loop {
            let before = waiting.len();
            waiting.retain(|(writer, sink)| {
                let named = writer.repartition.iter().filter_map(|topic| decided.get(&topic.name).copied());
                let most = named.chain(writer.sources.iter().filter_map(|topic| counts.of(topic))).max();
                match most {
                    _ if decided.contains_key(*sink) => false,
                    Some(most) => decided.insert((*sink).clone(), most).is_some(),
                    None => true,
                }
            });
            if waiting.is_empty() {
                break;
            }
            if waiting.len() == before {
                return Err(Trouble::Invalid("The repartition topics go round in a circle.".to_owned()));
            }
        }
        if let Some(topic) = read.clone().find(|topic| !decided.contains_key(&topic.name)) {
            return Err(Trouble::Invalid(format!("Nothing writes the repartition topic {}.", topic.name)));
        }
        counts.decided = decided;
        Ok(())
    }
}

impl Subtopology {
    /// Topics that are read side by side get the same number; `internal` are all repartition topics, and whether the application names
    /// their number.
    fn copartition(
        &self,
        group: &CopartitionGroup,
        internal: &HashMap<&str, bool>,
        counts: &mut Counts<'_>,
    ) -> Result<(), Trouble> {
        let sources = group.sources.iter().filter_map(|at| self.sources.get(usize::from(*at)));
        let repartition = group.repartition.iter().filter_map(|at| self.repartition.get(usize::from(*at)));
        let names: BTreeSet<&String> = sources.chain(repartition.map(|topic| &topic.name)).collect();
        let (inner, outer): (Vec<&String>, Vec<&String>) =
            names.into_iter().partition(|name| internal.contains_key(name.as_str()));
        let fixed = |name: &&String| internal.get(name.as_str()).copied().unwrap_or(false);
        // Others' topics count first, then those whose number the application names.
        let firm: Vec<&String> = if outer.is_empty() { inner.iter().copied().filter(fixed).collect() } else { outer };
        let numbers = firm.iter().map(|name| Ok((*name, counts.need(name)?))).collect::<Result<Vec<_>, Trouble>>()?;
        let mut wanted = numbers.first().map(|(_, partitions)| *partitions);
        if numbers.iter().any(|(_, partitions)| Some(*partitions) != wanted) {
            let numbers: Vec<String> =
                numbers.iter().map(|(name, partitions)| format!("{name}={partitions}")).collect();
            return Err(partitioned(format!(
                "Following topics do not have the same number of partitions: [{}]",
                numbers.join(", ")
            )));
        }
        if wanted.is_none() {
            for name in &inner {
                wanted = wanted.max(Some(counts.need(name)?));
            }
        }
        let Some(wanted) = wanted else { return Ok(()) };
        for name in inner {
            let has = counts.need(name)?;
            if fixed(&name) && has != wanted {
                return Err(partitioned(format!(
                    "Number of partitions [{has}] of repartition topic [{name}] doesn't match number of partitions [{wanted}] of the source topic."
                )));
            }
            counts.decided.insert(name.clone(), wanted);
        }
        Ok(())
    }

    fn configured(&self, id: &str, counts: &Counts<'_>) -> Result<ConfiguredSubtopology, Trouble> {
        let one = |topic: &InternalTopic| -> Result<(String, ConfiguredTopic), Trouble> {
            let decided = || counts.decided.get(&topic.name).copied();
            let partitions = Some(topic.partitions).filter(|count| *count > 0).or_else(decided);
            let partitions = partitions.ok_or_else(|| {
                Trouble::Invalid(format!("The number of partitions of {} cannot be told.", topic.name))
            })?;
            let configured =
                ConfiguredTopic { partitions, replication: topic.replication, configs: topic.configs.clone() };
            Ok((topic.name.clone(), configured))
        };
        Ok(ConfiguredSubtopology {
            tasks: counts.tasks(id, self)?,
            sources: self.sources.iter().cloned().collect(),
            sinks: self.sinks.iter().cloned().collect(),
            repartition: self.repartition.iter().map(one).collect::<Result<_, _>>()?,
            changelogs: self.changelogs.iter().map(one).collect::<Result<_, _>>()?,
        })
    }
}

/// Internal topics that do not exist; those that do have to have the right number of partitions.
fn missing(
    all: &BTreeMap<String, ConfiguredSubtopology>,
    topics: &dyn Topics,
) -> Result<BTreeMap<String, ConfiguredTopic>, Trouble> {
    let mut missing = BTreeMap::new();
    for (name, topic) in all.values().flat_map(|one| one.repartition.iter().chain(&one.changelogs)) {
        match topics.find(name) {
            None => drop(missing.insert(name.clone(), topic.clone())),
            Some((_, found)) if found != topic.partitions => {
                let expected = topic.partitions;
                let detail = format!(
                    "Existing topic {name} has different number of partitions: expected {expected}, found {found}"
                );
                return Err(partitioned(detail));
            }
            Some(_) => {}
        }
    }
    Ok(missing)
}

impl StreamsTopology {
    /// Is it one at all? Whatever topics there are.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.epoch < 0 {
            return Err("The epoch of the topology is negative.".to_owned());
        }
        if self.subtopologies.len() > SUBTOPOLOGIES_MAX || self.weight() > BYTES_MAX {
            return Err(format!(
                "The topology has more than {SUBTOPOLOGIES_MAX} subtopologies, or more than {BYTES_MAX} bytes."
            ));
        }
        for (id, one) in &self.subtopologies {
            if let Some(topic) = one.changelogs.iter().find(|topic| topic.partitions != 0) {
                let (name, count) = (&topic.name, topic.partitions);
                return Err(format!(
                    "Changelog topic {name} must have an undefined partition count, but it is set to {count}."
                ));
            }
            if let Some(topic) = one.internal().find(|topic| u64::from(topic.partitions) > TASKS_MAX) {
                return Err(format!("Topic {} cannot have {} partitions.", topic.name, topic.partitions));
            }
            let outside = |places: &[u16], count: usize| places.iter().any(|place| usize::from(*place) >= count);
            let stray = |group: &CopartitionGroup| {
                outside(&group.sources, one.sources.len()) || outside(&group.repartition, one.repartition.len())
            };
            if one.copartitioned.iter().any(stray) {
                return Err(format!("A copartition group of subtopology {id} names what is not among its topics."));
            }
        }
        Ok(())
    }
}
