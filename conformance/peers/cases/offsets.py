"""OffsetCommit, OffsetFetch, OffsetDelete."""

from . import UNKNOWN_ID, case


def commit(t, group, topic, offset=5, partition=0, version=8, member="", generation=-1, metadata="", instance=None, by_id=False):
    part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    body = {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": member,
            "topics": [{"topic_id" if by_id else "name": topic, "partitions": [part]}]}
    if instance:
        body["group_instance_id"] = instance
    return t.ask("OffsetCommit", version, body)


def committed(t, group, topic, partition=0, version=7, topics=True):
    wanted = [{"name": topic, "partition_indexes": [partition]}] if topics else None
    if version < 8:
        return t.ask("OffsetFetch", version, {"group_id": group, "topics": wanted})
    return t.ask("OffsetFetch", version, {"groups": [{"group_id": group, "topics": wanted}]})


@case
def commit_in_every_version(t):
    topic = t.topic()
    for version in range(2, 10):
        commit(t, t.group(), topic, version=version)


@case
def commit_by_topic_id(t):
    topic, group = t.topic(), t.group()
    commit(t, group, t.id_of(topic), version=10, by_id=True)
    committed(t, group, topic)


@case
def commit_to_an_unknown_topic_id(t):
    commit(t, t.group(), t.learn(UNKNOWN_ID, "<unknown id>"), version=10, by_id=True)


@case
def commit_and_fetch_in_every_version(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic, 7, metadata="note")
    for version in range(1, 10):
        committed(t, group, topic, version=version)


@case
def commit_to_an_unknown_topic(t):
    commit(t, t.group(), t.unique("topic"))


@case
def commit_to_an_unknown_partition(t):
    commit(t, t.group(), t.topic(), partition=9)


@case
def commit_to_a_negative_partition(t):
    commit(t, t.group(), t.topic(), partition=-1)


@case
def commit_a_negative_offset(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic, -1)
    commit(t, group, topic, -7)
    committed(t, group, topic)


@case
def commit_an_offset_beyond_the_end(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic, 1 << 60)
    committed(t, group, topic)


@case
def commit_metadata_too_long(t):
    commit(t, t.group(), t.topic(), metadata="x" * 4097)


@case
def commit_metadata_of_the_largest_length(t):
    commit(t, t.group(), t.topic(), metadata="x" * 4096)


@case
def commit_null_metadata(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic, metadata=None)
    committed(t, group, topic)


@case
def commit_without_a_group(t):
    commit(t, "", t.topic())
    t.quiet("DeleteGroups", 2, {"groups_names": [""]})


@case
def commit_nothing(t):
    t.ask("OffsetCommit", 8, {"group_id": t.group(), "topics": []})


@case
def commit_as_a_member_nobody_knows(t):
    commit(t, t.group(), t.topic(), member="nobody", generation=3)


@case
def commit_of_a_generation_without_a_member(t):
    commit(t, t.group(), t.topic(), generation=3)


@case
def commit_of_an_old_generation(t):
    topic, group = t.topic(), t.group()
    member, generation = t.member(group)
    commit(t, group, topic, member=member, generation=generation - 1)
    commit(t, group, topic, member=member, generation=generation + 1)
    commit(t, group, topic, member=member, generation=generation)


@case
def commit_without_a_member_to_a_group_with_members(t):
    topic, group = t.topic(), t.group()
    t.member(group)
    commit(t, group, topic)


@case
def commit_as_another_member(t):
    topic, group = t.topic(), t.group()
    _, generation = t.member(group)
    commit(t, group, topic, member="nobody", generation=generation)


@case
def commit_as_an_instance_nobody_knows(t):
    topic, group = t.topic(), t.group()
    member, generation = t.member(group)
    commit(t, group, topic, member=member, generation=generation, instance="nobody")


@case
def commit_good_and_bad_partitions(t):
    topic = t.topic()
    parts = [{"partition_index": at, "committed_offset": 1, "committed_metadata": ""} for at in (0, 4)]
    t.ask("OffsetCommit", 8, {"group_id": t.group(), "topics": [{"name": topic, "partitions": parts}]})


@case
def committed_of_an_unknown_group(t):
    topic, group = t.topic(), t.group()
    for version in (1, 2, 5, 7, 8, 9):
        committed(t, group, topic, version=version)


@case
def committed_of_all_topics_of_an_unknown_group(t):
    committed(t, t.group(), None, topics=False)
    committed(t, t.group(), None, topics=False, version=8)


@case
def committed_of_all_topics(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic)
    committed(t, group, None, topics=False)
    committed(t, group, None, topics=False, version=9)


@case
def committed_of_an_empty_group_id(t):
    committed(t, "", t.topic())


@case
def committed_of_an_unknown_topic(t):
    committed(t, t.group(), t.unique("topic"))


@case
def committed_of_no_topic(t):
    t.ask("OffsetFetch", 7, {"group_id": t.group(), "topics": []})


@case
def committed_of_two_groups(t):
    topic, one, other = t.topic(), t.group(), t.group()
    commit(t, one, topic)
    wanted = [{"name": topic, "partition_indexes": [0, 1]}]
    t.ask("OffsetFetch", 8, {"groups": [{"group_id": one, "topics": wanted}, {"group_id": other, "topics": wanted}]})


@case
def committed_by_topic_id(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic)
    wanted = [{"topic_id": t.id_of(topic), "partition_indexes": [0]}]
    t.ask("OffsetFetch", 10, {"groups": [{"group_id": group, "topics": wanted}]})


@case
def committed_by_an_unknown_topic_id(t):
    wanted = [{"topic_id": t.learn(UNKNOWN_ID, "<unknown id>"), "partition_indexes": [0]}]
    t.ask("OffsetFetch", 10, {"groups": [{"group_id": t.group(), "topics": wanted}]})


@case
def committed_as_a_member_nobody_knows(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic)
    wanted = [{"name": topic, "partition_indexes": [0]}]
    t.ask("OffsetFetch", 9, {"groups": [{"group_id": group, "member_id": "nobody", "member_epoch": 4, "topics": wanted}]})


@case
def committed_when_stable(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic)
    t.ask("OffsetFetch", 7, {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}], "require_stable": True})


def forget(t, group, topic, partition=0):
    t.ask("OffsetDelete", 0, {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": partition}]}]})


@case
def forget_an_offset(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic)
    forget(t, group, topic)
    committed(t, group, topic)


@case
def forget_an_offset_that_was_not_committed(t):
    topic, group = t.topic(2), t.group()
    commit(t, group, topic)
    forget(t, group, topic, 1)


@case
def forget_an_offset_of_an_unknown_group(t):
    forget(t, t.group(), t.topic())


@case
def forget_an_offset_of_an_unknown_topic(t):
    group = t.group()
    commit(t, group, t.topic())
    forget(t, group, t.unique("topic"))


@case
def forget_an_offset_of_an_unknown_partition(t):
    topic, group = t.topic(), t.group()
    commit(t, group, topic)
    forget(t, group, topic, 8)


@case
def forget_an_offset_of_an_empty_group_id(t):
    forget(t, "", t.topic())


@case
def forget_an_offset_of_a_subscribed_topic(t):
    topic, group = t.topic(), t.group()
    member, generation = t.member(group, topics=[topic])
    commit(t, group, topic, member=member, generation=generation)
    forget(t, group, topic)


@case
def forget_an_offset_of_a_topic_not_subscribed(t):
    topic, other, group = t.topic(), t.topic(), t.group()
    member, generation = t.member(group, topics=[other])
    commit(t, group, topic, member=member, generation=generation)
    forget(t, group, topic)
