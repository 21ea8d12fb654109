"""basic.ack, basic.nack, basic.reject, basic.recover."""

import wire
from . import case, each

METHODS = dict(ack="basic.ack", nack="basic.nack", reject="basic.reject")


@each(**METHODS)
def unknown_tag(t, method):
    t.send(method, delivery_tag=5)


@each(**METHODS)
def largest_tag(t, method):
    t.send(method, delivery_tag=(1 << 64) - 1)


@each(**METHODS)
def tag_0(t, method):
    t.send(method, delivery_tag=0)


@each(ack="basic.ack", nack="basic.nack")
def tag_0_of_many(t, method):
    t.send(method, delivery_tag=0, multiple=True)


@each(ack="basic.ack", nack="basic.nack")
def unknown_tag_of_many(t, method):
    t.send(method, delivery_tag=5, multiple=True)


@each(**METHODS)
def tag_twice(t, method):
    t.consume(t.queue(messages=[b"one", b"two"]), count=2)
    t.send("basic.ack", delivery_tag=1)
    t.send(method, delivery_tag=1)


@each(ack="basic.ack", nack="basic.nack")
def tag_below_one_of_many(t, method):
    t.consume(t.queue(messages=[b"one", b"two"]), count=2)
    t.send("basic.ack", delivery_tag=2, multiple=True)
    t.send(method, delivery_tag=1)


@case
def many_twice(t):
    t.consume(t.queue(messages=[b"one", b"two"]), count=2)
    t.send("basic.ack", delivery_tag=2, multiple=True)
    t.send("basic.ack", delivery_tag=2, multiple=True)


@case
def many_beyond_what_was_delivered(t):
    t.consume(t.queue(messages=[b"one", b"two"]), count=2)
    t.send("basic.ack", delivery_tag=3, multiple=True)


@each(**METHODS)
def tag_of_another_channel(t, method):
    queue = t.queue(messages=[b"one"])
    t.consume(queue, channel=99, count=1)
    t.send(method, delivery_tag=1)
    t.send("queue.declare", channel=99, queue=queue, passive=True)


@each(ack="basic.ack", reject="basic.reject")
def tag_of_a_consumer_without_acknowledgements(t, method):
    t.consume(t.queue(messages=[b"one"]), count=1, no_ack=True)
    t.send(method, delivery_tag=1)


@case
def tag_of_a_get_without_acknowledgements(t):
    t.send("basic.get", queue=t.queue(messages=[b"one"]), no_ack=True)
    t.send("basic.ack", delivery_tag=1)


@case
def tag_of_a_cancelled_consumer(t):
    t.consume(t.queue(messages=[b"one"]), count=1)
    t.send("basic.cancel", consumer_tag="tag")
    t.send("basic.ack", delivery_tag=1)


@case
def tag_of_a_deleted_queue(t):
    queue = t.queue(messages=[b"one"])
    t.send("basic.get", queue=queue)
    t.other.call(1, "queue.delete", queue=queue)
    t.send("basic.ack", delivery_tag=1)


@case
def tag_of_the_channel_before(t):
    t.consume(t.queue(messages=[b"one"]), count=1)
    t.send("channel.close", reply_code=200, expect=1)
    t.send("channel.open", expect=1)
    t.send("basic.ack", delivery_tag=1)


@each(again=True, to_the_same=False)
def recover(t, requeue):
    t.send("basic.recover", requeue=requeue)


@each(again=True, to_the_same=False)
def recover_async(t, requeue):
    t.send("basic.recover-async", requeue=requeue)


@case
def recover_of_messages(t):
    queue = t.queue(messages=[b"one"])
    t.send("basic.get", queue=queue)
    t.send("basic.recover", requeue=True, expect=1)
    t.send("basic.ack", delivery_tag=1)


@each(nack=("basic.nack", True), reject=("basic.reject", True))
def message_returned_with(t, wanted):
    method, requeue = wanted
    queue = t.queue(messages=[b"one"])
    t.send("basic.get", queue=queue)
    t.send(method, delivery_tag=1, requeue=requeue)
    t.send("basic.get", queue=queue)


@case
def ack_within_content(t):
    data = wire.frame(wire.METHOD, 1, wire.method("basic.publish")) + wire.frame(wire.METHOD, 1, wire.method("basic.ack", delivery_tag=1))
    t.frames("publish basic.ack", data)
