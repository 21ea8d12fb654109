#!/usr/bin/env python3
"""Others who use the broker while a row is measured, in a process of their own: how long each has waited at the most. `waits.py KAFKA AMQP ADMIN USER
PASSWORD`; on `begin` it forgets, on `end` it prints the longest waits in seconds, by who waited, also of what is still under way. `nobody` asks no
broker: what it waits is what this machine and this program add to the others' waits."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
PAUSE = 0.002
# Connections to the Kafka port, so that some are on the thread of the row and some on others.
LINKS = 4


class Waiter:
    """Asks again and again."""

    def __init__(self, who, make):
        self.who, self.make, self.longest, self.began = who, make, 0.0, None
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                ask = self.make()
                while True:
                    self.began = time.monotonic()
                    ask()
                    self.longest = max(self.longest, time.monotonic() - self.began)
                    self.began = None
                    time.sleep(PAUSE)
            except Exception:
                time.sleep(0.05)

    def now(self):
        began = self.began
        return max(self.longest, time.monotonic() - began if began else 0.0)


def main():
    kafka, amqp, admin, user, password = sys.argv[1:]
    import links

    def address(text):
        host, port = text.rsplit(":", 1)
        return host, int(port)

    def version():
        ask = links.kafka_asker(address(kafka))
        return lambda: ask("ApiVersions", 0, {})

    def group():
        ask = links.kafka_asker(address(kafka))
        joined = ask("JoinGroup", 5, {"group_id": "bystander", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 1_000, "member_id": "", "group_instance_id": "b",
                                      "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]})
        ask("SyncGroup", 3, {"group_id": "bystander", "generation_id": joined["generation_id"], "member_id": joined["member_id"], "group_instance_id": "b",
                             "assignments": [{"member_id": joined["member_id"], "assignment": b""}]})
        return lambda: ask("Heartbeat", 3, {"group_id": "bystander", "generation_id": joined["generation_id"], "member_id": joined["member_id"], "group_instance_id": "b"})

    def queue():
        import amqp_rows
        import wire
        link = links.Amqp(address(amqp), 1)
        link.exchange(wire.frame(wire.METHOD, 1, wire.method("queue.declare", queue="bystander")))
        both = amqp_rows.message(1, {"routing_key": "bystander"}) + wire.frame(wire.METHOD, 1, wire.method("basic.get", queue="bystander", no_ack=True))
        return lambda: link.exchange(both)

    def web():
        link = links.Http(int(admin), user, password)
        return lambda: link.json("GET", "/v1/vhosts")

    waiters = [Waiter(f"connection {number}", version) for number in range(LINKS)]
    waiters += [Waiter("group", group), Waiter("queue", queue), Waiter("http", web), Waiter("nobody", lambda: lambda: time.sleep(PAUSE))]
    for line in sys.stdin:
        if line.strip() == "begin":
            for one in waiters:
                one.longest, one.began = 0.0, one.began and time.monotonic()
            print("{}", flush=True)
        else:
            print(json.dumps({one.who: round(one.now(), 4) for one in waiters}), flush=True)


class Waits:
    """The other side: starts the program and asks it."""

    def __init__(self, broker, user, password):
        words = [broker.bootstrap, broker.amqp, str(broker.admin), user, password]
        self.program = subprocess.Popen([sys.executable, str(HERE / "waits.py"), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        time.sleep(1)
        self.begin()

    def ask(self, word):
        self.program.stdin.write(word + "\n")
        self.program.stdin.flush()
        return json.loads(self.program.stdout.readline() or "{}")

    def begin(self):
        self.ask("begin")

    def end(self):
        told = self.ask("end")
        links = [told.pop(f"connection {number}", 0.0) for number in range(LINKS)]
        return {"same thread": max(links), "another thread": min(links), **told}

    def stop(self):
        self.program.kill()
        self.program.wait()


if __name__ == "__main__":
    main()
