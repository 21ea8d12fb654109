"""DeleteRecords, ListOffsets, OffsetForLeaderEpoch."""

import time

from batch import batch, record
from client import produce
from . import case


def delete(t, topic, offset, partition=0, version=2):
    parts = [{"partition_index": partition, "offset": offset}]
    t.ask("DeleteRecords", version, {"topics": [{"name": topic, "partitions": parts}], "timeout_ms": 5000})


def where(t, topic, timestamp, partition=0, version=11, **more):
    parts = [{"partition_index": partition, "timestamp": timestamp, **more}]
    t.ask("ListOffsets", version, {"replica_id": -1, "topics": [{"name": topic, "partitions": parts}]})


def epoch_end(t, topic, epoch, current=-1, partition=0, version=4):
    parts = [{"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}]
    t.ask("OffsetForLeaderEpoch", version, {"topics": [{"topic": topic, "partitions": parts}]})


@case
def delete_records_in_every_version(t):
    topic = t.topic()
    t.fill(topic, 4)
    for version in range(3):
        delete(t, topic, version + 1, version=version)


@case
def delete_records_to_the_end(t):
    topic = t.topic()
    t.fill(topic)
    delete(t, topic, -1)


@case
def delete_records_beyond_the_end(t):
    topic = t.topic()
    t.fill(topic)
    delete(t, topic, 4)


@case
def delete_records_to_a_negative_offset(t):
    topic = t.topic()
    t.fill(topic)
    delete(t, topic, -2)


@case
def delete_records_before_the_start(t):
    topic = t.topic()
    t.fill(topic)
    delete(t, topic, 2)
    delete(t, topic, 1)


@case
def delete_records_in_the_middle_of_a_batch(t):
    topic = t.topic()
    t.quiet("Produce", 9, produce(topic, batch([b"a", b"b", b"c"])))
    delete(t, topic, 1)
    where(t, topic, -2)


@case
def delete_records_of_an_unknown_topic(t):
    delete(t, t.unique("topic"), 0)


@case
def delete_records_of_an_unknown_partition(t):
    delete(t, t.topic(), 0, partition=5)


@case
def delete_records_of_a_compacted_topic(t):
    topic = t.topic(cleanup_policy="compact")
    t.fill(topic)
    delete(t, topic, 1)


@case
def delete_no_records(t):
    t.ask("DeleteRecords", 2, {"topics": [], "timeout_ms": 5000})


@case
def list_offsets_in_every_version(t):
    topic = t.topic()
    t.fill(topic)
    for version in range(1, 12):
        where(t, topic, -1, version=version)


@case
def list_offsets_at_special_times(t):
    topic = t.topic()
    t.fill(topic)
    for special in range(-1, -7, -1):
        where(t, topic, special)


@case
def list_offsets_in_a_batch_trimmed_in_its_middle(t):
    for attributes in (0, 1):
        topic = t.topic()
        assert t.quiet("Produce", 9, produce(topic, batch([b"v"] * 5, attributes=attributes)))["responses"][0]["partition_responses"][0]["error_code"] == 0
        t.quiet("DeleteRecords", 1, {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}], "timeout_ms": 5000})
        for at in (1_600_000_000_000, 1_700_000_000_000, 1_700_000_000_001, -3):
            where(t, topic, at)
        t.fill(topic, 1)
        where(t, topic, 1_700_000_000_000)


@case
def list_offsets_at_an_unknown_special_time(t):
    topic = t.topic()
    t.fill(topic)
    where(t, topic, -7)


@case
def list_offsets_at_special_times_too_early(t):
    topic = t.topic()
    t.fill(topic)
    where(t, topic, -3, version=6)
    where(t, topic, -4, version=7)
    where(t, topic, -5, version=8)
    where(t, topic, -6, version=10)


@case
def list_offsets_at_special_times_of_an_empty_partition(t):
    topic = t.topic()
    for special in range(-1, -6, -1):
        where(t, topic, special)


@case
def list_offsets_by_time(t):
    topic = t.topic()
    t.fill(topic)
    for after in (-5000, 0, 1, 1000, 2000, 2001):
        where(t, topic, 1_700_000_000_000 + after)


