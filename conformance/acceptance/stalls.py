"""The longest that a publish takes at moderate rates, class `memory`, beside a writer that does nothing but write as much."""

import struct
import time

from amqp_load import Link, Publisher, short
from machine import Folder, Mainstem, Steal, create, load

RUNS, BOUND_MS = 10, 50
PARTITIONS, KAFKA_RATE = 100, 20_000
AMQP_RATE, BODY_BYTES = 10_000, 1000
# A millisecond's worth of the Kafka load; of whole blocks.
CHUNK_BYTES = 20 << 10


def stalls_kafka(report):
    """20,000 Kafka records of 1 KiB a second over 100 partitions by librdkafka, class `memory`, a minute, in ten runs; after each a program that
    writes as much to the same disk, one chunk a millisecond, and flushes beside it. A run holds when no publish takes more than 50 ms, or than
    that program's longest write or flush."""
    stalls(report, "Kafka", kafka)


def stalls_amqp(report):
    """10,000 AMQP publishes of 1,000 bytes a second with confirms, class `memory`, a minute, in ten runs; after each a program that writes twice
    as much to the same disk, one chunk a millisecond, and flushes beside it. A run holds when no publish takes more than 50 ms, or than that
    program's longest write or flush."""
    stalls(report, "AMQP", amqp)


def stalls(report, what, publish):
    held, longest, runs = 0, 0, max(1, report.amount(RUNS))
    for _ in range(runs):
        with Folder() as folder:
            system = Mainstem(f"{folder}/data", "--durability", "memory").start()
            steal = Steal()
            try:
                ours = publish(system, report.amount(60))
            finally:
                system.stop()
            steals = steal.percent()
            null = load("null-writer", folder, report.amount(60), CHUNK_BYTES)
        report.note(what=what, max_ms=ours, steal_percent=steals, **null)
        held += ours <= max(BOUND_MS, null["longest_write_ms"], null["longest_flush_ms"])
        longest = max(longest, ours)
    report.judge(f"{what}: runs of {runs} without a longer publish", held, f"= {runs}", held == runs)
    report.judge(f"{what}: longest publish of all", round(longest, 1), "-", True, " ms")


def kafka(system, seconds):
    create(system.bootstrap, "many", PARTITIONS)
    return load("latency", system.bootstrap, "many", PARTITIONS, seconds, KAFKA_RATE, "linger.ms=0", "acks=all")["max_ms"]


def amqp(system, seconds):
    declare = Link(system.broker.amqp)
    # Durable, nothing else.
    declare.call((50, 10), (50, 11), b"\0\0" + short("paced") + b"\x02" + struct.pack(">I", 0))
    publisher = Publisher(system.broker.amqp, "", ["paced"], BODY_BYTES, 1 << 30)
    begin, each = time.perf_counter(), AMQP_RATE // 1000
    for number in range(seconds * 1000):
        pause = begin + number / 1000 - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        publisher.send(each)
    publisher.wait()
    return max(publisher.latencies) * 1000
