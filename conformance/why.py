"""`GET /v1/why` names the cause in cases that are staged from outside. Arguments: the binary. Prints a line a case."""

import base64
import json
import signal
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pika
from confluent_kafka import Consumer, Producer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parent))
from driver.broker import Broker
from quotas import Quotas
from client import Connection

# A file system that goes with the process: nobody else sees it. The folder is the first argument.
OWN_DISK = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=24m none "$0" && exec "$@"']
MB = 1_000_000


def why(broker, seconds=1, **subject):
    query = urllib.parse.urlencode({**subject, "seconds": seconds})
    request = urllib.request.Request(f"http://127.0.0.1:{broker.admin}/v1/why?{query}",
                                     headers={"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def causes(found, least=0.1):
    return [reason["cause"] for reason in found["reasons"] if max(reason["share"], reason["worst"]) >= least]


def expect(found, *wanted):
    """Those come first, in any order."""
    first = causes(found)[:len(wanted)]
    assert sorted(first) == sorted(wanted), f"{first} instead of {list(wanted)}: {json.dumps(found['reasons'])}"


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

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join(20)
        self.close()


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
        expect(why(broker, client="limited"), "quota")


def the_client_itself(broker):
    with produces(broker, "thoughtful", pause=0.2):
        expect(why(broker, client="thoughtful"), "client")


def a_reader_that_does_not_read(broker):
    connection = sluggish(broker, "sluggish")
    time.sleep(0.3)
    expect(why(broker, client="sluggish"), "slow-reader")
    connection.close()


def two_at_once(broker):
    connection = sluggish(broker, "both")
    with produces(broker, "limited"):
        found = causes(why(broker, topic="t"))
    connection.close()
    assert {"quota", "slow-reader"} <= set(found[:2]), found


def a_consumer_that_acknowledges_nothing(broker):
    host, port = broker.amqp.rsplit(":", 1)
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), client_properties={"connection_name": "hoarder"}))
    channel = connection.channel()
    channel.queue_declare("hoard", durable=True)
    for _ in range(50):
        channel.basic_publish("", "hoard", b"x")
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume("hoard", lambda *_: None)
    connection.process_data_events(0.3)
    expect(why(broker, client="hoarder"), "unacknowledged")
    connection.close()


def a_reader_at_the_end(broker):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "client.id": "patient"})
    consumer.assign([TopicPartition("t", 0, consumer.get_watermark_offsets(TopicPartition("t", 0), 10)[1])])
    with Busy(lambda: consumer.poll(0.2), consumer.close):
        expect(why(broker, client="patient"), "no-records")


def a_full_disk(binary, scratch):
    folder = f"{scratch}/full"
    Path(folder).mkdir()
    broker = Broker(binary, folder, ["--set", "mainstem.segment.bytes=1048576"])
    broker.start([*OWN_DISK, folder])
    try:
        with produces(broker, "filler"):
            until = time.monotonic() + 15
            while "disk-full" not in (found := causes(why(broker, seconds=0.3, client="filler"))) and time.monotonic() < until:
                pass
            assert found[0] == "disk-full", found
    finally:
        broker.end(signal.SIGTERM)


def main():
    cases = [a_quota, the_client_itself, a_reader_that_does_not_read, two_at_once, a_consumer_that_acknowledges_nothing, a_reader_at_the_end]
    with tempfile.TemporaryDirectory(prefix="mainstem-why-") as scratch:
        broker = Broker(sys.argv[1], f"{scratch}/data").start()
        try:
            with produces(broker, "filler"):
                pass
            for case in [*(lambda case=case: case(broker) for case in cases), lambda: a_full_disk(sys.argv[1], scratch)]:
                name = case.__defaults__[0].__name__ if case.__defaults__ else "a_full_disk"
                try:
                    case()
                    print(f"ok {name.replace('_', '-')}", flush=True)
                except Exception as error:
                    print(f"failed {name.replace('_', '-')}: {error or type(error).__name__}", flush=True)
        finally:
            broker.end(signal.SIGTERM)


main()
