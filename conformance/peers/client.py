"""A connection that can misbehave, and a case's way to ask and to note what comes back."""

import json
import socket
import struct
import time
import uuid

import schema
from batch import batch, summary

APIS = schema.load()
NAMES = {api.key: api.name for api in APIS.values()}
WAIT = 60
# What differs from run to run or between hosts, or is wording.
NEVER = {"transaction_start_time_ms", "last_timestamp", "coordinator_epoch", "throttle_time_ms", "host", "port", "error_message", "status_detail", "batch_index_error_message", "log_append_time_ms", "cluster_id",
         "rack", "authorized_operations", "topic_authorized_operations", "cluster_authorized_operations", "client_host",
         "documentation", "finalized_features_epoch", "node_endpoints", "is_internal", "total_bytes", "usable_bytes", "log_dir"}
NODES = {"node_id", "leader_id", "leader", "controller_id", "broker_id"}
NODE_LISTS = {"replica_nodes", "isr_nodes", "offline_replicas", "replicas"}
EPOCHS = {"leader_epoch", "committed_leader_epoch", "epoch"}
NOT_YET = (14, 15, 16)


class Closed(Exception):
    """The other side has closed the connection."""


class Connection:
    """Frames over one socket."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=WAIT)
        self.correlation = 0

    def raw(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            raise Closed from None

    def frame(self, body):
        self.raw(struct.pack(">i", len(body)) + body)

    def receive(self):
        def exactly(count):
            out = b""
            while len(out) < count:
                try:
                    more = self.socket.recv(count - len(out))
                except TimeoutError:
                    raise
                except OSError:
                    more = b""
                if not more:
                    raise Closed
                out += more
            return out
        return exactly(struct.unpack(">i", exactly(4))[0])

    def header(self, key, version, flexible, client="peer"):
        self.correlation += 1
        name = struct.pack(">h", len(client)) + client.encode() if client is not None else b"\xff\xff"
        return struct.pack(">hhi", key, version, self.correlation) + name + (b"\0" if flexible else b"")

    def request(self, name, version, body):
        api = APIS[name]
        if isinstance(body, dict):
            body = schema.encode(api.request, body, version, api.flex(version))
        self.frame(self.header(api.key, version, api.flex(version)) + body)

    def response(self, name, version, body_version=None):
        api, reader = APIS[name], schema.Reader(self.receive())
        correlation = reader.number(">i")
        if correlation != self.correlation:
            raise ValueError(f"correlation id {correlation} instead of {self.correlation}")
        if api.flex(version) and name != "ApiVersions":
            assert reader.varint() == 0
        version = version if body_version is None else body_version
        decoded = schema.decode(api.response, reader, version, api.flex(version))
        if reader.at != len(reader.data):
            raise ValueError(f"{len(reader.data) - reader.at} bytes behind the response")
        return decoded

    def alive(self):
        """Whether the connection still answers, and nothing came before that answer."""
        try:
            self.request("ApiVersions", 0, {})
            self.response("ApiVersions", 0)
            return "kept"
        except Closed:
            return "closed"

    def close(self):
        self.socket.close()


class Case:
    """What a case works with. Only `ask`, `raw` and `note` leave something in its record."""

    def __init__(self, address, name, token):
        self.address, self.name, self.token = address, name, token
        self.steps, self.known, self.made, self.ordered = [], {}, 0, False
        self.connection, self.helper = Connection(address), None

    # What is noted.

    def note(self, **what):
        self.steps.append(what)

    def ask(self, name, version, body, drop=(), only=None, body_version=None):
        """Sends a request, notes and returns its answer; None when the connection was closed instead."""
        step = {"request": f"{name} v{version}"}
        self.steps.append(step)
        try:
            self.connection.request(name, version, body)
            answer = self.connection.response(name, version, body_version)
        except Closed:
            step["connection"] = "closed"
            return None
        except TimeoutError:
            step["answer"] = "none in time"
            return None
        self.ordered = name == "Fetch"
        step["answer"] = self.normal(answer, set(drop) | NEVER, only)
        return answer

    def frame(self, what, body, length=None):
        """Sends a frame of any content; notes whether the connection was closed upon it."""
        self.raw(what, struct.pack(">i", len(body) if length is None else length) + body)

    def raw(self, what, data):
        step = {"bytes": what}
        self.steps.append(step)
        try:
            self.connection.raw(data)
            self.connection.socket.settimeout(2)
            self.connection.receive()
            step["answer"] = "some"
        except Closed:
            step["connection"] = "closed"
        except TimeoutError:
            step["answer"] = "none"
        finally:
            self.connection.socket.settimeout(WAIT)

    def silent(self, name, version, body):
        """Sends a request that is not answered."""
        self.steps.append({"request": f"{name} v{version}", "answer": "not awaited"})
        self.connection.request(name, version, body)

    def again(self):
        """Goes on with another connection."""
        self.connection.close()
        self.connection = Connection(self.address)

    # What is prepared, without being noted.

    def quiet(self, name, version, body):
        self.asked.add(name)
        self.helper = self.helper or Connection(self.address)
        self.helper.request(name, version, body)
        return self.helper.response(name, version)

    def quiet_here(self, name, version, body):
        """As `quiet`, on the case's own connection."""
        self.asked.add(name)
        self.connection.request(name, version, body)
        return self.connection.response(name, version)

    # Names of the APIs that cases asked for without noting the whole answer.
    asked = set()

    def learn(self, text, meaning):
        self.known[str(text)] = meaning
        return text

    def unique(self, kind):
        self.made += 1
        number = "" if self.made == 1 else f" {self.made}"
        return self.learn(f"peers-{self.token}-{self.name}-{self.made}", f"<{kind}{number}>")

    def topic(self, partitions=1, **configs):
        """A topic of one's own that has a leader everywhere."""
        name = self.unique("topic")
        wish = {"name": name, "num_partitions": partitions, "replication_factor": 1,
                "configs": [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]}
        made = self.quiet("CreateTopics", 5, {"topics": [wish], "timeout_ms": 15_000})["topics"][0]
        assert made["error_code"] == 0, made
        self.described(name, partitions)
        asked = [{"partition_index": at, "timestamp": -1} for at in range(partitions)]
        wish = {"replica_id": -1, "topics": [{"name": name, "partitions": asked}]}
        self.settled(lambda: not any(one["error_code"] for one in self.quiet("ListOffsets", 7, wish)["topics"][0]["partitions"]))
        return name

    def described(self, name, partitions=1):
        """The topic's metadata, as soon as every partition has a leader."""
        until = time.time() + WAIT
        while time.time() < until:
            found = self.quiet("Metadata", 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False})["topics"][0]
            if found["error_code"] == 0 and len(found["partitions"]) >= partitions \
                    and all(one["error_code"] == 0 for one in found["partitions"]):
                return found
            time.sleep(0.02)
        raise RuntimeError(f"{name} has no leader")

    def settled(self, happened):
        """Waits for what follows an administrative request."""
        until = time.time() + WAIT
        while not happened():
            if time.time() > until:
                raise RuntimeError("not settled in time")
            time.sleep(0.02)

    def id_of(self, topic):
        return self.learn(self.described(topic)["topic_id"], "<topic id>")

    def old_epoch_of(self, topic):
        """An epoch before the leader's; -1 would mean none."""
        now = self.epoch_of(topic)
        return now - 1 if now else -2

    def begin(self, name, version, body):
        """Sends a request on a connection of its own, and leaves the answer for `finish`."""
        link = Connection(self.address)
        link.request(name, version, body)
        return link, name, version

    def finish(self, begun):
        """Notes the answer to what was begun."""
        link, name, version = begun
        self.ordered = name == "Fetch"
        try:
            self.note(request=f"{name} v{version}, begun before", answer=self.normal(link.response(name, version), NEVER, None))
        except Closed:
            self.note(request=f"{name} v{version}, begun before", connection="closed")
        except TimeoutError:
            self.note(request=f"{name} v{version}, begun before", answer="none in time")
        link.close()

    def epoch_of(self, topic):
        return self.described(topic)["partitions"][0]["leader_epoch"]

    def fill(self, topic, count=3, partition=0):
        """Writes `count` records, each a batch of its own."""
        for at in range(count):
            data = batch([b"value %d" % at], first=1_700_000_000_000 + at * 1000)
            answer = self.quiet("Produce", 9, produce(topic, data, partition))
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer

    def producer(self):
        """A producer's id and epoch."""
        for _ in range(200):
            made = self.quiet("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000})
            if made["error_code"] not in NOT_YET:
                assert made["error_code"] == 0, made
                return made["producer_id"], made["producer_epoch"]
            time.sleep(0.05)
        raise RuntimeError("no producer id")

    def group(self):
        return self.unique("group")

    def member(self, group, connection=None, topics=(), **more):
        """Joins and syncs alone: the member's id and the generation."""
        wish = join(group, topics=topics, **more)
        first = self.quiet("JoinGroup", 6, wish)
        if first["error_code"] == 79:
            first = self.quiet("JoinGroup", 6, {**wish, "member_id": first["member_id"]})
        assert first["error_code"] == 0, first
        member = self.learn(first["member_id"], "<member>")
        synced = self.quiet("SyncGroup", 4, {"group_id": group, "generation_id": first["generation_id"], "member_id": member,
                                             "assignments": [{"member_id": member, "assignment": b"mine"}]})
        assert synced["error_code"] == 0, synced
        return member, first["generation_id"]

    def end(self):
        """The last step of every case: is the connection still there?"""
        try:
            state = self.connection.alive()
        except (ValueError, TimeoutError) as error:
            state = f"disturbed: {type(error).__name__}"
        self.steps.append({"connection": state})
        for one in (self.connection, self.helper):
            if one:
                one.close()

    # From an answer to what is comparable.

    def normal(self, value, drop, only, name=""):
        if isinstance(value, dict):
            return {key: self.normal(one, drop, only, key) for key, one in value.items()
                    if key not in drop and (only is None or key in only or isinstance(one, (dict, list)))}
        if isinstance(value, list):
            if name in NODE_LISTS and value and isinstance(value[0], int):
                return ["<node>"] * len(value)
            found = [self.normal(one, drop, only, name) for one in value]
            # Kafka answers in the order of its hash tables; only in Fetch the order means something.
            return found if self.ordered else sorted(found, key=lambda one: json.dumps(one, sort_keys=True))
        if isinstance(value, uuid.UUID):
            return self.known.get(str(value), "<id>" if value.int else "none")
        if isinstance(value, bytes):
            return summary(value) if name == "records" else value.decode(errors="replace")
        if isinstance(value, str):
            return self.known.get(value, "<member>" if name in ("member_id", "leader") and value else value)
        if isinstance(value, bool) or value is None:
            return value
        if name in NODES or name in EPOCHS:
            return value if value < 0 else f"<{'node' if name in NODES else 'epoch'}>"
        if name in ("producer_id", "session_id"):
            return "<id>" if value > 0 else value
        if name == "timestamp":
            return value if value <= 0 or value == 1_700_000_000_000 + (value % 100_000) else "<time>"
        return value


# Bodies that many cases share.

def produce(topic, data, partition=0, acks=-1):
    parts = [{"index": partition, "records": data}]
    return {"acks": acks, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": parts}]}


def join(group, member="", session=30_000, protocols=(("range", b""),), kind="consumer", instance=None, topics=(), rebalance=30_000):
    if topics:
        listed = b"".join(struct.pack(">h", len(one)) + one.encode() for one in topics)
        metadata = struct.pack(">hi", 0, len(topics)) + listed + struct.pack(">i", -1)
        protocols = [("range", metadata)]
    wish = {"group_id": group, "session_timeout_ms": session, "rebalance_timeout_ms": rebalance, "member_id": member,
            "protocol_type": kind, "protocols": [{"name": name, "metadata": data} for name, data in protocols]}
    return {**wish, "group_instance_id": instance} if instance else wish
