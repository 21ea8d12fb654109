//! Joining, rebalancing, leaving, expiring.

use bytes::Bytes;
use delivery::{Client, Commit, CommittedOffset, GroupCoordinator, GroupError, GroupState, JoinRequest, LeaveMember};

use crate::room::{GROUP, INITIAL_DELAY_MS, REBALANCE_MS, Room, SESSION_MS, join, settings};

#[test]
fn the_first_rebalance_waits_for_more_members() {
    let mut room = Room::new();
    let (_, first) = room.enter(join(""));
    room.pass(INITIAL_DELAY_MS - 1);
    assert_eq!(room.joined(first), None);
    let (_, second) = room.enter(join(""));
    room.pass(1);
    assert_eq!(room.joined(first), None, "somebody came, so it is prolonged");
    room.pass(INITIAL_DELAY_MS);
    let (first, second) = (room.joined(first).expect("joined"), room.joined(second).expect("joined"));
    assert_eq!((first.generation, second.generation), (1, 1));
    assert_eq!(first.protocol.as_deref(), Some("range"));
    assert_eq!(first.members.len() + second.members.len(), 2, "only the leader learns of all");
}

#[test]
fn an_id_that_is_not_used_is_forgotten() {
    let mut room = Room::new();
    let asked = room.ask_to_join(join(""));
    let id = room.joined(asked).expect("told").member_id;
    room.pass(SESSION_MS + 1);
    let late = room.ask_to_join(join(&id));
    assert_eq!(room.joined(late).expect("told").error, Some(GroupError::UnknownMember));
}

#[test]
fn a_newcomer_makes_the_others_join_again() {
    let (mut room, leader, follower, generation) = Room::two_members();
    let (third, waits) = room.enter(join(""));
    assert_eq!(room.state(), GroupState::PreparingRebalance);
    assert_eq!(room.heartbeat(&leader, generation), Err(GroupError::Rebalancing));
    let again: Vec<_> = [&leader, &follower].iter().map(|id| room.ask_to_join(join(id))).collect();
    let answers: Vec<_> =
        again.into_iter().chain([waits]).map(|waiter| room.joined(waiter).expect("all are there")).collect();
    assert!(answers.iter().all(|joined| joined.error.is_none() && joined.generation == generation + 1));
    assert!(answers.iter().any(|joined| joined.members.iter().any(|(id, ..)| *id == third)));
    assert_eq!(room.heartbeat(&follower, generation), Err(GroupError::IllegalGeneration));
}

#[test]
fn who_does_not_join_in_time_is_left_behind() {
    let (mut room, leader, follower, generation) = Room::two_members();
    let (_, waits) = room.enter(join(""));
    let again = room.ask_to_join(join(&leader));
    // The follower goes on to send heartbeats, and does not join.
    for _ in 0..REBALANCE_MS / 5_000 {
        room.pass(5_000);
        let _ = room.heartbeat(&follower, generation);
    }
    room.pass(1);
    assert!(room.joined(waits).expect("the rebalance ends").error.is_none());
    assert!(room.joined(again).expect("the rebalance ends").error.is_none());
    assert_eq!(room.heartbeat(&follower, generation + 1), Err(GroupError::UnknownMember));
}

#[test]
fn a_silent_member_expires_and_the_others_rebalance() {
    let (mut room, leader, follower, generation) = Room::two_members();
    for _ in 0..4 {
        room.pass(SESSION_MS / 4 + 1);
        let _ = room.heartbeat(&leader, generation);
    }
    assert_eq!(room.heartbeat(&follower, generation), Err(GroupError::UnknownMember));
    assert_eq!(room.heartbeat(&leader, generation), Err(GroupError::Rebalancing));
    let again = room.ask_to_join(join(&leader));
    let joined = room.joined(again).expect("alone, so at once");
    assert_eq!((joined.error, joined.generation, joined.members.len()), (None, generation + 1, 1));
}

#[test]
fn the_last_to_leave_empties_the_group() {
    let (mut room, leader, follower, _) = Room::two_members();
    assert_eq!(room.leave(&follower, None), Ok(()));
    assert_eq!(room.leave("nobody", None), Err(GroupError::UnknownMember));
    assert_eq!(room.groups.delete(GROUP), Err(GroupError::NonEmptyGroup));
    assert_eq!(room.leave(&leader, None), Ok(()));
    assert_eq!(room.state(), GroupState::Empty);
    assert!(room.groups.delete(GROUP).is_ok());
    assert_eq!(room.groups.delete(GROUP), Err(GroupError::GroupNotFound));
}

