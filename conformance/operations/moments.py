"""Backups of a node with three journals, made one after the other while transactions run over partitions of all of them, and restored: each is one
moment. Of every transaction all records are there or none, the group's offset is that of the newest one that is there, those that were committed before a backup
began are in it, and those that were aborted are nowhere. Segments are small and go into the archive behind a window. Arguments: the binary, and how many backups (3)."""

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from load import Broker

JOURNALS, PARTITIONS, WRITERS, SEGMENT = 3, 9, 3, 1 << 20
FLAGS = ["--set", f"mainstem.segment.bytes={SEGMENT}", "--set", f"mainstem.journal.window.bytes={8 * SEGMENT}", "--set", f"mainstem.journals={JOURNALS}",
         "--set", "log.cleaner.backoff.ms=200", "--memory", "256MiB"]
TOPIC, ABORTED_OF, VALUE_BYTES = "spread", 5, 1000


def producer_of(broker, number):
    return Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{number}", "linger.ms": 1, "transaction.timeout.ms": 60000})


class Transactions(threading.Thread):
    """Writes a record to each partition and its group's offset in each transaction; every fifth is aborted. `committed` is the newest that was."""

    def __init__(self, broker, number):
        super().__init__(daemon=True)
        self.broker, self.number, self.ends, self.committed, self.failure = broker, number, threading.Event(), 0, None

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.failure = error

    def work(self):
        producer = producer_of(self.broker, self.number)
        group = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": f"group-{self.number}"})
        producer.init_transactions(30)
        number = 0
        while not self.ends.is_set():
            number += 1
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, f"{self.number} {number} {'x' * VALUE_BYTES}", partition=partition)
            producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, number)], group.consumer_group_metadata(), 30)
            if number % ABORTED_OF == 0:
                # Records are aborted that the broker has, not those that wait in the client.
                producer.flush(30)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
                self.committed = number
        group.close()


def found_in(broker):
    """Numbers of the transactions that are visible, of each writer and partition, and each group's offset."""
    for number in range(WRITERS):
        # What was under way at the backup's moment ends.
        producer_of(broker, number).init_transactions(30)
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True,
                       "isolation.level": "read_committed"})
    reader.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found, ended, deadline = {(writer, partition): [] for writer in range(WRITERS) for partition in range(PARTITIONS)}, set(), time.time() + 60
    while len(ended) < PARTITIONS:
        if time.time() > deadline:
            raise RuntimeError(f"partitions {sorted(set(range(PARTITIONS)) - ended)} are not read to their ends within 60 s")
        for message in reader.consume(10000, 0.2):
            if message.error() is None:
                writer, number = message.value()[:24].split(b" ")[:2]
                found[int(writer), message.partition()].append(int(number))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(message.error())
    reader.close()
    offsets = []
    for writer in range(WRITERS):
        group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"group-{writer}"})
        offsets.append(max(0, group.committed([TopicPartition(TOPIC, 0)], timeout=10)[0].offset))
        group.close()
    return found, offsets


def check(found, offsets, before):
    for writer in range(WRITERS):
        first = found[writer, 0]
        if first != sorted(set(first)):
            raise RuntimeError(f"writer {writer}: records are twice or out of order")
        for partition in range(1, PARTITIONS):
            if apart := set(first) ^ set(found[writer, partition]) or found[writer, partition] != first:
                raise RuntimeError(f"writer {writer}: partitions 0 and {partition} differ in transactions {apart}")
        wanted = [number for number in range(1, max([before[writer], *first]) + 1) if number % ABORTED_OF]
        if first != wanted:
            raise RuntimeError(f"writer {writer}: transactions {sorted(set(first) ^ set(wanted))[:9]} are lost, or were aborted")
        if offsets[writer] != first[-1]:
            raise RuntimeError(f"writer {writer}: the group is at {offsets[writer]}, the newest transaction is {first[-1]}")


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{words[1]}: status {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}")


def main():
    binary, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory(prefix="mainstem-moments-") as scratch:
        broker, cut, newest = Broker(binary, f"{scratch}/data", FLAGS).start(), 0, []
        try:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
            writers = [Transactions(broker, number) for number in range(WRITERS)]
            for writer in writers:
                writer.start()
            deadline = time.time() + 60
            while any(writer.committed < 20 and writer.failure is None for writer in writers) and time.time() < deadline:
                time.sleep(0.05)
            for number in range(count):
                if failed := [writer.failure for writer in writers if writer.failure]:
                    raise failed[0]
                before = [writer.committed for writer in writers]
                run(binary, "backup", "--to", f"{scratch}/backup", "--admin", f"127.0.0.1:{broker.admin}")
                cut += any(writer.committed != was for writer, was in zip(writers, before))
                run(binary, "restore", "--from", f"{scratch}/backup", "--data", f"{scratch}/restored")
                restored = Broker(binary, f"{scratch}/restored", FLAGS)
                try:
                    found, newest = found_in(restored.start())
                    check(found, newest, before)
                except RuntimeError as error:
                    raise RuntimeError(f"backup {number + 1}: {error}") from None
                finally:
                    restored.end(signal.SIGKILL)
                shutil.rmtree(f"{scratch}/backup")
                shutil.rmtree(f"{scratch}/restored")
            for writer in writers:
                writer.ends.set()
            for writer in writers:
                writer.join(60)
            print(f"{count} backups are one moment each; transactions were committed during {cut} of them; the last one has {sum(newest)} transactions over {PARTITIONS} partitions of {JOURNALS} journals")
        finally:
            broker.end(signal.SIGKILL)


main()
