//! Exchanges, bindings and queues as they are found in the catalog at the start.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use journal::{AppendError, AppendItem};
use routing::{Declaration, Destination, Name};
use types::{LogId, PartitionIndex};

use super::admin::{Life, QueueDeclaration, queue_overrides};
use super::arguments::QueueArguments;
use super::claims::{self, Claim};
use super::delays;
use super::parameters;
use super::policy_walk::Subjected;
use super::record::{self, BindingRecord, ExchangeRecord, Found, QueueRecord};
use crate::Broker;
use crate::catalog::{NEXT_LOG_KEY, TopicRecord};

/// What was found, by virtual host.
#[derive(Default)]
pub(crate) struct FoundQueues {
    exchanges: Vec<(String, Name, ExchangeRecord)>,
    queues: Vec<Claim>,
    bindings: Vec<(u64, String, BindingRecord)>,
    parameters: Vec<parameters::Found>,
    delays: delays::Found,
    /// Records to be written in place of those that were found.
    claims: Vec<AppendItem>,
}

impl FoundQueues {
    /// Takes a state record.
    pub fn take(&mut self, key: &[u8], value: &[u8]) {
        if parameters::is_key(key) {
            match parameters::decode(key, value) {
                Some(found) => self.parameters.push(found),
                None => {
                    tracing::warn!(key = %key.escape_ascii(), "record of a policy or parameter that is not readable ignored")
                }
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
            None => {
                tracing::warn!(key = %key.escape_ascii(), "record of an exchange, queue or binding that is not readable ignored")
            }
        }
    }

    /// What people call the logs that belong to no topic of Kafka clients.
    pub fn log_names(&self) -> Vec<(LogId, String)> {
        let queues = self
            .queues
            .iter()
            .map(|(_, name, record)| (record.log, format!("queue {}", String::from_utf8_lossy(name))));
        queues.chain(self.delays.logs().map(|log| (log, "delayed messages of an exchange".to_owned()))).collect()
    }

    /// Knows the topics that have a record, by name. What is found out is to be written ([`Broker::write_claims`]).
    pub fn settle(&mut self, topics: &[(String, TopicRecord)], next_log: &mut u64) {
        self.claims = claims::settle(&mut self.queues, topics, next_log);
    }

    /// Logs of queues' own topics.
    pub fn own_logs(&self) -> impl Iterator<Item = LogId> + '_ {
        self.queues
            .iter()
            .filter(|(_, _, record)| !record.attached)
            .map(|(_, _, record)| record.log)
            .chain(self.delays.logs())
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
            let overrides =
                QueueArguments::new(&record.arguments).map_or_else(|_| queue_overrides(), |rules| rules.overrides());
            let topic = TopicRecord { id: record.topic, logs: vec![record.log], overrides };
            match claims::topic_name(vhost, name, record) {
                Some(known_as) => self.publish(known_as, topic),
                None => self.publish_hidden(topic, self.durability()),
            };
        }
        self.restore_delayed_topics(&found.delays);
    }

    /// Writes which queue has which topic, where the catalog left that open: durable before anybody comes, because another start might find it
    /// otherwise.
    ///
    /// # Errors
    /// The journal.
    pub(crate) fn write_claims(&self, found: &mut FoundQueues) -> Result<(), AppendError> {
        let claims = std::mem::take(&mut found.claims);
        if claims.is_empty() {
            return Ok(());
        }
        // The next id goes first: a log that some of them name is nobody else's then, whatever becomes of the others.
        let value = Some(Bytes::copy_from_slice(&self.next_log.lock().to_be_bytes()));
        let next = AppendItem::State { key: Bytes::from_static(NEXT_LOG_KEY), value };
        self.commit_from_reserve(0, std::iter::once(next).chain(claims).collect())
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
            let declaration =
                Declaration { name: name.clone(), kind: &kind, durable: true, auto_delete, internal, arguments };
            if let Err(error) = host.exchanges().write().declare(declaration) {
                tracing::warn!(%error, vhost, exchange = %name, "exchange of the catalog cannot be declared");
            }
            if let Some(rest) = host.set_alternate_at_start(&name) {
                self.search_policies_at_start(&host, Subjected::Exchange(name), rest);
            }
        }
        for (vhost, name, record) in found.queues {
            let host = self.vhosts.or_new(&vhost);
            let topic = self
                .topic_by_id(record.topic)
                .filter(|topic| topic.log(PartitionIndex(0)).is_some_and(|log| log.id() == record.log));
            let (Some(topic), Ok(rules)) = (topic, QueueArguments::new(&record.arguments)) else {
                orphans.push(QueueRecord::key(&vhost, &name));
                continue;
            };
            let QueueRecord { auto_delete, arguments, attached, .. } = record;
            let wish = QueueDeclaration { name, durable: true, owner: None, auto_delete, arguments };
            if let Err(error) = self.enter_queue(&host, wish, rules, topic, Life { attached, restored: true }) {
                tracing::error!(%error, "queue of the catalog left out");
            }
        }
        for (_, vhost, record) in found.bindings {
            let Some(host) = self.vhosts.get(&vhost) else {
                orphans.push(record.key(&vhost));
                continue;
            };
            let mut table = host.exchanges().write();
            let to = if record.to_queue {
                table.queue(&record.destination).map(Destination::Queue)
            } else {
                Some(Destination::Exchange(&record.destination))
            };
            if to.is_none_or(|to| table.bind(&record.source, to, &record.key, &record.arguments).is_err()) {
                orphans.push(record.key(&vhost));
            }
        }
        self.restore_delays(std::mem::take(&mut found.delays));
        if !orphans.is_empty() {
            self.subscriptions()
                .append_alone(0, orphans.into_iter().map(|key| AppendItem::State { key, value: None }).collect());
        }
    }
}
