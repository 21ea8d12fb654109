#!/usr/bin/env python3
"""What somebody is told who may not, API by API, and what he is told once he may: codes, and what is left out. `record` writes down a real
Kafka's answers, `compare` says where another broker's differ.

Kafka is started with the settings that `properties` prints, this broker with those that `flags` prints: alice is a super user, bob is nobody
until an entry says so. Each case asks as bob, gives him something, and asks again."""

import json
import os
import sys
import time

from table import HERE, address  # puts the folders on the path
from batch import batch
from client import NAMES, Case, Connection, join, produce
from recorded import compare, write
import logins

RECORDED = HERE / "kafka-4.3.1-acls.json"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = logins.USERS
# What is noted of an answer: codes, and of what.
CODES = {"error_code", "partition_error_code", "topic_config_error_code", "acknowledge_error_code", "name", "topic", "topic_name", "group_id",
         "topic_id", "transactional_id", "resource_type", "resource_name", "resource_pattern_type", "key", "user", "num_partitions", "partition_index", "partition"}
TYPES = {"topic": 2, "group": 3, "cluster": 4, "id": 5}
OPERATIONS = {"all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8, "cluster_action": 9, "describe_configs": 10,
              "alter_configs": 11, "idempotent_write": 12}
CLUSTER = ("cluster", "kafka-cluster")
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
EVERYTHING = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None, "host_filter": None,
              "operation": 1, "permission_type": 1}
CASES = {}


def case(function):
    CASES[function.__name__.replace("_", "-")] = function
    return function


def log_in(connection, user):
    connection.request("SaslHandshake", 1, {"mechanism": "PLAIN"})
    assert connection.response("SaslHandshake", 1)["error_code"] == 0
    connection.request("SaslAuthenticate", 2, {"auth_bytes": f"\0{user}\0{USERS[user]}".encode()})
    answer = connection.response("SaslAuthenticate", 2)
    assert answer["error_code"] == 0, answer


class Asked(Case):
    """Bob asks; alice sees to what he may."""

    def __init__(self, where, name, token):
        super().__init__(where, name, token)
        self.helper = Connection(where)
        log_in(self.connection, "bob")
        log_in(self.helper, "alice")

    def again(self):
        super().again()
        log_in(self.connection, "bob")

    def normal(self, value, drop, only, name=""):
        # Which partition of a fetch comes first changes from one to the next.
        self.ordered = False
        return super().normal(value, drop, only, name)

    def entries(self):
        found = self.quiet("DescribeAcls", 3, EVERYTHING)
        assert found["error_code"] == 0, found
        return {(one["resource_type"], one["resource_name"], one["pattern_type"], acl["principal"], acl["host"], acl["operation"], acl["permission_type"])
                for one in found["resources"] for acl in one["acls"]}

    def give(self, operation, resource, pattern=LITERAL, permission=ALLOW, principal="User:bob", host="*"):
        kind, name = resource
        wish = (TYPES[kind], name, pattern, principal, host, OPERATIONS[operation], permission)
        fields = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
        made = self.quiet("CreateAcls", 3, {"creations": [dict(zip(fields, wish))]})
        assert made["results"][0]["error_code"] == 0, made
        # Kafka's brokers hear of it a little later.
        self.settled(lambda: wish in self.entries())

    def take_all(self):
        self.quiet("DeleteAcls", 3, {"filters": [EVERYTHING]})
        self.settled(lambda: not self.entries())

    def told(self, name, version, body, only=CODES, drop=()):
        return self.ask(name, version, body, only=only, drop=drop)

    def steps_of(self, name, version, body, *given, only=CODES, drop=()):
        """Asks, and again after each thing that is given: an operation and a resource, or several."""
        self.told(name, version, body, only, drop)
        for one in given:
            self.give(*one)
            self.steps.append({"given": f"{one[0]} {one[1][0]}"})
            self.told(name, version, body, only, drop)

    def note_bits(self, name, version, body, find):
        """Notes what the answer says that he may do."""
        self.connection.request(name, version, body)
        bits = find(self.connection.response(name, version)) & 0xFFFFFFFF
        self.steps.append({"request": f"{name} v{version}", "operations": [word for word, at in OPERATIONS.items() if bits >> at & 1] if bits != 1 << 31 else "not told"})

    def end(self):
        try:
            self.take_all()
        finally:
            super().end()

    def transactional_id(self):
        return self.unique("id")


# Topics.


