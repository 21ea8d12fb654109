"""Random clients under kill −9, their history, and what is wrong with it. Used by the driver."""

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from driver.broker import Broker
from driver.install import HERE, PYTHON, java_command
from driver.results import call

CHECKER = HERE / "checker"
sys.path.insert(0, str(CHECKER))
import history
from analysis import SLACK, analyse, spell

TIMEOUT = 6  # seconds a transaction may take
ROUND_MAX = 90  # seconds of load whose history is looked at in one piece
VALUES = 10_000_000  # more than a process writes
KEPT = HERE.parent / "target/checker"


def run(results, binary, seconds, missing):
    results.step("the analysis finds each anomaly in histories made by hand", lambda: call(
        [str(PYTHON), str(CHECKER / "test_analysis.py")], cwd=CHECKER))
    with tempfile.TemporaryDirectory(prefix="mainstem-checker-") as scratch:
        flags = ["--set", "mainstem.journals=3", "--set", "group.initial.rebalance.delay.ms=0"]
        broker = Broker(binary, f"{scratch}/data", flags).start()
        try:
            count = max(1, round(seconds / ROUND_MAX))
            for number in range(count):
                one = Round(broker, Path(scratch), number, missing)
                name = f"random clients under kills, round {number + 1} of {count}"
                good = results.step(name, lambda: one.whole(seconds / count))
                if number == 0 and good:
                    results.step("anomalies planted in that history are found", lambda: print("      " + call(
                        [str(PYTHON), str(CHECKER / "planted.py"), str(one.path), str(TIMEOUT)], 600).decode().strip(), flush=True))
                if good:
                    shutil.rmtree(one.folder)
        finally:
            broker.end(signal.SIGKILL)


class Client:
    """A process that is started again when it has ended, under another name."""

    def __init__(self, command):
        self.command, self.process, self.starts, self.complaints = command, None, 0, None

    def running(self):
        return self.process is not None and self.process.poll() is None


