//! Damages of whole data folders and of backups, by the binary: a start and a restore refuse them by name, or give all that was acknowledged; what
//! a start refuses `journal verify` finds, and `journal salvage` makes a folder of it that starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::administration::{ask, change, get};
use crate::process::{Process, output};

const FLAGS: &[&str] = &[
    "--set",
    "mainstem.journals=2",
    "--set",
    "mainstem.segment.bytes=262144",
    "--set",
    "mainstem.journal.window.bytes=4194304",
];
const RECORDS: usize = 240;
const VALUE_BYTES: usize = 40_000;

/// Damages whose outcome is not yet what it should be, by the beginning of their names, and why.
const KNOWN: &[(&str, &str)] = &[];

#[derive(Clone, Debug)]
enum Harm {
    Missing,
    Empty,
    Cut(u64),
    Flip(u64),
    Longer,
    Extra,
    Swap(PathBuf),
}

struct Case {
    kind: &'static str,
    file: PathBuf,
    harm: Harm,
}

impl Case {
    fn how(&self) -> &'static str {
        match self.harm {
            Harm::Missing => "missing",
            Harm::Empty => "empty",
            Harm::Cut(_) => "cut",
            Harm::Flip(_) => "flipped byte",
            Harm::Longer => "longer",
            Harm::Extra => "extra",
            Harm::Swap(_) => "swapped",
        }
    }

    fn name(&self) -> String {
        let at = match &self.harm {
            Harm::Cut(at) | Harm::Flip(at) => format!(" at {at}"),
            _ => String::new(),
        };
        format!("{} {}{at} {}", self.kind, self.how(), self.file.display())
    }

    fn inflict(&self, folder: &Path) {
        let path = folder.join(&self.file);
        let write = || OpenOptions::new().read(true).write(true).open(&path).expect("openable");
        match &self.harm {
            Harm::Missing if path.is_dir() => fs::remove_dir_all(&path).expect("removable"),
            Harm::Missing => fs::remove_file(&path).expect("removable"),
            Harm::Empty if path.is_dir() => {
                fs::remove_dir_all(&path).expect("removable");
                fs::create_dir(&path).expect("creatable");
            }
            Harm::Empty => write().set_len(0).expect("cut"),
            Harm::Cut(length) => write().set_len(*length).expect("cut"),
            Harm::Flip(at) => {
                let (file, mut byte) = (write(), [0]);
                file.read_exact_at(&mut byte, *at).expect("readable");
                file.write_all_at(&[byte[0] ^ 1], *at).expect("writable");
            }
            Harm::Longer => {
                let end = fs::metadata(&path).expect("it is there").len();
                write().write_all_at(b"zzzzzzzzzzzzzzzz", end).expect("writable");
            }
            Harm::Extra => fs::write(&path, "something").expect("writable"),
            Harm::Swap(other) => {
                let (other, aside) = (folder.join(other), folder.join("aside"));
                fs::rename(&path, &aside).expect("renamed");
                fs::rename(&other, &path).expect("renamed");
                fs::rename(&aside, &other).expect("renamed");
            }
        }
    }
}

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("creatable");
    let done = output({
        let mut command = Command::new("cp");
        command.args(["-a", "--sparse=always"]).arg(from.join(".")).arg(to);
        command
    });
    assert!(done.status.success(), "copied");
}

pub fn mainstem(words: &[&str], paths: &[(&str, &Path)]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    command.args(words);
    for (flag, path) in paths {
        command.arg(flag).arg(path);
    }
    let done = output(command);
    (
        done.status.success(),
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr)),
    )
}

/// Keys of all records of the topic, or what a reader is told.
pub fn read(process: &Process) -> Result<BTreeSet<String>, String> {
    let (mut found, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let answer = ask(process, "GET", &format!("/v1/topics/t/records?order=oldest&limit=100{cursor}"), &[], "");
        if answer.status != 200 {
            return Err(answer.body.to_string());
        }
        for record in answer.body["records"].as_array().expect("a list") {
            let key = record["key"].as_str().or_else(|| record["key"]["text"].as_str()).expect("a key");
            found.insert(key.to_owned());
        }
        match answer.body["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(found),
        }
    }
}

