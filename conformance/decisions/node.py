"""A broker under test, with what the rows name: topics, groups, two virtual hosts with queues and exchanges, and a user `eve` to whom things are done. An
administrator makes it, gives rights, restores what was changed, and says what is there."""

import json
import os
import select
import signal
import tempfile
import time
from urllib.parse import quote

import links
from driver.broker import Broker, free_port
from model import CLUSTER, Entry, Thing, User, Who, World, resource_name

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ROOT = Who("root")
# Super users of Kafka, without any tag; of one of them it is asked what she may.
SUPER = "sue"
SUPERS = (f"User:{SUPER}", "User:eve")
TOPICS, SPARE_TOPICS, VHOSTS = ("orders", "bills"), ("spare", "spare-2"), ("/", "shop")
QUEUES, SPARE_QUEUE, NEW = ("work", "a b"), "spare", ("fresh-1", "fresh-2")
# A topic of its own to which a queue is attached, and one over which a queue can be declared.
ATTACHED, UNDER = "stock", "under"
GROUPS, IDS, KEYS = ("readers", "others"), ("id-1", "id-2"), ("k.1", "k.2", "x.1")
FILTERED, KEPT = "filtered", "k.kept"
FANOUT, TOPIC, BRIDGE, STREAM = "news", "events", "bridge", "stream"
OF_ALL_QUEUES = "amqp.queue"
TYPES = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5}
OPERATIONS = {"All": 2, "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8, "ClusterAction": 9, "DescribeConfigs": 10, "AlterConfigs": 11, "IdempotentWrite": 12}
PATTERNS, PERMISSIONS = {"Literal": 3, "Prefixed": 4}, {"Deny": 2, "Allow": 3}
# What of a definition, a topic or a queue says what is there, apart from what changes by itself.
SECTIONS = ("users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters", "policies", "queues", "exchanges", "bindings")


def candidates(pool, vhost):
    """What can stand in a place of a row."""
    topics = [*(Thing("Topic", name) for name in (*TOPICS, ATTACHED)), *(Thing("Topic", resource_name(host, name)) for host in VHOSTS for name in QUEUES)]
    match pool:
        case "topic":
            return topics
        case "plain topic":
            return [Thing("Topic", name) for name in TOPICS]
        case "committed topic":
            return [*(Thing("Topic", name) for name in TOPICS), Thing("Topic", "shop~work")]
        case "fresh group":
            return [Thing("Group", "fresh-group")]
        case "spare":
            return [*(Thing("Topic", name) for name in SPARE_TOPICS), Thing("Topic", resource_name("shop", SPARE_QUEUE))]
        case "new":
            return [Thing("Topic", name) for name in (*NEW, "shop~fresh-1")]
        case "new topic":
            return [Thing("Topic", name) for name in NEW]
        case "dead letters":
            return [Thing("Topic", "bills"), Thing("Topic", "shop~work")]
        case "group":
            return [Thing("Group", name) for name in GROUPS]
        case "filtered group":
            return [Thing("Group", FILTERED)]
        case "id":
            return [Thing("TransactionalId", name) for name in IDS]
        case "cluster":
            return [Thing("Cluster", CLUSTER)]
        case "group of queues":
            return [Thing("Group", OF_ALL_QUEUES)]
        case "vhost":
            return [Thing("vhost", vhost)]
        case "queue":
            return [Thing("queue", name, vhost) for name in (*QUEUES, *([ATTACHED] if vhost == "/" else []))]
        case "new queue":
            return [Thing("queue", name, vhost) for name in NEW]
        case "under":
            return [Thing("queue", UNDER)]
        case "matched":
            return [Thing("queue", "none", vhost)]
        case "stream":
            return [Thing("queue", STREAM, vhost)]
        case "exchange" | "source" | "dead letter exchange":
            return [Thing("exchange", FANOUT, vhost)]
        case "topic exchange" | "topic source":
            return [Thing("exchange", TOPIC, vhost)]
        case "destination" | "alternate":
            return [Thing("exchange", BRIDGE, vhost)]
        case "new exchange":
            return [Thing("exchange", name, vhost) for name in NEW]
        case "default exchange":
            return [Thing("exchange", "", vhost)]
        case "key":
            return [Thing("key", name) for name in KEYS]
        case "connection" | "channel" | "owner":
            return [Thing("user", "eve")]
    raise KeyError(pool)


def queues_of(vhost):
    """Classic queues of a virtual host, as paths have it."""
    return (*QUEUES, ATTACHED) if vhost == "%2F" else (*QUEUES, SPARE_QUEUE)


# Topics that are queues, with virtual host and queue.
TOPICS_OF_QUEUES = {resource_name(vhost, name): (vhost, name) for vhost in VHOSTS for name in (*QUEUES, STREAM, *([SPARE_QUEUE] if vhost == "shop" else []))}
NOTHING = {"administrator", "monitoring", "policymaker", "management", "some topic"}


def places_of(row):
    return [place for place in row.places if place not in NOTHING]


class Names:
    """Names of things, by place: `n["new queue"]` or `n.new_queue`."""

    def __init__(self, node, things):
        self.node, self.things = node, things

    def __getitem__(self, place):
        if place in ("connection", "channel"):
            return self.node.connection(place)
        return self.things[place].name

    def __getattr__(self, name):
        return self[name.replace("_", " ")]

    def id_of(self, topic):
        return self.node.topic_ids[topic]


class Node:
    def __init__(self, binary, rules):
        self.binary, self.rules = binary, rules
        self.world, self.applied, self.links = World(rules), World(rules), {}
        self.topic_ids, self.eve, self.fresh, self.consumer = {}, None, 0, None

    # Start and end.

    def start(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="mainstem-decisions-")
        self.sasl = free_port()
        wishes = [f"listeners=SASL_PLAINTEXT://127.0.0.1:{self.sasl}", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", "mainstem.password.iterations=1000",
                  "group.initial.rebalance.delay.ms=0", f"super.users={';'.join(self.rules.supers)}", f"allow.everyone.if.no.acl.found={str(self.rules.open).lower()}"]
        if self.rules.authorizer:
            wishes.append(f"authorizer.class.name={AUTHORIZER}")
        self.broker = Broker(self.binary, f"{self.scratch.name}/data", [word for wish in wishes for word in ("--set", wish)])
        given = {"MAINSTEM_DEFAULT_USER": "root", "MAINSTEM_DEFAULT_PASS": "root"}
        os.environ.update(given)
        try:
            self.broker.start()
        finally:
            for name in given:
                del os.environ[name]
        host, port = self.broker.amqp.rsplit(":", 1)
        self.amqp = (host, int(port))
        for world in (self.world, self.applied):
            world.users["root"] = User("root", ("administrator",), {"/": (".*", ".*", ".*")})
        self.http = links.Http(self.broker.admin, ROOT, "root")
        for name in ("eve", "spare"):
            self.http.json("PUT", f"/v1/users/{name}", {"password": name, "tags": []})
        self.http.json("PUT", "/v1/vhosts/shop", {})
        for user in ("root", "eve"):
            for vhost in VHOSTS:
                self.http.json("PUT", f"/v1/users/{user}/permissions/{quote(vhost, safe='')}", {"configure": ".*", "write": ".*", "read": ".*"})
        self.restore_all()
        return self

    def end(self):
        for link in self.links.values():
            link.close()
        self.broker.end(signal.SIGTERM)
        self.scratch.cleanup()

    # Connections.

    def link(self, kind, who, *more):
        key = (kind, who, *more)
        if key not in self.links:
            password = who.name
            if kind == "kafka":
                port = self.sasl if who.name else self.broker.kafka
                self.links[key] = links.Kafka(("127.0.0.1", port), who, password)
            elif kind == "amqp":
                self.links[key] = links.Amqp(self.amqp, who, password, *more)
            else:
                self.links[key] = links.Http(self.broker.admin, who, password, *more)
        return self.links[key]

    def forget(self, kind, who, *more):
        if link := self.links.pop((kind, who, *more), None):
            link.close()

    def ask_kafka(self, name, version, body):
        return self.link("kafka", ROOT).ask(name, version, body)

    def connection(self, place):
        """Of eve: one that is open, with a consumer."""
        return self.eve.name + (" (1)" if place == "channel" else "")

    def eve_is_told(self):
        """Is one of her connections told that it ends?"""
        readable, _, _ = select.select([self.eve.socket, self.consumer.socket], [], [], 0.5)
        return any(link.receive()[1] == "connection.close" for link in (self.eve, self.consumer) if link.socket in readable)

    # Rights.

    def put_user(self, user):
        """Gives a user what he is to have, and takes away what he had beside."""
        had = self.applied.users.get(user.name)
        if had is None or {*had.tags} != {*user.tags}:
            self.http.json("PUT", f"/v1/users/{user.name}", {"tags": [*user.tags], **({} if had else {"password": user.name})})
        permissions, keys = (had.permissions, had.keys) if had else ({}, {})
        for vhost in VHOSTS:
            place = quote(vhost, safe="")
            if permissions.get(vhost) != user.permissions.get(vhost):
                if own := user.permissions.get(vhost):
                    self.http.json("PUT", f"/v1/users/{user.name}/permissions/{place}", dict(zip(("configure", "write", "read"), own)))
                else:
                    self.http.json("DELETE", f"/v1/users/{user.name}/permissions/{place}")
                    # A connection that is open goes on; it is asked for a new one.
                    for key in [key for key in self.links if key[0] == "amqp" and key[1].name == user.name and key[2] == vhost]:
                        self.forget(*key)
            before, after = keys.get(vhost, {}), user.keys.get(vhost, {})
            for exchange in before.keys() - after.keys():
                self.gone(f"/api/topic-permissions/{place}/{user.name}/{exchange}")
            for exchange, (write, read) in after.items():
                if before.get(exchange) != (write, read):
                    self.http.json("PUT", f"/api/topic-permissions/{place}/{user.name}", {"exchange": exchange, "write": write, "read": read})
        self.applied.users[user.name] = User(user.name, user.tags, {**user.permissions}, {vhost: {**one} for vhost, one in user.keys.items()})
        self.world.users[user.name] = user

    def put_entries(self, entries):
        """These and no others, beside eve's."""
        if not self.rules.authorizer:
            entries = []
        had, wanted = {*self.applied.entries}, {*entries}
        self.change_entries([*wanted - had], [*had - wanted])
        self.applied.entries, self.world.entries = [*wanted], [*wanted, *self.of_eve()]

    def of_eve(self):
        """An entry that operations can find. Beside it she needs none."""
        return [Entry("Topic", "kept", "Literal", "User:eve", "*", "Read", "Allow")] if self.rules.authorizer else []

    def change_entries(self, more, less):
        def numbers(entry):
            return TYPES[entry.type], entry.name, PATTERNS[entry.pattern], entry.principal, entry.host, OPERATIONS[entry.operation], PERMISSIONS[entry.permission]
        if more:
            fields = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
            made = self.ask_kafka("CreateAcls", 3, {"creations": [dict(zip(fields, numbers(entry))) for entry in more]})
            assert not any(one["error_code"] for one in made["results"]), made
        if less:
            fields = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter", "operation", "permission_type")
            gone = self.ask_kafka("DeleteAcls", 3, {"filters": [dict(zip(fields, numbers(entry))) for entry in less]})
            assert all(len(one["matching_acls"]) == 1 for one in gone["filter_results"]), gone

    # What is there.

    def restore_all(self):
        for kind in ("topics", "queues", "exchanges", "bindings", "spare", "vhosts", "users", "permissions", "limits", "policies", "offsets", "settings", "entries", "messages", "connections"):
            self.restore(kind)
        found = self.ask_kafka("Metadata", 12, {"topics": None})
        self.topic_ids = {topic["name"]: topic["topic_id"] for topic in found["topics"]}
        self.world.queues = dict(TOPICS_OF_QUEUES)
        if not self.rules.authorizer:
            # Where entries do not count the permissions for the queue that is attached to it say who may use it.
            self.world.queues[ATTACHED] = ("/", ATTACHED)

    def restore(self, kind):
        """Makes that what a row changes is as before."""
        if hasattr(self, f"restore_{kind}"):
            getattr(self, f"restore_{kind}")()

    def there(self, path):
        return self.http.ask("GET", path)[0] == 200

    def put(self, path, body):
        self.http.json("PUT", path, body)

    def gone(self, *paths):
        for path in paths:
            status, text = self.http.ask("DELETE", path)
            assert status in (204, 404), f"DELETE {path}: {status} {text}"

    def restore_topics(self, names=(*TOPICS, ATTACHED, UNDER)):
        for name in names:
            if not self.there(f"/v1/topics/{name}"):
                self.http.json("POST", "/v1/topics", {"name": name, "partitions": 2})
                self.http.json("POST", f"/v1/topics/{name}/records", {"value": "kept"})

    def restore_new(self):
        self.gone(*(f"/v1/topics/{name}" for name in (*NEW, "shop~fresh-1")))

    def restore_spare(self):
        self.restore_topics(SPARE_TOPICS)
        self.restore_queues()
        found = self.ask_kafka("Metadata", 12, {"topics": [{"name": name} for name in (*SPARE_TOPICS, "shop~spare")], "allow_auto_topic_creation": False})
        self.topic_ids.update({topic["name"]: topic["topic_id"] for topic in found["topics"]})

    def restore_queues(self):
        for vhost in ("%2F", "shop"):
            known = {one["name"] for one in self.http.json("GET", f"/v1/queues/{vhost}?limit=1000")["items"]}
            lost = {*queues_of(vhost), STREAM} - known
            for name in lost:
                self.put(f"/v1/queues/{vhost}/{quote(name)}", {"type": "stream"} if name == STREAM else {})
                if name != STREAM:
                    self.message(vhost, name)
                    self.bind(vhost, name)
            self.gone(*(f"/v1/queues/{vhost}/{name}" for name in {*NEW, UNDER, "brand-new"} & known))
            if lost:
                self.restore_offsets()
        found = self.ask_kafka("Metadata", 12, {"topics": None})
        self.topic_ids = {topic["name"]: topic["topic_id"] for topic in found["topics"]}

    def message(self, vhost, queue):
        self.http.json("POST", f"/v1/exchanges/{vhost}/amq.default/publish", {"routing_key": queue, "body": "kept", "properties": {"delivery_mode": 2}})

    def restore_messages(self):
        for vhost in ("%2F", "shop"):
            for one in self.http.json("GET", f"/v1/queues/{vhost}?limit=1000")["items"]:
                if not one["messages"] and one["type"] != "stream" and one["name"] != "of-eve":
                    self.message(vhost, one["name"])

    def restore_exchanges(self):
        for vhost in ("%2F", "shop"):
            known = {one["name"] for one in self.http.json("GET", f"/v1/exchanges/{vhost}?limit=1000")["items"]}
            for name in {FANOUT, TOPIC, BRIDGE} - known:
                self.put(f"/v1/exchanges/{vhost}/{name}", {"type": "topic" if name == TOPIC else "fanout"})
            self.gone(*(f"/v1/exchanges/{vhost}/{name}" for name in {*NEW} & known))
            if {FANOUT, TOPIC, BRIDGE} - known:
                self.restore_bindings()

    def bind(self, vhost, name, kind="queue"):
        for source in (FANOUT, TOPIC):
            if self.there(f"/v1/exchanges/{vhost}/{source}"):
                self.http.json("POST", f"/v1/bindings/{vhost}", {"source": source, "destination": name, "destination_kind": kind, "routing_key": KEPT})

    def restore_bindings(self):
        """All bindings with the key that is kept, and none with others."""
        for vhost in ("%2F", "shop"):
            known = {(one["source"], one["destination"], one["destination_kind"], one["routing_key"]) for one in self.http.json("GET", f"/v1/bindings/{vhost}?limit=1000")["items"]}
            for source, destination, kind, key in known:
                if key in KEYS:
                    self.http.json("POST", f"/v1/bindings/{vhost}/delete", {"source": source, "destination": destination, "destination_kind": kind, "routing_key": key})
            wanted = [(name, "queue") for name in queues_of(vhost)] + [(BRIDGE, "exchange")]
            for name, kind in wanted:
                if any((source, name, kind, KEPT) not in known for source in (FANOUT, TOPIC)):
                    self.bind(vhost, name, kind)

    def restore_vhosts(self):
        self.gone("/v1/vhosts/brand-new")
        self.put("/v1/vhosts/spare", {})

    def restore_users(self):
        self.gone("/v1/users/brand-new")
        if not self.there("/v1/users/spare"):
            self.put("/v1/users/spare", {"password": "spare", "tags": []})

    def restore_permissions(self):
        for vhost in ("%2F", "shop"):
            self.put(f"/v1/users/eve/permissions/{vhost}", {"configure": "", "write": ".*", "read": ".*"})
            self.gone(f"/api/topic-permissions/{vhost}/eve")
            self.put(f"/api/topic-permissions/{vhost}/eve", {"exchange": FANOUT, "write": "kept", "read": "kept"})

    def restore_limits(self):
        for vhost in ("%2F", "shop"):
            self.put(f"/api/vhost-limits/{vhost}/max-connections", {"value": 9000})
        self.put("/api/user-limits/eve/max-connections", {"value": 9000})

    def restore_policies(self):
        for vhost in ("%2F", "shop"):
            for kind in ("policies", "operator-policies"):
                self.put(f"/api/{kind}/{vhost}/kept", {"pattern": "^none$", "definition": {"max-length": 1000}})
        self.put("/api/global-parameters/kept", {"value": "kept"})

    def restore_definitions(self):
        self.restore_vhosts()
        self.restore_queues()

    def restore_offsets(self):
        for group in GROUPS:
            self.ask_kafka("OffsetCommit", 8, {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0}]} for name in (*TOPICS, ATTACHED, "work", "shop~work")]})

    def restore_groups(self):
        self.restore_offsets()

    def restore_settings(self):
        for group in GROUPS:
            self.http.json("PATCH", f"/v1/groups/{group}/config", {"set": {"consumer.session.timeout.ms": "50000", "mainstem.share.dead.letter.topic": ""}})
            self.gone(f"/v1/filters/{group}")
        self.put(f"/v1/filters/{FILTERED}", {"expression": "key = 'a'"})
        self.ask_kafka("OffsetCommit", 8, {"group_id": FILTERED, "generation_id_or_member_epoch": -1, "member_id": "", "topics": [
            {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0}]}]})
        for topic in (*TOPICS, ATTACHED):
            self.http.json("PATCH", f"/v1/topics/{topic}/config", {"set": {"retention.ms": "900000000"}})
        self.restore_config()

    def restore_config(self):
        self.http.json("PATCH", "/v1/config", {"set": {"max.connections.per.ip": "30000"}})

    def restore_entries(self):
        if self.rules.authorizer:
            entry = {"principal": "User:eve", "operation": "Read", "resource": "Topic"}
            self.http.json("POST", "/v1/acls/delete", {**entry, "name": "nothing"})
            self.http.json("POST", "/v1/acls", {**entry, "name": "kept"})
            self.world.entries = [*self.applied.entries, *self.of_eve()]

    def restore_keys(self):
        self.put("/v1/users/eve", {"password": "eve"})
        self.restore_connections()

    def restore_quotas(self):
        self.put("/v1/quotas", {"entity": {"user": "eve"}, "values": {"producer_byte_rate": None}})

    def restore_connections(self):
        """Eve consumes, and nothing is there for her."""
        if self.eve:
            self.eve.close()
        self.eve = links.Amqp(self.amqp, Who("eve"), "eve", "/")
        self.eve.send(1, "channel.open")
        self.eve.expect("channel.open-ok")
        for vhost in ("%2F", "shop"):
            self.put(f"/v1/queues/{vhost}/of-eve", {})
        self.eve.send(1, "basic.consume", queue="of-eve", consumer_tag="eve")
        self.eve.expect("basic.consume-ok")
        if self.consumer:
            self.consumer.close()
        self.consumer = links.Amqp(self.amqp, Who("eve"), "eve", "shop")
        self.consumer.send(1, "channel.open")
        self.consumer.expect("channel.open-ok")
        self.consumer.send(1, "basic.consume", queue="of-eve", consumer_tag="eve")
        self.consumer.expect("basic.consume-ok")

    def state(self, *names):
        """All that operations change, without what is of the users of these names."""
        def plain(one):
            return json.dumps(one, sort_keys=True)
        defined = self.http.json("GET", "/api/definitions")
        out = {name: sorted(plain(one) for one in defined[name] if one.get("user", one.get("name")) not in names) for name in SECTIONS}
        for path, kept in (("/v1/topics?internal=true&limit=1000", ("name", "id", "partitions")), ("/v1/queues?limit=1000", ("vhost", "name", "messages")),
                           ("/v1/groups?limit=1000", ("name", "kind", "topics", "filter")), ("/v1/quotas", ("entity", "values")), ("/v1/connections?user=eve", ("id", "user"))):
            # Groups of rows before this one come and go with their members.
            passed = lambda one, path=path: path.startswith("/v1/groups") and one["name"].startswith("members-") and one["name"] != f"members-{self.fresh}"
            out[path] = sorted(plain([one.get(name) for name in kept]) for one in self.http.json("GET", path)["items"] if not passed(one))
        for path in (*(f"/v1/topics/{name}" for name in ("orders", "bills")), *(f"/v1/groups/{name}" for name in GROUPS), *(f"/v1/groups/{name}/config" for name in GROUPS)):
            found = self.http.json("GET", path)
            out[path] = plain([[one["partition"], one["start"], one["high_watermark"]] for one in found.get("partition_list", ())] + [[one["topic"], one["partition"], one["committed"]] for one in found.get("offsets", ())]
                              + [[one["name"], one["value"]] for one in found.get("config", ())])
        out["settings"] = plain([[one["name"], one["value"]] for one in self.http.json("GET", "/v1/config?limit=1000")["items"]])
        out["entries"] = sorted(plain(one) for one in self.http.json("GET", "/v1/acls?limit=1000")["items"] if one["principal"].removeprefix("User:") not in names)
        out["keys"] = plain(self.ask_kafka("DescribeUserScramCredentials", 0, {"users": [{"name": "eve"}]})["results"][0]["error_code"])
        return out

    def settled(self, *names):
        """The state, once it is the same twice."""
        found, until = self.state(*names), time.time() + 10
        while (again := self.state(*names)) != found and time.time() < until:
            found = again
        return found
