"""Copies records from one topic to another in transactions, with librdkafka, until it is ended: reads, writes, commits what it
has read as part of the transaction. One in five is aborted on purpose, after writing what must never be seen.
Arguments: bootstrap, source, target, transactional id; the group is the target's name."""

import random
import sys

from confluent_kafka import Consumer, KafkaException, Producer

bootstrap, source, target, name = sys.argv[1:5]
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": target, "isolation.level": "read_committed", "enable.auto.commit": False,
    "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "reconnect.backoff.max.ms": 500,
})
producer = Producer({
    "bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 10000, "reconnect.backoff.max.ms": 500,
})


def again(work):
    """Transactions' calls say when they may be made again."""
    while True:
        try:
            return work()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def rewind():
    for place in consumer.committed(consumer.assignment(), 30):
        place.offset = max(place.offset, 0)
        consumer.seek(place)


def one_transaction(messages):
    aborts = random.random() < 0.2
    producer.begin_transaction()
    for message in messages:
        value = b"aborted" if aborts else message.value()
        producer.produce(target, value, message.key(), partition=int(message.value()) % 3)
    again(lambda: producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30))
    if aborts:
        # What is not sent yet is not written at all.
        producer.flush()
        again(lambda: producer.abort_transaction(30))
        rewind()
    else:
        again(lambda: producer.commit_transaction(30))


again(lambda: producer.init_transactions(30))
consumer.subscribe([source])
while True:
    read = [message for message in consumer.consume(random.randint(1, 200), 0.2) if not message.error()]
    if not read:
        continue
    try:
        one_transaction(read)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        again(lambda: producer.abort_transaction(30))
        rewind()
