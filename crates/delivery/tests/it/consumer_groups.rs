//! Groups in which the coordinator assigns: epochs, who may read what and when, static members, expressions, restarts.

use std::collections::BTreeSet;

use delivery::{
    Commit, CommittedOffset, Committer, ConsumerGroupState, ConsumerHeartbeat, GroupError, GroupTimes, MemberState,
    Mention, Sight, Topics,
};

use crate::allocations::count;
use crate::crowd::{Client, Crowd, Random};
use crate::room::{GROUP, SESSION_MS, settings};

fn joining(id: &str, topics: &[&str]) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        member_id: id.to_owned(),
        rebalance_timeout: Some(30_000),
        topics: Some(topics.iter().map(|name| (*name).to_owned()).collect()),
        owned: Some(Vec::new()),
        ..ConsumerHeartbeat::default()
    }
}

#[test]
fn a_partition_goes_over_when_it_has_been_given_up() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 2);
    let (topic, _) = crowd.shelf.find("t").unwrap();
    crowd.enter("a", &["t"]);
    assert_eq!((crowd.clients["a"].epoch, crowd.clients["a"].has[&topic].len()), (2, 2));
    crowd.enter("b", &["t"]);
    let b = crowd.clients["b"].clone();
    assert_eq!((b.epoch, b.has.len()), (3, 0), "the other one still has everything");
    assert_eq!(crowd.describe().state, ConsumerGroupState::Reconciling);
    // The first is told to give one up, and stays in its epoch until it says that it has.
    let request = crowd.words("a");
    let told = crowd.beat(&request).unwrap();
    assert_eq!((told.epoch, told.assignment.as_ref().unwrap()[&topic].len()), (2, 1));
    let again = crowd.beat(&request).unwrap();
    assert_eq!((again.epoch, again.assignment), (2, None), "it still has it");
    crowd.speak("b", false);
    assert!(crowd.clients["b"].has.is_empty());
    crowd.clients.get_mut("a").unwrap().has = told.assignment.unwrap();
    crowd.speak("a", false);
    assert_eq!(crowd.clients["a"].epoch, 3);
    crowd.speak("b", false);
    assert_eq!(crowd.clients["b"].has[&topic].len(), 1);
    assert_eq!(crowd.describe().state, ConsumerGroupState::Stable);
}

#[test]
fn who_does_not_give_up_in_time_is_out() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 2);
    crowd.enter("a", &["t"]);
    crowd.enter("b", &["t"]);
    let holds_on = crowd.words("a");
    // It goes on to say that it has both.
    for _ in 0..31 {
        let _ = crowd.beat(&holds_on);
        crowd.speak("b", false);
        crowd.pass(1_000);
    }
    assert_eq!(crowd.beat(&holds_on), Err(GroupError::UnknownMember));
    crowd.clients.remove("a");
    crowd.settle();
    crowd.check_whole();
}

#[test]
fn epochs_are_checked() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 1);
    crowd.shelf.set("u", 1);
    crowd.enter("a", &["t"]);
    let beat = |epoch, owned: Option<Vec<_>>| ConsumerHeartbeat {
        member_id: "a".to_owned(),
        epoch,
        owned,
        ..ConsumerHeartbeat::default()
    };
    let (t, _) = crowd.shelf.find("t").unwrap();
    let (u, _) = crowd.shelf.find("u").unwrap();
    assert_eq!(crowd.beat(&beat(3, None)), Err(GroupError::FencedEpoch));
    assert_eq!(crowd.beat(&beat(1, None)), Err(GroupError::FencedEpoch));
    let news = ConsumerHeartbeat { topics: Some(vec!["t".to_owned(), "u".to_owned()]), ..beat(2, None) };
    assert_eq!(crowd.beat(&news).unwrap().epoch, 3);
    // The answer got lost: it may ask again with what it had.
    assert_eq!(crowd.beat(&beat(2, Some(vec![(t, vec![0])]))).unwrap().epoch, 3);
    assert_eq!(crowd.beat(&beat(2, Some(vec![(u, vec![7])]))), Err(GroupError::FencedEpoch));
    assert_eq!(crowd.beat(&beat(2, None)), Err(GroupError::FencedEpoch));
    let nobody = ConsumerHeartbeat { member_id: "b".to_owned(), ..beat(3, None) };
    assert_eq!(crowd.beat(&nobody), Err(GroupError::UnknownMember));
    let again = crowd.beat(&joining("a", &["t", "u"])).unwrap();
    assert_eq!((again.epoch, again.assignment.unwrap().len()), (3, 2), "joining again is fine");
}

