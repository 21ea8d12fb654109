//! ShareAcknowledge, and what ShareFetch carries of it: what members say of records that they have.

use std::sync::Arc;

use broker::{Acknowledged, Acknowledgement, AclOperation, Broker, Reply, ShareEvent, ShareRules};
use delivery::{ConsumerId, Subscription, Verdict};
use hashbrown::HashMap;
use kafka_wire::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, LeaderIdAndEpoch, PartitionData, ShareAcknowledgeRequest,
    ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse,
};
use kafka_wire::{DecodeError, ErrorCode, Reader};
use types::TopicId;
use uuid::Uuid;

use super::{Outcome, Wait};
use crate::access::{Asking, HIDDEN};
use crate::body::Body;
use crate::session::Context;
use crate::share_sessions::{Asker, CLOSE, OPEN};

/// What is said of `first` to `last`: one word for all, or one for each.
pub(crate) struct Said<'a> {
    pub first: i64,
    pub last: i64,
    pub types: &'a [i8],
}

/// Who says it, and under which rules.
pub(crate) struct Sayer<'a> {
    pub broker: &'a Arc<Broker>,
    pub asking: Asking<'a>,
    pub group: &'a str,
    pub consumer: ConsumerId,
    pub rules: &'a ShareRules,
    /// The request says that it prolongs locks.
    pub renews: bool,
}

const RENEW: i8 = 4;

fn verdict(kind: i8) -> Option<Verdict> {
    Some(match kind {
        0 => Verdict::Gap,
        1 => Verdict::Accept,
        2 => Verdict::Release,
        3 => Verdict::Reject,
        RENEW => Verdict::Renew,
        _ => return None,
    })
}

fn event(verdict: Verdict) -> Option<ShareEvent> {
    match verdict {
        Verdict::Accept => Some(ShareEvent::Accepted),
        Verdict::Release | Verdict::Return => Some(ShareEvent::Released),
        Verdict::Reject | Verdict::RejectFailed => Some(ShareEvent::Rejected),
        Verdict::Gap | Verdict::Renew => None,
    }
}

/// Runs of offsets with one verdict each.
fn verdicts<'a>(one: &'a Said<'_>) -> impl Iterator<Item = (u64, u64, Option<Verdict>)> + 'a {
    let (first, last) = (one.first as u64, one.last as u64);
    let single = one.types.len() == 1;
    let mut at = 0;
    std::iter::from_fn(move || {
        let run = one.types[at..].chunk_by(|kind, next| kind == next).next()?;
        let from = first + at as u64;
        at += run.len();
        Some((from, if single { last } else { from + run.len() as u64 - 1 }, verdict(run[0])))
    })
}

