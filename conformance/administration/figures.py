"""Lag, sizes and counts are what clients count, under load and at rest: of a consumer group, of one that has committed nothing, of a share group, of a classic and a quorum
queue and of a stream; in `/v1` and `/api`, at the command line, on pages of the console, at `/metrics`, in live values and in `why`. Arguments: BINARY, and `console` where
Node.js and a browser are there. A line each: `ok NAME` or `FAIL NAME: why`.

Clients count what they have sent before they send it, and what was confirmed once it is: a figure that is read meanwhile lies between what was confirmed before, and what
was sent until afterwards. At rest both are the same number."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
import uuid
from base64 import b64encode
from pathlib import Path

import pika
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parents[1]
for folder in ("", "peers", "share"):
    sys.path.insert(0, str(HERE / folder))
from client import Connection  # noqa: E402
from driver.broker import Broker  # noqa: E402
from group import configure  # noqa: E402

TOPIC, PARTITIONS, BODY = "figures", 3, b"x" * 500
QUEUES = ("classic", "quorum")
LOAD_S, PATIENCE = 8, 20
# At rest: records and messages that somebody has and keeps.
KEPT = 5
# What a record or message may take beside its body, in bytes.
BESIDE = 200


class Count:
    """What somebody has begun and what is confirmed of it."""

    def __init__(self):
        self.begun = self.confirmed = 0


class Client(threading.Thread):
    """Does something again and again until it is told to stop."""

    def __init__(self, turn):
        super().__init__(daemon=True)
        self.turn, self.ends, self.failure = turn, threading.Event(), None

    def run(self):
        try:
            while not self.ends.is_set():
                self.turn()
        except Exception as error:
            self.failure = error

    def stop(self):
        self.ends.set()
        self.join(PATIENCE)
        if self.failure:
            raise self.failure


class Writer:
    """A Kafka producer."""

    def __init__(self, bootstrap):
        self.producer, self.count, self.number = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0}), Count(), 0

    def delivered(self, error, _):
        assert error is None, error
        self.count.confirmed += 1

    def turn(self):
        for _ in range(50):
            self.count.begun += 1
            self.number += 1
            self.producer.produce(TOPIC, BODY, partition=self.number % PARTITIONS, on_delivery=self.delivered)
        self.producer.poll(0.02)
        time.sleep(0.03)

    def rest(self):
        assert self.producer.flush(PATIENCE) == 0


class Reader:
    """A member of a consumer group that commits what it has read."""

    def __init__(self, bootstrap, group):
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0})
        self.count, self.ends = Count(), {}
        self.consumer.subscribe([TOPIC])

    def commit(self, ends):
        self.count.begun = sum(ends.values())
        self.consumer.commit(offsets=[TopicPartition(TOPIC, partition, end) for partition, end in ends.items()], asynchronous=False)
        self.count.confirmed = self.count.begun
        self.ends = ends

    def begin(self):
        """Has an offset of each partition, so that its lag is known."""
        until = time.time() + PATIENCE
        while len(self.consumer.assignment()) < PARTITIONS and time.time() < until:
            self.consumer.poll(0.1)
        for partition in range(PARTITIONS):
            self.consumer.seek(TopicPartition(TOPIC, partition, 0))
        self.commit({partition: 0 for partition in range(PARTITIONS)})

    def turn(self):
        ends = dict(self.ends)
        for message in self.consumer.consume(40, 0.1):
            assert message.error() is None, message.error()
            ends[message.partition()] = max(ends[message.partition()], message.offset() + 1)
        self.commit(ends)
        time.sleep(0.05)


class Sharer:
    """A member of a share group, in the protocol's words."""

    def __init__(self, bootstrap, group):
        host, port = bootstrap.rsplit(":", 1)
        self.connection, self.group, self.member = Connection((host, int(port))), group, str(uuid.uuid4())
        self.epoch = self.session = 0
        self.count = Count()

    def ask(self, name, version, body):
        self.connection.request(name, version, body)
        answer = self.connection.response(name, version)
        assert answer.get("error_code", 0) == 0, (name, answer)
        return answer

    def beat(self):
        answer = self.ask("ShareGroupHeartbeat", 1, {"group_id": self.group, "member_id": self.member, "member_epoch": self.epoch, "subscribed_topic_names": [TOPIC]})
        self.epoch = answer["member_epoch"]
        return sum(len(one["partitions"]) for one in (answer["assignment"] or {}).get("topic_partitions") or [])

    def begin(self):
        found = self.ask("Metadata", 12, {"topics": [{"topic_id": "00000000-0000-0000-0000-000000000000", "name": TOPIC}], "allow_auto_topic_creation": False})
        self.topic = found["topics"][0]["topic_id"]
        until = time.time() + PATIENCE
        while self.beat() < PARTITIONS:
            assert time.time() < until, "no partitions are assigned"
            time.sleep(0.1)

    def said(self, name, acks, **more):
        topics = [{"topic_id": self.topic, "partitions": [
            {"partition_index": partition, "acknowledgement_batches": [
                {"first_offset": first, "last_offset": last, "acknowledge_types": [1]} for at, first, last in acks if at == partition]} for partition in range(PARTITIONS)]}]
        answer = self.ask(name, 1, {"group_id": self.group, "member_id": self.member, "share_session_epoch": self.session, "topics": topics, **more})
        self.session += 1
        return answer

    def fetch(self, most):
        answer = self.said("ShareFetch", [], max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, max_records=most, batch_size=most, forgotten_topics_data=[])
        return [(part["partition_index"], run["first_offset"], run["last_offset"]) for topic in answer["responses"] for part in topic["partitions"] for run in part["acquired_records"]]

    def turn(self):
        got = self.fetch(30)
        self.count.begun += sum(last + 1 - first for _, first, last in got)
        if got:
            self.said("ShareAcknowledge", got)
        self.count.confirmed = self.count.begun
        self.beat()
        time.sleep(0.05)

    def keep(self, count):
        """Has so many records and does nothing with them; what comes beside them, as batches do, is acknowledged."""
        while count > 0:
            done = []
            for partition, first, last in self.fetch(count):
                kept = min(count, last + 1 - first)
                count -= kept
                if first + kept <= last:
                    done.append((partition, first + kept, last))
            self.count.begun += sum(last + 1 - first for _, first, last in done)
            if done:
                self.said("ShareAcknowledge", done)
            self.count.confirmed = self.count.begun


