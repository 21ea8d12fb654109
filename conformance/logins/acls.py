"""Access control entries as clients see them: kafka-acls.sh makes, shows and removes them; librdkafka, kafka-python, franz-go, Java and pika are told
their protocol's error for what they may not, and work with what they may; a kill of the broker changes nothing. Arguments: BINARY, and the clients to
run as JSON: a name and its command each. A line each: `ok NAME` or `FAIL NAME: why`."""

import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import pika
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource,
                                   NewPartitions, NewTopic, ResourcePatternType, ResourceType)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from pika.exceptions import ChannelClosedByBroker

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE), str(HERE / "amqp"), str(HERE / "logins")]
from driver.broker import Broker, free_port  # noqa: E402
from driver.tools import Machine  # noqa: E402
from security import connect  # noqa: E402
from works import PASSWORD, at_once, run_client, settings  # noqa: E402

ADMIN, BOB = "admin", "bob"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECRET = "ein anderes"


class Guarded:
    """A broker where entries count, with an administrator and with bob, who has all of RabbitMQ's permissions."""

    def __init__(self, binary, folder):
        self.folder, self.machine = folder, None
        self.sasl = f"127.0.0.1:{free_port()}"
        wishes = (f"listeners=SASL_PLAINTEXT://{self.sasl}", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512", f"authorizer.class.name={AUTHORIZER}",
                  "mainstem.password.iterations=1000", "group.initial.rebalance.delay.ms=0")
        self.broker = Broker(binary, f"{folder}/data", [word for wish in wishes for word in ("--set", wish)])

    def start(self):
        os.environ.update({"MAINSTEM_DEFAULT_USER": ADMIN, "MAINSTEM_DEFAULT_PASS": PASSWORD})
        try:
            self.broker.start()
        finally:
            del os.environ["MAINSTEM_DEFAULT_USER"], os.environ["MAINSTEM_DEFAULT_PASS"]
        self.admin = AdminClient(settings(self.sasl))

    def manage(self, method, path, body=None, user=ADMIN, password=PASSWORD):
        login = b64encode(f"{user}:{password}".encode()).decode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.broker.admin}/api{path}", method=method, data=json.dumps(body).encode() if body else None,
                                         headers={"authorization": f"Basic {login}", "content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def make_bob(self):
        assert self.manage("PUT", f"/users/{BOB}", {"password": SECRET, "tags": "management"}) in (201, 204)
        assert self.manage("PUT", f"/permissions/%2F/{BOB}", {"configure": ".*", "write": ".*", "read": ".*"}) in (201, 204)

    def give(self, operation, kind, name, pattern=ResourcePatternType.LITERAL, permission=AclPermissionType.ALLOW):
        entry = AclBinding(kind, name, pattern, f"User:{BOB}", "*", operation, permission)
        for made in self.admin.create_acls([entry]).values():
            made.result(20)

    def take_all(self):
        everything = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{BOB}", None, AclOperation.ANY, AclPermissionType.ANY)
        for removed in self.admin.delete_acls([everything]).values():
            removed.result(20)

    def topic(self, name, partitions=1):
        for made in self.admin.create_topics([NewTopic(name, partitions)]).values():
            made.result(20)
        return name

    def tool(self, name, *words, user=BOB, password=SECRET):
        file = Path(self.folder) / "tool.properties"
        file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=org.apache.kafka.common.security.scram."
                        f'ScramLoginModule required username="{user}" password="{password}";\n')
        self.machine = self.machine or Machine()
        return self.machine.run([name, "--bootstrap-server", self.sasl, "--command-config", str(file), *words], "")


def bobs(guarded, **more):
    return {**settings(guarded.sasl, user=BOB, password=SECRET), **more}


def told(name, work):
    """What is refused is refused with this error of librdkafka's."""
    try:
        work()
    except KafkaException as error:
        assert error.args[0].name() == name, f"{error.args[0].name()} instead of {name}"
        return
    raise AssertionError(f"not refused with {name}")