#[test]
fn members_without_a_common_protocol_are_refused() {
    let (mut room, ..) = Room::two_members();
    let other = JoinRequest { protocols: vec![("sticky".to_owned(), "s".into())], ..join("") };
    let asked = room.ask_to_join(other);
    assert_eq!(room.joined(asked).expect("refused").error, Some(GroupError::InconsistentProtocol));
    let asked = room.ask_to_join(JoinRequest { protocol_type: "connect".to_owned(), ..join("") });
    assert_eq!(room.joined(asked).expect("refused").error, Some(GroupError::InconsistentProtocol));
}

#[test]
fn a_group_has_a_largest_size() {
    let mut room = Room::new();
    let entered: Vec<_> = (0..4).map(|_| room.enter(join(""))).collect();
    let asked = room.ask_to_join(join(""));
    let refused = room.joined(asked).expect("told at once");
    let second = room.ask_to_join(join(&refused.member_id));
    let told = [refused.error, room.joined(second).and_then(|joined| joined.error)];
    assert!(told.contains(&Some(GroupError::GroupFull)), "{told:?}");
    drop(entered);
}

#[test]
fn a_session_timeout_outside_the_range_is_refused() {
    let mut room = Room::new();
    for session_timeout in [5_999, 1_800_001] {
        let asked = room.ask_to_join(JoinRequest { session_timeout, ..join("") });
        assert_eq!(room.joined(asked).expect("refused").error, Some(GroupError::InvalidSessionTimeout));
    }
}

/// A static member comes back under the same name, with a new id and no rebalance; the old id is fenced.
#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    let mut room = Room::new();
    let fixed = JoinRequest { instance: Some("one".to_owned()), ..join("") };
    let first = room.ask_to_join(fixed.clone());
    room.pass(2 * INITIAL_DELAY_MS);
    let joined = room.joined(first).expect("a static member needs one step");
    let leads = room.sync(&joined.member_id, joined.generation, &[(&joined.member_id, "all")]);
    assert_eq!(room.synced(leads).expect("synced").assignment, "all");
    let back = room.ask_to_join(fixed);
    let again = room.joined(back).expect("at once");
    assert_eq!((again.error, again.generation), (None, joined.generation));
    assert_ne!(again.member_id, joined.member_id);
    assert_eq!(room.state(), GroupState::Stable);
    let old = room.groups.heartbeat(GROUP, &joined.member_id, Some("one"), joined.generation, room.now);
    assert_eq!(old, Err(GroupError::FencedInstance));
    assert_eq!(room.leave("", Some("one")), Ok(()), "it is put out by its name");
}

#[test]
fn a_restart_finds_members_and_generation() {
    let (room, leader, follower, generation) = Room::two_members();
    let mut groups: GroupCoordinator<u32> = GroupCoordinator::new(settings());
    for (key, value) in &room.records {
        assert!(groups.restore(key, value, room.now), "a record of ours");
    }
    assert!(!groups.restore(b"tsomething", b"", room.now));
    let summary = groups.describe(GROUP).expect("restored");
    assert_eq!((summary.state, summary.members.len()), (GroupState::Stable, 2));
    for id in [&leader, &follower] {
        assert_eq!(groups.heartbeat(GROUP, id, None, generation, room.now + 1), Ok(()));
    }
}

/// Static members that give a rebalance no time at all do not keep the coordinator busy with rebalances that nobody joins.
#[test]
fn a_rebalance_without_time_ends() {
    let mut room = Room::new();
    let fixed = |instance: &str| JoinRequest { instance: Some(instance.to_owned()), rebalance_timeout: 0, ..join("") };
    let first = room.ask_to_join(fixed("one"));
    let one = room.joined(first).expect("nobody is waited for");
    room.sync(&one.member_id, one.generation, &[(&one.member_id, "all")]);
    let second = room.ask_to_join(JoinRequest { rebalance_timeout: 0, ..join("") });
    let id = room.joined(second).expect("an id at once").member_id;
    room.ask_to_join(JoinRequest { rebalance_timeout: 0, member_id: id.clone(), ..join("") });
    assert_eq!(room.leave(&id, None), Ok(()));
    room.pass(100);
    assert!(room.groups.next_deadline().is_none_or(|due| due > room.now));
    room.pass(SESSION_MS * 2);
    assert_eq!(room.state(), GroupState::Empty, "its session has ended");
}

/// A cooperative consumer says in its join what it owns.
fn cooperative(member_id: &str, owned: &'static str) -> JoinRequest {
    JoinRequest {
        protocols: vec![("cooperative-sticky".to_owned(), Bytes::from_static(owned.as_bytes()))],
        ..join(member_id)
    }
}

