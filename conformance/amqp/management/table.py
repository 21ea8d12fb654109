"""What is asked of the management API, in order: each step has a name, a request, and what of the answer counts.

`exact`: status and body as they are. `shape`: status, and the body with a type in place of each value. `status`: the status alone.
Steps run one after the other against a broker that has just been started; `running` steps while a client is at work."""

import base64
import http.client
import json
import re
import sys
import time
from pathlib import Path
from urllib.parse import quote

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE)]
RECORDED = "rabbitmq-4.3.6.json"
GUEST = ("guest", "guest")
NODE = r"(?:rabbit|mainstem|peer4_\d+)@[\w.-]+"


class Api:
    """The API of one broker."""

    def __init__(self, address):
        self.address = address

    def ask(self, method, path, body=None, user=GUEST, headers=None):
        """Status, headers and body (JSON if it is)."""
        connection = http.client.HTTPConnection(self.address, timeout=20)
        sent = dict(headers or {})
        if user is not None:
            sent["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, answer.headers, json.loads(text) if text else None
        except ValueError:
            return answer.status, answer.headers, text.decode(errors="replace")


def shape(value):
    """The types of a value; the elements of a list have one shape, in which a key that some lack ends with `?`."""
    if isinstance(value, dict):
        return {re.sub(NODE, "<node>", key): shape(part) for key, part in sorted(value.items())}
    if isinstance(value, list):
        return merged([shape(part) for part in value])
    if value is None:
        return "null"
    return {bool: "bool", int: "number", float: "number", str: "string"}[type(value)]


def merged(shapes):
    """One shape for all elements of a list."""
    if not shapes:
        return []
    if all(isinstance(one, dict) for one in shapes):
        keys = sorted({key for one in shapes for key in one})
        whole = {}
        for key in keys:
            found = merged([one[key] for one in shapes if key in one])
            whole[key if all(key in one for one in shapes) else key + "?"] = found[0]
        return [whole]
    kinds = []
    for one in shapes:
        if one not in kinds:
            kinds.append(one)
    return kinds if len(kinds) == 1 else [sorted(kinds, key=json.dumps)]


STEPS = []


def step(name, method, path, body=None, counts="exact", user=GUEST, headers=None):
    STEPS.append((name, method, path, body, counts, user, headers))


def get(name, path, counts="shape", **more):
    step(name, "GET", path, counts=counts, **more)


# Where `guest` is there only while no user is defined, it has to be made before others are.
step("guest: made", "PUT", "/api/users/guest", {"password": "guest", "tags": "administrator"})
step("guest: may do everything", "PUT", "/api/permissions/%2F/guest", {"configure": ".*", "write": ".*", "read": ".*"})
step("vhost: made", "PUT", "/api/vhosts/shop", {"description": "of a shop", "tags": "one,two", "default_queue_type": "quorum"})
step("vhost: made again", "PUT", "/api/vhosts/shop", {"description": "of a shop", "tags": "one,two", "default_queue_type": "quorum"})
step("vhost: without a body", "PUT", "/api/vhosts/plain")
get("vhost", "/api/vhosts/shop")
get("vhost: one that is not there", "/api/vhosts/nowhere", "exact")
get("vhosts", "/api/vhosts")
get("vhost: permissions", "/api/vhosts/%2F/permissions")
get("vhost: topic permissions", "/api/vhosts/%2F/topic-permissions")
get("vhost: connections", "/api/vhosts/%2F/connections")
get("vhost: channels", "/api/vhosts/%2F/channels")
step("vhost: deletion protection", "POST", "/api/vhosts/plain/deletion/protection")
step("vhost: protected", "DELETE", "/api/vhosts/plain")
step("vhost: no protection", "DELETE", "/api/vhosts/plain/deletion/protection")
step("vhost: deleted", "DELETE", "/api/vhosts/plain")
step("vhost: deleted again", "DELETE", "/api/vhosts/plain")
step("vhost: start", "POST", "/api/vhosts/shop/start/nowhere")

for name, tags in (("admin", "administrator"), ("watcher", "monitoring"), ("maker", "policymaker"), ("manager", "management"), ("nobody", "")):
    step(f"user: {name} made", "PUT", f"/api/users/{name}", {"password": "secret", "tags": tags})
step("user: made again", "PUT", "/api/users/manager", {"password": "secret", "tags": ["management"]})
step("user: with a hash", "PUT", "/api/users/hashed",
     {"password_hash": "gCICqA/yRUvL+F17UDzhwPqMIYScmdEcgn4nNDyK3YaR/FeP", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": "other,management"})
step("user: with an empty hash", "PUT", "/api/users/certified", {"password_hash": "", "tags": ""})
step("user: without tags", "PUT", "/api/users/untagged", {"password": "secret"})
step("user: without a password", "PUT", "/api/users/empty", {"tags": "management"})
step("user: with a password and a hash", "PUT", "/api/users/twice", {"password": "a", "password_hash": "b", "tags": ""})
step("user: with a hash that is none", "PUT", "/api/users/wrong", {"password_hash": "***", "tags": ""})
step("user: bad JSON", "PUT", "/api/users/wrong", b"{not json")
step("user: a list", "PUT", "/api/users/wrong", b"[]")
get("user", "/api/users/hashed", "exact")
get("user: not there", "/api/users/nowhere", "exact")
get("users", "/api/users")
get("users: without permissions", "/api/users/without-permissions")
get("user: permissions", "/api/users/guest/permissions", "exact")
get("user: topic permissions", "/api/users/guest/topic-permissions", "exact")
step("permissions: made", "PUT", "/api/permissions/%2F/manager", {"configure": ".*", "write": ".*", "read": ".*"})
step("permissions: again", "PUT", "/api/permissions/%2F/manager", {"configure": "^m", "write": ".*", "read": ".*"})
step("permissions: incomplete", "PUT", "/api/permissions/%2F/manager", {"configure": ".*"})
step("permissions: a bad expression", "PUT", "/api/permissions/%2F/manager", {"configure": "(", "write": ".*", "read": ".*"})
step("permissions: of nobody", "PUT", "/api/permissions/%2F/nowhere", {"configure": ".*", "write": ".*", "read": ".*"})
step("permissions: nowhere", "PUT", "/api/permissions/nowhere/manager", {"configure": ".*", "write": ".*", "read": ".*"})
for name in ("admin", "watcher", "maker"):
    step(f"permissions: {name}", "PUT", f"/api/permissions/%2F/{name}", {"configure": ".*", "write": ".*", "read": ".*"})
step("permissions: guest in shop", "PUT", "/api/permissions/shop/guest", {"configure": ".*", "write": ".*", "read": ".*"})
get("permissions: one", "/api/permissions/%2F/manager", "exact")
get("permissions: none", "/api/permissions/%2F/nobody", "exact")
get("permissions", "/api/permissions")
step("topic permissions: made", "PUT", "/api/topic-permissions/%2F/manager", {"exchange": "amq.topic", "write": "^a", "read": ".*"})
step("topic permissions: again", "PUT", "/api/topic-permissions/%2F/manager", {"exchange": "amq.topic", "write": "^a", "read": ".*"})
step("topic permissions: incomplete", "PUT", "/api/topic-permissions/%2F/manager", {"exchange": "amq.topic"})
get("topic permissions", "/api/topic-permissions", "exact")
get("topic permissions: one", "/api/topic-permissions/%2F/manager", "exact")
get("topic permissions: none", "/api/topic-permissions/%2F/guest", "exact")

step("exchange: made", "PUT", "/api/exchanges/%2F/orders", {"type": "topic", "durable": True, "auto_delete": False, "internal": False, "arguments": {"alternate-exchange": "amq.fanout"}})
step("exchange: made again", "PUT", "/api/exchanges/%2F/orders", {"type": "topic", "durable": True, "auto_delete": False, "internal": False, "arguments": {"alternate-exchange": "amq.fanout"}})
step("exchange: of another type", "PUT", "/api/exchanges/%2F/orders", {"type": "direct", "durable": True})
step("exchange: with defaults", "PUT", "/api/exchanges/%2F/plain", {"type": "direct"})
step("exchange: without a type", "PUT", "/api/exchanges/%2F/typeless", {})
step("exchange: of a type that is none", "PUT", "/api/exchanges/%2F/typeless", {"type": "x-nothing"})
step("exchange: reserved", "PUT", "/api/exchanges/%2F/amq.mine", {"type": "direct"})
step("exchange: nowhere", "PUT", "/api/exchanges/nowhere/x", {"type": "direct"})
step("exchange: with words for booleans", "PUT", "/api/exchanges/%2F/words", {"type": "direct", "durable": "true", "auto_delete": "false"})
step("exchange: a boolean that is none", "PUT", "/api/exchanges/%2F/words", {"type": "direct", "durable": "perhaps"})
get("exchange", "/api/exchanges/%2F/orders")
get("exchange: not there", "/api/exchanges/%2F/nowhere", "exact")
get("exchanges", "/api/exchanges")
get("exchanges of a vhost", "/api/exchanges/%2F")
get("exchanges nowhere", "/api/exchanges/nowhere", "exact")
get("default exchange", "/api/exchanges/%2F/amq.default")
step("exchange: predeclared deleted", "DELETE", "/api/exchanges/%2F/amq.direct")
step("exchange: deleted", "DELETE", "/api/exchanges/%2F/words")
step("exchange: deleted again", "DELETE", "/api/exchanges/%2F/words")

step("queue: made", "PUT", "/api/queues/%2F/work", {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 1000, "x-queue-type": "classic"}})
step("queue: made again", "PUT", "/api/queues/%2F/work", {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 1000, "x-queue-type": "classic"}})
step("queue: other arguments", "PUT", "/api/queues/%2F/work", {"durable": True, "arguments": {"x-max-length": 7, "x-queue-type": "classic"}})
step("queue: with defaults", "PUT", "/api/queues/%2F/plain", {})
step("queue: quorum", "PUT", "/api/queues/%2F/safe", {"durable": True, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5}})
step("queue: of a type that is none", "PUT", "/api/queues/%2F/wrong", {"arguments": {"x-queue-type": "nothing"}})
step("queue: bad argument", "PUT", "/api/queues/%2F/wrong", {"arguments": {"x-message-ttl": -1}})
step("queue: nowhere", "PUT", "/api/queues/nowhere/wrong", {})
step("queue: of the vhost's type", "PUT", "/api/queues/shop/typed", {})
get("queue of the vhost's type", "/api/queues/shop/typed?disable_stats=true", "shape")
step("queue: auto-delete", "PUT", "/api/queues/%2F/short", {"auto_delete": True})
step("queue: a name with a slash", "PUT", "/api/queues/%2F/a%2Fb%20c", {"arguments": {}})
get("queue: a name with a slash found", "/api/queues/%2F/a%2Fb%20c?columns=name,vhost,durable,auto_delete,arguments", "exact")
get("queue: not there", "/api/queues/%2F/nowhere", "exact")
get("queues nowhere", "/api/queues/nowhere", "exact")

