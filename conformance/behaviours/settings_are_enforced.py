"""Each topic setting that counts as enforced in `crates/broker/src/settings.rs` changes what the broker does; a setting of that
class without a check here fails. Arguments: bootstrap, seconds (not used here)."""

import re
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
from client import Case

bootstrap = sys.argv[1]
admin = AdminClient({"bootstrap.servers": bootstrap})
number = 0


def topic(**config):
    global number
    number += 1
    name = f"settings-{time.time_ns()}-{number}"
    named = {key.replace("_", "."): str(value) for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=named)])[name].result(30)
    return name


def write(name, value, key=b"k", **more):
    """The error of a produce, or nothing."""
    errors = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 20_000_000, "retries": 0})
    producer.produce(name, value, key, on_delivery=lambda error, _: errors.append(error), **more)
    assert producer.flush(30) == 0
    return errors[0].name() if errors[0] else None


def read(name):
    """The first record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "settings", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and not message.error()
    return message


def low_watermark(name, above, seconds):
    """Waits until records before `above` are gone."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "settings"})
    until = time.time() + seconds
    while time.time() < until:
        low, _ = consumer.get_watermark_offsets(TopicPartition(name, 0), 10)
        if low >= above:
            consumer.close()
            return low
        time.sleep(0.2)
    consumer.close()
    raise AssertionError(f"{name} still begins before {above}")


def max_message_bytes():
    name = topic(max_message_bytes=1000)
    assert write(name, b"x" * 500) is None
    assert write(name, b"x" * 2000) == "MSG_SIZE_TOO_LARGE"


def message_timestamp_type():
    then = 1_600_000_000_000
    kept, stamped = topic(message_timestamp_type="CreateTime"), topic(message_timestamp_type="LogAppendTime")
    for name in (kept, stamped):
        assert write(name, b"v", timestamp=then) is None
    assert read(kept).timestamp() == (TIMESTAMP_CREATE_TIME, then)
    kind, at = read(stamped).timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME and abs(at / 1000 - time.time()) < 60


def message_timestamp_before_max_ms():
    name, now = topic(message_timestamp_before_max_ms=60_000), int(time.time() * 1000)
    assert write(name, b"v", timestamp=now - 30_000) is None
    assert write(name, b"v", timestamp=now - 90_000) == "INVALID_TIMESTAMP"


def message_timestamp_after_max_ms():
    name, now = topic(message_timestamp_after_max_ms=60_000), int(time.time() * 1000)
    assert write(name, b"v", timestamp=now + 30_000) is None
    assert write(name, b"v", timestamp=now + 90_000) == "INVALID_TIMESTAMP"


def retention_ms():
    name = topic(retention_ms=1000)
    for _ in range(5):
        assert write(name, b"v") is None
    low_watermark(name, 5, 30)
    keeps = topic(retention_ms=-1)
    assert write(keeps, b"v") is None
    assert read(keeps).offset() == 0


def retention_bytes():
    name = topic(retention_bytes=200_000)
    for _ in range(40):
        assert write(name, b"x" * 50_000) is None
    low = low_watermark(name, 1, 30)
    assert low < 40, "about as much as is allowed stays"
    assert write(name, b"last") is None


def cleanup_policy():
    compacted, deleted = topic(cleanup_policy="compact", retention_ms=1), topic(cleanup_policy="delete", retention_ms=1)
    for name in (compacted, deleted):
        assert write(name, b"v") is None
    low_watermark(deleted, 1, 30)
    assert read(compacted).offset() == 0, "a compacted topic keeps its records, whatever their age"
    assert write(compacted, b"v", None) == "INVALID_RECORD"


def compacted(count, seconds=20, **config):
    """Writes ten values of one key, then some others, and waits until a reader meets `count` records of it at most."""
    name = topic(cleanup_policy="compact", **{"segment_ms": 1, "min_cleanable_dirty_ratio": 0, **config})
    for number in range(10):
        assert write(name, b"%d" % number) is None
    for number in range(3):
        assert write(name, b"v", b"other-%d" % number) is None
    until = time.time() + seconds
    while True:
        left = records(name)
        if left.count(b"k") <= count:
            return name, left
        assert time.time() < until, f"{left} are left"
        time.sleep(0.3)


