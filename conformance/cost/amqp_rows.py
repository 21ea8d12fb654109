"""Rows for AMQP: every method that a client sends, from the broker's table in `crates/amqp-wire`. One that takes a table, a long text or a list has
it made large, as far as a frame goes; each is sent again and again; a message has many headers, many bindings, and a body in many frames."""

import dataclasses
import re
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[0] / "amqp/peers"))
import wire
from wire import Raw, longstr, shortstr

TABLE = HERE.parents[1] / "crates/amqp-wire/src/methods.rs"
FRAME_MAX = 131_072
# Entries of a table that fit into a frame.
TABLE_SIZES = (100, 1_000, 10_000)
QUEUE, EXCHANGE, HEADERS, TOPIC = "cost-queue", "cost-exchange", "cost-headers", "cost-topic"

# A method's arguments where it is sent again and again; `{at}` in a text is the number of the time.
VALUES = {
    "channel.open": None, "channel.close": None, "channel.close-ok": None, "channel.flow-ok": {"active": True},
    "channel.flow": {"active": True},
    "access.request": {"realm": "/data"},
    "exchange.declare": {"exchange": EXCHANGE, "type": "direct"},
    "exchange.delete": {"exchange": "missing-{at}"},
    "exchange.bind": {"destination": EXCHANGE, "source": TOPIC, "routing_key": "e{at}"},
    "exchange.unbind": {"destination": EXCHANGE, "source": TOPIC, "routing_key": "missing-{at}"},
    "queue.declare": {"queue": QUEUE, "passive": True},
    "queue.bind": {"queue": QUEUE, "exchange": EXCHANGE, "routing_key": "k{at}"},
    "queue.purge": {"queue": QUEUE},
    "queue.delete": {"queue": "missing-{at}"},
    "queue.unbind": {"queue": QUEUE, "exchange": EXCHANGE, "routing_key": "missing-{at}"},
    "basic.qos": {"prefetch_count": 10},
    "basic.consume": {"queue": QUEUE, "consumer_tag": "t{at}"},
    "basic.cancel": {"consumer_tag": "missing-{at}"},
    "basic.cancel-ok": {"consumer_tag": "missing-{at}"},
    "basic.publish": {"routing_key": QUEUE},
    "basic.get": {"queue": QUEUE, "no_ack": True},
    "basic.ack": {"delivery_tag": 0, "multiple": True},
    "basic.reject": {"delivery_tag": 1},
    "basic.recover-async": {"requeue": True},
    "basic.recover": {"requeue": True},
    "basic.nack": {"delivery_tag": 0, "multiple": True},
    "confirm.select": {}, "tx.select": {}, "tx.commit": {}, "tx.rollback": {},
}
# Methods that come once in a connection, and how it goes without a row of many.
ONCE = {
    "connection.start-ok": "has a row for its table and its answer", "connection.secure-ok": "no mechanism has a second round",
    "connection.tune-ok": "three numbers, once", "connection.open": "a short text, once", "connection.close": "ends the connection",
    "connection.close-ok": "ends the connection", "connection.update-secret": "has a row for its secret",
}
# Methods with a table, and what else they have.
TABLES = {
    "exchange.declare": {"exchange": "new-{at}", "type": "direct", "auto_delete": True},
    "exchange.bind": {"destination": EXCHANGE, "source": HEADERS, "routing_key": "{at}"},
    "exchange.unbind": {"destination": EXCHANGE, "source": HEADERS, "routing_key": "{at}"},
    "queue.declare": {"queue": "new-{at}", "exclusive": True},
    "queue.bind": {"queue": QUEUE, "exchange": HEADERS, "routing_key": "{at}"},
    "queue.unbind": {"queue": QUEUE, "exchange": HEADERS, "routing_key": "{at}"},
    "basic.consume": {"queue": QUEUE, "consumer_tag": "{at}"},
}
LONG = {"connection.start-ok", "connection.update-secret"}


