"""confluent-kafka (librdkafka): produce, consume, load. Called by the driver; prints one line."""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

sys.path.insert(0, sys.argv[0].rsplit("/clients/", 1)[0])
from records import record, timestamp


def produce(bootstrap, topic, codec, count):
    failures = []
    producer = Producer({
        "bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5,
    })

    def answered(error, _message):
        if error:
            failures.append(error)

    for number in range(count):
        key, value, headers = record(number)
        while True:
            try:
                producer.produce(topic, value, key, headers=headers, timestamp=timestamp(number), on_delivery=answered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0 and not failures, failures[:3]


def consume(bootstrap, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline, number = time.time() + 120, 0
    while number < count:
        assert time.time() < deadline, f"only {number} of {count} came"
        for message in consumer.consume(1000, 1.0):
            assert not message.error(), message.error()
            key, value, headers = record(number)
            assert message.offset() == number, (message.offset(), number)
            assert (message.key(), message.value()) == (key, value), f"record {number} differs"
            assert message.headers() == headers, (message.headers(), headers)
            assert message.timestamp()[1] == timestamp(number), f"timestamp of {number}"
            number += 1
    consumer.close()


if __name__ == "__main__":
    action, bootstrap, topic = sys.argv[1:4]
    if action == "produce":
        produce(bootstrap, topic, sys.argv[4], int(sys.argv[5]))
    else:
        consume(bootstrap, topic, int(sys.argv[4]))
