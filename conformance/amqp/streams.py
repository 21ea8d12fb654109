"""What clients of RabbitMQ rely on in stream queues, with pika; arguments and output as those of `cases.py`. Two more cases, which run only if
they are named, belong before and after a restart: `keep`, `kept`."""

import datetime
import time

import pika
from pika.exceptions import ConnectionClosedByBroker

import cases
from cases import case

STREAM = {"x-queue-type": "stream"}
KEPT = "stream-that-is-kept"

cases.CASES.clear()


def stream(session, *bodies, **arguments):
    """A stream with messages in it."""
    queue = session.queue({**STREAM, **{name.replace("_", "-"): value for name, value in arguments.items()}})
    session.channel.confirm_delivery()
    session.publish(queue, *bodies)
    return queue


class Reader:
    """A consumer on a channel of its own."""

    def __init__(self, session, queue, offset="first", prefetch=100, settle=True, **arguments):
        self.session, self.got, self.cancelled = session, [], []
        self.channel = session.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.channel.add_on_cancel_callback(lambda frame: self.cancelled.append(frame.method.consumer_tag))
        self.settle = (lambda tag: self.channel.basic_ack(tag)) if settle is True else settle
        wish = {"x-stream-offset": offset, **{name.replace("_", "-"): value for name, value in arguments.items()}}
        self.tag = self.channel.basic_consume(queue, self.take, arguments={name: value for name, value in wish.items() if value is not None})

    def take(self, _channel, method, properties, body):
        self.got.append((properties.headers["x-stream-offset"], body))
        assert not method.redelivered
        if self.settle:
            self.settle(method.delivery_tag)

    def bodies(self, count, more=0.2):
        """So many, and a while later no more."""
        assert self.session.pump(lambda: len(self.got) >= count), f"{len(self.got)} of {count}: {self.got[:5]}"
        self.session.pump(lambda: False, more)
        return [body for _, body in self.got]


@case
def many_consumers_read_everything(session):
    bodies = [b"%d" % number for number in range(1000)]
    queue = stream(session, *bodies)
    readers = [Reader(session, queue, prefetch=prefetch) for prefetch in (1, 7, 1000)]
    for reader in readers:
        assert reader.bodies(1000) == bodies
        assert [offset for offset, _ in reader.got] == list(range(1000))
    session.publish(queue, b"one more")
    for reader in readers:
        assert reader.bodies(1001)[-1] == b"one more"


@case
def consumers_begin_where_they_say(session):
    queue = stream(session, b"a", b"b", b"c")
    now = datetime.datetime.now(datetime.timezone.utc)
    places = [("first", 3), ("last", 1), ("next", 0), (0, 3), (1, 2), (2, 1), (3, 0), (-5, 3), ("1h", 3), ("2D", 3), (None, 0),
              (now - datetime.timedelta(hours=1), 3), (now + datetime.timedelta(hours=1), 0)]
    readers = [(place, count, Reader(session, queue, place)) for place, count in places]
    for place, count, reader in readers:
        assert reader.bodies(count, 0.05) == [b"a", b"b", b"c"][3 - count:], f"{place}: {reader.got}"
    session.publish(queue, b"d")
    for place, count, reader in readers:
        if place != now + datetime.timedelta(hours=1):
            assert reader.bodies(count + 1, 0.02)[-1:] == [b"d"], f"{place}: {reader.got}"
    ahead = Reader(session, queue, 6)
    session.publish(queue, b"e", b"f", b"g")
    assert ahead.bodies(1) == [b"g"], ahead.got


@case
def whatever_is_said_of_a_message_is_credit(session):
    queue = stream(session, *[b"%d" % number for number in range(8)])
    words = [lambda channel: channel.basic_ack(1), lambda channel: channel.basic_nack(1, requeue=True), lambda channel: channel.basic_reject(1, requeue=False),
             lambda channel: channel.basic_ack(2, multiple=True), lambda channel: channel.basic_recover(True)]
    for word, more in zip(words, (1, 1, 1, 2, 2)):
        reader = Reader(session, queue, prefetch=2, settle=None)
        assert reader.bodies(2, 0.1) == [b"0", b"1"]
        word(reader.channel)
        assert reader.bodies(2 + more, 0.1) == [b"%d" % number for number in range(2 + more)], reader.got
        reader.channel.close()
    session.settled(queue, 8) if session.kafka else None


