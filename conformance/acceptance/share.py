"""A share group beside the real Kafka's, in alternating pairs."""

import json
import os
import statistics
import subprocess

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from driver import install
from machine import BULK, Folder, Kafka, Mainstem, Steal, admin, create, load

PAIRS, MEMBERS, PARTITIONS = 3, 8, 4
RECORD_MB = 1.024e-3


def share_run(report, system, records):
    """Writes, then has a group accept all of it; broker CPU from the first member's coming to the last confirmation."""
    create(system.bootstrap, "shared", PARTITIONS)
    load("produce", system.bootstrap, "shared", PARTITIONS, max(1, round(records * RECORD_MB)), *BULK)
    client, rows = admin(system.bootstrap), []
    # The first group warms both up.
    for group in ("first", "second"):
        wish = [ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)]
        for future in client.incremental_alter_configs([ConfigResource(ResourceType.GROUP, group, incremental_configs=wish)]).values():
            future.result(30)
        rows.append(accept(system, group, records))
        report.note(system=system.name, group=group, **rows[-1])
    return rows[-1]


def accept(system, group, records):
    before, steal = system.cpu(), Steal()
    words = [system.bootstrap, group, "shared", str(MEMBERS), str(records), "batch_optimized"]
    members = subprocess.Popen(install.java_command("ShareLoad", *words, quick=False), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        told = json.loads(members.stdout.readline())
        cpu = system.cpu() - before
    finally:
        members.stdin.close()
        members.wait(60)
    return dict(records_s=round(told["records"] / told["seconds"]), cpu_us_record=round(cpu / told["records"] * 1e6, 3), seconds=told["seconds"],
                client_cores=round(told["client_cpu_s"] / told["seconds"], 2), broker_cores=round(cpu / told["seconds"], 2),
                again=told["delivered"] - told["records"], failed=told["failed"], steal_percent=steal.percent())


def share(report):
    """A share group with 8 members of the Java client, threads of one process, over 4 partitions; 1 KiB records, which were written
    before in batches of up to 1 MB; each record is accepted, the acceptances travel with the next fetch. Mainstem with durability
    `memory`, Kafka with its defaults (the same promise: a killed process loses nothing). Fresh folders, alternating, three pairs,
    medians; in each run a first group reads all of it before the one that is measured."""
    ours, theirs, records = [], [], report.amount(1_000_000)
    for _ in range(PAIRS):
        with Folder() as folder:
            ours.append(measured(report, Mainstem(f"{folder}/data", "--durability", "memory"), records))
        theirs.append(measured(report, Kafka(None), records))

    def middle(rows, name):
        return statistics.median(row[name] for row in rows)
    cpu = middle(ours, "cpu_us_record") / middle(theirs, "cpu_us_record")
    speed = middle(ours, "records_s") / middle(theirs, "records_s")
    report.note(cores=os.cpu_count(), **{f"{name}_{what}": middle(rows, what) for name, rows in (("ours", ours), ("theirs", theirs))
                                         for what in ("cpu_us_record", "records_s", "client_cores", "broker_cores")})
    report.judge("share group: broker CPU per accepted record, ours / Kafka's", round(cpu, 3), "<= 0.333", cpu <= 1 / 3)
    report.judge("share group: records accepted per second, ours / Kafka's", round(speed, 2), ">= 1.5", speed >= 1.5)


def measured(report, system, records):
    system.start()
    try:
        return share_run(report, system, records)
    finally:
        system.stop()
