"""A small data folder of each released format is kept beside this file (`format-N.tar.gz`): it opens, with all that was in it, and what a checkpoint, the
journal and the archive say is whole. `format.py make BINARY FILE` writes one, `format.py check BINARY FILE` opens one."""

import subprocess
import sys
import tarfile
import tempfile
import time
import signal
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from load import Broker, pika_connection

SEGMENT = 262_144
FLAGS = ["--set", f"mainstem.segment.bytes={SEGMENT}", "--set", f"mainstem.journal.window.bytes={8 * SEGMENT}", "--set", "log.cleaner.backoff.ms=100",
         "--memory", "128MiB",
         # What was written years ago is kept.
         "--set", "log.retention.ms=-1", "--set", "offsets.retention.minutes=2147483647"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS, KEYS, MESSAGES, SETTLED, POSITION = 60, 40, 30, 10, 17


def value(codec, number):
    return f"{codec} {number} " + "0123456789" * 300


def write(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic("codecs", len(CODECS)), NewTopic("keys", 1, config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1"})]
    for made in admin.create_topics(topics).values():
        made.result(10)
    for partition, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "transactional.id": codec, "batch.size": 30_000})
        producer.init_transactions(10)
        for commit in (True, False):
            producer.begin_transaction()
            for number in range(RECORDS):
                producer.produce("codecs", value(codec, number if commit else -1), key=f"{number}", partition=partition, headers=[("h", b"\0\xff")], timestamp=1_700_000_000_000 + number)
            producer.flush(10)
            (producer.commit_transaction if commit else producer.abort_transaction)(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 30_000})
    for turn in range(20):
        for number in range(KEYS):
            producer.produce("keys", value("turn", turn), key=f"{number}")
        producer.flush(10)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("codecs", 0, POSITION)], asynchronous=False)
    consumer.close()
    connection = pika_connection(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("letters", "topic", durable=True)
    channel.queue_declare("work", durable=True, arguments={"x-max-priority": 3})
    channel.queue_bind("work", "letters", "a.*.c")
    for number in range(MESSAGES):
        channel.basic_publish("letters", "a.b.c", f"{number}")
    for _ in range(SETTLED):
        method, _, _ = channel.basic_get("work")
        channel.basic_ack(method.delivery_tag)
    time.sleep(0.5)
    connection.close()


def read(broker, topic, partition):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "check", "enable.partition.eof": True, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found, deadline = [], time.time() + 30
    while time.time() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            break
        if message is not None:
            found.append(message)
    consumer.close()
    return found


def expect(what, found, wanted):
    if found != wanted:
        raise RuntimeError(f"{what}: {str(found)[:200]} instead of {str(wanted)[:200]}")


def check(broker):
    for partition, codec in enumerate(CODECS):
        found = [(message.key().decode(), message.value().decode(), message.timestamp()[1]) for message in read(broker, "codecs", partition)]
        expect(codec, found, [(f"{number}", value(codec, number), 1_700_000_000_000 + number) for number in range(RECORDS)])
    newest = {message.key().decode(): message.value().decode() for message in read(broker, "keys", 0)}
    expect("keys", newest, {f"{number}": value("turn", 19) for number in range(KEYS)})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    expect("position", consumer.committed([TopicPartition("codecs", 0)], timeout=10)[0].offset, POSITION)
    consumer.close()
    connection = pika_connection(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("letters", "a.x.c", "new")
    found = []
    while (got := channel.basic_get("work", auto_ack=True))[0] is not None:
        found.append(got[2].decode())
    expect("queue", found, [f"{number}" for number in range(SETTLED, MESSAGES)] + ["new"])
    connection.close()


def verify(binary, folder):
    done = subprocess.run([binary, "journal", "verify", "--data", folder], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"verify: {done.stdout} {done.stderr}")


def main():
    what, binary, file = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="mainstem-format-") as scratch:
        folder = f"{scratch}/data"
        if what == "check":
            with tarfile.open(file) as kept:
                kept.extractall(scratch, filter="data")
            verify(binary, folder)
        broker = Broker(binary, folder, FLAGS).start()
        try:
            (write if what == "make" else check)(broker)
            if what == "make":
                # Until something has been compacted and archived.
                deadline = time.time() + 20
                while time.time() < deadline and not any(Path(folder, "archive").glob("*/*/*")):
                    time.sleep(0.2)
        finally:
            status = broker.end(signal.SIGTERM)
        if status != 0:
            raise RuntimeError(f"status {status}")
        verify(binary, folder)
        if what == "make":
            for spare in [*Path(folder).glob("journal-*/spare-*"), *Path(folder).glob("journal-*/dead-*"), Path(folder, "lock")]:
                spare.unlink()
            with tarfile.open(file, "w:gz") as kept:
                kept.add(folder, "data")
            print(f"{len(list(Path(folder, 'archive').glob('*/*/*')))} objects, {Path(file).stat().st_size} bytes")
        else:
            print("records of five codecs, transactions, a compacted topic, an offset, an exchange and a queue are as they were")


main()
