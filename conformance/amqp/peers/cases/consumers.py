"""basic.qos, basic.consume, basic.cancel, basic.get, direct reply-to."""

import wire
from client import publish
from wire import Field
from . import case, each


@each(size=dict(prefetch_size=1), largest_size=dict(prefetch_size=0xFFFFFFFF), size_and_count=dict(prefetch_size=1, prefetch_count=1))
def qos_with(t, values):
    t.send("basic.qos", expect=1, **values)


@each(of_the_channel=dict(prefetch_count=1, **{"global": True}), of_consumers=dict(prefetch_count=65535),
      size_of_the_channel=dict(prefetch_size=1, **{"global": True}))
def qos(t, values):
    t.send("basic.qos", expect=1, **values)


@case
def consume_of_no_queue(t):
    t.send("basic.consume", queue="peer-nowhere")


@case
def consume_of_no_queue_with_no_wait(t):
    t.send("basic.consume", queue="peer-nowhere", no_wait=True)


@case
def consume_with_a_tag_twice(t):
    queue = t.queue()
    t.consume(queue)
    t.send("basic.consume", queue=queue, consumer_tag="tag")


@case
def consume_with_a_tag_twice_of_two_channels(t):
    queue = t.queue()
    t.consume(queue)
    t.send("basic.consume", channel=99, queue=queue, consumer_tag="tag")


@case
def consume_with_a_generated_tag(t):
    t.send("basic.consume", queue=t.queue())


@case
def consume_beside_an_exclusive_consumer(t):
    queue = t.queue()
    t.consume(queue, exclusive=True)
    t.send("basic.consume", queue=queue, consumer_tag="other")


@case
def consume_exclusively_beside_a_consumer(t):
    queue = t.queue()
    t.consume(queue)
    t.send("basic.consume", queue=queue, consumer_tag="other", exclusive=True)


@case
def consume_exclusively_of_a_single_active_consumer(t):
    t.send("basic.consume", queue=t.queue({"x-single-active-consumer": True}), consumer_tag="tag", exclusive=True)


@case
def consume_exclusively_of_a_quorum_queue(t):
    queue = t.queue({"x-queue-type": "quorum"})
    t.consume(queue, exclusive=True)
    t.send("basic.consume", queue=queue, consumer_tag="other")


@case
def consume_beside_an_exclusive_consumer_of_another_connection(t):
    queue = t.queue()
    t.another().call(1, "basic.consume", queue=queue, exclusive=True)
    t.send("basic.consume", queue=queue, consumer_tag="other")


@each(text="x", float=1.5, flag=True, list=[1], nothing=None, negative=-5, beyond_32_bits=1 << 40, octet=Field(("B", 7)))
def consume_with_a_priority(t, value):
    t.send("basic.consume", queue=t.queue(), consumer_tag="tag", arguments={"x-priority": value})


@each(text="x", negative=-1, minute=60_000)
def consume_with_a_timeout(t, value):
    t.send("basic.consume", queue=t.queue(), consumer_tag="tag", arguments={"x-consumer-timeout": value})


@each(text="first", number=5)
def consume_with_a_stream_offset(t, value):
    t.send("basic.consume", queue=t.queue(), consumer_tag="tag", arguments={"x-stream-offset": value})


@case
def consume_with_an_argument_nobody_knows(t):
    t.send("basic.consume", queue=t.queue(), consumer_tag="tag", arguments={"x-anything": 1})


@case
def consume_without_local(t):
    t.send("basic.consume", queue=t.queue(), consumer_tag="tag", no_local=True)


@case
def cancel_of_nobody(t):
    t.send("basic.cancel", consumer_tag="nobody")


@case
def cancel_without_a_tag(t):
    t.send("basic.cancel")


@case
def cancel_of_another_channel(t):
    t.consume(t.queue())
    t.send("basic.cancel", channel=99, consumer_tag="tag")


