"""How a client says who it is, in the environment of the programs in `clients/`: `CONFORMANCE_LOGIN` is MECHANISM:USER:PASSWORD, where
mechanism OAUTHBEARER has the file of a token in place of the password, `CONFORMANCE_CA` the file of the authority that the broker's certificate is from. Without them nobody logs in, and nothing is encrypted."""

import os
import time
from pathlib import Path

TOKENS = "OAUTHBEARER"


def login():
    """Mechanism, user and password; None."""
    text = os.environ.get("CONFORMANCE_LOGIN")
    return tuple(text.split(":", 2)) if text else None


def authority():
    return os.environ.get("CONFORMANCE_CA")


def protocol():
    return ("SASL_" if login() else "") + ("SSL" if authority() else "PLAINTEXT")


def librdkafka():
    """Settings of confluent-kafka, or nothing."""
    settings = {"security.protocol": protocol()}
    if login() and login()[0] == TOKENS:
        settings |= {"sasl.mechanism": TOKENS, "oauth_cb": lambda _config: (Path(login()[2]).read_text(), time.time() + 300)}
    elif login():
        settings |= dict(zip(("sasl.mechanism", "sasl.username", "sasl.password"), login()))
    return settings | ({"ssl.ca.location": authority()} if authority() else {})


def kafka_python():
    """Arguments of kafka-python's clients."""
    settings = {"security_protocol": protocol()}
    if login() and login()[0] == TOKENS:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class OfFile(AbstractTokenProvider):
            def token(self):
                return Path(login()[2]).read_text()
        settings |= {"sasl_mechanism": TOKENS, "sasl_oauth_token_provider": OfFile()}
    elif login():
        settings |= dict(zip(("sasl_mechanism", "sasl_plain_username", "sasl_plain_password"), login()))
    return settings | ({"ssl_cafile": authority()} if authority() else {})
