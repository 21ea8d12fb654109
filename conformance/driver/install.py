"""Installs what the clients need into the cache and knows how to call each. Used by the driver."""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from driver.results import call

HERE = Path(__file__).resolve().parents[1]
CLIENTS = HERE / "clients"
CACHE = Path(os.environ.get("CONFORMANCE_CACHE", Path.home() / ".cache/mainstem-conformance"))
PACKAGES = ["confluent-kafka==2.11.1", "kafka-python==3.0.12", "python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0", "pika==1.4.4", "celery==5.7.0"]
PYTHON = CACHE / "python/bin/python"
# OpenTelemetry's messages, which have a library of their own for protobuf: an environment apart.
OTLP_PACKAGES = ["opentelemetry-proto==1.45.2"]
OTLP_PYTHON = CACHE / "otlp/bin/python"
JAVA = CACHE / "java"


def mark_of(pinned):
    return hashlib.sha256("\n".join(map(str, pinned)).encode()).hexdigest()


def once(name, pinned, work):
    """Does `work` unless the stamp of `name` says that the same was done before."""
    mark = mark_of(pinned)
    stamp = CACHE / f"{name}.stamp"
    if stamp.exists() and stamp.read_text() == mark:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    work()
    stamp.write_text(mark)


def need(program, package):
    if not shutil.which(program):
        raise RuntimeError(f"{program} is not there; install {package}")


def python():
    def work():
        call([sys.executable, "-m", "venv", "--clear", str(CACHE / "python")])
        call([str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES], limit=900)
    once("python", PACKAGES, work)


def otlp():
    def work():
        call([sys.executable, "-m", "venv", "--clear", str(CACHE / "otlp")])
        call([str(OTLP_PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check", *OTLP_PACKAGES], limit=300)
    once("otlp", OTLP_PACKAGES, work)


def debian(package):
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        call(["apt-get", "install", "-y", "-q", package], limit=300, env=environment)
    except Exception as error:
        raise RuntimeError(f"{package} is not there and `apt-get install {package}` says: {error}") from error


def kcat():
    if not shutil.which("kcat"):
        debian("kcat")


def librabbitmq():
    need("cc", "a C compiler")
    source = CLIENTS / "librabbitmq/client.c"

    def work():
        build = ["cc", "-O1", "-Wall", "-o", str(CACHE / "librabbitmq"), str(source), "-lrabbitmq"]
        try:
            call(build)
        except Exception:
            debian("librabbitmq-dev")
            call(build)
    once("librabbitmq", [source.read_text()], work)


def node_packages(name):
    need("npm", "nodejs and npm")
    folder = CACHE / name
    package = (CLIENTS / name / "package.json").read_text()

    def work():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(package)
        call(["npm", "install", "--no-audit", "--no-fund", "--silent"], limit=600, cwd=folder)
    once(name, [package], work)


def go_program(name):
    need("go", "Go 1.26 or later")
    sources = sorted((CLIENTS / name).iterdir())

    def work():
        call(["go", "build", "-o", str(CACHE / name), "."], limit=900, cwd=CLIENTS / name)
    once(name, [path.read_text() for path in sources], work)


def rust_program(name):
    need("cargo", "Rust 1.95 or later")
    folder, built = CLIENTS / name, CACHE / f"{name}-target"
    sources = [folder / "Cargo.toml", folder / "Cargo.lock", *sorted((folder / "src").iterdir())]

    def work():
        call(["cargo", "build", "-q", "--locked", "--manifest-path", str(folder / "Cargo.toml"), "--target-dir", str(built)], limit=900)
        shutil.copy(built / f"debug/conformance-{name}", CACHE / name)
        shutil.rmtree(built)
    once(name, [path.read_text() for path in sources], work)


def perf_test():
    need("mvn", "Maven")
    pom, folder = CLIENTS / "perf-test/pom.xml", CACHE / "perf-test"

    def work():
        shutil.rmtree(folder, ignore_errors=True)
        call(["mvn", "-B", "-q", "--no-transfer-progress", "-f", str(pom), "dependency:copy-dependencies",
              "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], limit=900)
    once("perf-test", [pom.read_text()], work)


def java():
    need("javac", "a JDK, version 17 or later")
    pom = CLIENTS / "java/pom.xml"

    def jars():
        need("mvn", "Maven")
        shutil.rmtree(JAVA, ignore_errors=True)
        call(["mvn", "-B", "-q", "--no-transfer-progress", "-f", str(pom), "dependency:copy-dependencies",
              "-DincludeScope=runtime", f"-DoutputDirectory={JAVA}"], limit=900)

    once("java-jars", [pom.read_text()], jars)
    classes = java_classes()
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=JAVA) as folder:
            call(["javac", "-d", f"{folder}/classes", "-cp", f"{JAVA}/*", *map(str, java_sources())])
            os.rename(f"{folder}/classes", classes)


def java_sources():
    return sorted((CLIENTS / "java").glob("*.java"))


def java_classes():
    """A folder of their own for these sources: another checkout may be at work with others."""
    return JAVA / f"classes-{mark_of(path.read_text() for path in java_sources())[:16]}"


def java_command(name, *arguments, quick=True):
    """`quick`: the JVM starts fast; otherwise it runs fast."""
    tuned = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if quick else []
    return ["java", "-Xmx512m", *tuned, "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={CLIENTS}/java/log4j2.properties", "-cp", f"{JAVA}/*:{java_classes()}", name, *arguments]


def commands():
    """How each client that reads and writes records is called."""
    node = ["env", f"NODE_PATH={CACHE}/kafkajs/node_modules", "KAFKAJS_NO_PARTITIONER_WARNING=1", "node"]
    return {
        "confluent-kafka": [str(PYTHON), str(CLIENTS / "confluent/client.py")],
        "kafka-python": [str(PYTHON), str(CLIENTS / "kafka-python/client.py")],
        "java": java_command("Client"),
        "franz-go": [str(CACHE / "franz-go")],
        "kafkajs": [*node, str(CLIENTS / "kafkajs/client.js")],
    }


def amqp_commands():
    """How each client of RabbitMQ is called, with a URL and how many messages."""
    return {
        "amqp091-go": [str(CACHE / "amqp091-go")],
        "amqplib": ["env", f"NODE_PATH={CACHE}/amqplib/node_modules", "node", str(CLIENTS / "amqplib/client.js")],
        "java": java_command("Amqp"),
        "lapin": [str(CACHE / "lapin")],
        "librabbitmq": [str(CACHE / "librabbitmq")],
    }


def everything(results):
    """Installs all of it; returns the names of what could not be had."""
    missing = set()
    works = {"confluent-kafka and kafka-python": python, "kcat": kcat, "java and its tools": java}
    works |= {name: lambda name=name: node_packages(name) for name in ("kafkajs", "amqplib")}
    works |= {name: lambda name=name: go_program(name) for name in ("franz-go", "amqp091-go", "rabbit-hole")}
    works |= {"OpenTelemetry's messages": otlp, "lapin": lambda: rust_program("lapin"), "librabbitmq": librabbitmq, "PerfTest": perf_test}
    for name, work in works.items():
        if not results.step(f"install {name}", work):
            missing |= set(name.split(" and "))
    return missing
