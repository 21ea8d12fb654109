"""Frames, methods, tables and properties of AMQP 0-9-1 with RabbitMQ's extensions, to and from bytes. Written from the specification, apart
from the broker's codec, so that one checks the other. Numbers are big-endian; a frame is type (1), channel (2), length (4), payload,
0xCE."""

import struct

METHOD, HEADER, BODY, HEARTBEAT, END = 1, 2, 3, 8, 0xCE
GREETING = b"AMQP\0\0\x09\x01"

# Class, method, ids, and fields in their order; `bit` fields that follow each other share octets.
TABLE = """
connection.start 10 10 version-major:octet version-minor:octet server-properties:table mechanisms:longstr locales:longstr
connection.start-ok 10 11 client-properties:table mechanism:shortstr response:longstr locale:shortstr
connection.secure 10 20 challenge:longstr
connection.secure-ok 10 21 response:longstr
connection.tune 10 30 channel-max:short frame-max:long heartbeat:short
connection.tune-ok 10 31 channel-max:short frame-max:long heartbeat:short
connection.open 10 40 virtual-host:shortstr reserved-1:shortstr reserved-2:bit
connection.open-ok 10 41 reserved-1:shortstr
connection.close 10 50 reply-code:short reply-text:shortstr class-id:short method-id:short
connection.close-ok 10 51
connection.blocked 10 60 reason:shortstr
connection.unblocked 10 61
connection.update-secret 10 70 new-secret:longstr reason:shortstr
connection.update-secret-ok 10 71
channel.open 20 10 reserved-1:shortstr
channel.open-ok 20 11 reserved-1:longstr
channel.flow 20 20 active:bit
channel.flow-ok 20 21 active:bit
channel.close 20 40 reply-code:short reply-text:shortstr class-id:short method-id:short
channel.close-ok 20 41
access.request 30 10 realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit
access.request-ok 30 11 ticket:short
exchange.declare 40 10 ticket:short exchange:shortstr type:shortstr passive:bit durable:bit \
auto-delete:bit internal:bit no-wait:bit arguments:table
exchange.declare-ok 40 11
exchange.delete 40 20 ticket:short exchange:shortstr if-unused:bit no-wait:bit
exchange.delete-ok 40 21
exchange.bind 40 30 ticket:short destination:shortstr source:shortstr routing-key:shortstr no-wait:bit arguments:table
exchange.bind-ok 40 31
exchange.unbind 40 40 ticket:short destination:shortstr source:shortstr routing-key:shortstr no-wait:bit arguments:table
exchange.unbind-ok 40 51
queue.declare 50 10 ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto-delete:bit no-wait:bit arguments:table
queue.declare-ok 50 11 queue:shortstr message-count:long consumer-count:long
queue.bind 50 20 ticket:short queue:shortstr exchange:shortstr routing-key:shortstr no-wait:bit arguments:table
queue.bind-ok 50 21
queue.purge 50 30 ticket:short queue:shortstr no-wait:bit
queue.purge-ok 50 31 message-count:long
queue.delete 50 40 ticket:short queue:shortstr if-unused:bit if-empty:bit no-wait:bit
queue.delete-ok 50 41 message-count:long
queue.unbind 50 50 ticket:short queue:shortstr exchange:shortstr routing-key:shortstr arguments:table
queue.unbind-ok 50 51
basic.qos 60 10 prefetch-size:long prefetch-count:short global:bit
basic.qos-ok 60 11
basic.consume 60 20 ticket:short queue:shortstr consumer-tag:shortstr no-local:bit no-ack:bit exclusive:bit no-wait:bit arguments:table
basic.consume-ok 60 21 consumer-tag:shortstr
basic.cancel 60 30 consumer-tag:shortstr no-wait:bit
basic.cancel-ok 60 31 consumer-tag:shortstr
basic.publish 60 40 ticket:short exchange:shortstr routing-key:shortstr mandatory:bit immediate:bit
basic.return 60 50 reply-code:short reply-text:shortstr exchange:shortstr routing-key:shortstr
basic.deliver 60 60 consumer-tag:shortstr delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr
basic.get 60 70 ticket:short queue:shortstr no-ack:bit
basic.get-ok 60 71 delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr message-count:long
basic.get-empty 60 72 reserved-1:shortstr
basic.ack 60 80 delivery-tag:longlong multiple:bit
basic.reject 60 90 delivery-tag:longlong requeue:bit
basic.recover-async 60 100 requeue:bit
basic.recover 60 110 requeue:bit
basic.recover-ok 60 111
basic.nack 60 120 delivery-tag:longlong multiple:bit requeue:bit
confirm.select 85 10 no-wait:bit
confirm.select-ok 85 11
tx.select 90 10
tx.select-ok 90 11
tx.commit 90 20
tx.commit-ok 90 21
tx.rollback 90 30
tx.rollback-ok 90 31
"""
# Properties, from the flag of bit 15 downwards.
PROPERTIES = {"content-type": "shortstr", "content-encoding": "shortstr", "headers": "table", "delivery-mode": "octet", "priority": "octet",
              "correlation-id": "shortstr", "reply-to": "shortstr", "expiration": "shortstr", "message-id": "shortstr",
              "timestamp": "longlong",
              "type": "shortstr", "user-id": "shortstr", "app-id": "shortstr", "cluster-id": "shortstr"}
NUMBERS = {"octet": ">B", "short": ">H", "long": ">I", "longlong": ">Q"}
EMPTY = {"shortstr": "", "longstr": "", "table": {}, "bit": False, **dict.fromkeys(NUMBERS, 0)}
# Values of tables that are one number.
FIELDS = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "f": ">f", "d": ">d", "T": ">Q"}

