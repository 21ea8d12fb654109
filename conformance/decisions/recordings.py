#!/usr/bin/env python3
"""Decisions of a real Kafka and a real RabbitMQ, for what they have: users, entries or permissions, operations, chosen at random once and kept with what was
decided (`kafka-VERSION.jsonl.xz`, `rabbitmq-VERSION.jsonl.xz`). `recordings.py properties PLAIN SASL OPEN` prints what Kafka is to be started with, `recordings.py
kafka SASL OPEN…` and `recordings.py rabbitmq AMQP HTTP` record. `decisions.py` holds the model and a broker against them; what is meant to differ is in
`differences.json`, with the reason."""

import json
import lzma
import sys
import time
from pathlib import Path
from urllib.parse import quote

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
sys.dont_write_bytecode = True
import links
import tables
from asked import Asker
from model import AMQP, KAFKA, MANAGEMENT, Entry, Rules, Thing, User, Who, World
from node import (AUTHORIZER, BRIDGE, FANOUT, KEPT, NEW, OPERATIONS, PATTERNS, PERMISSIONS, QUEUES, SPARE_QUEUE, SPARE_TOPICS, STREAM, TOPIC, TOPICS, TYPES, VHOSTS, candidates,
                  places_of)
from randomised import BY_NAME, Luck
from requirements import ABSENT

KAFKA_VERSION = "4.3.1"
RECORDED = {KAFKA: HERE / f"kafka-{KAFKA_VERSION}.jsonl.xz", AMQP: HERE / "rabbitmq-4.3.6.jsonl.xz"}
KAFKA_USERS, RABBITMQ_USERS = ("ada", "ben"), ("ada", "ben", "cleo")
SUPER = Who("alice")
# Worlds, and cases of each.
KAFKA_WORLDS, RABBITMQ_WORLDS, EACH = 30, 40, 16
SETTLED = 20.0


def rows_of(*protocols):
    return [row for row in tables.ROWS if row.protocol in protocols and not row.alone and not row.untried]


def kafka_rows():
    """Those that Kafka has, and that leave things as they are."""
    return [row for row in rows_of(KAFKA) if "dead letters" not in row.about and row.name != "DeleteTopics"]


def rabbitmq_rows():
    return [row for row in rows_of(AMQP, MANAGEMENT) if "under" not in row.places]


def plain_things(luck, row):
    """Of a broker that has no queues."""
    pools = dict(row.pools)
    return {place: luck.choice([one for one in candidates(pools.get(place, place), "/") if one.kind != "Topic" or one.name in (*TOPICS, *SPARE_TOPICS, "stock", *NEW)]) for place in places_of(row)}


class Peer:
    """What both have: connections by who asks."""

    def __init__(self):
        self.links, self.topic_ids, self.world = {}, {}, World(Rules(False))

    def link(self, kind, who, *more):
        key = (kind, who, *more)
        if key not in self.links:
            self.links[key] = self.connect(kind, who, *more)
        return self.links[key]

    def forget(self, kind, who, *more):
        if link := self.links.pop((kind, who, *more), None):
            link.close()

    def restore(self, kind):
        pass


class Kafka(Peer):
    def __init__(self, address):
        super().__init__()
        host, port = address.rsplit(":", 1)
        self.address, self.entries = (host, int(port)), set()
        for name in (*TOPICS, "stock"):
            self.ask("CreateTopics", 7, {"topics": [{"name": name, "num_partitions": 2, "replication_factor": 1}], "timeout_ms": 15_000})
        self.settle(lambda: len(self.ids()) == len(TOPICS) + 1)
        self.topic_ids = self.ids()
        # Coordinators are there when they have been asked for.
        for kind in (0, 1):
            self.settle(lambda kind=kind: not self.ask("FindCoordinator", 4, {"key_type": kind, "coordinator_keys": ["any"]})["coordinators"][0]["error_code"])

    def connect(self, _kind, who):
        return links.Kafka(self.address, who, who.name)

    def ask(self, name, version, body):
        return self.link("kafka", SUPER).ask(name, version, body)

    def ids(self):
        found = self.ask("Metadata", 12, {"topics": [{"name": name} for name in (*TOPICS, "stock")], "allow_auto_topic_creation": False})
        return {topic["name"]: topic["topic_id"] for topic in found["topics"] if not topic["error_code"] and all(not one["error_code"] for one in topic["partitions"])}

    def settle(self, done):
        until = time.time() + SETTLED
        while not done():
            if time.time() > until:
                raise RuntimeError("it does not come to rest")
            time.sleep(0.05)

    def known(self):
        found = self.ask("DescribeAcls", 3, {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None, "host_filter": None, "operation": 1,
                                             "permission_type": 1})
        return {(one["resource_type"], one["resource_name"], one["pattern_type"], acl["principal"], acl["host"], acl["operation"], acl["permission_type"])
                for one in found["resources"] for acl in one["acls"] if acl["principal"] != "User:eve"}

    def put_entries(self, entries):
        wanted = {(TYPES[one.type], one.name, PATTERNS[one.pattern], one.principal, one.host, OPERATIONS[one.operation], PERMISSIONS[one.permission]) for one in entries}
        fields = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
        filters = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter", "operation", "permission_type")
        if gone := self.known() - wanted:
            self.ask("DeleteAcls", 3, {"filters": [dict(zip(filters, one)) for one in gone]})
        if more := wanted - self.known():
            self.ask("CreateAcls", 3, {"creations": [dict(zip(fields, one)) for one in more]})
        self.settle(lambda: self.known() == wanted)


