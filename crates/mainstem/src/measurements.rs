//! What is looked up when somebody reads `/metrics`: memory against the budget, queues, segments, topics, and how
//! far groups are behind. What is counted as it happens belongs to the crate where it happens.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use admin::StoppedJournal;
use admin::api::{Memory, MemoryUse};
use broker::{Broker, Cause, QuotaKey, ShareEvent};
use journal::{Journal, JournalStatus};
use kafka_gateway::Gateway;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use types::ByteSize;

use crate::backlogs::Backlogs;
use crate::frames::FramePool;
use crate::limit_metrics::LimitMetrics;
use crate::tls::Tls;

/// Label of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OpenTransaction {
    transactional_id: String,
}

/// Label of what happened to records of shared subscriptions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Shared {
    event: &'static str,
}

/// Label of what is refused for want of memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refusing {
    account: &'static str,
}

/// Label of what filters did with batches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Filtered {
    how: &'static str,
}

/// Label of what connections wait for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waited {
    cause: &'static str,
}

/// Label of a quota.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Quota {
    key: &'static str,
}

/// No label: for what is there or not.
type Unlabelled = [(&'static str, &'static str); 0];

/// Transactions that are named, those open longest.
const TRANSACTIONS_NAMED: usize = 100;

/// What is measured, once it is there.
pub struct Node {
    pub broker: Arc<Broker>,
    pub frames: Arc<FramePool>,
    pub gateway: Arc<Gateway>,
    pub amqp: Arc<amqp_gateway::Gateway>,
    pub budget: ByteSize,
    /// Of listeners with it.
    pub tls: Option<Arc<Tls>>,
}

/// Gauges of the process; cheap to clone.
#[derive(Clone, Default)]
pub struct Measurements {
    node: Arc<OnceLock<Node>>,
    resident: Gauge,
    budget: Gauge,
    frames: Gauge,
    tail_allocated: Gauge,
    tail_used: Gauge,
    pinned: Gauge,
    long_polls: Gauge,
    windows: Gauge,
    held: Gauge,
    unfinished: Gauge,
    unsettled: Gauge,
    consumers: Gauge,
    control: Gauge,
    subscriptions: Gauge,
    groups: Gauge,
    group_settings: Gauge,
    transactional: Gauge,
    producers: Gauge,
    definitions: Gauge,
    bodies: Gauge,
    http_answers: Gauge,
    policies: Gauge,
    answers: Gauge,
    refused: Family<Refusing, Counter>,
    state: Gauge,
    queued: Gauge,
    segments: Gauge,
    live: Gauge,
    topics: Gauge,
    partitions: Gauge,
    stopped: Gauge,
    hindered: Gauge,
    disk_full: Gauge,
    waiting: Gauge,
    unreadable: Gauge,
    held_up: Gauge,
    files: Gauge,
    recovery_seconds: Gauge<f64, AtomicU64>,
    recovered_bytes: Gauge,
    backlogs: Backlogs,
    transactions: Family<OpenTransaction, Gauge<f64, AtomicU64>>,
    shared: Family<Shared, Counter>,
    imbalance: Gauge,
    too_large_letters: Counter,
    log_lines_lost: Counter,
    filter_batches: Family<Filtered, Counter>,
    filter_bytes: Family<Filtered, Counter>,
    filter_unproven: Counter,
    filter_notes: Gauge,
    unpacked_bytes: Counter,
    passed_over: Counter,
    damaged_batches: Counter,
    waited: Family<Waited, Gauge<f64, AtomicU64>>,
    throttled: Family<Quota, Counter>,
    throttled_seconds: Family<Quota, Gauge<f64, AtomicU64>>,
    limits: LimitMetrics,
    certificate_until: Family<Unlabelled, Gauge>,
    /// Of each shard.
    connections: Arc<OnceLock<Vec<Arc<AtomicUsize>>>>,
}

