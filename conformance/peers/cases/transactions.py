"""InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers, and what
readers see of transactions. Kafka answers EndTxn before its markers are written: cases wait for that."""

from batch import batch
from client import NOT_YET, produce

from . import case

CONCURRENT = 51


def wish(name, timeout=60_000, pid=-1, epoch=-1):
    return {"transactional_id": name, "transaction_timeout_ms": timeout, "producer_id": pid, "producer_epoch": epoch}


def begun(t, name=None):
    """A transactional id with a producer: name, producer id, epoch."""
    name = name or t.unique("transaction")
    made = {}

    def done():
        made.update(t.quiet("InitProducerId", 4, wish(name)))
        return made["error_code"] not in (*NOT_YET, CONCURRENT)
    t.settled(done)
    assert made["error_code"] == 0, made
    return name, made["producer_id"], made["producer_epoch"]


def of(tx):
    return {"transactional_id": tx[0], "producer_id": tx[1], "producer_epoch": tx[2]}


def adding(tx, topic, partitions=(0,)):
    return {**{f"v3_and_below_{key}": value for key, value in of(tx).items()},
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}]}


def add(t, tx, topic, partitions=(0,), version=3):
    return t.ask("AddPartitionsToTxn", version, adding(tx, topic, partitions))


def added(t, tx, topic, partitions=(0,)):
    answer = t.quiet("AddPartitionsToTxn", 3, adding(tx, topic, partitions))
    codes = [one["partition_error_code"] for one in answer["results_by_topic_v3_and_below"][0]["results_by_partition"]]
    assert not any(codes), answer


def writing(tx, topic, sequence=0, partition=0, attributes=0x10, name=True):
    data = batch(attributes=attributes, pid=tx[1], epoch=tx[2], sequence=sequence)
    return {**produce(topic, data, partition), "transactional_id": tx[0] if name else None}


def write(t, tx, topic, version=11, **more):
    return t.ask("Produce", version, writing(tx, topic, **more))


def wrote(t, tx, topic, version=11, **more):
    answer = t.quiet("Produce", version, writing(tx, topic, **more))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer


def end(t, tx, committed=True, version=3):
    return t.ask("EndTxn", version, {**of(tx), "committed": committed})


def ended(t, tx, committed=True, version=3):
    """Ends it and waits for its markers; the producer that goes on."""
    answer = t.quiet("EndTxn", version, {**of(tx), "committed": committed})
    assert answer["error_code"] == 0, answer
    complete(t, tx)
    return (tx[0], answer["producer_id"], answer["producer_epoch"]) if version >= 5 else tx


def complete(t, tx):
    def done():
        state = t.quiet("DescribeTransactions", 0, {"transactional_ids": [tx[0]]})["transaction_states"][0]["transaction_state"]
        return state in ("CompleteCommit", "CompleteAbort", "Empty")
    t.settled(done)


