"""A broker under pressure, and clients that stay with it. Arguments: the binary.

Full disk: the data folder is a small file system of its own. One connection of pika publishes with confirms and consumes; it does not take
anything before it is told that it is blocked. Then it works off what it has published, which gives the disk space, and goes on. A publisher of
py-amqp, whose confirm does not come, is told as well and gets it in the end. Everything that was confirmed comes, once and in order.

Small memory: one connection publishes many times the memory that the broker may use, and only then begins to consume, while it goes on.

Slow consumers: each of many queues has more than its consumer takes at a time. What the broker has read for them stays within its memory, and all
of it comes in the end, in order."""

import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import amqp
import pika

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker

PATIENCE = 60
# A file system that goes with the process: nobody else sees it. The folder is the first argument.
OWN_DISK = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=24m none "$0" && exec "$@"']
FLAGS = ["--set", "mainstem.segment.bytes=1048576", "--set", "mainstem.shards=2"]


class Worker:
    """One connection that publishes numbered messages with confirms, as long as it is not blocked, and consumes them as soon as `takes` says so."""

    def __init__(self, address, queue, size, total, takes, window=100):
        self.queue, self.padding, self.total, self.takes, self.window = queue, "x" * size, total, takes, window
        self.sent, self.open, self.refused, self.got, self.blocked, self.reasons, self.failure = 0, set(), [], [], False, [], None
        self.consumes = False
        host, port = address.rsplit(":", 1)
        self.until = time.time() + PATIENCE
        self.connection = pika.SelectConnection(
            pika.ConnectionParameters(host, int(port), heartbeat=10), on_open_callback=lambda connection: connection.channel(on_open_callback=self.begin),
            on_open_error_callback=lambda _c, error: self.fail(error), on_close_callback=self.closed)
        self.connection.add_on_connection_blocked_callback(self.on_blocked)
        self.connection.add_on_connection_unblocked_callback(self.on_unblocked)

    def fail(self, why):
        self.failure = self.failure or str(why)
        self.connection.ioloop.stop()

    def closed(self, _connection, reason):
        if not isinstance(reason, pika.exceptions.ConnectionClosedByClient):
            self.failure = self.failure or str(reason)
        self.connection.ioloop.stop()

    def on_blocked(self, _connection, method):
        self.blocked = True
        self.reasons.append(method.method.reason)

    def on_unblocked(self, _connection, _method):
        self.blocked = False

    def begin(self, channel):
        self.channel = channel
        channel.confirm_delivery(self.confirmed)
        channel.basic_qos(prefetch_count=50)
        channel.queue_declare(self.queue, durable=True, callback=lambda _frame: self.turn())

    def confirmed(self, frame):
        tag, multiple = frame.method.delivery_tag, frame.method.multiple
        settled = {one for one in self.open if one <= tag} if multiple else {tag}
        self.open -= settled
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self.refused.extend(settled)

    def turn(self):
        if time.time() > self.until or self.refused:
            return self.fail(f"{self.sent} sent, {len(self.open)} unconfirmed, {len(self.refused)} refused, {len(self.got)} got, blocked: {self.blocked}")
        if not self.consumes and self.takes(self):
            self.consumes = True
            self.channel.basic_consume(self.queue, self.take)
        while not self.blocked and self.sent < self.total and len(self.open) < self.window:
            self.sent += 1
            self.open.add(self.sent)
            self.channel.basic_publish("", self.queue, f"{self.sent} {self.padding}".encode(), pika.BasicProperties(delivery_mode=2))
        if self.sent == self.total == len(self.got) and not self.open:
            return self.connection.close()
        self.connection.ioloop.call_later(0.001, self.turn)

    def take(self, channel, method, _properties, body):
        self.got.append((int(body.split()[0]), method.redelivered))
        channel.basic_ack(method.delivery_tag)

    def work(self):
        self.connection.ioloop.start()
        assert not self.failure, self.failure
        assert self.got == [(number, False) for number in range(1, self.total + 1)], "each comes once and in order"


