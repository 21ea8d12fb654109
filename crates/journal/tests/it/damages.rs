//! Some hundred damages of a journal's files, each to a copy of a folder: a start is refused by name, or gives all that was acknowledged, or readers
//! are told what is damaged; nothing is lost or changed without a word. A survey finds what a start refuses, and after a repair there is a start.

mod base;
mod harms;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use journal::{Damage, Original, Survey, repair, survey};
use parking_lot::Mutex;
use types::LogId;

use base::{Base, journal_of, open, read};
use harms::Case;
use store::FolderStore;

/// Damages whose outcome is not yet what it should be, by the beginning of their names, and why.
const KNOWN: &[(&str, &str)] = &[];

/// What came of one damage.
struct Outcome {
    name: String,
    kind: &'static str,
    how: &'static str,
    start: &'static str,
    repair: &'static str,
    /// What must not be.
    wrong: Vec<String>,
}

fn look(folder: &Path) -> Result<Survey, String> {
    let mut found = survey(&journal_of(folder), 0, &FolderStore(folder.join("archive")), &|_| {})
        .map_err(|error| error.to_string())?;
    found.miss(&|_| true);
    Ok(found)
}

/// Does a message say which file, or which segment?
fn names_something(text: &str) -> bool {
    ["segment ", "segment-", "checkpoint", "archive record"].iter().any(|name| text.contains(name))
}

fn try_one(bases: &[Base], case: &Case) -> Outcome {
    let base = &bases[case.base];
    let scratch = tempfile::tempdir().expect("a folder");
    let (started, looked) = (scratch.path().join("started"), scratch.path().join("looked"));
    base::copy(base.folder.path(), &started);
    case.inflict(&started, base.older.path());
    base::copy(&started, &looked);
    let mut wrong = Vec::new();
    let found = look(&looked);
    let finds = match &found {
        Ok(found) => !found.damages.is_empty() || found.logs.values().any(|log| !log.lost.is_empty()),
        Err(_) => true,
    };
    let opened = open(&started, (base.config)()).and_then(|node| match node.journal.check_segments(&|_| true) {
        Ok(()) => Ok(node),
        Err(error) => {
            node.close();
            Err(error)
        }
    });
    let start = match opened {
        Err(error) => {
            let text = error.to_string();
            if !names_something(&text) {
                wrong.push(format!("refused without a name: {text}"));
            }
            if !finds {
                wrong.push(format!("refused, and nothing is found by a survey: {text}"));
            }
            "refused"
        }
        Ok(node) => {
            let served = read(&node, &base.expected);
            node.close();
            wrong.extend(served.silent.iter().chain(&served.changed).map(|what| format!("silently: {what}")));
            wrong.extend(
                served
                    .empty
                    .first()
                    .map(|first| format!("silently empty: {} offsets from {first:?}", served.empty.len())),
            );
            if !served.refused.is_empty() && !finds {
                wrong.push(format!("readers are refused, and nothing is found by a survey: {:?}", served.first_error));
            }
            match (served.refused.is_empty(), finds) {
                (true, false) => "as if nothing were",
                (true, true) => "all there, damage found",
                (false, _) => "readers refused",
            }
        }
    };
    let repair = match found {
        _ if !finds => "nothing to do",
        Ok(found) => mend(base, &looked, &found, &mut wrong),
        Err(text) if text.contains("version") => "newer release",
        Err(text) => {
            wrong.push(format!("cannot be looked at: {text}"));
            "none"
        }
    };
    Outcome { name: case.name(bases), kind: case.kind, how: case.how(), start, repair, wrong }
}

/// Repairs all that can be; then there is a start, and what is not there was said.
fn mend(base: &Base, folder: &Path, found: &Survey, wrong: &mut Vec<String>) -> &'static str {
    if let Err(error) = repair(&journal_of(folder), found, Original::Dropped, &Damage::is_repairable) {
        wrong.push(format!("no repair: {error}"));
        return "none";
    }
    let node = match open(folder, (base.config)()) {
        Ok(node) => node,
        Err(error) => {
            wrong.push(format!("no start after a repair: {error}"));
            return "none";
        }
    };
    if let Err(error) = node.journal.check_segments(&|_| true) {
        node.close();
        wrong.push(format!("no start after a repair: {error}"));
        return "none";
    }
    let served = read(&node, &base.expected);
    for id in base::LOGS {
        let log = node.log(id);
        if let Err(error) = node.append_batch(&log, 2, base::VALUE_BYTES) {
            wrong.push(format!("after a repair log {id} takes nothing: {error}"));
        }
    }
    node.close();
    let said: BTreeSet<(u64, u64)> = found
        .logs
        .iter()
        .flat_map(|(id, log)| {
            log.lost.iter().flat_map(|range| (range.start.0..range.end.0).map(|offset| (id.0, offset)))
        })
        .collect();
    let unsaid: Vec<_> = served.empty.iter().chain(&served.refused).filter(|lost| !said.contains(lost)).collect();
    if let Some(first) = unsaid.first() {
        wrong
            .push(format!("after a repair {} offsets from {first:?} are not there, and it was not said", unsaid.len()));
    }
    wrong.extend(served.changed.iter().map(|what| format!("after a repair: {what}")));
    if !found.damages.iter().any(Damage::hides_more) {
        wrong.extend(served.silent.iter().map(|what| format!("after a repair {what}, and all was said to be known")));
    }
    for (id, (start, end)) in &base.expected.logs {
        let Some(log) = found.logs.get(&LogId(*id)) else { continue };
        // At the very end of a log nobody knows what there was.
        if log.start > *start || log.end > *end {
            wrong.push(format!("log {id} is said to be {}..{}, and was {start}..{end}", log.start, log.end));
        }
    }
    let left = look(folder).map(|left| left.damages.into_iter().filter(Damage::is_repairable).collect::<Vec<_>>());
    if !left.as_ref().is_ok_and(Vec::is_empty) {
        wrong.push(format!("after a repair there is damage: {left:?}"));
    }
    match (said.is_empty(), served.silent.is_empty()) {
        (true, true) => "all there",
        (false, true) => "lost as said",
        _ => "end or state lost",
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut rows: BTreeMap<(&str, &str), BTreeMap<String, usize>> = BTreeMap::new();
    for one in outcomes {
        *rows.entry((one.kind, one.how)).or_default().entry(format!("{}; {}", one.start, one.repair)).or_default() += 1;
    }
    let mut out = String::from("| file | damage | start; repair |\n|---|---|---|\n");
    for ((kind, how), counts) in rows {
        let counts: Vec<String> = counts.into_iter().map(|(what, count)| format!("{count} {what}")).collect();
        let _ = writeln!(out, "| {kind} | {how} | {} |", counts.join(", "));
    }
    out
}

