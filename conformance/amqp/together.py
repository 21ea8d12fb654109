"""One queue, worked off by AMQP consumers (pika) and members of a Kafka share group (franz-go) at once: each message is done by one of them, and
both have a part in it. Arguments: HOST:PORT of AMQP, HOST:PORT of Kafka, the franz-go program, how many messages."""

import collections
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pika
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

# The name under which share groups know the subscription of a queue.
GROUP = "amqp.queue"
LOCK_MS = 30_000
PATIENCE = 40


class Consumer(threading.Thread):
    def __init__(self, parameters, queue):
        super().__init__(daemon=True)
        self.parameters, self.queue, self.done, self.ends = parameters, queue, [], False

    def run(self):
        connection = pika.BlockingConnection(self.parameters)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume(self.queue, self.take)
        while not self.ends:
            connection.process_data_events(0.05)
        connection.close()

    def take(self, channel, method, _properties, body):
        time.sleep(0.001)
        channel.basic_ack(method.delivery_tag)
        self.done.append(body.decode())


def worked(path):
    """What the share group's member has done, of its lines `NAME worked … VALUE`."""
    lines = [line.split() for line in path.read_text(errors="replace").splitlines(keepends=True) if line.endswith("\n")]
    return [words[-1] for words in lines if words[1] == "worked"]


def main(amqp, kafka, program, count):
    host, port = amqp.rsplit(":", 1)
    parameters = pika.ConnectionParameters(host, int(port))
    channel = pika.BlockingConnection(parameters).channel()
    queue = f"together-{time.time_ns()}"
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    wish = [ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=wish)
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as folder:
        path, consumer = Path(folder) / "member.out", Consumer(parameters, queue)
        with open(path, "wb") as out:
            member = subprocess.Popen([program, "share", kafka, GROUP, queue, str(LOCK_MS), "keys", "member"], stdout=out, stderr=subprocess.DEVNULL)
        try:
            consumer.start()
            until, number = time.time() + PATIENCE, 0
            # Until both have begun, and then so many.
            while number < count or not (consumer.done and worked(path)):
                channel.basic_publish("", queue, str(number).encode(), pika.BasicProperties(delivery_mode=2))
                number += 1
                assert time.time() < until, f"AMQP has done {len(consumer.done)}, Kafka {len(worked(path))} of {number}"
            while len(consumer.done) + len(worked(path)) < number:
                assert time.time() < until, f"AMQP has done {len(consumer.done)}, Kafka {len(worked(path))} of {number}"
                time.sleep(0.1)
        finally:
            member.terminate()
            member.wait(20)
        consumer.ends = True
        consumer.join(10)
        times = collections.Counter([*consumer.done, *worked(path)])
        assert len(times) == number and set(times.values()) == {1}, [one for one in times.items() if one[1] != 1][:5]
        left = channel.queue_declare(queue, passive=True).method.message_count
        assert left == 0, f"{left} messages are left"
        print(f"AMQP has done {len(consumer.done)}, Kafka {len(worked(path))}")
        channel.queue_delete(queue)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
