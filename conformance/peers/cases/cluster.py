"""DescribeCluster, log directories, elections, reassignments, quorum, access rules, telemetry, topic partitions."""

from . import case


@case
def cluster_in_every_version(t):
    t.ask("DescribeCluster", 0, {"include_cluster_authorized_operations": False})
    t.ask("DescribeCluster", 1, {"include_cluster_authorized_operations": False, "endpoint_type": 1})
    t.ask("DescribeCluster", 2, {"include_cluster_authorized_operations": False, "include_fenced_brokers": True})


@case
def cluster_of_controllers(t):
    t.ask("DescribeCluster", 1, {"include_cluster_authorized_operations": False, "endpoint_type": 2})


@case
def cluster_of_an_unknown_endpoint_type(t):
    t.ask("DescribeCluster", 1, {"include_cluster_authorized_operations": False, "endpoint_type": 9})


@case
def log_directories_of_a_topic(t):
    topic = t.topic(2)
    wanted = [{"topic": topic, "partitions": [0, 1]}]
    for version in range(1, 6):
        t.ask("DescribeLogDirs", version, {"topics": wanted})


@case
def log_directories_of_an_unknown_topic(t):
    t.ask("DescribeLogDirs", 4, {"topics": [{"topic": t.unique("topic"), "partitions": [0]}]})


@case
def log_directories_of_no_topic(t):
    t.ask("DescribeLogDirs", 4, {"topics": []})


@case
def log_directory_unknown(t):
    t.ask("AlterReplicaLogDirs", 2, {"dirs": [{"path": "/no/such/folder", "topics": [{"name": t.topic(), "partitions": [0]}]}]})


@case
def log_directory_for_an_unknown_topic(t):
    t.ask("AlterReplicaLogDirs", 2, {"dirs": [{"path": "/no/such/folder", "topics": [{"name": t.unique("topic"), "partitions": [0]}]}]})


def elect(t, topic, partitions=(0,), kind=0, version=2):
    body = {"election_type": kind, "topic_partitions": [{"topic": topic, "partitions": list(partitions)}], "timeout_ms": 5000}
    if version == 0:
        del body["election_type"]
    t.ask("ElectLeaders", version, body)


@case
def elect_when_the_leader_is_preferred(t):
    topic = t.topic()
    for version in range(3):
        elect(t, topic, version=version)


@case
def elect_for_an_unknown_topic(t):
    elect(t, t.unique("topic"))


@case
def elect_for_an_unknown_partition(t):
    elect(t, t.topic(), (9,))


@case
def elect_uncleanly_without_need(t):
    elect(t, t.topic(), kind=1)


@case
def elect_in_an_unknown_way(t):
    elect(t, t.topic(), kind=9)


@case
def elect_nothing(t):
    t.ask("ElectLeaders", 2, {"election_type": 0, "topic_partitions": [], "timeout_ms": 5000})


def reassign(t, topic, replicas, partition=0):
    parts = [{"partition_index": partition, "replicas": replicas}]
    t.ask("AlterPartitionReassignments", 0, {"timeout_ms": 5000, "topics": [{"name": topic, "partitions": parts}]})


def node(t):
    return t.quiet("Metadata", 1, {"topics": []})["brokers"][0]["node_id"]


@case
def reassign_to_where_it_is(t):
    reassign(t, t.topic(), [node(t)])


@case
def reassign_to_an_unknown_node(t):
    reassign(t, t.topic(), [4242])


@case
def reassign_to_no_node(t):
    reassign(t, t.topic(), [])


@case
def reassign_to_one_node_twice(t):
    one = node(t)
    reassign(t, t.topic(), [one, one])


@case
def reassign_cancelled_without_need(t):
    reassign(t, t.topic(), None)


@case
def reassign_an_unknown_topic(t):
    reassign(t, t.unique("topic"), [node(t)])


@case
def reassign_an_unknown_partition(t):
    reassign(t, t.topic(), [node(t)], partition=9)


@case
def reassignments_listed(t):
    t.ask("ListPartitionReassignments", 0, {"topics": None})
    t.ask("ListPartitionReassignments", 0, {"topics": [{"name": t.topic(), "partition_indexes": [0]}]})
    t.ask("ListPartitionReassignments", 0, {"topics": [{"name": t.unique("topic"), "partition_indexes": [0]}]})


@case
def quorum_of_another_topic(t):
    t.ask("DescribeQuorum", 0, {"topics": [{"topic_name": t.topic(), "partitions": [{"partition_index": 0}]}]})


@case
def quorum_of_no_topic(t):
    t.ask("DescribeQuorum", 2, {"topics": []})


ANYTHING = {"resource_type_filter": 1, "resource_name_filter": None, "principal_filter": None, "host_filter": None,
            "operation": 1, "permission_type": 1}


@case
def access_rules_described(t):
    for version in range(1, 4):
        t.ask("DescribeAcls", version, {**ANYTHING, "pattern_type_filter": 1})


@case
def access_rule_made(t):
    t.ask("CreateAcls", 2, {"creations": [{"resource_type": 2, "resource_name": t.unique("topic"), "principal": "User:peer",
                                           "host": "*", "operation": 3, "permission_type": 3}]})


@case
def access_rule_deleted(t):
    t.ask("DeleteAcls", 2, {"filters": [{**ANYTHING, "pattern_type_filter": 1}]})


@case
def telemetry_subscriptions(t):
    t.ask("GetTelemetrySubscriptions", 0, {}, drop=("client_instance_id", "subscription_id", "accepted_compression_types",
                                                    "push_interval_ms", "telemetry_max_bytes", "delta_temporality"))


@case
def telemetry_pushed_by_a_client_nobody_knows(t):
    t.ask("PushTelemetry", 0, {"client_instance_id": "6f1d9f5e-3c1b-4c5e-9a57-0d5b7a1c2e33", "subscription_id": 5, "metrics": b""})


def partitions_of(t, names, limit=2000, cursor=None):
    t.ask("DescribeTopicPartitions", 0, {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": cursor})


@case
def topic_partitions(t):
    partitions_of(t, [t.topic(3)])


@case
def topic_partitions_of_an_unknown_topic(t):
    partitions_of(t, [t.unique("topic")])


@case
def topic_partitions_of_an_invalid_name(t):
    partitions_of(t, ["a b"])


@case
def topic_partitions_limited(t):
    topic = t.topic(3)
    partitions_of(t, [topic], limit=2)
    partitions_of(t, [topic], cursor={"topic_name": topic, "partition_index": 2})


@case
def topic_partitions_from_a_negative_cursor(t):
    topic = t.topic()
    partitions_of(t, [topic], cursor={"topic_name": topic, "partition_index": -1})


@case
def topic_partitions_with_a_limit_of_0(t):
    partitions_of(t, [t.topic(2)], limit=0)


@case
def topic_partitions_of_one_topic_twice(t):
    partitions_of(t, [t.topic()] * 2)
