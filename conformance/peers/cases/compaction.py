"""Compacted topics: which settings make one, what may be written to it, and what a reader sees. What compaction leaves in the end
is in `conformance/behaviours`."""

from batch import batch, record
from client import produce

from . import case, topics
from .configs import APPEND, SET, alter, seen


def create(t, *configs):
    """A topic with these settings: its name, and the error if it is not made."""
    name = t.unique("topic")
    answer = topics.create(t, name, configs=configs)
    return name, answer["topics"][0]["error_code"]


@case
def compaction_by_many_spellings_of_a_policy(t):
    for policy in ("compact", "compact,delete", "delete,compact", "delete, compact", " compact ", "compact,compact", "delete,delete",
                   "compact,none", "Compact", "COMPACT", "compact,", ",", "compact;delete", "none"):
        name, error = create(t, ("cleanup.policy", policy))
        if not error:
            seen(t, name, "cleanup.policy")


@case
def compaction_settings_at_their_bounds(t):
    for key, values in {
        "delete.retention.ms": ("0", "-1", "9223372036854775807"),
        "min.compaction.lag.ms": ("0", "-1"),
        "max.compaction.lag.ms": ("1", "0", "-1"),
        "min.cleanable.dirty.ratio": ("0", "1", "0.5", "1.0001", "-0.1", "NaN", "half"),
        "segment.ms": ("1", "0"),
        "segment.bytes": ("1048576", "1048575", "14", "2147483647", "2147483648"),
    }.items():
        for value in values:
            create(t, ("cleanup.policy", "compact"), (key, value))


@case
def compaction_lags_that_contradict_each_other(t):
    create(t, ("cleanup.policy", "compact"), ("min.compaction.lag.ms", "2000"), ("max.compaction.lag.ms", "1000"))
    create(t, ("cleanup.policy", "compact"), ("min.compaction.lag.ms", "1000"), ("max.compaction.lag.ms", "1000"))
    topic, _ = create(t, ("cleanup.policy", "compact"), ("max.compaction.lag.ms", "1000"))
    alter(t, topic, ("min.compaction.lag.ms", SET, "2000"))
    alter(t, topic, ("min.compaction.lag.ms", SET, "500"))
    seen(t, topic, "min.compaction.lag.ms", "max.compaction.lag.ms")


@case
def compaction_of_a_topic_that_has_records_without_keys(t):
    topic = t.topic()
    t.ask("Produce", 9, produce(topic, batch(key=None)))
    alter(t, topic, ("cleanup.policy", APPEND, "compact"))
    seen(t, topic, "cleanup.policy")
    t.ask("Produce", 9, produce(topic, batch(key=None)))
    t.ask("Produce", 9, produce(topic, batch()))


@case
def compaction_refuses_what_has_no_key(t):
    topic = t.topic(cleanup_policy="compact")
    for version in (7, 8, 9):
        t.ask("Produce", version, produce(topic, batch(key=None)))
    keyed, keyless = record(0, b"key", b"value"), record(1, None, b"value")
    t.ask("Produce", 9, produce(topic, batch([b""] * 2, payload=keyed + keyless)))
    t.ask("Produce", 9, produce(topic, batch([b""] * 3, payload=keyed + keyless + record(2, None, b"value"))))
    t.ask("Produce", 9, produce(topic, batch(key=b"")))
    t.ask("Produce", 9, produce(topic, batch([None])))
    t.ask("Produce", 9, produce(topic, batch([b"packed"], key=None, attributes=1)))


@case
def compaction_with_deletion_refuses_what_has_no_key(t):
    topic = t.topic(cleanup_policy="compact,delete")
    t.ask("Produce", 9, produce(topic, batch(key=None)))
    t.ask("Produce", 9, produce(topic, batch()))


@case
def compaction_makes_no_difference_to_offsets(t):
    topic = t.topic(cleanup_policy="compact")
    for _ in range(3):
        t.ask("Produce", 9, produce(topic, batch([b"one", b"two"])))
    for at in (-1, -2, -3, -4, -5):
        part = {"partition_index": 0, "timestamp": at}
        t.ask("ListOffsets", 9 if at < -3 else 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]})
