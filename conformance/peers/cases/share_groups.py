"""ShareGroupHeartbeat and ShareGroupDescribe: members of share groups, and what other requests make of such groups."""

from client import join
from . import case
from .consumer_groups import beat as consumer_beat
from .consumer_groups import commit


def beat(group, member="m1", epoch=0, **more):
    return {"group_id": group, "member_id": member, "member_epoch": epoch} | more


def member(t, group, topics, name="m1"):
    """Joins without leaving a trace, and is told what to read; the epoch."""
    seen = {"member_epoch": 0}

    def assigned():
        epoch = seen["member_epoch"]
        seen.update(t.quiet("ShareGroupHeartbeat", 1, beat(group, name, epoch, subscribed_topic_names=topics)))
        assert seen["error_code"] == 0, seen
        return seen["assignment"] and seen["assignment"]["topic_partitions"]
    t.settled(assigned)
    return seen["member_epoch"]


@case
def share_group_of_one_member(t):
    topic, group = t.topic(3), t.group()
    t.id_of(topic)
    epoch = member(t, group, [topic])
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=epoch), drop=("member_epoch",))
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=epoch, subscribed_topic_names=[topic]), drop=("member_epoch",))
    t.ask("ShareGroupDescribe", 1, {"group_ids": [group]}, drop=("member_epoch", "group_epoch", "assignment_epoch"))
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=-1))
    t.ask("ShareGroupDescribe", 1, {"group_ids": [group]}, drop=("member_epoch", "group_epoch", "assignment_epoch"))


@case
def share_group_with_more_members_than_partitions(t):
    topic, group = t.topic(), t.group()
    t.id_of(topic)
    epochs = {name: member(t, group, [topic], name) for name in ("m1", "m2", "m3")}
    for name, epoch in epochs.items():
        t.ask("ShareGroupHeartbeat", 1, beat(group, name, epoch, subscribed_topic_names=[topic]), drop=("member_epoch",))


@case
def share_group_without_names(t):
    t.ask("ShareGroupHeartbeat", 1, beat("", subscribed_topic_names=["t"]))
    t.ask("ShareGroupHeartbeat", 1, beat(t.group(), "", subscribed_topic_names=["t"]))
    t.ask("ShareGroupHeartbeat", 1, beat(t.group(), " ", subscribed_topic_names=["t"]))
    t.ask("ShareGroupHeartbeat", 1, beat(t.group(), rack_id="", subscribed_topic_names=["t"]))
    t.ask("ShareGroupDescribe", 1, {"group_ids": [""]})


@case
def share_group_joined_for_nothing(t):
    t.ask("ShareGroupHeartbeat", 1, beat(t.group()))
    t.ask("ShareGroupHeartbeat", 1, beat(t.group(), subscribed_topic_names=[]))


@case
def share_group_joined_for_a_topic_that_is_not_there(t):
    group = t.group()
    first = t.ask("ShareGroupHeartbeat", 1, beat(group, subscribed_topic_names=["peers-no-such-topic"]))
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=first["member_epoch"]))
    t.ask("ShareGroupDescribe", 1, {"group_ids": [group]})


@case
def share_group_asked_for_an_impossible_epoch(t):
    t.ask("ShareGroupHeartbeat", 1, beat(t.group(), epoch=-2))
    t.ask("ShareGroupHeartbeat", 1, beat(t.group(), epoch=-7))


@case
def share_group_that_nobody_knows(t):
    group = t.group()
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=1))
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=-1))
    t.ask("ShareGroupDescribe", 1, {"group_ids": [group]})


@case
def share_group_member_that_nobody_knows(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic])
    t.ask("ShareGroupHeartbeat", 1, beat(group, "nobody", 1))
    t.ask("ShareGroupHeartbeat", 1, beat(group, "nobody", -1))


@case
def share_group_member_with_another_epoch(t):
    topic, group = t.topic(), t.group()
    t.id_of(topic)
    epoch = member(t, group, [topic])
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=epoch + 1))
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=epoch + 1000))
    t.ask("ShareGroupHeartbeat", 1, beat(group, subscribed_topic_names=[topic]), drop=("member_epoch",))


@case
def share_group_and_consumer_groups(t):
    topic, group, other, classic = t.topic(), t.group(), t.group(), t.group()
    member(t, group, [topic])
    t.quiet("ConsumerGroupHeartbeat", 1, consumer_beat(other))
    t.member(classic)
    t.ask("ShareGroupHeartbeat", 1, beat(other, subscribed_topic_names=[topic]))
    t.ask("ShareGroupHeartbeat", 1, beat(classic, subscribed_topic_names=[topic]))
    t.ask("ConsumerGroupHeartbeat", 1, consumer_beat(group))
    t.ask("ConsumerGroupHeartbeat", 1, consumer_beat(group, epoch=-1))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})
    t.ask("ShareGroupDescribe", 1, {"group_ids": [other, classic]})
    t.ask("DescribeGroups", 6, {"groups": [group]})


@case
def share_group_and_classic_requests(t):
    topic, group = t.topic(), t.group()
    epoch = member(t, group, [topic])
    t.ask("JoinGroup", 9, join(group, topics=[topic]))
    t.ask("JoinGroup", 9, join(group, "m1", topics=[topic]))
    t.ask("SyncGroup", 5, {"group_id": group, "generation_id": epoch, "member_id": "m1", "protocol_type": "consumer", "protocol_name": "range"})
    t.ask("Heartbeat", 4, {"group_id": group, "generation_id": epoch, "member_id": "m1"})
    t.ask("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": "m1"}]})


@case
def share_group_keeps_no_offsets(t):
    topic, group = t.topic(), t.group()
    epoch = member(t, group, [topic])
    for who, when in (("", -1), ("m1", epoch)):
        t.ask("OffsetCommit", 9, commit(group, topic, member=who, generation=when))
    t.ask("OffsetFetch", 8, {"groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]})
    t.ask("OffsetFetch", 8, {"groups": [{"group_id": group, "topics": None}]})
    t.ask("OffsetFetch", 7, {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]})
    t.ask("OffsetDelete", 0, {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]})


@case
def share_group_is_listed_and_deleted(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic])
    for types in (["share"], ["consumer"], []):
        answer = t.quiet("ListGroups", 5, {"types_filter": types})
        t.note(types=types, found=[{key: one[key] for key in ("protocol_type", "group_state", "group_type")} for one in answer["groups"] if one["group_id"] == group])
    t.ask("DeleteGroups", 2, {"groups_names": [group]})
    t.ask("ShareGroupHeartbeat", 1, beat(group, epoch=-1))
    t.ask("JoinGroup", 9, join(group, topics=[topic]))
    t.ask("DeleteGroups", 2, {"groups_names": [group]})
    t.ask("ShareGroupDescribe", 1, {"group_ids": [group]})
