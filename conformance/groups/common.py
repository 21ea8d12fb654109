"""What the programs of this folder share: members as processes, a load, and what must hold of a group in the end."""

import functools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.install import HERE, PYTHON, java_command

PARTITIONS = 6
# Short times, so that who is killed is missed soon.
FLAGS = [word for setting in ("group.initial.rebalance.delay.ms=0", "group.consumer.min.session.timeout.ms=1000",
                              "group.consumer.session.timeout.ms=5000", "group.consumer.min.heartbeat.interval.ms=100",
                              "group.consumer.heartbeat.interval.ms=400", "group.consumer.assignment.interval.ms=200")
         for word in ("--set", setting)]


class Member:
    """A process in a group; what it has and what it has read, by its own words."""

    def __init__(self, kind, bootstrap, topic, group, protocol):
        if kind == "java":
            session = ["--session-timeout", "6000"] if protocol == "classic" else []
            command = java_command("org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group,
                                   "--group-protocol", protocol, "--reset-policy", "earliest", *session)
        else:
            command = [str(PYTHON), str(HERE / "groups/member.py"), bootstrap, topic, group, protocol]
        self.kind, self.protocol, self.has, self.read = kind, protocol, set(), [set() for _ in range(PARTITIONS)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.reader = threading.Thread(target=self.listen)
        self.reader.start()

    def listen(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of a killed process
            found = {part["partition"] for part in event.get("partitions", ()) if "partition" in part}
            if event["name"] == "partitions_assigned":
                self.has |= found
            elif event["name"] == "partitions_revoked":
                self.has -= found
            elif event["name"] == "records_consumed":
                for part in event["partitions"]:
                    self.read[part["partition"]].update(range(part["minOffset"], part["maxOffset"] + 1))

    def end(self, kill=False):
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(60)
        self.reader.join(60)
        self.has = set()
        return self


class Load:
    """Writes to a topic until it is ended; the ends of the partitions count."""

    def __init__(self, bootstrap, topic):
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 500})
        self.topic, self.ended, self.failures = topic, False, []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        count = 0
        while not self.ended:
            # Not while the broker is away: what waits is bounded.
            for _ in range(20 if len(self.producer) < 10_000 else 0):
                self.producer.produce(self.topic, b"%d" % count, partition=count % PARTITIONS,
                                      on_delivery=lambda error, _: error and self.failures.append(error))
                count += 1
            self.producer.poll(0.02)
            time.sleep(0.01)

    def end(self):
        self.ended = True
        self.thread.join()
        assert self.producer.flush(60) == 0 and not self.failures, self.failures[:3]


@functools.cache
def admin(bootstrap):
    """Lives as long as its answers are awaited."""
    return AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500})


def create(bootstrap, topic):
    admin(bootstrap).create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


def kind_of(bootstrap, group):
    """The type of a group as it is listed: classic or consumer."""
    for found in admin(bootstrap).list_consumer_groups(request_timeout=20).result(30).valid:
        if found.group_id == group:
            return found.type.name.lower()
    return None


def wait_until(what, happened, seconds=60):
    deadline = time.time() + seconds
    while not happened():
        assert time.time() < deadline, what()
        time.sleep(0.1)


def wait_until_shared(members, why):
    """Everybody has something, nobody has what somebody else has, and all is somebody's."""
    def shared():
        held = [one for member in members for one in member.has]
        return len(held) == PARTITIONS and len(set(held)) == PARTITIONS and all(member.has for member in members)
    wait_until(lambda: f"not shared {why}: {[(member.kind, member.protocol, sorted(member.has)) for member in members]}", shared)


def check_read(bootstrap, topic, group, everybody):
    """Each record was read by somebody, and the group's committed positions are the ends."""
    probe = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    ends = [probe.get_watermark_offsets(TopicPartition(topic, at), 20)[1] for at in range(PARTITIONS)]
    probe.close()
    assert sum(ends) > 0, "nothing was written"

    def left():
        seen = [set().union(*(member.read[at] for member in everybody)) for at in range(PARTITIONS)]
        return sum(len(set(range(end)) - part) for end, part in zip(ends, seen))
    wait_until(lambda: f"{left()} of {sum(ends)} records were not read", lambda: left() == 0)
    positions = {}

    def committed():
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, at) for at in range(PARTITIONS)])
        found = admin(bootstrap).list_consumer_group_offsets([asked], request_timeout=20)[group].result(30)
        positions.update({part.partition: part.offset for part in found.topic_partitions})
        return [positions.get(at) for at in range(PARTITIONS)] == ends
    wait_until(lambda: f"committed is {positions}, the ends are {ends}", committed)
    return sum(ends)
