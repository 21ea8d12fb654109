"""Attackers, each kind of them a process: `attackers_load.py TARGETS KIND SECONDS`, where TARGETS is a JSON object of ports (`attackers.Node.targets`).
Prints one line of JSON: of each sort of connections how many were opened and closed, and how old the oldest became.

One thread polls all connections. Requests are built beforehand, a process sends at most `BYTES_A_SECOND`, and what was answered is asked again
after a pause: the attack is one on memory and on waiting, not on the processors that both sides share."""

import base64
import errno
import json
import resource
import select
import socket
import struct
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[0] / "peers"), str(HERE.parents[0] / "amqp/peers")]
sys.dont_write_bytecode = True
import schema
import wire
import zstandard
from batch import batch, record
from client import APIS

MIB = 1 << 20
BYTES_A_SECOND = 16 * MIB
TICK = 0.1
OPENED_A_SECOND = 200
PASSWORDS = {"admin": "the password of admin", "good": "the password of good", "greedy": "the password of greedy", "nobody": "the password of nobody"}
# The first bytes of a ClientHello whose rest never comes.
HALF_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(32)
FRAME_MAX = 131_072


# Requests.

def kafka(name, version, body, correlation=1):
    api = APIS[name]
    head = struct.pack(">hhih", api.key, version, correlation, 6) + b"greedy" + (b"\0" if api.flex(version) else b"")
    data = head + schema.encode(api.request, body, version, api.flex(version))
    return struct.pack(">i", len(data)) + data


def kafka_login(user):
    answer = f"\0{user}\0{PASSWORDS[user]}".encode()
    return kafka("SaslHandshake", 1, {"mechanism": "PLAIN"}) + kafka("SaslAuthenticate", 1, {"auth_bytes": answer})


def amqp_login(user, channels=1):
    start = wire.method("connection.start-ok", mechanism="PLAIN", response=f"\0{user}\0{PASSWORDS[user]}", locale="en_US")
    tune = wire.method("connection.tune-ok", channel_max=2047, frame_max=FRAME_MAX, heartbeat=0)
    out = wire.GREETING + b"".join(wire.frame(wire.METHOD, 0, one) for one in (start, tune, wire.method("connection.open", virtual_host="/")))
    return out + b"".join(wire.frame(wire.METHOD, channel, wire.method("channel.open")) for channel in range(1, channels + 1))


def publish(channel, queue, body):
    parts = [wire.frame(wire.METHOD, channel, wire.method("basic.publish", routing_key=queue)), wire.frame(wire.HEADER, channel, wire.header(len(body)))]
    step = FRAME_MAX - 8
    return b"".join([*parts, *(wire.frame(wire.BODY, channel, body[at:at + step]) for at in range(0, len(body), step))])


def http(user, method, path, length=None, more=b""):
    key = base64.b64encode(f"{user}:{PASSWORDS[user]}".encode()).decode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {key}\r\n"
    head += "" if length is None else f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"{head}\r\n".encode() + more


def now():
    return int(time.time() * 1000)


def zstd(payload):
    return zstandard.ZstdCompressor().compress(payload)


def bomb(unpacked):
    """A batch of a few kilobytes with one record of so many bytes."""
    return batch([b""], payload=zstd(record(0, b"key", bytes(unpacked))), attributes=4, first=now())


def records(count, value, last=None):
    """A packed batch of many records. `last`: milliseconds from the first to the last one, which is announced as well."""
    payload = b"".join(record(at, None, value, time=last or 0 if at == count - 1 else 0) for at in range(count))
    begin = now()
    return batch([b""] * count, payload=zstd(payload), attributes=4, first=begin, last=begin + (last or 0))


