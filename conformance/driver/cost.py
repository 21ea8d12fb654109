"""What requests of many entries cost the broker, and whether that is judged rightly. Used by the driver."""

from driver.install import HERE, PYTHON
from driver.lives import lines
from driver.results import call

COST = HERE / "cost"


def run(results, binary):
    """Each row that costs too much is a failure of its own."""
    results.step("a quadratic loop, a kept buffer and what has no row are found", lambda: call([str(PYTHON), str(COST / "test_judge.py")], cwd=COST))
    lines(results, [str(PYTHON), str(COST / "cost.py"), str(binary)], "requests of many entries cost what they weigh")
