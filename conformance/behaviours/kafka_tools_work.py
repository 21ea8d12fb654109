"""The tools of Kafka's distribution that look at a cluster and change it: each says here, in substance, what it says of a real Kafka node
with the same topic. Arguments: bootstrap, seconds (not used here)."""

import json
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.tools import Machine

PACKAGE = "org.apache.kafka.tools"
CLASSES = {
    "kafka-features": f"{PACKAGE}.FeatureCommand", "kafka-leader-election": f"{PACKAGE}.LeaderElectionCommand",
    "kafka-reassign-partitions": f"{PACKAGE}.reassign.ReassignPartitionsCommand",
    "kafka-metadata-quorum": f"{PACKAGE}.MetadataQuorumCommand", "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-log-dirs": f"{PACKAGE}.LogDirsCommand", "kafka-transactions": f"{PACKAGE}.TransactionsCommand",
    "kafka-groups": f"{PACKAGE}.GroupsCommand", "kafka-consumer-groups": f"{PACKAGE}.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": f"{PACKAGE}.GetOffsetShell", "kafka-delete-records": f"{PACKAGE}.DeleteRecordsCommand",
    "kafka-topics": f"{PACKAGE}.TopicCommand", "kafka-cluster": f"{PACKAGE}.ClusterTool",
    "kafka-broker-api-versions": f"{PACKAGE}.BrokerApiVersionsCommand",
    "kafka-console-producer": f"{PACKAGE}.ConsoleProducer", "kafka-console-consumer": f"{PACKAGE}.consumer.ConsoleConsumer",
}
NODE = "1"

bootstrap = sys.argv[1]
topic = group = f"tools-{time.time_ns()}"
folder = tempfile.TemporaryDirectory(prefix="mainstem-tools-")


def file(name, content):
    path = Path(folder.name) / name
    path.write_text(json.dumps(content))
    return str(path)


PLACE = file("place.json", {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [int(NODE)]}]})
ELECTED = file("elect.json", {"partitions": [{"topic": topic, "partition": 0}]})
ELSEWHERE = file("elsewhere.json", {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [7]}]})


machine = Machine()


def tool(name, *words, says=(), fails=False, text=""):
    """Runs one; what it prints has to match all of `says`, which are patterns."""
    before, after = (words[:1], words[1:]) if name == "kafka-cluster" else ((), words)
    status, out = machine.run([CLASSES[name], *before, "--bootstrap-server", bootstrap, *after], text)
    called = f"{name} {' '.join(words)}"
    assert (status != 0) == fails, f"{called} ended with {status}: {out.strip()[-300:]}"
    for pattern in says:
        assert re.search(pattern, out, re.MULTILINE), f"{called} does not say {pattern!r}: {out.strip()[:400]}"
    return out


tool("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=600000", says=[f"Created topic {topic}"])
tool("kafka-console-producer", "--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
     text="".join(f"key:{number}\n" for number in range(10)))
offsets = tool("kafka-get-offsets", "--topic", topic)
sizes = {int(part): int(end) for part, end in re.findall(rf"^{topic}:(\d):(\d+)$", offsets, re.MULTILINE)}
assert sorted(sizes.values()) == [0, 10], f"kafka-get-offsets says {offsets}"
full = max(sizes, key=sizes.get)
TRIMMED = file("trim.json", {"version": 1, "partitions": [{"topic": topic, "partition": full, "offset": 4}]})

plain = f"{topic}-plain"
tool("kafka-topics", "--create", "--topic", plain)
overridden = tool("kafka-topics", "--describe", "--topics-with-overrides", says=[rf"^Topic: {topic}\s"])
assert plain not in overridden, f"{plain} has no settings of its own: {overridden}"
tool("kafka-topics", "--create", "--topic", plain.replace("-", "."), "--partitions", "1")
tool("kafka-topics", "--create", "--topic", plain.replace("-", "_"), "--partitions", "1", fails=True, says=["collides with existing topic"])
tool("kafka-topics", "--delete", "--topic", plain)
tool("kafka-topics", "--delete", "--topic", plain.replace("-", "."))

