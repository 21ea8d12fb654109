"""A small Kafka client for one thread, whose requests are those that it is told to send: what a library would repeat or hide is seen.
An answer with an error raises `Failed`, a connection that is gone `Gone`."""

import ctypes
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "peers"))
import batch as batches
import schema
from rabbit import PATIENCE_S, Gone, Late

APIS = schema.load()
TRANSACTIONAL, CONTROL = 0x10, 0x20
NOT_YET = (14, 15, 16, 51)  # loading, not available, not coordinator, concurrent transactions
OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3


def fast_checksums(folder):
    """Where `build` has left the library."""
    library = ctypes.CDLL(f"{folder}/crc32c.so")
    library.crc32c.restype, library.crc32c.argtypes = ctypes.c_uint32, [ctypes.c_char_p, ctypes.c_size_t]
    batches.crc32c = lambda data: library.crc32c(data, len(data))


def build(folder):
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", f"{folder}/crc32c.so", str(HERE / "crc32c.c")], check=True, capture_output=True)


class Failed(Exception):
    def __init__(self, what, code):
        super().__init__(f"{what}: error {code}")
        self.code = code


def checked(what, code):
    if code:
        raise Failed(what, code)


class Batch:
    """What a fetch has of one batch."""

    def __init__(self, data, at):
        self.base, self.size = struct.unpack_from(">qi", data, at)
        attributes, delta = struct.unpack_from(">hi", data, at + 21)
        self.producer, = struct.unpack_from(">q", data, at + 43)
        self.last = self.base + delta
        self.transactional, self.control = bool(attributes & TRANSACTIONAL), bool(attributes & CONTROL)
        assert attributes & 7 == 0, "a codec that nobody has used"
        self.records = list(self.read(data, at + 57))

    def read(self, data, at):
        count, = struct.unpack_from(">i", data, at)
        at += 4
        for _ in range(count):
            length, at = zigzag(data, at)
            end = at + length
            _, at = zigzag(data, at + 1)
            delta, at = zigzag(data, at)
            key, at = sized(data, at)
            value, at = sized(data, at)
            yield self.base + delta, key, value
            at = end


