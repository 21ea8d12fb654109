"""Administration over the command line, seen by clients: topics that are made and changed, groups that go on elsewhere, users and their
permissions, connections that are closed, settings that change while the broker runs, filters. And what Debian's promtool says of what is
served at /metrics and of the alert rules. Arguments: BINARY, and `promtool` or nothing. A line each: `ok NAME` or `FAIL NAME: why`."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pika
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from pika.exceptions import AMQPError

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE)]
from driver.broker import Broker  # noqa: E402

MONITORING = HERE.parent / "monitoring"


class Node:
    """A broker, and its command line."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, Path(folder)
        # Passwords are hashed quickly: this is not about their strength.
        self.broker = Broker(binary, f"{folder}/data", ["--set", "mainstem.password.iterations=1000"]).start()
        self.kafka, self.amqp = self.broker.bootstrap, int(self.broker.amqp.rpartition(":")[2])
        self.login = []

    def run(self, *arguments, stdin=""):
        command = [self.binary, *arguments, "--admin", f"127.0.0.1:{self.broker.admin}", *self.login]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30)

    def says(self, *arguments, stdin=""):
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def shows(self, *arguments):
        return json.loads(self.says(*arguments, "--json"))

    def refuses(self, *arguments):
        done = self.run(*arguments)
        assert done.returncode != 0, f"{arguments} is refused"
        return done.stderr

    def connect(self, user="guest", password="guest"):
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.amqp, credentials=pika.PlainCredentials(user, password)))


def produce(node, topic, values, partition=0):
    producer = Producer({"bootstrap.servers": node.kafka, "client.id": "tester"})
    for value in values:
        producer.produce(topic, value.encode(), b"k", partition)
    assert producer.flush(20) == 0


def read(node, group, topic, count, seconds=20):
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                         "session.timeout.ms": 6000})
    consumer.subscribe([topic])
    found, until = [], time.time() + seconds
    while len(found) < count and time.time() < until:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            found.append(message.value().decode())
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def topics_are_those_of_kafka_clients(node):
    node.says("topic", "create", "orders", "--partitions", "3", "--set", "retention.ms=60000")
    admin = AdminClient({"bootstrap.servers": node.kafka})
    assert len(admin.list_topics("orders", 10).topics["orders"].partitions) == 3
    node.says("topic", "alter", "orders", "--partitions", "4", "--set", "max.message.bytes=2000")
    assert len(admin.list_topics("orders", 10).topics["orders"].partitions) == 4
    resource = ConfigResource("topic", "orders")
    found = admin.describe_configs([resource])[resource].result(10)
    assert (found["max.message.bytes"].value, found["retention.ms"].value) == ("2000", "60000")
    produce(node, "orders", ["a", "b"])
    shown = node.shows("topic", "show", "orders")
    assert (shown["records"], shown["partition_list"][0]["high_watermark"]) == (2, 2), shown
    node.says("topic", "truncate", "orders", "--partition", "0", "--before", "1")
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "x"})
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 10) == (1, 2)
    consumer.close()
    node.says("topic", "delete", "orders")
    assert "orders" not in admin.list_topics(timeout=10).topics


def groups_go_on_elsewhere(node):
    node.says("topic", "create", "tour", "--partitions", "1")
    produce(node, "tour", [str(number) for number in range(10)])
    assert len(read(node, "readers", "tour", 10)) == 10
    group = node.shows("group", "show", "readers")
    assert (group["lag"], group["offsets"][0]["committed"], group["members"]) == (0, 10, 0), group
    assert "--execute" in node.says("group", "reset-offsets", "readers", "--shift-by", "-4")
    assert node.shows("group", "show", "readers")["offsets"][0]["committed"] == 10, "it was only shown"
    node.says("group", "reset-offsets", "readers", "--shift-by", "-4", "--execute")
    assert read(node, "readers", "tour", 4) == ["6", "7", "8", "9"]
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "readers", "session.timeout.ms": 6000})
    consumer.subscribe(["tour"])
    until = time.time() + 20
    while not consumer.assignment() and time.time() < until:
        consumer.poll(0.1)
    group = node.shows("group", "show", "readers")
    assert group["members"] == 1 and group["member_list"][0]["assignment"] == [{"topic": "tour", "partitions": [0]}], group
    assert "members" in node.refuses("group", "reset-offsets", "readers", "--to-earliest", "--execute")
    consumer.close()
    node.says("group", "delete", "readers")
    assert not any(row["name"] == "readers" for row in node.shows("group", "list"))


