"""Bytes on the disk: per byte accepted, and what stays of old data."""

import os
import signal
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from machine import BULK, Folder, Mainstem, create, load


def wrote(report, system, topic, partitions, megabytes, *settings):
    """Process write_bytes ÷ batch bytes accepted, with mean chunk and run."""
    names = ["mainstem_journal_chunk_size_bytes_count", "mainstem_journal_chunk_size_bytes_sum", "mainstem_journal_runs_total",
             "mainstem_kafka_produced_bytes_total"]
    before = [system.journal_sum(name) for name in names]
    begin = system.write_bytes()
    load("produce", system.bootstrap, topic, partitions, megabytes, *settings)
    time.sleep(3)
    written = system.write_bytes() - begin
    chunks, chunk_bytes, runs, accepted = (system.journal_sum(name) - value for name, value in zip(names, before))
    row = dict(partitions=partitions, written=written, accepted=accepted, ratio=round(written / accepted, 4),
               mean_chunk_kib=round(chunk_bytes / chunks / 1024, 1), mean_run_kib=round(accepted / max(1, runs) / 1024, 1))
    report.note(**row)
    return row


def writes(report):
    """Process `write_bytes` ÷ batch bytes accepted over 10 GB on a fresh folder, at 100 and at 10,000 partitions."""
    for partitions, most in [(100, 1.05), (10_000, 1.15)]:
        with Folder() as folder:
            system = Mainstem(f"{folder}/data").start()
            try:
                create(system.bootstrap, "writes", partitions)
                row = wrote(report, system, "writes", partitions, report.amount(10_000), *BULK)
            finally:
                system.stop()
        shape = f"mean chunk {row['mean_chunk_kib']} KiB, mean run {row['mean_run_kib']} KiB"
        report.judge(f"{partitions} partitions, {shape}", row["ratio"], f"<= {most}", row["ratio"] <= most)


def disk_bytes(folder):
    """What the files below a folder take; one may go while it is looked at."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def retention(report):
    """1,000 tiny records of a topic with `retention.ms=-1` interleaved with 20 GB of a topic with `retention.bytes` (1 GB in all):
    the disk in use, and the tiny topic after a SIGKILL."""
    megabytes, rounds, live = report.amount(20_000), 100, 1_000_000_000
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--set", "log.retention.check.interval.ms=1000").start()
        try:
            create(system.bootstrap, "tiny", 1, retention_ms=-1)
            create(system.bootstrap, "large", 10, retention_bytes=live // 10)
            producer, worst = Producer({"bootstrap.servers": system.bootstrap, "log_level": 0}), 0
            for number in range(rounds):
                for tiny in range(10):
                    producer.produce("tiny", b"%d" % (number * 10 + tiny))
                assert producer.flush(30) == 0
                load("produce", system.bootstrap, "large", 10, max(1, megabytes // rounds), *BULK)
                if number > 20:
                    worst = max(worst, disk_bytes(f"{folder}/data"))
            time.sleep(10)
            settled = disk_bytes(f"{folder}/data")
            report.note(worst_gb=worst / 1e9, settled_gb=settled / 1e9, live_gb=live / 1e9)
            system.stop(signal.SIGKILL)
            system.start()
            intact = read_tiny(system.bootstrap) == [b"%d" % number for number in range(rounds * 10)]
        finally:
            system.stop(signal.SIGKILL)
    bound = (2 * live + 2e9) / 1e9
    report.judge("disk in use, worst after the first fifth", round(worst / 1e9, 2), f"<= {bound:.1f} GB", worst / 1e9 <= bound, " GB")
    report.judge("the tiny topic after a restart", "intact" if intact else "damaged", "intact", intact)


def read_tiny(bootstrap):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tiny", "auto.offset.reset": "error", "enable.auto.commit": False})
    consumer.assign([TopicPartition("tiny", 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition("tiny", 0), 20)
    values, until = [], time.time() + 60
    while len(values) < end and time.time() < until:
        for message in consumer.consume(min(1000, end - len(values)), 1.0):
            assert not message.error(), message.error()
            values.append(message.value())
    consumer.close()
    return values
