"""A small AMQP 0-9-1 client for one thread: many channels, nothing happens unasked. A channel that the broker closes raises `Refused`,
a connection that is gone `Gone`, an answer that does not come `Late`."""

import collections
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "amqp/peers"))
import wire

PATIENCE_S = 30.0
BODY_MAX = 131_072 - 8
CAPABILITIES = {"authentication_failure_close": True, "consumer_cancel_notify": True, "basic.nack": True, "connection.blocked": True}


class Gone(Exception):
    """The connection has ended."""


class Late(Exception):
    """The broker has not answered for `PATIENCE_S`."""


class Refused(Exception):
    """The broker has closed the channel or the connection, and says why."""

    def __init__(self, code, text):
        super().__init__(f"{code} {text}")
        self.code = code


Delivery = collections.namedtuple("Delivery", "tag redelivered properties body consumer")


class Connection:
    def __init__(self, address, user="guest", password="guest"):
        host, port = address.rsplit(":", 1)
        try:
            self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        except OSError:
            raise Gone from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.patience = PATIENCE_S
        self.data, self.channels, self.ended, self.inbox = bytearray(), {}, False, collections.deque()
        self.send_raw(wire.GREETING)
        self.expect("connection.start")
        self.send(0, "connection.start-ok", client_properties={"capabilities": CAPABILITIES}, mechanism="PLAIN",
                  response=f"\0{user}\0{password}", locale="en_US")
        self.expect("connection.tune")
        self.send(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0)
        self.send(0, "connection.open", virtual_host="/")
        self.expect("connection.open-ok")

    def channel(self, confirms=False):
        number = next(number for number in range(1, 2048) if number not in self.channels)
        channel = self.channels[number] = Channel(self, number)
        channel.call("channel.open")
        if confirms:
            channel.call("confirm.select")
        return channel

    def send_raw(self, data):
        try:
            self.socket.settimeout(self.patience)
            self.socket.sendall(data)
        except TimeoutError:
            raise Late("the broker does not read") from None
        except OSError:
            # What the broker has said before is read first.
            pass

    def send(self, number, name, **values):
        self.send_raw(wire.frame(wire.METHOD, number, wire.method(name, **values)))

    def expect(self, name, until=None):
        until = until or time.monotonic() + self.patience
        while not self.inbox:
            self.pump(until)
        found, fields = self.inbox.popleft()
        assert found == name, f"{found} {fields} instead of {name}"
        return fields

    def frame(self, until):
        while len(self.data) < 7 or len(self.data) < 8 + struct.unpack_from(">I", self.data, 3)[0]:
            if self.ended:
                raise Gone
            left = until - time.monotonic()
            if left <= 0:
                raise Late("no answer")
            self.socket.settimeout(left)
            try:
                more = self.socket.recv(1 << 18)
            except TimeoutError:
                raise Late("no answer") from None
            except OSError:
                more = b""
            if not more:
                self.ended = True
                raise Gone
            self.data += more
        kind, number, length = struct.unpack_from(">BHI", self.data)
        payload = bytes(self.data[7:7 + length])
        assert self.data[7 + length] == wire.END
        del self.data[:8 + length]
        return kind, number, payload

    def pump(self, until):
        """Takes one frame to where it belongs."""
        kind, number, payload = self.frame(until)
        if kind == wire.HEARTBEAT:
            return
        if number:
            if number in self.channels:
                self.channels[number].take(kind, payload)
            return
        name, fields = wire.decode(payload)
        if name == "connection.close":
            self.send(0, "connection.close-ok")
            self.ended = True
            raise Refused(fields["reply-code"], fields["reply-text"])
        if name not in ("connection.blocked", "connection.unblocked"):
            self.inbox.append((name, fields))

    def close(self):
        """As a client that is done: nothing is left behind."""
        try:
            self.send(0, "connection.close", reply_code=200)
            self.expect("connection.close-ok")
        except (Gone, Late, Refused):
            pass
        self.drop()

    def drop(self):
        """As a client whose machine is gone."""
        self.ended = True
        self.socket.close()