def named_entries(luck):
    """Entries about the users that Kafka knows, fewer of them for everything."""
    names = {"User:cleo": "User:ada", "User:dan": "User:ben", "User:sue": "User:ben", "User:ANONYMOUS": "User:ada"}
    kept = [entry for entry in luck.entries() if entry.operation != "All" or luck.random.random() < 0.4]
    return list(dict.fromkeys(entry._replace(principal=names.get(entry.principal, entry.principal)) for entry in kept))


def twice(peer, asker, row, who, things):
    """How it is refused, if that is so again."""
    found = []
    for _ in range(2):
        found.append(sorted(asker.ask(row, who, things)))
        if not found[-1]:
            peer.restore(row.changes)
    return found[0] if found[0] == found[1] else None


def line(row, who, things, refused):
    return {"row": [row.protocol, row.name, row.about], "who": list(who), "things": {place: list(thing) for place, thing in things.items()}, "refused": refused}


def written(path, worlds):
    with lzma.open(path, "wt", preset=9) as file:
        file.write("".join(json.dumps(world) + "\n" for world in worlds))
    asked = [one for world in worlds for one in world["asked"]]
    print(f"{len(asked)} decisions recorded in {path.name}, {sum(bool(one['refused']) for one in asked)} of them refusals")


def record_kafka(addresses):
    worlds = []
    for address, open_ in addresses:
        peer = Kafka(address)
        asker, rows = Asker(peer), kafka_rows()
        for at in range(KAFKA_WORLDS):
            luck = Luck(f"Kafka, {open_}", at)
            entries = named_entries(luck)
            peer.put_entries(entries)
            asked = []
            for _ in range(EACH):
                row = luck.random.choice(rows)
                who, things = Who(luck.random.choice(KAFKA_USERS), luck.random.choice(("127.0.0.1", "127.0.0.2"))), plain_things(luck.random, row)
                refused = twice(peer, asker, row, who, things)
                if refused is None:
                    print(f"{row.title}: two answers differ", file=sys.stderr)
                else:
                    asked.append(line(row, who, things, refused))
            worlds.append({"open": open_, "entries": [list(entry) for entry in entries], "asked": asked})
        peer.put_entries([])
    return worlds


