"""A rolling restart of groups with 50 members, beside the real Kafka's, in alternating pairs."""

import json
import statistics
import subprocess
from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from driver import install
from machine import Folder, Kafka, Mainstem, Steal, admin, create

PAIRS, MEMBERS, SHARE, RESTARTS = 3, 50, 2, 10
AWAY_MS, QUICK_MS = 500, 500
# Longer than a rebalance of the classic protocol takes: all members are told within 3 s; no multiple of that, for they are told at once.
INTERVAL_MS, STATIC_INTERVAL_MS = 3700, 1000
# A member asks for records every 100 ms; two runs of one broker differ by as much as a tenth beyond that.
RESOLUTION_MS, SPREAD = 100, 1.1
# A group may not have a shorter interval than the broker allows.
SHORTEST = f"group.consumer.min.heartbeat.interval.ms={QUICK_MS}"
DYNAMIC = ["quick:consumer:dynamic", "defaults:consumer:dynamic", "sticky:classic:dynamic"]
STATIC = ["static-quick:consumer:static", "static-sticky:classic:static"]


def systems(folder):
    yield Mainstem(f"{folder}/data", "--set", SHORTEST)
    properties = Path(folder) / "server.properties"
    properties.write_text(SHORTEST + "\n")
    yield Kafka(None, properties=str(properties))


def restarted(report, system, restarts, interval, groups):
    """A rolling restart of these groups, staggered; what became of each of them."""
    topic = f"rolled-{interval}"
    create(system.bootstrap, topic, MEMBERS * SHARE, message_timestamp_type="LogAppendTime")
    client = admin(system.bootstrap)
    for group in (words.split(":")[0] for words in groups if "quick" in words):
        wish = [ConfigEntry("consumer.heartbeat.interval.ms", str(QUICK_MS), incremental_operation=AlterConfigOpType.SET)]
        for future in client.incremental_alter_configs([ConfigResource(ResourceType.GROUP, group, incremental_configs=wish)]).values():
            future.result(30)
    words = [system.bootstrap, topic, MEMBERS * SHARE, MEMBERS, restarts, interval, AWAY_MS, *groups]
    print(f"      {system.name}: {', '.join(groups)}", flush=True)
    steal, cpu = Steal(), system.cpu()
    out = subprocess.run(install.java_command("Rolling", *map(str, words), quick=False), capture_output=True, text=True, timeout=400)
    if out.returncode != 0:
        raise RuntimeError(f"the members' process ended with status {out.returncode}: {out.stderr[-300:]}")
    report.note(system=system.name, steal_percent=steal.percent(), broker_cpu_s=round(system.cpu() - cpu, 1))
    rows = {}
    for row in map(json.loads, out.stdout.splitlines()):
        report.note(system=system.name, **row)
        bad = {name: row[name] for name in ("errors", "skipped", "owned_twice") if row[name]}
        if bad:
            raise RuntimeError(f"{system.name}, group {row['group']}: {bad}")
        rows[row["group"]] = row
    return rows


def rolling(report):
    """Three groups of 50 members of the Java client over 100 partitions, each of which gets a record every 20 ms: of the consumer
    protocol (KIP-848) with `consumer.heartbeat.interval.ms` 500, of the same with defaults, of the classic protocol with
    CooperativeStickyAssignor and defaults. Members are threads of one process that poll every 100 ms (a process each would be more than
    the machine's memory takes). One member after the other closes its consumer, is away for 500 ms and comes back; every 3.7 s one of
    each group, ten of each. Then, in the first pair, static members, every second one. The broker allows the shorter interval
    (`group.consumer.min.heartbeat.interval.ms`), clients of the consumer protocol have none of their own to set.

    A member's pause is the longest time from one poll with records to the next, without its own restart; a partition's pause the
    longest time in which nobody read on; it is unowned from the old owner's callback to the new one's. What records came late counts
    for neither pause. Three alternating pairs; the worst of each run, of that the median. Kafka with its defaults, and no waiting for
    the first members of a group; ours with its own."""
    full = report.scale >= 1
    restarts, found = max(2, report.amount(RESTARTS)), {"mainstem": [], "kafka": []}
    for pair in range(PAIRS if full else 1):
        with Folder() as folder:
            for system in systems(folder):
                system.start()
                try:
                    rows = restarted(report, system, restarts, INTERVAL_MS, DYNAMIC)
                    if pair == 0:
                        rows |= restarted(report, system, restarts, STATIC_INTERVAL_MS, STATIC)
                finally:
                    system.stop()
                found[system.name].append(rows)
    judge(report, found["mainstem"], found["kafka"])


def judge(report, ours, theirs):
    def worst(runs, group, what):
        return statistics.median(rows[group][f"{what}_worst"] for rows in runs if group in rows)

    def beside(group, what, said):
        mine, other = worst(ours, group, what), worst(theirs, group, what)
        most = other * SPREAD + RESOLUTION_MS
        report.judge(said, mine, f"<= {most:.0f} ms (Kafka's {other:g} ms, a tenth, {RESOLUTION_MS} ms)", mine <= most, " ms")
    pause = max(rows["quick"]["member_pause_worst"] for rows in ours)
    report.judge("consumer protocol, heartbeats every 500 ms: longest pause of a member in all runs", pause, "<= 1000 ms", pause <= 1000, " ms")
    beside("quick", "partition_pause", "the same: longest pause of a partition")
    beside("defaults", "member_pause", "consumer protocol, defaults: longest pause of a member")
    beside("defaults", "partition_pause", "the same: longest pause of a partition")
    beside("sticky", "unowned", "classic protocol, cooperative-sticky: a partition unowned")
    beside("sticky", "partition_pause", "the same: longest pause of a partition")
    beside("sticky", "member_pause", "the same: longest pause of a member")
    for group in ("static-quick", "static-sticky"):
        beside(group, "partition_pause", f"static members, {group.removeprefix('static-')}: longest pause of a partition")
        beside(group, "member_pause", "the same: longest pause of a member")
