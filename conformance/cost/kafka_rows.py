"""Requests of every API of Kafka, made from the notation in `crates/kafka-wire/schema`: each array in turn with many entries, each text and each run
of bytes in turn made long. What a field has otherwise is below, so that a request gets as far as it can.

A row makes a request of a number of entries; it is of one version, and there are rows for the first and the last version that is served."""

import dataclasses
import gzip
import itertools
import struct
import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
import schema
from batch import batch, record
from client import APIS, NAMES

# In place of what makes entries distinct, while one is encoded.
TEXT, INT, LONG, ID = b"~%*#~%*#", b"\x5a\x6b\x7c\x51", b"\x5a\x6b\x7c\x52\x5a\x6b\x7c\x53", bytes.fromhex("5a6b7c545a6b7c555a6b7c565a6b7c57")
MARKS = {TEXT: lambda at: b"%08d" % at, INT: struct.Struct(">i").pack, LONG: struct.Struct(">q").pack, ID: lambda at: at.to_bytes(16, "big")}
# A topic of many partitions, topics whose names end in eight digits, and a group that has committed.
WIDE, MANY, GROUP = "cost", "cost-", "cost-group"
NEW = "new-"
# The longest text that versions with short lengths can carry.
TEXT_MAX = 32_767
# Entries of usual rows, and numbers of a list that has more of them than a request may have: it is refused, or takes little memory.
SIZES, FLOOD = (1_000, 10_000, 100_000), (2_000_000,)
BATCH = batch([b"value"])

# What fields have, by their name. `DISTINCT` is where entries differ. Of `topic_id`: that of the wide topic once it is there, where no name is
# there as well.
DISTINCT = object()
NO_ID = uuid.UUID(int=0)
MEMBER = "kc1sFCf3Q3Wkq4kC1kpnUg"
USUAL = {
    "group_id": GROUP, "groups_names": GROUP, "groups": GROUP, "group_ids": GROUP, "key": GROUP, "coordinator_keys": GROUP,
    "topic": WIDE, "topic_name": WIDE, "topic_names": WIDE, "subscribed_topic_names": WIDE, "resource_name": WIDE, "source_topics": WIDE,
    "repartition_sink_topics": "sink", "acks": 1, "timeout_ms": 5000, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 2_000, "protocol_type": "consumer",
    "protocol_name": "range", "transactional_id": None, "transactional_ids": "cost-tx", "transaction_timeout_ms": 60_000, "records": BATCH,
    "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 10, "timestamp": -1, "response_partition_limit": 2_000,
    "resource_type": 2, "resource_type_filter": 2, "resource_name_filter": WIDE, "resource_pattern_type": 3, "pattern_type_filter": 3, "principal": "User:bob",
    "principal_filter": "User:bob", "host": "*", "host_filter": "*", "operation": 3, "permission_type": 3, "election_type": 0, "path": "/nowhere", "broker_ids": 1,
    "replicas": 1, "metrics": b"x", "mechanism": "PLAIN", "auth_bytes": b"\0a\0b", "allow_auto_topic_creation": False, "validate_only": False,
    "count": 20_000, "num_partitions": 1, "replication_factor": 1, "entity_type": "user", "entity_name": "bob", "iterations": 4096, "salt": b"s" * 16,
    "salted_password": b"p" * 32, "configuration_keys": "retention.ms", "feature": "kraft.version", "max_version_level": 1, "upgrade_type": 1,
    "subscribed_topic_regex": None, "max_records": 100, "batch_size": 100, "first_offset": 0, "last_offset": 0, "acknowledge_types": 1,
    "client_software_name": "cost", "client_software_version": "1", "session_epoch": -1, "offset": 0, "end_offset": 0, "committed_offset": 1,
    "committed_metadata": "", "producer_id": 1, "duration_filter": -1, "endpoint_type": 1, "states_filter": "Stable", "types_filter": "Consumer",
    "state_filters": "Ongoing", "producer_id_filters": 1, "resource_types": 2,
}
# The same for one API.
OF_API = {
    "CreateTopics": {"name": NEW, "validate_only": True, "value": "7000", "topics.configs.name": "retention.ms", "assignments": [], "configs": []},
    "Metadata": {"topic_id": NO_ID},
    "DeleteTopics": {"topic_id": NO_ID},
    "CreatePartitions": {"name": WIDE, "validate_only": True, "assignments": None},
    "AlterConfigs": {"configs.name": "retention.ms", "value": "7000", "validate_only": True},
    "IncrementalAlterConfigs": {"configs.name": "retention.ms", "value": "7000"},
    "DescribeConfigs": {"configuration_keys": []},
    "AlterClientQuotas": {"key": "producer_byte_rate", "value": 1_000_000},
    "DescribeClientQuotas": {"match_type": 0, "match_name": "bob"},
    "AlterUserScramCredentials": {"mechanism": 1, "name": "bob", "upsertions": []},
    "DescribeUserScramCredentials": {"name": "bob"},
    "UpdateFeatures": {"validate_only": True},
    "JoinGroup": {"protocols.name": "range", "metadata": b"m"},
    "FindCoordinator": {"key_type": 0},
    "OffsetForLeaderEpoch": {"leader_epoch": 0},
    "StreamsGroupHeartbeat": {"member_epoch": 0, "member_id": MEMBER, "process_id": "p", "subtopology_id": "0", "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "repartition_source_topics": [],
                              "repartition_sink_topics": [], "state_changelog_topics": [], "copartition_groups": [], "source_topic_regex": []},
    "ConsumerGroupHeartbeat": {"topic_partitions": [], "member_id": MEMBER},
    "ShareGroupHeartbeat": {"member_id": MEMBER},
    "ShareFetch": {"member_id": MEMBER, "forgotten_topics_data": []},
    "ShareAcknowledge": {"member_id": MEMBER},
    "ListConfigResources": {},
    "Fetch": {"forgotten_topics_data": []},
    "DescribeTopicPartitions": {"cursor": None},
}
# Rows beside those that are generated: API, what is told apart, and fields.
MORE = [
    ("Fetch", "new session", {"session_epoch": 0}),
    ("Metadata", "by id", {"name": None, "topic_id": DISTINCT}),
    ("DeleteTopics", "by id", {"name": None, "topic_id": DISTINCT}),
    ("JoinGroup", "static member", {"group_instance_id": "i"}),
    ("IncrementalAlterConfigs", "groups", {"resource_type": 32, "resource_name": GROUP, "configs.name": "share.delivery.count.limit", "value": "3"}),
    ("DescribeConfigs", "groups", {"resource_type": 32, "resource_name": GROUP}),
    ("DeleteAcls", "by principal", {"resource_name_filter": None, "principal_filter": DISTINCT, "pattern_type_filter": 1}),
    ("ListTransactions", "pattern", {"transactional_id_pattern": "a"}),
    ("ConsumerGroupHeartbeat", "pattern", {"subscribed_topic_regex": "a"}),
]
# APIs that leave so much behind that the next ones have a broker of their own.
LEAVES = {"CreateTopics", "DeleteTopics", "JoinGroup", "CreateAcls", "AlterClientQuotas", "AlterUserScramCredentials", "IncrementalAlterConfigs", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat",
          "StreamsGroupHeartbeat", "AlterShareGroupOffsets", "OffsetCommit", "TxnOffsetCommit", "InitProducerId"}
