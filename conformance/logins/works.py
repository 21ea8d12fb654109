"""Kafka clients that have to log in: users made by the broker's start and by Kafka's tools, PLAIN and SCRAM, with TLS and without; who is refused
and how; sessions that end; the same users on AMQP; a storm of logins; a flood of strangers. Arguments: BINARY, and the clients to run as JSON: a
name and its command each. A line each: `ok NAME` or `FAIL NAME: why`."""

import base64
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from pathlib import Path

import pika
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError
from pika.exceptions import ProbableAccessDeniedError, ProbableAuthenticationError

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE), str(HERE / "amqp")]
from driver.broker import Broker, free_port  # noqa: E402
from driver.tools import Machine  # noqa: E402
from security import Certificates, connect, works  # noqa: E402

ADMIN, PASSWORD = "admin", "geheim, aber kurz"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
COUNT = 200
SESSION_S = 2
# Memory that strangers may cost.
GROWTH_MAX = 64 << 20


class Secured:
    """A broker with a listener for each of SASL_PLAINTEXT and SASL_SSL, and one whose sessions end."""

    def __init__(self, binary, folder):
        self.folder, self.machine = folder, None
        certificates = Certificates(folder)
        certificate, key = certificates.server()
        self.ca = str(certificates.ca)
        self.sasl, self.tls, self.timed = (f"127.0.0.1:{free_port()}" for _ in range(3))
        wishes = (f"listeners=SASL_PLAINTEXT://{self.sasl},SASL_SSL://{self.tls},TIMED://{self.timed}",
                  "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,TIMED:SASL_PLAINTEXT",
                  f"sasl.enabled.mechanisms={','.join(MECHANISMS)}", f"listener.name.timed.connections.max.reauth.ms={SESSION_S * 1000}")
        flags = ["--tls-certificate", str(certificate), "--tls-key", str(key), *(word for wish in wishes for word in ("--set", wish))]
        self.broker = Broker(binary, f"{folder}/data", flags)

    def start(self):
        environment = {"MAINSTEM_DEFAULT_USER": ADMIN, "MAINSTEM_DEFAULT_PASS": PASSWORD}
        os.environ.update(environment)
        try:
            self.broker.start()
        finally:
            for name in environment:
                del os.environ[name]

    def metric(self, name):
        return float(re.search(rf"^mainstem_kafka_{name} (\S+)$", self.broker.metrics(), re.MULTILINE)[1])

    def resident(self):
        text = Path(f"/proc/{self.broker.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) << 10


def settings(address, user=ADMIN, password=PASSWORD, mechanism="SCRAM-SHA-512", ca=None):
    more = {"ssl.ca.location": ca} if ca else {}
    return {"bootstrap.servers": address, "security.protocol": "SASL_SSL" if ca else "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
            "sasl.username": user, "sasl.password": password, "log_level": 0, **more}


def let_in(address, **wish):
    AdminClient(settings(address, **wish)).list_topics(timeout=20)


def refused_by_kafka_python(make):
    """Does kafka-python not come in by the login that `make` tries? It tries again and again, and says in the end that it could not begin."""
    try:
        make().close()
        return False
    except (SaslAuthenticationFailedError, KafkaTimeoutError):
        return True


def refused(address, **wish):
    said = []
    client = AdminClient({**settings(address, **wish), "error_cb": lambda error: said.append(error)})
    until = time.time() + 10
    while time.time() < until and not any(error.name() == "_AUTHENTICATION" for error in said):
        client.poll(0.05)
    assert any(error.name() == "_AUTHENTICATION" for error in said), f"{wish}: {said}"


def run_client(command, verb, address, topic, login, ca=None, count=COUNT):
    environment = {**os.environ, "CONFORMANCE_LOGIN": ":".join(login), **({"CONFORMANCE_CA": ca} if ca else {})}
    target = f"{topic}=none" if verb == "produce" else topic
    done = subprocess.run([*command, verb, address, str(count), target], env=environment, capture_output=True, timeout=100)
    return done.stdout.decode(errors="replace").strip() or done.stderr.decode(errors="replace")[-400:]


def at_once(works_):
    """Runs all of them at the same time; the first failure is raised."""
    failures = []

    def attempt(work):
        try:
            work()
        except Exception as error:
            failures.append(error)
    threads = [threading.Thread(target=attempt, args=(work,)) for work in works_]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def each_client_writes_and_reads(secured, clients):
    names = [f"login-{name}-{number}-{encrypted}" for name in clients for number in range(len(MECHANISMS)) for encrypted in (False, True)]
    admin = AdminClient(settings(secured.tls, ca=secured.ca))
    for made in admin.create_topics([NewTopic(name, 3) for name in names]).values():
        made.result(20)

    def one(name, command):
        for number, mechanism in enumerate(MECHANISMS):
            # A virtual machine takes a second to begin: its mechanisms come by turns with TLS and without.
            for encrypted in [bool(number % 2)] if name == "java" else [False, True]:
                address, ca = (secured.tls, secured.ca) if encrypted else (secured.sasl, None)
                topic = f"login-{name}-{number}-{encrypted}"
                for verb in ("produce", "consume"):
                    out = run_client(command, verb, address, topic, (mechanism, ADMIN, PASSWORD), ca)
                    assert out.startswith("ok "), f"{name} {verb} with {mechanism}, TLS {encrypted}: {out}"
    at_once([lambda item=item: one(*item) for item in clients.items()])


def tool(secured, name, user, password, *words):
    """One of Kafka's tools, logged in: exit status, and what it says."""
    file = Path(secured.folder) / "tool.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=org.apache.kafka.common.security.scram."
                    f'ScramLoginModule required username="{user}" password="{password}";\n')
    if not secured.machine:
        secured.machine = Machine()
    return secured.machine.run([name, "--bootstrap-server", secured.sasl, "--command-config", str(file), *words], "")


