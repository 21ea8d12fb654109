"""A share group at work while its members leave, are killed and come again, and the broker is killed: members of two clients accept,
release, reject, renew and forget records. Nothing is lost, nothing is done with twice, nothing comes again after it was done with, and
what nobody could do is in the dead-letter topic as it was.
Arguments: the binary, or HOST:PORT of a broker that is not to be killed and has no dead-letter topics; seconds; the durability class of
the topics, fsync or memory; clients that are missing."""

import collections
import random
import sys
import tempfile
import time

from confluent_kafka import Consumer, TopicPartition

import events
from group import LOCK_MS, Disturber, Members, broker_of, configure, create, lags, now, producer

GROUP, TOPIC, DEAD = "survivors", "work", "dead"
PARTITIONS, LIMIT = 3, 5
SETTLES = 90


def survive(where, seconds, durability, missing):
    with tempfile.TemporaryDirectory(prefix="mainstem-share-") as scratch:
        broker = broker_of(where, scratch, ["--durability", durability], mainstem_journals=2)
        group, topic, dead = (f"{name}-{time.time_ns()}" for name in (GROUP, TOPIC, DEAD))
        members = Members(scratch, group, topic, LOCK_MS)
        roster = {"java-a": ("java", 2), "java-b": ("java", 2), "franz-a": ("franz-go", 1), "franz-b": ("franz-go", 1)}
        roster = {name: row for name, row in roster.items() if row[0] not in missing}
        try:
            create(broker.bootstrap, {topic: PARTITIONS, dead: 2})
            configure(broker.bootstrap, group, share_auto_offset_reset="earliest", share_record_lock_duration_ms=LOCK_MS)
            configure(broker.bootstrap, group, share_delivery_count_limit=LIMIT)
            if broker.binary:
                configure(broker.bootstrap, group, mainstem_share_dead_letter_topic=dead)
            disturber = Disturber(broker, members, roster, "mixed")
            written = load(broker, topic, disturber, seconds)
            settle(broker, group, topic, disturber, written)
            disturber.wait_for_leavers()
            members.end()
            letters = read_dead(broker, dead, 2) if broker.binary else None
            check(members, disturber, written, letters)
        finally:
            members.end(9)
            if broker.binary:
                broker.end(9)


def load(broker, topic, disturber, seconds):
    """Writes meanwhile; key, value and headers of what was acknowledged, by partition and offset."""
    source, written, failures, number, until = producer(broker.bootstrap), {}, [], 0, time.time() + seconds
    while time.time() < until:
        for _ in range(15):
            key = None if number % 7 == 0 else b"key %d" % (number % 40)
            headers = [("number", b"%d" % number), ("twice", b"a"), ("twice", b"\0\xff"), ("none", None), ("empty", b"")][: number % 6]
            record = (key, b"%d" % number, headers)

            def delivered(error, message, record=record):
                if error:
                    failures.append(error)
                else:
                    written[message.partition(), message.offset()] = record
            source.produce(topic, record[1], key, partition=random.randrange(PARTITIONS), headers=headers, on_delivery=delivered)
            number += 1
        source.poll(0)
        time.sleep(0.01)
        disturber.turn()
    assert source.flush(60) == 0 and not failures, failures[:3]
    assert len(written) == number, f"{len(written)} places of {number} records"
    return written


def settle(broker, group, topic, disturber, written):
    deadline = time.time() + SETTLES
    while True:
        disturber.turn(ends=True)
        left = lags(broker.bootstrap, group, topic, PARTITIONS)
        if all(lag == 0 for lag in left.values()):
            return
        assert time.time() < deadline, f"of {len(written)} records the group has not done {left}; {disturber.members.complaint()}"
        time.sleep(0.3)


