"""Fetch: offsets, epochs, limits, sessions, topic ids."""

from batch import batch
from client import produce
from . import UNKNOWN_ID, case


def wish(topic, offset, by_id=False, partition=0, **more):
    part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": more.pop("part_bytes", 1 << 20)}
    if "epoch" in more:
        part["current_leader_epoch"] = more.pop("epoch")
    if "last_epoch" in more:
        part["last_fetched_epoch"] = more.pop("last_epoch")
    topics = [{"topic_id" if by_id else "topic": topic, "partitions": [part]}]
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics, **more}


@case
def fetch_in_every_version_by_name(t):
    topic = t.topic()
    t.fill(topic)
    for version in range(4, 13):
        t.ask("Fetch", version, wish(topic, 0))


@case
def fetch_in_every_version_by_id(t):
    topic = t.topic()
    t.fill(topic)
    for version in range(13, 19):
        t.ask("Fetch", version, wish(t.id_of(topic), 1, by_id=True))


@case
def fetch_from_the_middle_of_a_batch(t):
    topic = t.topic()
    t.quiet("Produce", 9, produce(topic, batch([b"a", b"b", b"c"])))
    t.ask("Fetch", 12, wish(topic, 1))


@case
def fetch_at_the_end(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 3))


@case
def fetch_beyond_the_end(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 4))


@case
def fetch_a_negative_offset(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, -1))


@case
def fetch_before_the_start(t):
    topic = t.topic()
    t.fill(topic)
    t.quiet("DeleteRecords", 2, {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}], "timeout_ms": 5000})
    t.ask("Fetch", 12, wish(topic, 1))
    t.ask("Fetch", 12, wish(topic, 2))


@case
def fetch_an_empty_partition(t):
    t.ask("Fetch", 12, wish(t.topic(), 0))


@case
def fetch_an_unknown_topic(t):
    t.ask("Fetch", 12, wish(t.unique("topic"), 0))


@case
def fetch_an_unknown_partition(t):
    t.ask("Fetch", 12, wish(t.topic(), 0, partition=9))


@case
def fetch_a_negative_partition(t):
    t.ask("Fetch", 12, wish(t.topic(), 0, partition=-1))


@case
def fetch_an_unknown_topic_id(t):
    t.ask("Fetch", 13, wish(t.learn(UNKNOWN_ID, "<unknown id>"), 0, by_id=True))


@case
def fetch_a_topic_id_of_zeros(t):
    t.ask("Fetch", 13, wish("00000000-0000-0000-0000-000000000000", 0, by_id=True))


@case
def fetch_a_deleted_topic_by_id(t):
    topic = t.topic()
    t.fill(topic)
    known = t.id_of(topic)
    t.quiet("DeleteTopics", 4, {"topic_names": [topic], "timeout_ms": 5000})
    t.settled(lambda: t.quiet("Metadata", 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})["topics"][0]["error_code"] == 3)
    t.ask("Fetch", 13, wish(known, 0, by_id=True))


@case
def fetch_with_the_current_epoch(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, epoch=t.epoch_of(topic)))


@case
def fetch_with_an_unknown_epoch(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, epoch=t.epoch_of(topic) + 5))


@case
def fetch_with_a_last_epoch_of_the_future(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 2, last_epoch=t.epoch_of(topic) + 5))


@case
def fetch_at_most_1_byte(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, max_bytes=1, part_bytes=1))


@case
def fetch_at_most_0_bytes(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, max_bytes=0, part_bytes=0))


@case
def fetch_a_negative_number_of_bytes(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, max_bytes=-1, part_bytes=-1))


@case
def fetch_without_topics(t):
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "topics": []})


@case
def fetch_with_a_negative_wait(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, max_wait_ms=-1))


@case
def fetch_waits_and_then_returns_nothing(t):
    t.ask("Fetch", 12, wish(t.topic(), 0, max_wait_ms=100, min_bytes=1))


@case
def fetch_an_error_does_not_wait(t):
    topic = t.topic()
    t.ask("Fetch", 12, wish(topic, 5, max_wait_ms=14_000, min_bytes=1))


@case
def fetch_committed_only(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, isolation_level=1))


@case
def fetch_with_an_unknown_isolation(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, isolation_level=7))


@case
def fetch_as_a_replica_nobody_knows(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, replica_id=77))


