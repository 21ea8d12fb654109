"""What each route of `/api` takes. A line: method and path, what is told apart, needs, what is changed; in the path the names of the table in
`docs/management.md`, behind them what stands there."""

import json
import re
from urllib.parse import quote

from model import MANAGEMENT
from requirements import Row, needs

LOOK = "tag management; look vhost"
CONFIGURE = LOOK + "; configure {0}; {1} {0}"
PASSED_ON = "; read {0}; Read {0}; write {1}; Write {1}"
# Reading and changing needs permissions, also of those who may look.
ENTRIES = "tag management; look vhost; "
BIND = LOOK + "; write {1}; Write {1}; read {0}; Read {0}"
OWN = "tag monitoring or own connection"
TABLE = f"""
GET /overview | | tag management
GET /whoami | | tag management
GET /cluster-name | | tag management
GET /extensions | | tag management
GET /feature-flags | | tag management
GET /deprecated-features | | tag management
GET /deprecated-features/used | | tag management
GET /nodes | | tag monitoring
GET /nodes/{{node}} | | tag monitoring
GET /nodes/{{node}}/memory | | tag monitoring
GET /vhosts | | tag management; look vhost (left out)
GET /vhosts/{{vhost}} | | tag administrator
GET /vhosts/{{vhost}}/connections | | {LOOK}
GET /vhosts/{{vhost}}/channels | | {LOOK}
PUT /vhosts/{{new vhost}} | | tag administrator | vhosts
DELETE /vhosts/{{spare vhost}} | | tag administrator | vhosts
POST /vhosts/{{vhost}}/start/{{node}} | | tag administrator
GET /vhost-limits | | tag management; look vhost (left out)
GET /vhost-limits/{{vhost}} | | {LOOK}
PUT /vhost-limits/{{vhost}}/{{limit}} | | tag administrator | limits
DELETE /vhost-limits/{{vhost}}/{{limit}} | | tag administrator | limits
GET /users | | tag administrator
GET /users/without-permissions | | tag administrator
GET /users/{{user}} | | tag administrator
GET /user-limits | | tag administrator
GET /user-limits/{{user}} | | tag administrator
PUT /users/{{new user}} | | tag administrator | users
DELETE /users/{{spare user}} | | tag administrator | users
PUT /user-limits/{{user}}/{{limit}} | | tag administrator | limits
DELETE /user-limits/{{user}}/{{limit}} | | tag administrator | limits
POST /users/bulk-delete | | tag administrator | users
GET /permissions | | tag administrator
GET /permissions/{{vhost}}/{{user}} | | tag administrator
GET /users/{{user}}/permissions | | tag administrator
GET /vhosts/{{vhost}}/permissions | | tag administrator
PUT /permissions/{{vhost}}/{{user}} | | tag administrator | permissions
DELETE /permissions/{{vhost}}/{{user}} | | tag administrator | permissions
GET /topic-permissions | | tag administrator
GET /topic-permissions/{{vhost}}/{{user}} | | tag administrator
GET /users/{{user}}/topic-permissions | | tag administrator
GET /vhosts/{{vhost}}/topic-permissions | | tag administrator
PUT /topic-permissions/{{vhost}}/{{user}} | | tag administrator | permissions
DELETE /topic-permissions/{{vhost}}/{{user}} | | tag administrator | permissions
DELETE /topic-permissions/{{vhost}}/{{user}}/{{exchange}} | | tag administrator | permissions
GET /exchanges | | tag management; look vhost (left out)
GET /exchanges/{{vhost}} | | {LOOK}
GET /exchanges/{{vhost}}/{{exchange}} | | {LOOK}
PUT /exchanges/{{vhost}}/{{new exchange}} | | {CONFIGURE.format("new exchange", "Create")} | exchanges
PUT /exchanges/{{vhost}}/{{new exchange}} | that is new, with an alternate exchange | {CONFIGURE.format("new exchange", "Create") + PASSED_ON.format("new exchange", "alternate")} | exchanges
DELETE /exchanges/{{vhost}}/{{exchange}} | | {CONFIGURE.format("exchange", "Delete")} | exchanges
GET /exchanges/{{vhost}}/{{exchange}}/bindings/source | | {LOOK}
GET /exchanges/{{vhost}}/{{exchange}}/bindings/destination | | {LOOK}
POST /exchanges/{{vhost}}/{{exchange}}/publish | | {LOOK}; write exchange; Write exchange | messages
POST /exchanges/{{vhost}}/{{topic exchange}}/publish | to a topic exchange | {LOOK}; write topic exchange; Write topic exchange; write-key topic exchange | messages
POST /exchanges/{{vhost}}/{{default exchange}}/publish | to the default exchange | {LOOK}; write default exchange; Write queue | messages
GET /queues | | tag management; look vhost (left out)
GET /queues/detailed | | tag management; look vhost (left out)
GET /queues/{{vhost}} | | {LOOK}
GET /queues/{{vhost}}/{{queue}} | | {LOOK}
PUT /queues/{{vhost}}/{{new queue}} | | {CONFIGURE.format("new queue", "Create")} | queues
PUT /queues/{{vhost}}/{{new queue}} | that is new, with a dead-letter exchange | {CONFIGURE.format("new queue", "Create") + PASSED_ON.format("new queue", "dead letter exchange")} | queues
PUT /queues/{{vhost}}/{{under}} | that is new, over a topic that is there | {CONFIGURE.format("under", "Create")}; read under; Read under; write under; Write under; Alter under | queues
PUT /queues/{{vhost}}/{{new queue}} | that is new, with x-share-group | {CONFIGURE.format("new queue", "Create")}; Read group | queues
DELETE /queues/{{vhost}}/{{queue}} | | {CONFIGURE.format("queue", "Delete")} | queues
GET /queues/{{vhost}}/{{queue}}/bindings | | {LOOK}
DELETE /queues/{{vhost}}/{{queue}}/contents | | {LOOK}; read queue; Read queue; Read group of queues | messages
POST /queues/{{vhost}}/{{queue}}/get | | {LOOK}; read queue; Read queue; Read group of queues | messages
POST /queues/{{vhost}}/{{queue}}/actions | | tag administrator
POST /rebalance/queues | | tag administrator
GET /bindings | | tag management; look vhost (left out)
GET /bindings/{{vhost}} | | {LOOK}
GET /bindings/{{vhost}}/e/{{source}}/q/{{queue}} | | {LOOK}
GET /bindings/{{vhost}}/e/{{source}}/e/{{destination}} | | {LOOK}
POST /bindings/{{vhost}}/e/{{source}}/q/{{queue}} | | {BIND.format("source", "queue")} | bindings
POST /bindings/{{vhost}}/e/{{topic source}}/q/{{queue}} | from a topic exchange | {BIND.format("topic source", "queue")}; read-key topic source | bindings
POST /bindings/{{vhost}}/e/{{source}}/e/{{destination}} | | {BIND.format("source", "destination")} | bindings
POST /bindings/{{vhost}}/e/{{topic source}}/e/{{destination}} | from a topic exchange | {BIND.format("topic source", "destination")}; read-key topic source | bindings
GET /bindings/{{vhost}}/e/{{source}}/q/{{queue}}/{{kept key}} | | {LOOK}
GET /bindings/{{vhost}}/e/{{source}}/e/{{destination}}/{{kept key}} | | {LOOK}
DELETE /bindings/{{vhost}}/e/{{source}}/q/{{queue}}/{{kept key}} | | {BIND.format("source", "queue")} | bindings
DELETE /bindings/{{vhost}}/e/{{source}}/e/{{destination}}/{{kept key}} | | {BIND.format("source", "destination")} | bindings
GET /consumers | | tag management; look vhost (left out)
GET /consumers/{{vhost}} | | {LOOK}
GET /connections | | tag management; {OWN} (left out)
GET /connections/{{connection}} | | tag management; {OWN}
GET /connections/{{connection}}/channels | | tag management; {OWN}
GET /connections/username/{{owner}} | | tag management; {OWN} (left out)
DELETE /connections/{{connection}} | | tag management; tag administrator or own connection | connections
DELETE /connections/username/{{owner}} | | tag management; tag administrator or own connection (nothing is done) | connections
GET /channels | | tag management; {OWN} (left out)
GET /channels/{{channel}} | | tag management; {OWN} (404)
GET /policies | | tag management; look vhost (left out)
GET /policies/{{vhost}} | | {LOOK}
GET /policies/{{vhost}}/{{policy}} | | tag policymaker; look vhost; enter vhost or tag administrator
PUT /policies/{{vhost}}/{{policy}} | | tag policymaker; look vhost; enter vhost or tag administrator; Create matched | policies
PUT /policies/{{vhost}}/{{policy}} | with a dead-letter exchange | tag policymaker; look vhost; enter vhost or tag administrator; Create matched; Read matched; Write dead letter exchange | policies
DELETE /policies/{{vhost}}/{{policy}} | | tag policymaker; look vhost; enter vhost or tag administrator; Create matched | policies
GET /operator-policies | | tag management; look vhost (left out)
GET /operator-policies/{{vhost}} | | {LOOK}
GET /operator-policies/{{vhost}}/{{policy}} | | tag administrator
PUT /operator-policies/{{vhost}}/{{policy}} | | tag administrator | policies
DELETE /operator-policies/{{vhost}}/{{policy}} | | tag administrator | policies
GET /parameters | | tag policymaker; look vhost (left out)
GET /parameters/{{component}} | | tag policymaker; look vhost (left out)
GET /parameters/{{component}}/{{vhost}} | | tag policymaker; look vhost; enter vhost or tag administrator
GET /parameters/{{component}}/{{vhost}}/{{policy}} | | tag policymaker; look vhost; enter vhost or tag administrator
PUT /parameters/{{component}}/{{vhost}}/{{policy}} | | tag administrator | policies
DELETE /parameters/{{component}}/{{vhost}}/{{policy}} | | tag administrator | policies
GET /global-parameters | | tag policymaker
GET /global-parameters/{{parameter}} | | tag policymaker
PUT /global-parameters/{{parameter}} | | tag administrator | policies
DELETE /global-parameters/{{parameter}} | | tag administrator | policies
GET /federation-links | | tag monitoring
GET /federation-links/{{vhost}} | | tag monitoring
GET /shovels | | tag monitoring
GET /shovels/{{vhost}} | | tag monitoring
GET /definitions | | tag administrator
GET /definitions/{{vhost}} | | tag administrator
POST /definitions | | tag administrator | definitions
POST /definitions/{{vhost}} | | tag administrator | definitions
GET /aliveness-test/{{vhost}} | | {LOOK}
GET /health/checks/virtual-hosts | | tag management
GET /health/checks/ready-to-serve-clients | | tag management
GET /health/checks/is-in-service | | tag management
GET /health/checks/metadata-store/initialized | | tag management
GET /health/checks/metadata-store/initialized/with-data | | tag management
GET /health/checks/quorum-queues-without-elected-leaders/all-vhosts | | tag management
GET /health/checks/quorum-queues-without-elected-leaders/vhost/{{vhost}} | | {LOOK}
GET /health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{{pattern}} | | tag management
GET /health/checks/quorum-queues-without-elected-leaders/vhost/{{vhost}}/pattern/{{pattern}} | | {LOOK}
GET /health/checks/alarms | | tag management
GET /health/checks/local-alarms | | tag management
GET /health/checks/node-is-quorum-critical | | tag management
GET /health/checks/certificate-expiration/{{within}}/{{unit}} | | tag management
GET /health/checks/port-listener/{{port}} | | tag management
GET /health/checks/protocol-listener/{{listener}} | | tag management
GET /health/checks/below-node-connection-limit | | tag management
"""
# What stands in a path in place of what docs/management.md calls otherwise.
NAMES = {"new vhost": "vhost", "spare vhost": "vhost", "new user": "name", "spare user": "name", "exchange": "name", "new exchange": "name", "topic exchange": "name",
         "default exchange": "name", "queue": "name", "new queue": "name", "under": "name", "topic source": "source", "destination": "exchange", "kept key": "key", "owner": "name",
         "policy": "name", "parameter": "name", "listener": "protocol"}