def zigzag(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at


def sized(data, at):
    length, at = zigzag(data, at)
    return (None, at) if length < 0 else (data[at:at + length], at + length)


class Client:
    def __init__(self, bootstrap):
        host, port = bootstrap.rsplit(":", 1)
        try:
            self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        except OSError:
            raise Gone from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation, self.patience = 0, PATIENCE_S

    def close(self):
        self.socket.close()

    def ask(self, name, version, **body):
        api = APIS[name]
        flexible = api.flex(version)
        payload = schema.encode(api.request, body, version, flexible)
        self.correlation += 1
        head = struct.pack(">hhih", api.key, version, self.correlation, 5) + b"lives" + (b"\0" if flexible else b"")
        try:
            self.socket.settimeout(self.patience)
            self.socket.sendall(struct.pack(">i", len(head) + len(payload)) + head + payload)
            answer = self.exactly(struct.unpack(">i", self.exactly(4))[0])
        except TimeoutError:
            raise Late(f"no answer to {name}") from None
        except OSError:
            raise Gone from None
        reader = schema.Reader(answer)
        assert reader.number(">i") == self.correlation
        if flexible:
            reader.varint()
        return schema.decode(api.response, reader, version, flexible)

    def exactly(self, count):
        out = bytearray()
        while len(out) < count:
            more = self.socket.recv(min(count - len(out), 1 << 20))
            if not more:
                raise Gone
            out += more
        return bytes(out)

    # Topics.

    def create(self, topic, partitions, configs):
        listed = [{"name": key, "value": value} for key, value in configs.items()]
        answer = self.ask("CreateTopics", 5, topics=[{"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": listed}], timeout_ms=20_000)
        checked(f"create {topic}", answer["topics"][0]["error_code"])

    def delete(self, topic):
        checked(f"delete {topic}", self.ask("DeleteTopics", 4, topic_names=[topic], timeout_ms=20_000)["responses"][0]["error_code"])

    def topics(self):
        return {one["name"] for one in self.ask("Metadata", 9, topics=None)["topics"] if not one["error_code"] and not one["is_internal"]}

    def offsets(self, topic, partition):
        """Where it begins and where it ends."""
        out = []
        for when in (-2, -1):
            answer = self.ask("ListOffsets", 7, replica_id=-1, topics=[{"name": topic, "partitions": [{"partition_index": partition, "timestamp": when}]}])
            one = answer["topics"][0]["partitions"][0]
            checked(f"offsets of {topic}", one["error_code"])
            out.append(one["offset"])
        return tuple(out)

    def stable(self, topic, partition):
        """Up to where everything is decided."""
        answer = self.ask("ListOffsets", 7, replica_id=-1, isolation_level=1, topics=[{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}])
        one = answer["topics"][0]["partitions"][0]
        checked(f"offsets of {topic}", one["error_code"])
        return one["offset"]

    def delete_records(self, topic, partition, offset):
        answer = self.ask("DeleteRecords", 2, topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}], timeout_ms=20_000)
        one = answer["topics"][0]["partitions"][0]
        checked(f"delete records of {topic}", one["error_code"])
        return one["low_watermark"]

    # Records.

    def produce(self, topic, partition, records, transaction=None):
        """Records are (key, value). The offset of the first."""
        payload = b"".join(batches.record(at, key, value) for at, (key, value) in enumerate(records))
        identity = {}
        if transaction:
            sequence = transaction.sequences.get((topic, partition), 0)
            identity = {"pid": transaction.producer, "epoch": transaction.epoch, "sequence": sequence, "attributes": TRANSACTIONAL}
            transaction.sequences[topic, partition] = sequence + len(records)
        data = batches.batch([b""] * len(records), payload=payload, **identity)
        answer = self.ask("Produce", 9, transactional_id=transaction and transaction.name, acks=-1, timeout_ms=20_000, topic_data=[
            {"name": topic, "partition_data": [{"index": partition, "records": data}]}])
        one = answer["responses"][0]["partition_responses"][0]
        checked(f"produce to {topic}", one["error_code"])
        return one["base_offset"]

    def read(self, topic, partition, start, most=1 << 20):
        """All committed records from `start` on as (offset, key, value), and the last stable offset. Batches have to ascend from where it was asked."""
        found, position, dead, known = [], start, set(), set()
        while True:
            answer = self.ask("Fetch", 11, replica_id=-1, max_wait_ms=0, min_bytes=0, isolation_level=1, topics=[{"topic": topic, "partitions": [
                {"partition": partition, "fetch_offset": position, "partition_max_bytes": most}]}], rack_id="")
            one = answer["responses"][0]["partitions"][0]
            checked(f"fetch {topic}/{partition} at {position}", one["error_code"])
            stable, data, at, begun = one["last_stable_offset"], one["records"] or b"", 0, position
            aborted = sorted((each["first_offset"], each["producer_id"]) for each in one["aborted_transactions"] or [])
            while at + 61 <= len(data) and at + 12 + struct.unpack_from(">i", data, at + 8)[0] <= len(data):
                batch = Batch(data, at)
                at += 12 + batch.size
                assert batch.last >= position, f"{topic}/{partition}: offsets {batch.base} to {batch.last} come when {position} is next"
                assert batch.base >= position or position == begun, f"{topic}/{partition}: a batch from {batch.base} comes when {position} is next"
                for first, producer in aborted:
                    if first <= batch.last and (first, producer) not in known:
                        known.add((first, producer))
                        dead.add(producer)
                if batch.control:
                    dead.discard(batch.producer)
                elif not (batch.transactional and batch.producer in dead):
                    found += [one for one in batch.records if one[0] >= position and one[0] < stable]
                position = batch.last + 1
            if position >= stable:
                return found, stable
            if position == begun:
                if at == 0 and len(data) >= 12:
                    most *= 4
                    continue
                if not data:
                    # Compaction may have taken what comes before the end.
                    return found, stable

    # Transactions.

    def retried(self, what, ask):
        until = time.monotonic() + self.patience
        while True:
            answer = ask()
            if answer["error_code"] not in NOT_YET:
                checked(what, answer["error_code"])
                return answer
            if time.monotonic() > until:
                raise Failed(f"{what}, again and again", answer["error_code"])
            time.sleep(0.01)

    def begin(self, transaction):
        """Gives it a new epoch; what was open is aborted."""
        answer = self.retried("init producer", lambda: self.ask("InitProducerId", 3, transactional_id=transaction.name, transaction_timeout_ms=600_000))
        transaction.producer, transaction.epoch, transaction.sequences = answer["producer_id"], answer["producer_epoch"], {}

    def add(self, transaction, topic, partition):
        def ask():
            answer = self.ask("AddPartitionsToTxn", 3, v3_and_below_transactional_id=transaction.name, v3_and_below_producer_id=transaction.producer,
                              v3_and_below_producer_epoch=transaction.epoch, v3_and_below_topics=[{"name": topic, "partitions": [partition]}])
            return {"error_code": answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"]}
        self.retried("add partition", ask)

    def add_offsets(self, transaction, group, topic, partition, offset):
        who = {"transactional_id": transaction.name, "producer_id": transaction.producer, "producer_epoch": transaction.epoch}
        self.retried("add offsets", lambda: self.ask("AddOffsetsToTxn", 3, group_id=group, **who))

        def ask():
            answer = self.ask("TxnOffsetCommit", 3, group_id=group, topics=[{"name": topic, "partitions": [
                {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}]}], **who)
            return answer["topics"][0]["partitions"][0]
        self.retried("offsets of a transaction", ask)

    def finish(self, transaction, committed):
        self.retried("end of a transaction", lambda: self.ask("EndTxn", 3, transactional_id=transaction.name, producer_id=transaction.producer,
                                                               producer_epoch=transaction.epoch, committed=committed))

    def ending(self):
        """Transactions whose end is decided and not carried out."""
        answer = self.ask("ListTransactions", 0, state_filters=["PrepareCommit", "PrepareAbort"], producer_id_filters=[])
        checked("list of transactions", answer["error_code"])
        return sorted(one["transactional_id"] for one in answer["transaction_states"])

    # Groups.

    def commit_offset(self, group, topic, partition, offset):
        answer = self.ask("OffsetCommit", 7, group_id=group, topics=[{"name": topic, "partitions": [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}]}])
        checked(f"offset of {group}", answer["topics"][0]["partitions"][0]["error_code"])

    def committed_offset(self, group, topic, partition):
        answer = self.ask("OffsetFetch", 7, group_id=group, topics=[{"name": topic, "partition_indexes": [partition]}], require_stable=False)
        checked(f"offsets of {group}", answer["error_code"])
        one = answer["topics"][0]["partitions"][0]
        checked(f"offset of {group}", one["error_code"])
        return one["committed_offset"]
