"""StreamsGroupHeartbeat and StreamsGroupDescribe, and what other requests make of such groups."""

from client import join
from . import case
from .configs import GROUP
from .consumer_groups import beat as consumer_beat
from .consumer_groups import commit
from .transactions import begun, of
from .transactions import commit as commit_in

EPOCHS = ("member_epoch", "group_epoch", "assignment_epoch", "endpoint_information_epoch")


def internal(name, partitions=0, **configs):
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "partitions": partitions, "topic_configs": pairs}


def part(number, sources=(), sinks=(), repartition=(), changelogs=(), together=(), regex=()):
    return {"subtopology_id": str(number), "source_topics": list(sources), "repartition_sink_topics": list(sinks),
            "repartition_source_topics": list(repartition), "state_changelog_topics": list(changelogs),
            "copartition_groups": list(together), "source_topic_regex": list(regex)}


def topology(*parts, epoch=0):
    return {"epoch": epoch, "subtopologies": list(parts)}


def beat(group, member="m1", epoch=0, **more):
    """A heartbeat; one with epoch 0 says all that a joining member says."""
    wish = {"group_id": group, "member_id": member, "member_epoch": epoch}
    if epoch == 0:
        wish |= {"rebalance_timeout_ms": 60_000, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": f"process of {member}",
                 "topology": topology()}
    return wish | more


def tasks(**of):
    return [{"subtopology_id": key.strip("s"), "partitions": list(partitions)} for key, partitions in of.items()]


def at_once(t, group):
    """The group does not wait for more members."""
    configs = [{"name": f"streams.{name}", "config_operation": 0, "value": "0"} for name in ("initial.rebalance.delay.ms", "assignment.interval.ms")]
    wish = {"resources": [{"resource_type": GROUP, "resource_name": group, "configs": configs}]}
    answer = t.quiet("IncrementalAlterConfigs", 1, wish)
    assert answer["responses"][0]["error_code"] == 0, answer

    def known():
        asked = {"resources": [{"resource_type": GROUP, "resource_name": group, "configuration_keys": ["streams.initial.rebalance.delay.ms"]}]}
        return t.quiet("DescribeConfigs", 4, asked)["results"][0]["configs"][0]["value"] == "0"
    t.settled(known)


def group_of(t):
    group = t.group()
    at_once(t, group)
    return group


def counting(t, source):
    """Reads a topic, writes another, counts what comes back; and the names of its internal topics."""
    again, kept = t.unique("repartition"), t.unique("changelog")
    return topology(part(0, [source], [again]),
                    part(1, repartition=[internal(again, retention_ms="-1")], changelogs=[internal(kept, cleanup_policy="compact")])), again, kept


def member(t, group, wish, name="m1", **more):
    """Joins without leaving a trace, and says that it is alive until it has tasks; the epoch."""
    seen = t.quiet("StreamsGroupHeartbeat", 0, beat(group, name, topology=wish, **more))
    assert seen["error_code"] == 0, seen

    def assigned():
        seen.update(t.quiet("StreamsGroupHeartbeat", 0, beat(group, name, seen["member_epoch"])))
        assert seen["error_code"] == 0, seen
        return not seen["status"]
    if seen["status"]:
        t.settled(assigned)
    return seen["member_epoch"]


@case
def streams_group_of_one_member(t):
    source, group = t.topic(3), group_of(t)
    wish, again, kept = counting(t, source)
    first = t.ask("StreamsGroupHeartbeat", 0, beat(group, topology=wish))
    t.described(again, 3)
    t.described(kept, 3)
    seen = dict(first)

    def assigned():
        seen.update(t.quiet("StreamsGroupHeartbeat", 0, beat(group, epoch=seen["member_epoch"])))
        return seen["active_tasks"]
    t.settled(assigned)
    owned = {"active_tasks": tasks(s0=[0, 1, 2], s1=[0, 1, 2]), "standby_tasks": [], "warmup_tasks": []}
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=seen["member_epoch"], **owned), drop=EPOCHS)
    t.ask("StreamsGroupHeartbeat", 0, beat(group, topology=wish), drop=EPOCHS)
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]}, drop=EPOCHS)
    t.ask("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": kept, "configuration_keys": ["cleanup.policy"]}]})
    for types, states in ((["streams"], ["stable"]), (["Streams"], []), (["consumer"], []), ([], ["Empty"])):
        listed = t.quiet("ListGroups", 5, {"types_filter": types, "states_filter": states})["groups"]
        t.note(types=types, states=states, listed=[[one["protocol_type"], one["group_state"], one["group_type"]] for one in listed if one["group_id"] == group])
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=-1))
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]}, drop=EPOCHS)


