"""`mainstem why` names the cause in cases that are staged from outside, first, and nothing that is not there. Arguments: the binary. Prints a line a case."""

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pika
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parent))
from driver.broker import Broker, free_port
from faulty_disk import FLAGS as FAULTY_FLAGS, FaultyDisk
from quotas import Quotas
from client import Connection

# A file system that goes with the process: nobody else sees it. The folder is the first argument.
OWN_DISK = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=24m none "$0" && exec "$@"']
MB = 1_000_000
# What says that nothing is slow on the broker's side; comes last.
REST = {"client", "no-records"}
# A smaller share may be anything on a machine that has other things to do.
LEAST = 0.15


def why(broker, seconds=1, **subject):
    """What the command says; `name`: of whatever has that name."""
    command = [str(broker.binary), "why", "--json", "--admin", f"127.0.0.1:{broker.admin}", "--seconds", str(seconds)]
    for name, value in subject.items():
        command += [value] if name == "name" else [f"--{name}", value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr[-200:]}"
    return json.loads(done.stdout)


def causes(found):
    return [reason["cause"] for reason in found["reasons"] if max(reason["share"], reason["worst"]) >= LEAST]


def judge(found, wanted):
    """Those come first, in any order, and nothing else is named but what says that the broker is not at fault. Returns what is."""
    named = causes(found)
    said = json.dumps([(one["cause"], one["share"], one["worst"], one["text"]) for one in found["reasons"]])
    more = set(named) - set(wanted) - REST
    # A disk that stalls for itself is told of truly, and asked about again.
    if more != {"slow-disk"}:
        assert sorted(named[:len(wanted)]) == sorted(wanted), f"{named} instead of {wanted}: {said}"
        assert not more, f"{sorted(more)} beside {wanted}: {said}"
    return said if more else None


def expect(broker, wanted, **question):
    """What `why` answers to a question is this, in one of three times if the disk of the machine stalls meanwhile."""
    stalls = [judge(why(broker, **question), wanted)]
    while stalls[-1] and len(stalls) < 3:
        stalls.append(judge(why(broker, **question), wanted))
    assert not stalls[-1], f"slow-disk beside {wanted}, three times: {stalls[-1]}"


class Busy:
    """Does something again and again, until the block ends."""

    def __init__(self, act, close=lambda: None):
        self.act, self.close, self.ends, self.failure = act, close, threading.Event(), None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.ends.is_set():
                self.act()
        except Exception as error:
            self.failure = error

    def __enter__(self):
        self.thread.start()
        time.sleep(0.7)
        return self

    def __exit__(self, kind, *_):
        self.ends.set()
        self.thread.join(20)
        self.close()
        if self.failure and kind is None:
            raise self.failure


def produces(broker, name, pause=0, topic="t", **config):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": name, "linger.ms": 0, "message.timeout.ms": 60_000,
                         "queue.buffering.max.kbytes": 2048, **config})

    def act():
        try:
            producer.produce(topic, bytes(20_000))
            if pause:
                producer.flush(10)
                time.sleep(pause)
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)

    return Busy(act, lambda: (producer.purge(), producer.flush(5)))


def sluggish(broker, name):
    """Asks for much and takes nothing."""
    host, port = broker.bootstrap.rsplit(":", 1)
    connection = Connection((host, int(port)))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}
    body = {"min_bytes": 1, "max_bytes": 50 << 20, "topics": [{"topic": "t", "partitions": [partition]}]}
    plain, connection.header = connection.header, lambda key, version, flexible: plain(key, version, flexible, name)
    connection.request("Fetch", 12, body)
    return connection


def a_quota(broker):
    Quotas(broker.bootstrap).set({"client-id": "limited"}, producer_byte_rate=MB)
    with produces(broker, "limited"):
        expect(broker, ["quota"], client="limited")
        expect(broker, ["quota"], name="limited")


def the_client_itself(broker):
    with produces(broker, "thoughtful", pause=0.2):
        expect(broker, ["client"], client="thoughtful")


def a_reader_that_does_not_read(broker):
    connection = sluggish(broker, "sluggish")
    time.sleep(0.3)
    expect(broker, ["slow-reader"], client="sluggish")
    connection.close()


