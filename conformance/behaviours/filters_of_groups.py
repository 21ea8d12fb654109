"""Groups with a filter: their members, of four clients that know nothing of it, get what passes it, with its offsets, and commit behind
what does not; everybody else gets everything. Arguments: bootstrap, seconds (not used here)."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.install import CACHE, java_classes, java_command
from driver.tools import Machine

bootstrap, name = sys.argv[1], f"filter-{time.time_ns()}"
PARTITIONS, COUNT, TAIL = 3, 3000, 500
FILTER = "key = 'key-3' AND header.kind IN ('odd', 'even') OR header.\"number\" = 77"
admin = AdminClient({"bootstrap.servers": bootstrap})
machine = Machine()


def configs(*words, fails=False):
    status, out = machine.run(["kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *words], "")
    assert (status != 0) == fails, f"kafka-configs {words} ended with {status}: {out[-400:]}"
    return out


def describe(group):
    return configs("--describe", "--entity-type", "groups", "--entity-name", group)


def set_filter(group, text, *more):
    """Commas separate settings for kafka-configs, so that what has some stands in brackets."""
    configs("--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", ",".join([f"mainstem.filter=[{text}]", *more]))


def make_topic(topic, partitions=PARTITIONS):
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)


def produce(topic, codec):
    """Returns (partition, offset) of the records that pass, and where all of them end."""
    make_topic(topic)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    passes, at = set(), [0] * PARTITIONS
    for number in range(COUNT + TAIL):
        partition, key = number % PARTITIONS, f"key-{number % 10}" if number < COUNT else "tail"
        headers = [("kind", "first"), ("kind", "odd" if number % 2 else "even"), ("number", str(number))]
        producer.produce(topic, b"value %d" % number, key, partition, headers=headers)
        if key == "key-3" or number == 77:
            passes.add((partition, at[partition]))
        at[partition] += 1
        if number % 500 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0
    return passes, sum(at)


def confluent(group, topic, count, end, **settings):
    more = {word.replace("_", "."): value for word, value in settings.items()}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                         "check.crcs": True, "session.timeout.ms": 6000, **more})
    consumer.subscribe([topic])
    seen, deadline, reached = [], time.time() + 40, 0
    while time.time() < deadline and (len(seen) < count or reached < end):
        for message in consumer.consume(500, 0.2):
            assert not message.error(), message.error()
            seen.append((message.partition(), message.offset()))
        reached = sum(max(one.offset, 0) for one in consumer.position(consumer.assignment()))
    consumer.commit(asynchronous=False)
    committed = sum(max(one.offset, 0) for one in consumer.committed(consumer.assignment(), 10))
    consumer.close()
    return seen, committed


def kafka_python(group, topic, count, end):
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
                                   enable_auto_commit=False)
    seen, deadline, reached = [], time.time() + 40, 0
    while time.time() < deadline and (len(seen) < count or reached < end):
        for messages in consumer.poll(200, max_records=5000).values():
            seen.extend((message.partition, message.offset) for message in messages)
        reached = sum(consumer.position(partition) or 0 for partition in consumer.assignment())
    consumer.commit()
    committed = sum(consumer.committed(partition) or 0 for partition in consumer.assignment())
    consumer.close()
    return seen, committed


def lines(command):
    out = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr[-400:]
    words = [line.split() for line in out.stdout.splitlines()]
    committed = [int(number) for word, number in words if word == "committed"]
    return [(int(partition), int(offset)) for partition, offset in words if partition != "committed"], (committed or [None])[0]


def java(group, topic, count, end, *settings):
    return lines(java_command("GroupReader", bootstrap, group, topic, str(count), str(end), *settings))


def franz_go(group, topic, count, end):
    return lines([str(CACHE / "franz-go"), "group", bootstrap, group, topic, str(count), f"kgo-{group}"])


def check(what, got, wanted, end):
    seen, committed = got
    assert len(seen) == len(set(seen)), f"{what}: {len(seen) - len(set(seen))} records came twice"
    assert set(seen) == wanted, f"{what}: {len(set(seen) - wanted)} too many, {len(wanted - set(seen))} too few of {len(wanted)}"
    assert committed in (None, end), f"{what}: {committed} of {end} are committed"


threads, failures = [], []


def start(work, *arguments):
    """Everything reads at once; what goes wrong is told in the end."""
    def run():
        try:
            work(*arguments)
        except Exception as failure:
            failures.append(f"{type(failure).__name__} {failure}")
    threads.append(threading.Thread(target=run))


def clients(topic, wanted, end, only=None):
    """Each client as a member of a group of its own with the filter."""
    works = {
        "confluent": confluent,
        "confluent, consumer protocol": confluent_new,
        "kafka-python": kafka_python,
        "franz-go": franz_go,
    }
    if java_classes().exists():
        works |= {
            "java": java,
            "java with a client id": lambda *of: java(*of, "client.id=app"),
            "java, consumer protocol": lambda *of: java(*of, "group.protocol=consumer"),
        }
    for number, (what, work) in enumerate(works.items()):
        if only in (None, what):
            group = f"{topic}-{number}"
            set_filter(group, FILTER, *([f"mainstem.filter.client.ids=kgo-{group}"] if what == "franz-go" else []))
            start(lambda what=what, work=work, group=group: check(
                f"{what}, {topic}", work(group, topic, len(wanted), end), wanted, end))
    if not only:
        # Everybody else is on the same machine with the same client id.
        everything = {(number % PARTITIONS, number // PARTITIONS) for number in range(end)}
        start(read_all, topic, everything, end)
        start(read_without_group, topic, everything, end)


def confluent_new(group, topic, count, end):
    """The new protocol has the session's time-out from the broker."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                         "group.protocol": "consumer"})
    consumer.subscribe([topic])
    seen, deadline = [], time.time() + 40
    while time.time() < deadline and len(seen) < count:
        seen += [(message.partition(), message.offset()) for message in consumer.consume(500, 0.2)]
    consumer.close()
    return seen, None


