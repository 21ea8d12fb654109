//! Members of share groups: who reads what, epochs, restarts.

use delivery::{GroupError, HeartbeatAnswer, JoinRequest, Mention, ShareHeartbeat, Sight, Topics};

use crate::allocations::count;
use crate::crowd::Crowd;
use crate::room::{GROUP, SESSION_MS, join};

fn beat(id: &str, epoch: i32, topics: Option<&[&str]>) -> ShareHeartbeat {
    let topics = topics.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    ShareHeartbeat { member_id: id.to_owned(), epoch, topics, ..ShareHeartbeat::default() }
}

fn ask(crowd: &mut Crowd, request: &ShareHeartbeat) -> Result<HeartbeatAnswer, GroupError> {
    let mut effects = Vec::new();
    let answer = crowd.groups.share_heartbeat(GROUP, request, Sight::ALL, crowd.now, &mut effects);
    assert!(answer.is_ok() || effects.is_empty(), "what is refused changes nothing");
    crowd.take(effects);
    answer
}

#[test]
fn everybody_reads_something() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 2);
    let (topic, _) = crowd.shelf.find("t").unwrap();
    let first = ask(&mut crowd, &beat("a", 0, Some(&["t"]))).unwrap();
    assert_eq!((first.epoch, first.assignment.unwrap()[&topic].len()), (2, 2));
    for (id, epoch) in [("b", 3), ("c", 4)] {
        let answer = ask(&mut crowd, &beat(id, 0, Some(&["t"]))).unwrap();
        assert_eq!((answer.epoch, answer.assignment.unwrap().len()), (epoch, 1), "nobody waits for anybody");
    }
    let told = ask(&mut crowd, &beat("a", 2, None)).unwrap();
    assert!(told.assignment.is_none_or(|target| !target.is_empty()));
    assert_eq!(told.epoch, 4);
    // The answer may have got lost; older epochs are another matter.
    assert_eq!(ask(&mut crowd, &beat("a", 2, None)).unwrap().epoch, 4);
    assert_eq!(ask(&mut crowd, &beat("a", 3, None)), Err(GroupError::FencedEpoch));
    assert_eq!(ask(&mut crowd, &beat("a", 5, None)), Err(GroupError::FencedEpoch));
    assert_eq!(ask(&mut crowd, &beat("z", 3, None)), Err(GroupError::UnknownMember));
    ask(&mut crowd, &beat("d", 0, Some(&["t"]))).unwrap();
    assert_eq!(ask(&mut crowd, &beat("e", 0, Some(&["t"]))), Err(GroupError::GroupFull));
}

#[test]
fn a_restart_keeps_members_and_epochs() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 3);
    ask(&mut crowd, &beat("a", 0, Some(&["t"]))).unwrap();
    ask(&mut crowd, &beat("b", 0, Some(&["t"]))).unwrap();
    ask(&mut crowd, &beat("a", 2, None)).unwrap();
    let before = crowd.groups.describe_share(GROUP).unwrap();
    crowd.restart();
    let after = crowd.groups.describe_share(GROUP).unwrap();
    assert_eq!((before.epoch, &before.members), (after.epoch, &after.members));
    assert_eq!(ask(&mut crowd, &beat("a", 3, None)).unwrap().epoch, 3);
    assert_eq!(crowd.groups.describe_share(GROUP).unwrap().epoch, before.epoch);
    crowd.pass(SESSION_MS - 1);
    ask(&mut crowd, &beat("b", 3, None)).unwrap();
    crowd.pass(2);
    let group = crowd.groups.describe_share(GROUP).unwrap();
    assert_eq!((group.members.len(), group.epoch), (1, before.epoch + 1), "the other one was not heard");
    crowd.shelf.set("t", 5);
    let told = ask(&mut crowd, &beat("b", 3, None)).unwrap();
    assert_eq!(told.assignment.unwrap().values().map(std::collections::BTreeSet::len).sum::<usize>(), 5);
}

#[test]
fn one_name_has_one_kind_of_group() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 1);
    crowd.enter("a", &["t"]);
    assert_eq!(ask(&mut crowd, &beat("a", 0, Some(&["t"]))), Err(GroupError::GroupNotFound));
    let farewell = delivery::ConsumerHeartbeat { member_id: "a".to_owned(), epoch: -1, ..Default::default() };
    crowd.beat(&farewell).unwrap();
    assert_eq!(ask(&mut crowd, &beat("a", 0, Some(&["t"]))), Err(GroupError::GroupNotFound), "it is empty, but there");
    crowd.groups.delete(GROUP).unwrap();
    crowd.records.clear();
    ask(&mut crowd, &beat("a", 0, Some(&["t"]))).unwrap();
    assert_eq!(crowd.groups.delete(GROUP), Err(GroupError::NonEmptyGroup));
    let mut effects = Vec::new();
    crowd.groups.join(GROUP, JoinRequest { two_step: false, ..join("") }, 1, crowd.now, &mut effects);
    let refused = matches!(&effects[..], [delivery::Effect::Answer(1, delivery::Answer::Joined(joined))] if joined.error == Some(GroupError::InconsistentProtocol));
    assert!(refused, "{effects:?}");
    ask(&mut crowd, &beat("a", -1, None)).unwrap();
    assert_eq!(ask(&mut crowd, &beat("a", -1, None)), Err(GroupError::UnknownMember));
    crowd.restart();
    for key in crowd.groups.delete(GROUP).unwrap() {
        crowd.records.remove(&key);
    }
    assert!(crowd.records.is_empty());
}

#[test]
fn heartbeats_of_a_member_with_many_partitions_and_names_allocate_little() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 100_000);
    let names: Vec<String> = (0..5000).map(|number| format!("topic-{number}")).collect();
    names.iter().for_each(|name| crowd.shelf.set(name, 1));
    let all: Vec<&str> = names.iter().map(String::as_str).chain(["t"]).collect();
    let ends_otherwise = |name: &str, _: Mention| !name.ends_with('7');
    let hides = Sight { stamp: 1, user: "", sees: Some(&ends_otherwise) };
    let mut beat_seeing = |request: &ShareHeartbeat| {
        crowd.groups.share_heartbeat(GROUP, request, hides, crowd.now, &mut Vec::new()).unwrap()
    };
    let first = beat_seeing(&beat("a", 0, Some(&all)));
    assert_eq!(
        first.assignment.map(|all| all.values().map(std::collections::BTreeSet::len).sum()),
        Some(100_000 + 4_500)
    );
    let next = beat("a", first.epoch, None);
    beat_seeing(&next);
    // Nothing changes: neither what the member has is copied, nor the topics that it names or those of them that are hidden from it.
    let (again, asked) = count(|| beat_seeing(&next));
    assert_eq!(again.assignment, None);
    assert!(asked < 200, "{asked} allocations");
}