/// A data folder of two journals with objects in the archive, and a backup of it.
struct Whole {
    scratch: tempfile::TempDir,
    keys: BTreeSet<String>,
}

impl Whole {
    fn make() -> Self {
        let scratch = tempfile::tempdir().expect("a folder");
        let process = Process::start(&scratch.path().join("data"), FLAGS);
        let made = change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": 4}));
        assert_eq!(made.status, 201, "{}", made.body);
        let mut keys = BTreeSet::new();
        for number in 0..RECORDS {
            let key = format!("k{number}");
            let sent = change(
                &process,
                "POST",
                "/v1/topics/t/records",
                json!({"key": key, "value": format!("{number} ").repeat(VALUE_BYTES / 4)}),
            );
            assert_eq!(sent.status, 201, "{}", sent.body);
            keys.insert(key);
        }
        let backup = scratch.path().join("backup");
        let (ok, said) = mainstem(&["backup", "--admin", &process.admin.to_string()], &[("--to", &backup)]);
        assert!(ok, "{said}");
        assert_eq!(read(&process), Ok(keys.clone()));
        assert!(process.terminate().1);
        assert!(!files(&scratch.path().join("backup/archive")).is_empty(), "something is archived");
        Self { scratch, keys }
    }

    fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    fn backup(&self) -> PathBuf {
        self.scratch.path().join("backup")
    }
}

#[derive(Default)]
struct Outcome {
    name: String,
    row: (&'static str, &'static str),
    what: String,
    wrong: Vec<String>,
}

/// Does every case, several at once; prints the table.
fn all(cases: &[Case], do_one: impl Fn(&Case) -> Outcome + Sync) {
    let wanted = std::env::var("DAMAGES").unwrap_or_default();
    // A part of them takes long enough; the long tests do them all.
    let part = |(number, case): (usize, &Case)| match wanted.as_str() {
        "all" => true,
        "" => number % 4 == 0,
        name => case.name().contains(name),
    };
    let cases: Vec<&Case> = cases.iter().enumerate().filter(|one| part(*one)).map(|(_, case)| case).collect();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = Outcome { name: case.name(), row: (case.kind, case.how()), ..do_one(case) };
                    outcomes.lock().expect("no panic").push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("no panic");
    let mut rows: BTreeMap<_, BTreeMap<&str, usize>> = BTreeMap::new();
    for one in &outcomes {
        *rows.entry(one.row).or_default().entry(&one.what).or_default() += 1;
    }
    let mut table = format!("{} damages\n| what | damage | outcome |\n|---|---|---|\n", outcomes.len());
    for ((kind, how), counts) in rows {
        let counts: Vec<String> = counts.into_iter().map(|(what, count)| format!("{count} {what}")).collect();
        let _ = writeln!(table, "| {kind} | {how} | {} |", counts.join(", "));
    }
    println!("{table}");
    let known = |name: &str| KNOWN.iter().any(|(known, _)| name.starts_with(known));
    let mut unexpected = 0;
    for one in outcomes.iter().filter(|one| !one.wrong.is_empty()) {
        println!("{}{}: {}", if known(&one.name) { "known: " } else { "" }, one.name, one.wrong.join("; "));
        unexpected += usize::from(!known(&one.name));
    }
    assert_eq!(unexpected, 0, "of {} damages", outcomes.len());
}

/// Of each sort of file in a folder some, with flips all over them.
fn all_over(folder: &Path, kind: &'static str, file: &Path, flips: u64, cases: &mut Vec<Case>) {
    let length = fs::metadata(file).expect("it is there").len();
    let file = file.strip_prefix(folder).expect("inside").to_owned();
    let mut add = |harm| cases.push(Case { kind, file: file.clone(), harm });
    [Harm::Missing, Harm::Empty, Harm::Longer].into_iter().for_each(&mut add);
    [length / 3, length / 2, length - 1].into_iter().for_each(|at| add(Harm::Cut(at)));
    (0..flips).for_each(|number| add(Harm::Flip((length - 1) * number / (flips - 1).max(1))));
}

