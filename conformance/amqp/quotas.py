"""Quotas of users hold for pika's publishers and consumers, and acknowledgements and heartbeats go on meanwhile. Arguments: the binary. Prints a
line a case."""

import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker
from quotas import Meter, Quotas, near

MB = 1_000_000
BODY = bytes(20_000)


def connect(broker, name, **more):
    host, port = broker.amqp.rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), client_properties={"connection_name": name}, **more))


def publishers(broker, quotas):
    """One that is limited by its user, and changes while it runs; nothing that it has published is lost when it closes."""
    quotas.set({"user": "guest"}, producer_byte_rate=2 * MB)
    meter, ends, count = Meter(), threading.Event(), [0]

    def publish():
        connection = connect(broker, "publisher", heartbeat=5)
        channel = connection.channel()
        channel.queue_declare("limited", durable=True)
        while not ends.is_set():
            channel.basic_publish("", "limited", BODY)
            count[0] += 1
            meter.add(len(BODY))
        connection.close()

    thread = threading.Thread(target=publish)
    thread.start()
    time.sleep(1.5)
    near(meter.over(2), 2 * MB, 0.25, "published at 2 MB/s")
    quotas.set({"user": "guest"}, producer_byte_rate=6 * MB)
    time.sleep(1)
    near(meter.over(2), 6 * MB, 0.25, "published a second after the change to 6 MB/s")
    ends.set()
    thread.join(30)
    quotas.set({"user": "guest"}, producer_byte_rate=None)
    connection = connect(broker, "looker")
    until = time.monotonic() + 5
    while (found := connection.channel().queue_declare("limited", passive=True).method.message_count) != count[0] and time.monotonic() < until:
        time.sleep(0.05)
    connection.close()
    assert found == count[0], f"{found} messages of {count[0]}"


def consumers(broker, quotas):
    """One that acknowledges, limited by its connection's name; others of the same user are not."""
    quotas.set({"client-id": "slow"}, consumer_byte_rate=2 * MB)
    rates = {}
    for name, seconds in (("slow", 3), ("quick", 0.5)):
        connection, meter = connect(broker, name), Meter()
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)

        def take(_channel, method, _properties, body):
            meter.add(len(body))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume("limited", take)
        if name == "slow":
            # What it may have at once.
            connection.process_data_events(1)
        # The other may take all there is with its first look.
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            connection.process_data_events(0.05)
        rates[name] = meter.between(start, start + seconds)
        connection.close()
    near(rates["slow"], 2 * MB, 0.35, "consumed at 2 MB/s")
    assert rates["quick"] > 6 * MB, f"without a quota {rates['quick'] / MB:.1f} MB/s"
    quotas.set({"client-id": "slow"}, consumer_byte_rate=None)


def behind(broker, quotas):
    """Consumers of a queue that is far behind are slowed down by the rules of its group, until those are gone."""
    connection = connect(broker, "filler")
    channel = connection.channel()
    channel.queue_declare("behind", durable=True)
    for _ in range(700):
        channel.basic_publish("", "behind", BODY)
    connection.close()
    # The group under which queues are that name none.
    quotas.group("amqp.queue", mainstem_laggard_rules="lag>1MB 60MB/min")
    meter, ends = Meter(), threading.Event()

    def consume():
        connection = connect(broker, "late")
        channel = connection.channel()
        for message in channel.consume("behind", auto_ack=True, inactivity_timeout=0.2):
            meter.add(len(message[2] or b""))
            if ends.is_set():
                break
        connection.close()

    thread = threading.Thread(target=consume)
    thread.start()
    time.sleep(2)
    near(meter.over(3), MB, 0.3, "consumed of a queue that is far behind, at 60 MB a minute")
    quotas.group("amqp.queue", mainstem_laggard_rules="")
    until = time.monotonic() + 4
    while meter.total < 700 * len(BODY) and time.monotonic() < until:
        time.sleep(0.05)
    ends.set()
    thread.join(30)
    assert meter.total == 700 * len(BODY), f"{meter.total / MB:.1f} MB came, also without a rule"


def behind_apart(broker, quotas):
    """The rules hold for who asks for single messages, and for a stream's consumer by how far that is itself."""
    connection = connect(broker, "filler")
    channel = connection.channel()
    channel.queue_declare("asked", durable=True)
    channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    for _ in range(300):
        channel.basic_publish("", "asked", BODY)
        channel.basic_publish("", "stream", BODY)
    connection.close()
    quotas.group("amqp.queue", mainstem_laggard_rules="lag>1MB 60MB/min")
    asked, late, ends = Meter(), Meter(), threading.Event()

    def ask():
        connection = connect(broker, "asks")
        channel = connection.channel()
        while not ends.is_set():
            asked.add(len(channel.basic_get("asked", auto_ack=True)[2] or b""))
        connection.close()

    def read(meter, start):
        connection = connect(broker, f"reads from {start}")
        channel = connection.channel()
        channel.basic_qos(prefetch_count=200)

        def take(_channel, method, _properties, body):
            meter.add(len(body))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume("stream", take, arguments={"x-stream-offset": start})
        while not ends.is_set():
            connection.process_data_events(0.05)
        connection.close()

    early = Meter()
    threads = [threading.Thread(target=ask), threading.Thread(target=read, args=(late, "first")), threading.Thread(target=read, args=(early, "next"))]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    publisher = connect(broker, "goes on")
    for _ in range(20):
        publisher.channel().basic_publish("", "stream", BODY)
    publisher.close()
    start = time.monotonic()
    while early.total < 20 * len(BODY) and time.monotonic() < start + 3:
        time.sleep(0.02)
    assert early.total == 20 * len(BODY), f"who is not behind got {early.total} bytes"
    assert time.monotonic() < start + 1, "who is not behind waited for who is"
    time.sleep(2)
    got = {"asked for": asked.between(start, start + 2), "read of a stream": late.between(start, start + 2)}
    quotas.group("amqp.queue", mainstem_laggard_rules="")
    until = time.monotonic() + 4
    while min(asked.total, late.total - 20 * len(BODY)) < 300 * len(BODY) and time.monotonic() < until:
        time.sleep(0.05)
    ends.set()
    for thread in threads:
        thread.join(30)
    for what, rate in got.items():
        near(rate, MB, 0.3, f"{what} at 60 MB a minute")
    assert (asked.total, late.total) == (300 * len(BODY), 320 * len(BODY)), "all came without a rule"


def main():
    with tempfile.TemporaryDirectory(prefix="mainstem-quotas-") as scratch:
        broker = Broker(sys.argv[1], f"{scratch}/data", ["--set", "mainstem.shards=2"]).start()
        try:
            quotas = Quotas(broker.bootstrap)
            for name, case in (("publishers-are-held-to-their-rate", publishers), ("consumers-are-held-to-their-rate", consumers),
                               ("a-queue-that-is-far-behind-is-slowed-down", behind),
                               ("who-asks-or-reads-a-stream-far-behind-is-slowed-down", behind_apart)):
                try:
                    case(broker, quotas)
                    print(f"ok {name}", flush=True)
                except Exception as error:
                    print(f"failed {name}: {error or type(error).__name__}", flush=True)
        finally:
            broker.end(signal.SIGTERM)


main()