#[test]
fn what_is_refused_names_its_reason() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 1);
    let with = |change: fn(&mut ConsumerHeartbeat)| {
        let mut request = joining("a", &["t"]);
        change(&mut request);
        request
    };
    assert_eq!(crowd.beat(&with(|beat| beat.epoch = 5)), Err(GroupError::GroupNotFound));
    assert_eq!(
        crowd.beat(&with(|beat| beat.assignor = Some("sticky".to_owned()))),
        Err(GroupError::UnsupportedAssignor)
    );
    assert_eq!(crowd.beat(&with(|beat| beat.regex = Some("(".to_owned()))), Err(GroupError::InvalidRegex));
    assert_eq!(
        crowd.beat(&with(|beat| beat.regex = Some("a)(b".to_owned()))),
        Err(GroupError::InvalidRegex),
        "only whole ones"
    );
    assert_eq!(
        crowd.beat(&with(|beat| beat.regex = Some("(((a{900}){900}){900})".to_owned()))),
        Err(GroupError::InvalidRegex),
        "too large"
    );
    assert!(!crowd.groups.exists(GROUP), "no group came of it");
    for id in ["a", "b", "c", "d"] {
        crowd.enter(id, &["t"]);
    }
    assert_eq!(crowd.beat(&joining("e", &["t"])), Err(GroupError::GroupFull));
}

#[test]
fn a_static_member_comes_back_to_what_it_had() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 4);
    let (topic, _) = crowd.shelf.find("t").unwrap();
    crowd.clients.insert(
        "a".to_owned(),
        Client { topics: vec!["t".to_owned()], instance: Some("i".to_owned()), ..Client::default() },
    );
    crowd.speak("a", false);
    crowd.enter("b", &["t"]);
    crowd.settle();
    let (had, epoch) = (crowd.clients["a"].has[&topic].clone(), crowd.describe().epoch);
    let stranger = ConsumerHeartbeat { instance: Some("i".to_owned()), ..joining("c", &["t"]) };
    assert_eq!(crowd.beat(&stranger), Err(GroupError::UnreleasedInstance));
    let away = ConsumerHeartbeat { epoch: -2, ..stranger.clone() };
    assert_eq!(crowd.beat(&away), Err(GroupError::FencedInstance));
    let away = ConsumerHeartbeat { member_id: "a".to_owned(), ..away };
    assert_eq!(crowd.beat(&away).unwrap().epoch, -2);
    crowd.clients.remove("a");
    crowd.speak("b", false);
    assert_eq!(crowd.clients["b"].has[&topic].len(), 2, "its part is kept for it");
    let back = crowd.beat(&stranger).unwrap();
    assert_eq!((back.epoch, &back.assignment.unwrap()[&topic]), (epoch, &had));
    assert_eq!(crowd.describe().epoch, epoch, "nothing was assigned anew");
    // The one before is nobody now.
    assert_eq!(
        crowd.beat(&ConsumerHeartbeat { member_id: "a".to_owned(), epoch, ..ConsumerHeartbeat::default() }),
        Err(GroupError::UnknownMember)
    );
}

