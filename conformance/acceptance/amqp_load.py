"""AMQP clients that do little themselves: frames built by hand, many messages a call. Used by the lines about queues."""

import socket
import struct
import threading
import time

ACK, NACK, DELIVER = (60, 80), (60, 120), (60, 60)


def short(text):
    return bytes([len(text)]) + text.encode()


def method(channel, number, arguments=b""):
    payload = struct.pack(">HH", *number) + arguments
    return struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce"


def message(exchange, key, body):
    """A persistent message on channel 1; at most one frame of body."""
    header = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)
    return b"".join((method(1, (60, 40), b"\0\0" + short(exchange) + short(key) + b"\0"), struct.pack(">BHI", 2, 1, len(header)), header, b"\xce",
                     struct.pack(">BHI", 3, 1, len(body)), body, b"\xce"))


class Link:
    """A connection with channel 1 open."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.expect((10, 10))
        secret = b"\0guest\0guest"
        self.socket.sendall(method(0, (10, 11), b"\0\0\0\0" + short("PLAIN") + struct.pack(">I", len(secret)) + secret + short("en_US")))
        tune = self.expect((10, 30))
        self.socket.sendall(method(0, (10, 31), tune[:6] + b"\0\0"))
        self.call((10, 40), (10, 41), short("/") + b"\0\0", channel=0)
        self.call((20, 10), (20, 11), b"\0")

    def call(self, number, answer, arguments=b"", channel=1):
        self.socket.sendall(method(channel, number, arguments))
        return self.expect(answer)

    def expect(self, number):
        while True:
            for kind, payload in self.frames():
                if kind == 1 and struct.unpack(">HH", payload[:4]) == number:
                    return bytes(payload[4:])
                raise RuntimeError(f"unexpected {bytes(payload[:80])!r}")

    def frames(self):
        """Whole frames of what the next read brings."""
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise ConnectionError("closed by the broker")
        self.buffer += piece
        at, found = 0, []
        while len(self.buffer) - at >= 8:
            kind, _, length = struct.unpack_from(">BHI", self.buffer, at)
            if len(self.buffer) - at < length + 8:
                break
            found.append((kind, bytes(memoryview(self.buffer)[at + 7:at + 7 + min(length, 256)])))
            at += length + 8
        del self.buffer[:at]
        return found

    def close(self):
        self.socket.close()


class Publisher:
    """Publishes bodies that begin with their number, at most `window` of them without a confirmation."""

    def __init__(self, address, exchange, keys, body_bytes, window, first=0):
        self.link, self.exchange, self.keys = Link(address), exchange, keys
        self.link.call((85, 10), (85, 11), b"\0")
        self.filler, self.window = b"x" * (body_bytes - 20), window
        self.first, self.sent, self.confirmed = first, 0, 0
        self.latencies, self.times, self.failure = [], [], None
        self.changed = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            while True:
                for kind, payload in self.link.frames():
                    number = struct.unpack(">HH", payload[:4])
                    if kind != 1 or number != ACK:
                        raise RuntimeError(f"instead of a confirmation: {payload[:80]!r}")
                    tag, now = struct.unpack(">Q", payload[4:12])[0], time.perf_counter()
                    with self.changed:
                        # This broker confirms in order.
                        self.latencies += [now - sent for sent in self.times[self.confirmed:tag]]
                        self.confirmed = max(self.confirmed, tag)
                        self.changed.notify()
        except Exception as failure:
            with self.changed:
                self.failure = failure
                self.changed.notify()

    def publish(self, count, together=32):
        """Sends `count` more and waits until all are confirmed; ends early, and tells, when the broker goes."""
        end = self.sent + count
        while self.sent < end:
            with self.changed:
                self.changed.wait_for(lambda: self.failure or self.sent - self.confirmed < self.window)
                if self.failure:
                    raise self.failure
            self.send(min(together, end - self.sent))
        self.wait()

    def send(self, amount):
        """Sends these, whatever is unconfirmed."""
        numbers = range(self.first + self.sent, self.first + self.sent + amount)
        frames = b"".join(message(self.exchange, self.keys[n % len(self.keys)], b"%020d" % n + self.filler) for n in numbers)
        self.times += [time.perf_counter()] * amount
        self.sent += amount
        self.link.socket.sendall(frames)

    def wait(self):
        """Until all is confirmed."""
        with self.changed:
            self.changed.wait_for(lambda: self.failure or self.confirmed >= self.sent)
            if self.failure:
                raise self.failure


class Consumer(threading.Thread):
    """Takes what queues have and acknowledges it, 20 at once."""

    def __init__(self, address, queues):
        super().__init__(daemon=True)
        self.link, self.taken = Link(address), 0
        self.link.call((60, 10), (60, 11), struct.pack(">IHB", 0, 200, 0))
        for queue in queues:
            self.link.socket.sendall(method(1, (60, 20), b"\0\0" + short(queue) + short("") + b"\0" + b"\0\0\0\0"))

    def run(self):
        try:
            while True:
                tag = None
                for kind, payload in self.link.frames():
                    if kind == 1 and struct.unpack(">HH", payload[:4]) == DELIVER:
                        at = 5 + payload[4]
                        tag = struct.unpack(">Q", payload[at:at + 8])[0]
                        self.taken += 1
                if tag is not None:
                    self.link.socket.sendall(method(1, ACK, struct.pack(">QB", tag, 1)))
        except (ConnectionError, OSError):
            pass
