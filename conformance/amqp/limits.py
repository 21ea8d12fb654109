"""Limits of the node, of virtual hosts and of users, met by pika's and librdkafka's clients: the error that the protocol has for it, metrics of limit, use and
refusals, changes while the broker runs, a restart, and definitions that go to another broker. Arguments: the binary. Prints a line a case."""

import base64
import json
import re
import signal
import sys
import tempfile
import traceback
import urllib.request
from pathlib import Path

import pika
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, ProbableAccessDeniedError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker  # noqa: E402


class Node:
    def __init__(self, binary, folder):
        self.broker = Broker(binary, folder, ["--set", "mainstem.password.iterations=1000", "--set", "log.retention.check.interval.ms=1000"]).start()
        self.user = ("guest", "guest")

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.broker.admin}{path}", data, {"Content-Type": "application/json"}, method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(":".join(self.user).encode()).decode())
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def set(self, **limits):
        """Settings, with `_` as it is; those of Kafka and of Mainstem with dots in their place are given as a dict `dotted`."""
        changes = {**limits.pop("dotted", {}), **limits}
        chosen = {name: str(value) for name, value in changes.items() if value is not None}
        self.ask("PATCH", "/v1/config", {"set": chosen, "unset": [name for name, value in changes.items() if value is None]})

    def connect(self, vhost="/", user=None):
        host, port = self.broker.amqp.rsplit(":", 1)
        credentials = pika.PlainCredentials(*(user or self.user))
        return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), vhost, credentials))

    def metric(self, name, **labels):
        """Of the sample with these labels; nothing if there is none."""
        for line in self.broker.metrics().splitlines():
            found = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
            if found and dict(re.findall(r'(\w+)="([^"]*)"', found[1])) == labels:
                return float(found[2])
        return None

    def used(self, limit):
        return tuple(self.metric(name, limit=limit) for name in ("mainstem_limit_used", "mainstem_limit", "mainstem_limit_refused_total"))

    def restart(self, number=signal.SIGKILL):
        self.broker.end(number)
        self.broker.start()


def refused(kind, call, code, text):
    try:
        call()
    except kind as error:
        assert error.reply_code == code and text in error.reply_text, error
        return
    raise AssertionError(f"not refused: {text}")


def channels(node):
    """Of a connection as it is told, and of the node."""
    node.set(channel_max=3)
    connection = node.connect()
    for _ in range(3):
        connection.channel()
    refused(ConnectionClosedByBroker, lambda: connection.channel(9), 530, "number of channels opened (3) has reached the negotiated channel_max (3)")
    node.set(channel_max=None, channel_max_per_node=4)
    one, other = node.connect(), node.connect()
    for _ in range(3):
        one.channel()
    other.channel()
    assert node.used("channel_max_per_node") == (4, 4, 0), node.used("channel_max_per_node")
    refused(ConnectionClosedByBroker, other.channel, 530, "has reached the maximum allowed limit of 4")
    assert node.used("channel_max_per_node") == (3, 4, 1), node.used("channel_max_per_node")
    node.set(channel_max_per_node=None)
    # As many as the setting says, or as the memory has room for.
    assert [one.channel() for _ in range(5)] and node.used("channel_max_per_node")[0] == 8 and 1_000 < node.used("channel_max_per_node")[1] <= 1_000_000
    one.close()


def queues_and_exchanges(node):
    connection = node.connect()
    channel = connection.channel()
    channel.queue_declare("one", durable=True)
    node.set(cluster_queue_limit=1)
    channel.queue_declare("one", durable=True)
    refused(ChannelClosedByBroker, lambda: channel.queue_declare("two"), 406,
            "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in cluster (1) is reached")
    assert node.used("cluster_queue_limit") == (1, 1, 1), node.used("cluster_queue_limit")
    channel = connection.channel()
    count = node.used("cluster_exchange_limit")[0]
    node.set(cluster_queue_limit=None, cluster_exchange_limit=int(count))
    refused(ChannelClosedByBroker, lambda: channel.exchange_declare("more"), 406, f"cannot declare exchange 'more' in vhost '/': exchange limit of {count:.0f} is reached")
    node.set(cluster_exchange_limit=None)
    channel = connection.channel()
    channel.exchange_declare("more")
    channel.queue_declare("two")
    connection.close()


