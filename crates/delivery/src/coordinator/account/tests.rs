//! The account of groups against a recount, and what goes on beyond its bound.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::coordinator::{Committer, CoordinatorSettings, LeaveMember, Migration};
use crate::{Answer, Effect, GroupTimes, Sight, StreamsConfig};

const TIMES: GroupTimes = GroupTimes { session_timeout: 45_000, heartbeat_interval: 1_000, assignment_interval: 0 };

fn coordinator() -> GroupCoordinator<u32> {
    GroupCoordinator::new(CoordinatorSettings {
        initial_delay: 0,
        session_timeout: 6_000..=1_800_000,
        size_max: 100_000,
        metadata_bytes_max: 4096,
        offsets_retention: 1000,
        consumer_size_max: 100_000,
        consumer_assignors: vec![crate::Assignor::Uniform],
        migration: Migration::Bidirectional,
        consumer_times: TIMES,
        share_size_max: 100_000,
        share_times: TIMES,
        streams_size_max: 100_000,
        streams_config: StreamsConfig { times: TIMES, standbys: 0, initial_delay: 0 },
    })
}

/// What all weighs, added up anew.
fn recount(groups: &GroupCoordinator<u32>) -> usize {
    let members: usize = groups.groups.iter().map(|(name, group)| weight::group(name, group.weight())).sum();
    let offsets = groups.offsets.values().flatten().map(|((topic, _), offset)| weight::offset(topic, &offset.metadata));
    let read: std::collections::BTreeSet<(&str, &str)> = groups
        .offsets
        .iter()
        .flat_map(|(group, all)| all.keys().map(|(topic, _)| (&**group, topic.as_str())))
        .collect();
    members + offsets.sum::<usize>() + read.len() * weight::READER
}

fn commit(topic: &str, partition: u32, metadata: &str) -> Commit {
    let offset = CommittedOffset { offset: 7, leader_epoch: -1, metadata: metadata.to_owned(), committed_at: 1 };
    Commit { topic: topic.to_owned(), partition, offset }
}

fn try_commit(
    groups: &mut GroupCoordinator<u32>,
    name: &str,
    commits: &[Commit],
) -> Result<Vec<Result<(), GroupError>>, GroupError> {
    let nobody = Committer { member_id: "", instance: None, generation: -1, transactional: false, knows_epochs: true };
    let prepared = groups.prepare_commit(name, nobody, commits, 1)?;
    let outcomes: Vec<Result<(), GroupError>> = prepared.into_iter().map(|one| one.map(drop)).collect();
    for (commit, _) in commits.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()) {
        groups.apply_commit(name, commit.clone());
    }
    Ok(outcomes)
}

fn request(member_id: &str, fresh_id: &str, metadata_bytes: usize) -> JoinRequest {
    JoinRequest {
        member_id: member_id.to_owned(),
        instance: None,
        client_id: "client".to_owned(),
        host: "host".to_owned(),
        user: String::new(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from(vec![0; metadata_bytes]))],
        session_timeout: 10_000,
        rebalance_timeout: 10_000,
        two_step: false,
        may_skip: true,
        fresh_id: fresh_id.to_owned(),
    }
}

/// Asks to join: how that was refused.
fn join(groups: &mut GroupCoordinator<u32>, name: &str, request: JoinRequest) -> Option<GroupError> {
    let mut effects = Vec::new();
    groups.join(name, request, 1, 1, &mut effects);
    effects.into_iter().find_map(|effect| match effect {
        Effect::Answer(_, Answer::Joined(joined)) => joined.error,
        _ => None,
    })
}

#[test]
fn what_is_counted_is_what_is_there() {
    let mut groups = coordinator();
    for name in ["a", "b", "c"] {
        let commits: Vec<Commit> = (0..50)
            .map(|partition| commit(if partition % 2 == 0 { "even" } else { "odd" }, partition, "note"))
            .collect();
        assert!(try_commit(&mut groups, name, &commits).is_ok());
    }
    assert!(try_commit(&mut groups, "a", &[commit("even", 0, "another, longer note")]).is_ok());
    assert!(groups.delete_offset("a", "odd", 1, false).is_ok_and(|key| key.is_some()));
    assert_eq!(groups.bytes(), recount(&groups));
    groups.forget_topic("even");
    assert!(groups.delete("b").is_ok());
    assert_eq!(groups.bytes(), recount(&groups));
    assert_eq!(join(&mut groups, "a", request("", "one", 1000)), None);
    assert_eq!(join(&mut groups, "a", request("", "two", 500)), None);
    assert_eq!(join(&mut groups, "a", request("one", "", 100)), None);
    assert_eq!(groups.bytes(), recount(&groups));
    let share = ShareHeartbeat {
        member_id: "s".to_owned(),
        topics: Some(vec!["even".to_owned(); 3]),
        ..ShareHeartbeat::default()
    };
    assert!(groups.share_heartbeat("shared", &share, Sight::ALL, 1, &mut Vec::new()).is_ok());
    assert_eq!(groups.bytes(), recount(&groups));
    let leaving = ["one", "two"].map(|id| LeaveMember { member_id: id.to_owned(), instance: None });
    assert!(groups.leave("a", &leaving, 2, &mut Vec::new()).is_ok());
    assert_eq!(groups.bytes(), recount(&groups));
    groups.handle_timeouts(1_000_000, &mut Vec::new());
    groups.expire(10_000_000, "", 100, |_| false);
    assert_eq!(groups.bytes(), recount(&groups));
    assert!(groups.delete("shared").is_ok());
    assert_eq!((groups.bytes(), groups.weights.len()), (0, 0));
}