/// The order that Kafka asks for: each batch after the one before, with one type or as many as it has offsets.
fn check(said: &[Said<'_>], renews: bool, state: &Subscription, consumer: ConsumerId) -> Result<(), ErrorCode> {
    let mut before = -1;
    for one in said {
        if one.first < 0 || one.last < one.first || one.first < before {
            return Err(ErrorCode::InvalidRequest);
        }
        let count = (one.last - one.first) as u64 + 1;
        if one.types.len() != 1 && one.types.len() as u64 != count {
            return Err(ErrorCode::InvalidRequest);
        }
        if one.types.iter().any(|kind| verdict(*kind).is_none() || *kind == RENEW && !renews) {
            return Err(ErrorCode::InvalidRequest);
        }
        before = one.last;
    }
    if before >= 0 && before as u64 >= state.end() {
        return Err(ErrorCode::InvalidRequest);
    }
    let mut before = -1;
    for one in said {
        let held = state.check(consumer, one.first as u64, one.last as u64).is_ok();
        if !held || one.first == before {
            return Err(ErrorCode::InvalidRecordState);
        }
        before = one.last;
    }
    Ok(())
}

impl Sayer<'_> {
    /// Does all that is said of one partition, or nothing; `asker` waits until it is durable.
    pub fn say(
        &self,
        topic: Uuid,
        partition: i32,
        said: &[Said<'_>],
        asker: &Arc<Acknowledgement>,
    ) -> Result<(), ErrorCode> {
        let found = self.broker.topic_by_id(TopicId(topic)).ok_or(ErrorCode::UnknownTopicId)?;
        let leave = self.asking.check_topic(AclOperation::Read, &found.name);
        leave.map_err(|code| if code == HIDDEN { ErrorCode::UnknownTopicId } else { code })?;
        let index = super::fetch::index(partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        found.log(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let Some(shared) = self.broker.subscriptions().get(self.group, found.id, index.0) else {
            return Err(ErrorCode::InvalidRecordState);
        };
        let now = broker::steady_ms();
        let mut state = shared.lock();
        let rules = self.broker.sharing(&shared, self.rules).rules;
        self.broker.expire_subscription(&shared, &mut state, &rules);
        check(said, self.renews && self.rules.config.share_renew, &state, self.consumer)?;
        let mut dead = Vec::new();
        for (first, last, verdict) in said.iter().flat_map(verdicts) {
            if let Some(verdict) = verdict {
                match event(verdict) {
                    Some(ShareEvent::Accepted) => self.broker.subscriptions().note_accepted(&shared, last - first + 1),
                    Some(event) => self.broker.subscriptions().note(event, last - first + 1),
                    None => {}
                }
                state.judge(self.consumer, first, last, verdict, now, &rules, &mut dead);
            }
        }
        self.broker.write_subscription(&shared, &mut state, Some(asker));
        // Before others may say something: in the order in which they died.
        self.broker.bury(&shared, dead, &rules);
        drop(state);
        self.broker.wake_subscription(&shared);
        Ok(())
    }
}

/// Waits until what was said is durable.
struct AcknowledgeWait {
    response: ShareAcknowledgeResponse,
}

impl Wait for AcknowledgeWait {
    fn handle_reply(&mut self, _part: u64, reply: Reply, _context: &mut Context<'_>) -> Option<Box<dyn Body>> {
        let Reply::Done(done) = reply else { return None };
        let Acknowledged(durable) = *done.downcast::<Acknowledged>().ok()?;
        let mut response = std::mem::take(&mut self.response);
        if !durable {
            for partition in
                response.responses.iter_mut().flat_map(|topic| &mut topic.partitions).filter(|one| one.error_code == 0)
            {
                partition.error_code = ErrorCode::KafkaStorageError.code();
            }
        }
        Some(Box::new(response))
    }
}

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = ShareAcknowledgeRequest::decode(reader, context.version)?;
    let fail = |code: ErrorCode| {
        Ok(Outcome::answer(ShareAcknowledgeResponse { error_code: code.code(), ..ShareAcknowledgeResponse::default() }))
    };
    let (Some(group), Some(member)) =
        (request.group_id.filter(|id| !id.is_empty()), request.member_id.filter(|id| !id.is_empty()))
    else {
        return fail(ErrorCode::InvalidRequest);
    };
    let asking = context.asking();
    if let Err(code) = asking.check_group(AclOperation::Read, &group) {
        return fail(code);
    }
    if request.share_session_epoch == OPEN {
        return fail(ErrorCode::InvalidShareSessionEpoch);
    }
    let broker = &context.gateway.broker;
    let asker = Asker { group: &group, member: &member, connection: (context.to.shard, context.to.connection) };
    let consumer = match context.gateway.share_sessions.enter(&asker, request.share_session_epoch, broker) {
        Ok(session) => session.lock().consumer,
        Err(code) => return fail(code),
    };
    let rules = broker.share_rules(&group);
    let sayer = Sayer { broker, asking, group: &group, consumer, rules: &rules, renews: request.is_renew_ack };
    let acknowledgement = Acknowledgement::new(context.to);
    let mut responses = Vec::with_capacity(request.topics.len());
    let named =
        |topic: &AcknowledgeTopic, partition: &AcknowledgePartition| (topic.topic_id, partition.partition_index);
    let says = |one: &&AcknowledgePartition| !one.acknowledgement_batches.is_empty();
    let all = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().filter(says).map(move |one| (named(topic, one), std::ptr::from_ref(one)))
    });
    // Of a partition that is named again and again the last word counts, as in Kafka.
    let last: HashMap<(Uuid, i32), *const AcknowledgePartition> = all.collect();
    for topic in &request.topics {
        let counts = |one: &&AcknowledgePartition| std::ptr::eq(last[&named(topic, one)], *one);
        let partitions = topic.partitions.iter().filter(says).filter(counts).map(|partition| {
            let batches = partition.acknowledgement_batches.iter();
            let said: Vec<Said<'_>> = batches
                .map(|one| Said { first: one.first_offset, last: one.last_offset, types: &one.acknowledge_types })
                .collect();
            let outcome = sayer.say(topic.topic_id, partition.partition_index, &said, &acknowledgement);
            let error_code = outcome.err().map_or(0, ErrorCode::code);
            // Kafka leaves it 0, and clients take that for the id of a broker that is the leader now.
            let current_leader = LeaderIdAndEpoch { leader_id: broker.node_id().0, ..LeaderIdAndEpoch::default() };
            PartitionData {
                partition_index: partition.partition_index,
                error_code,
                current_leader,
                ..PartitionData::default()
            }
        });
        responses.push(ShareAcknowledgeTopicResponse {
            topic_id: topic.topic_id,
            partitions: partitions.collect(),
            ..Default::default()
        });
    }
    responses.retain(|topic| !topic.partitions.is_empty());
    if request.share_session_epoch == CLOSE {
        context.gateway.share_sessions.close(&group, &member);
        broker.release_consumers(&group, vec![consumer], context.peer.ip());
    }
    broker.close_acknowledgement(&acknowledgement);
    let acquisition_lock_timeout_ms = rules.rules.lock as i32;
    let response =
        ShareAcknowledgeResponse { acquisition_lock_timeout_ms, responses, ..ShareAcknowledgeResponse::default() };
    Ok(Outcome::Wait(Box::new(AcknowledgeWait { response })))
}
