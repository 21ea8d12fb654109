"""How long after a kill, or on an empty folder, until the first record is taken and the oldest read."""

import random
import signal
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from machine import BULK, Folder, Mainstem, create, drop_page_cache, load
from many_queues import queue_load, topics

QUICK = {"reconnect.backoff.ms": 2, "reconnect.backoff.max.ms": 5, "log_level": 0}


def first_produce(bootstrap, topic, partition):
    """Seconds since 1970 when the first record was acknowledged."""
    producer, at = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **QUICK}), []
    producer.produce(topic, b"first", partition=partition, on_delivery=lambda error, _: at.append((error, time.time())))
    while not at:
        producer.poll(0.002)
    assert at[0][0] is None, at[0][0]
    return at[0][1]


def oldest(bootstrap, topic, partition):
    """Seconds since 1970 when the record at the log's start had been read."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "restart", "auto.offset.reset": "earliest", **QUICK})
    consumer.assign([TopicPartition(topic, partition, 0)])
    while True:
        for message in consumer.consume(1, 0.01):
            assert not message.error(), message.error()
            assert message.offset() == 0, message.offset()
            at = time.time()
            consumer.close()
            return at


def restart(report):
    """SIGKILL with 20 GB in the journal, 1,000 partitions and 1,000 idempotent producers; page cache dropped; then the time from
    the start of the process to the first acknowledged record and the oldest record of a random partition. Median of 3."""
    with Folder() as folder:
        broker = Mainstem(f"{folder}/data").start()
        try:
            create(broker.bootstrap, "old", 1000)
            amount = report.amount(20_000)
            report.note(**load("fill", broker.bootstrap, "old", 1000, amount, 1000, "enable.idempotence=true", *BULK),
                        segments=broker.journal_sum("mainstem_journal_segments_sealed_total"))
            produced, read = [], []
            for _ in range(3):
                broker.stop(signal.SIGKILL)
                drop_page_cache()
                partition, began = random.randrange(1000), time.time()
                broker.start()
                ready = time.time()
                produced.append(first_produce(broker.bootstrap, "old", partition) - began)
                read.append(oldest(broker.bootstrap, "old", partition) - began)
                report.note(ready_s=ready - began, produced_s=produced[-1], read_s=read[-1], rss_mb=broker.rss_mb())
            worst = sorted(max(pair) for pair in zip(produced, read))[1]
            report.judge("first produce and oldest record after SIGKILL", round(worst, 3), "<= 1 s", worst <= 1.0, " s")
        finally:
            broker.stop(signal.SIGKILL)


def deleted(report):
    """100,000 durable queues are declared and deleted, 20,000 exclusive ones are used for one message each and dropped; SIGKILL, page cache dropped;
    then the time from the start of the process to the first acknowledged record of a topic that stayed. Median of 3."""
    with Folder() as folder:
        broker = Mainstem(f"{folder}/data").start()
        try:
            create(broker.bootstrap, "kept", 1)
            count = report.amount(100_000)
            # In parts: a node has at most so many queues.
            for number in range(5):
                for more in ([], ["--delete"]):
                    queue_load(broker, "declare", "--queues", count // 5, "--connections", 16, "--prefix", f"gone-{number}-", *more)
            churned = queue_load(broker, "churn", "--rate", 2000, "--seconds", report.amount(10), "--per-connection", 50)
            assert topics(broker) == 1, "a queue is still there"
            times = []
            for _ in range(3):
                broker.stop(signal.SIGKILL)
                drop_page_cache()
                began = time.time()
                broker.start()
                ready = time.time() - began
                times.append(first_produce(broker.bootstrap, "kept", 0) - began)
                report.note(ready_s=ready, produced_s=times[-1], rss_mb=broker.rss_mb(), churned=churned["queues"])
            assert topics(broker) == 1, "a queue is there again"
            worst = sorted(times)[1]
            report.judge("first produce after SIGKILL", round(worst, 3), "<= 1 s", worst <= 1.0, " s")
        finally:
            broker.stop(signal.SIGKILL)


def empty(report):
    """Start on an empty folder, and memory when idle."""
    with Folder() as folder:
        times = []
        for number in range(5):
            broker, began = Mainstem(f"{folder}/data-{number}"), time.time()
            broker.start()
            times.append(first_produce(broker.bootstrap, "first", -1) - began)
            broker.stop()
        broker = Mainstem(f"{folder}/idle").start()
        time.sleep(2)
        idle = broker.rss_mb()
        report.note(first_produce_s=times, idle_rss_mb=idle)
        broker.stop()
    report.judge("first produce on an empty folder", round(sorted(times)[2], 3), "<= 0.2 s", sorted(times)[2] <= 0.2, " s")
    report.judge("resident memory when idle", round(idle, 1), "< 40 MB", idle < 40, " MB")
