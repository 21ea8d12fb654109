"""The records that every client writes: a function of their number and nothing else."""

import hashlib

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def record(number):
    """Key, value and headers of record `number`. Some keys and values are null, some values are empty."""
    digest = hashlib.sha256(number.to_bytes(8, "big")).digest()
    key = None if number % 11 == 3 else b"key-%d" % (number % 977)
    length = int.from_bytes(digest[:2], "big") % 2049
    value = None if number % 101 == 7 and key else (digest * 65)[:length]
    headers = [("number", b"%d" % number), ("twice", b"a"), ("twice", digest[:4]), ("empty", b"")]
    return key, value, headers


def timestamp(number):
    """Milliseconds since 1970."""
    return 1_700_000_000_000 + number


def text_record(number):
    """A record that kcat can write: text without line breaks."""
    digest = hashlib.sha256(number.to_bytes(8, "big")).hexdigest()
    return "key-%d" % (number % 977), digest * (1 + number % 9)
