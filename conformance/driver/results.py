"""Counts and prints the steps of a run, and calls client programs. Used by every part of the driver."""

import re
import subprocess
import time


class Results:
    def __init__(self):
        self.passed = self.failed = 0

    def note(self, name, failure=None, seconds=None):
        took = "" if seconds is None else f" ({seconds:.1f} s)"
        if failure is None:
            self.passed += 1
            print(f"ok    {name}{took}", flush=True)
        else:
            self.failed += 1
            print(f"FAIL  {name}: {failure}", flush=True)

    def step(self, name, work):
        began = time.time()
        try:
            work()
            self.note(name, None, time.time() - began)
            return True
        except Exception as error:
            self.note(name, str(error) or type(error).__name__)
            return False


def call(command, limit=180, text=None, **more):
    """Output of a program; its last line of complaint as the error when it fails, not counting what librdkafka says of connections (`%3|…`)."""
    done = subprocess.run(command, input=text, capture_output=True, timeout=limit, **more)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        lines = [line for line in lines if not re.match(r"%\d\|", line)] or lines
        raise RuntimeError(lines[-1] if lines else f"status {done.returncode}")
    return done.stdout


def parse_lines(out, wanted):
    """Outcome per topic from the `ok TOPIC` and `FAIL TOPIC reason` lines of a client: None or the reason."""
    outcome = {topic: "the client said nothing" for topic in wanted}
    for line in out.decode(errors="replace").splitlines():
        word, _, rest = line.partition(" ")
        topic, _, reason = rest.partition(" ")
        if word in ("ok", "FAIL"):
            outcome[topic.split("=")[0]] = None if word == "ok" else reason
    return outcome
