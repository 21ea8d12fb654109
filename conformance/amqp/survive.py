"""Queues while the broker is killed again and again: nothing that was confirmed is lost, what was acknowledged well before a kill does not
come again, and a dead message is in one queue, once. Publishers wait for each confirmation; consumers of a classic queue with priorities and of a
quorum queue acknowledge most of what they get, return some of it, and reject some of it to a dead-letter exchange, where also everything goes
from a queue without consumers when its time is over. Nobody takes dead letters before the last kill, so that each is seen as often as it is there.
Arguments: the binary, seconds, the durability class."""

import collections
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from connecting import connect
from driver.broker import Broker

QUEUES, DEAD, GRAVE, AGING = {"work-0": {"x-max-priority": 5}, "work-1": {"x-queue-type": "quorum", "x-delivery-limit": -1}}, "buried", "grave", "aging"
TTL_MS = 300
PUBLISHERS, CONSUMERS, PREFETCH = 3, 3, 50
# What is acknowledged is durable after 50 ms; the rest is the way there, on a machine that has other things to do. (At rest it is 50, beside two
# programs that take all of two processors it was 197.)
DURABLE_S = 0.05 + 0.45
SETTLES = 60


class Client(threading.Thread):
    """A connection that is opened again whenever it breaks."""

    def __init__(self, broker, ends):
        super().__init__(daemon=True)
        self.broker, self.ends, self.failure = broker, ends, None

    def run(self):
        try:
            while not self.ends.is_set():
                try:
                    connection = connect(self.broker)
                    self.work(connection, connection.channel())
                    connection.close()
                except (pika.exceptions.AMQPError, OSError):
                    time.sleep(0.02)
        except Exception as fatal:
            self.failure = fatal


class Publisher(Client):
    def __init__(self, broker, ends, name):
        super().__init__(broker, ends)
        self.prefix, self.sent, self.confirmed = name, 0, set()

    def work(self, _connection, channel):
        channel.confirm_delivery()
        while not self.ends.is_set():
            self.sent += 1
            queue = random.choice([*QUEUES, AGING])
            body = f"{queue} {self.prefix} {self.sent}"
            channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2, priority=random.randrange(6)))
            self.confirmed.add(body)


class Consumer(Client):
    """What it got and did: body, when, whether it is said to come again, when it had said what (`None`: it could not), what, and when the connection was
    made."""

    def __init__(self, broker, ends, queues, judges=True):
        super().__init__(broker, ends)
        self.queues, self.judges, self.log, self.since = queues, judges, [], None

    def work(self, connection, channel):
        self.since = time.time()
        channel.basic_qos(prefetch_count=PREFETCH)
        for queue in self.queues:
            channel.basic_consume(queue, self.take)
        while not self.ends.is_set():
            connection.process_data_events(0.1)

    def take(self, channel, method, _properties, body):
        dice = random.random() if self.judges else 1
        what = "nack" if dice < 0.05 else "reject" if dice < 0.08 else "ack"
        entry = [body.decode(), time.time(), method.redelivered, None, what, self.since]
        self.log.append(entry)
        if what == "nack":
            channel.basic_nack(method.delivery_tag, requeue=True)
        elif what == "reject":
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)
        entry[3] = time.time()


def declare(broker):
    host, port = broker.amqp.rsplit(":", 1)
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    channel = connection.channel()
    channel.exchange_declare(DEAD, "fanout", durable=True)
    channel.queue_declare(GRAVE, durable=True)
    channel.queue_bind(GRAVE, DEAD)
    for queue, arguments in {**QUEUES, AGING: {"x-message-ttl": TTL_MS}}.items():
        channel.queue_declare(queue, durable=True, arguments={"x-dead-letter-exchange": DEAD, **arguments})
    connection.close()


def left(broker):
    """Ready messages by queue."""
    host, port = broker.amqp.rsplit(":", 1)
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    channel = connection.channel()
    found = {queue: channel.queue_declare(queue, passive=True).method.message_count for queue in [*QUEUES, AGING, GRAVE]}
    connection.close()
    return found