@case
def what_streams_do_not_do_is_refused(session):
    queue = stream(session, b"a")
    name = f"queue '{queue}' in vhost '/'"

    def ends(action):
        victim = cases.Session(session.address)
        try:
            action(victim.channel)
        except ConnectionClosedByBroker as closed:
            return closed.reply_code, closed.reply_text
        raise AssertionError("taken")

    assert ends(lambda channel: channel.basic_get(queue)) == (540, f"NOT_IMPLEMENTED - basic.get not supported by stream queues {name}")
    assert ends(lambda channel: channel.queue_purge(queue)) == (540, f"NOT_IMPLEMENTED - queue.purge not supported by stream queues {name}")

    def without_acknowledgements(channel):
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queue, print, auto_ack=True)
    assert ends(without_acknowledgements) == (540, f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream {name}")
    text = session.refused(406, lambda channel: channel.basic_consume(queue, print))
    assert text == f"PRECONDITION_FAILED - consumer prefetch count is not set for stream {name}", text

    def consumes(**arguments):
        def action(channel):
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume(queue, print, arguments={word.replace("_", "-"): value for word, value in arguments.items()})
        return session.refused(406, action)
    assert consumes(x_priority=5) == f"PRECONDITION_FAILED - invalid arg 'x-priority' for {name} of queue type rabbit_stream_queue"
    assert consumes(x_stream_offset="5") == f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for {name}: {{invalid_stream_offset_arg,{{longstr,<<\"5\">>}}}}"


@case
def declarations_of_streams_are_checked(session):
    def declares(flags=None, **arguments):
        arguments = {**STREAM, **{name.replace("_", "-"): value for name, value in arguments.items()}}
        return session.refused(406, lambda channel: channel.queue_declare("st", arguments=arguments, **{"durable": True, **(flags or {})}))[len("PRECONDITION_FAILED - "):]
    for flags, property in (({"durable": False}, "non-durable"), ({"exclusive": True}, "exclusive-owner"), ({"auto_delete": True}, "auto-delete")):
        assert declares(flags) == f"invalid property '{property}' for queue 'st' in vhost '/'"
    of_others = f"invalid arg '%s' for queue 'st' in vhost '/' of queue type rabbit_stream_queue"
    for argument, value in (("x-max-length", 5), ("x-message-ttl", 5), ("x-expires", 5), ("x-dead-letter-exchange", "a"), ("x-single-active-consumer", True),
                            ("x-overflow", "drop-head"), ("x-max-priority", 5), ("x-delivery-limit", 5), ("x-queue-mode", "lazy")):
        assert declares(**{argument: value}) == of_others % argument
    wrong = "invalid arg '%s' for queue 'st' in vhost '/': %s"
    for argument, value, why in (("x-max-age", "5", "invalid_max_age"), ("x-max-age", "0s", "invalid_max_age"), ("x-max-age", 5, "{unacceptable_type,signedint}"),
                                 ("x-max-length-bytes", -1, "{value_negative,-1}"), ("x-initial-cluster-size", 0, "{value_zero,0}")):
        assert declares(**{argument: value}) == wrong % (argument, why)
    assert declares(x_stream_max_segment_size_bytes=3_000_000_001) == "Exceeded max value for x-stream-max-segment-size-bytes"
    assert declares(x_stream_filter_size_bytes=15) == "Invalid value for x-stream-filter-size-bytes"
    queue = stream(session, x_max_age="60m", x_max_length_bytes=1 << 30, x_stream_max_segment_size_bytes=1 << 20, x_initial_cluster_size=1)
    same = {**STREAM, "x-max-age": "1h", "x-max-length-bytes": 1 << 30, "x-stream-max-segment-size-bytes": 1 << 20, "x-initial-cluster-size": 1}
    session.channel.queue_declare(queue, durable=True, arguments=same)
    text = session.refused(406, lambda channel: channel.queue_declare(queue, durable=True, arguments={**same, "x-max-age": "2h"}))
    assert text.endswith(f"inequivalent arg 'x-max-age' for queue '{queue}' in vhost '/': received '7200000' but current is '3600000'"), text
    plain = stream(session)
    text = session.refused(406, lambda channel: channel.queue_declare(plain, durable=True))
    assert text.endswith("received 'classic' but current is 'stream'"), text


@case
def consumers_hear_that_a_stream_is_deleted(session):
    queue = stream(session, b"a")
    reader = Reader(session, queue)
    reader.bodies(1)
    # It goes although it is used and not empty, as in RabbitMQ.
    assert session.connection.channel().queue_delete(queue, if_unused=True, if_empty=True).method.message_count == 0
    assert session.pump(lambda: reader.cancelled == [reader.tag]), reader.cancelled
    reader.channel.basic_ack(1)


@case
def a_consumer_that_was_cancelled_gets_nothing_more(session):
    queue = stream(session, *[b"%d" % number for number in range(50)])
    reader = Reader(session, queue, prefetch=5, settle=None)
    reader.bodies(5)
    reader.channel.basic_cancel(reader.tag)
    reader.channel.basic_ack(5, multiple=True)
    assert len(reader.bodies(5)) == 5


@case
def consumers_choose_by_the_value_of_a_header(session):
    queue = stream(session)
    for value, body in (("a", b"1"), ("b", b"2"), (None, b"3"), ("a", b"4")):
        session.publish(queue, body, headers={"x-stream-filter-value": value} if value else None)
        # RabbitMQ chooses among chunks, of which each of these is one.
        time.sleep(0.05)
    chosen = [(dict(x_stream_filter="a"), [b"1", b"4"]), (dict(x_stream_filter=["a", "b"]), [b"1", b"2", b"4"]),
              (dict(x_stream_filter="b", x_stream_match_unfiltered=True), [b"2", b"3"]), (dict(x_stream_filter="c"), []),
              (dict(x_stream_match_unfiltered=True), [b"1", b"2", b"3", b"4"])]
    for wish, bodies in chosen:
        assert Reader(session, queue, **wish).bodies(len(bodies)) == bodies, wish


@case
def consumers_choose_by_an_expression(session):
    """Ours: RabbitMQ has expressions for AMQP 1.0 only."""
    queue = stream(session)
    for number in range(200):
        session.publish(queue, b"%d" % number, headers={"kind": "odd" if number % 2 else "even", "number": number})
    wanted = [b"%d" % number for number in range(200) if number % 2 and number > 150]
    words = "header.kind = 'odd' AND header.number > 150"
    assert Reader(session, queue, x_mainstem_filter=words).bodies(len(wanted)) == wanted
    assert Reader(session, queue, x_mainstem_filter="header.kind IS NULL").bodies(0) == []
    plain = session.queue({})
    for where, words, text in [(queue, "kind = 'odd'", "at character 1: expected a field: key, timestamp or header.NAME, found kind"),
                               (plain, "TRUE", f"invalid arg 'x-mainstem-filter' for queue '{plain}' in vhost '/' of queue type rabbit_classic_queue")]:
        def consume(channel, where=where, words=words):
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume(where, lambda *_: None, arguments={"x-mainstem-filter": words})
        assert text in session.refused(406, consume)


@case
def streams_take_dead_letters_and_transactions(session):
    queue = stream(session)
    source = session.queue({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue})
    session.publish(source, b"dead")
    method, _, _ = session.get(source)
    session.channel.basic_reject(method.delivery_tag, requeue=False)
    reader = Reader(session, queue)
    assert reader.bodies(1) == [b"dead"]
    other = session.connection.channel()
    other.tx_select()
    other.basic_publish("", queue, b"one")
    other.basic_publish("", queue, b"two")
    assert reader.bodies(1) == [b"dead"]
    other.tx_commit()
    assert reader.bodies(3) == [b"dead", b"one", b"two"]


def history_is_read(session):
    """More than the cache of the tail holds, by several consumers at once, each at its own pace."""
    body, count = bytes(range(250)) * 40, 6000
    queue = session.queue(STREAM)
    session.channel.confirm_delivery()
    sender = cases.Session(session.address)
    for number in range(count):
        sender.channel.basic_publish("", queue, b"%06d" % number + body)
    sender.channel.queue_declare(queue, passive=True)
    readers = [Reader(session, queue, place, prefetch) for place, prefetch in (("first", 50), ("first", 3000), (count // 2, 500))]
    for reader, first in zip(readers, (0, 0, count // 2)):
        assert session.pump(lambda: len(reader.got) >= count - first, 60), f"{len(reader.got)} of {count - first}"
        assert [offset for offset, _ in reader.got] == list(range(first, count))
        assert all(got == b"%06d" % offset + body for offset, got in reader.got)
    sender.end()


def retention_takes_messages_away(session):
    """The broker under test looks after retention several times a second."""
    short, old = session.queue({**STREAM, "x-max-length-bytes": 20_000}), session.queue({**STREAM, "x-max-age": "1s"})
    session.channel.confirm_delivery()
    for number in range(100):
        for queue in (short, old):
            session.publish(queue, b"%02d" % number + bytes(998))
    until = time.time() + 10
    while session.counts(old)[0] > 0 or session.counts(short)[0] > 50:
        assert time.time() < until, (session.counts(short), session.counts(old))
        time.sleep(0.1)
    left = session.counts(short)[0]
    assert left >= 15, left
    # What is gone is passed over, also by a number.
    for place in ("first", 0):
        reader = Reader(session, short, place)
        reader.bodies(left)
        assert [offset for offset, _ in reader.got] == list(range(100 - left, 100))
    session.publish(old, b"new")
    assert Reader(session, old, 5).bodies(1) == [b"new"]


def keep(session):
    session.channel.queue_declare(KEPT, durable=True, arguments={**STREAM, "x-max-age": "1D"})
    session.channel.confirm_delivery()
    session.publish(KEPT, *[b"%d" % number for number in range(100)])


def kept(session):
    session.channel.queue_declare(KEPT, durable=True, arguments={**STREAM, "x-max-age": "24h"})
    assert Reader(session, KEPT).bodies(100) == [b"%d" % number for number in range(100)]
    session.queues.append(KEPT)


if __name__ == "__main__":
    cases.main(ours=[history_is_read, retention_takes_messages_away], named=[keep, kept])
