"""One life of a node: random operations of one client, kills, stops, faults of the disk, backups; after each start everything is compared with
the model. All follows from the seed, apart from where exactly a kill strikes."""

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import kafka
import rabbit
from check import Check, ask, body_of, name_of
from driver.broker import Broker
from faulty_disk import FaultyDisk
from model import DONE, GRAVES, LATER, MAYBE, OUT, PENDING, READY, Item, Link, Model, Queue, Record, Topic, Transaction, Violation, insist, some
from operations import SHORT_S, Operations

KIB = 1024
MODES = ["uring", "direct", "buffered"]
ENDS = (rabbit.Gone, rabbit.Late, rabbit.Refused, kafka.Failed, OSError)


class Setting:
    """What kind of node a seed has."""

    def __init__(self, seed, modes, without=()):
        rng = random.Random(f"setting {seed}")
        self.journals = rng.choice([1, 1, 3])
        self.segment = rng.choice([256, 256, 1024, 4096, 16384]) * KIB
        if "small_segments" in without:
            self.segment = max(self.segment, 1024 * KIB)
        self.window = rng.choice([0, 0, 16, 24]) * self.segment if self.segment <= 1024 * KIB else 0
        self.durability = rng.choice(["fsync", "memory"])
        self.faults = rng.random() < 0.4
        self.mode = "buffered" if self.faults else rng.choice(modes)
        self.flush = rng.choice([0, 5, 50])
        self.memory = rng.choice([None, "64MiB"])
        self.shards = rng.choice([1, 2])
        self.operations = rng.choice([12, 25, 50])

    def flags(self):
        settings = {"mainstem.journals": self.journals, "mainstem.segment.bytes": self.segment, "mainstem.queue.ack.flush.ms": self.flush,
                    "mainstem.shards": self.shards, "mainstem.password.iterations": 1000, "log.retention.check.interval.ms": 200,
                    "log.cleaner.backoff.ms": 100, "log.cleaner.min.cleanable.ratio": 0.05, "log.segment.bytes": 64 * KIB,
                    "auto.create.topics.enable": "false", "mainstem.shutdown.timeout.ms": 20_000, "message.max.bytes": 16 << 20,
                    # There is a user, and Kafka clients that do not log in.
                    "mainstem.anonymous.clients": "loopback"}
        if self.window:
            settings["mainstem.journal.window.bytes"] = self.window
        words = ["--io", self.mode, "--durability", self.durability]
        if self.memory:
            words += ["--memory", self.memory]
        for name, value in settings.items():
            words += ["--set", f"{name}={value}"]
        return words

    def __str__(self):
        return (f"{self.journals} journals, segments of {self.segment // KIB} KiB, {f'window of {self.window // KIB} KiB' if self.window else 'no window'}, "
                f"{self.durability}, {self.mode}, {self.memory or 'usual'} memory, {self.operations} operations")