class Patient(threading.Thread):
    """A publisher of another client that waits for one confirm."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.blocked, self.unblocked, self.confirmed, self.failure = address, [], 0, False, None

    def run(self):
        try:
            connection = amqp.Connection(self.address, confirm_publish=True, on_blocked=self.blocked.append, on_unblocked=self.free)
            connection.connect()
            channel = connection.channel()
            channel.queue_declare("patient", durable=True, auto_delete=False)
            channel.basic_publish_confirm(amqp.Message("y" * 100_000, delivery_mode=2), routing_key="patient")
            self.confirmed = True
            until = time.time() + 10
            while self.unblocked < len(self.blocked) and time.time() < until:
                connection.drain_events(timeout=10)
            connection.close()
        except Exception as error:
            self.failure = error

    def free(self):
        self.unblocked += 1


def full_disk(binary, folder):
    data = f"{folder}/data"
    Path(data).mkdir()
    broker = Broker(binary, data, FLAGS).start([*OWN_DISK, data])
    try:
        patient = Patient(broker.amqp)

        def takes(worker):
            if worker.reasons and not patient.ident:
                patient.start()
            return bool(patient.ident and (patient.blocked or patient.failure))

        worker = Worker(broker.amqp, "work", 10_000, 4_000, takes)
        worker.work()
        patient.join(PATIENCE)
        assert not patient.failure, patient.failure
        assert patient.confirmed and patient.blocked and patient.unblocked == len(patient.blocked), vars(patient)
        # Beside that, a disk that has space again may be slow to take what has waited.
        assert "low on disk" in worker.reasons, worker.reasons
        assert "mainstem_amqp_blocked_connections 0" in broker.metrics()
        print(f"full disk: blocked {len(worker.reasons)} times, {worker.total} messages of 10 KB through 24 MB")
    finally:
        broker.end(signal.SIGTERM)


def small_memory(binary, folder):
    budget = 256
    broker = Broker(binary, f"{folder}/memory", ["--memory", f"{budget}MiB", "--durability", "memory"]).start()
    try:
        worker = Worker(broker.amqp, "work", 200_000, 3_000, lambda worker: worker.sent >= 2_000, window=50)
        worker.work()
        resident = int(re.search(r"^mainstem_memory_resident_bytes (\d+)", broker.metrics(), re.M)[1])
        assert resident < budget << 20, f"{resident >> 20} MiB resident"
        print(f"small memory: 600 MB through a broker of {budget} MiB, {resident >> 20} MiB resident")
    finally:
        broker.end(signal.SIGTERM)


def slow_consumers(binary, folder):
    budget, queues, each, size = 128, 1000, 10, 8_000
    broker = Broker(binary, f"{folder}/slow", ["--memory", f"{budget}MiB", "--durability", "memory"]).start()
    try:
        host, port = broker.amqp.rsplit(":", 1)
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        channel = connection.channel()
        names = [f"slow-{number}" for number in range(queues)]
        for name in names:
            channel.queue_declare(name, durable=True)
        for number in range(each):
            for name in names:
                channel.basic_publish("", name, f"{number} {'x' * size}".encode())
        got, open_tags, most = {name: [] for name in names}, [], 0

        def resident():
            return int(re.search(r"^mainstem_memory_resident_bytes (\d+)", broker.metrics(), re.M)[1]) >> 20

        def take(_channel, method, _properties, body):
            got[method.consumer_tag].append(int(body.split(b" ", 1)[0]))
            open_tags.append(method.delivery_tag)

        channel.basic_qos(prefetch_count=1)
        for name in names:
            channel.basic_consume(name, take, consumer_tag=name)
        until = time.time() + PATIENCE
        for taken in range(1, each + 1):
            while sum(map(len, got.values())) < taken * queues and time.time() < until:
                connection.process_data_events(0.1)
            most = max(most, resident())
            for tag in open_tags:
                channel.basic_ack(tag)
            open_tags.clear()
        assert all(one == list(range(each)) for one in got.values()), "each comes once and in order"
        assert most < budget, f"{most} MiB resident"
        print(f"slow consumers: {queues * each * size // 1_000_000} MB in {queues} queues, a broker of {budget} MiB, {most} MiB resident")
        connection.close()
    finally:
        broker.end(signal.SIGTERM)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        full_disk(sys.argv[1], scratch)
        small_memory(sys.argv[1], scratch)
        slow_consumers(sys.argv[1], scratch)
