"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, and what other requests make of such groups."""

import uuid

from client import join
from . import UNKNOWN_ID, case
from .transactions import begun, of
from .transactions import commit as commit_in


def beat(group, member="m1", epoch=0, **more):
    """A heartbeat; one with epoch 0 says all that a joining member says."""
    wish = {"group_id": group, "member_id": member, "member_epoch": epoch}
    if epoch == 0:
        wish |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [], "topic_partitions": []}
    return wish | more


def commit(group, topic, member="", generation=-1):
    part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    return {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": member, "topics": [{"name": topic, "partitions": [part]}]}


def member(t, group, topics, name="m1", **more):
    """Joins without leaving a trace; the epoch."""
    answer = t.quiet("ConsumerGroupHeartbeat", 1, beat(group, name, subscribed_topic_names=topics, **more))
    assert answer["error_code"] == 0, answer
    return answer["member_epoch"]


def owned(t, topic, *partitions):
    return [{"topic_id": uuid.UUID(str(t.described(topic)["topic_id"])), "partitions": list(partitions)}]


@case
def consumer_group_of_one_member(t):
    topic, group = t.topic(3), t.group()
    t.id_of(topic)
    first = t.ask("ConsumerGroupHeartbeat", 1, beat(group, subscribed_topic_names=[topic]))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=first["member_epoch"], topic_partitions=owned(t, topic, 0, 1, 2)))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=first["member_epoch"]))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=-1))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_joined_without_an_id(t):
    topic, group = t.topic(), t.group()
    t.id_of(topic)
    t.ask("ConsumerGroupHeartbeat", 0, beat(group, "", subscribed_topic_names=[topic]))
    t.ask("ConsumerGroupDescribe", 0, {"group_ids": [group]})


@case
def consumer_group_needs_a_member_id_from_version_1_on(t):
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), ""))
    t.ask("ConsumerGroupHeartbeat", 0, beat(t.group(), "", 1))
    t.ask("ConsumerGroupHeartbeat", 0, beat(t.group(), "", -1))
    t.ask("ConsumerGroupHeartbeat", 0, beat(t.group(), "", -2, instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), " "))


@case
def consumer_group_without_a_name(t):
    t.ask("ConsumerGroupHeartbeat", 1, beat(""))
    t.ask("ConsumerGroupHeartbeat", 1, beat(" "))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [""]})


@case
def consumer_group_with_empty_texts(t):
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), instance_id=""))
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), rack_id=""))


@case
def consumer_group_joined_without_a_rebalance_timeout(t):
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), rebalance_timeout_ms=-1))


@case
def consumer_group_joined_with_partitions(t):
    topic = t.topic()
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), subscribed_topic_names=[topic], topic_partitions=owned(t, topic, 0)))
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), subscribed_topic_names=[topic], topic_partitions=None))


@case
def consumer_group_joined_without_a_subscription(t):
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), subscribed_topic_names=None))
    t.ask("ConsumerGroupHeartbeat", 0, beat(t.group(), subscribed_topic_names=None))


@case
def consumer_group_joined_for_no_topics(t):
    group = t.group()
    first = t.ask("ConsumerGroupHeartbeat", 1, beat(group))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=first["member_epoch"]))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_joined_for_a_topic_that_is_not_there(t):
    group = t.group()
    first = t.ask("ConsumerGroupHeartbeat", 1, beat(group, subscribed_topic_names=["peers-no-such-topic"]))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=first["member_epoch"]))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_asked_for_an_impossible_epoch(t):
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), epoch=-3))
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), epoch=-2))


@case
def consumer_group_that_nobody_knows(t):
    group = t.group()
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=1))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=-1))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=-2, instance_id="i"))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_member_that_nobody_knows(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic])
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "nobody", 1))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "nobody", -1))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "nobody", 1, instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "nobody", -1, instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "nobody", -2, instance_id="i"))


@case
def consumer_group_member_with_a_greater_epoch(t):
    topic, group = t.topic(), t.group()
    epoch = member(t, group, [topic])
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch + 1))


@case
def consumer_group_member_with_a_smaller_epoch(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    epoch = member(t, group, [topic])
    other = t.topic()
    t.settled(lambda: t.quiet("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, subscribed_topic_names=[topic, other]))["member_epoch"] > epoch)
    # The answer to that may have got lost: the member has nothing that is not its own.
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, topic_partitions=owned(t, other, 7)))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, topic_partitions=[{"topic_id": uuid.UUID(UNKNOWN_ID), "partitions": [0]}]))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, topic_partitions=owned(t, topic, 0, 1)), drop=("partitions", "topic_id"))