@dataclasses.dataclass
class Row:
    name: str
    # Bytes for a number of entries, on channels 1 to 10 of a connection that is open; after them it is asked whether it is done.
    frames: object
    sizes: tuple = TABLE_SIZES
    # On connections that are not open yet.
    opening: bool = False


def client_methods():
    """Names of the methods that a client may send, from the broker's table."""
    out, kind = [], None
    for line in TABLE.read_text().splitlines():
        if found := re.match(r"    (\d+) (\w+) \w+(<'a>)? \{$", line):
            kind = found[2]
        elif found := re.match(r'        (\d+) "([\w-]+)" \w+(<\'a>)? (Client|Broker|Both)\b', line):
            if found[4] != "Broker":
                out.append(f"{kind}.{found[2]}")
    return out


def with_tables():
    """Of these, those that take a table or a long text."""
    names = client_methods()
    return [name for name in names if name in wire.METHODS and any(kind in ("table", "longstr") for _, kind in wire.METHODS[name][2])]


def missing(names):
    """Methods that a client may send and that have no row."""
    without = [name for name in names if name not in VALUES and name not in ONCE]
    return [f"{name} has no row" for name in dict.fromkeys([*without, *(name for name in with_tables() if not {name} & {*TABLES, *LONG, *ONCE})])]


def method(channel, name, values, at):
    filled = {key: value.replace("{at}", str(at)) if isinstance(value, str) else value for key, value in values.items()}
    return wire.frame(wire.METHOD, channel, wire.method(name, **filled))


# Tables of a number of entries.

def same(entries):
    return Raw(longstr((shortstr("k") + b"V") * entries))


def distinct(entries):
    return Raw(longstr(b"".join(shortstr("k%06d" % at) + b"V" for at in range(entries))))


def listed(entries):
    return Raw(longstr(shortstr("k") + b"A" + longstr(b"V" * (entries * 8))))


def long(entries):
    return Raw(longstr(shortstr("k") + b"S" + longstr("x" * (entries * 8))))


def nested(entries):
    return Raw(longstr(shortstr("k") + b"".join(b"A" + struct.pack(">I", 5 * depth) for depth in reversed(range(entries)))))


FORMS = {"the same key": same, "distinct keys": distinct, "a list": listed, "a long text": long, "lists in lists": nested}
# A method is sent so many times, each on a channel of its own, since it may close it.
TIMES = 10


def on_channels(make):
    def frames(entries):
        return b"".join(make(channel, entries) for channel in range(1, TIMES + 1))
    return frames


def message(channel, values, body=b"body", parts=None, **properties):
    out = method(channel, "basic.publish", values, 0) + wire.frame(wire.HEADER, channel, wire.header(len(body), **properties))
    return out + b"".join(wire.frame(wire.BODY, channel, part) for part in (parts if parts is not None else [body]))


def rows():
    out = []
    for name, values in TABLES.items():
        for form, table in FORMS.items():
            out.append(Row(f"{name} with {form}", on_channels(lambda channel, entries, name=name, values=values, table=table: method(
                channel, name, {**values, "arguments": table(entries)}, channel))))
    for form, table in FORMS.items():
        out.append(Row(f"basic.publish with headers: {form}", on_channels(lambda channel, entries, table=table: message(
            channel, {"routing_key": QUEUE}, headers=table(entries)))))
        out.append(Row(f"connection.start-ok with {form}", lambda entries, table=table: wire.GREETING + wire.frame(wire.METHOD, 0, wire.method(
            "connection.start-ok", client_properties=table(entries), mechanism="PLAIN", response="\0guest\0guest", locale="en_US")), opening=True))
    out.append(Row("connection.start-ok with a long response", lambda entries: wire.GREETING + wire.frame(wire.METHOD, 0, wire.method(
        "connection.start-ok", mechanism="PLAIN", response="\0guest\0" + "x" * (entries * 10), locale="en_US")), opening=True))
    out.append(Row("connection.update-secret with a long secret", lambda entries: wire.frame(wire.METHOD, 0, wire.method(
        "connection.update-secret", new_secret="x" * (entries * 10), reason="r"))))
    for name, values in VALUES.items():
        out.append(Row(f"{name} again and again", lambda entries, name=name, values=values: repeated(name, values, entries), (1_000, 10_000)))
    out.append(Row("basic.publish in many frames", lambda entries: message(1, {"routing_key": QUEUE}, b"x" * entries, [b"x"] * entries), (1_000, 10_000, 100_000)))
    out.append(Row("basic.publish to many bindings", to_many_bindings, (100, 1_000, 10_000)))
    out.append(Row("channel.close with many consumers of a queue", many_consumers, (1_000, 10_000, 100_000)))
    out.append(Row("basic.publish to patterns of many words", to_patterns, (10, 20, 40)))
    return out


