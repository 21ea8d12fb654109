"""What the programs of this folder share: topics, readers, and somebody who kills."""

import random
import signal
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def create(bootstrap, topics):
    """Topics by name, with their numbers of partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        future.result(30)


def reader(bootstrap, topics, isolation="read_committed"):
    """Reads topics from their beginnings."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False, "isolation.level": isolation})
    consumer.assign([TopicPartition(name, partition, 0) for name, count in topics.items() for partition in range(count)])
    return consumer


def messages(consumer, seconds):
    """What comes within some seconds, without errors."""
    for message in consumer.consume(5000, seconds):
        assert not message.error(), message.error()
        yield message


def standing(broker, group, topics):
    """Where a group and its topics stand, as text: for whoever asks why something did not come to its end."""
    admin, lines = AdminClient({"bootstrap.servers": broker.bootstrap}), []
    described = admin.describe_consumer_groups([group])[group].result(20)
    lines.append(f"group {group}: {described.state.name}, {len(described.members)} members")
    for member in described.members:
        lines.append(f"  {member.client_id} {member.member_id}: {member.assignment.topic_partitions if member.assignment else None}")
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    lines += [f"  committed {place.topic}[{place.partition}] = {place.offset}" for place in committed.topic_partitions]
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = reader(broker.bootstrap, {}, isolation)
        for name, count in topics.items():
            ends = [consumer.get_watermark_offsets(TopicPartition(name, partition), 20) for partition in range(count)]
            lines.append(f"  {isolation}: {name} {ends}")
        consumer.close()
    lines += [line for line in broker.metrics().splitlines() if "transaction" in line and not line.startswith("#")]
    return "\n".join(lines)


class Killer:
    """Kills, now and then, the broker or one of some processes that somebody starts again."""

    def __init__(self, broker, first_after):
        self.broker, self.kills, self.due = broker, 0, time.time() + first_after

    def turn(self, processes):
        if time.time() < self.due:
            return
        self.due = time.time() + random.uniform(1, 4)
        self.kills += 1
        victim = random.choice([*processes, self.broker])
        if victim is self.broker:
            self.broker.end(signal.SIGKILL)
            self.broker.start()
        else:
            victim.kill()
