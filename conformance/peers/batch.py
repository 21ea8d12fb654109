"""Record batches, with every header field at the caller's will."""

import gzip
import struct


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()

CODECS = ["", *(f" in {name}" for name in ("gzip", "snappy", "lz4", "zstd", "5", "6", "7"))]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def zigzag(value):
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(delta, key, value, time=0, offset_delta=None):
    def sized(data):
        return zigzag(-1) if data is None else zigzag(len(data)) + data
    body = b"\0" + zigzag(time) + zigzag(delta if offset_delta is None else offset_delta)
    body += sized(key) + sized(value) + zigzag(0)
    return zigzag(len(body)) + body


def batch(values=(b"value",), *, key=b"key", base_offset=0, leader_epoch=-1, magic=2, crc=None, attributes=0,
          last_delta=None, first=1_700_000_000_000, last=None, pid=-1, epoch=-1, sequence=-1, count=None, length=None,
          payload=None, deltas=None):
    """One batch of format 2; what is given replaces what would be right."""
    if payload is None:
        deltas = deltas or range(len(values))
        payload = b"".join(record(at, key, value, offset_delta=delta) for at, (value, delta) in enumerate(zip(values, deltas)))
        if attributes & 7 == 1:
            payload = gzip.compress(payload, mtime=0)
    number = len(values) if count is None else count
    tail = struct.pack(">hiqqqhii", attributes, len(values) - 1 if last_delta is None else last_delta, first,
                       first if last is None else last, pid, epoch, sequence, number) + payload
    checksum = crc32c(tail) if crc is None else crc
    size = len(tail) + 9 if length is None else length
    return struct.pack(">qiibI", base_offset, size, leader_epoch, magic, checksum) + tail


def old_message(magic, value=b"value"):
    """One message of format 0 or 1."""
    from zlib import crc32
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1_700_000_000_000) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body


def summary(data):
    """What a Fetch returned: how many records from which offset on, and in which codec, batch by batch."""
    out, at = [], 0
    while data and at + 61 <= len(data):
        base, size = struct.unpack_from(">qi", data, at)
        if at + 12 + size > len(data):
            break
        attributes, delta, = struct.unpack_from(">hi", data, at + 21)
        count, = struct.unpack_from(">i", data, at + 57)
        out.append(f"{count} from {base} to {base + delta}{CODECS[attributes & 7]}")
        at += 12 + size
    return out