@case
def consumer_group_member_that_joins_again(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    member(t, group, [topic])
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, subscribed_topic_names=[topic]))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_member_that_claims_what_it_has_not(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    epoch = member(t, group, [topic])
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, topic_partitions=owned(t, topic, 5)))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, topic_partitions=owned(t, topic, -1)))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, topic_partitions=[{"topic_id": uuid.UUID(UNKNOWN_ID), "partitions": [0]}]))


@case
def consumer_group_member_that_says_everything_is_told_everything(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    epoch = member(t, group, [topic])
    whole = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic], "topic_partitions": owned(t, topic, 0, 1)}
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, **whole))
    for name in whole:
        t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, **{key: value for key, value in whole.items() if key != name}))


@case
def consumer_group_with_an_assignor_that_is_not_there(t):
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), server_assignor="sticky"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), server_assignor=""))
    t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), server_assignor="Range"))


@case
def consumer_group_with_the_range_assignor(t):
    topic, group = t.topic(3), t.group()
    t.id_of(topic)
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, subscribed_topic_names=[topic], server_assignor="range"))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_with_a_bad_expression(t):
    for text in ("(", "[a", "*", "a**", "(?<name", "(?=a)b", "(a)\\1", "\\", "a{2,1}", "a{1001}", "(?P<n>a)(?P<n>b)"):
        t.ask("ConsumerGroupHeartbeat", 1, beat(t.group(), subscribed_topic_names=None, subscribed_topic_regex=text), only=("error_code",))


@case
def consumer_group_with_an_expression(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    seen = {}

    def assigned():
        epoch = seen.get("member_epoch", 0)
        more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_regex": topic[:-1] + "[0-9]", "topic_partitions": [], "subscribed_topic_names": None}
        seen.update(t.quiet("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, **more)))
        return seen["assignment"] and seen["assignment"]["topic_partitions"]
    t.settled(assigned)
    t.note(assigned=sorted(partition for one in seen["assignment"]["topic_partitions"] for partition in one["partitions"]))


@case
def consumer_group_with_a_static_member(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    first = t.ask("ConsumerGroupHeartbeat", 1, beat(group, subscribed_topic_names=[topic], instance_id="i"))
    epoch = first["member_epoch"]
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", subscribed_topic_names=[topic], instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", epoch, instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", -1, instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", -2, instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m1", subscribed_topic_names=[topic], instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m1", epoch, instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m1", epoch))


@case
def consumer_group_static_member_that_comes_back(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    epoch = member(t, group, [topic], instance_id="i")
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=-2, instance_id="i"))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", subscribed_topic_names=[topic], instance_id="i"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m1", epoch, instance_id="i"))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_static_member_that_goes(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic], instance_id="i")
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=-1, instance_id="i"))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_member_leaves_for_a_while_without_an_instance(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic])
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=-2))


@case
def consumer_group_second_member_gets_its_part_when_the_first_gives_it_up(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    epoch = member(t, group, [topic])
    seen = {"second": member(t, group, [topic], "m2")}

    def asked_to_give_up():
        seen["first"] = t.quiet("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, topic_partitions=owned(t, topic, 0, 1)))
        return seen["first"]["assignment"]
    t.settled(asked_to_give_up)
    kept = seen["first"]["assignment"]["topic_partitions"][0]["partitions"]
    t.note(epoch=seen["first"]["member_epoch"] - epoch, kept=len(kept))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]}, only=("group_state", "group_epoch", "assignment_epoch", "member_epoch"), drop=("topic_partitions",))
    second = t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", seen["second"], topic_partitions=[]))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=epoch, topic_partitions=owned(t, topic, *kept)), drop=("partitions",))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", second["member_epoch"], topic_partitions=[]), drop=("partitions",))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]}, only=("group_state", "group_epoch", "assignment_epoch", "member_epoch"), drop=("topic_partitions",))


@case
def consumer_group_is_described_beside_others(t):
    topic, group, other = t.topic(), t.group(), t.group()
    t.id_of(topic)
    member(t, group, [topic])
    t.member(other)
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group, other, group]})
    t.ask("ConsumerGroupDescribe", 0, {"group_ids": []})
    t.ask("DescribeGroups", 5, {"groups": [group]})
    t.ask("DescribeGroups", 6, {"groups": [group]})


@case
def consumer_group_is_listed_by_type(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic])
    for types, states in ((["consumer"], []), (["Consumer"], ["stable"]), (["classic"], []), ([], ["Reconciling"]), (["consumer"], ["Empty"])):
        answer = t.quiet("ListGroups", 5, {"types_filter": types, "states_filter": states})
        t.note(types=types, states=states, found=[{key: one[key] for key in ("protocol_type", "group_state", "group_type")}
                                                 for one in answer["groups"] if one["group_id"] == group])