/// Bytes of all files of a folder.
fn contents(folder: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let names = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    names.map(|path| (path.clone(), std::fs::read(&path).expect("readable"))).collect()
}

/// What was rewritten would look damaged then; to accept that would destroy it.
#[test]
fn without_both_checkpoints_nothing_is_taken_for_damaged_that_is_not() {
    let base = base::rewritten();
    for harm in ["missing", "damaged", "one missing", "the other missing"] {
        let folder = tempfile::tempdir().expect("a folder");
        base::copy(base.folder.path(), folder.path());
        let journal = journal_of(folder.path());
        for name in ["checkpoint", "checkpoint-copy"] {
            let path = journal.join(name);
            match (harm, name) {
                ("missing", _) | ("one missing", "checkpoint") | ("the other missing", "checkpoint-copy") => {
                    std::fs::remove_file(&path).expect("removable")
                }
                _ => std::fs::write(&path, [7; 4096]).expect("writable"),
            }
        }
        let before = contents(&journal);
        let error = open(folder.path(), (base.config)()).err().expect("it is refused").to_string();
        assert!(error.contains("checkpoint is corrupt"), "{harm}: {error}");
        let found = look(folder.path()).expect("it can be looked at");
        assert!(
            found.damages.len() == 1 && found.damages[0].id == "0-checkpoint" && found.damages[0].is_fatal(),
            "{harm}: {:?}",
            found.damages
        );
        let says = |words: &str| found.damages[0].what.contains(words);
        assert!(
            says("nothing can be said of the segments") && says("missing") == harm.contains("missing"),
            "{harm}: {:?}",
            found.damages
        );
        assert!(found.without_checkpoint && found.logs.values().all(|log| log.lost.is_empty()), "{harm}");
        let all: &dyn Fn(&Damage) -> bool = &|_| true;
        for accepted in [all, &Damage::is_repairable] {
            let repaired = repair(&journal, &found, Original::Kept, accepted);
            assert!(repaired.is_err() || !found.damages.iter().any(accepted), "{harm}: something was accepted");
        }
        assert!(contents(&journal) == before, "{harm}: nothing was changed");
    }
}

#[test]
fn no_damage_loses_anything_without_a_word() {
    let bases = [base::rewritten(), base::behind(), base::archived()];
    let foreign = base::foreign();
    let wanted = std::env::var("DAMAGE").unwrap_or_default();
    let cases: Vec<Case> =
        harms::list(&bases, foreign.path()).into_iter().filter(|case| case.name(&bases).contains(&wanted)).collect();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let attempt = AssertUnwindSafe(|| try_one(&bases, case));
                    let outcome = catch_unwind(attempt).unwrap_or_else(|panic| {
                        let said = panic
                            .downcast_ref::<String>()
                            .cloned()
                            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                        let (name, kind, how) = (case.name(&bases), case.kind, case.how());
                        Outcome {
                            name,
                            kind,
                            how,
                            start: "panic",
                            repair: "none",
                            wrong: vec![format!("a panic: {}", said.unwrap_or_default())],
                        }
                    });
                    outcomes.lock().push(outcome);
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner();
    outcomes.sort_by(|one, other| one.name.cmp(&other.name));
    println!("{} damages\n{}", outcomes.len(), table(&outcomes));
    let known = |name: &str| KNOWN.iter().any(|(known, _)| name.starts_with(known));
    let wrong: Vec<&Outcome> = outcomes.iter().filter(|one| !one.wrong.is_empty()).collect();
    for one in &wrong {
        println!(
            "{}{}: {} ({}; {})",
            if known(&one.name) { "known: " } else { "" },
            one.name,
            one.wrong.join("; "),
            one.start,
            one.repair
        );
    }
    let unexpected = wrong.iter().filter(|one| !known(&one.name)).count();
    assert_eq!(unexpected, 0, "of {} damages", outcomes.len());
}
