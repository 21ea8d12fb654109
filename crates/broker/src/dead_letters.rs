//! Records that no consumer of a shared subscription could do go to the group's dead-letter topic, with headers that say where
//! they come from. Where both are in one journal, the copy and the record that the original is archived lie in one chunk: a crash leaves
//! one of the two. Otherwise the copy is durable first: a crash in between leaves a second copy, never none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use delivery::{Dead, DeadReason, SubscriptionName};
use journal::{AppendError, AppendItem, ColdWant, Log, ReadError, TailRead};
use parking_lot::ReentrantMutexGuard;
use record::{BatchBuilder, BatchError, Compression, Record, open_records, sliced_batches};
use types::{Offset, TopicId};

use crate::groups::now;
use crate::jobs::NOBODY;
use crate::security::AclOperation;
use crate::subscriptions::{ShareEvent, SharedSubscription};
use crate::{Broker, CreateTopic, Setter, Topic};

/// Read at once, about.
const READ_BYTES: usize = 1 << 20;
/// Memory of the records of one read, about.
const OPENED_BYTES: usize = 16 << 20;
/// Copies that are written at once, about.
const COPIES_BYTES: usize = 256 << 10;

/// Why dead records are not in their topic yet; they are tried again after as long as a lock takes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeadLetterError {
    #[error("the group has no dead-letter topic any more")]
    NotWanted,
    #[error("the topic does not exist yet")]
    NoTopic,
    #[error("who has named the topic for dead letters may not write there")]
    Denied,
    #[error("who has named the topic for dead letters may not read the topic that they come from")]
    SourceDenied,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Decode(#[from] BatchError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error("the journal does not take them")]
    NotWritten,
}

/// Held by who copies packed dead records: unpacked they may take a quarter of the memory budget, and their copies as much again, more than
/// once. Who waits for it has read none.
pub(crate) type Turn<'a> = ReentrantMutexGuard<'a, ()>;

/// Dead records that one piece of work has claimed.
struct Claim {
    shared: Arc<SharedSubscription>,
    dead: Vec<Dead>,
}

/// What of a claim is not done with when this goes is released.
struct Released<'a> {
    broker: &'a Broker,
    claim: &'a Claim,
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        let Claim { shared, dead } = self.claim;
        let (rules, mut state) = (self.broker.rules_of(shared), shared.lock());
        if state.has_dying() {
            dead.iter().for_each(|one| state.release_dead(one.first, one.last, now(), &rules));
        }
    }
}

/// Copies on their way to a log of the dead-letter topic.
struct Copies<'a> {
    topic: &'a Topic,
    log: &'a Arc<Log>,
    source: Option<&'a Topic>,
    items: Vec<AppendItem>,
    bytes: usize,
    /// What the items are copies of: first and last offset.
    covered: Vec<(u64, u64)>,
}

impl Copies<'_> {
    /// Of what is dead from `first` to `last` the items have all that is there.
    fn cover(&mut self, first: u64, last: u64) {
        match self.covered.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => self.covered.push((first, last)),
        }
    }
}

impl Broker {
    /// Copies dead records to their topic, on a thread that may wait, and archives them.
    pub(crate) fn send_dead_letters(&self, shared: &Arc<SharedSubscription>, dead: Vec<Dead>) {
        let claim = Claim { shared: Arc::clone(shared), dead };
        let work = Box::new(move |broker: &Arc<Self>| {
            let Claim { shared, dead } = &claim;
            let _released = Released { broker, claim: &claim };
            let warn = |error: DeadLetterError, one: Dead| {
                let SubscriptionName { group, partition, .. } = shared.name();
                tracing::warn!(%error, group = &**group, partition, first = one.first, last = one.last, "dead records wait for their topic");
            };
            if let (Err(error), Some(first)) = (broker.copy_dead_letters(shared, dead, &warn), dead.first()) {
                warn(error, *first);
            }
            Box::new(()) as Box<dyn std::any::Any + Send>
        });
        self.write_letters(work);
    }