#[test]
fn a_damaged_data_folder_loses_nothing_without_a_word() {
    let whole = Whole::make();
    let data = whole.data();
    let mut cases = Vec::new();
    all_over(&data, "meta.toml", &data.join("meta.toml"), 40, &mut cases);
    for (kind, file, harm) in [
        ("lock", "lock", Harm::Missing),
        ("lock", "lock", Harm::Empty),
        ("lock", "lock", Harm::Longer),
        ("leftover", "restoring", Harm::Extra),
        ("leftover", "backup.toml", Harm::Extra),
        ("leftover", "journal-2", Harm::Extra),
        ("journal", "journal-0", Harm::Missing),
        ("journal", "journal-0", Harm::Empty),
        ("journal", "journal-1", Harm::Missing),
        ("journal", "journal-1", Harm::Empty),
        ("journal", "journal-0", Harm::Swap("journal-1".into())),
        ("archive", "archive", Harm::Missing),
        ("archive", "archive", Harm::Empty),
        ("checkpoint", "journal-0/checkpoint", Harm::Missing),
        ("checkpoint", "journal-1/checkpoint", Harm::Swap("journal-0/checkpoint".into())),
        ("reached", "journal-1/reached", Harm::Swap("journal-0/reached".into())),
    ] {
        cases.push(Case { kind, file: file.into(), harm });
    }
    for journal in ["journal-0", "journal-1"] {
        let segments: Vec<PathBuf> = files(&data.join(journal))
            .into_iter()
            .filter(|path| path.to_string_lossy().contains("/segment-"))
            .collect();
        for file in [&segments[0], &segments[segments.len() / 2], &segments[segments.len() - 2]] {
            all_over(&data, "segment", file, 4, &mut cases);
        }
        all_over(&data, "checkpoint", &data.join(journal).join("checkpoint"), 4, &mut cases);
    }
    for object in files(&data.join("archive")).iter().step_by(5) {
        all_over(&data, "object", object, 3, &mut cases);
    }
    all(&cases, |case| {
        let (scratch, mut outcome) = (tempfile::tempdir().expect("a folder"), Outcome::default());
        let (started, looked, out) =
            (scratch.path().join("started"), scratch.path().join("looked"), scratch.path().join("out"));
        copy(&data, &started);
        case.inflict(&started);
        copy(&started, &looked);
        let (is_whole, verified) = mainstem(&["journal", "verify"], &[("--data", &looked)]);
        let start = match Process::try_start(&started, FLAGS) {
            Err(said) => {
                if is_whole {
                    outcome.wrong.push(format!("refused, and verify finds nothing: {said}"));
                }
                if !["segment", "checkpoint", "journal", "meta.toml", "restore"].iter().any(|name| said.contains(name))
                {
                    outcome.wrong.push(format!("refused without a name: {said}"));
                }
                "refused"
            }
            Ok(process) => match read(&process) {
                Ok(found) if found == whole.keys => {
                    if is_whole {
                        "as if nothing were"
                    } else {
                        "all there, damage found"
                    }
                }
                Ok(found) => {
                    outcome.wrong.push(format!("{} records of {} without a word", found.len(), whole.keys.len()));
                    "lost"
                }
                Err(said) => {
                    if is_whole {
                        outcome.wrong.push(format!("readers are refused, and verify finds nothing: {said}"));
                    }
                    "readers refused"
                }
            },
        };
        let mended = if is_whole || start.starts_with("all there") {
            ""
        } else {
            salvaged(&whole, case, (&looked, &out), &verified, &mut outcome)
        };
        outcome.what = format!("{start}{mended}");
        outcome
    });
}

