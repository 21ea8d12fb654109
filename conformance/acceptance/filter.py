"""Groups with a filter beside one that reads everything: bytes, processor time, and that both come to the same records."""

import random
import statistics
import threading
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from machine import Folder, Mainstem, Steal, admin, create

PARTITIONS, CLASSES, ROUNDS, GROUPS = 4, 10, 3, 5
VALUE_BYTES = 1024


def produce(bootstrap, topic, codec, records):
    """Each record is of one of ten classes, which is its key; half of a value repeats."""
    chance = random.Random(7)
    values = [chance.randbytes(VALUE_BYTES // 2) + b"x" * (VALUE_BYTES // 2) for _ in range(500)]
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, "batch.size": 1_000_000,
                         "log_level": 0, "queue.buffering.max.messages": 200_000})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % 500], b"class-%d" % chance.randrange(CLASSES), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def set_filter(client, group, text):
    wish = [ConfigEntry("mainstem.filter", text, incremental_operation=AlterConfigOpType.SET)]
    for future in client.incremental_alter_configs([ConfigResource(ResourceType.GROUP, group, incremental_configs=wish)]).values():
        future.result(30)


def read(bootstrap, group, topic, count, wanted=None):
    """Reads `count` records; (partition, offset) of those of class `wanted`, or of all."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                         "check.crcs": True, "log_level": 0})
    consumer.subscribe([topic])
    found, seen, deadline = set(), 0, time.time() + 300
    while seen < count:
        assert time.time() < deadline, f"{group}: {seen} of {count} came"
        for message in consumer.consume(10_000, 0.5):
            assert not message.error(), message.error()
            seen += 1
            if wanted is None or message.key() == wanted:
                found.add((message.partition(), message.offset()))
    consumer.close()
    return found


class Meter:
    """What the broker sends and spends from now on."""

    def __init__(self, broker):
        self.broker, self.begin, self.cpu = broker, broker.metrics(), broker.cpu()

    def of(self, name):
        return self.broker.metrics().get(name, 0) - self.begin.get(name, 0)

    def sent(self):
        return self.of("mainstem_kafka_sent_bytes_total")

    def spent(self):
        return self.broker.cpu() - self.cpu

    def batches(self, how):
        return self.of(f'mainstem_filter_batches_total{{how="{how}"}}')


def compared(report, broker, codec, records):
    """Medians of bytes and processor seconds, read in full and with a filter."""
    topic, client, rows = f"filter-{codec}", admin(broker.bootstrap), []
    create(broker.bootstrap, topic, PARTITIONS)
    produce(broker.bootstrap, topic, codec, records)
    # The first reading of anything is the slowest: it does not count.
    wanted = read(broker.bootstrap, f"{topic}-first", topic, records, b"class-3")
    for number in range(ROUNDS):
        meter = Meter(broker)
        same = read(broker.bootstrap, f"{topic}-full-{number}", topic, records, b"class-3")
        full = dict(full_bytes=meter.sent(), full_cpu_s=round(meter.spent(), 3))
        # What the groups before have found out must not help: the same records, but other words.
        group, words = f"{topic}-some-{number}", f"key = 'class-3' AND timestamp > {number}"
        set_filter(client, group, words)
        meter = Meter(broker)
        got = read(broker.bootstrap, group, topic, len(wanted))
        rows.append(dict(full, filter_bytes=meter.sent(), filter_cpu_s=round(meter.spent(), 3), decoded=meter.batches("decoded"),
                         batches=meter.batches("decoded") + meter.batches("skipped")))
        report.note(codec=codec, records=records, wanted=len(wanted), same=got == wanted == same, **rows[-1])
        assert got == wanted == same, "a filter comes to other records than the client"
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def together(report, broker, codec, records, batches):
    """Five groups with one filter at once."""
    topic, client, failures = f"filter-{codec}", admin(broker.bootstrap), []
    wanted = read(broker.bootstrap, f"{topic}-again", topic, records, b"class-5")

    def member(group):
        try:
            assert read(broker.bootstrap, group, topic, len(wanted)) == wanted
        except Exception as failure:
            failures.append(f"{group}: {failure!r}")
    groups = [f"{topic}-together-{number}" for number in range(GROUPS)]
    for group in groups:
        set_filter(client, group, "key IN ('class-5', 'nothing')")
    meter = Meter(broker)
    threads = [threading.Thread(target=member, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    decoded = meter.batches("decoded")
    report.note(codec=codec, groups=GROUPS, decoded=decoded, batches=batches, remembered=meter.batches("remembered"),
                cpu_s=round(meter.spent(), 3), bytes=meter.sent())
    what = f"{codec}: five groups with one filter, batches decoded / batches"
    # Fewer where the summary of another filter says that a small batch has nothing of what is wanted.
    report.judge(what, round(decoded / batches, 3), "<= 1", decoded <= batches)


def filters(report):
    """A group whose filter lets a tenth of the records pass, beside a group without a filter: librdkafka, records of 1 KiB in ten classes, by
    chance, in batches of up to 1 MB over 4 partitions, of which half a value compresses; durability `memory`; everything is in memory.
    Medians of three rounds, each with new groups and words that no batch has met. Bytes are all that the broker sent, processor time
    is the broker's."""
    records, steal = report.amount(600_000), Steal()
    for codec in ("none", "lz4", "zstd"):
        with Folder() as folder:
            broker = Mainstem(f"{folder}/data", "--durability", "memory", "--memory", "3GiB")
            broker.start()
            try:
                middle = compared(report, broker, codec, records)
                together(report, broker, codec, records, middle["batches"])
            finally:
                broker.stop()
        sent = middle["filter_bytes"] / middle["full_bytes"]
        spent = middle["filter_cpu_s"] / max(0.001, middle["full_cpu_s"])
        bound = codec == "none"
        for what, value, most in (("bytes sent", round(sent, 4), 0.12), ("broker CPU", round(spent, 3), 1)):
            holds = value <= most if bound else None
            report.judge(f"{codec}: {what}, filtered / full", value, f"<= {most}" if bound else "reported", holds)
    report.note(steal_percent=steal.percent())
