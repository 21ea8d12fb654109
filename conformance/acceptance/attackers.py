"""Clients that behave well beside attackers of all kinds at once, at a small budget of memory. `attackers.py BINARY [KIND...]` tries kinds alone."""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from machine import HERE, ROOT, Folder, Mainstem, Steal

sys.path.append(str(HERE.parent / "amqp"))
sys.path.append(str(HERE.parent / "peers"))
from security import Certificates
from driver.broker import free_port

MEMORY_MIB = 256
RESIDENT_MIB = 350
UNDISTURBED_S, ELSEWHERE_S, ATTACK_S = 60, 60, 300
RATIO, LONGEST_MS = 5, 1000
# Connections that are closed by a deadline are so this much later, at the most.
LATE_S = 15
# After the attack.
REST_S = 30
IN_MEMORY = "/dev/shm"
PROTOCOLS = ("kafka", "amqp", "http")
SETTINGS = ("sasl.enabled.mechanisms=PLAIN", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer")
TOPIC, GROUP, CLUSTER = 2, 3, 4
ALL, READ, DESCRIBE = 2, 3, 8
LITERAL, PREFIXED, ALLOW = 3, 4, 3


class Node:
    """A broker as an operator would have it: users, an authorizer, TLS. `good` and `greedy` may do everything with what has their name in front, `nobody` may
    do nothing."""

    def __init__(self, folder, binary):
        from attackers_load import PASSWORDS
        self.passwords = PASSWORDS
        certificates = Certificates(folder)
        certificate, key = certificates.server()
        self.ports = {name: free_port() for name in ("sasl", "sasl_ssl", "amqps")}
        secret = Path(folder) / "password"
        secret.write_text(PASSWORDS["admin"] + "\n")
        secret.chmod(0o600)
        settings = (f"listeners=SASL_PLAINTEXT://127.0.0.1:{self.ports['sasl']},SASL_SSL://127.0.0.1:{self.ports['sasl_ssl']}", *SETTINGS)
        self.mainstem = Mainstem(f"{folder}/data", "--memory", f"{MEMORY_MIB}MiB", "--tls-certificate", certificate, "--tls-key", key, "--amqps",
                                 f"127.0.0.1:{self.ports['amqps']}", "--default-user", "admin", "--default-pass-file", str(secret),
                                 *(word for one in settings for word in ("--set", one)), binary=binary)
        broker = self.mainstem.broker
        self.targets = {**self.ports, "kafka": broker.kafka, "amqp": int(broker.amqp.rsplit(":", 1)[1]), "http": broker.admin}

    def start(self):
        self.mainstem.start()
        try:
            self.set_up()
        except BaseException:
            self.mainstem.stop(signal.SIGKILL)
            raise
        return self

    def set_up(self):
        """Users, what they may, topics and queues."""
        for user, tags in (("good", ["management"]), ("greedy", ["management"]), ("nobody", [])):
            self.http("PUT", f"/v1/users/{user}", {"password": self.passwords[user], "tags": tags})
        for user in ("good", "greedy"):
            self.http("PUT", f"/v1/users/{user}/permissions/%2F", {name: f"^({user}.*|amq\\.default)$" for name in ("configure", "write", "read")})
        ask = Asker(self.targets["sasl"], "admin")
        both = [(f"User:{user}", kind, user, PREFIXED, ALL) for user in ("good", "greedy") for kind in (TOPIC, GROUP)]
        # The group for which queues are worked off.
        queues = [(f"User:{user}", GROUP, "amqp.queue", LITERAL, READ) for user in ("good", "greedy")]
        entries = [{"principal": principal, "resource_type": kind, "resource_name": name, "resource_pattern_type": pattern, "operation": operation, "host": "*",
                    "permission_type": ALLOW} for principal, kind, name, pattern, operation in [*both, *queues, ("User:greedy", CLUSTER, "kafka-cluster", LITERAL, DESCRIBE)]]
        ask("CreateAcls", 3, {"creations": entries})
        names = {"good-topic": 1, "good-http": 1, "greedy-wide": 100, "greedy-one": 1, "greedy-bombs": 1, "greedy-stream": 1, "greedy-unsettled": 1, "greedy-data": 10}
        made = ask("CreateTopics", 5, {"timeout_ms": 30_000, "topics": [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in names.items()]})
        assert not any(one["error_code"] for one in made["topics"]), made
        ask.close()
        ask = Asker(self.targets["sasl"], "greedy")
        ask("OffsetCommit", 2, {"group_id": "greedy-offsets", "generation_id_or_member_epoch": -1, "member_id": "", "topics": [{"name": "greedy-wide", "partitions": [
            {"partition_index": at, "committed_offset": 1} for at in range(100)]}]})
        self.fill(ask)
        ask.close()
        for queue, more in (("greedy-bombs", {}), ("greedy-unsettled", {}), ("greedy-queue", {}), ("good-queue", {}), ("greedy-stream", {"arguments": {"x-queue-type": "stream"}})):
            self.http("PUT", f"/v1/queues/%2F/{queue}", {"durable": True, **more}, user=queue.split("-")[0])

    def fill(self, ask):
        """What attackers read: 100 MB, and batches that unpack to 240 MiB each, from before there was a queue."""
        import attackers_load
        from batch import batch
        large, bomb = batch([os.urandom(100_000)]), attackers_load.bomb(240 << 20)
        for topic, count, times, data in (("greedy-data", 10, 100, large), ("greedy-bombs", 1, 8, bomb), ("greedy-stream", 1, 8, bomb)):
            for _ in range(times):
                parts = [{"index": at, "records": data} for at in range(count)]
                answer = ask("Produce", 7, {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": parts}]})
                assert not any(one["error_code"] for one in answer["responses"][0]["partition_responses"]), answer

    def http(self, method, path, body=None, user="admin"):
        from attackers_load import http as head_of
        link = http.client.HTTPConnection("127.0.0.1", self.targets["http"], timeout=30)
        try:
            head = dict(line.split(": ", 1) for line in head_of(user, method, path).decode().split("\r\n")[2:] if line)
            link.request(method, path, None if body is None else json.dumps(body), {**head, "Content-Type": "application/json"})
            answer = link.getresponse()
            data = answer.read()
            assert answer.status in (200, 201, 204), f"{method} {path}: {answer.status} {data[:300]}"
            return data
        finally:
            link.close()

    def resident(self):
        """Bytes by what they are: of the process alone, and of files."""
        lines = Path(f"/proc/{self.mainstem.pid}/status").read_text().splitlines()
        return {name: int(line.split()[1]) << 10 for line in lines for name in ("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem") if line.startswith(name + ":")}

    def forget_peak(self):
        Path(f"/proc/{self.mainstem.pid}/clear_refs").write_text("5\n")

    def accounts(self):
        """What is counted of memory, in MB, and connections that were closed, by the reason."""
        metrics = self.mainstem.metrics()
        memory = {name.removeprefix("mainstem_memory_").removesuffix("_bytes"): round(value / 1e6, 1) for name, value in metrics.items()
                  if name.startswith("mainstem_memory_") and "_bytes" in name and value >= 1e5}
        closed = {name.split('"')[1]: int(value) for name, value in metrics.items() if name.startswith("mainstem_connections_closed_total{") and value}
        return {"memory_mb": memory, "closed": closed}


class Asker:
    """Asks as somebody who has logged in."""

    def __init__(self, port, user):
        from client import Connection
        from attackers_load import PASSWORDS
        self.link = Connection(("127.0.0.1", port))
        self("SaslHandshake", 1, {"mechanism": "PLAIN"})
        answer = self("SaslAuthenticate", 1, {"auth_bytes": f"\0{user}\0{PASSWORDS[user]}".encode()})
        assert answer["error_code"] == 0, answer
        self.close = self.link.close

    def __call__(self, name, version, body):
        self.link.request(name, version, body)
        return self.link.response(name, version)


class Bystanders:
    """Those who behave well, a process for each protocol."""

    def __init__(self, node):
        self.programs = {name: subprocess.Popen([sys.executable, str(HERE / "bystanders.py"), json.dumps(node.targets), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                         for name in PROTOCOLS}

    def ask(self, word):
        for program in self.programs.values():
            program.stdin.write(word + "\n")
            program.stdin.flush()
        return {name: json.loads(program.stdout.readline() or '{"faults": ["it has ended"]}') for name, program in self.programs.items()}

    def over(self, seconds):
        """Rows of a time; what went wrong in it."""
        self.ask("begin")
        time.sleep(seconds)
        told = self.ask("end")
        return {what: row for one in told.values() for what, row in one.get("rows", {}).items()}, [fault for one in told.values() for fault in one["faults"]]

    def stop(self):
        for program in self.programs.values():
            program.kill()
            program.wait()


class Attackers:
    """All kinds, each a process at niceness 19."""

    def __init__(self, node, kinds, seconds):
        command = ["nice", "-n", "19", sys.executable, str(HERE / "attackers_load.py"), json.dumps(node.targets)]
        self.programs = {kind: subprocess.Popen([*command, kind, str(seconds)], stdout=subprocess.PIPE, text=True) for kind in kinds}

    def rows(self):
        out = []
        for kind, program in self.programs.items():
            lines = program.communicate(timeout=120)[0].splitlines()
            out += json.loads(lines[-1]) if lines else [{"sort": kind, "failed": "the attacker has ended", "deadline_s": None}]
        return out

    def stop(self):
        for program in self.programs.values():
            if program.poll() is None:
                program.kill()
            program.wait()


class Watch:
    """The most that was resident, looked at five times a second, by what it is."""

    def __init__(self, node):
        self.node, self.most, self.ended = node, {}, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.ended.wait(0.2):
            for name, value in self.node.resident().items():
                self.most[name] = max(self.most.get(name, 0), value)

    def __enter__(self):
        self.node.forget_peak()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def mib(found):
    return {name: round(value / (1 << 20), 1) for name, value in found.items()}


def under_attack(node, bystanders, kinds, seconds, at=None):
    """What bystanders of `node` saw while attackers were at it, or at another one; what they left at the node; what each sort of attackers did."""
    before = node.mainstem.cpu()
    attackers = Attackers(at or node, kinds, seconds + 3)
    try:
        time.sleep(3)
        with Watch(node) as watch:
            rows, faults = bystanders.over(seconds)
        return rows, faults, watch.most, attackers.rows(), round(node.mainstem.cpu() - before, 1)
    finally:
        attackers.stop()


def attackers(report):
    """Clients that behave well (Kafka: 100 single records a second with `acks=all`, and their fetch; AMQP: 100 messages a second with confirms, and their delivery; HTTP: `/health`, a topic
    and a record each 20 times a second) beside sixteen kinds of attackers at once (`conformance/acceptance/attackers_load.py`): announced frames of 60 MiB, slow ones, fetch sessions of 16 MiB, JoinGroup with 60,000
    protocols, batches that unpack 300-fold with timestamps out of range, repeated names, descriptions of what is named 100,000 times, nested JSON of 8 and 63 MiB, slow bodies, batches that unpack to 240 MiB, 60 channels of
    unfinished messages, transactions of 64 MiB, 3,000,000 unsettled messages, groups and queues without an end, 3,000 half logins, handshakes and heads, and clients that read no answer. The broker has 256 MiB, users, an authorizer and
    TLS, its data in memory; attackers are at niceness 19, each process sends 16 MiB a second at most. Three times are compared: nobody else, the same attackers at a
    second broker of the same kind, which share the processors and nothing else, and the attackers at the broker."""
    from attackers_load import KINDS
    steal = Steal()
    with Folder(IN_MEMORY) as folder, Folder(IN_MEMORY) as other:
        node = Node(folder, ROOT / "target/release/mainstem").start()
        try:
            bystanders = Bystanders(node)
            try:
                time.sleep(10)
                alone, faults = bystanders.over(report.amount(UNDISTURBED_S))
                report.note(alone=alone, faults=faults, resident_mib=mib(node.resident()), **node.accounts())
                elsewhere = shared(report, node, bystanders, other, list(KINDS))
                before = node.resident()
                rows, faults, most, done, cpu = under_attack(node, bystanders, list(KINDS), report.amount(ATTACK_S))
                report.note(attack=rows, faults=faults, cpu_s=cpu, resident_mib=mib(most), **node.accounts())
                for row in done:
                    report.note(**row)
                judge_memory(report, node, before, most)
                judge_waits(report, alone, elsewhere, rows, faults)
                judge_ends(report, done)
                ends = bystanders.ask("stop")
                report.note(ends=ends)
                judge_lost(report, ends)
            finally:
                bystanders.stop()
        finally:
            node.mainstem.stop()
    report.note(steal_percent=steal.percent())


def shared(report, node, bystanders, folder, kinds):
    """Rows of bystanders while attackers are at another broker."""
    other = Node(folder, ROOT / "target/release/mainstem").start()
    try:
        rows, faults, _, _, _ = under_attack(node, bystanders, kinds, report.amount(ELSEWHERE_S), at=other)
        report.note(attackers_elsewhere=rows, faults=faults)
        return rows
    finally:
        other.mainstem.stop(signal.SIGKILL)


def judge_memory(report, node, before, most):
    resident = most["VmHWM"] / (1 << 20)
    report.judge("resident memory, the most", round(resident, 1), f"<= {RESIDENT_MIB} MiB", resident <= RESIDENT_MIB, " MiB")
    report.judge("of it anonymous, and of files", f"{most['RssAnon'] >> 20} and {most['RssFile'] >> 20} MiB", "reported", None)
    time.sleep(REST_S)
    after = node.resident()
    report.note(after_rest=mib(after), **node.accounts())
    back = after["VmRSS"] <= max(1.25 * before["VmRSS"], MEMORY_MIB << 20)
    report.judge(f"resident {REST_S} s after the attack, and before it", f"{after['VmRSS'] >> 20} and {before['VmRSS'] >> 20} MiB", f"<= {MEMORY_MIB} MiB", back)


def judge_waits(report, alone, elsewhere, rows, faults):
    table = [(what, *(f"{some[what][key]:g}" if what in some else "-" for some in (alone, elsewhere, rows) for key in ("p50_ms", "p99_ms", "max_ms"))) for what in rows]
    report.table("Milliseconds: alone, with attackers at another broker, with attackers", ["what", *(f"{name} {when}" for when in ("alone", "elsewhere", "attacked") for name in ("p50", "p99", "longest"))], table)
    for what, row in rows.items():
        ratio, against = (row["p99_ms"] / some[what]["p99_ms"] for some in (alone, elsewhere))
        report.judge(f"{what}: p99 / alone", round(ratio, 2), f"<= {RATIO}", ratio <= RATIO)
        report.judge(f"{what}: p99 / with attackers at another broker", round(against, 2), "reported", None)
        report.judge(f"{what}: longest", row["max_ms"], f"<= {LONGEST_MS} ms", row["max_ms"] <= LONGEST_MS, " ms")
    report.judge("requests of bystanders that failed", "; ".join(map(str, faults)) or "none", "none", not faults)


def judge_ends(report, done):
    for row in done:
        if row["deadline_s"]:
            ended = row["oldest_s"] <= row["deadline_s"] + LATE_S
            report.judge(f"{row['sort']}: oldest connection", row["oldest_s"], f"<= {row['deadline_s']} s, {LATE_S} s late at most", ended, " s")


def judge_lost(report, ends):
    for protocol, end in ends.items():
        lost, ordered = end.get("lost", -1), end.get("in_order_and_once", False)
        report.judge(f"{protocol}: acknowledged, lost, each once and in order", f"{end.get('acknowledged', 0)}, {lost}, {'yes' if ordered else 'no'}", "0 lost, yes", lost == 0 and ordered)


def main():
    """Kinds alone, each at the same broker: which one costs what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--rows", action="store_true", help="what each sort of connections did")
    chosen = parser.parse_args()
    from attackers_load import KINDS
    kinds = chosen.kinds or list(KINDS)
    with Folder(IN_MEMORY) as folder:
        node = Node(folder, chosen.binary).start()
        bystanders = Bystanders(node)
        try:
            time.sleep(3)
            for some in [[], [*kinds]] if chosen.together else [[], *([one] for one in kinds)]:
                rows, faults, most, done, cpu = under_attack(node, bystanders, some, chosen.seconds)
                print(f"\n{' '.join(some) or 'nobody'}: {mib(most)} MiB, broker {cpu} s of CPU; after: {mib(node.resident())['VmRSS']}", flush=True)
                print("  " + "; ".join(f"{what}: {row['p50_ms']:g} {row['p99_ms']:g} {row['max_ms']:g}" for what, row in rows.items()))
                if faults:
                    print("  faults:", faults)
                if chosen.rows:
                    print(*(f"  {row}" for row in done), f"  {node.accounts()}", sep="\n", flush=True)
            print(json.dumps(bystanders.ask("stop")))
        finally:
            bystanders.stop()
            node.mainstem.stop()


if __name__ == "__main__":
    main()
