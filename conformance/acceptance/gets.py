"""What one connection has published without a confirm, and another one asks for a moment later, beside the real RabbitMQ."""

import time

import pika

from machine import Folder, Mainstem, RabbitMQ

ROUNDS, PAIRS, PATIENCE_S = 100, 3, 5
# Name, delivery mode, and how the queue is declared. Only the last needs no commit: its messages are in memory.
KINDS = [
    ("persistent, classic queue", 2, dict(durable=True)),
    ("persistent, quorum queue", 2, dict(durable=True, arguments={"x-queue-type": "quorum"})),
    ("transient, classic queue", 1, dict(durable=True)),
    ("transient, exclusive queue", 1, dict(exclusive=True)),
]
PAUSES_MS = (0, 1)


def connect(address):
    host, port = address.rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))


def late(address, kind, pause_ms, rounds):
    """How often a get found nothing, and how long the longest took that found its message."""
    _, mode, flags = kind
    one, other = connect(address), connect(address)
    publisher, getter = one.channel(), (one if flags.get("exclusive") else other).channel()
    queue = getter.queue_declare("", **flags).method.queue if flags.get("exclusive") else "gets"
    if not flags.get("exclusive"):
        publisher.queue_declare(queue, **flags)
    missing, longest = 0, 0.0
    for number in range(rounds):
        publisher.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=mode))
        time.sleep(pause_ms / 1000)
        asked = time.time()
        method, _, body = getter.basic_get(queue, auto_ack=True)
        if method is None:
            missing += 1
            until = time.time() + PATIENCE_S
            while method is None and time.time() < until:
                method, _, body = getter.basic_get(queue, auto_ack=True)
        else:
            longest = max(longest, time.time() - asked)
        if body != b"%d" % number:
            raise RuntimeError(f"{body} instead of {number}")
    publisher.queue_delete(queue)
    one.close()
    other.close()
    return missing, longest


def gets(report):
    """A message of a few bytes is published by one connection without a confirm, and asked for with `basic.get` by another one at once, or 1 ms later: how often it is
    not there. (Of an exclusive queue, which only its connection may use, two channels.) 100 times of each kind, three rounds in turns with RabbitMQ 4.3.6 on the same
    machine. A get that finds nothing waits here for what was being written when it came, and for what lies unread in sockets (`docs/adr/0013-queues.md`, 15)."""
    found = {}
    for _ in range(PAIRS):
        with Folder() as folder:
            for system in (Mainstem(f"{folder}/data"), RabbitMQ()):
                system.start()
                try:
                    address = system.broker.amqp if system.name == "mainstem" else system.address
                    for kind in KINDS:
                        for pause in PAUSES_MS:
                            missing, longest = late(address, kind, pause, report.amount(ROUNDS))
                            report.note(system=system.name, kind=kind[0], pause_ms=pause, late=missing, longest_ms=round(longest * 1000, 2))
                            sums = found.setdefault((kind[0], pause), {}).setdefault(system.name, [0, 0.0])
                            sums[0], sums[1] = sums[0] + missing, max(sums[1], longest)
                finally:
                    system.stop()
    of = PAIRS * report.amount(ROUNDS)
    for (kind, pause), systems in found.items():
        ours, theirs = systems["mainstem"], systems["rabbitmq"]
        report.judge(f"{kind}, asked {'at once' if pause == 0 else f'{pause} ms later'}: late, of {of}", ours[0], f"<= {theirs[0]}, RabbitMQ's", ours[0] <= theirs[0])
    rows = [(kind, pause, *(f"{systems[name][0]}; {systems[name][1] * 1000:.1f}" for name in ("mainstem", "rabbitmq"))) for (kind, pause), systems in found.items()]
    report.table(f"Late of {of}, and the longest get that found its message, ms", ("kind", "pause, ms", "Mainstem", "RabbitMQ"), rows)