tool("kafka-features", "describe", says=[r"^Feature: transaction\.version .*FinalizedVersionLevel: 2", r"^Feature: metadata\.version .*4\.3"])
tool("kafka-features", "upgrade", "--feature", "transaction.version=2", says=["^transaction.version was upgraded to 2"])
tool("kafka-features", "upgrade", "--feature", "transaction.version=9", fails=True,
     says=["^Could not upgrade transaction.version to 9. .*Invalid update version 9 for feature transaction.version",
           r"^1 out of 1 operation\(s\) failed"])
tool("kafka-features", "upgrade", "--feature", "no.such.feature=1", fails=True, says=["Could not upgrade no.such.feature to 1"])
tool("kafka-leader-election", "--election-type", "preferred", "--path-to-json-file", ELECTED,
     says=[f"^Valid replica already elected for partitions {topic}-0"])
tool("kafka-leader-election", "--election-type", "unclean", "--topic", topic, "--partition", "1",
     says=[f"^Valid replica already elected for partitions {topic}-1"])
tool("kafka-leader-election", "--election-type", "preferred", "--topic", "nobody", "--partition", "0", fails=True,
     says=[r"nobody-0: .*UnknownTopicOrPartitionException", r"^1 replica\(s\) could not be elected"])
tool("kafka-reassign-partitions", "--list", says=["^No partition reassignments found"])
tool("kafka-reassign-partitions", "--execute", "--reassignment-json-file", PLACE,
     says=[f"^Successfully started partition reassignment for {topic}-0"])
tool("kafka-reassign-partitions", "--execute", "--reassignment-json-file", ELSEWHERE, fails=True, says=["Unknown broker id 7"])
tool("kafka-reassign-partitions", "--verify", "--reassignment-json-file", PLACE,
     says=[f"^Reassignment of partition {topic}-0 is completed", f"^Clearing broker-level throttles on broker {NODE}",
           f"^Clearing topic-level throttles on topic {topic}"])
tool("kafka-reassign-partitions", "--cancel", "--reassignment-json-file", PLACE,
     says=["^None of the specified partition reassignments are active", f"^Clearing topic-level throttles on topic {topic}"])
tool("kafka-metadata-quorum", "describe", "--status", says=[rf"^LeaderId: +{NODE}$", r"^HighWatermark: +\d+$", r"^CurrentObservers: +\[\]"])
tool("kafka-metadata-quorum", "describe", "--replication", says=[rf"^{NODE} .*Leader"])
tool("kafka-log-dirs", "--describe", "--topic-list", topic,
     says=[rf'"partition":"{topic}-{full}","size":[1-9]\d*,"offsetLag":0,"isFuture":false', '"error":null'])
tool("kafka-transactions", "list", says=["^TransactionalId"])
tool("kafka-transactions", "describe-producers", "--topic", topic, "--partition", str(full), says=[r"^ProducerId", r"^\d+\s+0\s"])
tool("kafka-transactions", "find-hanging", "--broker-id", NODE, says=["^Topic"])
tool("kafka-transactions", "describe", "--transactional-id", "nobody", fails=True, says=["nobody. failed because the ID could not be found"])
tool("kafka-cluster", "cluster-id", says=[r"^Cluster ID: \S{22}$"])
tool("kafka-cluster", "list-endpoints", says=[rf"^{NODE} .*unfenced +broker"])
tool("kafka-broker-api-versions", says=[r"Produce\(0\): 0 to 13", r"UpdateFeatures\(57\): 0 to 2"])
tool("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", NODE, says=[f"^Dynamic configs for broker {NODE} are"])
tool("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", NODE, "--all", says=["^  num.partitions="])
ALL, OWN = ("--entity-type", "brokers", "--entity-default"), ("--entity-type", "brokers", "--entity-name", NODE)
tool("kafka-configs", "--alter", *ALL, "--add-config", "message.max.bytes=3000000", says=["^Completed updating default config for brokers in the cluster"])
tool("kafka-configs", "--describe", *ALL, says=["^  message.max.bytes=3000000 .*{DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=3000000"])
tool("kafka-configs", "--alter", *OWN, "--add-config", "message.max.bytes=2000000", says=[f"^Completed updating config for broker {NODE}"])
tool("kafka-configs", "--describe", *OWN, says=["^  message.max.bytes=2000000 .*{DYNAMIC_BROKER_CONFIG:message.max.bytes=2000000, "
                                                "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=3000000, DEFAULT_CONFIG:message.max.bytes=1048588}"])