#[test]
fn a_static_member_that_stays_away_is_out_when_its_session_ends() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 2);
    let member = ConsumerHeartbeat { instance: Some("i".to_owned()), ..joining("a", &["t"]) };
    crowd.beat(&member).unwrap();
    crowd.beat(&ConsumerHeartbeat { epoch: -2, ..member }).unwrap();
    crowd.pass(SESSION_MS + 1);
    assert_eq!(crowd.describe().state, ConsumerGroupState::Empty);
}

#[test]
fn topics_that_change_are_assigned_anew() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 2);
    crowd.enter("a", &["t", "later"]);
    crowd.enter("b", &["t"]);
    crowd.settle();
    let epoch = crowd.describe().epoch;
    crowd.shelf.set("nobody-reads-it", 3);
    crowd.settle();
    assert_eq!(crowd.describe().epoch, epoch);
    crowd.shelf.set("t", 5);
    crowd.settle();
    crowd.check_whole();
    crowd.shelf.set("later", 3);
    crowd.settle();
    crowd.check_whole();
    crowd.shelf.delete("t");
    crowd.settle();
    crowd.check_whole();
    assert!(crowd.clients["b"].has.is_empty());
    assert_eq!(crowd.describe().epoch, epoch + 3);
}

#[test]
fn expressions_match_whole_names_as_topics_come_and_go() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("orders-1", 1);
    crowd.shelf.set("old-orders-1", 1);
    let request = ConsumerHeartbeat { topics: None, regex: Some("orders-[0-9]+".to_owned()), ..joining("a", &[]) };
    let told = crowd.beat(&request).unwrap();
    assert_eq!(told.assignment.unwrap().len(), 1);
    crowd.shelf.set("orders-22", 1);
    let next = ConsumerHeartbeat { member_id: "a".to_owned(), epoch: told.epoch, ..ConsumerHeartbeat::default() };
    let told = crowd.beat(&next).unwrap();
    assert_eq!(told.assignment.unwrap().len(), 2);
    assert_eq!(
        (crowd.groups.consumers_read(GROUP, "orders-22"), crowd.groups.consumers_read(GROUP, "old-orders-1")),
        (Some(true), Some(false))
    );
    crowd.restart();
    let same = crowd.beat(&ConsumerHeartbeat { epoch: told.epoch, ..next.clone() }).unwrap();
    assert_eq!((same.epoch, same.assignment), (told.epoch, None));
    let none = ConsumerHeartbeat { epoch: told.epoch, regex: Some(String::new()), owned: Some(Vec::new()), ..next };
    assert!(crowd.beat(&none).unwrap().assignment.unwrap().is_empty());
}

#[test]
fn expressions_match_what_their_member_may_see() {
    let mut crowd = Crowd::new();
    ["orders-1", "orders-2", "secret-1"].iter().for_each(|topic| crowd.shelf.set(topic, 1));
    let ids = ["orders-1", "orders-2", "secret-1"].map(|topic| crowd.shelf.find(topic).unwrap().0);
    let orders = |topic: &str, _: Mention| topic.starts_with("orders");
    let (some, more) = (
        Sight { stamp: 1, user: "bob", sees: Some(&orders) },
        Sight { stamp: 2, user: "bob", sees: Some(&|_, _| true) },
    );
    let all = |id| ConsumerHeartbeat { topics: None, regex: Some(".*".to_owned()), ..joining(id, &[]) };
    let told = crowd.beat_seeing(&all("a"), some).unwrap();
    assert_eq!(told.assignment.unwrap().into_keys().collect::<Vec<_>>(), ids[..2]);
    // Who sees it reads it, and who does not does not hear of it.
    let other = crowd.beat_seeing(&all("b"), more).unwrap();
    assert!(other.assignment.unwrap().contains_key(&ids[2]));
    let next = |id: &str, epoch| ConsumerHeartbeat { member_id: id.to_owned(), epoch, ..ConsumerHeartbeat::default() };
    let again = crowd.beat_seeing(&next("a", told.epoch), some).unwrap();
    assert!(!again.assignment.unwrap_or_default().contains_key(&ids[2]));
    // The other one goes; what was hidden is not given to who may not see it, now or after a restart, until he may.
    crowd.beat_seeing(&ConsumerHeartbeat { epoch: -1, ..next("b", 0) }, more).unwrap();
    let alone = crowd.beat_seeing(&next("a", again.epoch), some).unwrap();
    assert_eq!(crowd.describe().members[0].0.assigned.keys().copied().collect::<Vec<_>>(), ids[..2]);
    crowd.restart();
    let same = crowd.beat_seeing(&next("a", alone.epoch), some).unwrap();
    assert_eq!((same.epoch, same.assignment), (alone.epoch, None), "a restart changes nothing");
    let seeing = crowd.beat_seeing(&next("a", same.epoch), more).unwrap();
    assert_eq!(seeing.assignment.unwrap().into_keys().collect::<Vec<_>>(), ids);
    let blind = crowd.beat_seeing(&next("a", seeing.epoch), Sight { stamp: 3, ..some }).unwrap();
    assert_eq!(blind.assignment.unwrap().into_keys().collect::<Vec<_>>(), ids[..2], "it may not any more");
}

