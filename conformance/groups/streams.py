"""A Kafka Streams application in a streams group, `Words.java`: instances join and leave, the group's tool shows it, moves its offsets and
deletes it, and each word is counted and joined once. Arguments: binary, or HOST:PORT of a broker that runs, and more that are missing."""

import collections
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import wait_until
from driver.broker import Broker
from driver.install import java_command
from driver.tools import Machine

TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
GROUP = "words"
TOPICS = {"lines": 4, "meanings": 3, "counts": 3, "explained": 3}
WORDS = [f"word{number}" for number in range(30)]
FLAGS = [word for setting in ("group.initial.rebalance.delay.ms=0", "group.streams.initial.rebalance.delay.ms=0",
                              "group.streams.min.session.timeout.ms=1000", "group.streams.session.timeout.ms=6000",
                              "group.streams.min.heartbeat.interval.ms=100", "group.streams.heartbeat.interval.ms=300",
                              "group.streams.assignment.interval.ms=100") for word in ("--set", setting)]


class Group:
    """The application, and what the tool says of its group."""

    def __init__(self, bootstrap, scratch):
        self.bootstrap, self.scratch, self.machine, self.processes = bootstrap, scratch, Machine(), {}

    def start(self, name):
        command = java_command("Words", self.bootstrap, f"{self.scratch}/{name}", "streams")
        self.processes[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self, name, kill=False):
        process = self.processes.pop(name)
        process.kill() if kill else process.terminate()
        process.wait(60)

    def tool(self, *words, says=(), fails=False):
        status, out = self.machine.run([TOOL, "--bootstrap-server", self.bootstrap, *words], "")
        assert (status != 0) == fails, f"{words} ended with {status}: {out.strip()[-400:]}"
        for pattern in says:
            assert re.search(pattern, out, re.MULTILINE), f"{words} does not say {pattern!r}: {out.strip()[:1500]}"
        return out

    def members(self):
        """Stable members, by their tasks; empty while the group is not stable."""
        _, out = self.machine.run([TOOL, "--bootstrap-server", self.bootstrap, "--describe", "--group", GROUP, "--state"], "")
        if not re.search(rf"^{GROUP}\s.*\sStable\s", out, re.MULTILINE):
            return []
        _, out = self.machine.run([TOOL, "--bootstrap-server", self.bootstrap, "--describe", "--group", GROUP, "--members"], "")
        return re.findall(rf"^{GROUP}\s.*$", out, re.MULTILINE)


    def standbys(self):
        """How many tasks have a member that keeps their state."""
        _, out = self.machine.run([TOOL, "--bootstrap-server", self.bootstrap, "--describe", "--group", GROUP, "--members", "--verbose"], "")
        return sum(len(tasks.split(",")) for told in re.findall(r" STANDBY: ([^A-Z]*)", out) for tasks in re.findall(r"\[(.*?)\]", told))


class Truth:
    """What was written, and what the application has made of it."""

    def __init__(self, bootstrap):
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random"})
        self.reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False, "isolation.level": "read_committed"})
        self.reader.assign([TopicPartition(name, at, 0) for name in ("counts", "explained") for at in range(TOPICS[name])])
        self.written, self.counts, self.explained = collections.Counter(), {}, collections.Counter()
        for word in WORDS:
            self.producer.produce("meanings", f"meaning of {word}", word)
        assert self.producer.flush(30) == 0

    def write(self, rounds):
        for number in range(rounds):
            line = WORDS[number % 7::7]
            self.written.update(line)
            self.producer.produce("lines", " ".join(line), partition=number % TOPICS["lines"])
        assert self.producer.flush(30) == 0

    def agrees(self):
        for message in self.reader.consume(5000, 0.2):
            assert not message.error(), message.error()
            key, value = message.key().decode(), message.value().decode()
            if message.topic() == "counts":
                self.counts[key] = int(value)
            else:
                self.explained[key] += 1
        return self.counts == self.written and self.explained == self.written

    def wait(self, why):
        wait_until(lambda: f"{why}: {sum(self.counts.values())} counted and {self.explained.total()} joined of {self.written.total()}", self.agrees)


def main(where):
    with tempfile.TemporaryDirectory(prefix="mainstem-streams-") as scratch:
        broker = None if ":" in where else Broker(where, f"{scratch}/data", FLAGS).start()
        group = Group(broker.bootstrap if broker else where, scratch)
        try:
            run(group)
        finally:
            for name in list(group.processes):
                group.end(name, kill=True)
            group.machine.process.kill()
            if broker:
                broker.end(signal.SIGKILL)


def run(group):
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
        future.result(30)
    truth = Truth(group.bootstrap)
    group.start("one")
    truth.write(70)
    truth.wait("by one instance")
    group.tool("--list", says=[f"^{GROUP}$"])
    group.tool("--list", "--state", says=[rf"^{GROUP}\s+Stable"])
    group.start("two")
    # Each instance has two threads, and each thread is a member.
    wait_until(lambda: f"not shared: {group.members()}", lambda: len(group.members()) == 4)
    group.tool("--describe", "--group", GROUP, "--members", "--verbose", says=[r"0:\[", r"1:\["])
    group.tool("--describe", "--group", GROUP, says=[rf"^{GROUP}\s+lines\s+\d\s+0\s*$"])
    status, out = group.machine.run(["kafka.admin.ConfigCommand", "--bootstrap-server", group.bootstrap, "--alter", "--entity-type", "groups",
                                     "--entity-name", GROUP, "--add-config", "streams.num.standby.replicas=1"], "")
    assert status == 0, out
    # Counting has as many tasks as `lines` has partitions, joining as many as `meanings`.
    stateful = TOPICS["lines"] + TOPICS["meanings"]
    wait_until(lambda: f"{group.standbys()} of {stateful} states are kept twice", lambda: group.standbys() == stateful)
    truth.write(70)
    truth.wait("by two instances")
    group.tool("--reset-offsets", "--group", GROUP, "--all-input-topics", "--to-earliest", "--dry-run", says=["inactive|Stable"])
    group.tool("--delete", "--group", GROUP, says=["is not EMPTY"])
    group.end("one", kill=True)
    truth.write(70)
    truth.wait("after one was killed")
    wait_until(lambda: f"the killed one is still there: {group.members()}", lambda: len(group.members()) == 2)
    group.end("two")
    group.tool("--describe", "--group", GROUP, "--state", says=[rf"^{GROUP}\s.*\sEmpty\s"])
    group.tool("--delete-offsets", "--group", GROUP, "--input-topic", "meanings", says=[r"^meanings\s+0\s+Successful"])
    out = group.tool("--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-earliest", "--execute")
    assert len(re.findall(rf"^{GROUP}\s+lines\s+\d\s+0\s*$", out, re.MULTILINE)) == TOPICS["lines"], out
    group.tool("--delete", "--group", GROUP, says=["Deletion of requested streams groups .* was successful"])
    assert GROUP not in group.tool("--list"), "the group is still there"
    print(f"{truth.written.total()} words counted and joined once")


if __name__ == "__main__":
    main(sys.argv[1])
