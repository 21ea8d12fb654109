"""Random lives of a node, and an hour of churn. Used by the driver."""

import subprocess
from pathlib import Path

from driver.install import HERE, PYTHON

KEPT = HERE.parent / "target/lives"


def run(results, binary, count):
    """Each life that fails is a failure of its own, with what repeats it; together they take about half a minute for sixty."""
    lines(results, [str(PYTHON), str(HERE / "lives/lives.py"), str(binary), "--count", str(count), "--keep", str(KEPT)], f"{count} random lives of a node")


def endure(results, binary, minutes):
    lines(results, [str(PYTHON), str(HERE / "endurance/churn.py"), str(binary), "--minutes", str(minutes)], f"{minutes} minutes of churn")


def lines(results, command, about):
    """Takes over what a program counts in its last line, and shows the others."""
    Path(KEPT).mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        last = ""
        for line in program.stdout:
            if last:
                print(f"      {last}", flush=True)
            last = line.rstrip()
    words = last.split()
    if len(words) == 4 and words[1] == "passed," and words[3] == "failed":
        results.passed += int(words[0])
        results.failed += int(words[2])
        print(f"ok    {about}" if words[2] == "0" else f"FAIL  {about}: {words[2]} of {int(words[0]) + int(words[2])}", flush=True)
    else:
        results.note(about, last or f"status {program.returncode}")