def produced(guarded, topic, **more):
    said = []
    producer = Producer(bobs(guarded, **{"message.timeout.ms": 10_000, **more}))
    producer.produce(topic, b"value", on_delivery=lambda error, message: said.append(error and error.name()))
    producer.flush(15)
    return said


def consumed(guarded, topic, group):
    """The first record, or the name of an error."""
    consumer = Consumer(bobs(guarded, **{"group.id": group, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    until = time.time() + 20
    try:
        while time.time() < until:
            message = consumer.poll(0.2)
            if message:
                return message.error().name() if message.error() else message.value()
    finally:
        consumer.close()
    return None


def librdkafka_is_told_and_works_with_what_it_may(guarded, _clients):
    topic = guarded.topic("acl-rd")
    assert produced(guarded, topic) == ["TOPIC_AUTHORIZATION_FAILED"]
    guarded.give(AclOperation.WRITE, ResourceType.TOPIC, "acl-", ResourcePatternType.PREFIXED)
    assert produced(guarded, topic) == [None]
    assert consumed(guarded, topic, "acl-readers") == "GROUP_AUTHORIZATION_FAILED"
    guarded.give(AclOperation.READ, ResourceType.GROUP, "acl-readers")
    assert consumed(guarded, topic, "acl-readers") == "TOPIC_AUTHORIZATION_FAILED"
    guarded.give(AclOperation.READ, ResourceType.TOPIC, topic)
    assert consumed(guarded, topic, "acl-readers") == b"value"
    guarded.give(AclOperation.READ, ResourceType.TOPIC, "*", permission=AclPermissionType.DENY)
    assert consumed(guarded, topic, "acl-others") == "GROUP_AUTHORIZATION_FAILED"
    guarded.take_all()


def a_transaction_needs_its_id(guarded, _clients):
    topic = guarded.topic("acl-transactions")
    guarded.give(AclOperation.WRITE, ResourceType.TOPIC, topic)
    producer = Producer(bobs(guarded, **{"transactional.id": "acl-payments"}))
    told("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", lambda: producer.init_transactions(15))
    guarded.give(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "acl-payments")
    producer = Producer(bobs(guarded, **{"transactional.id": "acl-payments"}))
    producer.init_transactions(15)
    producer.begin_transaction()
    producer.produce(topic, b"paid")
    producer.commit_transaction(15)
    guarded.take_all()


def administration_is_refused_operation_by_operation(guarded, _clients):
    topic = guarded.topic("acl-administered")
    bob = AdminClient(bobs(guarded))

    def alter():
        entry = ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
        done(bob.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]))

    def done(futures):
        for future in futures.values():
            future.result(20)
    entry = AclBinding(ResourceType.TOPIC, "x", ResourcePatternType.LITERAL, "User:eve", "*", AclOperation.READ, AclPermissionType.ALLOW)
    steps = [
        ("TOPIC_AUTHORIZATION_FAILED", AclOperation.CREATE, ResourceType.TOPIC, "acl-new", lambda: done(bob.create_topics([NewTopic("acl-new", 1)]))),
        ("TOPIC_AUTHORIZATION_FAILED", AclOperation.DELETE, ResourceType.TOPIC, "acl-new", lambda: done(bob.delete_topics(["acl-new"]))),
        ("TOPIC_AUTHORIZATION_FAILED", AclOperation.ALTER, ResourceType.TOPIC, topic, lambda: done(bob.create_partitions([NewPartitions(topic, 2)]))),
        ("TOPIC_AUTHORIZATION_FAILED", AclOperation.DELETE, ResourceType.TOPIC, topic, lambda: done(bob.delete_records([TopicPartition(topic, 0, 0)]))),
        ("TOPIC_AUTHORIZATION_FAILED", AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic,
         lambda: done(bob.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]))),
        ("TOPIC_AUTHORIZATION_FAILED", AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, topic, alter),
        ("GROUP_AUTHORIZATION_FAILED", AclOperation.DESCRIBE, ResourceType.GROUP, "acl-group", lambda: done(bob.describe_consumer_groups(["acl-group"]))),
        ("CLUSTER_AUTHORIZATION_FAILED", AclOperation.ALTER, ResourceType.BROKER, "kafka-cluster", lambda: done(bob.create_acls([entry]))),
    ]
    for name, operation, kind, resource, work in steps:
        told(name, work)
        guarded.give(operation, kind, resource)
        work()
    guarded.take_all()
    assert topic not in bob.list_topics(timeout=20).topics, "what he may not describe he does not see"


