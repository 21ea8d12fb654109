"""Kafka clients that have to log in. Used by the driver."""

import json
import subprocess

from driver.install import HERE, PYTHON, commands

CLIENTS = ("confluent-kafka", "kafka-python", "java", "franz-go")


def run(results, binary, missing):
    clients = {name: command for name, command in commands().items() if name in CLIENTS and name not in missing}
    for name in set(CLIENTS) - set(clients):
        results.note(f"logins: {name}", "the client is missing")
    for program, what in (("works", "logins"), ("acls", "acls")):
        each_case(results, HERE / f"logins/{program}.py", what, binary, clients)


def each_case(results, program, what, binary, clients):
    done = subprocess.run([str(PYTHON), str(program), str(binary), json.dumps(clients)], capture_output=True, timeout=300)
    lines = done.stdout.decode(errors="replace").splitlines()
    for line in lines:
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        if verdict == "#":
            print("      " + rest.strip(), flush=True)
        else:
            results.note(f"{what}: {name.replace('-', ' ')}", None if verdict == "ok" else why)
    if not lines:
        results.note(what, done.stderr.decode(errors="replace")[-400:])
