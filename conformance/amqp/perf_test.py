"""RabbitMQ's PerfTest with the options that people use: confirms, several queues, prefetch, acknowledgements together, transactions, kinds
of queues, a rate, sizes and priorities. A run with counts ends when its consumers have had so many messages; one with a time says its rates.
Arguments: HOST:PORT, the folder of PerfTest's jars."""

import re
import subprocess
import sys

LIMIT = 60
RUNS = {
    "confirms, persistent": "-x 2 -y 1 -u {name} -c 100 -q 50 -s 1000 -f persistent -C 1000 -D 2000",
    "a quorum queue, acknowledged ten at a time": "-x 1 -y 1 --quorum-queue -u {name} -A 10 -q 100 -c 10 -C 1000 -D 1000",
    "transactions of both sides": "-x 1 -y 1 -u {name} -ad false -m 20 -n 20 -C 1000 -D 1000",
    "a stream": "-x 1 -y 1 --stream-queue -u {name} -c 100 -q 100 -C 1000 -D 1000",
    "priorities and arguments": "-x 1 -y 1 -u {name} -qa x-max-priority=5,x-max-length=100000 -mp priority=3,contentType=text/plain "
                                "-C 1000 -D 1000",
}
RATE = "-x 3 -y 3 -qp {name}-%d -qpf 1 -qpt 3 -e {name} -t topic -r 300 -s 4000 -q 20 -c 50 -z 3"


def perf_test(address, jars, options):
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", "com.rabbitmq.perf.PerfTest",
               "-H", f"amqp://guest:guest@{address}/%2f", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, f"status {done.returncode}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
    return done.stdout


def main(address, jars):
    for number, (what, options) in enumerate(RUNS.items()):
        out = perf_test(address, jars, options.format(name=f"perf-test-{number}"))
        assert re.search(r"receiving rate avg: [1-9]", out), f"{what}: {out[-300:]}"
        print(what)
    out = perf_test(address, jars, RATE.format(name="perf-test-rate"))
    rates = {side: int(rate) for side, rate in re.findall(r"(sending|receiving) rate avg: (\d+) msg/s", out)}
    assert rates.keys() == {"sending", "receiving"}, out[-300:]
    # 3 times 300 a second, less what the JVM needs to begin.
    assert 400 < rates["sending"] < 2_000 and rates["receiving"] > 0.9 * rates["sending"], rates
    print(f"a rate, three queues: {rates}")


if __name__ == "__main__":
    main(*sys.argv[1:])
