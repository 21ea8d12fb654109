"""A connection that can misbehave, and a case's way to send, and to note what a client sees of it."""

import re
import socket
import time

import wire

WAIT = 20.0
BYSTANDER = 99
PROBE = wire.method("basic.qos")
CAPABILITIES = {"authentication_failure_close": True, "consumer_cancel_notify": True, "connection.blocked": True, "basic.nack": True}
# Methods whose fields are of no interest, or differ from broker to broker.
BARE = {"connection.start", "connection.open-ok", "channel.open-ok"}
GENERATED = (re.compile(r"amq\.gen-[\w-]+"), "<generated>"), (re.compile(r"amq\.ctag-[\w-]+"), "<tag>")


class Closed(Exception):
    """The other side has closed the connection."""


class Link:
    """Frames over one socket."""

    # Names of the methods that were sent.
    sent = set()

    @classmethod
    def wanted(cls):
        """Methods that a client may send and nobody has sent."""
        return {name for name in wire.METHODS if name not in wire.OF_THE_SERVER} - cls.sent

    def __init__(self, address, wait=WAIT):
        self.socket = socket.create_connection(address, timeout=WAIT)
        self.wait, self.data, self.ended, self.opened = wait, b"", False, False
        self.channels = set()

    def raw(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            # What the other side has said before it closed can still be read.
            pass

    def method(self, channel, name, **values):
        Link.sent.add(name)
        self.raw(wire.frame(wire.METHOD, channel, wire.method(name, **values)))

    def exactly(self, count, until):
        while len(self.data) < count:
            self.socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                more = self.socket.recv(1 << 16)
            except TimeoutError:
                raise
            except OSError:
                more = b""
            if not more:
                self.ended = True
                raise Closed
            self.data += more
        out, self.data = self.data[:count], self.data[count:]
        return out

    def receive(self):
        """Type, channel and payload of the next frame that is no heartbeat; of a greeting, `AMQP`, 0 and its version."""
        until = time.monotonic() + self.wait
        while True:
            head = self.exactly(7, until)
            if head.startswith(b"AMQP"):
                return "AMQP", 0, head[4:] + self.exactly(1, until)
            kind, channel, length = wire.struct.unpack(">BHI", head)
            payload = self.exactly(length + 1, until)
            assert payload[-1] == wire.END, f"a frame that ends with {payload[-1]}"
            if kind != wire.HEARTBEAT:
                return kind, channel, payload[:-1]

    def expect(self, name):
        kind, _, payload = self.receive()
        found = wire.decode(payload) if kind == wire.METHOD else (kind, payload)
        assert found[0] == name, f"{found} instead of {name}"
        return found[1]

    def start(self, greeting=wire.GREETING, client=None, mechanism="PLAIN", response="\0guest\0guest"):
        """Up to the client's name and password."""
        self.raw(greeting)
        self.expect("connection.start")
        client = {"capabilities": CAPABILITIES} if client is None else client
        self.method(0, "connection.start-ok", client_properties=client, mechanism=mechanism, response=response, locale="en_US")

    def open(self, channel_max=2047, frame_max=131072, heartbeat=0, **start):
        self.start(**start)
        self.expect("connection.tune")
        self.method(0, "connection.tune-ok", channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
        self.method(0, "connection.open", virtual_host="/")
        self.expect("connection.open-ok")
        self.opened = True
        return self

    def channel(self, number):
        self.method(number, "channel.open")
        self.expect("channel.open-ok")
        self.channels.add(number)

    def call(self, channel, name, **values):
        """A method that is answered well; its answer."""
        self.method(channel, name, **values)
        return self.expect(f"{name}-ok")

    def close(self):
        self.socket.close()


class Case:
    """What a case works with: a connection with channel 1 (and `BYSTANDER`, which has to go on), and another connection, which has to
    go on as well. Only `send`, `frames` and `note` leave something in its record."""

    def __init__(self, address, name, token):
        self.address, self.name, self.token = address, name, token
        self.steps, self.known, self.made = [], {}, []
        self.other = Link(address).open()
        self.other.channel(1)
        self.other.channel(2)
        self.other.call(2, "confirm.select")
        self._link, self.more = None, []

    # Connections.

    @property
    def link(self):
        if self._link is None:
            self.connect()
        return self._link

    def connect(self, **how):
        """The case's connection, in another way than the usual one."""
        assert self._link is None, "the case has its connection"
        self._link = Link(self.address).open(**how)
        self._link.channel(BYSTANDER)
        self._link.channel(1)

    def fresh(self):
        """The case's connection, of which nothing is sent."""
        assert self._link is None, "the case has its connection"
        self._link = Link(self.address)
        return self._link

    def another(self):
        """One more connection, with channel 1."""
        link = Link(self.address).open()
        link.channel(1)
        self.more.append(link)
        return link

    # Names.

    def unique(self, kind):
        """A name of the case's own, for a `queue` or an `exchange`."""
        number = sum(one.startswith(f"<{kind}") for one in self.known.values())
        name = f"peer-{self.token}-{self.name}-{kind}-{number}"
        self.known[name] = f"<{kind}>" if number == 0 else f"<{kind}-{number + 1}>"
        self.made.append((kind, name))
        return name

    def queue(self, arguments=None, messages=()):
        """A durable queue that is there, with messages."""
        name = self.unique("queue")
        self.other.call(1, "queue.declare", queue=name, arguments=arguments or {}, durable=True)
        for body in messages:
            self.other.raw(publish(2, body, routing_key=name))
            self.other.expect("basic.ack")
        return name

    def exchange(self, kind="direct", arguments=None, **flags):
        name = self.unique("exchange")
        self.other.call(1, "exchange.declare", exchange=name, type=kind, arguments=arguments or {}, **{"durable": True, **flags})
        return name

    def consume(self, queue, tag="tag", channel=1, count=0, **flags):
        """A consumer of the case's connection, that has got so many messages."""
        self.link.call(channel, "basic.consume", queue=queue, consumer_tag=tag, **flags)
        for _ in range(count):
            assert self.link.expect("basic.deliver")
            self.link.receive()
            self.link.receive()

    # What is sent and noted.

    def note(self, **what):
        self.steps.append(what)

    def send(self, name, channel=1, content=None, expect=None, probe=None, **values):
        """Sends a method, perhaps with content (properties and body); notes what came of it."""
        if name in ("basic.consume", "basic.cancel") and not values.get("no_wait"):
            # The queue answers, and what follows on the channel may be answered before.
            expect = 1
        Link.sent.add(name)
        data = wire.frame(wire.METHOD, channel, wire.method(name, **values))
        if content is not None:
            properties, body = content
            data += wire.frame(wire.HEADER, channel, wire.header(len(body), **properties))
            data += wire.frame(wire.BODY, channel, body) if body else b""
        self.frames(name, data, channel, expect, probe)

    def frames(self, what, data, channel=1, expect=None, probe=None, within=WAIT):
        """Sends bytes and notes what is answered until `expect` answers are there, or the connection or channel is closed. Without a
        number a harmless method follows the bytes on channel `probe` (usually the same), and what comes before its answer is noted.
        Where neither tells when the answer is there, the broker has `within` seconds."""
        link, answers = self.link, []
        link.wait = within
        self.steps.append({"sent": what, "answers": answers})
        if expect is None:
            probe = probe if probe is not None else channel if channel in link.channels else BYSTANDER
            data += wire.frame(wire.METHOD, probe, PROBE)
        link.raw(data)
        try:
            while expect is None or len(answers) < expect:
                number, name, text = self.answer()
                if expect is None and (number, name) == (probe, "basic.qos-ok"):
                    break
                answers.append(text if number in (channel, 0) else f"channel {number}: {text}")
                if name == "channel.close":
                    link.channels.discard(number)
                    link.method(number, "channel.close-ok")
                    if number == (probe or channel):
                        break
                if name in ("connection.close", "AMQP"):
                    if name == "connection.close":
                        link.method(0, "connection.close-ok")
                    # Nothing may come any more.
                    answers.append(f"then {self.answer()[2]}")
                if name == "connection.close-ok":
                    link.ended = True
        except Closed:
            answers.append("closed")
        except TimeoutError:
            answers.append("nothing in time" if within == WAIT else "nothing")
        link.wait = WAIT

    def answer(self):
        """Channel, name and text of what comes next; a message is one answer."""
        kind, number, payload = self.link.receive()
        if kind == "AMQP":
            return number, "AMQP", f"AMQP {'.'.join(map(str, payload))}"
        if kind != wire.METHOD:
            return number, "", f"frame of type {kind}"
        name, fields = wire.decode(payload)
        text = self.text(name, fields)
        if name in ("basic.deliver", "basic.get-ok", "basic.return"):
            length, properties = wire.properties(self.link.receive()[2])
            body = b""
            while len(body) < length:
                body += self.link.receive()[2]
            text += "".join(f" {key}={self.normal(str(value))}" for key,
                            value in properties.items()) + f" body={self.normal(body.decode('latin-1'))}"
        return number, name, text

    def text(self, name, fields):
        if name.endswith(".close"):
            return f"{name} {fields['reply-code']} ({fields['class-id']},{fields['method-id']}) {self.normal(fields['reply-text'])}"
        if name in BARE:
            return name
        return name + "".join(f" {key}={self.normal(str(value))}" for key, value in fields.items() if value)

    def normal(self, text):
        """Without names that differ from run to run, and without the line ends that depend on their length."""
        text = re.sub(r"\n\s*", "", text)
        for name in sorted(self.known, key=len, reverse=True):
            text = text.replace(name, self.known[name])
        for pattern, generated in GENERATED:
            text = pattern.sub(generated, text)
        return text

    # The end.

    def afterwards(self):
        """What still works."""
        seen = {}
        if self._link is not None:
            seen["connection"] = "kept" if self.kept() else "closed"
            if self._link.opened and not self._link.ended:
                try:
                    if 1 not in self._link.channels:
                        self._link.channel(1)
                        seen["channel"] = "opens again"
                    self._link.call(1, "basic.qos")
                    if BYSTANDER in self._link.channels:
                        self._link.call(BYSTANDER, "basic.qos")
                        seen["another channel"] = "works"
                except (AssertionError, Closed, TimeoutError) as error:
                    seen["channels"] = self.normal(f"{type(error).__name__} {error}")
        self.note(**seen, **{"another connection": self.works()})

    def kept(self):
        """Whether the connection is there, as far as is known already."""
        if self._link.ended:
            return False
        self._link.wait = 0.001 if not self._link.opened else WAIT
        try:
            while not self._link.opened:
                self._link.receive()
        except Closed:
            return False
        except TimeoutError:
            pass
        return True

    def works(self):
        """Whether the other connection takes a message and gives it back."""
        try:
            name = self.other.call(1, "queue.declare", exclusive=True)["queue"]
            self.other.raw(publish(1, b"still here", routing_key=name))
            self.other.method(1, "basic.get", queue=name, no_ack=True)
            self.other.expect("basic.get-ok")
            self.other.receive()
            return "works" if self.other.receive()[2] == b"still here" else "gives another message"
        except (AssertionError, Closed, TimeoutError) as error:
            return f"{type(error).__name__} {error}"

    def end(self):
        self.afterwards()
        for link in (self._link, *self.more):
            if link is not None:
                link.close()
        try:
            for kind, name in self.made:
                self.other.call(1, f"{kind}.delete", **{kind: name})
        except (AssertionError, Closed, TimeoutError):
            pass
        self.other.close()


def publish(channel, body=b"", properties=None, **values):
    """The frames of a message."""
    out = wire.frame(wire.METHOD, channel, wire.method("basic.publish", **values))
    out += wire.frame(wire.HEADER, channel, wire.header(len(body), **(properties or {})))
    return out + (wire.frame(wire.BODY, channel, body) if body else b"")
