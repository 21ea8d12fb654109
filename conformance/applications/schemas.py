"""What Schema Registry does with its topic of schemas: makes it compacted with one partition, or finds it so; writes keys and values, reads
all of it from the beginning up to a record of its own that says nothing, and builds its tables from that. It is restarted, and the broker
is killed. Arguments: binary."""

import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker

TOPIC = "_schemas"
NOOP = {"keytype": "NOOP", "magic": 0}
PATIENCE = 30


class Store:
    """The tables of one registry: the topic is the truth, and they are read from it."""

    def __init__(self, bootstrap):
        shared = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        self.admin = AdminClient(shared)
        self.producer = Producer({**shared, "acks": "all", "retries": 0, "enable.idempotence": False, "linger.ms": 0})
        self.consumer = Consumer({**shared, "group.id": f"schema-registry-{time.time_ns()}", "enable.auto.commit": False,
                                  "fetch.wait.max.ms": 100, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        self.table, self.at = {}, -1
        self.make_or_verify()
        self.consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self.read_to(self.write_noop())

    def make_or_verify(self):
        topics = self.admin.list_topics(timeout=PATIENCE).topics
        if TOPIC not in topics:
            self.admin.create_topics([NewTopic(TOPIC, 1, 1, config={"cleanup.policy": "compact"})])[TOPIC].result(PATIENCE)
        found = self.admin.list_topics(TOPIC, PATIENCE).topics[TOPIC]
        assert len(found.partitions) == 1, f"{len(found.partitions)} partitions"
        assert all(len(partition.replicas) == 1 for partition in found.partitions.values())
        resource = ConfigResource("topic", TOPIC)
        policy = self.admin.describe_configs([resource])[resource].result(PATIENCE)["cleanup.policy"].value
        assert policy == "compact", f"the retention policy of {TOPIC} is {policy}"

    def write(self, key, value):
        """The offset, when it is acknowledged."""
        done = []
        encoded = None if value is None else json.dumps(value).encode()
        self.producer.produce(TOPIC, encoded, json.dumps(key).encode(), partition=0, on_delivery=lambda *answer: done.append(answer))
        assert self.producer.flush(PATIENCE) == 0
        error, message = done[0]
        if error is not None:
            raise KafkaException(error)
        return message.offset()

    def write_noop(self):
        return self.write(NOOP, None)

    def put(self, key, value):
        """Writes, and waits until the reader has come to it."""
        self.read_to(self.write(key, value))

    def read_to(self, offset):
        deadline = time.time() + PATIENCE
        while self.at < offset:
            assert time.time() < deadline, f"the reader is at {self.at} of {offset}"
            message = self.consumer.poll(0.2)
            if message is not None:
                assert not message.error(), message.error()
                self.see(message)

    def see(self, message):
        assert message.offset() > self.at, f"{message.offset()} after {self.at}"
        self.at = message.offset()
        key = message.key().decode()
        if json.loads(key) == NOOP:
            return
        if message.value() is None:
            self.table.pop(key, None)
        else:
            self.table[key] = json.loads(message.value())

    def close(self):
        self.consumer.close()


def schema(subject, version):
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    text = json.dumps({"type": "record", "name": subject, "fields": [{"name": f"f{number}", "type": "string"} for number in range(version)]})
    return key, {"subject": subject, "version": version, "id": hash((subject, version)) % 100_000, "schema": text, "deleted": False}


def fill(store):
    """Subjects with versions, a setting changed often, versions marked deleted and gone for good."""
    for subject in range(20):
        for version in range(1, 6):
            store.put(*schema(f"subject-{subject}", version))
    for turn in range(50):
        store.put({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": ["BACKWARD", "FULL"][turn % 2]})
    for subject in range(0, 20, 4):
        key, value = schema(f"subject-{subject}", 1)
        store.put(key, {**value, "deleted": True})
        store.put(key, None)
    store.put({"keytype": "DELETE_SUBJECT", "subject": "subject-1", "magic": 0}, {"subject": "subject-1", "version": 5})


def main(binary):
    with tempfile.TemporaryDirectory(prefix="mainstem-schemas-") as scratch:
        broker = Broker(binary, f"{scratch}/data", ["--set", "log.retention.check.interval.ms=500"]).start()
        try:
            first = Store(broker.bootstrap)
            fill(first)
            truth = dict(first.table)
            assert len(truth) == 20 * 5 - 5 + 2, f"{len(truth)} entries"
            second = Store(broker.bootstrap)
            assert second.table == truth, "another registry reads another table"
            broker.end(signal.SIGKILL)
            broker.start()
            third = Store(broker.bootstrap)
            assert third.table == truth, "after a kill of the broker the table is another"
            # Those that went through the kill go on.
            third.put(*schema("later", 1))
            first.read_to(third.at)
            second.read_to(third.at)
            assert first.table == second.table == third.table and len(third.table) == len(truth) + 1
            for store in (first, second, third):
                store.close()
            print(f"{len(truth)} entries read back by three registries, one of them after a kill")
        finally:
            broker.end(signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
