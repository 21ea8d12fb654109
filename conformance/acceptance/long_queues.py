"""Queues of RabbitMQ's clients with much in them: messages that are delayed, and priorities in a long queue."""

import json
import signal
import subprocess
import threading
import time

import pika
from driver import install
from machine import HERE, Folder, Mainstem, Steal

BYTES, DELAY_MS_MAX, PUBLISHERS = 200, 300_000, 2
LEVELS, CONSUMERS, HELD = 10, 100, 1_000_000
# The budget is what a broker has for caches and buffers: what it grows beside them is looked for.
MEMORY = ["--memory", "128MiB"]


def client():
    """The light client, built into the cache."""
    program, source = install.CACHE / "amqp_load", HERE / "amqp_load.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        install.CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O2", "-Wall", "-o", str(program), str(source), "-lpthread"], check=True)
    return str(program)


def begin(*words):
    return subprocess.Popen([client(), *map(str, words)], stdout=subprocess.PIPE, text=True)


def outcome(process, limit=1200):
    out, _ = process.communicate(timeout=limit)
    return json.loads(out.strip().splitlines()[-1])


def channel(system):
    host, port = system.broker.amqp.rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0)).channel()


class Watch(threading.Thread):
    """The largest resident size while it runs; a broker that is not there has none."""

    def __init__(self, system):
        super().__init__(daemon=True)
        self.system, self.most, self.ends = system, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ends.wait(0.2):
            try:
                self.most = max(self.most, self.system.rss_mb())
            except (OSError, KeyError):
                pass

    def end(self):
        self.ends.set()
        self.join()
        return self.most


def warm(system, queue, count):
    """Fills caches with what is consumed again, so that what grows after that is not theirs."""
    amqp = system.broker.amqp
    outcome(begin("publish", amqp, "", queue, count, BYTES))
    outcome(begin("consume", amqp, queue, count, 10))


def delays(report):
    """Five million messages of 200 bytes with delays of 1 to 300 s at random, published as fast as confirms allow, over two connections; one consumer.
    A kill −9 when half of the time is over. Late is counted from when a message was due; of those that fell due before the consumer was connected
    again after the kill, from then on; early is a message that comes before its delay has passed since it was sent. `--memory 128MiB`; what grows is
    counted from after 500,000 messages have passed through another queue."""
    count, longest, steal = report.amount(5_000_000), max(10_000, report.amount(DELAY_MS_MAX)), Steal()
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", *MEMORY).start()
        one = channel(system)
        one.exchange_declare("late", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
        one.queue_declare("late", durable=True)
        one.queue_bind("late", "late", "key")
        one.queue_declare("warm", durable=True)
        warm(system, "warm", 500_000)
        before, watch, began = system.rss_mb(), Watch(system), time.time()
        reader = begin("consume", system.broker.amqp, "late", count, longest // 1000 + 30)
        each = count // PUBLISHERS
        writers = [begin("publish", system.broker.amqp, "late", "key", each if number else count - each * (PUBLISHERS - 1), BYTES, "delay", 1000, longest, "from",
                         0 if number == 0 else count - each * (PUBLISHERS - number)) for number in range(PUBLISHERS)]
        for sent in map(outcome, writers):
            report.note(**sent)
        report.note(resident_mb_published=round(system.rss_mb()), seconds=round(time.time() - began, 1))
        time.sleep(max(0, longest / 2000 - (time.time() - began)))
        grown = watch.end() - before
        system.stop(signal.SIGKILL)
        restarted = time.time()
        system.start()
        report.note(ready_after_s=round(time.time() - restarted, 2))
        watch = Watch(system)
        got = outcome(reader, longest // 1000 + 120)
        grown = max(grown, watch.end() - before)
        report.note(**got, steal=steal.percent())
        system.stop()
    report.judge("messages that never came", count - got["distinct"], "0", got["distinct"] == count)
    report.judge("early", got["early"], "0", got["early"] == 0)
    report.judge("latest", got["latest_ms"] / 1000, "≤ 1 s", got["latest_ms"] <= 1000, " s")
    report.judge("came twice, after a kill", got["got"] - got["distinct"], "–", None)
    report.judge("resident growth", round(grown), "< 150 MB", grown < 150, " MB")


def priorities(report):
    """Ten million ready messages of 150 bytes with priorities 0 to 9 at random in one queue, then a million of them with 100 consumers, 10,000 each, who acknowledge
    one of theirs at random for each that they get. The empty queue: 20 messages a consumer while messages come. Then kill −9, and a consumer. At last
    a million messages of a queue without priorities, acknowledged in order by one consumer. What is written is all that the process writes."""
    count, held, steal = report.amount(10_000_000), report.amount(HELD), Steal()
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", *MEMORY).start()
        one = channel(system)
        for queue in ("empty", "long"):
            one.queue_declare(queue, durable=True, arguments={"x-max-priority": LEVELS})
        amqp = system.broker.amqp
        writer = begin("publish", amqp, "", "empty", 2_000_000, 150, "priority", LEVELS)
        empty = outcome(begin("hold", amqp, "empty", CONSUMERS, 20, 3))
        outcome(writer)
        one.queue_purge("empty")
        time.sleep(1)
        before, watch = system.rss_mb(), Watch(system)
        report.note(**outcome(begin("publish", amqp, "", "long", count + held, 150, "priority", LEVELS)), resident_mb=round(system.rss_mb()))
        taking = begin("hold", amqp, "long", CONSUMERS, held // CONSUMERS, 15)
        written, before_written = 0, system.write_bytes()
        full = outcome(taking)
        written, grown = system.write_bytes() - before_written, watch.end() - before
        report.note(empty=empty, full=full, written=written, steal=steal.percent())
        system.stop(signal.SIGKILL)
        began = time.time()
        system.start()
        ready = time.time() - began
        first = outcome(begin("hold", amqp, "long", 1, 1, 0))
        took = ready + first["first_ms"] / 1000
        report.note(ready_s=round(ready, 2), first=first)
        orderly, plain = report.amount(1_000_000), channel(system)
        plain.queue_declare("plain", durable=True)
        outcome(begin("publish", amqp, "", "plain", orderly, 150))
        # What is written in the background because of the publishing is over.
        time.sleep(2)
        before_written = system.write_bytes()
        report.note(orderly=outcome(begin("consume", amqp, "plain", orderly, 10)))
        time.sleep(0.2)
        in_order = (system.write_bytes() - before_written) / orderly
        system.stop()
    report.judge("resident growth", round(grown), "< 200 MB", grown < 200, " MB")
    report.judge("deliveries a second beside the empty queue's", round(full["per_s"] / empty["per_s"], 2), "≥ 0.5", full["per_s"] >= empty["per_s"] / 2)
    report.judge("out of order", full["out_of_order"], "0", full["out_of_order"] == 0)
    report.judge("restart to first delivery", round(took, 2), "< 2 s", took < 2, " s")
    report.judge("bytes written for an acknowledgement at random", round(written / max(1, full["acked"]), 1), "≤ 16", written <= 16 * full["acked"])
    report.judge("bytes written for an acknowledgement in order", round(in_order, 1), "≤ 16", in_order <= 16)
