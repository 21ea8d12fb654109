"""Three members of a group read six partitions; one leaves halfway. Nothing is lost, and commits survive.
Arguments: bootstrap, seconds (not used here)."""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, count = sys.argv[1], 3000
topic = name = f"group-{time.time_ns()}"
admin = AdminClient({"bootstrap.servers": bootstrap})
for future in admin.create_topics([NewTopic(topic, 6, 1)]).values():
    future.result(30)
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
for number in range(count):
    producer.produce(topic, b"%d" % number, partition=number % 6)
    producer.poll(0)
assert producer.flush(30) == 0

for strategy in ["range", "cooperative-sticky"]:
    group = f"{name}-{strategy}"
    members = [Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "session.timeout.ms": 6000, "partition.assignment.strategy": strategy,
    }) for _ in range(3)]
    for member in members:
        member.subscribe([topic])
    seen, deadline = set(), time.time() + 60
    while len(seen) < count:
        assert time.time() < deadline, f"{strategy}: only {len(seen)} of {count} were read"
        for member in members:
            messages = member.consume(100, 0.1)
            for message in messages:
                assert not message.error(), message.error()
                seen.add(int(message.value()))
            if messages:
                member.commit(asynchronous=False)
        if len(members) == 3 and len(seen) > count // 2:
            members.pop().close()
    shares = [len(member.assignment()) for member in members]
    for member in members:
        member.close()
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    committed = reader.committed([TopicPartition(topic, partition) for partition in range(6)], 20)
    total = sum(max(each.offset, 0) for each in committed)
    reader.close()
    assert total == count, f"{strategy}: {total} of {count} are committed; shares were {shares}"
    for future in admin.delete_consumer_groups([group]).values():
        future.result(30)
