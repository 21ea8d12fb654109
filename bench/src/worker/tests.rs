//! A worker in this process and one behind HTTP, against brokers that keep nothing.

use std::time::Duration;

use super::*;
use crate::null::{self, Null, Options};
use crate::workload::Workload;

fn job(null: &Null, workload: Workload) -> Job {
    let workload = Workload { subscriptions_per_topic: 0, consumer_per_subscription: 0, ..workload };
    Job::plain("kafka", &null.address.to_string(), "test", workload)
}

const PATIENCE: Duration = Duration::from_secs(30);

fn whole() -> Share {
    Share { worker: 0, workers: 1 }
}

/// Samples of a worker at a speed, added up over so many milliseconds, and how many messages a second those that were sent are at most: the machine may have
/// had other things to do, so that it took longer.
fn load(worker: &mut dyn Worker, speed: Speed, millis: u64) -> (Sample, f64) {
    let began = std::time::Instant::now();
    worker.set_speed(speed).unwrap();
    std::thread::sleep(Duration::from_millis(millis));
    worker.set_speed(Speed::Still).unwrap();
    let seconds = began.elapsed().as_secs_f64();
    // What is on its way is answered.
    std::thread::sleep(Duration::from_millis(200));
    let mut sample = worker.sample().unwrap();
    while sample.in_flight > 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
        let more = worker.sample().unwrap();
        sample.add(&more);
        sample.in_flight = more.in_flight;
    }
    let rate = sample.handed.messages.messages as f64 / seconds;
    (sample, rate)
}

#[test]
fn a_rate_is_kept_and_everything_is_accounted_for() {
    let null = null::start("kafka", Options { partitions: 4 }).unwrap();
    let mut worker = Local::new(Clock::local());
    worker.begin(&job(&null, Workload { producers_per_topic: 3, ..Workload::default() }), whole()).unwrap();
    let (sample, rate) = load(&mut worker, Speed::Rate(5000.0), 1000);
    let sent = sample.handed.messages.messages;
    assert!((2500.0..5100.0).contains(&rate), "{rate} messages a second at 5,000 a second");
    assert_eq!((sample.published.acknowledged, sample.published.failed, sample.in_flight), (sent, 0, 0));
    assert_eq!(sample.published.since_due.count(), sent);
}

#[test]
fn who_waits_for_each_confirm_has_one_message_on_its_way() {
    let null = null::start("kafka", Options { partitions: 1 }).unwrap();
    let mut worker = Local::new(Clock::local());
    let workload = Workload { confirm: Confirm::Each, linger_ms: 5.0, saturate: true, ..Workload::default() };
    worker.begin(&job(&null, workload), whole()).unwrap();
    let (sample, rate) = load(&mut worker, Speed::Full, 500);
    assert!((2.0..=210.0).contains(&rate), "{rate} messages a second of 5 ms each");
    assert!(sample.handed.held_back > 0, "it waited");
}

#[test]
fn workers_elsewhere_share_a_job() {
    let null = null::start("kafka", Options { partitions: 4 }).unwrap();
    let workload = Workload { producers_per_topic: 2, ..Workload::default() };
    let mut workers: Vec<Box<dyn Worker>> = Vec::new();
    for _ in 0..2 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || serve(listener));
        workers.push(Box::new(Remote::connect(&address).unwrap()));
    }
    for (number, worker) in workers.iter_mut().enumerate() {
        assert!(worker.clock_uncertainty_ms() < 500.0);
        worker.begin(&job(&null, workload.clone()), Share { worker: number, workers: 2 }).unwrap();
    }
    let samples: Vec<(Sample, f64)> =
        workers.iter_mut().map(|worker| load(worker.as_mut(), Speed::Rate(2000.0), 500)).collect();
    for (sample, rate) in &samples {
        assert!((500.0..1100.0).contains(rate), "half of 2,000 a second: {rate}");
        assert!(sample.published.since_due.quantile_ms(0.5).unwrap() < 1000.0, "clocks agree");
    }
    assert_ne!(samples[0].0.handed.messages.sum, samples[1].0.handed.messages.sum, "each sent its own");
}

#[test]
fn a_worker_refuses_with_a_reason() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || serve(listener));
    let mut worker = Remote::connect(&address).unwrap();
    let said = worker.sample().unwrap_err().to_string();
    assert!(said.ends_with("no job has begun"), "{said}");
    assert!(Remote::connect("127.0.0.1:1").is_err());
}