@case
def cancel_with_no_wait(t):
    queue = t.queue()
    t.consume(queue)
    t.send("basic.cancel", consumer_tag="tag", no_wait=True)
    t.send("queue.delete", queue=queue, if_unused=True)


@case
def cancelled_by_the_deletion_of_the_queue(t):
    queue = t.queue()
    t.consume(queue)
    t.other.call(1, "queue.delete", queue=queue)
    t.frames("nothing", b"", expect=1)
    t.send("basic.cancel", consumer_tag="tag")


@case
def cancelled_without_the_capability(t):
    t.connect(client={})
    queue = t.queue()
    t.consume(queue)
    t.other.call(1, "queue.delete", queue=queue)
    t.send("queue.declare", queue=queue, passive=True)


@case
def get_of_no_queue(t):
    t.send("basic.get", queue="peer-nowhere")


@case
def get_of_an_empty_queue(t):
    t.send("basic.get", queue=t.queue())


@case
def get_of_a_message(t):
    t.send("basic.get", queue=t.queue(messages=[b"one", b"two"]))


@case
def get_beside_an_exclusive_consumer(t):
    queue = t.queue()
    t.consume(queue, exclusive=True)
    t.send("basic.get", queue=queue)


@case
def get_of_a_single_active_consumer(t):
    t.send("basic.get", queue=t.queue({"x-single-active-consumer": True}, messages=[b"one"]))


REPLY = "amq.rabbitmq.reply-to"


@case
def reply_to_with_acknowledgements(t):
    t.send("basic.consume", queue=REPLY, consumer_tag="tag")


@case
def reply_to(t):
    t.send("basic.consume", queue=REPLY, consumer_tag="tag", no_ack=True)
    t.send("queue.declare", queue=REPLY, passive=True)


@case
def reply_to_twice(t):
    t.link.call(1, "basic.consume", queue=REPLY, consumer_tag="tag", no_ack=True)
    t.send("basic.consume", queue=REPLY, consumer_tag="other", no_ack=True)


@case
def reply_to_exclusively(t):
    t.send("basic.consume", queue=REPLY, consumer_tag="tag", no_ack=True, exclusive=True)


@case
def reply_to_cancelled_and_used(t):
    t.link.call(1, "basic.consume", queue=REPLY, consumer_tag="tag", no_ack=True)
    t.send("basic.cancel", consumer_tag="tag")
    t.send("basic.publish", routing_key="x", content=({"reply_to": REPLY}, b"x"))


@case
def reply_to_of_nobody(t):
    t.send("basic.publish", routing_key="x", content=({"reply_to": REPLY}, b"x"))


@case
def reply_to_of_another_channel(t):
    t.link.call(99, "basic.consume", queue=REPLY, consumer_tag="tag", no_ack=True)
    t.send("basic.publish", routing_key="x", content=({"reply_to": REPLY}, b"x"))


@each(broken=f"{REPLY}.nonsense", empty=f"{REPLY}.")
def reply_to_a_name(t, key):
    t.send("basic.publish", routing_key=key, mandatory=True, content=({}, b"x"))
    t.send("queue.declare", queue=key, passive=True)


@case
def reply_that_arrives(t):
    queue = t.queue()
    t.link.call(1, "basic.consume", queue=REPLY, consumer_tag="tag", no_ack=True)
    t.link.raw(publish(1, b"question", {"reply_to": REPLY}, routing_key=queue))
    t.link.call(1, "basic.qos")
    t.other.method(1, "basic.get", queue=queue, no_ack=True)
    t.other.expect("basic.get-ok")
    key = wire.properties(t.other.receive()[2])[1]["reply-to"]
    t.other.receive()
    t.known[key] = "<reply>"
    t.send("queue.declare", channel=99, queue=key, passive=True)
    t.other.raw(publish(1, b"answer", routing_key=key))
    t.frames("nothing", b"", expect=1)
