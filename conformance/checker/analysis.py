"""What is wrong with a history (`history.py`): a list of anomalies, each a kind of `KINDS` and a sentence.

The order of a key's records is what readers and acknowledgements say of it: which value is at which offset. A reader's session
with a key goes from where it was assigned to where it ended; every record that is visible and lies between its first and its last
offset has to be among what it was given."""

import bisect
import collections

KINDS = {
    "inconsistent offset": "one offset of a key held two values",
    "duplicate": "a value was at two places, or was given twice to one session",
    "lost write": "a value was acknowledged, or its transaction committed, and readers went past its place without it",
    "unseen write": "such a value was given to nobody, although the history ended in peace",
    "skipped record": "a session went past a record that other readers were given",
    "backward poll": "a session was given an offset that is not above the one before",
    "backward send": "what a client sent later to a key is at a lower offset",
    "aborted read": "a value of a transaction that was aborted was read (Adya's G1a)",
    "precommitted read": "a value was read before the end of its transaction was asked for",
    "torn transaction": "of a transaction some values were read, and others were passed over or never came",
    "commit lost": "a member of a group began before an offset whose commit was acknowledged",
    "stuck": "the last stable offset stood still for longer than a transaction may take",
    "backward end": "a last stable offset or high watermark fell",
    "phantom": "a value was read that nobody wrote",
}
# What is told of each kind.
EXAMPLES = 3
# A transaction's time-out, and the broker's time for it, is looked at this much later.
SLACK = 8.0


class Write:
    """A value and what became of it."""

    __slots__ = ("key", "value", "process", "transaction", "acknowledged", "offsets")

    def __init__(self, event):
        self.key, self.value, self.process, self.transaction = event["k"], event["v"], event["p"], event.get("x")
        self.acknowledged, self.offsets = False, set()


class Transaction:
    """The values of one transaction, and how it ended as far as its client knew."""

    __slots__ = ("writes", "asked", "outcome")

    def __init__(self):
        self.writes, self.asked, self.outcome = [], None, None


class Session:
    """What a reader was given of one key from an assignment on."""

    __slots__ = ("process", "key", "group", "first", "offsets", "passed", "began", "last", "came")

    def __init__(self, event):
        self.process, self.key, self.group, self.began = event["p"], event["k"], event.get("g"), event["t"]
        self.first, self.offsets, self.passed, self.last, self.came = event.get("o"), [], 0, -1, None

    def span(self):
        """The offsets that it went over, half-open."""
        begin = self.first if self.first is not None else self.offsets[0] if self.offsets else 0
        end = max(self.last + 1, self.passed if self.first is not None or self.offsets else 0)
        return begin, end


