//! What members of a group read, by which its lag is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use delivery::{GroupCoordinator, Topics, assigned_partitions};

use crate::crowd::Crowd;
use crate::room::{GROUP, INITIAL_DELAY_MS, Room, join};

/// An assignment of the classic protocol: version 1, topic `t` with partitions 0 and 3, no data of the assignor.
const ASSIGNMENT: &str = "\0\u{1}\0\0\0\u{1}\0\u{1}t\0\0\0\u{2}\0\0\0\0\0\0\0\u{3}\0\0\0\0";

#[test]
fn what_members_of_either_protocol_read_is_known() {
    let mut crowd = Crowd::new();
    crowd.shelf.set("t", 3);
    crowd.shelf.set("u", 1);
    assert_eq!(crowd.groups.read_partitions(GROUP), None, "there is no group");
    crowd.enter("a", &["t"]);
    assert_eq!(
        crowd.groups.read_partitions(GROUP),
        Some(BTreeMap::from([("t".to_owned(), BTreeSet::from([0, 1, 2]))]))
    );
    crowd.enter("b", &["t", "u"]);
    crowd.settle();
    let all = BTreeMap::from([("t".to_owned(), BTreeSet::from([0, 1, 2])), ("u".to_owned(), BTreeSet::from([0]))]);
    assert_eq!(crowd.groups.read_partitions(GROUP), Some(all));
    assert!(crowd.shelf.find("u").is_some());

    let mut room = Room::new();
    room.groups = GroupCoordinator::with_topics(crate::room::settings(), Arc::clone(&crowd.shelf) as Arc<dyn Topics>);
    let (leader, waiter) = room.enter(join(""));
    room.pass(INITIAL_DELAY_MS);
    let generation = room.joined(waiter).expect("it is in").generation;
    assert_eq!(room.groups.read_partitions(GROUP), Some(BTreeMap::new()), "nothing is assigned yet");
    room.sync(&leader, generation, &[(&*leader, ASSIGNMENT)]);
    let read = |room: &Room| room.groups.read_partitions(GROUP).and_then(|found| found.get("t").cloned());
    assert_eq!(
        read(&room),
        Some(BTreeSet::from([0])),
        "of three partitions the fourth is not there, whatever its leader says"
    );
    crowd.shelf.set("t", 4);
    assert_eq!(read(&room), Some(BTreeSet::from([0, 3])));
}

#[test]
fn assignments_of_the_classic_protocol_are_read_and_nonsense_is_nothing() {
    let mut bytes = ASSIGNMENT.as_bytes().to_vec();
    let whole = vec![("t".to_owned(), vec![0, 3])];
    assert_eq!(assigned_partitions(&bytes), whole);
    let needed = bytes.len() - 4;
    assert_eq!(assigned_partitions(&bytes[..needed]), whole, "what an assignor has added is not looked at");
    for end in 0..needed {
        assert!(assigned_partitions(&bytes[..end]).is_empty(), "{end} bytes");
    }
    bytes[2] = 0x7f;
    assert!(assigned_partitions(&bytes).is_empty());
}
