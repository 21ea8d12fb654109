"""What each route of `/v1` takes, which the console uses too. Lines as in `api_table.py`; the names in paths are those of the broker's description."""

import json
import re

from api_table import filled
from model import ADMINISTRATION
from requirements import Row, needs

USER = "tag management"
LOOK = f"{USER}; look vhost"
CONFIGURE = LOOK + "; configure {0}; {1} {0}"
PASSED_ON = "; read {0}; Read {0}; write {1}; Write {1}"
OF_TOPIC = f"{USER}; see topic; "
BIND = LOOK + "; write {1}; Write {1}; read {0}; Read {0}"
OWN = "tag monitoring or own connection"
TABLE = f"""
GET /openapi.json | |
GET /session | | {USER}
POST /session | |
DELETE /session | | {USER}
GET /overview | | {USER}
GET /live | of the node | {USER}; tag monitoring
GET /live | of a topic | {USER}; see topic
GET /live | of a group | {USER}; see group
GET /journals | | tag monitoring
GET /journals/{{journal}} | | tag monitoring
GET /config | | tag monitoring
PATCH /config | | tag administrator | config
GET /connections | | {USER}; {OWN} (left out)
GET /connections/{{connection}} | | {USER}; {OWN} (404)
DELETE /connections/{{connection}} | | {USER}; {OWN} (404); tag administrator or own connection | connections
GET /topics | | {USER}; see topic (left out)
POST /topics | | {USER}; configure new; Create new or Create cluster | new
GET /topics/{{topic}} | | {USER}; see topic
GET /topics/{{topic}} | its settings | {USER}; see topic; DescribeConfigs topic or tag monitoring (left out)
DELETE /topics/{{spare}} | | {USER}; see spare; configure spare; Delete spare or Delete cluster | spare
PATCH /topics/{{topic}}/config | | {OF_TOPIC}configure topic; AlterConfigs topic | settings
POST /topics/{{topic}}/partitions | | {OF_TOPIC}configure topic; Alter topic | partitions
POST /topics/{{topic}}/truncate | | {OF_TOPIC}configure topic; Delete topic | records
GET /topics/{{topic}}/records | | {OF_TOPIC}read topic; Read topic
POST /topics/{{topic}}/records | | {OF_TOPIC}write topic; Write topic | records
GET /groups | | {USER}; see group (left out)
GET /groups/{{group}} | | {USER}; see group
GET /groups/{{group}} | its topics | {USER}; see group; see topic (left out)
DELETE /groups/{{group}} | | {USER}; see group; configure group; Delete group | groups
DELETE /groups/{{group}}/offsets | | {USER}; see group; configure group; Delete group; read topic; Read topic | offsets
GET /groups/{{group}}/config | | {USER}; see group (403); DescribeConfigs group or tag monitoring
PATCH /groups/{{group}}/config | | {USER}; configure group; AlterConfigs group | settings
PATCH /groups/{{group}}/config | topic for dead letters | {USER}; configure group; AlterConfigs group; write dead letters; Write dead letters | settings
PATCH /groups/{{group}}/config | topic for dead letters, that is not there | {USER}; configure group; AlterConfigs group; write new; Write new; configure new; Create new or Create cluster | settings
POST /groups/{{group}}/reset | | {USER}; read group; Read group; see topic (400); read topic; Read topic | offsets
POST /drain | | tag administrator | node
POST /reload | | tag administrator
GET /backup | | tag administrator
POST /backup | | tag administrator
GET /acls | | tag administrator
GET /acls/state | | tag administrator
POST /acls | | tag administrator | entries
POST /acls/delete | | tag administrator | entries
GET /quotas | | tag monitoring
GET /quotas/use | | tag monitoring
PUT /quotas | | tag administrator | quotas
GET /why | | tag monitoring
GET /filters | | {USER}; see filtered group (left out); DescribeConfigs filtered group or tag monitoring (left out)
GET /filters/counts | | tag monitoring
POST /filters/check | | {USER}
PUT /filters/{{group}} | | {USER}; configure group; AlterConfigs group | settings
DELETE /filters/{{group}} | | {USER}; configure group; AlterConfigs group | settings
GET /vhosts | | {USER}; look vhost (left out)
GET /vhosts/{{vhost}} | | {LOOK}
PUT /vhosts/{{new vhost}} | | tag administrator | vhosts
DELETE /vhosts/{{spare vhost}} | | tag administrator | vhosts
GET /queues | | {USER}; look vhost (left out)
GET /queues/{{vhost}} | | {LOOK}
GET /queues/{{vhost}}/{{queue}} | | {LOOK}
PUT /queues/{{vhost}}/{{new queue}} | | {CONFIGURE.format("new queue", "Create")} | queues
PUT /queues/{{vhost}}/{{new queue}} | that is new, with a dead-letter exchange | {CONFIGURE.format("new queue", "Create") + PASSED_ON.format("new queue", "dead letter exchange")} | queues
PUT /queues/{{vhost}}/{{under}} | that is new, over a topic that is there | {CONFIGURE.format("under", "Create")}; read under; Read under; write under; Write under; Alter under | queues
PUT /queues/{{vhost}}/{{new queue}} | that is new, with x-share-group | {CONFIGURE.format("new queue", "Create")}; Read group | queues
DELETE /queues/{{vhost}}/{{queue}} | | {CONFIGURE.format("queue", "Delete")} | queues
POST /queues/{{vhost}}/{{queue}}/purge | | {LOOK}; read queue; Read queue; Read group of queues | messages
GET /exchanges | | {USER}; look vhost (left out)
GET /exchanges/{{vhost}} | | {LOOK}
GET /exchanges/{{vhost}}/{{exchange}} | | {LOOK}
PUT /exchanges/{{vhost}}/{{new exchange}} | | {CONFIGURE.format("new exchange", "Create")} | exchanges
PUT /exchanges/{{vhost}}/{{new exchange}} | that is new, with an alternate exchange | {CONFIGURE.format("new exchange", "Create") + PASSED_ON.format("new exchange", "alternate")} | exchanges
DELETE /exchanges/{{vhost}}/{{exchange}} | | {CONFIGURE.format("exchange", "Delete")} | exchanges
POST /exchanges/{{vhost}}/{{exchange}}/publish | | {LOOK}; write exchange; Write exchange | messages
POST /exchanges/{{vhost}}/{{topic exchange}}/publish | to a topic exchange | {LOOK}; write topic exchange; Write topic exchange; write-key topic exchange | messages
POST /exchanges/{{vhost}}/{{default exchange}}/publish | to the default exchange | {LOOK}; write default exchange; Write queue | messages
GET /bindings | | {USER}; look vhost (left out)
GET /bindings/{{vhost}} | | {LOOK}
POST /bindings/{{vhost}} | | {BIND.format("source", "queue")} | bindings
POST /bindings/{{vhost}} | from a topic exchange | {BIND.format("topic source", "queue")}; read-key topic source | bindings
POST /bindings/{{vhost}} | of an exchange | {BIND.format("source", "destination")} | bindings
POST /bindings/{{vhost}}/delete | | {BIND.format("source", "queue")} | bindings
POST /bindings/{{vhost}}/delete | from a topic exchange | {BIND.format("topic source", "queue")}; read-key topic source | bindings
GET /users | | tag administrator
GET /users/{{user}} | | tag administrator
PUT /users/{{new user}} | | tag administrator | users
DELETE /users/{{spare user}} | | tag administrator | users
GET /permissions | | tag administrator
PUT /users/{{user}}/permissions/{{vhost}} | | tag administrator | permissions
DELETE /users/{{user}}/permissions/{{vhost}} | | tag administrator | permissions
"""
NAMES = {"new vhost": "vhost", "spare vhost": "vhost", "new user": "user", "spare user": "user", "new queue": "queue", "under": "queue", "new exchange": "exchange",
         "topic exchange": "exchange", "default exchange": "exchange", "spare": "topic"}
