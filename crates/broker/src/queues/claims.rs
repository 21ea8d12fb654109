//! Which topic is which queue's, where records of earlier releases leave that open: their rule for names gave some queues of two virtual hosts one
//! name (`names.rs`). The second to be declared was attached to the first one's own topic; or, where both were asked for at once, there were two
//! topics of one name. And a queue went before the topic that it is attached to, where its deletion could not be written.
//!
//! - A queue that owns a topic keeps it, with all that is in it. One that was attached to it gets a new one of its own, empty.
//! - Where a topic is nobody's own and has no record, it was that of the queue that is attached to it.
//! - A name is that of the topic that has a record under it; otherwise that of the queue that the present rule gives it, then of any. Another
//!   queue gets its name by the present rule, or none if that is taken: then Kafka clients do not see it.

use hashbrown::{HashMap, HashSet};
use journal::AppendItem;
use routing::Name;
use types::{LogId, TopicId};
use uuid::Uuid;

use super::names::{self, had_another, old_topic_name};
use super::record::QueueRecord;
use crate::catalog::TopicRecord;

/// A queue's record: of a virtual host, and its name there.
pub(super) type Claim = (String, Name, QueueRecord);

/// What a queue's own topic is called, unless the topic has a record, which says so. `None`: it is not shown.
pub(super) fn topic_name(vhost: &str, queue: &[u8], record: &QueueRecord) -> Option<String> {
    match record {
        QueueRecord { hidden: true, .. } => None,
        QueueRecord { own_name: true, .. } => names::topic_name(vhost, queue),
        _ => old_topic_name(vhost, queue),
    }
}

/// Is it called as another queue may be?
fn is_open((vhost, name, record): &Claim) -> bool {
    !record.own_name && had_another(vhost, name)
}

/// Makes the records such that each queue has its own topic under a name of its own; what of them is to be written. `topics` are those that have a
/// record, by name.
pub(super) fn settle(claims: &mut [Claim], topics: &[(String, TopicRecord)], next_log: &mut u64) -> Vec<AppendItem> {
    let any_is_open = claims.iter().any(is_open);
    let mut changed = give_topics(claims, topics, next_log);
    if any_is_open {
        give_names(claims, topics, &mut changed);
    }
    let record = |claim: usize| {
        let (vhost, name, record) = &claims[claim];
        AppendItem::State { key: QueueRecord::key(vhost, name), value: Some(record.encode()) }
    };
    changed.into_iter().map(record).collect()
}

/// In which order they have a say: owners, then those of whose names there is no doubt.
fn in_order(claims: &[Claim]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|at| (claims[*at].2.attached, is_open(&claims[*at])));
    order
}

/// Those that got a new one.
fn give_topics(claims: &mut [Claim], topics: &[(String, TopicRecord)], next_log: &mut u64) -> Vec<usize> {
    let recorded: HashSet<TopicId> = topics.iter().map(|(_, record)| record.id).collect();
    let (mut holders, mut changed) = (HashMap::<TopicId, usize>::new(), Vec::new());
    for at in in_order(claims) {
        let topic = claims[at].2.topic;
        if let Some(holder) = holders.get(&topic) {
            let (of, other) = (&claims[*holder].0, &claims[*holder].1);
            let (vhost, queue) = (&claims[at].0, &claims[at].1);
            tracing::warn!(vhost, %queue, of, %other, "two queues of an earlier release had one topic: it stays with the other, with all messages, and this one gets a new one");
            let record = &mut claims[at].2;
            (record.topic, record.log, record.attached, record.own_name) =
                (TopicId(Uuid::new_v4()), LogId(*next_log), false, true);
            *next_log += 1;
            changed.push(at);
            continue;
        }
        holders.insert(topic, at);
        let (vhost, queue, record) = &mut claims[at];
        if record.attached && !recorded.contains(&topic) {
            tracing::warn!(vhost, %queue, "queue has a topic of its own that was taken for another's");
            record.attached = false;
        }
    }
    changed
}

