"""Random lives of a node. Arguments: the binary; `--count` lives from seed `--first` on, `--parallel` at once, or one life with `--seed`, which shows
what it does. Prints a line for each that fails, and in the end `N passed, N failed`. To repeat one: `lives.py BINARY --seed N`."""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent)]
import kafka
from life import MODES, one_life

# What meets a defect that is known and not mended, and which. `--without ''` leaves nothing out.
WITHOUT = {}


def usable(binary):
    """I/O modes that work here."""
    out = []
    for mode in MODES:
        with tempfile.TemporaryDirectory(prefix="mainstem-life-") as scratch:
            from driver.broker import Broker
            broker = Broker(binary, f"{scratch}/data", ["--io", mode])
            try:
                broker.start()
                out.append(mode)
            except RuntimeError as error:
                print(f"      I/O mode {mode} does not work here: {str(error)[:200]}", flush=True)
            finally:
                broker.end(9)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--parallel", type=int, default=4 * (os.cpu_count() or 1), help="lives at once, which wait most of the time; 4 for each processor")
    parser.add_argument("--keep", help="folder for the data of those that fail")
    parser.add_argument("--without", default=",".join(WITHOUT), help="operations that are left out, with commas")
    chosen = parser.parse_args()
    binary, without = os.path.abspath(chosen.binary), [word for word in chosen.without.split(",") if word]
    with tempfile.TemporaryDirectory(prefix="mainstem-lives-") as library:
        kafka.build(library)
        modes = usable(binary)
        for word in without:
            print(f"      left out: {word}: {WITHOUT.get(word, 'as told')}", flush=True)
        if chosen.seed is not None:
            outcomes = [one_life(binary, chosen.seed, modes, library, True, chosen.keep, without)]
        else:
            outcomes = many(binary, chosen, modes, library, without)
        passed = failed = 0
        for seed, setting, failure, history, seconds in outcomes:
            if failure is None:
                passed += 1
                if chosen.seed is not None:
                    print(f"ok    life {seed}: {setting}, {history[0]} ({seconds:.1f} s)", flush=True)
            else:
                failed += 1
                print(f"FAIL  life {seed}: {setting}: {failure}", flush=True)
                print("\n".join(f"      {line}" for line in history), flush=True)
                print(f"      repeat: conformance/lives/lives.py {chosen.binary} --seed {seed}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def many(binary, chosen, modes, library, without):
    pool = multiprocessing.get_context("spawn").Pool(chosen.parallel, maxtasksperchild=50)
    with pool:
        waiting = [pool.apply_async(one_life, (binary, seed, modes, library, False, chosen.keep, without)) for seed in range(chosen.first, chosen.first + chosen.count)]
        while waiting:
            for one in [one for one in waiting if one.ready()]:
                waiting.remove(one)
                yield one.get()
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
