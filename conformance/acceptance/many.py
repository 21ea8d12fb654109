"""A hundred thousand partitions."""

import signal
import time

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from machine import Folder, Mainstem, admin

TOPICS, PARTITIONS = 1000, 100


def many(report):
    """1,000 topics of 100 partitions: creation, full Metadata, sparse produce, restart after SIGKILL, cost when idle, and one
    consumer of 10,000 idle partitions."""
    with Folder() as folder:
        broker = Mainstem(f"{folder}/data").start()
        try:
            run(report, broker)
        finally:
            broker.stop(signal.SIGKILL)


def run(report, broker):
    time.sleep(1)
    before = (broker.rss_mb(), broker.files(), broker.threads())
    client, began = admin(broker.bootstrap), time.time()
    for first in range(0, TOPICS, 50):
        topics = [NewTopic(f"many-{number:04}", PARTITIONS, 1) for number in range(first, first + 50)]
        [future.result(60) for future in client.create_topics(topics, request_timeout=60).values()]
    created = time.time() - began
    report.judge("creation of 100,000 partitions", round(created, 2), "<= 60 s", created <= 60, " s")
    after = (broker.rss_mb(), broker.files(), broker.threads())
    report.note(before=before, after=after, what="resident MB, open files, threads")
    report.judge("resident memory added", round(after[0] - before[0], 1), "< 100 MB", after[0] - before[0] < 100, " MB")
    # The connection of the administration client is one file more.
    report.judge("open files added, threads added", f"{after[1] - before[1]}, {after[2] - before[2]}", "0, but for connections",
                 after[1] - before[1] <= 2 and after[2] == before[2])
    times = []
    for _ in range(5):
        began = time.time()
        listed = client.list_topics(timeout=60)
        times.append(time.time() - began)
    assert sum(len(topic.partitions) for topic in listed.topics.values()) == TOPICS * PARTITIONS
    report.note(metadata_s=times)
    report.judge("full Metadata, with librdkafka's own time", round(sorted(times)[2], 3), "<= 0.5 s", sorted(times)[2] <= 0.5, " s")
    producer, failed = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0}), []
    for number in range(20_000):
        producer.produce(f"many-{number % TOPICS:04}", b"x" * 100, partition=number * 7 % PARTITIONS,
                         on_delivery=lambda error, _: error and failed.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0 and not failed, failed[:3]
    time.sleep(1)
    report.note(rss_mb_after_sparse_produce=broker.rss_mb())
    broker.stop(signal.SIGKILL)
    began = time.time()
    broker.start()
    restarted = time.time() - began
    report.judge("restart after SIGKILL", round(restarted, 3), "<= 3 s", restarted <= 3, " s")
    report.note(rss_mb_after_restart=broker.rss_mb())
    idle_consumer(report, broker)


def idle_consumer(report, broker):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "idle", "enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition(f"many-{topic:04}", partition, OFFSET_END) for topic in range(100) for partition in range(PARTITIONS)])
    ends = time.time() + 15
    while time.time() < ends:
        consumer.consume(1000, 0.5)
    cpu, began = broker.cpu(), time.time()
    while time.time() < began + 30:
        consumer.consume(1000, 0.5)
    share = 100 * (broker.cpu() - cpu) / (time.time() - began)
    consumer.close()
    report.judge("a consumer of 10,000 idle partitions", round(share, 2), "<= 2 % of a core", share <= 2, " % of a core")
