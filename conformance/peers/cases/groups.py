"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups."""

from client import join
from . import case
from .offsets import commit


@case
def coordinator_in_every_version(t):
    group = t.group()
    for version in range(4):
        t.ask("FindCoordinator", version, {"key": group})
    for version in range(4, 7):
        t.ask("FindCoordinator", version, {"coordinator_keys": [group]})


@case
def coordinator_of_an_unknown_type(t):
    t.ask("FindCoordinator", 2, {"key": t.group(), "key_type": 9})
    t.ask("FindCoordinator", 4, {"coordinator_keys": [t.group()], "key_type": 9})


@case
def coordinator_of_a_negative_type(t):
    t.ask("FindCoordinator", 4, {"coordinator_keys": [t.group()], "key_type": -1})


@case
def coordinator_of_a_share_group_with_a_bad_key(t):
    t.ask("FindCoordinator", 6, {"coordinator_keys": ["no-key"], "key_type": 2})


@case
def coordinator_of_a_share_group_too_early(t):
    t.ask("FindCoordinator", 5, {"coordinator_keys": ["g:00000000-0000-0000-0000-000000000000:0"], "key_type": 2})


@case
def coordinator_of_an_empty_group(t):
    t.ask("FindCoordinator", 4, {"coordinator_keys": [""]})


@case
def coordinator_of_no_group(t):
    t.ask("FindCoordinator", 4, {"coordinator_keys": []})


@case
def coordinator_of_several_groups(t):
    t.ask("FindCoordinator", 4, {"coordinator_keys": [t.group(), t.group()]})


@case
def join_without_a_group(t):
    t.ask("JoinGroup", 6, join(""))


@case
def join_asks_for_a_member_id_first(t):
    group = t.group()
    first = t.ask("JoinGroup", 6, join(group))
    t.ask("JoinGroup", 6, join(group, first["member_id"]))


@case
def join_at_once_before_version_4(t):
    for version in range(4):
        body = join(t.group())
        if version == 0:
            del body["rebalance_timeout_ms"]
        t.ask("JoinGroup", version, body)


@case
def join_in_every_later_version(t):
    for version in range(4, 10):
        group = t.group()
        first = t.ask("JoinGroup", version, join(group))
        t.ask("JoinGroup", version, join(group, first["member_id"]))


@case
def join_with_a_session_timeout_of_0(t):
    t.ask("JoinGroup", 6, join(t.group(), session=0))


@case
def join_with_a_session_timeout_too_short(t):
    t.ask("JoinGroup", 6, join(t.group(), session=5999))


@case
def join_with_a_session_timeout_too_long(t):
    t.ask("JoinGroup", 6, join(t.group(), session=1_800_001))


@case
def join_with_a_negative_session_timeout(t):
    t.ask("JoinGroup", 6, join(t.group(), session=-1))


@case
def join_with_a_negative_rebalance_timeout(t):
    t.ask("JoinGroup", 6, join(t.group(), rebalance=-1))


@case
def join_as_a_member_nobody_knows(t):
    t.ask("JoinGroup", 6, join(t.group(), "nobody"))


@case
def join_a_group_with_members_as_a_member_nobody_knows(t):
    group = t.group()
    t.member(group)
    t.ask("JoinGroup", 6, join(group, "nobody"))


@case
def join_without_protocols(t):
    t.ask("JoinGroup", 6, join(t.group(), protocols=()))


@case
def join_with_an_empty_protocol_type(t):
    t.ask("JoinGroup", 6, join(t.group(), kind=""))


@case
def join_with_another_protocol_type(t):
    group = t.group()
    t.member(group)
    t.ask("JoinGroup", 6, join(group, kind="connect"))


@case
def join_with_another_protocol(t):
    group = t.group()
    t.member(group)
    t.ask("JoinGroup", 6, join(group, protocols=(("other", b""),)))


@case
def join_as_a_static_member(t):
    group = t.group()
    t.ask("JoinGroup", 6, join(group, instance="one"))
    t.ask("JoinGroup", 6, join(group, "nobody", instance="one"))


@case
def join_as_a_static_member_nobody_knows(t):
    t.ask("JoinGroup", 6, join(t.group(), "nobody", instance="one"))


@case
def join_of_a_static_member_that_comes_back_with_other_metadata(t):
    group = t.group()
    _, generation = t.member(group, instance="one")
    for version in (6, 9):
        back = t.ask("JoinGroup", version, join(group, instance="one", protocols=(("range", b"other"),)))
        beat(t, group, back["member_id"], generation, group_instance_id="one")
        sync(t, group, back["member_id"], generation, group_instance_id="one")


