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


def protected(report, system):
    """Publish latency beside a reader of old records, with a rule and without, in turns."""
    create(system.bootstrap, "live", 10)
    create(system.bootstrap, "old", 10)
    megabytes, seconds = report.amount(3000), 15
    load("produce", system.bootstrap, "old", 10, megabytes, *BULK)
    load("latency", system.bootstrap, "live", 10, 3, RATE, *PACED)
    quotas, p99 = Quotas(system.bootstrap), {}
    for turn in range(3):
        for what, rules in (("nobody", None), ("unlimited", ""), ("with a rule", "lag>64MiB 1200MiB/min")):
            reader = None
            if rules is not None:
                group = f"reports-{turn}-{what.replace(' ', '-')}"
                quotas.group(group, mainstem_laggard_rules=rules)
                settings = [f"group.id={group}", f"client.id={group}", "fetch.message.max.bytes=1048576", "queued.max.messages.kbytes=65536"]
                reader = start_load("consume", system.bootstrap, "old", 10, megabytes, *settings)
                time.sleep(1)
            row = load("latency", system.bootstrap, "live", 10, seconds, RATE, *PACED)
            p99.setdefault(what, []).append(row["p99_ms"])
            report.note(beside=what, **row)
            if reader is not None:
                reader.kill()
                reader.wait()
    alone, free, ruled = (median(p99[what]) for what in ("nobody", "unlimited", "with a rule"))
    report.table("Publish latency p99 beside a reader of old records", ["beside", "p99"], [(what, f"{median(values):.2f} ms") for what, values in p99.items()])
    report.judge("publish p99 beside a laggard under a rule, against nobody", round(ruled / alone, 2), f"<= without the rule ({free / alone:.2f})", ruled <= free)


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
    """A rule for groups that are far behind protects who publishes: publish latency beside a reader of 3 GB of old records, with the rule and
    without, and beside nobody; 5,000 records of 1 KiB a second, memory 1 GiB, medians of three turns."""
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--memory", f"{MEMORY_MB}MiB").start()
        try:
            protected(report, system)
        finally:
            system.stop()
