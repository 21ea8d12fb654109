"""Persistent messages, confirmed and acknowledged, side by side with the real RabbitMQ: the benchmark's experiments, judged; how often each
system flushes; and what RabbitMQ's own tool says of both."""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path

from driver import install
from machine import PEER, ROOT, Folder, Mainstem, RabbitMQ, Unfinished
from power import device_flushes

BENCH = ROOT / "target/release/mainstem-bench"
STORE = ROOT / "target/acceptance/queues-peer"
OURS, THEIRS = "mainstem-amqp", "rabbitmq"
QUEUE_OF = {"memory": "classic", "fsync": "quorum"}
ASYNC_TIMES, OF_CEILING = 8.0, 0.8
CPU_MOST = 1 / 5
# At least so many times RabbitMQ, and at most so much of its p99.
EACH_TIMES = {"memory": 1.5, "fsync": 2.0}
HUNDRED_TIMES = {"fsync": 5.0}
P99_MOST = {"memory": 1 / 3, "fsync": 1 / 2}
# Of the separate run that counts flushes: workload and a name for it.
COUNTED = [("asynchronous, window 1,000", dict(confirm="async", window=1000)), ("one at a time", dict(confirm="each")),
           ("100 publishers one at a time", dict(confirm="each", producersPerTopic=100))]
FLUSHING = "fsync,fdatasync,sync,syncfs,sync_file_range,msync,pwritev2"
# PerfTest's options: one publisher, one consumer that acknowledges 125 at once, as the benchmark's does.
PERF_TEST = [("asynchronous, window 1,000", "-c 1000 -A 125"), ("one at a time", "-c 1")]
PERF_SECONDS = 12
# A start of one system with its runs, about: what does not fit into the time that is left is not begun.
SESSION_SECONDS = 400
# Of both systems' brokers and clients together.
CORES = {0, 1}


def queues_peer(report):
    """Messages of 1,000 bytes, persistent, confirmed, consumed and acknowledged, on two cores: Mainstem's `memory` beside RabbitMQ's durable
    classic queue, its `fsync` beside a quorum queue of one member. All by the benchmark's client (lapin), `mainstem-bench compare queues
    confirm-modes confirm-threads --scale graded`: alternating, three pairs (`confirm-threads`: one), medians, ranges in brackets. Asynchronous
    confirms by windows of 100, 1,000 and 10,000, over one queue and over ten; the best of each system is compared. The ceiling is the same
    client, publishing and consuming, against a broker that hands messages on and keeps nothing, measured in each pair: the highest of all windows.
    CPU is the broker's, of a message published and consumed; it is judged at full speed, that at half of RabbitMQ's peak stands in the
    tables. Results stay in `target/acceptance/queues-peer`; with `--minutes` a call ends early, and the next goes on there."""
    os.sched_setaffinity(0, CORES & os.sched_getaffinity(0))
    store = STORE if report.scale == 1.0 else STORE.with_name("queues-peer-brief")
    store.mkdir(parents=True, exist_ok=True)
    clock, began = store / "seconds.txt", time.time()
    report.earlier_seconds = float(clock.read_text()) if clock.exists() else 0
    try:
        compared(report, store)
        beside = besides(report, store)
    except Unfinished:
        clock.write_text(f"{report.earlier_seconds + time.time() - began:.0f}")
        raise
    runs = runs_of(store)
    report.note(peer=version_of(runs), broker=next(run["target"]["version"] for run in runs if run["target"]["name"] == OURS))
    whole(report, runs)
    queues = [run for run in runs if run["experiment"] == "queues"]
    for durability in QUEUE_OF:
        judged(report, queues, durability)
    windows_table(report, queues)
    for ours, theirs in [("fsync", "memory"), ("memory", "fsync")]:
        across(report, queues, ours, theirs)
    for experiment in ("confirm-modes", "confirm-threads"):
        experiment_table(report, runs, experiment)
    flush_table(report, beside)
    perf_table(report, beside)