@case
def join_again_as_the_only_member(t):
    group = t.group()
    member, _ = t.member(group)
    t.ask("JoinGroup", 6, join(group, member))


@case
def join_with_a_very_long_group_id(t):
    first = t.ask("JoinGroup", 6, join(t.learn("g" * 1000 + t.token, "<long group>")))
    t.note(member_id=bool(first and first["member_id"]))


def sync(t, group, member, generation, version=4, **more):
    mine = [{"member_id": member, "assignment": b"mine"}]
    t.ask("SyncGroup", version, {"group_id": group, "generation_id": generation, "member_id": member, "assignments": mine, **more})


@case
def sync_an_unknown_group(t):
    sync(t, t.group(), "nobody", 1)


@case
def sync_without_a_group(t):
    sync(t, "", "nobody", 1)


@case
def sync_as_a_member_nobody_knows(t):
    group = t.group()
    _, generation = t.member(group)
    sync(t, group, "nobody", generation)


@case
def sync_of_another_generation(t):
    group = t.group()
    member, generation = t.member(group)
    sync(t, group, member, generation + 1)
    sync(t, group, member, generation - 1)


@case
def sync_again(t):
    group = t.group()
    member, generation = t.member(group)
    sync(t, group, member, generation)


@case
def sync_in_every_version(t):
    group = t.group()
    member, generation = t.member(group)
    for version in range(5):
        sync(t, group, member, generation, version)
    sync(t, group, member, generation, 5, protocol_type="consumer", protocol_name="range")


@case
def sync_with_another_protocol_name(t):
    group = t.group()
    member, generation = t.member(group)
    sync(t, group, member, generation, 5, protocol_type="consumer", protocol_name="other")
    sync(t, group, member, generation, 5, protocol_type="connect", protocol_name="range")
    sync(t, group, member, generation, 5)


@case
def sync_as_an_instance_nobody_knows(t):
    group = t.group()
    member, generation = t.member(group)
    sync(t, group, member, generation, group_instance_id="nobody")


def beat(t, group, member, generation, version=3, **more):
    t.ask("Heartbeat", version, {"group_id": group, "generation_id": generation, "member_id": member, **more})


@case
def heartbeat_in_every_version(t):
    group = t.group()
    member, generation = t.member(group)
    for version in range(5):
        beat(t, group, member, generation, version)


@case
def heartbeat_of_an_unknown_group(t):
    beat(t, t.group(), "nobody", 1)


@case
def heartbeat_without_a_group(t):
    beat(t, "", "nobody", 1)


@case
def heartbeat_of_a_member_nobody_knows(t):
    group = t.group()
    _, generation = t.member(group)
    beat(t, group, "nobody", generation)


@case
def heartbeat_without_a_member(t):
    group = t.group()
    _, generation = t.member(group)
    beat(t, group, "", generation)


@case
def heartbeat_of_another_generation(t):
    group = t.group()
    member, generation = t.member(group)
    beat(t, group, member, generation - 1)
    beat(t, group, member, generation + 1)


@case
def heartbeat_before_the_sync(t):
    group = t.group()
    first = t.quiet("JoinGroup", 3, join(group))
    beat(t, group, t.learn(first["member_id"], "<member>"), first["generation_id"])


@case
def heartbeat_of_an_instance_nobody_knows(t):
    group = t.group()
    member, generation = t.member(group)
    beat(t, group, member, generation, group_instance_id="nobody")


def leave(t, group, *members, version=4):
    t.ask("LeaveGroup", version, {"group_id": group, "members": list(members)})


@case
def leave_in_every_version(t):
    for version in range(3):
        group = t.group()
        member, _ = t.member(group)
        t.ask("LeaveGroup", version, {"group_id": group, "member_id": member})
    for version in range(3, 6):
        group = t.group()
        member, _ = t.member(group)
        leave(t, group, {"member_id": member}, version=version)


@case
def leave_an_unknown_group(t):
    leave(t, t.group(), {"member_id": "nobody"})
    t.ask("LeaveGroup", 1, {"group_id": t.group(), "member_id": "nobody"})


@case
def leave_without_a_group(t):
    leave(t, "", {"member_id": "nobody"})


@case
def leave_as_a_member_nobody_knows(t):
    group = t.group()
    t.member(group)
    leave(t, group, {"member_id": "nobody"})
    t.ask("LeaveGroup", 1, {"group_id": group, "member_id": "nobody"})


