"""What strangers and encryption cost: a flood of connections that never log in, and processor time with TLS beside without."""

import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time

from driver.broker import free_port
from machine import BULK, HERE, READ, Folder, Mainstem, Steal, create, finish, load

sys.path.append(str(HERE.parent / "amqp"))
from security import Certificates

ADMIN, PASSWORD = "admin", "long enough for nobody"
LIGHT = ["linger.ms=0", "acks=all"]
PAIRS = 3
# Published beforehand: several times what the broker keeps of the newest records.
WARM_MB = 600
# Of the flood: connections held, opened in a second at most.
HELD, RATE = 10_000, 2000
# What the broker has by default for those who have not logged in, which the listener that stands for nothing has, too.
STRANGERS, LOGIN_S = 1500, 10
IN_MEMORY = "/dev/shm"


class Secured:
    """A broker whose clients log in by SCRAM, with TLS and without; one more listener is plain."""

    def __init__(self, folder, *flags):
        certificates = Certificates(folder)
        certificate, key = certificates.server()
        self.ca, self.sasl, self.tls, self.plain_tls, self.amqp_tls = str(certificates.ca), *(f"127.0.0.1:{free_port()}" for _ in range(4))
        wishes = (f"listeners=SASL_PLAINTEXT://{self.sasl},SASL_SSL://{self.tls},SSL://{self.plain_tls}", "sasl.enabled.mechanisms=SCRAM-SHA-512")
        self.mainstem = Mainstem(f"{folder}/data", *flags, "--tls-certificate", certificate, "--tls-key", key, "--amqps", self.amqp_tls,
                                 *(word for wish in wishes for word in ("--set", wish)))

    def start(self):
        environment = {"MAINSTEM_DEFAULT_USER": ADMIN, "MAINSTEM_DEFAULT_PASS": PASSWORD}
        os.environ.update(environment)
        try:
            self.mainstem.start()
        finally:
            for name in environment:
                del os.environ[name]
        return self

    def targets(self):
        return {"kafka": self.sasl, "kafka_tls": self.tls, "amqp": self.mainstem.broker.amqp, "amqp_tls": self.amqp_tls}

    def login(self):
        """Settings of librdkafka."""
        return ["security.protocol=sasl_ssl", f"ssl.ca.location={self.ca}", "sasl.mechanism=SCRAM-SHA-512", f"sasl.username={ADMIN}",
                f"sasl.password={PASSWORD}"]


