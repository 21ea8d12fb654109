//! The simulator of the journal: `sim --seeds 500`. Each seed runs random operations, faults and crashes on two
//! journals and compares them with a model. A failure prints the seed and the command that repeats it.

mod archive;
mod compacted;
mod coverage;
mod disk;
mod random;
mod state;
mod transactions;
mod world;

use std::process::ExitCode;

use clap::Parser;
use journal::Planted;

use coverage::Coverage;
use world::{Options, run};

/// Runs seeds; a failing one prints how to repeat it.
#[derive(Parser)]
struct Cli {
    /// How many seeds
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// Operations per seed
    #[arg(long, default_value_t = 2000)]
    operations: u64,
    /// Find a planted defect: acknowledge, skip-sync, rewrite, keep-term, dsync, part, free-shared, torn-shared, short-sight, unmarked,
    /// omit-dropped, drop-unwritten, drop-absent,
    /// overlap, blame-used-again, forgo-checkpoint, judge-late, forgo-state, leave-replaced, forsake-unreadable, take-unreadable, load-replaced, forget-replacing,
    /// stop-at-unreplaced, insist-on-spare, need-reserves, forgo-third, count-alone, spend-last, insist-on-new, leave-twentieth, count-done, expire-at-checkpoints,
    /// await-hurry, hide-behind-missing, insist-on-refused, await-idle-refused, give-up-when-full, fill-with-little, pin-one-by-one, cut-early, grow-uncounted; or all of them one by one
    #[arg(long)]
    planted: Option<String>,
}

const PLANTED: [(&str, Planted); 42] = [
    ("acknowledge", Planted::AcknowledgeBeforeSync),
    ("skip-sync", Planted::SkipSync),
    ("rewrite", Planted::RewriteAcknowledged),
    ("keep-term", Planted::KeepTerm),
    ("dsync", Planted::DsyncOverUnflushed),
    ("part", Planted::PartTogether),
    ("free-shared", Planted::FreeSharedBody),
    ("torn-shared", Planted::TrustSharedBodies),
    ("overlap", Planted::OverlapSeams),
    ("short-sight", Planted::ShortSight),
    ("unmarked", Planted::LeaveUnmarked),
    ("omit-dropped", Planted::OmitDropped),
    ("drop-unwritten", Planted::DropUnwritten),
    ("drop-absent", Planted::DropAbsent),
    ("blame-used-again", Planted::BlameUsedAgain),
    ("forgo-checkpoint", Planted::ForgoCheckpoint),
    ("judge-late", Planted::JudgeLate),
    ("forgo-state", Planted::ForgoState),
    ("leave-replaced", Planted::LeaveReplaced),
    ("forsake-unreadable", Planted::ForsakeUnreadable),
    ("take-unreadable", Planted::TakeUnreadable),
    ("load-replaced", Planted::LoadReplaced),
    ("forget-replacing", Planted::ForgetReplacing),
    ("stop-at-unreplaced", Planted::StopAtUnreplaced),
    ("insist-on-spare", Planted::InsistOnSpare),
    ("need-reserves", Planted::NeedReserves),
    ("forgo-third", Planted::ForgoThird),
    ("count-alone", Planted::CountAlone),
    ("spend-last", Planted::SpendLast),
    ("insist-on-new", Planted::InsistOnNew),
    ("leave-twentieth", Planted::LeaveTwentieth),
    ("count-done", Planted::CountDone),
    ("expire-at-checkpoints", Planted::ExpireAtCheckpoints),
    ("await-hurry", Planted::AwaitHurry),
    ("hide-behind-missing", Planted::HideBehindMissing),
    ("insist-on-refused", Planted::InsistOnRefused),
    ("await-idle-refused", Planted::AwaitIdleRefused),
    ("give-up-when-full", Planted::GiveUpWhenFull),
    ("fill-with-little", Planted::FillWithLittle),
    ("pin-one-by-one", Planted::PinOneByOne),
    ("cut-early", Planted::CutEarly),
    ("grow-uncounted", Planted::GrowUncounted),
];

fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.planted {
        None => run_seeds(&cli),
        Some(which) => {
            let wanted = PLANTED.iter().filter(|(name, _)| which == "all" || which == name);
            let missed: Vec<&str> =
                wanted.filter(|(name, defect)| !find(&cli, name, *defect)).map(|(name, _)| *name).collect();
            if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// Is the defect found within the seeds?
fn find(cli: &Cli, name: &str, defect: Planted) -> bool {
    for seed in cli.start..cli.start + cli.seeds {
        let options = Options { operations: cli.operations, planted: Some(defect) };
        // The journal may notice by itself that something cannot be.
        let outcome = std::panic::catch_unwind(|| run(seed, options, &mut Coverage::default()));
        if let Err(failure) = outcome.unwrap_or_else(|_| Err("it panicked".to_owned())) {
            println!("planted {name}: found by seed {seed}: {failure}");
            return true;
        }
    }
    println!("planted {name}: NOT FOUND in {} seeds", cli.seeds);
    false
}

fn run_seeds(cli: &Cli) -> ExitCode {
    let mut coverage = Coverage::default();
    let options = Options { operations: cli.operations, planted: None };
    for (done, seed) in (cli.start..cli.start + cli.seeds).enumerate() {
        if let Err(failure) = run(seed, options, &mut coverage) {
            println!(
                "seed {seed}: {failure}\nrepeat: cargo run --release -p sim -- --seeds 1 --start {seed} --operations {}",
                cli.operations
            );
            return ExitCode::FAILURE;
        }
        if (done + 1) % 50 == 0 {
            println!("{} of {} seeds", done + 1, cli.seeds);
        }
    }
    let mut repeated = Coverage::default();
    let (first, again) = (run(cli.start, options, &mut repeated), run(cli.start, options, &mut Coverage::default()));
    if first != again {
        println!("seed {} does not repeat itself: {first:?}, then {again:?}", cli.start);
        return ExitCode::FAILURE;
    }
    let zero = coverage.print(cli.seeds);
    println!("{} passed, {} failed", cli.seeds, u32::from(zero));
    if zero { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
