"""The disk of one journal of three fails (`docs/operations/damage.md`, one journal has stopped): writes and flushes below its folder give an
input/output error. Its partitions and queues refuse what comes, each protocol in its own words, what was acknowledged is read, the other journals
go on, and the node says which it is. Where it is the one that keeps the catalog, definitions are refused as what the broker cannot do (500), not as wrong ones. Without the fault, and after that with the journal's folder on another file system, everything that was acknowledged is there
and all is written again. Argument: the binary."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pika
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker
from faulty_disk import FLAGS, FaultyDisk

JOURNALS, FAILING = 3, 1
# Logs go to journals in turn, so that each journal has some of each.
TOPICS = {f"{kind}-{number}": kind for kind in ("fsync", "memory") for number in range(JOURNALS)}
QUEUES = [f"work-{number}" for number in range(JOURNALS)]
STORAGE = "KAFKA_STORAGE_ERROR"


def expect(what, got, wanted):
    if got != wanted:
        raise RuntimeError(f"{what}: {got} instead of {wanted}")


class Records:
    """A producer that tries once; what of it was acknowledged, by topic."""

    def __init__(self):
        self.acknowledged, self.number = {topic: [] for topic in TOPICS}, 0

    def write(self, broker, count):
        """So many records to each topic, one after the other. By topic what came of them: `ok`, or the names of errors."""
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "retries": 0, "message.timeout.ms": 10_000, "log_level": 0})
        outcomes = {topic: set() for topic in TOPICS}

        def told(error, message):
            outcomes[message.topic()].add("ok" if error is None else error.name())
            if error is None:
                self.acknowledged[message.topic()].append(message.value().decode())

        for _ in range(count):
            for topic in TOPICS:
                self.number += 1
                producer.produce(topic, f"{topic} {self.number}", on_delivery=told)
            if producer.flush(20):
                raise RuntimeError("nothing is said of some records")
        return {topic: "ok" if words == {"ok"} else ", ".join(sorted(words)) for topic, words in outcomes.items()}

    def check(self, broker, when):
        """All that was acknowledged is there, once."""
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "check", "enable.partition.eof": True, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0) for topic in TOPICS])
        found, ended, deadline = {topic: [] for topic in TOPICS}, set(), time.time() + 20
        while len(ended) < len(TOPICS):
            if time.time() > deadline:
                raise RuntimeError(f"{when}: {sorted(set(TOPICS) - ended)} are not read to their ends")
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found[message.topic()].append(message.value().decode())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.topic())
                else:
                    raise RuntimeError(f"{when}: {message.error()}")
        consumer.close()
        for topic, words in self.acknowledged.items():
            wrong = [word for word in words if found[topic].count(word) != 1]
            if wrong:
                raise RuntimeError(f"{when}: {len(wrong)} of {len(words)} of {topic} are not there once, like {wrong[:3]}")


class Publisher:
    """Publishes one message with a confirm and notes all that the broker says of it, in order."""

    def __init__(self, broker, queue, body):
        host, port = broker.amqp.rsplit(":", 1)
        self.queue, self.body, self.told = queue, body, []
        self.connection = pika.SelectConnection(
            pika.ConnectionParameters(host, int(port)), on_open_callback=lambda connection: connection.channel(on_open_callback=self.opened),
            on_open_error_callback=self.ended, on_close_callback=self.ended)
        self.connection.ioloop.call_later(10, self.connection.ioloop.stop)
        self.connection.ioloop.start()

    def opened(self, channel):
        channel.confirm_delivery(self.confirmed, callback=lambda _: channel.basic_publish(
            "", self.queue, self.body, pika.BasicProperties(delivery_mode=2)))

    def confirmed(self, frame):
        self.told.append(frame.method.NAME)
        if frame.method.NAME == "Basic.Ack":
            self.connection.close()

    def ended(self, _, reason):
        self.told.append(getattr(reason, "reply_code", repr(reason)))
        self.connection.ioloop.stop()


class Messages:
    """What was confirmed, by queue."""

    def __init__(self):
        self.confirmed, self.number = {queue: [] for queue in QUEUES}, 0

    def publish(self, broker):
        """One to each queue: what was said of it."""
        told = {}
        for queue in QUEUES:
            self.number += 1
            body = f"{queue} {self.number}"
            told[queue] = Publisher(broker, queue, body).told
            if told[queue] == ["Basic.Ack", 200]:
                self.confirmed[queue].append(body)
        return told

    def check(self, broker, when):
        """All that was confirmed is there; it is put back."""
        connection = connect(broker)
        channel = connection.channel()
        for queue, bodies in self.confirmed.items():
            found = []
            while (got := channel.basic_get(queue))[0] is not None:
                found.append(got[2].decode())
            if lost := [body for body in bodies if body not in found]:
                raise RuntimeError(f"{when}: {len(lost)} of {len(bodies)} messages of {queue} are lost, like {lost[:3]}")
        connection.close()


def connect(broker):
    host, port = broker.amqp.rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), socket_timeout=10))


def make(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for topic, kind in TOPICS.items():
        admin.create_topics([NewTopic(topic, 1, config={"mainstem.durability": kind})])[topic].result(10)
    connection = connect(broker)
    for queue in QUEUES:
        connection.channel().queue_declare(queue, durable=True)
    connection.close()


def readiness(broker):
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.admin}/health/ready", timeout=5) as answer:
        return answer.status, answer.read().decode()


def why(broker, *subject):
    """Causes, the first reason in words."""
    command = [str(broker.binary), "why", "--json", "--seconds", "0.1", "--admin", f"127.0.0.1:{broker.admin}", *subject]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise RuntimeError(f"why: status {done.returncode}: {done.stderr[-200:]}")
    reasons = json.loads(done.stdout)["reasons"]
    return [reason["cause"] for reason in reasons], reasons[0]["text"] if reasons else ""


def broken(broker, disk, records, messages):
    """The fault comes while the broker runs. Returns how many topics it has stopped."""
    disk.fail(f"{broker.folder}/journal-{FAILING}")
    first, told = records.write(broker, 1), messages.publish(broker)
    stopped = {topic for topic, outcome in first.items() if outcome != "ok"}
    expect("topics that are refused", {first[topic] for topic in stopped}, {STORAGE})
    expect("kinds of topics that are refused", {TOPICS[topic] for topic in stopped}, set(TOPICS.values()))
    expect("topics of each kind that go on", sorted(TOPICS[topic] for topic in set(TOPICS) - stopped), ["fsync"] * 2 + ["memory"] * 2)
    expect("what is said of messages", sorted(told.values(), key=str), [["Basic.Ack", 200], ["Basic.Ack", 200], ["Basic.Nack", 541]])
    again = records.write(broker, 100)
    expect("the same go on, the same do not", again, {topic: STORAGE if topic in stopped else "ok" for topic in TOPICS})
    records.check(broker, "while the journal has stopped")
    status, said = readiness(broker)
    if status != 200 or not said.startswith(f"degraded: journal {FAILING} ") or "Input/output error" not in said:
        raise RuntimeError(f"/health/ready: {status} {said}")
    if "mainstem_journals_stopped 1" not in broker.metrics():
        raise RuntimeError("mainstem_journals_stopped is not 1")
    for subject in [(), *(("--topic", topic) for topic in TOPICS)]:
        causes, text = why(broker, *subject)
        if not subject or subject[1] in stopped:
            if causes[:1] != ["disk-failed"] or f"journal {FAILING} takes nothing more" not in text or "Input/output error" not in text:
                raise RuntimeError(f"why {' '.join(subject)}: {causes}, {text}")
        elif "disk-failed" in causes:
            raise RuntimeError(f"why {' '.join(subject)} names the disk of another journal: {text}")
    return len(stopped)


def healed(broker, records, messages, when):
    expect(f"{when}: readiness", readiness(broker), (200, "ready\n"))
    records.check(broker, when)
    messages.check(broker, when)
    expect(f"{when}: records", set(records.write(broker, 20).values()), {"ok"})
    expect(f"{when}: messages", set(map(tuple, messages.publish(broker).values())), {("Basic.Ack", 200)})


def move(broker, elsewhere):
    """The journal's folder goes to another disk, a symbolic link stands in its place."""
    old, new = Path(broker.folder, f"journal-{FAILING}"), Path(elsewhere, f"journal-{FAILING}")
    subprocess.run(["cp", "-a", "--sparse=always", str(old), str(new)], check=True)
    shutil.rmtree(old)
    old.symlink_to(new)
    done = subprocess.run([str(broker.binary), "journal", "verify", "--data", broker.folder], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"verify after the move: status {done.returncode}: {(done.stdout + done.stderr)[-300:]}")


