"""Space that comes back: how much files take of what is live when a mixture is partly deleted, and a disk that was filled to its last byte."""

import os
import random
import shutil
import signal
import subprocess
import time

import pika
from confluent_kafka import Consumer, Producer, TopicPartition
from machine import Folder, Mainstem, admin, create
from retention import disk_bytes

MIB = 1 << 20
RECORD = 8192
REST_S = 60
LIVE_PERCENT = [20, 30, 40, 49]
# What is live takes so many segments: an open and a prepared one, up to four that are kept to be written again and room for a rewriting count too.
LIVE_SEGMENTS = {16 * MIB: 32, 256 * MIB: 9}
SEEDS = 20
SERVES_S = 30
STUCK_SEGMENT, STUCK_SEGMENTS, STUCK_REST_S = 16 * MIB, 4, 90
STUCK_BYTES, STUCK_MESSAGES, STUCK_ROUNDS = 100_000, 1000, 4


def producer(bootstrap, **more):
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 262_144, "queue.buffering.max.kbytes": 65_536, "log_level": 0, **more})


class Mixture:
    """Two topics side by side: `keep` is so many percent of what is written, `bulk` the rest. Counts what was acknowledged."""

    def __init__(self, bootstrap, percent, partitions, **more):
        self.producer, self.percent, self.partitions = producer(bootstrap, **more), percent, partitions
        self.payload, self.acknowledged, self.refused = os.urandom(RECORD * 2), {"keep": 0, "bulk": 0}, 0
        for topic in self.acknowledged:
            create(bootstrap, topic, partitions, retention_ms=-1)

    def delivered(self, error, message):
        if error:
            self.refused += 1
        else:
            self.acknowledged[message.topic()] += 1

    def write(self, records):
        """Ends when all are answered, or when one is refused."""
        for number in range(records):
            topic = "keep" if number * self.percent % 100 < self.percent else "bulk"
            begin = number * 977 % RECORD
            while not self.refused:
                try:
                    self.producer.produce(topic, self.payload[begin:begin + RECORD], partition=number % self.partitions, on_delivery=self.delivered)
                    break
                except BufferError:
                    self.producer.poll(0.05)
            if self.refused:
                break
            self.producer.poll(0)
        while self.producer.flush(1) and not self.refused:
            pass
        # What is refused once would be refused again, until its time is over.
        self.producer.purge()
        self.producer.flush(10)

    def live_bytes(self):
        return self.acknowledged["keep"] * RECORD


def delete(bootstrap, topic):
    client = admin(bootstrap)
    for future in client.delete_topics([topic], operation_timeout=30).values():
        future.result(60)


