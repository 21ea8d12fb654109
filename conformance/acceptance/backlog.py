"""What readers of history, and readers that stop reading, do to everybody else."""

import socket
import struct
import subprocess
import time

from statistics import median

from machine import BULK, READ_MANY, Folder, Kafka, Mainstem, MemoryGroup, Steal, create, drop_page_cache, finish, load, start_load

MEMORY_MB = 1024
# Half of it, so that half is left for its page cache.
KAFKA_HEAP = "-Xms512m -Xmx512m"
RATE = 5000
# A reader that takes longer is not waited for.
DRAIN_SECONDS_MAX = 120
PACED = ["linger.ms=5", "acks=all"]


def paced(report, system, partitions, seconds, what, beside):
    """Publish latency at a fixed rate while `beside` runs."""
    other, began = beside(), time.time()
    time.sleep(1)
    steal = Steal()
    row = load("latency", system.bootstrap, "live", partitions, seconds, RATE, *PACED, may_fail=system.name == "kafka")
    done = None
    if other is not None:
        try:
            done = finish(other, DRAIN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            other.kill()
            other.wait()
            done = f"not through {DRAIN_SECONDS_MAX} s after the producer"
    row.update(system=system.name, partitions=partitions, what=what, steal_percent=steal.percent(), reader=done,
               drain_s=round(time.time() - began, 1) if what == "backlog" else None)
    report.note(**row)
    return row


def measure(report, system, partitions, megabytes, seconds, pairs):
    """Alternating, `pairs` times each: ([p99 beside a reader of the tail], [p99 beside a reader of the backlog])."""
    create(system.bootstrap, "live", partitions)
    create(system.bootstrap, "old", partitions)
    load("produce", system.bootstrap, "old", partitions, megabytes, *BULK)
    drop_page_cache()
    load("latency", system.bootstrap, "live", partitions, 3, RATE, *PACED)
    control, late = [], []
    for _ in range(pairs):
        row = paced(report, system, partitions, seconds, "tail", lambda: start_load(
            "follow", system.bootstrap, "live", partitions, seconds + 2, *READ_MANY))
        control.append(row["p99_ms"])
        drop_page_cache()
        row = paced(report, system, partitions, seconds, "backlog", lambda: start_load(
            "consume", system.bootstrap, "old", partitions, megabytes, *READ_MANY))
        late.append(row["p99_ms"])
    return control, late


def backlog(report, partitions):
    megabytes, seconds = report.amount(10_000), 20
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--memory", f"{MEMORY_MB}MiB").start()
        try:
            control, late = map(median, measure(report, system, partitions, megabytes, seconds, 3))
        finally:
            system.stop()
    report.judge("p99 beside the backlog, against the tail", round(late / control, 2), "<= 1.5", late <= 1.5 * control)
    with MemoryGroup("kafka", MEMORY_MB) as prefix:
        system = Kafka(None, KAFKA_HEAP).start(prefix)
        try:
            _, theirs = map(median, measure(report, system, partitions, megabytes, seconds, 1))
        finally:
            system.stop()
    report.judge("p99 beside the backlog, ours / Kafka's", round(late / theirs, 3), "<= 0.2", late <= theirs / 5)


def backlog_of(partitions):
    """The line for a number of partitions."""
    def line(report):
        backlog(report, partitions)
    line.__doc__ = f"""A consumer reads 10 GB of {partitions} partition(s) from the beginning while a producer writes 5,000 records of
    1 KiB a second (memory 1 GiB, default durability); the control reads the tail instead; medians of three alternating pairs. Real
    Kafka, once, in a memory group of the same size, page cache included, half of it heap, with `flush.messages` at its default;
    what its producer does not get through within 60 s is not in its p99."""
    return line


def fetch_request(topic, partition, correlation):
    """Fetch version 4 from offset 0, up to 1 MiB."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, 500, 1, 1 << 20, 0) + struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iiqi", 1, partition, 0, 1 << 20)
    header = struct.pack(">hhih", 1, 4, correlation, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def memory(system):
    """The broker's own account of its memory, in MB."""
    return {name.removeprefix("mainstem_memory_").replace("_bytes", "_mb"): round(value / 1e6)
            for name, value in system.metrics().items() if name.startswith("mainstem_memory_")}


def stalled(report):
    """2,000 consumers ask for 1 MiB each, again and again, and never read their sockets; a producer and a consumer beside them go on
    as before (memory 1 GiB)."""
    seconds = 15
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--memory", f"{MEMORY_MB}MiB").start()
        sockets = []
        try:
            create(system.bootstrap, "old", 100)
            create(system.bootstrap, "live", 1)
            load("produce", system.bootstrap, "old", 100, report.amount(2000), *BULK)
            load("latency", system.bootstrap, "live", 1, 3, RATE, *PACED)
            follow = lambda: start_load("follow", system.bootstrap, "live", 1, seconds + 2, *READ_MANY)
            before = paced(report, system, 1, seconds, "alone", follow)
            host, port = system.bootstrap.split(":")
            for number in range(2000):
                one = socket.create_connection((host, int(port)))
                for correlation in range(4):
                    one.sendall(fetch_request("old", number % 100, correlation))
                sockets.append(one)
            # The first second is their first answers, 2 GB of them: work like any other, shown and not judged.
            paced(report, system, 1, 3, "while 2,000 ask and stop reading", lambda: None)
            beside = paced(report, system, 1, seconds, "beside 2,000 that stopped reading", follow)
            report.note(rss_mb=round(system.rss_mb()), files=system.files(), **memory(system))
            read = load("consume", system.bootstrap, "old", 100, report.amount(2000), *READ_MANY)
            report.note(**read)
            ratio = beside["p99_ms"] / before["p99_ms"]
            report.judge("p99 beside 2,000 consumers that stopped reading, against none", round(ratio, 2), "<= 1.5", ratio <= 1.5)
            rss = system.rss_mb()
            report.judge("resident memory", round(rss), f"<= {MEMORY_MB} MiB", rss <= MEMORY_MB, " MiB")
        finally:
            for one in sockets:
                one.close()
            system.stop()
