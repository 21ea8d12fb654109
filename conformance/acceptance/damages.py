"""Damages of data folders and of backups, and restores of backups that were made under transactions."""

import os
import re
import subprocess
import sys

from machine import HERE, ROOT

RESTORES = 50


def damages(report):
    """Each damage is done to a copy of its own of a data folder of two journals with archived objects, or of a backup: files that are missing, empty, cut, longer,
    exchanged, and flipped bits all over them (`DAMAGES=all cargo test -p mainstem --test it damages`). A start and a restore refuse by name, or everything acknowledged is
    there; what a start refuses `journal verify` finds, and `journal salvage` makes a folder of it that starts, and says what is lost. A journal by itself is damaged
    likewise (`cargo test -p journal --test it damages`). Built as `cargo test` builds."""
    for package, of, what in (("mainstem", "a_damaged_data_folder", "data folder"), ("mainstem", "a_damaged_backup", "backup"), ("journal", "no_damage_loses", "journal")):
        command = ["cargo", "test", "-q", "-p", package, "--test", "it", f"damages::{of}", "--", "--nocapture"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600, cwd=ROOT, env={**os.environ, "DAMAGES": "all"})
        lines = done.stdout.splitlines()
        rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("| ")]
        wrong = [line for line in lines if ": " in line and done.returncode != 0 and not line.startswith("|")]
        count = sum(int(number) for row in rows[1:] for number in re.findall(r"(?:^|, )(\d+) ", row[-1]))
        report.table(f"{what}, outcome by kind", ["what", "damage", "outcome"], rows[1:])
        report.note(what=what, damages=count, status=done.returncode, wrong=wrong[:20])
        report.judge(f"{what}: {count} damages, of which something is lost or done in silence", len(wrong) if rows else "it does not run", "0", bool(rows) and done.returncode == 0)


def moments(report):
    """Backups of a node with three journals, one after the other, while three producers write transactions over nine partitions and their groups' offsets, every fifth
    aborted; each is restored and read (`conformance/operations/moments.py`): each transaction is whole or absent, offsets are those of the newest transaction that is there, and
    all that was committed before the backup began is in it."""
    command = [sys.executable, str(HERE.parent / "operations/moments.py"), str(ROOT / "target/release/mainstem"), str(report.amount(RESTORES))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    # librdkafka complains of what it lost at the end, behind what the program says.
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    said = [line for line in lines if not line.startswith("%")] or ["it says nothing"]
    report.note(said=said[-1])
    report.judge("each backup is one moment", said[-1], "so", done.returncode == 0)
