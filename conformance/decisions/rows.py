"""Each row: somebody who has exactly what is required is not refused, whichever way he has it; who lacks a part of it is refused in the protocol's words, and
nothing was done."""

import re
import traceback

from asked import Asker, fits
from model import KAFKA, OF_QUEUE, PERMISSIONS, Entry, User, Who, entry_of
from node import TOPICS_OF_QUEUES, VHOSTS, Names, candidates, places_of

BOB = Who("bob")
# Without the tag, the others that are not enough.
WEAKER = {"administrator": ("monitoring", "policymaker", "management"), "monitoring": ("policymaker", "management"), "policymaker": ("monitoring", "management"), "management": ()}


def chosen(row, vhost, queue=False):
    """Things for a row. `queue`: topics are queues."""
    pools = dict(row.pools)
    out = {}
    for place in places_of(row):
        found = candidates(pools.get(place, place), vhost)
        kind = [one for one in found if one.kind != "Topic" or (one.name in TOPICS_OF_QUEUES) == queue] or found
        # What one protocol changes is another topic than the other's, so that each change shows.
        out[place] = kind[1] if place in ("topic", "group") and row.protocol != KAFKA and len(kind) > 1 and place not in pools else kind[0]
    return out


def parts_of(row, world, ways, things):
    """What somebody is given, part by part, for one way of each need: (tag, name), (permission, permission, virtual host, name), (entry, entry), (key, exchange), (vhost, name), (own,)."""
    if row.by_tag and not world.rules.authorizer:
        return [("tag", "administrator")]
    parts = []
    permissions = {verb for verb, _ in ways if verb in PERMISSIONS}
    for verb, place in ways:
        thing = things.get(place)
        if verb == "tag":
            parts.append(("tag", place))
        elif verb == "own":
            parts.append(("own",))
        elif verb in ("look", "enter"):
            parts.append(("vhost", thing.name))
        elif verb == "see":
            parts.append(("permission", next(one for one in PERMISSIONS if one not in permissions), *world.place_of(thing)))
            parts.append(("entry", Entry(*entry_of(thing), "Literal", BOB.principal, "*", "Describe", "Allow")))
        elif verb in PERMISSIONS:
            parts.append(("permission", verb, *world.place_of(thing)))
        elif verb.endswith("-key"):
            parts.append(("key", thing.vhost, thing.name))
        else:
            kind, name = ("Topic", "orders") if place == "some topic" else entry_of(thing)
            parts.append(("entry", Entry(kind, name, "Literal", BOB.principal, "*", verb, "Allow")))
    for verb, place in row.of_queues(things) if row.protocol == KAFKA else ():
        if things[place].name in world.queues:
            parts.append(("permission", OF_QUEUE.get(verb, ("configure",))[0], *world.queues[things[place].name]))
    if row.protocol == "AMQP" and row.name != "connection.open":
        parts.append(("open", row.vhost(things)))
    return list(dict.fromkeys(parts))


def given(parts, things):
    """User and entries for some parts."""
    user, entries = User("bob"), []
    names = {vhost: {one: [] for one in PERMISSIONS} for vhost in VHOSTS}
    opened, tags, weaker = set(), [], ()
    for kind, *more in parts:
        if kind == "tag":
            tags.append(more[0])
        elif kind == "weaker":
            weaker = WEAKER[more[0]]
        elif kind in ("vhost", "open"):
            opened.add(more[0])
        elif kind == "permission":
            names[more[1]][more[0]].append(re.escape(more[2]).replace("\\ ", " "))
        elif kind in ("key", "other key"):
            expression = f"^{re.escape(things['key'].name)}$" if kind == "key" else "^another$"
            user.keys.setdefault(more[0], {})[more[1]] = (expression, expression)
        elif kind == "entry":
            entries.append(more[0])
    user.tags = tuple(tags) or weaker
    for vhost, one in names.items():
        if vhost in opened or any(one.values()):
            user.permissions[vhost] = tuple(f"^({'|'.join(one[name])})$" if one[name] else "" for name in PERMISSIONS)
    return user, entries


