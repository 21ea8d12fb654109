//! Who gets which partitions, computed from subscriptions: `uniform` and `range` for consumer groups, `simple` for share
//! groups. Nothing here waits for anybody: a target is where members are to get to, one revocation at a time.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};
use types::TopicId;

use crate::topology::{Owned, Target};

/// A server-side assignor of consumer groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assignor {
    /// Even, and with as few moves as that allows.
    Uniform,
    /// Neighbouring partitions, topic by topic; the same number of every topic side by side.
    Range,
}

impl Assignor {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// By Kafka's name.
    pub fn find(name: &str) -> Option<Self> {
        [Self::Uniform, Self::Range].into_iter().find(|one| one.name() == name)
    }
}

/// A member as an assignor sees it.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// Its id.
    pub id: String,
    /// Of a static member: the order of `range` goes by it.
    pub instance: Option<String>,
    /// What it reads; only topics that exist.
    pub topics: BTreeSet<TopicId>,
    /// What it may read by now: the rest of its target it has only been promised.
    pub has: Owned,
}

impl Subscriber {
    /// The epoch in which it got a partition; the last of all for one that it does not have yet.
    fn since(&self, (topic, one): &Place) -> i32 {
        self.has.get(topic).and_then(|has| has.get(one)).copied().unwrap_or(i32::MAX)
    }
}

/// Targets by member.
pub type Targets = BTreeMap<String, Target>;

/// Computes targets: each partition of each topic that somebody reads goes to one of its readers.
pub fn assign(
    assignor: Assignor,
    members: &[Subscriber],
    partitions: &BTreeMap<TopicId, u32>,
    before: &Targets,
) -> Targets {
    match assignor {
        Assignor::Range => range(members, partitions),
        Assignor::Uniform => uniform(members, partitions, before),
    }
}

fn range(members: &[Subscriber], partitions: &BTreeMap<TopicId, u32>) -> Targets {
    let mut ordered: Vec<&Subscriber> = members.iter().collect();
    // Static members first, by their instance ids.
    ordered.sort_by(|one, other| {
        let key = |member: &'_ Subscriber| {
            (member.instance.is_none(), member.instance.clone().unwrap_or_else(|| member.id.clone()))
        };
        key(one).cmp(&key(other))
    });
    let mut targets: Targets = members.iter().map(|member| (member.id.clone(), Target::new())).collect();
    for (topic, count) in partitions {
        let readers: Vec<&&Subscriber> = ordered.iter().filter(|member| member.topics.contains(topic)).collect();
        let Some(each) = count.checked_div(readers.len() as u32) else { continue };
        let more = count % readers.len() as u32;
        let mut start = 0;
        for (number, reader) in readers.iter().enumerate() {
            let end = start + each + u32::from((number as u32) < more);
            if start < end
                && let Some(target) = targets.get_mut(&reader.id)
            {
                target.insert(*topic, (start..end).collect());
            }
            start = end;
        }
    }
    targets
}

type Place = (TopicId, u32);

fn uniform(members: &[Subscriber], partitions: &BTreeMap<TopicId, u32>, before: &Targets) -> Targets {
    if members.is_empty() {
        return Targets::new();
    }
    let read = |topic: &TopicId| members.iter().any(|member| member.topics.contains(topic));
    let total: Vec<Place> = partitions
        .iter()
        .filter(|(topic, _)| read(topic))
        .flat_map(|(topic, count)| (0..*count).map(|one| (*topic, one)))
        .collect();
    // What a member had stays with it, as far as it still reads it and nobody else has it.
    let mut taken: HashSet<Place> = HashSet::new();
    let mut held: Vec<Vec<Place>> = Vec::with_capacity(members.len());
    for member in members {
        let had =
            before.get(&member.id).into_iter().flatten().flat_map(|(topic, set)| set.iter().map(|one| (*topic, *one)));
        let exists = |(topic, one): &Place| {
            member.topics.contains(topic) && partitions.get(topic).is_some_and(|count| one < count)
        };
        let mut kept: Vec<Place> = had.filter(exists).filter(|place| taken.insert(*place)).collect();
        // What goes is taken from the end: first what it has only been promised, which nobody has to give up, then what it got last.
        kept.sort_by_key(|place| (member.since(place), *place));
        held.push(kept);
    }
    let free: Vec<Place> = total.iter().filter(|place| !taken.contains(*place)).copied().collect();
    let same = members.iter().all(|member| member.topics == members[0].topics);
    if same {
        level(&mut held, free, total.len())
    } else {
        balance(members, &mut held, free)
    }
    let pairs = members.iter().zip(held).map(|(member, mut held)| {
        held.sort_unstable();
        let of_topics = held
            .chunk_by(|one, other| one.0 == other.0)
            .map(|places| (places[0].0, places.iter().map(|(_, one)| *one).collect()));
        (member.id.clone(), of_topics.collect())
    });
    pairs.collect()
}

/// Everybody reads the same: all get as many, some one more.
fn level(held: &mut [Vec<Place>], mut free: Vec<Place>, total: usize) {
    let (each, mut more) = (total / held.len(), total % held.len());
    let mut quota = vec![each; held.len()];
    for (quota, held) in quota.iter_mut().zip(held.iter()) {
        if held.len() > each && more > 0 {
            *quota += 1;
            more -= 1;
        }
    }
    for quota in quota.iter_mut().filter(|quota| **quota == each).take(more) {
        *quota += 1;
    }
    for (held, quota) in held.iter_mut().zip(&quota) {
        if held.len() > *quota {
            free.extend(held.drain(*quota..));
        }
    }
    free.sort_unstable();
    let mut free = free.into_iter();
    for (held, quota) in held.iter_mut().zip(&quota) {
        let missing = quota - held.len();
        held.extend(free.by_ref().take(missing));
    }
}