def a_quota_and_a_slow_reader(broker):
    connection = sluggish(broker, "both")
    with produces(broker, "limited"):
        expect(broker, ["quota", "slow-reader"], topic="t")
        # Each has one of the connections, and says of it what the list of connections says.
        found = why(broker, topic="t")
        for reason in found["reasons"]:
            parts = [one["shares"].get(reason["cause"], 0) for one in found["connections"]]
            parts = [part for part in parts if part >= 0.05]
            if reason["cause"] in ("quota", "slow-reader"):
                assert reason["connections"] == len(parts) and abs(reason["share"] - sum(parts) / len(parts)) < 0.01, (reason, found["connections"])
                assert abs(int(re.search(r"(\d+) %", reason["text"])[1]) - reason["share"] * 100) <= 1, reason
    connection.close()


def consumes(broker, name, queue):
    host, port = broker.amqp.rsplit(":", 1)
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), client_properties={"connection_name": name}))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume(queue, lambda *_: None)
    return connection, channel


def a_consumer_that_acknowledges_nothing(broker):
    connection, channel = consumes(broker, "hoarder", "hoard")
    for _ in range(50):
        channel.basic_publish("", "hoard", b"x")
    connection.process_data_events(0.3)
    expect(broker, ["unacknowledged"], client="hoarder")
    found = why(broker, client="hoarder")
    assert "no-records" not in causes(found), found["reasons"]
    assert found["connections"][0]["shares"].get("unacknowledged", 0) >= LEAST, found["connections"]
    connection.close()


def a_queue_that_is_empty(broker):
    connection, _ = consumes(broker, "waiter", "empty")
    expect(broker, ["no-records"], client="waiter")
    connection.close()


def a_reader_at_the_end(broker):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "client.id": "patient"})
    consumer.assign([TopicPartition("t", 0, consumer.get_watermark_offsets(TopicPartition("t", 0), 10)[1])])
    with Busy(lambda: consumer.poll(0.2), consumer.close):
        expect(broker, ["no-records"], client="patient")


def the_cost_of_a_filter(broker):
    """A consumer that reads the same again and again, each time with words of which nothing is known yet; no record has them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("wide", 1, config={"mainstem.durability": "memory"})])["wide"].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "linger.ms": 20, "queue.buffering.max.messages": 600_000})
    for number in range(500_000):
        producer.produce("wide", b"value %d" % number, headers=[("kind", b"common-%d" % number)])
    assert producer.flush(30) == 0
    quotas, words = Quotas(broker.bootstrap), itertools.count()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "choosy", "client.id": "choosy", "enable.partition.eof": True,
                         "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 10})

    def look_for_others():
        quotas.group("choosy", mainstem_filter=f"header.kind LIKE '%rare-{next(words)}%'")

    def to_the_end():
        message = consumer.poll(15)
        assert message is not None and message.error() is not None, "a record comes that is not wanted" if message else "the end does not come"
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()

    def once_more():
        look_for_others()
        consumer.seek(TopicPartition("wide", 0, 0))
        to_the_end()

    look_for_others()
    consumer.subscribe(["wide"])
    to_the_end()
    with Busy(once_more, consumer.close):
        expect(broker, ["filter"], client="choosy")


def memory_budget(broker):
    """Clients that send long requests as fast as they are read wait in line for memory, of which requests have an eighth of the budget, most of their time; one at
    a time is read."""
    host, port = broker.bootstrap.rsplit(":", 1)
    ended = threading.Event()

    def sends():
        asks = struct.pack(">hhih", 18, 0, 1, len("starved")) + b"starved"
        while not ended.is_set():
            # What makes no sense ends its connection once all of it is there.
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))) as connection:
                connection.settimeout(1)
                connection.sendall(struct.pack(">i", len(asks)) + asks)
                connection.recv(1 << 16)
                connection.sendall(struct.pack(">i", 60 * MB))
                while not ended.is_set():
                    with contextlib.suppress(TimeoutError):
                        connection.send(bytes(32 << 10))
                    ended.wait(0.01)

    senders = [threading.Thread(target=sends) for _ in range(8)]
    try:
        for sender in senders:
            sender.start()
        time.sleep(2)
        expect(broker, ["memory"], client="starved")
    finally:
        ended.set()
        for sender in senders:
            sender.join()
    with produces(broker, "starved"):
        assert "memory" not in causes(why(broker, client="starved")), "there is memory again"


def a_full_disk(binary, scratch):
    folder = f"{scratch}/full"
    Path(folder).mkdir()
    broker = Broker(binary, folder, ["--set", "mainstem.segment.bytes=1048576"])
    broker.start([*OWN_DISK, folder])
    try:
        with produces(broker, "filler"):
            until = time.monotonic() + 15
            while "disk-full" not in causes(found := why(broker, seconds=0.3, client="filler")) and time.monotonic() < until:
                pass
            expect(broker, ["disk-full"], seconds=0.5, client="filler")
    finally:
        broker.end(signal.SIGTERM)


def a_slow_disk_alone_and_with_a_quota(binary, scratch):
    disk, folder = FaultyDisk(scratch), f"{scratch}/slow"
    broker = Broker(binary, folder, FAULTY_FLAGS).start(disk.prefix)
    try:
        with produces(broker, "writer", pause=0.005):
            named = causes(why(broker, client="writer"))
            assert "slow-disk" not in named, f"{named} before the disk is slow"
            disk.slow(folder, 0.06)
            time.sleep(0.3)
            expect(broker, ["slow-disk"], client="writer")
            Quotas(broker.bootstrap).set({"client-id": "limited"}, producer_byte_rate=MB)
            with produces(broker, "limited"):
                expect(broker, ["slow-disk", "quota"], topic="t")
    finally:
        disk.heal()
        broker.end(signal.SIGTERM)


STORM = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
while True:
    try:
        with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as plain, context.wrap_socket(plain):
            pass
    except OSError:
        pass
"""


