"""Writers that note what was acknowledged, and what a broker has of it afterwards: what the programs of this folder share. Records with
librdkafka (class of the topic: `fsync` and `memory`), messages with pika and confirms."""

import sys
import threading
import time
from pathlib import Path

import pika
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker, free_port  # noqa: F401 - for the programs of this folder

TOPICS, PARTITIONS, QUEUE = {"kept": "fsync", "quick": "memory"}, 4, "work"


def pika_connection(broker, **more):
    host, port = broker.amqp.rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), socket_timeout=10, **more))


def make(broker):
    """The topics and the queue."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, PARTITIONS, config={"mainstem.durability": kind}) for name, kind in TOPICS.items()]
    for made in admin.create_topics(topics).values():
        made.result(10)
    connection = pika_connection(broker)
    connection.channel().queue_declare(QUEUE, durable=True)
    connection.close()


class Writer(threading.Thread):
    """Writes until told to stop or the broker is gone; `acknowledged` has what was."""

    def __init__(self, broker, name, size=200):
        super().__init__(daemon=True)
        self.broker, self.name, self.ends, self.acknowledged, self.failure = broker, name, threading.Event(), [], None
        self.filler = "x" * size
        self.number = 0

    def body(self):
        self.number += 1
        return f"{self.name}-{self.number} {self.filler}"

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.failure = error


class Records(Writer):
    """One topic, librdkafka; what is delivered is acknowledged."""

    def __init__(self, broker, topic, size=200):
        super().__init__(broker, topic, size)

    def work(self):
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 1, "message.timeout.ms": 60000, "enable.idempotence": True,
                             "socket.timeout.ms": 20000})

        def told(error, message):
            if error is None:
                self.acknowledged.append(message.value().split(b" ")[0].decode())

        while not self.ends.is_set():
            try:
                producer.produce(self.name, self.body(), on_delivery=told)
            except BufferError:
                producer.poll(0.05)
            producer.poll(0)
            if self.number % 10 == 0:
                time.sleep(0.002)
        if producer.flush(1) > 0:
            # The broker is gone.
            producer.purge()
            producer.flush(1)


class Messages(Writer):
    """The queue, pika; what is confirmed is acknowledged."""

    def __init__(self, broker, name="messages", size=200):
        super().__init__(broker, name, size)
        self.told = None

    def work(self):
        connection = pika_connection(self.broker)
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.ends.is_set():
            body = self.body()
            try:
                channel.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2))
            except pika.exceptions.ConnectionClosed as closed:
                self.told = (closed.reply_code, closed.reply_text)
                return
            except pika.exceptions.AMQPError as error:
                self.told = (0, type(error).__name__)
                return
            self.acknowledged.append(body.split(" ")[0])


def start_writers(broker, size=200):
    writers = [Records(broker, topic, size) for topic in TOPICS] + [Messages(broker, size=size)]
    for writer in writers:
        writer.start()
    return writers


def stop(writers):
    for writer in writers:
        writer.ends.set()
    for writer in writers:
        writer.join(15)
        if writer.failure:
            raise writer.failure


def records(broker, topic):
    """First words of all records of a topic, with how often each is there."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "check", "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, ended, deadline = {}, set(), time.time() + 60
    while len(ended) < PARTITIONS:
        if time.time() > deadline:
            raise RuntimeError(f"{topic} is not read to its end within 60 s")
        for message in consumer.consume(5000, 1):
            if message.error() is not None:
                if message.error().code() != -191:
                    raise KafkaException(message.error())
                ended.add(message.partition())
                continue
            word = message.value().split(b" ")[0].decode()
            found[word] = found.get(word, 0) + 1
    consumer.close()
    return found


def messages(broker):
    """First words of all messages of the queue; they are taken."""
    connection = pika_connection(broker)
    channel = connection.channel()
    found = {}
    left = channel.queue_declare(QUEUE, passive=True).method.message_count
    for method, _, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=30) if left else ():
        if method is None:
            break
        word = body.split(b" ")[0].decode()
        found[word] = found.get(word, 0) + 1
        left -= 1
        if left == 0:
            break
    connection.close()
    return found


def check(broker, acknowledged):
    """Raises unless everything that was acknowledged (name of the writer, words) is there, records once."""
    for name, words in acknowledged.items():
        found = records(broker, name) if name in TOPICS else messages(broker)
        lost = [word for word in words if word not in found]
        if lost:
            raise RuntimeError(f"{len(lost)} of {len(words)} acknowledged of {name} are lost, like {lost[:3]}")
        twice = [word for word in words if found[word] > 1]
        if name in TOPICS and twice:
            raise RuntimeError(f"{len(twice)} records of {name} are there more than once, like {twice[:3]}")