/// Adds those that got another one.
fn give_names(claims: &mut [Claim], topics: &[(String, TopicRecord)], changed: &mut Vec<usize>) {
    let recorded: HashSet<TopicId> = topics.iter().map(|(_, record)| record.id).collect();
    let mut holders: HashMap<String, Option<usize>> = topics.iter().map(|(name, _)| (name.clone(), None)).collect();
    let new: HashSet<usize> = changed.iter().copied().collect();
    let mut order = in_order(claims);
    order.sort_by_key(|at| new.contains(at));
    for at in order {
        let (vhost, queue, record) = &claims[at];
        if record.attached || recorded.contains(&record.topic) {
            continue;
        }
        let Some(wanted) = topic_name(vhost, queue, record) else { continue };
        let Some(holder) = holders.get(&wanted).copied() else {
            holders.insert(wanted, Some(at));
            continue;
        };
        let other = holder.map(|holder| format!("queue '{}' of virtual host '{}'", claims[holder].1, claims[holder].0));
        let other = other.as_deref().unwrap_or("a topic with settings of its own");
        let another = names::topic_name(vhost, queue).filter(|name| !holders.contains_key(name));
        let shown = another.as_deref().unwrap_or("none");
        tracing::warn!(vhost, %queue, topic = wanted, other, shown, "two queues of an earlier release had one name as topics: the other one keeps it, and this one gets another");
        let record = &mut claims[at].2;
        (record.hidden, record.own_name) = (another.is_none(), true);
        if let Some(name) = another {
            holders.insert(name, Some(at));
        }
        if !new.contains(&at) {
            changed.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use routing::Arguments;

    use super::*;

    fn claim(vhost: &str, queue: &str, topic: u128, attached: bool) -> Claim {
        let (topic, log, arguments) = (TopicId(Uuid::from_u128(topic)), LogId(topic as u64), Arguments::default());
        let record =
            QueueRecord { topic, log, auto_delete: false, hidden: false, attached, own_name: false, arguments };
        (vhost.to_owned(), Name::new(queue.as_bytes()).expect("a short name"), record)
    }

    fn topic(name: &str, id: u128) -> (String, TopicRecord) {
        (
            name.to_owned(),
            TopicRecord {
                id: TopicId(Uuid::from_u128(id)),
                logs: vec![LogId(id as u64)],
                overrides: Default::default(),
            },
        )
    }

    /// Log and name of each, in the order of the claims, whatever order they are found in; new logs begin with 100. `*`: the record is written.
    fn check(claims: &[Claim], topics: &[(String, TopicRecord)], wanted: &[(u64, Option<&str>)], written: usize) {
        for turn in 0..claims.len() {
            let mut turned = claims.to_vec();
            turned.rotate_left(turn);
            let mut next_log = 100;
            let items = settle(&mut turned, topics, &mut next_log);
            assert_eq!(items.len(), written, "in turn {turn}: {turned:?}");
            turned.rotate_right(turn);
            for ((vhost, queue, record), wanted) in turned.iter().zip(wanted) {
                let named = topics.iter().find(|(_, topic)| topic.id == record.topic).map(|(name, _)| name.clone());
                let name = named.or_else(|| topic_name(vhost, queue, record));
                assert_eq!((record.log.0, name.as_deref()), *wanted, "{queue} of {vhost}, in turn {turn}");
            }
            // The next start finds nothing to be written.
            assert_eq!(settle(&mut turned, topics, &mut next_log).len(), 0, "again, in turn {turn}: {turned:?}");
            assert_eq!(turned.iter().map(|claim| claim.2.topic).collect::<HashSet<_>>().len(), turned.len());
        }
    }

    #[test]
    fn queues_of_one_topic_are_told_apart() {
        let own = |vhost, queue, topic| claim(vhost, queue, topic, false);
        let attached = |vhost, queue, topic| claim(vhost, queue, topic, true);
        check(&[own("/", "a b", 1), attached("a", "20b", 1)], &[], &[(1, Some("a~20b")), (100, Some("a~~320b"))], 1);
        check(&[attached("/", "a b", 1), own("a", "20b", 1)], &[], &[(100, None), (1, Some("a~20b"))], 1);
        // Settings were changed: the topic has a record.
        let record = [topic("a~20b", 1)];
        check(
            &[own("/", "a b", 1), attached("a", "20b", 1)],
            &record,
            &[(1, Some("a~20b")), (100, Some("a~~320b"))],
            1,
        );
        check(&[attached("/", "a b", 1), own("a", "20b", 1)], &record, &[(100, None), (1, Some("a~20b"))], 1);
        // Both by themselves.
        check(&[own("/", "a b", 1), own("a", "20b", 2)], &[], &[(1, Some("a~20b")), (2, Some("a~~320b"))], 1);
        check(&[own("/", "a b", 1), own("a", "20b", 2)], &[topic("a~20b", 2)], &[(1, None), (2, Some("a~20b"))], 1);
        // The owner is gone.
        check(
            &[attached("/", "a b", 1), attached("a", "20b", 1)],
            &[],
            &[(1, Some("a~20b")), (100, Some("a~~320b"))],
            1,
        );
        check(&[attached("a", "20b", 1)], &[], &[(1, Some("a~20b"))], 0);
    }

    #[test]
    fn what_no_other_queue_can_be_called_stays_as_it_was() {
        let both = [
            claim("/", "a b", 1, false),
            claim("/", "plain", 2, true),
            claim("a", "2", 3, false),
            claim("/", "of its own", 4, true),
        ];
        check(
            &both,
            &[topic("plain", 2)],
            &[(1, Some("a~20b")), (2, Some("plain")), (3, Some("a~2")), (4, Some("of~20its~20own"))],
            0,
        );
        check(&[claim("a", "20b", 1, false), claim("/", "b", 2, false)], &[], &[(1, Some("a~20b")), (2, Some("b"))], 0);
    }

    #[test]
    fn three_queues_had_one_name() {
        let own = claim("a", "20 b", 1, false);
        let others = [claim("/", "a  b", 1, true), claim("a ", "20b", 1, true)];
        let wanted = [(1, Some("a~20~20b")), (100, None), (101, Some("a~20~~320b"))];
        check(&[own, others[0].clone(), others[1].clone()], &[], &wanted, 2);
    }
}
