"""A group with ordered keys: records of one key are never with two members, and come in order as long as nothing goes wrong. First
without disturbance, then with records that are released while members and the broker are killed.
Arguments: binary, seconds of each, clients that are missing."""

import collections
import sys
import tempfile
import time

import events
from group import Disturber, Members, broker_of, configure, create, lags, now, producer

PARTITIONS, KEYS, RATE, LIMIT = 2, 40, 800, 10
LOCK_MS = 15_000
SETTLES = 60
# Members that have to do something; where processor time is scarce they take a while to begin.
BUSY, BEGIN = 4, 60


def ordered(binary, seconds, missing):
    for kind in ("keys", "keys-released"):
        with tempfile.TemporaryDirectory(prefix="mainstem-keys-") as scratch:
            broker = broker_of(binary, scratch)
            members = Members(scratch, "by-key", "keyed", LOCK_MS)
            roster = {"java-a": ("java", 2), "java-b": ("java", 2), "franz": ("franz-go", 2)}
            roster = {name: row for name, row in roster.items() if row[0] not in missing}
            try:
                create(broker.bootstrap, {"keyed": PARTITIONS})
                configure(broker.bootstrap, "by-key", share_auto_offset_reset="earliest", mainstem_share_key_ordered="true",
                          share_record_lock_duration_ms=LOCK_MS, share_delivery_count_limit=LIMIT)
                disturber = Disturber(broker, members, roster, kind)
                count = load(broker, disturber, seconds, kind)
                disturber.wait_for_leavers()
                members.end()
                check(members, disturber, kind, count)
            finally:
                members.end(9)
                if broker.binary:
                    broker.end(9)


def load(broker, disturber, seconds, kind):
    """Writes meanwhile, and waits until all of it is done."""
    source, failures, number, until = producer(broker.bootstrap), [], 0, time.time() + seconds
    latest = until + BEGIN
    while time.time() < until:
        for _ in range(RATE // 100):
            # Keys that come often beside keys that come seldom.
            key = min(number % KEYS, number * 7 % 11)
            source.produce("keyed", b"%d" % number, b"%d" % key, partition=key % PARTITIONS, on_delivery=lambda error, _: error and failures.append(error))
            number += 1
        source.poll(0)
        time.sleep(0.01)
        disturber.turn(ends=kind == "keys")
        if time.time() >= until and time.time() < latest and len(busy(disturber.members)) < BUSY:
            until = time.time() + 1
    assert source.flush(60) == 0 and not failures, failures[:3]
    deadline = time.time() + SETTLES
    while any(lag != 0 for lag in lags(broker.bootstrap, "by-key", "keyed", PARTITIONS).values()):
        assert time.time() < deadline, f"of {number} records the group has not done {lags(broker.bootstrap, 'by-key', 'keyed', PARTITIONS)}"
        disturber.turn(ends=True)
        time.sleep(0.3)
    return number


def busy(members):
    """Names of members that were given something."""
    return {name for name, word, *_ in events.lines(members.files) if word == "got"}


def holdings(members, broker_kills):
    """By key: (from, to, member, offset), when records were with a member for certain: from what a poll has returned to what was said
    of it, or the kill of the member or the broker."""
    held = collections.defaultdict(list)
    open_ = {}
    for name, word, *more in events.lines(members.files):
        if word == "got":
            open_[name, more[0], more[1]] = more[5], int(more[4])
        elif word == "says" and (name, more[0], more[1]) in open_:
            key, began = open_.pop((name, more[0], more[1]))
            ends = min([int(more[3]), *(kill for kill in broker_kills if kill > began)])
            held[key].append((began, ends, name, int(more[1])))
    return held


def check(members, disturber, kind, count):
    held = holdings(members, [at - 200_000 for at in disturber.broker_kills])
    together, workers = [], collections.defaultdict(set)
    for key, all_of_key in held.items():
        all_of_key.sort()
        latest = {}
        for began, ends, member, offset in all_of_key:
            workers[key].add(member)
            # Of each other member the latest end is enough.
            together += [(key, other, before, member, offset) for other, (end, before) in latest.items() if other != member and end > began]
            latest[member] = max(latest.get(member, (0, 0)), (ends, offset))
    assert not together, f"{len(together)} records came while another member had one of their key: {together[:3]}"
    records = events.read(members.files)
    # All deliveries are of interest, however long the locks are.
    complaints = list(events.check(records, LOCK_MS, LIMIT, disturber.broker_kills))
    assert not complaints, f"{len(complaints)} things that cannot be, the first is {complaints[0]}"
    assert len(records) == count, f"{len(records)} of {count} records came"
    if kind == "keys":
        for place, record in records.items():
            assert [one.count for one in record.got] == [1], f"{place} came more than once: {record}"
        unordered = list(out_of_order(members))
        assert not unordered, f"{len(unordered)} records came before an earlier one of their key: {unordered[:3]}"
    names = {member for all_of_key in workers.values() for member in all_of_key}
    assert len(names) >= BUSY, f"only {names} did anything"
    assert sum(len(names) > 1 for names in workers.values()) > 3, "each key stayed with one member, so nothing was shown"
    print(f"{count} records of {len(held)} keys, {len(names)} members, {len(members.disruptions) - len(members.running)} of them and "
          f"{len(disturber.broker_kills)} brokers disturbed")


def out_of_order(members):
    worked = sorted((int(more[3]), more[5], int(more[1])) for name, word, *more in events.lines(members.files) if word == "worked")
    last = {}
    for _, key, offset in worked:
        if offset < last.get(key, -1):
            yield key, offset, last[key]
        last[key] = offset


if __name__ == "__main__":
    ordered(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
