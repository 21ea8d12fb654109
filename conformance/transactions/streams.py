"""A Kafka Streams application that works exactly once, `Words.java`, while it and the broker are killed: the counts are those of the
words that were written, and each word is joined once. A second instance comes and goes meanwhile. Arguments: binary, seconds, and
the group protocol (classic or streams)."""

import collections
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Killer, create, messages, reader
from driver.broker import Broker
from driver.install import java_command

WORDS = [f"word{number}" for number in range(40)]
RESULTS = {"counts": 3, "explained": 3}
SETTLES = 120


# Short times of streams groups, so that who is killed is missed soon.
FLAGS = [word for setting in ("group.initial.rebalance.delay.ms=0", "group.streams.initial.rebalance.delay.ms=0",
                              "group.streams.min.session.timeout.ms=1000", "group.streams.session.timeout.ms=6000",
                              "group.streams.min.heartbeat.interval.ms=100", "group.streams.heartbeat.interval.ms=400",
                              "group.streams.assignment.interval.ms=200") for word in ("--set", setting)]


class Application:
    """One instance that runs always, and another one that comes and goes."""

    def __init__(self, broker, scratch, protocol):
        self.broker, self.scratch, self.protocol, self.processes, self.leaves = broker, scratch, protocol, {}, None
        self.turns_at = time.time() + 12

    def run(self):
        """Starts what is not there; the processes."""
        if time.time() > self.turns_at:
            self.turns_at = time.time() + random.uniform(6, 10)
            if "second" in self.processes:
                self.leaves = self.processes.pop("second")
                self.leaves.terminate()
            else:
                self.start("second")
        if "first" not in self.processes or self.processes["first"].poll() is not None:
            self.start("first")
        return list(self.processes.values())

    def start(self, name):
        if name == "second" and self.leaves:
            # They have one folder.
            self.gone(self.leaves, 15)
        command = java_command("Words", self.broker.bootstrap, f"{self.scratch}/state-{name}", self.protocol)
        self.processes[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @staticmethod
    def gone(process, seconds):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def end(self):
        for process in [*self.processes.values(), *([self.leaves] if self.leaves else [])]:
            self.gone(process, 0)


def main(binary, seconds, protocol="classic"):
    with tempfile.TemporaryDirectory(prefix="mainstem-streams-") as scratch:
        broker = Broker(binary, f"{scratch}/data", FLAGS).start()
        application = Application(broker, scratch, protocol)
        try:
            create(broker.bootstrap, {"lines": 4, "meanings": 3, **RESULTS})
            truth, killer = load(broker, application.run, seconds)
            check(broker, application.run, truth)
            print(f"{protocol}: {truth.total()} words counted and joined once, {killer.kills} kills")
        finally:
            application.end()
            broker.end(signal.SIGKILL)


def load(broker, run, seconds):
    """Writes lines meanwhile; how often each word was written."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200,
                         "partitioner": "murmur2_random"})
    failures, truth, killer, until = [], collections.Counter(), Killer(broker, 8), time.time() + seconds

    def write(topic, key, value):
        producer.produce(topic, value, key, on_delivery=lambda error, _: error and failures.append(error))

    for word in WORDS:
        write("meanings", word, f"meaning of {word}")
    assert producer.flush(30) == 0 and not failures, failures[:3]
    while time.time() < until:
        line = random.choices(WORDS, k=random.randint(1, 8))
        truth.update(line)
        write("lines", None, " ".join(line))
        producer.poll(0)
        killer.turn(run())
        time.sleep(0.01)
    assert producer.flush(60) == 0 and not failures, failures[:3]
    return truth, killer


def check(broker, run, truth):
    consumer, counts, explained = reader(broker.bootstrap, RESULTS), {}, collections.Counter()
    deadline = time.time() + SETTLES
    while (counts != truth or explained != truth) and time.time() < deadline:
        run()
        for message in messages(consumer, 0.5):
            if message.topic() == "counts":
                counts[message.key().decode()] = int(message.value())
            else:
                explained[message.key().decode()] += 1
                assert message.value().decode() == f"{message.key().decode()}=meaning of {message.key().decode()}", message.value()
    consumer.close()
    wrong = {word: (counts.get(word), number) for word, number in truth.items() if counts.get(word) != number}
    assert not wrong, f"{len(wrong)} counts are wrong, (found, written) are {list(wrong.items())[:3]}"
    wrong = {word: (explained[word], number) for word, number in truth.items() if explained[word] != number}
    assert not wrong, f"{len(wrong)} words were not joined once each, (found, written) are {list(wrong.items())[:3]}"


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
