#!/usr/bin/env python3
"""Examples of what Kafka and RabbitMQ document, for the model; and: mistakes planted in what a broker decides are found by random cases, and none where there
is none."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
sys.dont_write_bytecode = True
import randomised
from model import ADMINISTRATION, AMQP, KAFKA, Entry, Rules, User, Who, World, read_back, resource_name
from node import ATTACHED, TOPICS_OF_QUEUES

BOB = Who("bob")


def world(*entries, **more):
    return World(Rules(**more), {"bob": User("bob")}, [Entry(*one) for one in entries])


def entry(operation, name="orders", pattern="Literal", permission="Allow", principal="User:bob", host="*", kind="Topic"):
    return kind, name, pattern, principal, host, operation, permission


class Entries(unittest.TestCase):
    def may(self, found, operation="Read", name="orders", who=BOB):
        return found.allows(who, operation, "Topic", name)

    def test_what_denies_goes_first(self):
        self.assertTrue(self.may(world(entry("Read"))))
        self.assertFalse(self.may(world(entry("Read"), entry("Read", "or", "Prefixed", "Deny"))))
        self.assertFalse(self.may(world(entry("All", "*"), entry("All", permission="Deny"))))

    def test_describe_comes_with_others_and_is_denied_alone(self):
        for operation in ("Read", "Write", "Delete", "Alter"):
            self.assertTrue(self.may(world(entry(operation)), "Describe"))
        self.assertFalse(self.may(world(entry("Create")), "Describe"))
        self.assertTrue(self.may(world(entry("AlterConfigs")), "DescribeConfigs"))
        self.assertTrue(self.may(world(entry("Read"), entry("Write", permission="Deny")), "Describe"))

    def test_names_principals_and_hosts(self):
        self.assertTrue(self.may(world(entry("Read", "or", "Prefixed"))))
        self.assertFalse(self.may(world(entry("Read", "or"))))
        self.assertTrue(self.may(world(entry("Read", principal="User:*"))))
        self.assertFalse(self.may(world(entry("Read", host="10.9.8.7"))))

    def test_what_no_entry_is_about(self):
        self.assertTrue(self.may(world(open=True)))
        self.assertFalse(self.may(world(entry("Write", principal="User:eve"), open=True)))
        self.assertFalse(self.may(world()))
        self.assertTrue(self.may(world(supers=("User:bob",))))

    def test_some_topic(self):
        def some(*entries):
            return world(*entries).allows_some(BOB, "Write", "Topic")
        self.assertTrue(some(entry("Write", "x")))
        self.assertFalse(some(entry("Write", "x"), entry("Write", "x", permission="Deny")))
        self.assertTrue(some(entry("Write", "x", "Prefixed"), entry("Write", "x", permission="Deny")))
        self.assertFalse(some(entry("Write", "xy", "Prefixed"), entry("All", "x", "Prefixed", "Deny")))

    def test_names_of_queues(self):
        for vhost, queue in (("/", "work"), ("shop", "a b"), ("a~b", "c")):
            self.assertEqual(read_back(resource_name(vhost, queue)), (vhost, queue))


class Node:
    """Decides by a model."""

    def __init__(self, rules):
        self.world, self.applied = World(rules), World(rules)
        self.world.queues = {**TOPICS_OF_QUEUES, **({} if rules.authorizer else {ATTACHED: ("/", ATTACHED)})}

    def put_user(self, user):
        self.world.users[user.name] = user

    def put_entries(self, entries):
        self.world.entries = self.applied.entries = entries if self.world.rules.authorizer else []

    def restore(self, _kind):
        pass


def with_mistake(mistake):
    """A world in which something is decided otherwise."""
    class Mistaken(World):
        def decided(self, about, who, operation):
            if mistake == "what denies does not go first" and any(one.permission == "Allow" and one.operation in (operation, "All") and one.is_of(who) for one in about):
                return True
            if mistake == "hosts do not count":
                about = [one._replace(host="*") for one in about]
            return super().decided(about, who, operation)

        def queue_is_let(self, who, operation, topic):
            return mistake == "queues need no permission" or super().queue_is_let(who, operation, topic)

        def permitted(self, who, permission, vhost, name):
            return super().permitted(who, permission, "/" if mistake == "every queue is in one virtual host" and self.enters(who, "/") else vhost, name)

        def meets(self, who, protocol, verb, place, things):
            if mistake == "administrators need no permission" and protocol == AMQP and verb in ("read", "write", "configure") and self.has(who, "administrator"):
                return True
            if mistake == "keys do not count in one protocol" and protocol == ADMINISTRATION and verb == "write-key":
                return True
            return super().meets(who, protocol, verb, place, things)
    return Mistaken


class Planted(unittest.TestCase):
    def differs(self, mistake, count=6_000):
        class Asker:
            def __init__(self, node):
                self.node = node

            def ask(self, row, who, things, session=False):
                seen = self.node.world
                missing = row.missing(with_mistake(mistake)(seen.rules, seen.users, seen.entries, seen.queues), who, things)
                return {missing[0].refusal} if missing else set()
        nodes, usual = {}, randomised.Asker
        randomised.Asker = Asker
        try:
            cases = randomised.Cases(lambda name: nodes.setdefault(name, Node(randomised.NODES[name])), 7)
            difference = cases.run(count)
        finally:
            randomised.Asker = usual
        return difference, cases

    def test_mistakes_are_found(self):
        for mistake in ("what denies does not go first", "hosts do not count", "queues need no permission", "every queue is in one virtual host", "administrators need no permission",
                        "keys do not count in one protocol"):
            with self.subTest(mistake):
                self.assertIsNotNone(self.differs(mistake)[0])

    def test_without_one_nothing_differs(self):
        difference, cases = self.differs("")
        self.assertIsNone(difference and str(difference))
        for protocol, (allowed, refused) in cases.counts.items():
            self.assertGreater(min(allowed, refused), 100, protocol)
        self.assertGreater(cases.compared, 100)
        self.assertIn(KAFKA, cases.counts)


if __name__ == "__main__":
    unittest.main()
