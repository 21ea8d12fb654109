"""Groups of eight members of the Java client, dynamic and static, of both protocols, are restarted one member after the other under load.
Every record is read, nobody is put out, and no more partitions move than those of the member that goes and comes back.
Arguments: bootstrap, seconds (not used here)."""

import json
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver import install

MEMBERS, SHARE, RESTARTS = 8, 2, 8
bootstrap, name = sys.argv[1], f"rolling-{time.time_ns()}"
admin = AdminClient({"bootstrap.servers": bootstrap})
wish = {"message.timestamp.type": "LogAppendTime"}
for future in admin.create_topics([NewTopic(name, MEMBERS * SHARE, 1, config=wish)]).values():
    future.result(30)
groups = [f"{name}-{protocol}-{kind}:{protocol}:{kind}" for protocol in ("consumer", "classic") for kind in ("dynamic", "static")]
for group in groups:
    quick = [ConfigEntry("consumer.heartbeat.interval.ms", "500", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.GROUP, group.split(":")[0], incremental_configs=quick)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
words = [bootstrap, name, MEMBERS * SHARE, MEMBERS, RESTARTS, 500, 200, *groups]
out = subprocess.run(install.java_command("Rolling", *map(str, words)), capture_output=True, text=True, timeout=150)
assert out.returncode == 0, out.stderr[-1000:]
rows = [json.loads(line) for line in out.stdout.splitlines()]
assert len(rows) == len(groups), out.stdout
for row in rows:
    for what in ("errors", "skipped", "lost", "owned_twice"):
        assert row[what] == 0, f"{what}: {row}"
    if row["group"].endswith("static"):
        assert row["moved"] == RESTARTS * SHARE, f"only who was away gets partitions: {row}"
    elif "-consumer-" in row["group"]:
        assert row["moved"] <= RESTARTS * SHARE * 2, f"what one member had goes to others and comes back: {row}"
for future in admin.delete_topics([name]).values():
    future.result(30)
