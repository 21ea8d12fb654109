"""Answers recorded from a real broker, and how another broker's are compared with them. A case is a name and a list of steps; a step is
what was sent and what a client saw of the answer, without what differs from run to run. `differences.json` beside the record says, by
case, which steps are meant to differ, and why. Used by the folders called `peers`."""

import json
import sys


def write(path, cases):
    """Writes the record: sorted, a line a step. True when every case could be carried out."""
    broken = [name for name, steps in cases.items() if any("broken" in step for step in steps)]
    for name in broken:
        print(f"broken: {name}: {next(step['broken'] for step in cases[name] if 'broken' in step)}", file=sys.stderr)
    lines = [f'"{name}": [\n  ' + ",\n  ".join(json.dumps(step) for step in cases[name]) + "\n]" for name in sorted(cases)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(cases)} cases recorded in {path.name}, {len(broken)} broken")
    return not broken


def differing(peer, expected, found):
    """The steps that differ, as text."""
    out, width = [], max(len(peer), len("here"))
    for at in range(max(len(expected), len(found))):
        one, other = (steps[at] if at < len(steps) else None for steps in (expected, found))
        if one != other:
            out.append(f"  step {at + 1}\n    {peer:{width}} {json.dumps(one)}\n    {'here':{width}} {json.dumps(other)}")
    return out


def verdict(peer, name, expected, found, meant):
    """Whether a case passes, and the lines to print. `meant`: a reason and, step by number, what is expected here instead."""
    if expected is None:
        return False, [f"FAIL  {name}: not recorded"]
    if not meant:
        lines = differing(peer, expected, found)
        return not lines, [f"{'FAIL' if lines else 'ok  '}  {name}", *lines]
    if not differing(peer, expected, found):
        return False, [f"FAIL  {name}: no longer differs, so its entry in differences.json is to go"]
    here = [meant["steps"].get(str(at + 1), step) for at, step in enumerate(expected)]
    lines = differing(peer, here, found)
    if lines:
        return False, [f"FAIL  {name}: neither {peer}'s answer nor the one that is meant", *lines]
    return True, [f"ok    {name} (differs: {meant['reason']})"]


def compare(peer, cases, recorded, meant, whole):
    """Prints a line a case; the numbers of those that pass and fail. `whole`: the record and the differences have no other cases."""
    recorded, meant = dict(recorded), dict(meant)
    passed = failed = 0
    for name, steps in cases:
        good, lines = verdict(peer, name, recorded.pop(name, None), json.loads(json.dumps(steps)), meant.pop(name, None))
        print("\n".join(lines), flush=True)
        passed, failed = passed + good, failed + (not good)
    if whole:
        for name in [*recorded, *(name for name in meant if name not in recorded)]:
            print(f"FAIL  {name}: recorded or explained, but not in the table")
            failed += 1
    return passed, failed
