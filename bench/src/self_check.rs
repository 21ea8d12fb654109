//! Does the benchmark find what it is made to find? Before anything is compared, a proxy before a null broker plants faults, and what a run or the
//! findings say of them is looked at. A session that misses one writes no report.
//!
//! | planted | must be told by |
//! |---|---|
//! | confirms that take 10 % longer, in six pairs | the findings: a difference of 5 to 15 % beyond the floor |
//! | a stall of 200 ms | the longest publish latency |
//! | a lost, a doubled message | the sums of what was sent and received |
//! | a message after the next one | the order within a queue |
//! | a changed byte | the checksum of the content |

mod proxy;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::clock::Clock;
use crate::drivers::{self, Job};
use crate::findings;
use crate::null::{self, Options};
use crate::progress::Progress;
use crate::result::{Conclusion, FORMAT, Figure, Finding, Machine, Position, Priming, Run, TargetRecord};
use crate::run::{self, Brought, Setting};
use crate::store::Store;
use crate::worker::{Local, Worker};
use crate::workload::{Confirm, Workload};
use proxy::{Fault, Proxy};

const PAIRS: u32 = 6;
/// Between two confirms, and by how much more where a slow-down is planted.
const PACE: Duration = Duration::from_micros(4000);
const SLOWER: f64 = 1.1;
const STALL: Duration = Duration::from_millis(200);
/// In the middle of what is measured: a second to connect, up to three of warm-up, then three.
const STALL_AFTER: Duration = Duration::from_millis(5700);
/// Late enough to be a message of the measured time, at the rate of these runs.
const DELIVERY: u64 = 800;

/// Checks this build once for each folder of results.
///
/// # Errors
/// A planted fault was missed, which is named, or a run broke off.
pub fn once(store: &Store) -> Result<()> {
    let build = build();
    let mut state = store.state();
    if state.self_checked.as_ref() == Some(&build) {
        return Ok(());
    }
    println!("planting faults that must be found");
    let missed = missed()?;
    ensure!(missed.is_empty(), "no report: the benchmark does not find what was planted: {}", missed.join("; "));
    println!("all of them were found");
    state.self_checked = Some(build);
    store.keep_state(&state)
}

/// Tells builds apart.
fn build() -> String {
    let changed = std::env::current_exe().and_then(std::fs::metadata).and_then(|file| file.modified()).ok();
    let seconds =
        changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |since| since.as_secs());
    format!("{} {seconds}", env!("CARGO_PKG_VERSION"))
}

/// The planted faults that were not found.
fn missed() -> Result<Vec<String>> {
    let faults = [
        Fault::Stall { after: STALL_AFTER, time: STALL },
        Fault::Lose(DELIVERY),
        Fault::Double(DELIVERY),
        Fault::Swap(DELIVERY),
        Fault::Change(DELIVERY),
    ];
    std::thread::scope(|scope| {
        let runs = faults.map(|fault| (fault, scope.spawn(move || make(fault, &steady()))));
        let slow = slow_down().map(|finding| missed_slow_down(finding.as_ref(), SLOWER));
        let mut missed: Vec<String> = Vec::new();
        for (fault, run) in runs {
            let brought = run.join().map_err(|_| anyhow::anyhow!("a run of the self-check broke off"))??;
            missed.extend(missed_fault(fault, &brought));
        }
        missed.extend(slow?);
        Ok(missed)
    })
}

/// Some messages at a fixed rate, with a consumer.
fn steady() -> Workload {
    Workload {
        message_size: 200,
        producer_rate: 200.0,
        linger_ms: 0.0,
        window: 1000,
        clients: 1,
        threads: 1,
        warmup_seconds: Some(3.0),
        warmup_window_seconds: 1.0,
        test_seconds: Some(3.0),
        ..Workload::default()
    }
}

/// One message after the other, each after the confirm of the one before it.
fn one_by_one() -> Workload {
    Workload {
        confirm: Confirm::Each,
        saturate: true,
        producer_rate: 0.0,
        consumer_per_subscription: 0,
        subscriptions_per_topic: 0,
        warmup_seconds: Some(0.0),
        test_seconds: Some(1.0),
        ..steady()
    }
}

