"""What is wrong with what a row of requests cost. These are counts that do not depend on how busy the machine is: processor time by how much it
grows, memory, and whether there is an answer."""

import typing

from measure import MIB

# Ten times the entries may cost thirty times as much: what grows with the square costs a hundred times as much.
GROWTH = 3.0
# Less processor time than this is no fault, however it has grown.
FLOOR = 1.0
# Memory that a request may take: so many times what was sent and answered, and what buffers and tables of any request come to.
TIMES = 4
SLACK = 48 * MIB
ADDED = 16 * MIB
# Of what was sent, at most this share may stay when the requests are answered and their connections closed.
KEPT = 0.5


class Fault(typing.NamedTuple):
    kind: str  # answer, growth, memory, budget or kept
    text: str


def faults(samples, kept=None, budget=None, floor=FLOOR):
    """What is wrong. Samples are in the order of their sizes; `kept` is the share of a request that stays."""
    found = [Fault("answer", f"{one.entries:,} entries: {one.fault}") for one in samples if one.fault]
    good = [one for one in samples if not one.fault]
    for less, more in zip(good, good[1:]):
        entries = more.entries / less.entries
        if more.cpu > floor and more.cpu > GROWTH * entries * less.cpu:
            text = f"{more.cpu / less.cpu:.0f} times the processor time for {entries:.0f} times the entries"
            found.append(Fault("growth", f"{text}: {less.cpu:.3f} s for {less.entries:,}, {more.cpu:.3f} s for {more.entries:,}"))
    for one in good:
        if one.peak > TIMES * (one.sent + one.answered) + SLACK:
            text = f"{one.peak / MIB:.0f} MiB of memory for {one.sent / MIB:.1f} MiB sent and {one.answered / MIB:.1f} MiB answered"
            found.append(Fault("memory", f"{one.entries:,} entries: {text}"))
        # Of a row that adds nothing to what is resident there is nothing to say.
        if budget and one.resident > budget + SLACK and one.peak > ADDED:
            found.append(Fault("budget", f"{one.entries:,} entries: {one.resident / MIB:.0f} MiB resident, with a budget of {budget / MIB:.0f} MiB"))
    if kept is not None and kept > KEPT:
        found.append(Fault("kept", f"{100 * kept:.0f} % of each request stays in memory"))
    return found


def could_grow(sample, times, floor=FLOOR):
    """Could a request of `times` as many entries be a fault? Not if it were none though its cost grew with the square."""
    return sample.fault is not None or 2 * sample.cpu * times ** 2 > floor