def kafka_python_is_told(guarded, _clients):
    topic = guarded.topic("acl-python")
    login = {"bootstrap_servers": guarded.sasl, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": BOB,
             "sasl_plain_password": SECRET}
    guarded.give(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    producer = KafkaProducer(**login, enable_idempotence=False)
    try:
        producer.send(topic, b"value").get(15)
        raise AssertionError("written")
    except TopicAuthorizationFailedError:
        pass
    guarded.give(AclOperation.WRITE, ResourceType.TOPIC, topic)
    producer.send(topic, b"value").get(15)
    producer.close()
    consumer = KafkaConsumer(topic, group_id="acl-python", auto_offset_reset="earliest", **login)
    try:
        consumer.poll(10_000)
        raise AssertionError("read")
    except GroupAuthorizationFailedError:
        consumer.close(autocommit=False)
    guarded.take_all()


def the_other_clients_write_and_read_what_they_may(guarded, clients):
    names = {name: f"acl-client-{name}" for name in clients}
    for name in names.values():
        guarded.topic(name, 3)
    for name in names.values():
        for operation in (AclOperation.READ, AclOperation.WRITE):
            guarded.give(operation, ResourceType.TOPIC, name)
    guarded.give(AclOperation.READ, ResourceType.GROUP, "*")

    def one(name, command):
        for verb in ("produce", "consume"):
            out = run_client(command, verb, guarded.sasl, names[name], ("PLAIN", BOB, SECRET))
            assert out.startswith("ok "), f"{name} {verb}: {out}"
    at_once([lambda item=item: one(*item) for item in clients.items()])
    guarded.take_all()


def kafka_acls_makes_shows_and_removes_them(guarded, _clients):
    name = "org.apache.kafka.tools.AclCommand"
    status, out = guarded.tool(name, "--list")
    assert status != 0 and "ClusterAuthorizationException" in out, out

    def by_admin(*words, says):
        status, out = guarded.tool(name, *words, user=ADMIN, password=PASSWORD)
        assert status == 0 and re.search(says, out), f"{words}: {out[-600:]}"
    by_admin("--add", "--allow-principal", "User:carol", "--consumer", "--topic", "acl-orders", "--group", "acl-billing", "--resource-pattern-type", "prefixed",
             says="Adding ACLs for resource")
    by_admin("--add", "--deny-principal", "User:carol", "--deny-host", "10.9.8.7", "--operation", "All", "--topic", "*", says="Adding ACLs for resource")
    by_admin("--list", "--principal", "User:carol", says=r"patternType=PREFIXED")
    by_admin("--list", "--topic", "acl-orders-eu", "--resource-pattern-type", "match", says=r"10\.9\.8\.7[\s\S]*operation=READ|operation=READ[\s\S]*10\.9\.8\.7")
    by_admin("--remove", "--force", "--topic", "*", "--resource-pattern-type", "any", says="")
    by_admin("--remove", "--force", "--group", "acl-billing", "--resource-pattern-type", "prefixed", says="")
    by_admin("--remove", "--force", "--topic", "acl-orders", "--resource-pattern-type", "prefixed", says="")
    status, out = guarded.tool(name, "--list", "--principal", "User:carol", user=ADMIN, password=PASSWORD)
    assert status == 0 and "operation=" not in out, out


def amqp_goes_by_the_same_entries(guarded, _clients):
    def attempt(work):
        """Whether it is refused; a channel of its own."""
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            work(channel)
            channel.close()
            return None
        except ChannelClosedByBroker as error:
            assert error.reply_code == 403, error
            return error.reply_text
    connection = connect(guarded.broker.amqp, pika.PlainCredentials(BOB, SECRET))
    queue = "acl-queue"

    def publish(channel):
        channel.basic_publish("", queue, b"message")
    steps = [(AclOperation.CREATE, ResourceType.TOPIC, queue, lambda channel: channel.queue_declare(queue, durable=True), "Create access to queue"),
             (AclOperation.WRITE, ResourceType.TOPIC, queue, publish, "Write access to queue"),
             (AclOperation.READ, ResourceType.TOPIC, queue, lambda channel: None, None),
             (AclOperation.READ, ResourceType.GROUP, "amqp.queue", lambda channel: channel.basic_get(queue, auto_ack=True), "Read access to group 'amqp.queue'"),
             (AclOperation.CREATE, ResourceType.TOPIC, "acl-exchange", lambda channel: channel.exchange_declare("acl-exchange", "fanout"), "Create access to exchange"),
             (AclOperation.READ, ResourceType.TOPIC, "acl-exchange", lambda channel: channel.queue_bind(queue, "acl-exchange"), "Read access to exchange"),
             (AclOperation.WRITE, ResourceType.TOPIC, "acl-exchange", lambda channel: channel.basic_publish("acl-exchange", "", b"more"), "Write access to exchange"),
             (AclOperation.DELETE, ResourceType.TOPIC, "acl-exchange", lambda channel: channel.exchange_delete("acl-exchange"), "Delete access to exchange"),
             (AclOperation.DELETE, ResourceType.TOPIC, queue, lambda channel: channel.queue_delete(queue), "Delete access to queue")]
    for operation, kind, name, work, expected in steps:
        text = attempt(work)
        assert (text is None) == (expected is None) and (expected is None or expected in text), f"{expected}: {text}"
        if operation == AclOperation.DELETE and name == queue:
            # A Kafka client of the queue's group is let in by the same entry; what it may not is refused over HTTP too.
            assert guarded.manage("DELETE", f"/queues/%2F/{queue}", user=BOB, password=SECRET) == 401
        guarded.give(operation, kind, name)
        assert attempt(work) is None, f"{name}: refused after it was allowed"
    connection.close()
    guarded.take_all()


def a_kill_changes_nothing(guarded, _clients):
    topic = guarded.topic("acl-killed")
    guarded.give(AclOperation.WRITE, ResourceType.TOPIC, topic)
    guarded.broker.end(signal.SIGKILL)
    guarded.start()
    assert produced(guarded, topic) == [None]
    bob = AdminClient(bobs(guarded))
    told("TOPIC_AUTHORIZATION_FAILED", lambda: [future.result(20) for future in bob.delete_topics([topic]).values()])


CASES = [librdkafka_is_told_and_works_with_what_it_may, a_transaction_needs_its_id, administration_is_refused_operation_by_operation, kafka_python_is_told,
         the_other_clients_write_and_read_what_they_may, kafka_acls_makes_shows_and_removes_them, amqp_goes_by_the_same_entries, a_kill_changes_nothing]


def main():
    clients = {name: command for name, command in json.loads(sys.argv[2]).items() if name in ("java", "franz-go")}
    with tempfile.TemporaryDirectory(prefix="mainstem-acls-") as folder:
        guarded = Guarded(sys.argv[1], folder)
        guarded.start()
        guarded.make_bob()
        try:
            for case in CASES:
                try:
                    case(guarded, clients)
                    print(f"ok {case.__name__}", flush=True)
                except Exception as error:
                    place = traceback.extract_tb(error.__traceback__)[-1].lineno
                    print(f"FAIL {case.__name__}: {type(error).__name__} in line {place}: {' '.join(str(error).split())[:400]}", flush=True)
                    guarded.take_all()
        finally:
            guarded.broker.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
