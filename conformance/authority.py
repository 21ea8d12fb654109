"""Tokens as an authority signs them (RFC 7515, RFC 7519), made with openssl, and its keys as a JSON Web Key Set behind HTTP or HTTPS."""

import base64
import json
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ISSUER, AUDIENCE = "https://authority.example.org", "broker"


def openssl(*words, data=None):
    return subprocess.run(["openssl", *map(str, words)], input=data, check=True, capture_output=True).stdout


def url64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """Signs by RS256 or ES256."""

    def __init__(self, folder, name, algorithm="RS256"):
        self.file, self.name, self.algorithm = Path(folder) / f"{name}-{algorithm}.key", name, algorithm
        kind = ("RSA", "rsa_keygen_bits:2048") if algorithm == "RS256" else ("EC", "ec_paramgen_curve:P-256")
        if not self.file.exists():
            openssl("genpkey", "-algorithm", kind[0], "-pkeyopt", kind[1], "-out", self.file)

    def public(self):
        common = {"kid": self.name, "use": "sig", "alg": self.algorithm}
        if self.algorithm == "RS256":
            modulus = openssl("rsa", "-in", self.file, "-noout", "-modulus").decode().strip().partition("=")[2]
            return {**common, "kty": "RSA", "n": url64(bytes.fromhex(modulus)), "e": "AQAB"}
        point = openssl("pkey", "-in", self.file, "-pubout", "-outform", "DER")[-64:]
        return {**common, "kty": "EC", "crv": "P-256", "x": url64(point[:32]), "y": url64(point[32:])}

    def sign(self, text):
        signature = openssl("dgst", "-sha256", "-sign", self.file, data=text)
        if self.algorithm == "RS256":
            return signature
        # In DER two numbers, each with its tag and length; in a token 32 bytes each.
        first = signature[4:4 + signature[3]]
        second = signature[6 + signature[3]:]
        return b"".join(number.lstrip(b"\0").rjust(32, b"\0") for number in (first, second))


def unsigned(header, claims):
    return ".".join(url64(json.dumps(part).encode()) for part in (header, claims))


def claims(name, seconds=300, **changes):
    """Good claims about somebody, with others in their place; None takes one away."""
    now = time.time()
    good = {"sub": name, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": now + seconds, **changes}
    return {key: value for key, value in good.items() if value is not None}


def token(key, name, seconds=300, **changes):
    """A token about somebody."""
    text = unsigned({"alg": key.algorithm, "typ": "JWT", "kid": key.name}, claims(name, seconds, **changes))
    return f"{text}.{url64(key.sign(text.encode()))}"


class KeyServer:
    """Serves a set of keys; `certificate`: with TLS."""

    def __init__(self, keys, certificate=None):
        self.keys, self.asked = keys, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                body = json.dumps({"keys": [key.public() for key in outer.keys]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*map(str, certificate))
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
