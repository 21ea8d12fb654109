"""Clients of 450 to 1,200 topics, of which metadata and offsets are asked for by name: what they write is read by a consumer of its own and by a group.
Arguments: bootstrap, seconds (not used here)."""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as Place

bootstrap = sys.argv[1]
prefix = f"many-{time.time_ns()}"
admin = AdminClient({"bootstrap.servers": bootstrap})
names = [f"{prefix}-{number}" for number in range(1200)]
for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
    future.result(60)
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
for name in names:
    producer.produce(name, name.encode(), partition=0)
assert producer.flush(120) == 0


def read(consumer, wanted, what):
    seen, deadline = set(), time.time() + 120
    while len(seen) < len(wanted):
        assert time.time() < deadline, f"{what}: {len(seen)} of {len(wanted)}"
        for message in consumer.consume(500, 1.0):
            assert not message.error(), message.error()
            assert message.value().decode() == message.topic()
            seen.add(message.topic())
    assert seen == set(wanted), what


for count in (450, 600, 999, 1200):
    some = names[:count]
    settings = {"bootstrap.servers": bootstrap, "group.id": f"{prefix}-{count}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.subscribe(some)
    read(consumer, some, f"a group of {count} topics")
    consumer.commit(offsets=[TopicPartition(name, 0, 1) for name in some], asynchronous=False)
    consumer.close()
    reader = Consumer(settings)
    committed = reader.committed([TopicPartition(name, 0) for name in some], 60)
    assert [each.offset for each in committed] == [1] * count, f"{count} topics: {sum(each.offset == 1 for each in committed)} are committed"
    reader.close()
    # Another client, which asks for all that it is assigned.
    alone = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None)
    alone.assign([Place(name, 0) for name in some])
    ends = alone.end_offsets([Place(name, 0) for name in some])
    assert set(ends.values()) == {1} and len(ends) == count
    seen, deadline = set(), time.time() + 120
    while len(seen) < count:
        assert time.time() < deadline, f"kafka-python: {len(seen)} of {count}"
        seen.update(record.topic for records in alone.poll(500, max_records=500).values() for record in records)
    alone.close()
for start in range(0, len(names), 400):
    for future in admin.delete_topics(names[start:start + 400]).values():
        future.result(60)
