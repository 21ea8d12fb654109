"""Queues and the disk: messages that go to many queues, and old ones that nobody consumes."""

import signal
import statistics
import threading
import time

import pika
from amqp_load import Consumer, Publisher
from confluent_kafka import Consumer as KafkaConsumer, TopicPartition
from machine import Folder, Mainstem
from retention import disk_bytes

QUEUES = 24
# Small, so that what is allocated ahead does not count for much.
SEGMENT = 32 << 20
FLAGS = ["--set", f"mainstem.segment.bytes={SEGMENT}", "--set", "log.retention.check.interval.ms=1000"]


def connect(system):
    host, port = system.broker.amqp.rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))


def numbers(system, queue):
    """Of the messages that a queue's log has, in order."""
    consumer = KafkaConsumer({"bootstrap.servers": system.bootstrap, "group.id": "look", "enable.auto.commit": False, "fetch.message.max.bytes": 8 << 20,
                              "check.crcs": True})
    place = TopicPartition(queue, 0)
    low, high = consumer.get_watermark_offsets(place, timeout=30)
    consumer.assign([TopicPartition(queue, 0, low)])
    found, next_offset = [], low
    while next_offset < high:
        batch = consumer.consume(min(10_000, high - next_offset), 30)
        if not batch:
            raise RuntimeError(f"{queue}: nothing from {next_offset} on, of {low}..{high}")
        for record in batch:
            if record.error():
                raise RuntimeError(f"{queue} at {next_offset}: {record.error()}")
            if record.offset() != next_offset:
                raise RuntimeError(f"{queue}: offset {record.offset()} instead of {next_offset}")
            next_offset += 1
            found.append(int(record.value()[:20]))
    consumer.close()
    return found


def settles_below(folder, most, seconds):
    """What the files take, once it is no more than `most`, or at the end of the time."""
    deadline = time.time() + seconds
    while (size := disk_bytes(folder)) > most and time.time() < deadline:
        time.sleep(0.2)
    return size


