"""What quotas hold, and what they cost."""

import sys
import threading
import time
from pathlib import Path
from statistics import median

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from machine import BULK, Folder, Mainstem, create, load, start_load
from quotas import Meter, Quotas
from backlog import PACED, RATE

MB = 1_000_000
LIMIT = 10 * MB
MEMORY_MB = 1024
LAGGARDS = 4
# For each group 20 MB a second.
RULE = "lag>64MiB 1200MiB/min"


class Running:
    """A producer as fast as it may be, and what of it was acknowledged."""

    def __init__(self, bootstrap):
        self.meter, self.ends = Meter(), False
        self.producer = Producer({"bootstrap.servers": bootstrap, "client.id": "limited", "linger.ms": 5, "batch.size": 200_000,
                                  "message.timeout.ms": 300_000, "queue.buffering.max.kbytes": 16_384})
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        value = bytes(10_000)
        while not self.ends:
            try:
                self.producer.produce("limited", value, on_delivery=lambda error, _: error or self.meter.add(len(value)))
                self.producer.poll(0)
            except BufferError:
                self.producer.poll(0.01)

    def end(self):
        self.ends = True
        self.thread.join()
        self.producer.purge()
        self.producer.flush(10)


def rates(report, system):
    """10 MB/s over 30 s; then changes, each judged by the second that begins a second later."""
    quotas = Quotas(system.bootstrap)
    quotas.set({"client-id": "limited"}, producer_byte_rate=LIMIT)
    running = Running(system.bootstrap)
    try:
        time.sleep(2)
        held = running.meter.over(report.amount(30))
        worst = 0
        for wanted in (4 * MB, 20 * MB, 6 * MB):
            quotas.set({"client-id": "limited"}, producer_byte_rate=wanted)
            time.sleep(1)
            after = running.meter.over(2)
            report.note(changed_to=wanted, measured=round(after))
            worst = max(worst, abs(after / wanted - 1))
    finally:
        running.end()
        quotas.set({"client-id": "limited"}, producer_byte_rate=None)
    report.judge("a producer limited to 10 MB/s, over 30 s", round(held / MB, 3), "10 ± 5 %", abs(held / LIMIT - 1) <= 0.05, " MB/s")
    report.judge("a second after a change: off the new quota by", round(worst * 100, 1), "<= 10 %", worst <= 0.1, " %")


def readers(system, names, megabytes, rules):
    """A group each that begins with the oldest record."""
    quotas, running = Quotas(system.bootstrap), []
    for group in names:
        quotas.group(group, mainstem_laggard_rules=rules)
        settings = [f"group.id={group}", f"client.id={group}", "fetch.message.max.bytes=1048576", "queued.max.messages.kbytes=65536"]
        running.append(start_load("consume", system.bootstrap, "old", 10, megabytes, *settings))
    time.sleep(1)
    return running


def protected(report, system):
    """Publish latency beside readers of old records, with a rule and without, in turns."""
    create(system.bootstrap, "live", 10)
    create(system.bootstrap, "old", 10)
    megabytes, seconds = report.amount(3000), 15
    load("produce", system.bootstrap, "old", 10, megabytes, *BULK)
    load("latency", system.bootstrap, "live", 10, 3, RATE, *PACED)
    p99 = {}
    for turn in range(3):
        for count in (0, 1, LAGGARDS):
            for what, rules in (("without", ""), ("with", RULE)) if count else (("", ""),):
                running = readers(system, [f"reports-{turn}-{count}-{what}-{number}" for number in range(count)], megabytes, rules)
                row = load("latency", system.bootstrap, "live", 10, seconds, RATE, *PACED)
                p99.setdefault((count, what), []).append(row["p99_ms"])
                report.note(laggards=count, rule=what, **row)
                for reader in running:
                    reader.kill()
                    reader.wait()
    alone = median(p99[0, ""])
    rows = [(count, what, f"{median(values):.2f} ms", f"{median(values) / alone:.2f}") for (count, what), values in p99.items()]
    report.table("Publish latency p99 beside groups that read old records", ["groups", "rule", "p99", "against nobody"], rows)
    for count in (1, LAGGARDS):
        ruled, free = (median(p99[count, what]) / alone for what in ("with", "without"))
        told = "a laggard" if count == 1 else f"{count} laggards"
        report.judge(f"publish p99 beside {told} under a rule, against nobody", round(ruled, 2), f"<= without the rule ({free:.2f})", ruled <= free)


def quota(report):
    """A producer of librdkafka under `producer_byte_rate`, and changes of it while it runs, each judged by two seconds that begin a second after it."""
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--memory", f"{MEMORY_MB}MiB").start()
        try:
            create(system.bootstrap, "limited", 1)
            rates(report, system)
        finally:
            system.stop()


def laggard(report):
    """A rule for groups that are far behind protects who publishes: publish latency beside a group, and beside four, that read 3 GB of old
    records, with the rule and without, and beside nobody; 5,000 records of 1 KiB a second, memory 1 GiB, medians of three turns."""
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--memory", f"{MEMORY_MB}MiB").start()
        try:
            protected(report, system)
        finally:
            system.stop()
