"""AMQP 0-9-1: small cases with RabbitMQ's clients, and queues under kills. Used by the driver."""

import signal
import tempfile

from driver.broker import Broker
from driver.install import CACHE, HERE, PYTHON, amqp_commands
from driver.results import call


def run(results, binary, seconds, count, missing):
    small(results, binary, count, missing)
    for line in call([str(PYTHON), str(HERE / "amqp/delayed.py"), str(binary)], 120).decode().splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        results.note(f"amqp, delayed: {name.replace('-', ' ')}", None if verdict == "ok" else why)
    for durability in ("fsync", "memory"):
        command = [str(PYTHON), str(HERE / "amqp/survive.py"), str(binary), str(seconds), durability]
        results.step(f"queues lose nothing that was confirmed while the broker is killed, class {durability}",
                     lambda command=command: print("      " + call(command, seconds + 240).decode().strip().replace("\n", "\n      "), flush=True))


def small(results, binary, count, missing):
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        broker = Broker(binary, f"{scratch}/data").start()
        try:
            command = [str(PYTHON), str(HERE / "amqp/cases.py"), broker.amqp, "--kafka", broker.bootstrap]
            for line in call(command, 240).decode().splitlines():
                verdict, _, rest = line.partition(" ")
                name, _, why = rest.partition(": ")
                results.note(f"amqp, pika: {name.replace('-', ' ')}", None if verdict == "ok" else why)
            for name, command in amqp_commands().items():
                if name not in missing:
                    words = [*command, f"amqp://guest:guest@{broker.amqp}/%2f", str(count)]
                    results.step(f"amqp, {name}: {count} messages", lambda words=words: call(words, 180))
            if "franz-go" not in missing:
                words = [str(PYTHON), str(HERE / "amqp/together.py"), broker.amqp, broker.bootstrap, str(CACHE / "franz-go"), str(count)]
                results.step("amqp: a queue is worked off by AMQP consumers and a share group together", lambda: call(words, 120))
            results.step("amqp, Celery: pool, results, retries, tasks for later, control, events",
                         lambda: call([str(PYTHON), str(HERE / "amqp/celery_works.py"), broker.amqp], 300))
        except Exception as error:
            results.note("amqp, pika: small cases", str(error) or type(error).__name__)
        finally:
            status = broker.end(signal.SIGTERM)
        results.note("amqp: the broker ends with status 0 on SIGTERM", None if status == 0 else f"status {status}")
