"""Runs each program in `behaviours/`. Used by the driver."""

from driver.install import HERE, PYTHON
from driver.results import call


def run(results, bootstrap, seconds, missing, only):
    for program in sorted((HERE / "behaviours").glob("*.py")):
        if "java" in missing and program.stem.startswith(("verifiable", "kafka_tools", "members_restart", "quotas")):
            results.note(program.stem.replace("_", " "), "Java's tools are missing")
        elif only in program.stem:
            results.step(program.stem.replace("_", " "), lambda: call(
                [str(PYTHON), str(program), bootstrap, str(seconds)], 180 + seconds))
