//! A fetch under quotas: of its client, of topics, and of its group when that is far behind. It gets no more than may be had in a second, or in a tenth of
//! one when it is the group, and nothing at all while more was fetched than is paid for; what it gets is taken from all accounts.

use std::sync::Arc;
use std::time::Duration;

use broker::{Account, Broker, Lag, Limit, QuotaKey, SharedSubscription};
use kafka_wire::Records;
use kafka_wire::fetch::{FetchResponse, FetchableTopicResponse};
use types::TopicId;

use super::Wanted;
use crate::group_of::Fetcher;
use crate::session::Context;

/// Of what a group that is far behind may have in a second it gets so much at once: readers of old records take the disk in short turns, and
/// who is up to date waits for none of them.
const PIECE: Duration = Duration::from_millis(100);

/// What quotas leave to one fetch.
pub(crate) struct Limited {
    /// Bytes.
    pub max_bytes: usize,
    /// More was fetched than is paid for.
    pub gets_nothing: bool,
    /// The account of a group that is far behind.
    pub laggard: Option<Arc<Account>>,
}

/// What the quota of its client leaves to a fetch.
pub(crate) fn of_client(context: &mut Context<'_>) -> Limited {
    let Some(account) = context.throttle.account(QuotaKey::ConsumerByteRate) else {
        return Limited { max_bytes: usize::MAX, gets_nothing: false, laggard: None };
    };
    let (max_bytes, debt) = (account.rate().max(1.0) as usize, account.debt(context.now));
    pause(context, Limit::Client(QuotaKey::ConsumerByteRate), debt);
    Limited { max_bytes, gets_nothing: context.throttle.is_paused(), laggard: None }
}

/// What quotas leave to a fetch of a share group's member.
pub(crate) fn of_share_group(context: &mut Context<'_>, group: &str) -> Limited {
    let mut limited = of_client(context);
    let broker = Arc::clone(&context.gateway.broker);
    let laggards = broker.quotas().laggards();
    if let Some(laggard) = laggards.any().then(|| laggards.of_group(group)).flatten() {
        limited.laggard = laggard.hear_share_group(|| lag_of_share_group(&broker, group), context.now, broker.now_ms());
        hold_back(context, &mut limited);
    }
    limited
}

/// A group that is far behind waits until what it has got is paid for, and gets it in small pieces.
fn hold_back(context: &mut Context<'_>, limited: &mut Limited) {
    if let Some(account) = &limited.laggard {
        let piece = account.rate() * PIECE.as_secs_f64();
        limited.max_bytes = limited.max_bytes.min(piece.max(1.0) as usize);
        pause(context, Limit::Laggard, account.debt(context.now));
    }
}

/// What quotas leave to a fetch of these.
pub(super) fn begin(context: &mut Context<'_>, client_id: &str, wanted: &[Wanted]) -> Limited {
    let mut limited = of_client(context);
    let broker = &context.gateway.broker;
    if broker.quotas().limits_topics() {
        let mut debt = Duration::ZERO;
        for topic in wanted.chunk_by(|one, next| one.name == next.name && one.id == next.id) {
            let quotas = topic_of(&context.gateway.broker, &topic[0].name, TopicId(topic[0].id))
                .and_then(|topic| topic.quotas());
            if let Some(account) = quotas.as_ref().and_then(|quotas| quotas.fetch.as_ref()) {
                limited.max_bytes = limited.max_bytes.min(account.rate().max(1.0) as usize);
                debt = debt.max(account.debt(context.now));
            }
        }
        pause(context, Limit::Topic, debt);
    }
    let user = context.name().unwrap_or_default();
    let laggard =
        context.spoken.laggard(&context.gateway.broker, &Fetcher { client_id, user, peer: context.peer }, context.now);
    if let Some(laggard) = laggard {
        let now_ms = context.gateway.broker.now_ms();
        limited.laggard = laggard.hear(context.to.connection, lag(wanted), context.now, now_ms);
        hold_back(context, &mut limited);
    }
    limited.gets_nothing = context.throttle.is_paused();
    limited
}

/// What was fetched.
pub(super) struct Taken {
    bytes: usize,
    /// Bytes of each topic, where topics have quotas.
    of_topics: Vec<(Arc<broker::Topic>, u64)>,
}

impl Taken {
    pub fn of(broker: &Broker, response: &FetchResponse, bytes: usize) -> Self {
        if bytes == 0 || !broker.quotas().limits_topics() {
            return Self { bytes, of_topics: Vec::new() };
        }
        let one = |topic: &FetchableTopicResponse| {
            let bytes: usize = topic.partitions.iter().map(|data| data.records.as_ref().map_or(0, Records::len)).sum();
            Some((topic_of(broker, &topic.topic, TopicId(topic.topic_id))?, bytes as u64))
        };
        Self { bytes, of_topics: response.responses.iter().filter_map(one).collect() }
    }
}

/// What was fetched is taken from all accounts.
pub(super) fn take(context: &mut Context<'_>, taken: &Taken, laggard: Option<&Account>) {
    if taken.bytes == 0 {
        return;
    }
    context.throttle.take(context.gateway.broker.quotas(), QuotaKey::ConsumerByteRate, taken.bytes as u64, context.now);
    for (topic, bytes) in &taken.of_topics {
        let quotas = topic.quotas();
        if let Some(account) = quotas.as_ref().and_then(|quotas| quotas.fetch.as_ref()) {
            let debt = account.take(*bytes, context.now);
            pause(context, Limit::Topic, debt);
        }
    }
    take_of_laggard(context, laggard, taken.bytes);
}

/// What was fetched is taken from the account of a group that is far behind.
pub(crate) fn take_of_laggard(context: &mut Context<'_>, laggard: Option<&Account>, fetched: usize) {
    if let Some(account) = laggard.filter(|_| fetched > 0) {
        let debt = account.take(fetched as u64, context.now);
        pause(context, Limit::Laggard, debt);
    }
}

fn pause(context: &mut Context<'_>, limit: Limit, debt: Duration) {
    context.throttle.pause(context.gateway.broker.quotas(), limit, debt, context.now);
}

fn topic_of(broker: &Broker, name: &str, id: TopicId) -> Option<Arc<broker::Topic>> {
    if name.is_empty() { broker.topic_by_id(id) } else { broker.topic(name) }
}

/// How far behind the end these are; bytes by the mean size of a log's records.
fn lag(wanted: &[Wanted]) -> Lag {
    let mut lag = Lag::default();
    for (log, offset) in
        wanted.iter().filter_map(|wanted| Some((wanted.log.as_ref()?, u64::try_from(wanted.offset).ok()?)))
    {
        lag = lag.plus(Lag::in_log(log, log.high_watermark().0.saturating_sub(offset.max(log.start().0))));
    }
    lag
}

/// What all subscriptions of a share group have not done yet.
fn lag_of_share_group(broker: &Broker, group: &str) -> Lag {
    let one = |shared: Arc<SharedSubscription>| broker.lag_in(shared.log(), shared.lag());
    broker.subscriptions().of_group(group).into_iter().map(one).fold(Lag::default(), Lag::plus)
}