def lag_says_what_it_does_not_know(node):
    node.says("topic", "create", "unread", "--partitions", "3")
    for partition in range(3):
        produce(node, "unread", [str(number) for number in range(10)], partition)
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "fresh", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["unread"])
    until = time.time() + 20
    while len(consumer.assignment()) < 3 and time.time() < until:
        consumer.poll(0.1)
    wanted = (0, {"partitions": 3, "records": 30})
    for group in (node.shows("group", "show", "fresh"), *(row for row in node.shows("group", "list") if row["name"] == "fresh")):
        assert (group["lag"], group["without_offset"]) == wanted, group
    consumer.commit(offsets=[TopicPartition("unread", 1, 4)], asynchronous=False)
    group = node.shows("group", "show", "fresh")
    assert (group["lag"], group["without_offset"]) == (6, {"partitions": 2, "records": 20}), group
    consumer.close()
    node.says("topic", "delete", "unread")


def at_a_terminal(node, answer, *arguments):
    """What a command says to somebody who sits before it and answers; its status."""
    terminal, end = pty.openpty()
    process = subprocess.Popen([node.binary, *arguments, "--admin", f"127.0.0.1:{node.broker.admin}"], stdin=end, stdout=subprocess.PIPE, stderr=end)
    if answer is not None:
        os.write(terminal, answer.encode())
    process.communicate(timeout=20)
    said = os.read(terminal, 4096).decode() if select.select([terminal], [], [], 0)[0] else ""
    os.close(end)
    os.close(terminal)
    return process.returncode, said


def what_cannot_be_taken_back_is_asked_for(node):
    node.says("topic", "create", "dear")
    node.says("queue", "declare", "dear-queue")
    connection = node.connect()
    connection.channel().basic_publish("", "dear-queue", b"x")
    connection.close()
    commands = {"topic delete dear": "Delete topic dear", "topic truncate dear": "Delete all records", "queue purge dear-queue": "Delete all messages of queue dear-queue", "queue delete dear-queue": "Delete queue dear-queue"}
    for command, question in commands.items():
        words = [*command.split(), *(["--partition", "0", "--before", "-1"] if "truncate" in command else [])]
        for answer in ("n\n", "\n"):
            status, said = at_a_terminal(node, answer, *words)
            assert status != 0 and question.lower() in said.lower() and "[y/N]" in said, (command, status, said)
        if "dear-queue" not in command:
            assert node.shows("topic", "show", "dear")["partitions"] == 1
    assert node.shows("queue", "show", "dear-queue")["ready"] == 1
    assert at_a_terminal(node, "y\n", "queue", "purge", "dear-queue")[0] == 0
    assert node.shows("queue", "show", "dear-queue")["ready"] == 0
    for words in (("queue", "delete", "dear-queue"), ("topic", "delete", "dear")):
        status, said = at_a_terminal(node, None, *words, "--yes")
        assert status == 0 and "[y/N]" not in said, (words, status, said)


def filters_hold_for_clients(node):
    node.says("topic", "create", "letters", "--partitions", "1")
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(20):
        producer.produce("letters", str(number).encode(), b"ab"[number % 2:number % 2 + 1])
    assert producer.flush(20) == 0
    node.says("filter", "set", "fussy", "key = 'b'")
    assert read(node, "fussy", "letters", 10) == [str(number) for number in range(1, 20, 2)]
    assert "^" in node.refuses("filter", "check", "key = 'b")


