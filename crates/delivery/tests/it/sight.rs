//! A topic that members may not see is for their groups one that is not there.

use std::collections::BTreeMap;

use delivery::{ConsumerHeartbeat, GroupTimes, HeartbeatAnswer, Mention, ShareHeartbeat, Sight, Topics};

use crate::crowd::{Crowd, Random};
use crate::room::{GROUP, settings};

const NAMES: [&str; 4] = ["hidden-1", "hidden-2", "open-1", "open-2"];
const EXPRESSIONS: [&str; 4] = ["", ".*", "hidden-1", "open.*|hidden-2"];

fn sees(topic: &str, _: Mention) -> bool {
    !topic.starts_with("hidden")
}

#[derive(Clone, Debug)]
enum Step {
    /// A hidden topic is made, enlarged or deleted: in one of two worlds only.
    Hidden(usize, u32),
    Open(usize, u32),
    /// Who, and what he subscribes to if that is new: names, expression.
    Beat(usize, Option<(Vec<usize>, usize)>),
    Leave(usize),
    Pass(u64),
    Restart,
}

fn step(random: &mut Random) -> Step {
    let size = |random: &mut Random| random.below(4) as u32;
    match random.below(16) {
        0..=2 => Step::Hidden(random.below(2) as usize, size(random)),
        3 => Step::Open(2 + random.below(2) as usize, size(random)),
        4..=6 => {
            let names = (0..4).filter(|_| random.below(2) == 0).collect();
            Step::Beat(random.below(4) as usize, Some((names, random.below(4) as usize)))
        }
        7 => Step::Leave(random.below(4) as usize),
        8 => Step::Pass(random.below(3_000)),
        9 => Step::Restart,
        _ => Step::Beat(random.below(4) as usize, None),
    }
}

struct World {
    crowd: Crowd,
    /// What each member knows: its epoch, if it is one.
    epochs: [Option<i32>; 4],
    share: bool,
}

impl World {
    fn set(&self, topic: usize, partitions: u32) {
        match partitions {
            0 => self.crowd.shelf.delete(NAMES[topic]),
            more => self.crowd.shelf.set(NAMES[topic], more),
        }
    }

    /// What a member is told, in a way that does not depend on ids.
    fn told(&self, answer: HeartbeatAnswer) -> String {
        let assignment: Option<BTreeMap<Option<String>, _>> = answer
            .assignment
            .map(|target| target.into_iter().map(|(topic, set)| (self.crowd.shelf.name(topic), set)).collect());
        format!("{} {} {assignment:?}", answer.epoch, answer.interval)
    }

    fn beat(&mut self, member: usize, subscription: Option<&(Vec<usize>, usize)>, leaves: bool) -> String {
        let id = format!("member {member}");
        let user = if member < 2 { "eve" } else { "mallory" };
        let sight = Sight { stamp: 1 + member as u64, user, sees: Some(&sees) };
        let epoch = if leaves { -1 } else { self.epochs[member].unwrap_or(0) };
        let named = |names: &Vec<usize>| names.iter().map(|name| NAMES[*name].to_owned()).collect::<Vec<_>>();
        let joins = epoch == 0;
        let all = vec![0, 1, 2, 3];
        let topics = subscription.map(|(names, _)| names).or(joins.then_some(&all)).map(named);
        let answer = if self.share {
            let topics = topics.filter(|topics| !topics.is_empty() || !joins).or(joins.then(|| named(&all)));
            let request = ShareHeartbeat { member_id: id, epoch, topics, ..ShareHeartbeat::default() };
            let mut effects = Vec::new();
            let answer = self.crowd.groups.share_heartbeat(GROUP, &request, sight, self.crowd.now, &mut effects);
            self.crowd.take(effects);
            answer
        } else {
            let regex = subscription.map(|(_, expression)| EXPRESSIONS[*expression].to_owned());
            let rebalance_timeout = joins.then_some(30_000);
            let owned = joins.then(Vec::new);
            let user = user.to_owned();
            let request = ConsumerHeartbeat {
                member_id: id,
                epoch,
                topics,
                regex,
                rebalance_timeout,
                owned,
                user,
                ..ConsumerHeartbeat::default()
            };
            self.crowd.beat_seeing(&request, sight)
        };
        self.epochs[member] = answer.as_ref().ok().map(|answer| answer.epoch).filter(|epoch| *epoch > 0);
        answer.map_or_else(|error| format!("{error:?}"), |answer| self.told(answer))
    }
}