class Rows:
    def __init__(self, node, say=print):
        self.node, self.asker, self.say, self.passed, self.failures = node, Asker(node), say, 0, []
        self.before = None

    def fail(self, row, text):
        self.failures.append(f"{row.title}: {text}")
        self.say(f"FAIL  {row.title}: {text}")

    def prepare(self, row, parts, things):
        user, entries = given(parts, things)
        if not self.node.rules.authorizer:
            entries = []
        self.node.put_user(user)
        self.node.put_entries(entries)

    def check(self, row, things, parts, about, allowed):
        """Asks as bob, or as eve where it has to be somebody's own."""
        self.prepare(row, parts, things)
        who = Who("eve") if ("own",) in parts else BOB
        if who.name == "eve":
            self.node.http.json("PUT", "/v1/users/eve", {"tags": ["management"]})
            self.node.world.users["eve"] = User("eve", ("management",), {vhost: (".*",) * 3 for vhost in VHOSTS})
        missing = row.missing(self.node.world, who, things)
        if bool(missing) == allowed:
            if allowed:
                self.fail(row, f"{about}: the model finds that {[need.text for need in missing]} is missing")
            return
        # What changes nothing has no state to be compared.
        looks = not allowed and bool(row.changes)
        before = (self.before or self.node.settled("bob")) if looks else None
        refused = self.asker.ask(row, who, things, really=True)
        if not fits(missing, refused):
            self.fail(row, f"{about}: refused {sorted(refused)} instead of {sorted({need.refusal for need in missing})}; {self.node.world.users[who.name]} {self.node.applied.entries}")
        elif looks and (after := self.node.state("bob")) != before:
            changed = [f"{name}: {before[name]} became {after[name]}" if isinstance(before[name], str) else f"{name}: {sorted({*before[name]} ^ {*after[name]})}"
                       for name in before if before[name] != after[name]]
            self.fail(row, f"{about}: refused, and yet something was done: {changed}"[:1500])
            self.before = None
        else:
            self.passed += 1
            self.before = before or self.before
        if who.name == "eve":
            self.node.http.json("PUT", "/v1/users/eve", {"tags": []})
            del self.node.world.users["eve"]
        if allowed and row.changes:
            self.node.restore(row.changes)
        if allowed and row.changes:
            self.before = None

    def one(self, row, vhost, queue):
        things = chosen(row, vhost, queue)
        if dict(row.pools).get("group") == "fresh group":
            self.node.fresh += 1
            things["group"] = things["group"]._replace(name=f"members-{self.node.fresh}")
        world = self.node.world
        first = parts_of(row, world, [need.ways[0] for need in row.needs], things)
        if row.prepare:
            row.prepare(self.node, Names(self.node, things))
            self.before = None
        if not row.needs:
            self.check(row, things, [part for part in first if part[0] in ("open", "tag")], "without any rights", True)
            return
        for part in first:
            if part[0] == "open" or part[0] == "entry" and not self.node.rules.authorizer:
                continue
            rest = [one for one in first if one != part]
            if part[0] == "tag":
                rest.append(("weaker", part[1]))
            if part[0] == "key":
                rest.append(("other key", *part[1:]))
            self.check(row, things, rest, f"without {' '.join(map(str, part))}", False)
        self.check(row, things, [part for part in first if part[0] == "open"], "without any rights", False)
        if row.fatal:
            return
        self.check(row, things, first, "with what is required", True)
        for need in row.needs:
            for way in need.ways[1:]:
                # What is somebody's own meets all needs that it can.
                ways = [next((one for one in other.ways if one[0] == way[0] == "own"), way if other is need else other.ways[0]) for other in row.needs]
                self.check(row, things, parts_of(row, world, ways, things), f"with {' '.join(way)} instead of {need.ways[0][0]} {need.ways[0][1]}", True)

    def all(self, rows):
        for row in rows:
            if row.untried:
                continue
            places = places_of(row)
            of_topic = any(place in ("topic", "spare") for place in places) and dict(row.pools).get("topic") != "plain topic"
            in_vhost = any(place in ("vhost", "queue", "new queue", "exchange", "new exchange", "source", "topic source", "default exchange") for place in places) and "under" not in places
            for queue in (False, True) if of_topic else (False,):
                for vhost in (VHOSTS if in_vhost and row.protocol == "AMQP" else VHOSTS[1:] if in_vhost else VHOSTS[:1]):
                    try:
                        self.one(row, vhost, queue)
                    except Exception as error:
                        self.fail(row, f"{type(error).__name__}: {error} in line {traceback.extract_tb(error.__traceback__)[-1].lineno}")
        return self
