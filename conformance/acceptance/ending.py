"""How long a broker takes to end while many wait on it, and a backup of one that is written meanwhile."""

import re
import subprocess
import sys

from machine import HERE, ROOT

POLLS, CONSUMERS, SECONDS = 500, 100, 5
BACKUP_SECONDS = 30


def drain(report):
    """SIGTERM, and once more `mainstem drain`, with 500 long polls of Kafka clients, 20 members that join a group, 100 AMQP consumers, two idempotent
    producers and a publisher with confirms (`conformance/operations/drain.py`). Every poll is answered, every consumer told 320, and after a start everything
    that was acknowledged is there, once; the run fails otherwise."""
    worst = 0
    for how in ("signal", "verb"):
        command = [sys.executable, str(HERE.parent / "operations/drain.py"), str(ROOT / "target/release/mainstem"), str(POLLS), str(CONSUMERS), how, str(10 * SECONDS)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            report.judge(f"{how}: nothing is lost, all are told", done.stderr.strip().splitlines()[-1], "so", False)
            continue
        said = done.stdout.strip()
        report.note(how=how, said=said)
        took = float(re.match(r"([\d.]+) s", said).group(1))
        worst = max(worst, took)
        report.judge(f"{how}: nothing is lost, all are told", said, "so", True)
    report.judge("until the process has ended, the worse of two", worst, f"< {SECONDS} s", 0 < worst < SECONDS, " s")


def backup(report):
    """A backup while two idempotent producers and a publisher with confirms write, half a minute after they began, restored elsewhere
    (`conformance/operations/backup.py`; segments of 1 MiB, a window of 16, two journals, an archive): everything that was acknowledged before it is there, topics
    have their ids, a group its offsets, and acknowledged messages do not come again. A damaged backup and a folder that is not empty are refused; the run fails otherwise."""
    seconds = report.amount(BACKUP_SECONDS)
    command = [sys.executable, str(HERE.parent / "operations/backup.py"), str(ROOT / "target/release/mainstem"), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    what = "everything acknowledged before it is there"
    if done.returncode != 0:
        report.judge(what, (done.stderr.strip().splitlines() or ["it says nothing"])[-1], "so", False)
        return
    said = done.stdout.strip()
    report.note(said=said)
    report.judge(what, said, "so", True)
