"""What must be there once, while the broker is killed: a message that went to many queues is in all of them or in none, with one queue purged and
one deleted; a message whose time is over is in its queue or among the dead letters, never in both. Arguments: the binary, the durability class."""

import collections
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from connecting import connect
from driver.broker import Broker

QUEUES = [f"many-{number}" for number in range(8)]
KILLS, BETWEEN_S, SETTLES = 4, 0.8, 30
# Seconds without a message after which one that is left is given up.
GIVEN_UP = 30


def publish(broker, exchange, key, ends, confirmed):
    """Message after message, each confirmed before the next, on a new connection whenever one breaks."""
    number = 0
    while not ends.is_set():
        try:
            channel = connect(broker).channel()
            channel.confirm_delivery()
            while not ends.is_set():
                number += 1
                channel.basic_publish(exchange, key, f"{number} ".encode() + b"x" * 1000, pika.BasicProperties(delivery_mode=2))
                confirmed.append(number)
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(0.02)


def drain(broker, queue):
    """Numbers of the messages of a queue, in its order."""
    connection = connect(broker)
    channel, found, last = connection.channel(), [], time.time()
    for method, _properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=0.5):
        if method is not None:
            found.append(int(body.split()[0]))
            last = time.time()
            continue
        left = channel.queue_declare(queue, passive=True).method.message_count
        if not left and not channel.get_waiting_message_count():
            break
        assert time.time() < last + GIVEN_UP, f"{left} messages of {queue} do not come after {len(found)}"
    connection.close()
    return found


def declare(broker):
    connection = connect(broker)
    channel = connection.channel()
    channel.exchange_declare("many", "fanout", durable=True)
    for queue in QUEUES:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "many")
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("short", durable=True,
                          arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    connection.close()


def once(binary, durability):
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        broker = Broker(binary, f"{scratch}/data", ["--durability", durability]).start()
        ends, many, short = threading.Event(), [], []
        try:
            declare(broker)
            wishes = [("many", "", ends, many), ("", "short", ends, short)]
            threads = [threading.Thread(target=publish, args=(broker, *wish), daemon=True) for wish in wishes]
            [thread.start() for thread in threads]
            for kill in range(KILLS):
                time.sleep(BETWEEN_S)
                if kill == 1:
                    channel = connect(broker).channel()
                    channel.queue_purge(QUEUES[0])
                    channel.queue_delete(QUEUES[1])
                    # As what is acknowledged, a purge is durable 50 ms later.
                    time.sleep(0.4)
                broker.end(signal.SIGKILL)
                broker.start()
            ends.set()
            [thread.join(30) for thread in threads]
            check(broker, many, short)
        finally:
            ends.set()
            broker.end(signal.SIGTERM)


def check(broker, many, short):
    found = [drain(broker, queue) for queue in QUEUES[2:]]
    assert all(one == found[0] for one in found), f"queues differ: {[len(one) for one in found]} messages"
    assert found[0] == sorted(set(found[0])), "a message is there twice, or not in its place"
    lost = set(many) - set(found[0])
    assert not lost, f"{len(lost)} confirmed messages are in none of the queues: {sorted(lost)[:3]}"
    purged = drain(broker, QUEUES[0])
    assert purged == found[0][len(found[0]) - len(purged):] and len(purged) < len(found[0]), "the purged queue has what came after that"
    deadline, channel = time.time() + SETTLES, connect(broker).channel()
    while channel.queue_declare("short", passive=True).method.message_count and time.time() < deadline:
        time.sleep(0.1)
    dead = collections.Counter(drain(broker, "dead"))
    lost, twice = set(short) - set(dead), [number for number, times in dead.items() if times > 1]
    assert not lost and not twice, f"dead letters: {len(lost)} are missing, {len(twice)} are there twice: {sorted(lost)[:3]} {twice[:3]}"
    print(f"{len(found[0])} messages in {len(QUEUES)} queues, {len(dead)} dead letters, {KILLS} kills")
    assert len(many) > 100 and len(short) > 100


if __name__ == "__main__":
    once(sys.argv[1], sys.argv[2])
