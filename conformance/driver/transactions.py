"""Transactions under kill −9. Used by the driver."""

from driver.install import HERE, PYTHON
from driver.results import call

# What the last transactions need to end by themselves, and the check.
MORE_SECONDS = 240


def run(results, binary, seconds, missing, full):
    # Kafka Streams is a test with one journal.
    for journals in (1, 3) if full else (3,):
        program(results, f"records are copied once while copiers and broker are killed, journals {journals}",
                ["survive.py", binary, seconds, journals, *missing], seconds)
    if "java" in missing:
        results.note("Kafka Streams counts and joins exactly once", "Java is missing")
    else:
        for protocol in ("classic", "streams") if full else ("streams",):
            program(results, f"Kafka Streams counts and joins exactly once while it and the broker are killed, protocol {protocol}",
                    ["streams.py", binary, seconds + 5, protocol], seconds)


def program(results, name, words, seconds):
    command = [str(PYTHON), str(HERE / "transactions" / words[0]), *map(str, words[1:])]
    results.step(name, lambda: print("      " + call(command, seconds + MORE_SECONDS).decode().strip(), flush=True))
