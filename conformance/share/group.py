"""What the programs of this folder share: a broker for share groups, configurations of groups, how far a group is, and the processes
of its members."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

HERE = Path(__file__).resolve().parent
for folder in ("..", "../peers"):
    sys.path.insert(0, str((HERE / folder).resolve()))
from client import Connection
from driver.broker import Broker
from driver.install import CACHE, java_command

LOCK_MS = 2000
# Short locks are for tests; members that were killed are missed soon.
SETTINGS = {"group.share.min.record.lock.duration.ms": 1000, "group.share.min.session.timeout.ms": 3000, "group.share.session.timeout.ms": 5000,
            "group.share.min.heartbeat.interval.ms": 500, "group.share.heartbeat.interval.ms": 1000}


def flags(**more):
    settings = SETTINGS | {name.replace("_", "."): value for name, value in more.items()}
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def create(bootstrap, topics):
    """Topics by name, with their numbers of partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        future.result(30)


def configure(bootstrap, group, **configs):
    wish = [ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=wish)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def producer(bootstrap):
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "reconnect.backoff.max.ms": 200})


def lags(bootstrap, group, topic, partitions):
    """What the group has not done yet, by partition; None where it has not begun."""
    host, port = bootstrap.rsplit(":", 1)
    connection = Connection((host, int(port)))
    try:
        wish = {"group_id": group, "topics": [{"topic_name": topic, "partitions": list(range(partitions))}]}
        connection.request("DescribeShareGroupOffsets", 1, {"groups": [wish]})
        found = connection.response("DescribeShareGroupOffsets", 1)["groups"][0]["topics"][0]["partitions"]
    finally:
        connection.close()
    return {one["partition_index"]: one["lag"] if one["error_code"] == 0 and one["start_offset"] >= 0 else None for one in found}


class Members:
    """Processes of members of a group. What they say goes to files in `folder`."""

    def __init__(self, folder, group, topic, lock_ms):
        self.folder, self.group, self.topic, self.lock_ms = Path(folder), group, topic, lock_ms
        self.running, self.files, self.started = {}, [], 0
        # When a member was killed or told to leave, in µs, and by name of a member when it was killed.
        self.disruptions, self.killed = [], {}

    def start(self, bootstrap, name, client, kind, count):
        self.started += 1
        names = [f"{name}.{self.started}.{number}" for number in range(count)]
        words = [bootstrap, self.group, self.topic, str(self.lock_ms), kind, *names]
        command = java_command("Share", *words) if client == "java" else [str(CACHE / "franz-go"), "share", *words]
        path = self.folder / f"{name}-{self.started}.out"
        self.files.append(path)
        with open(path, "wb") as out, open(path.with_suffix(".err"), "wb") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        process.names = names
        self.running[name] = process

    def disrupt(self, name, number):
        process = self.running.pop(name)
        assert process.poll() is None, f"member {name} ended by itself with status {process.returncode}: {self.complaint()}"
        self.disruptions.append(now())
        if number == signal.SIGKILL:
            self.killed |= dict.fromkeys(process.names, now())
        process.send_signal(number)
        return process

    def complaint(self):
        """The last line of complaint of the member that started last and has one."""
        for path in reversed(self.files):
            lines = path.with_suffix(".err").read_text(errors="replace").strip().splitlines()
            if lines:
                return f"{path.name}: {lines[0]}"
        return "none complained"

    def end(self, number=signal.SIGTERM):
        """Ends all; those that are told to leave have time for it."""
        processes = [self.disrupt(name, number) for name in list(self.running)]
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def now():
    return time.time_ns() // 1000


class Disturber:
    """Kills members, makes them leave, and kills the broker, now and then."""

    def __init__(self, broker, members, roster, kind):
        self.broker, self.members, self.roster, self.kind = broker, members, roster, kind
        self.due, self.broker_kills, self.leaving = time.time() + 4, [], []
        for name in roster:
            self.start(name)

    def start(self, name):
        client, count = self.roster[name]
        self.members.start(self.broker.bootstrap, name, client, self.kind, count)

    def turn(self, ends=False):
        for name, process in list(self.members.running.items()):
            assert process.poll() is None, f"member {name} ended by itself with status {process.returncode}: {self.members.complaint()}"
        missing = [name for name in self.roster if name not in self.members.running]
        if ends:
            for name in missing:
                self.start(name)
            return
        if time.time() < self.due:
            return
        self.due = time.time() + random.uniform(0.5, 2)
        # The broker is the first, so that it is killed however short the run is.
        first = self.broker.binary and not self.broker_kills
        if missing and random.random() < 0.7:
            self.start(random.choice(missing))
        elif not first and (not self.broker.binary or random.random() < 0.6 and self.members.running):
            name = random.choice(list(self.members.running))
            self.leaving.append(self.members.disrupt(name, random.choice([signal.SIGKILL, signal.SIGTERM])))
        else:
            self.broker.end(signal.SIGKILL)
            self.broker_kills.append(now())
            self.broker.start()

    def wait_for_leavers(self):
        for process in self.leaving:
            process.wait(30)


class Foreign:
    """A broker that runs already: it is not killed."""

    binary = None

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def end(self, _number):
        pass


def broker_of(where, folder, more=(), **settings):
    """Our binary, with more words on its command line, or a broker that runs at HOST:PORT."""
    if ":" in where:
        return Foreign(where)
    return Broker(where, f"{folder}/data", [*flags(**settings), *more]).start()
