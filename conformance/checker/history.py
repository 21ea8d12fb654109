"""What clients of the checker write down: JSON lines, one file a process, each line with a time that all processes share.
A line is written before what it tells of is begun, or after it has come to pass; a killed process leaves what it had written.

| `e` | who | means |
|---|---|---|
| `send` | writers | is about to send value `v` to key `k`, in transaction `x` if there is one |
| `ack` | writers | `v` was acknowledged, at offset `o` |
| `nak` | writers | what became of `v` is not known |
| `commit`, `abort` | writers | is about to end transaction `x` so |
| `committed`, `aborted` | writers | the broker has said that `x` ended so |
| `assign` | readers | begins to read `k`, at offset `o`; without, where group `g` is |
| `revoke` | readers | reads `k` no longer |
| `poll` | readers | records came: lists of key, offset, value |
| `passed` | readers | nothing is left of `k` before offset `o` |
| `commits`, `committed-to` | readers of groups | is about to commit offset `o` of `k`; has |
| `ends` | the watch | last stable offset `s` and high watermark `h` of `k` |
| `down`, `up` | the killer | the broker is ended, and is ready again |

A key is a partition, as `topic/number`; every value is written once in all the history. Times are nanoseconds."""

import json
import os
import time
from pathlib import Path


class Notes:
    """Writes the lines of one process, each in one system call: a kill tears the last one at most."""

    def __init__(self, folder, name):
        self.name = name
        self.file = os.open(Path(folder) / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, event, **more):
        os.write(self.file, (json.dumps({"t": time.monotonic_ns(), "p": self.name, "e": event, **more}) + "\n").encode())


def load(folder):
    """All lines of a folder, each process's in its order."""
    events = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        with open(path) as lines:
            # What a killed process had not written whole, it had not done.
            events.extend(json.loads(line) for line in lines if line.endswith("\n"))
    return events


def save(events, path):
    """One file of all lines, by time."""
    with open(path, "w") as file:
        for event in sorted(events, key=lambda event: event["t"]):
            file.write(json.dumps(event) + "\n")