@case
def consumer_group_is_deleted_when_it_is_empty(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic])
    t.ask("DeleteGroups", 2, {"groups_names": [group]})
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, epoch=-1))
    t.ask("DeleteGroups", 2, {"groups_names": [group]})
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_offsets_need_the_epoch(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    epoch = member(t, group, [topic])
    for version in (8, 9):
        for who, when in (("m1", epoch), ("m1", epoch + 1), ("m1", epoch - 1), ("nobody", epoch), ("", -1), ("m1", -1)):
            t.ask("OffsetCommit", version, commit(group, topic, member=who, generation=when))


@case
def consumer_group_offsets_of_an_older_epoch(t):
    topic, other, group = t.topic(), t.topic(), t.group()
    epoch = member(t, group, [topic])
    seen = {"epoch": epoch}

    def newer():
        seen["epoch"] = t.quiet("ConsumerGroupHeartbeat", 1, beat(group, epoch=seen["epoch"], subscribed_topic_names=[topic, other]))["member_epoch"]
        return seen["epoch"] > epoch
    t.settled(newer)
    for name in (topic, other):
        t.ask("OffsetCommit", 9, commit(group, name, member="m1", generation=epoch))
        t.ask("OffsetCommit", 9, commit(group, name, member="m1", generation=seen["epoch"]))


@case
def consumer_group_offsets_of_a_group_that_nobody_knows(t):
    topic = t.topic()
    for version in (8, 9):
        t.ask("OffsetCommit", version, commit(t.group(), topic, member="m1", generation=3))


@case
def consumer_group_offsets_are_read_with_the_epoch(t):
    topic, group = t.topic(), t.group()
    epoch = member(t, group, [topic])
    t.quiet("OffsetCommit", 9, commit(group, topic, member="m1", generation=epoch))
    for who, when in (("m1", epoch), ("m1", epoch + 1), ("m1", epoch - 1), ("nobody", epoch), (None, -1), ("", -1), ("m1", -1), (None, epoch)):
        wish = {"group_id": group, "member_id": who, "member_epoch": when, "topics": [{"name": topic, "partition_indexes": [0]}]}
        t.ask("OffsetFetch", 9, {"groups": [wish]})


@case
def consumer_group_keeps_offsets_of_topics_that_are_read(t):
    topic, other, group = t.topic(), t.topic(), t.group()
    epoch = member(t, group, [topic])
    for name in (topic, other):
        t.quiet("OffsetCommit", 9, commit(group, name, member="m1", generation=epoch))
    parts = [{"partition_index": 0}]
    t.ask("OffsetDelete", 0, {"group_id": group, "topics": [{"name": topic, "partitions": parts}, {"name": other, "partitions": parts}]})


@case
def consumer_group_and_classic_requests_of_its_members(t):
    topic, group = t.topic(), t.group()
    epoch = member(t, group, [topic])
    t.ask("Heartbeat", 4, {"group_id": group, "generation_id": epoch, "member_id": "m1"})
    t.ask("SyncGroup", 5, {"group_id": group, "generation_id": epoch, "member_id": "m1", "protocol_type": "consumer", "protocol_name": "range"})
    t.ask("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": "nobody"}]})
    t.ask("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": "m1"}]})
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_joined_by_a_classic_member(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    member(t, group, [topic])
    first = t.ask("JoinGroup", 9, join(group, topics=[topic]))
    t.learn(first["member_id"], "<classic>")
    second = t.ask("JoinGroup", 9, join(group, first["member_id"], topics=[topic]))
    wish = {"group_id": group, "generation_id": second["generation_id"], "member_id": first["member_id"]}
    t.ask("Heartbeat", 4, wish)
    t.ask("Heartbeat", 4, {**wish, "generation_id": second["generation_id"] + 7})
    t.ask("SyncGroup", 5, {**wish, "protocol_type": "consumer", "protocol_name": "range"})
    t.ask("SyncGroup", 5, {**wish, "protocol_type": "connect", "protocol_name": "range"})
    t.ask("SyncGroup", 5, {**wish, "protocol_type": "consumer", "protocol_name": "roundrobin"})
    t.ask("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": first["member_id"]}]})


@case
def consumer_group_joined_by_a_classic_member_of_another_kind(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic])
    t.ask("JoinGroup", 9, join(group, kind="connect"))
    t.ask("JoinGroup", 9, join(group, "nobody", instance="i", topics=[topic]))
    t.ask("JoinGroup", 9, join(group, protocols=[]))


