"""One queue, worked off by AMQP consumers (pika) and members of a Kafka share group (franz-go) at once: each message is done by one of them, and
both have a part in it. Then the same with members of both that are killed at random, the worst way (SIGKILL), and now and then all at once.

What "done once" means when members are killed: a member writes down what it gets, what it acknowledges before it does, and what it then knows
that the broker has heard: it waits for an answer. Nobody knows of an acknowledgement that was sent and not answered: the broker has it, and the
message does not come again, or has it not, and it does. So nothing that a client was told is done may be given out again, nothing is told twice,
and whatever nobody was told of has been acknowledged by the last one who had it. The broker's own count of acknowledgements is
exactly that of the messages.

Both faces count deliveries alike: what each member is told is one more than whoever had the message before, and what management says
of messages that wait, of each and in all, is what members are told next. Arguments: the binary, the franz-go program, for how
many seconds members are killed. (`member HOST:PORT QUEUE`: an AMQP consumer, to be killed.)"""

import collections
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pika

from faces import GROUP, comes, management, messages, parameters, queue as described
from driver.broker import Broker
from group import configure, flags, lags

LOCK_MS = 30_000
PATIENCE = 40
# While nobody is killed.
MESSAGES = 2000
# Messages that are looked at through management in a pause.
LOOKS = 100


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


def both(broker, program):
    channel = pika.BlockingConnection(parameters(broker)).channel()
    queue = f"together-{time.time_ns()}"
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as folder:
        path, consumer = Path(folder) / "member.out", Consumer(parameters(broker), queue)
        with open(path, "wb") as out:
            command = [program, "share", broker.bootstrap, GROUP, queue, str(LOCK_MS), "keys", "member"]
            member = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        try:
            consumer.start()
            until, number = time.time() + PATIENCE, 0
            # Until both have begun, and then so many.
            while number < MESSAGES or not (consumer.done and worked(path)):
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
        comes("what is left", (0, 0), lambda: messages(broker, queue))
        comes("acknowledgements", (number, number, 0), lambda: stats(broker, queue))
        print(f"AMQP has done {len(consumer.done)}, Kafka {len(worked(path))}")
        channel.queue_delete(queue)


def stats(broker, queue):
    """(deliveries, acknowledgements, deliveries that were not the first) as management has them, through whichever face."""
    found = described(broker, queue).get("message_stats", {})
    return found.get("deliver_get", 0), found.get("ack", 0), found.get("redeliver", 0)


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
            print(f"member got {time.time_ns() // 1000} {(properties.headers or {}).get('x-acquired-count', 0) + 1} {body}", flush=True)
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


class Worker:
    """Processes of one kind, one after the other, each with a file of what it says."""

    def __init__(self, folder, name, command):
        self.folder, self.name, self.command, self.files, self.process = Path(folder), name, command, [], None

    def start(self):
        self.files.append(self.folder / f"{self.name}-{len(self.files)}.out")
        with open(self.files[-1], "wb") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=subprocess.DEVNULL)

    def end(self):
        if self.process:
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