fn compare(share: bool) {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut chosen = settings();
        if seed % 2 == 0 {
            chosen.consumer_times = GroupTimes { assignment_interval: 1_000, ..chosen.consumer_times };
            chosen.share_times = GroupTimes { assignment_interval: 1_000, ..chosen.share_times };
        }
        let mut worlds = [(); 2].map(|()| World { crowd: Crowd::with(chosen.clone()), epochs: [None; 4], share });
        let mut before = Vec::new();
        for _ in 0..80 {
            let step = step(&mut random);
            before.push(step.clone());
            let told = [0, 1].map(|world| {
                let (is_first, world) = (world == 0, &mut worlds[world]);
                match &step {
                    Step::Hidden(topic, partitions) if is_first => world.set(*topic, *partitions),
                    Step::Hidden(..) => {}
                    Step::Open(topic, partitions) => world.set(*topic, *partitions),
                    Step::Beat(member, subscription) => return world.beat(*member, subscription.as_ref(), false),
                    Step::Leave(member) => return world.beat(*member, None, true),
                    Step::Pass(ms) => world.crowd.pass(*ms),
                    Step::Restart => world.crowd.restart(),
                }
                String::new()
            });
            assert_eq!(told[0], told[1], "seed {seed}: {before:?}");
        }
    }
}

#[test]
fn members_of_a_consumer_group_do_not_hear_of_what_they_may_not_see() {
    compare(false);
}

#[test]
fn members_of_a_share_group_do_not_hear_of_what_they_may_not_see() {
    compare(true);
}

/// The name is kept: who gets the right reads the topic, and who loses it does not any more.
#[test]
fn a_name_counts_from_when_its_topic_may_be_seen() {
    for share in [false, true] {
        let mut crowd = Crowd::new();
        crowd.shelf.set("hidden-1", 2);
        let mut beat = |epoch: i32, sight| {
            let topics = (epoch == 0).then(|| vec!["hidden-1".to_owned()]);
            let mut effects = Vec::new();
            let member_id = "a".to_owned();
            if share {
                let request = ShareHeartbeat { member_id, epoch, topics, ..ShareHeartbeat::default() };
                return crowd.groups.share_heartbeat(GROUP, &request, sight, crowd.now, &mut effects).unwrap();
            }
            let owned = (epoch == 0).then(Vec::new);
            let request = ConsumerHeartbeat {
                member_id,
                epoch,
                topics,
                rebalance_timeout: Some(1),
                owned,
                ..ConsumerHeartbeat::default()
            };
            crowd.groups.consumer_heartbeat(GROUP, &request, sight, crowd.now, &mut effects).unwrap()
        };
        let blind = |stamp| Sight { stamp, user: "bob", sees: Some(&sees) };
        let seeing = Sight { stamp: 2, user: "bob", sees: Some(&|_, _| true) };
        let partitions = |answer: &HeartbeatAnswer| {
            answer.assignment.as_ref().map(|target| target.values().map(|set| set.len()).sum::<usize>())
        };
        let joined = beat(0, blind(1));
        assert_eq!((joined.epoch, partitions(&joined)), (2, Some(0)), "share: {share}");
        let same = beat(2, blind(1));
        assert_eq!(same.epoch, 2);
        let granted = beat(2, seeing);
        assert_eq!((granted.epoch, partitions(&granted)), (3, Some(2)), "share: {share}");
        let lost = beat(3, blind(3));
        assert_eq!(partitions(&lost), Some(0), "share: {share}");
    }
}
