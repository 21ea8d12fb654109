"""Bindings of queues."""

from . import case, each


@case
def bind_of_no_queue(t):
    t.send("queue.bind", queue="peer-nowhere", exchange="amq.direct")


@case
def bind_of_no_exchange(t):
    t.send("queue.bind", queue=t.queue(), exchange="peer-nowhere")


@case
def bind_of_neither(t):
    t.send("queue.bind", queue="peer-nowhere", exchange="peer-nowhere")


@each(bind="queue.bind", unbind="queue.unbind")
def default_exchange(t, method):
    t.send(method, queue=t.queue(), exchange="", routing_key="x")


@case
def unbind_of_no_queue(t):
    t.send("queue.unbind", queue="peer-nowhere", exchange="amq.direct")


@case
def unbind_of_no_exchange(t):
    t.send("queue.unbind", queue=t.queue(), exchange="peer-nowhere")


@case
def unbind_of_no_binding(t):
    t.send("queue.unbind", queue=t.queue(), exchange="amq.direct", routing_key="x")


@case
def unbind_with_other_arguments(t):
    queue = t.queue()
    t.other.call(1, "queue.bind", queue=queue, exchange="amq.headers", arguments={"x-match": "all", "a": 1})
    t.send("queue.unbind", queue=queue, exchange="amq.headers", arguments={"x-match": "any", "a": 1})
    t.send("basic.publish", exchange="amq.headers", mandatory=True, content=({"headers": {"a": 1}}, b"x"))
    t.send("basic.get", queue=queue, no_ack=True)


@each(unknown="nonsense", number=1, flag=True, empty="", nothing=None, list=["all"], all_with_x="all-with-x")
def bind_with_x_match(t, value):
    t.send("queue.bind", queue=t.queue(), exchange="amq.headers", arguments={"x-match": value, "a": 1})


@case
def bind_without_x_match(t):
    t.send("queue.bind", queue=t.queue(), exchange="amq.headers", arguments={"a": 1})


@case
def bind_with_x_match_on_a_direct_exchange(t):
    t.send("queue.bind", queue=t.queue(), exchange="amq.direct", arguments={"x-match": "nonsense"})


@case
def exchange_bind_with_x_match(t):
    t.send("exchange.bind", destination=t.exchange(), source="amq.headers", arguments={"x-match": "nonsense"})


@case
def bind_twice(t):
    queue = t.queue()
    t.send("queue.bind", queue=queue, exchange="amq.direct", routing_key=queue)
    t.send("queue.bind", queue=queue, exchange="amq.direct", routing_key=queue)
    t.send("basic.publish", exchange="amq.direct", routing_key=queue, content=({}, b"x"))
    t.send("basic.get", queue=queue, no_ack=True)
    t.send("basic.get", queue=queue, no_ack=True)


@case
def bind_of_the_last_queue_without_a_name(t):
    t.link.call(1, "queue.declare", exclusive=True)
    t.send("queue.bind", exchange="amq.direct")