# APIs of entries that decide who may do what: on a broker with an authorizer.
WITH_ENTRIES = {"CreateAcls", "DescribeAcls", "DeleteAcls"}


@dataclasses.dataclass
class Row:
    name: str
    api: str
    version: int
    # Bytes of the request's body, of a number of entries; the second argument is another one each time.
    body: object
    # Of texts: no more than so many characters. 0: there is nothing to be repeated.
    most: int = 1 << 30
    maker: object = None
    sizes: tuple = SIZES

    @property
    def leaves(self):
        return self.api in LEAVES

    def frame(self, entries, serial, ask=None, correlation=1):
        """`ask`: asks the broker for what has to be there before (`PREPARED`)."""
        api = APIS[self.api]
        if ask and self.api in PREPARED and self.maker:
            self.maker.values.update(PREPARED[self.api](ask, serial))
        head = struct.pack(">hhi", api.key, self.version, correlation) + struct.pack(">h", 4) + b"cost" + (b"\0" if api.flex(self.version) else b"")
        data = head + self.body(entries, serial)
        return struct.pack(">i", len(data)) + data


def join(ask, serial):
    """A member of a group of its own."""
    group = f"{GROUP}-member-{serial}"
    joined = ask("JoinGroup", 5, {"group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 2_000, "member_id": "", "group_instance_id": "i",
                                  "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"m"}]})
    return {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}


def begin(ask, serial):
    """A transactional producer of its own."""
    name = f"cost-tx-{serial}"
    made = ask("InitProducerId", 4, {"transactional_id": name, "transaction_timeout_ms": 60_000})
    values = {"transactional_id": name, "producer_id": made["producer_id"], "producer_epoch": made["producer_epoch"]}
    ask("AddOffsetsToTxn", 3, {**values, "group_id": GROUP})
    return {**values, **{f"v3_and_below_{key}": value for key, value in values.items()}}


PREPARED = {"SyncGroup": join, "LeaveGroup": join, "Heartbeat": join, "TxnOffsetCommit": begin, "AddPartitionsToTxn": begin, "AddOffsetsToTxn": begin, "EndTxn": begin}


class Maker:
    """Makes bodies of one API in one version."""

    def __init__(self, name, version, more=None):
        self.api, self.version, self.flexible = APIS[name], version, APIS[name].flex(version)
        self.values = {**USUAL, **OF_API.get(name, {}), **(more or {})}

    def value(self, field, path, distinct, serial):
        """What a field has: of one entry of an array, if it is one."""
        for key in (".".join([*path, field.name]), ".".join([*path[-1:], field.name]), field.name):
            if key in self.values and fits(field, self.values[key]):
                value = self.values[key]
                break
        else:
            value = {"name": WIDE}.get(field.name) if field.kind == "string" else None
            if value is None:
                value = field.missing(self.version) if not field.array else None
        if distinct and self.differs(field, value):
            return self.marked(field, value)
        if serial is not None and field.name == "group_id" and not path and self.api.name in LEAVES:
            return f"{value}-{serial}"
        if value is DISTINCT:
            return uuid.UUID(int=7) if field.kind == "uuid" else "User:bob"
        return value

    def differs(self, field, value):
        """Do entries differ in this field? In names, numbers of partitions and ids; not where a number says what kind a thing is."""
        if field.kind == "string":
            return value is not None and field.name not in ("entity_type", "host", "host_filter", "value") and (field.name not in ("principal_filter", "key") or value is DISTINCT)
        if field.kind == "uuid":
            return self.values.get(field.name) is not NO_ID
        return field.kind == "int64" or field.kind == "int32" and field.name in ("partition", "partition_index", "partitions", "partition_indexes", "index")

    def marked(self, field, value):
        if field.kind == "uuid":
            return uuid.UUID(bytes=ID)
        if field.kind in ("int32", "int64"):
            return struct.unpack(*((">i", INT) if field.kind == "int32" else (">q", LONG)))[0]
        text = value if isinstance(value, str) and value not in (WIDE,) else MANY
        return ("User:" if value is DISTINCT else text) + TEXT.decode()

    def struct(self, fields, path, distinct, serial, chosen=None, chosen_value=None, long=None):
        """Values of all fields that the version has. Arrays have one entry; the field `chosen`, a path, has `chosen_value`. `long`: texts have so
        many characters more."""
        out = {}
        for field in fields:
            if field not in self.present(fields):
                continue
            here = [*path, field.name]
            if chosen == here:
                out[field.name] = chosen_value
                continue
            on_way = chosen is not None and chosen[:len(here)] == here
            plain = field.kind in schema.PLAIN
            if field.array:
                given = self.values.get(".".join(here), self.values.get(field.name)) if not on_way else 0
                if not plain and (given is None and field.name in self.values or given == []):
                    out[field.name] = given
                elif plain and given == []:
                    out[field.name] = []
                else:
                    out[field.name] = [self.one(field, path, distinct, serial, chosen if on_way else None, chosen_value, long)]
            elif plain:
                value = self.value(field, path, distinct, serial)
                if long and isinstance(value, str) and field.name not in ("entity_type", "protocol_type"):
                    value += "x" * long
                elif long and field.kind == "bytes":
                    value += b"x" * long
                out[field.name] = value
            elif on_way:
                out[field.name] = self.struct(field.fields, here, distinct, serial, chosen, chosen_value, long)
        return out

    def one(self, field, path, distinct, serial, chosen=None, chosen_value=None, long=None):
        """One entry of an array."""
        if field.kind not in schema.PLAIN:
            return self.struct(field.fields, [*path, field.name], distinct, serial, chosen, chosen_value, long)
        value = self.value(field, path, distinct, serial)
        if value is None or value == []:
            value = {"string": MANY + TEXT.decode() if distinct else WIDE, "bytes": b"x", "uuid": uuid.UUID(int=7), "bool": True}.get(field.kind, 1)
        return value + "x" * long if long and isinstance(value, str) else value

    def present(self, fields):
        return [field for field in fields if self.version in field.versions and field.tag is None]

    def entries(self, field, path, count, distinct, long=None):
        """Many entries of an array, encoded."""
        value = self.one(field, path, distinct, None, long=long)
        data = schema.encode_one(field, field.kind, value, self.version, self.flexible)
        if not distinct:
            return schema.Encoded(count, data * count)
        return schema.Encoded(count, filled(data, count))

    def body(self, chosen, value, serial):
        return schema.encode(self.api.request, self.struct(self.api.request, [], False, serial, chosen, value), self.version, self.flexible)


def fits(field, value):
    """Is it a value of the field's kind? One name stands for different things in different APIs."""
    if value is None or value is DISTINCT:
        return value is DISTINCT or field.kind == "string" and len(field.nullable) > 0
    kinds = {"string": str, "bytes": bytes, "records": bytes, "bool": bool, "uuid": uuid.UUID}
    return isinstance(value, kinds.get(field.kind, (int, float))) and (field.kind == "bool") == isinstance(value, bool)


def filled(data, count):
    """An encoded entry again and again, each time with other numbers in place of the marks."""
    parts = [data]
    for mark in MARKS:
        parts = [one for part in parts for one in (interleaved(part, mark) if part not in MARKS else [part])]
    if len(parts) == 1:
        return data * count
    columns = [itertools.repeat(part) if part not in MARKS else [*map(MARKS[part], range(count))] for part in parts]
    return b"".join(itertools.chain.from_iterable(zip(*columns)))


def interleaved(part, mark):
    pieces = part.split(mark)
    return [one for piece in pieces[:-1] for one in (piece, mark)] + pieces[-1:]


def walk(fields, version, path=()):
    """All fields that a version has, with the paths of those that hold them."""
    for field in fields:
        if version in field.versions and field.tag is None:
            yield field, [*path, field.name]
            if field.kind not in schema.PLAIN:
                yield from walk(field.fields, version, (*path, field.name))


def rows(api, first, last):
    """The rows of one API."""
    name, out = NAMES[api], []
    ways = [("", None), *((f" ({about})", more) for of, about, more in MORE if of == name)]
    for version in dict.fromkeys([last, max(first, APIS[name].versions[0])]):
        for about, more in ways:
            maker = Maker(name, version, more)
            for field, path in walk(APIS[name].request, version):
                title = f"{name} v{version} {'.'.join(path)}{about}"
                if field.array:
                    out += of_array(maker, name, title, field, path)
                elif field.kind in ("string", "bytes", "records"):
                    out.append(of_text(maker, name, title, field, path))
    if name == "Produce":
        out += of_batches(last)
    # Without arrays and texts there is one request, again and again.
    maker = Maker(name, last)
    return out or [Row(f"{name} v{last}", name, last, lambda _, serial: maker.body(None, None, serial), 0, maker)]


def of_array(maker, name, title, field, path):
    def row(way, distinct, sizes=SIZES):
        return Row(f"{title}, {way}", name, maker.version, lambda entries, serial: maker.body(path, maker.entries(field, path[:-1], entries, distinct), serial), maker=maker, sizes=sizes)

    out = [row("the same", False)]
    differs = maker.entries(field, path[:-1], 2, True).data != maker.entries(field, path[:-1], 2, False).data
    if differs:
        out.append(row("distinct", True))
    if field.kind in schema.PLAIN and field.kind not in ("string", "bytes", "records"):
        out.append(row("more than there may be", differs, FLOOD))
    return out


def of_text(maker, name, title, field, path):
    def body(entries, serial):
        text = ("a|" * entries)[:entries] if "pattern" in field.name or "regex" in field.name else "x" * entries
        return maker.body(path, text if field.kind == "string" else text.encode() * 10, serial)
    return Row(f"{title}, long", name, maker.version, body, TEXT_MAX if field.kind == "string" else 1 << 30, maker)


def of_batches(version):
    """Batches of many records, plain and packed."""
    maker = Maker("Produce", version)
    path = ["topic_data", "partition_data", "records"]

    def packed(entries, attributes):
        data = b"".join(record(at, b"key", b"value") for at in range(entries))
        return batch([b""] * entries, payload=gzip.compress(data, mtime=0) if attributes else data, attributes=attributes)
    return [Row(f"Produce v{version} {way}", "Produce", version, lambda entries, serial, attributes=attributes: maker.body(path, packed(entries, attributes), serial))
            for way, attributes in [("records in a batch", 0), ("records in a packed batch", 1)]]


def longest(api, last, size):
    """Requests of `size` bytes for what is kept: each array with entries of long texts, or of many, and each run of bytes."""
    name = NAMES[api]
    maker = Maker(name, last)
    for field, path in walk(APIS[name].request, last):
        if field.array:
            one = len(maker.entries(field, path[:-1], 1, True, 1_000).data)
            count = max(1, size // one)
            yield Row(f"{name} v{last} {'.'.join(path)}, kept", name, last,
                      lambda _, serial, field=field, path=path, count=count: maker.body(path, maker.entries(field, path[:-1], count, True, 1_000), serial))
        elif field.kind == "bytes":
            yield Row(f"{name} v{last} {'.'.join(path)}, kept", name, last, lambda _, serial, path=path: maker.body(path, bytes(size), serial))


def missing(served):
    """What is served, as (key, first version, last version), and has no row."""
    return [f"API {key} has no row" for key, first, last in served if key not in NAMES or not rows(key, first, last)]


def behind(count):
    """A request with so many bytes behind it, which are not looked at."""
    api = APIS["ApiVersions"]
    data = struct.pack(">hhih", api.key, 0, 1, -1) + bytes(count)
    return struct.pack(">i", len(data)) + data
