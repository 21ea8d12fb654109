"""Rows for HTTP: every route of `/v1`, from the description that the broker serves, and every route of `/api`, from the table in
`docs/management.md`, which a test holds against the code. Bodies have many entries, as far as they may be long; what has no body has a
long query."""

import dataclasses
import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANAGEMENT = HERE.parents[1] / "docs/management.md"
BODY_MAX = 1 << 20
# Of the head of a request, which has 16 KiB.
QUERY_MAX = 15_000
SIZES, QUERY_SIZES = (1_000, 10_000, 50_000), (15, 150, 1_500)
# What stands in paths and bodies. A thing that is made is only tried where that can be asked for.
IN_PATH = {"vhost": "%2F", "topic": "cost", "group": "cost-group", "queue": "cost-queue", "exchange": "cost-exchange", "user": "bob", "journal": "0", "connection": "1", "name": "cost-queue",
           "node": "mainstem", "limit": "max-queues", "source": "cost-exchange", "key": "k", "component": "operator_policy", "pattern": "x", "within": "1", "unit": "days", "port": "1",
           "protocol": "amqp", "channel": "1"}
USUAL = {"name": "new", "partitions": 1, "count": 20_000, "expression": "key = 'a'", "entity": {"user": "bob"}, "values": {"producer_byte_rate": 1}, "source": "cost-exchange",
         "destination": "cost-queue", "routing_key": "k", "type": "direct", "user": "bob", "password": "p", "configure": "x", "write": "x", "read": "x", "principal": "User:bob", "operation": "Read",
         "permission": "Allow", "resource": "Topic", "pattern": "Literal", "host": "*", "topic": "cost", "body": "x", "value": "x", "to": "earliest", "folder": "/nowhere/at/all",
         "tags": ["management"], "config": {}, "arguments": {}}
# Routes without a row, and why.
LEFT_OUT = {
    ("GET", "/v1/live"): "a stream without an end",
    ("POST", "/v1/drain"): "ends the node",
    ("POST", "/v1/reload"): "takes nothing",
}


@dataclasses.dataclass
class Row:
    name: str
    method: str
    # Path and body of a number of entries.
    request: object
    sizes: tuple
    # It is sent so many times one after the other.
    times: int = 5


def names(entries):
    return {f"k{at:06d}": 1 for at in range(entries)}


def texts(entries):
    return [f"k{at:06d}" for at in range(entries)]


def same(entries):
    return ["k"] * entries


def things(**fields):
    """A list of objects, whose texts have their number where `#` stands."""
    def made(entries):
        return [{name: value.replace("#", str(at)) if isinstance(value, str) else value for name, value in fields.items()} for at in range(entries)]
    return made


class Deep:
    """Lists in lists: too deep for the encoder, so it is written by hand."""

    def __init__(self, entries):
        self.text = "[" * entries + "]" * entries