CONSTANTS = {"journal": "0", "new vhost": "brand-new", "spare vhost": "spare", "new user": "brand-new", "spare user": "spare", "user": "eve"}
UNTRIED = {"POST /session": "whose name and password it is decides", "DELETE /session": "each console of the random test logs out", "GET /live": "a stream without an end: crates/mainstem/tests/it/rights.rs asks for it"}
ENTRY = {"principal": "User:eve", "operation": "Read", "resource": "Topic", "name": "nothing"}
BODIES = {
    "PATCH /config": lambda n: {"set": {"max.connections.per.ip": "42000"}},
    "POST /topics": lambda n: {"name": n.new, "partitions": 1},
    "PATCH /topics/{topic}/config": lambda n: {"set": {"retention.ms": "1000000"}},
    "POST /topics/{topic}/partitions": lambda n: {"count": 9},
    "POST /topics/{topic}/truncate": lambda n: {"partitions": [{"partition": 0, "before": -1}]},
    "POST /topics/{topic}/records": lambda n: {"value": "x"},
    "PATCH /groups/{group}/config": lambda n: {"set": {"consumer.session.timeout.ms": "46000"}},
    "PATCH /groups/{group}/config topic for dead letters": lambda n: {"set": {"mainstem.share.dead.letter.topic": n.dead_letters}},
    "PATCH /groups/{group}/config topic for dead letters, that is not there": lambda n: {"set": {"mainstem.share.dead.letter.topic": n.new}},
    "POST /groups/{group}/reset": lambda n: {"to": "latest", "topics": [n.topic]},
    "POST /reload": lambda n: {},
    "POST /backup": lambda n: {"folder": "/proc/nowhere"},
    "POST /acls": lambda n: ENTRY,
    "POST /acls/delete": lambda n: {**ENTRY, "name": "kept"},
    "PUT /quotas": lambda n: {"entity": {"user": "eve"}, "values": {"producer_byte_rate": 1000000}},
    "POST /filters/check": lambda n: {"expression": "key = 'a'"},
    "PUT /filters/{group}": lambda n: {"expression": "key = 'b'"},
    "PUT /vhosts/{new vhost}": lambda n: {},
    "PUT /queues/{vhost}/{new queue}": lambda n: {},
    "PUT /queues/{vhost}/{new queue} that is new, with a dead-letter exchange": lambda n: {"arguments": {"x-dead-letter-exchange": n.dead_letter_exchange}},
    "PUT /queues/{vhost}/{new queue} that is new, with x-share-group": lambda n: {"arguments": {"x-share-group": n.group}},
    "PUT /queues/{vhost}/{under}": lambda n: {},
    "PUT /exchanges/{vhost}/{new exchange}": lambda n: {"type": "fanout"},
    "PUT /exchanges/{vhost}/{new exchange} that is new, with an alternate exchange": lambda n: {"type": "fanout", "arguments": {"alternate-exchange": n.alternate}},
    "POST /exchanges/{vhost}/{exchange}/publish": lambda n: {"routing_key": "none", "body": "x"},
    "POST /exchanges/{vhost}/{topic exchange}/publish": lambda n: {"routing_key": n.key, "body": "x"},
    "POST /exchanges/{vhost}/{default exchange}/publish": lambda n: {"routing_key": n.queue, "body": "x"},
    "POST /bindings/{vhost}": lambda n: {"source": n.source, "destination": n.queue, "routing_key": n.key},
    "POST /bindings/{vhost} from a topic exchange": lambda n: {"source": n.topic_source, "destination": n.queue, "routing_key": n.key},
    "POST /bindings/{vhost} of an exchange": lambda n: {"source": n.source, "destination": n.destination, "destination_kind": "exchange", "routing_key": n.key},
    "POST /bindings/{vhost}/delete": lambda n: {"source": n.source, "destination": n.queue, "routing_key": n.key},
    "POST /bindings/{vhost}/delete from a topic exchange": lambda n: {"source": n.topic_source, "destination": n.queue, "routing_key": n.key},
    "PUT /users/{new user}": lambda n: {"password": "new", "tags": ["administrator"]},
    "PUT /users/{user}/permissions/{vhost}": lambda n: {"configure": ".*", "write": ".*", "read": ".*"},
}
QUERIES = {"DELETE /groups/{group}/offsets": lambda n: f"topic={n.topic}", "GET /topics": lambda n: "internal=true&limit=1000"}
LISTS = ("/queues", "/exchanges", "/bindings", "/vhosts", "/groups", "/connections", "/filters")
# What can be tried is tried, where it is not in earnest.
TRIES = {"POST /topics", "DELETE /topics/{spare}", "PATCH /topics/{topic}/config", "POST /topics/{topic}/partitions", "POST /topics/{topic}/truncate", "DELETE /groups/{group}",
         "DELETE /groups/{group}/offsets", "PATCH /groups/{group}/config", "POST /groups/{group}/reset", "PATCH /config", "POST /acls", "POST /acls/delete", "PUT /quotas",
         "PUT /filters/{group}", "DELETE /filters/{group}", "DELETE /queues/{vhost}/{queue}", "POST /queues/{vhost}/{queue}/purge"}
