"""Share groups (KIP-932): small cases, a group under kills, keys in order. Used by the driver."""

import signal
import tempfile
import time

from driver.broker import Broker
from driver.install import HERE, PYTHON, java_command
from driver.results import call, parse_lines

CASES = ["accepted", "released", "rejected", "renewed", "lock-runs-out", "delivery-limit", "record-limit", "implicit", "two-members",
         "member-leaves", "read-committed", "earliest", "latest", "by-duration"]
# Beyond the load: what is not done yet, and the check.
MORE_SECONDS = 240


def run(results, binary, seconds, missing):
    if "java" in missing:
        results.note("share groups", "Java is missing")
        return
    cases(results, binary)
    results.step("what members of a share group cannot say is found", lambda: call([str(PYTHON), str(HERE / "share/test_events.py")]))
    for durability in ("fsync", "memory"):
        words = ["survive.py", binary, seconds, durability, *missing]
        program(results, f"a share group loses nothing while members and broker are killed, class {durability}", words, seconds)
    program(results, "keys of a share group stay in order, also under kills", ["ordered.py", binary, max(5, seconds / 4), *missing], seconds)


def cases(results, binary):
    with tempfile.TemporaryDirectory(prefix="mainstem-share-") as scratch:
        broker = Broker(binary, f"{scratch}/data", ["--set", "group.share.min.record.lock.duration.ms=1000"]).start()
        try:
            out = call(java_command("ShareCases", broker.bootstrap, f"case-{int(time.time())}"), 120)
            for name, failure in parse_lines(out, CASES).items():
                results.note(f"share group: {name.replace('-', ' ')}", failure)
        except Exception as error:
            results.note("share groups: small cases", str(error) or type(error).__name__)
        finally:
            broker.end(signal.SIGTERM)


def program(results, name, words, seconds):
    command = [str(PYTHON), str(HERE / "share" / words[0]), *map(str, words[1:])]
    results.step(name, lambda: print("      " + call(command, seconds + MORE_SECONDS).decode().strip().replace("\n", "\n      "), flush=True))
