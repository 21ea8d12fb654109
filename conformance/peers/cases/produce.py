"""Produce and InitProducerId: batches of every shape, sequences, acknowledgements."""

import time

from batch import batch, old_message, record
from client import produce
from . import UNKNOWN_ID, case


def send(t, topic, data, version=9, **more):
    return t.ask("Produce", version, produce(topic, data, **more))


@case
def produce_in_every_version(t):
    topic = t.topic()
    for version in range(3, 13):
        send(t, topic, batch(), version)


@case
def produce_by_topic_id(t):
    topic = t.topic()
    parts = [{"index": 0, "records": batch()}]
    t.ask("Produce", 13, {"acks": -1, "timeout_ms": 5000, "topic_data": [{"topic_id": t.id_of(topic), "partition_data": parts}]})


@case
def produce_to_an_unknown_topic_id(t):
    t.learn(UNKNOWN_ID, "<unknown id>")
    parts = [{"index": 0, "records": batch()}]
    t.ask("Produce", 13, {"acks": -1, "timeout_ms": 5000, "topic_data": [{"topic_id": UNKNOWN_ID, "partition_data": parts}]})


@case
def produce_to_an_unknown_topic(t):
    send(t, t.unique("topic"), batch())


@case
def produce_to_an_unknown_partition(t):
    send(t, t.topic(), batch(), partition=7)


@case
def produce_to_a_negative_partition(t):
    send(t, t.topic(), batch(), partition=-1)


@case
def produce_to_an_invalid_topic_name(t):
    send(t, "no/such name", batch())


@case
def produce_with_acks_2(t):
    send(t, t.topic(), batch(), acks=2)


@case
def produce_with_acks_minus_2(t):
    send(t, t.topic(), batch(), acks=-2)


@case
def produce_with_acks_1(t):
    send(t, t.topic(), batch(), acks=1)


@case
def produce_with_acks_0(t):
    topic = t.topic()
    t.silent("Produce", 9, produce(topic, batch(), acks=0))
    send(t, topic, batch())


@case
def produce_with_acks_0_to_an_unknown_topic(t):
    t.silent("Produce", 9, produce(t.unique("topic"), batch(), acks=0))


@case
def produce_with_acks_0_and_a_wrong_checksum(t):
    t.silent("Produce", 9, produce(t.topic(), batch(crc=1), acks=0))


@case
def produce_without_topics(t):
    t.ask("Produce", 9, {"acks": -1, "timeout_ms": 5000, "topic_data": []})


@case
def produce_null_records(t):
    send(t, t.topic(), None)


@case
def produce_no_records(t):
    send(t, t.topic(), b"")


@case
def produce_a_wrong_checksum(t):
    send(t, t.topic(), batch(crc=0x12345678))


@case
def produce_a_batch_ending_early(t):
    send(t, t.topic(), batch()[:-3])


@case
def produce_half_a_header(t):
    send(t, t.topic(), batch()[:30])


@case
def produce_bytes_of_no_meaning(t):
    send(t, t.topic(), bytes(range(1, 100)))


@case
def produce_a_batch_longer_than_it_says(t):
    send(t, t.topic(), batch() + b"more")


@case
def produce_a_batch_of_length_0(t):
    send(t, t.topic(), batch(length=0))


@case
def produce_a_batch_of_negative_length(t):
    send(t, t.topic(), batch(length=-1))


@case
def produce_two_batches_in_one_partition(t):
    send(t, t.topic(), batch() + batch())


@case
def produce_magic_0(t):
    send(t, t.topic(), old_message(0))


@case
def produce_magic_1(t):
    send(t, t.topic(), old_message(1))


@case
def produce_magic_3(t):
    send(t, t.topic(), batch(magic=3))


@case
def produce_magic_minus_1(t):
    send(t, t.topic(), batch(magic=-1))


@case
def produce_more_records_than_counted(t):
    send(t, t.topic(), batch([b"a", b"b", b"c"], count=2))


@case
def produce_fewer_records_than_counted(t):
    send(t, t.topic(), batch([b"a", b"b"], count=3, last_delta=2))


@case
def produce_a_count_that_does_not_fit_the_last_offset(t):
    send(t, t.topic(), batch([b"a", b"b"], last_delta=5))


@case
def produce_a_count_of_0(t):
    send(t, t.topic(), batch([], last_delta=0))


@case
def produce_a_negative_count(t):
    send(t, t.topic(), batch(count=-1))


@case
def produce_a_negative_last_offset(t):
    send(t, t.topic(), batch(last_delta=-1))


@case
def produce_offsets_that_are_not_consecutive(t):
    send(t, t.topic(), batch([b"a", b"b"], deltas=[0, 5], last_delta=1))


@case
def produce_a_base_offset_that_is_not_0(t):
    send(t, t.topic(), batch(base_offset=77))


@case
def produce_records_of_no_meaning(t):
    send(t, t.topic(), batch(payload=b"\xff" * 20, count=1))


