//! OffsetCommit, OffsetFetch, OffsetDelete. A commit is answered when it is durable.

use std::sync::Arc;

use broker::{AclOperation, Broker, CommitRefused, Reply, Topic};
use bytes::Buf;
use delivery::{Commit, CommittedOffset, Committer};
use hashbrown::{HashMap, HashSet};
use kafka_wire::offset_commit::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_wire::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_wire::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};
use types::{PartitionIndex, TopicId};
use uuid::Uuid;

use super::{NO_ROOM, Outcome, Wait, control};
use crate::access::{Asking, HIDDEN};
use crate::answer_room::AnswerRoom;
use crate::body::Body;
use crate::error_code::{of_append, of_group};
use crate::session::Context;
use crate::written::{Listing, Parts};

/// The setting: longest text beside an offset.
const METADATA_BYTES_MAX: &str = "offset.metadata.max.bytes";

/// A commit on its way through the journal. It takes effect there, whether or not its connection waits for it.
struct CommitWait {
    group: String,
    response: OffsetCommitResponse,
    places: Vec<Answering>,
    /// Of the commits, those that were taken, by result.
    taken: Vec<usize>,
}

/// Where in a response it is said what becomes of a commit: topic, partition, and the number of the commit.
pub(super) type Answering = (usize, usize, usize);

/// What a request commits. Of a partition that is named more than once the last is written, as in Kafka, where it takes effect after the others; all are
/// answered. What is refused because it is too long is a commit of its own, and takes the place of no other.
pub(super) struct Commits {
    pub places: Vec<Answering>,
    pub commits: Vec<Commit>,
    numbers: HashMap<(*const Topic, u32, bool), usize>,
    metadata_max: usize,
}

impl Commits {
    pub fn new(broker: &Broker) -> Self {
        let metadata_max = broker.settings().int(METADATA_BYTES_MAX).max(0) as usize;
        Self { places: Vec::new(), commits: Vec::new(), numbers: HashMap::new(), metadata_max }
    }

    /// Adds one that is answered at `place`: topic and partition.
    pub fn add(&mut self, place: (usize, usize), topic: &Arc<Topic>, partition: u32, offset: CommittedOffset) {
        let key = (Arc::as_ptr(topic), partition, offset.metadata.len() > self.metadata_max);
        let number = *self.numbers.entry(key).or_insert(self.commits.len());
        match self.commits.get_mut(number) {
            Some(before) => before.offset = offset,
            None => self.commits.push(Commit { topic: topic.name.clone(), partition, offset }),
        }
        self.places.push((place.0, place.1, number));
    }
}

/// The topic of a request, by name or by id.
pub(crate) fn find_topic(broker: &Broker, by_id: bool, name: &str, id: uuid::Uuid) -> Result<Arc<Topic>, ErrorCode> {
    if by_id {
        broker.topic_by_id(TopicId(id)).ok_or(ErrorCode::UnknownTopicId)
    } else {
        broker.topic(name).ok_or(ErrorCode::UnknownTopicOrPartition)
    }
}

pub(crate) fn commit(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = OffsetCommitRequest::decode(reader, context.version)?;
    context.spoken.ask(&request.group_id);
    let broker = &context.gateway.broker;
    let by_id = context.version >= 10;
    let asking = context.asking();
    let member = asking.check_consumers(AclOperation::Read, &request.group_id);
    let mut response = OffsetCommitResponse::default();
    let mut commits = Commits::new(broker);
    for topic in &request.topics {
        let found = find_topic(broker, by_id, &topic.name, topic.topic_id);
        let name = found.as_ref().map_or(&*topic.name, |known| known.name.as_str());
        // A topic that is not known by its id has no name that could be refused.
        let readable = if by_id && found.is_err() { Ok(()) } else { asking.check_topic(AclOperation::Read, name) };
        let found = match member.and(readable) {
            Ok(()) => found,
            Err(code) => Err(code),
        };
        let mut answers = Vec::new();
        for partition in &topic.partitions {
            let index = super::fetch::index(partition.partition_index);
            let known = match (&found, index) {
                (Ok(topic), Some(index)) if topic.log(index).is_some() => Ok((topic, index)),
                (Err(code), _) => Err(*code),
                _ => Err(ErrorCode::UnknownTopicOrPartition),
            };
            match known {
                Ok((found, PartitionIndex(index))) => {
                    let offset = CommittedOffset {
                        offset: partition.committed_offset,
                        leader_epoch: partition.committed_leader_epoch,
                        metadata: partition.committed_metadata.as_ref().map(ToString::to_string).unwrap_or_default(),
                        committed_at: broker.now_ms().max(0) as u64,
                    };
                    commits.add((response.topics.len(), answers.len()), found, index, offset);
                    answers.push(commit_answer(partition.partition_index, None));
                }
                Err(code) => answers.push(commit_answer(partition.partition_index, Some(code))),
            }
        }
        response.topics.push(OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: answers,
            ..OffsetCommitResponseTopic::default()
        });
    }
    let Commits { places, commits, .. } = commits;
    let asked = OffsetCommitRequest { topics: Vec::new(), ..request };
    let submit = move |context: &mut Context<'_>| submit_commit(&asked, response, (places, commits), context);
    // A long request is looked at elsewhere.
    Ok(if context.gone.is_some() { Outcome::Resume(Box::new(submit)) } else { submit(context) })
}

