"""The archive: a journal that keeps within its window, and compaction beside a producer."""

import os
import random
import signal
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from machine import BULK, READ, Folder, Mainstem, create, drop_page_cache, finish, load, start_load
from retention import disk_bytes

RECORD = 1000
LIGHT = ["linger.ms=5", "acks=all"]


def sequential_read(folder, megabytes=2000):
    """MB/s of reading the segment files of a folder in order, past the page cache."""
    names = sorted(os.path.join(path, name) for path, _, names in os.walk(folder) for name in names if "segment" in name or "-" in name)
    buffer = memoryview(bytearray((4 << 20) + 4096))
    import ctypes
    start = -ctypes.addressof(ctypes.c_char.from_buffer(buffer)) % 4096
    aligned, done, began = buffer[start:start + (4 << 20)], 0, time.time()
    for name in names:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECT)
        try:
            while done < megabytes * 1_000_000 and (got := os.readv(handle, [aligned])):
                done += got
                if got % 4096:
                    break
        finally:
            os.close(handle)
    return done / 1e6 / (time.time() - began)


def window(report):
    """A topic of 30 GB is written as fast as one client can and kept with a journal window of 4 GB: what the journal's folder takes
    at most meanwhile, and how fast all of it is read again by one client, against what the disk gives to a program that
    reads the same files in order."""
    megabytes, bound = report.amount(30_000), report.amount(4_000) * 1_000_000
    segment = min(256 << 20, bound // 12 // 4096 * 4096)
    with Folder() as folder:
        flags = [f"mainstem.journal.window.bytes={bound}", f"mainstem.segment.bytes={segment}"]
        system = Mainstem(f"{folder}/data", *(word for flag in flags for word in ("--set", flag))).start()
        try:
            create(system.bootstrap, "kept", 8, retention_ms=-1)
            worst, writing = 0, True

            def watch():
                nonlocal worst
                while writing:
                    worst = max(worst, disk_bytes(f"{folder}/data/journal-0"))
                    time.sleep(0.05)
            watcher = threading.Thread(target=watch)
            watcher.start()
            began = time.time()
            try:
                for number in range(20):
                    load("produce", system.bootstrap, "kept", 8, max(1, megabytes // 20), *BULK)
                    if number % 4 == 3:
                        report.note(written_gb=(number + 1) * megabytes / 20_000, seconds=round(time.time() - began), worst_gb=worst / 1e9)
            finally:
                wrote = time.time() - began
                writing = False
                watcher.join()
            waits = [system.journal_sum(f"mainstem_journal_window_wait_seconds_{what}") for what in ("count", "sum")]
            beyond = system.journal_sum("mainstem_journal_window_exceeded_total")
            time.sleep(10)
            settled, archived = disk_bytes(f"{folder}/data/journal-0"), disk_bytes(f"{folder}/data/archive")
            report.note(worst_gb=worst / 1e9, settled_gb=settled / 1e9, archived_gb=archived / 1e9, window_gb=bound / 1e9,
                        written_mb_per_s=megabytes / wrote, waits=waits[0], waited_seconds=waits[1], segments_beyond=beyond)
            drop_page_cache()
            disk = sequential_read(f"{folder}/data/archive")
            drop_page_cache()
            read = load("consume", system.bootstrap, "kept", 8, 20 * max(1, megabytes // 20) - 1, *READ)
            report.note(disk_mb_per_s=disk, **read)
        finally:
            system.stop(signal.SIGKILL)
    report.judge("the journal's folder, settled", round(settled / 1e9, 2), f"<= {bound / 1e9:.1f} GB", settled <= bound, " GB")
    report.judge("the journal's folder, worst while written", round(worst / 1e9, 2), f"<= {bound / 1e9:.1f} GB", worst <= bound, " GB")
    share = read["mb_per_s"] / disk
    report.judge("all read again, of the disk's sequential rate", round(share, 2), ">= 0.6", share >= 0.6)


def keyed(bootstrap, megabytes, keys):
    """Writes records of so many keys; returns the newest value of each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 500_000, "enable.idempotence": True,
                         "queue.buffering.max.messages": 100_000})
    rest, failures, newest = os.urandom(RECORD - 20), [], {}
    for number in range(megabytes * 1000):
        key = b"%d" % random.randrange(keys)
        newest[key] = b"%d" % number
        while True:
            try:
                producer.produce("table", b"%d " % number + rest, key, partition=int(key) % 4,
                                 on_delivery=lambda error, _: error and failures.append(error))
                break
            except BufferError:
                producer.poll(0.05)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0 and not failures, failures[:3]
    return newest


def table(bootstrap):
    """What a reader of all has in the end, and how many records it met."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error",
                         "fetch.message.max.bytes": 1 << 20})
    parts = [TopicPartition("table", number, 0) for number in range(4)]
    ends = {one.partition: consumer.get_watermark_offsets(one, 20)[1] for one in parts}
    consumer.assign(parts)
    found, count, until = {}, 0, time.time() + 600
    while any(one.offset < ends[one.partition] for one in consumer.position(parts)) and time.time() < until:
        for message in consumer.consume(10_000, 0.5):
            found[message.key()] = message.value().split(b" ", 1)[0]
            count += 1
    consumer.close()
    return found, count


def compaction(report):
    """A topic of 5 GB with 1 % distinct keys is compacted while a producer writes 5,000 records of 1 KiB a second to another one, before
    and after the broker is killed in the middle: the larger p99 of both times against that of a broker that compacts nothing, the
    bytes that are left, and the table that a reader of all has in the end."""
    megabytes = report.amount(5_000)
    keys, rate, seconds = megabytes * 10, 5_000, 30
    with Folder() as folder:
        quiet, eager = "log.cleaner.backoff.ms=2000000000", "log.cleaner.backoff.ms=1000"
        system = Mainstem(f"{folder}/data", "--set", quiet).start()
        try:
            create(system.bootstrap, "table", 4, cleanup_policy="compact", segment_ms=1000)
            create(system.bootstrap, "light", 1)
            newest = keyed(system.bootstrap, megabytes, keys)
            report.note(written_mb=megabytes)
            alone = load("latency", system.bootstrap, "light", 1, seconds, rate, *LIGHT)
            report.note(p99_ms_alone=alone["p99_ms"])
            before = disk_bytes(f"{folder}/data")
            system.stop()
            system = Mainstem(f"{folder}/data", "--set", eager).start()
            time.sleep(3)
            times, during = [], 0
            for part in (seconds, 2 * seconds):
                times.append(finish(start_load("latency", system.bootstrap, "light", 1, part, rate, *LIGHT)))
                read = system.journal_sum("mainstem_journal_compaction_read_bytes_total")
                during += read
                report.note(p99_ms=times[-1]["p99_ms"], compacted_mb=read / 1e6, passes=system.journal_sum("mainstem_journal_compaction_passes_total"))
                system.stop(signal.SIGKILL)
                system = Mainstem(f"{folder}/data", "--set", eager).start()
            beside = max(times, key=lambda found: found["p99_ms"])
            began, read = time.time(), -1
            while time.time() - began < 600:
                now = system.journal_sum("mainstem_journal_compaction_read_bytes_total")
                # What was left to do by the kill has begun by then, and reads on while it lasts.
                if now == read:
                    break
                read = now
                time.sleep(10)
            found, count = table(system.bootstrap)
            after = disk_bytes(f"{folder}/data")
            report.note(alone=alone, beside=beside, compacted_beside_mb=during / 1e6, keys=len(newest), records=count, before_gb=before / 1e9,
                        after_gb=after / 1e9, seconds=round(time.time() - began))
        finally:
            system.stop(signal.SIGKILL)
    ratio = beside["p99_ms"] / alone["p99_ms"]
    report.judge("publish p99 beside compaction, against that without", round(ratio, 2), "<= 1.5", ratio <= 1.5)
    report.judge("compacted meanwhile", round(during / 1e6), "> 0 MB", during > 0, " MB")
    report.judge("newest value of each key after a kill -9 in the middle", "there" if found == newest else "not there", "there", found == newest)
    report.judge("records that a reader meets, of those written", round(count / (megabytes * 1000), 3), "<= 0.05", count <= megabytes * 50)
