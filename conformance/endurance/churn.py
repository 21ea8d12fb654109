"""Churn: connections, channels, queues, topics, groups, transactions, policies and users are made and dropped by the thousands, a topic is overwritten, a
consumer keeps one message for ever, descriptors run short, and a small disk is filled and emptied, cycle after cycle. What a node uses has to
settle: resident memory, descriptors, threads, series of `/metrics`, and what its files take beside what is live in them, each compared between cycles.
Arguments: the binary, `--minutes` (2). Prints `N passed, N failed`. The small disk is a tmpfs, which needs root; elsewhere that part is left out by name."""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent / "lives"), str(HERE.parent)]
import kafka
import rabbit
from check import ask
from driver.broker import Broker
from driver.results import Results
from model import Transaction

MIB = 1 << 20
SEGMENT, JOURNALS, DESCRIPTORS = 1 * MIB, 2, 400
SETTLE_S = 60
FLAGS = {"mainstem.segment.bytes": SEGMENT, "mainstem.journals": JOURNALS, "log.retention.check.interval.ms": 300, "log.cleaner.backoff.ms": 200,
         "log.segment.bytes": 256 << 10, "producer.id.expiration.ms": 3000, "transactional.id.expiration.ms": 3000, "mainstem.password.iterations": 1000,
         # There is a user, and Kafka clients that do not log in.
         "auto.create.topics.enable": "false", "mainstem.anonymous.clients": "loopback"}
# Of the part that comes last, how much more than of the part before: memory, of allocators that keep pages, and what comes and goes by chance.
MEMORY_GROWTH, MEMORY_SLACK_MIB = 1.10, 12


class Wrong(Exception):
    pass


def insist(true, *words):
    if not true:
        raise Wrong(" ".join(map(str, words)))


def words_of(settings):
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