/// Salvages a folder and starts a broker with what that gives.
fn salvaged(
    whole: &Whole,
    case: &Case,
    (looked, out): (&Path, &Path),
    verified: &str,
    outcome: &mut Outcome,
) -> &'static str {
    if case.file == Path::new("restoring") {
        return "; restored again";
    }
    let without_catalog = case.file == Path::new("journal-0") && matches!(case.harm, Harm::Missing | Harm::Empty);
    let (ok, said) = mainstem(&["journal", "salvage"], &[("--data", looked), ("--out", out)]);
    if without_catalog && !ok && said.contains("journal 0 is not there: all topics, ") {
        return "; nothing to salvage";
    }
    if !ok || without_catalog {
        outcome.wrong.push(format!("no salvage: {said}"));
        return "; none";
    }
    let process = match Process::try_start(out, FLAGS) {
        Ok(process) => process,
        Err(text) => {
            outcome.wrong.push(format!("no start after a salvage: {text}"));
            return "; none";
        }
    };
    match read(&process) {
        Ok(found) if found == whole.keys => "; all there after a salvage",
        _ if verified.contains("LOST")
            || verified.contains("had come to chunk")
            || verified.contains("is not there")
            || said.contains("LOST") =>
        {
            "; lost as said"
        }
        Ok(found) => {
            outcome.wrong.push(format!(
                "after a salvage {} records of {} without a word: {said}",
                found.len(),
                whole.keys.len()
            ));
            "; lost"
        }
        Err(text) => {
            outcome.wrong.push(format!("after a salvage readers are refused: {text}"));
            "; none"
        }
    }
}

#[test]
fn a_damaged_backup_is_not_restored_without_a_word() {
    let whole = Whole::make();
    let backup = whole.backup();
    let pristine = whole.scratch.path().join("pristine");
    let (ok, said) = mainstem(&["restore"], &[("--from", &backup), ("--data", &pristine)]);
    assert!(ok, "{said}");
    let mut cases = Vec::new();
    all_over(&backup, "backup backup.toml", &backup.join("backup.toml"), 40, &mut cases);
    all_over(&backup, "backup meta.toml", &backup.join("meta.toml"), 10, &mut cases);
    for journal in ["journal-0", "journal-1"] {
        let all = files(&backup.join(journal));
        let segments: Vec<&PathBuf> = all.iter().filter(|path| path.to_string_lossy().contains("/segment-")).collect();
        for file in [segments[0], segments[segments.len() / 2], segments[segments.len() - 1]] {
            all_over(&backup, "backup segment", file, 8, &mut cases);
        }
        all_over(&backup, "backup checkpoint", &backup.join(journal).join("checkpoint"), 8, &mut cases);
        let inside = |path: &Path| path.strip_prefix(&backup).expect("inside").to_owned();
        cases.push(Case { kind: "backup segment", file: inside(segments[0]), harm: Harm::Swap(inside(segments[1])) });
    }
    cases.push(Case {
        kind: "backup checkpoint",
        file: "journal-0/checkpoint".into(),
        harm: Harm::Swap("journal-1/checkpoint".into()),
    });
    cases.push(Case { kind: "backup journal", file: "journal-0".into(), harm: Harm::Swap("journal-1".into()) });
    cases.push(Case { kind: "backup journal", file: "journal-1".into(), harm: Harm::Missing });
    let objects = files(&backup.join("archive"));
    for object in objects.iter().step_by(4) {
        all_over(&backup, "backup object", object, 8, &mut cases);
    }
    let inside = |path: &Path| path.strip_prefix(&backup).expect("inside").to_owned();
    cases.push(Case { kind: "backup object", file: inside(&objects[0]), harm: Harm::Swap(inside(&objects[1])) });
    all(&cases, |case| {
        let (scratch, mut outcome) = (tempfile::tempdir().expect("a folder"), Outcome::default());
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        copy(&backup, &from);
        case.inflict(&from);
        let (ok, said) = mainstem(&["restore"], &[("--from", &from), ("--data", &to)]);
        outcome.what = match ok {
            false => {
                if !["segment", "checkpoint", "journal", "backup", "meta.toml", "archive"]
                    .iter()
                    .any(|name| said.contains(name))
                {
                    outcome.wrong.push(format!("refused without a name: {said}"));
                }
                if !files(&to).is_empty() {
                    outcome.wrong.push("something is left of a restore that was refused".to_owned());
                }
                "refused"
            }
            true if is_same(&pristine, &to) => "restored, the same",
            true => match Process::try_start(&to, FLAGS).map(|process| read(&process)) {
                Ok(Ok(found)) if found == whole.keys => "restored, all there",
                other => {
                    let what = other.map(|found| found.map(|found| found.len()));
                    outcome.wrong.push(format!("restored, and then: {what:?}"));
                    "restored, not whole"
                }
            },
        }
        .to_owned();
        outcome
    });
}

