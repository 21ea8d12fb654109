//! What the logs of a node are called, from its keyed state alone: for people who look after a data folder that no broker has open.

use std::collections::BTreeMap;

use types::LogId;

use crate::catalog::{TOPIC_KEY, TopicRecord};
use crate::queues::{DELAYS_KEY, FoundQueues, QUEUES_KEY};

/// Every log that is in use, with a name; `state` is the keyed state of all journals. Records that are not readable name none.
pub fn log_names<'a>(state: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> BTreeMap<LogId, String> {
    let (mut names, mut queues) = (BTreeMap::new(), FoundQueues::default());
    for (key, value) in state {
        match key.first() {
            Some(&TOPIC_KEY) => {
                let topic = String::from_utf8_lossy(&key[1..]);
                let logs = TopicRecord::decode(value).map(|record| record.logs).unwrap_or_default();
                names.extend(logs.into_iter().enumerate().map(|(number, log)| (log, format!("{topic}-{number}"))));
            }
            Some(&QUEUES_KEY | &DELAYS_KEY) => queues.take(key, value),
            _ => {}
        }
    }
    for (log, name) in queues.log_names() {
        names.entry(log).or_insert(name);
    }
    names
}
