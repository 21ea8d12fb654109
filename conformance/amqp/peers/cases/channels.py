"""Channels: opened twice, closed, used when closed, held up."""

import wire
from client import publish
from . import case, each


@case
def channel_open_twice(t):
    t.send("channel.open")


@case
def channel_close(t):
    t.send("channel.close", reply_code=200, expect=1)
    t.link.channels.discard(1)
    t.send("channel.open", expect=1)
    t.link.channels.add(1)


@case
def channel_close_and_use(t):
    t.send("channel.close", reply_code=200, expect=1)
    t.send("basic.qos")


@case
def channel_close_twice(t):
    t.send("channel.close", reply_code=200, expect=1)
    t.send("channel.close", reply_code=200)


@case
def channel_close_ok_without_a_close(t):
    t.send("channel.close-ok")


def refused(t):
    """Channel 1 as the broker has closed it, without the client's close-ok."""
    t.link.method(1, "queue.declare", queue="peer-nowhere", passive=True)
    t.link.expect("channel.close")


def closed(t):
    """Ends what `refused` has begun."""
    if not t.link.ended:
        t.link.method(1, "channel.close-ok")
        t.link.channel(1)
    t.send("basic.qos")


@case
def what_comes_before_close_ok_is_passed_over(t):
    queue = t.unique("queue")
    refused(t)
    late = wire.frame(wire.METHOD, 1, wire.method("queue.declare", queue=queue, durable=True)) + publish(1, b"x", routing_key=queue)
    t.frames("queue.declare and a message", late, probe=99)
    t.link.method(1, "channel.close-ok")
    t.link.channel(1)
    t.send("queue.declare", queue=queue, passive=True)


@case
def close_of_both_sides(t):
    refused(t)
    t.send("channel.close", reply_code=200, expect=1)
    t.link.method(1, "channel.close-ok")
    t.link.channel(1)
    t.send("basic.qos")


@case
def open_before_close_ok(t):
    refused(t)
    t.frames("channel.open", wire.frame(wire.METHOD, 1, wire.method("channel.open")), expect=1, within=2.0)
    closed(t)


@case
def unknown_method_before_close_ok(t):
    refused(t)
    t.frames("method (50, 99)", wire.frame(wire.METHOD, 1, b"\0\x32\0\x63"), probe=99)
    closed(t)


@case
def broken_frame_before_close_ok(t):
    refused(t)
    t.frames("frame of type 7", wire.frame(7, 1, b""), probe=99)


@case
def body_before_close_ok(t):
    refused(t)
    t.frames("body", wire.frame(wire.BODY, 1, b"x"), probe=99)
    closed(t)


@each(off=False, on=True)
def channel_flow(t, active):
    t.send("channel.flow", active=active)


@case
def consumer_of_a_channel_that_was_refused(t):
    queue = t.queue(messages=[b"one"])
    t.consume(queue, count=1)
    t.send("queue.declare", queue="peer-nowhere", passive=True)
    t.link.channel(1)
    t.send("basic.get", queue=queue, no_ack=True)


@case
def refusal_with_no_wait(t):
    t.send("queue.declare", queue="peer-nowhere", passive=True, no_wait=True)


@case
def refusals_in_a_row(t):
    for _ in range(20):
        refused(t)
        t.link.method(1, "channel.close-ok")
        t.link.channel(1)
    t.send("basic.qos")
