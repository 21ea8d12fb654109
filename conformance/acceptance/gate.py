"""What a record costs the broker, beside what it cost before transactions and groups: the benchmark's gate against its baseline."""

import json
import os
import re
import subprocess

from machine import PEER, ROOT

BENCH = ROOT / "target/release/mainstem-bench"
BASELINE = ROOT / "bench/baseline.json"
WORSE_MAX = 1.10
KINDS = {"bulk": "records in bulk, with a reader", "single": "one record a request"}


def gate(report):
    """`mainstem-bench gate`: user-space instructions per record under callgrind (they do not depend on what else runs), and broker
    processor time for a GB published and received, best of five; beside `bench/baseline.json`. Needs valgrind and
    `make bench-build`; without the scripts of the peers Kafka is left out. With `ACCEPTANCE_OLDER`, the path of an older build, processor
    time and ratio are compared with what that one does in turns with this one: those of the baseline are of the machine that made it."""
    older = os.environ.get("ACCEPTANCE_OLDER")
    words = [BENCH, "gate", "--baseline", BASELINE, "--peers", PEER.parent, *([] if PEER.exists() else ["--without-peer"]),
             *(["--older", older] if older else [])]
    # It fails when anything is worse than its own, narrower bounds: the table says what.
    told = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    before, now = json.loads(BASELINE.read_text()), told.stdout
    for name, text in KINDS.items():
        count = figure(rf"^{name}: (\d+) instructions per record", now)
        beside(report, f"instructions per record, {text}", before["instructions"][name]["per_record"], count, 0)
    if older:
        before["cpu_s_per_gb"] = figure(r"^the older build: ([\d.]+) CPU-seconds per GB", now)
        before["times_kafka"] = [figure(r"^the older build: ([\d.]+) to [\d.]+ times Kafka", now)] if PEER.exists() else None
    beside(report, "broker CPU-seconds per GB" + (", the baseline an older build in turns" if older else ""),
           before["cpu_s_per_gb"], figure(r"^([\d.]+) CPU-seconds per GB", now), 3)
    if PEER.exists():
        high, least = figure(r"^[\d.]+ to ([\d.]+) times Kafka", now), before["times_kafka"][0]
        report.judge("throughput at best, times Kafka's", high, f"reaches the baseline's {least:.2f}", high >= least)
    report.note(baseline_commit=commit_of(BASELINE), gate_passed=told.returncode == 0, told=now.splitlines())


def guarded(report):
    """`mainstem-bench gate --guarded`: the same loads on a broker that has neither access control entries nor quotas, and on one whose client may do
    what it does by entries (500 more are about others) and has quotas that it never reaches. Both in turns: instructions, counted under
    callgrind, are the median of three, processor time is the best of five. Needs valgrind and `make bench-build`."""
    told = subprocess.run([BENCH, "gate", "--guarded"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for line in told.stdout.splitlines():
        what, without, with_both = re.fullmatch(r"(.*): ([\d.]+) without, ([\d.]+) with entries and quotas .*", line).groups()
        report.judge(f"{what}, with / without", round(float(with_both) / float(without), 3), "<= 1.05", float(with_both) <= 1.05 * float(without))
    report.note(told=told.stdout.splitlines(), passed=told.returncode == 0)


def figure(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise ValueError(f"the gate does not say {pattern}")
    return float(found[1])


def beside(report, what, before, now, digits):
    change = (now / before - 1) * 100
    value = f"{now:.{digits}f}, baseline {before:.{digits}f} ({change:+.1f} %)"
    report.judge(what, value, f"<= {WORSE_MAX - 1:+.0%}", now <= before * WORSE_MAX)


def commit_of(path):
    return subprocess.run(["git", "log", "-1", "--format=%h, %as", "--", path], capture_output=True, text=True, cwd=ROOT).stdout.strip()
