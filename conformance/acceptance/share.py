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
    """Writes, then has two groups accept what was written; the second one is measured, the first one warms the broker up."""
    create(system.bootstrap, "shared", PARTITIONS)
    before = records // 5
    # The group does not come to the end: there fetches wait for records.
    load("produce", system.bootstrap, "shared", PARTITIONS, max(1, round((before + records) * 1.1 * RECORD_MB)), *BULK)
    client = admin(system.bootstrap)
    for group in ("first", "second"):
        wish = [ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)]
        for future in client.incremental_alter_configs([ConfigResource(ResourceType.GROUP, group, incremental_configs=wish)]).values():
            future.result(30)
        row = accept(system, group, before, records)
        report.note(system=system.name, group=group, **row)
    return row


def accept(system, group, before, records):
    """Speed and processor time of a group from when `before` records are accepted."""
    words = [system.bootstrap, group, "shared", str(MEMBERS), str(before), str(records), "batch_optimized"]
    members = subprocess.Popen(install.java_command("ShareLoad", *words, quick=False), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert members.stdout.readline().strip() == "begin"
        cpu, steal = system.cpu(), Steal()
        told = json.loads(members.stdout.readline())
        cpu = system.cpu() - cpu
    finally:
        members.stdin.close()
        members.wait(60)
    return dict(records_s=round(told["records"] / told["seconds"]), cpu_us_record=round(cpu / told["records"] * 1e6, 3), seconds=told["seconds"],
                client_cores=round(told["client_cpu_s"] / told["seconds"], 2), broker_cores=round(cpu / told["seconds"], 2),
                records_poll=round(told["records"] / told["polls"]), failed=told["failed"], steal_percent=steal.percent())


def share(report):
    """A share group with 8 members of the Java client, threads of one process, over 4 partitions; 1 KiB records, which were written
    before in batches of up to 1 MB; each record is accepted, the acceptances travel with the next fetch. Mainstem with durability
    `memory`, Kafka with its defaults (the same promise: a killed process loses nothing). Fresh folders, alternating, three pairs,
    medians. In each run a first group goes before the one that is measured, and of that the first sixth of the records does not count."""
    ours, theirs, records = [], [], report.amount(2_000_000)
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
