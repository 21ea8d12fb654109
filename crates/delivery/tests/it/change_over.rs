//! From the classic protocol to the new one and back, with members of both at once.

use bytes::{BufMut, Bytes, BytesMut};
use delivery::{
    Answer, ConsumerGroupState, ConsumerHeartbeat, Effect, GroupError, JoinRequest, Joined, LeaveMember, Migration,
    SyncRequest, Synced, Topics,
};

use crate::crowd::Crowd;
use crate::room::{GROUP, join, settings};

fn text(out: &mut BytesMut, text: &str) {
    out.put_i16(text.len() as i16);
    out.put_slice(text.as_bytes());
}

/// What a classic consumer says of itself: version 1.
fn subscription(topics: &[&str], owned: &[(&str, &[u32])]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(1);
    out.put_i32(topics.len() as i32);
    topics.iter().for_each(|name| text(&mut out, name));
    out.put_i32(-1);
    put_partitions(&mut out, owned);
    out.freeze()
}

fn put_partitions(out: &mut BytesMut, partitions: &[(&str, &[u32])]) {
    out.put_i32(partitions.len() as i32);
    for (topic, partitions) in partitions {
        text(out, topic);
        out.put_i32(partitions.len() as i32);
        partitions.iter().for_each(|one| out.put_u32(*one));
    }
}

fn assignment(version: i16, partitions: &[(&str, &[u32])]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(version);
    put_partitions(&mut out, partitions);
    out.put_i32(-1);
    out.freeze()
}

fn classic(id: &str, owned: &[(&str, &[u32])]) -> JoinRequest {
    JoinRequest {
        protocols: vec![("range".to_owned(), subscription(&["t"], owned))],
        two_step: false,
        fresh_id: "classic".to_owned(),
        ..join(id)
    }
}

fn answers(effects: &[Effect<u32>]) -> Vec<Answer> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Answer(_, answer) = effect { Some(answer.clone()) } else { None })
        .collect()
}

fn ask(crowd: &mut Crowd, request: JoinRequest) -> Vec<Answer> {
    let mut effects = Vec::new();
    crowd.groups.join(GROUP, request, 1, crowd.now, &mut effects);
    let answers = answers(&effects);
    crowd.take(effects);
    answers
}

fn joined(answers: Vec<Answer>) -> Joined {
    match answers.into_iter().next() {
        Some(Answer::Joined(joined)) => joined,
        other => panic!("{other:?} for a join"),
    }
}

fn sync(crowd: &mut Crowd, id: &str, generation: i32, assignments: Vec<(String, Bytes)>) -> Synced {
    let request = SyncRequest {
        member_id: id.to_owned(),
        instance: None,
        generation,
        protocol_type: None,
        protocol: None,
        assignments,
    };
    let mut effects = Vec::new();
    crowd.groups.sync(GROUP, request, 2, crowd.now, &mut effects);
    let answer = answers(&effects).pop();
    crowd.take(effects);
    match answer {
        Some(Answer::Synced(synced)) => synced,
        other => panic!("{other:?} for a sync"),
    }
}

fn leave(crowd: &mut Crowd, id: &str) -> Result<(), GroupError> {
    let mut effects = Vec::new();
    let leaving = LeaveMember { member_id: id.to_owned(), instance: None };
    let outcome = crowd.groups.leave(GROUP, &[leaving], crowd.now, &mut effects);
    crowd.take(effects);
    outcome?.remove(0)
}

fn beat(crowd: &mut Crowd, id: &str, generation: i32) -> Result<(), GroupError> {
    crowd.groups.heartbeat(GROUP, id, None, generation, crowd.now)
}

/// A stable classic group of one that has both partitions.
fn classic_group() -> (Crowd, i32) {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 2);
    let mut effects = Vec::new();
    crowd.groups.join(GROUP, classic("", &[]), 1, crowd.now, &mut effects);
    crowd.take(effects);
    crowd.now = crowd.groups.next_deadline().unwrap();
    let mut effects = Vec::new();
    while answers(&effects).is_empty() {
        crowd.now = crowd.groups.next_deadline().unwrap();
        crowd.groups.handle_timeouts(crowd.now, &mut effects);
    }
    let first = joined(answers(&effects));
    crowd.take(effects);
    let all = assignment(1, &[("t", &[0, 1])]);
    let synced = sync(&mut crowd, "classic", first.generation, vec![("classic".to_owned(), all.clone())]);
    assert_eq!(synced.assignment, all);
    (crowd, first.generation)
}

