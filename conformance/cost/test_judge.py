#!/usr/bin/env python3
"""The judge finds a quadratic loop, a kept buffer, copies without number, an end and a silence, planted in a tiny server, and nothing in one that is
as it should be. And: each API, method and route without a row is named."""

import socket
import struct
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import judge
from measure import MIB, Process, kept, take


class Server:
    """A fake of one kind, while it is needed."""

    def __init__(self, way):
        self.way = way

    def __enter__(self):
        self.program = subprocess.Popen([sys.executable, str(HERE / "fake.py"), self.way], stdout=subprocess.PIPE, text=True)
        self.port = int(self.program.stdout.readline())
        self.process = Process(self.program.pid)
        return self

    def __exit__(self, *_):
        self.program.kill()
        self.program.wait()
        self.program.stdout.close()

    def exchange(self, data, wait=120):
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as link:
            link.sendall(struct.pack(">I", len(data)) + data)
            came = link.recv(4)
            if not came:
                raise ConnectionResetError("closed without an answer")
            return len(came)

    def samples(self, sizes, wait=120):
        out = []
        for size in sizes:
            data = b"".join(b"%08d" % number for number in range(size))
            out.append(take(self.process, size, len(data), lambda data=data: self.exchange(data, wait)))
        return out


class Planted(unittest.TestCase):
    def faults(self, way, sizes=(1_000, 10_000), wait=120, **more):
        with Server(way) as server:
            server.samples([1_000])
            return judge.faults(server.samples(sizes, wait), **more)

    def test_nothing_is_found_where_nothing_is(self):
        self.assertEqual(self.faults("linear", (1_000, 10_000, 100_000), floor=0.01), [])

    def test_a_quadratic_loop_is_found(self):
        found = self.faults("quadratic", (1_500, 15_000), floor=0.2)
        self.assertEqual(len(found), 1, found)
        self.assertEqual(found[0].kind, "growth")

    def test_a_quadratic_loop_that_costs_nearly_nothing_is_none(self):
        self.assertEqual(self.faults("quadratic", (10, 100)), [])

    def test_a_kept_buffer_is_found(self):
        data = bytes(8 * MIB)
        for way, expected in [("keeps", True), ("linear", False)]:
            with Server(way) as server:
                share = kept(server.process, len(data), lambda: server.exchange(data))
            self.assertEqual(bool(judge.faults([], share)), expected, f"{way}: {share}")

    def test_copies_without_number_are_found(self):
        sizes = (2 * MIB,)
        for way, expected in [("copies", True), ("linear", False)]:
            with Server(way) as server:
                server.samples([1_000])
                data = bytes(8 * sizes[0])
                found = judge.faults([take(server.process, sizes[0], len(data), lambda: server.exchange(data))])
            self.assertEqual(bool(found), expected, f"{way}: {found}")

    def test_more_than_the_budget_is_found(self):
        with Server("linear") as server:
            data = bytes(2 * judge.ADDED)
            found = judge.faults([take(server.process, 1_000, len(data), lambda: server.exchange(data))], budget=-2 * judge.SLACK)
        self.assertEqual([one.kind for one in found], ["budget"])

    def test_an_end_and_a_silence_are_found(self):
        with Server("dies") as server:
            self.assertEqual([one.kind for one in judge.faults(server.samples([10]))], ["answer"])
        with Server("silent") as server:
            found = judge.faults(server.samples([10], wait=1))
        self.assertTrue(found and "no answer" in found[0].text, found)


class Complete(unittest.TestCase):
    def test_an_api_a_method_and_a_route_without_a_row_are_named(self):
        import amqp_rows
        import http_rows
        import kafka_rows
        served = [(api.key, api.versions[0], api.versions[-1]) for api in kafka_rows.APIS.values()]
        self.assertEqual(kafka_rows.missing(served), [])
        self.assertEqual(kafka_rows.missing([*served, (4711, 0, 0)]), ["API 4711 has no row"])
        self.assertEqual(amqp_rows.missing(amqp_rows.client_methods()), [])
        self.assertEqual(amqp_rows.missing([*amqp_rows.client_methods(), "basic.dance"]), ["basic.dance has no row"])
        self.assertEqual(http_rows.missing(http_rows.management_routes()), [])
        self.assertEqual(http_rows.missing([*http_rows.management_routes(), ("PUT", "/api/dances/{dance}")]), ["PUT /api/dances/{dance} has no row"])


if __name__ == "__main__":
    unittest.main()
