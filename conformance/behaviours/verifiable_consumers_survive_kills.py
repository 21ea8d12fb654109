"""Kafka's VerifiableProducer writes while three VerifiableConsumers share the topic and one of them is killed and started again
every few seconds: nothing acknowledged is lost, the idempotent producer leaves no duplicate, every rebalance ends.
Arguments: bootstrap, seconds."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.install import java_command

PARTITIONS = 6
SESSION_MS = 6000

bootstrap, seconds = sys.argv[1], float(sys.argv[2])
topic = f"verifiable-{time.time_ns()}"


class Tool:
    """A tool of Kafka's that prints one JSON object a line."""

    def __init__(self, name, *arguments):
        command = java_command(f"org.apache.kafka.tools.{name}", "--bootstrap-server", bootstrap, "--topic", topic, *arguments)
        self.events, self.assigned = [], None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of a killed process
            self.events.append(event)
            if event["name"] == "partitions_assigned":
                self.assigned = len(event["partitions"])
            elif event["name"] == "partitions_revoked":
                self.assigned = None

    def end(self, kill):
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(60)
        self.reader.join(60)
        return self.events


def consumer():
    return Tool("VerifiableConsumer", "--group-id", topic, "--session-timeout", str(SESSION_MS), "--reset-policy", "earliest")


def wait_until_shared(members, why):
    deadline = time.time() + 60
    while sum(member.assigned or 0 for member in members) != PARTITIONS or any(m.assigned is None for m in members):
        assert time.time() < deadline, f"no end of the rebalance {why}: {[member.assigned for member in members]}"
        time.sleep(0.05)


def offsets_consumed(events):
    for event in events:
        if event["name"] == "records_consumed":
            for part in event["partitions"]:
                yield part["partition"], part["minOffset"], part["maxOffset"]


admin = AdminClient({"bootstrap.servers": bootstrap})
admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
producer = Tool("VerifiableProducer", "--throughput", "2000", "--acks", "-1")
members, ended = [consumer() for _ in range(3)], []
kills, until = 0, time.time() + seconds
wait_until_shared(members, "at the start")
while time.time() < until:
    victim = kills % 3
    ended.append(members[victim].end(kill=True))
    time.sleep(0.5)
    members[victim] = consumer()
    kills += 1
    wait_until_shared(members, f"after kill {kills}")
    time.sleep(2)
sent = producer.end(kill=False)
acknowledged = {(e["partition"], e["offset"]): int(e["value"]) for e in sent if e["name"] == "producer_send_success"}
assert acknowledged and not [e for e in sent if e["name"] == "producer_send_error"], "the producer had errors, or sent nothing"

# What is in the log: each number once, at the place that was acknowledged.
reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"})
ends = [reader.get_watermark_offsets(TopicPartition(topic, partition), 20)[1] for partition in range(PARTITIONS)]
reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
found, deadline = {}, time.time() + 120
while len(found) < sum(ends):
    assert time.time() < deadline, f"only {len(found)} of {sum(ends)} records came"
    for message in reader.consume(min(5000, sum(ends) - len(found)), 1.0):
        assert not message.error(), message.error()
        found[message.partition(), message.offset()] = int(message.value())
reader.close()
wrong = [place for place, number in acknowledged.items() if found.get(place) != number]
assert not wrong, f"{len(wrong)} acknowledged records are not where they were written, the first at {wrong[0]}"
assert len(set(found.values())) == len(found), f"{len(found) - len(set(found.values()))} records are there twice"

# The group gets to the end, and has missed nothing.
deadline = time.time() + 60
while True:
    events = [event for each in [*ended, *(member.events for member in members)] for event in list(each)]
    seen = [set() for _ in range(PARTITIONS)]
    for partition, first, last in offsets_consumed(events):
        seen[partition].update(range(first, last + 1))
    left = sum(end - len(part & set(range(end))) for end, part in zip(ends, seen))
    if left == 0:
        break
    assert time.time() < deadline, f"the group has not read {left} of {sum(ends)} records"
    time.sleep(0.5)
for member in members:
    member.end(kill=False)
print(f"{len(acknowledged)} acknowledged records, {kills} consumers killed")
