"""An object of the archive is gone while the broker runs (`docs/operations/damage.md`): readers of its offsets wait, everything else is read, the log names it once,
`/health/ready` and a metric say so, a backup fails by its name; put back it is read, without a restart. Argument: the binary."""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from load import Broker

SEGMENT, RECORDS, BYTES = 1 << 20, 2_500, 10_000
TOPIC, PATIENCE = "history", 60


def comes(what, look):
    deadline = time.time() + PATIENCE
    while not (found := look()):
        if time.time() > deadline:
            raise RuntimeError(f"{what} does not come within {PATIENCE} s")
        time.sleep(0.1)
    return found


def write(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(10)
    producer, refused = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.size": 100_000, "enable.idempotence": True}), []
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(TOPIC, f"{number} {'x' * BYTES}", on_delivery=lambda error, _: error and refused.append(error))
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(PATIENCE) or refused:
        raise RuntimeError(f"records are refused: {refused[:1]}")


def read(broker, start, quiet=3.0):
    """Numbers of the records from an offset on, until the end or until nothing more comes for so many seconds; whether that was the end."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0})
    reader.assign([TopicPartition(TOPIC, 0, start)])
    found, last = [], time.time()
    while time.time() < last + quiet:
        for message in reader.consume(1000, 0.1):
            if message.error() is None:
                found.append(int(message.value().split(b" ")[0]))
                last = time.time()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                reader.close()
                return found, True
    reader.close()
    return found, False


def ready(broker):
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.admin}/health/ready", timeout=5) as answer:
        return answer.status, answer.read().decode()


def unreadable(broker):
    return sum(float(line.split()[-1]) for line in broker.metrics().splitlines() if line.startswith("mainstem_history_unreadable"))


def backup(binary, broker, to):
    done = subprocess.run([binary, "backup", "--to", to, "--admin", f"127.0.0.1:{broker.admin}"], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="mainstem-object-") as scratch:
        archive = Path(scratch) / "archive"
        archive.mkdir()
        flags = ["--set", f"mainstem.segment.bytes={SEGMENT}", "--set", f"mainstem.journal.window.bytes={8 * SEGMENT}",
                 "--set", f"mainstem.archive.folder={archive}", "--memory", "256MiB"]
        broker = Broker(binary, f"{scratch}/data", flags).start()
        try:
            write(broker)
            # Those of the topic: JOURNAL/LOG/BASE-ID.
            objects = lambda: sorted((path for path in archive.glob("*/*/*-*")), key=lambda path: int(path.name.split("-")[0]))
            comes("what is beyond the window is archived", lambda: len(objects()) >= 6)
            gone, behind = objects()[2:4]
            first, next_one = (int(path.name.split("-")[0]) for path in (gone, behind))
            kept = Path(scratch) / gone.name
            shutil.move(gone, kept)
            for _ in range(2):
                if (got := read(broker, 0)) != (list(range(first)), False):
                    raise RuntimeError(f"{len(got[0])} records are read from the start, the object begins at {first}; the end: {got[1]}")
            if (got := read(broker, next_one)) != (list(range(next_one, RECORDS)), True):
                raise RuntimeError(f"of {RECORDS - next_one} records behind the object {len(got[0])} are read; the end: {got[1]}")
            status, said = ready(broker)
            if status != 200 or "history cannot be read" not in said or gone.name not in said:
                raise RuntimeError(f"/health/ready says {status} {said!r}")
            if unreadable(broker) < 1:
                raise RuntimeError("mainstem_history_unreadable is 0")
            lines = [line for line in broker.log_lines() if gone.name in line and "backup" not in line]
            if len(lines) != 1:
                raise RuntimeError(f"the log names the object {len(lines)} times: {lines[:3]}")
            status, said = backup(binary, broker, f"{scratch}/backup")
            if status == 0 or gone.name not in said:
                raise RuntimeError(f"a backup ends with status {status}: {said.strip()[-300:]}")
            shutil.move(kept, gone)
            if (got := read(broker, 0, PATIENCE)) != (list(range(RECORDS)), True):
                raise RuntimeError(f"with the object {len(got[0])} of {RECORDS} records are read; the end: {got[1]}")
            comes("/health/ready says nothing of it any more", lambda: "history" not in ready(broker)[1] and unreadable(broker) == 0)
            if (done := backup(binary, broker, f"{scratch}/backup"))[0] != 0:
                raise RuntimeError(f"with the object a backup ends with status {done[0]}: {done[1].strip()[-300:]}")
            print(f"{next_one - first} records of an object that was gone: named once, waited for, read when it was back; {RECORDS} in all")
        finally:
            broker.end(signal.SIGKILL)


main()