class Round:
    """Some clients, topics of their own, kills, and the history."""

    def __init__(self, broker, scratch, number, missing):
        self.broker, self.number = broker, number
        self.folder = scratch / f"round-{number}"
        self.folder.mkdir()
        self.path = self.folder / "whole.history"
        self.topics = {f"checker-{number}-a": 3, f"checker-{number}-b": 2}
        self.values, self.identities, self.kills, self.ends = 0, 0, 0, 0
        self.notes, self.watcher = history.Notes(self.folder, "runner"), None
        self.clients = {name: Client(self.reader(kind)) for name, kind in {
            "assigned-0": "assigned", "assigned-1": "assigned", "range-0": "range", "range-1": "range",
            "sticky-0": "cooperative-sticky", "sticky-1": "cooperative-sticky"}.items()}
        self.clients |= {name: Client(self.writer(kind)) for name, kind in {
            "idempotent": "idempotent", "bare": "bare", "transactional-0": "transactional", "transactional-1": "transactional"}.items()}
        if "java" not in missing:
            self.clients["transactional-java"] = Client(self.writer("java"))

    # How clients are started.

    def words(self):
        return [f"{topic}={count}" for topic, count in self.topics.items()]

    def reader(self, kind):
        return lambda name: [str(PYTHON), str(CHECKER / "readers.py"), kind, self.broker.bootstrap, str(self.folder), name,
                                      f"checker-{self.number}-{kind}", *self.words()]

    def writer(self, kind):
        identity = None

        def command(name):
            nonlocal identity
            # Sometimes nobody comes back for what was open.
            if identity is None or random.random() < 0.3:
                self.identities += 1
                identity = f"checker-{self.number}-{self.identities}"
            self.values += 1
            start = java_command("Transact") if kind == "java" else [str(PYTHON), str(CHECKER / "writers.py"), kind]
            return [*start, self.broker.bootstrap, str(self.folder), name, str(self.values * VALUES), identity, str(TIMEOUT * 1000),
                    *self.words()]
        return command

    def start(self, name, client):
        self.complain(name, client)
        process = f"{name}#{client.starts}"
        client.starts += 1
        with open(self.folder / f"{process}.err", "wb") as complaints:
            client.complaints = Path(complaints.name)
            client.process = subprocess.Popen(client.command(process), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                              stderr=complaints)

    def complain(self, name, client):
        """A client that ended of itself has said why, and it was the broker's doing."""
        # Java's way to end on a signal is a status.
        if client.process is None or client.process.returncode in (0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM):
            return
        said = client.complaints.read_text(errors="replace").strip().splitlines() or ["nothing"]
        assert "KafkaException" in said[-1] or "KafkaError" in said[-1], f"{name} ended with {client.process.returncode}: {said[-1]}"

    # The round.

    def whole(self, seconds):
        self.make_topics()
        try:
            self.load(seconds)
            self.end_clients()
            self.settle()
            call(self.reader("final")("final"), 120)
        finally:
            processes = [client.process for client in self.clients.values() if client.running()]
            for process in [*processes, *([self.watcher] if self.watcher else [])]:
                process.kill()
                process.wait()
        self.judge(seconds)

    def make_topics(self):
        first, second = self.words()
        call([str(PYTHON), str(HERE / "clients/confluent/topics.py"), self.broker.bootstrap, first, f"{second},mainstem.durability=memory"])

    def load(self, seconds):
        began = time.time()
        until, broker_due, client_due, told = began + seconds, began + 5, began + 3, began + 10
        self.watcher = self.watch()
        while time.time() < until:
            for name, client in self.clients.items():
                if not client.running():
                    self.start(name, client)
            if time.time() > client_due:
                client_due = time.time() + random.uniform(0.5, 2.5)
                self.kill_client()
            if time.time() > broker_due:
                broker_due = time.time() + random.uniform(4, 9)
                self.kill_broker()
            if time.time() > told:
                told += 10
                print(f"      {time.time() - began:.0f} of {seconds:.0f} s, {self.kills} clients and {self.ends} times the broker killed",
                      flush=True)
            assert self.watcher.poll() is None, "the watch has ended"
            time.sleep(0.05)

    def watch(self):
        return subprocess.Popen([str(PYTHON), str(CHECKER / "watch.py"), self.broker.bootstrap, str(self.folder), *self.words()])

    def kill_client(self):
        client = random.choice([client for client in self.clients.values() if client.running()])
        client.process.kill()
        client.process.wait()
        self.kills += 1

    def kill_broker(self):
        self.notes.note("down")
        self.broker.end(signal.SIGKILL)
        if random.random() < 0.3:
            time.sleep(random.uniform(0, 2))
        self.broker.start()
        self.notes.note("up")
        self.ends += 1

    def end_clients(self):
        for client in self.clients.values():
            if client.running():
                client.process.terminate()
        for name, client in self.clients.items():
            client.process.wait(60)
            self.complain(name, client)

    def settle(self):
        """Waits until transactions that nobody ends have ended by themselves; the watch goes on, and sees what does not."""
        self.watcher.terminate()
        assert self.watcher.wait(60) == 0, "the watch failed"
        call([str(PYTHON), str(CHECKER / "watch.py"), self.broker.bootstrap, str(self.folder), *self.words(),
              f"until-stable={TIMEOUT + SLACK + 5:.0f}"], 60)

    def judge(self, seconds):
        events = history.load(self.folder)
        history.save(events, self.path)
        count = {kind: sum(event["e"] == kind for event in events) for kind in ("send", "ack", "committed", "aborted", "committed-to")}
        read = sum(len(event["r"]) for event in events if event["e"] == "poll")
        found = analyse(events, TIMEOUT)
        print(f"      {count['send']} values sent, {read} read, {count['committed']} transactions committed, {count['aborted']} aborted, "
              f"{self.kills} clients and {self.ends} times the broker killed", flush=True)
        if found:
            KEPT.mkdir(parents=True, exist_ok=True)
            kept = KEPT / f"{time.strftime('%Y%m%d-%H%M%S')}.history"
            shutil.copy(self.path, kept)
            raise AssertionError(f"{spell(found)}; the history is {kept.relative_to(HERE.parent)}")
        if seconds > 20:
            least = {"ack": 1000, "committed": 50, "aborted": 5, "committed-to": 50}
            few = {kind: count[kind] for kind, number in least.items() if count[kind] < number}
            assert not few and self.ends > 1 and self.kills > 5, f"too little happened for anything to be shown: {count}"
