"""Share groups: ShareFetch and ShareAcknowledge, their sessions, what becomes of records, and the offsets' administration."""

import time
import uuid

from batch import batch
from client import produce

from . import UNKNOWN_ID, case

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
GROUP_RESOURCE = 32


def configured(t, group, **configs):
    """Sets the group's configuration."""
    wish = [{"name": key.replace("_", "."), "config_operation": 0, "value": str(value)} for key, value in configs.items()]
    answer = t.quiet("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": wish}]})
    assert answer["responses"][0]["error_code"] == 0, answer


class Worker:
    """A member of a share group with a session on the case's connection."""

    def __init__(self, t, group, topic, member=None):
        self.t, self.group, self.topic = t, group, topic
        self.member = t.learn(member or str(uuid.uuid4()), "<worker>")
        self.epoch, self.session = 0, 0

    def join(self):
        """Becomes a member, and waits until the coordinator has made the state of the partition."""
        def there():
            wish = {"group_id": self.group, "member_id": self.member, "member_epoch": self.epoch, "subscribed_topic_names": [self.topic]}
            answer = self.t.quiet("ShareGroupHeartbeat", 1, wish)
            assert answer["error_code"] == 0, answer
            self.epoch = answer["member_epoch"]
            if self.assigned(answer):
                return True
            time.sleep(0.05)
            return False
        self.t.settled(there)
        return self

    @staticmethod
    def assigned(answer):
        return answer["assignment"] and answer["assignment"]["topic_partitions"]

    def wish(self, session=None, acks=(), partitions=(0,), wait=400, forget=(), **more):
        epoch = self.session if session is None else session
        topics = [{"topic_id": self.t.id_of(self.topic), "partitions": [
            {"partition_index": one, "acknowledgement_batches": batches(acks)} for one in partitions]}] if partitions else []
        forgotten = [{"topic_id": self.t.id_of(self.topic), "partitions": list(forget)}] if forget else []
        return {"group_id": self.group, "member_id": self.member, "share_session_epoch": epoch, "max_wait_ms": wait, "min_bytes": 1,
                "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, "topics": topics, "forgotten_topics_data": forgotten, **more}

    def after(self, session):
        if session is None:
            self.session += 1

    def fetch(self, session=None, version=2, **more):
        answer = self.t.ask("ShareFetch", version, self.wish(session, **more))
        self.after(session)
        return answer

    def got(self, session=None, version=2, **more):
        answer = self.t.quiet_here("ShareFetch", version, self.wish(session, **more))
        self.after(session)
        return answer

    def say(self, acks, session=None, version=2, partitions=(0,), **more):
        epoch = self.session if session is None else session
        topics = [{"topic_id": self.t.id_of(self.topic), "partitions": [
            {"partition_index": one, "acknowledgement_batches": batches(acks)} for one in partitions]}] if partitions else []
        wish = {"group_id": self.group, "member_id": self.member, "share_session_epoch": epoch, "topics": topics, **more}
        answer = self.t.ask("ShareAcknowledge", version, wish)
        self.after(session)
        return answer


def batches(acks):
    """(first, last, type or types) each."""
    return [{"first_offset": first, "last_offset": last, "acknowledge_types": list(kind) if isinstance(kind, (list, tuple)) else [kind]}
            for first, last, kind in acks]


def working(t, count=3, whole=True, partitions=1, **configs):
    """A worker at the beginning of a topic with `count` records; in one batch unless told otherwise."""
    topic = t.topic(partitions)
    if whole and count:
        answer = t.quiet("Produce", 9, produce(topic, batch([b"value %d" % at for at in range(count)])))
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer
    else:
        t.fill(topic, count)
    group = t.group()
    configured(t, group, share_auto_offset_reset="earliest", **configs)
    return Worker(t, group, topic).join()


def acquired(one, last):
    """Offsets and delivery counts of what is acquired until `last` is among it, in however many answers."""
    found = []

    def there():
        for topic in one.got()["responses"]:
            for run in topic["partitions"][0]["acquired_records"]:
                found.extend([at, run["delivery_count"]] for at in range(run["first_offset"], run["last_offset"] + 1))
        return any(at == last for at, _ in found)
    one.t.settled(there)
    return found


@case
def share_fetch_acquires_and_accepts(t):
    one = working(t)
    one.fetch()
    one.fetch(acks=[(0, 2, ACCEPT)])
    one.fetch()


@case
def share_fetch_in_version_1(t):
    one = working(t)
    one.fetch(version=1)
    one.say([(0, 2, ACCEPT)], version=1)


@case
def share_acknowledge_each_type(t):
    one = working(t, 6)
    one.fetch()
    one.say([(0, 4, [ACCEPT, RELEASE, REJECT, GAP, RENEW])], is_renew_ack=True)
    one.fetch()
    one.say([(1, 1, ACCEPT), (4, 5, ACCEPT)])
    one.fetch()


@case
def share_acknowledge_renew_without_the_flag(t):
    one = working(t)
    one.fetch()
    one.say([(0, 2, RENEW)])
    one.say([(0, 2, RENEW)], session=1)


@case
def share_fetch_renew_with_the_flag(t):
    one = working(t)
    one.fetch()
    one.fetch(acks=[(0, 2, RENEW)], is_renew_ack=True)
    one.fetch(acks=[(0, 2, RENEW)], is_renew_ack=True, max_records=0, max_bytes=0, min_bytes=0, wait=0, session=1)


@case
def share_acknowledge_unknown_type(t):
    one = working(t)
    one.fetch()
    one.say([(0, 2, 5)])
    one.say([(0, 2, -1)])


@case
def share_acknowledge_types_of_wrong_length(t):
    one = working(t)
    one.fetch()
    one.say([(0, 2, [1, 1])])
    one.say([(0, 2, [])])
    one.say([(0, 2, [1, 1, 1, 1])])


@case
def share_acknowledge_backwards(t):
    one = working(t)
    one.fetch()
    one.say([(2, 0, ACCEPT)])
    one.say([(1, 2, ACCEPT), (0, 0, ACCEPT)])
    one.say([(0, 1, ACCEPT), (1, 2, ACCEPT)])


@case
def share_acknowledge_what_was_not_acquired(t):
    one = working(t, 2)
    one.fetch()
    one.say([(0, 5, ACCEPT)])
    one.say([(7, 9, ACCEPT)])
    one.say([(0, 1, ACCEPT)])


@case
def share_acknowledge_twice(t):
    one = working(t)
    one.fetch()
    one.say([(0, 0, ACCEPT)])
    one.say([(0, 0, ACCEPT)])
    one.say([(0, 1, ACCEPT)])
    one.say([(2, 2, RELEASE)])
    one.say([(2, 2, ACCEPT)])


@case
def share_acknowledge_after_a_record_in_the_middle(t):
    one = working(t, 4)
    one.fetch()
    one.say([(1, 2, ACCEPT)])
    one.say([(1, 2, ACCEPT)])
    one.say([(0, 3, ACCEPT)])


@case
def share_acknowledge_for_another_member(t):
    one = working(t)
    one.fetch()
    two = Worker(t, one.group, one.topic)
    two.fetch()
    two.say([(0, 0, ACCEPT)])


@case
def share_acknowledge_unknown_topic_and_partition(t):
    one = working(t)
    one.fetch()
    one.say([(0, 0, ACCEPT)], partitions=(7,))
    body = {"group_id": one.group, "member_id": one.member, "share_session_epoch": 2,
            "topics": [{"topic_id": UNKNOWN_ID, "partitions": [{"partition_index": 0, "acknowledgement_batches": batches([(0, 0, 1)])}]}]}
    t.ask("ShareAcknowledge", 2, body)


@case
def share_acknowledge_without_a_session(t):
    one = working(t)
    one.say([(0, 0, ACCEPT)], session=0)
    one.say([(0, 0, ACCEPT)], session=1)
    one.say([(0, 0, ACCEPT)], session=-1)


@case
def share_acknowledge_with_a_wrong_session_epoch(t):
    one = working(t)
    one.fetch()
    one.say([(0, 0, ACCEPT)], session=5)
    one.say([(0, 0, ACCEPT)], session=0)
    one.say([(0, 2, ACCEPT)])


@case
def share_acknowledge_nothing(t):
    one = working(t)
    one.fetch()
    one.say([], partitions=())
    one.say([])


@case
def share_fetch_without_a_session(t):
    one = working(t)
    one.fetch(session=1)
    one.fetch(session=-1)


@case
def share_fetch_with_a_wrong_session_epoch(t):
    one = working(t)
    one.fetch()
    one.fetch(session=7)
    one.fetch()


@case
def share_fetch_that_begins_with_acknowledgements(t):
    one = working(t)
    one.fetch(session=0, acks=[(0, 2, ACCEPT)])


@case
def share_fetch_that_ends_the_session_gives_everything_back(t):
    one = working(t)
    one.fetch()
    one.fetch(session=-1, acks=[(0, 0, ACCEPT)])
    one.session = 0
    one.fetch()


@case
def share_fetch_opened_again_keeps_what_it_has(t):
    one = working(t)
    one.fetch()
    one.fetch(session=0)


@case
def share_acknowledge_that_ends_the_session(t):
    one = working(t)
    one.fetch()
    one.say([(0, 0, ACCEPT)], session=-1)
    one.session = 0
    one.fetch()


@case
def share_fetch_of_another_connection_after_the_first_is_gone(t):
    one = working(t)
    one.fetch()
    t.again()
    time.sleep(0.5)
    one.session = 0
    one.fetch()


@case
def share_fetch_with_a_session_of_another_connection(t):
    one = working(t)
    one.fetch(session=0)
    other = t.connection
    t.connection = type(other)(t.address)
    one.fetch(session=1)
    t.connection.close()
    t.connection = other
    one.fetch(session=2)


@case
def share_fetch_for_nobody(t):
    one = working(t)
    one.fetch(group_id="")
    one.fetch(group_id=None)


@case
def share_fetch_with_an_empty_or_odd_member_id(t):
    one = working(t)
    one.fetch(session=0, member_id="")
    one.fetch(session=0, member_id=None)
    one.fetch(session=0, member_id="not a uuid")


@case
def share_fetch_of_a_group_that_does_not_exist(t):
    topic = t.topic()
    t.fill(topic)
    one = Worker(t, t.group(), topic)
    one.fetch()


@case
def share_fetch_of_unknown_topics_and_partitions(t):
    one = working(t)
    one.fetch(partitions=(0, 5))
    body = one.wish()
    body["topics"] = [{"topic_id": UNKNOWN_ID, "partitions": [{"partition_index": 0}]}]
    t.ask("ShareFetch", 2, body)


@case
def share_fetch_that_forgets_and_adds(t):
    one = working(t, partitions=2)
    one.fetch(partitions=(0, 1))
    one.fetch(partitions=(), forget=(0,))
    t.fill(one.topic, 1, partition=0)
    t.fill(one.topic, 1, partition=1)
    one.fetch(partitions=(), wait=500)
    one.fetch(partitions=(0,), wait=500)


@case
def share_fetch_by_batches(t):
    one = working(t, 5, whole=False)
    one.fetch(max_records=2, batch_size=1)
    one.fetch(max_records=10, batch_size=2)


@case
def share_fetch_more_records_than_a_batch_has(t):
    one = working(t, 5)
    one.fetch(max_records=2, batch_size=1)


@case
def share_fetch_by_the_record(t):
    one = working(t, 5)
    one.fetch(max_records=2, batch_size=1, share_acquire_mode=1)
    one.fetch(max_records=2, batch_size=2, share_acquire_mode=1)
    one.say([(0, 0, RELEASE)])
    one.fetch(max_records=2, batch_size=2, share_acquire_mode=1)


def working_on_batches(t, counts, **configs):
    """A worker at the beginning of a topic with batches of so many records."""
    one = working(t, counts[0], **configs)
    for count in counts[1:]:
        answer = t.quiet("Produce", 9, produce(one.topic, batch([b"more %d" % at for at in range(count)])))
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer
    return one


@case
def share_fetch_up_to_the_locks_of_a_partition(t):
    one = working_on_batches(t, (60, 60, 60), share_partition_max_record_locks=100)
    for _ in range(3):
        one.fetch(max_records=1, batch_size=1000)
    one.say([(0, 49, ACCEPT)])
    one.fetch(max_records=1, batch_size=1000)
    one.say([(50, 119, ACCEPT)])
    one.fetch(max_records=1, batch_size=1000)


@case
def share_fetch_up_to_the_locks_of_a_partition_at_once(t):
    one = working_on_batches(t, (60, 60, 60), share_partition_max_record_locks=100)
    one.fetch(batch_size=1000)
    one.fetch(batch_size=1000)


@case
def share_fetch_by_the_record_up_to_the_locks_of_a_partition(t):
    one = working_on_batches(t, (60, 60, 60), share_partition_max_record_locks=100)
    one.fetch(batch_size=1000, share_acquire_mode=1)
    one.fetch(batch_size=1000, share_acquire_mode=1)


@case
def share_fetch_in_an_unknown_mode(t):
    one = working(t, 5)
    one.fetch(share_acquire_mode=2)


@case
def share_fetch_of_no_records(t):
    one = working(t)
    one.fetch(max_records=0)
    one.fetch(max_records=-1)


@case
def share_fetch_at_the_end_waits(t):
    one = working(t, 0)
    begun = time.time()
    one.fetch(wait=300)
    t.note(waited=time.time() - begun >= 0.25)


@case
def share_fetch_of_two_members(t):
    one = working(t, 4, whole=False)
    one.fetch(max_records=2, batch_size=2)
    two = Worker(t, one.group, one.topic)
    two.fetch(max_records=2, batch_size=2)
    one.say([(1, 1, RELEASE)])
    two.fetch()


@case
def share_record_is_delivered_five_times(t):
    one = working(t, 1)
    for _ in range(5):
        one.fetch()
        one.say([(0, 0, RELEASE)])
    one.fetch()


@case
def share_record_whose_lock_runs_out(t):
    one = working(t, 2, share_record_lock_duration_ms=15000)
    one.fetch()


@case
def share_fetch_committed_only(t):
    topic = t.topic()
    t.fill(topic, 1)
    group = t.group()
    configured(t, group, share_auto_offset_reset="earliest", share_isolation_level="read_committed")
    from .transactions import added, begun, ended, wrote
    tx = begun(t)
    added(t, tx, topic)
    wrote(t, tx, topic)
    one = Worker(t, group, topic).join()
    one.fetch()
    ended(t, tx, committed=False)
    t.fill(topic, 1)
    t.note(acquired=acquired(one, 3))


@case
def share_fetch_of_all_with_an_aborted_transaction(t):
    topic = t.topic()
    t.fill(topic, 1)
    group = t.group()
    configured(t, group, share_auto_offset_reset="earliest")
    from .transactions import added, begun, ended, wrote
    tx = begun(t)
    added(t, tx, topic)
    wrote(t, tx, topic)
    ended(t, tx, committed=False)
    t.fill(topic, 1)
    one = Worker(t, group, topic).join()
    t.note(acquired=acquired(one, 3))


@case
def share_fetch_from_the_latest(t):
    topic = t.topic()
    t.fill(topic, 3)
    one = Worker(t, t.group(), topic).join()
    one.fetch()
    t.fill(topic, 1)
    one.fetch(wait=500)


@case
def share_fetch_after_records_are_deleted(t):
    one = working(t, 5, whole=False)
    one.fetch(max_records=2, batch_size=1)
    t.quiet("DeleteRecords", 2, {"topics": [{"name": one.topic, "partitions": [{"partition_index": 0, "offset": 3}]}], "timeout_ms": 5000})
    one.say([(0, 1, ACCEPT)])
    t.note(acquired=acquired(one, 4))


def described(t, group, topics, version=1):
    asked = None if topics is None else [{"topic_name": name, "partitions": list(parts)} for name, parts in topics]
    return t.ask("DescribeShareGroupOffsets", version, {"groups": [{"group_id": group, "topics": asked}]})


@case
def share_offsets_described(t):
    one = working(t, 4)
    described(t, one.group, [(one.topic, [0])])
    one.got()
    one.say([(0, 1, ACCEPT), (3, 3, ACCEPT)])
    described(t, one.group, [(one.topic, [0])])
    described(t, one.group, [(one.topic, [0])], version=0)
    described(t, one.group, None)


@case
def share_offsets_of_an_unknown_group(t):
    described(t, t.group(), None)
    described(t, t.group(), [(t.topic(), [0])])


def left(t, one):
    wish = {"group_id": one.group, "member_id": one.member, "member_epoch": -1}
    assert t.quiet("ShareGroupHeartbeat", 1, wish)["error_code"] == 0


def altered(t, group, topic, offset, partition=0):
    parts = [{"partition_index": partition, "start_offset": offset}]
    return t.ask("AlterShareGroupOffsets", 0, {"group_id": group, "topics": [{"topic_name": topic, "partitions": parts}]})


@case
def share_offsets_altered(t):
    one = working(t, 4)
    one.got()
    altered(t, one.group, one.topic, 2)
    one.got(session=-1)
    left(t, one)
    altered(t, one.group, one.topic, 2)
    described(t, one.group, [(one.topic, [0])])
    altered(t, one.group, t.unique("unknown topic"), 2)
    altered(t, one.group, one.topic, 2, partition=9)
    altered(t, t.group(), one.topic, 2)
    one.epoch = one.session = 0
    one.join()
    one.fetch()


@case
def share_offsets_deleted(t):
    one = working(t, 4)
    one.got()
    body = {"group_id": one.group, "topics": [{"topic_name": one.topic}]}
    t.ask("DeleteShareGroupOffsets", 0, body)
    one.got(session=-1)
    left(t, one)
    t.ask("DeleteShareGroupOffsets", 0, body)
    t.ask("DeleteShareGroupOffsets", 0, body)
    described(t, one.group, None)
    t.ask("DeleteShareGroupOffsets", 0, {**body, "topics": [{"topic_name": t.unique("unknown topic")}]})
    t.ask("DeleteShareGroupOffsets", 0, {**body, "group_id": t.group()})
