"""Quotas, set by Kafka's own tool, hold for librdkafka's producer and consumer, which hear of it, and change while they run; a group that is far
behind is slowed down by its rules, and one that is not is left alone. Arguments: bootstrap, seconds (not used here)."""

import re
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.tools import Machine
from quotas import Meter, Quotas, near

MB = 1_000_000
bootstrap = sys.argv[1]
name = f"quotas-{time.time_ns()}"
machine, quotas = Machine(), Quotas(bootstrap)
admin = AdminClient({"bootstrap.servers": bootstrap})
admin.create_topics([NewTopic(name, 1, 1, config={"mainstem.durability": "memory"})])[name].result(30)


def tool(*words, says=(), silent=()):
    status, out = machine.run(["kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *words], "")
    assert status == 0, f"kafka-configs {words} ended with {status}: {out[-300:]}"
    for pattern in says:
        assert re.search(pattern, out), f"kafka-configs {words} does not say {pattern!r}: {out[:300]}"
    for pattern in silent:
        assert not re.search(pattern, out), f"kafka-configs {words} says {pattern!r}: {out[:300]}"


def the_tool_sets_and_shows_quotas():
    for kind, value in (("users", "consumer_byte_rate=1048576,request_percentage=25.5"), ("clients", "controller_mutation_rate=3.5"), ("ips", "connection_creation_rate=100000")):
        entity = "127.0.0.9" if kind == "ips" else name
        key = value.split("=")[0]
        tool("--alter", "--entity-type", kind, "--entity-name", entity, "--add-config", value)
        tool("--describe", "--entity-type", kind, "--entity-name", entity, says=[re.escape(entity), key])
        tool("--describe", "--entity-type", kind, says=[re.escape(entity)])
        tool("--alter", "--entity-type", kind, "--entity-name", entity, "--delete-config", ",".join(one.split("=")[0] for one in value.split(",")))
        tool("--describe", "--entity-type", kind, silent=[re.escape(entity)])
    tool("--alter", "--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", name, "--add-config", "producer_byte_rate=9999999")
    tool("--describe", "--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", name, says=["producer_byte_rate=9999999"])
    tool("--alter", "--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", name, "--delete-config", "producer_byte_rate")


class Running:
    """Produces as fast as it may, until it is told to end."""

    def __init__(self):
        self.meter, self.ends, self.throttled = Meter(), False, []
        self.producer = Producer({"bootstrap.servers": bootstrap, "client.id": name, "linger.ms": 5, "batch.size": 100_000, "message.timeout.ms": 120_000,
                                  "queue.buffering.max.kbytes": 4096, "throttle_cb": lambda event: self.throttled.append(event.throttle_time)})
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        value = bytes(10_000)
        while not self.ends:
            try:
                self.producer.produce(name, value, on_delivery=lambda error, _: error or self.meter.add(len(value)))
                self.producer.poll(0)
            except BufferError:
                self.producer.poll(0.02)

    def end(self):
        self.ends = True
        self.thread.join()
        self.producer.purge()
        self.producer.flush(10)


def producers_are_held_to_their_rate_and_hear_of_it():
    client = {"client-id": name}
    quotas.set(client, producer_byte_rate=2 * MB)
    running = Running()
    try:
        time.sleep(0.7)
        near(running.meter.over(2), 2 * MB, 0.1, "at 2 MB/s")
        assert running.throttled and max(running.throttled) > 0, "librdkafka heard nothing"
        quotas.set(client, producer_byte_rate=6 * MB)
        time.sleep(1)
        near(running.meter.over(1.5), 6 * MB, 0.15, "a second after the change to 6 MB/s")
        quotas.set(client, producer_byte_rate=None)
        time.sleep(1)
        assert running.meter.over(0.7) > 10 * MB, "a second after the quota was taken away"
    finally:
        running.end()


def consume(group, config, seconds, warm=1):
    meter = Meter()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": group, "auto.offset.reset": "earliest", "fetch.message.max.bytes": 1 << 20,
                         "queued.max.messages.kbytes": 2048, **config})
    consumer.subscribe([name])
    try:
        until = time.monotonic() + 15
        while not meter.events and time.monotonic() < until:
            for message in consumer.consume(100, 0.1):
                assert not message.error(), message.error()
                meter.add(len(message.value()))
        start = time.monotonic() + warm
        while time.monotonic() < start + seconds:
            for message in consumer.consume(100, 0.1):
                meter.add(len(message.value()))
        return meter.between(start, start + seconds)
    finally:
        consumer.close()


def consumers_are_held_to_their_rate():
    quotas.set({"user": None, "client-id": None}, consumer_byte_rate=2 * MB)
    near(consume(f"{name}-c", {}, 2.5), 2 * MB, 0.35, "consumed at 2 MB/s")
    quotas.set({"user": None, "client-id": None}, consumer_byte_rate=None)


def groups_that_are_far_behind_are_slowed_down():
    group = f"{name}-laggard"
    quotas.group(group, mainstem_laggard_rules="lag>1MiB 60MiB/min; lag>1000GiB 1KiB/min")
    # Fetches bring a second's worth at once, so that a span of a few seconds has one more or less.
    near(consume(group, {}, 4), 1 << 20, 0.4, "a laggard at 1 MiB/s")
    rate = consume(f"{group}-other", {}, 1, warm=0)
    # Thrice what the rule lets through: how fast it can be depends on the machine.
    assert rate > 3 * MB, f"a group without rules: {rate / MB:.1f} MB/s"


the_tool_sets_and_shows_quotas()
producers_are_held_to_their_rate_and_hear_of_it()
consumers_are_held_to_their_rate()
groups_that_are_far_behind_are_slowed_down()