class Nobody:
    """The listener that a flood meets when the broker is left in peace."""

    def __enter__(self):
        command = [sys.executable, str(HERE / "strangers_load.py"), "nobody", str(STRANGERS), str(LOGIN_S)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        address = f"127.0.0.1:{int(self.process.stdout.readline())}"
        return dict.fromkeys(("kafka", "kafka_tls", "amqp", "amqp_tls"), address)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Highest:
    """The most that a process has had resident while this was watched, in MB."""

    def __init__(self, process):
        self.process, self.most, self.ended = process, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while not self.ended.wait(0.1):
            self.most = max(self.most, self.process.rss_mb())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def beside(broker, targets, seconds):
    """Publish latency of a client that has logged in while strangers do what they do; (the client's row, the flood's)."""
    command = ["nice", "-n", "19", sys.executable, str(HERE / "strangers_load.py"), json.dumps(targets), str(HELD), str(RATE), str(seconds + 6)]
    strangers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(4)
    row = load("latency", broker.tls, "light", 1, seconds, 500, *LIGHT, *broker.login())
    return row, finish(strangers)


def flood(report):
    """10,000 connections from twenty addresses that never log in, opened at up to 2,000 a second by a generator at niceness 19, each that is
    closed replaced: silent ones, halves of TLS handshakes, a request of 2 GB, one that comes in drops, questions before the login, a frame of
    2 GB, over Kafka's and AMQP's listeners with TLS and without; beside it whole handshakes and wrong passwords, 20 a second each. A client
    with TLS and SCRAM publishes 500 records of 1 KiB a second meanwhile, to a data folder in memory: strangers write nothing, and a disk that stalls for
    half a second in every other run would be all that the p99 tells of. In turns, three times: the flood meets a listener that keeps as many and does
    nothing, and the broker. Memory is all that is resident, from the moment before the first flood, when 600 MB have been published
    and the caches of the newest records are full."""
    rows, seconds, steal = {"nobody": [], "broker": []}, report.amount(20), Steal()
    usual = []
    with Folder(IN_MEMORY) as folder:
        broker = Secured(folder).start()
        process = broker.mainstem
        try:
            create(process.bootstrap, "light", 1)
            # What the broker keeps in memory of records, and of buffers for them, is not the strangers'.
            load("produce", broker.tls, "light", 1, WARM_MB, *BULK, *broker.login())
            load("latency", broker.tls, "light", 1, 5, 500, *LIGHT, *broker.login())
            before = process.rss_mb()
            with Highest(process) as highest:
                for _ in range(PAIRS):
                    for name in rows:
                        if name == "broker":
                            row, strangers = beside(broker, broker.targets(), seconds)
                        else:
                            with Nobody() as targets:
                                row, strangers = beside(broker, targets, seconds)
                        rows[name].append(row["p99_ms"])
                        usual.append(row["p50_ms"])
                        report.note(flood_meets=name, flood=strangers, cpu_s=round(process.cpu(), 2), **row)
            report.judge("memory that strangers cost", round(highest.most - before, 1), "<= 64 MB", highest.most - before <= 64, " MB")
        finally:
            process.stop()
    report.judge("publish latency p50 meanwhile", statistics.median(usual), "reported", None, " ms")
    nobody, met = (statistics.median(rows[name]) for name in ("nobody", "broker"))
    report.judge("publish latency p99, the flood at the broker / at nobody", round(met / nobody, 2), "<= 2", met <= 2 * nobody)
    report.note(steal_percent=steal.percent())


def there_and_back(broker, address, topic, megabytes, *settings):
    """(processor seconds of the broker for a GB moved, each published and received counted; MB/s published, MB/s received)"""
    spent = broker.cpu()
    sent = load("produce", address, topic, 4, megabytes, *BULK, *settings)
    got = load("consume", address, topic, 4, megabytes, *READ, *settings)
    return (broker.cpu() - spent) / (2 * megabytes / 1000), sent["mb_per_s"], got["mb_per_s"]


def cipher(broker):
    host, port = broker.plain_tls.rsplit(":", 1)
    context = ssl.create_default_context(cafile=broker.ca)
    with context.wrap_socket(socket.create_connection((host, int(port)), timeout=5), server_hostname=host) as stream:
        return " ".join(map(str, stream.cipher()))


def tls(report):
    """A producer, then a consumer (librdkafka, 1 KiB of random bytes, 4 partitions, durability `memory`), without encryption and with, three pairs in
    turns: processor time of the broker for a GB moved, which counts what is published and what is received as everywhere here, and throughput,
    which is the client's bound."""
    megabytes, steal = report.amount(3000), Steal()
    rows = {"plain": [], "tls": []}
    with Folder() as folder:
        broker = Secured(folder, "--durability", "memory").start()
        process = broker.mainstem
        try:
            report.note(cipher=cipher(broker))
            for number in range(PAIRS):
                for name, address, settings in (("plain", process.bootstrap, []),
                                                ("tls", broker.plain_tls, ["security.protocol=ssl", f"ssl.ca.location={broker.ca}"])):
                    topic = f"{name}-{number}"
                    create(process.bootstrap, topic, 4)
                    rows[name].append(there_and_back(process, address, topic, megabytes, *settings))
                    cost, published, received = rows[name][-1]
                    report.note(how=name, cpu_s_per_gb=round(cost, 3), published_mb_s=published, received_mb_s=received)
        finally:
            process.stop()
    middle = {name: [statistics.median(column) for column in zip(*of)] for name, of in rows.items()}
    more = middle["tls"][0] - middle["plain"][0]
    report.judge("broker CPU-seconds per GB, TLS - plain", round(more, 3), "<= 0.8", more <= 0.8)
    report.judge("published and received, TLS / plain", " and ".join(f"{middle['tls'][at] / middle['plain'][at]:.2f}" for at in (1, 2)), "reported", None)
    report.note(steal_percent=steal.percent())