step("binding: made", "POST", "/api/bindings/%2F/e/orders/q/work", {"routing_key": "a.#", "arguments": {}})
step("binding: made again", "POST", "/api/bindings/%2F/e/orders/q/work", {"routing_key": "a.#", "arguments": {}})
step("binding: with arguments", "POST", "/api/bindings/%2F/e/amq.headers/q/work", {"routing_key": "", "arguments": {"x-match": "all", "number": 7, "word": "w"}})
step("binding: with arguments and key", "POST", "/api/bindings/%2F/e/amq.headers/q/work", {"routing_key": "key 1", "arguments": {"x-match": "any"}})
step("binding: without a key", "POST", "/api/bindings/%2F/e/amq.fanout/q/work", {})
step("binding: without a body", "POST", "/api/bindings/%2F/e/amq.fanout/q/plain")
step("binding: to an exchange", "POST", "/api/bindings/%2F/e/orders/e/plain", {"routing_key": "b"})
step("binding: from nowhere", "POST", "/api/bindings/%2F/e/nowhere/q/work", {"routing_key": "a"})
step("binding: to nowhere", "POST", "/api/bindings/%2F/e/orders/q/nowhere", {"routing_key": "a"})
step("binding: from the default exchange", "POST", "/api/bindings/%2F/e/amq.default/q/work", {"routing_key": "a"})
get("bindings", "/api/bindings", "exact")
get("bindings of a vhost", "/api/bindings/%2F", "shape")
get("bindings of a queue", "/api/queues/%2F/work/bindings", "exact")
get("bindings between two", "/api/bindings/%2F/e/amq.headers/q/work", "exact")
get("bindings between exchanges", "/api/bindings/%2F/e/orders/e/plain", "exact")
get("bindings from", "/api/exchanges/%2F/orders/bindings/source", "exact")
get("bindings to", "/api/exchanges/%2F/plain/bindings/destination", "exact")
get("binding", "/api/bindings/%2F/e/orders/q/work/a.%23", "exact")
get("binding: not there", "/api/bindings/%2F/e/orders/q/work/b.%23", "exact")
get("bindings of a queue not there", "/api/queues/%2F/nowhere/bindings", "exact")
step("binding: deleted", "DELETE", "/api/bindings/%2F/e/amq.fanout/q/work/~")
step("binding: deleted again", "DELETE", "/api/bindings/%2F/e/amq.fanout/q/work/~")

