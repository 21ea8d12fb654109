"""One set of data: messages that pika publishes and records that Kafka's clients produce, each read by the other side, field by field, through
queues of each type and through topics of several partitions. Arguments and output as those of `cases.py`. Two more cases, which run only if they
are named, belong before and after a restart: `settle-some`, `settle-rest`."""

import datetime
import decimal
import struct
import time

import pika
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.partitioner.default import murmur2

import cases
from cases import case

TYPES = ("classic", "quorum", "stream")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEPT = "topic-that-is-worked-off"

cases.CASES.clear()


def topic(session, partitions=1, **settings):
    name = session.name()
    settings = {setting.replace("_", "."): value for setting, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": session.kafka})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
    return name


def attach(session, name, kind, **arguments):
    session.channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **{word.replace("_", "-"): value for word, value in arguments.items()}})
    session.queues.append(name)


def records(session, name, count, partitions=1):
    """The records of a topic, as a Kafka consumer reads them."""
    reader = Consumer({"bootstrap.servers": session.kafka, "group.id": "none", "enable.auto.commit": False})
    reader.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found, until = [], time.time() + 15
    while len(found) < count and time.time() < until:
        message = reader.poll(0.2)
        # One with an empty value counts as false.
        if message is not None:
            assert not message.error(), message.error()
            found.append(message)
    reader.close()
    assert len(found) == count, f"{len(found)} of {count} records"
    return found


def produce(session, name, sent, **settings):
    producer = Producer({"bootstrap.servers": session.kafka, "linger.ms": 50, **{word.replace("_", "."): value for word, value in settings.items()}})
    for one in sent:
        producer.produce(name, **one)
    assert producer.flush(15) == 0


class Taker:
    """Consumes a queue of any type and acknowledges."""

    def __init__(self, session, queue, kind, prefetch=50, settle=True):
        self.session, self.got, self.tags = session, [], []
        self.channel = session.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.settle = settle
        arguments = {"x-stream-offset": "first"} if kind == "stream" else None
        self.tag = self.channel.basic_consume(queue, self.take, arguments=arguments)

    def take(self, _channel, method, properties, body):
        self.got.append((method, properties, body))
        if self.settle:
            self.channel.basic_ack(method.delivery_tag)

    def all(self, count, more=0.1):
        assert self.session.pump(lambda: len(self.got) >= count, 20), f"{len(self.got)} of {count}"
        self.session.pump(lambda: False, more)
        assert len(self.got) == count, f"{len(self.got)} instead of {count}"
        return self.got


def own(header):
    """The header `mainstem.amqp`: exchange, routing key, properties."""
    assert header[0] == 1, header
    exchange = header[2:2 + header[1]]
    rest = header[2 + header[1]:]
    key = rest[1:1 + rest[0]]
    return exchange, key, pika.BasicProperties().decode(rest[1 + rest[0]:])


@case
def all_of_a_message_is_in_the_record(session):
    fields = {"text": "wörter", "number": -5, "large": 1 << 40, "yes": True, "no": False, "bytes": b"\x00\xff", "void": None, "list": [1, "two"],
              "table": {"a": {"b": 1}}, "decimal": decimal.Decimal("3.14"), "time": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
              "CC": ["somewhere"], "BCC": ["hidden"], "empty": ""}
    simple = [("text", "wörter".encode()), ("number", b"-5"), ("large", b"1099511627776"), ("yes", b"true"), ("no", b"false"), ("bytes", b"\x00\xff"), ("empty", b"")]
    told = dict(content_type="text/plain", content_encoding="gzip", delivery_mode=2, priority=3, correlation_id="c", reply_to="r", expiration="60000",
                message_id="m", timestamp=1_700_000_000, type="t", user_id="guest", app_id="a", cluster_id="cl")
    for kind in TYPES:
        queue = session.queue({"x-queue-type": kind})
        exchange = session.name()
        session.channel.exchange_declare(exchange, "topic", auto_delete=True)
        session.channel.queue_bind(queue, exchange, "routing.*")
        session.channel.confirm_delivery()
        before = int(time.time() * 1000)
        session.channel.basic_publish(exchange, "routing.key", b"body", pika.BasicProperties(headers=fields, **told))
        session.channel.basic_publish("", queue, b"", pika.BasicProperties())
        full, plain = records(session, queue, 2)
        sort, stamp = full.timestamp()
        assert sort == TIMESTAMP_CREATE_TIME and before <= stamp <= before + 10_000, (kind, stamp, before)
        assert full.key() is None and full.value() == b"body", kind
        headers = full.headers()
        assert [name for name, _ in headers[:2]] == ["mainstem.amqp", "mainstem.traits"] and headers[2:] == simple, (kind, headers)
        assert headers[1][1] == struct.pack(">BBBQ", 1, 3, 3, 60_000), (kind, headers[1])
        where, key, properties = own(headers[0][1])
        assert (where, key) == (exchange.encode(), b"routing.key"), (kind, where, key)
        kept = {name: value for name, value in fields.items() if name != "BCC"}
        assert {name: value.replace(tzinfo=datetime.timezone.utc) if name == "time" else value for name, value in properties.headers.items()} == kept, (kind, properties.headers)
        assert {name: getattr(properties, name) for name in told} == told, (kind, properties)
        assert plain.value() == b"" and [name for name, _ in plain.headers()] == ["mainstem.amqp"] and own(plain.headers()[0][1])[:2] == (b"", queue.encode())
        # And back, through the same queue.
        # A quorum queue serves a message without a priority before one of priority 3.
        method, back, body = next(one for one in Taker(session, queue, kind).all(2) if one[2])
        assert (method.exchange, method.routing_key, body) == (exchange, "routing.key", b"body"), kind
        assert {name: getattr(back, name) for name in told} == told, (kind, back)
        extra = {"x-stream-offset": 0} if kind == "stream" else {}
        assert {name: value.replace(tzinfo=datetime.timezone.utc) if name == "time" else value for name, value in back.headers.items()} == {**kept, **extra}, (kind, back.headers)


