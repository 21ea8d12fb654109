//! Folders with something of everything, that damages are done to copies of, and what has to be in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::{AppendItem, ArchiveStore, ColdWant, JournalConfig, OpenError};
use record::Batches;
use types::{LogId, Offset};

use super::harms;
use super::store::FolderStore;
use crate::node::{Node, small, value};

pub const VALUE_BYTES: usize = 900;
pub const LOGS: std::ops::RangeInclusive<u64> = 1..=3;

/// What was acknowledged.
#[derive(Clone, Default)]
pub struct Expected {
    /// First offset of each log and the one after the last.
    pub logs: BTreeMap<u64, (Offset, Offset)>,
    pub state: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A folder as a journal left it: `journal` and `archive` in it.
pub struct Base {
    pub name: &'static str,
    pub folder: tempfile::TempDir,
    /// The same at an earlier time.
    pub older: tempfile::TempDir,
    pub expected: Expected,
    pub config: fn() -> JournalConfig,
}

pub fn at_rest() -> JournalConfig {
    JournalConfig { segment_bytes: 256 << 10, retention_check_ms: 3_600_000, ..small() }
}

fn windowed() -> JournalConfig {
    JournalConfig { window_bytes: Some(3 << 20), object_bytes: 96 << 10, tail_bytes: 1 << 20, ..at_rest() }
}

pub fn open(folder: &Path, config: JournalConfig) -> Result<Node, OpenError> {
    let store: Arc<dyn ArchiveStore> = Arc::new(FolderStore(folder.join("archive")));
    Node::open_storing(&folder.join("journal"), store, config)
}

pub fn copy(from: &Path, to: &Path) {
    for path in super::store::files(from) {
        let target = to.join(path.strip_prefix(from).expect("inside"));
        fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
        fs::copy(&path, target).expect("copied");
    }
}

fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn put(node: &Node, expected: &mut Expected, key: String, value: Option<Vec<u8>>) {
    let item = AppendItem::State { key: Bytes::from(key.clone()), value: value.clone().map(Bytes::from) };
    node.append(9, vec![item]).expect("state is taken");
    match value {
        Some(value) => expected.state.insert(key.into_bytes(), value),
        None => expected.state.remove(key.as_bytes()),
    };
}

fn fill(node: &Node, expected: &mut Expected, rounds: std::ops::Range<u64>) {
    let logs: Vec<_> = LOGS.map(|id| node.log(id)).collect();
    for round in rounds {
        node.append_batch(&logs[0], 20, VALUE_BYTES).expect("appended");
        node.append_batch(&logs[1], 5, VALUE_BYTES).expect("appended");
        if round % 4 == 0 {
            node.append_batch(&logs[2], 3, VALUE_BYTES).expect("appended");
        }
        put(node, expected, format!("key-{}", round % 12), Some(format!("{round} ").repeat(40).into_bytes()));
        if round % 10 == 3 {
            put(node, expected, format!("key-{}", (round + 5) % 12), None);
        }
    }
}

/// What is full is sealed before: a damage to an index finds one.
fn close(node: Node, folder: &Path, expected: &mut Expected) {
    wait_for("what is full is sealed", || {
        let (all, _) = harms::begun(folder);
        all[..all.len() - 1].iter().all(|path| harms::is_sealed(path))
    });
    for id in LOGS {
        let log = node.log(id);
        expected.logs.insert(id, (log.start(), log.end()));
    }
    node.close();
}

/// Segments of one log were rewritten into one; all but the newest is behind a checkpoint.
pub fn rewritten() -> Base {
    let (folder, older) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut expected = Expected::default();
    let node = open(folder.path(), at_rest()).expect("it opens");
    fill(&node, &mut expected, 0..60);
    node.trim(&node.log(1), 600).expect("trimmed");
    node.journal.check_retention();
    wait_for("old segments are rewritten", || node.journal.metrics().segments_rewritten.get() > 0);
    node.close();
    let node = open(folder.path(), at_rest()).expect("it opens");
    fill(&node, &mut expected, 60..102);
    node.close();
    copy(folder.path(), older.path());
    let node = open(folder.path(), at_rest()).expect("it opens");
    fill(&node, &mut expected, 102..106);
    node.trim(&node.log(3), 7).expect("trimmed");
    close(node, folder.path(), &mut expected);
    Base { name: "rewritten", folder, older, expected, config: at_rest }
}

/// The checkpoint is several segments old.
pub fn behind() -> Base {
    let (folder, older) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut expected = Expected::default();
    let node = open(folder.path(), at_rest()).expect("it opens");
    fill(&node, &mut expected, 0..30);
    node.close();
    copy(folder.path(), older.path());
    let node = open(folder.path(), at_rest()).expect("it opens");
    fill(&node, &mut expected, 30..70);
    close(node, folder.path(), &mut expected);
    for name in ["journal/checkpoint", "journal/checkpoint-copy"] {
        fs::copy(older.path().join(name), folder.path().join(name)).expect("copied");
    }
    Base { name: "behind", folder, older, expected, config: at_rest }
}

/// A part of it is in the archive.
pub fn archived() -> Base {
    let (folder, older) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut expected = Expected::default();
    let node = open(folder.path(), windowed()).expect("it opens");
    fill(&node, &mut expected, 0..130);
    node.close();
    copy(folder.path(), older.path());
    let node = open(folder.path(), windowed()).expect("it opens");
    fill(&node, &mut expected, 130..240);
    wait_for("something is archived", || LOGS.into_iter().all(|id| node.log(id).archived_until() > Offset(20)));
    close(node, folder.path(), &mut expected);
    Base { name: "archived", folder, older, expected, config: windowed }
}

/// Files of another journal.
pub fn foreign() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path(), at_rest()).expect("it opens");
    fill(&node, &mut Expected::default(), 0..30);
    node.close();
    folder
}

