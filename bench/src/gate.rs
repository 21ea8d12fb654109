//! The gate: what a change may not make worse, against a baseline file in the tree.
//!
//! | figure | how | bound |
//! |---|---|---|
//! | user-space instructions per record, in bulk and one at a time | the broker under callgrind, two loads of different length; their difference has no start and no idling in it | +5 % |
//! | broker CPU-seconds per GB | `peak-throughput` at full speed, the best of five | +10 % |
//! | ratio to Kafka's throughput | pairs of the same | not below the baseline's range |
//!
//! Callgrind counts the same on every machine with the same instruction set, whatever else runs, and names functions;
//! `perf stat` would be quicker where it is allowed, but names nothing. It does not see the kernel. Processor time and
//! ratio do, and depend on the machine: a baseline of another machine is compared with a warning, or an older build is measured
//! in turns with this one and takes the baseline's place in both.

mod guarded;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::drivers::{self, Job};
use crate::plan;
use crate::process;
use crate::target::{Places, Running, Target};
use crate::worker::{Local, Share, Speed, Worker};
use crate::workload::{Confirm, Workload};

pub use guarded::{Cost, measure as measure_guarded};

use guarded::Guard;

const INSTRUCTIONS_MAX: f64 = 1.05;
const CPU_MAX: f64 = 1.10;
const CPU_ROUNDS: usize = 5;
const PEER_PAIRS: usize = 3;
/// Functions that a baseline remembers, by their instructions.
const FUNCTIONS: usize = 40;
/// Functions that are named as a cause.
const CAUSES: usize = 4;
const WAIT_MAX: Duration = Duration::from_secs(300);

/// What is compared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Baseline {
    pub cpu: String,
    /// Instructions per record, by the kind of load.
    pub instructions: BTreeMap<String, Instructions>,
    pub cpu_s_per_gb: f64,
    /// Throughput as a multiple of Kafka's: lowest and highest of the pairs; absent without a peer.
    pub times_kafka: Option<(f64, f64)>,
}

/// Instructions per record, in all and by function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    pub per_record: f64,
    pub functions: BTreeMap<String, f64>,
}

/// What depends on the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfMachine {
    pub cpu_s_per_gb: f64,
    /// As [`Baseline::times_kafka`].
    pub times_kafka: Option<(f64, f64)>,
}

/// Rounds of one build at full speed.
#[derive(Default)]
struct Rounds {
    cpu_s_per_gb: Vec<f64>,
    ratios: Vec<f64>,
}

impl Rounds {
    /// The best of the processor time, and the range of the ratio.
    fn all(&self) -> OfMachine {
        let lowest = |values: &[f64]| values.iter().copied().fold(f64::MAX, f64::min);
        let highest = self.ratios.iter().copied().fold(0.0, f64::max);
        let times_kafka = (!self.ratios.is_empty()).then(|| (lowest(&self.ratios), highest));
        OfMachine { cpu_s_per_gb: lowest(&self.cpu_s_per_gb), times_kafka }
    }
}

/// Measures everything; of `older`, another build, what depends on the machine, in turns with this one.
///
/// # Errors
/// The broker does not start, or valgrind is not there.
pub fn measure(
    places: &Places,
    older: Option<&Path>,
    with_peer: bool,
    cpu: String,
) -> Result<(Baseline, Option<OfMachine>)> {
    let instructions = count_all(places, Guard::None)?;
    eprintln!("processor time per GB…");
    let places_of_older = older.map(|build| Places { mainstem: build.to_owned(), ..places.clone() });
    let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
    for round in 0..CPU_ROUNDS {
        if with_peer && round < PEER_PAIRS {
            eprintln!("beside Kafka…");
        }
        let peer =
            if with_peer && round < PEER_PAIRS { Some(full_speed("kafka", places, Guard::None)?.0) } else { None };
        for (rounds, places) in [(&mut theirs, places_of_older.as_ref()), (&mut ours, Some(places))] {
            let Some(places) = places else { continue };
            let (rate, cpu_s_per_gb) = full_speed("mainstem", places, Guard::None)?;
            rounds.cpu_s_per_gb.push(cpu_s_per_gb);
            rounds.ratios.extend(peer.map(|peer| rate / peer));
        }
    }
    let OfMachine { cpu_s_per_gb, times_kafka } = ours.all();
    Ok((Baseline { cpu, instructions, cpu_s_per_gb, times_kafka }, older.map(|_| theirs.all())))
}