#[test]
fn a_group_takes_what_is_known_of_its_expressions() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("orders-1", 1);
    let joins = ConsumerHeartbeat { topics: None, regex: Some("orders.*".to_owned()), ..joining("a", &[]) };
    assert_eq!(
        crowd.groups.unmatched(GROUP, &joins).iter().map(|matches| matches.text().to_owned()).collect::<Vec<_>>(),
        ["orders.*"]
    );
    // Nothing is known, and nobody finds it out here.
    let told = crowd.beat_as_known(&joins, Sight::ALL).unwrap();
    assert!(told.assignment.unwrap().is_empty());
    let next = |epoch| ConsumerHeartbeat { member_id: "a".to_owned(), epoch, ..ConsumerHeartbeat::default() };
    assert_eq!(crowd.groups.unmatched(GROUP, &next(told.epoch)).len(), 1);
    assert_eq!(crowd.beat_as_known(&next(told.epoch), Sight::ALL).unwrap().assignment, None);
    // Somebody does, and no topic has changed since the last heartbeat.
    crowd.shelf.bring_up_to_date("orders.*");
    assert!(crowd.groups.unmatched(GROUP, &next(told.epoch)).is_empty());
    let told = crowd.beat_as_known(&next(told.epoch), Sight::ALL).unwrap();
    assert_eq!(told.assignment.unwrap().len(), 1);
    crowd.shelf.set("orders-2", 1);
    assert_eq!(crowd.beat_as_known(&next(told.epoch), Sight::ALL).unwrap().assignment, None);
    crowd.shelf.bring_up_to_date("orders.*");
    let told = crowd.beat_as_known(&next(told.epoch), Sight::ALL).unwrap();
    assert_eq!(told.assignment.unwrap().len(), 2);
    let farewell = ConsumerHeartbeat { epoch: -1, ..next(0) };
    crowd.shelf.set("orders-3", 1);
    assert!(crowd.groups.unmatched(GROUP, &farewell).is_empty(), "who goes waits for nothing");
}

#[test]
fn what_is_not_known_after_a_restart_is_taken_from_nobody() {
    let mut crowd = Crowd::new();
    ["orders-1", "orders-2", "payments-1"].iter().for_each(|topic| crowd.shelf.set(topic, 2));
    let joins = |id, expression: &str| ConsumerHeartbeat {
        topics: None,
        regex: Some(expression.to_owned()),
        ..joining(id, &[])
    };
    crowd.beat(&joins("a", "orders.*")).unwrap();
    let epoch = crowd.beat(&joins("b", "payments.*")).unwrap().epoch;
    let next = |id: &str, epoch| ConsumerHeartbeat { member_id: id.to_owned(), epoch, ..ConsumerHeartbeat::default() };
    let a = crowd.beat(&next("a", epoch - 1)).unwrap().epoch;
    let before = crowd.describe();
    crowd.shelf.forget_matches();
    crowd.restart();
    // A third one makes a target necessary while nothing is known.
    crowd.beat_as_known(&joins("c", "nothing"), Sight::ALL).unwrap();
    let after = crowd.describe();
    assert!(after.epoch > before.epoch && after.assignment_epoch == after.epoch);
    for (member, target) in &before.members {
        assert_eq!(
            after.members.iter().find(|(other, _)| other.id == member.id).map(|(_, target)| target),
            Some(target)
        );
    }
    assert_eq!(crowd.beat(&next("a", a)).unwrap().assignment, None, "and it reads on when it is heard");
}

