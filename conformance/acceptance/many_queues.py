"""Many queues: declared at once, there again after a kill, and short-lived ones without an end."""

import json
import signal
import subprocess
import time

from machine import ROOT, Folder, Mainstem, admin

QUEUES, CONNECTIONS, CHURN_S = 50_000, 16, 60
# A broker gives back unused memory when it has had nothing to do for 10 to 20 s.
REST_S = 25


def queue_load(broker, *arguments):
    """What the program says that declares and drops queues."""
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "queue-load"], check=True, cwd=ROOT)
    command = [str(ROOT / "target/release/queue-load"), broker.broker.amqp, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout)


def topics(broker):
    return len(admin(broker.bootstrap).list_topics(timeout=60).topics)


def many_queues(report):
    """50,000 durable queues over 16 connections, each declared when the one before it on its connection is there; again after SIGKILL; then
    1,000 exclusive auto-delete queues a second for a minute, each on a connection of its own: declared, bound, used for one message, and dropped
    by closing. Memory is all that is resident, caches included, with a memory budget of 256 MiB that is used up before; after the restart, what is
    resident beyond what a broker without queues has when it has started. What stays of the short-lived ones is seen when the broker has rested."""
    with Folder() as folder:
        broker = Mainstem(f"{folder}/data", "--memory", "256MiB").start()
        try:
            run(report, broker)
        finally:
            broker.stop(signal.SIGKILL)


def run(report, broker):
    empty = broker.rss_mb()
    # The caches of the budget fill with what is published, and are full from then on.
    warm = queue_load(broker, "churn", "--rate", 4000, "--seconds", report.amount(20), "--per-connection", 200)
    count, before = report.amount(QUEUES), broker.rss_mb()
    report.note(warmed_by=warm["queues"], rss_mb_empty=empty, rss_mb_before=before)
    declared = queue_load(broker, "declare", "--queues", count, "--connections", CONNECTIONS)
    report.note(**declared)
    report.judge("durable queues declared a second", declared["rate"], ">= 5,000", declared["rate"] >= 5000)
    time.sleep(2)
    each = (broker.rss_mb() - before) * 1024 / count
    report.judge("resident memory of a queue", round(each, 2), "< 2 KB", each < 2, " KB")
    broker.stop(signal.SIGKILL)
    began = time.time()
    broker.start()
    restarted = time.time() - began
    report.judge("restart after SIGKILL", round(restarted, 3), "< 2 s", restarted < 2, " s")
    report.judge("resident memory of a queue after the restart", round((broker.rss_mb() - empty) * 1024 / count, 2), "< 2 KB",
                 (broker.rss_mb() - empty) * 1024 / count < 2, " KB")
    again = queue_load(broker, "declare", "--queues", count, "--connections", CONNECTIONS)
    report.note(again=again["rate"], rss_mb_after_restart=broker.rss_mb(), topics=topics(broker))
    assert topics(broker) == count, "each queue is a topic, and nothing else is"
    churn(report, broker)


def churn(report, broker):
    seconds = report.amount(CHURN_S)
    queue_load(broker, "churn", "--rate", 4000, "--seconds", report.amount(20), "--per-connection", 200)
    time.sleep(REST_S)
    before, was = broker.rss_mb(), topics(broker)
    result = queue_load(broker, "churn", "--rate", 1000, "--seconds", seconds)
    time.sleep(REST_S)
    after = broker.rss_mb()
    report.note(**result, rss_mb_before=before, rss_mb_after=after)
    report.judge("short-lived queues a second", result["rate"], ">= 1,000", result["rate"] >= 990)
    report.judge("memory that stays behind", round(after - before, 1), "< 16 MB", after - before < 16, " MB")
    report.judge("topics that Kafka clients see more", topics(broker) - was, "0", topics(broker) == was)
    broker.stop(signal.SIGKILL)
    broker.start()
    report.judge("topics after another restart", topics(broker), f"{was}", topics(broker) == was)
