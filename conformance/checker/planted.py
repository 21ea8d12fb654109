"""Plants one anomaly after the other in a history that has none, and asks for each whether the analysis finds it: a checker that finds nothing
in a run has to be one that would have found something. Arguments: the history, the time-out of transactions in seconds."""

import collections
import copy
import json
import random
import sys

sys.dont_write_bytecode = True
from analysis import analyse


class Planter:
    """One way a history could have gone wrong a method; each says which kind is to be found."""

    def __init__(self, events):
        self.events = copy.deepcopy(events)
        self.polls = [event for event in self.events if event["e"] == "poll"]
        self.outcomes = {event["x"]: event["e"] for event in self.events if event["e"] in ("committed", "aborted")}
        self.of = {event["v"]: event.get("x") for event in self.events if event["e"] == "send"}
        self.acks = [event for event in self.events if event["e"] == "ack"]

    def drop(self, gone):
        """Nobody is given such records."""
        for poll in self.polls:
            poll["r"] = [record for record in poll["r"] if not gone(record)]

    def read(self):
        poll = random.choice([poll for poll in self.polls if poll["r"]])
        return poll, random.choice(poll["r"])

    def read_where(self, wanted):
        return random.choice([(poll, record) for poll in self.polls for record in poll["r"] if wanted(record)])

    def acknowledged_write_is_lost(self):
        victim = random.choice([ack["v"] for ack in self.acks if self.of[ack["v"]] is None])
        self.drop(lambda record: record[2] == victim)
        return "lost write"

    def end_of_a_key_is_lost(self):
        key = random.choice(self.acks)["k"]
        last = max(ack["o"] for ack in self.acks if ack["k"] == key and self.of[ack["v"]] is None)
        self.drop(lambda record: record[0] == key and record[1] >= last)
        self.events[:] = [event for event in self.events if not (event["e"] == "passed" and event["k"] == key and event["o"] > last)]
        return "unseen write"

    def one_reader_misses_a_record(self):
        # What nobody else was given would be lost.
        times = collections.Counter(tuple(record) for poll in self.polls for record in poll["r"])
        poll, record = self.read_where(lambda record: self.of[record[2]] is None and times[tuple(record)] > 1)
        poll["r"].remove(record)
        # It may have been the last of a session, after which nothing was passed.
        self.events.append({"t": poll["t"] + 1, "p": poll["p"], "e": "passed", "k": record[0], "o": record[1] + 1})
        return "skipped record"

    def half_a_transaction_is_lost(self):
        names = {}
        for value, name in self.of.items():
            if self.outcomes.get(name) == "committed":
                names.setdefault(name, []).append(value)
        victim = random.choice(random.choice([values for values in names.values() if len(values) > 1]))
        self.drop(lambda record: record[2] == victim)
        return "torn transaction"

    def record_comes_twice(self):
        poll, record = self.read()
        poll["r"].insert(poll["r"].index(record), list(record))
        return "duplicate"

    def value_is_written_twice(self):
        poll, record = self.read()
        poll["r"][poll["r"].index(record)] = [record[0], record[1] + 1_000_000, record[2]]
        return "duplicate"

    def two_values_at_one_offset(self):
        _, record = self.read()
        other = next(one["v"] for one in self.acks if one["v"] != record[2])
        self.events.append({"t": self.polls[-1]["t"] + 1, "p": "planted", "e": "assign", "k": record[0], "o": record[1]})
        self.events.append({"t": self.polls[-1]["t"] + 2, "p": "planted", "e": "poll", "r": [[record[0], record[1], other]]})
        return "inconsistent offset"

    def poll_goes_back(self):
        poll = random.choice([poll for poll in self.polls if len(poll["r"]) > 3 and len({record[0] for record in poll["r"]}) == 1]
                             or [max(self.polls, key=lambda poll: len(poll["r"]))])
        key = poll["r"][0][0]
        of_key = [record for record in poll["r"] if record[0] == key]
        poll["r"] = of_key[1:] + of_key[:1]
        return "backward poll"

    def sends_change_places(self):
        by_writer = {}
        for ack in self.acks:
            by_writer.setdefault((ack["p"], ack["k"]), []).append(ack)
        one, other = random.choice([acks for acks in by_writer.values() if len(acks) > 1])[:2]
        swap = {one["v"]: other["o"], other["v"]: one["o"]}
        for ack in (one, other):
            ack["o"] = swap[ack["v"]]
        self.drop(lambda record: record[2] in swap)
        return "backward send"

    def aborted_value_is_read(self):
        return self.value_is_read("aborted", "aborted read")

    def open_value_is_read(self):
        """A reader was early: at the time of the send."""
        send = random.choice([event for event in self.events if event["e"] == "send" and self.outcomes.get(event.get("x")) == "committed"])
        ack = next(ack for ack in self.acks if ack["v"] == send["v"])
        self.events.append({"t": send["t"] + 1, "p": "planted", "e": "assign", "k": ack["k"], "o": ack["o"]})
        self.events.append({"t": send["t"] + 2, "p": "planted", "e": "poll", "r": [[ack["k"], ack["o"], ack["v"]]]})
        return "precommitted read"

    def value_is_read(self, outcome, kind):
        ack = random.choice([ack for ack in self.acks if self.outcomes.get(self.of[ack["v"]]) == outcome])
        last = max(event["t"] for event in self.events)
        self.events.append({"t": last + 1, "p": "planted", "e": "assign", "k": ack["k"], "o": ack["o"]})
        self.events.append({"t": last + 2, "p": "planted", "e": "poll", "r": [[ack["k"], ack["o"], ack["v"]]]})
        return kind

    def commit_is_forgotten(self):
        """A group went on, in the end, where it had been in the beginning."""
        done = random.choice([event for event in self.events if event["e"] == "committed-to" and any(
            ack["k"] == event["k"] and ack["o"] < event["o"] for ack in self.acks)])
        _, first = min((record[1], record) for poll in self.polls for record in poll["r"] if record[0] == done["k"])
        last = max(event["t"] for event in self.events)
        self.events.append({"t": last + 1, "p": "planted", "e": "assign", "k": done["k"], "g": done["g"]})
        self.events.append({"t": last + 2, "p": "planted", "e": "poll", "r": [first]})
        return "commit lost"

    def stable_offset_stands(self):
        ends = [event for event in self.events if event["e"] == "ends" and event["s"] > 0]
        first = random.choice(ends[:len(ends) // 4])
        for event in ends:
            if event["k"] == first["k"] and event["t"] > first["t"]:
                event["s"], event["h"] = first["s"], max(event["h"], first["s"] + 1)
        return "stuck"

    def watermark_falls(self):
        ends = [event for event in self.events if event["e"] == "ends"]
        random.choice(ends[:len(ends) // 2])["h"] += 1_000_000
        return "backward end"

    def value_comes_from_nowhere(self):
        poll, record = self.read()
        poll["r"].append([record[0], record[1] + 1_000_000, -7])
        return "phantom"


def main(path, timeout):
    with open(path) as lines:
        events = list(map(json.loads, lines))
    methods = [name for name, member in vars(Planter).items() if callable(member) and name not in
               ("__init__", "drop", "read", "read_where", "value_is_read")]
    for name in methods:
        planter = Planter(events)
        kind = getattr(planter, name)()
        found = analyse(planter.events, timeout)
        assert kind in found, f"{name.replace('_', ' ')}: no {kind} was found, only {sorted(found)}"
    print(f"{len(methods)} planted anomalies were found")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
