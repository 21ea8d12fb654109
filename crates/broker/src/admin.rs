//! What changes the catalog. Runs on the controller's thread, one command after the other; each is durable
//! before it is visible.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use journal::{AppendError, AppendItem, AppendResults, Log};
use types::{Durability, LogId, Offset, TopicId};
use uuid::Uuid;

use crate::Broker;
use crate::catalog::{NEXT_LOG_KEY, TopicRecord, topic_key, unified, weight_of_settings, weight_of_texts};
use crate::jobs::durable;
use crate::limits::{LimitKind, LimitReached};
use crate::log_ends::Fits;
use crate::queues::ONLY;
use crate::settings::{SettingError, Settings, TOPIC, find};
use crate::topic::{Topic, TopicConfig, effective};

/// Partitions of one topic, at most.
pub const PARTITIONS_MAX: i32 = 100_000;
/// Bytes of a topic's name, at most.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// A topic to be created.
#[derive(Clone, Debug)]
pub struct CreateTopic {
    /// Its name.
    pub name: String,
    /// Number of partitions; −1: the broker's default.
    pub partitions: i32,
    /// Copies of each; −1 or 1.
    pub replication: i16,
    /// Settings of its own.
    pub overrides: BTreeMap<String, String>,
}

/// Why a topic is not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The name breaks a rule.
    #[error("{0}")]
    Name(&'static str),
    /// The name is taken.
    #[error("Topic '{0}' already exists.")]
    Exists(String),
    /// One that is there differs in dots and underscores alone, which metrics of Kafka do not tell apart.
    #[error("Topic '{0}' collides with existing topic: {1}")]
    Collides(String, String),
    /// Not a possible number.
    #[error("Number of partitions was set to an invalid value: {0}; it is -1 or from 1 to {PARTITIONS_MAX}.")]
    Partitions(i32),
    /// Below 1.
    #[error("Replication factor must be larger than 0, or -1 to use the default value.")]
    Replication,
    /// More than there are nodes.
    #[error("Unable to replicate the partition {0} time(s): only 1 broker(s) are registered.")]
    TooFewNodes(i16),
    /// A setting is unknown or impossible.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// There are as many topics or partitions as there may be.
    #[error(transparent)]
    Limit(#[from] LimitReached),
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why partitions are not added.
#[derive(Debug, thiserror::Error)]
pub enum PartitionsError {
    /// No such topic.
    #[error("This server does not host this topic-partition.")]
    UnknownTopic,
    /// Not more than there are.
    #[error("The topic {topic} currently has {have} partition(s); {wanted} would not be an increase.")]
    NotMore {
        /// Its name.
        topic: String,
        /// Partitions now.
        have: usize,
        /// Partitions asked for.
        wanted: i32,
    },
    /// More than allowed.
    #[error("The number of partitions {0} is larger than {PARTITIONS_MAX}.")]
    TooMany(i32),
    /// There are as many partitions as there may be.
    #[error(transparent)]
    Limit(#[from] LimitReached),
    /// A queue keeps what it has.
    #[error("The topic {0} is a queue, which keeps its number of partitions.")]
    Queue(String),
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why a configuration is not changed.
#[derive(Debug, thiserror::Error)]
pub enum AlterError {
    /// No such topic.
    #[error("This server does not host this topic-partition.")]
    UnknownTopic,
    /// A setting is unknown or impossible.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Settings of groups take as much memory as they may, or those of topics with topics and partitions.
    #[error(
        "the node has no more memory for settings: of topics with their partitions there is as much as --memory says, of groups a sixteenth of that"
    )]
    NoMemory,
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Kafka's rules for names.
///
/// # Errors
/// The rule that is broken.
pub fn check_topic_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("Topic name is invalid: the empty string is not allowed");
    }
    if name == "." || name == ".." {
        return Err("Topic name is invalid: '.' or '..' is not allowed");
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Err("Topic name is invalid: the length is longer than the max allowed length 249");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return Err(
            "Topic name is invalid: it contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        );
    }
    Ok(())
}

fn check_overrides(
    overrides: &BTreeMap<String, String>,
    settings: &Settings,
    durability: Durability,
) -> Result<(), SettingError> {
    overrides.iter().try_for_each(|(name, value)| find(TOPIC, name)?.check(value))?;
    let lag = |name| effective(overrides, settings, durability, name).0.trim().parse::<i64>();
    let (least, most) = (lag("min.compaction.lag.ms"), lag("max.compaction.lag.ms"));
    match (least, most) {
        (Ok(least), Ok(most)) if least > most => Err(SettingError {
            name: "min.compaction.lag.ms".to_owned(),
            value: Some(least.to_string()),
            expected: format!("it is at most max.compaction.lag.ms, which is {most}"),
        }),
        _ => Ok(()),
    }
}

/// A queue's own topic keeps what makes it one, also when a setting is to fall back to its default.
fn check_queue_overrides(overrides: &BTreeMap<String, String>) -> Result<(), SettingError> {
    for (name, only) in ONLY {
        let value = overrides.get(name).map_or("", String::as_str);
        if value != only {
            let expected = format!("the topic is a queue, so it is {only}");
            return Err(SettingError { name: name.to_owned(), value: Some(value.to_owned()), expected });
        }
    }
    Ok(())
}

impl Broker {
    /// Checks all that can be known before; the number of partitions in force.
    ///
    /// # Errors
    /// All but `Append`.
    pub fn check_create(&self, topic: &CreateTopic) -> Result<u32, CreateError> {
        self.check_create_beside(topic, 0, 0)
    }

    /// The same, beside topics and their partitions that are about to be there.
    fn check_create_beside(&self, topic: &CreateTopic, topics: u64, others: u64) -> Result<u32, CreateError> {
        check_topic_name(&topic.name).map_err(CreateError::Name)?;
        if self.topic(&topic.name).is_some() {
            return Err(CreateError::Exists(topic.name.clone()));
        }
        if let Some(other) = unified(&topic.name).and_then(|unified| self.catalog.colliding(&unified)) {
            return Err(CreateError::Collides(topic.name.clone(), other));
        }
        let partitions = match topic.partitions {
            -1 => self.live_settings().int("num.partitions") as i32,
            number => number,
        };
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            return Err(CreateError::Partitions(topic.partitions));
        }
        match topic.replication {
            -1 | 1 => {}
            2.. => return Err(CreateError::TooFewNodes(topic.replication)),
            _ => return Err(CreateError::Replication),
        }
        check_overrides(&topic.overrides, &self.live_settings(), self.durability())?;
        self.check_limit(LimitKind::Topics, topics + 1)?;
        let texts = Self::partitions_for(weight_of_texts(&topic.name, &topic.overrides));
        self.check_limit(LimitKind::Partitions, others + partitions as u64 + texts)?;
        Ok(partitions as u32)
    }

    /// Creates topics, each for itself, with one commit for all.
    pub fn create_topics(&self, topics: Vec<CreateTopic>) -> Vec<Result<Arc<Topic>, CreateError>> {
        let mut outcomes: Vec<Result<(String, TopicRecord), CreateError>> = Vec::new();
        let mut items = Vec::new();
        let mut next = self.next_log.lock();
        let (begin, mut coming) = (*next, 0);
        // By what must not be the same.
        let mut names: HashMap<String, String> = HashMap::new();
        for topic in topics {
            let checked = match names.get(&*unified(&topic.name).map_or(Cow::Borrowed(&*topic.name), Cow::Owned)) {
                Some(other) if *other == topic.name => Err(CreateError::Exists(topic.name.clone())),
                Some(other) => Err(CreateError::Collides(topic.name.clone(), other.clone())),
                None => self.check_create_beside(&topic, coming, *next - begin),
            };
            if checked.is_ok() {
                names.insert(unified(&topic.name).unwrap_or_else(|| topic.name.clone()), topic.name.clone());
            }
            if let Err(CreateError::Limit(reached)) = &checked {
                self.limits().note_refusal(reached.kind);
            }
            outcomes.push(checked.map(|partitions| {
                coming += 1;
                let first = *next;
                *next += u64::from(partitions);
                let logs = (first..*next).map(LogId).collect();
                let record = TopicRecord { id: TopicId(Uuid::new_v4()), logs, overrides: topic.overrides };
                items.push(AppendItem::State { key: topic_key(&topic.name), value: Some(record.encode()) });
                (topic.name, record)
            }));
        }
        if items.is_empty() {
            return outcomes
                .into_iter()
                .map(|outcome| outcome.map(|(name, record)| self.publish(name, record)))
                .collect();
        }
        let value = Some(Bytes::copy_from_slice(&next.to_be_bytes()));
        items.push(AppendItem::State { key: Bytes::from_static(NEXT_LOG_KEY), value });
        let committed = self.commit(0, items);
        outcomes
            .into_iter()
            .map(|outcome| {
                let (name, record) = outcome?;
                committed?;
                Ok(self.publish(name, record))
            })
            .collect()
    }

    fn record_of(topic: &Topic) -> TopicRecord {
        let logs = topic.logs().iter().map(|log| log.id()).collect();
        TopicRecord { id: topic.id, logs, overrides: topic.config().overrides.clone() }
    }

    /// Is an increase to `count` partitions possible?
    ///
    /// # Errors
    /// All but `Append`.
    pub fn check_partitions(&self, name: &str, count: i32) -> Result<Arc<Topic>, PartitionsError> {
        self.check_partitions_beside(name, count, 0)
    }

    /// The same, beside partitions that are about to be there.
    fn check_partitions_beside(&self, name: &str, count: i32, others: u64) -> Result<Arc<Topic>, PartitionsError> {
        let topic = self.topic(name).ok_or(PartitionsError::UnknownTopic)?;
        if self.queue_on(&topic).is_some() {
            return Err(PartitionsError::Queue(name.to_owned()));
        }
        let have = topic.logs().len();
        if count > PARTITIONS_MAX {
            return Err(PartitionsError::TooMany(count));
        }
        if count <= have as i32 {
            return Err(PartitionsError::NotMore { topic: name.to_owned(), have, wanted: count });
        }
        self.check_limit(LimitKind::Partitions, others + count as u64 - have as u64)?;
        Ok(topic)
    }

    /// Adds partitions until there are `count`.
    ///
    /// # Errors
    /// See [`PartitionsError`].
    pub fn add_partitions(&self, name: &str, count: i32) -> Result<(), PartitionsError> {
        self.add_partitions_to(&[(name, count)]).pop().unwrap_or(Ok(()))
    }

    /// Adds partitions to topics until each has as many as are asked for, each for itself, many of them with one commit; an outcome for each. No topic
    /// is there twice.
    pub fn add_partitions_to(&self, wishes: &[(&str, i32)]) -> Vec<Result<(), PartitionsError>> {
        let mut outcomes = Vec::with_capacity(wishes.len());
        let mut wishes = wishes.iter().peekable();
        while wishes.peek().is_some() {
            // The record of a topic has the ids of all its logs: the last one may be beyond what goes together.
            let (mut items, mut begun, mut room, mut has_room, mut coming) =
                (Vec::new(), Vec::new(), Fits::default(), true, 0);
            while has_room && let Some((name, count)) = wishes.next() {
                let planned = self.plan_partitions(name, *count, coming).map(|(topic, record)| {
                    let more = record.logs.len() - topic.logs().len();
                    coming += more as u64;
                    items.push(AppendItem::State { key: topic_key(name), value: Some(record.encode()) });
                    has_room = items.last().is_none_or(|item| room.take(std::slice::from_ref(item)));
                    (topic, record, more)
                });
                begun.push(planned);
            }
            let results = if items.is_empty() { AppendResults::new() } else { self.commit_all_with_next_log(items) };
            let next_log = durable(results.last());
            let mut results = results.iter();
            outcomes.extend(begun.into_iter().map(|planned| {
                let (topic, record, more) = planned?;
                durable(results.next()).and(next_log)?;
                let config = topic.config();
                let logs =
                    record.logs.iter().map(|id| self.journal_of(*id).create_log(*id, config.durability)).collect();
                topic.set_logs(logs);
                topic.set_config(config);
                self.catalog.enlarged(more);
                Ok(())
            }));
        }
        outcomes
    }

    /// The record of a topic with more partitions, beside partitions that are about to be there; their logs have ids from now on.
    fn plan_partitions(
        &self,
        name: &str,
        count: i32,
        others: u64,
    ) -> Result<(Arc<Topic>, TopicRecord), PartitionsError> {
        let topic = self.check_partitions_beside(name, count, others).inspect_err(|error| {
            if let PartitionsError::Limit(reached) = error {
                self.limits().note_refusal(reached.kind);
            }
        })?;
        let mut record = Self::record_of(&topic);
        let mut next = self.next_log.lock();
        let more = count as u64 - record.logs.len() as u64;
        record.logs.extend((*next..*next + more).map(LogId));
        *next += more;
        Ok((topic, record))
    }

    /// Would these overrides be taken?
    ///
    /// # Errors
    /// All but `Append`.
    pub fn check_config(&self, name: &str, overrides: &BTreeMap<String, String>) -> Result<Arc<Topic>, AlterError> {
        let topic = self.topic(name).ok_or(AlterError::UnknownTopic)?;
        check_overrides(overrides, &self.live_settings(), self.durability())?;
        if self.queue_on(&topic).is_some_and(|queue| !queue.is_attached() && !queue.is_stream()) {
            check_queue_overrides(overrides)?;
        }
        Ok(topic)
    }

    /// Replaces the overrides of a topic.
    ///
    /// # Errors
    /// See [`AlterError`].
    pub fn set_topic_config(&self, name: &str, overrides: BTreeMap<String, String>) -> Result<(), AlterError> {
        self.set_topic_configs(vec![(name.to_owned(), overrides)]).pop().unwrap_or(Ok(()))
    }

    /// Replaces the overrides of topics, each for itself, with one commit for all; an outcome for each. No topic is there twice.
    pub fn set_topic_configs(&self, topics: Vec<(String, BTreeMap<String, String>)>) -> Vec<Result<(), AlterError>> {
        let (mut items, mut more) = (Vec::new(), 0);
        let checked: Vec<Result<(Arc<Topic>, TopicRecord), AlterError>> = topics
            .into_iter()
            .map(|(name, overrides)| {
                let topic = self.check_config(&name, &overrides)?;
                let wanted =
                    weight_of_settings(&overrides).saturating_sub(weight_of_settings(&topic.config().overrides));
                if wanted > 0 && self.check_limit(LimitKind::Partitions, Self::partitions_for(more + wanted)).is_err() {
                    return Err(AlterError::NoMemory);
                }
                more += wanted;
                let record = TopicRecord { overrides, ..Self::record_of(&topic) };
                items.push(AppendItem::State { key: topic_key(&name), value: Some(record.encode()) });
                Ok((topic, record))
            })
            .collect();
        if items.is_empty() {
            return checked.into_iter().map(|outcome| outcome.map(drop)).collect();
        }
        let committed = self.commit(0, items);
        let set = |outcome: Result<(Arc<Topic>, TopicRecord), AlterError>| {
            let (topic, record) = outcome?;
            committed?;
            let (before, weighed) = (topic.config().byte_rates, weight_of_settings(&topic.config().overrides));
            self.catalog.configured(weighed, weight_of_settings(&record.overrides));
            topic.set_config(Arc::new(TopicConfig::new(
                record.overrides,
                &self.live_settings(),
                self.config.durability,
            )));
            self.note_topic_quotas(&topic, before != topic.config().byte_rates);
            Ok(())
        };
        let outcomes = checked.into_iter().map(set).collect();
        self.journals.iter().for_each(|journal| journal.check_retention());
        outcomes
    }

    /// A topic is there, or has been configured: does it have quotas, or other ones than before?
    pub(crate) fn note_topic_quotas(&self, topic: &Topic, changed: bool) {
        if changed || topic.quotas().is_some() {
            self.quotas().topic_changed();
        }
    }

    /// Moves the start of a log; the records before it are gone.
    ///
    /// # Errors
    /// When the journal does not take it.
    pub fn trim(&self, log: &Arc<Log>, to: Offset) -> Result<(), AppendError> {
        self.trim_all(&[(Arc::clone(log), to)]).pop().unwrap_or(Ok(()))
    }

    /// Moves the starts of logs, each for itself, those of a journal with one commit; an outcome for each. No log is there twice.
    pub fn trim_all(&self, trims: &[(Arc<Log>, Offset)]) -> Vec<Result<(), AppendError>> {
        let mut of_journal: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, (log, _)) in trims.iter().enumerate() {
            of_journal.entry(self.journal_number(log.id())).or_default().push(at);
        }
        let mut outcomes = vec![Ok(()); trims.len()];
        for (journal, places) in of_journal {
            let trim = |at: &usize| AppendItem::Trim { log: Arc::clone(&trims[*at].0), to: trims[*at].1 };
            let results = self.commit_all(journal, places.iter().map(trim).collect());
            for (number, at) in places.into_iter().enumerate() {
                outcomes[at] = durable(results.get(number));
            }
        }
        outcomes
    }

    /// Makes group state durable. Not on a shard's thread.
    pub(crate) fn commit_state(&self, records: Vec<(Bytes, Option<Bytes>)>) -> Result<(), AppendError> {
        let items = records.into_iter().map(|(key, value)| AppendItem::State { key, value }).collect();
        self.commit(0, items)
    }
}
