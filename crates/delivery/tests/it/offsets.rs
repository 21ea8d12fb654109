//! Committed offsets: who may commit, how long they stay.

use bytes::Bytes;
use delivery::{Commit, CommittedOffset, Committer, Expired, GroupError, LeaveMember};

use crate::room::{GROUP, Room, settings};

fn commit(offset: i64, at: u64, metadata: &str) -> Commit {
    let offset = CommittedOffset { offset, leader_epoch: -1, metadata: metadata.to_owned(), committed_at: at };
    Commit { topic: "t".to_owned(), partition: 3, offset }
}

/// Prepares, makes durable and applies one commit, as the broker does.
fn commit_as(room: &mut Room, member: (&str, Option<&str>, i32), one: Commit) -> Result<(), GroupError> {
    let (member_id, instance, generation) = member;
    let member = Committer { member_id, instance, generation, transactional: false, knows_epochs: false };
    let prepared = room.groups.prepare_commit(GROUP, member, std::slice::from_ref(&one), room.now)?;
    let (key, value) = prepared.into_iter().next().expect("one outcome a commit")?;
    room.records.insert(key, value);
    room.groups.apply_commit(GROUP, one);
    Ok(())
}

#[test]
fn only_a_member_of_this_generation_commits() {
    let (mut room, leader, _, generation) = Room::two_members();
    let now = room.now;
    assert_eq!(commit_as(&mut room, (&leader, None, generation), commit(7, now, "")), Ok(()));
    assert_eq!(
        commit_as(&mut room, (&leader, None, generation - 1), commit(1, now, "")),
        Err(GroupError::IllegalGeneration)
    );
    assert_eq!(commit_as(&mut room, ("nobody", None, generation), commit(1, now, "")), Err(GroupError::UnknownMember));
    assert_eq!(
        commit_as(&mut room, ("", None, -1), commit(1, now, "")),
        Err(GroupError::UnknownMember),
        "the group has members"
    );
    assert_eq!(room.groups.offset(GROUP, "t", 3).map(|offset| offset.offset), Some(7));
}

#[test]
fn a_group_without_members_takes_commits_of_anybody() {
    let mut room = Room::new();
    let now = room.now;
    assert_eq!(commit_as(&mut room, ("", None, -1), commit(42, now, "note")), Ok(()));
    assert_eq!(
        commit_as(&mut room, ("", None, -1), commit(1, now, &"x".repeat(101))),
        Err(GroupError::MetadataTooLarge)
    );
    assert_eq!(room.groups.offset(GROUP, "t", 3), Some(commit(42, now, "note").offset));
    assert_eq!(room.groups.offset(GROUP, "t", 4), None);
}

#[test]
fn offsets_survive_a_restart_and_go_with_their_topic_and_group() {
    let mut room = Room::new();
    let now = room.now;
    commit_as(&mut room, ("", None, -1), commit(42, now, "")).expect("committed");
    let mut groups = delivery::GroupCoordinator::<u32>::new(settings());
    for (key, value) in &room.records {
        assert!(groups.restore(key, value, now));
    }
    assert_eq!(groups.offset(GROUP, "t", 3).map(|offset| offset.offset), Some(42));
    assert_eq!(groups.forget_topic("t").len(), 1);
    assert_eq!(groups.offset(GROUP, "t", 3), None);
    let keys = room.groups.delete(GROUP).expect("empty");
    assert!(keys.iter().any(|key| room.records.contains_key(key)), "the offset's record is among what is removed");
}

#[test]
fn an_offset_is_not_deleted_under_a_reader() {
    let (mut room, leader, _, generation) = Room::two_members();
    let now = room.now;
    commit_as(&mut room, (&leader, None, generation), commit(7, now, "")).expect("committed");
    assert_eq!(room.groups.delete_offset(GROUP, "t", 3, true), Err(GroupError::Subscribed));
    assert!(room.groups.delete_offset(GROUP, "t", 3, false).expect("deleted").is_some());
    assert_eq!(room.groups.delete_offset(GROUP, "t", 3, false), Ok(None));
    assert_eq!(room.groups.delete_offset("nobody", "t", 3, false), Err(GroupError::GroupNotFound));
}

#[test]
fn offsets_of_an_empty_group_expire() {
    let mut room = Room::new();
    let now = room.now;
    commit_as(&mut room, ("", None, -1), commit(42, now, "")).expect("committed");
    let retention = settings().offsets_retention;
    assert_eq!(room.groups.expire(now + retention - 1, "", 10, |_| false), Expired { keys: vec![], after: None });
    assert_eq!(
        room.groups.expire(now + retention + 1, "", 10, |group| group == GROUP).keys,
        Vec::<Bytes>::new(),
        "one is under way"
    );
    let keys = room.groups.expire(now + retention + 1, "", 10, |_| false).keys;
    assert!(keys.iter().any(|key| room.records.contains_key(key)));
    assert_eq!(room.groups.offset(GROUP, "t", 3), None);
}

#[test]
fn an_empty_group_without_offsets_is_forgotten_soon() {
    let (mut room, leader, follower, _) = Room::two_members();
    let leaving = [leader, follower].map(|member_id| LeaveMember { member_id, instance: None });
    assert!(room.groups.expire(u64::MAX / 2, "", 10, |_| false).keys.is_empty(), "somebody is in it");
    room.groups.leave(GROUP, &leaving, room.now, &mut Vec::new()).expect("they leave");
    assert!(room.groups.expire(room.now + 59_999, "", 10, |_| false).keys.is_empty(), "they may come back");
    assert_eq!(room.groups.names(), [GROUP]);
    room.groups.expire(room.now + 60_000, "", 10, |_| false);
    assert!(room.groups.names().is_empty());
}

#[test]
fn groups_expire_in_pieces() {
    let mut groups = delivery::GroupCoordinator::<u32>::new(settings());
    for number in 0..1_000 {
        for partition in 0..3 {
            groups.apply_commit(
                &format!("group-{number}"),
                Commit { partition, ..commit(1, if number % 4 == 0 { 1_000 } else { 0 }, "") },
            );
        }
    }
    for partition in 0..2_500 {
        groups.apply_commit("large", Commit { partition, ..commit(1, 0, "") });
    }
    let (mut after, mut pieces, mut keys) = (Some(String::new()), 0, 0);
    while let Some(from) = after {
        let before = groups.names().len();
        let expired = groups.expire(settings().offsets_retention, &from, 64, |_| false);
        assert!(before - groups.names().len() <= 64, "no more than were to be looked at");
        assert!(expired.keys.len() < 1_010, "{} keys at once", expired.keys.len());
        (after, pieces, keys) = (expired.after, pieces + 1, keys + expired.keys.len());
    }
    assert!((1_001_usize.div_ceil(64)..25).contains(&pieces), "{pieces} pieces");
    assert_eq!(groups.names().len(), 250, "those that committed later");
    assert_eq!(keys, 750 * 4 + 2_501, "a record of each offset and of each group");
}