METHODS, IDS = {}, {}
for _line in TABLE.split("\n"):
    if _line:
        _name, _class, _method, *_fields = _line.split(" ")
        METHODS[_name] = (int(_class), int(_method), [tuple(field.split(":")) for field in _fields])
        IDS[int(_class), int(_method)] = _name


# Methods that only the server sends.
OF_THE_SERVER = {name for name in METHODS if name.endswith("-ok") and name.removesuffix("-ok") in METHODS} | {
    "connection.start", "connection.secure", "connection.tune", "connection.blocked", "connection.unblocked", "basic.deliver",
    "basic.return", "basic.get-ok",
    "basic.get-empty"}
OF_THE_SERVER -= {"connection.start-ok", "connection.secure-ok", "connection.tune-ok", "connection.close-ok", "channel.close-ok",
                  "channel.flow-ok"}


class Raw(bytes):
    """Bytes that stand for a value as they are: an argument of a method, or a value of a table with its type."""


class Field(tuple):
    """A value of a table whose type is not the usual one: `Field(("B", 7))`."""


def shortstr(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">B", len(data)) + data


def longstr(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


def typed(value):
    """A value of a table, with its type."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Field):
        kind, value = value
        return kind.encode() + struct.pack(FIELDS[kind], value)
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t" + struct.pack(">B", value)
    if isinstance(value, int):
        return b"I" + struct.pack(">i", value) if -(1 << 31) <= value < 1 << 31 else b"l" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + longstr(value)
    if isinstance(value, bytes):
        return b"x" + longstr(value)
    if isinstance(value, dict):
        return b"F" + table(value)
    if isinstance(value, list):
        return b"A" + longstr(b"".join(map(typed, value)))
    raise TypeError(f"no field for {value!r}")


def table(values):
    return longstr(b"".join(shortstr(name) + typed(value) for name, value in values.items()))


def plain(kind, value):
    if isinstance(value, Raw):
        return bytes(value)
    if kind in NUMBERS:
        return struct.pack(NUMBERS[kind], value)
    return {"shortstr": shortstr, "longstr": longstr, "table": table}[kind](value)


def method(name, **values):
    """Payload of a method's frame; fields that are not named are zero or empty. `-` in names is written `_`."""
    class_id, method_id, fields = METHODS[name]
    out, bits, count = struct.pack(">HH", class_id, method_id), 0, 0
    unknown = set(values) - {field.replace("-", "_") for field, _ in fields}
    assert not unknown, f"{name} has no {unknown}"
    for field, kind in fields:
        value = values.get(field.replace("-", "_"), EMPTY[kind])
        if kind == "bit":
            bits, count = bits | bool(value) << count, count + 1
            continue
        if count:
            out, bits, count = out + struct.pack(">B", bits), 0, 0
        out += plain(kind, value)
    return out + (struct.pack(">B", bits) if count else b"")


def header(length, class_id=60, weight=0, **properties):
    """Payload of a header's frame."""
    flags, out = 0, b""
    for at, (name, kind) in enumerate(PROPERTIES.items()):
        if name.replace("-", "_") in properties:
            flags |= 1 << (15 - at)
            out += plain(kind, properties.pop(name.replace("-", "_")))
    assert not properties, f"no properties called {properties}"
    return struct.pack(">HHQH", class_id, weight, length, flags) + out


def frame(kind, channel, payload, end=END, length=None):
    return struct.pack(">BHI", kind, channel, len(payload) if length is None else length) + payload + struct.pack(">B", end)


class Reader:
    """Takes values off a payload."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        out = self.data[self.at:self.at + count]
        if len(out) != count:
            raise ValueError(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return out

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def typed(self):
        kind = self.take(1).decode("latin-1")
        if kind in FIELDS:
            return self.number(FIELDS[kind])
        if kind == "t":
            return bool(self.number(">B"))
        if kind == "V":
            return None
        if kind == "F":
            return self.value("table")
        if kind == "A":
            inner, out = Reader(self.take(self.number(">I"))), []
            while inner.at < len(inner.data):
                out.append(inner.typed())
            return out
        if kind in "Sx":
            return self.value("longstr")
        raise ValueError(f"field of type {kind!r}")

    def value(self, kind):
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == "shortstr":
            return self.take(self.number(">B")).decode("utf-8", "backslashreplace")
        if kind == "longstr":
            return self.take(self.number(">I")).decode("utf-8", "backslashreplace")
        inner, out = Reader(self.take(self.number(">I"))), {}
        while inner.at < len(inner.data):
            name = inner.value("shortstr")
            out[name] = inner.typed()
        return out


def decode(payload):
    """Name and fields of a method that came; all of its bytes have to be used."""
    reader = Reader(payload)
    ids = reader.number(">H"), reader.number(">H")
    if ids not in IDS:
        raise ValueError(f"a method {ids} that is not in the table")
    name, out, bits, count = IDS[ids], {}, 0, 0
    for field, kind in METHODS[name][2]:
        if kind != "bit":
            out[field], count = reader.value(kind), 0
            continue
        if count % 8 == 0:
            bits = reader.number(">B")
        out[field], count = bool(bits >> count % 8 & 1), count + 1
    if reader.at != len(payload):
        raise ValueError(f"{len(payload) - reader.at} bytes behind {name}")
    return name, out


def properties(payload):
    """Length of the body, and the properties, of a header that came."""
    reader = Reader(payload)
    reader.take(4)
    length, flags = reader.number(">Q"), reader.number(">H")
    found = {name: reader.value(kind) for at, (name, kind) in enumerate(PROPERTIES.items()) if flags >> (15 - at) & 1}
    return length, found