pub fn is_same(one: &Path, other: &Path) -> bool {
    let names = |folder: &Path| {
        files(folder).into_iter().map(|path| path.strip_prefix(folder).expect("inside").to_owned()).collect::<Vec<_>>()
    };
    names(one) == names(other)
        && names(one).iter().all(|name| fs::read(one.join(name)).ok() == fs::read(other.join(name)).ok())
}

/// As where its disk is not mounted: what is acknowledged then must not go to where nobody will find it again.
#[test]
fn an_archive_that_is_not_there_is_missed() {
    let whole = Whole::make();
    let (data, away) = (whole.data(), whole.scratch.path().join("away"));
    let archive = data.join("archive");
    fs::rename(&archive, &away).expect("renamed");
    let refused = |flags: &[&str]| Process::try_start(&data, flags).err().expect("it does not start");
    for _ in 0..2 {
        let said = refused(FLAGS);
        assert!(
            said.contains("(mainstem.archive.folder) has no folder of journal")
                && said.contains("is its disk mounted?"),
            "{said}"
        );
        assert!(files(&archive).is_empty(), "nothing is put there");
    }
    fs::remove_dir_all(&archive).expect("removable");
    fs::rename(&away, &archive).expect("renamed");
    let process = Process::start(&data, FLAGS);
    assert_eq!(read(&process), Ok(whole.keys.clone()), "it is mounted");
    assert!(process.terminate().1);
    // One object alone concerns its readers only.
    let object = files(&archive).swap_remove(0);
    let bytes = fs::read(&object).expect("readable");
    fs::remove_file(&object).expect("removable");
    assert!(Process::start(&data, FLAGS).terminate().1);
    fs::write(&object, bytes).expect("writable");

    // It is gone for good.
    fs::remove_dir_all(&archive).expect("removable");
    let (is_whole, said) = mainstem(&["journal", "verify"], &[("--data", &data)]);
    let named: Vec<&str> = said.split_whitespace().filter(|word| word.ends_with("-objects")).collect();
    assert!(!is_whole && !named.is_empty(), "{said}");
    let accepting = named.iter().flat_map(|name| ["--accept-loss", name]);
    let accepting: Vec<&str> = FLAGS.iter().copied().chain(accepting).collect();
    assert!(Process::start(&data, &accepting).terminate().1);
    let said = refused(&accepting);
    assert!(said.contains("that is not damaged in journal"), "{said}");
    let process = Process::start(&data, FLAGS);
    read(&process).expect_err("what is lost is not passed over");
    assert!(process.terminate().1);
}

/// Lines of what is damaged.
fn damaged(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("DAMAGED")).collect()
}