def count(bootstrap, topic, partitions):
    """Records that a reader of all meets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0})
    parts = [TopicPartition(topic, number, 0) for number in range(partitions)]
    ends = {one.partition: consumer.get_watermark_offsets(one, 20)[1] for one in parts}
    consumer.assign(parts)
    found, until = 0, time.time() + 600
    while any(max(one.offset, 0) < ends[one.partition] for one in consumer.position(parts)) and time.time() < until:
        for message in consumer.consume(1000, 0.2):
            assert not message.error(), message.error()
            found += 1
    consumer.close()
    return found


def space(report):
    """A topic that stays and one that is deleted, side by side, so that 20, 30, 40 or 49 % of what was written is live, with segments of 16
    and 256 MiB: all files of the data folder against what is live, a minute after the deletion; then everything that is live is read after a
    SIGKILL. What is live takes 32 segments of 16 MiB, or 9 of 256 MiB."""
    for segment, segments in LIVE_SEGMENTS.items():
        for percent in LIVE_PERCENT:
            mixture(report, segment, percent, report.amount(segments * segment))


def mixture(report, segment, percent, live):
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--set", f"mainstem.segment.bytes={segment}").start()
        try:
            mixed = Mixture(system.bootstrap, percent, 4)
            mixed.write(live * 100 // percent // RECORD)
            assert not mixed.refused, "a record was refused"
            live, before = mixed.live_bytes(), disk_bytes(f"{folder}/data")
            delete(system.bootstrap, "bulk")
            began, reached = time.time(), None
            while time.time() - began < REST_S:
                if reached is None and disk_bytes(f"{folder}/data") <= 2 * live:
                    reached = round(time.time() - began, 1)
                time.sleep(0.2)
            files = disk_bytes(f"{folder}/data")
            segments = {name: os.stat(f"{folder}/data/journal-0/{name}").st_size for name in os.listdir(f"{folder}/data/journal-0")}
            kinds = {}
            for name, size in segments.items():
                kind = name.split("-")[0]
                kinds[kind] = kinds.get(kind, 0) + round(size / MIB)
            rewritten = system.journal_sum("mainstem_journal_segments_rewritten_total")
            report.note(segment_mib=segment // MIB, percent=percent, live_mb=live / 1e6, before_mb=before / 1e6, files_mb=files / 1e6, twice_after_s=reached,
                        rewritten=rewritten, mib_by_kind=kinds)
            system.stop(signal.SIGKILL)
            system.start()
            found = count(system.bootstrap, "keep", 4)
        finally:
            system.stop(signal.SIGKILL)
    ratio = files / live
    report.judge(f"segments of {segment // MIB} MiB, {percent} % live: files ÷ live", round(ratio, 2), "<= 2", ratio <= 2)
    kept = mixed.acknowledged["keep"]
    report.judge(f"segments of {segment // MIB} MiB, {percent} % live: records that are read after SIGKILL, of {kept}", found, f"{kept}", found == kept)


class SmallDisk:
    """A file system in memory of so many bytes at the folder of a broker (as root)."""

    def __init__(self, folder, megabytes):
        self.path, self.megabytes = f"{folder}/data", megabytes

    def __enter__(self):
        os.mkdir(self.path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.megabytes}m", "tmpfs", self.path], check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", self.path], check=True)

    def fill(self):
        """Another program takes what is left, to the last byte."""
        with open(f"{self.path}/another-program", "wb", buffering=0) as file:
            for size in (MIB, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
            taken = file.tell()
        return taken, shutil.disk_usage(self.path).free


def full(report):
    """Twenty seeds: a small disk in memory is filled by two topics until the broker refuses, and then by another program to its last byte; the
    topic that is 50 to 95 % of it is deleted, now and then around a SIGKILL, or with a window that is larger than the disk. Seconds until the broker takes records again, and as many as half
    of what was deleted; then everything that is left of the other topic is read."""
    worst, slowest, failed = 0, 0, []
    for seed in range(report.amount(SEEDS)):
        at = random.Random(seed)
        segment, percent, partitions = at.choice([1, 4, 16, 32]) * MIB, at.randint(50, 95), at.choice([1, 4, 40])
        megabytes, kill = at.randint(max(150, 16 * segment // MIB), 900), at.choice(["", "", "before", "behind"])
        windowed = at.random() < 0.3
        # A window that the disk is too small for: the archive is on the same disk and cannot help.
        flags = [f"mainstem.segment.bytes={segment}", *([f"mainstem.journal.window.bytes={2 * megabytes * MIB}"] if windowed else [])]
        with Folder() as folder, SmallDisk(folder, megabytes) as disk:
            system = Mainstem(f"{folder}/data", *(word for flag in flags for word in ("--set", flag))).start()
            try:
                found = fill_and_delete(report, system, disk, percent, partitions, kill)
            finally:
                system.stop(signal.SIGKILL)
        report.note(seed=seed, disk_mb=megabytes, segment_mib=segment // MIB, deleted_percent=percent, partitions=partitions, kill=kill, windowed=windowed,
                    **found)
        worst, slowest = max(worst, found["serves_s"]), max(slowest, found["half_s"])
        if found["serves_s"] > SERVES_S or found["half_s"] > SERVES_S or found["kept"] != found["read"]:
            failed.append(seed)
    report.judge("seconds until it serves again, worst", round(worst, 1), f"<= {SERVES_S} s", worst <= SERVES_S, " s")
    report.judge("seconds until it has taken half of what was deleted, worst", round(slowest, 1), f"<= {SERVES_S} s", slowest <= SERVES_S, " s")
    report.judge("seeds that failed", str(failed), "none", not failed)


def fill_and_delete(report, system, disk, percent, partitions, kill):
    mixed = Mixture(system.bootstrap, 100 - percent, partitions, **{"message.timeout.ms": 5000})
    mixed.write(disk.megabytes * 2 * MIB // RECORD)
    assert mixed.refused, "the disk is not full"
    taken, left = disk.fill()
    if kill == "before":
        system.stop(signal.SIGKILL)
        system.start()
    delete(system.bootstrap, "bulk")
    began = time.time()
    if kill == "behind":
        system.stop(signal.SIGKILL)
        system.start()
    half, done, first = mixed.acknowledged["bulk"] // 2, 0, None

    def delivered(error, _):
        nonlocal done, first
        if not error:
            done += 1
            first = first or time.time() - began
    again = producer(system.bootstrap, **{"message.timeout.ms": 2000})
    create(system.bootstrap, "again", 1)
    while done < half and time.time() - began < 2 * SERVES_S:
        waiting = len(again)
        if done + waiting < half and waiting < 500:
            again.produce("again", mixed.payload[:RECORD], partition=0, on_delivery=delivered)
        again.poll(0 if waiting < 500 else 0.02)
    late = 2 * SERVES_S
    half_s = time.time() - began if done >= half else late
    again.purge()
    again.flush(5)
    return dict(filler_mb=round(taken / 1e6, 1), left_bytes=left, deleted_mb=round(mixed.acknowledged["bulk"] * RECORD / 1e6), serves_s=round(first or late, 2),
                half_s=round(half_s, 2), kept=mixed.acknowledged["keep"], read=count(system.bootstrap, "keep", partitions))


def by_kind(folder):
    """MiB of a journal's files, by what they are."""
    kinds = {}
    for name in os.listdir(folder):
        kind = "reserve" if name.startswith("reserve") else name.split("-")[0]
        kinds[kind] = kinds.get(kind, 0) + os.stat(f"{folder}/{name}").st_size / MIB
    return {kind: round(size, 1) for kind, size in kinds.items()}