fn commit_answer(partition_index: i32, code: Option<ErrorCode>) -> OffsetCommitResponsePartition {
    OffsetCommitResponsePartition { partition_index, error_code: code.map_or(0, ErrorCode::code), ..Default::default() }
}

fn submit_commit(
    request: &OffsetCommitRequest,
    mut response: OffsetCommitResponse,
    (places, commits): (Vec<Answering>, Vec<Commit>),
    context: &mut Context<'_>,
) -> Outcome {
    if places.is_empty() && context.asking().check_consumers(AclOperation::Read, &request.group_id).is_err() {
        return Outcome::answer(response);
    }
    let member = Committer {
        member_id: &request.member_id,
        instance: request.group_instance_id.as_deref(),
        generation: request.generation_id_or_member_epoch,
        transactional: false,
        knows_epochs: context.version >= 9,
    };
    let outcomes = match context.gateway.broker.commit_offsets(&request.group_id, member, commits, context.to) {
        Err(error) => {
            let code = match error {
                CommitRefused::Group(error) => of_group(error),
                CommitRefused::Busy => ErrorCode::CoordinatorNotAvailable,
            };
            let all = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            all.for_each(|partition| partition.error_code = code.code());
            return Outcome::answer(response);
        }
        Ok(outcomes) => outcomes,
    };
    let taken: Vec<usize> = (0..outcomes.len()).filter(|number| outcomes[*number].is_ok()).collect();
    for (topic, partition, number) in &places {
        if let Err(error) = outcomes[*number] {
            response.topics[*topic].partitions[*partition].error_code = of_group(error).code();
        }
    }
    if taken.is_empty() {
        return Outcome::answer(response);
    }
    Outcome::Wait(Box::new(CommitWait { group: request.group_id.to_string(), response, places, taken }))
}

impl Wait for CommitWait {
    fn handle_reply(&mut self, _part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Appended(results) = reply else { return None };
        let mut failed = HashSet::new();
        for (number, result) in self.taken.drain(..).zip(results) {
            if let Err(error) = result {
                // Clients know how to wait for a coordinator, not for its disk.
                tracing::warn!(group = self.group, code = of_append(error).name(), "offset commit failed");
                failed.insert(number);
            }
        }
        for (topic, partition, _) in self.places.drain(..).filter(|(.., number)| failed.contains(number)) {
            self.response.topics[topic].partitions[partition].error_code = ErrorCode::CoordinatorNotAvailable.code();
        }
        Some(Box::new(std::mem::take(&mut self.response)))
    }
}

