"""Lengths and counts of queues are those of messages, whatever else their logs hold: Kafka's aborted transactions and markers, what compaction
removed, what DeleteRecords deleted, and what is not on the disk any more because it was acknowledged behind messages that are kept; also after
a kill. pika, and confluent-kafka (librdkafka). Argument: the binary. Prints `ok NAME` or `failed NAME: WHY`, a line a case."""

import json
import signal
import sys
import tempfile
import time
import traceback
import urllib.request
from base64 import b64encode
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import pika
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from driver.broker import Broker

PATIENCE = 30


class Case:
    """A broker, a connection to it and a way to kill it."""

    def __init__(self, broker):
        self.broker = broker
        self.connect()

    def connect(self):
        host, _, port = self.broker.amqp.rpartition(":")
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def kill(self):
        self.broker.end(signal.SIGKILL)
        self.broker.start()
        self.connect()

    def declare(self, name, **arguments):
        """How many messages it has."""
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        return self.channel.queue_declare(name, durable=True, arguments=named).method.message_count

    def count(self, name):
        return self.channel.queue_declare(name, passive=True).method.message_count

    def publish(self, name, *bodies):
        """Whether each was taken."""
        taken = []
        for body in bodies:
            try:
                self.channel.basic_publish("", name, body.encode(), pika.BasicProperties(delivery_mode=2))
                taken.append(True)
            except pika.exceptions.NackError:
                taken.append(False)
        return taken

    def drain(self, name):
        bodies = []
        while (got := self.channel.basic_get(name, auto_ack=True))[0]:
            bodies.append(got[2].decode())
        return bodies

    def limit(self, name, length):
        """By a policy."""
        body = json.dumps({"pattern": f"^{name}$", "definition": {"max-length": length}}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.broker.admin}/api/policies/%2F/{name}", body, method="PUT")
        request.add_header("authorization", "Basic " + b64encode(b"guest:guest").decode())
        urllib.request.urlopen(request, timeout=20).read()

    def transaction(self, topic, records, commit=False, alone=False):
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": f"t-{time.time_ns()}", "linger.ms": 5})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, f"of a transaction {number}".encode(), partition=0)
            if alone:
                producer.flush(PATIENCE)
        producer.flush(PATIENCE)
        producer.commit_transaction(PATIENCE) if commit else producer.abort_transaction(PATIENCE)


def comes(what, wanted, look):
    until = time.time() + PATIENCE
    while (found := look()) != wanted:
        assert time.time() < until, f"{what}: {found}, not {wanted}"
        time.sleep(0.1)


