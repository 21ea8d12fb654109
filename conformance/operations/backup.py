"""A backup while clients write, restored elsewhere: all that was acknowledged before it is there, topics have their ids, groups their offsets, and
what was acknowledged of a queue does not come again. Segments are small and go into the archive behind a window, so that files are sealed,
rewritten, freed and archived meanwhile. It is restored a second time beside the objects that are still there. A backup that is damaged, and a folder
that is not empty, are refused. Arguments: the binary, and for how many seconds at least is written before the backup (1)."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from load import QUEUE, TOPICS, Broker, check, make, messages, pika_connection, start_writers, stop

SEGMENT = 1 << 20
FLAGS = ["--set", f"mainstem.segment.bytes={SEGMENT}", "--set", f"mainstem.journal.window.bytes={16 * SEGMENT}", "--set", "mainstem.journals=2",
         "--set", "log.cleaner.backoff.ms=200", "--memory", "256MiB"]
SETTLED = 40


def settle(broker):
    """A hundred messages, of which some are acknowledged."""
    connection = pika_connection(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(100):
        channel.basic_publish("", QUEUE, f"old-{number} ")
    done = []
    for _ in range(SETTLED):
        method, _, body = channel.basic_get(QUEUE)
        channel.basic_ack(method.delivery_tag)
        done.append(body.split(b" ")[0].decode())
    time.sleep(0.3)
    connection.close()
    return done, [f"old-{number}" for number in range(100) if f"old-{number}" not in done]


def committed(broker, position=None):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "kept-group"})
    if position is not None:
        consumer.commit(offsets=[TopicPartition("kept", 0, position)], asynchronous=False)
    offset = consumer.committed([TopicPartition("kept", 0)], timeout=10)[0].offset
    consumer.close()
    return offset


def topic_ids(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_topics(TopicCollection(list(TOPICS)))
    return {name: str(future.result(10).topic_id) for name, future in found.items()}


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
    return done.returncode, (done.stdout + done.stderr).strip()


def must(*words):
    status, said = run(*words)
    if status != 0:
        raise RuntimeError(f"{words[1]}: status {status}: {said.splitlines()[-1:]}")
    return said


def refused(word, *words):
    status, said = run(*words)
    if status == 0 or word not in said:
        raise RuntimeError(f"{' '.join(map(str, words[1:3]))} should be refused with {word!r}: status {status}, {said[-200:]}")


def flip(path, position):
    """One bit of a copy of the file, in its place: the file itself may be the broker's."""
    data = bytearray(Path(path).read_bytes())
    data[position] ^= 4
    os.remove(path)
    Path(path).write_bytes(data)


def main():
    binary, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory(prefix="mainstem-backup-") as scratch:
        broker, backup = Broker(binary, f"{scratch}/data", FLAGS).start(), f"{scratch}/backup"
        restored = None
        try:
            make(broker)
            gone, left = settle(broker)
            position, ids = committed(broker, 7), topic_ids(broker)
            writers, deadline = start_writers(broker, 4000), time.time() + 20
            while time.time() < deadline and not any(Path(scratch, "data/archive").glob("*/*/*")):
                time.sleep(0.2)
            time.sleep(seconds)
            before = {writer.name: list(writer.acknowledged) for writer in writers}
            began = time.time()
            must(binary, "backup", "--to", backup, "--admin", f"127.0.0.1:{broker.admin}")
            took = time.time() - began
            refused("not empty", binary, "backup", "--to", backup, "--admin", f"127.0.0.1:{broker.admin}")
            time.sleep(2.5)
            stop(writers)
            after = {writer.name: list(writer.acknowledged) for writer in writers}
            objects = sum(len(files) for _, _, files in os.walk(f"{backup}/archive"))
            sealed = len(list(Path(backup).glob("journal-*/segment-*")))
            if objects == 0 or sealed < 4:
                raise RuntimeError(f"the backup has {objects} objects and {sealed} segments: nothing was archived or sealed")
            # What the broker went on with while the backup is on the same disk.
            broker.end(signal.SIGKILL)
            broker.start()
            check(broker, {name: words for name, words in after.items() if name in TOPICS})
            broker.end(signal.SIGTERM)
            elsewhere = f"{scratch}/elsewhere"
            must(binary, "restore", "--from", backup, "--data", elsewhere)
            refused("not empty", binary, "restore", "--from", backup, "--data", elsewhere)
            restored = Broker(binary, elsewhere, FLAGS).start()
            if (committed(restored), topic_ids(restored)) != (position, ids):
                raise RuntimeError("the offsets of a group or the ids of topics are others")
            check(restored, {name: words for name, words in before.items() if name in TOPICS})
            found = messages(restored)
            if lost := [word for word in before["messages"] + left if word not in found]:
                raise RuntimeError(f"{len(lost)} messages are lost, like {lost[:3]}")
            if again := [word for word in gone if word in found]:
                raise RuntimeError(f"{len(again)} acknowledged messages are back, like {again[:3]}")
            beside_objects(binary, backup, scratch)
            damaged(binary, backup, scratch)
            count = sum(map(len, before.values()))
            print(f"{took:.2f} s for {sealed} segments and {objects} objects; all {count} acknowledged before are there, of {sum(map(len, after.values()))} in the end")
        finally:
            broker.end(signal.SIGKILL)
            if restored:
                restored.end(signal.SIGKILL)


def beside_objects(binary, backup, scratch):
    """Only the disk of the journals is lost: the objects are where they were, but for one that is damaged and one that is gone."""
    there = f"{scratch}/data/archive"
    names = [path.relative_to(f"{backup}/archive") for path in sorted(Path(f"{backup}/archive").rglob("*")) if path.is_file()]
    one, other = [name for name in names if Path(there, name).exists()][:2]
    flip(Path(there, one), 100)
    os.remove(Path(there, other))
    must(binary, "restore", "--from", backup, "--data", f"{scratch}/beside", "--archive", there)
    if changed := [str(name) for name in names if Path(there, name).read_bytes() != Path(backup, "archive", name).read_bytes()]:
        raise RuntimeError(f"objects are not those of the backup: {changed[:3]}")
    must(binary, "journal", "verify", "--data", f"{scratch}/beside", "--archive", there)


def damaged(binary, backup, scratch):
    segments = sorted(Path(backup).glob("journal-1/segment-*")) or sorted(Path(backup).glob("journal-0/segment-*"))
    target = f"{scratch}/third"
    flip(segments[0], 4096 + 200)
    refused(segments[0].name, binary, "restore", "--from", backup, "--data", target)
    if os.listdir(target):
        raise RuntimeError("a restore that was refused leaves something")
    os.remove(f"{backup}/backup.toml")
    refused("no finished backup", binary, "restore", "--from", backup, "--data", target)
    shutil.rmtree(target)


main()