#[test]
fn what_matches_later_is_shown_to_those_alone_who_may_see_it() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("open", 1);
    let opens = |topic: &str, _: Mention| topic.starts_with("open");
    let bob = Sight { stamp: 1, user: "bob", sees: Some(&opens) };
    let eve = Sight { stamp: 2, user: "eve", sees: Some(&|_, _| true) };
    let all = |id| ConsumerHeartbeat { topics: None, regex: Some(".*".to_owned()), ..joining(id, &[]) };
    let next = |id: &str, epoch| ConsumerHeartbeat { member_id: id.to_owned(), epoch, ..ConsumerHeartbeat::default() };
    crowd.beat_seeing(&all("bob"), bob).unwrap();
    crowd.beat_seeing(&all("eve"), eve).unwrap();
    crowd.shelf.set("hidden", 2);
    crowd.shelf.set("open-too", 1);
    let [open, hidden, open_too] = ["open", "hidden", "open-too"].map(|topic| crowd.shelf.find(topic).unwrap().0);
    let assigned = |crowd: &Crowd, who: &str| {
        let members = crowd.describe().members;
        members
            .into_iter()
            .find(|(member, _)| member.id == who)
            .map(|(_, target)| target.into_keys().collect::<Vec<_>>())
            .unwrap()
    };
    let epoch_of = |crowd: &Crowd, who: &str| {
        crowd.describe().members.iter().find(|(member, _)| member.id == who).unwrap().0.epoch
    };
    // Both are heard while it is not known what of it matches.
    for (who, sight) in [("bob", bob), ("eve", eve)] {
        let epoch = epoch_of(&crowd, who);
        crowd.beat_as_known(&next(who, epoch), sight).unwrap();
    }
    crowd.shelf.bring_up_to_date(".*");
    for _ in 0..3 {
        for (who, sight) in [("eve", eve), ("bob", bob)] {
            let epoch = epoch_of(&crowd, who);
            crowd.beat_as_known(&next(who, epoch), sight).unwrap();
            assert!(!assigned(&crowd, "bob").contains(&hidden));
        }
    }
    assert!(assigned(&crowd, "eve").contains(&hidden));
    let readers = ["bob", "eve"].iter().filter(|who| assigned(&crowd, who).contains(&open_too)).count();
    assert_eq!(readers, 1);
    // The one who may not see all of it goes on with what he may see once he is alone.
    crowd.beat_seeing(&ConsumerHeartbeat { epoch: -1, ..next("eve", 0) }, eve).unwrap();
    let epoch = epoch_of(&crowd, "bob");
    crowd.beat_as_known(&next("bob", epoch), bob).unwrap();
    assert_eq!(assigned(&crowd, "bob"), [open, open_too]);
}

