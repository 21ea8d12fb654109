"""One of eight idempotent producers of a kill round: writes numbered records to its own partition until told to stop, and
notes each acknowledged one as `partition offset number`. Arguments: bootstrap, topic, partition, first number, file."""

import signal
import sys

from confluent_kafka import Producer

bootstrap, topic, partition, first, path = sys.argv[1:6]
running = True


def stop(_signal, _frame):
    global running
    running = False


signal.signal(signal.SIGTERM, stop)
producer = Producer({
    "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 2, "log_level": 0,
    "message.timeout.ms": 60000, "reconnect.backoff.max.ms": 200, "queue.buffering.max.messages": 2000,
})
notes = open(path, "a", buffering=1 << 16)


def answered(error, message):
    if error is None:
        notes.write(f"{message.partition()} {message.offset()} {message.value().split(b' ', 1)[0].decode()}\n")


number = int(first)
while running:
    try:
        producer.produce(topic, b"%d " % number + b"x" * 500, partition=int(partition), on_delivery=answered)
        number += 1
    except BufferError:
        pass
    producer.poll(0.005 if number % 50 == 0 else 0)
producer.flush(30)
notes.close()
print(number)
