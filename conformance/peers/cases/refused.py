"""Requests that are refused for what came before them: replaced members, stale producers, transactions in another state, epochs that are
over or yet to come; and settings that cannot be."""

from batch import batch
from client import join, produce

from . import UNKNOWN_ID, case
from .configs import BROKER, DELETE, LOGGER, SET, alter
from .transactions import add, adding, begun, commit, complete, end, ended, of, open_one, wish, write


def numbered(topic, pid, epoch, sequence, version=9):
    return produce(topic, batch(pid=pid, epoch=epoch, sequence=sequence))


def replaced(t, group):
    """A static member, and the one that came in its place."""
    old, _ = t.member(group, instance="one")
    new, generation = t.member(group, instance="one")
    return old, new, generation


@case
def replaced_member_goes_on(t):
    topic, group = t.topic(), t.group()
    old, _, generation = replaced(t, group)
    who = {"group_id": group, "generation_id": generation, "member_id": old, "group_instance_id": "one"}
    t.ask("Heartbeat", 4, who)
    t.ask("SyncGroup", 5, {**who, "protocol_type": "consumer", "protocol_name": "range", "assignments": []})
    t.ask("JoinGroup", 9, join(group, old, instance="one"))
    parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    t.ask("OffsetCommit", 8, {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": old,
                              "group_instance_id": "one", "topics": [{"name": topic, "partitions": parts}]})
    t.ask("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": old, "group_instance_id": "one"}]})


@case
def replaced_member_without_its_instance(t):
    group = t.group()
    old, _, generation = replaced(t, group)
    who = {"group_id": group, "generation_id": generation, "member_id": old}
    t.ask("Heartbeat", 4, who)
    t.ask("SyncGroup", 5, {**who, "protocol_type": "consumer", "protocol_name": "range", "assignments": []})
    t.ask("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": old}]})


@case
def replaced_member_commits_in_a_transaction(t):
    topic, group, tx = t.topic(), t.group(), begun(t)
    old, new, generation = replaced(t, group)
    t.ask("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    commit(t, tx, group, topic, generation_id=generation, member_id=old, group_instance_id="one")
    commit(t, tx, group, topic, generation_id=generation, member_id=new, group_instance_id="two")
    commit(t, tx, group, topic, generation_id=generation + 3, member_id=new, group_instance_id="one")
    commit(t, tx, group, topic, generation_id=generation, member_id=new, group_instance_id="one")


@case
def member_that_has_left_goes_on(t):
    topic, group = t.topic(), t.group()
    member, generation = t.member(group)
    t.ask("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": member}]})
    who = {"group_id": group, "generation_id": generation, "member_id": member}
    t.ask("Heartbeat", 4, who)
    t.ask("SyncGroup", 5, {**who, "protocol_type": "consumer", "protocol_name": "range", "assignments": []})
    t.ask("JoinGroup", 9, join(group, member))
    parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    t.ask("OffsetCommit", 8, {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": member,
                              "topics": [{"name": topic, "partitions": parts}]})


