"""AMQP 0-9-1: small cases with RabbitMQ's clients, and queues under kills. Used by the driver."""

import signal
import tempfile

from driver.broker import Broker
from driver.install import CACHE, HERE, PYTHON, amqp_commands
from driver.results import call


def run(results, binary, seconds, count, missing):
    small(results, binary, count, missing)
    if "franz-go" not in missing:
        faces(results, binary, seconds / 2)
    security(results, binary)
    lines(results, [str(PYTHON), str(HERE / "amqp/quotas.py"), str(binary)], "amqp, quotas")
    lines(results, [str(PYTHON), str(HERE / "amqp/counts.py"), str(binary)], "amqp, lengths and counts are those of messages")
    lines(results, [str(PYTHON), str(HERE / "amqp/limits.py"), str(binary)], "limits of the node, of virtual hosts and users")
    lines(results, [str(PYTHON), str(HERE / "why.py"), str(binary)], "why somebody is slow")
    results.step("amqp: connections that publish and consume go on through a full disk and with little memory",
                 lambda: shown([str(PYTHON), str(HERE / "amqp/pressure.py"), str(binary)], 150))
    for line in call([str(PYTHON), str(HERE / "amqp/delayed.py"), str(binary)], 120).decode().splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        results.note(f"amqp, delayed: {name.replace('-', ' ')}", None if verdict == "ok" else why)
    results.step("amqp, pika: a thousand queues declared at once are there after a kill, short-lived ones leave nothing behind",
                 lambda: call([str(PYTHON), str(HERE / "amqp/many.py"), str(binary)], 120))
    streams(results, binary)
    for durability in ("fsync", "memory"):
        once = [str(PYTHON), str(HERE / "amqp/once.py"), str(binary), durability]
        results.step(f"messages of many queues are in all or none, dead letters in one queue, while the broker is killed, class {durability}",
                     lambda command=once: print("      " + call(command, 120).decode().strip(), flush=True))
        command = [str(PYTHON), str(HERE / "amqp/survive.py"), str(binary), str(seconds), durability]
        results.step(f"queues lose nothing that was confirmed while the broker is killed, class {durability}",
                     lambda command=command: shown(command, seconds + 240))


def shown(command, limit):
    """Runs a program and shows what it says."""
    print("      " + call(command, limit).decode().strip().replace("\n", "\n      "), flush=True)


def cases(results, file, broker, *names):
    command = [str(PYTHON), str(HERE / "amqp" / file), broker.amqp, *names, "--kafka", broker.bootstrap]
    for line in call(command, 240).decode().splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        results.note(f"amqp, pika: {name.replace('-', ' ')}", None if verdict == "ok" else why)


def streams(results, binary):
    """With little memory, so that history is read from the disk, and retention and compaction that are looked after often."""
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        broker = Broker(binary, f"{scratch}/data", ["--memory", "64MiB", "--set", "log.retention.check.interval.ms=300", "--set", "log.cleaner.backoff.ms=300"]).start()
        try:
            cases(results, "streams.py", broker)
            cases(results, "fields.py", broker)
            cases(results, "streams.py", broker, "keep")
            cases(results, "fields.py", broker, "settle-some")
            broker.end(signal.SIGKILL)
            broker.start()
            cases(results, "streams.py", broker, "kept")
            cases(results, "fields.py", broker, "settle-rest")
        except Exception as error:
            results.note("amqp, pika: streams and fields", str(error) or type(error).__name__)
        finally:
            broker.end(signal.SIGTERM)


def faces(results, binary, seconds):
    lines(results, [str(PYTHON), str(HERE / "amqp/faces.py"), str(binary)], "amqp, a queue and its share group")
    together = [str(PYTHON), str(HERE / "amqp/together.py"), str(binary), str(CACHE / "franz-go"), str(seconds)]
    results.step("amqp: a queue is worked off by AMQP consumers and a share group together, members of both are killed",
                 lambda: shown(together, seconds + 150))


def lines(results, command, about):
    """Notes what a program says of its cases, a line each."""
    try:
        said = call(command, 240).decode().splitlines()
    except Exception as error:
        return results.note(about, str(error) or type(error).__name__)
    for line in said:
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        results.note(f"{about}: {name.replace('-', ' ')}", None if verdict == "ok" else why)


def security(results, binary):
    lines(results, [str(PYTHON), str(HERE / "amqp/security.py"), str(binary), str(CACHE)], "amqp, who is let in")


def small(results, binary, count, missing):
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        broker = Broker(binary, f"{scratch}/data").start()
        try:
            cases(results, "cases.py", broker)
            cases(results, "details.py", broker)
            cases(results, "letters.py", broker)
            cases(results, "time_outs.py", broker)
            for name, command in amqp_commands().items():
                if name not in missing:
                    words = [*command, f"amqp://guest:guest@{broker.amqp}/%2f", str(count)]
                    results.step(f"amqp, {name}: {count} messages", lambda words=words: call(words, 180))
            if "PerfTest" not in missing:
                words = [str(PYTHON), str(HERE / "amqp/perf_test.py"), broker.amqp, str(CACHE / "perf-test")]
                step = "amqp, PerfTest: confirms, transactions, acknowledgements together, kinds of queues, a rate"
                results.step(step, lambda words=words: call(words, 180))
            if "rabbit-hole" not in missing:
                words = [str(CACHE / "rabbit-hole"), f"http://127.0.0.1:{broker.admin}"]
                results.step("amqp, management with rabbit-hole: everything is made, listed and deleted", lambda: call(words, 60))
            results.step("amqp, Celery: pool, results, retries, tasks for later, control, events",
                         lambda: call([str(PYTHON), str(HERE / "amqp/celery_works.py"), broker.amqp], 300))
        except Exception as error:
            results.note("amqp, pika: small cases", str(error) or type(error).__name__)
        finally:
            status = broker.end(signal.SIGTERM)
        management = [str(PYTHON), str(HERE / "amqp/management/test"), str(binary)]
        results.step("amqp, management: answers and definitions of the real RabbitMQ", lambda: call(management, 120))
        results.note("amqp: the broker ends with status 0 on SIGTERM", None if status == 0 else f"status {status}")