def a_storm_of_handshakes(binary, scratch):
    """Clients that come and go over TLS, beside one that has been there before. Broker and storm have cores of their own."""
    key, certificate, port = f"{scratch}/key.pem", f"{scratch}/certificate.pem", free_port()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:3072", "-nodes", "-days", "2", "-subj", "/CN=storm", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    pin = [["taskset", "-c", ",".join(map(str, part))] for part in (cores[:half], cores[half:] or cores)]
    broker = Broker(binary, f"{scratch}/tls", ["--kafka-tls", f"127.0.0.1:{port}", "--tls-certificate", certificate, "--tls-key", key]).start(pin[0])
    storm = []
    try:
        client = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "settled"})
        with Busy(lambda: client.list_topics(timeout=10)):
            named = causes(why(broker, client="settled"))
            assert "tls-handshake" not in named, f"{named} before the storm"
            storm = [subprocess.Popen([*pin[1], sys.executable, "-c", STORM, str(port)]) for _ in range(2 * half)]
            time.sleep(1)
            expect(broker, ["tls-handshake"], client="settled")
            expect(broker, ["tls-handshake"])
    finally:
        for one in storm:
            one.kill()
            one.wait()
        broker.end(signal.SIGTERM)


def report(case, *arguments):
    name = case.__name__.replace("_", "-")
    try:
        case(*arguments)
        print(f"ok {name}", flush=True)
    except Exception as error:
        print(f"failed {name}: {error or type(error).__name__}", flush=True)


def with_broker(binary, folder, cases, *flags):
    broker = Broker(binary, folder, flags).start()
    try:
        with produces(broker, "filler"):
            pass
        for case in cases:
            report(case, broker)
    finally:
        broker.end(signal.SIGTERM)


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="mainstem-why-") as scratch:
        with_broker(binary, f"{scratch}/data", [
            a_quota, the_client_itself, a_reader_that_does_not_read, a_quota_and_a_slow_reader, a_consumer_that_acknowledges_nothing, a_queue_that_is_empty,
            a_reader_at_the_end, the_cost_of_a_filter], "--set", "group.initial.rebalance.delay.ms=0")
        with_broker(binary, f"{scratch}/small", [memory_budget], "--memory", "64MiB")
        for case in (a_full_disk, a_slow_disk_alone_and_with_a_quota, a_storm_of_handshakes):
            report(case, binary, scratch)


main()
