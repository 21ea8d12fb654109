//! Clients of the new protocol in virtual time: they do what the coordinator says, lose answers, die, come back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use delivery::{
    ConsumerGroupState, ConsumerGroupSummary, ConsumerHeartbeat, CoordinatorSettings, Effect, GroupCoordinator,
    GroupError, HeartbeatAnswer, MatchState, Matched, Matches, Sight, Target, Topics,
};
use types::TopicId;
use uuid::Uuid;

use crate::room::{GROUP, SESSION_MS, settings};

/// Numbers that look like chance and come again with the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Topics that a test creates, enlarges and deletes.
#[derive(Default)]
pub struct Shelf {
    inner: Mutex<Topical>,
}

#[derive(Default)]
struct Topical {
    versions: Arc<AtomicU64>,
    expressions: BTreeMap<String, Arc<Expression>>,
    ids: u128,
    topics: BTreeMap<String, (TopicId, u32)>,
}

impl Shelf {
    pub fn set(&self, name: &str, partitions: u32) {
        let mut inner = self.inner.lock().unwrap();
        inner.versions.fetch_add(1, Ordering::SeqCst);
        inner.ids += 1;
        let id = TopicId(Uuid::from_u128(inner.ids));
        inner.topics.entry(name.to_owned()).or_insert((id, 0)).1 = partitions;
    }

    pub fn delete(&self, name: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.versions.fetch_add(1, Ordering::SeqCst);
        inner.topics.remove(name);
    }

    /// As after a restart.
    pub fn forget_matches(&self) {
        self.inner.lock().unwrap().expressions.clear();
    }

    /// Matches an expression against all names.
    pub fn bring_up_to_date(&self, expression: &str) {
        let inner = self.inner.lock().unwrap();
        let mut known = inner.expressions[expression].known.lock().unwrap();
        let (state, topics) =
            match regex::Regex::new(expression).and_then(|_| regex::Regex::new(&format!("^(?:{expression})$"))) {
                Ok(regex) => {
                    (MatchState::Known, inner.topics.keys().filter(|name| regex.is_match(name)).cloned().collect())
                }
                Err(_) => (MatchState::Invalid, BTreeSet::new()),
            };
        let changed = state != known.1.state || topics != *known.1.topics;
        *known = (
            inner.versions.load(Ordering::SeqCst),
            Matched { version: known.1.version + u64::from(changed), state, topics: Arc::new(topics) },
        );
    }
}

impl Topics for Shelf {
    fn version(&self) -> u64 {
        self.inner.lock().unwrap().versions.load(Ordering::SeqCst)
    }

    fn find(&self, name: &str) -> Option<(TopicId, u32)> {
        self.inner.lock().unwrap().topics.get(name).copied()
    }

    fn name(&self, id: TopicId) -> Option<String> {
        self.inner.lock().unwrap().topics.iter().find(|(_, (other, _))| *other == id).map(|(name, _)| name.clone())
    }

    fn matches(&self, expression: &str) -> Arc<dyn Matches> {
        let mut inner = self.inner.lock().unwrap();
        let version = Arc::clone(&inner.versions);
        let new = || {
            Arc::new(Expression {
                text: expression.to_owned(),
                versions: version,
                known: Mutex::new((0, Matched::unknown())),
            })
        };
        Arc::clone(inner.expressions.entry(expression.to_owned()).or_insert_with(new)) as Arc<dyn Matches>
    }
}

/// An expression that is matched when a test says so.
pub struct Expression {
    text: String,
    versions: Arc<AtomicU64>,
    /// The topics of which version it was matched against, and what came of it.
    known: Mutex<(u64, Matched)>,
}

impl Matches for Expression {
    fn text(&self) -> &str {
        &self.text
    }

    fn version(&self) -> u64 {
        self.known().version
    }

    fn known(&self) -> Matched {
        self.known.lock().unwrap().1.clone()
    }

