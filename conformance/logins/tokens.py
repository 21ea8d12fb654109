"""Clients that log in by tokens of an authority whose keys the broker fetches: Kafka's by OAUTHBEARER, good tokens, bad ones, sessions that are
renewed, keys that change, access control entries for the names in tokens; AMQP and HTTP. Arguments: BINARY, and the clients to run as JSON: a name and its command each. A
line each: `ok NAME` or `FAIL NAME: why`."""

import hmac
import json
import os
import re
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import pika
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic, ResourcePatternType, ResourceType
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from pika.exceptions import ConnectionClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE), str(HERE / "amqp")]
from authority import AUDIENCE, ISSUER, Key, KeyServer, claims, token, unsigned, url64  # noqa: E402
from driver.broker import Broker, free_port  # noqa: E402
from security import Certificates, connect, works  # noqa: E402
from works import at_once, exactly, frame, refused_by_kafka_python, run_client, settings as by_password  # noqa: E402

ADMIN, PASSWORD = "admin", "geheim, aber kurz"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LIFE_S = 2
INVALID = '{"status":"invalid_token"}'


class Tokened:
    """A broker with listeners for tokens, plain and with TLS, where entries count, and the authority."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, Path(folder)
        certificates = Certificates(folder)
        self.ca, pair = str(certificates.ca), certificates.server()
        self.rsa, self.curve = Key(folder, "rsa"), Key(folder, "curve", "ES256")
        self.served = KeyServer([self.rsa, self.curve], pair)
        self.plain, self.tls, self.known = (f"127.0.0.1:{free_port()}" for _ in range(3))
        wishes = (f"listeners=PLAIN://{self.plain},TLS://{self.tls},KNOWN://{self.known}",
                  "listener.security.protocol.map=PLAIN:SASL_PLAINTEXT,TLS:SASL_SSL,KNOWN:SASL_PLAINTEXT",
                  "sasl.enabled.mechanisms=OAUTHBEARER", "listener.name.known.sasl.enabled.mechanisms=PLAIN", f"authorizer.class.name={AUTHORIZER}",
                  f"sasl.oauthbearer.jwks.endpoint.url={self.served.url}", f"sasl.oauthbearer.expected.issuer={ISSUER}",
                  f"sasl.oauthbearer.expected.audience=other,{AUDIENCE}", "sasl.oauthbearer.jwks.endpoint.refresh.ms=1000",
                  "sasl.oauthbearer.clock.skew.seconds=0")
        flags = ["--tls-certificate", str(pair[0]), "--tls-key", str(pair[1]), *(word for wish in wishes for word in ("--set", wish))]
        self.broker = Broker(binary, f"{folder}/data", flags)

    def start(self):
        environment = {"MAINSTEM_DEFAULT_USER": ADMIN, "MAINSTEM_DEFAULT_PASS": PASSWORD, "SSL_CERT_FILE": self.ca}
        os.environ.update(environment)
        try:
            self.broker.start()
        finally:
            for name in environment:
                del os.environ[name]
        self.admin = AdminClient(by_password(self.known, ADMIN, PASSWORD, "PLAIN"))
        entries = [AclBinding(ResourceType.TOPIC, "tokens-", ResourcePatternType.PREFIXED, "User:alice", "*", operation, AclPermissionType.ALLOW)
                   for operation in (AclOperation.READ, AclOperation.WRITE)]
        # Readers look for the coordinator of a group, even if they only say where they read.
        entries.append(AclBinding(ResourceType.GROUP, "none", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW))
        for made in self.admin.create_acls(entries).values():
            made.result(20)

    def topics(self, *names):
        for made in self.admin.create_topics([NewTopic(name, 3) for name in names]).values():
            made.result(20)

    def metric(self, name):
        return float(re.search(rf"^mainstem_kafka_{name} (\S+)$", self.broker.metrics(), re.MULTILINE)[1])

    def stop(self):
        self.served.close()
        return self.broker.end(signal.SIGTERM)


def settings(address, make, **more):
    """Of librdkafka; `make` makes a token and says how many seconds it is good for."""
    def refresh(_config):
        text, seconds = make()
        return text, time.time() + seconds
    return {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": refresh, "log_level": 0, **more}


def always(text):
    return lambda: (text, 300)


def each_client_writes_and_reads(tokened, clients):
    names = [f"tokens-{name}-{encrypted}" for name in clients for encrypted in (False, True)]
    tokened.topics(*names)
    files = {}
    for key in (tokened.rsa, tokened.curve):
        files[key.algorithm] = str(tokened.folder / f"{key.algorithm}.token")
        Path(files[key.algorithm]).write_text(token(key, "alice"))

    def one(name, command):
        # A virtual machine takes a second to begin.
        for encrypted in [True] if name == "java" else [False, True]:
            address, ca = (tokened.tls, tokened.ca) if encrypted else (tokened.plain, None)
            login = ("OAUTHBEARER", "alice", files["RS256" if encrypted else "ES256"])
            for verb in ("produce", "consume"):
                out = run_client(command, verb, address, f"tokens-{name}-{encrypted}", login, ca)
                assert out.startswith("ok "), f"{name} {verb}, TLS {encrypted}: {out}"
    at_once([lambda item=item: one(*item) for item in clients.items()])


def entries_count_for_the_name_in_a_token(tokened, _clients):
    tokened.topics("tokens-mine", "others")
    for name, topic, expected in (("alice", "tokens-mine", None), ("alice", "others", "TOPIC_AUTHORIZATION_FAILED"), ("bob", "tokens-mine", "TOPIC_AUTHORIZATION_FAILED"),
                                  (ADMIN, "others", None)):
        said = []
        producer = Producer(settings(tokened.plain, always(token(tokened.rsa, name)), **{"message.timeout.ms": 10_000}))
        producer.produce(topic, b"x", on_delivery=lambda error, _: said.append(error and error.name()))
        assert producer.flush(20) == 0 and said == [expected], f"{name} {topic}: {said}"


def bad_tokens(tokened):
    """What is wrong with each, the token, and what the audit log says of it."""
    rsa, good = tokened.rsa, claims("alice")
    stranger = Key(tokened.folder, "stranger")
    forged = unsigned({"alg": "RS256", "kid": "rsa"}, good)
    # Signed with what everybody may know, as if it were a secret.
    symmetric = unsigned({"alg": "HS256", "kid": "rsa"}, good)
    secret = json.dumps(rsa.public()).encode()
    text = token(rsa, "alice")
    return [("expired", token(rsa, "alice", -1), "it has expired"),
            ("not yet valid", token(rsa, "alice", nbf=time.time() + 100), "it is not valid yet"),
            ("of another issuer", token(rsa, "alice", iss="https://elsewhere.example.org"), "its issuer is another"),
            ("for another audience", token(rsa, "alice", aud="somebody"), "it is meant for others"),
            ("without a user", token(rsa, "alice", sub=None), 'claim "sub"'),
            ("without an end", token(rsa, "alice", exp=None), 'claim "exp"'),
            ("signed by a stranger", f"{forged}.{url64(stranger.sign(forged.encode()))}", "its signature is wrong"),
            ("of a key that is not there", token(stranger, "alice"), 'no key "stranger"'),
            ("changed", ".".join([text.split(".")[0], unsigned(claims("admin"), {}).split(".")[0], text.split(".")[2]]), "its signature is wrong"),
            ("unsigned", unsigned({"alg": "none"}, good) + ".", "it is no JSON Web Token"),
            ("symmetric", f"{symmetric}.{url64(hmac.digest(secret, symmetric.encode(), 'sha256'))}", "tokens signed by HS256 are not taken"),
            ("no token", "abc", "it is no JSON Web Token")]


def refused_by_librdkafka(tokened, what, text):
    said = []
    client = Producer(settings(tokened.plain, always(text), error_cb=said.append))
    until = time.time() + 10
    while time.time() < until and not any(error.name() == "_AUTHENTICATION" for error in said):
        client.poll(0.05)
    assert any(error.name() == "_AUTHENTICATION" and INVALID in error.str() for error in said), f"{what}: {said}"


class Provider(AbstractTokenProvider):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def token(self):
        return self.make()[0]


def by_kafka_python(address, make):
    return KafkaProducer(bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider(make),
                         bootstrap_timeout_ms=1000)


def bad_tokens_are_refused(tokened, clients):
    before = tokened.metric("refused_logins_total")
    for what, text, reason in bad_tokens(tokened):
        seen = len(tokened.broker.log_lines())
        refused_by_librdkafka(tokened, what, text)
        lines = [line for line in tokened.broker.log_lines()[seen:] if "audit" in line and "OAUTHBEARER" in line]
        assert any(reason.replace('"', '\\"') in line or reason in line for line in lines), f"{what}: {lines}"
    assert tokened.metric("refused_logins_total") >= before + len(bad_tokens(tokened))
    seen = len(tokened.broker.log_lines())
    assert refused_by_kafka_python(lambda: by_kafka_python(tokened.plain, always(token(tokened.rsa, "alice", -1)))), "kafka-python with an expired token: let in"
    assert any("audit" in line and "it has expired" in line for line in tokened.broker.log_lines()[seen:]), "not for its token"
    if "java" in clients:
        file = tokened.folder / "expired.token"
        file.write_text(token(tokened.rsa, "alice", 2))
        time.sleep(2)
        out = run_client(clients["java"], "produce", tokened.plain, "tokens-mine", ("OAUTHBEARER", "alice", str(file)), count=1)
        assert "SaslAuthenticationException" in out and INVALID in out, out
    assert not any("eyJ" in line for line in tokened.broker.log_lines()), "no token is in the log"


def sessions_are_renewed(tokened, _clients):
    """Connections that last longer than their tokens."""
    tokened.topics("tokens-renewed")
    failures, made = [], []

    def fresh():
        made.append(time.time())
        return token(tokened.rsa, "alice", LIFE_S), LIFE_S
    producer = Producer(settings(tokened.plain, fresh, **{"linger.ms": 0}))
    other = by_kafka_python(tokened.plain, fresh)
    began, logins = time.time(), None
    while time.time() < began + 2.5 * LIFE_S:
        producer.produce("tokens-renewed", b"x", on_delivery=lambda error, _: error and failures.append(error))
        producer.poll(0.05)
        other.send("tokens-renewed", b"y").get(10)
        if logins is None and time.time() > began + 0.5:
            logins, connections = tokened.metric("logins_total"), tokened.metric("connections")
    assert producer.flush(10) == 0 and not failures, failures
    other.close()
    assert len(made) >= 3 and tokened.metric("logins_total") >= logins + 4, f"{len(made)} tokens, {tokened.metric('logins_total') - logins} logins"
    assert tokened.metric("connections") <= connections, "connections were made anew"


def a_session_ends_with_its_token(tokened, _clients):
    tokened.topics("tokens-ended")
    text = token(tokened.rsa, "alice", LIFE_S)
    said = []
    producer = Producer(settings(tokened.plain, lambda: (text, 300), error_cb=said.append, **{"linger.ms": 0}))
    producer.produce("tokens-ended", b"x")
    assert producer.flush(10) == 0
    time.sleep(LIFE_S)
    until = time.time() + 10
    while time.time() < until and not any(error.name() == "_AUTHENTICATION" and INVALID in error.str() for error in said):
        producer.poll(0.1)
    assert any(INVALID in error.str() for error in said), said


def asked(tokened, path, authorization, method="GET", body=None):
    """Status and answer of a request over HTTP."""
    request = urllib.request.Request(f"http://127.0.0.1:{tokened.broker.admin}{path}", method=method, data=body and json.dumps(body).encode(),
                                     headers={"authorization": authorization, "content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, None


def amqp_and_http_take_tokens(tokened, _clients):
    basic = "Basic " + b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
    for path, body in (("/api/users/worker", {"password": "unknown to all", "tags": "administrator"}),
                       ("/api/permissions/%2F/worker", {"configure": ".*", "write": ".*", "read": ".*"})):
        assert asked(tokened, path, basic, "PUT", body)[0] in (201, 204)

    def bearer(name, seconds=300):
        return f"Bearer {token(tokened.rsa, name, seconds)}"
    status, session = asked(tokened, "/v1/session", bearer("worker"))
    assert (status, session["user"], session["via"]) == (200, "worker", "bearer"), session
    status, who = asked(tokened, "/api/whoami", bearer("worker"))
    assert (status, who["name"]) == (200, "worker"), who
    statuses = [asked(tokened, path, bearer(*claimed))[0] for path in ("/v1/session", "/api/whoami") for claimed in (("alice",), ("worker", -1))]
    assert statuses == [403, 401, 401, 401], statuses

    def come(name, seconds=300):
        # Whom the client names beside the token does not matter.
        return connect(tokened.broker.amqp, pika.PlainCredentials("somebody", token(tokened.curve, name, seconds)))
    works(come("worker"))
    for claimed, expected in ((("alice",), ProbableAccessDeniedError), (("worker", -1), ProbableAuthenticationError)):
        try:
            come(*claimed).close()
        except (ProbableAccessDeniedError, ProbableAuthenticationError) as error:
            assert isinstance(error, expected), error
        else:
            raise AssertionError(f"{claimed}: let in")
    began, connection = time.time(), come("worker", LIFE_S)
    connection.update_secret(token(tokened.rsa, "worker", 2 * LIFE_S), "it is time")
    other = come("worker")
    try:
        other.update_secret(token(tokened.rsa, ADMIN), "somebody else")
        raise AssertionError("another user's token")
    except ConnectionClosedByBroker as closed:
        assert (closed.reply_code, "New secret was refused" in closed.reply_text) == (530, True), closed
    connection.sleep(began + 1.3 * LIFE_S - time.time())
    connection.channel().close()
    try:
        connection.sleep(began + 3 * LIFE_S + 30 - time.time())
    except ConnectionClosedByBroker as closed:
        assert closed.reply_code == 320 and "credential expired" in closed.reply_text, closed
        assert time.time() - began > 2 * LIFE_S - 1, "before it expires"
    else:
        raise AssertionError("the connection stays")


def keys_change(tokened, _clients):
    tokened.topics("tokens-keys")
    new = Key(tokened.folder, "new", "ES256")
    tokened.served.keys = [new]
    text, until = token(new, "alice"), time.time() + 10
    while refused_by_kafka_python(lambda: by_kafka_python(tokened.plain, always(text))):
        assert time.time() < until, "the new key is not taken"
    refused_by_librdkafka(tokened, "of a key that is gone", token(tokened.rsa, "alice"))
    # Without the authority the keys stay as they are.
    asked = tokened.served.asked
    tokened.served.close()
    time.sleep(1.2)
    assert asked > 1, "keys are fetched again and again"
    by_kafka_python(tokened.plain, always(token(new, "alice"))).close()
    assert any("keys of tokens stay as they were" in line for line in tokened.broker.log_lines())


def a_storm_of_logins(tokened, _clients):
    """Five hundred connections one after the other, each of which has its token verified."""
    host, port = tokened.plain.split(":")
    costs = {}
    for key in (tokened.rsa, tokened.curve):
        message = f"n,,\1auth=Bearer {token(key, 'alice')}\1\1".encode()
        before = tokened.broker.spent()
        for _ in range(500):
            with socket.create_connection((host, int(port)), timeout=10) as link:
                link.sendall(frame(17, 1, 1, struct.pack(">h", 11) + b"OAUTHBEARER") + frame(36, 1, 2, struct.pack(">i", len(message)) + message))
                for _ in range(2):
                    answer = exactly(link, struct.unpack(">i", exactly(link, 4))[0])
                assert struct.unpack(">h", answer[4:6])[0] == 0, answer
        costs[key.algorithm] = (tokened.broker.spent() - before) * 2
        assert costs[key.algorithm] < 5, costs
    print(f"#     500 logins each: {', '.join(f'{cost:.2f} ms of a core a login by {name}' for name, cost in costs.items())}")


def keys_in_a_file(tokened, _clients):
    """They are read again with the configuration; a file that is none changes nothing, and no broker starts with it."""
    file, first, second = tokened.folder / "keys.json", tokened.rsa, tokened.curve
    address = f"127.0.0.1:{free_port()}"
    wishes = (f"listeners=SASL_PLAINTEXT://{address}", "sasl.enabled.mechanisms=OAUTHBEARER", f"sasl.oauthbearer.jwks.endpoint.url=file://{file}",
              f"sasl.oauthbearer.expected.audience={AUDIENCE}", "sasl.oauthbearer.sub.claim.name=email")
    flags = [word for wish in wishes for word in ("--set", wish)]
    texts = [token(key, "x", email="alice@example.org") for key in (first, second)]

    def put(*keys):
        file.write_text(json.dumps({"keys": [key.public() for key in keys]}))

    def is_let_in(text):
        return not refused_by_kafka_python(lambda: by_kafka_python(address, always(text)))

    file.write_text('{"keys": []}')
    try:
        Broker(tokened.binary, f"{tokened.folder}/none", flags).start()
    except RuntimeError as error:
        assert f"file:{file}" in str(error) and "none of its 0 keys" in str(error), error
    else:
        raise AssertionError("a broker without keys")
    put(first)
    broker = Broker(tokened.binary, f"{tokened.folder}/file", flags).start()
    try:
        assert (is_let_in(texts[0]), is_let_in(texts[1])) == (True, False)
        put(second)
        broker.process.send_signal(signal.SIGHUP)
        until = time.time() + 10
        while not is_let_in(texts[1]):
            assert time.time() < until, "the new key is not read"
        assert not is_let_in(texts[0])
        file.write_text("nonsense")
        broker.process.send_signal(signal.SIGHUP)
        while not any("configuration stays as it was" in line and f"file:{file}" in line for line in broker.log_lines()):
            assert time.time() < until + 10, broker.log_lines()[-2:]
            time.sleep(0.05)
        assert is_let_in(texts[1])
    finally:
        assert broker.end(signal.SIGTERM) == 0


def main():
    binary, clients = sys.argv[1], json.loads(sys.argv[2])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="mainstem-tokens-") as folder:
        tokened = Tokened(binary, folder)
        tokened.start()
        for work in (each_client_writes_and_reads, entries_count_for_the_name_in_a_token, bad_tokens_are_refused, sessions_are_renewed,
                     a_session_ends_with_its_token, amqp_and_http_take_tokens, a_storm_of_logins, keys_in_a_file, keys_change):
            name, began = work.__name__.replace("_", "-"), time.time()
            try:
                work(tokened, clients)
                print(f"ok {name}", flush=True)
            except Exception as error:
                failed += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"FAIL {name}: {type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})".replace("\n", " "), flush=True)
            print(f"#     {name} took {time.time() - began:.1f} s", file=sys.stderr)
        status = tokened.stop()
        print("ok ends" if status == 0 else f"FAIL ends: status {status}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
