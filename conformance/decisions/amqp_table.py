"""What each method of AMQP that a client sends takes. A request is the methods of a channel; of the last the answer counts."""

from model import AMQP
from requirements import Row, needs

ROWS = []


def row(name, about, text, ask, **more):
    ROWS.append(Row(AMQP, name, about, needs(AMQP, text), ask, **more))


def free(name, ask=None, untried="", about=""):
    ROWS.append(Row(AMQP, name, about, (), ask, untried=untried))


CONFIGURE = "configure {0}; {1} {0}"
ANY = "configure {0} or write {0} or read {0}; Describe {0}"
PASSED_ON = "; read {0}; Read {0}; write {1}; Write {1}"

free("connection.start-ok", untried="each connection of the test begins with it: whose name and password it is decides")
free("connection.secure-ok", untried="no mechanism has a second round")
free("connection.tune-ok", untried="each connection of the test begins with it")
row("connection.open", "", "enter vhost (530)", lambda n, really: "open")
free("connection.close", untried="ends the connection")
free("connection.close-ok", untried="ends the connection")
row("connection.update-secret", "", "enter vhost (530)", None, untried="for tokens: conformance/logins/tokens.py")
free("channel.open", lambda n, really: [])
free("channel.close", untried="ends the channel")
free("channel.close-ok", untried="ends the channel")
free("channel.flow", lambda n, really: [("channel.flow", {"active": True})])
free("channel.flow-ok", untried="answers the broker")
free("access.request", lambda n, really: [("access.request", {"realm": "/data"})])

row("exchange.declare", "", CONFIGURE.format("new exchange", "Create"), lambda n, really: [("exchange.declare", {"exchange": n.new_exchange, "type": "fanout", "durable": True})],
    changes="exchanges")
row("exchange.declare", "passive", ANY.format("exchange"), lambda n, really: [("exchange.declare", {"exchange": n.exchange, "passive": True})])
row("exchange.declare", "that is new, with an alternate exchange", CONFIGURE.format("new exchange", "Create") + PASSED_ON.format("new exchange", "alternate"),
    lambda n, really: [("exchange.declare", {"exchange": n.new_exchange, "type": "fanout", "durable": True, "arguments": {"alternate-exchange": n.alternate}})], changes="exchanges")
row("exchange.delete", "", CONFIGURE.format("exchange", "Delete"), lambda n, really: [("exchange.delete", {"exchange": n.exchange, "if_unused": not really})], changes="exchanges")
for verb in ("bind", "unbind"):
    for about, source, more in (("", "source", ""), ("from a topic exchange", "topic source", "; read-key topic source")):
        row(f"exchange.{verb}", about, f"write destination; Write destination; read {source}; Read {source}{more}", lambda n, really, verb=verb, source=source: [(f"exchange.{verb}", {
            "destination": n.destination, "source": n[source], "routing_key": n.key})], things=("key",), changes="bindings")
        row(f"queue.{verb}", about, f"write queue; Write queue; read {source}; Read {source}{more}", lambda n, really, verb=verb, source=source: [(f"queue.{verb}", {
            "queue": n.queue, "exchange": n[source], "routing_key": n.key})], things=("key",), changes="bindings")


def declared(n, **arguments):
    return [("queue.declare", {"queue": n.new_queue, "durable": True, "arguments": arguments})]


row("queue.declare", "", CONFIGURE.format("new queue", "Create"), lambda n, really: declared(n), changes="queues")
row("queue.declare", "passive", ANY.format("queue"), lambda n, really: [("queue.declare", {"queue": n.queue, "passive": True})])
row("queue.declare", "that is new, with a dead-letter exchange", CONFIGURE.format("new queue", "Create") + PASSED_ON.format("new queue", "dead letter exchange"),
    lambda n, really: declared(n, **{"x-dead-letter-exchange": n.dead_letter_exchange}), changes="queues")
row("queue.declare", "that is new, over a topic that is there", CONFIGURE.format("under", "Create") + "; read under; Read under; write under; Write under; Alter under",
    lambda n, really: [("queue.declare", {"queue": n.under, "durable": True})], changes="queues")
row("queue.declare", "that is new, with x-share-group", CONFIGURE.format("new queue", "Create") + "; Read group",
    lambda n, really: declared(n, **{"x-share-group": n.group}), changes="queues", alone=True)
row("queue.delete", "", CONFIGURE.format("queue", "Delete"), lambda n, really: [("queue.delete", {"queue": n.queue, "if_empty": not really})], changes="queues")
OF_CONSUMER = "read queue; Read queue; Read group of queues"
row("queue.purge", "", OF_CONSUMER, lambda n, really: [("queue.purge", {"queue": n.queue})], changes="messages")
row("basic.consume", "", OF_CONSUMER, lambda n, really: [("basic.qos", {"prefetch_count": 1}), ("basic.consume", {"queue": n.queue, "consumer_tag": "c"}), ("basic.cancel", {"consumer_tag": "c"})])
row("basic.consume", "of a stream", "read stream; Read stream", lambda n, really: [
    ("basic.qos", {"prefetch_count": 1}), ("basic.consume", {"queue": n.stream, "consumer_tag": "c"}), ("basic.cancel", {"consumer_tag": "c"})])
row("basic.get", "", OF_CONSUMER, lambda n, really: [("basic.get", {"queue": n.queue})])
row("basic.publish", "", "write exchange; Write exchange", lambda n, really: [("basic.publish", {"exchange": n.exchange, "routing_key": "none"})], changes="messages")
row("basic.publish", "to a topic exchange", "write topic exchange; Write topic exchange; write-key topic exchange",
    lambda n, really: [("basic.publish", {"exchange": n.topic_exchange, "routing_key": n.key})], things=("key",), changes="messages")
row("basic.publish", "to the default exchange", "write default exchange; Write queue",
    lambda n, really: [("basic.publish", {"exchange": "", "routing_key": n.queue})], changes="messages")
free("basic.qos", lambda n, really: [("basic.qos", {"prefetch_count": 1})])
free("basic.cancel", lambda n, really: [("basic.cancel", {"consumer_tag": "none"})], about="of consumers of the channel")
free("basic.cancel-ok", untried="answers the broker")
for name in ("ack", "reject", "nack"):
    free(f"basic.{name}", lambda n, really, name=name: [(f"basic.{name}", {"delivery_tag": 1})], about="of what the channel was sent")
free("basic.recover", lambda n, really: [("basic.recover", {"requeue": True})], about="of what the channel was sent")
free("basic.recover-async", lambda n, really: [("basic.recover-async", {"requeue": True})], about="of what the channel was sent")
free("confirm.select", lambda n, really: [("confirm.select", {})])
free("tx.select", lambda n, really: [("tx.select", {})])
free("tx.commit", lambda n, really: [("tx.select", {}), ("tx.commit", {})], about="what was published is judged before")
free("tx.rollback", lambda n, really: [("tx.select", {}), ("tx.rollback", {})])