def messages(node):
    node.set(max_message_size=1000, dotted={"message.max.bytes": 1000})
    connection = node.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("sized", durable=True)
    channel.basic_publish("", "sized", bytes(1000))
    refused(ChannelClosedByBroker, lambda: channel.basic_publish("", "sized", bytes(1001)), 406, "message size 1001 is larger than configured max size 1000")
    errors = []
    producer = Producer({"bootstrap.servers": node.broker.bootstrap, "retries": 0})
    producer.produce("sized-by-topic", bytes(2000), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0 and errors[0] is not None and errors[0].name() == "MSG_SIZE_TOO_LARGE", errors
    assert node.metric("mainstem_limit_refused_total", limit="max_message_size") == 1
    assert node.metric("mainstem_limit_refused_total", limit="message.max.bytes") == 1
    node.set(max_message_size=None, dotted={"message.max.bytes": None})
    connection.close()


def topics_and_partitions(node):
    admin = AdminClient({"bootstrap.servers": node.broker.bootstrap})

    def outcome(futures):
        try:
            next(iter(futures.values())).result(20)
            return None
        except KafkaException as error:
            return error.args[0].name(), error.args[0].str()

    have = node.used("mainstem.max.topics")[0]
    node.set(dotted={"mainstem.max.topics": int(have) + 1})
    assert outcome(admin.create_topics([NewTopic("last", 2, 1)])) is None
    name, text = outcome(admin.create_topics([NewTopic("beyond", 1, 1)]))
    assert name == "POLICY_VIOLATION" and text == f"The node may have {have + 1:.0f} topics and no more (mainstem.max.topics).", (name, text)
    connection = node.connect()
    refused(ChannelClosedByBroker, lambda: connection.channel().queue_declare("beyond", durable=True), 406, "(mainstem.max.topics)")
    connection.close()
    partitions = node.used("mainstem.max.partitions")[0]
    node.set(dotted={"mainstem.max.topics": None, "mainstem.max.partitions": int(partitions) + 1})
    name, _ = outcome(admin.create_partitions([NewPartitions("last", 4)]))
    assert name == "POLICY_VIOLATION", name
    assert outcome(admin.create_partitions([NewPartitions("last", 3)])) is None
    assert node.used("mainstem.max.partitions") == (partitions + 1, partitions + 1, 1), node.used("mainstem.max.partitions")
    node.set(dotted={"mainstem.max.partitions": None})


def connections(node):
    """A connection that is one too many is closed before anything is said."""
    for limit in ("max.connections", "max.connections.per.ip"):
        # Clients of other cases may be on their way out.
        node.set(dotted={limit: int(node.used("max.connections")[0]) + 3})
        opened = []
        try:
            while len(opened) < 20:
                opened.append(node.connect())
        except pika.exceptions.AMQPConnectionError:
            pass
        node.set(dotted={limit: None})
        assert 0 < len(opened) < 20, f"{limit}: {len(opened)} connections"
        assert node.metric("mainstem_limit_refused_total", limit=limit) >= 1, limit
        for one in opened:
            one.close()
    node.connect().close()


def virtual_hosts_and_users(node):
    """By RabbitMQ's management, kept over a kill, and taken to another broker with the definitions."""
    node.ask("PUT", "/api/users/boss", {"password": "secret", "tags": "administrator"})
    node.user = ("boss", "secret")
    node.ask("PUT", "/api/permissions/%2F/boss", {"configure": ".*", "write": ".*", "read": ".*"})
    node.ask("PUT", "/api/users/bob", {"password": "secret", "tags": ""})
    node.ask("PUT", "/api/vhosts/shop", {})
    for user in ("boss", "bob"):
        node.ask("PUT", f"/api/permissions/shop/{user}", {"configure": ".*", "write": ".*", "read": ".*"})
    for name, value in (("max-connections", 2), ("max-queues", 1)):
        node.ask("PUT", f"/api/vhost-limits/shop/{name}", {"value": value})
    for name, value in (("max-connections", 1), ("max-channels", 2)):
        node.ask("PUT", f"/api/user-limits/bob/{name}", {"value": value})
    hold(node)
    node.restart()
    hold(node)
    definitions = node.ask("GET", "/api/definitions")
    with tempfile.TemporaryDirectory(prefix="mainstem-limits-") as scratch:
        other = Node(node.broker.binary, f"{scratch}/data")
        try:
            other.ask("POST", "/api/definitions", definitions)
            other.user = node.user
            hold(other)
            vhost = other.ask("GET", "/api/vhost-limits/shop")
            assert vhost == [{"vhost": "shop", "value": {"max-connections": 2, "max-queues": 1}}], vhost
        finally:
            other.broker.end(signal.SIGTERM)
    for limit in ("max-connections", "max-queues"):
        node.ask("DELETE", f"/api/vhost-limits/shop/{limit}")
    for limit in ("max-connections", "max-channels"):
        node.ask("DELETE", f"/api/user-limits/bob/{limit}")
    assert node.metric("mainstem_vhost_limit", vhost="shop", limit="max-queues") is None
    node.connect("shop", ("bob", "secret")).close()


def hold(node):
    """The limits of the virtual host and of the user are in force."""
    bob = ("bob", "secret")
    one = node.connect("shop", bob)
    denied(lambda: node.connect("shop", bob), "connection refused for user 'bob': user connection limit (1) is reached")
    boss = node.connect("shop")
    denied(lambda: node.connect("shop"), "access to vhost 'shop' refused for user 'boss': connection limit (2) is reached")
    channel = one.channel()
    channel.queue_declare("only", durable=True)
    refused(ChannelClosedByBroker, lambda: channel.queue_declare("more"), 406, "cannot declare queue 'more': queue limit in vhost 'shop' (1) is reached")
    for limit, most, used in (("max-connections", 2, 2), ("max-queues", 1, 1)):
        labels = {"vhost": "shop", "limit": limit}
        assert (node.metric("mainstem_vhost_limit", **labels), node.metric("mainstem_vhost_limit_used", **labels)) == (most, used), limit
    one.channel(), one.channel()
    assert node.metric("mainstem_user_limit_used", user="bob", limit="max-channels") == 2
    assert node.metric("mainstem_user_limit", user="bob", limit="max-connections") == 1
    refused(ConnectionClosedByBroker, one.channel, 530, "number of channels opened for user 'bob' has reached the maximum allowed user limit of 2")
    boss.close()


def denied(call, text):
    try:
        call()
    except (ProbableAccessDeniedError, ConnectionClosedByBroker) as error:
        assert text in str(error), error
        return
    raise AssertionError(f"not denied: {text}")


CASES = (channels, queues_and_exchanges, messages, topics_and_partitions, connections, virtual_hosts_and_users)


def main():
    with tempfile.TemporaryDirectory(prefix="mainstem-limits-") as scratch:
        node = Node(sys.argv[1], f"{scratch}/data")
        try:
            for case in CASES:
                name = case.__name__.replace("_", "-")
                try:
                    case(node)
                    print(f"ok {name}", flush=True)
                except Exception as error:
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    print(f"FAIL {name}: {type(error).__name__} in line {where.lineno}: {str(error)[:300]}".replace("\n", " "), flush=True)
        finally:
            node.broker.end(signal.SIGTERM)


main()