def compared(report, store):
    """Makes what is not there yet of the benchmark's runs."""
    scale = "graded" if report.scale == 1.0 else "quick"
    for experiment, pairs in [("queues", 3), ("confirm-modes", 3), ("confirm-threads", 1)]:
        words = [BENCH, "compare", experiment, "--scale", scale, "--pairs", pairs if scale == "graded" else 1, "--targets", f"{OURS},{THEIRS}",
                 "--out", store, "--scratch", ROOT / "target/bench-scratch", "--peers", PEER.parent, "--mainstem", broker_binary()]
        left = report.seconds_left()
        if left is not None:
            if left < SESSION_SECONDS:
                raise Unfinished(f"before {experiment}")
            words += ["--minutes", round(left / 60, 2)]
        said = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout
        print(said, end="", flush=True)
        if open_starts := re.search(r"^(\d+) starts are left", said, re.MULTILINE):
            raise Unfinished(f"{open_starts[1]} starts of {experiment} are left")


def runs_of(store):
    return [json.loads(path.read_text()) for path in sorted(store.glob("*/*/*.json")) if not path.name.endswith(".omb.json")]


def version_of(runs):
    run = next(run for run in runs if run["target"]["name"] == THEIRS)
    return f"RabbitMQ {run['target']['version']}, {run['target']['variant']}"


def whole(report, runs):
    wrong = [run for run in runs if run["stopped"] or not run["verdict"]["valid"] or run["verdict"]["complete"] is False]
    said = [f"{run['target']['name']} {run['variation']} pair {run['pair']}: {run['stopped'] or '; '.join(run['verdict']['remarks'])}" for run in wrong]
    report.note(runs=len(runs), not_valid_or_not_complete=said)
    ours = [run for run in runs if run["target"]["name"] == OURS]
    lost = [run for run in ours if run["verdict"]["complete"] is False]
    report.judge(f"runs of Mainstem in which a message was lost or repeated, of {len(ours)}", len(lost), "0", not lost)


# What a run was asked, and what it gave.

def kind(run):
    """async, each, hundred or half."""
    workload = run["workload"]
    if workload.get("rateOfSlowestPeak"):
        return "half"
    if workload["confirm"] == "async":
        return "async"
    return "each" if workload["producersPerTopic"] == 1 else "hundred"


def rate(run):
    return run["measured"]["publish_rate"]


def cpu_us(run):
    """Microseconds of the broker's processor time for a message."""
    return run["broker"]["cpu_s"] / run["measured"]["published"] * 1e6


def p99(run):
    return run["measured"]["end_to_end_latency"]["p99_ms"]


def usable(runs, target, durability, what):
    return [run for run in runs if run["target"]["name"] == target and run["target"]["durability"] == durability and kind(run) == what
            and run["verdict"]["valid"] and not run["stopped"]]


def best(runs):
    """The runs of the variation with the highest median rate: (its label, runs by pair)."""
    by_label = {}
    for run in runs:
        by_label.setdefault(run["variation"], {})[run["pair"]] = run
    label = max(by_label, key=lambda label: statistics.median(rate(run) for run in by_label[label].values()))
    return label, by_label[label]


def ratios(ours, theirs, figure):
    return [figure(ours[pair]) / figure(theirs[pair]) for pair in sorted(ours.keys() & theirs.keys())]


