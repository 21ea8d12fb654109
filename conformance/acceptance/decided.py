"""Who may do what, by every operation of every protocol."""

import sys
from pathlib import Path

from machine import ROOT

sys.path.append(str(Path(__file__).resolve().parents[1] / "decisions"))

CASES = 100_000


def decisions(report):
    """Each API of Kafka, AMQP method and route of `/v1` and `/api` (which the console uses, by sessions) is asked by somebody who has exactly what the table in
    `docs/operations/decisions.md` says, and for each part of it by somebody who lacks it. Then random users, tags, permissions, access control entries, virtual hosts and
    operations: each answer is held against a model of the rules of Kafka and RabbitMQ, and the same operation by several protocols against each other; and decisions that were
    recorded of Kafka 4.3.1 and RabbitMQ 4.3.6 (`conformance/decisions`)."""
    import tables
    from decisions import Nodes
    from randomised import Cases
    from recordings import Comparison
    from rows import Rows
    nodes = Nodes(ROOT / "target/release/mainstem")
    try:
        problems = tables.missing(nodes("entries").http.json("GET", "/v1/openapi.json"))
        report.judge("operations without a row", len(problems), "none", not problems)
        for name in ("entries", "no entries"):
            rows = Rows(nodes(name), lambda line: report.note(row=line)).all(tables.ROWS)
            report.judge(f"answers to rows that are not as they are due, {name}", len(rows.failures), "none", not rows.failures)
            report.judge(f"answers to rows as they are due, {name}", rows.passed, "reported", None)
        compared = Comparison(lambda line: report.note(recorded=line)).all(nodes)
        report.judge("differences to decisions of Kafka 4.3.1 and RabbitMQ 4.3.6", compared.failures, f"none of {compared.same}, beside those that are meant", not compared.failures)
        count = report.amount(CASES)
        cases = Cases(nodes, 24)
        difference = cases.run(count)
        if difference:
            report.note(difference=str(difference))
        report.judge(f"differences in {cases.asked:,} random cases", bool(difference), "none", not difference and cases.asked >= count)
        report.judge("operations that several protocols were asked for, and decided alike", cases.compared, "reported", None)
        report.table("Random cases", ("protocol", "allowed", "refused"), [(protocol, *counts) for protocol, counts in cases.counts.items()])
    finally:
        nodes.end()