class Analysis:
    """Takes a history in, then looks at it from every side."""

    def __init__(self, events, timeout=None):
        self.timeout = timeout
        self.anomalies = collections.defaultdict(list)
        self.writes, self.transactions = {}, collections.defaultdict(Transaction)
        self.seen = {}  # value: when it was first polled
        self.places = collections.defaultdict(dict)  # key: offset: value
        self.visible = collections.defaultdict(set)  # key: offsets that were polled
        self.sessions = []
        self.commits = collections.defaultdict(list)  # group and key: times and offsets of acknowledged commits
        self.asked = collections.defaultdict(list)  # group and key: times and offsets of all commits
        self.ends, self.downs = collections.defaultdict(list), []
        open_sessions = {}
        for event in sorted(events, key=lambda event: event["t"]):
            self.take(event, open_sessions)

    def found(self, kind, text):
        self.anomalies[kind].append(text)

    # Taking in.

    def take(self, event, open_sessions):
        kind, process = event["e"], event["p"]
        if kind == "send":
            write = self.writes[event["v"]] = Write(event)
            if write.transaction:
                self.transactions[write.transaction].writes.append(write)
        elif kind == "ack":
            self.writes[event["v"]].acknowledged = True
            self.place(event["k"], event["o"], event["v"], f"{process} was told of")
        elif kind in ("commit", "abort"):
            transaction = self.transactions[event["x"]]
            if kind == "commit":
                transaction.asked = event["t"]
        elif kind in ("committed", "aborted"):
            self.transactions[event["x"]].outcome = kind
        elif kind == "assign":
            session = open_sessions[process, event["k"]] = Session(event)
            self.sessions.append(session)
        elif kind == "poll":
            for key, offset, value in event["r"]:
                self.read(open_sessions[process, key], event["t"], offset, value)
        elif kind == "passed":
            session = open_sessions.get((process, event["k"]))
            if session:
                session.passed = max(session.passed, event["o"])
        elif kind in ("commits", "committed-to"):
            whose = self.asked if kind == "commits" else self.commits
            whose[event["g"], event["k"]].append((event["t"], event["o"]))
        elif kind == "ends":
            self.ends[event["k"]].append((event["t"], event["s"], event["h"]))
        elif kind in ("down", "up"):
            self.downs.append((event["t"], kind))

    def place(self, key, offset, value, who):
        there = self.places[key].setdefault(offset, value)
        if there != value:
            self.found("inconsistent offset", f"{key} holds {there} at {offset}, and {who} {value}")
        if value in self.writes:
            self.writes[value].offsets.add((key, offset))

    def read(self, session, now, offset, value):
        key = session.key
        self.place(key, offset, value, f"{session.process} read")
        self.visible[key].add(offset)
        self.seen.setdefault(value, now)
        if value not in self.writes or self.writes[value].key != key:
            self.found("phantom", f"{session.process} read {value} at {key} {offset}")
        if offset <= session.last:
            same = offset in session.offsets[-1000:]
            self.found("duplicate" if same else "backward poll", f"{session.process} was given {key} {offset} after {session.last}")
        else:
            session.last, session.came = offset, session.came or now
            session.offsets.append(offset)

    # Looking at it.

    def run(self):
        self.values()
        self.order_of_sends()
        self.ended_transactions()
        self.passed_over()
        self.groups()
        self.watermarks()
        return self.anomalies

    def must_be_seen(self, write):
        """Whether all has to be read that is at the end of the history."""
        if not write.transaction:
            return write.acknowledged
        transaction = self.transactions[write.transaction]
        return transaction.outcome == "committed"

    def values(self):
        ends = collections.defaultdict(int)  # how far any session went
        for session in self.sessions:
            ends[session.key] = max(ends[session.key], session.span()[1])
        for write in self.writes.values():
            if len(write.offsets) > 1:
                self.found("duplicate", f"{write.value} is at {sorted(write.offsets)}")
            if self.must_be_seen(write) and write.value not in self.seen:
                known = [offset for key, offset in write.offsets if key == write.key]
                if known and min(known) < ends[write.key]:
                    self.found("lost write", f"{write.value} of {write.process}, acknowledged at {write.key} {min(known)}, was passed over")
                else:
                    self.found("unseen write", f"{write.value} of {write.process}, sent to {write.key}, was never read")

    def order_of_sends(self):
        last = {}
        for write in sorted(self.writes.values(), key=lambda write: write.value):
            # A value that is there twice is another anomaly: the first place counts.
            for key, offset in sorted(write.offsets)[:1]:
                before = last.get((write.process, key), (-1, None))
                if offset < before[0]:
                    self.found("backward send", f"{write.process} sent {write.value} after {before[1]}, which is at {key} {before[0]}, to {offset}")
                last[write.process, key] = max(before, (offset, write.value))

    def ended_transactions(self):
        for name, transaction in self.transactions.items():
            read = [write for write in transaction.writes if write.value in self.seen]
            for write in read:
                asked = transaction.asked
                if transaction.outcome == "aborted":
                    self.found("aborted read", f"{write.value} at {write.key} is of {name}, which was aborted")
                elif asked is None or self.seen[write.value] < asked:
                    self.found("precommitted read", f"{write.value} at {write.key} was read before the commit of {name} was asked for")
            if read and len(read) < len(transaction.writes):
                lacking = next(write for write in transaction.writes if write.value not in self.seen)
                self.found("torn transaction", f"{len(read)} of {len(transaction.writes)} values of {name} were read, not {lacking.value}")

    def passed_over(self):
        """Every session against what others were given of its key."""
        order = {key: sorted(offsets) for key, offsets in self.visible.items()}
        by_process = collections.defaultdict(set)  # values that a process was given
        for session in self.sessions:
            by_process[session.process].update(self.places[session.key][offset] for offset in session.offsets)
        for session in self.sessions:
            begin, end = session.span()
            offsets = order.get(session.key, [])
            between = offsets[bisect.bisect_left(offsets, begin):bisect.bisect_left(offsets, end)]
            if len(between) != len(session.offsets):
                for offset in sorted(set(between) - set(session.offsets)):
                    self.skipped(session, offset, by_process)

    def skipped(self, session, offset, by_process):
        value = self.places[session.key][offset]
        write = self.writes.get(value)
        name = write and write.transaction
        if name and any(other.value in by_process[session.process] for other in self.transactions[name].writes):
            self.found("torn transaction", f"{session.process} was given a part of {name}, and passed over {value} at {session.key} {offset}")
        else:
            self.found("skipped record", f"{session.process} passed over {value} at {session.key} {offset}")

    def groups(self):
        """Members begin where the group was: at what was committed, or what somebody was about to commit."""
        for session in self.sessions:
            if not session.group or not session.offsets:
                continue
            whose, first = (session.group, session.key), session.offsets[0]
            done = [offset for at, offset in self.commits[whose] if at < session.began]
            if done and first < max(done):
                self.found("commit lost", f"{session.process} began {session.key} at {first}, committed was {max(done)}")
            asked = max([offset for at, offset in self.asked[whose] if at < session.came], default=0)
            missed = [offset for offset in self.visible[session.key] if asked <= offset < first]
            if missed:
                self.found("skipped record", f"{session.process} began {session.key} at {first}, and the group had come to {asked} only")

    def watermarks(self):
        for key, samples in self.ends.items():
            stood, last = None, (0, 0)  # since when the last stable offset stands below the high watermark
            told = None
            for at, stable, high in samples:
                if stable < last[0] or high < last[1]:
                    self.found("backward end", f"{key} had its ends at {last}, then at {(stable, high)}")
                if stable >= high or stable > last[0]:
                    stood = None if stable >= high else at
                elif stood is None:
                    stood = at
                elif self.timeout and told != stable and self.up_between(stood, at) > self.timeout + SLACK:
                    told = stable
                    self.found("stuck", f"{key} stayed at {stable} of {high} for {(at - stood) / 1e9:.1f} s")
                last = max(last[0], stable), max(last[1], high)

    def up_between(self, begin, end):
        """Seconds in which the broker was there."""
        down, since = 0, None
        for at, what in self.downs:
            at = min(max(at, begin), end)
            if what == "down":
                since = at
            elif since is not None:
                down, since = down + at - since, None
        return (end - begin - down - (end - since if since is not None else 0)) / 1e9


def analyse(events, timeout=None):
    """Anomalies by kind. `timeout`: of transactions, in seconds."""
    found = Analysis(events, timeout).run()
    assert set(found) <= set(KINDS), set(found) - set(KINDS)
    return dict(found)


def spell(anomalies):
    """A line a kind."""
    return "; ".join(f"{kind} ({len(texts)}): {', '.join(texts[:EXAMPLES])}" for kind, texts in sorted(anomalies.items()))