/// Members read different topics: each partition goes to its reader with the least, then the heaviest give to the lightest as long
/// as that makes them more equal.
fn balance(members: &[Subscriber], held: &mut [Vec<Place>], free: Vec<Place>) {
    let mut readers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for (number, member) in members.iter().enumerate() {
        for topic in &member.topics {
            readers.entry(*topic).or_default().push(number);
        }
    }
    let mut moves = held.iter().map(Vec::len).sum::<usize>() + free.len();
    let mut free = free;
    // How much each has of each topic.
    let mut counts: HashMap<(usize, TopicId), usize> = HashMap::new();
    for (number, held) in held.iter().enumerate() {
        held.iter().for_each(|(topic, _)| *counts.entry((number, *topic)).or_default() += 1);
    }
    // Those with the fewest readers first: they have the least choice.
    free.sort_by_key(|(topic, one)| (readers.get(topic).map_or(0, Vec::len), *topic, *one));
    for place in free {
        let lightest =
            readers.get(&place.0).and_then(|readers| readers.iter().min_by_key(|reader| held[**reader].len()));
        if let Some(lightest) = lightest {
            held[*lightest].push(place);
            *counts.entry((*lightest, place.0)).or_default() += 1;
        }
    }
    let mut changed = true;
    while changed && moves > 0 {
        changed = false;
        for (topic, readers) in &readers {
            loop {
                let has = |reader: &&usize| counts.get(&(**reader, *topic)).is_some_and(|count| *count > 0);
                let heaviest = readers.iter().filter(has).max_by_key(|reader| held[**reader].len()).copied();
                let lightest = readers.iter().min_by_key(|reader| held[**reader].len()).copied();
                let (Some(heaviest), Some(lightest)) = (heaviest, lightest) else { break };
                if held[heaviest].len() < held[lightest].len() + 2 || moves == 0 {
                    break;
                }
                let Some(at) = held[heaviest].iter().rposition(|place| place.0 == *topic) else { break };
                let place = held[heaviest].remove(at);
                held[lightest].push(place);
                for (reader, more) in [(heaviest, false), (lightest, true)] {
                    let count = counts.entry((reader, *topic)).or_default();
                    *count = if more { *count + 1 } else { count.saturating_sub(1) };
                }
                moves -= 1;
                changed = true;
            }
        }
    }
}

/// For share groups: every partition has as many members as it takes to give each member something.
pub fn simple(members: &[Subscriber], partitions: &BTreeMap<TopicId, u32>, before: &Targets) -> Targets {
    let mut targets: Targets = members.iter().map(|member| (member.id.clone(), Target::new())).collect();
    let Some(first) = members.first() else { return targets };
    if members.iter().all(|member| member.topics == first.topics) {
        let all = partitions.iter().filter(|(topic, _)| first.topics.contains(*topic));
        let places: Vec<Place> = all.flat_map(|(topic, count)| (0..*count).map(|one| (*topic, one))).collect();
        spread(&members.iter().collect::<Vec<_>>(), &places, before, &mut targets);
        return targets;
    }
    for (topic, count) in partitions {
        let readers: Vec<&Subscriber> = members.iter().filter(|member| member.topics.contains(topic)).collect();
        let places: Vec<Place> = (0..*count).map(|one| (*topic, one)).collect();
        spread(&readers, &places, before, &mut targets);
    }
    targets
}

/// Shares these partitions out among these members, each to the same number of them.
fn spread(members: &[&Subscriber], places: &[Place], before: &Targets, targets: &mut Targets) {
    if members.is_empty() || places.is_empty() {
        return;
    }
    let sharing = members.len().div_ceil(places.len());
    let wanted = |number: usize| -> usize {
        // The first ones get what does not divide.
        let up_to = |count: usize| (sharing * places.len() * count).div_ceil(members.len());
        up_to(number + 1) - up_to(number)
    };
    let mut readers: BTreeMap<Place, usize> = places.iter().map(|place| (*place, 0)).collect();
    let mut held: Vec<BTreeSet<Place>> = Vec::with_capacity(members.len());
    for (number, member) in members.iter().enumerate() {
        let mut mine = BTreeSet::new();
        let had =
            before.get(&member.id).into_iter().flatten().flat_map(|(topic, set)| set.iter().map(|one| (*topic, *one)));
        for place in had {
            if let Some(count) = readers.get_mut(&place)
                && *count < sharing
                && mine.len() < wanted(number)
            {
                *count += 1;
                mine.insert(place);
            }
        }
        held.push(mine);
    }
    // Those that need most come first, partition by partition: nobody gets the same one twice.
    for (number, mine) in held.iter_mut().enumerate() {
        let missing = wanted(number).saturating_sub(mine.len());
        let open =
            |(place, count): (&Place, &usize)| (*count < sharing && !mine.contains(place)).then_some((*count, *place));
        let mut choice: Vec<(usize, Place)> = readers.iter().filter_map(open).collect();
        choice.sort_unstable();
        for (_, place) in choice.into_iter().take(missing) {
            mine.insert(place);
            *readers.entry(place).or_default() += 1;
        }
    }
    for (member, mine) in members.iter().zip(held) {
        let Some(target) = targets.get_mut(&member.id) else { continue };
        for (topic, one) in mine {
            target.entry(topic).or_default().insert(one);
        }
    }
}
