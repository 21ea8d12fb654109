#!/usr/bin/env python3
"""Who may do what, by every operation of every protocol. `decisions.py BINARY` holds the tables against the lists of operations and the page, asks for each row, compares
with the decisions recorded from Kafka and RabbitMQ, and asks random cases. `--cases N`: so many random ones, from `--seed`; `--block` begins with another block; `--only TEXT`: rows that
contain it, and no random cases. `--page` writes docs/operations/decisions.md. Last line: `N passed, N failed`."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
sys.dont_write_bytecode = True
import tables
from randomised import NODES, Cases
from node import Node
from recordings import RECORDED, Comparison
from rows import Rows

CASES = 3_000


class Nodes:
    """One node for each of the settings, started when it is needed."""

    def __init__(self, binary):
        self.binary, self.started = binary, {}

    def __call__(self, name):
        if name not in self.started:
            self.started[name] = Node(self.binary, NODES[name]).start()
        return self.started[name]

    def end(self):
        for node in self.started.values():
            node.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--block", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--part", choices=["rows", "recorded", "cases"])
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--figures", type=Path, help="a file for what came of it, as JSON")
    chosen = parser.parse_args()
    if chosen.page:
        tables.PAGE.write_text(tables.page())
        return 0
    passed, failed, figures = 0, 0, {"rows": {}}
    nodes = Nodes(os.path.abspath(chosen.binary))
    try:
        node = nodes("entries")
        problems = [*tables.missing(node.http.json("GET", "/v1/openapi.json")), *filter(None, [tables.page_is_old()])]
        for one in problems:
            print(f"FAIL  {one}")
        passed, failed = passed + (not problems), failed + len(problems)
        figures["problems"] = problems
        if chosen.part in (None, "rows"):
            for name in ("entries", "no entries"):
                began = time.time()
                rows = Rows(nodes(name)).all([row for row in tables.ROWS if (chosen.only or "") in row.title])
                print(f"{'FAIL' if rows.failures else 'ok  '}  rows, {name}: {rows.passed} answers as they are due, {len(rows.failures)} not ({time.time() - began:.0f} s)", flush=True)
                passed, failed = passed + (not rows.failures), failed + len(rows.failures)
                figures["rows"][name] = {"passed": rows.passed, "failures": rows.failures}
        if chosen.part in (None, "recorded") and not chosen.only and all(path.exists() for path in RECORDED.values()):
            began, compared = time.time(), Comparison().all(nodes)
            print(f"{'FAIL' if compared.failures else 'ok  '}  {compared.same} decisions of Kafka and RabbitMQ are those of this broker and of the model, {compared.failures} are not ({time.time() - began:.0f} s)",
                  flush=True)
            passed, failed = passed + (not compared.failures), failed + compared.failures
            figures["recorded"] = {"same": compared.same, "failures": compared.failures}
        if chosen.part in (None, "cases") and not chosen.only:
            began, cases = time.time(), Cases(nodes, chosen.seed)
            difference = cases.run(chosen.cases, chosen.block)
            if difference:
                print(f"FAIL  {difference}")
            counts = ", ".join(f"{protocol} {allowed} allowed and {denied} refused" for protocol, (allowed, denied) in cases.counts.items())
            print(f"{'FAIL' if difference else 'ok  '}  {cases.asked} random cases: {counts}; {cases.compared} by several protocols ({time.time() - began:.0f} s)", flush=True)
            passed, failed = passed + (not difference), failed + bool(difference)
            figures["cases"] = {"asked": cases.asked, "difference": difference and str(difference), "counts": cases.counts, "compared": cases.compared}
    finally:
        nodes.end()
    if chosen.figures:
        chosen.figures.write_text(json.dumps(figures))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
