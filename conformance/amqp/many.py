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


def main():
    with tempfile.TemporaryDirectory(prefix="mainstem-many-") as scratch:
        broker = Broker(sys.argv[1], f"{scratch}/data").start()
        try:
            together(broker)
            there = topics(broker)
            assert len(there) == DURABLE + 1, len(there)
            short_lived(broker)
            broker.end(signal.SIGKILL)
            broker.start()
            assert topics(broker) == there
            together(broker, passive=True)
        finally:
            broker.end(signal.SIGKILL)


main()
