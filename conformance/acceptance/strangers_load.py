"""Strangers at the door: connections that never log in. Arguments: a JSON object `{"kafka": ADDRESS, "kafka_tls": ADDRESS, "amqp": ADDRESS,
"amqp_tls": ADDRESS}`, how many connections to hold, how many to open in a second at most, seconds. Prints one line of JSON.

Each new connection is the next of `KINDS`, from one of twenty addresses of the loopback network; one that is closed is replaced as fast as the
rate allows. Two threads beside it guess: one completes handshakes of TLS, one tries passwords."""

import errno
import json
import resource
import select
import socket
import ssl
import struct
import sys
import threading
import time

ADDRESSES = [f"127.0.1.{number}" for number in range(1, 21)]
# The first bytes of a ClientHello whose rest never comes: a record of 512 bytes, a message of 508, TLS 1.2.
HALF_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(32)
GUESSES_A_SECOND = 20


def api_versions():
    body = struct.pack(">hhih", 18, 0, 1, -1)
    return struct.pack(">i", len(body)) + body


# Name, whom, what is sent first, what follows twice a second.
KINDS = [
    ("silent", "kafka", b"", b""),
    ("silent", "amqp", b"", b""),
    ("half a handshake", "kafka_tls", HALF_HELLO, b""),
    ("half a handshake", "amqp_tls", HALF_HELLO, b"\0"),
    ("huge request", "kafka", struct.pack(">i", 2_000_000_000), bytes(512)),
    ("request in drops", "kafka", struct.pack(">i", 30_000), bytes(64)),
    ("many questions", "kafka", api_versions() * 50, api_versions() * 10),
    ("huge frame", "amqp", b"AMQP\0\0\x09\x01" + struct.pack(">BHI", 1, 0, 0x7fff_ffff), bytes(512)),
]


class Flood:
    def __init__(self, targets, held, rate, seconds):
        self.targets = {name: (text.rsplit(":", 1)[0], int(text.rsplit(":", 1)[1])) for name, text in targets.items()}
        self.most, self.rate, self.until = held, rate, time.time() + seconds
        self.poll, self.open, self.opened, self.closed, self.failed, self.held_most = select.epoll(), {}, 0, 0, 0, 0
        self.guesses, self.handshakes = 0, 0

    def run(self):
        guessing = [threading.Thread(target=work, daemon=True) for work in (self.guess, self.shake)]
        for thread in guessing:
            thread.start()
        began, talked = time.time(), time.time()
        while (now := time.time()) < self.until:
            allowed = int((now - began) * self.rate) - self.opened
            for _ in range(min(allowed, 50, self.most - len(self.open))):
                self.connect()
            # What could not be opened is not made up for.
            began = max(began, now - (self.opened + self.rate / 10) / self.rate)
            self.take(0.005)
            if now - talked > 0.5:
                talked = now
                self.talk()
            self.held_most = max(self.held_most, len(self.open))
        for stream, _ in self.open.values():
            stream.close()

    def connect(self):
        kind = KINDS[self.opened % len(KINDS)]
        stream = socket.socket()
        stream.setblocking(False)
        self.opened += 1
        try:
            # The address is chosen here, the port when it connects: ports are shared by connections to different listeners.
            stream.setsockopt(socket.IPPROTO_IP, 24, 1)
            stream.bind((ADDRESSES[self.opened // len(KINDS) % len(ADDRESSES)], 0))
            if stream.connect_ex(self.targets[kind[1]]) not in (0, errno.EINPROGRESS):
                raise OSError("refused")
        except OSError:
            self.failed += 1
            stream.close()
            return
        self.open[stream.fileno()] = (stream, kind)
        self.poll.register(stream.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP)

    def take(self, wait):
        for number, events in self.poll.poll(wait, 500):
            stream, kind = self.open[number]
            try:
                if events & select.EPOLLIN and not stream.recv(65536) or events & (select.EPOLLHUP | select.EPOLLERR):
                    raise OSError("closed")
                if events & select.EPOLLOUT:
                    stream.send(kind[2])
                    self.poll.modify(number, select.EPOLLIN | select.EPOLLRDHUP)
            except OSError:
                self.close(number)

    def talk(self):
        for number, (stream, kind) in list(self.open.items()):
            if not kind[3]:
                continue
            try:
                stream.send(kind[3])
            except BlockingIOError:
                pass
            except OSError:
                self.close(number)

    def close(self, number):
        stream, _ = self.open.pop(number)
        stream.close()
        self.closed += 1

    def guess(self):
        """Wrong passwords by AMQP's PLAIN, which costs the broker a hash each."""
        number = 0
        while time.time() < self.until:
            number += 1
            answer = b"\0admin\0guess-%d" % number
            table = struct.pack(">I", 0) + b"\x05PLAIN" + struct.pack(">I", len(answer)) + answer + b"\x05en_US"
            body = struct.pack(">HH", 10, 11) + table
            try:
                with socket.create_connection(self.targets["amqp"], timeout=5, source_address=(ADDRESSES[number % len(ADDRESSES)], 0)) as stream:
                    stream.sendall(b"AMQP\0\0\x09\x01" + struct.pack(">BHI", 1, 0, len(body)) + body + b"\xce")
                    time.sleep(1 / GUESSES_A_SECOND)
                    self.guesses += 1
            except OSError:
                time.sleep(1 / GUESSES_A_SECOND)

    def shake(self):
        """Whole handshakes, which cost the broker a signature each."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        while time.time() < self.until:
            try:
                with socket.create_connection(self.targets["kafka_tls"], timeout=5) as plain:
                    context.wrap_socket(plain).close()
                    self.handshakes += 1
            except OSError:
                pass
            time.sleep(1 / GUESSES_A_SECOND)


def nobody(held_most, login_s):
    """A listener that does with strangers what a broker should: keeps so many for so long, closes the others at once. Prints its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    listener.setblocking(False)
    held = {}
    while True:
        select.select([listener], [], [], 0.01)
        try:
            for _ in range(100):
                stream, _ = listener.accept()
                if len(held) < held_most:
                    held[stream] = time.time() + login_s
                else:
                    stream.close()
        except BlockingIOError:
            pass
        for stream in [stream for stream, until in held.items() if until < time.time()]:
            del held[stream]
            stream.close()


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (20_000, 20_000))
    if sys.argv[1] == "nobody":
        return nobody(int(sys.argv[2]), float(sys.argv[3]))
    flood = Flood(json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    flood.run()
    print(json.dumps({"opened": flood.opened, "closed": flood.closed, "failed": flood.failed, "held_most": flood.held_most,
                      "guesses": flood.guesses, "handshakes": flood.handshakes}))


if __name__ == "__main__":
    main()
