//! What a topic's settings come to.

use super::*;

fn config(overrides: &[(&str, &str)], broker: &[(&str, &str)]) -> TopicConfig {
    let mut settings = Settings::default();
    for (name, value) in broker {
        settings.set(name, value).expect("a setting of the broker");
    }
    let overrides = overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    TopicConfig::new(overrides, &settings, Durability::Memory)
}

#[test]
fn one_flush_a_message_means_durability_fsync() {
    assert_eq!(config(&[], &[]).durability, Durability::Memory);
    assert_eq!(config(&[("flush.messages", "1")], &[]).durability, Durability::Fsync);
    assert_eq!(
        config(&[("flush.messages", "1"), ("mainstem.durability", "memory")], &[]).durability,
        Durability::Fsync
    );
    assert_eq!(config(&[("flush.messages", "2")], &[]).durability, Durability::Memory);
    assert_eq!(config(&[("mainstem.durability", "fsync")], &[]).durability, Durability::Fsync);
}

#[test]
fn a_topic_has_the_brokers_retention_unless_it_says_otherwise() {
    let broker = [("log.retention.ms", "1000"), ("log.retention.bytes", "5000")];
    assert_eq!(config(&[], &broker).retention, Retention { ms: Some(1000), bytes: Some(5000) });
    assert_eq!(config(&[("retention.ms", "-1")], &broker).retention, Retention { ms: None, bytes: Some(5000) });
    assert_eq!(config(&[("cleanup.policy", "compact")], &broker).retention, Retention::default());
    let both = config(&[("cleanup.policy", "compact,delete")], &broker);
    assert_eq!((both.retention.ms, both.compacted, both.compacted_only), (Some(1000), true, false));
    assert_eq!((both.compaction.map(|how| how.segment_ms), config(&[], &broker).compaction), (Some(604_800_000), None));
    let policies = [("cleanup.policy", " compact, compact"), ("min.cleanable.dirty.ratio", "0.25")];
    let how = config(&policies, &[("log.cleaner.delete.retention.ms", "77")]).compaction.expect("it is compacted");
    assert_eq!((how.dirty_ratio, how.delete_retention_ms), (0.25, 77));
}

#[test]
fn limits_of_batches_come_from_topic_or_broker() {
    assert_eq!(config(&[], &[("message.max.bytes", "77")]).max_message_bytes, 77);
    assert_eq!(config(&[("max.message.bytes", "5")], &[("message.max.bytes", "77")]).max_message_bytes, 5);
    assert!(config(&[], &[("log.message.timestamp.type", "LogAppendTime")]).append_time);
}
