"""Who may do what, by every operation of every protocol."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import ROOT

PROGRAM = Path(__file__).resolve().parents[1] / "decisions/decisions.py"
CASES = 100_000


def decisions(report):
    """Each API of Kafka, AMQP method and route of `/v1` and `/api` (which the console uses, by sessions) is asked by somebody who has exactly what the table in
    `docs/operations/decisions.md` says, and for each part of it by somebody who lacks it. Then random users, tags, permissions, access control entries, virtual hosts and
    operations: each answer is held against a model of the rules of Kafka and RabbitMQ, and the same operation by several protocols against each other; and decisions that were
    recorded of Kafka 4.3.1 and RabbitMQ 4.3.6 (`conformance/decisions`)."""
    count = report.amount(CASES)
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        subprocess.run([sys.executable, str(PROGRAM), str(ROOT / "target/release/mainstem"), "--cases", str(count), "--seed", "24", "--figures", str(figures)], check=False)
        found = json.loads(figures.read_text())
    report.judge("operations without a row", len(found["problems"]), "none", not found["problems"])
    for name, rows in found["rows"].items():
        report.judge(f"answers to rows as they are due, {name}", rows["passed"], f"all, and {len(rows['failures'])} are not", not rows["failures"])
    recorded, cases = found["recorded"], found["cases"]
    report.judge("decisions of Kafka 4.3.1 and RabbitMQ 4.3.6 that are the same here", recorded["same"], f"all but those that are meant to differ, and {recorded['failures']} are not",
                 not recorded["failures"])
    report.judge("random cases without a difference", cases["asked"], f"{count:,}", not cases["difference"] and cases["asked"] >= count)
    report.judge("operations that several protocols were asked for, and decided alike", cases["compared"], "reported", None)
    report.table("Random cases", ("protocol", "allowed", "refused"), [(protocol, *counts) for protocol, counts in cases["counts"].items()])
    for line in [*found["problems"], *(line for rows in found["rows"].values() for line in rows["failures"]), *filter(None, [cases["difference"]])]:
        report.note(differs=line)
