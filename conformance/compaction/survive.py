"""A compacted topic under kill −9: an idempotent producer updates and deletes keys while the broker compacts what is older and is
killed now and then. A reader without a group then reads from offset 0 to the end, as a schema registry does at its start, and
has exactly the newest value of each key; when compaction has come to rest, it meets little else on its way: less than as much again.
Arguments: binary, seconds."""

import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker

KEYS, PARTITIONS, TOPIC = 2000, 3, "registry"
# Updates a second at most: a pass over what a fast machine could send takes longer than the broker lives between two kills.
PACE = 25_000
SETTINGS = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.2", "delete.retention.ms": "1000"}
# What may be left, as a multiple of the keys that have a value: a fifth of the bytes need not be compacted, and batches that
# were carry more bytes for a record than those that were not.
LEFT = 2


def survive(binary, seconds):
    with tempfile.TemporaryDirectory(prefix="mainstem-compaction-") as scratch:
        flags = ["--set", "log.cleaner.backoff.ms=200", "--set", "mainstem.segment.bytes=4194304",
                 "--set", "mainstem.journal.window.bytes=33554432"]
        broker = Broker(binary, f"{scratch}/data", flags).start()
        try:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=SETTINGS)])[TOPIC].result(30)
            newest, count, kills = load(broker, seconds)
            end_last_batches(broker, newest)
            check(broker, newest)
            settle(broker)
            read = check(broker, newest)
            assert read < count, "nothing was compacted"
            alive = sum(value is not None for value in newest.values())
            assert read <= LEFT * alive, f"{read} records are left of {alive} keys"
            broker.end(signal.SIGKILL)
            broker.start()
            check(broker, newest)
            print(f"{count} updates of {KEYS} keys, {kills} kills: {read} records are left, the newest of {alive} keys among them")
        finally:
            broker.end(signal.SIGKILL)


def load(broker, seconds):
    """Updates and deletions meanwhile; returns the newest value of each key, how many there were, and how many kills."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200,
                         "linger.ms": 5, "compression.type": "lz4", "log_level": 0})
    failures, newest, count, kills = [], {}, 0, 0
    start = time.time()
    until, due = start + seconds, start + 2
    while time.time() < until:
        for _ in range(500):
            key = b"key-%d" % random.randrange(KEYS)
            value = None if random.random() < 0.1 else b"%d " % count + random.randbytes(random.randrange(400))
            producer.produce(TOPIC, value, key, partition=hash(key) % PARTITIONS,
                             on_delivery=lambda error, _: error and failures.append(error))
            newest[key] = value
            count += 1
        producer.poll(0)
        while len(producer) > 20_000 or count > PACE * (time.time() - start):
            producer.poll(0.05)
        if time.time() > due:
            broker.end(signal.SIGKILL)
            broker.start()
            kills, due = kills + 1, time.time() + random.uniform(0.7, 3)
    assert producer.flush(60) == 0 and not failures, failures[:3]
    return newest, count, kills


def end_last_batches(broker, newest):
    """A record of its own for each partition. The last batch of a log is not compacted while it lies in the journal: after a kill
    it may hold thousands of records that a client had in hand."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(PARTITIONS):
        key = b"end-%d" % number
        producer.produce(TOPIC, b"", key, partition=number)
        newest[key] = b""
    assert producer.flush(60) == 0


def check(broker, newest):
    """Reads all to the end and compares; returns how many records there were."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0,
                         "auto.offset.reset": "error", "isolation.level": "read_committed"})
    partitions = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    ends = {one.partition: consumer.get_watermark_offsets(one, 20)[1] for one in partitions}
    consumer.assign(partitions)
    table, count, until = {}, 0, time.time() + 60
    while any(one.offset < ends[one.partition] for one in consumer.position(partitions)):
        assert time.time() < until, f"the end is not reached: {consumer.position(partitions)} of {ends}"
        for message in consumer.consume(5000, 0.3):
            assert not message.error(), message.error()
            count += 1
            table[message.key()] = message.value()
    consumer.close()
    found = {key: value for key, value in table.items() if value is not None}
    wanted = {key: value for key, value in newest.items() if value is not None}
    wrong = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
    assert not wrong, f"{len(wrong)} keys are not what was written last, such as {wrong[:3]}"
    return count


def counted(broker, name):
    lines = broker.metrics().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"mainstem_journal_{name}_total"))


def settle(broker):
    """Until compaction has found nothing to do for as long as what it had to keep a while takes to be due, and some looks more."""
    until, before, since, looks = time.time() + 180, -1, time.time(), 0
    while time.time() - since < 3 or counted(broker, "archive_idle") - looks < 5:
        passes = counted(broker, "compaction_passes")
        if passes != before:
            before, since, looks = passes, time.time(), counted(broker, "archive_idle")
        assert time.time() < until, "compaction does not come to rest"
        time.sleep(0.2)


survive(sys.argv[1], float(sys.argv[2]))
