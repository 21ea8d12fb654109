"""Connections of somebody, from an address of this machine: Kafka with SASL PLAIN or without a login, AMQP, HTTP by password or by session. Each is opened when
it is needed, and again when the broker has closed it."""

import base64
import http.client
import json
import socket
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[0] / "peers"), str(HERE.parents[0] / "amqp/peers")]
import wire
from client import Closed, Connection

WAIT = 20.0
CHANNELS = range(1, 2000)


def buffered(link, count, data):
    while len(data) < count:
        more = link.recv(1 << 16)
        if not more:
            raise Closed
        data += more
    return data


class Kafka(Connection):
    def __init__(self, address, who, password):
        self.socket = socket.create_connection(address, timeout=WAIT, source_address=(who.host, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation, self.data = 0, b""
        if password is not None:
            self.request("SaslHandshake", 1, {"mechanism": "PLAIN"})
            assert self.response("SaslHandshake", 1)["error_code"] == 0
            self.request("SaslAuthenticate", 2, {"auth_bytes": f"\0{who.name}\0{password}".encode()})
            answer = self.response("SaslAuthenticate", 2)
            assert answer["error_code"] == 0, answer

    def receive(self):
        try:
            self.data = buffered(self.socket, 4, self.data)
            length, = struct.unpack_from(">i", self.data)
            self.data = buffered(self.socket, 4 + length, self.data)
        except (ConnectionResetError, BrokenPipeError):
            raise Closed from None
        out, self.data = self.data[4:4 + length], self.data[4 + length:]
        return out

    def ask(self, name, version, body):
        self.request(name, version, body)
        return self.response(name, version)


class Refused(Exception):
    """A virtual host is not opened: code and text."""


class Amqp:
    """A connection to a virtual host; each request has a channel of its own."""

    def __init__(self, address, who, password, vhost):
        self.socket = socket.create_connection(address, timeout=WAIT, source_address=(who.host, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data, self.channel = b"", 0
        self.name = "{}:{} -> {}:{}".format(*self.socket.getsockname(), *self.socket.getpeername())
        self.socket.sendall(wire.GREETING)
        self.expect("connection.start")
        self.send(0, "connection.start-ok", client_properties={"capabilities": {"authentication_failure_close": True}}, mechanism="PLAIN",
                  response=f"\0{who.name}\0{password}", locale="en_US")
        self.expect("connection.tune")
        self.send(0, "connection.tune-ok", channel_max=2047, frame_max=131072, heartbeat=0)
        self.send(0, "connection.open", virtual_host=vhost)
        self.expect("connection.open-ok")

    def send(self, channel, name, **values):
        self.socket.sendall(wire.frame(wire.METHOD, channel, wire.method(name, **values)))

    def receive(self):
        """Channel, name and fields of the next method; content is passed over."""
        while True:
            self.data = buffered(self.socket, 7, self.data)
            kind, channel, length = struct.unpack_from(">BHI", self.data)
            self.data = buffered(self.socket, 8 + length, self.data)
            payload, self.data = self.data[7:7 + length], self.data[8 + length:]
            if kind == wire.METHOD:
                return channel, *wire.decode(payload)

    def expect(self, name):
        _, found, fields = self.receive()
        if found == "connection.close":
            self.send(0, "connection.close-ok")
            raise Refused(fields["reply-code"], fields["reply-text"])
        assert found == name, f"{found} instead of {name}"
        return fields

    def ask(self, methods):
        """What a channel is closed with, as a pair; None: it is not closed. A message has a body of one byte."""
        self.channel = self.channel % CHANNELS[-1] + 1
        out = wire.frame(wire.METHOD, self.channel, wire.method("channel.open"))
        for name, values in methods:
            out += wire.frame(wire.METHOD, self.channel, wire.method(name, **values))
            if name == "basic.publish":
                out += wire.frame(wire.HEADER, self.channel, wire.header(1, delivery_mode=2)) + wire.frame(wire.BODY, self.channel, b"x")
        out += wire.frame(wire.METHOD, self.channel, wire.method("basic.qos"))
        qos = 1 + sum(name == "basic.qos" for name, _ in methods)
        try:
            self.socket.sendall(out)
            while True:
                channel, name, fields = self.receive()
                if name == "connection.close":
                    self.send(0, "connection.close-ok")
                    raise Refused(fields["reply-code"], fields["reply-text"])
                if channel != self.channel:
                    continue
                if name == "channel.close":
                    self.send(channel, "channel.close-ok")
                    return fields["reply-code"], fields["reply-text"]
                if name == "basic.qos-ok":
                    qos -= 1
                    if not qos:
                        break
            self.send(self.channel, "channel.close")
            while self.receive()[:2] != (self.channel, "channel.close-ok"):
                pass
            return None
        except (ConnectionResetError, BrokenPipeError):
            raise Closed from None

    def close(self):
        self.socket.close()


class Http:
    """By name and password; `session`: as the console does it."""

    def __init__(self, port, who, password, session=False):
        self.port, self.who, self.password, self.session, self.link = port, who, password, session, None
        key = base64.b64encode(f"{who.name}:{password}".encode()).decode()
        self.headers = {"Content-Type": "application/json"} if session else {"Authorization": f"Basic {key}", "Content-Type": "application/json"}

    def ask(self, method, path, body=""):
        """Status, and the text of the answer."""
        for again in (True, False):
            if self.session and "Cookie" not in self.headers and not self.log_in():
                return 403, "no session"
            status, text = self.once(method, path, body)
            # A session ends when its user is changed.
            if not (self.session and status == 401 and again):
                return status, text
            self.headers.pop("Cookie", None)
        return status, text

    def log_in(self):
        status, text = self.once("POST", "/v1/session", json.dumps({"user": self.who.name, "password": self.password}))
        if status != 200:
            return False
        self.headers.update({"Cookie": self.cookie, "X-Mainstem-CSRF": json.loads(text)["csrf"]})
        return True

    def once(self, method, path, body):
        for last in (False, True):
            try:
                self.link = self.link or http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT, source_address=(self.who.host, 0))
                self.link.request(method, path, body.encode() or None, self.headers)
                answer = self.link.getresponse()
                text = answer.read().decode(errors="replace")
                if cookie := answer.getheader("Set-Cookie"):
                    self.cookie = cookie.split(";")[0]
                if answer.will_close:
                    self.close()
                return answer.status, text
            except (http.client.HTTPException, ConnectionError):
                self.close()
                if last:
                    raise

    def json(self, method, path, body=None):
        """A request that is to be done."""
        status, text = self.ask(method, path, "" if body is None else json.dumps(body))
        if status not in (200, 201, 204):
            raise RuntimeError(f"{method} {path} {body}: {status} {text[:300]}")
        return json.loads(text) if text else None

    def close(self):
        if self.link:
            self.link.close()
        self.link = None
