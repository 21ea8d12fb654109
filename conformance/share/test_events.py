"""What members of a share group say, made by hand: what can be, and one history for each thing that cannot be."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import events

LOCK_MS, LIMIT = 2000, 5
SECOND = 1_000_000


class Story:
    """Lines of members, with times in seconds."""

    def __init__(self):
        self.lines = []

    def got(self, member, offset, count, at, began=None):
        began = at - 0.001 if began is None else began
        self.lines.append(f"{member} got 0 {offset} {count} {round(began * SECOND)} {round(at * SECOND)} key 1")
        return self

    def said(self, member, offset, kind, at, done=None, failed=None):
        self.lines.append(f"{member} says 0 {offset} {kind} {round(at * SECOND)}")
        if done is not None:
            self.lines.append(f"{member} done 0 {offset} {kind} {round(done * SECOND)}")
        if failed is not None:
            self.lines.append(f"{member} failed 0 {offset} {kind} {round(failed * SECOND)} INVALID_RECORD_STATE")
        return self

    def records(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "members.out"
            path.write_text("".join(f"{line}\n" for line in self.lines))
            return events.read([path])

    def complaints(self, *kills):
        return list(events.check(self.records(), LOCK_MS, LIMIT, [round(at * SECOND) for at in kills]))


class Events(unittest.TestCase):
    def found(self, story, words, *kills):
        complaints = story.complaints(*kills)
        self.assertEqual(len(complaints), 1, complaints)
        self.assertIn(words, complaints[0])

    def fine(self, story, *kills):
        self.assertEqual(story.complaints(*kills), [])

    def test_in_order(self):
        self.fine(Story().got("a", 1, 1, 10).said("a", 1, "RELEASE", 10.1, 10.2).got("b", 1, 2, 10.4).said("b", 1, "ACCEPT", 10.5, 10.6))

    def test_done_with_twice(self):
        story = Story().got("a", 1, 1, 10).got("b", 1, 1, 10.1).said("a", 1, "ACCEPT", 10.01, 10.02).said("b", 1, "ACCEPT", 10.2, 10.3)
        self.assertTrue(any("done with 2 times" in one for one in story.complaints()), story.complaints())

    def test_delivered_after_it_was_done_with(self):
        self.found(Story().got("a", 1, 1, 10).said("a", 1, "ACCEPT", 10.1, 10.2).got("b", 1, 2, 10.5), "delivered after")

    def test_delivered_to_the_same_member_after_it_was_done_with(self):
        story = Story().got("a", 0, 1, 9.5).got("a", 1, 1, 10).said("a", 1, "ACCEPT", 10.1, 10.2).got("a", 1, 2, 10.5)
        self.found(story, "delivered after")

    def test_given_twice_to_a_client_that_slept(self):
        """The record was fetched while the member slept from 5 to 8, and once more when its lock had run out."""
        slept = Story().got("a", 0, 1, 5).got("a", 1, 1, 8).said("a", 1, "ACCEPT", 8.01, 8.03).got("a", 1, 2, 8.04)
        self.fine(slept)
        rest = Story().got("a", 0, 1, 5).got("a", 2, 1, 8).got("a", 1, 1, 8.1).said("a", 1, "ACCEPT", 8.11, 8.13).got("a", 1, 2, 8.2)
        self.fine(rest)

    def test_who_slept_excuses_no_other_member(self):
        story = Story().got("a", 0, 1, 5).got("a", 1, 1, 8).said("a", 1, "ACCEPT", 8.01, 8.03).got("b", 1, 2, 8.04)
        self.found(story, "delivered after")
        story = Story().got("a", 0, 1, 5).got("a", 1, 1, 8).said("a", 1, "ACCEPT", 8.01, 8.03).got("a", 1, 3, 8.04)
        self.found(story, "delivered after")

    def test_a_kill_gives_a_record_again(self):
        story = Story().got("a", 1, 1, 10).said("a", 1, "ACCEPT", 10.1, 11).got("a", 1, 1, 11.2).said("a", 1, "ACCEPT", 11.3, failed=11.4)
        self.fine(story, 10.5)
        self.assertTrue(story.complaints())

    def test_taken_although_the_lock_had_run_out(self):
        self.found(Story().got("a", 1, 1, 10).said("a", 1, "ACCEPT", 13, 13.1), "lock had run out")
        last = Story().got("a", 1, 4, 10).got("b", 1, 5, 12.5).said("b", 1, "RELEASE", 12.6, 12.7).said("a", 1, "ACCEPT", 13, 13.1)
        self.fine(last)
        self.fine(Story().got("a", 1, 1, 10).said("a", 1, "RENEW", 11.5, 11.6).said("a", 1, "ACCEPT", 13, 13.1))

    def test_counts(self):
        self.found(Story().got("a", 1, 3, 10).got("b", 1, 2, 15).said("b", 1, "ACCEPT", 15.1, 15.2), "the delivery count falls")
        # Nothing is said by that of a record that others have done with, and may be taken for it.
        ended = Story().got("a", 1, 2, 10).said("a", 1, "ACCEPT", 10.1, 10.2).got("b", 1, 1, 15).said("b", 1, "ACCEPT", 15.1, 15.2)
        self.fine(ended)
        self.found(Story().got("a", 1, 6, 10), "beyond the limit")
        self.found(Story().got("a", 1, 1, 10).got("b", 1, 1, 13), "the same delivery twice")

    def test_a_kill_while_a_member_slept(self):
        """What "a" gets at 8 may have been fetched from 5 on."""
        story = Story().got("a", 0, 1, 5).got("a", 2, 1, 8).got("a", 1, 1, 8.1).got("b", 1, 1, 11)
        self.fine(story, 5.5)
        self.found(story, "the same delivery twice", 4.3)

    def test_accepted_when_it_had_died(self):
        """What "a" gets at 8 may have been fetched from 5 on, and have died at 7."""
        slept = Story().got("a", 0, 1, 5).got("a", 1, 5, 8).said("a", 1, "ACCEPT", 8.1, 8.2)
        self.assertTrue(events.may_be_too_late(slept.records()[0, 1], LOCK_MS * 1000))
        awake = slept.got("b", 0, 1, 5).got("b", 2, 1, 7).got("b", 3, 1, 7.5).got("b", 4, 1, 7.9).got("b", 1, 5, 8).said("b", 1, "ACCEPT", 8.3, 8.4)
        self.assertFalse(events.may_be_too_late(awake.records()[0, 1], LOCK_MS * 1000))

    def test_accepted_when_a_kill_had_left_its_copy(self):
        story = Story().got("a", 1, 1, 5).said("a", 1, "REJECT", 5.1, failed=5.3).got("b", 1, 1, 6).said("b", 1, "ACCEPT", 6.1, 6.2)
        record = story.records()[0, 1]
        self.assertTrue(events.may_have_been_copied(record, [round(5.2 * SECOND)], LOCK_MS * 1000))
        for other in (4, 6.15):
            self.assertFalse(events.may_have_been_copied(record, [round(other * SECOND)], LOCK_MS * 1000))


if __name__ == "__main__":
    unittest.main()
