"""Starts and ends the broker under test on free loopback ports. Used by the driver."""

import fcntl
import os
import random
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path


class Broker:
    """A broker with its own data folder, ended by its process id."""

    def __init__(self, binary, folder, flags=()):
        self.binary, self.folder, self.flags = binary, folder, list(flags)
        self.kafka, self.admin, self.amqp = free_port(), free_port(), f"127.0.0.1:{free_port()}"
        self.process = None

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.kafka}"

    def start(self, prefix=()):
        command = [*prefix, str(self.binary), "serve", "--data", self.folder, "--kafka", self.bootstrap, "--amqp", self.amqp,
                   "--admin", f"127.0.0.1:{self.admin}", *self.flags]
        self.log = open(Path(self.folder).with_suffix(".log"), "ab")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        deadline = time.time() + 30
        while time.time() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the broker ended with status {self.process.returncode}: {self.log_lines()[-1:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/health/ready", timeout=2):
                    return self
            except OSError:
                time.sleep(0.02)
        raise RuntimeError("the broker is not ready after 30 s")

    def end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(30)
        self.log.close()
        return status

    def metrics(self):
        """Its metrics, as Prometheus reads them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def spent(self):
        """Processor time that it has used, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_lines(self):
        return Path(self.folder).with_suffix(".log").read_text(errors="replace").splitlines()


# Below those that the system gives to connections, and none twice, here or in another process: a port that was free stays so until the broker
# has it. A process takes so many at once, and has them as long as it lives.
PORTS_AT_ONCE = 40
TAKEN = []


def ports():
    folder = Path(tempfile.gettempdir()) / f"mainstem-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in random.sample(range(20_000, 32_000, PORTS_AT_ONCE), 12_000 // PORTS_AT_ONCE):
        lock = open(folder / str(first), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        TAKEN.append(lock)
        yield from range(first, first + PORTS_AT_ONCE)


PORTS = ports()


def free_port():
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("all ports between 20000 and 32000 were given out, or are taken")
