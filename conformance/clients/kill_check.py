"""After a kill: every acknowledged record is at its offset, and each partition holds every number at most once, in order.
Arguments: bootstrap, topic, and one file of notes a partition."""

import sys
import time

from confluent_kafka import Consumer, TopicPartition

bootstrap, topic = sys.argv[1:3]
acknowledged = 0
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
for partition, path in enumerate(sys.argv[3:]):
    noted = {}
    for line in open(path):
        at, offset, number = map(int, line.split())
        assert at == partition, f"{path} names partition {at}"
        assert noted.setdefault(offset, number) == number, f"offset {offset} of {partition} was given twice"
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), 20)
    assert not noted or end > max(noted), f"partition {partition} ends at {end}, acknowledged up to {max(noted)}"
    consumer.assign([TopicPartition(topic, partition, 0)])
    offset, last, deadline = 0, -1, time.time() + 120
    while offset < end:
        assert time.time() < deadline, f"partition {partition}: only {offset} of {end} came"
        for message in consumer.consume(5000, 1.0):
            assert not message.error(), message.error()
            assert message.offset() == offset, f"partition {partition}: {message.offset()} instead of {offset}"
            number = int(message.value().split(b" ", 1)[0])
            assert number > last, f"partition {partition}: {number} after {last} at {offset}"
            assert noted.get(offset, number) == number, f"partition {partition}: {number} at {offset}"
            last, offset = number, offset + 1
    acknowledged += len(noted)
consumer.close()
print(f"{acknowledged} acknowledged records are there, in order, once")
