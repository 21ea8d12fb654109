"""Transactions under kill −9: copiers of two clients move records from one topic to another in transactions while they and the
broker are killed. Whoever reads committed records finds each once, and nothing of what was aborted.
Arguments: binary, seconds, journals, and the clients that are missing."""

import collections
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Killer, create, messages, reader, standing
from driver.broker import Broker
from driver.install import HERE, PYTHON, java_command

SOURCE, TARGET = {"source": 4}, {"target": 3}
# Copiers' transactions end by themselves after 10 s. Within this time something more must have been copied.
SETTLES = 60


def survive(binary, seconds, journals, missing):
    with tempfile.TemporaryDirectory(prefix="mainstem-transactions-") as scratch:
        flags = ["--set", f"mainstem.journals={journals}", "--set", "group.initial.rebalance.delay.ms=0"]
        broker = Broker(binary, f"{scratch}/data", flags).start()
        commands = {f"librdkafka-{number}": [str(PYTHON), str(HERE / "transactions/copy.py")] for number in range(2)}
        if "java" not in missing:
            commands["java"] = java_command("Copy")
        copiers = {}

        def run():
            for name, command in commands.items():
                if name not in copiers or copiers[name].poll() is not None:
                    words = [*command, broker.bootstrap, *SOURCE, *TARGET, name]
                    with open(f"{scratch}/{name}.log", "ab") as log:
                        copiers[name] = subprocess.Popen(words, stdout=log, stderr=log)
            return list(copiers.values())
        try:
            create(broker.bootstrap, SOURCE | TARGET)
            count, killer = load(broker, run, seconds)
            check(broker, run, count)
            print(f"{count} records copied once, {killer.kills} kills")
        except AssertionError:
            print(standing(broker, "target", SOURCE | TARGET), file=sys.stderr)
            for log in Path(scratch).glob("*.log"):
                print(f"{log.name}:", *log.read_text(errors="replace").splitlines()[-8:], sep="\n  ", file=sys.stderr)
            raise
        finally:
            for copier in copiers.values():
                copier.kill()
                copier.wait()
            broker.end(signal.SIGKILL)


def load(broker, run, seconds):
    """Writes to the source meanwhile; returns how many records it holds."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200})
    failures, count, killer, until = [], 0, Killer(broker, 2), time.time() + seconds
    while time.time() < until:
        for _ in range(20):
            producer.produce("source", b"%d" % count, b"%d" % (count % 50), partition=count % SOURCE["source"],
                             on_delivery=lambda error, _: error and failures.append(error))
            count += 1
        producer.poll(0)
        time.sleep(0.01)
        killer.turn(run())
    assert producer.flush(60) == 0 and not failures, failures[:3]
    return count, killer


def check(broker, run, count):
    consumer = reader(broker.bootstrap, TARGET)
    seen, deadline = collections.Counter(), time.time() + SETTLES
    while len(seen) < count and time.time() < deadline:
        run()
        before = len(seen)
        seen.update(message.value() for message in messages(consumer, 0.5))
        # A copier of librdkafka copies little more than is written, so that much may be left to do after the kills.
        if len(seen) > before:
            deadline = time.time() + SETTLES
    # Whatever comes twice would come after the first.
    until = time.time() + 2
    while time.time() < until:
        seen.update(message.value() for message in messages(consumer, 0.5))
    consumer.close()
    assert any_aborted(broker), "no transaction was aborted, so nothing was shown"
    lost = [number for number in range(count) if b"%d" % number not in seen]
    twice = {value: times for value, times in seen.items() if times > 1}
    assert b"aborted" not in seen, f"{seen[b'aborted']} aborted records were read"
    assert not lost, f"{len(lost)} of {count} records were not copied, the first is {lost[0]}"
    assert not twice, f"{len(twice)} records were copied more than once: {list(twice.items())[:3]}"


def any_aborted(broker):
    """Does a reader of all records find one that was aborted?"""
    consumer, deadline, found = reader(broker.bootstrap, TARGET, "read_uncommitted"), time.time() + 20, False
    while not found and time.time() < deadline:
        found = any(message.value() == b"aborted" for message in messages(consumer, 0.5))
    consumer.close()
    return found


if __name__ == "__main__":
    survive(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
