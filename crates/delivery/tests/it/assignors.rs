//! Who gets what: evenness, few moves, and what the assignors promise each for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use delivery::{Assignor, Subscriber, Targets, assign, simple};
use types::TopicId;
use uuid::Uuid;

use crate::crowd::Random;

fn topic(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn subscriber(id: &str, topics: &[u128]) -> Subscriber {
    Subscriber {
        id: id.to_owned(),
        instance: None,
        topics: topics.iter().map(|number| topic(*number)).collect(),
        has: BTreeMap::new(),
    }
}

fn sizes(targets: &Targets) -> Vec<usize> {
    targets.values().map(|target| target.values().map(BTreeSet::len).sum()).collect()
}

/// Each partition of each topic that is read has one reader, who reads that topic.
fn check_whole(members: &[Subscriber], partitions: &BTreeMap<TopicId, u32>, targets: &Targets) {
    let mut seen = BTreeSet::new();
    for member in members {
        for (topic, set) in &targets[&member.id] {
            assert!(member.topics.contains(topic), "{} does not read {topic}", member.id);
            set.iter().for_each(|one| {
                assert!(*one < partitions[topic] && seen.insert((*topic, *one)), "{topic} {one} has one reader")
            });
        }
    }
    let read = partitions.iter().filter(|(topic, _)| members.iter().any(|member| member.topics.contains(*topic)));
    assert_eq!(seen.len(), read.map(|(_, count)| *count as usize).sum::<usize>(), "all partitions are somebody's");
}

#[test]
fn range_gives_neighbours() {
    let members = [subscriber("b", &[1, 2]), subscriber("a", &[1]), subscriber("c", &[1, 2])];
    let partitions = BTreeMap::from([(topic(1), 7), (topic(2), 1)]);
    let targets = assign(Assignor::Range, &members, &partitions, &Targets::new());
    check_whole(&members, &partitions, &targets);
    assert_eq!(targets["a"][&topic(1)], BTreeSet::from([0, 1, 2]));
    assert_eq!(targets["b"][&topic(1)], BTreeSet::from([3, 4]));
    assert_eq!(targets["c"][&topic(1)], BTreeSet::from([5, 6]));
    assert_eq!(targets["b"][&topic(2)], BTreeSet::from([0]));
    assert!(!targets["c"].contains_key(&topic(2)));
}

#[test]
fn range_goes_by_instances_first() {
    let mut members = [subscriber("a", &[1]), subscriber("z", &[1])];
    members[1].instance = Some("i".to_owned());
    let targets = assign(Assignor::Range, &members, &BTreeMap::from([(topic(1), 3)]), &Targets::new());
    assert_eq!(targets["z"][&topic(1)], BTreeSet::from([0, 1]));
}

#[test]
fn uniform_moves_no_more_than_it_must() {
    let partitions = BTreeMap::from([(topic(1), 6), (topic(2), 6)]);
    let two = [subscriber("a", &[1, 2]), subscriber("b", &[1, 2])];
    let before = assign(Assignor::Uniform, &two, &partitions, &Targets::new());
    assert_eq!(sizes(&before), [6, 6]);
    let three = [subscriber("a", &[1, 2]), subscriber("b", &[1, 2]), subscriber("c", &[1, 2])];
    let after = assign(Assignor::Uniform, &three, &partitions, &before);
    assert_eq!(sizes(&after), [4, 4, 4]);
    for id in ["a", "b"] {
        for (topic, set) in &after[id] {
            assert!(set.is_subset(&before[id][topic]), "{id} got something for something");
        }
    }
    assert_eq!(assign(Assignor::Uniform, &three, &partitions, &after), after, "what is even stays");
}

#[test]
fn uniform_is_whole_and_even_for_any_group() {
    let mut random = Random::new(7);
    for _ in 0..2_000 {
        let topics = 1 + random.below(4) as u128;
        let partitions: BTreeMap<TopicId, u32> =
            (0..topics).map(|number| (topic(number), 1 + random.below(9) as u32)).collect();
        let same = random.below(2) == 0;
        let mut before = Targets::new();
        for round in 0..3 {
            let count = 1 + random.below(6);
            let members: Vec<Subscriber> = (0..count)
                .map(|number| {
                    let all: Vec<u128> = (0..topics).filter(|_| same || random.below(3) > 0).collect();
                    subscriber(&format!("m{}", (number + round) % 7), &all)
                })
                .collect();
            let targets = assign(Assignor::Uniform, &members, &partitions, &before);
            check_whole(&members, &partitions, &targets);
            if same {
                let sizes = sizes(&targets);
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
            }
            check_whole(&members, &partitions, &assign(Assignor::Range, &members, &partitions, &before));
            before = targets;
        }
    }
}

/// What a member was only promised goes before what it has, and of that what it got last.
#[test]
fn uniform_takes_the_newest_away() {
    let mut random = Random::new(13);
    let (mut lost_some, mut promised_some) = (0, 0);
    for _ in 0..2_000 {
        let partitions =
            BTreeMap::from([(topic(1), 2 + random.below(12) as u32), (topic(2), 1 + random.below(6) as u32)]);
        let group =
            |count: u64| (0..count).map(|number| subscriber(&format!("m{number}"), &[1, 2])).collect::<Vec<_>>();
        let first = 1 + random.below(4);
        let before = assign(Assignor::Uniform, &group(first), &partitions, &Targets::new());
        let mut members = group(first + 1 + random.below(4));
        for member in &mut members {
            for (topic, one) in before
                .get(&member.id)
                .into_iter()
                .flatten()
                .flat_map(|(topic, set)| set.iter().map(|one| (*topic, *one)))
            {
                if random.below(3) > 0 {
                    Arc::make_mut(member.has.entry(topic).or_default()).insert(one, random.below(9) as i32);
                }
            }
        }
        let after = assign(Assignor::Uniform, &members, &partitions, &before);
        check_whole(&members, &partitions, &after);
        for member in &members {
            let since = |(topic, one): &(TopicId, u32)| {
                member.has.get(topic).and_then(|has| has.get(one)).copied().unwrap_or(i32::MAX)
            };
            let had = before
                .get(&member.id)
                .into_iter()
                .flatten()
                .flat_map(|(topic, set)| set.iter().map(|one| (*topic, *one)));
            let keeps =
                |(topic, one): &(TopicId, u32)| after[&member.id].get(topic).is_some_and(|set| set.contains(one));
            let (kept, lost): (Vec<_>, Vec<_>) = had.partition(keeps);
            let (newest, oldest) = (kept.iter().map(since).max(), lost.iter().map(since).min());
            if let (Some(newest), Some(oldest)) = (newest, oldest) {
                assert!(newest <= oldest, "{}: keeps {kept:?}, loses {lost:?}, has {:?}", member.id, member.has);
                lost_some += 1;
                promised_some += usize::from(oldest == i32::MAX);
            }
        }
    }
    assert!(lost_some > 100 && promised_some > 10, "{lost_some} {promised_some}");
}

#[test]
fn uniform_evens_out_what_members_can_share() {
    // The first could take everything, but the others read only one topic each.
    let members = [subscriber("a", &[1, 2]), subscriber("b", &[1]), subscriber("c", &[2])];
    let partitions = BTreeMap::from([(topic(1), 6), (topic(2), 6)]);
    let before =
        Targets::from([("a".to_owned(), BTreeMap::from([(topic(1), (0..6).collect()), (topic(2), (0..6).collect())]))]);
    let targets = assign(Assignor::Uniform, &members, &partitions, &before);
    check_whole(&members, &partitions, &targets);
    // Of two that read the same topic none has two more than the other.
    let sizes = sizes(&targets);
    assert!(sizes[0].abs_diff(sizes[1]) <= 1 && sizes[0].abs_diff(sizes[2]) <= 1, "{sizes:?}");
}

#[test]
fn simple_gives_everybody_something() {
    let mut random = Random::new(11);
    for _ in 0..2_000 {
        let partitions =
            BTreeMap::from([(topic(1), 1 + random.below(6) as u32), (topic(2), 1 + random.below(6) as u32)]);
        let same = random.below(2) == 0;
        let mut before = Targets::new();
        for _ in 0..3 {
            let count = 1 + random.below(9);
            let pick = |random: &mut Random| if same { vec![1, 2] } else { vec![1 + random.below(2) as u128] };
            let members: Vec<Subscriber> =
                (0..count).map(|number| subscriber(&format!("m{number}"), &pick(&mut random))).collect();
            let targets = simple(&members, &partitions, &before);
            for (topic, count) in &partitions {
                let readers: Vec<&Subscriber> = members.iter().filter(|member| member.topics.contains(topic)).collect();
                for one in 0..*count {
                    let has = readers
                        .iter()
                        .filter(|member| targets[&member.id].get(topic).is_some_and(|set| set.contains(&one)))
                        .count();
                    assert!(readers.is_empty() || has > 0, "{topic} {one} has no reader");
                }
            }
            assert!(sizes(&targets).iter().all(|size| *size > 0), "nobody is idle");
            before = targets;
        }
    }
}
