"""All tables, whether they are complete, and the page that is made of them. The lists that they are held against are those that the cost test has its rows
from: the notation of Kafka's messages, the broker's table of AMQP methods, the routes that are documented or served."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "cost"))
import amqp_rows
import http_rows
from kafka_rows import schema

import amqp_table
import api_table
import kafka_table
import v1_table
from model import ADMINISTRATION, AMQP, KAFKA, MANAGEMENT

ROOT = HERE.parents[1]
PAGE = ROOT / "docs/operations/decisions.md"
TABLES = {KAFKA: kafka_table.ROWS, AMQP: amqp_table.ROWS, ADMINISTRATION: v1_table.ROWS, MANAGEMENT: api_table.ROWS}
ROWS = [row for rows in TABLES.values() for row in rows]
# What fields of Kafka's requests name.
FIELDS = {"group": {"group_id", "groups", "group_ids", "groups_names", "coordinator_keys"}, "id": {"transactional_id", "transactional_ids"},
          "topic": {"topic", "topics", "topic_name", "topic_names", "topic_id", "topic_data", "subscribed_topic_names", "source_topics", "topic_partitions"}}
OF_KIND = {"spare": "topic", "new": "topic", "some topic": "topic"}
# APIs whose requests name something that is not asked for, and why.
NOT_ASKED = {
    "DescribeLogDirs": "the log folders are the cluster's", "AlterReplicaLogDirs": "the log folders are the cluster's", "DescribeQuorum": "the quorum's log is the cluster's",
    "AlterPartitionReassignments": "replicas are the cluster's", "ListPartitionReassignments": "replicas are the cluster's", "ElectLeaders": "replicas are the cluster's",
    "WriteTxnMarkers": "is sent by brokers",
}


def named(fields):
    for field in fields:
        yield field.name
        if field.kind not in schema.PLAIN:
            yield from named(field.fields)


def touched():
    """What Kafka's requests name and no row of their API asks for."""
    for name, api in schema.load().items():
        own = {OF_KIND.get(place, place) for row in kafka_table.ROWS if row.name == name for place in row.places}
        fields = {*named(api.request)}
        for kind, names in FIELDS.items():
            if fields & names and kind not in own and name not in NOT_ASKED:
                yield f"Kafka {name}: no row asks for the {kind} that requests name"


def listed(described=None):
    """Names of all operations, by protocol; `described`: by the broker, of /v1."""
    def of_page(path):
        lines = (line.split("|") for line in (ROOT / path).read_text().splitlines() if line.startswith("| ") and "| /v1" in line)
        return [f"{cells[1].strip()} {cells[2].strip()}" for cells in lines]
    v1 = [f"{method} {path}" for method, path in http_rows.described_routes(described)] if described else of_page("docs/api.md")
    return {KAFKA: [*schema.load()], AMQP: amqp_rows.client_methods(), ADMINISTRATION: v1,
            MANAGEMENT: [f"{method} {path.removeprefix('/api')}" for method, path in http_rows.management_routes()]}


def missing(described=None):
    """Operations without a row, rows without an operation, and resources that no row asks for."""
    out = []
    for protocol, names in listed(described).items():
        rows = {row.name for row in TABLES[protocol]}
        out += [f"{protocol} {name} has no row" for name in dict.fromkeys(names) if name not in rows]
        out += [f"{protocol} {name} has a row, and is not there" for name in sorted(rows - {*names})]
    seen = set()
    for row in ROWS:
        if row.title in seen:
            out.append(f"{row.title} has two rows")
        seen.add(row.title)
    return [*out, *touched()]


HEAD = """# Decisions

What each operation takes, by protocol. This page is made from the tables in `conformance/decisions` (`conformance/decisions/decisions.py --page`), and
`conformance/run decisions` asks a broker for each row: somebody who has exactly what is required, and somebody for each requirement who lacks it. What lies behind it is in
[users and permissions](../adr/0018-users.md) and [access control entries](../adr/0021-acls.md); what is open by default in [security](security.md).

- `Read topic` with a capital letter is an access control entry that allows the operation on the resource. Entries are asked for where `authorizer.class.name` is set; super users
  and users with tag `administrator` need none. A queue and an exchange are topics for entries, under the names that Kafka clients see; the group of queues is `amqp.queue`, or what
  `x-share-group` says.
- `read queue` with a small letter is a permission of the user for the name, in its virtual host. `write-key` and `read-key` are permissions for the routing key, where the user has any
  for the exchange.
- `tag monitoring` is a tag; administrators have all of them, and `tag management` is any tag. `look vhost` is some permission in the virtual host, or tag `monitoring`; `enter vhost` is
  some permission in it. `see topic` is any permission for it and an entry for `Describe`, or tag `monitoring`. `own connection`: it is the user's.
- All that is named in a row is required, unless there is an *or*. *Left out*: the answer is as if it were not there.
"""
ABOUT = {
    KAFKA: "A topic that is a queue takes a permission as well, in the queue's virtual host: read for `Read`, write for `Write`, any for `Describe` and `DescribeConfigs`, configure for all others. Super "
           "users and administrators need none; who has no permission for the queue at all is answered as if there were no such topic. Without an authorizer a topic of its own "
           "to which a queue is attached counts as the queue. Without an authorizer settings of brokers, quotas and keys of SCRAM are for administrators, and so are settings of group `amqp.queue`; of keys "
           "of SCRAM a client without a login is told that there are none.",
    AMQP: "Administrators need permissions like everybody else.",
    ADMINISTRATION: "Users with tag `administrator` may do everything. A topic that is a queue is judged in the queue's virtual host, other topics and groups count as things of virtual host `/`. Settings of group "
                    "`amqp.queue` are for administrators. The console asks for the same, with a session in place of a password.",
    MANAGEMENT: "Administrators need permissions like everybody else.",
}
WORDS = {KAFKA: "API", AMQP: "method", ADMINISTRATION: "route", MANAGEMENT: "route"}


# What a place is called where it need not be told apart from others.
CALLED = {"spare": "topic", "new": "topic", "new queue": "queue", "new exchange": "exchange", "topic exchange": "exchange", "topic source": "source", "filtered group": "group", "under": "queue",
          "dead letters": "topic of dead letters", "matched": "all that the pattern matches"}


def shown(verb, place):
    return f"{verb} {'topic' if place == 'under' and verb in ('Alter', 'Read', 'Write') else CALLED.get(place, place)}"


def page():
    out = [HEAD]
    for protocol, rows in TABLES.items():
        out += [f"## {protocol if protocol != AMQP else 'AMQP 0-9-1'}", "", ABOUT[protocol], "", f"| {WORDS[protocol]} | | requires | otherwise |", "|---|---|---|---|"]
        for row in rows:
            required = ", ".join(" or ".join(f"`{shown(verb, place)}`" for verb, place in need.ways) for need in row.needs)
            refusals = ", ".join(dict.fromkeys(need.refusal for need in row.needs))
            out.append(f"| {row.name} | {row.about} | {required or 'nothing'} | {refusals or '–'} |")
        out.append("")
    return "\n".join(out)


def page_is_old():
    return None if PAGE.exists() and PAGE.read_text() == page() else "docs/operations/decisions.md is not what the tables say: conformance/decisions/decisions.py --page writes it"


