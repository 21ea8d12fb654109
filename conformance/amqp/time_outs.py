"""Quorum queues that take back what consumers keep too long, and that let what comes back wait, with pika; arguments and output as those of
`cases.py`. A channel with a consumer that was cancelled is closed before its queue goes: it would be cancelled once more, as by RabbitMQ, for which
pika is not prepared."""

import time

import cases
from cases import case
from pika.exceptions import ChannelClosedByBroker, ChannelWrongStateError

cases.CASES.clear()
QUORUM = {"x-queue-type": "quorum"}


def collect(session, queue, **flags):
    """A consumer on a channel of its own: the channel, what it gets and when, and when it is cancelled."""
    channel, got, cancelled, began = session.connection.channel(), [], [], time.time()
    channel.add_on_cancel_callback(lambda frame: cancelled.append((frame.method.consumer_tag, time.time() - began)))
    channel.basic_qos(prefetch_count=flags.pop("prefetch", 10))
    channel.basic_consume(queue, lambda _c, method, properties, body: got.append((body, method, properties.headers or {}, time.time() - began)), **flags)
    return channel, got, cancelled


@case
def another_consumer_gets_what_one_keeps_too_long(session):
    queue = session.queue({**QUORUM, "x-consumer-timeout": 600, "x-delivery-limit": 1})
    session.publish(queue, b"1", b"2")
    first_channel, first, cancelled = collect(session, queue, consumer_tag="slow", prefetch=1)
    assert session.pump(lambda: first)
    second_channel, second, _ = collect(session, queue, arguments={"x-consumer-timeout": 60_000})
    assert session.pump(lambda: len(second) == 2), second
    assert [(body, method.redelivered) for body, method, _, _ in second] == [(b"2", False), (b"1", True)], second
    assert (cancelled[0][0], 0.55 < cancelled[0][1] < 1.5) == ("slow", True), cancelled
    # It has not failed: the limit of deliveries does not count it.
    assert second[1][2] == {"x-acquired-count": 1}, second
    second_channel.basic_ack(0, multiple=True)
    session.settled(queue, 0, 2)
    first_channel.close()


@case
def who_asks_for_a_message_and_keeps_it_loses_the_channel(session):
    queue = session.queue({**QUORUM, "x-consumer-timeout": 300})
    session.publish(queue, b"1")
    session.settled(queue, 1)
    channel, reason = session.connection.channel(), None
    assert channel.basic_get(queue)[2] == b"1"
    until = time.time() + 5
    while reason is None and time.time() < until:
        session.connection.process_data_events(time_limit=0.05)
        try:
            channel.basic_qos(prefetch_count=1)
        except (ChannelClosedByBroker, ChannelWrongStateError):
            reason = channel._impl._closing_reason
    assert reason.reply_code == 406 and "delivery acknowledgement on channel" in reason.reply_text, reason
    assert session.get(queue)[2] == b"1"


@case
def the_argument_of_the_consumer_counts(session):
    queue = session.queue({**QUORUM, "x-consumer-timeout": 60_000})
    session.publish(queue, b"1")
    channel, got, cancelled = collect(session, queue, arguments={"x-consumer-timeout": 300})
    assert session.pump(lambda: cancelled), got
    channel.close()
    classic = session.queue()
    session.refused(406, lambda channel: channel.basic_consume(classic, print, arguments={"x-consumer-timeout": 300}))


@case
def an_acknowledgement_that_is_too_late_lets_a_consumer_go_on(session):
    """pika passes over what comes for a consumer that was cancelled: then the queue is empty."""
    queue = session.queue({**QUORUM, "x-consumer-timeout": 300})
    session.publish(queue, b"1", b"2")
    channel, got, cancelled = collect(session, queue, prefetch=1)
    assert session.pump(lambda: cancelled), got
    session.settled(queue, 2, 1)
    channel.basic_ack(got[0][1].delivery_tag)
    session.settled(queue, 1, 1)
    channel.close()


def retried(session, of, give_back, times):
    """When a message comes again that is given back each time, in ms after the time before."""
    rules = {"x-delayed-retry-type": of, "x-delayed-retry-min": 200, "x-delayed-retry-max": 300, "x-delivery-limit": 10}
    queue = session.queue({**QUORUM, **rules})
    session.publish(queue, b"again")
    channel, got, _ = collect(session, queue)
    for count in range(1, times + 1):
        assert session.pump(lambda: len(got) == count), got
        if count < times:
            give_back(channel, got[-1][1].delivery_tag)
            assert session.counts(queue)[0] == 0
    channel.basic_ack(got[-1][1].delivery_tag)
    at = [when for _, _, _, when in got]
    return [(after - before) * 1000 for before, after in zip(at, at[1:])]


def reject(channel, tag):
    channel.basic_reject(tag, requeue=True)


def nack(channel, tag):
    channel.basic_nack(tag, requeue=True)


@case
def what_comes_back_waits(session):
    for of, give_back, wanted in (("all", reject, [200, 300, 300]), ("all", nack, [200, 200]), ("failed", nack, [0, 0]), ("failed", reject, [200]),
                                  ("returned", reject, [0, 0]), ("returned", nack, [200])):
        tries = []
        # Something else of this machine may come between once, and again; too early is too early.
        while not tries or (len(tries) < 3 and any(found >= wait + 150 for wait, found in zip(wanted, tries[-1]))):
            tries.append(retried(session, of, give_back, len(wanted) + 1))
        least = [min(found) for found in zip(*tries)]
        assert all(wait - 1 <= found < wait + 150 for wait, found in zip(wanted, least)), f"{of}, {give_back.__name__}: {tries} instead of {wanted}"


if __name__ == "__main__":
    cases.main(ours=[])
