"""A worker of Kafka Connect, distributed: a file becomes a topic, exactly once, and the topic a file, while worker and broker are
killed. Its three internal topics are compacted. Arguments: binary."""

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker, free_port
from driver.install import java_command

LINES = 3000
TOPIC = "connect-lines"
INTERNAL = {"connect-configs": 1, "connect-offsets": 3, "connect-status": 2}
PATIENCE = 60


class Worker:
    """The process, its settings, and its REST interface."""

    def __init__(self, scratch, bootstrap):
        self.settings, self.process = scratch / "worker.properties", None
        self.log = open(scratch / "worker.log", "ab")
        self.rest = f"http://127.0.0.1:{free_port()}"
        kinds = {"config": "connect-configs", "offset": "connect-offsets", "status": "connect-status"}
        rows = {
            "bootstrap.servers": bootstrap, "group.id": "connect", "listeners": self.rest, "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **{f"{kind}.storage.topic": topic for kind, topic in kinds.items()},
            **{f"{kind}.storage.replication.factor": 1 for kind in kinds},
            "offset.storage.partitions": INTERNAL["connect-offsets"], "status.storage.partitions": INTERNAL["connect-status"],
            "exactly.once.source.support": "enabled", "offset.flush.interval.ms": 500, "scheduled.rebalance.max.delay.ms": 0,
            "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000, "rebalance.timeout.ms": 10000,
            "consumer.isolation.level": "read_committed", "consumer.session.timeout.ms": 6000,
        }
        self.settings.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))

    def start(self):
        command = java_command("org.apache.kafka.connect.cli.ConnectDistributed", str(self.settings))
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until("the worker answers", lambda: self.ask("GET", "/connectors") is not None, self)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, method, path, body=None):
        """The answer; None while the worker is not in a position to give one."""
        request = urllib.request.Request(self.rest + path, method=method, headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            assert error.code in (404, 409, 500, 503), f"{path}: {error.code} {error.read()[:200]}"
        except OSError:
            pass
        return None

    def connector(self, name, **settings):
        until(f"connector {name} is taken", lambda: self.ask("PUT", f"/connectors/{name}/config", settings) is not None, self)

    def runs(self, name):
        state = self.ask("GET", f"/connectors/{name}/status") or {"tasks": []}
        failed = [task["trace"].splitlines()[0] for task in state["tasks"] if task["state"] == "FAILED"]
        assert not failed, f"a task of {name} failed: {failed[0]}"
        return [task["state"] for task in state["tasks"]] == ["RUNNING"]


def until(what, holds, worker=None):
    deadline = time.time() + PATIENCE
    while not holds():
        assert worker is None or worker.process.poll() is None, f"the worker ended before {what}"
        assert time.time() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.1)


def write(path, first, last):
    with open(path, "a") as file:
        for number in range(first, last):
            file.write(f"line {number}\n")


def copied(path):
    """The lines that are whole."""
    return path.read_text().splitlines() if path.exists() else []


def in_topic(bootstrap, count):
    """What the topic holds for readers of committed records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values, deadline, quiet = [], time.time() + 20, 0
    # Whatever comes twice would come after the last.
    while time.time() < deadline and quiet < 2:
        messages = [message for message in consumer.consume(1000, 0.5) if not message.error()]
        values.extend(message.value().decode() for message in messages)
        quiet = quiet + 1 if len(values) >= count and not messages else 0
    consumer.close()
    return values


def policies(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.describe_configs([ConfigResource("topic", name) for name in INTERNAL])
    return {resource.name: future.result(20)["cleanup.policy"].value for resource, future in asked.items()}


def work(scratch, broker, worker):
    source, sink = scratch / "source.txt", scratch / "sink.txt"
    write(source, 0, LINES // 3)
    worker.start()
    worker.connector("source", **{"connector.class": "FileStreamSource", "file": str(source), "topic": TOPIC, "tasks.max": "1",
                                  "exactly.once.support": "required"})
    worker.connector("sink", **{"connector.class": "FileStreamSink", "file": str(sink), "topics": TOPIC, "tasks.max": "1"})
    until("the first lines are copied", lambda: len(copied(sink)) == LINES // 3, worker)
    assert copied(sink) == copied(source), "the copy differs, and nothing was killed yet"
    assert policies(broker.bootstrap) == dict.fromkeys(INTERNAL, "compact"), f"internal topics are {policies(broker.bootstrap)}"

    write(source, LINES // 3, LINES // 2)
    broker.end(signal.SIGKILL)
    broker.start()
    write(source, LINES // 2, LINES * 2 // 3)
    until("the worker goes on after the broker's kill", lambda: len(set(copied(sink))) == LINES * 2 // 3, worker)
    write(source, LINES * 2 // 3, LINES * 5 // 6)
    worker.kill()
    write(source, LINES * 5 // 6, LINES)
    worker.start()
    until("all lines are copied", lambda: len(set(copied(sink))) == LINES, worker)
    assert worker.runs("source") and worker.runs("sink"), "a connector does not run any more"

    wanted, found = copied(source), in_topic(broker.bootstrap, LINES)
    assert found == wanted, f"the topic holds {len(found)} lines of {len(wanted)}, {len(set(found))} different"
    # A file sink may write again what it had not committed when it was killed.
    assert list(dict.fromkeys(copied(sink))) == wanted, "the copy differs"
    return len(copied(sink)) - LINES


def main(binary):
    with tempfile.TemporaryDirectory(prefix="mainstem-connect-") as folder:
        scratch = Path(folder)
        broker = Broker(binary, f"{folder}/data", ["--set", "group.initial.rebalance.delay.ms=0"]).start()
        worker = Worker(scratch, broker.bootstrap)
        try:
            again = work(scratch, broker, worker)
            print(f"{LINES} lines copied from a file to a topic once and on to a file, {again} of them again after a kill")
        except BaseException:
            print("\n".join((scratch / "worker.log").read_text(errors="replace").splitlines()[-15:]))
            raise
        finally:
            if worker.process:
                worker.kill()
            worker.log.close()
            broker.end(signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