@case
def metadata_by_name(c):
    topic, missing = c.topic(), c.unique("missing")
    body = {"topics": [{"name": topic}, {"name": missing}], "allow_auto_topic_creation": False}
    c.steps_of("Metadata", 12, body, ("describe", ("topic", topic)), ("describe", ("topic", missing)))


@case
def metadata_by_id(c):
    topic = c.topic()
    body = {"topics": [{"name": None, "topic_id": c.id_of(topic)}], "allow_auto_topic_creation": False}
    c.steps_of("Metadata", 12, body, ("describe", ("topic", topic)))


@case
def metadata_of_all(c):
    topic, other = c.topic(), c.topic()
    c.steps_of("Metadata", 12, {"topics": None}, ("describe", ("topic", topic)), ("read", ("topic", other)))


@case
def metadata_that_would_create(c):
    missing = c.unique("missing")
    body = {"topics": [{"name": missing}], "allow_auto_topic_creation": True}
    c.steps_of("Metadata", 12, body, ("describe", ("topic", missing)))
    c.give("create", ("topic", missing))
    c.quiet_here("Metadata", 12, body)
    c.described(missing)


@case
def metadata_operations(c):
    topic = c.topic()
    body = {"topics": [{"name": topic}], "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}

    def both():
        c.note_bits("Metadata", 9, body, lambda answer: answer["cluster_authorized_operations"])
        c.note_bits("Metadata", 9, body, lambda answer: answer["topics"][0]["topic_authorized_operations"])
        c.note_bits("Metadata", 9, {"topics": [{"name": topic}]}, lambda answer: answer["topics"][0]["topic_authorized_operations"])
        c.note_bits("DescribeCluster", 1, {"include_cluster_authorized_operations": True}, lambda answer: answer["cluster_authorized_operations"])
        c.note_bits("DescribeTopicPartitions", 0, {"topics": [{"name": topic}], "response_partition_limit": 10},
                    lambda answer: answer["topics"][0]["topic_authorized_operations"])
    both()
    for operation in ("write", "alter_configs"):
        c.give(operation, ("topic", topic))
        both()
    c.give("alter", CLUSTER)
    both()
    c.give("describe", CLUSTER, permission=DENY)
    c.give("all", ("topic", "*"))
    both()


@case
def topic_partitions(c):
    topic, missing = c.topic(), c.unique("missing")
    c.steps_of("DescribeTopicPartitions", 0, {"topics": [{"name": topic}, {"name": missing}], "response_partition_limit": 10},
               ("describe", ("topic", topic)), ("describe", ("topic", missing)))


@case
def topic_partitions_of_all(c):
    topic = c.topic()
    c.steps_of("DescribeTopicPartitions", 0, {"topics": [], "response_partition_limit": 10}, ("describe", ("topic", topic)))


def creation(name, **more):
    return {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 15_000, **more}


@case
def create_topics(c):
    one, other = c.unique("topic"), c.unique("topic")
    c.told("CreateTopics", 7, creation(one))
    c.give("describe", ("topic", one))
    c.told("CreateTopics", 7, creation(one))
    c.give("create", ("topic", one))
    c.told("CreateTopics", 7, creation(one, validate_only=True), drop=["topic_id"])
    c.give("describe_configs", ("topic", one))
    c.told("CreateTopics", 7, creation(one), drop=["topic_id", "configs"])
    c.told("CreateTopics", 7, creation(one))
    c.told("CreateTopics", 7, creation(other))
    c.give("create", CLUSTER)
    c.told("CreateTopics", 7, creation(other), drop=["topic_id"])


@case
def delete_topics_by_name(c):
    topic, missing = c.topic(), c.unique("missing")
    body = {"topics": [{"name": topic}, {"name": missing}], "timeout_ms": 15_000}
    c.told("DeleteTopics", 6, body)
    c.give("describe", ("topic", topic))
    c.give("describe", ("topic", missing))
    c.told("DeleteTopics", 6, body)
    c.give("delete", ("topic", missing))
    c.told("DeleteTopics", 6, body)
    c.give("delete", ("topic", topic))
    c.told("DeleteTopics", 6, {"topics": [{"name": topic}], "timeout_ms": 15_000}, drop=["topic_id"])


@case
def delete_topics_by_id(c):
    topic = c.topic()
    c.steps_of("DeleteTopics", 6, {"topics": [{"name": None, "topic_id": c.id_of(topic)}], "timeout_ms": 15_000},
               ("describe", ("topic", topic)), ("delete", ("topic", topic)))


@case
def delete_topics_of_the_cluster(c):
    topic = c.topic()
    c.give("delete", CLUSTER)
    c.told("DeleteTopics", 6, {"topics": [{"name": topic}], "timeout_ms": 15_000}, drop=["topic_id"])


@case
def create_partitions(c):
    topic = c.topic()
    c.steps_of("CreatePartitions", 3, {"topics": [{"name": topic, "count": 2}], "timeout_ms": 15_000}, ("describe", ("topic", topic)), ("alter", ("topic", topic)))


@case
def delete_records(c):
    topic = c.topic()
    c.fill(topic)
    c.steps_of("DeleteRecords", 2, {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout_ms": 15_000},
               ("read", ("topic", topic)), ("delete", ("topic", topic)))


# Records.


@case
def produce_by_name(c):
    topic, missing = c.topic(), c.unique("missing")
    body = produce(topic, batch())
    body["topic_data"] += produce(missing, batch())["topic_data"]
    c.steps_of("Produce", 9, body, ("read", ("topic", topic)), ("write", ("topic", topic)), ("write", ("topic", missing)))


@case
def produce_by_id(c):
    topic = c.topic()
    data = [{"topic_id": c.id_of(topic), "partition_data": [{"index": 0, "records": batch()}]}]
    c.steps_of("Produce", 13, {"acks": -1, "timeout_ms": 5000, "topic_data": data}, ("write", ("topic", topic)))


@case
def produce_without_an_answer(c):
    topic = c.topic()
    c.silent("Produce", 9, produce(topic, batch(), acks=0))


@case
def produce_in_a_transaction(c):
    topic, name = c.topic(), c.transactional_id()
    body = {**produce(topic, batch(attributes=0x10, pid=1, epoch=0, sequence=0)), "transactional_id": name}
    c.told("Produce", 9, body)
    c.give("write", ("topic", topic))
    c.told("Produce", 9, body)
    c.told("Produce", 9, {**body, "transactional_id": None})
    c.give("describe", ("id", name))
    c.told("Produce", 9, body)


def fetch(topics, by_id=False, **more):
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    named = [{"topic_id" if by_id else "topic": topic, "partitions": parts} for topic in topics]
    return {"replica_id": -1, "max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": named, **more}


@case
def fetch_by_name(c):
    topic, missing = c.topic(), c.unique("missing")
    c.fill(topic, 1)
    c.steps_of("Fetch", 12, fetch([topic, missing]), ("describe", ("topic", topic)), ("read", ("topic", topic)), ("read", ("topic", missing)))


@case
def fetch_by_id(c):
    topic = c.topic()
    c.fill(topic, 1)
    c.steps_of("Fetch", 13, fetch([c.id_of(topic)], by_id=True), ("read", ("topic", topic)))


@case
def fetch_in_a_session(c):
    topic, other = c.topic(), c.topic()
    c.fill(topic, 1)
    c.give("read", ("topic", topic))
    session = c.told("Fetch", 12, fetch([topic, other], session_id=0, session_epoch=0))["session_id"]
    c.give("read", ("topic", other))
    c.fill(other, 1)
    c.told("Fetch", 12, fetch([], session_id=session, session_epoch=1))
    c.give("read", ("topic", topic), permission=DENY)
    c.told("Fetch", 12, fetch([], session_id=session, session_epoch=2))


@case
def list_offsets(c):
    topic, missing = c.topic(), c.unique("missing")
    asked = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in (topic, missing)]
    c.steps_of("ListOffsets", 7, {"replica_id": -1, "topics": asked}, ("describe", ("topic", topic)), ("describe", ("topic", missing)))


@case
def ends_of_epochs(c):
    topic = c.topic()
    body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]}
    c.steps_of("OffsetForLeaderEpoch", 4, body, ("describe", ("topic", topic)))


