"""What the measurements share: the broker and the peer as processes, their accounts from /proc, the light client."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from driver import install
from driver.broker import Broker

ROOT = HERE.parents[1]
PEER = ROOT.parent / "shared/peers/kafka.sh"
CPU_TICK = os.sysconf("SC_CLK_TCK")
BULK = ["acks=all", "linger.ms=10", "batch.size=1000000", "queue.buffering.max.messages=2000000",
        "queue.buffering.max.kbytes=262144"]
READ = ["group.id=acceptance", "fetch.message.max.bytes=1048576", "queued.max.messages.kbytes=131072"]
# Beyond the defaults, so that a reading consumer of many partitions stays in memory.
READ_MANY = ["group.id=acceptance", "fetch.message.max.bytes=1048576", "queued.max.messages.kbytes=65536"]


def load_program():
    """The light client, built into the cache."""
    program, source = install.CACHE / "load", HERE / "load.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        install.CACHE.mkdir(parents=True, exist_ok=True)
        if not Path("/usr/include/librdkafka/rdkafka.h").exists():
            subprocess.run(["apt-get", "install", "-y", "-q", "librdkafka-dev"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cc", "-O2", "-Wall", "-o", str(program), str(source), "-lrdkafka", "-lpthread"], check=True)
    return program


def start_load(*arguments, cores=None):
    pin = ["taskset", "-c", cores] if cores else []
    return subprocess.Popen([*pin, str(load_program()), *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def finish(process, limit=1200, may_fail=False):
    """The client's result; with `may_fail` also when not all of its records came through."""
    out, _ = process.communicate(timeout=limit)
    lines = out.strip().splitlines()
    if process.returncode != 0 and not may_fail or not lines:
        raise RuntimeError(f"the client ended with status {process.returncode}: {out.strip()[-300:]}")
    return json.loads(lines[-1])


def load(*arguments, may_fail=False, **more):
    return finish(start_load(*arguments, **more), may_fail=may_fail)


