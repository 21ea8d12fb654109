"""Kafka messages as plain dicts: reads the notation in `crates/kafka-wire/schema`, encodes requests, decodes responses."""

import struct
import uuid
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parents[2] / "crates/kafka-wire/schema"
NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
PLAIN = {*NUMBERS, "bool", "uuid", "string", "bytes", "records"}


class Field:
    """One line of the notation."""

    def __init__(self, line):
        declared, _, self.default = line.partition(" = ")
        self.name, _, rest = declared.partition(": ")
        words = rest.split()
        self.array = words[0].startswith("[")
        self.kind = words[0].strip("[]")
        self.versions = versions(words[1])
        marks = dict(zip(words[2::2], words[3::2]))
        self.nullable = versions(marks["nullable"]) if "nullable" in marks else range(0)
        self.tag = int(marks["tag"]) if "tag" in marks else None
        self.fields = []

    def missing(self, version):
        """The value of a field that a request does not name."""
        if self.default == "null":
            return None
        if self.array:
            return []
        if self.kind in NUMBERS:
            return int(self.default or "0", 0)
        plain = {"bool": self.default == "true", "string": "", "bytes": b"", "uuid": uuid.UUID(int=0)}
        if self.kind in plain:
            return plain[self.kind]
        return None if version in self.nullable else {}


class Api:
    """One file of the notation."""

    def __init__(self, text):
        self.request, self.response, self.flexible = [], [], range(0)
        shared, stack, message = {}, [], None
        for line in text.splitlines():
            depth, words = (len(line) - len(line.lstrip())) // 2, line.split()
            if not words:
                continue
            if depth == 0:
                if words[0] == "api":
                    self.key, self.name = int(words[1]), words[2]
                elif words[0] in ("versions", "flexible"):
                    setattr(self, words[0], range(0) if words[1] == "none" else versions(words[1]))
                else:
                    message = getattr(self, words[0])
                    stack, shared = [message], {}
            elif words[0] == "struct":
                stack = [message, shared.setdefault(words[1], [])]
            else:
                field = Field(line.strip())
                stack = [*stack[:depth], field.fields]
                stack[depth - 1].append(field)
                if field.kind not in PLAIN:
                    shared.setdefault(field.kind, field.fields)
                    field.fields = shared[field.kind]
                    stack[-1] = field.fields

    def flex(self, version):
        return version in self.flexible


def versions(text):
    first, _, last = text.rstrip("+").partition("-")
    return range(int(first), 1 << 15) if text.endswith("+") else range(int(first), int(last or first) + 1)


def load():
    """All APIs by name."""
    apis = (Api(path.read_text()) for path in sorted(SCHEMAS.glob("*.kafka")))
    return {api.name: api for api in apis}


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length(value, flexible, wide):
    """A length, or that there is nothing (-1)."""
    return varint(value + 1) if flexible else struct.pack(">i" if wide else ">h", value)


def encode_one(field, kind, value, version, flexible):
    if kind == "bool":
        return b"\1" if value else b"\0"
    if kind in NUMBERS:
        return struct.pack(NUMBERS[kind], value)
    if kind == "uuid":
        return uuid.UUID(str(value)).bytes
    if kind in ("string", "bytes", "records"):
        if value is None:
            return length(-1, flexible, kind != "string")
        data = value.encode() if kind == "string" else bytes(value)
        return length(len(data), flexible, kind != "string") + data
    if len(field.nullable) and version in field.nullable and not field.array:
        return b"\xff" if value is None else b"\1" + encode(field.fields, value, version, flexible)
    return encode(field.fields, value, version, flexible)


class Encoded:
    """Items of an array that are encoded already."""

    def __init__(self, count, data):
        self.count, self.data = count, data


def encode_field(field, value, version, flexible):
    if isinstance(value, Encoded):
        return length(value.count, flexible, True) + value.data
    if not field.array:
        return encode_one(field, field.kind, value, version, flexible)
    if value is None:
        return length(-1, flexible, True)
    items = (encode_one(field, field.kind, one, version, flexible) for one in value)
    return length(len(value), flexible, True) + b"".join(items)


def encode(fields, values, version, flexible):
    """A struct. Names that the version does not have are errors, so that a table cannot lie."""
    known = {field.name for field in fields if version in field.versions}
    assert set(values) <= known, f"version {version} has no {set(values) - known}"
    out, tagged = [], []
    for field in fields:
        if version not in field.versions:
            continue
        if field.tag is None:
            value = values[field.name] if field.name in values else field.missing(version)
            out.append(encode_field(field, value, version, flexible))
        elif field.name in values:
            data = encode_field(field, values[field.name], version, flexible)
            tagged.append((field.tag, data))
    if flexible:
        out.append(varint(len(tagged)))
        out += [varint(tag) + varint(len(data)) + data for tag, data in sorted(tagged)]
    return b"".join(out)


class Reader:
    """Bytes from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise ValueError(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, code):
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def length(self, flexible, wide):
        return self.varint() - 1 if flexible else self.number(">i" if wide else ">h")


def decode_one(field, reader, version, flexible):
    kind = field.kind
    if kind == "bool":
        return reader.take(1) != b"\0"
    if kind in NUMBERS:
        return reader.number(NUMBERS[kind])
    if kind == "uuid":
        return uuid.UUID(bytes=reader.take(16))
    if kind in ("string", "bytes", "records"):
        count = reader.length(flexible, kind != "string")
        data = None if count < 0 else reader.take(count)
        return data.decode() if kind == "string" and data is not None else data
    if version in field.nullable and not field.array and reader.number(">b") < 0:
        return None
    return decode(field.fields, reader, version, flexible)


def decode_field(field, reader, version, flexible):
    if not field.array:
        return decode_one(field, reader, version, flexible)
    count = reader.length(flexible, True)
    return None if count < 0 else [decode_one(field, reader, version, flexible) for _ in range(count)]


def decode(fields, reader, version, flexible):
    out = {}
    for field in fields:
        if version in field.versions and field.tag is None:
            out[field.name] = decode_field(field, reader, version, flexible)
    if flexible:
        tags = {field.tag: field for field in fields if field.tag is not None and version in field.versions}
        for _ in range(reader.varint()):
            tag, count = reader.varint(), reader.varint()
            inner = Reader(reader.take(count))
            if tag in tags:
                out[tags[tag].name] = decode_field(tags[tag], inner, version, flexible)
    return out
