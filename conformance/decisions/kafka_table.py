"""What each API of Kafka takes, resource by resource. A row's request goes as far as it can; where it is not in earnest it changes as little as it can."""

import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers"))
from batch import batch

from model import KAFKA
from requirements import Row, needs

MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
PART = [{"partition_index": 0}]
ROWS = []
# Where entries do not count, these are for administrators.
BY_TAG = {"DescribeUserScramCredentials", "AlterUserScramCredentials", "DescribeClientQuotas", "AlterClientQuotas"}
OF_SETTINGS = {"AlterConfigs", "IncrementalAlterConfigs"}
# A group of a name that nobody has had.
FRESH = (("group", "fresh group"),)


def row(name, about, text, ask, **more):
    if name in BY_TAG or name in OF_SETTINGS and about == "of a cluster":
        more.update(by_tag=True, hides=name == "DescribeUserScramCredentials")
    ROWS.append(Row(KAFKA, name, about, needs(KAFKA, text), ask, **more))


def free(name, why, ask=None, untried=""):
    ROWS.append(Row(KAFKA, name, why, (), ask, untried=untried))


# Records.

def produced(n, **more):
    return {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": n.topic, "partition_data": [{"index": 0, "records": batch(**more)}]}]}


def fetched(named):
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 16}]
    return {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 16, "session_epoch": -1, "topics": [{**named, "partitions": parts}]}


row("Produce", "", "Write topic", lambda n, really: (9, produced(n)), changes="records")
row("Produce", "by id", "Write topic", lambda n, really: (13, {"acks": -1, "timeout_ms": 5000, "topic_data": [
    {"topic_id": n.id_of(n.topic), "partition_data": [{"index": 0, "records": batch()}]}]}), changes="records")
row("Produce", "in a transaction", "Write id; Write topic", lambda n, really: (9, {
    **produced(n, attributes=0x10, pid=1, epoch=0, sequence=0), "transactional_id": n.id}), changes="records")