@case
def leave_as_an_instance_nobody_knows(t):
    group = t.group()
    t.member(group)
    leave(t, group, {"member_id": "", "group_instance_id": "nobody"})


@case
def leave_as_an_instance(t):
    group = t.group()
    t.member(group, instance="one")
    leave(t, group, {"member_id": "", "group_instance_id": "one"})


@case
def leave_as_an_instance_of_another_member(t):
    group = t.group()
    t.member(group, instance="one")
    leave(t, group, {"member_id": "another", "group_instance_id": "one"})


@case
def leave_by_nobody(t):
    group = t.group()
    t.member(group)
    leave(t, group)


@case
def leave_twice(t):
    group = t.group()
    member, generation = t.member(group)
    leave(t, group, {"member_id": member}, {"member_id": member})
    beat(t, group, member, generation)


@case
def describe_an_unknown_group(t):
    group = t.group()
    for version in range(7):
        t.ask("DescribeGroups", version, {"groups": [group]})


@case
def describe_an_empty_group_id(t):
    t.ask("DescribeGroups", 5, {"groups": [""]})


@case
def describe_no_group(t):
    t.ask("DescribeGroups", 5, {"groups": []})


@case
def describe_a_stable_group(t):
    group = t.group()
    t.member(group)
    t.ask("DescribeGroups", 5, {"groups": [group]})


@case
def describe_a_group_that_awaits_its_sync(t):
    group = t.group()
    t.quiet("JoinGroup", 3, join(group))
    t.ask("DescribeGroups", 5, {"groups": [group]})


@case
def describe_a_group_that_was_left(t):
    group = t.group()
    member, _ = t.member(group)
    t.quiet("LeaveGroup", 4, {"group_id": group, "members": [{"member_id": member}]})
    t.ask("DescribeGroups", 5, {"groups": [group]})


@case
def describe_a_group_that_only_commits(t):
    group = t.group()
    commit(t, group, t.topic())
    t.ask("DescribeGroups", 5, {"groups": [group]})


@case
def describe_one_group_twice(t):
    t.ask("DescribeGroups", 5, {"groups": [t.group()] * 2})


def listed(t, group, version=5, **more):
    answer = t.quiet("ListGroups", version, more)
    found = [one for one in answer["groups"] if one["group_id"] == group]
    t.note(asked=more, error_code=answer["error_code"], found=[t.normal(one, set(), None) for one in found])


@case
def groups_listed_in_every_version(t):
    group = t.group()
    t.member(group)
    for version in range(6):
        listed(t, group, version)


@case
def groups_listed_by_state(t):
    group = t.group()
    t.member(group)
    for state in ("Stable", "stable", "Empty", "Nonsense"):
        listed(t, group, states_filter=[state])


@case
def groups_listed_by_type(t):
    group = t.group()
    t.member(group)
    for kind in ("classic", "Classic", "consumer", "nonsense"):
        listed(t, group, types_filter=[kind])


def drop(t, *groups, version=2):
    t.ask("DeleteGroups", version, {"groups_names": list(groups)})


@case
def delete_an_unknown_group(t):
    for version in range(3):
        drop(t, t.group(), version=version)


@case
def delete_an_empty_group_id(t):
    drop(t, "")


@case
def delete_a_group_with_members(t):
    group = t.group()
    t.member(group)
    drop(t, group)


@case
def delete_a_group_that_only_commits(t):
    group = t.group()
    commit(t, group, t.topic())
    drop(t, group)
    t.ask("DescribeGroups", 5, {"groups": [group]})


@case
def delete_no_group(t):
    drop(t)


@case
def delete_one_group_twice(t):
    group = t.group()
    commit(t, group, t.topic())
    drop(t, group, group)


def rebalancing(t, group, member, generation):
    """A second member that waits for the first to join again."""
    begun = t.begin("JoinGroup", 3, join(group))
    wish = {"group_id": group, "generation_id": generation, "member_id": member}
    t.settled(lambda: t.quiet("Heartbeat", 3, wish)["error_code"] == 27)
    return begun


@case
def rebalance_seen_by_a_heartbeat(t):
    group = t.group()
    member, generation = t.member(group)
    begun = rebalancing(t, group, member, generation)
    beat(t, group, member, generation)
    t.ask("DescribeGroups", 5, {"groups": [group]})
    leave(t, group, {"member_id": member})
    t.finish(begun)