/// Instructions per record, by the kind of load.
fn count_all(places: &Places, guard: Guard) -> Result<BTreeMap<String, Instructions>> {
    let mut instructions = BTreeMap::new();
    for (name, confirm, short, long) in
        [("bulk", Confirm::Batch, 20_000, 60_000), ("single", Confirm::Each, 1_000, 3_000)]
    {
        eprintln!("instructions per record, {name}…");
        instructions.insert(name.to_owned(), count_instructions(places, confirm, guard, (short, long))?);
    }
    Ok(instructions)
}

/// What is worse than the baseline allows, each with its cause; nothing when the gate is passed.
pub fn regressions(before: &Baseline, now: &Baseline) -> Vec<String> {
    let mut found = Vec::new();
    for (name, after) in &now.instructions {
        let Some(earlier) = before.instructions.get(name) else { continue };
        let growth = after.per_record / earlier.per_record;
        if growth > INSTRUCTIONS_MAX {
            let percent = (growth - 1.0) * 100.0;
            found.push(format!(
                "{name}: {:.0} instructions per record instead of {:.0} (+{percent:.1} %), most of it in {}",
                after.per_record,
                earlier.per_record,
                causes(earlier, after).join(", ")
            ));
        }
    }
    let growth = now.cpu_s_per_gb / before.cpu_s_per_gb;
    if growth > CPU_MAX {
        let cause = if found.is_empty() {
            "instructions per record are what they were: system calls, waiting or the machine"
        } else {
            "see the functions above"
        };
        let percent = (growth - 1.0) * 100.0;
        found.push(format!(
            "{:.3} CPU-seconds per GB instead of {:.3} (+{percent:.0} %): {cause}",
            now.cpu_s_per_gb, before.cpu_s_per_gb
        ));
    }
    if let (Some(earlier), Some(after)) = (before.times_kafka, now.times_kafka)
        && after.1 < earlier.0
    {
        found.push(format!("{:.2} times Kafka's throughput at best, where it was at least {:.2}", after.1, earlier.0));
    }
    found
}

/// The functions that grew most, with their growth per record.
fn causes(before: &Instructions, now: &Instructions) -> Vec<String> {
    let mut grown: Vec<(f64, &str)> = now
        .functions
        .iter()
        .map(|(name, count)| (count - before.functions.get(name).copied().unwrap_or(0.0), name.as_str()))
        .filter(|(growth, _)| *growth > 0.0)
        .collect();
    grown.sort_by(|one, other| other.0.total_cmp(&one.0));
    grown.into_iter().take(CAUSES).map(|(growth, name)| format!("{name} (+{growth:.1})")).collect()
}

/// The broker under callgrind with a short and a long load; what they differ by, per record.
fn count_instructions(
    places: &Places,
    confirm: Confirm,
    guard: Guard,
    (short, long): (u64, u64),
) -> Result<Instructions> {
    let (few, at_first) = under_callgrind(places, confirm, guard, short)?;
    let (many, at_last) = under_callgrind(places, confirm, guard, long)?;
    let records = many.checked_sub(few).filter(|records| *records > 0).context("the longer load was not longer")?;
    let per_record = |name: &str| {
        let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0) as f64;
        (of(&at_last) - of(&at_first)) / records as f64
    };
    let mut functions: Vec<(String, f64)> = at_last.keys().map(|name| (name.clone(), per_record(name))).collect();
    functions.sort_by(|one, other| other.1.total_cmp(&one.1));
    let all = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>() as f64;
    Ok(Instructions {
        per_record: (all(&at_last) - all(&at_first)) / records as f64,
        functions: functions.into_iter().take(FUNCTIONS).collect(),
    })
}

