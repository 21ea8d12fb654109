"""A client of the checker that writes, until it is killed or told to end. Every value is its own: numbers from `first` on.
Arguments: kind, bootstrap, folder of the history, name of the process, first value, transactional id, time-out of transactions in
milliseconds, topics as NAME=PARTITIONS. Kinds: `idempotent`; `bare`, which never tries again; `transactional`."""

import random
import signal
import sys
import time

from confluent_kafka import KafkaException, Producer

from history import Notes

kind, bootstrap, folder, name, first, identity, timeout = sys.argv[1:8]
keys = [(topic, partition) for topic, _, count in (word.partition("=") for word in sys.argv[8:]) for partition in range(int(count))]
notes, running, value = Notes(folder, name), True, int(first)
settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "log_level": 0, "reconnect.backoff.max.ms": 200}
settings |= {"idempotent": {"enable.idempotence": True}, "bare": {"retries": 0},
             "transactional": {"transactional.id": identity, "transaction.timeout.ms": int(timeout)}}[kind]
producer = Producer(settings)


def stop(_signal, _frame):
    global running
    running = False


def answered(error, message):
    place = f"{message.topic()}/{message.partition()}"
    if error is None:
        notes.note("ack", k=place, v=int(message.value()), o=message.offset())
    else:
        notes.note("nak", k=place, v=int(message.value()), why=error.name())


def send(**transaction):
    global value
    topic, partition = random.choice(keys)
    notes.note("send", k=f"{topic}/{partition}", v=value, **transaction)
    producer.produce(topic, b"%d" % value, partition=partition, on_delivery=answered)
    value += 1


def again(work):
    """Transactions' calls say when they may be made again."""
    while True:
        try:
            return work()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def ends(name, how, work):
    notes.note(how, x=name)
    again(work)
    notes.note({"commit": "committed", "abort": "aborted"}[how], x=name)


def one_transaction(name):
    producer.begin_transaction()
    for _ in range(random.randint(1, 4)):
        for _ in range(random.randint(1, 6)):
            send(x=name)
        producer.poll(0)
        time.sleep(random.choice([0, 0.002, 0.02]))
    kind = random.random()
    if kind < 0.01:
        # The broker ends it meanwhile.
        producer.flush(5)
        time.sleep(int(timeout) / 1000 + 2)
    if kind < 0.2:
        if kind < 0.1:
            producer.flush(5)
        ends(name, "abort", lambda: producer.abort_transaction(30))
    else:
        ends(name, "commit", lambda: producer.commit_transaction(30))


def transactions():
    again(lambda: producer.init_transactions(30))
    while running:
        transaction = f"{name}:{value}"
        try:
            one_transaction(transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            ends(transaction, "abort", lambda: producer.abort_transaction(30))


def plain():
    while running:
        for _ in range(random.randint(1, 5)):
            send()
        producer.poll(0)
        time.sleep(random.choice([0.002, 0.01, 0.05]))
    producer.flush(30)


signal.signal(signal.SIGTERM, stop)
transactions() if kind == "transactional" else plain()
