"""Many messages that die at once, and what that does to everybody else."""

import signal
import time

from confluent_kafka import Consumer as KafkaConsumer, TopicPartition
from long_queues import begin, channel, outcome
from machine import Folder, Mainstem, Steal, finish, load, start_load
from statistics import median

BYTES, PAIRS, RATE = 200, 3, 5000
PACED = ["linger.ms=5", "acks=all"]
# Longest wait for all dead letters of a round.
PATIENCE_S = 300


class Grave:
    """Where the dead letters come, counted by the end of its log: that asks nothing of the queue."""

    def __init__(self, system, queue):
        self.client = KafkaConsumer({"bootstrap.servers": system.bootstrap, "group.id": "look", "log_level": 0})
        self.place = TopicPartition(queue, 0)

    def end(self):
        return self.client.get_watermark_offsets(self.place, timeout=30)[1]

    def wait_for(self, end):
        """Until so many have come; how many have in time."""
        deadline = time.time() + PATIENCE_S
        while (now := self.end()) < end and time.time() < deadline:
            time.sleep(0.01)
        return now

    def close(self):
        self.client.close()


def declare(one):
    one.queue_declare("dead", durable=True)
    one.queue_declare("jobs", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})


def lay(system, one, count):
    """Messages whose time is over, behind one without end: they expire together when that is taken."""
    one.basic_publish("", "jobs", b"x" * BYTES)
    report = outcome(begin("publish", system.broker.amqp, "", "jobs", count, BYTES, "expire", 1))
    if report["confirmed"] != count:
        raise RuntimeError(f"{report['confirmed']} of {count} confirmed")


def strike(one):
    method, _, body = one.basic_get("jobs", auto_ack=True)
    if method is None or body != b"x" * BYTES:
        raise RuntimeError("the first message is not there")


def taken(system, count, idle):
    """All that comes out of the dead-letter queue: one more is asked for than there may be, so that it ends when nothing comes."""
    return outcome(begin("consume", system.broker.amqp, "dead", count + 1, idle))


def latency(system, seconds):
    return start_load("latency", system.bootstrap, "live", 1, seconds, RATE, *PACED)


def pair(report, system, one, grave, count, seconds):
    """(p99 undisturbed, p99 while all die, letters a second, whether each came once)."""
    lay(system, one, count)
    # What is written in the background because of the publishing is over.
    time.sleep(2)
    alone = finish(latency(system, seconds))
    before, steal = grave.end(), Steal()
    beside, began = latency(system, seconds), time.time()
    strike(one)
    came = grave.wait_for(before + count) - before
    took = time.time() - began
    other = finish(beside)
    got = taken(system, count, 3)
    report.note(letters=came, seconds=round(took, 2), distinct=got["distinct"], got=got["got"], alone=alone, beside=other, steal=steal.percent())
    return alone["p99_ms"], other["p99_ms"], count / took if came >= count else 0, came == got["distinct"] == got["got"] == count


def killed(report, system, one, grave, count):
    """(distinct letters, all letters) when the broker is killed after half of them."""
    lay(system, one, count)
    before = grave.end()
    strike(one)
    half = grave.wait_for(before + count // 2) - before
    system.stop(signal.SIGKILL)
    began = time.time()
    system.start()
    again = Grave(system, "dead")
    came = again.wait_for(before + count) - before
    again.close()
    report.note(letters_before_the_kill=half, letters=came, restart_to_all_s=round(time.time() - began, 2))
    got = taken(system, count, 5)
    report.note(distinct=got["distinct"], got=got["got"])
    return got["distinct"], got["got"]


def letters(report):
    """A million messages of 200 bytes expire at once, when the one that is ahead of them is taken, and go through the default exchange to a dead-letter queue;
    meanwhile a Kafka client publishes 5,000 records a second to another queue. Its p99 is compared with that of the same seconds before; medians
    of three alternating pairs. Then a kill −9 when half of a million have arrived. One journal, durability `fsync`."""
    count, seconds = report.amount(1_000_000), max(2, report.amount(6))
    with Folder() as folder:
        system = Mainstem(f"{folder}/data").start()
        try:
            one = channel(system)
            declare(one)
            one.queue_declare("live", durable=True)
            load("latency", system.bootstrap, "live", 1, 3, RATE, *PACED)
            grave = Grave(system, "dead")
            rows = [pair(report, system, one, grave, count, seconds) for _ in range(PAIRS)]
            distinct, got = killed(report, system, one, grave, count)
            grave.close()
        finally:
            system.stop()
    alone, beside, rates = (median(row[at] for row in rows) for at in range(3))
    report.judge("each dead letter once, in all rounds", "yes" if all(row[3] for row in rows) else "no", "yes", all(row[3] for row in rows))
    report.judge("dead letters a second", round(rates), ">= 50000", rates >= 50_000)
    report.judge("publish p99 of another queue while they die, against before", round(beside / alone, 2), "<= 2", beside <= 2 * alone)
    report.judge("dead letters that are missing after the kill", count - distinct, "0", distinct == count)
    report.judge("dead letters that came twice after the kill", got - distinct, "<= 1 %", (got - distinct) * 100 <= count)
