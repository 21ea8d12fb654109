"""TLS, SCRAM and access control entries together: every client writes and reads as somebody who may, and is told by its protocol's own error when its
password is wrong and when it has no grant. Arguments: BINARY, and the clients to run as JSON: a name and its command each. A line each: `ok NAME` or
`FAIL NAME: why`."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from base64 import b64encode
from pathlib import Path

import pika
from confluent_kafka import Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic, ResourcePatternType, ResourceType
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE), str(HERE / "amqp")]
from driver.broker import Broker, free_port  # noqa: E402
from security import Certificates, client_context, connect, works  # noqa: E402
from works import at_once, refused, refused_by_kafka_python, run_client, settings  # noqa: E402

ADMIN, APP, BARE, PASSWORD = "admin", "app", "bare", "correct-horse"
MECHANISM = "SCRAM-SHA-512"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KAFKA = ("confluent-kafka", "kafka-python", "java", "franz-go")
COUNT = 200


class Everything:
    """A broker that is reached by TLS only, but for its administration, with somebody who may and somebody who may not."""

    def __init__(self, binary, folder):
        self.certificates = Certificates(folder)
        certificate, key = self.certificates.server()
        self.ca = str(self.certificates.ca)
        self.kafka, self.amqps = (f"127.0.0.1:{free_port()}" for _ in range(2))
        wishes = (f"listeners=SASL_SSL://{self.kafka}", f"sasl.enabled.mechanisms={MECHANISM}", f"authorizer.class.name={AUTHORIZER}", "mainstem.password.iterations=1000")
        flags = ["--amqps", self.amqps, "--tls-certificate", str(certificate), "--tls-key", str(key), *(word for wish in wishes for word in ("--set", wish))]
        self.broker = Broker(binary, f"{folder}/data", flags)
        os.environ.update({"MAINSTEM_DEFAULT_USER": ADMIN, "MAINSTEM_DEFAULT_PASS": PASSWORD})
        try:
            self.broker.start()
        finally:
            del os.environ["MAINSTEM_DEFAULT_USER"], os.environ["MAINSTEM_DEFAULT_PASS"]
        for name in (APP, BARE):
            self.put(f"/users/{name}", {"password": PASSWORD, "tags": ""})
            self.put(f"/permissions/%2F/{name}", {"configure": ".*", "write": ".*", "read": ".*"})
        admin = AdminClient(self.login(ADMIN))
        entries = [AclBinding(kind, "*", ResourcePatternType.LITERAL, f"User:{APP}", "*", AclOperation.ALL, AclPermissionType.ALLOW)
                   for kind in (ResourceType.TOPIC, ResourceType.GROUP)]
        for made in (*admin.create_acls(entries).values(), *admin.create_topics([NewTopic(f"secured-{name}", 3) for name in KAFKA]).values()):
            made.result(20)

    def put(self, path, body):
        login = b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.broker.admin}/api{path}", method="PUT", data=json.dumps(body).encode(),
                                         headers={"authorization": f"Basic {login}", "content-type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()

    def login(self, user=APP, password=PASSWORD):
        return settings(self.kafka, user=user, password=password, mechanism=MECHANISM, ca=self.ca)

    def python(self, user=APP, password=PASSWORD):
        return KafkaProducer(bootstrap_servers=self.kafka, security_protocol="SASL_SSL", ssl_cafile=self.ca, sasl_mechanism=MECHANISM,
                             sasl_plain_username=user, sasl_plain_password=password, bootstrap_timeout_ms=2000)

    def pika(self, user=APP, password=PASSWORD):
        return connect(self.amqps, pika.PlainCredentials(user, password), client_context(self.certificates))

    def program(self, command, verb, name, user=APP, password=PASSWORD, count=COUNT):
        return run_client(command, verb, self.kafka, f"secured-{name}", (MECHANISM, user, password), self.ca, count)

    def go(self, command, user=APP, password=PASSWORD):
        """Status, and what it says."""
        url = f"amqps://{user}:{password}@{self.amqps}/%2f?cacertfile={self.ca}"
        done = subprocess.run([*command, url, str(COUNT)], capture_output=True, timeout=100)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace").strip()


def everybody_works(everything, clients):
    def kafka(name):
        for verb in ("produce", "consume"):
            out = everything.program(clients[name], verb, name)
            assert out.startswith("ok "), f"{name} {verb}: {out}"

    def go():
        status, out = everything.go(clients["amqp091-go"])
        assert status == 0, f"amqp091-go: {out}"
    at_once([*(lambda name=name: kafka(name) for name in KAFKA if name in clients), lambda: works(everything.pika()), *([go] if "amqp091-go" in clients else [])])


def told(name, out, *words):
    assert all(word in out for word in words), f"{name}: {out}"


def a_wrong_password_is_told(everything, clients):
    wrong = {"password": "battery-staple"}

    def kafka_python():
        assert refused_by_kafka_python(lambda: everything.python(**wrong)), "kafka-python: let in"
        assert any("audit" in line and "invalid credentials" in line and "kafka" in line for line in everything.broker.log_lines()), "not for its password"

    def by_pika():
        try:
            everything.pika(**wrong).close()
        except ProbableAuthenticationError as error:
            assert "(403) 'ACCESS_REFUSED" in str(error), error
            return
        raise AssertionError("pika: let in")
    attempts = [lambda: refused(everything.kafka, user=APP, mechanism=MECHANISM, ca=everything.ca, **wrong), kafka_python, by_pika]
    for name, word in (("java", "SaslAuthenticationException"), ("franz-go", "SASL_AUTHENTICATION_FAILED")):
        if name in clients:
            attempts.append(lambda name=name, word=word: told(name, everything.program(clients[name], "produce", name, count=1, **wrong), word))
    if "amqp091-go" in clients:
        attempts.append(lambda: told("amqp091-go", everything.go(clients["amqp091-go"], **wrong)[1], "403", "username or password not allowed"))
    at_once(attempts)


def a_missing_grant_is_told(everything, clients):
    def librdkafka():
        said = []
        producer = Producer({**everything.login(BARE), "message.timeout.ms": 10_000})
        producer.produce("secured-java", b"x", on_delivery=lambda error, _: said.append(error and error.name()))
        assert producer.flush(15) == 0 and said == ["TOPIC_AUTHORIZATION_FAILED"], f"librdkafka: {said}"

    def kafka_python():
        producer = everything.python(BARE)
        try:
            producer.send("secured-java", b"x").get(15)
        except TopicAuthorizationFailedError:
            return
        finally:
            producer.close()
        raise AssertionError("kafka-python: written")

    def by_pika():
        connection = everything.pika(BARE)
        try:
            connection.channel().queue_declare("secured-queue")
        except ChannelClosedByBroker as error:
            assert error.reply_code == 403 and "ACCESS_REFUSED" in error.reply_text, error
            return
        finally:
            connection.close()
        raise AssertionError("pika: declared")
    attempts = [librdkafka, kafka_python, by_pika]
    for name, word in (("java", "TopicAuthorizationException"), ("franz-go", "TOPIC_AUTHORIZATION_FAILED")):
        if name in clients:
            attempts.append(lambda name=name, word=word: told(name, everything.program(clients[name], "produce", name, BARE, count=1), word))
    if "amqp091-go" in clients:
        attempts.append(lambda: told("amqp091-go", everything.go(clients["amqp091-go"], BARE)[1], "403", "ACCESS_REFUSED"))
    at_once(attempts)


def main():
    binary, clients = sys.argv[1], json.loads(sys.argv[2])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="mainstem-secured-") as folder:
        everything = Everything(binary, folder)
        for work in (everybody_works, a_wrong_password_is_told, a_missing_grant_is_told):
            name, began = work.__name__.replace("_", "-"), time.time()
            try:
                work(everything, clients)
                print(f"ok {name}", flush=True)
            except Exception as error:
                failed += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"FAIL {name}: {type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})".replace("\n", " "), flush=True)
            print(f"#     {name} took {time.time() - began:.1f} s", file=sys.stderr)
        status = everything.broker.end(signal.SIGTERM)
        print("ok ends" if status == 0 else f"FAIL ends: status {status}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