class Node:
    """A broker, its clients, and what it uses."""

    def __init__(self, binary, folder, settings, prefix=(), memory="256MiB"):
        self.broker, self.prefix = Broker(binary, folder, ["--memory", memory, *words_of(settings)]), prefix
        self.start()
        ask(self.broker, "PUT", "/api/users/guest", {"password": "guest", "tags": "administrator"})
        ask(self.broker, "PUT", "/api/permissions/%2F/guest", {"configure": ".*", "write": ".*", "read": ".*"})

    def start(self):
        self.broker.start(self.prefix)
        self.connect()

    def connect(self):
        self.rabbit, self.kafka = rabbit.Connection(self.broker.amqp), kafka.Client(self.broker.bootstrap)

    @property
    def process(self):
        return Path(f"/proc/{self.broker.process.pid}")

    def resident_mib(self):
        return int((self.process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB

    def descriptors(self):
        """Without those of the journals' files, which are as many as there is data."""
        count = 0
        for number in os.listdir(self.process / "fd"):
            try:
                count += not os.readlink(self.process / "fd" / number).startswith(f"{self.broker.folder}/")
            except FileNotFoundError:
                pass
        return count

    def threads(self):
        return len(os.listdir(self.process / "task"))

    def series(self):
        """Names and labels, without numbers."""
        return {line.rsplit(" ", 1)[0] for line in self.broker.metrics().splitlines() if line and not line.startswith("#")}

    def value(self, name):
        return sum(float(line.split()[-1]) for line in self.broker.metrics().splitlines() if line.split("{")[0].split(" ")[0] == name)

    def files_mib(self):
        total = 0
        for folder, _, names in os.walk(self.broker.folder):
            for name in names:
                try:
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
                except FileNotFoundError:
                    pass
        return total / MIB

    def publish(self, queue, count, size, exchange=""):
        channel = self.rabbit.channel(confirms=True)
        for _ in range(count):
            channel.publish(exchange, queue, os.urandom(size))
        channel.confirms()
        nacked = len(channel.nacked)
        channel.close()
        return nacked


class Churn:
    """What is done in a cycle. Nothing of it is there afterwards but what the first cycle has made."""

    def __init__(self, node, seed):
        self.node, self.random, self.number, self.counts = node, random.Random(seed), 0, {}
        node.kafka.create("kept", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
        node.kafka.create("short", 1, {"retention.bytes": str(MIB)})
        channel = node.rabbit.channel()
        channel.call("queue.declare", queue="stuck", durable=True)
        channel.close()
        node.publish("stuck", 1, 100)
        self.holder = node.rabbit.channel()
        insist(len(self.holder.get_all("stuck", 1)) == 1, "the message that is kept has not come")

    def cycle(self, wide=1.0):
        self.number += 1
        for work in (self.connections, self.queues, self.topics, self.groups, self.transactions, self.administration, self.overwritten, self.stuck):
            work(max(1, round(100 * wide)))

    def count(self, what, how_many):
        self.counts[what] = self.counts.get(what, 0) + how_many

    def connections(self, size):
        for _ in range(4):
            links = []
            for _ in range(size // 4):
                link = rabbit.Connection(self.node.broker.amqp)
                for _ in range(5):
                    link.channel()
                links.append(link)
            clients = [kafka.Client(self.node.broker.bootstrap) for _ in range(size // 8)]
            for client in clients:
                client.topics()
                client.close()
            for link in links:
                link.close() if self.random.random() < 0.5 else link.drop()
            self.count("connections", len(links) + len(clients))
            self.count("channels", 5 * len(links))

    def queues(self, size):
        own = rabbit.Connection(self.node.broker.amqp)
        channel, other = own.channel(), self.node.rabbit.channel(confirms=True)
        channel.call("exchange.declare", exchange="churn", type="topic", durable=True)
        for number in range(size):
            name = f"churn-{number}"
            kind = number % 4
            arguments = {"x-queue-type": "quorum"} if kind == 0 else {"x-max-length": 5} if kind == 1 else {}
            channel.call("queue.declare", queue=name, durable=True, exclusive=kind == 3, auto_delete=False, arguments=arguments)
            if kind != 3:
                channel.call("queue.bind", queue=name, exchange="churn", routing_key=f"a.{number}.*")
                for _ in range(10):
                    other.publish("", name, os.urandom(200))
        other.confirms()
        for number in range(size):
            if number % 4 != 3:
                channel.call("basic.consume", queue=f"churn-{number}", consumer_tag=f"c{number}", no_ack=True)
                channel.call("queue.delete", queue=f"churn-{number}")
        channel.call("exchange.delete", exchange="churn")
        own.close()
        other.close()
        self.count("queues", size)

    def topics(self, size):
        for number in range(size // 4):
            name = f"churn-topic-{number}"
            self.node.kafka.create(name, 3, {})
            for partition in range(3):
                self.node.kafka.produce(name, partition, [(None, os.urandom(2000))] * 10)
        for number in range(size // 4):
            self.node.kafka.delete(f"churn-topic-{number}")
        self.count("topics", size // 4)

    def groups(self, size):
        names = [f"churn-group-{self.number}-{number}" for number in range(size)]
        for name in names:
            self.node.kafka.commit_offset(name, "kept", 0, 1)
        answer = self.node.kafka.ask("DeleteGroups", 1, groups_names=names)
        wrong = [one for one in answer["results"] if one["error_code"]]
        insist(not wrong, "groups are not deleted:", wrong[:2])
        self.count("groups", size)

    def transactions(self, size):
        for number in range(size // 4):
            transaction = Transaction(f"churn-tx-{self.number}-{number}")
            self.node.kafka.begin(transaction)
            self.node.kafka.add(transaction, "short", 0)
            self.node.kafka.produce("short", 0, [(None, os.urandom(1000))], transaction)
            self.node.kafka.finish(transaction, number % 3 != 0)
        self.count("transactions", size // 4)

    def administration(self, size):
        for number in range(size // 10):
            ask(self.node.broker, "PUT", f"/api/policies/%2F/churn-{number}", {"pattern": f"^churn-{number}$", "definition": {"max-length": 3}, "apply-to": "queues"})
            ask(self.node.broker, "PUT", f"/api/users/churn-{number}", {"password": "a", "tags": ""})
            ask(self.node.broker, "PUT", f"/api/vhosts/churn-{number}", {})
        for number in range(size // 10):
            ask(self.node.broker, "DELETE", f"/api/policies/%2F/churn-{number}")
            ask(self.node.broker, "DELETE", f"/api/users/churn-{number}")
            ask(self.node.broker, "DELETE", f"/api/vhosts/churn-{number}")
        self.count("policies, users and virtual hosts", 3 * (size // 10))

    def overwritten(self, size):
        for _ in range(size // 4):
            self.node.kafka.produce("kept", 0, [(b"key-%d" % number, os.urandom(500)) for number in range(40)])
            self.node.kafka.produce("short", 0, [(None, os.urandom(20_000))] * 4)
        self.count("records", 44 * (size // 4))

    def stuck(self, size):
        """One message is never acknowledged; what is published behind it is consumed."""
        self.node.publish("stuck", size * 2, 10_000)
        channel = self.node.rabbit.channel()
        found = channel.get_all("stuck", size * 2)
        insist(len(found) == size * 2, f"{len(found)} messages of {size * 2} come behind one that is kept")
        channel.send("basic.ack", delivery_tag=found[-1].tag, multiple=True)
        channel.close()
        self.count("messages", size * 2)


def few_descriptors(node):
    """Idle connections take all descriptors while somebody writes; afterwards it writes as before."""
    client, idle, failed, stop = kafka.Client(node.broker.bootstrap), [], [], threading.Event()

    def produce():
        while not stop.is_set():
            try:
                client.produce("short", 0, [(None, os.urandom(100_000))])
            except (kafka.Failed, rabbit.Gone, rabbit.Late) as error:
                failed.append(str(error) or type(error).__name__)
                return
    writer = threading.Thread(target=produce, daemon=True)
    writer.start()
    host, port = node.broker.amqp.rsplit(":", 1)
    try:
        for _ in range(DESCRIPTORS + 100):
            try:
                idle.append(socket.create_connection((host, int(port)), timeout=5))
            except OSError:
                break
        time.sleep(2)
    finally:
        for one in idle:
            one.close()
        stop.set()
    writer.join(60)
    # What was there before may have been refused meanwhile, and nothing else.
    until = time.monotonic() + 30
    while True:
        try:
            again = kafka.Client(node.broker.bootstrap)
            for _ in range(30):
                again.produce("short", 0, [(None, os.urandom(100_000))])
            again.close()
            break
        except (kafka.Failed, rabbit.Gone, rabbit.Late, OSError) as error:
            insist(time.monotonic() < until, f"after a lack of descriptors nothing can be written for 30 s: {type(error).__name__} {error}")
            time.sleep(0.5)
    insist(node.value("mainstem_journals_stopped") == 0, "a journal has stopped")
    node.rabbit.drop()
    until = time.monotonic() + 30
    while True:
        try:
            return node.connect()
        except rabbit.Gone:
            insist(time.monotonic() < until, "after a lack of descriptors nobody can connect for 30 s")
            time.sleep(0.1)


def quiet(node, what, true):
    """Waits until it is so."""
    until, seen = time.monotonic() + SETTLE_S, None
    while True:
        seen = true()
        if seen is None:
            return
        insist(time.monotonic() < until, f"{what}: {seen}, {SETTLE_S} s after the last work")
        time.sleep(0.5)


def churned(results, binary, scratch, seconds):
    node = Node(binary, f"{scratch}/data", FLAGS, ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"])
    try:
        churn = Churn(node, 1)
        began, samples = time.time(), []
        while time.time() < began + seconds or len(samples) < 6:
            churn.cycle()
            if churn.number % 4 == 2:
                churn.holder = None
                few_descriptors(node)
                churn.holder = node.rabbit.channel()
                insist(len(churn.holder.get_all("stuck", 1)) == 1, "the message that is kept has not come again")
            time.sleep(0.3)
            samples.append({"resident MiB": node.resident_mib(), "descriptors": node.descriptors(), "threads": node.threads(), "series": len(node.series())})
        third = max(1, len(samples) // 3)
        middle, last = samples[third:-third], samples[-third:]
        most = {name: (max(one[name] for one in middle), max(one[name] for one in last)) for name in samples[0]}
        made = ", ".join(f"{count:,} {what}" for what, count in churn.counts.items())
        print(f"      {len(samples)} cycles: {made}", flush=True)
        print("      most in the middle third and in the last: " + ", ".join(f"{name} {before:.0f} and {after:.0f}" for name, (before, after) in most.items()), flush=True)
        before, after = most["resident MiB"]
        results.note("resident memory settles", None if after <= before * MEMORY_GROWTH + MEMORY_SLACK_MIB else f"{before:.0f} MiB, then {after:.0f}")
        for name, slack in (("descriptors", 8), ("threads", 2), ("series", 0)):
            before, after = most[name]
            results.note(f"{name} settle", None if after <= before + slack else f"{before:.0f}, then {after:.0f}")
        files(results, node)
        imbalance(results, node)
        node.broker.end(signal.SIGTERM)
        node.start()
        results.note("it starts again, and what was deleted is gone", gone(node))
    finally:
        node.broker.end(signal.SIGKILL)


def files(results, node):
    def still_too_much():
        live, there = node.value("mainstem_live_bytes") / MIB, node.files_mib()
        bound = 2 * live + 4 * JOURNALS * SEGMENT / MIB + 4
        return None if there <= bound else f"{there:.1f} MiB of files, {live:.1f} MiB are live, {bound:.1f} are allowed"
    results.step("files are at most twice what is live, and four segments a journal", lambda: quiet(node, "files", still_too_much))
    # What there is: the newest of each key, the last MiB of a topic, one message.
    bound = 2 * JOURNALS * 4 * SEGMENT / MIB + 16

    def still_more():
        there = node.files_mib()
        return None if there <= bound else f"{there:.1f} MiB of files, {bound:.0f} are allowed"
    results.step("one message that nobody acknowledges keeps nothing else on the disk", lambda: quiet(node, "files", still_more))


def imbalance(results, node):
    results.note("counts of queues are balanced", None if node.value("mainstem_queue_imbalance") == 0 else "mainstem_queue_imbalance is not 0")


def gone(node):
    topics = {name for name in node.kafka.topics() if name.startswith("churn")}
    queues = {one["name"] for one in ask(node.broker, "GET", "/api/queues") if one["name"].startswith("churn")}
    policies = ask(node.broker, "GET", "/api/policies")
    left = [*sorted(topics | queues)[:3], *[one["name"] for one in policies][:3]]
    return f"there are {left}" if left else None


# Records of 20,000 bytes that stay on the small disk.
KEPT_MAX = 1000


def small_disk(results, binary, scratch, seconds):
    """Two topics are filled side by side until they are refused, the larger one is deleted, and it has to go on. Of the other one the older half is deleted
    where it takes a fifth of the disk: else it fills the disk by itself in the end."""
    disk = f"{scratch}/disk"
    os.mkdir(disk)
    size = 96
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", disk], capture_output=True).returncode != 0:
        print("      no tmpfs can be mounted here: a disk that is full is left out", flush=True)
        return
    node = None
    try:
        node = Node(binary, f"{disk}/data", {"mainstem.segment.bytes": 4 * MIB, "auto.create.topics.enable": "false", "mainstem.password.iterations": 1000})
        began, cycles, slowest, kept = time.time(), 0, 0.0, []
        node.kafka.create("keep", 1, {})
        while time.time() < began + seconds or cycles < 2:
            node.kafka.create("bulk", 1, {})
            written = 0
            while True:
                try:
                    node.kafka.produce("bulk", 0, [(None, os.urandom(200_000))])
                    if written % 10 == 0:
                        kept.append(node.kafka.produce("keep", 0, [(None, os.urandom(20_000))]))
                    written += 1
                except kafka.Failed:
                    break
                insist(written < 2000, "a disk of", size, "MiB is never full")
            node.kafka.delete("bulk")
            emptied = time.monotonic()
            while True:
                try:
                    kept.append(node.kafka.produce("keep", 0, [(None, os.urandom(20_000))]))
                    break
                except kafka.Failed as failed:
                    insist(time.monotonic() < emptied + 30, f"cycle {cycles}: {time.monotonic() - emptied:.0f} s after most was deleted nothing can be written: {failed}; "
                           f"{node.files_mib():.0f} MiB are taken")
                    time.sleep(0.1)
            slowest = max(slowest, time.monotonic() - emptied)
            if cycles % 3 == 2:
                node.broker.end(signal.SIGKILL)
                node.start()
            cycles += 1
            if len(kept) > KEPT_MAX:
                kept = kept[KEPT_MAX // 2:]
                node.kafka.delete_records("keep", 0, kept[0])
        found, _ = node.kafka.read("keep", 0, kept[0])
        # What was refused when its answer was waited for may be there.
        missing = set(kept) - {offset for offset, _, _ in found}
        insist(not missing, f"{len(missing)} of {len(kept)} acknowledged records are missing, the first at {min(missing, default=0)}")
        print(f"      {cycles} cycles, at most {slowest:.1f} s until it was written again", flush=True)
        results.note("a small disk is filled and emptied, and goes on")
    except (Wrong, kafka.Failed, rabbit.Gone, rabbit.Late, RuntimeError) as error:
        results.note("a small disk is filled and emptied, and goes on", f"{type(error).__name__} {error}")
    finally:
        if node is not None:
            node.broker.end(signal.SIGKILL)
        subprocess.run(["umount", "-l", disk], capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--minutes", type=float, default=2)
    chosen = parser.parse_args()
    results, seconds = Results(), chosen.minutes * 60
    with tempfile.TemporaryDirectory(prefix="mainstem-endurance-") as scratch:
        kafka.build(scratch)
        kafka.fast_checksums(scratch)
        binary = os.path.abspath(chosen.binary)
        results.step("churn ends well", lambda: churned(results, binary, scratch, seconds * 0.7))
        small_disk(results, binary, scratch, seconds * 0.15)
    print(f"{results.passed} passed, {results.failed} failed")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
