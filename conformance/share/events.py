"""What members of a share group said, and whether it can be. The lines are those of `clients/java/Share.java` and
`clients/franz-go/share.go`; times are microseconds of the system's clock.

    NAME got PARTITION OFFSET COUNT POLL-BEGAN NOW KEY VALUE     a poll has returned a record
    NAME again ...                                              the same, of a record that this member renewed
    NAME says PARTITION OFFSET TYPE NOW                         before it is sent
    NAME done PARTITION OFFSET TYPE NOW                         the broker has confirmed it
    NAME failed PARTITION OFFSET TYPE NOW ERROR                 the broker has refused it, or nobody knows
    NAME unsaid PARTITION OFFSET TYPE ...                       the client refused to send it
    NAME worked PARTITION OFFSET COUNT BEGAN ENDED KEY VALUE
"""

import bisect
import collections
from dataclasses import dataclass, field

TERMINAL = ("ACCEPT", "REJECT")
# How far the system may be behind: a process that was not scheduled.
LATE = 1_500_000


@dataclass
class Got:
    member: str
    count: int
    began: int
    at: int


@dataclass
class Said:
    member: str
    type: str
    at: int
    # Of the last delivery to this member before.
    got: Got
    # When the lock was last known to be fresh.
    fresh: int
    done: int = 0
    failed: int = 0


@dataclass
class Record:
    got: list = field(default_factory=list)
    said: list = field(default_factory=list)
    # By member when its polls began, and when they returned; those that returned something, of all records.
    polls: dict = field(default_factory=dict)


def lines(paths):
    for path in paths:
        for line in path.read_text(errors="replace").splitlines(keepends=True):
            if line.endswith("\n"):  # The last line of a killed process may be cut.
                yield line.split()


def read(paths):
    """What was said of each record, by partition and offset."""
    polls = collections.defaultdict(dict)
    records = collections.defaultdict(lambda: Record(polls=polls))
    last = {}
    for name, word, *more in lines(paths):
        if word in ("got", "worked", "again", "says", "done", "failed", "unsaid"):
            place = int(more[0]), int(more[1])
            record, mine = records[place], (name, *map(int, more[:2]))
        if word == "got":
            record.got.append(Got(name, int(more[2]), int(more[3]), int(more[4])))
            last[mine] = [record.got[-1], record.got[-1].at]
            polls[name][int(more[3])] = int(more[4])
        elif word == "says":
            got, fresh = last[mine]
            record.said.append(Said(name, more[2], int(more[3]), got, fresh))
        elif word in ("done", "failed"):
            of = next(one for one in reversed(record.said) if one.member == name and one.type == more[2] and not one.done and not one.failed)
            setattr(of, word, int(more[3]))
            if word == "done" and more[2] == "RENEW":
                last[mine][1] = int(more[3])
        elif word == "unsaid":
            of = next(one for one in reversed(record.said) if one.member == name and one.type == more[2])
            record.said.remove(of)
    for record in records.values():
        record.got.sort(key=lambda one: one.at)
        record.said.sort(key=lambda one: one.at)
    return records


def any_between(times, first, last):
    at = bisect.bisect_left(times, first)
    return at < len(times) and times[at] <= last


def check(records, lock_ms, limit, broker_kills):
    """Complaints about what cannot be, whatever was killed."""
    lock, kills = lock_ms * 1000, sorted(broker_kills)
    for place, record in records.items():
        ends = [one for one in record.said if one.type in TERMINAL and counts(one, record, lock)]
        if any(not same_answer(ends[0], one, record, kills, lock) for one in ends[1:]):
            yield f"{place}: done with {len(ends)} times: {ends}"
        for end in ends[:1]:
            # A client may return what it was sent long before, when its lock has run out or the broker was killed meanwhile: such a
            # delivery has no larger count, and the broker refuses what is said of it.
            late = [one for one in record.got if one.began > end.done and (one.count > end.got.count or holds(one, record, lock) and one is not end.got)]
            if late and (came_before_the_answer(late[0], end, record, kills, lock) or was_given_twice(late[0], end, record, lock)):
                late.pop(0)
            if late:
                yield f"{place}: delivered after it was done with, {end}: {late}"
        for said in record.said:
            # What others have done with meanwhile is no failure, nor what was delivered for the last time.
            ended = any(one is not said and one.type in TERMINAL for one in record.said) or any(one is not said.got and one.count == limit for one in record.got)
            if said.done and is_late(said, lock) and not ended:
                yield f"{place}: taken although the lock had run out: {said}"
        for before, after in zip(record.got, record.got[1:]):
            fell = after.count < before.count and after.began > before.at + lock + LATE
            if fell and is_confirmed(after, record, lock) and not any_between(kills, fetched(before, record, lock), after.at):
                yield f"{place}: the delivery count falls: {before}, {after}"
        if any(not 1 <= one.count <= limit for one in record.got):
            yield f"{place}: delivery counts beyond the limit: {record.got}"
        for same in by_count(record.got).values():
            for before, after in zip(same, same[1:]):
                # What is in flight when the broker is killed does not count.
                if not any_between(kills, fetched(before, record, lock), after.at):
                    yield f"{place}: the same delivery twice: {before}, {after}"