def commit(t, tx, group, topic, offset=5, version=3, partition=0, **more):
    parts = [{"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}]
    return t.ask("TxnOffsetCommit", version, {**of(tx), "group_id": group, "topics": [{"name": topic, "partitions": parts}], **more})


def fetch(t, topic, offset=0, isolation=1, version=11, first=False):
    """`first`: Kafka may end its answer with the first batch, when the last readable offset is new to it."""
    parts = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    return t.ask("Fetch", version, {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": isolation,
                                    "topics": [{"topic": topic, "partitions": parts}]}, drop={"records"} if first else ())


def open_one(t, topic=None, version=11):
    """A transaction that has written one record."""
    topic, tx = topic or t.topic(), begun(t)
    if version < 12:
        added(t, tx, topic)
    wrote(t, tx, topic, version)
    return topic, tx


@case
def transaction_init_in_every_version(t):
    for version in range(6):
        tx = t.unique("transaction")
        t.settled(lambda: t.quiet("InitProducerId", 4, wish(tx))["error_code"] not in NOT_YET)
        body = wish(tx)
        t.ask("InitProducerId", version, body if version >= 3 else dict(list(body.items())[:2]))


@case
def transaction_init_with_bad_timeouts(t):
    for timeout in (0, -1, 900_001, 2_147_483_647):
        t.ask("InitProducerId", 4, wish(t.unique("transaction"), timeout))


@case
def transaction_init_as_the_producer_that_it_was(t):
    name, pid, epoch = begun(t)
    t.ask("InitProducerId", 4, wish(name, pid=pid, epoch=epoch))
    t.ask("InitProducerId", 4, wish(name, pid=pid, epoch=epoch))


@case
def transaction_init_as_another_producer(t):
    name, pid, epoch = begun(t)
    t.ask("InitProducerId", 4, wish(name, pid=pid, epoch=epoch + 5))
    t.ask("InitProducerId", 4, wish(name, pid=pid + 1000, epoch=epoch))
    t.ask("InitProducerId", 3, wish(name, pid=pid + 1000, epoch=epoch))


@case
def transaction_init_of_a_new_id_as_a_producer(t):
    t.ask("InitProducerId", 4, wish(t.unique("transaction"), pid=5, epoch=0))


@case
def transaction_init_while_one_is_open(t):
    _, tx = open_one(t)
    t.ask("InitProducerId", 4, wish(tx[0]))


@case
def transaction_add_in_every_version(t):
    topic, tx = t.topic(), begun(t)
    for version in range(4):
        add(t, tx, topic, version=version)


@case
def transaction_add_for_others(t):
    topic, tx = t.topic(), begun(t)
    one = {**of(tx), "topics": [{"name": topic, "partitions": [0]}]}
    for version in (4, 5):
        t.ask("AddPartitionsToTxn", version, {"transactions": [{**one, "verify_only": True}]})
        t.ask("AddPartitionsToTxn", version, {"transactions": [one]})
        t.ask("AddPartitionsToTxn", version, {"transactions": [{**one, "verify_only": True}]})
        topic = t.topic()
        one = {**of(tx), "topics": [{"name": topic, "partitions": [0]}]}


@case
def transaction_add_unknown_partitions(t):
    add(t, begun(t), t.topic(), (0, 1))
    add(t, begun(t), t.unique("topic"))


@case
def transaction_add_with_a_wrong_producer(t):
    topic, (name, pid, epoch) = t.topic(), begun(t)
    for version in (0, 1, 2, 3):
        add(t, (name, pid, epoch + 1), topic, version=version)
        add(t, (name, pid + 1000, epoch), topic, version=version)
    add(t, (t.unique("transaction"), pid, epoch), topic)


@case
def transaction_add_after_a_newer_producer(t):
    topic, old = t.topic(), begun(t)
    begun(t, old[0])
    for version in (1, 3):
        add(t, old, topic, version=version)


@case
def transaction_write_that_was_not_added(t):
    topic, tx = t.topic(), begun(t)
    write(t, tx, topic)
    write(t, tx, topic, version=9)


@case
def transaction_write_adds_by_itself(t):
    topic, tx = t.topic(), begun(t)
    write(t, tx, topic, version=12)
    write(t, tx, topic, version=12, sequence=1)
    end(t, tx, version=5)


@case
def transaction_write_without_its_id(t):
    topic, tx = t.topic(), begun(t)
    added(t, tx, topic)
    write(t, tx, topic, name=False)


@case
def transaction_write_with_a_wrong_producer(t):
    topic, (name, pid, epoch) = t.topic(), begun(t)
    for version in (11, 12):
        write(t, (name, pid + 1000, epoch), topic, version=version)
        write(t, (name, pid, epoch + 1), topic, version=version)


@case
def transaction_write_by_an_old_producer(t):
    topic, old = open_one(t)
    begun(t, old[0])
    for version in (11, 12):
        write(t, old, topic, version=version, sequence=1)


@case
def transaction_write_out_of_order(t):
    topic, tx = open_one(t)
    write(t, tx, topic, sequence=5)
    write(t, tx, topic, sequence=0)


@case
def transaction_records_outside_of_the_open_one(t):
    topic, tx = open_one(t)
    write(t, tx, topic, sequence=1, attributes=0)
    write(t, tx, topic, sequence=1, attributes=0, name=False)


@case
def transaction_write_after_the_end(t):
    topic, tx = open_one(t)
    ended(t, tx)
    write(t, tx, topic, sequence=1)


@case
def transaction_end_in_every_version(t):
    for version in range(5):
        _, tx = open_one(t)
        end(t, tx, version=version)


@case
def transaction_end_twice(t):
    for committed in (True, False):
        _, tx = open_one(t)
        ended(t, tx, committed)
        end(t, tx, committed)
        end(t, tx, not committed)


@case
def transaction_end_twice_with_epochs(t):
    for committed in (True, False):
        _, tx = open_one(t, version=12)
        ended(t, tx, committed, 5)
        end(t, tx, committed, 5)
        end(t, tx, not committed, 5)


@case
def transaction_end_of_none(t):
    for version in (3, 5):
        for committed in (True, False):
            end(t, begun(t), committed, version)


@case
def transaction_end_by_a_wrong_producer(t):
    _, (name, pid, epoch) = open_one(t)
    for version in (0, 1, 2, 3, 5):
        end(t, (name, pid, epoch + 1), version=version)
        end(t, (name, pid + 1000, epoch), version=version)
    end(t, (t.unique("transaction"), pid, epoch))


@case
def transaction_end_by_an_old_producer(t):
    _, old = open_one(t)
    begun(t, old[0])
    for version in (1, 3, 5):
        end(t, old, version=version)


@case
def transaction_with_epochs_begins_at_sequence_0_again(t):
    topic, tx = open_one(t, version=12)
    after = ended(t, tx, version=5)
    write(t, after, topic, version=12, sequence=1)
    write(t, after, topic, version=12, sequence=0)


@case
def transaction_without_epochs_goes_on_in_sequence(t):
    topic, tx = open_one(t)
    ended(t, tx)
    added(t, tx, topic)
    write(t, tx, topic, sequence=1)
    write(t, tx, topic, sequence=0)


@case
def transaction_that_is_open_is_not_read(t):
    topic = t.topic()
    t.fill(topic, 2)
    open_one(t, topic)
    for version in (4, 11):
        fetch(t, topic, version=version)
        fetch(t, topic, isolation=0, version=version)
    fetch(t, topic, 2)
    for isolation in (0, 1):
        wanted = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
        t.ask("ListOffsets", 7, wanted)


@case
def transaction_committed_is_read(t):
    topic, tx = open_one(t)
    ended(t, tx)
    for isolation in (0, 1):
        fetch(t, topic, isolation=isolation, first=True)
    fetch(t, topic, 1)


@case
def transaction_aborted_is_told(t):
    topic, tx = open_one(t)
    ended(t, tx, False)
    t.fill(topic, 1)
    for offset in range(4):
        fetch(t, topic, offset, first=offset == 0)
    fetch(t, topic, isolation=0, first=True)


@case
def transaction_aborted_beside_one_that_is_open(t):
    topic, first = open_one(t)
    _, second = open_one(t, topic)
    ended(t, second, False)
    fetch(t, topic)
    ended(t, first)
    fetch(t, topic, first=True)


@case
def transaction_offsets_wait_for_the_commit(t):
    topic, tx, group = t.topic(), begun(t), t.group()
    t.ask("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    commit(t, tx, group, topic)
    asked = {"groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]}
    t.ask("OffsetFetch", 8, {**asked, "require_stable": True})
    t.ask("OffsetFetch", 8, asked)
    ended(t, tx)

    def visible():
        return t.quiet("OffsetFetch", 8, asked)["groups"][0]["topics"][0]["partitions"][0]["committed_offset"] == 5
    t.settled(visible)
    t.ask("OffsetFetch", 8, {**asked, "require_stable": True})


@case
def transaction_offsets_of_an_abort(t):
    topic, tx, group = t.topic(), begun(t), t.group()
    t.ask("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    commit(t, tx, group, topic)
    ended(t, tx, False)
    asked = {"groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}], "require_stable": True}
    t.settled(lambda: t.quiet("OffsetFetch", 8, asked)["groups"][0]["topics"][0]["partitions"][0]["error_code"] == 0)
    t.ask("OffsetFetch", 8, asked)


@case
def transaction_offsets_in_every_version(t):
    topic, tx, group = t.topic(), begun(t), t.group()
    for version in range(5):
        t.ask("AddOffsetsToTxn", version, {**of(tx), "group_id": group})
    for version in range(6):
        commit(t, tx, group, topic, version=version)


@case
def transaction_offsets_by_a_wrong_producer(t):
    (name, pid, epoch), group = begun(t), t.group()
    for version in (1, 3):
        t.ask("AddOffsetsToTxn", version, {**of((name, pid, epoch + 1)), "group_id": group})
        t.ask("AddOffsetsToTxn", version, {**of((name, pid + 1000, epoch)), "group_id": group})


@case
def transaction_offsets_of_an_unknown_member(t):
    topic, tx, group = t.topic(), begun(t), t.group()
    t.ask("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    commit(t, tx, group, topic, generation_id=3, member_id="nobody")
    member, generation = t.member(group)
    commit(t, tx, group, topic, generation_id=generation, member_id="nobody")
    commit(t, tx, group, topic, generation_id=generation + 1, member_id=member)
    commit(t, tx, group, topic, generation_id=generation, member_id=member)
    commit(t, tx, group, topic)


@case
def transaction_offsets_of_an_unknown_topic(t):
    tx, group = begun(t), t.group()
    t.ask("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    commit(t, tx, group, t.unique("topic"))


@case
def transaction_offsets_of_an_unknown_partition(t):
    topic, tx, group = t.topic(), begun(t), t.group()
    t.ask("AddOffsetsToTxn", 3, {**of(tx), "group_id": group})
    commit(t, tx, group, topic, partition=7)
    commit(t, tx, group, topic, partition=-1)


@case
def transactions_described(t):
    topic, tx = open_one(t)
    t.ask("DescribeTransactions", 0, {"transactional_ids": [tx[0], t.unique("transaction")]})
    t.ask("DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": [0, 7]}]})
    ended(t, tx)
    t.ask("DescribeTransactions", 0, {"transactional_ids": [tx[0]]})
    t.ask("DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": [0]}]})


@case
def transactions_listed(t):
    _, tx = open_one(t)
    t.ask("ListTransactions", 0, {"producer_id_filters": [tx[1]]})
    t.ask("ListTransactions", 0, {"producer_id_filters": [tx[1]], "state_filters": ["Empty"]})
    t.ask("ListTransactions", 0, {"producer_id_filters": [tx[1]], "state_filters": ["Ongoing", "Nonsense"]})
    t.ask("ListTransactions", 1, {"producer_id_filters": [tx[1]], "duration_filter": 3_600_000})
    t.ask("ListTransactions", 2, {"transactional_id_pattern": tx[0][:-1] + "."})
    t.ask("ListTransactions", 2, {"transactional_id_pattern": tx[0][:-1]})
    t.ask("ListTransactions", 2, {"transactional_id_pattern": "("})


@case
def transaction_ended_by_an_administrator(t):
    topic, tx = open_one(t)
    topics = [{"name": topic, "partition_indexes": [0]}]
    marker = {"producer_id": tx[1], "producer_epoch": tx[2], "transaction_result": False, "coordinator_epoch": 0, "topics": topics}
    t.ask("WriteTxnMarkers", 1, {"markers": [marker]})
    fetch(t, topic, first=True)
    t.ask("WriteTxnMarkers", 1, {"markers": [{**marker, "topics": [{"name": t.unique("topic"), "partition_indexes": [0]}]}]})


@case
def transaction_marker_of_an_old_epoch(t):
    topic, old = open_one(t)
    begun(t, old[0])
    marker = {"producer_id": old[1], "producer_epoch": old[2], "transaction_result": True, "coordinator_epoch": 0,
              "topics": [{"name": topic, "partition_indexes": [0]}]}
    t.ask("WriteTxnMarkers", 1, {"markers": [marker]})


@case
def coordinator_of_a_transaction(t):
    for version in range(1, 7):
        name = t.unique("transaction")
        body = {"key": name, "key_type": 1} if version < 4 else {"coordinator_keys": [name], "key_type": 1}
        t.settled(lambda: t.quiet("InitProducerId", 4, wish(name))["error_code"] not in NOT_YET)
        t.ask("FindCoordinator", version, body)
