"""Random users, tags, permissions, entries and operations: each answer is the model's decision, and what is one operation by several protocols is decided
alike. A seed and the number of a block make the same again."""

import dataclasses
import random

from asked import NOT_IN, Asker, fits
from requirements import ABSENT
from model import ADMINISTRATION, AMQP, CLUSTER, KAFKA, MANAGEMENT, PERMISSIONS, Entry, Rules, User, Who
from node import FANOUT, GROUPS, IDS, SUPER, SUPERS, TOPIC, VHOSTS, candidates, places_of
from tables import ROWS

# Cases of one world; after a part of them some of it is changed.
BLOCK, CHANGED = 200, 25
# Nodes by their settings, and which share of the blocks is for each.
NODES = {"entries": Rules(True, False, SUPERS), "entries, open": Rules(True, True, SUPERS), "no entries": Rules(False, False, SUPERS)}
SHARES = ["entries", "entries", "entries", "entries, open", "no entries"]
NAMES = ("ada", "ben", "cleo", "dan", SUPER)
HOSTS = ("127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2")
TAGS = [(), ("management",), ("management",), ("management",), ("monitoring",), ("policymaker",), ("policymaker", "monitoring"), ("administrator",), ("administrator",), ("other",)]
PATTERNS = ("", ".*", ".*", ".*", "^work$", "^fresh", "^(news|events)$", r"^amq\.default$", "^(orders|bills|readers)", "^a b$", "s", "^[a-m]", "^stock|^under", "bridge")
KEYED = (r"^k\.", "^x", ".*", "", r"^k\.1$")
RESOURCES = {"Topic": ("orders", "bills", "stock", "spare", "fresh-1", "work", "a~20b", "shop~work", "shop~fresh-1", "news", "shop~news", "events", "amq.default", "under", "bridge", "shop~spare"),
             "Group": (*GROUPS, "filtered", "amqp.queue"), "TransactionalId": IDS, "Cluster": ("kafka-cluster",)}
PREFIXES = {"Topic": ("o", "s", "shop~", "fresh", "b", "work", "a", "ne"), "Group": ("r", "amqp", "o"), "TransactionalId": ("id", "id-1")}
VERBS = {"Topic": ("Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs", "All"), "Group": ("Read", "Describe", "Delete", "DescribeConfigs", "AlterConfigs", "All"),
         "TransactionalId": ("Describe", "Write", "All"), "Cluster": ("Create", "ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite", "Alter", "Describe", "Delete", "All")}
# What is done by several protocols, as (protocol, operation, what is told apart).
ALIKE = [
    *([(AMQP, "queue.declare", about), (MANAGEMENT, "PUT /queues/{vhost}/{name}", about), (ADMINISTRATION, "PUT /v1/queues/{vhost}/{queue}", about)]
      for about in ("", "that is new, with a dead-letter exchange", "that is new, over a topic that is there")),
    *([(AMQP, "exchange.declare", about), (MANAGEMENT, "PUT /exchanges/{vhost}/{name}", about), (ADMINISTRATION, "PUT /v1/exchanges/{vhost}/{exchange}", about)]
      for about in ("", "that is new, with an alternate exchange")),
    [(AMQP, "queue.delete", ""), (MANAGEMENT, "DELETE /queues/{vhost}/{name}", ""), (ADMINISTRATION, "DELETE /v1/queues/{vhost}/{queue}", "")],
    [(AMQP, "exchange.delete", ""), (MANAGEMENT, "DELETE /exchanges/{vhost}/{name}", ""), (ADMINISTRATION, "DELETE /v1/exchanges/{vhost}/{exchange}", "")],
    [(AMQP, "queue.purge", ""), (MANAGEMENT, "DELETE /queues/{vhost}/{name}/contents", ""), (ADMINISTRATION, "POST /v1/queues/{vhost}/{queue}/purge", "")],
    [(AMQP, "basic.get", ""), (AMQP, "basic.consume", ""), (MANAGEMENT, "POST /queues/{vhost}/{name}/get", "")],
    *([(AMQP, "basic.publish", about), (MANAGEMENT, "POST /exchanges/{vhost}/{name}/publish", about), (ADMINISTRATION, "POST /v1/exchanges/{vhost}/{exchange}/publish", about)]
      for about in ("", "to a topic exchange", "to the default exchange")),
    *([(AMQP, "queue.bind", about), (AMQP, "queue.unbind", about), (MANAGEMENT, "POST /bindings/{vhost}/e/{source}/q/{queue}", about), (ADMINISTRATION, "POST /v1/bindings/{vhost}", about)]
      for about in ("", "from a topic exchange")),
    [(AMQP, "exchange.bind", ""), (AMQP, "exchange.unbind", ""), (MANAGEMENT, "POST /bindings/{vhost}/e/{source}/e/{exchange}", ""), (ADMINISTRATION, "POST /v1/bindings/{vhost}", "of an exchange")],
    # Of topics that are queues; for others the administration API takes a permission as well.
    [(KAFKA, "Fetch", ""), (KAFKA, "Fetch", "by id"), (ADMINISTRATION, "GET /v1/topics/{topic}/records", "")],
    [(KAFKA, "Produce", ""), (KAFKA, "Produce", "by id"), (ADMINISTRATION, "POST /v1/topics/{topic}/records", "")],
    [(KAFKA, "IncrementalAlterConfigs", "of a topic"), (KAFKA, "AlterConfigs", "of a topic"), (ADMINISTRATION, "PATCH /v1/topics/{topic}/config", "")],
    [(KAFKA, "CreatePartitions", ""), (ADMINISTRATION, "POST /v1/topics/{topic}/partitions", "")],
    [(KAFKA, "DeleteRecords", ""), (ADMINISTRATION, "POST /v1/topics/{topic}/truncate", "")],
    [(KAFKA, "DeleteTopics", ""), (ADMINISTRATION, "DELETE /v1/topics/{topic}", "")],
    [(KAFKA, "Metadata", ""), (KAFKA, "Metadata", "of all topics"), (KAFKA, "DescribeTopicPartitions", ""), (KAFKA, "ListOffsets", "")],
]
BY_NAME = {(row.protocol, row.name, row.about): row for row in ROWS}
# Needs of HTTP that have nothing to do with the operation: with them, the others decide.
GATES = {"tag", "look", "see", "own"}