def produce(topic, batches):
    parts = [{"index": at, "records": data} for at, data in enumerate(batches)]
    return kafka("Produce", 7, {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": parts}]})


# Connections.

class Sort:
    """Connections that do the same. `first`: what is sent at once, a buffer or a function that makes several; `again`: what is sent `every` so many
    seconds after that, a buffer or a function of the number of the time; `reads`: whether answers are read; `deadline`: seconds after which
    the broker has ended it, if it has to."""

    def __init__(self, name, target, count, first=b"", again=b"", every=1.0, reads=True, deadline=None, pause=1.0):
        self.name, self.target, self.count, self.first, self.again, self.every = name, target, count, first, again, every
        self.reads, self.deadline, self.pause = reads, deadline, pause
        self.opened, self.closed, self.failed, self.sent, self.received, self.oldest, self.rounds, self.heard = 0, 0, 0, 0, 0, 0.0, 0, b""
        self.wanting = [0.0] * count

    def row(self, open_ages):
        oldest = max([self.oldest, *open_ages])
        heard = "".join(chr(one) if 32 <= one < 127 else "." for one in self.heard)
        return {"sort": self.name, "opened": self.opened, "closed": self.closed, "failed": self.failed, "sent_mb": round(self.sent / 1e6, 1),
                "received_mb": round(self.received / 1e6, 1), "oldest_s": round(oldest, 1), "deadline_s": self.deadline, "heard_last": heard}


class Link:
    def __init__(self, sort, stream):
        first = sort.first() if callable(sort.first) else [sort.first]
        self.sort, self.stream, self.opened, self.last = sort, stream, time.monotonic(), time.monotonic()
        self.out, self.buffer = iter(first), memoryview(b"")

    def more(self):
        """Something is to be sent."""
        while not self.buffer:
            following = next(self.out, None)
            if following is None:
                return False
            self.buffer = memoryview(following)
        return True


class Attack:
    def __init__(self, targets, sorts, seconds):
        self.targets, self.sorts, self.until = targets, sorts, time.monotonic() + seconds
        self.poll, self.links, self.into, self.budget, self.number, self.turn = select.epoll(), {}, bytearray(1 << 18), 0.0, 0, 0

    def run(self):
        ticked = filled = time.monotonic()
        while (instant := time.monotonic()) < self.until:
            self.budget = min(BYTES_A_SECOND / 4, self.budget + (instant - filled) * BYTES_A_SECOND)
            filled = instant
            if instant - ticked >= TICK:
                ticked = instant
                self.tick(instant)
            for number, events in self.poll.poll(TICK / 2, 256):
                if number in self.links:
                    self.serve(self.links[number], events)
            if self.budget <= 0:
                time.sleep(0.05)
        ages = {sort: [] for sort in self.sorts}
        for link in self.links.values():
            ages[link.sort].append(time.monotonic() - link.opened)
            link.stream.close()
        return [sort.row(ages[sort]) for sort in self.sorts]

    def tick(self, instant):
        allowed, self.turn = int(OPENED_A_SECOND * TICK), self.turn + 1
        first = self.turn % len(self.sorts)
        for sort in self.sorts[first:] + self.sorts[:first]:
            due = [at for at in sort.wanting if at <= instant][:allowed]
            for at in due:
                sort.wanting.remove(at)
                self.open(sort)
            allowed -= len(due)
        for link in list(self.links.values()):
            sort = link.sort
            if sort.again and instant - link.last >= sort.every and not link.more():
                link.last = instant
                sort.rounds += 1
                again = sort.again(sort.rounds) if callable(sort.again) else sort.again
                link.out = iter(again if isinstance(again, list) else [again])
                self.watch(link)

    def open(self, sort):
        stream = socket.socket()
        stream.setblocking(False)
        self.number += 1
        try:
            if not sort.reads:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # The address is chosen here, the port when it connects (IP_BIND_ADDRESS_NO_PORT).
            stream.setsockopt(socket.IPPROTO_IP, 24, 1)
            stream.bind((f"127.0.2.{1 + self.number % 20}", 0))
            if stream.connect_ex(("127.0.0.1", self.targets[sort.target])) not in (0, errno.EINPROGRESS):
                raise OSError("refused")
        except OSError:
            sort.failed += 1
            sort.wanting.append(time.monotonic() + sort.pause)
            return stream.close()
        sort.opened += 1
        self.links[stream.fileno()] = link = Link(sort, stream)
        self.poll.register(stream.fileno(), self.events(link))

    def events(self, link):
        return (select.EPOLLIN if link.sort.reads else 0) | (select.EPOLLOUT if link.more() else 0) | select.EPOLLRDHUP

    def watch(self, link):
        self.poll.modify(link.stream.fileno(), self.events(link))

    def serve(self, link, events):
        sort = link.sort
        try:
            if events & select.EPOLLIN:
                count = link.stream.recv_into(self.into)
                sort.received += count
                if count == 0:
                    return self.close(link)
                sort.heard = bytes(self.into[:min(count, 200)])
            if events & (select.EPOLLHUP | select.EPOLLERR) or events & select.EPOLLRDHUP and not events & select.EPOLLIN:
                return self.close(link)
            if events & select.EPOLLOUT and self.budget > 0:
                if link.more():
                    count = link.stream.send(link.buffer[:1 << 17])
                    link.buffer = link.buffer[count:]
                    sort.sent += count
                    self.budget -= count
                if not link.more():
                    link.last = time.monotonic()
                    self.watch(link)
        except BlockingIOError:
            pass
        except OSError:
            self.close(link)

    def close(self, link):
        sort = link.sort
        del self.links[link.stream.fileno()]
        link.stream.close()
        sort.closed += 1
        sort.oldest = max(sort.oldest, time.monotonic() - link.opened)
        sort.wanting.append(time.monotonic() + sort.pause)


# Kinds of attackers.

def announced():
    """Lengths of 60 MiB, and one byte."""
    head = struct.pack(">i", 60 * MIB) + b"\0"
    frame = amqp_login("greedy") + wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key="greedy-queue"))
    frame += wire.frame(wire.HEADER, 1, wire.header(120_000)) + struct.pack(">BHI", wire.BODY, 1, 120_000) + b"x"
    return [Sort("frames announced without a login", "kafka", 41, head, deadline=60), Sort("frames announced", "sasl", 41, kafka_login("greedy") + head, deadline=60),
            Sort("AMQP frames announced", "amqp", 41, frame, deadline=60)]


