"""A client that asks for much and reads nothing does not hold up the end of a broker: not beyond `mainstem.shutdown.timeout.ms`, and not at all after a second
signal. What was acknowledged is there afterwards. Argument: the binary."""

import signal
import socket
import struct
import sys
import tempfile
import time

from confluent_kafka import Producer

from load import Broker

COUNT, VALUE = 64, b"x" * 900_000
TIMEOUT_MS = 2500


def fill(broker):
    done = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 10_000})
    for _ in range(COUNT):
        producer.produce("large", VALUE, on_delivery=lambda error, _: done.append(error))
    producer.flush(20)
    if done != [None] * COUNT:
        raise RuntimeError(f"{len(done)} of {COUNT} are acknowledged")


def ask(broker):
    """Fetch version 4 of everything, whose answer nobody reads."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", broker.kafka))
    topic = struct.pack(">h", 5) + b"large" + struct.pack(">i", 1) + struct.pack(">iqi", 0, 0, 50 << 20)
    request = struct.pack(">hhih", 1, 4, 7, -1) + struct.pack(">iiii", -1, 100, 1, 50 << 20) + b"\0" + struct.pack(">i", 1) + topic
    one.sendall(struct.pack(">i", len(request)) + request)
    time.sleep(0.5)
    return one


def ended(broker, began, most):
    status = broker.process.wait(20)
    took = time.time() - began
    if took > most:
        raise RuntimeError(f"it took {took:.1f} s")
    return status, took


def main():
    with tempfile.TemporaryDirectory(prefix="mainstem-stubborn-") as scratch:
        broker = Broker(sys.argv[1], f"{scratch}/data", ["--set", f"mainstem.shutdown.timeout.ms={TIMEOUT_MS}"]).start()
        try:
            fill(broker)
            clients = [ask(broker)]
            began = time.time()
            broker.process.send_signal(signal.SIGTERM)
            status, alone = ended(broker, began, TIMEOUT_MS / 1000 + 0.5)
            if status != 0 or alone < 1:
                raise RuntimeError(f"status {status} after {alone:.1f} s: the client was not waited for, or too long")
            broker.start()
            clients.append(ask(broker))
            broker.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            began = time.time()
            broker.process.send_signal(signal.SIGTERM)
            status, twice = ended(broker, began, 0.5)
            if status != 1 or "a second signal" not in "\n".join(broker.log_lines()):
                raise RuntimeError(f"status {status} after a second signal")
            broker.start()
            fill(broker)
            print(f"{alone:.1f} s with a client that reads nothing, {twice:.2f} s after a second signal")
        finally:
            broker.end(signal.SIGKILL)


main()
