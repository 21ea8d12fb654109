"""Who is let in, with pika and RabbitMQ's clients for Go and Java: users, passwords from the environment and from files, a restart, TLS with and
without certificates of clients, certificates that are exchanged while the broker runs. Arguments: BINARY, FOLDER of the other clients. A line
each: `ok NAME` or `FAIL NAME: why`."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pika
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker, free_port  # noqa: E402

REFUSED = "ACCESS_REFUSED - Login was refused using authentication mechanism {}. For details see the broker logfile."


def openssl(*words, **more):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, **more)


class Certificates:
    """An authority, and what it certifies: servers under 127.0.0.1 and localhost, clients by name."""

    def __init__(self, folder, name="authority"):
        self.folder, self.name = Path(folder), name
        self.ca, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", key, "-out", self.ca)

    def make(self, name, subject, hosts=""):
        certificate, key, wish = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject, "-keyout", key, "-out", wish)
        extension = self.folder / f"{name}.ext"
        extension.write_text(f"subjectAltName={hosts}\n" if hosts else "keyUsage=digitalSignature\n")
        openssl("x509", "-req", "-in", wish, "-CA", self.ca, "-CAkey", self.folder / f"{self.name}.key", "-CAcreateserial", "-days", "2",
                "-extfile", extension, "-out", certificate)
        return certificate, key

    def server(self, name="server"):
        return self.make(name, "/O=Mainstem/CN=broker", "IP:127.0.0.1,DNS:localhost")


class AmqPlain:
    """The mechanism that RabbitMQ has of old: a table in place of zero bytes."""
    TYPE = "AMQPLAIN"

    def __init__(self, user, password):
        self.user, self.password = user, password
        self.erase_on_connect = False

    def response_for(self, start):
        if b"AMQPLAIN" not in start.mechanisms:
            return None, None
        pieces = b"".join(bytes([len(name)]) + name + b"S" + len(value).to_bytes(4, "big") + value
                          for name, value in ((b"LOGIN", self.user.encode()), (b"PASSWORD", self.password.encode())))
        return self.TYPE, pieces

    def erase_credentials(self):
        pass


class Anonymous:
    """Somebody who does not say who he is."""
    TYPE = "ANONYMOUS"

    def __init__(self):
        self.erase_on_connect = False

    def response_for(self, start):
        return (self.TYPE, b"") if b"ANONYMOUS" in start.mechanisms else (None, None)

    def erase_credentials(self):
        pass


pika.credentials.VALID_TYPES += [AmqPlain, Anonymous]


def connect(address, credentials=None, tls=None, **more):
    host, port = address.rsplit(":", 1)
    options = tls and pika.SSLOptions(tls, host)
    parameters = pika.ConnectionParameters(host, int(port), credentials=credentials or pika.PlainCredentials("guest", "guest"),
                                           ssl_options=options, connection_attempts=1, blocked_connection_timeout=20, **more)
    return pika.BlockingConnection(parameters)


def works(connection, count=20, size=100_000):
    """Publishes and gets, large bodies among them."""
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    for number in range(count):
        channel.basic_publish("", queue, bytes([number]) * (size if number % 2 else 10))
    for number in range(count):
        body = channel.basic_get(queue, auto_ack=True)[2]
        assert body == bytes([number]) * (size if number % 2 else 10), (number, len(body))
    connection.close()


def refused(what, address, credentials, mechanism="PLAIN", **more):
    try:
        connect(address, credentials, **more).close()
    except (ProbableAuthenticationError, ConnectionClosedByBroker) as closed:
        assert REFUSED.format(mechanism) in str(closed), f"{what}: {closed}"
    else:
        raise AssertionError(f"{what}: let in")


def users(binary, folder):
    """A first user from the environment; guest gives way to him; both as after a restart."""
    environment = {"MAINSTEM_DEFAULT_USER": "admin", "MAINSTEM_DEFAULT_PASS": "geheim, aber kurz"}
    broker = Broker(binary, f"{folder}/users")
    right = pika.PlainCredentials("admin", "geheim, aber kurz")
    for start in (1, 2):
        os.environ.update(environment if start == 1 else {name: "other" for name in environment})
        try:
            broker.start()
        finally:
            for name in environment:
                del os.environ[name]
        try:
            for _ in range(3):
                works(connect(broker.amqp, right))
            works(connect(broker.amqp, AmqPlain("admin", "geheim, aber kurz")))
            refused("a wrong password", broker.amqp, pika.PlainCredentials("admin", "geheim"))
            refused("a wrong password, AMQPLAIN", broker.amqp, AmqPlain("admin", "geheim"), "AMQPLAIN")
            refused("guest", broker.amqp, None)
            refused("anonymous", broker.amqp, Anonymous(), "ANONYMOUS")
            refused("nobody", broker.amqp, pika.PlainCredentials("nobody", "geheim, aber kurz"))
            try:
                connect(broker.amqp, right, virtual_host="elsewhere")
            except ProbableAccessDeniedError as denied:
                assert "(530) 'NOT_ALLOWED - vhost elsewhere not found'" in str(denied), denied
            else:
                raise AssertionError("a virtual host that is not there")
            connection = connect(broker.amqp, right)
            connection.update_secret("a new one", "it is time")
            works(connection)
        finally:
            assert broker.end(signal.SIGTERM) == 0
        log = "\n".join(broker.log_lines())
        assert "geheim" not in log and 'login of "admin" refused: invalid credentials' in log, "what the log says"


def nobody(binary, folder):
    """Without users whoever does not say who he is is guest."""
    broker = Broker(binary, f"{folder}/nobody").start()
    try:
        works(connect(broker.amqp, Anonymous()))
    finally:
        assert broker.end(signal.SIGTERM) == 0


def storm(binary, folder):
    """Two hundred connections at once cost about one hash, not two hundred."""
    Path(f"{folder}/password").write_text("secret\n")
    broker = Broker(binary, f"{folder}/storm", ["--default-user", "app", "--default-pass-file", f"{folder}/password"]).start()
    try:
        ready = (b"AMQP\0\0\x09\x01")
        host, port = broker.amqp.rsplit(":", 1)
        sockets = [socket.create_connection((host, int(port)), timeout=20) for _ in range(200)]
        before = broker.spent()
        for one in sockets:
            one.sendall(ready)
        response = b"\0app\0secret"
        for one in sockets:
            assert one.recv(4096)[:1] == b"\x01"
            arguments = b"\0\0\0\0" + b"\x05PLAIN" + len(response).to_bytes(4, "big") + response + b"\x05en_US"
            payload = b"\0\x0a\0\x0b" + arguments
            one.sendall(b"\x01\0\0" + len(payload).to_bytes(4, "big") + payload + b"\xce")
        for one in sockets:
            frame = one.recv(4096)
            assert frame[7:11] == b"\0\x0a\0\x1e", frame[:20]
            one.close()
        spent = broker.spent() - before
        assert spent < 4, f"{spent:.1f} s of processor time"
    finally:
        assert broker.end(signal.SIGTERM) == 0


def client_context(certificates, pair=None):
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if pair:
        context.load_cert_chain(*map(str, pair))
    return context


def tls(binary, folder):
    """Plain clients, certified ones, foreign ones; a certificate that is exchanged while the broker runs, for AMQP and for Kafka."""
    ours, foreign = Certificates(folder), Certificates(folder, "foreign")
    certificate, key = ours.server()
    address, kafka = (f"127.0.0.1:{free_port()}" for _ in range(2))
    flags = ["--amqps", address, "--set", f"listeners=SASL_SSL://{kafka}", "--set", "sasl.enabled.mechanisms=PLAIN",
             "--tls-certificate", certificate, "--tls-key", key, "--tls-ca", ours.ca, "--tls-login-from", "common_name", "--default-user", "device", "--default-pass-file", f"{folder}/password"]
    Path(f"{folder}/password").write_text("secret\n")
    broker = Broker(binary, f"{folder}/tls", map(str, flags)).start()
    password = pika.PlainCredentials("device", "secret")
    try:
        works(connect(address, password, client_context(ours)), count=40)
        pair = ours.make("device", "/O=Mainstem/CN=device")
        external = pika.credentials.ExternalCredentials()
        works(connect(address, external, client_context(ours, pair)))
        stranger = ours.make("stranger", "/O=Mainstem/CN=stranger")
        refused("a certificate of nobody", address, external, "EXTERNAL", tls=client_context(ours, stranger))
        forged = client_context(ours, foreign.make("forged", "/O=Mainstem/CN=device"))
        for what, credentials, context in (("a foreign certificate", external, forged), ("no TLS at all", password, None),
                                           ("an authority that the client does not know", password, client_context(foreign))):
            try:
                connect(address, credentials, context).close()
            except (AMQPConnectionError, OSError):
                continue
            raise AssertionError(f"{what}: let in")
        serial = server_serial(address, ours)
        assert server_serial(kafka, ours) == serial
        old = connect(address, password, client_context(ours))
        publishes = kafka_publishing(kafka, ours)
        publishes()
        fresh, fresh_key = ours.server("fresh")
        for made, used in ((fresh, certificate), (fresh_key, key)):
            os.replace(made, used)
        broker.process.send_signal(signal.SIGHUP)
        until = time.time() + 10
        while serial in (server_serial(address, ours), server_serial(kafka, ours)):
            assert time.time() < until, "the old certificate"
            time.sleep(0.05)
        works(old)
        publishes()
        serial = server_serial(kafka, ours)
        Path(key).write_text("no key\n")
        broker.process.send_signal(signal.SIGHUP)
        until = time.time() + 10
        while not any("--tls-key" in line and "no private key" in line for line in broker.log_lines()):
            assert time.time() < until, broker.log_lines()[-3:]
            time.sleep(0.05)
        works(connect(address, password, client_context(ours)))
        assert {server_serial(address, ours), server_serial(kafka, ours)} == {serial}, "what is broken changes nothing"
        publishes()
    finally:
        assert broker.end(signal.SIGTERM) == 0
    try:
        Broker(binary, f"{folder}/broken", map(str, flags)).start()
    except RuntimeError as error:
        assert "--tls-key" in str(error) and str(key) in str(error), error
    else:
        raise AssertionError("a broker without a key")


def kafka_publishing(address, certificates):
    """A function that publishes by one producer; that it lost a connection would be seen."""
    from confluent_kafka import Producer
    said = []
    producer = Producer({"bootstrap.servers": address, "security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates.ca), "sasl.mechanism": "PLAIN",
                         "sasl.username": "device", "sasl.password": "secret", "error_cb": said.append, "linger.ms": 0})

    def publish():
        for _ in range(20):
            producer.produce("certified", b"x" * 1000)
        assert producer.flush(10) == 0 and not said, said
    return publish


def server_serial(address, certificates):
    host, port = address.rsplit(":", 1)
    with client_context(certificates).wrap_socket(socket.create_connection((host, int(port)), timeout=10), server_hostname=host) as one:
        return one.getpeercert()["serialNumber"]


def other_clients(binary, folder, programs):
    """RabbitMQ's client for Go with TLS, and a Kafka client, on listeners that want certificates."""
    from confluent_kafka import Consumer, Producer
    ours = Certificates(folder, "strict")
    certificate, key = ours.server("strict-server")
    pair = ours.make("member", "/CN=member")
    address, kafka = (f"127.0.0.1:{free_port()}" for _ in range(2))
    flags = ["--amqps", address, "--kafka-tls", kafka, "--tls-certificate", certificate, "--tls-key", key, "--tls-ca", ours.ca,
             "--tls-clients", "required"]
    broker = Broker(binary, f"{folder}/strict", map(str, flags)).start()
    try:
        go = programs / "amqp091-go"
        if go.exists():
            url = f"amqps://guest:guest@{address}/%2f?cacertfile={ours.ca}&certfile={pair[0]}&keyfile={pair[1]}"
            done = subprocess.run([str(go), url, "200"], capture_output=True, timeout=120)
            assert done.returncode == 0, done.stderr.decode()[-300:]
        settings = {"bootstrap.servers": kafka, "security.protocol": "ssl", "ssl.ca.location": str(ours.ca),
                    "ssl.certificate.location": str(pair[0]), "ssl.key.location": str(pair[1])}
        producer = Producer(settings)
        for number in range(2000):
            producer.produce("encrypted", f"{number:05} {'x' * 3000}".encode())
        assert producer.flush(30) == 0
        consumer = Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["encrypted"])
        got = []
        until = time.time() + 30
        while len(got) < 2000 and time.time() < until:
            got += [message.value()[:5] for message in consumer.consume(500, 1) if not message.error()]
        consumer.close()
        assert got == [f"{number:05}".encode() for number in range(2000)], len(got)
        try:
            connect(address, None, client_context(ours)).close()
        except (AMQPConnectionError, OSError):
            return
        raise AssertionError("somebody without a certificate: let in")
    finally:
        assert broker.end(signal.SIGTERM) == 0


def main():
    binary, programs = sys.argv[1], Path(sys.argv[2])
    cases = {"users": users, "nobody-in-particular": nobody, "a-storm-of-logins": storm, "tls": tls, "tls-of-other-clients": lambda *words: other_clients(*words, programs)}
    for name, run in cases.items():
        with tempfile.TemporaryDirectory(prefix="mainstem-security-") as folder:
            try:
                run(binary, folder)
                print(f"ok {name}", flush=True)
            except Exception as error:
                at = traceback.extract_tb(sys.exc_info()[2])[-1]
                print(f"FAIL {name}: {type(error).__name__} {error} ({at.name}:{at.lineno})".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