    /// Copies what is due together with as few commits as its size allows. What of it cannot be read is told to `warn`, and is not in
    /// the way of the others.
    fn copy_dead_letters(
        self: &Arc<Self>,
        shared: &Arc<SharedSubscription>,
        dead: &[Dead],
        warn: &impl Fn(DeadLetterError, Dead),
    ) -> Result<(), DeadLetterError> {
        let config = self.group_config(&shared.name().group);
        let name = config.share_dead_letter_topic.clone().ok_or(DeadLetterError::NotWanted)?;
        let setter = config.dead_letter_setter();
        let Some(topic) = self.topic(&name) else {
            self.create_dead_letter_topic(name, setter.cloned());
            return Err(DeadLetterError::NoTopic);
        };
        // It need not be the topic that had the name when he named it, and he need not have the rights that he had then.
        if setter.is_some_and(|setter| !self.setter_may_with_topic(setter, AclOperation::Write, &name, Some(&topic))) {
            return Err(DeadLetterError::Denied);
        }
        let logs = topic.logs();
        let log = logs.get(shared.name().partition as usize % logs.len().max(1)).ok_or(DeadLetterError::NoTopic)?;
        let source = self.topic_by_id(TopicId(uuid::Uuid::from_u128(shared.name().topic)));
        // What he cannot read himself he does not get by way of a copy.
        if let (Some(setter), Some(source)) = (setter, source.as_deref())
            && !self.setter_may_with_topic(setter, AclOperation::Read, &source.name, Some(source))
        {
            return Err(DeadLetterError::SourceDenied);
        }
        let mut copies =
            Copies { topic: &topic, log, source: source.as_deref(), items: Vec::new(), bytes: 0, covered: Vec::new() };
        for one in dead {
            // The subscription may have been reset meanwhile.
            let claimed = shared.lock().claimed_dead(one.first, one.last);
            for (first, last) in claimed {
                match self.copy_dead(shared, &mut copies, Dead { first, last, ..*one }) {
                    Ok(()) => {}
                    Err(error @ (DeadLetterError::Append(_) | DeadLetterError::NotWritten)) => return Err(error),
                    Err(error) => warn(error, *one),
                }
            }
        }
        self.commit_copies(shared, &mut copies)
    }

    fn copy_dead(
        &self,
        shared: &Arc<SharedSubscription>,
        copies: &mut Copies<'_>,
        dead: Dead,
    ) -> Result<(), DeadLetterError> {
        let mut from = dead.first.max(shared.log().start().0);
        let mut turn = None;
        while from <= dead.last {
            // With what was read before.
            drop(turn.take());
            let (records, next) = self.read_records(shared, from, dead.last, &mut turn)?;
            for record in &records {
                let item = self.dead_letter(copies, shared.name(), dead, record)?;
                if copies.bytes >= COPIES_BYTES {
                    self.commit_copies(shared, copies)?;
                }
                if !self.journal_of(copies.log.id()).takes(std::slice::from_ref(&item), 0) {
                    self.put_off_too_large(shared, &[(record.offset.0, record.offset.0)]);
                    from = record.offset.0 + 1;
                    continue;
                }
                copies.bytes += item.body_bytes();
                copies.items.push(item);
                copies.cover(from, record.offset.0);
                from = record.offset.0 + 1;
            }
            // Where nothing is there is nothing to be copied.
            let next = next.max(from + u64::from(records.is_empty())).min(dead.last + 1);
            if from < next {
                copies.cover(from, next - 1);
            }
            from = next;
        }
        Ok(())
    }

    /// Makes copies durable, and archives the originals.
    fn commit_copies(&self, shared: &Arc<SharedSubscription>, copies: &mut Copies<'_>) -> Result<(), DeadLetterError> {
        let (mut items, covered) = (std::mem::take(&mut copies.items), std::mem::take(&mut copies.covered));
        copies.bytes = 0;
        let (count, journal) = (items.len() as u64, self.journal_number(copies.log.id()));
        if !self.journals()[journal].takes_copies() {
            return Err(DeadLetterError::NotWritten);
        }
        if journal != self.journal_number(shared.log().id()) && !items.is_empty() {
            // All of them or none: what is refused is copied again as a whole.
            let fits = items.len() > 1 && self.journals()[journal].takes(&items, 0);
            let all = std::mem::take(&mut items);
            self.commit_from_reserve(journal, if fits { vec![AppendItem::Together(all)] } else { all })?;
        }
        if self.dead_letters_are_there(shared, covered, items).is_err() {
            return Err(DeadLetterError::NotWritten);
        }
        self.write_subscription(shared, &mut shared.lock(), None);
        self.subscriptions().note(ShareEvent::DeadLettered, count);
        self.wake_subscription(shared);
        Ok(())
    }

    /// Records from `from` to `last`, some of them, and the offset after what was looked at. What compaction or retention has
    /// removed is not there. `turn`: what packed records are read under, to be kept as long as they are.
    pub(crate) fn read_records<'a>(
        &'a self,
        shared: &SharedSubscription,
        from: u64,
        last: u64,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<(Vec<Record>, u64), DeadLetterError> {
        self.read_some(shared.log(), from, last, READ_BYTES, Some(turn))
    }

    /// The same of any log, about `max_bytes` of it. Records share no memory with caches.
    pub(crate) fn read_log(
        &self,
        log: &Arc<Log>,
        from: u64,
        last: u64,
        max_bytes: usize,
    ) -> Result<(Vec<Record>, u64), DeadLetterError> {
        self.read_some(log, from, last, max_bytes, None)
    }