    fn is_current(&self) -> bool {
        let known = self.known.lock().unwrap();
        known.1.state == MatchState::Invalid
            || known.1.state == MatchState::Known && known.0 == self.versions.load(Ordering::SeqCst)
    }
}

/// A client as it sees itself.
#[derive(Clone, Debug, Default)]
pub struct Client {
    pub epoch: i32,
    pub topics: Vec<String>,
    pub instance: Option<String>,
    /// What it reads from.
    pub has: Target,
    /// It has something to say in full.
    pub news: bool,
    /// When its session ends for sure.
    pub until: u64,
}

pub struct Crowd {
    pub groups: GroupCoordinator<u32>,
    pub shelf: Arc<Shelf>,
    pub now: u64,
    pub records: BTreeMap<Bytes, Bytes>,
    pub clients: BTreeMap<String, Client>,
    settings: CoordinatorSettings,
    group_epoch: i32,
}

impl Crowd {
    pub fn new() -> Self {
        Self::with(settings())
    }

    pub fn with(settings: CoordinatorSettings) -> Self {
        let shelf = Arc::new(Shelf::default());
        let groups = GroupCoordinator::with_topics(settings.clone(), Arc::clone(&shelf) as Arc<dyn Topics>);
        Self {
            groups,
            shelf,
            now: 1_000_000,
            records: BTreeMap::new(),
            clients: BTreeMap::new(),
            settings,
            group_epoch: 0,
        }
    }

    pub fn take(&mut self, effects: Vec<Effect<u32>>) {
        for effect in effects {
            match effect {
                Effect::Answer(..) => {}
                Effect::Persist(key, Some(value)) => drop(self.records.insert(key, value)),
                Effect::Persist(key, None) => drop(self.records.remove(&key)),
            }
        }
    }

    /// The broker is killed and comes back with what is durable.
    pub fn restart(&mut self) {
        self.groups = GroupCoordinator::with_topics(self.settings.clone(), Arc::clone(&self.shelf) as Arc<dyn Topics>);
        for (key, value) in &self.records {
            assert!(self.groups.restore(key, value, self.now), "{}", key.escape_ascii());
        }
        self.groups.resume(self.now);
    }

