"""How many of the recorded cases are bad requests, and of which kinds: those whose answer in Kafka carries an error, or that end the
connection. There have to be enough of each kind."""

LEAST = 150
# Kinds, the error codes that belong to each, and how many cases at least have one of them.
KINDS = {
    "broken frames and bodies": ({"closed", 35}, 25),
    "wrong epochs": ({47, 74, 75, 90}, 15),
    "members that are fenced, unknown or of another generation": ({22, 25, 27, 79, 82}, 25),
    "sequences out of order": ({45, 46, 59}, 8),
    "transactions in another state": ({48, 49, 50, 51, 53, 105, 120}, 20),
    "ids, topics and partitions that nobody knows": ({3, 17, 69, 70, 100, 105, 106, 117}, 60),
    "settings that cannot be": ({37, 38, 39, 40, 44}, 30),
    "batches that cannot be": ({2, 10, 21, 32, 76, 87}, 25),
    "features that cannot be": ({95}, 6),
}


def codes(value, name=""):
    """Error codes anywhere in an answer."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from codes(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from codes(one, name)
    elif name.endswith("error_code") and isinstance(value, int) and value != 0:
        yield value


def refused(steps):
    """How a case was refused: codes, and `closed`."""
    found = set()
    for step in steps:
        found.update(codes(step.get("answer")))
        if step.get("connection") == "closed":
            found.add("closed")
    return found


def count(recorded):
    """Whether there are enough, and a line a kind."""
    by_case = {name: refused(steps) for name, steps in recorded.items()}
    bad = sum(bool(found) for found in by_case.values())
    steps = sum(bool(refused([step])) for of_case in recorded.values() for step in of_case)
    kinds = len(set().union(*by_case.values()))
    good, lines = bad >= LEAST, []
    for name, (wanted, least) in KINDS.items():
        number = sum(bool(found & wanted) for found in by_case.values())
        good = good and number >= least
        lines.append(f"      {name}: {number} cases" + ("" if number >= least else f", at least {least} are needed"))
    return good, [f"{'ok  ' if good else 'FAIL'}  {bad} of {len(recorded)} cases are bad requests, {steps} requests, refused in {kinds} ways", *lines]
