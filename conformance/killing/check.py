"""After a kill: every acknowledged record is at its offset, and each partition holds every number at most once, in order.
Arguments: bootstrap, topic, and one file of notes a partition."""

import sys
import time

from confluent_kafka import Consumer, TopicPartition

STALLED_AFTER = 30  # seconds without any record

bootstrap, topic = sys.argv[1:3]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False,
                     "auto.offset.reset": "error"})


class Partition:
    def __init__(self, number, path):
        self.number, self.noted, self.offset, self.last = number, {}, 0, -1
        for line in open(path):
            at, offset, value = map(int, line.split())
            assert at == number, f"{path} names partition {at}"
            assert self.noted.setdefault(offset, value) == value, f"offset {offset} of {number} was acknowledged twice"
        _, self.end = consumer.get_watermark_offsets(TopicPartition(topic, number), 20)
        assert not self.noted or self.end > max(self.noted), \
            f"partition {number} ends at {self.end}, acknowledged up to {max(self.noted)}"

    def see(self, message):
        assert message.offset() == self.offset, f"partition {self.number}: {message.offset()} instead of {self.offset}"
        value = int(message.value().split(b" ", 1)[0])
        assert value > self.last, f"partition {self.number}: {value} after {self.last} at {self.offset}"
        assert self.noted.get(self.offset, value) == value, f"partition {self.number}: {value} at {self.offset}"
        self.last, self.offset = value, self.offset + 1


partitions = [Partition(number, path) for number, path in enumerate(sys.argv[3:])]
consumer.assign([TopicPartition(topic, partition.number, 0) for partition in partitions])
missing, progress = sum(partition.end for partition in partitions), time.time()
while missing > 0:
    messages = consumer.consume(min(10000, missing), 1.0)
    for message in messages:
        assert not message.error(), f"partition {message.partition()}: {message.error()}"
        partitions[message.partition()].see(message)
    missing -= len(messages)
    progress = time.time() if messages else progress
    behind = ", ".join(f"{p.number}: {p.offset} of {p.end}" for p in partitions if p.offset < p.end)
    assert time.time() - progress < STALLED_AFTER, f"nothing came for {STALLED_AFTER} s; {behind}"
consumer.close()
print(f"{sum(len(partition.noted) for partition in partitions)} acknowledged records are there, in order, once")