def who_is_wrong_is_told(secured, _clients):
    for mechanism in MECHANISMS:
        refused(secured.sasl, mechanism=mechanism, password="wrong")
        refused(secured.tls, mechanism=mechanism, user="nobody", ca=secured.ca)
    let_in(secured.tls, ca=secured.ca)
    status, out = tool(secured, "org.apache.kafka.tools.TopicCommand", ADMIN, "wrong", "--list")
    assert status != 0 and "SaslAuthenticationException" in out, out
    status, out = tool(secured, "org.apache.kafka.tools.TopicCommand", ADMIN, PASSWORD, "--list")
    assert status == 0, out
    assert secured.metric("refused_logins_total") >= 6


def kafka_tools_make_users(secured, _clients):
    def configs(*words, user=ADMIN, password=PASSWORD):
        return tool(secured, "kafka.admin.ConfigCommand", user, password, "--entity-type", "users", "--entity-name", "carol", "--alter", *words)

    for keys in ("SCRAM-SHA-256=[iterations=8192,password=first]", "SCRAM-SHA-512=[password=first]"):
        status, out = configs("--add-config", keys)
        assert status == 0, out
    admin = AdminClient(settings(secured.sasl))
    described = admin.describe_user_scram_credentials(["carol"])["carol"].result(20)
    assert sorted(info.iterations for info in described.scram_credential_infos) == [4096, 8192], described
    for mechanism in MECHANISMS:
        let_in(secured.sasl, user="carol", password="first", mechanism=mechanism)
    # The same user on AMQP, where nobody has given him a permission yet; and not with another password.
    for password, expected in (("first", ProbableAccessDeniedError), ("second", ProbableAuthenticationError)):
        try:
            connect(secured.broker.amqp, pika.PlainCredentials("carol", password)).close()
        except (ProbableAccessDeniedError, ProbableAuthenticationError) as error:
            assert isinstance(error, expected), error
        else:
            raise AssertionError("carol may not open a virtual host")
    status, out = configs("--delete-config", "SCRAM-SHA-256")
    assert status == 0, out
    refused(secured.sasl, user="carol", password="first", mechanism="SCRAM-SHA-256")
    let_in(secured.sasl, user="carol", password="first", mechanism="SCRAM-SHA-512")
    # Who is no administrator changes nobody.
    status, out = configs("--add-config", "SCRAM-SHA-256=[password=third]", user="carol", password="first")
    assert status != 0 and "ClusterAuthorization" in out, out


def users_are_there_after_a_kill(secured, _clients):
    secured.broker.end(signal.SIGKILL)
    secured.broker.start()
    let_in(secured.sasl)
    let_in(secured.sasl, user="carol", password="first")
    refused(secured.sasl, user="carol", password="first", mechanism="SCRAM-SHA-256")
    works(connect(secured.broker.amqp, pika.PlainCredentials(ADMIN, PASSWORD)), 4, 1000)