def survive(binary, seconds, durability):
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        broker = Broker(binary, f"{scratch}/data", ["--durability", durability]).start()
        ends, stops, kills = threading.Event(), threading.Event(), []
        try:
            declare(broker)
            publishers = [Publisher(broker, stops, f"p{number}") for number in range(PUBLISHERS)]
            consumers = [Consumer(broker, ends, list(QUEUES)) for _ in range(CONSUMERS)]
            undertaker = Consumer(broker, ends, [GRAVE], judges=False)
            clients = [*publishers, *consumers, undertaker]
            [client.start() for client in [*publishers, *consumers]]
            until = time.time() + seconds
            while time.time() < until:
                time.sleep(random.uniform(0.3, 1.5))
                began = time.time()
                broker.end(signal.SIGKILL)
                kills.append((began, time.time()))
                broker.start()
            stops.set()
            [publisher.join(30) for publisher in publishers]
            undertaker.start()
            settle(broker, clients, publishers, [*consumers, undertaker])
            ends.set()
            [client.join(30) for client in clients]
            check(publishers, consumers, undertaker, kills)
        finally:
            ends.set(), stops.set()
            broker.end(9)


def settle(broker, clients, publishers, consumers):
    """Until all that was confirmed has come, and nothing more comes."""
    confirmed = set().union(*(publisher.confirmed for publisher in publishers))
    deadline, calm = time.time() + SETTLES, 0
    while calm < 5:
        failures = [client.failure for client in clients if client.failure]
        assert not failures, failures
        missing = confirmed - {entry[0] for consumer in consumers for entry in consumer.log}
        counts = left(broker)
        calm = calm + 1 if not missing and not any(counts.values()) else 0
        assert time.time() < deadline, f"{len(missing)} confirmed messages have not come, {sorted(missing)[:3]}; ready are {counts}"
        time.sleep(0.2)


def check(publishers, consumers, undertaker, kills):
    confirmed = set().union(*(publisher.confirmed for publisher in publishers))
    deliveries, graves = collections.defaultdict(list), collections.Counter()
    for entry in (entry for consumer in consumers for entry in consumer.log):
        deliveries[entry[0]].append(entry)
    for entry in undertaker.log:
        graves[entry[0]] += 1
    again, lost = 0, []
    for body, entries in deliveries.items():
        entries.sort(key=lambda entry: entry[1])
        for before, after in zip(entries, entries[1:]):
            again += 1
            if before[4] in ("ack", "reject"):
                since = before[3] or before[1]
                # The one that ended the connection on which it was said, which may have been later: what was on its way is read all the same.
                killed = next((began for began, over in kills if before[5] <= over), None)
                assert killed is not None and killed < after[1], f"{body} came again without a kill: {before}, {after}"
                lost.append((killed - since, body))
            assert after[2], f"{body} came again and is not said to: {before}, {after}"
    lost.sort(reverse=True)
    late = [one for one in lost if one[0] > DURABLE_S]
    assert not late, f"{len(late)} of {len(lost)} came again though they were done with long before the kill, in s: {late[:3]}"
    twice = [body for body, times in graves.items() if times > 1]
    assert not twice, f"{len(twice)} dead letters are there more than once: {twice[:3]}"
    aged = {body for body in confirmed if body.startswith(AGING)}
    assert aged <= set(graves), f"{len(aged - set(graves))} messages ran out of time and are not dead: {sorted(aged - set(graves))[:3]}"
    assert not any(body.startswith(AGING) for body in deliveries), "nobody consumes there"
    rejected = {body for body, entries in deliveries.items() if any(entry[4] == "reject" for entry in entries)}
    strange = {body for body in graves if not body.startswith(AGING)} - rejected
    assert not strange, f"{len(strange)} messages are dead that nobody rejected: {sorted(strange)[:3]}"
    buried_in_vain = [body for body, entries in deliveries.items() if entries[-1][4] == "reject" and body not in graves]
    assert not buried_in_vain, f"{len(buried_in_vain)} messages were rejected, did not come again, and are not dead: {buried_in_vain[:3]}"
    unsure = sum(1 for body in rejected if body not in graves)
    print(f"{len(confirmed)} confirmed, {sum(map(len, deliveries.values()))} delivered, {again} again, {len(graves)} dead letters, "
          f"{len(aged)} of them out of time, {unsure} rejected in vain, {len(kills)} kills, "
          f"acknowledged at most {max(lost, default=(0, None))[0] * 1000:.0f} ms before one and given out again")
    assert len(confirmed) > 100 and again and aged and rejected & set(graves) and kills


if __name__ == "__main__":
    survive(sys.argv[1], float(sys.argv[2]), sys.argv[3])
