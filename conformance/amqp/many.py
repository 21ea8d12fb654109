"""Many queues with pika: declared by several connections at once, there after a kill; exclusive ones leave nothing behind."""

import signal
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.dont_write_bytecode = True
import pika
from confluent_kafka.admin import AdminClient
from driver.broker import Broker

DURABLE, CONNECTIONS, SHORT_LIVED = 1000, 4, 100


def connect(broker):
    host, _, port = broker.amqp.rpartition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))


def declare(broker, number, failed, passive=False):
    try:
        connection = connect(broker)
        channel = connection.channel()
        for queue in range(number, DURABLE, CONNECTIONS):
            channel.queue_declare(f"many-{queue:04}", durable=True, passive=passive)
        # All connections want this one, at the same time.
        channel.queue_declare("many-shared", durable=True, passive=passive)
        connection.close()
    except Exception as error:
        failed.append(repr(error))


def together(broker, passive=False):
    failed = []
    threads = [threading.Thread(target=declare, args=(broker, number, failed, passive)) for number in range(CONNECTIONS)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not failed, failed[0]


def topics(broker):
    return set(AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(timeout=30).topics)


def series(broker):
    """What is measured, and of what; and counts of what is there."""
    lines = [line for line in broker.metrics().splitlines() if not line.startswith("#")]
    counts = ("mainstem_topics ", "mainstem_partitions ", "mainstem_amqp_connections ", "mainstem_amqp_channels ", "mainstem_amqp_consumers ")
    return {line if line.startswith(counts) else line.rsplit(" ", 1)[0] for line in lines}


def short_lived(broker):
    for _ in range(SHORT_LIVED):
        connection = connect(broker)
        channel = connection.channel()
        name = channel.queue_declare("", exclusive=True, auto_delete=True).method.queue
        channel.queue_bind(name, "amq.direct", "key")
        channel.basic_publish("amq.direct", "key", b"once")
        method, _, body = next(channel.consume(name, auto_ack=True, inactivity_timeout=10))
        assert method and body == b"once", (method, body)
        connection.close()
    connection = connect(broker)
    # Nothing is bound any more: a mandatory message comes back.
    channel = connection.channel()
    channel.confirm_delivery()
    try:
        channel.basic_publish("amq.direct", "key", b"x", mandatory=True)
        raise AssertionError("a queue is left")
    except pika.exceptions.UnroutableError:
        connection.close()


def deleted(broker):
    """Some of them, by several connections at once, each declared again in between; nothing of them is there after a kill."""
    failed = []

    def work(number):
        try:
            channel = connect(broker).channel()
            for queue in range(number, SHORT_LIVED, CONNECTIONS):
                name = f"many-{queue:04}"
                channel.basic_publish("", name, b"x")
                channel.queue_delete(name)
                assert channel.queue_declare(name, durable=True).method.message_count == 0
                channel.queue_delete(name)
        except Exception as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONNECTIONS)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not failed, failed[0]
    broker.end(signal.SIGKILL)
    broker.start()
    left = topics(broker)
    assert len(left) == DURABLE + 1 - SHORT_LIVED and "many-0000" not in left, len(left)


def main():
    with tempfile.TemporaryDirectory(prefix="mainstem-many-") as scratch:
        broker = Broker(sys.argv[1], f"{scratch}/data").start()
        try:
            together(broker)
            there = topics(broker)
            assert len(there) == DURABLE + 1, len(there)
            short_lived(broker)
            before = series(broker)
            short_lived(broker)
            assert series(broker) == before, series(broker).symmetric_difference(before)
            broker.end(signal.SIGKILL)
            broker.start()
            assert topics(broker) == there
            together(broker, passive=True)
            deleted(broker)
        finally:
            broker.end(signal.SIGKILL)


main()