class Killing:
    """A queue that is filled and worked off while its workers are killed."""

    def __init__(self, broker, program, folder):
        self.broker, self.number, self.kills, self.looks = broker, 0, 0, {}
        self.channel = pika.BlockingConnection(parameters(broker)).channel()
        self.queue = f"killed-{time.time_ns()}"
        self.channel.queue_declare(self.queue, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": -1})
        self.channel.confirm_delivery()
        of_kafka = [program, "share", broker.bootstrap, GROUP, self.queue, str(LOCK_MS), "keys", "member"]
        of_amqp = [sys.executable, __file__, "member", broker.amqp, self.queue]
        commands = {"kafka-0": of_kafka, "kafka-1": of_kafka, "amqp-0": of_amqp, "amqp-1": of_amqp}
        self.workers = [Worker(folder, name, command) for name, command in commands.items()]

    def publish(self):
        self.channel.basic_publish("", self.queue, str(self.number).encode(), pika.BasicProperties(delivery_mode=2))
        self.number += 1

    def run(self, seconds):
        """Kills one after the other, and a few times all of them, to look at what waits then."""
        [worker.start() for worker in self.workers]
        until, next_kill = time.time() + seconds, time.time() + 1.5
        next_pause = time.time() + random.uniform(0.4, 0.7) * min(seconds, 15)
        while time.time() < until:
            self.publish()
            if time.time() > next_kill:
                victim = random.choice(self.workers)
                victim.end()
                victim.start()
                self.kills, next_kill = self.kills + 1, time.time() + random.uniform(0.3, 1.5)
            if time.time() > next_pause:
                self.pause()
                [worker.start() for worker in self.workers]
                next_pause = time.time() + random.uniform(5, 15)
        # Nobody is killed any more: what is looked at now comes once more.
        self.pause()
        for _ in range(10):
            if any(self.looks.values()):
                break
            [worker.start() for worker in self.workers]
            time.sleep(1)
            self.pause()
        for worker in self.workers[::2]:
            worker.start()

    def pause(self):
        """Kills all: both faces see the same, and of each message how often it was given out."""
        [self.publish() for _ in range(LOOKS)]
        [worker.end() for worker in self.workers]
        self.kills += len(self.workers)
        # Whoever is not missed yet may be given what others had.
        comes("connections of the dead", (0, 0), self.connected)
        comes("what the dead have", 0, lambda: messages(self.broker, self.queue)[1])
        ready, lag = messages(self.broker, self.queue)[0], lags(self.broker.bootstrap, GROUP, self.queue, 1)[0]
        assert ready == lag, f"management sees {ready} messages, Kafka {lag}"
        self.looks = {}
        deliveries, done, _ = told(self.workers)
        wish = {"count": LOOKS, "ackmode": "ack_requeue_true", "encoding": "auto"}
        for one in management(self.broker, "POST", f"queues/%2F/{self.queue}/get", wish):
            count = one["properties"].get("headers", {}).get("x-acquired-count", 0)
            self.looks[one["payload"]] = count
            assert one["redelivered"] == (count > 0), one
            assert one["payload"] not in done, f"{one['payload']} is there, though somebody was told that it is done"
            known = max((told for _, told in deliveries[one["payload"]]), default=0)
            # A member that was killed may have been given it before it could say so.
            assert known <= count, f"{one['payload']}: {known} deliveries are known, management says {count}"

    def connected(self):
        """AMQP consumers of the queue, and connections of Kafka clients."""
        kafka = re.search(r"^mainstem_kafka_connections (\d+)", self.broker.metrics(), re.M)
        return described(self.broker, self.queue)["consumers"], int(kafka[1])

    def drained(self):
        """Waits until all is done, as the broker has it and as far as members know."""
        until = time.time() + PATIENCE
        while messages(self.broker, self.queue) != (0, 0):
            assert time.time() < until, f"{messages(self.broker, self.queue)} are left"
            time.sleep(0.2)
        # What they have acknowledged is answered.
        time.sleep(1)
        return told(self.workers)

    def check(self):
        deliveries, done, said = self.drained()
        wanted = {str(at) for at in range(self.number)}
        twice = [value for value, times in done.items() if times > 1]
        assert not twice, f"{len(twice)} were done twice: {[(value, deliveries[value]) for value in twice[:3]]}"
        assert set(done) <= wanted <= set(done) | set(said), "what was published is what was done"
        for value, times in deliveries.items():
            counts = [count for _, count in sorted(times)]
            assert all(one < other for one, other in zip(counts, counts[1:])), f"deliveries of {value}, whoever had it, are counted as {counts}"
        last = {value: max(count for _, count in times) for value, times in deliveries.items()}
        # One more through management, and one more after that.
        wrong = {value: (count, last[value]) for value, count in self.looks.items() if last[value] != count + 2}
        assert not wrong, f"management and members count differently: {list(wrong.items())[:3]}"
        total, firsts = sum(last.values()), len(wanted)
        comes("deliveries, acknowledgements and redeliveries, as management counts them", (total, firsts, total - firsts), lambda: stats(self.broker, self.queue))
        assert lags(self.broker.bootstrap, GROUP, self.queue, 1)[0] == 0
        again, again_looked_at = total - firsts, sum(count > 0 for count in self.looks.values())
        assert again and again_looked_at and self.kills, (again, again_looked_at, self.kills)
        print(f"{firsts} messages, {self.kills} members killed, {again} deliveries again, {firsts - len(done)} done of which nobody heard, "
              f"{len(self.looks)} looked at by both faces, {again_looked_at} of them given out before")


def killed(broker, program, seconds):
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as folder:
        killing = Killing(broker, program, folder)
        try:
            killing.run(seconds)
            killing.check()
        finally:
            [worker.end() for worker in killing.workers]
        killing.channel.queue_delete(killing.queue)


def main(binary, program, seconds):
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        broker = Broker(binary, f"{scratch}/data", flags()).start()
        try:
            configure(broker.bootstrap, GROUP, share_record_lock_duration_ms=LOCK_MS)
            both(broker, program)
            killed(broker, program, seconds)
        finally:
            broker.end(9)


if __name__ == "__main__":
    if sys.argv[1] == "member":
        member(*sys.argv[2:])
    else:
        main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
