"""The longest that a publish takes at moderate rates, class `memory`, beside the same client at a broker that keeps nothing while a program that
does nothing else writes as much."""

import contextlib
import struct
import subprocess
import threading
import time

from amqp_load import Link, Publisher, short
from gate import BENCH
from machine import Folder, Mainstem, Steal, create, load

RUNS, BOUND_MS = 10, 50
PARTITIONS, KAFKA_RATE = 100, 20_000
AMQP_RATE, BODY_BYTES = 10_000, 1000
# A millisecond's worth of the Kafka load; of whole blocks.
CHUNK_BYTES = 20 << 10


def stalls_kafka(report):
    """20,000 Kafka records of 1 KiB a second over 100 partitions by librdkafka as it is set (it waits 5 ms for more), class `memory`, a minute, in
    ten runs; in turns with the same load at a broker that answers and keeps nothing, while a program writes as much to the same disk, one chunk a
    millisecond, and flushes beside it. A run holds when no publish takes more than 50 ms, or than the longest that those show in their turn behind it. With `linger.ms=0`
    each record is a request, and on two processors the client itself has a processor for 96 % of the time: what holds it up for a moment it makes
    good for seconds. Needs `make bench-build`."""
    stalls(report, "Kafka", kafka)


def stalls_amqp(report):
    """10,000 AMQP publishes of 1,000 bytes a second with confirms, class `memory`, a minute, in ten runs; in turns with the same load at a broker that
    answers and keeps nothing, while a program writes twice as much to the same disk, one chunk a millisecond, and flushes beside it. A run holds
    when no publish takes more than 50 ms, or than the longest that those show in their turn behind it. Needs `make bench-build`."""
    stalls(report, "AMQP", amqp)


def stalls(report, what, publish):
    runs, seconds = max(1, report.amount(RUNS)), report.amount(60)
    ours, null = [], []
    for _ in range(runs):
        with Folder() as folder:
            system = Mainstem(f"{folder}/data", "--durability", "memory").start()
            steal = Steal()
            try:
                ours.append(publish(system.bootstrap, system.broker.amqp, seconds))
            finally:
                system.stop()
            steals = steal.percent()
            with null_broker(what.lower()) as address:
                written = {}
                writer = threading.Thread(target=lambda: written.update(load("null-writer", folder, seconds, CHUNK_BYTES)))
                writer.start()
                client = publish(address, address, seconds)
                writer.join()
        null.append(max(client, written["longest_write_ms"], written["longest_flush_ms"]))
        report.note(what=what, max_ms=ours[-1], steal_percent=steals, null_max_ms=client, **written)
    held = sum(one <= max(BOUND_MS, beside) for one, beside in zip(ours, null))
    report.judge(f"{what}: runs of {runs} without a publish above {BOUND_MS} ms, or what those beside it show", held, f"= {runs}", held == runs)
    report.judge(f"{what}: longest publish of all, and at the broker that keeps nothing", f"{max(ours):.1f} ms, {max(null):.1f} ms", "-", True)


@contextlib.contextmanager
def null_broker(protocol):
    """Where one listens that keeps nothing."""
    command = [BENCH, "null", protocol, "--partitions", str(PARTITIONS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().split()[-1]
        process.stdin.close()


def kafka(bootstrap, _, seconds):
    create(bootstrap, "many", PARTITIONS)
    return load("latency", bootstrap, "many", PARTITIONS, seconds, KAFKA_RATE, "acks=all")["max_ms"]


def amqp(_, address, seconds):
    declare = Link(address)
    # Durable, nothing else.
    declare.call((50, 10), (50, 11), b"\0\0" + short("paced") + b"\x02" + struct.pack(">I", 0))
    publisher = Publisher(address, "", ["paced"], BODY_BYTES, 1 << 30)
    begin, each = time.perf_counter(), AMQP_RATE // 1000
    for number in range(seconds * 1000):
        pause = begin + number / 1000 - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        publisher.send(each)
    publisher.wait()
    return max(publisher.latencies) * 1000