def slow_requests():
    """Requests of 60 MiB at 64 KiB a second."""
    head = struct.pack(">i", 60 * MIB)
    return [Sort("slow requests", "sasl", 12, kafka_login("greedy") + head, bytes(16 << 10), 0.25, deadline=150)]


def fetch_sessions():
    """Sessions of 16 MiB of names."""
    parts = [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1024}]
    topics = [{"topic": "x" * 32_000 + f"{at:08}", "partitions": parts} for at in range(16 * MIB // 32_100)]
    body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1024, "isolation_level": 0, "session_id": 0, "session_epoch": 0, "topics": topics,
            "forgotten_topics_data": [], "rack_id": ""}
    request = kafka("Fetch", 11, body)
    return [Sort("fetch sessions", "sasl", 3, kafka_login("nobody") + request, request, 5)]


def join_groups():
    """Members with 60,000 protocols."""
    protocols = [{"name": f"p{at:08}", "metadata": b"m"} for at in range(60_000)]
    request = kafka("JoinGroup", 3, {"group_id": "greedy-join", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "", "protocol_type": "consumer",
                                     "protocols": protocols})
    return [Sort("protocols", "sasl", 2, kafka_login("greedy") + request, request, 1)]


def timestamps():
    """100 batches that unpack 300-fold, with timestamps out of range."""
    request = produce("greedy-wide", [records(20_000, b"x" * 100, last=7_200_000)] * 100)
    return [Sort("timestamps", "sasl", 2, kafka_login("greedy") + request, request, 3)]


def repeated_names():
    """The same topics and partitions again and again."""
    parts = struct.pack(">i", 400_000) + struct.pack(">iq", 0, -1) * 400_000
    head = struct.pack(">hhih", 2, 1, 1, 6) + b"greedy"
    body = head + struct.pack(">iih", -1, 1, 11) + b"greedy-wide" + parts
    dated = head + struct.pack(">iih", -1, 1, 11) + b"greedy-wide" + struct.pack(">i", 100_000) + b"".join(struct.pack(">iq", at % 100, at) for at in range(100_000))
    dirs = kafka("DescribeLogDirs", 1, {"topics": [{"topic": "greedy-wide", "partitions": list(range(100))}] * 200})
    names = [f"greedy-{at:06}" for at in range(10_000)]
    beats = [kafka("ConsumerGroupHeartbeat", 1, {"group_id": "greedy-beats", "member_id": "kc1sFCf3Q3Wkq4kC1kpnUg", "member_epoch": 0, "rebalance_timeout_ms": 10_000,
                                                 "subscribed_topic_names": some, "server_assignor": None, "topic_partitions": []}) for some in (names, ["greedy-wide"] * 100_000)]
    sized = [struct.pack(">i", len(one)) + one for one in (body, dated)]
    return [Sort(name, "sasl", 1, kafka_login("greedy") + one, one, 2)
            for name, one in (("ListOffsets", sized[0]), ("ListOffsets by time", sized[1]), ("DescribeLogDirs", dirs), ("heartbeats of distinct names", beats[0]), ("heartbeats of names", beats[1]))]


def descriptions():
    """What is described 100,000 times."""
    configs = kafka("DescribeConfigs", 1, {"resources": [{"resource_type": 2, "resource_name": "greedy-wide", "configuration_keys": None}] * 100_000, "include_synonyms": True})
    groups = kafka("DescribeGroups", 1, {"groups": ["greedy-offsets"] * 100_000})
    offsets = kafka("OffsetFetch", 8, {"groups": [{"group_id": "greedy-offsets", "topics": None}] * 100_000, "require_stable": False})
    return [Sort(name, "sasl", 1, kafka_login("greedy") + one, one, 5) for name, one in (("DescribeConfigs", configs), ("DescribeGroups", groups), ("OffsetFetch", offsets))]


def nested():
    """JSON of 1, 8, 31 and 63 MiB that nests; of these 1 and 31 are not too long."""
    def text(size):
        inner = b"[]," * ((size - 40) // 3)
        return b'{"durable":true,"arguments":{"a":[' + inner + b"[]]}}"
    queue, message = ("PUT", "/api/queues/%2F/greedy-json"), ("POST", "/api/exchanges/%2F/amq.default/publish")
    out = []
    for size, every, path in ((1, 1, queue), (8, 2, queue), (31, 5, message), (63, 10, queue)):
        body = text(size * MIB)
        for user in ("nobody", "greedy"):
            request = http(user, *path, len(body))
            out.append(Sort(f"JSON of {size} MiB by {user}", "http", 1, lambda request=request, body=body: [request, body], [request, body], every, pause=every))
    return out


def slow_bodies():
    """Bodies of 60 and 31 MiB at 64 KiB a second, and 200 of 1 MiB without their last byte."""
    out = []
    for user in ("nobody", "greedy"):
        for method, path, size in (("PUT", "/api/queues/%2F/greedy-json", 60), ("POST", "/api/exchanges/%2F/amq.default/publish", 31)):
            out.append(Sort(f"slow bodies of {size} MiB by {user}", "http", 12, http(user, method, path, size * MIB, b"["), b" " * (16 << 10), 0.25, deadline=150))
    most = b" " * (MIB - 1)
    for method, path in (("PUT", "/api/queues/%2F/greedy-json"), ("PUT", "/v1/queues/%2F/greedy-json")):
        request = http("greedy", method, path, MIB)
        out.append(Sort(f"bodies of 1 MiB to {path[:4]}, without their end", "http", 100, lambda request=request: [request, most], deadline=45))
    return out


def consume(queue, offset=None, channel=1, prefetch=10, no_ack=False):
    qos = wire.frame(wire.METHOD, channel, wire.method("basic.qos", prefetch_count=prefetch)) if prefetch else b""
    arguments = {"x-stream-offset": offset} if offset else {}
    return qos + wire.frame(wire.METHOD, channel, wire.method("basic.consume", queue=queue, consumer_tag=f"c{channel}", no_ack=no_ack, no_wait=True, arguments=arguments))


def bombs():
    """Batches of a few kilobytes that queues and streams unpack: to 240 MiB, and to 14 MiB."""
    large, medium = bomb(240 * MIB), bomb(14 * MIB)
    out = [Sort(f"bombs of {size}", "sasl", 1, kafka_login("greedy") + produce(topic, [data]), produce(topic, [data]), 1)
           for topic in ("greedy-bombs", "greedy-stream") for size, data in (("240 MiB", large), ("14 MiB", medium))]
    out.append(Sort("readers of a queue of bombs", "amqp", 4, amqp_login("greedy") + consume("greedy-bombs"), pause=2))
    return [*out, Sort("readers of a stream of bombs", "amqp", 4, amqp_login("greedy") + consume("greedy-stream", "first"), pause=2)]


def contents():
    """Messages of 16 MiB without their ends, on 60 channels."""
    def frames(user):
        yield amqp_login(user, 60)
        for channel in range(1, 61):
            yield wire.frame(wire.METHOD, channel, wire.method("basic.publish", routing_key="greedy-queue")) + wire.frame(wire.HEADER, channel, wire.header(16 * MIB))
            part = wire.frame(wire.BODY, channel, bytes(FRAME_MAX - 8))
            yield from [part] * 127
    return [Sort(f"unfinished messages by {user}", "amqp", 2, lambda user=user: frames(user), pause=5) for user in ("nobody", "greedy")]


def transactions():
    """Transactions of 64 MiB a channel that are not committed."""
    def frames():
        yield amqp_login("greedy", 10)
        for channel in range(1, 11):
            yield wire.frame(wire.METHOD, channel, wire.method("tx.select"))
            one = publish(channel, "greedy-queue", bytes(64 << 10))
            yield from [one] * 1000
    return [Sort("transactions", "amqp", 4, frames, pause=5)]


def unsettled():
    """3,000,000 messages that nobody acknowledges."""
    request = produce("greedy-unsettled", [records(20_000, b"x")])
    readers = b"".join(consume("greedy-unsettled", channel=channel, prefetch=0) for channel in range(1, 5))
    return [Sort("messages", "sasl", 1, kafka_login("greedy") + request, request, 2), Sort("who settles nothing", "amqp", 2, amqp_login("greedy", 4) + readers)]


def series():
    """Groups with ten offsets and queues, more each second, and pages of /metrics."""
    def groups(number):
        parts = [{"partition_index": at, "committed_offset": at, "committed_metadata": ""} for at in range(10)]
        return b"".join(kafka("OffsetCommit", 2, {"group_id": f"greedy-{number}-{at}", "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1,
                                                  "topics": [{"name": "greedy-wide", "partitions": parts}]}) for at in range(20))

    def queues(number):
        return b"".join(wire.frame(wire.METHOD, 1, wire.method("queue.declare", queue=f"greedy-{number}-{at}", durable=True)) for at in range(10))
    return [Sort("groups", "sasl", 1, kafka_login("greedy"), groups, 0.5), Sort("queues", "amqp", 1, amqp_login("greedy"), queues, 0.5),
            Sort("pages of metrics", "http", 1, http("admin", "GET", "/metrics"), http("admin", "GET", "/metrics"), 1)]


def logins():
    """Logins and handshakes that begin and do not go on, and heads of requests in drops."""
    half_start = wire.frame(wire.METHOD, 0, wire.method("connection.start-ok", mechanism="PLAIN", response="\0greedy\0", locale="en_US"))[:-10]
    return [
        Sort("silent at a login of Kafka", "sasl", 400, deadline=15), Sort("half a login of Kafka", "sasl", 400, kafka("SaslHandshake", 1, {"mechanism": "PLAIN"}), deadline=15),
        Sort("silent at AMQP", "amqp", 400, deadline=15), Sort("half a login of AMQP", "amqp", 400, wire.GREETING + half_start, deadline=15),
        Sort("half a handshake at Kafka's port", "sasl_ssl", 400, HALF_HELLO, deadline=15), Sort("half a handshake at AMQP's port", "amqps", 400, HALF_HELLO, b"\0", 1, deadline=15),
        Sort("silent at HTTP", "http", 300, deadline=75), Sort("slow heads", "http", 300, b"GET /health HTTP/1.1\r\nX: ", b"x", 1, deadline=75),
    ]


def deaf():
    """Clients that ask and read no answer."""
    listing = kafka("Metadata", 1, {"topics": None}) * 2000
    parts = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": MIB} for at in range(10)]
    fetch = kafka("Fetch", 4, {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10 * MIB, "isolation_level": 0, "topics": [{"topic": "greedy-data", "partitions": parts}]}) * 20
    page = http("greedy", "GET", "/v1/openapi.json") * 500
    return [Sort("deaf to metadata", "sasl", 10, kafka_login("greedy") + listing, reads=False, deadline=60), Sort("deaf to fetches", "sasl", 10, kafka_login("greedy") + fetch, reads=False, deadline=60),
            Sort("deaf to messages", "amqp", 10, amqp_login("greedy") + consume("greedy-unsettled", prefetch=0, no_ack=True), reads=False, deadline=60),
            Sort("deaf to pages", "http", 10, page, reads=False, deadline=60)]


KINDS = {one.__name__: one for one in (announced, slow_requests, fetch_sessions, join_groups, timestamps, repeated_names, descriptions, nested, slow_bodies, bombs, contents,
                                       transactions, unsettled, series, logins, deaf)}


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (20_000, 20_000))
    targets, kind, seconds = json.loads(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    print(json.dumps(Attack(targets, KINDS[kind](), seconds).run()))


if __name__ == "__main__":
    main()
