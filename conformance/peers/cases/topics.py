"""CreateTopics, DeleteTopics, CreatePartitions, Metadata."""

from . import UNKNOWN_ID, case

FEW = ("configs",)


def create(t, name=None, partitions=1, replication=1, version=7, configs=(), assignments=(), validate=False, drop=FEW, times=1):
    wish = {"name": name if name is not None else t.unique("topic"), "num_partitions": partitions, "replication_factor": replication,
            "configs": [{"name": key, "value": value} for key, value in configs],
            "assignments": [{"partition_index": at, "broker_ids": ids} for at, ids in assignments]}
    return t.ask("CreateTopics", version, {"topics": [wish] * times, "timeout_ms": 15_000, "validate_only": validate}, drop=drop)


def node(t):
    return t.quiet("Metadata", 1, {"topics": []})["brokers"][0]["node_id"]


@case
def create_in_every_version(t):
    for version in range(2, 8):
        create(t, version=version)


@case
def create_twice(t):
    create(t, t.topic())


@case
def create_the_same_twice_in_a_request(t):
    create(t, times=2)


@case
def create_with_default_counts(t):
    create(t, partitions=-1, replication=-1)


@case
def create_with_default_counts_before_version_4(t):
    create(t, partitions=-1, replication=-1, version=3)


@case
def create_with_0_partitions(t):
    create(t, partitions=0)


@case
def create_with_minus_2_partitions(t):
    create(t, partitions=-2)


@case
def create_with_0_replicas(t):
    create(t, replication=0)


@case
def create_with_minus_2_replicas(t):
    create(t, replication=-2)


@case
def create_with_2_replicas(t):
    create(t, replication=2)


@case
def create_with_an_empty_name(t):
    create(t, "")


@case
def create_with_a_dot_as_name(t):
    create(t, ".")
    create(t, "..")


@case
def create_with_a_slash_in_the_name(t):
    create(t, "a/b")


@case
def create_with_a_blank_in_the_name(t):
    create(t, "a b")


@case
def create_with_an_umlaut_in_the_name(t):
    create(t, "bücher")


@case
def create_with_a_name_of_249(t):
    create(t, t.learn(f"peers-{t.token}-".ljust(249, "x"), "<long topic>"))


@case
def create_with_a_name_of_250(t):
    create(t, t.learn(f"peers-{t.token}-".ljust(250, "x"), "<longer topic>"))


@case
def create_names_that_differ_in_a_dot(t):
    name = t.unique("topic")
    create(t, t.learn(name + "-a.b", "<topic with a dot>"))
    create(t, t.learn(name + "-a_b", "<topic with an underscore>"))


@case
def create_with_an_unknown_setting(t):
    create(t, configs=[("no.such.setting", "1")])


@case
def create_with_a_setting_of_no_number(t):
    create(t, configs=[("retention.ms", "soon")])


@case
def create_with_a_setting_out_of_range(t):
    create(t, configs=[("retention.ms", "-2")])
    create(t, configs=[("segment.bytes", "0")])
    create(t, configs=[("min.insync.replicas", "0")])
    create(t, configs=[("max.message.bytes", "-1")])
    create(t, configs=[("min.cleanable.dirty.ratio", "1.5")])


@case
def create_with_a_setting_that_is_no_choice(t):
    create(t, configs=[("cleanup.policy", "shred")])
    create(t, configs=[("compression.type", "rar")])
    create(t, configs=[("message.timestamp.type", "Never")])
    create(t, configs=[("unclean.leader.election.enable", "perhaps")])


@case
def create_with_a_null_setting(t):
    create(t, configs=[("retention.ms", None)])


@case
def create_with_an_empty_setting_name(t):
    create(t, configs=[("", "1")])


@case
def create_with_a_setting_given_twice(t):
    create(t, configs=[("retention.ms", "1000"), ("retention.ms", "2000")])


@case
def create_with_every_setting_of_a_topic(t):
    create(t, configs=[
        ("cleanup.policy", "compact,delete"), ("compression.type", "producer"), ("delete.retention.ms", "1000"),
        ("file.delete.delay.ms", "1000"), ("flush.messages", "10"), ("flush.ms", "1000"), ("index.interval.bytes", "4096"),
        ("max.compaction.lag.ms", "100000"), ("max.message.bytes", "10000"), ("message.timestamp.after.max.ms", "1000"),
        ("message.timestamp.before.max.ms", "1000"), ("message.timestamp.type", "CreateTime"), ("min.cleanable.dirty.ratio", "0.7"),
        ("min.compaction.lag.ms", "10"), ("min.insync.replicas", "1"), ("preallocate", "true"), ("retention.bytes", "1000000"),
        ("retention.ms", "60000"), ("segment.bytes", "1048576"), ("segment.index.bytes", "10000"), ("segment.jitter.ms", "10"),
        ("segment.ms", "60000"), ("unclean.leader.election.enable", "false")])


