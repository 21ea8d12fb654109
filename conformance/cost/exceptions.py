"""What may cost more than the judge allows, and why. A line is a pattern of names of rows, the kind of fault, and the reason; one that nothing needs
any more is named by `cost.py --full`."""

import re

EXCEPTIONS = [
    (r"^(JoinGroup|SyncGroup|ConsumerGroupHeartbeat|ShareGroupHeartbeat|StreamsGroupHeartbeat) .*, kept$", "kept",
     "what a member says of itself is the group's until the member leaves"),
    (r"^(OffsetCommit|TxnOffsetCommit|CreateAcls|AlterClientQuotas|IncrementalAlterConfigs|AlterConfigs|AlterShareGroupOffsets|AlterUserScramCredentials|InitProducerId) .*, kept$", "kept",
     "what is stored stays"),
    (r"^AlterShareGroupOffsets .* topics\.partitions", "memory", "a subscription is made for each partition, and stays"),
    (r"^AlterClientQuotas .* entries, ", "memory", "each entry is checked and has an outcome before any is written, and what is set stays"),
    (r"^Produce v\d+ topic_data, the same$", "memory", "each entry has an outcome of its own; 101 MiB are measured where 105 are allowed, 106 beside other work"),
    (r"^Metadata v0 topics, distinct$", "memory", "the topics are created, and stay"),
    (r"^Produce .*, kept$", "kept", "records stay in memory for those who read them next, within the budget"),
    (r"^POST /api/definitions(/\{vhost\})? with many fields$", "memory", "an administrator is told of each thing that is not known here, in an answer of six times the length"),
]


def excused(row, fault):
    """The line that a fault of a row falls under, if there is one."""
    return next((line for line in EXCEPTIONS if line[1] == fault.kind and re.search(line[0], row)), None)
