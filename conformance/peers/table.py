"""Runs the table of cases against one broker."""

import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cases import table
from client import NOT_YET, Case

RECORDED = "kafka-4.3.1.json"


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def ready(where, token):
    """Coordinators that are just being made answer so; cases begin when they are there."""
    case = Case(where, "ready", token)
    groups = [case.group() for _ in range(150)]
    for _ in range(300):
        case.quiet("FindCoordinator", 2, {"key": groups[0]})
        codes = {case.quiet("Heartbeat", 3, {"group_id": group, "generation_id": 1, "member_id": "nobody"})["error_code"] for group in groups}
        if not codes.intersection(NOT_YET):
            break
        time.sleep(0.1)
    case.producer()
    wish = {"transactional_id": case.unique("transaction"), "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    for _ in range(300):
        # Kafka makes the topic of its transactions when somebody asks for a coordinator.
        case.quiet("FindCoordinator", 2, {"key": wish["transactional_id"], "key_type": 1})
        if case.quiet("InitProducerId", 4, wish)["error_code"] not in NOT_YET:
            break
        time.sleep(0.1)
    case.end()


def run(bootstrap, wanted=""):
    """Yields the name and the steps of every case whose name contains `wanted`."""
    where, token = address(bootstrap), f"{os.getpid():x}{int(time.time()) & 0xFFFFF:x}"
    ready(where, token)
    for name, function in table().items():
        if wanted not in name:
            continue
        case = Case(where, name, token)
        try:
            function(case)
        except Exception as error:
            case.note(broken=f"{type(error).__name__}: {error}")
        case.end()
        yield name, case.steps