@case
def ends_of_epochs_for_brokers(c):
    topic = c.topic()
    c.give("cluster_action", CLUSTER)
    c.told("OffsetForLeaderEpoch", 4, {"replica_id": -1, "topics": [{"topic": topic, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]})


# Groups.


@case
def find_coordinator(c):
    group, name = c.group(), c.transactional_id()
    c.steps_of("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]}, ("describe", ("group", group)))
    c.steps_of("FindCoordinator", 3, {"key_type": 1, "key": name})
    c.steps_of("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": [name]}, ("describe", ("id", name)))


@case
def classic_members(c):
    group, stranger = c.group(), "nobody"
    c.told("JoinGroup", 6, join(group))
    c.told("SyncGroup", 4, {"group_id": group, "generation_id": 1, "member_id": stranger})
    c.told("Heartbeat", 3, {"group_id": group, "generation_id": 1, "member_id": stranger})
    c.told("LeaveGroup", 4, {"group_id": group, "members": [{"member_id": stranger}]})
    c.give("describe", ("group", group))
    c.told("JoinGroup", 6, join(group))
    c.give("read", ("group", group))
    c.told("JoinGroup", 6, join(group))
    c.told("SyncGroup", 4, {"group_id": group, "generation_id": 1, "member_id": stranger})
    c.told("Heartbeat", 3, {"group_id": group, "generation_id": 1, "member_id": stranger})
    c.told("LeaveGroup", 4, {"group_id": group, "members": [{"member_id": stranger}]})


def commit(group, *topics):
    parts = [{"partition_index": 0, "committed_offset": 1}]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": [{"name": topic, "partitions": parts} for topic in topics]}


@case
def offset_commit(c):
    group, topic, missing = c.group(), c.topic(), c.unique("missing")
    c.steps_of("OffsetCommit", 8, commit(group, topic, missing), ("read", ("group", group)), ("describe", ("topic", topic)),
               ("read", ("topic", topic)), ("read", ("topic", missing)))


@case
def offset_fetch(c):
    group, topic, other = c.group(), c.topic(), c.topic()
    assert not c.quiet("OffsetCommit", 8, commit(group, topic, other))["topics"][0]["partitions"][0]["error_code"]
    named = {"groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]}
    everything = {"groups": [{"group_id": group, "topics": None}]}
    c.told("OffsetFetch", 8, named)
    c.told("OffsetFetch", 8, everything)
    c.told("OffsetFetch", 7, {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]})
    c.give("describe", ("group", group))
    c.told("OffsetFetch", 8, named)
    c.told("OffsetFetch", 8, everything)
    c.give("describe", ("topic", topic))
    c.told("OffsetFetch", 8, named)
    c.told("OffsetFetch", 8, everything)


@case
def offset_delete(c):
    group, topic = c.group(), c.topic()
    c.quiet("OffsetCommit", 8, commit(group, topic))
    body = {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
    c.steps_of("OffsetDelete", 0, body, ("read", ("group", group)), ("delete", ("group", group)), ("read", ("topic", topic)))


@case
def describe_groups(c):
    group = c.group()
    c.member(group)
    c.steps_of("DescribeGroups", 5, {"groups": [group]}, ("describe", ("group", group)))
    c.note_bits("DescribeGroups", 5, {"groups": [group], "include_authorized_operations": True}, lambda answer: answer["groups"][0]["authorized_operations"])
    c.give("delete", ("group", group))
    c.note_bits("DescribeGroups", 5, {"groups": [group], "include_authorized_operations": True}, lambda answer: answer["groups"][0]["authorized_operations"])


@case
def list_groups(c):
    group, other = c.group(), c.group()
    c.member(group)
    c.member(other)
    c.steps_of("ListGroups", 4, {}, ("describe", ("group", group)), only={"error_code", "group_id"})


@case
def delete_groups(c):
    group, topic = c.group(), c.topic()
    c.quiet("OffsetCommit", 8, commit(group, topic))
    c.steps_of("DeleteGroups", 2, {"groups_names": [group]}, ("describe", ("group", group)), ("delete", ("group", group)))


def beat(group, member, *topics, **more):
    return {"group_id": group, "member_id": member, "member_epoch": 0, "rebalance_timeout_ms": 30_000, "subscribed_topic_names": list(topics), "topic_partitions": [], **more}


@case
def consumer_members(c):
    group, topic, member = c.group(), c.topic(), "AAAAAAAAAAAAAAAAAAAAAA"
    c.steps_of("ConsumerGroupHeartbeat", 1, beat(group, member, topic), ("read", ("group", group)), ("describe", ("topic", topic)))
    c.take_all()
    described = {"group_ids": [group]}
    codes = {"error_code", "group_id", "topic_name", "subscribed_topic_names"}
    c.steps_of("ConsumerGroupDescribe", 1, described, ("describe", ("group", group)), ("describe", ("topic", topic)), only=codes)
    c.note_bits("ConsumerGroupDescribe", 1, {**described, "include_authorized_operations": True}, lambda answer: answer["groups"][0]["authorized_operations"])


@case
def share_members(c):
    group, topic, member = c.group(), c.topic(), "AAAAAAAAAAAAAAAAAAAAAQ"
    body = {"group_id": group, "member_id": member, "member_epoch": 0, "subscribed_topic_names": [topic]}
    c.steps_of("ShareGroupHeartbeat", 1, body, ("read", ("group", group)), ("describe", ("topic", topic)), only={"error_code"}, drop=["assignment"])
    epoch = 0

    def assigned():
        """Kafka gives out partitions a little later."""
        nonlocal epoch
        beat = c.quiet_here("ShareGroupHeartbeat", 1, {**body, "member_epoch": epoch, "subscribed_topic_names": None if epoch else [topic]})
        epoch = beat["member_epoch"]
        found = c.quiet("ShareGroupDescribe", 1, {"group_ids": [group]})["groups"][0]
        return any(one["assignment"]["topic_partitions"] for one in found["members"])
    c.settled(assigned)
    wanted = [{"topic_id": c.id_of(topic), "partitions": [{"partition_index": 0}]}]
    open_ = {"group_id": group, "member_id": member, "share_session_epoch": 0, "max_wait_ms": 100, "min_bytes": 1, "max_records": 10, "batch_size": 10, "topics": wanted}
    c.told("ShareFetch", 1, open_)
    c.take_all()
    c.told("ShareFetch", 1, open_)
    said = [{"topic_id": c.id_of(topic), "partitions": [{"partition_index": 0, "acknowledgement_batches": [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]}]}]
    c.told("ShareAcknowledge", 1, {"group_id": group, "member_id": member, "share_session_epoch": 1, "topics": said})
    codes = {"error_code", "group_id", "topic_name", "subscribed_topic_names"}
    c.steps_of("ShareGroupDescribe", 1, {"group_ids": [group]}, ("describe", ("group", group)), ("describe", ("topic", topic)), only=codes)


@case
def share_offsets(c):
    group, topic = c.group(), c.topic()
    parts = [{"partition_index": 0, "start_offset": 0}]
    c.steps_of("AlterShareGroupOffsets", 0, {"group_id": group, "topics": [{"topic_name": topic, "partitions": parts}]},
               ("read", ("group", group)), ("read", ("topic", topic)))
    c.take_all()
    codes = {"error_code", "group_id", "topic_name", "partition_index"}
    c.steps_of("DescribeShareGroupOffsets", 0, {"groups": [{"group_id": group, "topics": [{"topic_name": topic, "partitions": [0]}]}]},
               ("describe", ("group", group)), ("describe", ("topic", topic)), only=codes)
    c.take_all()
    c.steps_of("DescribeShareGroupOffsets", 0, {"groups": [{"group_id": group, "topics": None}]}, ("describe", ("group", group)), only=codes)
    c.steps_of("DeleteShareGroupOffsets", 0, {"group_id": group, "topics": [{"topic_name": topic}]}, ("delete", ("group", group)), only=codes)


@case
def streams_members(c):
    group, topic, member = c.group(), c.topic(), "AAAAAAAAAAAAAAAAAAAAAg"
    topology = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": [topic]}]}
    body = {"group_id": group, "member_id": member, "member_epoch": 0, "endpoint_information_epoch": 0, "rebalance_timeout_ms": 30_000, "topology": topology,
            "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": "process", "client_tags": []}
    c.steps_of("StreamsGroupHeartbeat", 0, body, ("read", ("group", group)), ("describe", ("topic", topic)), only={"error_code"})
    c.take_all()
    c.steps_of("StreamsGroupDescribe", 0, {"group_ids": [group]}, ("describe", ("group", group)), ("describe", ("topic", topic)), only={"error_code", "group_id"})


# Transactions.


@case
def producer_ids(c):
    topic, name = c.topic(), c.transactional_id()
    body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    c.steps_of("InitProducerId", 4, body, ("read", ("topic", topic)), ("write", ("topic", topic)))
    c.take_all()
    c.steps_of("InitProducerId", 4, body, ("idempotent_write", CLUSTER))
    c.steps_of("InitProducerId", 4, {**body, "transactional_id": name}, ("describe", ("id", name)))


@case
def transactions(c):
    name, group, topic, other = c.transactional_id(), c.group(), c.topic(), c.topic()
    who = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0}
    added = {f"v3_and_below_{key}": value for key, value in who.items()}
    added["v3_and_below_topics"] = [{"name": one, "partitions": [0]} for one in (topic, other)]
    offsets = {**who, "group_id": group, "member_id": "", "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]}

    def all_of_it():
        c.told("AddPartitionsToTxn", 3, added)
        c.told("AddOffsetsToTxn", 3, {**who, "group_id": group})
        c.told("TxnOffsetCommit", 3, offsets)
        c.told("EndTxn", 3, {**who, "committed": True})
    all_of_it()
    c.give("write", ("id", name))
    c.give("write", ("topic", topic))
    all_of_it()
    c.give("read", ("group", group))
    c.told("TxnOffsetCommit", 3, offsets)


@case
def transactions_for_brokers(c):
    topic = c.topic()
    one = {"transactional_id": c.transactional_id(), "producer_id": 1, "producer_epoch": 0, "topics": [{"name": topic, "partitions": [0]}]}
    c.told("AddPartitionsToTxn", 4, {"transactions": [one]})
    marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": False, "topics": [{"name": topic, "partition_indexes": [0]}], "coordinator_epoch": 0}
    c.told("WriteTxnMarkers", 1, {"markers": [marker]})


@case
def describe_transactions(c):
    name = c.transactional_id()
    c.steps_of("DescribeTransactions", 0, {"transactional_ids": [name]}, ("describe", ("id", name)))


@case
def describe_producers(c):
    topic = c.topic()
    c.steps_of("DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": [0]}]}, ("describe", ("topic", topic)), ("read", ("topic", topic)))


