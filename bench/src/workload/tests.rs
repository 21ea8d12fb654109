//! OpenMessaging's fields, our additions, and what is said of mistakes.

use super::*;

/// (name, topics, partitions, size, subscriptions, producers, consumers, rate, backlog GB, minutes): values of workload
/// files that OpenMessaging Benchmark publishes.
type Published = (&'static str, u32, u32, u32, u32, u32, u32, f64, f64, f64);
const PUBLISHED: &[Published] = &[
    ("1-topic-1-partition-1kb", 1, 1, 1024, 1, 1, 1, 50_000.0, 0.0, 15.0),
    ("1-topic-1-partition-100b", 1, 1, 100, 1, 1, 1, 50_000.0, 0.0, 15.0),
    ("1-topic-16-partitions-1kb", 1, 16, 1024, 1, 1, 1, 50_000.0, 0.0, 15.0),
    ("1-topic-16-partitions-100b", 1, 16, 100, 1, 1, 1, 50_000.0, 0.0, 15.0),
    ("1-topic-100-partitions-1kb-4p-4c-200k", 1, 100, 1024, 1, 4, 4, 200_000.0, 0.0, 15.0),
    ("10-topic-1-partition-1kb", 10, 1, 1024, 1, 1, 1, 50_000.0, 0.0, 15.0),
    ("20-topics-1-partition-10kb", 20, 1, 10_240, 1, 1, 1, 10_000.0, 0.0, 15.0),
    ("100-topics-1-partition-1kb", 100, 1, 1024, 1, 1, 1, 50_000.0, 0.0, 15.0),
    ("max-rate-1-topic-1-partition-1kb", 1, 1, 1024, 1, 1, 1, 0.0, 0.0, 5.0),
    ("max-rate-1-topic-1-partition-100b", 1, 1, 100, 1, 1, 1, 0.0, 0.0, 5.0),
    ("backlog-1-topic-1-partition-1kb", 1, 1, 1024, 1, 1, 1, 100_000.0, 100.0, 5.0),
    ("backlog-1-topic-16-partitions-1kb", 1, 16, 1024, 1, 1, 1, 100_000.0, 100.0, 5.0),
];

#[test]
fn published_workloads_parse_and_run_shortened() {
    for &(name, topics, partitions, size, subscriptions, producers, consumers, rate, backlog, minutes) in PUBLISHED {
        let text = format!(
            "name: {name}\n\ntopics: {topics}\npartitionsPerTopic: {partitions}\nkeyDistributor: \"NO_KEY\"\n\
             messageSize: {size}\npayloadFile: \"payload/payload-1Kb.data\"\nsubscriptionsPerTopic: {subscriptions}\n\
             consumerPerSubscription: {consumers}\nproducersPerTopic: {producers}\nproducerRate: {rate}\n\
             consumerBacklogSizeGB: {backlog}\ntestDurationMinutes: {minutes}\n"
        );
        let workload = Workload::parse(&text).expect(name);
        assert_eq!((workload.topics, workload.partitions_per_topic), (topics, partitions), "{name}");
        assert_eq!(workload.searches(), rate == 0.0, "{name}");
        assert_eq!(workload.test_time(), Duration::from_secs_f64(minutes * 60.0), "{name}");
        let short = workload.within(6.0).expect(name);
        assert_eq!(short.test_time(), Duration::from_secs(6), "{name}");
        assert!(short.consumer_backlog_size_gb <= backlog / 50.0, "{name}: {}", short.consumer_backlog_size_gb);
    }
}

#[test]
fn every_field_of_the_published_format_counts() {
    let text = "useRandomizedPayloads: true\nrandomBytesRatio: 0.5\nrandomizedPayloadPoolSize: 100\n\
                keyDistributor: KEY_ROUND_ROBIN\nbacklogDrainRatio: 0.8\nwarmupDurationMinutes: 2";
    let workload = Workload::parse(text).expect("it parses");
    assert_eq!(workload.random_bytes_ratio, 0.5);
    assert_eq!(workload.randomized_payload_pool_size, 100);
    assert_eq!(workload.key_distributor, KeyDistributor::KeyRoundRobin);
    assert_eq!(workload.backlog_drain_ratio, 0.8);
    assert_eq!(workload.warmup_time(), Duration::from_secs(120));
}

#[test]
fn mistakes_are_named() {
    let said = |text: &str| format!("{:#}", Workload::parse(text).expect_err(text));
    assert_eq!(said("partitionPerTopic: 3"), "unknown key `partitionPerTopic`; did you mean `partitionsPerTopic`?");
    assert_eq!(said("testSecond: 3"), "unknown key `testSecond`; did you mean `testSeconds`?");
    assert!(said("messageSize: 8").starts_with("messageSize is 8: at least 16 bytes"), "{}", said("messageSize: 8"));
    assert_eq!(said("testSeconds: -1"), "testSeconds is -1: from 0 to 1000000");
    assert!(Workload::default().within(f64::NAN).is_err() && Workload::default().within(-1.0).is_err());
    assert_eq!(said("topics: 0"), "topics is 0: at least 1");
    assert_eq!(said("randomBytesRatio: 1.5"), "randomBytesRatio is 1.5: from 0 to 1");
    assert!(said("confirm: sometimes").contains("`each`, `batch`, `async`"), "{}", said("confirm: sometimes"));
    assert!(said("- a\n- b").starts_with("not a YAML mapping"), "{}", said("- a\n- b"));
    assert_eq!(
        said("confirm: each\nproducersPerTopic: 2000"),
        "2000 producers that wait for their confirms: at most 1024"
    );
}