/// What an opened journal gives of what was acknowledged.
#[derive(Debug, Default)]
pub struct Served {
    /// What is not there, without a word: state, logs, and where they begin and end.
    pub silent: Vec<String>,
    /// What is not what was written.
    pub changed: Vec<String>,
    /// Offsets of which a reader is told what is wrong, by log.
    pub refused: Vec<(u64, u64)>,
    /// Offsets in place of which there are none any more.
    pub empty: Vec<(u64, u64)>,
    pub first_error: Option<String>,
}

/// Reads everything.
pub fn read(node: &Node, expected: &Expected) -> Served {
    let mut served = Served::default();
    let state: BTreeMap<Vec<u8>, Vec<u8>> =
        node.journal.take_state().into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    if state != expected.state {
        let differs = |key: &&Vec<u8>| state.get(*key) != expected.state.get(*key);
        let keys = state.keys().chain(expected.state.keys());
        served.silent.push(format!(
            "state {:?}",
            keys.filter(differs).map(|key| String::from_utf8_lossy(key)).collect::<std::collections::BTreeSet<_>>()
        ));
    }
    for (id, (start, end)) in &expected.logs {
        let Some(log) = node.journal.log(LogId(*id)) else {
            served.silent.push(format!("log {id}"));
            continue;
        };
        if (log.start(), log.end()) != (*start, *end) {
            served.silent.push(format!("log {id} {}..{} in place of {start}..{end}", log.start(), log.end()));
        }
        let until = log.end().min(*end);
        wait_for("what was recovered can be read", || log.high_watermark() >= until);
        read_log(node, &log, log.start().max(*start)..until, &mut served);
    }
    served
}

fn read_log(node: &Node, log: &Arc<journal::Log>, range: std::ops::Range<Offset>, served: &mut Served) {
    let (id, mut at) = (log.id().0, range.start);
    while at < range.end {
        let want = ColdWant { log: Arc::clone(log), from: at, until: range.end, max_bytes: 64 << 10 };
        let data = match node.journal.read_cold(&[want], 64 << 10).remove(0) {
            Ok(data) => data,
            Err(error) => {
                let error = error.to_string();
                if !error.contains("000000") {
                    served.changed.push(format!("log {id} from {at}: {error}"));
                }
                served.first_error.get_or_insert(error);
                served.refused.push((id, at.0));
                at = Offset(at.0 + 1);
                continue;
            }
        };
        let bytes = data.slices.concat();
        let from = at;
        for batch in Batches::new(&bytes) {
            let Ok((position, header)) = batch else {
                served.changed.push(format!("log {id} from {at}: no batch"));
                break;
            };
            if header.base() > at {
                served.empty.extend((at.0..header.base().0.min(range.end.0)).map(|offset| (id, offset)));
            }
            let records = record::records(&bytes[position..position + header.total_bytes()]).unwrap_or_default();
            let until = header.next().min(range.end);
            for offset in at.max(header.base()).0..until.0 {
                let found = records.iter().find(|record| record.offset.0 == offset);
                match found {
                    Some(found) if found.value.as_deref() == Some(&value(log.id(), offset, VALUE_BYTES)[..]) => {}
                    Some(_) => served.changed.push(format!("log {id} offset {offset}: another record")),
                    None => served.empty.push((id, offset)),
                }
            }
            at = at.max(until);
        }
        if at == from {
            served.changed.push(format!("log {id} from {at}: nothing is answered"));
            at = Offset(at.0 + 1);
        }
    }
}

/// The journal's files.
pub fn journal_of(folder: &Path) -> PathBuf {
    folder.join("journal")
}