@case
def create_with_a_compression_of_the_topic(t):
    create(t, configs=[("compression.type", "gzip")])


@case
def create_with_an_empty_cleanup_policy(t):
    create(t, configs=[("cleanup.policy", "")])


@case
def create_only_validated(t):
    name = t.unique("topic")
    create(t, name, partitions=3, validate=True)
    t.ask("Metadata", 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False}, drop=("brokers",))


@case
def create_only_validated_and_bad(t):
    create(t, partitions=0, validate=True)
    create(t, replication=2, validate=True)
    create(t, configs=[("retention.ms", "soon")], validate=True)
    create(t, t.topic(), validate=True)


@case
def create_with_assignments(t):
    one = node(t)
    create(t, partitions=-1, replication=-1, assignments=[(0, [one]), (1, [one])])


@case
def create_with_assignments_and_counts(t):
    create(t, partitions=1, replication=1, assignments=[(0, [node(t)])])


@case
def create_with_assignments_that_have_a_gap(t):
    one = node(t)
    create(t, partitions=-1, replication=-1, assignments=[(0, [one]), (2, [one])])


@case
def create_with_assignments_to_an_unknown_node(t):
    create(t, partitions=-1, replication=-1, assignments=[(0, [4242])])


@case
def create_with_assignments_to_one_node_twice(t):
    one = node(t)
    create(t, partitions=-1, replication=-1, assignments=[(0, [one, one])])


@case
def create_with_assignments_to_no_node(t):
    create(t, partitions=-1, replication=-1, assignments=[(0, [])])


@case
def create_nothing(t):
    t.ask("CreateTopics", 7, {"topics": [], "timeout_ms": 1000})


@case
def create_good_and_bad_in_a_request(t):
    topics = [{"name": t.unique("topic"), "num_partitions": count, "replication_factor": 1} for count in (1, 0, 2)]
    t.ask("CreateTopics", 7, {"topics": topics, "timeout_ms": 15_000}, drop=FEW)


@case
def delete_in_every_version(t):
    for version in range(1, 6):
        t.ask("DeleteTopics", version, {"topic_names": [t.topic()], "timeout_ms": 15_000})
    t.ask("DeleteTopics", 6, {"topics": [{"name": t.topic()}], "timeout_ms": 15_000})


@case
def delete_an_unknown_topic(t):
    t.ask("DeleteTopics", 5, {"topic_names": [t.unique("topic")], "timeout_ms": 15_000})
    t.ask("DeleteTopics", 6, {"topics": [{"name": t.unique("topic")}], "timeout_ms": 15_000})


@case
def delete_by_id(t):
    t.ask("DeleteTopics", 6, {"topics": [{"name": None, "topic_id": t.id_of(t.topic())}], "timeout_ms": 15_000})


@case
def delete_by_an_unknown_id(t):
    t.learn(UNKNOWN_ID, "<unknown id>")
    t.ask("DeleteTopics", 6, {"topics": [{"name": None, "topic_id": UNKNOWN_ID}], "timeout_ms": 15_000})


@case
def delete_by_name_and_id(t):
    topic = t.topic()
    t.ask("DeleteTopics", 6, {"topics": [{"name": topic, "topic_id": t.id_of(topic)}], "timeout_ms": 15_000})


@case
def delete_by_neither_name_nor_id(t):
    t.ask("DeleteTopics", 6, {"topics": [{"name": None}], "timeout_ms": 15_000})


@case
def delete_twice_in_a_request(t):
    topic = t.topic()
    t.ask("DeleteTopics", 6, {"topics": [{"name": topic}] * 2, "timeout_ms": 15_000})


@case
def delete_nothing(t):
    t.ask("DeleteTopics", 5, {"topic_names": [], "timeout_ms": 15_000})


