"""What stands on Kafka's clients and compacted topics, under kills. Used by the driver."""

from driver.install import HERE, PYTHON
from driver.results import call

PROGRAMS = {
    "connect.py": "a distributed worker of Kafka Connect copies a file to a topic and to a file while it and the broker are killed",
    "schemas.py": "registries of schemas read their compacted topic back after a kill of the broker",
}
LIMIT = 240


def run(results, binary, missing):
    for program, name in PROGRAMS.items():
        if program == "connect.py" and "java" in missing:
            results.note(name, "Java is missing")
        else:
            results.step(name, lambda: print("      " + call(
                [str(PYTHON), str(HERE / "applications" / program), binary], LIMIT).decode().strip(), flush=True))