tool("kafka-configs", "--alter", *OWN, "--add-config", "message.max.bytes=many", fails=True, says=["InvalidRequestException.*message.max.bytes"])
tool("kafka-configs", "--alter", *OWN, "--add-config", "socket.request.max.bytes=2000000", fails=True, says=["InvalidRequestException.*socket.request.max.bytes"])
for entity in (ALL, OWN):
    tool("kafka-configs", "--alter", *entity, "--delete-config", "message.max.bytes", says=["^Completed updating"])
assert "message.max.bytes" not in tool("kafka-configs", "--describe", *OWN)
tool("kafka-configs", "--alter", "--topic", topic, "--add-config", "nonsense=1", fails=True, says=["InvalidConfigurationException"])
tool("kafka-configs", "--describe", "--topic", "nobody", says=["^The topic 'nobody' doesn't exist"])

tool("kafka-configs", "--alter", "--topic", topic, "--add-config", "retention.ms=700000,max.message.bytes=2000", says=["^Completed updating"])
tool("kafka-configs", "--alter", "--topic", topic, "--delete-config", "max.message.bytes", says=["^Completed updating"])
described = tool("kafka-configs", "--describe", "--topic", topic, says=["^  retention.ms=700000 "])
assert "max.message.bytes" not in described, described
tool("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "10", "--group", group, "--timeout-ms", "30000",
     says=["Processed a total of 10 messages"])
tool("kafka-groups", "--list", says=[rf"^{group} +Classic +consumer"])
tool("kafka-consumer-groups", "--list", says=[f"^{group}$"])
tool("kafka-consumer-groups", "--describe", "--group", group, says=[rf"^{group} +{topic} +{full} +10 +10 +0 "])
tool("kafka-consumer-groups", "--describe", "--group", group, "--state", says=[rf"^{group} .*Empty +0"])
tool("kafka-consumer-groups", "--describe", "--group", "nobody", says=["GroupIdNotFoundException"])
tool("kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-3", "--execute", says=[rf"{topic} +{full} +7"])
tool("kafka-delete-records", "--offset-json-file", TRIMMED, says=[rf"^partition: {topic}-{full}\s+low_watermark: 4"])
tool("kafka-consumer-groups", "--describe", "--group", group, says=[rf"^{group} +{topic} +{full} +7 +10 +3 "])
tool("kafka-get-offsets", "--topic", topic, "--time", "earliest", says=[f"^{topic}:{full}:4$"])
tool("kafka-get-offsets", "--topic", topic, "--time", "max-timestamp", says=[rf"^{topic}:{full}:\d$"])
tool("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic, says=[rf"{topic} +{full} +Successful"])
tool("kafka-consumer-groups", "--delete", "--group", group, says=["was successful"])
tool("kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
tool("kafka-topics", "--describe", "--topic", topic, says=["PartitionCount: 3", rf"Partition: 2\s+Leader: {NODE}\s+Replicas: {NODE}\s+Isr: {NODE}"])
tool("kafka-topics", "--delete", "--topic", topic)
machine.process.stdin.close()
machine.process.wait(30)
print(f"{len(CLASSES)} tools do what they do with a Kafka node")