/// A static member that comes back does not say any more what it owned: the others go on in their generation all the same, and it gets its
/// assignment back.
#[test]
fn a_cooperative_static_member_comes_back_without_a_rebalance() {
    let mut room = Room::new();
    let fixed = |member_id: &str, instance: &str, owned| JoinRequest {
        instance: Some(instance.to_owned()),
        ..cooperative(member_id, owned)
    };
    let waits = [room.ask_to_join(fixed("", "one", "")), room.ask_to_join(fixed("", "two", ""))];
    room.pass(2 * INITIAL_DELAY_MS);
    let [one, two] = waits.map(|waiter| room.joined(waiter).expect("joined"));
    let waits =
        [room.ask_to_join(fixed(&one.member_id, "one", "0")), room.ask_to_join(fixed(&two.member_id, "two", "1"))];
    let joined: Vec<_> = waits.into_iter().map(|waiter| room.joined(waiter)).collect();
    let (leader, follower) = if one.leader == one.member_id { (&one, &two) } else { (&two, &one) };
    let generation = joined.iter().flatten().map(|joined| joined.generation).max().unwrap_or(one.generation);
    room.sync(&leader.member_id, generation, &[(&leader.member_id, "leads"), (&follower.member_id, "follows")]);
    for (gone, other, part) in [(follower, leader, "follows"), (leader, follower, "leads")] {
        let instance = if gone.member_id == one.member_id { "one" } else { "two" };
        let back = room.ask_to_join(fixed("", instance, ""));
        let back = room.joined(back).expect("at once");
        assert_eq!((back.error, back.generation), (None, generation), "{part}");
        let synced = room.sync(&back.member_id, generation, &[]);
        assert_eq!(room.synced(synced).expect("synced").assignment, part);
        if part == "follows" {
            let beat = room.groups.heartbeat(GROUP, &other.member_id, None, generation, room.now);
            assert_eq!(beat, Ok(()), "nobody else has to do anything");
        }
        assert_eq!(room.state(), GroupState::Stable);
    }
    // One that does not know the chosen protocol any more is a reason to choose again.
    let other =
        room.ask_to_join(JoinRequest { protocols: vec![("range".to_owned(), Bytes::new())], ..fixed("", "one", "") });
    assert_eq!(room.joined(other).map(|joined| joined.error), Some(Some(GroupError::InconsistentProtocol)));
    assert_eq!(room.state(), GroupState::Stable);
}

/// Two rebalances move one partition: in the first its owner learns that it is to give it up, and goes on with the others all the
/// while; in the second, which it asks for by joining with what it has left, the newcomer gets it.
#[test]
fn cooperative_members_give_up_in_one_rebalance_and_get_in_the_next() {
    let mut room = Room::new();
    let (first, waits) = room.enter(cooperative("", ""));
    let (second, other) = room.enter(cooperative("", ""));
    room.pass(2 * INITIAL_DELAY_MS);
    let generation = room.joined(waits).expect("joined").generation;
    let leader = room.joined(other).expect("joined").leader;
    let (leader, follower) = if leader == first { (first, second) } else { (second, first) };
    let synced = room.sync(&leader, generation, &[(&leader, "0"), (&follower, "1,2")]);
    assert_eq!(room.synced(synced).expect("synced").assignment, "0");

    let (newcomer, newcomer_waits) = room.enter(cooperative("", ""));
    assert_eq!(room.heartbeat(&follower, generation), Err(GroupError::Rebalancing));
    let commit = |room: &mut Room, generation| {
        let offset = CommittedOffset { offset: 5, leader_epoch: -1, metadata: String::new(), committed_at: room.now };
        let commit = Commit { topic: "t".to_owned(), partition: 1, offset };
        room.groups
            .prepare_commit(
                GROUP,
                delivery::Committer {
                    member_id: &follower,
                    instance: None,
                    generation,
                    transactional: false,
                    knows_epochs: false,
                },
                &[commit],
                room.now,
            )
            .map(drop)
    };
    assert_eq!(commit(&mut room, generation), Ok(()), "it still owns everything");
    let waits = [room.ask_to_join(cooperative(&leader, "0")), room.ask_to_join(cooperative(&follower, "1,2"))];
    let joined: Vec<_> =
        waits.into_iter().chain([newcomer_waits]).map(|waiter| room.joined(waiter).expect("all are there")).collect();
    let owned = joined.iter().flat_map(|joined| &joined.members).map(|(_, _, owned)| owned.clone());
    assert_eq!(owned.collect::<std::collections::BTreeSet<_>>().len(), 3, "the leader learns what everybody owns");
    let generation = generation + 1;
    assert_eq!(commit(&mut room, generation), Err(GroupError::Rebalancing), "before it knows its part");
    room.sync(&leader, generation, &[(&leader, "0"), (&follower, "1"), (&newcomer, "")]);
    let [kept, nothing] = [&follower, &newcomer].map(|id| room.sync(id, generation, &[]));
    assert_eq!(room.synced(kept).expect("synced").assignment, "1");
    assert_eq!(room.synced(nothing).expect("synced").assignment, "");

    // The same again with something else to say is a reason to rebalance, also from one who does not lead.
    let follower_waits = room.ask_to_join(cooperative(&follower, "1"));
    assert_eq!(room.joined(follower_waits), None);
    assert_eq!(room.heartbeat(&newcomer, generation), Err(GroupError::Rebalancing));
    for waiter in [room.ask_to_join(cooperative(&leader, "0")), room.ask_to_join(cooperative(&newcomer, ""))] {
        assert_eq!(room.joined(waiter).expect("all are there").generation, generation + 1);
    }
    let generation = generation + 1;
    room.sync(&leader, generation, &[(&leader, "0"), (&follower, "1"), (&newcomer, "2")]);
    let gets = room.sync(&newcomer, generation, &[]);
    assert_eq!(room.synced(gets).expect("synced").assignment, "2");
    assert_eq!(room.state(), GroupState::Stable);
}