@case
def rebalance_seen_by_a_sync(t):
    group = t.group()
    member, generation = t.member(group)
    begun = rebalancing(t, group, member, generation)
    sync(t, group, member, generation)
    leave(t, group, {"member_id": member})
    t.finish(begun)


@case
def rebalance_does_not_refuse_a_commit(t):
    topic, group = t.topic(), t.group()
    member, generation = t.member(group)
    begun = rebalancing(t, group, member, generation)
    commit(t, group, topic, member=member, generation=generation)
    leave(t, group, {"member_id": member})
    t.finish(begun)


@case
def rebalance_completed_by_a_join(t):
    group = t.group()
    member, generation = t.member(group)
    begun = rebalancing(t, group, member, generation)
    answer = t.ask("JoinGroup", 6, join(group, member), drop=("members",))
    t.note(members=len(answer["members"]))
    t.finish(begun)
    beat(t, group, member, generation)
    commit(t, group, t.topic(), member=member, generation=generation + 1)


@case
def rebalance_and_a_group_that_is_deleted(t):
    group = t.group()
    member, generation = t.member(group)
    begun = rebalancing(t, group, member, generation)
    drop(t, group)
    leave(t, group, {"member_id": member})
    t.finish(begun)


@case
def sync_of_a_follower_waits_for_the_leader(t):
    group = t.group()
    member, generation = t.member(group)
    joining = rebalancing(t, group, member, generation)
    first = t.quiet("JoinGroup", 6, join(group, member))
    other = next(one["member_id"] for one in first["members"] if one["member_id"] != member)
    t.learn(other, "<other member>")
    t.finish(joining)
    body = {"group_id": group, "generation_id": generation + 1, "member_id": other, "assignments": []}
    begun = t.begin("SyncGroup", 4, body)
    mine = [{"member_id": one, "assignment": text} for one, text in ((member, b"mine"), (other, b"yours"))]
    t.ask("SyncGroup", 4, {**body, "member_id": member, "assignments": mine})
    t.finish(begun)
    t.ask("DescribeGroups", 5, {"groups": [group]})


@case
def sync_without_an_assignment_for_a_member(t):
    group = t.group()
    first = t.quiet("JoinGroup", 3, join(group))
    member = t.learn(first["member_id"], "<member>")
    t.ask("SyncGroup", 4, {"group_id": group, "generation_id": first["generation_id"], "member_id": member, "assignments": []})


@case
def sync_with_an_assignment_for_a_member_nobody_knows(t):
    group = t.group()
    first = t.quiet("JoinGroup", 3, join(group))
    member = t.learn(first["member_id"], "<member>")
    t.ask("SyncGroup", 4, {"group_id": group, "generation_id": first["generation_id"], "member_id": member,
                           "assignments": [{"member_id": "nobody", "assignment": b"x"}]})


@case
def instance_of_another_member(t):
    topic, group = t.topic(), t.group()
    _, generation = t.member(group, instance="one")
    beat(t, group, "another", generation, group_instance_id="one")
    sync(t, group, "another", generation, group_instance_id="one")
    commit(t, group, topic, member="another", generation=generation, instance="one")
    t.ask("JoinGroup", 6, join(group, "another", instance="one"))


@case
def instance_that_comes_again(t):
    group = t.group()
    member, generation = t.member(group, instance="one")
    again = t.ask("JoinGroup", 6, join(group, instance="one"))
    t.note(new_id=again["member_id"] != member)
    beat(t, group, member, generation, group_instance_id="one")
    beat(t, group, again["member_id"], again["generation_id"], group_instance_id="one")


@case
def instance_that_comes_again_with_other_protocols(t):
    group = t.group()
    t.member(group, instance="one")
    again = t.ask("JoinGroup", 6, join(group, instance="one", protocols=(("other", b"x"),)))
    t.note(generation=again["generation_id"])


@case
def members_that_choose_a_protocol(t):
    group = t.group()
    one, other = (("range", b""), ("sticky", b"")), (("sticky", b""), ("other", b""))
    first = t.quiet("JoinGroup", 3, join(group, protocols=one))
    member = t.learn(first["member_id"], "<member>")
    begun = t.begin("JoinGroup", 3, join(group, protocols=other))
    wish = {"group_id": group, "generation_id": first["generation_id"], "member_id": member}
    t.settled(lambda: t.quiet("Heartbeat", 3, wish)["error_code"] == 27)
    t.ask("JoinGroup", 6, join(group, member, protocols=one), drop=("members",))
    t.finish(begun)
