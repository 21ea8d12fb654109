//! The catalog: which topics there are. In memory for every look-up; durable as keyed state in journal 0.
//!
//! ```text
//! key   "t" name                 value  u8 version (1), [16] topic id,
//!                                       u32 range count, (u64 first log id, u32 count) each,
//!                                       settings as in `overrides.rs`
//! key   "m" "log"                value  u64 next log id
//! key   "m" "producer"           value  u64 next producer id
//! ```

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::RwLock;
use types::{LogId, TopicId};
use uuid::Uuid;

use crate::arc_table::ArcTable;
use crate::overrides::{self, Overrides};
use crate::topic::Topic;

/// First byte of a topic's key.
pub(crate) const TOPIC_KEY: u8 = b't';
/// Key of the next log id.
pub(crate) const NEXT_LOG_KEY: &[u8] = b"mlog";
/// Key of the next producer id.
pub(crate) const NEXT_PRODUCER_KEY: &[u8] = b"mproducer";

const VERSION: u8 = 1;

/// A name is kept in so many places, or as much with what it is kept in; a text of a setting likewise, beside so many bytes.
const NAME_TIMES: usize = 6;
const TEXT_TIMES: usize = 3;
const TEXT_BYTES: usize = 100;
/// Names of which is known that they have come or gone: what has not looked for longer looks at all.
const CHANGES_MAX: usize = 4096;

/// A topic as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicRecord {
    pub id: TopicId,
    pub logs: Vec<LogId>,
    pub overrides: Overrides,
}

pub(crate) fn topic_key(name: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(name.len() + 1);
    key.put_u8(TOPIC_KEY);
    key.put_slice(name.as_bytes());
    key.freeze()
}

impl TopicRecord {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_slice(self.id.0.as_bytes());
        let ranges: Vec<&[LogId]> = self.logs.chunk_by(|one, next| one.0 + 1 == next.0).collect();
        out.put_u32(ranges.len() as u32);
        for range in ranges {
            out.put_u64(range[0].0);
            out.put_u32(range.len() as u32);
        }
        overrides::encode(&self.overrides, &mut out);
        // Without room to grow: the journal keeps it.
        Bytes::copy_from_slice(&out)
    }

    /// `None` when the bytes are no topic of this or an older version.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        if bytes.try_get_u8().ok()? != VERSION || bytes.len() < 16 {
            return None;
        }
        let id = TopicId(Uuid::from_u128(bytes.try_get_u128().ok()?));
        let mut logs = Vec::new();
        for _ in 0..bytes.try_get_u32().ok()? {
            let (first, count) = (bytes.try_get_u64().ok()?, bytes.try_get_u32().ok()?);
            logs.extend((0..u64::from(count)).map(|number| LogId(first + number)));
        }
        Some(Self { id, logs, overrides: overrides::decode(&mut bytes)? })
    }
}

/// All topics, by name and by id.
#[derive(Default)]
pub(crate) struct Catalog {
    inner: RwLock<Inner>,
    /// Rises with every topic that is created, deleted or enlarged.
    version: AtomicU64,
    /// Rises with every name that comes or goes.
    naming: AtomicU64,
}

/// A topic in the order of names, which it has itself.
struct ByName(Arc<Topic>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Order {
        self.0.name.cmp(&other.0.name)
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

struct Inner {
    by_name: BTreeSet<ByName>,
    by_id: ArcTable<Topic, TopicId>,
    /// Names with a dot or an underscore, behind what Kafka's metrics would call them.
    unified: BTreeSet<(Box<str>, Box<str>)>,
    /// Names that have come or gone last.
    changes: VecDeque<Box<str>>,
    /// Of topics that have a name.
    partitions: usize,
    /// Bytes of memory that their names and settings take, about.
    texts: usize,
}

/// What settings of a topic take of memory, about.
pub(crate) fn weight_of_settings(overrides: &Overrides) -> usize {
    overrides.iter().map(|(name, value)| TEXT_BYTES + TEXT_TIMES * (name.len() + value.len())).sum()
}

/// What its name and its settings take.
pub(crate) fn weight_of_texts(name: &str, overrides: &Overrides) -> usize {
    NAME_TIMES * name.len() + weight_of_settings(overrides)
}

fn weight(topic: &Topic) -> usize {
    weight_of_texts(&topic.name, &topic.config().overrides)
}

/// A name as Kafka's metrics have it, where dots are underscores; `None` where there is neither.
pub(crate) fn unified(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            by_name: BTreeSet::new(),
            by_id: ArcTable::new(|topic| &topic.id),
            unified: BTreeSet::new(),
            changes: VecDeque::new(),
            partitions: 0,
            texts: 0,
        }
    }
}

