"""Who may do what, written anew from the rules of Kafka and RabbitMQ and from this broker's own (`docs/adr/0018-users.md`, `docs/adr/0021-acls.md`), apart from
the broker, so that one checks the other: access control entries, permissions by virtual host, permissions for routing keys, tags, and how they go together
on each protocol."""

import dataclasses
import re
from typing import NamedTuple

KAFKA, AMQP, MANAGEMENT, ADMINISTRATION = "Kafka", "AMQP", "/api", "/v1"
PERMISSIONS = ("configure", "write", "read")
# Tags that let somebody in to HTTP at all.
TAGS = ("administrator", "monitoring", "policymaker", "management")
ANONYMOUS, EVERYBODY = "User:ANONYMOUS", "User:*"
# An entry that allows the one allows the other with it.
IMPLIED = {"Describe": {"Read", "Write", "Delete", "Alter"}, "DescribeConfigs": {"AlterConfigs"}}
CLUSTER = "kafka-cluster"
DEFAULT_EXCHANGE = "amq.default"
# The permission that an operation takes where a topic is a queue.
OF_QUEUE = {"Read": ("read",), "Write": ("write",), "Describe": PERMISSIONS, "DescribeConfigs": PERMISSIONS}
# Places in the table that are topics for entries.
TOPICS = ("topic", "spare", "new", "dead letters")


class Entry(NamedTuple):
    """An access control entry."""

    type: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def is_about(self, kind, name):
        return self.type == kind and (self.name in (name, "*") if self.pattern == "Literal" else name.startswith(self.name))

    def is_of(self, who):
        return self.principal in (who.principal, EVERYBODY) and self.host in (who.host, "*")


@dataclasses.dataclass
class User:
    name: str
    tags: tuple = ()
    # By virtual host: expressions for configure, write, read.
    permissions: dict = dataclasses.field(default_factory=dict)
    # By virtual host and exchange: expressions for writing and reading by a routing key.
    keys: dict = dataclasses.field(default_factory=dict)


class Who(NamedTuple):
    """Who asks, and from where. Without a name: somebody on a listener that asks for no login."""

    name: str | None
    host: str = "127.0.0.1"

    @property
    def principal(self):
        return f"User:{self.name}" if self.name else ANONYMOUS


class Thing(NamedTuple):
    """What something is done with: `kind` is Topic, Group, TransactionalId, Cluster, queue, exchange, vhost, key or user."""

    kind: str
    name: str
    vhost: str = "/"


class Rules(NamedTuple):
    """Of the node's settings."""

    authorizer: bool = True
    open: bool = False
    supers: tuple = ()