pub(crate) fn fetch(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = OffsetFetchRequest::decode(reader, context.version)?;
    match &request.groups[..] {
        [] => context.spoken.ask(&request.group_id),
        [group] => context.spoken.ask(&group.group_id),
        _ => context.spoken.ask_many(),
    }
    let (broker, asking) = (&context.gateway.broker, context.asking());
    let counted = |group: &str, all: bool| if all { broker.groups().offset_count(group) } else { 0 };
    let named = request.groups.iter().map(|group| counted(&group.group_id, group.topics.is_none())).sum::<usize>();
    if context.is_long(
        named
            + counted(
                &request.group_id,
                context.version < 8 && request.topics.as_ref().is_none_or(|topics| topics.is_empty()),
            ),
    ) {
        return Ok(Outcome::Long);
    }
    if context.version >= 8 {
        let by_id = context.version >= 10;
        let stable = request.require_stable;
        let mut answered = Answered { repeated: named_again(&request.groups), ..Answered::default() };
        let (mut room, mut parts, version) =
            (AnswerRoom::new(context.gateway), Parts::counted(&context.gateway.pinned), context.version);
        for group in request.groups {
            if group.topics.is_none()
                && answered.repeated.contains(&group.group_id)
                && !answered.groups.insert(group.group_id.clone())
            {
                continue;
            }
            let group_id = group.group_id.clone();
            let fetched =
                room.is_there().then(|| fetch_group((broker, &asking), group, (by_id, stable), &mut answered));
            if !fetched.is_some_and(|fetched| parts.push(&mut room, |writer| fetched.encode(writer, version))) {
                let refused = OffsetFetchResponseGroup {
                    group_id,
                    error_code: NO_ROOM.code(),
                    ..OffsetFetchResponseGroup::default()
                };
                parts.add(|writer| refused.encode(writer, version));
            }
        }
        return Ok(Outcome::answer(parts.of(OffsetFetchResponse::default())));
    }
    let topics = request.topics.filter(|topics| context.version >= 2 || !topics.is_empty());
    let asked = topics.map(|topics| {
        let one = |topic: kafka_wire::offset_fetch::OffsetFetchRequestTopic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..OffsetFetchRequestTopics::default()
        };
        topics.into_iter().map(one).collect()
    });
    let group = OffsetFetchRequestGroup { group_id: request.group_id, topics: asked, ..Default::default() };
    let answer = fetch_group((broker, &asking), group, (false, request.require_stable), &mut Answered::default());
    let topics = answer.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartition {
                partition_index: partition.partition_index,
                committed_offset: partition.committed_offset,
                committed_leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata,
                error_code: partition.error_code,
                ..OffsetFetchResponsePartition::default()
            })
            .collect(),
        ..OffsetFetchResponseTopic::default()
    });
    Ok(Outcome::answer(OffsetFetchResponse {
        topics: topics.collect(),
        error_code: answer.error_code,
        ..Default::default()
    }))
}

fn fetched(
    partition_index: i32,
    offset: Option<CommittedOffset>,
    code: Option<ErrorCode>,
) -> OffsetFetchResponsePartitions {
    let error_code = code.map_or(0, ErrorCode::code);
    match offset {
        Some(offset) => OffsetFetchResponsePartitions {
            partition_index,
            committed_offset: offset.offset,
            committed_leader_epoch: offset.leader_epoch,
            metadata: Some(offset.metadata.into()),
            error_code,
            ..OffsetFetchResponsePartitions::default()
        },
        None => OffsetFetchResponsePartitions {
            partition_index,
            committed_offset: -1,
            metadata: Some(Str::default()),
            error_code,
            ..OffsetFetchResponsePartitions::default()
        },
    }
}

/// What a request has been told: an answer may be a thousand times as long as what asks for it, and is given once.
#[derive(Default)]
struct Answered {
    /// Groups that are named more than once: of others nothing has to be remembered.
    repeated: HashSet<Str>,
    /// Those of which all offsets were told.
    groups: HashSet<Str>,
    told: Told,
}

/// Partitions that were told. A request may name a million, so that each is a number of its group and topic, and its own.
#[derive(Default)]
struct Told {
    topics: HashMap<(Str, Str, Uuid), usize>,
    partitions: HashSet<(usize, i32)>,
}

impl Told {
    /// The number of a topic of a group.
    fn topic(&mut self, group: &Str, name: &Str, id: Uuid) -> usize {
        let next = self.topics.len();
        *self.topics.entry((group.clone(), name.clone(), id)).or_insert(next)
    }
}

/// The groups that a request names more than once.
fn named_again(groups: &[OffsetFetchRequestGroup]) -> HashSet<Str> {
    let mut seen: HashSet<&str> = HashSet::with_capacity(groups.len());
    groups.iter().filter(|group| !seen.insert(&group.group_id)).map(|group| group.group_id.clone()).collect()
}