# What stands there that is no name of a thing.
CONSTANTS = {"node": "mainstem", "limit": "max-connections", "component": "operator_policy", "port": "1", "within": "1", "unit": "days", "listener": "amqp", "pattern": ".*", "parameter": "kept",
             "policy": "kept", "new vhost": "brand-new", "spare vhost": "spare", "new user": "brand-new", "spare user": "spare", "user": "eve", "kept key": "k.kept"}
MESSAGE = {"properties": {}, "payload": "x", "payload_encoding": "string"}
BODIES = {
    "PUT /vhosts/{new vhost}": lambda n: {},
    "POST /vhosts/{vhost}/start/{node}": lambda n: {},
    "PUT /vhost-limits/{vhost}/{limit}": lambda n: {"value": 7000},
    "PUT /users/{new user}": lambda n: {"password_hash": "", "tags": "administrator"},
    "PUT /user-limits/{user}/{limit}": lambda n: {"value": 7000},
    "POST /users/bulk-delete": lambda n: {"users": ["spare"]},
    "PUT /permissions/{vhost}/{user}": lambda n: {"configure": ".*", "write": ".*", "read": ".*"},
    "PUT /topic-permissions/{vhost}/{user}": lambda n: {"exchange": "changed", "write": ".*", "read": ".*"},
    "PUT /exchanges/{vhost}/{new exchange}": lambda n: {"type": "fanout", "durable": True},
    "PUT /exchanges/{vhost}/{new exchange} that is new, with an alternate exchange": lambda n: {"type": "fanout", "durable": True, "arguments": {"alternate-exchange": n.alternate}},
    "POST /exchanges/{vhost}/{exchange}/publish": lambda n: {**MESSAGE, "routing_key": "none"},
    "POST /exchanges/{vhost}/{topic exchange}/publish": lambda n: {**MESSAGE, "routing_key": n.key},
    "POST /exchanges/{vhost}/{default exchange}/publish": lambda n: {**MESSAGE, "routing_key": n.queue},
    "PUT /queues/{vhost}/{new queue}": lambda n: {"durable": True},
    "PUT /queues/{vhost}/{new queue} that is new, with a dead-letter exchange": lambda n: {"durable": True, "arguments": {"x-dead-letter-exchange": n.dead_letter_exchange}},
    "PUT /queues/{vhost}/{new queue} that is new, with x-share-group": lambda n: {"durable": True, "arguments": {"x-share-group": n.group}},
    "PUT /queues/{vhost}/{under}": lambda n: {"durable": True},
    "POST /queues/{vhost}/{queue}/get": lambda n: {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    "POST /queues/{vhost}/{queue}/actions": lambda n: {"action": "sync"},
    "POST /rebalance/queues": lambda n: {},
    **{f"POST /bindings/{{vhost}}/e/{{{source}}}/{to}": lambda n: {"routing_key": n.key} for source in ("source", "topic source") for to in ("q/{queue}", "e/{destination}")},
    "PUT /policies/{vhost}/{policy}": lambda n: {"pattern": "^none$", "definition": {"max-length": 1234}},
    "PUT /policies/{vhost}/{policy} with a dead-letter exchange": lambda n: {"pattern": "^none$", "definition": {"dead-letter-exchange": n.dead_letter_exchange}},
    "PUT /operator-policies/{vhost}/{policy}": lambda n: {"pattern": "^none$", "definition": {"max-length": 1234}},
    "PUT /parameters/{component}/{vhost}/{policy}": lambda n: {"value": {"pattern": "^none$", "definition": {"max-length": 1234}}},
    "PUT /global-parameters/{parameter}": lambda n: {"value": "changed"},
    "POST /definitions": lambda n: {"vhosts": [{"name": "brand-new"}]},
    "POST /definitions/{vhost}": lambda n: {"queues": [{"name": "brand-new", "durable": True, "auto_delete": False, "arguments": {}}]},
}
# A wish not to change much, where it is not in earnest.
GENTLE = {"DELETE /exchanges/{vhost}/{exchange}": "if-unused=true", "DELETE /queues/{vhost}/{queue}": "if-empty=true"}


def documented(path):
    """The path as docs/management.md has it."""
    if path.startswith("/users/{user}") and path.count("/") == 2 or path.startswith("/user-limits/{user}"):
        path = path.replace("{user}", "{name}")
    if "/bindings/{vhost}/e/" in path:
        return re.sub(r"\{([\w ]+)\}", lambda found: "{%s}" % {"queue": "queue", "topic source": "source", "destination": "exchange", "kept key": "key"}.get(found[1], found[1]), path)
    if path.startswith("/topic-permissions"):
        return path
    return re.sub(r"\{([\w ]+)\}", lambda found: "{%s}" % NAMES.get(found[1], found[1]), path)


def filled(path, n, constants=CONSTANTS):
    return re.sub(r"\{([\w ]+)\}", lambda found: quote(constants.get(found[1]) or n[found[1]] or "amq.default", safe=""), path)


def made(line):
    """The row of a line."""
    what, about, text, changes = ([part.strip() for part in line.split("|")] + [""])[:4]
    method, path = what.split(" ", 1)
    body, gentle = BODIES.get(f"{what} {about}", BODIES.get(what)), GENTLE.get(what)
    places = tuple(place for place in re.findall(r"\{([\w ]+)\}", path) if place not in CONSTANTS)

    def ask(n, really):
        target = "/api" + filled(path, n) + (f"?{gentle}" if gentle and not really else "")
        return method, target, json.dumps(body(n)) if body else ""
    alone = bool(changes) and changes in ("vhosts", "users", "limits", "permissions", "policies", "definitions", "connections") or "share-group" in about
    more = ("key",) if "key" in text or "/q/" in path or "/e/" in path else ()
    return Row(MANAGEMENT, f"{method} {documented(path)}", about, needs(MANAGEMENT, text), ask, things=(*places, *more), changes=changes, alone=alone)


ROWS = [made(line) for line in TABLE.strip().splitlines()]
