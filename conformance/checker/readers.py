"""A client of the checker that reads what is committed, until it is killed or told to end.
Arguments: kind, bootstrap, folder of the history, name of the process, group, topics as NAME=PARTITIONS. Kinds: `assigned` reads keys of its
choice from offsets of its choice, again and again; `final` reads all from the beginning, and ends when it has come to all
ends; `range` and `cooperative-sticky` are members of the group."""

import random
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from history import Notes

GIVEN_UP = 60  # seconds without a record after which the final reader does not go on, though it has not come to all ends

kind, bootstrap, folder, name, group = sys.argv[1:6]
topics = {topic: int(count) for topic, _, count in (word.partition("=") for word in sys.argv[6:])}
places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
notes, running = Notes(folder, name), True
settings = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False,
            "enable.partition.eof": True, "log_level": 0, "reconnect.backoff.max.ms": 200, "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000, "fetch.wait.max.ms": 100}
if kind not in ("assigned", "final"):
    settings["partition.assignment.strategy"] = kind
consumer = Consumer(settings)
waiting, positions, ended = [], {}, set()


def stop(_signal, _frame):
    global running
    running = False


def spell(place):
    return f"{place.topic}/{place.partition}"


def tell():
    """Writes down what has come: before anything that is written after it."""
    if waiting:
        notes.note("poll", r=waiting)
        waiting.clear()


def see(message):
    key = f"{message.topic()}/{message.partition()}"
    if message.error() is None:
        waiting.append([key, message.offset(), int(message.value())])
        positions[message.topic(), message.partition()] = message.offset() + 1
    elif message.error().code() == KafkaError._PARTITION_EOF:
        tell()
        notes.note("passed", k=key, o=message.offset())
        ended.add((message.topic(), message.partition()))
    elif message.error().fatal():
        raise KafkaException(message.error())


def poll(seconds, most=200):
    """One by one: a rebalance comes between two records."""
    count, message = 0, consumer.poll(seconds)
    while message is not None:
        see(message)
        count += 1
        message = consumer.poll(0) if count < most else None
    tell()
    return count


def begin(offsets):
    for place in offsets:
        notes.note("assign", k=spell(place), o=place.offset)
    consumer.assign(offsets)


def assigned():
    while running:
        chosen = random.sample(places, random.randint(1, len(places)))
        begin([TopicPartition(*place, random.choice([0, random.randint(0, positions.get(place, 0))])) for place in chosen])
        until = time.time() + random.uniform(1, 5)
        while running and time.time() < until:
            poll(0.2)


def final():
    begin([TopicPartition(*place, 0) for place in places])
    last = time.time()
    while running and len(ended) < len(places) and time.time() < last + GIVEN_UP:
        if poll(0.2):
            last = time.time()


def members():
    def gained(_consumer, more):
        tell()
        for place in more:
            positions.pop((place.topic, place.partition), None)
            notes.note("assign", k=spell(place), g=group)

    def lost(_consumer, less):
        tell()
        for place in less:
            positions.pop((place.topic, place.partition), None)
            notes.note("revoke", k=spell(place))

    consumer.subscribe(list(topics), on_assign=gained, on_revoke=lost)
    while running:
        if poll(0.2) and positions and random.random() < 0.5:
            commit([TopicPartition(*place, offset) for place, offset in positions.items()])
        if random.random() < 0.005:
            consumer.unsubscribe()
            consumer.subscribe(list(topics), on_assign=gained, on_revoke=lost)


def commit(offsets):
    for place in offsets:
        notes.note("commits", k=spell(place), g=group, o=place.offset)
    try:
        done = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException:
        return
    for place in done:
        if place.error is None:
            notes.note("committed-to", k=spell(place), g=group, o=place.offset)


signal.signal(signal.SIGTERM, stop)
{"assigned": assigned, "final": final}.get(kind, members)()
if kind != "final":
    consumer.close()
tell()
