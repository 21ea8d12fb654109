"""Transactions under kill −9. Used by the driver."""

from driver.install import HERE, PYTHON
from driver.results import call

# What the last transactions need to end by themselves, and the check.
MORE_SECONDS = 180


def run(results, binary, seconds, missing):
    for journals in 1, 3:
        def work():
            command = [str(PYTHON), str(HERE / "transactions/survive.py"), str(binary), str(seconds), str(journals), *missing]
            print("      " + call(command, seconds + MORE_SECONDS).decode().strip(), flush=True)
        results.step(f"records are copied once while copiers and broker are killed, journals {journals}", work)
