//! Comparisons of targets that run already: null brokers in this process.

use super::*;
use crate::null::{self, Null, Options};

/// A target of this name for a null broker.
fn target(name: &str, null: &Null) -> Target {
    let text = format!(
        "name = \"{name}\"\ntitle = \"Null\"\ndriver = \"amqp\"\naddress = \"{}\"\n[memory]\nnote = \"keeps nothing\"\n",
        null.address
    );
    toml::from_str(&text).unwrap()
}

fn comparison(folder: &std::path::Path, target: Target, workload: &str) -> Comparison {
    let workload = Workload::parse(workload).unwrap();
    let places = Places {
        peers: folder.join("none"),
        peers_home: folder.join("none"),
        mainstem: folder.join("none"),
        scratch: folder.join("scratch"),
    };
    std::fs::create_dir_all(&places.scratch).unwrap();
    Comparison {
        experiments: vec![Experiment::of_workload("look", workload, target.name.clone())],
        targets: vec![target],
        pairs: None,
        again_pairs: u32::MAX,
        workers: Vec::new(),
        places,
        store: Store::open(&folder.join("out")).unwrap(),
        command: String::new(),
        seed: 5,
    }
}

const SLOW: &str = "messageSize: 200\nproducerRate: 200\nlingerMs: 0\nwindow: 100\nclients: 1\nthreads: 1\n\
                    warmupSeconds: 3\nwarmupWindowSeconds: 1\ntestSeconds: 3\n";

#[test]
fn a_fixed_rate_is_never_the_first_load_of_a_target() {
    let folder = tempfile::tempdir().unwrap();
    let null = null::start("amqp", Options::default()).unwrap();
    let comparison = comparison(folder.path(), target("null", &null), &format!("{SLOW}primingSeconds: 3\n"));
    assert_eq!(comparison.make(&AtomicBool::new(false), None).unwrap(), 0);
    let run = comparison.store.runs().unwrap().remove(0);
    let priming = run.priming.expect("it was primed");
    assert!(priming.seconds >= 3.0 && priming.least_s == 3.0, "{priming:?}");
    assert!(priming.best_rate > 5.0 * run.measured.publish_rate, "at full speed: {priming:?}");
    assert!(priming.received >= priming.published / 2, "its consumers read along: {priming:?}");
    assert!((100.0..210.0).contains(&run.measured.publish_rate), "its topics are its own: {:?}", run.measured);
    assert_eq!(run.verdict.complete, Some(true), "{:?}", run.verdict);
}

#[test]
fn a_start_is_primed_once_for_all_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let null = null::start("amqp", Options::default()).unwrap();
    let mut comparison = comparison(folder.path(), target("null", &null), &format!("{SLOW}primingSeconds: 3\n"));
    let mut other = comparison.experiments[0].clone();
    other.record.id = "other".to_owned();
    comparison.experiments.push(other);
    comparison.make(&AtomicBool::new(false), None).unwrap();
    let runs = comparison.store.runs().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].priming, runs[1].priming, "one priming");
    let priming = runs[0].priming.as_ref().expect("they were primed");
    assert!(priming.seconds >= 3.0 && ["look", "other"].contains(&priming.by.as_str()), "{priming:?}");
    let places: std::collections::BTreeSet<u32> = runs.iter().map(|run| run.position.place).collect();
    assert_eq!(places, [0, 1].into(), "in one start");
}

#[test]
fn what_there_is_no_time_for_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let null = null::start("amqp", Options::default()).unwrap();
    let mut comparison = comparison(folder.path(), target("null", &null), &format!("{SLOW}primingSeconds: 0\n"));
    comparison.pairs = Some(2);
    let now = std::time::Instant::now();
    assert_eq!(comparison.make(&AtomicBool::new(false), Some(now)).unwrap(), 1, "the first start is made in any case");
    let cuts = crate::report::collect(&comparison.store).unwrap().cuts;
    assert_eq!(cuts, ["pair 2 of null: look were not made, there was no time"]);
}

#[test]
fn what_is_not_to_be_seen_of_a_broker_is_not_measured_and_never_zero() {
    let folder = tempfile::tempdir().unwrap();
    let null = null::start("amqp", Options::default()).unwrap();
    let comparison = comparison(folder.path(), target("theirs", &null), &format!("{SLOW}primingSeconds: 0\n"));
    comparison.make(&AtomicBool::new(false), None).unwrap();
    let run = comparison.store.runs().unwrap().remove(0);
    let broker = serde_json::to_value(&run.broker).unwrap();
    let told: Vec<&String> =
        broker.as_object().unwrap().iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name).collect();
    assert_eq!(told, ["processes"], "{broker}");
    assert!(run.timeline.iter().all(|moment| moment.broker_cores.is_none() && moment.broker_memory_mb.is_none()));
    let processor = run.processor.expect("the machine is measured all the same");
    assert!(processor.busy_s > 0.0 && processor.broker_s.is_none() && processor.others_s.is_none(), "{processor:?}");
    let of_others = run.verdict.remarks.iter().any(|remark| remark.contains("other processes"));
    assert!(!of_others, "what others use cannot be told: {:?}", run.verdict);
    let report = crate::report::collect(&comparison.store).unwrap();
    crate::report::write(&report, comparison.store.folder()).unwrap();
    let tables = std::fs::read_to_string(comparison.store.folder().join("report.md")).unwrap();
    assert_eq!(tables.matches("not measured").count(), 3, "processor time, memory, disk: {tables}");
}

#[test]
fn a_run_that_is_not_primed_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let null = null::start("amqp", Options::default()).unwrap();
    let comparison = comparison(folder.path(), target("null", &null), &format!("{SLOW}primingSeconds: 0\n"));
    comparison.make(&AtomicBool::new(false), None).unwrap();
    let run = comparison.store.runs().unwrap().remove(0);
    assert_eq!(run.priming, None);
    assert!(run.verdict.remarks.iter().any(|remark| remark.starts_with("not primed")), "{:?}", run.verdict);
}