    pub fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(due) = self.groups.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let mut effects = Vec::new();
            self.groups.handle_timeouts(self.now, &mut effects);
            self.take(effects);
        }
        self.now = until;
    }

    pub fn beat(&mut self, request: &ConsumerHeartbeat) -> Result<HeartbeatAnswer, GroupError> {
        self.beat_seeing(request, Sight::ALL)
    }

    /// What is not known of expressions is found out first.
    pub fn beat_seeing(
        &mut self,
        request: &ConsumerHeartbeat,
        sight: Sight<'_>,
    ) -> Result<HeartbeatAnswer, GroupError> {
        self.groups.unmatched(GROUP, request).iter().for_each(|matches| self.shelf.bring_up_to_date(matches.text()));
        assert!(self.groups.unmatched(GROUP, request).is_empty());
        self.beat_as_known(request, sight)
    }

    /// A heartbeat that takes what is known of expressions.
    pub fn beat_as_known(
        &mut self,
        request: &ConsumerHeartbeat,
        sight: Sight<'_>,
    ) -> Result<HeartbeatAnswer, GroupError> {
        let mut effects = Vec::new();
        let answer = self.groups.consumer_heartbeat(GROUP, request, sight, self.now, &mut effects);
        assert!(answer.is_ok() || effects.is_empty(), "what is refused changes nothing");
        self.take(effects);
        answer
    }

    /// What a client says now.
    pub fn words(&self, id: &str) -> ConsumerHeartbeat {
        let client = &self.clients[id];
        let full = client.epoch <= 0 || client.news;
        ConsumerHeartbeat {
            member_id: id.to_owned(),
            epoch: client.epoch,
            instance: client.instance.clone(),
            rebalance_timeout: full.then_some(30_000),
            topics: full.then(|| client.topics.clone()),
            owned: Some(client.has.iter().map(|(topic, set)| (*topic, set.iter().copied().collect())).collect()),
            client_id: "test".to_owned(),
            host: "/127.0.0.1".to_owned(),
            ..ConsumerHeartbeat::default()
        }
    }

    /// A client says what it has to say; `lost`: it does not hear the answer.
    pub fn speak(&mut self, id: &str, lost: bool) {
        let request = self.words(id);
        let answer = self.beat(&request);
        let now = self.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        if lost {
            // Clients say everything again then.
            client.news = true;
            return;
        }
        match answer {
            Ok(answer) => {
                assert!(answer.epoch >= client.epoch, "{id}: epochs never fall");
                client.epoch = answer.epoch;
                client.news = false;
                client.until = now + SESSION_MS;
                if let Some(assignment) = answer.assignment {
                    client.has = assignment;
                }
            }
            Err(GroupError::FencedEpoch | GroupError::UnknownMember | GroupError::GroupNotFound) => {
                client.has.clear();
                client.epoch = 0;
            }
            // Its session ended, and somebody else has its instance now: that is the end of it.
            Err(GroupError::FencedInstance) => drop(self.clients.remove(id)),
            // The one before has not left yet, or there is no room.
            Err(GroupError::UnreleasedInstance | GroupError::GroupFull) => {}
            Err(other) => panic!("{id}: {other}"),
        }
    }

    pub fn enter(&mut self, id: &str, topics: &[&str]) {
        let topics = topics.iter().map(|name| (*name).to_owned()).collect();
        self.clients.insert(id.to_owned(), Client { topics, ..Client::default() });
        self.speak(id, false);
    }

    pub fn describe(&self) -> ConsumerGroupSummary {
        self.groups.describe_consumers(GROUP).expect("the group is there")
    }

    /// Nobody reads what somebody else reads, and the group's epoch never falls.
    pub fn check(&mut self) {
        let mut seen: BTreeMap<(TopicId, u32), &str> = BTreeMap::new();
        for (id, client) in self.clients.iter().filter(|(_, client)| client.until >= self.now) {
            for place in client.has.iter().flat_map(|(topic, set)| set.iter().map(|one| (*topic, *one))) {
                if let Some(other) = seen.insert(place, id) {
                    panic!("{id} and {other} both read {place:?}");
                }
            }
        }
        if let Some(group) = self.groups.describe_consumers(GROUP) {
            assert!(group.epoch >= self.group_epoch, "epochs never fall");
            assert!(group.assignment_epoch <= group.epoch);
            self.group_epoch = group.epoch;
            let mut held = BTreeSet::new();
            for (member, _) in &group.members {
                assert!(member.epoch <= group.assignment_epoch, "nobody is ahead of the target");
                for (topic, set) in member.assigned.iter().chain(&*member.revoking) {
                    set.keys().for_each(|one| assert!(held.insert((*topic, *one)), "one holder"));
                }
            }
        }
    }

    /// Everybody speaks until nothing changes.
    pub fn settle(&mut self) {
        for _ in 0..40 {
            for id in self.clients.keys().cloned().collect::<Vec<_>>() {
                self.speak(&id, false);
                self.check();
            }
            self.pass(100);
        }
        let group = self.describe();
        assert!(matches!(group.state, ConsumerGroupState::Stable | ConsumerGroupState::Empty), "{group:#?}");
    }

    /// When all is settled each partition of each topic that is read has a reader.
    pub fn check_whole(&self) {
        let read: BTreeSet<&String> = self.clients.values().flat_map(|client| &client.topics).collect();
        for (id, count) in read.iter().filter_map(|name| self.shelf.find(name)) {
            let has: usize = self.clients.values().map(|client| client.has.get(&id).map_or(0, BTreeSet::len)).sum();
            assert_eq!(has, count as usize, "all partitions of {id} have a reader");
        }
    }
}