#[test]
fn a_group_changes_over_and_back_while_everybody_reads_on() {
    let (mut crowd, generation) = classic_group();
    crowd.enter("new", &["t"]);
    assert_eq!((crowd.describe().state, crowd.clients["new"].has.len()), (ConsumerGroupState::Reconciling, 0));
    assert!(crowd.groups.describe(GROUP).is_none(), "it is no classic group");
    // The classic member is asked to join again, says what it has, and is told what it may keep.
    assert_eq!(beat(&mut crowd, "classic", generation), Err(GroupError::Rebalancing));
    let again = joined(ask(&mut crowd, classic("classic", &[("t", &[0, 1])])));
    assert_eq!((again.error, again.generation), (None, generation), "it has to give one up first");
    let synced = sync(&mut crowd, "classic", generation, Vec::new());
    let kept: &[u32] = if synced.assignment == assignment(1, &[("t", &[0])]) { &[0] } else { &[1] };
    assert_eq!(synced.assignment, assignment(1, &[("t", kept)]));
    crowd.speak("new", false);
    assert!(crowd.clients["new"].has.is_empty(), "it has not been given up yet");
    assert_eq!(beat(&mut crowd, "classic", generation), Err(GroupError::Rebalancing));
    let again = joined(ask(&mut crowd, classic("classic", &[("t", kept)])));
    assert_eq!((again.error, again.generation), (None, generation + 1));
    assert_eq!(sync(&mut crowd, "classic", generation + 1, Vec::new()).assignment, assignment(1, &[("t", kept)]));
    crowd.speak("new", false);
    let (topic, _) = crowd.shelf.find("t").unwrap();
    assert_eq!(crowd.clients["new"].has[&topic].len(), 1);
    assert_eq!(beat(&mut crowd, "classic", generation + 1), Ok(()));
    assert_eq!(crowd.describe().state, ConsumerGroupState::Stable);
    crowd.restart();
    assert_eq!(beat(&mut crowd, "classic", generation + 1), Ok(()), "a restart keeps classic members too");
    // The last of the new protocol goes: it is a classic group again, which rebalances.
    let farewell = ConsumerHeartbeat { member_id: "new".to_owned(), epoch: -1, ..ConsumerHeartbeat::default() };
    crowd.beat(&farewell).unwrap();
    crowd.clients.remove("new");
    assert!(crowd.groups.describe_consumers(GROUP).is_none());
    assert_eq!(beat(&mut crowd, "classic", generation + 1), Err(GroupError::Rebalancing));
    let last = joined(ask(&mut crowd, classic("classic", &[("t", kept)])));
    assert_eq!((last.error, last.leader.as_str()), (None, "classic"));
    assert_eq!(
        crowd.records.keys().filter(|key| b"cd".contains(&key[0])).count(),
        0,
        "nothing is left of the other kind"
    );
}

#[test]
fn an_empty_group_becomes_whatever_is_asked_for() {
    let (mut crowd, _) = classic_group();
    leave(&mut crowd, "classic").unwrap();
    let mut effects = Vec::new();
    while crowd.groups.describe(GROUP).unwrap().state != delivery::GroupState::Empty {
        crowd.now = crowd.groups.next_deadline().unwrap();
        crowd.groups.handle_timeouts(crowd.now, &mut effects);
    }
    crowd.take(effects);
    crowd.enter("new", &["t"]);
    assert_eq!(crowd.clients["new"].epoch, 2);
    assert_eq!(crowd.records.keys().filter(|key| key[0] == b'g').count(), 0);
    leave(&mut crowd, "new").unwrap();
    assert_eq!(crowd.describe().state, ConsumerGroupState::Empty);
    ask(&mut crowd, classic("", &[]));
    assert!(crowd.groups.describe(GROUP).is_some());
}

#[test]
fn groups_do_not_change_over_against_the_policy() {
    let (mut crowd, generation) = classic_group();
    crowd.groups = {
        let mut chosen = settings();
        chosen.migration = Migration::Downgrade;
        let shelf = std::sync::Arc::clone(&crowd.shelf);
        let mut groups = delivery::GroupCoordinator::with_topics(chosen, shelf as std::sync::Arc<dyn Topics>);
        crowd.records.iter().for_each(|(key, value)| assert!(groups.restore(key, value, crowd.now)));
        groups.resume(crowd.now);
        groups
    };
    let request = ConsumerHeartbeat {
        member_id: "new".to_owned(),
        rebalance_timeout: Some(1),
        topics: Some(Vec::new()),
        owned: Some(Vec::new()),
        ..ConsumerHeartbeat::default()
    };
    assert_eq!(crowd.beat(&request), Err(GroupError::GroupNotFound));
    assert_eq!(beat(&mut crowd, "classic", generation), Ok(()), "the group is as it was");
}

#[test]
fn what_a_classic_member_may_not_do() {
    let (mut crowd, generation) = classic_group();
    crowd.enter("new", &["t"]);
    assert_eq!(beat(&mut crowd, "new", 2), Err(GroupError::UnknownMember), "it speaks the other protocol");
    assert_eq!(beat(&mut crowd, "nobody", generation), Err(GroupError::UnknownMember));
    assert_eq!(beat(&mut crowd, "classic", generation + 9), Err(GroupError::IllegalGeneration));
    let other = JoinRequest { protocol_type: "connect".to_owned(), ..classic("", &[]) };
    assert_eq!(joined(ask(&mut crowd, other)).error, Some(GroupError::InconsistentProtocol));
    let noise = JoinRequest {
        protocols: vec![("range".to_owned(), Bytes::from_static(b"\0\x01\x7f\xff\xff\xff"))],
        ..classic("", &[])
    };
    assert_eq!(joined(ask(&mut crowd, noise)).error, Some(GroupError::InconsistentProtocol));
    let asked = JoinRequest { two_step: true, ..classic("", &[]) };
    let told = joined(ask(&mut crowd, asked));
    assert_eq!((told.error, told.member_id.as_str()), (Some(GroupError::MemberIdRequired), "classic"));
}

#[test]
fn a_classic_member_that_does_not_join_in_time_is_out() {
    let (mut crowd, generation) = classic_group();
    crowd.enter("new", &["t"]);
    for _ in 0..61 {
        let _ = beat(&mut crowd, "classic", generation);
        crowd.speak("new", false);
        crowd.pass(1_000);
    }
    assert_eq!(beat(&mut crowd, "classic", generation), Err(GroupError::UnknownMember));
    crowd.settle();
    crowd.check_whole();
}
