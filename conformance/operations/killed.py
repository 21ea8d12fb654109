"""Restores and backups that are killed. A restore is killed (SIGKILL) at random moments of its first milliseconds, and a broker is started on what it left:
it refuses the folder by name, or has everything; only where nothing was done in the folder yet it is a new one. The restore is run again then, and a
broker that starts has everything. A broker is killed while it makes a backup: what is left is no backup, `verify` and a start say so, and the next
backup goes to the same folder. Arguments: the binary, how many restores (30), how many backups (5)."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from driver.broker import Broker

FLAGS = ["--set", "mainstem.segment.bytes=1048576", "--set", "mainstem.journals=2"]
MESSAGES, BYTES = 120, 30_000
EARLY = 0.04  # seconds in which a restore is killed
LIMIT = 60


def ask(broker, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{broker.admin}/v1{path}", data, {"content-type": "application/json"}, method=method)
    request.add_header("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.loads(answer.read() or b"null")


def fill(broker):
    ask(broker, "PUT", "/queues/%2F/q", {})
    for number in range(MESSAGES):
        ask(broker, "POST", "/exchanges/%2F/amq.default/publish", {"routing_key": "q", "body": f"{number} ".ljust(BYTES, "m")})


def count(broker):
    """Messages of the queue, or none where it is not there."""
    try:
        return ask(broker, "GET", "/queues/%2F/q")["ready"]
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=LIMIT)
    return done.returncode, (done.stdout + done.stderr).strip()


def must(*words):
    status, said = run(*words)
    if status != 0:
        raise RuntimeError(f"{' '.join(map(str, words[1:3]))}: status {status}: {said[-300:]}")


def started(binary, folder):
    """What a start on a folder finds, or why it refuses."""
    broker = Broker(binary, str(folder), FLAGS)
    Path(folder).with_suffix(".log").unlink(missing_ok=True)
    try:
        broker.start()
    except RuntimeError:
        return " ".join(broker.log_lines()[-1:])
    try:
        return count(broker)
    finally:
        broker.end(signal.SIGTERM)


def restores(binary, backup, scratch, rounds):
    outcomes = {"nothing was done": 0, "refused": 0, "whole": 0}
    for number in range(rounds):
        folder = Path(scratch, f"restored-{number}")
        if number % 2:
            folder.mkdir()
        restore = subprocess.Popen([binary, "restore", "--from", backup, "--data", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0, EARLY))
        restore.kill()
        restore.wait()
        is_untouched = not folder.exists() or not any(folder.iterdir())
        found, left = started(binary, folder), sorted(os.listdir(folder)) if folder.exists() else []
        if is_untouched:
            outcomes["nothing was done"] += 1
            if found is not None:
                raise RuntimeError(f"an empty folder is no new one: {found}")
            shutil.rmtree(folder)
        elif found == MESSAGES:
            outcomes["whole"] += 1
            continue
        elif isinstance(found, str) and "a restore was interrupted" in found:
            outcomes["refused"] += 1
            status, said = run(binary, "journal", "verify", "--data", folder)
            if status == 0 or "a restore was interrupted" not in said:
                raise RuntimeError(f"verify does not say what it is: {said[-300:]}")
        else:
            raise RuntimeError(f"a start on half of a restore found {found}, with {left}")
        must(binary, "restore", "--from", backup, "--data", folder)
        if (found := started(binary, folder)) != MESSAGES:
            raise RuntimeError(f"restored again there are {found}")
        shutil.rmtree(folder)
    return outcomes


def backups(binary, broker, scratch, rounds):
    outcomes = {"finished": 0, "half": 0, "nothing": 0}
    for number in range(rounds):
        to = Path(scratch, f"killed-backup-{number}")
        asker = subprocess.Popen([binary, "backup", "--to", str(to), "--admin", f"127.0.0.1:{broker.admin}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + 1
        while not to.exists() and time.time() < deadline:
            time.sleep(0.0005)
        time.sleep(random.uniform(0, EARLY))
        broker.end(signal.SIGKILL)
        asker.wait(LIMIT)
        target = Path(scratch, f"of-killed-{number}")
        status, said = run(binary, "restore", "--from", to, "--data", target)
        if status == 0:
            outcomes["finished"] += 1
            if (found := started(binary, target)) != MESSAGES:
                raise RuntimeError(f"a backup that a kill met has {found}")
        elif "holds no finished backup" not in said:
            raise RuntimeError(f"half of a backup is not called that: {said[-300:]}")
        elif not to.exists() or not any(to.iterdir()):
            outcomes["nothing"] += 1
        else:
            outcomes["half"] += 1
            found, (status, said) = started(binary, to), run(binary, "journal", "verify", "--data", to)
            if status == 0 or not all("was not finished" in str(told) for told in (found, said)):
                raise RuntimeError(f"on half of a backup a start found {found}, and verify {said[-300:]}")
        broker.start()
        if not Path(to, "backup.toml").exists():
            must(binary, "backup", "--to", to, "--admin", f"127.0.0.1:{broker.admin}")
            must(binary, "journal", "verify", "--data", to)
        shutil.rmtree(target, ignore_errors=True)
    return outcomes


def main():
    binary, *counts = sys.argv[1:]
    rounds, backup_rounds = (list(map(int, counts)) + [30, 5][len(counts):])
    with tempfile.TemporaryDirectory(prefix="mainstem-killed-") as scratch:
        broker, backup = Broker(binary, f"{scratch}/data", FLAGS).start(), f"{scratch}/backup"
        try:
            fill(broker)
            must(binary, "backup", "--to", backup, "--admin", f"127.0.0.1:{broker.admin}")
            of_restores = restores(binary, backup, scratch, rounds)
            of_backups = backups(binary, broker, scratch, backup_rounds)
        finally:
            broker.end(signal.SIGTERM)
    shown = [", ".join(f"{what} {number}" for what, number in found.items()) for found in (of_restores, of_backups)]
    print(f"{rounds} restores killed: {shown[0]}; {backup_rounds} backups killed: {shown[1]}")


main()
