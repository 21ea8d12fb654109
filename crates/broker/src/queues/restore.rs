//! Exchanges, bindings and queues as they are found in the catalog at the start.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hashbrown::HashSet;
use journal::AppendItem;
use routing::{Declaration, Destination, Name};
use types::{LogId, PartitionIndex, TopicId};

use super::admin::{Life, QueueDeclaration, queue_overrides};
use super::delays;
use super::arguments::QueueArguments;
use super::parameters;
use super::topic_name;
use super::record::{self, BindingRecord, ExchangeRecord, Found, QueueRecord};
use crate::Broker;
use crate::catalog::TopicRecord;

/// What was found, by virtual host.
#[derive(Default)]
pub(crate) struct FoundQueues {
    exchanges: Vec<(String, Name, ExchangeRecord)>,
    queues: Vec<(String, Name, QueueRecord)>,
    bindings: Vec<(u64, String, BindingRecord)>,
    parameters: Vec<parameters::Found>,
    delays: delays::Found,
}

impl FoundQueues {
    /// Takes a state record.
    pub fn take(&mut self, key: &[u8], value: &[u8]) {
        if parameters::is_key(key) {
            match parameters::decode(key, value) {
                Some(found) => self.parameters.push(found),
                None => tracing::warn!(key = %key.escape_ascii(), "record of a policy or parameter that is not readable ignored"),
            }
            return;
        }
        if key.first() == Some(&delays::DELAYS_KEY) {
            return self.delays.take(key, value);
        }
        match record::decode(key, value) {
            Some((vhost, Found::Exchange(name, record))) => self.exchanges.push((vhost, name, record)),
            Some((vhost, Found::Queue(name, record))) => self.queues.push((vhost, name, record)),
            Some((vhost, Found::Binding(record, number))) => self.bindings.push((number, vhost, record)),
            None => tracing::warn!(key = %key.escape_ascii(), "record of an exchange, queue or binding that is not readable ignored"),
        }
    }

    /// What people call the logs that belong to no topic of Kafka clients.
    pub fn log_names(&self) -> Vec<(LogId, String)> {
        let queues = self.queues.iter().map(|(_, name, record)| (record.log, format!("queue {}", String::from_utf8_lossy(name))));
        queues.chain(self.delays.logs().map(|log| (log, "delayed messages of an exchange".to_owned()))).collect()
    }

    /// Knows the topics that have a record. A queue goes before the topic that it is attached to: where that is not there, the topic was the
    /// queue's own, of a deletion that an older release could not write. A topic that is another queue's own stays that one's.
    pub fn settle(&mut self, topics: &HashSet<TopicId>) {
        let mut owned: HashSet<TopicId> = self.queues.iter().filter(|(.., record)| !record.attached).map(|(.., record)| record.topic).collect();
        for (vhost, name, record) in &mut self.queues {
            if record.attached && !topics.contains(&record.topic) && owned.insert(record.topic) {
                tracing::warn!(vhost, queue = %name, "queue has a topic of its own that was taken for another's");
                record.attached = false;
            }
        }
    }

    /// Logs of queues' own topics.
    pub fn own_logs(&self) -> impl Iterator<Item = LogId> + '_ {
        self.queues.iter().filter(|(_, _, record)| !record.attached).map(|(_, _, record)| record.log).chain(self.delays.logs())
    }
}

impl Broker {
    /// Makes queues' own topics, which have no record unless their settings were changed; before subscriptions are restored, which look for
    /// them.
    pub(crate) fn restore_own_topics(&self, found: &FoundQueues) {
        for (vhost, name, record) in found.queues.iter().filter(|(_, _, record)| !record.attached) {
            if self.topic_by_id(record.topic).is_some() {
                continue;
            }
            let overrides = QueueArguments::new(&record.arguments).map_or_else(|_| queue_overrides(), |rules| rules.overrides());
            let topic = TopicRecord { id: record.topic, logs: vec![record.log], overrides };
            match topic_name(vhost, name).filter(|_| !record.hidden) {
                Some(known_as) => self.publish(known_as, topic),
                None => self.publish_hidden(topic, self.durability()),
            };
        }
        self.restore_delayed_topics(&found.delays);
    }

    /// Makes exchanges, queues and bindings of what was found; records that lead nowhere are deleted by and by. Those of virtual hosts that are not
    /// there lead nowhere, unless one of their queues may have messages.
    pub(crate) fn restore_queues(self: &Arc<Self>, mut found: FoundQueues) {
        found.bindings.sort_unstable_by_key(|(number, ..)| *number);
        let next = found.bindings.last().map_or(0, |(number, ..)| number + 1);
        self.vhosts.next_binding.store(next, Ordering::SeqCst);
        for (vhost, ..) in &found.queues {
            if self.vhosts.get(vhost).is_none() {
                tracing::warn!(vhost, "queues of a virtual host of which there is no record: it is made again");
                self.vhosts.or_new(vhost);
            }
        }
        let mut orphans: Vec<Bytes> = self.restore_parameters(found.parameters);
        for (vhost, name, record) in found.exchanges {
            let Some(host) = self.vhosts.get(&vhost) else {
                orphans.push(ExchangeRecord::key(&vhost, &name));
                continue;
            };
            let ExchangeRecord { kind, auto_delete, internal, arguments } = record;
            let declaration = Declaration { name: name.clone(), kind: &kind, durable: true, auto_delete, internal, arguments };
            if let Err(error) = host.exchanges().write().declare(declaration) {
                tracing::warn!(%error, vhost, exchange = %name, "exchange of the catalog cannot be declared");
            }
            host.set_alternate(&name);
        }
        for (vhost, name, record) in found.queues {
            let host = self.vhosts.or_new(&vhost);
            let topic = self.topic_by_id(record.topic).filter(|topic| topic.log(PartitionIndex(0)).is_some_and(|log| log.id() == record.log));
            let (Some(topic), Ok(rules)) = (topic, QueueArguments::new(&record.arguments)) else {
                orphans.push(QueueRecord::key(&vhost, &name));
                continue;
            };
            let QueueRecord { auto_delete, arguments, attached, .. } = record;
            let wish = QueueDeclaration { name, durable: true, owner: None, auto_delete, arguments };
            self.enter_queue(&host, wish, rules, topic, Life { attached, restored: true });
        }
        for (_, vhost, record) in found.bindings {
            let Some(host) = self.vhosts.get(&vhost) else {
                orphans.push(record.key(&vhost));
                continue;
            };
            let mut table = host.exchanges().write();
            let to = if record.to_queue { table.queue(&record.destination).map(Destination::Queue) } else { Some(Destination::Exchange(&record.destination)) };
            if to.is_none_or(|to| table.bind(&record.source, to, &record.key, &record.arguments).is_err()) {
                orphans.push(record.key(&vhost));
            }
        }
        self.restore_delays(std::mem::take(&mut found.delays));
        if !orphans.is_empty() {
            self.subscriptions().append_alone(0, orphans.into_iter().map(|key| AppendItem::State { key, value: None }).collect());
        }
    }
}