impl Measurements {
    /// Makes them visible under `mainstem_…`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("mainstem");
        for (name, help, gauge) in self.gauges() {
            registry.register(name, help, gauge.clone());
        }
        registry.register("recovery_seconds", "Duration of the recovery at the start", self.recovery_seconds.clone());
        let help = "Records that a group has not done with, of partitions that it has an offset of";
        registry.register("group_backlog_records", help, self.backlogs.behind.clone());
        let help = "Records of partitions that members of a group read and of which it has no offset: it reads all of them if it begins with the first";
        registry.register("group_without_offset_records", help, self.backlogs.unknown.clone());
        let help = "How long a transaction is open that readers of committed records wait for";
        registry.register("transaction_open_seconds", help, self.transactions.clone());
        registry.register("share_records", "Records of share groups by what happened to them", self.shared.clone());
        let help = "Dead messages that stay where they are because no segment has room for them with what their death adds: one each hour and message";
        registry.register("dead_letters_too_large", help, self.too_large_letters.clone());
        registry.register(
            "share_in_flight_records",
            "Records that members of a share group have",
            self.backlogs.in_flight.clone(),
        );
        let help = "Groups and topics that are not named at mainstem_group_backlog_records and the like, because others have more";
        registry.register("metrics_omitted_series", help, self.backlogs.omitted.clone());
        let help =
            "How often something was refused, or a consumer told to wait, because its part of the memory was used up";
        registry.register("memory_refused", help, self.refused.clone());
        let help =
            "Lines of the log that could be written neither to its file nor to stderr, or not as fast as they came";
        registry.register("log_lines_lost", help, self.log_lines_lost.clone());
        self.register_batches(registry);
        let help = "What connections waited for since the start, by cause; several causes may hold at once";
        registry.register("connection_wait_seconds", help, self.waited.clone());
        let help = "How often a request or a connection was held up by a quota, by its key";
        registry.register("quota_throttled", help, self.throttled.clone());
        registry.register(
            "quota_throttled_seconds",
            "For how long, when it was decided",
            self.throttled_seconds.clone(),
        );
        self.limits.register(registry);
        registry.register(
            "tls_certificate_expiration_timestamp_seconds",
            "When the first of the broker's certificates ends, since 1970",
            self.certificate_until.clone(),
        );
    }

    #[rustfmt::skip]
    fn gauges(&self) -> [(&'static str, &'static str, &Gauge); 39] {
        [
            ("memory_resident_bytes", "Resident memory of the process", &self.resident),
            ("memory_budget_bytes", "Memory budget", &self.budget),
            ("memory_frame_bytes", "Large requests in memory", &self.frames),
            ("memory_tail_allocated_bytes", "Memory of the tail caches", &self.tail_allocated),
            ("memory_tail_used_bytes", "Memory of the tail caches that is held", &self.tail_used),
            ("memory_pinned_bytes", "Memory held by answers that clients have not read", &self.pinned),
            ("memory_long_poll_bytes", "Memory held by fetches of many partitions that wait for records", &self.long_polls),
            ("memory_filter_bytes", "Memory of what filters have found out about batches", &self.filter_notes),
            ("memory_window_bytes", "Memory of messages that queues have read and not given out", &self.windows),
            ("memory_held_publish_bytes", "Memory of AMQP publishes for which journals have no room", &self.held),
            ("memory_unfinished_bytes", "Memory of AMQP contents and transactions that are not finished", &self.unfinished),
            ("memory_unsettled_bytes", "Memory reserved for AMQP messages that are delivered and not settled", &self.unsettled),
            ("memory_consumer_bytes", "Memory of AMQP consumers, about", &self.consumers),
            ("memory_control_bytes", "Memory of changes that wait for their turn, about", &self.control),
            ("memory_subscription_bytes", "Memory of subscriptions of share groups, about", &self.subscriptions),
            ("memory_group_bytes", "Memory of groups and committed offsets, about", &self.groups),
            ("memory_group_setting_bytes", "Memory of settings of groups, about", &self.group_settings),
            ("memory_transaction_bytes", "Memory of transactional ids and what their transactions hold, about", &self.transactional),
            ("memory_producer_bytes", "Memory of the idempotent producers that logs know, about", &self.producers),
            ("memory_policy_bytes", "Memory of policies with their patterns, about", &self.policies),
            ("memory_acl_answer_bytes", "Memory of what connections remember of access control entries, about", &self.answers),
            ("memory_definition_bytes", "Memory of exchanges, bindings, and arguments of queues, about", &self.definitions),
            ("memory_http_answer_bytes", "Memory of answers of HTTP that clients have not taken, about", &self.http_answers),
            ("memory_http_body_bytes", "Memory of bodies of HTTP requests, with what is made of them", &self.bodies),
            ("memory_state_bytes", "Memory of keyed state that is in no checkpoint yet: settings, offsets, what was acknowledged", &self.state),
            ("append_queue_bytes", "Appends waiting for a journal", &self.queued),
            ("segments", "Segment files", &self.segments),
            ("live_bytes", "Live bytes in sealed segments", &self.live),
            ("topics", "Topics", &self.topics),
            ("partitions", "Partitions", &self.partitions),
            ("journals_stopped", "Journals that stopped after a failed write or flush", &self.stopped),
            ("journals_hindered", "Journals that take no writes at the moment, because no segment can be prepared, and try again", &self.hindered),
            ("journals_disk_full", "Journals that refuse data because the disk is full", &self.disk_full),
            ("journals_waiting_for_archive", "Journals whose appends wait for the archive, because the window is full", &self.waiting),
            ("history_unreadable", "Archive objects and parts of segments that could not be read when somebody wanted them", &self.unreadable),
            ("journals_held_up", "Journals in which space that is free does not come back, because a file cannot be written, replaced or removed, or the archive does not take or delete objects", &self.held_up),
            ("journal_file_bytes", "What the files of the journals take on the disk", &self.files),
            ("queue_imbalance", "Messages of queues and of shared subscriptions that are in no state, or in two; always 0 unless there is a defect", &self.imbalance),
            ("recovered_bytes", "Chunks replayed at the start", &self.recovered_bytes),
        ]
    }

    /// What came of batches that were looked into.
    fn register_batches(&self, registry: &mut Registry) {
        let help = "Batches by what filters did with them: decoded, remembered from before, skipped by a summary, unreadable and sent as they are";
        registry.register("filter_batches", help, self.filter_batches.clone());
        registry.register(
            "filter_bytes",
            "Bytes of batches that filters have gone through (in) and let through (out)",
            self.filter_bytes.clone(),
        );
        let help = "Connections that may be of a member of a group with a filter and are not proven to be: they get everything";
        registry.register("filter_unproven_connections", help, self.filter_unproven.clone());
        let help = "Bytes that came out of batches of producers which took longer to look into than a network thread has time for";
        registry.register("unpacked_bytes", help, self.unpacked_bytes.clone());
        let help = "Times that AMQP consumers or dead letters passed over records of a batch, because it unpacks to more than mainstem.batch.unpacked.max.bytes";
        registry.register("unpacked_batches_passed_over", help, self.passed_over.clone());
        let help = "Times that AMQP consumers passed over records of a batch, because they make no sense";
        registry.register("damaged_batches_passed_over", help, self.damaged_batches.clone());
    }

    /// A journal has been recovered.
    pub fn add_recovery(&self, took: Duration, replayed_bytes: u64) {
        self.recovery_seconds.set(self.recovery_seconds.get() + took.as_secs_f64());
        self.recovered_bytes.inc_by(replayed_bytes as i64);
    }

    /// From now on there is something to look up.
    pub fn attach(&self, node: Node) {
        let _ = self.node.set(node);
    }

    /// From now on there are connections, which the shards count.
    pub fn count_connections(&self, of_shards: Vec<Arc<AtomicUsize>>) {
        let _ = self.connections.set(of_shards);
    }

    /// Journals that take no writes.
    pub fn stopped_journals(&self) -> Vec<StoppedJournal> {
        let Some(node) = self.node.get() else { return Vec::new() };
        let journals = node.broker.journals();
        let stopped = journals.iter().filter_map(|journal| {
            let (reason, until_restart) = match journal.status() {
                JournalStatus::Stopped { reason } => (reason, true),
                JournalStatus::Hindered { reason } => (reason, false),
                JournalStatus::Running | JournalStatus::DiskFull => return None,
            };
            Some(StoppedJournal { number: journal.number(), reason, until_restart, others_go_on: true })
        });
        let mut stopped: Vec<StoppedJournal> = stopped.collect();
        let others_go_on = stopped.len() < journals.len();
        stopped.iter_mut().for_each(|one| one.others_go_on = others_go_on);
        stopped
    }

    /// What of the history of journals cannot be read, and which of them get no space back, a line each.
    pub fn troubles(&self) -> Vec<String> {
        let journals = self.node.get().map(|node| node.broker.journals().to_vec()).unwrap_or_default();
        let unreadable = journals
            .iter()
            .flat_map(|journal| journal.unreadable())
            .map(|found| format!("history cannot be read: {} from offset {}: {}", found.log, found.from, found.what));
        let held_up = journals.iter().filter_map(|journal| {
            Some(format!("space does not come back: journal {}: {}", journal.number(), journal.held_up()?))
        });
        let archive = journals.iter().filter_map(|journal| {
            Some(format!("archive of journal {}: {}", journal.number(), journal.archive_trouble()?))
        });
        unreadable.chain(held_up).chain(archive).collect()
    }

    /// What memory is used for.
    pub fn memory(&self) -> Memory {
        let resident_bytes = crate::memory::resident_bytes();
        let Some(node) = self.node.get() else { return Memory { resident_bytes, ..Memory::default() } };
        let sum =
            |of: &dyn Fn(&Journal) -> usize| node.broker.journals().iter().map(|journal| of(journal)).sum::<usize>();
        let uses = [
            ("tail_cache", sum(&|journal| journal.tail_memory().0), "Newest chunks, for readers at the end"),
            ("frames", node.frames.used_bytes(), "Large requests"),
            ("pinned", node.gateway.pinned_bytes(), "Answers that clients have not read"),
            ("long_polls", node.gateway.long_poll_bytes(), "Fetches of many partitions that wait for records"),
            ("filters", node.broker.filters().notes_bytes(), "What filters have found out about batches"),
            ("windows", node.broker.vhosts().window_bytes(), "Messages that queues have read and not given out"),
            ("held_publishes", node.amqp.held_bytes(), "AMQP publishes for which journals have no room"),
            ("unfinished", node.amqp.unfinished_bytes(), "AMQP contents and transactions that are not finished"),
            ("unsettled", node.broker.vhosts().unsettled_bytes(), "AMQP messages that are delivered and not settled"),
            ("consumers", node.amqp.consumer_bytes(), "AMQP consumers"),
            ("control", node.broker.control_bytes(), "Changes that wait for their turn"),
            ("subscriptions", node.broker.subscriptions().memory().0, "Subscriptions of share groups"),
            ("groups", node.broker.groups().memory().0, "Groups and committed offsets"),
            (
                "transactions",
                node.broker.transactions().memory().0,
                "Transactional ids and what their transactions hold",
            ),
            ("producers", sum(&|journal| journal.producer_memory().0), "Idempotent producers that logs know"),
            ("definitions", node.broker.vhosts().definitions().bytes(), "Exchanges, bindings, and arguments of queues"),
            ("http_answers", admin::answer_bytes(), "Answers of HTTP that clients have not taken"),
            ("http_bodies", admin::body_bytes(), "Bodies of HTTP requests, with what is made of them"),
            ("policies", node.broker.vhosts().policy_memory().bytes(), "Policies with their patterns"),
            (
                "acl_answers",
                node.broker.security().answer_memory().bytes(),
                "What connections remember of access control entries",
            ),
            ("state", sum(&|journal| journal.state_memory()), "Keyed state that is in no checkpoint yet"),
            ("append_queue", sum(&|journal| journal.queued_bytes()), "Appends that wait for a journal"),
        ];
        let uses = uses.into_iter().map(|(name, bytes, text)| MemoryUse { name, bytes: bytes as u64, text }).collect();
        Memory { budget_bytes: node.budget.bytes(), resident_bytes, uses }
    }

    /// Looks everything up.
    pub fn refresh(&self) {
        self.resident.set(crate::memory::resident_bytes() as i64);
        let Some(node) = self.node.get() else { return };
        let sum = |of: &dyn Fn(&Journal) -> usize| {
            node.broker.journals().iter().map(|journal| of(journal)).sum::<usize>() as i64
        };
        self.budget.set(node.budget.bytes() as i64);
        self.frames.set(node.frames.used_bytes() as i64);
        self.tail_allocated.set(sum(&|journal| journal.tail_memory().0));
        self.tail_used.set(sum(&|journal| journal.tail_memory().1));
        self.pinned.set(node.gateway.pinned_bytes() as i64);
        self.long_polls.set(node.gateway.long_poll_bytes() as i64);
        self.refresh_filters(&node.broker);
        self.refresh_waits(&node.broker);
        let connections =
            self.connections.get().map_or(0, |shards| shards.iter().map(|shard| shard.load(Ordering::Relaxed)).sum());
        self.limits.refresh(&node.broker, connections);
        if let Some(tls) = &node.tls {
            self.certificate_until.get_or_create(&[]).set(tls.until());
        }
        self.windows.set(node.broker.vhosts().window_bytes() as i64);
        self.refresh_accounts(node);
        self.state.set(sum(&|journal| journal.state_memory()));
        self.queued.set(sum(&|journal| journal.queued_bytes()));
        self.segments.set(sum(&|journal| journal.segment_usage().0));
        self.live.set(sum(&|journal| journal.segment_usage().1));
        self.stopped.set(count(node, stopped));
        self.hindered.set(count(node, |journal| matches!(journal.status(), JournalStatus::Hindered { .. })));
        self.disk_full.set(count(node, |journal| journal.status() == JournalStatus::DiskFull));
        self.waiting.set(count(node, Journal::waits_for_archive));
        self.unreadable.set(sum(&|journal| journal.unreadable_count()));
        self.held_up.set(count(node, |journal| journal.held_up().or_else(|| journal.archive_trouble()).is_some()));
        self.files.set(sum(&|journal| journal.file_bytes() as usize));
        let topics = node.broker.topics();
        self.topics.set(topics.len() as i64);
        self.partitions.set(topics.iter().map(|topic| topic.logs().len() as i64).sum());
        self.imbalance.set(self.backlogs.refresh(&node.broker));
        self.refresh_shared(&node.broker);
        self.transactions.clear();
        for (transactional_id, open_ms) in node.broker.transactions().open().into_iter().take(TRANSACTIONS_NAMED) {
            self.transactions
                .get_or_create(&OpenTransaction { transactional_id: transactional_id.to_string() })
                .set(open_ms as f64 / 1000.0);
        }
    }

    fn refresh_accounts(&self, node: &Node) {
        let (groups, groups_refused) = node.broker.groups().memory();
        self.held.set(node.amqp.held_bytes() as i64);
        self.unfinished.set(node.amqp.unfinished_bytes() as i64);
        self.unsettled.set(node.broker.vhosts().unsettled_bytes() as i64);
        self.consumers.set(node.amqp.consumer_bytes() as i64);
        self.control.set(node.broker.control_bytes() as i64);
        self.subscriptions.set(node.broker.subscriptions().memory().0 as i64);
        self.groups.set(groups as i64);
        self.group_settings.set(node.broker.group_config_bytes() as i64);
        let (transactional, transactions_refused) = node.broker.transactions().memory();
        self.transactional.set(transactional as i64);
        let producers: Vec<_> = node.broker.journals().iter().map(|journal| journal.producer_memory()).collect();
        self.producers.set(producers.iter().map(|(bytes, _)| *bytes).sum::<usize>() as i64);
        let definitions = node.broker.vhosts().definitions();
        self.definitions.set(definitions.bytes() as i64);
        self.bodies.set(admin::body_bytes() as i64);
        self.http_answers.set(admin::answer_bytes() as i64);
        let policies = node.broker.vhosts().policy_memory();
        self.policies.set(policies.bytes() as i64);
        self.answers.set(node.broker.security().answer_memory().bytes() as i64);
        let refused = [
            ("unfinished", node.amqp.unfinished_refused()),
            ("unsettled", node.broker.vhosts().unsettled_short()),
            ("consumers", node.amqp.consumers_refused()),
            ("subscriptions", node.broker.subscriptions().memory().1),
            ("groups", groups_refused),
            ("transactions", transactions_refused),
            ("definitions", definitions.refused()),
            ("policies", policies.refused()),
            ("producers", producers.iter().map(|(_, refused)| *refused).sum()),
        ];
        for (account, count) in refused {
            self.refused.get_or_create(&Refusing { account }).inner().store(count, Ordering::Relaxed);
        }
    }

    fn refresh_filters(&self, broker: &Broker) {
        let counts = broker.filters().counts();
        let batches = [
            ("decoded", &counts.decoded),
            ("remembered", &counts.remembered),
            ("skipped", &counts.skipped),
            ("unreadable", &counts.unreadable),
        ];
        for (how, count) in batches {
            self.filter_batches
                .get_or_create(&Filtered { how })
                .inner()
                .store(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (how, count) in [("in", &counts.bytes_in), ("out", &counts.bytes_out)] {
            self.filter_bytes
                .get_or_create(&Filtered { how })
                .inner()
                .store(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.filter_unproven.inner().store(counts.unproven.load(Ordering::Relaxed), Ordering::Relaxed);
        self.filter_notes.set(broker.filters().notes_bytes() as i64);
        let counts = broker.unpacking().counts();
        self.unpacked_bytes.inner().store(counts.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.passed_over.inner().store(counts.passed_over.load(Ordering::Relaxed), Ordering::Relaxed);
        self.damaged_batches.inner().store(counts.damaged.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn refresh_waits(&self, broker: &Broker) {
        for (cause, total) in Cause::ALL.into_iter().zip(broker.waits().totals()) {
            self.waited.get_or_create(&Waited { cause: cause.name() }).set(total as f64 / 1e9);
        }
        for key in QuotaKey::ALL {
            let (label, throttled) = (Quota { key: key.name() }, broker.quotas().throttled(key));
            self.throttled
                .get_or_create(&label)
                .inner()
                .store(throttled.count.load(Ordering::Relaxed), Ordering::Relaxed);
            self.throttled_seconds.get_or_create(&label).set(throttled.waited_ns.load(Ordering::Relaxed) as f64 / 1e9);
        }
    }

    fn refresh_shared(&self, broker: &Broker) {
        for (event, name) in ShareEvent::ALL {
            self.shared
                .get_or_create(&Shared { event: name })
                .inner()
                .store(broker.subscriptions().count(event), Ordering::Relaxed);
        }
        self.log_lines_lost.inner().store(crate::log_file::lines_lost(), Ordering::Relaxed);
        self.too_large_letters.inner().store(broker.too_large_letters(), Ordering::Relaxed);
    }
}

fn stopped(journal: &Journal) -> bool {
    matches!(journal.status(), JournalStatus::Stopped { .. })
}

fn count(node: &Node, is: impl Fn(&Journal) -> bool) -> i64 {
    node.broker.journals().iter().filter(|journal| is(journal)).count() as i64
}