/// Comparing each with each would be ten thousand million comparisons for each request.
#[test]
fn members_may_have_a_hundred_thousand_protocols() {
    let named =
        |from: usize| (from..from + 100_000).map(|number| (format!("protocol-{number}"), Bytes::new())).collect();
    let with = |from| JoinRequest { protocols: named(from), ..join("") };
    let mut room = Room::new();
    let (first, second) = (room.enter(with(0)).1, room.enter(with(99_999)).1);
    let other = room.ask_to_join(with(100_000));
    assert_eq!(room.joined(other).expect("told").error, Some(GroupError::InconsistentProtocol));
    room.pass(2 * INITIAL_DELAY_MS);
    let chosen = [first, second].map(|waiter| room.joined(waiter).expect("joined").protocol);
    assert_eq!(chosen, [Some("protocol-99999".to_owned()), Some("protocol-99999".to_owned())]);
}

/// Groups that a client of this name is a member of, in the order of their names.
fn groups_of(groups: &mut GroupCoordinator<u64>, id: &str) -> Vec<String> {
    let mut names: Vec<String> =
        groups.groups_of(Client { id, host: "127.0.0.1", user: Some("bob") }).iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names
}

/// A client becomes a member at once.
fn enter(groups: &mut GroupCoordinator<u64>, group: &str, client_id: &str) {
    let request = JoinRequest {
        client_id: client_id.to_owned(),
        fresh_id: format!("{client_id}-1"),
        two_step: false,
        ..join("")
    };
    groups.join(group, request, 1, 0, &mut Vec::new());
}

#[test]
fn it_is_known_which_groups_a_client_is_a_member_of() {
    let mut groups = GroupCoordinator::new(settings());
    for (group, client) in [("a", "c"), ("b", "c"), ("b", "d")] {
        enter(&mut groups, group, client);
    }
    assert_eq!(
        (groups_of(&mut groups, "c"), groups_of(&mut groups, "d")),
        (vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned()])
    );
    assert!(groups_of(&mut groups, "e").is_empty());
    let gone = LeaveMember { member_id: "c-1".to_owned(), instance: None };
    groups.leave("a", &[gone], 0, &mut Vec::new()).expect("it is there");
    assert_eq!(groups_of(&mut groups, "c"), ["b"], "it has left");
    // After a restart nobody has spoken yet.
    let (room, ..) = Room::two_members();
    let mut again = GroupCoordinator::<u64>::new(settings());
    assert!(room.records.iter().all(|(key, value)| again.restore(key, value, room.now)));
    let known = again.groups_of(Client { id: "test", host: "127.0.0.1", user: None });
    assert_eq!(known.iter().map(|name| &**name).collect::<Vec<_>>(), [GROUP]);
}

/// However many groups it has left before.
#[test]
fn a_client_that_goes_through_groups_is_known_in_the_one_that_it_is_in() {
    let mut groups = GroupCoordinator::new(settings());
    enter(&mut groups, "first", "c");
    for number in 0..600 {
        let group = format!("g-{number}");
        enter(&mut groups, &group, "c");
        let gone = LeaveMember { member_id: "c-1".to_owned(), instance: None };
        groups.leave(&group, &[gone], 0, &mut Vec::new()).expect("it is there");
    }
    enter(&mut groups, "last", "c");
    assert_eq!(groups_of(&mut groups, "c"), ["first", "last"]);
}

/// Names of clients that come and go take no memory for good.
#[test]
fn clients_that_have_gone_are_forgotten() {
    let mut groups = GroupCoordinator::new(settings());
    enter(&mut groups, "stays", "stays");
    for number in 0..10_000 {
        let client = format!("c-{number}");
        enter(&mut groups, "busy", &client);
        let gone = LeaveMember { member_id: format!("{client}-1"), instance: None };
        groups.leave("busy", &[gone], 0, &mut Vec::new()).expect("it is there");
    }
    assert!(groups.clients_noted() < 2_500, "{} are noted", groups.clients_noted());
    assert_eq!(groups_of(&mut groups, "stays"), ["stays"]);
}
