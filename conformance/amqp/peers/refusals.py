"""How many of the recorded cases are bad sequences, and of which kinds: those in which RabbitMQ closes a channel or the connection. There
have to be enough of each kind."""

import re

LEAST = 300
CLOSE = re.compile(r"(connection|channel)\.close (\d+) ")
# Kinds, what belongs to each (a reply code, or `closed` for a connection that ends without a word), and how many cases at least.
KINDS = {
    "closed without a word": ({"closed"}, 15),
    "frames that cannot be (501)": ({"501"}, 35),
    "commands that cannot be, or are not there (503, 540)": ({"503", "540"}, 15),
    "channels that are not open, or open already (504)": ({"504"}, 10),
    "frames out of order (505)": ({"505"}, 20),
    "what is not allowed (530)": ({"530"}, 5),
    "what defeats RabbitMQ itself (541)": ({"541"}, 20),
    "access that is refused (403)": ({"403"}, 20),
    "what is not there (404)": ({"404"}, 25),
    "queues that are another's (405)": ({"405"}, 5),
    "preconditions that do not hold (406)": ({"406"}, 100),
}


def refused(steps):
    """How a case was refused."""
    found = set()
    for step in steps:
        for answer in step.get("answers", ()):
            close = CLOSE.match(answer)
            if close:
                found.add(close[2])
        if step.get("answers", [""])[:1] == ["closed"]:
            found.add("closed")
    return found


def count(recorded):
    """Whether there are enough, and a line a kind."""
    by_case = [refused(steps) for steps in recorded.values()]
    bad = sum(map(bool, by_case))
    good, lines = bad >= LEAST, []
    for name, (wanted, least) in KINDS.items():
        number = sum(bool(found & wanted) for found in by_case)
        good = good and number >= least
        lines.append(f"      {name}: {number} cases" + ("" if number >= least else f", at least {least} are needed"))
    return good, [f"{'ok  ' if good else 'FAIL'}  {bad} of {len(recorded)} cases are bad sequences", *lines]
