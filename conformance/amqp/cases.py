"""What RabbitMQ's clients rely on, one small case after the other, with pika: run against a broker at HOST:PORT, ours or a real RabbitMQ.
Arguments: HOST:PORT; with `--kafka HOST:PORT` also what a Kafka client sees of queues; names of cases, all without. A line each: `ok NAME`
or `FAIL NAME: why`."""

import argparse
import sys
import time
import traceback
import uuid

import pika
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, NackError, UnroutableError

CASES = {}
QUEUE = {"durable": True}


def case(function):
    CASES[function.__name__.replace("_", "-")] = function
    return function


class Session:
    """A connection, and channels of it that fail without ending the case."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=30, blocked_connection_timeout=20))
        self.channel = self.connection.channel()
        self.queues = []

    def name(self):
        return f"case-{uuid.uuid4().hex[:12]}"

    def queue(self, arguments=None, **flags):
        name = self.name()
        self.channel.queue_declare(name, arguments=arguments, **{**QUEUE, **flags})
        self.queues.append(name)
        return name

    def publish(self, queue, *bodies, exchange="", **properties):
        for body in bodies:
            self.channel.basic_publish(exchange, queue, body, pika.BasicProperties(delivery_mode=2, **properties))

    def get(self, queue, wait=5, **flags):
        """A message, as soon as there is one."""
        until = time.time() + wait
        while True:
            method, properties, body = self.channel.basic_get(queue, **flags)
            if method or time.time() > until:
                return method, properties, body
            time.sleep(0.01)

    def drain(self, queue, count, **flags):
        return [self.get(queue, auto_ack=True, **flags)[2] for _ in range(count)]

    def counts(self, queue):
        method = self.connection.channel().queue_declare(queue, passive=True).method
        return method.message_count, method.consumer_count

    def settled(self, queue, messages, consumers=0, wait=30):
        """Counts come right by and by."""
        until = time.time() + wait
        while self.counts(queue) != (messages, consumers):
            assert time.time() < until, f"{self.counts(queue)} instead of {(messages, consumers)}"
            time.sleep(0.02)

    def consume(self, queue, count, channel=None, wait=30, **flags):
        """Takes so many messages, without acknowledging any."""
        channel = channel or self.channel
        got = []
        tag = channel.basic_consume(queue, lambda _c, method, properties, body: got.append((method, properties, body)), **flags)
        self.pump(lambda: len(got) >= count, wait)
        return tag, got

    def pump(self, done, wait=30):
        until = time.time() + wait
        while not done() and time.time() < until:
            self.connection.process_data_events(time_limit=0.05)
        return done()

    def refused(self, code, action):
        """Something that closes its channel with this code."""
        channel = self.connection.channel()
        try:
            action(channel)
        except ChannelClosedByBroker as closed:
            assert closed.reply_code == code, f"{closed.reply_code} {closed.reply_text} instead of {code}"
            return closed.reply_text
        raise AssertionError(f"taken instead of refused with {code}")

    def end(self):
        if self.connection.is_open:
            channel = self.connection.channel()
            for queue in self.queues:
                channel.queue_delete(queue)
            self.connection.close()


@case
def properties_come_back_as_they_were(session):
    queue = session.queue()
    headers = {"text": "value", "number": 5, "large": 1 << 40, "yes": True, "list": [1, "two"], "table": {"a": {"b": None}}, "bytes": b"\x00\xff"}
    told = dict(content_type="text/plain", content_encoding="gzip", headers=headers, delivery_mode=2, priority=3, correlation_id="c", reply_to="r",
                expiration="60000", message_id="m", timestamp=1_700_000_000, type="t", user_id="guest", app_id="a")
    session.channel.basic_publish("", queue, b"body", pika.BasicProperties(**told))
    method, properties, body = session.get(queue, auto_ack=True)
    assert body == b"body" and method.routing_key == queue and method.exchange == "" and not method.redelivered
    for name, value in told.items():
        assert getattr(properties, name) == value, f"{name}: {getattr(properties, name)} instead of {value}"


@case
def bodies_of_all_sizes_come_back(session):
    queue = session.queue()
    session.channel.confirm_delivery()
    sizes = [0, 1, 4087, 4088, 4089, 131063, 131064, 131065, 500_000, 5_000_000]
    for size in sizes:
        session.publish(queue, bytes([size % 251]) * size)
    for size in sizes:
        assert session.get(queue, auto_ack=True)[2] == bytes([size % 251]) * size, f"a body of {size} bytes"


@case
def confirms_come(session):
    queue = session.queue()
    session.channel.confirm_delivery()
    session.publish(queue, *[b"%d" % number for number in range(200)])
    session.settled(queue, 200)
    assert session.drain(queue, 200) == [b"%d" % number for number in range(200)]


@case
def what_nobody_gets_is_returned_before_it_is_confirmed(session):
    session.channel.confirm_delivery()
    try:
        session.channel.basic_publish("", session.name(), b"lost", mandatory=True)
    except UnroutableError as error:
        assert error.messages[0].method.reply_code == 312 and error.messages[0].body == b"lost"
    else:
        raise AssertionError("not returned")
    session.channel.basic_publish("amq.direct", session.name(), b"nobody minds")


@case
def work_is_shared_in_turn(session):
    queue = session.queue()
    got = [[], []]
    for mine in got:
        session.channel.basic_consume(queue, lambda _c, _m, _p, body, mine=mine: mine.append(body), auto_ack=True)
    session.publish(queue, *[b"%d" % number for number in range(10)])
    assert session.pump(lambda: sum(map(len, got)) == 10), got
    assert got == [[b"%d" % number for number in range(start, 10, 2)] for start in (0, 1)], got


@case
def prefetch_holds_back(session):
    queue = session.queue()
    session.publish(queue, *[b"%d" % number for number in range(10)])
    session.channel.basic_qos(prefetch_count=3)
    _, got = session.consume(queue, 3)
    session.pump(lambda: len(got) > 3, wait=0.5)
    assert len(got) == 3, len(got)
    session.settled(queue, 7, 1)
    session.channel.basic_ack(got[1][0].delivery_tag, multiple=True)
    assert session.pump(lambda: len(got) == 5)
    assert [body for _, _, body in got] == [b"%d" % number for number in range(5)]


@case
def what_is_not_acknowledged_comes_again(session):
    queue = session.queue()
    session.publish(queue, b"a", b"b", b"c")
    channel = session.connection.channel()
    _, got = session.consume(queue, 3, channel)
    channel.basic_ack(got[1][0].delivery_tag)
    channel.close()
    again = [session.get(queue, auto_ack=True) for _ in range(2)]
    assert [(method.redelivered, body) for method, _, body in again] == [(True, b"a"), (True, b"c")], again


@case
def returned_messages_are_where_they_were(session):
    queue = session.queue()
    session.publish(queue, b"a", b"b", b"c", b"d")
    first, second = session.get(queue), session.get(queue)
    session.channel.basic_nack(second[0].delivery_tag, requeue=True)
    session.channel.basic_reject(first[0].delivery_tag, requeue=True)
    assert session.drain(queue, 4) == [b"a", b"b", b"c", b"d"]


@case
def cancelled_consumers_keep_what_they_have(session):
    queue = session.queue()
    session.publish(queue, b"a", b"b")
    tag, got = session.consume(queue, 2)
    session.channel.basic_cancel(tag)
    session.publish(queue, b"c")
    session.settled(queue, 1)
    session.channel.basic_ack(got[0][0].delivery_tag)
    session.channel.basic_nack(got[1][0].delivery_tag, requeue=True)
    assert session.drain(queue, 2) == [b"b", b"c"]


@case
def recover_brings_everything_back(session):
    queue = session.queue()
    session.publish(queue, b"a", b"b")
    session.get(queue), session.get(queue)
    session.channel.basic_recover(requeue=True)
    again = [session.get(queue, auto_ack=True) for _ in range(2)]
    assert [(method.redelivered, body) for method, _, body in again] == [(True, b"a"), (True, b"b")], again


@case
def exchanges_route(session):
    direct, fanout, topic, headers = (session.name() for _ in range(4))
    for name, kind in ((direct, "direct"), (fanout, "fanout"), (topic, "topic"), (headers, "headers")):
        session.channel.exchange_declare(name, kind, auto_delete=False, durable=True)
    one, two = session.queue(), session.queue()
    session.channel.queue_bind(one, direct, "red")
    session.channel.queue_bind(two, direct, "blue")
    session.channel.queue_bind(one, fanout)
    session.channel.queue_bind(two, fanout)
    session.channel.queue_bind(one, topic, "logs.*.error")
    session.channel.queue_bind(two, topic, "logs.#")
    session.channel.queue_bind(one, headers, arguments={"x-match": "all", "a": 1, "b": "x"})
    session.channel.queue_bind(two, headers, arguments={"x-match": "any", "a": 1, "b": "x"})
    session.publish("red", b"direct", exchange=direct)
    session.publish("green", b"to nobody", exchange=direct)
    session.publish("any", b"fanout", exchange=fanout)
    session.publish("logs.db.error", b"topic", exchange=topic)
    session.publish("logs.db.info", b"topic two", exchange=topic)
    session.publish("", b"headers", exchange=headers, headers={"a": 1, "b": "x", "c": None})
    session.publish("", b"headers two", exchange=headers, headers={"a": 1})
    assert session.drain(one, 4) == [b"direct", b"fanout", b"topic", b"headers"]
    assert session.drain(two, 5) == [b"fanout", b"topic", b"topic two", b"headers", b"headers two"]
    for name in (direct, fanout, topic, headers):
        session.channel.exchange_delete(name)


@case
def exchanges_lead_to_exchanges_and_have_alternates(session):
    inner, outer, spare = (session.name() for _ in range(3))
    session.channel.exchange_declare(spare, "fanout")
    session.channel.exchange_declare(inner, "topic")
    session.channel.exchange_declare(outer, "direct", arguments={"alternate-exchange": spare})
    one, two = session.queue(), session.queue()
    session.channel.exchange_bind(inner, outer, "key")
    session.channel.queue_bind(one, inner, "#")
    session.channel.queue_bind(two, spare)
    session.publish("key", b"through", exchange=outer)
    session.publish("other", b"spare", exchange=outer)
    assert session.drain(one, 1) == [b"through"] and session.drain(two, 1) == [b"spare"]
    session.channel.exchange_unbind(inner, outer, "key")
    session.publish("key", b"spare too", exchange=outer)
    assert session.drain(two, 1) == [b"spare too"]
    for name in (inner, outer, spare):
        session.channel.exchange_delete(name)


@case
def copies_go_by_carbon_copy(session):
    one, two, three = session.queue(), session.queue(), session.queue()
    session.publish(one, b"all", headers={"CC": [two], "BCC": [three]})
    for queue in (one, two, three):
        _, properties, body = session.get(queue, auto_ack=True)
        assert body == b"all" and properties.headers == {"CC": [two]}, properties.headers


@case
def errors_close_the_channel_and_nothing_else(session):
    queue, missing = session.queue(), session.name()
    session.refused(404, lambda channel: channel.queue_declare(missing, passive=True))
    session.refused(404, lambda channel: channel.queue_bind(queue, missing, "key"))
    session.refused(404, lambda channel: channel.basic_consume(missing, print))
    session.refused(404, lambda channel: channel.exchange_declare(missing, passive=True))
    session.refused(406, lambda channel: channel.queue_declare(queue, durable=False))
    session.refused(406, lambda channel: channel.queue_declare(queue, durable=True, arguments={"x-max-length": 5}))
    session.refused(406, lambda channel: channel.exchange_declare("amq.topic", "direct", durable=True))
    session.refused(403, lambda channel: channel.queue_declare("amq.mine"))
    session.refused(403, lambda channel: channel.exchange_declare("amq.mine", "direct"))
    session.refused(403, lambda channel: channel.exchange_delete("amq.topic"))
    session.refused(406, lambda channel: (channel.basic_ack(99), channel.connection.process_data_events(1), channel.queue_declare(queue, passive=True)))

    def lost(channel):
        channel.basic_publish(missing, "key", b"")
        session.connection.process_data_events(1)
        channel.queue_declare(queue, passive=True)
    session.refused(404, lost)
    session.publish(queue, b"still here")
    assert session.drain(queue, 1) == [b"still here"]


@case
def exclusive_queues_are_of_their_connection(session):
    queue = session.channel.queue_declare("", exclusive=True).method.queue
    assert queue.startswith("amq.gen-"), queue
    session.publish(queue, b"mine")
    other = Session(session.address)
    other.refused(405, lambda channel: channel.queue_declare(queue, passive=True))
    other.refused(405, lambda channel: channel.basic_consume(queue, print))
    assert session.drain(queue, 1) == [b"mine"]
    session.connection.close()
    until = time.time() + 5
    while True:
        try:
            other.refused(404, lambda channel: channel.queue_declare(queue, passive=True))
            break
        except AssertionError:
            assert time.time() < until, "the queue outlives its connection"
            time.sleep(0.05)
    other.end()


@case
def queues_go_with_their_last_consumer(session):
    queue = session.queue(auto_delete=True)
    tag, _ = session.consume(queue, 1, wait=0.1)
    session.channel.basic_cancel(tag)
    session.refused(404, lambda channel: channel.queue_declare(queue, passive=True))
    session.queues.remove(queue)


@case
def consumers_hear_when_their_queue_goes(session):
    queue, gone = session.queue(), []
    session.channel.add_on_cancel_callback(lambda frame: gone.append(frame.method.consumer_tag))
    tag, _ = session.consume(queue, 1, wait=0.1)
    session.connection.channel().queue_delete(queue)
    assert session.pump(lambda: gone == [tag]), gone
    session.queues.remove(queue)


@case
def deleting_asks_first(session):
    queue = session.queue()
    session.publish(queue, b"a")
    session.settled(queue, 1)
    session.refused(406, lambda channel: channel.queue_delete(queue, if_empty=True))
    tag, _ = session.consume(queue, 1, wait=0.3)
    session.refused(406, lambda channel: channel.queue_delete(queue, if_unused=True))
    session.channel.basic_cancel(tag)
    session.publish(queue, b"b")
    session.settled(queue, 1)
    assert session.channel.queue_purge(queue).method.message_count == 1
    session.settled(queue, 0)
    assert session.channel.queue_delete(queue).method.message_count == 0
    session.queues.remove(queue)


@case
def exclusive_consumers_are_alone(session):
    queue = session.queue()
    session.consume(queue, 1, wait=0.1, exclusive=True)
    session.refused(403, lambda channel: channel.basic_consume(queue, print))


@case
def priorities_come_first(session):
    queue = session.queue({"x-max-priority": 5})
    for priority in (0, 3, 9, 1, 5, None):
        session.publish(queue, b"%d" % (priority or 0), priority=priority)
    session.settled(queue, 6)
    assert session.drain(queue, 6) == [b"9", b"5", b"3", b"1", b"0", b"0"]


@case
def one_consumer_is_active(session):
    queue = session.queue({"x-single-active-consumer": True})
    got = [[], []]
    tags = [session.channel.basic_consume(queue, lambda _c, _m, _p, body, mine=mine: mine.append(body), auto_ack=True) for mine in got]
    session.publish(queue, b"a", b"b")
    assert session.pump(lambda: got == [[b"a", b"b"], []]), got
    session.channel.basic_cancel(tags[0])
    session.publish(queue, b"c")
    assert session.pump(lambda: got == [[b"a", b"b"], [b"c"]]), got


@case
def messages_run_out(session):
    queue = session.queue({"x-message-ttl": 200})
    session.publish(queue, b"short")
    own = session.queue()
    session.publish(own, b"shorter", expiration="100")
    session.publish(own, b"stays")
    session.settled(queue, 0)
    session.settled(own, 1)
    assert session.drain(own, 1) == [b"stays"]


@case
def queues_run_out(session):
    queue = session.queue({"x-expires": 300})
    time.sleep(1)
    session.refused(404, lambda channel: channel.queue_declare(queue, passive=True))
    session.queues.remove(queue)


@case
def dead_letters_say_why(session):
    grave, exchange = session.queue(), session.name()
    session.channel.exchange_declare(exchange, "fanout")
    session.channel.queue_bind(grave, exchange)
    rules = {"x-dead-letter-exchange": exchange}
    rejected, expired, full = session.queue(rules), session.queue({**rules, "x-message-ttl": 100}), session.queue({**rules, "x-max-length": 1})
    session.publish(rejected, b"rejected", headers={"mine": 1})
    method, _, _ = session.get(rejected)
    session.channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, body = session.get(grave, auto_ack=True)
    death = properties.headers["x-death"][0]
    assert body == b"rejected" and properties.headers["mine"] == 1
    assert (death["reason"], death["queue"], death["count"], death["routing-keys"], death["exchange"]) == ("rejected", rejected, 1, [rejected], ""), death
    assert (properties.headers["x-first-death-queue"], properties.headers["x-first-death-reason"]) == (rejected, "rejected")
    session.publish(expired, b"expired")
    _, properties, body = session.get(grave, auto_ack=True)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"expired", "expired")
    session.publish(full, b"first", b"second")
    _, properties, body = session.get(grave, auto_ack=True)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"first", "maxlen")
    assert session.drain(full, 1) == [b"second"]
    session.channel.exchange_delete(exchange)


@case
def retries_go_round(session):
    work = session.name()
    wait = session.queue({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": 100})
    session.channel.queue_declare(work, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
    session.queues.append(work)
    session.publish(work, b"again")
    for turn in range(3):
        method, properties, body = session.get(work)
        deaths = {(death["queue"], death["reason"]): death["count"] for death in (properties.headers or {}).get("x-death", [])}
        assert deaths == ({(work, "rejected"): turn, (wait, "expired"): turn} if turn else {}), deaths
        session.channel.basic_nack(method.delivery_tag, requeue=False)
    method, _, _ = session.get(work)
    session.channel.basic_ack(method.delivery_tag)


@case
def full_queues_refuse(session):
    queue = session.queue({"x-max-length": 2, "x-overflow": "reject-publish"})
    session.channel.confirm_delivery()
    session.publish(queue, b"a", b"b")
    session.settled(queue, 2)
    try:
        session.publish(queue, b"c")
    except NackError:
        pass
    else:
        raise AssertionError("not refused")
    assert session.drain(queue, 2) == [b"a", b"b"]


@case
def refused_messages_can_be_dead_letters(session):
    grave = session.queue()
    queue = session.queue({"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave})
    session.publish(queue, b"a")
    session.settled(queue, 1)
    session.publish(queue, b"b")
    _, properties, body = session.get(grave, auto_ack=True)
    assert (body, properties.headers["x-death"][0]["reason"], properties.headers["x-death"][0]["queue"]) == (b"b", "maxlen", queue), properties.headers
    assert session.drain(queue, 1) == [b"a"]


@case
def quorum_queues_count_returns(session):
    queue = session.queue({"x-queue-type": "quorum", "x-delivery-limit": 2})
    session.channel.confirm_delivery()
    session.publish(queue, b"poison")
    seen = []
    for _ in range(3):
        method, properties, _ = session.get(queue)
        seen.append((properties.headers or {}).get("x-delivery-count", 0))
        session.channel.basic_reject(method.delivery_tag, requeue=True)
    assert seen == [0, 1, 2], seen
    session.settled(queue, 0)


@case
def transactions_of_a_channel(session):
    queue = session.queue()
    session.channel.tx_select()
    session.publish(queue, b"a")
    session.settled(queue, 0)
    session.channel.tx_rollback()
    session.publish(queue, b"b")
    session.channel.tx_commit()
    session.settled(queue, 1)
    method, _, body = session.get(queue)
    assert body == b"b"
    session.channel.basic_ack(method.delivery_tag)
    session.channel.tx_rollback()
    session.channel.basic_ack(method.delivery_tag)
    session.channel.tx_commit()
    session.settled(queue, 0)


@case
def answers_come_straight(session):
    server = session.queue()
    answers = []
    session.channel.basic_consume("amq.rabbitmq.reply-to", lambda _c, _m, properties, body: answers.append((properties.correlation_id, body)), auto_ack=True)
    session.publish(server, b"question", reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    _, properties, _ = session.get(server, auto_ack=True)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to."), properties.reply_to
    other = Session(session.address)
    other.channel.basic_publish("", properties.reply_to, b"answer", pika.BasicProperties(correlation_id=properties.correlation_id))
    assert session.pump(lambda: answers == [("7", b"answer")]), answers
    other.end()


@case
def hard_errors_end_the_connection(session):
    victim = Session(session.address)
    try:
        victim.channel.basic_qos(prefetch_size=5)
    except ConnectionClosedByBroker as closed:
        assert closed.reply_code == 540, closed.reply_code
    else:
        raise AssertionError("taken")


def kafka_sees_queues(session):
    """Of both protocols at once: the same log."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
    queue = session.queue()
    session.channel.confirm_delivery()
    session.publish(queue, b"from amqp", headers={"who": "me"})
    reader = Consumer({"bootstrap.servers": session.kafka, "group.id": "none", "enable.auto.commit": False})
    reader.assign([TopicPartition(queue, 0, 0)])
    message = reader.poll(10)
    assert message and message.value() == b"from amqp" and ("who", b"me") in message.headers(), message and message.headers()
    producer = Producer({"bootstrap.servers": session.kafka})
    producer.produce(queue, b"from kafka", key=b"key", headers=[("what", b"a record")])
    assert producer.flush(10) == 0
    assert session.drain(queue, 1) == [b"from amqp"]
    method, properties, body = session.get(queue)
    assert body == b"from kafka" and properties.headers["what"] == "a record" and method.routing_key == queue, (body, properties)
    session.channel.basic_ack(method.delivery_tag)
    reader.close()
    # Nothing but its consumers, limits and times may take messages away, also by way of a default.
    admin = AdminClient({"bootstrap.servers": session.kafka})
    for change, value in ((AlterConfigOpType.DELETE, None), (AlterConfigOpType.SET, "1000")):
        entry = ConfigEntry("retention.ms", value, incremental_operation=change)
        future, = admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, queue, incremental_configs=[entry])]).values()
        refusal = future.exception(20)
        assert refusal and "INVALID_CONFIG" in str(refusal), f"{change}: {refusal}"


def main(ours, named=()):
    """`ours`: cases that belong to this broker, and run where Kafka is served as well; `named`: those that run only if they are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--kafka")
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    for function in [*(ours if chosen.kafka else []), *(one for one in named if one.__name__.replace("_", "-") in chosen.names)]:
        case(function)
    for name, run in CASES.items():
        if chosen.names and name not in chosen.names:
            continue
        session = None
        try:
            session = Session(chosen.address)
            session.address, session.kafka = chosen.address, chosen.kafka
            run(session)
            session.end()
            print(f"ok {name}", flush=True)
        except Exception as error:
            at = traceback.extract_tb(sys.exc_info()[2])[-1]
            print(f"FAIL {name}: {type(error).__name__} {error} ({at.name}:{at.lineno})".replace("\n", " "), flush=True)
            if session and session.connection.is_open:
                session.connection.close()


if __name__ == "__main__":
    main(ours=[kafka_sees_queues])
