//! Which messages which subscription wants, when some of them want a part only.
//!
//! Messages are of as many classes as `filterSelectivity` says (0.1: ten), by turns, and carry their class as key. The first subscriptions
//! want everything; the last `filterSubscriptions` want one class each, of the first `filterTopics` topics.

use crate::workload::Workload;

/// The lower bits of a message's number, which its producer counts.
const OWN_BITS: u64 = (1 << 48) - 1;

/// What each subscription of a workload wants.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    subscriptions: u64,
    filtered: u64,
    classes: u64,
    topics: u64,
    filter_topics: u64,
}

impl Wants {
    /// Of this workload.
    pub fn new(workload: &Workload) -> Self {
        let subscriptions =
            if workload.consumer_per_subscription == 0 { 0 } else { u64::from(workload.subscriptions_per_topic) };
        let topics = u64::from(workload.topics);
        let filter_topics = match u64::from(workload.filter_topics) {
            0 => topics,
            some => some,
        };
        let classes = (1.0 / workload.filter_selectivity.max(1e-6)).round() as u64;
        Self {
            subscriptions,
            filtered: u64::from(workload.filter_subscriptions).min(subscriptions),
            classes,
            topics,
            filter_topics,
        }
    }

    /// Nobody wants a part only.
    pub fn are_whole(&self) -> bool {
        self.filtered == 0
    }

    /// The class of a message by its number; `None` when nobody asks.
    pub fn class(&self, number: u64) -> Option<u64> {
        (!self.are_whole()).then_some((number & OWN_BITS) % self.classes)
    }

    /// The class that a subscription wants; `None`: all messages.
    pub fn wanted(&self, subscription: usize) -> Option<u64> {
        let own = (subscription as u64).checked_sub(self.subscriptions - self.filtered)?;
        Some(own % self.classes)
    }

    /// Topics that a subscription reads: those below this number.
    pub fn topics(&self, subscription: usize) -> usize {
        let topics = if self.wanted(subscription).is_some() { self.filter_topics } else { self.topics };
        topics as usize
    }

    /// How many subscriptions want this message of this topic.
    pub fn readers(&self, topic: usize, number: u64) -> u64 {
        let whole = self.subscriptions - self.filtered;
        let Some(class) = self.class(number).filter(|_| (topic as u64) < self.filter_topics) else { return whole };
        let more = u64::from(class < self.filtered % self.classes);
        whole + self.filtered / self.classes + more
    }

    /// How many subscriptions want a message, on average.
    pub fn readers_mean(&self) -> f64 {
        let part = self.filter_topics as f64 / self.topics as f64 / self.classes as f64;
        (self.subscriptions - self.filtered) as f64 + self.filtered as f64 * part
    }
}

/// The name of a class, as messages carry it.
pub fn class_name(class: u64) -> String {
    format!("class-{class}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_has_as_many_readers_as_subscriptions_want_it() {
        for filtered in [0, 1, 5, 23] {
            let workload = Workload {
                topics: 4,
                filter_topics: 3,
                subscriptions_per_topic: 1 + filtered,
                filter_subscriptions: filtered,
                filter_selectivity: 0.1,
                ..Workload::default()
            };
            let wants = Wants::new(&workload);
            let mut sum = 0;
            for (topic, number) in (0..4).flat_map(|topic| (0..10).map(move |number| (topic, 7 << 48 | number))) {
                let wanted = |subscription: &usize| {
                    let class = wants.wanted(*subscription);
                    topic < wants.topics(*subscription) && class.is_none_or(|class| Some(class) == wants.class(number))
                };
                let counted = (0..1 + filtered as usize).filter(wanted).count() as u64;
                assert_eq!(wants.readers(topic, number), counted, "{filtered} with a filter, topic {topic}, {number}");
                sum += counted;
            }
            assert!((wants.readers_mean() - sum as f64 / 40.0).abs() < 1e-9);
        }
    }
}
