"""confluent-kafka (librdkafka). `produce BOOTSTRAP COUNT TOPIC=CODEC ...` and `consume BOOTSTRAP COUNT TOPIC ...`."""

import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from login import librdkafka
from records import Reading, each_topic, partitions, place, record, timestamp


def produce(bootstrap, count, target):
    topic, codec = target.split("=")
    failures = []
    producer = Producer({
        "bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5, **librdkafka(),
    })

    def answered(error, _message):
        if error:
            failures.append(error)

    for number in range(count):
        key, value, headers = record(topic, number)
        while True:
            try:
                producer.produce(topic, value, key, place(topic, number)[0], on_delivery=answered,
                                 timestamp=timestamp(topic, number), headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0 and not failures, failures[:3]


def consume(bootstrap, count, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, **librdkafka()})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions(topic))])
    reading, deadline = Reading(topic, count), time.time() + 120
    while not reading.complete:
        assert time.time() < deadline, f"only {reading.seen} of {count} came"
        for message in consumer.consume(min(1000, count - reading.seen), 1.0):
            assert not message.error(), message.error()
            reading.see(message.partition(), message.offset(), message.key(), message.value(), message.headers(),
                        message.timestamp()[1])
    consumer.close()


if __name__ == "__main__":
    action, bootstrap, count = sys.argv[1:4]
    work = {"produce": produce, "consume": consume}[action]
    each_topic(sys.argv[4:], lambda topic: work(bootstrap, int(count), topic))
