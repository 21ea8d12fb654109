"""Exchanges: declared, deleted, bound to each other."""

from . import case, each

DEFAULT = ""


@each(default=DEFAULT, reserved="amq.peer", reserved_of_rabbitmq="amq.rabbitmq.peer")
def exchange_declare(t, name):
    t.send("exchange.declare", exchange=name, type="direct")


@each(unknown="nonsense", empty="", of_a_plugin="x-delayed-message", in_capitals="DIRECT")
def exchange_of_type(t, kind):
    t.send("exchange.declare", exchange=t.unique("exchange"), type=kind)


@case
def exchange_that_is_there_of_an_unknown_type(t):
    t.send("exchange.declare", exchange=t.exchange(), type="nonsense", durable=True)


@case
def exchange_passive_of_none(t):
    t.send("exchange.declare", exchange="peer-nowhere", passive=True)


@each(default=DEFAULT, amq="amq.direct")
def exchange_passive(t, name):
    t.send("exchange.declare", exchange=name, passive=True)


@case
def exchange_passive_of_another_type(t):
    t.send("exchange.declare", exchange=t.exchange(), type="fanout", passive=True)


@each(type=dict(type="fanout"), durable=dict(durable=False), auto_delete=dict(auto_delete=True), internal=dict(internal=True),
      new_alternate_exchange=dict(arguments={"alternate-exchange": "amq.fanout"}))
def exchange_again_with_another(t, field):
    t.send("exchange.declare", exchange=t.exchange(), **{"type": "direct", "durable": True, **field})


@case
def exchange_again_with_another_alternate_exchange(t):
    t.send("exchange.declare", exchange=t.exchange(arguments={"alternate-exchange": "amq.fanout"}), type="direct", durable=True,
           arguments={"alternate-exchange": "amq.direct"})


@case
def exchange_again_without_its_alternate_exchange(t):
    t.send("exchange.declare", exchange=t.exchange(arguments={"alternate-exchange": "amq.fanout"}), type="direct", durable=True)


@case
def exchange_again_with_an_argument_nobody_knows(t):
    t.send("exchange.declare", exchange=t.exchange(), type="direct", durable=True, arguments={"x-anything": 1})


@case
def exchange_again_as_it_is(t):
    t.send("exchange.declare", exchange=t.exchange("topic", internal=True, auto_delete=True), type="topic", durable=True, internal=True,
           auto_delete=True)


@each(type=dict(type="fanout", durable=True), durable=dict(type="direct"), internal=dict(type="direct", durable=True, internal=True))
def exchange_amq_direct_with_another(t, field):
    t.send("exchange.declare", exchange="amq.direct", **field)


@each(number=5, list=["a"], flag=True, nothing=None)
def alternate_exchange_that_is_a(t, value):
    t.send("exchange.declare", exchange=t.unique("exchange"), type="direct", auto_delete=True, arguments={"alternate-exchange": value})


@case
def alternate_exchange_that_is_not_there(t):
    exchange = t.exchange(arguments={"alternate-exchange": "peer-nowhere"})
    t.send("basic.publish", exchange=exchange, routing_key="x", mandatory=True, content=({}, b"x"))


@each(default=DEFAULT, amq_direct="amq.direct", amq_headers="amq.headers", of_none="peer-nowhere")
def exchange_delete(t, name):
    t.send("exchange.delete", exchange=name)


@case
def exchange_delete_in_use(t):
    exchange = t.exchange()
    t.other.call(1, "queue.bind", queue=t.queue(), exchange=exchange)
    t.send("exchange.delete", exchange=exchange, if_unused=True)


@case
def exchange_delete_in_use_as_a_source(t):
    exchange = t.exchange()
    t.other.call(1, "exchange.bind", destination=t.exchange(), source=exchange)
    t.send("exchange.delete", exchange=exchange, if_unused=True)


@case
def exchange_delete_unused(t):
    t.send("exchange.delete", exchange=t.exchange(), if_unused=True)


@case
def exchange_used_after_its_deletion(t):
    exchange = t.exchange()
    t.send("exchange.delete", exchange=exchange)
    t.send("basic.publish", exchange=exchange, routing_key="x", content=({}, b"x"))


@each(source=("amq.direct", "peer-nowhere"), destination=("peer-nowhere", "amq.direct"), either=("peer-nowhere", "peer-nowhere-else"),
      default_destination=(DEFAULT, "amq.direct"), default_source=("amq.direct", DEFAULT))
def exchange_bind_without(t, ends):
    t.send("exchange.bind", destination=ends[0], source=ends[1], routing_key="x")


@each(source=("amq.direct", "peer-nowhere"), destination=("peer-nowhere", "amq.direct"), a_binding=("amq.direct", "amq.topic"),
      default_destination=(DEFAULT, "amq.direct"), default_source=("amq.direct", DEFAULT))
def exchange_unbind_without(t, ends):
    t.send("exchange.unbind", destination=ends[0], source=ends[1], routing_key="x")


@case
def exchange_bind_to_itself(t):
    exchange = t.exchange("fanout")
    t.send("exchange.bind", destination=exchange, source=exchange)
    t.send("basic.publish", exchange=exchange, mandatory=True, content=({}, b"x"))


@case
def exchange_internal_published_to(t):
    t.send("basic.publish", exchange=t.exchange(internal=True), routing_key="x", content=({}, b"x"))


@case
def exchange_of_traces_published_to(t):
    t.send("basic.publish", exchange="amq.rabbitmq.trace", routing_key="x", content=({}, b"x"))


@each(of_none="peer-nowhere")
def publish_to_an_exchange(t, name):
    t.send("basic.publish", exchange=name, routing_key="x", content=({}, b"x"))


@case
def exchange_name_of_255_bytes(t):
    name = t.unique("exchange")
    name_long = name + "x" * (255 - len(name))
    t.known[name_long] = "<exchange-long>"
    t.made.append(("exchange", name_long))
    t.send("exchange.declare", exchange=name_long, type="direct")


@case
def exchange_name_with_line_ends(t):
    # They are taken off.
    name = t.unique("exchange")
    t.send("exchange.declare", exchange=f"{name}\r\n", type="direct", durable=True)
    t.send("exchange.declare", exchange=name, passive=True)