@dataclasses.dataclass
class World:
    rules: Rules
    users: dict = dataclasses.field(default_factory=dict)
    entries: list = dataclasses.field(default_factory=list)
    # Topics that are queues: virtual host and queue.
    queues: dict = dataclasses.field(default_factory=dict)

    # Tags.

    def has(self, who, *tags):
        return who.name is not None and bool({*tags} & {*self.users[who.name].tags})

    def is_super(self, who):
        return self.has(who, "administrator") or who.principal in self.rules.supers

    # Entries.

    def allows(self, who, operation, kind, name):
        if not self.rules.authorizer or self.is_super(who):
            return True
        about = [entry for entry in self.entries if entry.is_about(kind, name)]
        return self.decided(about, who, operation) if about else self.rules.open

    def decided(self, about, who, operation):
        own = [entry for entry in about if entry.is_of(who)]
        if any(entry.permission == "Deny" and entry.operation in (operation, "All") for entry in own):
            return False
        return any(entry.permission == "Allow" and entry.operation in (operation, "All", *IMPLIED.get(operation, ())) for entry in own)

    def allows_some(self, who, operation, kind):
        """With some resource of the kind, whichever: `Authorizer.authorizeByResourceType`."""
        if self.allows(who, operation, kind, "\0"):
            return True
        own = [entry for entry in self.entries if entry.type == kind and entry.is_of(who) and entry.operation in (operation, "All")]
        denied = [entry for entry in own if entry.permission == "Deny"]
        if any(entry.pattern == "Literal" and entry.name == "*" for entry in denied):
            return False

        def is_covered(allow):
            if allow.name == "*" and allow.pattern == "Literal":
                return False
            return any(deny.pattern == "Prefixed" and allow.name.startswith(deny.name)
                       or deny.pattern == allow.pattern == "Literal" and deny.name == allow.name for deny in denied)
        return any(entry.permission == "Allow" and not is_covered(entry) for entry in own)

    # Permissions.

    def enters(self, who, vhost):
        return who.name is not None and vhost in self.users[who.name].permissions

    def permitted(self, who, permission, vhost, name):
        if not self.enters(who, vhost):
            return False
        return matches(self.users[who.name].permissions[vhost][PERMISSIONS.index(permission)], name)

    def keyed(self, who, permission, vhost, exchange, key):
        """By the expression for an exchange, if there is one."""
        own = self.users[who.name].keys.get(vhost, {}).get(exchange) if who.name else None
        return own is None or matches(own[("write", "read").index(permission)], key)

    def queue_is_let(self, who, operation, topic):
        """Kafka: a topic that is a queue is used by permissions too."""
        if topic not in self.queues or self.is_super(who) or who.name is None and ANONYMOUS in self.rules.supers:
            return True
        return any(self.permitted(who, permission, *self.queues[topic]) for permission in OF_QUEUE.get(operation, ("configure",)))

    # One way to meet a need.

    def meets(self, who, protocol, verb, place, things):
        thing = things.get(place)
        if protocol == ADMINISTRATION and self.has(who, "administrator"):
            return True
        match verb:
            case "tag":
                return self.has(who, *TAGS) if place == "management" else self.has(who, place, "administrator")
            case "own":
                return thing.name == who.name
            case "look":
                return self.has(who, "monitoring", "administrator") or self.enters(who, thing.name)
            case "enter":
                return self.enters(who, thing.name)
            case "see":
                return self.has(who, "monitoring") or (any(self.permitted(who, one, *self.place_of(thing)) for one in PERMISSIONS)
                                                       and self.allows(who, "Describe", *entry_of(thing)))
            case "configure" | "write" | "read":
                return self.permitted(who, verb, *self.place_of(thing))
            case "write-key" | "read-key":
                return self.keyed(who, verb.removesuffix("-key"), thing.vhost, thing.name, things["key"].name)
        if place == "some topic":
            return self.allows_some(who, verb, "Topic")
        return self.allows(who, verb, *entry_of(thing or Thing("Cluster", CLUSTER)))

    def place_of(self, thing):
        """Virtual host and name for permissions."""
        if thing.kind == "Topic":
            return self.queues.get(thing.name) or read_back(thing.name)
        return (thing.vhost, DEFAULT_EXCHANGE if thing.kind == "exchange" and not thing.name else thing.name)


def matches(pattern, name):
    return re.search(pattern, name) is not None if pattern else name == ""


def entry_of(thing):
    """Type and name of the resource that entries are about."""
    if thing.kind in ("queue", "exchange"):
        return "Topic", resource_name(thing.vhost, thing.name or DEFAULT_EXCHANGE)
    return thing.kind, thing.name


def escaped(text):
    return "".join(one if re.fullmatch(r"[A-Za-z0-9._-]", one) else "".join(f"~{byte:02X}" for byte in one.encode()) for one in text)


def resource_name(vhost, name):
    """What a queue or an exchange is called as a topic. Names that begin like two digits of an escape are left to the broker's own tests."""
    return escaped(name) if vhost == "/" else f"{escaped(vhost)}~{escaped(name)}"


def read_back(topic):
    """The queue that a topic would be, by its name."""
    def plain(text):
        return re.sub("(?:~[0-9A-F]{2})+", lambda found: bytes.fromhex(found[0].replace("~", "")).decode(), text)
    apart = re.match(r"((?:[^~]|~[0-9A-F]{2})*)~(?![0-9A-F]{2})(.*)", topic)
    return (plain(apart[1]), plain(apart[2])) if apart else ("/", plain(topic))