/// Topics that groups have offsets of are found again by their offsets.
fn readers(groups: &GroupCoordinator<u32>) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (group, offsets) in &groups.offsets {
        let topics: std::collections::BTreeSet<&String> = offsets.keys().map(|(topic, _)| topic).collect();
        topics.into_iter().for_each(|topic| found.entry(topic.clone()).or_default().push(group.to_string()));
    }
    found.values_mut().for_each(|groups| groups.sort());
    found
}

#[test]
fn a_topic_knows_the_groups_that_have_offsets_of_it() {
    let mut groups = coordinator();
    let check = |groups: &GroupCoordinator<u32>| {
        let known = ["", "t", "t-1", "u"].map(|topic| (topic, groups.readers.of(topic)));
        let known = known.into_iter().filter(|(_, groups)| !groups.is_empty());
        let known: BTreeMap<String, Vec<String>> =
            known.map(|(topic, groups)| (topic.to_owned(), groups.iter().map(ToString::to_string).collect())).collect();
        assert_eq!(known, readers(groups));
    };
    for name in ["a", "b", "c"] {
        assert!(
            try_commit(
                &mut groups,
                name,
                &[commit("t", 0, ""), commit("t", 1, ""), commit("t-1", 0, ""), commit("t", 0, "again")]
            )
            .is_ok()
        );
    }
    assert!(try_commit(&mut groups, "c", &[commit("u", 0, "")]).is_ok());
    check(&groups);
    assert!(groups.delete_offset("a", "t", 1, false).is_ok());
    check(&groups);
    assert!(groups.delete_offset("a", "t", 0, false).is_ok());
    check(&groups);
    assert_eq!(
        (groups.offset_keys("t").len(), groups.forget_topic("t").len(), groups.forget_topic("t").len()),
        (4, 4, 0)
    );
    check(&groups);
    assert!(groups.delete("c").is_ok());
    check(&groups);
    groups.expire(10_000_000, "", 100, |_| false);
    check(&groups);
    assert!(groups.readers.of("t-1").is_empty());
}

#[test]
fn a_topic_goes_without_a_look_at_groups_that_have_nothing_of_it() {
    let time = |others: usize| {
        let mut groups = coordinator();
        (0..others).for_each(|group| {
            assert!(try_commit(&mut groups, &format!("group-{group}"), &[commit("t", 0, "")]).is_ok())
        });
        let began = std::time::Instant::now();
        for topic in 0..2_000 {
            let topic = format!("topic-{topic}");
            assert!(groups.offset_keys(&topic).is_empty() && groups.forget_topic(&topic).is_empty());
        }
        began.elapsed()
    };
    let (few, many) = ((0..3).map(|_| time(20)).min(), (0..3).map(|_| time(20_000)).min());
    assert!(many < few.map(|few| few * 50), "a thousand times the groups: {few:?}, {many:?}");
}

#[test]
fn beyond_the_bound_what_is_there_goes_on() {
    let mut groups = coordinator();
    groups.set_bytes_max(1 << 20);
    assert_eq!(join(&mut groups, "first", request("", "one", 1000)), None);
    let mut taken = 0;
    for number in 0..10_000 {
        match try_commit(&mut groups, &format!("group-{number}"), &[commit("t", 0, ""), commit("t", 1, "")]) {
            Ok(outcomes) => taken += outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
            Err(error) => assert_eq!(error, GroupError::NoMemory),
        }
    }
    assert!((500..2000).contains(&taken), "{taken}");
    // A group that its first offsets make counts beside these.
    assert!(groups.bytes() <= (1 << 20) + weight::group("group-9999", 0) && groups.refused_for_memory() > 0);
    let full = (2..).find(|partition| {
        try_commit(&mut groups, "group-0", &[commit("t", *partition, "")]) == Ok(vec![Err(GroupError::NoMemory)])
    });
    assert!(full.is_some_and(|partition| partition < 10));
    // A commit of what was committed before, and a rejoin, also with a little more.
    assert_eq!(
        try_commit(&mut groups, "group-0", &[commit("t", 0, ""), commit("t", 99, "")]),
        Ok(vec![Ok(()), Err(GroupError::NoMemory)])
    );
    assert_eq!(join(&mut groups, "first", request("one", "", 2000)), None);
    assert_eq!(join(&mut groups, "first", request("", "another", 1000)), Some(GroupError::GroupFull));
    assert_eq!(join(&mut groups, "first", request("one", "", 1 << 20)), Some(GroupError::GroupFull));
    let share =
        ShareHeartbeat { member_id: "s".to_owned(), topics: Some(vec!["t".to_owned()]), ..ShareHeartbeat::default() };
    assert_eq!(groups.share_heartbeat("shared", &share, Sight::ALL, 1, &mut Vec::new()), Err(GroupError::GroupFull));
    let deleted: BTreeMap<String, bool> = groups
        .names()
        .into_iter()
        .filter(|name| name != "first")
        .map(|name| (name.clone(), groups.delete(&name).is_ok()))
        .collect();
    assert!(deleted.into_values().all(|deleted| deleted));
    assert_eq!(join(&mut groups, "first", request("", "another", 1000)), None);
    assert_eq!(groups.bytes(), recount(&groups));
}