class Channel:
    def __init__(self, connection, number):
        self.connection, self.number = connection, number
        self.inbox, self.deliveries, self.half = collections.deque(), collections.deque(), None
        self.sent, self.acked, self.nacked, self.open, self.cancelled = 0, set(), set(), set(), set()

    def take(self, kind, payload):
        if kind == wire.METHOD:
            name, fields = wire.decode(payload)
            if name in ("basic.deliver", "basic.get-ok", "basic.return"):
                self.half = [name, fields, None, None, bytearray()]
            elif name in ("basic.ack", "basic.nack"):
                tag = fields["delivery-tag"]
                those = {one for one in self.open if one <= tag} if fields["multiple"] else {tag}
                self.open -= those
                (self.acked if name == "basic.ack" else self.nacked).update(those)
            elif name == "basic.cancel":
                self.cancelled.add(fields["consumer-tag"])
            elif name == "channel.close":
                self.connection.send(self.number, "channel.close-ok")
                del self.connection.channels[self.number]
                self.inbox.append((name, fields))
            else:
                self.inbox.append((name, fields))
            return
        half = self.half
        if kind == wire.HEADER:
            half[2], half[3] = wire.properties(payload)
        else:
            half[4] += payload
        if len(half[4]) >= half[2]:
            self.half = None
            name, fields, _, properties, body = half
            if name == "basic.deliver":
                self.deliveries.append(Delivery(fields["delivery-tag"], fields["redelivered"], properties, bytes(body), fields["consumer-tag"]))
            elif name == "basic.get-ok":
                self.inbox.append((name, Delivery(fields["delivery-tag"], fields["redelivered"], properties, bytes(body), None)))

    def send(self, name, **values):
        self.connection.send(self.number, name, **values)

    def answer(self, until=None):
        until = until or time.monotonic() + self.connection.patience
        while not self.inbox:
            self.connection.pump(until)
        name, fields = self.inbox.popleft()
        if name == "channel.close":
            raise Refused(fields["reply-code"], fields["reply-text"])
        return name, fields

    def call(self, name, **values):
        self.send(name, **values)
        found, fields = self.answer()
        assert found == f"{name}-ok", f"{found} {fields} instead of {name}-ok"
        return fields

    def publish(self, exchange, key, body, **properties):
        """The number that its confirm has; nothing is waited for."""
        data = wire.frame(wire.METHOD, self.number, wire.method("basic.publish", exchange=exchange, routing_key=key))
        data += wire.frame(wire.HEADER, self.number, wire.header(len(body), delivery_mode=2, **properties))
        for at in range(0, len(body), BODY_MAX):
            data += wire.frame(wire.BODY, self.number, body[at:at + BODY_MAX])
        self.sent += 1
        self.open.add(self.sent)
        self.connection.send_raw(data)
        return self.sent

    def confirms(self):
        """Waits until all that was published has its confirm."""
        until = time.monotonic() + self.connection.patience
        while self.open:
            self.connection.pump(until)
            if self.inbox:
                self.answer()

    def get_all(self, queue, at_most=1 << 30, no_ack=False, together=50):
        """Messages, until there are none or enough; none is acknowledged but for `no_ack`."""
        found = []
        while len(found) < at_most:
            asked = min(together, at_most - len(found))
            one = wire.frame(wire.METHOD, self.number, wire.method("basic.get", queue=queue, no_ack=no_ack))
            self.connection.send_raw(one * asked)
            empty = False
            for _ in range(asked):
                name, fields = self.answer()
                if name == "basic.get-empty":
                    empty = True
                else:
                    assert name == "basic.get-ok", name
                    found.append(fields)
            if empty:
                break
        return found

    def delivery(self):
        until = time.monotonic() + self.connection.patience
        while not self.deliveries:
            self.connection.pump(until)
            if self.inbox:
                self.answer()
        return self.deliveries.popleft()

    def count(self, queue):
        return self.call("queue.declare", queue=queue, passive=True)["message-count"]

    def close(self):
        self.call("channel.close", reply_code=200)
        del self.connection.channels[self.number]
