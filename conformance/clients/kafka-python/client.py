"""kafka-python. `produce BOOTSTRAP COUNT TOPIC=CODEC ...` and `consume BOOTSTRAP COUNT TOPIC ...`."""

import sys
import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from login import kafka_python
from records import Reading, each_topic, partitions, place, record, timestamp


def produce(bootstrap, count, target):
    topic, codec = target.split("=")
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, acks="all", linger_ms=5, **kafka_python(),
    )
    answers = []
    for number in range(count):
        key, value, headers = record(topic, number)
        answers.append(producer.send(topic, value, key, headers, place(topic, number)[0], timestamp(topic, number)))
    producer.flush(120)
    for answer in answers:
        answer.get(30)
    producer.close()


def consume(bootstrap, count, topic):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, **kafka_python())
    everything = [TopicPartition(topic, partition) for partition in range(partitions(topic))]
    consumer.assign(everything)
    for partition in everything:
        consumer.seek(partition, 0)
    reading, deadline = Reading(topic, count), time.time() + 120
    while not reading.complete:
        assert time.time() < deadline, f"only {reading.seen} of {count} came"
        for messages in consumer.poll(1000, max_records=5000).values():
            for message in messages:
                reading.see(message.partition, message.offset, message.key, message.value,
                            [tuple(header) for header in message.headers], message.timestamp)
    consumer.close()


if __name__ == "__main__":
    action, bootstrap, count = sys.argv[1:4]
    work = {"produce": produce, "consume": consume}[action]
    each_topic(sys.argv[4:], lambda topic: work(bootstrap, int(count), topic))