step("publish", "POST", "/api/exchanges/%2F/amq.default/publish",
     {"properties": {"delivery_mode": 2, "headers": {"n": 1, "s": "text", "b": True, "l": [1, "a"], "t": {"x": 1.5}}, "content_type": "text/plain", "priority": 3},
      "routing_key": "work", "payload": "hello", "payload_encoding": "string"})
step("publish: a header that is null", "POST", "/api/exchanges/%2F/amq.default/publish", {"properties": {"headers": {"n": None}}, "routing_key": "work", "payload": "", "payload_encoding": "string"})
step("publish: base64", "POST", "/api/exchanges/%2F/orders/publish", {"properties": {}, "routing_key": "a.b", "payload": "AP8=", "payload_encoding": "base64"})
step("publish: unroutable", "POST", "/api/exchanges/%2F/amq.direct/publish", {"properties": {}, "routing_key": "nobody", "payload": "x", "payload_encoding": "string"})
step("publish: bad base64", "POST", "/api/exchanges/%2F/orders/publish", {"properties": {}, "routing_key": "a.b", "payload": "*", "payload_encoding": "base64"})
step("publish: other encoding", "POST", "/api/exchanges/%2F/orders/publish", {"properties": {}, "routing_key": "a.b", "payload": "x", "payload_encoding": "other"})
step("publish: incomplete", "POST", "/api/exchanges/%2F/orders/publish", {"properties": {}, "routing_key": "a.b"})
step("publish: nowhere", "POST", "/api/exchanges/%2F/nowhere/publish", {"properties": {}, "routing_key": "a.b", "payload": "x", "payload_encoding": "string"})
step("publish: bad properties", "POST", "/api/exchanges/%2F/orders/publish", {"properties": {"delivery_mode": "two"}, "routing_key": "a.b", "payload": "x", "payload_encoding": "string"})
step("get: kept", "POST", "/api/queues/%2F/work/get", {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"})
step("get: cut", "POST", "/api/queues/%2F/work/get", {"count": 1, "ackmode": "reject_requeue_true", "encoding": "base64", "truncate": 2})
step("get: taken", "POST", "/api/queues/%2F/work/get", {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"})
step("get: incomplete", "POST", "/api/queues/%2F/work/get", {"count": 1})
step("get: bad mode", "POST", "/api/queues/%2F/work/get", {"count": 1, "ackmode": "other", "encoding": "auto"})
step("get: nowhere", "POST", "/api/queues/%2F/nowhere/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"})
step("get: nothing there", "POST", "/api/queues/%2F/plain/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"})
step("purge", "DELETE", "/api/queues/%2F/work/contents")
step("purge: nowhere", "DELETE", "/api/queues/%2F/nowhere/contents")
step("actions: sync", "POST", "/api/queues/%2F/work/actions", {"action": "sync"})
step("actions: other", "POST", "/api/queues/%2F/work/actions", {"action": "other"})

step("policy: made", "PUT", "/api/policies/%2F/limits", {"pattern": "^work$", "definition": {"max-length": 500, "message-ttl": 60000}, "priority": 3, "apply-to": "queues"})
step("policy: again", "PUT", "/api/policies/%2F/limits", {"pattern": "^work$", "definition": {"max-length": 500, "message-ttl": 60000}, "priority": 3, "apply-to": "queues"})
step("policy: unknown key", "PUT", "/api/policies/%2F/wrong", {"pattern": ".*", "definition": {"no-such-thing": 1}})
step("policy: incomplete", "PUT", "/api/policies/%2F/wrong", {"pattern": ".*"})
step("policy: bad expression", "PUT", "/api/policies/%2F/wrong", {"pattern": "(", "definition": {"max-length": 1}})
step("policy: bad value", "PUT", "/api/policies/%2F/wrong", {"pattern": ".*", "definition": {"max-length": "a"}})
step("policy: to others", "PUT", "/api/policies/%2F/wrong", {"pattern": ".*", "definition": {"max-length": 1}, "apply-to": "others"})
get("policies", "/api/policies", "exact")
get("policies of a vhost", "/api/policies/%2F", "exact")
get("policy", "/api/policies/%2F/limits", "exact")
get("policy: not there", "/api/policies/%2F/nowhere", "exact")
step("operator policy: made", "PUT", "/api/operator-policies/%2F/top", {"pattern": "^work$", "definition": {"max-length": 400}, "priority": 0, "apply-to": "queues"})
get("operator policies", "/api/operator-policies", "exact")
get("operator policy", "/api/operator-policies/%2F/top", "exact")
step("parameter: of no component", "PUT", "/api/parameters/nothing/%2F/name", {"value": {"a": 1}})
get("parameters", "/api/parameters", "exact")
get("parameters of a component", "/api/parameters/nothing", "exact")
step("global parameter: made", "PUT", "/api/global-parameters/mine", {"name": "mine", "value": {"a": 1}})
get("global parameter", "/api/global-parameters/mine", "exact")
get("global parameters", "/api/global-parameters", "shape")
get("global parameter: not there", "/api/global-parameters/nowhere", "exact")
step("global parameter: deleted", "DELETE", "/api/global-parameters/mine")
step("vhost limit: made", "PUT", "/api/vhost-limits/shop/max-queues", {"value": 5})
step("vhost limit: wrong", "PUT", "/api/vhost-limits/shop/max-nothing", {"value": 5})
get("vhost limits", "/api/vhost-limits", "exact")
get("vhost limits of one", "/api/vhost-limits/shop", "exact")
step("user limit: made", "PUT", "/api/user-limits/manager/max-connections", {"value": 5})
step("user limit: wrong", "PUT", "/api/user-limits/manager/max-nothing", {"value": 5})
get("user limits", "/api/user-limits", "exact")
get("user limits of one", "/api/user-limits/manager", "exact")

get("whoami", "/api/whoami", "exact")
get("overview", "/api/overview")
get("cluster name", "/api/cluster-name", "shape")
get("nodes", "/api/nodes")
get("extensions", "/api/extensions", "status")
get("auth", "/api/auth")
get("feature flags", "/api/feature-flags")
get("deprecated features", "/api/deprecated-features", "status")
get("deprecated features in use", "/api/deprecated-features/used", "status")
get("aliveness test", "/api/aliveness-test/%2F", "exact")
get("health: alarms", "/api/health/checks/alarms", "exact")
get("health: local alarms", "/api/health/checks/local-alarms", "exact")
get("health: virtual hosts", "/api/health/checks/virtual-hosts", "exact")
get("health: quorum", "/api/health/checks/node-is-quorum-critical", "exact")
get("health: mirrors", "/api/health/checks/node-is-mirror-sync-critical", "exact")
get("health: a port", "/api/health/checks/port-listener/1", "shape")
get("health: a protocol", "/api/health/checks/protocol-listener/amqp", "exact")
get("health: protocols", "/api/health/checks/protocol-listener/amqp091", "exact")
get("health: a protocol that nobody serves", "/api/health/checks/protocol-listener/mqtt", "shape")
get("health: certificates", "/api/health/checks/certificate-expiration/1/months", "exact")
get("health: certificates, wrong unit", "/api/health/checks/certificate-expiration/1/moons", "exact")
get("health: serves clients", "/api/health/checks/ready-to-serve-clients", "exact")
get("health: in service", "/api/health/checks/is-in-service", "exact")
get("health: below limit", "/api/health/checks/below-node-connection-limit", "exact")
get("health: initialized", "/api/health/checks/metadata-store/initialized", "exact")
get("health: initialized with data", "/api/health/checks/metadata-store/initialized/with-data", "exact")
get("health: leaders", "/api/health/checks/quorum-queues-without-elected-leaders/vhost/%2F", "exact")
get("health: leaders of all", "/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts", "exact")
get("health: nothing", "/api/health/checks/nothing", "exact")
step("rebalance", "POST", "/api/rebalance/queues")
get("no such page", "/api/nowhere", "exact")
step("a method that is none here", "POST", "/api/overview", {})
step("a method that is none of a queue", "POST", "/api/queues/%2F/work", {})
get("nobody", "/api/overview", "exact", user=None)
get("a wrong password", "/api/overview", "exact", user=("guest", "wrong"))
get("somebody who may not", "/api/overview", "exact", user=("nobody", "secret"))
get("management: users", "/api/users", "exact", user=("manager", "secret"))
get("management: nodes", "/api/nodes", "exact", user=("manager", "secret"))
get("management: queues", "/api/queues?disable_stats=true&columns=name", "exact", user=("manager", "secret"))
get("management: another vhost", "/api/queues/shop", "exact", user=("manager", "secret"))
get("management: policies", "/api/policies/%2F", "exact", user=("manager", "secret"))
get("management: vhosts", "/api/vhosts?columns=name", "exact", user=("manager", "secret"))
step("management: a queue it may not make", "PUT", "/api/queues/%2F/other", {}, user=("manager", "secret"))
step("management: a queue it may make", "PUT", "/api/queues/%2F/mine", {}, user=("manager", "secret"))
step("management: definitions", "GET", "/api/definitions", user=("manager", "secret"))
step("policymaker: a policy", "PUT", "/api/policies/%2F/made", {"pattern": "^q", "definition": {"max-length": 9}}, user=("maker", "secret"))
step("policymaker: an operator policy", "PUT", "/api/operator-policies/%2F/made", {"pattern": "^q", "definition": {"max-length": 9}}, user=("maker", "secret"))
get("monitoring: nodes", "/api/nodes?columns=running,type", "exact", user=("watcher", "secret"))
step("monitoring: a user", "PUT", "/api/users/other", {"password": "x", "tags": ""}, user=("watcher", "secret"))
step("monitoring: a vhost", "PUT", "/api/vhosts/other", {}, user=("watcher", "secret"))
get("a page of queues", "/api/queues?page=1&page_size=2&columns=name&sort=name", "exact")
get("a page of queues by name", "/api/queues?page=1&page_size=10&name=WOR&columns=name", "exact")
get("a page of queues by an expression", "/api/queues?page=1&page_size=10&name=%5Ew.*k%24&use_regex=true&columns=name", "exact")
get("a page backwards", "/api/queues?page=1&page_size=2&columns=name&sort=name&sort_reverse=true", "exact")
get("a page that is none", "/api/queues?page=0&page_size=2", "exact")
get("a page beyond the last", "/api/queues?page=99&page_size=2", "exact")
get("a page that is too large", "/api/queues?page=1&page_size=501", "exact")
get("a page with a word", "/api/queues?page=one", "exact")
get("sorted", "/api/exchanges/%2F?sort=name&columns=name,type", "exact")
get("nested columns", "/api/queues/%2F/work?columns=arguments.x-max-length,name", "exact")
get("queues without stats", "/api/queues?disable_stats=true")
get("queues with totals", "/api/queues?disable_stats=true&enable_queue_totals=true")
get("definitions of a vhost", "/api/definitions/shop", "shape")
get("definitions", "/api/definitions", "shape")
step("definitions: not JSON", "POST", "/api/definitions", b"{")
step("definitions: empty", "POST", "/api/definitions", {})
step("definitions: a wrong queue", "POST", "/api/definitions", {"queues": [{"name": "q"}]}, counts="status")
step("users: many deleted", "POST", "/api/users/bulk-delete", {"users": ["empty", "untagged"]})
step("queue: deleted if empty", "DELETE", "/api/queues/%2F/plain?if-empty=true")
step("queue: deleted again", "DELETE", "/api/queues/%2F/plain")

# While a client publishes and consumes: see `at_work`.
RUNNING = []


def running(name, path, counts="shape", method="GET", headers=None):
    RUNNING.append((name, method, path, None, counts, GUEST, headers))


running("overview at work", "/api/overview")
running("overview, rates", "/api/overview?lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5", "status")
running("queue at work", "/api/queues/%2F/busy")
running("queues at work", "/api/queues/%2F?name=busy&page=1")
running("quorum queue at work", "/api/queues/%2F/safe-busy")
running("exchange at work", "/api/exchanges/%2F/through")
running("exchanges at work", "/api/exchanges/%2F")
running("consumers", "/api/consumers")
running("consumers of a vhost", "/api/consumers/%2F")
running("connections", "/api/connections")
running("connection", "/api/connections/{connection}")
running("channels of a connection", "/api/connections/{connection}/channels")
running("channels", "/api/channels")
running("channel", "/api/channels/{connection} (1)")
running("connections of a user", "/api/connections/username/guest")
running("connection: not there", "/api/connections/nowhere", "exact")
running("channel: not there", "/api/channels/nowhere", "exact")
running("vhosts at work", "/api/vhosts/%2F")
running("node at work", "/api/nodes/{node}", "shape")
running("queue in use is not deleted", "/api/queues/%2F/busy?if-unused=true", "exact", "DELETE")
running("queue that is not empty is not deleted", "/api/queues/%2F/filled?if-empty=true", "exact", "DELETE")
running("connection closed", "/api/connections/{connection}", "exact", "DELETE", {"X-Reason": "by hand"})
running("connection closed again", "/api/connections/{connection}", "exact", "DELETE", {"X-Reason": "by hand"})


def hidden(value):
    """Words that differ from run to run."""
    if isinstance(value, dict):
        return {key: hidden(part) for key, part in value.items()}
    if isinstance(value, list):
        return [hidden(part) for part in value]
    if isinstance(value, str):
        value = re.sub(NODE, "<node>", value)
        return re.sub(r"<node>\.\d+\.\d+\.\d+", "<pid>", value)
    return value


def told(answer, counts):
    status, headers, body = answer
    if counts == "status":
        return {"status": status}
    found = {"status": status, "body": hidden(body) if counts == "exact" else shape(body)}
    if headers.get("Location") and counts == "exact":
        found["location"] = headers["Location"]
    return found


def run(api, amqp, seconds=2):
    """All answers, by name; a client is at work for so long before the last ones: RabbitMQ looks at counts every 5 s."""
    for name, method, path, body, counts, user, headers in STEPS:
        yield name, told(api.ask(method, path, body, user, headers), counts)
    yield from at_work(api, amqp, seconds)


def at_work(api, amqp, seconds):
    import pika
    host, port = amqp.split(":")
    properties = {"connection_name": "at work"}
    link = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), client_properties=properties))
    channel = link.channel()
    channel.exchange_declare("through", "fanout", durable=True)
    for queue, kind in (("busy", "classic"), ("safe-busy", "quorum"), ("filled", "classic")):
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        channel.queue_bind(queue, "through")
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=10)
    for queue in ("busy", "safe-busy"):
        channel.basic_consume(queue, lambda *_: None, arguments={"x-priority": 3}, consumer_tag=f"tag-{queue}")
    until, count = time.time() + seconds, 0
    while time.time() < until:
        channel.basic_publish("through", "key", b"x" * 100, pika.BasicProperties(delivery_mode=2))
        channel.basic_publish("", "busy", b"x" * 100, pika.BasicProperties(delivery_mode=2))
        link.process_data_events(0.05)
        count += 1
        if count % 10 == 0:
            channel.basic_ack(0, multiple=True)
            method, _, _ = channel.basic_get("filled")
            channel.basic_ack(method.delivery_tag)
    [found] = [one for one in api.ask("GET", "/api/connections")[2] if one["client_properties"].get("connection_name") == "at work"]
    node = api.ask("GET", "/api/overview")[2]["node"]
    for name, method, path, body, counts, user, headers in RUNNING:
        path = path.replace("{connection} (1)", quote(found["name"] + " (1)", safe="")).replace("{connection}", quote(found["name"], safe="")).replace("{node}", quote(node, safe=""))
        yield name, told(api.ask(method, path, body, user, headers), counts)
    try:
        link.process_data_events(2)
        link.process_data_events(2)
        yield "the client hears of it", {"closed": None}
    except pika.exceptions.ConnectionClosed as closed:
        yield "the client hears of it", {"closed": [closed.reply_code, closed.reply_text]}