impl Catalog {
    /// The state of all topics: rises with every one that is created, deleted or enlarged.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// The state of their names: rises by one with each that comes or goes.
    pub fn naming(&self) -> u64 {
        self.naming.load(Ordering::SeqCst)
    }

    fn note_change(&self, inner: &mut Inner, name: Box<str>) {
        if inner.changes.len() >= CHANGES_MAX {
            inner.changes.pop_front();
        }
        inner.changes.push_back(name);
        self.naming.fetch_add(1, Ordering::SeqCst);
    }

    /// The first so many names that have come or gone since then, in that order, and whether each is there now. `None`: that was too many names ago.
    pub fn changed_names(&self, naming: u64, most: usize) -> Option<Vec<(String, bool)>> {
        let inner = self.inner.read();
        let since = usize::try_from(self.naming().checked_sub(naming)?).ok()?;
        let first = inner.changes.len().checked_sub(since)?;
        let some = inner.changes.range(first..).take(most);
        Some(some.map(|name| (name.to_string(), inner.by_name.contains(&**name))).collect())
    }

    /// So many names behind this one, in their order.
    pub fn names_after(&self, after: Option<&str>, most: usize) -> Vec<String> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.inner
            .read()
            .by_name
            .range::<str, _>((behind, Bound::Unbounded))
            .take(most)
            .map(|one| one.0.name.clone())
            .collect()
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<Topic>> {
        self.inner.read().by_name.get(name).map(|one| Arc::clone(&one.0))
    }

    pub fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.inner.read().by_id.get(&id).cloned()
    }

    /// All, by name.
    pub fn all(&self) -> Vec<Arc<Topic>> {
        self.inner.read().by_name.iter().map(|one| Arc::clone(&one.0)).collect()
    }

    /// A topic whose name is the same once dots are underscores.
    pub fn colliding(&self, unified: &str) -> Option<String> {
        let inner = self.inner.read();
        let first = inner.unified.range((Box::from(unified), Box::from(""))..).next()?;
        (&*first.0 == unified).then(|| first.1.to_string())
    }

    pub fn insert(&self, topic: Arc<Topic>) {
        let mut inner = self.inner.write();
        inner.by_id.insert(Arc::clone(&topic));
        inner.partitions += topic.logs().len();
        inner.texts += weight(&topic);
        if let Some(unified) = unified(&topic.name) {
            inner.unified.insert((unified.into(), topic.name.as_str().into()));
        }
        let name: Box<str> = topic.name.as_str().into();
        match inner.by_name.replace(ByName(topic)) {
            Some(ByName(before)) => {
                inner.partitions -= before.logs().len();
                inner.texts = inner.texts.saturating_sub(weight(&before));
            }
            None => self.note_change(&mut inner, name),
        }
        self.changed();
    }

    /// A topic has got more partitions.
    pub fn enlarged(&self, more: usize) {
        self.inner.write().partitions += more;
        self.changed();
    }

    /// A topic has got other settings, which take `after` bytes in place of `before`.
    pub fn configured(&self, before: usize, after: usize) {
        let mut inner = self.inner.write();
        inner.texts = (inner.texts + after).saturating_sub(before);
    }

    /// Bytes of memory that names and settings of topics take, about.
    pub fn text_bytes(&self) -> usize {
        self.inner.read().texts
    }

    /// How many topics have a name.
    pub fn topic_count(&self) -> usize {
        self.inner.read().by_name.len()
    }

    /// Their partitions.
    pub fn partition_count(&self) -> usize {
        self.inner.read().partitions
    }

    /// One that is found by its id only.
    pub fn insert_hidden(&self, topic: Arc<Topic>) {
        self.inner.write().by_id.insert(topic);
    }

    /// Topics are not what they were.
    pub fn changed(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    pub fn remove(&self, topic: &Topic) {
        let mut inner = self.inner.write();
        inner.by_id.remove(&topic.id);
        if !topic.name.is_empty() {
            if inner.by_name.remove(&*topic.name) {
                inner.partitions -= topic.logs().len();
                inner.texts = inner.texts.saturating_sub(weight(topic));
                self.note_change(&mut inner, topic.name.as_str().into());
                if let Some(unified) = unified(&topic.name) {
                    inner.unified.remove(&(unified.into(), topic.name.as_str().into()));
                }
            }
            self.changed();
        }
    }
}