def a_new_password_is_that_of_all_protocols(secured, _clients):
    def put(password):
        basic = base64.b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
        body = json.dumps({"password": password, "tags": ""}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{secured.broker.admin}/api/users/dora", body, method="PUT",
                                         headers={"Authorization": f"Basic {basic}", "Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=20).close()
    put("one")
    for mechanism in MECHANISMS:
        let_in(secured.sasl, user="dora", password="one", mechanism=mechanism)
    put("other")
    for mechanism in MECHANISMS:
        refused(secured.sasl, user="dora", password="one", mechanism=mechanism)
        let_in(secured.sasl, user="dora", password="other", mechanism=mechanism)


def sessions_are_renewed(secured, _clients):
    failures = []
    producer = Producer({**settings(secured.timed), "linger.ms": 0})
    began, logins = time.time(), None
    while time.time() < began + 3 * SESSION_S:
        producer.produce("timed", b"x", on_delivery=lambda error, _: error and failures.append(error))
        producer.poll(0.05)
        if logins is None and time.time() > began + 0.5:
            logins, connections = secured.metric("logins_total"), secured.metric("connections")
    assert producer.flush(10) == 0 and not failures, failures
    assert secured.metric("logins_total") > logins, "nothing was renewed"
    assert secured.metric("connections") <= connections, "connections were made anew"


def frame(key, version, correlation, body):
    content = struct.pack(">hhih", key, version, correlation, -1) + body
    return struct.pack(">i", len(content)) + content


def exactly(link, count):
    out = b""
    while len(out) < count:
        more = link.recv(count - len(out))
        assert more, "closed"
        out += more
    return out


def a_storm_of_logins_costs_one_hash(secured, _clients):
    host, port = secured.sasl.split(":")
    token = f"\0{ADMIN}\0{PASSWORD}".encode()
    let_in(secured.sasl, mechanism="PLAIN")
    before = secured.broker.spent()
    for _ in range(500):
        with socket.create_connection((host, int(port)), timeout=10) as link:
            link.sendall(frame(17, 1, 1, struct.pack(">h", 5) + b"PLAIN") + frame(36, 1, 2, struct.pack(">i", len(token)) + token))
            for _ in range(2):
                answer = exactly(link, struct.unpack(">i", exactly(link, 4))[0])
            assert struct.unpack(">h", answer[4:6])[0] == 0, answer
    spent = secured.broker.spent() - before
    assert spent < 2.5, f"500 logins took {spent:.1f} s of processor time"


def strangers_cost_little_and_keep_nobody_out(secured, _clients):
    producer = Producer({**settings(secured.sasl), "linger.ms": 0})
    producer.produce("calm", b"x")
    assert producer.flush(20) == 0
    before, links, refused_ = secured.resident(), [], 0
    greedy = struct.pack(">i", 32_000) + b"\0" * 30_000
    huge = struct.pack(">i", 100 << 20) + b"\0" * 1000
    hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + b"\0" * 12_000
    for number in range(3000):
        address = (secured.tls if number % 3 == 2 else secured.sasl).split(":")
        link = socket.socket()
        link.bind((f"127.0.0.{2 + number % 6}", 0))
        link.connect((address[0], int(address[1])))
        try:
            link.sendall((greedy, huge, hello)[number % 3])
        except OSError:
            refused_ += 1
        links.append(link)
    latencies = []
    for _ in range(20):
        began = time.time()
        producer.produce("calm", b"x")
        assert producer.flush(20) == 0
        latencies.append(time.time() - began)
    growth = secured.resident() - before
    assert growth <= GROWTH_MAX, f"{growth >> 20} MiB more"
    print(f"#     3000 strangers: {growth >> 20} MiB more, publishing took {sorted(latencies)[-2] * 1000:.0f} ms at most but one")
    for link in links:
        link.close()
    until = time.time() + 10
    while time.time() < until:
        try:
            return let_in(secured.sasl)
        except Exception as error:
            last = error
    raise last


def main():
    binary, clients = sys.argv[1], json.loads(sys.argv[2])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="mainstem-logins-") as folder:
        secured = Secured(binary, folder)
        secured.start()
        for work in (each_client_writes_and_reads, who_is_wrong_is_told, kafka_tools_make_users, users_are_there_after_a_kill,
                     a_new_password_is_that_of_all_protocols, sessions_are_renewed, a_storm_of_logins_costs_one_hash,
                     strangers_cost_little_and_keep_nobody_out):
            name, began = work.__name__.replace("_", "-"), time.time()
            try:
                work(secured, clients)
                print(f"ok {name}", flush=True)
            except Exception as error:
                failed += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"FAIL {name}: {type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})", flush=True)
            print(f"#     {name} took {time.time() - began:.1f} s", file=sys.stderr)
        status = secured.broker.end(signal.SIGTERM)
        print("ok ends" if status == 0 else f"FAIL ends: status {status}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