#[test]
fn targets_wait_for_the_interval() {
    let mut chosen = settings();
    chosen.consumer_times = GroupTimes { assignment_interval: 1_000, ..chosen.consumer_times };
    let mut crowd = Crowd::with(chosen);
    crowd.shelf.set("t", 2);
    crowd.enter("a", &["t"]);
    crowd.enter("b", &["t"]);
    assert_eq!((crowd.describe().state, crowd.clients["b"].epoch), (ConsumerGroupState::Assigning, 2));
    let interval = |crowd: &mut Crowd, id: &str| {
        let words = crowd.words(id);
        crowd.beat(&words).unwrap().interval
    };
    assert_eq!(
        [interval(&mut crowd, "a"), interval(&mut crowd, "b")],
        [1_000, 100],
        "who has no target yet comes back sooner"
    );
    crowd.pass(1_000);
    crowd.settle();
    crowd.check_whole();
    assert_eq!([interval(&mut crowd, "a"), interval(&mut crowd, "b")], [1_000, 1_000]);
}

/// A member goes and comes back while one of the others has been told of what it left and one has not: it gets back what nobody reads, the
/// first one gives the same partition back, and what they had before is never touched.
#[test]
fn a_member_that_comes_back_takes_what_it_left() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 6);
    for id in ["a", "b", "c"] {
        crowd.enter(id, &["t"]);
    }
    crowd.settle();
    let has = |crowd: &Crowd, id: &str| crowd.clients[id].has.values().flatten().copied().collect::<BTreeSet<u32>>();
    let before = ["a", "b", "c"].map(|id| has(&crowd, id));
    crowd.beat(&ConsumerHeartbeat { member_id: "c".to_owned(), epoch: -1, ..ConsumerHeartbeat::default() }).unwrap();
    crowd.clients.remove("c");
    crowd.speak("a", false);
    assert_eq!(has(&crowd, "a").len(), 3, "what is free comes with the next heartbeat");
    crowd.enter("d", &["t"]);
    assert_eq!(has(&crowd, "d").len(), 1, "what was only promised is there at once");
    let words = crowd.words("d");
    assert_eq!(crowd.beat(&words).unwrap().interval, 100, "it waits for the other one");
    crowd.speak("b", false);
    assert_eq!(has(&crowd, "b"), before[1]);
    crowd.settle();
    assert_eq!(["a", "b", "d"].map(|id| has(&crowd, id)), before);
    let words = crowd.words("d");
    assert_eq!(crowd.beat(&words).unwrap().interval, 1_000);
}

#[test]
fn commits_need_an_epoch_that_fits() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 1);
    crowd.shelf.set("u", 1);
    crowd.enter("a", &["t"]);
    crowd.clients.get_mut("a").unwrap().topics.push("u".to_owned());
    crowd.clients.get_mut("a").unwrap().news = true;
    crowd.speak("a", false);
    let now = crowd.now;
    let mut commit = |member_id, generation, knows_epochs, topic: &str| {
        let offset = CommittedOffset { offset: 1, leader_epoch: -1, metadata: String::new(), committed_at: now };
        let commits = [Commit { topic: topic.to_owned(), partition: 0, offset }];
        let member = Committer { member_id, instance: None, generation, transactional: false, knows_epochs };
        crowd.groups.prepare_commit(GROUP, member, &commits, now)?.remove(0).map(drop)
    };
    assert_eq!(commit("a", 3, true, "t"), Ok(()));
    assert_eq!(commit("a", 3, false, "t"), Err(GroupError::UnsupportedVersion));
    assert_eq!(commit("a", 4, true, "t"), Err(GroupError::StaleEpoch));
    assert_eq!(commit("a", 2, true, "t"), Ok(()), "it has had this one since then");
    assert_eq!(commit("a", 2, true, "u"), Err(GroupError::StaleEpoch));
    assert_eq!(commit("a", 1, true, "t"), Err(GroupError::StaleEpoch));
    assert_eq!(commit("", -1, true, "t"), Err(GroupError::UnknownMember));
    assert_eq!(commit("nobody", 3, true, "t"), Err(GroupError::UnknownMember));
    assert_eq!(crowd.groups.check_fetch(GROUP, Some("a"), 3), Ok(()));
    assert_eq!(crowd.groups.check_fetch(GROUP, Some("a"), 2), Err(GroupError::StaleEpoch));
    assert_eq!(crowd.groups.check_fetch(GROUP, None, -1), Ok(()));
}