class RabbitMQ(Peer):
    """Made by its management API, with what rows name."""

    def __init__(self, amqp, http):
        super().__init__()
        host, port = amqp.rsplit(":", 1)
        self.amqp, self.port, self.applied = (host, int(port)), int(http.rsplit(":", 1)[1]), {}
        self.http = links.Http(self.port, Who("guest"), "guest")
        self.put("vhosts/shop", {})
        self.put("users/eve", {"password": "eve", "tags": ""})
        for vhost in VHOSTS:
            place = quote(vhost, safe="")
            for user in ("guest", "eve"):
                self.put(f"permissions/{place}/{user}", {"configure": ".*", "write": ".*", "read": ".*"})
            self.put(f"policies/{place}/kept", {"pattern": "^none$", "definition": {"max-length": 1000}})
            self.put(f"operator-policies/{place}/kept", {"pattern": "^none$", "definition": {"max-length": 1000}})
            self.put(f"vhost-limits/{place}/max-connections", {"value": 9000})
            self.put(f"queues/{place}/of-eve", {"durable": True})
        self.put("global-parameters/kept", {"value": "kept"})
        self.restore("all")
        self.owned = []
        for vhost in VHOSTS:
            link = links.Amqp(self.amqp, Who("eve"), "eve", vhost)
            link.send(1, "channel.open")
            link.expect("channel.open-ok")
            link.send(1, "basic.consume", queue="of-eve", consumer_tag="eve")
            link.expect("basic.consume-ok")
            self.owned.append(link)
        # Its lists of connections and consumers are some seconds old.
        time.sleep(15)

    def connect(self, kind, who, *more):
        return links.Amqp(self.amqp, who, who.name, *more) if kind == "amqp" else links.Http(self.port, who, who.name)

    def connection(self, place):
        return self.owned[0].name + (" (1)" if place == "channel" else "")

    def put(self, path, body):
        self.http.json("PUT", f"/api/{path}", body)

    def gone(self, path):
        status, text = self.http.ask("DELETE", f"/api/{path}")
        assert status in (204, 404), text

    def restore(self, kind):
        if kind not in ("all", "queues", "exchanges", "bindings", "messages"):
            return
        for vhost in VHOSTS:
            place = quote(vhost, safe="")
            if kind != "messages":
                for name in (*QUEUES, SPARE_QUEUE, *(["stock"] if vhost == "/" else [])):
                    self.put(f"queues/{place}/{quote(name)}", {"durable": True})
                self.put(f"queues/{place}/{STREAM}", {"durable": True, "arguments": {"x-queue-type": "stream"}})
                for name in (FANOUT, TOPIC, BRIDGE):
                    self.put(f"exchanges/{place}/{name}", {"type": "topic" if name == TOPIC else "fanout", "durable": True})
                for source in (FANOUT, TOPIC):
                    for name in (*QUEUES, *(["stock"] if vhost == "/" else [])):
                        self.http.json("POST", f"/api/bindings/{place}/e/{source}/q/{quote(name)}", {"routing_key": KEPT})
                    self.http.json("POST", f"/api/bindings/{place}/e/{source}/e/{BRIDGE}", {"routing_key": KEPT})
                for name in NEW:
                    self.gone(f"queues/{place}/{name}")
                    self.gone(f"exchanges/{place}/{name}")
            for name in (*QUEUES, *(["stock"] if vhost == "/" else [])):
                self.http.json("POST", f"/api/exchanges/{place}/amq.default/publish", {"properties": {"delivery_mode": 2}, "routing_key": name, "payload": "x", "payload_encoding": "string"})

    def put_user(self, user):
        self.put(f"users/{user.name}", {"password": user.name, "tags": ",".join(user.tags)})
        for vhost in VHOSTS:
            place = quote(vhost, safe="")
            self.gone(f"topic-permissions/{place}/{user.name}")
            if own := user.permissions.get(vhost):
                self.put(f"permissions/{place}/{user.name}", dict(zip(("configure", "write", "read"), own)))
            else:
                self.gone(f"permissions/{place}/{user.name}")
                self.forget_all(user.name, vhost)
            for exchange, (write, read) in user.keys.get(vhost, {}).items():
                self.put(f"topic-permissions/{place}/{user.name}", {"exchange": exchange, "write": write, "read": read})

    def forget_all(self, name, vhost):
        for key in [key for key in self.links if key[0] == "amqp" and key[1].name == name and key[2] == vhost]:
            self.forget(*key)


def record_rabbitmq(amqp, http):
    peer, worlds = RabbitMQ(amqp, http), []
    asker, rows = Asker(peer), {protocol: [row for row in rabbitmq_rows() if row.protocol == protocol] for protocol in (AMQP, MANAGEMENT)}
    for at in range(RABBITMQ_WORLDS):
        luck = Luck("RabbitMQ", at)
        users = [luck.user(name) for name in RABBITMQ_USERS]
        for user in users:
            peer.put_user(user)
        asked = []
        for _ in range(EACH):
            row = luck.random.choice(rows[luck.random.choice((AMQP, MANAGEMENT))])
            who, things = Who(luck.random.choice(RABBITMQ_USERS)), luck.things([row])
            refused = twice(peer, asker, row, who, things)
            if refused is None:
                print(f"{row.title}: two answers differ", file=sys.stderr)
            else:
                asked.append(line(row, who, things, refused))
        worlds.append({"users": [[user.name, list(user.tags), user.permissions, user.keys] for user in users], "asked": asked})
    return worlds


