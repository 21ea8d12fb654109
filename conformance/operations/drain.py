"""The end of a broker that many are waiting on: long polls of Kafka clients are answered, AMQP consumers are told 320, what was acknowledged is
there after a start, and all is over in time. Arguments: the binary, long polls, AMQP consumers, `signal` or `verb`, most seconds."""

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import pika
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from load import Broker, check, make, pika_connection, start_writers, stop

LIBRARY_CONSUMERS = 20
WAIT_MS = 60_000


def frame(api, version, body):
    request = struct.pack(">hhi", api, version, 7) + struct.pack(">h", 5) + b"drain" + body
    return struct.pack(">i", len(request)) + request


def fetch():
    """Fetch version 4 from far behind nothing: a topic without records, so that it waits."""
    topic = struct.pack(">h", 5) + b"quiet" + struct.pack(">i", 1) + struct.pack(">iqi", 0, 0, 1 << 20)
    return frame(1, 4, struct.pack(">iiii", -1, WAIT_MS, 1, 1 << 20) + b"\0" + struct.pack(">i", 1) + topic)


class Polls:
    """Long polls, each on a connection of its own."""

    def __init__(self, broker, count):
        self.sockets = []
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", broker.kafka))
            one.sendall(fetch())
            self.sockets.append(one)

    def answered(self):
        """How many are answered, without error, and then closed."""
        good = 0
        for one in self.sockets:
            one.settimeout(10)
            data = b""
            try:
                while piece := one.recv(65536):
                    data += piece
            except OSError:
                continue
            # Length, correlation id, throttle time, one topic, its name, one partition, its number, the error.
            good += len(data) > 35 and struct.unpack(">i", data[4:8])[0] == 7 and data[31:33] == b"\0\0"
        return good


class Waiting(threading.Thread):
    """An AMQP consumer that gets nothing; `told` is the code with which the broker closes."""

    def __init__(self, broker, ready):
        super().__init__(daemon=True)
        self.broker, self.ready, self.told = broker, ready, None

    def run(self):
        connection = pika_connection(self.broker)
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_consume(queue, lambda *_: None)
        self.ready.release()
        try:
            channel.start_consuming()
        except pika.exceptions.ConnectionClosed as closed:
            self.told = closed.reply_code
        except pika.exceptions.AMQPError as error:
            self.told = type(error).__name__


def library(broker):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"g{os.urandom(4).hex()}", "auto.offset.reset": "earliest",
                         "fetch.wait.max.ms": WAIT_MS, "socket.timeout.ms": WAIT_MS + 10_000})
    consumer.subscribe(["quiet"])
    consumer.poll(0.01)
    return consumer


def main():
    binary, polls, consumers, how, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
    with tempfile.TemporaryDirectory(prefix="mainstem-drain-") as scratch:
        broker = Broker(binary, f"{scratch}/data", ["--set", "group.initial.rebalance.delay.ms=60000"]).start()
        try:
            make(broker)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic("quiet", 1)])["quiet"].result(10)
            ready = threading.Semaphore(0)
            waiting = [Waiting(broker, ready) for _ in range(consumers)]
            for one in waiting:
                one.start()
            for _ in waiting:
                if not ready.acquire(timeout=30):
                    raise RuntimeError("consumers do not come")
            # Members whose JoinGroup waits for others: the first rebalance is a minute away.
            members = [library(broker) for _ in range(min(LIBRARY_CONSUMERS, polls))]
            writers = start_writers(broker)
            long_polls = Polls(broker, polls)
            time.sleep(2)
            began = time.time()
            if how == "verb":
                subprocess.run([binary, "drain", "--admin", f"127.0.0.1:{broker.admin}"], check=True, capture_output=True, timeout=30)
                status = broker.end(0)
            else:
                status = broker.end(signal.SIGTERM)
            took = time.time() - began
            answered = long_polls.answered()
            for one in waiting:
                one.join(10)
            told = [one.told for one in waiting]
            stop(writers)
            if status != 0:
                raise RuntimeError(f"status {status}: {broker.log_lines()[-3:]}")
            if took > most:
                raise RuntimeError(f"it took {took:.1f} s")
            if answered != polls:
                raise RuntimeError(f"{answered} of {polls} long polls were answered")
            if any(code != 320 for code in told):
                raise RuntimeError(f"consumers were told {sorted(set(map(str, told)))}")
            broker.start()
            check(broker, {writer.name: writer.acknowledged for writer in writers})
            count = sum(len(writer.acknowledged) for writer in writers)
            print(f"{took:.2f} s with {polls} long polls, {len(members)} members that join, {consumers} AMQP consumers; {count} acknowledged, all there")
        finally:
            broker.end(signal.SIGKILL)


try:
    main()
except Exception as error:
    print(str(error) or type(error).__name__, file=sys.stderr, flush=True)
    os._exit(1)
# Members that wait for a group which is gone take their time to leave it.
sys.stdout.flush()
os._exit(0)