@case
def produce_an_unknown_compression(t):
    send(t, t.topic(), batch(attributes=7))


@case
def produce_a_compression_beyond_zstd(t):
    send(t, t.topic(), batch(attributes=5))


@case
def produce_gzip(t):
    send(t, t.topic(), batch([b"a", b"b"], attributes=1))


@case
def produce_gzip_that_is_none(t):
    send(t, t.topic(), batch(payload=b"not gzip", attributes=1))


def of_codec(t, codec, data, version=9, **more):
    """Sends to a topic that wants a codec, and fetches what has come of it."""
    topic = t.topic(compression_type=codec, **more)
    send(t, topic, data, version)
    t.ask("Fetch", 12, {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": [{"topic": topic, "partitions": [
        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}]})


@case
def produce_to_topics_that_want_another_codec(t):
    for codec in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"):
        of_codec(t, codec, batch([b"a", b"b", b"c"]))
        of_codec(t, codec, batch([b"a", b"b", b"c"], attributes=1))


@case
def produce_what_is_no_record_to_a_topic_of_a_codec(t):
    of_codec(t, "zstd", batch(payload=b"\xff" * 20, count=1))
    of_codec(t, "zstd", batch(payload=b"not gzip", attributes=1))
    of_codec(t, "gzip", batch([b"a", b"b"], deltas=[0, 5], last_delta=1))
    of_codec(t, "gzip", batch([b"a", b"b", b"c"], count=2, last_delta=1))
    of_codec(t, "gzip", batch([b"a", b"b"], count=3, last_delta=2))


@case
def produce_what_is_too_large_when_it_is_unpacked(t):
    of_codec(t, "uncompressed", batch([b"x" * 50_000], attributes=1), max_message_bytes=10_000)


@case
def produce_zstd_before_version_7(t):
    send(t, t.topic(), batch(payload=b"\x28\xb5\x2f\xfd", attributes=4), version=6)


@case
def produce_a_control_batch(t):
    send(t, t.topic(), batch(attributes=0x20))


@case
def produce_a_control_batch_of_a_producer(t):
    pid, epoch = t.producer()
    send(t, t.topic(), batch(attributes=0x20, pid=pid, epoch=epoch, sequence=0))


@case
def produce_with_unused_attributes(t):
    send(t, t.topic(), batch(attributes=0x4000))


@case
def produce_with_append_time_in_the_attributes(t):
    send(t, t.topic(), batch(attributes=0x08))


@case
def produce_with_a_transactional_batch(t):
    pid, epoch = t.producer()
    send(t, t.topic(), batch(attributes=0x10, pid=pid, epoch=epoch, sequence=0))


@case
def produce_without_a_timestamp(t):
    send(t, t.topic(), batch(first=-1, last=-1))


@case
def produce_a_timestamp_in_the_far_future(t):
    send(t, t.topic(), batch(first=9_000_000_000_000))


@case
def produce_a_timestamp_older_than_the_topic_allows(t):
    send(t, t.topic(message_timestamp_before_max_ms=1000), batch())


@case
def produce_a_batch_too_large(t):
    send(t, t.topic(max_message_bytes=200), batch([b"x" * 300]))


@case
def produce_a_null_key_to_a_compacted_topic(t):
    send(t, t.topic(cleanup_policy="compact"), batch(key=None))


@case
def produce_some_null_keys_to_a_compacted_topic(t):
    payload = b"".join(record(at, None if at in (1, 3) else b"key", b"value") for at in range(5))
    send(t, t.topic(cleanup_policy="compact"), batch(payload=payload, count=5, last_delta=4))


@case
def produce_some_timestamps_older_than_the_topic_allows(t):
    then = int(time.time() * 1000) - 100_000
    payload = b"".join(record(at, b"key", b"value", time=0 if at in (0, 2) else 100_000) for at in range(4))
    send(t, t.topic(message_timestamp_before_max_ms=50_000), batch(payload=payload, count=4, last_delta=3, first=then, last=then + 100_000))


@case
def produce_with_append_time_as_the_topic_wants(t):
    send(t, t.topic(message_timestamp_type="LogAppendTime"), batch())


@case
def produce_with_too_few_replicas(t):
    send(t, t.topic(min_insync_replicas=2), batch())


@case
def produce_with_too_few_replicas_and_acks_1(t):
    send(t, t.topic(min_insync_replicas=2), batch(), acks=1)


