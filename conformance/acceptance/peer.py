"""Throughput and broker processor time, side by side with the real Kafka, in alternating pairs."""

import os
import statistics
import subprocess
import time

from driver import install
from machine import BULK, READ, READ_MANY, ROOT, Folder, Kafka, Mainstem, Steal, create, finish, load, raw_load, start_load

PAIRS = 3
JAVA_RECORDS_MB = 1.024e-3


def one_run(report, system, durability, partitions, megabytes, cores=None):
    """Produces, then reads all of it; returns throughput and broker CPU-seconds per GB of both."""
    config = {"flush_messages": 1} if durability == "fsync" and system.name == "kafka" else {}
    create(system.bootstrap, "bulk", partitions, **config)
    steal, before, began = Steal(), system.cpu(), time.time()
    made = load("produce", system.bootstrap, "bulk", partitions, megabytes, *BULK, cores=cores)
    produced, middle = system.cpu() - before, time.time()
    read = load("consume", system.bootstrap, "bulk", partitions, megabytes, *READ, cores=cores)
    consumed, gigabytes = system.cpu() - before - produced, megabytes / 1000
    row = dict(system=system.name, durability=durability, produce_mb_s=made["mb_per_s"], produce_cpu_s_gb=round(produced / gigabytes, 3),
               consume_mb_s=read["mb_per_s"], consume_cpu_s_gb=round(consumed / gigabytes, 3),
               client_cores=round(made["client_cpu"] / (middle - began), 2),
               client_cpu_s_gb=round(made["client_cpu"] / gigabytes, 3),
               busiest_client_thread=round(made["busiest_thread_cpu"] / made["seconds"], 2), pinned=bool(cores), steal_percent=steal.percent())
    report.note(**row)
    return row


def pairs(report, durability, megabytes, ours_flags=(), cores=None):
    """Alternating runs on fresh folders: (ours, theirs)."""
    ours, theirs = [], []
    pin = ["taskset", "-c", "0"] if cores else []
    for _ in range(PAIRS):
        with Folder() as folder:
            system = Mainstem(f"{folder}/data", "--durability", durability, *ours_flags).start(pin)
            try:
                ours.append(one_run(report, system, durability, 100, megabytes, cores))
            finally:
                system.stop()
        system = Kafka(None).start(pin)
        try:
            theirs.append(one_run(report, system, durability, 100, min(megabytes, 2000) if durability == "fsync" else megabytes, cores))
        finally:
            system.stop()
    return ours, theirs


def middle(rows, name):
    return statistics.median(row[name] for row in rows)


def peer(report):
    """librdkafka 1 KiB random payloads, acks=all, 1 MB batches, linger 10 ms, 100 partitions, then one consumer reading it all;
    fresh folders, alternating, three pairs, medians. Kafka with its defaults, for `fsync` with `flush.messages=1`."""
    megabytes = report.amount(4000)
    for durability, wanted in [("memory", 2.5), ("fsync", 5.0)]:
        ours, theirs = pairs(report, durability, megabytes)
        judge(report, durability, wanted, ours, theirs)
        # What all cores together would do if none of them ever waited, and what the client would if its busiest thread never did:
        # librdkafka has one thread for a broker, and it is the bound against whatever broker.
        each = middle(ours, "client_cpu_s_gb") + middle(ours, "produce_cpu_s_gb")
        for what, ceiling in [("cores", os.cpu_count() / each * 1000),
                              ("client_thread", statistics.median(row["produce_mb_s"] / row["busiest_client_thread"] for row in ours))]:
            report.note(durability=durability, that_never_waits=what, would_do_mb_s=round(ceiling),
                        that_is_times_kafka=round(ceiling / middle(theirs, "produce_mb_s"), 2))
        # Above 60 % of both cores the client is the bound: one core for it, one for the broker.
        if durability == "memory" and middle(ours, "client_cores") > 0.6 * os.cpu_count():
            report.note(client_bound=True)
            judge(report, "memory, a core each", wanted, *pairs(report, durability, megabytes, cores="1"))


def judge(report, what, wanted, ours, theirs):
    ratio = middle(ours, "produce_mb_s") / middle(theirs, "produce_mb_s")
    report.judge(f"{what}: produce throughput, ours / Kafka's", round(ratio, 2), f">= {wanted}", ratio >= wanted)
    for part, most in [("produce", 1 / 6), ("consume", 1 / 2)]:
        cpu = middle(ours, f"{part}_cpu_s_gb") / middle(theirs, f"{part}_cpu_s_gb")
        report.judge(f"{what}: broker CPU per GB, {part}, ours / Kafka's", round(cpu, 3), f"<= {most:.3f}", cpu <= most)
    ratio = middle(ours, "consume_mb_s") / middle(theirs, "consume_mb_s")
    report.note(durability=what, consume_throughput_ratio=round(ratio, 2))


