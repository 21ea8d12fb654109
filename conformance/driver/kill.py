"""Kill rounds: kill −9 under load from eight idempotent producers. Used by the driver."""

import signal
import subprocess
import tempfile
import time

from driver.broker import Broker
from driver.install import HERE, PYTHON
from driver.results import call

PRODUCERS = 8


def rounds(results, binary, durability, count, seconds):
    with tempfile.TemporaryDirectory(prefix="mainstem-kill-") as scratch:
        broker = Broker(binary, f"{scratch}/data", ["--durability", durability, "--set", f"num.partitions={PRODUCERS}"])
        notes = [f"{scratch}/notes-{partition}" for partition in range(PRODUCERS)]
        firsts = [0] * PRODUCERS
        for number in range(count):
            results.step(f"kill round {number + 1} of {count}, durability {durability}",
                         lambda: one_round(broker, notes, firsts, seconds * (0.8 + 0.1 * (number % 5))))


def one_round(broker, notes, firsts, seconds):
    broker.start()
    load = [subprocess.Popen(
        [str(PYTHON), str(HERE / "killing/load.py"), broker.bootstrap, "kill", str(partition), str(firsts[partition]),
         notes[partition]], stdout=subprocess.PIPE) for partition in range(PRODUCERS)]
    try:
        time.sleep(seconds)
        broker.end(signal.SIGKILL)
        broker.start()
        time.sleep(0.5)
        for producer in load:
            producer.terminate()
        for partition, producer in enumerate(load):
            out, _ = producer.communicate(timeout=60)
            firsts[partition] = int(out or 0)
        try:
            out = call([str(PYTHON), str(HERE / "killing/check.py"), broker.bootstrap, "kill", *notes])
        except Exception:
            witness(broker, len(notes))
            raise
        print("      " + out.decode().strip(), flush=True)
    finally:
        for producer in load:
            producer.kill()
        broker.end(signal.SIGKILL)


def witness(broker, partitions):
    """What another client and the broker itself say when the check of a round has failed."""
    for partition in range(partitions):
        read = subprocess.run(["kcat", "-b", broker.bootstrap, "-C", "-t", "kill", "-p", str(partition), "-o", "beginning", "-e",
                               "-f", "%o\n"], capture_output=True, timeout=60)
        lines = read.stdout.split()
        print(f"      kcat reads {len(lines)} records of partition {partition}, "
              f"to {lines[-1].decode() if lines else None}; {read.stderr.decode(errors='replace').strip()[-200:]}", flush=True)
    print("      broker's status:", broker.process.poll(), flush=True)
    lines = broker.log_lines()
    telling = [line for line in lines if any(word in line for word in ("ERROR", "WARN", "defect", "panicked"))]
    for line in [*telling[-20:], *lines[-20:]]:
        print("      broker:", line, flush=True)