def of_pairs(values, text):
    """Median, and the range."""
    middle = text(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({text(min(values))}–{text(max(values))})"


def times(values):
    return of_pairs(values, lambda value: f"{value:.2f}")


def thousands(value):
    return f"{value / 1000:.1f}k" if value < 20_000 else f"{value / 1000:.0f}k"


def rates(runs):
    return of_pairs([rate(run) for run in runs], thousands)


def window_of(run):
    workload = run["workload"]
    return f"{workload['window']:,}, {'10 queues' if workload['topics'] == 10 else '1 queue'}"


def judged(report, queues, durability):
    what, queue = f"`{durability}`", f"{QUEUE_OF[durability]} queue"
    ours, theirs = (usable(queues, target, durability, "async") for target in (OURS, THEIRS))
    _, our_best = best(ours)
    _, their_best = best(theirs)
    window = f"window {window_of(next(iter(our_best.values())))}"
    ceilings = {pair: max(run["generator"]["ceiling_rate"] or 0 for run in ours if run["pair"] == pair) for pair in our_best}
    factor = ratios(our_best, their_best, rate)
    share = [rate(run) / ceilings[pair] for pair, run in our_best.items()]
    holds = statistics.median(factor) >= ASYNC_TIMES or statistics.median(share) >= OF_CEILING
    value = f"{times(factor)}; {times(share)} of {thousands(max(ceilings.values()))}/s ({window})"
    bound = f">= {ASYNC_TIMES:g}, or share >= {OF_CEILING:g}"
    report.judge(f"{what}, asynchronous: times {queue}; share of the client's ceiling", value, bound, holds)
    report.note(durability=durability, asynchronous_best_window=dict(ours=window, theirs=window_of(next(iter(their_best.values())))),
                ceilings={pair: round(value) for pair, value in ceilings.items()})
    pairs = {"asynchronous": (our_best, their_best)}
    for name, key, bounds in [("one at a time", "each", EACH_TIMES), ("100 publishers one at a time", "hundred", HUNDRED_TIMES)]:
        found = [usable(queues, target, durability, key) for target in (OURS, THEIRS)]
        if not all(found):
            continue
        both = pairs[name] = [best(side)[1] for side in found]
        if durability in bounds:
            factor = ratios(*both, rate)
            report.judge(f"{what}, {name}: times {queue}", times(factor), f">= {bounds[durability]:g}", statistics.median(factor) >= bounds[durability])
    half = [best(usable(queues, target, durability, "half"))[1] for target in (OURS, THEIRS)]
    at = f"half of RabbitMQ's peak ({thousands(next(iter(half[0].values()))['workload']['producerRate'])}/s)"
    for name, both in pairs.items():
        shares = ratios(*both, cpu_us)
        report.judge(f"{what}, {name}: broker CPU per message / {queue}'s", f"{times(shares)}; {' to '.join(micros(side.values()) for side in both)}",
                     f"<= {CPU_MOST:g}", statistics.median(shares) <= CPU_MOST)
    shares = ratios(*half, p99)
    text = " to ".join(of_pairs([p99(run) for run in side.values()], lambda ms: f"{ms:.1f}") for side in half)
    report.judge(f"{what}, p99 end to end at {at} / {queue}'s", f"{times(shares)}; {text} ms", f"<= {P99_MOST[durability]:.2f}",
                 statistics.median(shares) <= P99_MOST[durability])


def micros(runs):
    return of_pairs([cpu_us(run) for run in runs], lambda value: f"{value:.1f}") + " µs"


def across(report, queues, our_durability, their_durability):
    """The pairings that promise different things: shown, not graded."""
    rows = []
    for name, key in [("asynchronous, each at its best", "async"), ("one at a time", "each"), ("100 publishers one at a time", "hundred")]:
        sides = usable(queues, OURS, our_durability, key), usable(queues, THEIRS, their_durability, key)
        if all(sides):
            ours, theirs = (best(side)[1] for side in sides)
            compared = (times(ratios(ours, theirs, figure)) for figure in (rate, cpu_us))
            rows.append((name, rates(ours.values()), rates(theirs.values()), *compared))
    report.table(f"Mainstem's `{our_durability}` beside a {QUEUE_OF[their_durability]} queue (not the same promise, not graded)",
                 ("", "Mainstem, msg/s", "RabbitMQ, msg/s", "ratio", "CPU ratio"), rows)


def rows_of(runs):
    """One row for each variation: rate and processor time of both systems."""
    rows = []
    for label in dict.fromkeys(run["variation"] for run in runs):
        of_label = [run for run in runs if run["variation"] == label and not run["stopped"]]
        ours, theirs = ({run["pair"]: run for run in of_label if run["target"]["name"] == target} for target in (OURS, THEIRS))
        if not ours or not theirs:
            continue
        ceiling = [run["generator"]["ceiling_rate"] for run in ours.values() if run["generator"]["ceiling_rate"]]
        both = (text(side.values()) for side in (ours, theirs) for text in (rates, micros))
        rows.append((label, thousands(statistics.median(ceiling)) if ceiling else "–", *both, times(ratios(ours, theirs, rate))))
    return rows


COLUMNS = ("", "client's ceiling", "Mainstem, msg/s", "CPU", "RabbitMQ, msg/s", "CPU", "ratio")


def windows_table(report, queues):
    for durability, queue in QUEUE_OF.items():
        runs = [run for run in queues if run["target"]["durability"] == durability]
        rows = [(label.replace(f"durability={durability}, ", "").replace("confirm=", ""), *rest) for label, *rest in rows_of(runs)]
        report.table(f"`{durability}` beside a {queue} queue", COLUMNS, rows)


def experiment_table(report, runs, experiment):
    report.table(f"`{experiment}`", COLUMNS, rows_of([run for run in runs if run["experiment"] == experiment]))


# Flushes, and PerfTest: of brokers that this line starts.

class Ours(Mainstem):
    """With an address as the peer has one, and its own count of flushes."""

    @property
    def address(self):
        return self.broker.amqp

    def counted(self):
        return sum(self.journal_sum(f"mainstem_journal_{name}_total") for name in ("syncs", "flushed_writes"))


def besides(report, store):
    """For each system and durability: flushes of each workload, PerfTest's rates. Kept, as the benchmark keeps its runs."""
    found = {}
    for durability in QUEUE_OF:
        for name in (OURS, THEIRS):
            path = store / f"beside-{name}-{durability}.json"
            fresh = path.exists() and (name == THEIRS or path.stat().st_mtime > broker_binary().stat().st_mtime)
            if not fresh:
                left = report.seconds_left()
                if left is not None and left < SESSION_SECONDS:
                    raise Unfinished("flushes and PerfTest are left")
                print(f"      flushes and PerfTest: {name} {durability}", flush=True)
                path.write_text(json.dumps(beside(name, durability)))
            found[name, durability] = json.loads(path.read_text())
    return found


def broker_binary():
    return Path(os.environ.get("ACCEPTANCE_BROKER", ROOT / "target/release/mainstem"))


def beside(name, durability):
    install.perf_test()
    with Folder() as folder:
        system = (Ours(f"{folder}/data", "--durability", durability, binary=broker_binary()) if name == OURS else RabbitMQ()).start()
        try:
            of_yardsticks = yardstick_flushes()
            flushes = {what: flushes_of(system, name, durability, folder, workload, of_yardsticks) for what, workload in COUNTED}
            perf = {what: perf_test(system, durability, options, what) for what, options in PERF_TEST}
        finally:
            system.stop()
    return {"flushes": flushes, "perf_test": perf}


def yardstick_flushes():
    """The benchmark measures the machine before a run, and flushes for that."""
    before = device_flushes()
    subprocess.run([str(BENCH), "yardsticks"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    return 0 if before is None else device_flushes() - before


def flushes_of(system, name, durability, folder, workload, of_yardsticks):
    """Counted over a whole run of the benchmark: what strace sees, what the device completed, what the broker says; and the confirms."""
    target, asked, trace = (Path(folder) / each for each in ("target.toml", "counted.yaml", "strace.txt"))
    options = f'options = {{ "queue.type" = "{QUEUE_OF[durability]}" }}'
    target.write_text(f'name = "{name}"\ntitle = "{name}"\ndriver = "amqp"\naddress = "{system.address}"\n'
                      f'[{durability}]\nnote = "as it runs"\n{options}\n')
    # JSON is YAML.
    asked.write_text(json.dumps({"name": "counted", "messageSize": 1000, "saturate": True, "lingerMs": 0, "clients": 1, "threads": 1,
                                 "durability": durability, "warmupSeconds": 1, "warmupWindowSeconds": 1, "testSeconds": 3, **workload}))
    shutil.rmtree(f"{folder}/out", ignore_errors=True)
    strace = subprocess.Popen(["strace", "-f", "-qq", "-e", f"trace={FLUSHING}", "-e", "signal=none", "-o", str(trace), "-p", str(system.pid)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    before = device_flushes(), system.counted()
    try:
        subprocess.run([str(word) for word in (BENCH, "run", asked, "--target", target, "--out", f"{folder}/out", "--scratch", f"{folder}/scratch")],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        after = device_flushes(), system.counted()
    finally:
        strace.send_signal(signal.SIGINT)
        strace.wait(30)
    run = runs_of(Path(folder) / "out")[0]
    if run["stopped"]:
        raise RuntimeError(run["stopped"])
    return {"confirms": confirms_of(run), "strace": sum(map(is_flush, trace.read_text(errors="replace").splitlines())),
            "device": None if before[0] is None else max(0, after[0] - before[0] - of_yardsticks), "own": None if before[1] is None else after[1] - before[1],
            "rate": rate(run)}


def confirms_of(run):
    """All of a run, its warm-up and its end included."""
    moments, total, last = run["timeline"], 0.0, 0.0
    for moment in moments:
        total += moment["publish_rate"] * max(moment["at_s"] - last, 1e-3)
        last = moment["at_s"]
    return round(total)


def is_flush(line):
    """A call that makes something durable, counted where it begins."""
    if "resumed>" in line:
        return False
    call = re.match(r"\d+\s+(\w+)\(", line)
    return call is not None and (call[1] != "pwritev2" or "DSYNC" in line or "RWF_SYNC" in line)


def perf_test(system, durability, options, what):
    queue = "--quorum-queue" if durability == "fsync" else "-ad false"
    words = ["java", "-Xmx512m", "-cp", f"{install.CACHE / 'perf-test'}/*", "com.rabbitmq.perf.PerfTest", "-H", f"amqp://guest:guest@{system.address}/%2f",
             "-x", "1", "-y", "1", "-s", "1000", "-f", "persistent", "-q", "500", "-u", f"perf-test-{what[:3]}", "-z", str(PERF_SECONDS), *queue.split(),
             *options.split()]
    said = subprocess.run(words, capture_output=True, text=True, timeout=PERF_SECONDS + 60)
    found = {side: int(each) for side, each in re.findall(r"(sending|receiving) rate avg: (\d+) msg/s", said.stdout)}
    if len(found) < 2:
        raise RuntimeError(f"PerfTest: {(said.stderr or said.stdout)[-300:]}")
    return found


def flush_table(report, beside):
    rows = []
    for (name, durability), found in beside.items():
        for what, one in found["flushes"].items():
            per = {key: f"{one[key] / one['confirms'] * 1000:,.1f}" if one[key] is not None else "–" for key in ("strace", "device", "own")}
            rows.append((system_name(name, durability), what, f"{one['confirms']:,}", thousands(one["rate"]), *per.values()))
    report.table("Flushes for 1,000 confirms, in a run of their own under strace, which slows the brokers down: calls that strace sees (`fsync`, "
                 "`fdatasync`, `pwritev2` with RWF_DSYNC), flushes that the device completed (those through io_uring too, and the file system's), "
                 "and the broker's own count",
                 ("", "", "confirms", "msg/s", "strace", "device", "own count"), rows)


def perf_table(report, beside):
    rows = []
    for durability in QUEUE_OF:
        for what, _ in PERF_TEST:
            ours, theirs = (beside[name, durability]["perf_test"][what] for name in (OURS, THEIRS))
            rows.append((f"{what}, Mainstem's `{durability}`, {QUEUE_OF[durability]} queue", f"{ours['sending']:,} / {ours['receiving']:,}",
                         f"{theirs['sending']:,} / {theirs['receiving']:,}", f"{ours['sending'] / theirs['sending']:.2f}"))
    report.table(f"By RabbitMQ's PerfTest, {PERF_SECONDS} s each, starting its virtual machine included: msg/s sent / received",
                 ("", "Mainstem", "RabbitMQ", "ratio"), rows)


def system_name(name, durability):
    return f"Mainstem `{durability}`" if name == OURS else f"RabbitMQ, {QUEUE_OF[durability]} queue"