/// What a person reads who has a damaged folder before him.
#[test]
fn what_is_wrong_is_said_with_its_journal_and_what_to_do() {
    let whole = Whole::make();
    let (data, scratch) = (whole.data(), whole.scratch.path());
    let verify = |folder: &Path| mainstem(&["journal", "verify"], &[("--data", folder)]);
    let salvage = |folder: &Path, out: &str| {
        mainstem(&["journal", "salvage"], &[("--data", folder), ("--out", &scratch.join(out))])
    };

    let missing = scratch.join("missing");
    copy(&data, &missing);
    let segments: Vec<PathBuf> = files(&missing.join("journal-1"))
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("/segment-"))
        .collect();
    fs::remove_file(&segments[segments.len() / 2]).expect("removable");
    let said = Process::try_start(&missing, FLAGS).err().expect("it is refused");
    let (folder, hint) = (
        missing.join("journal-1").display().to_string(),
        format!("`mainstem journal verify --data {}`", missing.display()),
    );
    let line = said.lines().find(|line| line.contains("is missing, and records")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(&folder) && line.contains(&hint) && line.contains("docs/operations/damage.md"), "{line}");

    // Journal 0 has the catalog.
    let without = scratch.join("without");
    copy(&data, &without);
    fs::remove_dir_all(without.join("journal-0")).expect("removable");
    let (ok, said) = verify(&without);
    assert!(
        !ok && said.contains("0-journal")
            && said.contains("all topics, queues, users, settings, groups")
            && said.contains("not all can be known"),
        "{said}"
    );
    assert!(!is_loss_known(&without));
    let (ok, said) = salvage(&without, "none");
    assert!(
        !ok && said.contains("journal 0 is not there: all topics, queues, users, settings, groups")
            && said.contains("restore a backup"),
        "{said}"
    );

    // Another node's, which is damaged.
    let other = scratch.join("other");
    let process = Process::start(&other, &FLAGS[..4]);
    assert!(process.terminate().1);
    let path = files(&other.join("journal-1"))
        .into_iter()
        .find(|path| path.to_string_lossy().contains("/segment-"))
        .expect("a segment");
    for number in ["journal-0", "journal-1"] {
        let foreign = scratch.join(format!("foreign-{number}"));
        copy(&data, &foreign);
        fs::remove_dir_all(foreign.join(number)).expect("removable");
        copy(&other.join("journal-1"), &foreign.join(number));
        let inside = foreign.join(number).join(path.file_name().expect("a name"));
        OpenOptions::new().write(true).open(inside).expect("openable").write_all_at(&[7; 64], 5000).expect("writable");
        let (ok, said) = verify(&foreign);
        assert!(
            !ok && damaged(&said).len() == 1 && damaged(&said)[0].contains("of another data folder"),
            "{number}: {said}"
        );
        let said = Process::try_start(&foreign, FLAGS).err().expect("it is refused");
        assert!(said.contains("holds journal") && said.contains("meta.toml says that it is"), "{number}: {said}");
        let (ok, said) = salvage(&foreign, &format!("out-{number}"));
        assert!(ok == (number == "journal-1") && said.contains(&format!("LEFT OUT {number}: ")), "{number}: {said}");
    }

    // Many objects at once; how many the archive makes of as many records depends on when it looks.
    let archive = data.join("archive");
    let most = || {
        fs::read_dir(&archive)
            .expect("an archive")
            .map(|journal| journal.expect("a folder").path())
            .max_by_key(|folder| files(folder).len())
            .expect("something is archived")
    };
    let process = Process::start(&data, FLAGS);
    for _ in 0..20 * RECORDS {
        if files(&most()).len() > 12 {
            break;
        }
        let sent = change(
            &process,
            "POST",
            "/v1/topics/t/records",
            json!({"key": "more", "value": "more ".repeat(VALUE_BYTES / 5)}),
        );
        assert_eq!(sent.status, 201, "{}", sent.body);
    }
    assert!(process.terminate().1);
    fs::remove_dir_all(most()).expect("removable");
    let (_, said) = mainstem(&["journal", "verify", "--json"], &[("--data", &data)]);
    let count = said.matches("-object-").count();
    assert!(count > 10, "{count} objects of one journal");
    let (_, said) = verify(&data);
    let lines = damaged(&said);
    let (at, listed) = (
        lines.iter().position(|line| line.contains("-objects ")),
        lines.iter().filter(|line| line.contains("-object-")).count(),
    );
    assert!(
        at == Some(0) && listed == 10 && said.contains(&format!("and {} more places in objects", count - 10)),
        "{said}"
    );
}

/// What `verify --json` says.
fn is_loss_known(data: &Path) -> bool {
    let (_, said) = mainstem(&["journal", "verify", "--json"], &[("--data", data)]);
    let found: serde_json::Value =
        serde_json::from_str(said.lines().find(|line| line.starts_with('{')).expect("an object")).expect("JSON");
    found["loss_known"].as_bool().expect("it is said")
}

