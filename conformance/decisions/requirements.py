"""The language of the tables: what an operation takes, a line of text that people and the model can read.

    row      what it is about, needs with `;` between them
    need     ways to meet it, with ` or ` between them, and in brackets how the protocol refuses who has none, unless that is usual
    way      `Read topic`: an access control entry that allows an operation on a resource
             `read queue`: a permission for a name in its virtual host (configure, write, read)
             `write-key exchange`, `read-key source`: a permission for the routing key, where somebody has any for the exchange
             `tag monitoring`: a tag of the user; an administrator has all, and `tag management` is any tag
             `look vhost`: some permission in the virtual host, or tag monitoring; `enter vhost`: some permission in it
             `see topic`: any permission for it and an entry for Describe, or tag monitoring
             `own connection`: it is the user's
"""

import dataclasses
import re

from model import ADMINISTRATION, AMQP, KAFKA, MANAGEMENT, TOPICS

LEFT_OUT = "left out"
# Kafka: a queue for which somebody has no permission at all is not there for him.
ABSENT = "as if it were not there"
# How Kafka refuses, by what it is about.
CODES = {**{place: "TOPIC_AUTHORIZATION_FAILED" for place in TOPICS}, "group": "GROUP_AUTHORIZATION_FAILED", "id": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
         "cluster": "CLUSTER_AUTHORIZATION_FAILED"}
NUMBERS = {"TOPIC_AUTHORIZATION_FAILED": 29, "GROUP_AUTHORIZATION_FAILED": 30, "CLUSTER_AUTHORIZATION_FAILED": 31, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": 53}
# How the others refuse, by what is missing; "": everything else.
USUAL = {AMQP: {"": "403"}, MANAGEMENT: {"look": "404", "": "401"}, ADMINISTRATION: {"look": "404", "see": "404", "": "403"}}


@dataclasses.dataclass(frozen=True)
class Need:
    ways: tuple
    refusal: str

    def met(self, world, who, protocol, things):
        return any(world.meets(who, protocol, verb, place, things) for verb, place in self.ways)

    @property
    def text(self):
        return " or ".join(f"{verb} {place}" for verb, place in self.ways)


def needs(protocol, text):
    """The needs of a row."""
    out = []
    for one in filter(None, (part.strip() for part in text.split(";"))):
        told = re.search(r" \(([^)]*)\)$", one)
        ways = tuple(tuple(way.split(" ", 1)) for way in (one[:told.start()] if told else one).split(" or "))
        verb, place = ways[0]
        usual = CODES.get(place) if protocol == KAFKA else USUAL[protocol].get(verb, USUAL[protocol][""])
        out.append(Need(ways, told[1] if told else usual))
    return tuple(out)


# A user without access to a virtual host does nothing in it; what he came for is refused.
NOT_IN = Need((("enter", "vhost"),), "403")


@dataclasses.dataclass(frozen=True)
class Row:
    """One operation."""

    protocol: str
    # API, method, or method and path.
    name: str
    about: str
    needs: tuple
    # Makes the request: of the names of things, and whether it is to be done in earnest.
    ask: object = None
    # Kinds of things that are to be chosen, by the place in the table that they have.
    things: tuple = ()
    # Which things can stand in a place, where these are not the usual ones.
    pools: tuple = ()
    # Done before it, by the administrator.
    prepare: object = None
    # What it may change: told to `Node.restore`.
    changes: str = ""
    # Why it is not asked.
    untried: str = ""
    # Only asked row by row.
    alone: bool = False
    # Kafka: operations and topics for which only a permission is asked for, where they are queues.
    by_permission: tuple = ()
    # Not to be done by somebody who may.
    fatal: bool = False
    # Kafka: without an authorizer it takes the tag administrator.
    by_tag: bool = False
    # The same, and a client without a login is answered as if there were nothing.
    hides: bool = False
    # Kafka, of a topic that is not there: an error says so, or nothing does, or the group is made all the same ("silent"), or it is one that may be made ("named"). Or a topic that is hidden is told
    # apart from that ("told"): the group is somebody else's, or the topic's name can be nobody's queue.
    absent: str = ""

    @property
    def title(self):
        return f"{self.protocol} {self.name}{f' ({self.about})' if self.about else ''}"

    def missing(self, world, who, things):
        """The needs that somebody does not meet. For Kafka a topic that is a queue takes permissions as well."""
        out = [need for need in self.needs if not need.met(world, who, self.protocol, things)]
        if self.protocol == AMQP and self.needs and not world.enters(who, self.vhost(things)):
            out.append(NOT_IN)
        if self.by_tag and not world.rules.authorizer:
            hides = self.hides and who.name is None
            return [] if world.has(who, "administrator") else [Need(need.ways, LEFT_OUT) if hides else need for need in self.needs]
        if self.protocol == KAFKA:
            hidden = {way for need in self.needs if need.refusal == LEFT_OUT for way in need.ways}
            for way in self.of_queues(things):
                topic = things[way[1]].name
                if not world.queue_is_let(who, way[0], topic):
                    is_absent = not world.queue_is_let(who, "Describe", topic) and self.absent != "told"
                    out += self.of_absent(world, who, way, things) if is_absent and way not in hidden else [Need((way,), LEFT_OUT if way in hidden else "TOPIC_AUTHORIZATION_FAILED")]
        return out

    def of_absent(self, world, who, way, things):
        """What is missing for a topic that is not there for somebody."""
        if self.absent == "silent":
            return []
        if self.absent == "named":
            makes = Need((("Create", way[1]), ("Create", "cluster")), "TOPIC_AUTHORIZATION_FAILED")
            return [] if makes.met(world, who, self.protocol, things) else [makes]
        return [Need((way,), ABSENT)]

    @staticmethod
    def vhost(things):
        """Where an AMQP connection is opened."""
        return next((one.name if place == "vhost" else one.vhost for place, one in things.items() if place == "vhost" or one.kind in ("queue", "exchange")), "/")

    def of_queues(self, things):
        """Operations and topics for which, where they are queues, a permission is asked for as well."""
        ways = [*(way for need in self.needs for way in need.ways), *self.by_permission]
        return [(verb, place) for verb, place in dict.fromkeys(ways) if place in things and things[place].kind == "Topic"]

    @property
    def places(self):
        """Places that the row has, in the order of the table."""
        return tuple(dict.fromkeys([*(place for need in self.needs for _, place in need.ways), *self.things]))
