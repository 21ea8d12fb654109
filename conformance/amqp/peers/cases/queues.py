"""Queues: declared again, passive, exclusive, purged, deleted."""

from wire import Field
from . import case, each


@each(reserved="amq.peer", reserved_of_rabbitmq="amq.rabbitmq.peer", reply_to="amq.rabbitmq.reply-to.x")
def queue_declare(t, name):
    t.send("queue.declare", queue=name, durable=True)


@case
def queue_passive_of_none(t):
    t.send("queue.declare", queue="peer-nowhere", passive=True)


@case
def queue_passive_without_a_name(t):
    t.send("queue.declare", passive=True)


@case
def queue_passive_of_the_last_one(t):
    t.link.call(1, "queue.declare", exclusive=True)
    t.send("queue.declare", passive=True)


@case
def queue_passive_with_other_flags(t):
    t.send("queue.declare", queue=t.queue(), passive=True, auto_delete=True, arguments={"x-max-length": 7})


@case
def queue_transient(t):
    t.send("queue.declare", queue=t.unique("queue"))


@case
def queue_transient_and_exclusive(t):
    t.send("queue.declare", queue=t.unique("queue"), exclusive=True)


@case
def queue_server_named(t):
    t.send("queue.declare", exclusive=True)


@each(durable=dict(durable=False), exclusive=dict(exclusive=True), auto_delete=dict(auto_delete=True),
      durable_and_exclusive=dict(durable=False, exclusive=True))
def queue_again_with_another(t, field):
    t.send("queue.declare", queue=t.queue(), **{"durable": True, **field})


SET = {"x-message-ttl": (1000, 2000), "x-expires": (100_000, 200_000), "x-max-length": (5, 6), "x-max-length-bytes": (500, 600),
       "x-overflow": ("drop-head", "reject-publish"), "x-dead-letter-exchange": ("amq.direct", "amq.fanout"), "x-max-priority": (5, 6),
       "x-single-active-consumer": (True, False), "x-queue-mode": ("default", "lazy")}
LABELS = {name.removeprefix("x-").replace("-", "_"): (name, *values) for name, values in SET.items()}


@each(**LABELS)
def queue_again_with_another_argument(t, wanted):
    name, first, second = wanted
    t.send("queue.declare", queue=t.queue({name: first}), durable=True, arguments={name: second})


@each(**LABELS)
def queue_again_without_its_argument(t, wanted):
    name, first, _ = wanted
    t.send("queue.declare", queue=t.queue({name: first}), durable=True)


@each(**LABELS)
def queue_again_with_a_new_argument(t, wanted):
    name, first, _ = wanted
    t.send("queue.declare", queue=t.queue(), durable=True, arguments={name: first})


@case
def queue_again_with_another_dead_letter_routing_key(t):
    queue = t.queue({"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "a"})
    t.send("queue.declare", queue=queue, durable=True, arguments={"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "b"})


@case
def queue_again_with_an_argument_nobody_knows(t):
    t.send("queue.declare", queue=t.queue(), durable=True, arguments={"x-anything": 1})


@case
def queue_again_with_another_value_nobody_knows(t):
    t.send("queue.declare", queue=t.queue({"x-anything": 1}), durable=True, arguments={"x-anything": "one"})


@case
def queue_again_with_a_number_of_another_width(t):
    t.send("queue.declare", queue=t.queue({"x-max-length": 5}), durable=True, arguments={"x-max-length": Field(("l", 5))})


@each(classic_as_quorum=("classic", "quorum"), quorum_as_classic=("quorum", "classic"), classic_as_stream=("classic", "stream"))
def queue_type_again(t, kinds):
    t.send("queue.declare", queue=t.queue({"x-queue-type": kinds[0]}), durable=True, arguments={"x-queue-type": kinds[1]})


@case
def queue_type_again_without(t):
    t.send("queue.declare", queue=t.queue({"x-queue-type": "quorum"}), durable=True)


@case
def queue_type_again_that_is_the_usual_one(t):
    t.send("queue.declare", queue=t.queue(), durable=True, arguments={"x-queue-type": "classic"})


@each(transient=dict(durable=False), exclusive=dict(exclusive=True), auto_delete=dict(auto_delete=True))
def queue_quorum(t, flags):
    t.send("queue.declare", queue=t.unique("queue"), arguments={"x-queue-type": "quorum"}, **{"durable": True, **flags})


@case
def queue_quorum_server_named(t):
    t.send("queue.declare", durable=True, arguments={"x-queue-type": "quorum"})


@each(declare=("queue.declare", {}), passive=("queue.declare", dict(passive=True)), consume=("basic.consume", {}), get=("basic.get", {}),
      purge=("queue.purge", {}), delete=("queue.delete", {}), bind=("queue.bind", dict(exchange="amq.direct")),
      unbind=("queue.unbind", dict(exchange="amq.direct")))
def queue_exclusive_of_another_connection(t, wanted):
    method, values = wanted
    queue = t.unique("queue")
    t.another().call(1, "queue.declare", queue=queue, exclusive=True)
    t.send(method, queue=queue, **values)


@case
def queue_exclusive_is_gone_with_its_connection(t):
    queue = t.unique("queue")
    owner = t.another()
    owner.call(1, "queue.declare", queue=queue, exclusive=True)
    owner.method(0, "connection.close", reply_code=200)
    owner.expect("connection.close-ok")
    t.send("queue.declare", queue=queue, passive=True)


@each(purge="queue.purge", delete="queue.delete")
def queue_of_none(t, method):
    t.send(method, queue="peer-nowhere")


@each(purge="queue.purge", delete="queue.delete", bind="queue.bind", unbind="queue.unbind", consume="basic.consume", get="basic.get")
def queue_without_a_name(t, method):
    t.send(method, **({"exchange": "amq.direct"} if "bind" in method else {}))


@case
def queue_delete_that_is_not_empty(t):
    t.send("queue.delete", queue=t.queue(messages=[b"x"]), if_empty=True)


@case
def queue_delete_that_is_used(t):
    queue = t.queue()
    t.consume(queue)
    t.send("queue.delete", queue=queue, if_unused=True)


@case
def queue_quorum_delete_if_empty(t):
    t.send("queue.delete", queue=t.queue({"x-queue-type": "quorum"}), if_empty=True)


@case
def queue_quorum_delete_if_unused(t):
    t.send("queue.delete", queue=t.queue({"x-queue-type": "quorum"}), if_unused=True)


@case
def queue_purge_of_messages(t):
    t.send("queue.purge", queue=t.queue(messages=[b"x", b"y"]))


@case
def queue_delete_of_messages(t):
    t.send("queue.delete", queue=t.queue(messages=[b"x", b"y"]))


@case
def queue_used_after_its_deletion(t):
    queue = t.queue()
    t.send("queue.delete", queue=queue)
    t.send("basic.get", queue=queue)


@case
def queue_name_with_line_ends(t):
    # They are taken off.
    name = t.unique("queue")
    t.send("queue.declare", queue=f"{name}\r\n", durable=True)
    t.send("queue.declare", queue=name, passive=True)


@case
def queue_reply_to_declared(t):
    t.send("queue.declare", queue="amq.rabbitmq.reply-to", durable=True)


@case
def queue_reply_to_passive(t):
    t.send("queue.declare", queue="amq.rabbitmq.reply-to", passive=True)


@each(delete="queue.delete", purge="queue.purge", bind="queue.bind", get="basic.get")
def queue_reply_to(t, method):
    t.send(method, queue="amq.rabbitmq.reply-to", **({"exchange": "amq.direct"} if "bind" in method else {}))