class Publisher:
    """Messages with confirms, for a queue or a stream."""

    def __init__(self, address, queue, kind):
        self.channel, self.queue, self.count = channel(address), queue, Count()
        self.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        self.channel.confirm_delivery()

    def turn(self):
        self.count.begun += 1
        self.channel.basic_publish("", self.queue, BODY, pika.BasicProperties(delivery_mode=2))
        self.count.confirmed += 1
        time.sleep(0.004)


class Taker:
    """Takes messages and acknowledges them; what a question behind it on its channel is answered to was acknowledged."""

    def __init__(self, address, queue):
        self.channel, self.queue, self.count = channel(address), queue, Count()

    def turn(self):
        got = [self.channel.basic_get(self.queue)[0] for _ in range(10)]
        for one in filter(None, got):
            self.count.begun += 1
            self.channel.basic_ack(one.delivery_tag)
        self.channel.basic_qos(prefetch_count=0)
        self.count.confirmed = self.count.begun
        time.sleep(0.05)

    def keep(self, count):
        assert all([self.channel.basic_get(self.queue)[0] for _ in range(count)])


def channel(address):
    host, port = address.rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0)).channel()


def number(text):
    """Of a page: the first one of a text, without commas."""
    return int(re.search(r"\d[\d,]*", text).group().replace(",", ""))


UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def size(text):
    """Of a page: bytes, as far as three digits tell."""
    value, unit = text.split(";")[0].split()
    return float(value.replace(",", "")) * UNITS[unit]