def raw_load(bootstrap, topic, partitions, rate, seconds):
    """Produces without a client library, at a fixed rate; its result."""
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "raw-load"], check=True, cwd=ROOT)
    return finish(subprocess.Popen([str(ROOT / "target/release/raw-load"), bootstrap, topic, "--partitions", str(partitions), "--rate", str(rate),
                                    "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True))


def yardstick(folder):
    return load("yardstick", folder)


def machine():
    """(steal, all) jiffies so far."""
    fields = list(map(int, open("/proc/stat").readline().split()[1:]))
    return fields[7], sum(fields)


class Steal:
    """Share of processor time that the host took away since the start, in percent."""

    def __init__(self):
        self.begin = machine()

    def percent(self):
        now = machine()
        return round(100 * (now[0] - self.begin[0]) / max(1, now[1] - self.begin[1]), 2)


def drop_page_cache():
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


class Process:
    """Accounts of a running process."""

    def __init__(self, pid):
        self.pid = pid

    def cpu(self):
        """Seconds of processor time so far."""
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / CPU_TICK

    def rss_mb(self):
        return self.status("VmRSS") / 1024

    def threads(self):
        return self.status("Threads")

    def status(self, name):
        for line in open(f"/proc/{self.pid}/status"):
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise KeyError(name)

    def files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def write_bytes(self):
        for line in open(f"/proc/{self.pid}/io"):
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
        raise KeyError("write_bytes")


class Mainstem(Process):
    """Our release binary on a folder of its own."""

    name = "mainstem"

    def __init__(self, folder, *flags, binary=ROOT / "target/release/mainstem"):
        self.broker = Broker(binary, folder, flags)
        self.folder, self.bootstrap = folder, self.broker.bootstrap

    def start(self, prefix=()):
        self.broker.start(prefix)
        self.pid = self.broker.process.pid
        return self

    def stop(self, number=signal.SIGTERM):
        self.broker.end(number)

    def metrics(self):
        import urllib.request
        with urllib.request.urlopen(f"http://127.0.0.1:{self.broker.admin}/metrics") as page:
            lines = [line.split(" ") for line in page.read().decode().splitlines() if not line.startswith("#")]
        return {line[0]: float(line[1]) for line in lines}

    def journal_sum(self, name):
        return sum(value for key, value in self.metrics().items() if key.startswith(name + "{") or key == name)


class Kafka(Process):
    """The real one, by the script beside this tree."""

    name = "kafka"

    def __init__(self, folder, heap=None, properties=None):
        """`properties`: a file with lines for `server.properties`."""
        self.wishes = {name: value for name, value in {"HEAP": heap, "EXTRA_PROPS": properties}.items() if value}
        if not PEER.exists():
            raise RuntimeError("the peer's script ../shared/peers/kafka.sh is not there: nothing to compare with")
        self.port = int(os.environ.get("KAFKA_PORT", 19092))
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.home = Path(os.environ.get("PEERS_HOME", Path.home() / ".cache/peers"))

    def call(self, *arguments, prefix=()):
        environment = {**os.environ, **self.wishes, "PORT": str(self.port)}
        subprocess.run([*prefix, "bash", str(PEER), *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)

    def start(self, prefix=()):
        self.call("stop")
        self.call("wipe")
        self.call("start", prefix=prefix)
        self.pid = int((self.home / f"kafka/run-{self.port}/pid").read_text())
        return self

    def stop(self):
        self.call("stop")
        self.call("wipe")


class RabbitMQ(Process):
    """The real one, by the script beside this tree."""

    name = "rabbitmq"

    def __init__(self):
        self.port = int(os.environ.get("RABBITMQ_PORT", 25672))
        self.address = f"127.0.0.1:{self.port}"
        self.home = Path(os.environ.get("PEERS_HOME", Path.home() / ".cache/peers"))

    def call(self, word):
        environment = {**os.environ, "PORT": str(self.port), "SUITE": "testing"}
        subprocess.run(["bash", str(PEER.with_name("rabbitmq4.sh")), word], check=True, stdout=subprocess.DEVNULL, env=environment)

    def start(self):
        self.stop()
        self.call("start")
        self.pid = int((self.home / f"rabbitmq4/run-{self.port}/pid").read_text())
        return self

    def stop(self):
        self.call("stop")
        self.call("wipe")

    def counted(self):
        """It does not say how often it flushes."""


class Unfinished(Exception):
    """The time that this call was given is over; the next one goes on where it was."""


def admin(bootstrap):
    from confluent_kafka.admin import AdminClient
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(bootstrap, topic, partitions, **config):
    from confluent_kafka.admin import NewTopic
    named = {name.replace("_", "."): str(value) for name, value in config.items()}
    client = admin(bootstrap)
    for future in client.create_topics([NewTopic(topic, partitions, 1, config=named)], operation_timeout=60).values():
        future.result(60)


class Folder:
    """A scratch folder on the disk that is measured, or elsewhere."""

    def __init__(self, where=None):
        self.where = where or os.environ.get("ACCEPTANCE_SCRATCH")

    def __enter__(self):
        # What was deleted before is still being given back to the file system.
        subprocess.run(["sync"], check=True)
        time.sleep(3)
        self.path = tempfile.mkdtemp(prefix="mainstem-acceptance-", dir=self.where)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


class MemoryGroup:
    """A cgroup that bounds memory, page cache included (version 1 or 2, as root)."""

    def __init__(self, name, megabytes):
        first = Path("/sys/fs/cgroup/memory")
        self.path = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"mainstem-{name}"
        self.limit = "memory.limit_in_bytes" if first.is_dir() else "memory.max"
        self.megabytes = megabytes

    def __enter__(self):
        self.path.mkdir(exist_ok=True)
        (self.path / self.limit).write_text(str(self.megabytes << 20))
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]

    def __exit__(self, *_):
        time.sleep(1)
        try:
            self.path.rmdir()
        except OSError:
            pass