def read_dead(broker, dead, partitions):
    """Records of the dead-letter topic."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
    ends = [reader.get_watermark_offsets(TopicPartition(dead, one), 20)[1] for one in range(partitions)]
    reader.assign([TopicPartition(dead, one, 0) for one in range(partitions)])
    found, deadline = [], time.time() + 30
    while len(found) < sum(ends) and time.time() < deadline:
        found.extend(reader.consume(1000, 0.5))
    reader.close()
    assert len(found) == sum(ends), f"only {len(found)} of {sum(ends)} dead letters came"
    return found


def check(members, disturber, written, letters):
    records = events.read(members.files)
    unknown = [place for place in records if place not in written]
    assert not unknown, f"{len(unknown)} records came that nobody wrote, the first is {unknown[0]}"
    complaints = list(events.check(records, LOCK_MS, LIMIT, disturber.broker_kills))
    assert not complaints, f"{len(complaints)} things that cannot be, the first is {complaints[0]}"
    if letters is None:
        complaints = list(lost(records, written, members.disruptions))
    else:
        complaints = list(unburied(records, written, letters, sorted(disturber.broker_kills)))
    assert not complaints, f"{len(complaints)} records, the first is {complaints[0]}"
    counts = collections.Counter(events.outcome(record, LOCK_MS) for record in records.values())
    said = collections.Counter(one.type for record in records.values() for one in record.said if one.done)
    assert counts["ACCEPT"] > len(written) / 2 and counts["REJECT"] and said["RENEW"] and said["RELEASE"], (counts, said)
    too_often = sum(1 for record in records.values() if any(one.count == LIMIT for one in record.got))
    assert too_often, "no record was delivered as often as the limit says"
    print(f"{len(written)} records, confirmed {dict(said)}, unconfirmed {sum(n for k, n in counts.items() if k and k.startswith('perhaps'))}, "
          f"delivered {LIMIT} times {too_often}, {len(members.disruptions)} members and {len(disturber.broker_kills)} brokers disturbed"
          + (f", {len(letters)} dead letters" if letters is not None else ""))


def lost(records, written, disruptions):
    """Without dead letters: what was neither done with nor delivered as often as the limit says. A member that is killed or leaves may
    have been given a record that it never told of."""
    for place in written:
        record = records.get(place, events.Record())
        if events.outcome(record, LOCK_MS):
            continue
        most, last = max((one.count for one in record.got), default=0), max((one.at for one in record.got), default=0)
        unseen = sum(1 for at in disruptions if at >= last - LOCK_MS * 1000)
        if most + unseen < LIMIT:
            yield f"{place} was not done with: {record}"


def unburied(records, written, letters, kills):
    """With dead letters: each record was accepted, or is there as it was; nothing is there that was accepted, but for what a kill or a lock that ran
    out explains."""
    explained = lambda record: events.may_be_too_late(record, LOCK_MS * 1000) or events.may_have_been_copied(record, kills, LOCK_MS * 1000)
    there = {}
    for letter in letters:
        own = [header for header in letter.headers() or [] if not header[0].startswith("__dlq.")]
        told = {name: value.decode() for name, value in letter.headers() or [] if name.startswith("__dlq.errors.")}
        place = int(told["__dlq.errors.partition"]), int(told["__dlq.errors.offset"])
        there[place] = told
        key, value, headers = written[place]
        if (letter.key(), letter.value(), own) != (key, value, headers):
            yield f"{place} is not as it was among the dead letters: {letter.key()} {letter.value()} {own}"
    for place in written:
        record, told = records.get(place, events.Record()), there.get(place)
        ends = events.outcome(record, LOCK_MS)
        if told is None and ends in (None, "REJECT"):
            yield f"{place} is neither accepted nor among the dead letters: {record}"
        if told is not None and ends == "ACCEPT" and not explained(record):
            yield f"{place} was accepted, and is among the dead letters: {told}; {record.got}, {record.said}"
        if told is not None and ends == "REJECT" and told["__dlq.errors.message"] != "rejected":
            yield f"{place} was rejected, and is told to be {told}"
        if told is not None and ends is None and int(told["__dlq.errors.delivery.count"]) != LIMIT:
            yield f"{place} was not delivered {LIMIT} times: {told}"


if __name__ == "__main__":
    survive(sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4:])