class Sources:
    """Where figures are read."""

    def __init__(self, broker, console):
        self.broker, self.origin = broker, f"http://127.0.0.1:{broker.admin}"
        self.pages = console and subprocess.Popen(["node", str(HERE.parent / "console/figures.mjs"), self.origin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def http(self, path):
        request = urllib.request.Request(self.origin + path)
        request.add_header("authorization", "Basic " + b64encode(b"guest:guest").decode())
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def says(self, *words):
        done = subprocess.run([str(self.broker.binary), *words, "--json", "--admin", f"127.0.0.1:{self.broker.admin}"], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def metric(self, name, group, topic):
        """0 where it has no such line."""
        labels = f'mainstem_{name}{{group="{group}",topic="{topic}"}} '
        lines = [line for line in self.broker.metrics().splitlines() if line.startswith(labels)]
        return int(float(lines[0].rsplit(" ", 1)[1])) if lines else 0

    def live(self, group, field):
        with urllib.request.urlopen(f"{self.origin}/v1/live?node=false&group={group}", timeout=PATIENCE) as stream:
            for line in stream:
                if line.startswith(b"data: ") and b'"groups"' in line:
                    return json.loads(line[6:])["groups"][group][field]

    def why(self, group, pattern):
        """The figure that `why` tells of a group; 0 where it says nothing of the kind."""
        found = self.says("why", "--group", group, "--seconds", "0.1")
        texts = [one["text"] for one in found["reasons"] if one["cause"] == "behind"]
        match = re.search(pattern, texts[0]) if texts else None
        return int(match.group(1)) if match else 0

    def page(self, hash_, name):
        self.pages.stdin.write(f"{hash_}\t{name}\n")
        self.pages.stdin.flush()
        return self.pages.stdout.readline().strip()

    def of_group(self, group):
        """Readers of its lag, and of what is not known of it."""
        row = lambda found: next(one for one in found if one["name"] == group)
        lag = {
            "/v1/groups/…": lambda: self.http(f"/v1/groups/{group}")["lag"],
            "/v1/groups": lambda: row(self.http("/v1/groups")["items"])["lag"],
            "sum over partitions": lambda: sum(one["lag"] or 0 for one in self.http(f"/v1/groups/{group}")["offsets"]),
            "group show": lambda: self.says("group", "show", group)["lag"],
            "group list": lambda: row(self.says("group", "list"))["lag"],
            "/metrics": lambda: self.metric("group_backlog_records", group, TOPIC),
            "live": lambda: self.live(group, "lag"),
            "why": lambda: self.why(group, r"not done with (\d+) records"),
        }
        unknown = {
            "/v1/groups/…": lambda: self.http(f"/v1/groups/{group}")["without_offset"]["records"],
            "group list": lambda: row(self.says("group", "list"))["without_offset"]["records"],
            "/metrics": lambda: self.metric("group_without_offset_records", group, TOPIC),
            "live": lambda: self.live(group, "without_offset"),
            "why": lambda: self.why(group, r"up to (\d+)"),
        }
        if self.pages:
            lag["console"] = lambda: number(self.page(f"groups/{group}", "Lag"))
            unknown["console"] = lambda: number((self.page(f"groups/{group}", "Lag").split("up to ") + ["0"])[1])
        return lag, unknown

    def of_queue(self, queue):
        """Readers of how many messages it has."""
        found = {
            "/v1/queues/…": lambda: self.http(f"/v1/queues/%2F/{queue}")["messages"],
            "/api/queues/…": lambda: self.http(f"/api/queues/%2F/{queue}")["messages"],
            "/api/queues": lambda: next(one for one in self.http("/api/queues") if one["name"] == queue)["messages"],
            "queue show": lambda: (one := self.says("queue", "show", queue))["ready"] + one["unacknowledged"],
            "queue list": lambda: next(one for one in self.says("queue", "list") if one["name"] == queue)["messages"],
        }
        if self.pages:
            found["console"] = lambda: number(self.page(f"queues/%2F/{queue}", "Ready")) + number(self.page(f"queues/%2F/{queue}", "Unacknowledged"))
        return found


class Case:
    """All the clients, and what they have counted."""

    def __init__(self, broker, sources):
        self.broker, self.sources = broker, sources
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE)
        configure(broker.bootstrap, "workers", share_auto_offset_reset="earliest", share_record_lock_duration_ms=60_000)
        self.writer, self.reader, self.fresh = Writer(broker.bootstrap), Reader(broker.bootstrap, "readers"), Reader(broker.bootstrap, "fresh")
        self.sharer = Sharer(broker.bootstrap, "workers")
        self.publishers = {kind: Publisher(broker.amqp, f"figures-{kind}", kind) for kind in (*QUEUES, "stream")}
        self.takers = {kind: Taker(broker.amqp, f"figures-{kind}") for kind in QUEUES}

    def begin(self):
        self.writer.turn()
        self.writer.rest()
        self.reader.begin()
        until = time.time() + PATIENCE
        while len(self.fresh.consumer.assignment()) < PARTITIONS and time.time() < until:
            self.fresh.consumer.poll(0.1)
        self.sharer.begin()

    def bounds(self):
        """Of each figure what it is counted up by, and down."""
        produced = self.writer.count
        bounds = {"lag of the group": (produced, self.reader.count), "unknown lag": (produced, Count()), "lag of the share group": (produced, self.sharer.count),
                  "records of the topic": (produced, Count())}
        for kind, publisher in self.publishers.items():
            bounds[f"messages of the {kind}"] = (publisher.count, self.takers[kind].count if kind in self.takers else Count())
        return bounds

    def readers(self):
        """Figures by name: the sources of each."""
        sources = self.sources
        found = {"lag of the group": sources.of_group("readers")[0], "unknown lag": sources.of_group("fresh")[1], "lag of the share group": sources.of_group("workers")[0]}
        found["records of the topic"] = {"/v1/topics/…": lambda: sources.http(f"/v1/topics/{TOPIC}")["records"], "topic list": lambda: next(
            one for one in sources.says("topic", "list") if one["name"] == TOPIC)["records"]}
        if sources.pages:
            found["records of the topic"]["console"] = lambda: number(sources.page(f"topics/{TOPIC}", "Records"))
        for kind in self.publishers:
            found[f"messages of the {kind}"] = sources.of_queue(f"figures-{kind}")
        for kind in QUEUES:
            found[f"messages of the {kind}"]["/metrics"] = lambda kind=kind: sources.metric("group_backlog_records", "amqp.queue", f"figures-{kind}")
        for kind in self.publishers:
            found[f"messages of the {kind}"]["AMQP"] = None
        return found

    def size_readers(self):
        """Sizes by name: how many messages or records they are of, by what these are counted up and down, the sources, and how far those round."""
        sources, found = self.sources, {}
        for kind, publisher in self.publishers.items():
            queue = f"figures-{kind}"
            row = lambda rows, queue=queue: next(one for one in rows if one["name"] == queue)
            looks = {
                "/v1/queues/…": lambda queue=queue: sources.http(f"/v1/queues/%2F/{queue}")["bytes"],
                "/v1/queues": lambda row=row: row(sources.http("/v1/queues")["items"])["bytes"],
                "/api/queues/…": lambda queue=queue: sources.http(f"/api/queues/%2F/{queue}")["message_bytes"],
                "queue show": lambda queue=queue: sources.says("queue", "show", queue)["bytes"],
                "queue list": lambda row=row: row(sources.says("queue", "list"))["bytes"],
            }
            if sources.pages:
                looks["console"] = lambda queue=queue: size(sources.page(f"queues/%2F/{queue}", "Size"))
            found[f"size of the {kind}"] = (publisher.count, self.takers[kind].count if kind in self.takers else Count(), looks)
        row = lambda rows: next(one for one in rows if one["name"] == TOPIC)
        looks = {
            "/v1/topics/…": lambda: sources.http(f"/v1/topics/{TOPIC}")["bytes"],
            "/v1/topics": lambda: row(sources.http("/v1/topics")["items"])["bytes"],
            "topic show": lambda: sources.says("topic", "show", TOPIC)["bytes"],
            "topic list": lambda: row(sources.says("topic", "list"))["bytes"],
        }
        if sources.pages:
            looks["console"] = lambda: size(sources.page(f"topics/{TOPIC}", "Size"))
        found["size of the topic"] = (self.writer.count, Count(), looks)
        return found

    def sizes(self):
        """The size of what there is, under load and at rest: its bodies, and little more for each."""
        wrong = []
        for figure, (up, down, looks) in self.size_readers().items():
            for source, look in looks.items():
                came, went = up.confirmed, down.confirmed
                value, rounding = look(), 1.01 if source == "console" else 1.0
                least, most = (came - down.begun) * len(BODY) / rounding, (up.begun - went) * (len(BODY) + BESIDE) * rounding
                if not least <= value <= most:
                    wrong.append(f"{figure}, {source}: {value} is not from {least:.0f} to {most:.0f}")
        assert not wrong, "; ".join(wrong[:6])

    def under_load(self):
        """Each figure of each source lies between what clients know; all are read again and again."""
        wrong = []
        until, first = time.time() + LOAD_S, True
        while first or time.time() < until:
            first = False
            for figure, sources in self.readers().items():
                up, down = self.bounds()[figure]
                for source, look in sources.items():
                    if look is None:
                        continue
                    came, went = up.confirmed, down.confirmed
                    if source == "live":
                        # What others have been told within the last second is told again.
                        time.sleep(1.1)
                    value = look()
                    least, most = came - down.begun, up.begun - went
                    if not least <= value <= most:
                        wrong.append(f"{figure}, {source}: {value} is not from {least} to {most}")
            self.sizes()
        assert not wrong, "; ".join(wrong[:6])

    def at_rest(self):
        """Each source has the number that clients have counted."""
        wrong = []
        for figure, sources in self.readers().items():
            up, down = self.bounds()[figure]
            assert (up.begun, down.begun) == (up.confirmed, down.confirmed), figure
            wanted = up.confirmed - down.confirmed
            for source, look in sources.items():
                look = look or (lambda figure=figure: self.passive(figure.rsplit(" ", 1)[1]))
                wanted_here = wanted - KEPT if source == "AMQP" and figure.rsplit(" ", 1)[1] in self.takers else wanted
                until = time.time() + PATIENCE
                while (value := look()) != wanted_here and time.time() < until:
                    time.sleep(0.1)
                if value != wanted_here:
                    wrong.append(f"{figure}, {source}: {value} instead of {wanted_here}")
        assert not wrong, "; ".join(wrong)

    def passive(self, kind):
        """What AMQP tells: messages that are ready."""
        return self.publishers[kind].channel.queue_declare(f"figures-{kind}", passive=True).method.message_count

    def kept(self):
        """What somebody has is told by all, and is none of what is ready."""
        sources, wrong = self.sources, []
        looks = {"share group, /v1": lambda: sum(one["in_flight"] for one in sources.http("/v1/groups/workers")["offsets"]),
                 "share group, /metrics": lambda: sources.metric("share_in_flight_records", "workers", TOPIC)}
        for kind in QUEUES:
            looks[f"{kind}, /v1"] = lambda kind=kind: sources.http(f"/v1/queues/%2F/figures-{kind}")["unacknowledged"]
            looks[f"{kind}, /api"] = lambda kind=kind: sources.http(f"/api/queues/%2F/figures-{kind}")["messages_unacknowledged"]
            looks[f"{kind}, queue show"] = lambda kind=kind: sources.says("queue", "show", f"figures-{kind}")["unacknowledged"]
            looks[f"{kind}, /metrics"] = lambda kind=kind: sources.metric("share_in_flight_records", "amqp.queue", f"figures-{kind}")
            if sources.pages:
                looks[f"{kind}, console"] = lambda kind=kind: number(sources.page(f"queues/%2F/figures-{kind}", "Unacknowledged"))
        if sources.pages:
            looks["share group, console"] = lambda: number(sources.page("groups/workers", "In flight"))
        for name, look in looks.items():
            if (value := look()) != KEPT:
                wrong.append(f"{name}: {value} instead of {KEPT}")
        assert not wrong, "; ".join(wrong)

    def emptied(self):
        """All is acknowledged, but for what is kept, which comes back: then there is nothing, at once and everywhere."""
        for kind, taker in self.takers.items():
            taker.channel.connection.close()
            one = channel(self.broker.amqp)
            while one.basic_get(f"figures-{kind}", auto_ack=True)[0]:
                pass
            wrong = [f"{name}: {value}" for name, value in {
                "messages": self.sources.http(f"/v1/queues/%2F/figures-{kind}")["messages"], "bytes": self.sources.http(f"/v1/queues/%2F/figures-{kind}")["bytes"],
                "message_bytes": self.sources.http(f"/api/queues/%2F/figures-{kind}")["message_bytes"]}.items() if value]
            assert not wrong, f"an empty {kind} queue has {wrong}"


def note(name, act):
    try:
        act()
        print(f"ok {name}", flush=True)
    except Exception as error:
        at = traceback.extract_tb(sys.exc_info()[2])[-1]
        print(f"FAIL {name}: {type(error).__name__} {error} ({at.name}:{at.lineno})".replace("\n", " "), flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="mainstem-figures-") as scratch:
        broker = Broker(sys.argv[1], f"{scratch}/data").start()
        sources = None
        try:
            sources = Sources(broker, "console" in sys.argv[2:])
            case = Case(broker, sources)
            case.begin()
            turns = [case.writer, case.reader, case.sharer, *case.publishers.values(), *case.takers.values()]
            clients = [Client(one.turn) for one in turns]
            for client in clients:
                client.start()
            time.sleep(1)
            note("under-load", case.under_load)
            for client in clients:
                client.stop()
            # That there is something to be kept.
            case.writer.turn()
            case.writer.rest()
            for publisher in case.publishers.values():
                for _ in range(2 * KEPT):
                    publisher.turn()
            case.sharer.keep(KEPT)
            beats = Client(lambda: (case.sharer.beat(), time.sleep(2)))
            beats.start()
            for taker in case.takers.values():
                taker.keep(KEPT)
            for name in ("at-rest", "kept", "sizes", "emptied"):
                note(name, getattr(case, name.replace("-", "_")))
            beats.stop()
        except Exception as error:
            print(f"FAIL all: {type(error).__name__} {error}".replace("\n", " "), flush=True)
        finally:
            if sources and sources.pages:
                sources.pages.stdin.close()
                sources.pages.wait(PATIENCE)
            broker.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
