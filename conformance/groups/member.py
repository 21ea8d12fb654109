"""A member of a group on librdkafka that says what it reads, one JSON object a line, as Kafka's VerifiableConsumer does.
Arguments: bootstrap, topic, group, protocol (classic or consumer)."""

import json
import signal
import sys

from confluent_kafka import Consumer, KafkaError

bootstrap, topic, group, protocol = sys.argv[1:]
ending = []
signal.signal(signal.SIGTERM, lambda *_: ending.append(True))


def say(name, **what):
    print(json.dumps({"name": name, **what}), flush=True)


def partitions(found):
    return [{"topic": one.topic, "partition": one.partition} for one in found]


wish = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "reconnect.backoff.max.ms": 500}
if protocol == "classic":
    wish |= {"partition.assignment.strategy": "range", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
consumer = Consumer(wish)
consumer.subscribe([topic], on_assign=lambda _, found: say("partitions_assigned", partitions=partitions(found)),
                   on_revoke=lambda _, found: say("partitions_revoked", partitions=partitions(found)))
while not ending:
    messages = consumer.consume(500, 0.2)
    spans = {}
    for message in messages:
        if message.error():
            assert message.error().code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.COORDINATOR_NOT_AVAILABLE,
                                              KafkaError.UNKNOWN_TOPIC_OR_PART), message.error()
            continue
        first, last = spans.get(message.partition(), (message.offset(), message.offset()))
        spans[message.partition()] = min(first, message.offset()), max(last, message.offset())
    if spans:
        say("records_consumed", partitions=[{"partition": at, "minOffset": first, "maxOffset": last} for at, (first, last) in spans.items()])
        try:
            consumer.commit(asynchronous=False)
        except Exception as error:
            # The group has gone on, or the broker is away: somebody reads it again.
            say("commit_failed", error=str(error))
consumer.close()
say("shutdown_complete")
