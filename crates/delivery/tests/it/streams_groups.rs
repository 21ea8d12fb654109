//! Streams groups: topologies, internal topics, who runs what and when, restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use delivery::{
    Commit, CommittedOffset, Committer, CoordinatorSettings, CopartitionGroup, Effect, GroupCoordinator, GroupError,
    InternalTopic, StreamsAnswer, StreamsConfig, StreamsError, StreamsGroupSummary, StreamsHeartbeat,
    StreamsStatusKind, StreamsTopology, Subtopology, TaskSets, Tasks, Topics, Work, Worker, sticky,
};

use crate::crowd::{Random, Shelf};
use crate::room::{GROUP, SESSION_MS, join, settings};

fn internal(name: &str, partitions: u32) -> InternalTopic {
    InternalTopic { name: name.to_owned(), partitions, ..InternalTopic::default() }
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Reads `t`, writes `again`, counts what comes back.
fn counting() -> StreamsTopology {
    let first = Subtopology { sources: texts(&["t"]), sinks: texts(&["again"]), ..Subtopology::default() };
    let second = Subtopology {
        repartition: vec![internal("again", 0)],
        changelogs: vec![internal("counted", 0)],
        ..Subtopology::default()
    };
    topology([("0", first), ("1", second)])
}

fn topology<const N: usize>(subtopologies: [(&str, Subtopology); N]) -> StreamsTopology {
    let subtopologies = subtopologies.into_iter().map(|(id, one)| (id.to_owned(), one)).collect();
    StreamsTopology { epoch: 0, subtopologies }
}

/// A client as it sees itself.
#[derive(Clone, Debug, Default)]
struct Client {
    epoch: i32,
    process: String,
    has: TaskSets,
    until: u64,
    endpoint_epoch: i32,
}

struct Works {
    groups: GroupCoordinator<u32>,
    shelf: Arc<Shelf>,
    now: u64,
    records: BTreeMap<Bytes, Bytes>,
    clients: BTreeMap<String, Client>,
    settings: CoordinatorSettings,
    topology: StreamsTopology,
    group_epoch: i32,
    /// Topics that are missing are created as soon as somebody hears of it.
    creates: bool,
}

fn joining(id: &str, topology: &StreamsTopology) -> StreamsHeartbeat {
    StreamsHeartbeat {
        member_id: id.to_owned(),
        rebalance_timeout: Some(30_000),
        topology: Some(topology.clone()),
        owned: Some(TaskSets::default()),
        process: Some(format!("process of {id}")),
        ..StreamsHeartbeat::default()
    }
}

fn kinds(answer: &StreamsAnswer) -> Vec<StreamsStatusKind> {
    answer.status.iter().map(|status| status.kind).collect()
}

impl Works {
    fn new() -> Self {
        Self::with(settings(), counting())
    }

    fn with(settings: CoordinatorSettings, topology: StreamsTopology) -> Self {
        let shelf = Arc::new(Shelf::default());
        let groups = GroupCoordinator::with_topics(settings.clone(), Arc::clone(&shelf) as Arc<dyn Topics>);
        let (records, clients) = (BTreeMap::new(), BTreeMap::new());
        Self { groups, shelf, now: 1_000_000, records, clients, settings, topology, group_epoch: 0, creates: true }
    }

    fn take(&mut self, effects: Vec<Effect<u32>>) {
        for effect in effects {
            match effect {
                Effect::Answer(..) => {}
                Effect::Persist(key, Some(value)) => drop(self.records.insert(key, value)),
                Effect::Persist(key, None) => drop(self.records.remove(&key)),
            }
        }
    }

    fn restart(&mut self) {
        self.groups = GroupCoordinator::with_topics(self.settings.clone(), Arc::clone(&self.shelf) as Arc<dyn Topics>);
        for (key, value) in &self.records {
            assert!(self.groups.restore(key, value, self.now), "{}", key.escape_ascii());
        }
        self.groups.resume(self.now);
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(due) = self.groups.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let mut effects = Vec::new();
            self.groups.handle_timeouts(self.now, &mut effects);
            self.take(effects);
        }
        self.now = until;
    }

    fn beat(&mut self, request: &StreamsHeartbeat) -> Result<StreamsAnswer, StreamsError> {
        let mut effects = Vec::new();
        let answer = self.groups.streams_heartbeat(GROUP, request, self.now, &mut effects);
        assert!(answer.is_ok() || effects.is_empty(), "what is refused changes nothing");
        self.take(effects);
        if let (true, Ok(answer)) = (self.creates, &answer) {
            answer.missing.iter().for_each(|(name, topic)| self.shelf.set(name, topic.partitions));
        }
        answer
    }

    fn words(&self, id: &str) -> StreamsHeartbeat {
        let client = &self.clients[id];
        let joins = client.epoch == 0;
        StreamsHeartbeat {
            member_id: id.to_owned(),
            epoch: client.epoch,
            endpoint_epoch: client.endpoint_epoch,
            rebalance_timeout: joins.then_some(30_000),
            topology: joins.then(|| self.topology.clone()),
            owned: Some(if joins { TaskSets::default() } else { client.has.clone() }),
            process: joins.then(|| client.process.clone()),
            client_id: "test".to_owned(),
            host: "/127.0.0.1".to_owned(),
            ..StreamsHeartbeat::default()
        }
    }

    fn speak(&mut self, id: &str, lost: bool) {
        let request = self.words(id);
        let answer = self.beat(&request);
        let now = self.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        if lost {
            return;
        }
        match answer {
            Ok(answer) => {
                assert!(answer.epoch >= client.epoch, "{id}: epochs never fall");
                client.epoch = answer.epoch;
                client.until = now + SESSION_MS;
                client.endpoint_epoch = answer.endpoint_epoch;
                if let Some(tasks) = answer.tasks {
                    client.has = tasks;
                }
            }
            Err(StreamsError::Group(
                GroupError::FencedEpoch | GroupError::UnknownMember | GroupError::GroupNotFound,
            )) => {
                client.has = TaskSets::default();
                client.epoch = 0;
            }
            Err(StreamsError::Group(GroupError::GroupFull)) => {}
            // It had tasks of which there are none any more.
            Err(StreamsError::InvalidRequest(_)) => client.has = TaskSets::default(),
            Err(other) => panic!("{id}: {other}"),
        }
    }

    fn enter(&mut self, id: &str, process: &str) {
        self.clients.insert(id.to_owned(), Client { process: process.to_owned(), ..Client::default() });
        self.speak(id, false);
    }

    fn describe(&self) -> StreamsGroupSummary {
        self.groups.describe_streams(GROUP).expect("the group is there")
    }

    /// A task runs in one place, a process has one thing of a task, epochs never fall.
    fn check(&mut self) {
        let mut seen: BTreeMap<(&str, u32), &str> = BTreeMap::new();
        for (id, client) in self.clients.iter().filter(|(_, client)| client.until >= self.now) {
            for place in client.has.active.iter().flat_map(|(sub, set)| set.iter().map(move |one| (sub.as_str(), *one)))
            {
                if let Some(other) = seen.insert(place, id) {
                    panic!("{id} and {other} both run {place:?}");
                }
            }
        }
        let Some(group) = self.groups.describe_streams(GROUP) else { return };
        assert!(group.epoch >= self.group_epoch, "epochs never fall");
        assert!(group.assignment_epoch <= group.epoch);
        self.group_epoch = group.epoch;
        let (mut running, mut within) = (BTreeSet::new(), BTreeSet::new());
        for (member, _) in &group.members {
            assert!(member.epoch <= group.assignment_epoch, "nobody is ahead of the target");
            for held in [&member.assigned, &member.revoking] {
                let sets = held.without_epochs();
                for (sub, set) in &sets.active {
                    set.iter().for_each(|one| assert!(running.insert((sub.clone(), *one)), "one place"));
                }
                for (sub, set) in sets.active.iter().chain(&sets.standby) {
                    set.iter().for_each(|one| {
                        assert!(within.insert((member.process.clone(), sub.clone(), *one)), "one thing of a task")
                    });
                }
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..40 {
            for id in self.clients.keys().cloned().collect::<Vec<_>>() {
                self.speak(&id, false);
                self.check();
            }
            self.pass(200);
        }
        let group = self.describe();
        assert_eq!(group.state, "Stable", "{group:#?}");
        for (member, target) in &group.members {
            assert_eq!(member.assigned.without_epochs(), *target, "everybody has the target");
            assert_eq!(self.clients[&member.id].has, *target, "and knows it");
        }
    }

    /// Each task has one place, and as many standbys as there can be.
    fn check_whole(&self, tasks: u32, standbys: usize) {
        let all: Vec<&TaskSets> = self.clients.values().map(|client| &client.has).collect();
        let processes: BTreeSet<&String> = self.clients.values().map(|client| &client.process).collect();
        let count = |of: &dyn Fn(&TaskSets) -> usize| all.iter().map(|has| of(has)).sum::<usize>();
        for id in ["0", "1"] {
            assert_eq!(
                count(&|has| has.active.get(id).map_or(0, BTreeSet::len)),
                tasks as usize,
                "all tasks of {id} run"
            );
        }
        assert_eq!(count(&|has| has.standby.get("0").map_or(0, BTreeSet::len)), 0, "there is no state to be kept");
        let kept = count(&|has| has.standby.get("1").map_or(0, BTreeSet::len));
        assert_eq!(kept, tasks as usize * standbys.min(processes.len() - 1), "standbys");
    }
}

/// What a member is told for whom a topic is not there is what it is told where there is none.
#[test]
fn a_topic_that_is_hidden_is_missing() {
    let told = |there: bool, restarts: bool| {
        let mut works = Works::new();
        works.creates = false;
        let hidden: BTreeSet<String> = if there { ["t".to_owned()].into() } else { BTreeSet::new() };
        if there {
            ["t", "again", "counted"].iter().for_each(|topic| works.shelf.set(topic, 3));
        }
        let with = |beat: StreamsHeartbeat| StreamsHeartbeat {
            hidden: hidden.clone(),
            endpoint: Some(("here".to_owned(), 80)),
            endpoint_epoch: -1,
            ..beat
        };
        let mut answers = vec![works.beat(&with(joining("a", &works.topology))).unwrap()];
        for round in 0..5 {
            works.pass(1_000);
            if restarts && round == 2 {
                works.restart();
            }
            let epoch = answers.last().map_or(0, |answer| answer.epoch);
            let owned = Some(TaskSets { active: [("0".to_owned(), [7].into())].into(), ..TaskSets::default() });
            answers.push(
                works
                    .beat(&with(StreamsHeartbeat { topology: None, owned, epoch, ..joining("a", &works.topology) }))
                    .unwrap(),
            );
        }
        let group = works.describe();
        (answers, group.state, group.epoch, format!("{:?}", group.topology))
    };
    let missing = told(false, false);
    assert_eq!(kinds(missing.0.last().unwrap()), [StreamsStatusKind::MissingSourceTopics]);
    assert_eq!(told(true, false), missing);
    assert_eq!(told(true, true), told(false, true), "the broker has started again");
}

#[test]
fn a_member_that_sees_less_has_no_tasks_and_the_others_all() {
    let mut works = Works::new();
    works.shelf.set("t", 3);
    works.enter("a", "one");
    works.settle();
    let blind = |beat| StreamsHeartbeat { hidden: ["t".to_owned()].into(), ..beat };
    let told = works.beat(&blind(joining("b", &works.topology))).unwrap();
    assert_eq!(told.tasks, Some(TaskSets::default()));
    for _ in 0..20 {
        works.speak("a", false);
        works.check();
        works.pass(200);
    }
    works.check_whole(3, 0);
    let beat = |works: &Works, hidden: bool| {
        let epoch =
            works.describe().members.iter().find(|(member, _)| member.id == "b").map_or(0, |(member, _)| member.epoch);
        let beat = StreamsHeartbeat {
            topology: None,
            owned: Some(TaskSets::default()),
            epoch,
            ..joining("b", &works.topology)
        };
        if hidden { blind(beat) } else { beat }
    };
    let still = works.beat(&beat(&works, true)).unwrap();
    assert!(still.tasks.is_none_or(|tasks| tasks == TaskSets::default()));
    // It may see it now.
    let mut has = TaskSets::default();
    for _ in 0..40 {
        let beat = StreamsHeartbeat { owned: Some(has.clone()), ..beat(&works, false) };
        has = works.beat(&beat).unwrap().tasks.unwrap_or(has);
        works.speak("a", false);
        works.pass(200);
    }
    assert!(!has.active.is_empty(), "{:#?}", works.describe());
}

#[test]
fn internal_topics_come_first_and_then_tasks() {
    let mut works = Works::new();
    works.creates = false;
    let beat = joining("a", &works.topology);
    let told = works.beat(&beat).unwrap();
    assert_eq!((kinds(&told), told.missing.len()), (vec![StreamsStatusKind::MissingSourceTopics], 0));
    assert_eq!(told.tasks, Some(TaskSets::default()));
    assert_eq!(works.describe().state, "NotReady");
    works.shelf.set("t", 3);
    let next =
        |epoch| StreamsHeartbeat { topology: None, owned: None, epoch, ..joining("a", &StreamsTopology::default()) };
    let told = works.beat(&next(told.epoch)).unwrap();
    assert_eq!(kinds(&told), [StreamsStatusKind::MissingInternalTopics]);
    let missing: Vec<(&str, u32)> =
        told.missing.iter().map(|(name, topic)| (name.as_str(), topic.partitions)).collect();
    assert_eq!(missing, [("again", 3), ("counted", 3)], "as many as the writer reads, one a task");
    works.shelf.set("again", 3);
    works.shelf.set("counted", 2);
    let told = works.beat(&next(told.epoch)).unwrap();
    assert_eq!(kinds(&told), [StreamsStatusKind::IncorrectlyPartitionedTopics]);
    works.shelf.set("counted", 3);
    let told = works.beat(&next(told.epoch)).unwrap();
    assert_eq!(kinds(&told), []);
    let tasks = told.tasks.unwrap().active;
    assert_eq!((tasks["0"].len(), tasks["1"].len()), (3, 3));
    assert_eq!(works.describe().state, "Stable");
    // A topic goes, and everybody gives everything up.
    works.shelf.delete("again");
    let told = works.beat(&next(told.epoch)).unwrap();
    assert_eq!((kinds(&told), told.tasks), (vec![StreamsStatusKind::MissingInternalTopics], Some(TaskSets::default())));
}

#[test]
fn what_running_tasks_read_is_known() {
    let mut works = Works::new();
    works.shelf.set("t", 3);
    works.enter("a", "one");
    works.settle();
    let all = BTreeSet::from([0, 1, 2]);
    let read = BTreeMap::from([("again".to_owned(), all.clone()), ("t".to_owned(), all)]);
    assert_eq!(works.groups.read_partitions(GROUP), Some(read), "of both subtopologies, and no changelog");
}

#[test]
fn a_task_goes_over_when_it_has_been_given_up() {
    let mut works = Works::new();
    works.shelf.set("t", 2);
    works.enter("a", "p");
    works.speak("a", false);
    let before = works.clients["a"].clone();
    assert_eq!(before.has.active.values().map(BTreeSet::len).sum::<usize>(), 4);
    works.enter("b", "q");
    let b = works.clients["b"].clone();
    assert_eq!((b.epoch, b.has.active.len()), (works.describe().epoch, 0), "the other one still has everything");
    assert_eq!(works.describe().state, "Reconciling");
    let holds_on = works.words("a");
    let told = works.beat(&holds_on).unwrap();
    assert_eq!(told.epoch, before.epoch, "it stays in its epoch until it says that it has given up");
    let left = told.tasks.clone().unwrap();
    assert_eq!(left.active.values().map(BTreeSet::len).sum::<usize>(), 2);
    assert_eq!(works.beat(&holds_on).unwrap().tasks, None, "it still has them");
    works.speak("b", false);
    assert!(works.clients["b"].has.active.is_empty());
    works.clients.get_mut("a").unwrap().has = left;
    works.settle();
    works.check_whole(2, 0);
}

#[test]
fn who_does_not_give_up_in_time_is_out() {
    let mut works = Works::new();
    works.shelf.set("t", 2);
    works.enter("a", "p");
    works.speak("a", false);
    works.enter("b", "q");
    let holds_on = works.words("a");
    for _ in 0..31 {
        let _ = works.beat(&holds_on);
        works.speak("b", false);
        works.pass(1_000);
    }
    assert_eq!(works.beat(&holds_on), Err(GroupError::UnknownMember.into()));
    works.clients.remove("a");
    works.settle();
    works.check_whole(2, 0);
}

#[test]
fn the_first_members_wait_for_more() {
    let mut chosen = settings();
    chosen.streams_config.initial_delay = 3_000;
    let mut works = Works::with(chosen, counting());
    for (name, count) in [("t", 2), ("again", 2), ("counted", 2)] {
        works.shelf.set(name, count);
    }
    let told = works.beat(&joining("a", &counting())).unwrap();
    assert_eq!((told.epoch, kinds(&told)), (1, vec![StreamsStatusKind::AssignmentDelayed]));
    works.pass(1_000);
    works.enter("b", "q");
    assert_eq!(works.describe().state, "Assigning");
    works.pass(2_000);
    let group = works.describe();
    assert_eq!((group.state, group.assignment_epoch), ("Reconciling", group.epoch), "computed when the time is over");
    works.clients.insert("a".to_owned(), Client { epoch: 1, process: "process of a".to_owned(), ..Client::default() });
    works.settle();
    works.check_whole(2, 0);
}

#[test]
fn a_group_has_settings_of_its_own() {
    let mut works = Works::new();
    works.shelf.set("t", 2);
    works.enter("a", "p");
    works.speak("a", false);
    works.enter("b", "q");
    works.settle();
    works.check_whole(2, 0);
    let epoch = works.describe().epoch;
    let mut own = settings().streams_config;
    (own.standbys, own.times.heartbeat_interval, own.times.session_timeout) = (1, 700, 2_000);
    works.groups.set_streams_config(GROUP, Some(own));
    works.settle();
    works.check_whole(2, 1);
    assert_eq!(works.describe().epoch, epoch + 1, "tasks are given out again");
    let words = works.words("a");
    assert_eq!(works.beat(&words).unwrap().interval, 700);
    works.pass(2_000);
    assert_eq!(works.describe().state, "Empty", "silent for a session");
    own.times.assignment_interval = 60_000;
    own.standbys = 0;
    works.groups.set_streams_config(GROUP, Some(own));
    works.clients.clear();
    works.enter("c", "p");
    let words = works.words("c");
    assert_eq!(kinds(&works.beat(&words).unwrap()), [StreamsStatusKind::AssignmentDelayed], "not more often than that");
}

#[test]
fn what_is_refused_names_its_reason() {
    let mut works = Works::new();
    works.shelf.set("t", 1);
    let unknown = StreamsHeartbeat { epoch: 1, topology: None, ..joining("a", &counting()) };
    assert_eq!(works.beat(&unknown), Err(GroupError::GroupNotFound.into()));
    works.enter("a", "p");
    works.speak("a", false);
    let epoch = works.clients["a"].epoch;
    assert_eq!(
        works.beat(&StreamsHeartbeat { member_id: "b".to_owned(), ..unknown.clone() }),
        Err(GroupError::UnknownMember.into())
    );
    assert_eq!(
        works.beat(&StreamsHeartbeat { epoch: epoch + 1, ..unknown.clone() }),
        Err(GroupError::FencedEpoch.into())
    );
    let strange = |id: &str, partition| {
        let owned =
            TaskSets { active: Tasks::from([(id.to_owned(), BTreeSet::from([partition]))]), ..TaskSets::default() };
        StreamsHeartbeat { epoch, owned: Some(owned), ..unknown.clone() }
    };
    assert!(matches!(works.beat(&strange("7", 0)), Err(StreamsError::InvalidRequest(_))));
    assert!(matches!(works.beat(&strange("0", 1)), Err(StreamsError::InvalidRequest(_))));
    let mut other = counting();
    other.subtopologies.remove("1");
    assert!(matches!(works.beat(&joining("b", &other)), Err(StreamsError::InvalidRequest(_))), "one topology a group");
    other.epoch = 1;
    assert!(matches!(works.beat(&joining("b", &other)), Err(StreamsError::InvalidRequest(_))));
    for id in ["b", "c", "d"] {
        works.enter(id, id);
    }
    assert_eq!(works.beat(&joining("e", &counting())), Err(GroupError::GroupFull.into()));
    // Other kinds of groups.
    let mut out = Vec::new();
    works.groups.join(GROUP, join(""), 1, works.now, &mut out);
    assert!(
        matches!(&out[..], [Effect::Answer(1, delivery::Answer::Joined(joined))] if joined.error == Some(GroupError::InconsistentProtocol))
    );
    let consumer = delivery::ConsumerHeartbeat { member_id: "x".to_owned(), ..delivery::ConsumerHeartbeat::default() };
    assert_eq!(
        works.groups.consumer_heartbeat(GROUP, &consumer, delivery::Sight::ALL, works.now, &mut out),
        Err(GroupError::GroupNotFound)
    );
}

#[test]
fn an_older_topology_is_told_so() {
    let newer = StreamsTopology { epoch: 3, ..counting() };
    let mut works = Works::with(settings(), newer);
    works.shelf.set("t", 1);
    works.enter("a", "p");
    let told = works.beat(&joining("b", &StreamsTopology { epoch: 2, ..counting() })).unwrap();
    assert_eq!(kinds(&told), [StreamsStatusKind::StaleTopology]);
}

#[test]
fn one_member_can_stop_all() {
    let mut works = Works::new();
    works.shelf.set("t", 1);
    works.enter("a", "p");
    works.enter("b", "q");
    let farewell = StreamsHeartbeat { epoch: -1, shutdown: true, ..works.words("a") };
    assert_eq!(works.beat(&farewell).unwrap().epoch, -1);
    works.restart();
    let words = works.words("b");
    assert!(
        kinds(&works.beat(&words).unwrap()).contains(&StreamsStatusKind::ShutdownApplication),
        "also after a restart"
    );
    let farewell = StreamsHeartbeat { epoch: -1, ..works.words("b") };
    works.beat(&farewell).unwrap();
    works.clients.clear();
    works.enter("c", "p");
    let words = works.words("c");
    assert!(
        !kinds(&works.beat(&words).unwrap()).contains(&StreamsStatusKind::ShutdownApplication),
        "not those who begin again"
    );
}

#[test]
fn endpoints_are_told_to_all() {
    let mut works = Works::new();
    works.shelf.set("t", 2);
    works.enter("a", "p");
    works.speak("a", false);
    let with = StreamsHeartbeat { endpoint: Some(("here".to_owned(), 80)), ..works.words("a") };
    works.beat(&with).unwrap();
    let told = works.beat(&joining("b", &counting())).unwrap();
    assert_eq!((told.endpoint_epoch, told.endpoints), (0, None), "nothing of that member's tasks has changed");
    works
        .clients
        .insert("b".to_owned(), Client { epoch: told.epoch, process: "process of b".to_owned(), ..Client::default() });
    works.settle();
    let asks = StreamsHeartbeat { endpoint_epoch: -1, ..works.words("b") };
    let told = works.beat(&asks).unwrap();
    let found = told.endpoints.unwrap();
    assert_eq!((found.len(), &found[0].endpoint), (1, &("here".to_owned(), 80)));
    let partitions: usize = found[0].active.iter().map(|(_, partitions)| partitions.len()).sum();
    assert_eq!(partitions, works.clients["a"].has.active.values().map(BTreeSet::len).sum::<usize>());
    assert!(told.endpoint_epoch > 0);
}

#[test]
fn topics_side_by_side_have_the_same_number() {
    let mut works = Works::new();
    works.creates = false;
    for (name, count) in [("t", 4), ("u", 6), ("w", 6)] {
        works.shelf.set(name, count);
    }
    let joined = |fixed: u32| {
        let first = Subtopology { sources: texts(&["t"]), sinks: texts(&["again"]), ..Subtopology::default() };
        let second = Subtopology {
            sources: texts(&["u", "w"]),
            repartition: vec![internal("again", fixed)],
            changelogs: vec![internal("kept", 0)],
            copartitioned: vec![CopartitionGroup { sources: vec![0, 1], repartition: vec![0] }],
            ..Subtopology::default()
        };
        topology([("0", first), ("1", second)])
    };
    let told = works.beat(&joining("a", &joined(0))).unwrap();
    let missing: Vec<u32> = told.missing.values().map(|topic| topic.partitions).collect();
    assert_eq!(missing, [6, 6], "those of the topics that are there");
    let mut works = Works {
        groups: GroupCoordinator::with_topics(settings(), Arc::clone(&works.shelf) as Arc<dyn Topics>),
        ..works
    };
    let told = works.beat(&joining("a", &joined(5))).unwrap();
    assert_eq!(kinds(&told), [StreamsStatusKind::IncorrectlyPartitionedTopics]);
    works.shelf.set("w", 7);
    works.groups = GroupCoordinator::with_topics(settings(), Arc::clone(&works.shelf) as Arc<dyn Topics>);
    let told = works.beat(&joining("a", &joined(0))).unwrap();
    assert_eq!(kinds(&told), [StreamsStatusKind::IncorrectlyPartitionedTopics]);
}

#[test]
fn topologies_that_come_to_nothing_are_refused() {
    let mut works = Works::new();
    works.shelf.set("t", 1);
    let circle = |from: &str, to: &str| Subtopology {
        repartition: vec![internal(from, 0)],
        sinks: texts(&[to]),
        ..Subtopology::default()
    };
    let wrong = [
        topology([("0", circle("x", "y")), ("1", circle("y", "x"))]),
        topology([("0", Subtopology { repartition: vec![internal("x", 0)], ..Subtopology::default() })]),
        topology([("0", Subtopology { changelogs: vec![internal("x", 0)], ..Subtopology::default() })]),
        topology([(
            "0",
            Subtopology { repartition: vec![internal("x", 60_000), internal("y", 60_000)], ..Subtopology::default() },
        )]),
    ];
    for one in wrong {
        assert_eq!(one.check(), Ok(()));
        assert!(matches!(works.beat(&joining("a", &one)), Err(StreamsError::InvalidTopology(_))), "{one:?}");
        assert!(!works.groups.exists(GROUP), "no group came of it");
    }
    let stray = CopartitionGroup { sources: vec![1], ..CopartitionGroup::default() };
    let alone = |one: Subtopology| topology([("0", one)]);
    let impossible = [
        StreamsTopology { epoch: -1, ..counting() },
        alone(Subtopology { sources: texts(&["t"]), changelogs: vec![internal("x", 3)], ..Subtopology::default() }),
        alone(Subtopology { sources: texts(&["t"]), copartitioned: vec![stray], ..Subtopology::default() }),
        alone(Subtopology { sources: vec!["t".repeat(2 << 20)], ..Subtopology::default() }),
        StreamsTopology {
            epoch: 0,
            subtopologies: (0..1_001).map(|id| (id.to_string(), Subtopology::default())).collect(),
        },
    ];
    for one in impossible {
        assert!(one.check().is_err(), "{:?}", one.subtopologies.keys().next());
    }
}

#[test]
fn commits_are_checked_by_epoch_and_task() {
    let mut works = Works::new();
    works.shelf.set("t", 2);
    works.enter("a", "p");
    works.speak("a", false);
    let since = works.clients["a"].epoch;
    works.enter("b", "q");
    works.settle();
    let epoch = works.clients["a"].epoch;
    assert!(epoch > since);
    let commit = |works: &mut Works, member_id: &str, generation, topic: &str, partition| {
        let offset = CommittedOffset { offset: 5, leader_epoch: -1, metadata: String::new(), committed_at: 0 };
        let member = Committer { member_id, instance: None, generation, transactional: false, knows_epochs: true };
        let commits = [Commit { topic: topic.to_owned(), partition, offset }];
        works.groups.prepare_commit(GROUP, member, &commits, works.now).and_then(|mut all| all.remove(0).map(drop))
    };
    let runs = |id: &str, sub: &str| works.clients[id].has.active.get(sub).and_then(|set| set.first().copied());
    let (mine, theirs) = (runs("a", "0").or(runs("a", "1")).unwrap(), runs("b", "0").or(runs("b", "1")).unwrap());
    let topic = |id: &str| if runs(id, "0").is_some() { "t" } else { "again" };
    let (my_topic, their_topic) = (topic("a"), topic("b"));
    assert_eq!(commit(&mut works, "a", epoch, their_topic, theirs), Ok(()), "in its epoch it may");
    assert_eq!(commit(&mut works, "a", since, my_topic, mine), Ok(()), "it has had it since then");
    assert_eq!(commit(&mut works, "b", since, their_topic, theirs), Err(GroupError::StaleEpoch), "it has got it since");
    assert_eq!(commit(&mut works, "a", since, "elsewhere", 0), Err(GroupError::StaleEpoch));
    assert_eq!(commit(&mut works, "a", epoch + 1, my_topic, mine), Err(GroupError::StaleEpoch));
    assert_eq!(commit(&mut works, "nobody", epoch, my_topic, mine), Err(GroupError::UnknownMember));
    assert_eq!(works.groups.check_fetch(GROUP, Some("a"), epoch), Ok(()));
    assert_eq!(works.groups.check_fetch(GROUP, Some("a"), epoch - 1), Err(GroupError::StaleEpoch));
    assert_eq!(works.groups.check_fetch(GROUP, None, -1), Ok(()));
    assert_eq!(works.groups.consumers_read(GROUP, "again"), Some(true));
    assert_eq!(works.groups.delete(GROUP), Err(GroupError::NonEmptyGroup));
    for id in ["a", "b"] {
        let farewell = StreamsHeartbeat { epoch: -1, ..works.words(id) };
        works.beat(&farewell).unwrap();
    }
    assert_eq!(works.groups.consumers_read(GROUP, "t"), Some(false));
    let keys = works.groups.delete(GROUP).unwrap();
    keys.iter().for_each(|key| drop(works.records.remove(key)));
    assert!(works.records.is_empty(), "nothing is left of it");
}

#[test]
fn tasks_are_even_and_stay_where_they_are() {
    let work =
        [Work { id: "0".to_owned(), tasks: 6, stateful: false }, Work { id: "1".to_owned(), tasks: 6, stateful: true }];
    let worker = |id: &str, process: &str, before: &TaskSets| Worker {
        id: id.to_owned(),
        process: process.to_owned(),
        before: before.clone(),
    };
    let nothing = TaskSets::default();
    let one = sticky(&[worker("a", "p", &nothing)], &work, 1);
    assert_eq!(one[0].active.values().map(BTreeSet::len).sum::<usize>(), 12);
    assert!(one[0].standby.is_empty(), "there is no other process");
    let three = sticky(&[worker("a", "p", &one[0]), worker("b", "p", &nothing), worker("c", "q", &nothing)], &work, 1);
    let counts: Vec<usize> = three.iter().map(|sets| sets.active.values().map(BTreeSet::len).sum()).collect();
    assert_eq!(counts, [4, 4, 4]);
    for (id, set) in &three[0].active {
        assert!(set.is_subset(&one[0].active[id]), "what stays was there");
    }
    // Who kept the state runs the task when its runner has gone.
    let left = sticky(&[worker("a", "p", &three[0]), worker("b", "p", &three[1])], &work, 1);
    assert!(
        left.iter().all(|sets| sets.active.values().map(BTreeSet::len).sum::<usize>() == 6 && sets.standby.is_empty())
    );
    let back = sticky(&[worker("c", "q", &three[2]), worker("a", "p", &left[0])], &work, 1);
    assert!(back.iter().all(|sets| sets.active.values().map(BTreeSet::len).sum::<usize>() == 6));
}

/// Any order of joining, leaving, dying, growing and vanishing topics, losing answers and restarting.
#[test]
fn a_task_never_runs_in_two_places() {
    for seed in 0..300 {
        let mut random = Random::new(seed + 1);
        let mut chosen = settings();
        chosen.streams_size_max = 6;
        let standbys = random.below(3) as u32;
        let mut times = chosen.streams_config.times;
        times.assignment_interval = random.below(2) * 500;
        chosen.streams_config = StreamsConfig { times, standbys, initial_delay: random.below(2) * 2_000 };
        let mut works = Works::with(chosen, counting());
        works.shelf.set("t", 1 + random.below(5) as u32);
        let mut names = 0;
        for _ in 0..250 {
            let ids: Vec<String> = works.clients.keys().cloned().collect();
            let some = (!ids.is_empty()).then(|| ids[random.below(ids.len() as u64) as usize].clone());
            match (random.below(20), some) {
                (0..2, _) => {
                    names += 1;
                    works.enter(&format!("m{names:03}"), &format!("p{}", random.below(4)));
                }
                (2, Some(id)) => {
                    let farewell = StreamsHeartbeat { epoch: -1, ..works.words(&id) };
                    let _ = works.beat(&farewell);
                    works.clients.remove(&id);
                }
                // It dies without a word.
                (3, Some(id)) => drop(works.clients.remove(&id)),
                (4, _) if random.below(4) == 0 => {
                    let has = works.shelf.find("t").map_or(1, |(_, count)| count);
                    works.shelf.set("t", has + random.below(3) as u32);
                }
                // Internal topics go, and come back with the numbers that are right by then.
                (5, _) => ["again", "counted"].into_iter().for_each(|name| works.shelf.delete(name)),
                (6, _) if random.below(8) == 0 => works.shelf.delete("t"),
                (7, _) if random.below(4) == 0 => works.restart(),
                (8..11, _) => works.pass(random.below(1_500)),
                (11, Some(id)) => works.speak(&id, true),
                (_, Some(id)) => works.speak(&id, false),
                _ => {}
            }
            if works.shelf.find("t").is_none() && random.below(4) == 0 {
                works.shelf.set("t", 1 + random.below(4) as u32);
            }
            works.check();
        }
        if works.clients.is_empty() {
            works.enter("last", "p0");
        }
        let tasks = 1 + random.below(4) as u32;
        ["t", "again", "counted"].into_iter().for_each(|name| works.shelf.delete(name));
        works.shelf.set("t", tasks);
        // Those that died are missed, those that found no room find it.
        for _ in 0..(SESSION_MS / 500 + 4) {
            for id in works.clients.keys().cloned().collect::<Vec<_>>() {
                works.speak(&id, false);
            }
            works.pass(500);
        }
        while works.clients.len() > 6 {
            works.clients.pop_last();
        }
        for _ in 0..(SESSION_MS / 500 + 4) {
            for id in works.clients.keys().cloned().collect::<Vec<_>>() {
                works.speak(&id, false);
            }
            works.pass(500);
        }
        works.settle();
        works.check_whole(tasks, standbys as usize);
        let before = format!("{:?}", works.describe());
        works.restart();
        assert_eq!(format!("{:?}", works.describe()), before, "seed {seed}: a restart changes nothing");
        works.settle();
    }
}