@case
def streams_group_waits_for_more_members(t):
    group, source = t.group(), t.topic()
    t.ask("StreamsGroupHeartbeat", 0, beat(group, topology=topology(part(0, [source]))))
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]})
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "m2", topology=topology(part(0, [source]))))


@case
def streams_group_of_two_members(t):
    source, group = t.topic(2), group_of(t)
    wish = topology(part(0, [source]))
    first = member(t, group, wish)
    second = t.ask("StreamsGroupHeartbeat", 0, beat(group, "m2", topology=wish), drop=EPOCHS)
    has = {"active_tasks": tasks(s0=[0, 1]), "standby_tasks": [], "warmup_tasks": []}
    told = t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=first, **has), drop=EPOCHS, only=("error_code", "status"))
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]}, drop=(*EPOCHS, "partitions"))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "m2", second["member_epoch"]), drop=EPOCHS)
    left = told["active_tasks"]
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=first, active_tasks=left, standby_tasks=[], warmup_tasks=[]), drop=EPOCHS)
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "m2", second["member_epoch"]), drop=(*EPOCHS, "partitions"))
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]}, drop=(*EPOCHS, "partitions"))


@case
def streams_group_without_names(t):
    t.ask("StreamsGroupHeartbeat", 0, beat(""))
    t.ask("StreamsGroupHeartbeat", 0, beat(" "))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), ""))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), " "))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), rack_id=""))
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [""]})


@case
def streams_group_joined_with_static_membership(t):
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), instance_id="i"))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), instance_id=""))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), epoch=-2, instance_id="i"))


@case
def streams_group_asked_for_what_is_not_there_yet(t):
    offset = [{"subtopology_id": "0", "partition": 0, "offset": 5}]
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), task_offsets=offset))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), task_end_offsets=[]))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), warmup_tasks=tasks(s0=[0])))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), topology=topology(part(0, regex=["a.*"]))))


@case
def streams_group_joined_with_half_a_request(t):
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), rebalance_timeout_ms=-1))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), active_tasks=tasks(s0=[0])))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), active_tasks=None))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), standby_tasks=tasks(s0=[0])))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), standby_tasks=None))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), warmup_tasks=None))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), topology=None))


@case
def streams_group_asked_for_an_impossible_epoch(t):
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), epoch=-2))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), epoch=-3))


@case
def streams_group_told_half_of_the_tasks(t):
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), epoch=1, active_tasks=[]))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), epoch=1, standby_tasks=[], warmup_tasks=[]))
    t.ask("StreamsGroupHeartbeat", 0, beat(t.group(), epoch=1, topology=topology()))


@case
def streams_group_that_nobody_knows(t):
    group = t.group()
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=1))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=-1))
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]})


@case
def streams_group_member_that_nobody_knows(t):
    group = group_of(t)
    member(t, group, topology(part(0, [t.topic()])))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "nobody", 1))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "nobody", -1))


@case
def streams_group_member_with_another_epoch(t):
    group = group_of(t)
    epoch = member(t, group, topology(part(0, [t.topic()])))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch + 1))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch + 1000))


@case
def streams_group_member_with_tasks_that_are_none(t):
    source, group = t.topic(2), group_of(t)
    epoch = member(t, group, topology(part(0, [source])))
    for has in (tasks(s7=[0]), tasks(s0=[2]), tasks(s0=[-1])):
        t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch, active_tasks=has, standby_tasks=[], warmup_tasks=[]))
        t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch, active_tasks=[], standby_tasks=has, warmup_tasks=[]))


@case
def streams_group_whose_topics_are_missing(t):
    group = group_of(t)
    first = t.ask("StreamsGroupHeartbeat", 0, beat(group, topology=topology(part(0, ["peers-no-such-topic"]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=first["member_epoch"]))
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]})


@case
def streams_group_whose_topics_do_not_fit(t):
    two, three, kept = t.topic(2), t.topic(3), t.topic(5)
    together = [{"source_topics": [0, 1]}]
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [two, three], together=together))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [two], changelogs=[internal(kept)]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [two], [kept]), part(1, repartition=[internal(kept)]))))
    again = t.unique("repartition")
    beside = part(1, [three], repartition=[internal(again, 4)], together=[{"source_topics": [0], "repartition_source_topics": [0]}])
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [two], [again]), beside)))