def repeated(name, values, entries):
    if name == "channel.open":
        # As many channels as there may be, opened and closed in turn.
        return b"".join(method(20 + at % 1_000, "channel.open" if at // 1_000 % 2 == 0 else "channel.close", {}, at) for at in range(entries))
    if name == "channel.close":
        return b"".join(method(21, "channel.open", {}, 0) + method(21, "channel.close", {}, 0) for _ in range(entries // 2))
    if name == "channel.close-ok":
        return b"".join(method(21, "channel.close-ok", {}, 0) for _ in range(entries))
    if name == "basic.publish":
        return message(1, values) * entries
    prepare = b""
    if name in ("tx.commit", "tx.rollback"):
        prepare = method(1, "tx.select", {}, 0)
    if "{at}" not in str(values):
        return prepare + method(1, name, values, 0) * entries
    return prepare + b"".join(method(1, name, values, at) for at in range(entries))


def to_many_bindings(entries):
    """Bindings of headers that all fit, of one queue, and ten messages."""
    bound = b"".join(method(1, "queue.bind", {"queue": QUEUE, "exchange": HEADERS, "routing_key": str(at), "arguments": {"x-match": "any", "k": True, "n": at}}, at) for at in range(entries))
    return bound + message(1, {"exchange": HEADERS}, headers={"k": True}) * 10


def many_consumers(entries):
    """Consumers of one queue that leave together."""
    channel = TIMES + 1
    consume = b"".join(method(channel, "basic.consume", {"queue": QUEUE, "consumer_tag": str(at), "no_wait": True}, at) for at in range(entries))
    return method(channel, "channel.open", {}, 0) + consume + method(channel, "channel.close", {}, 0)


def to_patterns(entries):
    """A routing key of as many words as there can be, and patterns that fit in very many ways."""
    words = ".".join("a" * 1 for _ in range(127))
    bound = method(1, "queue.bind", {"queue": QUEUE, "exchange": TOPIC, "routing_key": ".".join(["#", "a"] * entries)}, 0)
    bound += method(1, "queue.bind", {"queue": QUEUE, "exchange": TOPIC, "routing_key": ".".join(["#", "*"] * entries + ["b"])}, 0)
    return bound + message(1, {"exchange": TOPIC, "routing_key": words}) * 10


def declared():
    """What rows name, on channel 1."""
    out = method(1, "queue.declare", {"queue": QUEUE, "auto_delete": False}, 0)
    for exchange, kind in [(EXCHANGE, "direct"), (HEADERS, "headers"), (TOPIC, "topic")]:
        out += method(1, "exchange.declare", {"exchange": exchange, "type": kind}, 0)
    return out


def forgotten():
    """The same is deleted, with all that was bound to it."""
    out = method(1, "queue.delete", {"queue": QUEUE}, 0)
    return out + b"".join(method(1, "exchange.delete", {"exchange": exchange}, 0) for exchange in (EXCHANGE, HEADERS, TOPIC))
