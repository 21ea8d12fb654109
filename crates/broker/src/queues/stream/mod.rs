//! Streams: queues that are read without being emptied. Any number of consumers read the same logs, each from where it wants; what they
//! acknowledge is credit and nothing else, and only retention takes records away. A stream has no subscription, and nothing of its
//! consumers is durable.
//!
//! Each consumer is a [`Reader`] with a lock of its own, which works on the shard of its connection: when one of its logs has more, when
//! credit came, when what was on its way has been sent, when history that it asked for is there.

mod arguments;
mod cursor;
mod reader;
mod start;

use std::sync::Arc;

use delivery::{ChannelId, ConsumerId};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use types::{LogId, ShardId};

pub use arguments::age_ms;
pub(super) use arguments::{StreamArguments, shown_age};
pub use reader::StreamRead;
pub use start::{StreamFilter, StreamReading, StreamStart};

use super::consumers::{ConsumeError, Consuming, Gone, GoneReason, Settlement};
use super::gaps::SearchedLog;
use super::queue::{Counts, Queue};
use crate::catalog::weight_of_settings;
use crate::mailbox::Reply;
use crate::quotas::Lag;
use crate::{Broker, Topic};
use reader::Reader;

/// What cannot be read, or not be asked for now, is tried again after this many ms.
const RETRY_MS: u64 = 1000;

/// The consumers of a stream.
#[derive(Default)]
pub(super) struct Stream {
    readers: RwLock<Vec<Arc<Reader>>>,
    /// When the thread `queues` has them look again, steady ms.
    due: Mutex<Option<u64>>,
    /// What of its logs is no message.
    searched: Mutex<HashMap<LogId, SearchedLog>>,
}

impl Stream {
    fn select(&self, wanted: impl Fn(&Reader) -> bool) -> Vec<Arc<Reader>> {
        self.readers.read().iter().filter(|reader| wanted(reader)).cloned().collect()
    }

    /// A consumer has gone.
    pub fn cancel(&self, consumer: ConsumerId) {
        self.remove(|reader| reader.id() == consumer);
    }

    /// A channel has gone with all its consumers.
    pub fn leave(&self, channel: ChannelId) {
        self.remove(|reader| reader.channel().id() == channel);
    }

    fn remove(&self, gone: impl Fn(&Reader) -> bool) -> Vec<Arc<Reader>> {
        let ended: Vec<_> = self.readers.write().extract_if(.., |reader| gone(reader)).collect();
        ended.iter().for_each(|reader| reader.end());
        ended
    }

    /// How far a consumer is behind.
    pub fn lag_of(&self, consumer: ConsumerId) -> Lag {
        self.select(|reader| reader.id() == consumer).first().map_or(Lag::default(), |reader| reader.lag())
    }

    /// Looks at what is known of the messages of a log.
    pub fn with_log<T>(&self, log: LogId, look: impl FnOnce(&mut SearchedLog) -> T) -> T {
        look(self.searched.lock().entry(log).or_default())
    }

    /// The stream comes to life: what its logs hold by now is not published to it.
    pub fn begin(&self, topic: &Topic) {
        let logs = topic.logs();
        let mut searched = self.searched.lock();
        for log in logs.iter() {
            searched.entry(log.id()).or_insert_with(|| SearchedLog::new(log.end().0));
        }
    }
}

impl Broker {
    /// The messages between start and end of all logs are ready for everybody.
    pub(super) fn stream_counts(self: &Arc<Self>, queue: &Arc<Queue>, stream: &Stream) -> Counts {
        let ready = |log: &Arc<journal::Log>| {
            stream.with_log(log.id(), |searched| {
                self.search_stream(queue, log, searched);
                searched.messages(log)
            })
        };
        let ready = queue.topic().logs().iter().map(ready).sum();
        let readers = stream.readers.read();
        let unacknowledged = readers.iter().map(|reader| reader.unsettled()).sum();
        Counts { ready, unacknowledged, dying: 0, consumers: readers.len() }
    }