def import_definitions(broker, definitions):
    """The status, and what is said."""
    headers = {"Content-Type": "application/json", "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    request = urllib.request.Request(f"http://127.0.0.1:{broker.admin}/api/definitions", json.dumps(definitions).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)["reason"]


def definitions_are_refused(broker, disk):
    """The journal of the catalog fails, which is the last thing here."""
    of = {"vhost": "/", "name": "imported"}
    queue, exchange = {**of, "durable": True, "auto_delete": False, "arguments": {}}, {**of, "type": "fanout", "durable": True, "arguments": {}}
    policy = {**of, "pattern": "^imported", "definition": {"max-length": 5}}
    binding = {"vhost": "/", "source": "amq.topic", "destination": QUEUES[0], "destination_type": "queue", "routing_key": "imported", "arguments": {}}
    sections = {"policies": policy, "exchanges": exchange, "queues": queue, "bindings": binding, "vhosts": {"name": "imported"},
                "global_parameters": {"name": "imported", "value": 1}}
    expect("wrong definitions", import_definitions(broker, {"queues": [{**queue, "vhost": "none"}]})[0], 400)
    disk.fail(f"{broker.folder}/journal-0")
    for section, item in sections.items():
        status, reason = import_definitions(broker, {section: [item]})
        if status != 500 or "journal has stopped after an I/O error" not in reason:
            raise RuntimeError(f"{section} while the journal has stopped: {status} {reason}")
    expect("wrong definitions, still", import_definitions(broker, {"queues": [{**queue, "vhost": "none"}]})[0], 400)
    return len(sections)


def main():
    elsewhere = tempfile.mkdtemp(prefix="mainstem-moved-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    with tempfile.TemporaryDirectory(prefix="mainstem-failed-") as scratch:
        disk = FaultyDisk(scratch)
        broker = Broker(sys.argv[1], f"{scratch}/data", [*FLAGS, "--set", f"mainstem.journals={JOURNALS}"]).start(disk.prefix)
        try:
            make(broker)
            records, messages = Records(), Messages()
            healed(broker, records, messages, "at first")
            stopped = broken(broker, disk, records, messages)
            expect("status when it ends", broker.end(signal.SIGTERM), 0)
            disk.heal()
            broker.start(disk.prefix)
            healed(broker, records, messages, "after a restart")
            expect("status when it ends again", broker.end(signal.SIGTERM), 0)
            move(broker, elsewhere)
            # Where the folder was the disk fails still.
            disk.fail(f"{broker.folder}/journal-{FAILING}")
            broker.start(disk.prefix)
            healed(broker, records, messages, "on another disk")
            count = sum(map(len, records.acknowledged.values())) + sum(map(len, messages.confirmed.values()))
            refused = definitions_are_refused(broker, disk)
            print(f"{stopped} of {len(TOPICS)} topics were refused with {STORAGE}, one of {len(QUEUES)} queues with basic.nack and 541; "
                  f"all {count} acknowledged are there after a restart, and after the journal has moved; {refused} kinds of definitions were refused with 500")
        finally:
            disk.heal()
            broker.end(signal.SIGKILL)
            shutil.rmtree(elsewhere, ignore_errors=True)


main()