/// Produces at least so many records of 1 KiB to the broker under callgrind, with one consumer reading along when they
/// come in bulk; the number of records, and instructions by function.
fn under_callgrind(
    places: &Places,
    confirm: Confirm,
    guard: Guard,
    records: u64,
) -> Result<(u64, BTreeMap<String, u64>)> {
    let mut target = Target::find("mainstem")?;
    let counts = places.scratch.join("callgrind.out");
    let valgrind = ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file={counts}"];
    let words = valgrind.map(|word| word.replace("{counts}", &counts.to_string_lossy()));
    target.start = words.into_iter().chain(std::mem::take(&mut target.start)).collect();
    target.start.extend(["--io", "buffered"].map(str::to_owned));
    target.version.clear();
    guard.add_to(&mut target);
    let workload = Workload {
        confirm,
        confirm_batch: 500,
        linger_ms: if confirm == Confirm::Each { 0.0 } else { 100.0 },
        saturate: true,
        subscriptions_per_topic: u32::from(confirm == Confirm::Batch),
        ..Workload::default()
    };
    let mut setup = plan::setup_of(&target, &workload, "stock");
    // Valgrind itself needs memory.
    setup.memory_limit_mb = 8192;
    let running = Running::start(&target, places, setup).context("is valgrind there?")?;
    guard.put_up(&target, places)?;
    let job = Job::plain(&target.driver, &target.address, "gate", workload);
    let driver = drivers::open(&job)?;
    driver.prepare()?;
    let mut worker = Local::new(Clock::local());
    worker.begin(&job, Share { worker: 0, workers: 1 })?;
    worker.subscribe()?;
    worker.set_speed(Speed::Full)?;
    let (began, mut sent, mut received, mut still) = (std::time::Instant::now(), 0, 0, false);
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let sample = worker.sample()?;
        sent += sample.published.acknowledged;
        received += sample.received.prints.messages;
        if sent >= records && !still {
            worker.set_speed(Speed::Still)?;
            still = true;
        }
        let all_there = confirm == Confirm::Each || received == sent;
        if still && sample.in_flight == 0 && all_there {
            break;
        }
        ensure!(began.elapsed() < WAIT_MAX, "{sent} records in {} s", WAIT_MAX.as_secs());
    }
    worker.end();
    drop(running);
    Ok((sent, read_callgrind(&counts)?))
}

/// Self cost by function, as `callgrind_annotate` adds it up.
fn read_callgrind(path: &Path) -> Result<BTreeMap<String, u64>> {
    let words = ["--threshold=100", "--show-percs=no", "--tree=none", "--inclusive=no", "--auto=no"];
    let output = Command::new("callgrind_annotate").args(words).arg(path).output()?;
    ensure!(output.status.success(), "callgrind_annotate: {}", String::from_utf8_lossy(&output.stderr));
    let found = parse_annotation(&String::from_utf8_lossy(&output.stdout));
    if found.is_empty() {
        bail!("callgrind_annotate shows no functions of {}", path.display());
    }
    Ok(found)
}

/// Lines like `1,234,567  crates/journal/src/queue.rs:journal::queue::push [/path/mainstem]`.
fn parse_annotation(text: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((count, rest)) = line.trim_start().split_once("  ") else { continue };
        let Ok(count) = count.replace(',', "").parse::<u64>() else { continue };
        let name = rest.trim().split(" [").next().unwrap_or_default();
        let name = name.split_once(':').map_or(name, |(_, function)| function).trim();
        if !name.is_empty() && name != "PROGRAM TOTALS" {
            *found.entry(name.to_owned()).or_insert(0) += count;
        }
    }
    found
}

/// Messages a second and broker CPU-seconds per GB of a target at full speed, consumers included.
fn full_speed(name: &str, places: &Places, guard: Guard) -> Result<(f64, f64)> {
    let mut target = Target::find(name)?;
    guard.add_to(&mut target);
    let workload = Workload {
        partitions_per_topic: 100,
        producers_per_topic: 4,
        consumer_per_subscription: 4,
        linger_ms: 10.0,
        saturate: true,
        ..Workload::default()
    };
    let variant = target.variants().pop().unwrap_or("stock");
    let running = Running::start(&target, places, plan::setup_of(&target, &workload, variant))?;
    guard.put_up(&target, places)?;
    let job = Job::plain(&target.driver, &target.address, "gate", workload);
    drivers::open(&job)?.prepare()?;
    let mut worker = Local::new(Clock::local());
    worker.begin(&job, Share { worker: 0, workers: 1 })?;
    worker.subscribe()?;
    worker.set_speed(Speed::Rate(100.0))?;
    std::thread::sleep(Duration::from_secs(3));
    worker.set_speed(Speed::Full)?;
    std::thread::sleep(Duration::from_secs(6));
    worker.sample()?;
    let (before, began) = (process::account(&running.pids()), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(6));
    let sample = worker.sample()?;
    let (after, seconds) = (process::account(&running.pids()), began.elapsed().as_secs_f64());
    let moved = sample.published.acknowledged + sample.received.prints.messages;
    ensure!(moved > 0, "{name}: nothing came through");
    let gb = moved as f64 * f64::from(job.workload.message_size) / 1e9;
    Ok((sample.published.acknowledged as f64 / seconds, (after.cpu_s - before.cpu_s) / gb))
}

/// Reads a baseline.
///
/// # Errors
/// It is not there or not one.
pub fn read(path: &PathBuf) -> Result<Baseline> {
    let text = fs::read_to_string(path).with_context(|| format!("baseline {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a baseline", path.display()))
}

#[cfg(test)]
mod tests;
