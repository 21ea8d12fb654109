"""The analysis against histories made by hand: one that is in order, and one for each kind of anomaly."""

import copy
import sys
import unittest

sys.dont_write_bytecode = True
from analysis import KINDS, analyse

TIMEOUT = 5.0


class History:
    """Events a second apart, by whoever is named."""

    def __init__(self):
        self.events, self.second = [], 0

    def note(self, process, event, **more):
        self.second += 1
        self.events.append({"t": self.second * 1_000_000_000, "p": process, "e": event, **more})
        return self

    def written(self, process, value, offset, key="t/0", **transaction):
        self.note(process, "send", k=key, v=value, **transaction)
        return self if offset is None else self.note(process, "ack", k=key, v=value, o=offset)

    def ended(self, process, name, how="commit", outcome=True):
        self.note(process, how, x=name)
        return self.note(process, {"commit": "committed", "abort": "aborted"}[how], x=name) if outcome else self

    def read(self, process, *records, key="t/0", begin=0, **more):
        self.note(process, "assign", k=key, **({"o": begin} if begin is not None else {}), **more)
        return self.polled(process, *records, key=key)

    def polled(self, process, *records, key="t/0"):
        return self.note(process, "poll", r=[[key, *record] for record in records])

    def found(self):
        return analyse(copy.deepcopy(self.events), TIMEOUT)


def peaceful():
    """Plain writes, a transaction over two keys with a marker behind it, an aborted one, two readers and a group."""
    history = History().written("w", 1, 0).written("w", 2, 1)
    history.written("x", 10, 2, x="x:1").written("x", 11, 0, key="t/1", x="x:1").ended("x", "x:1")
    history.written("x", 12, 4, x="x:2").ended("x", "x:2", "abort")
    history.written("w", 3, 6)
    history.read("r", (0, 1), (1, 2), (2, 10), (6, 3)).read("r", (0, 11), key="t/1")
    history.read("g1", (0, 1), (1, 2), begin=None, g="g").note("g1", "commits", k="t/0", g="g", o=2).note("g1", "committed-to", k="t/0", g="g", o=2)
    return history.read("g2", (2, 10), (6, 3), begin=None, g="g").note("r", "passed", k="t/0", o=7)


class Planted(unittest.TestCase):
    tried = set()

    def finds(self, history, *kinds):
        found = history.found()
        self.assertEqual(set(found), set(kinds), found)
        Planted.tried |= set(kinds)

    def test_peace(self):
        self.finds(peaceful())
        self.finds(History())

    def test_what_is_not_known_may_be_there_or_not(self):
        history = History().written("w", 1, None).written("w", 2, None).note("w", "nak", k="t/0", v=2)
        history.written("x", 3, None, x="x:1").ended("x", "x:1", outcome=False)
        self.finds(history)
        self.finds(history.read("r", (0, 1), (5, 3)))

    def test_inconsistent_offset(self):
        self.finds(peaceful().written("v", 9, None).read("s", (6, 9), begin=6), "inconsistent offset")
        self.finds(peaceful().written("w", 9, 6), "inconsistent offset", "lost write")

    def test_duplicate(self):
        self.finds(peaceful().read("s", (7, 3), begin=7), "duplicate")
        self.finds(History().written("w", 1, 0).read("r", (0, 1), (0, 1)), "duplicate")

    def test_lost_write(self):
        self.finds(History().written("w", 1, 0).written("w", 2, 1).read("r", (1, 2)), "lost write")
        self.finds(History().written("w", 1, 0).read("r").note("r", "passed", k="t/0", o=1), "lost write")
        self.finds(History().written("x", 1, 0, x="x:1").ended("x", "x:1").read("r").note("r", "passed", k="t/0", o=2), "lost write")

    def test_unseen_write(self):
        self.finds(peaceful().written("w", 4, 7), "unseen write")
        self.finds(peaceful().written("x", 20, None, x="x:3").ended("x", "x:3"), "unseen write")

    def test_skipped_record(self):
        self.finds(peaceful().read("s", (0, 1), (2, 10)), "skipped record")
        self.finds(peaceful().read("s", begin=0).note("s", "passed", k="t/0", o=1), "skipped record")
        # The group had come to 2 only.
        self.finds(peaceful().read("g3", (6, 3), begin=None, g="g"), "skipped record")

    def test_backward_poll(self):
        self.finds(History().written("w", 1, 0).written("w", 2, 1).read("r", (1, 2), begin=1).polled("r", (0, 1)), "backward poll")

    def test_backward_send(self):
        self.finds(History().written("w", 1, 1).written("w", 2, 0).read("r", (0, 2), (1, 1)), "backward send")

    def test_aborted_read(self):
        self.finds(peaceful().read("s", (4, 12), (6, 3), begin=4), "aborted read", "skipped record")

    def test_precommitted_read(self):
        history = History().written("x", 1, 0, x="x:1").read("r", (0, 1))
        self.finds(history, "precommitted read")
        self.finds(history.ended("x", "x:1"), "precommitted read")

    def test_torn_transaction(self):
        two = lambda: History().written("x", 1, 0, x="x:1").written("x", 2, 0, key="t/1", x="x:1").ended("x", "x:1", outcome=False)
        self.finds(two().read("r", (0, 1)), "torn transaction")
        whole = two().read("r", (0, 1)).read("r", (0, 2), key="t/1")
        self.finds(whole)
        # Another reader went past the second half.
        self.finds(whole.read("s", (0, 1)).read("s", key="t/1").note("s", "passed", k="t/1", o=2), "torn transaction")

    def test_commit_lost(self):
        self.finds(peaceful().read("g3", (1, 2), (2, 10), (6, 3), begin=None, g="g"), "commit lost")

    def test_stuck(self):
        def stands(seconds, down=0):
            history = History().note("watch", "ends", k="t/0", s=1, h=1)
            for second in range(seconds):
                if down and second in (2, 2 + down):
                    history.note("killer", "down" if second == 2 else "up")
                history.note("watch", "ends", k="t/0", s=1, h=2 + second)
            return history
        self.finds(stands(12))
        self.finds(stands(20), "stuck")
        self.finds(stands(20, down=10))
        self.finds(stands(12).note("watch", "ends", k="t/0", s=9, h=15).note("watch", "ends", k="t/0", s=9, h=25))

    def test_backward_end(self):
        self.finds(History().note("watch", "ends", k="t/0", s=3, h=3).note("watch", "ends", k="t/0", s=2, h=3), "backward end")
        self.finds(History().note("watch", "ends", k="t/0", s=3, h=4).note("watch", "ends", k="t/0", s=3, h=3), "backward end")

    def test_phantom(self):
        self.finds(peaceful().read("s", (7, 99), begin=7), "phantom")

    @classmethod
    def tearDownClass(cls):
        assert cls.tried == set(KINDS), f"nothing is planted for {set(KINDS) - cls.tried}"


if __name__ == "__main__":
    unittest.main()