@case
def list_transactions(c):
    name, other = c.transactional_id(), c.transactional_id()
    for one in (name, other):
        c.settled(lambda: not c.quiet("InitProducerId", 4, {"transactional_id": one, "transaction_timeout_ms": 60_000})["error_code"])
    c.steps_of("ListTransactions", 1, {}, ("describe", ("id", name)), only={"error_code", "transactional_id"})


# Settings.


@case
def configs(c):
    topic, group = c.topic(), c.group()
    kinds = ((2, topic), (4, "1"), (4, ""), (32, group))

    def described():
        c.told("DescribeConfigs", 4, {"resources": [{"resource_type": kind, "resource_name": name} for kind, name in kinds]},
               only={"error_code", "resource_type"}, drop=["configs"])

    def altered(version=1):
        wanted = (2, topic, "retention.ms", "1000000"), (32, group, "consumer.session.timeout.ms", "46000")
        c.told("IncrementalAlterConfigs", version, {"resources": [{"resource_type": kind, "resource_name": name, "configs": [{"name": key, "config_operation": 0, "value": value}]}
                                                                   for kind, name, key, value in wanted]}, only={"error_code", "resource_type"}, drop=["configs"])
        c.told("AlterConfigs", 2, {"resources": [{"resource_type": 2, "resource_name": topic, "configs": [{"name": "retention.ms", "value": "1000000"}]}]},
               only={"error_code", "resource_type"}, drop=["configs"])
    described()
    altered()
    c.give("describe", ("topic", topic))
    c.give("describe_configs", ("topic", topic))
    c.give("describe_configs", ("group", group))
    described()
    altered()
    c.give("alter_configs", ("topic", topic))
    c.give("alter_configs", ("group", group))
    c.give("describe_configs", CLUSTER)
    described()
    altered()


