//! Keyed state as the model knows it: what was put under each key, in order, and how far it is acknowledged. Every second key tells
//! of a log: it is of the log's class, and goes back with the power where that is `memory`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use journal::{AppendItem, Log};
use types::LogId;

const KEYS: u64 = 8;

/// All keys.
#[derive(Clone, Default)]
pub struct State(BTreeMap<u64, Put>);

/// What was put under a key since the last restart, after what was there then.
#[derive(Clone)]
struct Put {
    values: Vec<Option<u64>>,
    /// Place of the last one that was acknowledged.
    acknowledged: usize,
}

impl Default for Put {
    fn default() -> Self {
        Self { values: vec![None], acknowledged: 0 }
    }
}

fn bytes_of(key: u64) -> Bytes {
    Bytes::from(format!("key-{key}"))
}

/// One of the keys.
pub fn choose(random: &mut crate::random::Random) -> u64 {
    random.below(KEYS)
}

/// The log that a key tells of, among the first `logs`.
pub fn log_of(key: u64, logs: u64) -> Option<LogId> {
    (key % 2 == 1).then(|| LogId(1 + key % logs))
}

impl State {
    /// A value, or none, is to be put under a key; the item that does it.
    pub fn put(&mut self, key: u64, value: Option<u64>, log: Option<Arc<Log>>) -> AppendItem {
        self.0.entry(key).or_default().values.push(value);
        let (key, value) = (bytes_of(key), value.map(|value| Bytes::from(value.to_string())));
        match log {
            Some(log) => AppendItem::StateOf { log, key, value },
            None => AppendItem::State { key, value },
        }
    }

    /// It was acknowledged. Later values may be there too: they stay possible.
    pub fn acknowledge(&mut self, key: u64, value: Option<u64>) {
        let put = self.0.entry(key).or_default();
        if let Some(at) = (put.acknowledged + 1..put.values.len()).find(|at| put.values[*at] == value) {
            put.acknowledged = at;
        }
    }

    /// Compares with what was recovered; `may_go_back`: nothing that was put under the key since the restart before was flushed for
    /// certain. Returns how many acknowledged values are gone.
    ///
    /// # Errors
    /// What contradicts the model.
    pub fn check(&mut self, recovered: Vec<(Bytes, Bytes)>, may_go_back: impl Fn(u64) -> bool) -> Result<u64, String> {
        let recovered: BTreeMap<Bytes, Bytes> = recovered.into_iter().collect();
        let mut gone = 0;
        for key in 0..KEYS {
            let found = recovered.get(&bytes_of(key)).map(|value| String::from_utf8_lossy(value).parse().unwrap_or(0));
            let put = self.0.entry(key).or_default();
            let (before, since) = put.values.split_at(put.acknowledged);
            if !since.contains(&found) {
                if !may_go_back(key) || !before.contains(&found) {
                    return Err(format!("state {key} is {found:?}, acknowledged and possible {since:?}"));
                }
                gone += 1;
            }
            *put = Put { values: vec![found], acknowledged: 0 };
        }
        Ok(gone)
    }
}