@case
def fetch_one_partition_twice(t):
    topic = t.topic()
    t.fill(topic)
    body = wish(topic, 0)
    body["topics"][0]["partitions"] *= 2
    t.ask("Fetch", 12, body)


@case
def fetch_several_partitions_in_order(t):
    topic = t.topic(3)
    for at in range(3):
        t.fill(topic, at + 1, at)
    body = wish(topic, 0)
    body["topics"][0]["partitions"] = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for at in (2, 0, 1)]
    t.ask("Fetch", 12, body)


@case
def fetch_session_made_and_used(t):
    topic = t.topic(2)
    t.fill(topic)
    made = t.ask("Fetch", 12, wish(topic, 0, session_epoch=0))
    t.ask("Fetch", 12, wish(topic, 3, session_id=made["session_id"], session_epoch=1))
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "topics": [], "session_id": made["session_id"], "session_epoch": 2})
    t.fill(topic, 1)
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "topics": [], "session_id": made["session_id"], "session_epoch": 3})


@case
def fetch_session_unknown(t):
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "topics": [], "session_id": 123_456, "session_epoch": 1})


@case
def fetch_session_with_a_wrong_epoch(t):
    topic = t.topic()
    made = t.ask("Fetch", 12, wish(topic, 0, session_epoch=0))
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "topics": [], "session_id": made["session_id"], "session_epoch": 9})


@case
def fetch_session_forgets_a_topic(t):
    topic = t.topic()
    t.fill(topic)
    made = t.ask("Fetch", 12, wish(topic, 0, session_epoch=0))
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "topics": [], "session_id": made["session_id"], "session_epoch": 1,
                        "forgotten_topics_data": [{"topic": topic, "partitions": [0]}]})


@case
def fetch_session_closed(t):
    topic = t.topic()
    made = t.ask("Fetch", 12, wish(topic, 0, session_epoch=0))
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "topics": [], "session_id": made["session_id"], "session_epoch": -1})
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "topics": [], "session_id": made["session_id"], "session_epoch": 1})


@case
def fetch_session_by_id_then_by_name(t):
    topic = t.topic()
    t.fill(topic)
    made = t.ask("Fetch", 13, wish(t.id_of(topic), 0, by_id=True, session_epoch=0))
    t.ask("Fetch", 12, wish(topic, 0, session_id=made["session_id"], session_epoch=1))


@case
def fetch_session_with_an_unknown_topic_id(t):
    made = t.ask("Fetch", 13, wish(t.learn(UNKNOWN_ID, "<unknown id>"), 0, by_id=True, session_epoch=0))
    t.ask("Fetch", 13, {"max_wait_ms": 0, "min_bytes": 0, "topics": [], "session_id": made["session_id"], "session_epoch": 1})


@case
def fetch_with_an_old_epoch(t):
    topic = t.topic()
    t.fill(topic)
    t.ask("Fetch", 12, wish(topic, 0, epoch=t.old_epoch_of(topic)))


@case
def fetch_waits_until_something_comes(t):
    topic = t.topic()
    begun = t.begin("Fetch", 12, wish(topic, 0, max_wait_ms=10_000, min_bytes=1))
    t.fill(topic, 1)
    t.finish(begun)


@case
def fetch_waits_for_as_much_as_it_asked(t):
    topic = t.topic()
    begun = t.begin("Fetch", 12, wish(topic, 0, max_wait_ms=10_000, min_bytes=100))
    t.fill(topic, 2)
    t.finish(begun)


@case
def fetch_waits_while_its_topic_is_deleted(t):
    topic = t.topic()
    begun = t.begin("Fetch", 12, wish(topic, 0, max_wait_ms=3_000, min_bytes=1))
    t.quiet("DeleteTopics", 4, {"topic_names": [topic], "timeout_ms": 5000})
    t.finish(begun)


@case
def fetch_a_gzip_batch_as_it_was_written(t):
    topic = t.topic()
    t.quiet("Produce", 9, produce(topic, batch([b"a", b"b", b"c"], attributes=1)))
    t.ask("Fetch", 12, wish(topic, 2))


@case
def fetch_good_and_bad_partitions(t):
    topic = t.topic()
    t.fill(topic)
    body = wish(topic, 0)
    body["topics"][0]["partitions"] = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for at in (0, 5)]
    t.ask("Fetch", 12, body)
