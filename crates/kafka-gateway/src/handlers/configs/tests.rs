//! Changes of lists, and which settings are described.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use broker::{BrokerConfig, CreateTopic, Settings};
use journal::disk::{IoMode, RealStorage, submitter};
use journal::{JournalConfig, MemoryArchive};
use types::{Durability, NodeId, SystemClock};

use super::*;

const LIST: &str = "leader.replication.throttled.replicas";

fn words(range: std::ops::Range<usize>) -> String {
    range.map(|number| format!("{number}:0")).collect::<Vec<String>>().join(",")
}

/// Compared each with each it would not end.
#[test]
fn words_of_long_lists_are_added_and_taken_away() {
    const MANY: usize = 200_000;
    let mut overrides = Overrides::from([(LIST.to_owned(), words(0..MANY))]);
    let mut change = |change| {
        let current = |overrides: &Overrides| overrides[LIST].clone();
        changed(&mut overrides, TOPIC, current, LIST, change).expect("a list");
        overrides[LIST].split(',').filter(|word| !word.is_empty()).count()
    };
    assert_eq!(change(Change::Append(words(MANY / 2..2 * MANY))), 2 * MANY, "what is there is not added again");
    assert_eq!(change(Change::Subtract(words(0..MANY))), MANY);
    assert_eq!(change(Change::Append("7:0".to_owned())), MANY + 1);
    assert_eq!(change(Change::Subtract(words(0..2 * MANY))), 0);
}

/// Of settings that nobody asks for nothing is made, however often their resource is named.
#[test]
fn only_those_settings_are_made_that_are_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(folder.path());
    let topic = CreateTopic { name: "t".to_owned(), partitions: 1, replication: 1, overrides: Overrides::default() };
    assert!(node.broker.create_topics(vec![topic]).into_iter().all(|outcome| outcome.is_ok()));
    for (kind, name, key) in [
        (RESOURCE_TOPIC, "t", "retention.ms"),
        (RESOURCE_BROKER, "0", "num.partitions"),
        (RESOURCE_BROKER, "0", "advertised.listeners"),
        (GROUP, "g", "share.session.timeout.ms"),
    ] {
        let made = |keys: &[&str]| {
            let configuration_keys = Some(keys.iter().map(|key| Str::from(*key)).collect());
            let resource = DescribeConfigsResource {
                resource_type: kind,
                resource_name: name.into(),
                configuration_keys,
                ..Default::default()
            };
            settings_of(&node.broker, &resource, ("localhost", 9092))
                .map(|rows| rows.iter().map(|row| row.setting.name).collect::<Vec<_>>())
        };
        assert!(made(&[]).is_ok_and(|all| all.len() > 5 && all.contains(&key)), "all of {name}");
        assert_eq!(made(&[key, "other", key]), Ok(vec![key]));
        assert_eq!(made(&["other"]), Ok(Vec::new()));
    }
    node.stop();
}

/// A broker on a journal.
struct Node {
    broker: Arc<Broker>,
    journal: Arc<journal::Journal>,
    of_broker: Vec<JoinHandle<()>>,
    of_journal: [JoinHandle<()>; 2],
}

impl Node {
    fn start(folder: &Path) -> Self {
        let config = JournalConfig { segment_bytes: 1 << 20, tail_bytes: 16 << 20, ..JournalConfig::default() };
        let storage = Arc::new(RealStorage::open(folder, IoMode::Buffered).expect("a folder"));
        let disk = submitter(IoMode::Buffered).expect("it blocks");
        let opened = journal::open(
            config,
            storage,
            Arc::new(MemoryArchive::default()),
            disk,
            Arc::new(SystemClock),
            uuid::Uuid::from_u128(7),
        )
        .expect("it opens");
        let (writer, keeper, journal) = (opened.writer, opened.keeper, opened.journal);
        let of_journal = [std::thread::spawn(move || writer.run()), std::thread::spawn(move || keeper.run())];
        let config = BrokerConfig {
            cluster_id: "cluster".to_owned(),
            node_id: NodeId(0),
            settings: Settings::default(),
            durability: Durability::Fsync,
            clock: Arc::new(SystemClock),
        };
        let broker = Broker::open(config, vec![Arc::clone(&journal)]).expect("the catalog is readable");
        let of_broker = broker.start();
        Self { broker, journal, of_broker, of_journal }
    }

    fn stop(self) {
        self.broker.shutdown();
        self.of_broker.into_iter().for_each(|thread| thread.join().expect("no panic"));
        self.journal.shutdown();
        self.of_journal.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}