@case
def consumer_group_made_of_a_classic_one(t):
    topic, group = t.topic(2), t.group()
    t.id_of(topic)
    classic = t.quiet("JoinGroup", 9, join(group, topics=[topic]))["member_id"]
    joined = t.quiet("JoinGroup", 9, join(group, classic, topics=[topic]))
    t.learn(classic, "<classic>")
    mine = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
    t.quiet("SyncGroup", 5, {"group_id": group, "generation_id": joined["generation_id"], "member_id": classic, "protocol_type": "consumer",
                             "protocol_name": "range", "assignments": [{"member_id": classic, "assignment": mine}]})
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", 1))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", subscribed_topic_names=[topic]), drop=("partitions",))
    t.ask("Heartbeat", 4, {"group_id": group, "generation_id": joined["generation_id"], "member_id": classic})
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]}, drop=("partitions",))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, "m2", -1))
    t.ask("DescribeGroups", 6, {"groups": [group]}, only=("error_code", "group_state", "protocol_type"))


@case
def consumer_group_made_of_a_classic_one_of_another_kind(t):
    group = t.group()
    first = t.quiet("JoinGroup", 9, join(group, kind="connect"))["member_id"]
    t.quiet("JoinGroup", 9, join(group, first, kind="connect"))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group))


@case
def consumer_group_made_of_one_that_only_keeps_offsets(t):
    topic, group = t.topic(), t.group()
    t.quiet("OffsetCommit", 8, commit(group, topic))
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, subscribed_topic_names=[topic]), drop=("assignment",))
    t.ask("OffsetFetch", 8, {"groups": [{"group_id": group, "topics": None}]})


@case
def consumer_group_that_is_empty_is_joined_by_a_classic_member(t):
    topic, group = t.topic(), t.group()
    member(t, group, [topic])
    t.quiet("ConsumerGroupHeartbeat", 1, beat(group, epoch=-1))
    first = t.ask("JoinGroup", 9, join(group, topics=[topic]))
    t.ask("JoinGroup", 9, join(group, first["member_id"], topics=[topic]), drop=("metadata",))
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})


@case
def consumer_group_has_settings_of_its_own(t):
    topic, group = t.topic(), t.group()
    t.id_of(topic)
    change = [{"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "7000"}]
    t.ask("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 32, "resource_name": group, "configs": change}]})
    keys = ["consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "share.auto.offset.reset"]

    def changed():
        wish = {"resources": [{"resource_type": 32, "resource_name": group, "configuration_keys": keys[:1]}]}
        return t.quiet("DescribeConfigs", 4, wish)["results"][0]["configs"][0]["value"] == "7000"
    t.settled(changed)
    t.ask("DescribeConfigs", 4, {"resources": [{"resource_type": 32, "resource_name": group, "configuration_keys": keys}], "include_synonyms": True})
    t.ask("ConsumerGroupHeartbeat", 1, beat(group, subscribed_topic_names=[topic]))


@case
def settings_of_a_group_that_are_not_possible(t):
    for name, value in (("consumer.heartbeat.interval.ms", "4999"), ("consumer.heartbeat.interval.ms", "15001"), ("consumer.session.timeout.ms", "44999"),
                        ("consumer.session.timeout.ms", "soon"), ("consumer.assignment.interval.ms", "-1"), ("share.auto.offset.reset", "never"),
                        ("share.auto.offset.reset", "by_duration:PT1H"), ("share.auto.offset.reset", "by_duration:-PT1H"), ("share.isolation.level", "none"),
                        ("share.delivery.count.limit", "11"), ("share.delivery.count.limit", "10"), ("share.record.lock.duration.ms", "14999"),
                        ("share.partition.max.record.locks", "99"), ("share.renew.acknowledge.enable", "maybe"), ("retention.ms", "1"), ("no.such", "1")):
        change = [{"name": name, "config_operation": 0, "value": value}]
        t.ask("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 32, "resource_name": t.group(), "configs": change}]}, only=("error_code",))


@case
def settings_of_a_group_without_a_name(t):
    change = [{"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "7000"}]
    t.ask("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 32, "resource_name": "", "configs": change}]})
    t.ask("DescribeConfigs", 4, {"resources": [{"resource_type": 32, "resource_name": "", "configuration_keys": None}]})


@case
def settings_of_a_group_are_deleted(t):
    group = t.group()
    for operation in (0, 1, 1):
        change = [{"name": "share.auto.offset.reset", "config_operation": operation, "value": "earliest" if operation == 0 else None}]
        t.ask("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 32, "resource_name": group, "configs": change}]})
    change = [{"name": "share.auto.offset.reset", "config_operation": 2, "value": "earliest"}]
    t.ask("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 32, "resource_name": group, "configs": change}]})


@case
def consumer_group_commits_in_a_transaction(t):
    topic, group = t.topic(), t.group()
    epoch = member(t, group, [topic])
    tx = begun(t)
    t.quiet("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    for number in (epoch, epoch + 1, 1):
        commit_in(t, tx, group, topic, generation_id=number, member_id="m1")
    commit_in(t, tx, group, topic, generation_id=epoch, member_id="nobody")
