"""Writes down the ends of all partitions twice a second: the last stable offset, then the high watermark. Until it is told to end;
with `until-stable=SECONDS`, until nothing is open any more, or for so long.
Arguments: bootstrap, folder of the history, topics as NAME=PARTITIONS."""

import signal
import sys
import time

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from history import Notes

bootstrap, folder = sys.argv[1:3]
words = dict(word.split("=") for word in sys.argv[3:])
patience = float(words.pop("until-stable", 0))
places = [TopicPartition(topic, partition) for topic, count in words.items() for partition in range(int(count))]
notes, running = Notes(folder, f"watch-{'end' if patience else 'load'}"), True
admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})


def stop(_signal, _frame):
    global running
    running = False


def ends(level):
    asked = admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=level, request_timeout=2)
    return {f"{place.topic}/{place.partition}": future.result().offset for place, future in asked.items()}


def sample():
    """Whether nothing is open; an unreachable broker is not written down."""
    try:
        at = time.monotonic_ns()
        stable = ends(IsolationLevel.READ_COMMITTED)
        high = ends(IsolationLevel.READ_UNCOMMITTED)
    except KafkaException:
        return False
    for key, offset in stable.items():
        notes.note("ends", k=key, s=offset, h=high[key], asked=at)
    return stable == high


signal.signal(signal.SIGTERM, stop)
until = time.time() + patience
while running and not (sample() and patience) and not (patience and time.time() > until):
    time.sleep(0.5)