@case
def delete_and_create_again(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("DeleteTopics", 5, {"topic_names": [topic], "timeout_ms": 15_000})
    create(t, topic)
    t.described(topic)
    t.ask("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]})


def grow(t, topic, count, assignments=None, validate=False, version=3):
    t.ask("CreatePartitions", version, {"topics": [{"name": topic, "count": count, "assignments": assignments}],
                                        "timeout_ms": 15_000, "validate_only": validate})


@case
def partitions_in_every_version(t):
    topic = t.topic()
    for version in range(4):
        grow(t, topic, version + 2, version=version)


@case
def partitions_as_many(t):
    grow(t, t.topic(2), 2)


@case
def partitions_fewer(t):
    grow(t, t.topic(2), 1)


@case
def partitions_none(t):
    grow(t, t.topic(), 0)
    grow(t, t.topic(), -1)


@case
def partitions_of_an_unknown_topic(t):
    grow(t, t.unique("topic"), 3)


@case
def partitions_with_assignments(t):
    grow(t, t.topic(), 2, [{"broker_ids": [node(t)]}])


@case
def partitions_with_too_few_assignments(t):
    grow(t, t.topic(), 3, [{"broker_ids": [node(t)]}])


@case
def partitions_with_too_many_assignments(t):
    grow(t, t.topic(), 2, [{"broker_ids": [node(t)]}] * 2)


@case
def partitions_assigned_to_an_unknown_node(t):
    grow(t, t.topic(), 2, [{"broker_ids": [4242]}])


@case
def partitions_assigned_to_two_nodes(t):
    grow(t, t.topic(), 2, [{"broker_ids": [node(t), 4242]}])


@case
def partitions_only_validated(t):
    topic = t.topic()
    grow(t, topic, 3, validate=True)
    grow(t, topic, 1, validate=True)
    grow(t, topic, 2)


@case
def partitions_twice_in_a_request(t):
    topic = t.topic()
    wish = {"name": topic, "count": 3, "assignments": None}
    t.ask("CreatePartitions", 3, {"topics": [wish] * 2, "timeout_ms": 15_000, "validate_only": False})


def metadata(t, names, version=12, **more):
    topics = None if names is None else [{"name": name} for name in names]
    return t.ask("Metadata", version, {"topics": topics, "allow_auto_topic_creation": False, **more}, drop=("brokers",))


@case
def metadata_in_every_version(t):
    topic = t.topic(2)
    for version in range(14):
        more = {"allow_auto_topic_creation": False} if version >= 4 else {}
        t.ask("Metadata", version, {"topics": [{"name": topic}], **more}, drop=("brokers",))


@case
def metadata_of_an_unknown_topic(t):
    metadata(t, [t.unique("topic")])


@case
def metadata_of_an_invalid_name(t):
    metadata(t, ["a b"])
    metadata(t, [""])


@case
def metadata_of_no_topic(t):
    metadata(t, [])


@case
def metadata_of_one_topic_twice(t):
    metadata(t, [t.topic()] * 2)


@case
def metadata_creates_a_topic_when_asked_to(t):
    name = t.unique("topic")
    t.ask("Metadata", 12, {"topics": [{"name": name}], "allow_auto_topic_creation": True}, drop=("brokers", "partitions", "error_code", "topic_id"))
    t.described(name)
    metadata(t, [name])


@case
def metadata_does_not_create_an_invalid_name(t):
    t.ask("Metadata", 12, {"topics": [{"name": "a b"}], "allow_auto_topic_creation": True}, drop=("brokers",))


@case
def metadata_by_topic_id(t):
    known = t.id_of(t.topic())
    t.ask("Metadata", 12, {"topics": [{"name": None, "topic_id": known}], "allow_auto_topic_creation": False}, drop=("brokers",))


@case
def metadata_by_an_unknown_topic_id(t):
    t.learn(UNKNOWN_ID, "<unknown id>")
    t.ask("Metadata", 12, {"topics": [{"name": None, "topic_id": UNKNOWN_ID}], "allow_auto_topic_creation": False}, drop=("brokers",))


@case
def metadata_by_topic_id_in_version_10(t):
    known = t.id_of(t.topic())
    t.ask("Metadata", 10, {"topics": [{"name": None, "topic_id": known}], "allow_auto_topic_creation": False}, drop=("brokers",))


@case
def metadata_by_null_name_in_version_10(t):
    t.ask("Metadata", 10, {"topics": [{"name": None}], "allow_auto_topic_creation": False}, drop=("brokers",))