def fanout(report):
    """Messages of 1,000 bytes through a fanout exchange to 24 durable queues, durability `fsync`, by two connections that wait for confirmations (windows
    of 1,000): the growth of all files by what was published, with segments of 32 MiB, looked after every second. Then one queue is deleted, one purged, and
    the others' logs are read through Kafka and compared; all but one are purged, and then that one. At the end SIGKILL amid publishing."""
    count = 2 * report.amount(200_000)
    with Folder() as folder:
        system = Mainstem(f"{folder}/data", *FLAGS).start()
        try:
            control = connect(system)
            channel = control.channel()
            channel.exchange_declare("all", "fanout", durable=True)
            queues = [f"out-{number}" for number in range(QUEUES)]
            for queue in queues:
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, "all")
            before, began = disk_bytes(folder), time.time()
            publishers = [Publisher(system.broker.amqp, "all", [""], 1000, 1000, first=at * count) for at in range(2)]
            threads = [threading.Thread(target=publisher.publish, args=(count // 2,)) for publisher in publishers]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            seconds = time.time() - began
            grown, payload = disk_bytes(folder) - before, count * 1000
            chunks = system.journal_sum("mainstem_journal_chunk_size_bytes_count")
            report.note(published=count, seconds=round(seconds, 1), grown=grown, payload=payload,
                        mean_chunk_kib=round(system.journal_sum("mainstem_journal_chunk_size_bytes_sum") / chunks / 1024, 1))
            rate = count / seconds
            report.judge("publishes a second, each to 24 queues", round(rate), ">= 10000", rate >= 10_000)
            report.judge("growth of files / published bytes", round(grown / payload, 3), "<= 1.3", grown <= 1.3 * payload)
            report.judge("other queues exact after one was purged and one deleted", *partly_gone(system, channel, queues, count))
            report.judge("space with one queue left that nobody consumed; and without it", *last_goes(system, channel, queues, folder, payload))
            report.judge("all queues the same after SIGKILL, with all that was confirmed", *killed(system, control))
        finally:
            system.stop()


def partly_gone(system, channel, queues, count):
    channel.queue_purge(queues[0])
    channel.queue_delete(queues[1])
    expected = numbers(system, queues[2])
    kept = sorted(expected) == [at * count + number for at in range(2) for number in range(count // 2)]
    others = all(numbers(system, queue) == expected for queue in queues[3:])
    return f"{len(queues) - 3} compared, {len(expected)} messages each", "all", kept and others


def last_goes(system, channel, queues, folder, payload):
    for queue in queues[2:-1]:
        channel.queue_purge(queue)
    time.sleep(5)
    with_one = disk_bytes(folder)
    exact = len(numbers(system, queues[-1])) == payload // 1000
    channel.queue_purge(queues[-1])
    # The one that is written and the one that is ready, those kept to be written again, and what else there is.
    most = 7 * SEGMENT
    without = settles_below(folder, most, 60)
    holds = exact and with_one <= 1.3 * payload + most and without <= most
    return f"{with_one >> 20} MiB, {without >> 20} MiB", f"<= 1.3 x payload, <= {most >> 20} MiB", holds


def killed(system, control):
    publisher = Publisher(system.broker.amqp, "all", [""], 1000, 1000, first=10**9)
    failure = []

    def publish():
        try:
            publisher.publish(10**7)
        except Exception as gone:
            failure.append(gone)
    thread = threading.Thread(target=publish)
    thread.start()
    time.sleep(1)
    system.stop(signal.SIGKILL)
    thread.join()
    system.start()
    found = [numbers(system, f"out-{number}") for number in range(QUEUES) if number != 1]
    same = all(one == found[0] for one in found)
    whole = [number - 10**9 for number in found[0] if number >= 10**9] == list(range(len(found[0])))
    return f"{publisher.confirmed} confirmed, {len(found[0])} there", "all", same and whole and len(found[0]) >= publisher.confirmed > 0


def through(report, system, messages, folder, what):
    """Publishes messages of 100,000 bytes to four queues that are consumed at the same time; latencies, and the most that the files took."""
    publisher = Publisher(system.broker.amqp, "", [f"busy-{number}" for number in range(4)], 100_000, 20)
    consumer = Consumer(system.broker.amqp, [f"busy-{number}" for number in range(4)])
    consumer.start()
    thread = threading.Thread(target=publisher.publish, args=(messages, 4))
    began, most = time.time(), 0
    thread.start()
    while thread.is_alive():
        time.sleep(0.5)
        most = max(most, disk_bytes(folder))
    seconds = time.time() - began
    while consumer.taken < messages and time.time() < began + seconds + 60:
        time.sleep(0.1)
    assert consumer.taken >= messages, f"{consumer.taken} of {messages} consumed"
    publisher.link.close()
    consumer.link.close()
    p50, p99 = statistics.median(publisher.latencies) * 1e3, statistics.quantiles(publisher.latencies, n=100)[98] * 1e3
    report.note(what=what, messages=messages, seconds=round(seconds, 1), mb_s=round(messages / 10 / seconds), p50_ms=round(p50, 2), p99_ms=round(p99, 2),
                most_bytes=most)
    return p99, most


def leftovers(report):
    """1,000 durable queues have one message each that nobody consumes while 50 GB pass through four other queues, published and consumed at the same
    time. Before that half as much passes without them: for the latency. At the end SIGKILL, and every old message is fetched."""
    messages, old = report.amount(500_000), 1000
    with Folder() as folder:
        system = Mainstem(f"{folder}/data").start()
        try:
            control = connect(system)
            channel = control.channel()
            for number in range(4):
                channel.queue_declare(f"busy-{number}", durable=True)
            without, _ = through(report, system, messages // 2, folder, "without old messages")
            channel.confirm_delivery()
            for number in range(old):
                channel.queue_declare(f"old-{number}", durable=True)
                channel.basic_publish("", f"old-{number}", b"old %d " % number + b"x" * 1000, pika.BasicProperties(delivery_mode=2))
            beside, most = through(report, system, messages, folder, "beside old messages")
            bound = 2 * old * 1100 + (2 << 30)
            report.judge("files at most, while it passed", f"{most / 1e9:.2f} GB", "<= 2 x live + 2 GiB", most <= bound)
            report.judge("publish p99 beside old messages / without", round(beside / without, 2), "<= 1.5", beside <= 1.5 * without)
            system.stop(signal.SIGKILL)
            system.start()
            channel = connect(system).channel()
            bodies = [channel.basic_get(f"old-{number}", auto_ack=True)[2] for number in range(old)]
            right = sum(body is not None and body.startswith(b"old %d " % number) for number, body in enumerate(bodies))
            report.judge("old messages delivered after SIGKILL", right, f"{old}", right == old)
        finally:
            system.stop()