@case
def produce_to_one_topic_twice_in_a_request(t):
    topic = t.topic(2)
    parts = [{"index": at, "records": batch()} for at in (0, 1, 0)]
    t.ask("Produce", 9, {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": parts}]})


@case
def produce_good_and_bad_partitions(t):
    topic = t.topic(2)
    parts = [{"index": 0, "records": batch()}, {"index": 1, "records": batch(crc=1)}, {"index": 2, "records": batch()}]
    t.ask("Produce", 9, {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": parts}]})


@case
def produce_with_a_transactional_id(t):
    body = {**produce(t.topic(), batch()), "transactional_id": "peers-none"}
    t.ask("Produce", 9, body)


@case
def sequence_in_order(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    for at in range(3):
        send(t, topic, batch([b"a", b"b"], pid=pid, epoch=epoch, sequence=at * 2))


@case
def sequence_repeated(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    for at in (0, 1, 2, 3, 4, 5, 5, 3, 1):
        send(t, topic, batch(pid=pid, epoch=epoch, sequence=at))


@case
def sequence_repeated_too_late(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    for at in (0, 1, 2, 3, 4, 5, 0):
        send(t, topic, batch(pid=pid, epoch=epoch, sequence=at))


@case
def sequence_repeated_with_another_count(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    send(t, topic, batch([b"a", b"b"], pid=pid, epoch=epoch, sequence=0))
    send(t, topic, batch([b"a"], pid=pid, epoch=epoch, sequence=0))


@case
def sequence_with_a_gap(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=0))
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=5))
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=1))


@case
def sequence_that_does_not_begin_at_0(t):
    pid, epoch = t.producer()
    send(t, t.topic(), batch(pid=pid, epoch=epoch, sequence=5))


@case
def sequence_of_a_producer_nobody_knows(t):
    send(t, t.topic(), batch(pid=987_654_321, epoch=0, sequence=0))


@case
def sequence_of_an_old_epoch(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    send(t, topic, batch(pid=pid, epoch=epoch + 3, sequence=0))
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=1))


@case
def sequence_of_a_new_epoch(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=0))
    send(t, topic, batch(pid=pid, epoch=epoch + 1, sequence=0))


@case
def sequence_of_a_new_epoch_that_does_not_begin_at_0(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=0))
    send(t, topic, batch(pid=pid, epoch=epoch + 1, sequence=1))


@case
def sequence_beyond_the_largest(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    send(t, topic, batch([b"a", b"b"], pid=pid, epoch=epoch, sequence=0x7FFFFFFF))


@case
def sequence_missing(t):
    pid, epoch = t.producer()
    send(t, t.topic(), batch(pid=pid, epoch=epoch, sequence=-1))


@case
def sequence_with_a_negative_epoch(t):
    pid, _ = t.producer()
    send(t, t.topic(), batch(pid=pid, epoch=-1, sequence=0))


@case
def sequence_in_two_batches_of_one_request(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=0) + batch(pid=pid, epoch=epoch, sequence=1))


@case
def producer_id_in_every_version(t):
    t.producer()
    for version in range(6):
        t.ask("InitProducerId", version, {"transactional_id": None, "transaction_timeout_ms": 60_000})


@case
def producer_id_with_an_epoch_but_no_id(t):
    t.ask("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_epoch": 5})


@case
def producer_id_with_an_id_but_no_epoch(t):
    t.ask("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": 5})


@case
def producer_id_again(t):
    pid, epoch = t.producer()
    t.ask("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": pid, "producer_epoch": epoch})


@case
def producer_id_for_an_empty_transactional_id(t):
    t.ask("InitProducerId", 4, {"transactional_id": "", "transaction_timeout_ms": 60_000})


@case
def produce_without_acknowledgement_then_with(t):
    topic = t.topic()
    for _ in range(3):
        t.silent("Produce", 9, produce(topic, batch(), acks=0))
    send(t, topic, batch())


@case
def produce_to_a_deleted_topic(t):
    topic = t.topic()
    t.quiet("DeleteTopics", 4, {"topic_names": [topic], "timeout_ms": 5000})
    t.settled(lambda: t.quiet("Metadata", 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})["topics"][0]["error_code"] == 3)
    send(t, topic, batch())


@case
def produce_without_partitions(t):
    t.ask("Produce", 9, {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": t.topic(), "partition_data": []}]})


@case
def produce_with_a_negative_timeout(t):
    t.ask("Produce", 9, {**produce(t.topic(), batch()), "timeout_ms": -1})


@case
def produce_with_a_leader_epoch_of_ones_own(t):
    send(t, t.topic(), batch(leader_epoch=77))


@case
def sequence_of_two_producers(t):
    topic, one, other = t.topic(), t.producer(), t.producer()
    for sequence in (0, 1):
        for pid, epoch in (one, other):
            send(t, topic, batch(pid=pid, epoch=epoch, sequence=sequence))


@case
def sequence_survives_a_trim(t):
    topic, (pid, epoch) = t.topic(), t.producer()
    for sequence in (0, 1):
        send(t, topic, batch(pid=pid, epoch=epoch, sequence=sequence))
    parts = [{"partition_index": 0, "offset": -1}]
    t.quiet("DeleteRecords", 2, {"topics": [{"name": topic, "partitions": parts}], "timeout_ms": 5000})
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=2))
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=1))


@case
def sequence_is_per_partition(t):
    topic, (pid, epoch) = t.topic(2), t.producer()
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=0))
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=0), partition=1)
    send(t, topic, batch(pid=pid, epoch=epoch, sequence=1), partition=1)