def is_late(said, lock):
    """Was it said for certain after the lock had run out? Members that forget a record sleep for a second longer than the lock."""
    return said.at > said.fresh + lock + 900_000


def is_void(said, record):
    """Did somebody get the record after the one who says this? Then the lock had run out before the client returned the record, or the
    broker was killed since, and a broker may take what is said of a record that is done with long since."""
    mine = said.got
    return any(one.at <= said.done and (one.count > mine.count or one.count == mine.count and one.at > mine.at) for one in record.got)


def came_before_the_answer(got, end, record, kills, lock):
    """Was the broker killed while a client had the record, perhaps not yet returned by a poll, or waited for the answer to `end`? The broker that
    was started again may have given the record to that client again, as the delivery that it was or as the next one, then taken what the client
    said once more, or of the first of the two; what the client had been given comes out of its next poll."""
    again = got.member == end.member and got.count - end.got.count in (0, 1)
    return again and any_between(kills, fetched(end.got, record, lock), end.done)


def was_given_twice(got, end, record, lock):
    """Had a client kept the record unseen until its lock ran out, and was it given to the same client once more before `end` was confirmed? Clients
    fetch while whoever polls is asleep. The broker takes what a member says of a record that it has, whichever delivery it is, and what the client
    was given meanwhile comes out of its next polls."""
    if got.member != end.member or got.count != end.got.count + 1:
        return False
    times = [at for at in record.polls[end.member].values() if at <= end.got.at] + [end.done]
    return any(after - before > lock and after >= end.got.began - LATE for before, after in zip(times, times[1:]))


def counts(said, record, lock):
    """Is it confirmed, by who had the record at the time?"""
    return said.done and not is_late(said, lock) and not is_void(said, record)


def holds(got, record, lock):
    """Has the broker confirmed something of this delivery?"""
    return any(one.got is got and counts(one, record, lock) for one in record.said)


def is_confirmed(got, record, lock):
    """As `holds`, whatever others were given; but what is said of a record that others have done with counts for nothing."""
    others = any(one.got is not got and one.type in TERMINAL for one in record.said)
    return not others and any(one.got is got and one.done and not is_late(one, lock) for one in record.said)


def fetched(got, record, lock):
    """When a client may have been given what its poll returned later, at the earliest: clients fetch while whoever polls is asleep, and return
    what came at once in up to three polls."""
    earlier = [began for began in record.polls[got.member] if began < got.began]
    return min([got.began - lock - LATE, *earlier[-3:]])


def may_be_too_late(record, lock):
    """Is everything confirmed of this record said by somebody whose lock may have run out before: who was given the record long before a poll
    returned it, or slept? Such a record may have died meanwhile, and a broker that is past it takes what is said of it."""
    def slept(end):
        earlier = [began for began in record.polls[end.member] if began < end.got.began]
        return end.done > min([end.got.began, *earlier[-3:]]) + lock
    return all(slept(one) for one in record.said if one.type in TERMINAL and counts(one, record, lock))


def may_have_been_copied(record, kills, lock):
    """Was the broker killed before everything confirmed of this record was said, when somebody had had it before that kill? Between two journals the
    copy among the dead letters comes first: a kill leaves it, and the record is given out again."""
    sure = [one for one in record.said if one.type in TERMINAL and counts(one, record, lock)]
    return all(any_between(kills, record.got[0].began, one.got.at) for one in sure)


def same_answer(before, after, record, kills, lock):
    """A member that said it when the broker was killed, and was given the record again, may have both confirmed."""
    same = before.member == after.member and before.got.count == after.got.count
    return same and (before.done > after.got.began or came_before_the_answer(after.got, before, record, kills, lock))


def by_count(deliveries):
    found = collections.defaultdict(list)
    for one in deliveries:
        found[one.count].append(one)
    return found


def outcome(record, lock_ms):
    """`ACCEPT` or `REJECT` when that was confirmed; or `perhaps` and what may have been taken: it was said, and the answer was not seen or
    is a failure that does not tell; or None: it was not done with."""
    said = [one for one in record.said if one.type in TERMINAL]
    sure = [one.type for one in said if counts(one, record, lock_ms * 1000)]
    unsure = [one.type for one in said if not counts(one, record, lock_ms * 1000)]
    return sure[0] if sure else f"perhaps {unsure[-1]}" if unsure else None