def records(name):
    """Keys of what a reader of all gets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "settings", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    one = TopicPartition(name, 0, 0)
    end = consumer.get_watermark_offsets(one, 10)[1]
    consumer.assign([one])
    keys, until = [], time.time() + 20
    while consumer.position([one])[0].offset < end:
        assert time.time() < until, "the end is not reached"
        keys += [message.key() for message in consumer.consume(1000, 0.2)]
    consumer.close()
    return keys


def uncompacted(**config):
    """It is left alone for some seconds."""
    try:
        compacted(9, 3, **config)
    except AssertionError as left:
        assert "are left" in str(left)
    else:
        raise AssertionError("it was compacted")


def min_cleanable_dirty_ratio():
    compacted(1, min_cleanable_dirty_ratio=0.5)
    uncompacted(min_cleanable_dirty_ratio=1)


def min_compaction_lag_ms():
    compacted(1, min_compaction_lag_ms=500)
    uncompacted(min_compaction_lag_ms=3_600_000)


def max_compaction_lag_ms():
    compacted(1, min_cleanable_dirty_ratio=1, segment_ms=3_600_000, max_compaction_lag_ms=500)


def segment_ms():
    compacted(1, segment_ms=500)
    uncompacted(segment_ms=3_600_000)


def segment_bytes():
    name = topic(cleanup_policy="compact", segment_ms=3_600_000, segment_bytes=1_048_576, min_cleanable_dirty_ratio=0)
    for _ in range(10):
        assert write(name, b"x" * 90_000) is None
    time.sleep(2)
    assert records(name).count(b"k") == 10
    for _ in range(4):
        assert write(name, b"x" * 90_000) is None
    until = time.time() + 20
    # 12 are as large as a segment: compaction may begin there, and leaves the newest before the last batch, that, and what comes later. The last one may be
    # the eleventh, if the twelfth came while it looked how much there is.
    while len(records(name)) > 5:
        assert time.time() < until, f"{len(records(name))} are left"
        time.sleep(0.3)


def delete_retention_ms():
    for kept, left in [(3_600_000, 1), (500, 0)]:
        name = topic(cleanup_policy="compact", segment_ms=1, min_cleanable_dirty_ratio=0, delete_retention_ms=kept)
        for value in (b"v", None):
            assert write(name, value) is None
        for number in range(3):
            assert write(name, b"v", b"other-%d" % number) is None
        until = time.time() + 20
        while records(name).count(b"k") != left:
            assert time.time() < until, f"{records(name)} are left"
            time.sleep(0.3)
        time.sleep(2)
        assert records(name).count(b"k") == left, "and so it stays"


def durability(**config):
    """Both classes acknowledge and serve; which of them survives a power loss is the simulator's to tell."""
    name = topic(**config)
    assert write(name, b"v") is None
    assert read(name).value() == b"v"


def mainstem_durability():
    durability(mainstem_durability="memory")
    durability(mainstem_durability="fsync")
    try:
        topic(mainstem_durability="perhaps")
    except KafkaException as refused:
        assert refused.args[0].name() == "INVALID_CONFIG"
    else:
        raise AssertionError("an unknown durability was taken")


def flush_messages():
    durability(flush_messages=1, mainstem_durability="memory")


def size_of(name, count=200):
    """Bytes that a topic takes for records that pack well, written without a codec in one batch; they are read back."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 500, "batch.num.messages": count})
    values = [b"%d " % at + b"words and words " * 20 for at in range(count)]
    for value in values:
        producer.produce(name, value, b"k")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "settings", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    read = consumer.consume(count, 20)
    consumer.close()
    assert [message.value() for message in read] == values, f"{len(read)} records of {count}"
    host, port = bootstrap.split(":")
    case = Case((host, int(port)), "sizes", "memory")
    answer = case.quiet("DescribeLogDirs", 4, {"topics": [{"topic": name, "partitions": [0]}]})
    case.end()
    return answer["results"][0]["topics"][0]["partitions"][0]["partition_size"]


def compression_type():
    plain = size_of(topic(compression_type="producer"))
    unpacked = size_of(topic(compression_type="uncompressed"))
    # A producer that is held up makes a batch more of it.
    assert abs(unpacked - plain) < plain / 20, f"uncompressed: {unpacked}, and {plain} bytes as the producer has it"
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        packed = size_of(topic(compression_type=codec))
        assert packed < plain / 3, f"{codec}: {packed} of {plain} bytes"


def compression_gzip_level():
    stored, tight = (size_of(topic(compression_type="gzip", compression_gzip_level=level)) for level in (0, 9))
    assert tight < stored / 3, f"{tight} and {stored} bytes"


def compression_zstd_level():
    loose, tight = (size_of(topic(compression_type="zstd", compression_zstd_level=level)) for level in (-100_000, 19))
    assert tight < loose, f"{tight} and {loose} bytes"


def bytes_in(seconds, act):
    """Bytes a second that `act` gets done, which is called again and again."""
    start, done = time.monotonic(), 0
    while time.monotonic() < start + seconds:
        done += act()
    return done / (time.monotonic() - start)


def mainstem_producer_byte_rate():
    name, value = topic(mainstem_producer_byte_rate=1_000_000), bytes(100_000)

    # One connection: who comes anew each time has a request taken before he is held up.
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def act():
        producer.produce(name, value)
        assert producer.flush(30) == 0
        return len(value)

    rate = bytes_in(2, act)
    assert 500_000 < rate < 1_300_000, f"{rate:.0f} bytes a second, wanted 1,000,000"


def mainstem_consumer_byte_rate():
    name, value = topic(mainstem_consumer_byte_rate=1_000_000), bytes(100_000)
    for _ in range(40):
        assert write(name, value) is None
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rates", "fetch.message.max.bytes": 100_000})
    consumer.assign([TopicPartition(name, 0, 0)])
    assert consumer.poll(20) is not None
    rate = bytes_in(2, lambda: sum(len(message.value()) for message in consumer.consume(1, 0.2)))
    consumer.close()
    assert 500_000 < rate < 1_500_000, f"{rate:.0f} bytes a second, wanted 1,000,000"


settings = (Path(__file__).resolve().parents[2] / "crates/broker/src/settings.rs").read_text()
rows = settings[settings.index("pub const TOPIC"):]
enforced = re.findall(r'row\("([a-z.]+)", .*, Enforced, ', rows)
assert len(enforced) > 5, "the table was found"
for setting in enforced:
    check = globals().get(setting.replace(".", "_"))
    assert check, f"{setting} counts as enforced, and nothing here checks it"
    try:
        check()
    except Exception as error:
        raise AssertionError(f"{setting}: {error}") from error
    print(f"{setting} is enforced")
