"""Transactions under kill −9: copiers of two clients move records from one topic to another in transactions while they and the
broker are killed. Whoever reads committed records finds each once, and nothing of what was aborted.
Arguments: binary, seconds, journals, and the clients that are missing."""

import collections
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker
from driver.install import HERE, PYTHON, java_command

SOURCES, TARGETS = 4, 3
# Copiers' transactions end by themselves after 10 s.
SETTLES = 60


def survive(binary, seconds, missing, journals):
    with tempfile.TemporaryDirectory(prefix="mainstem-transactions-") as scratch:
        broker = Broker(binary, f"{scratch}/data", ["--set", f"mainstem.journals={journals}", "--set", "group.initial.rebalance.delay.ms=0"]).start()
        copiers = {}
        try:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            for future in admin.create_topics([NewTopic("source", SOURCES, 1), NewTopic("target", TARGETS, 1)]).values():
                future.result(30)
            commands = {f"librdkafka-{number}": [str(PYTHON), str(HERE / "transactions/copy.py")] for number in range(2)}
            if "java" not in missing:
                commands["java"] = java_command("Copy", quick=True)
            for name, command in commands.items():
                commands[name] = [*command, broker.bootstrap, "source", "target", name]
            count, kills = load(broker, commands, copiers, seconds)
            check(broker, commands, copiers, count)
            print(f"{count} records copied once, {kills} kills")
        finally:
            for copier in copiers.values():
                copier.kill()
                copier.wait()
            broker.end(signal.SIGKILL)


def load(broker, commands, copiers, seconds):
    """Writes to the source meanwhile; returns how many records it holds, and how often something was killed."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200})
    failures, count, kills, until, kill_at = [], 0, 0, time.time() + seconds, time.time() + 2
    while time.time() < until:
        for _ in range(20):
            producer.produce("source", b"%d" % count, b"%d" % (count % 50), partition=count % SOURCES,
                             on_delivery=lambda error, _: error and failures.append(error))
            count += 1
        producer.poll(0)
        time.sleep(0.01)
        keep_running(commands, copiers)
        if time.time() >= kill_at:
            kill_at = time.time() + random.uniform(1, 4)
            kills += 1
            victim = random.choice([*commands, "broker"])
            if victim == "broker":
                broker.end(signal.SIGKILL)
                broker.start()
            else:
                copiers[victim].kill()
    assert producer.flush(60) == 0 and not failures, failures[:3]
    return count, kills


def keep_running(commands, copiers):
    for name, command in commands.items():
        if name not in copiers or copiers[name].poll() is not None:
            copiers[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check(broker, commands, copiers, count):
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "check", "enable.auto.commit": False,
                       "isolation.level": "read_committed"})
    reader.assign([TopicPartition("target", partition, 0) for partition in range(TARGETS)])
    seen, deadline = collections.Counter(), time.time() + SETTLES
    while len(seen) < count and time.time() < deadline:
        keep_running(commands, copiers)
        for message in reader.consume(5000, 0.5):
            assert not message.error(), message.error()
            seen[message.value()] += 1
    # Whatever comes twice would come after the first.
    until = time.time() + 2
    while time.time() < until:
        for message in reader.consume(5000, 0.5):
            seen[message.value()] += 1
    reader.close()
    assert b"aborted" in everything(broker), "no transaction was aborted, so nothing was shown"
    lost = [number for number in range(count) if b"%d" % number not in seen]
    twice = {value: times for value, times in seen.items() if times > 1}
    assert b"aborted" not in seen, f"{seen[b'aborted']} aborted records were read"
    assert not lost, f"{len(lost)} of {count} records were not copied, the first is {lost[0]}"
    assert not twice, f"{len(twice)} records were copied more than once: {list(twice.items())[:3]}"


def everything(broker):
    """The values that a reader of all records finds."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "check", "enable.auto.commit": False,
                       "isolation.level": "read_uncommitted"})
    reader.assign([TopicPartition("target", partition, 0) for partition in range(TARGETS)])
    values = set()
    while messages := reader.consume(5000, 2.0):
        values.update(message.value() for message in messages)
    reader.close()
    return values


if __name__ == "__main__":
    survive(sys.argv[1], float(sys.argv[2]), sys.argv[4:], int(sys.argv[3]))
