"""Clients that behave well, one of each protocol in a process of its own: `bystanders.py TARGETS PROTOCOL`, where TARGETS is a JSON object of ports
(`attackers.Node.targets`). On `begin` it forgets, on `end` it prints how long each thing took in milliseconds, also what is still under way; on `stop` it
reads what is left and says what was acknowledged and what was read.

They begin a thing at fixed times, whether the one before has been answered or not, and count from the moment in which the socket took it."""

import collections
import http.client
import json
import select
import socket
import struct
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[0] / "peers"), str(HERE.parents[0] / "amqp/peers")]
sys.dont_write_bytecode = True
import schema
import wire
from attackers_load import amqp_login, http as head_of, kafka, kafka_login
from batch import batch
from client import APIS

RATE = 100
HTTP_RATE = 20
VALUE = 200
# Of what is under way at once; the rest is not begun.
MOST = 2000


class Meter:
    """How long things took, by what they are."""

    def __init__(self):
        self.took, self.under_way, self.lock = collections.defaultdict(list), collections.defaultdict(dict), threading.Lock()

    def begin(self, what, key):
        with self.lock:
            self.under_way[what][key] = time.monotonic()

    def end(self, what, key):
        with self.lock:
            began = self.under_way[what].pop(key, None)
            if began is not None:
                self.took[what].append(time.monotonic() - began)

    def forget(self):
        with self.lock:
            self.took.clear()
            for under_way in self.under_way.values():
                for key in under_way:
                    under_way[key] = time.monotonic()

    def rows(self):
        with self.lock:
            out, instant = {}, time.monotonic()
            for what in self.under_way:
                values = sorted([*self.took[what], *(instant - began for began in self.under_way[what].values())])
                if values:
                    p50, p99 = values[len(values) // 2], values[min(len(values) - 1, len(values) * 99 // 100)]
                    out[what] = {"count": len(values), "p50_ms": round(1000 * p50, 2), "p99_ms": round(1000 * p99, 2), "max_ms": round(1000 * values[-1], 2)}
            return out


class Pipe:
    """A socket that is never waited for; what came is handed on in frames. `length`: of a whole frame by its head."""

    def __init__(self, port, head, length):
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head, self.length, self.data, self.out = head, length, bytearray(), bytearray()

    def send(self, data):
        self.out += data
        self.flush()

    def flush(self):
        self.stream.setblocking(False)
        try:
            while self.out:
                del self.out[:self.stream.send(self.out)]
        except BlockingIOError:
            pass

    def frames(self):
        """Whole frames that have come. Raises ConnectionError when it was closed."""
        self.stream.setblocking(False)
        try:
            while True:
                part = self.stream.recv(1 << 18)
                if not part:
                    raise ConnectionResetError("closed by the broker")
                self.data += part
        except BlockingIOError:
            pass
        while len(self.data) >= self.head and len(self.data) >= (size := self.length(self.data)):
            frame = bytes(self.data[:size])
            del self.data[:size]
            yield frame

    def one(self):
        """The next frame, which is waited for."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for frame in self.frames():
                return frame
            select.select([self.stream], [], [], 0.1)
        raise TimeoutError("no answer in 30 s")


class Bystander:
    """What it has: `acknowledged`, numbers that the broker has confirmed; `read`, those that came, in their order; `faults`, what went wrong."""

    def __init__(self, ports, meter):
        self.ports, self.meter, self.acknowledged, self.read, self.faults, self.ends = ports, meter, [], [], [], False

    def pump(self, pipes, number):
        """Begins a thing each hundredth of a second, and takes answers."""
        began = time.monotonic()
        while not self.ends:
            due = int((time.monotonic() - began) * RATE)
            if number < due and number - len(self.acknowledged) < MOST:
                self.begin(number)
                number += 1
            elif number < due:
                # What could not be begun is not made up for.
                began = time.monotonic() - number / RATE
            self.turn(pipes, max(0.0, began + (number + 1) / RATE - time.monotonic()))
        until = time.monotonic() + 30
        while (len(self.acknowledged) < number or len(self.read) < number) and time.monotonic() < until:
            self.turn(pipes, 0.1)

    def turn(self, pipes, wait):
        readable, _, _ = select.select([pipe.stream for pipe in pipes], [pipe.stream for pipe in pipes if pipe.out], [], wait)
        for pipe in pipes:
            pipe.flush()
            if pipe.stream in readable:
                for frame in pipe.frames():
                    self.take(pipe, frame)

    def report(self):
        lost = sorted(set(self.acknowledged) - set(self.read))
        ordered = all(one < other for one, other in zip(self.read, self.read[1:]))
        return {"acknowledged": len(self.acknowledged), "read": len(self.read), "lost": len(lost), "in_order_and_once": ordered, "faults": self.faults[:5]}


class Kafka(Bystander):
    """Produces single records, and reads them by long polls of another connection."""

    def run(self):
        def length(data):
            return 4 + struct.unpack_from(">i", data)[0]
        self.writer, self.reader = (Pipe(self.ports["sasl"], 4, length) for _ in range(2))
        for pipe in (self.writer, self.reader):
            pipe.send(kafka_login("good"))
            answers = [pipe.one(), pipe.one()]
            if any(struct.unpack_from(">h", answer, 8)[0] for answer in answers):
                raise RuntimeError("the login failed")
        self.offset = 0
        self.fetch()
        self.pump([self.writer, self.reader], 0)

    def begin(self, number):
        value = struct.pack(">q", number) + bytes(VALUE - 8)
        parts = [{"index": 0, "records": batch([value], first=int(time.time() * 1000))}]
        self.writer.send(kafka("Produce", 7, {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": "good-topic", "partition_data": parts}]}, number))
        self.meter.begin("Kafka produce, to its answer", number)
        self.meter.begin("Kafka produce, to its fetch", number)

    def fetch(self):
        parts = [{"partition": 0, "fetch_offset": self.offset, "partition_max_bytes": 1 << 20}]
        self.reader.send(kafka("Fetch", 4, {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
                                            "topics": [{"topic": "good-topic", "partitions": parts}]}))

    def take(self, pipe, frame):
        if pipe is self.writer:
            number, = struct.unpack_from(">i", frame, 4)
            error, = struct.unpack_from(">h", frame, 8 + 4 + 2 + len("good-topic") + 4 + 4)
            self.meter.end("Kafka produce, to its answer", number)
            if error:
                self.faults.append(f"produce: error {error}")
            else:
                self.acknowledged.append(number)
            return
        reader = schema.Reader(frame)
        reader.at = 8
        answer = schema.decode(APIS["Fetch"].response, reader, 4, False)
        part = answer["responses"][0]["partitions"][0]
        if part["error_code"]:
            self.faults.append(f"fetch: error {part['error_code']}")
        data, at = part["records"] or b"", 0
        while at + 61 <= len(data):
            base, size = struct.unpack_from(">qi", data, at)
            if at + 12 + size > len(data):
                break
            at += 12 + size
            # Behind the value there is the number of headers, none.
            number, = struct.unpack_from(">q", data, at - 1 - VALUE)
            self.read.append(number)
            self.meter.end("Kafka produce, to its fetch", number)
            self.offset = base + 1
        self.fetch()


class Amqp(Bystander):
    """Publishes with confirms to a durable queue, and consumes with acknowledgements on another connection."""

    def run(self):
        def length(data):
            return 8 + struct.unpack_from(">I", data, 3)[0]
        self.publisher, self.consumer = (Pipe(self.ports["amqp"], 7, length) for _ in range(2))
        for pipe, more in ((self.publisher, [wire.method("confirm.select")]),
                           (self.consumer, [wire.method("basic.qos", prefetch_count=200), wire.method("basic.consume", queue="good-queue", consumer_tag="c")])):
            pipe.send(amqp_login("good") + b"".join(wire.frame(wire.METHOD, 1, one) for one in more))
            # start, tune, open-ok of the connection and the channel, and of the others.
            for _ in range(4 + len(more)):
                pipe.one()
        self.first = 1
        self.pump([self.publisher, self.consumer], 0)

    def begin(self, number):
        body = struct.pack(">q", number) + bytes(VALUE - 8)
        parts = [(wire.METHOD, wire.method("basic.publish", routing_key="good-queue")), (wire.HEADER, wire.header(len(body), delivery_mode=2)), (wire.BODY, body)]
        self.publisher.send(b"".join(wire.frame(kind, 1, part) for kind, part in parts))
        self.meter.begin("AMQP publish, to its confirm", number)
        self.meter.begin("AMQP publish, to its delivery", number)

    def take(self, pipe, frame):
        if frame[0] == wire.BODY:
            number, = struct.unpack_from(">q", frame, 7)
            self.read.append(number)
            self.meter.end("AMQP publish, to its delivery", number)
            return self.consumer.send(wire.frame(wire.METHOD, 1, wire.method("basic.ack", delivery_tag=len(self.read))))
        if frame[0] != wire.METHOD:
            return None
        name, values = wire.decode(frame[7:-1])
        if name in ("basic.ack", "basic.nack") and pipe is self.publisher:
            tag = values["delivery-tag"]
            for one in range(self.first if values["multiple"] else tag, tag + 1):
                if one - 1 in self.meter.under_way["AMQP publish, to its confirm"]:
                    self.meter.end("AMQP publish, to its confirm", one - 1)
                    (self.acknowledged if name == "basic.ack" else self.faults).append(one - 1)
            if values["multiple"]:
                self.first = tag + 1
        elif name.endswith(".close"):
            raise ConnectionResetError(f"{name}: {values['reply-text']}")
        return None


class Http(Bystander):
    """Asks after the health on a connection of its own each time, reads and writes a topic on one that stays."""

    def run(self):
        threads = [threading.Thread(target=self.every, args=one, daemon=True) for one in
                   (("HTTP /health", self.health), ("HTTP GET /v1/topics/…", self.look), ("HTTP POST /v1/topics/…/records", self.write))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answer = json.loads(self.exchange(self.link(), "GET", "/v1/topics/good-http/records?limit=1&order=newest"))
        self.read = list(range(answer["records"][0]["offset"] + 1)) if answer["records"] else []

    def every(self, what, ask):
        self.links, number, following = {}, 0, time.monotonic()
        while not self.ends:
            self.meter.begin(what, number)
            try:
                ask(number)
            except (OSError, http.client.HTTPException, RuntimeError) as error:
                self.faults.append(f"{what}: {type(error).__name__}: {error}"[:200])
                self.links.pop(ask, None)
            self.meter.end(what, number)
            number += 1
            following = max(following + 1 / HTTP_RATE, time.monotonic())
            time.sleep(max(0, following - time.monotonic()))

    def link(self):
        return http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=30)

    def exchange(self, link, method, path, body=None):
        head = dict(line.split(": ", 1) for line in head_of("good", method, path).decode().split("\r\n")[2:] if line)
        link.request(method, path, body, {**head, "Content-Type": "application/json"})
        answer = link.getresponse()
        data = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:100]}")
        return data

    def health(self, _):
        link = self.link()
        try:
            link.request("GET", "/health/ready")
            answer = link.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"status {answer.status}")
        finally:
            link.close()

    def look(self, _):
        self.exchange(self.links.setdefault(self.look, self.link()), "GET", "/v1/topics/good-http")

    def write(self, number):
        self.exchange(self.links.setdefault(self.write, self.link()), "POST", "/v1/topics/good-http/records", json.dumps({"value": str(number)}))
        self.acknowledged.append(len(self.acknowledged))


def main():
    meter = Meter()
    bystander = {"kafka": Kafka, "amqp": Amqp, "http": Http}[sys.argv[2]](json.loads(sys.argv[1]), meter)

    def run():
        try:
            bystander.run()
        except Exception as error:
            bystander.faults.insert(0, f"{type(error).__name__}: {error}")
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    for line in sys.stdin:
        word = line.strip()
        if word == "begin":
            meter.forget()
            print("{}", flush=True)
        elif word == "end":
            print(json.dumps({"rows": meter.rows(), "faults": bystander.faults[:5]}), flush=True)
        else:
            bystander.ends = True
            thread.join(60)
            print(json.dumps(bystander.report()), flush=True)
            return


if __name__ == "__main__":
    main()