#[test]
fn what_was_at_the_end_of_a_journal_is_lost_without_a_count() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (data, flags) = (scratch.path().join("data"), ["--set", "mainstem.segment.bytes=262144"]);
    let process = Process::start(&data, &flags);
    assert_eq!(change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": 1})).status, 201);
    for _ in 0..40 {
        assert_eq!(change(&process, "POST", "/v1/topics/t/records", json!({"value": "v".repeat(20_000)})).status, 201);
    }
    assert!(process.terminate().1);
    assert!(is_loss_known(&data), "nothing is lost");
    let segments: Vec<PathBuf> = files(&data.join("journal-0"))
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("/segment-"))
        .collect();
    let has_chunks = |path: &PathBuf| fs::read(path).expect("readable").windows(4).any(|part| part == b"MSCK");
    let newest = segments.iter().rposition(has_chunks).expect("one that was written");
    segments[newest..].iter().for_each(|path| fs::remove_file(path).expect("removable"));
    let (ok, said) = mainstem(&["journal", "verify"], &[("--data", &data)]);
    assert!(!ok && said.contains("had come to chunk") && said.contains("not all can be known"), "{said}");
    assert!(!is_loss_known(&data));
}

/// Messages of a queue that are lost, in a sealed segment and in the one that was written, are none of its messages.
#[test]
fn messages_that_a_repair_has_replaced_do_not_count() {
    const MESSAGES: u64 = 100;
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let scratch = tempfile::tempdir().expect("a folder");
    let (data, flags) = (scratch.path().join("data"), ["--set", "mainstem.segment.bytes=262144"]);
    let process = Process::start(&data, &flags);
    assert!(mainstem(&["queue", "declare", "q", "--admin", &process.admin.to_string()], &[]).0);
    for _ in 0..MESSAGES {
        let message = json!({"routing_key": "q", "body": "x".repeat(8000)});
        let sent = change(&process, "POST", "/v1/exchanges/%2F/amq.default/publish", message);
        assert!(sent.status < 300, "{}", sent.body);
    }
    assert!(process.terminate().1);
    let mut begun: Vec<(PathBuf, u64)> = Vec::new();
    for path in files(&data.join("journal-0")).into_iter().filter(|path| path.to_string_lossy().contains("/segment-")) {
        let bytes = fs::read(&path).expect("readable");
        let chunks: Vec<u64> =
            (0..bytes.len() as u64).step_by(4096).filter(|at| bytes[*at as usize..].starts_with(b"MSCK")).collect();
        let large = chunks.windows(2).find(|two| two[1] - two[0] > 8192).map(|two| two[0]);
        begun.extend(large.map(|at| (path, at)));
    }
    assert!(begun.len() > 2, "{begun:?}");
    for (path, at) in [&begun[0], &begun[begun.len() - 1]] {
        OpenOptions::new()
            .write(true)
            .open(path)
            .expect("openable")
            .write_all_at(&[7; 64], at + 6000)
            .expect("writable");
    }
    let (_, said) = mainstem(&["journal", "verify"], &[("--data", &data)]);
    let named = damaged(&said).into_iter().filter_map(|line| line.split_whitespace().nth(1)).collect::<Vec<_>>();
    let range = |line: &str| {
        line.split(" offsets ")
            .nth(1)?
            .split(',')
            .next()?
            .split_once("..")
            .map(|(from, until)| (number(from), number(until)))
    };
    let lost: u64 =
        said.lines().filter(|line| line.starts_with("LOST")).filter_map(range).map(|(from, until)| until - from).sum();
    assert!(named.len() == 2 && lost >= 2, "{said}");
    assert!(is_loss_known(&data) && !said.contains("not all can be known"), "{said}");
    let accepting: Vec<&str> =
        flags.iter().copied().chain(named.iter().flat_map(|name| ["--accept-loss", name])).collect();
    assert!(Process::start(&data, &accepting).terminate().1);
    let process = Process::start(&data, &flags);
    // They are looked for on the disk, as soon as somebody asks.
    let (began, mut ready) = (std::time::Instant::now(), 0);
    while ready != MESSAGES - lost {
        assert!(began.elapsed() < crate::process::PATIENCE, "{ready} of {MESSAGES}: {said}");
        ready = get(&process, "/v1/queues/%2F/q")["ready"].as_u64().expect("a number");
    }
}