def aborted_records_are_no_length(case, kind):
    dead, name = f"dead-{kind}", f"short-{kind}"
    case.declare(dead)
    case.declare(name, x_queue_type=kind, x_max_length=5, x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    case.publish(name, "1", "2", "3")
    case.transaction(name, 20)
    assert (case.count(name), case.count(dead)) == (3, 0), (case.count(name), case.count(dead))
    case.transaction(name, 1, commit=True)
    case.kill()
    assert (case.count(name), case.count(dead)) == (4, 0), (case.count(name), case.count(dead))
    case.publish(name, "5", "6")
    comes("dead letters of a queue that is too long", (5, 1), lambda: (case.count(name), case.count(dead)))
    assert case.drain(dead) == ["1"]
    assert case.drain(name) == ["2", "3", "of a transaction 0", "5", "6"]


def classic(case):
    aborted_records_are_no_length(case, "classic")


def quorum(case):
    aborted_records_are_no_length(case, "quorum")


def refusing(case):
    case.declare("refuses", x_max_length=3, x_overflow="reject-publish")
    case.publish("refuses", "1")
    # What waits for the end of a transaction takes room, and gives it back.
    for _ in range(15):
        case.transaction("refuses", 2, alone=True)
    assert case.publish("refuses", "2", "3", "4") == [True, True, False]
    case.kill()
    assert case.count("refuses") == 3
    assert case.publish("refuses", "5") == [False]
    assert case.channel.queue_purge("refuses").method.message_count == 3
    assert case.publish("refuses", "6") == [True]


def stream(case):
    case.declare("stream", x_queue_type="stream")
    case.publish("stream", "1")
    case.transaction("stream", 1000)
    assert case.count("stream") == 1, case.count("stream")
    case.kill()
    assert case.count("stream") == 1, case.count("stream")


def compacted(case, before):
    """Many records of five keys; the topic becomes a queue before or after compaction has removed most of them."""
    name = "compacted-before" if before else "compacted-after"
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0"}
    admin = AdminClient({"bootstrap.servers": case.broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(PATIENCE)
    kind = {} if before else {"x_queue_type": "quorum"}
    if not before:
        case.declare(name, **kind)
    producer = Producer({"bootstrap.servers": case.broker.bootstrap, "linger.ms": 0})
    for number in range(1000):
        producer.produce(name, f"{number}", key=f"key-{number % 5}")
    producer.flush(PATIENCE)

    def little_is_left():
        # Its last batch is not compacted as long as it lies at the end.
        producer.produce(name, "last", key="last")
        producer.flush(PATIENCE)
        reader = Consumer({"bootstrap.servers": case.broker.bootstrap, "group.id": f"g-{time.time_ns()}", "enable.partition.eof": True})
        reader.assign([TopicPartition(name, 0, 0)])
        left, until = [], time.time() + PATIENCE
        while (record := reader.poll(1)) is None or not record.error():
            left += [] if record is None else [record.value().decode()]
            assert time.time() < until, "the end of the topic comes"
        reader.close()
        return left

    until = time.time() + PATIENCE
    while len(left := little_is_left()) > 12:
        assert time.time() < until, f"{len(left)} records are left by compaction"
        time.sleep(0.3)
    if before:
        # A shorter list than there are offsets, and as long as what is left.
        assert case.declare(name, x_max_length=len(left) + 5) == len(left)
    comes("the count of a queue whose topic was compacted", len(left), lambda: case.count(name))
    case.limit(name, len(left))
    time.sleep(0.5)
    assert case.count(name) == len(left), "nothing is dropped from a queue that is just as long as it may be"
    case.kill()
    comes("its count after a kill", len(left), lambda: case.count(name))
    got = case.drain(name)
    assert got == left, (got, left)


def compacted_before(case):
    compacted(case, True)


def compacted_after(case):
    compacted(case, False)


def deleted(case):
    admin = AdminClient({"bootstrap.servers": case.broker.bootstrap})
    admin.create_topics([NewTopic("deleted", 1, 1)])["deleted"].result(PATIENCE)
    case.declare("deleted", x_max_length=4, x_overflow="reject-publish")
    assert case.publish("deleted", "1", "2", "3", "4", "5") == [True] * 4 + [False]
    got = []
    case.channel.basic_qos(prefetch_count=2)
    case.channel.basic_consume("deleted", lambda _channel, method, _properties, body: got.append((method.delivery_tag, body.decode())))
    comes("what a consumer may have", ["1", "2"], lambda: case.connection.process_data_events(0.05) or [body for _, body in got])
    part = TopicPartition("deleted", 0, 3)
    list(admin.delete_records([part]).values())[0].result(PATIENCE)
    comes("what is left, for a consumer whose messages were deleted", ["1", "2", "4"], lambda: case.connection.process_data_events(0.05) or [body for _, body in got])
    case.channel.basic_ack(got[1][0], multiple=True)
    assert case.publish("deleted", "6") == [True], "there is room"
    comes("what came then", ["1", "2", "4", "6"], lambda: case.connection.process_data_events(0.05) or [body for _, body in got])
    case.channel.basic_ack(got[-1][0], multiple=True)
    assert case.count("deleted") == 0


def produced(case, topic, *bodies):
    """What becomes of records that a Kafka producer sends, one after the other: `None`, or the name of the error."""
    producer, outcomes = Producer({"bootstrap.servers": case.broker.bootstrap, "retries": 0}), []
    for body in bodies:
        producer.produce(topic, body, on_delivery=lambda error, _: outcomes.append(error and error.name()))
        producer.flush(PATIENCE)
    return outcomes


def retained(case):
    """What retention deletes is gone from a queue: it has room again, for every protocol, and its consumer has its credit."""
    admin = AdminClient({"bootstrap.servers": case.broker.bootstrap})
    for made in admin.create_topics([NewTopic("retained", 1, 1, config={"retention.ms": "1000"}), NewTopic("bulk", 1, 1)]).values():
        made.result(PATIENCE)
    case.declare("retained", x_max_length=4, x_overflow="reject-publish")
    assert case.publish("retained", "1", "2", "3", "4", "5") == [True] * 4 + [False]
    assert produced(case, "retained", "6") == ["POLICY_VIOLATION"]
    got = []
    case.channel.basic_qos(prefetch_count=4)
    case.channel.basic_consume("retained", lambda _channel, _method, _properties, body: got.append(body.decode()))
    comes("what a consumer may have", ["1", "2", "3", "4"], lambda: case.connection.process_data_events(0.05) or got)
    # The segment is sealed, and is old enough.
    assert produced(case, "bulk", *["x" * 200_000] * 12) == [None] * 12
    admin_says = lambda: list(admin.list_offsets({TopicPartition("retained", 0): OffsetSpec.earliest()}).values())[0].result(PATIENCE).offset
    comes("the start of the topic", 4, admin_says)
    assert produced(case, "retained", "7") == [None], "there is room"
    assert case.publish("retained", "8") == [True], "there is room"
    comes("what came then", ["1", "2", "3", "4", "7", "8"], lambda: case.connection.process_data_events(0.05) or got)
    assert case.count("retained") == 0


def segment_bytes(broker):
    total = 0
    for file in Path(broker.folder).rglob("segment-*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            pass
    return total


def committed(broker, topic):
    """What a reader of committed records finds from the start to the end of the topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "a", "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, until = [], time.time() + PATIENCE
    while True:
        assert time.time() < until, f"the end of the topic does not come behind {found[-1:]}"
        if (message := consumer.poll(0.2)) is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return found
        found.append(message.value().decode())


def round_of(case, name, body):
    """Messages are published, taken and acknowledged."""
    assert all(case.publish(name, *[body] * 300))
    for _ in range(300):
        method, _, got = case.channel.basic_get(name)
        assert got.decode() == body, got[:20]
        case.channel.basic_ack(method.delivery_tag)


def behind_one_that_is_kept(case):
    """What is acknowledged behind messages that nobody acknowledges goes, and nothing else, also for a reader of the topic."""
    case.declare("kept")
    case.declare("other")
    case.publish("kept", "first")
    producer = Producer({"bootstrap.servers": case.broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions(PATIENCE)
    holder = case.connection.channel()
    assert holder.basic_get("kept")[2] == b"first"
    for end in (producer.abort_transaction, producer.commit_transaction):
        round_of(case, "kept", "a" * 10_000)
        producer.begin_transaction()
        producer.produce("kept", end.__name__.encode(), partition=0)
        producer.flush(PATIENCE)
        end(PATIENCE)
    comes("the message of a transaction", b"commit_transaction", lambda: holder.basic_get("kept")[2])
    round_of(case, "kept", "b" * 10_000)
    # All of the queue lies in full segments.
    round_of(case, "other", "c" * 10_000)
    comes("room", True, lambda: segment_bytes(case.broker) <= 4 * SMALL_SEGMENT)
    left = ["first", "commit_transaction"]
    for _ in range(2):
        # What is in memory is read from there as long as the process lives.
        case.kill()
        assert (case.count("kept"), case.count("other")) == (2, 0), (case.count("kept"), case.count("other"))
        found = committed(case.broker, "kept")
        # What lies in a chunk with these may be there.
        assert [body for body in found if len(body) < 1000] == left and len(found) < 100, (len(found), [body for body in found if len(body) < 1000])
    assert case.drain("kept") == left


SMALL_SEGMENT = 1 << 20
SMALL = {"mainstem.segment.bytes": SMALL_SEGMENT, "log.retention.check.interval.ms": 300}
CASES = [classic, quorum, refusing, stream, compacted_before, compacted_after, deleted, retained, behind_one_that_is_kept]
SETTINGS = {retained: SMALL, behind_one_that_is_kept: SMALL}


def main():
    only = sys.argv[2:]
    for run in [run for run in CASES if not only or run.__name__ in only]:
        with tempfile.TemporaryDirectory(prefix="mainstem-counts-") as folder:
            settings = {"log.cleaner.backoff.ms": 100, **SETTINGS.get(run, {})}
            words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
            broker = Broker(sys.argv[1], f"{folder}/data", words).start()
            try:
                run(Case(broker))
                sums = [line for line in broker.metrics().splitlines() if line.startswith("mainstem_queue_imbalance ")]
                assert sums == ["mainstem_queue_imbalance 0"], sums
                print(f"ok {run.__name__}", flush=True)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)
                line = next((frame for frame in reversed(where) if frame.filename == __file__), where[-1])
                print(f"failed {run.__name__}: line {line.lineno}: {error!r}".replace("\n", " "), flush=True)
            finally:
                broker.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