#[test]
fn a_restart_keeps_members_epochs_and_what_they_have() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 5);
    crowd.enter("a", &["t"]);
    crowd.enter("b", &["t"]);
    crowd.settle();
    let before = crowd.describe();
    crowd.restart();
    let after = crowd.describe();
    assert_eq!(
        (before.epoch, before.assignment_epoch, &before.members),
        (after.epoch, after.assignment_epoch, &after.members)
    );
    crowd.settle();
    assert_eq!(crowd.describe().epoch, before.epoch, "nothing is assigned anew");
    // One of them does not come back.
    crowd.restart();
    crowd.clients.remove("a");
    for _ in 0..12 {
        crowd.pass(1_000);
        crowd.speak("b", false);
    }
    crowd.settle();
    crowd.check_whole();
    assert_eq!(crowd.describe().members.len(), 1);
}

#[test]
fn targets_of_which_only_a_part_was_written_are_computed_again() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 4);
    crowd.enter("a", &["t"]);
    let records = crowd.records.clone();
    crowd.enter("b", &["t"]);
    // All but the group's own record, which comes last.
    let key = records.keys().find(|key| key[0] == b'c').unwrap();
    crowd.records.insert(key.clone(), records[key].clone());
    crowd.restart();
    crowd.settle();
    crowd.check_whole();
}

#[test]
fn a_group_can_be_deleted_when_it_is_empty() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 1);
    crowd.enter("a", &["t"]);
    assert_eq!(crowd.groups.delete(GROUP), Err(GroupError::NonEmptyGroup));
    let leave = ConsumerHeartbeat { member_id: "a".to_owned(), epoch: -1, ..ConsumerHeartbeat::default() };
    assert_eq!(crowd.beat(&leave).unwrap().epoch, -1);
    assert_eq!(crowd.describe().epoch, 3, "an empty group keeps its epoch");
    for key in crowd.groups.delete(GROUP).unwrap() {
        crowd.records.remove(&key);
    }
    assert!(crowd.records.is_empty());
}

/// Any order of joining, leaving, dying, resubscribing, growing topics, losing answers and restarting.
#[test]
fn nobody_ever_reads_what_somebody_else_reads() {
    for seed in 0..300 {
        let mut random = Random::new(seed + 1);
        let mut chosen = settings();
        chosen.consumer_size_max = 6;
        let interval = random.below(2) * 500;
        chosen.consumer_times = GroupTimes { assignment_interval: interval, ..chosen.consumer_times };
        let mut crowd = Crowd::with(chosen);
        crowd.shelf.set("t", 1 + random.below(6) as u32);
        crowd.shelf.set("u", 1 + random.below(6) as u32);
        let mut names = 0;
        for _ in 0..250 {
            let ids: Vec<String> = crowd.clients.keys().cloned().collect();
            let some = (!ids.is_empty()).then(|| ids[random.below(ids.len() as u64) as usize].clone());
            match (random.below(20), some) {
                (0..2, _) => {
                    names += 1;
                    let instance = (random.below(3) == 0).then(|| format!("i{}", random.below(3)));
                    let topics = [vec!["t"], vec!["t", "u"], vec!["u"]][random.below(3) as usize]
                        .iter()
                        .map(|name| (*name).to_owned())
                        .collect();
                    let id = format!("m{names:03}");
                    crowd.clients.insert(id.clone(), Client { topics, instance, ..Client::default() });
                    crowd.speak(&id, false);
                }
                (2, Some(id)) => {
                    let away = crowd.clients[&id].instance.is_some() && random.below(2) == 0;
                    let mut farewell = crowd.words(&id);
                    farewell.epoch = if away { -2 } else { -1 };
                    let _ = crowd.beat(&farewell);
                    crowd.clients.remove(&id);
                }
                // It dies without a word.
                (3, Some(id)) => drop(crowd.clients.remove(&id)),
                (4, Some(id)) => {
                    let client = crowd.clients.get_mut(&id).unwrap();
                    client.topics =
                        [vec!["t".to_owned()], vec!["t".to_owned(), "u".to_owned()]][random.below(2) as usize].clone();
                    client.news = true;
                }
                (5, _) => {
                    let partitions = 1 + random.below(8) as u32;
                    let now = crowd.shelf.find("t").map_or(0, |(_, count)| count);
                    crowd.shelf.set("t", partitions.max(now));
                }
                (6, _) if random.below(8) == 0 => {
                    // Readers of a topic that is gone find nothing there.
                    let gone = crowd.shelf.find("u").map(|(id, _)| id);
                    crowd.shelf.delete("u");
                    crowd.shelf.set("u", 1 + random.below(4) as u32);
                    for client in crowd.clients.values_mut() {
                        gone.iter().for_each(|gone| drop(client.has.remove(gone)));
                    }
                }
                (7, _) if random.below(4) == 0 => crowd.restart(),
                (8..11, _) => crowd.pass(random.below(1_500)),
                (11, Some(id)) => crowd.speak(&id, true),
                (_, Some(id)) => crowd.speak(&id, false),
                _ => {}
            }
            crowd.check();
        }
        if crowd.clients.is_empty() {
            crowd.enter("last", &["t"]);
        }
        come_to_rest(&mut crowd);
    }
}