#[test]
fn a_node_that_has_archived_nothing_needs_no_archive() {
    let scratch = tempfile::tempdir().expect("a folder");
    let data = scratch.path().join("data");
    let process = Process::start(&data, FLAGS);
    assert_eq!(change(&process, "POST", "/v1/topics", json!({"name": "t", "partitions": 1})).status, 201);
    assert_eq!(change(&process, "POST", "/v1/topics/t/records", json!({"key": "k", "value": "v"})).status, 201);
    assert!(process.terminate().1);
    fs::remove_dir_all(data.join("archive")).expect("removable");
    assert_eq!(read(&Process::start(&data, FLAGS)), Ok(BTreeSet::from(["k".to_owned()])));
}

/// Every refusal of a start has its words in the runbook.
#[test]
fn the_runbook_has_every_refusal_of_a_start() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let runbook = text("docs/operations/damage.md");
    let mut refusals = Vec::new();
    for (path, name) in [
        ("crates/journal/src/recovery/mod.rs", "OpenError"),
        ("crates/journal/src/segments.rs", "SegmentError"),
        ("crates/journal/src/checkpoint.rs", "CheckpointError"),
        ("crates/journal/src/archive/mod.rs", "ArchiveRecordError"),
        ("crates/journal/src/repair.rs", "RepairError"),
        ("crates/broker/src/lib.rs", "BrokerOpenError"),
    ] {
        let source = text(path);
        let at = ["enum", "struct"]
            .iter()
            .find_map(|kind| source.find(&format!("pub {kind} {name} ")))
            .unwrap_or_else(|| panic!("{name} in {path}"));
        // What stands before it, and its variants.
        let before = source[..at].rfind("\n}\n").map_or(0, |end| end);
        let end = at + source[at..].find("\n}\n").expect("it ends");
        refusals.extend(
            source[before..end]
                .split("#[error(\"")
                .skip(1)
                .filter_map(|rest| rest.split("\")]").next())
                .map(str::to_owned),
        );
    }
    for (path, call) in [
        ("crates/mainstem/src/archive_lock.rs", "bail!("),
        ("crates/mainstem/src/data_folder.rs", "bail!("),
        ("crates/mainstem/src/server.rs", "bail!("),
        ("crates/mainstem/src/unfinished.rs", ", _) => "),
        ("crates/mainstem/src/unfinished.rs", "Held) => "),
        ("crates/journal/src/recovery/mod.rs", "io_error("),
    ] {
        let source = text(path);
        // The text may stand in the next line.
        let texts = source.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
        refusals.extend(texts.filter_map(|text| text.split('"').next()).map(|text| text.replace("\\\n", "")));
    }
    refusals.extend(["no way of disk I/O works", "mainstem.archive.folder"].map(str::to_owned));
    assert!(refusals.len() > 30, "{refusals:?}");
    let mut missing: Vec<&String> = refusals.iter().filter(|refusal| !runbook.contains(&fixed(refusal))).collect();
    // What another error says is looked for where that is.
    missing.extend(
        refusals
            .iter()
            .filter(|refusal| fixed(refusal).is_empty() && !["{what}: {source}"].contains(&refusal.as_str())),
    );
    assert!(missing.is_empty(), "docs/operations/damage.md has no words of {missing:#?}");
}

/// The longest part of a message that is the same in all, without what it says is to be done.
fn fixed(message: &str) -> String {
    let said = message.split(';').next().unwrap_or_default();
    let said = said.split(" docs/operations").next().unwrap_or_default();
    let parts =
        said.split('{').flat_map(|part| part.rsplit('}').take(1)).map(|part| part.trim_matches([' ', ',', ':']));
    parts.max_by_key(|part| part.len()).unwrap_or_default().to_owned()
}