@dataclasses.dataclass
class Difference:
    text: str

    def __str__(self):
        return self.text


class Luck:
    """All that is random of one block."""

    def __init__(self, seed, block):
        self.random = random.Random(f"{seed}:{block}")
        self.rules = self.random.choice(SHARES)

    def user(self, name):
        """Half of them may most things, so that what refuses them is one thing."""
        luck, wide = self.random, self.random.random() < 0.5
        tags = () if name == SUPER and luck.random() < 0.5 else luck.choice(TAGS)

        def pattern():
            return ".*" if wide and luck.random() < 0.8 else luck.choice(PATTERNS)
        permissions = {vhost: tuple(pattern() for _ in PERMISSIONS) for vhost in VHOSTS if luck.random() < (0.95 if wide else 0.75)}
        keys = {vhost: {exchange: (luck.choice(KEYED), luck.choice(KEYED)) for exchange in (TOPIC, FANOUT) if luck.random() < 0.4} for vhost in permissions}
        return User(name, tags, permissions, keys)

    def entry(self):
        luck = self.random
        kind = luck.choices(("Topic", "Group", "TransactionalId", "Cluster"), (10, 4, 2, 3))[0]
        way = luck.random()
        pattern, name = "Literal", luck.choice(RESOURCES[kind])
        if kind != "Cluster" and way < 0.25:
            name = "*"
        elif kind != "Cluster" and way < 0.5:
            pattern, name = "Prefixed", luck.choice(PREFIXES[kind])
        principal = luck.choice([*(f"User:{one}" for one in NAMES for _ in range(3)), "User:*", "User:ANONYMOUS", "User:ANONYMOUS", "Group:ada"])
        operation = luck.choice([*VERBS[kind], "All", "All"])
        return Entry(kind, name, pattern, principal, luck.choice(("*", "*", "*", "127.0.0.1", "127.0.0.2", "10.9.8.7")), operation, "Deny" if luck.random() < 0.25 else "Allow")

    def entries(self):
        luck = self.random
        wide = [Entry(kind, "*" if kind != "Cluster" else CLUSTER, "Literal", f"User:{name}", "*", "All", "Allow") for name in NAMES for kind in RESOURCES if luck.random() < 0.45]
        return list(dict.fromkeys([*wide, *(self.entry() for _ in range(luck.randrange(30)))]))

    def who(self, row):
        name = self.random.choice([*NAMES, *([None] if row.protocol == KAFKA else [])])
        return Who(name, self.random.choice(HOSTS))

    def things(self, rows):
        vhost = "/" if any("under" in row.places for row in rows) else self.random.choice(VHOSTS)
        out = {}
        for row in rows:
            pools = dict(row.pools)
            for place in places_of(row):
                if place not in out:
                    out[place] = self.random.choice(candidates(pools.get(place, place), vhost))
        return out