GENTLE = {"DELETE /exchanges/{vhost}/{exchange}": "if_unused=true"}


def documented(path):
    return re.sub(r"\{([\w ]+)\}", lambda found: "{%s}" % NAMES.get(found[1], found[1]), path)


def made(line):
    what, about, text, changes = ([part.strip() for part in line.split("|")] + ["", ""])[:4]
    method, path = what.split(" ", 1)
    body, query = BODIES.get(f"{what} {about}", BODIES.get(what)), QUERIES.get(what, lambda n: "limit=1000" if method == "GET" and path in LISTS else "")
    places = tuple(place for place in re.findall(r"\{([\w ]+)\}", path) if place not in CONSTANTS)

    def ask(n, really):
        gentle = "" if really else "dry_run=true" if what in TRIES else GENTLE.get(what, "")
        asked = "&".join(filter(None, (query(n), gentle)))
        return method, "/v1" + filled(path, n, CONSTANTS) + (f"?{asked}" if asked else ""), json.dumps(body(n)) if body else ""
    alone = changes in ("vhosts", "users", "permissions", "connections", "node") or "share-group" in about or what == "POST /backup"
    more = ("key",) if "/bindings/" in path or "key" in text else ()
    return Row(ADMINISTRATION, f"{method} /v1{documented(path)}", about, needs(ADMINISTRATION, text), ask, things=(*places, *more), changes=changes, alone=alone,
               pools=(("topic", "committed topic"),) if "/groups/" in path else (), fatal=changes == "node", untried=UNTRIED.get(what, ""))


ROWS = [made(line) for line in TABLE.strip().splitlines()]