@case
def all_of_a_record_is_in_the_message(session):
    stamp = 1_700_000_000_123
    sent = [dict(value=b"value", key=b"key", timestamp=stamp, headers=[("one", b"1"), ("twice", b"a"), ("twice", b"b"), ("null", None), ("wide" * 70, b"x"), ("raw", b"\xff\x00")]),
            dict(value=None, key=b"\xff\xfe", timestamp=stamp + 1000), dict(value=b"", timestamp=stamp + 2000), dict(value=b"k", key=b"", timestamp=stamp)]
    for kind in TYPES:
        for codec in CODECS:
            queue = session.queue({"x-queue-type": kind})
            produce(session, queue, sent, compression_type=codec)
            got = Taker(session, queue, kind).all(len(sent))
            stream = (lambda offset: {"x-stream-offset": offset}) if kind == "stream" else (lambda offset: {})
            expected = [{"one": "1", "twice": "b", "null": None, "raw": b"\xff\x00", "x-record-key": "key"}, {"x-record-key": b"\xff\xfe"}, {}, {"x-record-key": ""}]
            for offset, ((method, properties, body), one, headers) in enumerate(zip(got, sent, expected)):
                assert body == (one["value"] or b"") and (method.exchange, method.routing_key, method.redelivered) == ("", queue, False), (kind, codec, offset)
                assert properties.timestamp == one["timestamp"] // 1000, (kind, codec, properties)
                assert (properties.headers or {}) == {**headers, **stream(offset)}, (kind, codec, offset, properties.headers)
                assert not any((properties.content_type, properties.delivery_mode, properties.priority, properties.message_id, properties.expiration))
            session.settled(queue, len(sent) if kind == "stream" else 0, 1)