def read_all(topic, everything, end):
    check("no filter", confluent(f"{topic}-all", topic, len(everything), end), everything, end)


def read_without_group(topic, everything, end):
    """As a simple consumer does that chooses its partitions itself: kafka-python asks for no coordinator without a group."""
    reader = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
    partitions = [kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    reader.assign(partitions)
    reader.seek_to_beginning(*partitions)
    seen, deadline = set(), time.time() + 40
    while len(seen) < len(everything) and time.time() < deadline:
        for messages in reader.poll(200, max_records=5000).values():
            seen |= {(message.partition, message.offset) for message in messages}
    reader.close()
    check("no group", (list(seen), None), everything, end)


def refusals():
    group = f"{name}-refused"
    refused = configs("--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", "mainstem.filter=key ~ 5", fails=True)
    assert "at character 5: expected =, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS, found '~'" in refused, refused[-400:]
    assert "mainstem.filter=" not in describe(group) or "key ~ 5" not in describe(group)
    set_filter(group, FILTER)
    assert FILTER in describe(group), describe(group)
    configs("--alter", "--entity-type", "groups", "--entity-name", group, "--delete-config", "mainstem.filter")
    assert FILTER not in describe(group)


def a_long_gap():
    """One record, a million that nobody wants, another one."""
    topic, group, gap = f"{name}-gap", f"{name}-gap", 1_000_000
    make_topic(topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 2 * gap, "linger.ms": 50})
    producer.produce(topic, b"", b"key-3", headers=[("kind", "odd")])
    for _ in range(gap):
        producer.produce(topic, b"", b"x")
    producer.produce(topic, b"", b"key-3", headers=[("kind", "odd")])
    for _ in range(1000):
        producer.produce(topic, b"", b"x")
    assert producer.flush(60) == 0
    set_filter(group, FILTER)
    start(read_gap, topic, group, gap)


def read_gap(topic, group, gap):
    check("a long gap", confluent(group, topic, 2, gap + 1002), {(0, 0), (0, gap + 1)}, gap + 1002)


def transactions():
    topic, group = f"{name}-transactions", f"{name}-transactions"
    make_topic(topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(30)
    wanted, at = set(), 0
    for number in range(40):
        producer.begin_transaction()
        for each in range(10):
            producer.produce(topic, b"value", f"key-{each}", headers=[("kind", "odd")])
            if each == 3 and number % 3:
                wanted.add((0, at + each))
        # What is not sent yet would not be there to be aborted.
        assert producer.flush(30) == 0
        (producer.commit_transaction if number % 3 else producer.abort_transaction)(30)
        at += 11
    for number, read in enumerate([confluent, java] if java_classes().exists() else [confluent]):
        set_filter(f"{group}-{number}", FILTER)
        work = (lambda *of: confluent(*of, isolation_level="read_committed")) if read is confluent else (
            lambda *of: java(*of, "isolation.level=read_committed"))
        start(lambda number=number, work=work: check(
            f"transactions {number}", work(f"{group}-{number}", topic, len(wanted), at), wanted, at))


refusals()
for codec, only in [("none", None), ("lz4", "confluent"), ("zstd", "java")]:
    topic = f"{name}-{codec}"
    clients(topic, *produce(topic, codec), only)
a_long_gap()
transactions()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, "; ".join(failures)