def java_run(report, system, records):
    create(system.bootstrap, "java", 100)
    before, began = system.cpu(), time.time()
    out = subprocess.run(install.java_command(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "java", "--num-records", str(records), "--record-size", "1024",
        "--throughput", "-1", "--bootstrap-server", system.bootstrap, "--command-property", "acks=all", "batch.size=1000000",
        "linger.ms=10", "buffer.memory=134217728", quick=False), capture_output=True, text=True, check=True).stdout.strip()
    last = out.splitlines()[-1]
    speed = records / float(last.split(" records/sec")[0].split()[-1])
    row = dict(system=system.name, mb_s=round(records * JAVA_RECORDS_MB / speed, 1),
               cpu_s_gb=round((system.cpu() - before) / (records * JAVA_RECORDS_MB / 1000), 3), seconds=round(time.time() - began, 1))
    report.note(**row, tool=last)
    return row


def java(report):
    """Java's ProducerPerformance, 1 KiB payloads, acks=all, 1 MB batches, linger 10 ms, 100 partitions; alternating, three pairs,
    medians; ours with durability `memory`, Kafka with its defaults (the same promise: a killed process loses nothing)."""
    ours, theirs, records = [], [], report.amount(2_000_000)
    for _ in range(PAIRS):
        with Folder() as folder:
            system = Mainstem(f"{folder}/data", "--durability", "memory").start()
            try:
                ours.append(java_run(report, system, records))
            finally:
                system.stop()
        system = Kafka(None).start()
        try:
            theirs.append(java_run(report, system, records))
        finally:
            system.stop()
    ratio = middle(ours, "mb_s") / middle(theirs, "mb_s")
    report.judge("Java: produce throughput, ours / Kafka's", round(ratio, 2), ">= 1.4", ratio >= 1.4)


def swept(report, partitions, rate, seconds):
    """Publish latency at a fixed rate over so many partitions, and the broker's CPU per GB."""
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--durability", "memory").start()
        try:
            create(system.bootstrap, "sweep", partitions)
            raw_load(system.bootstrap, "sweep", partitions, rate, 3)
            before = system.cpu()
            row = raw_load(system.bootstrap, "sweep", partitions, rate, seconds)
            row.update(partitions=partitions, rate=rate, cpu_s_gb=round((system.cpu() - before) / (rate * seconds * 1024 / 1e9), 3))
        finally:
            system.stop()
    report.note(**row)
    return row


def sweep(report):
    """The same load over 1 to 10,000 partitions, keys uniform: p99 of publish latency and broker CPU per GB against those with 100
    partitions, at half of librdkafka's peak with 100. Durability `memory`, linger 10 ms, requests of up to 1 MB; median of three. The
    producer is `raw-load`, because librdkafka, which sends a request per partition, cannot keep a fifth of that rate with 10,000."""
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--durability", "memory").start()
        try:
            create(system.bootstrap, "peak", 100)
            load("produce", system.bootstrap, "peak", 100, report.amount(2000), *BULK)
            peak = load("produce", system.bootstrap, "peak", 100, report.amount(2000), *BULK)["mb_per_s"]
        finally:
            system.stop()
    rate, seconds, rows = int(peak / 2 * 1e6 / 1024), report.amount(10), {}
    report.note(peak_mb_s=peak, rate_records_s=rate)
    for _ in range(PAIRS):
        for partitions in [100, 1, 1000, 10_000]:
            rows.setdefault(partitions, []).append(swept(report, partitions, rate, seconds))
    base = rows[100]
    for partitions, most in [(1, 1.3), (1000, 1.3), (10_000, 2.0)]:
        late = middle(rows[partitions], "p99_ms") / middle(base, "p99_ms")
        cpu = middle(rows[partitions], "cpu_s_gb") / middle(base, "cpu_s_gb")
        report.judge(f"{partitions} partitions: p99 against 100", round(late, 2), "<= 1.5", late <= 1.5)
        report.judge(f"{partitions} partitions: CPU per GB against 100", round(cpu, 2), f"<= {most}", cpu <= most)
