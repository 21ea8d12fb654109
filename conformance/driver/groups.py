"""Runs the programs in `groups/`. Used by the driver."""

from driver.install import HERE, PYTHON
from driver.results import call


def run(results, binary, seconds, missing):
    def step(name, program, *arguments):
        command = [str(PYTHON), str(HERE / "groups" / program), str(binary), *arguments, *sorted(missing)]
        results.step(name, lambda: call(command, 600 + seconds))
    step("a consumer group whose members and broker are killed", "survive.py", str(seconds))
    if "java" in missing:
        results.note("a streams group joins, leaves and is shown by its tool", "Java is missing")
    else:
        step("a streams group joins, leaves and is shown by its tool", "streams.py")
    step("a group changes from the classic protocol to the new one and back", "migrate.py")
