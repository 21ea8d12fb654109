"""The records that every client writes: a function of their topic and number and nothing else. The programs in other
languages below `clients/` define the same records again."""

import hashlib

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def is_text(topic):
    """Topics of tools that write lines only (kcat, the console producer): one partition, text, the clock's timestamps."""
    return "-text-" in topic


def partitions(topic):
    return 1 if is_text(topic) else 3


def record(topic, number):
    """Key, value and headers of record `number`. Some keys, values and headers are null, some values are empty."""
    digest = hashlib.sha256(b"%s/%d" % (topic.encode(), number)).digest()
    key = None if number % 11 == 3 else b"key-%d" % (number % 977)
    if is_text(topic):
        key = b"key-%d" % (number % 977)
        return key, digest.hex().encode() * (1 + number % 9), [("from", b"text")]
    length = int.from_bytes(digest[:2], "big") % 2049
    value = None if number % 101 == 7 and key else (digest * 65)[:length]
    headers = [("number", b"%d" % number), ("twice", b"a"), ("twice", digest[:4]), ("empty", b"")]
    return key, value, headers


def timestamp(topic, number):
    """Milliseconds since 1970; None where the tool cannot set it."""
    return None if is_text(topic) else 1_700_000_000_000 + number


def place(topic, number):
    """Partition and offset of record `number`."""
    return number % partitions(topic), number // partitions(topic)


def number_at(topic, partition, offset):
    return offset * partitions(topic) + partition


class Reading:
    """Checks what a consumer of one topic saw, record by record."""

    def __init__(self, topic, count):
        self.topic, self.count, self.seen = topic, count, 0
        self.next = [0] * partitions(topic)

    @property
    def complete(self):
        return self.seen == self.count

    def see(self, partition, offset, key, value, headers, at):
        assert offset == self.next[partition], f"partition {partition}: offset {offset} instead of {self.next[partition]}"
        number = number_at(self.topic, partition, offset)
        wanted = record(self.topic, number)
        assert (key, value) == wanted[:2], f"record {number}: {(key, value)} instead of {wanted[:2]}"
        assert list(headers or []) == wanted[2], f"headers of {number}: {headers} instead of {wanted[2]}"
        assert timestamp(self.topic, number) in (None, at), f"timestamp of {number}: {at}"
        self.next[partition] += 1
        self.seen += 1


def each_topic(topics, work):
    """Runs `work(topic)` for each, prints `ok TOPIC` or `FAIL TOPIC reason` for the driver."""
    for topic in topics:
        try:
            work(topic)
            print(f"ok {topic}", flush=True)
        except Exception as error:
            print(f"FAIL {topic} {type(error).__name__}: {str(error)[:400]}", flush=True)
