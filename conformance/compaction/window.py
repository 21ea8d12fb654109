"""A journal with a window of 48 MiB is written several windows full by an idempotent producer as fast as that goes, and killed once:
its folder takes no more than the window all the time, nothing is written beyond it, and a reader gets each record once and in
order, most of them from the archive. With an archive that cannot be written the broker goes on and says so.
Arguments: binary."""

import os
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker

WINDOW, SEGMENT, PARTITIONS, TOPIC = 48 << 20, 4 << 20, 4, "kept"
RECORDS, RECORD = 200_000, 1000
FLAGS = ["--set", f"mainstem.segment.bytes={SEGMENT}", "--set", f"mainstem.journal.window.bytes={WINDOW}"]


def disk_bytes(folder):
    total = 0
    for name in os.listdir(folder):
        try:
            total += os.stat(f"{folder}/{name}").st_blocks * 512
        except FileNotFoundError:
            pass
    return total


class Watch(threading.Thread):
    """The most that a folder takes meanwhile."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.worst, self.ends = folder, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ends.wait(0.01):
            self.worst = max(self.worst, disk_bytes(self.folder))

    def end(self):
        self.ends.set()
        self.join()
        return self.worst


def metric(broker, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.admin}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


def create(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})])[TOPIC].result(30)


def write(broker, first, last):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5, "batch.size": 500_000,
                         "reconnect.backoff.max.ms": 200, "log_level": 0})
    rest, failures = os.urandom(RECORD), []
    for number in range(first, last):
        while True:
            try:
                producer.produce(TOPIC, b"%d " % number + rest, partition=number % PARTITIONS,
                                 on_delivery=lambda error, _: error and failures.append(error))
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(120) == 0 and not failures, failures[:3]


def check(broker, count):
    """Each record is there, once, in order."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0,
                         "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    following, seen, until = list(range(PARTITIONS)), 0, time.time() + 120
    while seen < count:
        assert time.time() < until, f"{seen} of {count} records were read"
        for message in consumer.consume(10_000, 0.5):
            assert not message.error(), message.error()
            number = int(message.value().split(b" ", 1)[0])
            assert number == following[message.partition()], f"{number} in place of {following[message.partition()]}"
            following[message.partition()] += PARTITIONS
            seen += 1
    consumer.close()


def within(binary):
    with tempfile.TemporaryDirectory(prefix="mainstem-window-") as scratch:
        broker = Broker(binary, f"{scratch}/data", FLAGS).start()
        try:
            create(broker)
            watch = Watch(f"{scratch}/data/journal-0")
            write(broker, 0, RECORDS // 2)
            beyond = metric(broker, "mainstem_journal_window_exceeded_total")
            broker.end(signal.SIGKILL)
            broker.start()
            write(broker, RECORDS // 2, RECORDS)
            beyond += metric(broker, "mainstem_journal_window_exceeded_total")
            worst = watch.end()
            assert worst <= WINDOW and beyond == 0, f"{worst} bytes in a window of {WINDOW}; {beyond:.0f} segments beyond it"
            waits = metric(broker, "mainstem_journal_window_wait_seconds_count")
            check(broker, RECORDS)
            assert metric(broker, "mainstem_journal_archive_reads_total") > 0
            return worst, waits
        finally:
            broker.end(signal.SIGKILL)


def beyond(binary):
    """Where the folder of the journal's objects should be there is a file."""
    with tempfile.TemporaryDirectory(prefix="mainstem-window-") as scratch:
        archive = f"{scratch}/archive"
        broker = Broker(binary, f"{scratch}/data", [*FLAGS, "--set", f"mainstem.archive.folder={archive}"]).start()
        try:
            create(broker)
            # The journal's name is in its first segment; nothing else is needed to be in its way.
            with open(f"{scratch}/data/journal-0/segment-000000000001", "rb") as segment:
                name = segment.read(24)[8:24].hex()
            name = "-".join([name[:8], name[8:12], name[12:16], name[16:20], name[20:]])
            Path(f"{archive}/{name}").write_bytes(b"")
            count = 2 * WINDOW // RECORD
            write(broker, 0, count)
            assert metric(broker, "mainstem_journal_window_exceeded_total") > 0
            assert any("grows beyond its window" in line for line in broker.log_lines())
            os.remove(f"{archive}/{name}")
            until = time.time() + 60
            while disk_bytes(f"{scratch}/data/journal-0") > WINDOW:
                assert time.time() < until, "the journal does not come back within its window"
                time.sleep(0.2)
            check(broker, count)
        finally:
            broker.end(signal.SIGKILL)


worst, waits = within(sys.argv[1])
beyond(sys.argv[1])
print(f"{RECORDS * RECORD >> 20} MiB through a window of {WINDOW >> 20} MiB: at most {worst / 2**20:.1f} MiB on the disk, {waits:.0f} waits for the archive after the kill")