@case
def config_resources(c):
    c.steps_of("ListConfigResources", 1, {"resource_types": [4]}, ("describe", CLUSTER), ("describe_configs", CLUSTER), only={"error_code"})


# The cluster.


def of_cluster(name, api, version, body, *given):
    CASES[name] = lambda c: c.steps_of(api, version, body(c) if callable(body) else body, *((one, CLUSTER) for one in given), only={"error_code", "partition_error_code"})


of_cluster("log-dirs", "DescribeLogDirs", 4, {"topics": []}, "describe")
of_cluster("elections", "ElectLeaders", 2, lambda c: {"election_type": 0, "topic_partitions": [{"topic": c.topic(), "partitions": [0]}], "timeout_ms": 5000}, "alter")
of_cluster("reassignments", "AlterPartitionReassignments", 0,
           lambda c: {"topics": [{"name": c.topic(), "partitions": [{"partition_index": 0, "replicas": None}]}], "timeout_ms": 5000}, "alter")
of_cluster("listed-reassignments", "ListPartitionReassignments", 0, {"topics": None, "timeout_ms": 5000}, "describe")
of_cluster("quorum", "DescribeQuorum", 2, {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}, "describe")
of_cluster("features", "UpdateFeatures", 1, {"feature_updates": [], "validate_only": True}, "alter")
of_cluster("moved-replicas", "AlterReplicaLogDirs", 2, lambda c: {"dirs": [{"path": "/nowhere", "topics": [{"name": c.topic(), "partitions": [0]}]}]}, "alter")
of_cluster("scram-described", "DescribeUserScramCredentials", 0, {"users": [{"name": "eve"}]}, "describe")
of_cluster("scram-altered", "AlterUserScramCredentials", 0, {"deletions": [{"name": "eve", "mechanism": 1}], "upsertions": []}, "alter")
of_cluster("quotas-described", "DescribeClientQuotas", 1, {"components": [{"entity_type": "user", "match_type": 0, "match_name": "eve"}], "strict": False}, "describe_configs")
of_cluster("quotas-altered", "AlterClientQuotas", 1, {"entries": [{"entity": [{"entity_type": "user", "entity_name": "eve"}],
           "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]}], "validate_only": True}, "alter_configs")
of_cluster("the-cluster-itself", "DescribeCluster", 1, {})
of_cluster("telemetry", "GetTelemetrySubscriptions", 0, {})


# Entries themselves.


ENTRY = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, "principal": "User:eve", "host": "*", "operation": 3, "permission_type": 3}
FILTER = {**EVERYTHING, "principal_filter": "User:eve"}
SHOWN = {"error_code", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type"}


@case
def entries(c):
    wishes = [("CreateAcls", {"creations": [ENTRY]}), ("DescribeAcls", FILTER), ("DeleteAcls", {"filters": [FILTER]})]

    def all_of_it():
        for name, body in wishes:
            c.told(name, 3, body, SHOWN)
            time.sleep(0.3)
    all_of_it()
    c.give("describe", CLUSTER)
    all_of_it()
    c.give("alter", CLUSTER)
    all_of_it()


@case
def entries_that_are_none(c):
    c.give("alter", CLUSTER)
    # Kafka closes the connection upon some of them.
    for wrong in ({"resource_type": 0}, {"resource_type": 1}, {"resource_type": 9}, {"resource_type": 4}, {"resource_name": ""}, {"resource_pattern_type": 1},
                  {"resource_pattern_type": 2}, {"resource_pattern_type": 0}, {"principal": "eve"}, {"principal": ""}, {"principal": "Group:eve"}, {"host": ""},
                  {"operation": 0}, {"operation": 1}, {"operation": 77}, {"permission_type": 0}, {"permission_type": 1}, {"permission_type": 7}):
        c.steps.append({"wrong": wrong})
        c.told("CreateAcls", 3, {"creations": [{**ENTRY, **wrong}, ENTRY]}, SHOWN)
        c.again()
    for wrong in ({"resource_type_filter": 0}, {"pattern_type_filter": 0}, {"pattern_type_filter": 9}, {"operation": 0}, {"permission_type": 0},
                  {"principal_filter": ""}, {"host_filter": ""}, {"resource_name_filter": ""}):
        c.steps.append({"wrong": wrong})
        c.told("DescribeAcls", 3, {**FILTER, **wrong}, SHOWN)
        c.again()
        c.told("DeleteAcls", 3, {"filters": [{**FILTER, **wrong, "operation": wrong.get("operation", 15)}]}, SHOWN)
        c.again()


@case
def entries_by_name(c):
    for pattern, name in ((LITERAL, "orders-eu"), (PREFIXED, "orders"), (LITERAL, "*"), (PREFIXED, "order-")):
        c.give("read", ("topic", name), pattern, principal="User:eve")
    c.give("describe", CLUSTER)
    for pattern in (1, 2, 3, 4):
        for name in ("orders-eu", "orders", "*", None):
            c.steps.append({"pattern": pattern, "name": name})
            c.told("DescribeAcls", 3, {**FILTER, "resource_type_filter": 2, "resource_name_filter": name, "pattern_type_filter": pattern}, SHOWN)


# How entries work together.


def rule(name, *given):
    def run(c):
        topic = c.topic()
        c.fill(topic, 1)
        for operation, pattern, resource, more in given:
            c.give(operation, ("topic", {"whole": topic, "beginning": topic[:-3], "more": topic + "x", "all": "*"}[resource]), pattern, **more)
            c.steps.append({"given": [operation, resource, pattern, *sorted(more)]})
            c.told("Fetch", 12, fetch([topic]))
            c.told("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]})
    CASES[f"rule-{name}"] = run


rule("deny-before-allow", ("read", LITERAL, "whole", {}), ("read", PREFIXED, "beginning", {"permission": DENY}))
rule("deny-of-all", ("all", LITERAL, "all", {}), ("all", LITERAL, "whole", {"permission": DENY}))
rule("deny-describe", ("read", LITERAL, "whole", {}), ("describe", LITERAL, "whole", {"permission": DENY}))
rule("deny-read-leaves-describe", ("read", LITERAL, "all", {}), ("read", LITERAL, "whole", {"permission": DENY}))
rule("prefixes", ("read", PREFIXED, "more", {}), ("read", PREFIXED, "beginning", {}))
rule("a-prefix-is-no-literal", ("read", LITERAL, "beginning", {}))
rule("everybody", ("read", LITERAL, "whole", {"principal": "User:*"}))
rule("somebody-else", ("read", LITERAL, "whole", {"principal": "User:eve"}), ("read", LITERAL, "whole", {"principal": "Group:bob"}))
rule("another-host", ("read", LITERAL, "whole", {"host": "10.9.8.7"}), ("read", LITERAL, "whole", {"host": "127.0.0.1"}))
rule("deny-of-another-host", ("read", LITERAL, "whole", {}), ("read", LITERAL, "whole", {"host": "10.9.8.7", "permission": DENY}))
for operation in ("write", "delete", "alter", "create", "alter_configs", "describe_configs", "describe"):
    rule(f"{operation.replace('_', '-')}-brings", (operation, LITERAL, "whole", {}))


# APIs that nobody is kept from, and that no case asks for.
FREE = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "PushTelemetry"}


def uncovered(bootstrap, steps):
    """APIs that the broker serves and no case asks for."""
    connection = Connection(address(bootstrap))
    connection.request("ApiVersions", 0, {})
    served = {NAMES.get(one["api_key"]) for one in connection.response("ApiVersions", 0)["api_keys"]}
    connection.close()
    return served - {step["request"].partition(" ")[0] for step in steps if "request" in step} - FREE


def ready(where, token):
    """Coordinators and producer ids that are just being made are waited for, as alice."""
    one = Asked(where, "ready", token)

    def there():
        found = [one.quiet("FindCoordinator", 4, {"key_type": kind, "coordinator_keys": ["anything"]}) for kind in (0, 1)]
        asked = one.quiet("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000})
        return not any(answer["coordinators"][0]["error_code"] for answer in found) and not asked["error_code"]
    one.settled(there)
    one.end()


def run(bootstrap, wanted=""):
    token = f"{os.getpid():x}{int(time.time()) & 0xFFFFF:x}"
    ready(address(bootstrap), token)
    for name, function in CASES.items():
        if wanted not in name:
            continue
        one = Asked(address(bootstrap), name, token)
        try:
            function(one)
        except Exception as error:
            one.note(broken=f"{type(error).__name__}: {error}")
        one.end()
        yield name, one.steps


def properties(plain, sasl):
    """What a real Kafka is to be started with beside the peer's usual settings."""
    everywhere = f"PLAINTEXT://{plain},SASL://{sasl}"
    host, _, port = plain.rpartition(":")
    users = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
    print(f"listeners={everywhere},CONTROLLER://{host}:{int(port) + 1}\nadvertised.listeners={everywhere}\n"
          "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT\n"
          f"authorizer.class.name={AUTHORIZER}\nsuper.users=User:alice;User:ANONYMOUS\n"
          "listener.name.sasl.sasl.enabled.mechanisms=PLAIN\n"
          f"listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};")


def flags(sasl):
    """What this broker is to be started with; alice is its first user."""
    wishes = (f"listeners=SASL://{sasl}", "listener.security.protocol.map=SASL:SASL_PLAINTEXT", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
              f"authorizer.class.name={AUTHORIZER}", "super.users=User:alice")
    return [word for wish in wishes for word in ("--set", wish)]


def main():
    what, *words = sys.argv[1:]
    if what == "properties":
        properties(*words)
    elif what == "record":
        return 0 if write(RECORDED, dict(run(*words))) else 1
    elif what == "compare":
        logins.add_bob(words[0])
        meant = json.loads((HERE / "differences-acls.json").read_text())
        found = dict(run(*words))
        passed, failed = compare("kafka", found.items(), json.loads(RECORDED.read_text()), meant, whole=len(words) == 1)
        left = uncovered(words[0], [step for steps in found.values() for step in steps]) if len(words) == 1 else ()
        if left:
            print(f"FAIL  nothing asks for {', '.join(sorted(left))}")
            failed += 1
        print(f"{passed} passed, {failed} failed")
        return 1 if failed else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
