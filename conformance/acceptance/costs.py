"""What requests of many entries cost the broker, and how long others wait for them."""

import sys
from pathlib import Path

from machine import ROOT

sys.path.append(str(Path(__file__).resolve().parents[1] / "cost"))

# Beyond what it takes to read the same bytes and to forget them.
NANOSECONDS_A_BYTE = 20
LONGEST_WAIT = 0.05
# Of processor time; less cannot be told from what the broker does beside.
LEAST = 0.005


def cost(report):
    """Requests of 1,000, 10,000 and 100,000 entries, the same, distinct and as long as they may be, for every API of Kafka, every AMQP method and every
    route of HTTP (`conformance/cost`). Processor time is the broker's; those who wait are connections on the same thread and on
    another one, a member of another group, a client of another queue and one of HTTP. Exceptions and their reasons: `conformance/cost/exceptions.py`."""
    from cost import Survey, excused, table
    survey = Survey(ROOT / "target/release/mainstem", True, say=lambda line: report.note(row=line)).all()
    echo = survey.echo()
    kinds = {"growth": "rows that grow faster than their entries", "memory": "rows that take more than four times their bytes", "budget": "rows beyond the budget of memory",
             "kept": "rows of which something stays", "answer": "rows without an answer"}
    for kind, what in kinds.items():
        bad = [one.name for one in survey.outcomes for fault in one.faults if fault.kind == kind and not excused(one.name, fault)]
        report.judge(what, len(bad), "none", not bad)
    report.judge("APIs, methods and routes without a row", len(survey.missing), "none", not survey.missing)
    measured = [one for one in survey.outcomes if one.samples and not one.samples[-1].fault and one.samples[-1].cpu > LEAST]
    dear = [one for one in measured if 1e9 * one.samples[-1].cpu / max(1, one.samples[-1].sent + one.samples[-1].answered) - echo > NANOSECONDS_A_BYTE]
    report.judge(f"rows above {NANOSECONDS_A_BYTE} ns a byte beyond an echo, which takes {echo:.1f}", len(dear), "reported", None)
    waits = [(sample.waits, one.name, sample.entries) for one in survey.outcomes for sample in one.samples]
    for who in ("same thread", "another thread", "group", "queue", "http"):
        longest = max((waited.get(who, 0.0) for waited, _, _ in waits), default=0.0)
        report.judge(f"longest wait of {who}", 1000 * longest, f"{1000 * LONGEST_WAIT:.0f} ms", longest <= LONGEST_WAIT, " ms")
    longest = max((waited.get("nobody", 0.0) for waited, _, _ in waits), default=0.0)
    report.judge("longest wait of a program that asks no broker, for 2 ms", 1000 * longest, "reported", None, " ms")
    for waited, name, entries in sorted(waits, key=lambda row: -max(row[0].values(), default=0.0))[:20]:
        report.note(longest_waits=f"{name}, {entries:,} entries", **{who: round(1000 * wait) for who, wait in waited.items()})
    for line in [*table(survey.outcomes)][:200]:
        report.raw.append(line)
