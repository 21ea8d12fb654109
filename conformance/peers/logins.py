#!/usr/bin/env python3
"""Logins with SASL over a raw socket, good and bad, with what a broker answers: error codes, what it says, how long a session lasts, and
whether it closes the connection. `record` writes down a real Kafka's answers, `compare` says where another broker's differ.

Kafka is started with the settings that `properties` prints, and this broker with listeners SASL and TIMED, which `flags` prints; both with
user alice, password wonder, and keys for both mechanisms of SCRAM; bob has them too. Tokens are of an authority whose keys are in a folder."""

import base64
import hashlib
import hmac
import json
import os
import re
import struct
import sys
import time

from pathlib import Path

from table import HERE  # puts the folders on the path
from authority import AUDIENCE, ISSUER, Key, claims, unsigned, url64
from authority import token as signed
from client import Closed, Connection
from recorded import compare, write

RECORDED = HERE / "kafka-4.3.1-logins.json"
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
SESSION_MS = 3000
# Where a real Kafka finds the keys of tokens.
KAFKA_KEYS = HERE.parents[1] / "target/kafka-logins"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
USERS = {"alice": "wonder", "bob": "builder"}
CASES = {}


def case(function):
    CASES[function.__name__.replace("_", "-")] = function
    return function


class Login:
    """A connection, and what was seen on it."""

    def __init__(self, address):
        self.address, self.connection, self.steps = address, Connection(address), []

    def ask(self, name, version, body, only=("error_code",)):
        step = {"request": f"{name} v{version}"}
        self.steps.append(step)
        try:
            self.connection.request(name, version, body)
            answer = self.connection.response(name, version)
        except Closed:
            step["connection"] = "closed"
            return None
        # The order of mechanisms is a set's in Kafka.
        step["answer"] = {key: sorted(answer[key]) if key == "mechanisms" else answer[key] for key in only}
        return answer

    def handshake(self, mechanism, version=1):
        return self.ask("SaslHandshake", version, {"mechanism": mechanism}, ("error_code", "mechanisms"))

    def token(self, token, version=2):
        only = ("error_code", "error_message", *(("session_lifetime_ms",) if version else ()))
        answer = self.ask("SaslAuthenticate", version, {"auth_bytes": token}, only)
        return answer and answer["auth_bytes"]

    def plain(self, token, version=2):
        self.handshake("PLAIN")
        return self.token(token, version)

    def scram(self, mechanism, user, password, damage=lambda text: text, begin="n,,", twice=False):
        """`twice`: the client says its nonce before both nonces once more, as librdkafka 2.0 does."""
        self.handshake(mechanism)
        nonce, hashed = base64.b64encode(os.urandom(18)).decode().replace(",", "x"), HASHES[mechanism]
        bare = f"n={user},r={nonce}"
        first = self.token(f"{begin}{bare}".encode())
        if not first:
            return
        first = first.decode()
        fields = dict(part.split("=", 1) for part in first.split(","))
        assert fields["r"].startswith(nonce), first
        salted = hashlib.pbkdf2_hmac(hashed, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", hashed)
        last = f"c={base64.b64encode(begin.encode()).decode()},r={nonce if twice else ''}{fields['r']}"
        said = f"{bare},{first},{last}".encode()
        signature = hmac.digest(hashlib.new(hashed, key).digest(), said, hashed)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
        end = self.token(damage(f"{last},p={proof}").encode())
        if end:
            mine = base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", hashed), said, hashed)).decode()
            self.steps.append({"signature": "right" if end.decode() == f"v={mine}" else end.decode()})

    def bearer(self, text, begin="n,,", more=""):
        """What a client of OAUTHBEARER says, and whether it is served then; it hears that its token is not good."""
        self.handshake("OAUTHBEARER")
        answer = self.token(f"{begin}\1auth=Bearer {text}\1{more}\1".encode())
        self.told(answer)

    def told(self, answer):
        told = self.steps[-1].get("answer", {})
        # It lasts as long as the token, or as sessions of the listener do.
        if told.get("session_lifetime_ms", 0) not in (0, SESSION_MS):
            told["session_lifetime_ms"] = "the token's"
        if answer:
            self.steps.append({"told": answer.decode()})
            self.token(b"\1")
        self.then()

    def raw_token(self, token):
        """A token without a header, as after a handshake of version 0."""
        step = {"token": "raw"}
        self.steps.append(step)
        try:
            self.connection.frame(token)
            step["answer"] = len(self.connection.receive())
        except Closed:
            step["connection"] = "closed"

    def then(self):
        """Is somebody served now?"""
        try:
            self.connection.request("Metadata", 12, {"topics": []})
            self.connection.response("Metadata", 12)
            self.steps.append({"then": "served"})
        except Closed:
            self.steps.append({"then": "closed"})


@case
def plain_right(login):
    login.plain(b"\0alice\0wonder")
    login.then()
    # Who is in need not say so again.
    login.handshake("PLAIN")
    login.ask("SaslAuthenticate", 2, {"auth_bytes": b"\0alice\0wonder"})
    login.then()


@case
def plain_for_oneself(login):
    login.plain(b"alice\0alice\0wonder", version=1)
    login.then()


@case
def versions_first(login):
    login.ask("ApiVersions", 3, {"client_software_name": "peer", "client_software_version": "1"})
    login.plain(b"\0alice\0wonder", version=0)
    login.then()


def wrong_plain(name, token):
    def run(login):
        started = time.monotonic()
        login.plain(token)
        if login.steps[-1].get("answer", {}).get("error_code"):
            login.steps.append({"answered late": time.monotonic() - started >= 0.09})
        login.then()
    CASES[f"plain-{name}"] = run


for name, token in {"wrong-password": b"\0alice\0wander", "no-such-user": b"\0eve\0wonder", "no-user": b"\0\0wonder", "no-password": b"\0alice\0",
                    "for-another": b"bob\0alice\0wonder", "two-parts": b"alice\0wonder", "four-parts": b"\0alice\0wonder\0x", "nothing": b""}.items():
    wrong_plain(name, token)


def of_mechanism(mechanism):
    def named(name):
        def add(function):
            CASES[f"{mechanism.lower()}-{name}"] = function
        return add

    @named("right")
    def _(login):
        login.scram(mechanism, "alice", "wonder")
        login.then()

    @named("wrong-password")
    def _(login):
        login.scram(mechanism, "alice", "wander")
        login.then()

    @named("for-oneself")
    def _(login):
        login.scram(mechanism, "alice", "wonder", begin="n,a=alice,")
        login.then()

    @named("for-another")
    def _(login):
        login.scram(mechanism, "alice", "wonder", begin="n,a=bob,")
        login.then()

    @named("other-nonce")
    def _(login):
        login.scram(mechanism, "alice", "wonder", lambda text: text.replace(",r=", ",r=x"))
        login.then()

    @named("own-nonce-twice")
    def _(login):
        login.scram(mechanism, "alice", "wonder", twice=True)
        login.steps = [step for step in login.steps if "signature" not in step]
        login.then()

    @named("no-proof")
    def _(login):
        login.scram(mechanism, "alice", "wonder", lambda text: text.partition(",p=")[0])
        login.then()

    @named("no-message")
    def _(login):
        login.handshake(mechanism)
        login.token(b"hello")
        login.then()

    @named("no-such-user")
    def _(login):
        login.scram(mechanism, "eve", "wonder")
        # Kafka refuses at the beginning of the exchange, which tells that there is no such user; at its end is as good.
        login.steps = [step for step in login.steps if not step["request"].startswith("SaslAuthenticate") or step["answer"]["error_code"]]
        login.then()


for mechanism in HASHES:
    of_mechanism(mechanism)


@case
def other_requests_first(login):
    login.then()


@case
def a_token_first(login):
    login.token(b"\0alice\0wonder")


@case
def versions_twice(login):
    for _ in range(2):
        login.ask("ApiVersions", 0, {}, ())


@case
def unknown_versions_then_known(login):
    login.ask("ApiVersions", 0, {}, ())
    login.plain(b"\0alice\0wonder")
    login.then()


@case
def unknown_mechanism(login):
    login.handshake("GSSAPI")
    login.then()


@case
def two_handshakes(login):
    login.handshake("PLAIN")
    login.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
    login.then()


@case
def a_request_in_the_exchange(login):
    login.handshake("PLAIN")
    login.ask("Metadata", 12, {"topics": []}, ())
    login.then()


@case
def a_huge_request(login):
    try:
        login.connection.raw(struct.pack(">i", 600_000) + b"x" * 600_000)
    except Closed:
        pass  # before all of it was sent
    login.then()


@case
def tokens_without_a_header(login):
    login.handshake("PLAIN", 0)
    login.raw_token(b"\0alice\0wonder")
    login.then()


@case
def wrong_tokens_without_a_header(login):
    login.handshake("PLAIN", 0)
    login.raw_token(b"\0alice\0wander")


AUTHORITY = {}


def with_token(name, make, **more):
    """A login by the token that `make` makes with the authority's keys, RSA and elliptic curve."""
    def run(login):
        login.bearer(make(AUTHORITY["rsa"], AUTHORITY["curve"]), **more)
    CASES[f"bearer-{name}"] = run


def changed(key):
    header, _, signature = signed(key, "alice").split(".")
    return ".".join((header, unsigned(claims("bob"), {}).split(".")[0], signature))


def by_secret(key):
    text = unsigned({"alg": "HS256", "kid": key.name}, claims("alice"))
    return f"{text}.{url64(hmac.digest(b'secret' * 10, text.encode(), 'sha256'))}"


for name, make in {
    "right": lambda rsa, _: signed(rsa, "alice"), "of-a-curve": lambda _, curve: signed(curve, "alice"),
    "of-somebody-new": lambda rsa, _: signed(rsa, "somebody"), "with-audiences": lambda rsa, _: signed(rsa, "alice", aud=["x", AUDIENCE]),
    "with-scopes": lambda rsa, _: signed(rsa, "alice", scope=["a", "b"]), "with-a-scope-twice": lambda rsa, _: signed(rsa, "alice", scope=["a", "a"]),
    "within-the-skew": lambda rsa, _: signed(rsa, "alice", 60, nbf=int(time.time()) + 10), "expired": lambda rsa, _: signed(rsa, "alice", -60),
    "early": lambda rsa, _: signed(rsa, "alice", nbf=int(time.time()) + 60), "without-end": lambda rsa, _: signed(rsa, "alice", exp=None),
    "without-begin": lambda rsa, _: signed(rsa, "alice", iat=None), "without-user": lambda rsa, _: signed(rsa, "alice", sub=None),
    "of-nobody": lambda rsa, _: signed(rsa, "alice", sub=" "), "of-another-issuer": lambda rsa, _: signed(rsa, "alice", iss="x"),
    "of-no-issuer": lambda rsa, _: signed(rsa, "alice", iss=None), "for-another-audience": lambda rsa, _: signed(rsa, "alice", aud="x"),
    "for-no-audience": lambda rsa, _: signed(rsa, "alice", aud=None), "changed": lambda rsa, _: changed(rsa), "by-secret": lambda rsa, _: by_secret(rsa),
    "unsigned": lambda *_: unsigned({"alg": "none"}, claims("alice")) + ".", "no-token": lambda *_: "abc",
    "of-an-unknown-key": lambda rsa, _: signed(Key(rsa.file.parent, "unknown"), "alice"),
}.items():
    with_token(name, make)
for name, more in {"for-oneself": {"begin": "n,a=alice,"}, "for-another": {"begin": "n,a=bob,"}, "with-an-extension": {"more": "traceId=123\1"},
                   "with-a-wrong-extension": {"more": "trace-id=123\1"}, "with-a-channel-binding": {"begin": "p=tls-unique,,"}}.items():
    with_token(name, lambda rsa, _: signed(rsa, "alice"), **more)


@case
def bearer_no_message(login):
    login.handshake("OAUTHBEARER")
    login.token(b"hello")
    login.then()


@case
def bearer_of_another_scheme(login):
    login.handshake("OAUTHBEARER")
    login.token(b"n,,\1auth=Basic YTpi\1\1")
    login.then()


# On a listener whose sessions end.


@case
def timed_bearer(login):
    login.bearer(signed(AUTHORITY["rsa"], "alice"))
    time.sleep(1.2)
    login.bearer(signed(AUTHORITY["rsa"], "alice", 1.5))
    time.sleep(2)
    login.then()


@case
def timed_bearer_by_another(login):
    login.bearer(signed(AUTHORITY["rsa"], "alice"))
    time.sleep(1.2)
    login.bearer(signed(AUTHORITY["rsa"], "bob"))


@case
def timed_renewed(login):
    login.plain(b"\0alice\0wonder")
    time.sleep(1.2)
    login.plain(b"\0alice\0wonder")
    login.then()
    time.sleep(SESSION_MS / 1000 - 1)
    login.then()


@case
def timed_old_client(login):
    login.plain(b"\0alice\0wonder", version=0)
    login.then()


@case
def timed_over(login):
    login.scram("SCRAM-SHA-256", "alice", "wonder")
    time.sleep(SESSION_MS / 1000 + 0.2)
    login.then()


@case
def timed_by_another(login):
    login.scram("SCRAM-SHA-256", "alice", "wonder")
    login.scram("SCRAM-SHA-256", "bob", "builder")
    login.then()


@case
def timed_by_another_mechanism(login):
    login.scram("SCRAM-SHA-256", "alice", "wonder")
    login.handshake("SCRAM-SHA-512")
    login.then()


@case
def timed_wrongly(login):
    login.plain(b"\0alice\0wonder")
    login.plain(b"\0alice\0wander")
    login.then()


@case
def timed_too_often(login):
    login.plain(b"\0alice\0wonder")
    login.plain(b"\0alice\0wonder")
    login.handshake("PLAIN")
    login.then()


# Credentials, on a connection of somebody who may see to them.


def upsertion(name, mechanism=1, iterations=4096, size=None):
    salt, hashed = b"0123456789", list(HASHES.values())[(mechanism - 1) % 2]
    salted = hashlib.pbkdf2_hmac(hashed, b"secret", salt, 4096)
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": salt, "salted_password": salted[:size]}


def altered(login, deletions=(), upsertions=()):
    answer = login.ask("AlterUserScramCredentials", 0, {"deletions": [{"name": name, "mechanism": which} for name, which in deletions],
                                                        "upsertions": list(upsertions)}, ())
    login.steps[-1]["answer"] = sorted([one["user"], one["error_code"], one["error_message"]] for one in answer["results"])


def described(login, *names):
    answer = login.ask("DescribeUserScramCredentials", 0, {"users": [{"name": name} for name in names]}, ("error_code",))
    login.steps[-1]["results"] = sorted([one["user"], one["error_code"], one["error_message"],
                                         sorted([info["mechanism"], info["iterations"]] for info in one["credential_infos"])]
                                        for one in answer["results"])


@case
def credentials(login):
    login.plain(b"\0alice\0wonder")
    described(login, "carol")
    altered(login, upsertions=[upsertion("carol"), upsertion("carol", 2, 16_384), upsertion("dora", 2)])
    altered(login, upsertions=[upsertion("carol")])
    altered(login, upsertions=[upsertion("carol", 2, 16_384), upsertion("dora", 2)])
    described(login, "carol", "dora", "eve", "carol")
    altered(login, deletions=[("carol", 2)], upsertions=[upsertion("carol", 1, 8192)])
    described(login, "carol")
    altered(login, upsertions=[upsertion("carol", 1, 4095), upsertion("dora", 1, 16_385), upsertion("", 1), upsertion("eve", 3), upsertion("fay", 1, -1)])
    altered(login, deletions=[("carol", 2), ("dora", 0), ("", 1), ("eve", 1)])
    altered(login, deletions=[("dora", 2)], upsertions=[upsertion("dora", 2)])
    altered(login, upsertions=[upsertion("carol", 1), upsertion("carol", 1, 8192)])
    described(login, "carol", "dora", "eve", "fay")
    altered(login, deletions=[("carol", 1), ("dora", 2)])
    described(login, "carol", "dora")


def make_keys(folder):
    """The authority's keys, and the file with the public ones."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    AUTHORITY.update(rsa=Key(folder, "rsa"), curve=Key(folder, "curve", "ES256"))
    file = folder / "keys.json"
    file.write_text(json.dumps({"keys": [key.public() for key in AUTHORITY.values()]}))
    return file


def about_tokens(file):
    return {"sasl.oauthbearer.jwks.endpoint.url": f"file://{file}", "sasl.oauthbearer.expected.audience": AUDIENCE, "sasl.oauthbearer.expected.issuer": ISSUER}


def run(bootstraps):
    for name, function in CASES.items():
        which = "TIMED" if name.startswith("timed") else "SASL"
        host, _, port = bootstraps[which].rpartition(":")
        login = Login((host, int(port)))
        try:
            function(login)
        except Exception as error:
            login.steps.append({"broken": f"{type(error).__name__}: {error}"})
        login.connection.close()
        yield name, json.loads(re.sub(r"peer-[0-9a-f]+", "peer", json.dumps(login.steps)))


def prepare(bootstrap):
    """Users of a real Kafka, by a listener that asks for no login."""
    host, _, port = bootstrap.rpartition(":")
    connection = Connection((host, int(port)))
    for number, hashed in enumerate(HASHES.values(), 1):
        wishes = []
        for name, password in USERS.items():
            salt = os.urandom(16)
            salted = hashlib.pbkdf2_hmac(hashed, password.encode(), salt, 4096)
            wishes.append({"name": name, "mechanism": number, "iterations": 4096, "salt": salt, "salted_password": salted})
        connection.request("AlterUserScramCredentials", 0, {"deletions": [], "upsertions": wishes})
        answer = connection.response("AlterUserScramCredentials", 0)
        assert not any(one["error_code"] for one in answer["results"]), answer
    time.sleep(1)


def add_bob(bootstrap):
    """The second user of this broker: alice makes him, with keys for both mechanisms."""
    host, _, port = bootstrap.rpartition(":")
    alice = Login((host, int(port)))
    alice.plain(b"\0alice\0" + USERS["alice"].encode())
    for number, hashed in enumerate(HASHES.values(), 1):
        salt = os.urandom(16)
        salted = hashlib.pbkdf2_hmac(hashed, USERS["bob"].encode(), salt, 4096)
        altered(alice, upsertions=[{"name": "bob", "mechanism": number, "iterations": 4096, "salt": salt, "salted_password": salted}])
        assert alice.steps[-1]["answer"][0][:2] == ["bob", 0], alice.steps[-1]
    alice.connection.close()


def properties(plain, sasl, timed):
    """What a real Kafka is to be started with beside the peer's usual settings."""
    names = {"SASL": sasl, "TIMED": timed}
    everywhere = ",".join([f"PLAINTEXT://{plain}", *(f"{name}://{address}" for name, address in names.items())])
    host, _, port = plain.rpartition(":")
    print(f"listeners={everywhere},CONTROLLER://{host}:{int(port) + 1}\nadvertised.listeners={everywhere}\n"
          "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TIMED:SASL_PLAINTEXT")
    for name in ("sasl", "timed"):
        print(f"listener.name.{name}.sasl.enabled.mechanisms={MECHANISMS}")
        users = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
        print(f"listener.name.{name}.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};")
        for mechanism in HASHES:
            module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            print(f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config={module}")
        print(f"listener.name.{name}.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
              f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler")
        for setting, value in about_tokens(make_keys(KAFKA_KEYS)).items():
            print(f"listener.name.{name}.oauthbearer.{setting}={value}")
        for mechanism in MECHANISMS.lower().split(",") if name == "timed" else ():
            print(f"listener.name.timed.{mechanism}.connections.max.reauth.ms={SESSION_MS}")


def flags(sasl, timed, folder):
    """What this broker is to be started with; `folder`: for the keys of tokens."""
    tokens = [f"{setting}={value}" for setting, value in about_tokens(make_keys(folder)).items()]
    return [word for wish in (f"listeners=SASL://{sasl},TIMED://{timed}", "listener.security.protocol.map=SASL:SASL_PLAINTEXT,TIMED:SASL_PLAINTEXT",
                              f"sasl.enabled.mechanisms={MECHANISMS}", f"listener.name.timed.connections.max.reauth.ms={SESSION_MS}", *tokens)
            for word in ("--set", wish)]


def main():
    what, *words = sys.argv[1:]
    if what == "properties":
        properties(*words)
    elif what == "record":
        prepare(words[0])
        make_keys(KAFKA_KEYS)
        return 0 if write(RECORDED, dict(run({"SASL": words[1], "TIMED": words[2]}))) else 1
    elif what == "compare":
        add_bob(words[0])
        make_keys(words[2])
        meant = json.loads((HERE / "differences-logins.json").read_text())
        passed, failed = compare("kafka", run({"SASL": words[0], "TIMED": words[1]}), json.loads(RECORDED.read_text()), meant, whole=True)
        print(f"{passed} passed, {failed} failed")
        return 1 if failed else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