FORMS = {"many fields": lambda entries: names(entries), "lists in lists": Deep, "a list": lambda entries: [1] * entries}
# Bodies of `/api`: what a body has usually, and which of its fields are made large, and how.
API_BODIES = {
    ("PUT", "/vhosts/{vhost}"): ({}, {"tags": texts, "description": "long", "metadata": names}),
    ("POST", "/vhosts/{vhost}/start/{node}"): ({}, {}),
    ("PUT", "/vhost-limits/{vhost}/{limit}"): ({"value": 100_000}, {"value": texts}),
    ("PUT", "/users/{name}"): ({"password_hash": "", "tags": "management"}, {"tags": texts, "password_hash": "long"}),
    ("PUT", "/user-limits/{name}/{limit}"): ({"value": 100_000}, {"value": texts}),
    ("POST", "/users/bulk-delete"): ({"users": []}, {"users": texts, "users ": same}),
    ("PUT", "/permissions/{vhost}/{user}"): ({"configure": "x", "write": "x", "read": "x"}, {"configure": "long", "read": "pattern"}),
    ("PUT", "/topic-permissions/{vhost}/{user}"): ({"exchange": "amq.topic", "write": "x", "read": "x"}, {"write": "long", "read": "pattern"}),
    ("PUT", "/exchanges/{vhost}/{name}"): ({"type": "direct", "auto_delete": True}, {"arguments": names, "type": "long"}),
    ("POST", "/exchanges/{vhost}/{name}/publish"): (
        {"properties": {}, "routing_key": "k", "payload": "x", "payload_encoding": "string"},
        {"payload": "long", "properties.headers": names, "properties": names}),
    ("PUT", "/queues/{vhost}/{name}"): ({"durable": True}, {"arguments": names}),
    ("POST", "/queues/{vhost}/{name}/get"): ({"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}, {"count": texts}),
    ("POST", "/queues/{vhost}/{name}/actions"): ({"action": "x"}, {"action": "long"}),
    ("POST", "/rebalance/queues"): ({}, {}),
    ("POST", "/bindings/{vhost}/e/{source}/q/{queue}"): ({"routing_key": "k"}, {"arguments": names, "routing_key": "long"}),
    ("POST", "/bindings/{vhost}/e/{source}/e/{exchange}"): ({"routing_key": "k"}, {"arguments": names, "routing_key": "long"}),
    ("PUT", "/policies/{vhost}/{name}"): ({"pattern": "x", "definition": {"max-length": 1_000_000}}, {"pattern": "pattern", "definition": names, "apply-to": "long"}),
    ("PUT", "/operator-policies/{vhost}/{name}"): ({"pattern": "x", "definition": {"max-length": 1_000_000}}, {"pattern": "pattern", "definition": names}),
    ("PUT", "/parameters/{component}/{vhost}/{name}"): ({"value": {"pattern": "x", "definition": {"max-length": 1}}}, {"value": names}),
    ("PUT", "/global-parameters/{name}"): ({"value": 1}, {"value": names}),
    ("POST", "/definitions"): ({}, {
        "queues": things(name="new-#", vhost="/nowhere", durable=True, auto_delete=False, arguments={}), "users": things(name="#", tags=""),
        "exchanges": things(name="new-#", vhost="/nowhere", type="direct", durable=True, auto_delete=False, arguments={}),
        "bindings": things(source="new-#", vhost="/nowhere", destination="q", destination_type="queue", routing_key="#", arguments={}),
        "policies": things(name="p#", vhost="/nowhere", pattern="#", definition={}), "parameters": things(name="p#", component="x", value=1),
        "global_parameters": things(name="p#", value=1), "topic_permissions": things(user="#", vhost="/nowhere", exchange="x", write="", read=""),
        "permissions": things(user="#", vhost="/nowhere", configure="", write="", read=""), "vhosts": things(name=""), "unknown things": texts}),
    ("POST", "/definitions/{vhost}"): ({}, {"queues": things(name="amq.no-#", durable=True), "bindings": things(source="new-#", destination="q", destination_type="queue", routing_key="#")}),
}


def management_routes():
    """(method, path) of all routes of `/api`."""
    out = []
    for line in MANAGEMENT.read_text().splitlines():
        if line.startswith("| ") and "| /" in line:
            _, methods, paths, *_ = line.split("|")
            out += [(method, "/api" + path) for method in methods.strip().split(", ") for path in paths.strip().split(", ")]
    return out


def described_routes(document):
    """(method, path) of all routes of `/v1`, with their descriptions."""
    return {(method.upper(), path): described for path, methods in document["paths"].items() for method, described in methods.items()}


def missing(routes):
    """Routes that have no row."""
    return [f"{method} {path} has no row" for method, path in routes
            if (method, path) not in LEFT_OUT and method in ("PUT", "POST") and path.startswith("/api") and (method, path.removeprefix("/api")) not in API_BODIES]


def place(path):
    return re.sub(r"\{(\w+)\}", lambda found: IN_PATH[found[1]], path)


def text_of(kind, entries):
    """A long text of ten letters an entry: of any letters, or an expression."""
    text = "(a|b)*c?" * (entries * 10 // 8 + 1) if kind == "pattern" else "x" * (entries * 10)
    return text[:BODY_MAX - 4_096]


def encoded(body):
    if isinstance(body, Deep):
        return body.text
    deep = {}

    def given(value):
        if isinstance(value, Deep):
            deep[f"@{len(deep)}@"] = value.text
            return f"@{len(deep) - 1}@"
        return value
    out = json.dumps({name: given(value) for name, value in body.items()} if isinstance(body, dict) else body, separators=(",", ":"))
    for mark, text in deep.items():
        out = out.replace(f'"{mark}"', text)
    return out


def set_at(body, name, value):
    """A body with another value at a place, with dots between names. A blank at the end is only there to tell rows apart."""
    first, _, rest = name.strip().partition(".")
    return {**body, first: set_at(body.get(first, {}), rest, value) if rest else value}


def of_body(method, path, usual, large):
    target = place(path)
    rows = [Row(f"{method} {path} with {form}", method, lambda entries, make=make: (target, encoded(make(entries))), SIZES) for form, make in FORMS.items()]
    for name, how in large.items():
        made = (lambda entries, how=how: text_of(how, entries)) if isinstance(how, str) else how
        rows.append(Row(f"{method} {path} with {name.strip()}", method, lambda entries, name=name, made=made: (target, encoded(set_at(usual, name, made(entries)))), SIZES))
    if usual:
        name = next(iter(usual))
        rows.append(Row(f"{method} {path} with {name} as lists in lists", method, lambda entries: (target, encoded({**usual, name: Deep(entries)})), SIZES))
    return rows


def of_query(method, path, parameters=()):
    target = place(path)
    rows = [Row(f"{method} {path} with many parameters", method, lambda entries: (target + "?" + "&".join(f"p{at:04d}=1" for at in range(entries)), ""), QUERY_SIZES)]
    for name in parameters:
        # The last ten places are for the rest of the head.
        rows.append(Row(f"{method} {path} with a long {name}", method, lambda entries, name=name: (f"{target}?{name}=" + ("a|" * (entries * 5))[:QUERY_MAX - 10], ""), QUERY_SIZES))
    return rows


# Parameters of lists of `/api`.
OF_LISTS = ("columns", "name", "sort")


def management_rows():
    out = []
    for method, path in management_routes():
        if method in ("PUT", "POST"):
            usual, large = API_BODIES.get((method, path.removeprefix("/api")), ({}, {}))
            out += of_body(method, path, usual, large)
        else:
            out += of_query(method, path, OF_LISTS if method == "GET" and path in ("/api/queues", "/api/connections") else ())
    out.append(Row("GET /api/queues with a long expression", "GET", lambda entries: ("/api/queues?page=1&use_regex=true&name=" + ("(a%7Cb)*" * entries)[:QUERY_MAX - 100], ""), QUERY_SIZES))
    return out


def value_of(schema, name, shapes):
    """A value that a field may have."""
    if "$ref" in schema:
        return object_of(shapes[schema["$ref"].rsplit("/", 1)[1]], shapes)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if name in USUAL and (kind is None or isinstance(USUAL[name], {"string": str, "integer": int, "number": int, "array": list, "object": dict, "boolean": bool}.get(kind, object))):
        return USUAL[name]
    if kind == "array":
        return [value_of(schema.get("items", {}), "", shapes)]
    return {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}}.get(kind, "x")


def object_of(shape, shapes, all_fields=False):
    wanted = shape.get("properties", {}) if all_fields else {name: shape["properties"][name] for name in shape.get("required", [])}
    return {name: value_of(schema, name, shapes) for name, schema in wanted.items()}


def large_fields(shape, shapes):
    """Which fields can be made large, and how."""
    out = {}
    for name, schema in shape.get("properties", {}).items():
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        options = [schema, *schema.get("anyOf", [])]
        if any("object" == one.get("type") for one in options) or "object" in kinds:
            out[name] = names
        elif any("array" == one.get("type") for one in options) or "array" in kinds:
            item = value_of(schema.get("items", {}), "", shapes)
            out[name] = (lambda entries: texts(entries)) if isinstance(item, str) else (lambda entries, item=item: [numbered(item, at) for at in range(entries)])
        elif "string" in kinds:
            out[name] = "pattern" if name in ("configure", "write", "read", "expression", "pattern") else "long"
    return out


def numbered(item, at):
    if not isinstance(item, dict):
        return at
    return {name: at if isinstance(value, int) and not isinstance(value, bool) else value for name, value in item.items()}


def v1_rows(document):
    out, shapes = [], document["components"]["schemas"]
    for (method, path), described in described_routes(document).items():
        if (method, path) in LEFT_OUT:
            continue
        parameters = [one["name"] for one in described.get("parameters", []) if one["in"] == "query"]
        body = described.get("requestBody")
        tried = path + ("?dry_run=true" if "dry_run" in parameters else "")
        if body:
            shape = shapes[body["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]]
            out += of_body(method, tried, object_of(shape, shapes), large_fields(shape, shapes))
        else:
            out += of_query(method, path, [name for name in parameters if name not in ("dry_run", "offset", "limit", "partition_offset", "time_ms", "truncate")])
    return out