@case
def list_offsets_by_time_after_a_trim(t):
    topic = t.topic()
    t.fill(topic)
    delete(t, topic, 2)
    where(t, topic, 0)
    where(t, topic, -2)


@case
def list_offsets_by_a_time_in_a_batch(t):
    topic = t.topic()
    payload = b"".join(record(at, b"k", b"v", time=at * 10) for at in range(3))
    t.quiet("Produce", 9, produce(topic, batch(payload=payload, count=3, last_delta=2, last=1_700_000_000_020)))
    for after in (1, 10, 11, 20, 21):
        where(t, topic, 1_700_000_000_000 + after)
    where(t, topic, -3)


@case
def list_offsets_by_a_time_to_come(t):
    topic = t.topic()
    t.fill(topic)
    where(t, topic, int(time.time() * 1000) + 3_600_000)


@case
def list_offsets_of_an_unknown_topic(t):
    where(t, t.unique("topic"), -1)


@case
def list_offsets_of_an_unknown_partition(t):
    where(t, t.topic(), -1, partition=5)


@case
def list_offsets_of_one_partition_twice(t):
    topic = t.topic()
    part = {"partition_index": 0, "timestamp": -1}
    t.ask("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": [part, part]}]})


@case
def list_offsets_with_an_unknown_epoch(t):
    topic = t.topic()
    where(t, topic, -1, current_leader_epoch=t.epoch_of(topic) + 5)


@case
def list_offsets_with_the_current_epoch(t):
    topic = t.topic()
    where(t, topic, -1, current_leader_epoch=t.epoch_of(topic))


@case
def list_offsets_committed_only(t):
    topic = t.topic()
    t.fill(topic)
    parts = [{"partition_index": 0, "timestamp": -1}]
    t.ask("ListOffsets", 7, {"replica_id": -1, "isolation_level": 1, "topics": [{"name": topic, "partitions": parts}]})


@case
def epoch_end_of_the_current_epoch(t):
    topic = t.topic()
    t.fill(topic)
    now = t.epoch_of(topic)
    for version in (2, 3, 4):
        epoch_end(t, topic, now, now, version=version)


@case
def epoch_end_of_a_later_epoch(t):
    topic = t.topic()
    t.fill(topic)
    epoch_end(t, topic, t.epoch_of(topic) + 5)


@case
def epoch_end_of_an_undefined_epoch(t):
    topic = t.topic()
    t.fill(topic)
    epoch_end(t, topic, -1)


@case
def epoch_end_with_an_unknown_current_epoch(t):
    topic = t.topic()
    now = t.epoch_of(topic)
    epoch_end(t, topic, now, now + 5)


@case
def epoch_end_of_an_empty_partition(t):
    topic = t.topic()
    epoch_end(t, topic, t.epoch_of(topic))


@case
def epoch_end_of_an_unknown_topic(t):
    epoch_end(t, t.unique("topic"), 0)


@case
def epoch_end_of_an_unknown_partition(t):
    epoch_end(t, t.topic(), 0, partition=5)


@case
def list_offsets_with_an_old_epoch(t):
    topic = t.topic()
    where(t, topic, -1, current_leader_epoch=t.old_epoch_of(topic))


@case
def epoch_end_with_an_old_current_epoch(t):
    topic = t.topic()
    epoch_end(t, topic, t.epoch_of(topic), t.old_epoch_of(topic))


@case
def epoch_end_after_a_trim(t):
    topic = t.topic()
    t.fill(topic)
    delete(t, topic, 2)
    epoch_end(t, topic, t.epoch_of(topic))


@case
def list_offsets_of_a_deleted_topic(t):
    topic = t.topic()
    t.quiet("DeleteTopics", 4, {"topic_names": [topic], "timeout_ms": 5000})
    t.settled(lambda: t.quiet("Metadata", 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})["topics"][0]["error_code"] == 3)
    where(t, topic, -1)


@case
def delete_records_twice_in_a_request(t):
    topic = t.topic(2)
    t.fill(topic)
    t.fill(topic, 2, 1)
    parts = [{"partition_index": at, "offset": 1} for at in (0, 1)]
    t.ask("DeleteRecords", 2, {"topics": [{"name": topic, "partitions": parts}], "timeout_ms": 5000})
    where(t, topic, -2)
    where(t, topic, -2, partition=1)
