"""Connections over which rows are sent. Each exchange ends with a question that is answered when all before it is done; a connection that the broker
closes is an answer too. It is written and read at once, since a broker stops reading while nobody takes its answers."""

import base64
import http.client
import json
import select
import socket
import struct
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[0] / "peers"), str(HERE.parents[0] / "amqp/peers")]
import client as kafka_client
import wire

WAIT = 60.0
LAST = 0x0C057
BUFFER = 1 << 20
HEAD_MAX = 1 << 16


class Stream:
    """A socket that is written and read at once."""

    def __init__(self, address, wait=WAIT):
        self.socket = socket.create_connection(address, timeout=wait)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wait, self.into = wait, bytearray(BUFFER)

    def pump(self, data, take):
        """Sends `data` and gives what comes to `take`, until that says that it was all (True), or the other side closes. Bytes that came.

        Raises TimeoutError."""
        self.socket.setblocking(False)
        out, came, until = memoryview(data), 0, time.monotonic() + self.wait
        while True:
            left = until - time.monotonic()
            readable, writable, _ = select.select([self.socket], [self.socket] if out else [], [], max(0, left))
            if not readable and not writable:
                raise TimeoutError
            try:
                if writable:
                    out = out[self.socket.send(out[:1 << 18]):]
                if readable:
                    count = self.socket.recv_into(self.into)
                    came += count
                    if count == 0 or take(memoryview(self.into)[:count]):
                        return came
            except BlockingIOError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                return came

    def close(self):
        self.socket.close()


class Frames:
    """Finds frames in what comes, and forgets their bodies. `head`: bytes before the body; `length`: of the whole frame, by its head."""

    def __init__(self, head, length, is_last):
        self.head, self.length, self.is_last = head, length, is_last
        self.data, self.skip = bytearray(), 0

    def take(self, chunk):
        at = 0
        while at < len(chunk):
            if self.skip:
                step = min(self.skip, len(chunk) - at)
                self.skip -= step
                at += step
                continue
            step = min(self.head - len(self.data), len(chunk) - at)
            self.data += chunk[at:at + step]
            at += step
            if len(self.data) == self.head:
                self.skip = self.length(self.data) - self.head
                if self.is_last(self.data):
                    return True
                self.data.clear()
        return False


def kafka_exchange(address, frame, wait=WAIT):
    """One request on a connection of its own; bytes of the answer."""
    probe = struct.pack(">hhih", 18, 0, LAST, -1)
    stream = Stream(address, wait)
    try:
        frames = Frames(8, lambda head: 4 + struct.unpack_from(">i", head)[0], lambda head: struct.unpack_from(">i", head, 4)[0] == LAST)
        return stream.pump(frame + struct.pack(">i", len(probe)) + probe, frames.take)
    finally:
        stream.close()


def kafka_asker(address):
    """A function that asks a broker by plain dicts."""
    link = kafka_client.Connection(address)

    def ask(name, version, body):
        link.request(name, version, body)
        return link.response(name, version)
    ask.close = link.close
    return ask


class Amqp:
    """An AMQP connection with some channels open, and one more for the question at the end."""

    LAST_CHANNEL = 99

    def __init__(self, address, channels=10):
        self.stream = Stream(address)
        opening = wire.GREETING + wire.frame(wire.METHOD, 0, wire.method("connection.start-ok", mechanism="PLAIN", response="\0guest\0guest", locale="en_US"))
        opening += wire.frame(wire.METHOD, 0, wire.method("connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0))
        opening += wire.frame(wire.METHOD, 0, wire.method("connection.open", virtual_host="/"))
        for channel in (*range(1, channels + 1), self.LAST_CHANNEL):
            opening += wire.frame(wire.METHOD, channel, wire.method("channel.open"))
        self.exchange(opening)

    def exchange(self, frames):
        """Bytes of the answers."""
        qos_ok = (60, 11)
        probe = wire.frame(wire.METHOD, self.LAST_CHANNEL, wire.method("basic.qos"))

        def is_last(head):
            kind, channel, _ = struct.unpack_from(">BHI", head)
            return kind == wire.METHOD and (channel, *struct.unpack_from(">HH", head, 7)) in ((self.LAST_CHANNEL, *qos_ok), (0, 10, 50))
        # No frame is shorter than this: bodies of rows have four bytes at least, and heartbeats come only to who asked for them.
        found = Frames(11, lambda head: struct.unpack_from(">I", head, 3)[0] + 8, is_last)
        return self.stream.pump(frames + probe, found.take)

    def close(self):
        self.stream.close()


def amqp_opening(address, frames):
    """On a connection that has not begun: what it begins with, until it is closed or asked for the next step."""
    stream = Stream(address)
    try:
        def is_tune_or_close(head):
            return struct.unpack_from(">HH", head, 7) in ((10, 30), (10, 50))
        return stream.pump(frames, Frames(11, lambda head: struct.unpack_from(">I", head, 3)[0] + 8, is_tune_or_close).take)
    finally:
        stream.close()


class Http:
    """A connection to the administration port."""

    def __init__(self, port, user, password, wait=WAIT):
        self.port, self.wait, self.link = port, wait, None
        key = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.headers = {"Authorization": f"Basic {key}", "Content-Type": "application/json"}

    def ask(self, method, path, body=""):
        """Status and body."""
        for last in (False, True):
            fresh = self.link is None
            self.link = self.link or http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.wait)
            try:
                self.link.request(method, path, body.encode() or None, self.headers)
                answer = self.link.getresponse()
                data = answer.read()
                if answer.will_close:
                    self.close()
                return answer.status, data
            except (http.client.HTTPException, ConnectionError):
                self.close()
                # A refusal before the body was read closes the connection; one that was there may have ended meanwhile.
                if last or fresh:
                    return 0, b""
        return 0, b""

    def json(self, method, path, body=None):
        status, data = self.ask(method, path, "" if body is None else json.dumps(body))
        if status not in (200, 201, 204):
            raise RuntimeError(f"{method} {path}: {status} {data[:200]!r}")
        return json.loads(data) if data else None

    def close(self):
        if self.link:
            self.link.close()
        self.link = None
