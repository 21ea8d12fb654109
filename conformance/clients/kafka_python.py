"""kafka-python: produce and consume. Called by the driver."""

import sys
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

sys.path.insert(0, sys.argv[0].rsplit("/clients/", 1)[0])
from records import record, timestamp


def produce(bootstrap, topic, codec, count):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, acks="all", linger_ms=5,
        max_in_flight_requests_per_connection=1,
    )
    answers = []
    for number in range(count):
        key, value, headers = record(number)
        answers.append(producer.send(topic, value, key, headers, 0, timestamp(number)))
    producer.flush(120)
    for answer in answers:
        answer.get(30)
    producer.close()


def consume(bootstrap, topic, count):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    deadline, number = time.time() + 120, 0
    while number < count:
        assert time.time() < deadline, f"only {number} of {count} came"
        for message in consumer.poll(1000).get(partition, []):
            key, value, headers = record(number)
            assert (message.offset, message.key, message.value) == (number, key, value), f"record {number} differs"
            assert [tuple(header) for header in message.headers] == headers, message.headers
            assert message.timestamp == timestamp(number), f"timestamp of {number}"
            number += 1
    consumer.close()


if __name__ == "__main__":
    action, bootstrap, topic = sys.argv[1:4]
    if action == "produce":
        produce(bootstrap, topic, sys.argv[4], int(sys.argv[5]))
    else:
        consume(bootstrap, topic, int(sys.argv[4]))
