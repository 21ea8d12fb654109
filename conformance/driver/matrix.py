"""Every client writes in five codecs, every client reads what all wrote, and what the broker packed again. Used by the driver."""

import subprocess

from driver.install import PYTHON, CLIENTS, commands, java_command
from driver.results import call, parse_lines
from records import CODECS, is_text, partitions, record, timestamp

# Written in another codec to topics that want this one.
PACKED = "packed"

KCAT_FORMAT = "%p %o %T %K %S %h|%k|%s\n"


def run(results, bootstrap, count, missing, label):
    """`label` keeps the topics of several runs on one broker apart."""
    clients = {name: command for name, command in commands().items() if name not in missing}
    writers = [*clients, PACKED, *({"text-kcat", "text-console"} - {f"text-{name}" for name in missing})]
    topics = {writer: {codec: f"{label}-{writer}-{codec}" for codec in CODECS} for writer in writers}
    flat = [topic for of_writer in topics.values() for topic in of_writer.values()]
    limit = 300 + count // 50
    if not results.step(f"create {len(flat)} topics", lambda: call(
            [str(PYTHON), str(CLIENTS / "confluent/topics.py"), bootstrap, *(wanted(t) for t in flat)])):
        return
    for writer, command in clients.items():
        targets = [f"{topic}={codec}" for codec, topic in topics[writer].items()]
        each(results, [*command, "produce", bootstrap, str(count), *targets], topics[writer].values(), limit,
             lambda topic, writer=writer: f"{writer} writes {count} records in {topic.rsplit('-', 1)[1]}")
    each(results, [*clients["confluent-kafka"], "produce", bootstrap, str(count), *(f"{topic}={other(codec)}" for codec, topic in topics[PACKED].items())],
         topics[PACKED].values(), limit, lambda topic: f"{count} records are packed again in {topic.rsplit('-', 1)[1]}")
    for codec in CODECS:
        if "text-kcat" in topics:
            results.step(f"kcat writes {count} records in {codec}", lambda: kcat_writes(
                bootstrap, topics["text-kcat"][codec], codec, count, limit))
        if "text-console" in topics:
            results.step(f"console producer writes {count} records in {codec}", lambda: console_writes(
                bootstrap, topics["text-console"][codec], codec, count, limit))
    for reader, command in clients.items():
        each(results, [*command, "consume", bootstrap, str(count), *flat], flat, limit * len(topics),
             lambda topic, reader=reader: f"{reader} reads {topic.removeprefix(label + '-')}")
    if "kcat" not in missing:
        for topic in flat:
            results.step(f"kcat reads {topic.removeprefix(label + '-')}", lambda: kcat_reads(bootstrap, topic, count, limit))
    if "text-console" in topics:
        results.step("console consumer reads what console producer and kcat wrote",
                     lambda: console_reads(bootstrap, [t for t in flat if is_text(t)], label, count, limit))


def other(codec):
    return "zstd" if codec == "none" else "none"


def wanted(topic):
    """A topic to be made: its name, partitions and, where the broker packs, its codec."""
    *_, writer, codec = topic.split("-")
    packs = f",compression.type={'uncompressed' if codec == 'none' else codec}" if writer == PACKED else ""
    return f"{topic}={partitions(topic)}{packs}"


def each(results, command, topics, limit, name):
    """One run of a client over several topics: a step for each topic."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit)
        out, complaint = done.stdout, done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    except subprocess.TimeoutExpired as late:
        out, complaint = late.stdout or b"", [f"ended after {limit} s"]
    for topic, failure in parse_lines(out, topics).items():
        results.note(name(topic), failure and " ".join([failure, *complaint]))


def kcat_writes(bootstrap, topic, codec, count, limit):
    lines = b"".join(b"%s\x1f%s\n" % record(topic, number)[:2] for number in range(count))
    call(["kcat", "-b", bootstrap, "-t", topic, "-q", "-P", "-K\x1f", "-z", codec, "-H", "from=text"], limit, lines)


def kcat_line(topic, number):
    """What kcat prints with KCAT_FORMAT for a record that it read whole."""
    key, value, headers = record(topic, number)
    # It shows the value of a header as a C string: to the first zero byte.
    shown = b",".join(b"%s=%s" % (name.encode(), each.split(b"\0")[0]) for name, each in headers)
    at = timestamp(topic, number)
    length = [-1 if part is None else len(part) for part in (key, value)]
    return b"%d %d %d %d %s|%s|%s\n" % (number // partitions(topic), at or 0, *length, shown, key or b"", value or b"")


def kcat_reads(bootstrap, topic, count, limit):
    for partition in range(partitions(topic)):
        got = call(["kcat", "-b", bootstrap, "-t", topic, "-q", "-C", "-e", "-X", "fetch.wait.max.ms=20", "-p", str(partition), "-o", "beginning",
                    "-f", KCAT_FORMAT.replace("%p ", "").replace("%T", "0" if is_text(topic) else "%T")], limit)
        wanted = b"".join(kcat_line(topic, number) for number in range(partition, count, partitions(topic)))
        assert got == wanted, f"partition {partition} differs from what was written, {len(got)} and {len(wanted)} bytes"


def console_writes(bootstrap, topic, codec, count, limit):
    lines = b"".join(b"from:text\t%s\t%s\n" % record(topic, number)[:2] for number in range(count))
    call(java_command("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic,
                      "--compression-codec", codec, "--reader-property", "parse.key=true",
                      "--reader-property", "parse.headers=true"), limit, lines)


def console_reads(bootstrap, topics, label, count, limit):
    got = call(java_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--include", f"{label}-text-.*",
        "--from-beginning", "--max-messages", str(count * len(topics)), "--timeout-ms", "30000",
        "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"), limit)
    wanted = [b"from:text\t%s\t%s" % record(topic, number)[:2] for topic in topics for number in range(count)]
    assert sorted(got.splitlines()) == sorted(wanted), "the lines differ from what was written"