def stuck(report):
    """A consumer of an AMQP queue that never acknowledges its first message, while four times 100 MB are published and acknowledged behind it, with segments
    of 16 MiB: all files of the data folder after 90 s of rest. Then the message is read after a SIGKILL."""
    count = report.amount(STUCK_MESSAGES)
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", "--set", f"mainstem.segment.bytes={STUCK_SEGMENT}").start()
        try:
            host, port = system.broker.amqp.rsplit(":", 1)
            link = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
            writer, holder, reader = link.channel(), link.channel(), link.channel()
            writer.confirm_delivery()
            writer.queue_declare("stuck", durable=True)
            persistent, first = pika.BasicProperties(delivery_mode=2), os.urandom(STUCK_BYTES)
            writer.basic_publish("", "stuck", first, persistent)
            assert holder.basic_get("stuck")[2] == first, "the first message has not come"
            for _ in range(STUCK_ROUNDS):
                for _ in range(count):
                    writer.basic_publish("", "stuck", os.urandom(STUCK_BYTES), persistent)
                tags = [reader.basic_get("stuck")[0].delivery_tag for _ in range(count)]
                reader.basic_ack(tags[-1], multiple=True)
            began, reached = time.time(), None
            bound, worked = STUCK_BYTES + STUCK_SEGMENTS * STUCK_SEGMENT, disk_bytes(f"{folder}/data")
            while time.time() - began < STUCK_REST_S:
                if reached is None and disk_bytes(f"{folder}/data") <= bound:
                    reached = round(time.time() - began, 1)
                time.sleep(0.2)
            files = disk_bytes(f"{folder}/data")
            report.note(published_mb=STUCK_ROUNDS * count * STUCK_BYTES / 1e6, worked_mb=worked / 1e6, files_mb=files / 1e6, within_after_s=reached,
                        mib_by_kind=by_kind(f"{folder}/data/journal-0"))
            system.stop(signal.SIGKILL)
            system.start()
            link = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
            again = link.channel()
            found = again.basic_get("stuck")[2] == first and again.basic_get("stuck")[0] is None
        finally:
            system.stop(signal.SIGKILL)
    report.judge("all files, one message of 0.1 MB not acknowledged", round(files / 1e6, 1), f"<= {bound / 1e6:.1f} MB", files <= bound, " MB")
    report.judge("after SIGKILL the queue has that message", "alone" if found else "not so", "alone", found)
