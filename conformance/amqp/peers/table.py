"""Runs the table of cases against one broker."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from cases import table
from client import Case, Link

RECORDED = "rabbitmq-4.3.6.json"
# Some cases wait for seconds, most of the others for round trips.
AT_ONCE = 8


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def server(where):
    """What the broker says of itself."""
    link = Link(address(where))
    link.raw(b"AMQP\0\0\x09\x01")
    properties = link.expect("connection.start")["server-properties"]
    link.close()
    return properties


def one(where, name, function, token):
    try:
        case = Case(where, name, token)
    except Exception as error:
        return name, [{"broken": f"no connection: {type(error).__name__}: {error}"}]
    try:
        function(case)
    except Exception as error:
        case.note(broken=case.normal(f"{type(error).__name__}: {error}"))
    case.end()
    return name, case.steps


def run(broker, wanted=""):
    """Yields the name and the steps of every case whose name contains `wanted`, several at a time, in the table's order."""
    where, token = address(broker), f"{os.getpid():08x}{int(time.time()) & 0xFFFFF:05x}"
    chosen = [(name, function) for name, function in table().items() if wanted in name]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(lambda case: one(where, *case, token), chosen)
