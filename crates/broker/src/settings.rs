//! The settings of a broker and of a topic: one table each. Validation, `--set`, the configuration file,
//! DescribeConfigs and the documentation all read these tables; nothing is written twice.

use std::fmt;

use crate::topic::Source;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number in a range, both ends inclusive.
    Int(i64, i64),
    /// One of some words.
    OneOf(&'static [&'static str]),
    /// Words from a list, separated by commas.
    ListOf(&'static [&'static str]),
    /// A number from 0 to 1.
    Ratio,
    /// Replicas as `partition:node`, separated by commas; or `*`, all of them.
    Replicas,
    /// Anything.
    Text,
}

/// What a topic setting does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It has the effect that Kafka's documentation gives it.
    Enforced,
    /// It is kept and shown; the engine has nothing that it could act on.
    Inert,
    /// It would promise what is not there: only the default is accepted.
    DefaultOnly,
}

/// A row of either table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Kafka's name, or RabbitMQ's where only RabbitMQ has one, or one of OpenTelemetry's environment variables in small letters with dots, or one
    /// that begins with `mainstem.`.
    pub name: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// As it is written.
    pub default: &'static str,
    /// Enforced, inert or refused.
    pub class: Class,
    /// One sentence.
    pub doc: &'static str,
}

const fn row(name: &'static str, kind: Kind, default: &'static str, class: Class, doc: &'static str) -> Setting {
    Setting { name, kind, default, class, doc }
}

const MAX: i64 = i64::MAX;
const INT: i64 = i32::MAX as i64;
use Class::{DefaultOnly, Enforced, Inert};
use Kind::{Bool, Int, ListOf, OneOf, Ratio, Replicas, Text};

