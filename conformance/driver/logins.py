"""Clients that have to log in. Used by the driver."""

import json
import subprocess

from driver.install import HERE, PYTHON, amqp_commands, commands

CLIENTS = ("confluent-kafka", "kafka-python", "java", "franz-go")


def run(results, binary, missing):
    clients = {name: command for name, command in commands().items() if name in CLIENTS and name not in missing}
    for name in set(CLIENTS) - set(clients):
        results.note(f"logins: {name}", "the client is missing")
    of_rabbitmq = {name: command for name, command in amqp_commands().items() if name == "amqp091-go" and name not in missing}
    each_case(results, "logins", begin("works", binary, clients))
    # The first has figures of time; these wait more than they work.
    begun = [(what, begin(what, binary, clients | more)) for what, more in (("acls", {}), ("tokens", {}), ("secured", of_rabbitmq))]
    for what, process in begun:
        each_case(results, what, process)


def begin(program, binary, clients):
    return subprocess.Popen([str(PYTHON), str(HERE / f"logins/{program}.py"), str(binary), json.dumps(clients)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def each_case(results, what, process):
    try:
        out, errors = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        results.note(what, "it does not end")
    lines = out.decode(errors="replace").splitlines()
    for line in lines:
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        if verdict == "#":
            print("      " + rest.strip(), flush=True)
        else:
            results.note(f"{what}: {name.replace('-', ' ')}", None if verdict == "ok" else why)
    if not lines:
        results.note(what, errors.decode(errors="replace")[-400:])