/// The dead are out after a while; then everybody has something.
fn come_to_rest(crowd: &mut Crowd) {
    for _ in 0..45 {
        for id in crowd.clients.keys().cloned().collect::<Vec<_>>() {
            crowd.speak(&id, false);
            crowd.check();
        }
        crowd.pass(1_000);
    }
    crowd.clients.retain(|_, client| client.epoch > 0);
    crowd.settle();
    crowd.check_whole();
    assert!(crowd.describe().members.iter().all(|(member, _)| member.state == MemberState::Stable));
}

#[test]
fn heartbeats_of_a_member_with_many_partitions_and_names_allocate_little() {
    const PARTITIONS: u32 = 100_000;
    let mut group = Crowd::new();
    group.shelf.set("t", PARTITIONS);
    // The first assignment: nodes of the sets and maps, and no string for each partition.
    let (answer, asked) = count(|| group.beat(&joining("a", &["t"])));
    let answer = answer.unwrap();
    assert_eq!(answer.assignment.map(|all| all.values().map(BTreeSet::len).sum()), Some(PARTITIONS as usize));
    assert!(asked < PARTITIONS as usize / 2, "{asked} allocations for {PARTITIONS} partitions");
    // Nothing changes: what the member has is neither copied nor entered again.
    let beat = ConsumerHeartbeat { member_id: "a".to_owned(), epoch: answer.epoch, ..ConsumerHeartbeat::default() };
    let (again, asked) = count(|| group.beat(&beat));
    assert_eq!(again.unwrap().assignment, None);
    assert!(asked < 200, "{asked} allocations");

    // Nor are the topics copied that it names, or those of them that are hidden from it.
    let names: Vec<String> = (0..5000).map(|number| format!("topic-{number}")).collect();
    names.iter().for_each(|name| group.shelf.set(name, 1));
    let all = ConsumerHeartbeat { topics: Some(names.into_iter().chain(["t".to_owned()]).collect()), ..beat.clone() };
    let ends_otherwise = |name: &str, _: Mention| !name.ends_with('7');
    let hides = Sight { stamp: 1, user: "", sees: Some(&ends_otherwise) };
    let answer = group.beat_seeing(&all, hides).unwrap();
    let beat = ConsumerHeartbeat { epoch: answer.epoch, ..beat };
    group.beat_seeing(&beat, hides).unwrap();
    let (again, asked) = count(|| group.beat_seeing(&beat, hides));
    assert_eq!(again.unwrap().assignment, None);
    assert!(asked < 200, "{asked} allocations");
}
