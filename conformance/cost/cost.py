#!/usr/bin/env python3
"""What requests of many entries cost the broker: every API of Kafka, every AMQP method, every route of HTTP. `cost.py BINARY` judges what can be counted
(`judge.py`); `--full` measures more sizes and how long others wait, and prints the figures. `--only TEXT` takes rows whose names contain it.
Last line: `N passed, N failed`."""

import argparse
import dataclasses
import os
import signal
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
sys.dont_write_bytecode = True
import amqp_rows
import http_rows
import judge
import kafka_rows
import links
from driver.broker import Broker
from exceptions import EXCEPTIONS, excused
from measure import MIB, Process, kept, take
from waits import Waits

AUTHORIZER = ["--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "--set", "super.users=User:ANONYMOUS"]
USER, PASSWORD = "cost", "a password for this test"
BUDGET = 512 * MIB
# Of those whose names end in a number: topics, and entries of others that decide who may do what.
TOPICS, ENTRIES = 2_000, 20_000
# In small and in full: what is named and there costs more than what is not.
PARTITIONS = (2_000, 10_000)
# After so much growth of what is resident the next rows have a broker of their own.
GROWN = 192 * MIB


@dataclasses.dataclass
class Outcome:
    """Of a row."""

    name: str
    samples: list
    faults: list
    kept: float | None = None


class Node:
    """A broker under test, with what rows need to be there."""

    def __init__(self, binary, full, entries=False, user=False):
        self.binary, self.full, self.entries, self.user = binary, full, entries, user
        self.broker, self.serial, self.waits = None, 0, None

    def start(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="mainstem-cost-")
        flags = ["--memory", f"{BUDGET // MIB}MiB", "--set", "group.initial.rebalance.delay.ms=0", "--set", "mainstem.password.iterations=1000", *(AUTHORIZER if self.entries else [])]
        if not self.full:
            flags += ["--set", "mainstem.shards=1"]
        if self.user:
            secret = Path(self.scratch.name) / "password"
            secret.write_text(PASSWORD + "\n")
            secret.chmod(0o600)
            flags += ["--default-user", USER, "--default-pass-file", str(secret)]
        self.broker = Broker(self.binary, f"{self.scratch.name}/data", flags).start()
        self.kafka = ("127.0.0.1", self.broker.kafka)
        host, port = self.broker.amqp.rsplit(":", 1)
        self.amqp = (host, int(port))
        self.process = Process(self.broker.process.pid)
        if not self.user:
            self.prepare()
            if self.full:
                self.waits = Waits(self.broker, "guest", "guest")
        self.process.idle()
        self.fresh = self.process.rss()
        return self

    def prepare(self):
        """The topics, the group and the entries that rows name."""
        ask = links.kafka_asker(self.kafka)
        try:
            one = {"num_partitions": 1, "replication_factor": 1}
            topics = [{**one, "name": kafka_rows.WIDE, "num_partitions": PARTITIONS[self.full]}, *({**one, "name": f"{kafka_rows.MANY}{at:08d}"} for at in range(TOPICS))]
            made = ask("CreateTopics", 7, {"topics": topics})
            wrong = [topic for topic in made["topics"] if topic["error_code"]]
            if wrong:
                raise RuntimeError(f"topics are not there: {wrong[:1]}")
            kafka_rows.USUAL["topic_id"] = made["topics"][0]["topic_id"]
            ask("OffsetCommit", 8, {"group_id": kafka_rows.GROUP, "member_id": "", "topics": [{"name": kafka_rows.WIDE, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]})
            if self.entries:
                entry = {"resource_type": 2, "resource_pattern_type": 3, "host": "*", "operation": 3, "permission_type": 3}
                for first in range(0, ENTRIES, 10_000):
                    ask("CreateAcls", 3, {"creations": [{**entry, "resource_name": kafka_rows.WIDE, "principal": f"User:there-{at}"} for at in range(first, first + 10_000)]})
        finally:
            ask.close()

    def served(self):
        """(key, first version, last version) of each API."""
        ask = links.kafka_asker(self.kafka)
        try:
            return [(one["api_key"], one["min_version"], one["max_version"]) for one in ask("ApiVersions", 3, {"client_software_name": "cost", "client_software_version": "1"})["api_keys"]]
        finally:
            ask.close()

    def number(self):
        self.serial += 1
        return self.serial

    def alive(self):
        return self.broker is not None and self.broker.process.poll() is None

    def renew_if(self, wanted):
        """A new broker, if that is wanted or this one has ended or grown."""
        if self.alive() and not wanted and self.process.rss() < self.fresh + GROWN:
            return
        self.stop()
        self.start()

    def stop(self):
        if self.waits:
            self.waits.stop()
            self.waits = None
        if self.broker:
            self.broker.end(signal.SIGKILL)
            self.broker = None
            self.scratch.cleanup()


class Survey:
    """Goes through all rows."""

    def __init__(self, binary, full, only="", without=(), say=print):
        self.binary, self.full, self.only, self.without, self.say = binary, full, only, without, say
        self.outcomes, self.missing = [], []
        self.kept_bytes = (16 if full else 4) * MIB

    def wanted(self, name):
        return self.only in name and not any(text in name for text in self.without)

    def sizes(self, sizes):
        """In small: the two largest."""
        return sizes if self.full else sizes[-2:]

    def measure(self, node, row, sizes, make, most=1 << 30):
        """`make`: of a number of entries, how many bytes are sent, and what sends them and returns how many came back."""
        if not self.wanted(row.name):
            return
        outcome = self.once(node, row, sizes, make, most)
        # On a busy machine what requests before it have left to do may fall into it: what it costs itself it costs a fresh node again.
        if any(fault.kind != "answer" and not excused(row.name, fault) for fault in outcome.faults):
            node.renew_if(True)
            outcome = self.once(node, row, sizes, make, most)
        self.note(outcome)

    def once(self, node, row, sizes, make, most):
        samples = []
        for entries in self.sizes(tuple(dict.fromkeys(min(size, most) for size in sizes))):
            if samples and not self.full and not judge.could_grow(samples[-1], entries / samples[-1].entries):
                break
            try:
                sent, exchange, after = make(entries)
            except (OSError, RuntimeError) as error:
                samples.append(judge_sample(entries, error))
                break
            samples.append(take(node.process, entries, sent, exchange, node.waits))
            after()
            if samples[-1].fault or not node.alive():
                samples[-1].fault = samples[-1].fault or "the broker has ended"
                node.renew_if(True)
                break
        return Outcome(row.name, samples, judge.faults(samples, budget=BUDGET))

    def keep(self, node, name, sent, exchange):
        """Does something of a request stay?"""
        if not self.wanted(name):
            return
        try:
            share = kept(node.process, sent, exchange)
            self.note(Outcome(name, [], judge.faults([], share), share))
        except (OSError, ProcessLookupError) as error:
            self.note(Outcome(name, [], [judge.Fault("answer", f"{type(error).__name__}: {error}")]))
            node.renew_if(True)

    def note(self, outcome):
        self.outcomes.append(outcome)
        for fault in outcome.faults:
            line = excused(outcome.name, fault)
            self.say(f"{'      excused' if line else 'FAIL '} {outcome.name}: {fault.text}{f' ({line[2]})' if line else ''}")

    def kafka(self):
        node = Node(self.binary, self.full).start()
        entries = None
        try:
            served = node.served()
            self.missing += kafka_rows.missing(served)
            for key, first, last in served:
                name = kafka_rows.NAMES.get(key)
                if name is None or not any(self.wanted(row.name) for row in [*kafka_rows.rows(key, first, last), *kafka_rows.longest(key, last, self.kept_bytes)]):
                    continue
                if name in kafka_rows.WITH_ENTRIES:
                    entries = entries or Node(self.binary, self.full, entries=True).start()
                    self.kafka_api(entries, key, first, last)
                else:
                    node.renew_if(False)
                    self.kafka_api(node, key, first, last)
                    if name in kafka_rows.LEAVES:
                        node.renew_if(True)
        finally:
            node.stop()
            if entries:
                entries.stop()

    def kafka_api(self, node, key, first, last):
        for row in kafka_rows.rows(key, first, last):
            def make(size, row=row):
                ask = links.kafka_asker(node.kafka) if row.api in kafka_rows.PREPARED else None
                frame = row.frame(size, node.number(), ask)
                return len(frame), lambda: links.kafka_exchange(node.kafka, frame), ask.close if ask else lambda: None
            self.measure(node, row, row.sizes if row.most else (1,), make, row.most or 1)
        for row in kafka_rows.longest(key, last, self.kept_bytes):
            if self.wanted(row.name):
                sent = len(row.frame(0, 0))
                self.keep(node, row.name, sent, lambda row=row: links.kafka_exchange(node.kafka, row.frame(0, node.number())))

    def amqp(self):
        self.missing += amqp_rows.missing(amqp_rows.client_methods())
        node = Node(self.binary, self.full).start()
        try:
            for row in amqp_rows.rows():
                node.renew_if(False)
                self.measure(node, row, row.sizes, lambda size, row=row: self.amqp_make(node, row, size))
        finally:
            node.stop()

    def amqp_make(self, node, row, size):
        frames = row.frames(size)
        if row.opening:
            def open_some():
                return sum(links.amqp_opening(node.amqp, frames) for _ in range(amqp_rows.TIMES))
            return len(frames) * amqp_rows.TIMES, open_some, lambda: None
        link = links.Amqp(node.amqp, amqp_rows.TIMES)
        link.exchange(amqp_rows.declared())
        return len(frames), lambda: link.exchange(frames), lambda: self.forget(node, link)

    def forget(self, node, link):
        """Ends a connection; what it has declared for all goes as well."""
        link.close()
        if node.alive():
            other = links.Amqp(node.amqp, 1)
            other.exchange(amqp_rows.forgotten())
            other.close()

    def http(self):
        self.missing += http_rows.missing(http_rows.management_routes())
        node = Node(self.binary, self.full, user=True).start()
        try:
            link = links.Http(node.broker.admin, USER, PASSWORD)
            for path in ("/v1/queues/%2F/cost-queue", "/v1/exchanges/%2F/cost-exchange"):
                link.json("PUT", path, {"durable": True} if "queue" in path else {"type": "direct"})
            link.json("POST", "/v1/topics", {"name": "cost"})
            document = link.json("GET", "/v1/openapi.json")
            rows = http_rows.v1_rows(document)
            self.missing += [f"{method} {path} has no row" for method, path in http_rows.described_routes(document)
                             if (method, path) not in http_rows.LEFT_OUT and not any(row.name.startswith(f"{method} {path}") for row in rows)]
            rows += http_rows.management_rows()
            rows.sort(key=lambda row: row.method == "DELETE")
            for row in rows:
                node.renew_if(False)
                self.measure(node, row, row.sizes, lambda size, row=row: self.http_make(node, link, row, size))
        finally:
            node.stop()

    def http_make(self, node, link, row, size):
        link.port = node.broker.admin
        path, body = row.request(size)

        def exchange():
            return sum(len(link.ask(row.method, path, body)[1]) for _ in range(row.times))
        return (len(path) + len(body)) * row.times, exchange, lambda: None

    def echo(self):
        """Nanoseconds of processor time for each byte that is read and forgotten: of what stands behind a request."""
        node = Node(self.binary, self.full).start()
        try:
            data = kafka_rows.behind(16 * MIB)
            samples = [take(node.process, 1, len(data), lambda: links.kafka_exchange(node.kafka, data)) for _ in range(3)]
            return 1e9 * min(one.cpu for one in samples) / len(data)
        finally:
            node.stop()

    def all(self):
        self.kafka()
        self.amqp()
        self.http()
        return self


def judge_sample(entries, error):
    from measure import Sample
    return Sample(entries, 0, fault=f"{type(error).__name__}: {error}")


def table(outcomes):
    """The rows that cost most for each byte, as lines of text."""
    def per_byte(one):
        last = one.samples[-1]
        return last.cpu / max(1, last.sent + last.answered) * 1e9
    measured = [one for one in outcomes if one.samples and not one.samples[-1].fault and one.samples[-1].cpu > 0.005]
    measured.sort(key=per_byte, reverse=True)
    yield f"{'row':90} {'entries':>9} {'bytes':>11} {'seconds':>9} {'ns/byte':>8} {'MiB':>6}  waits"
    for one in measured:
        last = one.samples[-1]
        waits = " ".join(f"{who} {1000 * wait:.0f} ms" for who, wait in last.waits.items())
        yield f"{one.name[:90]:90} {last.entries:>9,} {last.sent:>11,} {last.cpu:>9.4f} {per_byte(one):>8.0f} {last.peak / MIB:>6.0f}  {waits}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--without", nargs="*", default=[], metavar="TEXT", help="leave out rows whose names contain one of these")
    parser.add_argument("--part", choices=["kafka", "amqp", "http"])
    parser.add_argument("--table", action="store_true", help="print the figures of each row")
    chosen = parser.parse_args()
    survey = Survey(os.path.abspath(chosen.binary), chosen.full, chosen.only, chosen.without)
    getattr(survey, chosen.part or "all")()
    if chosen.full or chosen.table:
        print("\n".join(table(survey.outcomes)))
    for one in survey.missing:
        print(f"FAIL  {one}")
    bad = [one for one in survey.outcomes if any(not excused(one.name, fault) for fault in one.faults)]
    used = {excused(one.name, fault) for one in survey.outcomes for fault in one.faults}
    if chosen.full and not chosen.only and not chosen.part:
        for line in EXCEPTIONS:
            if line not in used:
                print(f"      an exception that nothing needs: {line[0]}")
    failed = len(bad) + len(survey.missing)
    print(f"{len(survey.outcomes) - len(bad)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