    fn read_some<'a>(
        &'a self,
        log: &Arc<Log>,
        from: u64,
        last: u64,
        max_bytes: usize,
        mut turn: Option<&mut Option<Turn<'a>>>,
    ) -> Result<(Vec<Record>, u64), DeadLetterError> {
        let until = Offset(last + 1).min(log.high_watermark());
        let start = log.start();
        if from < start.0 && start < until {
            // What is behind the start is there.
            return Ok((Vec::new(), start.0));
        }
        let journal = self.journal_of(log.id());
        let (slices, next) = match journal.read_tail(log, Offset(from)..until, max_bytes, true) {
            TailRead::Data { slices, next, .. } => (slices, next),
            TailRead::Cold => {
                let want = ColdWant { log: Arc::clone(log), from: Offset(from), until, max_bytes };
                let data = journal.read_cold(&[want], max_bytes).pop().transpose()?;
                data.map_or_else(|| (Default::default(), until), |data| (data.slices, data.next))
            }
            // Trimmed meanwhile: the next call finds the start.
            TailRead::OutOfRange if from < log.start().0 => return Ok((Vec::new(), log.start().0.min(last + 1))),
            TailRead::Empty | TailRead::OutOfRange => return Ok((Vec::new(), last + 1)),
        };
        let slices = [bytes::Bytes::from(slices.concat())];
        let (mut found, mut room) = (Vec::new(), OPENED_BYTES);
        for batch in
            sliced_batches(&slices)?.iter().filter(|batch| !batch.header.control() && batch.header.next().0 > from)
        {
            if room == 0 {
                return Ok((found, batch.header.base().0));
            }
            if let Some(turn) = turn.as_deref_mut().filter(|_| batch.header.compression() != Some(Compression::None)) {
                turn.get_or_insert_with(|| self.unpacked_letters.lock());
            }
            let opened = open_records(
                &slices,
                batch,
                Offset(from),
                self.unpacking().limits_of_taken(room),
                &bytes::Bytes::from,
                |record| {
                    if record.offset.0 <= last {
                        found.push(record);
                    }
                },
            );
            match opened {
                Ok(opened) => {
                    room = room.saturating_sub(opened.memory);
                    if let Some(next) = opened.next {
                        return Ok((found, next.0));
                    }
                }
                Err(BatchError::TooLarge { .. }) => {
                    self.unpacking().counts().passed_over.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(log = %log.id(), offset = batch.header.base().0, "dead records of a batch that unpacks to too much are not copied");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((found, next.0))
    }

    fn dead_letter(
        &self,
        copies: &Copies<'_>,
        name: &SubscriptionName,
        dead: Dead,
        record: &Record,
    ) -> Result<AppendItem, DeadLetterError> {
        let number = |value: u64| value.to_string().into_bytes();
        let origin =
            copies.source.map_or_else(|| uuid::Uuid::from_u128(name.topic).to_string(), |topic| topic.name.clone());
        let reason = match dead.reason {
            DeadReason::Rejected => "rejected",
            DeadReason::DeliveryLimit => "delivered too often",
            DeadReason::Expired => "expired",
            DeadReason::MaxLength => "no room",
        };
        let told: [(&[u8], Vec<u8>); 6] = [
            (b"__dlq.errors.topic", origin.into_bytes()),
            (b"__dlq.errors.partition", number(u64::from(name.partition))),
            (b"__dlq.errors.offset", number(record.offset.0)),
            (b"__dlq.errors.group", name.group.as_bytes().to_vec()),
            (b"__dlq.errors.delivery.count", number(u64::from(dead.count))),
            (b"__dlq.errors.message", reason.as_bytes().to_vec()),
        ];
        let own = record.headers.iter().map(|(name, value)| (&name[..], value.as_deref()));
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            own.chain(told.iter().map(|(name, value)| (*name, Some(&value[..])))).collect();
        let batch = BatchBuilder::default().record_with_headers(
            record.timestamp,
            record.key.as_deref(),
            record.value.as_deref(),
            &headers,
        );
        // The broker vouches for messages where they were published, not for copies that somebody has sent elsewhere, maybe to another virtual host's
        // queue.
        let mut bytes = batch.build();
        if copies.topic.config().append_time {
            let mut stamped = bytes.to_vec();
            record::stamp_append_time(&mut stamped, self.now_ms());
            bytes = stamped.into();
        }
        let header = record::BatchHeader::parse(&bytes)?;
        Ok(AppendItem::Batch { log: Arc::clone(copies.log), bytes, header, gate: None })
    }

    /// Where topics are made by being named, this one is as well, if who has named it may do so; the records follow when their lock runs out.
    fn create_dead_letter_topic(&self, name: String, setter: Option<Setter>) {
        if !self.live_settings().bool("auto.create.topics.enable") {
            return;
        }
        let work = Box::new(move |broker: &Arc<Self>| {
            let may = |operation| {
                setter.as_ref().is_none_or(|setter| broker.setter_may_with_topic(setter, operation, &name, None))
            };
            if !(may(AclOperation::Write) && may(AclOperation::Create)) {
                tracing::warn!(topic = name, "dead-letter topic is not created: who has named it may not do so");
            } else if broker.topic(&name).is_none() {
                let wish =
                    CreateTopic { name: name.clone(), partitions: -1, replication: -1, overrides: Default::default() };
                if let Some(Err(error)) = broker.create_topics(vec![wish]).pop() {
                    tracing::warn!(%error, topic = name, "dead-letter topic is not created");
                }
            }
            Box::new(()) as Box<dyn std::any::Any + Send>
        });
        let _ = self.control(NOBODY, crate::jobs::JobOwner::BROKER, work);
    }
}