class Life(Operations):
    def __init__(self, binary, seed, scratch, modes, shown=False, without=()):
        self.binary, self.seed, self.scratch, self.shown = binary, seed, Path(scratch), shown
        self.setting = Setting(seed, modes, without)
        self.model, self.without = Model(self.setting.journals), set(without)
        self.history, self.doomed, self.killed, self.fault, self.backups, self.starts = [], None, None, None, 0, 0
        self.disk = FaultyDisk(scratch) if self.setting.faults else None
        self.broker = Broker(binary, f"{scratch}/data", self.setting.flags())
        self.rabbit = self.kafka = None
        self.kept = None

    def say(self, *words):
        line = f"{len(self.history):4} " + " ".join(map(str, words))
        self.history.append(line)
        if self.shown:
            print(line, flush=True)

    # Starts and ends.

    def start(self):
        self.starts += 1
        try:
            self.broker.start(self.disk.prefix if self.disk else ())
        except RuntimeError as error:
            raise Violation(f"it does not start: {error}") from None
        self.connect()

    def connect(self):
        self.rabbit, self.kafka = rabbit.Connection(self.broker.amqp), kafka.Client(self.broker.bootstrap)
        if self.fault:
            self.rabbit.patience = self.kafka.patience = SHORT_S
        self.held, self.publisher = [], self.rabbit.channel(confirms=True)

    def disconnect(self):
        for one in (self.rabbit, self.kafka):
            if one is not None:
                one.drop() if isinstance(one, rabbit.Connection) else one.close()
        self.rabbit = self.kafka = None
        self.model.connection_lost()

    def stop(self, number):
        """Ends it, if it does not end already."""
        if self.doomed is not None:
            self.doomed.cancel()
            self.doomed.join()
            self.doomed = None
        at = time.monotonic()
        ended = self.broker.process.poll() is not None
        if ended:
            status = self.broker.process.returncode
            insist(status == -signal.SIGKILL and self.killed, "it has ended by itself with status", status, self.broker.log_lines()[-3:])
        status = self.broker.end(number)
        killed = number == signal.SIGKILL or bool(self.killed)
        insist(status in (0, -signal.SIGKILL), "it ends with status", status)
        insist(killed or status == 0, "it ends with status", status)
        at, self.killed = self.killed or at, None
        self.disconnect()
        if self.disk:
            self.disk.heal()
        if self.fault is not None:
            # What a consumer has said since then is perhaps not on the disk.
            killed, at = True, min(at, self.fault)
        self.fault = None
        self.model.restarted(killed, at)
        for transaction in self.model.transactions.values():
            transaction.interrupted = True
        return killed

    def restart(self, number):
        killed = self.stop(number)
        self.verify(self.broker.folder)
        again = self.rng.random()
        if again < 0.25:
            # Two starts in a row, the first of which nobody uses.
            self.start()
            if self.rng.random() < 0.5:
                time.sleep(self.rng.random() * 0.2)
            number = self.rng.choice([signal.SIGKILL, signal.SIGTERM])
            self.say("starts, and ends at once with", number.name)
            killed = self.stop(number) or killed
        self.start()
        self.compare(self.broker, self.model)

    def compare(self, broker, model):
        check = Check(broker, model, self.without)
        try:
            self.settle_transactions(check, model)
            check.everything()
            check.balanced()
        except ENDS as error:
            raise Violation(f"after a start: {type(error).__name__} {error}") from error
        finally:
            check.close()

    def settle_transactions(self, check, model):
        """A transaction of which the last answer has not come is begun anew, so that it ends."""
        for transaction in model.transactions.values():
            if transaction.unsure:
                check.kafka.begin(transaction)
                model.ended(transaction, None if transaction.unsure == "end" else False)
                transaction.unsure = False

    def verify(self, folder):
        words = [self.binary, "journal", "verify", "--data", folder]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
        insist(done.returncode == 0, "journal verify: status", done.returncode, (done.stdout + done.stderr)[-300:])

    def doom(self, after):
        """It is killed that much later, whatever it does then."""
        process = self.broker.process

        def strike():
            self.killed = time.monotonic()
            process.kill()
        self.doomed = threading.Timer(after, strike)
        self.doomed.start()

    # A life.

    def live(self):
        self.rng = random.Random(f"{self.seed} start")
        self.start()
        self.prepare()
        for number in range(self.setting.operations):
            self.rng = random.Random(f"{self.seed} {number}")
            self.step(self.choose())
        self.rng = random.Random(f"{self.seed} end")
        self.say("the end")
        self.restart(signal.SIGTERM)
        self.broker.end(signal.SIGTERM)
        self.verify(self.broker.folder)

    def step(self, operation):
        name = operation.__name__
        try:
            operation()
            if self.killed:
                raise rabbit.Gone
        except ENDS as error:
            self.say(f"{name}: {type(error).__name__} {error}")
            if self.killed or self.doomed is not None and isinstance(error, (rabbit.Gone, OSError)):
                self.restart(signal.SIGKILL)
            elif self.fault:
                self.disconnect()
                self.reconnect()
            else:
                raise Violation(f"{name}: {type(error).__name__} {error}") from error

    def reconnect(self):
        try:
            self.connect()
        except ENDS:
            self.say("takes no connections")
            self.restart(signal.SIGKILL)

    def end(self):
        if self.doomed is not None:
            self.doomed.cancel()
            self.doomed.join()
        if self.broker.process is not None:
            self.broker.end(signal.SIGKILL)


def one_life(binary, seed, modes, library, shown=False, keep=None, without=()):
    """(seed, its setting, what was wrong or None, the last operations, seconds)."""
    kafka.fast_checksums(library)
    began = time.time()
    with tempfile.TemporaryDirectory(prefix=f"mainstem-life-{seed}-") as scratch:
        life = Life(binary, seed, scratch, modes, shown, without)
        try:
            life.live()
            return seed, str(life.setting), None, [f"{life.starts} starts"], time.time() - began
        except Exception as failure:
            text = str(failure) if isinstance(failure, Violation) else "".join(traceback.format_exception(failure))
            lines = life.broker.log_lines() if life.broker.process is not None else []
            telling = [line for line in lines if any(word in line for word in ("ERROR", "WARN", "panicked"))][-6:]
            if keep:
                life.end()
                shutil.copytree(scratch, Path(keep, f"life-{seed}"), dirs_exist_ok=True)
            return seed, str(life.setting), text, life.history[-25:] + [f"     log: {line}" for line in telling], time.time() - began
        finally:
            life.end()
