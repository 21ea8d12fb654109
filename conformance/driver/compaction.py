"""Compaction under kill −9, and the window of a journal. Used by the driver."""

from driver.install import HERE, PYTHON
from driver.results import call

# What the check needs, and compaction to come to rest.
MORE_SECONDS = 240


def run(results, binary, seconds):
    command = [str(PYTHON), str(HERE / "compaction/survive.py"), binary, str(seconds)]
    results.step("a compacted topic keeps the newest value of each key while the broker is killed",
                 lambda: print("      " + call(command, seconds + MORE_SECONDS).decode().strip(), flush=True))
    window = [str(PYTHON), str(HERE / "compaction/window.py"), binary]
    results.step("a journal stays within its window while several windows are written",
                 lambda: print("      " + call(window, MORE_SECONDS).decode().strip(), flush=True))