@case
def queues_over_a_topic_that_is_there_see_all_of_it(session):
    for kind in TYPES:
        name = topic(session, retention_ms="86400000")
        produce(session, name, [dict(value=b"%d" % number) for number in range(500)], compression_type="zstd")
        attach(session, name, kind)
        session.channel.confirm_delivery()
        session.publish(name, b"from amqp")
        assert [body for _, _, body in Taker(session, name, kind).all(501)] == [*(b"%d" % number for number in range(500)), b"from amqp"], kind
        # What is done with it is nothing to Kafka's consumers.
        assert len(records(session, name, 501)) == 501
    name = topic(session, retention_ms="86400000")
    text = session.refused(406, lambda channel: channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", "x-max-age": "1h"}))
    assert text == f"PRECONDITION_FAILED - inequivalent arg 'x-max-age' for queue '{name}' in vhost '/': received '3600000' but current is '86400000'", text
    attach(session, name, "stream", x_max_age="1D")


@case
def only_what_was_committed_is_seen(session):
    for kind in ("classic", "stream"):
        queue = session.queue({"x-queue-type": kind})
        producer = Producer({"bootstrap.servers": session.kafka, "transactional.id": queue, "linger.ms": 0})
        producer.init_transactions(20)
        taker = Taker(session, queue, kind)
        for commits, values in ((False, (b"a", b"b")), (True, (b"c", b"d")), (False, (b"e",)), (True, (b"f",))):
            seen = len(taker.got)
            producer.begin_transaction()
            for value in values:
                producer.produce(queue, value)
            producer.flush(10)
            taker.all(seen)
            producer.commit_transaction(20) if commits else producer.abort_transaction(20)
            taker.all(seen + (len(values) if commits else 0))
        assert [body for _, _, body in taker.got] == [b"c", b"d", b"f"], kind
        if kind == "stream":
            assert [body for _, _, body in Taker(session, queue, kind).all(3)] == [b"c", b"d", b"f"]
            last = session.connection.channel()
            last.basic_qos(prefetch_count=5)
            got = []
            last.basic_consume(queue, lambda _c, _m, _p, body: got.append(body), arguments={"x-stream-offset": "last"})
            assert session.pump(lambda: got == [b"f"]), got


@case
def compacted_topics_are_read_with_their_gaps(session):
    name = topic(session, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="200")
    for round in range(3):
        produce(session, name, [dict(key=b"%d" % key, value=b"%d of %d" % (round, key)) for key in range(200)], compression_type="lz4")
    attach(session, name, "stream")
    until = time.time() + 20
    while True:
        taker = Taker(session, name, "stream", prefetch=1000)
        assert session.pump(lambda: taker.got and taker.got[-1][2] == b"2 of 199", 10), taker.got[-1:]
        bodies = [body for _, _, body in taker.got]
        offsets = [properties.headers["x-stream-offset"] for _, properties, _ in taker.got]
        assert offsets == sorted(offsets) and bodies[-200:] == [b"2 of %d" % key for key in range(200)]
        taker.channel.close()
        # What came last stays as it is until more comes.
        if len(bodies) <= 400:
            return
        assert time.time() < until, f"{len(bodies)} messages are left"
        time.sleep(0.5)


@case
def several_partitions_have_one_credit(session):
    sent = [dict(value=b"%d %d" % (number % 3, number), partition=number % 3) for number in range(300)]
    for kind in TYPES:
        name = topic(session, partitions=3)
        produce(session, name, sent, compression_type="snappy")
        attach(session, name, kind)
        taker = Taker(session, name, kind, prefetch=7, settle=False)
        taker.all(7, 0.2)
        taker.channel.basic_ack(taker.got[2][0].delivery_tag)
        taker.all(8)
        taker.channel.basic_ack(taker.got[-1][0].delivery_tag, multiple=True)
        taker.settle = True
        got = taker.all(300)
        for partition in range(3):
            numbers = [int(body.split()[1]) for _, _, body in got if body.startswith(b"%d " % partition)]
            assert numbers == list(range(partition, 300, 3)), (kind, partition, numbers[:9])
        session.settled(name, 300 if kind == "stream" else 0, 1)
        if kind == "stream":
            def by_number(channel):
                channel.basic_qos(prefetch_count=1)
                channel.basic_consume(name, print, arguments={"x-stream-offset": 5})
            text = session.refused(406, by_number)
            assert "has 3 partitions" in text, text
            continue
        # A cancelled consumer gets nothing more of any partition, and what a closed channel had comes again.
        taker.channel.basic_cancel(taker.tag)
        produce(session, name, sent[:6])
        session.settled(name, 6)
        assert len(taker.got) == 300
        first = session.connection.channel()
        methods = [first.basic_get(name)[0] for _ in range(6)]
        assert len({method.delivery_tag for method in methods}) == 6 and methods[-1].message_count == 0
        first.close()
        session.settled(name, 6)
        method, _, _ = session.get(name)
        assert method.redelivered
        session.channel.basic_nack(method.delivery_tag, requeue=True)
        assert session.channel.queue_purge(name).method.message_count == 6
        session.settled(name, 0)
    text = session.refused(406, lambda channel: channel.queue_declare(topic(session, 2), durable=True, arguments={"x-max-length": 5}))
    assert "has 2 partitions" in text, text


@case
def publishers_choose_a_partition_by_a_header(session):
    for kind in TYPES:
        name = topic(session, partitions=4)
        attach(session, name, kind)
        session.channel.confirm_delivery()
        keys = ["a", "customer 7", "größe", b"\x00\x01", 12345]
        for key in keys:
            session.publish(name, str(key).encode(), headers={"x-partition-key": key})
        for message in records(session, name, len(keys), 4):
            key = next(key for key in keys if str(key).encode() == message.value())
            spelt = key if isinstance(key, bytes) else str(key).encode()
            assert message.partition() == (murmur2(spelt) & 0x7fffffff) % 4 and message.key() is None, (kind, key, message.partition())
        session.publish(name, *[b"%d" % number for number in range(40)])
        spread = [message.partition() for message in records(session, name, 45, 4) if message.value().isdigit() and message.value() != b"12345"]
        assert {spread.count(partition) for partition in range(4)} == {10}, (kind, spread)
        Taker(session, name, kind).all(45)


def settle_some(session):
    admin = AdminClient({"bootstrap.servers": session.kafka})
    admin.create_topics([NewTopic(KEPT, 3, 1)])[KEPT].result(20)
    produce(session, KEPT, [dict(value=b"%d" % number, partition=number % 3) for number in range(30)])
    session.channel.queue_declare(KEPT, durable=True, arguments={"x-queue-type": "quorum"})
    taker = Taker(session, KEPT, "quorum", settle=False)
    for method, _, body in taker.all(30):
        if int(body) % 2 == 0:
            taker.channel.basic_ack(method.delivery_tag)
    session.pump(lambda: False, 0.5)


def settle_rest(session):
    session.channel.queue_declare(KEPT, durable=True, arguments={"x-queue-type": "quorum"})
    session.queues.append(KEPT)
    got = Taker(session, KEPT, "quorum").all(15)
    assert sorted(int(body) for _, _, body in got) == list(range(1, 30, 2)) and all(method.redelivered for method, _, _ in got)


if __name__ == "__main__":
    cases.main(ours=[], named=[settle_some, settle_rest])