# What is recorded, against the model and a broker.

def load(protocol):
    with lzma.open(RECORDED[protocol], "rt") as file:
        return [json.loads(one) for one in file]


def users_of(world):
    return [User(name, tuple(tags), {vhost: tuple(one) for vhost, one in permissions.items()}, {vhost: {exchange: tuple(pair) for exchange, pair in one.items()} for vhost, one in keys.items()})
            for name, tags, permissions, keys in world["users"]]


class Comparison:
    """`meant`: by name of a row, what the peer refuses and what this broker refuses instead, and why."""

    def __init__(self, say=print):
        self.say, self.same, self.failures, self.used = say, 0, 0, set()
        self.meant = json.loads((HERE / "differences.json").read_text())

    def all(self, nodes):
        for protocol, name in ((KAFKA, "Kafka"), (AMQP, "RabbitMQ")):
            for world in load(protocol):
                if protocol == KAFKA:
                    node = nodes("entries, open" if world["open"] else "entries")
                    users, entries = [User(user) for user in KAFKA_USERS], [Entry(*entry) for entry in world["entries"]]
                else:
                    node, users, entries = nodes("no entries"), users_of(world), []
                for user in users:
                    node.put_user(user)
                node.put_entries(entries)
                for one in world["asked"]:
                    self.one(node, name, one)
        for name in self.meant.keys() - self.used:
            self.fail(f"{name} no longer differs, so its entry in differences.json is to go")
        return self

    def one(self, node, peer, asked):
        row = BY_NAME.get(tuple(asked["row"]))
        if row is None:
            return self.fail(f"{asked['row']} is recorded from {peer}, and has no row")
        who, things = Who(*asked["who"]), {place: Thing(*thing) for place, thing in asked["things"].items()}
        if row.protocol == AMQP and not node.world.enters(who, "/"):
            # A connection that was open before would go on.
            node.forget("amqp", who, "/")
        expected, here = asked["refused"], sorted(Asker(node).ask(row, who, things))
        missing = row.missing(node.world, who, things)
        here = [one for one in here if one != ABSENT]
        if not here:
            node.restore(row.changes if row.changes in ("queues", "exchanges", "bindings", "messages", "entries") else "")
        not_in = row.protocol == AMQP and not row.needs and not node.world.enters(who, "/")
        if here == expected and (bool(missing) == bool(expected) or not_in):
            self.same += 1
            return None
        key = f"{row.protocol} {row.name}"
        meant = self.meant.get(key)
        if meant and (expected, here) == (meant["peer"], meant["here"]):
            self.used.add(key)
            return None
        return self.fail(f"{row.title} by {who} with {asked['things']}: {peer} refuses {expected or 'nothing'}, this broker {here or 'nothing'}, the model "
                         f"{[need.text for need in missing] or 'nothing'}; users {[node.world.users[who.name]]}, entries {node.applied.entries}")

    def fail(self, text):
        self.failures += 1
        self.say(f"FAIL  {text}")


def properties(plain, sasl, open_):
    """What a real Kafka is to be started with beside the peer's usual settings. `open_`: what no entry is about is for everybody."""
    everywhere = f"PLAINTEXT://{plain},SASL://{sasl}"
    host, _, port = plain.rpartition(":")
    users = " ".join(f'user_{user}="{user}"' for user in ("alice", *KAFKA_USERS))
    print(f"listeners={everywhere},CONTROLLER://{host}:{int(port) + 1}\nadvertised.listeners={everywhere}\n"
          "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT\n"
          f"authorizer.class.name={AUTHORIZER}\nsuper.users=User:alice;User:ANONYMOUS\nallow.everyone.if.no.acl.found={open_}\n"
          "listener.name.sasl.sasl.enabled.mechanisms=PLAIN\n"
          f"listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};")


def main():
    what, *words = sys.argv[1:]
    if what == "properties":
        properties(*words)
    elif what == "kafka":
        # The record of both settings is one: the other half stays as it is.
        open_ = words[1] == "true"
        kept = [world for world in load(KAFKA) if world["open"] != open_] if RECORDED[KAFKA].exists() else []
        written(RECORDED[KAFKA], [*kept, *record_kafka([(words[0], open_)])])
    elif what == "rabbitmq":
        written(RECORDED[AMQP], record_rabbitmq(*words))


if __name__ == "__main__":
    main()