def settings_change_while_the_broker_runs(node):
    node.says("config", "set", "num.partitions=7")
    produce(node, "made-by-use", ["x"])
    assert node.shows("topic", "show", "made-by-use")["partitions"] == 7
    node.says("config", "set", "message.max.bytes=500")
    producer = Producer({"bootstrap.servers": node.kafka, "retries": 0})
    errors = []
    producer.produce("made-by-use", b"x" * 1000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert errors[0] is not None and errors[0].name() == "MSG_SIZE_TOO_LARGE", errors
    node.says("config", "unset", "num.partitions", "message.max.bytes")
    produce(node, "made-by-use", ["x" * 1000])
    assert "restart" in node.refuses("config", "set", "mainstem.journals=2")


def queues_are_those_of_amqp_clients(node):
    node.says("queue", "declare", "work", "--type", "quorum")
    node.says("exchange", "declare", "events", "--type", "topic")
    node.says("exchange", "bind", "events", "work", "--key", "a.#")
    connection = node.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("events", "a.b", str(number).encode(), mandatory=True)
    assert channel.queue_declare("work", passive=True).method.message_count == 5
    shown = node.shows("queue", "show", "work")
    assert (shown["ready"], shown["statistics"]["published"]) == (5, 5), shown
    assert node.says("queue", "purge", "work") == "5 messages of queue work deleted\n"
    assert channel.queue_declare("work", passive=True).method.message_count == 0
    rows = node.shows("connection", "list", "--protocol", "amqp")
    assert len(rows) == 1 and rows[0]["user"] == "guest" and rows[0]["software"].startswith("Pika"), rows
    node.says("connection", "close", rows[0]["id"], "--reason", "maintenance")
    try:
        for _ in range(50):
            connection.process_data_events(0.1)
        raise AssertionError("the connection is still open")
    except AMQPError as error:
        assert "maintenance" in str(error), error
    node.says("queue", "delete", "work")


def connections_of_kafka_clients_are_shown_and_closed(node):
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "x", "client.id": "watched", "log_level": 0})
    consumer.list_topics(timeout=10)
    watched = lambda: [row for row in node.shows("connection", "list") if row["client_id"] == "watched"]
    until = time.time() + 10
    # Clients leave their first connection for another when they have learned where the broker is.
    while not (rows := watched()) and time.time() < until:
        time.sleep(0.1)
    assert rows and rows[0]["protocol"] == "kafka" and "kafka" in rows[0]["software"], rows
    node.says("connection", "close", rows[0]["id"])
    until = time.time() + 10
    while any(row["id"] == rows[0]["id"] for row in node.shows("connection", "list")):
        assert time.time() < until, "it is still there"
        time.sleep(0.1)
    consumer.list_topics(timeout=10)
    consumer.close()


def prometheus_takes_metrics_and_rules(node):
    checked = subprocess.run(["promtool", "check", "metrics"], input=node.broker.metrics(), capture_output=True, text=True, timeout=30)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for command in (["check", "rules", str(MONITORING / "alerts.yml")], ["check", "config", str(MONITORING / "prometheus.yml")]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stdout + done.stderr
    # Each query of the dashboard is one, with its variables filled in.
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 30
    rules = {"groups": [{"name": "dashboard", "rules": [
        {"record": f"query:{number}", "expr": re.sub(r"\$__rate_interval", "1m", query).replace("$instance", ".*")} for number, query in enumerate(queries)]}]}
    path = node.folder / "dashboard.json"
    path.write_text(json.dumps(rules))
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


def users_are_those_of_all_protocols(node):
    node.says("user", "add", "anna", "--tag", "administrator", stdin="geheim\n")
    assert "--user" in node.refuses("topic", "list")
    password = node.folder / "password"
    password.write_text("geheim\n")
    node.login = ["--user", "anna", "--password-file", str(password)]
    node.says("user", "add", "shop", stdin="laden\n")
    try:
        node.connect("shop", "laden")
        raise AssertionError("he has no permissions")
    except AMQPError:
        pass
    node.says("user", "permissions", "shop", "--configure", "^shop", "--write", ".*", "--read", ".*")
    connection = node.connect("shop", "laden")
    connection.channel().queue_declare("shop.work")
    assert node.shows("user", "show", "shop")["connections"] == 1
    node.says("user", "passwd", "shop", stdin="anders\n")
    try:
        node.connect("shop", "laden")
        raise AssertionError("he has another password")
    except AMQPError:
        pass
    node.connect("shop", "anders").close()
    node.says("user", "delete", "shop")
    try:
        for _ in range(50):
            connection.process_data_events(0.1)
        raise AssertionError("his connection is still open")
    except AMQPError:
        pass


CASES = [topics_are_those_of_kafka_clients, groups_go_on_elsewhere, lag_says_what_it_does_not_know, what_cannot_be_taken_back_is_asked_for, filters_hold_for_clients, settings_change_while_the_broker_runs,
         queues_are_those_of_amqp_clients, connections_of_kafka_clients_are_shown_and_closed]


def main():
    binary, tool = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    # The last one changes who may do what.
    cases = CASES + ([prometheus_takes_metrics_and_rules] if tool else []) + [users_are_those_of_all_protocols]
    with tempfile.TemporaryDirectory(prefix="mainstem-administration-") as folder:
        node = Node(binary, folder)
        try:
            for case in cases:
                name = case.__name__.replace("_", "-")
                try:
                    case(node)
                    print(f"ok {name}", flush=True)
                except (AssertionError, AMQPError, KafkaException, OSError, KeyError, subprocess.SubprocessError) as error:
                    where = traceback.extract_tb(error.__traceback__)[-1].lineno
                    print(f"FAIL {name}: line {where}: {error!r}"[:800].replace("\n", " "), flush=True)
        finally:
            node.broker.end(signal.SIGTERM)


main()