class Cases:
    def __init__(self, nodes, seed, say=print, rows=ROWS):
        self.nodes, self.seed, self.say = nodes, seed, say
        self.rows = [row for row in rows if not row.alone and not row.untried]
        # As many of each protocol, whatever the number of its rows.
        self.by_protocol = {protocol: [row for row in self.rows if row.protocol == protocol] for protocol in (KAFKA, AMQP, ADMINISTRATION, MANAGEMENT)}
        self.alike = [[BY_NAME[one] for one in group] for group in ALIKE]
        self.counts = {protocol: [0, 0] for protocol in self.by_protocol}
        self.asked = self.compared = 0

    def run(self, count, first=0):
        """Differences; None where there is none. `first`: the number of the first block."""
        block = first
        while self.asked < count:
            if difference := self.block(block, min(BLOCK, count - self.asked)):
                return difference
            block += 1
        return None

    def block(self, block, count):
        luck = Luck(self.seed, block)
        node = self.nodes(luck.rules)
        asker, done = Asker(node), 0
        for name in NAMES:
            node.put_user(luck.user(name))
        node.put_entries(luck.entries())
        while done < count:
            if done and done // CHANGED != (done - 1) // CHANGED:
                node.put_user(luck.user(luck.random.choice(NAMES)))
                entries = [*node.applied.entries]
                luck.random.shuffle(entries)
                node.put_entries(sorted([*entries[luck.random.randrange(4):], *luck.entries()[:6]]) if luck.random.random() < 0.5 else sorted(node.applied.entries))
            if luck.random.random() < 0.2:
                group = luck.random.choice(self.alike)
                number, difference = self.all_of(node, asker, luck, group)
                done += number
            else:
                row = luck.random.choice(self.by_protocol[luck.random.choice([*self.by_protocol])])
                who, things = luck.who(row), luck.things([row])
                difference = self.one(node, asker, row, who, things, luck.random.random() < 0.3)[1]
                done += 1
            if difference:
                world = node.world
                return Difference(f"{difference}\n  seed {self.seed} block {block} (--seed {self.seed} --block {block}), node: {luck.rules}\n  users:\n"
                                  + "".join(f"    {world.users[name]}\n" for name in NAMES) + "  entries:\n" + "".join(f"    {tuple(entry)}\n" for entry in world.entries))
        return None

    def one(self, node, asker, row, who, things, console):
        """How it is refused, and how that differs from the model."""
        missing = row.missing(node.world, who, things)
        refused = asker.ask(row, who, things, session=console and row.protocol == ADMINISTRATION and bool(row.needs))
        if not any(need.refusal == ABSENT for need in missing):
            refused = refused - {ABSENT}
        self.asked += 1
        self.counts[row.protocol][bool(missing)] += 1
        if not refused:
            self.restore(node, row)
        # A connection is kept while he may no longer open another one.
        not_in = row.protocol == AMQP and not row.needs and refused == {NOT_IN} and not node.world.enters(who, "/")
        if fits(missing, refused) or not_in:
            return refused, None
        due = {need.text: need.refusal for need in missing}
        named = {place: tuple(thing) for place, thing in things.items()}
        return refused, f"{row.title} by {who} {'in a session ' if console else ''}with {named}: refused {sorted(refused) or 'nothing'}; by the model these needs are not met: {due or 'none'}"

    def all_of(self, node, asker, luck, group):
        """One operation by all protocols that have it."""
        who, things = Who(luck.random.choice(NAMES), luck.random.choice(HOSTS)), luck.things(group)
        # One name for what is there under several places of the rows.
        if topics := [place for place in things if things[place].kind == "Topic"]:
            queues = [one for one in candidates(topics[0], "/") if one.name in node.world.queues]
            things.update(dict.fromkeys(topics, luck.random.choice(queues)))
        decisions = {}
        for row in group:
            refused, difference = self.one(node, asker, row, who, things, False)
            if difference:
                return len(group), difference
            gates = [need for need in row.needs if need.ways[0][0] in GATES and not need.met(node.world, who, row.protocol, things)]
            # A user with every right on one protocol is asked for permissions on another.
            if not gates and not node.world.is_super(who):
                decisions[row.title] = bool(refused)
        if len({*decisions.values()}) > 1:
            return len(group), f"by {who} with {things}: one operation is decided in two ways: {decisions}"
        self.compared += len(decisions) > 1
        return len(group), None

    def restore(self, node, row):
        """Of what was changed, what later cases need."""
        if row.changes in ("queues", "exchanges", "spare", "entries"):
            node.restore(row.changes)
        elif row.changes == "bindings" and row.name.startswith("DELETE"):
            node.restore("bindings")
        elif row.changes == "messages" and ("purge" in row.name or "contents" in row.name):
            node.restore("messages")
