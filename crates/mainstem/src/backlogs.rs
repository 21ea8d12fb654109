//! How far groups are behind, at `/metrics`. There may be a million groups and queues: those are named that are furthest behind, as many as the
//! setting `mainstem.metrics.series` says, and the others are counted. All of them are shown by `/v1/groups`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use broker::{Broker, GroupLag};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use types::TopicId;

/// The setting.
const SERIES: &str = "mainstem.metrics.series";

/// Label of a group's backlog.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub struct Backlog {
    group: String,
    topic: String,
}

/// Label of what is not named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfMetric {
    metric: &'static str,
}

/// Gauges; cheap to clone.
#[derive(Clone, Default)]
pub struct Backlogs {
    pub behind: Family<Backlog, Gauge>,
    /// Of partitions without an offset.
    pub unknown: Family<Backlog, Gauge>,
    pub in_flight: Family<Backlog, Gauge>,
    pub omitted: Family<OfMetric, Gauge>,
}

/// The largest of many values.
struct Largest {
    most: usize,
    kept: BinaryHeap<Reverse<(i64, Backlog)>>,
    omitted: i64,
}

impl Largest {
    fn new(most: usize) -> Self {
        Self { most, kept: BinaryHeap::new(), omitted: 0 }
    }

    /// Keeps a value if it is among the largest so far; only then a name is made. There may be none by now.
    fn offer(&mut self, value: i64, name: impl FnOnce() -> Option<Backlog>) {
        let full = self.kept.len() >= self.most;
        if full && self.kept.peek().is_none_or(|Reverse((least, _))| value <= *least) {
            self.omitted += 1;
            return;
        }
        let Some(name) = name() else { return };
        if full {
            self.omitted += 1;
            self.kept.pop();
        }
        self.kept.push(Reverse((value, name)));
    }

    /// Shows them; how many there are beside them.
    fn show(self, family: &Family<Backlog, Gauge>) -> i64 {
        family.clear();
        for Reverse((value, name)) in self.kept {
            family.get_or_create(&name).set(value);
        }
        self.omitted
    }
}

impl Backlogs {
    /// Looks everything up; messages that are in no state, or in two.
    pub fn refresh(&self, broker: &Broker) -> i64 {
        let most = broker.settings().int(SERIES).max(0) as usize;
        let (mut behind, mut unknown, mut in_flight) = (Largest::new(most), Largest::new(most), Largest::new(most));
        offer_committed(broker, &mut behind, &mut unknown);
        let imbalance = offer_shared(broker, &mut behind, &mut in_flight);
        let omitted = |metric, count| self.omitted.get_or_create(&OfMetric { metric }).set(count);
        omitted("group_backlog_records", behind.show(&self.behind));
        omitted("group_without_offset_records", unknown.show(&self.unknown));
        omitted("share_in_flight_records", in_flight.show(&self.in_flight));
        imbalance
    }
}

/// Backlogs of groups that commit offsets.
fn offer_committed(broker: &Broker, behind: &mut Largest, unknown: &mut Largest) {
    for line in broker.groups().list() {
        // Those of share groups come with their subscriptions.
        if line.kind == "share" {
            continue;
        }
        // By topics.
        for of_topic in broker.group_progress(&line.group).chunk_by(|one, next| one.topic == next.topic) {
            let lag = GroupLag::of(of_topic);
            let name = || Some(Backlog { group: line.group.clone(), topic: of_topic.first()?.topic.clone() });
            if of_topic.iter().any(|one| one.committed.is_some()) {
                behind.offer(i64::try_from(lag.records).unwrap_or(i64::MAX), name);
            }
            if lag.partitions_unknown > 0 {
                unknown.offer(i64::try_from(lag.records_unknown).unwrap_or(i64::MAX), name);
            }
        }
    }
}

/// Backlogs of share groups and queues, and what their members have.
fn offer_shared(broker: &Broker, behind: &mut Largest, in_flight: &mut Largest) -> i64 {
    let mut all = broker.subscriptions().all();
    all.sort_by(|one, other| (one.name().topic, &one.name().group).cmp(&(other.name().topic, &other.name().group)));
    let mut imbalance = 0;
    for of_topic in
        all.chunk_by(|one, next| one.name().topic == next.name().topic && one.name().group == next.name().group)
    {
        let (mut records, mut had) = (0, 0);
        for shared in of_topic {
            records += shared.lag() as i64;
            let state = shared.lock();
            imbalance += state.imbalance() as i64;
            had += state.in_flight() as i64;
        }
        let name = || {
            let name = of_topic.first()?.name();
            let topic = broker.topic_by_id(TopicId(uuid::Uuid::from_u128(name.topic)))?;
            Some(Backlog { group: name.group.to_string(), topic: topic.name.clone() })
        };
        behind.offer(records, name);
        in_flight.offer(had, name);
    }
    imbalance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_named_and_the_others_counted() {
        let mut largest = Largest::new(3);
        let made = std::cell::Cell::new(0);
        let mut offer = |value: i64| {
            largest.offer(value, || {
                made.set(made.get() + 1);
                Some(Backlog { group: value.to_string(), topic: "t".to_owned() })
            });
        };
        [9, 1, 7, 8, 8].into_iter().for_each(&mut offer);
        (0..1000).for_each(|_| offer(1));
        assert_eq!(made.get(), 5, "no name is made of what is not shown");
        let mut values: Vec<i64> = largest.kept.iter().map(|Reverse((value, _))| *value).collect();
        values.sort_unstable();
        assert_eq!((values, largest.omitted), (vec![8, 8, 9], 1002));
        let mut none = Largest::new(0);
        none.offer(5, || panic!("nothing is named"));
        assert_eq!(none.omitted, 1);
    }
}
