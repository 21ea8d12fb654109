#!/usr/bin/env python3
"""A tiny server that costs what its first argument says: `linear`, `quadratic` (compares each entry with each), `keeps` (never forgets a request),
`copies` (makes many copies of it), `dies`, `silent`. A request is a length (4 bytes) and entries of 8 bytes each; the answer is 4 bytes. It is what the
judge is tried on; prints its port."""

import socket
import struct
import sys

KEPT = []


def answer(way, data):
    entries = [data[at:at + 8] for at in range(0, min(len(data), 8 << 18), 8)]
    if way == "quadratic":
        return sum(entries.count(entry) for entry in entries)
    if way == "keeps":
        KEPT.append(data)
    if way == "copies":
        return len(b"".join([bytearray(data)] * 12))
    if way == "dies":
        sys.exit(1)
    return len(set(entries))


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as lines:
            while head := lines.read(4):
                data = lines.read(struct.unpack(">I", head)[0])
                found = answer(sys.argv[1], data)
                if sys.argv[1] != "silent":
                    peer.sendall(struct.pack(">I", found & 0xFFFFFFFF))


if __name__ == "__main__":
    main()