row("Fetch", "", "Read topic", lambda n, really: (12, fetched({"topic": n.topic})))
row("Fetch", "by id", "Read topic", lambda n, really: (13, fetched({"topic_id": n.id_of(n.topic)})))
row("ListOffsets", "", "Describe topic", lambda n, really: (7, {"replica_id": -1, "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}))
row("OffsetForLeaderEpoch", "", "Describe topic or ClusterAction cluster", lambda n, really: (4, {"replica_id": -1, "topics": [
    {"topic": n.topic, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]}))

# Topics.

row("Metadata", "", "Describe topic", lambda n, really: (12, {"topics": [{"name": n.topic}], "allow_auto_topic_creation": False}))
row("Metadata", "by id", "Describe topic", lambda n, really: (12, {"topics": [{"name": None, "topic_id": n.id_of(n.topic)}], "allow_auto_topic_creation": False}))
row("Metadata", "of all topics", "Describe topic (left out)", lambda n, really: (12, {"topics": None}))
row("Metadata", "that creates", "Describe new; Create new or Create cluster", lambda n, really: (12, {"topics": [{"name": n.new}], "allow_auto_topic_creation": True}),
    changes="new", alone=True)
row("DescribeTopicPartitions", "", "Describe topic", lambda n, really: (0, {"topics": [{"name": n.topic}], "response_partition_limit": 10}))
row("DescribeTopicPartitions", "of all topics", "Describe topic (left out)", lambda n, really: (0, {"topics": [], "response_partition_limit": 2000}))
row("CreateTopics", "", "Create new or Create cluster", lambda n, really: (7, {"topics": [{"name": n.new, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 15_000,
                                                                         "validate_only": not really}), changes="new")
row("CreateTopics", "its settings", "Create new or Create cluster; DescribeConfigs new (left out)", lambda n, really: (7, {
    "topics": [{"name": n.new, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 15_000, "validate_only": True}), pools=(("new", "new topic"),))
row("DeleteTopics", "", "Delete spare or Delete cluster", lambda n, really: (5, {"topic_names": [n.spare], "timeout_ms": 15_000}), changes="spare")
row("DeleteTopics", "by id", "Delete spare or Delete cluster", lambda n, really: (6, {"topics": [{"name": None, "topic_id": n.id_of(n.spare)}], "timeout_ms": 15_000}), changes="spare")
row("CreatePartitions", "", "Alter topic", lambda n, really: (3, {"topics": [{"name": n.topic, "count": 9, "assignments": None}], "timeout_ms": 15_000, "validate_only": not really}),
    changes="partitions")
row("DeleteRecords", "", "Delete topic", lambda n, really: (2, {"topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "offset": -1 if really else 0}]}], "timeout_ms": 15_000}),
    changes="records")
row("DescribeProducers", "", "Read topic", lambda n, really: (0, {"topics": [{"name": n.topic, "partition_indexes": [0]}]}))

# Groups.


def committed(group, topic):
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]}


def shared(n):
    return {"group_id": n.group, "topics": [{"topic_name": n.topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}]}


row("FindCoordinator", "of a group", "Describe group", lambda n, really: (4, {"key_type": 0, "coordinator_keys": [n.group]}))
row("FindCoordinator", "of a transactional id", "Describe id", lambda n, really: (4, {"key_type": 1, "coordinator_keys": [n.id]}))
row("JoinGroup", "", "Read group", lambda n, really: (6, {"group_id": n.group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "member_id": "",
                                                        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}))
row("SyncGroup", "", "Read group", lambda n, really: (4, {"group_id": n.group, "generation_id": 1, "member_id": "nobody"}))
row("Heartbeat", "", "Read group", lambda n, really: (3, {"group_id": n.group, "generation_id": 1, "member_id": "nobody"}))
row("LeaveGroup", "", "Read group", lambda n, really: (4, {"group_id": n.group, "members": [{"member_id": "nobody"}]}))
row("OffsetCommit", "", "Read group; Read topic", lambda n, really: (8, committed(n.group, n.topic)), changes="offsets")
row("OffsetFetch", "", "Describe group; Describe topic", lambda n, really: (8, {"groups": [{"group_id": n.group, "topics": [{"name": n.topic, "partition_indexes": [0]}]}]}), absent="silent")
row("OffsetFetch", "of all topics", "Describe group; Describe topic (left out)", lambda n, really: (8, {"groups": [{"group_id": n.group, "topics": None}]}), alone=True)
row("OffsetDelete", "", "Delete group; Read topic", lambda n, really: (0, {"group_id": n.group, "topics": [{"name": n.topic, "partitions": PART}]}), changes="offsets")
row("DescribeGroups", "", "Describe group", lambda n, really: (5, {"groups": [n.group]}))
row("ListGroups", "", "Describe group or Describe cluster (left out)", lambda n, really: (4, {}), alone=True)
row("DeleteGroups", "", "Delete group", lambda n, really: (2, {"groups_names": [n.group]}), changes="groups", alone=True, pools=FRESH,
    prepare=lambda node, n: node.ask_kafka("OffsetCommit", 8, committed(n.group, "orders")))


def beat(n, **more):
    return {"group_id": n.group, "member_id": MEMBER, "member_epoch": 0, "subscribed_topic_names": [n.topic], **more}


def topology(n):
    return {"group_id": n.group, "member_id": MEMBER, "member_epoch": 0, "endpoint_information_epoch": 0, "rebalance_timeout_ms": 30_000,
            "topology": {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": [n.topic]}]}, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
            "process_id": "process", "client_tags": []}


def join(kind, version, body):
    """The administrator is a member of the group."""
    return lambda node, n: node.ask_kafka(kind, version, body(n))


row("ConsumerGroupHeartbeat", "", "Read group; Describe topic", lambda n, really: (1, {**beat(n, rebalance_timeout_ms=30_000, topic_partitions=[])}), changes="members", alone=True, pools=FRESH, absent="silent")
row("ShareGroupHeartbeat", "", "Read group; Describe topic", lambda n, really: (1, beat(n)), changes="members", alone=True, pools=FRESH, absent="silent")
row("StreamsGroupHeartbeat", "", "Read group; Describe topic", lambda n, really: (0, topology(n)), changes="members", alone=True, pools=FRESH, absent="silent")
row("ConsumerGroupDescribe", "", "Describe group; Describe topic", lambda n, really: (1, {"group_ids": [n.group]}), changes="members", alone=True, pools=FRESH,
    prepare=join("ConsumerGroupHeartbeat", 1, lambda n: beat(n, rebalance_timeout_ms=30_000, topic_partitions=[])), absent="told")
row("ShareGroupDescribe", "", "Describe group; Describe topic", lambda n, really: (1, {"group_ids": [n.group]}), changes="members", alone=True, pools=FRESH,
    prepare=join("ShareGroupHeartbeat", 1, beat), absent="told")
row("StreamsGroupDescribe", "", "Describe group; Describe topic", lambda n, really: (0, {"group_ids": [n.group]}), changes="members", alone=True, pools=FRESH,
    prepare=join("StreamsGroupHeartbeat", 0, topology), absent="told")
row("ShareFetch", "", "Read group; Read topic", lambda n, really: (1, {"group_id": n.group, "member_id": MEMBER, "share_session_epoch": 0, "max_wait_ms": 0, "min_bytes": 0, "max_records": 1,
                                                                     "batch_size": 1, "topics": [{"topic_id": n.id_of(n.topic), "partitions": PART}]}), changes="members", alone=True, pools=FRESH)
row("ShareAcknowledge", "", "Read group; Read topic", lambda n, really: (1, {"group_id": n.group, "member_id": MEMBER, "share_session_epoch": 1, "topics": [
    {"topic_id": n.id_of(n.topic), "partitions": [{"partition_index": 0, "acknowledgement_batches": [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]}]}]}),
    untried="a session has to be open, which takes the same: conformance/peers/acls.py asks")
row("DescribeShareGroupOffsets", "", "Describe group; Describe topic", lambda n, really: (0, {"groups": [{"group_id": n.group, "topics": [{"topic_name": n.topic, "partitions": [0]}]}]}), absent="silent")
row("AlterShareGroupOffsets", "", "Read group; Read topic", lambda n, really: (0, shared(n)), changes="groups", alone=True, pools=FRESH, absent="silent")
row("DeleteShareGroupOffsets", "", "Delete group; Read topic", lambda n, really: (0, {"group_id": n.group, "topics": [{"topic_name": n.topic}]}), changes="groups", alone=True, pools=FRESH,
    prepare=lambda node, n: node.ask_kafka("AlterShareGroupOffsets", 0, shared(n)))

# Transactions.


def of_transaction(n):
    return {"transactional_id": n.id, "producer_id": 1, "producer_epoch": 0}


def opened(node, n):
    """A transaction that has written to the topic, for some seconds."""
    made = node.ask_kafka("InitProducerId", 4, {"transactional_id": n.id, "transaction_timeout_ms": 5_000})
    who = {"transactional_id": n.id, "producer_id": made["producer_id"], "producer_epoch": made["producer_epoch"]}
    added = {**{f"v3_and_below_{key}": value for key, value in who.items()}, "v3_and_below_topics": [{"name": n.topic, "partitions": [0]}]}
    # The one before it is aborted first.
    for _ in range(100):
        if not node.ask_kafka("AddPartitionsToTxn", 3, added)["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"]:
            break
        time.sleep(0.05)


row("InitProducerId", "with a transactional id", "Write id", lambda n, really: (4, {"transactional_id": n.id, "transaction_timeout_ms": 60_000}), changes="ids")
row("InitProducerId", "", "Write some topic or IdempotentWrite cluster (CLUSTER_AUTHORIZATION_FAILED)", lambda n, really: (4, {"transactional_id": None, "transaction_timeout_ms": 60_000}))
row("AddPartitionsToTxn", "", "Write id; Write topic", lambda n, really: (3, {**{f"v3_and_below_{key}": value for key, value in of_transaction(n).items()},
                                                                           "v3_and_below_topics": [{"name": n.topic, "partitions": [0]}]}))
row("AddPartitionsToTxn", "of brokers", "ClusterAction cluster", lambda n, really: (4, {"transactions": [{**of_transaction(n), "topics": [{"name": n.topic, "partitions": [0]}]}]}),
    things=("id", "topic"), by_permission=(("Write", "topic"),), alone=True)
row("AddOffsetsToTxn", "", "Write id; Read group", lambda n, really: (3, {**of_transaction(n), "group_id": n.group}))
row("TxnOffsetCommit", "", "Write id; Read group; Read topic", lambda n, really: (3, {**of_transaction(n), "group_id": n.group, "member_id": "", "topics": [
    {"name": n.topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]}))
row("EndTxn", "", "Write id", lambda n, really: (3, {**of_transaction(n), "committed": True}))
row("DescribeTransactions", "", "Describe id", lambda n, really: (0, {"transactional_ids": [n.id]}))
row("DescribeTransactions", "its topics", "Describe id; Describe topic (left out)", lambda n, really: (0, {"transactional_ids": [n.id]}), alone=True, prepare=opened, pools=(("topic", "plain topic"),))
row("ListTransactions", "", "Describe id (left out)", lambda n, really: (1, {}), alone=True,
    prepare=lambda node, n: node.ask_kafka("InitProducerId", 4, {"transactional_id": n.id, "transaction_timeout_ms": 60_000}))
row("WriteTxnMarkers", "", "Alter cluster or ClusterAction cluster", lambda n, really: (1, {"markers": [
    {"producer_id": 1, "producer_epoch": 0, "transaction_result": False, "topics": [{"name": "orders", "partition_indexes": [0]}], "coordinator_epoch": 0}]}), changes="records")

# Settings. Without an authorizer those of brokers are an administrator's.

KINDS = {"topic": 2, "cluster": 4, "group": 32}
ONE_SETTING = {"topic": ("retention.ms", "100000"), "cluster": ("max.connections.per.ip", "4000"), "group": ("consumer.session.timeout.ms", "4600")}


def resource(place, n, **more):
    return {"resources": [{"resource_type": KINDS[place], "resource_name": "" if place == "cluster" else getattr(n, place), **more}]}


for place in KINDS:
    name, value = ONE_SETTING[place]
    row("DescribeConfigs", f"of a {place}", f"DescribeConfigs {place}", lambda n, really, place=place: (4, resource(place, n)))
    row("IncrementalAlterConfigs", f"of a {place}", f"AlterConfigs {place}", lambda n, really, place=place, name=name, value=value: (1, {
        **resource(place, n, configs=[{"name": name, "config_operation": 0, "value": value + "1"}]), "validate_only": not really}), changes="settings")
    row("AlterConfigs", f"of a {place}", f"AlterConfigs {place}", lambda n, really, place=place, name=name, value=value: (2, {
        **resource(place, n, configs=[{"name": name, "value": value + "2"}]), "validate_only": not really}), changes="settings")
for about, more in (("", ""), (", that is not there", "; Create new or Create cluster")):
    topic = "new" if more else "dead letters"
    refusals = f"AlterConfigs group; Write {topic}{more}"
    row("IncrementalAlterConfigs", f"of a group: topic for dead letters{about}", refusals, lambda n, really, topic=topic: (1, {
        **resource("group", n, configs=[{"name": "mainstem.share.dead.letter.topic", "config_operation": 0, "value": getattr(n, topic.replace(" ", "_"))}]), "validate_only": not really}),
        changes="settings", absent="named")
row("ListConfigResources", "", "DescribeConfigs cluster", lambda n, really: (1, {"resource_types": [4]}))

# Entries, users, quotas.

ENTRY = {"resource_type": 2, "resource_name": "nothing", "resource_pattern_type": 3, "principal": "User:eve", "host": "*", "operation": 3, "permission_type": 3}
FILTER = {"resource_type_filter": 2, "resource_name_filter": "kept", "pattern_type_filter": 3, "principal_filter": "User:eve", "host_filter": None, "operation": 1, "permission_type": 1}
row("DescribeAcls", "", "Describe cluster", lambda n, really: (3, FILTER))
row("CreateAcls", "", "Alter cluster", lambda n, really: (3, {"creations": [ENTRY]}), changes="entries")
row("DeleteAcls", "", "Alter cluster", lambda n, really: (3, {"filters": [FILTER if really else {**FILTER, "resource_name_filter": "nowhere"}]}), changes="entries")
row("DescribeUserScramCredentials", "", "Describe cluster", lambda n, really: (0, {"users": [{"name": "eve"}]}))
row("AlterUserScramCredentials", "", "Alter cluster", lambda n, really: (0, {"deletions": [{"name": "eve" if really else "nobody", "mechanism": 1}], "upsertions": []}), changes="keys")
row("DescribeClientQuotas", "", "DescribeConfigs cluster", lambda n, really: (1, {"components": [{"entity_type": "user", "match_type": 0, "match_name": "eve"}], "strict": False}))
row("AlterClientQuotas", "", "AlterConfigs cluster", lambda n, really: (1, {"entries": [
    {"entity": [{"entity_type": "user", "entity_name": "eve"}], "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]}], "validate_only": not really}), changes="quotas")

# The cluster.

row("DescribeLogDirs", "", "Describe cluster", lambda n, really: (4, {"topics": []}))
row("DescribeQuorum", "", "Describe cluster", lambda n, really: (2, {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}))
row("ListPartitionReassignments", "", "Describe cluster", lambda n, really: (0, {"topics": None, "timeout_ms": 5000}))
row("AlterReplicaLogDirs", "", "Alter cluster", lambda n, really: (2, {"dirs": [{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0]}]}]}))
row("AlterPartitionReassignments", "", "Alter cluster", lambda n, really: (0, {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]}], "timeout_ms": 5000}))
row("ElectLeaders", "", "Alter cluster", lambda n, really: (2, {"election_type": 0, "topic_partitions": [{"topic": "orders", "partitions": [0]}], "timeout_ms": 5000}))
row("UpdateFeatures", "", "Alter cluster", lambda n, really: (1, {"feature_updates": [], "validate_only": True}))
free("DescribeCluster", "", lambda n, really: (1, {}))
free("ApiVersions", "", lambda n, really: (0, {}))
free("SaslHandshake", "", untried="each connection of the test begins with it")
free("SaslAuthenticate", "", untried="each connection of the test begins with it")
free("GetTelemetrySubscriptions", "", lambda n, really: (0, {}))
free("PushTelemetry", "", lambda n, really: (0, {"metrics": b"x"}))