@case
def sequence_of_a_batch_already_followed(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    for sequence in (0, 1, 2, 1, 3, 9, 3):
        t.ask("Produce", 9, numbered(topic, pid, epoch, sequence))


@case
def sequence_of_an_epoch_before_a_restart(t):
    topic, old = t.topic(), begun(t)
    add(t, old, topic)
    write(t, old, topic)
    new = begun(t, old[0])
    add(t, new, topic)
    write(t, new, topic)
    write(t, old, topic, sequence=1)
    write(t, old, topic, sequence=1, version=12)
    write(t, new, topic, sequence=5)


@case
def sequence_after_the_epoch_went_on(t):
    topic, tx = open_one(t, version=12)
    after = ended(t, tx, version=5)
    write(t, tx, topic, version=12, sequence=1)
    write(t, after, topic, version=12, sequence=0)
    write(t, after, topic, version=12, sequence=0)
    write(t, after, topic, version=12, sequence=7)


@case
def transaction_offsets_that_were_not_announced(t):
    for version in (0, 3, 5):
        commit(t, begun(t), t.group(), t.topic(), version=version)


@case
def transaction_offsets_committed_by_a_wrong_producer(t):
    topic, (name, pid, epoch), group = t.topic(), begun(t), t.group()
    t.ask("AddOffsetsToTxn", 3, {**of((name, pid, epoch)), "group_id": group})
    for version in (3, 5):
        commit(t, (name, pid, epoch + 1), group, topic, version=version)
        commit(t, (name, pid + 1000, epoch), group, topic, version=version)
        commit(t, (t.unique("transaction"), pid, epoch), group, topic, version=version)


@case
def transaction_offsets_without_a_group(t):
    topic, tx = t.topic(), begun(t)
    for version in (0, 3):
        t.ask("AddOffsetsToTxn", version, {**of(tx), "group_id": ""})
    commit(t, tx, "", topic)


@case
def transaction_offsets_after_the_end(t):
    topic, tx, group = t.topic(), begun(t), t.group()
    t.ask("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    ended(t, tx)
    commit(t, tx, group, topic)


@case
def transaction_without_a_name(t):
    topic, (_, pid, epoch) = t.topic(), begun(t)
    tx = ("", pid, epoch)
    add(t, tx, topic)
    t.ask("AddOffsetsToTxn", 3, {**of(tx), "group_id": t.group()})
    end(t, tx)
    end(t, tx, version=5)


@case
def transaction_that_never_was(t):
    topic, tx = t.topic(), (t.unique("transaction"), 424242, 0)
    for version in (0, 1, 2, 3):
        add(t, tx, topic, version=version)
        t.ask("AddOffsetsToTxn", version, {**of(tx), "group_id": "nobody"})
        end(t, tx, version=version)
    for version in (4, 5):
        end(t, tx, version=version)
    write(t, tx, topic)
    write(t, tx, topic, version=12)


@case
def transaction_of_no_partitions(t):
    tx = begun(t)
    t.ask("AddPartitionsToTxn", 3, {**adding(tx, "none"), "v3_and_below_topics": []})
    end(t, tx)


@case
def transaction_of_a_partition_that_is_not_there(t):
    topic, tx = t.topic(), begun(t)
    add(t, tx, topic, partitions=[-1])
    add(t, tx, topic, partitions=[0, 0])
    add(t, tx, "a b")
    add(t, tx, "")


@case
def transaction_written_after_an_abort(t):
    topic, tx = open_one(t)
    ended(t, tx, False)
    write(t, tx, topic, sequence=1)
    write(t, tx, topic, sequence=0)


@case
def transaction_with_another_transactions_name(t):
    topic, (name, pid, epoch), (other, *_) = t.topic(), begun(t), begun(t)
    add(t, (name, pid, epoch), topic)
    write(t, (other, pid, epoch), topic)
    write(t, (other, pid, epoch), topic, version=12)
    end(t, (other, pid, epoch))
    end(t, (other, pid, epoch), version=5)


@case
def transaction_of_an_epoch_that_is_over(t):
    topic, tx = open_one(t, version=12)
    after = ended(t, tx, version=5)
    end(t, tx, False, version=5)
    add(t, tx, topic)
    t.ask("AddOffsetsToTxn", 4, {**of(tx), "group_id": t.group()})
    t.ask("InitProducerId", 5, wish(tx[0], pid=tx[1], epoch=tx[2]))
    complete(t, tx)
    end(t, after, version=5)


@case
def transaction_described_without_a_name(t):
    t.ask("DescribeTransactions", 0, {"transactional_ids": [""]})
    t.ask("DescribeTransactions", 0, {"transactional_ids": []})


@case
def transaction_marked_where_nothing_is(t):
    tx = begun(t)
    marker = {"producer_id": tx[1], "producer_epoch": tx[2], "transaction_result": False, "coordinator_epoch": 0}
    for topic, partition in ((t.topic(), 7), (t.topic(), -1), ("a b", 0)):
        t.ask("WriteTxnMarkers", 1, {"markers": [{**marker, "topics": [{"name": topic, "partition_indexes": [partition]}]}]})
    t.ask("WriteTxnMarkers", 1, {"markers": []})


@case
def epoch_of_the_future_everywhere(t):
    topic = t.topic()
    t.fill(topic)
    ahead = t.epoch_of(topic) + 7
    for version in (9, 12):
        parts = [{"partition": 0, "current_leader_epoch": ahead, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        t.ask("Fetch", version, {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [{"topic": topic, "partitions": parts}]},
              drop=("current_leader",))
    for version in (4, 7, 10):
        parts = [{"partition_index": 0, "current_leader_epoch": ahead, "timestamp": -1}]
        t.ask("ListOffsets", version, {"replica_id": -1, "topics": [{"name": topic, "partitions": parts}]})
    for version in (2, 3, 4):
        parts = [{"partition": 0, "current_leader_epoch": ahead, "leader_epoch": 0}]
        t.ask("OffsetForLeaderEpoch", version, {**({"replica_id": -1} if version > 2 else {}), "topics": [{"topic": topic, "partitions": parts}]})


@case
def ids_that_nobody_knows(t):
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    for version in (13, 17):
        t.ask("Fetch", version, {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1000, "topics": [{"topic_id": UNKNOWN_ID, "partitions": parts}]})
    t.ask("Produce", 13, {"acks": -1, "timeout_ms": 5000, "topic_data": [
        {"topic_id": UNKNOWN_ID, "partition_data": [{"index": 0, "records": batch()}]}]})
    t.ask("Metadata", 12, {"topics": [{"topic_id": UNKNOWN_ID, "name": None}], "allow_auto_topic_creation": True})
    t.ask("DeleteTopics", 6, {"topics": [{"name": None, "topic_id": UNKNOWN_ID}], "timeout_ms": 5000})
    t.ask("OffsetFetch", 10, {"groups": [{"group_id": t.group(), "topics": [{"topic_id": UNKNOWN_ID, "partition_indexes": [0]}]}]})


@case
def settings_of_a_topic_that_cannot_be(t):
    for name, value in (
            ("segment.bytes", "10"), ("segment.bytes", "1048575"), ("segment.ms", "0"), ("segment.jitter.ms", "-1"), ("segment.index.bytes", "3"), ("flush.messages", "0"),
            ("flush.ms", "-1"), ("retention.ms", "-2"), ("retention.bytes", "many"), ("max.message.bytes", "-1"),
            ("max.message.bytes", "2147483648"), ("index.interval.bytes", "-1"), ("delete.retention.ms", "-1"), ("file.delete.delay.ms", "-1"),
            ("min.cleanable.dirty.ratio", "-0.1"), ("min.cleanable.dirty.ratio", "2"), ("min.compaction.lag.ms", "-1"),
            ("max.compaction.lag.ms", "0"), ("min.insync.replicas", "0"), ("cleanup.policy", "compact,shred"), ("preallocate", "maybe"),
            ("compression.type", "zip"), ("compression.gzip.level", "10"), ("compression.lz4.level", "18"), ("compression.zstd.level", "23"),
            ("message.timestamp.type", "now"), ("message.timestamp.before.max.ms", "-1"), ("message.timestamp.after.max.ms", "-1"),
            ("unclean.leader.election.enable", "2"), ("follower.replication.throttled.replicas", "all")):
        alter(t, t.topic(), (name, SET, value))


@case
def settings_of_a_broker_that_cannot_be(t):
    for name, value in (("broker.id", "5"), ("log.dirs", "elsewhere"), ("no.such.setting", "1"), ("log.retention.ms", "soon"),
                        ("num.io.threads", "0"), ("log.cleaner.threads", "-1"), ("message.max.bytes", "-1"), ("process.roles", "broker")):
        alter(t, "", (name, SET, value), kind=BROKER, validate=True)
    alter(t, "one", ("log.retention.ms", SET, "1000"), kind=BROKER)
    alter(t, "-1", ("log.retention.ms", SET, "1000"), kind=BROKER)


@case
def settings_of_loggers_that_cannot_be(t):
    alter(t, "4242", ("kafka", SET, "DEBUG"), kind=LOGGER)
    alter(t, "one", ("kafka", SET, "DEBUG"), kind=LOGGER)
    alter(t, "", ("kafka", SET, "DEBUG"), kind=LOGGER)


@case
def settings_deleted_that_are_not_there(t):
    alter(t, t.topic(), ("", DELETE, None))
    alter(t, t.topic(), ("", SET, "1"))
