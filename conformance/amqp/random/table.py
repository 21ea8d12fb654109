"""Where things are, and how many sequences there are. Puts the folders that are shared on the path."""

import os
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers"), str(HERE.parents[1])]

RECORDED = "rabbitmq-4.3.6.jsonl.xz"
SEEDS = 330


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def prefix(seed):
    """Of the names that a play makes: no other play has it."""
    return f"r{os.getpid():x}.{int(time.time() * 1000) & 0xFFFFFF:x}.{seed}-"
