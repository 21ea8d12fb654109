//! A coordinator with a clock of its own, and members that are numbers.

use std::collections::BTreeMap;

use bytes::Bytes;
use delivery::{
    Answer, Assignor, CoordinatorSettings, Effect, GroupCoordinator, GroupState, GroupTimes, JoinRequest, Joined,
    LeaveMember, Migration, StreamsConfig, SyncRequest, Synced,
};

pub const GROUP: &str = "orders";
pub const SESSION_MS: u64 = 10_000;
pub const REBALANCE_MS: u64 = 60_000;
pub const INITIAL_DELAY_MS: u64 = 3_000;

/// A request that waits for its answer.
pub type Waiter = u32;

pub struct Room {
    pub groups: GroupCoordinator<Waiter>,
    pub now: u64,
    answers: BTreeMap<Waiter, Answer>,
    /// Durable state, as a restart would find it.
    pub records: BTreeMap<Bytes, Bytes>,
    next: Waiter,
}

pub fn settings() -> CoordinatorSettings {
    CoordinatorSettings {
        initial_delay: INITIAL_DELAY_MS,
        session_timeout: 6_000..=1_800_000,
        size_max: 4,
        metadata_bytes_max: 100,
        offsets_retention: 7 * 86_400_000,
        consumer_size_max: 4,
        consumer_assignors: vec![Assignor::Uniform, Assignor::Range],
        migration: Migration::Bidirectional,
        consumer_times: GroupTimes { session_timeout: SESSION_MS, heartbeat_interval: 1_000, assignment_interval: 0 },
        share_size_max: 4,
        share_times: GroupTimes { session_timeout: SESSION_MS, heartbeat_interval: 1_000, assignment_interval: 0 },
        streams_size_max: 4,
        streams_config: StreamsConfig {
            times: GroupTimes { session_timeout: SESSION_MS, heartbeat_interval: 1_000, assignment_interval: 0 },
            standbys: 0,
            initial_delay: 0,
        },
    }
}

/// A first join of a consumer that understands both versions of everything.
pub fn join(member_id: &str) -> JoinRequest {
    JoinRequest {
        member_id: member_id.to_owned(),
        instance: None,
        client_id: "test".to_owned(),
        host: "127.0.0.1".to_owned(),
        user: "bob".to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![
            ("range".to_owned(), Bytes::from_static(b"r")),
            ("roundrobin".to_owned(), Bytes::from_static(b"o")),
        ],
        session_timeout: SESSION_MS,
        rebalance_timeout: REBALANCE_MS,
        two_step: true,
        may_skip: true,
        fresh_id: String::new(),
    }
}

impl Room {
    pub fn new() -> Self {
        let groups = GroupCoordinator::new(settings());
        Self { groups, now: 1_000_000, answers: BTreeMap::new(), records: BTreeMap::new(), next: 0 }
    }

    fn take(&mut self, effects: Vec<Effect<Waiter>>) {
        for effect in effects {
            match effect {
                Effect::Answer(waiter, answer) => {
                    assert!(self.answers.insert(waiter, answer).is_none(), "one answer a request")
                }
                Effect::Persist(key, Some(value)) => drop(self.records.insert(key, value)),
                Effect::Persist(key, None) => drop(self.records.remove(&key)),
            }
        }
    }

    /// Lets time pass, with everything that becomes due on the way.
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

    pub fn ask_to_join(&mut self, mut request: JoinRequest) -> Waiter {
        self.next += 1;
        if request.fresh_id.is_empty() {
            request.fresh_id = format!("member-{}", self.next);
        }
        let mut effects = Vec::new();
        self.groups.join(GROUP, request, self.next, self.now, &mut effects);
        self.take(effects);
        self.next
    }

    pub fn joined(&mut self, waiter: Waiter) -> Option<Joined> {
        match self.answers.remove(&waiter) {
            Some(Answer::Joined(joined)) => Some(joined),
            Some(other) => panic!("{other:?} for a join"),
            None => None,
        }
    }

    /// Both steps of a join; returns the id and the request that waits.
    pub fn enter(&mut self, request: JoinRequest) -> (String, Waiter) {
        let first = self.ask_to_join(request.clone());
        let told = self.joined(first).expect("an id at once");
        assert_eq!(told.error, Some(delivery::GroupError::MemberIdRequired));
        let waiter = self.ask_to_join(JoinRequest { member_id: told.member_id.clone(), ..request });
        (told.member_id, waiter)
    }

    pub fn sync(&mut self, member_id: &str, generation: i32, assignments: &[(&str, &'static str)]) -> Waiter {
        self.next += 1;
        let request = SyncRequest {
            member_id: member_id.to_owned(),
            instance: None,
            generation,
            protocol_type: None,
            protocol: None,
            assignments: assignments
                .iter()
                .map(|(id, part)| ((*id).to_owned(), Bytes::from_static(part.as_bytes())))
                .collect(),
        };
        let mut effects = Vec::new();
        self.groups.sync(GROUP, request, self.next, self.now, &mut effects);
        self.take(effects);
        self.next
    }

    pub fn synced(&mut self, waiter: Waiter) -> Option<Synced> {
        match self.answers.remove(&waiter) {
            Some(Answer::Synced(synced)) => Some(synced),
            Some(other) => panic!("{other:?} for a sync"),
            None => None,
        }
    }

    pub fn leave(&mut self, member_id: &str, instance: Option<&str>) -> Result<(), delivery::GroupError> {
        let member = LeaveMember { member_id: member_id.to_owned(), instance: instance.map(str::to_owned) };
        let mut effects = Vec::new();
        let outcome = self.groups.leave(GROUP, &[member], self.now, &mut effects);
        self.take(effects);
        outcome?.remove(0)
    }

    pub fn heartbeat(&mut self, member_id: &str, generation: i32) -> Result<(), delivery::GroupError> {
        self.groups.heartbeat(GROUP, member_id, None, generation, self.now)
    }

    pub fn state(&self) -> GroupState {
        self.groups.describe(GROUP).expect("the group is there").state
    }

    /// A stable group of two: ids of leader and follower, and the generation.
    pub fn two_members() -> (Self, String, String, i32) {
        let mut room = Self::new();
        let (one, first) = room.enter(join(""));
        let (two, second) = room.enter(join(""));
        room.pass(2 * INITIAL_DELAY_MS);
        let (first, second) = (room.joined(first).expect("joined"), room.joined(second).expect("joined"));
        assert_eq!((first.error, second.error, first.generation), (None, None, second.generation));
        let (leader, follower) = if first.leader == one { (one, two) } else { (two, one) };
        let generation = first.generation;
        let waits = room.sync(&follower, generation, &[]);
        assert_eq!(room.synced(waits), None, "the follower waits for the leader");
        let leads = room.sync(&leader, generation, &[(&leader, "a"), (&follower, "b")]);
        assert_eq!(room.synced(leads).expect("synced").assignment, "a");
        assert_eq!(room.synced(waits).expect("synced").assignment, "b");
        assert_eq!(room.state(), GroupState::Stable);
        (room, leader, follower, generation)
    }
}
