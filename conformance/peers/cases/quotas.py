"""DescribeClientQuotas, AlterClientQuotas."""

from . import case

EXACT, DEFAULT, ANY = range(3)
RATE = "producer_byte_rate"


def entity(**parts):
    """Of `user`, `client_id` and `ip`; None is the default."""
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in parts.items()]


def alter(t, parts, *values, version=1, validate=False):
    """Values are keys and numbers; None takes one away."""
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values]
    return t.ask("AlterClientQuotas", version, {"entries": [{"entity": entity(**parts), "ops": ops}], "validate_only": validate})


def describe(t, *components, strict=True, version=1):
    wishes = [{"entity_type": kind, "match_type": how, "match_name": name} for kind, how, name in components]
    return t.ask("DescribeClientQuotas", version, {"components": wishes, "strict": strict})


def settled(t, kind, name, wanted):
    """Kafka's brokers hear of a quota a little later."""
    wish = {"components": [{"entity_type": kind, "match_type": EXACT, "match_name": name}], "strict": True}
    t.settled(lambda: bool(t.quiet("DescribeClientQuotas", 1, wish)["entries"]) == wanted)


@case
def quotas_are_set_seen_and_taken_away(t):
    name = t.unique("quota")
    for version in (0, 1):
        alter(t, {"client_id": name}, (RATE, 1000.0), ("consumer_byte_rate", 2000.0), version=version)
        settled(t, "client-id", name, True)
        describe(t, ("client-id", EXACT, name), version=version)
        alter(t, {"client_id": name}, (RATE, None), ("consumer_byte_rate", None), version=version)
        settled(t, "client-id", name, False)
        describe(t, ("client-id", EXACT, name), version=version)


@case
def quotas_that_are_only_tried(t):
    name = t.unique("quota")
    alter(t, {"user": name}, (RATE, 1000.0), validate=True)
    describe(t, ("user", EXACT, name))


@case
def quotas_that_cannot_be(t):
    name = t.unique("quota")
    alter(t, {"user": name}, ("no.such.quota", 1.0))
    alter(t, {"user": name}, (RATE, -5.0))
    alter(t, {"user": name}, (RATE, 1.5))
    alter(t, {"ip": "no such host at all"}, ("connection_creation_rate", 5.0))
    alter(t, {"ip": "127.0.0.9"}, (RATE, 1000.0))
    alter(t, {"user": name, "ip": "127.0.0.9"}, (RATE, 1000.0))
    alter(t, {}, (RATE, 1000.0))
    alter(t, {"planet": name}, (RATE, 1000.0))
    alter(t, {"user": ""}, (RATE, 1000.0))


@case
def quotas_asked_for_wrongly(t):
    describe(t, ("planet", EXACT, "x"))
    describe(t, ("", EXACT, "x"))
    describe(t, ("user", EXACT, None))
    describe(t, ("user", DEFAULT, "x"))
    describe(t, ("user", 9, None))
    describe(t, ("user", EXACT, "x"), ("user", EXACT, "y"))
    describe(t, ("user", EXACT, "x"), ("ip", EXACT, "127.0.0.9"))
