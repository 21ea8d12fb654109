"""Damaged data folders and the runbook for them (`docs/operations/damage.md`): a flipped bit in a sealed segment, one behind the checkpoint and one in a header, verified,
salvaged to another folder, accepted as lost; and a folder that moves to another file system. Whatever is not lost is read by real clients afterwards, at
its offset. Argument: the binary."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from load import TOPICS, Broker, Messages, make, messages, records, start_writers, stop

SECTOR, FLAGS = 4096, ["--set", "mainstem.segment.bytes=1048576", "--memory", "256MiB"]


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def verify(binary, folder):
    status, out, _ = run(binary, "journal", "verify", "--json", "--data", folder)
    found = json.loads(out)
    if (status == 0) != (not found["damages"] and not found["lost"]):
        raise RuntimeError(f"verify: status {status} with {len(found['damages'])} damages")
    return found


def chunks(path):
    """Positions of the chunks of a segment; those of an earlier life of the file name another."""
    data, sequence = Path(path).read_bytes(), struct.pack("<Q", int(Path(path).name.split("-")[1]))
    return [at for at in range(SECTOR, len(data), SECTOR) if data[at:at + 4] == b"MSCK" and data[at + 24:at + 32] == sequence]


def body(path, at):
    """The middle of the bodies of a chunk, and how long they are."""
    directory, bodies = struct.unpack("<II", Path(path).read_bytes()[at + 68:at + 76])
    return at + 96 + directory + bodies // 2, bodies


def flip(path, position):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))


def segments(folder):
    return [path for path in sorted(Path(folder).glob("journal-0/segment-*")) if chunks(path)]


def copy(folder, name):
    target = f"{folder}-{name}"
    subprocess.run(["cp", "-a", "--sparse=always", folder, target], check=True)
    return target


def serves(binary, folder, acknowledged, lost_max, flags=()):
    """Starts a broker there: of what was acknowledged at most so much is missing. Returns how much, and the log."""
    broker = Broker(binary, folder, [*FLAGS, *flags]).start()
    try:
        missing = 0
        for name, words in acknowledged.items():
            found = records(broker, name) if name in TOPICS else messages(broker)
            missing += sum(word not in found for word in words)
        if missing > lost_max:
            raise RuntimeError(f"{folder}: {missing} are missing, at most {lost_max} may be")
        writers, deadline = start_writers(broker), time.time() + 10
        while not all(writer.acknowledged for writer in writers):
            if time.time() > deadline:
                raise RuntimeError(f"{folder}: nothing can be written by {[one.name for one in writers if not one.acknowledged]}")
            time.sleep(0.05)
        stop(writers)
        return missing, "\n".join(broker.log_lines())
    finally:
        broker.end(signal.SIGTERM)


def damaged(binary, folder, acknowledged, place, refused):
    """One flipped bit, all ways of the runbook; returns what was lost."""
    path, position = place(folder)
    flip(path, position)
    found = verify(binary, folder)
    if len(found["damages"]) != 1 or not found["lost"]:
        raise RuntimeError(f"one bit of {path.name} was flipped, verify says {found}")
    lost = sum(one["until"] - one["from"] for one in found["lost"])
    name = found["damages"][0]["id"]
    if refused:
        status, _, error = run(binary, "serve", "--data", folder, "--kafka", "127.0.0.1:0", "--amqp", "none", "--admin", "127.0.0.1:0")
        if status == 0 or path.name not in error or "verify" not in error:
            raise RuntimeError(f"a damaged folder is opened: status {status}, {error[-300:]}")
    out = f"{folder}-salvaged"
    status, said, error = run(binary, "journal", "salvage", "--data", folder, "--out", out)
    if status != 0 or name not in said or "LOST" not in said:
        raise RuntimeError(f"salvage: status {status}, {said[-200:]} {error[-200:]}")
    missing, _ = serves(binary, out, acknowledged, lost)
    wrong = run(binary, "serve", "--data", folder, "--accept-loss", "0-1-77", "--kafka", "127.0.0.1:0", "--amqp", "none", "--admin", "127.0.0.1:0")
    if wrong[0] == 0 or name not in wrong[2]:
        raise RuntimeError(f"a loss that is none is accepted: {wrong[2][-200:]}")
    again, log = serves(binary, folder, acknowledged, lost, ["--accept-loss", name])
    if name not in log or "loss accepted" not in log:
        raise RuntimeError("what was accepted is not in the log")
    if again != missing:
        raise RuntimeError(f"salvaged {missing} are missing, accepted {again}")
    if verify(binary, folder)["damages"]:
        raise RuntimeError("there is damage after the repair")
    return missing


def damaged_header(binary, folder, acknowledged):
    """A flipped bit in the header of the segment that was written: the start is refused, and nothing is lost."""
    path = segments(folder)[-1]
    flip(path, 20)
    found = verify(binary, folder)
    if len(found["damages"]) != 1 or found["lost"]:
        raise RuntimeError(f"one bit of the header of {path.name} was flipped, verify says {found}")
    status, _, error = run(binary, "serve", "--data", folder, "--kafka", "127.0.0.1:0", "--amqp", "none", "--admin", "127.0.0.1:0")
    if status == 0 or path.name not in error or "verify" not in error:
        raise RuntimeError(f"a folder with a damaged header is opened: status {status}, {error[-300:]}")
    serves(binary, folder, acknowledged, 0, ["--accept-loss", found["damages"][0]["id"]])


def sealed(folder):
    """The body of a large chunk, which has records, in a segment that is sealed long since."""
    for path in segments(folder)[:-2]:
        for position, length in (body(path, at) for at in chunks(path)):
            if length > 2 * SECTOR:
                return path, position
    raise RuntimeError("no chunk is large")


def open_one(folder):
    """The body of an early chunk in the last segment, with others behind it."""
    path = segments(folder)[-1]
    at = chunks(path)
    return path, body(path, at[len(at) // 3])[0]


def main():
    binary = sys.argv[1]
    elsewhere = tempfile.mkdtemp(prefix="mainstem-moved-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        with tempfile.TemporaryDirectory(prefix="mainstem-damage-") as scratch:
            folder = f"{scratch}/data"
            broker = Broker(binary, folder, FLAGS).start()
            make(broker)
            writers = start_writers(broker, 1000)
            time.sleep(1)
            stop(writers)
            # One small commit after the other, so that chunks lie behind the one that will be damaged.
            single = Messages(broker, "single", 300)
            single.start()
            time.sleep(0.5)
            stop([single])
            broker.end(signal.SIGTERM)
            acknowledged = {writer.name: list(writer.acknowledged) for writer in writers}
            acknowledged["messages"] += single.acknowledged
            if verify(binary, folder)["damages"]:
                raise RuntimeError("an undamaged folder is damaged")
            in_sealed = damaged(binary, copy(folder, "sealed"), acknowledged, sealed, False)
            in_open = damaged(binary, copy(folder, "open"), acknowledged, open_one, True)
            damaged_header(binary, copy(folder, "header"), acknowledged)
            moved = f"{elsewhere}/data"
            subprocess.run(["cp", "-a", "--sparse=always", folder, moved], check=True)
            if verify(binary, moved)["damages"]:
                raise RuntimeError("the folder is damaged where it has moved to")
            serves(binary, moved, acknowledged, 0)
            count = sum(map(len, acknowledged.values()))
            print(f"of {count} acknowledged {in_sealed} were lost with a bit of a sealed segment, {in_open} with one behind the checkpoint, none with one of a header, none by moving")
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


main()