/// A run of this workload with this fault.
fn make(fault: Fault, workload: &Workload) -> Result<Brought> {
    let null = null::start("amqp", Options::default())?;
    let proxy = Proxy::start(null.address, fault)?;
    let job = Job::plain("amqp", &proxy.address.to_string(), "planted", workload.clone());
    drivers::open(&job)?.prepare()?;
    let mut workers: Vec<Box<dyn Worker>> = vec![Box::new(Local::new(Clock::local()))];
    let progress = Progress::silent();
    let setting = Setting {
        job: &job,
        workers: &mut workers,
        broker: &|| None,
        has_worker_beside: false,
        progress: &progress,
        interrupted: &AtomicBool::new(false),
        ceiling_rate: None,
    };
    let brought = run::execute(setting);
    match brought.stopped {
        Some(reason) => Err(anyhow::anyhow!("{reason}")).context("a run of the self-check broke off"),
        None => Ok(brought),
    }
}

/// What the run should have said of its fault.
fn missed_fault(fault: Fault, brought: &Brought) -> Option<String> {
    let verdict = &brought.verdict;
    let (what, found) = match fault {
        Fault::Pace(_) => return None,
        Fault::Stall { time, .. } => {
            let longest = brought.measured.publish_latency.as_ref().map_or(0.0, |curve| curve.max_ms);
            ("a stall of 200 ms", longest >= time.as_secs_f64() * 1000.0 * 0.95)
        }
        Fault::Lose(_) => ("a lost message", verdict.complete == Some(false)),
        Fault::Double(_) => ("a doubled message", verdict.complete == Some(false)),
        Fault::Swap(_) => ("a message after the next one", verdict.ordered == Some(false)),
        Fault::Change(_) => ("a changed byte", verdict.intact == Some(false)),
    };
    (!found).then(|| format!("{what} ({verdict:?})"))
}

/// What the findings say of a target that is slower by 10 %, beside one that is not and the same again.
fn slow_down() -> Result<Option<Finding>> {
    let mut runs = Vec::new();
    for pair in 1..=PAIRS {
        let sides = [("mainstem", PACE), ("mainstem-again", PACE), ("slower", PACE.mul_f64(SLOWER))];
        let made: Vec<Result<Brought>> = std::thread::scope(|scope| {
            let threads = sides.map(|(_, pace)| scope.spawn(move || make(Fault::Pace(pace), &one_by_one())));
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a run of the self-check broke off")))
                })
                .collect()
        });
        for ((name, _), brought) in sides.into_iter().zip(made) {
            runs.push(record(name, pair, brought?));
        }
    }
    let figures = BTreeMap::from([("self-check".to_owned(), Figure::PublishRate)]);
    Ok(findings::find(&runs, &figures).into_iter().next())
}

fn missed_slow_down(finding: Option<&Finding>, planted: f64) -> Option<String> {
    let within = planted - 0.05..=planted + 0.05;
    let found = finding.is_some_and(|one| one.conclusion == Conclusion::Better && within.contains(&one.advantage));
    (!found).then(|| format!("a slow-down of {:.0} % ({finding:?})", (planted - 1.0) * 100.0))
}

/// A run as findings take it.
fn record(name: &str, pair: u32, brought: Brought) -> Run {
    Run {
        format: FORMAT,
        experiment: "self-check".to_owned(),
        title: String::new(),
        variation: String::new(),
        scale: String::new(),
        pair,
        order: 0,
        position: Position::default(),
        target: TargetRecord { name: name.to_owned(), variant: "stock".to_owned(), ..TargetRecord::default() },
        command: String::new(),
        started: 0,
        machine: Machine::default(),
        workload: one_by_one(),
        priming: Some(Priming::default()),
        verdict: brought.verdict,
        phases: brought.phases,
        timeline: brought.timeline,
        measured: brought.measured,
        broker: brought.broker,
        generator: brought.generator,
        processor: brought.processor,
        stopped: brought.stopped,
    }
}

#[cfg(test)]
mod tests;
