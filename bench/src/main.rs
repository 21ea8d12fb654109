//! `mainstem-bench`: compares message brokers on one machine. `docs/benchmarks.md` explains the method.
//!
//! ```text
//! cli ─ compare ─ plan        which target when; store keeps what was measured
//!         │
//!        run ── worker ─ drivers ─ client libraries ─ broker (target)
//!         │       └ pace, payload, stamp, outcome, receipt
//!       result ─ findings ─ report
//! ```

mod ceiling;
mod cgroup;
mod claims;
mod cli;
mod clock;
mod compare;
mod drivers;
mod experiment;
mod findings;
mod gate;
mod latency;
mod null;
mod outcome;
mod pace;
mod payload;
mod plan;
mod process;
mod progress;
mod receipt;
mod report;
mod result;
mod run;
mod self_check;
mod stability;
mod stamp;
mod store;
mod target;
mod wants;
mod worker;
mod workload;
mod yardstick;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use cli::{Cli, Command, Common};
use compare::Comparison;
use experiment::Experiment;
use result::Conclusion;
use store::Store;
use target::{Places, Target};
use workload::Workload;

/// Asynchronous clients allocate on one thread and free on another for each message, which this does several times as fast
/// as the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Set by Ctrl-C: the current run ends, its brokers are stopped, and the report is written from what is there.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The word that was probably meant.
pub fn nearest<'a>(words: impl Iterator<Item = &'a str>, text: &str) -> &'a str {
    words.min_by_key(|word| strsim::damerau_levenshtein(word, text)).unwrap_or("nothing: there is none")
}