impl Listing for OffsetFetchResponse {
    fn behind(_version: i16) -> (bool, usize) {
        // No tags; older versions, of which parts are not the same, have no list of groups.
        (true, 1)
    }
}

/// With `stable` an offset that a transaction holds back is refused.
fn fetch_group(
    (broker, asking): (&Broker, &Asking<'_>),
    group: OffsetFetchRequestGroup,
    (by_id, stable): (bool, bool),
    answered: &mut Answered,
) -> OffsetFetchResponseGroup {
    let mut answer =
        OffsetFetchResponseGroup { group_id: group.group_id.clone(), ..OffsetFetchResponseGroup::default() };
    if let Err(code) = asking.check_group(AclOperation::Describe, &group.group_id) {
        answer.error_code = code.code();
        return answer;
    }
    let groups = broker.groups();
    if let Err(error) = groups.check_fetch(&group.group_id, group.member_id.as_deref(), group.member_epoch) {
        answer.error_code = of_group(error).code();
        return answer;
    }
    let unstable =
        |topic: &str, partition: u32| stable && broker.transactions().holds_offset(&group.group_id, topic, partition);
    let Some(asked) = group.topics else {
        let mut all: std::collections::BTreeMap<String, Vec<OffsetFetchResponsePartitions>> = Default::default();
        for (topic, partition, offset) in groups.offsets(&group.group_id) {
            if asking.quietly().check_topic(AclOperation::Describe, &topic).is_err() {
                continue;
            }
            let one = match stable {
                true if unstable(&topic, partition) => (None, Some(ErrorCode::UnstableOffsetCommit)),
                // A transaction that held it may have ended since the offsets were listed.
                true => (groups.offset(&group.group_id, &topic, partition), None),
                false => (Some(offset), None),
            };
            all.entry(topic).or_default().push(fetched(partition as i32, one.0, one.1));
        }
        let one = |(name, partitions): (String, Vec<_>)| {
            let topic_id = broker.topic(&name).map(|topic| topic.id.0).unwrap_or_default();
            OffsetFetchResponseTopics { name: name.into(), topic_id, partitions, ..Default::default() }
        };
        answer.topics = all.into_iter().map(one).collect();
        return answer;
    };
    let mut own = Told::default();
    let told = if answered.repeated.contains(&group.group_id) { &mut answered.told } else { &mut own };
    for topic in asked {
        let name = if by_id {
            broker.topic_by_id(TopicId(topic.topic_id)).map(|known| known.name.clone())
        } else {
            Some(topic.name.to_string())
        };
        let denied = name.as_ref().and_then(|name| asking.check_topic(AclOperation::Describe, name).err());
        let one = |index: &i32| match (&name, u32::try_from(*index)) {
            // Of a topic that is not there nothing was committed, which is no error.
            _ if denied.is_some() => fetched(*index, None, denied.filter(|code| *code != HIDDEN)),
            (None, _) => fetched(*index, None, Some(ErrorCode::UnknownTopicId)),
            (Some(name), Ok(partition)) if unstable(name, partition) => {
                fetched(*index, None, Some(ErrorCode::UnstableOffsetCommit))
            }
            (Some(name), Ok(partition)) => fetched(*index, groups.offset(&group.group_id, name, partition), None),
            _ => fetched(*index, None, None),
        };
        // Of a topic without any nothing is remembered.
        let number = if topic.partition_indexes.is_empty() {
            0
        } else {
            told.topic(&group.group_id, &topic.name, topic.topic_id)
        };
        let mut fresh = |index: &&i32| told.partitions.insert((number, **index));
        let partitions = topic.partition_indexes.iter().filter(|index| fresh(index)).map(one).collect();
        answer.topics.push(OffsetFetchResponseTopics {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions,
            ..Default::default()
        });
    }
    answer
}

/// The topics that subscriptions of a classic group's members name, in the group's protocol. They are Kafka's consumer protocol: version, then
/// topics.
fn subscribed(broker: &Broker, group: &str) -> HashSet<String> {
    let Some(group) = broker.groups().describe(group) else { return HashSet::new() };
    let names = |mut metadata: &[u8]| -> Vec<String> {
        let mut names = Vec::new();
        let count = metadata.try_get_i16().and_then(|_| metadata.try_get_i32()).unwrap_or(0);
        for _ in 0..count {
            // The count is a member's word: what is not there ends the list.
            let Ok(length) = metadata.try_get_i16() else { break };
            let Some((name, rest)) = metadata.split_at_checked(length.max(0) as usize) else { break };
            names.push(String::from_utf8_lossy(name).into_owned());
            metadata = rest;
        }
        names
    };
    let protocols = group.members.iter().flat_map(|member| &member.protocols);
    protocols.filter(|(name, _)| *name == group.protocol).flat_map(|(_, metadata)| names(metadata)).collect()
}

pub(crate) fn delete(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = OffsetDeleteRequest::decode(reader, context.version)?;
    if let Err(code) = context.asking().check_consumers(AclOperation::Delete, &request.group_id) {
        return Ok(Outcome::answer(OffsetDeleteResponse {
            error_code: code.code(),
            ..OffsetDeleteResponse::default()
        }));
    }
    let acting = context.acting("OffsetDelete");
    let busy = || OffsetDeleteResponse {
        error_code: ErrorCode::CoordinatorNotAvailable.code(),
        ..OffsetDeleteResponse::default()
    };
    Ok(control(context, busy, move |broker, asking| {
        if let Err(code) = asking.check_consumers(AclOperation::Delete, &request.group_id) {
            return OffsetDeleteResponse { error_code: code.code(), ..OffsetDeleteResponse::default() };
        }
        let denied = super::denied_topics(asking, AclOperation::Read, request.topics.iter().map(|topic| &topic.name));
        if request.group_id.is_empty() {
            return OffsetDeleteResponse {
                error_code: ErrorCode::InvalidGroupId.code(),
                ..OffsetDeleteResponse::default()
            };
        }
        // Share groups keep no offsets.
        if !broker.groups().exists(&request.group_id) || broker.groups().describe_share(&request.group_id).is_some() {
            return OffsetDeleteResponse {
                error_code: ErrorCode::GroupIdNotFound.code(),
                ..OffsetDeleteResponse::default()
            };
        }
        // What members say is taken apart once, however many topics are named.
        let said = subscribed(broker, &request.group_id);
        let mut there = Vec::new();
        for topic in request.topics.iter().filter(|topic| !denied.contains_key(&topic.name)) {
            let Some(known) = broker.topic(&topic.name) else { continue };
            let reads = broker
                .groups()
                .consumers_read(&request.group_id, &topic.name)
                .unwrap_or_else(|| said.contains(&*topic.name));
            let partitions =
                topic.partitions.iter().filter_map(|partition| super::fetch::index(partition.partition_index));
            there.extend(
                partitions.filter(|index| known.log(*index).is_some()).map(|index| (&*topic.name, index.0, reads)),
            );
        }
        let outcomes: HashMap<(&str, u32), Result<(), ErrorCode>> = there
            .iter()
            .zip(broker.delete_offsets(&request.group_id, &there))
            .map(|((topic, partition, _), deleted)| {
                (
                    (*topic, *partition),
                    deleted.map_err(|error| error.map_or(ErrorCode::CoordinatorNotAvailable, of_group)),
                )
            })
            .collect();
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                let place = u32::try_from(partition.partition_index).ok().map(|index| (&*topic.name, index));
                let outcome = match (denied.get(&topic.name), place.and_then(|place| outcomes.get(&place))) {
                    (Some(code), _) => Err(*code),
                    (None, Some(outcome)) => *outcome,
                    (None, None) => Err(ErrorCode::UnknownTopicOrPartition),
                };
                OffsetDeleteResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: outcome.err().map_or(0, ErrorCode::code),
                    ..OffsetDeleteResponsePartition::default()
                }
            });
            OffsetDeleteResponseTopic {
                name: topic.name.clone(),
                partitions: partitions.collect(),
                ..Default::default()
            }
        });
        let response = OffsetDeleteResponse { topics: topics.collect(), ..OffsetDeleteResponse::default() };
        for topic in &response.topics {
            for one in &topic.partitions {
                acting.note(&format!("{} {}-{}", request.group_id, topic.name, one.partition_index), one.error_code);
            }
        }
        response
    }))
}
