"""Who may do what, by every operation of every protocol. Used by the driver."""

from driver.install import HERE, PYTHON
from driver.lives import lines
from driver.results import call


def run(results, binary, cases):
    """The tables, each row, what was recorded, and random cases; each that differs is a failure of its own."""
    results.step("planted mistakes in who may do what are found", lambda: call([str(PYTHON), str(HERE / "decisions/test_model.py")], cwd=HERE / "decisions"))
    lines(results, [str(PYTHON), str(HERE / "decisions/decisions.py"), str(binary), "--cases", str(cases)], f"every operation asks for what the table says, and {cases:,} random cases are decided so")
