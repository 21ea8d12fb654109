"""Publish latency at light load, alone and beside bulk producers."""

import time

from machine import BULK, Folder, Kafka, Mainstem, Steal, create, load, start_load, yardstick

# The bulk producers run until they are ended.
FOREVER_MB = 1_000_000
LIGHT = ["linger.ms=0", "acks=all"]


def measure(report, system, seconds, what):
    config = {"flush_messages": 1} if system.name == "kafka" else {}
    create(system.bootstrap, "light", 1, **config)
    create(system.bootstrap, "bulk", 8, **config)
    load("latency", system.bootstrap, "light", 1, 3, 500, *LIGHT)
    bulk = []
    if what == "loaded":
        bulk = [start_load("produce", system.bootstrap, "bulk", 8, FOREVER_MB, *BULK) for _ in range(2)]
        time.sleep(2)
    steal = Steal()
    try:
        row = load("latency", system.bootstrap, "light", 1, seconds, 500, *LIGHT)
    finally:
        for process in bulk:
            process.kill()
            process.wait()
    row.update(system=system.name, steal_percent=steal.percent())
    report.note(**row)
    return row


def light(report):
    """librdkafka without linger, 500 records of 1 KiB a second for 60 s, `fsync`, beside real Kafka's with `flush.messages=1`.
    Latency counts from the moment a record was due, which includes by how much its generator woke up late (`schedule_lag`), and
    from the moment it was handed to librdkafka. Yardsticks of the machine before and after, back to back and at the pace of the
    load: a processor that has slept 2 ms wakes up late, for a bare write as for a broker. Median of three."""
    rows, yards = run(report, "light", report.amount(60))
    for pace in ["", "paced_"]:
        for quantile, extra in [("p50", 0.15), ("p99", 1.0)]:
            middle = lambda name: sorted(yard[f"{pace}{name}_{quantile}_ms"] for yard in yards)[len(yards) // 2]
            bound = middle("write") + (2 if quantile == "p50" else 1) * middle("trip") + extra
            against = "at the load's pace" if pace else "back to back"
            for since, prefix in [("due", ""), ("sent", "since_sent_")]:
                got = sorted(row[f"{prefix}{quantile}_ms"] for row in rows)[1]
                report.judge(f"publish latency {quantile} since {since}, yardsticks {against}", round(got, 3), f"<= {bound:.3f} ms", got <= bound, " ms")


def loaded(report):
    """The same while two other producers push 1 MB batches as fast as they can."""
    rows, _ = run(report, "loaded", report.amount(30))
    got = sorted(row["p99_ms"] for row in rows)[1]
    report.judge("publish latency p99 beside bulk producers", round(got, 2), "<= 10 ms", got <= 10, " ms")


def run(report, what, seconds):
    rows, yards = [], []
    for number in range(3):
        with Folder() as folder:
            yards.append(yardstick(folder))
            system = Mainstem(f"{folder}/data").start()
            try:
                rows.append(measure(report, system, seconds, what))
            finally:
                system.stop()
            yards.append(yardstick(folder))
            report.note(before=yards[-2], after=yards[-1])
        if number == 0:
            system = Kafka(None).start()
            try:
                measure(report, system, seconds, what)
            finally:
                system.stop()
    return rows, yards
