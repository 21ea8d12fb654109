"""AMQP 0-9-1: small cases with RabbitMQ's clients, and queues under kills. Used by the driver."""

import signal
import tempfile

from driver.broker import Broker
from driver.install import HERE, PYTHON
from driver.results import call


def run(results, binary, seconds):
    cases(results, binary)
    for durability in ("fsync", "memory"):
        command = [str(PYTHON), str(HERE / "amqp/survive.py"), str(binary), str(seconds), durability]
        results.step(f"queues lose nothing that was confirmed while the broker is killed, class {durability}",
                     lambda command=command: print("      " + call(command, seconds + 240).decode().strip().replace("\n", "\n      "), flush=True))


def cases(results, binary):
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        broker = Broker(binary, f"{scratch}/data").start()
        try:
            command = [str(PYTHON), str(HERE / "amqp/cases.py"), broker.amqp, "--kafka", broker.bootstrap]
            for line in call(command, 240).decode().splitlines():
                verdict, _, rest = line.partition(" ")
                name, _, why = rest.partition(": ")
                results.note(f"amqp, pika: {name.replace('-', ' ')}", None if verdict == "ok" else why)
        except Exception as error:
            results.note("amqp, pika: small cases", str(error) or type(error).__name__)
        finally:
            status = broker.end(signal.SIGTERM)
        results.note("amqp: the broker ends with status 0 on SIGTERM", None if status == 0 else f"status {status}")