    /// Somebody reads a stream from now on.
    ///
    /// # Errors
    /// `Gone`; `Partitioned`: an offset names one place, and there are several logs.
    pub fn read_stream(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        wish: Consuming,
        reading: StreamReading,
    ) -> Result<ConsumerId, ConsumeError> {
        let Some(stream) = &queue.stream else { return Err(ConsumeError::Gone) };
        let logs = queue.topic().logs();
        if logs.len() > 1 && matches!(reading.start, StreamStart::Offset(_)) {
            return Err(ConsumeError::Partitioned(logs.len()));
        }
        let reader = Reader::new(self.subscriptions().new_consumer(), wish, reading, &logs);
        {
            let mut readers = stream.readers.write();
            if queue.is_dropped() {
                return Err(ConsumeError::Gone);
            }
            readers.push(Arc::clone(&reader));
        }
        reader.run(self, queue);
        Ok(reader.id())
    }

    /// What a reader asked for is there.
    pub fn stream_read(self: &Arc<Self>, read: StreamRead) {
        let (queue, reader) = read.finish(self);
        reader.run(self, &queue);
    }

    /// The logs of a stream have more to read, for readers of this shard.
    pub(super) fn run_stream(self: &Arc<Self>, queue: &Arc<Queue>, stream: &Stream, shard: ShardId) {
        for reader in stream.select(|reader| reader.shard() == shard) {
            reader.run(self, queue);
        }
    }

    /// A channel takes more.
    pub(super) fn resume_stream(self: &Arc<Self>, queue: &Arc<Queue>, stream: &Stream, channel: ChannelId) {
        for reader in stream.select(|reader| reader.channel().id() == channel) {
            reader.run(self, queue);
        }
    }

    /// Whatever is said of messages, their reader gets as many more.
    pub(super) fn settle_stream(self: &Arc<Self>, queue: &Arc<Queue>, stream: &Stream, said: &[Settlement]) {
        for runs in said.chunk_by(|one, next| one.consumer == next.consumer) {
            let count = runs.iter().map(|run| run.last - run.first + 1).sum();
            for reader in stream.select(|reader| reader.id() == runs[0].consumer) {
                reader.add_credit(count);
                reader.run(self, queue);
            }
        }
    }

    /// The stream is deleted, and its consumers hear of it.
    pub(super) fn end_stream(&self, queue: &Queue, stream: &Stream) {
        self.ticker.set_due(queue.id, stream.due.lock().take(), None);
        for reader in stream.remove(|_| true) {
            let gone = Gone { consumer: reader.id(), reason: GoneReason::QueueDeleted };
            self.reply(reader.to(), Reply::Done(Box::new(gone)));
        }
    }

    /// The policies of a stream are others: its own topic keeps what they say. One that was there before keeps its settings.
    pub(super) fn limit_stream(&self, queue: &Queue, limits: &StreamArguments) {
        if queue.is_stream() && !queue.is_attached() {
            let mut overrides = queue.topic().config().overrides.clone();
            let weighed = weight_of_settings(&overrides);
            overrides.extend(limits.overrides());
            self.catalog.configured(weighed, weight_of_settings(&overrides));
            queue.topic().set_config(self.topic_config(overrides, self.durability()));
            self.journals().iter().for_each(|journal| journal.check_retention());
        }
    }

    /// Something could not be read: all readers look again in a while.
    fn retry_stream(&self, queue: &Queue) {
        let Some(stream) = &queue.stream else { return };
        let mut due = stream.due.lock();
        if due.is_none() {
            let at = crate::groups::now() + RETRY_MS;
            self.ticker.set_due(queue.id, None, Some(at));
            *due = Some(at);
        }
    }

    /// The time for another try has come. On the thread `queues`.
    pub(super) fn look_after_stream(self: &Arc<Self>, queue: &Arc<Queue>, stream: &Stream) {
        *stream.due.lock() = None;
        for reader in stream.select(|_| true) {
            reader.retry();
            reader.run(self, queue);
        }
    }
}
