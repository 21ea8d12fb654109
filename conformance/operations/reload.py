"""The configuration file of a running broker changes: what is dynamic is in force for a real client at once, what is not is named, what is wrong changes nothing
and is named with its line, also where files of TLS have changed with it. By SIGHUP and over the administration port. Argument: the binary."""

import signal
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from load import Broker, free_port


def partitions(broker, name):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, -1)])[name].result(10)
    return len(admin.list_topics(name, timeout=10).topics[name].partitions)


def certify(folder, name):
    """A certificate and a key in the place of those that are there."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-keyout", f"{folder}/key", "-out", f"{folder}/certificate"], check=True, capture_output=True)
    return Path(folder, "certificate").read_text().strip()


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="mainstem-reload-") as scratch:
        file = Path(scratch, "mainstem.toml")

        def configure(count, more=""):
            file.write_text(f'log = "text"\n{more}\n[settings]\n# Of new topics.\nnum.partitions = {count}\n')

        def reload():
            done = subprocess.run([binary, "reload", "--admin", f"127.0.0.1:{broker.admin}"], capture_output=True, text=True, timeout=30)
            return done.returncode, done.stdout + done.stderr

        def expect(what, found, wanted):
            if found != wanted:
                raise RuntimeError(f"{what}: {found} instead of {wanted}; {broker.log_lines()[-2:]}")

        configure(3)
        first, port = certify(scratch, "first"), free_port()
        flags = ["--kafka-tls", f"127.0.0.1:{port}", "--tls-certificate", f"{scratch}/certificate", "--tls-key", f"{scratch}/key"]
        broker = Broker(binary, f"{scratch}/data", ["--config", str(file), *flags]).start()

        def served():
            return ssl.get_server_certificate(("127.0.0.1", port)).strip()

        try:
            expect("at the start", partitions(broker, "one"), 3)
            configure(5, 'memory = "128MiB"')
            status, said = reload()
            expect("reload", (status, "num.partitions = 5" in said, "--memory" in said), (0, True, True))
            expect("after it", partitions(broker, "two"), 5)
            for more, count, word in [("", "many", "line 5"), ("colour = 1", 7, "line 2"), ("memory = 7", 7, "line 2"), ("nonsense", 7, "line 2")]:
                configure(count if count == 7 else f'"{count}"', more)
                status, said = reload()
                expect(f"{more} {count}: {said}", (status, word in said, str(file) in said), (1, True, True))
                expect("nothing has changed", partitions(broker, f"topic-{abs(hash(more))}"), 5)
            second = certify(scratch, "second")
            with open(file, "a") as more:
                more.write("log.cleaner.min.compaction.lag.ms = 10\nlog.cleaner.max.compaction.lag.ms = 5\n")
            status, said = reload()
            expect(f"lags that do not fit: {said}", (status, "at most log.cleaner.max" in said), (1, True))
            expect("the certificate after a refusal is the first", served() == first, True)
            configure(2)
            broker.process.send_signal(signal.SIGHUP)
            deadline = time.time() + 5
            while time.time() < deadline and partitions(broker, f"topic-{time.time_ns()}") != 2:
                time.sleep(0.1)
            expect("after SIGHUP", partitions(broker, "last"), 2)
            expect("the certificate is the second", served() == second, True)
            print("dynamic settings are in force at once, wrong files are refused with their line")
        finally:
            broker.end(signal.SIGTERM)


main()
