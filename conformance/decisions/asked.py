"""Asks for a row and says how it was refused, if it was."""

import json

from links import Closed, Refused
from model import ADMINISTRATION, AMQP, KAFKA, MANAGEMENT
from node import Names
from requirements import ABSENT, LEFT_OUT, NUMBERS

CODES = {number: name for name, number in NUMBERS.items()}
CLOSED = "closed"
# Keys under which lists of HTTP name what they have, by place.
KEYS = {"vhost": ("vhost",), "topic": ("name", "topic"), "group": ("name", "group"), "filtered group": ("name",), "connection": ("user",), "owner": ("user",), "channel": ("user",)}
NOT_IN, NOT_FOUND = "530", 91
# UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_ID.
NO_TOPIC = (3, 17, 100)
# What a client is not told of a topic that it has made.
UNSEEN, MADE = "topic_config_error_code", "its settings"
NOTHING_DONE = "nothing is done"
# Where something is hidden it is said that there is none; where something is not there by other words.
HIDDEN = ("there is no virtual host", "there is no topic", "there is no group", "there is no connection")


def walk(value):
    """All pairs of keys and values of an answer that are no lists or objects."""
    if isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, (dict, list)):
                yield from walk(one) if isinstance(one, dict) or not one or isinstance(one[0], (dict, list)) else ((key, each) for each in one)
            else:
                yield key, one
    elif isinstance(value, list):
        for one in value:
            yield from walk(one)


def left_out(row):
    return [need for need in row.needs if need.refusal == LEFT_OUT]


class Asker:
    def __init__(self, node):
        self.node = node

    def ask(self, row, who, things, really=False, session=False):
        """How it is refused: a set of codes, or of words of the table; none if it is not."""
        names = Names(self.node, things)
        wish = row.ask(names, really)
        if row.protocol == KAFKA:
            return self.kafka(row, who, names, wish)
        if row.protocol == AMQP:
            return self.amqp(row, who, things, wish)
        return self.http(row, who, names, wish, session)

    def kafka(self, row, who, names, wish):
        link = self.node.link("kafka", who)
        try:
            answer = link.ask(row.name, *wish)
        except (Closed, OSError):
            self.node.forget("kafka", who)
            return {CLOSED}
        found = [*walk(answer)]
        refused = {CODES[value] for key, value in found if key.endswith("error_code") and key != UNSEEN and value in CODES}
        if row.hides and who.name is None and ("error_code", NOT_FOUND) in found:
            return {LEFT_OUT}
        if row.about == MADE and not refused:
            return {LEFT_OUT} if any(key == UNSEEN and value in CODES for key, value in found) else set()
        if any(key.endswith("error_code") and value in NO_TOPIC for key, value in found):
            refused.add(ABSENT)
        values = {value for _, value in found if isinstance(value, str)}
        return refused | {LEFT_OUT for need in left_out(row) if names[need.ways[0][1]] not in values}

    def amqp(self, row, who, things, wish):
        key = ("amqp", who, row.vhost(things))
        if wish == "open":
            self.node.forget(*key)
        try:
            link = self.node.link(*key)
            closed = link.ask(wish) if wish != "open" else None
        except Refused as error:
            self.node.links.pop(key, None)
            if "refused for user" not in error.args[1]:
                return set()
            # Who does not come in is refused what he came for.
            return {NOT_IN if wish == "open" or not row.needs else row.needs[0].refusal}
        except (Closed, OSError):
            self.node.forget(*key)
            return {CLOSED}
        return {str(closed[0])} if closed and "refused for user" in closed[1] else set()

    def http(self, row, who, names, wish, session):
        method, path, body = wish
        link = self.node.link("http", who, session)
        status, text = link.ask(method, path, body)
        if status in (401, 403):
            return {str(status)}
        possible = {need.refusal for need in row.needs}
        if status == 404 and "404" in possible:
            found = json.loads(text)
            if row.protocol == MANAGEMENT and (found.get("reason") == "Not Found" and found.get("error") in ("not_found", "Object Not Found") and (found["error"] == "not_found" or "channels" in path)):
                return {"404"}
            if row.protocol == ADMINISTRATION and found.get("reason", "").startswith(HIDDEN):
                return {"404"}
        if status == 400 and ("400" in possible and "there is no topic" in text or "ACCESS_REFUSED" in text):
            return {"400"}
        out = set()
        if status == 200:
            out |= {LEFT_OUT for need in left_out(row) if not self.is_shown(row, need, names, json.loads(text))}
        if any(need.refusal == NOTHING_DONE for need in row.needs) and not self.node.eve_is_told():
            out.add(NOTHING_DONE)
        return out

    def is_shown(self, row, need, names, found):
        if row.about == "its settings":
            return bool(found["config"])
        verb, place = need.ways[0]
        if (verb, place) == ("tag", "monitoring"):
            place = need.ways[1][1]
        if verb == "DescribeConfigs" and place == "filtered group" or verb == "see" and place == "filtered group":
            return any(one["name"] == names["filtered group"] for one in found["items"])
        if place == "topic" and "items" in found and all("queue" in one for one in found["items"]):
            # The queue that a topic carries has a name of its own.
            return any(one["name"] == names[place] for one in found["items"])
        wanted = "eve" if KEYS[place] == ("user",) else names[place]
        keys = ("name",) if place == "vhost" and row.name.endswith("/vhosts") else KEYS[place]
        return any(key in keys and value == wanted for key, value in walk(found))


def fits(missing, refused):
    """Is a refusal the one that is due? Where something else is refused, nothing needs to be shown."""
    due = {need.refusal for need in missing}
    if ABSENT not in due:
        refused = refused - {ABSENT}
    if not due:
        return not refused
    return bool(refused) and refused <= due | {LEFT_OUT}
