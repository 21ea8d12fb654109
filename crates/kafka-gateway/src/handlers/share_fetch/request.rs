//! What a ShareFetch asks for and says, before anything is fetched.

use std::sync::Arc;

use broker::Acknowledgement;
use hashbrown::{HashMap, HashSet};
use kafka_wire::ErrorCode;
use kafka_wire::share_fetch::{AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest};
use uuid::Uuid;

use super::super::share_acknowledge::{Said, Sayer};
use super::{BATCH_OPTIMIZED, RECORD_LIMIT, Worked};
use crate::share_sessions::{OPEN, SharePartition, ShareSession};

/// What a request is refused for before anything of it is done; otherwise whether it wants single records.
pub(super) fn check(request: &ShareFetchRequest) -> Result<bool, ErrorCode> {
    let acknowledges =
        request.topics.iter().flat_map(|topic| &topic.partitions).any(|one| !one.acknowledgement_batches.is_empty());
    let wants =
        request.max_bytes != 0 || request.max_records != 0 || request.min_bytes != 0 || request.max_wait_ms != 0;
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
pub(super) fn acknowledge(
    request: &ShareFetchRequest,
    sayer: &Sayer<'_>,
    asker: &Arc<Acknowledgement>,
) -> HashMap<(Uuid, i32), Option<ErrorCode>> {
    let named = |topic: &FetchTopic, one: &FetchPartition| (topic.topic_id, one.partition_index);
    let says = |one: &&FetchPartition| !one.acknowledgement_batches.is_empty();
    let all = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().filter(says).map(move |one| (named(topic, one), &one.acknowledgement_batches))
    });
    // Of a partition that is named again and again the last word counts, as in Kafka.
    let last: HashMap<(Uuid, i32), _> = all.collect();
    let of = |((topic, partition), batches): ((Uuid, i32), &Vec<AcknowledgementBatch>)| {
        let batches = batches.iter();
        let batches: Vec<Said<'_>> = batches
            .map(|one| Said { first: one.first_offset, last: one.last_offset, types: &one.acknowledge_types })
            .collect();
        ((topic, partition), sayer.say(topic, partition, &batches, asker).err())
    };
    last.into_iter().map(of).collect()
}

/// Brings the session up to date with what the request lists and forgets.
pub(super) fn update(request: &ShareFetchRequest, session: &mut ShareSession) -> Result<(), ErrorCode> {
    let listed = request
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|one| (topic.topic_id, one.partition_index)));
    let forgotten = request
        .forgotten_topics_data
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|one| (topic.topic_id, *one)));
    session.update(listed, forgotten)
}

/// The partitions of a session, with what came of acknowledgements of theirs.
pub(super) fn list(
    partitions: &[SharePartition],
    said: &HashMap<(Uuid, i32), Option<ErrorCode>>,
    fetches: bool,
) -> Vec<Worked> {
    let mut listed = Vec::with_capacity(partitions.len());
    let topics: HashSet<Uuid> = said.keys().map(|(topic, _)| *topic).collect();
    for of_topic in partitions.chunk_by(|one, next| one.topic == next.topic) {
        let is_said = of_topic.first().is_some_and(|first| topics.contains(&first.topic));
        listed.extend(of_topic.iter().map(|one| {
            let acknowledge_code = if is_said { said.get(&(one.topic, one.partition)).copied() } else { None };
            Worked {
                topic: one.topic,
                partition: one.partition,
                acknowledged: acknowledge_code.is_some(),
                new: !one.told && fetches,
                shared: None,
                code: None,
                acknowledge_code: acknowledge_code.flatten(),
                given: None,
            }
        }));
    }
    listed
}
