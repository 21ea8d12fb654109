"""One queue, worked off by AMQP consumers (pika) and members of a Kafka share group (franz-go) at once: each message is done by one of them, and
both have a part in it. With a fifth argument the same with members of both that are killed at random: what is acknowledged for certain is so once, what was not
comes again, and both see how often a message was given out. Arguments: HOST:PORT of AMQP, HOST:PORT of Kafka, the franz-go program, how many
messages, for how many seconds members are killed. (`member HOST:PORT QUEUE`: an AMQP consumer, to be killed.)"""

import collections
import random
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


def member(amqp, queue):
    """Says what it gets, what it acknowledges, and of what it knows that the broker has heard of it, in the words of the franz-go program."""
    host, port = amqp.rsplit(":", 1)
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    channel, got = connection.channel(), []
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume(queue, lambda _c, method, properties, body: got.append((method.delivery_tag, properties, body.decode())))
    while True:
        connection.process_data_events(0.05)
        for _, properties, body in got:
            print(f"member got {time.time_ns() // 1000} {(properties.headers or {}).get('x-delivery-count', 0) + 1} {body}", flush=True)
        # What it works on when it is killed.
        time.sleep(random.uniform(0, 0.03))
        for tag, _, body in got:
            print(f"member says {body}", flush=True)
            channel.basic_ack(tag)
        if got:
            # An answer to what came behind them: the broker has them.
            channel.basic_qos(prefetch_count=10)
            for _, _, body in got:
                print(f"member done {body}", flush=True)
            got.clear()


class Members:
    """Processes of one kind, each with a file of what it says."""

    def __init__(self, folder, name, command):
        self.folder, self.name, self.command, self.files, self.process = Path(folder), name, command, [], None

    def start(self):
        self.files.append(self.folder / f"{self.name}-{len(self.files)}.out")
        with open(self.files[-1], "wb") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=subprocess.DEVNULL)

    def end(self):
        self.process.kill()
        self.process.wait(20)

    def lines(self):
        """Words of whole lines, by file."""
        for path in self.files:
            yield [line.split() for line in path.read_text(errors="replace").splitlines(keepends=True) if line.endswith("\n")]


def told(kinds):
    """(when, count) of each delivery, how often each was said to be done, and who has said anything of it; by message."""
    deliveries, done, said = collections.defaultdict(list), collections.Counter(), collections.Counter()
    for kind in kinds:
        for lines in kind.lines():
            values = {}
            for words in lines:
                match words[1:]:
                    case ["got", when, count, value]:
                        deliveries[value].append((int(when), int(count)))
                    case ["got", partition, offset, count, _began, when, *_, value]:
                        values[partition, offset] = value
                        deliveries[value].append((int(when), int(count)))
                    case ["says", partition, offset, "ACCEPT", _when]:
                        said[values[partition, offset]] += 1
                    case ["done", partition, offset, "ACCEPT", _when]:
                        done[values[partition, offset]] += 1
                    case ["says", value]:
                        said[value] += 1
                    case ["done", value]:
                        done[value] += 1
    return deliveries, done, said


def killed(amqp, kafka, program, seconds):
    host, port = amqp.rsplit(":", 1)
    channel = pika.BlockingConnection(pika.ConnectionParameters(host, int(port))).channel()
    queue = f"killed-{time.time_ns()}"
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": -1})
    channel.confirm_delivery()
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as folder:
        of_kafka = [program, "share", kafka, GROUP, queue, str(LOCK_MS), "keys", "member"]
        of_amqp = [sys.executable, __file__, "member", amqp, queue]
        kinds = [Members(folder, f"kafka-{at}", of_kafka) for at in range(2)] + [Members(folder, f"amqp-{at}", of_amqp) for at in range(2)]
        try:
            [kind.start() for kind in kinds]
            until, next_kill, number, kills = time.time() + seconds, time.time() + 2, 0, 0
            while time.time() < until:
                channel.basic_publish("", queue, str(number).encode(), pika.BasicProperties(delivery_mode=2))
                number += 1
                if time.time() > next_kill:
                    victim = random.choice(kinds)
                    victim.end()
                    victim.start()
                    kills, next_kill = kills + 1, time.time() + random.uniform(0.3, 1.5)
            wanted, until = {str(at) for at in range(number)}, time.time() + PATIENCE
            while True:
                deliveries, done, said = told(kinds)
                left = channel.queue_declare(queue, passive=True).method.message_count
                open_still = {value for value in wanted - set(done) if not said[value]}
                if not open_still and not left:
                    break
                assert time.time() < until, f"{len(open_still)} are not done, {left} are ready"
                time.sleep(0.2)
            # What was said and not heard of by who was killed comes again, or was heard.
            time.sleep(2)
            deliveries, done, said = told(kinds)
        finally:
            [kind.end() for kind in kinds]
        twice = [value for value, times in done.items() if times > 1]
        assert not twice, f"{len(twice)} were done twice: {[(value, deliveries[value]) for value in twice[:3]]}"
        assert set(done) <= wanted and wanted <= set(done) | set(said), "what was published is what was done"
        unsure = len(wanted - set(done))
        for value, times in deliveries.items():
            counts = [count for _, count in sorted(times)]
            assert all(one < other for one, other in zip(counts, counts[1:])), f"deliveries of {value}, whoever had it, are counted as {counts}"
        again = sum(len(times) > 1 for times in deliveries.values())
        assert again and kills > seconds / 4, (again, kills)
        print(f"{number} messages, {kills} members killed, {again} messages given out again, {unsure} done of which nobody heard")
        channel.queue_delete(queue)


if __name__ == "__main__":
    if sys.argv[1] == "member":
        member(*sys.argv[2:])
    main(*sys.argv[1:4], int(sys.argv[4]))
    if len(sys.argv) > 5:
        killed(*sys.argv[1:4], float(sys.argv[5]))