@case
def streams_group_decides_numbers_of_partitions(t):
    two, three, group = t.topic(2), t.topic(3), group_of(t)
    flexible, firm, kept = t.unique("repartition"), t.unique("repartition"), t.unique("changelog")
    beside = part(1, [three], repartition=[internal(flexible)], changelogs=[internal(kept)],
                  together=[{"source_topics": [0], "repartition_source_topics": [0]}])
    wish = topology(part(0, [two], [flexible, firm]), beside, part(2, repartition=[internal(firm, 5)]))
    member(t, group, wish)
    t.settled(lambda: t.quiet("StreamsGroupDescribe", 0, {"group_ids": [group]})["groups"][0]["group_state"] == "Stable")
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]}, drop=EPOCHS)
    t.ask("StreamsGroupHeartbeat", 0, beat(group, topology=wish), drop=EPOCHS)


@case
def streams_group_with_a_topology_that_is_none(t):
    source, x, y = t.topic(), t.unique("repartition"), t.unique("repartition")
    circle = topology(part(0, sinks=[y], repartition=[internal(x)]), part(1, sinks=[x], repartition=[internal(y)]))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=circle))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, repartition=[internal(x)]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, changelogs=[internal(x)]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [source], changelogs=[internal(x, 3)]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, ["a/b"]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [source], ["__consumer_offsets"]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [source], changelogs=[internal("")]))))


@case
def streams_group_with_an_impossible_topology(t):
    source, x = t.topic(), t.unique("repartition")
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [source]), part(0, [source]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [source]), epoch=-1)))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [source], together=[{"source_topics": [7]}]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [source], together=[{"source_topics": [-1]}]))))
    t.ask("StreamsGroupHeartbeat", 0, beat(group_of(t), topology=topology(part(0, [source], repartition=[internal(x, -5)]))))


@case
def streams_group_without_subtopologies(t):
    group = group_of(t)
    first = t.ask("StreamsGroupHeartbeat", 0, beat(group))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=first["member_epoch"]))
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]})


@case
def streams_group_with_another_topology(t):
    source, other, group = t.topic(), t.topic(), group_of(t)
    epoch = member(t, group, topology(part(0, [source]), epoch=3))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "m2", topology=topology(part(0, [other]), epoch=3)))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "m2", topology=topology(part(0, [source]), epoch=4)))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "m2", topology=topology(part(0, [other]), epoch=2)), drop=EPOCHS)
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch), drop=EPOCHS)


@case
def streams_group_to_be_stopped(t):
    group, wish = group_of(t), topology(part(0, [t.topic()]))
    epoch = member(t, group, wish)
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch, shutdown_application=True))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch))
    t.ask("StreamsGroupHeartbeat", 0, beat(group, "m2", topology=wish), drop=EPOCHS)


@case
def streams_group_with_endpoints(t):
    source, group = t.topic(2), group_of(t)
    wish = topology(part(0, [source]))
    epoch = member(t, group, wish, user_endpoint={"host": "here", "port": 80})
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch, endpoint_information_epoch=-1), drop=EPOCHS)
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]}, drop=EPOCHS)


@case
def streams_group_and_other_groups(t):
    topic, group, consumers, classic = t.topic(), group_of(t), t.group(), t.group()
    wish = topology(part(0, [topic]))
    epoch = member(t, group, wish)
    t.quiet("ConsumerGroupHeartbeat", 1, consumer_beat(consumers))
    t.member(classic)
    t.ask("StreamsGroupHeartbeat", 0, beat(consumers, topology=wish))
    t.ask("StreamsGroupHeartbeat", 0, beat(classic, topology=wish))
    t.ask("StreamsGroupHeartbeat", 0, beat(classic, epoch=1))
    t.ask("ConsumerGroupHeartbeat", 1, consumer_beat(group))
    t.ask("ConsumerGroupHeartbeat", 1, consumer_beat(group, epoch=-1))
    t.ask("ShareGroupHeartbeat", 1, {"group_id": group, "member_id": "m9", "member_epoch": 0, "subscribed_topic_names": [topic]})
    t.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]})
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [consumers, classic]})
    t.ask("DescribeGroups", 6, {"groups": [group]})
    t.ask("JoinGroup", 9, join(group, topics=[topic]), drop=("member_id",))
    t.ask("SyncGroup", 5, {"group_id": group, "generation_id": 1, "member_id": "m1", "protocol_type": "consumer", "protocol_name": "range"})
    t.ask("Heartbeat", 4, {"group_id": group, "generation_id": 1, "member_id": "m1"})
    t.ask("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": "m1"}]})
    t.ask("DeleteGroups", 2, {"groups_names": [group]})
    t.ask("StreamsGroupHeartbeat", 0, beat(group, epoch=epoch), drop=EPOCHS)