fn main() -> std::process::ExitCode {
    match execute(Cli::parse().command) {
        Ok(()) if INTERRUPTED.load(Ordering::Relaxed) => std::process::ExitCode::from(130),
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mainstem-bench: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<()> {
    match command {
        Command::List => list(),
        Command::Compare { experiments, scale, pairs, common } => {
            let name = experiments.join("+");
            let experiments = find(&experiments, &scale)?;
            let own = experiments.iter().map(|experiment| experiment.pairs).max().unwrap_or(1);
            compare(
                &name,
                experiments,
                Some(pairs.unwrap_or(own.max(findings::PAIRS_WANTED))),
                None,
                all_targets(&common)?,
                &common,
            )
        }
        Command::Suite { scale, budget, common } => {
            let names: Vec<String> = Experiment::names().map(str::to_owned).collect();
            let minutes = budget.or((scale == "quick").then_some(plan::budget::SUITE_MINUTES));
            ensure!(
                minutes.is_none_or(|minutes| (1.0..1e6).contains(&minutes)),
                "--budget is a number of minutes from 1 on"
            );
            let budget = minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
            compare(&scale, find(&names, &scale)?, None, budget, all_targets(&common)?, &common)
        }
        Command::Run { workloads, target, seconds, common } => {
            let asked = one_target(&target, &common.targets)?;
            let mut experiments = Vec::new();
            for path in &workloads {
                let mut workload = Workload::read(path)?;
                if let Some(seconds) = seconds {
                    workload = workload.within(seconds)?;
                }
                // Published files share names; their file names are their own.
                let id = path.file_stem().unwrap_or_default().to_string_lossy();
                experiments.push(Experiment::of_workload(&id, workload, asked.name.clone()));
            }
            compare("run", experiments, Some(1), None, vec![asked], &common)
        }
        Command::Report { folder } => {
            ensure!(folder.is_dir(), "{} is no folder of results", folder.display());
            write_report(&Store::open(&folder)?)
        }
        Command::Check { workloads } => check(&workloads),
        Command::Worker { listen } => {
            let listener =
                std::net::TcpListener::bind(&listen).with_context(|| format!("cannot listen on {listen}"))?;
            println!("worker on {}", listener.local_addr()?);
            worker::serve(listener)
        }
        Command::Null { protocol, partitions } => {
            let null = null::start(&protocol, null::Options { partitions })?;
            println!("{protocol} on {}", null.address);
            std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
            Ok(())
        }
        Command::Gate { guarded: true, common, .. } => guarded(&common),
        Command::Gate { baseline, update, without_peer, older, common, .. } => {
            gate(&baseline, update, !without_peer, older.as_deref(), &common)
        }
        Command::Yardsticks => {
            let machine = yardstick::measure(Path::new("target/bench-scratch"))?;
            println!("{}", serde_json::to_string_pretty(&machine)?);
            Ok(())
        }
    }
}

fn find(names: &[String], scale: &str) -> Result<Vec<Experiment>> {
    names.iter().map(|name| Experiment::find(name, scale)).collect()
}

fn list() -> Result<()> {
    println!("experiments:");
    for name in Experiment::names() {
        let experiment = Experiment::find(name, "quick")?;
        println!("  {name:16} {} ({})", experiment.record.title, experiment.targets.join(", "));
    }
    println!("targets:");
    for name in Target::names() {
        println!("  {name:16} {}", Target::find(name)?.title);
    }
    Ok(())
}

fn check(workloads: &[PathBuf]) -> Result<()> {
    let mut wrong = 0;
    for path in workloads {
        match Workload::read(path) {
            Ok(workload) => println!("{}: {}", path.display(), workload.name),
            Err(error) => {
                wrong += 1;
                println!("{error:#}");
            }
        }
    }
    ensure!(wrong == 0, "{wrong} of {} workloads cannot be run", workloads.len());
    Ok(())
}

/// The targets that were asked for; without, all shipped ones.
fn all_targets(common: &Common) -> Result<Vec<Target>> {
    let words: Vec<String> = match common.targets.as_slice() {
        [] => Target::names().map(str::to_owned).collect(),
        given => given.to_vec(),
    };
    let found: Vec<Vec<Target>> = words.iter().map(|word| Target::find_all(word)).collect::<Result<_>>()?;
    Ok(found.concat())
}

/// A target by its name in one of these files, or as [`Target::find`] finds it.
fn one_target(word: &str, files: &[String]) -> Result<Target> {
    let given: Vec<Vec<Target>> = files.iter().map(|file| Target::find_all(file)).collect::<Result<_>>()?;
    let named = given.concat().into_iter().find(|target| target.name == word);
    named.map_or_else(|| Target::find(word), Ok)
}

fn compare(
    name: &str,
    experiments: Vec<Experiment>,
    pairs: Option<u32>,
    budget: Option<Duration>,
    mut targets: Vec<Target>,
    common: &Common,
) -> Result<()> {
    let began = Instant::now();
    if !common.targets.is_empty() {
        check_names(&targets, &experiments)?;
    }
    let compared = targets.iter().any(|target| !findings::is_ours(&target.name));
    if compared && !common.without_floor {
        let again: Vec<Target> =
            targets.iter().filter(|target| findings::is_ours(&target.name)).map(Target::again).collect();
        targets.extend(again);
    }
    let store = Store::open(common.out.as_deref().unwrap_or(&Path::new("target/bench").join(name)))?;
    let mut comparison = Comparison {
        seed: compare::seed(&store, common.seed)?,
        store,
        experiments,
        targets,
        pairs,
        again_pairs: u32::MAX,
        workers: common.workers.clone(),
        places: places(common)?,
        command: command_line(),
    };
    if let Some(budget) = budget {
        comparison.fit(budget)?;
    }
    print_plan(&comparison);
    if common.plan {
        return Ok(());
    }
    self_check::once(&comparison.store)?;
    end_on_ctrl_c();
    let given = common.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let end = given.into_iter().chain(budget).min().map(|time| began + time);
    let left = comparison.make(&INTERRUPTED, end)?;
    write_report(&comparison.store)?;
    if left > 0 {
        println!("{left} starts are left: the same command goes on there");
    }
    Ok(())
}

/// Whether each target has a name of its own and takes part in something: one that no experiment means would be left out without a word.
fn check_names(targets: &[Target], experiments: &[Experiment]) -> Result<()> {
    let names: BTreeSet<&str> = experiments.iter().flat_map(|one| one.targets.iter().map(String::as_str)).collect();
    for (number, target) in targets.iter().enumerate() {
        ensure!(
            targets[..number].iter().all(|other| other.name != target.name),
            "two targets are called `{}`",
            target.name
        );
        ensure!(
            experiments.iter().any(|experiment| target.is_among(&experiment.targets)),
            "target `{}` takes part in none of these experiments; they name {}",
            target.name,
            names.iter().copied().collect::<Vec<_>>().join(", ")
        );
    }
    Ok(())
}

fn gate(path: &PathBuf, update: bool, with_peer: bool, older: Option<&Path>, common: &Common) -> Result<()> {
    let places = places(common)?;
    let (now, older) = gate::measure(&places, older, with_peer, yardstick::measure(&places.scratch)?.cpu)?;
    for (name, instructions) in &now.instructions {
        println!("{name}: {:.0} instructions per record", instructions.per_record);
    }
    println!("{:.3} CPU-seconds per GB", now.cpu_s_per_gb);
    if let Some((low, high)) = now.times_kafka {
        println!("{low:.2} to {high:.2} times Kafka's throughput");
    }
    if update {
        std::fs::write(path, serde_json::to_string_pretty(&now)? + "\n")?;
        println!("new baseline: {}", path.display());
        return Ok(());
    }
    let mut before = gate::read(path)?;
    if let Some(older) = older {
        println!("the older build: {:.3} CPU-seconds per GB", older.cpu_s_per_gb);
        if let Some((low, high)) = older.times_kafka {
            println!("the older build: {low:.2} to {high:.2} times Kafka's throughput");
        }
        before = gate::Baseline { cpu_s_per_gb: older.cpu_s_per_gb, times_kafka: older.times_kafka, ..before };
    } else if before.cpu != now.cpu {
        println!("the baseline is of another processor ({}): processor time is compared all the same", before.cpu);
    }
    let worse = gate::regressions(&before, &now);
    ensure!(worse.is_empty(), "worse than the baseline:\n  {}", worse.join("\n  "));
    println!("nothing is worse than the baseline");
    Ok(())
}

fn guarded(common: &Common) -> Result<()> {
    let costs = gate::measure_guarded(&places(common)?)?;
    for gate::Cost { what, without, with } in &costs {
        println!(
            "{what}: {without:.3} without, {with:.3} with entries and quotas ({:+.1} %)",
            (with / without - 1.0) * 100.0
        );
    }
    ensure!(costs.iter().all(gate::Cost::holds), "access control entries and quotas cost more than 5 %");
    Ok(())
}

fn places(common: &Common) -> Result<Places> {
    let beside = std::env::current_exe()?.with_file_name("mainstem");
    let mainstem = common.mainstem.clone().unwrap_or(beside);
    let scratch = common.scratch.clone().unwrap_or_else(|| PathBuf::from("target/bench-scratch"));
    std::fs::create_dir_all(&scratch).with_context(|| format!("scratch folder {}", scratch.display()))?;
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let peers_home = std::env::var_os("PEERS_HOME").map_or_else(|| home.join(".cache/peers"), PathBuf::from);
    Ok(Places { peers: common.peers.clone(), peers_home, mainstem, scratch: scratch.canonicalize()? })
}

fn print_plan(comparison: &Comparison) {
    let Comparison { experiments, targets, .. } = comparison;
    let compare::Planned { sessions, looks, time, .. } = comparison.plan();
    println!("results in {}", comparison.store.folder().display());
    for (number, experiment) in experiments.iter().enumerate() {
        let mine: Vec<(&plan::Session, plan::Asked)> = sessions
            .iter()
            .flat_map(|session| session.runs.iter().map(move |asked| (session, *asked)))
            .filter(|(_, asked)| asked.experiment == number)
            .collect();
        let seconds: Duration = mine.iter().map(|(_, asked)| plan::time::of_run(asked.workload(experiments))).sum();
        let names: BTreeSet<&str> = mine.iter().map(|(session, _)| targets[session.target].name.as_str()).collect();
        let pairs = mine.iter().map(|(session, _)| session.pair).max().unwrap_or(0);
        if !mine.is_empty() {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            println!(
                "  {:16} {:3} runs in {pairs} pairs, about {:4} s  ({names})",
                experiment.record.id,
                mine.len(),
                seconds.as_secs()
            );
        }
    }
    let starts: Duration = sessions.iter().map(|session| plan::time::of_start(session, experiments, targets)).sum();
    println!("  {} starts of targets, each primed once, about {} s", sessions.len(), starts.as_secs());
    println!("  looks at variants, at the slowest peaks and at the generator alone, about {} s", looks.as_secs());
    println!("{}", stability::rule());
    for cut in comparison.store.state().cuts {
        println!("cut: {cut}");
    }
    let runs: usize = sessions.iter().map(|session| session.runs.len()).sum();
    println!("{runs} runs in {} starts, about {} minutes", sessions.len(), time.as_secs().div_ceil(60));
}

fn write_report(store: &Store) -> Result<()> {
    self_check::once(store)?;
    let report = report::collect(store)?;
    let page = report::write(&report, store.folder())?;
    let told = |wanted| report.findings.iter().filter(|finding| finding.conclusion == wanted).count();
    println!(
        "{} runs; of {} comparisons Mainstem loses {}, wins {}, and {} show no difference that this session can tell",
        report.runs.len(),
        report.findings.len(),
        told(Conclusion::Worse),
        told(Conclusion::Better),
        told(Conclusion::NoDifference)
    );
    println!("report: {}", page.display());
    Ok(())
}

fn command_line() -> String {
    let words = std::env::args().skip(1);
    std::iter::once("mainstem-bench".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

fn end_on_ctrl_c() {
    let handler = interrupt as extern "C" fn(libc::c_int);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}