/// Settings of the broker.
#[rustfmt::skip]
pub const BROKER: &[Setting] = &[
    row("num.partitions", Int(1, 100_000), "1", Enforced, "Partitions of a topic that is created without a number."),
    row("auto.create.topics.enable", Bool, "true", Enforced, "Create a topic that a client asks for by name."),
    row("log.retention.ms", Int(-1, MAX), "604800000", Enforced, "Keep records this long; -1 for ever."),
    row("log.retention.bytes", Int(-1, MAX), "-1", Enforced, "Keep about this much of a partition; -1 everything."),
    row("log.retention.check.interval.ms", Int(1, MAX), "300000", Enforced, "How often retention is looked after."),
    row("log.cleanup.policy", ListOf(&["delete", "compact"]), "delete", Enforced, "delete lets old records go, compact keeps the newest of each key."),
    row("log.segment.bytes", Int(14, INT), "1073741824", Enforced, "A partition is compacted when so much of it has not been; segment files are the journal's."),
    row("log.roll.ms", Int(1, MAX), "604800000", Enforced, "A partition is compacted when a record has been there this long without; segment files are the journal's."),
    row("log.cleaner.min.cleanable.ratio", Ratio, "0.5", Enforced, "Compact a partition when more than this part of it has not been compacted."),
    row("log.cleaner.min.compaction.lag.ms", Int(0, MAX), "0", Enforced, "Do not compact records that are younger."),
    row("log.cleaner.max.compaction.lag.ms", Int(1, MAX), "9223372036854775807", Enforced, "Compact whatever is older, however little it is."),
    row("log.cleaner.delete.retention.ms", Int(0, MAX), "86400000", Enforced, "Keep records without a value this long after they were compacted first."),
    row("log.cleaner.dedupe.buffer.size", Int(1_048_576, MAX), "134217728", Enforced, "Memory for keys while a partition is compacted, of all journals together."),
    row("log.cleaner.backoff.ms", Int(1, MAX), "15000", Enforced, "How often to look for a partition to compact when there was none."),
    row("message.max.bytes", Int(0, INT), "1048588", Enforced, "Largest record batch."),
    row("log.message.timestamp.type", OneOf(&["CreateTime", "LogAppendTime"]), "CreateTime", Enforced, "Whose clock record timestamps come from."),
    row("min.insync.replicas", Int(1, INT), "1", Inert, "There is one replica, and Kafka asks for no more than there are."),
    row("compression.type", OneOf(&["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]), "producer", Enforced, "producer keeps batches as they are made; with another value those of another codec are packed again."),
    row("compression.gzip.level", Int(-1, 9), "-1", Enforced, "How hard gzip tries when batches are packed again; -1 is its default."),
    row("compression.lz4.level", Int(1, 17), "9", DefaultOnly, "LZ4 has one level here."),
    row("compression.zstd.level", Int(-131_072, 22), "3", Enforced, "How hard zstd tries when batches are packed again."),
    row("socket.request.max.bytes", Int(1024, INT), "104857600", Enforced, "Largest request."),
    row("mainstem.frame.timeout.ms", Int(1, INT), "120000", Enforced, "A Kafka request, or an AMQP frame, that has begun is whole this much later, or its connection ends; time in which the broker reads nothing of it for reasons of its own does not count."),
    row("mainstem.frame.byte.rate", Int(0, INT), "4096", Enforced, "Bytes a second of a request or frame that has begun: its connection ends when fewer came on average, apart from its first 30 s; 0: any number."),
    row("connections.max.idle.ms", Int(-1, MAX), "600000", Enforced, "A Kafka client's connection ends when nothing was sent or received, and nothing was under way, for this long; -1: never."),
    row("mainstem.login.timeout.ms", Int(1, INT), "10000", Enforced, "A Kafka client of a SASL listener is logged in this much later, after the handshake of TLS, or its connection ends."),
    row("handshake_timeout", Int(1, INT), "10000", Enforced, "An AMQP client has opened its virtual host this many milliseconds later, after the handshake of TLS, or its connection ends."),
    row("ssl_handshake_timeout", Int(1, INT), "10000", Enforced, "The handshake of TLS takes this many milliseconds at most, on all ports; 5000 in RabbitMQ."),
    row("mainstem.http.head.timeout.ms", Int(1, INT), "60000", Enforced, "The head of a request of HTTP is whole this much after the connection's beginning, or the last answer, or the connection ends."),
    row("mainstem.http.body.timeout.ms", Int(1, INT), "30000", Enforced, "The body of a request of HTTP is whole this much after its head, four times as much if it is longer than 1 MiB, or it is refused (408)."),
    row("max.connections", Int(1, INT), "100000", Enforced, "Connections at once; more are closed."),
    row("max.connections.per.ip", Int(0, INT), "2147483647", Enforced, "Connections of one address at once; more are closed. A /64 network of IPv6 is one address."),
    row("mainstem.unauthenticated.connections", Int(1, INT), "1500", Enforced, "Connections at once of which it is not known yet who they are, where that is asked; of more, those of the addresses with most are closed."),
    row("mainstem.unauthenticated.connections.per.ip", Int(1, INT), "1000", Enforced, "Those of one address."),
    row("channel_max", Int(1, 65_535), "2047", Enforced, "AMQP channels of a connection at once, as it is told when it begins."),
    row("channel_max_per_node", Int(1, INT), "1000000", Enforced, "AMQP channels of all connections at once; who opens one more is closed with NOT_ALLOWED."),
    row("consumer_max_per_channel", Int(1, INT), "2147483647", Enforced, "Consumers of an AMQP channel; one more closes the connection with NOT_ALLOWED."),
    row("cluster_queue_limit", Int(1, INT), "1000000", Enforced, "Queues of all virtual hosts; one more is refused with PRECONDITION_FAILED."),
    row("cluster_exchange_limit", Int(1, INT), "1000000", Enforced, "Exchanges of all virtual hosts, those that are always there among them; one more is refused with PRECONDITION_FAILED."),
    row("vhost_max", Int(1, INT), "10000", Enforced, "Virtual hosts; one more is refused."),
    row("max_message_size", Int(1, 16_777_216), "16777216", Enforced, "Bytes of an AMQP message's body; one with more is refused with PRECONDITION_FAILED."),
    row("mainstem.batch.unpacked.max.bytes", Int(1_048_576, 268_435_456), "67108864", Enforced, "Bytes that the records of a batch may unpack to where the broker has to look into it, at most a 16th of the memory budget but 8 MiB in any case; more is refused with MESSAGE_TOO_LARGE."),
    row("mainstem.max.topics", Int(1, INT), "1000000", Enforced, "Topics, and queues that are topics; one more is refused: with POLICY_VIOLATION, a queue with PRECONDITION_FAILED."),
    row("mainstem.max.partitions", Int(1, INT), "1000000", Enforced, "Partitions of all topics; more are refused, as those of mainstem.max.topics."),
    row("listeners", Text, "", Enforced, "Addresses for Kafka clients, NAME://HOST:PORT with commas between them, beside those of --kafka and --kafka-tls; without these no others."),
    row("advertised.listeners", Text, "", Enforced, "What their clients are told to connect to, NAME://HOST:PORT; where a name is missing, where they connected."),
    row("listener.security.protocol.map", Text, "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", Enforced, "Which of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL the name of a listener stands for."),
    row("sasl.enabled.mechanisms", ListOf(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]), "SCRAM-SHA-512,SCRAM-SHA-256", Enforced, "How clients of SASL listeners may log in; listener.name.NAME. before it: of that listener."),
    row("connections.max.reauth.ms", Int(0, MAX), "0", Enforced, "A login lasts this long, then the client has to renew it; 0: as long as the connection. listener.name.NAME. before it: of that listener."),
    row("connection.failed.authentication.delay.ms", Int(0, 60_000), "100", Enforced, "A refused login is answered this much later."),
    row("sasl.oauthbearer.jwks.endpoint.url", Text, "", Enforced, "Where the keys of tokens are (a JSON Web Key Set): file:///PATH, https://HOST/PATH or http://HOST/PATH. Needed for OAUTHBEARER; empty: no tokens are taken."),
    row("sasl.oauthbearer.jwks.endpoint.refresh.ms", Int(1000, MAX), "3600000", Enforced, "How often the keys of tokens are fetched again."),
    row("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Int(1, 3_600_000), "100", Enforced, "After keys could not be fetched it is tried again this much later, each further time twice as late."),
    row("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Int(1, 3_600_000), "10000", Enforced, "See sasl.oauthbearer.jwks.endpoint.retry.backoff.ms: no later than this."),
    row("sasl.oauthbearer.expected.audience", Text, "", Enforced, "A token has to name one of these, with commas between, as its audience (aud); empty: it may name none."),
    row("sasl.oauthbearer.expected.issuer", Text, "", Enforced, "A token has to be of this issuer (iss); empty: of any, if it is signed by one of the keys."),
    row("sasl.oauthbearer.sub.claim.name", Text, "sub", Enforced, "The claim of a token that names its user."),
    row("sasl.oauthbearer.scope.claim.name", Text, "scope", Enforced, "The claim of a token that names its scopes; it may be missing, and has to be a text or a list of different texts where it is there. Scopes give no rights."),
    row("sasl.oauthbearer.clock.skew.seconds", Int(0, 86_400), "30", Enforced, "By how much the clocks of the broker and of whoever makes tokens may differ."),
    row("sasl.server.max.receive.size", Int(1024, 524_288), "32768", Enforced, "Largest request before a login."),
    row("mainstem.login.failures", Int(0, 1_000_000), "50", Enforced, "Wrong passwords for a name that may come from an address before it has to wait, ten times as many for all names; 0: any number."),
    row("mainstem.login.failure.recovery.ms", Int(1, 3_600_000), "2000", Enforced, "An address that has to wait may try one more password for the name this much later."),
    row("ssl.principal.mapping.rules", Text, "DEFAULT", Enforced, "Of whom a Kafka client's certificate is, where it need not log in: DEFAULT, its distinguished name, or RULE:pattern/replacement/[LU], with commas between."),
    row("mainstem.anonymous.clients", OneOf(&["loopback", "anywhere"]), "loopback", Enforced, "Where Kafka clients may come in without a login: by listeners on loopback, or anywhere. A node that would let others in does not start otherwise. Where it is set, to either, they may administer and use queues also once a user is defined."),
    row("authorizer.class.name", OneOf(&["", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"]), "", Enforced, "With Kafka's StandardAuthorizer access control entries count, on all protocols; empty: whoever is in may use everything that permissions leave him."),
    row("super.users", Text, "", Enforced, "Principals for whom no access control entry counts, User:NAME with semicolons between them; users with tag administrator are such too."),
    row("allow.everyone.if.no.acl.found", Bool, "false", Enforced, "Where access control entries count: everybody may use what none is about."),
    row("fetch.max.bytes", Int(1024, INT), "57671680", Enforced, "Most bytes in an answer to a fetch; never more than a sixteenth of the memory budget, or 1 MiB."),
    row("max.incremental.fetch.session.cache.slots", Int(0, 1_000_000), "1000", Enforced, "Fetch sessions that are remembered."),
    row("producer.id.expiration.ms", Int(1, MAX), "86400000", Enforced, "Forget a silent idempotent producer after this long."),
    row("group.initial.rebalance.delay.ms", Int(0, INT), "3000", Enforced, "Wait for more members before the first rebalance of a group."),
    row("group.min.session.timeout.ms", Int(1, INT), "6000", Enforced, "Shortest session timeout that a member may ask for."),
    row("group.max.session.timeout.ms", Int(1, INT), "1800000", Enforced, "Longest session timeout that a member may ask for."),
    row("group.max.size", Int(1, INT), "2147483647", Enforced, "Most members of a group."),
    row("group.consumer.session.timeout.ms", Int(1, INT), "45000", Enforced, "A member that is silent for so long is out of its consumer group."),
    row("group.consumer.min.session.timeout.ms", Int(1, INT), "45000", Enforced, "Least value that a group may have for consumer.session.timeout.ms."),
    row("group.consumer.max.session.timeout.ms", Int(1, INT), "60000", Enforced, "Largest value that a group may have for consumer.session.timeout.ms."),
    row("group.consumer.heartbeat.interval.ms", Int(1, INT), "5000", Enforced, "How often members of consumer groups send heartbeats; those that wait for partitions up to ten times as often."),
    row("group.consumer.min.heartbeat.interval.ms", Int(1, INT), "5000", Enforced, "Least value that a group may have for consumer.heartbeat.interval.ms."),
    row("group.consumer.max.heartbeat.interval.ms", Int(1, INT), "15000", Enforced, "Largest value that a group may have for consumer.heartbeat.interval.ms."),
    row("group.consumer.assignment.interval.ms", Int(0, INT), "1000", Enforced, "Assignments of a consumer group are not computed more often."),
    row("group.consumer.min.assignment.interval.ms", Int(0, INT), "0", Enforced, "Least value that a group may have for consumer.assignment.interval.ms."),
    row("group.consumer.max.assignment.interval.ms", Int(0, INT), "15000", Enforced, "Largest value that a group may have for consumer.assignment.interval.ms."),
    row("group.consumer.max.size", Int(1, INT), "2147483647", Enforced, "Most members of a consumer group."),
    row("group.consumer.assignors", ListOf(&["uniform", "range"]), "uniform,range", Enforced, "Assignors that members may ask for; the first one counts when they ask for none."),
    row("group.consumer.migration.policy", OneOf(&["disabled", "upgrade", "downgrade", "bidirectional"]), "bidirectional", Enforced, "Which groups with members may change between the classic and the consumer protocol."),
    row("group.share.session.timeout.ms", Int(1, INT), "45000", Enforced, "A member that is silent for so long is out of its share group."),
    row("group.share.min.session.timeout.ms", Int(1, INT), "45000", Enforced, "Least value that a group may have for share.session.timeout.ms."),
    row("group.share.max.session.timeout.ms", Int(1, INT), "60000", Enforced, "Largest value that a group may have for share.session.timeout.ms."),
    row("group.share.heartbeat.interval.ms", Int(1, INT), "5000", Enforced, "How often members of share groups send heartbeats."),
    row("group.share.min.heartbeat.interval.ms", Int(1, INT), "5000", Enforced, "Least value that a group may have for share.heartbeat.interval.ms."),
    row("group.share.max.heartbeat.interval.ms", Int(1, INT), "15000", Enforced, "Largest value that a group may have for share.heartbeat.interval.ms."),
    row("group.share.assignment.interval.ms", Int(0, INT), "1000", Enforced, "Assignments of a share group are not computed more often."),
    row("group.share.min.assignment.interval.ms", Int(0, INT), "0", Enforced, "Least value that a group may have for share.assignment.interval.ms."),
    row("group.share.max.assignment.interval.ms", Int(0, INT), "15000", Enforced, "Largest value that a group may have for share.assignment.interval.ms."),
    row("group.share.max.size", Int(1, 1000), "200", Enforced, "Most members of a share group."),
    row("group.share.assignors", OneOf(&["simple"]), "simple", Enforced, "The assignor of share groups."),
    row("group.share.record.lock.duration.ms", Int(1000, 3_600_000), "30000", Enforced, "How long a record is a member's before others may get it."),
    row("group.share.min.record.lock.duration.ms", Int(1000, 3_600_000), "15000", Enforced, "Least value that a group may have for share.record.lock.duration.ms."),
    row("group.share.max.record.lock.duration.ms", Int(1000, 3_600_000), "60000", Enforced, "Largest value that a group may have for share.record.lock.duration.ms."),
    row("group.share.delivery.count.limit", Int(2, 25), "5", Enforced, "How often a record of a share group is delivered at most."),
    row("group.share.min.delivery.count.limit", Int(2, 25), "2", Enforced, "Least value that a group may have for share.delivery.count.limit."),
    row("group.share.max.delivery.count.limit", Int(2, 25), "10", Enforced, "Largest value that a group may have for share.delivery.count.limit."),
    row("group.share.partition.max.record.locks", Int(100, 20_000), "2000", Enforced, "Records of a partition that may be out with members of a share group at once."),
    row("group.share.min.partition.max.record.locks", Int(100, 20_000), "100", Enforced, "Least value that a group may have for share.partition.max.record.locks."),
    row("group.share.max.partition.max.record.locks", Int(100, 20_000), "4000", Enforced, "Largest value that a group may have for share.partition.max.record.locks."),
    row("group.streams.session.timeout.ms", Int(1, INT), "45000", Enforced, "A member that is silent for so long is out of its streams group."),
    row("group.streams.min.session.timeout.ms", Int(1, INT), "45000", Enforced, "Least value that a group may have for streams.session.timeout.ms."),
    row("group.streams.max.session.timeout.ms", Int(1, INT), "60000", Enforced, "Largest value that a group may have for streams.session.timeout.ms."),
    row("group.streams.heartbeat.interval.ms", Int(1, INT), "5000", Enforced, "How often members of streams groups send heartbeats."),
    row("group.streams.min.heartbeat.interval.ms", Int(1, INT), "5000", Enforced, "Least value that a group may have for streams.heartbeat.interval.ms."),
    row("group.streams.max.heartbeat.interval.ms", Int(1, INT), "15000", Enforced, "Largest value that a group may have for streams.heartbeat.interval.ms."),
    row("group.streams.assignment.interval.ms", Int(0, INT), "1000", Enforced, "Tasks of a streams group are not given out more often."),
    row("group.streams.min.assignment.interval.ms", Int(0, INT), "0", Enforced, "Least value that a group may have for streams.assignment.interval.ms."),
    row("group.streams.max.assignment.interval.ms", Int(0, INT), "15000", Enforced, "Largest value that a group may have for streams.assignment.interval.ms."),
    row("group.streams.max.size", Int(1, INT), "2147483647", Enforced, "Most members of a streams group."),
    row("group.streams.num.standby.replicas", Int(0, INT), "0", Enforced, "How many members keep the state of a task that they do not run."),
    row("group.streams.max.standby.replicas", Int(0, INT), "2", Enforced, "Largest value that a group may have for streams.num.standby.replicas."),
    row("group.streams.initial.rebalance.delay.ms", Int(0, INT), "3000", Enforced, "A new streams group waits so long for more members before tasks are given out."),
    row("transaction.max.timeout.ms", Int(1, INT), "900000", Enforced, "Longest time-out that a transactional producer may ask for."),
    row("transactional.id.expiration.ms", Int(1, MAX), "604800000", Enforced, "Forget a transactional id that is not used for this long."),
    row("offset.metadata.max.bytes", Int(0, INT), "4096", Enforced, "Longest text beside a committed offset."),
    row("offsets.retention.minutes", Int(1, INT), "10080", Enforced, "Keep the offsets of an empty group this long."),
    row("quota.window.num", Int(2, INT), "11", Enforced, "Who used nothing of a quota for quota.window.size.seconds times one less than this may use at once what he may in that time."),
    row("quota.window.size.seconds", Int(1, INT), "1", Enforced, "See quota.window.num. A request waits at most this long because of request_percentage."),
    row("controller.quota.window.num", Int(2, INT), "11", Enforced, "As quota.window.num, for controller_mutation_rate."),
    row("controller.quota.window.size.seconds", Int(1, INT), "1", Enforced, "As quota.window.size.seconds, for controller_mutation_rate."),
    row("mainstem.journals", Int(1, 16), "1", Enforced, "Journals of the node; fixed when the data folder is created."),
    row("mainstem.segment.bytes", Int(262_144, 1 << 31), "268435456", Enforced, "Length of a journal's segment files. What is larger than half of one, a Kafka client's batch or an AMQP message with its headers, is refused: with 256 KiB, messages above 128 KiB."),
    row("mainstem.journal.window.bytes", Int(-1, MAX), "-1", Enforced, "The files of a journal take at most this much, the rest goes into the archive; more where the archive takes nothing, or where checkpoints leave less than four segments of it, which the log says; -1: no bound."),
    row("mainstem.archive.folder", Text, "", Enforced, "Folder of archive objects; empty: archive in the data folder."),
    row("mainstem.queue.ack.flush.ms", Int(0, 60_000), "50", Enforced, "What consumers say of messages of queues, and that one was purged, is durable this many milliseconds later: a crash before that gives these messages again."),
    row("mainstem.queue.consumer.timeout.ms", Int(0, MAX), "1800000", Enforced, "A consumer of a quorum queue may keep a message for so many milliseconds, where neither it nor its queue says otherwise."),
    row("mainstem.amqp.held.bytes", Int(0, 1 << 30), "1048576", Enforced, "Publishes of an AMQP connection that are held while a journal has no room for them; beyond it nothing is read."),
    row("mainstem.password.iterations", Int(1000, 10_000_000), "600000", Enforced, "Iterations of PBKDF2 for new passwords: what each guess costs who has stolen the hashes, and each first login the broker (0.2 µs an iteration)."),
    row("mainstem.password.rabbitmq.hash", Bool, "true", Enforced, "Keep of new passwords a hash that RabbitMQ knows as well (SHA-256), so that definitions let users in there. Who has stolen it tries passwords at no cost."),
    row("mainstem.shutdown.timeout.ms", Int(100, INT), "10000", Enforced, "A node that is told to end takes at most so long; then it ends as it is."),
    row("otel.exporter.otlp.endpoint", Text, "", Enforced, "Metrics go to a collector of OpenTelemetry by OTLP/HTTP: to v1/metrics below this address, http:// or https://. Empty: nowhere."),
    row("otel.exporter.otlp.headers.file", Text, "", Enforced, "File with headers for the collector, such as a key: NAME=VALUE, with commas or lines between. Empty: the environment variable OTEL_EXPORTER_OTLP_HEADERS."),
    row("otel.exporter.otlp.certificate", Text, "", Enforced, "PEM file of those who may have signed the certificate of the collector; empty: those whom the machine trusts."),
    row("otel.exporter.otlp.timeout", Int(1, 600_000), "10000", Enforced, "Milliseconds that an export may take."),
    row("otel.metric.export.interval", Int(100, 86_400_000), "60000", Enforced, "Milliseconds from one export to the next."),
    row("otel.service.name", Text, "mainstem", Enforced, "Attribute service.name of what is exported."),
    row("otel.resource.attributes", Text, "", Enforced, "More attributes of what is exported: NAME=VALUE, with commas between. service.instance.id is the cluster's id if it is not said here."),
    row("mainstem.metrics.series", Int(0, 100_000), "1000", Enforced, "Groups and topics that are named at /metrics with their backlog, those furthest behind first; the others are counted."),
    row("mainstem.shards", Int(0, crate::SHARDS_MAX as i64), "0", Enforced, "Network threads; 0: one per core."),
];

/// Settings of a topic.
#[rustfmt::skip]
pub const TOPIC: &[Setting] = &[
    row("cleanup.policy", ListOf(&["delete", "compact"]), "delete", Enforced, "delete lets old records go; compact keeps the newest of each key, and refuses records without one."),
    row("retention.ms", Int(-1, MAX), "604800000", Enforced, "Keep records this long; -1 for ever."),
    row("retention.bytes", Int(-1, MAX), "-1", Enforced, "Keep about this much of a partition; -1 everything."),
    row("max.message.bytes", Int(0, INT), "1048588", Enforced, "Largest record batch."),
    row("message.timestamp.type", OneOf(&["CreateTime", "LogAppendTime"]), "CreateTime", Enforced, "Whose clock record timestamps come from."),
    row("message.timestamp.before.max.ms", Int(0, MAX), "9223372036854775807", Enforced, "How far a timestamp may lie in the past."),
    row("message.timestamp.after.max.ms", Int(0, MAX), "3600000", Enforced, "How far a timestamp may lie in the future."),
    row("min.insync.replicas", Int(1, INT), "1", Inert, "There is one replica, and Kafka asks for no more than there are."),
    row("flush.messages", Int(1, MAX), "9223372036854775807", Enforced, "1 means durability fsync; other values have no effect."),
    row("mainstem.durability", OneOf(&["fsync", "memory"]), "fsync", Enforced, "When a record counts as acknowledged."),
    row("mainstem.producer.byte.rate", Int(-1, MAX), "-1", Enforced, "Bytes a second that may be produced, by all clients together; -1: any number; 0 counts as 1."),
    row("mainstem.consumer.byte.rate", Int(-1, MAX), "-1", Enforced, "Bytes a second that may be fetched, by all clients together; -1: any number; 0 counts as 1."),
    row("compression.type", OneOf(&["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]), "producer", Enforced, "producer keeps batches as they are made; with another value those of another codec are packed again."),
    row("compression.gzip.level", Int(-1, 9), "-1", Enforced, "How hard gzip tries when batches are packed again; -1 is its default."),
    row("compression.lz4.level", Int(1, 17), "9", DefaultOnly, "LZ4 has one level here."),
    row("compression.zstd.level", Int(-131_072, 22), "3", Enforced, "How hard zstd tries when batches are packed again."),
    row("remote.storage.enable", Bool, "false", DefaultOnly, "There is no remote storage."),
    row("segment.bytes", Int(1 << 20, INT), "1073741824", Enforced, "A partition is compacted when so much of it has not been; segment files are the journal's."),
    row("segment.ms", Int(1, MAX), "604800000", Enforced, "A partition is compacted when a record has been there this long without; segment files are the journal's."),
    row("segment.jitter.ms", Int(0, MAX), "0", Inert, "Segments are the journal's, not a topic's."),
    row("segment.index.bytes", Int(4, INT), "10485760", Inert, "Indexes are the journal's."),
    row("index.interval.bytes", Int(0, INT), "4096", Inert, "Indexes are the journal's."),
    row("preallocate", Bool, "false", Inert, "Segments are always preallocated."),
    row("file.delete.delay.ms", Int(0, MAX), "60000", Inert, "No file belongs to a topic."),
    row("flush.ms", Int(0, MAX), "9223372036854775807", Inert, "Durability decides when records are flushed."),
    row("min.cleanable.dirty.ratio", Ratio, "0.5", Enforced, "Compact when more than this part of a partition has not been compacted."),
    row("min.compaction.lag.ms", Int(0, MAX), "0", Enforced, "Do not compact records that are younger."),
    row("max.compaction.lag.ms", Int(1, MAX), "9223372036854775807", Enforced, "Compact whatever is older, however little it is."),
    row("delete.retention.ms", Int(0, MAX), "86400000", Enforced, "Keep records without a value, and markers of transactions, this long after they were compacted first."),
    row("unclean.leader.election.enable", Bool, "false", Inert, "There is one replica."),
    row("leader.replication.throttled.replicas", Replicas, "", Inert, "There is one replica."),
    row("follower.replication.throttled.replicas", Replicas, "", Inert, "There is one replica."),
    row("remote.log.copy.disable", Bool, "false", Inert, "There is no remote storage."),
    row("remote.log.delete.on.disable", Bool, "false", Inert, "There is no remote storage."),
    row("local.retention.ms", Int(-2, MAX), "-2", Inert, "There is no remote storage."),
    row("local.retention.bytes", Int(-2, MAX), "-2", Inert, "There is no remote storage."),
];

/// Bytes of a value, as of any string of Kafka's; records of settings say lengths by two bytes.
const VALUE_BYTES_MAX: usize = i16::MAX as usize;
/// So much of one that is longer is shown.
const SHOWN_CHARS_MAX: usize = 40;

/// A setting that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// As given.
    pub name: String,
    /// As given; `None` when the name is unknown.
    pub value: Option<String>,
    /// What would be right.
    pub expected: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            None => write!(f, "unknown setting {}: {}", self.name, self.expected),
            Some(value) => write!(f, "{} = {value:?} is not possible: {}", self.name, self.expected),
        }
    }
}

impl std::error::Error for SettingError {}

impl Setting {
    /// Is this value allowed?
    ///
    /// # Errors
    /// What would be right.
    pub fn check(&self, value: &str) -> Result<(), SettingError> {
        if value.len() > VALUE_BYTES_MAX {
            let begin = format!("{}…", value.chars().take(SHOWN_CHARS_MAX).collect::<String>());
            let expected = format!("it has {} bytes, at most {VALUE_BYTES_MAX} are allowed", value.len());
            return Err(SettingError { name: self.name.to_owned(), value: Some(begin), expected });
        }
        let fail = |expected: String| {
            Err(SettingError { name: self.name.to_owned(), value: Some(value.to_owned()), expected })
        };
        if self.class == DefaultOnly && value != self.default {
            return fail(format!("only {:?} is supported", self.default));
        }
        match self.kind {
            Bool if !matches!(value, "true" | "false") => fail("it is true or false".to_owned()),
            Int(low, high) => match value.trim().parse::<i64>() {
                Ok(number) if (low..=high).contains(&number) => Ok(()),
                _ => fail(format!("it is a whole number from {low} to {high}")),
            },
            Ratio if !value.trim().parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)) => {
                fail("it is a number from 0 to 1".to_owned())
            }
            OneOf(words) if !words.contains(&value) => fail(format!("it is one of {}", words.join(", "))),
            ListOf(words) if !value.is_empty() && !value.split(',').all(|word| words.contains(&word.trim())) => {
                fail(format!("it is a list of {}", words.join(", ")))
            }
            Replicas if !is_replicas(value.trim()) => fail("it is a list of partition:node, or *".to_owned()),
            _ => Ok(()),
        }
    }
}

fn is_replicas(value: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let replica =
        |text: &str| text.trim().split_once(':').is_some_and(|(partition, node)| number(partition) && number(node));
    value.is_empty() || value == "*" || value.split(',').all(replica)
}

impl Setting {
    /// A value as it is shown: words of a list once, without spaces around them.
    pub fn shown(&self, value: &str) -> String {
        let ListOf(_) = self.kind else { return value.to_owned() };
        let mut words: Vec<&str> = Vec::new();
        for word in value.split(',').map(str::trim) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words.join(",")
    }
}

/// The row with this name.
///
/// # Errors
/// Bytes of a name that may be a mistyped one: a client may send one of many MB, and each name there is would be compared with it.
const MISTYPED_MAX: usize = 128;

/// The setting of that name; otherwise the error names the one that was probably meant.
pub fn find(table: &'static [Setting], name: &str) -> Result<&'static Setting, SettingError> {
    table.iter().find(|row| row.name == name).ok_or_else(|| {
        let nearest = nearest(table.iter().map(|row| row.name), name);
        let expected =
            if nearest.is_empty() { "there is no such setting".to_owned() } else { format!("did you mean {nearest}?") };
        SettingError { name: name.to_owned(), value: None, expected }
    })
}

/// The word with the fewest edits to `text`; empty when there are no words, or the text is longer than any that is mistyped.
pub fn nearest(words: impl Iterator<Item = &'static str>, text: &str) -> &'static str {
    if text.len() > MISTYPED_MAX { "" } else { words.min_by_key(|word| distance(word, text)).unwrap_or_default() }
}

/// Edits from one text to another; it takes as many steps as the product of their lengths.
pub fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, against) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *against);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// Values of the broker's settings: defaults, and what was set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    set: std::collections::BTreeMap<&'static str, String>,
    /// Of single listeners: by the listener's name in small letters and the setting's.
    listeners: std::collections::BTreeMap<(String, &'static str), String>,
    /// Of those that were set while the broker ran: for whom.
    changed: std::collections::BTreeMap<&'static str, Source>,
}

/// What may be said of one listener.
const OF_LISTENERS: [&str; 2] = ["sasl.enabled.mechanisms", "connections.max.reauth.ms"];
const LISTENER_PREFIX: &str = "listener.name.";

/// The setting that [`retention_in_ms`] is about.
pub const RETENTION: &str = "log.retention.ms";

/// The value that `log.retention.minutes` and `log.retention.hours` are for `log.retention.ms`; `None` for other settings.
///
/// # Errors
/// A value that is no number, or too large.
pub fn retention_in_ms(name: &str, value: &str) -> Result<Option<String>, SettingError> {
    let scale = match name {
        "log.retention.minutes" => 60_000,
        "log.retention.hours" => 3_600_000,
        _ => return Ok(None),
    };
    let number =
        value.parse::<i64>().ok().and_then(|count| if count < 0 { Some(-1) } else { count.checked_mul(scale) });
    let refused = || SettingError {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        expected: "it is a whole number".to_owned(),
    };
    number.ok_or_else(refused).map(|number| Some(number.to_string()))
}

impl Settings {
    /// Sets one; `log.retention.minutes` and `log.retention.hours` are taken as the milliseconds they are.
    ///
    /// # Errors
    /// Unknown name or impossible value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        if let Some(milliseconds) = retention_in_ms(name, value)? {
            return self.set(RETENTION, &milliseconds);
        }
        if let Some(rest) = name.strip_prefix(LISTENER_PREFIX) {
            let own = OF_LISTENERS.iter().find_map(|own| Some((rest.strip_suffix(own)?.strip_suffix('.')?, *own)));
            let Some((listener, own)) = own.filter(|(listener, _)| !listener.is_empty()) else {
                let expected = format!(
                    "of one listener there are {LISTENER_PREFIX}NAME.{}",
                    OF_LISTENERS.join(&format!(" and {LISTENER_PREFIX}NAME."))
                );
                return Err(SettingError { name: name.to_owned(), value: None, expected });
            };
            find(BROKER, own)?.check(value).map_err(|error| SettingError { name: name.to_owned(), ..error })?;
            self.listeners.insert((listener.to_ascii_lowercase(), own), value.trim().to_owned());
            return Ok(());
        }
        let row = find(BROKER, name)?;
        row.check(value)?;
        self.set.insert(row.name, value.trim().to_owned());
        Ok(())
    }

    /// Sets one while the broker runs, for this node or for all.
    ///
    /// # Errors
    /// Unknown name or impossible value.
    pub(crate) fn change(&mut self, name: &str, value: &str, source: Source) -> Result<(), SettingError> {
        let row = find(BROKER, name)?;
        self.set(row.name, value)?;
        self.changed.insert(row.name, source);
        Ok(())
    }

    /// Where the value in force is from.
    ///
    /// # Panics
    /// When there is no such setting.
    pub fn source(&self, name: &str) -> Source {
        let (_, set) = self.text(name);
        self.changed.get(name).copied().unwrap_or(if set { Source::Broker } else { Source::Default })
    }

    /// Do the settings fit each other?
    ///
    /// # Errors
    /// The first one that does not.
    pub fn check(&self) -> Result<(), SettingError> {
        let refuse = |name: &str, expected: String| {
            Err(SettingError { name: name.to_owned(), value: Some(self.text(name).0.to_owned()), expected })
        };
        for low in BROKER.iter().map(|row| row.name).filter(|name| name.starts_with("group.") && name.contains(".min."))
        {
            let high = low.replacen(".min.", ".max.", 1);
            let name = low.replacen(".min.", ".", 1);
            let Some((name, high)) =
                BROKER.iter().find(|row| row.name == name).zip(BROKER.iter().find(|row| row.name == high))
            else {
                continue;
            };
            let (name, high) = (name.name, high.name);
            if self.int(low) > self.int(high) {
                return refuse(low, format!("it is no more than {high}, which is {}", self.int(high)));
            }
            if !(self.int(low)..=self.int(high)).contains(&self.int(name)) {
                return refuse(
                    name,
                    format!("it is from {low} to {high}, which are {} and {}", self.int(low), self.int(high)),
                );
            }
        }
        for kind in ["consumer", "share"] {
            let (heartbeat, session) =
                (format!("group.{kind}.heartbeat.interval.ms"), format!("group.{kind}.session.timeout.ms"));
            if self.int(&heartbeat) >= self.int(&session) {
                return refuse(&heartbeat, format!("it is less than {session}, which is {}", self.int(&session)));
            }
        }
        let assignors = self.text("group.consumer.assignors").0;
        if assignors.is_empty() {
            return refuse("group.consumer.assignors", "it names at least one".to_owned());
        }
        let mut super_users = self.text("super.users").0.split(';').map(str::trim).filter(|one| !one.is_empty());
        // Names of certificates have commas: one before another `User:` was meant to be a semicolon.
        if super_users
            .any(|one| one.strip_prefix("User:").is_none_or(|name| name.is_empty() || name.contains(",User:")))
        {
            return refuse("super.users", "it names users as User:NAME, with semicolons between them".to_owned());
        }
        Ok(())
    }

    /// The value in force, as text, and whether it was set.
    ///
    /// # Panics
    /// When there is no such setting.
    pub fn text(&self, name: &str) -> (&str, bool) {
        let row = BROKER.iter().find(|row| row.name == name).expect("a setting of the table");
        self.set.get(row.name).map_or((row.default, false), |value| (value.as_str(), true))
    }

    /// The value in force for one listener, as text.
    ///
    /// # Panics
    /// When there is no such setting.
    pub fn of_listener(&self, listener: &str, name: &'static str) -> &str {
        let own = self.listeners.get(&(listener.to_ascii_lowercase(), name));
        own.map_or_else(|| self.text(name).0, String::as_str)
    }

    /// The listeners of which something is said, in small letters.
    pub fn listeners_named(&self) -> impl Iterator<Item = &str> {
        self.listeners.keys().map(|(listener, _)| listener.as_str())
    }

    /// A numeric setting.
    ///
    /// # Panics
    /// When there is no such number.
    pub fn int(&self, name: &str) -> i64 {
        self.text(name).0.parse().expect("checked when it was set")
    }

    /// A setting that is true or false.
    pub fn bool(&self, name: &str) -> bool {
        self.text(name).0 == "true"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_network_threads_than_have_numbers() {
        let threads = find(BROKER, "mainstem.shards").expect("a setting");
        assert!(
            threads.check(&crate::SHARDS_MAX.to_string()).is_ok()
                && threads.check(&(crate::SHARDS_MAX + 1).to_string()).is_err()
        );
    }

    #[test]
    fn a_name_that_nobody_has_mistyped_is_compared_with_none() {
        let told = |name: &str| find(BROKER, name).map(|row| row.name).map_err(|error| error.expected);
        assert_eq!(told("log.retention.mss"), Err("did you mean log.retention.ms?".to_owned()));
        // It would be billions of steps.
        assert_eq!(told(&"x".repeat(16 << 20)), Err("there is no such setting".to_owned()));
    }

    #[test]
    fn no_value_is_longer_than_records_of_settings_can_say() {
        let long = |text: &str| format!("{text}{}", " ".repeat(VALUE_BYTES_MAX + 1 - text.len()));
        let kinds = [
            ("retention.ms", "1"),
            ("min.cleanable.dirty.ratio", "0.5"),
            ("cleanup.policy", "delete"),
            ("leader.replication.throttled.replicas", ""),
        ];
        for (name, value) in kinds {
            let row = find(TOPIC, name).expect("a setting");
            assert_eq!(row.check(value), Ok(()));
            let refused = row.check(&long(value)).expect_err("it is too long");
            assert!(
                refused.value.is_some_and(|shown| shown.len() < 100) && refused.expected.contains("32767"),
                "{name}"
            );
        }
    }
}