@case
def streams_group_that_is_empty_becomes_another(t):
    source, group = t.topic(), group_of(t)
    member(t, group, topology(part(0, [source])))
    t.quiet("StreamsGroupHeartbeat", 0, beat(group, epoch=-1))
    t.ask("ConsumerGroupHeartbeat", 1, consumer_beat(group))
    t.ask("JoinGroup", 9, join(group, topics=[source]), only=("error_code",))
    t.ask("DeleteGroups", 2, {"groups_names": [group]})


@case
def streams_group_commits(t):
    source, other, group = t.topic(), t.topic(), group_of(t)
    epoch = member(t, group, topology(part(0, [source])))
    t.ask("OffsetCommit", 9, commit(group, source, "m1", epoch))
    t.ask("OffsetCommit", 9, commit(group, other, "m1", epoch))
    t.ask("OffsetCommit", 8, commit(group, source, "m1", epoch))
    t.ask("OffsetCommit", 9, commit(group, source, "m1", epoch + 1))
    t.ask("OffsetCommit", 9, commit(group, source, "m1", 1))
    t.ask("OffsetCommit", 9, commit(group, other, "m1", 1))
    t.ask("OffsetCommit", 9, commit(group, source, "nobody", epoch))
    t.ask("OffsetCommit", 9, commit(group, source))
    for name, number in ((None, -1), ("m1", epoch), ("m1", epoch + 1), ("nobody", epoch)):
        asked = [{"name": source, "partition_indexes": [0]}]
        t.ask("OffsetFetch", 9, {"groups": [{"group_id": group, "member_id": name, "member_epoch": number, "topics": asked}]})
    t.ask("OffsetDelete", 0, {"group_id": group, "topics": [{"name": name, "partitions": [{"partition_index": 0}]} for name in (source, other)]})
    t.quiet("StreamsGroupHeartbeat", 0, beat(group, epoch=-1))
    t.ask("OffsetCommit", 9, commit(group, source))
    t.ask("OffsetDelete", 0, {"group_id": group, "topics": [{"name": source, "partitions": [{"partition_index": 0}]}]})
    t.ask("DeleteGroups", 2, {"groups_names": [group]})
    t.ask("StreamsGroupDescribe", 0, {"group_ids": [group]})


@case
def streams_group_commits_in_a_transaction(t):
    source, other, group = t.topic(), t.topic(), group_of(t)
    epoch = member(t, group, topology(part(0, [source])))
    tx = begun(t)
    t.quiet("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    for topic in (source, other):
        for number in (epoch, epoch + 1, 1):
            commit_in(t, tx, group, topic, generation_id=number, member_id="m1")
    commit_in(t, tx, group, source, generation_id=epoch, member_id="nobody")
    commit_in(t, tx, group, source)


@case
def streams_group_settings(t):
    group = t.group()
    names = [f"streams.{name}" for name in ("session.timeout.ms", "heartbeat.interval.ms", "num.standby.replicas", "initial.rebalance.delay.ms",
                                            "assignment.interval.ms")]
    t.ask("DescribeConfigs", 4, {"resources": [{"resource_type": GROUP, "resource_name": group, "configuration_keys": names}], "include_synonyms": True})
    for name, value in (("session.timeout.ms", "1000"), ("session.timeout.ms", "60001"), ("session.timeout.ms", "50000"), ("heartbeat.interval.ms", "4999"),
                        ("heartbeat.interval.ms", "15001"), ("num.standby.replicas", "3"), ("num.standby.replicas", "-1"), ("num.standby.replicas", "2"),
                        ("initial.rebalance.delay.ms", "-1"), ("initial.rebalance.delay.ms", "60000"), ("assignment.interval.ms", "15001"),
                        ("num.warmup.replicas", "1")):
        configs = [{"name": f"streams.{name}", "config_operation": 0, "value": value}]
        t.ask("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": GROUP, "resource_name": group, "configs": configs}]})
